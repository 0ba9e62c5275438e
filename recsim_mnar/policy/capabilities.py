"""What policies and learners can do beyond what they must, by name.

Every :class:`~recsim_mnar.policy.base.Policy` answers every method: one that a policy does not define does nothing in
particular. Where it matters whether a policy (or a learner) really has an ability, ask for it by its class::

    ranking = able(policy, KnowsScores)
    if ranking is None:
        ...

Behind :func:`~recsim_mnar.policy.adapting.as_policy` nothing else asks an object which attributes it has. Two abilities
are declared and not defined, so they are plain attributes: ``Policy.batches_decisions`` and
``Learner.ignores_own_views``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.policy.base import Floats, Ints, Learner, Learns, Policy, Scores, observe_events

if TYPE_CHECKING:
    from recsim_mnar.log.exposures import Exposures
    from recsim_mnar.log.table import Log

Int64s = NDArray[np.int64]
A = TypeVar("A")

# ------------------------------------------------------------------------------------------------- what a policy may do


class ObservesViews:
    """Its state changes with what its users view."""

    def observe(self, users: Ints, items: Ints) -> None:
        """See :meth:`Policy.observe`."""
        raise NotImplementedError


class ReadsRatings:
    """Ratings tell it more than views do."""

    def observe_ratings(self, users: Ints, items: Ints, ratings: Floats) -> None:
        """See :meth:`Policy.observe_ratings`."""
        raise NotImplementedError


class LearnsFromOutcomes:
    """Its state changes with what comes of its actions: see :func:`learning_of`."""

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """See :meth:`Policy.learn`."""
        raise NotImplementedError


class Forgets:
    """It drops the state of users who have left."""

    def forget(self, users: Ints) -> None:
        """See :meth:`Policy.forget`."""
        raise NotImplementedError


class KnowsScores:
    """It ranks items by scores that are not its probabilities; they can be softened by a temperature."""

    def scores(self, users: Ints) -> Scores:
        """See :meth:`Policy.scores`."""
        raise NotImplementedError


class IgnoresUsers:
    """It may have one distribution for everybody, and then runs inside the simulator's kernel."""

    def fixed_distribution(self) -> Floats | None:
        """See :meth:`Policy.fixed_distribution`."""
        raise NotImplementedError


class PricesOneAction:
    """It knows the probability of one action without all the others."""

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`Policy.propensity_of`."""
        raise NotImplementedError


# ------------------------------------------------------------------------------------------------ what a learner may do


class CountsLeaveOneOut:
    """Knows by exact downdating where each view's item ranks once that view is omitted: no refitting."""

    def leave_one_out_ranks(self, log: Log, *, n_items: int, unseen: bool) -> tuple[Int64s, Int64s] | None:
        """Of each view of the log: how many items score above its own without it, and how many as high; (n,) each.

        With ``unseen`` the items that the user has viewed otherwise are not candidates. None: not for this log.
        """
        raise NotImplementedError


class ScoresWithoutViews:
    """Knows every user's scores as fitted without each of the user's views, with less work than refitting."""

    def scores_without_each_view(self, log: Log, *, n_items: int, chunk: int) -> Iterator[tuple[Int64s, NDArray[Any]]]:
        """At most ``chunk`` views at a time: (m,) which views of the log, and (m, n_items) scores without them."""
        raise NotImplementedError


class ChoosesSettings:
    """Chooses settings of its own (a strength of shrinkage) from a log, once, before it is fitted again and again."""

    def chosen_on(self, log: Log, *, n_items: int, seed: int = 0) -> Learner:
        """A learner of the same kind with those settings."""
        raise NotImplementedError


class FitsExposures:
    """Learns from who was shown what, with known probabilities, and not only from what was bought."""

    def fit_exposures(self, exposures: Exposures, *, seed: int = 0) -> Policy:
        """A new policy fitted on exposures."""
        raise NotImplementedError


# ------------------------------------------------------------------------------------------------------------- wrappers


_HANDED_ON = ("reset", "reset_training_users", "observe", "observe_ratings", "learn", "forget", "scores")


class PolicyWrapper(Policy):
    """Tells an inner policy everything it is told, and ranks as that one does; derive, and decide otherwise.

    Attributes:
        inner: the policy within.
    """

    inner: Policy

    @property
    def batches_decisions(self) -> bool:  # type: ignore[override]  # as the inner policy does
        """See :class:`Policy`."""
        return self.inner.batches_decisions

    @property
    def learns(self) -> Learns:  # type: ignore[override]  # as the inner policy does
        """See :class:`Policy`."""
        return learning_of(self.inner)

    @property
    def replayable(self) -> bool:  # type: ignore[override]  # as the inner policy is
        """See :class:`Policy`."""
        return self.inner.replayable

    def defines(self, method: str) -> bool:
        """Of what the wrapper hands on: whether the inner policy defines it."""
        return self.inner.defines(method) if method in _HANDED_ON else super().defines(method)

    def reset(self, users: Ints) -> None:
        """See :meth:`Policy.reset`."""
        self.inner.reset(users)

    def reset_training_users(self, users: Ints, originals: Ints) -> None:
        """See :meth:`Policy.reset_training_users`."""
        self.inner.reset_training_users(users, originals)

    def observe(self, users: Ints, items: Ints) -> None:
        """See :meth:`Policy.observe`."""
        self.inner.observe(users, items)

    def observe_ratings(self, users: Ints, items: Ints, ratings: Floats) -> None:
        """See :meth:`Policy.observe_ratings`."""
        observe_events(self.inner, users, items, ratings)

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """See :meth:`Policy.learn`."""
        self.inner.learn(users, actions, rewards, propensities)

    def forget(self, users: Ints) -> None:
        """See :meth:`Policy.forget`."""
        self.inner.forget(users)

    def scores(self, users: Ints) -> Scores:
        """The inner policy's scores: a wrapper changes no ranking."""
        return self.inner.scores(users)


class LearnerWrapper(Learner):
    """Fits what an inner learner fits; derive, and change the name or the policy.

    Attributes:
        inner: the learner within, or an object of the user's own that fits.
        softeners: name and strength of what softens the policies that are fitted, innermost first.
    """

    inner: Any
    softeners: Sequence[tuple[str, float]] = ()

    @property
    def ignores_own_views(self) -> bool:  # type: ignore[override]  # as the inner learner does
        """See :class:`Learner`."""
        return bool(getattr(self.inner, "ignores_own_views", False))

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]  # as the inner learner does
        """See :class:`Learner`."""
        return frozenset(getattr(self.inner, "needs", ()))

    def around(self, inner: Any) -> LearnerWrapper:
        """The same wrapper around another learner."""
        again = copy.copy(self)
        again.inner = inner
        return again


def unwrapped(learner: Learner) -> Any:
    """The learner within its name and softening: a softened agent ranks as the agent within."""
    while isinstance(learner, LearnerWrapper):
        learner = learner.inner
    return learner


def rewrapped(learner: Learner, inner: Learner) -> Learner:
    """``learner`` with another learner in the place of the one that :func:`unwrapped` gives."""
    if not isinstance(learner, LearnerWrapper):
        return inner
    return learner.around(rewrapped(learner.inner, inner))


def is_softened(learner: Learner) -> bool:
    """Whether a learner's policies act more randomly than the learner within asks for."""
    return isinstance(learner, LearnerWrapper) and (bool(learner.softeners) or is_softened(learner.inner))


def able(thing: Policy | Learner, ability: type[A]) -> A | None:
    """A policy or learner as one that has an ability of this module, or None where it has not.

    Of a policy it is the policy itself, whatever it wraps; of a learner the one within its name and softening.
    """
    methods = _methods(ability)
    if isinstance(thing, Policy):
        return cast(A, thing) if all(thing.defines(name) for name in methods) else None
    inner = unwrapped(thing)
    return inner if all(callable(getattr(inner, name, None)) for name in methods) else None


def _methods(ability: Any) -> list[str]:
    return [name for name in vars(ability) if not name.startswith("_")]


def declared_learning(thing: Any) -> Any:
    """What a policy, or an object of a user's own, says in ``learns``; None where it says nothing.

    A class that overrides ``learn`` and not ``learns`` says nothing: what is inherited was said of another ``learn``.
    """
    if "learns" not in getattr(thing, "__dict__", {}):
        for owner in type(thing).__mro__:
            if "learns" in vars(owner):
                break
            if "learn" in vars(owner):
                return None
    return getattr(thing, "learns", None)


def learning_of(policy: Policy) -> Learns:
    """From whose outcomes a policy learns while it acts: what it declares; all users where it only defines ``learn``.

    Raises:
        UserError: it declares something else.
    """
    said = declared_learning(policy)
    if said is None:
        return "all users" if able(policy, LearnsFromOutcomes) is not None else "nothing"
    if said not in get_args(Learns):
        known = ", ".join(repr(name) for name in get_args(Learns))
        raise UserError(f"policy {policy.name!r}: learns must be one of {known}, got {said!r}")
    return cast(Learns, said)


_ONLINE = "run it by recsim_mnar.simulation.online.simulate_online, or "


def refuse_common_learning(policy: Policy, where: str, instead: str = _ONLINE) -> None:
    """Raise UserError for a policy that learns from all users, where users are taken in shards or in any order.

    Args:
        policy: that is handed in.
        where: what it is handed to.
        instead: what to do with it.
    """
    if learning_of(policy) == "all users":
        raise UserError(
            f"policy {policy.name!r} learns from all users, {where} needs users that can be taken apart: {instead}"
            "declare learns = 'own user' or 'nothing' if that is so"
        )


def has_fixed_distribution(policy: Policy) -> bool:
    """Whether a policy runs inside the simulator's kernel, because it treats all users alike."""
    return policy.is_uniform or policy.fixed_distribution() is not None
