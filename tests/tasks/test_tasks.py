"""Frozen tasks: what is frozen stays, values are those of the world, scores are what they say."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import recsim_mnar
from recsim_mnar.errors import UserError
from recsim_mnar.policies import Policy, registry
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import SHARD_USERS
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.pools import pool
from recsim_mnar.tasks import evaluate, task, tasks
from recsim_mnar.tasks.evaluating import measured
from twins.commands import run

FROZEN = {
    "cold-100-v1": "ea006e256c6dfcc4e1bf9245f4f4275cc16cb862139d04552c5e2a603667dcef",
    "drifting-100-v1": "4792408f47a59e7d52a06e313edaf803823cb8a9b82701f28e1a8bff4b0e773b",
    "fatigue-50-v1": "9c41f6ca4d3359b710e98b42d778db4617b74c771244633e0207e00dd0e4e5b8",
    "flipped-100-v1": "0e103b68b1e82089baf17a9c8e962a1b2c00b0573e19207248467025dd420df1",
    "popularity-100-v1": "73e10f9e080c8aea33937e86aca8b83650ab1d11b8b7d1400ddc8849a146c4c0",
    "ratings-100-v1": "719ab3862ffdc03603965c9775549a82693de3ab8a1069247c4aff5014c6c643",
    "retention-50-v1": "824ec4d05c583cdb8a29f48cd0e157de05e9bde4f03f08859c7504039c00b385",
    "sessions-10-v1": "e79b971617260926868cd61794df9da0a97def6a953210d040158935c6018028",
    "sessions-1000-v1": "6b50289798291c908eedd0b48f0f437b947eec25c1f0438e7f2df2cb5e3e63b2",
}
"""A task is never changed: another one has another version."""


def per_user(world, policy, n_users, seed, horizon):
    """(n_users,) expected rewards of the first decisions, in plain Python."""
    log = simulate(world, policy, n_users, seed, keep_truth=True)
    earned, count = [0.0] * n_users, [0] * n_users
    for user, bandit, expected in zip(
        log["user"].tolist(), log.is_bandit, log[world.truth_column].tolist(), strict=True
    ):
        if bandit and count[user] < horizon:
            earned[user] += expected
            count[user] += 1
    return np.array(earned), np.array(count)


def test_files_are_those_that_were_frozen():
    folder = Path(recsim_mnar.__file__).parent / "tasks" / "frozen"
    found = {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.toml")}
    assert found == FROZEN
    assert tasks() == sorted(FROZEN)
    for name in tasks():
        assert task(name).digest == FROZEN[name]
        world = task(name).make_world()
        assert world.params.to_dict() == dict(task(name).params)  # every parameter stands in the file
        held = tomllib.loads((folder / f"{name}.toml").read_text())
        assert held["best"]["value"] > held["random"]["value"] + 20 * held["best"]["error"]


@pytest.mark.verify
@pytest.mark.parametrize("name", sorted(FROZEN))
def test_frozen_values_are_those_of_the_world(name):
    """On other users, within the sampling error: four standard deviations in each of 18 comparisons."""
    chosen = task(name)
    n = 300 if name == "retention-50-v1" else 1500
    for policy, known in ((chosen.random_policy(), chosen.random), (chosen.reference_policy(), chosen.best)):
        found = measured(chosen, policy, n, 77)
        assert abs(found.value - known.value) < 4.0 * math.hypot(found.error, known.error)


def test_a_value_is_the_mean_over_all_users_within_the_horizon():
    """Who never comes to a decision counts, too; what comes after the horizon does not."""
    chosen = task("cold-100-v1")
    policy = registry.learner("popularity").fit(chosen.log(), n_items=100, seed=derive_seed(chosen.seed, "task/fit"))
    found = evaluate(policy, chosen, n_users=150)
    world, n = chosen.make_world(), 150
    earned, count = per_user(world, policy, n, chosen.seed, chosen.horizon)
    luck = per_user(world, chosen.random_policy(), n, chosen.seed, chosen.horizon)[0]
    assert (count == 0).any()
    slope = np.cov(earned, luck)[0, 1] / luck.var(ddof=1)
    value = earned.mean() - slope * (luck.mean() - chosen.random.value)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.decisions == pytest.approx(count.mean())
    error = np.std(earned - slope * luck, ddof=1) / math.sqrt(n)
    assert found.value_high - found.value == pytest.approx(
        1.976 * math.hypot(error, slope * chosen.random.error), rel=1e-3
    )
    assert found.score == pytest.approx(
        (value - chosen.random.value) / (chosen.best.value - chosen.random.value), rel=1e-12
    )
    short = task("ratings-100-v1")
    cut = type(short)(**{**vars(short), "horizon": 3})
    assert evaluate("random", cut, n_users=40).decisions == 3.0


def test_the_score_of_random_and_reference_are_0_and_1():
    """In pairs on the same users exactly; by the frozen values within the interval."""
    chosen = task("cold-100-v1")
    for policy, expected in ((chosen.random_policy(), 0.0), (chosen.reference_policy(), 1.0)):
        quoted = evaluate(policy, chosen, users="quoted", n_users=120)
        assert quoted.score == pytest.approx(expected, abs=1e-12)
        assert quoted.score_high - quoted.score_low < 1e-9
        public = evaluate(policy, chosen, n_users=1000)
        assert public.score_low - 1e-12 <= expected <= public.score_high + 1e-12


@pytest.mark.verify
def test_intervals_of_scores_hold():
    """Of both kinds, over 150 seeds of users: at least 90 % of nominal 95 hold (p < 1e-3 otherwise)."""
    chosen = task("cold-100-v1")
    policy = registry.learner("popularity").fit(chosen.log(), n_items=100, seed=1)
    truth = (measured(chosen, policy, 40_000, 5).value - chosen.random.value) / (
        chosen.best.value - chosen.random.value
    )
    held = {"public": 0, "quoted": 0}
    for seed in range(150):
        other = type(chosen)(**{**vars(chosen), "seed": seed})
        for users in held:
            found = evaluate(policy, other, users=users, n_users=150)
            held[users] += found.score_low < truth < found.score_high
    assert min(held.values()) >= 135


def test_quoted_users_follow_from_what_the_agent_does():
    chosen = task("cold-100-v1")
    first, again = (evaluate("popularity", chosen, users="quoted", n_users=60) for _ in range(2))
    assert first == again
    other = evaluate("popularity+epsilon=0.01", chosen, users="quoted", n_users=60)
    assert other.behaviour != first.behaviour
    assert len({other.seed, first.seed, chosen.seed}) == 3


def test_a_lead_is_of_pairs(capsys):
    chosen = task("flipped-100-v1")
    one, other = (evaluate(name, chosen, n_users=400) for name in ("user-popularity-greedy", "popularity"))
    apart = (one.earned - other.earned) / (chosen.best.value - chosen.random.value)
    lead = one.ahead_of(other)
    assert lead.score == pytest.approx(apart.mean())
    assert lead.high - lead.low == pytest.approx(2 * 1.9659 * apart.std(ddof=1) / 20, rel=1e-4)
    assert lead.low > 0.0
    assert other.ahead_of(one).score == -lead.score
    with pytest.raises(UserError, match="of one task and the same users"):
        one.ahead_of(evaluate("popularity", chosen, n_users=300))
    asked = ["evaluate", "user-popularity-greedy", "--task", "flipped-100-v1", "--users", 400]
    status, out, err = run(capsys, *asked, "--against", "popularity,user-popularity-greedy+epsilon=0.0")
    assert status == 0, err
    assert f"popularity: score {other.score:.3f}; user-popularity-greedy is {lead}, user by user." in out
    assert "user-popularity-greedy is tied, +0.000 (+0.000 to +0.000)" in out
    assert run(capsys, *asked, "--against", "popularity", "--quoted")[0] == 2


def test_no_number_depends_on_workers():
    """Of 1 and 2 workers, each with a shard of its own."""
    chosen, n = task("cold-100-v1"), SHARD_USERS + 80
    with pool(1) as one, pool(2) as two:
        for users in ("public", "quoted"):
            alone = evaluate("user-popularity", chosen, users=users, n_users=n)
            for executor in (one, two):
                found = evaluate("user-popularity", chosen, users=users, n_users=n, executor=executor)
                assert found.to_dict() == alone.to_dict()
                assert found.earned.tobytes() == alone.earned.tobytes()


@pytest.mark.parametrize("name", sorted(FROZEN))
def test_environments_are_those_of_the_task(name):
    *words, version = name.split("-")
    identity = f"recsim_mnar/{''.join(words).capitalize()}-{version}"
    env = gym.make(identity)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.unwrapped.world.params.to_dict() == dict(task(name).params)
    lanes = gym.make_vec(identity, num_envs=3, vectorization_mode="vector_entry_point")
    assert lanes.max_episode_steps == task(name).horizon
    assert lanes.world.params == env.unwrapped.world.params


def test_an_episode_ends_with_the_horizon():
    env = gym.make("recsim_mnar/Retention50-v1")
    chosen, policy = task("retention-50-v1"), task("retention-50-v1").reference_policy()
    log = simulate(chosen.make_world(), policy, 60, 4)
    longest = int(np.argmax(np.bincount(log["user"][log.is_bandit])))
    rows = log.is_bandit & (log["user"] == longest)
    assert rows.sum() > chosen.horizon
    env.reset(seed=4, options={"user": longest})
    for number, action in enumerate(log["action"][rows][: chosen.horizon].tolist(), start=1):
        _, _, ended, cut, _ = env.step(action)
        assert not ended
        assert cut == (number == chosen.horizon)


def test_references_have_names():
    """A planner of views alone gets most of what the oracle does; ahead, behind and tied are said."""
    chosen = task("flipped-100-v1")
    planner, oracle, again = (evaluate(name, chosen, n_users=300) for name in ("planner", "oracle", "oracle"))
    assert 0.9 < planner.score < oracle.score
    assert str(oracle.ahead_of(planner)).startswith("ahead, +0.0")
    assert str(planner.ahead_of(oracle)).startswith("behind, -0.0")
    assert str(oracle.ahead_of(again)) == "tied, +0.000 (+0.000 to +0.000)"


@pytest.mark.parametrize("vector", [False, True])
def test_a_tasks_parameters_are_frozen(vector):
    make = gym.make_vec if vector else gym.make
    more = {"num_envs": 2, "vectorization_mode": "vector_entry_point"} if vector else {}
    with pytest.raises(UserError, match=r"n_items is frozen in the task flipped-100-v1.*recsim_mnar/Sessions-v0"):
        make("recsim_mnar/Flipped100-v1", **more, n_items=20)
    with pytest.raises(UserError, match="unknown keyword 'observatoin'; did you mean 'observation'"):
        make("recsim_mnar/Flipped100-v1", **more, observatoin="last")
    made = make("recsim_mnar/Flipped100-v1", **more, observation="last=5")
    assert made.observation_space.shape == ((2, 5) if vector else (5,))


def test_what_cannot_be_evaluated_is_said(capsys, tmp_path):
    with pytest.raises(UserError, match=r"unknown task 'fatigue-50-v2'.*fatigue-50-v1"):
        evaluate("random", "fatigue-50-v2")
    with pytest.raises(UserError, match="its n_items is 7, the log's world has 10 items"):
        evaluate(registry.uniform_policy(7), "sessions-10-v1")
    with pytest.raises(UserError, match="FeaturePolicy"):
        evaluate(lambda counts: counts, "sessions-10-v1")
    with pytest.raises(UserError, match="users must be"):
        evaluate("random", "sessions-10-v1", users="hidden")
    with pytest.raises(UserError, match="learns from all users"):
        evaluate("lin-ucb", "sessions-10-v1", n_users=10)


class Third(Policy):
    """A policy of one's own, by its place on the command line."""

    name = "third"

    def __init__(self, n_items):
        self.n_items = n_items

    def act(self, users, uniforms):
        return np.full(len(users), 2), np.ones(len(users))

    def probabilities(self, users):
        return np.tile(np.eye(self.n_items)[2], (len(users), 1))


def test_the_command_says_writes_and_verifies(capsys, tmp_path):
    file = tmp_path / "run.json"
    asked = ["evaluate", "popularity", "--task", "cold-100-v1", "--quoted", "--users", 50]
    status, out, err = run(capsys, *asked, "--json", file)
    assert status == 0, err
    assert "popularity on cold-100-v1: score" in out
    held = json.loads(file.read_text())
    assert held["task_digest"] == FROZEN["cold-100-v1"]
    status, out, _ = run(capsys, "evaluate", "popularity", "--task", "cold-100-v1", "--verify", file)
    assert status == 0
    assert f"{file} holds." in out
    status, _, err = run(capsys, "evaluate", "random", "--task", "cold-100-v1", "--verify", file)
    assert status == 2
    assert "does not hold: agent, behaviour" in err
    file.write_text(json.dumps({**held, "score": held["score"] + 0.1}))
    status, _, err = run(capsys, "evaluate", "popularity", "--task", "cold-100-v1", "--verify", file)
    assert (status, "score differ" in err) == (2, True)
    file.write_text("{}")
    status, _, err = run(capsys, "evaluate", "popularity", "--task", "cold-100-v1", "--verify", file)
    assert (status, "is no evaluation that --json wrote" in err) == (2, True)
    status, out, err = run(capsys, "evaluate", f"{__name__}:Third", "--task", "sessions-10-v1", "--users", 30)
    assert status == 0, err
    status, out, _ = run(capsys, "list", "tasks")
    assert all(name in out for name in FROZEN)
    status, out, _ = run(capsys, "describe", "fatigue-50-v1")
    assert "planning-oracle: 1.23946 per user" in out
