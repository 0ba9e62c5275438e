"""Propensities of ratings from a sample at random."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.estimators.ratings import naive_bayes
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds.ratings import alpha_propensities, observe
from toys import refused

TRUTH = np.random.default_rng(0).choice(5, (120, 80), p=[0.4, 0.25, 0.2, 0.1, 0.05]) + 1.0
P = alpha_propensities(TRUTH, 0.5, 0.1)
OBSERVED = Ratings.from_dense(TRUTH, observe(P, 1))
NO_ONES = OBSERVED.select(OBSERVED.values > 1)


def test_naive_bayes_finds_the_propensities_of_each_rating():
    fit = naive_bayes(OBSERVED, TRUTH.ravel(), laplace=0.0)
    for r in range(1, 6):
        assert fit.of([r])[0] == pytest.approx(observe(P, 1)[r == TRUTH].mean())
    smoothed = naive_bayes(OBSERVED, [1.0, 1.0, 5.0])
    assert smoothed.marginals == pytest.approx(np.array([3, 1, 1, 1, 2]) / 8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: naive_bayes(OBSERVED, []), "MCAR sample is empty"),
        (lambda: naive_bayes(OBSERVED, [7.0]), "outside the scale"),
        (lambda: naive_bayes(NO_ONES, [1.0]), "never seen in the MNAR data"),
        (lambda: naive_bayes(NO_ONES, [2.0]).of([1.0]), "never seen"),
        (lambda: naive_bayes(OBSERVED, [1.0]).of([2.5]), "no propensity for rating 2.5"),
        (lambda: naive_bayes(OBSERVED, [1.0], laplace=0.0), "laplace must be above 0"),
    ],
)
def test_bad_input_gets_one_line(call, words):
    with refused(words):
        call()
