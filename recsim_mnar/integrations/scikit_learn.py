"""scikit-learn (BSD-3-Clause): a classifier as a policy, and any model of the reward as one that recommends by it.

A model saved by pickle or joblib can run any code when it is loaded: load only what you trust.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from recsim_mnar.errors import UserError
from recsim_mnar.log.contexts import Context, contexts_of
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.features import FeaturePolicy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Array = NDArray[Any]
_BLOCK = 1 << 22
"""Largest number of entries of a table of users times items that a model predicts at once, to bound memory."""


def classifier_policy(model: Any, n_items: int, observation: Context = "counts", **arguments: Any) -> FeaturePolicy:
    """Wrap a fitted classifier of items as a policy with the probabilities of ``predict_proba``.

    Args:
        model: a classifier fitted on features of users (n, width), whose classes are items.
        n_items: number of items; one that is no class has probability 0.
        observation: name of the features of a user's events that the model was fitted on.
        **arguments: further arguments of :class:`recsim_mnar.policies.FeaturePolicy`.

    Raises:
        UserError: the classifier has a class that is no item.
    """
    classes = np.asarray(model.classes_)
    if classes.dtype.kind not in "iu" or classes.min() < 0 or classes.max() >= n_items:
        raise UserError(f"the classes of {type(model).__name__} must be items 0..{n_items - 1}, got {classes[:5]} ...")

    def distribution(x: Array) -> Array:
        """Predict the probabilities of all items for users with features (n, width), (n, n_items)."""
        out = np.zeros((len(x), n_items))
        out[:, classes] = model.predict_proba(x)
        return out

    arguments.setdefault("name", type(model).__name__)
    return FeaturePolicy(n_items, observation, distribution=distribution, **arguments)


def reward_policy(
    model: Any,
    n_items: int,
    observation: Context = "counts",
    *,
    item_features: Array | None = None,
    together: Callable[[Array, Array], Array] | None = None,
    **arguments: Any,
) -> FeaturePolicy:
    """Wrap a fitted model of the reward as a policy that recommends the item with the largest predicted reward.

    Args:
        model: a model fitted on ``together(x, items)``. Its prediction is ``predict_proba`` of the class 1 if it is a
            classifier, else ``predict``.
        n_items: number of items.
        observation: name of the features of a user's events that the model was fitted on.
        item_features: (n_items, k) features of the items; one-hot rows if None.
        together: function from users' features (m, width) and items' features (m, k) to the model's input, one row per
            pair; if None the features stand side by side.
        **arguments: further arguments of :class:`recsim_mnar.policies.FeaturePolicy`.
    """
    items = _item_features(item_features, n_items)
    join = together or side_by_side

    def scores(x: Array) -> Array:
        """Predict the reward of every item for users with features (n, width), (n, n_items)."""
        out = np.empty((len(x), n_items))
        users_at_once = max(1, _BLOCK // (n_items * (x.shape[1] + items.shape[1])))
        for begin in range(0, len(x), users_at_once):
            part = x[begin : begin + users_at_once]
            # One row per pair of user and item, a user's rows consecutive.
            table = join(np.repeat(part, n_items, axis=0), np.tile(items, (len(part), 1)))
            out[begin : begin + users_at_once] = _predict_rewards(model, table).reshape(len(part), n_items)
        return out

    arguments.setdefault("name", type(model).__name__)
    return FeaturePolicy(n_items, observation, scores=scores, **arguments)


class _Fitted(Learner):
    """Base of learners that fit a copy of a model to the rewards of a log.

    Attributes:
        weighted_by_default: value of ``weighted`` if None is given; True to weight rows by 1 / propensity.
    """

    weighted_by_default = False

    def __init__(
        self, model: Any, observation: Context = "counts", *, weighted: bool | None = None, **arguments: Any
    ) -> None:
        self.model = model
        self.observation = observation
        self.weighted = self.weighted_by_default
        if weighted is not None:
            self.weighted = weighted
        self.name = arguments.get("name") or type(model).__name__
        self.arguments = {**arguments, "name": self.name}


class RewardModel(_Fitted):
    """Learner that fits a copy of any regressor or classifier to a log's rewards; its policy acts by the predictions.

    Args:
        model: an unfitted model; a classifier needs rewards of 0 and 1. A linear model of features that stand side by
            side ranks the items equally for all users: use ``together=outer``, or a model with interactions.
        observation: name of the features of a user's events, as in :class:`recsim_mnar.policies.FeaturePolicy`.
        item_features: (n_items, k) features of the items; one-hot rows if None.
        together: function that joins users' and items' features, as in :func:`reward_policy`; if None they stand side
            by side.
        weighted: weight rows by 1 / propensity; None means False.
        name: name in reports; that of the model's class if None.
        **arguments: further arguments of :class:`recsim_mnar.policies.FeaturePolicy`.
    """

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`.

        Raises:
            UserError: the log has no bandit rows.
        """
        x, decision_rows = _decisions(log, n_items, self.observation, self.arguments, self.name)
        items = _item_features(self.arguments.get("item_features"), n_items)
        together = self.arguments.get("together") or side_by_side
        model = seeded(self.model, seed)
        weights = {}
        if self.weighted:
            weights = {"sample_weight": 1.0 / log["propensity"][decision_rows]}
        reward = log["reward"][decision_rows]
        if hasattr(model, "classes_") or hasattr(model, "predict_proba"):  # a classifier
            reward = (reward > 0).astype(np.int64)
        model.fit(together(x, items[log["action"][decision_rows]]), reward, **weights)
        return reward_policy(model, n_items, self.observation, **self.arguments)


class RewardedActions(_Fitted):
    """Learner that fits a copy of any classifier to the recommended items, weighted by reward / propensity.

    Its policy has the classifier's probabilities. The loss is the cross-entropy weighted by the reward, so rows without
    a reward have weight 0 and are left out.

    Args:
        model: an unfitted classifier with ``predict_proba`` and a ``fit`` that takes ``sample_weight``.
        observation: name of the features of a user's events, as in :class:`recsim_mnar.policies.FeaturePolicy`.
        weighted: divide the weights by the propensity; None means True. If False, the reward alone is the weight.
        name: name in reports; that of the model's class if None.
        **arguments: further arguments of :class:`recsim_mnar.policies.FeaturePolicy`.
    """

    weighted_by_default = True

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`.

        Raises:
            UserError: the log has no bandit rows, or no two actions that were rewarded.
        """
        x, decision_rows = _decisions(log, n_items, self.observation, self.arguments, self.name)
        reward = log["reward"][decision_rows]
        action = log["action"][decision_rows].astype(np.int64)
        rewarded = reward > 0
        if len(np.unique(action[rewarded])) < 2:
            raise UserError(f"{self.name}: fewer than two actions of the log earned a reward, a classifier needs two")
        weights = reward[rewarded]
        if self.weighted:
            weights = weights / log["propensity"][decision_rows][rewarded]
        model = seeded(self.model, seed)
        model.fit(x[rewarded], action[rewarded], sample_weight=weights)
        return classifier_policy(model, n_items, self.observation, **self.arguments)


def side_by_side(x: Array, items: Array) -> Array:
    """Join users' features (m, width) and items' features (m, k) to (m, width + k)."""
    return np.hstack([x, items])


def outer(x: Array, items: Array) -> Array:
    """Return the products of each feature of a user with each one of the item, for linear models.

    With them a linear model has separate coefficients of the users' features for each item.

    Args:
        x: (m, width) users' features, to which a constant 1 is added.
        items: (m, k) items' features.

    Returns:
        (m, (width + 1) k) products.
    """
    with_constant = np.hstack([np.ones((len(x), 1), x.dtype), x])
    return (with_constant[:, :, None] * items[:, None, :]).reshape(len(x), -1)


def seeded(model: Any, seed: int) -> Any:
    """Return an unfitted copy of a model, with the seed as its ``random_state`` if it has one."""
    copied = clone(model)
    if "random_state" in copied.get_params():
        copied.set_params(random_state=seed % 2**32)  # NumPy's RandomState takes 32 bits
    return copied


def _decisions(
    log: Log, n_items: int, observation: Context, arguments: Mapping[str, Any], name: str
) -> tuple[Array, NDArray[np.int64]]:
    """Compute the features at each decision of a log.

    Args:
        log: the log.
        n_items: number of items.
        observation: name of the features of a user's events.
        arguments: arguments of the policy, of which ``user_features`` is used.
        name: name of the learner, for the message.

    Returns:
        x: (d, width) features at each decision.
        rows: (d,) row of each decision in the log.

    Raises:
        UserError: the log has no decisions.
    """
    x, _ = contexts_of(log, n_items, observation, user_features=arguments.get("user_features"))
    if len(x) == 0:
        raise UserError(f"{name}: the log has no bandit rows, there is no reward to learn from")
    return x, np.flatnonzero(log.is_bandit)


def _item_features(given: Array | None, n_items: int) -> Array:
    """Return the items' features (n_items, k) as float32, checked; one-hot rows if ``given`` is None."""
    if given is None:
        items = np.eye(n_items, dtype=np.float32)
    else:
        items = np.asarray(given, np.float32)
    if items.ndim != 2 or len(items) != n_items:
        raise UserError(f"item_features must have shape ({n_items}, k), got {items.shape}")
    return items


def _predict_rewards(model: Any, table: Array) -> Array:
    """Predict the rewards of rows (m, width), (m,): a classifier's probability of the class 1, else ``predict``."""
    if not hasattr(model, "predict_proba"):
        return np.asarray(model.predict(table), np.float64)
    rewarded = np.flatnonzero(np.asarray(model.classes_) == 1)
    if len(rewarded) == 0:  # no row of its training data was rewarded
        return np.zeros(len(table))
    return np.asarray(model.predict_proba(table)[:, rewarded[0]], np.float64)
