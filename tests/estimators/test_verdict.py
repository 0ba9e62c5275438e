"""Verdicts as data, and what must hold of any estimate, under random testing."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import difference, estimate_value
from recsim_mnar.estimators.intervals import Spread, poisson_reach, positive_limits, ratio_interval
from recsim_mnar.estimators.off_policy.verdict import judge
from recsim_mnar.estimators.ratings import estimate_ratings, loss
from recsim_mnar.estimators.uplift import evaluate_lists
from recsim_mnar.estimators.verdict import TRUST, Finding, Verdict, scaled
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.protocols.ab_test import judged

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
    click = clicks(rng, n, 0.2)
    reward = draw(st.sampled_from([click, click - 0.1, rng.normal(0.0, 1.0, n), np.zeros(n)]))
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


def finding(estimate, code):
    (found,) = (each for each in estimate.verdict.findings if each.code == code)
    return found


def codes(estimate, doubts=False):
    """Codes of all findings, or of those that speak against trust."""
    return {f.code for f in estimate.verdict.findings if not doubts or f.level != "trust"}


def clicks(rng, n, rate):
    return (rng.random(n) < rate) * 1.0


def log_of(n, p, target, **more):
    """Columns of n rows, each of another user."""
    return {"propensity": np.broadcast_to(p, n).copy(), "target": target, "cluster": np.arange(n), **more}


@logs
@given(log(), st.sampled_from(PLAIN), st.sampled_from([None, 0.8, 3.0]))
def test_the_value_lies_in_its_interval_unless_its_bias_is_proved(columns, estimator, clip):
    def lies_within(estimate):
        outside = not estimate.low <= estimate.value <= estimate.high
        proved = [f for f in estimate.verdict.findings if f.code == "bias_proved" and f.level != "trust"]
        assert estimate.low <= estimate.high
        return outside <= bool(proved)

    found = estimate_value(**columns, estimator=estimator, clip=clip)
    assert lies_within(found)
    assert not np.isnan(ends(found)).any()
    assert found.verdict.findings
    assert found.trusted == (found.verdict == "trust")
    baseline = columns["propensity"]
    gap = difference(**columns, baseline=baseline, estimator="clipped_ips", clip=clip)
    assert lies_within(gap)


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
@given(log(), st.sampled_from(PLAIN))
def test_every_user_twice_makes_nothing_wider(columns, estimator):
    index = np.tile(np.arange(columns["reward"].size), 2)
    twice = rows_of(columns, index)
    twice["cluster"] = np.concatenate([columns["cluster"], columns["cluster"] + 1000])
    one, two = (estimate_value(**c, estimator=estimator, clip=3.0) for c in (columns, twice))
    assert two.value == pytest.approx(one.value, rel=1e-9, abs=1e-12)
    # twice the rows may prove a gap that once them did not: that is then in the interval, or in what a clip may hide
    facts = two.diagnostics
    proved = facts["mean_weight"] + 1.96 * facts["mean_weight_se"] < 1.0
    if one.diagnostics["gap_part"] == facts["gap_part"] == 0.0 and not proved and math.isfinite(one.high):
        assert two.high - two.low <= (one.high - one.low) * (1 + 1e-9)


@logs
@given(log(), st.floats(0.3, 50.0))
def test_a_clip_makes_no_interval_wider(columns, clip):
    apart = columns | {"baseline": columns["propensity"]}
    for plain, cut in (
        (estimate_value(**columns, estimator="ips"), estimate_value(**columns, clip=clip)),
        (difference(**apart, estimator="ips"), difference(**apart, clip=clip)),
    ):
        if math.isfinite(plain.high):
            outside = max(plain.low - cut.value, cut.value - plain.high, 0.0)  # the value is in its interval
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
    chance; which rows of a weight are rewarded means nothing."""
    target, facts = np.repeat([0.75, 0.25], 6), {"reward_min": 0.0, "reward_max": 1.0, "full_support": True}
    covered = dict.fromkeys((0.05, 0.2, 0.5, 0.9), 0.0)
    for heavy, light in itertools.product(range(7), repeat=2):
        reward = np.r_[np.arange(6) < heavy, np.arange(6) < light] * 1.0
        found = estimate_value(reward, np.full(12, 0.5), target, **facts)
        for rate in covered:
            chance = stats.binom.pmf(heavy, 6, rate) * stats.binom.pmf(light, 6, rate)
            covered[rate] += chance * (found.low <= rate <= found.high)
    assert min(covered.values()) >= 0.95


def test_poisson_reach_is_the_exact_limit_and_becomes_the_normal_one():
    for count in (0, 3, 50):
        exact = stats.chi2.ppf(0.975, 2 * count + 2) / 2 - count
        assert poisson_reach(count * 4.0, 2.0, 0.95) == pytest.approx(2.0 * exact)
    for step in (0.0, 1e-9):
        assert poisson_reach(4.0, step, 0.95) == pytest.approx(2 * 1.959964, rel=1e-6)


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


@pytest.mark.parametrize(
    ("number", "caution", "grave", "severity"),
    [(0.2, 0.4, 1.0, 0.5), (0.7, 0.4, 1.0, 1.5), (3.4, 0.4, 1.0, 6.0), (1e9, 0.4, 1.0, 1000.0),
     (5.0, 0.1, math.inf, 1.0), (100.0, 100.0, 30.0, 1.0),
     (30.0, 100.0, 30.0, 2.0), (1e6, 100.0, 30.0, 1e-4), (math.nan, 0.4, 1.0, 2.0)],
)  # fmt: skip
def test_severities_are_straight_between_their_limits(number, caution, grave, severity):
    assert scaled(number, caution, grave) == pytest.approx(severity)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rewards_without_a_stated_range_are_not_trusted(sign):
    """The reward named, seen 3.7 times at the heaviest weight, carries the value to the end of the interval."""
    n = 4000
    reward = sign * np.random.default_rng(17).gamma(4.0, 1.0, n)
    columns = log_of(n, 0.25, np.tile([0.5, 0.0], n // 2), reward=reward, propensity_min=0.25)
    found = estimate_value(**columns, estimator="ips")
    unstated = finding(found, "range_unstated")
    assert found.verdict.level == "caution"
    assert "--reward-max" in unstated.action
    assert ("--reward-min" in unstated.action) == ("or less, or of" in unstated.message) == (sign < 0)
    apart = unstated.number - found.diagnostics["reward_min"]
    assert -math.log(0.025) / 0.25 * apart / n == pytest.approx((found.high - found.low) / 2)
    least = {"reward_min": -20.0} if sign < 0 else {}
    assert estimate_value(**columns, reward_min=-20.0, reward_max=20.0, estimator="ips").trusted
    assert estimate_value(**columns, **least, reward_max=20.0).trusted


def test_logs_that_lack_their_longest_users_are_no_more_trusted():
    """Rewards fall with a Pareto length: a log whose longest users stayed away is too high and looks even. Nothing may
    be trusted for that: what is trusted covers as often as all logs do."""
    logs, right = 300, 0
    value = 0.0
    for k in range(1, 400_000):  # E[reward] over rows, with P(L = k) = k^-2 - (k + 1)^-2
        share = k**-2 - (k + 1) ** -2
        value += share * k * (0.1 + 0.4 / k)
    value /= math.pi**2 / 6
    for number in range(logs):
        rng = np.random.default_rng([23, number])
        lengths = np.floor(rng.random(500) ** -0.5).astype(np.int64)
        user = np.repeat(np.arange(500), lengths)
        reward = (rng.random(user.size) < 0.1 + 0.4 / lengths[user]) * 1.0
        half = np.full(user.size, 0.5)
        found = estimate_value(reward, half, half, cluster=user, propensity_min=0.5)
        assert "uneven_users" not in codes(found)
        right += found.low <= value <= found.high
    assert right >= stats.binom.ppf(0.001, logs, 0.95)


@pytest.mark.parametrize(
    ("make", "known"),
    [(lambda r: clicks(r, 500, 0.1), True), (lambda r: clicks(r, 500, 0.1) - 0.05, False),
     (lambda r: r.integers(1, 6, 500) * 1.0, False)],
)  # fmt: skip
def test_clicks_have_a_range(make, known):
    half = np.full(500, 0.5)
    found = estimate_value(make(np.random.default_rng(4)), half, half, full_support=True)
    assert ("range_unstated" in codes(found)) != known


def test_support_is_a_stated_fact():
    rng = np.random.default_rng(0)
    n = 5000
    p = rng.uniform(0.2, 0.8, n)
    reward = clicks(rng, n, 0.2)
    users = {"cluster": np.arange(n)}
    unstated = estimate_value(reward, p, p, **users)
    assert unstated.verdict.level == "caution"
    assert 0.0 < finding(unstated, "support_unstated").number < 0.01  # what the log leaves room for
    stated = estimate_value(reward, p, p, full_support=True, **users)
    assert stated.trusted  # no weight differs from 1, so nothing rare can hide
    alone = estimate_value(reward, p, p)
    assert [f.code for f in alone.verdict.findings if f.level != "trust"] == ["support_unstated", "users_unstated"]
    assert (stated.low, stated.high) == (unstated.low, unstated.high)
    lost = np.full(n, 0.03)
    result = estimate_value(reward, p, p * 0.97, unsupported=lost, reward_max=1.0)
    assert result.high == pytest.approx(estimate_value(reward, p, p * 0.97, full_support=True).high + 0.0, abs=0.04)
    assert result.high - result.value > 0.03
    assert result.value == pytest.approx(0.97 * stated.value)
    small = estimate_value(reward, p, p * 0.97, estimator="snips", unsupported=lost, reward_max=1.0)
    plain = estimate_value(reward, p, p, estimator="snips", full_support=True, reward_max=1.0)
    assert small.low == pytest.approx(0.97 * plain.low, rel=1e-2)  # snips spreads what it sees over what it does not


def exposures(users, seed, vary):
    rng = np.random.default_rng(seed)
    shape = (users, 10, 1)
    base = rng.choice([0.05, 0.25], shape)
    e = np.where(base > 0.1, 0.6, 0.25) if vary else np.full(shape, 0.4)
    z = rng.random(shape) < e
    y = rng.random(shape) < base + 0.05 * z
    u, i, t = np.nonzero(z | y)
    return Exposures(u, i, t, z[u, i, t], y[u, i, t], *shape, propensities=e)


def test_uplift_that_takes_popularity_for_an_effect_is_not_to_be_used():
    confounded = exposures(400, 0, vary=True)
    lists = np.tile(np.arange(6), (400, 1))

    def plain(of):
        return evaluate_lists(of, lists, metrics=["uplift"])["uplift"]

    assert plain(confounded).verdict.level == "do_not_use"
    assert "confounded" in codes(plain(confounded))
    assert "confounded" not in codes(plain(exposures(400, 1, vary=False)))
    assert "confounding_unknown" in codes(plain(confounded.with_propensities(None)))
    few = evaluate_lists(exposures(3, 2, vary=False), lists[:3], metrics=["uplift_ips"])["uplift_ips"]
    assert few.high - few.low > 1.0 / (0.4 * 6 * 3)  # one more purchase alone could add as much
    assert few.verdict.startswith("do not use: only 3 users")


def test_ratings_have_a_verdict():
    rng = np.random.default_rng(0)
    truth = rng.integers(1, 6, (300, 40)).astype(float)
    p = np.where(truth > 3, 0.5, 0.2)
    users, items = np.nonzero(rng.random(p.shape) < p)
    ratings = Ratings(users, items, truth[users, items], 300, 40)
    found = estimate_ratings(loss("mae", np.full((300, 40), 3.0)), ratings, p)
    assert found.verdict.level == "trust"
    assert {"naive_biased", "effective_sample"} <= codes(found)
    wrong = estimate_ratings(loss("mae", np.full((300, 40), 3.0)), ratings, p * 0.5)
    assert "propensities" in codes(wrong)
    assert wrong.verdict.level == "do_not_use"


def test_an_ab_rate_of_five_users_is_no_point_and_not_to_be_used():
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
    assert finding(other, "wide_interval").number > finding(one, "wide_interval").number
    assert other.verdict.level != "trust"


@pytest.mark.parametrize(("clip", "advice"), [(15.0, "log with exploration"), (5.0, "raise the clip")])
def test_without_weights_above_the_clip_another_clip_is_not_the_advice(clip, advice):
    """A target that is seldom shown: the hidden weights are not in the log."""
    rng = np.random.default_rng(0)
    reward, target, tenth = clicks(rng, 3000, 0.05), clicks(rng, 3000, 0.01), np.full(3000, 0.1)
    facts = {"q_logged": tenth, "q_target": tenth, "full_support": True}
    bias = finding(estimate_value(reward, tenth, target, estimator="clipped_dr", clip=clip, **facts), "bias")
    assert bias.level != "trust"
    assert bias.action.startswith(advice)


@pytest.mark.parametrize(("unclipped_half", "advice"), [(0.5, "log"), (0.1, "raise the clip")])
def test_where_the_interval_without_a_clip_is_as_wide_only_rows_help(unclipped_half, advice):
    facts = {"n": 1000, "users": 1000, "low": 0.0, "high": 1.0, "scale": 0.1, "bias_part": 0.9, "clip_part": 0.9,
             "sampling_low": 0.05, "sampling_high": 0.15, "share_clipped": 0.1, "clip": 15.0}  # fmt: skip
    found = {each.code: each for each in judge(facts | {"unclipped_half": unclipped_half}, "clipped_ips").findings}
    assert found["wide_interval"].action.startswith(advice)
    assert found["bias"].action.startswith(advice)


def rare(seed, n=20_000):
    """2 % of the target's mass has a propensity of 4e-5 and pays twenty times as much as the rest."""
    rng = np.random.default_rng([9, seed])
    seldom = rng.random(n) < 4e-5
    p = np.where(seldom, 4e-5, 0.05)
    target = np.where(seldom, 0.02, np.where(rng.random(n) < 0.05, 0.98, 0.0))
    reward = (rng.random(n) < np.where(seldom, 0.8, 0.04)) * 1.0
    return {"reward": reward, "propensity": p, "target": target, "cluster": np.arange(n)}


def test_full_support_bounds_no_weight():
    """What a log does not show because it is rare is no matter of support; the least propensity is."""
    truth = 0.98 * 0.04 + 0.02 * 0.8
    said = 0
    for seed in range(20):
        alone = estimate_value(**rare(seed), full_support=True)
        said += any(f.code == "weights_unbounded" and f.level == "caution" for f in alone.verdict.findings)
        assert not alone.trusted
        known = estimate_value(**rare(seed), propensity_min=4e-5)
        assert known.low <= truth <= known.high
    assert said >= 10  # the others are too wide as it is, or prove a gap
    assert not difference(**rare(0), baseline=rare(0)["propensity"], full_support=True).trusted


def test_a_least_propensity_states_support_is_offered_and_can_be_denied():
    rng = np.random.default_rng(3)
    n = 50_000
    best = rng.random(n) < 0.9
    columns = log_of(n, np.where(best, 0.9, 0.01), np.where(best, 0.5, 0.05), reward=clicks(rng, n, 0.1))
    offered = estimate_value(**columns, full_support=True)
    assert "the smallest in this log is 0.01" in offered.verdict
    assert offered.diagnostics["least_propensity_rows"] == np.count_nonzero(~best)
    stated = estimate_value(**columns, propensity_min=0.01)
    assert not {"support_unstated", "weights_unbounded", "bound_denied"} & codes(stated)
    for denied in (estimate_value(**columns, propensity_min=0.02),
                   difference(**columns, baseline=columns["propensity"], propensity_min=0.02)):  # fmt: skip
        assert denied.verdict.level == "do_not_use"
        assert finding(denied, "bound_denied").number == np.count_nonzero(~best)


@pytest.mark.parametrize(
    ("bound", "denied"),
    [
        ({"propensity_min": 0.001667}, False),
        ({"propensity_min": 0.0017}, False),
        ({"propensity_min": 0.00175}, True),
        ({"weight_max": 599.0}, False),
        ({"weight_max": 580.0}, True),
    ],
)
def test_a_true_bound_that_was_rounded_is_not_denied(bound, denied):
    """The least propensity is 1/600, the largest weight 600; a bound is typed with two digits or more."""
    rng = np.random.default_rng(3)
    n = 50_000
    propensity = np.where(rng.random(n) < 0.9, 1 / 600, 0.5)
    found = estimate_value(**log_of(n, propensity, np.ones(n), reward=clicks(rng, n, 0.1)), **bound)
    assert ("bound_denied" in codes(found)) == denied


@pytest.mark.parametrize(("rate", "name"), [(0.05, "ips"), (0.45, "ips"), (0.55, "snips"), (0.95, "snips")])
def test_the_leading_estimator_is_chosen_by_the_log_alone(rate, name):
    n = 4000
    p, target, reward = np.full(n, 0.25), np.tile([0.5, 0.0], n // 2), clicks(np.random.default_rng(2), n, rate)
    found = estimate_value(reward, p, target)
    assert found.estimator == difference(reward, p, target, p).estimator == name
    assert ends(found).tolist() == ends(estimate_value(reward, p, target, estimator=name)).tolist()
    assert estimate_value(reward, p, target, clip=1.5).estimator == "clipped_ips"


def test_a_clipped_estimate_whose_bias_is_proved_is_never_trusted():
    """Weights of 40 are cut at 15: what is left is below all that the unchanged weights allow."""
    rng = np.random.default_rng(6)
    n = 300_000
    best = rng.random(n) < 0.81
    p = np.where(best, 0.82, 0.02)
    moved = np.arange(n) % 2 == 0  # the new policy takes another action in half of the states
    target = np.where(moved, (~best) & (rng.random(n) < 1 / 9), best) * 1.0
    reward = (rng.random(n) < np.where(best, 0.045, 0.06)) * 1.0
    log = log_of(n, p, target, reward=reward, propensity_min=0.02)
    for found, plain in (
        (estimate_value(**log, clip=15.0), estimate_value(**log, estimator="ips")),
        (difference(**log, baseline=p, clip=15.0), difference(**log, baseline=p, estimator="ips")),
    ):
        assert found.value < found.low
        assert found.low == pytest.approx(plain.low)
        bias = finding(found, "bias_proved")
        assert bias.level != "trust"
        assert bias.number == pytest.approx(plain.low - found.value)


def test_a_ratio_counts_from_the_least_reward():
    rng = np.random.default_rng(2)
    n = 4000
    log = log_of(n, 0.25, np.tile([0.5, 0.0], n // 2))
    reward = rng.integers(0, 5, n) * 1.0
    near = estimate_value(reward, **log, estimator="snips")
    far = estimate_value(reward + 1000.0, **log, estimator="snips")
    np.testing.assert_allclose(ends(far), ends(near) + 1000.0, rtol=1e-9)
    baseline = np.tile([0.15, 0.35], n // 2)
    gaps = [difference(r, **log, baseline=baseline, estimator="snips") for r in (reward, reward + 1000.0)]
    np.testing.assert_allclose(ends(gaps[0]), ends(gaps[1]), rtol=1e-6, atol=1e-9)


def test_width_is_judged_without_the_luck_of_the_rewards():
    """Fewer clicks at the heavy weights lower the estimate, but not the width that the verdict judges."""
    n = 6000
    weight = np.tile([0.5, 1.0, 2.0, 0.5, 1.0, 1.0], n // 6)
    log = log_of(n, 0.2, weight * 0.2, weight_max=2.0, full_support=True)
    lucky, unlucky = (  # as many clicks in both logs
        estimate_value(np.isin(np.arange(n), np.flatnonzero(weight == at)[:40]) * 1.0, **log) for at in (2.0, 0.5)
    )
    assert finding(lucky, "wide_interval").number == pytest.approx(finding(unlucky, "wide_interval").number)
    assert lucky.high - lucky.low > 2.0 * (unlucky.high - unlucky.low)


def test_a_clip_buys_no_trust():
    """A clip may hide what it takes from the variance: its verdict is no better than that of the unclipped estimate."""
    for seed in range(40):
        rng = np.random.default_rng([31, seed])
        shown, other = rng.random(2000) < 0.84, rng.integers(0, 4, 2000)  # epsilon-greedy, .2 over five items
        target = np.where(shown, 0.0, other == 0)
        log = log_of(2000, np.where(shown, 0.84, 0.04), target, reward=clicks(rng, 2000, 0.1), propensity_min=0.04)
        plain, cut = (estimate_value(**log, clip=clip).verdict for clip in (None, 15.0))
        assert plain.meets(cut.level)


def test_the_advice_on_rows_reckons_with_a_step_that_falls_faster_than_the_rest():
    rng = np.random.default_rng(8)
    n = 3000
    log = {"reward": clicks(rng, n, 0.05), "propensity": np.full(n, 0.1)}
    known = {"propensity_min": 0.001, "estimator": "ips"}
    log["target"] = rng.permutation(np.arange(n) < n // 10) * 1.0  # a mean weight of 1: repeated, it proves nothing
    wide = finding(estimate_value(**log, cluster=np.arange(n), **known), "wide_interval")
    times = int(wide.action.removeprefix("log about ").split(" ")[0])
    assert times < (wide.number / 0.5) ** 2 / 2
    for factor, enough in ((times, True), (max(times // 2, 1), False)):
        again = {name: np.tile(values, factor) for name, values in log.items()}
        repeated = estimate_value(**again, cluster=np.arange(n * factor), **known)
        assert (finding(repeated, "wide_interval").level == "trust") == enough


def test_both_ends_of_a_difference_lie_within_the_range_of_rewards():
    rng = np.random.default_rng(0)
    n = 500
    p = np.full(n, 0.02)  # wrong, so that the weights say nonsense
    ours, theirs = (rng.random((2, n)) < 0.5) * 1.0
    for reward in (clicks(rng, n, 0.1), np.ones(n)):
        for clip in (None, 5.0):
            for one, other in ((ours, theirs), (theirs, np.zeros(n)), (np.zeros(n), ours)):
                found = difference(reward, p, one, other, cluster=np.arange(n), clip=clip, reward_max=1.0)
                assert found.low <= found.high
                assert min(found.value, -1.0) <= found.low
                assert found.high <= max(found.value, 1.0)


def test_a_context_needs_the_items_and_missing_values_are_a_level():
    rng = np.random.default_rng(5)
    n = 40_000
    context = rng.integers(0, 2, n)
    action = (rng.random(n) < np.where(context == 0, 0.8, 0.2)).astype(int)  # logged as one half: right on average
    log = (clicks(rng, n, 0.1), np.full(n, 0.5), np.full(n, 0.5))
    known = {"cluster": np.arange(n), "propensity_min": 0.5}
    with pytest.raises(UserError, match="give action too"):
        estimate_value(*log, **known, context=context)
    assert estimate_value(*log, **known, action=action).trusted
    for column in (context, np.where(context == 0, np.nan, 1.0), np.where(context == 0, "a", "b")):
        assert estimate_value(*log, **known, action=action, context=column).verdict.level == "do_not_use"


def heavy_rows(number, n=2000):
    """A log that meets its rows of weight 10 so many times; 200 are to be expected. Rewards are where no weight is."""
    target = (np.arange(n) < number) * 1.0
    reward = (np.arange(n) >= n - 300) * 1.0
    reward[:: n // 20] = 1.0
    return log_of(n, 0.1, target, reward=reward)


def test_few_heavy_rows_by_luck_are_no_reason_for_trust_nor_against_it():
    one, other = (estimate_value(**heavy_rows(n), propensity_min=0.1, estimator="ips") for n in (180, 220))
    assert finding(one, "wide_interval").number == pytest.approx(finding(other, "wide_interval").number, rel=2e-3)
    few, other_few = finding(one, "effective_sample"), finding(other, "effective_sample")
    assert few.severity == pytest.approx(other_few.severity)
    assert few.number != other_few.number


SUPPORTED, BOUNDED = {"full_support": True, "estimator": "ips"}, {"propensity_min": 0.1, "estimator": "ips"}


@pytest.mark.parametrize(
    ("number", "stated", "code", "doubted"),
    [
        *((number, SUPPORTED, "weights_unbounded", True) for number in (170, 200, 230)),
        (170, BOUNDED, "support_denied", False),  # 2.4 standard errors too few
        (130, BOUNDED, "support_denied", True),  # 6 of them: a strict proof, which alone denies a statement
        *((number, {}, "support_missing", True) for number in (170, 130)),
    ],
)
def test_missing_heavy_rows_speak_against_what_is_stated(number, stated, code, doubted):
    assert (code in codes(estimate_value(**heavy_rows(number), **stated), doubts=True)) == doubted


def test_the_policy_that_logged_has_no_heavier_weight():
    rng = np.random.default_rng(4)
    n = 4000
    p = np.where(rng.random(n) < 0.5, 0.9, 0.01)
    log = log_of(n, p, p, reward=clicks(rng, n, 0.1))
    one, other = (estimate_value(**log, **stated) for stated in ({"propensity_min": 0.01}, {"weight_max": 1.0}))
    np.testing.assert_array_equal(ends(one), ends(other))
    assert one.high - one.low < 0.03
