"""The statistics by which a world is held against a log: each from the rows of real and simulated users together.

Whatever is chosen by the data (bins, directions of items) is chosen on all users at once, real and simulated, so
that it cannot favour one side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from recsim_mnar.fitting.validation.forms import (
    BINS,
    LAGS,
    by_item,
    grouped,
    histogram,
    lag_profile,
    popularity_level,
    profile,
    ratio,
    shares,
    user_sums,
)
from recsim_mnar.fitting.validation.lives import Floats, Ints, Lives
from recsim_mnar.fitting.validation.material import Material
from recsim_mnar.fitting.validation.two_groups import CUMULATIVE, SCALED, SHARES, Statistic
from recsim_mnar.progress import counting

NEAR, FAR = (1, 4), (11, 30)
"""Lags of the last views and of those far back, for drift."""
PLACES = (1, 2, 3, 5, 9, 17, 33)
"""Where groups of places begin."""
_PRIOR = 3.0
"""Views of no direction that are counted with each user's own, so that few views say little."""
GAP = 1800.0
"""Seconds without a row that end a session."""


def statistics(material: Material) -> Iterator[Statistic]:
    """Every statistic that both sides have something for."""
    for make in counting(_ALL, "checks"):
        found = make(material)
        if found is not None:
            yield found


def _activity(m: Material) -> Statistic | None:
    views = m.lives.views
    if len(views.owner) == 0:
        return None
    n = views.per_user()
    return histogram(
        "activity", "how much users do: events a user, and what rests on a user's history being long or short",
        np.arange(m.lives.n_users), n, m.lives.n_users, "views a user", "mean views a user",
    )  # fmt: skip


def _popularity_curve(m: Material) -> Statistic | None:
    views = m.lives.views
    if len(views.owner) == 0:
        return None
    n_items = views.n_items
    tenth = max(1, n_items // 10)

    def curve(sums: Floats) -> Floats:
        ordered = -np.sort(-shares(sums), axis=1)
        return np.cumsum(ordered, axis=1)

    return Statistic(
        "popularity curve", "how views concentrate on few items: head and tail, coverage, the gain of popularity",
        by_item(views), curve, CUMULATIVE, lambda sums: curve(sums)[:, tenth - 1],
        "share of views on the top 10 % of items", 0.03,
        [str(i + 1) for i in range(n_items)], "the most popular items, so many of them",
    )  # fmt: skip


def _popular_items(m: Material) -> Statistic | None:
    views = m.lives.views
    if not m.same_items or len(views.owner) == 0:
        return None
    count = np.bincount(views.item, minlength=views.n_items)
    top = np.argsort(-count, kind="stable")[:10]
    return Statistic(
        "popular items", "which items are popular: what a popularity ranking shows",
        by_item(views), shares, SHARES, lambda sums: shares(sums)[:, top].sum(axis=1),
        "share of views on the ten top items", 0.05, [str(i) for i in range(views.n_items)], "item",
    )  # fmt: skip


def _sessions(m: Material) -> Statistic | None:
    lives = m.lives
    shown, gap = bool(lives.shown.any()), GAP if lives.dated else None
    if not shown and gap is None:
        return None
    run, place = lives.runs(gap)
    last = np.append(run[1:] != run[:-1], True)
    kept = last & ~lives.shown
    if not kept.any():
        return None
    return histogram(
        "session lengths", "how long users browse in one go", lives.owner[kept],
        (place[kept] + 1).astype(np.float64), lives.n_users, "views in a row", "mean views in a row",
    )  # fmt: skip


def _recommendations(m: Material) -> Statistic | None:
    lives = m.lives
    if not lives.shown.any() or not (~lives.shown).any():
        return None
    run, place = lives.runs()
    last = np.append(run[1:] != run[:-1], True)
    kept = last & lives.shown
    return histogram(
        "recommendations in a row", "how many recommendations users sit through", lives.owner[kept],
        (place[kept] + 1).astype(np.float64), lives.n_users, "recommendations in a row",
        "mean recommendations in a row",
    )  # fmt: skip


def _repeats(m: Material) -> Statistic | None:
    views = m.lives.views
    if len(views.owner) == 0 or m.lives.rates:
        return None
    again = (views.earlier_views() > 0).astype(np.float64)
    place = views.position() + 1
    return profile(
        "repeat rate", "whether users come back to items: what recommending a user's own items earns",
        views.owner, again, place, PLACES, views.n_users, "place of the view in the user's life",
        "share of views of an item met before", 0.10,
    )  # fmt: skip


def _returns(m: Material) -> Statistic | None:
    views = m.lives.views
    if len(views.owner) == 0 or m.lives.rates:
        return None
    pairs = [
        (views.owner[:-lag][same], (views.item[:-lag] == views.item[lag:])[same].astype(np.float64), i)
        for i, lag, same in _lags(views)
    ]
    return lag_profile(
        "returns by distance", "whether users come back to an item soon or late", pairs, views.n_users,
        "same item again, so many views later", "two views in a row of one item",
    )  # fmt: skip


def _likeness_by_distance(m: Material) -> Statistic | None:
    views = m.lives.views
    if m.items is None or len(views.owner) == 0:
        return None
    at = m.items[views.item]
    pairs = [
        (views.owner[:-lag][same], np.einsum("ij,ij->i", at[:-lag][same], at[lag:][same]), i)
        for i, lag, same in _lags(views)
    ]
    return lag_profile(
        "likeness by distance", "how alike items are that a user meets one after another", pairs,
        views.n_users, "likeness of two views, so many views apart", "likeness of two views in a row",
    )  # fmt: skip


def _drift(m: Material) -> Statistic | None:
    """How much more the last views tell of the next one than views further back: of the same view, so tastes cancel."""
    views = m.lives.views
    if len(views.owner) == 0:
        return None
    columns, names = [], []
    for name, agree in _agreements(m, views):
        near, far = _mean_over(views, agree, NEAR), _mean_over(views, agree, FAR)
        both = np.isfinite(near) & np.isfinite(far)
        if both.any():
            owner = views.owner[both]
            columns += [np.bincount(owner, v, minlength=views.n_users)
                        for v in (near[both] - far[both], near[both], np.ones(int(both.sum())))]  # fmt: skip
            names.append(name)
    if not names:
        return None
    k = len(names)

    def values(sums: Floats) -> Floats:
        return np.stack([ratio(sums[:, 3 * i], sums[:, 3 * i + 2]) for i in range(k)], axis=1)

    def headline(sums: Floats) -> Floats:
        return ratio(sums[:, 0], sums[:, 1])

    return Statistic(
        "drift", "how fast interests move: whether what a user did last tells more than what lies back",
        np.stack(columns, axis=1).astype(np.float64), values, SCALED, headline,
        "what the last views tell more than those far back, share", 0.25, names, "kind of agreement",
    )  # fmt: skip


def _agreements(m: Material, views: Lives) -> Iterator[tuple[str, Callable[[Ints, int], Floats]]]:
    """How two views agree: functions of positions and a lag to numbers."""
    if m.items is not None:
        at = m.items[views.item]
        yield "likeness", lambda rows, lag: np.einsum("ij,ij->i", at[rows], at[rows - lag])
    if not m.lives.rates:
        yield "same item", lambda rows, lag: (views.item[rows] == views.item[rows - lag]).astype(np.float64)


def _mean_over(views: Lives, agree: Callable[[Ints, int], Floats], lags: tuple[int, int]) -> Floats:
    """(n,) mean agreement of each view with those of the same user so many views before; NaN where there are none."""
    total, count = np.zeros(len(views.owner)), np.zeros(len(views.owner))
    position = views.position()
    for lag in range(lags[0], lags[1] + 1):
        rows = np.flatnonzero(position >= lag)
        total[rows] += agree(rows, lag)
        count[rows] += 1
    return np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)


def _co_occurrence(m: Material) -> Statistic | None:
    views = m.lives.views
    if m.items is None or len(views.owner) == 0:
        return None
    at = m.items[views.item]
    n = views.per_user()
    mean = np.stack([views.per_user(column) for column in at.T], axis=1) / np.maximum(n, 1.0)[:, None]
    d = mean.shape[1]
    upper = np.triu_indices(d)
    products = (mean[:, :, None] * mean[:, None, :])[:, upper[0], upper[1]]
    own = [f"{i + 1}" if i == j else f"{i + 1} with {j + 1}" for i, j in zip(*upper, strict=True)]
    weights = np.ones((views.n_users, 1)) * (n > 0)[:, None]
    diagonal = upper[0] == upper[1]

    def values(sums: Floats) -> Floats:
        return sums[:, 1:] / np.maximum(sums[:, :1], 1.0)

    return Statistic(
        "co-occurrence", "which items the same users meet: what collaborative filtering learns from",
        np.hstack([weights, products]), values, SCALED, lambda sums: values(sums)[:, diagonal].sum(axis=1),
        "spread of users over the directions of items", 0.10, own, "directions of items, squares and products",
    )  # fmt: skip


def _between_users(m: Material) -> Statistic | None:
    """Variance between users: of tastes, of activity, of liking the popular, of clicking."""
    views = m.lives.views
    columns: list[Floats] = []
    parts: list[tuple[str, Callable[[Floats], Floats]]] = []

    def add(*some: Floats) -> int:
        columns.extend(some)
        return len(columns) - len(some)

    n_users = m.lives.n_users
    if len(views.owner):
        _taste_parts(m, views, add, parts)
    decisions = m.lives.decisions
    clicks, shown = decisions.per_user(np.nan_to_num(decisions.reward)), decisions.per_user()
    if clicks.any() and not m.lives.rates and shown.max() > 1:
        k = add(clicks * (clicks - 1), shown * (shown - 1), clicks, shown)
        parts.append(("clicking", lambda s: ratio(s[:, k], s[:, k + 1]) / np.maximum(ratio(s[:, k + 2],
                                                  s[:, k + 3]) ** 2, 1e-300) - 1.0))  # fmt: skip
    if not parts:
        return None

    def values(sums: Floats) -> Floats:
        return np.stack([part(sums) for _, part in parts], axis=1)

    sums = np.stack(columns, axis=1) if columns else np.zeros((n_users, 0))
    return Statistic(
        "variance between users", "how different users are: what personalising can gain over one list for all",
        sums, values, SCALED, lambda s: values(s)[:, 0], f"variance between users of {parts[0][0]}", 0.10,
        [name for name, _ in parts], "variance between users of",
    )  # fmt: skip


def _taste_parts(
    m: Material, views: Lives, add: Callable[..., int], parts: list[tuple[str, Callable[[Floats], Floats]]]
) -> None:
    n = views.per_user()
    level = popularity_level(views)[views.item]
    total, squares = views.per_user(level), views.per_user(level**2)
    k = add(total**2 - squares, n * (n - 1), total, n)
    parts.append((
        "liking the popular",
        lambda s: ratio(s[:, k], s[:, k + 1]) - ratio(s[:, k + 2], s[:, k + 3]) ** 2,
    ))  # fmt: skip
    log_n = np.log(np.maximum(n, 1.0))
    j = add(log_n, log_n**2, np.ones(views.n_users))
    parts.append(("activity", lambda s: ratio(s[:, j + 1], s[:, j + 2]) - ratio(s[:, j], s[:, j + 2]) ** 2))
    if m.items is not None:
        at = m.items[views.item]
        pairs = sum(views.per_user(c) ** 2 - views.per_user(c**2) for c in at.T)
        h = add(np.asarray(pairs), n * (n - 1))
        parts.insert(0, ("taste", lambda s: ratio(s[:, h], s[:, h + 1])))
    if m.lives.rates:
        stars = views.per_user(views.reward)
        r = add(stars**2 - views.per_user(views.reward**2), n * (n - 1), stars, n)
        parts.append(("mean rating", lambda s: ratio(s[:, r], s[:, r + 1]) - ratio(s[:, r + 2], s[:, r + 3]) ** 2))
    elif m.items is None:
        pairs = _own_pairs(views)
        i = add(pairs, n * (n - 1))
        parts.insert(0, ("taste (one item twice)", lambda s: ratio(s[:, i], s[:, i + 1])))


def _own_pairs(views: Lives) -> Floats:
    """(n_users,) ordered pairs of views of one item by one user."""
    pair, count = np.unique(views.owner * views.n_items + views.item, return_counts=True)
    return np.bincount(pair // views.n_items, count * (count - 1.0), minlength=views.n_users).astype(np.float64)


def _times(m: Material) -> Statistic | None:
    if not m.clock:
        return None
    owner, lengths = m.lives.gaps()
    if len(owner) == 0:
        return None
    return histogram(
        "time between events", "when things happen: anything in hours and days, not in events", owner, lengths,
        m.lives.n_users, "time between two events of a user", "mean time between events",
    )  # fmt: skip


def _clicks_by_place(m: Material) -> Statistic | None:
    lives = m.lives
    if not _clicks(lives):
        return None
    _, place = lives.runs()
    shown = lives.shown
    return profile(
        "clicks by place", "whether users tire of recommendations, or warm to them", lives.owner[shown],
        lives.reward[shown], place[shown] + 1, PLACES, lives.n_users, "place among recommendations in a row",
        "clicks a recommendation", 0.10, overall=True,
    )  # fmt: skip


def _clicks_by_interest(m: Material) -> Statistic | None:
    """How clicked items differ from shown ones: in likeness to what the user viewed, in being viewed, in popularity.

    Each in standard deviations of what was shown.
    """
    lives = m.lives
    if not _clicks(lives) or not (~lives.shown).any():
        return None
    shown = lives.shown
    owner, reward = lives.owner[shown], lives.reward[shown]
    traits = {
        "viewed before": np.log1p(lives.earlier_views()[shown]),
        "popular": popularity_level(lives.views)[lives.item[shown]],
    }
    if m.items is not None:
        traits = {"like what was viewed": _likeness(m)[shown], **traits}
    columns: list[Floats] = []
    for trait in traits.values():
        z = (trait - trait.mean()) / max(float(trait.std()), 1e-300)
        columns += [user_sums(owner, z * reward, lives.n_users), user_sums(owner, z, lives.n_users)]
    columns += [lives.decisions.per_user(reward), lives.decisions.per_user()]
    k = len(traits)

    def values(sums: Floats) -> Floats:
        return np.stack([ratio(sums[:, 2 * i], sums[:, -2]) - ratio(sums[:, 2 * i + 1], sums[:, -1])
                         for i in range(k)], axis=1)  # fmt: skip

    first = next(iter(traits))
    return Statistic(
        "clicks by interest", "what makes users click: which recommender earns more",
        np.stack(columns, axis=1).astype(np.float64), values, SCALED, lambda s: values(s)[:, 0],
        f"how far clicked items are {first}, in standard deviations", 0.10, list(traits),
        "clicked items, compared with shown ones, are",
    )  # fmt: skip


def _likeness(m: Material) -> Floats:
    """(n,) how much each row's item is like what its user has viewed before: 0 where there is nothing."""
    lives = m.lives
    assert m.items is not None
    at = m.items[lives.item]
    seen = np.where(lives.shown[:, None], 0.0, at)
    running = np.cumsum(seen, axis=0) - seen
    position = lives.position()
    start = np.arange(len(position)) - position
    before = running - running[start]
    views: Ints = np.cumsum(~lives.shown) - (~lives.shown)
    n: Ints = views - views[start]
    return np.einsum("ij,ij->i", before, at) / (n + _PRIOR)


def _clicked_items(m: Material) -> Statistic | None:
    lives = m.lives
    if not m.same_items or not _clicks(lives):
        return None
    decisions = lives.decisions
    clicked = decisions.rows(decisions.reward > 0)
    count = np.bincount(clicked.item, minlength=lives.n_items)
    top = np.argsort(-count, kind="stable")[:10]
    return Statistic(
        "clicked items", "which items are clicked when they are shown", by_item(clicked, clicked.reward), shares,
        SHARES, lambda sums: shares(sums)[:, top].sum(axis=1), "share of clicks on the ten top items", 0.05,
        [str(i) for i in range(lives.n_items)], "item",
    )  # fmt: skip


def _stars(m: Material) -> Statistic | None:
    views = m.lives.views
    if not m.lives.rates:
        return None
    scale, code = np.unique(views.reward, return_inverse=True)
    if len(scale) > BINS:
        return None
    sums = np.zeros((views.n_users, len(scale)))
    np.add.at(sums, (views.owner, code), 1.0)
    return Statistic(
        "ratings given", "how high revealed ratings are", sums, shares, SHARES, lambda s: shares(s) @ scale,
        "mean revealed rating", 0.03, [f"{each:g}" for each in scale], "rating",
    )  # fmt: skip


def _stars_by_popularity(m: Material) -> Statistic | None:
    views = m.lives.views
    if not m.lives.rates:
        return None
    level = np.minimum((popularity_level(views)[views.item] * 5).astype(np.int64), 4)
    return grouped(
        "ratings by popularity", "whether popular items are rated higher", views.owner, views.reward,
        [level == i for i in range(5)], [f"popularity fifth {i + 1}" for i in range(5)], views.n_users,
        "items by popularity", "mean rating in the top fifth", lambda s: ratio(s[:, 4], s[:, 9]), tolerance=0.03,
    )  # fmt: skip


_ALL: Sequence[Callable[[Material], Statistic | None]] = (
    _popularity_curve, _popular_items, _activity, _sessions, _recommendations, _repeats, _returns, _times,
    _co_occurrence, _likeness_by_distance, _drift, _between_users, _clicks_by_place, _clicks_by_interest,
    _clicked_items, _stars, _stars_by_popularity,
)  # fmt: skip


def _clicks(lives: Lives) -> bool:
    decisions = lives.decisions
    return len(decisions.owner) > 0 and bool((decisions.reward > 0).any()) and not lives.rates


def _lags(views: Lives) -> Iterator[tuple[int, int, Ints]]:
    """Group of lags, lag, and positions of views that have a view of the same user so much later."""
    for i, (first, last) in enumerate(LAGS):
        for lag in range(first, last + 1):
            if lag < len(views.owner):
                yield i, lag, np.flatnonzero(views.owner[:-lag] == views.owner[lag:])
