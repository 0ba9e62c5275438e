"""A full rating matrix from a file of ratings: completion by factorisation, then re-ranking to known marginals.

Schnabel et al. 2016, section 6.2.
"""

from __future__ import annotations

import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, factorise
from recsim_mnar.runs.files import path_of
from recsim_mnar.worlds.ratings.observation import MARGINALS, rerank

RANKS = (5, 10, 20)
PENALTIES = (2e-5, 5e-5, 1e-4, 2e-4)
FITS: dict[str, Any] = {"max_iterations": 3000, "value_tolerance": 1e-6}
"""How far a fit is taken: on ML-100K to within a thousandth of its minimum."""


@dataclass(frozen=True)
class Completion:
    """A completed matrix.

    Attributes:
        ratings: (U, I) in 1..5.
        form: rank and penalty chosen.
        accuracy: 0/1 accuracy of the rounded completion on the held-out tenth, for each form tried.
    """

    ratings: NDArray[np.float64]
    form: FactorizationConfig
    accuracy: dict[str, float]


def complete(
    ratings: Ratings,
    *,
    ranks: Sequence[int] = RANKS,
    penalties: Sequence[float] = PENALTIES,
    marginals: Any = MARGINALS,
    seed: int = 0,
) -> Completion:
    """Complete and re-rank; rank and penalty by 0/1 accuracy on a tenth of the ratings.

    Warns:
        NotConverged: a fit stopped at its limit of iterations.
    """
    held = rng.uniforms(seed, rng.Stream.FIT, np.arange(len(ratings)), 2) < 0.1
    train, test = ratings.select(~held), ratings.select(held)
    accuracy: dict[str, float] = {}
    best, chosen = -1.0, FactorizationConfig()
    for rank in ranks:
        for penalty in penalties:
            form = FactorizationConfig(rank=rank, penalty=penalty)
            fit = factorise(train, None, form, seed=seed, **FITS)
            guess = np.clip(np.rint(fit.factors.at(test.users, test.items)), 1, 5)
            accuracy[f"d={rank}, lambda={penalty:g}"] = share = float((guess == test.values).mean())
            if share > best:
                best, chosen = share, form
    full = factorise(ratings, None, chosen, seed=seed, **FITS)
    return Completion(rerank(full.factors.matrix(), marginals), chosen, accuracy)


def matrix_of_file(path: str | Path, marginals: Any, seed: int) -> tuple[NDArray[np.float64], Any]:
    """The full rating matrix (U, I) that a file stands for, and its propensities where the file has them.

    Args:
        path: a file of ratings (:func:`recsim_mnar.datasets.rating_studies.read_ratings`), completed and re-ranked; an
            ``.npy`` matrix; or an ``.npz`` file with ``ratings`` and, if there are, ``observation_propensities``, as
            ``simulate --truth`` writes it.
        marginals: shares of ratings 1 to 5 for the re-ranking.
        seed: of the completion.

    Raises:
        UserError: no such file, or one that holds neither.
    """
    path = path_of(path)
    if path.is_dir():
        raise UserError(f"ratings_file {path} is a folder: name a file")
    if path.suffix.lower() not in (".npy", ".npz"):
        from recsim_mnar.datasets.rating_studies import read_ratings

        return complete(read_ratings(path), marginals=marginals, seed=seed).ratings, None
    try:
        if path.suffix.lower() == ".npz":
            arrays = read_arrays(path)
        else:  # mapped: its header may ask for more than there is
            arrays = {"ratings": np.array(np.load(path, allow_pickle=False, mmap_mode="r"))}
    except FileNotFoundError:
        raise UserError(f"ratings_file {path} does not exist") from None
    except (ValueError, OSError, SyntaxError, tokenize.TokenError) as error:  # of its header
        raise UserError(f"ratings_file {path} holds no array: {str(error).splitlines()[0]}") from None
    if "ratings" not in arrays or arrays["ratings"].ndim != 2 or arrays["ratings"].dtype.kind not in "iuf":
        raise UserError(f"ratings_file {path} must hold 'ratings', a (users, items) matrix of numbers")
    return np.asarray(arrays["ratings"], np.float64), arrays.get("observation_propensities")
