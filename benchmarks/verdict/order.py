"""Carry-over and staying, planted and not: python benchmarks/verdict/order.py [--quick]

Per setting the share of logs in which each test rejects at the strict level, and in which a finding takes trust:
without effects, where a repeated item is clicked .3 times as often, and where item 1 keeps .8 of the users and others
.95. Writes "order" of results.json.
"""

from __future__ import annotations

import sys
from pathlib import Path

import analysis
import numpy as np

from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.off_policy.limits import STRICT
from recsim_mnar.estimators.off_policy.row_order import OrderSums

HERE = Path(__file__).parent
SETTINGS = (
    # users, rows, items, logging policy, new policy, click rate
    (500, 20, 5, "uniform", "one item", 0.2),
    (500, 20, 5, "uniform", "softmax", 0.2),
    (500, 20, 10, "uniform", "one item", 0.1),
    (500, 20, 10, "softmax", "softmax", 0.2),
    (500, 20, 50, "uniform", "one item", 0.05),
    (5000, 20, 10, "epsilon .2", "one item", 0.05),
)
EFFECTS = {"none": (1.0, 0.95), "repeats": (0.3, 0.95), "leaving": (1.0, 0.8)}


def policy(rng: np.random.Generator, kind: str, items: int, item: int) -> np.ndarray:
    if kind == "softmax":
        return np.exp(scores := rng.standard_normal(items)) / np.exp(scores).sum()
    greedy = {"uniform": 0.0, "one item": 1.0, "epsilon .2": 0.8}[kind]
    return (1.0 - greedy) / items + greedy * (np.arange(items) == item)


def log(rng: np.random.Generator, setting: tuple, repeat: float, stay: float) -> tuple[np.ndarray, ...]:
    users, rows, items, logging, new, rate = setting
    p, t = policy(rng, logging, items, 0), policy(rng, new, items, 1)
    action = rng.choice(items, (users, rows), p=p)
    clicks = np.minimum(rate * np.exp(0.5 * rng.standard_normal(items)), 0.9)[action]
    clicks = clicks * np.exp(0.3 * rng.standard_normal((users, 1)))
    clicks[:, 1:] *= np.where(action[:, 1:] == action[:, :-1], repeat, 1.0)
    goes_on = rng.random(action.shape) < np.where(action == 1, stay, 0.95)
    here = np.ones(action.shape, bool)
    here[:, 1:] = np.cumprod(goes_on[:, :-1], axis=1) > 0
    reward = (rng.random(action.shape) < clicks).astype(float)
    user = np.broadcast_to(np.arange(users)[:, None], action.shape)
    return reward[here], p[action[here]], t[action[here]], user[here]


def judged(setting: tuple, effect: str, number: int) -> list[bool]:
    columns = log(np.random.default_rng([14, number, *setting[:3]]), setting, *EFFECTS[effect])
    sums = OrderSums()
    sums.extend(*columns)
    estimate = estimate_value(*columns[:3], cluster=columns[3], estimator="snips", full_support=True)
    codes = {finding.code for finding in sums.findings((estimate.high - estimate.low) / 2.0)}
    rejects = [limits[1] > 0.0 or limits[2] < 0.0 for limits in (sums.carry_over(STRICT), sums.staying(STRICT))]
    return [*rejects, "carry_over" in codes, "staying" in codes]


def main() -> None:
    quick = "--quick" in sys.argv
    n = 4 if quick else 100
    names = ("rejects: carry_over", "staying", "finding: carry_over", "staying")
    print("users, rows, items, logging, new policy, clicks", "effect", *names, sep="\t")
    result = {}
    for setting in SETTINGS:
        for effect in EFFECTS:
            shares = np.mean([judged(setting, effect, i) for i in range(n)], axis=0).round(3).tolist()
            result[", ".join(map(str, (*setting, effect)))] = shares
            print(*setting, effect, *shares, sep="\t", flush=True)
    if not quick:
        found = {"logs": n, "columns": names, "shares": result}
        analysis.save(analysis.load() | {"order": found})


if __name__ == "__main__":
    main()
