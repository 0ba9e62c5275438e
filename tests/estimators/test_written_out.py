"""Whole estimates against plain NumPy: what is summed over which users, and what is added to it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsim_mnar.estimators import Facts
from recsim_mnar.estimators.cross_fitted import LoggingModel
from recsim_mnar.estimators.intervals import Deviations
from recsim_mnar.estimators.refuters import _Rows, halves
from recsim_mnar.estimators.scores import Rows
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.log.columns import Clusters
from twins.facts import estimate_value

LEVEL = 0.9


def users_log(seed=3, n=600, users=90):
    """Rewards between 1 and 3, so that none of their powers is another one."""
    rng = np.random.default_rng(seed)
    propensity, target, baseline = rng.uniform(0.2, 0.6, n), rng.uniform(0.0, 0.9, n), rng.uniform(0.0, 0.9, n)
    user = np.sort(rng.permutation(np.append(np.arange(users), rng.integers(0, users, n - users))))
    return rng.uniform(1.0, 3.0, n), propensity, target, baseline, user


def sums(values, user):
    return np.bincount(user, values)


def test_the_error_of_missing_mass_is_by_user():
    r, p, t, _, user = users_log()
    lost = np.random.default_rng(5).uniform(0.0, 0.1, r.size)
    policy = PolicySums.of_rows(Rows.of(r, p, t, clusters=Clusters.of(user, r.size), missing=lost))
    apart = sums(lost - lost.mean(), user)
    expected = lost.mean(), math.sqrt(apart @ apart * 90 / 89) / r.size
    assert policy.missing_mass() == pytest.approx(expected, rel=1e-9)
    assert PolicySums.of(p, t).missing_mass() is None


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_rewards_counted_from_elsewhere_move_everything_by_as_much(estimator):
    r, p, t, _, user = users_log()
    stated = {"estimator": estimator, "cluster": user, "level": LEVEL}
    found, moved = (
        estimate_value(r + by, p, t, **stated, facts=Facts(reward_min=r.min() + by, reward_max=4.0 + by))
        for by in (0.0, -7.0)
    )
    expected = (found.value - 7.0, found.low - 7.0, found.high - 7.0)
    assert (moved.value, moved.low, moved.high) == pytest.approx(expected, rel=1e-7)


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
