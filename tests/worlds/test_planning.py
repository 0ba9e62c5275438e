"""Where what is shown matters later, thinking of later pays: who plans earns more than who takes the most at once."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.oracle import Oracle, Planner
from recsim_mnar.worlds import make_world
from toys import refused
from twins.cases import quick_first

FATIGUE = {"n_items": 50, "fatigue": 0.5, "fatigue_spread": 0.25, "fatigue_memory": 0.9}
RETENTION = {"n_items": 50, "n_flips": 25, "retention": 1.75, "retention_memory": 0.9}


def earned(world, policy, n_users, seed=5):
    """(n_users,) expected clicks of each user's life."""
    log = simulate(world, policy, n_users, seed, keep_truth=True)
    shown = log.is_bandit
    return np.bincount(log["user"][shown], log["click_probability"][shown], minlength=n_users)


def ratio(world, better, worse, n_users):
    """Mean earnings of one policy over the other's, and the lower end of its interval; the same users, in pairs."""
    a, b = (earned(world, policy, n_users) for policy in (better, worse))
    value = a.mean() / b.mean()
    error = np.std(a - value * b, ddof=1) / math.sqrt(n_users) / b.mean()
    return value, value - 1.96 * error


@pytest.mark.slow
@pytest.mark.verify
@pytest.mark.parametrize("settings", [FATIGUE, RETENTION], ids=["fatigue", "retention"])
def test_a_planner_of_observations_beats_the_oracle_that_looks_no_further(settings):
    """By a tenth and more, its interval included, though the oracle knows each state and the planner none."""
    world = make_world("sessions", **settings)
    value, low = ratio(world, Planner(world), Oracle(world), 300)
    assert value > low > 1.10
    assert ratio(world, Planner(world), Planner(world, myopic=True), 150)[1] > 1.10
    assert ratio(world, Oracle(world, plans=True), Planner(world), 150)[1] > 1.0


@pytest.mark.slow
@pytest.mark.verify
@pytest.mark.parametrize("settings", [FATIGUE, RETENTION], ids=["fatigue", "retention"])
def test_click_rates_and_lengths_are_those_of_the_world_without(settings):
    """Under the uniform policy: within a fifth."""
    plain = make_world("sessions", n_items=50, n_flips=settings.get("n_flips", 0))
    found = []
    for world in (plain, make_world("sessions", **settings)):
        log = simulate(world, registry.uniform_policy(50), 3000, 1, keep_truth=True)
        shown = log.is_bandit
        found.append((shown.sum() / 3000, log["click_probability"][shown].mean()))
    assert np.all(np.abs(np.array(found[1]) / np.array(found[0]) - 1.0) < 0.2)


def test_without_switches_planning_and_looking_no_further_are_the_same():
    world = make_world("sessions", n_items=20)
    assert (
        simulate(world, Oracle(world), 30, 1)["action"].tolist()
        == simulate(world, Oracle(world, plans=True), 30, 1)["action"].tolist()
    )
    with refused("without a calendar"):
        Planner(make_world("sessions", calendar=100.0))


@pytest.mark.parametrize("settings", quick_first([FATIGUE, {**RETENTION, "influence": 0.3}]))
def test_a_planners_log_replays_to_its_propensities(settings):
    """It knows no more than a log holds."""
    world = make_world("sessions", **settings)
    log = simulate(world, Planner(world), 12, 3)
    replayed = replay(log, Planner(world))
    np.testing.assert_allclose(replayed[log.is_bandit], log["propensity"][log.is_bandit], atol=1e-12)
