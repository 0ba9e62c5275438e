"""The posterior of the ordinal factorisation of ``ordinal.py``, and its updates.

Notation: m_ui the mean of the latent rating, g_ui that part of the latent reveal that all levels share, P_l(m) the
probability of level l, R_l the expected probability (of what is known of x_ui) at level l. A cell's likelihood is
F(m) = log sum_l P_l(m) R_l, and with c at least the largest curvature -F'',

    E F(m) >= F(E m) - c/2 var(m),

so that a cell with little information on m (c small) also ties it down little. With R_l from Jensen's inequality and
log Phi'' > -1 the whole is a lower bound of the log evidence. Every update below either maximises a quadratic minoriser
of it or is taken back, row by row, where it would lower it.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import _ordinal_kernel as k
import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.rng import Stream

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
SPACING, REACH = 0.5, 4.0
"""Curvature of F is looked for at points so far apart, from so far below the first cut to as far above the last."""


@dataclass
class Normal:
    """Rows of independent normals, each with its covariance, and the prior's variance of each coordinate.

    Attributes:
        mean: (n, k).
        covariance: (n, k, k).
        prior: (k,) variances around 0.
        one: a coordinate that is the constant 1, or -1.
    """

    mean: Floats
    covariance: Floats
    prior: Floats
    one: int = -1

    @classmethod
    def factors(cls, draws: Floats, one: int, variance: float) -> Normal:
        """Vectors (factors, constant 1, offset) or (factors, offset, constant 1), for draws of the factors."""
        n, rank = draws.shape
        k = rank + 2
        mean = np.zeros((n, k))
        mean[:, :rank], mean[:, one] = draws, 1.0
        covariance = np.tile(np.eye(k) * variance, (n, 1, 1))
        covariance[:, one, one] = 0.0
        return cls(mean, covariance, np.full(k, 5.0 * variance), one)

    @property
    def free(self) -> Mask:
        """(k,) the coordinates that are not constant."""
        return np.arange(self.mean.shape[1]) != self.one

    def second(self) -> Floats:
        """E[x x'] of each row, (n, k * k)."""
        return (self.covariance + self.mean[:, :, None] * self.mean[:, None, :]).reshape(len(self.mean), -1)

    def divergence(self) -> Floats:
        """KL from the prior of each row, (n,)."""
        free = self.free
        diagonal = np.diagonal(self.covariance, axis1=1, axis2=2)[:, free]
        prior = self.prior[free]
        inside = ((diagonal + self.mean[:, free] ** 2) / prior - 1.0 + np.log(prior)).sum(axis=1)
        determinant = np.linalg.slogdet(self.covariance[:, free][:, :, free])[1]
        return np.asarray(0.5 * (inside - determinant))

    def refit_prior(self, largest: float = np.inf) -> None:
        """Each coordinate's prior variance at its best, within bounds."""
        diagonal = np.diagonal(self.covariance, axis1=1, axis2=2)
        best = np.clip((diagonal + self.mean**2).mean(axis=0), 1e-6, largest)
        self.prior = np.where(self.free, best, self.prior)

    def moments_with(self, other: Normal, wanted: NDArray[np.int8] | None = None) -> tuple[Floats, Floats]:
        """Mean and variance of x . y for all rows x here and y there, (n, m) each; 0 where ``wanted`` is negative."""

        mean, variance = (np.empty((len(self.mean), len(other.mean))) for _ in range(2))
        mask = np.zeros(mean.shape, np.int8) if wanted is None else wanted
        k.moments(mask, wanted is None, self.mean, self.second(), other.mean, other.second(), mean, variance)
        return mean, variance

    def improved(
        self, other: Normal, mean: Floats, slope: Floats, sharpness: Floats, *, damping: float = 1.0
    ) -> Normal:
        """The maximum of the minoriser with these derivatives and curvatures of each cell.

        Args:
            other: the other side.
            mean: (n, m) present x . y.
            slope: (n, m) derivative of the cells' likelihoods by it.
            sharpness: (n, m) their curvature, at most.
            damping: how many times that curvature a step of the means allows for.
        """
        k = self.mean.shape[1]
        free = self.free
        precision = _gather(sharpness, other.second()).reshape(-1, k, k)
        step = precision
        if damping != 1.0:
            outer = (other.mean[:, :, None] * other.mean[:, None, :]).reshape(len(other.mean), -1)
            step = precision + (damping - 1.0) * _gather(sharpness, outer).reshape(-1, k, k)
        linear = _gather(slope + damping * sharpness * mean, other.mean)
        if self.one >= 0:
            linear = linear - step[:, :, self.one]  # the constant 1 moves to the right-hand side
        prior = np.diag(1.0 / self.prior[free])
        chosen = np.ix_(np.arange(len(self.mean)), np.flatnonzero(free), np.flatnonzero(free))
        out = Normal(self.mean.copy(), np.zeros_like(self.covariance), self.prior, self.one)
        out.mean[:, free] = np.linalg.solve(step[chosen] + prior, linear[:, free, None])[:, :, 0]
        out.covariance[chosen] = np.linalg.inv(precision[chosen] + prior)
        return out

    def mixed(self, new: Normal, rows: Mask) -> Normal:
        """``new`` in these rows, itself elsewhere."""
        mean = np.where(rows[:, None], new.mean, self.mean)
        return Normal(mean, np.where(rows[:, None, None], new.covariance, self.covariance), self.prior, self.one)


@dataclass
class Side:
    """All that belongs to users, or all that belongs to items.

    Attributes:
        taste: of m; (v, a, 1) or (w, 1, b).
        activity: of g; the same.
        response: (n, levels) p or q, whose covariance is diagonal.
    """

    taste: Normal
    activity: Normal
    response: Normal

    def divergence(self, missing: bool) -> Floats:
        """KL of each row, (n,)."""
        taste = self.taste.divergence()
        return taste + self.activity.divergence() + self.response.divergence() if missing else taste

    def mixed(self, new: Side, rows: Mask) -> Side:
        """See :meth:`Normal.mixed`."""
        return Side(
            *(getattr(self, name).mixed(getattr(new, name), rows) for name in ("taste", "activity", "response"))
        )


class Cells:
    """What a pass over the cells leaves: the arguments of the kernel that it fills."""

    def __init__(self, shape: tuple[int, int], levels: int) -> None:
        n_users, n_items = shape
        self.slope, self.sharpness, self.activity_slope = (np.empty(shape) for _ in range(3))
        self.bounds = (np.empty(n_users), np.empty(n_items))
        self.mass = (np.empty((n_users, levels)), np.empty((n_items, levels)))
        self.push = (np.empty((n_users, levels)), np.empty((n_items, levels)))
        self.cut_slope, self.base_slope = np.empty(levels - 1), np.empty(levels)
        self.information = np.empty((2 * levels - 1, 2 * levels - 1))
        self.mean, self.activity = np.empty(0), np.empty(0)

    def of(self, side: int, name: str) -> Floats:
        """A (U, I) array, with the rows of ``side`` first."""
        array: Floats = getattr(self, name)
        return array if side == 0 else array.T


class Posterior:
    """The variational posterior of one fit.

    Args:
        ratings: revealed.
        levels: rating values, ascending.
        rank: factors of m.
        missing_rank: factors of g.
        response_spread: largest prior standard deviation of p and q.
        base_spread: prior standard deviation of z around its mean.
        seed: of the start.
    """

    def __init__(
        self, ratings: Ratings, levels: Floats, *, rank: int, missing_rank: int, response_spread: float,
        base_spread: float, seed: int,
    ) -> None:  # fmt: skip
        from scipy.special import ndtri

        self.missing = False
        self.levels, n_levels = levels, len(levels)
        self.observed = np.full(ratings.shape, -1, np.int8)
        self.observed[ratings.users, ratings.items] = np.searchsorted(levels, ratings.values)
        self.response_spread, self.base_spread = response_spread, base_spread
        n_users, n_rows = ratings.n_users, sum(ratings.shape)
        taste = 0.3 * rng.normals(seed, Stream.FIT, 0, (n_rows, max(rank, 1)))[:, :rank]
        activity = 0.1 * rng.normals(seed, Stream.FIT, n_rows, (n_rows, max(missing_rank, 1)))[:, :missing_rank]
        self.sides = []
        for side, rows in ((0, slice(0, n_users)), (1, slice(n_users, n_rows))):
            variance = min(0.01, response_spread**2)
            n = ratings.shape[side]
            response = Normal(
                np.zeros((n, n_levels)), np.tile(np.eye(n_levels) * variance, (n, 1, 1)), np.full(n_levels, variance)
            )
            self.sides.append(
                Side(
                    Normal.factors(taste[rows], rank + 1 - side, 0.05),
                    Normal.factors(activity[rows], missing_rank + 1 - side, 0.01),
                    response,
                )
            )
        shares = np.bincount(self.observed[self.observed >= 0], minlength=n_levels) + 1.0
        self.cuts = 1.2 * ndtri(np.cumsum(shares / shares.sum())[:-1])
        self.base = np.full(n_levels, float(ndtri(self._density())))
        self.evaluate()

    def _density(self) -> float:
        """Share of the cells that are revealed, never quite 0 or 1."""
        return float(((self.observed >= 0).sum() + 0.5) / (self.observed.size + 1.0))

    def clone(self) -> Posterior:
        """A copy that shares only the data."""
        out = copy.copy(self)
        out.sides = [copy.deepcopy(side) for side in self.sides]
        return out

    # ------------------------------------------------------------------------------------------------------- the bound

    def evaluate(self) -> float:
        """One pass over the cells; returns the lower bound."""

        n_levels = len(self.base)
        users, items = self.sides
        low, high = self.cuts[0] - REACH, self.cuts[-1] + REACH
        points = np.linspace(low, high, int(np.ceil((high - low) / SPACING)) + 1)
        table = np.empty((3, len(points), n_levels))
        k.curves(points, self.cuts, table)
        out = Cells(self.observed.shape, n_levels)
        out.mean, variance = users.taste.moments_with(items.taste, None if self.missing else self.observed)
        if self.missing:
            out.activity, activity_variance = users.activity.moments_with(items.activity)
        else:
            out.activity = activity_variance = np.zeros(self.observed.shape)
        spreads = [np.exp(-0.5 * np.diagonal(s.response.covariance, axis1=1, axis2=2)) for s in self.sides]
        k.cells(
            self.observed, self.missing, out.mean, variance, self.cuts, table, _limits(self.cuts), out.activity,
            activity_variance, self.base, users.response.mean, items.response.mean, *spreads, np.empty((4, n_levels)),
            out.slope, out.sharpness, out.activity_slope, *out.bounds, *out.mass, *out.push,
            out.cut_slope, out.base_slope, out.information,
        )  # fmt: skip
        self.cells = out
        bound = float(out.bounds[0].sum()) - sum(float(s.divergence(self.missing).sum()) for s in self.sides)
        if self.missing:
            bound -= 0.5 * float(((self.base - self.base.mean()) ** 2).sum()) / self.base_spread**2
        self.bound = bound
        return bound

    # ----------------------------------------------------------------------------------------------------- the updates

    def sweep(self) -> float:
        """Users, items, thresholds and z, prior variances; returns the lower bound, which never falls."""
        for side in (0, 1):
            self._update_side(side)
        self._update_levels()
        for rows in self.sides:
            rows.taste.refit_prior()
            if self.missing:
                rows.activity.refit_prior()
                rows.response.refit_prior(self.response_spread**2)
        return self.evaluate()

    def _update_side(self, side: int) -> None:
        """All rows of one side at once; a row that would lower its bound keeps what it had."""
        cells, mine, other = self.cells, self.sides[side], self.sides[1 - side]
        before = cells.bounds[side] - mine.divergence(self.missing)
        taste = mine.taste.improved(
            other.taste, cells.of(side, "mean"), cells.of(side, "slope"), cells.of(side, "sharpness")
        )
        only_taste = Side(taste, mine.activity, mine.response)
        if self.missing:
            # Activity and response move the same h: each step allows for the other.
            slope = cells.of(side, "activity_slope")
            activity = mine.activity.improved(
                other.activity, cells.of(side, "activity"), slope, np.ones_like(slope), damping=2.0
            )
            new = Side(taste, activity, _improved_response(mine.response, cells.mass[side], cells.push[side]))
            if self._try_side(side, mine, new, before).all():
                return
            mine = self.sides[side]
            before = self.cells.bounds[side] - mine.divergence(True)
        self._try_side(
            side, mine, only_taste if not self.missing else Side(taste, mine.activity, mine.response), before
        )

    def _try_side(self, side: int, mine: Side, new: Side, before: Floats) -> Mask:
        """Take ``new`` in the rows whose bound it does not lower; returns which."""
        self.sides[side] = new
        self.evaluate()
        better = self.cells.bounds[side] - new.divergence(self.missing) >= before - 1e-9 * np.abs(before)
        if not better.all():
            self.sides[side] = mine.mixed(new, better)
            self.evaluate()
        return better

    def _update_levels(self) -> None:
        """Thresholds and z together, along the natural gradient with the cells summed out; halved until it rises."""
        cells, n = self.cells, len(self.cuts)
        gradient, information = np.concatenate([cells.cut_slope, cells.base_slope]), cells.information.copy()
        if self.missing:
            pull = (np.eye(n + 1) - 1.0 / (n + 1)) / self.base_spread**2
            gradient[n:] -= pull @ self.base
            information[n:, n:] += pull
        else:
            gradient, information = gradient[:n], information[:n, :n]
        information[np.diag_indices_from(information)] *= 1.0 + 1e-3
        information[np.diag_indices_from(information)] += 1e-6
        step = np.linalg.solve(information, gradient)
        step *= min(1.0, 0.5 / float(np.abs(step).max()))
        cuts, base, bound = self.cuts, self.base, self.bound
        for _ in range(6):
            self.cuts, self.base = cuts + step[:n], base + step[n:] if self.missing else base
            if np.all(np.diff(self.cuts) > 1e-3) and self.evaluate() >= bound:
                return
            step *= 0.5
        self.cuts, self.base = cuts, base
        self.evaluate()

    def tilt(self, slope: float) -> None:
        """Model what is missing, from a start where a level higher is revealed ``slope`` probits more often."""
        from scipy.special import ndtr, ndtri

        n = len(self.base)
        seen = np.bincount(self.observed[self.observed >= 0], minlength=n) + 1.0
        levels = np.arange(n) - (n - 1) / 2
        density = self._density()
        base = everywhere = ndtri(density)
        for _ in range(50):
            everywhere = seen / ndtr(base + slope * levels)
            base += 0.5 * float(ndtri(density) - ndtri(seen.sum() / everywhere.sum()))
        self.base = base + slope * levels
        spread = float(np.sqrt(1.0 + self.cells.mean.var()))
        self.cuts = spread * ndtri(np.cumsum(everywhere / everywhere.sum())[:-1])
        self.missing = True
        self.evaluate()

    # ------------------------------------------------------------------------------------------------- what it says

    def level_shares(self) -> Floats:
        """Posterior predictive probability of each level in every cell, (levels, U, I)."""
        from scipy.special import ndtr

        mean, variance = self.sides[0].taste.moments_with(self.sides[1].taste)
        below = ndtr((self.cuts[:, None, None] - mean) / np.sqrt(1.0 + variance))
        edge = np.zeros((1, *mean.shape))
        return np.diff(np.concatenate([edge, below, edge + 1.0]), axis=0)

    def unrevealed_probabilities(self) -> Floats:
        """Probability at each level that a cell is not revealed, at the means of what it depends on, (levels, U, I)."""
        from scipy.special import ndtr

        p, q = (side.response.mean.T for side in self.sides)
        h = self.base[:, None, None] + self.cells.activity + p[:, :, None] + q[:, None, :]
        return np.asarray(ndtr(-h))


def _gather(weights: Floats, others: Floats) -> Floats:
    """Weights (n, m) times others (m, k)."""

    out = np.empty((len(weights), others.shape[1]))
    k.gather(np.ascontiguousarray(weights), others, out)
    return out


def _improved_response(mine: Normal, mass: Floats, push: Floats) -> Normal:
    """P or q at the maximum of the minoriser, steps damped as those of the activity."""
    precision = mass + 1.0 / mine.prior
    mean = mine.mean + (push - mine.mean / mine.prior) / (2.0 * mass + 1.0 / mine.prior)
    covariance = (1.0 / precision)[:, :, None] * np.eye(mean.shape[1])
    return Normal(mean, covariance, mine.prior)


def _limits(cuts: Floats) -> Floats:
    """The largest curvature of log P_l(m): 1 at both ends, that in the middle of the interval between two cuts."""
    from scipy.special import ndtr

    half = np.maximum(np.diff(cuts) / 2, 1e-3)
    density = np.exp(-0.5 * half**2) / np.sqrt(2 * np.pi)
    inner = 2 * half * density / (2 * ndtr(half) - 1)
    return np.concatenate([[1.0], inner, [1.0]])
