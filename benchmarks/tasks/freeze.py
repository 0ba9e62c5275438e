"""Freeze the tasks: measure random and reference of each definition, and write its file once and for all.

    python benchmarks/tasks/freeze.py [--workers N] [NAME ...]

A file that exists is not written again: a task is never changed, a new version has another name.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

import tomli_w

from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.pools import pool
from recsim_mnar.tasks.evaluating import Known, Task, mean_of
from recsim_mnar.worlds import make_world

HERE = Path(__file__).parent
FROZEN = HERE.parents[1] / "recsim_mnar" / "tasks" / "frozen"
USERS = 40_000
"""Over whom random and reference are measured, unless a definition has ``measured``; none is among the public ones."""
USUAL = {"users": 4_000, "logging": "user-popularity+epsilon=0.2", "log_users": 2_000}
FACTS = ("summary", "world", "horizon", "users", "seed", "logging", "log_users", "reference")
SEED = 1_000
"""Of the public users."""


def definition(name: str, given: dict) -> Task:
    """The task without its values; parameters are those of the preset where none are named, all of them written out."""
    world = make_world(given["world"], None, given.get("params", {}))
    facts = {**USUAL, "seed": SEED, **{key: given[key] for key in (*FACTS, "environment") if key in given}}
    nothing = Known(0.0, 0.0)
    return Task(name, params=world.params.to_dict(), **facts, random=nothing, best=nothing, digest="")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    definitions = tomllib.loads((HERE / "definitions.toml").read_text())
    with pool(options.workers) as executor:
        for name, given in definitions.items():
            path = FROZEN / f"{name}.toml"
            if path.exists() or (options.names and name not in options.names):
                continue
            task = definition(name, given)
            seed = derive_seed(task.seed, "task/frozen")
            found = {}
            for which, policy in (("random", task.random_policy()), ("best", task.reference_policy())):
                n_users = given.get("measured", USERS)
                known = mean_of(task.runner().run(policy, n_users, seed, executor).rewards)
                found[which] = {"value": float(f"{known.value:.6g}"), "error": float(f"{known.error:.3g}")}
            facts = {key: getattr(task, key) for key in FACTS}
            if not task.environment:
                facts["environment"] = False
            path.write_text(tomli_w.dumps({**facts, **found, "params": dict(task.params)}))
            print(name, found, flush=True)


if __name__ == "__main__":
    sys.exit(main())
