"""The views of a log, and what was made of them: popularity, a model with factors, its strength and its drift."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.fitting.calibration.scales import (
    Affinity,
    Lives,
    Resemblance,
    Scales,
    by_factors,
    far_lags,
    fit_scales,
    match_popularity,
    resemblance,
    same_item,
)
from recsim_mnar.fitting.calibration.view_model import ViewModel, fit_views, log_score
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.resuming import fields_of, in_json, stage
from recsim_mnar.rng import Stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Report = Callable[[str], None]

RANKS = (2, 5, 8)
CELLS = 4_000_000
"""Of a table of users by items that memory bears."""

_MOST_USERS = 4000
_HELD_OUT = 0.1
_CLEARLY, _LIKELY = 2.0, 0.5
_PAIRED = 0.3
"""Share, about, of a score's standard error that a difference of two scores of the same views has."""
_MODEL, _SCALES = fields_of(ViewModel), fields_of(Scales)
_SCORE = in_json(list[float], lambda told: (float(told[0]), float(told[1])))
_RANKING = 800
_ITERATIONS, _FEWER = 14, 8


@dataclass(frozen=True)
class Views:
    """Views of U users (numbered from 0, in their order), and what was made of them."""

    user: Ints
    item: Ints
    counts: NDArray[np.float32]
    lives: Lives
    model: ViewModel
    scales: Scales
    seen: list[Resemblance]
    far: tuple[int, ...]
    scores: dict[int, tuple[float, float]]
    error: float

    @property
    def factors(self) -> Floats:
        """(P, K) of the items, at the strength found."""
        return self.scales.scale * self.model.factors


def views_of(log: Log, n_items: int, seed: int, report: Report) -> Views:
    """Fit what is viewed: a log of at least one view.

    Args:
        log: with views.
        n_items: P of the catalogue.
        seed: of what is held out and drawn.
        report: told of each stage.
    """
    organic = log.organic()
    user = steps_of_users(organic["user"])
    item = organic["item"].astype(np.int64)
    n_users = int(user[-1]) + 1
    repeats = int(len(item) - len(np.unique(user * n_items + item)))
    by_item = np.bincount(item, minlength=n_items).astype(np.float64)
    lengths = np.bincount(user)
    expected = float((lengths * (lengths - 1.0)).sum() / 2 * ((by_item / by_item.sum()) ** 2).sum())
    no_repeats = repeats == 0 and expected > 5.0
    error = _error_of_shares(user, item, by_item)
    shares = settled_shares((by_item + 0.5) / (by_item.sum() + 0.5 * n_items), error)
    lives = Lives(shares, len(item) / n_users, no_repeats)
    kept = _some_users(n_users, n_items, seed)
    counts = _counts(user, item, kept, n_users, n_items, no_repeats)
    model, scores = _ranked(counts, no_repeats, seed, report)
    k = model.factors.shape[1]
    far = far_lags(user)
    report("set the strength and the drift of preferences")
    affinities, seen = _affinities(user, item, counts, kept, k, lives, far, seed)
    if k == 0:
        offsets = match_popularity(model.factors, model.offsets, lives, 0.0)
        scales = Scales(1.0, 0.0, offsets, np.eye(2), False, np.zeros(2), np.zeros(2))
    else:
        observed = np.mean([each.means() for each in seen], axis=0)
        scales = stage(
            "scales", lambda: fit_scales(model.factors, model.offsets, lives, observed, affinities, far), _SCALES
        )
    return Views(user, item, counts, lives, model, scales, seen, far, scores, error)


def _error_of_shares(user: Ints, item: Ints, by_item: Floats) -> float:
    """Mean variance of the logarithm of an item's share of views, items weighted by them, users drawn anew."""
    n_items, total = len(by_item), by_item.sum()
    pairs, count = np.unique(user * n_items + item, return_counts=True)
    squares = np.bincount(pairs % n_items, count.astype(np.float64) ** 2, n_items)
    lengths = np.bincount(user).astype(np.float64)
    cross = np.bincount(pairs % n_items, count * lengths[pairs // n_items], n_items)
    shares = by_item / total
    variance = (squares - 2.0 * shares * cross + shares**2 * (lengths**2).sum()) / total**2
    return float((variance / np.maximum(shares, 0.5 / total)).sum())


def settled_shares(shares: Floats, error: float) -> Floats:
    """Shares whose logarithms vary as those of true shares do: what sampling adds is taken out.

    Args:
        shares: (P,) as estimated.
        error: mean variance of their logarithms' errors, weighted by the shares.
    """
    logs = np.log(shares)
    centre = float(shares @ logs)
    spread = float(shares @ (logs - centre) ** 2)
    kept = np.sqrt(max(1.0 - error / max(spread, 1e-12), 0.0))
    settled = np.exp(centre + kept * (logs - centre))
    return np.asarray(settled / settled.sum(), np.float64)


def steps_of_users(user: Ints) -> Ints:
    """Users numbered 0, 1, ... in their order of rows, (n,)."""
    numbers = np.zeros(len(user), np.int64)
    numbers[user_starts(user)[1:]] = 1
    return np.cumsum(numbers)


def _some_users(n_users: int, n_items: int, seed: int) -> Ints:
    """Users whose views the likelihood is of: all, or so many drawn as cells of a table are bearable."""
    most = int(min(n_users, _MOST_USERS, max(CELLS // n_items, 200)))
    drawn = rng.uniforms(seed, Stream.FIT, np.arange(n_users), 3)
    return np.sort(np.argsort(drawn, kind="stable")[:most])


def _counts(user: Ints, item: Ints, kept: Ints, n_users: int, n_items: int, once: bool) -> NDArray[np.float32]:
    place = np.full(n_users, -1)
    place[kept] = np.arange(len(kept))
    mine = place[user] >= 0
    counts = np.zeros(len(kept) * n_items, np.float32)
    counts += np.bincount(place[user[mine]] * n_items + item[mine], minlength=len(counts)).astype(np.float32)
    table = counts.reshape(len(kept), n_items)
    return np.minimum(table, np.float32(1.0)) if once else table


def _ranked(
    counts: NDArray[np.float32], no_repeats: bool, seed: int, report: Report
) -> tuple[ViewModel, dict[int, tuple[float, float]]]:
    """The model with as many factors as predict held-out views best; none where none does better than popularity."""
    whole = counts
    if no_repeats:  # each cell costs an exponential more
        counts = counts[:_RANKING]
    users, items = np.nonzero(counts)
    times = counts[users, items].astype(np.int64)
    users, items = np.repeat(users, times), np.repeat(items, times)
    out = rng.uniforms(seed, Stream.PROTOCOL, np.arange(len(users)), 9) < _HELD_OUT
    test = np.zeros_like(counts)
    np.add.at(test, (users[out], items[out]), 1.0)
    train = counts - test
    scores: dict[int, tuple[float, float]] = {}

    def score_of(k: int) -> tuple[float, float]:
        fit = fit_views(train, k, no_repeats=no_repeats, seed=seed, iterations=_FEWER)
        return log_score(fit, train, test, no_repeats=no_repeats)

    last = None
    for k in (0, *(k for k in RANKS if k < counts.shape[1])):
        report(f"fit what is viewed with {k} factors" if k else "fit what is viewed by popularity alone")
        scores[k] = stage(f"score-{k}", functools.partial(score_of, k), _SCORE)
        if last is not None and k > 2 and scores[k][0] < scores[last][0]:
            break
        last = k
    best = 0
    for k, (score, error) in scores.items():
        if score - scores[best][0] > (_CLEARLY if best == 0 else _LIKELY) * _PAIRED * error:
            best = k
    report(f"fit what is viewed, {best} factors")

    def fit() -> ViewModel:
        return fit_views(whole, best, no_repeats=no_repeats, seed=seed, iterations=_ITERATIONS)

    return stage("model", fit, _MODEL), scores


def _affinities(
    user: Ints,
    item: Ints,
    counts: NDArray[np.float32],
    kept: Ints,
    k: int,
    lives: Lives,
    far: tuple[int, ...],
    seed: int,
) -> tuple[list[Affinity], list[Resemblance]]:
    """By what users resemble themselves, and how much they do; of other users' factors where items are met once."""
    if not lives.no_repeats or k == 0:
        return [same_item], [resemblance(user, item, same_item, far)]
    half = np.arange(len(kept)) % 2 == 0

    def fit(of: NDArray[np.bool_]) -> ViewModel:
        return fit_views(counts[of], k, no_repeats=True, seed=seed, iterations=_FEWER)

    affinities = [
        by_factors(stage(f"half-{i}", functools.partial(fit, of), _MODEL).factors) for i, of in enumerate((half, ~half))
    ]
    fitted_on = np.full(int(user[-1]) + 1, -1)
    fitted_on[kept[half]], fitted_on[kept[~half]] = 0, 1
    seen = []
    for side, affinity in enumerate(affinities):
        whole = resemblance(user, item, affinity, far)
        others = (fitted_on != side).astype(np.float64)[:, None]
        seen.append(Resemblance(whole.sums * others, whole.pairs * others))
    return affinities, seen
