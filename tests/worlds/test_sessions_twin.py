"""The kernel of the sessions world against its naive twin, event by event."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from recsim_mnar.log import schema
from recsim_mnar.simulation import simulate_shard
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from recsim_mnar.worlds.sessions import lanes as sessions_lanes
from recsim_mnar.worlds.sessions import world as sessions
from recsim_mnar.worlds.sessions.views import ViewSampler
from toys import refused
from twins import sessions as twin
from twins.cases import quick_first
from twins.policies import MostViewed, Uniform

CASES = {
    "recogym": SessionsParams(),
    "flips": SessionsParams(n_items=60, n_flips=30, sigma_mu_organic=0.1, catalogue_seed=5),
    "clock": SessionsParams(n_items=20, n_flips=7, clock="normal", drift_in_bandit=True, sigma_omega=0.3),
    "many factors": SessionsParams(n_items=70, n_factors=13, normalize_beta=True, clock="normal", clock_mean=2.0),
    "no repeats": SessionsParams(n_items=30, n_factors=6, no_repeats=True, n_flips=4, sigma_mu_organic=1.0),
    # What is left weighs next to nothing against what was seen: float32 would lose it.
    "no repeats, far apart": SessionsParams(n_items=40, no_repeats=True, sigma_mu_organic=40.0, p_leave_organic=0.002),
    "logistic": SessionsParams(n_items=12, click_link="logistic", clock="normal", no_repeats=True, n_flips=6),
    **{name: SessionsParams(**effect) for name, effect in twin.EFFECTS.items()},
    "calendar, all arrive": SessionsParams(n_items=8, calendar=150.0, arriving=0.999, trend=1.0, clock="normal"),
    "all of them": SessionsParams(
        n_items=16,
        n_flips=4,
        drift_in_bandit=True,
        fatigue=0.4,
        fatigue_spread=0.2,
        fatigue_of_views=1.0,
        retention=0.8,
        influence=0.2,
        calendar=500.0,
        arriving=0.3,
        ageing=1.0,
        trend=1.0,
        clock="normal",
        clock_mean=1.0,
    ),
    "fatigue, no repeats": SessionsParams(n_items=30, fatigue=1.0, no_repeats=True, retention=0.5),
    "leaving": SessionsParams(n_items=7, n_factors=3, p_leave_organic=0.1, p_leave_bandit=0.002, n_flips=2),
}

RARELY = ["fatigue, no repeats"]
"""Compiled for itself."""


def rows_of_twin(params, seed, users, act):
    catalogue = twin.catalogue(params)
    return [row for user in users for row in twin.life(params, catalogue, seed, user, act)]


OFTEN = [name for name in CASES if name not in RARELY]
ALL = OFTEN + [pytest.param(name, marks=pytest.mark.slow) for name in RARELY]


@pytest.mark.parametrize("case", ALL)
@pytest.mark.parametrize("policy", ["uniform", "most viewed"])
def test_every_event_agrees(case, policy):
    params = CASES[case]
    world = SessionsWorld(params)
    if policy == "uniform":
        ours, act = Uniform(params.n_items), twin.uniform_policy(params.n_items)
    else:
        ours, act = MostViewed(params.n_items), twin.popular_item_policy
    columns = simulate_shard(world, ours, 11, 3, 12, keep_truth=True)
    expected = rows_of_twin(params, 11, range(3, 15), act)
    assert len(columns["user"]) == len(expected) > 100
    assert columns["user"].tolist() == [row.user for row in expected]
    assert columns["step"].tolist() == [row.step for row in expected]
    assert [schema.EVENTS[code] for code in columns["event"]] == [row.event for row in expected]
    for name in ("item", "action"):
        assert columns[name].tolist() == [getattr(row, name) for row in expected]
    for name in ("time", "propensity", "reward", "click_probability"):
        values = [getattr(row, name) for row in expected]
        np.testing.assert_allclose(columns[name], np.array(values, float), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", ALL)
def test_decisions_passed_over_are_those_of_the_twin_and_of_take(case):
    """Passing over leaves the lanes as recommending did, item after item, and earned and showed nothing."""
    params, n = CASES[case], 40
    world = SessionsWorld(params)
    ahead, behind = world.open_lanes(n), world.open_lanes(n)
    users = np.arange(n)
    for lanes in (ahead, behind):
        transition = lanes.begin(users, np.full(n, 11, np.uint64), users)
    which = np.flatnonzero(transition.alive)
    for _ in range(sessions_lanes._UNFORESEEN):  # the first calls foresee nothing, for which no kernel is needed
        assert not ahead.skip_uneventful(which).any()
    passed = ahead.skip_uneventful(which)
    foreseen = params.clock == "unit" and not params.drift_in_bandit and not params.changes
    assert passed.tolist() == [
        twin.uneventful(params, 11, user, 0, sessions_lanes._FORESEEN) if foreseen else 0 for user in which
    ]
    for k in range(passed.max()):
        some = which[passed > k]
        transition = behind.take(some, np.full(len(some), k % params.n_items, np.int32), np.ones(len(some)))
        assert transition.alive.all()
        assert len(transition.columns["event"]) == len(some)
        assert not transition.columns["reward"].any()
    for name in ("user", "step", "time", "n_decisions", "state"):
        np.testing.assert_array_equal(getattr(ahead, name)[which], getattr(behind, name)[which])
    after = [lanes.take(which, np.zeros(len(which), np.int32), np.ones(len(which))) for lanes in (ahead, behind)]
    for name, column in after[0].columns.items():
        np.testing.assert_array_equal(column, after[1].columns[name])


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in OFTEN if CASES[name].changes])
def test_what_lanes_say_of_expected_rewards_is_what_is_drawn_from(case):
    """In the state before each decision; a copy of the lanes goes on with the same bytes."""
    params, n = CASES[case], 60
    world = SessionsWorld(params)
    lanes = world.open_lanes(n, keep_truth=True)
    which = np.arange(n)
    transition = lanes.begin(which, np.full(n, 7, np.uint64), which.copy())
    for number in range(12):
        which = which[transition.alive]
        means = world.reward_means(lanes.state[which])
        assert np.all((means >= 0.0) & (means <= 1.0))
        actions = ((which + number // 2) % params.n_items).astype(np.int32)
        again = pickle.loads(pickle.dumps(lanes))
        transition = lanes.take(which, actions, np.ones(len(which)))
        shown = transition.columns["click_probability"][transition.starts[:-1]]
        np.testing.assert_allclose(shown, means[np.arange(len(which)), actions], rtol=1e-13)
        np.testing.assert_array_equal(shown, again.take(which, actions, np.ones(len(which))).columns[
            "click_probability"][transition.starts[:-1]])  # fmt: skip


def test_a_moment_of_some_lanes():
    world = SessionsWorld(CASES["leaving"])
    users = np.arange(30)
    transition = world.open_lanes(30).begin(users, np.full(30, 2, np.uint64), users)
    assert 0 < transition.alive.sum() < 30
    some = transition.of(transition.alive)
    assert some.alive.all()
    for j, whole in enumerate(np.flatnonzero(transition.alive)):
        rows, expected = slice(*some.starts[j : j + 2]), slice(*transition.starts[whole : whole + 2])
        for name, column in some.columns.items():
            np.testing.assert_array_equal(column[rows], transition.columns[name][expected])


def test_catalogue_agrees():
    for params in CASES.values():
        ours = SessionsWorld(params).catalogue
        for mine, theirs in zip(ours.arrays().values(), twin.catalogue(params), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("n_items", "n_factors", "sampler"),
    quick_first(
        [
            (60, 80, ViewSampler(0)),
            (50, 5, ViewSampler(32, 5.0)),
            (50, 5, ViewSampler(32, 0.4)),
            (114, 5, ViewSampler(32, waste=50.0, hot=64, warm=50)),
            (114, 7, ViewSampler(32, waste=0.3, hot=64, warm=50)),
            (150, 5, ViewSampler(32, waste=50.0, hot=16, warm=64, cold=32, cold_boxes=16)),
            (150, 5, ViewSampler(32, waste=0.3, hot=16, warm=64, cold=32, cold_boxes=16)),
        ],
    ),
)
def test_samplers_have_the_softmax_law(monkeypatch, n_items, n_factors, sampler):
    """Views drawn from earlier weights, or where the bound on the largest logit is of no use (80 factors), against the
    exact softmax of the same interests, which lanes show us.
    """
    from scipy import stats

    monkeypatch.setattr(sessions, "view_sampler", lambda *_: sampler)
    params = SessionsParams(
        n_items=n_items,
        n_factors=n_factors,
        sigma_mu_organic=1.0,
        sigma_omega=0.5,
        p_organic_to_bandit=0.5,
        p_leave_bandit=0.0,
    )
    params = SessionsParams.from_dict({**params.to_dict(), "p_bandit_to_organic": 0.999})
    world = SessionsWorld(params)
    n = 4000
    lanes = world.open_lanes(n)
    which = np.arange(n)
    transition = lanes.begin(which, np.full(n, 5, np.uint64), which.copy())
    observed, expected = np.zeros(n_items), np.zeros(n_items)
    for _ in range(6):
        alive = np.flatnonzero(transition.alive)
        which = which[alive]
        before = lanes.state[which].copy()
        transition = lanes.take(which, np.zeros(len(which), np.int32), np.ones(len(which)))
        counts = np.diff(transition.starts)
        # Exactly one view followed, so the interests that made it are those that stand now.
        single = np.flatnonzero((counts == 2) & transition.alive)
        items = transition.columns["item"][transition.starts[:-1][single] + 1]
        observed += np.bincount(items, minlength=n_items)
        expected += world.view_probabilities(lanes.state[which[single]]).sum(axis=0)
        assert np.abs(before - lanes.state[which]).max() > 0
    keep = expected > 5
    statistic = ((observed - expected) ** 2 / expected)[keep].sum()
    assert observed.sum() > 5000
    # Given the interests, the draws are independent: the sum is at most chi-square in the number of cells.
    assert stats.chi2.sf(statistic, keep.sum()) > 1e-3


@pytest.mark.parametrize(
    "params",
    quick_first(
        {
            "300 factors": SessionsParams(n_factors=300, sigma_omega=0.0),
            "strong interests": SessionsParams(sigma_omega_initial=40.0, sigma_omega=0.0),
            "tiers": SessionsParams(n_items=1000, sigma_omega_initial=15.0, sigma_omega=0.0),
            "boxes": SessionsParams(n_items=1000, sigma_omega_initial=15.0, sigma_omega=0.0, sigma_mu_organic=0.1),
        },
        quick=3,
    ),
)
def test_views_are_likely_ones_however_large_the_logits(params):
    """The bound that stands in for the largest logit may be 100 above it, where float32 weights would vanish."""
    world = SessionsWorld(params)
    n = 200
    lanes = world.open_lanes(n)
    which = np.arange(n)
    transition = lanes.begin(which, np.full(n, 5, np.uint64), which.copy())
    probability = world.view_probabilities(lanes.state)
    views = transition.columns["event"] == 0
    seen = probability[transition.columns["user"][views], transition.columns["item"][views]]
    assert seen.min() > 1e-7


def test_a_fixed_distribution_is_checked_and_its_last_item_is_the_last_with_a_chance():
    class Fixed(Uniform):
        def fixed_distribution(self):
            return self.probability

    world = SessionsWorld(SessionsParams())
    policy = Fixed(10)
    policy.probability = np.append(np.full(3, 1 / 3), np.zeros(7))
    columns = simulate_shard(world, policy, 1, 0, 50)
    assert set(columns["action"][columns["event"] == 1]) == {0, 1, 2}
    assert (columns["propensity"][columns["event"] == 1] == 1 / 3).all()
    for wrong in (np.full(10, 0.08), np.full(20, 0.05), np.full(10, np.nan), np.append(-0.1, np.full(9, 1.1 / 9))):
        policy.probability = wrong
        with refused("probabilities"):
            simulate_shard(world, policy, 1, 0, 5)
