"""Whole estimates against plain NumPy: what is summed over which users, and what is added to it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsim_mnar.estimators.intervals import Deviations, Spread, gamma_limits, poisson_reach, small_sample_factor
from recsim_mnar.estimators.off_policy.cross_fitted import LoggingModel
from recsim_mnar.estimators.off_policy.limits import expected_half, expected_variance, ratio_limits
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.refuters import _Rows, halves
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.value import difference, estimate_value
from recsim_mnar.log.columns import Clusters

LEVEL = 0.9


def users_log(seed=3, n=600, users=90):
    """Rewards between 1 and 3, so that none of their powers is another one."""
    rng = np.random.default_rng(seed)
    propensity, target, baseline = rng.uniform(0.2, 0.6, n), rng.uniform(0.0, 0.9, n), rng.uniform(0.0, 0.9, n)
    user = np.sort(rng.permutation(np.append(np.arange(users), rng.integers(0, users, n - users))))
    return rng.uniform(1.0, 3.0, n), propensity, target, baseline, user


def sums(values, user):
    return np.bincount(user, values)


def gamma_ends(value, found: Spread):
    """The positive limits: both ends of the gamma law, the lower one after a part that earns nothing."""
    high = gamma_limits(value, found.variance, found.up, LEVEL)[1]
    low = gamma_limits(value - found.down, found.variance + found.down**2, 0.0, LEVEL)[0]
    if found.third < 0.0:
        low = min(low, value - poisson_reach(found.variance, -found.third, LEVEL))
    return max(low, 0.0), high


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_expected_variance(estimator):
    r, p, t, _, user = users_log()
    w, n = t / p, r.size
    moments = Moments.of(r, p, t, cluster=Clusters.of(user, n))
    if estimator == "ips":
        parts, squares = w * r - np.mean(w * r), np.mean(r * r)
    else:
        parts, squares = w * (r - np.sum(w * r) / np.sum(w)), np.var(r)
    luck = n / np.sum(w)
    grown = max(np.sum(sums(parts, user) ** 2) / np.sum(parts**2), 1.0)
    assert expected_variance(moments, estimator) == pytest.approx(np.sum(w * w) * luck * squares * grown, rel=1e-9)


@pytest.mark.parametrize("estimator", ["ips", "snips"])
@pytest.mark.parametrize("times", [1.0, 4.0])
def test_expected_half_width(estimator, times):
    r, p, t, _, user = users_log()
    w, n, variance = t / p, r.size, 500.0
    moments = Moments.of(r, p, t, cluster=Clusters.of(user, n))
    stated = Stated(reward_min=0.0, reward_max=4.0)
    excess = np.max(sums(w - 1.0, user))
    step = w.max() * 4.0 + max(excess - (w.max() - 1.0), 0.0) * r.mean()
    factor = small_sample_factor(90, LEVEL, None)  # deviations of rows: the users are not grouped
    spread = Spread(variance * times * factor / (n * times) ** 2, 0.0, step / (n * times), r.mean() / (n * times))
    low, high = gamma_ends(r.mean(), spread)
    found = expected_half(moments, stated, estimator, variance, LEVEL, times)
    assert found == pytest.approx((high - low) / 2.0, rel=1e-9)


def test_a_ratio_has_gamma_limits_of_its_deviations():
    r, p, t, _, user = users_log()
    w, n = t / p, r.size
    moments = Moments.of(r, p, t, cluster=Clusters.of(user, n))
    value = np.sum(w * r) / np.sum(w)
    excess = np.max(sums(w - 1.0, user))
    up = w.max() * 4.0 + max(excess - (w.max() - 1.0), 0.0) * r.mean()
    down = value * max(w.max(), np.sum(sums(w, user) ** 2) / np.sum(w))
    spread = Deviations.of(sums(w * (r - value), user)).spread(np.sum(w), up, down, LEVEL)
    found = ratio_limits(moments, Stated(reward_min=0.0, reward_max=4.0), LEVEL)
    assert (found.low, found.high) == pytest.approx(gamma_ends(value, spread), rel=1e-7)


def test_a_difference_of_means_joins_the_limits_of_gains_and_losses():
    r, p, t, b, user = users_log()
    apart, n = t / p - b / p, r.size
    parts, ends = [], []
    for w, excess_of in ((t / p, np.maximum(apart, 0.0)), (b / p, np.maximum(-apart, 0.0))):
        mean = np.mean(excess_of * r)
        deviations = sums(excess_of * r - mean, user)
        excess = np.max(sums(excess_of - 1.0, user))
        step = w.max() * 4.0 + max(excess - (w.max() - 1.0), 0.0) * r.mean()
        parts.append((mean, deviations))
        ends.append(gamma_ends(mean, Deviations.of(deviations).spread(n, step, mean, LEVEL)))
    (gain, one), (loss, two) = parts
    together = one @ two / math.sqrt((one @ one) * (two @ two))

    def reach(x, y):
        return math.sqrt(x * x + y * y - 2.0 * together * x * y)

    low = gain - loss - reach(gain - ends[0][0], ends[1][1] - loss)
    high = gain - loss + reach(ends[0][1] - gain, loss - ends[1][0])
    found = difference(r, p, t, b, estimator="ips", cluster=user, level=LEVEL, reward_min=0.0, reward_max=4.0)
    assert found.value == pytest.approx(gain - loss, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-7)


def test_a_difference_of_ratios_has_steps_of_both():
    r, p, t, b, user = users_log()
    n, weights = r.size, (t / p, b / p)
    values = [np.sum(w * r) / np.sum(w) for w in weights]
    ours, theirs = (w / np.mean(w) * (r - v) for w, v in zip(weights, values, strict=True))
    largest = [max(w.max(), w.max() / np.mean(w)) for w in weights]
    up = largest[0] * 4.0 + largest[1] * values[1]
    down = largest[1] * 4.0 + largest[0] * values[0]
    less, more = Deviations.of(sums(ours - theirs, user)).spread(n, up, down, LEVEL).reaches(LEVEL)
    found = difference(r, p, t, b, estimator="snips", cluster=user, level=LEVEL, reward_min=0.0, reward_max=4.0)
    value = values[0] - values[1]
    assert (found.value, found.low, found.high) == pytest.approx((value, value - less, value + more), rel=1e-7)


def test_the_error_of_missing_mass_is_by_user():
    r, p, t, _, user = users_log()
    lost = np.random.default_rng(5).uniform(0.0, 0.1, r.size)
    moments = Moments.of(r, p, t, cluster=Clusters.of(user, r.size), unsupported=lost)
    apart = sums(lost - lost.mean(), user)
    assert moments.missing_error() == pytest.approx(math.sqrt(apart @ apart * 90 / 89) / r.size, rel=1e-9)
    assert Moments.of(r, p, t).missing_error() == 0.0


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_rewards_counted_from_elsewhere_move_everything_by_as_much(estimator):
    r, p, t, _, user = users_log()
    stated = {"estimator": estimator, "cluster": user, "level": LEVEL}
    found, moved = (estimate_value(r + by, p, t, **stated, reward_min=by, reward_max=4.0 + by) for by in (0.0, -7.0))
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
