"""The first sentence of an answer: what it says in every case, and that it is true."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.answers.records import advised_once, estimate_columns, reasons
from recsim_mnar.answers.sentence import Amounts, cells, covered_share, identified, lacks, leading, sentence_of
from recsim_mnar.estimators.verdict import Finding, Verdict
from recsim_mnar.log.columns import Clusters, LogColumns

CLICKS = {"reward_min": 0.0, "reward_max": 1.0, "n": 1000, "clicks": 50, "mean_reward": 0.05}
DOUBT = Finding("wide_interval", 1.0, 0.6, "the interval is wide", "log more rows")
GRAVE = Finding("propensities", 2.0, 1.5, "the mean weight is 1.5", "check the propensities")


def of(policy, value, low, high, *findings, facts=None, level=0.95, **more):
    """A record of the leading estimator, with what its findings make of the verdict."""
    limits = {"value": value, "low": low, "high": high, "level": level, "n": 1000, "ess": 500.0}
    rest = {"policy": policy, "target": policy, "estimator": "ips", "method": "gamma", "leads": True, "today": False}
    facts = CLICKS | (facts or {})
    return rest | limits | Verdict.of(findings).to_dict() | {"diagnostics": facts} | more


def compared(value, low, high, *findings, policy="new", today=True, **more):
    """Records of a policy, of the baseline that earns .05, and of their difference."""
    facts = {"value_baseline": 0.05}
    return [
        of(policy, 0.05 + value, 0.05 + low, 0.05 + high),
        of("propensity" if today else "old", 0.05, 0.04, 0.06, today=today),
        of(f"{policy} - propensity" if today else f"{policy} - old", value, low, high, *findings, facts=facts,
           target=policy, today=today, baseline="propensity" if today else "old", **more),
    ]  # fmt: skip


def best_of(policies, level, low, high, *findings):
    ends = {"policies": policies, "level": level, "low": low, "high": high}
    return ends | Verdict.of(findings).to_dict()


SAME = {"method": "no interval: the same policy"}
GAP = Finding("support_missing", 2.0, 0.99, "the log misses 99 % of the target's mass", "explore")
SILENT = Finding("no_reward", 1000.0, 0.0, "no reward in the log", "log more rows")
PARTLY = {"identified_share": 0.009, "value_identified": 0.0154, "identified_low": 0.0148, "identified_high": 0.016}


@pytest.mark.parametrize(
    ("records", "answer", "percent", "words"),
    [
        (compared(0.01, 0.005, 0.02), "better", (20, 10, 40),
         "new earns 20.0 % more than today's policy (95 % interval 10.0 to 40.0 % more). Next: try it in an A/B test."),
        (compared(-0.01, -0.02, -0.005), "worse", (-20, -40, -10),
         "new earns 20.0 % less than today's policy (95 % interval 10.0 to 40.0 % less)"),
        (compared(-0.01, -0.02, -0.005), "worse", (-20, -40, -10), "Next: keep today's policy."),
        (compared(0.01, 0.005, 0.02, DOUBT), "looks_better", (20, 10, 40),
         "new looks better than today's policy, by 20.0 % (95 % interval 10.0 to 40.0 %), but: the interval is wide."),
        (compared(-0.01, -0.02, -0.005, DOUBT), "looks_worse", (-20, -40, -10), "Next: log more rows."),
        (compared(0.01, -0.005, 0.02), "cannot_tell", (20, -10, 40),
         "The log cannot show whether new earns more than today's policy: from 10.0 % less to 40.0 % more (95 % "
         "interval)"),
        (compared(0.01, 0.005, 0.02, GRAVE), "do_not_use", None,
         "Do not judge new against today's policy by this log: the mean weight is 1.5. Next: check the propensities."),
        (compared(0.0, 0.0, 0.0, SILENT), "no_reward", None, "No reward is in the log, so it says nothing"),
        (compared(0.0, 0.0, 0.0, **SAME), "same_policy", None, "new and today's policy are the same policy"),
        # The baseline is known to within a fifth, so limits in per cent of it are wider: .005 / .06 and .02 / .04.
        (compared(0.01, 0.005, 0.02, today=False), "better", (20, 8.333, 50),
         "new earns 20.0 % more than old (95 % interval 8.33 to 50.0 % more)"),
        ([of("new", 0.06, 0.05, 0.08)], "value", None,
         "new earns 6.00 % a decision (95 % interval 5.00 to 8.00 %). Next: compare it with today's policy"),
        ([of("new", 0.06, 0.05, 0.08, DOUBT)], "value", None, "8.00 %), but: the interval is wide."),
        ([of("random", 0.0001, 0.0001, 0.99, GAP, facts=PARTLY)], "not_covered", None,
         "The log covers 0.9 % of what random shows; there it earns 1.54 % (95 % interval 1.48 to 1.60 %). Beyond "
         "that it is unknown: with rewards between 0 and 1 the whole may earn 0.0100 to 99.0 %."),
    ],
)  # fmt: skip
def test_what_it_says(records, answer, percent, words):
    said = sentence_of(records)
    assert said.answer == answer
    assert words in said.text
    found = (said.change_percent, said.low_percent, said.high_percent)
    assert found == (None, None, None) if percent is None else found == pytest.approx(percent, rel=1e-3)
    assert said.action in said.text
    assert json.loads(json.dumps(said.to_dict())) == said.to_dict()
    assert bool(said.rests) == (answer not in ("do_not_use", "no_reward", "same_policy", "not_covered"))


def test_the_best_of_several_is_held_to_a_corrected_interval():
    """At 95 % it would be better; of three it is uncertain."""
    corrected = best_of(3, 1 - 0.05 / 3, -0.001, 0.03)
    first = compared(0.01, 0.005, 0.02, best_of=corrected)
    said = sentence_of([*first, *compared(0.005, 0.001, 0.009, policy="other")])
    assert (said.policy, said.answer, said.level) == ("new", "cannot_tell", 1 - 0.05 / 3)
    assert "98.33 % interval" in said.text
    assert said.high_percent == pytest.approx(60.0)
    first[2]["best_of"] = best_of(3, 1 - 0.05 / 3, 0.001, 0.03, DOUBT)
    assert sentence_of(first).answer == "looks_better"  # the wider interval is the one that must be trusted
    first[2]["best_of"] = best_of(3, 1 - 0.05 / 3, -0.03, -0.001)
    said = sentence_of(first)
    assert said.answer == "worse"
    assert said.text.startswith("new, the largest usable estimate of 3 policies, earns ")


def test_what_must_not_be_used_or_is_not_covered_has_no_place_in_a_ranking():
    lucky = compared(0.5, 0.4, 0.6, GRAVE, policy="lucky")
    hidden = compared(0.9, -0.02, 0.95, GAP, policy="hidden")
    hidden[0] |= Verdict.of([GAP]).to_dict()
    assert sentence_of([*lucky, *hidden, *compared(0.01, 0.005, 0.02)]).policy == "new"
    assert sentence_of([*hidden, *lucky]).answer == "do_not_use"
    assert sentence_of(hidden).answer == "not_covered"


def test_amounts_in_the_unit_of_the_rewards():
    baskets = {"clicks": 50, "mean_reward": 2.5, "reward_max": 90.0}
    assert not Amounts.of([of("new", 2.5, 2.0, 3.0, facts=baskets)]).shares
    assert not Amounts.of([of("new", 0.5, 0.2, 0.3, facts={"mean_reward": 0.049})]).shares  # parts of a click
    assert not Amounts.of([of("new", 0.5, 0.2, 0.3, facts={"reward_min": -1.0})]).shares
    assert Amounts.of([of("new", 0.5, 0.2, 0.3)]).shares
    assert (Amounts(True).one(0.01881), Amounts(True).change(0.0035)) == ("1.88 %", "+0.350 points")
    assert Amounts(False).span(1.0, math.inf) == "at least 1"
    # Costs that exceed what is earned have no per cent.
    records = compared(0.01, 0.005, 0.02)
    for record in records:
        record["diagnostics"] |= {"value_baseline": -0.05, "reward_min": -1.0}
    said = sentence_of(records)
    assert (said.answer, said.change_percent) == ("better", None)
    assert "new earns 0.01 more than today's policy (95 % interval 0.005 to 0.02 more)" in said.text


def test_cells_of_what_is_not_a_value():
    proved = Finding("bias_proved", 1.0, 0.1, "the value is outside", "raise the clip")
    clicks = Amounts(True)
    assert cells(of("new", 0.01, 0.02, 0.04, proved), clicks) == ("at least 2.00 %", "2.00 to 4.00 %")
    assert cells(of("new", 0.02, 0.02, 0.04, proved), clicks)[0] == "at least 2.00 %"
    assert cells(of("new", 0.03, 0.02, 0.04, proved), clicks)[0] == "3.00 %"
    assert cells(of("new", 0.0, 0.0, 0.04), clicks)[0] == "0.00 %"  # without proof a value at its limit is one
    difference = of("new - old", 0.05, -0.02, 0.04, proved, target="new", baseline="old")
    assert cells(difference, clicks) == ("at most +4.00 points", "-2.00 to 4.00 points")
    hidden = of("new", 0.02, 0.01, 0.99, GAP)
    assert (cells(hidden, clicks), covered_share(hidden)) == (("covers 1 %", "-"), pytest.approx(0.01))
    assert lacks(hidden)
    assert not lacks(of("new", 0.1, 0.0, 0.2, facts={"identified_share": 0.8}))
    nothing = of("new", 0.0, 0.0, 1.0, Finding("no_support", 1000.0, 0.0, "takes none", "explore"))
    assert "covers nothing" in identified(nothing, clicks)


def test_the_same_caution_is_said_once():
    unstated = Finding("rows_independent", 1.0, 1.0, "no column of users is known", "name it")
    records = [of("a", 0.1, 0.0, 0.2, unstated, DOUBT), of("b", 0.1, 0.0, 0.2, unstated)]
    wide = Finding("wide_interval", 1.0, 0.9, "wide too", "more")
    records.append(of("a - b", 0.1, 0.0, 0.2, wide, target="a", baseline="b"))
    assert [(reason.message, reason.policies) for reason in reasons(records)] == [
        ("no column of users is known", ("a", "b")), ("the interval is wide", ("a",))
    ]  # fmt: skip
    # Of a policy that is not covered another sentence says how much.
    assert reasons([of("c", 0.1, 0.0, 0.9, GAP, DOUBT)]) == []


def test_of_advice_that_differs_by_its_number_the_largest_is_given():
    def more(code, severity, times, unit="users"):
        return Finding(code, severity, 1.0, code, f"log about {times:,} times as many {unit}")

    doubts = [more("few_carry", 1.0, 2), more("wide_interval", 2.0, 1100), more("effective_sample", 1.0, 2)]
    heavy = Finding("heavy_tail", 1.0, 1.0, "heavy", "explore more")
    records = [of("a", 0.1, 0.0, 0.2, *doubts, heavy), of("b", 0.1, 0.0, 0.2, more("few_carry", 1.0, 3))]
    told = {(reason.message, reason.policies): reason.action for reason in advised_once(reasons(records))}
    assert [action.count("log about") for action in told.values()].count(1) == 2  # one for each policy
    assert "1,100" in told["wide_interval", ("a",)]
    assert told["few_carry", ("a",)] == told["effective_sample", ("a",)] == ""
    assert told["heavy", ("a",)] == heavy.action
    equal = [more("few_carry", 1.0, 2), more("effective_sample", 1.0, 2)]
    assert [bool(r.action) for r in advised_once(reasons([of("a", 0.1, 0.0, 0.2, *equal)]))].count(True) == 1


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
    led = [r for r in leading(records) if r["leads"]]
    assert {r["estimator"] for r in led} == {leader}
    assert [r["policy"] for r in led] == list(dict.fromkeys(r["policy"] for r in records))


LOGGING = np.array([0.5, 0.3, 0.2])


def answers_of(laws, rates, n, seeds, reward=None, logging=LOGGING):
    """Records of policies against today's, log by log; each law is a policy's probabilities of the actions."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        action = rng.choice(len(logging), n, p=logging)
        paid = (rng.random(n) < rates[action]) * (1.0 if reward is None else reward(rng, n))
        propensity = logging[action]
        columns = {f"p{i}": law[action] for i, law in enumerate(laws)} | {"propensity": propensity}
        log = LogColumns(paid, propensity, Clusters.of(np.arange(n), n, "user"), columns, np.arange(n))
        names = [name for name in columns if name != "propensity"]
        stated = {"propensity_min": float(logging.min()), "reward_max": 1.0 if reward is None else 2.0}
        yield estimate_columns(log, names, baseline="propensity", estimators=("ips",), **stated)


def most(logs, share):
    """As many as chance allows in one test of a thousand."""
    return stats.binom.ppf(0.999, logs, share)


@pytest.mark.slow
def test_of_ten_policies_like_todays_hardly_any_is_called_better():
    """Every action pays the same, so every policy earns what today's does. Each of the ten prefers another action, and
    at 95 % the winner looks better in about one log of ten."""
    logging = np.full(10, 0.1)
    laws = 0.6 * logging + 0.4 * np.eye(10)
    logs, claims, uncorrected = 150, 0, 0
    for records in answers_of(laws, np.full(10, 0.3), 1500, range(logs), logging=logging):
        said = sentence_of(records)
        claims += said.answer in ("better", "looks_better")
        assert said.level == pytest.approx(0.995)
        uncorrected += max(r["low"] for r in records if "baseline" in r) > 0.0
    assert claims <= most(logs, 0.025)
    assert uncorrected > most(logs, 0.025)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["clicks", "revenue"])
def test_the_sentence_is_true(kind):
    """Today earns .25 in the mean; the three policies .2975, .25375 and .21875 of what a click pays."""
    rates = np.array([0.2, 0.25, 0.375])
    laws = np.array([[0.3, 0.2, 0.5], [0.55, 0.2, 0.25], [0.75, 0.2, 0.05]])
    today = float(LOGGING @ rates)
    logs, wrong, right, outside, outside_half = 150, 0, 0, 0, 0
    reward = None if kind == "clicks" else lambda rng, n: rng.choice([0.5, 1.0, 2.0], n)
    for records in answers_of(laws, rates, 2500, range(logs), reward):
        said = sentence_of(records)
        truth = 100.0 * (float(laws[int(said.policy[1:])] @ rates) / today - 1.0)
        outside += not said.low_percent <= truth <= said.high_percent
        half = (said.low_percent + said.change_percent) / 2, (said.high_percent + said.change_percent) / 2
        outside_half += not half[0] <= truth <= half[1]
        right += said.answer == "better" and truth > 0.0
        wrong += (said.answer in ("better", "looks_better") and truth <= 0.0) or (said.answer == "worse" and truth >= 0)
    assert outside <= most(logs, 0.05)
    assert outside_half > most(logs, 0.05)  # one half as wide would be found out
    assert wrong <= most(logs, 0.025)
    assert right > logs / 2
