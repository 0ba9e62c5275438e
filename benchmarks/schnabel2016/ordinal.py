"""HL-MAR and HL-MNAR: ordinal matrix factorisation without and with a model of what is missing.

After Hernandez-Lobato, Houlsby & Ghahramani 2014, "Probabilistic matrix factorization with non-random missing data":
a factorisation of the ratings and a second one of what is revealed, which sees each rating, revealed or not. Ratings
l = 1 .. L, x_ui = 1 where a rating is revealed:

    y_ui ~ N(v_u . w_i + a_u + b_i, 1),                            r_ui = l  where  t_(l-1) < y_ui <= t_l,
    s_ui ~ N(e_u . f_i + c_u + d_i + z_l + p_ul + q_il, 1), l = r_ui,     x_ui = 1  where  s_ui > 0,

with normal priors on all factors, offsets and level-dependent weights z, p and q. HL-MAR is the first line on the
revealed ratings alone. Inference is variational: independent normals for each user's and each item's vectors, the
cells' y, s and unrevealed r summed out (``posterior.py``), prior variances at their best
values. The lower bound never falls.

Where this departs from the original:

- it reveals through a probit, the original through a logistic function;
- one variational bound serves both halves, where the original mixes expectation propagation (ratings) with a
  variational bound (what is missing);
- thresholds t and z are point estimates and shared by all items; the original gives thresholds of each item and
  noise variances of each user and item priors of their own (the noise is 1 here);
- p and q have a largest prior standard deviation, ``response_spread``: revealed ratings alone say little of them;
- the bound has several maxima, so the fit begins in several places and goes on from the best (``tilts``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from posterior import Floats, Posterior

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.log.ratings import Ratings


@dataclass(frozen=True)
class HLFit:
    """A fitted model.

    Attributes:
        matrix: (U, I) predicted ratings, the mean under the model of ratings alone: of a rating that is asked for.
        medians: (U, I) median predicted rating under the same model: the best prediction by absolute error.
        unrevealed: (U, I) the mean, given that the rating was not revealed; equal to ``matrix`` for HL-MAR.
        bounds: the lower bound at the start and after each iteration.
        starts: by tilt, the lower bound from which the best start was picked; empty for HL-MAR.
        shares: (levels,) mean predicted share of each rating over all cells.
        revealed: (levels,) P(x = 1 | r) of an average user and item; empty for HL-MAR.
        converged: whether the bound had stopped rising.
    """

    matrix: Floats
    medians: Floats
    unrevealed: Floats
    bounds: list[float]
    starts: dict[float, float]
    shares: Floats
    revealed: Floats
    converged: bool


@dataclass(frozen=True)
class HL:
    """One of the two models.

    Args:
        rank: factors of the ratings.
        missing: model what is missing (HL-MNAR).
        missing_rank: factors of what is missing, e and f.
        response_spread: the largest prior standard deviation of p_ul and q_il.
        base_spread: prior standard deviation of z_l around their mean.
        iterations: at most.
        tilts: where HL-MNAR may begin: how much more likely, in probits a level, higher ratings are revealed.
        trial: iterations of each start before the one with the highest bound is kept.
        margin: by how much (in nats) a start's bound must exceed that of the start without a tilt, where there is one:
            on little data that nothing selects, bounds of different starts differ by about 3 nats by chance.
        warm_up: iterations on the revealed ratings alone, before HL-MNAR's own.
        tolerance: stop where the bound rises by less than this, relative to its size.
        levels: rating values, ascending.

    Raises:
        UserError: a value out of its range.
    """

    rank: int = 5
    missing: bool = True
    missing_rank: int = 2
    response_spread: float = 0.3
    base_spread: float = 1.0
    iterations: int = 100
    tilts: tuple[float, ...] = (-0.4, 0.0, 0.4, 0.8)
    trial: int = 10
    margin: float = 4.0
    warm_up: int = 30
    tolerance: float = 1e-6
    levels: tuple[float, ...] = (1.0, 2.0, 3.0, 4.0, 5.0)

    def __post_init__(self) -> None:
        """Raise UserError for what cannot be."""
        for name, least in (("rank", 0), ("missing_rank", 0), ("trial", 0), ("warm_up", 0), ("iterations", 1)):
            whole_number(getattr(self, name), name, least)
        for name in ("response_spread", "base_spread", "tolerance"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UserError(f"{name} must be above 0, got {value!r}")
        if not (math.isfinite(self.margin) and self.margin >= 0):
            raise UserError(f"margin must not be negative, got {self.margin!r}")
        if not self.tilts or not all(math.isfinite(tilt) for tilt in self.tilts):
            raise UserError(f"tilts must be one or more finite numbers, got {self.tilts!r}")
        if len(self.levels) < 2 or not np.all(np.diff(self.levels) > 0):
            raise UserError(f"levels must be at least two rating values, ascending, got {self.levels!r}")

    def fit(self, ratings: Ratings, seed: int = 0) -> HLFit:
        """Fit to revealed ratings.

        Args:
            ratings: what users revealed; all other cells of the matrix count as not revealed.
            seed: of the random start.

        Raises:
            UserError: no ratings, or one outside the scale.
        """
        if len(ratings) == 0:
            raise UserError("there are no ratings to fit HL on")
        ratings.check_scale(self.levels)
        posterior = Posterior(
            ratings, np.array(self.levels), rank=self.rank, missing_rank=self.missing_rank,
            response_spread=self.response_spread, base_spread=self.base_spread, seed=rng.check_seed(seed),
        )  # fmt: skip
        bounds = [posterior.bound]
        starts: dict[float, float] = {}
        if self.missing:
            # Begun at random, the cells that are not revealed would hold the factors at 0 for very long: begin where
            # the revealed ratings alone lead.
            for _ in range(self.warm_up):
                posterior.sweep()
            posterior, bounds, starts = self._best_start(posterior)
        converged = False
        while len(bounds) <= self.iterations and not converged:
            bounds.append(posterior.sweep())
            converged = bounds[-1] - bounds[-2] <= self.tolerance * abs(bounds[-1])
        return self._result(posterior, bounds, starts, converged)

    def _best_start(self, warm: Posterior) -> tuple[Posterior, list[float], dict[float, float]]:
        """The start with the highest bound after ``trial`` iterations, that without a tilt favoured by ``margin``."""
        tried: dict[float, tuple[Posterior, list[float]]] = {}
        for tilt in self.tilts:
            posterior = warm.clone()
            posterior.tilt(tilt)
            tried[tilt] = posterior, [posterior.bound] + [posterior.sweep() for _ in range(self.trial)]
        starts = {tilt: bounds[-1] for tilt, (_, bounds) in tried.items()}
        best = max(starts, key=lambda tilt: starts[tilt] + (self.margin if tilt == 0.0 else 0.0))
        return *tried[best], starts

    def _result(self, posterior: Posterior, bounds: list[float], starts: dict[float, float], converged: bool) -> HLFit:
        from scipy.special import ndtr

        values = np.array(self.levels)
        shares = posterior.level_shares()
        matrix = unrevealed = np.tensordot(values, shares, axes=1)
        medians = values[(np.cumsum(shares, axis=0) < 0.5).sum(axis=0).clip(max=len(values) - 1)]
        revealed = np.zeros(0)
        if self.missing:
            hidden = shares * posterior.unrevealed_probabilities()
            unrevealed = np.tensordot(values, hidden / hidden.sum(axis=0), axes=1)
            revealed = np.asarray(ndtr(posterior.base))
        return HLFit(matrix, medians, unrevealed, bounds, starts, shares.mean(axis=(1, 2)), revealed, converged)
