"""What agents would recommend: each user's first k candidates, and what these lists are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Policy
from recsim_mnar.rng import Stream, uniforms

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NONE = -1
"""In a list: there is no further candidate."""

_SCORES_AT_A_TIME = 1 << 21
"""Scores held at once, users x items of a chunk; the chunk changes no result."""


@dataclass(frozen=True)
class Recommended:
    """What lists of k items are made of.

    Attributes:
        coverage: share of the items in the agents' data that stand in at least one list.
        popularity: (U,) mean over each user's list of the share of users who have met the item.
    """

    coverage: float
    popularity: Floats


def top_items(name: str, policy: Policy, views: Views, owners: Ints, *, k: int, unseen: bool, seed: int) -> Ints:
    """The k candidates that an agent scores highest for each user, best first.

    Ties are broken by draws at the address (seed, PROTOCOL, user, item), so that an agent without a preference lists
    other items for each user.

    Args:
        name: of the agent, for messages.
        policy: fitted on ``views``.
        views: what every user has met.
        owners: (U,) index in ``views`` of the users who get a list, each once.
        k: items of a list.
        unseen: leave out what the user has met.
        seed: of the draws.

    Returns:
        (U, k) items; :data:`NONE` behind the last candidate.

    Raises:
        UserError: the agent's scores are not numbers.
    """
    lists = np.full((len(owners), k), NONE, np.int64)
    chunk = max(1, _SCORES_AT_A_TIME // policy.n_items)
    for begin in range(0, len(owners), chunk):
        part = owners[begin : begin + chunk]
        users = views.users[part]
        place, seen = _met(views, part)
        policy.reset_training_users(users, users)
        policy.observe(users[place], seen)
        scores = _checked(name, policy.scores(users), len(users), policy.n_items)
        policy.forget(users)
        if unseen:
            scores[place, seen] = -np.inf
        lists[begin : begin + len(part)] = _first(scores, users, k, unseen, seed)
    return lists


def _met(views: Views, owners: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """What these users have met, in their order: (index among them, item)."""
    first = views.starts[owners]
    length = views.starts[owners + 1] - first
    place = np.repeat(np.arange(len(owners)), length)
    position = np.arange(len(place)) + np.repeat(first - (np.cumsum(length) - length), length)
    return place, views.items[position]


def _checked(name: str, scores: Any, n: int, n_items: int) -> Floats:
    found = np.array(scores, dtype=np.float64)
    if found.shape != (n, n_items) or np.isnan(found).any():
        raise UserError(f"agent {name!r}: scores() must return numbers of shape ({n}, {n_items}), got {found.shape}")
    return found


def _first(scores: Floats, users: Ints, k: int, unseen: bool, seed: int) -> Ints:
    """The k best of each row; only those that reach its k-th score draw, and few of them are sorted."""
    n, n_items = scores.shape
    least = np.partition(scores, n_items - k, axis=1)[:, n_items - k] if k < n_items else scores.min(axis=1)
    chosen = scores >= least[:, None]
    if unseen:
        chosen &= scores > -np.inf
    crowded = np.flatnonzero(chosen.sum(axis=1) > k)
    if len(crowded):
        chosen[crowded] &= _drawn(scores[crowded], least[crowded], users[crowded], k, seed)
    row, item = np.nonzero(chosen)
    draw = uniforms(seed, Stream.PROTOCOL, users[row], item)
    order = np.lexsort((draw, -scores[row, item], row))
    row, item = row[order], item[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    kept = place < k
    lists = np.full((n, k), NONE, np.int64)
    lists[row[kept], place[kept]] = item[kept]
    return lists


def _drawn(scores: Floats, least: Floats, users: Ints, k: int, seed: int) -> NDArray[np.bool_]:
    """Of each row those above the k-th score, and the k least draws of those level with it."""
    above = scores > least[:, None]
    row, item = np.nonzero(scores == least[:, None])
    draws = np.full(scores.shape, np.inf)
    draws[row, item] = uniforms(seed, Stream.PROTOCOL, users[row], item)
    some = np.argpartition(draws, k - 1, axis=1)[:, :k]
    rows = np.arange(len(scores))[:, None]
    above[rows, some] |= draws[rows, some] < np.inf
    return above


def recommended(lists: Ints, views: Views, n_items: int) -> Recommended:
    """What lists are made of.

    Args:
        lists: (U, k) as :func:`top_items` gives them.
        views: what every user has met.
        n_items: items are 0 .. n_items - 1.
    """
    pairs = np.unique(views.owners() * n_items + views.items)
    holders = np.bincount(pairs % n_items, minlength=n_items)
    known = holders > 0
    there = lists != NONE
    listed = np.zeros(n_items, bool)
    listed[lists[there]] = True
    share = np.where(there, holders[np.where(there, lists, 0)] / len(views.users), 0.0)
    length = np.maximum(there.sum(axis=1), 1)
    return Recommended(float(np.mean(listed[known])), share.sum(axis=1) / length)
