"""What a log lacks of a target policy: counted by replay, written by the command, and what `estimate` makes of it."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsim_mnar.answers.records import fitted_findings
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.softening import EpsilonMixture
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replays.probabilities import replay, replay_rounds, replay_with_support, rounds_of
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds import make_world
from twins.commands import run

SMALL = ("n_items=20", "n_flips=5")


@pytest.fixture(scope="module")
def made():
    world = make_world("sessions", "quick", SMALL)
    train = simulate(world, registry.uniform_policy(20), 50, 1)
    logging = registry.learner("user-popularity").fit(train, n_items=20, seed=1)
    return train, logging, simulate(world, logging, 40, 2)


def twin(log, policy, logging):
    out = np.full(len(log), np.nan)
    both = [policy.fresh(), logging.fresh()]
    for decisions in replay_rounds(log, both, rounds_of(log, one_by_one=False)):
        for row in decisions:
            user = log["user"][row : row + 1]
            never = both[1].probabilities(user)[0] <= 0.0
            out[row] = both[0].probabilities(user)[0][never].sum()
    return out


NONE = ("user-popularity", "user-popularity-greedy")
"""Which show what their user has seen, and no more: all that the logging policy may show."""


@pytest.mark.parametrize("target", [*NONE, "random", "item-knn", "svd+epsilon=0.3", "item-knn+temperature=1"])
def test_missing_mass_agrees_with_its_twin(made, target):
    train, logging, log = made
    policy = registry.learner(target).fit(train, n_items=20, seed=1)
    replayed, found = replay_with_support(log, policy, logging)
    np.testing.assert_array_equal(replayed, replay(log, policy))
    np.testing.assert_allclose(found, twin(log, policy, logging), atol=1e-12)
    shown = log.is_bandit
    assert np.isnan(found[~shown]).all()
    assert found[shown].mean() == 0.0 if target in NONE else 0.1 < found[shown].mean() < 1.0
    assert np.all(found[shown] + replay(log, policy)[shown] <= 1.0 + 1e-9)


def test_exploration_leaves_nothing_out(made):
    train, logging, log = made
    policy = registry.learner("random").fit(train, n_items=20, seed=1)
    explored = EpsilonMixture(logging, 0.1)
    assert np.nansum(replay_with_support(log, policy, explored)[1]) == 0.0


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
    assert "--require caution: random, snips: do not use" in err
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
    assert "contradict the largest weight that is stated" in err
    status, _, err = run(capsys, *good[:-1], 0.5)
    assert status == 2
    assert "column 'reward', row" in err
    status, _, err = run(capsys, *good, "--reward-min", 2)
    assert status == 2
    assert "must be below --reward-max" in err


def simulated(capsys, out, *more):
    sets = [option for each in SMALL for option in ("--set", each)]
    run(capsys, "simulate", "--world", "sessions", *sets, "--policy", "random", "--out", out, *more)
    return out / "log"


def findings(capsys, file, target, tmp_path):
    """By code, of every estimate."""
    run(capsys, "estimate", file, "--target", target, "--json", tmp_path / "found.json")
    records = json.loads((tmp_path / "found.json").read_text())
    return {each["code"]: each["level"] for record in records for each in record["findings"]}


def test_the_log_that_judges_is_refused_as_the_one_to_fit_on(capsys, tmp_path):
    log = simulated(capsys, tmp_path / "a", "--users", 30)
    again = ("replay", log, "--policy", "item-knn", "--train", tmp_path / "a", "--out", tmp_path / "a.parquet")
    status, _, err = run(capsys, *again)
    assert status == 2
    assert "it is LOG itself" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "a.parquet").exists()


def test_agents_that_know_their_users_future_are_never_trusted(capsys, tmp_path):
    """A training log of the same users, and more of them: what was fitted on it is of no use, the others are."""
    log = simulated(capsys, tmp_path / "a", "--users", 30)
    more = simulated(capsys, tmp_path / "more", "--users", 40)
    fit = ("replay", log, "--policy", "item-knn,random", "--train")
    status, _, err = run(capsys, *fit, more, "--out", tmp_path / "a.parquet")
    assert status == 0
    assert "agents know the future of those they are replayed on" in err.replace("\n", " ")
    assert findings(capsys, tmp_path / "a.parquet", "item-knn", tmp_path)["trained_on_log"] == "do_not_use"
    assert "trained_on_log" not in findings(capsys, tmp_path / "a.parquet", "random", tmp_path)
    others = simulated(capsys, tmp_path / "b", "--users", 30, "--seed", 1)
    status, _, err = run(capsys, *fit, others, "--out", tmp_path / "b.parquet")
    assert status == 0
    assert "future" not in err
    assert "trained_on_log" not in findings(capsys, tmp_path / "b.parquet", "item-knn", tmp_path)


def test_a_few_users_fitted_on_are_a_caution_and_a_difference_inherits_it():
    made = {"fitted_on": {"policies": ["svd"], "digest": "x", "shared": 5, "users": 100}}
    (few,) = fitted_findings(made, ["random", "svd"])
    assert (few.level, few.number) == ("caution", 0.05)
    (many,) = fitted_findings({"fitted_on": made["fitted_on"] | {"shared": 10}}, ["svd"])
    assert many.level == "do_not_use"
    assert fitted_findings(made, ["random"]) == []
    assert fitted_findings({"fitted_on": made["fitted_on"] | {"shared": 0}}, ["svd"]) == []
    assert fitted_findings({}, ["svd"]) == []


def test_users_are_split_and_each_half_judges_what_the_other_fitted(capsys, tmp_path):
    log = simulated(capsys, tmp_path / "a", "--users", 60)
    out = tmp_path / "halves.parquet"
    status, said, _ = run(capsys, "replay", log, "--policy", "item-knn", "--split-users", "--out", out)
    assert status == 0
    assert "neither is the one fitted on all users" in said
    whole, halves = Log.read(log), [Log.read(tmp_path / f"halves-half-{half}.parquet") for half in (1, 2)]
    users = [set(half.users().tolist()) for half in halves]
    assert not users[0] & users[1]
    assert users[0] | users[1] == set(whole.users().tolist())
    assert min(map(len, users)) > 15
    for judged, fitted in (halves, halves[::-1]):
        values = []
        for users in (fitted.users(), judged.users(), whole.users()):
            trained = whole.select(np.isin(whole["user"], users))
            policy = registry.learner("item-knn").fit(trained, n_items=20, seed=derive_seed(0, "fit"))
            values.append(replay(judged, policy))
        np.testing.assert_array_equal(judged["item-knn"], values[0])
        assert not np.array_equal(values[0], values[1], equal_nan=True)
        assert not np.array_equal(values[0], values[2], equal_nan=True)
    assert [half.provenance["fitted_on"]["half"] for half in halves] == [1, 2]
    assert "trained_on_log" not in findings(capsys, tmp_path / "halves-half-1.parquet", "item-knn", tmp_path)
    both = ("replay", log, "--policy", "random", "--split-users", "--train", log, "--out", tmp_path / "x.parquet")
    assert "leave --train away" in run(capsys, *both)[2]
    folder = ("replay", log, "--policy", "random", "--split-users", "--out", f"{tmp_path}/folder/")
    assert "two files" in run(capsys, *folder)[2]
