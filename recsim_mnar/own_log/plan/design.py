"""Mixtures of policies that make the largest of several variances least: a convex problem with a certificate.

A mixture has weights w on the simplex, cost c w, and for target t the second moment S_t(w) = sum_g b_tg / (A_g w): a
sum of inverses of linear functions, hence convex. Its inverse 1 / S_t, a harmonic mean, is concave, nearly linear and
finite where a weight is 0, so SciPy's SLSQP is given the inverses. Each solution carries a bound: S_t is at least its
tangent, and the linear problem of the tangents has a least value that no mixture goes below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.log.columns import Floats

_LEAST = 1e-12
"""Least weight of a policy while a mixture is searched: at 0 a moment may be infinite."""


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

    def slopes(self, weights: Floats) -> Floats:
        """(T, M) the gradients of 1 / S_t."""
        return -self.gradients(weights) / self.moments(weights)[:, None] ** 2

    def over(self, limits: Floats) -> Problem:
        """The same with the moments divided by (T,) limits, without targets that earn nothing."""
        earning = self.amounts.any(axis=1)
        return Problem((self.amounts / limits[:, None])[earning], self.shares, self.costs)

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
    scaled, last = problem.over(limits * scale), np.append(np.zeros(n), 1.0)
    weights = _solved(
        -last,
        np.append(start, 1.0),
        n,
        _least_zero(lambda x: 1.0 / scaled.moments(x[:n]) - x[n], lambda x: _beside(scaled.slopes(x[:n]), -1.0)),
        _least_zero(lambda x: 1.0 - problem.costs @ x[:n] / budget, lambda x: _beside(-problem.costs / budget, 0.0)),
    )
    # Least `top` with every tangent below it, at a cost within the budget.
    moments, gradients = scaled.moments(weights), scaled.gradients(weights)
    rows = np.vstack([_beside(gradients, -1.0), _beside(problem.costs, 0.0)])
    bound = _least_linear(last, rows, np.append(gradients @ weights - moments, budget), n)
    objective = float(moments.max())
    return Design(weights, objective * scale, min(bound, objective) * scale)


def cheapest(problem: Problem, limits: Floats) -> Design | None:
    """The mixture of least cost with S_t <= limit_t for all t; None where there is none.

    Args:
        problem: with a first policy that costs nothing.
        limits: (T,) positive.
    """
    n = len(problem.costs)
    if np.all(problem.moments(np.eye(n)[0]) <= limits):
        return Design(np.eye(n)[0], 0.0, 0.0)
    begin = least_largest(problem, limits, 2.0)
    if begin.objective >= 1.0:
        return None
    scaled = problem.over(limits)
    weights = _solved(
        problem.costs, begin.weights, n, _least_zero(lambda w: 1.0 / scaled.moments(w) - 1.0, scaled.slopes)
    )
    gradients = scaled.gradients(weights)
    bound = _least_linear(problem.costs, gradients, 1.0 + gradients @ weights - scaled.moments(weights), n)
    cost = float(problem.costs @ weights)
    return Design(weights, cost, min(max(bound, 0.0), cost))


def _beside(left: Floats, right: float) -> Floats:
    """One more column of one value."""
    return np.concatenate([left, np.full((*left.shape[:-1], 1), right)], axis=-1)


def _least_zero(function: Callable[[Floats], Any], slope: Callable[[Floats], Any]) -> dict[str, Any]:
    """A constraint of SLSQP: a function that is at least 0."""
    return {"type": "ineq", "fun": function, "jac": slope}


def _solved(goal: Floats, start: Floats, n: int, *rows: dict[str, Any]) -> Floats:
    """(n,) the weights, first entries of the x that minimises ``goal`` x.

    SLSQP's tolerances are absolute, so it is given entries and a goal of size 1.
    """
    from scipy.optimize import minimize

    size = np.concatenate([[1.0], np.full(n - 1, start[1:n].max(initial=0.0)), np.ones(len(start) - n)])
    ones, unit = np.append(np.ones(n), np.zeros(len(start) - n)), goal * size / abs(goal @ start)
    scaled = [
        row | {"fun": lambda y, row=row: row["fun"](size * y), "jac": lambda y, row=row: row["jac"](size * y) * size}
        for row in [*rows, {"type": "eq", "fun": lambda x: ones @ x - 1.0, "jac": lambda x: ones}]
    ]
    found = minimize(
        lambda y: unit @ y, start / size, jac=lambda y: unit, method="SLSQP", constraints=scaled,
        bounds=[(_LEAST, 1.0 / each) for each in size[:n]] + [(0.0, None)] * (len(start) - n),
        options={"maxiter": 1000, "ftol": 1e-14},
    )  # fmt: skip
    return np.asarray(size * found.x, np.float64)[:n]


def _least_linear(goal: Floats, rows: Floats, limits: Floats, n: int) -> float:
    """The least ``goal`` x over ``rows`` x <= ``limits``, the first n entries on the simplex."""
    from scipy.optimize import linprog

    ones = np.append(np.ones(n), np.zeros(len(goal) - n))
    found = linprog(goal, A_ub=rows, b_ub=limits, A_eq=ones[None], b_eq=[1.0], bounds=(0.0, None))
    return float(found.fun) if found.success else 0.0
