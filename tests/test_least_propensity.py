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
from twins.commands import run

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
def test_no_logged_propensity_is_below_what_is_known(made, which):
    """And it is attained: user-popularity shows new items never, so that exploration alone does."""
    world, _, policies = made
    policy, known = kinds(policies)[which]
    least, largest = least_propensity(policy), probability_range(policy)[1]
    assert (least is not None) == known
    log = simulate(world, policy, 60, 3)
    shown = log["propensity"][log.is_bandit]
    assert np.all(shown <= largest * (1.0 + 1e-9))
    if isinstance(policy, EpsilonMixture) and policy.inner is policies["random"]:
        assert largest == pytest.approx(1.0 / 20)
    if least is None:
        return
    assert np.all(shown >= least * (1.0 - 1e-9))
    assert shown.min() == pytest.approx(least, rel=1e-12)


def test_a_fixed_distribution_is_known_by_its_minimum(made):
    popular = made[2]["popularity"]
    fixed = popular.fixed_distribution()
    assert fixed is not None
    assert least_propensity(popular) == (fixed.min() if fixed.min() > 0.0 else None)
    assert probability_range(popular) == (fixed.min(), fixed.max())
    softened = MixturePolicy([EpsilonMixture(popular, 0.2), made[2]["random"]], [0.75, 0.25])
    ends = (0.8 * fixed.min() + 0.01, 0.8 * fixed.max() + 0.01)
    assert probability_range(softened) == pytest.approx(tuple(0.75 * end + 0.25 * 0.05 for end in ends))


@pytest.mark.parametrize("estimators", [["ips", "snips"], ["ips", "beta_ips"]])
def test_a_comparison_bounds_the_weights_where_it_knows_the_policy(made, estimators):
    """From moments and from rows."""
    world, train, policies = made
    logging = EpsilonMixture(policies["user-popularity"], 0.5)
    log = simulate(world, logging, 400, 5)
    target = {"knn": registry.learner("item-knn").fit(train, n_items=20, seed=1)}
    known = off_policy(log, target, estimators=estimators, logging=logging)
    unknown = off_policy(log, target, estimators=estimators)
    for record in known:
        assert record.details["full_support"]
        codes = {each["code"] for each in record.details["findings"] if each["level"] != "trust"}
        assert "bound_denied" not in codes
    assert all(record.details.get("full_support") is None for record in unknown)
    # A log that was made otherwise contradicts the bound.
    wrong = log["propensity"].copy()
    wrong[np.flatnonzero(log.is_bandit)[:50]] = 0.001
    other = Log({**log.columns, "propensity": wrong}, dict(log.provenance))
    always = {"random": policies["random"]}
    (record, *_) = off_policy(other, always, estimators=estimators, logging=logging)
    assert "bound_denied" in {each["code"] for each in record.details["findings"]}


@pytest.mark.parametrize("which", range(9))
def test_no_weight_is_above_the_ratio_that_is_known_of_two_kinds(made, which):
    """Probability by probability, in every state of some users; what is within a softened policy bounds it best."""
    world, _, policies = made
    logging = kinds(policies)[which][0]
    log = simulate(world, logging, 40, 4)
    for policy in [each for each, _ in kinds(policies)]:
        bound = largest_ratio(policy, logging)
        if bound is None:
            continue
        acting, worst = [policy.fresh(), logging.fresh()], 0.0
        for decisions in replay_rounds(log, acting, rounds_of(log, one_by_one=False)):
            target, logged = (each.probabilities(np.unique(log["user"][decisions])) for each in acting)
            assert np.all(logged[target > 0.0] > 0.0)
            worst = max(worst, float(np.max(target[target > 0.0] / logged[target > 0.0])))
        assert worst <= bound * (1.0 + 1e-9)
    users = policies["user-popularity"]
    assert largest_ratio(users, EpsilonMixture(users, 0.2)) == 1.0 / 0.8
    assert largest_ratio(users, MixturePolicy([EpsilonMixture(users, 0.5), policies["random"]], [0.4, 0.6])) == 5.0
    assert largest_ratio(users, users) == 1.0
    assert largest_ratio(policies["item-knn"], users) is None


def test_clipping_hides_nothing_of_the_policy_within_a_softened_one(made):
    """Its weights are at most 1 / (1 - epsilon)."""
    world, _, policies = made
    logging = EpsilonMixture(policies["user-popularity"], 0.2)
    log = simulate(world, logging, 1500, 5)
    target = {"users": policies["user-popularity"]}
    (record,) = off_policy(log, target, estimators=["clipped_ips"], logging=logging)
    assert record.details["clip_part"] == 0.0
    assert record.details["verdict"] == "trust"


def test_replay_writes_it_and_estimate_takes_it(capsys, tmp_path):
    sets = [option for each in SMALL for option in ("--set", each)]
    base = ["simulate", "--world", "sessions", *sets, "--users", 300, "--train-users", 60]
    for name, policy in (("blind", "user-popularity"), ("open", "user-popularity+epsilon=0.5")):
        run(capsys, *base, "--policy", policy, "--out", tmp_path / name)
        asked = ["replay", tmp_path / name / "log", "--policy", "random"]
        assert run(capsys, *asked, "--out", tmp_path / f"{name}.parquet")[0] == 0
    made = provenance_of(tmp_path / "open.parquet")
    assert made["propensity_min"] == 0.5 / 20
    assert "propensity_min" not in provenance_of(tmp_path / "blind.parquet")
    folder = tmp_path / "parts"
    asked = ["replay", tmp_path / "open" / "log", "--policy", "random", "--out", f"{folder}/"]
    assert run(capsys, *asked)[0] == 0
    json_file = tmp_path / "found.json"

    def estimated(file, *more):
        status, out, err = run(capsys, "estimate", file, "--target", "random", "--json", json_file, *more)
        assert status == 0, err
        record = json.loads(json_file.read_text())[0]
        return out, record, {each["code"] for each in record["findings"] if each["level"] != "trust"}

    said = "--propensity-min 0.025: from the log's provenance"
    plain = estimated(tmp_path / "open.parquet")[1]
    # In blocks and from folders, whole (a bootstrap), and read as a file of one's own: the same fact, the same numbers.
    for file, more in (
        (folder, []),
        (tmp_path / "open.parquet", ["--estimators", "ips,beta_ips"]),
        (tmp_path / "open.parquet", ["--user-column", "user"]),
    ):
        out, record, codes = estimated(file, *more)
        assert said in out
        assert record["diagnostics"]["propensity_min_taken"] == 0.025
        assert record["diagnostics"]["full_support"]
        assert "bound_denied" not in codes
        assert (record["value"], record["high"]) == (plain["value"], plain["high"])
    # A stated bound is not overruled, and of another policy nothing is taken.
    for file, more in (
        (tmp_path / "open.parquet", ["--propensity-min", "0.02"]),
        (tmp_path / "open.parquet", ["--weight-max", "50"]),
        (tmp_path / "blind.parquet", []),
    ):
        out, record, codes = estimated(file, *more)
        assert said not in out
        assert "propensity_min_taken" not in record["diagnostics"]


@pytest.mark.parametrize(
    ("provenance", "stated", "column", "bound"),
    [
        ({"propensity_min": 0.1, "policy": {"name": "x"}}, {}, "propensity", 0.1),
        ({"propensity_min": 0.1}, {}, "propensity", None),
        ({"propensity_min": "0.1", "policy": {"name": "x"}}, {}, "propensity", None),
        ({"propensity_min": 2.0, "policy": {"name": "x"}}, {}, "propensity", None),
        ({"propensity_min": 0.1, "policy": {"name": "x"}}, {"weight_max": 5.0}, "propensity", None),
        ({"propensity_min": 0.1, "policy": {"name": "x"}}, {}, "estimated", None),
    ],
)
def test_when_a_bound_is_taken(provenance, stated, column, bound):
    assert known_bound(provenance, stated, column) == bound
