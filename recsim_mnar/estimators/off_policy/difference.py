"""The difference of two target policies on one log, an estimand of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from recsim_mnar.estimators.intervals.gamma import gamma_of_rows
from recsim_mnar.estimators.intervals.limits import gamma_limits, student_limits
from recsim_mnar.estimators.off_policy.from_moments import clip_parts, diagnostics, reward_bounds
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.verdict import verdict
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.log.columns import Clusters, Floats, user_sums


def estimate_difference(
    reward: Floats,
    propensity: Any,
    target: Any,
    baseline: Any,
    *,
    estimator: str,
    clip: float,
    clusters: Clusters | None,
    level: float,
    reward_max: float | None,
) -> Estimate:
    """See :func:`recsim_mnar.estimators.difference`; ``clip`` inf for none."""
    both = []
    for name, probability in (("target", target), ("baseline", baseline)):
        moments = Moments.of(
            reward,
            propensity,
            probability,
            clip=None if math.isinf(clip) else clip,
            cluster=clusters,
            names=("reward", "propensity", name),
        )
        both.append(moments)
    ours, theirs = both
    n = ours.rows
    p = np.asarray(propensity, dtype=np.float64)
    weights = [np.minimum(np.asarray(probability, dtype=np.float64) / p, clip) for probability in (target, baseline)]
    if estimator == "snips":
        totals = [float(w.sum()) for w in weights]
        values = [float(w @ reward) / total if total > 0.0 else 0.0 for w, total in zip(weights, totals, strict=True)]
        scores = [
            w * (reward - v) / total if total > 0.0 else np.zeros(n)
            for w, v, total in zip(weights, values, totals, strict=True)
        ]
    else:
        values = [float(w @ reward) / n for w in weights]
        scores = [(w * reward - v) / n for w, v in zip(weights, values, strict=True)]
    value = values[0] - values[1]
    sums = user_sums(scores[0] - scores[1], clusters)
    bounds = reward_bounds(ours, reward_max)
    unit = "by user" if clusters is not None else "by row"
    low, high, method = -bounds[1] + bounds[0], bounds[1] - bounds[0], "no interval: one user"
    if ours.rewarded == 0 and ours.users > 1:
        steps = [min(m.weight_max, clip) * bounds[1] / n for m in both]
        low, high = -gamma_limits(0.0, 0.0, steps[1], level)[1], gamma_limits(0.0, 0.0, steps[0], level)[1]
        method = "gamma (Fay-Feuer), because no reward was seen"
    elif ours.users > 1 and estimator != "snips" and bounds[0] >= 0.0:
        low, high = _from_gammas(reward, weights, clusters, ours, level, bounds[1])
        method = f"gamma (Fay-Feuer) of gains and losses, {unit}"
    elif ours.users > 1:
        low, high = student_limits(value, float(sums @ sums), ours.users, level)
        method = f"{unit} delta, asymptotic"
    facts = diagnostics(ours) | {"sampling_low": low, "sampling_high": high, "reward_max": bounds[1]}
    facts |= {"value_target": values[0], "value_baseline": values[1], "ess_baseline": theirs.ess}
    parts = [max(clip_parts(m, level, bounds)) for m in both] if estimator == "clipped_ips" else [0.0, 0.0]
    facts["clip_part"] = max(parts)
    if max(parts) > 0.0:
        method += " + clip part"
    same = np.array_equal(weights[0], weights[1])  # of a policy with itself: a difference of 0 is certain
    judged = {k: v for k, v in facts.items() if not (same and k.startswith("sampling_"))}
    words = _worse(verdict(judged, estimator), verdict(diagnostics(theirs), estimator))
    return Estimate(
        value, low - parts[1], high + parts[0], level, method, n, min(ours.ess, theirs.ess), facts, words, estimator
    )


def _from_gammas(
    reward: Floats, weights: list[Floats], clusters: Clusters | None, moments: Moments, level: float, reward_max: float
) -> tuple[float, float]:
    """Limits of mean((w_t - w_b) r) from gamma limits of its positive and its negative part.

    They are put together by Zou & Donner's (2008) method of variance estimates recovery, with the correlation of the
    two parts over users: a user who is rewarded more often adds to both.
    """
    gap = weights[0] - weights[1]
    parts = [np.maximum(gap, 0.0), np.maximum(-gap, 0.0)]
    means = [float(np.mean(part * reward)) for part in parts]
    ends = [gamma_of_rows(part * reward, part, clusters, moments, level=level, reward_max=reward_max) for part in parts]
    sums = [user_sums(part * reward - mean, clusters) for part, mean in zip(parts, means, strict=True)]
    scale = math.sqrt(float(sums[0] @ sums[0]) * float(sums[1] @ sums[1]))
    together = float(sums[0] @ sums[1]) / scale if scale > 0.0 else 0.0

    def reach(gain: float, loss: float) -> float:
        return math.sqrt(max(gain**2 + loss**2 - 2.0 * together * gain * loss, 0.0))

    value = means[0] - means[1]
    down = reach(means[0] - ends[0][0], ends[1][1] - means[1])
    up = reach(ends[0][1] - means[0], means[1] - ends[1][0])
    return value - down, value + up


def _worse(ours: str, theirs: str) -> str:
    """The graver of two verdicts, saying whose it is where it is the baseline's."""
    ranks = ("trust", "caution", "do not use")
    grades = [next(i for i, rank in enumerate(ranks) if words.startswith(rank)) for words in (ours, theirs)]
    return ours if grades[0] >= grades[1] else f"{theirs} (the baseline)"
