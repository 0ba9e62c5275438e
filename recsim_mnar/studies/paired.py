"""Shares, means and paired differences over catalogues, with their intervals, p-values and Holm's adjustment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recsim_mnar.estimators.intervals import Spread, positive_limits, small_sample_factor
from recsim_mnar.protocols.records import student_mean_interval, user_mean_interval

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
LEAST = 5
"""Catalogues from which on there are intervals over catalogues."""
BOUNDS = {"cost": 1.0, "tau": 2.0}
"""Largest difference possible of two shares of the best value, and of two rank correlations."""


class Share(TypedDict):
    """A proportion of catalogues, its Wilson interval, and the number of catalogues."""

    share: float
    low: float
    high: float
    count: int


class Mean(TypedDict):
    """A mean over catalogues and its interval, and the number with a value; None where there is none."""

    mean: float | None
    low: float | None
    high: float | None
    n: int


def share(hits: Sequence[bool], level: float = 0.95) -> Share:
    """Return a proportion and its Wilson interval."""
    from scipy.stats import binomtest

    n = len(hits)
    count = int(sum(hits))
    interval = binomtest(count, n).proportion_ci(level, method="wilson")
    return {"share": count / n, "low": float(interval.low), "high": float(interval.high), "count": count}


def mean(
    values: Iterable[float | None],
    level: float = 0.95,
    *,
    least: float | None = None,
    largest: float | None = None,
) -> Mean:
    """Return a mean over catalogues and its interval; values that are None are left out.

    Args:
        values: one per catalogue.
        level: nominal coverage.
        least: the least value possible. None for Student's interval, which knows no bounds.
        largest: the largest value possible. The interval never leaves what is possible; there is none below
            :data:`LEAST` values.
    """
    numbers = list(values)
    x = np.array([v for v in numbers if v is not None and math.isfinite(v)], float)
    if len(x) == 0:
        return {"mean": None, "low": None, "high": None, "n": 0}
    value = float(x.mean())
    if len(x) < LEAST:
        return {"mean": value, "low": None, "high": None, "n": len(x)}
    if least == 0.0:
        _, low, high = positive_mean_interval(np.maximum(x, 0.0), level)
        if largest is not None:
            high = min(high, largest)
    elif least is not None and largest is not None:
        _, low, high = ranged_mean_interval(x, level, least, largest)
    else:
        _, low, high = student_mean_interval(x, level)
    return {"mean": value, "low": low, "high": high, "n": len(x)}


def paired_table(pairs: pd.DataFrame, by: Sequence[str], bound: float, level: float) -> pd.DataFrame:
    """Compute mean differences, one row per group.

    The cells of a catalogue are no further evidence: their mean is one pair.

    Args:
        pairs: columns ``catalogue``, ``first`` and ``second``, and those of the groups.
        by: columns of the groups; one group of all where there is none.
        bound: largest absolute difference possible.
        level: of the intervals.
    """
    import pandas as pd

    if not by:
        pairs = pairs.assign(cells="all")
        by = ["cells"]
    rows = []
    for group, own_pairs in pairs.groupby(list(by), sort=False, dropna=False):
        names = dict(zip(by, group, strict=True))
        per_catalogue = own_pairs.groupby("catalogue", sort=False)[["first", "second"]].mean()
        rows.append({**names, **paired_difference(per_catalogue.to_numpy(np.float64), bound, level)})
    columns = [*by, "n", "n_above", "n_below", "difference", "low", "high", "p_t", "p_wilcoxon"]
    frame = pd.DataFrame(rows, columns=columns)
    for test in ("p_t", "p_wilcoxon"):
        frame[f"{test}_holm"] = holm(frame[test].to_numpy(np.float64))
    return frame


def steps_from_first(values: pd.DataFrame, factor: str) -> pd.DataFrame:
    """Pair each level of a factor with its first where all else is the same.

    Args:
        values: columns of a unit, and ``value``.
        factor: one of the columns.

    Returns:
        The same columns, the factor's as ``LEVEL - FIRST`` and ``value`` a difference; and ``first``, ``second``, its
        two sides.
    """
    import pandas as pd

    rest = [name for name in values.columns if name not in (factor, "value")]
    levels = list(dict.fromkeys(values[factor]))
    at_level = {level: values[values[factor] == level][[*rest, "value"]] for level in levels}
    base = at_level[levels[0]].rename(columns={"value": "second"})
    pairs = [
        at_level[level]
        .rename(columns={"value": "first"})
        .merge(base, on=rest)
        .assign(**{factor: f"{level} - {levels[0]}"})
        for level in levels[1:]
    ]
    if pairs:
        both = pd.concat(pairs)
    else:
        both = values.iloc[:0].assign(first=0.0, second=0.0)
    return both.assign(value=both["first"] - both["second"])


def paired_difference(pairs: Floats, bound: float, level: float) -> dict[str, float]:
    """Mean difference of pairs with its interval, and p-values of the paired t-test and of Wilcoxon's test.

    Args:
        pairs: (n, 2) numbers.
        bound: largest absolute difference possible.
        level: of the interval; there is none below :data:`LEAST` pairs.
    """
    from scipy import stats

    gaps = pairs[:, 0] - pairs[:, 1]
    numbers = {
        "n": len(gaps),
        "n_above": int((gaps > 0.0).sum()),
        "n_below": int((gaps < 0.0).sum()),
        "difference": float(gaps.mean()),
    }
    if len(gaps) < LEAST:
        return {**numbers, **dict.fromkeys(("low", "high", "p_t", "p_wilcoxon"), math.nan)}
    low, high = bounded_interval(gaps, bound, level)
    varied = bool(np.ptp(gaps) > 0.0)
    if varied:
        p_t = float(stats.ttest_1samp(gaps, 0.0).pvalue)
    else:
        p_t = float(np.all(gaps == 0.0))
    if np.any(gaps != 0.0):
        p_wilcoxon = float(stats.wilcoxon(gaps).pvalue)
    else:
        p_wilcoxon = 1.0
    return {**numbers, "low": low, "high": high, "p_t": p_t, "p_wilcoxon": p_wilcoxon}


def bounded_interval(gaps: Floats, bound: float, level: float) -> tuple[float, float]:
    """Interval of a mean of differences, within [-bound, bound]; NaN where nothing differs.

    The mean is that of the gains less that of the losses, each with its own interval of numbers that are not negative
    (:func:`positive_mean_interval`); the two are combined by the method of variance
    estimates recovery (Zou & Donner 2008), which follows the skewness of both. Student's interval covers less.
    """
    largest = float(np.abs(gaps).max())
    if largest == 0.0:
        return math.nan, math.nan
    # Where all gaps have one sign, one of the other sign may not have been met: of three standard deviations, and no
    # larger than the largest. With a smaller one, intervals of rare and large gaps cover less than they say.
    scale = min(3.0 * float(gaps.std(ddof=1)), largest) or largest
    gains = np.maximum(gaps, 0.0) / scale
    losses = np.maximum(-gaps, 0.0) / scale
    gain, gain_low, gain_high = positive_mean_interval(gains, level)
    loss, loss_low, loss_high = positive_mean_interval(losses, level)
    spread = float(gains.std() * losses.std())
    if spread > 0.0:
        correlation = float(np.mean((gains - gain) * (losses - loss))) / spread
    else:
        correlation = 0.0
    below = _recovered(gain - gain_low, loss_high - loss, correlation)
    above = _recovered(gain_high - gain, loss - loss_low, correlation)
    return max(scale * (gain - loss - below), -bound), min(scale * (gain - loss + above), bound)


def _recovered(first: float, second: float, correlation: float) -> float:
    """Distance of a difference's limit from the difference, from those of its two parts."""
    return math.sqrt(max(first**2 + second**2 - 2.0 * correlation * first * second, 0.0))


def holm(p_values: Floats) -> Floats:
    """Adjust p-values over their family (Holm 1979); NaN stays NaN and is not counted."""
    adjusted = np.full(len(p_values), math.nan)
    present = np.flatnonzero(~np.isnan(p_values))
    order = present[np.argsort(p_values[present])]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return adjusted


def positive_mean_interval(values: ArrayLike, level: float) -> tuple[float, float, float]:
    """Mean of independent numbers that are not negative (costs over catalogues), and an interval with no negative end.

    The gamma limits of :func:`recsim_mnar.estimators.intervals.positive_limits`, with Student's quantile for few
    values. A sum of Poisson counts of parts of size c has variance c times its mean; one more part of the size that the
    values have by that rule, variance over mean, is added for the upper end (of size 1 where all are 0), and as much is
    taken away for the lower. Values that are nearly alike have small parts, and an interval near Student's.

    Args:
        values: (n,) numbers, none of them negative.
        level: nominal coverage.

    Returns:
        value, low, high; the interval is [0, inf) for fewer than two values.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    if n == 0:
        return math.nan, 0.0, math.inf
    value = float(x.mean())
    if n == 1:
        return value, 0.0, math.inf
    variance = float(x.var()) / n * small_sample_factor(n, level)
    if value > 0.0:
        step = float(x.var(ddof=1)) / value
    else:
        step = 1.0
    return value, *positive_limits(value, Spread(variance, 0.0, step / n, min(step, value) / n), level)


def ranged_mean_interval(values: ArrayLike, level: float, least: float, largest: float) -> tuple[float, float, float]:
    """Mean of independent numbers in [least, largest], and an interval within: :func:`user_mean_interval`, moved.

    Args:
        values: (n,) numbers; what roundings put outside the range is moved into it.
        level: nominal coverage.
        least: the least value possible.
        largest: the largest.
    """
    width = largest - least
    y = np.clip((np.asarray(values, dtype=np.float64) - least) / width, 0.0, 1.0)
    value, low, high = user_mean_interval(y, level)
    return least + width * value, least + width * low, least + width * high
