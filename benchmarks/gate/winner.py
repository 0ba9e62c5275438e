"""The best of 100 policies: whether its interval holds its value, and its difference from today's policy.

    python benchmarks/gate/winner.py [--quick]

Logs of an epsilon-greedy policy over ten items and twenty contexts; each of the 100 policies shows another item in half
of the contexts. The policy with the highest estimate is picked; its interval is made at .95, as its row shows it, and
at the level of the best of 100. *alike*: items earn the same but for 5 %, so that luck picks; *apart*: but for 50 %.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import read, write_results

from recsim_mnar.answers.provenance import level_of_best
from recsim_mnar.estimators import Facts, difference, estimate_value

RESULTS = Path(__file__).parent / "results.json"
ITEMS, CONTEXTS, POLICIES, ROWS, EPSILON = 10, 20, 100, 20_000, 0.3
SPREADS = {"alike": 0.05, "apart": 0.5}


def one(spread: float, seed: int, levels: dict[str, float]) -> dict[str, bool]:
    """A log, its winner, and whether each interval holds the truth."""
    rng = np.random.default_rng([20273, seed])
    rate = 0.05 * np.exp(spread * rng.standard_normal((CONTEXTS, ITEMS)))
    today = rng.integers(0, ITEMS, CONTEXTS)
    shown = np.where(rng.random((POLICIES, CONTEXTS)) < 0.5, rng.integers(0, ITEMS, (POLICIES, CONTEXTS)), today)
    logging = np.full((CONTEXTS, ITEMS), EPSILON / ITEMS)
    logging[np.arange(CONTEXTS), today] += 1.0 - EPSILON
    context, explores = rng.integers(0, CONTEXTS, ROWS), rng.random(ROWS) < EPSILON
    action = np.where(explores, rng.integers(0, ITEMS, ROWS), today[context])
    reward = (rng.random(ROWS) < rate[context, action]).astype(float)
    propensity = logging[context, action]
    each = np.zeros((CONTEXTS, ITEMS))
    np.add.at(each, (context, action), reward / propensity)
    values = each[np.arange(CONTEXTS), shown].sum(axis=1)
    best = shown[int(np.argmax(values))]
    truth, before = (rate[np.arange(CONTEXTS), policy].mean() for policy in (best, today))
    target, baseline = ((policy[context] == action).astype(float) for policy in (best, today))
    facts: dict[str, Any] = {"estimator": "ips", "facts": Facts(propensity_min=EPSILON / ITEMS, full_support=True)}
    held = {}
    for name, level in levels.items():
        value = estimate_value(reward, propensity, target, level=level, **facts)
        gap = difference(reward, propensity, target, baseline, level=level, **facts)
        held[f"value, {name}"] = bool(value.low <= truth <= value.high)
        held[f"difference, {name}"] = bool(gap.low <= truth - before <= gap.high)
    return held


def main() -> None:
    """Draw the logs, print the table and keep it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="twenty logs, nothing is written")
    logs = 20 if parser.parse_args().quick else 1000
    levels = {"its own level": 0.95, "level of the best": level_of_best(0.95, POLICIES)}
    table: dict[str, Any] = {"logs": logs}
    for which, spread in SPREADS.items():
        held = [one(spread, seed, levels) for seed in range(logs)]
        table[which] = {key: float(np.mean([each[key] for each in held])) for key in held[0]}
        for key, share in table[which].items():
            print(f"{which}: {key}: {share:.3f}")
    if logs == 1000:
        write_results(RESULTS, read(RESULTS) | {"winner_of_100": table})


if __name__ == "__main__":
    main()
