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
from recsim_mnar.replays.probabilities import blocks_of, rounds_of, slate_size_of, walk

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CELLS = 1 << 22


@dataclass(frozen=True)
class Decisions:
    """The recommendations of a log, in its order, each with what was known when it was made; d decisions, u users.

    Attributes:
        n_items: actions are 0 .. n_items - 1.
        context: (d, c) float32, of the user's events before.
        action: (d,) what was recommended; (d, N) slates, from the top; or (d, n_items) float32, weights of all items.
        reward: (d,) what it earned, of slates the sum over their places.
        propensity: probability with which it was chosen, in the shape of ``action``: of each item, or weight.
        user: (d,) to whom, a user's decisions one after another.
        step: (d,) position in that user's life.
        last: (d,) whether it is that user's last decision.
        truncated: (d,) whether it is the last one because a limit was reached: the user stayed.
        final: (u, c) float32, of each user's events until the end, for the users who have decisions.
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
        """The rows of each user."""
        ends = np.flatnonzero(self.last) + 1
        starts = np.append(0, ends[:-1])
        return [slice(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]

    def next_context(self) -> NDArray[np.float32]:
        """(d, c) contexts of the user at the next decision, or at the end."""
        out = np.empty_like(self.context)
        out[:-1] = self.context[1:]
        out[self.last] = self.final
        return out

    def log(self) -> Log:
        """The decisions as the bandit rows of a Log, whose time is the step: what estimators read.

        Raises:
            UserError: they are no single items.
        """
        n = len(checked(self))
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


def checked(given: Any) -> Decisions:
    """Decisions of single items, where they are.

    Raises:
        UserError: they are anything else.
    """
    checked_decisions = of_any_action(given)
    if checked_decisions.action.ndim > 1:
        if np.issubdtype(checked_decisions.action.dtype, np.integer):
            kind = "slates"
        else:
            kind = "weights of all items"
        raise UserError(f"these decisions are {kind}, no single items: only to_minari takes them")
    return checked_decisions


def of_any_action(given: Any) -> Decisions:
    """Decisions, where they are.

    Raises:
        UserError: they are anything else.
    """
    decisions_given: Decisions = of_type(
        given, "decisions", Decisions, "Decisions (recsim_mnar.export.decisions makes them)"
    )
    return decisions_given


def decisions(
    log: Log,
    n_items: int,
    *,
    context: Context = "counts",
    user_features: UserFeatures | None = None,
) -> Decisions:
    """The decisions of a log as arrays; a slate is one decision.

    Args:
        log: ordered by (user, step).
        n_items: items and actions are 0 .. n_items - 1.
        context: as ``observation`` of :class:`recsim_mnar.FeaturePolicy`: ``shown=0.9``, say.
        user_features: see :class:`recsim_mnar.FeaturePolicy`.

    Raises:
        UserError: no decision in the log, an item or action out of range, a context that is none, or slates that are
            not whole or not of one size.
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
    everyone = log["user"][user_starts(log["user"])]
    reward = log["reward"][decision_rows]
    propensity = log["propensity"][decision_rows]
    size = slate_size_of(log)
    if size > 1:  # what is known at a slate is what stands before its first place
        place = log["position"][decision_rows]
        if len(place) % size or np.any(place.reshape(-1, size) != np.arange(size)):
            raise UserError(f"slates must be whole and of one size, here {size}, with positions from 0 at the top")
        contexts = contexts[::size]
        decision_rows = decision_rows[::size]
        action = action.reshape(-1, size)
        propensity = propensity.reshape(-1, size)
        reward = reward.reshape(-1, size).sum(axis=1)
    user = log["user"][decision_rows]
    kept = np.isin(everyone, user)
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
        final=finals[kept],
    )


def distributions(log: Log, policy: Any) -> Floats:
    """Compute the probability of every item at each decision of a log, under a policy that observes the users' events.

    Args:
        log: ordered by (user, step).
        policy: as :func:`recsim_mnar.policies.door.as_policy` takes it; it is not changed.

    Returns:
        (d, n_items), rows in the order of the log's bandit rows; of the logging policy, the column of the logged action
        holds the logged propensities.

    Raises:
        UserError: an item that the policy does not know, probabilities that are none, a policy that learns from all
            users, or a log of slates.
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
    decision = np.cumsum(log["event"] == schema.BANDIT) - 1
    out = np.empty((int(log.is_bandit.sum()), policy.n_items))
    one_by_one = learning_of(policy) != "nothing"
    step = max(1, _CELLS // policy.n_items)
    first_row = 0
    for block in blocks_of(log):
        acting = policy.fresh()
        for rows in walk(block, [acting], rounds_of(block, one_by_one=one_by_one)):
            for begin in range(0, len(rows), step):
                some = rows[begin : begin + step]
                law = acting.probabilities(block["user"][some])
                out[decision[first_row + some]] = checked_distribution(acting, law, policy.n_items, n=len(some))
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
    """Decisions from the columns of another library.

    Args:
        n_items: actions are 0 .. n_items - 1.
        context: (d, c) numbers.
        action: (d,) whole numbers.
        reward: (d,) numbers.
        propensity: (d,) in (0, 1].
        user: (d,) whose; a user's rows stand together. Each decision is a user's own where None.
        step: (d,) position in the user's life; counted from 0 where None.
        final: (u, c); the last context of each user again where None.
        truncated: (d,) whether a limit ended the user's decisions there; never where None.

    Raises:
        UserError: arrays of different lengths, actions out of range, propensities outside (0, 1].
    """
    integers, real = np.dtype(np.int64), np.dtype(np.float64)
    n_items = whole_number(n_items, "n_items", 1)
    action_ = as_type(action, integers, "action").reshape(-1)
    n = len(action_)
    context_ = as_type(context, np.dtype(np.float32), "context")
    if context_.shape[:1] != (n,):
        raise UserError(f"context must have one row per action, {n}, got shape {context_.shape}")
    context_ = context_.reshape(n, -1) if context_.size else context_.reshape(n, 0)
    if user is None:
        user_ = np.arange(n)
    else:
        user_ = as_type(user, integers, "user").reshape(-1)
    reward_ = as_type(reward, real, "reward").reshape(-1)
    propensity_ = as_type(propensity, real, "propensity").reshape(-1)
    lengths = {len(user_), len(reward_), len(propensity_)}
    if lengths != {n}:
        raise UserError(f"context, action, reward, propensity and user must be of one length, got {n} and {lengths}")
    if n and (action_.min() < 0 or action_.max() >= n_items):
        raise UserError(f"actions must be in 0..{n_items - 1}, got {int(action_.min())}..{int(action_.max())}")
    good = (propensity_ > 0) & (propensity_ <= 1)
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise UserError(f"row {row}: propensity must be in (0, 1], got {propensity_[row]}")
    last = last_of_each(user_)
    return Decisions(
        n_items=n_items,
        context=context_,
        action=action_,
        reward=reward_,
        propensity=propensity_,
        user=user_,
        step=steps_within(user_) if step is None else as_type(step, integers, "step").reshape(-1),
        last=last,
        truncated=last & (False if truncated is None else np.asarray(truncated, np.bool_)),
        final=context_[last] if final is None else np.asarray(final, np.float32).reshape(int(last.sum()), -1),
    )


def last_of_each(user: Ints) -> NDArray[np.bool_]:
    """Return which rows (n,) are the last of their user."""
    if len(user):
        return np.append(user_begins(user)[1:], True)
    return np.zeros(0, np.bool_)
