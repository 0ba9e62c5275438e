"""What users were shown before, planted and not: python benchmarks/ope_trust/repeats.py [--quick]

Per family of OPE-trust v1 and v2 the share of logs with each finding of the rows' order, and of users who tire in eight
settings: an item seen before earns a share of what it did, under two loggers. Writes repeats.json.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import halves
import halves_v2
import numpy as np
from _study import write_results

from recsim_mnar.estimators.repeats import RepeatSums

HERE = Path(__file__).resolve().parent

CODES = ("shown_before", "lasts", "copied_rows")
USERS, ROWS = 1000, 20
Case = tuple[str, str, tuple[Any, ...]]


def tired(number: int, factor: float, items: int, personal: bool) -> tuple[np.ndarray, ...]:
    """Users with tastes of their own whom an item earns a share of ``factor`` once they have seen it."""
    rng = np.random.default_rng([14, number, items, int(10 * factor)])
    base = 0.05 + 0.15 * rng.random(items)
    liked = np.exp(0.7 * rng.standard_normal((USERS, items)))
    law = np.full((USERS, items), 1.0 / items)
    if personal:
        law = 0.1 / items + 0.9 * base * liked / (base * liked).sum(1, keepdims=True)
    action = (np.cumsum(law, 1)[:, None] < rng.random((USERS, ROWS, 1))).sum(2).clip(max=items - 1)
    seen = np.stack([(action[:, :i] == action[:, i : i + 1]).any(1) for i in range(ROWS)], axis=1)
    chance = np.take_along_axis(base * liked, action, 1) * np.where(seen, factor, 1.0)
    reward = (rng.random(action.shape) < chance.clip(max=0.9)).astype(float)
    propensity = np.take_along_axis(law, action, 1)
    return reward.ravel(), propensity.ravel(), action.ravel(), np.repeat(np.arange(USERS), ROWS)


def cases(logs: int) -> Iterator[Case]:
    """Group, family or setting, and the columns of each log."""
    for factor, items, personal in product((1.0, 0.7, 0.5, 0.3), (10, 40), (False, True)):
        logger = "follows tastes" if personal else "uniform"
        for number in range(logs):
            group = "no effect" if factor == 1.0 else "tired"
            yield group, f"earns {factor}, {items} items, {logger}", tired(number, factor, items, personal)
    for half in halves.HALVES:
        for case in halves_v2.v2_logs(half, logs=logs):
            group = "v2 honest" if case.honest else "v2 dishonest"
            log = case.log
            yield group, case.family, (log.reward, log.propensity, log.action, log.user)
    for setting in halves.all_settings():
        world = setting.world()
        for number in range(logs):
            log = setting.log(world, number)
            yield "v1", setting.family, (log.reward, log.propensity, log.action, log.user)


def main() -> None:
    quick = "--quick" in sys.argv
    logs = 1 if quick else 40
    found, number = Counter(), Counter()
    for group, name, columns in cases(logs):
        number[group, name] += 1
        found.update((group, name, each.code) for each in RepeatSums.of(*columns).findings())
    result: dict[str, Any] = {}
    for (group, name), of in number.items():
        shares = [round(found[group, name, code] / of, 4) for code in CODES]
        result.setdefault(group, {})[name] = shares
        if any(shares):
            print(group, name, *shares, sep="\t")
    groups = {group: sum(of for (each, _), of in number.items() if each == group) for group in result}
    total = {
        group: [round(sum(found[group, name, code] for name in result[group]) / of, 5) for code in CODES]
        for group, of in groups.items()
    }
    for group, shares in total.items():
        print("all", group, groups[group], *shares, sep="\t")
    if not quick:
        write_results(HERE / "repeats.json", {"logs": groups, "columns": CODES, "shares": result, "all": total}, 4)


if __name__ == "__main__":
    main()
