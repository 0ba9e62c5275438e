"""A policy drawn anew at each decision from several, as in a planned exploration, and its file.

The file is JSON,
``{"format": "recsim-mnar mixture", "version": 1, "policies": [{"policy": "svd", "weight": 0.9}, ...]}``.
A policy is named as on the command line, and weights sum to 1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.policies.answers import checked_decisions, checked_propensities, spot_check_probabilities
from recsim_mnar.policies.base import Floats, Ints, Learner, Policy
from recsim_mnar.policies.door import PolicyWrapper, as_policy
from recsim_mnar.runs.files import path_of, write_json

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

FORMAT, VERSION = "recsim-mnar mixture", 1
ENDING = ".json"
"""Of the files of mixtures: an agent's name that ends so is one."""
_ROUNDING = 1e-6
"""By how much weights in a file may miss a sum of 1; they are divided by it."""


class MixturePolicy(PolicyWrapper):
    """At each decision one of several policies decides, the m-th with probability w_m.

    Its probability of an action is sum_m w_m pi_m(a), whichever of them took it.

    Args:
        policies: to mix, for one number of items.
        weights: (M,) not negative, of sum 1.
        name: the mixture's.
    """

    def __init__(self, policies: Sequence[Any], weights: Sequence[float] | Floats, name: str = "mixture") -> None:
        self.policies = [as_policy(policy) for policy in policies]
        self.weights = checked_weights(weights, len(self.policies))
        items = {policy.n_items for policy in self.policies}
        if len(items) > 1:
            raise UserError(f"policies of a mixture must know the same items, they know {sorted(items)} of them")
        self.n_items = items.pop()
        self.name = name
        self._edges = np.cumsum(self.weights)[:-1]
        self._looked = False

    @property
    def within(self) -> Sequence[Policy]:
        """See :class:`PolicyWrapper`; every policy learns from every outcome, with the mixture's propensities."""
        return self.policies

    scores = Policy.scores

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """One uniform decides both whose turn it is and, stretched back to [0, 1), what that policy does."""
        if not self._looked:
            for policy in self.policies:
                spot_check_probabilities(policy, users[:1])
            self._looked = True
        turn = np.searchsorted(self._edges, uniforms, side="right")
        begin = np.concatenate([[0.0], self._edges])[turn]
        stretched = np.clip((uniforms - begin) / self.weights[turn], 0.0, np.nextafter(1.0, 0.0))
        actions = np.empty(len(users), np.int64)
        for place, policy in enumerate(self.policies):
            mine = turn == place
            if mine.any():
                decided = policy.act(users[mine], stretched[mine])
                actions[mine], _ = checked_decisions(policy, decided, n=int(mine.sum()), n_items=self.n_items)
        return actions, self.propensity_of(users, actions)

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`Policy.probabilities`."""
        out = np.zeros((len(users), self.n_items))
        for policy, weight in zip(self.policies, self.weights, strict=True):
            out += weight * policy.probabilities(users)
        return out

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`Policy.propensity_of`."""
        out = np.zeros(len(users))
        for policy, weight in zip(self.policies, self.weights, strict=True):
            out += weight * checked_propensities(policy, policy.propensity_of(users, actions), len(users))
        return np.minimum(out, 1.0)

    def fresh(self) -> Policy:
        """See :meth:`Policy.fresh`."""
        return MixturePolicy([policy.fresh() for policy in self.policies], self.weights, self.name)

    def describe(self) -> dict[str, Any]:
        """See :meth:`Policy.describe`."""
        parts = [
            {"policy": policy.describe(), "weight": float(weight)}
            for policy, weight in zip(self.policies, self.weights, strict=True)
        ]
        return {"name": self.name, "policies": parts}


class MixtureLearner(Learner):
    """Fits each policy of a mixture on the same log.

    Args:
        learners: of the policies.
        weights: of the mixture.
        name: its name.
    """

    def __init__(self, learners: Sequence[Learner], weights: Sequence[float] | Floats, name: str = "mixture") -> None:
        self.learners, self.weights, self.name = list(learners), checked_weights(weights, len(learners)), name
        self.ignores_own_views = all(learner.ignores_own_views for learner in learners)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; every learner is given the same seed, as it would be alone."""
        policies = [learner.fit(log, n_items=n_items, seed=seed) for learner in self.learners]
        return MixturePolicy(policies, self.weights, self.name)


def checked_weights(weights: Any, number: int) -> Floats:
    """Weights as an array of sum 1.

    Raises:
        UserError: another number of them, one that is not positive, or another sum.
    """
    try:
        array = np.array(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"weights of a mixture must be numbers, got {weights!r}") from None
    if number == 0 or array.shape != (number,):
        raise UserError(f"a mixture needs a weight for each of its policies, got {array.size} for {number}")
    if not (np.isfinite(array).all() and (array > 0.0).all()):
        raise UserError(
            f"weights of a mixture must be positive, got {array.tolist()}: leave out policies that never decide"
        )
    if abs(array.sum() - 1.0) > _ROUNDING:
        raise UserError(f"weights of a mixture must sum to 1, they sum to {array.sum():.9g}")
    return array / array.sum()


def write_mixture(path: str | os.PathLike[str], weights: Mapping[str, float]) -> None:
    """Write a mixture of named policies as a file that is itself a policy's name.

    Raises:
        UserError: the name does not end in ``.json``, or the weights are none.
    """
    target = path_of(path)
    if target.suffix != ENDING:
        raise UserError(f"{target}: a mixture's file ends in {ENDING}")
    checked_weights(list(weights.values()), len(weights))
    parts = [{"policy": name, "weight": weight} for name, weight in weights.items()]
    write_json(target, {"format": FORMAT, "version": VERSION, "policies": parts})


def read_mixture(path: str | os.PathLike[str]) -> list[tuple[str, float]]:
    """Names and weights of a mixture's file.

    Raises:
        UserError: no such file, or it is no mixture.
    """
    source = path_of(path)
    if source.exists() and not source.is_file():
        raise UserError(f"{source} is no regular file: name the file of a mixture")
    if not source.is_file():
        raise UserError(f"{source} does not exist: name the file of a mixture, as `recsim-mnar plan logging` writes it")
    try:
        found = json.loads(source.read_text())
        if (found["format"], found["version"]) != (FORMAT, VERSION):
            raise UserError(f"{source} is {found['format']!r} {found['version']!r}, not {FORMAT!r} {VERSION}")
        parts = [(part["policy"], part["weight"]) for part in found["policies"]]
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, OSError, RecursionError):
        raise UserError(
            f"{source} is not a mixture of policies: it must hold format, version and policies, each with a policy's "
            "name and its weight"
        ) from None
    if not all(isinstance(name, str) and name and type(weight) in (int, float) for name, weight in parts):
        raise UserError(f"{source}: a policy of a mixture has a name and a number for a weight, got {parts}")
    try:
        checked_weights([float(weight) for _, weight in parts], len(parts))
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    return parts
