"""A summary of a log from one pass over its files, for the report of ``simulate``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.scores import Rows
from recsim_mnar.estimators.sums import PolicySums, ScoreSums
from recsim_mnar.estimators.value import value_of
from recsim_mnar.log.blocks import LogBlocks
from recsim_mnar.log.columns import Clusters
from recsim_mnar.log.rows import user_numbers
from recsim_mnar.log.schema import EVENTS
from recsim_mnar.log.table import Log

Ints = NDArray[np.int64]
_USERS = 4096
"""Number of users per block."""
LEVEL = 0.95
"""Nominal coverage of the interval of the mean reward."""


@dataclass
class LogNumbers:
    """Summary of a log.

    Attributes:
        provenance: provenance of the log.
        rows: number of rows of all kinds.
        users: number of users.
        views: (i,) number of views of each item, up to the highest item with any.
        shown: (i,) number of recommendations of each item, up to the highest item with any.
        by_user: by kind (``organic`` or ``bandit``), (most + 1,) number of users by their number of such events; users
            without any are left out.
        rewards: mean reward of a recommendation: ``value``, ``low``, ``high``, ``level``; None without recommendations.
        kinds_of_reward: distinct rewards; after three of them the set may be incomplete.
        days: first and last time.
    """

    provenance: dict[str, Any]
    rows: int = 0
    users: int = 0
    views: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    shown: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    by_user: dict[str, Ints] = field(default_factory=lambda: dict.fromkeys(EVENTS, np.zeros(1, np.int64)))
    rewards: dict[str, float] | None = None
    kinds_of_reward: set[float] = field(default_factory=set)
    days: tuple[float, float] = (np.inf, -np.inf)

    @property
    def binary(self) -> bool:
        """True if every reward is 0 or 1."""
        return self.kinds_of_reward <= {0.0, 1.0}

    @property
    def n_views(self) -> int:
        """Number of views."""
        return int(self.views.sum())

    @property
    def n_shown(self) -> int:
        """Number of recommendations."""
        return int(self.shown.sum())


def log_in_numbers(path: str | os.PathLike[str]) -> LogNumbers:
    """Summarise a log that ``simulate`` wrote, in memory that does not grow with it.

    Args:
        path: path of the log, or of the folder that holds it.

    Raises:
        UserError: the path does not exist, files differ from their receipts, or this package did not write the log.
    """
    blocks = LogBlocks.open(path)
    if blocks is None:
        raise UserError(f"{path} is not a log that simulate wrote: doctor says what it holds")
    numbers = LogNumbers(blocks.provenance)
    sums: PolicySums | None = None
    for log in blocks.blocks(_USERS, blocks.survey().with_gaps):
        _add(numbers, log)
        decision_rows = log.is_bandit
        if decision_rows.any():
            reward = log["reward"][decision_rows]
            # The mean reward is the IPS value of the logging policy: weights of 1, and no unsupported actions.
            ones = np.ones(len(reward))
            users = Clusters(log["user"][decision_rows], None)
            of_block = PolicySums.of_rows(Rows.of(reward, ones, ones, clusters=users, missing=np.zeros(len(reward))))
            sums = of_block if sums is None else sums + of_block
    if sums is not None:
        estimate = value_of(ScoreSums.weighted(sums, ratio=False), "ips", facts=Facts(), level=LEVEL)
        numbers.rewards = {"value": estimate.value, "low": estimate.low, "high": estimate.high, "level": LEVEL}
    return numbers


def _add(found: LogNumbers, log: Log) -> None:
    """Add the rows of a block of whole users to a summary, in place, except for the mean reward."""
    user = log["user"]
    decision_rows = log.is_bandit
    if not len(user):
        return
    number = user_numbers(user)
    n_users = int(number[-1]) + 1
    found.rows = found.rows + len(user)
    found.users = found.users + n_users
    found.views = _sum(found.views, log["item"][~decision_rows])
    found.shown = _sum(found.shown, log["action"][decision_rows])
    for kind, rows in (("organic", ~decision_rows), ("bandit", decision_rows)):
        of_user = np.bincount(number[rows], minlength=n_users)
        found.by_user[kind] = _sum(found.by_user[kind], of_user[of_user > 0])
    if len(found.kinds_of_reward) < 3:  # three different rewards are not binary: no more are needed
        found.kinds_of_reward.update(np.unique(log["reward"][decision_rows])[:3].tolist())
    first, last = found.days
    found.days = min(first, float(log["time"].min())), max(last, float(log["time"].max()))


def _sum(counts: Ints, items: NDArray[np.integer]) -> Ints:
    """Return the counts (i,) plus those of further items (n,), extended to the highest item."""
    total = np.bincount(items, minlength=len(counts))
    total[: len(counts)] += counts
    return total
