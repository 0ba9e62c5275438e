"""Verdicts as data, and what must hold of any estimate, under random testing."""

from __future__ import annotations

import copy
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Moments, difference, estimate_value
from recsim_mnar.estimators.intervals.gamma import along_length_of
from recsim_mnar.estimators.intervals.limits import Spread, poisson_reach, positive_limits
from recsim_mnar.estimators.off_policy.from_moments import estimate_from_moments
from recsim_mnar.estimators.off_policy.sampling import along_length
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.verdict import judge
from recsim_mnar.estimators.verdict import TRUST, Finding, Verdict, scaled
from recsim_mnar.log.columns import Clusters

# Those that use folds or an order of rows are exempt from what permutes, renames or repeats users.
PLAIN = ("ips", "clipped_ips", "snips", "sg_ips", "ix_ips", "replay")
logs = settings(max_examples=60, deadline=None)


@st.composite
def log(draw):
    """A log of a few users, its rewards of one of four kinds, and maybe their range."""
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    users = draw(st.integers(2, 150))
    lengths = rng.integers(1, draw(st.sampled_from([2, 9])), users)
    n = int(lengths.sum())
    weight = np.minimum(rng.lognormal(-0.5, 1.0, n), 99.0) * draw(st.sampled_from([0.7, 1.0]))
    reward = {
        "click": lambda: (rng.random(n) < 0.2) * 1.0,
        "cost": lambda: (rng.random(n) < 0.2) - 0.1,
        "signed": lambda: rng.normal(0.0, 1.0, n),
        "none": lambda: np.zeros(n),
    }[draw(st.sampled_from(["click", "cost", "signed", "none"]))]()
    columns = {
        "reward": reward,
        "propensity": np.full(n, 0.01),
        "target": weight * 0.01,
        "cluster": np.repeat(rng.permutation(users), lengths),
    }
    if draw(st.booleans()):
        columns |= {"reward_min": float(reward.min()) - 0.2, "reward_max": float(reward.max()) + 0.5}
    if draw(st.booleans()):
        columns |= {"full_support": True, "weight_max": 100.0}
    return columns


def ends(estimate):
    return np.array([estimate.value, estimate.low, estimate.high])


def rows_of(columns, index):
    return {k: v[index] if isinstance(v, np.ndarray) else v for k, v in columns.items()}


@logs
@given(log(), st.sampled_from(PLAIN), st.sampled_from([None, 0.8, 3.0]))
def test_the_value_lies_in_its_interval(columns, estimator, clip):
    found = estimate_value(**columns, estimator=estimator, clip=clip)
    assert found.low <= found.value <= found.high
    assert not np.isnan(ends(found)).any()
    assert found.verdict.findings
    assert found.trusted == (found.verdict == "trust")
    baseline = columns["propensity"]
    gap = difference(**columns, baseline=baseline, estimator="clipped_ips", clip=clip)
    assert gap.low <= gap.value <= gap.high


@logs
@given(log(), st.sampled_from(PLAIN), st.floats(0.01, 50.0), st.floats(-20.0, 20.0))
def test_shift_and_scale_carry_over(columns, estimator, factor, offset):
    columns.setdefault("reward_min", float(columns["reward"].min()) - 0.2)
    columns.setdefault("reward_max", float(columns["reward"].max()) + 0.5)
    moved = columns | {k: columns[k] * factor + offset for k in ("reward", "reward_min", "reward_max")}
    # rounding may leave the reward at an end of the range on its other side
    moved["reward_min"] -= 1e-9 * abs(offset)
    moved["reward_max"] += 1e-9 * abs(offset)
    once, then = (estimate_value(**c, estimator=estimator, clip=3.0) for c in (columns, moved))
    np.testing.assert_allclose(ends(then), ends(once) * factor + offset, rtol=1e-5, atol=1e-6 * (factor + abs(offset)))


@logs
@given(log(), st.sampled_from(PLAIN), st.integers(0, 2**32 - 1))
def test_order_of_rows_and_names_of_users_mean_nothing(columns, estimator, seed):
    rng = np.random.default_rng(seed)
    other = rows_of(columns, rng.permutation(columns["reward"].size))
    other["cluster"] = rng.permutation(columns["cluster"].max() + 1)[other["cluster"]] * 7
    one, two = (estimate_value(**c, estimator=estimator, clip=3.0) for c in (columns, other))
    np.testing.assert_allclose(ends(one), ends(two), rtol=1e-7, atol=1e-12)
    assert one.verdict.level == two.verdict.level


@logs
@given(log(), st.sampled_from(PLAIN))
def test_every_user_twice_makes_nothing_wider(columns, estimator):
    index = np.tile(np.arange(columns["reward"].size), 2)
    twice = rows_of(columns, index)
    twice["cluster"] = np.concatenate([columns["cluster"], columns["cluster"] + 1000])
    one, two = (estimate_value(**c, estimator=estimator, clip=3.0) for c in (columns, twice))
    assert two.value == pytest.approx(one.value, rel=1e-9, abs=1e-12)
    # twice the rows may prove a gap that once them did not: that is then in the interval
    if one.diagnostics["gap_part"] == two.diagnostics["gap_part"] == 0.0 and math.isfinite(one.high):
        assert two.high - two.low <= (one.high - one.low) * (1 + 1e-9)


@logs
@given(log(), st.sampled_from(["ips", "clipped_ips", "snips"]), st.integers(1, 6))
def test_merged_shards_are_the_whole(columns, estimator, parts):
    stated = {k: columns.pop(k) for k in ("full_support", "weight_max") if k in columns}
    columns.setdefault("reward_min", float(columns["reward"].min()))
    bounds = {k: columns[k] for k in ("reward_min", "reward_max") if k in columns}
    columns["unsupported"] = np.full(columns["reward"].size, 0.005)
    whole = Moments.of(**columns, clip=2.0)
    shards = [
        Moments.of(**rows_of(columns, np.flatnonzero(columns["cluster"] % parts == k)), clip=2.0)
        for k in range(parts)
        if np.any(columns["cluster"] % parts == k)
    ]
    merged = shards[0]
    for shard in shards[1:]:
        merged = merged + shard
    known = Stated(**stated, **bounds)
    one, two = (estimate_from_moments(m, estimator, stated=known) for m in (whole, merged))
    assert one.value == pytest.approx(two.value, rel=1e-12, abs=1e-14)
    # the ends hang on differences of sums of fourth powers, which lose half of the digits where users are two
    np.testing.assert_allclose(ends(one), ends(two), rtol=1e-6, atol=1e-9)


@logs
@given(log(), st.floats(0.3, 50.0))
def test_a_clip_makes_no_interval_wider(columns, clip):
    plain, cut = estimate_value(**columns), estimate_value(**columns, clip=clip)
    if math.isfinite(plain.high):
        outside = max(plain.low - cut.value, cut.value - plain.high, 0.0)  # the value lies in its own interval
        assert cut.high - cut.low <= (plain.high - plain.low) * (1 + 1e-9) + outside


def test_a_single_weight_has_exact_poisson_limits():
    for clicks in (1, 4, 30):
        n = 100_000
        reward = np.zeros(n)
        reward[:clicks] = 1.0
        p = np.full(n, 0.1)
        found = estimate_value(reward, p, p * 3.0 / 3.0, reward_min=0.0, reward_max=1.0, full_support=True)
        high = stats.chi2.ppf(0.975, 2 * clicks + 2) / 2 / n
        low = stats.chi2.ppf(0.025, 2 * clicks) / 2 / n
        assert found.high == pytest.approx(
            high, rel=2e-3
        )  # Student for normal, n - 1 for n, and a variance about the mean
        # one more row that earns nothing lowers the end, and never by more than the value's share of a row
        assert low * (1 - 0.05) <= found.low <= low * (1 + 1e-3)


def test_small_logs_against_enumeration():
    """Twelve rows, half of weight 1.5 and half of .5: the limits cover over all 4,096 outcomes, each with its
    chance."""
    weight = np.tile([1.5, 0.5], 6)
    for rate in (0.05, 0.2, 0.5, 0.9):
        covered = 0.0
        for outcome in range(2**12):
            reward = (outcome >> np.arange(12)) & 1
            chance = float(np.prod(np.where(reward, rate, 1 - rate)))
            found = estimate_value(
                reward * 1.0, np.full(12, 0.5), weight * 0.5, reward_min=0.0, reward_max=1.0, full_support=True
            )
            covered += chance * (found.low <= rate <= found.high)
        assert covered >= 0.95, rate


def test_poisson_reach_is_the_exact_limit_and_becomes_the_normal_one():
    for count in (0, 3, 50):
        exact = stats.chi2.ppf(0.975, 2 * count + 2) / 2 - count
        assert poisson_reach(count * 4.0, 2.0, 0.95) == pytest.approx(2.0 * exact)
    assert poisson_reach(4.0, 0.0, 0.95) == pytest.approx(2 * 1.959964, rel=1e-6)
    assert poisson_reach(4.0, 1e-9, 0.95) == pytest.approx(2 * 1.959964, rel=1e-6)
    assert poisson_reach(1.0, math.inf, 0.95) == math.inf


def test_skewness_to_the_left_lowers_the_lower_end():
    even = positive_limits(1.0, Spread(0.01, 0.0, 0.0, 0.0), 0.95)
    left = positive_limits(1.0, Spread(0.01, -0.1, 0.0, 0.0), 0.95)
    assert left[0] < even[0]
    assert left[1] == even[1]


def test_a_verdict_is_data_and_its_own_sentence():
    mild = Finding("wide_interval", 1.3, 0.5, "the interval is wide", "log more users")
    grave = Finding("few_users", 3.0, 9.0, "only 9 users", "log more users")
    near = Finding("heavy_row", 0.4, 0.04, "one row", "clip")
    assert TRUST == "trust"
    assert (TRUST.level, TRUST.findings, TRUST.severity) == ("trust", (), 0.0)
    caution = Verdict.of([near, mild])
    assert caution == "caution: the interval is wide: log more users"
    assert caution.level == "caution"
    worst = caution.with_findings([grave])
    assert worst == "do not use: only 9 users: log more users"
    assert [f.code for f in worst.findings] == ["few_users", "wide_interval", "heavy_row"]
    assert worst.meets("do_not_use")
    assert not worst.meets("caution")
    assert caution.meets("caution")
    assert not caution.meets("trust")
    for other in (copy.deepcopy(worst), pickle.loads(pickle.dumps(worst))):
        assert (other, other.level, other.findings) == (worst, worst.level, worst.findings)
    text = json.dumps(worst.to_dict())
    assert json.loads(text)["verdict_level"] == "do_not_use"
    assert json.loads(text)["findings"][0]["code"] == "few_users"
    with pytest.raises(UserError, match="no verdict 'good'"):
        worst.meets("good")


def test_severities_are_straight_between_their_limits():
    assert scaled(0.2, 0.4, 1.0) == pytest.approx(0.5)
    assert scaled(0.7, 0.4, 1.0) == pytest.approx(1.5)
    assert scaled(3.4, 0.4, 1.0) == pytest.approx(6.0)
    assert scaled(1e9, 0.4, 1.0) == 1000.0
    assert scaled(5.0, 0.1, math.inf) == 1.0
    assert scaled(100.0, 100.0, 30.0) == pytest.approx(1.0)  # fewer is worse
    assert scaled(30.0, 100.0, 30.0) == pytest.approx(2.0)
    assert scaled(1e6, 100.0, 30.0) < 1e-3
    assert scaled(math.nan, 0.4, 1.0) == 2.0


def test_tails_below_two_are_no_reason_to_trust_and_stated_bounds_are():
    """Share of logs with a finding: Hill's index from 20 values has a relative error of a fifth or so."""
    n, logs_each = 4000, 60
    p = np.full(n, 0.5)

    def found(index: float, sign: float, **stated: float) -> float:
        seen = 0
        for number in range(logs_each):
            reward = sign * np.random.default_rng([17, number]).random(n) ** (-1.0 / index)
            verdict = estimate_value(reward, p, p, full_support=True, **stated).verdict
            seen += verdict.level != "trust" and any(
                f.code in ("reward_tail", "loss_tail", "heavy_reward") and f.severity >= 1.0 for f in verdict.findings
            )
        return seen / logs_each

    # 1.2: an index of 2 is 3 standard errors of Hill's estimate away; 5: it is 2.7 below.
    for sign in (1.0, -1.0):
        assert found(1.2, sign) >= 0.9
        assert found(5.0, sign) <= 0.1
    assert found(1.2, 1.0, reward_max=1e9) == 0.0
    assert found(1.2, -1.0, reward_min=-1e9, reward_max=0.0) == 0.0


def test_longer_users_that_earn_otherwise_need_more_users_like_them():
    """A few long users carry the spread; whether rewards fall with length decides how many of them are enough."""
    rng = np.random.default_rng(8)
    lengths = np.concatenate([np.full(400, 2), np.full(6, 60)])
    users = np.repeat(np.arange(lengths.size), lengths)
    p = np.full(users.size, 0.5)
    alike = 1.0 + 0.2 * (-1.0) ** users
    falling = np.where(lengths[users] > 2, 0.4, 1.0) + rng.normal(0.0, 0.05, users.size)
    for reward, otherwise in ((alike, False), (falling, True)):
        columns = {"reward": reward, "propensity": p, "target": p, "cluster": users, "reward_min": -9, "reward_max": 9}
        sums, value = np.bincount(users, reward + 9.0), float(np.mean(reward + 9.0))
        d = sums - value * lengths
        score = float(lengths @ d / np.sqrt(np.sum((lengths * d) ** 2)))
        moments = Moments.of(**columns)
        assert along_length(moments, "x") == pytest.approx(score, rel=1e-6)
        clusters = Clusters.of(users, users.size)
        assert along_length_of(reward + 9.0 - value, clusters, moments) == pytest.approx(score, rel=1e-9)
        assert (abs(score) >= 1.5) == otherwise
        for estimator in ("ips", "snips", "beta_ips"):
            verdict = estimate_value(**columns, full_support=True, estimator=estimator).verdict
            (found,) = [f for f in verdict.findings if f.code == "uneven_users"]
            assert 4.0 < found.number < 10.0
            assert (found.severity >= 1.0) == otherwise
            assert ("longer users earn otherwise" in found.message) == otherwise


def test_clicks_have_no_tail():
    rng = np.random.default_rng(4)
    for reward in ((rng.random(500) < 0.1) * 1.0, (rng.random(500) < 0.1) - 0.05, rng.integers(1, 6, 500) * 1.0):
        verdict = estimate_value(reward, np.full(500, 0.5), np.full(500, 0.5), full_support=True).verdict
        assert not {f.code for f in verdict.findings} & {"reward_tail", "loss_tail"}


def test_support_is_a_stated_fact():
    rng = np.random.default_rng(0)
    n = 5000
    p = rng.uniform(0.2, 0.8, n)
    reward = (rng.random(n) < 0.2) * 1.0
    unstated = estimate_value(reward, p, p)
    assert unstated.verdict.level == "caution"
    (finding,) = [f for f in unstated.verdict.findings if f.code == "support_unstated"]
    assert 0.0 < finding.number < 0.01  # what the log leaves room for
    stated = estimate_value(reward, p, p, full_support=True)
    assert stated.trusted
    assert (stated.low, stated.high) == (unstated.low, unstated.high)
    lost = np.full(n, 0.03)
    told = estimate_value(reward, p, p * 0.97, unsupported=lost, reward_max=1.0)
    assert told.high == pytest.approx(estimate_value(reward, p, p * 0.97, full_support=True).high + 0.0, abs=0.04)
    assert told.high - told.value > 0.03
    assert told.value == pytest.approx(0.97 * stated.value)
    small = estimate_value(reward, p, p * 0.97, estimator="snips", unsupported=lost, reward_max=1.0)
    plain = estimate_value(reward, p, p, estimator="snips", full_support=True, reward_max=1.0)
    assert small.low == pytest.approx(0.97 * plain.low, rel=1e-2)  # snips spreads what it sees over what it does not


def exposures(users, seed, vary):
    from recsim_mnar.log.exposures import Exposures

    rng = np.random.default_rng(seed)
    shape = (users, 10, 1)
    base = rng.choice([0.05, 0.25], shape)
    e = np.where(base > 0.1, 0.6, 0.25) if vary else np.full(shape, 0.4)
    z = rng.random(shape) < e
    y = rng.random(shape) < base + 0.05 * z
    u, i, t = np.nonzero(z | y)
    return Exposures(u, i, t, z[u, i, t], y[u, i, t], *shape, propensities=e)


def test_uplift_that_takes_popularity_for_an_effect_is_not_to_be_used():
    from recsim_mnar.estimators.uplift import average_effect, evaluate_lists

    confounded = exposures(400, 0, vary=True)
    lists = np.tile(np.arange(6), (400, 1))
    naive = average_effect(confounded, "naive")
    assert naive.verdict.level == "do_not_use"
    assert "confounded" in {finding.code for finding in naive.verdict.findings}
    assert evaluate_lists(confounded, lists, metrics=["uplift"])["uplift"].verdict.level == "do_not_use"
    assert average_effect(confounded, "ips").trusted
    assert average_effect(exposures(400, 1, vary=False), "naive").trusted
    unknown = confounded.with_propensities(None)
    assert average_effect(unknown, "naive").verdict.level == "caution"
    few = evaluate_lists(exposures(3, 2, vary=False), lists[:3], metrics=["uplift_ips"])["uplift_ips"]
    assert few.high - few.low > 1.0 / (0.4 * 6 * 3)  # one more purchase alone could add as much
    assert few.verdict.startswith("do not use: only 3 users")


def test_ratings_have_a_verdict():
    from recsim_mnar.estimators.ratings import estimate_ratings, loss
    from recsim_mnar.log.ratings import Ratings

    rng = np.random.default_rng(0)
    truth = rng.integers(1, 6, (300, 40)).astype(float)
    p = np.where(truth > 3, 0.5, 0.2)
    users, items = np.nonzero(rng.random(p.shape) < p)
    ratings = Ratings(users, items, truth[users, items], 300, 40)
    found = estimate_ratings(loss("mae", np.full((300, 40), 3.0)), ratings, p)
    assert found.verdict.level == "trust"
    assert {"naive_biased", "effective_sample"} <= {finding.code for finding in found.verdict.findings}
    wrong = estimate_ratings(loss("mae", np.full((300, 40), 3.0)), ratings, p * 0.5)
    assert "propensities" in {finding.code for finding in wrong.verdict.findings}
    assert wrong.verdict.level == "do_not_use"


def test_an_ab_rate_of_five_users_is_no_point_and_not_to_be_used():
    from recsim_mnar.estimators.intervals.clustered import ratio_interval
    from recsim_mnar.protocols.ab_test import judged

    value, low, high = ratio_interval(np.zeros(5), np.full(5, 10.0), 0.95)
    assert (value, low) == (0.0, 0.0)
    assert high == pytest.approx(-math.log(0.025) / 50, rel=1e-6)
    value, low, high = ratio_interval([1.0, 0, 0, 0, 0], np.full(5, 10.0), 0.95)
    assert 0.0 <= low < value < high
    assert judged(5, value, low, high).level == "do_not_use"
    assert judged(5000, 0.05, 0.045, 0.055).level == "trust"


@pytest.mark.parametrize("estimator", ["ips", "clipped_ips", "snips"])
@pytest.mark.parametrize("least", [-1.0, -100.0])
def test_a_least_reward_stated_far_below_all_seen_buys_no_trust(estimator, least):
    """Clicks whose interval reaches below 0 are no better known where rewards of -100 are said to be possible."""
    rng = np.random.default_rng(1)
    reward = (rng.random(4000) < 0.03) * 1.0
    target = np.where(rng.random(4000) < 0.1, 0.9, 0.0111)
    given = {"full_support": True, "reward_max": 1.0, "estimator": estimator}
    one = estimate_value(reward, np.full(4000, 0.1), target, reward_min=0.0, **given)
    other = estimate_value(reward, np.full(4000, 0.1), target, reward_min=least, **given)
    assert other.high - other.low > one.high - one.low
    widths = [next(f.number for f in e.verdict.findings if f.code == "wide_interval") for e in (one, other)]
    assert widths[1] > widths[0]
    assert other.verdict.level != "trust"


def test_where_no_weight_lies_above_the_clip_another_clip_is_no_advice():
    """A target that is seldom shown: what is hidden are weights that the log has none of."""
    rng = np.random.default_rng(0)
    n = 3000
    reward, target = (rng.random(n) < 0.05).astype(float), (rng.random(n) < 0.01).astype(float)
    model = {"q_logged": np.full(n, 0.1), "q_target": np.full(n, 0.1)}
    for clip, advice in ((15.0, "log with exploration"), (5.0, "raise the clip")):
        found = estimate_value(
            reward, np.full(n, 0.1), target, estimator="clipped_dr", clip=clip, full_support=True, **model
        )
        (bias,) = (each for each in found.verdict.findings if each.code == "bias")
        assert bias.level != "trust"
        assert bias.action.startswith(advice)


@pytest.mark.parametrize(("unclipped_half", "advice"), [(0.5, "log"), (0.1, "raise the clip")])
def test_where_the_interval_without_a_clip_is_as_wide_only_rows_help(unclipped_half, advice):
    facts = {"n": 1000, "users": 1000, "low": 0.0, "high": 1.0, "scale": 0.1, "bias_part": 0.9, "clip_part": 0.9,
             "sampling_low": 0.05, "sampling_high": 0.15, "share_clipped": 0.1, "clip": 15.0}  # fmt: skip
    found = {each.code: each for each in judge(facts | {"unclipped_half": unclipped_half}, "clipped_ips").findings}
    assert found["wide_interval"].action.startswith(advice)
    assert found["bias"].action.startswith(advice)
