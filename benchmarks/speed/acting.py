"""What acting costs: agents that learned in a simulation, and the environments.

*Acting*: an event where an agent that learned acts, against uniform logging: 2,000 items, one worker, in turn.
*Environments*: steps per CPU second against Gymnasium's SyncVectorEnv and SARDINE, in turn, with random actions, drawn
before the clock starts, 100 items, the sessions world with RecoGym's defaults.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from table import Row, cpu_seconds, least, machine, middle, peer

from recsim_mnar.envs import world_env, world_vector_env
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world

N_ITEMS, LANES = 100, 1024
AGENTS = ("item-knn", "svd", "user-knn")
BARS = {"item-knn": 4, "svd": 4}
BYTES_AN_EVENT = 8 + 4 + 8 + 1 + 4 + 4 + 8 + 8


def policies(world: Any, agents: Sequence[str], train_users: int) -> dict[str, Any]:
    """Uniform logging, and agents fitted on its log."""
    found = {"random": registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)}
    train = simulate(world, found["random"], train_users, seed=11)
    for name in agents:
        found[name] = registry.learner(name).fit(train, n_items=world.n_items, seed=0)
    return found


def costs(world: Any, fitted: dict[str, Any], users: int, rounds: int) -> dict[str, float]:
    """Least CPU seconds an event of each policy."""
    seconds: dict[str, list[float]] = {name: [] for name in fitted}
    for policy in fitted.values():
        simulate(world, policy, 50, seed=1)
    for seed in range(rounds):
        for name, policy in fitted.items():
            spent, log = cpu_seconds(lambda p=policy, s=seed: simulate(world, p, users, seed=2 + s))
            seconds[name].append(spent / len(log))
    return least(seconds)


def acting(quick: bool) -> list[Row]:
    """A row per agent."""
    users, rounds = (500, 2) if quick else (4000, 7)
    world = make_world("sessions", "jeunen2019", [])
    cost = costs(world, policies(world, AGENTS, 2000), users, rounds)
    floor = BYTES_AN_EVENT / machine().write + machine().draw
    return [
        Row(
            f"simulate, {name} acting, {world.n_items:,} items", "uniform logging", 1e9 * cost[name],
            1e9 * cost["random"], "ns an event", BARS.get(name), at_least=False, floor=1e9 * floor,
            floor_is="a row of the log written, and the policy's draw",
        )
        for name in AGENTS
    ]  # fmt: skip


def single(steps: int, seed: int) -> float:
    """Of our single environment."""
    env = world_env("sessions", "recogym-v1", n_items=N_ITEMS)
    actions = np.random.default_rng(seed).integers(0, N_ITEMS, steps)
    env.reset(seed=seed)
    env.step(actions[0])
    began = time.process_time()
    for action in actions:
        if env.step(action)[2]:
            env.reset()
    return steps / (time.process_time() - began)


def vector(env: Any, steps: int) -> float:
    """Of a vector environment, steps of all lanes counted."""
    rounds = max(2, steps // LANES)
    actions = np.random.default_rng(0).integers(0, N_ITEMS, (rounds, LANES))
    env.reset(seed=0)
    env.step(actions[0])
    began = time.process_time()
    for action in actions:
        env.step(action)
    return rounds * LANES / (time.process_time() - began)


def sardine(steps: int, lanes: int = 0) -> float | None:
    """Of SARDINE's, in its own virtual environment; None where that is not there."""
    found = peer("sardine", "sardine", [N_ITEMS, steps, lanes])
    return None if found is None else float(found["rate"])


def environments(quick: bool) -> list[Row]:
    """Three rows: single, vector against our SyncVectorEnv, vector against SARDINE's."""
    rounds, scale = (1, 0.2) if quick else (5, 1.0)
    ours = world_vector_env(LANES, world="sessions", preset="recogym-v1", n_items=N_ITEMS)
    synced = gymnasium.vector.SyncVectorEnv([lambda: world_env("sessions", "recogym-v1", n_items=N_ITEMS)] * LANES)
    found: dict[str, list[float]] = {name: [] for name in ("single", "vector", "synced", "sardine", "sardine, synced")}
    single(1000, 0)
    for i in range(rounds):
        found["single"].append(single(int(200_000 * scale), i))
        found["vector"].append(vector(ours, int(2_000_000 * scale)))
        found["synced"].append(vector(synced, int(200_000 * scale)))
        for name, rate in (
            ("sardine", sardine(int(20_000 * scale))),
            ("sardine, synced", sardine(int(20_000 * scale), LANES)),
        ):
            if rate is not None:
                found[name].append(rate)
    synced.close()
    rate = {name: middle(values) if values else None for name, values in found.items()}
    copy = 1.0 / (4 * N_ITEMS / machine().read + 4 * N_ITEMS / machine().write)
    floor = {
        "of_costs": False,
        "unit": "steps a CPU s",
        "floor": copy,
        "floor_is": "a copy of the observation, 400 bytes read and written",
    }
    assert rate["single"] is not None
    assert rate["vector"] is not None
    return [
        Row(f"single environment, {N_ITEMS} items", "SARDINE", rate["single"], rate["sardine"], bar=15, **floor),
        Row("vector environment, 1,024 lanes", "SyncVectorEnv of ours", rate["vector"], rate["synced"], bar=10,
            **floor),
        Row(
            "vector environment, 1,024 lanes", "SyncVectorEnv of SARDINE", rate["vector"], rate["sardine, synced"],
            bar=200, **floor,
        ),
    ]  # fmt: skip
