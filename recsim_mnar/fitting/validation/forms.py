"""Forms of statistics: distributions, means by groups of rows and by distance, made of sums over each user's rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from recsim_mnar.fitting.validation.lives import Floats, Ints, Lives
from recsim_mnar.fitting.validation.two_groups import CUMULATIVE, SCALED, Statistic

LAGS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32))
"""Distances in views at which a user's views are compared, first and last."""
BINS = 30
"""Of a distribution, at most."""


def popularity_level(views: Lives) -> Floats:
    """(n_items,) share of views that are of less popular items, and half of its own: from 0 to 1."""
    count = np.bincount(views.item, minlength=views.n_items).astype(np.float64)
    order = np.argsort(count, kind="stable")
    level = np.empty(len(count))
    level[order] = (np.cumsum(count[order]) - count[order] / 2) / max(count.sum(), 1.0)
    return level


def user_sums(owner: Ints, values: Floats, n_users: int) -> Floats:
    """(U,) sums of the rows' values by user."""
    return np.bincount(owner, values, minlength=n_users).astype(np.float64)


def shares(sums: Floats) -> Floats:
    """Of each group (row) its parts of the total; (P, k)."""
    return sums / np.maximum(sums.sum(axis=1, keepdims=True), 1e-300)


def ratio(top: Floats, bottom: Floats) -> Floats:
    """Quotients; 0 where there is nothing to divide by."""
    return np.divide(top, bottom, out=np.zeros_like(top, dtype=np.float64), where=bottom > 0)


def by_item(rows: Lives, values: Floats | None = None):  # type: ignore[no-untyped-def]  # scipy has no types
    """(U, n_items) sparse sums of the rows by user and item, each of weight 1 unless said."""
    from scipy import sparse

    weight = np.ones(len(rows.owner)) if values is None else values
    return sparse.csr_array((weight, (rows.owner, rows.item)), shape=(rows.n_users, rows.n_items))


def histogram(name: str, question: str, owner: Ints, values: Floats, n_users: int, axis: str, what: str) -> Statistic:
    """The distribution of values, each of which is a user's; bins of about equal counts, the mean as headline."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)))
    code = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, max(len(edges) - 1, 0))
    sums = np.zeros((n_users, len(edges) + 2))
    np.add.at(sums, (owner, code), 1.0)
    sums[:, -2] = np.bincount(owner, values, minlength=n_users)
    sums[:, -1] = np.bincount(owner, minlength=n_users)

    def cumulative(groups: Floats) -> Floats:
        return np.cumsum(shares(groups[:, :-2]), axis=1)

    return Statistic(
        name, question, sums, cumulative, CUMULATIVE, lambda s: ratio(s[:, -2], s[:, -1]), what, 0.05,
        [f"{edge:.3g}" for edge in edges], axis,
    )  # fmt: skip


def profile(
    name: str, question: str, owner: Ints, values: Floats, place: Ints, begins: Sequence[int], n_users: int,
    axis: str, what: str, tolerance: float, *, overall: bool = False,
) -> Statistic:  # fmt: skip
    """Means of values by groups of places; with ``overall`` the mean over all rows is an entry of its own."""
    group = np.searchsorted(begins, place, side="right") - 1
    flags = [group == i for i in range(len(begins))]
    names = [f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in zip(begins, [*begins[1:], 0], strict=True)]
    names[-1] = f"{begins[-1]} on"
    if overall:
        flags.append(np.ones(len(owner), np.bool_))
        names.append("all")
    k, n = len(flags), len(flags) - overall

    def headline(sums: Floats) -> Floats:
        return ratio(sums[:, :n].sum(axis=1), sums[:, k : k + n].sum(axis=1))

    return grouped(name, question, owner, values, flags, names, n_users, axis, what, headline, tolerance=tolerance)


def grouped(
    name: str, question: str, owner: Ints, values: Floats, flags: Sequence[Floats | Ints], names: list[str],
    n_users: int, axis: str, what: str, headline: Callable[[Floats], Floats], *, tolerance: float = 0.10,
) -> Statistic:  # fmt: skip
    """Means of values in groups of rows."""
    top = [np.bincount(owner[flag], values[flag], minlength=n_users) for flag in flags]
    bottom = [np.bincount(owner[flag], minlength=n_users) for flag in flags]
    k = len(top)
    sums = np.stack([*top, *bottom], axis=1).astype(np.float64)
    return Statistic(
        name, question, sums, lambda s: ratio(s[:, :k], s[:, k : 2 * k]), SCALED, headline, what, tolerance, names,
        axis,
    )  # fmt: skip


def lag_profile(
    name: str, question: str, pairs: Sequence[tuple[Ints, Floats, int]], n_users: int, axis: str, what: str
) -> Statistic | None:
    """Means of what pairs of a user's views have in common, by how many views lie between."""
    k = len(LAGS)
    sums = np.zeros((n_users, 2 * k))
    for owner, values, i in pairs:
        sums[:, i] += np.bincount(owner, values, minlength=n_users)
        sums[:, k + i] += np.bincount(owner, minlength=n_users)
    if not sums[:, :k].any():
        return None
    names = [f"{a}" if a == b else f"{a}-{b}" for a, b in LAGS]
    return Statistic(
        name, question, sums, lambda s: ratio(s[:, :k], s[:, k:]), SCALED, lambda s: ratio(s[:, 0], s[:, k]), what,
        0.10, names, axis,
    )  # fmt: skip
