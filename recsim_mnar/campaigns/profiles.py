"""Profiles: the items that each user holds at a given time."""

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
    """Profiles D_t: U users and the distinct items that they hold at time t, E pairs in all.

    Attributes:
        time: the time t.
        n_items: number of items in the catalogue.
        users: (U,) ids of users who hold an item, ascending.
        starts: (U + 1,) bounds in ``items``: user j holds items[starts[j]:starts[j + 1]], in the order of additions.
        items: (E,) items.
        causes: (E,) number of the campaign that caused the addition, -1 if none did.
        added: (E,) time of the addition.
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
        """Build the profiles at a time from a log: items added unaided or accepted from recommendations up to then.

        An item that a user adds repeatedly counts from its first addition. The time of an addition is in the column
        ``added``, or in ``time`` if the log has no such column.

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
        rows = np.flatnonzero(is_addition & (when <= time))  # NaN, which means not added, is never <= time
        if len(rows) == 0:
            hint = "the log has no addition at all"
            additions = when[is_addition & np.isfinite(when)]
            if len(additions):
                hint = f"the first addition is at {additions.min():g}"
            raise UserError(f"reference time {time:g} is without users: {hint}")
        item = np.where(bandit[rows], log["action"][rows], log["item"][rows]).astype(np.int32)
        if item.min() < 0 or item.max() >= n_items:
            raise UserError(f"items must be in 0..{n_items - 1}, the log has {int(item.max())}")
        cause = np.where(bandit[rows], 0, -1)  # without numbers, all recommendations count as campaign 0
        if "campaign" in log.columns:
            cause = log["campaign"][rows]
        user = log["user"][rows]
        day = when[rows]
        order = np.lexsort((day, user))
        # One number per pair of user and item; np.unique gives the first position of each in the order of time.
        _, first_additions = np.unique(user[order] * n_items + item[order], return_index=True)
        first_rows = order[np.sort(first_additions)]
        user = user[first_rows]
        starts = user_starts(user)
        return cls(
            time=float(time),
            n_items=n_items,
            users=user[starts],
            starts=np.append(starts, len(user)).astype(np.int64),
            items=item[first_rows],
            causes=cause[first_rows].astype(np.int16),
            added=day[first_rows].astype(np.float64),
        )

    @property
    def n_users(self) -> int:
        """Return the number of users, each of whom holds an item."""
        return len(self.users)

    @property
    def n_pairs(self) -> int:
        """Return the number of pairs (user, item)."""
        return len(self.items)

    def lengths(self) -> Ints:
        """Return the number (U,) of each user's items."""
        return np.diff(self.starts)

    def owners(self) -> Ints:
        """Return the index (E,) in ``users`` of each pair's user."""
        return np.repeat(np.arange(self.n_users), self.lengths())

    def n_holders(self) -> Ints:
        """Return the number (n_items,) of users who hold each item, #U_i."""
        return np.bincount(self.items, minlength=self.n_items)

    def item_probabilities(self) -> Floats:
        """Return the item probabilities P_t(i) (n_items,), which sum to 1.

        They are those of drawing a user, then one of the user's items, both uniformly: (1/U) times the sum of 1 / #I_u
        over the users who hold i.
        """
        share = np.repeat(1.0 / self.lengths(), self.lengths())
        return np.bincount(self.items, share, minlength=self.n_items) / self.n_users

    def by_length(self) -> tuple[Ints, NDArray[np.uint32]]:
        """Reorder the users by the number of their items, fewest first.

        Returns:
            (U + 1,) bounds of each user's items.
            (E,) items.
        """
        order = np.argsort(self.lengths(), kind="stable")
        length = self.lengths()[order]
        starts = np.concatenate([[0], np.cumsum(length)])
        # Place of each pair in ``items``: its number among the user's pairs, plus the user's start there.
        old_place = np.arange(self.n_pairs) - np.repeat(starts[:-1], length) + np.repeat(self.starts[order], length)
        return starts, self.items[old_place].astype(np.uint32)

    def to_log(self) -> Log:
        """Return the pairs as a log of organic rows, for learners."""
        n = self.n_pairs
        step = np.arange(n) - np.repeat(self.starts[:-1], self.lengths())
        event = np.full(n, schema.ORGANIC, np.int8)
        user = self.users[self.owners()]
        return Log({"user": user, "step": step, "time": self.added, "event": event, "item": self.items})

    def fingerprint(self) -> bytes:
        """Return 16 bytes that identify the users and their items."""
        parts = (np.array([self.n_items]), self.users, self.starts, self.items)
        return hashlib.blake2b(b"".join(part.tobytes() for part in parts), digest_size=16).digest()

    def pairs(self, which: NDArray[np.bool_]) -> Profiles:
        """Return the profiles with only the pairs flagged in ``which`` (E,), without users who have none of them."""
        owner = self.owners()[which]
        length = np.bincount(owner, minlength=self.n_users)
        left_users = np.flatnonzero(length)
        return Profiles(
            time=self.time,
            n_items=self.n_items,
            users=self.users[left_users],
            starts=np.concatenate([[0], np.cumsum(length[left_users])]),
            items=self.items[which],
            causes=self.causes[which],
            added=self.added[which],
        )
