"""What a hidden world is: the door between those who draw worlds and those who judge ``advise`` by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recsim_mnar.worlds import DecisionWorld


@dataclass(frozen=True)
class Hidden:
    """A world whose logs ``advise`` is judged by.

    Attributes:
        name: short, one of its own.
        family: of worlds that differ in parameters and sizes alone.
        inside: whether the sessions model contains it.
        make: gives the world, always the same one.
        logging: name of the logging policy, as the command line takes it; one that learns is fitted on other users
            under the uniform policy, as ``simulate`` does.
        agents: names of the agents to choose from, as the command line takes them.
        users: of one log.
        note: what a judge should know.
    """

    name: str
    family: str
    inside: bool
    make: Callable[[], DecisionWorld]
    logging: str
    agents: tuple[str, ...]
    users: int
    note: str
