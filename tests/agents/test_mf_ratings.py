"""Factorisation of revealed ratings: what it fits, how it chooses its penalty, how it acts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.agents.factors.mf_ratings import (
    RatingMF,
    RatingMFNaive,
    cross_validate,
    held_out_dcg,
    ranks_outside,
    ratings_of,
)
from recsim_mnar.log import Log
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, Factors, factorise, fold_in
from recsim_mnar.policies import observe_events, registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.ratings import alpha_propensities, observe, rerank
from twins.policies import Uniform

WORLD = make_world("ratings", None, ["n_items=12", "alpha=0.5", "density=0.25"])
LOG = simulate(WORLD, Uniform(12), 200, 3)


def semi_synthetic(n_users=120, n_items=90, seed=0):
    g = np.random.default_rng(seed)
    truth = rerank(g.normal(size=(n_users, 3)) @ g.normal(size=(3, n_items)) + 0.5 * g.normal(size=(n_users, 1)))
    p = alpha_propensities(truth, 0.25, 0.1)
    observed = Ratings.from_dense(truth, observe(p, seed))
    return truth, observed, observed.at(p)


def test_mf_ips_predicts_better_than_mf_naive_under_selection():
    truth, observed, p = semi_synthetic()
    forms = [FactorizationConfig(4, penalty) for penalty in (1e-2, 3e-3, 1e-3)]
    errors = []
    for at in (p, np.full(len(p), observed.density)):
        best = cross_validate(observed, at, forms).best
        fit = factorise(observed, 1 / at, best, max_iterations=3000)
        errors.append((fit.factors.matrix() - truth) ** 2)
    assert errors[0].mean() < 0.8 * errors[1].mean()
    assert stats.ttest_rel(errors[0].ravel(), errors[1].ravel(), alternative="less").pvalue < 1e-3


def test_cross_validation_scales_the_propensities():
    _, observed, p = semi_synthetic()
    found = cross_validate(observed, p, [FactorizationConfig(0, 1e9)], n_folds=4)
    # With offsets at 0 only c is left: the score is the IPS mean of held-out squared errors around the training mean.
    mean = np.average(observed.values, weights=1 / p)
    expected = ((observed.values - mean) ** 2 / p).sum() / (observed.n_users * observed.n_items)
    assert found.scores[0] == pytest.approx(expected, rel=0.05)


def test_held_out_dcg_is_unbiased():
    """Of a fixed model: given the training half, the mean of the IPS score is the true DCG of the items outside it."""
    g = np.random.default_rng(1)
    truth = g.integers(1, 6, (15, 8)).astype(float)
    p = alpha_propensities(truth, 0.5, 0.25)
    factors = Factors(np.zeros((15, 1)), np.zeros((8, 1)), np.zeros(15), g.normal(size=8), 0.0)
    difference = np.empty(2000)
    for draw in range(len(difference)):
        shown = observe(p, draw)
        train = shown & (g.random(p.shape) < 0.5)
        held = Ratings.from_dense(truth, shown & ~train)
        estimate = held_out_dcg(factors, Ratings.from_dense(truth, train), held, held.at(p), 2)
        rank = 1 + ((factors.b[None, None, :] > factors.b[None, :, None]) & ~train[:, None, :]).sum(axis=2)
        difference[draw] = estimate - (np.where(train, 0, truth) / np.log2(1 + rank)).sum() / 15
    assert abs(difference.mean()) < 4 * difference.std() / np.sqrt(len(difference))
    assert difference.std() / np.sqrt(len(difference)) < 0.1


def test_ranks_leave_out_what_is_known_and_share_ties():
    factors = Factors(np.array([[1.0]]), np.array([[4.0], [3.0], [3.0], [1.0]]), np.zeros(1), np.zeros(4), 0.0)
    train = Ratings([0], [0], [5.0], 1, 4)
    test = Ratings([0, 0, 0], [1, 2, 3], [1.0, 1.0, 1.0], 1, 4)
    assert ranks_outside(factors, train, test).tolist() == [1.5, 1.5, 3.0]


@pytest.mark.slow
@pytest.mark.verify
def test_it_chooses_a_penalty_that_ranks():
    """By its loss the best form has no taste at all, the same ranking for everyone; by DCG it has."""
    world = make_world("ratings")
    log = simulate(world, Uniform(100), 2000, 1)
    users = np.arange(1000)
    ratings = world.ratings_of(2, users)
    result = simulate(world, Uniform(100), 1000, 2).organic()
    recommended, spread = {}, {}
    for score in ("loss", "dcg"):
        policy = RatingMF(score=score).fit(log, n_items=100, seed=1)
        policy.reset(users)
        observe_events(policy, result["user"], result["item"], result["reward"])
        scores = policy.scores(users)
        spread[score] = np.abs(policy.fitted()[0]["factors"]).max()
        scores[result["user"], result["item"]] = -np.inf
        recommended[score] = ratings[users, scores.argmax(axis=1)]
    assert spread["loss"] < 1e-3 < spread["dcg"]
    difference = recommended["dcg"] - recommended["loss"]
    assert difference.mean() > 3 * difference.std() / np.sqrt(len(users))


def test_the_policy_is_the_fitted_model_and_folds_users_in():
    policy = RatingMF(rank=2, penalty=1e-3).fit(LOG, n_items=12)
    arrays, parameters = policy.fitted()
    users = np.array([4, 9])
    policy.reset(users)
    observe_events(policy, np.array([9, 9]), np.array([3, 5]), np.array([4.0, 1.0]))
    scores = policy.scores(users)
    assert scores[0] == pytest.approx(arrays["offsets"] + parameters["c"], abs=1e-5)
    model = Factors(np.zeros((0, 2)), arrays["factors"], np.zeros(0), arrays["offsets"], parameters["c"])
    weights = arrays["weights"][np.searchsorted(arrays["values"], [4.0, 1.0])]
    v, a = fold_in(model, Ratings([0, 0], [3, 5], [4.0, 1.0], 1, 12), weights, 1e-3)
    expected = arrays["factors"] @ v[0] + a[0] + arrays["offsets"] + parameters["c"]
    assert scores[1] == pytest.approx(expected, abs=1e-5)
    # A user of the training log with the log's own history gets the factors of the fit.
    ratings, p = ratings_of(LOG, 12)
    assert arrays["weights"] * ratings.n_users * 12 == pytest.approx(
        [(1 / p[ratings.values == r]).mean() for r in arrays["values"]]
    )


def test_answers_to_recommendations_are_learnt_and_known_items_left_out():
    policy = RatingMF(rank=2, penalty=1e-4, unrated=True).fit(LOG, n_items=12)
    one = np.array([7])
    policy.reset(one)
    met = []
    for k in range(12):
        actions, propensities = policy.act(one, np.array([0.3]))
        assert propensities[0] > 0
        met.append(int(actions[0]))
        policy.learn(one, actions, np.array([float(1 + k % 5)]), np.ones(1))
    assert sorted(met) == list(range(12))
    assert policy.act(one, np.array([0.3]))[1][0] > 0  # everything is rated: rank all again
    before = policy.scores(one)
    policy.learn(one, np.array([0]), np.array([0.0]), np.ones(1))  # a repeat that earns nothing says nothing
    np.testing.assert_array_equal(policy.scores(one), before)
    result = RatingMF(rank=2, penalty=1e-4).fit(LOG, n_items=12)
    result.reset(one)
    plain = result.scores(one)
    result.learn(one, np.array([2]), np.array([5.0]), np.ones(1))
    assert not np.array_equal(result.scores(one), plain)


@pytest.mark.parametrize("extra", ["", "+unrated=true", "+temperature=0.5"])
def test_its_value_on_its_own_log_is_what_it_earned(extra):
    """The truth, replay and the simulation show a policy the same ratings, and it learns the same answers."""
    policy = registry.learner(f"mf-ips-ratings+penalty=0.0005{extra}").fit(LOG, n_items=12, seed=1)
    log = simulate(WORLD, policy, 60, 9)
    shown = log.is_bandit
    value = value_on_log(WORLD, log, {"own": policy}, 9)["own"]
    if "temperature" in extra:
        rewards = log["reward"][shown]
        assert abs(value - rewards.mean()) < 4 * rewards.std() / np.sqrt(60)
    else:
        assert value == pytest.approx(log["reward"][shown].mean())
    np.testing.assert_allclose(replay(log, policy)[shown], log["propensity"][shown], rtol=1e-12)


def test_naive_needs_no_propensities_and_weighs_all_alike():
    bare = Log({name: v for name, v in LOG.columns.items() if name != "observation_propensity"})
    arrays, parameters = RatingMFNaive(penalty=1e-3).fit(bare, n_items=12).fitted()
    assert arrays["weights"] == pytest.approx(np.full(5, arrays["weights"][0]), rel=1e-12)
    assert parameters["weighted"] is False
    assert registry.learner("mf-naive-ratings+penalty=0.001").fit(LOG, n_items=12).fitted()[1]["weighted"] is False


@pytest.mark.slow
def test_where_popularity_selects_weighting_finds_what_is_rarely_shown():
    world = make_world("ratings", None, ["observation=popularity", "n_items=50", "density=0.1", "sigma_item=0.2"])
    log = simulate(world, Uniform(50), 1500, 1)
    value = {}
    for name in ("mf-ips-ratings", "popularity", "random"):
        policy = registry.learner(name).fit(log, n_items=50, seed=1)
        shown = simulate(world, policy, 400, 9).bandit()["reward"]
        value[name] = shown.mean()
    assert value["mf-ips-ratings"] > max(value["popularity"], value["random"]) + 0.2
