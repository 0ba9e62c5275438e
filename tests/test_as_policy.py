"""The door: what a user brings becomes a full policy or learner, or one line says what it lacks."""

import pickle
import types

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import (
    EpsilonMixture,
    Learner,
    Policy,
    SoftmaxPolicy,
    as_learner,
    as_policy,
    as_ranking_policy,
    registry,
)
from recsim_mnar.policies.door import able, has_fixed_distribution, is_softened, rewrapped, unwrapped
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.protocols.decisions import Settings
from recsim_mnar.protocols.leave_one_out import leave_one_out
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.pools import pool
from recsim_mnar.worlds import make_world
from toys import refused
from twins.policies import Uniform

N_ITEMS = 8
SIZES = Settings(train_users=40, test_users=40, arm_users=40, truth_users=60, folds=2)


class Bare:
    """Only what must be there, and in float32."""

    def __init__(self, n_items=N_ITEMS):
        self.n_items = n_items

    def act(self, users, uniforms):
        actions = np.minimum((uniforms * self.n_items).astype(np.int64), self.n_items - 1)
        return actions, np.full(len(users), 1 / self.n_items, np.float32)

    def probabilities(self, users):
        return np.full((len(users), self.n_items), 1 / self.n_items, np.float32)


class Remembering(Bare):
    """Recommends what the user viewed last; everything but ``observe_ratings`` and ``fresh`` is its own."""

    name = "last"
    learns = "own user"

    def __init__(self, n_items=N_ITEMS):
        super().__init__(n_items)
        self.last, self.received = {}, []

    def reset(self, users):
        self.last.update(dict.fromkeys(users.tolist(), 0))

    def observe(self, users, items):
        self.last.update(zip(users.tolist(), items.tolist(), strict=True))

    def scores(self, users):
        return np.eye(self.n_items)[[self.last[u] for u in users.tolist()]]

    probabilities = scores

    def act(self, users, uniforms):
        return np.array([self.last[u] for u in users.tolist()]), np.ones(len(users))

    def learn(self, users, actions, rewards, propensities):
        self.received.extend(rewards.tolist())

    def forget(self, users):
        for u in users.tolist():
            del self.last[u]

    def describe(self):
        return {"depth": 1}


@pytest.fixture(scope="module")
def world():
    return make_world("sessions", "quick", [f"n_items={N_ITEMS}", "n_flips=0"])


@pytest.mark.parametrize("policy", [Uniform(3), as_policy(Bare())], ids=["derived", "wrapped"])
def test_a_policy_is_handed_back_as_it_is(policy):
    assert as_policy(policy) is policy


def test_a_plain_object_goes_wherever_a_policy_goes(world):
    """simulate, replay, the truth and softening take it, and it acts as a derived policy does."""
    expected = simulate(world, Uniform(N_ITEMS), 30, 5)
    log = simulate(world, Bare(), 30, 5)
    assert log.provenance["policy"] == {"name": "Bare"}
    assert set(log["propensity"][log.is_bandit]) == {1 / N_ITEMS}
    assert log.digest() == expected.digest()
    with pool(2) as executor:
        assert simulate(world, Bare(), 30, 5, executor=executor).digest() == expected.digest()
    replayed = replay(log, Bare())[log.is_bandit]
    assert_allclose(replayed, 1 / N_ITEMS, rtol=1e-6)
    values = value_on_log(world, log, {"bare": Bare(), "derived": Uniform(N_ITEMS)}, 5)
    assert values["bare"] == pytest.approx(values["derived"], rel=1e-6)
    softened = simulate(world, EpsilonMixture(Remembering(), 0.5), 30, 5)
    assert softened.provenance["policy"] == {"name": "last+epsilon=0.5", "depth": 1, "epsilon": 0.5}
    assert {1 / 2 / N_ITEMS, 1 / 2 + 1 / 2 / N_ITEMS} == set(softened["propensity"][softened.is_bandit])


def test_what_it_defines_is_called_and_nothing_else(world):
    own = Remembering()
    log = simulate(world, own, 30, 5)
    assert not own.last  # it acts through copies
    assert not own.received
    again = replay(log, own)
    assert_array_equal(again[log.is_bandit], 1.0)
    policy = as_policy(own).fresh()
    one = np.array([7])
    policy.reset_training_users(one, one)
    policy.observe_ratings(one, np.array([3]), np.array([5.0]))
    assert policy.scores(one).argmax() == 3
    policy.learn(one, one, np.array([0.5]), np.ones(1))
    assert policy.own.received == [0.5]
    policy.forget(one)
    assert policy.own.last == {}
    assert policy.describe() == {"depth": 1, "name": "last"}
    policy.name = "renamed"
    assert policy.fresh().name == "renamed"
    assert pickle.loads(pickle.dumps(policy)).act(np.zeros(0, np.int64), np.zeros(0))[0].size == 0


def test_an_object_without_probabilities_acts_until_they_are_asked_for(world):
    silent = types.SimpleNamespace(n_items=N_ITEMS, name="silent", act=Bare().act)
    log = simulate(world, silent, 10, 5)
    assert log.is_bandit.any()
    with pytest.raises(UserError, match=r"policy 'silent' has no method probabilities\(users\)"):
        replay(log, silent)
    received = types.SimpleNamespace(**vars(silent), probabilities=Bare().probabilities)
    assert_array_equal(as_policy(received).scores(np.arange(2)), Bare().probabilities(np.arange(2)))


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"act": None}, r"policy 'own' has no method act\(users, uniforms\)$"),
        ({"n_items": None}, r"policy 'own': n_items must be a whole number of at least 1, got None"),
        ({"name": 7}, r"policy 7: name must be a text, got 7"),
        ({"act": lambda users: users}, r"policy 'own': define act\(self, users, uniforms\). The one found takes other"),
        ({"observe": lambda users: users}, r"policy 'own': define observe\(self, users, items\)"),
        ({"probabilities": [0.5, 0.5]}, r"policy 'own': probabilities must be a method, got list"),
        ({"batches_decisions": "yes"}, r"policy 'own': batches_decisions must be True or False, got 'yes'"),
    ],
)
def test_what_is_amiss_is_said_in_one_line(world, attributes, message):
    whole = {"name": "own", "n_items": N_ITEMS, "act": Bare().act, "probabilities": Bare().probabilities}
    with refused(message):
        simulate(world, types.SimpleNamespace(**{**whole, **attributes}), 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Bare, "is the class Bare: give an object of it"),
        (registry.learner("popularity"), r"has no method act.*it is a learner, fit it first"),
        ("svd", r"'svd' is a name, a policy is wanted: fit it, recsim_mnar.agent\('svd'\).fit"),
        (types.SimpleNamespace(act=Bare().act, name="own"), "policy 'own' must have an attribute n_items"),
    ],
    ids=["class", "learner", "name", "no items"],
)
def test_what_is_no_policy_is_refused(world, wrong, message):
    with pytest.raises(UserError, match=message):
        simulate(world, wrong, 3)


def test_a_derived_policy_without_items_is_refused():
    derived = Uniform(3)
    del derived.n_items
    with pytest.raises(UserError, match="policy 'uniform' must have an attribute n_items"):
        replay(Log({}), derived)


def test_a_description_is_a_dict():
    policy = as_policy(types.SimpleNamespace(n_items=2, act=Bare().act, describe=lambda: "me"))
    with pytest.raises(UserError, match=r"describe\(\) must return a dict, got str"):
        policy.describe()


def test_a_ranking_where_one_item_is_shown_is_refused_in_a_line():
    ranking = as_ranking_policy(registry.uniform_policy(5), 2)
    with pytest.raises(UserError, match=r"it ranks, and one item is shown at a time"):
        as_policy(ranking)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.zeros(n, int), r"act\(\) must return \(actions, propensities\), got ndarray"),
        (lambda n: (np.zeros(n, int), np.ones((n, 1))), r"two arrays of shape \(\d+,\)"),
        (lambda n: (np.zeros(n), np.ones(n)), r"integer actions, got float64"),
        (lambda n: (np.full(n, N_ITEMS), np.ones(n)), r"action 8 is out of range"),
        (lambda n: (np.zeros(n, int), np.zeros(n)), r"propensity 0.0 is outside"),
        (lambda n: (np.zeros(n, int), np.full(n, np.nan)), r"propensity nan is outside"),
    ],
)
def test_what_a_plain_object_answers_is_looked_at(world, answer, message):
    wrong = types.SimpleNamespace(name="wrong", n_items=N_ITEMS, act=lambda users, uniforms: answer(len(users)))
    with pytest.raises(UserError, match=f"policy 'wrong'.*{message}"):
        simulate(world, wrong, 5)


def test_abilities_are_those_of_the_policy_within():
    bare, last, uniform = as_policy(Bare()), as_policy(Remembering()), Uniform(N_ITEMS)
    for method in ("observe", "learn", "forget", "scores"):
        assert not bare.defines(method)
        assert not uniform.defines(method)
        assert last.defines(method)
        assert EpsilonMixture(last, 0.1).defines(method)
        assert not EpsilonMixture(bare, 0.1).defines(method)
    assert not last.defines("observe_ratings")
    with pytest.raises(UserError, match="'Bare' has no scores to soften"):
        SoftmaxPolicy(Bare(), 1.0)
    assert SoftmaxPolicy(Remembering(), 1.0).name == "last+temperature=1"


def test_who_runs_inside_the_kernel():
    class Likes(Policy):
        n_items = 2

        def fixed_distribution(self):
            return np.array([0.25, 0.75])

        def act(self, users, uniforms):
            raise NotImplementedError

        def probabilities(self, users):
            raise NotImplementedError

    assert has_fixed_distribution(Likes())
    assert not has_fixed_distribution(EpsilonMixture(Likes(), 0.1))
    assert not has_fixed_distribution(Uniform(2))
    assert has_fixed_distribution(registry.uniform_policy(2))
    assert has_fixed_distribution(as_policy(types.SimpleNamespace(n_items=2, act=Bare().act, is_uniform=True)))


def test_abilities_of_learners_are_found_within_names_and_softening():
    softened = registry.learner("item-knn+neighbours=3+epsilon=0.1")
    assert is_softened(softened)
    assert not is_softened(registry.learner("item-knn"))
    assert able(softened, "leave_one_out_ranks") is unwrapped(softened)
    assert able(softened, "chosen_on") is None
    assert registry.learner("popularity+epsilon=0.1").ignores_own_views == (
        unwrapped(registry.learner("popularity")).ignores_own_views
    )
    other = unwrapped(registry.learner("item-knn+neighbours=9"))
    again = rewrapped(softened, other)
    assert (again.name, unwrapped(again), unwrapped(softened).neighbours) == (softened.name, other, 3)
    assert rewrapped(other, softened) is softened


class Fits:
    """A learner that derives from nothing and makes a policy that derives from nothing."""

    name = "fits"

    def fit(self, log, *, n_items, seed):
        return Remembering(n_items)


def test_a_plain_learner_is_judged_like_a_derived_one(world):
    class Derived(Learner):
        name = "fits"

        def fit(self, log, *, n_items, seed=0):
            return Remembering(n_items)

    log = simulate(world, Bare(), 60, 5)
    plain, derived = (leave_one_out(log, {"fits": kind()}, n_items=N_ITEMS, folds=2) for kind in (Fits, Derived))
    assert [r.value for r in plain] == [r.value for r in derived]
    assert 0 < plain[0].value < 1
    assert as_learner(Fits()).ignores_own_views is False
    assert as_learner(Derived()).name == "fits"


def test_a_policy_stands_among_learners_as_it_is(world):
    """It is not fitted: one that is, and a learner that hands it out, are judged alike."""
    log = simulate(world, Bare(), 60, 5)
    handing = types.SimpleNamespace(name="mine", fit=lambda log, *, n_items, seed: Bare())
    whole, handed = (leave_one_out(log, {"mine": one}, n_items=N_ITEMS, folds=2) for one in (Bare(), handing))
    assert [r.value for r in whole] == [r.value for r in handed]
    found = compare(
        world, {"mine": Bare(), "random": registry.learner("random")}, settings=SIZES, protocols=["ab_test"]
    )
    assert {r.agent for r in found.records} == {"mine", "random"}
    with pytest.raises(UserError, match=r"agent 'mine': its n_items is \d, the log's world has 7 items"):
        compare(
            make_world("sessions", n_items=7), {"mine": Bare(), "random": registry.learner("random")}, settings=SIZES
        )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Fits, "is the class Fits"),
        (types.SimpleNamespace(), r"has no method fit\(log, \*, n_items, seed\), and is no policy either"),
        (types.SimpleNamespace(fit=lambda log: log), r"define fit\(self, log, n_items=..., seed=...\)"),
        (
            types.SimpleNamespace(name="mine", fit=lambda log, *, n_items, seed: None),
            r"fit\(\) must return a fitted policy, got None",
        ),
    ],
    ids=["class", "no fit", "signature", "nothing fitted"],
)
def test_what_is_no_learner_is_refused(world, wrong, message):
    log = simulate(world, Bare(), 20, 5)
    with pytest.raises(UserError, match=f"agent 'mine'.*{message}"):
        leave_one_out(log, {"mine": wrong}, n_items=N_ITEMS, folds=2)
