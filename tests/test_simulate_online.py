"""One object that learns from all users: all its rows, the same bytes twice, a replay equal on every row or refused."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import toys
from recsim_mnar.log import Log
from recsim_mnar.policies import EpsilonMixture, registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.ratings import RatingsParams, RatingsWorld
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused
from twins.cases import quick_first
from twins.policies import OrderReader, Uniform

P = 10


class Greedy(toys.Greedy):
    """Notes every call."""

    strict = False  # whether what it learns must be what it did

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.calls, self.alive = [], set()

    def _note(self, name, *columns):
        self.calls.append((name, columns[0].tolist()))

    def reset(self, users):
        self._note("reset", users)
        self.alive.update(users.tolist())

    def observe(self, users, items):
        self._note("observe", users, items)

    def forget(self, users):
        self._note("forget", users)
        self.alive.difference_update(users.tolist())

    def act(self, users, uniforms):
        assert set(users.tolist()) <= self.alive
        self._note("act", users)
        return super().act(users, uniforms)

    def learn(self, users, actions, rewards, propensities):
        if self.strict:
            assert_array_equal(propensities, self.propensity_of(users, actions))
        self._note("learn", users, actions, rewards)
        super().learn(users, actions, rewards, propensities)


def strict(kind):
    """A learner that checks that what it learns is what it did."""
    learner = kind()
    learner.strict = True
    return learner


class InOrder(Greedy):
    """Acts by a running hash of all calls, so that the order of everything it receives matters."""

    name = "in-order"

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.state = 0

    def _note(self, name, *columns):
        super()._note(name, *columns)
        if name != "act":  # by which nothing is learned
            for value in np.concatenate([*columns, [ord(name[0])]]).tolist():
                self.state = (self.state * 31 + int(value * 7) + 1) % 1_000_003

    def probabilities(self, users):
        likes = 1.0 + (self.state + 13 * np.asarray(users)[:, None] + 7 * np.arange(self.n_items)) % 5
        return likes / likes.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def world():
    # Short lives, and users who leave without a decision.
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.15, p_leave_organic=0.1))


def assert_replays(log, policy):
    """A replay gives the logged propensity of every decision, and nothing for views."""
    probability = replay(log, policy)
    assert_array_equal(probability, np.where(log.is_bandit, log["propensity"], np.nan))


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 32])
@pytest.mark.parametrize("kind", [Greedy, InOrder])
def test_a_learner_over_two_thousand_users_is_one_object_and_replays_on_every_row(world, kind, lanes):
    untrained = strict(kind)
    run = simulate_online(world, untrained, 2000, 7, lanes=lanes)
    run.log.validate(P)
    shown = run.log.bandit()
    assert len(shown) > 2000
    assert_array_equal(run.policy.shown, np.bincount(shown["action"], minlength=P))
    assert run.policy.earned.sum() == shown["reward"].sum() == run.curve.rewards[-1]
    assert run.curve.decisions[-1] == len(shown)
    assert not run.policy.alive
    assert_replays(run.log, untrained)
    assert not untrained.calls
    sizes = {"lanes": lanes, "rounds": len(run.curve.rewards), "rows": len(run.log)}
    assert run.log.provenance["online"] == {"learns": "all users", **sizes}


RANKS = {"reset": 0, "observe": 1, "act": 2, "learn": 3, "forget": 5}


@pytest.mark.parametrize("lanes", quick_first([3, 1, 50]))
def test_calls_of_a_round_come_in_order_and_by_ascending_user(world, lanes):
    run = simulate_online(world, Greedy(), 60, 3, lanes=lanes)
    calls = run.policy.calls
    before_another = [call for call, after in itertools.pairwise(calls) if (call[0], after[0]) != ("act", "act")]
    rank = -1
    rounds = 1
    for name, users in [*before_another, calls[-1]]:  # before the first decision one user is asked often
        assert users == sorted(users)
        assert len(users) == len(set(users)) or name == "observe"
        assert name != "act" or len(users) <= lanes
        before, rank = rank, RANKS[name]
        if name == "observe" and before >= RANKS["learn"]:
            rank = 4
        rounds += rank <= before
    begun = [user for name, users in calls if name == "reset" for user in users]
    assert begun == run.log.users().tolist()
    assert rounds == run.log.provenance["online"]["rounds"]


def test_the_column_round_counts_a_users_decisions_from_the_round_of_arrival(world):
    log = simulate_online(world, Greedy(), 80, 3, lanes=4).log
    for user in log.users():
        own = log.select(log["user"] == user)
        shown = own.is_bandit
        decision = np.maximum(np.cumsum(shown) - 1, 0)
        assert_array_equal(own["round"] - own["round"][0], decision)
    rows = log.select(log.is_bandit)
    assert np.unique(np.stack([rows["round"], rows["user"]]), axis=1).shape[1] == len(rows)
    assert np.bincount(rows["round"]).max() == 4


@pytest.mark.parametrize("lanes", [1, 7, 1000])
@pytest.mark.parametrize("make", [lambda: Uniform(P), lambda: OrderReader(P)])
def test_a_policy_that_learns_nothing_makes_the_log_of_simulate(world, make, lanes):
    run = simulate_online(world, make(), 90, 5, lanes=lanes)
    expected = simulate(world, make(), 90, 5)
    assert run.log.digest() == expected.digest()
    assert_replays(run.log.select(run.log["user"] < 1000), make())


def test_a_world_of_ratings_and_a_policy_that_learns_from_its_own_users():
    ratings = RatingsWorld(RatingsParams(n_items=P, n_decisions=4))
    learner = registry.learner("mf-naive-ratings+epsilon=0.3")
    policy = learner.fit(simulate(ratings, Uniform(P), 80, 1), n_items=P, seed=0)
    run = simulate_online(ratings, policy, 40, 5, lanes=6)
    assert run.log.digest(optional=True) == simulate(ratings, policy, 40, 5).digest(optional=True)
    assert_replays(run.log, policy)
    online = simulate_online(ratings, InOrder(), 40, 5, lanes=6)
    assert_replays(online.log, InOrder())


def test_wrapped_learners_and_worlds_of_features():
    world = make_world("features", "quick")
    make = lambda: EpsilonMixture(Greedy(world.n_items), 0.5)  # noqa: E731
    run = simulate_online(world, make(), 50, 2, lanes=8)
    assert run.policy.inner.shown.sum() == run.log.is_bandit.sum()
    assert_replays(run.log, make())


def test_another_learner_is_replayed_on_the_log_of_this_one():
    """The other one's probabilities are its own: gone through by hand, where every user comes to a decision."""
    world = SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.15, p_leave_organic=0.0))
    log = simulate_online(world, Greedy(), 40, 3, lanes=1).log
    by_hand = InOrder()
    expected = np.full(len(log), np.nan)
    for user in log.users():  # with one lane, users come one after the other
        one = np.array([user])
        rows = np.flatnonzero(log["user"] == user)
        by_hand.reset(one)
        for part in np.split(rows, np.flatnonzero(log.is_bandit[rows])):
            decision = part[log.is_bandit[part]]
            views = part[~log.is_bandit[part]]
            if len(decision):
                expected[decision] = by_hand.propensity_of(one, log["action"][decision])
                by_hand.learn(one, *(log[name][decision] for name in ("action", "reward", "propensity")))
            if len(views):
                by_hand.observe(log["user"][views], log["item"][views])
        by_hand.forget(one)
    assert_array_equal(replay(log, InOrder()), expected)


def test_replay_refuses_what_it_cannot_go_through(world):
    run = simulate_online(world, Greedy(), 200, 3, lanes=4)
    with refused(r"its run made .*: a policy that learns from all users is replayed on the whole"):
        replay(run.log.select(run.log["user"] < 100), Greedy())
    with refused(r"'greedy' made this log .*hand in an object that has not learned yet"):
        replay(run.log, run.policy)
    changed = Log({**run.log.columns, "reward": 1.0 - run.log["reward"]}, run.log.provenance)
    with refused("is replayed with other propensities"):
        replay(changed, Greedy())
    with refused("learns from all users, replay needs"):
        replay(Log(run.log.columns), Greedy())
    kept = {name: values for name, values in run.log.columns.items() if name != "round"}
    with refused("no column 'round'"):
        replay(Log(kept, run.log.provenance), Greedy())


def test_learning_goes_on_with_the_object_of_a_run(world):
    first = simulate_online(world, Greedy(), 50, 3)
    before = first.policy.shown.copy()
    second = simulate_online(world, first.policy, 50, 4)
    assert_array_equal(first.policy.shown, before)
    assert second.policy.shown.sum() == before.sum() + second.log.is_bandit.sum()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"lanes": 0}, "lanes must be a whole number of at least 1"),
        ({"n_users": 0}, "n_users must be a whole number of at least 1"),
        ({"seed": -1}, r"seed must be in \[0, 2\*\*64\)"),
        ({"policy": Greedy(P + 1)}, "knows 11 items, the world has 10"),
        ({"policy": Greedy}, "is the class Greedy"),
        ({"world": make_world("purchases", "quick")}, "simulate_online asks for one item at a time"),
        ({"world": make_world("campaigns", "quick")}, "the campaigns world is a whole platform"),
    ],
)
def test_wrong_arguments_are_said_in_one_line(world, arguments, words):
    given = {"world": world, "policy": Greedy(), "n_users": 5, "seed": 0, **arguments}
    with refused(words):
        simulate_online(**given)
