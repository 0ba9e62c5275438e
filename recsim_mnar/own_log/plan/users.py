"""Users' totals: what the error of a mean over decisions is made of where the decisions of a user depend."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from recsim_mnar.log.columns import Clusters, Floats, user_sums


@dataclass(frozen=True)
class UserTotals:
    """Each user's decisions and rewards, a user an entry.

    With y a user's rewards, l its decisions and R = sum y / sum l, a user's deviation is d = y - R l, and the variance
    of R over U users is Var(d) / (U mean(l)^2) (the delta method of a ratio, as in an A/B test's interval).

    Attributes:
        rewards: (U,) y.
        decisions: (U,) l.
        squares: (U,) sum of the rewards' squares.
        row_square: sum over decisions of (r - R)^2.
        unit: whether every reward is 0 or 1.
    """

    rewards: Floats
    decisions: Floats
    squares: Floats
    row_square: float
    unit: bool

    @staticmethod
    def of(reward: Floats, clusters: Clusters | None) -> UserTotals:
        """Of the rewards (n,) of a log's decisions; without users every decision is one."""
        return UserTotals(
            user_sums(reward, clusters),
            user_sums(np.ones(reward.size), clusters),
            user_sums(reward * reward, clusters),
            float(np.sum((reward - float(reward.mean())) ** 2)),
            bool(np.all((reward == 0.0) | (reward == 1.0))),
        )

    @property
    def users(self) -> int:
        """U."""
        return self.decisions.size

    @property
    def length(self) -> float:
        """Mean number of decisions of a user."""
        return float(self.decisions.mean())

    @property
    def value(self) -> float:
        """R, the mean reward of a decision."""
        return float(self.rewards.sum() / self.decisions.sum())

    @cached_property
    def deviations(self) -> Floats:
        """(U,) d."""
        return self.rewards - self.value * self.decisions

    @cached_property
    def variance(self) -> float:
        """Var(d)."""
        return float(self.deviations @ self.deviations) / max(self.users - 1.0, 1.0)

    @property
    def design_effect(self) -> float:
        """How many times as large the variance is as that of as many independent decisions."""
        return float(self.deviations @ self.deviations) / self.row_square if self.row_square > 0.0 else 1.0

    def variance_under(self, lift: float) -> float:
        """Var(d) where a recommender earns 1 + lift times as much of every user.

        A mean reward m of a decision becomes (1 + lift) m. Where rewards are 0 or 1 the part of the variance that lies
        within users is E[l m (1 - m)], so that it becomes (1 + lift)^2 Var(d) - lift (1 + lift) E[y]; other rewards are
        taken to become so many times as large each.
        """
        grown = (1.0 + lift) ** 2 * self.variance
        if not self.unit:
            return grown
        return max(grown - lift * (1.0 + lift) * float(self.rewards.mean()), 0.0)

    def relative_error(self, *, relative: bool) -> float:
        """Standard error, as a share, of Var(d) / (length R)^2 where ``relative``, else of Var(d) / length^2.

        By the influence of a user on its logarithm: d^2 / Var(d) - 1 - 2 (b / mean(b) - 1), b being y or l.
        """
        if self.variance <= 0.0 or self.users < 2:
            return math.inf
        below = self.rewards if relative else self.decisions
        influence = self.deviations**2 / self.variance - 1.0 - 2.0 * (below / below.mean() - 1.0)
        return float(influence.std(ddof=1)) / math.sqrt(self.users)


def users_an_arm(totals: UserTotals, value: float, arms: int, tolerance: float, level: float) -> int | None:
    """Users an arm from which the arm with the largest mean costs at most ``tolerance`` with probability ``level``.

    Bechhofer's (1954) indifference zone: N = 2 (t s / (tolerance value))^2. t is the quantile of the largest of k - 1
    normal variables with correlations 1/2, s the spread of a user's deviation over the mean number of decisions where
    every user's rewards are so many times as frequent. The gap between arms does not enter. None where the best
    arm's ``value``, or that of the log, is not positive.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    if not (value > 0.0 and totals.value > 0.0):
        return None
    x = np.linspace(-8.0, 8.0, 2001)
    density = np.exp(-x * x / 2.0) / np.sum(np.exp(-x * x / 2.0))
    t = brentq(lambda t: float(density @ ndtr(x + t * math.sqrt(2.0)) ** (arms - 1)) - level, -5.0, 10.0)
    spread = totals.variance_under(value / totals.value - 1.0) / totals.length**2
    return max(math.ceil(2.0 * (t / (tolerance * value)) ** 2 * spread), 2)
