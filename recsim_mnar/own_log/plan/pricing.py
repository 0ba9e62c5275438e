"""Forecasts for targets under a mixture of policies, from a pilot's rows, and the best mixture (docs/plan.md).

**Users weighted so that the mean weights come out as they must.**
The mean of pi_t / p over a log is 1 where the log shows all that target t does, so that how far it is from 1 says how
often, by chance, the target's actions were met: too seldom, and every sum over them is too small. With factors g_u for
users, linear in the sums c_u of their (w - 1), such that sum g_u c_u = 0, sums are those that regression on c_u gives
(control variates; Deville & Sarndal 1992).

**How rewards spread, shared by all rows.** Of rewards that are not 0 let k = E[r^2] / E[r]^2. A target's own k rests on
the few rows with its actions, and squares are noisy; that of the whole pilot does not. The logarithms of both are put
together by their variances, with a standard deviation of :data:`DIFFERENCE` for what may truly differ between policies.

**Mixtures that make the largest of several variances least**, a convex problem with a certificate.
A mixture has weights w on the simplex, cost c w, and for target t the second moment S_t(w) = sum_g b_tg / (A_g w): a
sum of inverses of linear functions, hence convex. Its inverse 1 / S_t, a harmonic mean, is concave, nearly linear and
finite where a weight is 0, so SciPy's SLSQP is given the inverses. Each solution carries a bound: S_t is at least its
tangent, and the linear problem of the tangents has a least value that no mixture goes below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import Spread, positive_limits, small_sample_factor
from recsim_mnar.estimators.off_policy.limits import STRICT, support_of
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.log.columns import Clusters, Floats, user_sums
from recsim_mnar.own_log.plan.pilot import Pilot, two_sided

LEAST, MOST = 0.2, 3.0
"""Factors are kept between."""
DIFFERENCE = 0.15
"""Standard deviation of the logarithm of k between policies."""
_FEW = 30
"""Users with another sum than most, below which it is no control."""


def user_factors(weights: Floats, clusters: Clusters | None) -> Floats:
    """(U,) factors of mean 1, in the order of the users' codes.

    Args:
        weights: (n, J) weights whose mean is 1, but for chance.
        clusters: users; None where rows are independent.
    """
    sums = np.column_stack([user_sums(each - 1.0, clusters) for each in weights.T])
    mean = sums.mean(axis=0)
    spread = np.atleast_2d(np.cov(sums, rowvar=False))
    varied = np.diag(spread) > 0.0
    if len(sums) < _FEW or not varied.any():
        return np.ones(len(sums))
    slope = np.linalg.lstsq(spread[np.ix_(varied, varied)], mean[varied], rcond=1e-9)[0]
    factors = np.clip(1.0 - (sums[:, varied] - mean[varied]) @ slope, LEAST, MOST)
    return factors / factors.mean()


def of_rows(factors: NDArray[Any], clusters: Clusters | None) -> NDArray[Any]:
    """(n,) each row's user's factor."""
    return factors if clusters is None else factors[clusters.dense()[0]]


def spread_factor(reward: Floats, weights: Floats, clusters: Clusters | None) -> float:
    """By what to multiply a target's sum of weighted squares, so that its k is the one put together.

    Args:
        reward: (n,) not negative.
        weights: (n,) of the rows in the sum, 0 where the target never takes the action.
        clusters: users.
    """
    earning = reward > 0.0
    if not (weights[earning] > 0.0).any():
        return 1.0
    own, error = _log_spread(reward, weights * earning, clusters)
    pooled, known = _log_spread(reward, earning.astype(np.float64), clusters)
    noise, room = error**2, DIFFERENCE**2 + known**2
    return math.exp((pooled - own) * noise / (noise + room)) if noise > 0.0 else 1.0


def _log_spread(reward: Floats, weights: Floats, clusters: Clusters | None) -> tuple[float, float]:
    """log(sum W r^2 sum W / (sum W r)^2) and its standard error, by users' influences."""
    total, first, second = (float(weights @ reward**power) for power in (0, 1, 2))
    influence = weights * (reward**2 / second + 1.0 / total - 2.0 * reward / first)
    sums = user_sums(influence, clusters)
    return math.log(second * total / first**2), math.sqrt(float(sums @ sums))


_LEAST = 1e-12
"""Least weight of a policy while a mixture is searched: at 0 a moment may be infinite."""


@dataclass(frozen=True)
class Problem:
    """Costs and benefits of mixtures.

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
        """The same with groups of equal shares put together, and those without any reward left out."""
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
        _least_zero(lambda x: 1.0 / scaled.moments(x[:n]) - x[n], lambda x: _joined(scaled.slopes(x[:n]), -1.0)),
        _least_zero(lambda x: 1.0 - problem.costs @ x[:n] / budget, lambda x: _joined(-problem.costs / budget, 0.0)),
    )
    # Least `top` with every tangent below it, at a cost within the budget.
    moments, gradients = scaled.moments(weights), scaled.gradients(weights)
    rows = np.vstack([_joined(gradients, -1.0), _joined(problem.costs, 0.0)])
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


def _joined(left: Floats, right: float) -> Floats:
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


ESTIMATORS = ("ips", "snips")
_LEAST_MASS = 0.01
"""Missing mass below which a log is taken to show all that a target does, unless the mean weight proves otherwise."""
_PRIOR_ROWS = 30.0
"""Rows that a target's mean square counts for next to its rows' own squares."""
_TRUST_IN_PROXY = 0.5
"""Standard deviation, as a share of it, of what the covariance within a target's users is next to today's policy's."""


@dataclass(frozen=True)
class Priced:
    """A target, from the pilot.

    Attributes:
        name: of the target.
        value: its mean reward, by self-normalised weights.
        covariance: sum over pairs of different decisions of a user of Cov(d_i, d_j), a decision; what the dependence
            within users adds to a row's variance, whatever the logging policy.
        missing: its mass that the pilot never shows; 0 where none is proved.
        terms: (n,) of S = mean(terms / share), where share is the mixture's probability of the logged action.
        raw: (n,) the same of the squares as they were seen, for what the pilot leaves open.
        reward: mean reward that missing mass is priced at, squared rewards.
    """

    name: str
    value: float
    covariance: float
    missing: float
    terms: Floats
    raw: Floats
    reward: float


@dataclass(frozen=True)
class Pricing:
    """A pilot's rows, the policies to mix, and the targets.

    Attributes:
        pilot: the rows.
        names: (M,) of the policies, the deployed one first.
        shares: (n, M) their probabilities of the logged actions.
        costs: (M,) share of decisions on which each differs from the deployed policy.
        targets: what is to be estimated.
        factors: (n,) of the rows, by :mod:`recsim_mnar.own_log.plan.pricing`.
        estimator: ``ips`` or ``snips``.
        level: of the interval.
    """

    pilot: Pilot
    names: tuple[str, ...]
    shares: Floats
    costs: Floats
    targets: tuple[Priced, ...]
    factors: Floats
    estimator: str
    level: float

    @staticmethod
    def of(pilot: Pilot, targets: Sequence[str], deployed: str | None, estimator: str, level: float) -> Pricing:
        """Price targets.

        Args:
            pilot: with the targets' columns, and the deployed policy's.
            targets: their names.
            deployed: the deployed policy's; None for the logging policy itself.
            estimator: ``ips`` or ``snips``.
            level: of the interval that is planned.
        """
        today = pilot.propensity if deployed is None else pilot.policies[deployed]
        others = [name for name in targets if name != deployed]
        shares = np.column_stack([today, *(pilot.policies[name] for name in others)])
        weights = shares / pilot.propensity[:, None]
        missing = {name: _missing(pilot, name) for name in targets}
        whole = [place for place, name in enumerate((None, *others)) if not missing.get(name or "", 0.0)]
        factors = of_rows(user_factors(weights[:, whole], pilot.clusters), pilot.clusters)
        costs = np.array([_differing(weights[:, 0], each, factors) for each in weights.T])
        costs[0] = 0.0
        priced = tuple(_priced(pilot, name, missing[name], factors, estimator) for name in targets)
        first = "the logging policy" if deployed is None else deployed
        return Pricing(pilot, (first, *others), shares, costs, priced, factors, estimator, level)

    def problem(self) -> Problem:
        """The convex problem of the mixtures' weights; missing mass is shown by its own target's part alone."""
        n = len(self.pilot)
        amounts = [target.terms / n for target in self.targets]
        shares, extra = [self.shares], np.zeros((len(self.targets), 0))
        for place, target in enumerate(self.targets):
            if target.missing > 0.0:
                column = np.zeros((len(self.targets), 1))
                column[place] = target.missing * target.reward
                extra = np.hstack([extra, column])
                shares.append(np.eye(len(self.names))[[self.names.index(target.name)]])
        return Problem(np.hstack([np.array(amounts), extra]), np.vstack(shares), self.costs).grouped()

    def limits(self, half_widths: Floats, rows: float) -> Floats:
        """(T,) the second moments S that give intervals of these half widths from so many rows, asymptotically."""
        error = half_widths / two_sided(self.level)
        return np.array([rows * e**2 - self.between(t) for e, t in zip(error, self.targets, strict=True)])

    def between(self, target: Priced) -> float:
        """What is added to S in the variance of a row: the covariance within users, less the square of the mean."""
        return target.covariance - (target.value**2 if self.estimator == "ips" else 0.0)

    def forecast(self, target: Priced, moment: float, share: Floats, rows: float) -> float:
        """Half width of the interval that `estimate` will give, from rows under a mixture.

        Args:
            target: of the estimate.
            moment: S under the mixture.
            share: (n,) the mixture's probability of the logged actions.
            rows: of the log to come.
        """
        pilot = self.pilot
        least = min(float(pilot.reward.min()), 0.0)
        variance = max(moment + self.between(target), 0.0) / rows
        value = target.value - least
        tilt = self.factors * share / pilot.propensity
        above = pilot.reward - least
        heaviest = float(np.max(_over(pilot.policies[target.name], share), initial=0.0))
        if target.missing > 0.0:
            heaviest = max(heaviest, moment / max(target.reward, 1e-300))
        mean = float(tilt @ above)
        step = heaviest * (float(tilt @ above**2) / mean if mean > 0.0 else 1.0)
        users = max(round(rows * pilot.users / len(pilot)), 2)
        variance *= small_sample_factor(users, self.level)
        third = self._skewness(target, share, value) / rows
        spread = Spread(
            variance, third, max(step / rows, third), max(value, heaviest * value * (self.estimator == "snips")) / rows
        )
        low, high = positive_limits(max(value, 0.0), spread, self.level)
        return (high - low) / 2.0

    def _skewness(self, target: Priced, share: Floats, value: float) -> float:
        """Third central moment over the second, of a row's weighted reward under a mixture; 0 without users."""
        pilot = self.pilot
        if pilot.clusters is None or pilot.users == len(pilot):
            return 0.0
        policy = pilot.policies[target.name]
        reward = pilot.reward - min(float(pilot.reward.min()), 0.0)
        weight, tilt = _over(policy, share), self.factors * share / pilot.propensity
        deviation = weight * (reward - value) if self.estimator == "snips" else weight * reward - value
        second = float(tilt @ deviation**2)
        return float(tilt @ deviation**3) / second if second > 0.0 else 0.0

    def uncertainty(self, target: Priced, share: Floats) -> float:
        """Standard error, as a share, of S under a mixture, by the pilot's users."""
        each = _over(target.raw, share)
        mean = float(each.mean())
        if mean <= 0.0:
            return math.inf
        sums = user_sums(each - mean, self.pilot.clusters)
        return math.sqrt(float(sums @ sums)) / (len(self.pilot) * mean)


def _over(above: Floats, share: Floats) -> Floats:
    """(n,) a quotient; 0 where the mixture never takes the action, which no target does then."""
    return np.divide(above, share, out=np.zeros_like(above), where=share > 0.0)


def _priced(pilot: Pilot, name: str, missing: float, factors: Floats, estimator: str) -> Priced:
    policy = pilot.policies[name]
    if not policy.any():
        raise UserError(
            f"target {name}: it takes none of the {len(pilot):,} logged actions, so the pilot cannot say what it "
            "earns; explore a little first"
        )
    weight = factors * policy / pilot.propensity
    least = min(float(pilot.reward.min()), 0.0)
    above = pilot.reward - least
    value = float(weight @ above) / float(weight.sum())
    if not (weight * above).any():
        raise UserError(
            f"target {name}: the pilot's {int(np.count_nonzero(policy)):,} rows with its actions earned nothing, so "
            "there is nothing to plan from; log more"
        )
    steady = 1.0
    if estimator == "ips":
        steady = spread_factor(above, weight * policy / pilot.propensity, pilot.clusters)
    squares = (above - value) ** 2 if estimator == "snips" else above**2
    raw = policy * weight * squares
    squares = _shrunk(squares, weight * policy / pilot.propensity)
    centred = weight * (above - value) if estimator == "snips" else weight * above - value * factors
    mean_square = float(np.mean((above - above.mean()) ** 2 if estimator == "snips" else above**2))
    covariance = _covariance(pilot, centred, above, value)
    return Priced(name, value + least, covariance, missing, steady * policy * weight * squares, raw, mean_square)


def _shrunk(squares: Floats, weights: Floats) -> Floats:
    """Squares drawn a little towards their mean, the more the fewer rows their weighted sum rests on.

    Else a mixture would leave out what no rewarded row of the pilot asks for, and the log to come would miss it.
    """
    each = weights * squares
    resting = float(each.sum()) ** 2 / max(float(each @ each), 1e-300)
    part = _PRIOR_ROWS / (_PRIOR_ROWS + resting)
    return (1.0 - part) * squares + part * float(each.sum()) / float(weights.sum())


def _missing(pilot: Pilot, name: str) -> float:
    """The target's mass that the pilot never shows, where its mean weight proves that beyond doubt; else 0."""
    moments = Moments.of(pilot.reward, pilot.propensity, pilot.policies[name], cluster=pilot.clusters)
    support = support_of(moments, Stated(), STRICT)
    missing = 1.0 - support.mean if support.proved else 0.0
    return missing if missing > _LEAST_MASS else 0.0


def _differing(today: Floats, other: Floats, factors: Floats) -> float:
    """1 - E_x sum_a min(pi, pi_today): decisions on which a policy differs from today's."""
    return float(np.clip(1.0 - factors @ np.minimum(today, other) / max(float(factors @ today), 1e-300), 0.0, 1.0))


def _covariance(pilot: Pilot, deviation: Floats, reward: Floats, value: float) -> float:
    """Covariance of a target's deviations within users, summed over pairs, a decision.

    The pilot's own estimate, by weighted pairs, is unbiased and may be noise. The same of today's rewards, which needs
    no weights, times the square of the values' ratio is precise, and what it would be if what makes users differ made
    them differ by the same factor everywhere. The two are put together by their errors.
    """
    if pilot.clusters is None or pilot.users == len(pilot):
        return 0.0
    n = len(pilot)

    def pairs(each: Floats) -> Floats:
        return user_sums(each, pilot.clusters) ** 2 - user_sums(each * each, pilot.clusters)

    own = pairs(deviation)
    today = float(reward.mean())
    proxy = float(pairs(reward - today).sum()) / n * ((value / today) ** 2 if today > 0.0 else 0.0)
    error = math.sqrt(float(np.sum((own - own.mean()) ** 2))) / n
    room = _TRUST_IN_PROXY * abs(proxy)
    if error <= 0.0 or room <= 0.0:
        return float(own.sum()) / n if room <= 0.0 < 1.0 and error <= 0.0 else proxy
    return (float(own.sum()) / n * room**2 + proxy * error**2) / (room**2 + error**2)
