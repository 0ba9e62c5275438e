"""What comparisons without a truth come to: which agents can be the best, in sentences, with what they leave open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.verdict import LEAST_USERS

Floats = NDArray[np.float64]


_TITLES = {"loocv": "leave-one-out", "by_time": "the split by time"}


@dataclass(frozen=True)
class Leaders:
    """Which agents one metric of one protocol leaves as candidates for the best.

    Attributes:
        names: the agent with the largest mean, then those that may be as good or better, the best mean first: none is
            significantly worse than another.
        n_users: on whom it rests.
        protocol, metric: by what it ranks.
    """

    names: tuple[str, ...]
    n_users: int = 0
    protocol: str = ""
    metric: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        by = {"protocol": self.protocol, "metric": self.metric, "users": self.n_users}
        return {**by, "first": self.names[0], "may_be_the_best": list(self.names)}


def leaders(values: Mapping[str, Floats], level: float, *, protocol: str = "", metric: str = "") -> Leaders:
    """A set of agents that holds the best one with probability ``level`` or more, over the sampling of users.

    An agent is left out where another one is better by a paired, one-sided t-test at (1 - level) / (A - 1), A being the
    number of agents. The best one is then left out with probability at most 1 - level (Bonferroni over the A - 1
    agents that could beat it by chance). From fewer than :data:`LEAST_USERS` users no agent is left out: the t-test is
    not to be relied on there.

    Args:
        values: (U,) a number a user, larger being better, by agent; users are the same and in the same order.
        level: of the set.
        protocol: for the result.
        metric: for the result.
    """
    from scipy.special import stdtrit

    names = list(values)
    table = np.stack([values[name] for name in names])
    means = table.mean(axis=1)
    n_users, rivals = table.shape[1], len(names) - 1
    order = [names[i] for i in np.argsort(-means, kind="stable")]
    if rivals == 0 or n_users < LEAST_USERS:
        return Leaders(tuple(order), n_users, protocol, metric)
    quantile = float(stdtrit(n_users - 1, 1.0 - (1.0 - level) / rivals))
    beaten = set()
    for i, name in enumerate(names):
        gap = table - table[i]
        error = gap.std(axis=1, ddof=1) / math.sqrt(n_users)
        if np.any(gap.mean(axis=1) > quantile * error + 1e-15):  # more than roundings of agents that do the same
            beaten.add(name)
    return Leaders(tuple(name for name in order if name not in beaten), n_users, protocol, metric)


def conclusion(ranked: Sequence[Leaders], level: float, n_agents: int) -> list[str]:
    """Sentences: what each protocol finds, what they come to together, and what none of them can say."""
    if n_agents < 2 or not ranked:
        return ["There is one agent, so there is nothing to choose."] if n_agents == 1 and ranked else []
    sentences = [_alone(one, level, n_agents) for one in ranked]
    if len(ranked) == 2:
        sentences.append(_together(*ranked))
    sentences.append(
        "All this says how well agents foresee what users did by themselves, not what users would do if it were shown "
        "to them: an A/B test of the candidates would, or estimates from a log with propensities."
    )
    return sentences


def _alone(one: Leaders, level: float, n_agents: int) -> str:
    title = _TITLES.get(one.protocol, one.protocol)
    begins = f"{title[0].upper()}{title[1:]} ({one.metric.upper()}) puts {one.names[0]} first"
    others = one.names[1:]
    if not others:
        return f"{begins}, and tells it from all others at {100 * level:g} % confidence."
    if one.n_users < LEAST_USERS:
        return f"{begins}, but rests on {one.n_users:,} users: too few to rule any agent out."
    if len(others) == n_agents - 1:
        return f"{begins}, and tells it from no other agent at {100 * level:g} % confidence: more users are needed."
    verb = "it is" if len(others) == 1 else "one of these is"
    return f"{begins}; at {100 * level:g} % confidence {verb} not ruled out as the best: {', '.join(others)}."


def _together(one: Leaders, other: Leaders) -> str:
    shared = [name for name in one.names if name in other.names]
    if not shared:
        return (
            f"The two contradict each other: no agent may be the best by both. They ask different questions; what a "
            f"recommender deployed at the split would have faced is what the split by time asks ({other.names[0]})."
        )
    if len(shared) == 1:
        return f"By both together {shared[0]} alone may be the best."
    return f"By both together any of {', '.join(shared)} may be the best: choose by another aim, such as coverage."
