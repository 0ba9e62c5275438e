"""Summarise importance weights, their tolerance to errors, and whether segments depend on what was recommended."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, printable
from recsim_mnar.estimators.checks import mean_weight_limits
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.intervals import gamma_limits, small_sample_factor
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import written
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Clusters, Floats, Ints


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
    """

    policy: str
    rows: int
    mean: float
    largest: float
    effective: float
    zero: float
    clipped: float
    mass_clipped: float


def weight_distribution(policy: str, weight: Floats, clip: float | None = None) -> WeightDistribution:
    """Summarise a policy's weights.

    Args:
        policy: name of the policy.
        weight: (n,) weight target / propensity of each row.
        clip: largest weight of the clipped estimators; None for no clipping.
    """
    clipped = weight[weight > (np.inf if clip is None else clip)]
    rows = max(weight.size, 1)
    total = float(weight.sum())
    squares = float(weight @ weight)
    mass_clipped = 0.0
    if clip is not None and clipped.size:
        mass_clipped = float((clipped - clip).sum()) / total
    return WeightDistribution(
        policy=policy,
        rows=weight.size,
        mean=total / rows,
        largest=float(weight.max(initial=0.0)),
        effective=total**2 / squares if squares > 0.0 else 0.0,
        zero=(weight.size - np.count_nonzero(weight > 0.0)) / rows,
        clipped=clipped.size / rows,
        mass_clipped=mass_clipped,
    )


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


MOST = 100
"""Largest number of segments that are estimated."""
FIXED = 0.99
"""Joint two-sided level of the tests of mean weights that refuse a column: at most one in 200 columns that were fixed
before the recommendation is refused by chance."""
CERTAIN = 20
"""Number of users of a segment from which it is no chance that all its rows have a reward while most rows of the log
have none, or the opposite."""
THIN = 30
"""Number of users below which a segment has no interval: at the high level that joint intervals need, it would miss too
often."""
NOT_FIXED, TOO_MANY = "segment_not_fixed", "too_many_segments"
"""Codes of reasons to refuse a column."""


class RefusedColumnError(UserError):
    """Raised for a column that cannot define segments; estimates of all rows do not depend on it.

    Attributes:
        column: name of the column.
        code: reason, :data:`NOT_FIXED` or :data:`TOO_MANY`.
    """

    def __init__(self, message: str, column: str = "", code: str = NOT_FIXED) -> None:
        super().__init__(message, code=code)
        self.column = column

    @staticmethod
    def of(column: str, code: str = NOT_FIXED, **params: Any) -> RefusedColumnError:
        """Create the error with the text of ``findings.toml``; ``params`` are parameters of that text."""
        return RefusedColumnError(printable(f"--by {column}: {written(code, 'says', params)}"), column, code)

    def to_dict(self) -> Mapping[str, object]:
        """Convert to JSON types."""
        return {"by": self.column, "code": self.code, "message": str(self)}


@dataclass(frozen=True)
class Segments:
    """Rows grouped by the values of a column, the largest group first and rows without a value last.

    Attributes:
        column: name of the column.
        names: value of the column in each segment; None for the segment of rows without a value.
        rows: numbers of each segment's rows, in ascending order.
    """

    column: str
    names: tuple[str | None, ...]
    rows: tuple[Ints, ...]

    @staticmethod
    def of(column: str, codes: Ints, values: Any) -> Segments:
        """Group rows into segments.

        Args:
            column: name of the column.
            codes: (n,) index of each row's value in ``values``; -1 for rows without a value.
            values: distinct values of the column.

        Raises:
            RefusedColumnError: more than :data:`MOST` segments.
        """
        used, sizes = np.unique(codes, return_counts=True)
        if used.size > MOST:
            raise RefusedColumnError.of(column, TOO_MANY, number=used.size, most=MOST)
        # A stable sort by code puts the rows of each segment next to each other, in ascending order.
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(sizes)
        rows_of = {int(code): order[end - size : end] for code, size, end in zip(used, sizes, ends, strict=True)}
        # Code -1, of rows without a value, is last; ties in size are broken by code.
        by_size = sorted(rows_of, key=lambda code: (code < 0, -rows_of[code].size, code))
        names = tuple(None if code < 0 else str(values[code]) for code in by_size)
        return Segments(column, names, tuple(rows_of[code] for code in by_size))

    def where(self, value: str | None) -> str:
        """Describe a segment within a sentence."""
        if value is not None:
            return f"where {self.column} is {value}"
        return f"where {self.column} has no value"

    def __iter__(self) -> Iterator[tuple[str | None, Ints]]:
        """Iterate over pairs of a segment's value and the numbers of its rows."""
        return iter(zip(self.names, self.rows, strict=True))


@dataclass(frozen=True)
class SegmentTest:
    """Test whether a column of segments was fixed before the recommendation, by mean weights within segments.

    If it was, E[w | segment] is 1 for any policy. Without support the mean is smaller, so a mean below 1 counts as a
    proof only if the user states support and a bound of the weights.

    Attributes:
        reward: (n,) rewards.
        propensity: (n,) propensities.
        users: user of each row; None if rows are independent.
        targets: (n,) each policy's probability of the logged action, by policy.
        missing: (n,) each policy's probability of actions whose logging probability is 0, by policy, if it is known.
        action: (n,) numbers of the items shown, from 0; None if they are not known.
        facts: facts about the log that the user states.
    """

    reward: Floats
    propensity: Floats
    users: Clusters | None
    targets: Mapping[str, Floats]
    missing: Mapping[str, Floats]
    action: Ints | None
    facts: Facts

    def refuse(self, segments: Segments) -> None:
        """Refuse a column of segments that depends on what was recommended.

        The test uses each policy's weights and, if the items shown are known, those of a policy that shows the items
        that are too frequent in a segment. That policy is chosen on half of the users and tested on the other half.
        Policies whose mean weight is wrong in the whole log are left out: their propensities are wrong, which verdicts
        report.

        Raises:
            RefusedColumnError: a mean weight is proved not to be 1, at the joint level :data:`FIXED` for all segments,
                policies and items; or a segment determines the reward.
        """
        self._refuse_outcomes(segments)
        # Each segment has one test per policy, and two of items, one for each half of the users.
        level = 1.0 - (1.0 - FIXED) / (len(segments.names) * (len(self.targets) + 2))
        all_rows = np.arange(self.propensity.size)
        sound = [name for name in self.targets if not self._wrong_mean_of_policy(name, all_rows, level)]
        test_items = self.action is not None and not self._wrong_mean_of_items(all_rows, level)
        for value, rows in segments:
            descriptions = [f"the mean weight of {name} is" for name in sound]
            wrong_means = [self._wrong_mean_of_policy(name, rows, level) for name in sound]  # None: not proved wrong
            if test_items:
                descriptions.append("the items shown there have a mean weight of")
                wrong_means.append(self._wrong_mean_of_items(rows, level))
            for words, mean in zip(descriptions, wrong_means, strict=True):
                if mean is not None:
                    mean_text, expected_text = told_apart(mean, 1.0)
                    params = {"where": segments.where(value), "what": words, "said": mean_text, "wanted": expected_text}
                    raise RefusedColumnError.of(segments.column, says="weights", **params)

    def _refuse_outcomes(self, segments: Segments) -> None:
        """Refuse a column that is made from rewards, which a segment whose rows all differ from most rows shows.

        Raises:
            RefusedColumnError: a segment of :data:`CERTAIN` users in which all rows are rewarded while most rows of the
                log are not, or none while most are.
        """
        rewarded = self.reward > self.reward.min()
        most_are_rewarded = bool(rewarded.mean() > 0.5)
        for value, rows in segments:
            users = rows
            if self.users is not None:
                users = np.unique(self.users.codes[rows])
            if users.size >= CERTAIN and np.all(rewarded[rows] != most_are_rewarded):
                if most_are_rewarded:
                    what = f"none of the {rows.size:,} rows is"
                else:
                    what = f"all {rows.size:,} rows are"
                raise RefusedColumnError.of(segments.column, says="rewards", where=segments.where(value), what=what)

    def _wrong_mean_of_policy(self, name: str, rows: Ints, level: float) -> float | None:
        """Return a policy's mean weight on some rows if it is proved wrong, else None."""
        missing = self.missing.get(name)
        missing_mass = 0.0
        if missing is not None:
            missing_mass = float(np.mean(missing[rows]))
        weights = self.targets[name] / self.propensity
        return self._wrong_mean(self.targets[name][rows], rows, level, missing_mass, self.facts, weights)

    def _wrong_mean_of_items(self, rows: Ints, level: float) -> float | None:
        """Test a policy that shows the items that are too frequent in half of the users, on the other half.

        Both halves take both roles.

        Returns:
            The mean weight of the first policy for which it is proved to be above 1, else None.
        """
        assert self.action is not None
        if self.users is None:
            user = np.arange(rows.size)  # each row counts as a user
        else:
            user = self.users.dense()[0][rows]
        for half in (0, 1):
            fitted = rows[user % 2 == half]
            tested = rows[user % 2 != half]
            probabilities = _too_frequent_items(self.action[fitted], self.propensity[fitted])
            if probabilities.any() and tested.size:
                # Items with larger numbers are in the other half only, and the policy never shows them.
                unseen = np.zeros(self.action.max() + 1 - probabilities.size)
                target = np.append(probabilities, unseen)[self.action[tested]]
                mean = self._wrong_mean(target, tested, level, missing_mass=0.0, facts=Facts())
                if mean is not None:
                    return mean
        return None

    def _wrong_mean(
        self,
        target: Floats,
        rows: Ints,
        level: float,
        missing_mass: float,
        facts: Facts,
        weights_in_log: Floats | None = None,
    ) -> float | None:
        """Return a policy's mean weight on some rows if it is proved to differ from 1 - missing_mass, else None.

        Args:
            target: (m,) the policy's probabilities of the logged actions.
            rows: (m,) numbers of the rows.
            level: two-sided level of the proof.
            missing_mass: mean probability of actions that the log never takes.
            facts: stated facts; a mean that is too small counts only if they include support.
            weights_in_log: (n,) the policy's weights in the whole log, needed if a mean that is too small counts.
        """
        cluster = None
        if self.users is not None:
            cluster = self.users.at(rows)
        sums = PolicySums.of(self.propensity[rows], target, cluster)
        # A segment may have a handful of users, at a level far in the tail.
        low, high = mean_weight_limits(sums, level, degrees=sums.users - 1.0)
        if facts.supports and high < 1.0 and weights_in_log is not None:
            # The mean may be small because the heaviest weights are not among the segment's few rows.
            variance = sums.mean_weight_error**2 * small_sample_factor(sums.users, level)
            heaviest = float(np.max(weights_in_log)) / rows.size
            high = max(high, gamma_limits(sums.mean_weight, variance, heaviest, level)[1])
        # Without support the log may lack actions of the target, and then a mean below 1 is no error.
        too_small = facts.supports and high + missing_mass < 1.0
        if low + missing_mass > 1.0 or too_small:
            return sums.mean_weight
        return None


def _too_frequent_items(action: Ints, propensity: Floats) -> Floats:
    """Return the item probabilities of a policy that shows the items logged more often than their propensities say.

    For a right propensity the mean over rows of 1{item} / propensity is at most 1. An item's probability is
    proportional to its excess over 1 divided by its variance, which gives the test of the mean weight much power.

    Args:
        action: (n,) numbers of the items shown.
        propensity: (n,) their propensities.

    Returns:
        (largest item number + 1,) probabilities; zeros if no item has an excess.
    """
    weight = 1.0 / propensity
    total = np.bincount(action, weight)
    squares = np.bincount(action, weight**2)
    probabilities = np.maximum(total - action.size, 0.0) / np.maximum(squares, 1e-300)  # 1e-300 avoids 0 / 0
    if probabilities.any():
        return probabilities / probabilities.sum()
    return probabilities
