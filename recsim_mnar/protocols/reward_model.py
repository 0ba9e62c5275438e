"""A reward model for doubly robust estimates of a comparison: an item's shrunken mean reward, cross-fitted by users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import checked_decisions, checked_distribution
from recsim_mnar.policies.base import Policy
from recsim_mnar.replays.probabilities import blocks_of, rounds_of, walk

Floats = NDArray[np.float64]
FOLDS = 2
STRENGTH = 20.0
"""Rows of the overall mean that are added to each item's own."""


def item_rewards(log: Log, n_items: int) -> tuple[Floats, NDArray[np.int64]]:
    """Mean reward of each item, from the users of the other folds.

    Args:
        log: with bandit rows.
        n_items: items are 0 .. n_items - 1.

    Returns:
        (FOLDS, n_items) means, shrunken to the overall one, and (d,) fold of each decision's user.
    """
    shown = log.is_bandit
    action, reward = log["action"][shown], log["reward"][shown]
    fold = log["user"][shown] % FOLDS
    means = np.empty((FOLDS, n_items))
    for number in range(FOLDS):
        others = fold != number
        counts = np.bincount(action[others], minlength=n_items)
        sums = np.bincount(action[others], reward[others], n_items)
        overall = float(reward[others].mean()) if others.any() else 0.0
        means[number] = (sums + STRENGTH * overall) / (counts + STRENGTH)
    return means, fold


def modelled_values(log: Log, policy: Policy, means: Floats) -> Floats:
    """(d,) mean of the model under a policy at each decision of a log.

    Args:
        log: ordered by (user, step); the policy observes the users' events as logged.
        policy: that does not learn from all users.
        means: (FOLDS, n_items), of :func:`item_rewards`.
    """
    values = np.full(len(log), np.nan)
    first = 0
    for block in blocks_of(log):
        acting = policy.fresh()
        for rows in walk(block, [acting], rounds_of(block, one_by_one=False)):
            users = block["user"][rows]
            values[first + rows] = _mean_of(acting, users, means[users % FOLDS])
        first += len(block["user"])
    return values[log.is_bandit]


def _mean_of(policy: Policy, users: NDArray[np.int64], own: Floats) -> Floats:
    """Mean of each user's items (n, n_items) under what a policy would do now; all items only where it is not sure."""
    n, n_items = own.shape
    actions, propensities = checked_decisions(policy, policy.act(users, np.full(n, 0.5)), n=n, n_items=n_items)
    out: Floats = own[np.arange(n), actions]
    unsure = np.flatnonzero(propensities < 1.0)
    step = max(1, (1 << 21) // n_items)
    for begin in range(0, len(unsure), step):
        some = unsure[begin : begin + step]
        probabilities = checked_distribution(policy, policy.probabilities(users[some]), n_items, n=len(some))
        out[some] = np.einsum("ui,ui->u", probabilities, own[some])
    return out
