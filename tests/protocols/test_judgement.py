"""Judgements: three outcomes, ties, losses, a best value of 0, and how well a true difference is known."""

from __future__ import annotations

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
    Record,
    Target,
    facing_width,
    half_width,
    headline,
    judge,
    paired_half_widths,
    ratio_influence,
    with_half_widths,
)

GAIN, LOSS = Target("ctr", "CTR"), Target("mse", "MSE", larger=False)


def record(protocol, agent, value, metric="ctr", width=0.0, **details):
    return Record(
        world="w", protocol=protocol, agent=agent, metric=metric, value=value, low=value - width, high=value + width,
        level=0.95, n=10, seconds=0.0, details=details,
    )  # fmt: skip


def judged(truth, ranked, *, target=GAIN, tie=0.0, width=0.0, **details):
    records = [record("truth", agent, value, target.metric, width, **details) for agent, value in truth.items()]
    records += [record("p", agent, value) for agent, value in ranked.items()]
    (found,) = judge(records, [Ranking("p", "ctr", "the protocol", target)], tie=tie)
    return found


TRUTH = {"a": 0.030, "b": 0.029, "c": 0.020}


@pytest.mark.parametrize(
    ("pick", "width", "outcome", "words"),
    [
        ("a", 0.0, BEST, "which is the best: nothing lost"),
        ("b", 0.0, COSTS, "a is the best, so the choice costs 3.3% of the CTR"),
        ("b", 0.001, INDISTINGUISHABLE, "a statistical tie with the best, a: 3.3% of the CTR"),
        ("c", 0.001, COSTS, "costs 33.3% of the CTR"),
    ],
)
def test_the_three_outcomes(pick, width, outcome, words):
    ranked = {agent: float(agent == pick) for agent in TRUTH}
    found = judged(TRUTH, ranked, width=width)
    assert (found.pick, found.outcome) == (pick, outcome)
    assert found.cost == pytest.approx(TRUTH["a"] - TRUTH[pick])
    assert words in found.sentence()


@pytest.mark.parametrize(
    ("forbidden", "words"),
    [
        ("b", "nothing lost. Its estimate of this other one must not be used: b."),
        ("bc", "nothing lost. Its estimates of these others must not be used: b, c."),
        ("", "nothing lost."),
        ("abc", "cannot choose here: its estimate of a, which it would pick, must not be used."),
    ],
)
def test_a_choice_that_was_not_among_all_says_so(forbidden, words):
    records = [record("truth", agent, value) for agent, value in TRUTH.items()]
    for agent, value in TRUTH.items():
        records.append(record("p", agent, value, verdict_level="do_not_use" if agent in forbidden else "trust"))
    (found,) = judge(records, [Ranking("p", "ctr", "the protocol", GAIN)])
    assert found.sentence().endswith(words)
    assert found.unusable == tuple(agent for agent in forbidden if agent != "a")


def test_what_clipping_may_hide_of_the_pick_does_not_speak_against_it():
    """Clipped IPS: .0172 [.0161, .0266] of the pick, .0098 [.0091, .0105] of the other; the truth is .0076 apart."""
    own = [replace(record("off_policy", "a", 0.0172, "clipped_ips"), low=0.0161, high=0.0266)]
    own += [replace(record("off_policy", "b", 0.0098, "clipped_ips"), low=0.0091, high=0.0105)]
    truth = [record("truth", name, value) for name, value in {"a": 0.0176, "b": 0.01}.items()]
    ranking = Ranking("off_policy", "clipped_ips", "clipped IPS", GAIN)
    (found,) = judge([*own, *truth], [ranking])
    assert (found.pick, found.close) == ("a", ())
    assert facing_width(*own) == facing_width(*own[::-1]) == pytest.approx(math.hypot(0.0011, 0.0007))
    hidden = [own[0], replace(own[1], high=0.0266)]  # what it may hide of the other one does
    (found,) = judge([*hidden, *truth], [ranking])
    assert found.close == ("b",)


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
    assert "ranks all agents alike" in found.sentence()
    assert "nothing lost" not in found.sentence()


def test_agents_level_at_the_top_are_a_blind_choice():
    found = judged(TRUTH, {"a": 1.0, "b": 1.0, "c": 0.0})
    assert found.tied_with == ("b",)
    assert found.cost == pytest.approx(0.0005)
    assert found.outcome == COSTS
    assert "picks a or b" in found.sentence()


def test_equal_truths_are_all_the_best():
    assert judged({"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 1.0}).outcome == BEST


def test_a_best_value_of_zero_divides_nothing():
    found = judged({"a": 0.0, "b": -0.5}, {"a": 0.0, "b": 1.0})
    assert found.cost_share is None
    assert "costs 0.5 the CTR" in found.sentence()


def test_losses_are_ranked_from_the_smallest():
    found = judged({"a": 1.0, "b": 2.0}, {"a": 1.1, "b": 1.9}, target=LOSS)
    assert (found.pick, found.best, found.outcome, found.kendall_tau) == ("a", "a", BEST, 1.0)
    wrong = judged({"a": 1.0, "b": 2.0}, {"a": 1.9, "b": 1.1}, target=LOSS)
    assert (wrong.pick, wrong.cost_share) == ("b", 1.0)


def test_the_upper_bound_of_sampling_may_pick_another():
    records = [record("truth", agent, value) for agent, value in TRUTH.items()]
    for agent, value, high, sampling in (("a", 0.02, 0.06, 0.06), ("b", 0.05, 0.05, 0.05), ("c", 0.01, 0.9, 0.02)):
        records.append(replace(record("p", agent, value, sampling_high=sampling), high=high))
    (found,) = judge(records, [Ranking("p", "ctr", "p", GAIN)])
    assert (found.pick, found.pick_by_upper_bound, found.tau_by_upper_bound) == ("b", "a", 1.0)


def test_one_agent_references_and_missing_truth_give_no_judgement():
    alone = [record("truth", "a", 1.0), record("p", "a", 1.0)]
    references = [record("truth", "b", 2.0, reference=True), record("p", "b", 2.0, reference=True)]
    for records in (alone, [*alone, *references], [record("p", "a", 1.0), record("p", "b", 2.0)]):
        assert judge(records, [Ranking("p", "ctr", "p", GAIN)]) == []


def test_the_headline_groups_by_what_comes_of_the_pick():
    right, near = (judged(TRUTH, {a: float(a == pick) for a in TRUTH}, width=w) for pick, w in (("a", 0), ("b", 0.001)))
    result = headline([right, near], lambda j: f"{j.best} is the best")
    assert result == ("a is the best: the protocol picks it; the protocol picks b, a statistical tie.")


@pytest.mark.verify
def test_paired_intervals_hold_their_level():
    """Differences of ratios over shared users, 2,000 samples of 200 users: nominal 95 %."""
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(2000):
        n = rng.geometric(0.1, 200).astype(float)
        shared = rng.normal(0, 0.2, 200)
        one, other = (n * (0.5 + d + shared) + rng.normal(0, 0.3, 200) * np.sqrt(n) for d in (0.03, 0.0))
        records = [record("truth", name, (y.sum() / n.sum())) for name, y in (("a", one), ("b", other))]
        a, b = with_half_widths(records, {"a": ratio_influence(one, n), "b": ratio_influence(other, n)}, 0.95)
        held += abs((a.value - b.value) - 0.03) <= half_width(a, b)
    assert held >= stats.binom.ppf(1e-4, 2000, 0.935)
    assert held <= stats.binom.ppf(1 - 1e-4, 2000, 0.965)


def test_paired_half_widths_are_those_of_a_paired_t_test():
    x = np.random.default_rng(0).normal(size=(2, 30))
    interval = stats.ttest_rel(*x).confidence_interval(0.9)
    width = paired_half_widths(x, 0.9)
    assert width[0, 1] == width[1, 0] == pytest.approx((interval.high - interval.low) / 2)
    assert width[0, 0] == 0
