"""The rules of docs/verdict.md, one by one: from diagnostics to a finding's severity, number and remedy."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import Evidence, Support, judge, mean_weight_limits
from recsim_mnar.estimators.scores import Rows
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import (
    TRUST,
    Diagnostics,
    Estimate,
    Finding,
    Verdict,
    for_command,
    texts,
    written,
)
from recsim_mnar.log.columns import Clusters

SUMS = {
    "rows": 1000, "users": 1000, "clustered": True, "rewarded": 500, "rewarded_users": 500, "supported": 1000,
    "user_rows_max": 1, "propensity_min": 0.1,
}  # fmt: skip
NUMBERS = {
    "n": 1000, "users": 1000, "clustered": True, "clicks": 500, "ess": 1000.0, "mean_weight": 1.0,
    "mean_weight_se": 0.01, "max_weight": 2.0, "max_weight_share": 0.001, "support": 1.0, "mean_reward": 0.5,
    "propensity_min": 0.1, "least_propensity_rows": 1, "effective_users": 1.0, "sampling_low": 0.09,
    "sampling_high": 0.11, "clip_part": 0.0, "gap_part": 0.0, "reward_min": 0.0, "reward_max": 1.0,
}  # fmt: skip
OTHERS = {"low": 0.09, "high": 0.11, "scale": 0.1, "carrying": 100.0, "heavy_tail": 1.0, "estimator": "ips"}
FULL = Support(entering=0.0, known=None, stated=None, proved=False, excess=0.0, mean=1.0)
PROVED = replace(FULL, proved=True, mean=0.75)
WIDE = {"low": 0.0, "high": 0.2}  # as wide on either side as the value
APART = {"value_target": 0.2, "value_baseline": 0.1}  # a difference of .1


def fields(facts, names):
    return {name: value for name, value in facts.items() if name in names}


def evidence(facts=None, estimator="ips"):
    """Evidence of a log without faults, but for some numbers."""
    facts = {"support": FULL, "estimator": estimator} | (facts or {})
    sums = PolicySums(**SUMS | fields(facts, vars(PolicySums())))
    diagnostics = Diagnostics(**NUMBERS | fields(facts, Diagnostics.__match_args__))
    return Evidence(diagnostics, sums, **OTHERS | fields(facts, Evidence.__match_args__))


def verdict(facts=None, estimator="ips"):
    return judge(evidence(facts, estimator))


def findings(facts, estimator="ips"):
    return {finding.code: finding for finding in verdict(facts, estimator).findings}


def test_a_log_without_faults_is_trusted():
    assert verdict() == "trust"
    assert max(finding.severity for finding in findings({}).values()) < 1.0


SEVERITIES = [
    # of a code whose number is a fact: where there is a finding, and how grave it is there
    ("few_users", "users", {99: 2.0, 100: None}),
    ("no_support", "supported", {0: 1000.0, 1: None}),
    ("no_reward", "rewarded", {0: 1000.0, 1: None}),
    ("few_rewards", "rewarded", {60: 0.5, 30: 1.0, 3: 1.0, 0: None}),
    ("few_carry", "carrying", {16.0: 0.5, 8.0: 1.0, 4.0: 2.0, 0.0: None}),
    ("heavy_tail", "heavy_tail", {0.75: 0.5, 1.5: 1.0, 9.0: 1.0}),
    ("bias_proved", "value_outside", {0.01: 1.0, 0.021: 2.0, 0.0: None}),
    ("bound_denied", "denied", {3: 2.0, 0: None}),
    ("effective_sample", "ess", {1000.0: None, 200.0: 0.5, 100.0: 1.0, 30.0: 2.0}),
    ("heavy_row", "max_weight_share", {0.05: 0.5, 0.1: 1.0, 0.9: 1.0}),
]
SUPPORT_GAP = {0.15: 0.5, 0.3: 1.0, 0.6: 2.0, 0.0: None}


@pytest.mark.parametrize(
    ("facts", "code", "severity", "number"),
    [
        *(({fact: number}, code, severity, number)
          for code, fact, of_number in SEVERITIES for number, severity in of_number.items()),
        *(({"support": replace(FULL, known=known)}, "support_gap", severity, known)
          for known, severity in SUPPORT_GAP.items()),
        ({"rewarded": 0}, "wide_interval", None, None),
        ({"users": 900, "user_rows_max": 50}, "long_user", 0.5, 0.05),
        ({"users": 900, "user_rows_max": 100}, "long_user", 1.0, 0.1),
        ({"users": 900, "user_rows_max": 900}, "long_user", 1.0, 0.9),
        # wide_interval: half the interval over the value, caution from the precision asked for, grave from 1
        ({"low": 0.0875, "high": 0.1125}, "wide_interval", 0.5, 0.125),
        ({"low": 0.075, "high": 0.125}, "wide_interval", 1.0, 0.25),
        ({"low": 0.0375, "high": 0.1625}, "wide_interval", 1.5, 0.625),
        (WIDE, "wide_interval", 2.0, 1.0),
        ({"low": 0.05, "high": 0.15, "precision": 0.5}, "wide_interval", 1.0, 0.5),
        ({"scale": 0.0}, "wide_interval", 1000.0, math.inf),
        ({"same": True}, "wide_interval", None, None),
        # no_width: a point up to roundings
        ({"sampling_low": 0.1, "sampling_high": 0.1}, "no_width", 1.0, 0.0),
        ({"sampling_low": 0.1, "sampling_high": 0.1, "same": True}, "no_width", None, None),
        ({"sampling_low": 0.1, "sampling_high": 0.1 + 9e-8}, "no_width", 1.0, 0.0),
        ({"sampling_low": 0.1, "sampling_high": 0.1 + 1.1e-7}, "no_width", None, None),
        ({"sampling_low": 0.0, "sampling_high": 0.0}, "no_width", 1.0, 0.0),
        ({"sampling_low": 0.1, "sampling_high": 0.1 + 5e-8, "effective_users": 9.0}, "no_width", None, None),
        # bias_proved is grave from a fifth of the value on
        ({"value_outside": 0.2, "scale": 1.0}, "bias_proved", 2.0, 0.2),
        ({"value_outside": 0.01, "scale": 0.0}, "bias_proved", 2.0, 0.01),
        # support: what is proved is grave, whatever its size
        ({"support": FULL}, "support_missing", None, None),
        ({"support": PROVED}, "support_missing", 2.0, 0.25),
        ({"support": replace(PROVED, known=0.2)}, "support_missing", 2.0, 0.05),
        ({"support": replace(PROVED, stated=True)}, "support_denied", 2.0, 0.25),
        ({"support": replace(PROVED, stated=True)}, "support_missing", None, None),
        ({"support": replace(FULL, stated=False)}, "support_missing", 1.0, 0.0),
        ({"support": replace(PROVED, known=0.4)}, "support_gap", None, None),
        ({"support": replace(FULL, excess=0.01, mean=1.02)}, "propensities", 2.0, 1.02),
        ({"support": FULL}, "propensities", None, None),
        # target_knows: rows whose item the target is sure of, those of them with a reward, and the share of all rows
        ({"sure": 20, "sure_rewarded": 18, "rewarded": 100}, "target_knows", 2.0, 0.9),
        ({"sure": 20, "sure_rewarded": 17, "rewarded": 100}, "target_knows", None, None),
        ({"sure": 19, "sure_rewarded": 19, "rewarded": 100}, "target_knows", None, None),
        ({"sure": 20, "sure_rewarded": 20, "rewarded": 600}, "target_knows", None, None),
        ({"sure": 20, "sure_rewarded": 20, "rewarded": 500}, "target_knows", 2.0, 1.0),
        # weights
        ({"ess": 1000.0 * (1.0 - 1e-9)}, "effective_sample", None, None),  # of equal weights, up to roundings
        ({"ess": 1000.0 * (1.0 - 1.2e-9)}, "effective_sample", 0.1, 1000.0),
        ({"n": 20, "rows": 20, "ess": 19.0}, "effective_sample", 1 + (1 / 19 - 1 / 100) / (1 / 20 - 1 / 100), 19.0),
    ],
)  # fmt: skip
def test_severity_and_number(facts, code, severity, number):
    finding = findings(facts).get(code)
    if severity is None:
        assert finding is None
    else:
        assert (finding.severity, finding.number) == pytest.approx((severity, number))


@pytest.mark.parametrize(
    ("facts", "code", "action"),
    [
        ({"rewarded": 0, "high": math.inf}, "no_reward", "--reward-max"),
        ({"low": 0.05, "high": 0.15}, "wide_interval", "log about 4 times"),  # (.5 / .25)^2
        (WIDE | {"high": 20.0}, "wide_interval", "far more"),
        (WIDE | {"gap_part": 0.11}, "wide_interval", "log with exploration"),
        ({"low": 0.0, "high": 1.58}, "wide_interval", "log about 999 times as many users"),  # (7.9 / .25)^2
        ({"low": 0.0, "high": 1.582}, "wide_interval", "log far more users"),
        ({"low": 0.08, "high": 0.12}, "wide_interval", "more users make it narrower"),
        ({"ess": 50.0}, "effective_sample", "log about 2 times as many users"),  # 100 effective rows
        ({"ess": 99.0, "clustered": False}, "effective_sample", "log about 2 times as many rows"),
        ({"ess": 0.5}, "effective_sample", "log about 100 times"),
        # and so many that half the interval of the difference is the difference
        (APART | {"ess": 50.0, "low": -0.19, "high": 0.39}, "effective_sample", "log about 9 times"),
        (APART | {"ess": 5.0, "low": -0.19, "high": 0.39}, "effective_sample", "log about 20 times"),
        (APART | {"ess": 50.0, "low": -3.06, "high": 3.26}, "effective_sample", "log about 999 times"),
        (APART | {"ess": 50.0, "low": -3.1, "high": 3.3}, "effective_sample", "log far more users"),
        (APART | {"value_target": 0.1, "carrying": 4.0}, "few_carry", "log far more users"),
        (APART | {"value_target": 0.0, "carrying": 4.0, "low": -0.39, "high": 0.19}, "few_carry", "about 9 times"),
        ({"rewarded": 15}, "few_rewards", "log about 2 times"),
    ],
)
def test_remedy(facts, code, action):
    assert action in findings(facts)[code].action


@pytest.mark.parametrize(
    ("estimator", "facts", "code", "action"),
    [
        ("sg_ips", WIDE, "wide_interval", "log about 16 times"),
        ("sg_ips", WIDE | {"hidden": 0.11}, "wide_interval", "lower lam"),
        ("sg_ips", WIDE | {"hidden": 0.1}, "wide_interval", "log about 16 times"),
        ("clipped_ips", {"value_outside": 0.01}, "bias_proved", "use snips"),
        ("switch_dr", {"value_outside": 0.01}, "bias_proved", "raise tau"),
        ("theirs", {"value_outside": 0.01}, "bias_proved", "explore more"),
        ("ips", {}, "heavy_row", "clipped_ips"),
        ("dr", {}, "heavy_row", "clipped_dr"),
        ("clipped_ips", {}, "heavy_row", "give a clip"),
        ("clipped_ips", {"clip": 9.0}, "heavy_row", "explore more"),
    ],
)
def test_remedy_of_an_estimator(estimator, facts, code, action):
    assert action in findings(facts, estimator)[code].action


HALF_OF_ONE = {"scale": 1.0, "low": 0.5, "high": 1.5}  # half the interval is .5, exactly
MORE_USERS = {"do": "narrower", "unit": "users"}


@pytest.mark.parametrize(
    ("facts", "code", "params"),
    [
        ({"users": 1}, "few_users", {"users": 1, "counted": "user", "unit": "users", "least": 100}),
        ({"users": 2}, "few_users", {"users": 2, "counted": "users", "unit": "users", "least": 100}),
        ({"users": 900, "user_rows_max": 900}, "long_user", {"percent": 90.0}),
        ({"max_weight_share": 0.9}, "heavy_row", {"percent": 90.0, "remedy": "use clipped_ips or log more rows"}),
        (
            {"sure": 20, "sure_rewarded": 19, "rewarded": 444},
            "target_knows",
            {"rows": 20, "rewarded": 19, "percent": 44.4},
        ),
        # what is printed of the width: nothing from ten times the value on
        (HALF_OF_ONE | {"precision": 0.5}, "wide_interval", {"says": "percent", "percent": 50.0} | MORE_USERS),
        (
            HALF_OF_ONE | {"gap_part": 0.5},
            "wide_interval",
            {"says": "percent", "percent": 50.0, "do": "times", "times": 4, "unit": "users"},
        ),
        (
            {"scale": 1.0, "low": 0.0, "high": 19.0, "precision": 9.5},
            "wide_interval",
            {"says": "percent", "percent": 950.0} | MORE_USERS,
        ),
        ({"scale": 1.0, "low": 0.0, "high": 20.0, "precision": 10.0}, "wide_interval", MORE_USERS),
        ({"scale": 1.0, "low": 0.0, "high": 24.0, "precision": 12.0}, "wide_interval", MORE_USERS),
        # which ends mean something without a reward
        ({"rewarded": 0}, "no_reward", {"says": "one_end"}),
        ({"rewarded": 0, "high": 0.09}, "no_reward", {}),
        ({"rewarded": 0, "high": math.inf}, "no_reward", {"says": "no_end", "do": "state"}),
        # a gap as the mean weight proves it, and as a column says it
        ({"support": PROVED}, "support_missing", {"mean": 0.75, "percent": 25.0}),
        ({"support": replace(PROVED, mean=0.25)}, "support_missing", {"mean": 0.25, "percent": 75.0}),
        ({"support": replace(PROVED, known=0.0)}, "support_missing", {"says": "column", "mean": 0.75, "percent": 25.0}),
        ({"support": replace(FULL, known=0.6)}, "support_gap", {"percent": 60.0}),
        (
            {"denied": 3, "bounds": {"least propensity": 0.2}},
            "bound_denied",
            {"rows": 3, "bounds": "least propensity that is stated, 0.2", "says": "least", "least": "0.1"},
        ),
        (
            {"denied": 3, "bounds": {"largest weight": 5.0}},
            "bound_denied",
            {"rows": 3, "bounds": "largest weight that is stated, 5"},
        ),
    ],
)
def test_numbers_and_case_of_a_text(facts, code, params):
    finding = findings(facts)[code]
    expected = Finding(code, 0.0, 0.0, **params)
    assert finding.message == expected.message
    assert finding.action == expected.action


@pytest.mark.parametrize(
    ("times", "remedy"),
    [
        (1.0, {"do": "times", "times": 2}),
        (2.5, {"do": "times", "times": 3}),
        (999.5, {"do": "times", "times": 1000}),
        (1000.0, {"do": "far"}),
    ],
)
def test_how_much_more_to_log(times, remedy):
    assert evidence().advice_to_log(times) == remedy | {"unit": "users"}
    half_known = evidence({"value_baseline": 0.1})  # no difference to tell from 0
    assert half_known.advice_to_reach(8.0 * times, 8.0) == remedy | {"unit": "users"}


def sums_of(weight, cluster=None, missing=None):
    """Sums of weights up to 2, and of the mass that a column says is missing."""
    n = len(weight)
    half = np.full(n, 0.5)
    rows = Rows.of(np.zeros(n), half, half * weight, clusters=Clusters.of(cluster, n))
    sums = PolicySums(clustered=cluster is not None)
    sums.extend(replace(rows, missing=missing))
    return sums


def error_by_user(values, cluster):
    """Standard error of a mean over rows, from sums by user."""
    apart = np.bincount(cluster, values - values.mean())
    return math.sqrt(np.sum(apart**2) * apart.size / (apart.size - 1)) / values.size


def test_limits_of_the_mean_weight_are_those_of_its_logarithm():
    rng = np.random.default_rng(1)
    cluster = np.sort(rng.integers(0, 40, 300))
    weight = 2.0 * rng.random(300) * rng.random(40)[cluster]
    mean = weight.mean()
    for level in (0.95, 0.998):
        reach = stats.norm.ppf(0.5 + level / 2) * error_by_user(weight, cluster) / mean
        expected = (mean * math.exp(-reach), mean * math.exp(reach))
        assert mean_weight_limits(sums_of(weight, cluster), level) == pytest.approx(expected)
    # a level that rounds to 1 has limits, and so have two users; one user and weights of 0 have none
    assert mean_weight_limits(sums_of(weight), 1.0) == pytest.approx((mean * math.exp(-30.0), mean * math.exp(30.0)))
    low, high = mean_weight_limits(sums_of([1.0, 0.5]), 0.95)
    assert 0.0 < low < 0.75 < high < math.inf
    assert mean_weight_limits(sums_of([1.0]), 0.95) == (0.0, math.inf)
    assert mean_weight_limits(sums_of([0.0] * 5), 0.95) == (0.0, math.inf)


@pytest.mark.parametrize(
    ("mean", "missing", "proved", "excess"),
    [  # of equal weights: the limits of their mean are the mean
        (1.0, None, False, 0.0),
        (0.99, None, False, 0.0),  # may be the digits of the columns
        (0.988, None, True, 0.0),
        (1.005, None, False, 0.0),
        (0.995, None, False, 0.0),
        (1.01, None, False, 0.0),
        (1.0125, None, False, 0.0125),
        # with mass that a column says is missing
        (0.75, 0.25, False, 0.0),
        (0.745, 0.25, False, 0.0),
        (0.625, 0.25, True, 0.0),
        (0.875, 0.25, False, 0.125),
        (1.0, 0.25, False, 0.25),
    ],
)
def test_a_mean_weight_proves_missing_mass_or_excess(mean, missing, proved, excess):
    sums = sums_of([mean] * 2, missing=None if missing is None else np.full(2, missing))
    support = Support.of(sums, None, 0.95)
    assert support.proved == proved
    assert (support.known, support.mean) == (missing, mean)
    assert support.excess == pytest.approx(excess, abs=1e-6)
    assert support.entering == pytest.approx(missing or 0.0, abs=1e-6)


def test_a_mean_weight_that_may_be_chance_proves_nothing():
    weight = np.repeat([0.0, 2.0], [70, 58])  # the mean is .906
    for rows, proved in ((weight, False), (np.tile(weight, 12), True)):
        assert Support.of(sums_of(rows), None, 0.95).proved == proved
        assert (Support.of(sums_of(2.0 - rows), None, 0.95).excess > 0.0) == proved


def test_the_missing_mass_enters_by_its_upper_limit_by_user():
    rng = np.random.default_rng(2)
    cluster = np.sort(rng.integers(0, 30, 200))
    missing = rng.random(200) * rng.random(30)[cluster]
    support = Support.of(sums_of(np.full(200, 0.5), cluster, missing), None, 0.9)
    reach = stats.t.ppf(0.95, 29) * error_by_user(missing, cluster) * math.sqrt(30 / 29)
    assert (support.known, support.entering) == pytest.approx((missing.mean(), missing.mean() + reach))
    few = Support.of(sums_of([0.5] * 3, missing=np.array([0.0, 1.0, 1.0])), None, 0.95)
    assert few.entering == 1.0


@pytest.mark.parametrize(
    ("support", "too_much", "covered"),
    [
        (FULL, 0.0, 1.0),
        (replace(FULL, mean=1.25), 0.0, 1.0),
        (replace(FULL, mean=1.25, excess=0.01), 0.2, 1.0),
        (replace(FULL, mean=0.75, known=0.25), 0.0, 0.75),
        (replace(FULL, mean=0.5, known=0.25), 0.0, 0.75),
        (replace(FULL, mean=0.5, known=0.25, proved=True), 0.0, 0.5),
        (replace(FULL, mean=0.875, known=0.25, proved=True), 0.0, 0.75),
        (PROVED, 0.0, 0.75),
    ],
)
def test_shares_that_support_leaves(support, too_much, covered):
    assert (support.too_much, support.covered) == (pytest.approx(too_much), covered)


def test_a_text_names_the_option_that_its_reader_has():
    python, command = texts()["options"]["context"]
    text = written("propensities_estimated", "do", {"do": "blind"})
    assert python in text
    assert command not in text
    assert command in for_command(text)


def test_numbers_of_an_estimate_for_json():
    facts = Diagnostics(**NUMBERS, clip=0.0)
    assert facts.to_dict() == NUMBERS | {"clip": 0.0}
    for diagnostics in (facts, facts.to_dict()):  # of decisions, and of slates
        assert Estimate(0.1, 0.0, 0.2, 0.95, "", 9, 9.0, diagnostics).numbers() == facts.to_dict()


def test_a_finding_that_does_not_apply_is_not_said():
    assert not {"effective_sample", "heavy_row"} & findings({"ess": 50.0}, "dm").keys()  # a model has no weights
    assert findings({"supported": 0, "users": 9}).keys() == {"few_users", "no_support"}
    remark = Finding("own", 1.0, 0.0, "a doubt", "a remedy")
    assert verdict({"warnings": (remark,)}) == "caution: a doubt: a remedy"


def test_an_estimate_says_itself_and_keeps_its_verdict():
    one = Estimate(0.1, 0.05, 0.2, 0.95, "gamma", 12_000, 3456.7)
    assert str(one) == "estimate: 0.1 (95 % interval 0.05 to 0.2; 12,000 rows, effective 3,457). Trust"
    assert one.with_findings(()) is one
    doubted = replace(one, estimator="ips").with_findings(iter([Finding("x", 1.0, 0.0, "why", "what")]))
    assert (doubted.trusted, one.trusted) == (False, True)
    assert str(doubted).startswith("ips: 0.1 ")
    assert str(doubted).endswith(". Caution: why: what")
    assert Verdict("caution") == "caution"
    assert Verdict.of([Finding("x", 0.5, 0.0), Finding("y", 1.5, 0.0)]).severity == 1.5
    assert TRUST.meets("trust")
    with pytest.raises(UserError, match="no verdict 'good'"):
        Verdict("good")
