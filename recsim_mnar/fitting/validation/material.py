"""What statistics are made of: the lives of real and simulated users, and what is known of the items on both sides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsim_mnar.fitting.validation.lives import Floats, Lives

DIRECTIONS = 6


@dataclass(frozen=True)
class Material:
    """What statistics are made of.

    Attributes:
        lives: of all users, real and simulated.
        same_items: whether an item's number means the same on both sides.
        clock: whether times are known on both sides.
        items: (n_items, d) directions of items: those that the same users meet lie together; None without
            ``same_items``.
    """

    lives: Lives
    same_items: bool
    clock: bool
    items: Floats | None


def prepared(lives: Lives, *, same_items: bool, clock: bool) -> Material:
    """The material of all users' lives."""
    directions = directions_of(lives.views) if same_items and (~lives.shown).any() else None
    return Material(lives, same_items, clock, directions)


def directions_of(views: Lives, d: int = DIRECTIONS) -> Floats | None:
    """(n_items, d) items as directions, by correspondence analysis of who met what; None where there are too few."""
    from scipy import sparse
    from scipy.sparse.linalg import svds

    ones = np.ones(len(views.owner))
    counts = sparse.csr_array((ones, (views.owner, views.item)), shape=(views.n_users, views.n_items))
    users, items = views.per_user(), np.bincount(views.item, minlength=views.n_items).astype(np.float64)
    if min(np.sum(users > 0), np.sum(items > 0)) <= d + 2:
        return None
    left = sparse.diags_array(1.0 / np.sqrt(np.maximum(users, 1.0)))
    # Items met a few times would have directions of noise: they are drawn towards none.
    right = sparse.diags_array(1.0 / np.sqrt(items + items.mean()))
    _, sizes, rows = svds((left @ counts @ right).tocsr(), k=d + 1, v0=np.ones(min(counts.shape)))
    kept = np.argsort(-sizes)[1:]
    found = (right @ rows[kept].T) * np.sqrt(max(float(items.sum()), 1.0))
    return np.asarray(found, np.float64)
