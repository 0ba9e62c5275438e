"""beta_ips against snips, by theory and as the study measured: `python benchmarks/verdict/control_variate.py`.

Both are IPS less b (w - 1), to first order: snips with b = V, beta_ips with the b that is fitted. With d = A - V L the
user's deviation (A its sum of w r, L its rows) and e = W - L that of its weights, the least variance is at b* =
Cov(d, e) / Var(e), and Var(snips) - Var at b* = (V - b*)^2 Var(e) U / (sum L)^2. The package fits b by rows, which is
b* where a user's rows are independent. Moments by user come from logs that the study does not hold, standard deviations
from its logs. Rewards count from the least. Settings of finite variance, 300 users and no missing mass.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from generator import Setting, World, load

HERE = Path(__file__).resolve().parent
FIRST, LOGS = 20_000, 60
LEAST_USERS = 300


def predicted(setting: Setting) -> tuple[float, float, float, float]:
    """Variances of snips, of beta_ips with b* and with the rows' b, and of ips, from user sums of many logs."""
    world = World(setting)
    sums = np.zeros((0, 3))
    above = below = 0.0
    for number in range(FIRST, FIRST + LOGS):
        log = world.log(number)
        w, r = log["target"] / log["propensity"], log["reward"] + setting.cost
        user = log["cluster"]
        own = [np.bincount(user, values) for values in (w * r, w, np.ones(w.size))]
        sums = np.concatenate([sums, np.array(own).T])
        above += float(np.sum((w * w - w) * r))
        below += float(np.sum(w * w - w))
    a, weight, rows = sums.T
    value = a.sum() / rows.sum()
    d, e = a - value * rows, weight - rows
    e = e - e.sum() / rows.sum() * rows
    best = float(d @ e) / float(e @ e)
    scale = setting.users / len(sums) / (rows.sum() * setting.users / len(sums)) ** 2
    variances = [float(np.sum((d - b * e) ** 2)) * scale for b in (value, best, above / below, 0.0)]
    return variances[0], variances[1], variances[2], variances[3]


def main() -> None:
    measured = {r["name"]: r["methods"] for r in json.loads((HERE / "results.json").read_text())["settings"]}
    rows = []
    for setting in load():
        light = setting.rewards in ("binary", "cost", "lognormal") or setting.spread > 2.4
        if setting.missing or not light or setting.users < LEAST_USERS or setting.name not in measured:
            continue
        snips, best, ours, plain = predicted(setting)
        sd = {name: measured[setting.name][name]["sd"] for name in ("snips", "beta_ips", "default")}
        rows.append((setting.name, (ours / snips) ** 0.5, sd["beta_ips"] / sd["snips"], (best / snips) ** 0.5,
                     (plain / snips) ** 0.5, sd["default"] / sd["snips"]))  # fmt: skip
    print("setting, sd of beta_ips over snips: theory, measured; at b* (users); sd of ips over snips: theory, measured")
    for name, *numbers in rows:
        print(f"{name:40s}" + " ".join(f"{x:6.3f}" for x in numbers))
    table = np.array([row[1:] for row in rows])
    gap = np.abs(np.log(table[:, 1] / table[:, 0]))
    print(f"{len(rows)} settings; measured over theory: median {np.median(table[:, 1] / table[:, 0]):.3f}, "
          f"within 5 % in {np.mean(gap < 0.05):.2f}, within 10 % in {np.mean(gap < 0.1):.2f} of them; "
          f"beta_ips is better in {np.mean(table[:, 1] < 1):.2f} "
          f"(by theory {np.mean(table[:, 0] < 1):.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
