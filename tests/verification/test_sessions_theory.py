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


def test_clicks_have_the_stated_probability():
    world = SessionsWorld(SessionsParams(n_items=20))
    log = simulate(world, uniform(20), 20_000, 3, keep_truth=True)
    shown = log.is_bandit
    probability, clicks = log["click_probability"][shown], log["reward"][shown]
    assert ((probability > 0.00448) & (probability < 0.02932)).all()
    for low, high in ((0, 0.007), (0.007, 0.01), (0.01, 0.015), (0.015, 1)):
        here = (probability > low) & (probability <= high)
        error = math.sqrt(float((probability[here] * (1 - probability[here])).sum()))
        assert abs(clicks[here].sum() - probability[here].sum()) < 4.5 * error


def test_published_values_of_the_click_curve():
    world = SessionsWorld(SessionsParams(n_items=1, n_factors=1))
    world.catalogue.click_factors[:] = 1.0
    world.catalogue.click_offsets[:] = 0.0
    got = world.click_probabilities(np.array([[-5.0], [0.0], [5.0]]))[:, 0]
    np.testing.assert_allclose(got, [0.005572, 0.009422, 0.018871], atol=5e-7)


@pytest.mark.parametrize(("mean", "sd"), [(0.0, 1.0), (1.0, 0.5)])
def test_the_normal_clock_moves_by_the_folded_normal(mean, sd):
    from scipy.stats import foldnorm

    world = SessionsWorld(SessionsParams(clock="normal", clock_mean=mean, clock_sd=sd))
    log = simulate(world, uniform(10), 500, 3)
    same = log["user"][1:] == log["user"][:-1]
    steps = np.diff(log["time"])[same]
    law = foldnorm(mean / sd, scale=sd)
    assert abs(steps.mean() - law.mean()) < 4.5 * law.std() / math.sqrt(len(steps))
    from scipy.stats import kstest

    assert kstest(steps[:20_000], law.cdf).pvalue > 1e-4
    unit = simulate(SessionsWorld(SessionsParams()), uniform(10), 50, 3)
    np.testing.assert_array_equal(unit["time"], unit["step"])


def test_interests_drift_when_browsing_follows_and_only_then():
    """Mean square change of interests between two decisions: none within a session, sigma^2 a view across one."""
    n, sigma = 20_000, 0.3
    world = SessionsWorld(SessionsParams(n_items=5, sigma_omega=sigma))
    lanes = world.open_lanes(n)
    which = np.arange(n)
    moment = lanes.begin(which, np.full(n, 1, np.uint64), which.copy())
    which = which[moment.alive]
    before = lanes.state[which].copy()
    moment = lanes.take(which, np.zeros(len(which), np.int32), np.ones(len(which)))
    views = np.diff(moment.starts) - 1
    change = ((lanes.state[which] - before) ** 2).mean(axis=1)
    clicked = moment.columns["reward"][moment.starts[:-1]] == 1
    assert (change[moment.alive & (views == 0)] == 0).all()
    # Not clicked: organic was drawn, so every view but none of the leaving steps brings a drift.
    returned = moment.alive & (views > 0) & ~clicked
    for k in (1, 2, 3):
        squares = change[returned & (views == k)]
        assert abs(squares.mean() - k * sigma**2) < 4.5 * squares.std() / math.sqrt(len(squares))
    # Clicked: a forced return drifts only where organic was drawn anyway.
    forced = change[moment.alive & clicked & (views == 1)]
    assert (forced == 0).mean() > 0.5
