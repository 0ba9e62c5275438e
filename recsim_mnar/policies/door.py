"""Adapters that make a full policy or learner of a user's object.

A policy need not derive from :class:`~recsim_mnar.policies.base.Policy`: an object with ``n_items``, ``act`` and
``probabilities`` will do. :func:`as_policy` is called wherever a policy enters the package, and behind it every method
can be called and every attribute has its type. Whether a policy has a method of its own is said by ``defines``, whether
a learner has one by :func:`able`; nothing else looks for attributes.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.policies.answers import name_of
from recsim_mnar.policies.base import Floats, Ints, Learner, Learns, Policy, Ranks, Scores

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

EVENTS = ("reset", "reset_training_users", "observe", "observe_ratings", "learn", "forget")
"""Methods by which a policy is given what happens, users first."""

_METHODS = (*EVENTS, "act", "probabilities", "scores", "propensity_of", "fixed_distribution")
"""Methods of a policy that are called as the user wrote them."""

_FLAGS = {"batches_decisions": False, "is_uniform": False, "predicts_ratings": False, "replayable": True}
"""Attributes that are flags, with what holds where an object does not say."""


def as_policy(policy: Any, *, who: str | None = None) -> Policy:
    """Return a full policy of a user's object; a full one is returned as it is.

    Args:
        policy: a :class:`Policy`, or an object with ``n_items``, ``act`` and, where they are asked for,
            ``probabilities``; of the other methods those that it has. A ``learn`` of three arguments, without the
            propensities, is one too.
        who: what errors call it; ``policy 'its name'`` by default.

    Raises:
        UserError: it is a class or a learner, lacks ``act`` or ``n_items``, has an attribute of another type, or a
            method that is none or takes other arguments.
    """
    who = who or f"policy {name_of(policy)!r}"
    if isinstance(policy, Policy):
        if not hasattr(policy, "n_items"):
            raise UserError(f"{who} must have an attribute n_items, the number of items")
        if misfit("learn", policy.learn, Policy.learn) is None:
            return policy
        return AdaptedPolicy(policy, who)
    _refuse_class(policy, who)
    if isinstance(policy, str):
        raise UserError(
            f"{policy!r} is a name, a policy is wanted: fit it, "
            f"recsim_mnar.agent({policy!r}).fit(log, n_items=world.n_items)"
        )
    if not callable(getattr(policy, "act", None)):
        hint = ""
        if role_of(policy) == "agent":
            hint = ": it is a learner, fit it first"
        if isinstance(policy, Ranks):
            hint = ": it ranks, and one item is shown at a time (slate_size = 1)"
        raise UserError(f"{who} has no method act(users, uniforms){hint}")
    return AdaptedPolicy(policy, who)


_OF_FUNCTIONS = ": recsim_mnar.FeaturePolicy(n_items, scores=f) makes a policy of a function of observations"


def as_learner(learner: Any, *, name: str | None = None) -> Learner:
    """Return a full learner of a user's object; a full one is returned as it is.

    Args:
        learner: a :class:`Learner`, an object with ``fit``, or a policy, which is taken as it is.
        name: what errors call it; its own name by default.

    Raises:
        UserError: it is a class, lacks ``fit`` and ``act``, or its ``fit`` takes other arguments.
    """
    if isinstance(learner, Learner):
        return learner
    who = f"agent {name or name_of(learner)!r}"
    _refuse_class(learner, who)
    if not callable(getattr(learner, "fit", None)):
        if role_of(learner) == "policy":
            return ReadyLearner(learner, name)
        raise UserError(f"{who} has no method fit(log, *, n_items, seed), and is no policy either{_OF_FUNCTIONS}")
    fitting("fit", learner.fit, who, Learner.fit)
    return AdaptedLearner(learner)


class ReadyLearner(Learner):
    """Returns policies that need no training: new objects of a class, or fresh copies of one.

    Args:
        given: a policy, or a class of policies made by ``Class(n_items=...)``.
        name: of the agent; its own by default.
        parameters: of the class.
    """

    ignores_own_views = True

    def __init__(self, given: Any, name: str | None = None, parameters: Mapping[str, Any] | None = None) -> None:
        if name is None:
            name = getattr(given, "name", given.__name__) if inspect.isclass(given) else name_of(given)
        self.given = given
        self.parameters = dict(parameters or {})
        self.name = name

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; the log is not read.

        Raises:
            UserError: the policy is for another number of items.
        """
        if inspect.isclass(self.given):
            kind: Any = self.given
            return kind(n_items=n_items, **self.parameters)
        policy = as_policy(self.given)
        if policy.n_items != n_items:
            raise UserError(
                f"agent {self.name!r}: its n_items is {policy.n_items}, the log's world has {n_items} items: make it "
                "for this world"
            )
        return policy.fresh()


def fitted(learner: Learner, log: Log, *, n_items: int, seed: int) -> Policy:
    """Fit a learner on a log and return a full policy.

    Raises:
        UserError: as ``fit`` and :func:`of_fit`.
    """
    return of_fit(learner.name, as_learner(learner).fit(log, n_items=n_items, seed=seed))


def of_fit(name: str, policy: Any) -> Policy:
    """Return the result of an agent's ``fit`` as a full policy; ranking policies are left as they are.

    Raises:
        UserError: it is none, or as :func:`as_policy`.
    """
    if isinstance(policy, Ranks):
        return policy  # type: ignore[return-value]  # where slates are shown, see as_ranking_policy
    if inspect.isclass(policy) or role_of(policy) != "policy":
        got = repr(policy)
        if inspect.isclass(policy):
            got = f"the class {policy.__name__}: return an object of it"
        raise UserError(f"agent {name!r}: fit() must return a fitted policy, got {got}")
    return as_policy(policy, who=f"agent {name!r}: its policy")


# ----------------------------------------------------------------------------------------------------------- abilities


def able(learner: Learner, ability: str) -> Any:
    """Return the innermost learner if it has an optional method, else None.

    Beyond :class:`Learner` a learner may have

    ``leave_one_out_ranks(log, *, n_items, unseen)``, (n,) and (n,) int64, or None where it cannot be done for this log:
    of each view of the log, by exact downdating, the number of items that score above its own without it, and of those
    that score as high; with ``unseen``, items that the user has viewed otherwise are not candidates;

    ``scores_without_each_view(log, *, n_items, chunk)``, pairs of (m,) int64 and (m, n_items): at most ``chunk`` views
    at a time, which views, and their users' scores as fitted without them;

    ``chosen_on(log, *, n_items, seed)``, a learner: one with settings (a strength of shrinkage) chosen on a log, once,
    before it is fitted repeatedly;

    ``fit_exposures(exposures, *, seed)``, a policy: fitted on who was shown what, with known probabilities, and not
    only on what was bought.
    """
    inner = unwrapped(learner)
    if callable(getattr(inner, ability, None)):
        return inner
    return None


def has_fixed_distribution(policy: Policy) -> bool:
    """True if a policy runs inside the simulator's kernel because it treats all users alike."""
    return policy.is_uniform or policy.fixed_distribution() is not None


def declared_learning(thing: Any) -> Any:
    """Return ``learns`` of a policy or of a user's object; None if it is not declared.

    A class that overrides ``learn`` and not ``learns`` says nothing: what is inherited was said of another ``learn``.
    """
    if "learns" not in getattr(thing, "__dict__", {}):
        for owner in type(thing).__mro__:
            if "learns" in vars(owner):
                break
            if "learn" in vars(owner):
                return None
    return getattr(thing, "learns", None)


def learning_of(policy: Policy | Ranks) -> Learns:
    """Return whose outcomes a policy learns from: as declared, or all users if it only defines ``learn``.

    Raises:
        UserError: it declares something else.
    """
    declared = declared_learning(policy)
    if declared is None:
        if policy.defines("learn"):
            return "all users"
        return "nothing"
    if declared not in get_args(Learns):
        values = ", ".join(map(repr, get_args(Learns)))
        raise UserError(f"policy {policy.name!r}: learns must be one of {values}, got {declared!r}")
    return declared


_ONLINE = "run it by recsim_mnar.simulate_online, or "


def refuse_common_learning(policy: Policy | Ranks, where: str, instead: str = _ONLINE) -> None:
    """Raise UserError for a policy that learns from all users, where users are processed in shards.

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


# ------------------------------------------------------------------------------- what a log must hold for a learner

HOLDINGS: Mapping[str, str] = {
    "outcomes": "recommendations with their rewards and propensities",
    "clicks": "recommendations that were taken or not (reward 1 or 0)",
    "exposures": "items recommended and not, bought and not, period by period",
    "ratings": "revealed ratings",
}
"""What a log may hold, in words."""


def needs_of(learner: Any) -> frozenset[str]:
    """Return the declared needs of a learner, or of a class of learners.

    Raises:
        UserError: something that is not in :data:`HOLDINGS`.
    """
    needs = frozenset(getattr(learner, "needs", ()))
    for unknown in sorted(map(str, needs - set(HOLDINGS))):
        raise UserError(f"agent {getattr(learner, 'name', learner)!r} needs {unknown!r}; {nearest(unknown, HOLDINGS)}")
    return needs


def check_needs(name: str, learner: Any, holds: Iterable[str] | None, where: str) -> None:
    """Raise UserError if a log lacks data that a learner needs.

    Args:
        name: of the agent.
        learner: with or without ``needs``.
        holds: what the log holds, of :data:`HOLDINGS`; None if unknown, which suffices.
        where: the log, in words.
    """
    if holds is None:
        return
    missing = sorted(needs_of(learner) - set(holds))
    if missing:
        raise UserError(
            f"agent {name!r} learns from {HOLDINGS[missing[0]]}, which {where} does not hold; "
            "`recsim-mnar list agents` says which worlds an agent is for"
        )


# ------------------------------------------------------------------------------------------------------------- wrappers


class EventForwarder:
    """Forwards events to the policies within, and has their common attributes.

    Attributes:
        inner: the policy within; of several, override :attr:`within`.
    """

    inner: Policy
    reset: Callable[..., None]
    reset_training_users: Callable[..., None]
    observe: Callable[..., None]
    observe_ratings: Callable[..., None]
    learn: Callable[..., None]
    forget: Callable[..., None]

    @property
    def within(self) -> Sequence[Policy]:
        """Policies to which events are forwarded."""
        return (self.inner,)

    @property
    def batches_decisions(self) -> bool:
        """Implement :class:`Policy`; where all within do."""
        return all(policy.batches_decisions for policy in self.within)

    @property
    def replayable(self) -> bool:
        """Implement :class:`Policy`; where all within are."""
        return all(policy.replayable for policy in self.within)

    @property
    def learns(self) -> Learns:
        """Implement :class:`Policy`; as the one within that learns from most."""
        learned = {learning_of(policy) for policy in self.within}
        if "all users" in learned:
            return "all users"
        return "own user" if "own user" in learned else "nothing"

    def changes(self, event: str, users: Ints) -> None:
        """Drop what is cached of users; called with an event's name before the event is forwarded."""


def _forwarder(event: str) -> Callable[..., None]:
    def hand_on(self: EventForwarder, users: Ints, *rest: Any) -> None:
        self.changes(event, users)
        for policy in self.within:
            getattr(policy, event)(users, *rest)

    hand_on.__doc__ = f"See :meth:`Policy.{event}`; handed on."
    return hand_on


for _event in EVENTS:
    setattr(EventForwarder, _event, _forwarder(_event))


class PolicyWrapper(EventForwarder, Policy):  # type: ignore[misc,override]  # what others declare as values are properties
    """Base of wrappers: forwards events, and ranks as the policy within."""

    def defines(self, method: str) -> bool:
        """Check whether a wrapped policy defines an attribute."""
        if method in EVENTS or (method == "scores" and type(self).scores is PolicyWrapper.scores):
            return any(policy.defines(method) for policy in self.within)
        return super().defines(method)

    def scores(self, users: Ints) -> Scores:
        """The inner policy's scores: a wrapper does not change the ranking."""
        return self.inner.scores(users)


class AdaptedPolicy(Policy):
    """Full policy of a user's object: its methods are called directly, missing ones do nothing.

    Args:
        own: the object.
        who: what errors call it.
        methods: those of its methods that are called.
        n_items: number of items; what the object says where None.
    """

    def __init__(self, own: Any, who: str, methods: Sequence[str] = _METHODS, n_items: int | None = None) -> None:
        self._who = who
        self.name = _typed(own, "name", name_of(own), str, "a text", who)
        if n_items is None and not hasattr(own, "n_items"):
            raise UserError(f"{who} must have an attribute n_items, the number of items")
        self.n_items = whole_number(own.n_items if n_items is None else n_items, f"{who}: n_items", 1)
        for flag, usual in _FLAGS.items():
            setattr(self, flag, bool(_typed(own, flag, usual, (bool, np.bool_), "True or False", who)))
        self._offered = frozenset(name for name in methods if getattr(own, name, None) is not None)
        self._bind(own)
        self.learns = declared_learning(own)
        learning_of(self)

    def _bind(self, own: Any) -> None:
        """Bind the methods of an object, so that calls cost nothing extra."""
        self.own = own
        for name in self._offered:
            setattr(self, name, fitting(name, getattr(own, name, None), self._who))

    def defines(self, method: str) -> bool:
        """Implement :meth:`Policy.defines`."""
        if isinstance(self.own, Policy):
            return self.own.defines(method)
        return method in self._offered

    def act(
        self, users: Ints, uniforms: Floats
    ) -> tuple[Ints, Floats]:  # pragma: no cover  # the object's own is called
        """Implement :meth:`Policy.act`."""
        raise NotImplementedError

    def probabilities(self, users: Ints) -> Floats:
        """Compute probabilities for an object that has none of its own.

        Raises:
            UserError: always.
        """
        raise UserError(f"{self._who} has no method probabilities(users), the probability of every item: define it")

    def fresh(self) -> AdaptedPolicy:
        """Implement :meth:`Policy.fresh`; what was asked of the object at the door is not asked again."""
        again = copy.copy(self)
        if getattr(self.own, "fresh", None) is not None:
            again._bind(self.own.fresh())
        else:
            again._bind(copy.deepcopy(self.own))
        return again

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`Policy.describe`."""
        description = {}
        if getattr(self.own, "describe", None) is not None:
            description = self.own.describe()
        if not isinstance(description, dict):
            raise UserError(f"{self._who}: describe() must return a dict, got {type(description).__name__}")
        return {**description, "name": self.name}


class LearnerWrapper(Learner):
    """Base of learners that fit an inner learner and change the name or the policy.

    Attributes:
        inner: the learner within, or an object of the user's own that fits.
        softeners: name and strength of what softens the policies that are fitted, innermost first.
    """

    inner: Any
    softeners: Sequence[tuple[str, float]] = ()

    @property
    def ignores_own_views(self) -> bool:  # type: ignore[override]  # as the inner learner does
        """Implement :class:`Learner`."""
        return bool(getattr(self.inner, "ignores_own_views", False))

    @property
    def needs(self) -> frozenset[str]:  # type: ignore[override]  # as the inner learner does
        """Implement :class:`Learner`."""
        return frozenset(getattr(self.inner, "needs", ()))


class AdaptedLearner(LearnerWrapper):
    """Full learner of a user's object with ``fit``."""

    def __init__(self, own: Any) -> None:
        self.inner = own
        self.name = name_of(own)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`Learner.fit`."""
        return of_fit(self.name, self.inner.fit(log, n_items=n_items, seed=seed))


def unwrapped(learner: Learner) -> Any:
    """Return the innermost learner, without name and softening."""
    while isinstance(learner, LearnerWrapper):
        learner = learner.inner
    return learner


def rewrapped(learner: Learner, inner: Learner) -> Learner:
    """Return a learner with its innermost learner replaced."""
    if not isinstance(learner, LearnerWrapper):
        return inner
    again = copy.copy(learner)
    again.inner = rewrapped(learner.inner, inner)
    return again


def is_softened(learner: Learner) -> bool:
    """Return whether a learner softens its policies."""
    return isinstance(learner, LearnerWrapper) and (bool(learner.softeners) or is_softened(learner.inner))


# -------------------------------------------------------------------------------------------------- what can be called


def misfit(name: str, own: Any, wanted: Any) -> str | None:
    """Describe why a method of a policy or learner cannot be called as the interface says; else None.

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
    return f"define {name}({arguments}). The one found takes other arguments"


def binds(call: Any, places: Sequence[Any], keywords: Mapping[str, Any], *, partial: bool = False) -> bool:
    """Return whether a callable accepts these arguments and keywords."""
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # compiled code has no signature
        return True
    try:
        (signature.bind_partial if partial else signature.bind)(*places, **keywords)
    except TypeError:
        return False
    return True


def role_of(thing: Any) -> str | None:
    """Return ``policy`` for an object that acts, ``agent`` for one that fits, else None."""
    if callable(getattr(thing, "act", None)):
        return "policy"
    if callable(getattr(thing, "fit", None)):
        return "agent"
    return None


def fitting(name: str, method: Any, who: str, wanted: Any = None) -> Any:
    """Return a user's method as the interface calls it; ``learn`` may omit the propensities.

    Raises:
        UserError: it takes other arguments.
    """
    problem = misfit(name, method, wanted or getattr(Policy, name))
    if problem and name == "learn" and binds(method, range(3), {}):
        return functools.partial(_without_propensities, method)
    if problem:
        raise UserError(f"{who}: {problem}")
    return method


def _without_propensities(learn: Any, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
    learn(users, actions, rewards)


def _refuse_class(thing: Any, who: str) -> None:
    if inspect.isclass(thing):
        raise UserError(f"{who} is the class {thing.__name__}: give an object of it")


def _typed(own: Any, attribute: str, default: Any, kind: Any, words: str, who: str) -> Any:
    value = getattr(own, attribute, default)
    if not isinstance(value, kind):
        raise UserError(f"{who}: {attribute} must be {words}, got {value!r}")
    return value
