"""The first sentence of an answer: what it says in every case, and that it is true."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.answers.records import estimate_columns
from recsim_mnar.answers.sentence import leading, sentence_of
from recsim_mnar.answers.words import Amounts, cells, covered_share, identified, lacks, reasons
from recsim_mnar.estimators import Facts
from recsim_mnar.estimators.verdict import Finding, Verdict
from recsim_mnar.log.columns import Clusters, LogColumns

CLICKS = {"reward_min": 0.0, "reward_max": 1.0, "n": 1000, "clicks": 50, "mean_reward": 0.05}
DOUBT = Finding("wide_interval", 1.0, 0.6, "the interval is wide", "log more rows")
GRAVE = Finding("propensities", 2.0, 1.5, "the mean weight is 1.5", "check the propensities")


def verdict_of(*findings):
    return Verdict.of(findings).to_dict()


def record(policy, value, low, high, *findings, facts=None, **more):
    """A record of the leading estimator, with what its findings make of the verdict."""
    estimate = {"value": value, "low": low, "high": high, "level": 0.95, "n": 1000, "ess": 500.0}
    names = {"policy": policy, "target": policy, "estimator": "ips", "method": "gamma", "leads": True, "today": False}
    return names | estimate | verdict_of(*findings) | {"diagnostics": CLICKS | (facts or {})} | more


def compared(value, low, high, *findings, policy="new", baseline="propensity", **more):
    """Records of a policy, of the baseline that earns .05, and of their difference."""
    today = baseline == "propensity"
    gap = record(f"{policy} - {baseline}", value, low, high, *findings, facts={"value_baseline": 0.05})
    return [
        record(policy, 0.05 + value, 0.05 + low, 0.05 + high),
        record(baseline, 0.05, 0.04, 0.06, today=today),
        gap | {"target": policy, "today": today, "baseline": baseline} | more,
    ]


def best_of_three(low, high, *findings):
    return {"policies": 3, "level": 1 - 0.05 / 3, "low": low, "high": high} | verdict_of(*findings)


BETTER = (0.01, 0.005, 0.02)
WORSE = (-0.01, -0.02, -0.005)
SAME = {"method": "no interval: the same policy"}
GAP = Finding("support_missing", 2.0, 0.99, "the log misses 99 % of the target's mass", "explore")
SILENT = Finding("no_reward", 1000.0, 0.0, "no reward in the log", "log more rows")
PARTLY = {"identified_share": 0.009, "value_identified": 0.0154, "identified_low": 0.0148, "identified_high": 0.016}


@pytest.mark.parametrize(
    ("records", "answer", "percent", "words"),
    [
        (compared(*BETTER), "better", (20, 10, 40),
         "new earns 20.0 % more than today's policy (95 % interval 10.0 to 40.0 % more). Next: try it in an A/B test."),
        (compared(*WORSE), "worse", (-20, -40, -10),
         "new earns 20.0 % less than today's policy (95 % interval 10.0 to 40.0 % less). Next: keep today's policy."),
        (compared(*BETTER, DOUBT), "looks_better", (20, 10, 40),
         "new looks better than today's policy, by 20.0 % (95 % interval 10.0 to 40.0 %), but: the interval is wide."),
        (compared(*WORSE, DOUBT), "looks_worse", (-20, -40, -10), "Next: log more rows."),
        (compared(0.01, -0.005, 0.02), "cannot_tell", (20, -10, 40),
         "The log cannot show whether new earns more than today's policy: from 10.0 % less to 40.0 % more (95 % "
         "interval)"),
        (compared(*BETTER, GRAVE), "do_not_use", None,
         "Do not judge new against today's policy by this log: the mean weight is 1.5. Next: check the propensities."),
        (compared(0.0, 0.0, 0.0, SILENT), "no_reward", None, "No reward is in the log, so it says nothing"),
        (compared(0.0, 0.0, 0.0, **SAME), "same_policy", None, "new and today's policy are the same policy"),
        # The baseline is known to within a fifth, so limits in per cent of it are wider: .005 / .06 and .02 / .04.
        (compared(*BETTER, baseline="old"), "better", (20, 8.333, 50),
         "new earns 20.0 % more than old (95 % interval 8.33 to 50.0 % more)"),
        ([record("new", 0.06, 0.05, 0.08)], "value", None,
         "new earns 6.00 % a decision (95 % interval 5.00 to 8.00 %). Next: compare it with today's policy"),
        ([record("new", 0.06, 0.05, 0.08, DOUBT)], "value", None, "8.00 %), but: the interval is wide."),
        ([record("random", 0.0001, 0.0001, 0.99, GAP, facts=PARTLY)], "not_covered", None,
         "The log covers 0.9 % of what random shows; there it earns 1.54 % (95 % interval 1.48 to 1.60 %). Beyond "
         "that it is unknown: with rewards between 0 and 1 the whole may earn 0.0100 to 99.0 %."),
    ],
)  # fmt: skip
def test_a_sentence_says_its_answer(records, answer, percent, words):
    sentence = sentence_of(records)
    assert sentence.answer == answer
    assert words in sentence.text
    changes = [sentence.change_percent, sentence.low_percent, sentence.high_percent]
    if percent is None:
        assert changes == [None, None, None]
    else:
        assert changes == pytest.approx(percent, rel=1e-3)
    assert sentence.action in sentence.text
    assert json.loads(json.dumps(sentence.to_dict())) == sentence.to_dict()
    assert bool(sentence.rests) == (answer not in ("do_not_use", "no_reward", "same_policy", "not_covered"))


def test_the_best_of_several_is_held_to_a_corrected_interval():
    """At 95 % it would be better; of three it is uncertain."""
    best = compared(*BETTER, best_of=best_of_three(-0.001, 0.03))
    sentence = sentence_of([*best, *compared(0.005, 0.001, 0.009, policy="other")])
    assert (sentence.policy, sentence.answer, sentence.level) == ("new", "cannot_tell", 1 - 0.05 / 3)
    assert "98.33 % interval" in sentence.text
    assert sentence.high_percent == pytest.approx(60.0)
    # the wider interval is the one that must be trusted
    assert sentence_of(compared(*BETTER, best_of=best_of_three(0.001, 0.03, DOUBT))).answer == "looks_better"
    sentence = sentence_of(compared(*BETTER, best_of=best_of_three(-0.03, -0.001)))
    assert sentence.answer == "worse"
    assert sentence.text.startswith("new, the largest usable estimate of 3 policies, earns ")


def test_what_must_not_be_used_or_is_not_covered_has_no_place_in_a_ranking():
    lucky = compared(0.5, 0.4, 0.6, GRAVE, policy="lucky")
    hidden = compared(0.9, -0.02, 0.95, GAP, policy="hidden")
    hidden[0] |= verdict_of(GAP)
    assert sentence_of([*lucky, *hidden, *compared(*BETTER)]).policy == "new"
    assert sentence_of([*hidden, *lucky]).answer == "do_not_use"
    assert sentence_of(hidden).answer == "not_covered"


@pytest.mark.parametrize(
    ("facts", "shares"),
    [
        ({}, True),
        ({"mean_reward": 2.5, "reward_max": 90.0}, False),
        ({"mean_reward": 0.049}, False),  # parts of a click
        ({"reward_min": -1.0}, False),
    ],
)
def test_clicks_are_shares(facts, shares):
    assert Amounts.of([record("new", 0.5, 0.2, 0.3, facts=facts)]).shares == shares


def test_amounts_in_the_unit_of_the_rewards():
    assert (Amounts(True).one(0.01881), Amounts(True).change(0.0035)) == ("1.88 %", "+0.350 points")
    assert Amounts(False).span(1.0, math.inf) == "at least 1"


def test_costs_that_exceed_what_is_earned_have_no_per_cent():
    records = compared(*BETTER)
    for row in records:
        row["diagnostics"] |= {"value_baseline": -0.05, "reward_min": -1.0}
    sentence = sentence_of(records)
    assert (sentence.answer, sentence.change_percent) == ("better", None)
    assert "new earns 0.01 more than today's policy (95 % interval 0.005 to 0.02 more)" in sentence.text


PROVED = Finding("bias_proved", 1.0, 0.1, "the value is outside", "raise the clip")
HIDDEN = record("new", 0.02, 0.01, 0.99, GAP)


@pytest.mark.parametrize(
    ("row", "value"),
    [
        (record("new", 0.01, 0.02, 0.04, PROVED), "at least 2.00 %"),
        (record("new", 0.02, 0.02, 0.04, PROVED), "at least 2.00 %"),
        (record("new", 0.03, 0.02, 0.04, PROVED), "3.00 %"),
        (record("new", 0.0, 0.0, 0.04), "0.00 %"),  # without proof a value at its limit is one
        (record("new - old", 0.05, -0.02, 0.04, PROVED, target="new", baseline="old"), "at most +4.00 points"),
        (HIDDEN, "covers 1 %"),
    ],
)
def test_a_cell_says_whether_a_number_is_a_value(row, value):
    assert cells(row, Amounts(True))[0] == value


def test_a_value_that_is_hidden_has_no_interval():
    assert cells(HIDDEN, Amounts(True))[1] == "-"
    assert covered_share(HIDDEN) == pytest.approx(0.01)
    assert lacks(HIDDEN)
    assert not lacks(record("new", 0.1, 0.0, 0.2, facts={"identified_share": 0.8}))
    nothing = record("new", 0.0, 0.0, 1.0, Finding("no_support", 1000.0, 0.0, "takes none", "explore"))
    assert "covers nothing" in identified(nothing, Amounts(True))


def test_intervals_are_in_the_unit_of_their_values():
    difference = record("new - old", 0.05, -0.02, 0.04, target="new", baseline="old")
    assert cells(difference, Amounts(True))[1] == "-2.00 to 4.00 points"
    assert cells(record("new", 0.03, 0.02, 0.04), Amounts(True))[1] == "2.00 to 4.00 %"


def test_the_same_caution_is_said_once():
    unstated = Finding("rows_independent", 1.0, 1.0, "no column of users is known", "name it")
    wide = Finding("wide_interval", 1.0, 0.9, "wide too", "more")
    records = [
        record("a", 0.1, 0.0, 0.2, unstated, DOUBT),
        record("b", 0.1, 0.0, 0.2, unstated),
        record("a - b", 0.1, 0.0, 0.2, wide, target="a", baseline="b"),
    ]
    assert [(reason.message, reason.policies) for reason in reasons(records)] == [
        ("no column of users is known", ("a", "b")),
        ("the interval is wide", ("a",)),
    ]
    # Of a policy that is not covered another sentence says how much.
    assert reasons([record("c", 0.1, 0.0, 0.9, GAP, DOUBT)]) == []


@pytest.mark.parametrize(
    ("estimators", "leader"),
    [
        (("ips", "snips"), "snips"),
        (("dr", "snips"), "snips"),
        (("clipped_ips", "ips"), "ips"),
        (("dr", "dm"), "dr"),
    ],
)
def test_one_estimator_leads_in_all_rows(estimators, leader):
    """snips where it was asked for. Of doubly robust estimators no difference is known."""
    records = [{"policy": "a", "target": "a", "estimator": name, "diagnostics": {}} for name in estimators]
    if leader != "dr":
        records += [r | {"policy": "a - b", "baseline": "b"} for r in records if r["estimator"] != "dr"]
    leaders = [r for r in leading(records) if r["leads"]]
    assert {r["estimator"] for r in leaders} == {leader}
    assert [r["policy"] for r in leaders] == list(dict.fromkeys(r["policy"] for r in records))


LOGGING = np.array([0.5, 0.3, 0.2])


def click_amounts(rng, n):
    return 1.0


def answers_of(laws, rates, n, logs, amounts=click_amounts, logging=LOGGING):
    """Records of policies against today's, log by log; each law is a policy's probabilities of the actions."""
    for seed in range(logs):
        rng = np.random.default_rng(seed)
        action = rng.choice(len(logging), n, p=logging)
        reward = (rng.random(n) < rates[action]) * amounts(rng, n)
        propensity = logging[action]
        policies = {f"p{i}": law[action] for i, law in enumerate(laws)}
        columns = policies | {"propensity": propensity}
        log = LogColumns(reward, propensity, Clusters.of(np.arange(n), n, "user"), columns, np.arange(n))
        facts = Facts(propensity_min=float(logging.min()), reward_max=1.0 if amounts is click_amounts else 2.0)
        yield estimate_columns(log, list(policies), baseline="propensity", estimators=("ips",), facts=facts)


def most(logs, share):
    """The most that chance allows in one test of a thousand."""
    return stats.binom.ppf(0.999, logs, share)


@pytest.mark.slow
def test_of_ten_policies_like_todays_hardly_any_is_called_better():
    """Every action pays the same, so every policy earns what today's does. Each of the ten prefers another action, and
    at 95 % the winner looks better in about one log of ten."""
    logging = np.full(10, 0.1)
    laws = 0.6 * logging + 0.4 * np.eye(10)
    logs = 150
    claims = 0
    uncorrected = 0
    for records in answers_of(laws, np.full(10, 0.3), 1500, logs, logging=logging):
        sentence = sentence_of(records)
        assert sentence.level == pytest.approx(0.995)
        claims += sentence.answer in ("better", "looks_better")
        uncorrected += max(r["low"] for r in records if "baseline" in r) > 0.0
    assert claims <= most(logs, 0.025)
    assert uncorrected > most(logs, 0.025)


def revenue_amounts(rng, n):
    return rng.choice([0.5, 1.0, 2.0], n)


@pytest.mark.slow
@pytest.mark.parametrize("amounts", [click_amounts, revenue_amounts])
def test_the_sentence_is_true(amounts):
    """Today earns .25 in the mean; the three policies .2975, .25375 and .21875 of what a click pays."""
    rates = np.array([0.2, 0.25, 0.375])
    laws = np.array([[0.3, 0.2, 0.5], [0.55, 0.2, 0.25], [0.75, 0.2, 0.05]])
    today = float(LOGGING @ rates)
    logs = 150
    wrong = right = outside = outside_half = 0
    for records in answers_of(laws, rates, 2500, logs, amounts):
        sentence = sentence_of(records)
        truth = 100.0 * (float(laws[int(sentence.policy[1:])] @ rates) / today - 1.0)
        change = sentence.change_percent
        outside += not sentence.low_percent <= truth <= sentence.high_percent
        outside_half += not sentence.low_percent + change <= 2.0 * truth <= sentence.high_percent + change
        right += sentence.answer == "better" and truth > 0.0
        wrong += sentence.answer in ("better", "looks_better") and truth <= 0.0
        wrong += sentence.answer == "worse" and truth >= 0.0
    assert outside <= most(logs, 0.05)
    assert outside_half > most(logs, 0.05)  # one half as wide would be found out
    assert wrong <= most(logs, 0.025)
    assert right > logs / 2
