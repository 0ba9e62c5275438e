"""Schnabel et al. 2016: propositions and theorems on estimates of ratings."""

import math

import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.estimators import ratings as r
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds.ratings import alpha_propensities, observe

bounds = study_module("schnabel2016", "bounds")

TRUTH = np.random.default_rng(0).integers(1, 6, (30, 20)).astype(float)
GUESS = np.clip(TRUTH + np.random.default_rng(1).normal(size=TRUTH.shape), 1, 5)
P = alpha_propensities(TRUTH, 0.5, 0.3)


def test_the_tail_bound_holds_and_has_the_papers_form():
    delta = r.loss("mse", GUESS)
    d = delta.everywhere(TRUTH)
    bound = bounds.tail_bound(d, P, eta=0.1)
    assert bound == pytest.approx(math.sqrt(math.log(20) / 2 * ((d / P) ** 2).sum()) / d.size)
    truth = d.mean()
    outside = [
        abs(r.estimate_ratings(delta, Ratings.from_dense(TRUTH, observe(P, s)), P).ips - truth) > bound
        for s in range(200)
    ]
    assert np.mean(outside) <= 0.1
    assert bounds.tail_bound(d, np.ones_like(P)) == 0.0
    # uniform propensities p: O(1 / (p sqrt(UI))); unequal ones of the same sum pay more
    wide = [bounds.tail_bound(np.ones((n, n)), np.full((n, n), p)) for n, p in ((10, 0.2), (40, 0.2), (10, 0.05))]
    assert wide[0] / wide[1] == pytest.approx(4)
    assert wide[2] / wide[0] == pytest.approx(4)
    assert bounds.tail_bound(np.ones_like(P), P) > bounds.tail_bound(np.ones_like(P), np.full_like(P, P.mean()))


def test_theorem_4_covers_what_theorem_2_does_not():
    """Propensities ten times too large: the estimate misses nine tenths of the risk, more than Theorem 2 allows for."""
    g = np.random.default_rng(3)
    truth = g.integers(1, 6, (400, 300)).astype(float)
    p = np.full(truth.shape, 0.05)
    d = r.loss("mse", np.full(truth.shape, 3.0)).everywhere(truth)
    estimated = p * 10
    gaps = np.array([d.mean() - (d * observe(p, seed) / estimated).mean() for seed in range(20)])
    assert np.all(gaps > bounds.erm_bound(4.0, estimated, 1, 0.1))
    assert np.all(gaps <= bounds.erm_bound_inaccurate(4.0, p, estimated, 1, 0.1))
    assert bounds.erm_bound_inaccurate(4.0, p, p, 5, 0.1) == pytest.approx(bounds.erm_bound(4.0, p, 5, 0.1))


def test_lemma_3_is_truth_minus_expected_estimate():
    delta = r.loss("mae", GUESS)
    d = delta.everywhere(TRUTH)
    wrong = np.minimum(P * 1.5, 1.0)
    expected_estimate = (P / wrong * d).mean()
    assert bounds.bias_inaccurate(d, P, wrong) == pytest.approx(d.mean() - expected_estimate)
    assert bounds.bias_inaccurate(d, P, wrong) > 0  # propensities too high: the estimate is too low
