"""What a log lacks of a target policy: counted by replay, written by the command, and what `estimate` makes of it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsim_mnar import cli
from recsim_mnar.log.table import Log
from recsim_mnar.policy import registry
from recsim_mnar.policy.base import observe_events
from recsim_mnar.policy.softening import EpsilonMixture
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replay import missing_mass, replay, replay_batches, replay_with_support, supports_every_action
from recsim_mnar.simulate.items import simulate
from recsim_mnar.worlds import make_world

SMALL = ("n_items=20", "n_flips=5")


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


@pytest.fixture(scope="module")
def made():
    world = make_world("sessions", "quick", SMALL)
    uniform = registry.learner("random").fit(Log({}), n_items=20, seed=0)
    train = simulate(world, uniform, 50, 1)
    logging = registry.learner("user-popularity").fit(train, n_items=20, seed=1)
    return train, logging, simulate(world, logging, 40, 2)


def twin(log, policy, logging):
    out = np.full(len(log), np.nan)
    both = [policy.fresh(), logging.fresh()]
    for each in both:
        each.reset(np.unique(log["user"]))
    for views, decisions in replay_batches(log, 0, len(log), one_by_one=False):
        for each in both:
            if len(views):
                observe_events(each, log["user"][views], log["item"][views], log["reward"][views])
        for row in decisions:
            user = log["user"][row : row + 1]
            never = both[1].probabilities(user)[0] <= 0.0
            out[row] = both[0].probabilities(user)[0][never].sum()
    return out


@pytest.mark.parametrize(
    "target", ["random", "item-knn", "user-popularity-greedy", "svd+epsilon=0.3", "item-knn+temperature=1"]
)
def test_missing_mass_agrees_with_its_twin(made, target):
    train, logging, log = made
    policy = registry.learner(target).fit(train, n_items=20, seed=1)
    replayed, found = replay_with_support(log, policy, logging)
    np.testing.assert_array_equal(replayed, replay(log, policy))
    np.testing.assert_array_equal(found, missing_mass(log, policy, logging))
    np.testing.assert_allclose(found, twin(log, policy, logging), atol=1e-12)
    shown = log.is_bandit
    assert np.isnan(found[~shown]).all()
    # user-popularity shows what its user has seen, and no more: which is all that its greedy form takes
    assert found[shown].mean() == 0.0 if target == "user-popularity-greedy" else 0.1 < found[shown].mean() < 1.0
    assert np.all(found[shown] + replay(log, policy)[shown] <= 1.0 + 1e-9)


def test_a_policy_misses_nothing_of_its_own(made):
    train, logging, log = made
    same = registry.learner("user-popularity").fit(train, n_items=20, seed=1)
    assert np.nansum(missing_mass(log, same, logging)) == 0.0
    assert np.nansum(twin(log, same, logging)) == 0.0


def test_exploration_leaves_nothing_out(made):
    train, logging, log = made
    policy = registry.learner("random").fit(train, n_items=20, seed=1)
    explored = EpsilonMixture(logging, 0.1)
    assert supports_every_action(explored)
    assert supports_every_action(policy)
    assert not supports_every_action(logging)
    assert not supports_every_action(EpsilonMixture(logging, 0.0))
    assert np.nansum(missing_mass(log, policy, explored)) == 0.0


def test_the_protocol_knows_what_the_log_lacks(made):
    train, logging, log = made
    policies = {"random": registry.learner("random").fit(train, n_items=20, seed=1)}
    (record,) = off_policy(log, policies, estimators=["ips"], logging=logging)
    assert record.details["verdict_level"] == "do_not_use"
    assert "support_gap" in {finding["code"] for finding in record.details["findings"]}
    (unknown,) = off_policy(log, policies, estimators=["ips"])
    assert "support_gap" not in {finding["code"] for finding in unknown.details["findings"]}


def test_replay_writes_the_missing_mass_and_estimate_takes_it(capsys, tmp_path):
    sets = [option for each in SMALL for option in ("--set", each)]
    base = ["simulate", "--world", "sessions", *sets, "--users", 120, "--train-users", 60]
    for name, policy in (("blind", "user-popularity"), ("open", "user-popularity+epsilon=0.5")):
        run(capsys, *base, "--policy", policy, "--out", tmp_path / name)
        status, _, err = run(
            capsys, "replay", tmp_path / name / "log", "--policy", "random", "--out", tmp_path / f"{name}.parquet"
        )
        assert status == 0, err
    blind = pq.read_table(tmp_path / "blind.parquet")
    assert blind["random_unsupported"].to_pandas().mean() > 0.1
    assert pq.read_table(tmp_path / "open.parquet")["random_unsupported"].to_pandas().max() == 0.0
    report = tmp_path / "found.json"
    status, out, err = run(
        capsys, "estimate", tmp_path / "blind.parquet", "--target", "random", "--require", "caution", "--json", report
    )
    assert status == 3
    assert "--require caution: random, ips: do not use" in err
    assert "random" in out  # the table is printed all the same
    record = json.loads(report.read_text())[0]
    assert record["verdict"].startswith("do not use: ")
    assert record["verdict_level"] == "do_not_use"
    assert record["level"] == 0.95
    assert {"code", "severity", "number", "message", "action", "level"} == set(record["findings"][0])
    good = ["estimate", tmp_path / "open.parquet", "--target", "random", "--estimators", "ips", "--reward-max", 1]
    assert run(capsys, *good, "--require", "trust")[0] in (0, 3)
    status, _, err = run(capsys, *good, "--weight-max", 0.001, "--require", "caution")
    assert status == 3
    assert "contradict the least propensity or the largest weight that is stated" in err
    status, _, err = run(capsys, *good[:-1], 0.5)
    assert status == 2
    assert "column 'reward', row" in err
    status, _, err = run(capsys, *good, "--reward-min", 2)
    assert status == 2
    assert "must be below reward_max" in err


def test_agents_that_know_their_users_future_are_told(capsys, tmp_path):
    sets = [option for each in SMALL for option in ("--set", each)]
    run(
        capsys, "simulate", "--world", "sessions", *sets, "--users", 30, "--policy", "random", "--out",
        tmp_path / "a",
    )  # fmt: skip
    arguments = ["replay", tmp_path / "a" / "log", "--policy", "item-knn", "--train"]
    status, _, err = run(capsys, *arguments, tmp_path / "a" / "log", "--out", tmp_path / "a.parquet")
    assert status == 0
    assert "agents know the future of those they are replayed on" in err.replace("\n", " ")
    run(
        capsys, "simulate", "--world", "sessions", *sets, "--users", 30, "--policy", "random", "--seed", 1, "--out",
        tmp_path / "b",
    )  # fmt: skip
    status, _, err = run(capsys, *arguments, tmp_path / "b" / "log", "--out", tmp_path / "b.parquet")
    assert status == 0
    assert "future" not in err
