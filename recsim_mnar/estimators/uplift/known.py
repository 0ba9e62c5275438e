"""What lists and rankings cause where the true uplift of every item is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.uplift.influences import Floats, estimate_of
from recsim_mnar.estimators.uplift.rankings import check_length, top_items


def causal_precision(uplift: Any, lists: Any, *, level: float = 0.95) -> Estimate:
    """CP@K: mean true uplift of the items in lists of K.

    Args:
        uplift: (U, I) tau: expected, or that of one draw of both outcomes.
        lists: (U, K) items.
        level: nominal coverage of the interval, for other users of the same kind.
    """
    tau = np.asarray(uplift, np.float64)
    lists = np.asarray(lists)
    check_length(lists.shape[1], tau.shape[1])
    return _mean(np.take_along_axis(tau, lists, axis=1).mean(axis=1), level, f"cp@{lists.shape[1]}", lists.size)


def causal_dcg(uplift: Any, scores: Any, *, level: float = 0.95, seed: int = 0) -> Estimate:
    """CDCG: sum of tau / log2(1 + rank) over a user's whole ranking by score, averaged over users."""
    tau = np.asarray(uplift, np.float64)
    ranking = top_items(scores, tau.shape[1], seed=seed)
    gains = 1.0 / np.log2(np.arange(2, tau.shape[1] + 2))
    return _mean(np.take_along_axis(tau, ranking, axis=1) @ gains, level, "cdcg", tau.size)


def _mean(own: Floats, level: float, name: str, n: int) -> Estimate:
    value = float(own.mean())
    influence = (own - value) / len(own)
    return estimate_of(value, influence, np.ones(len(own), bool), level, name, n=n, ess=float(n), diagnostics={})
