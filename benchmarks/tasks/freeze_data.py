"""Freeze the recipes of the tasks' data sets: who logs, what it earns, and the sha256 of what it logs.

    python benchmarks/tasks/freeze_data.py [--workers N] [NAME ...]

A file that exists is not written again: a recipe is never changed, a new version of the task has another name.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import tomli_w

from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.pools import pool
from recsim_mnar.tasks import evaluate, task, tasks
from recsim_mnar.tasks.datasets import QUALITIES, Recipe
from recsim_mnar.tasks.evaluating import Task
from recsim_mnar.tasks.running import LOG
from recsim_mnar.worlds.base import DecisionWorld

RECIPES = Path(__file__).parents[2] / "recsim_mnar" / "tasks" / "recipes"
GOOD = {"drifting-100-v1": "user-popularity-greedy", "ratings-100-v1": "mf-ips-ratings"}
"""The best agents that see what a recommender sees, where there is no planner."""
WEAK = ("fatigue-50-v1",)
"""Tasks whose own logging policy earns less than the random one: half of a planner's decisions are uniform instead."""
USERS = {"sessions-1000-v1": 1_000}
"""Where 2,000 would make files of more than 600 MB."""


def logger_of(chosen: Task, quality: str) -> tuple[str, float]:
    """Name and epsilon of a logging policy."""
    good = GOOD.get(chosen.name, "planner")
    own, _, epsilon = chosen.logging.partition("+epsilon=")
    mediocre = (good, 0.5) if chosen.name in WEAK else (own, float(epsilon or 0.0))
    return {"random": ("random", 1.0), "mediocre": mediocre, "good": (good, 0.1)}[quality]


def begun(chosen: Task, quality: str) -> Recipe:
    """A recipe without what is measured."""
    policy, epsilon = logger_of(chosen, quality)
    world, own = chosen.make_world(), not chosen.environment
    changes = getattr(world.params, "changes", False)
    label = LOG if own else f"task/dataset/{quality}"
    return Recipe(
        chosen.name,
        quality,
        policy,
        epsilon,
        chosen.log_users if own else USERS.get(chosen.name, 2_000),
        derive_seed(chosen.seed, label) >> (0 if own else 1),  # TOML has 63 bits for a number
        "shown=0.9" if changes else "counts",
        **{"value": 0.0, "score": 0.0, "decisions": 0, "sha256": ""},
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    RECIPES.mkdir(exist_ok=True)
    with pool(options.workers) as executor:
        for name in options.names or tasks():
            chosen = task(name)
            if not isinstance(chosen.make_world(), DecisionWorld):
                continue
            for quality in QUALITIES if chosen.environment else ("mediocre",):  # no other log may be used there
                path = RECIPES / f"{name}-{quality}.toml"
                if path.exists():
                    continue
                recipe = begun(chosen, quality)
                made = recipe.make(executor)
                found = evaluate(recipe.logging_policy(), chosen, executor=executor)
                recipe = dataclasses.replace(
                    recipe,
                    value=float(f"{found.value:.6g}"),
                    score=round(found.score, 3),
                    decisions=len(made.decisions),
                    sha256=made.sha256,
                )
                held = {key: value for key, value in dataclasses.asdict(recipe).items() if key != "digest"}
                path.write_text(tomli_w.dumps(held))
                print(recipe, flush=True)


if __name__ == "__main__":
    sys.exit(main())
