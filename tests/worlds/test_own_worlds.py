"""Worlds of one's own: named, announced, simulated, shown as environments; refused in a line where they are wrong."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from recsim_mnar import plugins
from recsim_mnar.envs import WorldEnv, WorldVectorEnv, world_env
from recsim_mnar.log import Log
from recsim_mnar.protocols.ab_test import records_of_arms, run_arms
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.testing import check_vector
from recsim_mnar.worlds import DecisionWorld, Params, PlainLanes, as_world, make_world
from recsim_mnar.worlds.features import FeatureParams, FeatureWorld
from recsim_mnar.worlds.registry import listed, listed_presets
from toys import refused, untrained
from twins.commands import status_of

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _examples(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def random_policy(world):
    return untrained("random", world.n_items)


class SilentLanes(PlainLanes):
    def answer(self, which, actions):
        return (self.uniforms(which) < 0.3).astype(float), self.n_decisions[which] < 3


class Silent(DecisionWorld):
    """A world that says nothing of its truth, and takes no parameters."""

    name = "silent"
    n_items = 4

    def open_lanes(self, n_lanes, *, keep_truth=False):
        return SilentLanes(n_lanes)


class Unfinished(DecisionWorld):
    name = "unfinished"


class Picky(DecisionWorld):
    name = "picky"

    def __init__(self, first, second):
        self.n_items = 3

    def open_lanes(self, n_lanes, *, keep_truth=False):
        return SilentLanes(n_lanes)


def test_by_name_and_settings():
    world = make_world("own_world:Cafe", settings=["p_stay=0.5", "n_items=4"])
    assert (world.n_items, world.params.p_stay) == (4, 0.5)
    assert make_world("own_world:Cafe", None, {"n_items": 9}).n_items == 9
    with refused("did you mean 'p_stay'"):
        make_world("own_world:Cafe", settings=["p_sty=0.5"])


@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [
        ("own_world:", (), "write it as package.module:name"),
        ("no_such_module:X", (), "cannot be imported"),
        ("own_world:Caf", (), "did you mean 'Cafe'"),
        ("own_world:CafeParams", (), "must be a class derived from"),
        ("test_own_worlds:Unfinished", (), "lacks open_lanes"),
        ("test_own_worlds:Silent", ("x=1",), "takes no parameters"),
        ("test_own_worlds:Picky", (), "must take its parameters and nothing else"),
        ("sesions", (), "did you mean 'sessions'"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_line(spec, settings, words):
    with refused(words):
        make_world(spec, None, settings)


def changed(**attributes):
    return type("Wrong", (Silent,), attributes)()


def lanes_that(**methods):
    kind = type("WrongLanes", (SilentLanes,), methods)
    return changed(open_lanes=lambda self, n, *, keep_truth=False: kind(n))


def edited(method, edit):
    """Lanes whose transitions are edited before they are handed out."""

    def wrong(self, *given):
        transition = getattr(SilentLanes, method)(self, *given)
        edit(self, transition)
        return transition

    return lanes_that(**{method: wrong})


WRONG = [
    (lambda: object(), "must derive from"),
    (lambda: Silent, "make an object of it"),
    (lambda: changed(name=""), "has no name"),
    (lambda: changed(n_items=0), "n_items, a whole number of at least 1"),
    (lambda: changed(slate_size=2), "an own world shows one item at a time"),
    (lambda: changed(n_items=None), "n_items, a whole number of at least 1"),
    (lambda: changed(truth_column="reward"), "truth_column must be None or"),
    (lambda: changed(describe=lambda self: {"name": self}), "must return JSON types"),
    (lambda: changed(describe=lambda self: {}), "must be a dictionary that holds the name"),
    (lambda: changed(open_lanes=lambda self, n, *, keep_truth=False: None), "open_lanes must return"),
    (
        lambda: changed(open_lanes=lambda self, n, *, keep_truth=False: SilentLanes(n + 1)),
        "user of the lanes must be an array of 5",
    ),
    (lambda: lanes_that(begin=lambda self, *a: None), "begin must return a recsim_mnar.worlds.Transition"),
    (lambda: lanes_that(answer=lambda self, w, a: (np.full(len(w), np.nan), w < 0)), "reward must be a finite number"),
    (lambda: edited("take", lambda s, t: t.columns.pop("time")), "the columns lack 'time'"),
    (lambda: edited("take", lambda s, t: t.columns.update(reward=np.zeros(1))), "starts end at"),
    (lambda: edited("take", lambda s, t: t.columns.update(step=t.columns["step"] * 1.0)), "must be int32, got float64"),
    (lambda: edited("take", lambda s, t: t.columns["user"].__iadd__(1)), "must be the user of the lane"),
    (lambda: edited("take", lambda s, t: t.columns["step"].__iadd__(1)), "without a gap"),
    (lambda: edited("take", lambda s, t: t.columns["time"].__iadd__(np.inf)), "time must be a finite number"),
    (lambda: edited("take", lambda s, t: t.columns["action"].__iadd__(1)), "must hold the action that was handed in"),
    (lambda: edited("take", lambda s, t: s.n_decisions.__iadd__(1)), "n_decisions must count"),
    (lambda: edited("take", lambda s, t: s.step.__iadd__(1)), "one after the last row's"),
    (lambda: edited("begin", lambda s, t: s.user.__iadd__(1)), "must hold the users that were handed to begin"),
]


@pytest.mark.parametrize(("make", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_world_is_refused_in_one_line(make, words):
    with refused(words):
        simulate(make(), random_policy(Silent()), 5)


def test_wrong_views_are_refused():
    wrong = lanes_that(browse=lambda self, which: (np.ones(len(which), np.int64), np.full(len(which), 4)))
    with refused(r"item must be in 0\.\.3, got 4"):
        simulate(wrong, random_policy(wrong), 5)


# ------------------------------------------------------------------------------------------------- without its truth


def test_a_world_without_truth_is_no_key_error(tmp_path, capsys):
    world = Silent()
    random = random_policy(world)
    log = simulate(world, random, 40, 1)
    assert len(log) == 160
    with refused("no truth column"):
        simulate(world, random, 4, keep_truth=True)
    with refused("define reward_means"):
        value_on_log(world, log, {"random": random}, 1)
    arms = run_arms(world, {"random": random}, 50, 0, paired=False, executor=None)
    records = records_of_arms(world, arms, 50, paired=False, level=0.95)
    assert {record.metric for record in records} == {"reward", "reward_exact"}
    env = WorldEnv(world)
    env.reset(seed=0)
    with refused(r"define reward_means|has no state"):
        env.reward_means()
    arguments = ["simulate", "--world", "test_own_worlds:Silent", "--policy", "random", "--users", "9"]
    assert status_of(*arguments, "--truth", "--out", tmp_path / "a") == 2
    assert "no truth column" in capsys.readouterr().err
    assert status_of(*arguments, "--out", tmp_path / "b") == 0
    assert len(Log.read(tmp_path / "b" / "log")) == 36


def test_announced_worlds(monkeypatch):
    points = [
        EntryPoint("cafe", "own_world:Cafe", "recsim_mnar.worlds"),
        EntryPoint("lost", "no_such_module:World", "recsim_mnar.worlds"),
    ]
    monkeypatch.setattr("recsim_mnar.worlds.registry.announced", lambda group: {p.name: p for p in points})
    assert make_world("cafe", None, ["n_items=3"]).n_items == 3
    shown = dict(listed())
    assert shown["cafe"].startswith("People in a café")
    assert "cannot be imported" in shown["lost"]
    assert any(name.startswith("sessions ") for name, _ in listed_presets())
    with refused("cannot be imported"):
        make_world("lost")
    assert isinstance(plugins.announced("recsim_mnar.agents"), dict)


# ------------------------------------------------------------------------------------------------------- environments


def own():
    return make_world("own_world:Cafe")


@pytest.mark.parametrize("world", ["own_world:Cafe", "campaigns"])
def test_any_world_is_an_environment(world):
    preset = None if ":" in world else "quick"
    env = gym.make("recsim_mnar/World-v0", world=world, preset=preset)
    check_env(env.unwrapped, skip_render_check=True)


def test_the_vector_check_passes():
    assert not check_vector(
        lambda mode: WorldVectorEnv(own(), 4, autoreset_mode=mode),
        lambda: WorldEnv(own()),
        steps=60,
    )


def test_world_takes_an_object_a_name_and_nothing_else():
    assert world_env("own_world:Cafe", n_items=3).world.n_items == 3
    assert world_env(make_world("purchases", "quick")).action_space.shape == (5,)
    assert gym.make_vec("recsim_mnar/World-v0", num_envs=2, world="purchases", preset="quick").num_envs == 2
    for make, words in (
        (lambda: world_env(own(), n_items=3), "omit n_items"),
        (lambda: world_env(own(), "quick"), "omit preset"),
        (lambda: WorldEnv(make_world("campaigns", "quick")), "whole platform"),
        (lambda: WorldEnv(make_world("purchases", "quick")), "recommends slates"),
        (lambda: WorldEnv(3), "must derive from"),
    ):
        with refused(words):
            make()


# --------------------------------------------------------------------------------------------------------- reward means


@pytest.mark.parametrize("name", ["sessions", "ratings", "features", "own_world:Cafe"])
def test_reward_means_are_those_of_the_user_who_waits(name):
    world = make_world(name)
    env, vector = WorldEnv(world), WorldVectorEnv(world, 3)
    with pytest.raises(gym.error.ResetNeeded):
        env.reward_means()
    with pytest.raises(gym.error.ResetNeeded):
        vector.reward_means()
    _, info = env.reset(seed=5)
    truth = simulate(world, random_policy(world), 200, 5, keep_truth=True)
    mine = truth.bandit().select(truth.bandit()["user"] == info["user"])
    for action, expected in zip(mine["action"], mine[world.truth_column], strict=True):
        means = env.reward_means()
        assert means.shape == (world.n_items,)
        assert means[action] == pytest.approx(expected, rel=1e-12)
        _, _, ended, _, info = env.step(action)
        assert not {"reward_means", world.truth_column} & set(info)
    assert ended
    vector.reset(seed=5)
    assert vector.reward_means().shape == (3, world.n_items)
    env.reset(seed=5)
    np.testing.assert_array_equal(vector.reward_means()[0], env.reward_means())


# ------------------------------------------------------------------------------------------------------ features world


def test_five_lines_make_a_world_of_feature_matrices():
    x, z = np.array([[0.0], [1.0]]), np.array([[0.2], [0.7]])
    world = FeatureWorld(x, z, reward="linear", length=2)
    np.testing.assert_allclose(world.means, [[0.0, 0.0], [0.2, 0.7]])
    log = simulate(world, random_policy(world), 40, 1, keep_truth=True)
    assert len(log) == 80
    assert log["reward"][log["user"] % 2 == 0].sum() == 0
    env = WorldEnv(world)
    for user in range(4):  # users are the rows in turn
        observation, _ = env.reset(seed=8) if user == 0 else env.reset()
        assert observation.tolist() == [user % 2]


def test_rewards_and_lengths_follow_the_parameters():
    x = np.zeros((3, 1))
    means = np.tile([0.2, 0.9], (3, 1))
    world = FeatureWorld(x, np.zeros((2, 1)), reward=means, params=FeatureParams(length=5, lengths="geometric"))
    log = simulate(world, random_policy(world), 20_000, 2)
    assert len(log) / 20_000 == pytest.approx(5, abs=5 * np.sqrt(20 / 20_000))  # geometric: variance m (m - 1)
    for item, p in enumerate((0.2, 0.9)):
        got = log["reward"][log["action"] == item]
        assert got.mean() == pytest.approx(p, abs=5 * np.sqrt(p * (1 - p) / len(got)))
    noisy = FeatureWorld(x, np.zeros((2, 1)), reward=means * 10, params=FeatureParams(noise=2.0, length=4))
    got = simulate(noisy, random_policy(noisy), 20_000, 2)
    error = got["reward"] - 10 * means[0][got["action"]]
    assert error.mean() == pytest.approx(0, abs=5 * 2 / np.sqrt(len(error)))
    assert error.std() == pytest.approx(2, rel=5 / np.sqrt(2 * len(error)))


def test_features_of_a_file(tmp_path):
    x, z, w = np.ones((6, 2)) * 0.1, np.ones((4, 3)), np.ones((2, 3))
    path = tmp_path / "team.npz"
    np.savez(path, user_features=x, item_features=z, weights=w)
    out = tmp_path / "run"
    arguments = ["--world", "features", "--set", f"file={path}", "--set", "reward=linear", "--policy", "random"]
    assert status_of("simulate", *arguments, "--users", 12, "--truth", "--out", out) == 0
    given = FeatureWorld(x, z, reward="linear", weights=w)
    world = make_world("features", settings=[f"file={path}", "reward=linear"])
    np.testing.assert_array_equal(world.means, given.means)
    assert Log.read(out / "log").digest() == simulate(given, random_policy(given), 12).digest()
    again = make_world("features", settings=[f"file={out / 'catalogue.npz'}", "reward=means"])
    np.testing.assert_array_equal(again.means, given.means)
    np.savez(tmp_path / "half.npz", user_features=x)
    with refused("lacks 'item_features'"):
        make_world("features", settings=[f"file={tmp_path / 'half.npz'}"])
    (tmp_path / "text.npz").write_text("no arrays")
    with refused(r"no \.npz file"):
        make_world("features", settings=[f"file={tmp_path / 'text.npz'}"])


def test_as_world_hands_back_a_sound_world():
    world = Silent()
    assert as_world(world) is world
    assert world.params == Params()
