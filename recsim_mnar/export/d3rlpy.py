"""d3rlpy: a log as the arguments of its dataset. Propensities have no place there, so there is no way back."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.export.arrays import Decisions


def to_d3rlpy(decisions: Decisions) -> dict[str, Any]:
    """Arguments of ``d3rlpy.dataset.MDPDataset``: an episode is a user, discrete actions.

    Returns:
        ``observations`` (d, c) float32, ``actions`` (d, 1) int32, ``rewards`` (d, 1) and ``terminals`` (d,) float32,
        and ``action_size``, the number of items.
    """
    return {
        "observations": decisions.context,
        "actions": decisions.action.astype(np.int32)[:, None],
        "rewards": decisions.reward.astype(np.float32)[:, None],
        "terminals": decisions.last.astype(np.float32),
        "action_size": decisions.n_items,
    }
