"""Contexts of what was shown: the same numbers in logs, environments and policies, and what they are worth."""

from __future__ import annotations

import numpy as np
import pytest

import recsim_mnar
from recsim_mnar.envs import world_env, world_vector_env
from recsim_mnar.envs.recording import record, record_vector
from recsim_mnar.errors import UserError
from recsim_mnar.export import decisions, distributions
from recsim_mnar.log import Log
from recsim_mnar.log.contexts import ContextRule
from recsim_mnar.policies import EpsilonMixture, FeaturePolicy, SoftmaxPolicy
from recsim_mnar.policies.door import learning_of
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.tasks import evaluating as definition
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins import histories
from twins.cases import quick_first
from twins.policies import Uniform

P = 7
SEED = 3


def scores(x):
    """Of views, showings and clicks, so that every third of the row matters."""
    return x @ np.random.default_rng(5).normal(size=(3 * P, P))


def distribution(x):
    weight = np.exp(scores(x) - scores(x).max(axis=1, keepdims=True))
    return weight / weight.sum(axis=1, keepdims=True)


POLICIES = {
    "scores": lambda: FeaturePolicy(P, "shown=0.8", scores=scores, rows=8),
    "distribution": lambda: FeaturePolicy(P, "shown=0.8", distribution=distribution, rows=8),
    "softmax": lambda: SoftmaxPolicy(FeaturePolicy(P, "shown=0.8", scores=scores, rows=8), 0.5),
    "epsilon": lambda: EpsilonMixture(FeaturePolicy(P, "shown", scores=scores, rows=8), 0.3),
}


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.05, p_leave_organic=0.1, fatigue=0.5))


@pytest.fixture(scope="module")
def log(world):
    return simulate(world, Uniform(P), 150, SEED)


def by_hand():
    """Three users: clicks, rewards that are no clicks, and one who leaves without a decision."""
    item = [2, 2, -1, -1, 0, -1, 1, 1, -1, -1, -1]
    shown = np.array(item) < 0
    n = len(item)
    return Log(
        {
            "user": np.array([4, 4, 4, 4, 4, 4, 6, 6, 9, 9, 9]),
            "step": np.array([0, 1, 2, 3, 4, 5, 0, 1, 0, 1, 2]),
            "time": np.arange(n, dtype=float),
            "event": shown.astype(np.int8),
            "item": np.array(item),
            "action": np.where(shown, [0, 0, 1, 1, 0, 2, 0, 0, 2, 2, 0], -1),
            "reward": np.where(shown, [0, 0, 1.0, 0.0, 0, 1.0, 0, 0, 0.1, -2.5, 1e3], np.nan),
            "propensity": np.where(shown, 0.5, np.nan),
        }
    )


@pytest.mark.parametrize("decay", quick_first([0.0, 0.3, 0.9, 1.0], 2))
def test_a_log_against_a_plain_twin(log, decay):
    for rows, n_items in ((log, P), (by_hand(), 3)):
        given, finals = ContextRule("shown", decay).of(rows, n_items)
        expected, ends = histories.contexts(rows, n_items, "shown", decay)
        assert given.dtype == np.float32
        np.testing.assert_array_equal(given, np.array(expected))
        np.testing.assert_array_equal(finals, np.array(list(ends.values())))


def test_the_definition_in_numbers():
    given, finals = ContextRule("shown", 0.5).of(by_hand(), 3)
    assert given[:3].tolist() == [
        [0, 0, 1.5, 0, 0, 0, 0, 0, 0],  # views of item 2, one event after the other
        [0, 0, 0.75, 0, 1, 0, 0, 1, 0],  # item 1 was shown and clicked
        [1, 0, 0.1875, 0, 0.75, 0, 0, 0.25, 0],  # shown again without a click, then item 0 was viewed
    ]
    assert finals[1].tolist() == [0, 1.5, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("lanes", quick_first([None, 1, 5]))
def test_environments_observe_the_contexts_of_the_log(world, log, lanes):
    """At every decision and at the end of every user, in lanes too, where most steps come to nothing."""
    made = decisions(log, P, context="shown=0.8")
    rows = {int(made.user[part.start]): part for part in made.episodes()}
    finals = {user: made.final[number] for number, user in enumerate(rows)}
    asked = {"observation": "shown=0.8"}
    compared = 0
    if lanes is None:
        env = world_env(world, **asked)
        observed, info = env.reset(seed=SEED)
        while (user := info["user"]) in rows:
            for row in range(rows[user].start, rows[user].stop):
                np.testing.assert_array_equal(observed, made.context[row])
                observed, *_ = env.step(made.action[row])
                compared += 1
            np.testing.assert_array_equal(observed, finals[user])
            observed, info = env.reset()
        assert compared == len(made)
        return
    env = world_vector_env(lanes, world=world, **asked)
    observed, infos = env.reset(seed=SEED)
    place, ended = np.zeros(lanes, int), np.zeros(lanes, bool)
    while compared < len(made):
        actions = np.zeros(lanes, np.int64)
        for lane, user in enumerate(infos["user"].tolist()):
            if user in rows and not ended[lane]:
                row = rows[user].start + place[lane]
                np.testing.assert_array_equal(observed[lane], made.context[row])
                actions[lane] = made.action[row]
                compared += 1
            elif user in rows:
                np.testing.assert_array_equal(observed[lane], finals[user])
        place = np.where(ended, 0, place + 1)
        observed, _rewards, ended, _cut, infos = env.step(actions)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_its_log_and_its_replay(world, name):
    made = POLICIES[name]()
    log = simulate(world, made, 60, SEED)
    shown = log.is_bandit
    np.testing.assert_array_equal(replay(log, POLICIES[name]())[shown], log["propensity"][shown])
    whole = distributions(log, POLICIES[name]())
    np.testing.assert_array_equal(whole[np.arange(len(whole)), log["action"][shown]], log["propensity"][shown])
    assert record(world_env(world), made, 60, SEED).digest() == log.digest()
    for lanes in (1, 6):
        assert record_vector(world_vector_env(lanes, world=world), made, 60, SEED).digest() == log.digest()
    assert learning_of(made) == "own user"
    assert not made.batches_decisions


def test_the_features_are_those_of_the_log(world):
    """What the policy was asked at each decision, from its own log."""
    asked = []

    def uniform(x):
        asked.extend(row.tobytes() for row in x)
        return np.full((len(x), P), 1.0 / P)

    log = simulate(world, FeaturePolicy(P, "shown=0.8", distribution=uniform), 40, SEED)
    rows = [row.tobytes() for row in decisions(log, P, context="shown=0.8").context]
    assert set(rows) <= set(asked)
    first = decisions(log, P, context="shown=0.8")
    expected = distribution(first.context)[np.arange(len(first)), first.action]
    other = replay(log, FeaturePolicy(P, "shown=0.8", distribution=distribution))
    np.testing.assert_allclose(other[log.is_bandit], expected, rtol=1e-6)


def test_only_the_rule_that_needs_it_learns():
    class Learner(FeaturePolicy):
        def learn(self, users, actions, rewards, propensities):
            super().learn(users, actions, rewards, propensities)

    for features in ("counts", "decayed", "last"):
        policy = FeaturePolicy(P, features, scores=lambda x: np.zeros((len(x), P)))
        assert learning_of(policy) == "nothing"
        assert policy.batches_decisions
    known = FeaturePolicy(P, "shown", scores=lambda x: x, user_features=lambda users: np.ones((len(users), P)))
    assert learning_of(known) == "nothing"
    assert learning_of(Learner(P, scores=lambda x: x)) == "all users"
    assert learning_of(Learner(P, "shown", scores=scores)) == "all users"


def test_an_answer_is_forgotten_when_something_is_shown():
    asked = []

    def counting(x):
        asked.append(len(x))
        return scores(x)

    policy, users = FeaturePolicy(P, "shown=0.5", scores=counting), np.array([5, 6])
    policy.reset(users)
    policy.probabilities(users)
    policy.learn(users[:1], np.array([4]), np.array([1.0]), np.array([0.5]))
    policy.probabilities(users)
    assert asked == [2, 1]
    expected = np.zeros(3 * P)
    expected[[P + 4, 2 * P + 4]] = 1
    np.testing.assert_array_equal(policy.features(users), [expected, np.zeros(3 * P)])
    assert policy.describe() == {"name": "features", "features": "shown", "decay": 0.5}
    with pytest.raises(UserError, match="item 7 is out of range"):
        policy.learn(users[:1], np.array([P]), np.array([0.0]), np.array([0.5]))


def test_spaces_are_alike_only_for_the_same_rule():
    rules = [
        *(ContextRule("shown", decay) for decay in (0.5, 0.8, 0.9, 1.0)),
        ContextRule("decayed", 0.9),
        ContextRule("counts"),
    ]
    spaces = [rule.space(n_items) for rule in rules for n_items in (P, 3 * P)]
    assert [[one == other for other in spaces] for one in spaces] == np.eye(len(spaces), dtype=bool).tolist()
    assert world_env(make_world("sessions", None, [f"n_items={P}"]), observation="shown").observation_space == (
        ContextRule("shown", 0.9).space(P)
    )


def test_it_is_refused_where_it_has_no_meaning():
    for world, has in (("ratings", "ratings"), ("purchases", "slates")):
        for make in (world_env, lambda made, **asked: world_vector_env(2, world=made, **asked)):
            with pytest.raises(UserError, match=f"the {world} world has {has}"):
                make(make_world(world, "quick"), observation="shown")
    with pytest.raises(UserError, match="the log has item 2, but n_items = 2"):
        ContextRule("shown").of(by_hand().select(by_hand()["user"] == 9), 2)


def test_it_holds_what_the_sessions_world_calls_recency():
    """Where the decay is fatigue_memory: the truth moves with the observation alone while interests stay."""
    tiring = {"fatigue": 0.7, "fatigue_spread": 0.0, "fatigue_memory": 0.8, "fatigue_of_views": 0.5}
    env = world_env(SessionsWorld(SessionsParams(n_items=P, sigma_omega=0.0, **tiring)), observation="shown=0.8")
    env.action_space.seed(1)
    observed, _ = env.reset(seed=SEED)
    rested, ended, steps = [], False, 0
    while not ended:
        recency = 0.8 * (observed[P : 2 * P] + 0.5 * observed[:P])
        rested.append(env.reward_means() * np.exp(0.7 * recency))
        observed, _, ended, _, _ = env.step(env.action_space.sample())
        steps += 1
    np.testing.assert_allclose(rested, np.tile(rested[0], (steps, 1)), rtol=1e-5)
    assert steps > 20


@pytest.mark.slow
def test_users_who_tire_are_served_better_by_who_knows_what_was_shown():
    """Log click rate of an item, less a penalty for showing it again: with the penalty and without it."""
    task = "fatigue-50-v1"
    world = definition.task(task).make_world()
    n_items = world.n_items
    log = simulate(world, Uniform(n_items), 3_000, 77)
    shown = log.is_bandit
    clicks = np.bincount(log["action"][shown], log["reward"][shown], n_items)
    rate = (clicks + 1) / (np.bincount(log["action"][shown], minlength=n_items) + 100)

    def agent(penalty):
        return FeaturePolicy(
            n_items,
            "shown=0.9",
            scores=lambda x: np.log(rate) - penalty * x[:, n_items : 2 * n_items],
            name=f"penalty-{penalty:g}",
        )

    tiring, plain = (recsim_mnar.evaluate(agent(penalty), task, n_users=500) for penalty in (0.45, 0.0))
    lead = tiring.ahead_of(plain)
    assert lead.low > 0
    assert tiring.score_low > 0  # and better than chance, which repeats little
