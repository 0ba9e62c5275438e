"""Odd policies are refused where the log is made, with both numbers in one line; legitimate ones are not."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.envs import WorldEnv, WorldVectorEnv
from recsim_mnar.envs.recording import record, record_vector
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policy import Policy, registry
from recsim_mnar.policy.acting import GRID, Acting
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.online import simulate_online
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

P = 6


class Right(Policy):
    """Half the time the item viewed last, by inversion of its distribution."""

    name = "right"

    def __init__(self, n_items=P):
        self.n_items = n_items
        self.last = {}

    def reset(self, users):
        self.last.update(dict.fromkeys(users.tolist(), 0))

    def observe(self, users, items):
        self.last.update(zip(users.tolist(), items.tolist(), strict=True))

    def probabilities(self, users):
        favourite = [self.last[user] for user in users.tolist()]
        return 0.5 / self.n_items + 0.5 * np.eye(self.n_items)[favourite]

    def draw(self, users, uniforms):
        edges = np.cumsum(self.probabilities(users), axis=1)
        return np.minimum((edges <= np.asarray(uniforms)[:, None]).sum(axis=1), self.n_items - 1)

    def act(self, users, uniforms):
        actions = self.draw(users, uniforms)
        return actions, self.propensity_of(users, actions)


class WrongPropensity(Right):
    """States 1 / P, and draws by its distribution."""

    def act(self, users, uniforms):
        return self.draw(users, uniforms), np.full(len(users), 1 / P)


class DependsOnTheBatch(Right):
    """Mixes in what the others of the call like."""

    def probabilities(self, users):
        own = super().probabilities(users)
        return 0.5 * own + 0.5 * own.mean(axis=0)


class ChangesState(Right):
    """``act`` counts as a view of the item shown."""

    def act(self, users, uniforms):
        actions, propensities = super().act(users, uniforms)
        self.observe(users, actions)
        return actions, propensities


class OwnGenerator(Right):
    """Draws by a generator of its own."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.generator = np.random.default_rng(0)

    def act(self, users, uniforms):
        return super().act(users, self.generator.random(len(users)))


class MutatesItsInput(Right):
    """Sorts what it is handed."""

    def act(self, users, uniforms):
        uniforms *= 0.5
        return super().act(users, uniforms)


class UnlikeItsDraws(Right):
    """States the same thing everywhere, and draws otherwise: uniforms squared."""

    def draw(self, users, uniforms):
        return super().draw(users, np.asarray(uniforms) ** 2)


class StaleAfterLearn(Right):
    """Says the probabilities of before ``learn``; acts and states by those after."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.weights = np.ones(n_items)
        self.said = None

    def _now(self, users):
        return np.tile(self.weights / self.weights.sum(), (len(users), 1))

    def probabilities(self, users):
        if self.said is None:
            self.said = self._now([0])
        return np.repeat(self.said, len(users), axis=0)

    def act(self, users, uniforms):
        now = self._now(users)
        actions = np.minimum((np.cumsum(now, axis=1) <= np.asarray(uniforms)[:, None]).sum(axis=1), P - 1)
        return actions, now[np.arange(len(users)), actions]

    def learn(self, users, actions, rewards, propensities):
        np.add.at(self.weights, actions, 1.0)


class StaleForItsOwnUsers(StaleAfterLearn):
    """The same, said to learn from each user alone, so that ``simulate`` takes it."""

    learns = "own user"


class IgnoresTheUniform(Right):
    """Takes the likeliest item, whatever the uniform, and states its probability."""

    def draw(self, users, uniforms):
        return self.probabilities(users).argmax(axis=1)


class NotAllItsMass(Right):
    """Its probabilities sum to less than 1."""

    def probabilities(self, users):
        return 0.9 * super().probabilities(users)


NUMBER = r"[0-9.e-]+"
ODD = [
    (WrongPropensity, rf"act\(\) states {NUMBER} for item \d of user 0, probabilities\(\) says {NUMBER}"),
    (DependsOnTheBatch, rf"act\(\) states {NUMBER} for item \d of user \d+, propensity_of\(\) then says {NUMBER}"),
    (ChangesState, rf"act\(\) states {NUMBER} for item \d of user 0, probabilities\(\) says {NUMBER}"),
    (OwnGenerator, r"asked twice for user 0 with the uniform 0\.\d+, act\(\) takes item \d and item \d"),
    (MutatesItsInput, r"act\(\) writes in the arrays that it is handed"),
    (
        UnlikeItsDraws,
        rf"at 512 even uniforms act\(\) takes item \d for user 0 in {NUMBER} of them, prob.* says {NUMBER}",
    ),
    (StaleAfterLearn, rf"learns from all users|act\(\) states {NUMBER} .* propensity_of\(\) then says {NUMBER}"),
    (StaleForItsOwnUsers, rf"act\(\) states {NUMBER} for item \d of user \d+, propensity_of\(\) then says {NUMBER}"),
    (IgnoresTheUniform, rf"at 512 even uniforms act\(\) takes item \d for user 0 in 1 of them, prob.* says {NUMBER}"),
    (NotAllItsMass, r"its probabilities must sum to 1, a sum is 0\.9"),
]
RUNS = {
    "simulate": lambda world, policy: simulate(world, policy, 60, 3),
    "simulate_online": lambda world, policy: simulate_online(world, policy, 60, 3, lanes=16),
    "record": lambda world, policy: record(WorldEnv(world), policy, 20, 3),
    "record_vector": lambda world, policy: record_vector(WorldVectorEnv(world, 16), policy, 60, 3),
}


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1))


@pytest.mark.parametrize("run", [name for name in RUNS if name != "record"])
@pytest.mark.parametrize(("kind", "words"), ODD, ids=lambda thing: getattr(thing, "__name__", ""))
def test_an_odd_policy_is_refused_in_one_line(world, run, kind, words):
    with pytest.raises(UserError, match=f"^policy 'right':? ({words})") as refused:
        RUNS[run](world, kind())
    assert "\n" not in str(refused.value)


def test_one_user_at_a_time_shows_no_batch(world):
    """In a single environment nobody else is asked, so nothing depends on it, and the log is right."""
    log = record(WorldEnv(world), DependsOnTheBatch(), 20, 3)
    np.testing.assert_array_equal(log["propensity"][log.is_bandit] > 0, True)


class Single(Right):
    """Float32 throughout."""

    def probabilities(self, users):
        return super().probabilities(users).astype(np.float32)


class Seeded(Right):
    """The uniform seeds a generator: its actions over even uniforms are as if drawn."""

    def draw(self, users, uniforms):
        drawn = [np.random.default_rng(int(u * 2**53)).random() for u in np.asarray(uniforms).tolist()]
        return super().draw(users, np.array(drawn))


class OrderOfRounds(Right):
    """Learns from all users: what it does depends on who came before."""

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.total = 1

    def learn(self, users, actions, rewards, propensities):
        for user, action in zip(users.tolist(), actions.tolist(), strict=True):
            self.total = (31 * self.total + 7 * user + action) % 1009

    def probabilities(self, users):
        likes = 1.0 + (self.total + np.arange(self.n_items)) % 4
        return np.tile(likes / likes.sum(), (len(users), 1))


class OnlyActs:
    """Without ``probabilities``: nothing to hold it against but the range of what it states."""

    name, n_items = "bare", P

    def act(self, users, uniforms):
        return np.minimum((uniforms * P).astype(int), P - 1), np.full(len(users), 1 / P)


@pytest.mark.parametrize("kind", [Right, Single, Seeded, OrderOfRounds, OnlyActs])
def test_a_legitimate_policy_is_accepted(world, kind):
    for name, run in RUNS.items():
        if kind is not OrderOfRounds or name == "simulate_online":
            run(world, kind())
    if kind in (Single, OrderOfRounds):
        log = simulate_online(world, kind(), 60, 3, lanes=7).log
        shown = log.is_bandit
        np.testing.assert_allclose(replay(log, kind())[shown], log["propensity"][shown], atol=1e-6)


@pytest.mark.parametrize("spec", ["user-popularity", "user-popularity+epsilon=0.3", "random+epsilon=0.5"])
def test_agents_of_this_package_are_accepted_with_few_questions(world, spec):
    policy = registry.learner(spec).fit(Log({}), n_items=P, seed=0)
    simulate(world, policy, 40, 3)


class Counting(Right):
    """Counts what it is asked."""

    asked = None

    def act(self, users, uniforms):
        self.asked["act"] += len(users)
        return super().act(users, uniforms)

    def propensity_of(self, users, actions):
        self.asked["price"] += len(users)
        return self.probabilities(users)[np.arange(len(users)), actions]


def test_what_is_asked_is_bounded_and_the_grid_comes_once_for_a_policy():
    policy = Counting()
    policy.asked = {"act": 0, "price": 0}
    users = np.arange(40)
    policy.reset(users)
    for _ in range(2):
        acting, calls = Acting(policy, P), 300
        policy.asked.update(act=0, price=0)
        for k in range(calls):
            acting(users.copy(), np.random.default_rng(k).random(40))
        grid = policy.asked["act"] - 40 * calls
        checks = policy.asked["price"] - policy.asked["act"]  # act asks once for each of its own
        assert checks == 8 * 6  # calls 0, 1, 4, 16, 64, 256, eight users each
        if _ == 0:
            assert grid == GRID + 16
        else:
            assert grid == 0


def test_inputs_are_read_only_in_replay_too(world):
    class Sorts(Right):
        def propensity_of(self, users, actions):
            actions.sort()
            return super().propensity_of(users, actions)

    log = simulate(world, Right(), 20, 3)
    with pytest.raises(UserError, match=r"propensity_of\(\) writes in the arrays"):
        replay(log, Sorts())
