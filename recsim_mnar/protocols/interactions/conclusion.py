"""What comparisons without a truth come to, in sentences, with what they leave open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.protocols.interactions.best import Leaders

_TITLES = {"loocv": "leave-one-out", "by_time": "the split by time"}


@dataclass(frozen=True)
class Ranked:
    """Which agents one protocol leaves as candidates for the best.

    Attributes:
        protocol, metric: by what it ranks.
        found: the first, and those that cannot be told from the best.
    """

    protocol: str
    metric: str
    found: Leaders

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        first, others = self.found.first, list(self.found.others)
        told = {"protocol": self.protocol, "metric": self.metric, "users": self.found.n_users}
        return {**told, "first": first, "may_be_the_best": [first, *others]}


def conclusion(ranked: Sequence[Ranked], level: float, n_agents: int) -> list[str]:
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


def _alone(one: Ranked, level: float, n_agents: int) -> str:
    title = _TITLES.get(one.protocol, one.protocol)
    begins = f"{title[0].upper()}{title[1:]} ({one.metric.upper()}) puts {one.found.first} first"
    others = one.found.others
    if not others:
        return f"{begins}, and tells it from all others at {100 * level:g} % confidence."
    if one.found.n_users < LEAST_USERS:
        return f"{begins}, but rests on {one.found.n_users:,} users: too few to rule any agent out."
    if len(others) == n_agents - 1:
        return f"{begins}, and tells it from no other agent at {100 * level:g} % confidence: more users are needed."
    verb = "it is" if len(others) == 1 else "one of these is"
    return f"{begins}; at {100 * level:g} % confidence {verb} not ruled out as the best: {', '.join(others)}."


def _together(one: Ranked, other: Ranked) -> str:
    shared = [name for name in one.found.all if name in other.found.all]
    if not shared:
        return (
            f"The two contradict each other: no agent may be the best by both. They ask different questions; what a "
            f"recommender deployed at the split would have faced is what the split by time asks ({other.found.first})."
        )
    if len(shared) == 1:
        return f"By both together {shared[0]} alone may be the best."
    return f"By both together any of {', '.join(shared)} may be the best: choose by another aim, such as coverage."
