"""The table of statistics by which a world is compared with a log, each made of columns of each user's own.

Whatever is chosen by the data (bins, directions of items) is chosen on all users at once, real and simulated, so
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

from recsim_mnar.fitting.checks import CUMULATIVE, SCALED, SHARES, STANDARD, Check, Columns, Groups, compared
from recsim_mnar.log import schema
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import steps_within, user_begins, user_numbers
from recsim_mnar.log.table import Log

_COLUMNS = ("owner", "shown", "item", "reward")


@dataclass(frozen=True)
class Lives:
    """Rows of users 0 .. n_users - 1, each of whom has one, a user's together and in order; columns (n,).

    ``owner`` is a row's user; ``shown``: whether it is a recommendation, else a view or a rating, of the ``item``;
    ``reward``: of a recommendation, or the rating; NaN where there is none.
    """

    n_users: int
    n_items: int
    owner: Ints
    shown: NDArray[np.bool_]
    item: Ints
    reward: Floats

    @classmethod
    def of(cls, log: Log, n_items: int) -> Lives:
        """Make the lives of a log with rows ordered by (user, step)."""
        owner = user_numbers(log["user"])
        decision_rows = log["event"] == schema.BANDIT
        item = np.where(decision_rows, log["action"], log["item"]).astype(np.int64)
        if len(owner):
            n_users = int(owner[-1]) + 1
        else:
            n_users = 0
        return cls(n_users, n_items, owner, decision_rows, item, log["reward"].astype(np.float64))

    def rows(self, which: NDArray[np.bool_]) -> Lives:
        """Some rows; users without any stay counted."""
        return dataclasses.replace(self, **{name: getattr(self, name)[which] for name in _COLUMNS})

    @staticmethod
    def joined(parts: Sequence[Lives]) -> Lives:
        """Concatenate the users of several logs over the same items."""
        first = np.cumsum([0] + [part.n_users for part in parts])
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        columns["owner"] = np.concatenate([part.owner + start for part, start in zip(parts, first, strict=False)])
        return Lives(int(first[-1]), max(part.n_items for part in parts), **columns)

    @functools.cached_property
    def views(self) -> Lives:
        """Return the organic rows."""
        return self.rows(~self.shown)

    @functools.cached_property
    def decisions(self) -> Lives:
        """Return the recommendations."""
        return self.rows(self.shown)

    @functools.cached_property
    def rates(self) -> bool:
        """True if the organic rows are ratings."""
        return bool(np.isfinite(self.reward[~self.shown]).any())

    def per_user(self, values: Floats | None = None) -> Floats:
        """Return (n_users,) sums over each user's rows, of 1 by default."""
        return np.bincount(self.owner, values, minlength=self.n_users).astype(np.float64)

    def position(self) -> Ints:
        """Return (n,) the place of each row among its user's, from 0."""
        return steps_within(self.owner)

    def place_in_run(self) -> Ints:
        """Return (n,) the place of each row, from 0, in its run of rows of one kind and user."""
        new = user_begins(self.owner)
        new[1:] |= self.shown[1:] != self.shown[:-1]
        return steps_within(np.cumsum(new) - 1)

    def earlier(self, counted: NDArray[np.bool_]) -> Ints:
        """Count (n,) the marked earlier rows of the same user and item."""
        pair = self.owner * self.n_items + self.item
        order = np.argsort(pair, kind="stable")
        first = user_begins(pair[order])
        before: Ints = np.cumsum(counted[order]) - counted[order]
        earlier_rows = np.empty(len(order), np.int64)
        earlier_rows[order] = before - before[first][np.cumsum(first) - 1]
        return earlier_rows


BINS = 30
"""Different ratings, at most."""
NEAR, FAR = (1, 4), (11, 30)
"""Lags of the last views and of those far back, for drift."""
PLACES = (1, 2, 3, 5, 9, 17, 33)
"""Where groups of places begin."""
_PRIOR = 3.0
"""Views of no direction that are counted with each user's own, so that few views say little."""


@dataclass(frozen=True)
class Material:
    """Input of the statistics: the lives of all users, real and simulated.

    ``same_items``: whether item numbers mean the same on both sides. ``items`` are directions (n_items, d), near each
    other of those that the same users meet; None without ``same_items``.
    """

    lives: Lives
    same_items: bool
    items: Floats | None

    @classmethod
    def of(cls, sides: Sequence[Lives], *, same_items: bool) -> Material:
        """Make the material of the users of several sides, one after another."""
        lives = Lives.joined(sides)
        return cls(lives, same_items, directions_of(lives.views) if same_items else None)


DIRECTIONS = 6
"""Of items, along which users' tastes are compared."""


def directions_of(views: Lives) -> Floats | None:
    """(n_items, 6) items as directions, by correspondence analysis of who met what; None where there are too few."""
    from scipy import sparse
    from scipy.sparse.linalg import svds

    counts = by_item(views)
    users = views.per_user()
    items = np.bincount(views.item, minlength=views.n_items).astype(np.float64)
    if min(np.sum(users > 0), np.sum(items > 0)) <= DIRECTIONS + 2:
        return None
    left = sparse.diags_array(1.0 / np.sqrt(np.maximum(users, 1.0)))
    # Items met a few times would have directions of noise: they are drawn towards none.
    right = sparse.diags_array(1.0 / np.sqrt(items + items.mean()))
    _, sizes, rows = svds((left @ counts @ right).tocsr(), k=DIRECTIONS + 1, v0=np.ones(min(counts.shape)))
    kept = np.argsort(-sizes)[1:]
    return np.asarray((right @ rows[kept].T) * np.sqrt(max(float(items.sum()), 1.0)), np.float64)


def by_item(rows: Lives):  # type: ignore[no-untyped-def]  # scipy has no types
    """Return (U, n_items) sparse counts of the rows by user and item."""
    from scipy import sparse

    return sparse.csr_array((np.ones(len(rows.owner)), (rows.owner, rows.item)), shape=(rows.n_users, rows.n_items))


@dataclass(frozen=True)
class Row:
    """A row of the table: a check, the question that it bears on ("valid for ..."), and what its headline is in words.

    Distances up to ``tolerance`` above chance are small. ``shown``: whether it hangs on what users are recommended;
    ``columns``: the users'; None where a log has nothing for it.
    """

    name: str
    question: str
    what: str
    tolerance: float
    shown: bool
    columns: Callable[[Material], Columns | None]

    def check(self, columns: Columns | None, groups: Groups) -> list[Check]:
        """Check its columns; return no check where there are none."""
        if columns is None:
            return []
        checks = compared(columns, groups)
        return [Check(self.name, "statistic", self.question, self.what, tolerance=self.tolerance, **checks)]


def _shares(sums: Floats) -> Floats:
    return sums / np.maximum(sums.sum(axis=1, keepdims=True), 1e-300)


def _ratio(top: Any, bottom: Any) -> Floats:
    """Quotients; 0 where there is nothing to divide by."""
    return np.divide(top, bottom, out=np.zeros(np.shape(top)), where=np.asarray(bottom) > 0)


def _by_place(owner: Ints, values: Floats, place: Ints, n_users: int, axis: str) -> Columns:
    """Means of values over all rows, and in groups of places, which count from 0."""
    group = np.searchsorted(PLACES, place + 1, side="right") - 1
    flags = [np.ones(len(owner), np.bool_), *(group == i for i in range(len(PLACES)))]
    names = ["all", *(f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in itertools.pairwise(PLACES))]
    weights = (values, np.ones(len(owner)))
    k = len(flags)
    sums = np.stack([np.bincount(owner[f], w[f], minlength=n_users) for w in weights for f in flags], axis=1)
    return Columns(
        sums,
        lambda s: _ratio(s[:, :k], s[:, k:]),
        SCALED,
        lambda s: _ratio(s[:, 0], s[:, k]),
        [*names, f"{PLACES[-1]} on"],
        axis,
        {axis: _ratio(sums[:, 0], sums[:, k])},
    )


def _contrasts(m: Material, outcome: Floats, axis: str) -> Columns | None:
    """Compare the traits of recommendations with an outcome with those of all, in standard deviations."""
    if not outcome.any():
        return None
    decisions = m.lives.decisions
    traits = traits_of(m)
    columns = [decisions.per_user(outcome), decisions.per_user()]
    for trait in traits.values():
        z = (trait - trait.mean()) / max(float(trait.std()), 1e-300)
        columns += [decisions.per_user(z * outcome), decisions.per_user(z)]
    sums = np.stack(columns, axis=1)

    def values(s: Floats) -> Floats:
        return _ratio(s[:, 2::2], s[:, :1]) - _ratio(s[:, 3::2], s[:, 1:2])

    features = {f"{axis} {name}": sums[:, 2 * i + 2] for i, name in enumerate(traits)}
    return Columns(sums, values, STANDARD, lambda s: values(s)[:, 0], [*traits], axis, features)


def popularity_level(views: Lives) -> Floats:
    """Return (n_items,) the share of views of less popular items, plus half of the item's own: from 0 to 1."""
    count = np.bincount(views.item, minlength=views.n_items).astype(np.float64)
    order = np.argsort(count, kind="stable")
    return ((np.cumsum(count[order]) - count[order] / 2) / max(count.sum(), 1.0))[np.argsort(order)]


def traits_of(m: Material) -> dict[str, Floats]:
    """Compute the traits of each recommendation to its user, by name: (d,) each."""
    lives = m.lives
    traits = {}
    if m.items is not None:
        traits["like what was viewed"] = _likeness(lives, m.items[lives.item])
    traits["viewed before"] = np.log1p(lives.earlier(~lives.shown))
    traits["popular"] = popularity_level(lives.views)[lives.item]
    traits["late"] = np.log1p(lives.position())
    return {name: values[lives.shown] for name, values in traits.items()}


def _likeness(lives: Lives, at: Floats) -> Floats:
    """Return (n,) the similarity of each row's item to the user's earlier views, 0 if there are none."""
    seen = np.column_stack([at, np.ones(len(at))]) * ~lives.shown[:, None]
    running = np.cumsum(seen, axis=0) - seen
    before = running - running[np.arange(len(at)) - lives.position()]
    return np.einsum("ij,ij->i", before[:, :-1], at) / (before[:, -1] + _PRIOR)


def _popular_items(m: Material) -> Columns | None:
    views = m.lives.views
    if len(views.owner) == 0:
        return None
    level = np.log1p(np.bincount(views.item, minlength=views.n_items))[views.item]
    mean = _ratio(views.per_user(level), views.per_user())
    spread = _ratio(views.per_user(level**2), views.per_user()) - mean**2
    features = {"popularity of the items viewed": mean, "spread of their popularity": spread}

    def curve(sums: Floats) -> Floats:
        return np.cumsum(-np.sort(-_shares(sums), axis=1), axis=1)

    if m.same_items:
        values = _shares
    else:
        values = curve
    if m.same_items:
        distance = SHARES
    else:
        distance = CUMULATIVE
    tenth = max(1, views.n_items // 10) - 1
    names = [str(i) for i in range(views.n_items)]
    return Columns(by_item(views), values, distance, lambda s: curve(s)[:, tenth], names, "item", features)


def _co_occurrence(m: Material) -> Columns | None:
    views = m.lives.views
    if m.items is None:
        return None
    n = views.per_user()
    mean = np.stack([_ratio(views.per_user(column), n) for column in m.items[views.item].T], axis=1)
    i, j = np.triu_indices(mean.shape[1])
    names = [f"{a + 1}" if a == b else f"{a + 1} with {b + 1}" for a, b in zip(i, j, strict=True)]

    def values(sums: Floats) -> Floats:
        return sums[:, 1:] / np.maximum(sums[:, :1], 1.0)

    features = {f"direction {k + 1} of the items": column for k, column in enumerate(mean.T)}
    features["distance from the mean"] = (mean**2).sum(axis=1)
    return Columns(
        np.column_stack([n > 0, mean[:, i] * mean[:, j]]),
        values,
        SCALED,
        lambda s: values(s)[:, i == j].sum(axis=1),
        names,
        "directions of items, squares and products",
        features,
    )


def _drift(m: Material) -> Columns | None:
    """Compute how much better the last views predict the next one than older views do.

    Of the same view, so tastes cancel.
    """
    views = m.lives.views
    columns = []
    names = []
    for name, agree in _agreements(m, views):
        near = _mean_over(views, agree, NEAR)
        far = _mean_over(views, agree, FAR)
        both = np.isfinite(near) & np.isfinite(far)
        if both.any():
            names.append(name)
            some = views.rows(both)
            near = near[both]
            columns += [some.per_user(near - far[both]), some.per_user(near), some.per_user()]
    if not names:
        return None
    sums = np.stack(columns, axis=1)
    features = {f"drift, {name}": _ratio(sums[:, 3 * i], sums[:, 3 * i + 2]) for i, name in enumerate(names)}
    return Columns(
        sums,
        lambda s: _ratio(s[:, 0::3], s[:, 2::3]),
        SCALED,
        lambda s: _ratio(s[:, 0], s[:, 1]),
        names,
        "kind of agreement",
        features,
    )


def _agreements(m: Material, views: Lives) -> Iterator[tuple[str, Callable[[Ints, int], Floats]]]:
    """List measures of agreement of two views: functions of positions and a lag to numbers."""
    if m.items is not None:
        at = m.items[views.item]
        yield "likeness", lambda rows, lag: np.einsum("ij,ij->i", at[rows], at[rows - lag])
    if not m.lives.rates:
        yield "same item", lambda rows, lag: (views.item[rows] == views.item[rows - lag]).astype(np.float64)


def _mean_over(views: Lives, agree: Callable[[Ints, int], Floats], lags: tuple[int, int]) -> Floats:
    """Return (n,) the mean agreement of each view with the same user's at given lags; NaN where there are none."""
    total = np.zeros(len(views.owner))
    count = np.zeros(len(views.owner))
    position = views.position()
    for lag in range(lags[0], lags[1] + 1):
        rows = np.flatnonzero(position >= lag)
        total[rows] += agree(rows, lag)
        count[rows] += 1
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def _clicks_by_place(m: Material) -> Columns | None:
    lives = m.lives
    decisions = m.lives.decisions
    if lives.rates or not (decisions.reward > 0).any():
        return None
    place = lives.place_in_run()[lives.shown]
    return _by_place(decisions.owner, decisions.reward, place, lives.n_users, "clicks by place in a row")


def _clicks_by_interest(m: Material) -> Columns | None:
    if m.lives.rates:
        return None
    return _contrasts(m, m.lives.decisions.reward, "clicked items, compared with shown, are")


def _leaving(m: Material) -> Columns | None:
    last = np.append(user_begins(m.lives.owner)[1:], True)[m.lives.shown].astype(np.float64)
    if m.lives.rates:
        return None
    return _contrasts(m, last, "items shown last, compared with all, are")


def _stars(m: Material) -> Columns | None:
    views = m.lives.views
    scale, code = np.unique(views.reward if m.lives.rates else np.zeros(0), return_inverse=True)
    if not 0 < len(scale) <= BINS:
        return None
    sums = np.zeros((views.n_users, len(scale)))
    np.add.at(sums, (views.owner, code), 1.0)
    mean = _ratio(sums @ scale, views.per_user())
    features = {"mean rating": mean, "spread of ratings": _ratio(sums @ scale**2, views.per_user()) - mean**2}
    return Columns(sums, _shares, SHARES, lambda s: _shares(s) @ scale, [f"{v:g}" for v in scale], "rating", features)


TABLE = (
    Row(
        "popular items",
        "which items are popular: head and tail, what a popularity ranking shows",
        "share of views on the top 10 % of items",
        0.05,
        False,
        _popular_items,
    ),
    Row(
        "co-occurrence",
        "which items the same users meet: what collaborative filtering learns from",
        "spread of users over the directions of items",
        0.10,
        False,
        _co_occurrence,
    ),
    Row(
        "drift",
        "how fast interests move: whether a user's last views predict more than old ones",
        "how much more the last views predict than old ones, share",
        0.25,
        False,
        _drift,
    ),
    Row(
        "clicks by place",
        "whether users tire of recommendations, or warm to them",
        "clicks per recommendation",
        0.10,
        True,
        _clicks_by_place,
    ),
    Row(
        "clicks by interest",
        "what makes users click: which recommender earns more",
        "how far clicked items differ, in standard deviations",
        0.10,
        True,
        _clicks_by_interest,
    ),
    Row(
        "leaving",
        "whether recommendations drive users away",
        "how far items shown last differ, in standard deviations",
        0.10,
        True,
        _leaving,
    ),
    Row("ratings given", "how high revealed ratings are", "mean revealed rating", 0.03, False, _stars),
)
