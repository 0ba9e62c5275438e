"""Environments in mid-episode are copied and pickled, and go on with the same bytes."""

from __future__ import annotations

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest

import recsim_mnar  # noqa: F401  # registers the environments
from twins.differences import assert_same, difference

# The sessions world samples views in three ways, each with tables of its own: fresh weights, boxes, tiers; and without
# repeats it remembers what was viewed.
CASES = {
    "sessions": ("Sessions-v0", {}),
    "sessions-boxes": ("Sessions-v0", {"n_items": 450, "sigma_mu_organic": 0.5, "n_flips": 0}),
    "sessions-tiers": ("Sessions-v0", {"n_items": 220, "sigma_mu_organic": 3.0, "n_flips": 0}),
    "sessions-once": ("Sessions-v0", {"n_items": 60, "no_repeats": True}),
    "sessions-last": ("Sessions-v0", {"observation": "last=3"}),
    "sessions-shown": ("Sessions-v0", {"observation": "shown=0.8"}),
    "sessions-dict": ("Sessions-v0", {"observation": "dict"}),
    "sessions-views": ("Sessions-v0", {"info": "views"}),
    "sessions-none": ("Sessions-v0", {"info": "none"}),
    "ratings": ("Ratings-v0", {}),
    "purchases": ("Purchases-v0", {}),
    "features": ("World-v0", {"world": "features"}),
    "world": ("World-v0", {"world": "sessions"}),
}


def walk(env, n=60):
    """What an environment returns in the next steps, with resets of single ones; plain types, infos whole."""
    found = []
    for _ in range(n):
        step = env.step(env.action_space.sample())
        found.append(step)
        if not isinstance(env, gym.vector.VectorEnv) and (step[2] or step[3]):
            found.append(env.reset())
    return found


def midway(name, kind):
    """An environment that has gone some steps into a later episode."""
    spec, keywords = CASES[name]
    if kind == "single":
        env = gym.make(f"recsim_mnar/{spec}", disable_env_checker=True, **keywords)
    else:
        env = gym.make_vec(f"recsim_mnar/{spec}", 5, vectorization_mode="vector_entry_point", **keywords)
    env.action_space.seed(3)
    env.reset(seed=11)
    walk(env, 37)
    return env


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["single", "vector"])
@pytest.mark.parametrize("name", CASES)
def test_a_copy_in_mid_episode_goes_on_as_the_original_does(name, kind):
    env = midway(name, kind)
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    ahead = walk(copies[0])  # it goes first: what it does must not reach the others
    assert_same(walk(env), ahead)
    assert_same(walk(copies[1]), ahead)
    assert difference(walk(env), ahead)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copied_world_keeps_its_tables_where_kernels_read_them_fast(how):
    world = gym.make("recsim_mnar/Sessions-v0", **CASES["sessions-tiers"][1]).unwrapped.world
    tables = world._tables
    again = how(world)._tables
    for name, values in vars(tables).items():
        if isinstance(values, np.ndarray):
            np.testing.assert_array_equal(getattr(again, name), values)
    for name in ("factors", "offsets", "centre"):
        assert getattr(again, name).ctypes.data % 64 == 0
