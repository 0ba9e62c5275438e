"""Policies that imitate what a log shows: its item shares, a logit of what users viewed, and mixtures of policies."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.contexts import ContextRule
from recsim_mnar.log.rows import user_numbers
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.features import FeaturePolicy
from recsim_mnar.rng import Stream, uniforms

MOST_ITEMS = 3000
"""Of which cosines are kept for the logit; beyond them it is left out."""
LAST = 64
"""Views of a user that the logit looks back on."""
_ROUNDS, _STEPS = 60, 15
_CELLS = 400_000


def imitations(log: Log, n_items: int, seed: int) -> list[Policy]:
    """Item shares of a log, and the conditional logit of what it shows on what the user viewed; fitted, by name.

    The logit is left out beyond :data:`MOST_ITEMS` items. ``seed`` is of the decisions that it is fitted on.
    """
    from scipy import sparse

    action = log["action"][log.is_bandit]
    shares = np.bincount(action, minlength=n_items) + 0.5
    shares = shares / shares.sum()
    found: list[Policy] = [
        FeaturePolicy(n_items, "last=1", distribution=lambda x: np.tile(shares, (len(x), 1)), name="shares")
    ]
    if n_items > MOST_ITEMS:
        return found
    organic = log.organic()
    owner = user_numbers(organic["user"])
    views = sparse.csr_array((np.ones(len(owner)), (owner, organic["item"])), shape=(len(owner), n_items))
    like = np.asarray((views.T @ views).todense())
    norm = np.sqrt(np.maximum(np.diag(like), 1e-300))
    like = like / norm[:, None] / norm * (1.0 - np.eye(n_items))

    def features(last: NDArray[Any]) -> Floats:
        """(n, n_items, 4): log views, whether last, likeness to what was viewed, log share; of (n, LAST) views."""
        counts = np.zeros((len(last), n_items + 1))
        np.add.at(counts, (np.arange(len(last))[:, None], last.astype(np.int64)), 1.0)
        counts = counts[:, 1:]
        latest = last[:, :1] - 1 == np.arange(n_items)
        near = counts @ like / (counts.sum(axis=1, keepdims=True) + 1.0)
        return np.stack([np.log1p(counts), latest, near, np.broadcast_to(np.log(shares), counts.shape)], axis=2)

    kept = uniforms(seed, Stream.PROTOCOL, np.arange(action.size), 0) < _CELLS / n_items / action.size
    states, _ = ContextRule("last", last=LAST).of(log, n_items)
    weights = _conditional_logit(features(states[kept]), action[kept])
    logit = FeaturePolicy(n_items, f"last={LAST}", distribution=lambda x: _softmax(features(x) @ weights), name="logit")
    return [*found, logit]


def _conditional_logit(x: Floats, chosen: Ints) -> Floats:
    """(f,) likeliest weights of choices among (n, n_items, f), less a ridge of 1/2 their squares (Newton's method)."""
    weights, picked = np.zeros(x.shape[2]), x[np.arange(len(x)), chosen]
    for _ in range(_STEPS):
        p = _softmax(x @ weights)
        mean = np.einsum("ni,nif->nf", p, x)
        rows = (x * np.sqrt(p)[:, :, None]).reshape(-1, len(weights))
        hessian = rows.T @ rows - mean.T @ mean + np.eye(len(weights))
        step = np.linalg.solve(hessian, (picked - mean).sum(axis=0) - weights)
        weights = weights + step / max(1.0, float(np.abs(step).max()))
    return weights


def _softmax(logits: Floats) -> Floats:
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def likeliest_weights(shown: Floats) -> Floats:
    """(M,) weights of a mixture that gives (n, M) probabilities their largest likelihood (EM)."""
    weights = np.full(shown.shape[1], 1.0 / shown.shape[1])
    for _ in range(_ROUNDS):
        part = shown * weights
        weights = (part / np.maximum(part.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0)
    return weights / weights.sum()
