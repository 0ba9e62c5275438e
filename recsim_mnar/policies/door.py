"""Adapters that make a complete policy or learner from a user's object.

A policy need not derive from :class:`~recsim_mnar.policies.base.Policy`: an object with ``n_items``, ``act`` and
``probabilities`` is enough. :func:`as_policy` is called wherever a policy enters the package; its result has every
method and attribute of a policy, with the declared types. Code that needs to know whether a policy overrides a method
calls ``defines``, and for optional methods of a learner :func:`able`, instead of testing attributes.
"""

from __future__ import annotations

import copy
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
"""Methods that inform a policy about users; the first argument of each is the array of user ids."""

_METHODS = (*EVENTS, "act", "probabilities", "scores", "propensity_of", "fixed_distribution")
"""Methods of a user's object that an adapted policy calls if the object has them."""

_FLAGS = {"batches_decisions": False, "is_uniform": False, "predicts_ratings": False, "replayable": True}
"""Boolean attributes of a policy, with their values for an object that lacks them."""


def as_policy(policy: Any, *, who: str | None = None) -> Policy:
    """Return a :class:`Policy` that acts as a user's object does; a :class:`Policy` itself is returned unchanged.

    Args:
        policy: a :class:`Policy`, or an object with ``n_items``, ``act`` and, for callers that need them,
            ``probabilities``. Other methods of a policy are used if the object has them.
        who: subject of error messages; None for ``policy '<name>'``.

    Raises:
        UserError: ``policy`` is a class or a learner, lacks ``act`` or ``n_items``, has an attribute of the wrong type,
            or a method with the wrong arguments.
    """
    if who is None:
        who = f"policy {name_of(policy)!r}"
    if isinstance(policy, Policy):
        if not hasattr(policy, "n_items"):
            raise UserError(f"{who} must have an attribute n_items, the number of items")
        check_method("learn", policy.learn, who)
        return policy
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


_HINT_ON_FUNCTIONS = ": recsim_mnar.FeaturePolicy(n_items, scores=f) makes a policy of a function of observations"
"""Hint that ends an error message about a function handed in as an agent."""


def as_learner(learner: Any, *, name: str | None = None) -> Learner:
    """Return a :class:`Learner` that fits as a user's object does; a :class:`Learner` is returned unchanged.

    Args:
        learner: a :class:`Learner`, an object with ``fit``, or a policy, which needs no training.
        name: name in error messages; None for the object's own name.

    Raises:
        UserError: ``learner`` is a class, lacks both ``fit`` and ``act``, or its ``fit`` takes the wrong arguments.
    """
    if isinstance(learner, Learner):
        return learner
    who = f"agent {name or name_of(learner)!r}"
    _refuse_class(learner, who)
    if not callable(getattr(learner, "fit", None)):
        if role_of(learner) == "policy":
            return ReadyLearner(learner, name)
        raise UserError(f"{who} has no method fit(log, *, n_items, seed), and is no policy either{_HINT_ON_FUNCTIONS}")
    check_method("fit", learner.fit, who, Learner.fit)
    return AdaptedLearner(learner)


class ReadyLearner(Learner):
    """Learner for policies that need no training: ``fit`` makes an object of a class, or copies an object.

    Args:
        given: a policy, or a class of policies that is instantiated as ``Class(n_items=..., **parameters)``.
        name: name of the agent; None for the name of the policy or class.
        parameters: further arguments of the class.
    """

    ignores_own_views = True

    def __init__(self, given: Any, name: str | None = None, parameters: Mapping[str, Any] | None = None) -> None:
        if name is None:
            name = name_of(given)
            if inspect.isclass(given):
                name = getattr(given, "name", given.__name__)
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
    """Fit a learner on a log and return the policy, adapted by :func:`policy_of_fit`.

    Raises:
        UserError: ``fit`` fails, or does not return a policy.
    """
    return policy_of_fit(learner.name, as_learner(learner).fit(log, n_items=n_items, seed=seed))


def policy_of_fit(name: str, policy: Any) -> Policy:
    """Return the return value of an agent's ``fit`` as a :class:`Policy`.

    A ranking policy is returned unchanged: :func:`as_ranking_policy` adapts it where slates are shown.

    Raises:
        UserError: the value is no policy, or one that :func:`as_policy` refuses.
    """
    if isinstance(policy, Ranks):
        return policy  # type: ignore[return-value]  # no Policy; callers that show slates know
    if inspect.isclass(policy) or role_of(policy) != "policy":
        got = repr(policy)
        if inspect.isclass(policy):
            got = f"the class {policy.__name__}: return an object of it"
        raise UserError(f"agent {name!r}: fit() must return a fitted policy, got {got}")
    return as_policy(policy, who=f"agent {name!r}: its policy")


# ----------------------------------------------------------------------------------------------------------- abilities


def able(learner: Learner, ability: str) -> Any:
    """Return the innermost learner if it has the optional method named ``ability``, else None.

    These methods are optional:

    ``leave_one_out_ranks(log, *, n_items, unseen)`` returns, for each view of the log and scores fitted without that
    view, the number of items that score above the viewed item, (n,) int64, and the number of other items that tie with
    it, (n,) int64; or None if exact downdating is impossible for this log. With ``unseen``, items that the user has
    viewed at other times are no candidates.

    ``chosen_on(log, *, n_items, seed)`` returns a learner whose settings, such as the strength of shrinkage, were
    chosen on this log once, before it is fitted repeatedly.

    ``fit_exposures(exposures, *, seed)`` returns a policy fitted on exposures with known probabilities, not only on
    purchases.
    """
    inner = unwrapped(learner)
    if callable(getattr(inner, ability, None)):
        return inner
    return None


def has_fixed_distribution(policy: Policy) -> bool:
    """Return True if a policy has one action distribution for all users, so that the simulator's kernel runs it."""
    return policy.is_uniform or policy.fixed_distribution() is not None


def declared_learning(thing: Any) -> Any:
    """Return the attribute ``learns`` of a policy or of a user's object; None if it does not apply.

    A class that overrides ``learn`` without ``learns`` declares nothing: the inherited ``learns`` describes the
    inherited ``learn``.
    """
    if "learns" not in getattr(thing, "__dict__", {}):  # not set on the object itself
        for owner in type(thing).__mro__:  # from the object's class up to its bases
            if "learns" in vars(owner):
                break
            if "learn" in vars(owner):
                return None
    return getattr(thing, "learns", None)


def learning_of(policy: Policy | Ranks) -> Learns:
    """Return from whose outcomes a policy learns: its declaration, else ``all users`` if it defines ``learn``.

    Raises:
        UserError: the declaration is not a value of :data:`Learns`.
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
    """Raise UserError for a policy that learns from all users, in a place that processes users in shards.

    Args:
        policy: policy to check.
        where: function or command that received the policy, for the message.
        instead: advice in the message, ending in ``or``.
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
"""Kinds of data that a log may hold besides views, with their descriptions for messages."""


def needs_of(learner: Any) -> frozenset[str]:
    """Return the attribute ``needs`` of a learner, or of a class of learners; empty if it has none.

    Raises:
        UserError: a need that is not a key of :data:`HOLDINGS`.
    """
    needs = frozenset(getattr(learner, "needs", ()))
    for unknown in sorted(map(str, needs - set(HOLDINGS))):
        raise UserError(f"agent {getattr(learner, 'name', learner)!r} needs {unknown!r}; {nearest(unknown, HOLDINGS)}")
    return needs


def check_needs(name: str, learner: Any, holds: Iterable[str] | None, where: str) -> None:
    """Raise UserError if a log lacks data that a learner needs.

    Args:
        name: name of the agent.
        learner: learner, or class of learners.
        holds: kinds of data in the log, keys of :data:`HOLDINGS`; None if unknown, then nothing is checked.
        where: description of the log for the message.
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
    """Forwards every event to the wrapped policies and combines their attributes.

    The methods named in :data:`EVENTS` are generated below the class.

    Attributes:
        inner: the wrapped policy; a wrapper of several policies overrides :attr:`within` instead.
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
        """Return the wrapped policies, to which events are forwarded."""
        return (self.inner,)

    @property
    def batches_decisions(self) -> bool:
        """Return True if all wrapped policies can decide several times for a user in one call."""
        return all(policy.batches_decisions for policy in self.within)

    @property
    def replayable(self) -> bool:
        """Return True if all wrapped policies are replayable."""
        return all(policy.replayable for policy in self.within)

    @property
    def learns(self) -> Learns:
        """Return the widest range of users from whom a wrapped policy learns."""
        learned = {learning_of(policy) for policy in self.within}
        if "all users" in learned:
            return "all users"
        if "own user" in learned:
            return "own user"
        return "nothing"

    def changes(self, event: str, users: Ints) -> None:
        """Drop cached results that an event may change; called before the event is forwarded.

        Args:
            event: name of the event's method, one of :data:`EVENTS`.
            users: ids of the users whom the event concerns.
        """


def _forwarder(event: str) -> Callable[..., None]:
    """Return a method that forwards an event to the wrapped policies."""

    def forward(self: EventForwarder, users: Ints, *rest: Any) -> None:
        self.changes(event, users)
        for policy in self.within:
            getattr(policy, event)(users, *rest)

    forward.__doc__ = f"Forward :meth:`Policy.{event}` to the wrapped policies."
    return forward


for _event in EVENTS:
    setattr(EventForwarder, _event, _forwarder(_event))


class PolicyWrapper(EventForwarder, Policy):  # type: ignore[misc,override]  # properties replace values
    """Base of policies that wrap another policy: events are forwarded to it, and its ranking scores are kept."""

    def defines(self, method: str) -> bool:
        """Return True if a wrapped policy defines a forwarded method; other methods as in :meth:`Policy.defines`.

        Forwarded methods are the events and, unless the wrapper overrides it, ``scores``.
        """
        if method in EVENTS or (method == "scores" and type(self).scores is PolicyWrapper.scores):
            return any(policy.defines(method) for policy in self.within)
        return super().defines(method)

    def scores(self, users: Ints) -> Scores:
        """Return the inner policy's scores (n, n_items): a wrapper does not change the ranking."""
        return self.inner.scores(users)


class AdaptedPolicy(Policy):
    """Policy that calls the methods of a user's object and has the defaults of :class:`Policy` for missing ones.

    Args:
        own: user's object.
        who: subject of error messages.
        methods: names of the object's methods that may be called.
        n_items: number of items; None for the object's attribute ``n_items``.
    """

    def __init__(self, own: Any, who: str, methods: Sequence[str] = _METHODS, n_items: int | None = None) -> None:
        self._who = who
        self.name = _checked_attribute(own, "name", default=name_of(own), kind=str, words="a text", who=who)
        if n_items is None and not hasattr(own, "n_items"):
            raise UserError(f"{who} must have an attribute n_items, the number of items")
        if n_items is None:
            n_items = own.n_items
        self.n_items = whole_number(n_items, f"{who}: n_items", 1)
        for flag, default in _FLAGS.items():
            value = _checked_attribute(
                own, flag, default=default, kind=(bool, np.bool_), words="True or False", who=who
            )
            setattr(self, flag, bool(value))
        self._offered = frozenset(name for name in methods if getattr(own, name, None) is not None)
        self._bind(own)
        self.learns = declared_learning(own)
        learning_of(self)  # raises UserError if the declaration is invalid

    def _bind(self, own: Any) -> None:
        """Make the object's methods attributes of this policy, so that a call reaches them without a detour.

        Raises:
            UserError: a method takes the wrong arguments.
        """
        self.own = own
        for name in self._offered:
            method = getattr(own, name)
            check_method(name, method, self._who)
            setattr(self, name, method)

    def defines(self, method: str) -> bool:
        """Implement :meth:`Policy.defines`."""
        if isinstance(self.own, Policy):
            return self.own.defines(method)
        return method in self._offered

    def act(
        self, users: Ints, uniforms: Floats
    ) -> tuple[Ints, Floats]:  # pragma: no cover  # hidden by the object's method, see _bind
        """Implement :meth:`Policy.act`."""
        raise NotImplementedError

    def probabilities(self, users: Ints) -> Floats:
        """Raise UserError: the object has no method ``probabilities``, otherwise ``_bind`` would hide this one."""
        raise UserError(f"{self._who} has no method probabilities(users), the probability of every item: define it")

    def fresh(self) -> AdaptedPolicy:
        """Implement :meth:`Policy.fresh`; the attributes, checked in the constructor, are not checked again."""
        twin = copy.copy(self)
        if getattr(self.own, "fresh", None) is not None:
            twin._bind(self.own.fresh())
        else:
            twin._bind(copy.deepcopy(self.own))
        return twin

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`Policy.describe`: the description by the user's object, if it has one, and the name."""
        description = {}
        if getattr(self.own, "describe", None) is not None:
            description = self.own.describe()
        if not isinstance(description, dict):
            raise UserError(f"{self._who}: describe() must return a dict, got {type(description).__name__}")
        return {**description, "name": self.name}


class LearnerWrapper(Learner):
    """Base of learners that fit an inner learner and then rename or soften its policy.

    Attributes:
        inner: the wrapped learner, or a user's object with ``fit``.
        softeners: (parameter name, strength) of each softener applied to the fitted policy, innermost first.
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
    """Learner that calls ``fit`` of a user's object and adapts the policy which that returns."""

    def __init__(self, own: Any) -> None:
        self.inner = own
        self.name = name_of(own)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`Learner.fit`."""
        return policy_of_fit(self.name, self.inner.fit(log, n_items=n_items, seed=seed))


def unwrapped(learner: Learner) -> Any:
    """Return the innermost learner, without name and softening."""
    while isinstance(learner, LearnerWrapper):
        learner = learner.inner
    return learner


def rewrapped(learner: Learner, inner: Learner) -> Learner:
    """Return a copy of a wrapped learner in which ``inner`` replaces the innermost learner.

    The inverse of :func:`unwrapped`: names and softeners of the wrappers are kept.
    """
    if not isinstance(learner, LearnerWrapper):
        return inner
    twin = copy.copy(learner)
    twin.inner = rewrapped(learner.inner, inner)
    return twin


def is_softened(learner: Learner) -> bool:
    """Return True if one of the wrappers of a learner softens the fitted policies."""
    return isinstance(learner, LearnerWrapper) and (bool(learner.softeners) or is_softened(learner.inner))


# -------------------------------------------------------------------------------------------------- what can be called


def explain_misfit(name: str, own: Any, interface: Any) -> str | None:
    """Explain why a user's method cannot be called with the interface's arguments; None if it can.

    Args:
        name: name of the method.
        own: user's method, bound to its object.
        interface: method of :class:`Policy` or :class:`Learner`, unbound.
    """
    if not callable(own):
        return f"{name} must be a method, got {type(own).__name__}"
    parameters = list(inspect.signature(interface).parameters.values())[1:]  # without self
    positional = [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY]
    keywords = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    if binds(own, positional, dict.fromkeys(keywords)):
        return None
    arguments = ", ".join(["self", *positional, *(f"{keyword}=..." for keyword in keywords)])
    return f"define {name}({arguments}). The one found takes other arguments"


def binds(call: Any, positional: Sequence[Any], keywords: Mapping[str, Any], *, partial: bool = False) -> bool:
    """Return True if a callable accepts these positional arguments and keywords; their values do not matter.

    With ``partial``, further required arguments may be missing.
    """
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError):  # compiled code has no signature
        return True
    bind = signature.bind
    if partial:
        bind = signature.bind_partial
    try:
        bind(*positional, **keywords)
    except TypeError:
        return False
    return True


def role_of(thing: Any) -> str | None:
    """Return ``policy`` for an object with a method ``act``, ``agent`` for one with ``fit``, else None."""
    if callable(getattr(thing, "act", None)):
        return "policy"
    if callable(getattr(thing, "fit", None)):
        return "agent"
    return None


def check_method(name: str, method: Any, who: str, interface: Any = None) -> None:
    """Refuse a user's method that does not take the arguments of the interface's method.

    Args:
        name: name of the method.
        method: user's method, bound to its object.
        who: subject of the error message.
        interface: unbound method whose arguments are required; None for the method of this name in :class:`Policy`.

    Raises:
        UserError: the method takes other arguments.
    """
    if interface is None:
        interface = getattr(Policy, name)
    problem = explain_misfit(name, method, interface)
    if problem:
        raise UserError(f"{who}: {problem}")


def _refuse_class(thing: Any, who: str) -> None:
    """Raise UserError if a class was handed in instead of an object."""
    if inspect.isclass(thing):
        raise UserError(f"{who} is the class {thing.__name__}: give an object of it")


def _checked_attribute(own: Any, attribute: str, *, default: Any, kind: Any, words: str, who: str) -> Any:
    """Return an attribute of a user's object, or ``default`` if it is missing.

    Args:
        own: user's object.
        attribute: name of the attribute.
        default: value if the object lacks the attribute.
        kind: type, or tuple of types, that the value must have.
        words: description of the type for the message.
        who: subject of the message.

    Raises:
        UserError: the value has another type.
    """
    value = getattr(own, attribute, default)
    if not isinstance(value, kind):
        raise UserError(f"{who}: {attribute} must be {words}, got {value!r}")
    return value
