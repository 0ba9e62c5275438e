"""Lives: what each user of a log did, row by row, in the form that statistics of real and simulated users share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins
from recsim_mnar.log.table import Log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EPOCH = 1e8
"""Times above this are taken for seconds since 1970."""


@dataclass(frozen=True)
class Lives:
    """Rows of users 0 .. n_users - 1, each user's together and in order; n rows.

    Attributes:
        n_users: users, all of whom have a row.
        n_items: items are 0 .. n_items - 1.
        owner: (n,) user of each row.
        shown: (n,) whether it is a recommendation; else a view (or a rating).
        item: (n,) viewed, rated or shown.
        reward: (n,) of recommendations, or the rating; NaN where there is none.
        time: (n,).
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
        new = user_begins(log["user"])
        shown = log["event"] == schema.BANDIT
        item = np.where(shown, log["action"], log["item"]).astype(np.int64)
        return cls(int(new.sum()), n_items, np.cumsum(new) - 1, shown, item,
                   log["reward"].astype(np.float64), log["time"].astype(np.float64))  # fmt: skip

    def rows(self, which: NDArray[np.bool_]) -> Lives:
        """Some rows; users without any stay counted."""
        return self._with(**{name: getattr(self, name)[which] for name in _COLUMNS})

    def users(self, which: Ints) -> Lives:
        """Some users, numbered anew in the order given."""
        place = np.full(self.n_users, -1, np.int64)
        place[which] = np.arange(len(which))
        kept = self.rows(place[self.owner] >= 0)
        owner = place[kept.owner]
        order = np.argsort(owner, kind="stable")
        columns = {name: getattr(kept, name)[order] for name in _COLUMNS if name != "owner"}
        return kept._with(n_users=len(which), owner=owner[order], **columns)

    @staticmethod
    def joined(parts: Sequence[Lives]) -> Lives:
        """The users of several logs over the same items, one after another."""
        first = np.cumsum([0] + [part.n_users for part in parts])
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        columns["owner"] = np.concatenate([part.owner + start for part, start in zip(parts, first, strict=False)])
        return Lives(int(first[-1]), max(part.n_items for part in parts), **columns)

    def _with(self, **changed: object) -> Lives:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return Lives(**{**values, **changed})

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
        begins = user_begins(self.owner)
        start = np.flatnonzero(begins)
        return np.arange(len(self.owner)) - start[np.cumsum(begins) - 1] if len(start) else np.zeros(0, np.int64)

    def runs(self, gap: float | None = None) -> tuple[Ints, Ints]:
        """Runs of rows of one kind and user; with ``gap``, cut also where more time than that passes.

        Returns:
            (n,) number of each row's run, ascending, and (n,) its place in it from 0.
        """
        if len(self.owner) == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        new = user_begins(self.owner)
        new[1:] |= self.shown[1:] != self.shown[:-1]
        if gap is not None:
            new[1:] |= np.diff(self.time) > gap
        run = np.cumsum(new) - 1
        return run, np.arange(len(run)) - np.flatnonzero(new)[run]

    def earlier_views(self) -> Ints:
        """(n,) how often the row's user has viewed the row's item in earlier rows."""
        pair = self.owner * self.n_items + self.item
        order = np.argsort(pair, kind="stable")
        sorted_pair, view = pair[order], (~self.shown[order]).astype(np.int64)
        before = np.cumsum(view) - view
        first = np.flatnonzero(np.append(True, sorted_pair[1:] != sorted_pair[:-1])) if len(order) else order
        group = np.zeros(len(order), np.int64)
        group[first[1:]] = 1
        found = np.empty(len(order), np.int64)
        found[order] = before - before[first][np.cumsum(group)] if len(order) else before
        return found

    def gaps(self) -> tuple[Ints, Floats]:
        """Owner and length of each stretch of time between two rows of one user that follow each other."""
        same = self.owner[1:] == self.owner[:-1]
        return self.owner[1:][same], np.diff(self.time)[same]

    @functools.cached_property
    def dated(self) -> bool:
        """Whether times are seconds since 1970."""
        return len(self.time) > 0 and float(self.time.min()) > EPOCH

    @functools.cached_property
    def ticks(self) -> bool:
        """Whether time only counts a user's rows."""
        _, lengths = self.gaps()
        return len(lengths) == 0 or bool(np.all(lengths == 1.0))


_COLUMNS = ("owner", "shown", "item", "reward", "time")
