# mypy: ignore-errors
"""Jitted core of ranking: how many items score above one item, and how many as much."""

from __future__ import annotations

import numpy as np

from recsim_mnar.kernels.jit import kernel


@kernel
def above_and_tied(scores, held, above, level):
    """For each row of scores (n, n_items): the number above that of item ``held[j]``, and of others level with it.

    ``level`` is -1 where a score is not a number.
    """
    for j in range(held.size):
        row = scores[j]
        score = row[held[j]]
        more = np.int64(0)
        same = np.int64(0)
        broken = np.int64(0)
        for i in range(row.size):
            more += np.int64(row[i] > score)
            same += np.int64(row[i] == score)
            broken += np.int64(row[i] != row[i])
        above[j] = more
        level[j] = same - 1 if broken == 0 else -1
