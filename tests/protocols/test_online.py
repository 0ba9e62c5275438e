"""A/B test, off-policy protocol and compare, against worlds whose truth is known."""

import pytest

from recsim_mnar.policies import registry
from recsim_mnar.protocols.ab_test import records_of_arms, run_arms
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.protocols.decisions import Settings
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import refused
from twins.policies import MostViewed, Uniform

P = 30


def ab_test(world, policies, n_users, seed, *, paired=False):
    arms = run_arms(world, policies, n_users, seed, paired=paired, executor=None)
    return records_of_arms(world, arms, n_users, paired=paired, level=0.95)


@pytest.fixture(scope="module")
def world():
    return make_world("sessions", "recogym-v1", [f"n_items={P}", "n_flips=10"])


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
    with refused("no bandit rows"):
        off_policy(log.organic(), {"same": Uniform(P)})


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
    with refused("loocv"):
        compare(world, learners, settings=settings, protocols=["loo"])


@pytest.mark.parametrize("name", ["train_users", "test_users", "arm_users", "truth_users", "folds", "clip", "level"])
def test_settings_are_checked(name):
    with refused(name):
        Settings(**{name: 0})
