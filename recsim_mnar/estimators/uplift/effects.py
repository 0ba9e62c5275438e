"""The average treatment effect of recommendations, over all users, items and periods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.uplift.influences import Floats, estimate_of, ratio_difference
from recsim_mnar.estimators.uplift.weights import (
    bounded,
    confounding,
    control_weights,
    heaviest,
    inverse_propensities,
    kish,
    propensities_of,
    propensity_range,
)
from recsim_mnar.estimators.verdict import Finding
from recsim_mnar.log.exposures import Exposures

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
    n_users = exposures.n_users
    cells = np.full(n_users, float(exposures.n_items * len(chosen)))
    weight, largest = np.ones(len(rows)), 1.0
    if estimator != "naive":
        exposures.need_propensities()
        weight = inverse_propensities(exposures, user, exposures.item[rows], exposures.time[rows], z, clip)
        largest = float(weight.max(initial=1.0))
    treated_sum: Floats = np.bincount(user, weight * (z & y), n_users).astype(np.float64)
    control_sum: Floats = np.bincount(user, weight * (~z & y), n_users).astype(np.float64)
    treated_size: Floats = cells
    control_size: Floats = cells
    if estimator != "ips":
        treated_size = np.bincount(user, weight * z, n_users).astype(np.float64)
        everyone = cells if estimator == "naive" else control_weights(exposures, chosen, clip)
        shown = weight if estimator == "naive" else 1.0 / bounded(1.0 - propensities_of(exposures, rows), clip)
        control_size = everyone - np.bincount(user, np.where(z, shown, 0.0), n_users)
    if treated_size.sum() == 0 or not np.any(z):
        raise UserError("nothing was recommended: there is no treated cell to compare with")
    if control_size.sum() <= 0:
        raise UserError("everything was recommended: there is no control cell to compare with")
    value, influence = ratio_difference(treated_sum, treated_size, control_sum, control_size)
    steps = heaviest(weight[z]) / treated_size.sum(), heaviest(weight[~z]) / control_size.sum()
    rates = treated_sum.sum() / treated_size.sum(), control_sum.sum() / control_size.sum()
    findings: list[Finding] = []
    if estimator == "naive":
        spread = propensity_range(exposures, user, exposures.item[rows], exposures.time[rows])
        findings = confounding(spread, "the naive effect", "use ips")
    return estimate_of(
        value, influence, treated_sum + control_sum > 0, level, f"ate_{estimator}",
        n=exposures.n_items * len(chosen) * n_users,
        ess=kish(weight[z]),
        diagnostics={"recommended": int(z.sum()), "purchased": int(y.sum()), "largest_weight": largest},
        steps=steps, scale=max(rates), findings=findings,
    )  # fmt: skip
