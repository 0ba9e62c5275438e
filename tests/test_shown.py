"""Contexts of what was shown: the same numbers in logs, environments and policies."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from recsim_mnar.envs import world_env, world_vector_env
from recsim_mnar.log.contexts import ContextRule
from recsim_mnar.policies import FeaturePolicy
from recsim_mnar.policies.door import learning_of
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused
from twins import histories
from twins.cases import quick_first
from twins.logs import log_of
from twins.policies import Uniform

P = 7
SEED = 3


def scores(x):
    """Score views, showings and clicks, so that every third of the row matters."""
    return x @ np.random.default_rng(5).normal(size=(3 * P, P))


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.05, p_leave_organic=0.1, fatigue=0.5))


@pytest.fixture(scope="module")
def log(world):
    return simulate(world, Uniform(P), 150, SEED)


def by_hand():
    """Three users: clicks, rewards that are no clicks, and one who leaves without a decision."""
    user = np.array([4, 4, 4, 4, 4, 4, 6, 6, 9, 9, 9])
    item = np.array([2, 2, -1, -1, 0, -1, 1, 1, -1, -1, -1])
    action = np.array([-1, -1, 1, 1, -1, 2, -1, -1, 2, 2, 0])
    reward = np.where(action < 0, np.nan, [0, 0, 1.0, 0.0, 0, 1.0, 0, 0, 0.1, -2.5, 1e3])
    return log_of(user, item, action, np.where(action < 0, np.nan, 0.5), reward)


@pytest.mark.parametrize("decay", quick_first([0.0, 0.3, 0.9, 1.0], 2))
def test_a_log_against_a_plain_twin(log, decay):
    for rows, n_items in ((log, P), (by_hand(), 3)):
        contexts, finals = ContextRule("shown", decay).of(rows, n_items)
        expected, ends = histories.contexts(rows, n_items, "shown", decay)
        assert contexts.dtype == np.float32
        assert_array_equal(contexts, np.array(expected))
        assert_array_equal(finals, np.array(list(ends.values())))


def test_only_the_rule_that_needs_it_learns():
    class Learner(FeaturePolicy):
        def learn(self, users, actions, rewards, propensities):
            super().learn(users, actions, rewards, propensities)

    for features in ("counts", "decayed", "last"):
        policy = FeaturePolicy(P, features, scores=lambda x: np.zeros((len(x), P)))
        assert learning_of(policy) == "nothing"
        assert policy.batches_decisions
    shown = FeaturePolicy(P, "shown", scores=scores)
    assert (learning_of(shown), shown.batches_decisions) == ("own user", False)
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
    assert_array_equal(policy.features(users), [expected, np.zeros(3 * P)])
    assert policy.describe() == {"name": "features", "features": "shown", "decay": 0.5}
    with refused("item 7 is out of range"):
        policy.learn(users[:1], np.array([P]), np.array([0.0]), np.array([0.5]))


def test_spaces_are_alike_only_for_the_same_rule():
    rules = [*(ContextRule("shown", decay) for decay in (0.5, 0.8, 0.9, 1.0)),
             ContextRule("decayed", 0.9), ContextRule("counts")]  # fmt: skip
    spaces = [rule.space(n_items) for rule in rules for n_items in (P, 3 * P)]
    assert_array_equal([[one == other for other in spaces] for one in spaces], np.eye(len(spaces), dtype=bool))
    env = world_env(make_world("sessions", None, [f"n_items={P}"]), observation="shown")
    assert env.observation_space == ContextRule("shown", 0.9).space(P)


def test_it_is_refused_where_it_has_no_meaning():
    for world, has in (("ratings", "ratings"), ("purchases", "slates")):
        for make in (world_env, lambda made, **asked: world_vector_env(2, world=made, **asked)):
            with refused(f"the {world} world has {has}"):
                make(make_world(world, "quick"), observation="shown")
    with refused("the log has item 2, but n_items = 2"):
        ContextRule("shown").of(by_hand().select(by_hand()["user"] == 9), 2)


def test_it_holds_what_the_sessions_world_calls_recency():
    """With fatigue_memory as the decay, the truth moves with the observation alone while interests stay."""
    tiring = {"fatigue": 0.7, "fatigue_spread": 0.0, "fatigue_memory": 0.8, "fatigue_of_views": 0.5}
    env = world_env(SessionsWorld(SessionsParams(n_items=P, sigma_omega=0.0, **tiring)), observation="shown=0.8")
    env.action_space.seed(1)
    observed, _ = env.reset(seed=SEED)
    rested = []
    ended = False
    while not ended:
        recency = 0.8 * (observed[P : 2 * P] + 0.5 * observed[:P])
        rested.append(env.reward_means() * np.exp(0.7 * recency))
        observed, _, ended, _, _ = env.step(env.action_space.sample())
    assert_allclose(rested, np.broadcast_to(rested[0], np.shape(rested)), rtol=1e-5)
    assert len(rested) > 20
