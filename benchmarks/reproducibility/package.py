"""All that these programs know of the package's inside: where its modules move, this file alone is mended."""

# ruff: noqa: F401  (names that the programs use)
from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distribution, entry_points
from pathlib import Path
from typing import Any

import numpy as np

import recsim_mnar.simulation.executor as simulation
from recsim_mnar.campaigns.platform import additions_log, platform_log, run_campaigns, score_users
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import Policy, registry
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import DeployedPolicy, exposures_of
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation import map_shards, simulate
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.testing.environments import stepped_again
from recsim_mnar.worlds import make_world

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
from feedback_loop import feedback_loop  # an example

learner = registry.learner


def agent_names() -> list[str]:
    """Names of all registered agents."""
    return [name for name, _ in registry.agents()]


def agent_class(name: str) -> type[Any]:
    """The class behind a registered name."""
    return next(point for point in entry_points(group="recsim_mnar.agents") if point.name == name).load()


def small_shards(n_users: int) -> None:
    """Users of one unit of work: few, so that workers have something to share.

    Raises:
        RuntimeError: the number of shards does not follow, so that comparing workers would show nothing.
    """
    simulation.SHARD_USERS = n_users
    world = make_world("sessions", "quick")
    policy = learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    shards = list(map_shards(dict, world, policy, 2 * n_users, 0))
    if [len(np.unique(shard["user"])) for shard in shards] != [n_users, n_users]:
        raise RuntimeError("the size of a shard is kept elsewhere: mend small_shards()")


def said(*arguments: object) -> tuple[int, str, str]:
    """Run ``recsim-mnar`` with these arguments in this process: its status, and what it wrote to either stream."""
    main: Callable[[list[str]], None] = next(
        point for point in entry_points(group="console_scripts") if point.name == "recsim-mnar"
    ).load()
    out, complaint, status = io.StringIO(), io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(complaint):
            main([str(argument) for argument in arguments])
    except SystemExit as ended:
        status = int(ended.code or 0)
    return status, out.getvalue(), complaint.getvalue()


def command_line(*arguments: object) -> None:
    """Run ``recsim-mnar`` with these arguments, in this process and silently.

    Raises:
        UserError: it ended with another status than 0.
    """
    status, out, complaint = said(*arguments)
    if status:
        raise UserError(f"{out}{complaint}".strip())


def commands() -> Iterator[tuple[list[str], list[str]]]:
    """The words of each command, and its options."""
    from recsim_mnar.cli import cli

    waiting: list[tuple[list[str], Any]] = [([], cli)]
    while waiting:
        words, command = waiting.pop()
        options = [name for each in command.params for name in each.opts]
        below = getattr(command, "commands", {})
        yield words, [*options, *below]
        waiting += [([*words, name], each) for name, each in below.items()]


def entered() -> Iterator[tuple[str, str]]:
    """Groups and names of entry points of this distribution, and what each is entered with."""
    for point in distribution("recsim-mnar").entry_points:
        yield f"{point.group} {point.name}", point.value


@contextlib.contextmanager
def not_here() -> Iterator[None]:
    """Pass over what this package refuses, or what cannot be saved."""
    with contextlib.suppress(UserError, AttributeError, NotImplementedError):
        yield
