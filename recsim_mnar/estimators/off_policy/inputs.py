"""Columns as they arrive, made into what the kernels read; one clear line for what cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.log.columns import Floats, RowNumbers, finite_column, refuse_rows

HIGHEST_TARGET = 1.0 + 1e-6
"""A softmax in float32 may pass 1 by a rounding."""


def model_column(values: Any, name: str, reward: Floats, largest_weight: float) -> Floats:
    """As :func:`finite_column`, and fourth powers of sums of weighted values are numbers."""
    array = finite_column(values, name, reward.size)
    limit = 1e75 / (max(largest_weight, 1.0) * reward.size)
    refuse_rows(np.abs(array) > limit, array, name, "is too large; use larger units, as for the reward")
    return array


def check_rows(
    reward: Floats,
    propensity: Floats,
    target: Floats,
    names: tuple[str, str, str],
    numbers: RowNumbers = None,
) -> None:
    """Raise UserError for the first row that is no data: propensity outside (0, 1], negative target, missing reward.

    Args:
        reward: (n,).
        propensity: (n,).
        target: (n,).
        names: of the three columns, for messages.
        numbers: (n,) row numbers for messages, where the rows are a file's.
    """
    refuse_rows(
        ~((propensity > 0.0) & (propensity <= 1.0)),
        propensity,
        names[1],
        "is outside (0, 1]; a logged action has a positive probability",
        numbers,
    )
    refuse_rows(
        ~((target >= 0.0) & (target <= HIGHEST_TARGET)),
        target,
        names[2],
        "is no probability; give the target policy's probability of the logged action",
        numbers,
    )
    refuse_rows(
        ~np.isfinite(reward), reward, names[0], "is not a finite number; drop the row or fill in the reward", numbers
    )


def check_level(level: float) -> float:
    """``level`` as a float in (0, 1), or UserError."""
    return level_of(level)


def check_clip(clip: float | None) -> float:
    """``clip`` as a positive float, inf for None, or UserError."""
    if clip is None:
        return float("inf")
    if isinstance(clip, bool) or not isinstance(clip, (int, float, np.number)) or not float(clip) > 0.0:
        raise UserError(f"clip must be a positive number (weights are cut there), got {clip!r}; None means no clipping")
    return float(clip)


def level_of_best(level: float, k: int) -> float:
    """The level at which each of k intervals is made, so that what is said of the best of them holds at ``level``.

    The best of k estimates is the luckiest too; all k intervals hold together at ``level`` if each holds at
    1 - (1 - level) / k (Bonferroni), and then so does the winner's, whoever it is.

    Args:
        level: in (0, 1).
        k: how many policies the best is one of, 1 and more.
    """
    return 1.0 - (1.0 - check_level(level)) / whole_number(k, "k", least=1)
