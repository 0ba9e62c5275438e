"""Interests over which integrals are taken: the same even points in every world, not a sample."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CELLS = 2_000_000


def n_points(n_items: int, most: int = 4096) -> int:
    """How many points a catalogue's size allows, a power of two."""
    allowed = min(most, max(_CELLS // max(n_items, 1), 256))
    return 1 << int(np.floor(np.log2(allowed)))


def interests_at_views(n: int, n_factors: int, mean_views: float, drift: float) -> Floats:
    """(n, K) interests of unit first variance at a view drawn from all views.

    Args:
        n: points, a power of two.
        n_factors: K.
        mean_views: of a user, whose number is geometric.
        drift: variance of the interests' drift an event.
    """
    uniform, normal = _points(n, n_factors)
    event = np.floor(np.log1p(-uniform) / np.log(max(1.0 - 1.0 / max(mean_views, 1.0 + 1e-9), 1e-12)))
    return normal * np.sqrt(1.0 + drift * event)[:, None]


@functools.lru_cache(maxsize=8)
def _points(n: int, n_factors: int) -> tuple[Floats, Floats]:
    """Sobol's points: a uniform and K normals, each coordinate's mean 0 and variance 1."""
    from scipy.special import ndtri
    from scipy.stats.qmc import Sobol

    points = Sobol(n_factors + 1, scramble=False).random(n) + 0.5 / n
    normal = ndtri(points[:, 1:])
    normal = (normal - normal.mean(axis=0)) / np.maximum(normal.std(axis=0), 1e-12)
    return points[:, 0], normal
