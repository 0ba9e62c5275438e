"""Sums by user from which an estimate, its interval and its checks are computed; gathered in blocks, and mergeable.

- :class:`UserSums` accumulates products of each user's sums of some columns.
- :class:`PolicySums` sums a policy's weights and rewards.
- :class:`ScoreSums` sums an estimator's row scores (:mod:`recsim_mnar.estimators.scores`): a linear part that is
  averaged over rows, and the numerator and denominator of a ratio of sums.
- :class:`LeftOut` sums the probability mass that clipped or otherwise changed weights ignore.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.intervals import ROUNDING, Deviations, Interval, gamma_limits, small_sample_factor
from recsim_mnar.estimators.scores import Rows, Scores
from recsim_mnar.estimators.verdict import Finding
from recsim_mnar.log.columns import Clusters, Floats, Ints
from recsim_mnar.log.rows import user_starts

CHUNK = 16384
"""Rows per chunk. Rows without users that come in several blocks give the same bits as all rows at once, if the blocks
are cut at multiples of this number."""
TILE = 512
"""Number of rows whose products are in memory at the same time."""
SURE = 0.999
"""Target probability of an action from which a policy counts as deterministic in that row."""
Form = Mapping[str, float]
"""Coefficients, by column name, of a linear combination of a user's sums."""


@functools.cache
def _places(width: int, degree: int) -> dict[tuple[int, ...], int]:
    """Number the monomials of up to ``degree`` factors in ``width`` columns, those with fewer factors first.

    Returns:
        The index of each monomial, by the ascending column numbers of its factors: (0, 0, 2) is column 0 squared times
        column 2.
    """
    places: dict[tuple[int, ...], int] = {}
    for length in range(1, degree + 1):
        for product in itertools.combinations_with_replacement(range(width), length):
            places[product] = len(places)
    return places


@functools.cache
def _factors(width: int, degree: int) -> Ints:
    """Return (p, 2): for each monomial of two or more factors, the monomial without its last factor, and that factor.

    Kernels compute each monomial by one multiplication of these two.
    """
    places = _places(width, degree)
    return np.array([(places[product[:-1]], product[-1]) for product in places if len(product) > 1])


class UserSums:
    """Moments, up to degree 4, of sums per user: a user's rows are summed by column, and products of the sums added up.

    Each total is kept as an unevaluated pair of floats (value and rounding error), so that blocks of whole users merge
    to the same bits as all rows at once. Without users each row counts as a user; such blocks must be cut at multiples
    of :data:`CHUNK` rows.

    Args:
        names: names of the columns whose sums are multiplied with each other.
        sum_only: names of further columns, which are only summed and not multiplied.
        degree: largest number of factors of a product, 2 or 4.
    """

    def __init__(self, names: Sequence[str], sum_only: Sequence[str] = (), *, degree: int = 4) -> None:
        self.names = tuple(names)
        self.sum_only = tuple(sum_only)
        self.degree = degree
        # Rows: values and their rounding errors. Columns: all monomials, then the sums of the columns ``sum_only``.
        self._pairs = np.zeros((2, len(_places(len(names), degree)) + len(sum_only)))

    @staticmethod
    def of(
        names: Sequence[str],
        columns: Sequence[Floats],
        clusters: Clusters | None,
        sum_only: Sequence[str] = (),
        *,
        degree: int = 4,
    ) -> UserSums:
        """Sum all rows of a log, or a block of whole users.

        Args:
            names: names of the columns whose sums are multiplied with each other.
            columns: (n,) values of each column, of ``names`` first and then of ``sum_only``.
            clusters: user of each row; None if rows are independent.
            sum_only: names of further columns, which are only summed.
            degree: largest number of factors of a product, 2 or 4.
        """
        sums = UserSums(names, sum_only, degree=degree)
        sums.extend(columns, clusters)
        return sums

    def extend(self, columns: Sequence[Floats], clusters: Clusters | None) -> None:
        """Add the rows of whole users.

        Args:
            columns: (n,) values of each column, in the order of ``names`` and then of ``sum_only``.
            clusters: user of each row; None if rows are independent.
        """
        from recsim_mnar.estimators import _by_user_kernel as kernels

        n = columns[0].size
        width = len(self.names)
        factors = _factors(width, self.degree)
        user = None
        if clusters is not None:
            user = clusters.together(clusters.codes)
            columns = [clusters.together(values) for values in columns]
        # Scratch memory: kernels allocate nothing.
        column_sums = np.zeros(len(columns))  # of the current user, carried from chunk to chunk
        products = np.empty(self._pairs.shape[1])  # of the current user's sums
        chunk = np.empty((len(columns), min(n, CHUNK)))  # rows of the chunk, one column after the other
        tile = np.empty((width + len(factors) + 1, TILE))  # products of single rows
        for start in range(0, n, CHUNK):
            stop = min(start + CHUNK, n)
            block = chunk[:, : stop - start]
            for place, values in enumerate(columns):
                block[place] = values[start:stop]
            if user is None:
                kernels.add_rows(block, width, factors, self._pairs, tile)
                continue
            # The last user of the chunk is added to the totals only when all of the user's rows are summed.
            continues = stop < n and bool(user[stop] == user[stop - 1])
            kernels.add_users(block, user[start:stop], continues, width, factors, column_sums, self._pairs, products)
        vars(self).pop("_sums", None)  # the cached property is out of date

    @functools.cached_property
    def _sums(self) -> list[float]:
        """Return all totals as floats: values plus their rounding errors."""
        return [float(total) for total in self._pairs.sum(axis=0)]

    @property
    def finite(self) -> bool:
        """Return whether no sum has overflowed."""
        return bool(np.all(np.isfinite(self._pairs)))

    def total(self, name: str) -> float:
        """Return the sum of a column over all rows."""
        if name in self.names:
            return self._sums[self.names.index(name)]
        # Sums of these columns are last: a negative index counts from the end.
        return self._sums[self.sum_only.index(name) - len(self.sum_only)]

    def product(self, *forms: Form) -> float:
        """Sum over users the product of up to ``degree`` linear combinations of the user's column sums.

        The product of combinations is multiplied out into monomials, whose totals are stored.
        """
        places = _places(len(self.names), self.degree)
        terms = [[(self.names.index(name), c) for name, c in form.items() if c != 0.0] for form in forms]
        total = 0.0
        for factors in itertools.product(*terms):
            monomial = tuple(sorted(column for column, _ in factors))
            total += math.prod(c for _, c in factors) * self._sums[places[monomial]]
        return total

    def squares(self, name: str) -> float:
        """Sum over users the squared user sum of a column."""
        return self.product({name: 1.0}, {name: 1.0})

    def centred(self, name: str, rows: int) -> float:
        """Sum over users the squared user sum of (value - mean over rows) of a column.

        The first of the columns must be constant 1, so that its user sums are the numbers of rows.
        """
        form = {name: 1.0, self.names[0]: -self.total(name) / rows}
        return max(self.product(form, form), 0.0)  # rounding errors may make it negative

    def __add__(self, other: UserSums) -> UserSums:
        """Return the sums of both blocks of rows, which have no user in common."""
        from recsim_mnar.estimators import _by_user_kernel as kernels

        total = UserSums(self.names, self.sum_only, degree=self.degree)
        total._pairs = self._pairs.copy()
        kernels.add_exactly(total._pairs[0], total._pairs[1], other._pairs[0])
        total._pairs[1] += other._pairs[1]
        return total


def _policy_columns(degree: int = 4) -> UserSums:
    """Return empty sums of the columns of a policy; "earned" is weight times reward."""
    multiplied = ("rows", "weight", "earned")
    return UserSums(multiplied, sum_only=("reward", "squared weight", "earned reward"), degree=degree)


@dataclass
class PolicySums:
    """Sums of one policy's weights and rewards, by row and by user.

    Attributes:
        shift: reward that was subtracted from all rewards before they were summed.
        clustered: whether users are known; otherwise each row counts as a user.
        thinned: whether rows have weights of their own, because the log keeps a part of its rows, chosen by reward.
        by_user: sums of 1 ("rows"), of the weight and of weight times reward ("earned"), with their products.
        missing: sums of the target's probability of actions whose logging probability is 0; None if it is not known.
        rows: number of rows.
        users: number of users.
        rewarded: number of rows with a reward other than ``shift``.
        rewarded_users: number of users with such a row.
        supported: number of rows whose action the target can take.
        denied: number of rows that contradict a stated bound.
        sure: number of rows whose action the target takes with a probability of at least :data:`SURE`.
        sure_rewarded: number of these rows with a reward other than ``shift``.
        least_propensity_rows: number of rows with the least propensity.
        propensity_min: least propensity.
        reward_min: least reward, with ``shift`` added again.
        reward_max: largest reward, with ``shift`` added again.
        weight_max: largest weight.
        user_rows_max: largest number of rows of a user.
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
        """Check the columns of a log and sum their rows.

        Args:
            propensity: (n,) logging probabilities of the logged actions.
            target: (n,) the target's probabilities of the logged actions.
            cluster: (n,) user ids; None if rows are independent.
            reward: (n,) rewards; None for zeros.
        """
        n = len(propensity)
        if reward is None:
            reward = np.zeros(n)
        return PolicySums.of_rows(Rows.of(reward, propensity, target, clusters=Clusters.of(cluster, n)))

    @staticmethod
    def of_rows(rows: Rows, facts: Facts | None = None, *, degree: int = 4) -> PolicySums:
        """Sum all rows of a log, or a block of whole users.

        Args:
            rows: checked columns.
            facts: stated bounds, to count the rows that contradict them; None for no bounds.
            degree: largest number of factors of a product of user sums; 2 is faster, but has no fourth moments.
        """
        sums = PolicySums(
            shift=rows.shift,
            clustered=rows.clusters is not None,
            thinned=np.ndim(rows.stands_for) > 0,
            by_user=_policy_columns(degree),
        )
        sums.extend(rows, facts)
        return sums

    def extend(self, rows: Rows, facts: Facts | None = None) -> None:
        """Add the rows of whole users.

        Args:
            rows: checked columns.
            facts: stated bounds, to count the rows that contradict them; None for no bounds.

        Raises:
            UserError: a weight or a reward whose powers overflow.
        """
        reward = rows.reward
        weight = rows.weight
        ones = np.ones(reward.size)
        with np.errstate(over="ignore", invalid="ignore"):  # sums that overflow are refused below
            # In the order of _policy_columns.
            columns = (ones, weight, rows.earned, reward, weight * weight, rows.earned * reward)
            self.by_user.extend(columns, rows.clusters)
        if not self.by_user.finite:
            refuse_overflow(rows)
        if rows.missing is not None:
            self.missing = self.missing or UserSums(("rows", "missing"), degree=2)
            self.missing.extend((ones, rows.missing), rows.clusters)
        sure = rows.target >= SURE
        self.rows += reward.size
        self.rewarded += int(np.count_nonzero(reward))
        self.supported += int(np.count_nonzero(rows.target))
        self.sure += int(np.count_nonzero(sure))
        self.sure_rewarded += int(np.count_nonzero(reward[sure]))
        if facts is not None:
            self.denied += facts.denied(rows.target, rows.propensity)
        self._count_users(rows)
        self._update_extremes(rows)

    def _count_users(self, rows: Rows) -> None:
        """Add to the numbers of users and of users with a reward, and update the largest number of rows of a user."""
        if rows.clusters is None:
            self.users += rows.reward.size
            self.rewarded_users = self.rewarded
            self.user_rows_max = max(self.user_rows_max, min(rows.reward.size, 1))  # stays 0 if there are no rows
            return
        starts = user_starts(rows.clusters.together(rows.clusters.codes))
        rewarded = np.logical_or.reduceat(rows.clusters.together(rows.reward != 0.0), starts)  # by user
        lengths = np.diff(np.append(starts, rows.reward.size))
        self.users += starts.size
        self.rewarded_users += int(np.count_nonzero(rewarded))
        self.user_rows_max = max(self.user_rows_max, int(np.max(lengths)))

    def _update_extremes(self, rows: Rows) -> None:
        """Update least and largest values, and the number of rows with the least propensity."""
        least = float(np.min(rows.propensity))
        if least < self.propensity_min:
            self.propensity_min = least
            self.least_propensity_rows = 0
        self.least_propensity_rows += int(np.count_nonzero(rows.propensity == self.propensity_min))
        self.reward_min = min(self.reward_min, float(np.min(rows.reward)) + self.shift)
        self.reward_max = max(self.reward_max, float(np.max(rows.reward)) + self.shift)
        self.weight_max = max(self.weight_max, float(np.max(rows.weight)))

    def __add__(self, other: PolicySums) -> PolicySums:
        """Return the sums of both blocks of rows, which have no user in common."""
        assert (self.shift, self.clustered) == (other.shift, other.clustered)
        both = PolicySums(self.shift, self.clustered, self.thinned, by_user=self.by_user + other.by_user)
        if self.missing is not None and other.missing is not None:
            both.missing = self.missing + other.missing
        for name in _COUNTS:
            setattr(both, name, getattr(self, name) + getattr(other, name))
        for name, least_or_largest in _EXTREMES.items():
            setattr(both, name, least_or_largest(getattr(self, name), getattr(other, name)))
        # Rows of a block whose least propensity is larger are not rows with the least one.
        with_least = [sums for sums in (self, other) if sums.propensity_min == both.propensity_min]
        both.least_propensity_rows = sum(sums.least_propensity_rows for sums in with_least)
        return both

    @property
    def unit(self) -> str:
        """The unit of independence in words, for the name of an interval's method."""
        return "by user" if self.clustered else "by row"

    @property
    def grouped(self) -> bool:
        """Return whether some user has several rows."""
        return self.clustered and self.users < self.rows

    @property
    def mean_weight(self) -> float:
        """The mean weight, whose expectation is 1 if propensities are right and the log supports the target."""
        return self.by_user.total("weight") / self.rows

    @property
    def mean_weight_error(self) -> float:
        """The standard error of the mean weight, clustered by user."""
        return self._error(self.by_user, "weight")

    def _error(self, sums: UserSums, name: str) -> float:
        """Return the standard error, clustered by user, of a column's mean over rows."""
        # Bessel's correction for the number of users.
        correction = self.users / max(self.users - 1.0, 1.0)
        return math.sqrt(sums.centred(name, self.rows) * correction) / self.rows

    @property
    def ess(self) -> float:
        """Kish's effective sample size (sum w)^2 / sum w^2; 0 if every weight is 0."""
        squares = self.by_user.total("squared weight")
        if squares > 0.0:
            return self.by_user.total("weight") ** 2 / squares
        return 0.0

    def missing_mass(self) -> tuple[float, float] | None:
        """Return the target's mean probability of actions that the log never takes, and its standard error by user.

        Returns None if that probability is not known.
        """
        if self.missing is None:
            return None
        error = self._error(self.missing, "missing") if self.users > 1 else 0.0
        return self.missing.total("missing") / self.rows, error

    def deviations(self, sums: UserSums, form: Form) -> Deviations:
        """Return moments of the users' deviations from an estimate, each deviation being ``form`` of the user's sums.

        Fourth moments are 0 if the sums are of degree 2, third ones always: Student's limits need neither.
        """
        second = sums.product(form, form)
        fourth = 0.0
        # A remainder as small as the rounding errors of the terms that cancel is no variance.
        if second <= ROUNDING * math.fsum(c * c * sums.squares(name) for name, c in form.items()):
            second = 0.0
        elif sums.degree == 4:
            fourth = max(sums.product(form, form, form, form), 0.0)
        return Deviations(second=second, third=0.0, fourth=fourth, users=self.users, rewarded_users=self.rewarded_users)


_COUNTS = ("rows", "users", "rewarded", "rewarded_users", "supported", "denied", "sure", "sure_rewarded")
"""Fields of :class:`PolicySums` that add up over blocks."""
_EXTREMES = {
    "propensity_min": min,
    "reward_min": min,
    "reward_max": max,
    "weight_max": max,
    "user_rows_max": max,
}
"""Fields of :class:`PolicySums` whose least or largest value over blocks counts."""


def refuse_overflow(rows: Rows) -> None:
    """Raise UserError for the row whose weight or reward made a sum of fourth powers overflow."""
    row = int(np.argmin(rows.propensity))
    if rows.propensity[row] > 1e-60:  # fourth powers of the weights are finite, so a reward is the cause
        row = int(np.argmax(np.abs(rows.reward)))
        raise UserError(
            f"column 'reward', row {row} (counted from 0): {rows.reward[row]:g} is too large; use larger units"
        )
    raise UserError(
        f"column 'propensity', row {row} (counted from 0): {rows.propensity[row]:g} makes a weight too large to be "
        "summed; drop the row or correct the value"
    )


# ------------------------------------------------------------------------------------------------------- scores, summed


@dataclass
class LeftOut:
    """Probability mass that an estimator ignores or adds because it uses weights u in place of w = target / propensity.

    Below, r is the reward and q the reward model's prediction for the logged action, 0 without a model.

    Attributes:
        by_user: sums of min(w, u) ("kept"), (w - u)+ ("excess"), (u - w)+ ("more") and of their products with r
            ("... earned") and q ("... model"). Sums of "more" and of q are there only if there is a model or some u is
            above w.
        rows_cut: number of rows with u below w.
        largest_excess: largest (w - u)+.
        largest_more: largest (u - w)+.
        model_min: least q.
        model_max: largest q.
    """

    by_user: UserSums
    rows_cut: int = 0
    largest_excess: float = 0.0
    largest_more: float = 0.0
    model_min: float = 0.0
    model_max: float = 0.0

    PLAIN = ("rows", "weight", "kept", "excess", "excess earned")
    MODELLED = (*PLAIN, "more", "more earned", "excess model", "more model")

    @staticmethod
    def of(rows: Rows, used: Floats, *, counts: bool) -> LeftOut:
        """Sum all rows of a log, or a block of whole users.

        Args:
            rows: checked columns.
            used: (n,) the weights u.
            counts: whether the estimator's scores are weight times reward, without its reward model.
        """
        kept = np.minimum(rows.weight, used)
        excess = rows.weight - kept
        more = used - kept
        model = np.zeros(kept.size)
        modelled = bool(np.any(more > 0.0))
        if rows.q_logged is not None and not counts:
            model = rows.q_logged
            modelled = True
        names: tuple[str, ...] = LeftOut.PLAIN
        columns = [np.ones(kept.size), rows.weight, kept, excess, excess * rows.reward]
        if modelled:
            names = LeftOut.MODELLED
            columns += [more, more * rows.reward, excess * model, more * model]
        columns += [rows.reward, rows.reward * rows.reward]  # those that are only summed are last
        sum_only = ("reward", "squared reward")
        sums = UserSums.of(names, columns, rows.clusters, sum_only, degree=2)
        return LeftOut(
            by_user=sums,
            rows_cut=int(np.count_nonzero(excess)),
            largest_excess=float(np.max(excess)),
            largest_more=float(np.max(more)),
            model_min=float(np.min(model)),
            model_max=float(np.max(model)),
        )

    def __add__(self, other: LeftOut) -> LeftOut:
        """Return the sums of both blocks of rows, which have no user in common."""
        return LeftOut(
            by_user=self.by_user + other.by_user,
            rows_cut=self.rows_cut + other.rows_cut,
            largest_excess=max(self.largest_excess, other.largest_excess),
            largest_more=max(self.largest_more, other.largest_more),
            model_min=min(self.model_min, other.model_min),
            model_max=max(self.model_max, other.model_max),
        )

    def hidden(self, policy: PolicySums, reach: float, level: float, *, usual: bool) -> tuple[float, float]:
        """Bound the bias of an estimate with the weights u: how far the value may be below and above its mean.

        The bias is E[(w - u)(r - q)]. If q is nowhere negative, the bias is between -E[(w - u)+ q] - E[(u - w)+ r] and
        E[(w - u)+ r] + E[(u - w)+ q], and the upper limit of each of the four means is taken. If q is negative
        somewhere, the range of r - q times the upper limits of E[(w - u)+] and E[(u - w)+] is taken.

        For r in [0, r_max], E[(w - u)+ r] is at most r_max E[(w - u)+] <= r_max (1 - E[min(w, u)]) (Bottou et al. 2013,
        eq. 12-13), which holds even if the log lacks actions that the target takes. Unless the mean weight contradicts
        support, the gamma upper limits of r_max E[(w - u)+] and of E[(w - u)+ r] hold too, and the smallest of the
        three bounds is taken. Every limit is one-sided at half of 1 - level, clustered by user.

        Args:
            policy: sums of the same rows.
            reach: r_max, the largest reward that is possible even if the log does not show it; inf if unbounded.
            level: nominal coverage.
            usual: whether one more reward is assumed to have the typical size of the log's rewards, rather than r_max.

        Returns:
            The largest distance of the value below the estimate's mean.
            The largest distance above it.
        """
        modelled = len(self.by_user.names) > len(self.PLAIN)
        if math.isinf(reach):
            below = reach if modelled else 0.0  # without a model, changed weights can only lose rewards
            return below, reach
        limits = _MeanLimits(self.by_user, policy, level)
        kept_low = limits.mean("kept") - limits.normal_reach("kept")
        supported = limits.mean("weight") + limits.normal_reach("weight") >= 1.0
        missing = min(max(1.0 - kept_low, 0.0), 1.0)
        if supported:
            missing = min(missing, limits.gamma("excess", self.largest_excess))
        if modelled and self.model_min < 0.0:
            up = max(reach - self.model_min, 0.0)  # largest r - q
            down = max(self.model_max, 0.0)  # largest q - r
            added = limits.gamma("more", self.largest_more)
            return down * missing + added * up, up * missing + added * down

        def lost(name: str, largest: float, one_more: float) -> float:
            """Bound the mean of (w - u)+ times a factor: at most ``largest``, and ``one_more`` in one more row."""
            if largest <= 0.0:
                return 0.0
            if supported:
                return min(largest * missing, limits.gamma(name, self.largest_excess * one_more))
            return largest * missing

        one_reward = reach
        rewards = self.by_user.total("reward")
        if usual and rewards > 0.0:
            one_reward = self.by_user.total("squared reward") / rewards  # mean size of a reward, weighted by itself
        below = 0.0
        above = lost("excess earned", largest=reach, one_more=one_reward)
        if modelled:
            below = lost("excess model", largest=self.model_max, one_more=self.model_max)
            below += limits.gamma("more earned", self.largest_more * reach)
            above += limits.gamma("more model", self.largest_more * self.model_max)
        return below, above


@dataclass(frozen=True)
class _MeanLimits:
    """Upper limits, clustered by user, of the mean over rows of columns that are not negative.

    Attributes:
        sums: sums of the columns.
        policy: sums of the same rows, for the numbers of rows and users.
        level: two-sided nominal coverage; each limit is missed with half of 1 - level.
    """

    sums: UserSums
    policy: PolicySums
    level: float

    def mean(self, name: str) -> float:
        """Return a column's mean over rows."""
        return self.sums.total(name) / self.policy.rows

    def _variance(self, squares: float) -> float:
        """Return the variance of a mean from a sum of squares over users, corrected for few users."""
        return squares / self.policy.rows**2 * small_sample_factor(self.policy.users, self.level)

    def normal_reach(self, name: str) -> float:
        """Return the distance from a column's mean to its normal limit."""
        from scipy.special import ndtri

        quantile = float(ndtri(1.0 - (1.0 - self.level) / 2.0))
        return quantile * math.sqrt(self._variance(self.sums.centred(name, self.policy.rows)))

    def gamma(self, name: str, step: float) -> float:
        """Return the gamma upper limit of a column's mean if one more row adds at most ``step`` to the sum."""
        variance = self._variance(max(self.sums.squares(name), 0.0))
        return gamma_limits(self.mean(name), variance, step / self.policy.rows, self.level)[1]


@dataclass
class ScoreSums:
    """Sums by user of an estimator's row scores; the estimate is mean(linear) + sum(numerator) / sum(denominator).

    Attributes:
        policy: sums of the same rows' weights and rewards.
        by_user: sums of 1 ("rows") and of the parts that the estimator has.
        linear: name of the part that is averaged over rows, in ``by_user``; "" for none.
        numerator: name of the numerator of the ratio of sums; "" for none.
        denominator: name of the denominator of the ratio of sums; "" for none.
        positive: whether no row's contribution to the estimate can be negative.
        modelled: whether the estimator uses a reward model.
        slope: largest amount that a row's score subtracts per unit of weight.
        left_out: probability mass that changed weights ignore; None if the weights are target / propensity.
        warnings: findings that the estimator's own function reported.
    """

    policy: PolicySums
    by_user: UserSums
    linear: str
    numerator: str
    denominator: str
    positive: bool
    modelled: bool = False
    slope: float = 0.0
    left_out: LeftOut | None = None
    warnings: tuple[Finding, ...] = ()

    @staticmethod
    def of(scores: Scores, rows: Rows, policy: PolicySums) -> ScoreSums:
        """Sum all rows of a log, or a block of whole users.

        Args:
            scores: the estimator's row scores.
            rows: the rows that they were computed from.
            policy: sums of these rows' weights and rewards.
        """
        parts: dict[str, Floats] = {}
        for part in ("linear", "numerator", "denominator"):
            values = getattr(scores, part)
            if values is not None:
                parts[part] = values
        # The scores of ips and snips are the very arrays of weights and weighted rewards, which are summed already;
        # they are recognised by identity.
        policy_columns = {id(rows.weight): "weight", id(rows.earned): "earned"}
        if all(id(values) in policy_columns for values in parts.values()):
            sums = policy.by_user
            names = {part: policy_columns[id(values)] for part, values in parts.items()}
        else:
            columns = [np.ones(rows.reward.size), *parts.values()]
            sums = UserSums.of(("rows", *parts), columns, rows.clusters, degree=policy.by_user.degree)
            names = {part: part for part in parts}
        left_out = None
        if scores.used is not None and not scores.other_weights:
            left_out = LeftOut.of(rows, scores.used, counts=scores.counts)
        slope = scores.slope
        if rows.q_logged is not None:  # dr subtracts q_logged per unit of weight
            slope = max(float(np.max(rows.q_logged)), 0.0)
        return ScoreSums(
            policy,
            sums,
            linear=names.get("linear", ""),
            numerator=names.get("numerator", ""),
            denominator=names.get("denominator", ""),
            positive=scores.counts or scores.linear is None,
            modelled=rows.q_target is not None,
            slope=slope,
            left_out=left_out,
            warnings=scores.warnings,
        )

    def __add__(self, other: ScoreSums) -> ScoreSums:
        """Return the sums of both blocks of rows, which have no user in common."""
        left_out = self.left_out
        if left_out is not None and other.left_out is not None:
            left_out = left_out + other.left_out
        policy = self.policy + other.policy
        return replace(self, policy=policy, by_user=self.by_user + other.by_user, left_out=left_out)

    @staticmethod
    def weighted(policy: PolicySums, *, ratio: bool) -> ScoreSums:
        """Return the score sums of ips, or of snips if ``ratio``, without another pass over the rows."""
        if ratio:
            linear = ""
            numerator = "earned"
            denominator = "weight"
        else:
            linear = "earned"
            numerator = denominator = ""
        return ScoreSums(policy, policy.by_user, linear, numerator, denominator, positive=True)

    @property
    def mean(self) -> float:
        """The mean of the linear part over rows; 0 without a linear part."""
        if self.linear:
            return self.by_user.total(self.linear) / self.policy.rows
        return 0.0

    @property
    def _denominator_total(self) -> float:
        """The sum of the denominator; 0 without a denominator."""
        return self.by_user.total(self.denominator) if self.denominator else 0.0

    @property
    def ratio(self) -> float:
        """The ratio of the sums of numerator and denominator; 0 without a denominator."""
        divisor = self._denominator_total
        if divisor != 0.0:
            return self.by_user.total(self.numerator) / divisor
        return 0.0

    @property
    def value(self) -> float:
        """The estimate, minus the reward ``policy.shift`` that was subtracted from all rewards."""
        return self.mean + self.ratio

    @property
    def share_clipped(self) -> float | None:
        """The share of rows whose weight the estimator lowers; None if it uses target / propensity."""
        if self.left_out is None:
            return None
        return self.left_out.rows_cut / self.policy.rows

    def influence(self) -> dict[str, float]:
        """Return the influence function of the estimate (delta method) as a linear form of a user's sums.

        Its value for a user is the first-order change of the estimate by that user, times the number of rows.
        """
        form = dict.fromkeys(self.by_user.names, 0.0)
        if self.linear:
            form[self.linear] += 1.0
            form["rows"] -= self.mean
        divisor = self._denominator_total
        if divisor != 0.0:
            form[self.numerator] += self.policy.rows / divisor
            form[self.denominator] -= self.policy.rows / divisor * self.ratio
        return form

    def limits(self, reach: float, level: float) -> Limits:
        """Return Student's limits, clustered by user; on a log scale if the estimate and all its parts are positive.

        If no row that the target could take has a reward, the upper limit is that of a Poisson count of 0:
        -log((1 - level) / 2) rewards of size ``reach`` at the largest weight.
        """
        policy = self.policy
        value = self.value
        deviations = policy.deviations(self.by_user, self.influence())
        if self.positive and value == 0.0 and deviations.second == 0.0:
            high = -math.log((1.0 - level) / 2.0) * policy.weight_max * reach / policy.rows
            return Limits(Interval(0.0, high, f"no reward seen, {policy.unit}"), carrying=0.0, error=0.0)
        return Limits.of(deviations, value, policy, level, log_scale=self.positive and value > 0.0)


@dataclass(frozen=True)
class Limits:
    """Confidence limits of a value, from which ``policy.shift`` has been subtracted like from the rewards.

    Attributes:
        interval: interval, clustered by user.
        carrying: effective number of users that the variance comes from.
        error: standard error.
    """

    interval: Interval
    carrying: float
    error: float

    @staticmethod
    def of(deviations: Deviations, value: float, policy: PolicySums, level: float, *, log_scale: bool) -> Limits:
        """Compute Student's limits of a mean over rows from the users' deviations."""
        n = float(policy.rows)
        low, high = deviations.limits(value, n, level, log_scale=log_scale)
        method = f"Student {policy.unit}"
        if log_scale:
            method += ", log scale"
        return Limits(Interval(low, high, method), deviations.carrying, deviations.error(n))
