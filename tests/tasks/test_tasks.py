"""Frozen tasks: what is frozen stays, values are those of the world, scores are what they say."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

import recsim_mnar
from recsim_mnar.policies import Learner, registry
from recsim_mnar.purchases.policies import DeployedPolicy
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.executor import SHARD_USERS
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.pools import pool
from recsim_mnar.tasks import evaluate, task, tasks
from recsim_mnar.tasks.evaluating import mean_of, task_env
from recsim_mnar.worlds.params import added
from recsim_mnar.worlds.sessions.params import SessionsParams
from toys import Always, refused
from twins.cases import quick_first
from twins.commands import done, fails

FROZEN = dict(line.split()[::-1] for line in (Path(__file__).parent / "tasks.sha256").read_text().splitlines())
"""A task is never changed: another one has another version."""
UNFROZEN = {"uplift-200-v1": {"coupling": "independent"}}
"""By task, parameters that its file lacks and the provenance of its logs has all the same."""


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
        # Parameters that came later are off, and then no log names them.
        described = task(name).make_world().describe()["params"]
        assert described == dict(task(name).params) | UNFROZEN.get(name, {}), f"{name}: declare new ones by added()"


@dataclasses.dataclass(frozen=True)
class Sated(SessionsParams):
    """Parameters with one more, which is off by default."""

    satiation: float = added(0.0)


def test_a_later_parameter_that_is_off_leaves_frozen_tasks_and_logs_as_they_were():
    frozen = [dict(task(name).params) for name in tasks() if task(name).world == "sessions"]
    assert len(frozen) > 5
    for params in frozen:
        assert Sated.from_dict(params).to_provenance() == params
        sated = Sated.from_dict(params | {"satiation": 0.2})
        assert sated.to_provenance() == params | {"satiation": 0.2}
        assert Sated.from_dict(sated.to_provenance()) == sated


LONG = {"sessions-slates-10-v1", "campaigns-60-v1", "uplift-200-v1", "retention-50-v1", "fatigue-50-v1"}
LONG |= {"drifting-100-v1", "sessions-1000-v1"}


@pytest.mark.verify
@pytest.mark.parametrize("name", quick_first(sorted(FROZEN, key=LONG.__contains__), len(FROZEN) - len(LONG)))
def test_frozen_values_are_those_of_the_world(name):
    """On other users, within the sampling error: four standard deviations in each of 24 comparisons."""
    chosen = task(name)
    n = {"retention-50-v1": 300, "campaigns-60-v1": 60}.get(name, 1500)
    for policy, known in ((chosen.random_policy(), chosen.random), (chosen.reference_policy(), chosen.best)):
        found = mean_of(chosen.runner().run(policy, n, 77).rewards)
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
    apart = luck.mean() - chosen.random.value
    error = np.std(earned - slope * luck, ddof=2) * math.sqrt(1 / n + apart**2 / ((n - 1) * luck.var(ddof=1)))
    assert found.value_high - found.value == pytest.approx(
        1.976 * math.hypot(error, slope * chosen.random.error), rel=1e-3
    )
    room = chosen.best.value - chosen.random.value
    score = (value - chosen.random.value) / room
    assert found.score == pytest.approx(score, rel=1e-12)
    # The value depends on the frozen value of random through the slope as well.
    parts = (error, (slope + score - 1.0) * chosen.random.error, score * chosen.best.error)
    assert found.score_high - found.score == pytest.approx(1.976 * math.hypot(*parts) / room, rel=1e-3)
    short = task("ratings-100-v1")
    cut = type(short)(**{**vars(short), "horizon": 3})
    assert evaluate("random", cut, n_users=40).decisions == 3.0


class Holders:
    """Campaigns by a function of the environment's observation: what few hold, more of it."""

    def __call__(self, observation):
        return 1.0 - observation[:-1]


UNLIKE = {"uplift-200-v1": (150, "deployed"), "campaigns-60-v1": (6, Holders())}
"""Tasks whose users do not decide one by one: how many units a test asks, and a policy between random and reference."""


@pytest.mark.parametrize("name", quick_first(sorted(UNLIKE)))
def test_scores_where_an_action_is_not_one_item(name):
    """Random is 0 and the reference 1: in pairs exactly, by frozen values within the interval; others in between."""
    chosen, (n, between) = task(name), UNLIKE[name]
    for policy, expected in (("random", 0.0), (chosen.reference, 1.0)):
        quoted = evaluate(policy, chosen, users="quoted", n_users=n)
        # "random" is an agent that scores alike: it draws other items than the reference of 0, as likely.
        assert quoted.score_low - 1e-12 <= expected <= quoted.score_high + 1e-12
        public = evaluate(policy, chosen, n_users=n)
        reach = 2.0 * (public.score_high - public.score_low)
        assert abs(public.score - expected) < reach < 0.5
    paired = evaluate(chosen.reference, chosen, users="quoted", n_users=n)
    assert paired.score == pytest.approx(1.0, abs=1e-12)
    some = evaluate(between, chosen, n_users=n)
    assert -0.1 < some.score < 0.9
    assert some.ahead_of(public).high < 0.0
    with pool(2) as executor:
        assert evaluate(between, chosen, n_users=n, executor=executor) == some


def test_rankings_earn_the_clicks_of_the_slates_within_the_horizon():
    """A slate counts with all of its places, and its order matters."""
    chosen, n = task("sessions-slates-10-v1"), 30
    world, cut = chosen.make_world(), type(chosen)(**{**vars(chosen), "horizon": 5})
    oracle = chosen.reference_policy()
    earned, rows = per_user(world, oracle, n, chosen.seed, 5 * 10)
    found = cut.runner().run(oracle, n, chosen.seed)
    np.testing.assert_allclose(found.rewards, earned, rtol=1e-12)
    np.testing.assert_array_equal(found.decisions, rows / 10)
    assert found.decisions.max() == 5.0

    best = evaluate("oracle", chosen, n_users=100)
    assert best.score_low < 1.0 < best.score_high
    for agent, expected in (("random", 0.0), ("oracle", 1.0)):
        quoted = evaluate(agent, chosen, users="quoted", n_users=100)
        assert quoted.score == pytest.approx(expected, abs=1e-12)


def test_uplift_is_the_sum_of_what_slates_cause():
    """In the periods after the past, by the world's own truth; a learner knows users by that past."""
    chosen, n = task("uplift-200-v1"), 40
    world, runner = chosen.make_world(), chosen.runner()
    policy = DeployedPolicy(world)
    log = simulate(world, policy, n, chosen.seed)
    counted = log.is_bandit & (log["time"] >= 10)
    assert counted.sum() == n * 10 * 10
    uplift = world.outcomes_of(chosen.seed, np.arange(n)).uplift
    earned = np.bincount(log["user"][counted], uplift[log["user"][counted], log["action"][counted]], n)
    found = runner.run(policy, n, chosen.seed)
    np.testing.assert_allclose(found.rewards, earned, rtol=1e-12)
    assert (found.decisions == 100).all()
    best = np.sort(uplift, axis=1)[:, -10:].sum(axis=1) * 10
    np.testing.assert_allclose(runner.run(runner.policy_of("oracle"), n, chosen.seed).rewards, best, rtol=1e-12)
    past = dataclasses.replace(chosen, users=n).log()
    before = log.select(log["time"] < 10)
    for name in ("user", "action", "item", "reward", "propensity"):
        np.testing.assert_array_equal(past[name], before[name])
    fitted = []

    class Spy(Learner):
        name = "spy"

        def fit(self, log, *, n_items, seed=0):
            fitted.append(log)
            return registry.uniform_policy(n_items)

    evaluate(Spy(), chosen, n_users=n)
    np.testing.assert_array_equal(fitted[0]["action"], past["action"])


def test_a_platform_earns_what_its_users_are_expected_to_accept():
    """Of the platforms that the environment meets, whatever makes the lists."""
    chosen = dataclasses.replace(task("campaigns-60-v1"), users=2)
    runner, agent = chosen.runner(), Holders()
    found = runner.run(runner.policy_of(agent), 2, 5)
    env = gym.make("recsim_mnar/Campaigns60-v1").unwrapped
    observation, _ = env.reset(seed=5)
    for number in range(2):
        if number:
            observation, _ = env.reset()
        expected, ended, accepted = 0.0, False, 0.0
        while not ended:
            observation, reward, ended, _, _ = env.step(agent(observation))
            accepted += reward
        for campaign in env.platform.campaigns:
            chance = env.platform.acceptance(campaign.users, campaign.number)
            rows, places = np.nonzero(campaign.lists >= 0)
            expected += chance[rows, campaign.lists[rows, places]].sum()
        assert found.rewards[number] == pytest.approx(expected / 500, rel=1e-12)
        assert found.rewards[number] == pytest.approx(accepted / 500, rel=0.1)
    assert evaluate("item-knn", chosen, n_users=3).score > 0.3
    assert chosen.log()["campaign"].max() == 3


def test_quoted_users_follow_from_what_the_agent_does():
    chosen = task("cold-100-v1")
    first, again = (evaluate("popularity", chosen, users="quoted", n_users=60) for _ in range(2))
    assert first == again
    other = evaluate("popularity+epsilon=0.01", chosen, users="quoted", n_users=60)
    assert other.behaviour != first.behaviour
    assert len({other.seed, first.seed, chosen.seed}) == 3


def test_a_lead_on_quoted_users_is_the_difference_of_scores(capsys):
    """The other agent runs on the users that are quoted for the first, and the file holds the first alone."""
    chosen = task("flipped-100-v1")
    one = evaluate("user-popularity-greedy", chosen, users="quoted", n_users=300)
    other = evaluate("popularity", chosen, users=one)
    assert (other.which, other.seed, other.users) == ("shared", one.seed, 300)
    lead = one.ahead_of(other)
    assert lead.score == pytest.approx(one.score - other.score, rel=1e-9)
    influence = one.earned - other.earned - lead.score * one.room
    error = influence.std(ddof=1) / one.room.mean() / math.sqrt(300)
    assert lead.high - lead.low == pytest.approx(2 * 1.9679 * error, rel=1e-4)
    assert lead.low > 0.0
    own = evaluate("popularity", chosen, users="quoted", n_users=300)
    with refused("with users=EVALUATION, on the users of the first"):
        one.ahead_of(own)
    for wrong in ({"on": "cold-100-v1"}, {"on": chosen, "n_users": 20}):
        with refused("ask for the same"):
            evaluate("popularity", users=one, **wrong)
    asked = ["evaluate", "user-popularity-greedy", "--task", "flipped-100-v1", "--users", 300, "--quoted"]
    out = done(capsys, *asked, "--against", "popularity")
    assert f"popularity: score {other.score:.3f}; user-popularity-greedy is {lead}, user by user." in out
    public = evaluate("popularity", chosen, n_users=100)
    assert evaluate("popularity", chosen, users=public) == public


class Drawn(Learner):
    """Shows one item, by the seed of its fit."""

    name = "drawn"

    def fit(self, log, *, n_items, seed=0):
        return Always(n_items, seed % n_items)


def test_training_seeds_of_an_agent(capsys, tmp_path):
    """Each is fitted with its own seed, the first with the usual one; the score is their mean, on the same users."""
    chosen, n = task("cold-100-v1"), 80
    seeds = [derive_seed(chosen.seed, f"task/fit{place}") for place in ("", "/1", "/2")]
    agents = [Always(100, seed % 100) for seed in seeds]
    assert len({agent.item for agent in agents}) == 3
    for users in ("public", "quoted"):
        found = evaluate([Drawn()] * 3, chosen, users=users, n_users=n)
        alone = [evaluate(agent, chosen, users=found, n_users=n) for agent in agents]
        assert found.scores == pytest.approx([each.score for each in alone], abs=1e-12)
        assert found.score == pytest.approx(np.mean(found.scores), abs=1e-12)
        assert found.score_high - found.score > 2.0 * np.std(found.scores, ddof=1) / math.sqrt(3)
        np.testing.assert_allclose(found.earned, np.mean([each.earned for each in alone], axis=0))
        lead = found.ahead_of(alone[0])
        influence = found.earned - alone[0].earned - lead.score * found.room
        parts = np.array([influence.var(ddof=1) / found.room.mean() ** 2 / n, np.var(found.scores, ddof=1) / 3])
        freedom = parts.sum() ** 2 / (parts**2 / [n - 1, 2]).sum()  # Satterthwaite's, of users and of three seeds
        assert lead.high - lead.score == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(parts.sum()), rel=1e-6)
    one = evaluate([Drawn()], chosen, n_users=n)
    assert one == evaluate(Drawn(), chosen, n_users=n)
    assert "scores" not in one.to_dict()
    with refused("one per training seed"):
        evaluate([], chosen)
    asked = ["evaluate", f"{__name__}:Drawn", "--task", "cold-100-v1", "--users", n]
    file = tmp_path / "run.json"
    out = done(capsys, *asked, "--seeds", 3, "--quoted", "--json", file)
    assert "mean of 3 training seeds" in out
    assert json.loads(file.read_text())["scores"] == found.scores
    done(capsys, *asked, "--verify", file)


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


@pytest.mark.parametrize("name", sorted({*FROZEN} - {"from-log-100-v1"}))
def test_the_horizon_of_a_task_is_frozen(name):
    """A limit shortens episodes and never lengthens them; the specs say after how many steps they end."""
    *words, version = name.split("-")
    identity = f"recsim_mnar/{''.join(word.capitalize() for word in words)}-{version}"
    horizon = task(name).horizon
    for limit, bound in ((2, 2), (None, horizon), (horizon, horizon), (5000, horizon), (-1, horizon)):
        made = gym.make(identity, max_episode_steps=limit)
        assert made.spec.max_episode_steps == bound
    for limit in (2, None, horizon):
        lanes = gym.make_vec(identity, num_envs=2, vectorization_mode="vector_entry_point", max_episode_steps=limit)
        assert lanes.max_episode_steps == lanes.spec.max_episode_steps == (limit or horizon)
        assert lanes.world.params == made.unwrapped.world.params == task(name).make_world().params
    for limit in (horizon + 1, 0):
        with refused("max_episode_steps"):
            gym.make_vec(identity, num_envs=2, vectorization_mode="vector_entry_point", max_episode_steps=limit)


def test_a_long_life_ends_with_the_horizon_in_every_interface():
    """User 35 of seed 0 would stay for 568 recommendations."""
    ends = []
    single = gym.make("recsim_mnar/Flipped100-v1", max_episode_steps=5000)
    lanes = gym.make_vec("recsim_mnar/Flipped100-v1", 1, "vector_entry_point", autoreset_mode="Disabled")
    for env, action in ((single, int), (lanes, lambda item: np.array([item]))):
        env.reset(seed=0, options={"user": 35})
        for number in range(600):
            *_, terminated, truncated, _info = env.step(action(number % 100))
            if terminated or truncated:
                ends.append((number + 1, bool(terminated), bool(truncated)))
                break
    assert ends == [(500, False, True)] * 2


@pytest.mark.parametrize("name", sorted(FROZEN))
def test_a_task_says_how_its_environment_is_made(capsys, name):
    """The line makes the environment; where what was shown decides, with an observation that holds it."""
    out = done(capsys, "describe", "task", name)
    (line,) = [line for line in out.splitlines() if line.startswith("environment")]
    made = re.search(r"gym\.make\(.*?\)", line)
    if name == "from-log-100-v1":
        assert made is None
        return
    env = eval(made.group(), {"gym": gym})
    assert env.unwrapped.world.params == task(name).make_world().params
    if name == "fatigue-50-v1":
        observation, _ = env.reset(seed=1)
        after, *_ = env.step(7)
        assert observation[57] == 0
        assert after[57] > 0  # shown once, whatever was viewed since
        plain = gym.make("recsim_mnar/Fatigue50-v1")
        assert plain.observation_space.shape == (50,)


def test_references_have_names():
    """A planner of views alone gets most of what the oracle does; ahead, behind and tied are said."""
    chosen = task("flipped-100-v1")
    planner, oracle, again = (evaluate(name, chosen, n_users=300) for name in ("planner", "oracle", "oracle"))
    assert 0.9 < planner.score < oracle.score
    assert str(oracle.ahead_of(planner)).startswith("ahead, +0.0")
    assert str(planner.ahead_of(oracle)).startswith("behind, -0.0")
    assert str(oracle.ahead_of(again)) == "tied, +0.000 (+0.000 to +0.000)"


def test_what_is_learned_from_a_log_has_no_environment():
    """But a log, with the exact propensities of its policy."""
    chosen = task("from-log-100-v1")
    assert not [name for name in gym.registry if "log" in name.lower().partition("/")[2]]
    with refused(r"has no environment: it is learned from its log alone"):
        task_env(chosen.name)
    small = dataclasses.replace(chosen, log_users=200)
    log = small.log()
    kept = log["propensity"][log.is_bandit]
    assert (kept >= 0.5 / 100 - 1e-12).all()
    assert np.bincount(log["action"][log.is_bandit], weights=1.0 / kept).mean() * 100 == pytest.approx(
        100 * len(kept), rel=0.05
    )  # one over the propensity is on average the number of items


@pytest.mark.parametrize("vector", [False, True])
def test_a_tasks_parameters_are_frozen(vector):
    make = gym.make_vec if vector else gym.make
    more = {"num_envs": 2, "vectorization_mode": "vector_entry_point"} if vector else {}
    with refused(r"n_items is frozen in the task flipped-100-v1.*recsim_mnar/Sessions-v0"):
        make("recsim_mnar/Flipped100-v1", **more, n_items=20)
    with refused("unknown keyword 'observatoin'; did you mean 'observation'"):
        make("recsim_mnar/Flipped100-v1", **more, observatoin="last")
    made = make("recsim_mnar/Flipped100-v1", **more, observation="last=5")
    assert made.observation_space.shape == ((2, 5) if vector else (5,))


def test_what_cannot_be_evaluated_is_said(capsys, tmp_path):
    with refused("unknown task 'fatigue-50-v2'"):
        evaluate("random", "fatigue-50-v2")
    with refused("FeaturePolicy"):
        evaluate(lambda counts: counts, "sessions-10-v1")
    with refused("n_users=500"):
        evaluate("random", "sessions-10-v1", users=500)
    with refused("learns from all users"):
        evaluate("lin-ucb", "sessions-10-v1", n_users=10)
    for name in UNLIKE:
        with refused("unknown agent 'planner'"):
            evaluate("planner", name, n_users=2)
        with refused("by rank, softening would change nothing"):
            evaluate("popularity+epsilon=0.1", name, n_users=2)
    with refused(r"must give weights of shape \(60,\), got \(61,\)"):
        evaluate(lambda observation: observation, "campaigns-60-v1", n_users=2)
    with refused("weights must be finite and not negative"):
        evaluate(lambda observation: -observation[:-1], "campaigns-60-v1", n_users=2)
    for name in ("sessions-10-v1", *UNLIKE):
        with refused("its n_items is 7"):
            evaluate(registry.uniform_policy(7), name, n_users=2)


def test_the_command_says_writes_and_verifies(capsys, tmp_path):
    file = tmp_path / "run.json"
    asked = ["evaluate", "popularity", "--task", "cold-100-v1", "--quoted", "--users", 50]
    done(capsys, *asked, "--json", file)
    held = json.loads(file.read_text())
    assert held["task_digest"] == FROZEN["cold-100-v1"]
    out = done(capsys, "evaluate", "popularity", "--task", "cold-100-v1", "--verify", file)
    assert f"{file} holds." in out
    for agent, content, words in (
        ("random", held, "does not hold: agent, behaviour"),
        ("popularity", {**held, "score": held["score"] + 0.1}, "score differ"),
        ("popularity", {}, "is no evaluation that --json wrote"),
    ):
        file.write_text(json.dumps(content))
        assert words in fails(capsys, "evaluate", agent, "--task", "cold-100-v1", "--verify", file)
    out = done(capsys, "list", "tasks")
    assert all(name in out for name in FROZEN)
    assert "planning-oracle: 1.23946 per user" in done(capsys, "describe", "fatigue-50-v1")
