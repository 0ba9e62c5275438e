"""Which agents can be the best, as far as a sample of users can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.verdict import LEAST_USERS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Leaders:
    """What one metric of one protocol says of the best agent.

    Attributes:
        first: the agent with the largest mean.
        others: agents that may be as good or better, the best mean first: none is significantly worse than another.
        n_users: on whom it rests.
    """

    first: str
    others: tuple[str, ...]
    n_users: int = 0

    @property
    def all(self) -> tuple[str, ...]:
        """The first and the others, the set that holds the best agent."""
        return (self.first, *self.others)


def leaders(values: Mapping[str, Floats], level: float) -> Leaders:
    """A set of agents that holds the best one with probability ``level`` or more, over the sampling of users.

    An agent is left out where another one is better by a paired, one-sided t-test at (1 - level) / (A - 1), A being the
    number of agents. The best one is then left out with probability at most 1 - level (Bonferroni over the A - 1
    agents that could beat it by chance). From fewer than :data:`LEAST_USERS` users no agent is left out: the t-test is
    not to be relied on there.

    Args:
        values: (U,) a number a user, larger being better, by agent; users are the same and in the same order.
        level: of the set.
    """
    from scipy.special import stdtrit

    names = list(values)
    table = np.stack([values[name] for name in names])
    means = table.mean(axis=1)
    n_users, rivals = table.shape[1], len(names) - 1
    order = [names[i] for i in np.argsort(-means, kind="stable")]
    if rivals == 0 or n_users < LEAST_USERS:
        return Leaders(order[0], tuple(order[1:]), n_users)
    quantile = float(stdtrit(n_users - 1, 1.0 - (1.0 - level) / rivals))
    beaten = set()
    for i, name in enumerate(names):
        gap = table - table[i]
        error = gap.std(axis=1, ddof=1) / math.sqrt(n_users)
        if np.any(gap.mean(axis=1) > quantile * error + 1e-15):  # more than roundings of agents that do the same
            beaten.add(name)
    kept = [name for name in order if name not in beaten]
    return Leaders(kept[0], tuple(kept[1:]), n_users)
