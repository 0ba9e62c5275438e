"""Lists of items made of scores, and whether lists are any."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.log.exposures import Exposures


def top_items(scores: Any, n: int, *, seed: int = 0) -> NDArray[np.int64]:
    """The n items of largest score of each user, best first, (U, n); ties broken by addressed draws.

    Raises:
        UserError: n larger than the number of items, or a score that is not a number.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2:
        raise UserError(f"scores must be (users, items), got shape {scores.shape}")
    check_length(n, scores.shape[1])
    if np.isnan(scores).any():
        u, i = np.argwhere(np.isnan(scores))[0]
        raise UserError(f"the score of user {u} for item {i} is not a number")
    out = np.empty((len(scores), n), np.int64)
    items = np.arange(scores.shape[1])
    for u, own in enumerate(scores):
        out[u] = np.lexsort((rng.uniforms(seed, rng.Stream.PROTOCOL, u, items), -own))[:n]
    return out


def checked_lists(lists: Any, exposures: Exposures, n_periods: int) -> NDArray[np.int64]:
    """Lists as (1 or P, U, N).

    Raises:
        UserError: another shape, an item out of range or twice in a list, N larger than the number of items.
    """
    table = np.asarray(lists)
    table = table[None] if table.ndim == 2 else table
    if table.ndim != 3 or table.shape[0] not in (1, n_periods) or table.shape[1] != exposures.n_users:
        raise UserError(
            f"lists must have shape ({exposures.n_users}, N), or ({n_periods}, {exposures.n_users}, N) for the "
            f"periods; got {np.shape(lists)}"
        )
    check_length(table.shape[2], exposures.n_items)
    if not np.issubdtype(table.dtype, np.integer):
        raise UserError(f"lists must hold integers, got {table.dtype}")
    if table.min() < 0 or table.max() >= exposures.n_items:
        bad = table[(table < 0) | (table >= exposures.n_items)][0]
        raise UserError(f"a list has item {bad}, outside 0..{exposures.n_items - 1}")
    ordered = np.sort(table, axis=2)
    twice = ordered[:, :, 1:] == ordered[:, :, :-1]
    if twice.any():
        k, u, j = np.argwhere(twice)[0]
        raise UserError(f"the list of user {u} has item {ordered[k, u, j]} twice")
    return table.astype(np.int64)


def check_length(length: int, n_items: int) -> None:
    """Raise UserError where lists of this length cannot be made."""
    if not 1 <= length <= n_items:
        raise UserError(f"lists of N = {length} items cannot be made of {n_items} items: choose N in 1..{n_items}")
