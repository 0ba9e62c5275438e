"""The door: whatever a user brings as a policy or a learner becomes a full one, or an error says what it lacks.

A policy need not derive from :class:`~recsim_mnar.policy.base.Policy`: an object with ``n_items``, ``act`` and
``probabilities`` will do. :func:`as_policy` is called wherever a policy enters the package, and behind it every method
can be called and every attribute has its type.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.policy.answers import name_of
from recsim_mnar.policy.base import Floats, Ints, Learner, Policy, Scores
from recsim_mnar.policy.capabilities import LearnerWrapper, declared_learning, learning_of

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

_HANDED_ON = (
    "reset", "reset_training_users", "observe", "observe_ratings", "act", "learn", "forget",
    "probabilities", "scores", "propensity_of", "fixed_distribution",
)  # fmt: skip
"""Methods of a policy that are called as the user wrote them."""

OPTIONAL_LAST = {"learn"}
"""Methods whose last argument an object may do without."""

_FLAGS = {"batches_decisions": False, "is_uniform": False, "predicts_ratings": False, "replayable": True}
"""Attributes that are flags, with what holds where an object does not say."""


def as_policy(policy: Any, *, who: str | None = None) -> Policy:
    """A full policy of what a user brings; one that is full already is handed back as it is.

    Args:
        policy: a :class:`Policy`, or an object with ``n_items``, ``act`` and, where they are asked for,
            ``probabilities``; of the other methods those that it has. A ``learn`` of three arguments, without the
            propensities, is one too.
        who: what errors call it; ``policy 'its name'`` by default.

    Raises:
        UserError: it is a class or a learner, lacks ``act`` or ``n_items``, has an attribute of another type, or a
            method that is none or takes other arguments.
    """
    if isinstance(policy, Policy):
        if not hasattr(policy, "n_items"):
            raise UserError(f"{who or _called(policy)} must have an attribute n_items, the number of items")
        fits = misfit("learn", policy.learn, Policy.learn) is None
        return policy if fits else AdaptedPolicy(policy, who or _called(policy))
    who = who or _called(policy)
    if inspect.isclass(policy):
        raise UserError(f"{who} is the class {policy.__name__}: give an object of it")
    if not callable(getattr(policy, "act", None)):
        hint = ": it is a learner, fit it first" if callable(getattr(policy, "fit", None)) else ""
        raise UserError(f"{who} has no method act(users, uniforms){hint}")
    return AdaptedPolicy(policy, who)


def as_learner(learner: Any, *, name: str | None = None) -> Learner:
    """A full learner of what a user brings; one that is full already is handed back as it is.

    Args:
        learner: a :class:`Learner`, or an object with ``fit``.
        name: what errors call it; its own name by default.

    Raises:
        UserError: it is a class, lacks ``fit``, or its ``fit`` takes other arguments.
    """
    if isinstance(learner, Learner):
        return learner
    who = f"agent {name or name_of(learner)!r}"
    if inspect.isclass(learner):
        raise UserError(f"{who} is the class {learner.__name__}: give an object of it")
    if not callable(getattr(learner, "fit", None)):
        hint = ": it is a policy already, not a learner" if callable(getattr(learner, "act", None)) else ""
        raise UserError(f"{who} has no method fit(log, *, n_items, seed){hint}")
    problem = misfit("fit", learner.fit, Learner.fit)
    if problem:
        raise UserError(f"{who}: {problem}")
    return AdaptedLearner(learner)


def fitted(learner: Learner, log: Log, *, n_items: int, seed: int) -> Policy:
    """The policy that a learner fits on a log, as a full one.

    Raises:
        UserError: as ``fit`` and :func:`as_policy`.
    """
    policy = as_learner(learner).fit(log, n_items=n_items, seed=seed)
    return as_policy(policy, who=f"agent {learner.name!r}: what fit() returned")


class AdaptedPolicy(Policy):
    """An object of the user's own as a full policy: its methods are called as they are, the others do nothing.

    Args:
        own: the object.
        who: what errors call it.
    """

    def __init__(self, own: Any, who: str) -> None:
        self.own, self._who = own, who
        self.name = _typed(own, "name", name_of(own), str, "a text", who)
        if not hasattr(own, "n_items"):
            raise UserError(f"{who} must have an attribute n_items, the number of items")
        n_items = own.n_items
        if isinstance(n_items, bool) or not isinstance(n_items, (int, np.integer)) or n_items < 1:
            raise UserError(f"{who}: n_items must be a whole number of at least 1, got {n_items!r}")
        self.n_items = int(n_items)
        for flag, usual in _FLAGS.items():
            setattr(self, flag, bool(_typed(own, flag, usual, (bool, np.bool_), "True or False", who)))
        self._offered = frozenset(name for name in _HANDED_ON if getattr(own, name, None) is not None)
        for name in self._offered:
            method = getattr(own, name)
            problem = misfit(name, method, getattr(Policy, name))
            if problem and name in OPTIONAL_LAST and binds(method, range(3), {}):
                method, problem = WithoutPropensities(method), None
            if problem:
                raise UserError(f"{who}: {problem}")
            # Bound to this object, a call costs what it costs without the wrapper.
            setattr(self, name, method)
        self.learns = declared_learning(own)
        learning_of(self)

    def defines(self, method: str) -> bool:
        """See :meth:`Policy.defines`."""
        return self.own.defines(method) if isinstance(self.own, Policy) else method in self._offered

    def act(
        self, users: Ints, uniforms: Floats
    ) -> tuple[Ints, Floats]:  # pragma: no cover  # the object's own is called
        """See :meth:`Policy.act`."""
        raise NotImplementedError

    def probabilities(self, users: Ints) -> Floats:
        """Where the object has none of its own.

        Raises:
            UserError: always.
        """
        raise UserError(f"{self._who} has no method probabilities(users), the probability of every item: define it")

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`Policy.propensity_of`."""
        return np.asarray(self.probabilities(users))[np.arange(len(users)), actions]

    def fresh(self) -> Policy:
        """See :meth:`Policy.fresh`."""
        own = getattr(self.own, "fresh", None)
        again = as_policy(own() if own is not None else copy.deepcopy(self.own), who=self._who)
        again.name = self.name
        return again

    def describe(self) -> dict[str, Any]:
        """See :meth:`Policy.describe`."""
        own = getattr(self.own, "describe", None)
        told = own() if own is not None else {}
        if not isinstance(told, dict):
            raise UserError(f"{self._who}: describe() must return a dict, got {type(told).__name__}")
        return {**told, "name": self.name}


class WithoutPropensities:
    """A ``learn`` of three arguments as one of four: the propensities are left out.

    Args:
        learn: takes users, actions and rewards.
    """

    def __init__(self, learn: Callable[[Ints, Ints, Floats], None]) -> None:
        self._learn = learn

    def __call__(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """See :meth:`Policy.learn`."""
        self._learn(users, actions, rewards)


class AdaptedLearner(LearnerWrapper):
    """An object of the user's own, with ``fit``, as a full learner."""

    def __init__(self, own: Any) -> None:
        self.inner = own
        self.name = name_of(own)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`Learner.fit`."""
        policy = self.inner.fit(log, n_items=n_items, seed=seed)
        return as_policy(policy, who=f"agent {self.name!r}: what fit() returned")


def misfit(name: str, own: Any, wanted: Any) -> str | None:
    """What is wrong with a method of a policy or learner, that it cannot be called as the interface says; else None.

    Args:
        name: of the method.
        own: the user's, bound to its object.
        wanted: the interface's, unbound.
    """
    if not callable(own):
        return f"{name} must be a method, got {type(own).__name__}"
    parameters = list(inspect.signature(wanted).parameters.values())[1:]
    places = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if binds(own, places, dict.fromkeys(keywords)):
        return None
    arguments = ", ".join(["self", *places, *(f"{keyword}=..." for keyword in keywords)])
    return f"define {name}({arguments}), its own takes other arguments"


def binds(call: Any, places: Sequence[Any], keywords: dict[str, Any], *, partial: bool = False) -> bool:
    """Whether something can be called with so many arguments and these keywords."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # compiled code tells nothing of its arguments
        return True
    try:
        (signature.bind_partial if partial else signature.bind)(*places, **keywords)
    except TypeError:
        return False
    return True


def scores_of(policy: Any, users: Ints) -> Scores:
    """By what a policy ranks items, (n, n_items): its scores where it has them, else its probabilities."""
    return as_policy(policy).scores(users)


def role_of(thing: Any) -> str | None:
    """``policy`` or ``agent`` (what fits one) for an object that acts or fits, else None."""
    if callable(getattr(thing, "act", None)):
        return "policy"
    return "agent" if callable(getattr(thing, "fit", None)) else None


def _called(policy: Any) -> str:
    return f"policy {name_of(policy)!r}"


def _typed(own: Any, attribute: str, default: Any, kind: Any, words: str, who: str) -> Any:
    value = getattr(own, attribute, default)
    if not isinstance(value, kind):
        raise UserError(f"{who}: {attribute} must be {words}, got {value!r}")
    return value
