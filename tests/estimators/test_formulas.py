"""Parts of estimates against their formulas, written out on numbers that one can follow."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.answers.records import known_bound
from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators import intervals as limits
from recsim_mnar.estimators.cross_fitted import ActionMeans, LoggingModel
from recsim_mnar.estimators.ratings import popularity
from recsim_mnar.estimators.refuters import _Rows, halves
from recsim_mnar.log.columns import Clusters
from recsim_mnar.log.ratings import Ratings


@pytest.mark.parametrize(("freedom", "degrees"), [(None, 4), (2.5, 2.5)])
def test_few_users_widen_a_variance(freedom, degrees):
    expected = 5 / 4 * (stats.t.ppf(0.95, degrees) / stats.norm.ppf(0.95)) ** 2
    assert limits.small_sample_factor(5, 0.9, freedom) == pytest.approx(expected, rel=1e-9)
    assert limits.small_sample_factor(1, 0.9) == math.inf
    assert math.isfinite(limits.small_sample_factor(2, 0.9))


def test_degrees_of_freedom_fall_with_the_kurtosis():
    # 100 users, one of whom is ten times as far: kurtosis 100 * 10099 / 199^2.
    second = 99 + 100.0
    fourth = 99 + 10_000.0
    excess = 100 * (fourth / second**2 - 1 / 50)
    assert limits.degrees_of_freedom(100, 50, second, fourth) == pytest.approx(1.5 * 100 / excess)
    assert limits.degrees_of_freedom(100, 50, 0.0, 0.0) == 99
    assert limits.degrees_of_freedom(100, 0, second, fourth) == 99
    assert limits.degrees_of_freedom(100, 1, second, fourth) == 99  # no more excess than rare rewards give


def test_a_mean_between_0_and_1_has_clopper_and_pearsons_interval():
    y = np.array([0.0, 0.25, 0.5, 1.0, 0.5])
    v = y.mean()
    trials = v * (1 - v) / (y.var(ddof=1) / 5) * (stats.norm.ppf(0.975) / stats.t.ppf(0.975, 4)) ** 2
    hits = v * trials
    low = stats.beta.ppf(0.025, hits, trials - hits + 1)
    high = stats.beta.ppf(0.975, hits + 1, trials - hits)
    assert limits.user_mean_interval(y, 0.95)[1:] == pytest.approx((low, high), rel=1e-9)
    # All alike: every user is one trial.
    end = 0.025 ** (1 / 8)
    assert limits.user_mean_interval(np.ones(8), 0.95) == pytest.approx((1.0, end, 1.0), rel=1e-9)
    assert limits.user_mean_interval(np.zeros(8), 0.95) == pytest.approx((0.0, 0.0, 1 - end), rel=1e-9)


def test_a_ratio_of_one_user_or_none_has_no_ends():
    assert limits.ratio_interval([2.0, 9.0], [4.0, 0.0], 0.95) == (0.5, -math.inf, math.inf)
    value, *ends = limits.ratio_interval([1.0], [0.0], 0.95)
    assert math.isnan(value)
    assert ends == [-math.inf, math.inf]


def test_skewness_is_that_of_the_deviations():
    def third(deviations):
        return limits.Deviations.of(deviations).spread(2.0, 0.0, 0.0, 0.95).third

    deviations = np.array([-3.0, 1.0, 1.0, 1.0])
    assert third(deviations) == pytest.approx(float(np.sum(deviations**3)) / 12.0 / 2.0)
    assert third(0.01 * deviations) == pytest.approx(0.01 * third(deviations))
    assert third(np.array([1.0, -1.0])) == third(np.zeros(3)) == 0.0
    spread = limits.Deviations.of(deviations).spread(2.0, 0.1, 0.4, 0.95)
    assert (spread.up, spread.down) == pytest.approx((0.05, 0.2))


def test_facts_of_weights_are_their_formulas():
    rng = np.random.default_rng(3)
    propensity = rng.uniform(0.1, 0.6, 600)
    weight = rng.uniform(0.0, 0.8, 600) / propensity
    reward = (rng.random(600) < 0.3).astype(float)
    user = np.sort(rng.integers(0, 90, 600))
    facts = estimate_value(reward, propensity, weight * propensity, cluster=user).diagnostics
    by_user = np.bincount(user, weight)
    assert facts.effective_users == pytest.approx(weight.sum() ** 2 / np.sum(by_user**2), rel=1e-9)
    assert facts.max_weight_share == pytest.approx(weight.max() / weight.sum(), rel=1e-9)
    assert facts.mean_reward == pytest.approx(reward.mean(), rel=1e-9)
    apart = np.bincount(user, weight - weight.mean())
    assert facts.mean_weight == pytest.approx(weight.mean(), rel=1e-9)
    assert facts.mean_weight_se == pytest.approx(math.sqrt(apart @ apart * 90 / 89) / 600, rel=1e-9)


def test_rewards_of_actions_are_their_shrunk_means_and_a_slope():
    rng = np.random.default_rng(4)
    context, action = rng.normal(2.0, 1.0, (80, 2)), rng.integers(0, 3, 80)
    reward = 0.2 * action + context @ [0.5, -1.0] + rng.normal(size=80)
    model = ActionMeans(4)
    model.fit(context, action, reward)
    rows = np.bincount(action, minlength=4)
    means = (np.bincount(action, reward, 4) + model.strength * reward.mean()) / (rows + model.strength)
    np.testing.assert_allclose(model.means, means)
    centred = context - context.mean(axis=0)
    ridged = np.vstack([centred, math.sqrt(model.ridge) * np.eye(2)])
    slope = np.linalg.lstsq(ridged, np.append(reward - means[action], [0.0, 0.0]), rcond=None)[0]
    np.testing.assert_allclose(model.all_actions(context), means + (centred @ slope)[:, None], rtol=1e-8)


def test_popularity_is_the_smoothed_share():
    ratings = Ratings(np.array([0, 1, 2]), np.array([0, 0, 1]), np.array([1.0, 2.0, 3.0]), 4, 3)
    assert popularity(ratings, laplace=0.5)[2].tolist() == pytest.approx([2.5 / 5, 1.5 / 5, 0.5 / 5])


@pytest.mark.parametrize(("least", "bound"), [(1.0, 1.0), (0.0, None), (1, None)])
def test_a_bound_of_the_provenance_is_a_probability(least, bound):
    assert known_bound({"policy": {}, "propensity_min": least}, {}, "propensity") == bound


def test_propensities_are_smoothed_shares_of_other_folds():
    rng = np.random.default_rng(8)
    action = rng.integers(0, 4, 60)
    context = rng.integers(0, 3, 60)
    fold = rng.integers(0, 3, 60)
    weight = rng.integers(0, 3, 60).astype(float)
    propensities = LoggingModel(action, context, fold, 4, prior=0.5).propensities(weight)
    for row in range(60):
        others = (fold != fold[row]) & (context == context[row])
        chosen = weight[others & (action == action[row])].sum() + 0.5
        assert propensities[row] == pytest.approx(chosen / (weight[others].sum() + 0.5 * 4), rel=1e-12)


def test_halves_say_by_how_much_they_differ():
    rng = np.random.default_rng(9)
    reward = rng.random(400)
    reward[200:] += 1.0
    weight = rng.uniform(0.5, 1.5, 400)
    finding = halves(_Rows(reward, weight, None, 0.99))
    before, after = (np.average(reward[half], weights=weight[half]) for half in (slice(200), slice(200, 400)))
    assert finding.number == pytest.approx(after - before, rel=1e-9)


def test_limits_of_sums_are_about_the_mean_of_a_row():
    rng = np.random.default_rng(10)
    user = np.repeat(np.arange(40), rng.integers(1, 6, 40))
    parts = rng.normal(0.3, 1.0, user.size)
    rows = _Rows(parts, parts, Clusters.of(user, user.size), 0.9)
    deviations = limits.Deviations.of(np.bincount(user, parts - parts.mean()))
    less, more = deviations.spread(50.0, 2.0, 2.0, 0.9).reaches(0.9)
    mean = parts.sum() / 50
    assert rows.limits(parts, 50.0, 2.0) == pytest.approx((mean, mean - less, mean + more))
