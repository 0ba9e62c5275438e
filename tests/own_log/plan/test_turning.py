"""plan_estimate: logs made of a pilot's users, the rows at which they are trusted, and what never turns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsim_mnar import plan_estimate
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.off_policy.from_moments import estimate_from_moments
from recsim_mnar.estimators.off_policy.moments import Moments, Shards
from recsim_mnar.log.columns import Clusters
from recsim_mnar.own_log.plan.turning import LEAST, MOST, PARTS, dealt, from_then_on, poisson
from twins.plan_log import made

STATED = {"full_support": True, "propensity_min": 1.0 / 3.0, "reward_max": 1.0}


def moments(log, rows=slice(None), clip=2.0):
    return Moments.of(
        log["reward"][rows], log["propensity"][rows], log["left"][rows], clip=clip, cluster=log["user"][rows]
    )


def shards(log):
    parts = dealt(len(log["user"]), Clusters.of(log["user"], len(log["user"])))
    return parts, Shards([moments(log, rows) for rows in parts])


@pytest.mark.parametrize("estimator", ["ips", "clipped_ips", "snips"])
def test_parts_met_are_the_moments_of_their_users_repeated(estimator):
    log = made(900, 1)
    parts, found = shards(log)
    times = np.random.default_rng(3).integers(0, 4, len(parts))
    met = [(part, copy) for part, often in zip(parts, times, strict=True) for copy in range(often)]
    rows = np.concatenate([part for part, _ in met])
    copies = np.concatenate([np.full(len(part), copy) for part, copy in met])
    again = {name: values[rows] for name, values in log.items()}
    again["user"] = again["user"] + 10_000 * copies
    plain = estimate_from_moments(moments(again), estimator)
    drawn = estimate_from_moments(found.met(times.astype(float)), estimator)
    for name in ("value", "low", "high", "n", "ess"):
        assert getattr(drawn, name) == pytest.approx(getattr(plain, name), rel=1e-9)
    same = {f.code: f.severity for f in plain.verdict.findings}
    assert {f.code: f.severity for f in drawn.verdict.findings} == pytest.approx(same, rel=1e-9)


def test_users_are_dealt_whole_and_evenly():
    log = made(900, 1)
    parts, _ = shards(log)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(log["user"])))
    users = [set(log["user"][part].tolist()) for part in parts]
    assert sum(map(len, users)) == 900
    assert {len(each) for each in users} == {2, 3}
    assert len(dealt(50, None)) == 50
    assert len(dealt(5000, None)) == PARTS


@pytest.mark.parametrize("mean", [0.1, 1.0, 30.0, MOST])
def test_poisson_numbers_by_inversion(mean):
    uniform = (np.arange(20_000) + 0.5) / 20_000
    found = poisson(mean, uniform)
    assert found.mean() == pytest.approx(mean, rel=1e-3)
    assert found.var() == pytest.approx(mean, rel=5e-3)
    assert np.all(poisson(1.1 * mean, uniform) >= found)


def test_the_size_from_which_on_something_holds():
    assert from_then_on(lambda size: size >= 3.7) == pytest.approx(3.7, rel=0.021)
    assert from_then_on(lambda size: size >= 20.0 or 0.9 < size < 1.1) == pytest.approx(20.0, rel=0.021)
    assert from_then_on(lambda size: size < 100.0) == math.inf
    assert from_then_on(lambda size: True) == LEAST


def of_columns(log, name):
    return estimate_value(log["reward"], log["propensity"], log[name], cluster=log["user"], estimator="ips", **STATED)


def share_trusted(rows, logs=100):
    found = 0
    for seed in range(logs):
        log = made(round(rows / 2), 100 + seed, rows=2)
        found += of_columns(log, "left").verdict.level == "trust"
    return found / logs


def test_the_share_of_fresh_logs_that_is_planned_is_trusted():
    """A pilot of seven times the rows knows them to 10 %, and 100 logs a share to .05."""
    pilot = made(1500, 4, rows=2)
    half, most = (plan_estimate(pilot, "left", trusted=share, **STATED).trust for share in (0.5, 0.8))
    assert half < most
    assert 0.25 < share_trusted(half) < 0.75
    assert 0.6 < share_trusted(most) < 0.97
    assert share_trusted(half / 2) < 0.1
    assert share_trusted(2 * most) > 0.95


def test_a_longer_pilot_leaves_less_open():
    opens = []
    for users in (150, 5000):
        low, high = plan_estimate(made(users, 4, rows=1), "left", **STATED).trust_range
        opens.append(high / low)
    assert opens[1] < 0.6 * opens[0]


def test_width_ahead_comes_true():
    plan = plan_estimate(made(3000, 3), "right", rows=40_000, **STATED)
    assert plan.ahead is not None
    widths = []
    for seed in range(7):
        log = made(10_000, 60 + seed)
        found = of_columns(log, "right")
        widths.append((found.high - found.low) / 2.0)
    assert np.median(widths) == pytest.approx(plan.ahead["half_width"], rel=0.1)
    assert plan.ahead["verdict"] == "trust"
    assert plan.ahead["trusted"] > 0.9  # support that is stated is doubted in one true log of forty


def test_users_below_the_least_turn_at_it():
    plan = plan_estimate(made(50, 1), "right", **STATED)
    assert {turn.code: turn for turn in plan.turns}["few_users"].clears == pytest.approx(400, rel=0.02)
    assert plan.trust is None or plan.trust >= 396


def test_what_never_turns():
    """Missing mass, propensities that are not those, support that is not stated: more rows only prove them."""
    missing = made(3000, 1, np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]))
    wrong = made(3000, 1)
    wrong["propensity"] = wrong["propensity"] * 0.8
    for log, stated, code in (
        (missing, {}, "support_missing"),
        (wrong, {"full_support": True}, "propensities"),
        (made(3000, 1), {}, "support_unstated"),
    ):
        plan = plan_estimate(log, "right", **stated)
        assert code in plan.never
        assert plan.trust is None
        assert plan.says
        assert plan.to_dict()["never"] == list(plan.never)


def test_nothing_seen_is_never_mended_by_repeating_it():
    log = made(300, 1)
    log["reward"] = np.zeros_like(log["reward"])
    plan = plan_estimate(log, "right", **STATED)
    assert "no_reward" in plan.never
    assert plan.caution is None


def test_a_pilot_with_hardly_a_reward_does_not_say():
    log = made(300, 1)
    rewarded = np.flatnonzero(log["reward"] * log["left"])
    log["reward"][:] = 0.0
    log["reward"][rewarded[:2]] = 1.0
    plan = plan_estimate(log, "left", **STATED)
    low, high = plan.trust_range
    assert not plan.says
    assert plan.trust is None
    assert low is None or high is None or high > 10 * low


def test_chance_is_not_taken_for_a_trend():
    """Where a mean weight is off by no more than chance, no finding of support or propensities comes up later."""
    for seed in range(3):
        plan = plan_estimate(made(500, 20 + seed), "right", **STATED)
        assert plan.trust is not None
        assert plan.trust_range[0] <= plan.trust <= plan.trust_range[1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "nope"}, "no column 'nope'"),
        ({"estimator": "dr"}, "no plan for the estimator"),
        ({"estimator": "ipz"}, "ipz"),
        ({"clip": -1.0}, "clip must be"),
        ({"level": 2.0}, "level must be"),
        ({"trusted": 1.0}, "trusted must be"),
        ({"unsupported": "gone"}, "no column 'gone'"),
        ({"rows": 0}, "rows must be"),
        ({"nothing": 1}, "no parameter 'nothing'"),
    ],
)
def test_bad_input_is_one_line(given, said):
    with pytest.raises(UserError, match=said) as caught:
        plan_estimate(made(100, 1), **{"target": "right", **given})
    assert "\n" not in str(caught.value)
