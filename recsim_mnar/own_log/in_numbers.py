"""A summary of a log from one pass over its files, for the report of ``simulate``."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.answers.weights import RatioBins
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.scores import Rows
from recsim_mnar.estimators.sums import PolicySums, ScoreSums
from recsim_mnar.estimators.value import value_of
from recsim_mnar.log.blocks import LogBlocks
from recsim_mnar.log.columns import Clusters
from recsim_mnar.log.rows import user_begins
from recsim_mnar.log.table import Log

Ints = NDArray[np.int64]
_USERS = 4096
"""Number of users per block."""
LEVEL = 0.95
"""Nominal coverage of the interval of the mean reward."""


@dataclass
class Lengths:
    """Counts of lengths, whose memory grows only with the longest one.

    Attributes:
        counts: (longest + 1,) number of each length; index 0 is not used.
    """

    counts: Ints = field(default_factory=lambda: np.zeros(1, np.int64))

    def extend(self, lengths: Ints) -> None:
        """Add lengths (n,) of at least 1 to the counts."""
        self.counts = _sum(self.counts, lengths)

    @property
    def number(self) -> int:
        """Number of lengths."""
        return int(self.counts.sum())

    @property
    def longest(self) -> int:
        """The largest length, 0 without any."""
        return int(np.flatnonzero(self.counts).max(initial=0))

    @property
    def median(self) -> int:
        """The median length, 0 without any."""
        if self.number:
            return int(np.searchsorted(np.cumsum(self.counts), self.number / 2))
        return 0

    def at_least(self) -> tuple[list[int], list[float]]:
        """Return the lengths that occur, ascending, and for each the share of all lengths that are at least as long."""
        occurring = np.flatnonzero(self.counts)
        longer = self.counts[::-1].cumsum()[::-1]
        return occurring.tolist(), (longer[occurring] / max(self.number, 1)).tolist()


@dataclass
class LogNumbers:
    """Summary of a log.

    Attributes:
        provenance: provenance of the log.
        rows: number of rows of all kinds.
        users: number of users.
        views: (i,) number of views of each item, up to the highest item with any.
        shown: (i,) number of recommendations of each item, up to the highest item with any.
        by_user: by kind (``organic`` or ``bandit``), the numbers of events per user; users without any are left out.
        stretches: by kind, the lengths of runs of consecutive events of that kind.
        propensities: propensities of recommendations, in bins.
        rewards: mean reward of a recommendation: ``value``, ``low``, ``high``, ``level``; None without recommendations.
        kinds_of_reward: distinct rewards; after three of them the set may be incomplete.
        days: first and last time.
    """

    provenance: dict[str, Any]
    rows: int = 0
    users: int = 0
    views: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    shown: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    by_user: dict[str, Lengths] = field(default_factory=lambda: {"organic": Lengths(), "bandit": Lengths()})
    stretches: dict[str, Lengths] = field(default_factory=lambda: {"organic": Lengths(), "bandit": Lengths()})
    propensities: RatioBins = field(default_factory=RatioBins)
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
    begins = user_begins(user)
    number = np.cumsum(begins) - 1  # of the user of each row, within the block
    n_users = int(number[-1]) + 1
    found.rows = found.rows + len(user)
    found.users = found.users + n_users
    found.views = _sum(found.views, log["item"][~decision_rows])
    found.shown = _sum(found.shown, log["action"][decision_rows])
    # A run begins with a user, and where the kind of event changes.
    run_begins = begins.copy()
    run_begins[1:] |= decision_rows[1:] != decision_rows[:-1]
    starts = np.flatnonzero(run_begins)
    lengths = np.diff(np.append(starts, len(user)))
    for kind, rows in (("organic", ~decision_rows), ("bandit", decision_rows)):
        of_user = np.bincount(number[rows], minlength=n_users)
        found.by_user[kind].extend(of_user[of_user > 0])
        found.stretches[kind].extend(lengths[rows[starts]])
    propensity = log["propensity"][decision_rows]
    found.propensities.extend(propensity[propensity > 0.0])
    if len(found.kinds_of_reward) < 3:  # three different rewards are not binary: no more are needed
        found.kinds_of_reward.update(np.unique(log["reward"][decision_rows])[:3].tolist())
    first, last = found.days
    found.days = min(first, float(log["time"].min())), max(last, float(log["time"].max()))


def _sum(counts: Ints, items: NDArray[np.integer]) -> Ints:
    """Return the counts (i,) plus those of further items (n,), extended to the highest item."""
    total = np.bincount(items, minlength=len(counts))
    total[: len(counts)] += counts
    return total
