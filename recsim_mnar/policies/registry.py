"""Names of agents: from ``item-knn+neighbours=50+epsilon=0.1`` or ``package.module:Class`` to a learner."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import text_of, value_of
from recsim_mnar.plugins import announced, imported, option_of, unknown
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import (
    LearnerWrapper,
    ReadyLearner,
    as_learner,
    binds,
    check_method,
    policy_of_fit,
    role_of,
)
from recsim_mnar.policies.softening import EpsilonMixture, Softened, SoftmaxPolicy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

GROUP = "recsim_mnar.agents"
"""Entry-point group in which a package announces its agents."""

_SOFTENERS: dict[str, type[Softened]] = {kind.parameter_name: kind for kind in (EpsilonMixture, SoftmaxPolicy)}


def agents() -> list[tuple[str, str]]:
    """Return the name and one-line description of every announced agent, sorted by name."""
    rows = []
    for name in sorted(announced(GROUP)):
        text = inspect.getdoc(agent_class(name)) or ""
        rows.append((name, text.partition("\n")[0]))
    return rows


def learner(spec: str) -> Learner:
    """Make the learner that a name specifies.

    Args:
        spec: an announced name or ``package.module:Class``, followed by any of ``+epsilon=0.1``,
            ``+temperature=0.5`` (softened in the order given) and ``+parameter=value`` for the class's own
            parameters. The class is a :class:`Learner` or anything with ``fit``, or a :class:`Policy` or anything with
            ``act``, made by ``Class(n_items=...)``. An object of such a class may be named in its place.

    Returns:
        A learner whose ``name``, and the name of the policies it fits, is ``spec``.

    Raises:
        UserError: unknown name, parameter or class, or a value that is refused.
    """
    name, *options = [part.strip() for part in text_of(spec, "agent's name").split("+")]
    kind = agent_class(name)
    unsoftened = [name]  # parts of the name without the softeners
    softeners: list[tuple[str, float]] = []
    parameters: dict[str, Any] = {}
    who = f"agent {spec!r}"
    for option in options:
        parameter, equals, text = option.partition("=")
        if not equals:
            raise UserError(f"{who}: {option!r} must have the form parameter=value")
        if parameter in _SOFTENERS:
            strength = _SOFTENERS[parameter].checked_strength(value_of(text), f"{who}: ")
            softeners.append((parameter, strength))
        elif parameter in parameters:
            raise UserError(f"{who}: {parameter} is given twice")
        else:
            parameters[parameter] = option_of(kind, parameter, text, who)
            unsoftened.append(option)
    return _NamedLearner(
        _make_learner(spec, kind, parameters), softeners=softeners, name=spec, unsoftened="+".join(unsoftened)
    )


def uniform_policy(n_items: int) -> Policy:
    """Return the policy that recommends each of the ``n_items`` items with equal probability."""
    from recsim_mnar.log.table import Log

    return learner("random").fit(Log({}), n_items=n_items, seed=0)


def _make_learner(spec: str, agent: Any, parameters: Mapping[str, Any]) -> Learner:
    """Make a learner from the class or object that a name stands for.

    Args:
        spec: name as the user wrote it, for error messages.
        agent: class of learners or policies, or an object of such a class.
        parameters: arguments for the class.

    Raises:
        UserError: parameters for an object, unknown or missing parameters, or a class that cannot be instantiated.
    """
    if not inspect.isclass(agent):
        if parameters:
            raise UserError(f"agent {spec!r} is an object already: {next(iter(parameters))} has no effect")
        if _is_learner(agent):
            return as_learner(agent, name=spec)
        return ReadyLearner(agent)
    _check_parameters(spec, agent, parameters)
    _check_methods(spec, agent)
    if not _is_learner(agent):
        return ReadyLearner(agent, parameters=parameters)
    try:
        return as_learner(agent(**parameters), name=spec)
    except TypeError as error:
        raise UserError(f"agent {spec!r} cannot be made: {error}") from error
    except UserError as error:
        raise UserError(_error_text(spec, agent, error)) from error


def _error_text(spec: str, agent: Any, error: UserError) -> str:
    """Return the text of an error, changed so that it begins with the agent's name exactly once.

    Args:
        spec: full name that the user gave, e.g. ``item-knn+epsilon=0.1``.
        agent: class or learner, whose ``name`` the text may begin with.
        error: error that the agent raised.
    """
    text = str(error)
    names = [spec, spec.partition("+")[0], getattr(agent, "name", "")]
    if any(name and text.startswith(f"{name} ") for name in names) or text.startswith(f"agent {spec!r}"):
        return text  # the agent has named itself
    for name in names:
        if isinstance(name, str) and name:
            text = text.removeprefix(f"{name}: ")
    return f"agent {spec!r}: {text}"


class _NamedLearner(LearnerWrapper):
    """Fits the inner learner, softens its policy, and names the policy as the user named the agent.

    Attributes:
        inner: learner that fits the policy.
        softeners: (parameter name, strength) of each softener, innermost first.
        name: full name that the user gave; also the name of the softened policy.
        unsoftened: name without the softeners; the name of the policy before it is softened.
    """

    def __init__(self, inner: Learner, softeners: list[tuple[str, float]], name: str, unsoftened: str) -> None:
        self.inner = inner
        self.softeners = softeners
        self.name = name
        self.unsoftened = unsoftened

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`: fit, soften and name; errors begin with the name."""
        try:
            fitted = self.inner.fit(log, n_items=n_items, seed=seed)
        except UserError as error:
            raise UserError(_error_text(self.name, self.inner, error)) from error
        policy = policy_of_fit(self.name, fitted)
        policy.name = self.unsoftened
        for parameter, strength in self.softeners:
            policy = _SOFTENERS[parameter](policy, strength)
        policy.name = self.name
        return policy


def agent_class(name: str) -> Any:
    """Import the class of policies or learners, or the object of such a class, that a name stands for.

    Args:
        name: announced name, or ``package.module:Class``; without parameters and softeners.

    Raises:
        UserError: an unknown name (the message suggests the nearest), or something that is no agent.
    """
    announced_agents = announced(GROUP)
    if ":" in name:
        kind = imported("agent", name, wanted=_is_agent)
    elif name in announced_agents:
        kind = announced_agents[name].load()
    else:
        raise UserError(unknown("agent", name, announced_agents, "Class"))
    if not _is_agent(kind):
        raise UserError(
            f"agent {name!r} must have act(users, uniforms), a policy, or fit(log, *, n_items, seed), what makes one; "
            f"got {kind!r}"
        )
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UserError(f"agent {name!r} lacks {missing}: a policy must define act and probabilities, a learner fit")
    return kind


def _is_agent(thing: Any) -> bool:
    """Return True for a learner or policy, by its base class or by its methods ``act`` or ``fit``."""
    return (inspect.isclass(thing) and issubclass(thing, (Learner, Policy))) or role_of(thing) is not None


def _is_learner(agent: Any) -> bool:
    """Return True for a learner and False for a policy; ``agent`` is a class of agents or an object of one."""
    kind = type(agent)
    if inspect.isclass(agent):
        kind = agent
    if issubclass(kind, (Learner, Policy)):
        return issubclass(kind, Learner)
    return callable(getattr(agent, "fit", None))


def _check_parameters(spec: str, kind: type[Any], parameters: Mapping[str, Any]) -> None:
    """Check the parameters in an agent's name against the ``__init__`` of its class.

    Args:
        spec: name as the user wrote it, for error messages.
        kind: class of learners or policies; policies are given ``n_items`` besides the parameters.
        parameters: parameters in the name.

    Raises:
        UserError: a parameter that ``__init__`` does not take, or one that it requires and the name does not set.
    """
    accepted = dict(inspect.signature(kind).parameters)
    passed = set(parameters)
    if not _is_learner(kind):
        passed.add("n_items")
    if "n_items" in passed and not binds(kind, (), {"n_items": 1}, partial=True):
        raise UserError(f"agent {spec!r}: its __init__ must take n_items, the number of items")
    for name, parameter in accepted.items():
        is_variable = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and not is_variable and name not in passed:
            raise UserError(f"agent {spec!r}: its __init__ needs {name}: add +{name}=..., or give it a default")
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):  # **kwargs: takes any parameter
        return
    own_parameters = set(accepted) - {"n_items", "name"}
    for key in parameters:
        if key not in own_parameters:
            hint = nearest(key, own_parameters | set(_SOFTENERS))
            raise UserError(f"agent {spec!r}: no parameter {key!r}; {hint}")


def _check_methods(spec: str, kind: type[Any]) -> None:
    """Raise UserError if a method does not take the arguments that :class:`Policy` or :class:`Learner` passes."""
    base: type[Any] = Policy
    if _is_learner(kind):
        base = Learner
    for name, method_of_base in inspect.getmembers(base, inspect.isfunction):
        method = getattr(kind, name, None)
        if name.startswith("_") or method is method_of_base or not inspect.isfunction(method):
            continue
        bound = functools.partial(method, None)  # None stands for self: only the signature is checked
        check_method(name, bound, f"agent {spec!r}", method_of_base)
