"""What agents learn from the purchases world's past, and the scores by which their lists are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import able, as_learner, as_policy, fitted, is_softened
from recsim_mnar.rng import derive_seed

Floats = NDArray[np.float64]

_BATCH_CELLS = 1 << 22


def tie_seed(seed: int, name: str) -> int:
    """Of the draws that break the ties of one agent's scores."""
    return derive_seed(seed, f"ties/{name}")


@dataclass(frozen=True)
class RankedItems:
    """Scores by which lists are made.

    Attributes:
        scores: (U, I).
        details: what the records should tell of them.
        policy: whose scores they are; None of what only the world knows.
    """

    scores: Floats
    details: dict[str, Any] = field(default_factory=dict)
    policy: Policy | None = None


def until(exposures: Exposures, period: int) -> Exposures:
    """The periods before ``period``, as a log that ends there."""
    rows = exposures.time < period
    table = exposures.propensities
    if isinstance(table, np.ndarray) and table.shape[2] > 1:
        table = table[:, :, :period]
    return Exposures(
        exposures.user[rows],
        exposures.item[rows],
        exposures.time[rows],
        exposures.recommended[rows],
        exposures.purchased[rows],
        n_users=exposures.n_users,
        n_items=exposures.n_items,
        n_periods=period,
        propensities=table,
        provenance=dict(exposures.provenance),
    )


def purchases_as_views(exposures: Exposures) -> Log:
    """All purchases, recommended or not, as the organic rows of a log: for agents that learn from views."""
    rows = np.flatnonzero(exposures.purchased)
    rows = rows[np.lexsort((exposures.item[rows], exposures.time[rows], exposures.user[rows]))]
    user = exposures.user[rows]
    columns: dict[str, NDArray[Any]] = {
        "user": user,
        "step": steps_within(user),
        "time": exposures.time[rows],
        "event": np.full(len(rows), schema.ORGANIC),
        "item": exposures.item[rows],
    }
    return Log(columns, dict(exposures.provenance))


def trained(name: str, learner: Learner, past: Exposures, views: Log, seed: int) -> RankedItems:
    """A learner's scores of every item for the users of the log."""
    learner = as_learner(learner, name=name)
    if is_softened(learner):
        raise UserError(f"agent {name!r}: lists are made by rank, softening would change nothing; leave it away")
    of_exposures, fit_seed = able(learner, "fit_exposures"), derive_seed(seed, "fit")
    try:
        if of_exposures is not None:
            policy = as_policy(of_exposures.fit_exposures(past, seed=fit_seed))
        else:
            policy = fitted(learner, views, n_items=past.n_items, seed=fit_seed)
        scores = _scores(policy, views, past.n_users)
    except UserError as error:
        raise UserError(f"agent {name!r}: {error}") from None
    details = {"spec": learner.name, "learns_from": "purchases" if of_exposures is None else "exposures"}
    return RankedItems(scores, details, policy)


def _scores(policy: Policy, views: Log, n_users: int) -> Floats:
    """(U, I) scores of users who have bought what the log says; training users are met as such."""
    out = np.empty((n_users, policy.n_items))
    step = max(1, _BATCH_CELLS // policy.n_items)
    owner, items = views["user"], views["item"]
    for first in range(0, n_users, step):
        users = np.arange(first, min(first + step, n_users))
        policy.reset_training_users(users, users)
        a, b = np.searchsorted(owner, [first, users[-1] + 1])
        policy.observe(owner[a:b], items[a:b])
        out[users] = policy.scores(users)
        policy.forget(users)
    if np.isnan(out).any():
        raise UserError("a score is not a number: was its training stopped too late?")
    return out
