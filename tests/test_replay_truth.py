"""Replay agrees with acting, and truth with brute force."""

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import Policy, registry
from recsim_mnar.protocols.ab_test import run_arm
from recsim_mnar.replays import truth
from recsim_mnar.replays.probabilities import replay, rounds_of
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins import sessions as twin
from twins.policies import MostViewed, OrderReader, Uniform

P = 15


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, n_flips=4, drift_in_bandit=True))


@pytest.fixture(scope="module")
def steady():
    return SessionsWorld(SessionsParams(n_items=P, n_flips=4, catalogue_seed=2))


class Counter(Policy):
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

    def _favourite(self, users):
        return np.array([sum(self.state[int(u)]) % P for u in users])

    def act(self, users, uniforms):
        favourite = self._favourite(users)
        explore = uniforms < 0.5
        random = np.minimum((uniforms / 0.5 * P).astype(int), P - 1)
        actions = np.where(explore, random, favourite)
        return actions, self.propensity_of(users, actions)

    def propensity_of(self, users, actions):
        return 0.5 / P + 0.5 * (self._favourite(users) == actions)

    def probabilities(self, users):
        return 0.5 / P + 0.5 * np.eye(P)[self._favourite(users)]

    def fresh(self):
        return Counter()


@pytest.mark.parametrize(
    "policy",
    [Uniform(P), OrderReader(P), Counter(), "user-popularity", "user-popularity+epsilon=0.3", "random"],
    ids=lambda p: p if isinstance(p, str) else p.name,
)
def test_replaying_the_logging_policy_gives_its_propensities(world, policy):
    if isinstance(policy, str):
        policy = registry.learner(policy).fit(Log({}), n_items=P, seed=0)
    log = simulate(world, policy, 60, 4)
    probability = replay(log, policy)
    shown = log.is_bandit
    np.testing.assert_array_equal(probability[shown], log["propensity"][shown])
    assert np.isnan(probability[~shown]).all()


def test_replay_agrees_with_going_through_the_log_row_by_row(world):
    log = simulate(world, Uniform(P), 25, 8)
    for policy in (OrderReader(P), MostViewed(P), Counter()):
        fresh, expected = policy.fresh(), []
        for user in log.users():
            fresh.reset(np.array([user]))
            for row in np.flatnonzero(log["user"] == user):
                one = np.array([user])
                if log["event"][row] == 0:
                    fresh.observe(one, log["item"][row : row + 1])
                    expected.append(np.nan)
                else:
                    expected.append(float(fresh.propensity_of(one, log["action"][row : row + 1])[0]))
                    fresh.learn(one, *(log[name][row : row + 1] for name in ("action", "reward", "propensity")))
        np.testing.assert_array_equal(replay(log, policy), expected)


@pytest.mark.parametrize("one_by_one", [True, False])
def test_visits_hold_every_decision_once_and_in_order(world, one_by_one):
    log = simulate(world, Uniform(P), 30, 8)
    met = {}
    for _, views, decisions, *_ in rounds_of(log, one_by_one=one_by_one):
        for rows in (views, decisions):
            for row in rows:
                assert row > met.get(log["user"][row], -1)
                met[log["user"][row]] = row
        if one_by_one:
            assert len(set(log["user"][decisions])) == len(decisions)
    all_decisions = np.concatenate([each.decisions for each in rounds_of(log, one_by_one=one_by_one)])
    assert sorted(all_decisions) == np.flatnonzero(log.is_bandit).tolist()


@pytest.mark.parametrize("fixture", ["world", "steady"])
def test_value_on_log_agrees_with_the_twin(fixture, request):
    world = request.getfixturevalue(fixture)
    log = simulate(world, Uniform(P), 12, 31)
    policies = {"order": OrderReader(P), "most": MostViewed(P), "uniform": Uniform(P)}
    _, _, beta, mu_b = twin.catalogue(world.params)
    lives = [twin.life(world.params, twin.catalogue(world.params), 31, u, twin.uniform_policy(P)) for u in range(12)]
    sums, n = dict.fromkeys(policies, 0.0), 0
    for life in lives:
        history = []
        for row in life:
            if row.event == "organic":
                history.append(row.item)
                continue
            n += 1
            clicks = np.array([twin.ff(beta[a] @ np.ravel(row.omega) + np.ravel(mu_b)[a]) for a in range(P)]).ravel()
            sums["order"] += (clicks[history[0]] + clicks[history[-1]]) / 2
            sums["most"] += clicks[np.bincount(history, minlength=P).argmax()]
            sums["uniform"] += clicks.mean()
    values = truth.value_on_log(world, log, policies, 31)
    for name, value in values.items():
        assert value == pytest.approx(sums[name] / n, rel=1e-9)


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
    with pytest.raises(UserError, match=words):
        call(world, log)


def test_exact_click_probabilities_agree_with_clicks(world):
    arm = run_arm(world, Uniform(P), 4000, 5)
    rate, exact = arm.rewards.sum() / arm.decisions.sum(), arm.means.sum() / arm.decisions.sum()
    assert abs(rate - exact) < 4 * np.sqrt(exact / arm.decisions.sum())


def test_replay_of_a_softened_policy_whose_users_decide_often(world):
    policy = registry.learner("user-popularity+temperature=0.5").fit(Log({}), n_items=P, seed=0)
    policy._capacity = 70  # fewer than the decisions of a round, more than the users
    log = simulate(world, policy, 60, 4)
    np.testing.assert_array_equal(replay(log, policy)[log.is_bandit], log["propensity"][log.is_bandit])


def test_simulating_leaves_the_callers_policy_as_it_was(world):
    class Hoarder(Uniform):
        def __init__(self, n_items):
            super().__init__(n_items)
            self.seen = {}

        def observe(self, users, items):
            self.seen.update(zip(users.tolist(), items.tolist(), strict=True))

    policy = Hoarder(P)
    simulate(world, policy, 20, 1)
    assert policy.seen == {}
