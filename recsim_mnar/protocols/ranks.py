"""Agents' scores of items given users' views: ranks of held-out views, top lists, scores of all items."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ratings import top_items as best_items
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.table import Log
from recsim_mnar.log.views import Views
from recsim_mnar.policies.base import Learner, Policy, observe_events
from recsim_mnar.policies.door import able, fitted
from recsim_mnar.rng import derive_seed

_SCORES_AT_A_TIME = 1 << 21
"""Largest number of scores in memory, n_users x n_items of a chunk; the chunk changes no result."""

CANDIDATES = ("all", "unseen")
"""Items that are ranked for a user."""

TIES = ("drawn", "lowest")
"""Orders of items with equal scores: at random, or the lowest index first."""

NONE = -1
"""Entry of a list after the last candidate."""


def scores_after(
    policy: Policy,
    users: Ints,
    owners: Ints,
    items: NDArray[Any],
    originals: Ints | None,
    ratings: Floats | None = None,
) -> Any:
    """Return a policy's scores (n, n_items) for users after some views; the policy then forgets the users.

    Args:
        policy: the policy.
        users: (n,) users to score for.
        owners: (m,) user of each view, in order.
        items: (m,) viewed items.
        originals: (n,) ids of the users in the training log; None if they are not in it.
        ratings: (m,) ratings that go with the views, NaN for a view without one; None for no ratings.
    """
    if originals is None:
        policy.reset(users)
    else:
        policy.reset_training_users(users, originals)
    if ratings is None:
        policy.observe(owners, items)
    else:
        observe_events(policy, owners, items, ratings)
    scores = policy.scores(users)
    policy.forget(users)
    return scores


def scores_of_everyone(name: str, policy: Policy, log: Log, n_users: int) -> Floats:
    """Return (U, I) an agent's scores for users 0 .. U - 1 after the organic rows of their training log.

    Args:
        name: name of the agent, for messages.
        policy: the fitted policy.
        log: the training log, whose organic rows may have ratings.
        n_users: number U of users.

    Raises:
        UserError: a score is not a number.
    """
    organic = log.organic()
    owner = organic["user"]
    out = np.empty((n_users, policy.n_items))
    step = max(1, _SCORES_AT_A_TIME // policy.n_items)
    for first in range(0, n_users, step):
        users = np.arange(first, min(first + step, n_users))
        rows = slice(*np.searchsorted(owner, [first, users[-1] + 1]))
        out[users] = scores_after(policy, users, owner[rows], organic["item"][rows], users, organic["reward"][rows])
    if np.isnan(out).any():
        raise UserError(f"agent {name!r}: a score is not a number: was its training stopped too late?")
    return out


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
    """Count, for each held-out view, the candidates with a larger score than its item, and those with an equal score.

    Args:
        name: name of the agent, for messages.
        policy: policy fitted on the users' other views, or on those of other users.
        views: all views.
        owners: (n,) user of each held-out view, as the index in ``views``; the views of a user are consecutive.
        held: (n,) position of each held-out view in ``views``.
        unseen: True to exclude the items of the user's remaining views from the candidates.
        ties: one of :data:`TIES`; with "lowest", equal items of a lower index count as larger, and none as equal.
        own_rows: True if the policy was fitted on rows of the same users.

    Returns:
        above: (n,) number of candidates with a larger score.
        n_tied: (n,) number of other candidates with an equal score.
    """
    items = views.items[held]
    if policy.fixed_distribution() is not None and not unseen:  # all users have the same scores and candidates
        score = np.asarray(policy.scores(views.users[:1])[0], dtype=np.float64)
        checked_scores(name, score[None], 1, policy.n_items)
        if ties == "lowest":
            return np.argsort(np.argsort(-score, kind="stable"))[items], np.zeros(len(held), np.int64)
        ordered = np.sort(score)
        right = np.searchsorted(ordered, score[items], side="right")
        return len(ordered) - right, right - np.searchsorted(ordered, score[items], side="left") - 1
    above = np.empty(len(held), np.int64)
    n_tied = np.empty(len(held), np.int64)
    are_distinct = len(np.unique(owners)) == len(owners)
    chunk = max(1, _SCORES_AT_A_TIME // policy.n_items)
    for begin in range(0, len(held), chunk):
        part = slice(begin, begin + chunk)
        seen_by, seen = views_of(views, owners[part], held[part])
        originals = views.users[owners[part]]
        # A user with several held-out views counts as several users, each without one of the views.
        users = originals if are_distinct else np.arange(len(originals))
        result = scores_after(policy, users, users[seen_by], seen, originals if own_rows else None)
        scores = checked_scores(name, result, len(users), policy.n_items)
        left_out = (seen_by, seen) if unseen else None
        table, above[part], n_tied[part] = _count(name, scores, items[part], left_out)
        if ties == "lowest":
            # Candidates with an equal score and a lower index than the held-out item come before it.
            above[part] += [np.count_nonzero(row[:i] == row[i]) for row, i in zip(table, items[part], strict=True)]
            n_tied[part] = 0
    return above, n_tied


def views_of(views: Views, owners: Ints, held: Ints | None = None) -> tuple[Ints, NDArray[np.int32]]:
    """Return the views of some users in order, except one held-out view of each.

    Args:
        views: all views.
        owners: (n,) users, as indexes in ``views``.
        held: (n,) position in ``views`` of each user's held-out view; None to hold out none.

    Returns:
        seen_by: (m,) user of each view, as an index in ``owners``.
        seen: (m,) viewed items.
    """
    first = views.starts[owners]
    length = views.starts[owners + 1] - first
    seen_by = np.repeat(np.arange(len(owners)), length)
    # Position of each view: the number of the output row, shifted from the user's first output row to `first`.
    position = np.arange(len(seen_by)) + np.repeat(first - (np.cumsum(length) - length), length)
    if held is not None:
        kept = position != held[seen_by]
        seen_by = seen_by[kept]
        position = position[kept]
    return seen_by, views.items[position]


def checked_scores(name: str, scores: Any, n: int, n_items: int) -> NDArray[np.floating]:
    """Return scores as an array; raise UserError, with the agent's name, unless they are (n, n_items) numbers."""
    result = np.asarray(scores)
    if result.shape != (n, n_items) or result.dtype.kind not in "fiub":
        raise UserError(
            f"agent {name!r}: scores() must return numbers of shape ({n}, {n_items}), got {result.dtype} {result.shape}"
        )
    return result


def _count(
    name: str, scores: NDArray[Any], items: NDArray[np.int32], left_out: tuple[Ints, NDArray[np.int32]] | None
) -> tuple[NDArray[Any], Ints, Ints]:
    """Count the candidates with a larger score than an item, and those with an equal score, row by row.

    Args:
        name: name of the agent, for messages.
        scores: (n, n_items) scores.
        items: (n,) held-out item of each row.
        left_out: rows (m,) and items (m,) of scores that are no candidates, unless an item is held out; None for none.

    Returns:
        table: (n, n_items) scores, -inf for items that are no candidates.
        above: (n,) number of candidates with a larger score.
        n_tied: (n,) number of other candidates with an equal score.

    Raises:
        UserError: a score is NaN.
    """
    from recsim_mnar.kernels import _vectors_kernel

    dtype: Any = np.float64
    if scores.dtype == np.float32:
        dtype = np.float32  # the kernel takes both
    table = np.asarray(scores, dtype=dtype, order="C")
    if left_out is not None or not table.flags.writeable:  # the kernel is compiled for one kind of array only
        table = table.copy()
    if left_out is not None:
        rows = np.arange(len(items))
        item_scores = table[rows, items]  # a held-out item stays a candidate, also if it was viewed before
        table[left_out] = -np.inf
        table[rows, items] = item_scores
    above = np.empty(len(items), np.int64)
    n_tied = np.empty(len(items), np.int64)
    _vectors_kernel.above_and_tied(table, items, above, n_tied)
    if n_tied.min() < 0:  # the kernel's sign of a NaN in the row
        raise UserError(f"agent {name!r}: scores() returned NaN; every item needs a number")
    return table, above, n_tied


def exhaustive_ranks(
    name: str, learner: Learner, log: Log, views: Views, n_items: int, unseen: bool, seed: int
) -> tuple[Ints, Ints]:
    """Count, for every view, the candidates that score above and equal to its item for an agent fitted without it.

    Args:
        name: name of the agent, for messages.
        learner: the learner.
        log: the log.
        views: all views of the log.
        n_items: number of items, which are 0 .. n_items - 1.
        unseen: True to exclude the items of the user's other views from the candidates.
        seed: seed of the training.

    Returns:
        above: (n,) number of candidates with a larger score.
        n_tied: (n,) number of other candidates with an equal score.

    Raises:
        UserError: the learner would have to be fitted once per view.
    """
    counting = able(learner, "leave_one_out_ranks")
    if counting is not None:
        ranks = counting.leave_one_out_ranks(log, n_items=n_items, unseen=unseen)
        if ranks is not None:
            return ranks
    if learner.ignores_own_views:
        policy = fitted(learner, log, n_items=n_items, seed=derive_seed(seed, "fit"))
        return ranks_of(name, policy, views, views.owners(), np.arange(len(views.items)), unseen)
    raise UserError(
        f"agent {name!r} cannot leave out every view without refitting: use loocv, which has folds, or give it "
        "a method leave_one_out_ranks"
    )


def top_items(name: str, policy: Policy, views: Views, owners: Ints, *, k: int, unseen: bool, seed: int) -> Ints:
    """Return the k candidates that an agent scores highest for each user, best first.

    Ties are broken by draws at the address (seed, PROTOCOL, user, item), so that an agent without a preference lists
    different items for each user.

    Args:
        name: name of the agent, for messages.
        policy: policy fitted on ``views``.
        views: all views of the users.
        owners: (U,) distinct users who get a list, as indexes in ``views``.
        k: number of items per list.
        unseen: True to exclude the items that the user has viewed.
        seed: seed of the draws.

    Returns:
        (U, k) items; :data:`NONE` after the last candidate.

    Raises:
        UserError: the agent's scores are not numbers.
    """
    lists = np.full((len(owners), k), NONE, np.int64)
    chunk = max(1, _SCORES_AT_A_TIME // policy.n_items)
    for begin in range(0, len(owners), chunk):
        part = owners[begin : begin + chunk]
        users = views.users[part]
        seen_by, seen = views_of(views, part)
        result = scores_after(policy, users, users[seen_by], seen, users)
        scores = checked_scores(name, result, len(users), policy.n_items).astype(np.float64)
        if np.isnan(scores).any():
            raise UserError(f"agent {name!r}: scores() returned NaN; every item needs a number")
        if unseen:
            scores[seen_by, seen] = -np.inf
        best = best_items(scores, min(k, policy.n_items), users=users, seed=seed)
        if unseen:
            best[np.take_along_axis(scores, best, axis=1) == -np.inf] = NONE
        lists[begin : begin + len(part), : best.shape[1]] = best
    return lists
