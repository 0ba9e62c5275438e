"""The weights that estimates of a log rest on, by policy: what a page shows beside the numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import BanditFile


@dataclass(frozen=True)
class WeighedLog:
    """What a page says of the rows behind estimates; nothing of it is a user's.

    Attributes:
        rows: number that the estimates rest on.
        users: number of users, None where rows are taken as independent.
        mean_reward: of these rows: what the policy that logged them earned.
        counts: rows left out and the like, as :class:`BanditFile` counts them.
        weights: (n,) target / propensity by policy; empty where propensities are not known.
    """

    rows: int
    users: int | None
    mean_reward: float
    counts: dict[str, int] = field(default_factory=dict)
    weights: dict[str, Floats] = field(default_factory=dict)

    @staticmethod
    def of(log: BanditFile) -> WeighedLog:
        """The weights of a log as it was read for the estimates."""
        users = None if log.user is None else int(np.unique(log.user.codes).size)
        weights = {}
        if log.propensity is not None:
            weights = {name: values / log.propensity for name, values in log.policies.items()}
        return WeighedLog(len(log), users, float(log.reward.mean()), log.left_out(), weights)
