"""Names of agents: from ``item-knn+neighbours=50+epsilon=0.1`` or ``package.module:Class`` to a learner."""

from __future__ import annotations

import functools
import importlib
import inspect
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.policy import EpsilonMixture, Learner, Policy, SoftmaxPolicy

if TYPE_CHECKING:
    from recsim_mnar.log import Log

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
    _check_parameters(spec, kind, parameters)
    try:
        inner = kind(**parameters) if issubclass(kind, Learner) else _Untrained(kind, parameters)
    except TypeError as error:
        raise UserError(f"agent {spec!r} cannot be made: {error}") from None
    return _Named(inner, softeners, spec)


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


class _Named(Learner):
    """Fits the inner learner, softens its policy, and gives it the name that was asked for.

    Attributes:
        inner: the learner that is named.
        softeners: name and strength, innermost first.
    """

    def __init__(self, inner: Learner, softeners: list[tuple[str, float]], name: str) -> None:
        self.inner = inner
        self.softeners = softeners
        self.name = name

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policy.Learner.fit`."""
        policy = self.inner.fit(log, n_items=n_items, seed=seed)
        for key, strength in self.softeners:
            policy = _SOFTENERS[key](policy, strength)  # type: ignore[call-arg]
        policy.name = self.name
        return policy


def _class_of(name: str) -> type[Any]:
    """The Learner or Policy class behind a name."""
    module, colon, attribute = name.partition(":")
    if colon:
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            raise UserError(f"agent {name!r}: module {module!r} cannot be imported: {error}") from None
        except SyntaxError as error:
            raise UserError(f"agent {name!r}: {error.filename}, line {error.lineno}: {error.msg}") from None
        except AttributeError:
            known = [n for n, v in vars(importlib.import_module(module)).items() if inspect.isclass(v)]
            raise UserError(f"agent {name!r}: {module} has no {attribute!r}; {nearest(attribute, known)}") from None
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


def _check_parameters(spec: str, kind: type[Any], parameters: dict[str, Any]) -> None:
    accepted = dict(inspect.signature(kind).parameters)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values()):
        return
    known = {name for name in accepted if name not in {"n_items", "name"}}
    for key in parameters:
        if key not in known:
            hint = nearest(key, known | set(_SOFTENERS))
            raise UserError(f"agent {spec!r}: no parameter {key!r}; {hint}")


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
