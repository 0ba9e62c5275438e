"""What the weighting estimators need, gathered in one pass over rows and mergeable; and how weights are distributed."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.stated import (
    check_clip,
    check_range,
    check_rows,
    limit_column,
    missing_column,
    refuse_outside,
)
from recsim_mnar.log.columns import Clusters, Floats, column

N_SUMS, N_TOP = 22, 8
SURE = 0.999
"""Probability from which a target is sure of an action."""
_NAMES = [
    "w",
    "ww",
    "x",
    "xx",
    "wx",
    "c",
    "cc",
    "y",
    "yy",
    "wc",
    "xy",
    "r",
    "rr",
    "xr",
    "xxx",
    "xxxx",
    "wwwx",
    "wwxx",
    "wxxx",
    "wwww",
    "yyy",
    "yyyy",
]
_SUMS = {name: i for i, name in enumerate(_NAMES)}
_PRODUCTS = (
    *("w*w", "x*x", "w*x", "c*c", "y*y", "w*c", "x*y", "l*w", "l*x", "l*c", "l*y", "l*l"),
    *("xx*x", "l*xx", "ll*x", "yy*y", "l*yy", "ll*y", "ll*l", "w*xx", "ww*x", "ww*w"),
    *("xx*xx", "lx*xx", "ll*xx", "lll*x", "yy*yy", "ly*yy", "ll*yy", "lll*y", "ll*ll"),
    *("wx*xx", "ww*xx", "www*x", "ww*ww"),
)
"""Products of a user's sums: each of two sums, or of products before it."""
_POWERS = {name.replace("*", ""): i for i, name in enumerate(_PRODUCTS)}
_PLACES = {name: i for i, name in enumerate(("w", "x", "c", "y", "l", *_POWERS))}
_FACTORS = np.array([[_PLACES[factor] for factor in name.split("*")] for name in _PRODUCTS])
_LEAST = np.array([True, False, True, False, False, False, False, False])
"""Which of the extremes are minima."""


def users_of_rows(clusters: Clusters | None) -> tuple[NDArray[np.int64], bool]:
    """Users of rows that stand together, and whether there are any, as kernels take them."""
    return (np.empty(0, np.int64), False) if clusters is None else (clusters.together(clusters.codes), True)


def _start_extremes() -> NDArray[np.float64]:
    return np.array([np.inf, -np.inf, np.inf, -np.inf, -np.inf, 0.0, 0.0, -np.inf])


def _seen(array: str, place: int, kind: type) -> Any:
    """A property: one of the counts or extremes."""
    return property(lambda moments: kind(getattr(moments, array)[place]))


def added(pairs: Floats, more: Floats) -> Floats:
    """Sums (2, k) held as exact pairs, of both."""
    from recsim_mnar.estimators.off_policy import _moments_kernel as kernels

    total = pairs.copy()
    kernels.add_exactly(total[0], total[1], more[0])
    total[1] += more[1]
    return total


def _refuse_overflow(reward: Floats, propensity: Floats, names: tuple[str, str, str]) -> None:
    """Raise UserError for the row whose weight or reward is too large for sums of its powers."""
    row = int(np.argmin(propensity))
    if propensity[row] > 1e-60:
        row = int(np.argmax(np.abs(reward)))
        raise UserError(
            f"column {names[0]!r}, row {row} (counted from 0): {reward[row]:g} is too large; use larger units"
        )
    raise UserError(
        f"column {names[1]!r}, row {row} (counted from 0): {propensity[row]:g} makes a weight too large to be summed; "
        "drop the row or correct the value"
    )


def _largest(values: Floats, number: int) -> Floats:
    """The (number,) largest values, downwards; 0 where there are fewer."""
    least = min(number, values.size)
    top = np.sort(np.partition(values, values.size - least)[values.size - least :])[::-1]
    return np.concatenate([top, np.zeros(number - least)])


@dataclass
class Moments:
    """Moments of (target, propensity, reward) rows.

    With w = target / propensity, r the reward above ``shift``, x = w r, c = min(w, clip), y = c r and l the rows of a
    user: sums over rows of products of these, and sums over users of products of the user's own sums (behind
    variances that treat a
    user's rows as dependent). Sums are held as exact pairs: merging shards gives the bits of the whole
    where the shards are cut at multiples of 16,384 rows or, with clusters, between users; elsewhere the difference is a
    rounding.

    Attributes:
        clip: weights are cut there; inf for no clipping.
        clustered: whether users were given.
        rows: number of rows.
        users: number of users (of rows where none were given).
        shift: the least reward possible as given, else the least one of the log where that is negative, else 0.
        rewarded: rows with a reward other than ``shift``.
        supported: rows whose action the target could take.
        clipped: rows whose weight is above ``clip``.
        rewarded_users: users with a reward other than ``shift``.
        propensity_min: least propensity.
        reward_min: least reward.
        reward_max: largest reward.
        x_max: largest w r of a row.
        user_rows_max: most rows of a user.
        user_excess_max: most by which a user's weights sum to more than the user has rows.
        missing: sum over rows of the target's mass where the logging probability is 0, None where it was not given.
        denied: rows that contradict a stated bound of propensities or weights, as the caller counts them.
        least_propensity_rows: rows with the least propensity.
        reward_limit: largest of the rows' own largest rewards possible, None where they were not given.
        sure: (2,) rows whose action the target is sure to take, and those of them with a reward.
        thinned: whether weights of rows are part of the weights, which then follow the rewards.
        top_weights: (8,) largest weights, downwards, -1 where there are fewer rows.
    """

    clip: float = float("inf")
    clustered: bool = False
    shift: float = 0.0
    _sums: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, N_SUMS)), repr=False)
    _powers: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, len(_POWERS))), repr=False)
    _counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(6, np.int64), repr=False)
    _extremes: NDArray[np.float64] = field(default_factory=_start_extremes, repr=False)
    top_weights: NDArray[np.float64] = field(default_factory=lambda: np.full(N_TOP, -1.0), repr=False)
    denied: int = 0
    least_propensity_rows: int = 0
    reward_limit: float | None = None
    thinned: bool = False
    sure: NDArray[np.int64] = field(default_factory=lambda: np.zeros(2, np.int64))
    _numbers: tuple[list[float], list[float]] | None = field(default=None, repr=False)
    _missing: NDArray[np.float64] | None = field(default=None, repr=False)

    rows, users, rewarded, supported, clipped, rewarded_users = (_seen("_counts", place, int) for place in range(6))
    propensity_min, x_max, user_excess_max = (_seen("_extremes", place, float) for place in (0, 5, 7))
    user_rows_max = _seen("_extremes", 6, int)

    @staticmethod
    def of(
        reward: Any,
        propensity: Any,
        target: Any,
        *,
        clip: float | None = None,
        cluster: Any = None,
        names: tuple[str, str, str] = ("reward", "propensity", "target"),
        reward_min: float | None = None,
        reward_max: float | None = None,
        unsupported: Any = None,
        reward_limit: Any = None,
    ) -> Moments:
        """Gather the moments of rows.

        Args:
            reward: (n,) any real numbers.
            propensity: (n,) in (0, 1], the logging policy's probability of the logged action.
            target: (n,) in [0, 1], the target policy's probability of the logged action.
            clip: weights are cut there; None for no clipping.
            cluster: (n,) the user of each row, any ids in any order; None where rows are independent.
            names: of the columns, for messages.
            reward_min: least reward possible, from which rewards are counted; None for 0, or for the least reward of
                these rows where that is negative (shards of such a log need it given, or they do not merge).
            reward_max: largest reward possible, checked; None where it is not known.
            unsupported: (n,) the target's mass in each row's state on actions whose logging probability is 0.
            reward_limit: (n,) the largest reward possible of each row's action, checked.

        Raises:
            UserError: a range that is reversed or that a reward is outside of, columns of different length, values
                that are no data (with the row), ``clip`` not positive.
        """
        r = column(reward, names[0])
        p = column(propensity, names[1], rows=r.size)
        t = column(target, names[2], rows=r.size)
        least, largest = check_range(reward_min, reward_max)
        clusters = Clusters.of(cluster, r.size)
        shift = least if least is not None else 0.0
        moments = Moments(check_clip(clip), clusters is not None, shift)
        moments._gather(r if shift == 0.0 else r - shift, p, t, clusters, names)
        if moments.rows and moments.reward_min < shift:
            if least is not None or not np.isfinite(moments.reward_min):
                refuse_outside(r, shift, None, names[0])
            moments = Moments(moments.clip, moments.clustered, moments.reward_min)
            moments.extend(r, p, t, clusters, names)
        if largest is not None and moments.rows and moments.reward_max > largest:
            refuse_outside(r, None, largest, names[0])
        if unsupported is not None:
            moments._add_missing(missing_column(unsupported, t), clusters)
        if reward_limit is not None:
            moments._add_limits(limit_column(reward_limit, r, (names[0], "reward_limit")))
        return moments

    def extend(
        self,
        r: Floats,
        p: Floats,
        t: Floats,
        clusters: Clusters | None,
        names: tuple[str, str, str] = ("reward", "propensity", "target"),
        missing: Floats | None = None,
        limit: Floats | None = None,
    ) -> None:
        """Add further rows, (n,) columns that :func:`recsim_mnar.log.columns.column` has made, in place.

        The bits are those of all rows gathered at once where what came before is a multiple of 16,384 rows or, with
        clusters, where users come in ascending order and none is in two blocks.

        Args:
            r: rewards.
            p: propensities.
            t: the target's probabilities.
            clusters: users; given where the moments are ``clustered``.
            names: of the columns, for messages.
            missing: the target's mass on actions whose logging probability is 0.
            limit: the largest reward possible of each row's action.

        Raises:
            UserError: as :meth:`of`; the moments are of no use then.
        """
        self._gather(r if self.shift == 0.0 else r - self.shift, p, t, clusters, names)
        self._numbers = None
        if missing is not None:
            self._add_missing(missing_column(missing, t), clusters)
        if limit is not None:
            self._add_limits(limit_column(limit, r))

    def _add_limits(self, limit: Floats) -> None:
        if limit.size:
            self.reward_limit = max(float(np.max(limit)), -math.inf if self.reward_limit is None else self.reward_limit)

    def _add_missing(self, missing: Floats, clusters: Clusters | None) -> None:
        from recsim_mnar.estimators.off_policy import _moments_kernel as kernels

        if self._missing is None:
            self._missing = np.zeros((2, 3))
        together = missing if clusters is None else clusters.together(missing)
        kernels.gather_missing(together, *users_of_rows(clusters), self._missing, np.empty(3))

    def unclipped(self) -> Moments:
        """The moments of the same rows without clipping: every product of a clipped weight is that of the weight."""
        if math.isinf(self.clip):
            return self
        same = copy.deepcopy(self)
        same.clip, same._numbers = math.inf, None
        for pairs, places in ((same._sums, _SUMS), (same._powers, _POWERS)):
            for name, place in places.items():
                pairs[:, place] = pairs[:, places[name.replace("c", "w").replace("y", "x")]]
        same._counts[4] = 0
        return same

    def _gather(self, r: Floats, p: Floats, t: Floats, clusters: Clusters | None, names: tuple[str, str, str]) -> None:
        from recsim_mnar.estimators.off_policy import _moments_kernel as kernels

        before = float(self._extremes[0])
        together = (t, p, r) if clusters is None else [clusters.together(values) for values in (t, p, r)]
        sums = [self._sums, self._powers, _FACTORS, self._counts, self._extremes, self.top_weights]
        scratch = np.empty(-(-r.size // kernels.CHUNK)), np.empty(N_SUMS + len(_PLACES))
        with np.errstate(all="ignore"):  # divisions by 0 in rows that are then refused
            kernels.gather(*together, *users_of_rows(clusters), self.clip, *sums, *scratch)
        sure = t >= SURE
        self.sure += int(np.count_nonzero(sure)), int(np.count_nonzero(r[sure]))
        least = float(self._extremes[0])
        kept_rows = self.least_propensity_rows if least == before else 0
        self.least_propensity_rows = kept_rows + int(np.count_nonzero(p == least))
        if not self._probabilities():
            check_rows(r, p, t, names)  # may find nothing: a target of -0.0, or a rounding above 1
        if not self._finite():
            check_rows(r, p, t, names)
            _refuse_overflow(r, p, names)

    def _probabilities(self) -> bool:
        """True if every propensity and target can be a probability."""
        return self.rows == 0 or bool(self._extremes[0] > 0.0 and self._extremes[1] <= 1.0)

    def _finite(self) -> bool:
        return bool(np.all(np.isfinite(self._sums)) and np.all(np.isfinite(self._powers)))

    def __add__(self, other: Moments) -> Moments:
        """Moments of both shards; no user may be in both."""
        if not isinstance(other, Moments):
            return NotImplemented
        if (self.clip, self.clustered) != (other.clip, other.clustered):
            raise UserError("moments merge only with the same clip, and either all with clusters or all without")
        if self.shift != other.shift:
            raise UserError(
                f"moments merge only with the same least reward, and these have {self.shift:g} and {other.shift:g}: "
                "give every shard the same reward_min"
            )
        for name, column_of in (("unsupported", "_missing"), ("reward_limit", "reward_limit")):
            if (getattr(self, column_of) is None) != (getattr(other, column_of) is None):
                raise UserError(f"moments merge only where all shards have the column {name}, or none")
        sums = added(self._sums, other._sums), added(self._powers, other._powers), self._counts + other._counts
        low, high = np.minimum(self._extremes, other._extremes), np.maximum(self._extremes, other._extremes)
        tops = _largest(np.concatenate([self.top_weights, other.top_weights]), N_TOP)
        merged = Moments(
            self.clip, self.clustered, self.shift, *sums, np.where(_LEAST, low, high), tops, self.denied + other.denied
        )
        merged.least_propensity_rows = sum(
            each.least_propensity_rows for each in (self, other) if each.propensity_min == merged.propensity_min
        )
        merged.sure = self.sure + other.sure
        if self.reward_limit is not None and other.reward_limit is not None:
            merged.reward_limit = max(self.reward_limit, other.reward_limit)
        if self._missing is not None and other._missing is not None:
            merged._missing = added(self._missing, other._missing)
        return merged

    def _totals(self) -> tuple[list[float], list[float]]:
        """Sums and powers as numbers, computed once and never changed."""
        if self._numbers is None:
            self._numbers = (self._sums.sum(axis=0).tolist(), self._powers.sum(axis=0).tolist())
        return self._numbers

    def sum(self, name: str) -> float:
        """Sum over rows: w, ww, x, xx, wx, c, cc, y, yy, wc, xy, r, rr or xr; without clusters of powers up to four."""
        return self._totals()[0][_SUMS[name]]

    def power(self, name: str) -> float:
        """Sum over users of a product of the user's sums: ww, xx, wx, cc, yy, wc, xy, lw, lx, lc, ly, ll.

        And products of three and four of a ratio's or a mean's: xxx, xxxx, lxxx, ..., wwww.
        """
        if self.clustered:
            return self._totals()[1][_POWERS[name]]
        # Without clusters a row is a user with l = 1, and the products of its sums are sums over rows.
        letters = name.replace("l", "")
        return self.sum(letters) if letters else float(self.rows)

    @property
    def grouped(self) -> bool:
        """Whether users have several rows."""
        return self.clustered and self.users < self.rows

    @property
    def reward_min(self) -> float:  # noqa: D102
        return float(self._extremes[2]) + self.shift

    @property
    def reward_max(self) -> float:  # noqa: D102
        return float(self._extremes[3]) + self.shift

    @property
    def binary(self) -> bool:
        """Whether every reward is 0 or 1; roundings of sums that are made of parts' sums do not matter."""
        ends = self.shift == 0.0 and self.reward_min in (0.0, 1.0) and self.reward_max in (0.0, 1.0)
        return ends and abs(self.sum("r") - self.sum("rr")) <= 1e-9 * self.sum("rr")

    @property
    def missing(self) -> float | None:  # noqa: D102
        return None if self._missing is None else float(self._missing[:, 0].sum())

    def missing_error(self) -> float:
        """Standard error, by user, of the mean of the target's missing mass."""
        if self._missing is None or self.users < 2:
            return 0.0
        total, square, cross = self._missing.sum(axis=0).tolist()
        mean = total / self.rows
        spread = square - 2.0 * mean * cross + mean**2 * self.power("ll")
        return math.sqrt(max(spread, 0.0) * self.users / (self.users - 1.0)) / self.rows

    @property
    def weight_max(self) -> float:
        """Largest weight, 0 where there is no row."""
        return max(float(self._extremes[4]), 0.0)

    @property
    def ess(self) -> float:
        """Kish's effective sample size (sum w)^2 / sum w^2; 0 where every weight is 0."""
        squares = self.sum("ww")
        return self.sum("w") ** 2 / squares if squares > 0.0 else 0.0


# ------------------------------------------------------------------------------------------ how weights are distributed

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

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {**vars(self), "edges": list(self.edges), "counts": list(self.counts)}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> WeightDistribution:
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
