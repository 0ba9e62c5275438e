"""Where a held-out view's item ranks among the candidates, by an agent that does not know of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import able, fitted
from recsim_mnar.rng import derive_seed

_SCORES_AT_A_TIME = 1 << 21
"""Scores held at once, n_users x n_items of a chunk; the chunk changes no result."""

TIES = ("drawn", "lowest")

Ints = NDArray[np.int64]


def ranks_of(
    name: str,
    policy: Policy,
    views: Views,
    owners: Ints,
    held: Ints,
    unseen: bool,
    *,
    ties: str = "drawn",
    own_rows: bool = True,
) -> tuple[Ints, Ints]:
    """For each held-out view: the number of candidates above its item, and of others level with it.

    Args:
        name: of the agent, for messages.
        policy: fitted on the users' other views, or on those of other users.
        views: all views.
        owners: (n,) index of each held-out view's user, each user once or one view after another.
        held: (n,) position of each held-out view.
        unseen: leave the items of the remaining views out of the candidates.
        ties: with "lowest" equal items of a lower index count as above, and none as level.
        own_rows: the policy was fitted on rows of these very users.
    """
    items = views.items[held]
    fixed = policy.fixed_distribution() is not None and not unseen
    if fixed:
        score = np.asarray(policy.scores(views.users[:1])[0], dtype=np.float64)
        _check_scores(name, score[None], 1, policy.n_items)
        if ties == "lowest":
            return np.argsort(np.argsort(-score, kind="stable"))[items], np.zeros(len(held), np.int64)
        ordered = np.sort(score)
        right = np.searchsorted(ordered, score[items], side="right")
        return len(ordered) - right, right - np.searchsorted(ordered, score[items], side="left") - 1
    above, n_tied = np.empty(len(held), np.int64), np.empty(len(held), np.int64)
    distinct = len(np.unique(owners)) == len(owners)
    chunk = max(1, _SCORES_AT_A_TIME // policy.n_items)
    for begin in range(0, len(held), chunk):
        part = slice(begin, min(begin + chunk, len(held)))
        place, seen = _remaining(views, owners[part], held[part])
        originals = views.users[owners[part]]
        # A user with several held-out views is several users here, each without one of them.
        users = originals if distinct else np.arange(part.stop - part.start)
        if own_rows:
            policy.reset_training_users(users, originals)
        else:
            policy.reset(users)
        policy.observe(users[place], seen)
        scores = _check_scores(name, policy.scores(users), len(users), policy.n_items)
        policy.forget(users)
        table = _count(name, scores, items[part], place, seen, unseen, above[part], n_tied[part])
        if ties == "lowest":
            above[part] += [np.count_nonzero(row[:i] == row[i]) for row, i in zip(table, items[part], strict=True)]
            n_tied[part] = 0
    return above, n_tied


def _remaining(views: Views, owners: Ints, held: Ints) -> tuple[Ints, NDArray[np.int32]]:
    """The views left to each held-out view's user: (index among the held-out ones, item), in the user's order."""
    first = views.starts[owners]
    length = views.starts[owners + 1] - first
    place = np.repeat(np.arange(len(owners)), length)
    position = np.arange(len(place)) - np.repeat(np.cumsum(length) - length, length) + np.repeat(first, length)
    kept = position != held[place]
    return place[kept], views.items[position[kept]]


def _check_scores(name: str, scores: Any, n: int, n_items: int) -> NDArray[np.floating]:
    found = np.asarray(scores)
    if found.shape != (n, n_items) or found.dtype.kind not in "fiub":
        raise UserError(
            f"agent {name!r}: scores() must return numbers of shape ({n}, {n_items}), got {found.dtype} {found.shape}"
        )
    return found


def _count(
    name: str,
    scores: NDArray[Any],
    items: NDArray[np.int32],
    place: Ints,
    seen: NDArray[np.int32],
    unseen: bool,
    above: Ints,
    n_tied: Ints,
) -> NDArray[Any]:
    """Fill ``above`` and ``n_tied`` from score rows; the rows, with what is no candidate at -inf."""
    from recsim_mnar.protocols.leave_one_out import _ranks_kernel

    single = scores.dtype == np.float32
    copied = np.array if unseen else np.asarray
    table = copied(scores, dtype=np.float32 if single else np.float64, order="C")
    if unseen:
        rows = np.arange(len(items))
        own = table[rows, items]
        table[place, seen] = -np.inf
        table[rows, items] = own
    if not table.flags.writeable:  # the kernel is compiled for one kind of array only
        table = table.copy()
    _ranks_kernel.above_and_tied(table, items, above, n_tied)
    if n_tied.min() < 0:
        raise UserError(f"agent {name!r}: scores() returned NaN; every item needs a number")
    return table


def exhaustive_ranks(
    name: str, learner: Learner, log: Log, views: Views, n_items: int, unseen: bool, seed: int
) -> tuple[Ints, Ints]:
    """As :func:`ranks_of` for every view, each with the agent as fitted without it."""
    owner = views.owners()
    counting = able(learner, "leave_one_out_ranks")
    if counting is not None:
        found = counting.leave_one_out_ranks(log, n_items=n_items, unseen=unseen)
        if found is not None:
            return found
    if learner.ignores_own_views:
        policy = fitted(learner, log, n_items=n_items, seed=derive_seed(seed, "fit"))
        return ranks_of(name, policy, views, owner, np.arange(len(views.items)), unseen)
    scoring = able(learner, "scores_without_each_view")
    if scoring is None:
        raise UserError(
            f"agent {name!r} cannot leave out every view without refitting: use folds (exhaustive=False), or give it a "
            "method scores_without_each_view"
        )
    above, n_tied = np.empty(len(views.items), np.int64), np.empty(len(views.items), np.int64)
    chunk = max(1, _SCORES_AT_A_TIME // n_items)
    for held, scores in scoring.scores_without_each_view(log, n_items=n_items, chunk=chunk):
        place, seen = _remaining(views, owner[held], held) if unseen else (held[:0], views.items[:0])
        a, b = np.empty(len(held), np.int64), np.empty(len(held), np.int64)
        _count(name, _check_scores(name, scores, len(held), n_items), views.items[held], place, seen, unseen, a, b)
        above[held], n_tied[held] = a, b
    return above, n_tied
