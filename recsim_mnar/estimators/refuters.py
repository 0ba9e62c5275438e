"""Refuters: what can prove a log, or the columns that were read from it, wrong (docs/verdict.md#refuters).

What each of them can see in principle:

- ``item_propensities``: items' odds changed after scoring (rules, stock); rows lost or kept by their reward; with a
  context column, odds changed by context.
- ``earlier_rewards``: rewards that stand in the row before their own.
- ``tastes``: propensities that leave out what the logging policy knew of its users.
- ``halves``: rewards that changed while the log was written.
- ``refit``: a target fitted on the log that judges it, where the fit can be run again.

No refuter sees rewards that are too rare to be in the log, confounding that neither the items' shares nor a user's
earlier rows show, errors by a column that is not given, a reward column that means something else, or a target fitted
on the log where the fit cannot be run again.
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
"""Level of two-sided limits that contradict what a log says of itself: met by chance once in a thousand logs a side."""
ALARM = 0.02
"""Chance that all refuters together find something in a log that is right, but for those at the strict level."""
REFITS = 9
"""Times that a learner is fitted to rewards without signal."""
REPEATED = 0.9
"""Share of rows with the item of the row before from which one draw is taken to hold for many rows: such a log says
nothing by what came before, and is no worse for it."""
MOST_LIKED = 20
"""Items that stand for a taste of their own."""
Refit = Callable[[Floats], Any]
"""From rewards (n,) in the rows' order to (n,) probabilities of the logged actions under the policy fitted anew."""


@dataclass(frozen=True)
class _Rows:
    """The input columns, and the level of each test."""

    reward: Floats
    weight: Floats
    clusters: Clusters | None
    level: float

    def limits(self, parts: Floats, scale: float, step: float) -> tuple[float, float, float]:
        """Sum over rows of ``parts`` over ``scale``, and its limits by user; one more row may bring ``step``."""
        sums = user_sums(parts, self.clusters)
        mean = float(np.sum(sums)) / scale
        lengths = user_sums(np.ones(parts.size), self.clusters)
        deviations = Deviations.of(sums - lengths * (mean * scale / parts.size))
        less, more = deviations.spread(scale, step, step, self.level).reaches(self.level)
        return mean, mean - less, mean + more


Refuter = Callable[[_Rows], Finding | None]


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
        propensity: (n,) in (0, 1].
        target: (n,) the target policy's probability of the logged action.
        cluster: (n,) the user of each row, each user's rows in the order of the decisions; None for rows alone.
        action: (n,) ids of the items shown.
        context: (n,) a column that was known before the item was chosen.
        time: (n,) numbers that grow with time; None for the order of the rows.
        propensity_min: every item can be shown in every row with at least this probability; None where that is not
            known.
        refit: fits the learner behind the target to other rewards of the same rows.
        seed: of the permutations for ``refit``.

    Returns:
        One finding per refuter that was run. One with severity 0 found nothing.

    Raises:
        UserError: columns of other lengths, or without weight.
    """
    log = LogRows.of(reward, propensity, target)
    p, clusters = log.propensity, Clusters.of(cluster, log.reward.size)
    if not np.sum(log.weight) > 0.0:
        raise UserError("the target takes none of the logged actions: nothing can be refuted. Log with exploration")
    runs: dict[str, Refuter] = {"halves": lambda rows: halves(rows, time)}
    proved: list[Finding] = []
    if refit is not None:
        runs["refit"] = lambda rows: refitted(rows, p, refit, seed)
    if action is not None:
        shown_items = _Shown.of(action, p, context)
        proved = item_findings(action, p, clusters, propensity_min=propensity_min, context=context)
        if not proved:
            runs["item_propensities"] = lambda rows: all_items(rows, shown_items)
        if clusters is not None and _repeated(shown_items.item, clusters) <= REPEATED:
            runs["earlier_rewards"] = lambda rows: earlier_rewards(rows, shown_items)
            runs["tastes"] = lambda rows: tastes(rows, shown_items)
    rows = _Rows(log.reward, log.weight, clusters, 1.0 - ALARM / len(runs))
    nothing = "found nothing", "nothing to do"
    return proved + [run(rows) or Finding(name, 0.0, 0.0, *nothing) for name, run in runs.items()]


def _repeated(item: Ints, clusters: Clusters) -> float:
    """Share of the rows behind another of the same user that show the same item; 1 where there are none."""
    by_item = clusters.together(item)
    follows = ~user_begins(clusters.together(clusters.codes))[1:]
    if follows.any():
        return float(np.mean((by_item[1:] == by_item[:-1])[follows]))
    return 1.0


@dataclass(frozen=True)
class _Shown:
    """Items by row, their propensities, and the levels of the context column."""

    propensity: Floats
    item: Ints
    n_items: int
    levels: Levels

    @staticmethod
    def of(action: Any, propensity: Floats, context: Any) -> _Shown:
        """Convert the columns to integer codes."""
        shown_items = Clusters.of(action, propensity.size, "action")
        levels = Levels.of(context, propensity.size)
        assert shown_items is not None
        return _Shown(propensity, *shown_items.dense(), levels)

    def score(self, rows: _Rows, past: Ints | None = None) -> float:
        """Lower limit, in half widths, of how much more often items are chosen than their propensities say.

        The mean of 1{a = k} / propensity is 1 at most in the rows of any context, and of any past of the user. The
        items and levels where it is above 1 in one half of the users are tested together in the other half, both ways,
        each weighing by its excess over its variance; so many small errors show that no item alone proves.

        Args:
            rows: of the log.
            past: (n,) a number from 0 on that the user's earlier rows make.
        """
        if past is None:
            level = self.levels.codes
        else:
            level = past * len(self.levels.names) + self.levels.codes
        cells, cell = np.unique(level * self.n_items + self.item, return_inverse=True)
        levels = cells // self.n_items
        half = _alternate(rows)
        w = 1.0 / self.propensity
        parts = np.zeros(w.size)
        for fitted, tested in ((half, ~half), (~half, half)):
            number = np.bincount(level[fitted], minlength=int(levels[-1]) + 1)[levels]
            sums, squares = (np.bincount(cell[fitted], v[fitted], cells.size) for v in (w, w * w))
            over = np.maximum(sums - number - np.sqrt(squares), 0.0)
            gain = np.divide(over, squares, out=np.zeros(cells.size), where=squares > 0.0)
            totals = np.bincount(levels, gain)
            parts[tested] = gain[cell[tested]] * w[tested] - totals[level[tested]]
        if not parts.any():
            return 0.0
        _, low, high = rows.limits(parts, float(w.size), float(np.max(parts)))
        if low > 0.0:
            return low / ((high - low) / 2.0)
        return 0.0


def _alternate(rows: _Rows) -> NDArray[np.bool_]:
    """Return a mask (n,) of every second user, in the order of their ids; of every second row without users."""
    if rows.clusters is None:
        codes = np.arange(rows.reward.size)
    else:
        codes = rows.clusters.dense()[0]
    return codes % 2 == 0


def all_items(rows: _Rows, shown: _Shown) -> Finding | None:
    """Items that are chosen more often than their propensities say, by the level of a context column if there is one.

    Small errors of many items, which :func:`item_findings` proves of none alone.
    """
    score = shown.score(rows)
    if score > 0.0:
        return Finding("item_propensities", GRAVE, score, says="together", score=score)
    return None


def earlier_rewards(rows: _Rows, shown: _Shown) -> Finding | None:
    """Items that are chosen more often than their propensities say, by the reward of the user's row before.

    Permuting rewards within users asks for less: what a row's own reward adds makes the mean of the permuted lead the
    true one over the user's rows, not 0.
    """
    assert rows.clusters is not None
    before = last_from_0(np.where(rows.reward > float(np.mean(rows.reward)), 1, 0), rows.clusters) + 1
    score = shown.score(rows, before)
    if score > 0.0:
        return Finding("earlier_rewards", CAUTION, score, score=score)
    return None


def tastes(rows: _Rows, shown: _Shown) -> Finding | None:
    """Items that are chosen more often than their propensities say, by the item that the user took last.

    The item of the last reward above the mean stands for a taste; items that are seldom taken stand for one together.
    """
    assert rows.clusters is not None
    taken_values = rows.reward > float(np.mean(rows.reward))
    order = np.argsort(-np.bincount(shown.item[taken_values], minlength=shown.n_items), kind="stable")
    rank = np.argsort(order)
    liked = np.where(taken_values, np.minimum(rank, MOST_LIKED)[shown.item], -1)
    score = shown.score(rows, last_from_0(liked, rows.clusters) + 1)
    if score > 0.0:
        return Finding("tastes", CAUTION, score, score=score)
    return None


def last_from_0(values: Ints, clusters: Clusters) -> Ints:
    """Return (n,) the last value of at least 0 in the user's earlier rows, or -1."""
    ordered = clusters.together(values)
    starts = user_starts(clusters.together(clusters.codes))
    seen = np.append(-1, np.maximum.accumulate(np.where(ordered >= 0, np.arange(ordered.size), -1))[:-1])
    starts_of_rows = np.repeat(starts, np.diff(np.append(starts, ordered.size)))
    return clusters.back(np.where(seen >= starts_of_rows, ordered[seen], -1))


def halves(rows: _Rows, time: Any = None) -> Finding | None:
    """Compare the value of the first half of the log with that of the second."""
    n = rows.reward.size
    when = np.arange(n) if time is None else finite_column(time, "time", n)
    late = when >= np.sort(when)[n // 2]
    sums = [float(np.sum(rows.weight[part])) for part in (~late, late)]
    if min(sums) <= 0.0:
        return None
    values = [float(rows.weight[part] @ rows.reward[part]) / s for part, s in zip((~late, late), sums, strict=True)]
    parts = rows.weight * np.where(late, (rows.reward - values[1]) / sums[1], -(rows.reward - values[0]) / sums[0]) * n
    step = n * float(np.max(rows.weight)) * float(np.ptp(rows.reward)) / min(sums)
    _, less, more = rows.limits(parts, float(n), step)
    change = values[1] - values[0]
    low = change + less
    high = change + more
    if low <= 0.0 <= high:
        return None
    return Finding("halves", CAUTION, change, change=change, low=low, high=high)


def refitted(rows: _Rows, propensity: Floats, refit: Refit, seed: int) -> Finding | None:
    """Test the learner's lead on permuted rewards, which have no signal: it is 0 for a learner fitted on other rows."""
    leads = []
    for number in range(REFITS):
        r = permuted(rows.reward, seed, number)
        t = column(refit(r), "target of refit", rows=r.size)
        leads.append(float(np.mean((t / propensity - 1.0) * (r - float(np.mean(r))))))
    lead = float(np.mean(leads))
    error = float(np.std(leads, ddof=1)) / math.sqrt(REFITS)
    from scipy.special import stdtrit

    least = lead - error * float(stdtrit(REFITS - 1.0, 1.0 - (1.0 - rows.level) / 2.0))
    if least <= 0.0:
        return None
    return Finding("refit", GRAVE, lead, lead=lead)


def permuted(reward: Floats, seed: int, number: int) -> Floats:
    """Rewards permuted over all rows: within users they would keep the users' means, which actions have shaped."""
    return reward[np.argsort(uniforms(seed, Stream.BOOTSTRAP, number, np.arange(reward.size)), kind="stable")]


# --------------------------------------------------------------------------------------------------------- item by item

MOST_LEVELS = 10
"""Levels of a context column: more values than that are cut at their quantiles or, if they are no numbers, pooled."""
TABLES, TOTALS = ("x", "xx", "xl"), ("rows", "users", "ll")
OTHERS, MISSING = "any other value", "no value"


@dataclass(frozen=True)
class Levels:
    """A column cut into few levels, whatever the rewards and the actions are.

    Attributes:
        name: of the column; "" without one.
        names: of the levels; numbers that are missing have the last one for themselves, as have rare other values.
        codes: (n,) the level of each row.
    """

    name: str
    names: tuple[str, ...]
    codes: Ints

    @staticmethod
    def of(values: Any, rows: int, name: str = "context") -> Levels:
        """At most ten levels of a column (n,), numbers being cut at their quantiles; one level for None."""
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
    """Per level of a context column and item, sums over users of x, the user's sum of 1 / propensity of the item.

    Attributes:
        column: that is cut into levels; "" without one.
        levels: their names.
        items: (K,) ids in ascending order.
        x, xx, xl: (C, K) sums of x, x^2 and x times the user's rows in the level.
        rows, users, ll: (C,) rows and users of a level, and the sum over users of squared rows.
        longest: (C,) most rows of a user in the level.
        heaviest: largest 1 / propensity.
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
            propensity: (n,) in (0, 1].
            cluster: (n,) users, or None.
            levels: of a column that was known before the item was chosen.

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
        """Add the sums of further rows; no user may be in both."""
        if not isinstance(other, ItemSums):
            return NotImplemented
        if self.levels != other.levels:
            raise UserError("sums by item merge only with the same levels; give every block those of the first")
        items = np.union1d(self.items, other.items)
        totals: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in TOTALS}
        for name in TABLES:
            table = np.zeros((2, len(self.rows), items.size))
            for part, one in zip(table, (self, other), strict=True):
                part[:, np.searchsorted(items, one.items)] = getattr(one, name)
            totals[name] = table.sum(axis=0)
        totals["longest"] = np.maximum(self.longest, other.longest)
        return ItemSums(self.column, self.levels, items, heaviest=max(self.heaviest, other.heaviest), **totals)

    def findings(self, *, propensity_min: float | None = None) -> list[Finding]:
        """Find items with disproved propensities, at the strict level for all items together.

        Args:
            propensity_min: the least propensity of any item in any row, where every item can always be shown; None
                where that is not known. Only then can a mean below 1 be a proof.
        """
        low, high = self.limits(1.0 - (1.0 - STRICT) / max(self.x.size, 1), propensity_min)
        off = np.maximum(low, 1.0 / np.maximum(high, 1e-300))
        if not np.any(off > 1.0):
            return []
        place, item = np.unravel_index(int(np.argmax(off)), off.shape)
        mean = float(self.x[place, item] / self.rows[place])
        return [self._finding(int(place), item, mean, int(np.count_nonzero((off > 1.0).any(axis=0))))]

    def limits(self, level: float, propensity_min: float | None = None) -> tuple[Floats, Floats]:
        """Return (C, K) limits, by user, of the mean over a level's rows of 1{item} / propensity."""
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
            second = self.xx[place] - 2.0 * means * self.xl[place] + means**2 * self.ll[place]
            # One draw may hold for all rows of a user.
            up = heaviest * float(self.longest[place]) / n
            for item in np.flatnonzero((means > 1.0) | (propensity_min is not None)):
                mean = float(means[item])
                variance = max(float(second[item]), 0.0) / n**2 * factor
                ends = positive_limits(mean, Spread(variance, 0.0, up, mean / n), level)
                low[place, item], high[place, item] = ends
        return low, high

    def _finding(self, place: int, item: Any, mean: float, wrong: int) -> Finding:
        mean_text, expected_text = told_apart(mean, 1.0)
        if self.column:
            where = {"says": "level", "name": self.column, "level": self.levels[place]}
        else:
            where = {}
        if mean > 1.0:
            expected_text = f"{expected_text} at most"
        of_items = {"item": self.items[item], "wrong": wrong, "items": self.items.size}
        return Finding("item_propensities", GRAVE, mean, said=mean_text, wanted=expected_text, **of_items, **where)


def _sums_of(
    weight: Floats, code: Ints, n_items: int, clusters: Clusters | None, level: Ints, n_levels: int
) -> dict[str, Any]:
    """``TABLES`` and ``TOTALS`` of :class:`ItemSums`, from cells of a user, a level and an item."""
    from scipy.sparse import coo_matrix

    group, n_own = (np.arange(weight.size), weight.size) if clusters is None else clusters.dense()
    if n_levels > 1 and clusters is not None:
        both = Clusters.of(group * n_levels + level, weight.size)
        assert both is not None
        group, n_own = both.dense()
    lengths = np.zeros(n_own, np.int64)
    lengths[group] = level
    size = np.bincount(group, minlength=n_own).astype(np.float64)
    table = coo_matrix((weight, (group, code)), (n_own, n_items)).tocsr()
    counts = np.diff(table.indptr)
    item = table.indices.astype(np.int64)
    data = table.data
    cell = np.repeat(lengths, counts) * n_items + item
    sizes = np.repeat(size, counts)
    total = n_levels * n_items
    tables = [np.bincount(cell, values, total) for values in (data, data * data, data * sizes)]
    totals = [np.bincount(lengths, values, n_levels) for values in (size, np.ones(size.size), size * size)]
    longest = np.zeros(n_levels)
    np.maximum.at(longest, lengths, size)
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
    """Propensities that the log disproves, item by item and, with ``context``, by item and level of the column.

    The mean over rows of 1{action = k} / propensity is 1 for an item k that can always be shown, and less for any
    other: above 1 is a proof. Below 1 is one only where every item can always be shown and the least propensity is
    known, for else the rows that are missing could be rare and heavy.

    Args:
        action: (n,) ids of the items shown, of any kind.
        propensity: (n,) in (0, 1].
        cluster: (n,) the user of each row, or None.
        propensity_min: every item can be shown in every row with at least this probability; None where that is not
            known.
        context: (n,) a column that was known before the item was chosen, or None. Errors that average out within an
            item are seen with it only.
        context_name: of the column, for the message.

    Returns:
        At most one finding: by item where one is proved wrong, else by item and level.

    Raises:
        UserError: as :meth:`ItemSums.of`.
    """
    clusters = Clusters.of(cluster, len(propensity))
    findings = ItemSums.of(action, propensity, clusters).findings(propensity_min=propensity_min)
    if findings or context is None:
        return findings
    levels = Levels.of(context, len(propensity), context_name)
    return ItemSums.of(action, propensity, clusters, levels).findings(propensity_min=propensity_min)
