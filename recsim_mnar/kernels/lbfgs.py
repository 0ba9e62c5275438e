"""L-BFGS: limited-memory quasi-Newton minimisation with a strong Wolfe line search.

Nocedal & Wright, Numerical Optimization (2006): the two-loop recursion is algorithm 7.4, the line search algorithms 3.5
and 3.6 with cubic interpolation. A jitted recursion, because for cheap objectives the vector algebra is most of a fit.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Objective = Callable[[Vector, Vector], float]
"""Fills its second argument with the gradient at the first and returns the value."""

_DECREASE, _CURVATURE = 1e-4, 0.9


class NotConverged(UserWarning):
    """A fit stopped before its gradient was small; the message names iterations and gradient."""


@dataclass(frozen=True)
class Minimum:
    """Result of a minimisation.

    Attributes:
        x: the point.
        value: of the objective there.
        gradient: largest absolute entry of the gradient there.
        iterations: made.
        evaluations: of objective and gradient.
        converged: whether the gradient or the decrease of the value, each as a share of a value, fell below its bound.
    """

    x: Vector
    value: float
    gradient: float
    iterations: int
    evaluations: int
    converged: bool


@dataclass
class _Point:
    t: float
    value: float
    slope: float


def minimise(
    objective: Objective,
    start: Vector,
    *,
    memory: int = 10,
    preconditioner: Vector | None = None,
    max_iterations: int = 500,
    gradient_tolerance: float = 1e-6,
    value_tolerance: float = 1e-9,
    target: float = -math.inf,
    warn: bool = True,
) -> Minimum:
    """Minimise a smooth function.

    Args:
        objective: value and gradient.
        start: (N,) where to begin; not changed.
        memory: pairs of step and gradient change that are kept.
        preconditioner: (N,) positive: about the Hessian's diagonal, up to a factor. The first guess of its inverse is
            then diagonal instead of a multiple of the identity: as if each variable were scaled by the root of its
            entry.
        max_iterations: after which it gives up.
        gradient_tolerance: stop where no entry of the gradient is larger than this share of the |first value|.
        value_tolerance: stop where an iteration lowers the value by at most this share of |value|.
        target: stop where the value is at most this.
        warn: say so where it gives up.

    Warns:
        NotConverged: the limit of iterations was reached, or no step lowered the value, with a large gradient.
    """
    from recsim_mnar.kernels import _vectors_kernel as k

    x = np.array(start, dtype=np.float64)
    n = x.size
    if preconditioner is None:
        inverse_metric = np.ones(n)
    else:
        inverse_metric = 1.0 / preconditioner
    spare = np.empty(n)
    g, x_new, g_new, p = (np.empty(n) for _ in range(4))
    steps, changes = np.empty((memory, n)), np.empty((memory, n))
    inverse, alpha = np.zeros(memory), np.zeros(memory)
    kept: list[int] = []
    scale = 1.0
    value = objective(x, g)
    evaluations, iterations = 1, 0
    bound = gradient_tolerance * abs(value)
    converged = bool(k.largest(g) <= bound)
    while not converged and iterations < max_iterations and value > target and math.isfinite(value):
        k.direction(g, steps, changes, inverse, np.array(kept, np.int64), scale, inverse_metric, alpha, p)
        slope = float(k.dot(p, g))
        if not slope < 0.0:
            # Rounding has spoilt the curvature pairs: steepest descent from here.
            if not kept:
                break
            kept, scale = [], 1.0
            continue
        first = 1.0 if kept else min(1.0, 1.0 / float(np.abs(p).sum()))
        step, made = _search(objective, x, p, _Point(0.0, value, slope), first, x_new, g_new)
        evaluations += made
        iterations += 1
        if step is None:
            if not kept:
                break
            kept, scale = [], 1.0
            continue
        if len(kept) == memory:
            row = kept.pop(0)
        else:
            row = next(j for j in range(memory) if j not in kept)
        product, square = k.remember(x, x_new, g, g_new, steps[row], changes[row], inverse_metric, spare)
        if product > 1e-10 * square and min(product, square) > sys.float_info.min:  # else they underflow
            inverse[row], scale = 1.0 / product, product / square
            kept.append(row)
        decrease = value - step.value
        x, x_new, g, g_new, value = x_new, x, g_new, g, step.value
        small = decrease <= value_tolerance * abs(value)
        converged = small or bool(k.largest(g) <= bound)
    gradient = float(k.largest(g))
    converged = converged or value <= target
    if warn and not converged:
        warnings.warn(
            f"L-BFGS did not converge: {iterations} iterations, largest gradient entry {gradient:.3g} "
            f"(bound {bound:.3g}); raise max_iterations or the penalty",
            NotConverged,
            stacklevel=2,
        )
    return Minimum(x, value, gradient, iterations, evaluations, converged)


def _search(
    objective: Objective, x: Vector, p: Vector, origin: _Point, first: float, x_new: Vector, g_new: Vector
) -> tuple[_Point | None, int]:
    """A step along ``p`` that satisfies the strong Wolfe conditions, its point and gradient left in the buffers.

    Returns:
        the step (None where none lowers the value) and the number of evaluations.
    """
    from recsim_mnar.kernels import _vectors_kernel as k

    made = 0

    def at(t: float) -> _Point:
        nonlocal made
        made += 1
        k.move(x, t, p, x_new)
        value = objective(x_new, g_new)
        return _Point(t, value, float(k.dot(g_new, p)))

    low = origin
    high = None
    t = first
    previous = origin
    for _ in range(30):
        here = at(t)
        if not math.isfinite(here.value):
            high = here
            t = 0.5 * (low.t + t)
            if t < 1e-20:
                return None, made
            continue
        if here.value > origin.value + _DECREASE * t * origin.slope or (here.value >= low.value and low is not origin):
            high = here
        elif abs(here.slope) <= -_CURVATURE * origin.slope:
            return here, made
        elif here.slope * ((high.t if high else math.inf) - low.t) >= 0.0:
            high = low
            low = here
        else:
            low = here
        if high is None:
            t = _extended(previous, here)
            previous = here
        else:
            width = abs(high.t - low.t)
            if width * -origin.slope <= 1e-16 * max(abs(origin.value), 1e-300):
                break
            t = _between(low, high)
    if low is origin:
        return None, made
    return (here if here.t == low.t else at(low.t)), made


def _extended(previous: _Point, here: _Point) -> float:
    """A longer step: the cubic's minimum within 2 to 10 times this one."""
    t = _cubic(previous, here)
    return min(max(t if math.isfinite(t) and t > here.t else 4.0 * here.t, 2.0 * here.t), 10.0 * here.t)


def _between(low: _Point, high: _Point) -> float:
    """The cubic's minimum between two steps, kept a tenth of their distance away from either."""
    t = _cubic(low, high)
    a = min(low.t, high.t)
    b = max(low.t, high.t)
    margin = 0.1 * (b - a)
    if math.isfinite(t):
        return min(max(t, a + margin), b - margin)
    return 0.5 * (a + b)


def _cubic(p: _Point, q: _Point) -> float:
    """Minimum of the cubic through two values and slopes (Nocedal & Wright, equation 3.59)."""
    if p.t == q.t or not math.isfinite(q.value) or not math.isfinite(p.value):
        return math.nan
    d1 = p.slope + q.slope - 3.0 * (p.value - q.value) / (p.t - q.t)
    square = d1 * d1 - p.slope * q.slope
    if square < 0.0:
        return math.nan
    d2 = math.copysign(math.sqrt(square), q.t - p.t)
    divisor = q.slope - p.slope + 2.0 * d2
    if divisor != 0.0:
        return q.t - (q.t - p.t) * (q.slope + d2 - d1) / divisor
    return math.nan
