import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from recsim_mnar.log import Log
from recsim_mnar.models.bandit import (
    _PRIOR_VIEWS,
    _RIDGE,
    _SPREAD_OF_NOISE,
    Contexts,
    JointObjective,
    RewardMoments,
    Ridge,
    ViewMap,
    _leading_vectors,
    check_log,
)
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from toys import refused
from twins import contexts as twin
from twins.logs import random_log

N_ITEMS = 8
WORLD = make_world("sessions", "recogym-v1", [f"n_items={N_ITEMS}", "n_flips=4", "sigma_mu_organic=1"])
LOG = simulate(WORLD, registry.uniform_policy(N_ITEMS), 12, 3)
SHRINKAGE = 1.5


def fitted(rank=3, folds=3):
    bandit = check_log(LOG, N_ITEMS)
    view_map = ViewMap.from_log(LOG, N_ITEMS, rank=rank, shrinkage=SHRINKAGE)
    weights = np.linspace(0.5, 2.0, int(bandit.sum()))
    return view_map, RewardMoments.from_log(LOG, bandit, view_map, weights, folds=folds, seed=1), weights


def test_the_map_is_its_definition():
    organic = ~LOG.is_bandit
    users, items = LOG["user"][organic], LOG["item"][organic]
    view_map, _, _ = fitted()
    states = twin.view_states(users, items, N_ITEMS, SHRINKAGE)
    viewed = np.eye(N_ITEMS)[items]
    counts = viewed.sum(axis=0)
    shares = (counts + 1) / (counts.sum() + N_ITEMS)
    away = states - states.mean(axis=0)
    covariance = away.T @ (viewed - viewed.mean(axis=0)) / len(items)
    sd = np.sqrt(states.var(axis=0) + _RIDGE * shares)
    left = np.linalg.svd(covariance / np.outer(sd, np.sqrt(shares)))[0][:, :3]
    # The same three directions, whatever their basis; then mean 0, variance 1, uncorrelated.
    ours = view_map.mapping * sd[:, None]
    assert_allclose(left @ (left.T @ ours), ours, atol=1e-9)
    u = states @ view_map.mapping - view_map.centre
    assert_allclose(u.mean(axis=0), 0, atol=1e-10)
    assert_allclose(u.T @ u / len(u), np.eye(3), atol=1e-9)
    assert_allclose(view_map.places, (viewed.T @ u) / (counts + _PRIOR_VIEWS)[:, None], atol=1e-9)


def test_moments_are_the_sums_over_recommendations():
    view_map, moments, weights = fitted()
    bandit = LOG.is_bandit
    u = twin.decision_states(LOG, N_ITEMS, SHRINKAGE) @ view_map.mapping - view_map.centre
    u = np.concatenate([u, np.ones((len(u), 1))], axis=1)
    rewards = LOG["reward"][bandit]
    assert moments.mean == pytest.approx(np.average(rewards, weights=weights))
    r = (rewards - moments.mean) / moments.sd
    fold = moments.fold_of(LOG["user"][bandit], 1)
    for f in range(3):
        for a in range(N_ITEMS):
            rows = (fold == f) & (LOG["action"][bandit] == a)
            uw = u[rows] * weights[rows, None]
            assert_allclose(moments.gram[f, a], uw.T @ u[rows], atol=1e-10)
            assert_allclose(moments.cross[f, a], uw.T @ r[rows], atol=1e-10)
    assert moments.rows.sum() == len(r)
    doubt = np.average(r**4, weights=weights) / _SPREAD_OF_NOISE
    for a in range(N_ITEMS):
        rows = LOG["action"][bandit] == a
        mass, mean = weights[rows].sum(), np.average(r[rows], weights=weights[rows])
        expected = ((weights[rows] * (r[rows] - mean) ** 2).sum() + doubt) / (mass + doubt)
        assert moments.scale().noise[a] == pytest.approx(expected)


@pytest.mark.parametrize("without", [None, 1])
def test_the_solution_minimises_over_items_and_stretch_together(without):
    view_map, moments, weights = fitted()
    bandit = LOG.is_bandit
    ridge = Ridge(0.2, 0.5)
    solution = moments.solve(view_map.places, ridge, without=without)
    u = twin.decision_states(LOG, N_ITEMS, SHRINKAGE) @ view_map.mapping - view_map.centre
    r = (LOG["reward"][bandit] - moments.mean) / moments.sd
    actions = LOG["action"][bandit]
    kept = np.ones(len(r), bool) if without is None else moments.fold_of(LOG["user"][bandit], 1) != without
    # Nothing of the fold left out takes part, its rewards' mean, deviation and noise included.
    mean, sd, noise = twin.scale_of(r[kept], actions[kept], weights[kept], N_ITEMS, _SPREAD_OF_NOISE)
    theta, stretch, common = twin.penalised_least_squares(
        u[kept], actions[kept], (r[kept] - mean) / sd, weights[kept] / noise[actions[kept]], view_map.places, 0.2, 0.5
    )
    assert_allclose(solution.stretch, sd * stretch, atol=1e-5)
    assert solution.common == pytest.approx(mean + sd * common, abs=1e-5)
    assert_allclose(solution.factors, sd * theta[:, :-1], atol=1e-5)
    assert_allclose(solution.offsets, mean + sd * theta[:, -1], atol=1e-5)
    if without is not None:
        out = ~kept
        guess = (u[out] * solution.factors[actions[out]]).sum(axis=1) + solution.offsets[actions[out]]
        expected = (weights[out] * ((r[out] - guess) ** 2 - r[out] ** 2)).sum()
        assert moments.held_out_error(solution, without) == pytest.approx(expected, abs=1e-9)


def test_rewards_held_out_do_not_change_what_is_fitted_without_them():
    view_map, moments, weights = fitted()
    bandit = LOG.is_bandit
    out = moments.fold_of(LOG["user"][bandit], 1) == 1
    other = LOG.columns | {"reward": LOG["reward"].copy()}
    other["reward"][np.flatnonzero(bandit)[out]] = 100.0
    again = RewardMoments.from_log(Log(other), bandit, view_map, weights, folds=3, seed=1)
    plain, changed = (
        m.solve(view_map.places, Ridge(0.2, 0.5), without=1).rescaled(m.sd, m.mean) for m in (moments, again)
    )
    assert_allclose(changed.factors, plain.factors, atol=1e-6)
    assert_allclose(changed.offsets, plain.offsets, atol=1e-6)


def test_contexts_are_the_views_before_each_recommendation():
    data = Contexts.from_log(LOG, N_ITEMS, shrinkage=SHRINKAGE)
    states = twin.decision_states(LOG, N_ITEMS, SHRINKAGE)
    assert_allclose(data.features.toarray()[data.context], states)
    assert_array_equal(data.user_of_context[data.context], LOG["user"][LOG.is_bandit])
    some = np.arange(len(data.rewards)) % 3 == 0
    assert_array_equal(data.select(some).rewards, data.rewards[some])


def test_joint_objective_is_the_plain_twin_and_starts_at_the_solution():
    view_map, moments, weights = fitted()
    data = Contexts.from_log(LOG, N_ITEMS, shrinkage=SHRINKAGE)
    r = (data.rewards - moments.mean) / moments.sd
    ridge = Ridge(0.2, 0.5)
    solution = moments.solve(view_map.places, ridge)
    weights = weights / moments.scale().noise[data.actions]
    objective = JointObjective(data, weights, r, view_map=view_map, solution=solution, ridge=ridge, map_spread=0.3)
    g = np.random.default_rng(0)
    x = objective.start() + g.normal(size=objective.size)
    moved, items = objective.parts(x)
    for part in objective._split(x)[:2]:
        part[:, 3:] = 0.0
    u = twin.decision_states(LOG, N_ITEMS, SHRINKAGE) @ moved.mapping - view_map.centre
    e = r - (u * items.factors[data.actions]).sum(axis=1) - items.offsets[data.actions]
    away = np.sqrt(view_map.shares)[:, None] * (moved.mapping - view_map.mapping)
    expected = (weights * e**2).sum() + (away**2).sum() / 0.3**2
    expected += ((items.factors - view_map.places * solution.stretch) ** 2).sum() / 0.2**2
    expected += ((items.offsets - solution.common) ** 2).sum() / 0.5**2
    gradient, spare = np.empty_like(x), np.empty_like(x)
    assert objective(x, gradient) == pytest.approx(expected / len(r), rel=1e-10)
    move = g.normal(size=x.size)
    for part in objective._split(move)[:2]:
        part[:, 3:] = 0.0
    up, down = (objective(x + s * 1e-5 * move, spare) for s in (1, -1))
    assert (up - down) / 2e-5 == pytest.approx(gradient @ move, rel=1e-5)
    # With the map held where it is, the closed form is the minimum; freed, the fit goes below it.
    objective(objective.start(), gradient)
    _, gw, gb = objective._split(gradient)
    assert max(np.abs(gw).max(), np.abs(gb).max()) < 1e-6
    assert objective.fit()[2].value < objective(objective.start(), gradient)


def test_many_items_take_the_iterative_route_to_the_same_vectors():
    g = np.random.default_rng(0)
    matrix = g.normal(size=(450, 4)) * [9, 6, 4, 2] @ g.normal(size=(4, 450)) + 0.1 * g.normal(size=(450, 450))
    expected = np.linalg.svd(matrix)[0][:, :3]
    vectors = _leading_vectors(matrix, 3, 0)
    assert_allclose(np.abs((expected * vectors).sum(axis=0)), 1.0, atol=1e-3)


def test_a_log_that_says_nothing_of_views_has_no_factors():
    one_each = random_log(0, 20, N_ITEMS, 1)
    assert ViewMap.from_log(one_each, N_ITEMS, rank=3, shrinkage=1.0).mapping.shape == (N_ITEMS, 0)
    assert ViewMap.from_log(LOG.select(LOG.is_bandit), N_ITEMS, rank=3, shrinkage=1.0).mapping.shape == (N_ITEMS, 0)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: check_log(LOG.organic(), N_ITEMS), "no bandit rows"),
        (lambda: check_log(LOG, 2), "n_items = 2"),
        (lambda: check_log(LOG.select(np.argsort(-LOG["user"], kind="stable")), N_ITEMS), "out of order"),
        (lambda: Contexts.from_log(LOG, N_ITEMS, shrinkage=0.0), "shrinkage must be a number above 0"),
    ],
)
def test_bad_input_gets_one_line(call, text):
    with refused(text):
        call()
