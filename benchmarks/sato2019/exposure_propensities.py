"""Propensities of recommendation estimated from the recommendation log (Sato et al. 2019, section 5.1).

Two models, as the paper has them: the share of periods in which an item was recommended (Ta-Feng), and a logistic
regression on what happened in the last four periods (Dunnhumby). Each gives what
:meth:`recsim_mnar.purchases.exposures.Exposures.with_propensities` takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.purchases.exposures import Exposures

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def shares(
    exposures: Exposures, periods: Sequence[int] | Ints, *, present: Any = None, prior: float = 1.0
) -> NDArray[np.float32]:
    """Share of user-periods in which each item was recommended, as a (1, I, 1) table.

    (n_i + prior m) / (N + prior), where m is the mean share of all items: so that an item that was never, or always,
    recommended keeps a propensity inside (0, 1).

    Args:
        exposures: the log.
        periods: of the training.
        present: (U, n_periods) who was there; everybody by default. Recommended users were.
        prior: weight of the mean, in user-periods.

    Raises:
        UserError: nothing was recommended in these periods, or everything.
    """
    chosen = np.asarray(periods, np.int64)
    there = _present(exposures, present)
    rows = np.flatnonzero(np.isin(exposures.time, chosen) & exposures.recommended)
    total = float(there[:, chosen].sum())
    counts = np.bincount(exposures.item[rows], minlength=exposures.n_items)
    mean = counts.sum() / (total * exposures.n_items) if total else 0.0
    if not 0 < mean < 1:
        raise UserError("the share of recommended items is 0 or 1 in these periods: there is no propensity to estimate")
    if not prior > 0:
        raise UserError(f"prior must be above 0, got {prior:g}")
    table = (counts + prior * mean) / (total + prior)
    return np.asarray(table[None, :, None], np.float32)


# ------------------------------------------------------------------------------------------------- the last periods


@dataclass(frozen=True)
class Recent:
    """P(recommended) by how often the item was recommended to and bought by the user in the last periods.

    Attributes:
        table: (lags + 1, lags + 1) by [recommendations, purchases].
        coefficients: (3,) of the constant, recommendations and purchases.
        exposures: whose flags are counted.
        lags: how many periods back.
    """

    table: Floats
    coefficients: Floats
    exposures: Exposures
    lags: int

    def __call__(self, users: NDArray[Any], items: NDArray[Any], periods: NDArray[Any]) -> Floats:
        """Propensities of cells."""
        shown, bought = np.zeros(np.shape(users), np.int64), np.zeros(np.shape(users), np.int64)
        for lag in range(1, self.lags + 1):
            flags = self.exposures.flags(users, items, np.maximum(np.asarray(periods) - lag, 0))
            inside = np.asarray(periods) >= lag
            shown += flags[0] & inside
            bought += flags[1] & inside
        return self.table[shown, bought]


@dataclass(frozen=True)
class RecentOfItem:
    """P(recommended) by how often the item was recommended and bought in the last periods, over all users.

    Attributes:
        table: (P, I).
        coefficients: (3,) of the constant, and of recommendations and purchases a user present.
        lags: how many periods back.
    """

    table: Floats
    coefficients: Floats
    lags: int

    def __call__(self, users: NDArray[Any], items: NDArray[Any], periods: NDArray[Any]) -> Floats:
        """Propensities of cells; the same for all users."""
        return np.broadcast_to(self.table[periods, items], np.shape(users)).copy()


def recent(
    exposures: Exposures,
    periods: Sequence[int] | Ints,
    *,
    by: str = "user",
    lags: int = 4,
    present: Any = None,
    floor: float = 1e-3,
) -> Recent | RecentOfItem:
    """Logistic regression of a recommendation on the numbers of recommendations and purchases in the last periods.

    The paper does not say whose numbers: the user's own of the item, or the item's among all users, which is as likely
    where recommendations are said not to be personal.

    Args:
        by: ``user`` or ``item``, see above.
        exposures: the log; earlier periods are looked back to, whether they are among ``periods`` or not.
        periods: of the training; those without ``lags`` periods before them are left out.
        lags: how many periods back.
        present: (U, n_periods) who was there: others cannot be recommended to, and are left out of the fit.
        floor: propensities are kept within [floor, 1 - floor].

    Raises:
        UserError: no period has enough before it, nothing or everything was recommended, or an unknown ``by``.
    """
    if by not in ("user", "item"):
        raise UserError(f"by must be 'user' or 'item', got {by!r}")
    chosen = [int(t) for t in periods if t >= lags]
    if lags < 1 or not chosen:
        raise UserError(f"no training period has {lags} periods before it: choose later periods, or fewer lags")
    there = _present(exposures, present)
    if by == "item":
        return _recent_of_item(exposures, chosen, lags, there, floor)
    size = lags + 1
    total, positive = np.zeros(size * size), np.zeros(size * size)
    counts = np.zeros((2, exposures.n_users, exposures.n_items), np.uint8)
    window: list[tuple[Any, Any]] = []
    for t in range(max(chosen) + 1):
        now = dense(exposures, t)
        if t in set(chosen):
            who = there[:, t]
            code = counts[0, who].astype(np.int64) * size + counts[1, who]
            total += np.bincount(code.ravel(), minlength=size * size)
            positive += np.bincount(code[now[0][who]], minlength=size * size)
        window.append(now)
        counts += np.stack(now)
        if len(window) > lags:
            counts -= np.stack(window.pop(0))
    shown, bought = np.divmod(np.arange(size * size), size)
    design = np.stack([np.ones(size * size), shown, bought], axis=1).astype(np.float64)
    coefficients = logistic_of_groups(design, positive, total)
    table = _bounded(design @ coefficients, floor).reshape(size, size)
    return Recent(table, coefficients, exposures, lags)


def _recent_of_item(
    exposures: Exposures, periods: Sequence[int], lags: int, there: NDArray[np.bool_], floor: float
) -> RecentOfItem:
    shape = (exposures.n_periods, exposures.n_items)
    cell = exposures.time.astype(np.int64) * exposures.n_items + exposures.item
    flags = (exposures.recommended, exposures.purchased)
    shown, bought = (np.bincount(cell, flag, shape[0] * shape[1]).reshape(shape) for flag in flags)
    users = there.sum(axis=0).astype(np.float64)
    before = [np.concatenate([np.zeros((1, *x.shape[1:])), np.cumsum(x, axis=0)]) for x in (shown, bought, users)]
    first = np.maximum(np.arange(shape[0]) - lags, 0)
    numbers = [x[:-1] - x[first] for x in before]  # in the periods first .. t - 1
    rates = [x / np.maximum(numbers[2], 1.0)[:, None] for x in numbers[:2]]
    design = np.stack([np.ones(shape), *rates], axis=2)
    total = np.repeat(users[list(periods), None], shape[1], axis=1)
    coefficients = logistic_of_groups(
        design[list(periods)].reshape(-1, 3), np.minimum(shown[list(periods)], total).ravel(), total.ravel()
    )
    return RecentOfItem(_bounded(design @ coefficients, floor), coefficients, lags)


# ------------------------------------------------------------------------------------------------------------- shared


def logistic_of_groups(design: Floats, positive: Floats, total: Floats, *, ridge: float = 1e-6) -> Floats:
    """Logistic regression of grouped counts by Newton's method.

    Args:
        design: (G, k) features of each group, the first 1.
        positive: (G,) how many of the group are 1.
        total: (G,) of how many.
        ridge: penalty on the squared coefficients but the first, a row's worth.

    Returns:
        (k,) coefficients.

    Raises:
        UserError: all are 0, or all 1.
    """
    share = positive.sum() / total.sum() if total.sum() else 0.0
    if not 0 < share < 1:
        raise UserError("nothing was recommended in these periods, or everything: there is no propensity to estimate")
    penalty = np.full(design.shape[1], ridge * total.sum())
    penalty[0] = 0.0
    beta = np.zeros(design.shape[1])
    beta[0] = np.log(share / (1 - share))
    value = _deviance(design, positive, total, penalty, beta)
    for _ in range(100):
        p = 1.0 / (1.0 + np.exp(-(design @ beta)))
        gradient = design.T @ (positive - total * p) - penalty * beta
        curvature = (design * (total * p * (1 - p))[:, None]).T @ design + np.diag(penalty + 1e-12 * total.sum())
        step = np.linalg.solve(curvature, gradient)
        scale = 1.0
        while _deviance(design, positive, total, penalty, beta + scale * step) > value and scale > 1e-6:
            scale /= 2
        beta = beta + scale * step
        value = _deviance(design, positive, total, penalty, beta)
        if np.abs(scale * step).max() < 1e-10:
            break
    return beta


def _deviance(design: Floats, positive: Floats, total: Floats, penalty: Floats, beta: Floats) -> float:
    logits = design @ beta
    return float((total * np.logaddexp(0.0, logits) - positive * logits).sum() + 0.5 * (penalty * beta**2).sum())


def _bounded(logits: Floats, floor: float) -> Floats:
    if not 0 < floor < 0.5:
        raise UserError(f"floor must be in (0, 0.5), got {floor:g}")
    return np.clip(1.0 / (1.0 + np.exp(-logits)), floor, 1.0 - floor)


def dense(exposures: Exposures, time: int) -> tuple[Any, Any]:
    """Flags (U, I) of the recommended and of the purchased cells of one period."""
    rows = exposures.rows_of(time)
    recommended = np.zeros((exposures.n_users, exposures.n_items), bool)
    purchased = np.zeros_like(recommended)
    recommended[exposures.user[rows], exposures.item[rows]] = exposures.recommended[rows]
    purchased[exposures.user[rows], exposures.item[rows]] = exposures.purchased[rows]
    return recommended, purchased


def _present(exposures: Exposures, present: Any) -> NDArray[np.bool_]:
    shape = (exposures.n_users, exposures.n_periods)
    if present is None:
        return np.ones(shape, bool)
    flags = np.asarray(present, bool)
    if flags.shape != shape:
        raise UserError(f"present must have shape {shape}, got {flags.shape}")
    return flags
