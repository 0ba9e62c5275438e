"""What policies that learn reach in a world of 50 items: see README.md."""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import once, parser_of, settings_of, write_results, write_text
from analysis import tables
from choosing import candidates, default_learners, split_users

from recsim_mnar import rng
from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.log import Log
from recsim_mnar.policies import Policy, registry
from recsim_mnar.policies.door import PolicyWrapper
from recsim_mnar.protocols.ab_test import run_arm
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds import make_world

HERE = Path(__file__).resolve().parent
QUICK = {"catalogues": [0], "n_items": 10, "n_flips": 5, "log_users": 600, "evaluated_users": 300} | {
    "online_users": 100, "lanes": 16, "epochs": 3, "ppo_steps": 16384,
}  # fmt: skip


class Frozen(PolicyWrapper):
    """A bandit that has learned, and learns no more."""

    learns = "nothing"

    def __init__(self, inner: Policy) -> None:
        self.inner, self.n_items, self.name = inner, inner.n_items, inner.name

    def act(self, users: Any, uniforms: Any) -> Any:
        return self.inner.act(users, uniforms)

    def probabilities(self, users: Any) -> Any:
        return self.inner.probabilities(users)

    def propensity_of(self, users: Any, actions: Any) -> Any:
        return self.inner.propensity_of(users, actions)

    def learn(self, users: Any, actions: Any, rewards: Any, propensities: Any) -> None:
        pass

    def fresh(self) -> Policy:
        return Frozen(self.inner.fresh())


def world_of(given: dict[str, Any], catalogue: int) -> Any:
    settings = {name: given[name] for name in ("n_items", "n_flips")} | {"catalogue_seed": catalogue}
    return make_world("sessions", given["preset"], settings)


def ctr(world: Any, policy: Policy, given: dict[str, Any]) -> dict[str, Any]:
    """Exact CTR of a policy: the mean click probability of what it shows, with its interval over users."""
    arm = run_arm(world, policy, given["evaluated_users"], rng.derive_seed(0, "evaluated"))
    return summary(arm.means, arm.decisions)


def summary(means: Any, decisions: Any) -> dict[str, Any]:
    value, low, high = ratio_interval(means, decisions, 0.95)
    return {"value": value, "low": low, "high": high}


def oracle(world: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The item with the largest click probability in each user's present state."""
    n, seed = given["evaluated_users"], rng.derive_seed(0, "evaluated")
    lanes, which = world.lanes(n), np.arange(n)
    earned, decisions = np.zeros(n), np.zeros(n)
    transition = lanes.begin(which, np.full(n, seed, np.uint64), which)
    while len(which := which[transition.alive]):
        means = world.reward_means(lanes.state[which])
        actions = means.argmax(axis=1).astype(np.int32)
        earned[which] += means[np.arange(len(which)), actions]
        decisions[which] += 1.0
        transition = lanes.take(which, actions, np.ones(len(which)))
    return summary(earned[decisions > 0], decisions[decisions > 0])


def named(name: str, log: Log, n_items: int) -> Policy:
    return registry.learner(name).fit(log, n_items=n_items, seed=1)


def best_fixed(world: Any, given: dict[str, Any]) -> dict[str, Any]:
    """The best item for everybody, of the three with the largest mean click probability of new users."""
    omega = rng.normals(0, rng.Stream.PROTOCOL, 0, (20_000, world.params.n_factors))
    three = np.argsort(-world.click_probabilities(omega).mean(axis=0))[:3]
    found = [ctr(world, named(f"constant+item={item}", Log({}), world.n_items), given) for item in three]
    return max(found, key=lambda one: one["value"])


def log_of(world: Any, given: dict[str, Any]) -> Log:
    logging = named(given["logging"], Log({}), world.n_items)
    return simulate(world, logging, given["log_users"], rng.derive_seed(0, "train"))


def baselines(given: dict[str, Any], catalogue: int) -> dict[str, Any]:
    """What needs no learning from outcomes, what bounds it, and the factorisation of the log's rewards."""
    world = world_of(given, catalogue)
    train, _held = split_users(log_of(world, given), 0.5, 0)
    found = {"oracle": oracle(world, given), "best fixed item": best_fixed(world, given)}
    for name in [*given["baselines"], given["logging"]]:
        found[name] = ctr(world, named(name, train, world.n_items), given)
    return found


def bandits(given: dict[str, Any], catalogue: int) -> dict[str, Any]:
    """Bandits after so many users, learning no more; and what they earned while they learned."""
    world, found = world_of(given, catalogue), {}
    for name in given["bandits"]:
        run = simulate_online(world, name, given["online_users"], rng.derive_seed(0, "online"), lanes=given["lanes"])
        curve = run.curve
        found[name] = ctr(world, Frozen(run.policy), given) | {
            "while_learning": float(curve.rewards[-1] / curve.decisions[-1]),
            "decisions": int(curve.decisions[-1]),
        }
    return found


def from_log(given: dict[str, Any], catalogue: int) -> dict[str, Any]:
    """Every candidate learned from the log: what off-policy evaluation says of it, and its exact CTR."""
    world = world_of(given, catalogue)
    found = {}
    for candidate in candidates(log_of(world, given), default_learners(given["epochs"]), n_items=world.n_items):
        estimate = candidate.estimate
        found[candidate.name] = ctr(world, candidate.policy, given) | {
            "family": candidate.policy.name,
            "estimate": {"value": estimate.value, "low": estimate.low, "high": estimate.high},
        }
    return found


def trained(world: Any, given: dict[str, Any], *, shipped: bool) -> tuple[dict[str, Policy], dict[str, Any]]:
    """PPO after so many steps: policies by the name of their row, and what training took.

    With the library's defaults 2,048 steps of each lane stand between two updates, so there are few lanes.
    """
    import gymnasium as gym
    import torch
    from stable_baselines3 import PPO

    from recsim_mnar.integrations.stable_baselines3 import PPO_SETTINGS, VecEnvAdapter, policy_of

    torch.set_num_threads(1)
    kind = "ppo, shipped settings" if shipped else "ppo, defaults"
    settings: dict[str, Any] = PPO_SETTINGS if shipped else {}
    env = VecEnvAdapter(
        gym.make_vec(
            "recsim_mnar/World-v0",
            num_envs=given["ppo_lanes"] if shipped else given["ppo_default_lanes"],
            vectorization_mode="vector_entry_point",
            autoreset_mode="SameStep",
            world=world,
        )
    )
    model = PPO("MlpPolicy", env, seed=0, device="cpu", **settings)
    began = time.process_time()
    model.learn(given["ppo_steps"])
    took = {"steps": int(model.num_timesteps), "cpu_seconds": time.process_time() - began}
    return {kind: policy_of(model), f"{kind}, its likeliest item": policy_of(model, deterministic=True)}, took


def ppo(given: dict[str, Any], catalogue: int, *, shipped: bool) -> dict[str, Any]:
    """PPO after so many steps, as it acts and by the item that it finds likeliest, learning no more."""
    world, found = world_of(given, catalogue), {}
    policies, took = trained(world, given, shipped=shipped)
    for name, policy in policies.items():
        found[name] = ctr(world, policy, given) | took
    return found


PARTS = {
    "baselines": baselines,
    "from_log": from_log,
    "bandits": bandits,
    "ppo": functools.partial(ppo, shipped=True),
    "ppo_defaults": functools.partial(ppo, shipped=False),
}


def main() -> None:
    parser = parser_of(__doc__, quick="a small slice, its results printed only", study="runs/learners")
    parser.add_argument("--only", choices=PARTS, action="append", help="make these parts alone")
    options = parser.parse_args()
    given = settings_of(HERE, QUICK if options.quick else None)
    folder = options.study / ("quick" if options.quick else "full")
    found: dict[str, dict[str, Any]] = {}
    for part, make in PARTS.items():
        for catalogue in given["catalogues"]:
            path, began = folder / f"{part}-{catalogue}.json", time.perf_counter()
            if not path.exists() and options.only and part not in options.only:
                continue
            try:
                row = once(path, functools.partial(make, given, catalogue))
            except ImportError as error:
                print(f"{part}, catalogue {catalogue}: left out, {error}", flush=True)
                continue
            print(f"{part}, catalogue {catalogue}: {time.perf_counter() - began:.0f} s", flush=True)
            found.setdefault(part, {})[str(catalogue)] = row
    if options.only:
        return
    text = tables(found, given)
    print(text)
    if not options.quick:
        write_text(HERE / "results.md", f"`python benchmarks/learners/run.py`\n\n{text}\n")
        write_results(HERE / "results.json", found)


if __name__ == "__main__":
    main()
