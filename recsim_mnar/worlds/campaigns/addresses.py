"""Addresses of the campaigns world's draws: the index of each, within the stream of an item or of a user."""

from __future__ import annotations

import enum

from recsim_mnar.rng import Stream

BIRTH = Stream.CLOCK
"""Whether and when an item appears (:class:`Birth`); in other worlds the stream of times between events."""

GROUP = 0
"""Of an item in ``Stream.CATALOGUE``."""


class Item(enum.IntEnum):
    """Of an item in ``Stream.OFFSETS``."""

    RANK = 0
    APPEAL = 2
    PROMOTION = 3
    DEPLOYED_WEIGHT = 4
    NEVER_SHOWN = 5


class Birth(enum.IntEnum):
    """Of an item in :data:`BIRTH`."""

    LATE = 0
    DAY = 1


class User(enum.IntEnum):
    """Of a user in ``Stream.USER``."""

    GROUP = 0
    ACTIVITY = 1
    LATE = 2
    ARRIVAL = 3
