"""Agents that learn from all users in comparisons: arms of their own; what a verdict says of their logs."""

import numpy as np
import pytest
from scipy import stats

import toys
from recsim_mnar.estimators.intervals import student_mean_interval
from recsim_mnar.policies import Learner, registry
from recsim_mnar.protocols.ab_test import online_arms
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.protocols.decisions import Settings
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins.own_schema import estimate_file
from twins.policies import Uniform

P = 6
SIZES = Settings(
    train_users=20,
    test_users=60,
    arm_users=60,
    truth_users=60,
    folds=2,
    online_runs=3,
    online_lanes=8,
    logging="random",
)


class Greedy(toys.Greedy):
    epsilon = 0.3

    def __init__(self, n_items=P):
        super().__init__(n_items)


class GreedyLearner(Learner):
    """Begins untrained."""

    name = "greedy"

    def fit(self, log, *, n_items, seed=0):
        return Greedy(n_items)


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1))


def test_an_interval_over_runs_is_students():
    values = [0.1, 0.2, 0.4]
    value, low, high = student_mean_interval(values, 0.9)
    expected = stats.t.interval(0.9, 2, loc=np.mean(values), scale=stats.sem(values))
    np.testing.assert_allclose((value, low, high), (np.mean(values), *expected))
    assert student_mean_interval([0.5], 0.95) == (0.5, -np.inf, np.inf)


def test_arms_are_runs_of_untouched_objects(world):
    policy = Greedy()
    (record,) = online_arms(world, {"it": policy}, 40, 5, runs=3, lanes=4)
    assert policy.shown.sum() == 0
    runs = [simulate_online(world, Greedy(), 40, derive_seed(5, f"online/{k}"), lanes=4) for k in range(3)]
    means = [run.log["reward"][run.log.is_bandit].mean() for run in runs]
    np.testing.assert_allclose(record.details["per_run"], means)
    assert record.value == pytest.approx(np.mean(means))
    assert record.n == sum(run.log.is_bandit.sum() for run in runs)


def test_compare_gives_them_arms_of_their_own_and_ranks_them_with_nobody(world):
    learners = {"random": registry.learner("random"), "popularity": registry.learner("popularity")}
    alone = compare(world, learners, settings=SIZES, seed=4)
    both = compare(world, {**learners, "greedy": GreedyLearner()}, settings=SIZES, seed=4)
    own = [r for r in both.records if r.agent == "greedy"]
    assert [(r.protocol, r.metric) for r in own] == [("online", "ctr")]
    assert own[0].details["runs"] == 3
    assert [f["code"] for f in own[0].details["findings"] if f["level"] != "trust"][-1] == "few_runs"
    assert ("online", "ctr") in both.columns
    assert "not ranked with agents that do not learn" in " ".join(both.notes)
    # Nothing that is said of the others changes.
    values = {(r.protocol, r.agent, r.metric): r.value for r in both.records if r.agent != "greedy"}
    assert values == {(r.protocol, r.agent, r.metric): r.value for r in alone.records}
    assert [j.to_dict() for j in both.judgements] == [j.to_dict() for j in alone.judgements]


def test_compare_of_learners_alone(world):
    comparison = compare(world, {"greedy": GreedyLearner()}, settings=SIZES, seed=4)
    assert [(r.protocol, r.agent) for r in comparison.records] == [("online", "greedy")]
    assert comparison.judgements == []


def test_a_verdict_says_that_users_of_a_learners_log_are_not_independent(world, tmp_path):
    log = simulate_online(world, Greedy(), 200, 3, lanes=16).log
    log = log.with_column("uniform", replay(log, Uniform(P)))
    log.write(tmp_path / "log")
    (record,) = estimate_file(tmp_path / "log", ["uniform"], estimators=["ips"])
    codes = [finding["code"] for finding in record["findings"]]
    assert "users_not_independent" in codes
    assert record["verdict_level"] != "trust"
    assert "users are not independent" in record["verdict"]
    (same,) = off_policy(log, {"uniform": Uniform(P)}, estimators=["ips"])
    assert "users_not_independent" in [finding["code"] for finding in same.details["findings"]]


@pytest.mark.parametrize("make", [simulate, lambda *a: simulate_online(*a).log])
def test_nothing_is_said_of_a_policy_that_does_not_learn(world, tmp_path, make):
    log = make(world, Uniform(P), 100, 3)
    log.with_column("uniform", replay(log, Uniform(P))).write(tmp_path / "log")
    (record,) = estimate_file(tmp_path / "log", ["uniform"], estimators=["ips"])
    assert "users_not_independent" not in [finding["code"] for finding in record["findings"]]
