"""Which ratings are revealed: observation models and draws; re-ranking to marginals (Schnabel et al. 2016, 6.2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.rng import Stream

Floats = NDArray[np.float64]
STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
MARGINALS = (0.5263, 0.2418, 0.1445, 0.0619, 0.0255)
"""Shares of ratings 1 .. 5 among randomly chosen songs (Marlin & Zemel 2009), to which section 6.2 re-ranks ML-100K.

To four digits they are what Table 1's true MAEs say: REC_ONES is 4 p5 = .102, ROTATE 1 + 3 p1 = 2.579, COARSENED
2 p1 + p2 + p5 = 1.320; and with them the shares revealed at alpha = .25 are the printed .06, .10, .25, .42, .17.
"""


def relative_propensity(ratings: Any, alpha: float) -> Floats:
    """alpha^(4 - r) for r < 4, else 1 (section 6.2)."""
    below = np.maximum(4.0 - np.asarray(ratings, np.float64), 0.0)
    # Powers from a table: the last bit of pow() differs between machines, and a last bit can flip a draw.
    powers = np.array([1.0, alpha, alpha * alpha, alpha * alpha * alpha])
    whole = below.astype(np.int64)
    return powers[whole] if np.array_equal(whole, below) else np.asarray(alpha**below)


def alpha_scale(values: Any, shares: Any, alpha: float, density: float) -> float:
    """The k of the paper's model, with which ratings ``values`` with ``shares`` are revealed at mean ``density``.

    Raises:
        UserError: alpha or density outside (0, 1], or a k above 1.
    """
    if not (0 < alpha <= 1 and 0 < density <= 1):
        raise UserError(f"alpha and density must be in (0, 1], got {alpha:g} and {density:g}")
    # fsum rounds once, whatever the machine's vectors.
    most = math.fsum((relative_propensity(values, alpha) * np.asarray(shares)).tolist())
    if density > most * (1 + 1e-12):
        raise UserError(
            f"density {density:g} cannot be reached at alpha = {alpha:g}: k would be {density / most:.3g}; "
            f"lower density to {math.floor(1000 * most) / 1000:g} or raise alpha"
        )
    return min(density / most, 1.0)


def alpha_propensities(matrix: Any, alpha: float, density: float = 0.05) -> Floats:
    """The paper's observation model: k alpha^max(0, 4 - Y), k such that a share ``density`` is revealed on average.

    Raises:
        UserError: alpha or density outside (0, 1], or a k above 1.
    """
    values, counts = np.unique(np.asarray(matrix, np.float64), return_counts=True)
    return alpha_scale(values, counts / counts.sum(), alpha, density) * relative_propensity(matrix, alpha)


def popularity_propensities(appeal: Any, density: float) -> Floats:
    """P of each item proportional to 1 / its rank by ``appeal`` (I,), at most 1, with mean ``density``; (I,)."""
    appeal = np.asarray(appeal, np.float64)
    if not 0 < density <= 1:
        raise UserError(f"density must be in (0, 1], got {density:g}")
    n = len(appeal)
    falling = 1.0 / np.arange(1, n + 1)
    by_rank = np.ones(n)
    for certain in range(n):  # the most popular that are revealed for certain
        scale = (density * n - certain) / math.fsum(falling[certain:].tolist())
        if scale * falling[certain] <= 1.0:
            by_rank[certain:] = scale * falling[certain:]
            break
    probability = np.empty(n)
    probability[np.argsort(-appeal, kind="stable")] = by_rank
    return probability


def rerank(scores: Any, marginals: Any = MARGINALS) -> Floats:
    """Ratings 1, 2, ... by value: the bottom share ``marginals[0]`` of all entries gets 1, the next 2, and so on."""
    scores = np.asarray(scores, np.float64)
    shares = np.asarray(marginals, np.float64)
    if not (np.all(shares >= 0) and abs(shares.sum() - 1.0) < 1e-6):
        raise UserError(f"marginals must be shares that sum to 1, got {shares.tolist()}")
    order = np.argsort(scores.ravel(), kind="stable")
    edges = np.rint(np.cumsum(shares) * scores.size).astype(np.int64)
    out = np.empty(scores.size)
    out[order] = 1.0 + np.searchsorted(edges[:-1], np.arange(scores.size), side="right")
    return out.reshape(scores.shape)


def observe(propensities: Any, seed: int) -> NDArray[np.bool_]:
    """O ~ Bernoulli(P), elementwise, each cell at its own address."""
    p = np.asarray(propensities, np.float64)
    users, items = np.divmod(np.arange(p.size), p.shape[1])
    return (rng.uniforms(seed, Stream.ORGANIC, users, items) < p.ravel()).reshape(p.shape)
