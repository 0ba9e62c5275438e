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


def make(n: int = 6000, seed: int = 0, users: int = 400) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    propensity = rng.uniform(0.02, 0.1, n)
    return {
        "reward": (rng.random(n) < 0.05).astype(float),
        "propensity": propensity,
        "target": np.minimum(propensity * rng.lognormal(-0.4, 0.9, n), 1.0),
        "cluster": rng.integers(0, users, n),
    }


@pytest.mark.parametrize(("y", "s", "m"), [(0.01, 1e-6, 1e-3), (0.2, 0.003, 0.05), (1e-5, 1e-10, 1e-4)])
def test_gamma_limits_are_fay_and_feuers(y, s, m):
    low, high = intervals.gamma_limits(y, s, m, 0.9)
    assert low == pytest.approx(s / (2 * y) * stats.chi2.ppf(0.05, 2 * y**2 / s), rel=1e-9)
    above = (s + m**2) / (2 * (y + m)) * stats.chi2.ppf(0.95, 2 * (y + m) ** 2 / (s + m**2))
    assert high == pytest.approx(above, rel=1e-9)


def bootstrap_twin(above, below, replicates, seed):
    size = replicates // 8
    thresholds = [24109, 48219, 60273, 64292, 65296, 65497, 65531, 65535]
    tops, bottoms = np.zeros(replicates), np.zeros(replicates)
    for user in range(above.size):
        words = blocks(seed, Stream.BOOTSTRAP, user, np.arange(size))
        for q in range(4):
            for half, draws in enumerate((words[:, q] & 0xFFFF, words[:, q] >> 16)):
                counts = np.searchsorted(thresholds, draws, side="right")
                place = slice((2 * q + half) * size, (2 * q + half + 1) * size)
                tops[place] += counts * above[user]
                bottoms[place] += counts * below[user]
    return tops / bottoms


def test_resampling_agrees_with_its_twin():
    rng = np.random.default_rng(2)
    above, below = rng.random(40) * (rng.random(40) < 0.5), rng.random(40)
    found = intervals.poisson_ratios(above, below, replicates=64, seed=5)
    np.testing.assert_allclose(found, bootstrap_twin(above, below, 64, 5), rtol=1e-12)


def test_bootstrap_counts_are_poisson():
    ones = np.ones(2000)
    kernel_counts = intervals.poisson_ratios(ones * 2000, np.full(2000, 1.0), replicates=8)
    np.testing.assert_allclose(kernel_counts, 2000.0)
    cumulative = stats.poisson.cdf(np.arange(8), 1.0) * 65536
    np.testing.assert_allclose([24109, 48219, 60273, 64292, 65296, 65497, 65531, 65535], cumulative, atol=0.6)


@pytest.mark.verify
def test_bootstrap_spread_is_the_delta_methods():
    rng = np.random.default_rng(0)
    n = 6000  # idle users are pooled
    above, below = np.where(rng.random(n) < 0.2, rng.random(n), 0.0), rng.uniform(0.5, 1.5, n)
    values = intervals.poisson_ratios(above, below, replicates=8000, seed=1)
    ratio = above.sum() / below.sum()
    sd = math.sqrt(np.sum((above - ratio * below) ** 2)) / below.sum()
    # the standard deviation of 8,000 draws is known to 1 / sqrt(16,000); five of these, and 1/n of curvature
    assert values.std() == pytest.approx(sd, rel=5 / math.sqrt(16_000) + 0.005)
    assert values.mean() == pytest.approx(ratio, abs=5 * sd / math.sqrt(8000) + 1e-4 * ratio)


def test_bootstrap_of_snips_resamples_its_denominator():
    data = make()
    data["reward"] = np.ones(6000)  # with the full-sample denominator this would not be 1
    estimate = estimate_value(**data, estimator="snips", interval="bootstrap")
    assert estimate.low == pytest.approx(1.0)
    assert estimate.high == pytest.approx(1.0)


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
    whole = intervals.betting(lengths * 0.0, lengths, 0.95, anytime=anytime)
    assert whole[0] == 0.0
    assert 0.0 < whole[1] < 0.1


def test_the_order_of_first_appearance_decides_the_bets_and_no_id_does():
    data = make()
    stated = {"weight_max": 100.0, "user_rows_max": 60, "reward_max": 1.0, "estimator": "ips"}
    found = estimate_value(**data, interval="anytime", **stated)
    renamed = np.random.default_rng(1).permutation(400)[data["cluster"]]
    other = estimate_value(**data | {"cluster": renamed}, interval="anytime", **stated)
    assert (found.low, found.high) == (other.low, other.high)
    assert " if " not in found.method
    unbounded = estimate_value(**data, interval="anytime", estimator="ips")
    assert "if no user can have more rows and no larger weight is possible" in unbounded.method


@pytest.mark.parametrize("interval", ["auto", "bootstrap", "betting", "anytime"])
def test_a_higher_level_is_wider(interval):
    data = make()
    data.pop("cluster")
    # by the sampling part: what clipping may hide has a level of its own
    facts = [estimate_value(**data, interval=interval, level=x, clip=3.0).diagnostics for x in (0.8, 0.99)]
    narrow, wide = ((f.sampling_low, f.sampling_high) for f in facts)
    assert wide[0] <= narrow[0] < narrow[1] <= wide[1]
    assert wide[1] - wide[0] > narrow[1] - narrow[0]


def test_one_user_a_row_is_no_clustering():
    data = make()
    rows = estimate_value(data["reward"], data["propensity"], data["target"])
    own = estimate_value(data["reward"], data["propensity"], data["target"], cluster=np.arange(6000))
    assert (own.low, own.high) == pytest.approx((rows.low, rows.high))


def test_dependent_rows_widen_the_interval():
    data = make(600)
    copies = {k: np.repeat(v, 20) for k, v in data.items()}
    copies["cluster"] = np.repeat(np.arange(600), 20)
    wide = estimate_value(**copies)
    once = estimate_value(data["reward"], data["propensity"], data["target"])
    copies.pop("cluster")
    narrow = estimate_value(**copies)
    assert wide.value == pytest.approx(once.value)
    assert narrow.high - narrow.low < 0.4 * (wide.high - wide.low)


def test_auto_says_what_it_chose():
    data = make()
    assert estimate_value(**data).method == "Student by user, log scale"
    assert "asymptotic" in estimate_value(**data, interval="bootstrap").method
    assert "clip part" in estimate_value(**data, clip=1.5).method


def test_clip_part_stands_apart_and_vanishes_where_nothing_is_clipped():
    data = make()
    clipped = estimate_value(**data, clip=1.5)
    facts = clipped.diagnostics
    assert clipped.high == pytest.approx(facts.sampling_high + facts.clip_part)
    assert facts.clip_part > 0.0
    assert estimate_value(**data, clip=1e6).diagnostics.clip_part == 0.0


@pytest.mark.parametrize("clip", [None, 15.0])
def test_a_gap_that_the_mean_weight_proves_is_not_to_be_used(clip):
    data = make()
    data["target"] = data["propensity"] * 0.6  # 40 % of the target's probability is on actions never logged
    for stated, code in (({}, "support_missing"), ({"full_support": True}, "support_denied")):
        estimate = estimate_value(**data, clip=clip, **stated)
        assert finding(estimate, code).number == pytest.approx(0.4, abs=0.01)
        assert estimate.verdict.level == "do_not_use"
    known = estimate_value(**data, clip=clip, facts=Facts(unsupported=np.full(6000, 0.4)))
    assert known.diagnostics.gap_part == pytest.approx(0.4)
    assert known.high > 0.4


def test_a_difference_swaps_sign():
    data = make()
    cluster = data.pop("cluster")
    for estimator in ("ips", "clipped_ips", "snips"):
        there = difference(**data, baseline=data["propensity"], estimator=estimator, cluster=cluster)
        data_back = {**data, "target": data["propensity"]}
        back = difference(**data_back, baseline=data["target"], estimator=estimator, cluster=cluster)
        assert (there.value, there.low, there.high) == pytest.approx((-back.value, -back.high, -back.low))


def test_difference_is_that_of_the_estimates():
    data = make()
    cluster = data.pop("cluster")
    for estimator in ("ips", "clipped_ips", "snips"):
        found = difference(**data, baseline=data["propensity"], estimator=estimator, clip=2.0, cluster=cluster)
        ends = [
            estimate_value(data["reward"], data["propensity"], t, estimator=estimator, clip=2.0).value
            for t in (data["target"], data["propensity"])
        ]
        assert found.value == pytest.approx(ends[0] - ends[1])
