"""Paired differences over catalogues: means with bounded intervals, p-values, and Holm's adjustment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
LEAST = 5
"""Catalogues from which on there are intervals over catalogues."""
BOUNDS = {"cost": 1.0, "tau": 2.0}
"""Largest difference possible of two shares of the best value, and of two rank correlations."""


def paired_table(pairs: pd.DataFrame, by: Sequence[str], bound: float, level: float) -> pd.DataFrame:
    """Compute mean differences, one row per group.

    The cells of a catalogue are no further evidence: their mean is one pair.

    Args:
        pairs: columns ``catalogue``, ``first`` and ``second``, and those of the groups.
        by: columns of the groups.
        bound: largest absolute difference possible.
        level: of the intervals.
    """
    import pandas as pd

    rows = []
    for group, own in pairs.groupby(list(by), sort=False, dropna=False):
        names = dict(zip(by, group, strict=True))
        per_catalogue = own.groupby("catalogue", sort=False)[["first", "second"]].mean()
        rows.append({**names, **paired_difference(per_catalogue.to_numpy(np.float64), bound, level)})
    columns = [*by, "n", "n_above", "n_below", "difference", "low", "high", "p_t", "p_wilcoxon"]
    frame = pd.DataFrame(rows, columns=columns)
    for test in ("p_t", "p_wilcoxon"):
        frame[f"{test}_holm"] = holm(frame[test].to_numpy(np.float64))
    return frame


def paired_difference(pairs: Floats, bound: float, level: float) -> dict[str, float]:
    """Mean difference of pairs with its interval, and p-values of the paired t-test and of Wilcoxon's test.

    Args:
        pairs: (n, 2) numbers.
        bound: largest absolute difference possible.
        level: of the interval; there is none below :data:`LEAST` pairs.
    """
    from scipy import stats

    gaps = pairs[:, 0] - pairs[:, 1]
    found = {
        "n": len(gaps),
        "n_above": int((gaps > 0.0).sum()),
        "n_below": int((gaps < 0.0).sum()),
        "difference": float(gaps.mean()),
    }
    if len(gaps) < LEAST:
        return {**found, **dict.fromkeys(("low", "high", "p_t", "p_wilcoxon"), math.nan)}
    low, high = bounded_interval(gaps, bound, level)
    varied = bool(np.ptp(gaps) > 0.0)
    p_t = float(stats.ttest_1samp(gaps, 0.0).pvalue) if varied else float(np.all(gaps == 0.0))
    p_wilcoxon = float(stats.wilcoxon(gaps).pvalue) if np.any(gaps != 0.0) else 1.0
    return {**found, "low": low, "high": high, "p_t": p_t, "p_wilcoxon": p_wilcoxon}


def bounded_interval(gaps: Floats, bound: float, level: float) -> tuple[float, float]:
    """Interval of a mean of differences, within [-bound, bound]; NaN where nothing differs.

    The mean is that of the gains less that of the losses, each with its own interval of numbers that are not negative
    (:func:`recsim_mnar.estimators.intervals.positive_mean_interval`); the two are combined by the method of variance
    estimates recovery (Zou & Donner 2008), which follows the skewness of both. Student's interval covers less.
    """
    from recsim_mnar.estimators.intervals import positive_mean_interval

    largest = float(np.abs(gaps).max())
    if largest == 0.0:
        return math.nan, math.nan
    # Where all gaps have one sign, one of the other sign may not have been met: of three standard deviations, and no
    # larger than the largest. With a smaller one, intervals of rare and large gaps cover less than they say.
    scale = min(3.0 * float(gaps.std(ddof=1)), largest) or largest
    gains, losses = np.maximum(gaps, 0.0) / scale, np.maximum(-gaps, 0.0) / scale
    gain, gain_low, gain_high = positive_mean_interval(gains, level)
    loss, loss_low, loss_high = positive_mean_interval(losses, level)
    spread = float(gains.std() * losses.std())
    correlation = float(np.mean((gains - gain) * (losses - loss))) / spread if spread > 0.0 else 0.0
    below = _recovered(gain - gain_low, loss_high - loss, correlation)
    above = _recovered(gain_high - gain, loss - loss_low, correlation)
    return max(scale * (gain - loss - below), -bound), min(scale * (gain - loss + above), bound)


def _recovered(first: float, second: float, correlation: float) -> float:
    """Distance of a difference's limit from the difference, from those of its two parts."""
    return math.sqrt(max(first**2 + second**2 - 2.0 * correlation * first * second, 0.0))


def holm(p_values: Floats) -> Floats:
    """Adjust p-values over their family (Holm 1979); NaN stays NaN and is not counted."""
    adjusted = np.full(len(p_values), math.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known])]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return adjusted
