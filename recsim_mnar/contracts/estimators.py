"""An estimator of one's own against what estimate_value asks of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.contracts.findings import BrokenRuleError, Finding, findings_of, number
from recsim_mnar.estimators.off_policy.registry import check_name
from recsim_mnar.estimators.off_policy.scores import Rows, Scores
from recsim_mnar.estimators.off_policy.value import estimate_value

SEED = 20190912
_ROWS = 20_000
_DEVIATIONS = 5.0
"""Standard errors by which an estimate may miss the truth: beyond it lie 6 of 10,000,000 logs."""


@dataclass
class EstimatorCase:
    """An estimator under test.

    Attributes:
        name: ``package.module:function``, or one that is announced.
        parameters: that it needs.
    """

    name: str
    parameters: dict[str, Any]

    def scores(self, rows: Rows) -> Scores:
        """What it makes of rows, checked."""
        return check_name(self.name).scores(rows, **self.parameters)


def check_estimator(name: str, **parameters: Any) -> list[Finding]:
    """The rules of :data:`RULES` that an estimator breaks; an empty list where it keeps them all.

    Args:
        name: ``package.module:function``, or an announced name.
        **parameters: that the function must be given.
    """
    return findings_of(RULES, EstimatorCase(name, parameters), needed=frozenset({"door"}))


# ----------------------------------------------------------------------------------------------------------- the rules


def door(case: EstimatorCase) -> None:
    """It is a function of the rows that gives one finite number a row."""
    rows = _rows()
    scores = case.scores(rows)
    for name in ("linear", "numerator", "denominator"):
        values = getattr(scores, name)
        if values is not None and np.shape(values) != rows.reward.shape:
            raise BrokenRuleError(f"{name} has shape {np.shape(values)}, the rows are {rows.reward.size:,}")


def inputs_are_left_alone(case: EstimatorCase) -> None:
    """It writes in no column that it is given."""
    rows = _rows()
    kept = {name: getattr(rows, name).copy() for name in ("reward", "propensity", "target", "weight")}
    case.scores(rows)
    for name, before in kept.items():
        if not np.array_equal(before, getattr(rows, name)):
            raise BrokenRuleError(f"rows.{name} is changed")


def same_twice(case: EstimatorCase) -> None:
    """The same rows give the same value."""
    first, again = case.scores(_rows()).value(), case.scores(_rows()).value()
    if first != again:
        raise BrokenRuleError(f"the same rows give {first:.6g} and then {again:.6g}")


def order_of_rows(case: EstimatorCase) -> None:
    """Rows in another order give the same value, but for what folds of a cross-fit may do: a tenth of its error."""
    rows = _rows()
    order = np.argsort(rng.uniforms(SEED, rng.Stream.PROTOCOL, 7, np.arange(rows.reward.size)))
    first, again = case.scores(rows).value(), case.scores(_ordered(rows, order)).value()
    error = float((rows.weight * rows.reward).std(ddof=1)) / math.sqrt(rows.reward.size)
    if not abs(first - again) <= 0.1 * error:
        raise BrokenRuleError(f"the rows give {first:.6g}, in another order {again:.6g}")


def on_policy_mean(case: EstimatorCase) -> None:
    """Of the policy that logged it estimates the mean reward, up to chance."""
    rows = _rows(on_policy=True)
    _near(case.scores(rows).value(), rows.reward, "the logging policy's own value", "its mean reward")


def known_value(case: EstimatorCase) -> None:
    """Of another policy it estimates the value that is known of these rows, up to chance: it is not biased here."""
    rows = _rows()
    _near(case.scores(rows).value(), rows.weight * rows.reward, "another policy's value", "its true value", TRUE_VALUE)


def as_estimate(case: EstimatorCase) -> None:
    """``estimate_value`` makes an estimate of it whose interval holds the value."""
    rows = _rows()
    e = estimate_value(rows.reward, rows.propensity, rows.target, estimator=case.name, **case.parameters)
    if not (math.isfinite(e.value) and e.low <= e.value <= e.high):
        raise BrokenRuleError(f"the interval {e.low:.6g} to {e.high:.6g} does not hold the value {e.value:.6g}")


RULES: dict[str, tuple[Callable[[EstimatorCase], None], str]] = {
    "door": (door, "define f(rows, *, ...), which returns one number a row"),
    "inputs_are_left_alone": (inputs_are_left_alone, "copy a column before you write in it"),
    "same_twice": (same_twice, "draw from an addressed stream (recsim_mnar.rng), or from nothing"),
    "order_of_rows": (order_of_rows, "give each row a score that does not depend on its place"),
    "on_policy_mean": (on_policy_mean, "with target = propensity let the scores' mean be the mean reward"),
    "known_value": (known_value, "say in its docstring that it is biased, and by what"),
    "as_estimate": (as_estimate, "return finite scores"),
}
"""Rules by name: the function that raises where one is broken, and what to do."""

# -------------------------------------------------------------------------------------------------------------- inside

_ACTIONS = 5
_LOGGING = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
_TARGET = np.array([0.1, 0.1, 0.2, 0.2, 0.4])
_MEANS = np.array([0.2, 0.1, 0.3, 0.15, 0.25])
TRUE_VALUE = float(_TARGET @ _MEANS)
"""Of the target policy on the rows that estimators are tried on."""


def _rows(*, on_policy: bool = False) -> Rows:
    """A log of five actions whose every mean reward is known."""
    drawn = rng.uniforms(SEED, rng.Stream.PROTOCOL, 5, np.arange(_ROWS))
    action = np.minimum(np.searchsorted(np.cumsum(_LOGGING), drawn, side="right"), _ACTIONS - 1)
    reward = (rng.uniforms(SEED, rng.Stream.PROTOCOL, 6, np.arange(_ROWS)) < _MEANS[action]).astype(np.float64)
    propensity = _LOGGING[action]
    target = propensity.copy() if on_policy else _TARGET[action]
    return Rows(reward, propensity, target, target / propensity, None, None, None, math.inf)


def _ordered(rows: Rows, order: Any) -> Rows:
    reward, propensity, target, weight = (c[order] for c in (rows.reward, rows.propensity, rows.target, rows.weight))
    return Rows(reward, propensity, target, weight, None, None, None, rows.clip)


def _near(value: float, scores: Any, what: str, than: str, true: float | None = None) -> None:
    true = float(scores.mean()) if true is None else true
    error = float(scores.std(ddof=1)) / math.sqrt(scores.size)
    if not abs(value - true) <= _DEVIATIONS * error:
        raise BrokenRuleError(
            f"it says {number(value)} of {what}, {than} is {number(true)}: {abs(value - true) / error:.3g} standard "
            f"errors of {scores.size:,} rows away"
        )
