"""Gymnasium's conventions, and lanes that are single environments: of every world, and planted faults are found."""

from __future__ import annotations

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from recsim_mnar.envs import WorldEnv, WorldVectorEnv, world_env, world_vector_env
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.testing import check_vector
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.cases import quick_first

KINDS = ["counts", "decayed", "decayed=0.5", "last", "last=3", "dict"]
SHOWN = [(name, kind) for name in ("sessions", "features") for kind in ("shown", "shown=0.5")]  # no ratings, no slates
WORLDS = {
    "sessions": lambda: SessionsWorld(SessionsParams(n_items=8, p_leave_bandit=0.1, p_leave_organic=0.1)),
    "ratings": lambda: make_world("ratings", "quick", ["n_items=8", "n_decisions=5"]),
    "features": lambda: make_world("features", "quick"),
    "purchases": lambda: make_world("purchases", "quick"),
}
OTHERS = {
    "many-skipped": lambda: SessionsWorld(SessionsParams(n_items=6, p_leave_organic=0.4, p_leave_bandit=0.2)),
    "no-repeats": lambda: make_world(
        "ratings", None, ["n_items=15", "density=0.1", "n_decisions=4", "repeat_pays=false"]
    ),
    "fixed-slates": lambda: PurchasesWorld(
        PurchasesParams(n_items=12, n_periods=4, slate_size=3, base=-1.0, slates="fixed")
    ),
}
ASKED = [*({"observation": kind} for kind in KINDS), {"info": "views"}, {"info": "none"}]


@pytest.mark.parametrize(
    ("world", "asked", "lanes", "steps"),
    quick_first(
        {f"{name}-{asked}": (make, asked, 3, 40) for name, make in WORLDS.items() for asked in ASKED[:1]}
        | {f"sessions-{asked}": (WORLDS["sessions"], asked, 3, 40) for asked in ASKED}
        | {"-".join(ask): (WORLDS[ask[0]], {"observation": ask[1]}, 3, 40) for ask in SHOWN}
        | {name: (make, {}, 4, 80) for name, make in OTHERS.items()}
        | {"long": (lambda: SessionsWorld(SessionsParams(n_items=12, p_leave_bandit=0.1)), {}, 5, 150)}
        | {f"{name}-{asked}": (make, asked, 3, 40) for name, make in WORLDS.items() for asked in ASKED},
        len(WORLDS) + len(ASKED) + len(SHOWN) + len(OTHERS),
    ),
)
def test_conventions_hold_and_lanes_are_single_environments(world, asked, lanes, steps):
    check_env(gym.make("recsim_mnar/World-v0", world=world(), **asked).unwrapped)
    assert not check_vector(
        lambda mode: world_vector_env(lanes, world=world(), autoreset_mode=mode, **asked),
        lambda: world_env(world(), **asked),
        steps=steps,
    )


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Sessions", {}),
        ("Sessions", {"preset": "quick", "n_items": 30, "n_flips": 3}),
        ("Ratings", {}),
        ("Ratings", {"preset": "mcar", "n_items": 15, "density": 0.1, "n_decisions": 4, "repeat_pays": False}),
        ("Purchases", {"preset": "quick"}),
        ("Campaigns", {"preset": "quick"}),
        ("Campaigns", {"preset": "growing", "n_users": 50}),
    ],
)
def test_an_id_makes_what_gymnasium_checks(name, settings):
    env = gym.make(f"recsim_mnar/{name}-v0", **settings).unwrapped
    check_env(env)
    vector = gym.make_vec(f"recsim_mnar/{name}-v0", num_envs=2, **settings)
    assert vector.single_action_space == env.action_space


# -------------------------------------------------------------------------------------------------- planted faults


class _Shifted(WorldVectorEnv):
    """Every lane is one view ahead."""

    def step(self, actions):
        observation, *rest = super().step(actions)
        observation[0, 0] += 1
        return (observation, *rest)


class _Reusing(WorldVectorEnv):
    """It hands out its own buffer."""

    def step(self, actions):
        return (self._observer.array, *super().step(actions)[1:])


class _Eager(WorldVectorEnv):
    """The mode it states is not the mode it has."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.metadata = {**self.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}


class _Forgetful(WorldVectorEnv):
    """What it says of ratings is one star off."""

    def step(self, actions):
        *rest, infos = super().step(actions)
        for lane, ratings in enumerate(infos.get("ratings", ())):
            infos["ratings"][lane] = ratings and tuple(r + 1 for r in ratings)
        return (*rest, infos)


class _Generous(WorldVectorEnv):
    """In one mode of resets it pays one more."""

    def step(self, actions):
        observation, rewards, *rest = super().step(actions)
        return observation, rewards + (self.autoreset_mode is AutoresetMode.SAME_STEP), *rest


@pytest.mark.parametrize(
    ("kind", "world", "n_modes", "words"),
    [
        (_Shifted, "sessions", 3, "observation"),
        (_Reusing, "sessions", 3, "a buffer is used twice"),
        (_Eager, "sessions", 2, "must be the enum"),
        (_Generous, "features", 1, "rewards"),
        (_Forgetful, "ratings", 2, "ratings"),  # without resets of its own it says them in reset alone
    ],
)
def test_planted_faults_are_found(kind, world, n_modes, words):
    make = WORLDS[world] if world != "ratings" else OTHERS["no-repeats"]
    found = check_vector(
        lambda mode: kind(make(), 3, autoreset_mode=mode, info="views"),
        lambda: WorldEnv(make(), info="views"),
        steps=60,
    )
    assert len(found) == n_modes
    assert all(words in finding.why for finding in found), found
    if n_modes == 1:
        assert found[0].rule == "lanes_same_step"
