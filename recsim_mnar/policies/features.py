"""FeaturePolicy: a policy of a function of feature matrices."""

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


class FeaturePolicy(StatefulPolicy):
    """Policy of a user-written function of features; this class keeps each user's features.

    Hand in a function, ``FeaturePolicy(50, distribution=model.predict_proba)``, or derive a class and define one of

        ``scores(x)``: (n, n_items), the item with the largest is taken, each of several equal ones as likely; soften
        by ``SoftmaxPolicy`` or ``EpsilonMixture``;

        ``distribution(x)``: (n, n_items), rows that sum to 1, drawn from.

    ``x`` is (n, width) float32, as :func:`recsim_mnar.export.decisions` gives it of a log, and as the environments
    observe it with ``counts``. A row's answer must depend on that row alone. It is kept until the row changes, so a
    user's propensities agree with each other whatever a library's rounding; the same user in a batch of another shape
    may still get other last bits (1e-6 or less), unless ``rows`` fixes the shape.

    With ``shown`` the row changes with every recommendation too, by :meth:`learn`: the policy then ``learns`` from its
    ``own user``. A derived class with a ``learn`` of its own must call this one as well.

    Args:
        n_items: number of items.
        observation: as environments take it: ``counts``, ``decayed=0.9``, ``last=10`` or ``shown=0.9``, and with
            ``+features`` what ``user_features`` knows behind it: see
            :func:`recsim_mnar.log.contexts.observation_of`. Or the ``observation`` of a world of your own.
        scores: of a matrix of features, where no class defines it.
        distribution: likewise; give one of the two.
        user_features: what is known of users from the start: a function of their numbers (n,) that gives (n, k), as
            ``lambda users: world.features_of(seed, users)`` does for users of one seed. Without ``+features`` it stands
            in the place of events.
        rows: hand over exactly so many rows at a time, the missing ones zero: a library that rounds by the shape of a
            batch then answers the same for a user in any batch. Any number where None.
        name: the name under which results are reported.

    Raises:
        UserError: neither or both of scores and distribution, or an argument that cannot be.
    """

    batches_decisions = True
    learns: Learns | None = "nothing"
    written: ClassVar[Any] = None
    """The ``scores(x)`` of a derived class; the ``scores`` that others call takes users."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Move a derived class's ``scores``, of features, away from the policy's ``scores``, of users."""
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
        self.rule, more = observation_of(observation, user_features=user_features)
        self._of_users = checked_features(user_features, observation) if more else None
        shape: tuple[int, ...] = (1, 0)
        if self._of_users is not None:
            shape = np.shape(self._of_users(np.zeros(1, np.int64)))
        if len(shape) != 2 or shape[0] != 1:
            raise UserError(f"user_features of one user must have shape (1, width), got {shape}")
        self._n_known = shape[1]
        self.width = self.rule.width(self.n_items) + self._n_known
        if rows is not None:
            rows = whole_number(rows, "rows", 1)
        self.rows = rows
        if name is not None or type(self).name == Policy.name:
            self.name = name or (type(self).__name__ if type(self) is not FeaturePolicy else "features")
        scorers = [function for function in (scores, self.written) if function is not None]
        n_ways = len(scorers) + (distribution is not None)
        n_ways += type(self).distribution is not FeaturePolicy.distribution
        if n_ways != 1:
            raise UserError(f"policy {self.name!r}: define one of scores(x) and distribution(x), got {n_ways}")
        self._given_scores = scores
        self._given_distribution = distribution
        self._scored = bool(scorers)
        if self.rule.counts_shown:
            self.batches_decisions = False
            if learning_of(self) == "nothing":
                self.learns = "own user"
        self._start()

    def distribution(self, x: Matrix) -> Any:
        """(n, n_items) probabilities of features (n, width); see the class."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------------- its users

    _x: Matrix
    _given: Matrix
    _answers: Floats
    _known: NDArray[np.bool_]

    def _entries(self) -> dict[str, Entry]:
        return {
            "_x": Entry(np.float32, 0.0, (self.width - self._n_known,)),
            "_given": Entry(np.float32, 0.0, (self._n_known,)),
            "_answers": Entry(np.float64, None, (self.n_items,)),
            "_known": Entry(np.bool_, False),
        }

    def features(self, users: Ints) -> Matrix:
        """The features of users, (n, width).

        Raises:
            UserError: a user has not begun.
        """
        return self._rows_of(self._slots.find(users))

    def _rows_of(self, slots: Indices) -> Matrix:
        if self._of_users is None:
            return self._x[slots]
        return joined(self._x[slots], self._given[slots])

    @property
    def space(self) -> gym.Space[Any]:
        """Gymnasium's space of a user's features, as environments state it."""
        own_space = self.rule.space(self.n_items)
        if self._of_users is None:
            return own_space
        return joined_space(own_space, self._n_known)

    def forget_answers(self) -> None:
        """Drop all cached answers; for a class whose scores or distributions change, as by learning."""
        self._known[:] = False

    def reset(self, users: Ints) -> None:
        """Implement :meth:`Policy.reset`."""
        super().reset(users)
        if self._of_users is not None:
            self._given[self._slots.find(users)] = self._of_users(np.asarray(users))

    def observe(self, users: Ints, items: Ints) -> None:
        """Implement :meth:`Policy.observe`."""
        slots = self._found(users, items)
        if self.width == self._n_known:
            return
        self.rule.observe(self._x, slots, items)
        self._known[slots] = False

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`Policy.learn`: recommendations enter the features of ``shown``; nothing else is learned."""
        if self.rule.counts_shown:
            slots = self._found(users, actions)
            self.rule.show(self._x, slots, actions, rewards)
            self._known[slots] = False

    def _found(self, users: Ints, items: Any) -> Indices:
        """Return the slots of users, after checking their items."""
        items = np.asarray(items)
        refuse_first(
            (items < 0) | (items >= self.n_items),
            lambda i: f"policy {self.name!r}: item {items[i]} is out of range, it knows items 0..{self.n_items - 1}",
        )
        return self._slots.find(users)

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`Policy.describe`."""
        if self.rule.kind == "features":
            return {"name": self.name, "features": "users"}
        more = "" if self._of_users is None else "+features"
        return {"name": self.name, "features": f"{self.rule.kind}{more}", **self.rule.settings()}

    # ----------------------------------------------------------------------------------------------------- what it does

    def defines(self, method: str) -> bool:
        """Implement :meth:`Policy.defines`; it has scores where they are what was written."""
        if method == "scores":
            return self._scored
        return super().defines(method)

    def scores(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.scores`."""
        return self._answers[self._answered(users)]

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`."""
        return self._shares(self._answered(users))

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """The first item a with uniform < p_0 + ... + p_a."""
        actions = np.empty(len(users), np.int64)
        propensities = np.empty(len(users))
        for part, shares in self._parts(users):
            edges = np.cumsum(shares, axis=1)
            # The sums may end below 1 by rounding: beyond them comes the last item that can be taken.
            top = self.n_items - 1 - np.argmax(shares[:, ::-1] > 0, axis=1)
            actions[part] = np.minimum((edges <= uniforms[part, None]).sum(axis=1), top)
            propensities[part] = shares[np.arange(len(shares)), actions[part]]
        return actions, propensities

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`Policy.propensity_of`."""
        out = np.empty(len(users))
        for part, shares in self._parts(users):
            out[part] = shares[np.arange(len(shares)), actions[part]]
        return out

    def _parts(self, users: Ints) -> Iterator[tuple[slice, Floats]]:
        """Yield the distributions of some users at a time."""
        slots = self._answered(users)
        step = max(1, _CELLS // self.n_items)
        for begin in range(0, len(slots), step):
            part = slice(begin, begin + step)
            yield part, self._shares(slots[part])

    # ---------------------------------------------------------------------------------------------------------- inside

    def _answered(self, users: Ints) -> Indices:
        """Return the slots of users, after asking for the answers that are missing."""
        slots = self._slots.find(users)
        unanswered = np.unique(slots[~self._known[slots]])
        if len(unanswered):
            self._answers[unanswered] = self._ask(self._rows_of(unanswered))
            self._known[unanswered] = True
        return slots

    def _ask(self, x: Matrix) -> Floats:
        """Return checked scores or probabilities of features."""
        if self._scored:
            call = self._given_scores or self.written.__get__(self)
        else:
            call = self._given_distribution or self.distribution
        n = len(x)
        if self.rows is None:
            return self._checked(call(x), n)
        padded = np.concatenate([x, np.zeros((-n % self.rows, x.shape[1]), x.dtype)])
        batches = np.split(padded, len(padded) // self.rows)
        return np.concatenate([self._checked(call(batch), self.rows) for batch in batches])[:n]

    def _checked(self, answer: Any, n: int) -> Floats:
        if self._scored:
            scores = checked_scores(self, answer, (n, self.n_items))
            if np.isnan(scores).any():
                raise UserError(f"policy {self.name!r}: scores(x) returned what is not a number")
            return scores
        law = checked_distribution(self, answer, self.n_items, n=n)
        return law / law.sum(axis=1, keepdims=True)

    def _shares(self, slots: Indices) -> Floats:
        """(n, n_items) probabilities of slots that were answered."""
        answers = self._answers[slots]
        if self._scored:
            return best_of(answers)
        return answers
