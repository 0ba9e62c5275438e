"""Observation propensities by gradient boosting."""

import numpy as np
import pytest
from study_modules import refused, study_module

from recsim_mnar.log.ratings import Ratings

pytest.importorskip("sklearn")
module = study_module("schnabel2016", "boosted")
boosted = module.boosted
bounds = study_module("schnabel2016", "bounds")
logistic = study_module("schnabel2016", "logistic_propensities").logistic


def drawn(n_users=120, n_items=100):
    """Revealed where both features are far from 0: no sum of pairs of features says it."""
    g = np.random.default_rng(0)
    x, z = g.normal(size=(n_users, 2)), g.normal(size=(n_items, 2))
    p = np.where((np.abs(x[:, :1]) > 0.7) & (np.abs(z[:, 0]) > 0.7), 0.5, 0.05)
    return x, z, p, Ratings.from_dense(np.ones(p.shape), g.random(p.shape) < p)


def test_trees_find_what_logistic_regression_cannot_say():
    x, z, p, observed = drawn()
    trees = boosted(observed, x, z)
    line = logistic(observed, x, z, penalties=(1.0,))
    errors = [np.abs(m.matrix - p).mean() for m in (trees, line)]
    assert errors[0] < 0.5 * errors[1]
    assert bounds.calibration(observed, trees.matrix).error < 0.02
    assert trees.matrix.min() > 0


def test_shares_are_those_of_the_kept_cells():
    g = np.random.default_rng(1)
    observed, kept = (g.random((2, 5, 4)) < 0.5).astype(float)
    found = module._shares(observed, kept > 0)
    mean = (observed * kept).sum() / kept.sum()
    for u, i in np.ndindex(5, 4):
        row, column = (observed[u] * kept[u]).sum(), (observed[:, i] * kept[:, i]).sum()
        expected = [(row + 5 * mean) / (kept[u].sum() + 5), (column + 5 * mean) / (kept[:, i].sum() + 5)]
        np.testing.assert_allclose(found[u * 4 + i], expected)


def test_where_nothing_tells_cells_apart_all_get_the_same():
    """A cell must not reveal itself to the trees: with no features at all the estimate is the density, nearly."""
    g = np.random.default_rng(2)
    observed = Ratings.from_dense(np.ones((80, 70)), g.random((80, 70)) < 0.2)
    fit = boosted(observed, rounds=60)
    assert np.abs(fit.matrix - 0.2).mean() < 0.03


def test_the_same_seed_gives_the_same():
    x, z, _, ratings = drawn(40, 30)
    first, second = (boosted(ratings, x, z, rounds=20, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.matrix, second.matrix)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x, z, r: boosted(r.select(np.arange(0)), x, z), "no observed ratings"),
        (lambda x, z, r: boosted(r, x[:3], z), "user features must have shape"),
        (lambda x, z, r: boosted(r, x, z, n_folds=2), "n_folds must be"),
    ],
)
def test_bad_input_gets_one_line(call, text):
    x, z, _, ratings = drawn(20, 15)
    refused(lambda: call(x, z, ratings), text)
