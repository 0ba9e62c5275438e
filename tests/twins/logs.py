"""Small logs, of views alone or of given rows."""

from __future__ import annotations

import numpy as np

from recsim_mnar.log import Log


def random_log(seed: int, n_users: int, n_items: int, longest: int, power: float = 2.0) -> Log:
    generator = np.random.default_rng(seed)
    user = np.repeat(3 * np.arange(n_users) + 1, generator.integers(1, longest + 1, n_users))
    return log_of(user, item=(n_items * generator.random(len(user)) ** power).astype(np.int32))


def log_of(user, item=-1, action=-1, propensity=np.nan, reward=np.nan, time=None) -> Log:
    """Rows in the order given, users one after another; rows with an action are recommendations."""
    user, item, action, propensity, reward = np.broadcast_arrays(user, item, action, propensity, reward)
    starts = np.flatnonzero(np.diff(user, prepend=np.nan) != 0)
    step = np.arange(len(user)) - np.repeat(starts, np.diff(starts, append=len(user)))
    event = (action >= 0).astype(np.int8)
    columns = {"user": user, "step": step, "time": step if time is None else time, "event": event, "item": item}
    return Log({**columns, "action": action, "propensity": propensity, "reward": reward})
