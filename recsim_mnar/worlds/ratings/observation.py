"""Revealed ratings: observation models and draws; matrices completed and re-ranked (Schnabel et al. 2016)."""

from __future__ import annotations

import math
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
from recsim_mnar.rng import Stream
from recsim_mnar.runs.files import path_of

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
    floor = below.astype(np.int64)
    if np.array_equal(floor, below):
        return powers[floor]
    return np.asarray(alpha**below)


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

    ratings: Floats
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
    train = ratings.select(~held)
    test = ratings.select(held)
    accuracy: dict[str, float] = {}
    best = -1.0
    chosen = FactorizationConfig()
    for rank in ranks:
        for penalty in penalties:
            form = FactorizationConfig(rank=rank, penalty=penalty)
            fit = factorise(train, None, form, seed=seed, **FITS)
            guess = np.clip(np.rint(fit.factors.at(test.users, test.items)), 1, 5)
            accuracy[f"d={rank}, lambda={penalty:g}"] = share = float((guess == test.values).mean())
            if share > best:
                best = share
                chosen = form
    full = factorise(ratings, None, chosen, seed=seed, **FITS)
    return Completion(rerank(full.factors.matrix(), marginals), chosen, accuracy)


def matrix_of_file(path: str | Path, marginals: Any, seed: int) -> tuple[Floats, Any]:
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
