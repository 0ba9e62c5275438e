"""The widened coverage study: `python benchmarks/verdict/study.py dev|held_out FIRST LAST [PART/PARTS]`.

Logs FIRST to LAST - 1 of every setting: a setting is a step whose logs are kept under logs/ (values, ends, verdicts),
and one that is done is not run again. PART/PARTS takes every PARTS-th setting, for two processes. `python
benchmarks/verdict/collect.py` puts the steps together.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from generator import Setting, World, load
from uplift_worlds import UpliftSetting, draw_uplift

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import difference, estimate_value
from recsim_mnar.estimators.uplift import average_effect, evaluate_lists
from recsim_mnar.log.exposures import Exposures

HERE = Path(__file__).resolve().parent

METHODS = ("default", "clipped", "snips", "beta_ips", "difference")
BINS = 10


def doubly_robust_settings(settings: list[Setting]) -> list[Setting]:
    """The first fifteen with binary rewards and kinds of rows that a model can be fitted on."""
    return [s for s in settings if s.rewards == "binary" and s.weights in ("lognormal", "two_point", "epsilon_greedy")]


class Tally:
    """What is kept of a method's logs: (value, low, high, trusted, severity) of each, and why they were not trusted."""

    def __init__(self) -> None:
        self.rows: list[tuple[float, float, float, float, float]] = []
        self.reasons: Counter[str] = Counter()

    def add(self, estimate: Any) -> None:
        assert estimate.low <= estimate.value <= estimate.high, estimate
        ends = (estimate.value, estimate.low, estimate.high)
        self.rows.append((*ends, float(estimate.trusted), estimate.verdict.severity))
        self.reasons.update(f.code for f in estimate.verdict.findings if f.level != "trust")


def run(setting: Setting, first: int, last: int, with_model: bool) -> dict[str, Any]:
    """Some logs of one setting."""
    world = World(setting)
    tallies = {name: Tally() for name in (*METHODS, *(("dr",) if with_model else ()))}
    plain, squares = [], []
    said = world.stated()
    began = time.process_time()
    for number in range(first, last):
        log = world.log(number)
        baseline = log.pop("baseline")
        weight = log["target"] / log["propensity"]
        above = log["reward"] + setting.cost
        plain.append(float(np.mean(weight * log["reward"])))
        squares.append(float(np.sum(weight * weight * above)))
        if setting.support == "no":
            log.pop("unsupported", None)
        given = log | said
        tallies["default"].add(estimate_value(**given))
        tallies["clipped"].add(estimate_value(**given, clip=setting.clip))
        tallies["snips"].add(estimate_value(**given, estimator="snips"))
        tallies["beta_ips"].add(estimate_value(**given, estimator="beta_ips"))
        lost = {}
        if "unsupported" in log:
            lost["baseline_unsupported"] = np.zeros(log["reward"].size)
        tallies["difference"].add(difference(**given, **lost, baseline=baseline, clip=setting.clip))
        if with_model:
            tallies["dr"].add(estimate_value(**given, **model_of(world, log), estimator="dr"))
    truths = dict.fromkeys(tallies, world.value)
    truths["difference"] = world.value - world.baseline_value
    rows = setting.users * float(np.arange(1, 201) @ world.lengths)
    facts = {
        "name": setting.name,
        "family": setting.family,
        "held_out": setting.held_out,
        "bounded": bool(world.bounded()),
        "users": setting.users,
        "rows": rows,
        "support": setting.support,
        "missing": setting.missing,
        "spread": setting.spread if setting.rewards == "pareto" else None,
        "steps_by_formula": rows * (world.value + setting.cost) * world.second / world.largest**2,
        "truths": truths,
    }
    return kept(facts, tallies, {"plain": plain, "squares": squares, "largest": [world.largest]}, began)


def kept(facts: dict[str, Any], tallies: dict[str, Tally], more: dict[str, Any], began: float) -> dict[str, Any]:
    """What a step writes."""
    return {
        "facts": facts,
        "methods": {name: {"rows": t.rows, "reasons": dict(t.reasons)} for name, t in tallies.items()},
        **more,
        "cpu_seconds": time.process_time() - began,
    }


def model_of(world: World, log: dict[str, Any]) -> dict[str, Any]:
    """A reward model fitted on the other half of the users: the mean reward of each tenth of the weights."""
    weight = log["target"] / log["propensity"]
    edges = np.quantile(world.weight, np.arange(1, BINS) / BINS)
    known = weight / (1.0 - log.get("unsupported", 0.0))
    bins = np.searchsorted(edges, known * (1 - 1e-12), side="right")
    shares = np.bincount(
        np.searchsorted(edges, world.weight * (1 - 1e-12), side="right"), world.chance * world.weight, BINS
    )
    fold = log["cluster"] % 2
    counts = np.zeros((2, BINS))
    sums = np.zeros((2, BINS))
    np.add.at(counts, (fold, bins), 1.0)
    np.add.at(sums, (fold, bins), log["reward"])
    mean = float(log["reward"].mean())
    other = (sums[::-1] + 5.0 * mean) / (counts[::-1] + 5.0)
    q = other[fold, bins]
    target = (other @ shares)[fold] * (1.0 - log.get("unsupported", 0.0))
    return {"q_logged": q, "q_target": target}


def run_uplift(setting: UpliftSetting, first: int, last: int) -> dict[str, Any]:
    """Average effect and list metrics of one world of recommendations."""
    names = ("ate_naive", "ate_ips", "ate_snips", "uplift", "uplift_snips", "uplift_ips", "uplift_pooled")
    tallies = {name: Tally() for name in names}
    plain = []
    began = time.process_time()
    for number in range(first, last):
        shown, bought, table = setting.log(number)
        u, i, t = np.nonzero(shown | bought)
        exposures = Exposures(u, i, t, shown[u, i, t], bought[u, i, t], *shown.shape, propensities=table)
        for name in ("naive", "ips", "snips"):
            tallies[f"ate_{name}"].add(average_effect(exposures, name))
        plain.append(tallies["ate_ips"].rows[-1][0])
        metrics = [name for name in names if name.startswith("uplift")]
        try:
            found = evaluate_lists(exposures, setting.lists(), metrics=metrics)
        except UserError:  # no user has a recommended and an unrecommended item
            continue
        for name in metrics:
            tallies[name].add(found[name])
    facts = {
        "name": "uplift-" + setting.name,
        "family": "uplift",
        "held_out": False,
        "bounded": False,
        "users": setting.users,
        "support": "full",
        "missing": 0.0,
        "truths": {name: setting.value if name.startswith("ate") else setting.list_value for name in names},
    }
    return kept(facts, tallies, {"plain": plain, "squares": [], "largest": [1.0]}, began)


def main() -> None:
    which, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    part, parts = (int(x) for x in sys.argv[4].split("/")) if len(sys.argv) > 4 else (0, 1)
    folder = HERE / "logs"
    folder.mkdir(exist_ok=True)
    settings = load()
    modelled = {s.name for s in doubly_robust_settings(settings)}
    chosen: list[Any] = [s for s in settings if which == "all" or s.held_out == (which == "held_out")]
    if which != "held_out":
        chosen += draw_uplift()
    for number, setting in enumerate(chosen):
        if number % parts != part:
            continue
        uplift = isinstance(setting, UpliftSetting)
        path = folder / f"{'uplift-' if uplift else ''}{setting.name}.{first}-{last}.json"
        if path.exists():
            continue
        result = run_uplift(setting, first, last) if uplift else run(setting, first, last, setting.name in modelled)
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(result))
        temporary.replace(path)
        print(f"{path.stem}: {result['cpu_seconds']:.1f} s", flush=True)


if __name__ == "__main__":
    main()
