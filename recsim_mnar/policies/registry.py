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
    fitting,
    of_fit,
    role_of,
)
from recsim_mnar.policies.softening import EpsilonMixture, Softened, SoftmaxPolicy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

GROUP = "recsim_mnar.agents"
"""Entry-point group in which a package announces its agents."""

_SOFTENERS: dict[str, type[Softened]] = {kind.called: kind for kind in (EpsilonMixture, SoftmaxPolicy)}


def agents() -> list[tuple[str, str]]:
    """Name and one-line description of every announced agent, by name."""
    rows = []
    for name in sorted(announced(GROUP)):
        text = inspect.getdoc(agent_class(name)) or ""
        rows.append((name, text.partition("\n")[0]))
    return rows


def learner(spec: str) -> Learner:
    """The learner of this name.

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
    named = [name]
    softeners: list[tuple[str, float]] = []
    parameters: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise UserError(f"agent {spec!r}: {option!r} must have the form parameter=value")
        if key in _SOFTENERS:
            softeners.append((key, _SOFTENERS[key].checked(value_of(text), f"agent {spec!r}: ")))
        elif key in parameters:
            raise UserError(f"agent {spec!r}: {key} is given twice")
        else:
            parameters[key] = option_of(kind, key, text, f"agent {spec!r}")
            named.append(option)
    return _Named(_made(spec, kind, parameters), softeners, spec, "+".join(named))


def uniform_policy(n_items: int) -> Policy:
    """Return the policy that shows all items equally often."""
    from recsim_mnar.log.table import Log

    return learner("random").fit(Log({}), n_items=n_items, seed=0)


def _made(spec: str, found: Any, parameters: Mapping[str, Any]) -> Learner:
    """Return a learner of the class or object of a name."""
    if not inspect.isclass(found):
        if parameters:
            raise UserError(f"agent {spec!r} is an object already: {next(iter(parameters))} has no effect")
        if _fits(found):
            return as_learner(found, name=spec)
        return ReadyLearner(found)
    _check_parameters(spec, found, parameters)
    _check_methods(spec, found)
    if not _fits(found):
        return ReadyLearner(found, parameters=parameters)
    try:
        return as_learner(found(**parameters), name=spec)
    except TypeError as error:
        raise UserError(f"agent {spec!r} cannot be made: {error}") from error
    except UserError as error:
        raise UserError(_of_agent(spec, found, error)) from error


def _of_agent(spec: str, agent: Any, error: UserError) -> str:
    """Return the text of an agent's error, with its name at the head once."""
    text = str(error)
    names = [spec, spec.partition("+")[0], getattr(agent, "name", "")]
    if any(name and text.startswith(f"{name} ") for name in names) or text.startswith(f"agent {spec!r}"):
        return text  # it says so itself
    for name in names:
        if isinstance(name, str) and name:
            text = text.removeprefix(f"{name}: ")
    return f"agent {spec!r}: {text}"


class _Named(LearnerWrapper):
    """Fits the inner learner, softens its policy, and gives it the name that was asked for.

    Attributes:
        inner: the learner that is named.
        softeners: name and strength, innermost first.
        name: the name asked for.
        unsoftened: the name without the softeners.
    """

    def __init__(self, inner: Learner, softeners: list[tuple[str, float]], name: str, unsoftened: str) -> None:
        self.inner = inner
        self.softeners = softeners
        self.name = name
        self.unsoftened = unsoftened

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`."""
        try:
            fitted = self.inner.fit(log, n_items=n_items, seed=seed)
        except UserError as error:
            raise UserError(_of_agent(self.name, self.inner, error)) from error
        policy = of_fit(self.name, fitted)
        policy.name = self.unsoftened
        for key, strength in self.softeners:
            policy = _SOFTENERS[key](policy, strength)
        policy.name = self.name
        return policy


def agent_class(name: str) -> Any:
    """Return the class of policies or learners of a name, or an object of one.

    Raises:
        UserError: an unknown name, with the nearest one; a class that is no agent.
    """
    announced_agents = announced(GROUP)
    if ":" in name:
        kind = imported("agent", name, wanted=_is_agent)
    elif name in announced_agents:
        kind = announced_agents[name].load()
    else:
        raise UserError(unknown("agent", name, announced_agents, "Class", methods=("act", "fit")))
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
    return (inspect.isclass(thing) and issubclass(thing, (Learner, Policy))) or role_of(thing) is not None


def _fits(found: Any) -> bool:
    """Return whether a class of agents, or an object of one, fits policies."""
    kind = found if inspect.isclass(found) else type(found)
    if issubclass(kind, (Learner, Policy)):
        return issubclass(kind, Learner)
    return callable(getattr(found, "fit", None))


def _check_parameters(spec: str, kind: type[Any], parameters: Mapping[str, Any]) -> None:
    """Raise UserError for a parameter that the class has not, and for one that it needs and is not given."""
    accepted = dict(inspect.signature(kind).parameters)
    handed = set(parameters)
    if not _fits(kind):
        handed.add("n_items")
    if "n_items" in handed and not binds(kind, (), {"n_items": 1}, partial=True):
        raise UserError(f"agent {spec!r}: its __init__ must take n_items, the number of items")
    for name, parameter in accepted.items():
        is_variable = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if parameter.default is parameter.empty and not is_variable and name not in handed:
            raise UserError(f"agent {spec!r}: its __init__ needs {name}: add +{name}=..., or give it a default")
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):
        return
    own_parameters = set(accepted) - {"n_items", "name"}
    for key in parameters:
        if key not in own_parameters:
            hint = nearest(key, own_parameters | set(_SOFTENERS))
            raise UserError(f"agent {spec!r}: no parameter {key!r}; {hint}")


def _check_methods(spec: str, kind: type[Any]) -> None:
    """Raise UserError for a method that cannot be called as :class:`Policy` and :class:`Learner` say."""
    base = Learner if _fits(kind) else Policy
    for name, method_of_base in inspect.getmembers(base, inspect.isfunction):
        method = getattr(kind, name, None)
        if name.startswith("_") or method is method_of_base or not inspect.isfunction(method):
            continue
        fitting(name, functools.partial(method, None), f"agent {spec!r}", method_of_base)
