"""L-BFGS: limited-memory quasi-Newton minimisation with a strong Wolfe line search.

The two-loop recursion is algorithm 7.4 of Nocedal & Wright, Numerical Optimization (2006), the line search algorithms
3.5 and 3.6 with cubic interpolation. It replaces scipy's implementation for two reasons: its sums have the same bits on
every machine, and its vector algebra, which takes most of the time if the objective is cheap, is compiled.
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
"""Function (x, gradient) that returns the objective's value at x and writes its gradient to the second argument."""

_DECREASE = 1e-4
"""Constant c1 of the strong Wolfe conditions, for sufficient decrease of the value."""
_CURVATURE = 0.9
"""Constant c2 of the strong Wolfe conditions, for sufficient decrease of the slope's absolute value."""
_MEMORY = 10
"""Number of pairs of step and gradient change that approximate the inverse Hessian."""
_MOST_STEPS = 30
"""Largest number of evaluations in a line search."""


class NotConverged(UserWarning):
    """A fit stopped before its gradient was small; the message names iterations and gradient."""


@dataclass(frozen=True)
class Minimum:
    """Result of a minimisation.

    Attributes:
        x: (N,) last point.
        value: objective at ``x``.
        gradient: largest absolute entry of the gradient at ``x``.
        iterations: number of line searches.
        evaluations: number of evaluations of objective and gradient.
        converged: True if the gradient, or the decrease of the value, fell below its tolerance, or the value reached
            the target.
    """

    x: Vector
    value: float
    gradient: float
    iterations: int
    evaluations: int
    converged: bool


@dataclass
class _Point:
    """Objective along a search direction, after a step of length ``t``: its value and its slope, d value / d t."""

    t: float
    value: float
    slope: float


class _Pairs:
    """Latest pairs of step s and gradient change y, which approximate the inverse Hessian.

    The arrays hold one pair per row, in any order.

    Args:
        size: number of variables N.
        preconditioner: (N,) diagonal of the metric in which the first direction is steepest; None for ones.

    Attributes:
        order: rows in use, from the oldest pair to the newest.
    """

    def __init__(self, size: int, preconditioner: Vector | None) -> None:
        self._inverse_metric = np.ones(size)  # D^-1, the diagonal of the initial inverse Hessian up to _scale
        if preconditioner is not None:
            self._inverse_metric = 1.0 / preconditioner
        self._steps = np.empty((_MEMORY, size))  # s
        self._changes = np.empty((_MEMORY, size))  # y
        self._inverse_products = np.zeros(_MEMORY)  # 1 / s.y
        self._alpha = np.zeros(_MEMORY)  # working space of the two-loop recursion
        self._spare = np.empty(size)  # working space
        self.clear()

    def clear(self) -> None:
        """Drop all pairs; the next direction is then that of steepest descent."""
        self.order: list[int] = []
        self._scale = 1.0  # s.y / y.D^-1 y of the newest pair (Nocedal & Wright, equation 7.20)

    def direction(self, g: Vector, out: Vector) -> float:
        """Write the quasi-Newton direction -H g for the gradient ``g`` to ``out``, and return the slope along it."""
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
        """Return the length of the first step to try along the direction ``p``.

        It is 1, the quasi-Newton step. Without any pair the direction has an arbitrary length, so the step is at most 1
        in the sum of absolute changes.
        """
        if self.order:  # curvature pairs are stored
            return 1.0
        return min(1.0, 1.0 / float(np.abs(p).sum()))

    def add(self, x: Vector, x_new: Vector, g: Vector, g_new: Vector) -> None:
        """Store the pair of a step from ``x`` to ``x_new`` with gradients ``g`` and ``g_new``.

        The oldest pair is dropped if the memory is full. A pair whose curvature s.y is not clearly positive, or so
        small that dividing by it would overflow, is not stored.
        """
        from recsim_mnar.kernels import _vectors_kernel

        if len(self.order) == _MEMORY:
            row = self.order.pop(0)
        else:
            row = next(row for row in range(_MEMORY) if row not in self.order)
        product, square = _vectors_kernel.remember(
            x, x_new, g, g_new, self._steps[row], self._changes[row], self._inverse_metric, self._spare
        )
        # `remember` returns s.y and y.D^-1 y.
        if product > 1e-10 * square and min(product, square) > sys.float_info.min:
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
        objective: function that returns the value and writes the gradient, see :data:`Objective`.
        start: (N,) first point; not changed.
        preconditioner: (N,) positive numbers roughly proportional to the Hessian's diagonal; None for ones.
        max_iterations: largest number of line searches.
        gradient_tolerance: bound on the gradient's largest entry at which to stop, as a share of |first value|.
        value_tolerance: decrease of the value in one step at which to stop, as a share of |value|.
        target: value at which to stop.
        warn: True to warn if the minimisation stops without having converged.

    Warns:
        NotConverged: the limit of iterations was reached, or no step lowered the value, with a large gradient.
    """
    from recsim_mnar.kernels import _vectors_kernel

    x = np.array(start, dtype=np.float64)
    # Gradient at x, next point, gradient there, and search direction.
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
        if step is None:  # rounding has spoilt the pairs: restart with steepest descent
            if not pairs.order:  # steepest descent has failed too
                break
            pairs.clear()
            continue
        pairs.add(x, x_new, g, g_new)
        decrease = value - step.value
        value = step.value
        x, x_new = x_new, x  # the buffers of the old point are free for the next one
        g, g_new = g_new, g
        converged = decrease <= value_tolerance * abs(value) or bool(_vectors_kernel.largest(g) <= bound)
    gradient = float(_vectors_kernel.largest(g))
    minimum = Minimum(x, value, gradient, iterations, evaluations, converged or value <= target)
    if warn and not minimum.converged:
        _warn(minimum, bound)
    return minimum


def _warn(minimum: Minimum, bound: float) -> None:
    """Warn that the minimisation stopped with a gradient above its bound."""
    warnings.warn(
        f"L-BFGS did not converge: {minimum.iterations} iterations, largest gradient entry {minimum.gradient:.3g} "
        f"(bound {bound:.3g}); raise max_iterations or the penalty",
        NotConverged,
        stacklevel=3,  # the line that calls `minimise`
    )


def _search(
    objective: Objective, x: Vector, p: Vector, origin: _Point, first: float, x_new: Vector, g_new: Vector
) -> tuple[_Point | None, int]:
    """Find a step from ``x`` along the direction ``p`` that satisfies the strong Wolfe conditions.

    ``origin`` is the step of length 0, ``first`` the first length to try. The new point and its gradient are returned
    in the buffers ``x_new`` and ``g_new``. Once ``high`` is set, such a step lies between ``low``, the best step so
    far, and ``high`` (Nocedal & Wright, algorithms 3.5 and 3.6).

    Returns:
        step: the step, or None if no step lowers the value.
        n_evaluations: number of evaluations of the objective.
    """
    from recsim_mnar.kernels import _vectors_kernel

    n_evaluations = 0

    def evaluate(t: float) -> _Point:
        nonlocal n_evaluations
        n_evaluations += 1
        _vectors_kernel.move(x, t, p, x_new)
        value = objective(x_new, g_new)
        return _Point(t, value, float(_vectors_kernel.dot(g_new, p)))

    low = origin
    high = None  # no bracket yet
    previous = origin
    t = first
    for _ in range(_MOST_STEPS):
        here = evaluate(t)
        if not math.isfinite(here.value):  # no interpolation with an infinite value: halve the interval
            high = here
            t = 0.5 * (low.t + t)
            if t < 1e-20:  # no finite value near x either
                return None, n_evaluations
            continue
        if here.value > origin.value + _DECREASE * t * origin.slope or (here.value >= low.value and low is not origin):
            high = here
        elif abs(here.slope) <= -_CURVATURE * origin.slope:
            return here, n_evaluations
        else:
            end = high.t if high else math.inf
            if here.slope * (end - low.t) >= 0.0:  # the value rises towards the end: the minimum is behind
                high = low
            low = here
        if high is None:
            t = _extended(previous, here)
            previous = here
        elif abs(high.t - low.t) * -origin.slope <= 1e-16 * max(abs(origin.value), 1e-300):
            break  # the values within the interval differ by rounding only
        else:
            t = _between(low, high)
    if low is origin:
        return None, n_evaluations
    if here.t != low.t:
        low = evaluate(low.t)  # x_new and g_new hold the step evaluated last, which is another
    return low, n_evaluations


def _extended(previous: _Point, here: _Point) -> float:
    """Return the length of a longer step: the minimum of the cubic through both points, within 2 to 10 ``here.t``."""
    t = _cubic(previous, here)
    if not (math.isfinite(t) and t > here.t):
        t = 4.0 * here.t
    return min(max(t, 2.0 * here.t), 10.0 * here.t)


def _between(low: _Point, high: _Point) -> float:
    """Return the length of a step between two others: the cubic's minimum, at least a tenth of the way from either."""
    a = min(low.t, high.t)
    b = max(low.t, high.t)
    margin = 0.1 * (b - a)
    t = _cubic(low, high)
    if math.isfinite(t):
        return min(max(t, a + margin), b - margin)
    return 0.5 * (a + b)


def _cubic(p: _Point, q: _Point) -> float:
    """Return the step at the minimum of the cubic with the values and slopes of two points, NaN if it has none.

    Source: Nocedal & Wright, equation 3.59.
    """
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
