"""Accuracy of predicted ratings and of recommendations, estimated from revealed ratings.

The notation is that of Schnabel et al. 2016. R(Yhat) = 1/(U I) sum over all entries of delta(Y, Yhat) (equation 1) is
estimated from the observed entries (O = 1) of a matrix of U users and I items, each revealed with propensity P. P is
estimated by naive Bayes from self-selected (MNAR) ratings and a small random (MCAR) sample (section 5.1), or by
popularity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals import (
    Spread,
    poisson_reach,
    positive_limits,
    ratio_interval,
    resampled_counts,
    resampled_sums,
    small_sample_factor,
)
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, TRUST, Finding, Verdict, few_users, scaled
from recsim_mnar.kernels.checks import level_of, number_in, whole_number
from recsim_mnar.log.ratings import Floats, Ratings
from recsim_mnar.rng import check_seed

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
"""Values that ratings may have."""
REFITS = 200
"""Default number of resamples in which propensities are fitted again."""
METRICS = ("mse", "mae", "cg", "dcg@k")
"""Names of the metrics."""


@dataclass(frozen=True)
class NaiveBayes:
    """Propensities by rating value: P(O = 1 | Y = r) = P(r | O = 1) P(O = 1) / P(r), equation 11.

    Attributes:
        scale: rating values r, ascending.
        propensities: (R,) propensity of each value.
        marginals: (R,) P(r), from the random sample with Laplace smoothing.
        sample_size: number m of ratings in the random sample.
        laplace: number that was added to each value's count in the sample.
    """

    scale: tuple[float, ...]
    propensities: Floats
    marginals: Floats
    sample_size: int
    laplace: float

    def __call__(self, ratings: Ratings, users: Any = None) -> Floats:
        """Return (n,) the propensities of observed ratings; ``users`` is ignored, and nothing is fitted again."""
        return self.of(ratings.values)

    def refitted(self, observed: Floats, cells: Floats, sample: Floats) -> Floats:
        """Fit naive Bayes in B resamples and return (R, B) the propensities of each rating value.

        Args:
            observed: (R, B) number of self-selected ratings of each value.
            cells: (B,) number of cells of the matrix.
            sample: (R, B) number of ratings of each value in the random sample.
        """
        totals = observed.sum(axis=0)
        return _bayes(observed / totals, totals / cells, _smoothed(sample, self.laplace))

    def of(self, values: Any) -> Floats:
        """Return the propensities of observed ratings with these values, in an array of the same shape.

        Raises:
            UserError: a value that was not in the self-selected ratings.
        """
        values = np.asarray(values, np.float64)
        # Values above the scale get the last place, where they differ and are refused.
        place = np.minimum(np.searchsorted(self.scale, values), len(self.scale) - 1)
        unknown = np.asarray(self.scale)[place] != values
        if unknown.any():
            raise UserError(
                f"naive Bayes has no propensity for rating {values[unknown].ravel()[0]:g}: "
                f"it was fitted on {', '.join(f'{r:g}' for r in self.scale)}"
            )
        p = self.propensities[place]
        if not (p > 0.0).all():
            raise UserError(
                f"rating {values[p <= 0.0].ravel()[0]:g} was never seen in the MNAR data: its propensity would be 0"
            )
        return p


def naive_bayes(ratings: Ratings, sample: Any, *, laplace: float = 1.0) -> NaiveBayes:
    """Fit naive Bayes propensities.

    Args:
        ratings: self-selected (MNAR) ratings.
        sample: (m,) rating values of cells drawn uniformly (MCAR).
        laplace: number that is added to each value's count in the sample (Laplace smoothing).

    Raises:
        UserError: no sample, ratings outside 1 to 5, or a value of the sample that is not in the MNAR data.
    """
    values = np.asarray(sample, np.float64)
    if values.size == 0:
        raise UserError("the MCAR sample is empty: naive Bayes needs ratings of randomly drawn items")
    if len(ratings) == 0:
        raise UserError("there are no MNAR ratings to fit naive Bayes on")
    ratings.check_scale(STARS)
    outside = values[~np.isin(values, STARS)]
    if outside.size:
        raise UserError(f"the MCAR sample has rating {outside.ravel()[0]:g}, outside the scale")
    shares = np.array([(ratings.values == star).mean() for star in STARS])
    counts = np.array([(values == star).sum() for star in STARS], np.float64)
    for star, share, count in zip(STARS, shares, counts, strict=True):
        if share == 0 and count > 0:
            raise UserError(f"rating {star:g} is in the MCAR sample but was never seen in the MNAR data")
    if laplace < 0 or not np.all(counts + laplace > 0):
        raise UserError(f"laplace must be above 0 where a rating is missing from the sample, got {laplace:g}")
    marginals = _smoothed(counts, laplace)
    return NaiveBayes(STARS, _bayes(shares, ratings.density, marginals), marginals, values.size, laplace)


def _smoothed(counts: Floats, laplace: float) -> Floats:
    """Return P(r) with Laplace smoothing from the counts of each rating value, (R,) or (R, B)."""
    return np.asarray((counts + laplace) / (counts.sum(axis=0) + laplace * len(counts)))


def _bayes(shares: Floats, density: Any, marginals: Floats) -> Floats:
    """Compute propensities of rating values by equation 11, P(r | O = 1) P(O = 1) / P(r), at most 1.

    Args:
        shares: (R,) or (R, B) P(r | O = 1), each value's share of the observed ratings.
        density: P(O = 1), the observed share of the matrix; one number or (B,).
        marginals: (R,) or (R, B) P(r). A value with P(r) = 0 gets propensity 1.
    """
    joint = np.asarray(shares * density)
    return np.minimum(np.divide(joint, marginals, out=np.ones_like(joint), where=marginals > 0.0), 1.0)


def popularity(ratings: Ratings, *, laplace: float = 1.0) -> Floats:
    """Return (U, I) propensities by popularity: the share of users who rated the item, smoothed by ``laplace``.

    The share of item i is (n_i + laplace) / (U + 2 laplace), equal for all users.
    """
    counts = np.bincount(ratings.items, minlength=ratings.n_items)
    share = (counts + laplace) / (ratings.n_users + 2.0 * laplace)
    return np.broadcast_to(share, ratings.shape).copy()


@dataclass(frozen=True)
class Loss:
    """Loss delta(Y, Yhat) of each cell for given predictions: a function of the error, or a gain times Y.

    Attributes:
        metric: name of the metric, one of :data:`METRICS`.
        at: function from (n,) users, (n,) items and (n,) ratings to (n,) losses.
        shape: shape (U, I) of the predictions; None if cells of any matrix may be evaluated.
    """

    metric: str
    at: Callable[[NDArray[np.int64], NDArray[np.int64], Floats], Floats]
    shape: tuple[int, ...] | None = None

    def check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise UserError if the shapes of predictions and ratings differ."""
        if self.shape not in (None, shape):
            raise UserError(f"the predictions have shape {self.shape} and the ratings are of a {shape} matrix")

    def everywhere(self, truth: Any) -> Floats:
        """Return (U, I) the losses of all cells from the full matrix of true ratings."""
        truth = np.asarray(truth, np.float64)
        self.check_shape(truth.shape)
        users, items = np.indices(truth.shape).reshape(2, -1)
        return self.at(users, items, truth.ravel()).reshape(truth.shape)

    def risk(self, truth: Any) -> float:
        """Return the true R(Yhat) (equation 1), the mean loss over the full matrix of true ratings."""
        return float(self.everywhere(truth).mean())


def ranks(scores: Any, *, seed: int = 0) -> NDArray[np.int64]:
    """Return (U, I) the rank of each item among the user's scores, 1 for the largest score.

    Ties are broken by random draws, because index order would favour the items that a file lists first.
    """
    return np.argsort(top_items(scores, np.shape(scores)[1], seed=seed), axis=1) + 1


def loss(metric: str, predictions: Any, *, k: int | None = None, ranking: Any = None, seed: int = 0) -> Loss:
    """Return the loss delta of a metric for a matrix of predictions.

    ``mse`` and ``mae`` are the squared and the absolute error of ratings. ``cg`` takes the predictions as a binary
    matrix of k recommendations per user and is (I/k) Yhat Y. ``dcg@k`` is I Y 1[rank <= k] / log2(1 + rank), so that
    its mean over all entries is the mean DCG of a user.

    Args:
        metric: name of the metric, one of :data:`METRICS`.
        predictions: (U, I) predicted ratings, recommendations or scores.
        k: length of the lists for ``cg`` and ``dcg@k``.
        ranking: (U, I) ranks from :func:`ranks`; None to compute them.
        seed: seed of the draws that break ties.

    Raises:
        UserError: an unknown metric, a missing k, predictions that are not a finite (U, I) matrix.
    """
    if metric not in METRICS:
        raise UserError(f"unknown metric {metric!r}; {nearest(metric, METRICS)}")
    matrix = np.asarray(predictions, np.float64)
    if matrix.ndim != 2:
        raise UserError(f"predictions must be a (U, I) matrix, got shape {matrix.shape}")
    if not np.isfinite(matrix).all():
        u, i = np.argwhere(~np.isfinite(matrix))[0]
        raise UserError(f"the prediction of user {u}, item {i} is {matrix[u, i]}, not a finite number")
    n_items = matrix.shape[1]
    if metric == "mse":
        return Loss(metric, lambda users, items, values: (values - matrix[users, items]) ** 2, matrix.shape)
    if metric == "mae":
        return Loss(metric, lambda users, items, values: np.abs(values - matrix[users, items]), matrix.shape)
    if k is None or not 1 <= k <= n_items:
        raise UserError(f"{metric} needs k in 1..{n_items}, got {k}")
    if metric == "cg":
        gain = (n_items / k) * matrix
    else:
        if ranking is None:
            rank = ranks(matrix, seed=seed)
        else:
            rank = np.asarray(ranking)
        if rank.shape != matrix.shape:
            raise UserError(f"the ranking has shape {rank.shape} and the predictions {matrix.shape}")
        gain = np.where(rank <= k, n_items / np.log2(1.0 + rank), 0.0)
    return Loss(metric, lambda users, items, values: gain[users, items] * values, matrix.shape)


@dataclass(frozen=True)
class RatingEstimates:
    """Estimates of one metric from observed ratings.

    Attributes:
        naive: mean loss of the observed entries (equation 3).
        ips: estimate by IPS (equation 4).
        snips: estimate by SNIPS (equation 6).
        n: number of observed entries.
        effective_n: Kish's effective sample size, (sum of weights)^2 / sum of squared weights.
        verdict: verdict on the IPS estimate; ``naive`` is unbiased only if all propensities are equal, which the
            finding "naive_biased" tells.
        intervals: lower and upper end for each of the three, by name.
    """

    naive: float
    ips: float
    snips: float
    n: int
    effective_n: float
    verdict: Verdict = TRUST
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


def _verdict(
    ratings: Ratings, w: Floats, value: float, ends: tuple[float, float], level: float, advice: str
) -> Verdict:
    """Return the verdict on an IPS estimate.

    Args:
        ratings: observed entries.
        w: (n,) inverse propensities.
        value: IPS estimate.
        ends: lower and upper end of its interval.
        level: nominal coverage of the interval.
        advice: advice if the interval is wide.
    """
    users = ratings.n_users
    cells = ratings.n_users * ratings.n_items
    findings = few_users(int(np.unique(ratings.users).size))
    ess = _effective_size(w)
    message = f"the effective sample is {ess:.3g} of {len(ratings):,} ratings"
    findings.append(Finding("effective_sample", scaled(ess, 100.0, 30.0), ess, message, "reveal more ratings"))
    if users > 1:
        # The inverse propensities of the observed entries sum to the number of cells, in expectation.
        sums = np.bincount(ratings.users, w, users) / cells
        variance = float(np.sum((sums - sums.mean()) ** 2)) * small_sample_factor(users, level)
        mean = float(w.sum()) / cells
        error = abs(mean - 1.0)
        if error > poisson_reach(variance, step=float(w.max()) / cells, level=0.998):  # one false alarm in 500
            severity = GRAVE if error > 0.3 else CAUTION
            message = f"the inverse propensities of the observed sum to {mean:.3g} of all cells and should to 1"
            findings.append(Finding("propensities", severity, mean, message, "check the propensities"))
        low, high = ends
        relative_reach = math.inf
        if value != 0.0:
            relative_reach = max(high - value, value - low) / abs(value)
        message = f"the farther end of the interval is {100.0 * relative_reach:.3g} % of the value away from it"
        findings.append(Finding("wide_interval", scaled(relative_reach, 0.4, 1.0), relative_reach, message, advice))
    weight_ratio = float(w.max() / w.min())
    # 1e-9 allows for rounding.
    severity = 0.99 if weight_ratio > 1.0 + 1e-9 else 0.0  # below caution, because the verdict is on the IPS estimate
    message = f"weights differ up to {weight_ratio:.3g} times, so the naive mean is of other cells than all"
    findings.append(Finding("naive_biased", severity, weight_ratio, message, "use ips or snips"))
    return Verdict.of(findings)


def _effective_size(w: Floats) -> float:
    """Return Kish's effective sample size of weights (n,)."""
    return float(w.sum() ** 2 / (w * w).sum())


def clip_propensities(propensities: Any, smallest: float) -> Floats:
    """Return propensities raised to at least ``smallest``, which trades variance for bias (Strehl et al. 2010)."""
    if not 0.0 <= smallest <= 1.0:
        raise UserError(f"the smallest propensity must be in [0, 1], got {smallest}")
    return np.maximum(np.asarray(propensities, np.float64), smallest)


def check_propensities(ratings: Ratings, propensities: Any) -> Floats:
    """Return (n,) the propensities of the observed entries.

    Args:
        ratings: observed entries.
        propensities: (U, I) matrix, (n,) numbers, one number, or a fit: a function from ratings and the users of a
            resample to (n,) propensities.

    Raises:
        UserError: another shape, or an observed entry whose propensity is not in (0, 1].
    """
    if callable(propensities):
        propensities = propensities(ratings, np.arange(ratings.n_users))
    p = np.asarray(propensities, np.float64)
    if p.ndim == 2:
        p = ratings.at(p, "the propensity matrix")
    elif p.ndim == 0:
        p = np.full(len(ratings), float(p))
    elif p.shape != (len(ratings),):
        raise UserError(f"propensities must be a {ratings.shape} matrix or ({len(ratings)},) numbers, got {p.shape}")
    bad = ~((p > 0.0) & (p <= 1.0))
    if bad.any():
        row = int(np.argmax(bad))
        raise UserError(
            f"the propensity of the observed rating of user {ratings.users[row]}, item {ratings.items[row]} "
            f"is {p[row]:g}: it must be in (0, 1]"
        )
    return p


def estimate_ratings(
    delta: Loss,
    ratings: Ratings,
    propensities: Any,
    *,
    clip: float = 0.0,
    level: float = 0.95,
    largest_ratio: float | None = None,
    replicates: int = REFITS,
    seed: int = 0,
) -> RatingEstimates:
    """Estimate R by the naive mean, IPS and SNIPS from the observed entries, with intervals and a verdict.

    Numbers as propensities are taken as true. A fit is repeated in resamples of the users (and of naive Bayes' random
    sample), so that the intervals include its error, but not the bias of clipping. No data show how far the true P is
    from the best fit of a wrong model (Lemma 3). With ``largest_ratio``, they hold for any P within that ratio.

    Args:
        delta: loss of the predictions, from :func:`loss`.
        ratings: observed entries.
        propensities: P as numbers (:func:`check_propensities`), or as a fit: a :class:`NaiveBayes`, or a function from
            ratings and the users of their rows (repeated in a resample) to P.
        clip: smallest propensity; smaller ones are raised to it.
        level: nominal coverage of the intervals.
        largest_ratio: largest factor between the true P and the given one, either way; 1 states that the model is
            right. Without it no verdict on fitted propensities is better than caution.
        replicates: number of resamples in which propensities are fitted again.
        seed: seed of the resamples.

    Raises:
        UserError: no ratings, predictions of another shape, or an argument outside its range.
    """
    level_of(level)
    delta.check_shape(ratings.shape)
    if len(ratings) == 0:
        raise UserError("there are no observed ratings to estimate from")
    ratio = 1.0 if largest_ratio is None else number_in(largest_ratio, "largest_ratio", 1.0)
    w = _inverse(ratings, propensities, clip)
    d = delta.at(ratings.users, ratings.items, ratings.values)
    refits = None
    if callable(propensities):
        refits = _refits(propensities, clip, replicates, seed)
    advice = "reveal more ratings"
    if isinstance(propensities, NaiveBayes):
        advice = "take a larger random sample, or reveal more ratings"
    ends = intervals(ratings, w, d, level, ratio, refits)
    ips = estimate(w, d, ratings, "ips")
    verdict = _verdict(ratings, w, ips, ends["ips"], level, advice)
    if refits is not None and largest_ratio is None:
        message = "propensities are estimated, and the interval takes their model to be right"
        verdict = verdict.with_findings([Finding("estimated", CAUTION, 1.0, message, "state largest_ratio")])
    return RatingEstimates(
        naive=float(d.mean()),
        ips=ips,
        snips=estimate(w, d, ratings, "snips"),
        n=len(ratings),
        effective_n=_effective_size(w),
        verdict=verdict,
        intervals=ends,
    )


def _inverse(ratings: Ratings, propensities: Any, clip: float) -> Floats:
    """Return (n,) the inverse propensities of the observed entries, after clipping."""
    return 1.0 / clip_propensities(check_propensities(ratings, propensities), clip)


_SAMPLE_ADDRESS = 2**62
"""First address of the random draws that resample naive Bayes' sample, beyond the addresses of users."""

Weigh = Callable[[Ratings, NDArray[np.int64]], Floats]
"""Function from a resample's ratings and the users of their rows to (n,) weights, the inverse propensities."""


@dataclass(frozen=True)
class Refits:
    """Poisson bootstrap of users, in each resample of which propensities are fitted again.

    Attributes:
        fit: naive Bayes, or a function from a resample to weights. The random sample of naive Bayes is drawn again from
            its smoothed shares of ratings, so that a rating that is missing from the sample is not taken as impossible.
        clip: smallest propensity of naive Bayes; functions return clipped weights.
        replicates: number of resamples.
        seed: seed of the resamples.
    """

    fit: NaiveBayes | Weigh
    clip: float
    replicates: int
    seed: int

    def sums(self, ratings: Ratings, d: Floats, factor: Floats) -> tuple[Floats, Floats, Floats]:
        """Compute the sums of each resample that IPS and SNIPS need.

        Args:
            ratings: observed entries, n of them.
            d: (n,) losses.
            factor: (n,) factors that multiply the weights after the fit.

        Returns:
            (replicates,) sums of weights times losses.
            (replicates,) sums of weights.
            (replicates,) numbers of cells of the matrix.
        """
        if isinstance(self.fit, NaiveBayes):
            return self._from_counts(self.fit, ratings, d, factor)
        return self._one_by_one(self.fit, ratings, d, factor)

    def _from_counts(
        self, fit: NaiveBayes, ratings: Ratings, d: Floats, factor: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Compute :meth:`sums` for naive Bayes, whose propensities depend only on the counts of rating values."""
        n_users = ratings.n_users
        n_values = len(fit.scale)
        cell = np.searchsorted(fit.scale, ratings.values) * n_users + ratings.users
        # (values, users) sums of weighted losses, of weights and of 1, each before division by the propensity.
        tables = [
            np.bincount(cell, column, n_values * n_users).reshape(n_values, n_users)
            for column in (factor * d, factor, np.ones(len(d)))
        ]
        columns = np.concatenate([*tables, np.ones((1, n_users))])  # the last row counts users
        sums = resampled_sums(columns, replicates=self.replicates, seed=self.seed)
        losses, factors, observed = np.split(sums[:-1], 3)
        cells = sums[-1] * ratings.n_items
        p = np.maximum(fit.refitted(observed, cells, self._samples(fit)), self.clip)
        p[observed == 0.0] = 1.0  # such values have no losses, and 0 / 1 replaces 0 / 0
        return (losses / p).sum(axis=0), (factors / p).sum(axis=0), cells

    def _samples(self, fit: NaiveBayes) -> Floats:
        """Draw the random sample again in each resample, and return (R, replicates) its counts of each rating value."""
        inner = np.cumsum(fit.marginals)[:-1]  # inversion of the distribution function
        out = np.empty((len(fit.scale), self.replicates))
        for b in range(self.replicates):
            draws = rng.uniforms(self.seed, rng.Stream.BOOTSTRAP, _SAMPLE_ADDRESS + b, np.arange(fit.sample_size))
            out[:, b] = np.bincount(np.searchsorted(inner, draws, side="right"), minlength=len(out))
        return out

    def _one_by_one(self, weigh: Weigh, ratings: Ratings, d: Floats, factor: Floats) -> tuple[Floats, Floats, Floats]:
        """Compute :meth:`sums` for any fit, building the ratings of each resample, in which users are repeated."""
        counts = resampled_counts(ratings.n_users, replicates=self.replicates, seed=self.seed)
        out = np.zeros((3, self.replicates))
        for b in range(self.replicates):
            times = counts[:, b].astype(np.int64)
            users = np.repeat(np.arange(ratings.n_users), times)
            rows = np.repeat(np.arange(len(d)), times[ratings.users])
            # The first copy of a rating belongs to the first copy of its user, and so on. Copies of a user are numbered
            # from the number of copies of all users before.
            copy = np.arange(len(rows)) - np.searchsorted(rows, rows)
            owner = (np.cumsum(times) - times)[ratings.users[rows]] + copy
            resample = Ratings(owner, ratings.items[rows], ratings.values[rows], len(users), ratings.n_items)
            w = factor[rows] * weigh(resample, users)
            out[:, b] = (w * d[rows]).sum(), w.sum(), len(users) * ratings.n_items
        losses, weights, cells = out
        return losses, weights, cells

    def step(self, ratings: Ratings, w: Floats, d: Floats) -> float:
        """Return the largest amount that one more user, or one more rating of the random sample, could add to IPS.

        Args:
            ratings: observed entries, n of them.
            w: (n,) inverse propensities.
            d: (n,) losses.
        """
        sums = np.bincount(ratings.users, w * d)
        step = float(np.abs(sums).max()) / (ratings.n_users * ratings.n_items)
        if not isinstance(self.fit, NaiveBayes):
            return step
        place = np.searchsorted(self.fit.scale, ratings.values)
        means = np.bincount(place, d) / np.maximum(np.bincount(place), 1)
        return max(step, float(np.abs(means).max()) / self.fit.sample_size)


def _refits(fit: Callable[..., Any], clip: float, replicates: Any, seed: Any) -> Refits:
    """Return the resamples in which a fit of propensities is repeated, after checking their arguments.

    Args:
        fit: naive Bayes, or a function from a resample's ratings and the users of their rows to propensities.
        clip: smallest propensity.
        replicates: number of resamples, at least 20.
        seed: seed of the resamples.
    """

    def weigh(observed: Ratings, users: NDArray[np.int64]) -> Floats:
        """Fit propensities in a resample, and return the weights of its ratings."""
        return _inverse(observed, fit(observed, users), clip)

    replicates = whole_number(replicates, "replicates", 20)
    if isinstance(fit, NaiveBayes):
        return Refits(fit, clip, replicates, check_seed(seed))
    return Refits(weigh, clip, replicates, check_seed(seed))


def intervals(
    ratings: Ratings, w: Floats, d: Floats, level: float, ratio: float = 1.0, refits: Refits | None = None
) -> dict[str, tuple[float, float]]:
    """Compute confidence intervals of ``naive``, ``ips`` and ``snips`` (equations 3, 4 and 6) for independent users.

    With known P, standard errors are clustered by user. With ``refits``, the intervals have the variance and skewness
    of the resampled estimates, and are corrected for their bias, which is mostly that of Laplace smoothing. The bias of
    clipping is not included.

    With a ratio G > 1, the true P may be up to G times the given one or 1/G of it (Lemma 3). The ends are then those of
    the weights within this range that make the estimate smallest and largest.

    Args:
        ratings: observed entries, n of them.
        w: (n,) inverse propensities.
        d: (n,) losses.
        level: nominal coverage.
        ratio: largest factor G between the true and the given P, at least 1.
        refits: resamples, if P is estimated; None if it is known.

    Returns:
        Lower and upper end, by name of the estimator.
    """
    ones = np.ones(len(d))
    ends = {"naive": _known_ends(ratings, ones, d, "snips", level)}
    if ratio == 1.0:
        return ends | _ends(ratings, w, d, ones, level, refits)
    for name in ("ips", "snips"):
        smallest, largest = extreme_factors(w, d, ratio, name)
        low, _ = _ends(ratings, w, d, smallest, level, refits)[name]
        _, high = _ends(ratings, w, d, largest, level, refits)[name]
        ends[name] = (low, high)
    return ends


def estimate(w: Floats, d: Floats, ratings: Ratings, estimator: str) -> float:
    """Compute "ips" (equation 4) or "snips" (equation 6) from (n,) weights and (n,) losses of the observed entries."""
    total = float((w * d).sum())
    if estimator == "ips":
        return total / (ratings.n_users * ratings.n_items)
    return total / float(w.sum())


def extreme_factors(w: Floats, d: Floats, ratio: float, estimator: str) -> tuple[Floats, Floats]:
    """Find the factors in [1/ratio, ratio] of the weights that make IPS or SNIPS smallest, and largest.

    For SNIPS, one of both extremes multiplies all weights with a loss below some threshold, the other those above it
    (Zhao, Small & Bhattacharya 2019, proposition 2). All n + 1 thresholds are tried, by cumulative sums.

    Args:
        w: (n,) weights.
        d: (n,) losses.
        ratio: largest factor.
        estimator: "ips" or "snips".

    Returns:
        (n,) factors for the smallest estimate.
        (n,) factors for the largest estimate.
    """
    if estimator == "ips":
        high = np.where(d > 0.0, ratio, 1.0 / ratio)
        return 1.0 / high, high
    order = np.argsort(d, kind="stable")
    weight = np.append(0.0, np.cumsum(w[order]))
    total = np.append(0.0, np.cumsum((w * d)[order]))
    rank = np.argsort(order)

    def snips_by_cut(below: float, above: float) -> Floats:
        """Return (n + 1,) SNIPS if 0, 1, ... n of the smallest losses have the factor ``below``, the rest ``above``."""
        return (below * total + above * (total[-1] - total)) / (below * weight + above * (weight[-1] - weight))

    cut_of_least = int(np.argmin(snips_by_cut(ratio, 1.0 / ratio)))
    cut_of_largest = int(np.argmax(snips_by_cut(1.0 / ratio, ratio)))
    least_factors = np.where(rank < cut_of_least, ratio, 1.0 / ratio)
    largest_factors = np.where(rank < cut_of_largest, 1.0 / ratio, ratio)
    return least_factors, largest_factors


def _ends(
    ratings: Ratings, w: Floats, d: Floats, factor: Floats, level: float, refits: Refits | None
) -> dict[str, tuple[float, float]]:
    """Compute the intervals of IPS and SNIPS with the weights factor * w.

    Args:
        ratings: observed entries, n of them.
        w: (n,) inverse propensities.
        d: (n,) losses.
        factor: (n,) factors of the weights.
        level: nominal coverage.
        refits: resamples, if propensities are estimated; None if they are known.

    Returns:
        Lower and upper end, by name of the estimator.
    """
    if refits is None:
        return {name: _known_ends(ratings, factor * w, d, name, level) for name in ("ips", "snips")}
    total, weight, cells = refits.sums(ratings, d, factor)
    step = refits.step(ratings, w, factor * d)
    positive = bool(np.all(d >= 0.0))
    ends = {}
    for name, divisor in (("ips", cells), ("snips", weight)):
        resampled = np.divide(total, divisor, out=np.zeros(len(total)), where=divisor > 0.0)
        value = estimate(factor * w, d, ratings, name)
        low, high = _resampled_ends(value, resampled, step, ratings.n_users, level, positive=positive)
        ends[name] = (min(low, value), max(high, value))
    return ends


def _known_ends(ratings: Ratings, w: Floats, d: Floats, estimator: str, level: float) -> tuple[float, float]:
    """Compute the interval of "ips" or "snips" with known propensities, clustered by user.

    Args:
        ratings: observed entries, n of them.
        w: (n,) weights.
        d: (n,) losses.
        estimator: "ips" or "snips".
        level: nominal coverage.

    Returns:
        Lower and upper end.
    """
    n_users = ratings.n_users
    sums = np.bincount(ratings.users, w * d, n_users)
    if estimator == "ips":
        return ratio_interval(sums / ratings.n_items, np.ones(n_users), level)[1:]
    return ratio_interval(sums, np.bincount(ratings.users, w, n_users), level)[1:]


def _resampled_ends(
    value: float, resampled: Floats, step: float, users: int, level: float, *, positive: bool
) -> tuple[float, float]:
    """Compute an interval with the bias, variance and skewness of resampled estimates.

    Args:
        value: estimate.
        resampled: (replicates,) estimates in resamples.
        step: largest amount that one more user could add to the estimate.
        users: number of users.
        level: nominal coverage.
        positive: whether no part of the estimate can be negative.

    Returns:
        Lower and upper end; infinite for one user.
    """
    if users < 2:
        return -np.inf, np.inf
    mean = float(resampled.mean())
    deviation = resampled - resampled.mean()
    square = float((deviation * deviation).mean())
    third = 0.0  # skewness as the step of a Poisson count, see Spread
    if square > 0.0:
        third = float((deviation**3).mean()) / square
    variance = square * small_sample_factor(min(users, len(resampled)), level)
    spread = Spread(variance, third, up=max(third, step), down=step)
    centre = value - (mean - value)  # minus the bias of resampled estimates
    if positive:
        return positive_limits(max(centre, 0.0), spread, level)
    less, more = spread.reaches(level)
    return centre - less, centre + more


def top_items(scores: Any, n: int, *, users: Any = None, seed: int = 0) -> NDArray[np.int64]:
    """Return (U, n) each user's n items with the largest scores, best first; ties are broken by random draws.

    Args:
        scores: (U, I) scores.
        n: number of items per list.
        users: (U,) ids that address the draws; None for 0 .. U - 1.
        seed: seed of the draws.

    Raises:
        UserError: n larger than the number of items, or a score that is not a number.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2:
        raise UserError(f"scores must be (users, items), got shape {scores.shape}")
    n_users, n_items = scores.shape
    check_length(n, n_items)
    if np.isnan(scores).any():
        u, i = np.argwhere(np.isnan(scores))[0]
        raise UserError(f"the score of user {u} for item {i} is not a number")
    ids = range(n_users) if users is None else users
    lists = np.empty((n_users, n), np.int64)
    for row, user in enumerate(ids):
        draws = rng.uniforms(seed, rng.Stream.PROTOCOL, user, np.arange(n_items))
        lists[row] = np.lexsort((draws, -scores[row]))[:n]  # by score, and then by draw
    return lists


def check_length(length: int, n_items: int) -> None:
    """Raise UserError unless lists of this length can be made from n_items items."""
    if not 1 <= length <= n_items:
        raise UserError(f"lists of N = {length} items cannot be made of {n_items} items: choose N in 1..{n_items}")
