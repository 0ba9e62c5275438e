from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar import registry
from recsim_mnar.agents.knn import ItemKNN
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policy import EpsilonMixture, Learner, Policy, SoftmaxPolicy
from twins.logs import random_log


class Mine(Policy):
    """Always item ``favourite``."""

    def __init__(self, n_items, favourite=0):
        self.n_items = n_items
        self.favourite = favourite

    def act(self, users, uniforms):
        return np.full(len(users), self.favourite), np.ones(len(users))

    def probabilities(self, users):
        return np.tile(np.arange(self.n_items) == self.favourite, (len(users), 1)).astype(float)


class Unfinished(Policy):
    pass


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


def test_a_class_of_ones_own():
    spec = f"{__name__}:Mine+favourite=2+epsilon=0.5"
    policy = registry.learner(spec).fit(Log({}), n_items=4)
    assert policy.probabilities(np.array([9])).tolist() == [[0.125, 0.125, 0.625, 0.125]]
    assert policy.name == spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("item-kn", "unknown agent 'item-kn'; did you mean 'item-knn'"),
        ("", "unknown agent ''"),
        ("item-knn+neighbors=3", "no parameter 'neighbors'; did you mean 'neighbours'"),
        ("item-knn+neighbours", "must have the form parameter=value"),
        ("item-knn+neighbours=1+neighbours=2", "given twice"),
        ("item-knn+neighbours=none", "neighbours must be an integer"),
        ("item-knn+epsilon=much", "epsilon must be a number"),
        ("svd+rank=0", "rank must be an integer"),
        ("no_such_module_at_all:X", "cannot be imported"),
        ("recsim_mnar.agents.knn:ItemKN", "did you mean 'ItemKNN"),
        ("recsim_mnar.agents.knn:inverse_norms", "must be a class"),
        (f"{__name__}:Unfinished", "lacks act, probabilities"),
    ],
)
def test_mistakes_are_named(spec, message):
    with pytest.raises(UserError, match=message) as caught:
        registry.learner(spec)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("spec", ["random+epsilon=1.5", "svd+temperature=0", "svd+epsilon=nan"])
def test_strengths_out_of_range(spec):
    with pytest.raises(UserError, match=r"epsilon|temperature"):
        registry.learner(spec).fit(random_log(1, 20, 6, 5), n_items=6)
