from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.agents.neighbours.knn import ItemKNN
from recsim_mnar.policies import EpsilonMixture, Learner, Policy, SoftmaxPolicy, as_policy, registry
from toys import Always, refused, untrained
from twins.logs import random_log


class Mine(Always):
    """Always item ``favourite``."""

    def __init__(self, n_items, favourite=0):
        super().__init__(n_items, favourite)
        self.favourite = favourite


class Unfinished(Policy):
    pass


class WithoutItems(Mine):
    def __init__(self):
        pass


class WithMore(Mine):
    def __init__(self, n_items, foo):
        super().__init__(n_items)


class SeesUsersOnly(Mine):
    def observe(self, users):
        pass


class FitsNothing(Learner):
    def fit(self, log, *, n_items, seed=0):
        return None


class FitsAClass(Learner):
    def fit(self, log, *, n_items, seed=0):
        return Mine


class FitsTheLog(Learner):
    def fit(self, log):
        return Mine(5)


def test_every_announced_agent_says_what_it_is():
    listed = registry.agents()
    names = [name for name, _ in listed]
    assert names == sorted(names)
    assert {"random", "popularity", "user-popularity", "user-popularity-greedy", "svd", "item-knn"} <= set(names)
    for _, description in listed:
        assert description.endswith(".")
        assert "\n" not in description


def test_parameters_reach_the_class():
    learner = registry.learner("item-knn+neighbours=7+include_self=true")
    assert isinstance(learner, Learner)
    assert isinstance(learner.inner, ItemKNN)
    assert (learner.inner.neighbours, learner.inner.include_self) == (7, True)
    policy = learner.fit(random_log(1, 20, 6, 5), n_items=6)
    assert policy.name == "item-knn+neighbours=7+include_self=true"
    assert policy.describe() == {"name": policy.name, "neighbours": 7, "include_self": True}


def test_softened_in_the_order_given():
    policy = registry.learner("svd+temperature=0.5+epsilon=0.1").fit(random_log(1, 20, 6, 5), n_items=6)
    assert isinstance(policy, EpsilonMixture)
    assert isinstance(policy.inner, SoftmaxPolicy)
    assert policy.name == "svd+temperature=0.5+epsilon=0.1"
    assert policy.describe()["epsilon"] == 0.1
    assert policy.describe()["temperature"] == 0.5


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("item-kn", "unknown agent 'item-kn'; did you mean 'item-knn'"),
        ("", "unknown agent ''"),
        ("item-knn+neighbors=3", "no parameter 'neighbors'; did you mean 'neighbours'"),
        ("item-knn+neighbours", "must have the form parameter=value"),
        ("item-knn+neighbours=1+neighbours=2", "given twice"),
        ("item-knn+epsilon=much", r"epsilon must be in \[0, 1\], got 'much'"),
        ("no_such_module_at_all:X", "cannot be imported"),
        ("recsim_mnar.agents.neighbours.knn:ItemKN", "did you mean 'ItemKNN"),
        (f"{__name__}:Unfinished", "lacks act, probabilities"),
        (":X", "write it as package.module:name"),
        ("os:", "write it as package.module:name"),
        ("os.path:Nothing", "os.path has no 'Nothing'$"),
        (f"{__name__}:WithoutItems", "must take n_items"),
        (f"{__name__}:WithMore", "needs foo"),
        (f"{__name__}:SeesUsersOnly", r"define observe\(self, users, items\)"),
        (f"{__name__}:FitsTheLog", r"define fit\(self, log, n_items=..., seed=...\)"),
        (f"{__name__}:BareOnTheLogAlone", r"define fit\(self, log, n_items=..., seed=...\)"),
        (f"{__name__}:Bar", "did you mean 'Bare'"),
        (f"{__name__}:Bare+favorite=2", "did you mean 'favourite'"),
        (f"{__name__}:test_mistakes_are_named", r"must have act\(users, uniforms\), a policy, or fit"),
    ],
)
def test_mistakes_are_named(spec, message):
    with refused(message):
        registry.learner(spec)


@pytest.mark.parametrize(("name", "words"), [("FitsNothing", "None"), ("FitsAClass", "return an object of it")])
def test_what_a_fit_returns_is_looked_at(name, words):
    with refused(rf"{name}.*fit\(\) must return a fitted policy, got .*{words}"):
        untrained(f"{__name__}:{name}", 4)


def test_a_module_that_fails_is_named(tmp_path, monkeypatch):
    (tmp_path / "divides_by_zero.py").write_text("1/0")
    monkeypatch.syspath_prepend(tmp_path)
    with refused("importing 'divides_by_zero' raised ZeroDivisionError: division by zero"):
        registry.learner("divides_by_zero:X")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (np.full((3, 4), 0.5), "sum to 1, a sum is 2"),
        (np.full((3, 5), 0.2), r"shape \(3, 4\), got shape \(3, 5\)"),
        (np.tile([2.0, -1.0, 0.0, 0.0], (3, 1)), "not be negative, one is -1"),
        (None, "got None"),
    ],
)
def test_a_mixture_looks_at_the_probabilities_it_mixes(answer, words, monkeypatch):
    monkeypatch.setattr(Mine, "probabilities", lambda self, users: answer)
    policy = untrained(f"{__name__}:Mine+epsilon=0.1", 4).fresh()
    with refused(f"policy '{__name__}:Mine': its probabilities must .*{words}"):
        policy.act(np.arange(3), np.array([0.05, 0.5, 0.9]))


def test_a_fresh_softened_policy_keeps_its_name():
    spec = f"{__name__}:Mine+favourite=2+epsilon=0.5"
    policy = untrained(spec, 4)
    assert policy.fresh().name == spec
    assert policy.fresh().inner.name == f"{__name__}:Mine+favourite=2"


class Bare:
    """A policy that derives from nothing."""

    def __init__(self, n_items, favourite=1):
        self.n_items, self.favourite, self.earned = n_items, favourite, 0.0

    def act(self, users, uniforms):
        return np.full(len(users), self.favourite), np.ones(len(users))

    def probabilities(self, users):
        return np.tile(np.arange(self.n_items) == self.favourite, (len(users), 1)).astype(float)

    def learn(self, users, actions, rewards, propensities):
        self.earned += float(np.sum(rewards))


class BareLearner:
    def __init__(self, favourite=0):
        self.favourite = favourite

    def fit(self, log, *, n_items, seed=0):
        return Bare(n_items, self.favourite)


class FitsAndActs(Bare):
    """As models of other libraries are: fit hands back the object itself."""

    def __init__(self, favourite=3):
        super().__init__(0, favourite)

    def fit(self, log, *, n_items, seed=0):
        self.n_items = n_items
        return self


class BareOnTheLogAlone:
    def fit(self, log):
        return Bare(5)


ready, ready_learner = Bare(4), BareLearner(2)


@pytest.mark.parametrize(
    ("spec", "favourite"),
    [
        ("Bare", 1),
        ("Bare+favourite=2", 2),
        ("BareLearner", 0),
        ("BareLearner+favourite=3", 3),
        ("FitsAndActs", 3),
        ("ready", 1),
        ("ready_learner", 2),
    ],
)
@pytest.mark.parametrize("softened", ["", "+epsilon=0.5"])
def test_what_derives_from_nothing_is_an_agent_by_name_too(spec, favourite, softened):
    """And becomes the policy that as_policy makes of it."""
    name = f"{__name__}:{spec}{softened}"
    policy = untrained(name, 4)
    assert isinstance(policy, Policy)
    assert policy.name == name
    expected = np.eye(4)[favourite]
    if softened:
        expected = 0.5 * expected + 0.125
    assert policy.probabilities(np.array([9]))[0].tolist() == expected.tolist()
    actions, _ = policy.act(np.arange(3), np.array([0.7, 0.8, 0.9]))
    assert actions.shape == (3,)


def test_an_object_that_is_named_is_not_used_up():
    first = untrained(f"{__name__}:ready", 4)
    as_policy(first).learn(np.arange(2), np.zeros(2, int), np.ones(2), np.ones(2))
    assert ready.earned == 0.0
    with refused("its n_items is 4, the log's world has 5 items"):
        untrained(f"{__name__}:ready", 5)
    with refused("is an object already: favourite has no effect"):
        registry.learner(f"{__name__}:ready+favourite=2")


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("1", True), ("FALSE", False), ("false", False), ("0", False)]
)
def test_a_flag_is_true_or_false(text, value):
    assert registry.learner(f"item-knn+include_self={text}").inner.include_self is value


@pytest.mark.parametrize("text", ["no", "off", "None", "maybe", "yes", "2", ""])
def test_anything_else_is_no_flag(text):
    with refused("include_self"):
        registry.learner(f"item-knn+include_self={text}")
    with refused("include_self"):
        ItemKNN(include_self=text)
