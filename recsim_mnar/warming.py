"""warm(): compile kernels ahead of their use."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
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


def parts() -> dict[str, list[tuple[str, Callable[[], Any]]]]:
    """What can be compiled ahead: by name, a list of things to run, each with a line for a person."""
    return {
        "sessions": [(name, functools.partial(_decisions, "sessions", None, params)) for name, params in SESSIONS],
        "ratings": [("ratings", functools.partial(_decisions, "ratings", "quick", {}))],
        "features": [("features", functools.partial(_decisions, "features", "quick", {}))],
        "purchases": [("purchases", _slates)],
        "campaigns": [("campaigns", _platform)],
        "estimators": [("estimators", _estimators)],
        "agents": [(name, functools.partial(_agent, name)) for name in _agents()],
    }


USUAL = ("sessions", "ratings", "features", "purchases", "campaigns", "estimators")


def warm(names: Sequence[str] = USUAL) -> Iterator[Warmed]:
    """Run a little of everything that is named, so that its kernels are compiled and cached; one result a part.

    Args:
        names: of :func:`parts`.

    Raises:
        UserError: an unknown name.
    """
    known = parts()
    for name in names:
        if name not in known:
            raise UserError(f"unknown part to warm: {name!r}; {nearest(name, known)}")
    for name in names:
        for line, run in known[name]:
            before, began = compiled_so_far(), time.process_time()
            run()
            yield Warmed(line, compiled_so_far() - before, time.process_time() - began)


def _decisions(name: str, preset: str | None, params: dict[str, Any]) -> None:
    """A world of single decisions: environments, simulation by kernel and by a policy, and the truth."""
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
    env.reward_means()
    lanes = WorldVectorEnv(world, 2)
    lanes.reset(seed=0)
    for _ in range(40):
        lanes.step(np.zeros(2, np.int64))
    _occasions(world)
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    simulate(world, uniform, 3, 0, keep_truth=True)
    simulate(world, registry.learner("user-popularity").fit(Log({}), n_items=world.n_items, seed=0), 3, 0)


def _occasions(world: Any) -> None:
    """What the truth of a comparison rests on, in the worlds that foresee occasions."""
    from recsim_mnar.kernels import _vectors_kernel

    lanes = world.open_occasions(8, views=True)
    if lanes is None:
        return
    which = np.arange(8)
    lanes.begin(which, 0, which)
    lanes.reward_means(which, np.zeros(8, np.int32))
    lanes.answer(which, np.zeros(8, np.bool_))
    _vectors_kernel.gram(np.zeros((1, 8)), np.zeros((1, 1, 8)), np.zeros((1, 1)))


def _slates() -> None:
    from recsim_mnar.envs import purchases_env
    from recsim_mnar.policies.slates import DeployedPolicy
    from recsim_mnar.simulation.items import simulate
    from recsim_mnar.worlds import make_world

    world: Any = make_world("purchases", "quick")
    env = purchases_env(world=world)
    env.reset(seed=0)
    env.step(np.arange(world.params.slate_size))
    simulate(world, DeployedPolicy(world), 3, 0)


def _platform() -> None:
    from recsim_mnar.envs.platform import CampaignsEnv
    from recsim_mnar.worlds import make_world

    world: Any = make_world("campaigns", "quick")
    env = CampaignsEnv(world)
    env.reset(seed=0)
    env.step(np.ones(world.n_items, np.float32))


def _estimators() -> None:
    from recsim_mnar.estimators import difference, estimate_value
    from recsim_mnar.estimators.off_policy.scores import ESTIMATORS

    n = 400
    reward = (np.arange(n) % 5 == 0).astype(np.float64)
    propensity, target = np.full(n, 0.5), np.where(np.arange(n) % 2 == 0, 0.6, 0.4)
    user = np.arange(n) // 4
    for name, info in ESTIMATORS.items():
        if not info.needs and not info.requires and name != "mips":
            estimate_value(reward, propensity, target, estimator=name, clip=5.0, cluster=user)
    difference(reward, propensity, target, propensity, estimator="ips", cluster=user)


def _agents() -> list[str]:
    from recsim_mnar.policies import registry

    return [name for name, _ in registry.agents() if name not in _OF_OTHER_WORLDS]


_OF_OTHER_WORLDS = frozenset(
    {"constant-list", "most-recommended", "never-recommended", "rmf", "ulrmf", "ulbpr"}
    | {"recresp", "cause", "cause-prod"}
)


def _agent(name: str) -> None:
    """Fit an agent on a small log and let it act; one that this log cannot serve has nothing to compile here."""
    from recsim_mnar.policies import registry
    from recsim_mnar.policies.door import learning_of
    from recsim_mnar.simulation.items import simulate, simulate_online
    from recsim_mnar.worlds import make_world

    world: Any = make_world("ratings" if name.endswith("-ratings") else "sessions", "quick")
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    log = simulate(world, uniform, 60, 0)
    try:
        policy = registry.learner(name).fit(log, n_items=world.n_items, seed=0)
        if learning_of(policy) == "all users":
            simulate_online(make_world("features", "quick"), name, 3, 0)  # fewer items: models of each are large
        else:
            simulate(world, policy, 3, 0)
    except UserError:
        return
