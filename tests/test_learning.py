"""From whose outcomes a policy learns: what is declared, what counts without a declaration, and who refuses whom."""

import copy
import pickle

import numpy as np
import pytest

from recsim_mnar.log import Log
from recsim_mnar.policies import Policy
from recsim_mnar.policies.door import as_policy, learning_of
from recsim_mnar.policies.softening import EpsilonMixture, SoftmaxPolicy
from recsim_mnar.purchases.policies import SlatePolicy
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused
from twins.policies import Uniform

P = 8


class Undeclared(Uniform):
    """Defines ``learn`` and says no more."""

    name = "undeclared"
    is_uniform = False

    def __init__(self, n_items=P):
        super().__init__(n_items)
        self.received = []

    def scores(self, users):
        return np.tile(np.arange(self.n_items, dtype=float), (len(users), 1))

    def learn(self, users, actions, rewards, propensities):
        self.received.append((users.copy(), actions.copy(), rewards.copy(), propensities.copy()))


class Own(Undeclared):
    """Says that it learns of each user from that user alone."""

    learns = "own user"


class OwnOverridden(Own):
    """A ``learn`` of its own, of which the inherited declaration says nothing."""

    def learn(self, users, actions, rewards, propensities):
        self.received.append(users)


class Idle(Undeclared):
    """Has a ``learn`` that is not to be called."""

    learns = "nothing"


class Plain:
    """Derives from nothing."""

    name, n_items = "plain", P

    def act(self, users, uniforms):
        return np.minimum((uniforms * P).astype(int), P - 1), np.full(len(users), 1 / P)

    def probabilities(self, users):
        return np.full((len(users), P), 1 / P)

    def learn(self, users, actions, rewards, propensities):
        pass


class PlainOwn(Plain):
    """Derives from nothing, and declares."""

    learns = "own user"


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (Uniform(P), "nothing"),
        (Undeclared(), "all users"),
        (Own(), "own user"),
        (OwnOverridden(), "all users"),
        (Idle(), "nothing"),
        (Plain(), "all users"),
        (PlainOwn(), "own user"),
    ],
    ids=lambda thing: thing if isinstance(thing, str) else type(thing).__name__,
)
def test_what_is_declared_goes_through_every_wrapper(policy, expected):
    full = as_policy(policy)
    assert learning_of(full) == expected
    assert learning_of(full.fresh()) == expected
    assert learning_of(EpsilonMixture(policy, 0.1)) == expected
    assert learning_of(EpsilonMixture(EpsilonMixture(policy, 0.1), 0.1)) == expected
    assert learning_of(copy.deepcopy(full)) == expected
    assert learning_of(pickle.loads(pickle.dumps(full))) == expected
    if isinstance(policy, Undeclared):
        assert learning_of(EpsilonMixture(SoftmaxPolicy(policy, 1.0), 0.1)) == expected


@pytest.mark.parametrize("base", [Own, PlainOwn])
def test_another_word_is_refused(base, world):
    class Wrong(base):
        learns = "everything"

    with refused("learns must be one of 'nothing', 'own user', 'all users', got 'everything'"):
        simulate(world, Wrong(), 3)


@pytest.mark.parametrize(
    "run",
    [
        lambda world, policy, log: simulate(world, policy, 3),
        lambda world, policy, log: replay(log, policy),
        lambda world, policy, log: value_on_log(world, log, {"it": policy}, 0),
    ],
    ids=["simulate", "replay", "value_on_log"],
)
@pytest.mark.parametrize("policy", [Undeclared(), Plain(), EpsilonMixture(Undeclared(), 0.2)], ids=lambda p: p.name)
def test_learners_from_all_users_are_refused_where_users_are_taken_apart(world, run, policy):
    log = simulate(world, Uniform(P), 3)
    with refused(r"learns from all users, .*recsim_mnar\.simulate_online"):
        run(world, policy, log)


def test_slates_refuse_them_too():
    params = make_world("purchases", "quick").params
    assert SlatePolicy(Own(params.n_items), params).changes
    with refused("learns from all users, a world of slates"):
        SlatePolicy(Undeclared(params.n_items), params)


def test_only_learners_learn_and_they_get_the_propensities(world):
    """In the log's order of a user: what a learner receives is what is logged."""
    own = Own()
    idle = Idle()
    own.fresh = lambda: own
    idle.fresh = lambda: idle
    log = simulate(world, own, 5, 3)
    simulate(world, idle, 5, 3)
    assert not idle.received
    for name, column in received_by(own).items():
        np.testing.assert_array_equal(column, log.bandit()[name], err_msg=name)
    own.received.clear()
    propensity = log["propensity"] / np.arange(1, len(log) + 1)  # of another policy: they are passed on as they are
    other = Log({**log.columns, "propensity": propensity})
    replay(other, own)
    np.testing.assert_array_equal(received_by(own)["propensity"], other.bandit()["propensity"])


def received_by(learner):
    """Return what a learner received, in the order of a log."""
    columns = [np.concatenate(column) for column in zip(*learner.received, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    names = ("user", "action", "reward", "propensity")
    return {name: column[order] for name, column in zip(names, columns, strict=True)}


def test_a_learn_without_propensities_is_refused():
    class Three(Policy):
        name, n_items = "three", 3

        act, probabilities = Uniform.act, Uniform.probabilities

        def learn(self, users, actions, rewards):
            pass

    with refused(r"policy 'three': define learn\(self, users, actions, rewards, propensities\)"):
        as_policy(Three())
