"""A/B test, off-policy protocol and compare, against worlds whose truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.policies import registry
from recsim_mnar.protocols.ab_test import records_of_arms, run_arms
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.protocols.decisions import Settings, truth
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from twins.policies import MostViewed, Uniform

P = 30


def ab_test(world, policies, n_users, seed, *, paired=False):
    arms = run_arms(world, policies, n_users, seed, paired=paired, executor=None)
    return records_of_arms(world, arms, n_users, paired=paired, level=0.95)


@pytest.fixture(scope="module")
def world():
    return make_world("sessions", "recogym-v1", [f"n_items={P}", "n_flips=10"])


@pytest.mark.verify
def test_the_ratio_interval_holds_its_level():
    """Users of very different length whose rate depends on it: 2,000 samples of 150 users, nominal 95 %."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        n = rng.geometric(0.05, 150)
        rate = 0.02 + 0.1 * rng.beta(1, 3, 150) + 0.05 * (n > 30)
        _, low, high = ratio_interval(rng.binomial(n, rate), n, 0.95)
        # E[sum y] / E[sum n], with P(n > 30) n known for the geometric law.
        q = 0.95
        long = q**30 * (30 + 1 / 0.05)
        true = 0.02 + 0.1 * 0.25 + 0.05 * long / (1 / 0.05)
        held += low <= true <= high
    assert held >= stats.binom.ppf(1e-4, 2000, 0.93)


def test_the_ratio_interval_at_its_edges():
    assert ratio_interval([], [], 0.95)[1:] == (-math.inf, math.inf)
    assert ratio_interval([1.0], [4], 0.95) == (0.25, -math.inf, math.inf)
    value, low, high = ratio_interval([1.0, 0, 0, 5], [4, 0, 0, 8], 0.95)
    assert value == 0.5
    assert low < 0.5 < high


@pytest.mark.verify
def test_clicks_and_exact_probabilities_estimate_the_same_ctr(world):
    policies = {"uniform": Uniform(P), "most": MostViewed(P)}
    records = ab_test(world, policies, 1500, 3)
    exact = {r.agent: r for r in records if r.metric == "ctr_exact"}
    for r in records:
        if r.metric == "ctr":
            other = exact[r.agent]
            assert abs(r.value - other.value) < 2 * (r.high - r.low)
            assert other.high - other.low < 0.6 * (r.high - r.low)


def test_arms_share_users_only_when_paired(world):
    policies = {"a": Uniform(P), "b": Uniform(P)}
    apart = [r.value for r in ab_test(world, policies, 50, 1) if r.metric == "ctr_exact"]
    together = [r.value for r in ab_test(world, policies, 50, 1, paired=True) if r.metric == "ctr_exact"]
    assert apart[0] != apart[1]
    assert together[0] == together[1]


def test_off_policy_of_the_logging_policy_is_its_own_mean(world):
    log = simulate(world, Uniform(P), 200, 3)
    records = off_policy(log, {"same": Uniform(P)})
    mean = log["reward"][log.is_bandit].mean()
    assert {r.metric for r in records} == {"clipped_ips", "ips", "snips"}
    for r in records:
        assert r.value == pytest.approx(mean, rel=1e-12)
        assert r.details["share_supported"] == 1
        assert r.details["kish"] == pytest.approx(log.is_bandit.sum())
    with pytest.raises(UserError, match="no bandit rows"):
        off_policy(log.organic(), {"same": Uniform(P)})


@pytest.mark.verify
@pytest.mark.slow
def test_clipped_ips_with_full_support_holds_the_truth():
    """The truth is each agent's exact mean click probability in the states that this very log met."""
    n_logs, n_users = 80, 120
    sizes = ("n_items=50", "n_flips=25", "sigma_mu_organic=0.1", "sigma_omega=0.05")
    world = make_world("sessions", "recogym-v1", sizes)
    train = simulate(world, Uniform(50), 1000, 6)
    agents = ("random", "popularity", "user-popularity", "svd", "item-knn", "user-knn")
    policies = {name: registry.learner(name).fit(train, n_items=50, seed=0) for name in agents}
    logger = registry.learner("user-popularity+epsilon=0.2").fit(train, n_items=50, seed=0)
    # One simulation of many users, cut into logs: users are independent, so the pieces are independent logs.
    log = simulate(world, logger, n_logs * n_users, 5)
    on_log = value_on_log(world, log, policies, 5)
    on_policy = {record.agent: record.value for record in truth(world, policies, 20_000, 5)}
    target = {name: replay(log, policy) for name, policy in policies.items()}
    covered = dict.fromkeys(policies, 0)
    for number in range(n_logs):
        mine = log["user"] // n_users == number
        exact = value_on_log(world, log.select(mine), policies, 5)
        shown = mine & log.is_bandit
        user, reward, propensity = log["user"][shown], log["reward"][shown], log["propensity"][shown]
        for name in policies:
            found = estimate_value(reward, propensity, target[name][shown], clip=15.0, cluster=user)
            covered[name] += found.low <= exact[name] <= found.high
    for name in policies:
        # A true 95 % interval covers fewer than this once in 10,000.
        assert covered[name] >= stats.binom.ppf(1e-4, n_logs, 0.95), name
        assert abs(on_policy[name] / on_log[name] - 1) < 0.05, name


def test_compare_runs_only_what_is_asked_and_does_not_depend_on_it(world):
    sizes = dict.fromkeys(("train_users", "test_users", "arm_users", "truth_users"), 50)
    settings = Settings(**sizes, folds=2, logging="user-popularity+epsilon=0.5")
    learners = {name: registry.learner(name) for name in ("random", "user-popularity")}
    whole = compare(world, learners, settings=settings, seed=4)
    part = compare(world, learners, settings=settings, seed=4, protocols=["off_policy"])
    assert {r.protocol for r in part.records} == {"off_policy", "truth"}

    def values(comparison):
        return {(r.protocol, r.agent, r.metric): r.value for r in comparison.records}

    assert values(part).items() <= values(whole).items()
    for r in whole.records:
        if r.protocol == "off_policy":
            assert 0 < r.details["value_on_log"] < 0.03
    with pytest.raises(UserError, match="loocv"):
        compare(world, learners, settings=settings, protocols=["loo"])


@pytest.mark.parametrize("name", ["train_users", "test_users", "arm_users", "truth_users", "folds", "clip", "level"])
def test_settings_are_checked(name):
    with pytest.raises(UserError, match=name):
        Settings(**{name: 0})
