"""Whole grids of users and items, of a period of exposures."""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.purchases.exposures import Exposures


def dense(exposures: Exposures, time: int) -> tuple[Any, Any]:
    """Flags (U, I) of the recommended and of the purchased cells of one period."""
    rows = exposures.rows_of(time)
    recommended = np.zeros((exposures.n_users, exposures.n_items), bool)
    purchased = np.zeros_like(recommended)
    recommended[exposures.user[rows], exposures.item[rows]] = exposures.recommended[rows]
    purchased[exposures.user[rows], exposures.item[rows]] = exposures.purchased[rows]
    return recommended, purchased
