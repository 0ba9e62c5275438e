"""The views of a log, and what was made of them: popularity, a model with factors, its strength and its drift."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.fitting.calibration.scales import Lives, Scales, far_lags, fit_scales, match_popularity, resemblance
from recsim_mnar.fitting.calibration.view_model import Cells, ViewModel, fit_views, held_out_score
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.resuming import fields_of, in_json, stage
from recsim_mnar.rng import Stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FACTORS = 5
"""As RecoGym's; those of which the log shows no sign fade."""
CELLS = 4_000_000
"""Of a table of users by items that memory bears."""
_MOST_USERS, _RANKING = 4000, 800
_HELD_OUT, _CLEARLY = 0.1, 0.6
"""Standard errors of a held-out score that make factors; a difference of two scores of the same views has about .3."""
_FADED = 0.02
"""Of the largest factor's variance: smaller ones are none."""
_ITERATIONS, _FEWER = 14, 8
_SCORE = in_json(list[float], lambda told: (float(told[0]), float(told[1])))


@dataclass(frozen=True)
class Shares:
    """Items' shares of views: logarithms (P,), variances of their errors, what true ones vary about and how much.

    True logarithms are taken as normal about a centre, whose variance is found by moments (Paule & Mandel 1982).
    """

    logs: Floats
    errors: Floats
    centre: float
    between: float

    def settled(self, noise: Floats | None = None) -> Floats:
        """Logarithms (P,) that vary as true ones do: a posterior draw, given errors to add, else the best fit."""
        apart, kept = self.logs - self.centre, self.between / (self.between + self.errors)
        return np.asarray(
            self.centre + (np.sqrt(kept) * apart if noise is None else kept * apart + np.sqrt(kept) * noise)
        )


@dataclass(frozen=True)
class Views:
    """Views of U users (numbered from 0, in their order), and what was made of them.

    ``sums`` and ``pairs``, (U, 2): how much users resemble themselves, see :func:`scales.resemblance`.
    """

    user: Ints
    item: Ints
    n_users_fitted: int
    lives: Lives
    shares: Shares
    model: ViewModel
    scales: Scales
    sums: Floats
    pairs: Floats
    scores: dict[int, tuple[float, float]]

    @property
    def factors(self) -> Floats:
        """(P, K) of the items, at the strength found."""
        return self.scales.scale * self.model.factors

    def resemblances(self, weights: Floats) -> Floats:
        """(2,) mean affinity of near pairs, and how much of it far pairs keep, users being their own measure."""
        return np.einsum("u,uj->j", weights, self.sums) / np.maximum(np.einsum("u,uj->j", weights, self.pairs), 1e-9)


def views_of(log: Log, n_items: int, seed: int, report: Callable[[str], None]) -> Views:
    """Fit what is viewed: a log of at least one view of P = ``n_items`` items; ``report`` is told of each stage."""
    organic = log.organic()
    user, item = steps_of_users(organic["user"]), organic["item"].astype(np.int64)
    lengths = np.bincount(user)
    by_item = np.bincount(item, minlength=n_items) / len(item)
    repeats = len(item) - len(np.unique(user * n_items + item))
    no_repeats = repeats == 0 and float((lengths * (lengths - 1.0)).sum() / 2 * (by_item**2).sum()) > 5.0
    shares = shares_of(user, item, n_items)
    lives = Lives(lengths, shares.settled(), no_repeats, () if no_repeats else far_lags(lengths))
    drawn = rng.uniforms(seed, Stream.FIT, np.arange(len(lengths)), 3)
    most = min(_MOST_USERS, max(CELLS // n_items, 200))
    kept = np.sort(np.argsort(drawn, kind="stable")[:most])
    model, scores = _ranked(counted_views(user, item, kept, n_items), no_repeats, seed, report)
    report("set the strength and the drift of preferences")
    sums, pairs = resemblance(user, item, lives.far)
    if model.factors.shape[1] == 0 or no_repeats:
        scales = Scales(1.0, 0.0, match_popularity(model.factors, model.offsets, lives, 0.0), np.eye(2), np.zeros(2))
    else:
        observed = sums.sum(axis=0) / np.maximum(pairs.sum(axis=0), 1e-9)
        scales = stage(
            "scales", lambda: fit_scales(model.factors, model.offsets, lives, observed), fields_of(Scales)
        )  # fmt: skip
    return Views(user, item, len(kept), lives, shares, model, scales, sums, pairs, scores)


def shares_of(user: Ints, item: Ints, n_items: int) -> Shares:
    """Shares of views, half a view more of each item, and their errors, users drawn anew."""
    by_item, lengths = np.bincount(item, minlength=n_items) + 0.5, np.bincount(user).astype(np.float64)
    pairs, count = np.unique(user * n_items + item, return_counts=True)
    squares = np.bincount(pairs % n_items, count.astype(np.float64) ** 2, n_items) + 0.5
    cross = np.bincount(pairs % n_items, count * lengths[pairs // n_items], n_items)
    shares = by_item / by_item.sum()
    variance = (squares - 2.0 * shares * cross + shares**2 * (lengths**2).sum()) / by_item**2
    logs, errors = np.log(shares), np.maximum(variance, 0.5 / by_item)
    between = float(np.var(logs))
    for _ in range(50):
        weights = 1.0 / (between + errors)
        centre = float((weights * logs).sum() / weights.sum())
        between = max(float((weights**2 * ((logs - centre) ** 2 - errors)).sum() / (weights**2).sum()), 1e-6)
    return Shares(logs, errors, centre, between)


def steps_of_users(user: Ints) -> Ints:
    """Users numbered 0, 1, ... in their order of rows, (n,)."""
    numbers = np.zeros(len(user), np.int64)
    numbers[user_starts(user)[1:]] = 1
    return np.cumsum(numbers)


def counted_views(user: Ints, item: Ints, wanted: Ints, n_items: int) -> Cells:
    """(U, P) views of each item by the wanted users, ascending."""
    place = np.minimum(np.searchsorted(wanted, user), len(wanted) - 1)
    mine = wanted[place] == user
    cells = np.bincount(place[mine] * n_items + item[mine], minlength=len(wanted) * n_items)
    return cells.astype(np.float32).reshape(len(wanted), n_items)


def _ranked(
    counts: Cells, no_repeats: bool, seed: int, report: Callable[[str], None]
) -> tuple[ViewModel, dict[int, tuple[float, float]]]:
    """The model with factors where they predict held-out views better than popularity does, else without."""
    some = counts[:_RANKING] if no_repeats else counts  # where none is met twice each cell costs an exponential more
    users, items = np.nonzero(some)
    times = some[users, items].astype(np.int64)
    users, items = np.repeat(users, times), np.repeat(items, times)
    out = rng.uniforms(seed, Stream.PROTOCOL, np.arange(len(users)), 9) < _HELD_OUT
    test = np.zeros_like(some)
    np.add.at(test, (users[out], items[out]), 1.0)

    def score_of(k: int) -> tuple[float, float]:
        return held_out_score(some - test, test, k, no_repeats=no_repeats, seed=seed, iterations=_FEWER)

    scores, most = {}, min(FACTORS, counts.shape[1] - 1)
    for k in (0, most):
        report(f"fit what is viewed with {k} factors" if k else "fit what is viewed by popularity alone")
        scores[k] = stage(f"score-{k}", functools.partial(score_of, k), _SCORE)
    best = most if scores[most][0] - scores[0][0] > _CLEARLY * scores[most][1] else 0
    report(f"fit what is viewed, {best} factors")

    def fit() -> ViewModel:
        return fit_views(counts, best, no_repeats=no_repeats, seed=seed, iterations=_ITERATIONS).without(_FADED)

    return stage("model", fit, fields_of(ViewModel)), scores
