"""Revealed ratings as a log: an organic row each, with the rating as its reward."""

from __future__ import annotations

import numpy as np

from recsim_mnar.log import schema
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.table import Log


def log_of_ratings(ratings: Ratings) -> Log:
    """A log of ratings, users and items numbered as they are; its times only count a user's rows."""
    order = np.argsort(ratings.users, kind="stable")
    user = ratings.users[order]
    step = steps_within(user)
    return Log(
        {
            "user": user,
            "step": step,
            "time": step.astype(np.float64),
            "event": np.full(len(user), schema.ORGANIC, np.int8),
            "item": ratings.items[order],
            "reward": ratings.values[order],
        },
        {"kind": "ratings"},
    )
