"""Interleaving: agents take turns to decide for the same users, and clicks are credited to the agent that decided."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.policies.softening import MixturePolicy
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation.items import simulate


class Interleaving(Protocol):
    """All agents decide for the same users, each decision being one agent's at random; rewards are credited to it.

    The credit of a decision is the probability that an agent took it, given what was shown: with one item per
    recommendation this is probabilistic multileaving (Schuth et al. 2015; Oosterhuis & de Rijke 2017). Values are mean
    rewards per credited decision. Users are moved on by all agents together, so they are not those of an A/B test.

    Args:
        users: number of users; None for those of one arm of the A/B test.
    """

    name = "interleaving"
    summary = "interleaving: agents take turns for the same users, clicks are credited to who chose"
    metrics = ("credit",)
    needs = frozenset({"users"})

    def __init__(self, users: int | None = None) -> None:
        self.users = users

    def judge(self, study: Trial) -> list[Record]:
        """See :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        began = time.perf_counter()
        n_users = self.users or study.settings.arm_users
        study.report(f"interleaving, {n_users:,} users")
        names = list(study.policies)
        mixture = MixturePolicy([study.policies[name] for name in names], np.full(len(names), 1.0 / len(names)))
        log = simulate(study.world, mixture, n_users, study.seed_of("interleaving"), executor=study.executor)
        shown = log.is_bandit
        users, place = np.unique(log["user"][shown], return_inverse=True)
        reward, propensity = log["reward"][shown], log["propensity"][shown]
        seconds = (time.perf_counter() - began) / len(names)
        records = []
        for name in names:
            own = time.perf_counter()
            credit = replay(log, study.policies[name], executor=study.executor)[shown] / (len(names) * propensity)
            sums, counts = np.bincount(place, credit * reward), np.bincount(place, credit)
            interval = ratio_interval(sums, counts, study.level)
            study.keep_raw(self.name, "credit", name, user=log["user"][shown], value=reward, weight=credit)
            details: dict[str, Any] = {"users": n_users, "decisions": float(credit.sum())}
            key = (study.world.name, self.name, name, "credit")
            took = seconds + time.perf_counter() - own
            records.append(Record.of(*key, interval, level=study.level, n=len(users), seconds=took, details=details))
        return records

    def title(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return "interleaving"

    def estimates_truth(self, metric: str) -> bool:
        """True: a rate of rewards per decision."""
        return True
