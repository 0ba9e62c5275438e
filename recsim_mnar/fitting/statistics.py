"""Statistics by which a world is compared with a log, each a function of sums over users.

Whatever depends on the data (bins, coordinates of items) is computed from all users at once, real and simulated, so
that it cannot favour one side.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.fitting.checks import CUMULATIVE, SCALED, SHARES, STANDARD, Check, Groups, Statistic, permutation_test
from recsim_mnar.log import schema
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import steps_within, user_begins, user_numbers
from recsim_mnar.log.table import Log

_COLUMNS = ("owner", "shown", "item", "reward")


@dataclass(frozen=True)
class UserRows:
    """Rows of a log or of simulated users as arrays, ordered by user and step.

    Attributes:
        n_users: number of users, numbered 0 .. n_users - 1.
        n_items: number of items.
        owner: (n,) user of each row, ascending.
        shown: (n,) True for a recommendation, False for a view or a rating.
        item: (n,) item of each row.
        reward: (n,) reward of a recommendation, or rating; NaN for a view.
    """

    n_users: int
    n_items: int
    owner: Ints
    shown: NDArray[np.bool_]
    item: Ints
    reward: Floats

    @classmethod
    def of(cls, log: Log, n_items: int) -> UserRows:
        """Read a log whose rows are ordered by (user, step)."""
        owner = user_numbers(log["user"])
        decision_rows = log["event"] == schema.BANDIT
        item = np.where(decision_rows, log["action"], log["item"]).astype(np.int64)
        if len(owner):
            n_users = int(owner[-1]) + 1
        else:
            n_users = 0
        return cls(n_users, n_items, owner, decision_rows, item, log["reward"].astype(np.float64))

    def select(self, which: NDArray[np.bool_]) -> UserRows:
        """Select rows by a mask (n,); users whose rows are all left out still count as users."""
        return dataclasses.replace(self, **{name: getattr(self, name)[which] for name in _COLUMNS})

    @staticmethod
    def joined(parts: Sequence[UserRows]) -> UserRows:
        """Concatenate the rows of several logs over the same items; users of later parts get higher numbers."""
        first = np.cumsum([0] + [part.n_users for part in parts])
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        columns["owner"] = np.concatenate([part.owner + start for part, start in zip(parts, first, strict=False)])
        return UserRows(int(first[-1]), max(part.n_items for part in parts), **columns)

    @functools.cached_property
    def views(self) -> UserRows:
        """Organic rows: views or ratings."""
        return self.select(~self.shown)

    @functools.cached_property
    def decisions(self) -> UserRows:
        """Recommendations."""
        return self.select(self.shown)

    @functools.cached_property
    def rates(self) -> bool:
        """Kind of the organic rows: True for ratings, False for views."""
        return bool(np.isfinite(self.reward[~self.shown]).any())

    def per_user(self, values: Floats | None = None) -> Floats:
        """Sum values (n,) over each user's rows, or count the rows where None; (n_users,)."""
        return np.bincount(self.owner, values, minlength=self.n_users).astype(np.float64)

    def position(self) -> Ints:
        """Return the number of earlier rows of the same user, (n,)."""
        return steps_within(self.owner)

    def place_in_run(self) -> Ints:
        """Return the place of each row, from 0, in its unbroken run of one user's recommendations or organic rows."""
        new = user_begins(self.owner)
        new[1:] |= self.shown[1:] != self.shown[:-1]
        return steps_within(np.cumsum(new) - 1)

    def earlier(self, counted: NDArray[np.bool_]) -> Ints:
        """Count, for each row, the earlier rows of the same user and item that are marked.

        Args:
            counted: (n,) True for the rows to count.

        Returns:
            (n,) counts.
        """
        pair = self.owner * self.n_items + self.item
        order = np.argsort(pair, kind="stable")
        # The stable sort puts rows of one user and item together, in order of time.
        begins_pair = user_begins(pair[order])
        before: Ints = np.cumsum(counted[order]) - counted[order]  # marked rows before, of any pair
        earlier_rows = np.empty(len(order), np.int64)
        earlier_rows[order] = before - before[begins_pair][np.cumsum(begins_pair) - 1]
        return earlier_rows


BINS = 30
"""Largest number of different ratings for which ratings are compared."""
NEAR = (1, 4)
"""First and last lag of the recent views that predict a view."""
FAR = (11, 30)
"""First and last lag of the old views that predict a view; drift is how much worse they do."""
PLACES = (1, 2, 3, 5, 9, 17, 33)
"""First place of each group of places, counted from 1."""
_PRIOR = 3.0
"""Views of no direction that are added to each user's, so that few views say little."""


@dataclass(frozen=True)
class Population:
    """Input of the statistics: the rows of all users, real and simulated.

    Attributes:
        rows: rows of all users.
        same_items: True if item numbers mean the same on both sides.
        items: (n_items, d) items as points, close together for items that the same users view; None without
            ``same_items``, or with too few users or items.
    """

    rows: UserRows
    same_items: bool
    items: Floats | None

    @classmethod
    def of(cls, sides: Sequence[UserRows], *, same_items: bool) -> Population:
        """Join the rows of several groups of users, and compute the items' points from all of them."""
        rows = UserRows.joined(sides)
        return cls(rows, same_items, directions_of(rows.views) if same_items else None)


DIRECTIONS = 6
"""Dimensions of items in which users' tastes are compared."""


def directions_of(views: UserRows) -> Floats | None:
    """Return items as points in ``DIRECTIONS`` dimensions, by correspondence analysis of users and viewed items.

    Args:
        views: organic rows.

    Returns:
        (n_items, DIRECTIONS) coordinates; None where too few users have views or too few items are viewed.
    """
    from scipy import sparse
    from scipy.sparse.linalg import svds

    counts = by_item(views)
    users = views.per_user()
    items = np.bincount(views.item, minlength=views.n_items).astype(np.float64)
    if min(np.sum(users > 0), np.sum(items > 0)) <= DIRECTIONS + 2:
        return None
    left = sparse.diags_array(1.0 / np.sqrt(np.maximum(users, 1.0)))
    # The mean count shrinks items with few views towards 0: their coordinates would be noise.
    right = sparse.diags_array(1.0 / np.sqrt(items + items.mean()))
    # A fixed start makes the iteration reproducible.
    _, sizes, rows = svds((left @ counts @ right).tocsr(), k=DIRECTIONS + 1, v0=np.ones(min(counts.shape)))
    kept = np.argsort(-sizes)[1:]  # the first singular vector is popularity alone
    return np.asarray((right @ rows[kept].T) * np.sqrt(max(float(items.sum()), 1.0)), np.float64)


def by_item(rows: UserRows):  # type: ignore[no-untyped-def]  # scipy has no types
    """Count the rows by user and item; a sparse array (n_users, n_items)."""
    from scipy import sparse

    return sparse.csr_array((np.ones(len(rows.owner)), (rows.owner, rows.item)), shape=(rows.n_users, rows.n_items))


@dataclass(frozen=True)
class StatisticCheck:
    """A check of a world by one statistic.

    Attributes:
        name: name of the check.
        question: question that the check bears on ("valid for ...").
        what: name of the headline number.
        tolerance: excess of the distance over chance that counts as small.
        compute: function that computes the statistic's sums by user; it returns None where the users have no data for
            the statistic.
        of_recommendations: True if the statistic directly depends on the recommendations that users get.
    """

    name: str
    question: str
    what: str
    tolerance: float
    compute: Callable[[Population], Statistic | None]
    of_recommendations: bool = False

    def check(self, statistic: Statistic | None, groups: Groups) -> list[Check]:
        """Compare held-out and simulated users by a statistic; return one check, none where ``statistic`` is None."""
        if statistic is None:
            return []
        numbers = permutation_test(statistic, groups)
        return [Check(self.name, "statistic", self.question, self.what, tolerance=self.tolerance, **numbers)]


def _shares(sums: Floats) -> Floats:
    """Return each row of sums (P, k) divided by its total."""
    return sums / np.maximum(sums.sum(axis=1, keepdims=True), 1e-300)


def _ratio(numerator: Any, denominator: Any) -> Floats:
    """Divide entry by entry; the ratio is 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=np.asarray(denominator) > 0)


def _by_place(owner: Ints, values: Floats, place: Ints, n_users: int, axis: str) -> Statistic:
    """Make the statistic of means of values, over all rows and over each group of places.

    Args:
        owner: (n,) user of each row.
        values: (n,) values to average.
        place: (n,) place of each row, from 0.
        n_users: number of users.
        axis: title of the means.
    """
    group = np.searchsorted(PLACES, place + 1, side="right") - 1
    masks = [np.ones(len(owner), np.bool_), *(group == i for i in range(len(PLACES)))]
    names = ["all", *(f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in itertools.pairwise(PLACES))]
    k = len(masks)
    # Columns 0 .. k - 1 are sums of the values, over all rows and by group; columns k .. 2 k - 1 count these rows.
    sums_by_user = []
    for summand in (values, np.ones(len(owner))):
        sums_by_user += [np.bincount(owner[mask], summand[mask], minlength=n_users) for mask in masks]
    sums = np.stack(sums_by_user, axis=1)
    return Statistic(
        sums,
        lambda s: _ratio(s[:, :k], s[:, k:]),
        distance=SCALED,
        headline=lambda s: _ratio(s[:, 0], s[:, k]),
        entries=[*names, f"{PLACES[-1]} on"],
        axis=axis,
        features={axis: _ratio(sums[:, 0], sums[:, k])},
    )


def _contrasts(population: Population, outcome: Floats, axis: str) -> Statistic | None:
    """Make the statistic of how recommendations with an outcome differ from all recommendations, trait by trait.

    Args:
        population: rows of all users.
        outcome: (d,) 1 for the d recommendations with the outcome, else 0.
        axis: title of the differences.

    Returns:
        The statistic, whose values are differences of means in standard deviations of each trait; None if no
        recommendation has the outcome.
    """
    if not outcome.any():
        return None
    decisions = population.rows.decisions
    traits = traits_of(population)
    # Columns 0 and 1 count the recommendations with the outcome, and all. Each trait adds two columns: its sums over
    # the former (even columns) and over the latter (odd ones).
    columns = [decisions.per_user(outcome), decisions.per_user()]
    for trait in traits.values():
        z = (trait - trait.mean()) / max(float(trait.std()), 1e-300)
        columns += [decisions.per_user(z * outcome), decisions.per_user(z)]
    sums = np.stack(columns, axis=1)

    def values(s: Floats) -> Floats:
        return _ratio(s[:, 2::2], s[:, :1]) - _ratio(s[:, 3::2], s[:, 1:2])

    features = {f"{axis} {name}": sums[:, 2 * i + 2] for i, name in enumerate(traits)}
    return Statistic(
        sums,
        values,
        distance=STANDARD,
        headline=lambda s: values(s)[:, 0],
        entries=[*traits],
        axis=axis,
        features=features,
    )


def popularity_level(views: UserRows) -> Floats:
    """Rank items by popularity: the share of all views that less popular items have, plus half of the item's share.

    Args:
        views: organic rows.

    Returns:
        (n_items,) levels from 0, least popular, to 1.
    """
    count = np.bincount(views.item, minlength=views.n_items).astype(np.float64)
    order = np.argsort(count, kind="stable")
    return ((np.cumsum(count[order]) - count[order] / 2) / max(count.sum(), 1.0))[np.argsort(order)]


def traits_of(population: Population) -> dict[str, Floats]:
    """Compute traits of the d recommendations that may explain clicks: by name, (d,) values, each item for its user."""
    rows = population.rows
    traits = {}
    if population.items is not None:
        traits["like what was viewed"] = _likeness(rows, population.items[rows.item])
    traits["viewed before"] = np.log1p(rows.earlier(~rows.shown))
    traits["popular"] = popularity_level(rows.views)[rows.item]
    traits["late"] = np.log1p(rows.position())
    return {name: values[rows.shown] for name, values in traits.items()}


def _likeness(rows: UserRows, at: Floats) -> Floats:
    """Return the similarity of each row's item to the user's earlier views, 0 if there are none.

    Args:
        rows: rows of all users.
        at: (n, d) point of each row's item.

    Returns:
        (n,) scalar products of the item with the mean of the viewed items, shrunk by ``_PRIOR`` views of 0.
    """
    # Coordinates of viewed items, and in the last column 1 for each view; recommendations count 0.
    viewed = np.column_stack([at, np.ones(len(at))]) * ~rows.shown[:, None]
    running = np.cumsum(viewed, axis=0) - viewed
    before = running - running[np.arange(len(at)) - rows.position()]  # less the sum at the user's first row
    return np.einsum("ij,ij->i", before[:, :-1], at) / (before[:, -1] + _PRIOR)


def _popular_items(population: Population) -> Statistic | None:
    """Make the statistic of the items' shares of views; None without views.

    Where items are not the same on both sides, shares are sorted by size and cumulated.
    """
    views = population.rows.views
    if len(views.owner) == 0:
        return None
    level = np.log1p(np.bincount(views.item, minlength=views.n_items))[views.item]
    mean = _ratio(views.per_user(level), views.per_user())
    spread = _ratio(views.per_user(level**2), views.per_user()) - mean**2
    features = {"popularity of the items viewed": mean, "spread of their popularity": spread}

    def concentration(sums: Floats) -> Floats:
        return np.cumsum(-np.sort(-_shares(sums), axis=1), axis=1)

    if population.same_items:
        values = _shares
        distance = SHARES
    else:
        values = concentration
        distance = CUMULATIVE
    top_tenth = max(1, views.n_items // 10) - 1
    return Statistic(
        by_item(views),
        values,
        distance=distance,
        headline=lambda s: concentration(s)[:, top_tenth],
        entries=[str(i) for i in range(views.n_items)],
        axis="item",
        features=features,
    )


def _co_occurrence(population: Population) -> Statistic | None:
    """Make the statistic of users' spread over item space; None where items have no common points.

    A user is the mean point of the viewed items; the values are mean squares and products of coordinates over users.
    """
    views = population.rows.views
    if population.items is None:
        return None
    n = views.per_user()
    mean = np.stack([_ratio(views.per_user(column), n) for column in population.items[views.item].T], axis=1)
    i, j = np.triu_indices(mean.shape[1])  # pairs of coordinates, squares included
    names = [f"{a + 1}" if a == b else f"{a + 1} with {b + 1}" for a, b in zip(i, j, strict=True)]

    def values(sums: Floats) -> Floats:
        return sums[:, 1:] / np.maximum(sums[:, :1], 1.0)

    features = {f"direction {k + 1} of the items": column for k, column in enumerate(mean.T)}
    features["distance from the mean"] = (mean**2).sum(axis=1)
    return Statistic(
        np.column_stack([n > 0, mean[:, i] * mean[:, j]]),
        values,
        distance=SCALED,
        headline=lambda s: values(s)[:, i == j].sum(axis=1),
        entries=names,
        axis="directions of items, squares and products",
        features=features,
    )


def _drift(population: Population) -> Statistic | None:
    """Make the statistic of how much better recent views predict a view than old ones; None without views of both.

    Both predictions are of the same views, so that stable tastes cancel.
    """
    views = population.rows.views
    columns = []
    names = []
    for name, agree in _agreements(population, views):
        near = _mean_over(views, agree, NEAR)
        far = _mean_over(views, agree, FAR)
        both = np.isfinite(near) & np.isfinite(far)
        if both.any():
            names.append(name)
            predicted = views.select(both)
            near = near[both]
            # Three columns for each measure: sums of the loss in agreement, of the recent agreement, and the count.
            columns += [predicted.per_user(near - far[both]), predicted.per_user(near), predicted.per_user()]
    if not names:
        return None
    sums = np.stack(columns, axis=1)
    features = {f"drift, {name}": _ratio(sums[:, 3 * i], sums[:, 3 * i + 2]) for i, name in enumerate(names)}
    return Statistic(
        sums,
        lambda s: _ratio(s[:, 0::3], s[:, 2::3]),
        distance=SCALED,
        headline=lambda s: _ratio(s[:, 0], s[:, 1]),
        entries=names,
        axis="kind of agreement",
        features=features,
    )


def _agreements(population: Population, views: UserRows) -> Iterator[tuple[str, Callable[[Ints, int], Floats]]]:
    """Yield names and functions that measure how far two views of a user agree.

    A function takes rows (n,) of views and a lag, and returns the agreement (n,) of each with the view ``lag`` rows
    before.
    """
    if population.items is not None:
        at = population.items[views.item]
        yield "likeness", lambda rows, lag: np.einsum("ij,ij->i", at[rows], at[rows - lag])
    if not population.rows.rates:
        yield "same item", lambda rows, lag: (views.item[rows] == views.item[rows - lag]).astype(np.float64)


def _mean_over(views: UserRows, agree: Callable[[Ints, int], Floats], lags: tuple[int, int]) -> Floats:
    """Average the agreement of each view with earlier views of the same user.

    Args:
        views: organic rows.
        agree: measure of agreement.
        lags: first and last distance of the earlier views.

    Returns:
        (n,) means; NaN where no view is so far back.
    """
    total = np.zeros(len(views.owner))
    count = np.zeros(len(views.owner))
    position = views.position()
    for lag in range(lags[0], lags[1] + 1):
        rows = np.flatnonzero(position >= lag)
        total[rows] += agree(rows, lag)
        count[rows] += 1
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def _clicks_by_place(population: Population) -> Statistic | None:
    """Make the statistic of clicks by place in an unbroken run of recommendations; None for ratings, or no clicks."""
    rows = population.rows
    decisions = rows.decisions
    if rows.rates or not (decisions.reward > 0).any():
        return None
    place = rows.place_in_run()[rows.shown]
    return _by_place(decisions.owner, decisions.reward, place, rows.n_users, "clicks by place in a row")


def _clicks_by_interest(population: Population) -> Statistic | None:
    """Make the statistic of how clicked recommendations differ from all; None for ratings, or without clicks."""
    if population.rows.rates:
        return None
    return _contrasts(population, population.rows.decisions.reward, "clicked items, compared with shown, are")


def _leaving(population: Population) -> Statistic | None:
    """Make the statistic of how recommendations after which users leave differ from all; None for ratings, or none."""
    if population.rows.rates:
        return None
    is_last_row = np.append(user_begins(population.rows.owner)[1:], True)
    is_last = is_last_row[population.rows.shown].astype(np.float64)
    return _contrasts(population, is_last, "items shown last, compared with all, are")


def _stars(population: Population) -> Statistic | None:
    """Make the statistic of the shares of ratings; None without ratings, or with more than ``BINS`` different ones."""
    if not population.rows.rates:
        return None
    views = population.rows.views
    scale, code = np.unique(views.reward, return_inverse=True)
    if len(scale) > BINS:
        return None
    sums = np.zeros((views.n_users, len(scale)))
    np.add.at(sums, (views.owner, code), 1.0)
    mean = _ratio(sums @ scale, views.per_user())
    features = {"mean rating": mean, "spread of ratings": _ratio(sums @ scale**2, views.per_user()) - mean**2}
    return Statistic(
        sums,
        _shares,
        distance=SHARES,
        headline=lambda s: _shares(s) @ scale,
        entries=[f"{v:g}" for v in scale],
        axis="rating",
        features=features,
    )


TABLE = (
    StatisticCheck(
        "popular items",
        "which items are popular: head and tail, what a popularity ranking shows",
        "share of views on the top 10 % of items",
        0.05,
        _popular_items,
    ),
    StatisticCheck(
        "co-occurrence",
        "which items the same users meet: what collaborative filtering learns from",
        "spread of users over the directions of items",
        0.10,
        _co_occurrence,
    ),
    StatisticCheck(
        "drift",
        "how fast interests move: whether a user's last views predict more than old ones",
        "how much more the last views predict than old ones, share",
        0.25,
        _drift,
    ),
    StatisticCheck(
        "clicks by place",
        "whether users tire of recommendations, or warm to them",
        "clicks per recommendation",
        0.10,
        _clicks_by_place,
        of_recommendations=True,
    ),
    StatisticCheck(
        "clicks by interest",
        "what makes users click: which recommender earns more",
        "how far clicked items differ, in standard deviations",
        0.10,
        _clicks_by_interest,
        of_recommendations=True,
    ),
    StatisticCheck(
        "leaving",
        "whether recommendations drive users away",
        "how far items shown last differ, in standard deviations",
        0.10,
        _leaving,
        of_recommendations=True,
    ),
    StatisticCheck("ratings given", "how high revealed ratings are", "mean revealed rating", 0.03, _stars),
)
