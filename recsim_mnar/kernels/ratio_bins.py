"""Positive numbers counted in bins of equal ratio, one block after another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
