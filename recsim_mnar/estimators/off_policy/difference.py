"""The difference of two target policies on one log, an estimand of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.estimators.intervals.gamma import along_length_of, deviations_of, gamma_of_rows
from recsim_mnar.estimators.intervals.limits import Interval
from recsim_mnar.estimators.off_policy.from_moments import clip_part, diagnostics, spread_facts
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.sampling import Bounds, largest_weight, unit
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.support import support_of
from recsim_mnar.estimators.off_policy.verdict import judge
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.verdict import Finding, Verdict
from recsim_mnar.log.columns import Clusters, Floats, column, user_sums

NAMES = ("target", "baseline")


@dataclass(frozen=True)
class Pair:
    """A log and two policies.

    Attributes:
        reward: (n,).
        propensity: (n,).
        policies: (n,) probabilities of the logged action, of the target and of the baseline.
        unsupported: (n,) each one's mass where the logging probability is 0, or None.
        clip: inf for none.
        clusters: users, or None.
        stated: what is known of the log.
        level: nominal coverage.
    """

    reward: Floats
    propensity: Any
    policies: tuple[Any, Any]
    unsupported: tuple[Any, Any]
    clip: float
    clusters: Clusters | None
    stated: Stated
    level: float

    def moments(self) -> list[Moments]:
        """Of both policies; the columns are checked on the way."""
        return [
            Moments.of(
                self.reward,
                self.propensity,
                policy,
                clip=None if math.isinf(self.clip) else self.clip,
                cluster=self.clusters,
                names=("reward", "propensity", name),
                reward_min=self.stated.reward_min,
                reward_max=self.stated.reward_max,
                unsupported=missing,
            )
            for policy, missing, name in zip(self.policies, self.unsupported, NAMES, strict=True)
        ]


def estimate_difference(pair: Pair, estimator: str) -> Estimate:
    """See :func:`recsim_mnar.estimators.off_policy.value.difference`."""
    both = pair.moments()
    ours, theirs = both
    n = ours.rows
    bounds = Bounds.of(ours, pair.stated)
    reward = pair.reward - bounds.least if bounds.least else pair.reward
    p = column(pair.propensity, "propensity")
    columns = [column(policy, name) for policy, name in zip(pair.policies, NAMES, strict=True)]
    for each, name in zip(columns, NAMES, strict=True):
        pair.stated.check(each, p, (name, "propensity"))
    raw = [each / p for each in columns]
    cut = [np.minimum(w, pair.clip) for w in raw]
    values = [_value(w, reward, estimator) for w in cut]
    value = values[0] - values[1]
    same = bool(np.array_equal(raw[0], raw[1]))
    sampling = whole = _whole_range(bounds, ours)
    part = 0.0
    if ours.users > 1 and math.isfinite(bounds.range):
        sampling = whole = _limits(pair, estimator, raw, reward, both, math.inf)
        if math.isfinite(pair.clip):
            sampling = _limits(pair, estimator, cut, reward, both, pair.clip)
            parts = [clip_part(m, pair.stated, pair.level, bounds) for m in both]
            low, high = max(sampling.low - parts[1], whole.low), min(sampling.high + parts[0], whole.high)
            whole = whole if low > high else Interval(low, high, sampling.method)
            part = max(whole.high - sampling.high, sampling.low - whole.low, 0.0)
    known = [support_of(m, pair.stated, pair.level) for m in both]
    gaps = [k.entering * bounds.range if k.entering > 0.0 else 0.0 for k in known]
    if same:
        sampling, part, gaps = Interval(0.0, 0.0, "no interval: the same policy"), 0.0, [0.0, 0.0]
        whole = sampling
    lost = [k.entering * v if estimator == "snips" else 0.0 for k, v in zip(known, values, strict=True)]
    low = min(max(whole.low - gaps[1] - lost[0], -bounds.range), value)
    high = max(min(whole.high + gaps[0] + lost[1], bounds.range), value)
    method = sampling.method + (" + clip part" if part > 0.0 else "") + (" + missing mass" if max(gaps) > 0.0 else "")
    facts = diagnostics(ours) | {"sampling_low": sampling.low, "sampling_high": sampling.high}
    facts |= {"clip_part": part, "gap_part": max(gaps), "reward_min": bounds.least, "reward_max": bounds.largest}
    facts |= {"value_target": values[0] + bounds.least, "value_baseline": values[1] + bounds.least}
    facts["ess_baseline"] = theirs.ess
    extra = {
        "low": low,
        "high": high,
        "scale": max(values) - bounds.nothing(ours),
        "same": same,
        "range": bounds.range,
        "bias_part": part,
    }
    extra["weight_max_given"] = pair.stated.largest_weight is not None
    gap = (cut[0] - cut[1]) * reward
    influence = gap - float(np.mean(gap))
    resting = None if same else deviations_of(influence, pair.clusters, ours).resting()
    spread = spread_facts(ours, resting, bounds, along_length_of(influence, pair.clusters, ours))
    verdict = judge(facts | extra | spread | {"support": known[0]}, estimator)
    other = judge(
        diagnostics(theirs) | {"support": known[1], "support_seen": theirs.supported / n, "same": True}
        | {"weight_max_given": extra["weight_max_given"], "range": bounds.range},
        estimator,
    )  # fmt: skip
    verdict = _joined(verdict, other)
    return Estimate(value, low, high, pair.level, method, n, min(ours.ess, theirs.ess), facts, verdict, estimator)


def _value(weight: Floats, reward: Floats, estimator: str) -> float:
    if estimator != "snips":
        return float(weight @ reward) / reward.size
    total = float(weight.sum())
    return float(weight @ reward) / total if total > 0.0 else 0.0


def _whole_range(bounds: Bounds, moments: Moments) -> Interval:
    reason = "one user" if moments.users < 2 else "no range of rewards"
    return Interval(-bounds.range, bounds.range, f"no interval: {reason}")


def _limits(
    pair: Pair, estimator: str, weights: list[Floats], reward: Floats, both: list[Moments], clip: float
) -> Interval:
    """Limits of the mean of (w_t - w_b) r from those of its gains and losses, or of the difference of two ratios."""
    words, one = unit(both[0]), Bounds.of(both[0], pair.stated).one_reward(both[0])
    largest = [max(largest_weight(m, pair.stated, clip), float(np.max(w))) for m, w in zip(both, weights, strict=True)]
    if estimator == "snips":
        weights = [w / (float(np.mean(w)) or 1.0) for w in weights]
        largest = [max(a, float(np.max(w))) for a, w in zip(largest, weights, strict=True)]
        values = [float(np.mean(w * reward)) for w in weights]
        scores = weights[0] * (reward - values[0]) - weights[1] * (reward - values[1])
        spread = deviations_of(scores, pair.clusters, both[0]).spread(
            reward.size,
            largest[0] * one + largest[1] * values[1],
            largest[1] * one + largest[0] * values[0],
            pair.level,
        )
        less, more = spread.reaches(pair.level)
        value = values[0] - values[1]
        return Interval(value - less, value + more, f"{words} Student with the heaviest step")
    gap = weights[0] - weights[1]
    parts = [np.maximum(gap, 0.0), np.maximum(-gap, 0.0)]
    means = [float(np.mean(part * reward)) for part in parts]
    ends = []
    for part, most in zip(parts, largest, strict=True):
        ends.append(
            gamma_of_rows(part * reward, part, pair.clusters, both[0], level=pair.level, one_reward=one, largest=most)
        )
    sums = [user_sums(part * reward - mean, pair.clusters) for part, mean in zip(parts, means, strict=True)]
    scale = math.sqrt(float(sums[0] @ sums[0]) * float(sums[1] @ sums[1]))
    together = float(sums[0] @ sums[1]) / scale if scale > 0.0 else 0.0

    def reach(gain: float, loss: float) -> float:
        """Zou & Donner's (2008) variance estimates recovery, with the correlation of the two parts over users."""
        return math.sqrt(max(gain**2 + loss**2 - 2.0 * together * gain * loss, 0.0))

    value = means[0] - means[1]
    down = reach(means[0] - ends[0][0], ends[1][1] - means[1])
    up = reach(ends[0][1] - means[0], means[1] - ends[1][0])
    return Interval(value - down, value + up, f"gamma (Fay-Feuer) of gains and losses, {words}")


def _joined(ours: Verdict, theirs: Verdict) -> Verdict:
    """Both verdicts' findings, each once, saying which are the baseline's."""
    codes = {finding.code for finding in ours.findings if finding.level != "trust"}
    more = [
        Finding(f.code, f.severity, f.number, f"of the baseline, {f.message}", f.action)
        for f in theirs.findings
        if f.level != "trust" and f.code not in codes
    ]
    return ours.with_findings(more)
