"""Summarise weights and their tolerance to errors, and test whether a column of segments was fixed before."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, printable
from recsim_mnar.estimators.checks import mean_weight_limits
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import written
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Clusters, Floats, Ints

MOST_BINS = 40
"""Most bins of a distribution."""
_AN_OCTAVE = 32
"""Bins per octave in which numbers are counted before bins are merged."""


class RatioBins:
    """Counts of numbers in bins of equal ratios; the counts do not depend on how numbers come in blocks."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}

    def extend(self, positive: NDArray[np.float64]) -> None:
        """Count numbers (n,), all of them above 0 and finite."""
        places, counts = np.unique(np.floor(_AN_OCTAVE * np.log2(positive)).astype(np.int64), return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            self.counts[place] = self.counts.get(place, 0) + count

    def joined(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Return edges (b + 1,) and counts (b,), with neighbours merged to at most :data:`MOST_BINS` bins."""
        if not self.counts:
            return (), ()
        wide = -(-(max(self.counts) - min(self.counts) + 1) // (MOST_BINS - 1))
        first = min(self.counts) // wide
        last = max(self.counts) // wide
        counts = [0] * (last - first + 1)
        for place, count in self.counts.items():
            counts[place // wide - first] += count
        edges = np.exp2(np.arange(first, last + 2) * (wide / _AN_OCTAVE))
        return tuple(edges.tolist()), tuple(counts)


@dataclass(frozen=True)
class WeightDistribution:
    """Distribution of a policy's weights target / propensity.

    Attributes:
        policy: name of the policy.
        rows: number of weights.
        mean: mean weight, which should be 1.
        largest: largest weight.
        effective: Kish's effective sample size, (sum w)^2 / sum w^2; 0 if every weight is 0.
        zero: share of rows with weight 0.
        clipped: share of rows above the clip.
        mass_clipped: share of the weights' sum that clipping removes.
        edges: (b + 1,) edges of the bins, in equal ratios; none if every weight is 0.
        counts: (b,) rows per bin; rows of weight 0 are in none.
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
        """Return JSON types."""
        return {**vars(self), "edges": list(self.edges), "counts": list(self.counts)}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> WeightDistribution:
        """Read the result of :meth:`to_dict`."""
        return WeightDistribution(**{**values, "edges": tuple(values["edges"]), "counts": tuple(values["counts"])})


class WeightTally:
    """Accumulates the distribution of weights block by block, in constant memory.

    Args:
        clip: largest weight of the clipped estimators, None for none.
    """

    def __init__(self, clip: float | None = None) -> None:
        if clip is None:
            self.clip = np.inf
        else:
            self.clip = clip
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
        if above.size:
            self.off += float((above - self.clip).sum())
        self.largest = max(self.largest, float(weight.max()))
        self.bins.extend(positive)

    def distribution(self, policy: str) -> WeightDistribution:
        """Return the distribution of all weights so far, under a policy's name."""
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
    """Compute the distribution of a policy's weights.

    Args:
        policy: name of the policy.
        weight: (n,) target / propensity of each row.
        clip: largest weight of the clipped estimators, None for none.
    """
    tally = WeightTally(clip)
    tally.extend(weight)
    return tally.distribution(policy)


def propensity_tolerance(end: float, today: float) -> float:
    """Return the factor by which every propensity may be off before ``snips`` of 0/1 rewards reaches today's value.

    Propensities that are off by a factor of at most G change weights by as much, and so the odds of the self-normalised
    mean by at most G^2. The factor is the root of the ratio of odds.

    Args:
        end: the end of the interval that is nearer to today's value: the lower one of a policy that is better, the
            upper one of one that is worse.
        today: the mean reward of the log, strictly between 0 and 1 as ``end``, or one of them 0 or 1.

    Returns:
        1 and more, inf where one of the two is 0 or 1 and the other is not.

    Raises:
        UserError: no probabilities.
    """
    for value, name in ((end, "end"), (today, "today")):
        if not 0.0 <= value <= 1.0:
            raise UserError(f"{name} must be in [0, 1], the mean of 0/1 rewards, got {value!r}")
    if end == today:
        return 1.0
    high = max(end, today)
    low = min(end, today)
    below = low * (1.0 - high)
    if below > 0.0:
        return math.sqrt(high * (1.0 - low) / below)
    return math.inf


def weight_tolerance(
    reward: Floats, propensity: Floats, target: Floats, *, today: float, half_width: float, worse: bool = False
) -> float:
    """Compute :func:`propensity_tolerance` for any rewards: by the extremes of sum(g w r) / sum(g w), g in [1/G, G].

    The least of these ratios is the v at which sum(g w (r - v)) has the least value 0: g is G where r < v and 1/G where
    r > v (Zhao, Small & Bhattacharya 2019, who sort the rewards to find v for a given G). The G for a given v needs no
    sorting: it is the root of sum w (r - v)+ over sum w (v - r)+. The interval's half width is taken off,
    as if it did not depend on G: v is today's value plus it.

    Args:
        reward: (n,) any real numbers.
        propensity: (n,) in (0, 1].
        target: (n,) in [0, 1].
        today: the mean reward of the log.
        half_width: from the value to the end of its interval that is nearer to today's value.
        worse: whether the policy is worse than today, so that the largest ratio is asked for.

    Returns:
        1 and more; 1 where the interval reaches today's value, inf where no factor brings it there.
    """
    return tolerance_of(*weight_excess(reward, propensity, target, today=today, half_width=half_width, worse=worse))


def weight_excess(
    r: Floats, p: Floats, t: Floats, *, today: float, half_width: float, worse: bool
) -> tuple[float, float]:
    """Sum w (r - v)+ and w (v - r)+ over rows, see :func:`weight_tolerance`; sums of blocks add up."""
    beyond = (t / p) * ((-1.0 if worse else 1.0) * (r - today) - half_width)
    return float(np.sum(np.maximum(beyond, 0.0))), float(np.sum(np.maximum(-beyond, 0.0)))


def tolerance_of(gain: float, loss: float) -> float:
    """Return the tolerance from the sums of :func:`weight_excess`."""
    if gain <= loss:
        return 1.0
    if loss > 0.0:
        return math.sqrt(gain / loss)
    return math.inf


MOST = 100
"""Most segments that are estimated."""
FIXED = 0.99
"""Joint level of the limits of mean weights that refuse a column: at most one fixed column in 200 by chance."""
CERTAIN = 20
"""Users of a segment from which equal rewards in all its rows, against the log's majority, are no chance."""
THIN = 30
"""Users below which a segment has no interval: at the level that many intervals share, it would miss too often."""
NOT_FIXED, TOO_MANY = "segment_not_fixed", "too_many_segments"
"""Codes of reasons to refuse a column."""


class RefusedColumnError(UserError):
    """Raised for a column that cannot define segments; estimates of all rows do not depend on it.

    Attributes:
        column: its name.
        code: :data:`NOT_FIXED` or :data:`TOO_MANY`.
    """

    def __init__(self, message: str, column: str = "", code: str = NOT_FIXED) -> None:
        super().__init__(message, code=code)
        self.column = column

    @staticmethod
    def of(column: str, code: str = NOT_FIXED, **params: Any) -> RefusedColumnError:
        """Create the error with the text of ``findings.toml``; ``params`` are parameters of that text."""
        return RefusedColumnError(printable(f"--by {column}: {written(code, 'says', params)}"), column, code)

    def to_dict(self) -> Mapping[str, object]:
        """Return JSON types."""
        return {"by": self.column, "code": self.code, "message": str(self)}


@dataclass(frozen=True)
class Segments:
    """Rows grouped by the values of a column, the largest group first and rows without a value last.

    Attributes:
        column: name of the column.
        names: values of the segments; None for the rows without one.
        rows: rows of each segment in ascending order.
    """

    column: str
    names: tuple[str | None, ...]
    rows: tuple[Ints, ...]

    @staticmethod
    def of(column: str, codes: Ints, values: Any) -> Segments:
        """Group rows into segments.

        Args:
            column: name of the column.
            codes: (n,) index of each row's value; -1 for none.
            values: all values.

        Raises:
            RefusedColumnError: more than :data:`MOST` segments.
        """
        used, sizes = np.unique(codes, return_counts=True)
        if used.size > MOST:
            raise RefusedColumnError.of(column, TOO_MANY, number=used.size, most=MOST)
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(sizes)
        rows_of = {int(code): order[end - size : end] for code, size, end in zip(used, sizes, ends, strict=True)}
        listed = sorted(rows_of, key=lambda code: (code < 0, -rows_of[code].size, code))
        names = tuple(None if code < 0 else str(values[code]) for code in listed)
        return Segments(column, names, tuple(rows_of[code] for code in listed))

    def where(self, value: str | None) -> str:
        """Describe a segment within a sentence."""
        if value is not None:
            return f"where {self.column} is {value}"
        return f"where {self.column} has no value"

    def __iter__(self) -> Iterator[tuple[str | None, Ints]]:
        return iter(zip(self.names, self.rows, strict=True))


@dataclass(frozen=True)
class Weights:
    """Test whether a column was fixed before the recommendation: then E[w | segment] = 1 for any policy.

    Without support the mean is smaller, so that a mean below 1 is a proof only if support and a bound of the weights
    are stated.

    Attributes:
        reward: (n,) rewards.
        propensity: (n,) propensities.
        users: users of the rows, or None.
        targets: by policy, (n,) its probability of the logged action.
        missing: by policy, (n,) its mass where the logging probability is 0.
        action: (n,) numbers of the items shown, from 0; None if they are not known.
        facts: known facts about the log.
    """

    reward: Floats
    propensity: Floats
    users: Clusters | None
    targets: Mapping[str, Floats]
    missing: Mapping[str, Floats]
    action: Ints | None
    facts: Facts

    def refuse(self, segments: Segments) -> None:
        """Refuse a column that depends on what was recommended.

        The test uses each policy's weights and, if the items shown are known, those of a policy that shows the items
        that are too frequent in a segment: chosen on half of the users, and tested on the others. Policies whose mean
        weight is wrong in the whole log are left out, because their propensities are wrong and verdicts say so.

        Raises:
            RefusedColumnError: a mean weight is proved not to be 1; all segments, policies and items jointly at
                :data:`FIXED`. Or the column determines the reward.
        """
        self._refuse_outcomes(segments)
        level = 1.0 - (1.0 - FIXED) / (len(segments.names) * (len(self.targets) + 2))
        everything = np.arange(self.propensity.size)
        sound = [name for name in self.targets if not self._by_policy(name, everything, level)]
        items = self.action is not None and not self._by_items(everything, level)
        for value, rows in segments:
            named = [f"the mean weight of {name} is" for name in sound]
            findings = [self._by_policy(name, rows, level) for name in sound]
            if items:
                named.append("the items shown there have a mean weight of")
                findings.append(self._by_items(rows, level))
            for words, mean in zip(named, findings, strict=True):
                if mean is not None:
                    mean_text, expected_text = told_apart(mean, 1.0)
                    params = {"where": segments.where(value), "what": words, "said": mean_text, "wanted": expected_text}
                    raise RefusedColumnError.of(segments.column, says="weights", **params)

    def _refuse_outcomes(self, segments: Segments) -> None:
        """Refuse a column with a segment in which every row is rewarded, or none while most rows are."""
        rewarded = self.reward > self.reward.min()
        usual = bool(rewarded.mean() > 0.5)
        for value, rows in segments:
            users = rows
            if self.users is not None:
                users = np.unique(self.users.codes[rows])
            if users.size >= CERTAIN and np.all(rewarded[rows] != usual):
                if usual:
                    what = f"none of the {rows.size:,} rows is"
                else:
                    what = f"all {rows.size:,} rows are"
                raise RefusedColumnError.of(segments.column, says="rewards", where=segments.where(value), what=what)

    def _by_policy(self, name: str, rows: Ints, level: float) -> float | None:
        missing = self.missing.get(name)
        lost = 0.0
        if missing is not None:
            lost = float(np.mean(missing[rows]))
        return self._off(self.targets[name][rows], rows, level, lost, self.facts)

    def _by_items(self, rows: Ints, level: float) -> float | None:
        """Return the mean weight, if proved to be above 1, of a policy chosen on half of the users, on the others."""
        assert self.action is not None
        if self.users is None:
            half = np.arange(rows.size)
        else:
            half = self.users.dense()[0][rows]
        for first in (0, 1):
            law = _too_many(self.action[rows[half % 2 == first]], self.propensity[rows[half % 2 == first]])
            rest = rows[half % 2 != first]
            if law.any() and rest.size:
                target = np.append(law, np.zeros(self.action.max() + 1 - law.size))[self.action[rest]]
                mean = self._off(target, rest, level, 0.0, Facts())
                if mean is not None:
                    return mean
        return None

    def _off(self, target: Floats, rows: Ints, level: float, lost: float, facts: Facts) -> float | None:
        """Return the mean weight on some rows if it is proved to be another than that of a fixed column."""
        sums = PolicySums.of(self.propensity[rows], target, None if self.users is None else self.users.at(rows))
        low, high = mean_weight_limits(sums, level)
        below = facts.supports and high + lost < 1.0
        if low + lost > 1.0 or below:
            return sums.mean_weight
        return None


def _too_many(action: Ints, propensity: Floats) -> Floats:
    """Return probabilities of the items with a mean of 1 / propensity above 1, by excess over variance; 0 if none."""
    weight = 1.0 / propensity
    mean = np.bincount(action, weight)
    square = np.bincount(action, weight**2)
    law = np.maximum(mean - action.size, 0.0) / np.maximum(square, 1e-300)
    if law.any():
        return law / law.sum()
    return law
