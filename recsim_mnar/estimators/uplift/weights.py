"""What weighs a cell of exposures: inverse propensities, and what speaks against an estimator without them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Finding
from recsim_mnar.kernels.checks import refuse_first
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


def propensities_of(exposures: Exposures, rows: NDArray[np.int64]) -> Floats:
    """(n,) propensities of rows of the exposures."""
    return exposures.propensity_of(exposures.user[rows], exposures.item[rows], exposures.time[rows])


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


def heaviest(weights: Floats) -> float:
    """What one more purchase could weigh: the largest weight there is, at least 1."""
    return float(weights.max(initial=1.0))


def kish(weights: Floats) -> float:
    """Effective number of cells with these weights (Kish 1965)."""
    square = float((weights**2).sum())
    return float(weights.sum()) ** 2 / square if square > 0 else 0.0
