"""plan_estimate: what a log repeated gives, what logs of that size then say, and what never turns."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar import estimate_value, plan_estimate
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.from_moments import estimate_from_moments
from recsim_mnar.estimators.off_policy.moments import Moments
from twins.plan_log import made


def repeated(log, times):
    """The same users again, under other names."""
    rows = len(log["user"])
    again = {name: np.tile(values, times) for name, values in log.items()}
    again["user"] = again["user"] + np.repeat(np.arange(times), rows) * (log["user"].max() + 1)
    return again


@pytest.mark.parametrize("estimator", ["ips", "clipped_ips", "snips"])
def test_scaled_moments_are_those_of_the_log_repeated(estimator):
    log = made(200, 1)

    def moments(of):
        return Moments.of(of["reward"], of["propensity"], of["left"], clip=2.0, cluster=of["user"])

    scaled = estimate_from_moments(moments(log).scaled(5.0), estimator)
    plain = estimate_from_moments(moments(repeated(log, 5)), estimator)
    for name in ("value", "low", "high", "n", "ess"):
        assert getattr(scaled, name) == pytest.approx(getattr(plain, name), rel=1e-9)
    assert scaled.verdict.level == plain.verdict.level
    with pytest.raises(UserError, match="factor"):
        moments(log).scaled(0.0)


def test_the_verdict_turns_where_it_was_planned():
    """Logs of twice the planned rows are trusted, of half of them not."""
    plan = plan_estimate(made(110, 4, rows=2), "left", estimator="ips", full_support=True)
    assert plan.verdict != "trust"
    assert plan.trust is not None
    trusted = {}
    for factor in (0.4, 2.5):
        levels = []
        for seed in range(20):
            log = made(max(round(plan.trust * factor / 2), 2), 100 + seed, rows=2)
            found = estimate_value(
                log["reward"], log["propensity"], log["left"], cluster=log["user"], estimator="ips", full_support=True
            )
            levels.append(found.verdict.level == "trust")
        trusted[factor] = np.mean(levels)
    assert trusted[0.4] < 0.3
    assert trusted[2.5] > 0.7


def test_width_ahead_comes_true():
    plan = plan_estimate(made(3000, 3), "right", estimator="ips", rows=40_000, full_support=True)
    assert plan.ahead is not None
    widths = []
    for seed in range(7):
        log = made(10_000, 60 + seed)
        found = estimate_value(
            log["reward"], log["propensity"], log["right"], cluster=log["user"], estimator="ips", full_support=True
        )
        widths.append((found.high - found.low) / 2.0)
    assert np.median(widths) == pytest.approx(plan.ahead["half_width"], rel=0.1)
    assert plan.ahead["verdict"] == "trust"


def test_users_below_the_least_turn_at_it():
    plan = plan_estimate(made(50, 1), "right", estimator="ips", full_support=True)
    turns = {turn.code: turn for turn in plan.turns}
    assert turns["few_users"].clears == pytest.approx(400, abs=8)
    assert plan.trust is None or plan.trust >= turns["few_users"].clears


def test_what_never_turns():
    """Missing mass and propensities that are not those: more rows only prove them."""
    missing = made(3000, 1, np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]))
    plan = plan_estimate(missing, "right", estimator="ips")
    turns = {turn.code: turn for turn in plan.turns}
    assert turns["support_missing"].clears is None
    assert plan.trust is None
    wrong = made(3000, 1)
    wrong["propensity"] = wrong["propensity"] * 0.8
    plan = plan_estimate(wrong, "right", estimator="ips", full_support=True)
    assert {turn.code: turn for turn in plan.turns}["propensities"].clears is None
    unstated = plan_estimate(made(3000, 1), "right", estimator="ips")
    assert {turn.code: turn for turn in unstated.turns}["support_unstated"].clears is None
    assert unstated.trust is None
    assert unstated.verdict == "caution"


def test_nothing_seen_is_never_mended_by_repeating_it():
    log = made(300, 1)
    log["reward"] = np.zeros_like(log["reward"])
    plan = plan_estimate(log, "right", estimator="ips", full_support=True)
    assert {turn.code for turn in plan.turns} >= {"no_reward"}
    assert plan.caution is None


def test_chance_is_not_taken_for_a_trend():
    """Where a mean weight is off by no more than chance, no finding of support or propensities comes up later."""
    for seed in range(6):
        plan = plan_estimate(made(500, 20 + seed), "right", estimator="ips", full_support=True)
        if plan.verdict == "trust" or not {turn.code for turn in plan.turns} & {"propensities", "support_missing"}:
            assert plan.trust is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "nope"}, "no column 'nope'"),
        ({"estimator": "dr"}, "no plan for the estimator"),
        ({"estimator": "ipz"}, "ipz"),
        ({"clip": -1.0}, "clip must be"),
        ({"level": 2.0}, "level must lie"),
        ({"unsupported": "gone"}, "no column 'gone'"),
        ({"rows": 0}, "rows must be"),
        ({"nothing": 1}, "no parameter 'nothing'"),
    ],
)
def test_bad_input_is_one_line(given, said):
    with pytest.raises(UserError, match=said) as caught:
        plan_estimate(made(100, 1), **{"target": "right", **given})
    assert "\n" not in str(caught.value)
