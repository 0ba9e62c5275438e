"""The findings that are not off-policy estimates of one policy: uplift, A/B, differences, widths, sequences."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from tally import judged

from recsim_mnar.estimators import difference, estimate_value
from recsim_mnar.estimators.intervals.clustered import ratio_interval
from recsim_mnar.estimators.uplift import average_effect, evaluate_lists

KNOWS = "full_support" in inspect.signature(estimate_value).parameters
SAY = {"full_support": True} if KNOWS else {}


def _exposures(z: np.ndarray, y: np.ndarray, e: np.ndarray) -> Any:
    try:
        from recsim_mnar.exposures import Exposures
    except ImportError:
        from recsim_mnar.log.exposures import Exposures  # type: ignore[no-redef]
    u, i, t = np.nonzero(z | y)
    return Exposures(u, i, t, z[u, i, t], y[u, i, t], *z.shape, propensities=e)


def _judge(rows: list, truth: float) -> dict:
    return judged(np.array(rows, dtype=float), truth, 0.0)


def confounded_uplift() -> dict:
    """Items that sell anyway are recommended more: the naive effect is .12 where the true one is .05."""
    rows: dict[str, list] = {"naive": [], "ips": [], "uplift@2": []}
    for number in range(300):
        rng = np.random.default_rng([5, number])
        shape = (300, 10, 1)
        base = rng.choice([0.05, 0.25], shape)
        e = np.where(base > 0.1, 0.6, 0.25)
        z = rng.random(shape) < e
        y = rng.random(shape) < base + 0.05 * z
        exposures = _exposures(z, y, e)
        for name in ("naive", "ips"):
            found = average_effect(exposures, name)
            rows[name].append((found.value, found.low, found.high, found.trusted))
        lists = np.tile(np.arange(6), (300, 1))
        found = evaluate_lists(exposures, lists, metrics=["uplift"])["uplift"]
        rows["uplift@2"].append((found.value, found.low, found.high, found.trusted))
    return {"methods": {name: _judge(found, 0.05) for name, found in rows.items()}}


def three_users() -> dict:
    """UpliftIPS of three users, who hardly buy anything."""
    rows = []
    for number in range(300):
        rng = np.random.default_rng([6, number])
        shape = (3, 10, 1)
        z = rng.random(shape) < 0.3
        y = rng.random(shape) < 0.02 + 0.02 * z
        lists = np.tile(np.arange(8), (3, 1))
        found = evaluate_lists(_exposures(z, y, np.full(shape, 0.3)), lists, metrics=["uplift_ips"])["uplift_ips"]
        rows.append((found.value, found.low, found.high, found.trusted))
    return {"methods": {"uplift_ips": _judge(rows, 0.02)}}


def few_in_a_test() -> dict:
    """An A/B arm of five users with ten decisions each, click rate .05."""
    rows = []
    for number in range(300):
        rng = np.random.default_rng([8, number])
        clicks = rng.binomial(10, 0.05, 5).astype(float)
        value, low, high = ratio_interval(clicks, np.full(5, 10.0), 0.95)
        rows.append((value, low, high, False))
    out = {"methods": {"ctr": _judge(rows, 0.05)}}
    out["methods"]["ctr"]["negative_low_end"] = float(np.mean(np.array(rows)[:, 1] < 0.0))
    return out


def clip_widths() -> dict:
    """97 random settings: the clipped interval against the oracle's width, and against the unclipped one's."""
    over, wider = [], []
    for number in range(97):
        rng = np.random.default_rng([9, number])
        n = int(np.exp(rng.uniform(np.log(1000), np.log(50_000))))
        sigma, rate = rng.uniform(0.3, 2.0), np.exp(rng.uniform(np.log(0.003), np.log(0.3)))
        clip = np.exp(rng.uniform(np.log(2.0), np.log(30.0)))
        quantity = np.exp(sigma * rng.standard_normal((40, n)) - sigma**2 / 2)
        plain = [float(np.mean(w * (rng.random(n) < rate))) for w in quantity]
        oracle = 3.92 * float(np.std(plain))
        widths, unclipped = [], []
        for w in quantity[:10]:
            columns = {
                "reward": (rng.random(n) < rate) * 1.0,
                "propensity": np.full(n, 1e-5),
                "target": np.minimum(w, 1e5) * 1e-5,
            }
            with_clip = estimate_value(**columns, clip=clip, **SAY)
            without = estimate_value(**columns, **SAY)
            widths.append(with_clip.high - with_clip.low)
            unclipped.append(without.high - without.low)
        over.append(float(np.median(widths)) / oracle)
        wider.append(float(np.mean(np.array(widths) > np.array(unclipped) * (1 + 1e-9))))
    return {
        "settings": 97,
        "more_than_twice_the_oracle": int(np.sum(np.array(over) > 2.0)),
        "median_over_oracle": float(np.median(over)),
        "largest_over_oracle": float(np.max(over)),
        "logs_wider_than_without_clip": float(np.mean(wider)),
    }


def difference_widths() -> dict:
    """Target and baseline lognormal, clip 3: width over 3.92 standard deviations of the unclipped difference."""
    gaps, widths = [], []
    for number in range(300):
        rng = np.random.default_rng([10, number])
        n = 50_000
        ours, theirs = (np.exp(0.8 * rng.standard_normal(n) - 0.32) for _ in range(2))
        reward = (rng.random(n) < 0.01) * 1.0
        gaps.append(float(np.mean((ours - theirs) * reward)))
        if number < 60:
            p = np.full(n, 1e-4)
            found = difference(reward, p, ours * p, theirs * p, estimator="clipped_ips", clip=3.0, **SAY)
            widths.append(found.high - found.low)
    return {"width_over_oracle": float(np.median(widths) / (3.92 * np.std(gaps)))}


def scaled_rewards() -> dict:
    """The same log with rewards times .01: width of the clipped interval times 100, over that of the first."""
    rng = np.random.default_rng(11)
    w = np.exp(rng.standard_normal(5000) - 0.5)
    columns = {"propensity": np.full(5000, 1e-4), "target": w * 1e-4, "clip": 2.0}
    reward = (rng.random(5000) < 0.05) * 1.0
    once, small = (estimate_value(reward * scale, **columns, **SAY) for scale in (1.0, 0.01))
    return {"relative_width": 100.0 * (small.high - small.low) / (once.high - once.low)}


def growing_sequence() -> dict:
    """Share of growing logs whose anytime interval misses at some point; a new user's id sorts anywhere."""
    missed = 0
    logs = 100
    for number in range(logs):
        rng = np.random.default_rng([12, number])
        users = 400
        ids = rng.permutation(users)
        reward = (rng.random(users) < 0.2) * 1.0
        weight = np.where(rng.random(users) < 0.1, 5.5, 0.5)
        say = SAY | ({"weight_max": 5.5, "user_rows_max": 1, "reward_max": 1.0} if KNOWS else {})
        ever = False
        for size in range(10, users + 1, 5):
            found = estimate_value(
                reward[:size], np.full(size, 0.1), weight[:size] * 0.1, cluster=ids[:size], interval="anytime", **say
            )
            ever |= not found.low <= 0.2 <= found.high
        missed += ever
    return {"ever_missed": missed / logs}


def advice() -> dict:
    """What `ips` and `clipped_ips` of the same value say of one heavy row."""
    columns = {
        "reward": np.tile([1.0, 0.0], 200),
        "propensity": np.where(np.arange(400) == 7, 0.002, 0.5),
        "target": np.full(400, 0.45),
    }
    return {
        name: str(estimate_value(**columns, estimator=name, clip=1000.0 if name != "ips" else None, **SAY).verdict)
        for name in ("ips", "clipped_ips")
    }


def every_edge() -> dict[str, Callable[[], dict]]:
    return {
        "05-confounded-uplift": confounded_uplift,
        "05-three-users": three_users,
        "08-clip-widths": clip_widths,
        "08-difference-widths": difference_widths,
        "08-scaled-rewards": scaled_rewards,
        "09-ab-five-users": few_in_a_test,
        "09-advice": advice,
        "12-growing-sequence": growing_sequence,
    }
