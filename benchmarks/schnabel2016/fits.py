"""How far the study's fits are taken, how many of them converged, and how lambda is chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recsim_mnar.log.ratings import Ratings, split_folds
from recsim_mnar.models.factorization import FactorizationConfig, Fit, factorise

CHOOSING: dict[str, Any] = {"max_iterations": 5_000, "value_tolerance": 1e-5}
"""While lambda is chosen: within some thousandths of the minimum."""
FINAL: dict[str, Any] = {"max_iterations": 20_000, "value_tolerance": 1e-6}
CLOSE: dict[str, Any] = {"max_iterations": 20_000, "value_tolerance": 1e-8}


@dataclass
class FitCount:
    """Fits made, and those that converged.

    Attributes:
        made: all fits.
        converged: those that ended because nothing was left to gain.
    """

    made: int = 0
    converged: int = 0

    def add(self, fit: Fit) -> Fit:
        """Count a fit and return it; one that did not converge has warned."""
        self.made += 1
        self.converged += fit.converged
        return fit

    def to_dict(self) -> dict[str, int]:
        """All fields."""
        return asdict(self)

    @classmethod
    def sum(cls, counts: Iterable[dict[str, int]]) -> FitCount:
        """All counts together."""
        several = list(counts)
        return cls(sum(c["made"] for c in several), sum(c["converged"] for c in several))


POWERS = {"mse": 2, "mae": 1}
SMALLEST, LARGEST = 1e-8, 1.0


@dataclass(frozen=True)
class Search:
    """How lambda is looked for.

    Attributes:
        rank: d.
        penalties: where the search begins; each 1 or 3 times a power of ten.
        folds: k.
        seed: of folds and starts.
    """

    rank: int
    penalties: tuple[float, ...]
    folds: int
    seed: int


def beside(penalty: float, larger: bool) -> float:
    """The next penalty of 1, 3, 10, 30, ... in one direction."""
    exponent = round(2 * np.log10(penalty)) + (1 if larger else -1)
    return float(f"{1 if exponent % 2 == 0 else 3}e{exponent // 2}")


def held_out(
    search: Search, form: FactorizationConfig, observed: Ratings, p: np.ndarray, judge: np.ndarray, fits: FitCount
) -> float:
    """One form's IPS score; the propensities are scaled by (k - 1)/k and 1/k (section 6.1)."""
    k = search.folds
    fold = split_folds(len(observed), k, search.seed)
    score = 0.0
    for f in range(k):
        train, test = observed.select(fold != f), observed.select(fold == f)
        fit = fits.add(factorise(train, 1.0 / (p[fold != f] * (k - 1) / k), form, seed=search.seed, **CHOOSING))
        error = np.abs(fit.factors.at(test.users, test.items) - test.values) ** POWERS[form.loss]
        score += float((error / (judge[fold == f] / k)).sum())
    return score / (observed.n_users * observed.n_items * k)


def choose(
    search: Search, observed: Ratings, p: np.ndarray, judge: np.ndarray, loss: str, fits: FitCount
) -> dict[str, Any]:
    """Lambda by cross-validation; the grid grows until the choice is not at its edge.

    Args:
        search: where to begin.
        observed: revealed ratings.
        p: (n,) propensities by which the fit weights them.
        judge: (n,) propensities by which held-out ratings are weighted.
        loss: ``mse`` or ``mae``.
        fits: counts them.
    """
    tried: dict[float, float] = {}
    ahead = set(search.penalties)
    while ahead:
        for penalty in ahead:
            form = FactorizationConfig(rank=search.rank, penalty=penalty, loss=loss)
            tried[penalty] = held_out(search, form, observed, p, judge, fits)
        best = min(tried, key=lambda penalty: tried[penalty])
        ahead = {beside(best, larger) for larger, edge in ((False, min(tried)), (True, max(tried))) if best == edge}
        ahead = {penalty for penalty in ahead if SMALLEST <= penalty <= LARGEST}
    scores = {f"{penalty:g}": round(tried[penalty], 5) for penalty in sorted(tried)}
    return {"penalty": best, "scores": scores, "inside": min(tried) < best < max(tried)}
