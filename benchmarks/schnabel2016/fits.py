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
SMALLEST, LARGEST = 1e-8, 100.0


@dataclass(frozen=True)
class Search:
    """How lambda is looked for.

    Attributes:
        rank: d.
        penalties: powers of ten, all of which are tried; the score may have several minima.
        folds: k.
        seed: of folds and starts.
    """

    rank: int
    penalties: tuple[float, ...]
    folds: int
    seed: int


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
    """Lambda by cross-validation: all powers of ten, then halves and quarters of a power around the best of them.

    The grid grows by powers of ten until the choice is not at its edge. As lambda grows the model tends to a constant,
    which is scored as lambda = infinity: where no lambda scores below it the score has no minimum inside.

    Args:
        search: where to begin.
        observed: revealed ratings.
        p: (n,) propensities by which the fit weights them.
        judge: (n,) propensities by which held-out ratings are weighted.
        loss: ``mse`` or ``mae``.
        fits: counts them.
    """
    tried: dict[int, float] = {}  # by four times the power of ten

    def best_of(quarters: Iterable[int]) -> int:
        for quarter in sorted(set(quarters) - set(tried)):
            form = FactorizationConfig(rank=search.rank, penalty=penalty_of(quarter), loss=loss)
            tried[quarter] = held_out(search, form, observed, p, judge, fits)
        return min(tried, key=lambda quarter: tried[quarter])

    best = best_of(4 * round(np.log10(penalty)) for penalty in search.penalties)
    while best in (min(tried), max(tried)):
        ahead = best - 4 if best == min(tried) else best + 4
        if not SMALLEST <= penalty_of(ahead) <= LARGEST:
            break
        best = best_of([ahead])
    for step in (2, 1):
        best = best_of(quarter for quarter in (best - step, best + step) if penalty_of(quarter) <= LARGEST)
    scores = {f"{penalty_of(quarter):g}": tried[quarter] for quarter in sorted(tried)}
    scores["infinity"] = held_out(search, constant(loss), observed, p, judge, fits)
    inside = min(tried) < best < max(tried) and tried[best] < scores["infinity"]
    return {"penalty": penalty_of(best), "scores": {k: round(v, 5) for k, v in scores.items()}, "inside": inside}


def constant(loss: str) -> FactorizationConfig:
    """One number for all cells: the limit of large lambda."""
    return FactorizationConfig(rank=0, biases="none", loss=loss)


def penalty_of(quarter: int) -> float:
    """The penalty of a quarter of a power of ten, to two digits."""
    return float(f"{10.0 ** (quarter / 4):.1e}")
