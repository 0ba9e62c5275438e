"""Intervals against their formulas, twins of the kernels, and what must hold of any interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.estimators import Facts, intervals
from recsim_mnar.rng import Stream, blocks
from twins.facts import difference, estimate_value
from twins.findings import finding

N = 6000
THRESHOLDS = [24109, 48219, 60273, 64292, 65296, 65497, 65531, 65535]
WITH_DIFFERENCE = pytest.mark.parametrize("estimator", ["ips", "clipped_ips", "snips"])


def make_rows(n=N):
    rng = np.random.default_rng(0)
    propensity = rng.uniform(0.02, 0.1, n)
    return {
        "reward": (rng.random(n) < 0.05).astype(float),
        "propensity": propensity,
        "target": np.minimum(propensity * rng.lognormal(-0.4, 0.9, n), 1.0),
    }


@pytest.fixture
def rows():
    return make_rows()


@pytest.fixture
def log(rows):
    """Rows of 400 users."""
    return rows | {"cluster": np.random.default_rng(1).integers(0, 400, N)}


@pytest.mark.parametrize(("y", "s", "m"), [(0.01, 1e-6, 1e-3), (0.2, 0.003, 0.05), (1e-5, 1e-10, 1e-4)])
def test_gamma_limits_are_fay_and_feuers(y, s, m):
    low, high = intervals.gamma_limits(y, s, m, 0.9)
    assert low == pytest.approx(s / (2 * y) * stats.chi2.ppf(0.05, 2 * y**2 / s), rel=1e-9)
    above = (s + m**2) / (2 * (y + m)) * stats.chi2.ppf(0.95, 2 * (y + m) ** 2 / (s + m**2))
    assert high == pytest.approx(above, rel=1e-9)


def bootstrap_twin(above, below, replicates, seed):
    size = replicates // 8
    tops = np.zeros(replicates)
    bottoms = np.zeros(replicates)
    for user in range(above.size):
        words = blocks(seed, Stream.BOOTSTRAP, user, np.arange(size))
        for q in range(4):
            for half, draws in enumerate((words[:, q] & 0xFFFF, words[:, q] >> 16)):
                counts = np.searchsorted(THRESHOLDS, draws, side="right")
                place = slice((2 * q + half) * size, (2 * q + half + 1) * size)
                tops[place] += counts * above[user]
                bottoms[place] += counts * below[user]
    return tops / bottoms


def test_resampling_agrees_with_its_twin():
    rng = np.random.default_rng(2)
    above = rng.random(40) * (rng.random(40) < 0.5)
    below = rng.random(40)
    ratios = intervals.poisson_ratios(above, below, replicates=64, seed=5)
    np.testing.assert_allclose(ratios, bootstrap_twin(above, below, 64, 5), rtol=1e-12)


def test_thresholds_of_the_twin_are_poissons():
    np.testing.assert_allclose(THRESHOLDS, stats.poisson.cdf(np.arange(8), 1.0) * 65536, atol=0.6)


@pytest.mark.verify
def test_bootstrap_spread_is_the_delta_methods():
    rng = np.random.default_rng(0)
    n = 6000  # idle users are pooled
    above = np.where(rng.random(n) < 0.2, rng.random(n), 0.0)
    below = rng.uniform(0.5, 1.5, n)
    values = intervals.poisson_ratios(above, below, replicates=8000, seed=1)
    ratio = above.sum() / below.sum()
    sd = math.sqrt(np.sum((above - ratio * below) ** 2)) / below.sum()
    # the standard deviation of 8,000 draws is known to 1 / sqrt(16,000); five of these, and 1/n of curvature
    assert values.std() == pytest.approx(sd, rel=5 / math.sqrt(16_000) + 0.005)
    assert values.mean() == pytest.approx(ratio, abs=5 * sd / math.sqrt(8000) + 1e-4 * ratio)


def test_bootstrap_of_snips_resamples_its_denominator(log):
    log["reward"] = np.ones(N)  # with the full-sample denominator this would not be 1
    estimate = estimate_value(**log, estimator="snips", interval="bootstrap")
    assert (estimate.low, estimate.high) == pytest.approx((1.0, 1.0))


def capital_twin(values, mean, sign, level):
    log = 2 * math.log(2 / (1 - level))
    total, spread, logs = 0.5, 0.25, 0.0
    for t, x in enumerate(values, start=1):
        bet = math.sqrt(log / (spread / t * values.size))
        bet = min(bet, 0.5 / mean if sign > 0 else 0.5 / (1 - mean))
        logs += math.log1p(sign * bet * (x - mean))
        total += x
        spread += (x - total / (t + 1)) ** 2
    return logs


def test_betting_ends_are_where_the_twin_has_won():
    values = np.random.default_rng(0).beta(0.3, 3.0, 500)
    low, high = intervals.betting(values, np.ones(500), 0.95)
    assert capital_twin(values, low, 1, 0.95) == pytest.approx(math.log(40), rel=1e-3)
    assert capital_twin(values, high, -1, 0.95) == pytest.approx(math.log(40), rel=1e-3)


@pytest.mark.parametrize("anytime", [False, True])
def test_guaranteed_intervals_hold_the_ratio(anytime):
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 21, 800) / 20.0
    values = lengths * rng.beta(0.3, 3.0, 800)
    low, high = intervals.betting(values, lengths, 0.95, anytime=anytime)
    assert 0.0 <= low < values.sum() / lengths.sum() < high <= 1.0
    low, high = intervals.betting(np.zeros(800), lengths, 0.95, anytime=anytime)
    assert low == 0.0
    assert 0.0 < high < 0.1


def test_the_order_of_first_appearance_decides_the_bets_and_no_id_does(log):
    options = {"interval": "anytime", "estimator": "ips"}
    bounds = {"weight_max": 100.0, "user_rows_max": 60, "reward_max": 1.0}
    bounded = estimate_value(**log, **options, **bounds)
    assert " if " not in bounded.method
    unbounded = estimate_value(**log, **options)
    assert "if no user can have more rows and no larger weight is possible" in unbounded.method
    log["cluster"] = np.random.default_rng(1).permutation(400)[log["cluster"]]
    renamed = estimate_value(**log, **options, **bounds)
    assert (renamed.low, renamed.high) == (bounded.low, bounded.high)


@pytest.mark.parametrize("interval", ["auto", "bootstrap", "betting", "anytime"])
def test_a_higher_level_is_wider(rows, interval):
    # by the sampling part: what clipping may hide has a level of its own
    narrow = estimate_value(**rows, interval=interval, level=0.8, clip=3.0).diagnostics
    wide = estimate_value(**rows, interval=interval, level=0.99, clip=3.0).diagnostics
    assert wide.sampling_low <= narrow.sampling_low < narrow.sampling_high <= wide.sampling_high
    assert wide.sampling_high - wide.sampling_low > narrow.sampling_high - narrow.sampling_low


def test_one_user_a_row_is_no_clustering(rows):
    unnamed = estimate_value(**rows)
    named = estimate_value(**rows, cluster=np.arange(N))
    assert (named.low, named.high) == pytest.approx((unnamed.low, unnamed.high))


def test_dependent_rows_widen_the_interval():
    log = make_rows(600)
    copies = {name: np.repeat(values, 20) for name, values in log.items()}
    wide = estimate_value(**copies, cluster=np.repeat(np.arange(600), 20))
    narrow = estimate_value(**copies)
    assert narrow.value == pytest.approx(estimate_value(**log).value)
    assert narrow.high - narrow.low < 0.4 * (wide.high - wide.low)


def test_the_method_is_named(log):
    assert estimate_value(**log).method == "Student by user, log scale"
    assert "asymptotic" in estimate_value(**log, interval="bootstrap").method
    assert "clip part" in estimate_value(**log, clip=1.5).method


def test_clip_part_stands_apart_and_vanishes_where_nothing_is_clipped(log):
    clipped = estimate_value(**log, clip=1.5)
    facts = clipped.diagnostics
    assert clipped.high == pytest.approx(facts.sampling_high + facts.clip_part)
    assert facts.clip_part > 0.0
    assert estimate_value(**log, clip=1e6).diagnostics.clip_part == 0.0


@pytest.mark.parametrize("clip", [None, 15.0])
def test_a_gap_that_the_mean_weight_proves_is_not_to_be_used(log, clip):
    log["target"] = log["propensity"] * 0.6  # 40 % of the target's probability is on actions never logged
    for facts, code in (({}, "support_missing"), ({"full_support": True}, "support_denied")):
        estimate = estimate_value(**log, clip=clip, **facts)
        assert finding(estimate, code).number == pytest.approx(0.4, abs=0.01)
        assert estimate.verdict.level == "do_not_use"
    stated = estimate_value(**log, clip=clip, facts=Facts(unsupported=np.full(N, 0.4)))
    assert stated.diagnostics.gap_part == pytest.approx(0.4)
    assert stated.high > 0.4


@WITH_DIFFERENCE
def test_a_difference_swaps_sign(log, estimator):
    there = difference(**log, baseline=log["propensity"], estimator=estimator)
    back = difference(**log | {"target": log["propensity"]}, baseline=log["target"], estimator=estimator)
    assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))


@WITH_DIFFERENCE
def test_difference_is_that_of_the_estimates(log, estimator):
    options = {"estimator": estimator, "clip": 2.0}
    gap = difference(**log, baseline=log["propensity"], **options)
    target = estimate_value(**log, **options)
    today = estimate_value(**log | {"target": log["propensity"]}, **options)
    assert gap.value == pytest.approx(target.value - today.value)
