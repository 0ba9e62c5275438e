"""Two groups of users and how far apart they are: by chance alone, and as they were found.

A statistic is a sum over each user's rows, so that a group's is a sum over its users, and every other way to divide the
same users costs one product of matrices. Users are what is exchanged: their rows depend on each other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.rng import Stream, derive_seed, uniforms

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

CUMULATIVE, SHARES, SCALED = "cumulative", "shares", "scaled"
_CELLS = 1 << 23
"""Numbers held at once while groups are summed: 64 MB of float64."""
_PICTURED = 60
SAMPLES = 25
"""Pairs of groups whose median distance is shown."""


@dataclass(frozen=True)
class Statistic:
    """What is compared between two groups of users; U users, k sums, v values.

    Attributes:
        name: of the check.
        question: what it bears on: "valid for ...".
        sums: (U, k) sums over each user's rows; an array or a scipy sparse array.
        values: from sums of groups (P, k) to their values (P, v).
        distance: :data:`CUMULATIVE`: largest gap between cumulative shares; :data:`SHARES`: half the sum of their
            absolute differences, tested by the sum of (a - b)^2 / (a + b); :data:`SCALED`: differences relative to the
            values, root mean square with each value's precision as its weight, tested in the metric of their
            covariance (Hotelling).
        headline: from sums (P, k) to one telling number (P,).
        what: the headline in words.
        tolerance: distances up to so much above that of two halves of the log are small.
        entries: names of the values, for pictures.
        axis: what the entries are.
    """

    name: str
    question: str
    sums: Any
    values: Callable[[Floats], Floats]
    distance: str
    headline: Callable[[Floats], Floats]
    what: str
    tolerance: float
    entries: list[str] = field(default_factory=list)
    axis: str = ""

    @property
    def degree(self) -> int:
        """Of the test statistic, as a function of the difference."""
        return 1 if self.distance == CUMULATIVE else 2


@dataclass(frozen=True)
class Gap:
    """How far two groups of users are apart.

    Attributes:
        real, simulated: headlines.
        distance: between groups of real and of simulated users, in the statistic's natural size.
        ceiling: median distance between two halves of the real users of that size.
        ceiling_high: their .95 quantile.
        visible: what the distance would have to pass to be told from chance, at the .95 quantile under permutation.
        p: share of divisions of the same users that are as far apart, the one found among them.
        picture: entries, real, simulated, and the range of halves (low, high: .05 and .95 quantiles); JSON types.
    """

    real: float
    simulated: float
    distance: float
    ceiling: float
    ceiling_high: float
    visible: float
    p: float
    picture: dict[str, Any]


@dataclass
class Groups:
    """Real users in two halves, and simulated ones: the first is what a world may know, the second is held out.

    Attributes:
        n_known, n_held, n_simulated: users, in this order; none are known to a world that was not fitted on the log.
        seed: of all divisions.
        allowance: the variance of a difference between held-out and simulated users where the world carries the error
            of the users it was fitted on, over that where it carries none.
        draws: divisions of held-out and simulated users.
        halves: divisions of the real users.
    """

    n_known: int
    n_held: int
    n_simulated: int
    seed: int
    allowance: float = 1.0
    draws: int = 999
    halves: int = 199

    @property
    def n_real(self) -> int:
        """Real users."""
        return self.n_known + self.n_held

    @functools.cached_property
    def permuted(self) -> Floats:
        """(draws + 1, n_held + n_simulated) 1 for users of the first group, else 0; first row: the held-out users."""
        n = self.n_held + self.n_simulated
        found = np.zeros((self.draws + 1, n))
        found[0, : self.n_held] = 1.0
        found[1:] = _drawn(derive_seed(self.seed, "permutations"), self.draws, n, self.n_held)
        return found

    @property
    def size(self) -> int:
        """Users in each of two groups whose distance is shown: what halves of the real users can be compared at."""
        return min(self.n_real // 2, self.n_held, self.n_simulated)

    @functools.cached_property
    def divided(self) -> tuple[Flags, Flags]:
        """(halves, n_real) each: two groups of :attr:`size` real users who share none."""
        return _two_groups(derive_seed(self.seed, "halves"), self.halves, self.n_real, self.size)

    @functools.cached_property
    def sampled(self) -> tuple[Flags, Flags]:
        """(SAMPLES, n_held + n_simulated) each: :attr:`size` held-out users, and as many simulated ones."""
        held = _drawn(derive_seed(self.seed, "some held"), SAMPLES, self.n_held, self.size)
        simulated = _drawn(derive_seed(self.seed, "some simulated"), SAMPLES, self.n_simulated, self.size)
        return np.hstack([held, np.zeros_like(simulated)]), np.hstack([np.zeros_like(held), simulated])

    @functools.cached_property
    def mixed(self) -> tuple[Flags, Flags]:
        """(halves, n_held + n_simulated) each: two groups of :attr:`size` of the users tested, whoever they are."""
        seed = derive_seed(self.seed, "mixed")
        return _two_groups(seed, self.halves, self.n_held + self.n_simulated, self.size)


def gap_of(statistic: Statistic, groups: Groups) -> Gap:
    """Hold simulated users against held-out ones, and halves of the real users against each other."""
    tested, real = statistic.sums[groups.n_known :], statistic.sums[: groups.n_real]
    labels = groups.permuted
    total = _sum(np.ones((1, tested.shape[0])), tested)
    pairs = _pairs(labels, tested, total)
    if statistic.distance == SCALED:  # few sums: they are kept, for the metric and for the test
        pairs = iter(kept := list(pairs))
        metric = _Metric.of(statistic, iter(kept))
    else:
        metric = _Metric.of(statistic, iter(()))
    test = metric.tests(pairs)
    limit = test[0] / groups.allowance ** (statistic.degree / 2)
    at_least = 1 + int(np.sum(test[1:] >= limit * (1 - 1e-12)))
    first, second = groups.divided
    between = metric.distances(_pairs_of(first, second, real))
    some, others = groups.sampled
    found = metric.distances(_pairs_of(some, others, tested))
    mixed, rest = groups.mixed
    chance = metric.distances(_pairs_of(mixed, rest, tested))
    held = _sum(labels[:1], tested)
    return Gap(
        real=float(statistic.headline(held)[0]),
        simulated=float(statistic.headline(total - held)[0]),
        distance=float(np.median(found)),
        ceiling=float(np.median(between)),
        ceiling_high=float(np.quantile(between, 0.95)),
        visible=float(np.quantile(chance, 0.95)),
        p=at_least / len(test),
        picture=_picture(statistic, held, total - held, first, real),
    )


def _uniform_rows(seed: int, n_rows: int, n: int) -> Floats:
    return uniforms(seed, Stream.PROTOCOL, np.tile(np.arange(n), n_rows), np.repeat(np.arange(n_rows), n)).reshape(
        n_rows, n
    )


def _two_groups(seed: int, n_rows: int, n: int, size: int) -> tuple[Flags, Flags]:
    order = np.argsort(_uniform_rows(seed, n_rows, n), axis=1)
    first, second = np.zeros((2, n_rows, n), np.bool_)
    rows = np.arange(n_rows)[:, None]
    first[rows, order[:, :size]] = True
    second[rows, order[:, size : 2 * size]] = True
    return first, second


def _drawn(seed: int, n_rows: int, n: int, size: int) -> Flags:
    """(n_rows, n) each row a random ``size`` of n."""
    found = np.zeros((n_rows, n), np.bool_)
    step = max(1, _CELLS // max(n, 1))
    for begin in range(0, n_rows, step):
        end = min(begin + step, n_rows)
        drawn = _uniform_rows(derive_seed(seed, str(begin)), end - begin, n)
        chosen = np.argpartition(drawn, size - 1, axis=1)[:, :size]
        found[np.arange(begin, end)[:, None], chosen] = True
    return found


def _sum(labels: NDArray[Any], sums: Any) -> Floats:
    """(P, k) sums over the users of each group."""
    return np.asarray((sums.T @ np.asarray(labels, np.float64).T).T, np.float64)


def _pairs(labels: Floats, sums: Any, total: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Sums of both groups, block by block of divisions."""
    for block in _blocks(len(labels), sums.shape[1]):
        first = _sum(labels[block], sums)
        yield first, total - first


def _pairs_of(first: Flags, second: Flags, sums: Any) -> Iterator[tuple[Floats, Floats]]:
    for block in _blocks(len(first), sums.shape[1]):
        yield _sum(first[block], sums), _sum(second[block], sums)


def _blocks(n: int, width: int) -> Iterator[slice]:
    step = max(1, _CELLS // (8 * max(width, 1)))
    for begin in range(0, n, step):
        yield slice(begin, min(begin + step, n))


@dataclass(frozen=True)
class _Metric:
    """How differences of a statistic's values are measured; the scales are those of all divisions of the same users.

    Attributes:
        statistic: whose.
        weights: (v,) 1 / variance of each value's difference over divisions (:data:`SCALED`).
        inverse: (v, v) inverse of their correlation, on the standardised differences.
    """

    statistic: Statistic
    weights: Floats
    inverse: Floats

    @classmethod
    def of(cls, statistic: Statistic, pairs: Iterator[tuple[Floats, Floats]]) -> _Metric:
        """From the pairs of sums of all divisions."""
        if statistic.distance != SCALED:
            return cls(statistic, np.zeros(0), np.zeros((0, 0)))
        d = np.concatenate([statistic.values(a) - statistic.values(b) for a, b in pairs])
        scale = d.std(axis=0)
        used = scale > 1e-12 * max(float(scale.max(initial=0.0)), 1e-300)
        weights = np.divide(1.0, scale**2, out=np.zeros_like(scale), where=used)
        z = d * np.sqrt(weights)
        # A ridge: values that go together in every division must not be told apart by their rounding.
        correlation = z.T @ z / len(z) + 1e-3 * np.eye(d.shape[1])
        return cls(statistic, weights, np.linalg.inv(correlation))

    def tests(self, pairs: Iterator[tuple[Floats, Floats]]) -> Floats:
        """(P,) test statistic of each division."""
        return np.concatenate([self._test(*self._values(pair)) for pair in pairs])

    def distances(self, pairs: Iterator[tuple[Floats, Floats]]) -> Floats:
        """(P,) natural size of each division's difference."""
        return np.concatenate([self._distance(*self._values(pair)) for pair in pairs])

    def _values(self, pair: tuple[Floats, Floats]) -> tuple[Floats, Floats]:
        return self.statistic.values(pair[0]), self.statistic.values(pair[1])

    def _test(self, a: Floats, b: Floats) -> Floats:
        kind = self.statistic.distance
        if kind == CUMULATIVE:
            return np.asarray(np.abs(a - b).max(axis=1))
        if kind == SHARES:
            both = a + b
            return np.divide((a - b) ** 2, both, out=np.zeros_like(both), where=both > 0).sum(axis=1)
        z = (a - b) * np.sqrt(self.weights)
        return np.asarray(np.einsum("pi,pi->p", z @ self.inverse, z))

    def _distance(self, a: Floats, b: Floats) -> Floats:
        kind = self.statistic.distance
        if kind == CUMULATIVE:
            return np.asarray(np.abs(a - b).max(axis=1))
        if kind == SHARES:
            return 0.5 * np.abs(a - b).sum(axis=1)
        size = np.sqrt((((np.abs(a) + np.abs(b)) / 2) ** 2) @ self.weights)
        return np.divide(np.sqrt((a - b) ** 2 @ self.weights), size, out=np.zeros(len(a)), where=size > 0)


def _picture(statistic: Statistic, held: Floats, simulated: Floats, first: Flags, real: Any) -> dict[str, Any]:
    """What a picture shows: at most some sixty entries."""
    a, b = statistic.values(held)[0], statistic.values(simulated)[0]
    kept = np.unique(np.linspace(0, len(a) - 1, min(len(a), _PICTURED)).astype(np.int64))
    if statistic.distance == SHARES and len(a) > _PICTURED:
        kept = np.argsort(-(a + b), kind="stable")[:_PICTURED]
    parts = [statistic.values(_sum(first[block], real))[:, kept] for block in _blocks(len(first), real.shape[1])]
    low, high = np.quantile(np.concatenate(parts), (0.05, 0.95), axis=0)
    names = statistic.entries or [str(i) for i in range(len(a))]
    return {
        "kind": statistic.distance, "axis": statistic.axis, "entries": [names[i] for i in kept],
        "real": a[kept].tolist(), "simulated": b[kept].tolist(), "low": low.tolist(), "high": high.tolist(),
    }  # fmt: skip
