"""warm(): compile kernels ahead of their use."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.kernels.jit import compiled_so_far
from recsim_mnar.log.table import Log

SESSIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sessions", {"n_items": 10, "n_flips": 5}),
    ("sessions of 200 items and more", {"n_items": 300}),
    ("sessions of 400 items and more, even popularity", {"n_items": 500, "sigma_mu_organic": 0.5}),
)
"""Catalogues of the sessions world, one for each way in which views are sampled: each has kernels of its own. One flips
all its items: flips have kernels too."""


@dataclass(frozen=True)
class Warmed:
    """What one part of :func:`warm` compiled.

    Attributes:
        part: its name.
        kernels: how many were compiled now; those that are cached already are none.
        seconds: of CPU time.
    """

    part: str
    kernels: int
    seconds: float


def warm() -> Iterator[Warmed]:
    """Run a little of every world and of the estimates, so that their kernels are compiled and cached."""
    parts: list[tuple[str, Callable[[], None]]] = [
        *((name, functools.partial(_decisions, "sessions", None, params)) for name, params in SESSIONS),
        *((name, functools.partial(_decisions, name, "quick", {})) for name in ("ratings", "features")),
        ("purchases", _purchases),
        ("campaigns", _campaigns),
        ("estimators", _estimators),
    ]
    for name, run in parts:
        before, began = compiled_so_far(), time.process_time()
        run()
        yield Warmed(name, compiled_so_far() - before, time.process_time() - began)


def _decisions(name: str, preset: str | None, params: dict[str, Any]) -> None:
    """A world of single decisions: environments, and simulation by kernel and by a policy."""
    from recsim_mnar.envs.single import WorldEnv
    from recsim_mnar.envs.vector import WorldVectorEnv
    from recsim_mnar.policies import registry
    from recsim_mnar.simulation.items import simulate
    from recsim_mnar.worlds import make_world

    world: Any = make_world(name, preset, params)
    env: Any = WorldEnv(world)
    env.reset(seed=0)
    for _ in range(150):  # more than are done without a kernel
        if env.step(0)[2]:
            env.reset()
    lanes = WorldVectorEnv(world, 2)
    lanes.reset(seed=0)
    for _ in range(40):
        lanes.step(np.zeros(2, np.int64))
    for agent in ("random", "user-popularity"):
        policy = registry.learner(agent).fit(Log({}), n_items=world.n_items, seed=0)
        simulate(world, policy, 3, 0, keep_truth=agent == "random")


def _purchases() -> None:
    from recsim_mnar.policies.slates import DeployedPolicy
    from recsim_mnar.simulation.items import simulate
    from recsim_mnar.worlds import make_world

    world: Any = make_world("purchases", "quick")
    simulate(world, DeployedPolicy(world), 3, 0)


def _campaigns() -> None:
    from recsim_mnar.envs.platform import CampaignsEnv
    from recsim_mnar.worlds import make_world

    world: Any = make_world("campaigns", "quick")
    env = CampaignsEnv(world)
    env.reset(seed=0)
    env.step(np.ones(world.n_items, np.float32))


def _estimators() -> None:
    from recsim_mnar.estimators import difference, estimate_value

    n = 400
    reward = (np.arange(n) % 5 == 0).astype(np.float64)
    propensity, target = np.full(n, 0.5), np.where(np.arange(n) % 2 == 0, 0.6, 0.4)
    user = np.arange(n) // 4
    for name in ("snips", "ips"):
        estimate_value(reward, propensity, target, estimator=name, cluster=user)
    difference(reward, propensity, target, propensity, estimator="ips", cluster=user)
