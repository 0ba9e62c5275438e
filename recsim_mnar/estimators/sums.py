"""Sums by user, of which an estimate, its interval and its checks are made; gathered in blocks, and mergeable."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.intervals import ROUNDING, Deviations
from recsim_mnar.estimators.scores import Rows
from recsim_mnar.log.columns import Clusters, Floats, Ints
from recsim_mnar.log.rows import user_starts

CHUNK = 16384
"""Rows per chunk: blocks of rows without users give the bits of all rows where they are cut at multiples of it."""
TILE = 512
"""Rows whose products are held at a time."""
SURE = 0.999
"""Probability from which a target is sure of an action."""
Form = Mapping[str, float]
"""Coefficients of a user's sums, by name."""


@functools.cache
def _places(width: int, degree: int) -> dict[tuple[int, ...], int]:
    """Place of each product of up to ``degree`` of ``width`` numbers, shorter ones first."""
    lengths = range(1, degree + 1)
    products = [each for length in lengths for each in itertools.combinations_with_replacement(range(width), length)]
    return {each: place for place, each in enumerate(products)}


@functools.cache
def _factors(width: int, degree: int) -> Ints:
    """(p, 2) places of the two factors of each product of two and more numbers."""
    places = _places(width, degree)
    return np.array([(places[each[:-1]], each[-1]) for each in places if len(each) > 1])


class UserSums:
    """Sums over users of products of each user's own sums of a few row columns.

    They are exact pairs of numbers, so that blocks of whole users merge to the bits of all rows; rows without users
    count as users, and merge so at multiples of :data:`CHUNK` rows.

    Args:
        names: of the columns.
        others: of further columns, which enter no product.
        degree: of the products, 2 or 4.
    """

    def __init__(self, names: Sequence[str], others: Sequence[str] = (), *, degree: int = 4) -> None:
        self.names = tuple(names)
        self.others = tuple(others)
        self.degree = degree
        self._pairs = np.zeros((2, len(_places(len(names), degree)) + len(others)))

    def extend(self, columns: Sequence[Floats], clusters: Clusters | None) -> None:
        """Add whole users' rows.

        Args:
            columns: (n,) each, in the order of the names.
            clusters: the user of each row; None where rows are independent.
        """
        from recsim_mnar.estimators import _by_user_kernel as kernels

        n, width, factors = columns[0].size, len(self.names), _factors(len(self.names), self.degree)
        user = None if clusters is None else clusters.together(clusters.codes)
        ordered = columns if clusters is None else [clusters.together(values) for values in columns]
        own, products = np.zeros(len(columns)), np.empty(self._pairs.shape[1])
        chunk = np.empty((len(columns), min(n, CHUNK)))
        tile = np.empty((width + len(factors) + 1, TILE))
        for start in range(0, n, CHUNK):
            stop = min(start + CHUNK, n)
            block = chunk[:, : stop - start]
            for place, values in enumerate(ordered):
                block[place] = values[start:stop]
            if user is None:
                kernels.add_rows(block, width, factors, self._pairs, tile)
                continue
            goes_on = stop < n and bool(user[stop] == user[stop - 1])
            kernels.add_users(block, user[start:stop], goes_on, width, factors, own, self._pairs, products)
        if "_sums" in vars(self):
            del self._sums

    @functools.cached_property
    def _sums(self) -> list[float]:
        return [float(each) for each in self._pairs.sum(axis=0)]

    @property
    def finite(self) -> bool:
        """Whether no sum is too large for a number."""
        return bool(np.all(np.isfinite(self._pairs)))

    def total(self, name: str) -> float:
        """The sum of a column."""
        if name in self.names:
            return self._sums[self.names.index(name)]
        return self._sums[len(self._sums) - len(self.others) + self.others.index(name)]

    def product(self, *forms: Form) -> float:
        """The sum over users of the product of up to ``degree`` combinations of their sums."""
        places = _places(len(self.names), self.degree)
        terms = [[(self.names.index(name), c) for name, c in form.items() if c != 0.0] for form in forms]
        total = 0.0
        for chosen in itertools.product(*terms):
            place = places[tuple(sorted(i for i, _ in chosen))]
            total += math.prod(c for _, c in chosen) * self._sums[place]
        return total

    def centred(self, name: str, rows: int) -> float:
        """The sum over users of the squared sum of (value - mean over rows); the first column is of ones."""
        apart = {name: 1.0, self.names[0]: -self.total(name) / rows}
        return max(self.product(apart, apart), 0.0)

    def __add__(self, other: UserSums) -> UserSums:
        """Of the rows of both, which share no user."""
        from recsim_mnar.estimators import _by_user_kernel as kernels

        total = UserSums(self.names, self.others, degree=self.degree)
        total._pairs = self._pairs.copy()
        kernels.add_exactly(total._pairs[0], total._pairs[1], other._pairs[0])
        total._pairs[1] += other._pairs[1]
        return total


def _policy_columns() -> UserSums:
    return UserSums(("rows", "weight", "earned"), ("reward", "squared weight", "earned reward"))


@dataclass
class PolicySums:
    """What one policy's weights and rewards come to, by row and by user.

    ``earned`` is weight times reward; rewards are counted from ``shift``.

    Attributes:
        shift: reward from which rewards are counted.
        clustered: whether users are known.
        thinned: whether rows have weights of their own, which then follow the rewards.
        by_user: sums of rows (1 each), weight and earned, and of their squares.
        missing: sums of the target's mass on actions whose logging probability is 0; None where it is not known.
        rows, users: their numbers; a row without a user is one.
        rewarded, rewarded_users: rows and users with a reward other than ``shift``.
        supported: rows whose action the target can take.
        denied: rows that contradict a stated bound.
        sure, sure_rewarded: rows whose action the target is sure to take, and those of them with a reward.
        least_propensity_rows: rows with the least propensity.
        propensity_min, reward_min, reward_max, weight_max: as seen.
        user_rows_max: most rows of a user.
    """

    shift: float = 0.0
    clustered: bool = False
    thinned: bool = False
    by_user: UserSums = field(default_factory=_policy_columns)
    missing: UserSums | None = None
    rows: int = 0
    users: int = 0
    rewarded: int = 0
    rewarded_users: int = 0
    supported: int = 0
    denied: int = 0
    sure: int = 0
    sure_rewarded: int = 0
    least_propensity_rows: int = 0
    propensity_min: float = math.inf
    reward_min: float = math.inf
    reward_max: float = -math.inf
    weight_max: float = 0.0
    user_rows_max: int = 0

    @staticmethod
    def of(propensity: Any, target: Any, cluster: Any = None, reward: Any = None) -> PolicySums:
        """Sums of checked columns (n,); without rewards these count as 0."""
        rewards = np.zeros(len(propensity)) if reward is None else reward
        rows = Rows.of(rewards, propensity, target, clusters=Clusters.of(cluster, len(propensity)))
        sums = PolicySums(clustered=rows.clusters is not None)
        sums.extend(rows)
        return sums

    def extend(self, rows: Rows, facts: Facts | None = None, missing: Floats | None = None) -> None:
        """Add whole users' rows.

        Raises:
            UserError: a weight or a reward whose powers are too large for numbers.
        """
        reward, weight = rows.reward, rows.weight
        ones = np.ones(reward.size)
        with np.errstate(over="ignore", invalid="ignore"):  # what is too large is refused
            columns = ones, weight, rows.earned, reward, weight * weight, rows.earned * reward
            self.by_user.extend(columns, rows.clusters)
        if not self.by_user.finite:
            _refuse_overflow(rows)
        if missing is not None:
            self.missing = self.missing or UserSums(("rows", "missing"), degree=2)
            self.missing.extend((ones, missing), rows.clusters)
        sure = rows.target >= SURE
        self.rows += reward.size
        self.rewarded += int(np.count_nonzero(reward))
        self.supported += int(np.count_nonzero(rows.target))
        self.sure += int(np.count_nonzero(sure))
        self.sure_rewarded += int(np.count_nonzero(reward[sure]))
        self.denied += 0 if facts is None else facts.denied(rows.target, rows.propensity)
        self._count_users(rows)
        self._extremes(rows)

    def _count_users(self, rows: Rows) -> None:
        if rows.clusters is None:
            self.users += rows.reward.size
            self.rewarded_users = self.rewarded
            self.user_rows_max = max(self.user_rows_max, min(rows.reward.size, 1))
            return
        starts = user_starts(rows.clusters.together(rows.clusters.codes))
        rewarded = np.logical_or.reduceat(rows.clusters.together(rows.reward != 0.0), starts)
        lengths = np.diff(np.append(starts, rows.reward.size))
        self.users += starts.size
        self.rewarded_users += int(np.count_nonzero(rewarded))
        self.user_rows_max = max(self.user_rows_max, int(np.max(lengths)))

    def _extremes(self, rows: Rows) -> None:
        least = float(np.min(rows.propensity))
        if least < self.propensity_min:
            self.propensity_min, self.least_propensity_rows = least, 0
        self.least_propensity_rows += int(np.count_nonzero(rows.propensity == self.propensity_min))
        self.reward_min = min(self.reward_min, float(np.min(rows.reward)) + self.shift)
        self.reward_max = max(self.reward_max, float(np.max(rows.reward)) + self.shift)
        self.weight_max = max(self.weight_max, float(np.max(rows.weight)))

    def __add__(self, other: PolicySums) -> PolicySums:
        """Of the rows of both, which share no user."""
        assert (self.shift, self.clustered) == (other.shift, other.clustered)
        both = PolicySums(self.shift, self.clustered, self.thinned, self.by_user + other.by_user)
        if self.missing is not None and other.missing is not None:
            both.missing = self.missing + other.missing
        for name in _COUNTS:
            setattr(both, name, getattr(self, name) + getattr(other, name))
        for name, choose in _ENDS.items():
            setattr(both, name, choose(getattr(self, name), getattr(other, name)))
        least = [each for each in (self, other) if each.propensity_min == both.propensity_min]
        both.least_propensity_rows = sum(each.least_propensity_rows for each in least)
        return both

    @property
    def grouped(self) -> bool:
        """Whether users have several rows."""
        return self.clustered and self.users < self.rows

    @property
    def mean_weight(self) -> float:
        """Mean of the weights; it should be 1."""
        return self.by_user.total("weight") / self.rows

    @property
    def mean_weight_error(self) -> float:
        """Its standard error, by user."""
        correction = self.users / (self.users - 1.0) if self.users > 1 else 1.0
        return math.sqrt(self.by_user.centred("weight", self.rows) * correction) / self.rows

    @property
    def ess(self) -> float:
        """Kish's effective sample size (sum w)^2 / sum w^2; 0 where every weight is 0."""
        squares = self.by_user.total("squared weight")
        return self.by_user.total("weight") ** 2 / squares if squares > 0.0 else 0.0

    def missing_mass(self) -> tuple[float, float] | None:
        """Mean and standard error, by user, of the target's missing mass; None where it is not known."""
        if self.missing is None:
            return None
        if self.users < 2:
            return self.missing.total("missing") / self.rows, 0.0
        error = math.sqrt(self.missing.centred("missing", self.rows) * self.users / (self.users - 1.0)) / self.rows
        return self.missing.total("missing") / self.rows, error

    def deviations(self, sums: UserSums, form: Form) -> Deviations:
        """Deviations of users that are ``form`` of their sums; a spread that is a rounding counts as none."""
        second = sums.product(form, form)
        squares = math.fsum(c * c * sums.product({name: 1.0}, {name: 1.0}) for name, c in form.items())
        if second <= ROUNDING * squares:
            return Deviations(0.0, 0.0, 0.0, self.users, self.rewarded_users, self.grouped)
        fourth = max(sums.product(form, form, form, form), 0.0)
        return Deviations(second, 0.0, fourth, self.users, self.rewarded_users, self.grouped)


_COUNTS = ("rows", "users", "rewarded", "rewarded_users", "supported", "denied", "sure", "sure_rewarded")
_ENDS = {
    "propensity_min": min,
    "reward_min": min,
    "reward_max": max,
    "weight_max": max,
    "user_rows_max": max,
}


def _refuse_overflow(rows: Rows) -> None:
    """Raise UserError for the row whose weight or reward is too large for sums of its powers."""
    row = int(np.argmin(rows.propensity))
    if rows.propensity[row] > 1e-60:
        row = int(np.argmax(np.abs(rows.reward)))
        raise UserError(
            f"column 'reward', row {row} (counted from 0): {rows.reward[row]:g} is too large; use larger units"
        )
    raise UserError(
        f"column 'propensity', row {row} (counted from 0): {rows.propensity[row]:g} makes a weight too large to be "
        "summed; drop the row or correct the value"
    )
