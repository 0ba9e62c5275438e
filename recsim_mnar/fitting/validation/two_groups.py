"""Two groups of users and how far apart they are: as they were found, and divided by chance.

A statistic is a sum over each user's rows, so that a group's is a sum over its users, and every other way to divide the
same users costs one product of matrices. Users are what is exchanged: their rows depend on each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.rng import Stream, derive_seed, uniforms

Floats = NDArray[np.float64]

CUMULATIVE, SHARES, SCALED, STANDARD = "cumulative", "shares", "scaled", "standard"
_CELLS = 1 << 23
"""Numbers held at once while groups are summed: 64 MB of float64."""
_PICTURED = 60


@dataclass(frozen=True)
class Columns:
    """Columns of each user's own, whose sums over a group are all that a statistic needs; U users.

    Attributes:
        sums: (U, k) sums over each user's rows; an array or a scipy sparse array.
        values: their reduction, from sums of groups (P, k) to values (P, v).
        distance: :data:`CUMULATIVE`: largest gap between cumulative shares; :data:`SHARES`: half the sum of their
            absolute differences, tested by the sum of (a - b)^2 / (a + b); :data:`SCALED`: differences relative to the
            values, root mean square with each value's precision as its weight, tested in the metric of their
            covariance (Hotelling); :data:`STANDARD`: the same, but of values in standard deviations, as they are.
        headline: from sums (P, k) to one telling number (P,).
        entries: names of the values.
        axis: what the entries are.
        features: (U,) each, by name: what a classifier is shown of users.
    """

    sums: Any
    values: Callable[[Floats], Floats]
    distance: str
    headline: Callable[[Floats], Floats]
    entries: list[str]
    axis: str
    features: Mapping[str, Floats]


@dataclass
class Groups:
    """Users in order: known to a world that was fitted on them, held out, and simulated.

    Attributes:
        n_known, n_held, n_simulated: users; none are known to a world that was not fitted on the log.
        seed: of all divisions.
        allowance: the variance of a difference between held-out and simulated users where the world carries the error
            of the users it was fitted on, over that where it carries none.
        draws: divisions by chance.
    """

    n_known: int
    n_held: int
    n_simulated: int
    seed: int
    allowance: float = 1.0
    draws: int = 999

    @functools.cached_property
    def permuted(self) -> Floats:
        """(draws + 1, n_held + n_simulated) 1 for users of the first group, else 0; first row: the held-out users."""
        n = self.n_held + self.n_simulated
        found = np.zeros((self.draws + 1, n))
        found[0, : self.n_held] = 1.0
        seed = derive_seed(self.seed, "permutations")
        for row in range(1, self.draws + 1):
            drawn = uniforms(seed, Stream.PROTOCOL, np.arange(n), row)
            found[row, np.argpartition(drawn, self.n_held - 1)[: self.n_held]] = 1.0
        return found


def compared(c: Columns, groups: Groups) -> dict[str, Any]:
    """Simulated users held against held-out ones, and both against the same users divided by chance.

    Returns:
        ``real`` and ``simulated`` headlines; their ``distance``; its median (``chance``) and .95 quantile (``visible``)
        over divisions by chance; ``p``, the share of divisions as far apart, the one found among them; a ``picture``:
        entries, real, simulated, and the range that chance gives the real ones (.05 to .95); JSON types.
    """
    tested = c.sums[groups.n_known :]
    total = _sum(np.ones((1, tested.shape[0])), tested)
    weights, inverse = _metric(c, groups, tested, total)
    kept = np.zeros(0, np.int64)
    blocks: list[tuple[Floats, Floats, Floats]] = []
    for a, b in _pairs(c, groups, tested, total):
        kept = kept if len(kept) else _pictured(c, a[0], b[0])
        blocks.append((*_apart(c.distance, a, b, weights, inverse), a[:, kept]))
    test, distance, values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    limit = test[0] / groups.allowance ** (0.5 if c.distance == CUMULATIVE else 1.0)
    held = _sum(groups.permuted[:1], tested)
    low, high = values[0] + np.quantile(values[1:] - values[1:].mean(axis=0), (0.05, 0.95), axis=0)
    return {
        "real": float(c.headline(held)[0]), "simulated": float(c.headline(total - held)[0]),
        "distance": float(distance[0]), "chance": float(np.median(distance[1:])),
        "visible": float(np.quantile(distance[1:], 0.95)),
        "p": (1 + int(np.sum(test[1:] >= limit * (1 - 1e-12)))) / len(test),
        "picture": {"kind": c.distance, "axis": c.axis, "entries": [c.entries[i] for i in kept],
                    "real": values[0].tolist(), "simulated": c.values(total - held)[0, kept].tolist(),
                    "low": low.tolist(), "high": high.tolist()},
    }  # fmt: skip


def _sum(labels: NDArray[Any], sums: Any) -> Floats:
    """(P, k) sums over the users of each group."""
    return np.asarray((sums.T @ np.asarray(labels, np.float64).T).T, np.float64)


def _pairs(c: Columns, groups: Groups, tested: Any, total: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Values of both groups, block by block of divisions."""
    step = max(1, _CELLS // (8 * max(tested.shape[1], 1)))
    for begin in range(0, groups.draws + 1, step):
        first = _sum(groups.permuted[begin : begin + step], tested)
        yield c.values(first), c.values(total - first)


def _metric(c: Columns, groups: Groups, tested: Any, total: Floats) -> tuple[Floats, Floats]:
    """1 / variance of each value's difference over divisions, and the inverse of their correlation."""
    if c.distance not in (SCALED, STANDARD):
        return np.zeros(0), np.zeros((0, 0))
    d = np.concatenate([a - b for a, b in _pairs(c, groups, tested, total)])
    scale = d.std(axis=0)
    used = scale > 1e-12 * max(float(scale.max(initial=0.0)), 1e-300)
    weights = np.divide(1.0, scale**2, out=np.zeros_like(scale), where=used)
    z = d * np.sqrt(weights)
    # A ridge: values that go together in every division must not be told apart by their rounding.
    return weights, np.linalg.inv(z.T @ z / len(z) + 1e-3 * np.eye(d.shape[1]))


def _apart(distance: str, a: Floats, b: Floats, weights: Floats, inverse: Floats) -> tuple[Floats, Floats]:
    """(P,) test statistics, and (P,) natural sizes of differences."""
    if distance == CUMULATIVE:
        gap = np.abs(a - b).max(axis=1)
        return gap, gap
    if distance == SHARES:
        both = a + b
        test = np.divide((a - b) ** 2, both, out=np.zeros_like(both), where=both > 0).sum(axis=1)
        return test, 0.5 * np.abs(a - b).sum(axis=1)
    z = (a - b) * np.sqrt(weights)
    of = np.ones_like(a) if distance == STANDARD else (np.abs(a) + np.abs(b)) / 2
    size = np.sqrt(of**2 @ weights)
    natural = np.divide(np.sqrt((a - b) ** 2 @ weights), size, out=np.zeros(len(a)), where=size > 0)
    return np.einsum("pi,pi->p", z @ inverse, z), natural


def _pictured(c: Columns, a: Floats, b: Floats) -> NDArray[np.int64]:
    """At most some sixty entries: the largest shares, or evenly chosen ones."""
    if c.distance == SHARES and len(a) > _PICTURED:
        return np.argsort(-(a + b), kind="stable")[:_PICTURED]
    return np.unique(np.linspace(0, len(a) - 1, min(len(a), _PICTURED)).astype(np.int64))
