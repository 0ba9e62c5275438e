"""Sums by user from which an estimate, its interval and its checks are computed; gathered in blocks, and mergeable.

They are of a policy's weights and rewards; of an estimator's row scores (:mod:`recsim_mnar.estimators.scores`), which
are a linear part to be averaged and the numerator and denominator of a ratio of sums; and of the mass that changed
weights leave out.
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
"""Rows per chunk: blocks of rows without users give the bits of all rows where they are cut at multiples of it."""
TILE = 512
"""Rows whose products are in memory at a time."""
SURE = 0.999
"""Probability from which a target counts as sure of an action."""
Form = Mapping[str, float]
"""Coefficients of a user's sums, by name."""


@functools.cache
def _places(width: int, degree: int) -> dict[tuple[int, ...], int]:
    """Number the products of up to ``degree`` of ``width`` columns, shorter products first."""
    places: dict[tuple[int, ...], int] = {}
    for length in range(1, degree + 1):
        for product in itertools.combinations_with_replacement(range(width), length):
            places[product] = len(places)
    return places


@functools.cache
def _factors(width: int, degree: int) -> Ints:
    """Return (p, 2) places of the two factors of each product of two or more columns."""
    places = _places(width, degree)
    return np.array([(places[product[:-1]], product[-1]) for product in places if len(product) > 1])


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

    @staticmethod
    def of(
        names: Sequence[str],
        columns: Sequence[Floats],
        clusters: Clusters | None,
        others: Sequence[str] = (),
        *,
        degree: int = 4,
    ) -> UserSums:
        """Sum all rows of a log, or a block of whole users; arguments as of the class and :meth:`extend`."""
        sums = UserSums(names, others, degree=degree)
        sums.extend(columns, clusters)
        return sums

    def extend(self, columns: Sequence[Floats], clusters: Clusters | None) -> None:
        """Add the rows of whole users.

        Args:
            columns: (n,) each, in the order of the names.
            clusters: the user of each row; None where rows are independent.
        """
        from recsim_mnar.estimators import _by_user_kernel as kernels

        n = columns[0].size
        width = len(self.names)
        factors = _factors(width, self.degree)
        user = None
        if clusters is not None:
            user = clusters.together(clusters.codes)
            columns = [clusters.together(values) for values in columns]
        column_sums = np.zeros(len(columns))
        products = np.empty(self._pairs.shape[1])
        chunk = np.empty((len(columns), min(n, CHUNK)))
        tile = np.empty((width + len(factors) + 1, TILE))
        for start in range(0, n, CHUNK):
            stop = min(start + CHUNK, n)
            block = chunk[:, : stop - start]
            for place, values in enumerate(columns):
                block[place] = values[start:stop]
            if user is None:
                kernels.add_rows(block, width, factors, self._pairs, tile)
                continue
            continues = stop < n and bool(user[stop] == user[stop - 1])
            kernels.add_users(block, user[start:stop], continues, width, factors, column_sums, self._pairs, products)
        vars(self).pop("_sums", None)

    @functools.cached_property
    def _sums(self) -> list[float]:
        return [float(total) for total in self._pairs.sum(axis=0)]

    @property
    def finite(self) -> bool:
        """Return whether no sum is too large for a number."""
        return bool(np.all(np.isfinite(self._pairs)))

    def total(self, name: str) -> float:
        """Return the sum of a column."""
        if name in self.names:
            return self._sums[self.names.index(name)]
        return self._sums[self.others.index(name) - len(self.others)]

    def product(self, *forms: Form) -> float:
        """Sum over users the product of up to ``degree`` linear combinations of their sums."""
        places = _places(len(self.names), self.degree)
        terms = [[(self.names.index(name), c) for name, c in form.items() if c != 0.0] for form in forms]
        total = 0.0
        for factors in itertools.product(*terms):
            place = places[tuple(sorted(column for column, _ in factors))]
            total += math.prod(c for _, c in factors) * self._sums[place]
        return total

    def squares(self, name: str) -> float:
        """Sum over users the square of their sum of a column."""
        return self.product({name: 1.0}, {name: 1.0})

    def centred(self, name: str, rows: int) -> float:
        """Sum over users the squared sum of (value - mean over rows); the first column must be of ones."""
        form = {name: 1.0, self.names[0]: -self.total(name) / rows}
        return max(self.product(form, form), 0.0)

    def __add__(self, other: UserSums) -> UserSums:
        """Add the sums of further rows, which share no user."""
        from recsim_mnar.estimators import _by_user_kernel as kernels

        total = UserSums(self.names, self.others, degree=self.degree)
        total._pairs = self._pairs.copy()
        kernels.add_exactly(total._pairs[0], total._pairs[1], other._pairs[0])
        total._pairs[1] += other._pairs[1]
        return total


def _policy_columns(degree: int = 4) -> UserSums:
    return UserSums(("rows", "weight", "earned"), ("reward", "squared weight", "earned reward"), degree=degree)


@dataclass
class PolicySums:
    """Sums of one policy's weights and rewards, by row and by user.

    ``earned`` is weight times reward; rewards are counted from ``shift``.

    Attributes:
        shift: reward from which rewards are counted.
        clustered: whether users are known.
        thinned: whether rows have weights of their own, which then follow the rewards.
        by_user: sums of rows (1 each), weight and earned, and of their squares.
        missing: sums of the target's mass on actions whose logging probability is 0; None where it is not known.
        rows, users: their numbers; a row without a user counts as a user.
        rewarded, rewarded_users: rows and users with a reward other than ``shift``.
        supported: rows whose action the target can take.
        denied: rows that contradict a stated bound.
        sure, sure_rewarded: rows whose action the target is sure to take, and those of them with a reward.
        least_propensity_rows: rows with the least propensity.
        propensity_min, reward_min, reward_max, weight_max: extremes of the rows.
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
        """Check columns (n,) and sum their rows; rewards that are not given count as 0."""
        n = len(propensity)
        if reward is None:
            reward = np.zeros(n)
        return PolicySums.of_rows(Rows.of(reward, propensity, target, clusters=Clusters.of(cluster, n)))

    @staticmethod
    def of_rows(rows: Rows, facts: Facts | None = None, *, degree: int = 4) -> PolicySums:
        """Sum all rows of a log, or a block of whole users."""
        sums = PolicySums(rows.shift, rows.clusters is not None, np.ndim(rows.stands_for) > 0, _policy_columns(degree))
        sums.extend(rows, facts)
        return sums

    def extend(self, rows: Rows, facts: Facts | None = None) -> None:
        """Add the rows of whole users.

        Raises:
            UserError: a weight or a reward whose powers are too large for numbers.
        """
        reward = rows.reward
        weight = rows.weight
        ones = np.ones(reward.size)
        with np.errstate(over="ignore", invalid="ignore"):  # sums that overflow are refused below
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

    def _update_extremes(self, rows: Rows) -> None:
        least = float(np.min(rows.propensity))
        if least < self.propensity_min:
            self.propensity_min = least
            self.least_propensity_rows = 0
        self.least_propensity_rows += int(np.count_nonzero(rows.propensity == self.propensity_min))
        self.reward_min = min(self.reward_min, float(np.min(rows.reward)) + self.shift)
        self.reward_max = max(self.reward_max, float(np.max(rows.reward)) + self.shift)
        self.weight_max = max(self.weight_max, float(np.max(rows.weight)))

    def __add__(self, other: PolicySums) -> PolicySums:
        """Add the sums of further rows, which share no user."""
        assert (self.shift, self.clustered) == (other.shift, other.clustered)
        both = PolicySums(self.shift, self.clustered, self.thinned, self.by_user + other.by_user)
        if self.missing is not None and other.missing is not None:
            both.missing = self.missing + other.missing
        for name in _COUNTS:
            setattr(both, name, getattr(self, name) + getattr(other, name))
        for name, choose in _ENDS.items():
            setattr(both, name, choose(getattr(self, name), getattr(other, name)))
        least = [sums for sums in (self, other) if sums.propensity_min == both.propensity_min]
        both.least_propensity_rows = sum(sums.least_propensity_rows for sums in least)
        return both

    @property
    def unit(self) -> str:
        """Unit of independence, in words."""
        return "by user" if self.clustered else "by row"

    @property
    def grouped(self) -> bool:
        """Return whether users have several rows."""
        return self.clustered and self.users < self.rows

    @property
    def mean_weight(self) -> float:
        """Mean of the weights; it should be 1."""
        return self.by_user.total("weight") / self.rows

    @property
    def mean_weight_error(self) -> float:
        """Standard error of the mean weight, by user."""
        return self._error(self.by_user, "weight")

    def _error(self, sums: UserSums, name: str) -> float:
        """Return the standard error, by user, of a column's mean."""
        correction = self.users / max(self.users - 1.0, 1.0)
        return math.sqrt(sums.centred(name, self.rows) * correction) / self.rows

    @property
    def ess(self) -> float:
        """Kish's effective sample size (sum w)^2 / sum w^2; 0 where every weight is 0."""
        squares = self.by_user.total("squared weight")
        if squares > 0.0:
            return self.by_user.total("weight") ** 2 / squares
        return 0.0

    def missing_mass(self) -> tuple[float, float] | None:
        """Return mean and standard error, by user, of the target's missing mass; None where it is not known."""
        if self.missing is None:
            return None
        error = self._error(self.missing, "missing") if self.users > 1 else 0.0
        return self.missing.total("missing") / self.rows, error

    def deviations(self, sums: UserSums, form: Form) -> Deviations:
        """Return the deviations of users, which are ``form`` of their sums; fourth powers are 0 at degree 2.

        A spread that is a rounding counts as none.
        """
        second = sums.product(form, form)
        fourth = 0.0
        if second <= ROUNDING * math.fsum(c * c * sums.squares(name) for name, c in form.items()):
            second = 0.0
        elif sums.degree == 4:
            fourth = max(sums.product(form, form, form, form), 0.0)
        return Deviations(second, 0.0, fourth, self.users, self.rewarded_users)


_COUNTS = ("rows", "users", "rewarded", "rewarded_users", "supported", "denied", "sure", "sure_rewarded")
_ENDS = {
    "propensity_min": min,
    "reward_min": min,
    "reward_max": max,
    "weight_max": max,
    "user_rows_max": max,
}


def refuse_overflow(rows: Rows) -> None:
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


# ------------------------------------------------------------------------------------------------------- scores, summed


@dataclass
class LeftOut:
    """Mass left out by weights u in place of w: sums by user of min(w, u), (w - u)+, (u - w)+, and of these times r.

    Attributes:
        by_user: the sums; of a reward model q, too, where there is one or where some u is above w.
        rows_cut: rows with (w - u)+ above 0.
        largest_excess, largest_more: of (w - u)+ and of (u - w)+.
        model_min, model_max: least and largest q; 0 without a model.
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
            rows: the rows.
            used: (n,) the weights u.
            counts: whether scores are weight times reward, without a model.
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
        columns += [rows.reward, rows.reward * rows.reward]
        sums = UserSums.of(names, columns, rows.clusters, ("reward", "squared reward"), degree=2)
        extremes = (float(np.max(excess)), float(np.max(more)), float(np.min(model)), float(np.max(model)))
        return LeftOut(sums, int(np.count_nonzero(excess)), *extremes)

    def __add__(self, other: LeftOut) -> LeftOut:
        """Add the sums of further rows, which share no user."""
        return LeftOut(
            self.by_user + other.by_user,
            self.rows_cut + other.rows_cut,
            max(self.largest_excess, other.largest_excess),
            max(self.largest_more, other.largest_more),
            min(self.model_min, other.model_min),
            max(self.model_max, other.model_max),
        )

    def hidden(self, policy: PolicySums, reach: float, level: float, *, usual: bool) -> tuple[float, float]:
        """Compute how far below and above the estimate's mean the value may be.

        The bias is E[(w - u)(r - q)], q = 0 without a model. Where the model is not negative either it is between
        -E[(w - u)+ q] - E[(u - w)+ r] and E[(w - u)+ r] + E[(u - w)+ q], each of which is taken at an upper limit;
        otherwise between the ranges of r - q times E[(w - u)+] and E[(u - w)+].

        For r in [0, r_max] E[(w - u)+ r] is at most r_max E[(w - u)+] <= r_max (1 - E[min(w, u)]) (Bottou et al. 2013,
        eq. 12-13), which holds even where the log lacks actions that the target takes. Where the mean weight does not
        contradict support, the gamma upper limits of r_max E[(w - u)+] and of E[(w - u)+ r] themselves hold too; the
        smallest is taken. Every limit is one-sided at half of 1 - level, by user.

        Args:
            policy: sums of the same rows.
            reach: size of a reward that the log happens not to show.
            level: nominal coverage.
            usual: whether one more reward has the size of the log's rewards; else the largest.
        """
        modelled = len(self.by_user.names) > len(self.PLAIN)
        if math.isinf(reach):
            return reach if modelled else 0.0, reach
        limits = _MeanLimits(self.by_user, policy, level)
        kept_low = limits.mean("kept") - limits.normal_reach("kept")
        supported = limits.mean("weight") + limits.normal_reach("weight") >= 1.0
        missing = min(max(1.0 - kept_low, 0.0), 1.0)
        if supported:
            missing = min(missing, limits.gamma("excess", self.largest_excess))
        if modelled and self.model_min < 0.0:
            up = max(reach - self.model_min, 0.0)
            down = max(self.model_max, 0.0)
            added = limits.gamma("more", self.largest_more)
            return down * missing + added * up, up * missing + added * down

        def lost(name: str, largest: float, one_more: float) -> float:
            """Return the upper limit of the mean of an excess times a factor of at most ``largest``."""
            if largest <= 0.0:
                return 0.0
            if supported:
                return min(largest * missing, limits.gamma(name, self.largest_excess * one_more))
            return largest * missing

        one_reward = reach
        rewards = self.by_user.total("reward")
        if usual and rewards > 0.0:
            one_reward = self.by_user.total("squared reward") / rewards
        below = 0.0
        above = lost("excess earned", reach, one_reward)
        if modelled:
            below = lost("excess model", self.model_max, self.model_max)
            below += limits.gamma("more earned", self.largest_more * reach)
            above += limits.gamma("more model", self.largest_more * self.model_max)
        return below, above


@dataclass(frozen=True)
class _MeanLimits:
    """Upper limits by user of the mean over rows of columns that are not negative."""

    sums: UserSums
    policy: PolicySums
    level: float

    def mean(self, name: str) -> float:
        """Return a column's mean."""
        return self.sums.total(name) / self.policy.rows

    def _variance(self, squares: float) -> float:
        return squares / self.policy.rows**2 * small_sample_factor(self.policy.users, self.level)

    def normal_reach(self, name: str) -> float:
        """Return the distance from a column's mean to its normal limit."""
        from scipy.special import ndtri

        quantile = float(ndtri(1.0 - (1.0 - self.level) / 2.0))
        return quantile * math.sqrt(self._variance(self.sums.centred(name, self.policy.rows)))

    def gamma(self, name: str, step: float) -> float:
        """Return the gamma limit of a column's mean, where one more row may bring ``step``."""
        variance = self._variance(max(self.sums.squares(name), 0.0))
        return gamma_limits(self.mean(name), variance, step / self.policy.rows, self.level)[1]


@dataclass
class ScoreSums:
    """Sums by user of an estimator's row scores.

    Attributes:
        policy: sums of the same rows; they serve where the scores are weights and weighted rewards.
        by_user: sums of ones ("rows") and of the parts that the estimator has.
        linear, numerator, denominator: names of the parts; "" for none.
        positive: whether the estimate is a sum of parts that are not negative.
        modelled: whether the estimator uses a reward model.
        slope: largest amount that a row's score subtracts per unit of weight.
        left_out: mass left out by changed weights; None where they are target / propensity.
        warnings: findings of the estimator itself.
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
        """Sum all rows of a log, or a block of whole users."""
        parts: dict[str, Floats] = {}
        for part in ("linear", "numerator", "denominator"):
            values = getattr(scores, part)
            if values is not None:
                parts[part] = values
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
        if rows.q_logged is not None:
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
        """Add the sums of further rows, which share no user."""
        left_out = self.left_out
        if left_out is not None and other.left_out is not None:
            left_out = left_out + other.left_out
        policy = self.policy + other.policy
        return replace(self, policy=policy, by_user=self.by_user + other.by_user, left_out=left_out)

    @staticmethod
    def weighted(policy: PolicySums, *, ratio: bool) -> ScoreSums:
        """Return the sums of ips, or of snips if ``ratio``."""
        names = ("", "earned", "weight") if ratio else ("earned", "", "")
        return ScoreSums(policy, policy.by_user, *names, positive=True)

    @property
    def mean(self) -> float:
        """Mean of the linear part."""
        if self.linear:
            return self.by_user.total(self.linear) / self.policy.rows
        return 0.0

    @property
    def _denominator_total(self) -> float:
        return self.by_user.total(self.denominator) if self.denominator else 0.0

    @property
    def ratio(self) -> float:
        """Ratio of the sums of numerator and denominator; 0 without a denominator."""
        below = self._denominator_total
        if below != 0.0:
            return self.by_user.total(self.numerator) / below
        return 0.0

    @property
    def value(self) -> float:
        """The estimate, above the reward from which rewards are counted."""
        return self.mean + self.ratio

    def influence(self) -> dict[str, float]:
        """Return the estimate's first-order response to a user, times the number of rows, as a form of the sums."""
        form = dict.fromkeys(self.by_user.names, 0.0)
        if self.linear:
            form[self.linear] += 1.0
            form["rows"] -= self.mean
        below = self._denominator_total
        if below != 0.0:
            form[self.numerator] += self.policy.rows / below
            form[self.denominator] -= self.policy.rows / below * self.ratio
        return form

    def limits(self, reach: float, level: float) -> Limits:
        """Return Student's limits by user, on a log scale where the estimate is positive and no part is negative.

        Where the target's rows have no reward, up to -log((1 - level) / 2) of them at the largest weight.
        """
        policy = self.policy
        value = self.value
        deviations = policy.deviations(self.by_user, self.influence())
        if self.positive and value == 0.0 and deviations.second == 0.0:
            high = -math.log((1.0 - level) / 2.0) * policy.weight_max * reach / policy.rows
            return Limits(Interval(0.0, high, f"no reward seen, {policy.unit}"), 0.0, 0.0)
        return Limits.of(deviations, value, policy, level, log_scale=self.positive and value > 0.0)


@dataclass(frozen=True)
class Limits:
    """Limits of a value above the least reward.

    Attributes:
        interval: by user.
        carrying: number of users that carry the variance.
        error: standard error.
    """

    interval: Interval
    carrying: float
    error: float

    @staticmethod
    def of(deviations: Deviations, value: float, policy: PolicySums, level: float, *, log_scale: bool) -> Limits:
        """Compute Student's limits of a mean over rows."""
        n = float(policy.rows)
        low, high = deviations.limits(value, n, level, log_scale=log_scale)
        method = f"Student {policy.unit}"
        if log_scale:
            method += ", log scale"
        return Limits(Interval(low, high, method), deviations.carrying, deviations.error(n))
