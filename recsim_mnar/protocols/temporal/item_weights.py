"""Item weights that give back the items' probabilities of a reference time (de Myttenaere et al. 2015, section 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.profiles import Profiles

Floats = NDArray[np.float64]

BOUND = 12.0
"""Log weights stay within plus and minus this: an item absent at the reference time drives its own to -infinity."""

_RAREST = 1e-9
"""Smallest probability by which a log weight is scaled in the search."""

_STALLED = 1e-6
"""Largest gradient component with which a search that stopped early still counts as at its end."""


@dataclass(frozen=True)
class ItemWeights:
    """Weights w of P(i|u,w), and how they were found.

    Attributes:
        weights: (n_items,) 1 where not optimised.
        active: (p,) the items whose weights were optimised, the largest moves first.
        divergence: D(w), KL divergence of P_t1(.|w) from P_t0, in nats.
        divergence_before: D(1).
        details: counts that a person should know; JSON types.
    """

    weights: Floats
    active: NDArray[np.int64]
    divergence: float
    divergence_before: float
    details: dict[str, int | float]


class Divergence:
    """D(w) = sum over items of t0 of P_t0(i) log(P_t0(i) / P_t1(i|w)), and its gradient in log w.

    Args:
        now: profiles at t1.
        reference: (n_items,) P_t0.

    Raises:
        UserError: an item of the reference is in no profile now, which no weight can repair.
    """

    def __init__(self, now: Profiles, reference: Floats) -> None:
        self.reference = np.ascontiguousarray(reference, np.float64)
        self._starts, self._items = now.by_length()
        self._inverse = np.empty(now.n_users)
        self._scaled = np.empty(now.n_items)
        self.present = self.reference > 0.0
        lost = self.present & (now.n_holders() == 0)
        if lost.any():
            raise UserError(
                f"item {int(np.flatnonzero(lost)[0])} is held at the reference time and by no user at time "
                f"{now.time:g}: no weight can give it back its probability"
            )

    def marginals(self, weights: Floats) -> Floats:
        """P_t1(i|w), (n_items,)."""
        from recsim_mnar.protocols.temporal import _weights_kernel

        out = np.empty(len(weights))
        _weights_kernel.marginals(self._starts, self._items, weights, self._inverse, out)
        return out

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """D(w) and its gradient in log w, (n_items,): a pass over the pairs for P(i|w), and one for the gradient."""
        from recsim_mnar.protocols.temporal import _weights_kernel

        target = self.marginals(weights)
        slope = np.empty(len(weights))
        _weights_kernel.gradient(
            self._starts, self._items, weights, self._inverse, self._scaled, target, self.reference, slope
        )
        p0, p1 = self.reference[self.present], target[self.present]
        # The logarithm of a ratio near 1 by log1p: D is near 0 at the end, and its digits are differences.
        return float(-(p0 * np.log1p((p1 - p0) / p0)).sum()), slope


def most_moved(before: Floats, after: Floats, p: int) -> NDArray[np.int64]:
    """The p items of largest ``|P_t0(i) - P_t1(i)|``, largest first, equal ones by index."""
    return np.argsort(-np.abs(after - before), kind="stable")[:p]


def fit_item_weights(
    now: Profiles,
    reference: Floats,
    p: int | None = None,
    *,
    start: Floats | None = None,
    max_iterations: int = 500,
) -> ItemWeights:
    """Weights of the p items that moved most, the others 1, that minimise D(w); L-BFGS in log w from ``start``.

    D does not change where all weights are multiplied by one number; so the start is first divided by the geometric
    mean of its weights that stay (of all, by P_t0, where all are optimised), and with it the result does not depend on
    the scale of the start.

    Args:
        now: profiles at t1.
        reference: (n_items,) P_t0, as :meth:`Profiles.item_probabilities` gives it.
        p: how many weights; None for all items.
        start: (n_items,) positive; all 1 by default. Only the ratios to the weights that stay count.
        max_iterations: of L-BFGS.

    Raises:
        UserError: p is out of range, the start is not positive, or the search does not converge.
    """
    from scipy.optimize import minimize

    n_items = now.n_items
    reference = np.ascontiguousarray(reference, np.float64)
    if reference.shape != (n_items,):
        raise UserError(f"the reference's probabilities must have shape ({n_items},), got {reference.shape}")
    p = n_items if p is None else p
    if isinstance(p, bool) or int(p) != p or not 0 <= p <= n_items:
        raise UserError(f"p must be in 0..{n_items}, the number of items, got {p}")
    divergence = Divergence(now, reference)
    ones = np.ones(n_items)
    plain = divergence.marginals(ones)
    active = most_moved(reference, plain, int(p))
    before = divergence.value_and_gradient(ones)[0]
    counted = _counts(now, reference)
    if p == 0:
        return ItemWeights(ones, active, before, before, counted)
    # The second derivative in log w_i is near P(i): in units of 1 / sqrt(P(i)) rare items move as readily as others.
    unit = 1.0 / np.sqrt(np.maximum(np.maximum(reference, plain)[active], _RAREST))

    def objective(x: Floats) -> tuple[float, Floats]:
        weights = ones.copy()
        weights[active] = np.exp(x * unit)
        value, gradient = divergence.value_and_gradient(weights)
        return value, gradient[active] * unit

    # Search stops when neither value nor gradient can be improved in double precision, not by a tolerance of taste.
    found = minimize(
        objective,
        _start(start, active, reference) / unit,
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([-BOUND / unit, BOUND / unit], axis=1),
        options={"maxiter": max_iterations, "maxfun": 4 * max_iterations, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 20},
    )
    theta, slope = np.clip(found.x * unit, -BOUND, BOUND), found.jac / unit
    edge = BOUND - 1e-9
    free = ~(((theta <= -edge) & (slope > 0)) | ((theta >= edge) & (slope < 0)))
    largest = float(np.abs(slope[free]).max(initial=0.0))
    if not (np.isfinite(found.fun) and largest < _STALLED):
        raise UserError(
            f"the weights do not converge: after {found.nit} iterations the gradient is still {largest:.1e}; allow "
            "more with max_iterations, or lower p"
        )
    if p == n_items:
        theta = np.clip(theta - reference @ theta[np.argsort(active)], -2 * BOUND, 2 * BOUND)
    weights = ones.copy()
    weights[active] = np.exp(theta)
    counted["weights_at_a_bound"] = int((~free).sum())
    return ItemWeights(weights, active, float(found.fun), before, counted)


def _start(start: Floats | None, active: NDArray[np.int64], reference: Floats) -> Floats:
    """Log weights at which the search begins, free of the scale of ``start``."""
    if start is None:
        return np.zeros(len(active))
    given = np.asarray(start, np.float64)
    if given.shape != reference.shape or not (np.isfinite(given).all() and (given > 0).all()):
        raise UserError(f"the weights to start from must be {len(reference)} positive numbers")
    logs = np.log(given)
    stay = np.ones(len(given), bool)
    stay[active] = False
    scale = logs[stay].mean() if stay.any() else float(reference @ logs)
    # Rounded, because another scale may change the last bit of a logarithm, and the search would follow another path.
    return np.clip(np.round(logs[active] - scale, 9), -BOUND, BOUND)


def _counts(now: Profiles, reference: Floats) -> dict[str, int | float]:
    holders = now.n_holders()
    new = (reference == 0.0) & (holders > 0)
    return {
        "users": now.n_users,
        "pairs": now.n_pairs,
        "users_with_one_item": int((now.lengths() == 1).sum()),
        "items_new_since_reference": int(new.sum()),
        "pairs_with_new_items": int(holders[new].sum()),
    }
