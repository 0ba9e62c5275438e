"""How a policy's weights are distributed, gathered in a memory that does not grow with the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.columns import Floats

MOST_BINS = 40
"""Bins that a distribution has at most."""
_AN_OCTAVE = 32
"""Bins that numbers are counted in before they are joined."""


class RatioBins:
    """Counts whose memory does not grow with the numbers; those of two blocks are the same as of both at once."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def extend(self, positive: NDArray[np.float64]) -> None:
        """Count numbers (n,), all of them above 0 and finite."""
        places, counts = np.unique(np.floor(_AN_OCTAVE * np.log2(positive)).astype(np.int64), return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            self.counts[place] = self.counts.get(place, 0) + count

    def joined(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Edges (b + 1,) and counts (b,), neighbours put together until there are at most :data:`MOST_BINS`."""
        if not self.counts:
            return (), ()
        wide = -(-(max(self.counts) - min(self.counts) + 1) // (MOST_BINS - 1))
        first, last = min(self.counts) // wide, max(self.counts) // wide
        counts = [0] * (last - first + 1)
        for place, count in self.counts.items():
            counts[place // wide - first] += count
        edges = np.exp2(np.arange(first, last + 2) * (wide / _AN_OCTAVE))
        return tuple(edges.tolist()), tuple(counts)


@dataclass(frozen=True)
class WeightDistribution:
    """A policy's weights target / propensity, in numbers.

    Attributes:
        policy: whose.
        rows: number of weights.
        mean: should be 1.
        largest: the heaviest.
        effective: Kish's effective sample, (sum w)^2 / sum w^2; 0 where every weight is 0.
        zero: share of rows that the policy would not have shown.
        clipped: share of rows above the clip.
        mass_clipped: share of the weights' sum that the clip takes off.
        edges: (b + 1,) of the bins, in equal ratios; none where every weight is 0.
        counts: (b,) rows in them; rows of weight 0 are in none.
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
        """JSON types."""
        return {**vars(self), "edges": list(self.edges), "counts": list(self.counts)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> WeightDistribution:
        """Read the result of :meth:`to_dict`."""
        return WeightDistribution(**{**values, "edges": tuple(values["edges"]), "counts": tuple(values["counts"])})


class WeightTally:
    """Gathers weights from one block of rows after another, in a memory that does not grow with them.

    Args:
        clip: largest weight of the clipped estimators, None for none.
    """

    def __init__(self, clip: float | None = None) -> None:
        self.clip = np.inf if clip is None else clip
        self.rows = self.zeros = self.above = 0
        self.total = self.squares = self.off = self.largest = 0.0
        self.bins = RatioBins()

    def extend(self, weight: Floats) -> None:
        """Add weights (n,), none of them negative."""
        if not weight.size:
            return
        above = weight[weight > self.clip]
        positive = weight[weight > 0.0]
        self.rows += weight.size
        self.zeros += weight.size - positive.size
        self.above += above.size
        self.total += float(weight.sum())
        self.squares += float(weight @ weight)
        self.off += float((above - self.clip).sum()) if above.size else 0.0
        self.largest = max(self.largest, float(weight.max()))
        self.bins.extend(positive)

    def distribution(self, policy: str) -> WeightDistribution:
        """Of all weights so far, under a policy's name."""
        edges, counts = self.bins.joined()
        return WeightDistribution(
            policy,
            self.rows,
            self.total / max(self.rows, 1),
            self.largest,
            self.total**2 / self.squares if self.squares > 0.0 else 0.0,
            self.zeros / max(self.rows, 1),
            self.above / max(self.rows, 1),
            self.off / self.total if self.total > 0.0 else 0.0,
            edges,
            counts,
        )


def weight_distribution(policy: str, weight: Floats, clip: float | None = None) -> WeightDistribution:
    """The distribution of a policy's weights (n,), none of them negative.

    Args:
        policy: whose.
        weight: target / propensity of each row.
        clip: largest weight of the clipped estimators, None for none.
    """
    tally = WeightTally(clip)
    tally.extend(weight)
    return tally.distribution(policy)
