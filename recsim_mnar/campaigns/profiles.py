"""Profiles: the items that each user holds at a time."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Profiles:
    """Users and the distinct items they hold at a time, D_t.

    Attributes:
        time: t.
        n_items: items are 0 .. n_items - 1.
        users: (U,) ids of those who hold an item, ascending.
        starts: (U + 1,) user j holds items[starts[j]:starts[j + 1]], in the order in which they came.
        items: (E,) int32.
        causes: (E,) number of the campaign that caused the addition, -1: the user alone.
        added: (E,) when.
    """

    time: float
    n_items: int
    users: Ints
    starts: Ints
    items: NDArray[np.int32]
    causes: NDArray[np.int16]
    added: Floats

    @classmethod
    def of(cls, log: Log, time: float, n_items: int) -> Profiles:
        """Build the profiles at a time, of items added alone or accepted from recommendations until then.

        An item counts once a user, from its first addition. Where the log has no column ``added`` a row's own time
        stands for it.

        Raises:
            UserError: the log has no times, no user holds an item yet, or an item is out of range.
        """
        columns = log.provenance.get("columns")
        if log.provenance.get("kind") == "interactions" and isinstance(columns, dict) and columns.get("time") is None:
            raise UserError(
                f"{log.provenance.get('file', 'the file')} has no times, and a reference time needs them: name the "
                "column with --time-column (time_column=)"
            )
        if not np.isfinite(time):
            raise UserError(f"a reference time must be a finite number, got {time}")
        bandit = log.is_bandit
        when = log["added" if "added" in log.columns else "time"]
        is_addition = ~bandit | (log["reward"] > 0)
        rows = np.flatnonzero(is_addition & (when <= time))  # NaN, not added, is never <= time
        if len(rows) == 0:
            hint = "the log has no addition at all"
            additions = when[is_addition & np.isfinite(when)]
            if len(additions):
                hint = f"the first addition is at {additions.min():g}"
            raise UserError(f"reference time {time:g} is without users: {hint}")
        item = np.where(bandit[rows], log["action"][rows], log["item"][rows]).astype(np.int32)
        if item.min() < 0 or item.max() >= n_items:
            raise UserError(f"items must be in 0..{n_items - 1}, the log has {int(item.max())}")
        cause = np.where(bandit[rows], 0, -1)
        if "campaign" in log.columns:
            cause = log["campaign"][rows]
        user = log["user"][rows]
        day = when[rows]
        order = np.lexsort((day, user))
        _, first = np.unique(user[order] * n_items + item[order], return_index=True)
        kept = order[np.sort(first)]
        user = user[kept]
        new = user_starts(user)
        return cls(
            float(time),
            n_items,
            user[new],
            np.append(new, len(user)).astype(np.int64),
            item[kept],
            cause[kept].astype(np.int16),
            day[kept].astype(np.float64),
        )

    @property
    def n_users(self) -> int:
        """Users who hold an item."""
        return len(self.users)

    @property
    def n_pairs(self) -> int:
        """Pairs (user, item)."""
        return len(self.items)

    def lengths(self) -> Ints:
        """(U,) number of items of each user."""
        return np.diff(self.starts)

    def owners(self) -> Ints:
        """(E,) index of each pair's user."""
        return np.repeat(np.arange(self.n_users), self.lengths())

    def n_holders(self) -> Ints:
        """(n_items,) #U_i, users who hold each item."""
        return np.bincount(self.items, minlength=self.n_items)

    def item_probabilities(self) -> Floats:
        """P_t(i) = (1/U) sum over the users who hold i of 1 / #I_u; (n_items,), summing to 1."""
        share = np.repeat(1.0 / self.lengths(), self.lengths())
        return np.bincount(self.items, share, minlength=self.n_items) / self.n_users

    def by_length(self) -> tuple[Ints, NDArray[np.uint32]]:
        """Return starts and items with users ordered by profile length."""
        order = np.argsort(self.lengths(), kind="stable")
        length = self.lengths()[order]
        starts = np.concatenate([[0], np.cumsum(length)])
        place = np.arange(self.n_pairs) - np.repeat(starts[:-1], length) + np.repeat(self.starts[order], length)
        return starts, self.items[place].astype(np.uint32)

    def to_log(self) -> Log:
        """Return the pairs as a log of organic rows, for learners."""
        n = self.n_pairs
        step = np.arange(n) - np.repeat(self.starts[:-1], self.lengths())
        event = np.full(n, schema.ORGANIC, np.int8)
        user = self.users[self.owners()]
        return Log({"user": user, "step": step, "time": self.added, "event": event, "item": self.items})

    def fingerprint(self) -> bytes:
        """Equal for profiles of the same users with the same items: 16 bytes."""
        parts = (np.array([self.n_items]), self.users, self.starts, self.items)
        return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).digest()

    def pairs(self, which: NDArray[np.bool_]) -> Profiles:
        """Return the profiles of the pairs flagged in ``which`` (E,), without users who keep none."""
        owner = self.owners()[which]
        length = np.bincount(owner, minlength=self.n_users)
        kept = np.flatnonzero(length)
        starts = np.concatenate([[0], np.cumsum(length[kept])])
        return Profiles(
            self.time, self.n_items, self.users[kept], starts, self.items[which], self.causes[which], self.added[which]
        )
