"""Summarise importance weights, their tolerance to errors, and whether segments depend on what was recommended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Floats

MOST_BINS = 40
"""Largest number of bins of a distribution."""
_PER_OCTAVE = 32
"""Number of fine bins per factor of 2, in which numbers are counted before bins are merged."""


class RatioBins:
    """Histogram with bins whose edges have equal ratios; counts do not depend on the blocks in which numbers arrive."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def extend(self, positive: NDArray[np.float64]) -> None:
        """Count numbers (n,), all of them above 0 and finite."""
        fine_bins = np.floor(_PER_OCTAVE * np.log2(positive)).astype(np.int64)
        used_bins, counts = np.unique(fine_bins, return_counts=True)
        for fine_bin, count in zip(used_bins.tolist(), counts.tolist(), strict=True):
            self.counts[fine_bin] = self.counts.get(fine_bin, 0) + count

    def merged(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Merge neighbouring fine bins, so that at most :data:`MOST_BINS` remain.

        Returns:
            (b + 1,) edges of the bins.
            (b,) counts. Both are empty without numbers.
        """
        if not self.counts:
            return (), ()
        # Fine bins per merged bin, by a division that rounds up. One bin is spare: the first merged bin may start
        # before the data.
        width = -(-(max(self.counts) - min(self.counts) + 1) // (MOST_BINS - 1))
        first = min(self.counts) // width
        last = max(self.counts) // width
        counts = [0] * (last - first + 1)
        for fine_bin, count in self.counts.items():
            counts[fine_bin // width - first] += count
        edges = np.exp2(np.arange(first, last + 2) * (width / _PER_OCTAVE))
        return tuple(edges.tolist()), tuple(counts)


@dataclass(frozen=True)
class WeightDistribution:
    """Distribution of a policy's importance weights target / propensity.

    Attributes:
        policy: name of the policy.
        rows: number of weights.
        mean: mean weight, which should be 1.
        largest: largest weight.
        effective: Kish's effective sample size, (sum w)^2 / sum w^2; 0 if every weight is 0.
        zero: share of rows with weight 0.
        clipped: share of rows with a weight above the clip.
        mass_clipped: share of the sum of weights that clipping removes.
        edges: (b + 1,) edges of the bins, in equal ratios; empty if every weight is 0.
        counts: (b,) number of rows per bin; rows with weight 0 are in no bin.
    """

    policy: str
    rows: int
    mean: float
    largest: float
    effective: float
    zero: float
    clipped: float
    mass_clipped: float
    edges: tuple[float, ...]
    counts: tuple[int, ...]

    def to_dict(self) -> dict[str, object]:
        """Convert to JSON types."""
        return {**vars(self), "edges": list(self.edges), "counts": list(self.counts)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> WeightDistribution:
        """Read the result of :meth:`to_dict`."""
        return WeightDistribution(**{**values, "edges": tuple(values["edges"]), "counts": tuple(values["counts"])})


class WeightTally:
    """Accumulator of the distribution of weights, block by block and in constant memory.

    Args:
        clip: largest weight of the clipped estimators; None for no clipping.
    """

    def __init__(self, clip: float | None = None) -> None:
        if clip is None:
            self.clip = np.inf
        else:
            self.clip = clip
        self.rows = self.zeros = self.rows_clipped = 0
        self.total = self.squares = self.total_clipped = self.largest = 0.0
        self.bins = RatioBins()

    def extend(self, weight: Floats) -> None:
        """Add weights (n,), none of them negative."""
        if not weight.size:
            return
        above = weight[weight > self.clip]
        positive = weight[weight > 0.0]
        self.rows += weight.size
        self.zeros += weight.size - positive.size
        self.rows_clipped += above.size
        self.total += float(weight.sum())
        self.squares += float(weight @ weight)
        if above.size:
            self.total_clipped += float((above - self.clip).sum())
        self.largest = max(self.largest, float(weight.max()))
        self.bins.extend(positive)

    def distribution(self, policy: str) -> WeightDistribution:
        """Return the distribution of all weights so far, for the policy of this name."""
        edges, counts = self.bins.merged()
        rows = max(self.rows, 1)
        return WeightDistribution(
            policy=policy,
            rows=self.rows,
            mean=self.total / rows,
            largest=self.largest,
            effective=self.total**2 / self.squares if self.squares > 0.0 else 0.0,
            zero=self.zeros / rows,
            clipped=self.rows_clipped / rows,
            mass_clipped=self.total_clipped / self.total if self.total > 0.0 else 0.0,
            edges=edges,
            counts=counts,
        )


def weight_distribution(policy: str, weight: Floats, clip: float | None = None) -> WeightDistribution:
    """Compute the distribution of a policy's weights.

    Args:
        policy: name of the policy.
        weight: (n,) weight target / propensity of each row.
        clip: largest weight of the clipped estimators; None for no clipping.
    """
    tally = WeightTally(clip)
    tally.extend(weight)
    return tally.distribution(policy)


def propensity_tolerance(end: float, today: float) -> float:
    """Compute the factor by which propensities may be wrong before a difference from today's value may be 0.

    This holds for ``snips`` with rewards of 0 and 1. If each propensity is wrong by a factor of at most G, either way,
    so is each weight, and the odds of the self-normalised mean change by a factor of at most G^2. So the tolerated
    factor is the square root of the ratio of the two odds.

    Args:
        end: end of the policy's interval that is nearer to today's value: the lower one if the policy is better, the
            upper one if it is worse.
        today: mean reward of the log, in [0, 1].

    Returns:
        The factor, at least 1; inf if ``end`` or ``today`` is 0 or 1 and they are not equal.

    Raises:
        UserError: a value outside [0, 1].
    """
    for value, name in ((end, "end"), (today, "today")):
        if not 0.0 <= value <= 1.0:
            raise UserError(f"{name} must be in [0, 1], the mean of 0/1 rewards, got {value!r}")
    if end == today:
        return 1.0
    high = max(end, today)
    low = min(end, today)
    denominator = low * (1.0 - high)
    if denominator > 0.0:
        return math.sqrt(high * (1.0 - low) / denominator)
    return math.inf


def weight_tolerance(
    reward: Floats, propensity: Floats, target: Floats, *, today: float, half_width: float, worse: bool = False
) -> float:
    """Compute the factor of :func:`propensity_tolerance` for rewards that may be any real numbers.

    If each weight w may be multiplied by any g in [1/G, G], the smallest self-normalised value
    sum(g w r) / sum(g w) is the v for which the minimum over g of sum(g w (r - v)) is 0. There g is G for rewards below
    v and 1/G above (Zhao, Small & Bhattacharya 2019, who sort the rewards to find v for a given G). The G for a given v
    needs no sorting: it is the square root of sum w (r - v)+ over sum w (v - r)+. The half width of the interval is
    taken to be independent of G, so v is today's value plus the half width.

    Args:
        reward: (n,) any real numbers.
        propensity: (n,) in (0, 1].
        target: (n,) in [0, 1].
        today: mean reward of the log.
        half_width: distance from the policy's value to the end of its interval that is nearer to today's value.
        worse: whether the policy is worse than today's; then the largest value is compared with today's.

    Returns:
        The factor, at least 1: 1 if the interval includes today's value, inf if no factor makes it do so.
    """
    gain, loss = weight_excess(reward, propensity, target, today=today, half_width=half_width, worse=worse)
    return tolerance_of(gain, loss)


def weight_excess(
    r: Floats, p: Floats, t: Floats, *, today: float, half_width: float, worse: bool
) -> tuple[float, float]:
    """Compute the two sums that :func:`tolerance_of` needs; those of several blocks of rows add up.

    Args:
        r: (n,) rewards.
        p: (n,) propensities.
        t: (n,) the target's probabilities of the logged actions.
        today: mean reward of the log.
        half_width: distance from the policy's value to the end of its interval that is nearer to today's value.
        worse: whether the policy is worse than today's; then rewards count with the opposite sign.

    Returns:
        The sum over rows of w (r - v)+, where v is today's value plus the half width.
        The sum over rows of w (v - r)+.
    """
    sign = -1.0 if worse else 1.0  # a loss with opposite rewards is a gain
    excess = (t / p) * (sign * (r - today) - half_width)
    return float(np.sum(np.maximum(excess, 0.0))), float(np.sum(np.maximum(-excess, 0.0)))


def tolerance_of(gain: float, loss: float) -> float:
    """Compute the tolerated factor of :func:`weight_tolerance` from the two sums of :func:`weight_excess`."""
    if gain <= loss:
        return 1.0
    if loss > 0.0:
        return math.sqrt(gain / loss)
    return math.inf
