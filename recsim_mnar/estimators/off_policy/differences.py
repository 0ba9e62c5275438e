"""The difference of two target policies on one log, an estimand of its own: its sums, its limits, its verdict."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.intervals import (
    ROUNDING,
    Deviations,
    Interval,
    Spread,
    positive_limits,
    small_sample_factor,
)
from recsim_mnar.estimators.off_policy.from_moments import AUTO, clip_part, diagnostics, leading, spread_facts
from recsim_mnar.estimators.off_policy.limits import (
    Bounds,
    expected_ess,
    largest_weight,
    luck_of_weights,
    one_reward_above,
    ratio_base,
    support_of,
    unit,
)
from recsim_mnar.estimators.off_policy.moments import Moments, added, users_of_rows
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.verdict import judge, loosening
from recsim_mnar.estimators.verdict import Estimate, Finding, Verdict
from recsim_mnar.log.columns import Clusters, Floats

Form = Sequence[float]
"""Coefficients of a sum of a user's numbers."""


@functools.cache
def _places(width: int) -> dict[tuple[int, ...], int]:
    """Position of the product of some of ``width`` numbers, as ``_moments_kernel.put_products`` writes them."""
    every = [each for k in (1, 2, 3, 4) for each in itertools.combinations_with_replacement(range(width), k)]
    return {each: place for place, each in enumerate(every)}


@dataclass(frozen=True)
class Products:
    """Sums over users of products of a few numbers per user.

    Attributes:
        width: how many numbers.
        pairs: (2, k) the sums as pairs, of products of up to four numbers or, where rows are users, of up to two.
    """

    width: int
    pairs: NDArray[np.float64]

    @staticmethod
    def empty(width: int, degree: int) -> Products:
        """No user."""
        return Products(width, np.zeros((2, math.comb(width + degree, degree) - 1)))

    def of(self, *forms: Form) -> float:
        """Sum over users of the product of one to four sums of their numbers, each with its coefficients."""
        sums = self.pairs.sum(axis=0).tolist()
        places, total = _places(self.width), 0.0
        terms = [[(i, c) for i, c in enumerate(form) if c != 0.0] for form in forms]
        for chosen in itertools.product(*terms):
            place = places[tuple(sorted(i for i, _ in chosen))]
            total += math.prod(c for _, c in chosen) * sums[place]
        return total

    def deviations(self, form: Form, moments: Moments) -> Deviations:
        """Sums ``form`` of the users, centred at 0."""
        grouped = moments.grouped
        second = self.of(form, form)
        units = np.eye(self.width).tolist()
        squares = sum(c * c * self.of(unit, unit) for c, unit in zip(form, units, strict=True))
        if second <= ROUNDING * squares:
            return Deviations(0.0, 0.0, 0.0, moments.users, moments.rewarded_users, grouped)
        third = self.of(form, form, form) if grouped else 0.0
        fourth = max(self.of(form, form, form, form), 0.0) if grouped else 0.0
        return Deviations(second, third, fourth, moments.users, moments.rewarded_users, grouped)


@dataclass
class PairMoments:
    """Moments of the rows of two policies, and of the gains and losses between them.

    Attributes:
        ours: of the target policy.
        theirs: of the baseline.
        pairs: (2, k) the sums of ``plain``, ``cut`` and ``ratio``.
        excesses: (4,) most by which a user's gains, losses, and those of cut weights, without the reward, sum to more
            than the user has rows.
        differing: rows whose weights differ.
    """

    ours: Moments
    theirs: Moments
    pairs: NDArray[np.float64] = field(init=False)
    excesses: NDArray[np.float64] = field(default_factory=lambda: np.full(4, -np.inf))
    differing: int = 0

    def __post_init__(self) -> None:
        """Start without rows."""
        self.pairs = np.zeros((2, sum(self._sizes)))

    @property
    def _sizes(self) -> tuple[int, int, int]:
        degree = 4 if self.ours.clustered else 2
        each, ratio = (math.comb(width + degree, degree) - 1 for width in (3, 4))
        return each, each, ratio

    @property
    def plain(self) -> Products:
        """Per user its rows l, gains (w - b)+ r and losses (b - w)+ r."""
        return Products(3, self.pairs[:, : self._sizes[0]])

    @property
    def cut(self) -> Products:
        """Likewise, of weights cut at the clip of ``ours``."""
        return Products(3, self.pairs[:, self._sizes[0] : -self._sizes[2]])

    @property
    def ratio(self) -> Products:
        """Per user (w - b) r, b r, w - b and b."""
        return Products(4, self.pairs[:, -self._sizes[2] :])

    def extend(self, reward: Floats, p: Floats, target: Floats, baseline: Floats, clusters: Clusters | None) -> None:
        """Add rows that the moments of both policies have met, in place; blocks as :meth:`Moments.extend`.

        Args:
            reward: (n,) rewards.
            p: (n,) propensities.
            target: (n,) probabilities of the target policy.
            baseline: (n,) likewise.
            clusters: users.
        """
        from recsim_mnar.estimators.off_policy import _moments_kernel as kernels

        shift = self.ours.shift
        columns = [target, baseline, p, reward - shift if shift else reward]
        if clusters is not None:
            columns = [clusters.together(values) for values in columns]
        rest = self.ours.clip, self.pairs, self.excesses, np.empty(17 + self.pairs.size)
        self.differing += kernels.gather_pair(*columns, *users_of_rows(clusters), *rest)

    def merged(self, other: PairMoments, ours: Moments, theirs: Moments) -> PairMoments:
        """Of the rows of both, which share no user; ``ours`` and ``theirs`` are the policies' merged moments."""
        same = PairMoments(ours, theirs)
        same.pairs = added(self.pairs, other.pairs)
        same.excesses = np.maximum(self.excesses, other.excesses)
        same.differing = self.differing + other.differing
        return same

    def unclipped(self) -> PairMoments:
        """Of the same rows without clipping."""
        if math.isinf(self.ours.clip):
            return self
        same = PairMoments(self.ours.unclipped(), self.theirs.unclipped())
        same.pairs = np.concatenate([self.plain.pairs, self.plain.pairs, self.ratio.pairs], axis=1)
        same.differing = self.differing
        same.excesses = np.concatenate([self.excesses[:2], self.excesses[:2]])
        return same


def estimate_difference(pair: PairMoments, estimator: str, *, level: float, stated: Stated) -> Estimate:
    """The estimate of :func:`recsim_mnar.estimators.off_policy.value.difference`, from moments.

    Args:
        pair: of the rows, with the clip of the estimator.
        estimator: "ips", "clipped_ips" or "snips"; "auto" for :func:`leading` of the log.
        level: nominal coverage.
        stated: what is known of the log.
    """
    estimator = leading(pair.ours) if estimator == AUTO else estimator
    ours, theirs = both = (pair.ours, pair.theirs)
    bounds, ratio, same = Bounds.of(ours, stated), estimator == "snips", pair.differing == 0
    values = [_value(m, estimator) for m in both]
    value, most = values[0] - values[1], bounds.reach
    known = [support_of(m, stated, level) for m in both]
    gaps = [k.entering * most if k.entering > 0.0 else 0.0 for k in known]
    sampling = whole = Interval(-most, most, f"no interval: {'one user' if ours.users < 2 else 'no range of rewards'}")
    part = 0.0
    judged: dict[str, Any] = {
        "expected_half": math.inf,
        "expected_half_at": None,
        "unclipped_half": 0.0,
        "value_outside": 0.0,
    }
    if ours.users > 1 and math.isfinite(bounds.range):
        limits = _Limits(pair, stated, level, bounds.one_reward(ours))
        expected = functools.partial(limits.expected_half, estimator)
        judged.update(expected_half=expected(), expected_half_at=expected)
        sampling = whole = limits.of_ratios() if ratio else limits.of_means(clipped=False)
        if stated.largest_weight is not None and math.isinf(ours.clip):
            seen = max(m.weight_max for m in both)
            tighter = _Limits(pair, stated.bounded_by(seen), level, bounds.one_reward(ours))
            less = tighter.of_ratios() if ratio else tighter.of_means(clipped=False)
            judged |= loosening(stated, seen, whole.within(-most, most), less.within(-most, most))
        if math.isfinite(ours.clip):
            judged["unclipped_half"] = (whole.high - whole.low) / 2.0
            judged["value_outside"] = max(whole.low - value, value - whole.high, 0.0)
            sampling = whole if ratio else limits.of_means(clipped=True)
            above, below = (clip_part(m, stated, level, bounds) for m in both)
            low, high = max(sampling.low - below, whole.low), min(sampling.high + above, whole.high)
            whole = whole if low > high else Interval(low, high, sampling.method)
            part = max(whole.high - sampling.high, sampling.low - whole.low, 0.0)
    if same:
        sampling = whole = Interval(0.0, 0.0, "no interval: the same policy")
        part, gaps = 0.0, [0.0, 0.0]
    lost = [k.entering * v if ratio else 0.0 for k, v in zip(known, values, strict=True)]
    low = min(max(whole.low - gaps[1] - lost[0], -most), most)
    high = max(min(whole.high + gaps[0] + lost[1], most), -most)
    if judged["value_outside"] == 0.0:  # a point whose bias is proved does not stretch the interval
        low, high = min(low, value), max(high, value)
    method = sampling.method + (" + clip part" if part > 0.0 else "") + (" + missing mass" if max(gaps) > 0.0 else "")
    facts = diagnostics(ours) | {
        "sampling_low": sampling.low,
        "sampling_high": sampling.high,
        "clip_part": part,
        "gap_part": max(gaps),
        "reward_min": bounds.least,
        "reward_max": bounds.most,
    }
    facts |= {} if ours.reward_limit is None else {"reward_limit": ours.reward_limit}
    facts |= {"value_target": values[0] + bounds.least, "value_baseline": values[1] + bounds.least}
    facts["ess_baseline"] = theirs.ess
    for which, each in zip(("target", "baseline"), known, strict=True):
        facts[f"identified_share_{which}"] = min(each.mean, 1.0) if each.proved else 1.0 - (each.known or 0.0)
    facts["weight_max"] = max(largest_weight(m, stated) for m in both)
    shared: dict[str, Any] = {"low": low, "high": high, "range": most, "bounds_stated": stated.bounds}
    judged |= shared | {
        "scale": ours.sum("r") / ours.rows - bounds.nothing(ours),
        "denied": max(m.denied for m in both),
        "reward_base": bounds.least + (ours.sum("r") / ours.rows if ratio else 0.0),
        "expected_ess": expected_ess(ours),
        "same": same,
        "bias_part": part,
        "unseen_mass": max(max(k.entering, k.hidden) for k in known),
        "share_clipped": max(m.clipped / m.rows for m in both),
        "support": known[0],
    }
    verdict = judge(facts | judged | spread_facts(ours, stated, theirs), estimator)
    other = (
        diagnostics(theirs)
        | shared
        | {
            "same": True,
            "denied": theirs.denied,
            "expected_ess": expected_ess(theirs),
            "support": known[1],
            "support_seen": theirs.supported / theirs.rows,
        }
    )
    verdict = _joined(verdict, judge(other, estimator))
    return Estimate(value, low, high, level, method, ours.rows, min(ours.ess, theirs.ess), facts, verdict, estimator)


def _value(moments: Moments, estimator: str) -> float:
    if estimator != "snips":
        return moments.sum("y") / moments.rows
    total = moments.sum("w")
    return moments.sum("x") / total if total > 0.0 else 0.0


@dataclass(frozen=True)
class _Limits:
    """Limits from sample size only."""

    pair: PairMoments
    stated: Stated
    level: float
    one_reward: float

    def expected_half(self, estimator: str, times: float = 1.0) -> float:
        """As :func:`recsim_mnar.estimators.off_policy.limits.expected_half`, for the difference."""
        pair, n = self.pair, self.pair.ours.rows
        rewards = pair.ours.sum("rr") / n
        one = self.one_reward
        if estimator == "snips":
            rewards -= (pair.ours.sum("r") / n) ** 2
            one = one_reward_above(pair.ours, self.stated, ratio_base(pair.ours, self.stated))
        apart = (0.0, 0.0, 1.0, 0.0)
        squares = pair.ratio.of(apart, apart)
        squares += sum(m.sum("ww") * (luck_of_weights(m) - 1.0) for m in (pair.ours, pair.theirs))
        variance = max(squares * rewards, 0.0) / (n**2 * times)
        variance *= small_sample_factor(pair.ours.users, self.level)
        step = max(largest_weight(m, self.stated) for m in (pair.ours, pair.theirs)) * one / (n * times)
        mean = max(pair.ours.sum("r") / n, 0.0)
        low, high = positive_limits(mean, Spread(variance, 0.0, step, mean / (n * times)), self.level)
        return (high - low) / 2.0

    def of_ratios(self) -> Interval:
        """Of the difference of two ratios: one more of the heaviest rows may be fully rewarded, or not at all."""
        both = (self.pair.ours, self.pair.theirs)
        n = both[0].rows
        means = [m.sum("w") / n or 1.0 for m in both]
        largest = [largest_weight(m, self.stated) for m in both]
        largest = [max(most, m.weight_max / mean) for most, m, mean in zip(largest, both, means, strict=True)]
        values = [m.sum("x") / n / mean for m, mean in zip(both, means, strict=True)]
        ours, theirs = (1.0 / mean for mean in means)
        # w (r - v) of the one less that of the other, in numbers that are small where the policies are nearly the same.
        form = (ours, ours - theirs, -values[0] * ours, values[1] * theirs - values[0] * ours)
        base = ratio_base(both[0], self.stated)  # a difference of ratios does not change with it
        one = one_reward_above(both[0], self.stated, base)
        spread = self.pair.ratio.deviations(form, both[0]).spread(
            n,
            largest[0] * one + largest[1] * (values[1] - base),
            largest[1] * one + largest[0] * (values[0] - base),
            self.level,
        )
        less, more = spread.reaches(self.level)
        value = values[0] - values[1]
        return Interval(value - less, value + more, f"{unit(both[0])} Student with the heaviest step")

    def of_means(self, *, clipped: bool) -> Interval:
        """Moments of (w - b) r from those of its gains and losses."""
        pair, moments = self.pair, self.pair.ours
        products, clip = (pair.cut, moments.clip) if clipped else (pair.plain, math.inf)
        excesses = pair.excesses[2:] if clipped else pair.excesses[:2]
        n = moments.rows
        means = [products.of(unit) / n for unit in ((0.0, 1.0, 0.0), (0.0, 0.0, 1.0))]
        forms = [(-means[0], 1.0, 0.0), (-means[1], 0.0, 1.0)]
        ends, spreads = [], []
        for each, form, mean, excess in zip((pair.ours, pair.theirs), forms, means, excesses.tolist(), strict=True):
            largest = largest_weight(each, self.stated, clip)
            with_it = max(excess - (largest - 1.0), 0.0)
            step = largest * self.one_reward + with_it * max(moments.sum("r") / n, 0.0)
            found = products.deviations(form, moments)
            spreads.append(found.second)
            ends.append(positive_limits(mean, found.spread(n, step, max(mean, 0.0), self.level), self.level))
        scale = math.sqrt(spreads[0] * spreads[1])
        together = products.of(*forms) / scale if scale > 0.0 else 0.0

        def reach(gain: float, loss: float) -> float:
            """Zou & Donner's (2008) variance estimates recovery, with the correlation of the two parts over users."""
            return math.sqrt(max(gain**2 + loss**2 - 2.0 * together * gain * loss, 0.0))

        value = means[0] - means[1]
        down = reach(means[0] - ends[0][0], ends[1][1] - means[1])
        up = reach(ends[0][1] - means[0], means[1] - ends[1][0])
        return Interval(value - down, value + up, f"gamma (Fay-Feuer) of gains and losses, {unit(moments)}")


def _joined(ours: Verdict, theirs: Verdict) -> Verdict:
    """The findings of both verdicts, each once, with the baseline's marked."""
    codes = {finding.code for finding in ours.findings if finding.level != "trust"}
    more = [
        Finding(f.code, f.severity, f.number, f"of the baseline, {f.message}", f.action)
        for f in theirs.findings
        if f.level != "trust" and f.code not in codes
    ]
    return ours.with_findings(more)
