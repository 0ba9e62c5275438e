"""Learn from the tasks' data sets, by d3rlpy's discrete CQL and by our off-policy learners; score what was learned.

    python benchmarks/tasks/offline.py [--tasks A,B] [--qualities good,...] [--steps N] [--agents cql,poem,...]
        [--users N] [--out runs/tasks-offline]

It needs d3rlpy, and our package next to it without its dependencies (docs/export.md); without ``cql`` it needs neither.
A cell that is there is not made again. Scores are of public users, in pairs with the random policy: 0 is random, 1 the
task's reference. Ratings are not learned from: what their environment observes no policy of features sees.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import once

from recsim_mnar import FeaturePolicy, evaluate, task, task_dataset
from recsim_mnar.export import to_d3rlpy
from recsim_mnar.policies.registry import learner
from recsim_mnar.rng import derive_seed
from recsim_mnar.tasks.datasets import QUALITIES

TASKS = ("cold-100-v1", "flipped-100-v1", "fatigue-50-v1", "retention-50-v1")
AGENTS = ("poem", "dr-policy", "banditnet", "cql")


def cql(data: Any, steps: int, seed: int) -> FeaturePolicy:
    """d3rlpy's discrete CQL with its own settings, 256 rows per batch; it shows the item of the largest value."""
    import d3rlpy

    d3rlpy.seed(seed % 2**31)
    dataset = d3rlpy.dataset.MDPDataset(**to_d3rlpy(data.decisions))
    model = d3rlpy.algos.DiscreteCQLConfig(batch_size=256, learning_rate=3e-4, gamma=0.95, target_update_interval=500)
    fitted = model.create(device="cpu:0")
    nowhere = d3rlpy.logging.NoopAdapterFactory()
    fitted.fit(dataset, n_steps=steps, n_steps_per_epoch=steps, show_progress=False, logger_adapter=nowhere)
    import torch

    network = fitted.impl.q_function

    def scores(x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            given = torch.tensor(x)
            return np.mean([one(given).q_value.numpy() for one in network], axis=0)

    return FeaturePolicy(data.decisions.n_items, data.recipe.observation, scores=scores, name="cql")


def cell(name: str, quality: str, agent: str, steps: int, users: int | None) -> dict[str, Any]:
    """The score of what an agent learned from a data set."""
    chosen, data = task(name), task_dataset(name, quality)
    seed = derive_seed(chosen.seed, "task/fit")
    began = time.process_time()
    if agent == "cql":
        policy: Any = cql(data, steps, seed)
    else:
        policy = learner(agent).fit(data.log, n_items=data.decisions.n_items, seed=seed)
    seconds = time.process_time() - began
    found = evaluate(policy, chosen, n_users=users)
    facts = {"quality": quality, "steps": steps if agent == "cql" else None, "fit_cpu_seconds": seconds}
    return {**found.to_dict(), "agent": agent, "logger_score": data.recipe.score, **facts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--qualities", default=",".join(QUALITIES))
    parser.add_argument("--agents", default=",".join(AGENTS))
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--users", type=int)
    parser.add_argument("--out", type=Path, default=Path("runs/tasks-offline"))
    given = parser.parse_args()
    agents = given.agents.split(",")
    print("| task | data | logger | " + " | ".join(agents) + " |\n|" + "---|" * (len(agents) + 3))
    for name in given.tasks.split(","):
        for quality in given.qualities.split(","):
            row = []
            for agent in agents:
                path = given.out / name / quality / f"{agent}.json"
                row.append(once(path, lambda q=quality, n=name, a=agent: cell(n, q, a, given.steps, given.users)))
            said = [f"{one['score']:.2f} [{one['score_low']:.2f}, {one['score_high']:.2f}]" for one in row]
            print(f"| {name} | {quality} | {row[0]['logger_score']:.2f} | " + " | ".join(said) + " |", flush=True)


if __name__ == "__main__":
    main()
