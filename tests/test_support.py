"""The mass of a target policy that a log lacks: counted by replay, written by the command, judged by `estimate`."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from recsim_mnar.answers.records import fitted_findings
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replays.probabilities import replay, replay_rounds, replay_with_support, rounds_of
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds import make_world
from twins.commands import fails, run, status_of

SMALL = ("n_items=20", "n_flips=5")


@pytest.fixture(scope="module")
def made():
    """A training log, a policy that shows only what its user has seen, and a log of its recommendations."""
    world = make_world("sessions", "quick", SMALL)
    train = simulate(world, registry.uniform_policy(20), 50, 1)
    logging = registry.learner("user-popularity").fit(train, n_items=20, seed=1)
    return train, logging, simulate(world, logging, 40, 2)


def twin(log, policy, logging):
    missing = np.full(len(log), np.nan)
    policy, logging = policy.fresh(), logging.fresh()
    for decisions in replay_rounds(log, [policy, logging], rounds_of(log, one_by_one=False)):
        for row in decisions:
            user = log["user"][row : row + 1]
            never_shown = logging.probabilities(user)[0] <= 0.0
            missing[row] = policy.probabilities(user)[0][never_shown].sum()
    return missing


WITHIN = ("user-popularity", "user-popularity-greedy")
"""Which show what their user has seen, and no more: all that the logging policy may show."""


@pytest.mark.parametrize("target", [*WITHIN, "random", "item-knn", "svd+epsilon=0.3", "item-knn+temperature=1"])
def test_missing_mass_agrees_with_its_twin(made, target):
    train, logging, log = made
    policy = registry.learner(target).fit(train, n_items=20, seed=1)
    probability, missing = replay_with_support(log, policy, logging)
    assert_array_equal(probability, replay(log, policy))
    assert_allclose(missing, twin(log, policy, logging), atol=1e-12)
    assert np.isnan(missing[~log.is_bandit]).all()
    if target in WITHIN:
        assert np.nansum(missing) == 0.0
    else:
        assert 0.1 < np.nanmean(missing) < 1.0
    assert np.nanmax(missing + probability) <= 1.0 + 1e-9


def test_the_protocol_knows_what_the_log_lacks(made):
    train, logging, log = made
    policies = {"random": registry.learner("random").fit(train, n_items=20, seed=1)}
    (record,) = off_policy(log, policies, estimators=["ips"], logging=logging)
    assert record.details["verdict_level"] == "do_not_use"
    assert "support_gap" in {finding["code"] for finding in record.details["findings"]}
    (unknown,) = off_policy(log, policies, estimators=["ips"])
    assert "support_gap" not in {finding["code"] for finding in unknown.details["findings"]}


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """Replays of the random policy: of a log that shows new items never, and of one that explores."""
    folder = tmp_path_factory.mktemp("support")
    sets = [option for setting in SMALL for option in ("--set", setting)]
    simulate = ("simulate", "--world", "sessions", *sets, "--users", 120, "--train-users", 60)
    for name, policy in (("blind", "user-popularity"), ("open", "user-popularity+epsilon=0.5")):
        assert status_of(*simulate, "--policy", policy, "--out", folder / name) == 0
        replayed = ("replay", folder / name / "log", "--policy", "random", "--out", folder / f"{name}.parquet")
        assert status_of(*replayed) == 0
    return folder


def test_replay_writes_the_missing_mass(replayed):
    blind, explored = (pq.read_table(replayed / f"{name}.parquet").to_pandas() for name in ("blind", "open"))
    assert blind["random_unsupported"].mean() > 0.1
    assert explored["random_unsupported"].max() == 0.0


def test_estimate_takes_the_missing_mass(capsys, replayed, tmp_path):
    report = tmp_path / "estimates.json"
    estimate = ("estimate", replayed / "blind.parquet", "--target", "random", "--json", report)
    status, out, err = run(capsys, *estimate, "--require", "caution")
    assert status == 3
    assert "--require caution: random, snips: do not use" in err
    assert "random" in out  # the table is printed all the same
    record = json.loads(report.read_text())[0]
    assert record["verdict"].startswith("do not use: ")
    assert record["verdict_level"] == "do_not_use"
    assert record["level"] == 0.95
    assert set(record["findings"][0]) == {"code", "severity", "number", "message", "action", "level"}


@pytest.mark.parametrize(
    ("bounds", "status", "words"),
    [
        (["--reward-max", 1, "--weight-max", 0.001], 3, "contradict the largest weight that is stated"),
        (["--reward-max", 0.5], 2, "column 'reward', row"),
        (["--reward-max", 1, "--reward-min", 2], 2, "must be below --reward-max"),
    ],
)
def test_bounds_that_the_log_contradicts_are_named(capsys, replayed, bounds, status, words):
    estimate = ("estimate", replayed / "open.parquet", "--target", "random", "--estimators", "ips")
    ended, _, err = run(capsys, *estimate, *bounds, "--require", "caution")
    assert ended == status
    assert words in err


def simulated(out, *more):
    sets = [option for setting in SMALL for option in ("--set", setting)]
    assert status_of("simulate", "--world", "sessions", *sets, "--policy", "random", "--out", out, *more) == 0
    return out / "log"


def findings(file, target):
    """Return levels of the findings of all estimates, by code."""
    answer = file.with_suffix(".json")
    status_of("estimate", file, "--target", target, "--json", answer)
    records = json.loads(answer.read_text())
    return {finding["code"]: finding["level"] for record in records for finding in record["findings"]}


def test_the_log_that_judges_is_refused_as_the_one_to_fit_on(capsys, tmp_path):
    log = simulated(tmp_path / "a", "--users", 30)
    again = ("replay", log, "--policy", "item-knn", "--train", tmp_path / "a", "--out", tmp_path / "a.parquet")
    assert "it is LOG itself" in fails(capsys, *again)
    assert not (tmp_path / "a.parquet").exists()


def test_agents_that_know_their_users_future_are_never_trusted(capsys, tmp_path):
    """A training log of the same users, and more of them: what was fitted on it is of no use, the others are."""
    log = simulated(tmp_path / "a", "--users", 30)
    same_users = simulated(tmp_path / "same", "--users", 40)
    other_users = simulated(tmp_path / "other", "--users", 30, "--seed", 1)
    capsys.readouterr()
    replayed = ("replay", log, "--policy", "item-knn,random", "--train")
    status, _, err = run(capsys, *replayed, same_users, "--out", tmp_path / "a.parquet")
    assert status == 0
    assert "agents know the future of those they are replayed on" in err.replace("\n", " ")
    assert findings(tmp_path / "a.parquet", "item-knn")["trained_on_log"] == "do_not_use"
    assert "trained_on_log" not in findings(tmp_path / "a.parquet", "random")
    status, _, err = run(capsys, *replayed, other_users, "--out", tmp_path / "b.parquet")
    assert status == 0
    assert "future" not in err
    assert "trained_on_log" not in findings(tmp_path / "b.parquet", "item-knn")


@pytest.mark.parametrize(
    ("shared", "policies", "expected"),
    [
        (5, ["random", "svd"], [("caution", 0.05)]),
        (10, ["svd"], [("do_not_use", 0.1)]),
        (5, ["random"], []),
        (0, ["svd"], []),
    ],
)
def test_a_few_users_fitted_on_are_a_caution_and_a_difference_inherits_it(shared, policies, expected):
    provenance = {"fitted_on": {"policies": ["svd"], "digest": "x", "shared": shared, "users": 100}}
    assert [(f.level, f.number) for f in fitted_findings(provenance, policies)] == expected


@pytest.fixture
def halves(tmp_path):
    """A log, and its two halves, replayed with agents that were fitted on the other half."""
    log = simulated(tmp_path / "a", "--users", 60)
    out = tmp_path / "halves.parquet"
    assert status_of("replay", log, "--policy", "item-knn", "--split-users", "--out", out) == 0
    files = [tmp_path / f"halves-half-{number}.parquet" for number in (1, 2)]
    return Log.read(log), files


def test_users_are_split_and_each_half_judges_what_the_other_fitted(halves):
    whole, files = halves
    first, second = (Log.read(file) for file in files)
    assert_array_equal(np.sort(np.concatenate([first.users(), second.users()])), whole.users())
    assert min(len(first.users()), len(second.users())) > 15
    for judged, other in ((first, second), (second, first)):
        by_other, by_itself, by_all = (
            replay(judged, fitted_on(whole, users)) for users in (other.users(), judged.users(), whole.users())
        )
        assert_array_equal(judged["item-knn"], by_other)
        assert not np.array_equal(by_other, by_itself, equal_nan=True)
        assert not np.array_equal(by_other, by_all, equal_nan=True)
    assert [half.provenance["fitted_on"]["half"] for half in (first, second)] == [1, 2]
    assert "trained_on_log" not in findings(files[0], "item-knn")


def fitted_on(log, users):
    train = log.select(np.isin(log["user"], users))
    return registry.learner("item-knn").fit(train, n_items=20, seed=derive_seed(0, "fit"))


@pytest.mark.parametrize(
    ("more", "words"),
    [(["--train", "log", "--out", "x.parquet"], "leave --train away"), (["--out", "folder/"], "two files")],
)
def test_wrong_splits_are_refused(capsys, tmp_path, monkeypatch, more, words):
    monkeypatch.chdir(tmp_path)
    simulated(tmp_path, "--users", 5)
    assert words in run(capsys, "replay", "log", "--policy", "random", "--split-users", *more)[2]
