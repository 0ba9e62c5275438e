"""Open Bandit Pipeline: a log as its ``BanditFeedback``, a dictionary of arrays, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions, from_arrays

_NEEDED = ("n_actions", "action", "reward", "pscore")


def to_obp(decisions: Decisions, logging: NDArray[np.floating[Any]] | None = None) -> dict[str, Any]:
    """What ``obp.ope.OffPolicyEvaluation(bandit_feedback=...)`` takes.

    Args:
        decisions: of a log.
        logging: (d, n_items) distributions of the logging policy, where its ``pi_b`` is wanted.

    Returns:
        ``n_rounds``, ``n_actions``, ``context`` (d, c), ``action_context`` (n_items, n_items), the items' own
        one-hot rows, ``action``, ``position`` (zeros: one slot), ``reward``, ``expected_reward`` (None: a log does not
        know it), ``pi_b`` (d, n_items, 1) or None, and ``pscore``. Beside them ``user`` and ``step``, which obp does
        not read.

    Raises:
        UserError: ``logging`` of another shape.
    """
    n = len(decisions)
    pi_b = None
    if logging is not None:
        pi_b = np.asarray(logging, np.float64)
        if pi_b.shape != (n, decisions.n_items):
            raise UserError(f"logging must have shape {(n, decisions.n_items)}, got {pi_b.shape}")
        pi_b = pi_b[:, :, None]
    return {
        "n_rounds": n,
        "n_actions": decisions.n_items,
        "context": decisions.context,
        "action_context": np.eye(decisions.n_items),
        "action": decisions.action,
        "position": np.zeros(n, np.int64),
        "reward": decisions.reward,
        "expected_reward": None,
        "pi_b": pi_b,
        "pscore": decisions.propensity,
        "user": decisions.user,
        "step": decisions.step,
    }


def action_dist(distributions: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Distributions (d, n_items) of a target policy as obp's ``action_dist``, (d, n_items, 1)."""
    return np.asarray(distributions, np.float64)[:, :, None]


def from_obp(feedback: Mapping[str, Any]) -> Decisions:
    """Decisions of a ``BanditFeedback``, one of obp's own included; each round is a user's own where no user is said.

    Raises:
        UserError: a key that is missing, several positions, or values that are none.
    """
    for key in _NEEDED:
        if feedback.get(key) is None:
            raise UserError(f"the feedback has no {key!r}: obp's BanditFeedback has {', '.join(_NEEDED)}")
    position = feedback.get("position")
    if position is not None and len(np.unique(position)) > 1:
        raise UserError("the feedback has several positions: select the rows of one, its pscore is of a position")
    context = feedback.get("context")
    return from_arrays(
        int(feedback["n_actions"]),
        np.zeros((len(feedback["action"]), 0)) if context is None else context,
        feedback["action"],
        feedback["reward"],
        feedback["pscore"],
        user=feedback.get("user"),
        step=feedback.get("step"),
    )
