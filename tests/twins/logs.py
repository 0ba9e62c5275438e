"""Small logs of views."""

from __future__ import annotations

import numpy as np

from recsim_mnar.log import Log


def random_log(seed: int, n_users: int, n_items: int, longest: int, power: float = 2.0) -> Log:
    generator = np.random.default_rng(seed)
    length = generator.integers(1, longest + 1, n_users)
    user = np.repeat(3 * np.arange(n_users) + 1, length)
    step = np.concatenate([np.arange(n) for n in length])
    item = (n_items * generator.random(len(user)) ** power).astype(np.int32)
    return Log({"user": user, "step": step, "time": step, "event": np.zeros(len(user), np.int8), "item": item})
