"""One kernel call per step gives what transitions give, lane by lane; observations that the next step overwrites."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from recsim_mnar.envs import WorldEnv, WorldVectorEnv, world_env, world_vector_env
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.lanes import Lanes, Moves
from recsim_mnar.worlds.ratings import RatingsParams, RatingsWorld
from recsim_mnar.worlds.ratings.world import RatingsLanes
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld, _lanes_kernel
from recsim_mnar.worlds.sessions.lanes import SessionsLanes, new_rows
from twins.cases import quick_first
from twins.differences import assert_same

SHORT = {"n_items": 8, "p_leave_bandit": 0.1, "p_leave_organic": 0.1}
WORLDS = {
    "short": SHORT,
    "many skipped": {"n_items": 6, "p_leave_organic": 0.5, "p_leave_bandit": 0.3},
    "long visits": {"n_items": 5, "p_organic_to_bandit": 0.008, "p_leave_organic": 0.002, "p_bandit_to_organic": 0.5},
    "normal clock": {**SHORT, "clock": "normal", "drift_in_bandit": True},
    "changing": {**SHORT, "fatigue": 0.6, "retention": 0.5, "influence": 0.1},
    "once": {**SHORT, "no_repeats": True},
}
ASKED = [
    {},
    {"info": "none"},
    {"info": "views"},
    {"observation": "shown=0.9"},
    {"observation": "last=3", "info": "views"},
    {"observation": "dict", "info": "none"},
]


def walk(env, seed, steps=50):
    """All that an environment returns, with resets of some lanes, of a user and of seeds of their own in between."""
    draws = np.random.default_rng(4)
    n, n_items = env.num_envs, int(env.single_action_space.n)
    yield env.reset(seed=seed)
    for i in range(steps):
        yield env.step(draws.integers(0, n_items, n))
        if i == 17:
            yield env.reset(options={"user": 40, "reset_mask": np.arange(n) % 2 == 0})
        if i == 31:
            yield env.reset(seed=list(range(n)), options={"user": 2})
        if env.autoreset_mode is AutoresetMode.DISABLED and env._ended.any():
            yield env.reset(options={"reset_mask": env._ended.copy()})
        yield env.reward_means()


def both(world, lanes, **asked):
    """The environment as it is, and one that goes through transitions."""
    at_once, slow = WorldVectorEnv(world, lanes, **asked), WorldVectorEnv(world, lanes, **asked)
    assert at_once._queue.at_once
    slow._queue.at_once = False
    return at_once, slow


@pytest.mark.slow
@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("name", WORLDS)
def test_one_call_gives_what_transitions_give(name, mode):
    world = SessionsWorld(SessionsParams(**WORLDS[name]))
    for (asked, limit), seed in zip(itertools.product(ASKED, (None, 6)), itertools.cycle((3, [5, 5, 9, 1]))):
        pair = both(world, 4, autoreset_mode=mode, max_episode_steps=limit, **asked)
        for i, (fast, slow) in enumerate(zip(*(walk(env, seed) for env in pair), strict=True)):
            assert_same(fast, slow, f"{asked} {limit} {i}")


def test_events_can_be_asked_for_in_mid_episode():
    env, slow = both(SessionsWorld(SessionsParams(**SHORT)), 5)
    for one in (env, slow):
        one.reset(seed=1)
    for i in range(60):
        for one in (env, slow):
            one.info = ("counts", "views", "none")[i // 7 % 3]
        assert_same(*(one.step(np.full(5, i % 8)) for one in (env, slow)))


def test_rows_grow_within_a_step():
    """More views in a step than there was room for: it goes on in the middle of a lane."""
    env, slow = both(SessionsWorld(SessionsParams(**WORLDS["long visits"])), 3, info="views")
    room = len(new_rows(64, keep_truth=False).user)
    assert_same(*(one.reset(seed=0) for one in (env, slow)))
    assert len(env._queue.lanes._rows.user) > room


class _Generous(SessionsLanes):
    """Every recommendation is worth one more."""

    def take(self, which, actions, propensities):
        transition = super().take(which, actions, propensities)
        transition.columns["reward"][transition.starts[:-1]] += 1
        return transition


class _Kind(RatingsLanes):
    def take(self, which, actions, propensities):
        transition = super().take(which, actions, propensities)
        transition.columns["reward"][:] += 1
        return transition


def test_what_a_derived_class_does_in_its_lanes_happens():
    class Sessions(SessionsWorld):
        def open_lanes(self, n_lanes, *, keep_truth=False):
            lanes = super().open_lanes(n_lanes, keep_truth=keep_truth)
            return _Generous(*lanes._constructor_arguments[:-1], keep_truth=keep_truth)

    class Ratings(RatingsWorld):
        def open_lanes(self, n_lanes, *, keep_truth=False):
            return _Kind(self, n_lanes, truth_column=None)

    env = WorldVectorEnv(Sessions(SessionsParams(**SHORT)), 3)
    env.reset(seed=0)
    assert (env.step(np.zeros(3, np.int64))[1] >= 1).all()
    env, plain = WorldEnv(Ratings(RatingsParams(n_items=9))), world_env("ratings", n_items=9)
    for one in (env, plain):
        one.reset(seed=0)
    assert env.step(3)[1] == plain.step(3)[1] + 1


def test_both_lists_of_what_a_step_takes_are_one():
    assert _lanes_kernel.Moves._fields == Moves._fields
    assert not Lanes.at_once.fget(None)


# ------------------------------------------------------------------------------------------------ buffers used again


@pytest.mark.parametrize("kind", ["counts", "decayed", "last", "shown", "dict"])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_without_copies_observations_hold_the_same_until_the_next_step(kind, mode):
    world = SessionsWorld(SessionsParams(**SHORT))
    pair = [WorldVectorEnv(world, 4, observation=kind, autoreset_mode=mode, copy=copy) for copy in (True, False)]
    for one, other in zip(*(walk(env, 0) for env in pair), strict=True):
        assert_same(one, other)


def test_without_copies_the_next_step_overwrites():
    env = world_vector_env(4, world="sessions", copy=False, max_episode_steps=3, autoreset_mode="SameStep", **SHORT)
    first, _ = env.reset(seed=0)
    assert not first.flags.writeable
    before, ends = first.copy(), []
    for _ in range(6):
        observed, *_, infos = env.step(np.zeros(4, np.int64))
        assert np.shares_memory(observed, first)
        ends += [end for end in infos.get("final_obs", ()) if end is not None]
    assert not np.array_equal(before, first)
    assert ends
    assert not any(np.shares_memory(end, first) for end in ends)
    copied = world_vector_env(4, world="sessions", **SHORT)
    assert not np.shares_memory(copied.reset(seed=0)[0], copied.step(np.zeros(4, np.int64))[0])


def test_platforms_side_by_side_take_the_keyword_too():
    env = world_vector_env(2, world="campaigns", preset="quick", copy=False)
    first = env.reset(seed=0)[0]
    assert np.shares_memory(env.step(np.ones(env.action_space.shape))[0], first)


# ------------------------------------------------------------------------------------------ ratings, one user at a time

RATINGS = {
    "quick": lambda: make_world("ratings", "quick", ["n_items=9", "density=0.14", "n_decisions=3"]),
    "paid once": lambda: make_world("ratings", None, ["n_items=9", "density=0.14", "repeat_pays=false"]),
    "given": lambda: RatingsWorld.from_matrix(np.arange(35).reshape(5, 7) % 5 + 1, n_decisions=2),
}


@pytest.mark.parametrize("asked", [*ASKED[:3], {"observation": "last=3"}, {"observation": "decayed"}], ids=str)
@pytest.mark.parametrize("name", quick_first(list(RATINGS)))
def test_a_single_lane_of_ratings_gives_what_transitions_give(name, asked, monkeypatch):
    def lives(env):
        draws = np.random.default_rng(0)
        yield env.reset(seed=5)
        for i in range(400):
            result = env.step(int(draws.integers(0, env.action_space.n)))
            yield *result, env._queue.lanes.state, env._queue.lanes.step, env._queue.lanes.time
            if result[2] or i % 50 == 49:
                options = {"user": i} if i % 50 == 49 else None
                yield env.reset(seed=6 if i == 249 else None, options=options)

    found = [*lives(WorldEnv(RATINGS[name](), **asked))]
    monkeypatch.setattr(RatingsLanes, "begin_alone", Lanes.begin_alone)
    monkeypatch.setattr(RatingsLanes, "take_alone", Lanes.take_alone)
    assert_same(found, [*lives(WorldEnv(RATINGS[name](), **asked))])


def test_users_of_ratings_who_follow_each_other_are_made_ahead():
    asked = []
    world = make_world("ratings", "quick", ["n_items=9", "n_decisions=1"])
    ratings_of = world.ratings_of
    world.ratings_of = lambda seed, users: asked.append(len(users)) or ratings_of(seed, users)
    env = WorldEnv(world)
    env.reset(seed=1)
    for _ in range(200):
        env.step(0)
        env.reset()
    assert asked == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    env.reset(options={"user": 7})
    env.reset(seed=2)
    assert asked[9:] == [1, 1]
