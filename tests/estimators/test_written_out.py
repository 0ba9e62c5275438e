"""Whole estimates against plain NumPy: what is summed over which users, and what is added to it."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.estimators.cross_fitted import LoggingModel
from recsim_mnar.estimators.intervals import Deviations
from recsim_mnar.estimators.refuters import _Rows, halves
from recsim_mnar.log.columns import Clusters

LEVEL = 0.9


def sums(values, user):
    return np.bincount(user, values)


def test_propensities_are_smoothed_shares_of_other_folds():
    rng = np.random.default_rng(8)
    action, context, fold = rng.integers(0, 4, 60), rng.integers(0, 3, 60), rng.integers(0, 3, 60)
    weight = rng.integers(0, 3, 60).astype(float)
    found = LoggingModel(action, context, fold, 4, prior=0.5).propensities(weight)
    for row in range(60):
        others = (fold != fold[row]) & (context == context[row])
        chosen = weight[others & (action == action[row])].sum() + 0.5
        assert found[row] == pytest.approx(chosen / (weight[others].sum() + 0.5 * 4), rel=1e-12)


def test_halves_say_by_how_much_they_differ():
    rng = np.random.default_rng(9)
    reward, weight = rng.random(400), rng.uniform(0.5, 1.5, 400)
    reward[200:] += 1.0
    finding = halves(_Rows(reward, weight, None, 0.99))
    assert finding is not None
    values = [np.sum((weight * reward)[half]) / np.sum(weight[half]) for half in (slice(200), slice(200, 400))]
    assert finding.number == pytest.approx(values[1] - values[0], rel=1e-9)


def test_limits_of_sums_are_about_the_mean_of_a_row():
    rng = np.random.default_rng(10)
    user, parts = np.repeat(np.arange(40), rng.integers(1, 6, 40)), 0.0
    parts = rng.normal(0.3, 1.0, user.size)
    rows = _Rows(parts, parts, Clusters.of(user, user.size), LEVEL)
    mean, low, high = rows.limits(parts, 50.0, 2.0)
    less, more = Deviations.of(sums(parts - parts.mean(), user)).spread(50.0, 2.0, 2.0, LEVEL).reaches(LEVEL)
    assert (mean, low, high) == pytest.approx((parts.sum() / 50, parts.sum() / 50 - less, parts.sum() / 50 + more))
