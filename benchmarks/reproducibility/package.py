"""All that these programs know of the package's inside: where its modules move, this file alone is mended."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import numpy as np

import recsim_mnar.simulation.executor as simulation
from recsim_mnar.envs.recording import record, record_vector
from recsim_mnar.envs.slates import record_slates, record_slates_vector
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.policy import Policy, registry
from recsim_mnar.policy.capabilities import KnowsScores, able
from recsim_mnar.policy.slates import DeployedPolicy, SlatePolicy
from recsim_mnar.protocols.temporal.feedback_loop import feedback_loop
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation import iter_shards, simulate
from recsim_mnar.simulation.platform import additions_log, platform_log, run_campaigns, score_users
from recsim_mnar.simulation.slates import exposures_of
from recsim_mnar.worlds import make_world

__all__ = [
    "DeployedPolicy",
    "Exposures",
    "KnowsScores",
    "Log",
    "Policy",
    "SlatePolicy",
    "UserError",
    "able",
    "additions_log",
    "agent_class",
    "agent_names",
    "command_line",
    "derive_seed",
    "exposures_of",
    "feedback_loop",
    "learner",
    "make_world",
    "platform_log",
    "record",
    "record_slates",
    "record_slates_vector",
    "record_vector",
    "replay",
    "run_campaigns",
    "score_users",
    "simulate",
    "small_shards",
    "value_on_log",
]

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
    shards = list(iter_shards(world, policy, 2 * n_users, 0))
    if [len(np.unique(shard["user"])) for shard in shards] != [n_users, n_users]:
        raise RuntimeError("the size of a shard is kept elsewhere: mend small_shards()")


def command_line(*arguments: object) -> None:
    """Run ``recsim-mnar`` with these arguments, in this process and silently.

    Raises:
        UserError: it ended with another status than 0.
    """
    main: Callable[[list[str]], None] = next(
        point for point in entry_points(group="console_scripts") if point.name == "recsim-mnar"
    ).load()
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main([str(argument) for argument in arguments])
    except SystemExit as ended:
        if ended.code:
            raise UserError(said.getvalue().strip()) from None
