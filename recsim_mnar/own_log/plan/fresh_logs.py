"""Logs such as a pilot's users would make again, of any size, as `estimate` judges them.

The pilot's users are dealt into parts. A fresh log of m times its rows meets each part a Poisson number of times of
mean m (a bootstrap by user, for other sizes): its moments are sums over parts, whatever its size, and the same function
judges them. Draws are addressed by part and log and used at every size, so that a log grows where m does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.off_policy.moments import Moments, Shards
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.log.columns import Clusters, Floats
from recsim_mnar.rng import Stream, derive_seed, uniforms

PARTS = 400
"""A variance over so many has a relative error of 7 %."""
LOGS = 64
"""Fresh logs of a size: a half of them is known to 6 points."""
AGAIN = 100
"""Pilots that are drawn from the pilot, for what it leaves open."""
LEAST, MOST = 1.0 / 16.0, 1024.0
"""Sizes that are looked at, in times the pilot's rows."""
_STEPS = 7
"""Fourfold steps between the two."""
_TILTS = 12
_FEW = 30
"""Parts below which the mean weight is no control."""


@functools.cache
def _seed() -> int:
    return derive_seed(0, "plan/estimate")


def dealt(rows: int, clusters: Clusters | None) -> list[NDArray[np.int64]]:
    """Rows of each part: users (rows without users) in a random order that depends on nothing but their number."""
    codes, number = (np.arange(rows), rows) if clusters is None else clusters.dense()
    order = np.argsort(uniforms(_seed(), Stream.SAMPLE, np.arange(number), 0), kind="stable")
    part = np.empty(number, np.int64)
    part[order] = np.arange(number) % PARTS
    by_part = np.argsort(part[codes], kind="stable")
    edges = np.cumsum(np.bincount(part[codes], minlength=min(number, PARTS)))
    return np.split(by_part, edges[:-1])


@dataclass(frozen=True)
class FreshLogs:
    """Fresh logs of a pilot.

    Attributes:
        shards: moments of the pilot's parts.
        judge: from moments to an estimate with its verdict.
        off: (parts,) by how much the weights sum to more than there are rows. The mean weight must be 1, so users are
            weighted so that it is; None where that it is not is no chance.
    """

    shards: Shards
    judge: Callable[[Moments], Estimate]
    off: Floats | None

    def logs(self, factor: float) -> list[Estimate]:
        """:data:`LOGS` fresh logs of so many times the rows."""
        met = poisson(factor, self._uniforms(0, LOGS))
        rates = self.rates(np.ones(met.shape[1]))
        return [self.judge(self.shards.met(_of_mean(times * rates, factor))) for times in met if times.any()]

    def expected(self, factor: float, rates: Floats) -> Estimate:
        """A log of so many times the rows in which nothing is chance, and parts are met in proportion to ``rates``."""
        return self.judge(self.shards.met(_of_mean(rates, factor)))

    def pilots(self) -> Floats:
        """(AGAIN, parts) how often pilots like this one meet each part."""
        return poisson(1.0, self._uniforms(LOGS, AGAIN))

    def _uniforms(self, first: int, number: int) -> Floats:
        return _table(first, number, len(self.shards.parts))

    def rates(self, pilot: Floats) -> Floats:
        """(parts,) how often a pilot met each part, tilted by exp(-t off) so that the mean weight is 1.

        The t is found by Newton's steps on a convex function, none of which changes a part's rate more than e times.
        """
        off = self.off
        if off is None or len(pilot) < _FEW or not (off[pilot > 0.0].min() < 0.0 < off[pilot > 0.0].max()):
            return pilot
        rates, bound = pilot, 1.0 / float(np.abs(off).max())
        for _ in range(_TILTS):
            mean = np.average(off, weights=rates)
            spread = np.average((off - mean) ** 2, weights=rates)
            rates = rates * np.exp(-off * np.clip(mean / spread, -bound, bound))
        return rates


@functools.lru_cache(maxsize=4)
def _table(first: int, number: int, parts: int) -> Floats:
    users, logs = np.meshgrid(np.arange(parts), first + np.arange(number))
    return uniforms(_seed(), Stream.BOOTSTRAP, users.ravel(), logs.ravel()).reshape(number, parts)


def _of_mean(times: Floats, mean: float) -> Floats:
    return times * (mean / times.mean())


def poisson(mean: float, uniform: Floats) -> Floats:
    """Poisson numbers of a mean by inversion: they rise with it for the same uniforms."""
    from scipy.special import pdtr

    most = math.ceil(mean + 12.0 * math.sqrt(mean) + 12.0)
    return np.searchsorted(pdtr(np.arange(most), mean), uniform, side="right").astype(np.float64)


def from_then_on(holds: Callable[[float], bool]) -> float:
    """The size from which on something holds, to 2 %; inf where it does not at :data:`MOST`, else at least LEAST."""
    sizes = LEAST * (MOST / LEAST) ** (np.arange(_STEPS + 1) / _STEPS)
    held = _STEPS + 1
    while held > 0 and holds(float(sizes[held - 1])):
        held -= 1
    if held in (0, _STEPS + 1):
        return LEAST if held == 0 else math.inf
    low, high = float(sizes[held - 1]), float(sizes[held])
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
