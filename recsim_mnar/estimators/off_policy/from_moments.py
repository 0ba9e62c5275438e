"""IPS, clipped IPS and SNIPS as estimates from moments (docs/verdict-theory.md)."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import Cut, Interval, clipping_bias_bound, small_sample_factor
from recsim_mnar.estimators.off_policy.limits import (
    Bounds,
    Support,
    expected_ess,
    expected_half,
    expected_variance,
    largest_weight,
    mean_limits,
    ratio_limits,
    support_of,
)
from recsim_mnar.estimators.off_policy.moments import N_TOP, Moments
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.verdict import judge, loosening
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.log.columns import Floats

AUTO = "auto"
"""The estimator that leads, see :func:`leading`."""
DENSE = 0.5
"""Squared mean over mean square of the log's rewards from which ``snips`` leads; the rate, where they are 0 or 1."""


def leading(moments: Moments) -> str:
    """The estimator whose number is shown first: "ips", or "snips" where most rows are rewarded.

    No clip: unclipped weights alone leave no bias that the interval has to hold. Where rewards do not follow the
    weights the variance of ``snips`` is that of ``ips`` times 1 - (mean r)^2 / mean r^2, where r is the log's reward
    above the least one. So the two are alike where few rows are rewarded, and ``snips`` is the better one where most
    are. The choice looks at no weight: it says nothing of the target's luck.
    """
    square = moments.sum("rr")
    return "snips" if square > 0.0 and moments.sum("r") ** 2 >= DENSE * moments.rows * square else "ips"


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
    estimator = leading(moments) if estimator == AUTO else estimator
    bounds = Bounds.of(moments, stated)
    clipped, ratio = estimator == "clipped_ips" and math.isfinite(moments.clip), estimator == "snips"
    total = moments.sum("w") if ratio else moments.rows
    value = moments.sum("y" if clipped else "x") / total if total > 0.0 else 0.0
    expected = functools.partial(
        expected_half, moments, stated, estimator, expected_variance(moments, estimator), level
    )
    extras = spread_facts(moments, stated) | {"expected_half": expected(), "expected_half_at": expected}
    most = 0.0, bounds.reach
    reason = "one user" if moments.users < 2 else "no support" if moments.supported == 0 else ""
    if reason:
        sampling = whole = Interval(0.0, bounds.reach, f"no interval: {reason}")
    elif ratio:
        sampling = whole = ratio_limits(moments, stated, level)
        extras["ratio"] = True
        if stated.largest_weight is not None:
            tighter = ratio_limits(moments, stated.bounded_by(moments.weight_max), level)
            extras |= loosening(stated, moments.weight_max, whole.within(*most), tighter.within(*most))
    else:
        one = bounds.one_reward(moments)
        sampling = whole = mean_limits(moments, stated, one, level, clipped=clipped)
        if stated.largest_weight is not None and not clipped:
            tighter = mean_limits(moments, stated.bounded_by(moments.weight_max), one, level, clipped=False)
            extras |= loosening(stated, moments.weight_max, whole.within(*most), tighter.within(*most))
        if clipped:
            unclipped = mean_limits(moments, stated, one, level, clipped=False)
            whole, facts = intersected(sampling, clip_part(moments, stated, level, bounds), unclipped, value)
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
    sampling, whole = (interval.within(0.0, bounds.reach) for interval in (sampling, whole))
    # What clipping or shrinking may hide: how far the interval goes beyond the sampling one.
    clipped = estimator == "clipped_ips" and math.isfinite(moments.clip)
    below = 0.0 if clipped else sampling.low - whole.low
    part = max(whole.high - sampling.high, below, 0.0) if clipped or "changed" in extras else 0.0
    gap = known.entering * bounds.reach if known.entering > 0.0 else 0.0
    # Ratios and control variates take the missing mass for mass that earns as the rest does. A weighted mean may be too
    # large by the proved excess of the mean weight.
    low = whole.low * (1.0 - (known.entering if extras.get("ratio") else known.too_much))
    low, high = max(low - known.entering * extras.get("slope", 0.0), 0.0), min(whole.high + gap, bounds.reach)
    if not extras.get("value_outside"):  # a point whose bias is proved does not stretch the interval
        low, high = min(low, value), max(high, value)
    method = sampling.method + (" + clip part" if part > 0.0 else "") + (" + missing mass" if gap > 0.0 else "")
    facts = diagnostics(moments) | {
        "sampling_low": sampling.low + base,
        "sampling_high": sampling.high + base,
        "clip_part": part,
        "gap_part": gap,
        "missing_mass": known.entering if known.entering > 0.0 else known.hidden,
        "reward_min": base,
        "reward_max": bounds.most,
        "range_given": [stated.reward_min is not None, stated.reward_max is not None],
        "weight_max_given": stated.largest_weight is not None,
        "weight_max": largest_weight(moments, stated),
        "full_support": known.stated,
    }
    facts |= {} if moments.reward_limit is None else {"reward_limit": moments.reward_limit}
    facts |= identified(moments, known, stated, value, sampling, estimator, level)
    judged = (
        facts
        | extras
        | {
            "support": known,
            "range": bounds.reach,
            "low": low,
            "high": high,
            "scale": moments.sum("r") / moments.rows - bounds.nothing(moments),
            "denied": moments.denied,
            "bounds_stated": stated.bounds,
            "reward_base": base + (value if estimator == "snips" else 0.0),
            "expected_ess": expected_ess(moments),
            "bias_part": part,
            "unseen_mass": max(known.entering, known.hidden),
        }
    )
    ends = value + base, low + base, high + base
    return Estimate(*ends, level, method, moments.rows, moments.ess, facts, judge(judged, estimator), estimator)


def spread_facts(moments: Moments, stated: Stated, *others: Moments) -> dict[str, Any]:
    """How much of the rows is one user's, and which ends of the rewards' range are not stated.

    Args:
        moments: of the log.
        stated: what is known of it.
        others: of other policies that the estimate is of.
    """
    facts: dict[str, Any] = {"support_seen": moments.supported / moments.rows}
    if moments.grouped:
        facts["longest_user_share"] = moments.user_rows_max / moments.rows
    bounds = [Bounds.of(each, stated) for each in (moments, *others)]
    limited = moments.reward_limit is not None
    if not moments.binary or (limited and bounds[0].most > 1.0):
        unknown = {
            "reward_min": stated.reward_min is None and moments.reward_min < 0.0,
            "reward_max": any(each.open for each in bounds) if limited else stated.reward_max is None,
        }
        facts["range_unstated"] = [name for name, missing in unknown.items() if missing]
    return facts


def identified(
    moments: Moments, known: Support, stated: Stated, value: float, sampling: Interval, estimator: str, level: float
) -> dict[str, Any]:
    """The covered share of the target, and the mean reward of that part with an interval."""
    share = 1.0 - (known.known or 0.0)
    if known.proved:
        share = min(known.mean, share)
    if share >= 1.0 or moments.users < 2 or moments.sum("w") <= 0.0:
        return {"identified_share": share}
    if moments.supported and estimator in ("ips", "clipped_ips") and moments.rewarded:
        sampling = ratio_limits(moments, stated, level)
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


def clip_part(moments: Moments, stated: Stated, level: float, bounds: Bounds) -> float:
    """How far the value may be above that of min(w, clip) r, see :func:`clipping_bias_bound`."""
    n, clip, reward_range = moments.rows, moments.clip, bounds.reach
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
        largest=max(largest_weight(moments, stated) - clip, 0.0) / n,
    )
    return clipping_bias_bound(cut, reward_range, bounds.one_reward(moments), level)


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
        "leading": leading(moments),
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
