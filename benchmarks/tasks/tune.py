"""Choose one setting of each algorithm of Stable-Baselines3 for all tasks, on users of two: see settings.toml."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import making
from _study import once, settings_of, write_results

from recsim_mnar import evaluate, task

HERE = Path(__file__).resolve().parent


def judged(kind: str, name: str, setting: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Scores of one candidate on one task, by its distribution and by its most probable action."""
    tuning, began = given["tuning"], time.process_time()
    trained = making.trained(kind, task(name), setting, steps=given["rl"]["steps"], seed=tuning["train_seed"])
    others, found = making.other_users(task(name), tuning["seed"]), {}
    for way in (False, True) if kind != "dqn" else (False,):
        policy = making.as_policy(trained, {**setting, "deterministic": way})
        found[str(way).lower()] = evaluate(policy, others, n_users=tuning["users"]).score
    return {"scores": found, "cpu_seconds": time.process_time() - began}


def candidate(kind: str, setting: Mapping[str, Any], given: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """A candidate's scores on the tasks and their mean, once for each way to act.

    A score below 0, worse than random, counts as 0 in the mean: else a task on which greedy agents lose much decides.
    """
    words = "-".join(str(setting[key]) for key in ("observation", "gamma", "learning_rate"))
    per_task = {}
    for name in given["tuning"]["tasks"]:
        path = folder / f"{kind}-{words}-{name}.json"
        per_task[name] = once(path, functools.partial(judged, kind, name, setting, given))
    ways = next(iter(per_task.values()))["scores"]
    found = []
    for way in ways:
        scores = {name: one["scores"][way] for name, one in per_task.items()}
        mean = sum(max(score, 0.0) for score in scores.values()) / len(scores)
        chosen = {**setting, "deterministic": way == "true"}
        found.append({"setting": chosen, "scores": scores, "mean": mean, "cpu_seconds": seconds_of(per_task)})
        print(kind, words, way, {name: round(score, 3) for name, score in scores.items()}, flush=True)
    return found


def seconds_of(per_task: Mapping[str, Mapping[str, Any]]) -> float:
    """CPU seconds of a candidate on all tasks."""
    return sum(one["cpu_seconds"] for one in per_task.values())


def chosen(kind: str, given: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """All candidates of an algorithm and the setting with the largest mean score."""
    tuning, base, found = given["tuning"], given["base"][kind], []
    for observation in tuning["observations"]:
        for gamma in tuning["gammas"]:
            found += candidate(kind, {**base, "observation": observation, "gamma": gamma}, given, folder)
    best = max(found, key=lambda one: one["mean"])["setting"]
    for rate in tuning["rates"]:
        found += candidate(kind, {**best, "learning_rate": rate}, given, folder)
    return {"best": max(found, key=lambda one: one["mean"]), "candidates": found}


def main() -> None:
    given, folder = settings_of(HERE), Path("runs") / "tasks-tuning"
    write_results(HERE / "tuning.json", {kind: chosen(kind, given, folder) for kind in making.KINDS})


if __name__ == "__main__":
    main()
