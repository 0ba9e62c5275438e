"""The average treatment effect E[Y^T - Y^C] of all cells (Sato et al. 2019): naive (equation 1), IPS (2), SNIPS (3).

In equation 3 as printed the control part has 1/e; 1/(1 - e), as in equation 5, is meant and used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.verdict import Estimate, Finding
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.uplift import (
    Floats,
    bounded,
    check_cells,
    confounding,
    estimate_of,
    inverse_propensities,
    kish,
    propensity_range,
    ratio_difference,
)

EFFECTS = ("naive", "ips", "snips")
_CELLS = 1 << 23


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
                check_cells(~shown & ~(rest > 0), users[:, None], items, t, e, shown)
                rest = np.where(rest > 0, rest, 1.0)
            total[users] += (1.0 / rest).sum(axis=1)
    return total * len(periods) if constant else total


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
