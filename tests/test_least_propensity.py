"""The least propensity that a logging policy is known to have: in comparisons, and in the provenance of replays."""

import json

import numpy as np
import pytest

from recsim_mnar.answers.records import known_bound
from recsim_mnar.log.table import Log, provenance_of
from recsim_mnar.policies import registry
from recsim_mnar.policies.softening import EpsilonMixture, MixturePolicy
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replays.probabilities import (
    largest_ratio,
    least_propensity,
    probability_range,
    replay_rounds,
    rounds_of,
)
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds import make_world
from twins.commands import done, status_of

SMALL = ("n_items=20", "n_flips=5")


@pytest.fixture(scope="module")
def made():
    world = make_world("sessions", "quick", SMALL)
    train = simulate(world, registry.uniform_policy(20), 50, 1)
    return world, train, {name: registry.learner(name).fit(train, n_items=20, seed=1) for name in
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
def test_no_logged_propensity_is_below_the_least(made, which):
    """And it is attained: user-popularity shows new items never, so that exploration alone does."""
    world, _, policies = made
    policy, known = kinds(policies)[which]
    least = least_propensity(policy)
    _, largest = probability_range(policy)
    log = simulate(world, policy, 60, 3)
    logged = log.bandit()["propensity"]
    assert logged.max() <= largest * (1.0 + 1e-9)
    assert (least is not None) == known
    if known:
        assert logged.min() == pytest.approx(least, rel=1e-12)


def test_exploration_from_a_uniform_policy_stays_uniform(made):
    assert probability_range(EpsilonMixture(made[2]["random"], 0.3))[1] == pytest.approx(1.0 / 20)


def test_a_fixed_distribution_is_known_by_its_minimum(made):
    popular = made[2]["popularity"]
    fixed = popular.fixed_distribution()
    assert fixed is not None
    assert least_propensity(popular) == (fixed.min() if fixed.min() > 0.0 else None)
    assert probability_range(popular) == (fixed.min(), fixed.max())
    softened = MixturePolicy([EpsilonMixture(popular, 0.2), made[2]["random"]], [0.75, 0.25])
    ends = (0.8 * fixed.min() + 0.01, 0.8 * fixed.max() + 0.01)
    assert probability_range(softened) == pytest.approx(tuple(0.75 * end + 0.25 * 0.05 for end in ends))


@pytest.mark.parametrize("estimators", [["ips", "snips"], ["ips", "beta_ips"]], ids=["from moments", "from rows"])
def test_a_comparison_bounds_the_weights_where_it_knows_the_policy_unless_the_log_contradicts(made, estimators):
    world, _, policies = made
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
def test_no_weight_is_above_the_ratio_of_two_kinds(made, which):
    """Probability by probability, in every state of some users."""
    world, _, policies = made
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


def test_what_is_within_a_softened_policy_bounds_it_best(made):
    users, random, knn = (made[2][name] for name in ("user-popularity", "random", "item-knn"))
    assert largest_ratio(users, EpsilonMixture(users, 0.2)) == 1.0 / 0.8
    assert largest_ratio(users, MixturePolicy([EpsilonMixture(users, 0.5), random], [0.4, 0.6])) == 5.0
    assert largest_ratio(users, users) == 1.0
    assert largest_ratio(knn, users) is None


def test_clipping_hides_nothing_of_the_policy_within_a_softened_one(made):
    """Its weights are at most 1 / (1 - epsilon)."""
    world, _, policies = made
    logging = EpsilonMixture(policies["user-popularity"], 0.2)
    log = simulate(world, logging, 1500, 5)
    target = {"users": policies["user-popularity"]}
    (record,) = off_policy(log, target, estimators=["clipped_ips"], logging=logging)
    assert record.details["clip_part"] == 0.0
    assert record.details["verdict"] == "trust"


@pytest.fixture(scope="module")
def replayed(tmp_path_factory):
    """Replays of the random policy on a log that explores, in a file and in a folder, and on one that does not."""
    folder = tmp_path_factory.mktemp("replayed")
    sets = [option for setting in SMALL for option in ("--set", setting)]
    simulate = ("simulate", "--world", "sessions", *sets, "--users", 300, "--train-users", 60)
    for name, policy in (("blind", "user-popularity"), ("open", "user-popularity+epsilon=0.5")):
        assert status_of(*simulate, "--policy", policy, "--out", folder / name) == 0
    for name, out in (("blind", "blind.parquet"), ("open", "open.parquet"), ("open", "parts/")):
        assert status_of("replay", folder / name / "log", "--policy", "random", f"--out={folder}/{out}") == 0
    return folder


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
