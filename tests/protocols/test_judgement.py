"""Judgements: three outcomes, ties, losses, a best value of 0, and how well a true difference is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.protocols.records import (
    BEST,
    COSTS,
    INDISTINGUISHABLE,
    Ranking,
    Target,
    half_width,
    judge,
    paired_half_widths,
    ratio_influence,
    with_half_widths,
)
from toys import record, refused

GAIN, LOSS = Target("ctr", "CTR"), Target("mse", "MSE", larger=False)


def judged(truth, ranked, *, target=GAIN, tie=0.0, width=0.0, **details):
    records = [record("truth", agent, value, target.metric, width, **details) for agent, value in truth.items()]
    records += [record("p", agent, value) for agent, value in ranked.items()]
    (found,) = judge(records, [Ranking("p", "ctr", "protocol", target)], tie=tie)
    return found


TRUTH = {"a": 0.030, "b": 0.029, "c": 0.020}


@pytest.mark.parametrize(
    ("pick", "width", "outcome", "share"),
    [
        ("a", 0.0, BEST, ""),
        ("b", 0.0, COSTS, "3.3 %"),
        ("b", 0.001, INDISTINGUISHABLE, ""),
        ("c", 0.001, COSTS, "33 %"),
    ],
)
def test_the_three_outcomes(pick, width, outcome, share):
    ranked = {agent: float(agent == pick) for agent in TRUTH}
    found = judged(TRUTH, ranked, width=width)
    assert (found.pick, found.outcome) == (pick, outcome)
    assert found.cost == pytest.approx(TRUTH["a"] - TRUTH[pick])
    assert share in found.result


@pytest.mark.parametrize("unusable", ["", "b", "bc", "abc"])
def test_agents_whose_estimates_the_log_cannot_carry_are_named_and_ranked_all_the_same(unusable):
    records = [record("truth", agent, value) for agent, value in TRUTH.items()]
    for agent, value in TRUTH.items():
        records.append(record("p", agent, value, verdict_level="do_not_use" if agent in unusable else "trust"))
    (found,) = judge(records, [Ranking("p", "ctr", "protocol", GAIN)])
    assert found.unusable == tuple(unusable)
    assert (found.pick, found.n_agents, found.pick_unusable) == ("a", 3, "a" in unusable)


@pytest.mark.parametrize(("low", "high"), [(0.2, 0.3), (0.0, 0.05)])
def test_a_value_is_within_its_interval(low, high):
    with refused("outside its interval"):
        replace(record("p", "a", 0.1), low=low, high=high)
    assert replace(record("p", "a", 0.1), low=math.nan, high=math.nan).value == 0.1  # a fact has no interval


def test_the_paired_difference_decides_where_there_is_one():
    ranked = {"a": 0.0, "b": 1.0, "c": 0.5}
    # Their own intervals overlap by far, but users are shared and the difference is known well.
    known = judged(TRUTH, ranked, width=0.01, paired_half_widths={"a": 0.0005, "b": 0.0005, "c": 0.0005})
    unknown = judged(TRUTH, ranked, width=0.01)
    assert (known.outcome, unknown.outcome) == (COSTS, INDISTINGUISHABLE)
    assert unknown.resolution == pytest.approx(math.hypot(0.01, 0.01))


def test_tie_counts_small_costs_as_nothing():
    ranked = {"a": 0.0, "b": 1.0, "c": 0.5}
    assert judged(TRUTH, ranked, tie=0.03).outcome == COSTS
    assert judged(TRUTH, ranked, tie=0.04).outcome == INDISTINGUISHABLE


def test_a_ranking_that_ties_throughout_says_so():
    found = judged(TRUTH, dict.fromkeys(TRUTH, 1.0))
    assert found.ranks_nothing
    assert math.isnan(found.kendall_tau)
    assert found.outcome == COSTS
    assert found.cost == pytest.approx(0.030 - np.mean(list(TRUTH.values())))


def test_agents_level_at_the_top_are_a_blind_choice():
    found = judged(TRUTH, {"a": 1.0, "b": 1.0, "c": 0.0})
    assert found.tied_with == ("b",)
    assert found.cost == pytest.approx(0.0005)
    assert found.outcome == COSTS
    assert found.picks == ("a", "b")


def test_equal_truths_are_all_the_best():
    assert judged({"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 1.0}).outcome == BEST


def test_a_best_value_of_zero_divides_nothing():
    found = judged({"a": 0.0, "b": -0.5}, {"a": 0.0, "b": 1.0})
    assert found.cost_share is None
    assert "0.5" in found.result


def test_losses_are_ranked_from_the_smallest():
    found = judged({"a": 1.0, "b": 2.0}, {"a": 1.1, "b": 1.9}, target=LOSS)
    assert (found.pick, found.best, found.outcome, found.kendall_tau) == ("a", "a", BEST, 1.0)
    wrong = judged({"a": 1.0, "b": 2.0}, {"a": 1.9, "b": 1.1}, target=LOSS)
    assert (wrong.pick, wrong.cost_share) == ("b", 1.0)


def test_the_upper_bound_may_pick_another():
    records = [record("truth", agent, value) for agent, value in TRUTH.items()]
    for agent, value, high in (("a", 0.02, 0.06), ("b", 0.05, 0.05), ("c", 0.01, 0.02)):
        records.append(replace(record("p", agent, value), high=high))
    (found,) = judge(records, [Ranking("p", "ctr", "p", GAIN)])
    assert (found.pick, found.pick_by_upper_bound, found.tau_by_upper_bound) == ("b", "a", 1.0)


def test_one_agent_references_and_missing_truth_give_no_judgement():
    alone = [record("truth", "a", 1.0), record("p", "a", 1.0)]
    references = [record("truth", "b", 2.0, reference=True), record("p", "b", 2.0, reference=True)]
    for records in (alone, [*alone, *references], [record("p", "a", 1.0), record("p", "b", 2.0)]):
        assert judge(records, [Ranking("p", "ctr", "p", GAIN)]) == []


def test_half_widths_of_differences_of_rates_are_the_jackknifes():
    rng = np.random.default_rng(3)
    n = rng.geometric(0.1, 200).astype(float)
    shared = rng.normal(0, 0.2, 200)
    sums = np.array([n * (0.5 + d + shared) + rng.normal(0, 0.3, 200) * np.sqrt(n) for d in (0.03, 0.0)])
    records = [record("truth", name, y.sum() / n.sum()) for name, y in zip("ab", sums, strict=True)]
    a, b = with_half_widths(records, {name: ratio_influence(y, n) for name, y in zip("ab", sums, strict=True)}, 0.95)
    without = np.subtract(*(sums.sum(axis=1, keepdims=True) - sums)) / (n.sum() - n)
    error = math.sqrt(199 * without.var())
    assert half_width(a, b) == pytest.approx(stats.t.ppf(0.975, 199) * error, rel=0.02)


def test_paired_half_widths_are_those_of_a_paired_t_test():
    x = np.random.default_rng(0).normal(size=(2, 30))
    interval = stats.ttest_rel(*x).confidence_interval(0.9)
    width = paired_half_widths(x, 0.9)
    assert width[0, 1] == width[1, 0] == pytest.approx((interval.high - interval.low) / 2)
    assert width[0, 0] == 0
