"""The intervals that the study compares, for one log; and what is kept of many."""

from __future__ import annotations

import math

import numpy as np
from row_bootstrap import RowBootstrap
from worlds import LEVEL

from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.intervals import by_user as concentration

QUANTILE = 1.959963984540054
CLIP = 15.0

Ends = tuple[float, float]


def ours(reward, propensity, target, cluster) -> dict[str, Ends]:
    """Of this package's estimators, as anyone calls them."""

    def estimate(**options):
        known = {"reward_min": 0.0, "reward_max": 1.0}  # clicks
        return estimate_value(reward, propensity, target, cluster=cluster, level=LEVEL, **known, **options)

    default, clipped = estimate(), estimate(clip=CLIP)
    snips, boot = estimate(estimator="snips"), estimate(interval="bootstrap")
    return {
        "default": (default.low, default.high),
        "clipped, sampling part only": (clipped.diagnostics["sampling_low"], clipped.diagnostics["sampling_high"]),
        "clipped, clip part included": (clipped.low, clipped.high),
        "snips, delta by user": (snips.low, snips.high),
        "bootstrap by user": (boot.low, boot.high),
    }


def guaranteed(reward, propensity, target, user, users, bound) -> dict[str, Ends]:
    """Intervals of bounded user sums; the longest history of the log stands for the longest possible."""
    lengths = np.bincount(user, minlength=users).astype(float)
    longest = lengths.max()
    values = np.bincount(user, target / propensity * reward, users) / (bound * longest)
    names = {"empirical Bernstein": "bernstein", "betting": "betting", "log smoothing": "log_smoothing"}
    out = {}
    for name, method in names.items():
        low, high = concentration.METHODS[method](values, lengths / longest, LEVEL)
        out[name] = (low * bound, high * bound)
    return out


def normal_by_user(reward, propensity, target, user, users) -> Ends:
    """Against which all widths are measured."""
    x = target / propensity * reward
    value = x.mean()
    sums = np.bincount(user, x - value, users)
    half = QUANTILE * math.sqrt(sums @ sums) / user.size
    return value - half, value + half


def usual(reward, propensity, target, user, users) -> dict[str, Ends]:
    """What people compute themselves."""
    n = reward.size
    w = target / propensity
    x = w * reward
    value = x.mean()
    half = QUANTILE * x.std() / math.sqrt(n)
    effective = w.sum() ** 2 / (w @ w)
    rate, square = min(x.sum() / w.sum(), 1.0), QUANTILE**2 / effective
    centre = (rate + square / 2) / (1 + square)
    wilson = QUANTILE * math.sqrt(rate * (1 - rate) / effective + square / effective / 4) / (1 + square)
    return {
        "normal by row": (value - half, value + half),
        "normal by user": normal_by_user(reward, propensity, target, user, users),
        "Wilson, effective n": (centre - wilson, centre + wilson),
    }


def obp_in_law(reward, propensity, target) -> dict[str, Ends]:
    """What obp's intervals become with ever more resamples; its SNIPS keeps the log's own mean weight throughout."""
    w = target / propensity
    low, high = RowBootstrap(w * reward).interval(LEVEL)
    mean = float(w.mean())
    return {"obp ips in law": (low, high), "obp snips in law": (low / mean, high / mean)}


def intervals(log, users: int, bound: float) -> dict[str, Ends]:
    """All of them, of one log."""
    reward, propensity, target, user = log
    return (
        ours(reward, propensity, target, user if user.size > users else None)
        | usual(reward, propensity, target, user, users)
        | guaranteed(reward, propensity, target, user, users, bound)
        | obp_in_law(reward, propensity, target)
    )


def summary(pairs: list[Ends], value: float) -> dict[str, float]:
    """Coverage, share of intervals above the value, and mean width."""
    low, high = np.array(pairs).T
    assert np.all(np.isfinite(low)), "an end is not finite"
    assert np.all(np.isfinite(high)), "an end is not finite"
    return {
        "logs": len(low),
        "coverage": float(np.mean((low <= value) & (value <= high))),
        "above": float(np.mean(low > value)),
        "width": float(np.mean(high - low)),
    }
