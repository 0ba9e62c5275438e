"""Observation models of revealed ratings, and completion of rating matrices from files (Schnabel et al. 2016)."""

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
    """Return the propensities of ratings relative to those of 4 and 5: alpha^(4 - r) for r < 4, else 1 (section 6.2).

    The shape is that of ``ratings``.
    """
    exponents = np.maximum(4.0 - np.asarray(ratings, np.float64), 0.0)
    # Powers from a table: the last bit of pow() differs between machines, and a last bit can change a random draw.
    powers = np.array([1.0, alpha, alpha * alpha, alpha * alpha * alpha])
    integers = exponents.astype(np.int64)
    if np.array_equal(integers, exponents):
        return powers[integers]
    return np.asarray(alpha**exponents)  # ratings between stars


def alpha_scale(values: Any, shares: Any, alpha: float, density: float) -> float:
    """Return the factor k of the paper's observation model: P(revealed) = k alpha^max(0, 4 - r).

    Args:
        values: (n,) distinct ratings r.
        shares: (n,) share of each among all ratings.
        alpha: severity of selection.
        density: share of all ratings that must be revealed on average.

    Raises:
        UserError: alpha or density outside (0, 1], or a k above 1, with which P would not be a probability.
    """
    if not (0 < alpha <= 1 and 0 < density <= 1):
        raise UserError(f"alpha and density must be in (0, 1], got {alpha:g} and {density:g}")
    # Largest density, at k = 1. fsum rounds once only, so the result is the same on every machine.
    most = math.fsum((relative_propensity(values, alpha) * np.asarray(shares)).tolist())
    if density > most * (1 + 1e-12):  # beyond rounding
        raise UserError(
            f"density {density:g} cannot be reached at alpha = {alpha:g}: k would be {density / most:.3g}; "
            f"lower density to {math.floor(1000 * most) / 1000:g} or raise alpha"
        )
    return min(density / most, 1.0)


def alpha_propensities(matrix: Any, alpha: float, density: float = 0.05) -> Floats:
    """Return the propensity of each rating in a matrix, by the paper's model P = k alpha^max(0, 4 - Y).

    Args:
        matrix: (U, I) ratings Y.
        alpha: severity of selection.
        density: mean propensity, which determines k.

    Raises:
        UserError: alpha or density outside (0, 1], or a k above 1.
    """
    values, counts = np.unique(np.asarray(matrix, np.float64), return_counts=True)
    return alpha_scale(values, counts / counts.sum(), alpha, density) * relative_propensity(matrix, alpha)


def popularity_propensities(appeal: Any, density: float) -> Floats:
    """Return item propensities (I,) that are proportional to 1 / rank, at most 1, and have a given mean.

    Args:
        appeal: (I,) numbers by which items are ranked, the largest first.
        density: mean propensity.

    Raises:
        UserError: density outside (0, 1].
    """
    appeal = np.asarray(appeal, np.float64)
    if not 0 < density <= 1:
        raise UserError(f"density must be in (0, 1], got {density:g}")
    n = len(appeal)
    falling = 1.0 / np.arange(1, n + 1)
    by_rank = np.ones(n)
    # Find how many of the most popular items have propensity 1; the others share the rest of the sum density * n.
    for certain in range(n):
        scale = (density * n - certain) / math.fsum(falling[certain:].tolist())
        if scale * falling[certain] <= 1.0:
            by_rank[certain:] = scale * falling[certain:]
            break
    probability = np.empty(n)
    probability[np.argsort(-appeal, kind="stable")] = by_rank
    return probability


def rerank(scores: Any, marginals: Any = MARGINALS) -> Floats:
    """Return ratings 1, 2, ... with given marginal shares, in the order of scores.

    Args:
        scores: array of any shape.
        marginals: share of each rating: the lowest ``marginals[0]`` of all entries are rated 1, the next 2, and so on.

    Returns:
        Ratings, of the shape of ``scores``; ties are broken by position.

    Raises:
        UserError: marginals that are no shares that sum to 1.
    """
    scores = np.asarray(scores, np.float64)
    shares = np.asarray(marginals, np.float64)
    if not (np.all(shares >= 0) and abs(shares.sum() - 1.0) < 1e-6):
        raise UserError(f"marginals must be shares that sum to 1, got {shares.tolist()}")
    order = np.argsort(scores.ravel(), kind="stable")
    # Rank of the first entry of each higher rating; the last edge is the number of entries.
    edges = np.rint(np.cumsum(shares) * scores.size).astype(np.int64)
    out = np.empty(scores.size)
    out[order] = 1.0 + np.searchsorted(edges[:-1], np.arange(scores.size), side="right")
    return out.reshape(scores.shape)


def observe(propensities: Any, seed: int) -> NDArray[np.bool_]:
    """Draw which ratings are revealed: a mask O (U, I) with O ~ Bernoulli(P) for propensities P (U, I).

    The draw of each cell is addressed by seed, user and item.
    """
    p = np.asarray(propensities, np.float64)
    users, items = np.divmod(np.arange(p.size), p.shape[1])
    return (rng.uniforms(seed, Stream.ORGANIC, users, items) < p.ravel()).reshape(p.shape)


RANKS = (5, 10, 20)
"""Ranks of the factorizations that :func:`complete` tries."""
PENALTIES = (2e-5, 5e-5, 1e-4, 2e-4)
"""Penalties of the factorizations that :func:`complete` tries."""
FITS: dict[str, Any] = {"max_iterations": 3000, "value_tolerance": 1e-6}
"""Stopping rules of a fit; on ML-100K the objective is then within a thousandth of its minimum."""


@dataclass(frozen=True)
class Completion:
    """Result of :func:`complete`.

    Attributes:
        ratings: (U, I) completed ratings in 1..5.
        form: configuration with the rank and penalty chosen.
        accuracy: share of held-out ratings that the rounded completion predicts exactly, for each rank and penalty.
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
    """Complete a rating matrix by factorization, and re-rank the result to given marginals.

    Rank and penalty are those with the best accuracy on a held-out tenth of the ratings; the final fit uses all.

    Args:
        ratings: revealed ratings.
        ranks: ranks to try.
        penalties: penalties to try.
        marginals: shares of ratings 1 to 5 in the completed matrix.
        seed: seed of the held-out ratings and of the fits.

    Warns:
        NotConverged: a fit stopped at its limit of iterations.
    """
    is_held_out = rng.uniforms(seed, rng.Stream.FIT, np.arange(len(ratings)), 2) < 0.1
    train = ratings.select(~is_held_out)
    test = ratings.select(is_held_out)
    accuracy: dict[str, float] = {}
    best = -1.0
    chosen = FactorizationConfig()
    for rank in ranks:
        for penalty in penalties:
            config = FactorizationConfig(rank=rank, penalty=penalty)
            fit = factorise(train, None, config, seed=seed, **FITS)
            rounded = np.clip(np.rint(fit.factors.at(test.users, test.items)), 1, 5)
            share_exact = float((rounded == test.values).mean())
            accuracy[f"d={rank}, lambda={penalty:g}"] = share_exact
            if share_exact > best:
                best = share_exact
                chosen = config
    full = factorise(ratings, None, chosen, seed=seed, **FITS)
    return Completion(rerank(full.factors.matrix(), marginals), chosen, accuracy)


def matrix_of_file(path: str | Path, marginals: Any, seed: int) -> tuple[Floats, Any]:
    """Read a full rating matrix from a file, or complete the revealed ratings in it.

    Args:
        path: path of a file of revealed ratings (:func:`recsim_mnar.datasets.rating_studies.read_ratings`), which are
            completed and re-ranked; of an ``.npy`` matrix; or of an ``.npz`` file with ``ratings`` and optionally
            ``observation_propensities``, as ``simulate --truth`` writes it.
        marginals: shares of ratings 1 to 5 for the re-ranking.
        seed: seed of the completion.

    Returns:
        ratings: (U, I) float64.
        propensities: (U, I) observation propensities, or None if the file has none.

    Raises:
        UserError: the file does not exist, or does not hold ratings.
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
        else:  # memory-mapped, for a header may claim more data than the file has
            arrays = {"ratings": np.array(np.load(path, allow_pickle=False, mmap_mode="r"))}
    except FileNotFoundError:
        raise UserError(f"ratings_file {path} does not exist") from None
    except (ValueError, OSError, SyntaxError, tokenize.TokenError) as error:  # NumPy parses the header as Python
        raise UserError(f"ratings_file {path} holds no array: {str(error).splitlines()[0]}") from None
    if "ratings" not in arrays or arrays["ratings"].ndim != 2 or arrays["ratings"].dtype.kind not in "iuf":
        raise UserError(f"ratings_file {path} must hold 'ratings', a (users, items) matrix of numbers")
    return np.asarray(arrays["ratings"], np.float64), arrays.get("observation_propensities")
