"""IPS, clipped IPS and SNIPS as estimates from moments (docs/verdict.md)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import Cut, Interval, clipping_bias_bound, small_sample_factor
from recsim_mnar.estimators.off_policy.limits import (
    Bounds,
    Support,
    heavy_tail,
    mean_limits,
    ratio_limits,
    support_of,
)
from recsim_mnar.estimators.off_policy.moments import N_TOP, Moments
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.verdict import judge
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.log.columns import Floats

AUTO = "auto"
"""The estimator that leads, see :func:`leading`."""
LEADING = "snips"
"""The estimator that leads, with no clip: the one of least error in benchmarks/ope_trust, and at home in any unit."""


def estimate_from_moments(
    moments: Moments, estimator: str, *, level: float = 0.95, stated: Stated | None = None
) -> Estimate:
    """Value, interval, diagnostics and verdict of "ips", "clipped_ips" or "snips".

    Args:
        moments: of the rows; "ips" and "snips" use the unclipped weights whatever the clip of the moments.
        estimator: one of the three, or "auto" for :func:`leading`.
        level: nominal coverage.
        stated: what is known of the log besides its rows; its least reward is that of the moments.

    Raises:
        UserError: no rows, or no weight that counts.
    """
    if moments.rows == 0:
        raise UserError("the log has no rows; give at least one")
    if moments.sum("w") > 0.0 and moments.ess == 0.0:  # their squares are below the least number
        raise UserError(f"no weight is above {moments.weight_max:g}; give the probability of the logged action")
    stated = stated or Stated()
    estimator = LEADING if estimator == AUTO else estimator
    bounds = Bounds.of(moments, stated)
    clipped, ratio = estimator == "clipped_ips" and math.isfinite(moments.clip), estimator == "snips"
    total = moments.sum("w") if ratio else moments.rows
    value = moments.sum("y" if clipped else "x") / total if total > 0.0 else 0.0
    extras: dict[str, Any] = spread_facts(moments)
    reason = "one user" if moments.users < 2 else "no support" if moments.supported == 0 else ""
    if reason:
        sampling = whole = Interval(0.0, bounds.reach, f"no interval: {reason}")
        return assemble(value, sampling, whole, moments, bounds, stated, estimator, level, extras)
    one = bounds.one_reward
    ratios = ratio_limits(moments, one, level)
    limits = ratios if ratio else mean_limits(moments, one, level, clipped=clipped)
    sampling = whole = limits.interval
    extras |= {"ratio": ratio, "carrying": limits.carrying, "heavy_tail": heavy_tail(moments, ratios.error)}
    if clipped:
        unclipped = mean_limits(moments, one, level, clipped=False).interval
        whole, facts = intersected(sampling, clip_part(moments, level, bounds), unclipped, value)
        extras |= facts
    return assemble(value, sampling, whole, moments, bounds, stated, estimator, level, extras)


def assemble(
    value: float,
    sampling: Interval,
    whole: Interval,
    moments: Moments,
    bounds: Bounds,
    stated: Stated,
    estimator: str,
    level: float,
    extras: dict[str, Any],
) -> Estimate:
    """The estimate of a value, from limits that count from the least reward.

    Args:
        value: above the least reward.
        sampling: its interval from sample size alone.
        whole: its interval for the target policy's value where the log has support.
        moments: of the log.
        bounds: of rewards.
        stated: what is known of the log.
        estimator: name.
        level: nominal coverage.
        extras: further facts for the verdict.
    """
    known, base = support_of(moments, stated, level), bounds.least
    sampling, whole = (interval.within(0.0, bounds.ceiling) for interval in (sampling, whole))
    # What clipping or shrinking may hide: how far the interval goes beyond the sampling one.
    clipped = estimator == "clipped_ips" and math.isfinite(moments.clip)
    below = 0.0 if clipped else sampling.low - whole.low
    part = max(whole.high - sampling.high, below, 0.0) if clipped or "changed" in extras else 0.0
    gap = known.entering * bounds.reach if known.entering > 0.0 else 0.0
    # Ratios and control variates take the missing mass for mass that earns as the rest does. A weighted mean may be too
    # large by the proved excess of the mean weight.
    low = whole.low * (1.0 - (known.entering if extras.get("ratio") else known.too_much))
    low, high = max(low - known.entering * extras.get("slope", 0.0), 0.0), min(whole.high + gap, bounds.ceiling)
    if not extras.get("value_outside"):  # a point whose bias is proved does not stretch the interval
        low, high = min(low, value), max(high, value)
    method = sampling.method + (" + clip part" if part > 0.0 else "") + (" + missing mass" if gap > 0.0 else "")
    facts = diagnostics(moments) | {
        "sampling_low": sampling.low + base,
        "sampling_high": sampling.high + base,
        "clip_part": part,
        "gap_part": gap,
        "missing_mass": known.entering,
        "reward_min": base,
        "reward_max": bounds.most,
        "full_support": known.stated,
    }
    facts |= identified(moments, known, value, sampling, estimator, level)
    judged = (
        facts
        | extras
        | {
            "support": known,
            "low": low,
            "high": high,
            "scale": abs(value + base),
            "precision": stated.precision,
            "denied": moments.denied,
            "bounds_stated": stated.bounds,
            "bias_part": part,
        }
    )
    ends = value + base, low + base, high + base
    return Estimate(*ends, level, method, moments.rows, moments.ess, facts, judge(judged, estimator), estimator)


def spread_facts(moments: Moments) -> dict[str, Any]:
    """Facts on how many rows and users the log's answer rests on."""
    facts: dict[str, Any] = {
        "support_seen": moments.supported / moments.rows,
        "rewarded": min(moments.rewarded, moments.rewarded_users),
        "sure": (*moments.sure.tolist(), moments.rewarded / moments.rows),
    }
    if moments.grouped:
        facts["longest_user_share"] = moments.user_rows_max / moments.rows
    return facts


def identified(
    moments: Moments,
    known: Support,
    value: float,
    sampling: Interval,
    estimator: str,
    level: float,
) -> dict[str, Any]:
    """The covered share of the target, and the mean reward of that part with an interval."""
    share = 1.0 - (known.known or 0.0)
    if known.proved:
        share = min(known.mean, share)
    if share >= 1.0 or moments.users < 2 or moments.sum("w") <= 0.0:
        return {"identified_share": share}
    if moments.supported and estimator in ("ips", "clipped_ips") and moments.rewarded:
        sampling = ratio_limits(moments, math.inf, level).interval
        value = moments.sum("x") / moments.sum("w")
    elif estimator != "snips":
        return {"identified_share": share}
    base = moments.shift
    return {
        "identified_share": share,
        "value_identified": value + base,
        "identified_low": sampling.low + base,
        "identified_high": sampling.high + base,
    }


def intersected(
    sampling: Interval, above: float, unclipped: Interval, value: float
) -> tuple[Interval, dict[str, float]]:
    """The interval of changed weights, with the hidden value above it, where it agrees with that of the unchanged ones.

    And what the verdict needs of the unchanged one: its half width, and how far the value is outside it.
    """
    facts = {
        "unclipped_half": (unclipped.high - unclipped.low) / 2.0,
        "value_outside": max(unclipped.low - value, value - unclipped.high, 0.0),
    }
    low, high = max(sampling.low, unclipped.low), min(sampling.high + above, unclipped.high)
    return unclipped if low > high else Interval(low, high, sampling.method), facts


def clip_part(moments: Moments, level: float, bounds: Bounds) -> float:
    """How far the value may be above that of min(w, clip) r, see :func:`clipping_bias_bound`."""
    n, clip, reward_range = moments.rows, moments.clip, bounds.one_reward
    if math.isinf(clip):
        return 0.0
    inflate = small_sample_factor(moments.users, level)
    if math.isinf(inflate) or math.isinf(reward_range):
        return reward_range

    def centred(letter: str) -> float:
        mean = moments.sum(letter) / n
        cross = moments.power("l" + letter)
        return max(moments.power(letter * 2) - 2.0 * mean * cross + mean**2 * moments.power("ll"), 0.0)

    def apart(whole: str, cut: str) -> float:
        both = moments.power(whole * 2) - 2.0 * moments.power(whole + cut) + moments.power(cut * 2)
        return max(both, 0.0) if moments.clipped else 0.0

    cut = Cut(
        kept=moments.sum("c") / n,
        kept_variance=centred("c") / n**2 * inflate,
        excess=max(moments.sum("w") - moments.sum("c"), 0.0) / n if moments.clipped else 0.0,
        excess_variance=apart("w", "c") / n**2 * inflate,
        reward=max(moments.sum("x") - moments.sum("y"), 0.0) / n if moments.clipped else 0.0,
        reward_variance=apart("x", "y") / n**2 * inflate,
        weight=moments.sum("w") / n,
        weight_variance=centred("w") / n**2 * inflate,
        largest=max(moments.weight_max - clip, 0.0) / n,
    )
    total = moments.sum("r")
    one_reward = moments.sum("rr") / total if total > 0.0 else bounds.one_reward
    return clipping_bias_bound(cut, reward_range, one_reward, level)


def diagnostics(moments: Moments) -> dict[str, Any]:
    """Diagnostics of how far the log can speak of the target; JSON types only."""
    n, mean, squares = moments.rows, moments.sum("w") / moments.rows, moments.power("xx")
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
        "tail_index": hill(moments.top_weights) if n >= 10 * N_TOP else None,
        "share_clipped": moments.clipped / n,
        "clip": None if math.isinf(moments.clip) else moments.clip,
        "support": moments.supported / n,
        "mean_reward": moments.sum("r") / n + moments.shift,
        "leading": LEADING,
        "propensity_min": moments.propensity_min,
        "least_propensity_rows": moments.least_propensity_rows,
        "effective_rewards": moments.sum("x") ** 2 / squares if squares > 0.0 else 0.0,
        "effective_users": moments.sum("w") ** 2 / moments.power("ww") if mean > 0.0 else 0.0,
    }


def hill(top: Floats) -> float | None:
    """Hill's (1975) estimate of a tail index from the largest values, downwards, relative to the last of them.

    Its relative error is one over the root of their number less one; None where one is not positive, or all are equal.
    """
    if top[-1] <= 0.0:
        return None
    spread = float(np.mean(np.log(top[:-1] / top[-1])))
    return 1.0 / spread if spread > 0.0 else None
