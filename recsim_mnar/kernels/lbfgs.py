"""L-BFGS: limited-memory quasi-Newton minimisation with a strong Wolfe line search.

Nocedal & Wright, Numerical Optimization (2006): the two-loop recursion is algorithm 7.4, the line search algorithms 3.5
and 3.6 with cubic interpolation. It stands in for scipy's because its sums have the same bits on every machine, and
because for cheap objectives the vector algebra, compiled here, is most of a fit.
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

_DECREASE = 1e-4
_CURVATURE = 0.9
"""Constants of the strong Wolfe conditions: sufficient decrease of the value, and of the slope's size."""
_MEMORY = 10
"""Pairs of step and gradient change that approximate the Hessian."""
_MOST_STEPS = 30


class NotConverged(UserWarning):
    """A fit stopped before its gradient was small; the message names iterations and gradient."""


@dataclass(frozen=True)
class Minimum:
    """Result of a minimisation.

    Attributes:
        x: the point.
        value: the objective there.
        gradient: largest absolute entry of the gradient there.
        iterations: number of steps.
        evaluations: number of evaluations of objective and gradient.
        converged: True if the gradient, or the decrease of the value, fell below its bound.
    """

    x: Vector
    value: float
    gradient: float
    iterations: int
    evaluations: int
    converged: bool


@dataclass
class _Point:
    """A step of length ``t`` along a direction, with the objective and its slope there."""

    t: float
    value: float
    slope: float


class _Pairs:
    """Pairs of step and gradient change, which approximate the inverse Hessian.

    Attributes:
        order: rows of the arrays in use, oldest first.
    """

    def __init__(self, size: int, preconditioner: Vector | None) -> None:
        self._inverse_metric = np.ones(size)
        if preconditioner is not None:
            self._inverse_metric = 1.0 / preconditioner
        self._steps = np.empty((_MEMORY, size))
        self._changes = np.empty((_MEMORY, size))
        self._inverse_products = np.zeros(_MEMORY)
        self._alpha = np.zeros(_MEMORY)
        self._spare = np.empty(size)
        self.clear()

    def clear(self) -> None:
        """Forget all pairs: the next direction is that of steepest descent."""
        self.order: list[int] = []
        self._scale = 1.0

    def direction(self, g: Vector, out: Vector) -> float:
        """Write the quasi-Newton direction for the gradient ``g`` to ``out``, and return the slope along it."""
        from recsim_mnar.kernels import _vectors_kernel

        _vectors_kernel.direction(
            g,
            self._steps,
            self._changes,
            self._inverse_products,
            np.array(self.order, np.int64),
            self._scale,
            self._inverse_metric,
            self._alpha,
            out,
        )
        return float(_vectors_kernel.dot(out, g))

    def first_length(self, p: Vector) -> float:
        """Return the length of the first step to try along ``p``."""
        if self.order:
            return 1.0
        return min(1.0, 1.0 / float(np.abs(p).sum()))

    def add(self, x: Vector, x_new: Vector, g: Vector, g_new: Vector) -> None:
        """Replace the oldest pair by the step from ``x`` to ``x_new``, unless its curvature is lost in rounding."""
        from recsim_mnar.kernels import _vectors_kernel

        if len(self.order) == _MEMORY:
            row = self.order.pop(0)
        else:
            row = next(row for row in range(_MEMORY) if row not in self.order)
        product, square = _vectors_kernel.remember(
            x, x_new, g, g_new, self._steps[row], self._changes[row], self._inverse_metric, self._spare
        )
        if product > 1e-10 * square and min(product, square) > sys.float_info.min:  # else they underflow
            self._inverse_products[row] = 1.0 / product
            self._scale = product / square
            self.order.append(row)


def minimise(
    objective: Objective,
    start: Vector,
    *,
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
        start: (N,) first point; not changed.
        preconditioner: (N,) positive, about the Hessian's diagonal up to a factor; ones if None.
        max_iterations: largest number of steps.
        gradient_tolerance: stop if no entry of the gradient is larger than this share of the |first value|.
        value_tolerance: stop if a step lowers the value by at most this share of |value|.
        target: stop if the value is at most this.
        warn: warn if the minimisation gives up.

    Warns:
        NotConverged: the limit of iterations was reached, or no step lowered the value, with a large gradient.
    """
    from recsim_mnar.kernels import _vectors_kernel

    x = np.array(start, dtype=np.float64)
    g, x_new, g_new, p = (np.empty(x.size) for _ in range(4))
    pairs = _Pairs(x.size, preconditioner)
    value = objective(x, g)
    evaluations = 1
    iterations = 0
    bound = gradient_tolerance * abs(value)
    converged = bool(_vectors_kernel.largest(g) <= bound)
    while not converged and iterations < max_iterations and value > target and math.isfinite(value):
        slope = pairs.direction(g, p)
        step = None
        if slope < 0.0:
            step, n_made = _search(objective, x, p, _Point(0.0, value, slope), pairs.first_length(p), x_new, g_new)
            evaluations += n_made
            iterations += 1
        if step is None:  # rounding has spoilt the pairs: steepest descent from here
            if not pairs.order:
                break
            pairs.clear()
            continue
        pairs.add(x, x_new, g, g_new)
        decrease = value - step.value
        value = step.value
        x, x_new = x_new, x
        g, g_new = g_new, g
        converged = decrease <= value_tolerance * abs(value) or bool(_vectors_kernel.largest(g) <= bound)
    gradient = float(_vectors_kernel.largest(g))
    minimum = Minimum(x, value, gradient, iterations, evaluations, converged or value <= target)
    if warn and not minimum.converged:
        _warn(minimum, bound)
    return minimum


def _warn(minimum: Minimum, bound: float) -> None:
    warnings.warn(
        f"L-BFGS did not converge: {minimum.iterations} iterations, largest gradient entry {minimum.gradient:.3g} "
        f"(bound {bound:.3g}); raise max_iterations or the penalty",
        NotConverged,
        stacklevel=3,
    )


def _search(
    objective: Objective, x: Vector, p: Vector, origin: _Point, first: float, x_new: Vector, g_new: Vector
) -> tuple[_Point | None, int]:
    """Find a step along ``p`` that satisfies the strong Wolfe conditions; its point and gradient are in the buffers.

    Returns:
        the step (None if none lowers the value) and the number of evaluations.
    """
    from recsim_mnar.kernels import _vectors_kernel

    n_made = 0

    def evaluate(t: float) -> _Point:
        nonlocal n_made
        n_made += 1
        _vectors_kernel.move(x, t, p, x_new)
        value = objective(x_new, g_new)
        return _Point(t, value, float(_vectors_kernel.dot(g_new, p)))

    low = origin
    high = None
    previous = origin
    t = first
    for _ in range(_MOST_STEPS):
        here = evaluate(t)
        if not math.isfinite(here.value):
            high = here
            t = 0.5 * (low.t + t)
            if t < 1e-20:
                return None, n_made
            continue
        if here.value > origin.value + _DECREASE * t * origin.slope or (here.value >= low.value and low is not origin):
            high = here
        elif abs(here.slope) <= -_CURVATURE * origin.slope:
            return here, n_made
        else:
            if here.slope * ((high.t if high else math.inf) - low.t) >= 0.0:
                high = low
            low = here
        if high is None:
            t = _extended(previous, here)
            previous = here
        elif abs(high.t - low.t) * -origin.slope <= 1e-16 * max(abs(origin.value), 1e-300):
            break
        else:
            t = _between(low, high)
    if low is origin:
        return None, n_made
    if here.t != low.t:
        low = evaluate(low.t)
    return low, n_made


def _extended(previous: _Point, here: _Point) -> float:
    """Return a longer step: the cubic's minimum within 2 to 10 times this one."""
    t = _cubic(previous, here)
    if not (math.isfinite(t) and t > here.t):
        t = 4.0 * here.t
    return min(max(t, 2.0 * here.t), 10.0 * here.t)


def _between(low: _Point, high: _Point) -> float:
    """Return the cubic's minimum between two steps, at least a tenth of their distance away from either."""
    a = min(low.t, high.t)
    b = max(low.t, high.t)
    margin = 0.1 * (b - a)
    t = _cubic(low, high)
    if math.isfinite(t):
        return min(max(t, a + margin), b - margin)
    return 0.5 * (a + b)


def _cubic(p: _Point, q: _Point) -> float:
    """Return the minimum of the cubic through two values and slopes (Nocedal & Wright, equation 3.59)."""
    if p.t == q.t or not math.isfinite(q.value) or not math.isfinite(p.value):
        return math.nan
    d1 = p.slope + q.slope - 3.0 * (p.value - q.value) / (p.t - q.t)
    square = d1 * d1 - p.slope * q.slope
    if square < 0.0:
        return math.nan
    d2 = math.copysign(math.sqrt(square), q.t - p.t)
    divisor = q.slope - p.slope + 2.0 * d2
    if divisor == 0.0:
        return math.nan
    return q.t - (q.t - p.t) * (q.slope + d2 - d1) / divisor
