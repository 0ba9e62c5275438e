"""Refuters: tests that can prove a log, or the columns that were read from it, wrong (docs/verdict.md#refuters).

Errors that each of them can detect:

- ``item_propensities``: items' probabilities changed after scoring (rules, stock); rows lost or kept by their reward;
  with a context column, probabilities changed by context.
- ``earlier_rewards``: rewards that are in the row before the one they belong to.
- ``tastes``: propensities that ignore information that the logging policy had about its users.
- ``halves``: rewards that changed while the log was written.
- ``refit``: a target that was fitted on the log it is evaluated on, if the fit can be repeated.

No refuter detects rewards that are too rare to be in the log, confounding that shows neither in the items' shares nor
in a user's earlier rows, errors that depend on a column that is not given, a reward column with another meaning, or a
target that was fitted on the log if the fit cannot be repeated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import Deviations, Spread, positive_limits, small_sample_factor
from recsim_mnar.estimators.scores import Rows as LogRows
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Finding
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Clusters, Floats, Ints, column, finite_column, user_sums
from recsim_mnar.log.rows import user_begins, user_starts
from recsim_mnar.rng import Stream, uniforms

STRICT = 0.998
"""Two-sided level of limits that prove a log's own columns wrong: per side, 1 right log in 1000 is refuted."""
ALARM = 0.02
"""Probability that any of the refuters that are not at the strict level finds something in a right log."""
REFITS = 9
"""Number of times that a learner is fitted to permuted rewards, which have no signal."""
REPEATED = 0.9
"""Share of rows with the same item as the row before, above which one draw of the policy seems to hold for many rows.
In such a log earlier rows determine the item although nothing is wrong, and tests that use them are left out."""
MOST_LIKED = 20
"""Number of items that each stand for a taste of their own; all other items stand for one taste."""
Refit = Callable[[Floats], Any]
"""Function that fits the target's learner to (n,) rewards, in the order of the rows, and returns (n,) probabilities of
the logged actions under the new policy."""


@dataclass(frozen=True)
class _Rows:
    """Input columns of the refuters, and the level of each test.

    Attributes:
        reward: (n,) rewards.
        weight: (n,) target / propensity.
        clusters: user of each row; None if rows are independent.
        level: two-sided level of each test.
    """

    reward: Floats
    weight: Floats
    clusters: Clusters | None
    level: float

    def limits(self, parts: Floats, scale: float, step: float) -> tuple[float, float, float]:
        """Estimate a sum over rows divided by a constant, with limits clustered by user.

        Args:
            parts: (n,) terms of the sum.
            scale: divisor of the sum.
            step: largest amount that one more row could add to the sum.

        Returns:
            The sum of ``parts`` over ``scale``.
            Its lower limit.
            Its upper limit.
        """
        sums = user_sums(parts, self.clusters)
        mean = float(np.sum(sums)) / scale
        lengths = user_sums(np.ones(parts.size), self.clusters)
        deviations = Deviations.of(sums - lengths * (mean * scale / parts.size))
        less, more = deviations.spread(scale, step, step, self.level).reaches(self.level)
        return mean, mean - less, mean + more


Refuter = Callable[[_Rows], Finding | None]
"""Function that returns a finding if it refutes the log, else None."""


def refute(
    reward: Any,
    propensity: Any,
    target: Any,
    *,
    cluster: Any = None,
    action: Any = None,
    context: Any = None,
    time: Any = None,
    propensity_min: float | None = None,
    refit: Refit | None = None,
    seed: int = 0,
) -> list[Finding]:
    """Run the refuters that the columns allow.

    Args:
        reward: (n,) observed rewards.
        propensity: (n,) the logging policy's probabilities of the logged actions, in (0, 1].
        target: (n,) the target policy's probabilities of the logged actions.
        cluster: (n,) user ids, with each user's rows in time order; None if rows are independent.
        action: (n,) ids of the items shown, or None.
        context: (n,) values of a column that was known before the item was chosen, or None.
        time: (n,) numbers that grow with time; None if the rows are in time order.
        propensity_min: least probability of every item in every row, if every item can always be shown; None if it is
            not known.
        refit: function that fits the target's learner to other rewards of the same rows, or None.
        seed: seed of the permutations for ``refit``.

    Returns:
        One finding per refuter that was run, with severity 0 if it found nothing.

    Raises:
        UserError: columns of other lengths, or a target with weight 0 in every row.
    """
    log = LogRows.of(reward, propensity, target)
    p = log.propensity
    clusters = Clusters.of(cluster, log.reward.size)
    if not np.sum(log.weight) > 0.0:
        raise UserError("the target takes none of the logged actions: nothing can be refuted. Log with exploration")
    # Collected first, because the level of each test depends on their number.
    runs: dict[str, Refuter] = {"halves": lambda rows: halves(rows, time)}
    proved: list[Finding] = []
    if refit is not None:
        runs["refit"] = lambda rows: refitted(rows, p, refit, seed)
    if action is not None:
        shown_items = _ShownItems.of(action, p, context)
        proved = item_findings(action, p, clusters, propensity_min=propensity_min, context=context)
        if not proved:
            runs["item_propensities"] = lambda rows: all_items(rows, shown_items)
        if clusters is not None and _repeated_share(shown_items.item, clusters) <= REPEATED:
            runs["earlier_rewards"] = lambda rows: earlier_rewards(rows, shown_items)
            runs["tastes"] = lambda rows: tastes(rows, shown_items)
    rows = _Rows(log.reward, log.weight, clusters, 1.0 - ALARM / len(runs))
    nothing = {"message": "found nothing", "action": "nothing to do"}
    return proved + [run(rows) or Finding(name, 0.0, 0.0, **nothing) for name, run in runs.items()]


def _repeated_share(item: Ints, clusters: Clusters) -> float:
    """Return the share of rows that show the same item as the user's row before; 1 if no user has two rows."""
    by_item = clusters.together(item)
    follows = ~user_begins(clusters.together(clusters.codes))[1:]
    if follows.any():
        return float(np.mean((by_item[1:] == by_item[:-1])[follows]))
    return 1.0


@dataclass(frozen=True)
class _ShownItems:
    """Items shown, their propensities, and the levels of the context column.

    Attributes:
        propensity: (n,) propensities.
        item: (n,) numbers of the items shown, from 0.
        n_items: number of items.
        levels: levels of the context column; one level without a column.
    """

    propensity: Floats
    item: Ints
    n_items: int
    levels: Levels

    @staticmethod
    def of(action: Any, propensity: Floats, context: Any) -> _ShownItems:
        """Number the items and the levels of the context from columns (n,) of any kind."""
        shown_items = Clusters.of(action, propensity.size, "action")
        levels = Levels.of(context, propensity.size)
        assert shown_items is not None
        return _ShownItems(propensity, *shown_items.dense(), levels)

    def score(self, rows: _Rows, past: Ints | None = None) -> float:
        """Test whether items are chosen more often than their propensities say, in some context or after some past.

        In rows with any context, and after any earlier rows of the user, the mean of 1{a = k} / propensity is at most 1
        for each item k. Cells of a level and an item in which it is above 1 in one half of the users are tested
        together in the other half, and the other way round. Each cell's weight is its excess over its variance. So many
        small errors can be proved that are not significant in any one cell.

        Args:
            rows: columns of the log.
            past: (n,) whole numbers from 0 that summarise the user's earlier rows; None to ignore these.

        Returns:
            The lower limit of the excess, in units of half its interval's width; 0 if no excess is proved.
        """
        if past is None:
            level = self.levels.codes
        else:
            level = past * len(self.levels.names) + self.levels.codes
        cells, cell = np.unique(level * self.n_items + self.item, return_inverse=True)
        level_of_cell = cells // self.n_items
        half = _rows_of_every_second_user(rows)
        w = 1.0 / self.propensity
        parts = np.zeros(w.size)
        for fitted, tested in ((half, ~half), (~half, half)):
            rows_of_level = np.bincount(level[fitted], minlength=int(level_of_cell[-1]) + 1)[level_of_cell]
            sums, squares = (np.bincount(cell[fitted], v[fitted], cells.size) for v in (w, w * w))
            # An excess of less than a standard error is taken for chance.
            excess = np.maximum(sums - rows_of_level - np.sqrt(squares), 0.0)
            cell_weight = np.divide(excess, squares, out=np.zeros(cells.size), where=squares > 0.0)
            # A row's expectation over its item is the total weight of its level, at most: parts have mean 0 or less.
            level_weight = np.bincount(level_of_cell, cell_weight)
            parts[tested] = cell_weight[cell[tested]] * w[tested] - level_weight[level[tested]]
        if not parts.any():
            return 0.0
        _, low, high = rows.limits(parts, scale=float(w.size), step=float(np.max(parts)))
        if low > 0.0:
            return low / ((high - low) / 2.0)
        return 0.0


def _rows_of_every_second_user(rows: _Rows) -> NDArray[np.bool_]:
    """Return (n,) a mask of the rows of every second user, or of every second row if users are not known."""
    if rows.clusters is None:
        codes = np.arange(rows.reward.size)
    else:
        codes = rows.clusters.dense()[0]
    return codes % 2 == 0


def all_items(rows: _Rows, shown_items: _ShownItems) -> Finding | None:
    """Return the finding of items that are chosen more often than their propensities say, if it is proved jointly.

    It detects small errors of many items, none of which :func:`item_findings` proves alone; by the level of the context
    column, if there is one.
    """
    score = shown_items.score(rows)
    if score > 0.0:
        return Finding("item_propensities", GRAVE, score, says="together", score=score)
    return None


def earlier_rewards(rows: _Rows, shown_items: _ShownItems) -> Finding | None:
    """Return the finding of items that are chosen more often than propensities say after some reward, if it is proved.

    The past is whether the reward of the user's row before was above the mean. If such items are found, the reward
    column may hold the reward of the next row. Permuting rewards within users would be no test: over all permutations,
    the mean of the statistic is not 0, because each row's own reward is among the permuted ones.
    """
    assert rows.clusters is not None
    # 0 without an earlier row, 1 after a reward up to the mean, 2 after one above it.
    before = last_from_0(np.where(rows.reward > float(np.mean(rows.reward)), 1, 0), rows.clusters) + 1
    score = shown_items.score(rows, before)
    if score > 0.0:
        return Finding("earlier_rewards", CAUTION, score, score=score)
    return None


def tastes(rows: _Rows, shown_items: _ShownItems) -> Finding | None:
    """Return the finding of items that are chosen more often than propensities say for some taste, if it is proved.

    The past is the item of the user's last reward above the mean; all items but the :data:`MOST_LIKED` most rewarded
    ones count as one.
    """
    assert rows.clusters is not None
    liked = rows.reward > float(np.mean(rows.reward))
    order = np.argsort(-np.bincount(shown_items.item[liked], minlength=shown_items.n_items), kind="stable")
    rank = np.argsort(order)
    taste = np.where(liked, np.minimum(rank, MOST_LIKED)[shown_items.item], -1)  # -1: the row shows no taste
    score = shown_items.score(rows, last_from_0(taste, rows.clusters) + 1)
    if score > 0.0:
        return Finding("tastes", CAUTION, score, score=score)
    return None


def last_from_0(values: Ints, clusters: Clusters) -> Ints:
    """Return (n,) the last value in the user's earlier rows that is not negative; -1 if there is none.

    Args:
        values: (n,) whole numbers, each user's in time order.
        clusters: user of each row.
    """
    ordered = clusters.together(values)
    starts = user_starts(clusters.together(clusters.codes))
    # Number of the last row before each row, of any user, with such a value; -1 for none.
    last_row = np.append(-1, np.maximum.accumulate(np.where(ordered >= 0, np.arange(ordered.size), -1))[:-1])
    starts_of_rows = np.repeat(starts, np.diff(np.append(starts, ordered.size)))
    return clusters.back(np.where(last_row >= starts_of_rows, ordered[last_row], -1))


def halves(rows: _Rows, time: Any = None) -> Finding | None:
    """Test whether the target's value in the second half of the log differs from that in the first.

    Args:
        rows: columns of the log.
        time: (n,) numbers that grow with time; None if the rows are in time order.

    Returns:
        The finding; None if no difference is proved, or if a half has no weight.
    """
    n = rows.reward.size
    when: NDArray[Any] = np.arange(n)
    if time is not None:
        when = finite_column(time, "time", n)
    late = when >= np.sort(when)[n // 2]  # from the median on
    early_sum, late_sum = (float(np.sum(rows.weight[part])) for part in (~late, late))
    if min(early_sum, late_sum) <= 0.0:
        return None
    early_value = float(rows.weight[~late] @ rows.reward[~late]) / early_sum
    late_value = float(rows.weight[late] @ rows.reward[late]) / late_sum
    # Influence function of the difference of two self-normalised values, times n.
    late_parts = (rows.reward - late_value) / late_sum
    early_parts = -(rows.reward - early_value) / early_sum
    parts = rows.weight * np.where(late, late_parts, early_parts) * n
    step = n * float(np.max(rows.weight)) * float(np.ptp(rows.reward)) / min(early_sum, late_sum)
    # The parts have mean 0, so their limits are the distances from the change to its limits.
    _, less, more = rows.limits(parts, float(n), step)
    change = late_value - early_value
    low = change + less
    high = change + more
    if low <= 0.0 <= high:
        return None
    return Finding("halves", CAUTION, change, change=change, low=low, high=high)


def refitted(rows: _Rows, propensity: Floats, refit: Refit, seed: int) -> Finding | None:
    """Test whether the target's learner is evaluated on rows that it was fitted on.

    Rewards permuted over all rows have no signal. A learner that is fitted on other rows gains nothing on them in
    expectation; one that is fitted on the same rows does.

    Args:
        rows: columns of the log.
        propensity: (n,) propensities.
        refit: function that fits the learner to rewards.
        seed: seed of the permutations.

    Returns:
        The finding; None if no gain over the logging policy is proved.
    """
    from scipy.special import stdtrit

    # Estimated gains over the logging policy, whose weight is 1 in each row.
    gains = []
    for number in range(REFITS):
        r = permuted(rows.reward, seed, number)
        t = column(refit(r), "target of refit", rows=r.size)
        gains.append(float(np.mean((t / propensity - 1.0) * (r - float(np.mean(r))))))
    gain = float(np.mean(gains))
    error = float(np.std(gains, ddof=1)) / math.sqrt(REFITS)
    least = gain - error * float(stdtrit(REFITS - 1.0, 1.0 - (1.0 - rows.level) / 2.0))
    if least <= 0.0:
        return None
    return Finding("refit", GRAVE, gain, lead=gain)


def permuted(reward: Floats, seed: int, number: int) -> Floats:
    """Return the rewards in random order, over all rows.

    Permuted within users, they would keep the users' means, which depend on the users' actions.
    """
    return reward[np.argsort(uniforms(seed, Stream.BOOTSTRAP, number, np.arange(reward.size)), kind="stable")]


# --------------------------------------------------------------------------------------------------------- item by item

MOST_LEVELS = 10
"""Largest number of levels of a context column. More numbers than that are cut at their quantiles; of other values, the
rarest ones are pooled."""
TABLES, TOTALS = ("x", "xx", "xl"), ("rows", "users", "ll")
"""Fields of :class:`ItemSums` by level and item, and by level."""
OTHERS, MISSING = "any other value", "no value"
"""Names of the level of rare values, and of the level of missing numbers."""


@dataclass(frozen=True)
class Levels:
    """Column that is cut into few levels, without regard to rewards and actions.

    Attributes:
        name: name of the column; "" without a column.
        names: names of the levels. Missing numbers, or rare values of other kinds, are the last level.
        codes: (n,) number of each row's level.
    """

    name: str
    names: tuple[str, ...]
    codes: Ints

    @staticmethod
    def of(values: Any, rows: int, name: str = "context") -> Levels:
        """Cut a column into at most :data:`MOST_LEVELS` levels.

        Args:
            values: (n,) values, numbers or others; None for one level.
            rows: number n of rows.
            name: name of the column.

        Raises:
            UserError: another number of values.
        """
        import pandas as pd

        if values is None:
            return Levels("", ("",), np.zeros(rows, np.int64))
        array = np.asarray(values)
        if array.shape != (rows,):
            raise UserError(f"column {name!r} has shape {array.shape} and there are {rows} rows; give one each")
        if array.dtype.kind not in "iuf":
            words = array.astype(str)
            common = sorted(pd.Series(words).value_counts().index[: MOST_LEVELS - 1])
            codes = pd.Index(common).get_indexer(words)
            return Levels(name, (*common, OTHERS), np.where(codes < 0, len(common), codes).astype(np.int64))
        missing = np.isnan(array)
        last = (MISSING,) if missing.any() else ()
        most = MOST_LEVELS - len(last)
        distinct = np.unique(array[~missing]).astype(np.float64)
        edges = distinct[1:]
        names = tuple(f"{value:g}" for value in distinct)
        if distinct.size > most:
            edges = np.unique(np.quantile(array[np.isfinite(array)], np.arange(most) / most))[1:]
            ends = [f"{edge:.3g}" for edge in edges]
            between = [f"{a} to {b}" for a, b in itertools.pairwise(ends)]
            names = (f"below {ends[0]}", *between, f"above {ends[-1]}")
        level = np.searchsorted(edges, array, side="right")  # a value at an edge belongs above it
        names = (*names, *last) or ("",)
        return Levels(name, names, np.where(missing, len(names) - 1, level).astype(np.int64))


@dataclass
class ItemSums:
    """Sums over users of x, a user's sum of 1 / propensity of the rows with an item, by level of a context column.

    Attributes:
        column: name of the column that is cut into C levels; "" without a column.
        levels: names of the levels.
        items: (K,) ids of the items, ascending.
        x: (C, K) sums of x.
        xx: (C, K) sums of x^2.
        xl: (C, K) sums of x times l, the user's number of rows in the level.
        rows: (C,) numbers of rows.
        users: (C,) numbers of users.
        ll: (C,) sums of l^2.
        longest: (C,) largest l.
        heaviest: largest 1 / propensity of any row.
    """

    column: str
    levels: tuple[str, ...]
    items: NDArray[Any]
    x: Floats
    xx: Floats
    xl: Floats
    rows: Floats
    users: Floats
    ll: Floats
    longest: Floats
    heaviest: float

    @staticmethod
    def of(action: Any, propensity: Any, cluster: Any = None, levels: Levels | None = None) -> ItemSums:
        """Gather the sums of rows, or of a block of whole users.

        Args:
            action: (n,) ids of the items shown, of any kind.
            propensity: (n,) propensities in (0, 1].
            cluster: (n,) user ids; None if rows are independent.
            levels: levels of a column that was known before the item was chosen; None for one level.

        Raises:
            UserError: columns of other lengths, missing ids, propensities outside (0, 1].
        """
        p = column(propensity, "propensity")
        shown_items = Clusters.of(action, p.size, "action")
        assert shown_items is not None
        code, n_items = shown_items.dense()
        items = np.asarray(action)[shown_items.first_rows()]
        levels = levels or Levels.of(None, p.size)
        sums = _sums_of(1.0 / p, code, n_items, Clusters.of(cluster, p.size), levels.codes, len(levels.names))
        order = np.argsort(items, kind="stable")
        sums |= {name: sums[name][:, order] for name in TABLES}
        heaviest = float(np.max(1.0 / p, initial=0.0))
        return ItemSums(levels.name, levels.names, items[order], heaviest=heaviest, **sums)

    def __add__(self, other: ItemSums) -> ItemSums:
        """Return the sums of both blocks of rows, which have no user in common, for the items of both.

        Raises:
            UserError: blocks with different levels.
        """
        if not isinstance(other, ItemSums):
            return NotImplemented
        if self.levels != other.levels:
            raise UserError("sums by item merge only with the same levels; give every block those of the first")
        items = np.union1d(self.items, other.items)
        totals: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in TOTALS}
        for name in TABLES:
            table = np.zeros((2, len(self.rows), items.size))
            for part, sums in zip(table, (self, other), strict=True):
                part[:, np.searchsorted(items, sums.items)] = getattr(sums, name)
            totals[name] = table.sum(axis=0)
        totals["longest"] = np.maximum(self.longest, other.longest)
        return ItemSums(self.column, self.levels, items, heaviest=max(self.heaviest, other.heaviest), **totals)

    def findings(self, *, propensity_min: float | None = None) -> list[Finding]:
        """Return the finding of the item whose propensities are most clearly proved wrong, if there is one.

        All items and levels are tested jointly at the level :data:`STRICT`.

        Args:
            propensity_min: least propensity of every item in every row, if every item can always be shown; None if it
                is not known, and then a mean below 1 proves nothing.
        """
        low, high = self.limits(1.0 - (1.0 - STRICT) / max(self.x.size, 1), propensity_min)
        # Factor by which an item is proved too frequent, or too rare; 1e-300 avoids a division by 0.
        proved_factor = np.maximum(low, 1.0 / np.maximum(high, 1e-300))
        if not np.any(proved_factor > 1.0):
            return []
        place, item = np.unravel_index(int(np.argmax(proved_factor)), proved_factor.shape)
        mean = float(self.x[place, item] / self.rows[place])
        wrong_items = int(np.count_nonzero((proved_factor > 1.0).any(axis=0)))
        return [self._finding(int(place), item, mean, wrong_items)]

    def limits(self, level: float, propensity_min: float | None = None) -> tuple[Floats, Floats]:
        """Compute limits of the mean of 1{item} / propensity over the rows of a level, clustered by user.

        Args:
            level: two-sided level of each pair of limits.
            propensity_min: least propensity of every item in every row; None if it is not known.

        Returns:
            (C, K) lower limits.
            (C, K) upper limits. Both are trivial, 0 and inf, for cells that need no test.
        """
        low = np.zeros(self.x.shape)
        high = np.full(self.x.shape, np.inf)
        if propensity_min is None:
            heaviest = self.heaviest
        else:
            heaviest = max(1.0 / propensity_min, self.heaviest)
        for place in np.flatnonzero(self.users > 1):
            n = float(self.rows[place])
            factor = small_sample_factor(int(self.users[place]), level)
            means = self.x[place] / n
            # Sum over users of (x - mean l)^2.
            second = self.xx[place] - 2.0 * means * self.xl[place] + means**2 * self.ll[place]
            # One more user could add the largest weight in all of the rows, because one draw may hold for all of them.
            up = heaviest * float(self.longest[place]) / n
            # Without a least propensity, a mean below 1 proves nothing and needs no limits.
            for item in np.flatnonzero((means > 1.0) | (propensity_min is not None)):
                mean = float(means[item])
                variance = max(float(second[item]), 0.0) / n**2 * factor
                spread = Spread(variance, third=0.0, up=up, down=mean / n)
                low[place, item], high[place, item] = positive_limits(mean, spread, level)
        return low, high

    def _finding(self, place: int, item: Any, mean: float, wrong: int) -> Finding:
        """Return the finding of an item with wrong propensities.

        Args:
            place: number of the level.
            item: number of the item.
            mean: mean of 1{item} / propensity over the rows of the level.
            wrong: number of items that are proved wrong.
        """
        mean_text, expected_text = told_apart(mean, 1.0)
        where = {}
        if self.column:
            where = {"says": "level", "name": self.column, "level": self.levels[place]}
        if mean > 1.0:
            expected_text = f"{expected_text} at most"
        of_items = {"item": self.items[item], "wrong": wrong, "items": self.items.size}
        return Finding("item_propensities", GRAVE, mean, said=mean_text, wanted=expected_text, **of_items, **where)


def _sums_of(
    weight: Floats, code: Ints, n_items: int, clusters: Clusters | None, level: Ints, n_levels: int
) -> dict[str, Any]:
    """Compute the sums of :class:`ItemSums`, by the name of the field.

    Args:
        weight: (n,) 1 / propensity.
        code: (n,) numbers of the items shown.
        n_items: number K of items.
        clusters: user of each row; None if rows are independent.
        level: (n,) numbers of the levels.
        n_levels: number C of levels.
    """
    from scipy.sparse import coo_matrix

    # A group is the rows of one user in one level.
    if clusters is None:
        group = np.arange(weight.size)
        n_groups = weight.size
    else:
        group, n_groups = clusters.dense()
        if n_levels > 1:
            user_levels = Clusters.of(group * n_levels + level, weight.size)
            assert user_levels is not None
            group, n_groups = user_levels.dense()
    level_of_group = np.zeros(n_groups, np.int64)
    level_of_group[group] = level
    size = np.bincount(group, minlength=n_groups).astype(np.float64)
    # A sparse matrix adds up the weights of each group and item: its entries are x.
    table = coo_matrix((weight, (group, code)), (n_groups, n_items)).tocsr()
    counts = np.diff(table.indptr)
    item = table.indices.astype(np.int64)
    x = table.data
    cell = np.repeat(level_of_group, counts) * n_items + item
    sizes = np.repeat(size, counts)
    total = n_levels * n_items
    tables = [np.bincount(cell, values, total) for values in (x, x * x, x * sizes)]
    totals = [np.bincount(level_of_group, values, n_levels) for values in (size, np.ones(size.size), size * size)]
    longest = np.zeros(n_levels)
    np.maximum.at(longest, level_of_group, size)
    sums: dict[str, Any] = {"longest": longest} | dict(zip(TOTALS, totals, strict=True))
    shaped = (table.reshape(n_levels, n_items) for table in tables)
    return sums | dict(zip(TABLES, shaped, strict=True))


def item_findings(
    action: Any,
    propensity: Any,
    cluster: Any = None,
    *,
    propensity_min: float | None = None,
    context: Any = None,
    context_name: str = "context",
) -> list[Finding]:
    """Test propensities item by item and, with ``context``, by item and level of that column.

    The mean over rows of 1{action = k} / propensity is 1 for an item k that can always be shown, and less for any
    other item. So a mean above 1 proves propensities wrong. A mean below 1 is a proof only if every item can always be
    shown and the least propensity is known, because otherwise rare rows with large weights may be missing by chance.

    Args:
        action: (n,) ids of the items shown, of any kind.
        propensity: (n,) propensities in (0, 1].
        cluster: (n,) user ids; None if rows are independent.
        propensity_min: least propensity of every item in every row, if every item can always be shown; None if it is
            not known.
        context: (n,) values of a column that was known before the item was chosen, or None. Only with it, errors that
            cancel within an item are detected.
        context_name: name of the column in the message.

    Returns:
        At most one finding: by item if an item is proved wrong, else by item and level.

    Raises:
        UserError: columns of other lengths, missing ids, propensities outside (0, 1].
    """
    clusters = Clusters.of(cluster, len(propensity))
    findings = ItemSums.of(action, propensity, clusters).findings(propensity_min=propensity_min)
    if findings or context is None:
        return findings
    levels = Levels.of(context, len(propensity), context_name)
    return ItemSums.of(action, propensity, clusters, levels).findings(propensity_min=propensity_min)
