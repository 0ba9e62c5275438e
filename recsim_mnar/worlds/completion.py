"""A full rating matrix from a file of ratings: completion by factorisation, then re-ranking to known marginals.

Schnabel et al. 2016, section 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.factorization import Form, factorise
from recsim_mnar.ratings import Ratings
from recsim_mnar.worlds.ratings import MARGINALS, rerank

RANKS = (5, 10, 20)
PENALTIES = (2e-5, 5e-5, 1e-4, 2e-4)


@dataclass(frozen=True)
class Completion:
    """A completed matrix.

    Attributes:
        ratings: (U, I) in 1..5.
        form: rank and penalty chosen.
        accuracy: 0/1 accuracy of the rounded completion on the held-out tenth, for each form tried.
    """

    ratings: NDArray[np.float64]
    form: Form
    accuracy: dict[str, float]


def complete(
    ratings: Ratings,
    *,
    ranks: Sequence[int] = RANKS,
    penalties: Sequence[float] = PENALTIES,
    marginals: Any = MARGINALS,
    seed: int = 0,
) -> Completion:
    """Complete and re-rank; rank and penalty by 0/1 accuracy on a tenth of the ratings."""
    held = rng.uniforms(seed, rng.Stream.FIT, np.arange(len(ratings)), 2) < 0.1
    train, test = ratings.select(~held), ratings.select(held)
    accuracy: dict[str, float] = {}
    best, chosen = -1.0, Form()
    for rank in ranks:
        for penalty in penalties:
            form = Form(rank=rank, penalty=penalty)
            fit = factorise(
                train, None, form, seed=seed, solver="als", max_iterations=30, value_tolerance=1e-4, warn=False
            )
            guess = np.clip(np.rint(fit.factors.at(test.users, test.items)), 1, 5)
            accuracy[f"d={rank}, lambda={penalty:g}"] = share = float((guess == test.values).mean())
            if share > best:
                best, chosen = share, form
    full = factorise(
        ratings, None, chosen, seed=seed, solver="als", max_iterations=60, value_tolerance=1e-5, warn=False
    )
    return Completion(rerank(full.factors.matrix(), marginals), chosen, accuracy)
