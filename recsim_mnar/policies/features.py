"""FeaturePolicy: a policy whose scores or probabilities are a user's function of feature matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import refuse_first, whole_number
from recsim_mnar.log.contexts import (
    Context,
    UserFeatures,
    checked_features,
    joined,
    joined_space,
    observation_of,
)
from recsim_mnar.policies.answers import checked_distribution, checked_scores
from recsim_mnar.policies.base import Floats, Ints, Learns, Policy, best_of
from recsim_mnar.policies.door import learning_of
from recsim_mnar.policies.slots import Entry, Indices, StatefulPolicy

Matrix = NDArray[np.float32]
Written = Callable[[Matrix], Any]
_CELLS = 1 << 22
"""Largest number of probabilities that a draw holds in memory at a time (32 MB)."""


class FeaturePolicy(StatefulPolicy):
    """Policy whose scores or probabilities are a user's function of features; this class keeps each user's features.

    Pass a function, as in ``FeaturePolicy(50, distribution=model.predict_proba)``, or derive a class and define one of

        ``scores(x)`` returns (n, n_items); the item of largest score is taken, ties broken uniformly. Soften the policy
        by ``SoftmaxPolicy`` or ``EpsilonMixture``.

        ``distribution(x)`` returns (n, n_items) probabilities, rows summing to 1, from which the item is drawn.

    ``x`` is (n, width) float32, with the features that :func:`recsim_mnar.export.decisions` computes from a log and
    that environments observe with the same ``observation``. A row of the result must depend on the same row of ``x``
    only. Results are cached until the row changes, so a user's propensities are consistent whatever a library's
    rounding. Copies of the policy may still get other last bits (1e-6 or less) for the same user in a batch of another
    shape, unless ``rows`` fixes the shape.

    With ``shown`` a row also changes with every recommendation, in :meth:`learn`; the policy then ``learns`` from its
    ``own user``. A derived class with its own ``learn`` must also call this one.

    Args:
        n_items: number of items.
        observation: features of a user's events, as environments take them: ``counts``, ``decayed=0.9``, ``last=10`` or
            ``shown=0.9``, with ``+features`` followed by the columns of ``user_features``; see
            :func:`recsim_mnar.log.contexts.observation_of`. Or the ``observation`` of a world of your own.
        scores: function from features (n, width) to scores (n, n_items), if no derived class defines it.
        distribution: function from features (n, width) to probabilities (n, n_items); give either this or ``scores``.
        user_features: function from user ids (n,) to features (n, k) that are known from the start, for example
            ``lambda users: world.features_of(seed, users)`` for users of one seed. Without ``+features`` in
            ``observation`` they replace the features of events.
        rows: number of rows of every matrix passed to the function, padded with zeros; results of a library whose
            rounding depends on the batch's shape are then reproducible. None for any number.
        name: the name under which results are reported; None for the name of the derived class, or ``features``.

    Raises:
        UserError: neither or both of ``scores`` and ``distribution``, or an invalid argument.
    """

    batches_decisions = True
    learns: Learns | None = "nothing"
    written: ClassVar[Any] = None
    """Method ``scores(x)`` of a derived class, which takes features; :meth:`Policy.scores` takes users instead."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Move ``scores(x)`` of a derived class to ``written``, so that it does not hide ``scores(users)``."""
        super().__init_subclass__(**arguments)
        if "scores" in vars(cls):
            cls.written = vars(cls)["scores"]
            del cls.scores

    def __init__(
        self,
        n_items: int,
        observation: Context = "counts",
        *,
        scores: Written | None = None,
        distribution: Written | None = None,
        user_features: UserFeatures | None = None,
        rows: int | None = None,
        name: str | None = None,
    ) -> None:
        self.n_items = whole_number(n_items, "n_items", 1)
        self.rule, has_user_features = observation_of(observation, user_features=user_features)
        self._user_features: UserFeatures | None = None
        self._n_user_features = 0  # number of columns of the user features
        if has_user_features:
            self._user_features = checked_features(user_features, observation)
            shape = np.shape(self._user_features(np.zeros(1, np.int64)))  # called for one user to learn the width
            if len(shape) != 2 or shape[0] != 1:
                raise UserError(f"user_features of one user must have shape (1, width), got {shape}")
            self._n_user_features = shape[1]
        self.width = self.rule.width(self.n_items) + self._n_user_features
        if rows is not None:
            rows = whole_number(rows, "rows", 1)
        self.rows = rows
        if name:
            self.name = name
        elif name is not None or type(self).name == Policy.name:  # a derived class may have a name of its own
            self.name = type(self).__name__
            if type(self) is FeaturePolicy:
                self.name = "features"
        scorers = [function for function in (scores, self.written) if function is not None]
        # Exactly one definition: scores or distribution, as an argument or as a method of a derived class.
        n_ways = len(scorers) + (distribution is not None)
        n_ways += type(self).distribution is not FeaturePolicy.distribution
        if n_ways != 1:
            raise UserError(f"policy {self.name!r}: define one of scores(x) and distribution(x), got {n_ways}")
        self._given_scores = scores
        self._given_distribution = distribution
        self._has_scores = bool(scorers)
        if self.rule.counts_shown:
            self.batches_decisions = False
            if learning_of(self) == "nothing":
                self.learns = "own user"
        self._start()

    def distribution(self, x: Matrix) -> Any:
        """Return (n, n_items) probabilities for features (n, width); a derived class defines this or ``scores``."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------ user states

    # Arrays with one row per user slot, see StatefulPolicy.
    _x: Matrix  # features of the user's events
    _fixed_x: Matrix  # user features
    _outputs: Floats  # cached scores or probabilities
    _is_cached: NDArray[np.bool_]  # whether the row of _outputs belongs to the present features

    def _entries(self) -> dict[str, Entry]:
        """Return the declarations of the arrays above; implements :meth:`StatefulPolicy._entries`."""
        return {
            "_x": Entry(np.float32, 0.0, (self.width - self._n_user_features,)),
            "_fixed_x": Entry(np.float32, 0.0, (self._n_user_features,)),
            "_outputs": Entry(np.float64, None, (self.n_items,)),
            "_is_cached": Entry(np.bool_, False),
        }

    def features(self, users: Ints) -> Matrix:
        """Return the present features of users, (n, width).

        Raises:
            UserError: a user has not begun.
        """
        return self._features_of_slots(self._slots.find(users))

    def _features_of_slots(self, slots: Indices) -> Matrix:
        """Return the features (n, width) of the users in these slots."""
        if self._user_features is None:
            return self._x[slots]
        return joined(self._x[slots], self._fixed_x[slots])

    @property
    def space(self) -> gym.Space[Any]:
        """Return the Gymnasium space of a user's features, the same as an environment's observation space."""
        event_space = self.rule.space(self.n_items)
        if self._user_features is None:
            return event_space
        return joined_space(event_space, self._n_user_features)

    def forget_answers(self) -> None:
        """Drop all cached scores or probabilities; call it whenever the function changes, for example by training."""
        self._is_cached[:] = False

    def reset(self, users: Ints) -> None:
        """Implement :meth:`Policy.reset`."""
        super().reset(users)
        if self._user_features is not None:
            self._fixed_x[self._slots.find(users)] = self._user_features(np.asarray(users))

    def observe(self, users: Ints, items: Ints) -> None:
        """Add views to the users' features, and drop their cached results; implements :meth:`Policy.observe`."""
        slots = self._slots_of(users, items)
        if self.width == self._n_user_features:  # there are no features of events
            return
        self.rule.observe(self._x, slots, items)
        self._is_cached[slots] = False

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Add recommendations to the features of ``shown``; implements :meth:`Policy.learn`."""
        if self.rule.counts_shown:
            slots = self._slots_of(users, actions)
            self.rule.show(self._x, slots, actions, rewards)
            self._is_cached[slots] = False

    def _slots_of(self, users: Ints, items: Any) -> Indices:
        """Return the slots (n,) of users, after checking the items (n,) of their events.

        Raises:
            UserError: an item is out of range, or a user has not begun.
        """
        items = np.asarray(items)
        refuse_first(
            (items < 0) | (items >= self.n_items),
            lambda i: f"policy {self.name!r}: item {items[i]} is out of range, it knows items 0..{self.n_items - 1}",
        )
        return self._slots.find(users)

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`Policy.describe`: the name, and the definition of the features."""
        if self.rule.kind == "features":
            return {"name": self.name, "features": "users"}
        suffix = ""
        if self._user_features is not None:
            suffix = "+features"
        return {"name": self.name, "features": f"{self.rule.kind}{suffix}", **self.rule.settings()}

    # -------------------------------------------------------------------------------------------------------- decisions

    def defines(self, method: str) -> bool:
        """Implement :meth:`Policy.defines`; ``scores`` counts as defined if the user's function returns scores."""
        if method == "scores":
            return self._has_scores
        return super().defines(method)

    def scores(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.scores`."""
        return self._outputs[self._cached_slots(users)]

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`."""
        return self._slot_probabilities(self._cached_slots(users))

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`Policy.act`: take the first item a with uniform < p_0 + ... + p_a."""
        actions = np.empty(len(users), np.int64)
        propensities = np.empty(len(users))
        for part, probabilities in self._probability_parts(users):
            edges = np.cumsum(probabilities, axis=1)
            # Rounding may leave the last sum below 1. A uniform beyond it takes the last item of positive probability.
            last_possible = self.n_items - 1 - np.argmax(probabilities[:, ::-1] > 0, axis=1)
            actions[part] = np.minimum((edges <= uniforms[part, None]).sum(axis=1), last_possible)
            propensities[part] = probabilities[np.arange(len(probabilities)), actions[part]]
        return actions, propensities

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`Policy.propensity_of`."""
        out = np.empty(len(users))
        for part, probabilities in self._probability_parts(users):
            out[part] = probabilities[np.arange(len(probabilities)), actions[part]]
        return out

    def _probability_parts(self, users: Ints) -> Iterator[tuple[slice, Floats]]:
        """Yield the users' probabilities in parts of at most :data:`_CELLS` numbers, so that memory is bounded.

        Yields:
            part: slice of the users.
            probabilities: (m, n_items) probabilities of these users.
        """
        slots = self._cached_slots(users)
        step = max(1, _CELLS // self.n_items)
        for begin in range(0, len(slots), step):
            part = slice(begin, begin + step)
            yield part, self._slot_probabilities(slots[part])

    # ------------------------------------------------------------------------------------------------ cache of results

    def _cached_slots(self, users: Ints) -> Indices:
        """Return the slots (n,) of users, after computing the scores or probabilities that are not cached."""
        slots = self._slots.find(users)
        missing = np.unique(slots[~self._is_cached[slots]])
        if len(missing):
            self._outputs[missing] = self._call_function(self._features_of_slots(missing))
            self._is_cached[missing] = True
        return slots

    def _call_function(self, x: Matrix) -> Floats:
        """Call the user's function on features (n, width); return checked scores or probabilities (n, n_items)."""
        if self._has_scores:
            function = self._given_scores or self.written.__get__(self)
        else:
            function = self._given_distribution or self.distribution
        n = len(x)
        if self.rows is None:
            return self._checked_result(function(x), n)
        n_padding = -n % self.rows  # rows up to the next multiple
        padded = np.concatenate([x, np.zeros((n_padding, x.shape[1]), x.dtype)])
        batches = np.split(padded, len(padded) // self.rows)
        return np.concatenate([self._checked_result(function(batch), self.rows) for batch in batches])[:n]

    def _checked_result(self, answer: Any, n: int) -> Floats:
        """Check the function's return value for n rows; return scores, or probabilities scaled to sum to 1 exactly."""
        if self._has_scores:
            scores = checked_scores(self, answer, (n, self.n_items))
            if np.isnan(scores).any():
                raise UserError(f"policy {self.name!r}: scores(x) returned what is not a number")
            return scores
        probabilities = checked_distribution(self, answer, self.n_items, n=n)
        return probabilities / probabilities.sum(axis=1, keepdims=True)

    def _slot_probabilities(self, slots: Indices) -> Floats:
        """Return the probabilities (n, n_items) of users in these slots, whose results must be cached."""
        outputs = self._outputs[slots]
        if self._has_scores:
            return best_of(outputs)
        return outputs
