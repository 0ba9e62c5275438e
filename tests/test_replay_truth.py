"""Replay agrees with acting, and truth with brute force."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from recsim_mnar.replays import truth
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import Drawing, refused, untrained
from twins import sessions as twin
from twins.policies import MostViewed, OrderReader, Uniform

P = 15


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, n_flips=4, drift_in_bandit=True))


class Counter(Drawing):
    """Learns: takes the item number that it was rewarded so often, in each user's life."""

    name = "counter"
    n_items = P
    learns = "own user"

    def __init__(self):
        self.state = {}

    def reset(self, users):
        self.state.update((int(u), [0, 0]) for u in users)

    def observe(self, users, items):
        for u in users:
            self.state[int(u)][0] += 1

    def learn(self, users, actions, rewards, propensities):
        for u, a in zip(users, actions, strict=True):
            self.state[int(u)][1] += int(a) + 1

    def probabilities(self, users):
        favourite = [sum(self.state[user]) % P for user in users.tolist()]
        return 0.5 / P + 0.5 * np.eye(P)[favourite]


@pytest.mark.parametrize(
    "policy",
    [Uniform(P), OrderReader(P), Counter(), "user-popularity", "user-popularity+epsilon=0.3", "random"],
    ids=lambda p: p if isinstance(p, str) else p.name,
)
def test_replaying_the_logging_policy_gives_its_propensities(world, policy):
    if isinstance(policy, str):
        policy = untrained(policy, P)
    log = simulate(world, policy, 60, 4)
    probability = replay(log, policy)
    shown = log.is_bandit
    assert_array_equal(probability[shown], log["propensity"][shown])
    assert np.isnan(probability[~shown]).all()


def test_replay_agrees_with_going_through_the_log_row_by_row(world):
    log = simulate(world, Uniform(P), 25, 8)
    for policy in (OrderReader(P), MostViewed(P), Counter()):
        fresh = policy.fresh()
        expected = np.full(len(log), np.nan)
        fresh.reset(log.users())
        for row in range(len(log)):
            user, item, action, reward, propensity = (
                log[name][row : row + 1] for name in ("user", "item", "action", "reward", "propensity")
            )
            if log.is_bandit[row]:
                expected[row] = fresh.propensity_of(user, action)[0]
                fresh.learn(user, action, reward, propensity)
            else:
                fresh.observe(user, item)
        assert_array_equal(replay(log, policy), expected)


@pytest.mark.parametrize("more", [{"drift_in_bandit": True}, {"catalogue_seed": 2}])
def test_value_on_log_agrees_with_the_twin(more):
    world = SessionsWorld(SessionsParams(n_items=P, n_flips=4, **more))
    log = simulate(world, Uniform(P), 12, 31)
    policies = {"order": OrderReader(P), "most": MostViewed(P), "uniform": Uniform(P)}
    catalogue = twin.catalogue(world.params)
    _, _, beta, mu_b = catalogue
    earned = {name: [] for name in policies}
    for user in range(12):
        history = []
        for row in twin.life(world.params, catalogue, 31, user, twin.uniform_policy(P)):
            if row.event == "organic":
                history.append(row.item)
                continue
            clicks = np.array([twin.ff(beta[a] @ np.ravel(row.omega) + np.ravel(mu_b)[a]) for a in range(P)]).ravel()
            earned["order"].append((clicks[history[0]] + clicks[history[-1]]) / 2)
            earned["most"].append(clicks[np.bincount(history, minlength=P).argmax()])
            earned["uniform"].append(clicks.mean())
    expected = {name: np.mean(clicks) for name, clicks in earned.items()}
    assert truth.value_on_log(world, log, policies, 31) == pytest.approx(expected, rel=1e-9)


class Ones(Uniform):
    """Its probabilities are none."""

    def probabilities(self, users):
        return np.ones((len(users), P))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda world, log: truth.value_on_log(world, log, {"u": Uniform(P)}, 32), "does not follow"),  # another seed
        (lambda world, log: replay(log, Uniform(3)), "knows items"),
        (lambda world, log: replay(log, Ones(P)), "sum to 1"),
        (lambda world, log: truth.value_on_log(world, log, {"ones": Ones(P)}, 31), "sum to 1"),
    ],
)
def test_what_cannot_be_replayed_is_refused(world, call, words):
    log = simulate(world, Uniform(P), 10, 31)
    with refused(words):
        call(world, log)


def test_replay_of_a_softened_policy_whose_users_decide_often(world):
    policy = untrained("user-popularity+temperature=0.5", P)
    policy._capacity = 70  # fewer than the decisions of a round, more than the users
    log = simulate(world, policy, 60, 4)
    assert_array_equal(replay(log, policy)[log.is_bandit], log["propensity"][log.is_bandit])
