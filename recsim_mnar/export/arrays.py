"""A log's decisions as arrays, and a policy's distribution at each of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import of_type, whole_number
from recsim_mnar.log import schema
from recsim_mnar.log.contexts import Context, UserFeatures, contexts_of
from recsim_mnar.log.rows import steps_within, user_begins, user_starts
from recsim_mnar.log.schema import as_type
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import checked_distribution
from recsim_mnar.policies.door import as_policy, learning_of, refuse_common_learning
from recsim_mnar.replays.probabilities import blocks_of, replay_rounds, rounds_of, slate_size_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CELLS = 1 << 22
"""Largest number of probabilities that are computed in one call of a policy, to bound memory."""


@dataclass(frozen=True)
class Decisions:
    """The d decisions of u users in a log, in its order, each with its context.

    Attributes:
        n_items: number of items; actions are 0 .. n_items - 1.
        context: (d, c) float32, features of the user's events before the decision.
        action: (d,) recommended items; (d, N) slates, from the top; or (d, n_items) float32, weights of all items.
        reward: (d,) rewards; the sum over the positions for slates.
        propensity: probability of each recommended item, or entry for each weight, in the shape of ``action``.
        user: (d,) users; a user's decisions are consecutive.
        step: (d,) number of the user's earlier events.
        last: (d,) True for a user's last decision.
        truncated: (d,) True if the decision is the last one only because a limit was reached.
        final: (u, c) float32, features of all of a user's events, for the state after the last decision.
    """

    n_items: int
    context: NDArray[np.float32]
    action: NDArray[Any]
    reward: Floats
    propensity: Floats
    user: Ints
    step: Ints
    last: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.action)

    def episodes(self) -> list[slice]:
        """Return the rows of each user's decisions as slices, one per user."""
        ends = np.flatnonzero(self.last) + 1
        starts = np.append(0, ends[:-1])
        return [slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]

    def next_context(self) -> NDArray[np.float32]:
        """Return for each decision the user's context at the next one, or ``final`` after the last one, (d, c)."""
        out = np.empty_like(self.context)
        out[:-1] = self.context[1:]
        out[self.last] = self.final
        return out

    def log(self) -> Log:
        """Convert to a Log of bandit rows for estimators, with the step as time.

        Raises:
            UserError: the actions are not single items.
        """
        n = len(require_single_items(self))
        return Log(
            {
                "user": self.user,
                "step": self.step,
                "time": self.step.astype(np.float64),
                "event": np.full(n, schema.BANDIT, np.int8),
                "action": self.action,
                "propensity": self.propensity,
                "reward": self.reward,
            }
        )


def require_single_items(decisions: Any) -> Decisions:
    """Return ``decisions`` if each of their actions is one item.

    Raises:
        UserError: they are no Decisions, or their actions are slates or weights.
    """
    checked_type = require_decisions(decisions)
    action = checked_type.action
    if action.ndim > 1:
        kind = "weights of all items"
        if np.issubdtype(action.dtype, np.integer):
            kind = "slates"
        raise UserError(f"these decisions are {kind}, no single items: only to_minari takes them")
    return checked_type


def require_decisions(decisions: Any) -> Decisions:
    """Return ``decisions`` if they are Decisions, whatever their actions are.

    Raises:
        UserError: they are anything else.
    """
    words = "Decisions (recsim_mnar.export.decisions makes them)"
    checked_type: Decisions = of_type(decisions, "decisions", Decisions, words)
    return checked_type


def decisions(
    log: Log,
    n_items: int,
    *,
    context: Context = "counts",
    user_features: UserFeatures | None = None,
) -> Decisions:
    """Return the decisions of a log as arrays; a slate is one decision.

    Args:
        log: log ordered by (user, step).
        n_items: number of items; items and actions are 0 .. n_items - 1.
        context: name of the features of a user's events, an ``observation`` of :class:`recsim_mnar.FeaturePolicy`, such
            as ``shown=0.9``.
        user_features: function from users (n,) to features (n, k) that are known when users arrive; None without any.

    Raises:
        UserError: no decision in the log, an item or action out of range, an unknown context, or slates that are
            incomplete or of several sizes.
    """
    n_items = whole_number(n_items, "n_items", 1)
    of_type(log, "log", Log, "a Log (read_log reads one)")
    contexts, finals = contexts_of(log, n_items, context, user_features=user_features)
    decision_rows = np.flatnonzero(log["event"] == schema.BANDIT)
    if len(decision_rows) == 0:
        raise UserError("the log has no bandit rows: there are no decisions to export")
    action = log["action"][decision_rows].astype(np.int64)
    if action.min() < 0 or action.max() >= n_items:
        bad = int(action[(action < 0) | (action >= n_items)][0])
        raise UserError(f"the log has action {bad}, but n_items = {n_items}: actions must be in 0..{n_items - 1}")
    reward = log["reward"][decision_rows]
    propensity = log["propensity"][decision_rows]
    size = slate_size_of(log)
    if size > 1:  # one row per position in the log: the first one has the context at which the slate was chosen
        position = log["position"][decision_rows]
        if len(position) % size or np.any(position.reshape(-1, size) != np.arange(size)):
            raise UserError(f"slates must be whole and of one size, here {size}, with positions from 0 at the top")
        contexts = contexts[::size]
        decision_rows = decision_rows[::size]
        action = action.reshape(-1, size)
        propensity = propensity.reshape(-1, size)
        reward = reward.reshape(-1, size).sum(axis=1)
    user = log["user"][decision_rows]
    all_users = log["user"][user_starts(log["user"])]  # in the order of finals; some may have no decision
    return Decisions(
        n_items=n_items,
        context=contexts,
        action=action,
        reward=reward,
        propensity=propensity,
        user=user,
        step=log["step"][decision_rows].astype(np.int64),
        last=last_of_each(user),
        truncated=np.zeros(len(user), np.bool_),
        final=finals[np.isin(all_users, user)],
    )


def distributions(log: Log, policy: Any) -> Floats:
    """Compute a policy's probability of every item at each logged decision.

    The policy observes each user's logged events up to the decision, as it would if it acted there.

    Args:
        log: log ordered by (user, step).
        policy: a policy as :func:`recsim_mnar.policies.door.as_policy` takes it; it is not changed.

    Returns:
        (d, n_items), rows in the order of the log's bandit rows. If the policy logged the data itself, the entries of
        the logged actions are the logged propensities.

    Raises:
        UserError: an item unknown to the policy, invalid probabilities, a policy that learns from all users, or a log
            of slates.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    if slate_size_of(log) > 1:
        raise UserError(
            "distributions are of single items, and the log has slates: replay(log, policy) gives a policy's "
            "probability of each item at its place"
        )
    policy = as_policy(policy)
    refuse_common_learning(policy, "distributions")
    top = log.highest_item
    if top >= policy.n_items:
        raise UserError(f"the log has item {top}, policy {policy.name!r} knows items 0..{policy.n_items - 1}")
    decision_of_row = np.cumsum(log.is_bandit) - 1  # index of a bandit row among the decisions
    out = np.empty((int(log.is_bandit.sum()), policy.n_items))
    # A policy that learns has to see each outcome before the user's next decision: one decision per user and round.
    one_by_one = learning_of(policy) != "nothing"
    batch_size = max(1, _CELLS // policy.n_items)
    first_row = 0  # of the block, in the whole log
    for block in blocks_of(log):
        acting = policy.fresh()
        # Each round yields the rows of decisions for which the policy has observed the users' earlier events.
        for rows in replay_rounds(block, [acting], rounds_of(block, one_by_one=one_by_one)):
            for begin in range(0, len(rows), batch_size):
                batch = rows[begin : begin + batch_size]
                p = acting.probabilities(block["user"][batch])
                decision = decision_of_row[first_row + batch]
                out[decision] = checked_distribution(acting, p, policy.n_items, n=len(batch))
        first_row += len(block["user"])
    return out


def from_arrays(
    n_items: int,
    context: Any,
    action: Any,
    reward: Any,
    propensity: Any,
    *,
    user: Any = None,
    step: Any = None,
    final: Any = None,
    truncated: Any = None,
) -> Decisions:
    """Build decisions from the columns of another library.

    Args:
        n_items: number of items; actions are 0 .. n_items - 1.
        context: (d, c) numbers, the features at each decision.
        action: (d,) whole numbers, the recommended items.
        reward: (d,) numbers.
        propensity: (d,) probabilities of the recommended items, in (0, 1].
        user: (d,) users, a user's rows consecutive; if None, every decision is of a different user.
        step: (d,) number of the user's earlier events; if None, of the user's earlier decisions.
        final: (u, c) contexts after each user's last decision; if None, the last context is repeated.
        truncated: (d,) True where a limit ended the user's decisions; if None, no limit ended any.

    Raises:
        UserError: arrays of different lengths, actions out of range, propensities outside (0, 1].
    """
    n_items = whole_number(n_items, "n_items", 1)
    action_ = _column(action, np.int64, "action")
    n = len(action_)
    context_ = as_type(context, np.dtype(np.float32), "context")
    if context_.shape[:1] != (n,):
        raise UserError(f"context must have one row per action, {n}, got shape {context_.shape}")
    context_ = context_.reshape(n, context_.size // max(n, 1))
    user_ = _column_or(np.arange(n), user, np.int64, "user")
    reward_ = _column(reward, np.float64, "reward")
    propensity_ = _column(propensity, np.float64, "propensity")
    _check_rows(n_items, action=action_, reward=reward_, propensity=propensity_, user=user_)
    last = last_of_each(user_)
    was_cut = np.zeros(n, np.bool_)
    if truncated is not None:
        was_cut = np.asarray(truncated, np.bool_)
    final_ = context_[last]
    if final is not None:
        final_ = np.asarray(final, np.float32).reshape(int(last.sum()), -1)
    return Decisions(
        n_items=n_items,
        context=context_,
        action=action_,
        reward=reward_,
        propensity=propensity_,
        user=user_,
        step=_column_or(steps_within(user_), step, np.int64, "step"),
        last=last,
        truncated=last & was_cut,
        final=final_,
    )


def _check_rows(n_items: int, *, action: Ints, reward: Floats, propensity: Floats, user: Ints) -> None:
    """Raise UserError if columns differ in length, an action is out of range, or a propensity is not in (0, 1]."""
    n = len(action)
    lengths = {len(user), len(reward), len(propensity)}
    if lengths != {n}:
        raise UserError(f"context, action, reward, propensity and user must be of one length, got {n} and {lengths}")
    if n and (action.min() < 0 or action.max() >= n_items):
        raise UserError(f"actions must be in 0..{n_items - 1}, got {int(action.min())}..{int(action.max())}")
    bad = np.flatnonzero(~((propensity > 0) & (propensity <= 1)))
    if len(bad):
        raise UserError(f"row {bad[0]}: propensity must be in (0, 1], got {propensity[bad[0]]}")


def _column(values: Any, dtype: type, name: str) -> NDArray[Any]:
    """Convert values to a one-dimensional array of a type; ``name`` is the column's, for errors."""
    return as_type(values, np.dtype(dtype), name).reshape(-1)


def _column_or(default: NDArray[Any], values: Any, dtype: type, name: str) -> NDArray[Any]:
    """Convert values as :func:`_column` does; return ``default`` if they are None."""
    if values is None:
        return default
    return _column(values, dtype, name)


def last_of_each(user: Ints) -> NDArray[np.bool_]:
    """Mark the last row of each user, (n,); a user's rows are consecutive."""
    return np.append(user_begins(user), True)[1:]
