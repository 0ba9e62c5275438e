"""The weighted leave-one-out and its rivals: by definition on small data, the paper's claims, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.agents.baselines import ConstantList
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.policies import registry
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.protocols.leave_one_out import leave_one_out
from recsim_mnar.protocols.temporal.comparison import Campaigns
from recsim_mnar.protocols.temporal.schemes import Unweighted
from recsim_mnar.protocols.temporal.weighing import (
    SCHEMES,
    Scheme,
    Weighing,
    binomial_interval,
    fit_item_weights,
    hit_probabilities,
    make_scheme,
    notes,
    probability_of_ranks,
    score,
    weighted_leave_one_out,
)
from recsim_mnar.simulation.platform import platform_log, run_campaigns
from recsim_mnar.worlds import make_world
from twins.logs import random_log

N = 60


@pytest.fixture(scope="module")
def log():
    world = make_world("campaigns", "quick")
    platform = world.open_platform(1)
    for day in (330, 430, 480):
        platform.advance(day)
        weights = world.deployed_weights if day < 480 else np.ones(N)
        platform.recommend(*platform.draw_lists(weights))
    platform.advance(500)
    return platform_log(platform)


@pytest.fixture(scope="module")
def profiles(log):
    return Profiles.of(log, 300, N), Profiles.of(log, 500, N)


# ------------------------------------------------------------------------------------------------------------- schemes


def by_definition(spec, now, reference):
    """Probability of each pair, written out pair by pair."""
    out = [pair_by_definition(spec, now, reference, e) for e in range(now.n_pairs)]
    return np.array(out) / sum(out)


def pair_by_definition(spec, now, reference, e):
    n, u, i = now.n_holders(), now.owners()[e], now.items[e]
    mine = now.items[now.starts[u] : now.starts[u + 1]]
    return {
        "unweighted": 1 / len(mine) / now.n_users,
        "item-first": reference.item_probabilities()[i] / n[i],
        "stratified-recall+beta=0.5": n[i] ** -0.5,
        "snips+gamma=2": n[i] ** -1.5 / (n[mine] ** -1.5).sum(),
        "wtd": 1 / len(mine) / n[i],
        "random-phase+campaign=2": float(now.causes[e] == 2),
    }[spec]


@pytest.mark.parametrize(
    "spec",
    ["unweighted", "item-first", "stratified-recall+beta=0.5", "snips+gamma=2", "wtd", "random-phase+campaign=2"],
)
def test_schemes_are_what_they_say(profiles, spec):
    before, now = profiles
    few = now.pairs(now.owners() < 60)
    weighing = make_scheme(spec).weigh(few, before)
    np.testing.assert_allclose(weighing.probabilities, by_definition(spec, few, before), rtol=1e-10)


def test_users_and_items_are_drawn_as_section_2_2_says(profiles):
    """P(u) by business weights or by random edges, P(i|u) in favour of recent items."""
    before, now = profiles
    edges = make_scheme("unweighted+users=edges").weigh(now, before).probabilities
    np.testing.assert_allclose(edges, 1 / now.n_pairs)
    importance = {int(user): 1.0 + user % 3 for user in now.users}
    owners = now.users[now.owners()]
    by_user = np.array([importance[int(user)] for user in now.users])
    expected = (by_user / by_user.sum() / now.lengths())[now.owners()]
    np.testing.assert_allclose(Unweighted(importance).weigh(now, before).probabilities, expected)
    recent = make_scheme("unweighted+half_life=50").weigh(now, before).probabilities
    for user in now.users[::97]:
        mine = np.flatnonzero(owners == user)
        weight = 0.5 ** ((500 - now.added[mine]) / 50)
        np.testing.assert_allclose(recent[mine], weight / weight.sum() / now.n_users)
    for given in ({}, {int(now.users[0]): "a lot"}, {int(now.users[0]): -1.0}):
        with pytest.raises(UserError, match=f"user {now.users[0]} has no weight"):
            Unweighted({int(user): 1.0 for user in now.users[1:]} | given).weigh(now, before)
    for users in (5, 0.5, None, [1.0], np.ones(now.n_users)):
        with pytest.raises(UserError, match="users must be uniform, edges or a weight for each user"):
            Unweighted(users)


@pytest.mark.parametrize("half_life", [0.1, 1e-5, 1e-300, 5e-324])
def test_a_short_half_life_holds_out_each_users_last_items(profiles, half_life):
    """However long ago a user added anything: the weights are relative to their last item."""
    before, now = profiles
    found = Unweighted(half_life=half_life).weigh(now, before).probabilities
    for j in range(0, now.n_users, 7):
        mine = slice(now.starts[j], now.starts[j + 1])
        ages = (now.added[mine].max() - now.added[mine]).tolist()
        weight = [0.0 if age > 2000.0 * half_life else 0.5 ** (age / half_life) for age in ages]
        np.testing.assert_allclose(found[mine], np.array(weight) / sum(weight) / now.n_users, atol=1e-300)


def test_large_weights_of_users_count_by_their_ratio(profiles):
    before, now = profiles
    found, plain = (Unweighted(dict.fromkeys(map(int, now.users), w)).weigh(now, before) for w in (1e308, 1.0))
    np.testing.assert_allclose(found.probabilities, plain.probabilities)
    with pytest.raises(UserError, match="no pair at time 500 has a weight above 0"):
        Unweighted(dict.fromkeys(map(int, now.users), 0)).weigh(now, before)


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


def test_at_t0_reads_the_old_profiles(profiles):
    before, now = profiles
    weighing = make_scheme("at-t0").weigh(now, before)
    assert weighing.profiles is before
    np.testing.assert_allclose(weighing.probabilities.sum(), 1)


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


@pytest.mark.parametrize("name", ["popularity", "item-knn", "user-knn", "random"])
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
    value, low, high, n = score(make_scheme("unweighted").weigh(now, before), hits)
    shares = np.add.reduceat(hits, now.starts[:-1]) / now.lengths()
    assert (value, n) == (pytest.approx(shares.mean()), now.n_users)
    assert high - low == pytest.approx(2 * 1.96 * shares.std() / np.sqrt(n), rel=0.1)


@pytest.mark.verify
def test_the_stochastic_interval_holds_the_exhaustive_score(profiles):
    """Of 200 runs 181 to 197: the central 99.9 % of Binomial(200, .95)."""
    before, now = profiles
    weighing = make_scheme("weights+p=20").weigh(now, before)
    probabilities = hit_probabilities(now, registry.learner("naive-cf"), 5)
    exact = score(weighing, probabilities)[0]
    held = 0
    for seed in range(200):
        value, low, high, n = score(weighing, probabilities, samples=20_000, seed=seed)
        assert n == 20_000
        np.testing.assert_allclose(high - value, 1.959964 * np.sqrt(value * (1 - value) / n), rtol=1e-6)
        held += low <= exact <= high
    assert 181 <= held <= 197


def test_intervals_without_or_with_only_hits():
    assert binomial_interval(0, 10, 0.95)[:2] == (0.0, 0.0)
    assert binomial_interval(0, 10, 0.95)[2] == pytest.approx(1 - 0.025**0.1)
    assert binomial_interval(10, 10, 0.95)[1] == pytest.approx(0.025**0.1)


def test_several_reference_times_samples_and_records(log):
    agents = {"naive": registry.learner("naive-cf"), "cosine": registry.learner("cosine-cf")}
    records = weighted_leave_one_out(
        log, agents, n_items=N, reference_times=[200, 300], times=[345, 500],
        schemes=["unweighted", "weights+p=10", "at-t0"], samples=500, seed=3,
    )  # fmt: skip
    assert len(records) == 2 * 2 * 3 * 2
    assert {r.details["reference_time"] for r in records} == {200.0, 300.0}
    assert all(r.low <= r.value <= r.high and r.n == 500 and r.metric == "hr@5" for r in records)
    assert all("users_with_one_item" in r.details for r in records)
    unweighted = {r.value for r in records if r.details["scheme"] == "unweighted" and r.agent == "naive"}
    assert len(unweighted) == 2  # the same for both references


def test_the_exhaustive_leave_one_out_takes_the_closed_form(monkeypatch):
    """The plain protocol gets the same ranks from the closed form as from the one policy that ignores own views."""
    own = Profiles.of(random_log(4, 40, 9, 6), 99, 9).to_log()
    arguments = {"n_items": 9, "ks": (1, 3), "exhaustive": True, "candidates": "unseen"}
    learner = registry.learner("cosine-cf")
    closed = leave_one_out(own, {"cf": learner, "naive": registry.learner("naive-cf")}, **arguments)
    assert {r.agent for r in closed} == {"cf", "naive"}
    monkeypatch.delattr(type(learner.inner), "leave_one_out_ranks")
    by_policy = leave_one_out(own, {"cf": learner}, **arguments)
    assert [r.value for r in by_policy] == [r.value for r in closed if r.agent == "cf"]


def test_notes_say_what_weights_cannot_reach():
    user = np.array([0, 0, 1, 2, 2, 2])
    item = np.array([0, 1, 0, 0, 1, 2])
    time = np.array([0.0, 0, 0, 0, 0, 5])
    log = Log({"user": user, "step": np.array([0, 1, 0, 0, 1, 2]), "time": time, "event": 0 * user, "item": item})
    records = weighted_leave_one_out(log, {"list": ConstantList([0])}, n_items=3, reference_times=1, times=[6])
    assert notes(records) == [
        "time 6, unweighted: 1 user holds one item only, whose probability no weight can change",
        "time 6, weights: 1 user holds one item only, whose probability no weight can change",
        "time 6, weights: 1 item has appeared since the reference time 1, in 1 pair: its weight, where "
        "optimised, no lower than exp(-12)",
    ]


# ------------------------------------------------------------------------------------------- what the paper says of it


@pytest.mark.verify
def test_weights_stabilise_constant_lists_in_the_papers_preset():
    world = make_world("campaigns", "viadeo")
    found = platform_log(run_campaigns(world, 0))
    before, now = Profiles.of(found, 300, 180), Profiles.of(found, 500, 180)
    from recsim_mnar.agents.baselines import MostRecommended, times_recommended

    g1 = np.isfinite(MostRecommended().fit(found, n_items=180).item_scores)
    held = np.where(times_recommended(found, 180) > 0, -1, before.n_holders())
    g2 = np.argsort(-held, kind="stable")[:5]
    p0 = before.item_probabilities()
    change = {}
    for p in (0, 20, 80, 180):
        weights = fit_item_weights(now, p0, p).weights
        share = weights[now.items]
        share /= np.repeat(np.add.reduceat(share, now.starts[:-1]), now.lengths())
        found_p = np.bincount(now.items, share, minlength=180) / now.n_users
        change[p] = [found_p[g].sum() / p0[g].sum() - 1 for g in (g1, g2)]
    assert 0.20 < change[0][0] < 0.30
    assert -0.37 < change[0][1] < -0.30
    assert abs(change[20][0]) < 0.03
    assert change[20][1] < -0.25
    assert max(np.abs(change[80])) < 0.01
    assert max(np.abs(change[180])) < 1e-5


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
        ({"samples": 0}, "samples must be"),
        ({"level": 1}, "level must be"),
        ({"schemes": ["weights+p=61"]}, "p must be in 0..60"),
        ({"schemes": ["loocv"]}, "does not weigh pairs. Name one of"),
        ({"schemes": ["weihgts"]}, "did you mean 'weights'"),
        ({"schemes": ["weights+q=3"]}, "not parameter=value"),
        ({"schemes": ["weights+p=x"]}, "p must be a whole number"),
        ({"schemes": ["wtd+p=1"]}, "it has no parameters"),
        ({"schemes": ["random-phase+campaign=7"]}, "no user has added anything from campaign 7"),
        ({"schemes": ["random-phase+campaign=-1"]}, "campaign must be"),
        ({"seed": -1}, "seed must be in"),
    ):
        with pytest.raises(UserError, match=says.replace("+", r"\+")):
            call(**changes)
    learners = {"svd": registry.learner("svd")}
    with pytest.raises(UserError, match="cannot leave out every view"):
        call()
    popularity = {"stratified-recall", "snips", "wtd"}
    assert set(SCHEMES) == {"unweighted", "weights", "at-t0", "item-first", "random-phase", *popularity}
    assert isinstance(make_scheme("unweighted"), Unweighted)


@pytest.mark.parametrize(
    ("protocol", "says"),
    [
        ("unweighted+users=5", "unweighted: users must be uniform, edges or a weight for each user's id, got 5"),
        ("unweighted+half_life=-1", "half_life must be a number from 0"),
        ("weights+p=-1", "p must be a whole number of at least 0"),
        ("stratified-recall+beta=-1", "beta must be a number from 0"),
        ("snips+gamma=-1", "gamma must be a number from 0"),
    ],
)
def test_a_protocol_that_cannot_weigh_is_refused_before_the_platform_is_simulated(monkeypatch, protocol, says):
    def simulated(*_):
        raise AssertionError("refused before")

    monkeypatch.setattr(Campaigns, "platform", simulated)
    with pytest.raises(UserError, match=says) as caught:
        compare(make_world("campaigns", "quick"), {"random": registry.learner("random")}, protocols=[protocol])
    assert "\n" not in str(caught.value)
