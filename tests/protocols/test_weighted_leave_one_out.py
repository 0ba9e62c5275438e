"""The weighted leave-one-out and its rivals: by definition on small data, the paper's claims, bad input."""

import numpy as np
import pytest

from recsim_mnar.agents.baselines import ConstantList
from recsim_mnar.campaigns import comparison
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import (
    Scheme,
    Weighing,
    fit_item_weights,
    hit_probabilities,
    make_scheme,
    probability_of_ranks,
    score,
    weighted_leave_one_out,
)
from recsim_mnar.policies import registry
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.worlds import make_world
from toys import campaigns_log, refused
from twins.logs import random_log

N = 60


@pytest.fixture(scope="module")
def log():
    return campaigns_log()


@pytest.fixture(scope="module")
def profiles(log):
    return Profiles.of(log, 300, N), Profiles.of(log, 500, N)


# ------------------------------------------------------------------------------------------------------------- schemes


def test_weights_bring_back_the_items_probabilities(profiles):
    before, now = profiles
    weighing = make_scheme("weights").weigh(now, before)
    found = np.bincount(now.items, weighing.probabilities, minlength=N)
    np.testing.assert_allclose(found, before.item_probabilities(), atol=1e-7)
    by_user = np.add.reduceat(weighing.probabilities, now.starts[:-1])
    np.testing.assert_allclose(by_user, 1 / now.n_users)  # users count alike, unlike in item-first
    fit = fit_item_weights(now, before.item_probabilities(), 20)
    result = make_scheme("weights+p=20").weigh(now, before).details
    assert (result["p"], result["kl"]) == (20, fit.divergence)


def test_a_scheme_of_ones_own(log):
    class Newest(Scheme):
        name = "newest"

        def weigh(self, now, reference):
            late = (now.added > 450).astype(float)
            return Weighing(now, late / late.sum())

    (record,) = weighted_leave_one_out(
        log, {"list": ConstantList([1, 2])}, n_items=N, reference_times=300, times=[500], schemes=[Newest()]
    )
    assert record.details["scheme"] == "newest"
    assert 0 < record.value < 1


# ------------------------------------------------------------------------------------------------------------ the score


def test_a_constant_list_scores_the_probability_of_its_items(log, profiles):
    """L_t(g) = sum of P_t(i) over the list, whether the user holds its other items or not."""
    before, now = profiles
    records = weighted_leave_one_out(
        log, {"list": ConstantList([3, 1, 4, 15, 9])}, n_items=N, reference_times=300, times=[300, 500]
    )
    value = {(r.details["scheme"], r.details["time"]): r.value for r in records}
    p0, p1 = before.item_probabilities(), now.item_probabilities()
    chosen = [3, 1, 4, 15, 9]
    np.testing.assert_allclose(value["unweighted", 500.0], p1[chosen].sum())
    np.testing.assert_allclose(value["unweighted", 300.0], p0[chosen].sum())
    np.testing.assert_allclose(value["weights", 500.0], p0[chosen].sum(), atol=1e-6)


def test_a_list_longer_than_k_recommends_what_the_user_does_not_hold():
    profiles = Profiles.of(random_log(0, 40, 8, 5), 99, 8)
    probabilities = hit_probabilities(profiles, ConstantList([7, 0, 1, 2]), 2)
    for e in range(profiles.n_pairs):
        u, i = profiles.owners()[e], int(profiles.items[e])
        known = set(profiles.items[profiles.starts[u] : profiles.starts[u + 1]].tolist()) - {i}
        shown = [j for j in (7, 0, 1, 2) if j not in known][:2]
        assert probabilities[e] == (i in shown)


@pytest.mark.parametrize("name", ["popularity", "item-knn", "user-knn", "random", "cosine-cf"])
def test_other_agents_are_refitted_without_the_pair(name):
    profiles = Profiles.of(random_log(4, 20, 9, 6), 99, 9)
    own, learner = profiles.to_log(), registry.learner(name)
    probabilities = hit_probabilities(profiles, learner, 3)
    for e in range(profiles.n_pairs):
        u = profiles.owners()[e]
        rest = np.delete(profiles.items[profiles.starts[u] : profiles.starts[u + 1]], e - profiles.starts[u])
        policy = learner.fit(own.select(np.arange(len(own)) != e), n_items=9)
        who = profiles.users[[u]]
        policy.reset_training_users(who, who)
        policy.observe(np.repeat(who, len(rest)), rest)
        row = np.asarray(policy.scores(who)[0], float)
        row[rest] = -np.inf
        mine = row[profiles.items[e]]
        expected = probability_of_ranks((row > mine).sum(), (row == mine).sum() - 1, 3)
        np.testing.assert_allclose(probabilities[e], expected)


def test_the_exhaustive_interval_treats_users_as_the_sample(profiles):
    """P(u) uniform: the mean over users of their share of hits, with its standard error."""
    before, now = profiles
    hits = hit_probabilities(now, registry.learner("naive-cf"), 5)
    value, low, high = score(make_scheme("unweighted").weigh(now, before), hits)
    shares = np.add.reduceat(hits, now.starts[:-1]) / now.lengths()
    assert value == pytest.approx(shares.mean())
    assert high - low == pytest.approx(2 * 1.96 * shares.std() / np.sqrt(now.n_users), rel=0.1)


def test_several_reference_times_and_records(log):
    agents = {"naive": registry.learner("naive-cf"), "cosine": registry.learner("cosine-cf")}
    records = weighted_leave_one_out(
        log, agents, n_items=N, reference_times=[200, 300], times=[345, 500],
        schemes=["unweighted", "weights+p=10"],
    )  # fmt: skip
    assert len(records) == 2 * 2 * 2 * 2
    assert {r.details["reference_time"] for r in records} == {200.0, 300.0}
    assert all(r.low <= r.value <= r.high and r.n > 100 and r.metric == "hr@5" for r in records)
    assert all("users_with_one_item" in r.details for r in records)
    unweighted = {r.value for r in records if r.details["scheme"] == "unweighted" and r.agent == "naive"}
    assert len(unweighted) == 2  # the same for both references


# ----------------------------------------------------------------------------------------------------------- bad input


def test_bad_input(log, profiles):
    learners = {"list": ConstantList([1])}

    def call(**changes):
        weighted_leave_one_out(log, learners, **{"n_items": N, "reference_times": 300, "times": [500], **changes})

    for changes, says in (
        ({"reference_times": -5}, "reference time -5 is without users"),
        ({"times": [200]}, "time 200 is before the reference time 300"),
        ({"times": []}, "at least one reference time and one time"),
        ({"k": 0}, "k must be"),
        ({"level": 1}, "level must be"),
        ({"schemes": ["weights+p=61"]}, "p must be at most 60"),
        ({"schemes": ["loocv"]}, "does not weigh pairs. Name one of"),
        ({"schemes": ["weihgts"]}, "did you mean 'weights'"),
    ):
        with refused(says.replace("+", r"\+")):
            call(**changes)
    learners = {"svd": registry.learner("svd")}
    with refused("cannot leave out every view"):
        call()


@pytest.mark.parametrize(
    ("protocol", "says"),
    [
        ("weights+p=-1", "p must be a whole number of at least 0"),
        ("unweighted+p=1", "it has no parameters"),
    ],
)
def test_a_protocol_that_cannot_weigh_is_refused_before_the_platform_is_simulated(monkeypatch, protocol, says):
    def simulated(*_):
        raise AssertionError("refused before")

    monkeypatch.setattr(comparison, "run_campaigns", simulated)
    with refused(says):
        compare(make_world("campaigns", "quick"), {"random": registry.learner("random")}, protocols=[protocol])
