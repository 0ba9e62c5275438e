"""One seed, one log: sha256 of the log of every agent through every face.

    python benchmarks/reproducibility/same_bytes.py [--users N] [--items P] [--json FILE]

Faces: ``simulate`` with 1, 2 and 7 workers (threads, and two processes), the single environment, and the vector
environment with 1, 64 and 1,000 lanes. The environments' logs are rebuilt from what ``reset`` and ``step`` return. In
the ratings world the propensities of observation are hashed too.
Ends with status 1 where any two differ.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from recsim_mnar.envs import WorldEnv, WorldVectorEnv
from recsim_mnar.envs.recording import record, record_vector
from recsim_mnar.log import Log
from recsim_mnar.policy import Policy, registry
from recsim_mnar.simulate import executor as shards
from recsim_mnar.simulate import items as simulate
from recsim_mnar.simulate import workers
from recsim_mnar.simulate.run_folder import write_json
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.base import World


class OrderReader(Policy):
    """Written outside the package: the last item viewed or the first, so the order of views matters."""

    name = "(foreign) order-reader"

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items
        self.ends: dict[int, tuple[int, int]] = {}

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.ends[user] = (self.ends.get(user, (item, item))[0], item)

    def reset(self, users):
        for user in users.tolist():
            self.ends.pop(user, None)

    def act(self, users, uniforms):
        ends = np.array([self.ends[user] for user in users.tolist()])
        actions = np.where(uniforms < 0.5, ends[:, 1], ends[:, 0])
        return actions, np.where(ends[:, 0] == ends[:, 1], 1.0, 0.5)

    def probabilities(self, users):
        out = np.zeros((len(users), self.n_items))
        for row, user in enumerate(users.tolist()):
            for item in self.ends[user]:
                out[row, item] += 0.5
        return out

    def fresh(self):
        return OrderReader(self.n_items)


AGENTS = (
    "random",
    "constant",
    "popularity",
    "user-popularity",
    "user-popularity-greedy",
    "svd",
    "item-knn",
    "user-knn",
    "item-knn+temperature=0.3",
    "user-knn+epsilon=0.2",
)
RATERS = (
    "random",
    "popularity",
    "user-popularity",
    "mf-naive-ratings+penalty=0.0002",
    "mf-ips-ratings+penalty=0.0002+unrated=true",
    "mf-ips-ratings+penalty=0.0002+temperature=0.3",
)


def digests(world: World, policy: Policy, n_users: int, seed: int) -> dict[str, str]:
    """The log's sha256 through every face."""
    found = {}
    for n in (1, 2, 7):
        with workers(n) as executor:
            log = simulate.simulate(world, policy, n_users, seed, executor=executor)
            found[f"simulate, {n} workers"] = log.digest(optional=True)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        log = simulate.simulate(world, policy, n_users, seed, executor=processes)
        found["simulate, 2 processes"] = log.digest(optional=True)
    found["single environment"] = record(WorldEnv(world), policy, n_users, seed).digest(optional=True)
    for lanes in (1, 64, 1000):
        log = record_vector(WorldVectorEnv(world, lanes), policy, n_users, seed)
        found[f"vector, {lanes} lanes"] = log.digest(optional=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    sessions = make_world("sessions", "recogym-v1", [f"n_items={options.items}", "n_flips=50", "clock=normal"])
    ratings = make_world("ratings", None, [f"n_items={options.items}"])
    shards.SHARD_USERS = 32  # several shards, so that workers have something to share
    tables, alike = {}, True
    for world, names in ((sessions, (*AGENTS, OrderReader.name)), (ratings, RATERS)):
        table, same = compare_faces(world, names, options.users)
        tables[world.name] = table
        alike &= same
    if options.json:
        write_json(options.json, tables)
    sys.exit(0 if alike else 1)


def compare_faces(world: World, names: tuple[str, ...], n_users: int) -> tuple[dict[str, dict[str, str]], bool]:
    """Every agent's digests in a world, and whether all faces agree."""
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    train = simulate.simulate(world, uniform, 300, seed=9)
    table, alike = {}, True
    print(f"{world.name} world")
    for name in names:
        foreign = name == OrderReader.name
        policy = OrderReader(world.n_items) if foreign else registry.learner(name).fit(train, n_items=world.n_items)
        table[name] = found = digests(world, policy, n_users, seed=4)
        same = len(set(found.values())) == 1
        alike &= same
        verdict = f"all {len(found)} alike" if same else str(found)
        print(f"{name:<48} {next(iter(found.values()))}  {verdict}", flush=True)
    return table, alike


if __name__ == "__main__":
    main()
