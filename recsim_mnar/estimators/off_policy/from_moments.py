"""IPS, clipped IPS and SNIPS as functions of moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals.limits import (
    Cut,
    Interval,
    clipping_bias_bound,
    degrees_of_freedom,
    gamma_limits,
    gamma_step,
    small_sample_factor,
    student_limits,
)
from recsim_mnar.estimators.off_policy.moments import N_TOP, Moments
from recsim_mnar.estimators.off_policy.verdict import verdict
from recsim_mnar.estimators.result import Estimate

INTERVALS = ("auto", "gamma", "delta")
_LARGEST_REWARD = 1e100  # its square is still a number


def estimate_from_moments(
    moments: Moments, estimator: str, *, level: float = 0.95, interval: str = "auto", reward_max: float | None = None
) -> Estimate:
    """Value, interval, diagnostics and verdict of "ips", "clipped_ips" or "snips".

    Args:
        moments: of the rows; "ips" and "snips" use the unclipped weights whatever the clip of the moments.
        estimator: one of the three.
        level: nominal coverage.
        interval: "auto", "gamma" (Fay & Feuer 1997, on user sums; no negative rewards) or "delta" (asymptotic;
            gamma where no reward was seen).
        reward_max: largest reward possible; None for 1 or the largest one seen.

    Raises:
        UserError: no rows, an unknown interval, or one that the rewards do not allow.
    """
    if moments.rows == 0:
        raise UserError("the log has no rows; give at least one")
    if interval not in INTERVALS:
        raise UserError(f"no interval {interval!r}; {nearest(str(interval), INTERVALS)}")
    bounds = reward_bounds(moments, reward_max)
    if estimator == "snips":
        value, sampling = _snips(moments, level, interval, bounds)
    else:
        value, sampling = _mean(moments, estimator == "clipped_ips", level, interval, bounds)
    if moments.reward_min >= 0.0 and moments.reward_max <= 1.0:
        sampling = sampling.within(*bounds)
    below, above = clip_parts(moments, level, bounds) if estimator == "clipped_ips" else (0.0, 0.0)
    low, high = sampling.low - below, sampling.high + above
    facts = diagnostics(moments)
    facts |= {
        "sampling_low": sampling.low,
        "sampling_high": sampling.high,
        "clip_part": max(below, above),
        "reward_max": bounds[1],
    }
    method = sampling.method + (" + clip part" if max(below, above) > 0.0 else "")
    low, high = _inside(low, high, value, bounds, moments)
    return Estimate(
        value, low, high, level, method, moments.rows, moments.ess, facts, verdict(facts, estimator), estimator
    )


def reward_bounds(moments: Moments, reward_max: float | None) -> tuple[float, float]:
    """Least and largest reward possible: what is given, or 0 and 1, or what was seen beyond them."""
    largest = max(moments.reward_max, 1.0 if moments.reward_max <= 1.0 else 0.0)
    if reward_max is not None:
        number = isinstance(reward_max, (int, float, np.number)) and not isinstance(reward_max, bool)
        if not number or not abs(reward_max) <= _LARGEST_REWARD:
            raise UserError(
                f"reward_max must be a finite number, the largest reward possible (at most {_LARGEST_REWARD:g}), "
                f"got {reward_max!r}"
            )
        if float(reward_max) < moments.reward_max:
            raise UserError(
                f"reward_max is {reward_max} and the log holds a reward of {moments.reward_max:g}; raise it"
            )
        largest = float(reward_max)
    return min(moments.reward_min, 0.0), largest


def clip_parts(moments: Moments, level: float, bounds: tuple[float, float]) -> tuple[float, float]:
    """How far the value may lie below and above that of min(w, clip) r, see :func:`hidden`, in units of the reward."""
    n, clip = moments.rows, moments.clip
    if math.isinf(clip):
        return 0.0, 0.0
    inflate = small_sample_factor(moments.users, level)
    if math.isinf(inflate):
        return max(-bounds[0], 0.0), max(bounds[1], 0.0)

    def centred(letter: str) -> float:
        mean = moments.sum(letter) / n
        cross = moments.power("l" + letter)
        return max(moments.power(letter * 2) - 2.0 * mean * cross + mean**2 * moments.power("ll"), 0.0)

    def apart(whole: str, cut: str) -> float:
        both = moments.power(whole * 2) - 2.0 * moments.power(whole + cut) + moments.power(cut * 2)
        return max(both, 0.0) if moments.clipped else 0.0

    counts = moments.reward_min >= 0.0
    cut = Cut(
        kept=moments.sum("c") / n,
        kept_variance=centred("c") / n**2 * inflate,
        excess=max(moments.sum("w") - moments.sum("c"), 0.0) / n if moments.clipped else 0.0,
        excess_variance=apart("w", "c") / n**2 * inflate,
        reward=(max(moments.sum("x") - moments.sum("y"), 0.0) / n if moments.clipped else 0.0) if counts else None,
        reward_variance=apart("x", "y") / n**2 * inflate,
        weight=moments.sum("w") / n,
        weight_variance=centred("w") / n**2 * inflate,
        largest=max(moments.weight_max - clip, 0.0) / n,
    )
    return (0.0 if counts else clipping_bias_bound(cut, -bounds[0], level)), clipping_bias_bound(
        cut, max(bounds[1], 0.0), level
    )


def diagnostics(moments: Moments) -> dict[str, Any]:
    """What says how far the log can speak of the target; JSON types only."""
    n = moments.rows
    mean = moments.sum("w") / n
    spread = moments.power("ww") - 2.0 * mean * moments.power("lw") + mean**2 * moments.power("ll")
    correction = moments.users / (moments.users - 1.0) if moments.users > 1 else 1.0
    return {
        "n": n,
        "users": moments.users,
        "clustered": moments.clustered,
        "clicks": moments.rewarded,
        "ess": moments.ess,
        "mean_weight": mean,
        "mean_weight_se": math.sqrt(max(spread, 0.0) * correction) / n,
        "max_weight": moments.weight_max,
        "max_weight_share": moments.weight_max / moments.sum("w") if mean > 0.0 else 0.0,
        "tail_index": tail_index(moments),
        "share_clipped": moments.clipped / n,
        "clip": None if math.isinf(moments.clip) else moments.clip,
        "support": moments.supported / n,
        "mean_reward": moments.sum("r") / n,
        "effective_rewards": effective_rewards(moments),
        "effective_users": moments.sum("w") ** 2 / moments.power("ww") if mean > 0.0 else 0.0,
    }


def effective_rewards(moments: Moments) -> float:
    """(sum x)^2 / sum over users of x^2: how many equal users would give the estimate as much variance.

    Where rewards are negative too, which makes it say nothing, the number of users with a reward.
    """
    if moments.reward_min < 0.0:
        return float(moments.rewarded_users)
    square = moments.power("xx")
    return moments.sum("x") ** 2 / square if square > 0.0 else 0.0


def tail_index(moments: Moments) -> float | None:
    """Hill's (1975) estimate of the weights' tail index from the largest ones; None where they are too few or equal."""
    top = moments.top_weights
    top = top[top > 0.0]
    if top.size < N_TOP or moments.rows < 10 * N_TOP:
        return None
    spread = float(np.mean(np.log(top[:-1] / top[-1])))
    return 1.0 / spread if spread > 0.0 else None


def _mean(
    moments: Moments, clipped: bool, level: float, interval: str, bounds: tuple[float, float]
) -> tuple[float, Interval]:
    n, users = moments.rows, moments.users
    names = ("y", "yy", "ly") if clipped else ("x", "xx", "lx")
    value = moments.sum(names[0]) / n
    raw, cross = moments.power(names[1]), moments.power(names[2])
    if users < 2 or moments.supported == 0:
        return value, _no_information(bounds, "no interval: one user" if users < 2 else "no interval: no support")
    negative = moments.reward_min < 0.0
    if interval == "gamma" and negative:
        raise UserError("the gamma interval needs rewards that are not negative; use interval='auto' or 'delta'")
    silent = moments.rewarded == 0  # a variance of 0 would then be no evidence of certainty
    if negative or (interval == "delta" and not silent):
        variance = (raw - 2.0 * value * cross + value**2 * moments.power("ll")) / n**2
        low, high = student_limits(value, variance, users, level)
        why = ", because rewards are negative" if negative and interval == "auto" else ""
        return value, Interval(low, high, f"{_unit(moments)} delta, asymptotic{why}")
    low, high = gamma_limits(value, *_gamma_parts(moments, clipped, value, level, bounds[1]), level)
    why = ", because no reward was seen" if interval == "delta" else ""
    return value, Interval(low, high, f"gamma (Fay-Feuer), {_unit(moments)}{why}")


def _gamma_parts(moments: Moments, clipped: bool, value: float, level: float, reward_max: float) -> tuple[float, float]:
    """Variance and step of the gamma limits.

    The variance is that of user sums about the mean, corrected for few and for unequal users; the step is that of
    :func:`gamma_step`, the largest weight where no reward was seen.
    """
    n, letter = moments.rows, "y" if clipped else "x"
    raw, cross = moments.power(letter * 2), moments.power("l" + letter)
    second = max(raw - 2.0 * value * cross + value**2 * moments.power("ll"), 0.0)
    degrees = None
    if moments.clustered and moments.users < n:
        fourth = (
            moments.power(letter * 4)
            - 4.0 * value * moments.power("l" + letter * 3)
            + 6.0 * value**2 * moments.power("ll" + letter * 2)
            - 4.0 * value**3 * moments.power("lll" + letter)
            + value**4 * moments.power("llll")
        )
        degrees = degrees_of_freedom(moments.users, moments.rewarded_users, second, fourth)
    clip = moments.clip if clipped else math.inf
    widest = min(moments.weight_max, clip) * reward_max
    step, largest = widest, 0.0
    if moments.rewarded:
        weight, square = (moments.sum("c"), moments.sum("cc")) if clipped else (moments.sum("w"), moments.sum("ww"))
        largest = min(moments.x_max, clip * reward_max)
        together = raw / moments.sum(letter) if value > 0.0 else 0.0
        step = gamma_step(max(largest, square / weight * reward_max), widest, together)
    # A variance below one reward's square is no evidence of certainty: it comes from user sums that happen to be equal.
    variance = max(second, largest * largest)
    return variance / n**2 * small_sample_factor(moments.users, level, degrees), step / n


def _snips(moments: Moments, level: float, interval: str, bounds: tuple[float, float]) -> tuple[float, Interval]:
    total, users = moments.sum("w"), moments.users
    if interval == "gamma":
        raise UserError("snips is a ratio, for which there is no gamma interval; use interval='auto' or 'delta'")
    if total == 0.0:
        return 0.0, _no_information(bounds, "no interval: no support")
    value = moments.sum("x") / total
    if users < 2:
        return value, _no_information(bounds, "no interval: one user")
    if moments.rewarded == 0:
        high = gamma_limits(0.0, 0.0, moments.weight_max * bounds[1] / total, level)[1]
        return value, Interval(0.0, min(high, bounds[1]), "gamma (Fay-Feuer), because no reward was seen")
    variance = moments.power("xx") - 2.0 * value * moments.power("wx") + value**2 * moments.power("ww")
    degrees = None
    if moments.clustered and users < moments.rows:
        fourth = (
            moments.power("xxxx")
            - 4.0 * value * moments.power("wxxx")
            + 6.0 * value**2 * moments.power("wwxx")
            - 4.0 * value**3 * moments.power("wwwx")
            + value**4 * moments.power("wwww")
        )
        degrees = degrees_of_freedom(users, moments.rewarded_users, variance, fourth)
    low, high = student_limits(value, variance / total**2, users, level, degrees)
    return value, Interval(max(low, bounds[0]), min(high, bounds[1]), f"{_unit(moments)} delta, asymptotic")


def _unit(moments: Moments) -> str:
    return "by user" if moments.clustered else "by row"


def _no_information(bounds: tuple[float, float], why: str) -> Interval:
    return Interval(bounds[0], bounds[1], why)


def _inside(
    low: float, high: float, value: float, bounds: tuple[float, float], moments: Moments
) -> tuple[float, float]:
    """Ends that the rewards allow; the value itself may lie outside them, and stays inside the interval."""
    if moments.reward_min >= 0.0 and moments.reward_max <= 1.0:
        low, high = max(low, bounds[0]), min(high, bounds[1])
    return min(low, value), max(high, value)
