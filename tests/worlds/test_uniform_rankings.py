"""Uniform rankings: what a log says of them, and the same lives in the environment."""

import numpy as np
import pytest

from recsim_mnar.envs import record, sessions_env
from recsim_mnar.log import Log, schema
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.differences import assert_same

ITEMS, USERS = 24, 25


def world_of(size, **changes):
    return SessionsWorld(SessionsParams(n_items=ITEMS, slate_size=size, **changes))


def uniform():
    return registry.learner("random").fit(Log({}), n_items=ITEMS)


@pytest.mark.parametrize("size", [6, 7])
def test_lives_are_those_of_the_environment(size):
    """Uniforms come two from a block: sizes of both kinds."""
    made = simulate(world_of(size), uniform(), 8, 5).columns
    recorded = record(sessions_env(world=world_of(size)), uniform(), 8, 5)
    assert_same(made, recorded.columns, exact=False)


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
