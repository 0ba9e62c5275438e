"""The weights that estimates of a log rest on, by policy: what a page shows beside the numbers."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from recsim_mnar.log.column_files import read_columns
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


def weighed_file(path: str | os.PathLike[str], policies: Sequence[str], *, cluster: str | None = None) -> WeighedLog:
    """The weights of a log of our own; arguments as :func:`recsim_mnar.log.column_files.read_columns`."""
    log = read_columns(os.fspath(path), list(policies), cluster=cluster)
    users = None if log.cluster is None else int(np.unique(log.cluster.codes).size)
    weights = {name: log.others[name] / log.propensity for name in policies}
    return WeighedLog(len(log.reward), users, float(log.reward.mean()), weights=weights)


def weighed_own_log(log: BanditFile) -> WeighedLog:
    """The weights of a log of one's own, as it was read for the estimates."""
    users = None if log.user is None else int(np.unique(log.user.codes).size)
    weights = {}
    if log.propensity is not None:
        weights = {name: values / log.propensity for name, values in log.policies.items()}
    return WeighedLog(len(log), users, float(log.reward.mean()), dict(log.counts), weights)
