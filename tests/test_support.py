"""What a log lacks of a target policy, and the least propensity of its own: by replay, command and `estimate`."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from recsim_mnar.answers.records import fitted_findings, known_bound
from recsim_mnar.log.table import Log, provenance_of
from recsim_mnar.own_log import replaying
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.policies import registry
from recsim_mnar.policies.softening import EpsilonMixture, MixturePolicy
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replays.probabilities import (
    largest_ratio,
    least_propensity,
    probability_range,
    replay,
    replay_rounds,
    replay_with_support,
    rounds_of,
)
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds import make_world
from twins.commands import done, fails, run, status_of

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
    """Replays of the random policy: of a log that shows new items never, and of one that explores, in parts too."""
    folder = tmp_path_factory.mktemp("support")
    sets = [option for setting in SMALL for option in ("--set", setting)]
    simulate = ("simulate", "--world", "sessions", *sets, "--users", 300, "--train-users", 60)
    for name, policy in (("blind", "user-popularity"), ("open", "user-popularity+epsilon=0.5")):
        assert status_of(*simulate, "--policy", policy, "--out", folder / name) == 0
    for name, out in (("blind", "blind.parquet"), ("open", "open.parquet"), ("open", "parts/")):
        assert status_of("replay", folder / name / "log", "--policy", "random", f"--out={folder}/{out}") == 0
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


def test_a_log_that_says_nothing_of_fitting_has_no_finding():
    assert fitted_findings({}, ["svd"]) == []


def test_users_are_split_and_some_judge_what_was_fitted_on_the_others(tmp_path):
    whole = simulated(tmp_path / "a", "--users", 60)
    with replaying.replayed(whole, ["item-knn"], Reading(), 0.5, 0) as (file, _):
        judged = Log.read(file)
        assert "trained_on_log" not in findings(file, "item-knn")
    whole = Log.read(whole)
    others = np.setdiff1d(whole.users(), judged.users())
    assert min(len(others), len(judged.users())) > 15
    by_others, by_themselves, by_all = (
        replay(judged, fitted_on(whole, users)) for users in (others, judged.users(), whole.users())
    )
    assert_array_equal(judged["item-knn"], by_others)
    assert not np.array_equal(by_others, by_themselves, equal_nan=True)
    assert not np.array_equal(by_others, by_all, equal_nan=True)


def fitted_on(log, users):
    train = log.select(np.isin(log["user"], users))
    return registry.learner("item-knn").fit(train, n_items=20, seed=derive_seed(0, "fit"))


# ------------------------------------------------------------------------------------------ the least propensity


@pytest.fixture(scope="module")
def fitted():
    """A world, and policies fitted to a log of it."""
    world = make_world("sessions", "quick", SMALL)
    train = simulate(world, registry.uniform_policy(20), 50, 1)
    return world, {name: registry.learner(name).fit(train, n_items=20, seed=1) for name in
                          ("random", "popularity", "user-popularity", "item-knn")}  # fmt: skip


def kinds(policies):
    """Policies, and whether their least propensity is known."""
    users, random = policies["user-popularity"], policies["random"]
    return [
        (random, True),
        (users, False),
        (EpsilonMixture(users, 0.0), False),
        (EpsilonMixture(users, 0.2), True),
        (EpsilonMixture(EpsilonMixture(users, 0.3), 0.2), True),
        (EpsilonMixture(random, 0.3), True),
        (MixturePolicy([users, random], [0.9, 0.1]), True),
        (MixturePolicy([EpsilonMixture(users, 0.1), random], [0.5, 0.5]), True),
        (MixturePolicy([users, EpsilonMixture(users, 0.0)], [0.5, 0.5]), False),
    ]


@pytest.mark.parametrize("which", range(9))
def test_no_logged_propensity_is_below_the_least(fitted, which):
    """And it is attained: user-popularity shows new items never, so that exploration alone does."""
    world, policies = fitted
    policy, known = kinds(policies)[which]
    least = least_propensity(policy)
    _, largest = probability_range(policy)
    log = simulate(world, policy, 60, 3)
    logged = log.bandit()["propensity"]
    assert logged.max() <= largest * (1.0 + 1e-9)
    assert (least is not None) == known
    if known:
        assert logged.min() == pytest.approx(least, rel=1e-12)


def test_exploration_from_a_uniform_policy_stays_uniform(fitted):
    assert probability_range(EpsilonMixture(fitted[1]["random"], 0.3))[1] == pytest.approx(1.0 / 20)


def test_a_fixed_distribution_is_known_by_its_minimum(fitted):
    popular = fitted[1]["popularity"]
    fixed = popular.fixed_distribution()
    assert fixed is not None
    assert least_propensity(popular) == (fixed.min() if fixed.min() > 0.0 else None)
    assert probability_range(popular) == (fixed.min(), fixed.max())
    softened = MixturePolicy([EpsilonMixture(popular, 0.2), fitted[1]["random"]], [0.75, 0.25])
    ends = (0.8 * fixed.min() + 0.01, 0.8 * fixed.max() + 0.01)
    assert probability_range(softened) == pytest.approx(tuple(0.75 * end + 0.25 * 0.05 for end in ends))


@pytest.mark.parametrize("estimators", [["ips", "snips"], ["ips", "beta_ips"]], ids=["from moments", "from rows"])
def test_a_comparison_bounds_the_weights_where_it_knows_the_policy_unless_the_log_contradicts(fitted, estimators):
    world, policies = fitted
    logging = EpsilonMixture(policies["user-popularity"], 0.5)
    log = simulate(world, logging, 400, 5)
    target = {"knn": policies["item-knn"]}
    for record in off_policy(log, target, estimators=estimators, logging=logging):
        assert record.details["full_support"]
        codes = {finding["code"] for finding in record.details["findings"] if finding["level"] != "trust"}
        assert "bound_denied" not in codes
    for record in off_policy(log, target, estimators=estimators):
        assert record.details.get("full_support") is None

    propensity = log["propensity"].copy()
    propensity[np.flatnonzero(log.is_bandit)[:50]] = 0.001
    wrong = Log({**log.columns, "propensity": propensity}, dict(log.provenance))  # made otherwise
    (record, *_) = off_policy(wrong, {"random": policies["random"]}, estimators=estimators, logging=logging)
    assert "bound_denied" in {finding["code"] for finding in record.details["findings"]}


@pytest.mark.parametrize("which", range(9))
def test_no_weight_is_above_the_ratio_of_two_kinds(fitted, which):
    """Probability by probability, in every state of some users."""
    world, policies = fitted
    logging, _ = kinds(policies)[which]
    log = simulate(world, logging, 40, 4)
    for policy, _ in kinds(policies):
        bound = largest_ratio(policy, logging)
        if bound is None:
            continue
        acting = policy.fresh()
        logged = logging.fresh()
        for decisions in replay_rounds(log, [acting, logged], rounds_of(log, one_by_one=False)):
            users = np.unique(log["user"][decisions])
            target = acting.probabilities(users)
            assert np.all(target <= logged.probabilities(users) * bound * (1.0 + 1e-9))


def test_what_is_within_a_softened_policy_bounds_it_best(fitted):
    users, random, knn = (fitted[1][name] for name in ("user-popularity", "random", "item-knn"))
    assert largest_ratio(users, EpsilonMixture(users, 0.2)) == 1.0 / 0.8
    assert largest_ratio(users, MixturePolicy([EpsilonMixture(users, 0.5), random], [0.4, 0.6])) == 5.0
    assert largest_ratio(users, users) == 1.0
    assert largest_ratio(knn, users) is None


def test_clipping_hides_nothing_of_the_policy_within_a_softened_one(fitted):
    """Its weights are at most 1 / (1 - epsilon)."""
    world, policies = fitted
    logging = EpsilonMixture(policies["user-popularity"], 0.2)
    log = simulate(world, logging, 1500, 5)
    target = {"users": policies["user-popularity"]}
    (record,) = off_policy(log, target, estimators=["clipped_ips"], logging=logging)
    assert record.details["clip_part"] == 0.0
    assert record.details["verdict"] == "trust"


def test_replay_writes_the_least_propensity(replayed):
    assert provenance_of(replayed / "open.parquet")["propensity_min"] == 0.5 / 20
    assert "propensity_min" not in provenance_of(replayed / "blind.parquet")


def estimated(capsys, file, *more):
    """Return what `estimate` prints, and its first record."""
    answer = file.parent / "estimates.json"
    out = done(capsys, "estimate", file, "--target", "random", "--json", answer, *more)
    return out, json.loads(answer.read_text())[0]


NOTE = "--propensity-min 0.025: from the log's provenance"


@pytest.mark.parametrize(
    ("name", "more"),
    [("parts", []), ("open.parquet", ["--estimators", "ips,beta_ips"]), ("open.parquet", ["--user-column", "user"])],
    ids=["in blocks", "whole, for a bootstrap", "as a file of one's own"],
)
def test_estimate_takes_the_least_propensity_however_it_reads(capsys, replayed, name, more):
    _, plain = estimated(capsys, replayed / "open.parquet")
    out, record = estimated(capsys, replayed / name, *more)
    assert NOTE in out
    assert record["diagnostics"]["propensity_min_taken"] == 0.025
    assert record["diagnostics"]["full_support"]
    assert "bound_denied" not in {f["code"] for f in record["findings"] if f["level"] != "trust"}
    assert (record["value"], record["high"]) == (plain["value"], plain["high"])


@pytest.mark.parametrize(
    ("name", "more"),
    [("open.parquet", ["--propensity-min", "0.02"]), ("open.parquet", ["--weight-max", "50"]), ("blind.parquet", [])],
    ids=["a stated propensity", "a stated weight", "another policy"],
)
def test_a_stated_bound_is_not_overruled(capsys, replayed, name, more):
    out, record = estimated(capsys, replayed / name, *more)
    assert NOTE not in out
    assert "propensity_min_taken" not in record["diagnostics"]


BOUND = {"propensity_min": 0.1, "policy": {"name": "x"}}


@pytest.mark.parametrize(
    ("provenance", "stated", "column", "bound"),
    [
        (BOUND, {}, "propensity", 0.1),
        ({"propensity_min": 0.1}, {}, "propensity", None),
        (BOUND | {"propensity_min": "0.1"}, {}, "propensity", None),
        (BOUND | {"propensity_min": 2.0}, {}, "propensity", None),
        (BOUND, {"weight_max": 5.0}, "propensity", None),
        (BOUND, {}, "estimated", None),
    ],
)
def test_when_a_bound_is_taken(provenance, stated, column, bound):
    assert known_bound(provenance, stated, column) == bound
