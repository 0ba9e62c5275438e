"""Rules for a user's own estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.estimators.from_columns import estimate_value
from recsim_mnar.estimators.scores import Rows, Scores, check_name
from recsim_mnar.estimators.sums import PolicySums, ScoreSums
from recsim_mnar.policies.answers import number
from recsim_mnar.testing.rules import Breach, Reasons, Rules, breaches_of, rule

SEED = 20190912
_ROWS = 20_000
"""Number of rows on which estimators are checked."""
_ROOM = 0.1
"""Largest error of an unbiased estimate, in standard errors; it allows for the folds of a cross-fit.

The rows have each combination of action and reward exactly as often as expected. An unbiased estimate that depends only
on these frequencies is therefore exact, and no rule can be broken by chance.
"""

RULES: Rules = {}


@dataclass
class EstimatorCase:
    """An estimator under test.

    Attributes:
        name: name of the estimator, ``package.module:function`` or that of an installed plugin.
        parameters: arguments of the function besides the rows, by name.
    """

    name: str
    parameters: Mapping[str, Any]

    def scores(self, rows: Rows) -> Scores:
        """Compute the estimator's score of each row, and check that scores are valid."""
        return check_name(self.name).scores(rows, **self.parameters)

    def value(self, rows: Rows) -> float:
        """Compute the estimate from rows."""
        return ScoreSums.of(self.scores(rows), rows, PolicySums.of_rows(rows)).value

    def near(self, rows: Rows, true: float, what: str, than: str) -> Reasons:
        """Yield a sentence if the estimate from rows differs from the expected one by more than :data:`_ROOM`.

        Args:
            rows: rows of a log.
            true: expected estimate.
            what: description of the rows or the policy, for the sentence.
            than: description of the expected estimate, for the sentence.
        """
        value = self.value(rows)
        scores = rows.weight * rows.reward
        error = float(scores.std(ddof=1)) / math.sqrt(scores.size)
        if not abs(value - true) <= _ROOM * error:
            yield (
                f"it estimates {number(value)} for {what}, {than} is {number(true)}: {abs(value - true) / error:.2g} "
                f"standard errors of {scores.size:,} rows away, where rows come exactly as often as expected"
            )


def check_estimator(name: str, **parameters: Any) -> list[Breach]:
    """Return the rules of :data:`RULES` that an estimator breaks, an empty list if it keeps them all.

    Args:
        name: ``package.module:function``, or an announced name.
        **parameters: arguments of the function besides the rows.
    """
    return breaches_of(RULES, EstimatorCase(name, parameters))


# ----------------------------------------------------------------------------------------------------------- the rules


@rule(RULES, "define f(rows, *, ...), which returns one number per row")
def door(case: EstimatorCase) -> Reasons:
    """Check that it is a function of the rows with one finite number per row."""
    rows = _rows()
    scores = case.scores(rows)
    for name in ("linear", "numerator", "denominator"):
        values = getattr(scores, name)
        if values is not None and np.shape(values) != rows.reward.shape:
            yield f"{name} has shape {np.shape(values)}, the rows are {rows.reward.size:,}"


@rule(RULES, "copy a column before you write in it")
def inputs_are_left_alone(case: EstimatorCase) -> Reasons:
    """Check that it changes no column of the rows."""
    rows = _rows()
    kept = {name: getattr(rows, name).copy() for name in ("reward", "propensity", "target", "weight")}
    case.scores(rows)
    for name, before in kept.items():
        if not np.array_equal(before, getattr(rows, name)):
            yield f"rows.{name} is changed"


@rule(RULES, "draw from an addressed stream (recsim_mnar.rng), or from nothing")
def same_twice(case: EstimatorCase) -> Reasons:
    """Check that the same rows give the same value."""
    first = case.value(_rows())
    again = case.value(_rows())
    if first != again:
        yield f"the same rows give {first:.6g} and then {again:.6g}"


@rule(RULES, "give each row a score that does not depend on its place")
def order_of_rows(case: EstimatorCase) -> Reasons:
    """Check that rows in another order give the same value, up to the folds of a cross-fit."""
    first = case.value(_rows())
    yield from case.near(_rows(order=8), first, "the rows in another order", "in this one it")


@rule(RULES, "with target = propensity let the scores' mean be the mean reward")
def on_policy_mean(case: EstimatorCase) -> Reasons:
    """Check that its estimate for the logging policy is the mean reward."""
    rows = _rows(on_policy=True)
    yield from case.near(rows, float(rows.reward.mean()), "the logging policy's own value", "its mean reward")


@rule(RULES, "say in its docstring that it is biased, and by what")
def known_value(case: EstimatorCase) -> Reasons:
    """Check that it estimates the known value of another policy, also if rewards are negative."""
    for least in (0.0, -1.0):
        rows = _rows(least=least)
        what = "another policy's value"
        if least:
            what += " where rewards are -1 or 0"
        yield from case.near(rows, TRUE_VALUE + least, what, "its true value")


@rule(RULES, "return finite scores")
def as_estimate(case: EstimatorCase) -> Reasons:
    """Check that the interval of ``estimate_value`` includes the estimate; with clipped weights, the true value.

    Clipped weights bias the estimate downwards, and their interval includes that bias.
    """
    rows = _rows()
    used = case.scores(rows).used  # weights in place of target / propensity; None if these are used
    estimate = estimate_value(rows.reward, rows.propensity, rows.target, estimator=case.name, **case.parameters)
    included = estimate.value
    which = "value"
    if used is not None and float(used.max()) < float(rows.weight.max()):  # weights were clipped
        included = TRUE_VALUE
        which = "true value"
    if not (math.isfinite(estimate.value) and estimate.low <= included <= estimate.high):
        yield (f"the interval {estimate.low:.6g} to {estimate.high:.6g} does not hold the {which} {included:.6g}")


# -------------------------------------------------------------------------------------------------------------- inside

_LOGGING = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
"""Probabilities of the five actions under the logging policy."""
_TARGET = np.array([0.0, 0.1, 0.2, 0.2, 0.5])
"""Probabilities of the five actions under the target policy."""
_MEANS = np.array([0.2, 0.1, 0.3, 0.15, 0.25])
"""Expected rewards of the five actions."""
TRUE_VALUE = float(_TARGET @ _MEANS)
"""Expected reward of the target policy on the rows on which estimators are checked, with rewards of 0 and 1."""


def _rows(*, on_policy: bool = False, least: float = 0.0, order: int = 7) -> Rows:
    """Make a log of five actions, each with each reward exactly as often as expected, in random order.

    Args:
        on_policy: the target policy is the logging policy.
        least: number added to all rewards, which are 0 and 1 without it.
        order: address of the random order; other numbers give the same rows in another order.
    """
    counts = np.stack([_LOGGING * (1.0 - _MEANS), _LOGGING * _MEANS], axis=1) * _ROWS  # by action and reward 0 or 1
    cell = np.repeat(np.arange(counts.size), counts.round().astype(np.int64).ravel())  # 2 action + reward
    shuffled = np.argsort(rng.uniforms(SEED, rng.Stream.PROTOCOL, order, np.arange(_ROWS)))
    action, reward = np.divmod(cell[shuffled], 2)
    propensity = _LOGGING[action]
    target = _TARGET[action]
    if on_policy:
        target = propensity.copy()
    return Rows(
        reward=reward + least,
        propensity=propensity,
        target=target,
        weight=target / propensity,
    )
