"""plan_logging: prices against their definition, widths that come true, and the policy that is written."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recsim_mnar import plan_logging
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.own_log.plan.pilot import Pilot
from recsim_mnar.own_log.plan.pricing import Pricing, user_factors
from twins.plan_log import POLICIES, RATES, made

TARGETS = ["left", "right", "both"]


def mixture(weights):
    """(2, 3) the logging policy of a plan's weights."""
    out = np.zeros((2, 3))
    for name, weight in weights.items():
        out[np.arange(2), list(POLICIES[name])] += weight
    return out


def exact(weights, name):
    """E_x sum_a pi^2 q / pi_0, segments equally frequent."""
    items = list(POLICIES[name])
    return float(np.mean(RATES[np.arange(2), items] / mixture(weights)[np.arange(2), items]))


def test_prices_are_those_of_the_definition():
    """The pilot's sums against the exact ones; some 2,000 rewards a target, 2.5 % a standard error."""
    plan = plan_logging(made(20_000, 1), TARGETS, deployed="today", cost=0.1)
    for target in plan.targets:
        assert target.moment == pytest.approx(exact(plan.weights, target.name), rel=0.1)
        items = list(POLICIES[target.name])
        assert target.value == pytest.approx(RATES[np.arange(2), items].mean(), rel=0.08)


def test_cost_is_the_share_of_decisions_that_differ():
    plan = plan_logging(made(20_000, 1), TARGETS, deployed="today", cost="5%")
    real = 1.0 - mixture(plan.weights)[np.arange(2), list(POLICIES["today"])].mean()
    assert plan.cost == pytest.approx(0.05, rel=1e-3)
    assert plan.cost == pytest.approx(real, rel=0.05)
    assert plan.exploring == int(np.ceil(plan.cost * plan.rows))


def test_no_other_mixture_of_that_cost_is_better():
    """Known truth in place of the pilot: no random mixture has a much smaller largest relative moment."""
    plan = plan_logging(made(20_000, 1), TARGETS, deployed="today", cost=0.1)
    values = {name: RATES[np.arange(2), list(POLICIES[name])].mean() for name in TARGETS}

    def worst(weights):
        return max(exact(weights, name) / values[name] ** 2 for name in TARGETS)

    rng = np.random.default_rng(0)
    for drawn in rng.dirichlet(np.ones(3), 300):
        weights = dict(zip(TARGETS, drawn.tolist(), strict=True)) | {"today": 0.0}
        cost = 1.0 - mixture(weights)[np.arange(2), list(POLICIES["today"])].mean()
        scaled = {name: weight * 0.1 / cost for name, weight in weights.items()} | {"today": 1.0 - 0.1 / cost}
        assert worst(scaled) >= worst(plan.weights) * 0.95


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_widths_come_true(estimator):
    plan = plan_logging(made(8000, 2), TARGETS, deployed="today", cost=0.2, rows=40_000, estimator=estimator)
    for target in plan.targets:
        widths = []
        for seed in range(7):
            log = made(10_000, 50 + seed, mixture(plan.weights))
            columns = log["reward"], log["propensity"], log[target.name]
            found = estimate_value(*columns, cluster=log["user"], estimator=estimator)
            widths.append((found.high - found.low) / 2.0)
        assert np.median(widths) == pytest.approx(target.half_width, rel=0.12)


def test_a_width_is_bought_as_cheaply_as_it_can_be():
    log = made(8000, 2)
    plan = plan_logging(log, TARGETS, deployed="today", width="15%", rows=40_000)
    assert max(target.share for target in plan.targets) == pytest.approx(0.15, rel=5e-3)
    narrower = plan_logging(log, TARGETS, deployed="today", cost=plan.cost, rows=40_000)
    assert max(target.share for target in narrower.targets) == pytest.approx(0.15, rel=2e-2)
    fewest = plan_logging(log, TARGETS, deployed="today", cost=plan.cost, width="15%")
    assert fewest.rows == pytest.approx(40_000, rel=0.05)


def test_exploring_rows_do_not_depend_on_the_share_that_explores():
    """For one candidate that always differs: rows that show it are about q / se^2, at any epsilon."""
    log = made(20_000, 3)
    log["other"] = (log["action"] == 2).astype(float)
    plan, other = (plan_logging(log, ["other"], deployed="today", width="10%", cost=cost) for cost in (0.01, 0.05))
    assert plan.exploring == pytest.approx(other.exploring, rel=0.1)
    value = plan.targets[0].value
    error = plan.targets[0].half_width / 1.96
    assert plan.exploring == pytest.approx(value / error**2, rel=0.1)


def test_uniform_exploration_is_priced_by_the_same_rule():
    plan = plan_logging(made(20_000, 1), ["left"], deployed="today", cost=0.05, actions=3)
    assert plan.uniform is not None
    today, epsilon = list(POLICIES["today"]), plan.uniform["epsilon"]
    share = np.full((2, 3), epsilon / 3.0)
    share[np.arange(2), today] += 1.0 - epsilon
    items = list(POLICIES["left"])
    moment = np.mean(RATES[np.arange(2), items] / share[np.arange(2), items])
    assert moment == pytest.approx(exact(plan.weights, "left"), rel=0.1)
    assert plan.uniform["cost"] == pytest.approx(epsilon * 2.0 / 3.0, rel=0.02)


def test_calibration_makes_mean_weights_one():
    log = made(300, 5)
    weights = np.column_stack([log[name] / log["propensity"] for name in TARGETS])
    pilot = Pilot.of(log, TARGETS)
    factors = user_factors(weights, pilot.clusters)
    sums = np.column_stack([np.bincount(log["user"], each - 1.0) for each in weights.T])
    assert np.abs(sums.mean(axis=0)).max() > 0.01
    assert factors @ sums / 300 == pytest.approx(np.zeros(3), abs=2e-3)


def test_covariance_within_users_is_found():
    """Users whose clicks are one coin: each row's deviation is its user's."""
    rng = np.random.default_rng(0)
    log = made(4000, 6)
    log["reward"] = (rng.random(4000) < 0.3).astype(float)[log["user"]]
    pricing = Pricing.of(Pilot.of(log, ["left", "today"]), ["left"], "today", "ips", 0.95)
    # Three other rows of the user, each of variance .3 * .7.
    assert pricing.targets[0].covariance == pytest.approx(3 * 0.21, rel=0.15)


def test_a_pilot_that_misses_what_a_target_does_prices_it_at_the_mean():
    logging = np.array([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
    log = made(5000, 1, logging)
    plan = plan_logging(log, ["right"], deployed="today", cost=0.1)
    assert plan.targets[0].missing == pytest.approx(0.5, abs=0.03)
    assert any("never shows" in note for note in plan.notes)
    # Half of it is what today's policy does, the other half is shown by the candidate's part alone.
    assert plan.targets[0].moment > 0.5 * log["reward"].mean() / plan.weights["right"]


def test_the_policy_that_is_written(tmp_path):
    plan = plan_logging(made(5000, 1), TARGETS, deployed="today", cost=0.1)
    plan.write(tmp_path / "design.json")
    found = json.loads((tmp_path / "design.json").read_text())
    assert {part["policy"]: part["weight"] for part in found["policies"]} == pytest.approx(plan.weights)
    with pytest.raises(UserError, match=r"ends in \.json"):
        plan.write(tmp_path / "design.txt")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name a width"),
        ({"width": "0%"}, "width is 0"),
        ({"width": "-5%"}, "width must be positive"),
        ({"width": "10%", "rows": 100, "cost": 0.1}, "cannot all be given"),
        ({"cost": "0%"}, "cost must be"),
        ({"cost": "much"}, "cost must be a share"),
        ({"cost": 0.1, "estimator": "dr"}, "no plan for the estimator"),
        ({"cost": 0.1, "deployed": "nope"}, "no column 'nope'"),
        ({"cost": 0.1, "actions": 1}, "actions must be"),
        ({"width": "1%", "rows": 100}, "no mixture of these policies"),
    ],
)
def test_bad_input_is_one_line(given, said):
    with pytest.raises(UserError, match=said) as caught:
        plan_logging(made(500, 1), ["left"], **{"deployed": "today", **given})
    assert "\n" not in str(caught.value)


def test_targets_that_cannot_be_planned():
    log, nothing = made(500, 1), np.zeros(2000)
    for change, targets, said in (
        ({}, ["gone"], "no column 'gone'"),
        ({"never": nothing}, ["never"], "none of the"),
        ({"reward": nothing}, ["left"], "earned nothing"),
        ({}, [], "no target"),
    ):
        with pytest.raises(UserError, match=said):
            plan_logging(log | change, targets, cost=0.1)
    assert any("guess" in note for note in plan_logging(made(60, 1), ["left"], cost=0.1).notes)
