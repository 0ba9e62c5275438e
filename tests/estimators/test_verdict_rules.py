"""The rules of docs/verdict.md, one by one: from diagnostics to a finding's severity, number, words and remedy."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.limits import Support
from recsim_mnar.estimators.off_policy.verdict import judge
from recsim_mnar.estimators.verdict import TRUST, Estimate, Finding, Verdict

FACTS = {"n": 1000, "users": 1000, "clustered": True, "low": 0.09, "high": 0.11, "scale": 0.1, "clicks": 100}
FULL = Support(0.0, None, True, False, False, 0.0, False, 0.0, 1.0)
UNSTATED = replace(FULL, stated=False, hidden=0.02)
RARE = replace(FULL, unbounded=True, hidden=0.02)
PROVED = replace(FULL, stated=False, proved=True, mean=0.75)
WIDE = {"low": 0.0, "high": 0.2}  # as wide on either side as the mean reward
HALF = WIDE | {"expected_half": 0.05}
EVENTS = -math.log(0.025)  # 3.7


def found(facts, estimator="ips"):
    return {each.code: each for each in judge(FACTS | facts, estimator).findings}


def test_a_log_without_faults_is_trusted():
    assert judge(FACTS, "ips") == "trust"
    assert {code: each.severity for code, each in found({}).items()} == pytest.approx(
        {"wide_interval": 0.2, "heavy_row": 0.0}
    )


@pytest.mark.parametrize(
    ("facts", "code", "severity", "number"),
    [
        ({"users": 99}, "few_users", 2.0, 99),
        ({"users": 100}, "few_users", None, None),
        ({"n": 99, "users": None, "clustered": False}, "few_users", 2.0, 99),
        ({"support_seen": 0.0}, "no_support", 1000.0, 0.0),
        ({"support_seen": 1.0}, "no_support", None, None),
        ({"clicks": 0}, "no_reward", 1000.0, 0.0),
        ({"clicks": 0}, "wide_interval", None, None),
        ({"clicks": 1}, "no_reward", None, None),
        ({"clustered": False}, "users_unstated", 1.0, 1.0),
        ({"clustered": False, "same": True}, "users_unstated", None, None),
        ({"longest_user_share": 0.05}, "long_user", 0.5, 0.05),
        ({"longest_user_share": 0.1}, "long_user", 1.0, 0.1),
        ({"longest_user_share": 0.9}, "long_user", 1.0, 0.9),
        # wide_interval: what logs like this one give on average, over the mean reward
        ({"low": 0.05, "high": 0.15}, "wide_interval", 1.0, 0.5),
        ({"low": 0.025, "high": 0.175}, "wide_interval", 1.5, 0.75),
        (WIDE, "wide_interval", 2.0, 1.0),
        (WIDE | {"scale": 0.2}, "wide_interval", 1.0, 0.5),
        (HALF, "wide_interval", 1.0, 0.5),
        (WIDE | {"expected_half": 0.025}, "wide_interval", 0.5, 0.25),  # lucky in width, and not twice as wide as 50 %
        (WIDE | {"high": 0.24, "expected_half": 0.025}, "wide_interval", 1.2, 1.2),
        (WIDE | {"high": 0.24, "expected_half": 0.07}, "wide_interval", 1.4, 0.7),
        ({"bias_part": 0.06, "gap_part": 0.04}, "wide_interval", 1.0, 0.5),
        ({"bias_part": 0.06}, "wide_interval", 0.6, 0.3),
        ({"gap_part": 0.06}, "wide_interval", 0.6, 0.3),
        ({"scale": 0.0}, "wide_interval", 2.0, math.inf),
        ({"same": True}, "wide_interval", None, None),
        ({"scale": 0.0, "same": True}, "wide_interval", None, None),
        # no_width: a point up to roundings
        ({"sampling_low": 0.1, "sampling_high": 0.1}, "no_width", 1.0, 0.0),
        ({"sampling_low": 0.1, "sampling_high": 0.1, "same": True}, "no_width", None, None),
        ({"sampling_low": 0.1, "sampling_high": 0.1 + 9e-8}, "no_width", 1.0, 0.0),
        ({"sampling_low": 0.1, "sampling_high": 0.1 + 1.1e-7}, "no_width", None, None),
        ({"sampling_low": 0.1, "sampling_high": 0.1 + 9e-8, "effective_users": 0.5}, "no_width", 1.0, 0.0),
        ({"sampling_low": 0.1, "sampling_high": 0.1 + 9e-8, "effective_users": 100.0}, "no_width", None, None),
        ({"sampling_low": 0.1, "sampling_high": 0.1 + 9e-7, "value_target": -1.0}, "no_width", 1.0, 0.0),
        ({"sampling_low": 0.0, "sampling_high": 0.0}, "no_width", 1.0, 0.0),
        # bias: what a clip may hide, where that is more than the sampling error
        ({"clip_part": 0.03, "sampling_low": 0.09, "sampling_high": 0.11}, "bias", 0.2, 0.03),
        ({"clip_part": 0.01, "sampling_low": 0.09, "sampling_high": 0.11}, "bias", None, None),
        (WIDE | {"clip_part": 0.03, "sampling_low": 0.09, "sampling_high": 0.11}, "bias", 1.0, 0.03),
        ({"clip_part": 0.03, "scale": 0.0}, "bias", 1.0, 0.03),
        # bias_proved: a fifth of the mean reward is caution, half of it is too much
        ({"value_outside": 0.01}, "bias_proved", 1.0, 0.01),
        ({"value_outside": 0.035}, "bias_proved", 1.5, 0.035),
        ({"value_outside": 0.05}, "bias_proved", 2.0, 0.05),
        ({"value_outside": 0.05, "scale": 0.0}, "bias_proved", 1.0, 0.05),
        ({"value_outside": 0.0}, "bias_proved", None, None),
        # support
        ({"support": FULL}, "support_missing", None, None),
        ({"support": FULL}, "support_unstated", None, None),
        ({"support": PROVED}, "support_missing", 1.0, 0.25),
        ({"support": replace(PROVED, mean=0.65)}, "support_missing", 2.0, 0.35),
        ({"support": replace(PROVED, mean=0.5, known=0.2)}, "support_missing", 2.0, 0.3),
        ({"support": replace(PROVED, mean=0.65, known=0.2)}, "support_missing", 1.0, 0.15),
        ({"support": replace(PROVED, mean=0.9, known=0.2)}, "support_missing", 1.0, 0.0),
        ({"support": replace(PROVED, contradicted=True)}, "support_missing", 1.0, 0.25),
        ({"support": replace(PROVED, stated=True, contradicted=True)}, "support_denied", 2.0, 0.25),
        ({"support": replace(PROVED, known=0.4)}, "support_gap", None, None),
        ({"support": UNSTATED}, "support_unstated", 1.0, 0.02),
        ({"support": RARE, "range": 1.0}, "weights_unbounded", 1.0, 0.02),
        ({"support": RARE, "range": 0.05}, "weights_unbounded", 0.4, 0.02),
        ({"support": RARE}, "weights_unbounded", 1.0, 0.02),
        ({"support": RARE, "high": 0.09}, "weights_unbounded", 1.0, 0.02),
        ({"support": RARE, "same": True}, "weights_unbounded", None, None),
        ({"support": replace(RARE, hidden=0.0)}, "weights_unbounded", None, None),
        ({"support": replace(RARE, unbounded=False)}, "weights_unbounded", None, None),
        ({"support": replace(FULL, known=0.15)}, "support_gap", 0.5, 0.15),
        ({"support": replace(FULL, known=0.3)}, "support_gap", 1.0, 0.3),
        ({"support": replace(FULL, known=0.6)}, "support_gap", 2.0, 0.6),
        ({"support": replace(FULL, known=0.0)}, "support_gap", None, None),
        ({"support": FULL, "denied": 3}, "bound_denied", 2.0, 3.0),
        ({"support": FULL, "denied": 0}, "bound_denied", None, None),
        ({"support": replace(FULL, excess=0.2, mean=1.25)}, "propensities", 1.0, 1.25),
        ({"support": replace(FULL, excess=0.3, mean=1.4)}, "propensities", 2.0, 1.4),
        ({"support": FULL}, "propensities", None, None),
        # weights
        ({"ess": 1000.0}, "effective_sample", None, None),
        ({"ess": 1000.0 * (1.0 - 1e-10)}, "effective_sample", None, None),
        ({"ess": 200.0}, "effective_sample", 0.5, 200.0),
        ({"ess": 100.0}, "effective_sample", 1.0, 100.0),
        ({"ess": 30.0}, "effective_sample", 2.0, 30.0),
        ({"ess": 200.0, "expected_ess": 30.0}, "effective_sample", 2.0, 200.0),
        ({"n": 20, "ess": 19.0, "expected_ess": 20.0}, "effective_sample", 2.0, 19.0),
        ({"max_weight_share": 0.05}, "heavy_row", 0.5, 0.05),
        ({"max_weight_share": 0.1}, "heavy_row", 1.0, 0.1),
        ({"max_weight_share": 0.9}, "heavy_row", 1.0, 0.9),
        # a reward that the log happens not to show: half width n / (3.7 heaviest weight)
        ({"range_unstated": ["reward_max"]}, "range_unstated", 1.0, 10.0 / EVENTS),
        ({"range_unstated": ["reward_max"], "weight_max": 4.0}, "range_unstated", 1.0, 2.5 / EVENTS),
        ({"range_unstated": ["reward_max"], "reward_base": -3.0}, "range_unstated", 1.0, 10.0 / EVENTS - 3.0),
        ({"range_unstated": ["reward_max"], "unseen_mass": 0.5}, "range_unstated", 1.0, 10.0 / EVENTS),
        (
            {"range_unstated": ["reward_max"], "unseen_mass": 0.5, "reward_limit": 1.0}, "range_unstated", 1.0, 0.02,
        ),
        (
            {"range_unstated": ["reward_max"], "unseen_mass": 1e-9, "reward_limit": 1.0}, "range_unstated", 1.0,
            10.0 / EVENTS,
        ),
        (
            {"range_unstated": ["reward_max"], "unseen_mass": 0.0, "reward_limit": 1.0}, "range_unstated", 1.0,
            10.0 / EVENTS,
        ),
        ({"range_unstated": ["reward_max"], "same": True}, "range_unstated", None, None),
        ({"range_unstated": ["reward_max"], "clicks": 0}, "range_unstated", None, None),
        ({"range_unstated": ["reward_max"], "clicks": 1}, "range_unstated", 1.0, 10.0 / EVENTS),
        ({"range_unstated": []}, "range_unstated", None, None),
    ],
)  # fmt: skip
def test_severity_and_number(facts, code, severity, number):
    if facts.get("users", 0) is None:  # rows alone: nobody counts users
        judged = judge({name: value for name, value in (FACTS | facts).items() if name != "users"}, "ips")
        each = {each.code: each for each in judged.findings}.get(code)
    else:
        each = found(facts).get(code)
    assert (None, None) if each is None else (each.severity, each.number) == pytest.approx((severity, number))
    assert (each is None) == (severity is None)


LARGEST = ["reward_max"]


@pytest.mark.parametrize(
    ("facts", "estimator", "code", "message", "action"),
    [
        ({"users": 99}, "ips", "few_users", "only 99 users", "log more users"),
        ({"users": 1}, "ips", "few_users", "only 1 user,", "log more users"),
        ({"clustered": False, "users": 98}, "ips", "few_users", "only 98 rows", "log more rows"),
        ({"clicks": 0}, "ips", "no_reward", "so only the upper end", "log more rows: no reward was seen"),
        ({"clicks": 0, "high": 0.09}, "ips", "no_reward", "neither end", ""),
        ({"clicks": 0, "high": math.inf}, "ips", "no_reward", "no upper end", "with --reward-max"),
        ({}, "ips", "wide_interval", "reaches 10 %", "more users make it narrower"),
        ({"longest_user_share": 0.25}, "ips", "long_user", "has 25 % of", "a bot or an id that many share"),
        ({"low": 0.05, "high": 0.1501}, "ips", "wide_interval", "reaches 50 %", "log about 2 times as many users"),
        (WIDE, "ips", "wide_interval", "reaches 100 %", "log about 4 times"),
        (WIDE | {"high": 2.0}, "ips", "wide_interval", "far wider than", "log about 400 times"),
        (WIDE | {"high": 1.98}, "ips", "wide_interval", "reaches 990 %", "log about"),
        (WIDE | {"high": 3.16}, "ips", "wide_interval", "far wider", "log about 999 times"),
        (WIDE | {"high": 3.162}, "ips", "wide_interval", "far wider", "log far more users"),
        (WIDE | {"high": 0.4, "expected_half_at": lambda times: 0.2 / times}, "ips", "wide_interval", "", "about 4 t"),
        (WIDE | {"bias_part": 0.11}, "sg_ips", "wide_interval", "", "lower lam"),
        (WIDE | {"bias_part": 0.11}, "ips", "wide_interval", "", "explore more"),
        (WIDE | {"bias_part": 0.1}, "sg_ips", "wide_interval", "", "log about"),
        (WIDE | {"gap_part": 0.11}, "ips", "wide_interval", "", "log with exploration where"),
        (WIDE | {"gap_part": 0.1}, "ips", "wide_interval", "", "log about"),
        (WIDE | {"bias_part": 0.11, "share_clipped": 0.0}, "clipped_ips", "wide_interval", "", "state --weight-max"),
        ({"clip_part": 0.03}, "clipped_ips", "bias", "clipping may hide up to 0.03,", "raise the clip"),
        ({"clip_part": 0.03}, "sg_ips", "bias", "shrinking the weights may", "lower lam"),
        ({"clip_part": 0.03, "share_clipped": 0.0}, "clipped_ips", "bias", "weights above the clip, of", "weight-max"),
        ({"clip_part": 0.03, "unclipped_half": 0.0091}, "clipped_ips", "bias", "clipping", "log more users"),
        ({"clip_part": 0.03, "unclipped_half": 0.0089}, "clipped_ips", "bias", "clipping", "raise the clip"),
        ({"value_outside": 0.01}, "clipped_ips", "bias_proved", "0.01 outside", "use ips, or snips"),
        ({"value_outside": 0.01}, "switch_dr", "bias_proved", "", "raise tau"),
        ({"value_outside": 0.01}, "ips", "bias_proved", "", "explore more"),
        ({"value_outside": 0.01}, "theirs", "bias_proved", "", "explore more"),
        ({"support": PROVED}, "ips", "support_missing", "misses 25 % of the target's mass", "log with exploration"),
        ({"support": replace(PROVED, known=0.05)}, "ips", "support_missing", "20 % of the target's mass more than", ""),
        ({"support": replace(PROVED, stated=True, contradicted=True)}, "ips", "support_denied", "though its",
         "check the propensities and what was stated"),
        ({"support": UNSTATED, "range": 2.0}, "ips", "support_unstated", "never shows, as far as this log can "
         "tell up to 2 % of the time, which could hide up to 0.04 of value", "--propensity-min P (epsilon-greedy"),
        ({"support": UNSTATED}, "ips", "support_unstated", "any value", ""),
        ({"support": RARE, "range": 2.0}, "ips", "weights_unbounded", "up to 2 % of the time, which could hide up "
         "to 0.04", "state the smallest probability"),
        ({"support": replace(FULL, known=0.3)}, "ips", "support_gap", "never shows 30 %", "log with exploration"),
        ({"support": FULL, "denied": 3}, "ips", "bound_denied", "3 rows contradict the bound that", "check"),
        ({"support": FULL, "denied": 3, "bounds_stated": {"one": 1.0, "two": 2.5}}, "ips", "bound_denied",
         "the one that is stated, 1 or the two that is stated, 2.5",
         "check"),
        ({"support": replace(FULL, known=0.2, excess=0.1)}, "ips", "propensities", "is 1 and should be 0.8", "check"),
        ({"ess": 50.0}, "ips", "effective_sample", "is 50 of 1,000 rows", "log about 4 times"),
        ({"ess": 150.0}, "ips", "effective_sample", "is 150", "log about 2 times"),
        ({"ess": 0.5}, "ips", "effective_sample", "is 0.5", "log about 200 times"),
        ({"max_weight_share": 0.25}, "ips", "heavy_row", "carries 25 % of", "use clipped_ips or"),
        ({}, "dr", "heavy_row", "", "use clipped_dr or"),
        ({}, "theirs", "heavy_row", "", "use clipped_ips or"),
        ({}, "clipped_ips", "heavy_row", "", "give a clip or log more rows"),
        ({"clip": 9.0}, "clipped_ips", "heavy_row", "", "log more rows or explore more"),
        ({"range_unstated": LARGEST}, "ips", "range_unstated", "largest reward possible is not stated: rewards of "
         "2.71 or more that", "state --reward-max, if"),
        ({"range_unstated": ["reward_min"]}, "ips", "range_unstated", "least reward possible is not stated: rewards "
         "of -2.71 or less that", "state --reward-min, if"),
        ({"range_unstated": ["reward_min", "reward_max"], "reward_base": 1.0}, "ips", "range_unstated", "the least and "
         "largest rewards possible are not stated: rewards of -1.71 or less, or of 3.71 or more, that",
         "state --reward-min and --reward-max, if"),
        ({"range_unstated": LARGEST, "reward_limit": 1.0}, "ips", "range_unstated", "of actions that the log never "
         "shows is", "; --propensity-min too"),
    ],
)  # fmt: skip
def test_words_and_remedy(facts, estimator, code, message, action):
    each = found(facts, estimator)[code]
    assert message in each.message
    assert action in each.action


@pytest.mark.parametrize(
    ("rows", "n", "least", "offered"),
    [(100, 1000, 0.05, True), (99, 1000, 0.05, False), (400, 400_000, 0.05, True), (399, 400_000, 0.05, False),
     (100, 1000, None, False), (0, 50, 0.05, False)],
)  # fmt: skip
def test_a_least_propensity_is_offered_where_it_recurs(rows, n, least, offered):
    for support, code in ((UNSTATED, "support_unstated"), (RARE, "weights_unbounded")):
        more = {"support": support, "n": n, "propensity_min": least, "least_propensity_rows": rows}
        action = found(more)[code].action
        assert ("the smallest in this log is 0.05, in" in action) == offered
        assert ("the smallest in this log is" in action) == (least is not None)


def test_what_does_not_apply_is_not_said():
    assert set(found({"ess": 50.0}, "dm")) == {"wide_interval"}  # a model has no weights
    assert set(found({"support_seen": 0.0, "users": 9})) == {"few_users", "no_support"}
    own = Finding("own", 1.0, 0.0, "a doubt", "a remedy")
    assert judge(FACTS | {"warnings": (own,)}, "ips") == "caution: a doubt: a remedy"
    stated = {"range_unstated": LARGEST, "reward_limit": 1.0, "bounds_stated": ("least propensity",)}
    assert "--propensity-min" not in found(stated)["range_unstated"].action
    assert "--propensity-min" not in found({"range_unstated": LARGEST})["range_unstated"].action
    both = {"range_unstated": ["reward_min"], "reward_limit": 1.0}
    assert "never shows" not in found(both)["range_unstated"].message


def test_an_estimate_says_itself_and_keeps_its_verdict():
    one = Estimate(0.1, 0.05, 0.2, 0.95, "gamma", 12_000, 3456.7)
    assert str(one) == "estimate: 0.1 (95 % interval 0.05 to 0.2; 12,000 rows, effective 3,457). Trust"
    assert one.with_findings(()) is one
    doubted = replace(one, estimator="ips").with_findings(each for each in [Finding("x", 1.0, 0.0, "why", "what")])
    assert (doubted.trusted, one.trusted) == (False, True)
    assert str(doubted).startswith("ips: 0.1 ")
    assert str(doubted).endswith(". Caution: why: what")
    assert Verdict("caution") == "caution"
    assert TRUST.meets("trust")
    with pytest.raises(UserError, match="no verdict 'good'"):
        Verdict("good")
