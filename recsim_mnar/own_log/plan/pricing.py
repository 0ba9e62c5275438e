"""What a mixture of policies would tell of each target, priced from a pilot's rows (docs/plan.md)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals.limits import Spread, positive_limits, small_sample_factor
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.sampling import STRICT, support_of
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.log.columns import Floats, user_sums
from recsim_mnar.own_log.plan.amounts import two_sided
from recsim_mnar.own_log.plan.calibration import of_rows, spread_factor, user_factors
from recsim_mnar.own_log.plan.design import Problem
from recsim_mnar.own_log.plan.pilot import Pilot

ESTIMATORS = ("ips", "snips")
_LEAST_MASS = 0.01
"""Missing mass below which a log is taken to show all that a target does, unless the mean weight proves otherwise."""
_PRIOR_ROWS = 30.0
"""Rows that a target's mean square counts for beside its rows' own squares."""
_TRUST_IN_PROXY = 0.5
"""Standard deviation, as a share of it, of what the covariance within a target's users is beside today's policy's."""


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
        factors: (n,) of the rows, by :mod:`recsim_mnar.own_log.plan.calibration`.
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
        assert pilot.propensity is not None
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
        assert pilot.propensity is not None
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
        assert pilot.propensity is not None
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
    assert pilot.propensity is not None
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
    assert pilot.propensity is not None
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
