"""The average treatment effect of recommendations, and how each user's share of an estimate makes its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals.limits import Spread, degrees_of_freedom, small_sample_factor
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Estimate, Finding, Verdict, few_users, scaled
from recsim_mnar.kernels.checks import level_of, refuse_first
from recsim_mnar.log.exposures import Exposures

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_CELLS = 1 << 23


def inverse_propensities(exposures: Exposures, users: Any, items: Any, times: Any, z: Flags, clip: float) -> Floats:
    """1/e where recommended, 1/(1 - e) where not.

    Raises:
        UserError: one of them is infinite, and ``clip`` is 0.
    """
    e = exposures.propensity_of(users, items, times)
    p = bounded(np.where(z, e, 1.0 - e), clip)
    _check_cells(~(p > 0), users, items, times, e, z)
    return 1.0 / p


def control_weights(exposures: Exposures, periods: NDArray[np.int64], clip: float) -> Floats:
    """(U,) sum of 1 / (1 - e) over all cells of the periods, infinite cells excepted (they cannot be unrecommended)."""
    table = exposures.propensities
    constant = isinstance(table, np.ndarray) and table.shape[2] == 1
    total = np.zeros(exposures.n_users)
    step = max(1, _CELLS // exposures.n_items)
    items = np.arange(exposures.n_items)
    for t in periods[:1] if constant else periods:
        for first in range(0, exposures.n_users, step):
            users = np.arange(first, min(first + step, exposures.n_users))
            e = exposures.propensity_of(users[:, None], items, t)
            rest = bounded(1.0 - e, clip)
            if not np.all(rest > 0):
                shown, _bought = exposures.flags(users[:, None], items, t)
                _check_cells(~shown & ~(rest > 0), users[:, None], items, t, e, shown)
                rest = np.where(rest > 0, rest, 1.0)
            total[users] += (1.0 / rest).sum(axis=1)
    return total * len(periods) if constant else total


def bounded(p: Floats, clip: float) -> Floats:
    """Probabilities raised to at least ``clip``.

    Raises:
        UserError: ``clip`` is not in [0, 1).
    """
    if not 0.0 <= clip < 1.0:
        raise UserError(f"clip must lie in [0, 1), got {clip}")
    return np.maximum(p, clip)


def _check_cells(bad: Flags, users: Any, items: Any, times: Any, e: Any, shown: Any) -> None:
    """Raise UserError for the first cell whose inverse propensity there is none; all broadcast to ``bad``."""

    def says(*at: int) -> str:
        u, i, t, p, flag = (np.broadcast_to(x, bad.shape)[at] for x in (users, items, times, e, shown))
        what = f"{p:g} on a cell that was {'' if flag else 'not '}recommended"
        return f"user {u}, item {i}, period {t}: the propensity is {what}; clip it, or leave it out"

    refuse_first(bad, says)


def propensity_range(exposures: Exposures, users: Any, items: Any, times: Any) -> tuple[float, float] | None:
    """Least and largest propensity of cells; None where they are unknown."""
    if exposures.propensities is None:
        return None
    e = exposures.propensity_of(users, items, times)
    return (float(np.min(e)), float(np.max(e))) if np.size(e) else (0.0, 0.0)


def confounding(spread: tuple[float, float] | None, what: str, action: str) -> list[Finding]:
    """Findings of an estimator that is unbiased only where recommendations are random."""
    if spread is None:
        message = f"{what} holds only where recommendations are random, and the propensities are not known"
        return [Finding("confounding_unknown", CAUTION, float("nan"), message, "give the propensities")]
    low, high = spread
    if high - low <= 1e-6 * max(high, 1e-6):
        return []
    message = f"propensities vary from {low:.3g} to {high:.3g}, and {what} takes that for an effect"
    return [Finding("confounded", GRAVE, high - low, message, action)]


def kish(weights: Floats) -> float:
    """Effective number of cells with these weights (Kish 1965)."""
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square > 0 else 0.0


LEAST_ESS, FEW_ESS = 100.0, 30.0
WIDE, USELESS = 0.4, 1.0
"""Half widths over the larger of the effect and the purchase rates it is a difference of, as for off-policy values."""
_METHOD = "Student on sums by user, with the heaviest step"


def ratio_difference(a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[float, Floats]:
    """Sum a / sum b - sum c / sum d over users, and what each user adds to its error (delta method)."""
    treated, control = a.sum() / b.sum(), c.sum() / d.sum()
    return float(treated - control), (a - treated * b) / b.sum() - (c - control * d) / d.sum()


def estimate_of(
    value: float, influence: Floats, rewarded: Flags, level: float, name: str, *, n: int, ess: float,
    diagnostics: dict[str, Any], steps: tuple[float, float] = (0.0, 0.0), scale: float | None = None,
    findings: Sequence[Finding] = (),
) -> Estimate:  # fmt: skip
    """The estimate of user influences.

    Args:
        value: it.
        influence: (U,) what each user adds to its error.
        rewarded: (U,) users with a purchase.
        level: nominal coverage.
        name: of the estimator.
        n: cells.
        ess: effective cells.
        diagnostics: to keep.
        steps: what one more purchase could add, and take away.
        scale: what the width is measured by beside the value; None where the width says nothing of trust.
        findings: of the estimator.
    """
    level, users, square = level_of(level), len(influence), influence**2
    second, fourth = float(square.sum()), float((square**2).sum())
    degrees = degrees_of_freedom(users, int(rewarded.sum()), second, fourth)
    variance = second * small_sample_factor(users, level, degrees) if users > 1 else math.inf
    third = float((square * influence).sum()) / second if second > 0.0 else 0.0
    less, more = Spread(variance, third, *steps).reaches(level) if users > 1 else (math.inf, math.inf)
    found = [*few_users(users), *findings]

    def add(code: str, severity: float, number: float, message: str) -> None:
        found.append(Finding(code, severity, number, message, "use more users"))

    if ess < n * (1.0 - 1e-9):
        add(
            "effective_sample",
            scaled(ess, LEAST_ESS, FEW_ESS),
            ess,
            f"the effective sample is {ess:.3g} of {n:,} cells",
        )
    if scale is not None:
        against = max(scale, abs(value))
        ratio = (less + more) / 2.0 / against if against > 0.0 else math.inf
        message = f"the interval reaches {100 * ratio:.3g} % of the purchase rate to either side"
        add("wide_interval", scaled(ratio, WIDE, USELESS), ratio, message)
    if fourth > 0.0:
        resting = second**2 / fourth
        message = f"the spread rests on the equivalent of {resting:.2g} equal users, so its own size is uncertain"
        add("uneven_users", min(scaled(resting, 10.0, 2.0), CAUTION), resting, message)
    details = {**diagnostics, "standard_error": float(np.sqrt(second))}
    return Estimate(value, value - less, value + more, level, _METHOD, n, ess, details, Verdict.of(found), name)


EFFECTS = ("naive", "ips", "snips")


def average_effect(
    exposures: Exposures,
    estimator: str = "ips",
    *,
    periods: Sequence[int] | None = None,
    clip: float = 0.0,
    level: float = 0.95,
) -> Estimate:
    """E[Y^T - Y^C] over all users, items and periods.

    Args:
        exposures: with propensities, except for ``naive``.
        estimator: ``naive`` (equation 1, unbiased where recommendations are random), ``ips`` (2) or ``snips`` (3).
        periods: which; all by default.
        clip: raises e, and 1 - e, to at least this: less variance for some bias.
        level: nominal coverage of the interval, whose independent parts are users.

    Raises:
        UserError: unknown estimator, no propensities, a propensity of 0 or 1 where its inverse is needed, nothing
            recommended or everything.
    """
    if estimator not in EFFECTS:
        raise UserError(f"unknown effect estimator {estimator!r}; {nearest(estimator, EFFECTS)}")
    chosen = np.arange(exposures.n_periods) if periods is None else np.asarray(periods, np.int64)
    rows = np.flatnonzero(np.isin(exposures.time, chosen))
    user, z, y = exposures.user[rows], exposures.recommended[rows], exposures.purchased[rows]
    n_users, cells = exposures.n_users, (user, exposures.item[rows], exposures.time[rows])
    weight, largest = np.ones(len(rows)), 1.0
    if estimator != "naive":
        exposures.need_propensities()
        weight = inverse_propensities(exposures, *cells, z, clip)
        largest = float(weight.max(initial=1.0))

    def by_user(values: Any) -> Floats:
        return np.bincount(user, values, n_users).astype(np.float64)

    treated_sum, control_sum = by_user(weight * (z & y)), by_user(weight * (~z & y))
    treated_size = control_size = np.full(n_users, float(exposures.n_items * len(chosen)))
    if estimator != "ips":
        everyone = control_size if estimator == "naive" else control_weights(exposures, chosen, clip)
        shown = weight if estimator == "naive" else 1.0 / bounded(1.0 - exposures.propensity_of(*cells), clip)
        treated_size, control_size = by_user(weight * z), everyone - by_user(np.where(z, shown, 0.0))
    if treated_size.sum() == 0 or not np.any(z):
        raise UserError("nothing was recommended: there is no treated cell to compare with")
    if control_size.sum() <= 0:
        raise UserError("everything was recommended: there is no control cell to compare with")
    value, influence = ratio_difference(treated_sum, treated_size, control_sum, control_size)
    # What one more purchase could weigh: the largest weight there is, at least 1.
    steps = tuple(
        w.max(initial=1.0) / size.sum() for w, size in ((weight[z], treated_size), (weight[~z], control_size))
    )
    rates = treated_sum.sum() / treated_size.sum(), control_sum.sum() / control_size.sum()
    findings: list[Finding] = []
    if estimator == "naive":
        findings = confounding(propensity_range(exposures, *cells), "the naive effect", "use ips")
    return estimate_of(
        value, influence, treated_sum + control_sum > 0, level, f"ate_{estimator}",
        n=exposures.n_items * len(chosen) * n_users,
        ess=kish(weight[z]),
        diagnostics={"recommended": int(z.sum()), "purchased": int(y.sum()), "largest_weight": largest},
        steps=steps, scale=max(rates), findings=findings,
    )  # fmt: skip
