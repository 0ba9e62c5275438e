"""Mixtures of policies that make the largest of several variances least: a convex problem with a certificate.

A mixture has weights w on the simplex, cost c w, and for target t the second moment S_t(w) = sum_g b_tg / (A_g w): a
sum of inverses of what is linear in w, hence convex. Both problems here are solved by a logarithmic barrier and
Newton's method (Boyd & Vandenberghe 2004, section 11.3), and each says how far from the best it can be at most: S_t
lies above its tangents, so that any weighing of the targets gives a linear problem whose least value no mixture goes
below.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from recsim_mnar.log.columns import Floats

GAP = 1e-6
"""Relative gap to the certificate at which a solution is good enough."""
_STAGES, _GROWTH, _NEWTON = 14, 10.0, 60


@dataclass(frozen=True)
class Problem:
    """What mixtures cost and what they are worth.

    Attributes:
        amounts: (T, G) b, not negative.
        shares: (G, M) A, not negative: what each policy gives to a group's action.
        costs: (M,) c in [0, 1]; the first policy's is 0.
    """

    amounts: Floats
    shares: Floats
    costs: Floats

    def moments(self, weights: Floats) -> Floats:
        """(T,) S_t."""
        shown = self.shares @ weights
        if shown.min(initial=1.0) > 0.0:
            return self.amounts @ (1.0 / shown)
        hidden = self.amounts[:, shown <= 0.0].any(axis=1)
        seen = self.amounts[:, shown > 0.0] @ (1.0 / shown[shown > 0.0])
        return np.where(hidden, np.inf, seen)

    def gradients(self, weights: Floats) -> Floats:
        """(T, M) of the moments."""
        return -(self.amounts / (self.shares @ weights) ** 2) @ self.shares

    def curvature(self, weights: Floats, weighing: Floats) -> Floats:
        """(M, M) the Hessian of the moments' weighted sum."""
        each = 2.0 * (weighing @ self.amounts) / (self.shares @ weights) ** 3
        return (self.shares * each[:, None]).T @ self.shares

    def over(self, limits: Floats) -> Problem:
        """The same with the moments divided by (T,) limits."""
        return Problem(self.amounts / limits[:, None], self.shares, self.costs)

    def grouped(self) -> Problem:
        """The same with groups of equal shares put together, and those that nobody earns in left out."""
        earning = self.amounts.any(axis=0)
        shares, which = np.unique(self.shares[earning], axis=0, return_inverse=True)
        amounts = np.array([np.bincount(which.ravel(), row, len(shares)) for row in self.amounts[:, earning]])
        return Problem(amounts, shares, self.costs)


@dataclass(frozen=True)
class Design:
    """A mixture and how good it is.

    Attributes:
        weights: (M,).
        objective: the largest S_t / limit, or the cost.
        bound: below which no mixture goes.
    """

    weights: Floats
    objective: float
    bound: float

    @property
    def gap(self) -> float:
        """Most by which the best mixture is better, as a share of the objective."""
        return (self.objective - self.bound) / self.objective if self.objective > 0.0 else 0.0


def least_largest(problem: Problem, limits: Floats, budget: float) -> Design:
    """The mixture of a cost of at most ``budget`` whose largest S_t / limit_t is least.

    Args:
        problem: with a first policy that costs nothing.
        limits: (T,) positive.
        budget: positive.
    """
    n, dearest = len(problem.costs), float(problem.costs.max())
    share = 0.5 if dearest <= 0.0 else min(0.5, 0.5 * budget / dearest)
    start = np.full(n, share / max(n - 1, 1))
    start[0] = 1.0 - start[1:].sum()
    scale = float((problem.moments(start) / limits).max())
    found = _Largest(problem.over(limits * scale), budget)
    if n > 1:
        _follow(found, np.append(start, 2.0))
    else:
        found.best = Design(start, 1.0, 1.0)
    assert found.best is not None
    return Design(found.best.weights, found.best.objective * scale, found.best.bound * scale)


def cheapest(problem: Problem, limits: Floats) -> Design | None:
    """The mixture of least cost with S_t <= limit_t for all t; None where there is none.

    Args:
        problem: with a first policy that costs nothing.
        limits: (T,) positive.
    """
    if np.all(problem.moments(np.eye(len(problem.costs))[0]) <= limits):
        return Design(np.eye(len(problem.costs))[0], 0.0, 0.0)
    begin = least_largest(problem, limits, 2.0)
    if begin.objective >= 1.0:
        return None
    inside = 0.99 * begin.weights + 0.01 / len(begin.weights)
    found = _Cheapest(problem.over(limits))
    _follow(found, inside if found.problem.moments(inside).max() < 1.0 else begin.weights)
    assert found.best is not None
    return found.best


class _Program(Protocol):
    """Minimise ``direction`` x over slacks(x) > 0 and ``equality`` x constant."""

    direction: Floats
    equality: Floats

    def slacks(self, x: Floats) -> Floats: ...

    def jacobian(self, x: Floats) -> Floats: ...

    def curvature(self, x: Floats, inverse: Floats) -> Floats:
        """Minus the Hessian of the slacks' sum, weighted by ``inverse``."""
        ...

    def close(self, x: Floats, multipliers: Floats) -> bool:
        """Keep the solution and its bound, from the slacks' multipliers; whether they are close enough."""
        ...


class _Largest:
    """x is (w, top): minimise top with S_t(w) <= top, w >= 0 and costs within the budget."""

    def __init__(self, problem: Problem, budget: float) -> None:
        n = len(problem.costs)
        self.problem, self.budget = problem, budget
        self.best: Design | None = None
        self.direction, self.equality = np.append(np.zeros(n), 1.0), np.append(np.ones(n), 0.0)

    def slacks(self, x: Floats) -> Floats:
        w = x[:-1]
        return np.concatenate([x[-1] - self.problem.moments(w), w, [self.budget - self.problem.costs @ w]])

    def jacobian(self, x: Floats) -> Floats:
        gradients = self.problem.gradients(x[:-1])
        top = np.column_stack([-gradients, np.ones(len(gradients))])
        return np.vstack([top, np.eye(len(x) - 1, len(x)), np.append(-self.problem.costs, 0.0)])

    def curvature(self, x: Floats, inverse: Floats) -> Floats:
        out = np.zeros((len(x), len(x)))
        out[:-1, :-1] = self.problem.curvature(x[:-1], inverse[: len(self.problem.amounts)])
        return out

    def close(self, x: Floats, multipliers: Floats) -> bool:
        w = x[:-1]
        moments = self.problem.moments(w)
        weighing = multipliers[: len(moments)] / multipliers[: len(moments)].sum()
        tangent = weighing @ self.problem.gradients(w)
        bound = float(weighing @ moments - tangent @ w) + _least_linear(tangent, self.problem.costs, self.budget)
        self.best = _kept(self.best, Design(w.copy(), float(moments.max()), bound))
        return self.best.gap <= GAP


class _Cheapest:
    """x is w: minimise costs w with S_t(w) <= 1 and w >= 0."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.direction, self.equality = problem, problem.costs, np.ones(len(problem.costs))
        self.best: Design | None = None

    def slacks(self, x: Floats) -> Floats:
        return np.concatenate([1.0 - self.problem.moments(x), x])

    def jacobian(self, x: Floats) -> Floats:
        return np.vstack([-self.problem.gradients(x), np.eye(len(x))])

    def curvature(self, x: Floats, inverse: Floats) -> Floats:
        return self.problem.curvature(x, inverse[: len(self.problem.amounts)])

    def close(self, x: Floats, multipliers: Floats) -> bool:
        cost, prices = float(self.problem.costs @ x), multipliers[: len(self.problem.amounts)]
        tangent = prices @ self.problem.gradients(x) + self.problem.costs
        value = float(prices @ (self.problem.moments(x) - 1.0)) + cost
        bound = value + float(tangent.min() - tangent @ x)
        self.best = _kept(self.best, Design(x.copy(), cost, max(bound, 0.0)))
        return self.best.gap <= GAP


def _kept(best: Design | None, found: Design) -> Design:
    """The better solution of two, with the better bound."""
    if best is None:
        return found
    better = min(best, found, key=lambda design: design.objective)
    return Design(better.weights, better.objective, max(best.bound, found.bound))


def _follow(program: _Program, x: Floats) -> None:
    """Follow the central path from a point inside, until the program's certificate is close or the numbers end."""
    weight = 1.0
    for _ in range(_STAGES):
        x = _centred(program, x, weight)
        if program.close(x, 1.0 / (weight * program.slacks(x))):
            return
        weight *= _GROWTH


def _centred(program: _Program, x: Floats, weight: float) -> Floats:
    """Newton's method on weight (direction x) - sum log slacks, on the plane that the equality leaves."""
    # The first entry, the deployed policy's weight, is what the others leave of 1: steps keep to the plane.
    basis = np.vstack([-program.equality[1:], np.eye(len(x) - 1)])
    for _ in range(_NEWTON):
        inverse = 1.0 / program.slacks(x)
        jacobian = program.jacobian(x) * inverse[:, None]
        gradient = weight * program.direction - jacobian.sum(axis=0)
        hessian = basis.T @ (jacobian.T @ jacobian + program.curvature(x, inverse)) @ basis
        size = np.sqrt(np.diag(hessian))
        step = basis @ (
            np.linalg.lstsq(hessian / np.outer(size, size), -(basis.T @ gradient) / size, rcond=None)[0] / size
        )
        decrease = -float(gradient @ step)
        if not decrease > 1e-9:
            return x
        # Inside the region of quadratic convergence the whole step is allowed; before it, a damped one always is.
        length = 1.0 if decrease < 0.05 else 1.0 / (1.0 + decrease**0.5)
        while program.slacks(x + length * step).min() <= 0.0:
            length *= 0.5
            if length < 1e-12:
                return x
        if decrease >= 0.05:
            length = _longer(program, x, step, weight, length)
        x = x + length * step
    return x


def _longer(program: _Program, x: Floats, step: Floats, weight: float, length: float) -> float:
    """The longest of length, 2 length, ... that goes on lessening the barrier's function."""

    def value(at: float) -> float:
        slacks = program.slacks(x + at * step)
        if slacks.min() <= 0.0:
            return np.inf
        return float(weight * (program.direction @ (x + at * step)) - np.log(slacks).sum())

    best = value(length)
    while (further := value(2.0 * length)) < best:
        length, best = 2.0 * length, further
    return length


def _least_linear(slope: Floats, costs: Floats, budget: float) -> float:
    """The least of slope v over v on the simplex with costs v <= budget: at one policy, or between two."""
    cheap = costs <= budget
    least = float(slope[cheap].min())
    for i in np.flatnonzero(cheap):
        for j in np.flatnonzero(~cheap):
            part = (budget - costs[i]) / (costs[j] - costs[i])
            least = min(least, float((1.0 - part) * slope[i] + part * slope[j]))
    return least
