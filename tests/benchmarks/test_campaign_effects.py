"""Schemes of the study of campaigns: additions that these caused, against a plain twin and what platforms know."""

import dataclasses

import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.campaigns.platform import platform_log, run_campaigns
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import hit_probabilities, score
from recsim_mnar.policies import registry
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.worlds import make_world
from toys import campaigns_log, refused
from twins import campaigns as twins
from twins.cases import quick_first

schemes = study_module("myttenaere2015", "schemes")
caused_additions, scheme_of, support = schemes.caused_additions, schemes.scheme_of, schemes.support
N = 60

BUSY = ("n_users=4000", "organic_items=8", "fading=600", "acceptance=0.06", "delay=0.08")
"""About as many own as caused additions in a window."""


def profiles_of(seed, settings=BUSY, preset="affinity", until=500.0, days=None):
    world = make_world("campaigns", preset, [*settings, f"catalogue_seed={seed}"])
    return world, Profiles.of(platform_log(run_campaigns(world, seed, days=days)), until, world.n_items)


def true_counts(profiles, n_campaigns=2):
    return np.stack(
        [np.bincount(profiles.items[profiles.causes == c], minlength=profiles.n_items) for c in range(n_campaigns)]
    )


@pytest.mark.parametrize("until", quick_first([500.0, 455.5]))
def test_the_estimate_is_its_twins(until):
    """Own rates by definition, EM written out; at 455.5 only 13 quiet days follow the second window."""
    _, now = profiles_of(3, (), "quick", until)
    found = caused_additions(now, [330, 430], window=12, side=25, prior=40.0)
    for c, day in enumerate((330, 430)):
        own = twins.own_additions(now, [330, 430], day, 12, 25, 40.0)
        variance = found.deviation[c] ** 2 - own.sum(axis=1)
        assert (variance > 0).all()
        caused, delay, chance = twins.caused_by_days(now, own, day, 12, variance, 400)
        np.testing.assert_allclose(found.expected[c], caused, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found.delays[c], delay, atol=1e-5)
        inside = (now.added >= day) & (now.added < day + 12)
        places = now.items[inside], np.floor(now.added[inside]).astype(int) - day
        np.testing.assert_allclose(found.probabilities[inside], chance[places], atol=1e-4)
    assert (found.probabilities[now.added < 330] == 0).all()


def test_the_causes_of_the_log_are_not_read():
    _, now = profiles_of(1, (), "quick")
    blind = caused_additions(dataclasses.replace(now, causes=np.full_like(now.causes, -1)), [330, 430])
    np.testing.assert_array_equal(blind.probabilities, caused_additions(now, [330, 430]).probabilities)


@pytest.mark.slow
def test_numbers_of_caused_additions_are_within_their_errors():
    """Of six platforms: each campaign's sum within 4 standard errors, their mean too, and 95 % of the items."""
    z, within, share = [], [], []
    for seed in range(6):
        _, now = profiles_of(seed)
        found, true = caused_additions(now, [330, 430], window=60), true_counts(now)
        z += list((found.expected.sum(axis=1) - true.sum(axis=1)) / np.sqrt((found.deviation**2).sum(axis=1)))
        within += list((np.abs(found.expected - true) < 1.96 * found.deviation).ravel())
        # Single additions only as probabilities: of those with even chances, as many were caused as they say.
        even = (found.probabilities > 0.1) & (found.probabilities < 0.9)
        share.append((now.causes[even] >= 0).mean() - found.probabilities[even].mean())
    assert max(np.abs(z)) < 4
    assert abs(np.mean(z)) < 4 / np.sqrt(len(z))
    assert abs(np.mean(share)) < 0.03
    assert np.mean(within) > 0.95 - 4 * np.sqrt(0.95 * 0.05 / len(within))


def test_where_no_campaign_ran_none_is_found():
    for seed in range(4):
        _, now = profiles_of(seed, days=[])
        found = caused_additions(now, [330, 430], window=60)
        assert (found.expected.sum(axis=1) < 4 * np.sqrt((found.deviation**2).sum(axis=1))).all()


def test_the_scheme_corrects_as_the_oracle_does():
    """Learning from estimated own additions: a constant list and P_t0 are kept, the draw is addressed."""
    _, now = profiles_of(2, ("n_users=2000",))
    _, before = profiles_of(2, ("n_users=2000",), until=300.0)
    spec = "alone-estimated+days=330/430"
    weighing, oracle = (scheme_of(name).weigh(now, before) for name in (spec, "alone"))
    items = np.bincount(now.items, weighing.probabilities, now.n_items)
    np.testing.assert_allclose(items, before.item_probabilities(), atol=1e-6)
    assert abs(weighing.details["pairs_alone"] - oracle.details["pairs_alone"]) < 0.01 * now.n_pairs
    learnt = scheme_of(spec + "+learn=1").weigh(now, before)
    assert learnt.profiles.n_pairs == weighing.details["pairs_alone"]
    again, other = (scheme_of(f"{spec}+draw={draw}").weigh(now, before) for draw in (0, 1))
    np.testing.assert_array_equal(again.probabilities, weighing.probabilities)
    assert (other.probabilities != weighing.probabilities).any()
    early = scheme_of("alone-estimated+days=480").weigh(before, before)  # the campaign is yet to come
    np.testing.assert_allclose(early.probabilities, scheme_of("weights").weigh(before, before).probabilities)


# -------------------------------------------------------------------------------------- weights and what users added


@pytest.fixture(scope="module")
def profiles():
    log = campaigns_log()
    return Profiles.of(log, 300, N), Profiles.of(log, 500, N)


def sets_of(profiles):
    return {
        int(user): set(profiles.items[profiles.starts[j] : profiles.starts[j + 1]].tolist())
        for j, user in enumerate(profiles.users)
    }


def test_support_is_the_largest_share_of_other_holders_at_the_reference_time(profiles):
    reference, now = profiles
    then, today = sets_of(reference), sets_of(now)
    found = support(now, reference)
    owner = now.users[now.owners()]
    for e in range(0, now.n_pairs, 97):
        user, item = int(owner[e]), int(now.items[e])
        shares = []
        for j in today[user] - {item}:
            others = [held for u, held in then.items() if u != user and j in held]
            shares.append(np.mean([item in held for held in others]) if others else 0.0)
        assert found[e] == pytest.approx(max(shares, default=0.0), abs=1e-12)


def test_structure_weights_give_back_items_and_support_of_the_reference_time(profiles):
    reference, now = profiles
    weighing = scheme_of("structure+bins=6").weigh(now, reference)
    assert weighing.probabilities.sum() == pytest.approx(1.0)
    by_user = np.add.reduceat(weighing.probabilities, now.starts[:-1])
    np.testing.assert_allclose(by_user, 1 / now.n_users)  # users count alike, as in the paper
    items = np.bincount(now.items, weighing.probabilities, N)
    np.testing.assert_allclose(items, reference.item_probabilities(), atol=1e-4)
    plain = scheme_of("unweighted").weigh(reference, reference).probabilities
    before, after = support(reference, reference), support(now, reference)
    weights = scheme_of("weights").weigh(now, reference).probabilities
    target, found, left = before @ plain, after @ weighing.probabilities, after @ weights
    assert abs(found - target) < 0.2 * abs(left - target)


@pytest.mark.slow
def test_they_are_protocols_of_the_campaigns_world():
    """No parameter of a scheme is lost, and one without days gets those of the world."""
    specs = [
        "schemes:StructureWeights+bins=5", "schemes:Alone+learn=1", "schemes:AloneEstimated+days=330/430+learn=1",
        "schemes:AloneEstimated+days=330+window=40+draw=1", "schemes:Drawn+users=edges", "schemes:Drawn+half_life=50",
        "schemes:AtReference", "schemes:ItemFirst", "schemes:StratifiedRecall+beta=0.3", "schemes:WTD",
    ]  # fmt: skip
    world = make_world("campaigns", "quick", ["n_users=300"])
    agents = {name: registry.learner(name) for name in ("random", "naive-cf")}
    found = compare(world, agents, protocols=[*specs, "schemes:AloneEstimated+learn=1"], seed=4)
    values = {r.protocol: r.value for r in found.records if (r.agent, r.metric) == ("naive-cf", "hr@5")}
    assert values.pop("alone-estimated+learn=1") == values["alone-estimated+days=330/430+learn=1"]
    assert len(set(values.values())) == len(specs)


# --------------------------------------------------------------------------------------- schemes and stochastic scores


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
    weighing = scheme_of(spec).weigh(few, before)
    np.testing.assert_allclose(weighing.probabilities, by_definition(spec, few, before), rtol=1e-10)


def test_users_and_items_are_drawn_as_section_2_2_says(profiles):
    """P(u) by business weights or by random edges, P(i|u) in favour of recent items."""
    before, now = profiles
    edges = scheme_of("drawn+users=edges").weigh(now, before).probabilities
    np.testing.assert_allclose(edges, 1 / now.n_pairs)
    importance = {int(user): 1.0 + user % 3 for user in now.users}
    owners = now.users[now.owners()]
    by_user = np.array([importance[int(user)] for user in now.users])
    expected = (by_user / by_user.sum() / now.lengths())[now.owners()]
    np.testing.assert_allclose(schemes.Drawn(importance).weigh(now, before).probabilities, expected)
    recent = scheme_of("drawn+half_life=50").weigh(now, before).probabilities
    for user in now.users[::97]:
        mine = np.flatnonzero(owners == user)
        weight = 0.5 ** ((500 - now.added[mine]) / 50)
        np.testing.assert_allclose(recent[mine], weight / weight.sum() / now.n_users)
    with refused(f"user {now.users[0]} has no weight"):
        schemes.Drawn({int(user): 1.0 for user in now.users[1:]}).weigh(now, before)


@pytest.mark.verify
def test_the_stochastic_interval_holds_the_exhaustive_score(profiles):
    """Of 200 runs 181 to 197: the central 99.9 % of Binomial(200, .95)."""
    before, now = profiles
    weighing = scheme_of("weights+p=20").weigh(now, before)
    probabilities = hit_probabilities(now, registry.learner("naive-cf"), 5)
    exact = score(weighing, probabilities)[0]
    held = 0
    for seed in range(200):
        value, low, high = schemes.sampled_score(weighing, probabilities, 20_000, seed=seed)
        np.testing.assert_allclose(high - value, 1.959964 * np.sqrt(value * (1 - value) / 20_000), rtol=1e-6)
        held += low <= exact <= high
    assert 181 <= held <= 197
