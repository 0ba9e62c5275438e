"""Uniform rankings in whole lives: decisions drawn ahead, and shown in runs where nothing can come of them."""

import numpy as np
import pytest

from recsim_mnar.envs import record, sessions_env
from recsim_mnar.log import Log, schema
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.cases import quick_first

WORLDS = {
    "position": {},
    "cascade": {"user_model": "cascade"},
    "one click": {"clicks": "one"},
    "all may be clicked": {"click_link": "logistic", "user_model": "independent"},
    "normal clock": {"clock": "normal", "clock_mean": 1.0},
    "no repeats": {"no_repeats": True},
}
ITEMS, USERS = 24, 25


def world_of(size, **changes):
    return SessionsWorld(SessionsParams(n_items=ITEMS, slate_size=size, **changes))


def uniform():
    return registry.learner("random").fit(Log({}), n_items=ITEMS)


def same(columns, others):
    for name, values in columns.items():
        np.testing.assert_array_equal(values, others[name], err_msg=name)


@pytest.mark.parametrize("size", [2, 7, ITEMS])
@pytest.mark.parametrize("changes", quick_first(WORLDS, 5))
def test_runs_of_slates_are_those_that_are_asked_for_one_by_one(changes, size):
    """Where the truth is kept every slate is read."""
    world = world_of(size, **changes)
    log = simulate(world, uniform(), USERS, 5)
    one_by_one = simulate(world, uniform(), USERS, 5, keep_truth=True)
    assert int(log["slate"].max()) > 32, "decisions are drawn ahead by 16"
    same(log.columns, one_by_one.columns)


@pytest.mark.parametrize("size", [6, 7])
def test_lives_are_those_of_the_environment(size):
    """Uniforms come two from a block: sizes of both kinds. A set's probability is an integral there, to rounding."""
    made = dict(simulate(world_of(size), uniform(), 8, 5).columns)
    recorded = record(sessions_env(world=world_of(size)), uniform(), 8, 5)
    np.testing.assert_allclose(made.pop("set_propensity"), recorded["set_propensity"], rtol=1e-12)
    same(made, recorded)


def test_where_rows_run_out_a_life_is_begun_again():
    world = world_of(7)
    tight = world.open_lanes(1).uniform_lives(5, 0, USERS, slates_a_user=0.0, views_a_user=0.0)
    assert len(tight["user"]) > 4 * 1024, "more than there was room for at first"
    same(tight, simulate(world, uniform(), USERS, 5).columns)


def test_columns_of_rankings_say_what_is_shown():
    """Every slate has distinct items, its probabilities, and their product in order."""
    size = 5
    log = simulate(world_of(size), uniform(), USERS, 5)
    shown = {name: log[name][log.is_bandit].reshape(-1, size) for name in ("action", "step", *schema.OF_RANKINGS)}
    assert (np.diff(np.sort(shown["action"], axis=1), axis=1) > 0).all()
    assert (np.diff(shown["step"], axis=1) == 1).all()
    np.testing.assert_array_equal(shown["position"], np.broadcast_to(np.arange(size), shown["position"].shape))
    left = np.broadcast_to(ITEMS - np.arange(size), shown["action"].shape)
    np.testing.assert_allclose(shown["conditional_propensity"], 1.0 / left, rtol=1e-15)
    np.testing.assert_allclose(shown["slate_propensity"], 1.0 / left.prod(axis=1, keepdims=True) * np.ones(size))
    np.testing.assert_allclose(shown["set_propensity"], 120.0 * shown["slate_propensity"], rtol=1e-14)
