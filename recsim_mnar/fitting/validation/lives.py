"""Lives: what each user of a log did, row by row, in the form that statistics of real and simulated users share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log import schema
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import steps_within, user_begins, user_numbers
from recsim_mnar.log.table import Log

_COLUMNS = ("owner", "shown", "item", "reward", "time")


@dataclass(frozen=True)
class Lives:
    """Rows of users 0 .. n_users - 1, each of whom has one, a user's together and in order; columns (n,).

    ``owner`` is a row's user; ``shown``: whether it is a recommendation, else a view or a rating, of the ``item``;
    ``reward``: of a recommendation, or the rating; NaN where there is none.
    """

    n_users: int
    n_items: int
    owner: Ints
    shown: NDArray[np.bool_]
    item: Ints
    reward: Floats
    time: Floats

    @classmethod
    def of(cls, log: Log, n_items: int) -> Lives:
        """The lives of a log, whose rows are ordered by (user, step)."""
        owner = user_numbers(log["user"])
        shown = log["event"] == schema.BANDIT
        item = np.where(shown, log["action"], log["item"]).astype(np.int64)
        reward, time = (log[name].astype(np.float64) for name in ("reward", "time"))
        return cls(int(owner[-1]) + 1 if len(owner) else 0, n_items, owner, shown, item, reward, time)

    def rows(self, which: NDArray[np.bool_]) -> Lives:
        """Some rows; users without any stay counted."""
        return dataclasses.replace(self, **{name: getattr(self, name)[which] for name in _COLUMNS})

    @staticmethod
    def joined(parts: Sequence[Lives]) -> Lives:
        """The users of several logs over the same items, one after another."""
        first = np.cumsum([0] + [part.n_users for part in parts])
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        columns["owner"] = np.concatenate([part.owner + start for part, start in zip(parts, first, strict=False)])
        return Lives(int(first[-1]), max(part.n_items for part in parts), **columns)

    @functools.cached_property
    def views(self) -> Lives:
        """The organic rows."""
        return self.rows(~self.shown)

    @functools.cached_property
    def decisions(self) -> Lives:
        """The recommendations."""
        return self.rows(self.shown)

    @functools.cached_property
    def rates(self) -> bool:
        """Whether the organic rows are ratings."""
        return bool(np.isfinite(self.reward[~self.shown]).any())

    def per_user(self, values: Floats | None = None) -> Floats:
        """(n_users,) sums over each user's rows, of 1 where no values are given."""
        return np.bincount(self.owner, values, minlength=self.n_users).astype(np.float64)

    def position(self) -> Ints:
        """(n,) place of each row among its user's, from 0."""
        return steps_within(self.owner)

    def runs(self, gap: float | None = None) -> tuple[Ints, Ints]:
        """(n,) number of each row's run, of one kind and user and without a longer gap, and (n,) its place from 0."""
        new = user_begins(self.owner)
        new[1:] |= self.shown[1:] != self.shown[:-1]
        if gap is not None:
            new[1:] |= np.diff(self.time) > gap
        run = np.cumsum(new) - 1
        return run, steps_within(run)

    def earlier(self, counted: NDArray[np.bool_]) -> Ints:
        """(n,) how many earlier rows of the same user and item are marked."""
        pair = self.owner * self.n_items + self.item
        order = np.argsort(pair, kind="stable")
        first = user_begins(pair[order])
        before: Ints = np.cumsum(counted[order]) - counted[order]
        found = np.empty(len(order), np.int64)
        found[order] = before - before[first][np.cumsum(first) - 1]
        return found

    def gaps(self) -> tuple[Ints, Floats]:
        """Owner and length of each stretch of time between two rows of one user that follow each other."""
        same = self.owner[1:] == self.owner[:-1]
        return self.owner[1:][same], np.diff(self.time)[same]

    @functools.cached_property
    def dated(self) -> bool:
        """Whether times are seconds since 1970, for which those above 1e8 are taken."""
        return len(self.time) > 0 and float(self.time.min()) > 1e8

    @functools.cached_property
    def ticks(self) -> bool:
        """Whether time only counts a user's rows."""
        return bool(np.all(self.gaps()[1] == 1.0))
