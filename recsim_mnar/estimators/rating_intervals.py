"""Intervals of rating estimates: propensities known, estimated with an error of their own, or off by a stated ratio.

A known P leaves the users as the only sample. An estimated P is refitted in every resample of the users, naive Bayes
with a resample of its random sample too, so that its error is part of the interval.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.estimators.intervals.bootstrap import resampled_counts, resampled_sums
from recsim_mnar.estimators.intervals.clustered import ratio_interval
from recsim_mnar.estimators.intervals.limits import Spread, positive_limits, small_sample_factor
from recsim_mnar.estimators.propensities.observation import NaiveBayes
from recsim_mnar.log.ratings import Floats, Ratings

_SAMPLE_ADDRESS = 2**62
"""Addresses of the draws that resample the random sample, beyond those of users."""

Weigh = Callable[[Ratings, NDArray[np.int64]], Floats]


@dataclass(frozen=True)
class Refits:
    """Recompute an estimate, propensities included, in resamples that count each user Poisson(1) times.

    Attributes:
        fit: naive Bayes, whose random sample is drawn again from its smoothed shares of ratings, so that a rating which
            the sample lacks is not taken to be impossible; or the weights (n,) of a resample's ratings, given these and
            the users that the rows of their matrix stand for.
        clip: smallest propensity of naive Bayes; other fits' weights are clipped already.
        replicates: how many resamples.
        seed: of their draws.
    """

    fit: NaiveBayes | Weigh
    clip: float
    replicates: int
    seed: int

    def sums(self, ratings: Ratings, d: Floats, factor: Floats) -> tuple[Floats, Floats, Floats]:
        """Of each resample: weights times losses, weights, and cells of the matrix.

        Args:
            ratings: observed entries, n of them.
            d: (n,) losses.
            factor: (n,) by which weights are multiplied after the fit.

        Returns:
            three arrays, (replicates,).
        """
        if isinstance(self.fit, NaiveBayes):
            return self._from_counts(self.fit, ratings, d, factor)
        return self._one_by_one(self.fit, ratings, d, factor)

    def _from_counts(
        self, fit: NaiveBayes, ratings: Ratings, d: Floats, factor: Floats
    ) -> tuple[Floats, Floats, Floats]:
        n_users, size = ratings.n_users, len(fit.scale)
        key = np.searchsorted(fit.scale, ratings.values) * n_users + ratings.users
        of_rows = (factor * d, factor, np.ones(len(d)))
        parts = [np.bincount(key, x, n_users * size).reshape(size, n_users) for x in of_rows]
        columns = np.concatenate([*parts, np.ones((1, n_users))])
        sums = resampled_sums(columns, replicates=self.replicates, seed=self.seed)
        losses, factors, observed = np.split(sums[:-1], 3)
        cells = sums[-1] * ratings.n_items
        p = np.maximum(fit.refitted(observed, cells, self._samples(fit)), self.clip)
        p[observed == 0.0] = 1.0  # nothing of this rating to weight
        return (losses / p).sum(axis=0), (factors / p).sum(axis=0), cells

    def _samples(self, fit: NaiveBayes) -> Floats:
        """Counts of each rating value in random samples, (R, replicates)."""
        inner = np.cumsum(fit.marginals)[:-1]
        out = np.empty((len(fit.scale), self.replicates))
        for b in range(self.replicates):
            draws = rng.uniforms(self.seed, rng.Stream.BOOTSTRAP, _SAMPLE_ADDRESS + b, np.arange(fit.sample_size))
            out[:, b] = np.bincount(np.searchsorted(inner, draws, side="right"), minlength=len(out))
        return out

    def _one_by_one(self, weigh: Weigh, ratings: Ratings, d: Floats, factor: Floats) -> tuple[Floats, Floats, Floats]:
        order = np.argsort(ratings.users, kind="stable")
        lengths = np.bincount(ratings.users, minlength=ratings.n_users)
        first = np.cumsum(lengths) - lengths
        counts = resampled_counts(ratings.n_users, replicates=self.replicates, seed=self.seed)
        out = np.zeros((3, self.replicates))
        for b in range(self.replicates):
            users = np.repeat(np.arange(ratings.n_users), counts[:, b])
            owner = np.repeat(np.arange(len(users)), lengths[users])
            inside = np.arange(len(owner)) - (np.cumsum(lengths[users]) - lengths[users])[owner]
            rows = order[first[users][owner] + inside]
            again = Ratings(owner, ratings.items[rows], ratings.values[rows], len(users), ratings.n_items)
            w = factor[rows] * weigh(again, users)
            out[:, b] = (w * d[rows]).sum(), w.sum(), len(users) * ratings.n_items
        return out[0], out[1], out[2]

    def step(self, ratings: Ratings, w: Floats, d: Floats) -> float:
        """The largest that one more user, or one more rating of naive Bayes' random sample, could add."""
        sums = np.bincount(ratings.users, w * d)
        step = float(np.abs(sums).max()) / (ratings.n_users * ratings.n_items)
        if not isinstance(self.fit, NaiveBayes):
            return step
        place = np.searchsorted(self.fit.scale, ratings.values)
        means = np.bincount(place, d) / np.maximum(np.bincount(place), 1)
        return max(step, float(np.abs(means).max()) / self.fit.sample_size)


def intervals(
    ratings: Ratings, w: Floats, d: Floats, level: float, ratio: float = 1.0, refits: Refits | None = None
) -> dict[str, tuple[float, float]]:
    """Ends of ``naive``, ``ips`` and ``snips`` (equations 3, 4 and 6), users being the sample.

    With known P the ends are clustered by user. With ``refits`` they have the variance and skewness of the resampled
    estimates, and are moved by their bias, which is mostly that of Laplace smoothing. Clipping's bias is not in them.

    With a ratio G > 1 the true P may be up to G times the stated one, or as far below (Lemma 3): the ends are those
    of the weights 1/P within that range that make the estimate smallest and largest.

    Args:
        ratings: observed entries, n of them.
        w: (n,) inverse propensities.
        d: (n,) losses.
        level: nominal coverage.
        ratio: G, at least 1.
        refits: where P is estimated.
    """
    naive = _of_known(ratings, np.ones(len(d)), d, "snips", level)
    if ratio == 1.0:
        both = _ends(ratings, w, d, np.ones(len(d)), level, refits)
        return {"naive": naive, **both}
    found = {"naive": naive}
    for name in ("ips", "snips"):
        low, high = (_ends(ratings, w, d, f, level, refits)[name] for f in extreme_factors(w, d, ratio, name))
        found[name] = low[0], high[1]
    return found


def estimate(w: Floats, d: Floats, ratings: Ratings, estimator: str) -> float:
    """IPS (equation 4) or SNIPS (equation 6) from weights and losses of the observed entries, (n,)."""
    total = float((w * d).sum())
    return total / (ratings.n_users * ratings.n_items) if estimator == "ips" else total / float(w.sum())


def extreme_factors(w: Floats, d: Floats, ratio: float, estimator: str) -> tuple[Floats, Floats]:
    """Factors in [1/ratio, ratio] on the weights that make IPS or SNIPS smallest and largest, each (n,).

    Those of SNIPS change at one threshold on the loss (Zhao, Small & Bhattacharya 2019, proposition 2).
    """
    if estimator == "ips":
        high = np.where(d > 0.0, ratio, 1.0 / ratio)
        return 1.0 / high, high
    order = np.argsort(d, kind="stable")
    weight, total = (np.concatenate([[0.0], np.cumsum(x[order])]) for x in (w, w * d))
    rank = np.empty(len(d), np.int64)
    rank[order] = np.arange(len(d))

    def of_cuts(below: float, above: float) -> Floats:
        return (below * total + above * (total[-1] - total)) / (below * weight + above * (weight[-1] - weight))

    least, largest = int(np.argmin(of_cuts(ratio, 1.0 / ratio))), int(np.argmax(of_cuts(1.0 / ratio, ratio)))
    return np.where(rank < least, ratio, 1.0 / ratio), np.where(rank < largest, 1.0 / ratio, ratio)


def _ends(
    ratings: Ratings, w: Floats, d: Floats, factor: Floats, level: float, refits: Refits | None
) -> dict[str, tuple[float, float]]:
    """Ends of IPS and SNIPS with weights factor times w."""
    if refits is None:
        return {name: _of_known(ratings, factor * w, d, name, level) for name in ("ips", "snips")}
    total, weight, cells = refits.sums(ratings, d, factor)
    step = refits.step(ratings, w, factor * d)
    found = {}
    for name, below in (("ips", cells), ("snips", weight)):
        resampled = np.divide(total, below, out=np.zeros(len(total)), where=below > 0.0)
        value = estimate(factor * w, d, ratings, name)
        low, high = _limits(value, resampled, step, ratings.n_users, level, bool(np.all(d >= 0.0)))
        found[name] = min(low, value), max(high, value)
    return found


def _of_known(ratings: Ratings, w: Floats, d: Floats, estimator: str, level: float) -> tuple[float, float]:
    sums = np.bincount(ratings.users, w * d, minlength=ratings.n_users)
    if estimator == "ips":
        return ratio_interval(sums / ratings.n_items, np.ones(ratings.n_users), level)[1:]
    return ratio_interval(sums, np.bincount(ratings.users, w, minlength=ratings.n_users), level)[1:]


def _limits(
    value: float, resampled: Floats, step: float, users: int, level: float, positive: bool
) -> tuple[float, float]:
    """Ends with the resamples' bias, variance and skewness, and with what one more part could add."""
    if users < 2:
        return -np.inf, np.inf
    off = resampled - resampled.mean()
    square = float((off * off).mean())
    third = float((off**3).mean()) / square if square > 0.0 else 0.0
    variance = square * small_sample_factor(min(users, len(resampled)), level)
    spread = Spread(variance, third, max(third, step), step)
    centre = value - (float(resampled.mean()) - value)
    if positive:
        return positive_limits(max(centre, 0.0), spread, level)
    less, more = spread.reaches(level)
    return centre - less, centre + more
