"""What each user did, as numbers: the features by which real users may be told from simulated ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recsim_mnar.fitting.validation.lives import Floats, Lives
from recsim_mnar.fitting.validation.material import Material
from recsim_mnar.fitting.validation.statistics import GAP


def user_features(m: Material) -> tuple[list[str], Floats]:
    """Names, and (n_users, f) features; those that are the same for all users are left out."""
    found = list(_features(m))
    kept = [(name, values) for name, values in found if np.ptp(values) > 0]
    if not kept:
        return [], np.zeros((m.lives.n_users, 0))
    return [name for name, _ in kept], np.stack([values for _, values in kept], axis=1)


def _features(m: Material) -> Iterator[tuple[str, Floats]]:
    views = m.lives.views
    if len(views.owner):
        yield "views", views.per_user()
        yield from _of_views(m, views)
    if m.lives.shown.any() and len(views.owner):
        yield "recommendations", m.lives.decisions.per_user()
        yield "recommendations a view", m.lives.decisions.per_user() / np.maximum(views.per_user(), 1.0)
    yield from _of_runs(m.lives)
    if m.clock:
        owner, lengths = m.lives.gaps()
        yield "mean log time between events", _mean(owner, np.log1p(np.maximum(lengths, 0.0)), m.lives.n_users)
        yield "longest time between events", _largest(owner, lengths, m.lives.n_users)
    yield from _of_decisions(m)


def _of_views(m: Material, views: Lives) -> Iterator[tuple[str, Floats]]:
    n, n_users = np.maximum(views.per_user(), 1.0), views.n_users
    count = np.bincount(views.item, minlength=views.n_items)
    level = np.log(np.maximum(count, 1.0))[views.item]
    mean = _mean(views.owner, level, n_users)
    yield "popularity of the items viewed", mean
    yield "spread of their popularity", np.sqrt(np.maximum(_mean(views.owner, level**2, n_users) - mean**2, 0.0))
    if m.lives.rates:
        stars = _mean(views.owner, views.reward, n_users)
        yield "mean rating", stars
        yield "spread of ratings", np.sqrt(np.maximum(_mean(views.owner, views.reward**2, n_users) - stars**2, 0.0))
    else:
        again = (views.earlier_views() > 0).astype(np.float64)
        yield "share of views of items met before", _mean(views.owner, again, n_users)
        same = (views.owner[1:] == views.owner[:-1]) & (views.item[1:] == views.item[:-1])
        yield "same item twice in a row", np.bincount(views.owner[1:][same], minlength=n_users) / n
    if m.items is not None:
        at = m.items[views.item]
        centre = np.stack([_mean(views.owner, column, n_users) for column in at.T], axis=1)
        for i, column in enumerate(centre.T):
            yield f"direction {i + 1} of the items", column
        yield "distance from the mean user", np.sqrt((centre**2).sum(axis=1))
        step = np.einsum("ij,ij->i", at[1:], at[:-1])
        same_user = views.owner[1:] == views.owner[:-1]
        yield "likeness of views in a row", _mean(views.owner[1:][same_user], step[same_user], n_users)
        yield "spread within the user", _mean(views.owner, (at**2).sum(axis=1), n_users) - (centre**2).sum(axis=1)


def _of_runs(lives: Lives) -> Iterator[tuple[str, Floats]]:
    gap = GAP if lives.dated else None
    if gap is None and not (lives.shown.any() and (~lives.shown).any()):
        return
    run, place = lives.runs(gap)
    last = np.append(run[1:] != run[:-1], True)
    for name, of in (("views", ~lives.shown), ("recommendations", lives.shown)):
        kept = last & of
        if kept.any():
            yield f"runs of {name}", np.bincount(lives.owner[kept], minlength=lives.n_users).astype(np.float64)
            yield (
                f"longest run of {name}",
                _largest(lives.owner[kept], (place[kept] + 1).astype(np.float64), lives.n_users),
            )


def _of_decisions(m: Material) -> Iterator[tuple[str, Floats]]:
    decisions = m.lives.decisions
    if len(decisions.owner) == 0 or m.lives.rates:
        return
    reward = np.nan_to_num(decisions.reward)
    yield "clicks", decisions.per_user(reward)
    yield "clicks a recommendation", decisions.per_user(reward) / np.maximum(decisions.per_user(), 1.0)
    before = (m.lives.earlier_views()[m.lives.shown] > 0).astype(np.float64)
    yield "clicks on items viewed before", decisions.per_user(reward * before)


def _mean(owner: np.ndarray, values: Floats, n_users: int) -> Floats:
    total, count = np.bincount(owner, values, minlength=n_users), np.bincount(owner, minlength=n_users)
    return np.divide(total, count, out=np.zeros(n_users), where=count > 0)


def _largest(owner: np.ndarray, values: Floats, n_users: int) -> Floats:
    found = np.zeros(n_users)
    np.maximum.at(found, owner, values)
    return found
