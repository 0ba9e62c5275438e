"""What is viewed: resemblance that is expected, shares whose spread is not their error's, and bytes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from recsim_mnar import rng
from recsim_mnar.fitting.viewing import (
    FittedViews,
    ViewCounts,
    ViewModel,
    count_pairs_of_views,
    expected_ratios,
    far_lags,
    fit_views,
    interests_of,
    match_popularity,
    shares_of,
)
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from recsim_mnar.worlds.sessions.catalogue import checked_catalogue

observed_ratios = FittedViews.observed_ratios


@pytest.mark.verify
@pytest.mark.parametrize("drift", [0.0, 0.02])
def test_expected_resemblance_is_that_of_simulated_users(drift):
    """Within four standard errors of 4,000 simulated users, users drawn anew."""
    n = rng.normals(3, rng.Stream.CATALOGUE, 0, (20, 3))
    catalogue = checked_catalogue(0.9 * n[:, :2], n[:, 2], np.zeros((20, 2)), np.zeros(20), "the test")
    params = SessionsParams(sigma_omega=drift**0.5, p_organic_to_bandit=0.0, p_leave_organic=0.03)
    columns = SessionsWorld(params, catalogue=catalogue).trajectories(1, 0, 4000, None)
    user, item = columns["user"].astype(np.int64), columns["item"].astype(np.int64)
    lengths = np.bincount(user)
    view_counts = ViewCounts(lengths, np.zeros(20), False, far_lags(lengths))
    sums, pairs = count_pairs_of_views(user, item, view_counts.far)
    for column, value in enumerate(expected_ratios(catalogue.item_factors, catalogue.item_offsets, view_counts, drift)):
        mean = sums[:, column].sum() / pairs[:, column].sum()
        error = np.sqrt(((sums[:, column] - mean * pairs[:, column]) ** 2).sum()) / pairs[:, column].sum()
        assert abs(mean - value) < 4 * error, (column, mean, value, error)


def test_resemblance_by_hand():
    user, item = np.array([0, 0, 0, 1, 1]), np.array([4, 4, 7, 7, 7])
    sums, pairs = count_pairs_of_views(user, item, ())
    assert sums.tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert pairs.tolist() == [[3.0, 0.0], [1.0, 0.0]]


@pytest.mark.verify
def test_settled_shares_vary_as_true_ones_do():
    """Over 60 logs of 60 items and 4,000 views: their variance is the true one's, to a tenth; a draw's likewise."""
    settled, drawn = [], []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        true = np.exp(draw.normal(size=60))
        item = draw.choice(60, 4000, p=true / true.sum())
        found = shares_of(np.repeat(np.arange(400), 10), item, 60)
        noise = draw.normal(size=60) * np.sqrt(1 / (np.bincount(item, minlength=60) + 0.5))
        settled.append(np.var(found.settled()) / np.var(np.log(true)))
        drawn.append(np.var(found.settled(noise)) / np.var(np.log(true)))
    assert abs(np.mean(settled) - 1) < 0.1
    assert abs(np.mean(drawn) - 1) < 0.1


def test_interests_are_the_posteriors_means():
    """Of users with strong tastes against a sum over a grid: the mode is nearer to 0, by a seventh of their size."""
    factors = 1.6 * rng.normals(3, rng.Stream.CATALOGUE, 0, (12, 1))
    offsets = 0.5 * rng.normals(3, rng.Stream.CATALOGUE, 1, (12, 1))[:, 0]
    grid = np.linspace(-8, 8, 4001)
    logits = grid[:, None] * factors[:, 0] + offsets
    logs = logits - np.log(np.exp(logits).sum(axis=1))[:, None]
    draw = np.random.default_rng(2)
    omega = draw.normal(size=200)
    p = np.exp(logs[np.searchsorted(grid, omega)])
    counts = np.stack([draw.multinomial(10, own / own.sum()) for own in p]).astype(np.float32)
    chances = np.exp(counts @ logs.T - 0.5 * grid**2)
    chances /= chances.sum(axis=1, keepdims=True)
    mean = chances @ grid
    model = ViewModel(factors, offsets, np.zeros((12, 1, 1)))
    found, doubt = interests_of(model, counts, np.ones(200), no_repeats=False)
    assert (found[:, 0] * mean).sum() / (mean**2).sum() == pytest.approx(1.0, abs=0.02)
    assert np.sqrt(((found[:, 0] - mean) ** 2).mean()) < 0.06
    assert doubt.mean() == pytest.approx((chances @ grid**2 - mean**2).mean(), rel=0.15)


@pytest.mark.slow
@pytest.mark.verify
def test_factors_are_as_far_from_the_truth_as_their_errors_say():
    """40 items of six worlds, factors turned and scaled to the true ones: errors of a sixth more or less."""
    ratio = []
    for seed in range(6):
        n = rng.normals(seed, rng.Stream.CATALOGUE, 0, (40, 3))
        catalogue = checked_catalogue(0.8 * n[:, :2], 0.5 * n[:, 2], np.zeros((40, 2)), np.zeros(40), "the test")
        params = SessionsParams(sigma_omega=0.0, p_organic_to_bandit=0.0, p_leave_organic=0.12)
        columns = SessionsWorld(params, catalogue=catalogue).trajectories(1, 0, 600, None)
        counts = np.zeros((600, 40), np.float32)
        np.add.at(counts, (columns["user"].astype(int), columns["item"].astype(int)), 1.0)
        fit = fit_views(counts, 2, no_repeats=False, seed=0)
        mine, true = (f - f.mean(axis=0) for f in (fit.factors, catalogue.item_factors))
        turned = np.linalg.lstsq(mine, true, rcond=None)[0]
        said = np.einsum("kl,pkm,ml->p", turned, fit.spread, turned)
        ratio.append(((mine @ turned - true) ** 2).sum() / said.sum())
    assert np.mean(ratio) == pytest.approx(1.0, abs=0.2)  # three standard errors of 480 squares


@pytest.mark.parametrize("once", [False, True])
def test_popularity_is_matched(once):
    """Expected shares are those asked for, to a thousandth of their logarithm."""
    n = rng.normals(3, rng.Stream.CATALOGUE, 0, (15, 3))
    logs = 0.5 * n[:, 2] - np.log(np.exp(0.5 * n[:, 2]).sum())
    view_counts = ViewCounts(np.full(50, 5), logs, once, ())
    offsets = match_popularity(0.7 * n[:, :2], np.zeros(15), view_counts, 0.01, rounds=60)
    again = match_popularity(0.7 * n[:, :2], offsets, view_counts, 0.01, rounds=1)
    np.testing.assert_allclose(again, offsets, atol=2e-3)


SCRIPT = """
import numpy as np
from recsim_mnar.fitting.calibration import calibrate_world
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
world = SessionsWorld(SessionsParams(n_items=150, n_factors=5, sigma_mu_organic=1.0))
log = simulate(world, registry.learner("random").fit(Log({}), n_items=150, seed=0), 700, 3)
print(calibrate_world(log, ensemble=2).digest())
"""


@pytest.mark.slow
def test_bytes_do_not_hang_on_threads():
    """700 users by 150 items by 36 products are beyond what BLAS does in one thread."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    said = []
    for threads in ("1", "2", "4"):
        environment = {**os.environ, **dict.fromkeys(names, threads)}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
        )
        said.append(done.stdout)
    assert len(set(said)) == 1
