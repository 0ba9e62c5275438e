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
from recsim_mnar.estimators.intervals import Spread, poisson_reach, positive_limits, ratio_interval
from recsim_mnar.estimators.ratings import estimate_ratings, loss
from recsim_mnar.estimators.verdict import TRUST, Finding, Verdict, scaled
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.protocols.ab_test import verdict_on_rate
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.uplift import evaluate_lists
from twins.facts import difference, estimate_value
from twins.findings import codes, doubts, finding

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


def clicks(rng, n, rate):
    return (rng.random(n) < rate) * 1.0


def log_of(n, p, target, **more):
    """Columns of n rows, each of another user."""
    return {"propensity": np.broadcast_to(p, n).copy(), "target": target, "cluster": np.arange(n), **more}


@logs
@given(log(), st.sampled_from(PLAIN), st.sampled_from([None, 0.8, 3.0]))
def test_the_value_lies_in_its_interval_unless_its_bias_is_proved(columns, estimator, clip):
    single = estimate_value(**columns, estimator=estimator, clip=clip)
    gap = difference(**columns, baseline=columns["propensity"], estimator="clipped_ips", clip=clip)
    for estimate in (single, gap):
        assert estimate.low <= estimate.high
        assert estimate.low <= estimate.value <= estimate.high or "bias_proved" in doubts(estimate)
    assert not np.isnan(ends(single)).any()
    assert single.verdict.findings
    assert single.trusted == (single.verdict == "trust")


@logs
@given(log(), st.sampled_from(PLAIN), st.floats(0.01, 50.0), st.floats(-20.0, 20.0))
def test_shift_and_scale_carry_over(columns, estimator, factor, offset):
    columns["reward_min"] = float(columns["reward"].min())
    columns.setdefault("reward_max", float(columns["reward"].max()) + 0.5)
    moved = columns | {name: columns[name] * factor + offset for name in ("reward", "reward_min", "reward_max")}
    moved["reward_min"] = float(moved["reward"].min())
    # rounding may leave the reward at an end of the range on its other side
    moved["reward_max"] += 1e-9 * abs(offset)
    once = estimate_value(**columns, estimator=estimator, clip=3.0)
    then = estimate_value(**moved, estimator=estimator, clip=3.0)
    np.testing.assert_allclose(ends(then), ends(once) * factor + offset, rtol=1e-5, atol=1e-6 * (factor + abs(offset)))


@logs
@given(log(), st.sampled_from(PLAIN))
def test_every_user_twice_makes_nothing_wider(columns, estimator):
    twice = {name: np.tile(value, 2) if isinstance(value, np.ndarray) else value for name, value in columns.items()}
    twice["cluster"] = np.append(columns["cluster"], columns["cluster"] + 1000)
    one = estimate_value(**columns, estimator=estimator, clip=3.0)
    two = estimate_value(**twice, estimator=estimator, clip=3.0)
    assert two.value == pytest.approx(one.value, rel=1e-9, abs=1e-12)
    # Twice the rows may prove a gap that once them did not: that is then in the interval, or in what a clip may hide.
    facts = two.diagnostics
    missing = facts.mean_weight + 1.96 * facts.mean_weight_se < 1.0
    # A value that the range of rewards cuts has its upper end there too: no error of sampling is left.
    cut = one.high <= one.value
    if one.diagnostics.gap_part == facts.gap_part == 0.0 and not missing and not cut and math.isfinite(one.high):
        assert two.high - two.value <= (one.high - one.value) * (1 + 1e-9)
        # Twice the rows may also prove an excess of the mean weight, which lowers the lower end by its share.
        if facts.mean_weight - 1.96 * facts.mean_weight_se <= 1.0:
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
    assert [worst.meets(level) for level in ("trust", "caution", "do_not_use")] == [False, False, True]
    assert [caution.meets(level) for level in ("trust", "caution", "do_not_use")] == [False, True, True]
    for other in (copy.deepcopy(worst), pickle.loads(pickle.dumps(worst))):
        assert (other, other.level, other.findings) == (worst, worst.level, worst.findings)
    stored = json.loads(json.dumps(worst.to_dict()))
    assert stored["verdict_level"] == "do_not_use"
    assert stored["findings"][0]["code"] == "few_users"
    with pytest.raises(UserError, match="no verdict 'good'"):
        worst.meets("good")


@pytest.mark.parametrize(
    ("number", "caution", "grave", "severity"),
    [(0.2, 0.4, 1.0, 0.5), (0.7, 0.4, 1.0, 1.5), (3.4, 0.4, 1.0, 6.0), (1e9, 0.4, 1.0, 1000.0),
     (5.0, 0.1, math.inf, 1.0), (100.0, 100.0, 30.0, 1.0),
     (30.0, 100.0, 30.0, 2.0), (0.0, 100.0, 30.0, 1000.0), (1e6, 100.0, 30.0, 1e-4), (math.nan, 0.4, 1.0, 2.0),
     (-1.0, 0.4, 1.0, 0.0), (0.0, 0.0, 1.0, 1.0), (0.2, 0.4, 0.4, 0.5)],
)  # fmt: skip
def test_severities_are_straight_between_their_limits(number, caution, grave, severity):
    assert scaled(number, caution, grave) == pytest.approx(severity)


@pytest.mark.slow
@pytest.mark.verify
def test_intervals_hold_where_lengths_of_users_are_pareto():
    """Rewards fall with the length: a log whose longest users stayed away is too high and looks even."""
    logs = 300
    right = 0
    length = np.arange(1.0, 400_000.0)  # E[reward] over rows, with P(L = k) = k^-2 - (k + 1)^-2
    share = length**-2 - (length + 1) ** -2
    value = np.sum(share * (0.1 * length + 0.4)) / (math.pi**2 / 6)
    for number in range(logs):
        rng = np.random.default_rng([23, number])
        lengths = np.floor(rng.random(500) ** -0.5).astype(np.int64)
        user = np.repeat(np.arange(500), lengths)
        reward = (rng.random(user.size) < 0.1 + 0.4 / lengths[user]) * 1.0
        half = np.full(user.size, 0.5)
        estimate = estimate_value(reward, half, half, cluster=user, propensity_min=0.5)
        right += estimate.low <= value <= estimate.high
    assert right >= stats.binom.ppf(0.001, logs, 0.95)


def test_mass_that_the_log_never_shows_enters_the_interval():
    rng = np.random.default_rng(0)
    n = 5000
    p = rng.uniform(0.2, 0.8, n)
    log = {"reward": clicks(rng, n, 0.2), "propensity": p, "cluster": np.arange(n)}
    unstated = estimate_value(**log, target=p)
    stated = estimate_value(**log, target=p, full_support=True)
    assert unstated.trusted
    assert ends(stated).tolist() == ends(unstated).tolist()
    lost = np.full(n, 0.03)
    short = {"target": p * 0.97, "unsupported": lost, "reward_max": 1.0}
    mean = estimate_value(**log, **short, estimator="ips")
    assert mean.value == pytest.approx(0.97 * unstated.value)
    assert mean.high >= mean.value + 0.03
    ratio = estimate_value(**log, **short)
    assert ratio.low == pytest.approx(0.97 * unstated.low, rel=1e-2)  # it spreads what it sees over what it does not
    assert ratio.high >= ratio.value + 0.03


def exposures(users, seed, vary):
    rng = np.random.default_rng(seed)
    shape = (users, 10, 1)
    base = rng.choice([0.05, 0.25], shape)
    propensity = np.where(base > 0.1, 0.6, 0.25) if vary else np.full(shape, 0.4)
    recommended = rng.random(shape) < propensity
    bought = rng.random(shape) < base + 0.05 * recommended
    rows = np.nonzero(recommended | bought)
    return Exposures(*rows, recommended[rows], bought[rows], *shape, propensities=propensity)


def test_uplift_that_takes_popularity_for_an_effect_is_not_to_be_used():
    confounded = exposures(400, 0, vary=True)
    lists = np.tile(np.arange(6), (400, 1))

    def uplift(exposures):
        return evaluate_lists(exposures, lists, metrics=["uplift"])["uplift"]

    assert uplift(confounded).verdict.level == "do_not_use"
    assert "confounded" in codes(uplift(confounded))
    assert "confounded" not in codes(uplift(exposures(400, 1, vary=False)))
    assert "confounding_unknown" in codes(uplift(confounded.with_propensities(None)))
    few = evaluate_lists(exposures(3, 2, vary=False), lists[:3], metrics=["uplift_ips"])["uplift_ips"]
    assert few.high - few.low > 1.0 / (0.4 * 6 * 3)  # one more purchase alone could add as much
    assert few.verdict.startswith("do not use: only 3 users")


def test_ratings_have_a_verdict():
    rng = np.random.default_rng(0)
    truth = rng.integers(1, 6, (300, 40)).astype(float)
    p = np.where(truth > 3, 0.5, 0.2)
    users, items = np.nonzero(rng.random(p.shape) < p)
    ratings = Ratings(users, items, truth[users, items], 300, 40)
    delta = loss("mae", np.full((300, 40), 3.0))
    right = estimate_ratings(delta, ratings, p)
    assert right.verdict.level == "trust"
    assert {"naive_biased", "effective_sample"} <= codes(right)
    wrong = estimate_ratings(delta, ratings, p * 0.5)
    assert wrong.verdict.level == "do_not_use"
    assert "propensities" in codes(wrong)


def test_an_ab_rate_of_five_users_is_no_point_and_not_to_be_used():
    value, low, high = ratio_interval(np.zeros(5), np.full(5, 10.0), 0.95)
    assert (value, low) == (0.0, 0.0)
    assert high == pytest.approx(-math.log(0.025) / 50, rel=1e-6)
    value, low, high = ratio_interval([1.0, 0, 0, 0, 0], np.full(5, 10.0), 0.95)
    assert 0.0 <= low < value < high
    assert verdict_on_rate(5, value, low, high).level == "do_not_use"
    assert verdict_on_rate(5000, 0.05, 0.045, 0.055).level == "trust"


def test_a_bound_that_rows_contradict_is_denied():
    rng = np.random.default_rng(3)
    n = 50_000
    best = rng.random(n) < 0.9
    columns = log_of(n, np.where(best, 0.9, 0.01), np.where(best, 0.5, 0.05), reward=clicks(rng, n, 0.1))
    assert "bound_denied" not in codes(estimate_value(**columns, propensity_min=0.01))
    single = estimate_value(**columns, propensity_min=0.02)
    gap = difference(**columns, baseline=columns["propensity"], propensity_min=0.02)
    for denied in (single, gap):
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
    estimate = estimate_value(**log_of(n, propensity, np.ones(n), reward=clicks(rng, n, 0.1)), **bound)
    assert ("bound_denied" in codes(estimate)) == denied


@pytest.mark.parametrize("rate", [0.05, 0.95])
def test_snips_leads_without_a_clip(rate):
    n = 4000
    reward = clicks(np.random.default_rng(2), n, rate)
    p = np.full(n, 0.25)
    log = (reward, p, np.tile([0.5, 0.0], n // 2))
    lead = estimate_value(*log)
    assert lead.estimator == difference(*log, p).estimator == "snips"
    np.testing.assert_array_equal(ends(lead), ends(estimate_value(*log, estimator="snips")))
    assert estimate_value(*log, clip=1.5).estimator == "clipped_ips"


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
    for clipped, plain in (
        (estimate_value(**log, clip=15.0), estimate_value(**log, estimator="ips")),
        (difference(**log, baseline=p, clip=15.0), difference(**log, baseline=p, estimator="ips")),
    ):
        assert clipped.value < clipped.low
        assert clipped.low == pytest.approx(plain.low)
        bias = finding(clipped, "bias_proved")
        assert bias.level != "trust"
        assert bias.number == pytest.approx(plain.low - clipped.value)


def test_a_difference_of_ratios_does_not_move_with_its_rewards():
    rng = np.random.default_rng(2)
    n = 4000
    log = log_of(n, 0.25, np.tile([0.5, 0.0], n // 2))
    reward = rng.integers(0, 5, n) * 1.0
    baseline = np.tile([0.15, 0.35], n // 2)
    low = difference(reward, **log, baseline=baseline, estimator="snips")
    high = difference(reward + 1000.0, **log, baseline=baseline, estimator="snips")
    np.testing.assert_allclose(ends(high), ends(low), rtol=1e-6, atol=1e-9)


def test_a_clip_buys_no_trust():
    """A clip may hide what it takes from the variance: its verdict is no better than that of the unclipped estimate."""
    for seed in range(40):
        rng = np.random.default_rng([31, seed])
        shown, other = rng.random(2000) < 0.84, rng.integers(0, 4, 2000)  # epsilon-greedy, .2 over five items
        target = np.where(shown, 0.0, other == 0)
        log = log_of(2000, np.where(shown, 0.84, 0.04), target, reward=clicks(rng, 2000, 0.1), propensity_min=0.04)
        clipped = estimate_value(**log, clip=15.0).verdict
        assert estimate_value(**log).verdict.meets(clipped.level)


@pytest.mark.parametrize("clip", [None, 5.0])
@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_both_ends_of_a_difference_lie_within_the_range_of_rewards(rate, clip):
    rng = np.random.default_rng(0)
    n = 500
    ours, theirs = (rng.random((2, n)) < 0.5) * 1.0
    # the propensity is wrong, so that the weights say nonsense
    log = log_of(n, 0.02, None, reward=clicks(rng, n, rate), clip=clip, reward_max=1.0)
    for target, baseline in ((ours, theirs), (theirs, np.zeros(n)), (np.zeros(n), ours)):
        gap = difference(**log | {"target": target, "baseline": baseline})
        assert gap.low <= gap.high
        assert min(gap.value, -1.0) <= gap.low
        assert gap.high <= max(gap.value, 1.0)


def test_a_context_needs_the_items_and_missing_values_are_a_level():
    rng = np.random.default_rng(5)
    n = 40_000
    context = rng.integers(0, 2, n)
    action = (rng.random(n) < np.where(context == 0, 0.8, 0.2)).astype(int)  # logged as one half: right on average
    log = log_of(n, 0.5, np.full(n, 0.5), reward=clicks(rng, n, 0.1), propensity_min=0.5)
    with pytest.raises(UserError, match="give action too"):
        estimate_value(**log, context=context)
    assert estimate_value(**log, action=action).trusted
    for column in (context, np.where(context == 0, np.nan, 1.0), np.where(context == 0, "a", "b")):
        assert estimate_value(**log, action=action, context=column).verdict.level == "do_not_use"


def heavy_rows(number, n=2000):
    """A log that meets its rows of weight 10 so many times; 200 are to be expected. Rewards are where no weight is."""
    target = (np.arange(n) < number) * 1.0
    reward = (np.arange(n) >= n - 300) * 1.0
    reward[:: n // 20] = 1.0
    return log_of(n, 0.1, target, reward=reward)


@pytest.mark.parametrize(("stated", "code"), [({"propensity_min": 0.1}, "support_denied"), ({}, "support_missing")])
def test_too_few_heavy_rows_prove_what_is_missing(stated, code):
    """200 rows of weight 10 are to be expected: 170 are 2.4 standard errors too few, 130 are 6, a strict proof."""
    for number, proved in ((170, False), (130, True)):
        assert (code in doubts(estimate_value(**heavy_rows(number), **stated))) == proved


def test_the_policy_that_logged_has_no_heavier_weight():
    rng = np.random.default_rng(4)
    n = 4000
    p = np.where(rng.random(n) < 0.5, 0.9, 0.01)
    log = log_of(n, p, p, reward=clicks(rng, n, 0.1))
    by_propensity = estimate_value(**log, propensity_min=0.01)
    by_weight = estimate_value(**log, weight_max=1.0)
    np.testing.assert_array_equal(ends(by_propensity), ends(by_weight))
    assert by_weight.high - by_weight.low < 0.03
