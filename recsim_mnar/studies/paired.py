"""Shares, means and paired differences over catalogues, with their intervals, p-values and Holm's adjustment."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recsim_mnar.estimators.intervals import (
    Spread,
    bounded_mean_limits,
    positive_limits,
    small_sample_factor,
    student_mean_interval,
    user_mean_interval,
)

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
LEAST = 5
"""Smallest number of catalogues for which intervals over catalogues are computed."""
BOUNDS = {"cost": 1.0, "tau": 2.0}
"""Largest possible difference of two costs (shares of the best value) and of two rank correlations."""


class Share(TypedDict):
    """Proportion of catalogues.

    Attributes:
        share: the proportion.
        low, high: Wilson's interval.
        count: number of catalogues that count, the proportion's numerator.
    """

    share: float
    low: float
    high: float
    count: int


class Mean(TypedDict):
    """Mean over catalogues.

    Attributes:
        mean: the mean; None without values.
        low, high: interval of the mean; None for fewer than :data:`LEAST` values.
        n: number of catalogues with a value.
    """

    mean: float | None
    low: float | None
    high: float | None
    n: int


def share(hits: Sequence[bool], level: float = 0.95) -> Share:
    """Return the proportion of True among at least one value, with Wilson's interval of nominal coverage ``level``."""
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
    """Return a mean over catalogues with its interval, which stays within the possible range of values.

    Args:
        values: one value per catalogue; None and infinite values are left out.
        level: nominal coverage of the interval.
        least: least possible value: 0 for losses, another number, together with ``largest``, for rank correlations;
            None for Student's interval.
        largest: largest possible value. With a ``least`` of 0 the interval then holds for any distribution of losses
            (:func:`recsim_mnar.estimators.intervals.bounded_mean_limits`). None for a skewed interval, which supposes
            that no loss is much larger than those seen.
    """
    numbers = list(values)
    x = np.array([v for v in numbers if v is not None and math.isfinite(v)], float)
    if len(x) == 0:
        return {"mean": None, "low": None, "high": None, "n": 0}
    value = float(x.mean())
    if len(x) < LEAST:
        return {"mean": value, "low": None, "high": None, "n": len(x)}
    if least == 0.0 and largest is not None:
        low, high = bounded_mean_limits(x, least, largest, level)
    elif least == 0.0:
        _, low, high = positive_mean_interval(np.maximum(x, 0.0), level)
    elif least is not None and largest is not None:
        _, low, high = ranged_mean_interval(x, level, least, largest)
    else:
        _, low, high = student_mean_interval(x, level)
    return {"mean": value, "low": low, "high": high, "n": len(x)}


def paired_table(pairs: pd.DataFrame, by: Sequence[str], bound: float, level: float) -> pd.DataFrame:
    """Compute the mean paired difference of each group, with tests adjusted over the groups.

    Cells of one catalogue are not independent: their mean is one pair.

    Args:
        pairs: columns ``catalogue``, ``first`` and ``second``, and those that define the groups.
        by: columns that define the groups; without any, all pairs are one group.
        bound: largest possible absolute difference.
        level: nominal coverage of the intervals.

    Returns:
        One row per group: the columns ``by``, the numbers of :func:`paired_difference`, and both p-values adjusted
        (Holm).
    """
    import pandas as pd

    if not by:
        pairs = pairs.assign(cells="all")
        by = ["cells"]
    rows = []
    for group, pairs_of_group in pairs.groupby(list(by), sort=False, dropna=False):
        names = dict(zip(by, group, strict=True))
        per_catalogue = pairs_of_group.groupby("catalogue", sort=False)[["first", "second"]].mean()
        rows.append({**names, **paired_difference(per_catalogue.to_numpy(np.float64), bound, level)})
    columns = [*by, "n", "n_above", "n_below", "difference", "low", "high", "p_t", "p_wilcoxon"]
    frame = pd.DataFrame(rows, columns=columns)
    for test in ("p_t", "p_wilcoxon"):
        frame[f"{test}_holm"] = holm(frame[test].to_numpy(np.float64))
    return frame


def steps_from_first(values: pd.DataFrame, factor: str) -> pd.DataFrame:
    """Pair the values at each further level of a factor with those at its first level, all else being the same.

    Args:
        values: column ``value``, and columns that identify it, among them the factor.
        factor: name of the factor.

    Returns:
        One row per pair, with the same columns: the factor's is the text ``LEVEL - FIRST LEVEL``, and ``value`` is
        ``first`` - ``second``, two further columns: the values at the level and at the first level.
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
    """Compute the mean difference of pairs, with an interval and two tests.

    Args:
        pairs: (n, 2) numbers.
        bound: largest possible absolute difference.
        level: nominal coverage of the interval.

    Returns:
        ``n``, the numbers of positive (``n_above``) and negative (``n_below``) differences, ``difference``, ``low`` and
        ``high``, and the p-values ``p_t`` (paired t-test) and ``p_wilcoxon``; interval and p-values are NaN for fewer
        than :data:`LEAST` pairs.
    """
    from scipy import stats

    differences = pairs[:, 0] - pairs[:, 1]
    numbers = {
        "n": len(differences),
        "n_above": int((differences > 0.0).sum()),
        "n_below": int((differences < 0.0).sum()),
        "difference": float(differences.mean()),
    }
    if len(differences) < LEAST:
        return {**numbers, **dict.fromkeys(("low", "high", "p_t", "p_wilcoxon"), math.nan)}
    low, high = bounded_interval(differences, bound, level)
    if np.ptp(differences) > 0.0:
        p_t = float(stats.ttest_1samp(differences, 0.0).pvalue)
    else:  # constant differences have no standard error: 1 if they are all 0, else 0
        p_t = float(np.all(differences == 0.0))
    if np.any(differences != 0.0):
        p_wilcoxon = float(stats.wilcoxon(differences).pvalue)
    else:
        p_wilcoxon = 1.0
    return {**numbers, "low": low, "high": high, "p_t": p_t, "p_wilcoxon": p_wilcoxon}


def bounded_interval(differences: Floats, bound: float, level: float) -> tuple[float, float]:
    """Return an interval of the mean of bounded differences.

    The mean is that of the gains (positive parts) less that of the losses (negative parts). Each has its own interval
    for non-negative numbers (:func:`positive_mean_interval`); the two are combined by the method of variance estimates
    recovery (Zou & Donner 2008), which keeps the skewness of both. Student's interval covers less than its level.

    Args:
        differences: (n,) differences.
        bound: largest possible absolute difference.
        level: nominal coverage.

    Returns:
        low, high: ends within [-bound, bound]; NaN if all differences are 0.
    """
    largest = float(np.abs(differences).max())
    if largest == 0.0:
        return math.nan, math.nan
    # Where all differences have one sign, the interval of the other part assumes one unseen value of the size
    # ``scale``: three standard deviations, but no larger than the largest difference. With a smaller one, intervals of
    # rare and large differences cover less than their level.
    scale = min(3.0 * float(differences.std(ddof=1)), largest)
    if scale == 0.0:  # all differences are the same
        scale = largest
    gains = np.maximum(differences, 0.0) / scale
    losses = np.maximum(-differences, 0.0) / scale
    gain, gain_low, gain_high = positive_mean_interval(gains, level)
    loss, loss_low, loss_high = positive_mean_interval(losses, level)
    spread = float(gains.std() * losses.std())
    if spread > 0.0:
        correlation = float(np.mean((gains - gain) * (losses - loss))) / spread
    else:
        correlation = 0.0
    below = _distance_of_limit(gain - gain_low, loss_high - loss, correlation)
    above = _distance_of_limit(gain_high - gain, loss - loss_low, correlation)
    return max(scale * (gain - loss - below), -bound), min(scale * (gain - loss + above), bound)


def _distance_of_limit(first: float, second: float, correlation: float) -> float:
    """Return the distance of a difference's limit from the difference (Zou & Donner 2008).

    Args:
        first: distance of the minuend's limit from the minuend.
        second: distance of the subtrahend's opposite limit from the subtrahend.
        correlation: correlation of the two parts.
    """
    return math.sqrt(max(first**2 + second**2 - 2.0 * correlation * first * second, 0.0))


def holm(p_values: Floats) -> Floats:
    """Adjust p-values (n,) for their number by Holm's step-down method (1979); NaN stays NaN and is not counted."""
    adjusted = np.full(len(p_values), math.nan)
    present = np.flatnonzero(~np.isnan(p_values))
    order = present[np.argsort(p_values[present])]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return adjusted


def positive_mean_interval(values: ArrayLike, level: float) -> tuple[float, float, float]:
    """Return the mean of independent non-negative numbers, such as costs over catalogues, with a skewed interval.

    The ends are gamma limits (:func:`recsim_mnar.estimators.intervals.positive_limits`), with Student's quantile for
    few values. As in exact limits of a Poisson mean, one more event is assumed for the upper end and one less for the
    lower end. The size of an event is variance over mean, as if the numbers were sums of a Poisson number of events of
    equal size; it is 1 where all numbers are 0. Nearly equal numbers have small events, and nearly Student's interval.

    Args:
        values: (n,) non-negative numbers, two or more.
        level: nominal coverage.

    Returns:
        mean, low, high.
    """
    x = np.asarray(values, dtype=np.float64)
    n = len(x)
    value = float(x.mean())
    variance = float(x.var()) / n * small_sample_factor(n, level)
    if value > 0.0:
        event_size = float(x.var(ddof=1)) / value
    else:
        event_size = 1.0
    # The event that is missing at the lower end is no larger than the mean itself.
    spread = Spread(variance, 0.0, event_size / n, min(event_size, value) / n)
    return value, *positive_limits(value, spread, level)


def ranged_mean_interval(values: ArrayLike, level: float, least: float, largest: float) -> tuple[float, float, float]:
    """Return the mean of independent bounded numbers, with an interval within the bounds.

    Numbers are mapped to [0, 1], as :func:`recsim_mnar.estimators.intervals.user_mean_interval` requires.

    Args:
        values: (n,) numbers; those that rounding puts outside the range count as its ends.
        level: nominal coverage.
        least: least possible value.
        largest: largest possible value.

    Returns:
        mean, low, high.
    """
    width = largest - least
    y = np.clip((np.asarray(values, dtype=np.float64) - least) / width, 0.0, 1.0)
    value, low, high = user_mean_interval(y, level)
    return least + width * value, least + width * low, least + width * high
