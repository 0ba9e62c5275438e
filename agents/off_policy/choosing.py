"""A policy chosen among those learned from one part of a log by off-policy evaluation on the other part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.agents.off_policy.learners import (
    POEM,
    BanditNet,
    DRPolicy,
    HistorySoftmax,
    OffPolicyLearner,
    RewardCrossEntropy,
    reward_model,
)
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.from_columns import estimate_value
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.kernels.checks import number_in, one_of, whole_number
from recsim_mnar.log.rows import user_begins
from recsim_mnar.models.bandit import Contexts, check_log
from recsim_mnar.policies.base import Learner

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Floats = NDArray[np.float64]
SHARPNESS = (1.0, 3.0, 10.0)
"""Factors by which the logits of each learned policy are multiplied, each giving a candidate."""

_SPLIT = 99
"""Address of the draws that put users into the held-out part."""
_CHUNK = 8192
"""Number of contexts that are evaluated at once, to bound memory."""


@dataclass(frozen=True)
class Candidate:
    """Policy that may be chosen, with its estimated value on the held-out users.

    Attributes:
        policy: policy that was fitted on the other users.
        settings: parameters of its learner.
        estimate: estimate of its value on the held-out users.
    """

    policy: HistorySoftmax
    settings: Mapping[str, Any]
    estimate: Estimate

    @property
    def name(self) -> str:
        """Name of the learner with the parameters that distinguish it from other candidates."""
        options = [f"{key}={self.settings[key]}" for key in ("weight", "variance", "penalty") if key in self.settings]
        return "+".join([self.policy.name, *options, f"sharpness={self.policy.describe()['sharpness']:g}"])


def default_learners(**settings: Any) -> list[OffPolicyLearner]:
    """Return the learners that are compared by default; ``settings`` are parameters of all of them."""
    return [
        RewardCrossEntropy(**settings),
        RewardCrossEntropy(weight="ips", **settings),
        POEM(**settings),
        POEM(variance=10.0, **settings),
        BanditNet(penalty=3e-3, **settings),
        DRPolicy(**settings),
        DRPolicy(variance=10.0, **settings),
    ]


class OffPolicyChoice(Learner):
    """Learner that fits several policies on a part of the users, and chooses the best by its estimate on the others.

    The learners are POEM, BanditNet, doubly robust and cross-entropy weighted by reward, each with several sharpnesses.
    The policy with the largest lower limit of its value is chosen: the largest of many estimates often belongs to a
    policy with few effective rows and a large error, not to a good one. The reward model of the doubly robust estimate
    is fitted on the users on whom policies are learned.

    Args:
        held_out: share of the users on whom policies are evaluated.
        estimator: estimator of a policy's value: ``dr``, ``snips``, ``ips`` or ``clipped_ips``.
        by: number that is compared: ``low``, the lower limit of the 95 % interval over users, or ``value``, the
            estimate.
        clip: largest weight of ``clipped_ips``.
        epochs: number of epochs of each default learner.
        learners: learners to compare; :func:`default_learners` if None.
    """

    name = "off-policy-choice"
    needs = frozenset({"outcomes"})

    def __init__(
        self,
        held_out: float = 0.5,
        estimator: str = "dr",
        by: str = "low",
        clip: float = 100.0,
        epochs: int = 20,
        learners: Sequence[OffPolicyLearner] | None = None,
    ) -> None:
        self.held_out = number_in(held_out, f"{self.name}: held_out", 0.0, 1.0, ends="()")
        self.estimator = one_of(estimator, f"{self.name}: estimator", ("dr", "snips", "ips", "clipped_ips"))
        self.by = one_of(by, f"{self.name}: by", ("low", "value"))
        self.clip = number_in(clip, f"{self.name}: clip", ends="(]")
        epochs = whole_number(epochs, f"{self.name}: epochs", 1)
        if learners is None:
            learners = default_learners(epochs=epochs)
        self.learners = list(learners)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> HistorySoftmax:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`."""
        candidates = self.candidates(log, n_items=n_items, seed=seed)
        best = max(candidates, key=lambda candidate: getattr(candidate.estimate, self.by))
        arrays, parameters = best.policy.fitted()
        estimate = best.estimate
        chosen = {
            "learner": best.name,
            "of": len(candidates),
            "estimator": self.estimator,
            "by": self.by,
            "held_out": self.held_out,
            "value": estimate.value,
            "low": estimate.low,
            "high": estimate.high,
        }
        return HistorySoftmax(n_items, self.name, **arrays, parameters={**parameters, "chosen": chosen})

    def candidates(self, log: Log, *, n_items: int, seed: int = 0) -> list[Candidate]:
        """Return all candidates: policies fitted on one part of the users and evaluated on the others.

        Raises:
            UserError: a part of the users has no recommendations, or a learner cannot learn from them.
        """
        check_log(log, n_items)
        train, held_out = split_users(log, self.held_out, seed)
        for part, purpose in ((train, "to learn from"), (held_out, "to be judged on")):
            if not part.is_bandit.any():
                raise UserError(f"{self.name}: no recommendations are left {purpose}: give more users")
        # All candidates are evaluated with one reward model, so that their estimates are comparable.
        first = self.learners[0].settings
        model = reward_model(train, n_items, rank=first["rank"], shrinkage=first["shrinkage"], seed=seed)
        result = []
        for learner in self.learners:
            contexts = Contexts.from_log(held_out, n_items, shrinkage=learner.settings["shrinkage"])
            fitted = learner.fit(train, n_items=n_items, seed=seed)
            for sharpness in SHARPNESS:
                policy = fitted
                if sharpness != 1.0:
                    policy = fitted.sharpened(sharpness)
                estimate = estimate_policy(policy, contexts, model, estimator=self.estimator, clip=self.clip)
                result.append(Candidate(policy, learner.settings, estimate))
        return result


def split_users(log: Log, held_out: float, seed: int) -> tuple[Log, Log]:
    """Split a log at random into two with different users.

    Args:
        log: the log.
        held_out: expected share of the users in the second part.
        seed: seed of the draws.

    Returns:
        the log of the users to learn from, and that of the held-out users.
    """
    users = log["user"]
    begins = user_begins(users)
    is_held_out = rng.uniforms(seed, rng.Stream.FIT, users[begins], _SPLIT) < held_out  # by user
    held_out_rows = is_held_out[np.cumsum(begins) - 1]
    return log.select(~held_out_rows), log.select(held_out_rows)


def estimate_policy(
    policy: HistorySoftmax, contexts: Contexts, model: tuple[Floats, Floats], *, estimator: str, clip: float
) -> Estimate:
    """Estimate a policy's value from the recommendations of a log.

    Args:
        policy: the policy, whose logits are linear in the user's factors.
        contexts: contexts and recommendations of the log, computed with the policy's shrinkage.
        model: map (P, K) and coefficients (P, K + 1) of a reward model, as
            :func:`recsim_mnar.agents.off_policy.learners.reward_model` returns them; used by ``dr`` alone.
        estimator: a name of :data:`recsim_mnar.estimators.ESTIMATORS`.
        clip: largest weight, for estimators that clip.
    """
    from recsim_mnar.agents.off_policy import _off_policy_kernel

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
    predictions = None
    if estimator == "dr":
        predictions = (q_logged, q_target)
    return estimate_value(
        contexts.rewards,
        contexts.propensities,
        target,
        estimator=estimator,
        clip=clip,
        cluster=contexts.user_of_context[contexts.context],
        model=predictions,
    )
