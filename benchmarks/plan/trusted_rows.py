"""Whether `plan estimate` names the rows at which fresh logs are trusted: four settings, thirty pilots each.

The true size is where a share of 400 logs that are made anew is trusted; a pilot has a quarter of the rows of the
smaller one. Everything that can be stated of the settings is stated: the least propensity, and the largest reward.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import generator
import numpy as np
from generator import Setting

from recsim_mnar import plan_estimate
from recsim_mnar.estimators import estimate_value

SHARES = (0.5, 0.8)
CLOSE = 1.25
_TARGET = 1
"""The candidate that is planned for."""


def _setting(number: int, kind: str, rate: float, **other: Any) -> Setting:
    """Drawn from the number, then with this mean reward."""
    drawn = generator.draw(3_000_000 + number)
    mean = np.minimum(drawn.mean * rate / drawn.mean.mean(), 0.6)
    return replace(drawn, number=number, kind=kind, mean=mean, **other)


SETTINGS = {
    "clicks, single rows": (_setting(0, "click", 0.05, rows=1.0, lengths="same", spread=0.0, epsilon=0.1), 1.0),
    "clicks, long users": (_setting(1, "click", 0.02, rows=6.0, lengths="geometric", spread=0.8, epsilon=0.2), 1.0),
    "amounts up to 20": (_setting(2, "amount", 0.04, rows=3.0, lengths="poisson", spread=0.4, epsilon=0.3), 20.0),
    "dwell up to 1": (_setting(3, "dwell", 0.1, rows=4.0, lengths="poisson", spread=0.4, epsilon=0.05), 1.0),
}
"""By name: the setting, and the largest reward, at which rewards are cut."""


def made(name: str, users: int, rng: np.random.Generator) -> dict[str, Any]:
    """The columns of a log."""
    setting, most = SETTINGS[name]
    rows = generator.simulate(setting, setting.pilot, users, rng)
    return {
        "user": rows.user,
        "propensity": rows.propensity,
        "reward": np.minimum(rows.reward, most),
        "new": rows.policies[:, _TARGET],
    }


def stated(name: str) -> dict[str, Any]:
    """What is stated of it."""
    setting, most = SETTINGS[name]
    return {"full_support": True, "propensity_min": setting.epsilon / setting.n_items, "reward_max": most}


def trusted(name: str, users: int, logs: int) -> float:
    """Share of fresh logs that are trusted; the same seeds at every size."""
    found = 0
    for seed in range(logs):
        log = made(name, users, np.random.default_rng([20271, seed]))
        estimate = estimate_value(
            log["reward"], log["propensity"], log["new"], cluster=log["user"], estimator="ips", **stated(name)
        )
        found += estimate.verdict.level == "trust"
    return found / logs


def true_users(name: str, logs: int) -> list[float]:
    """Users at which the shares of fresh logs are trusted: between sizes a tenth apart, straight on the log scale."""
    users, few = 2000.0, max(logs // 10, 10)
    while trusted(name, round(users), few) < SHARES[0]:
        users *= 1.5
    while trusted(name, round(users), few) >= SHARES[0]:
        users /= 1.15
    sizes, found = [], []
    while not found or found[-1] < SHARES[-1]:
        sizes.append(users * 1.1 ** (len(sizes) - 1))
        found.append(trusted(name, round(sizes[-1]), logs))
    return [float(np.exp(np.interp(share, np.maximum.accumulate(found), np.log(sizes)))) for share in SHARES]


def judged(number: int, *, quick: bool = False, development: bool = False) -> dict[str, Any]:
    """One setting: the true sizes, and what pilots say of them; other pilots are those of development."""
    name, logs, pilots = list(SETTINGS)[number], 40 if quick else 400, 3 if quick else 30
    a_user = len(made(name, 2000, np.random.default_rng(1))["user"]) / 2000
    true = true_users(name, logs)
    users = max(round(true[0] / 4.0), 100)
    result: dict[str, Any] = {"name": name, "number": number, "pilot_rows": round(users * a_user), "shares": {}}
    for share, size in zip(SHARES, true, strict=True):
        plans = [_plan(name, users, share, 1000 * development + seed) for seed in range(pilots)]
        result["shares"][f"{share:g}"] = _against(plans, size * a_user)
    return result


def said(result: dict[str, Any]) -> str:
    """A line for a person."""
    parts = []
    for share, found in result["shares"].items():
        middle = "-" if found["median_over_true"] is None else f"{found['median_over_true']:.2f}"
        parts.append(
            f"{share} trusted at {found['true']:,} rows: held {found['held']:.2f}, median plan {middle} of it, says "
            f"nothing {found['says_nothing']:.2f}"
        )
    return f"{result['name']}, pilots of {result['pilot_rows']:,} rows; " + "; ".join(parts)


def summary(result: dict[str, Any]) -> dict[str, Any]:
    """Each share's figures, and whether they meet what is claimed."""
    return {share: {key: value for key, value in found.items() if key != "plans"} for share, found in
            result["shares"].items()}  # fmt: skip


def _plan(name: str, users: int, share: float, seed: int) -> dict[str, Any]:
    log = made(name, users, np.random.default_rng([20272, seed]))
    plan = plan_estimate(log, "new", trusted=share, estimator="ips", clip=None, **stated(name))
    low, high = plan.trust_range
    return {"rows": plan.trust, "low": low, "high": high, "says": plan.says, "verdict": plan.verdict}


def _against(plans: list[dict[str, Any]], true: float) -> dict[str, Any]:
    said = [plan for plan in plans if plan["says"]]
    held = [(plan["low"] or 0) <= true <= (plan["high"] or np.inf) for plan in plans]
    middle = float(np.median([plan["rows"] or np.inf for plan in said]) / true) if said else None
    nothing = 1.0 - len(said) / len(plans)
    meets = np.mean(held) >= 0.9 and nothing <= 0.25 and middle is not None and 1.0 / CLOSE <= middle <= CLOSE
    return {
        "true": round(true),
        "pilots": len(plans),
        "held": float(np.mean(held)),
        "held_where_it_says": float(np.mean([h for h, plan in zip(held, plans, strict=True) if plan["says"]] or [0.0])),
        "median_over_true": middle,
        "says_nothing": nothing,
        "meets": bool(meets),
        "plans": [[plan[key] for key in ("low", "rows", "high")] for plan in plans],
    }
