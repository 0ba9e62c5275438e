"""The contract of ``recsim_mnar.testing`` on every agent and wrapper."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest

from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.testing import PolicyContract
from recsim_mnar.worlds import make_world
from twins.cases import quick_first
from twins.contracts import AgentContract, KnownUsersContract
from twins.logs import random_log
from twins.policies import Uniform
from twins.purchases_log import purchase_log, small_exposures

N_ITEMS = 40
SPECS = (
    "random",
    "constant+item=3",
    "popularity",
    "user-popularity",
    "user-popularity-greedy",
    "svd",
    "item-knn",
    "user-knn+temperature=2+epsilon=0.3",
    "constant-list+items=3;1;4",
    "never-recommended",
    "cosine-cf",
    "naive-cf",
    "mf-ips-ratings",
    "mf-naive-ratings+unrated=true",
    "bpr+updates=20000+factors=12+rate=0.01+batch=100",
    "rmf+updates=20000+factors=12+rate=0.01+batch=100",
)
"""Agents, which run with every submission: add yours here, or where its log is made."""
OTHERWISE = (
    "svd+rank=3",
    "item-knn+neighbours=5+include_self=true",
    "user-knn",
    "user-knn+neighbours=3",
    "popularity+epsilon=0.2",
    "user-popularity+epsilon=0.2",
    "item-knn+epsilon=0.1",
    "svd+temperature=0.5",
    "cosine-cf+epsilon=0.1",
    "mf-ips-ratings+unrated=true+temperature=0.5+epsilon=0.1",
    "bpr+updates=20000+factors=6+rate=0.05+batch=1+draw=cell+epsilon=0.2",
)
"""Other parameters of these agents, in nightly."""
_SMALL = "updates=3000+factors=6+rate=0.01+batch=100"
OF_PURCHASES = (
    f"ulrmf+{_SMALL}",
    f"ulbpr+{_SMALL}+alpha=0.6",
    f"recresp+{_SMALL}",
    f"cause+{_SMALL}+distance=l1",
    f"cause-prod+{_SMALL}+distance=cosine",
    f"ulbpr+{_SMALL}+temperature=0.5",
)
_FEW = "epochs=3+batch=64"
_FIXED = "spread=0.02+offset_spread=0.1+map_spread=0"
OF_DECISIONS = (
    "mf-ips",
    f"mf-naive+{_FIXED}",
    f"poem+{_FEW}",
    f"banditnet+{_FEW}",
    f"dr-policy+{_FEW}",
    f"reward-cross-entropy+{_FEW}",
)
OF_DECISIONS_OTHERWISE = (
    f"mf-ips+rank=2+{_FIXED}+epsilon=0.2",
    f"reward-cross-entropy+weight=ips+sharpness=5+{_FEW}",
)


ELSEWHERE = {"epsilon-greedy", "ucb1", "lin-epsilon-greedy", "lin-ucb", "lin-thompson", "logistic-thompson"}
"""Agents that learn from all users keep the contract in test_bandits.py."""
ELSEWHERE |= {"most-recommended"}  # the policy of constant-list, from a log with recommendations: test_lists.py


def training_log(*, rated=False):
    log = random_log(5, 90, N_ITEMS, 11)
    if not rated:
        return log
    stars = np.random.default_rng(5).integers(1, 6, len(log))
    return log.with_column("reward", stars.astype(float)).with_column("observation_propensity", stars / 10)


@functools.cache
def fitted(spec):
    """One fit of each agent; each caller gets a copy."""
    if spec in OF_PURCHASES:
        log = purchase_log(small_exposures(n_items=N_ITEMS))
    elif spec in OF_DECISIONS + OF_DECISIONS_OTHERWISE:
        log = simulate(make_world("sessions", None, {"n_items": N_ITEMS, "n_flips": 5}), Uniform(N_ITEMS), 200, 7)
    else:
        log = training_log(rated="ratings" in spec)
    return registry.learner(spec).fit(log, n_items=N_ITEMS, seed=3)


class TestAgents(AgentContract):
    tolerance = 0.0

    @pytest.fixture(autouse=True, params=quick_first(SPECS + OTHERWISE, len(SPECS)))
    def _spec(self, request):
        self.spec = request.param

    def make_policy(self):
        return copy.deepcopy(fitted(self.spec))

    def test_named_as_asked(self, policy):
        assert policy.name == self.spec


def test_every_registered_agent_keeps_the_contract():
    tested = {spec.partition("+")[0] for spec in (*SPECS, *OF_PURCHASES, *OF_DECISIONS)} | ELSEWHERE
    missing = {name for name, _ in registry.agents()} - tested
    assert not missing, f"{sorted(missing)}: add to SPECS in {__file__}, or to the specs whose log has what they need"


class TestAgentsOfDecisions(TestAgents):
    tolerance = PolicyContract.tolerance

    @pytest.fixture(autouse=True, params=quick_first(OF_DECISIONS + OF_DECISIONS_OTHERWISE, len(OF_DECISIONS)))
    def _spec(self, request):
        self.spec = request.param

    def test_its_ranking_depends_on_views(self, policy, users, views):
        self.observe_events(policy, users, views)
        scores = policy.scores(users)
        assert not np.allclose(scores, scores[:1])


class TestAgentsOfPurchases(KnownUsersContract, TestAgents):
    """Users 0 .. 29 are of the log, the contract's own users strangers to it."""

    @pytest.fixture(autouse=True, params=OF_PURCHASES)
    def _spec(self, request):
        self.spec = request.param


class TestKnownUsersOfPurchases(TestAgentsOfPurchases):
    """The same with users of the log."""

    first_user = 0


@pytest.mark.parametrize("capacity", [1, 3, 5])
def test_kept_distributions_are_bounded_and_change_nothing(capacity, monkeypatch):
    users = np.arange(20)
    views = np.random.default_rng(1).integers(0, N_ITEMS, (30, 20))
    uniforms = np.random.default_rng(2).random((30, 20))
    free = registry.learner("item-knn+temperature=0.3").fit(training_log(), n_items=N_ITEMS)
    monkeypatch.setattr("recsim_mnar.policies.softening._KEPT_BYTES", 8 * N_ITEMS * capacity)
    bounded = free.fresh()
    for policy in (free, bounded):
        policy.reset(users)
    for step in range(30):
        some = np.flatnonzero(views[step] % 3)
        for policy in (free, bounded):
            policy.observe(users[some], views[step, some])
        expected = free.act(users, uniforms[step])
        np.testing.assert_array_equal(bounded.act(users, uniforms[step]), expected)
        np.testing.assert_array_equal(bounded.propensity_of(users, expected[0]), expected[1])
    assert len(bounded._cached) <= capacity
    p = free.probabilities(users)
    scores = free.scores(users).astype(float) / 0.3
    exact = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(p, exact / exact.sum(axis=1, keepdims=True), rtol=1e-12)
