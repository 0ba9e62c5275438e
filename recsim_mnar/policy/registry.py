"""Names of agents: from ``item-knn+neighbours=50+epsilon=0.1`` or ``package.module:Class`` to a learner."""

from __future__ import annotations

import functools
import importlib
import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError, described, nearest
from recsim_mnar.policy.adapting import as_policy, binds, misfit, role_of
from recsim_mnar.policy.base import Learner, Policy
from recsim_mnar.policy.capabilities import LearnerWrapper
from recsim_mnar.policy.softening import EpsilonMixture, SoftmaxPolicy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

GROUP = "recsim_mnar.agents"
"""Entry-point group in which a package announces its agents."""

_SOFTENERS: dict[str, type[Policy]] = {"epsilon": EpsilonMixture, "temperature": SoftmaxPolicy}


@functools.cache
def _announced() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def agents() -> list[tuple[str, str]]:
    """Name and one-line description of every announced agent, by name."""
    return [(name, (inspect.getdoc(_class_of(name)) or "").partition("\n")[0]) for name in sorted(_announced())]


def learner(spec: str) -> Learner:
    """The learner that a name stands for.

    Args:
        spec: an announced name or ``package.module:Class`` (a :class:`Learner`, or a :class:`Policy` made by
            ``Class(n_items=...)``), followed by any of ``+epsilon=0.1``, ``+temperature=0.5`` (softened in the order
            given) and ``+parameter=value`` for the class's own parameters.

    Returns:
        A learner whose ``name``, and the name of the policies it fits, is ``spec``.

    Raises:
        UserError: unknown name, parameter or class, or a value that is refused.
    """
    name, *options = [part.strip() for part in spec.split("+")]
    kind = _class_of(name)
    named = [name]
    softeners: list[tuple[str, float]] = []
    parameters: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals:
            raise UserError(f"agent {spec!r}: {option!r} must have the form parameter=value")
        if key in _SOFTENERS:
            softeners.append((key, _softness(spec, key, text)))
        elif key in parameters:
            raise UserError(f"agent {spec!r}: {key} is given twice")
        else:
            parameters[key] = _value(text)
            named.append(option)
    _check_parameters(spec, kind, parameters)
    _check_methods(spec, kind)
    try:
        inner = kind(**parameters) if issubclass(kind, Learner) else _Untrained(kind, parameters)
    except TypeError as error:
        raise UserError(f"agent {spec!r} cannot be made: {error}") from error
    return _Named(inner, softeners, spec, "+".join(named))


class _Untrained(Learner):
    """Makes a policy that needs no training."""

    ignores_own_views = True

    def __init__(self, kind: type[Policy], parameters: dict[str, Any]) -> None:
        self.kind = kind
        self.parameters = parameters
        self.name = kind.name

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policy.Learner.fit`; the log is not read."""
        return self.kind(n_items=n_items, **self.parameters)  # type: ignore[call-arg]


class _Named(LearnerWrapper):
    """Fits the inner learner, softens its policy, and gives it the name that was asked for.

    Attributes:
        inner: the learner that is named.
        softeners: name and strength, innermost first.
        unsoftened: the name without them.
    """

    def __init__(self, inner: Learner, softeners: list[tuple[str, float]], name: str, unsoftened: str) -> None:
        self.inner = inner
        self.softeners = softeners
        self.name = name
        self.unsoftened = unsoftened

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policy.Learner.fit`."""
        try:
            fitted = self.inner.fit(log, n_items=n_items, seed=seed)
        except UserError as error:
            if str(error).startswith(f"{self.name} "):  # it says so itself
                raise
            raise UserError(f"agent {self.name!r}: {error}") from error
        policy = _checked_policy(self.name, fitted)
        policy.name = self.unsoftened
        for key, strength in self.softeners:
            policy = _SOFTENERS[key](policy, strength)  # type: ignore[call-arg]
        policy.name = self.name
        return policy


def _class_of(name: str) -> type[Any]:
    """The Learner or Policy class behind a name."""
    if ":" in name:
        kind = _own_class(name)
    elif name in _announced():
        kind = _announced()[name].load()
    else:
        raise UserError(
            f"unknown agent {name!r}; {nearest(name, _announced())} (an agent of your own: package.module:Class)"
        )
    if not (inspect.isclass(kind) and issubclass(kind, (Learner, Policy))):
        raise UserError(
            f"agent {name!r} must be a class derived from recsim_mnar.policy.Learner or Policy, got {kind!r}"
        )
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UserError(f"agent {name!r} lacks {missing}: a policy must define act and probabilities, a learner fit")
    return kind


def _own_class(name: str) -> Any:
    """What ``package.module:Class`` names."""
    path, _, attribute = name.partition(":")
    if not (path and attribute) or path.startswith("."):
        raise UserError(f"agent {name!r}: write it as package.module:Class")
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        raise UserError(f"agent {name!r}: module {path!r} cannot be imported: {error}") from error
    except SyntaxError as error:
        raise UserError(f"agent {name!r}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except Exception as error:  # a module's own code may raise anything
        raise UserError(f"agent {name!r}: importing {path!r} raised {described(error)}") from error
    if not hasattr(module, attribute):
        known = [n for n, v in vars(module).items() if inspect.isclass(v) and issubclass(v, (Learner, Policy))]
        hint = nearest(attribute, known) if known else "nor any other Policy or Learner"
        raise UserError(f"agent {name!r}: {path} has no {attribute!r}; {hint}")
    return getattr(module, attribute)


def _check_parameters(spec: str, kind: type[Any], parameters: dict[str, Any]) -> None:
    """Raise UserError for a parameter that the class has not, and for one that it needs and is not given."""
    accepted = dict(inspect.signature(kind).parameters)
    handed = set(parameters) if issubclass(kind, Learner) else {"n_items", *parameters}
    if "n_items" in handed and not binds(kind, (), {"n_items": 1}, partial=True):
        raise UserError(f"agent {spec!r}: its __init__ must take n_items, the number of items")
    for name, parameter in accepted.items():
        optional = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if not optional and name not in handed:
            raise UserError(f"agent {spec!r}: its __init__ needs {name}: add +{name}=..., or give it a default")
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):
        return
    known = {name for name in accepted if name not in {"n_items", "name"}}
    for key in parameters:
        if key not in known:
            hint = nearest(key, known | set(_SOFTENERS))
            raise UserError(f"agent {spec!r}: no parameter {key!r}; {hint}")


def _check_methods(spec: str, kind: type[Any]) -> None:
    """Raise UserError for a method that cannot be called as :class:`Policy` and :class:`Learner` say."""
    base = Learner if issubclass(kind, Learner) else Policy
    for name, wanted in inspect.getmembers(base, inspect.isfunction):
        own = getattr(kind, name)
        if name.startswith("_") or own is wanted or not inspect.isfunction(own):
            continue
        problem = misfit(name, functools.partial(own, None), wanted)
        if problem:
            raise UserError(f"agent {spec!r}: {problem}")


def _checked_policy(spec: str, policy: Any) -> Policy:
    """What ``fit`` returned as a full policy, or a UserError where it is none."""
    if inspect.isclass(policy) or role_of(policy) != "policy":
        got = f"the class {policy.__name__}: return an object of it" if inspect.isclass(policy) else repr(policy)
        raise UserError(f"agent {spec!r}: fit() must return a fitted policy, got {got}")
    return as_policy(policy, who=f"agent {spec!r}: its policy")


def _softness(spec: str, key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"agent {spec!r}: {key} must be a number, got {text!r}") from None


def _value(text: str) -> Any:
    """A parameter's value: true or false, an integer, a number, or else the text."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
