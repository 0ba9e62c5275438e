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

from recsim_mnar.estimators.intervals import ROUNDING, Deviations, Interval
from recsim_mnar.estimators.off_policy.from_moments import (
    AUTO,
    LEADING,
    clip_part,
    diagnostics,
    intersected,
    spread_facts,
)
from recsim_mnar.estimators.off_policy.limits import Bounds, Limits, support_of, unit
from recsim_mnar.estimators.off_policy.moments import Moments, added, users_of_rows
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.verdict import judge
from recsim_mnar.estimators.verdict import Estimate, Finding, Verdict
from recsim_mnar.log.columns import Clusters, Floats

Form = Sequence[float]
"""Coefficients of a sum of a user's numbers."""


@functools.cache
def _places(width: int) -> dict[tuple[int, ...], int]:
    """Position of the product of some of ``width`` numbers, as ``_moments_kernel.put_products`` writes them."""
    every = [each for k in (1, 2, 3, 4) for each in itertools.combinations_with_replacement(range(width), k)]
    return {each: place for place, each in enumerate(every)}


_OF_MEANS, _OF_RATIO = (math.comb(width + 4, 4) - 1 for width in (2, 4))
"""Products of one to four of two and of four numbers."""


@dataclass(frozen=True)
class Products:
    """Sums over users of products of a few numbers per user.

    Attributes:
        width: how many numbers.
        pairs: (2, k) the sums as pairs, of products of up to four numbers.
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
        fourth = max(self.of(form, form, form, form), 0.0)
        return Deviations(second, 0.0, fourth, moments.users, moments.rewarded_users, grouped)


@dataclass
class PairMoments:
    """Moments of the rows of two policies, and of the difference between them.

    Attributes:
        ours: of the target policy.
        theirs: of the baseline.
        pairs: (2, k) the sums of ``means``, ``cut`` and ``ratio``.
        differing: rows whose weights differ.
    """

    ours: Moments
    theirs: Moments
    pairs: NDArray[np.float64] = field(init=False)
    differing: int = 0

    def __post_init__(self) -> None:
        """Start without rows."""
        self.pairs = np.zeros((2, 2 * _OF_MEANS + _OF_RATIO))

    @property
    def means(self) -> Products:
        """Per user its rows l and (w - b) r."""
        return Products(2, self.pairs[:, :_OF_MEANS])

    @property
    def cut(self) -> Products:
        """Likewise, of weights cut at the clip of ``ours``."""
        return Products(2, self.pairs[:, _OF_MEANS : 2 * _OF_MEANS])

    @property
    def ratio(self) -> Products:
        """Per user (w - b) r, b r, w - b and b."""
        return Products(4, self.pairs[:, 2 * _OF_MEANS :])

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
        rest = self.ours.clip, self.pairs, np.empty(11 + self.pairs.size)
        self.differing += kernels.gather_pair(*columns, *users_of_rows(clusters), *rest)

    def merged(self, other: PairMoments, ours: Moments, theirs: Moments) -> PairMoments:
        """Of the rows of both, which share no user; ``ours`` and ``theirs`` are the policies' merged moments."""
        same = PairMoments(ours, theirs)
        same.pairs = added(self.pairs, other.pairs)
        same.differing = self.differing + other.differing
        return same

    def unclipped(self) -> PairMoments:
        """Of the same rows without clipping."""
        if math.isinf(self.ours.clip):
            return self
        same = PairMoments(self.ours.unclipped(), self.theirs.unclipped())
        same.pairs = np.concatenate([self.means.pairs, self.means.pairs, self.ratio.pairs], axis=1)
        same.differing = self.differing
        return same


def estimate_difference(pair: PairMoments, estimator: str, *, level: float, stated: Stated) -> Estimate:
    """The estimate of :func:`recsim_mnar.estimators.off_policy.value.difference`, from moments.

    Args:
        pair: of the rows, with the clip of the estimator.
        estimator: "ips", "clipped_ips" or "snips"; "auto" for :func:`leading` of the log.
        level: nominal coverage.
        stated: what is known of the log.
    """
    estimator = LEADING if estimator == AUTO else estimator
    ours, theirs = both = (pair.ours, pair.theirs)
    bounds, ratio, same = Bounds.of(ours, stated), estimator == "snips", pair.differing == 0
    values = [_value(m, estimator) for m in both]
    value, most = values[0] - values[1], bounds.ceiling
    known = [support_of(m, stated, level) for m in both]
    gaps = [k.entering * bounds.reach if k.entering > 0.0 else 0.0 for k in known]
    sampling = whole = Interval(-most, most, "no interval: one user")
    judged: dict[str, Any] = {"value_outside": 0.0}
    if same:
        sampling = whole = Interval(0.0, 0.0, "no interval: the same policy")
        gaps = [0.0, 0.0]
    elif ours.users > 1:
        limits = _limits(pair, values, estimator, level)
        sampling = whole = limits.interval
        judged |= {"carrying": limits.carrying, "heavy_tail": _heavy_tail(pair, level)}
        if estimator == "clipped_ips" and math.isfinite(ours.clip):
            unclipped = _limits(pair.unclipped(), [m.sum("x") / m.rows for m in both], "ips", level).interval
            above, below = (clip_part(m, level, bounds) for m in both)
            lower = Interval(sampling.low - below, sampling.high, sampling.method)
            whole, facts = intersected(lower, above, unclipped, value)
            judged |= facts
    part = max(whole.high - sampling.high, sampling.low - whole.low, 0.0) if estimator == "clipped_ips" else 0.0
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
        "value_target": values[0] + bounds.least,
        "value_baseline": values[1] + bounds.least,
        "ess_baseline": theirs.ess,
    }
    for which, each in zip(("target", "baseline"), known, strict=True):
        facts[f"identified_share_{which}"] = min(each.mean, 1.0) if each.proved else 1.0 - (each.known or 0.0)
    shared: dict[str, Any] = {"low": low, "high": high, "bounds_stated": stated.bounds, "same": same}
    judged |= shared | {"denied": max(m.denied for m in both), "bias_part": part, "support": known[0]}
    verdict = judge(facts | judged | spread_facts(ours), estimator)
    other = diagnostics(theirs) | shared | {"same": True, "denied": theirs.denied, "support": known[1]}
    other["support_seen"] = theirs.supported / theirs.rows
    verdict = _joined(verdict, judge(other, estimator))
    return Estimate(value, low, high, level, method, ours.rows, min(ours.ess, theirs.ess), facts, verdict, estimator)


def _limits(pair: PairMoments, values: Sequence[float], estimator: str, level: float) -> Limits:
    """Limits of the difference from sample size only.

    Args:
        pair: of the rows.
        values: of the target and the baseline under the estimator.
        estimator: "ips", "clipped_ips" or "snips".
        level: nominal coverage.
    """
    ours, value = pair.ours, values[0] - values[1]
    if estimator == "snips":
        return _limits_of_ratios(pair, level)
    products = pair.cut if estimator == "clipped_ips" else pair.means
    found = products.deviations((-value, 1.0), ours)
    return _plain(found, value, float(ours.rows), level, ours)


def _limits_of_ratios(pair: PairMoments, level: float) -> Limits:
    """Of the difference of two ratios: each user's w (r - v) / mean w, of the one less that of the other."""
    ours, theirs = pair.ours, pair.theirs
    n = ours.rows
    means = [m.sum("w") / n or 1.0 for m in (ours, theirs)]
    values = [m.sum("x") / n / mean for m, mean in zip((ours, theirs), means, strict=True)]
    one, other = (1.0 / mean for mean in means)
    # In numbers that are small where the policies are nearly the same: (w - b) r, b r, w - b and b.
    form = (one, one - other, -values[0] * one, values[1] * other - values[0] * one)
    return _plain(pair.ratio.deviations(form, ours), values[0] - values[1], float(n), level, ours)


def _plain(found: Deviations, value: float, scale: float, level: float, moments: Moments) -> Limits:
    """Limits on the plain scale: a difference has either sign."""
    low, high = found.limits(value, scale, level)
    return Limits(Interval(low, high, f"Student {unit(moments)}"), found.carrying, found.error(scale))


def _heavy_tail(pair: PairMoments, level: float) -> float:
    """As :func:`recsim_mnar.estimators.off_policy.limits.heavy_tail`, of the weights w - b."""
    ours, error = pair.ours, _limits_of_ratios(pair, level).error
    total = ours.sum("w")
    if total <= 0.0 or error <= 0.0 or ours.thinned:
        return 1.0
    value = ours.sum("x") / total
    spread = max(ours.sum("xr") - 2.0 * value * ours.sum("x") + value**2 * total, 0.0) / total
    apart = (0.0, 0.0, 1.0, 0.0)
    return math.sqrt(spread * max(pair.ratio.of(apart, apart), 0.0)) / ours.rows / error


def _value(moments: Moments, estimator: str) -> float:
    if estimator != "snips":
        return moments.sum("y") / moments.rows
    total = moments.sum("w")
    return moments.sum("x") / total if total > 0.0 else 0.0


def _joined(ours: Verdict, theirs: Verdict) -> Verdict:
    """The findings of both verdicts, each once, with the baseline's marked."""
    codes = {finding.code for finding in ours.findings if finding.level != "trust"}
    more = [
        Finding(f.code, f.severity, f.number, f"of the baseline, {f.message}", f.action)
        for f in theirs.findings
        if f.level != "trust" and f.code not in codes
    ]
    return ours.with_findings(more)
