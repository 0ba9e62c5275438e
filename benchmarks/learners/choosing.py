"""Policies learned from one half of a log's users, each with its doubly robust estimate on the other half."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.agents.off_policy import _off_policy_kernel
from recsim_mnar.agents.off_policy.learners import (
    POEM,
    BanditNet,
    DRPolicy,
    HistorySoftmax,
    OffPolicyLearner,
    RewardCrossEntropy,
    reward_model,
)
from recsim_mnar.estimators.from_columns import estimate_value
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.log import Log
from recsim_mnar.log.rows import user_begins
from recsim_mnar.models.bandit import Contexts

SHARPNESS = (1.0, 3.0, 10.0)
"""Factors by which the logits of each learned policy are multiplied, each giving a candidate."""
_SPLIT = 99
"""Address of the draws that put users into the held-out half."""
_CHUNK = 8192
"""Number of contexts that are evaluated at once, to bound memory."""


@dataclass(frozen=True)
class Candidate:
    """A policy that was fitted on one half of the users, and the estimate of its value on the other half."""

    name: str
    policy: HistorySoftmax
    estimate: Estimate


def default_learners(epochs: int) -> list[OffPolicyLearner]:
    """The learners that are compared."""
    return [
        RewardCrossEntropy(epochs=epochs),
        RewardCrossEntropy(weight="ips", epochs=epochs),
        POEM(epochs=epochs),
        POEM(variance=10.0, epochs=epochs),
        BanditNet(penalty=3e-3, epochs=epochs),
        DRPolicy(epochs=epochs),
        DRPolicy(variance=10.0, epochs=epochs),
    ]


def split_users(log: Log, held_out: float, seed: int) -> tuple[Log, Log]:
    """Split a log at random into two with different users: those to learn from, and a share ``held_out``."""
    users = log["user"]
    begins = user_begins(users)
    is_held_out = rng.uniforms(seed, rng.Stream.FIT, users[begins], _SPLIT) < held_out  # by user
    held_out_rows = is_held_out[np.cumsum(begins) - 1]
    return log.select(~held_out_rows), log.select(held_out_rows)


def sharpened(policy: HistorySoftmax, factor: float) -> HistorySoftmax:
    """A policy whose logits are those of another times ``factor``; above 1 it is less random."""
    arrays, parameters = policy.fitted()
    sharpness = factor * float(parameters.get("sharpness", 1.0))
    weights = factor * arrays["weights"]
    return HistorySoftmax(
        policy.n_items,
        policy.name,
        **{**arrays, "weights": weights},
        parameters={**parameters, "sharpness": sharpness},
    )


def candidates(log: Log, learners: list[OffPolicyLearner], *, n_items: int, seed: int = 0) -> list[Candidate]:
    """Fit learners on one half of the users, and estimate each policy at each sharpness on the other half.

    All are evaluated with one reward model, so that their estimates are comparable.
    """
    train, held_out = split_users(log, 0.5, seed)
    first = learners[0].settings
    model = reward_model(train, n_items, rank=first["rank"], shrinkage=first["shrinkage"], seed=seed)
    result = []
    for learner in learners:
        contexts = Contexts.from_log(held_out, n_items, shrinkage=learner.settings["shrinkage"])
        fitted = learner.fit(train, n_items=n_items, seed=seed)
        options = [f"{k}={learner.settings[k]}" for k in ("weight", "variance", "penalty") if k in learner.settings]
        for factor in SHARPNESS:
            policy = fitted
            if factor != 1.0:
                policy = sharpened(fitted, factor)
            sharpness = policy.describe()["sharpness"]
            name = "+".join([policy.name, *options, f"sharpness={sharpness:g}"])
            result.append(Candidate(name, policy, doubly_robust(policy, contexts, model)))
    return result


def doubly_robust(policy: HistorySoftmax, contexts: Contexts, model: tuple[Any, Any]) -> Estimate:
    """Estimate a policy's value from the recommendations of a log.

    Args:
        policy: the policy, whose logits are linear in the user's factors.
        contexts: contexts and recommendations of the log, computed with the policy's shrinkage.
        model: map (P, K) and coefficients (P, K + 1), as :func:`reward_model` returns them.
    """
    arrays = policy.fitted()[0]
    mapping, coefficients = model
    n = len(contexts.actions)
    target = np.empty(n)  # the policy's probability of each logged action
    q_logged = np.empty(n)  # predicted reward of the logged action
    q_target = np.empty(n)  # predicted reward of the policy
    ones = np.ones((_CHUNK, 1))
    for begin in range(0, contexts.features.shape[0], _CHUNK):
        x = contexts.features[begin : begin + _CHUNK]
        one = ones[: x.shape[0]]
        features = np.concatenate([one, x @ arrays["mapping"] - arrays["centre"]], axis=1)
        pi = np.empty((len(one), policy.n_items))
        _off_policy_kernel.probabilities(features, np.ascontiguousarray(arrays["weights"]), pi)
        q = np.concatenate([one, x @ mapping], axis=1) @ coefficients.T
        # Recommendations are ordered by context: those of this chunk, and their contexts' places in it.
        first, last = np.searchsorted(contexts.context, [begin, begin + len(one)])
        place = contexts.context[first:last] - begin
        action = contexts.actions[first:last]
        target[first:last] = np.minimum(pi[place, action], 1.0)  # rounding may give more than 1
        q_logged[first:last] = q[place, action]
        q_target[first:last] = (pi * q).sum(axis=1)[place]
    users = contexts.user_of_context[contexts.context]
    model_values = q_logged, q_target
    return estimate_value(
        contexts.rewards, contexts.propensities, target, estimator="dr", clip=100.0, cluster=users, model=model_values
    )
