"""The sessions world against what can be derived: session lengths, events a user, clicks, clock, drift."""

from __future__ import annotations

import math

import numpy as np
import pytest

from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import untrained
from twins import sessions as twin

pytestmark = pytest.mark.verify

WORLDS = {
    "default": SessionsParams(),
    "leaves": SessionsParams(p_leave_organic=0.03, p_leave_bandit=0.005, p_bandit_to_organic=0.1, n_items=30),
    "large": SessionsParams(n_items=1500, clock="normal"),
}


def uniform(n_items):
    return untrained("random", n_items)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_events_a_user_are_the_analytic_ones(name):
    params = WORLDS[name]
    world = SessionsWorld(params)
    n = 20_000 if params.n_items < 1000 else 2_000
    log = simulate(world, uniform(params.n_items), n, 3)
    shown = log.is_bandit
    rate = float(log["reward"][shown].mean())
    assert world.expected_events(rate) == pytest.approx(twin.expected_counts(params, rate), rel=1e-12)
    for rows, expected in zip((~shown, shown), world.expected_events(rate), strict=True):
        counts = np.bincount(log["user"][rows], minlength=n)
        assert abs(counts.mean() - expected) < 4.5 * counts.std() / math.sqrt(n)
    never = 1 - len(np.unique(log["user"][shown])) / n
    probability = params.p_leave_organic / (params.p_leave_organic + params.p_organic_to_bandit)
    assert abs(never - probability) < 4.5 * math.sqrt(probability * (1 - probability) / n)


def test_published_values_of_the_click_curve():
    world = SessionsWorld(SessionsParams(n_items=1, n_factors=1))
    world.catalogue.click_factors[:] = 1.0
    world.catalogue.click_offsets[:] = 0.0
    got = world.click_probabilities(np.array([[-5.0], [0.0], [5.0]]))[:, 0]
    np.testing.assert_allclose(got, [0.005572, 0.009422, 0.018871], atol=5e-7)
