"""Rating estimates: unbiased on a known matrix, metrics by hand, and bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsim_mnar.estimators import ratings as r
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds.ratings import alpha_propensities, observe
from toys import refused

TRUTH = np.random.default_rng(0).integers(1, 6, (30, 20)).astype(float)
GUESS = np.clip(TRUTH + np.random.default_rng(1).normal(size=TRUTH.shape), 1, 5)
P = alpha_propensities(TRUTH, 0.5, 0.3)


def observe_some(seed, p=P):
    return Ratings.from_dense(TRUTH, observe(p, seed))


TOP = (r.ranks(GUESS) <= 3).astype(float)
MSE = r.loss("mse", GUESS)


@pytest.mark.parametrize("metric", r.METRICS)
def test_ips_is_unbiased(metric):
    delta = r.loss(metric, TOP if metric == "cg" else GUESS, k=3)
    errors = [r.estimate_ratings(delta, observe_some(seed), P).ips - delta.risk(TRUTH) for seed in range(400)]
    assert abs(np.mean(errors)) < 4 * np.std(errors) / math.sqrt(400) + 1e-12


@pytest.mark.slow
@pytest.mark.verify
def test_ips_stays_unbiased_where_observations_depend_on_each_other():
    """A user reveals all or nothing of what has the same propensity: P is the same, O is not independent."""
    draws = np.random.default_rng(4).random((2_000, len(TRUTH), 1))  # one draw a user
    together = [r.estimate_ratings(MSE, Ratings.from_dense(TRUTH, u < P), P).ips for u in draws]
    assert abs(np.mean(together) - MSE.risk(TRUTH)) < 4 * np.std(together) / math.sqrt(len(together))
    alone = [r.estimate_ratings(MSE, observe_some(seed), P).ips for seed in range(200)]
    assert np.std(together) > 1.3 * np.std(alone)  # dependence costs variance, no bias


def test_snips_has_the_minimiser_of_ips():
    guesses = [np.clip(TRUTH + np.random.default_rng(k).normal(size=TRUTH.shape), 1, 5) for k in range(20)]
    for seed in range(30):
        observed = observe_some(seed)
        estimates = [r.estimate_ratings(r.loss("mse", guess), observed, P) for guess in guesses]
        assert np.argmin([e.snips for e in estimates]) == np.argmin([e.ips for e in estimates])


def test_metrics_are_what_they_say():
    truth, guess = np.array([[5.0, 1.0, 3.0]]), np.array([[1.0, 3.0, 2.0]])  # ranking: item 1, 2, 0
    assert r.loss("mse", guess).risk(truth) == pytest.approx((16 + 4 + 1) / 3)
    assert r.loss("mae", guess).risk(truth) == pytest.approx((4 + 2 + 1) / 3)
    assert r.loss("dcg@k", guess, k=3).risk(truth) == pytest.approx(1 / 1 + 3 / math.log2(3) + 5 / 2)
    assert r.loss("dcg@k", guess, k=2).risk(truth) == pytest.approx(1 + 3 / math.log2(3))
    assert r.loss("cg", np.array([[1, 0, 1]]), k=2).risk(truth) == pytest.approx((5 + 3) / 2)


def test_uniform_propensities_make_snips_naive():
    estimates = r.estimate_ratings(MSE, observe_some(3, np.full(TRUTH.shape, 0.2)), 0.2)
    assert estimates.snips == pytest.approx(estimates.naive, rel=1e-12)
    assert estimates.effective_n == pytest.approx(estimates.n)


def test_clipping_bounds_the_weights():
    observed = observe_some(3)
    clipped = np.maximum(observed.at(P), 0.2)
    assert r.estimate_ratings(MSE, observed, P, clip=0.2) == r.estimate_ratings(MSE, observed, clipped)


def test_ties_are_broken_by_a_draw_not_by_index():
    first = r.ranks(np.zeros((400, 10)))[:, 0]
    assert 4.5 < first.mean() < 6.5
    assert np.array_equal(np.sort(r.ranks(np.zeros((2, 10))), axis=1), np.tile(np.arange(1, 11), (2, 1)))


@pytest.mark.slow
@pytest.mark.verify
def test_clipping_can_help():
    """The paper's conjecture: where few propensities are tiny, raising them costs little bias and much variance."""
    g = np.random.default_rng(0)
    truth = g.integers(1, 6, (60, 40)).astype(float)
    p = np.where(g.random(truth.shape) < 0.02, 0.001, 0.3)
    delta = r.loss("mse", np.full(truth.shape, 3.0))
    risk = delta.risk(truth)
    errors = []
    for seed in range(400):
        observed = Ratings.from_dense(truth, observe(p, seed))
        errors.append([r.estimate_ratings(delta, observed, p, clip=c).ips - risk for c in (0.0, 0.05)])
    square = np.array(errors) ** 2
    difference = square[:, 1] - square[:, 0]
    assert difference.mean() + 3 * difference.std() / math.sqrt(400) < 0


OBSERVED = observe_some(0)
NOTHING = OBSERVED.select(np.zeros(len(OBSERVED), bool))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: r.estimate_ratings(MSE, OBSERVED, np.zeros(P.shape)),
            r"of the observed rating of user \d+, item \d+ is 0",
        ),
        (lambda: r.estimate_ratings(MSE, OBSERVED, P[:2]), "shape"),
        (lambda: r.estimate_ratings(MSE, OBSERVED, np.ones(3)), "propensities must be"),
        (lambda: r.estimate_ratings(MSE, NOTHING, P), "no observed ratings"),
        (lambda: r.loss("rmse", GUESS), "unknown metric"),
        (lambda: r.loss("dcg@k", GUESS), "needs k"),
        (lambda: r.loss("mse", np.full((2, 2), np.nan)), "not a finite number"),
        (lambda: r.loss("mse", np.zeros(3)), r"\(U, I\) matrix"),
        (lambda: r.clip_propensities(P, 2.0), "smallest propensity"),
        (lambda: r.estimate_ratings(r.loss("mse", GUESS[:-1]), OBSERVED, P), r"predictions have shape \(29, 20\)"),
        (lambda: r.loss("mae", GUESS[:, :-1]).risk(TRUTH), r"predictions have shape \(30, 19\)"),
        (lambda: r.loss("dcg@k", GUESS, k=3, ranking=np.ones((2, 2))), r"ranking has shape \(2, 2\)"),
    ],
)
def test_bad_input_gets_one_line(call, words):
    with refused(words):
        call()
