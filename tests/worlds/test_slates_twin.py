"""Slates of the sessions world against their naive twin, place by place, and against the law of how users read."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.log import schema
from recsim_mnar.policies.rankings import Propensities, RankingPolicy, ranking_uniforms
from recsim_mnar.simulation.items import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld, _lanes_kernel
from recsim_mnar.worlds.sessions.params import OF_SLATES
from toys import run_plainly
from twins import sessions as single
from twins import slates as twin
from twins.cases import quick_first
from twins.differences import assert_same
from twins.policies import Uniform

READING = list(itertools.product(("position", "cascade", "independent"), ("several", "one")))
OPTIONS = {"-".join(each): dict(zip(("user_model", "clicks"), each, strict=True)) for each in READING}
TRUTH = "click_probability"

STRONG = {"n_items": 9, "n_factors": 4, "n_flips": 3, "slate_size": 4, "click_link": "logistic"}
FAINT = {"n_items": 12, "n_factors": 5, "slate_size": 3, "p_organic_to_bandit": 0.1, "p_bandit_to_organic": 0.02}
FATIGUE = {"fatigue": 0.7, "fatigue_spread": 0.3, "fatigue_of_views": 0.4, "fatigue_memory": 0.85}
CALENDAR = {"calendar": 300.0, "arriving": 0.6, "ageing": 3.0, "trend": 2.0}
OF_EFFECTS = ("position-several", "cascade-several", "independent-several", "position-one")
CASES = {
    **{f"{name}, recogym link": FAINT | each for name, each in OPTIONS.items()},
    **{f"{name}, logistic link": STRONG | each for name, each in OPTIONS.items()},
    "other rates": STRONG | OPTIONS["cascade-several"] | {"continues": 0.95, "continues_after_click": 0.2},
    "steep examination": STRONG | OPTIONS["position-one"] | {"examination": 2.5},
    "even examination": STRONG | {"examination": 0.0},
    "cascade that goes on": STRONG | OPTIONS["cascade-several"] | {"continues": 1.0, "continues_after_click": 1.0},
    "cascade of one place": STRONG | OPTIONS["cascade-one"] | {"continues": 0.0, "continues_after_click": 0.0},
    **{
        name: STRONG | OPTIONS[reading] | effect
        for (name, effect), reading in zip(single.EFFECTS.items(), itertools.cycle(OF_EFFECTS), strict=False)
    },
    "fatigue, one click": STRONG | FATIGUE | OPTIONS["independent-one"],
    "influence, one click": STRONG | OPTIONS["cascade-one"] | {"influence": 0.4, "sigma_omega": 0.2},
    "calendar, cascade": STRONG | OPTIONS["cascade-several"] | CALENDAR | {"n_items": 25},
    "no repeats": STRONG | {"n_items": 20, "no_repeats": True, "p_organic_to_bandit": 0.4},
    "clock": STRONG | OPTIONS["independent-one"] | {"clock": "normal", "clock_mean": 2.0, "sigma_omega": 0.3},
    "drift": STRONG | OPTIONS["position-several"] | {"clock": "normal", "drift_in_bandit": True, "sigma_omega": 0.3},
    "whole catalogue": STRONG | OPTIONS["cascade-several"] | {"slate_size": 9},
    "all of them": STRONG
    | OPTIONS["independent-several"]
    | FATIGUE
    | CALENDAR
    | {"retention": 0.8, "influence": 0.2, "drift_in_bandit": True, "clock": "normal", "clock_mean": 1.0},
    "all of them, cascade": STRONG
    | OPTIONS["cascade-several"]
    | FATIGUE
    | CALENDAR
    | {"retention": 0.8, "influence": 0.2, "drift_in_bandit": True, "clock": "normal", "clock_mean": 1.0},
}


class Rankings(RankingPolicy):
    """A policy of the twin's, which acts for one user, in the form that the package asks for."""

    name = "most viewed or any"
    learns = "nothing"
    replayable = True

    def __init__(self, inner):
        self.inner = inner
        self.policy = Uniform(inner.n_items)
        self.n_items, self.slate_size = inner.n_items, inner.size
        self.seen = {}

    def reset(self, users):
        self.seen.update({int(user): [] for user in users})

    def observe(self, users, items):
        for user, item in zip(users, items, strict=True):
            self.seen[int(user)].append(int(item))

    def observe_ratings(self, users, items, ratings):
        self.observe(users, items)

    def learn(self, users, actions, rewards, propensities):
        raise AssertionError("this policy does not learn")

    def forget(self, users):
        for user in users:
            del self.seen[int(user)]

    def rank(self, users, uniforms):
        rows = zip(users, np.asarray(uniforms).tolist(), strict=True)
        return np.array([self.inner.rank(self.seen[int(user)], row) for user, row in rows], np.int32)

    def propensities_of(self, users, rankings):
        each = [self.inner.stated(self.seen[int(user)], row) for user, row in zip(users, rankings, strict=True)]
        return Propensities(*(np.array(values, float) for values in zip(*each, strict=True)))

    def conditional(self, users, above):
        out = np.zeros((len(users), self.n_items))
        for row, (user, items) in enumerate(zip(users, np.asarray(above).tolist(), strict=True)):
            seen = self.seen[int(user)]
            for item in set(range(self.n_items)) - set(items):
                out[row, item] = self.inner.beginning(seen, [*items, item]) / self.inner.beginning(seen, items)
        return out

    def fresh(self):
        return type(self)(self.inner)

    def describe(self):
        return {"name": self.name, "exploration": self.inner.exploration}


def world_of(options):
    return SessionsWorld(SessionsParams(**options))


# --- every row -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_uniforms_of_a_policy_are_where_the_page_says(size):
    users, decisions = np.array([0, 7, 3, 3]), np.array([0, 1, 5, 6])
    expected = [twin.policy_uniforms(17, *each, size) for each in zip(users.tolist(), decisions.tolist(), strict=True)]
    np.testing.assert_array_equal(ranking_uniforms(17, users, decisions, size), expected)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_every_place_agrees(case):
    world = world_of(CASES[case])
    params = world.params
    acting = twin.MostViewedOrAny(params.n_items, params.slate_size, exploration=0.6)
    columns = simulate(world, Rankings(acting), 12, 11, first_user=3, keep_truth=True).columns
    catalogue = single.catalogue(params)
    expected = [row for user in range(3, 15) for row in twin.life(params, catalogue, 11, user, acting)]
    assert set(columns) == set(twin.Row._fields) == {*schema.NAMES, *schema.OF_RANKINGS, TRUTH}
    assert len(columns["user"]) == len(expected) > 100
    assert sum(row.event == "bandit" for row in expected) > 50
    assert any(row.reward == 1.0 for row in expected)
    for name in ("user", "step", "item", "action", "slate", "position"):
        assert columns[name].tolist() == [getattr(row, name) for row in expected], name
    assert [schema.EVENTS[code] for code in columns["event"]] == [row.event for row in expected]
    np.testing.assert_array_equal(columns["reward"], [row.reward for row in expected])
    for name in ("propensity", "conditional_propensity", "slate_propensity", "set_propensity"):
        np.testing.assert_allclose(columns[name], [getattr(row, name) for row in expected], rtol=1e-14, atol=0)
    np.testing.assert_allclose(columns["time"], [row.time for row in expected], rtol=1e-9)
    np.testing.assert_allclose(columns[TRUTH], [row.click_probability for row in expected], rtol=0, atol=1e-12)


COMPARED = ["position-one, logistic link", "cascade-several, logistic link", "all of them", "no repeats"]


@pytest.mark.parametrize("case", COMPARED)
def test_a_uniform_policy_agrees_and_users_do_not_depend_on_company(case, monkeypatch):
    world = world_of(CASES[case])
    params = world.params
    if params.changes or params.no_repeats:
        run_plainly(monkeypatch, _lanes_kernel, "advance_rankings")
    acting = twin.MostViewedOrAny(params.n_items, params.slate_size, exploration=1.0)
    together = simulate(world, Rankings(acting), 6, 5, keep_truth=True).columns
    alone = simulate(world, Rankings(acting), 1, 5, first_user=4, keep_truth=True).columns
    of_user = together["user"] == 4
    expected = twin.life(params, single.catalogue(params), 5, 4, acting)
    assert alone["action"].tolist() == [row.action for row in expected]
    assert alone["reward"][alone["event"] == 1].tolist() == [row.reward for row in expected if row.event == "bandit"]
    for name, values in alone.items():
        np.testing.assert_array_equal(values, together[name][of_user])


# --- truth -----------------------------------------------------------------------------------------------------------


def random_rankings(rng, n, n_items, size):
    return np.array([rng.permutation(n_items)[:size] for _ in range(n)], np.int32)


def attractions(params, omega, rankings):
    """Click probability of each item of ``rankings`` (n, k) for users with interests ``omega`` (n, K) who look."""
    catalogue = single.catalogue(params)
    link = single.expit if params.click_link == "logistic" else single.ff
    return link(np.einsum("njk,nk->nj", catalogue.beta[rankings], omega) + catalogue.mu_b[rankings])


@pytest.mark.parametrize("link", ["logistic", "recogym"])
@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize("reading", OPTIONS)
def test_truth_is_that_of_all_that_may_happen(reading, size, link):
    world = world_of(STRONG | OPTIONS[reading] | {"slate_size": size, "click_link": link, "examination": 0.7})
    params, rng = world.params, np.random.default_rng(size)
    omega = rng.standard_normal((25, params.n_factors))
    rankings = random_rankings(rng, 25, params.n_items, size)
    expected = [twin.place_means(params, row) for row in attractions(params, omega, rankings).tolist()]
    means = world.ranking_means(omega, rankings)
    np.testing.assert_allclose(means, expected, rtol=0, atol=1e-13)


def mean_share(others):
    """E[1 / (1 + M)], M the number that happen of independent events of these probabilities: by the law of M."""
    law = np.ones(1)
    for q in others:
        law = np.append(law * (1.0 - q), 0.0) + np.append(0.0, law * q)
    return (law / np.arange(1, len(law) + 1)).sum()


@pytest.mark.parametrize("user_model", quick_first(["independent", "position"]))
def test_truth_of_long_slates_where_one_click_remains(user_model):
    """Too long to go through all that may happen; the law of how many attract is enough."""
    size = 100
    world = world_of(
        STRONG | {"n_items": 120, "slate_size": size, "user_model": user_model, "clicks": "one", "examination": 0.4}
    )
    params, rng = world.params, np.random.default_rng(1)
    omega = np.concatenate([scale * rng.standard_normal((3, params.n_factors)) for scale in (1.0, 3.0, 30.0)])
    rankings = random_rankings(rng, len(omega), params.n_items, size)
    every = np.tile(np.arange(params.n_items), (3, 1))
    best_first = np.argsort(-attractions(params, omega[-3:], every), axis=1, kind="stable")
    rankings[-3:] = best_first[:, :size]  # most of these attract for certain
    look = np.array([twin.looking(params, j) for j in range(size)])
    q = look * attractions(params, omega, rankings)
    expected = [[row[j] * mean_share(np.delete(row, j)) for j in range(size)] for row in q]
    means = world.ranking_means(omega, rankings)
    np.testing.assert_allclose(means, expected, rtol=1e-11, atol=0)
    np.testing.assert_allclose(means.sum(axis=1), 1.0 - np.prod(1.0 - q, axis=1), rtol=1e-12)


@pytest.mark.parametrize("case", ["position-one, logistic link", "fatigue", "calendar, cascade", "all of them"])
def test_what_the_world_says_of_a_ranking_is_what_is_drawn_from(case, monkeypatch):
    """In the state before each slate, whatever changes with what is shown."""
    world, n = world_of(CASES[case]), 40
    if world.params.changes:
        run_plainly(monkeypatch, _lanes_kernel, "advance_rankings")
    params, rng = world.params, np.random.default_rng(3)
    lanes = world.open_lanes(n, keep_truth=True)
    which = np.arange(n)
    transition = lanes.begin(which, np.full(n, 7, np.uint64), which.copy())
    for _ in range(6):
        which = which[transition.alive]
        rankings = random_rankings(rng, len(which), params.n_items, params.slate_size)
        means = world.ranking_means(lanes.state[which], rankings)
        transition = lanes.take(which, rankings, np.ones(rankings.shape))
        rows = transition.starts[:-1, None] + np.arange(params.slate_size)
        np.testing.assert_array_equal(transition.columns["action"][rows], rankings)
        np.testing.assert_allclose(transition.columns[TRUTH][rows], means, rtol=1e-13, atol=0)
    assert len(which) > 5


# --- the law of the clicks -------------------------------------------------------------------------------------------


def slates_of(options, n_users=1500, rounds=8, seed=9):
    """Slates that users were shown: attraction by this file's own sum (n, k), and clicks (n, k)."""
    world = world_of(STRONG | options)
    params, rng = world.params, np.random.default_rng(seed)
    lanes = world.open_lanes(n_users, keep_truth=True)
    which = np.arange(n_users)
    transition = lanes.begin(which, np.full(n_users, seed, np.uint64), which.copy())
    found = []
    for _ in range(rounds):
        which = which[transition.alive]
        rankings = random_rankings(rng, len(which), params.n_items, params.slate_size)
        attraction = attractions(params, lanes.state[which], rankings)
        transition = lanes.take(which, rankings, np.ones(rankings.shape))
        rows = transition.starts[:-1, None] + np.arange(params.slate_size)
        found.append((attraction, transition.columns["reward"][rows]))
    return params, *(np.concatenate(each) for each in zip(*found, strict=True))


OFTEN = {"cascade-one", "position-several"}


@pytest.mark.verify
@pytest.mark.parametrize("reading", quick_first(sorted(OPTIONS, key=lambda name: name not in OFTEN), len(OFTEN)))
def test_patterns_of_clicks_have_the_law_of_the_user_model(reading):
    """Chi-square of how often each pattern of clicks came, with the covariance that their probabilities imply."""
    params, attraction, clicks = slates_of(OPTIONS[reading])
    patterns = list(itertools.product((0, 1), repeat=params.slate_size))
    laws = [twin.click_patterns(params, row) for row in attraction.tolist()]
    law = np.array([[each.get(pattern, 0.0) for pattern in patterns] for each in laws])
    place_value = 1 << np.arange(params.slate_size)[::-1]
    seen = np.bincount((clicks.astype(int) * place_value).sum(axis=1), minlength=len(patterns))
    possible = law.sum(axis=0) > 0.0
    assert seen[~possible].sum() == 0
    law, seen = law[:, possible], seen[possible]
    assert len(law) > 5000
    assert law.sum(axis=0).min() > 5.0
    excess = seen - law.sum(axis=0)
    covariance = np.diag(law.sum(axis=0)) - law.T @ law
    # The counts add up to the number of slates: one of them says nothing new.
    statistic = excess[1:] @ np.linalg.solve(covariance[1:, 1:], excess[1:])
    assert stats.chi2.sf(statistic, possible.sum() - 1) > 1e-3


# --- single items ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"fatigue": 0.5, "click_link": "logistic"}, {"calendar": 200.0}])
def test_a_world_of_single_items_knows_nothing_of_slates(options):
    """Neither the columns of its log nor its provenance, whatever is said of how slates would be read."""
    params = SessionsParams(**options)
    reading = {"user_model": "cascade", "examination": 3.0, "continues": 0.1, "continues_after_click": 0.2}
    said = replace(params, slate_size=1, clicks="one", **reading)
    worlds, policy = (SessionsWorld(params), SessionsWorld(said)), Uniform(params.n_items)
    plain, other = (simulate(world, policy, 30, 4, keep_truth=True) for world in worlds)
    assert plain.provenance == other.provenance
    assert set(OF_SLATES) == {*reading, "slate_size", "clicks"}
    assert not set(OF_SLATES) & set(plain.provenance["world"]["params"])
    assert list(plain.columns) == [*schema.NAMES, TRUTH]
    assert_same(plain.columns, other.columns)
    assert set(OF_SLATES) <= set(world_of(STRONG).describe()["params"])
