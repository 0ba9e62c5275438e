"""The ratings world: marginals, observation models, files, and what a wrong parameter gets."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.log.ratings import Ratings
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.ratings import (
    MARGINALS,
    STARS,
    RatingsWorld,
    alpha_propensities,
    observe,
    rerank,
)
from recsim_mnar.worlds.ratings.observation import complete, popularity_propensities, relative_propensity
from toys import refused
from twins.policies import Uniform

REVEALED = (0.056, 0.1029, 0.246, 0.4215, 0.1736)  # at alpha = .25: p_r alpha^(4 - r) over their sum


def binomial_error(p, n, errors=5.0):
    return errors * np.sqrt(p * (1 - p) / n)


def test_marginals_density_and_known_propensities():
    n_users, n_items = 3000, 100
    log = simulate(make_world("ratings"), Uniform(n_items), n_users, 5).validate(n_items)
    organic = ~log.is_bandit
    stars, p = log["reward"], log["observation_propensity"]
    # Ratings of a user, and of an item, are dependent: the effective number is that of items, some 100.
    shown = [(stars[~organic] == r).mean() for r in STARS]
    assert np.abs(np.subtract(shown, MARGINALS)).max() < binomial_error(0.526, n_items * 100)
    revealed = [(stars[organic] == r).mean() for r in STARS]
    assert np.abs(np.subtract(revealed, REVEALED)).max() < binomial_error(0.421, organic.sum()) + 0.01
    assert abs(organic.sum() / (n_users * n_items) - 0.05) < binomial_error(0.05, n_users * n_items) + 0.001
    # The sum of 1/P over the revealed is the number of cells, on average (Schnabel et al. 2016, equation 5).
    spread = np.sqrt(((1 - p[organic]) / p[organic] ** 2).sum())
    assert abs((1 / p[organic]).sum() - n_users * n_items) < 5 * spread
    assert np.isnan(p[~organic]).all()


@pytest.mark.parametrize("observation", ["alpha", "popularity", "uniform"])
def test_observation_models_reveal_what_they_promise(observation):
    world = make_world("ratings", None, [f"observation={observation}", "n_items=50"])
    users = np.arange(2000)
    ratings = world.ratings_of(3, users)
    p = world.propensities_of(users, ratings)
    assert p.mean() == pytest.approx(0.05, rel=0.05)
    assert np.all((p > 0) & (p <= 1))
    log = simulate(world, Uniform(50), 2000, 3)
    organic = ~log.is_bandit
    item_share = np.bincount(log["item"][organic], minlength=50) / 2000
    expected = p.mean(axis=0)
    assert np.all(np.abs(item_share - expected) < binomial_error(expected, 2000))
    np.testing.assert_array_equal(log["observation_propensity"][organic], p[log["user"][organic], log["item"][organic]])


def test_popularity_reaches_its_density_though_some_are_certain():
    p = popularity_propensities(np.array([3.0, 9.0, 1.0, 5.0]), 0.6)
    assert p.mean() == pytest.approx(0.6)
    assert p[1] == 1.0
    assert p[[3, 0, 2]] == pytest.approx((0.6 * 4 - 1) / (1 / 2 + 1 / 3 + 1 / 4) / np.array([2, 3, 4]))
    assert popularity_propensities(np.arange(3), 1.0).tolist() == [1.0, 1.0, 1.0]


def test_the_reward_is_the_rating_and_the_truth_says_so():
    world = make_world("ratings")
    log = simulate(world, Uniform(100), 50, 5, keep_truth=True)
    shown = log.is_bandit
    ratings = world.ratings_of(5, np.arange(50))
    assert not np.array_equal(ratings, world.ratings_of(6, np.arange(50)))
    np.testing.assert_array_equal(log["reward"][shown], ratings[log["user"][shown], log["action"][shown]])
    np.testing.assert_array_equal(log["expected_reward"][shown], log["reward"][shown])
    truth = world.truth_arrays(5, 50)
    np.testing.assert_array_equal(truth["ratings"], ratings)
    np.testing.assert_array_equal(
        truth["observation_propensities"][log["user"][~shown], log["item"][~shown]],
        log["observation_propensity"][~shown],
    )
    uniform = value_on_log(world, log, {"uniform": Uniform(100)}, 5)["uniform"]
    assert uniform == pytest.approx(ratings.mean())


def test_where_repeats_earn_nothing():
    world = make_world("ratings", None, ["repeat_pays=false", "n_items=20", "alpha=0.5", "density=0.2"])
    log = simulate(world, Uniform(20), 200, 1)
    ratings = world.ratings_of(1, np.arange(200))
    known, repeats = set(), 0
    rows = (log[name].tolist() for name in ("user", "item", "action", "reward"))
    for user, item, action, reward in zip(*rows, strict=True):
        if action < 0:
            known.add((user, item))
            continue
        repeats += (user, action) in known
        assert reward == (0.0 if (user, action) in known else ratings[user, action])
        known.add((user, action))
    assert repeats > 300
    # The value in these states counts what is known as 0.
    assert value_on_log(world, log, {"u": Uniform(20)}, 1)["u"] < 0.9 * ratings.mean()


def test_a_given_matrix_is_the_truth():
    matrix = np.random.default_rng(0).integers(1, 6, (7, 12)).astype(float)
    world = RatingsWorld.from_matrix(matrix, density=0.3, alpha=0.5, n_decisions=3)
    log = simulate(world, Uniform(12), 14, 2)
    shown = log.is_bandit
    assert np.array_equal(log["reward"][shown], matrix[log["user"][shown] % 7, log["action"][shown]])
    assert np.array_equal(log["reward"][~shown], matrix[log["user"][~shown] % 7, log["item"][~shown]])
    p = alpha_propensities(matrix, 0.5, 0.3)
    np.testing.assert_array_equal(
        log["observation_propensity"][~shown], p[log["user"][~shown] % 7, log["item"][~shown]]
    )
    assert world.describe()["matrix"]["users"] == 7
    other = RatingsWorld.from_matrix(matrix[::-1], density=0.3, alpha=0.5, n_decisions=3)
    assert other.describe()["matrix"]["sha256"] != world.describe()["matrix"]["sha256"]
    own = np.full((7, 12), 0.5)
    given = simulate(RatingsWorld.from_matrix(matrix, own), Uniform(12), 14, 2)
    assert set(given["observation_propensity"][~given.is_bandit]) == {0.5}


def test_a_world_from_a_file_of_ratings_and_from_its_own_truth(tmp_path):
    g = np.random.default_rng(0)
    scores = g.normal(size=(60, 2)) @ g.normal(size=(2, 40))
    full = np.clip(np.rint(scores + 3), 1, 5)
    rows = [(u + 1, f"m{i}", full[u, i]) for u, i in zip(*np.nonzero(g.random(full.shape) < 0.4), strict=True)]
    file = tmp_path / "ratings.csv"
    file.write_text("userId,movieId,rating\n" + "".join(f"{u},{i},{r:g}\n" for u, i, r in rows))
    world = make_world("ratings", None, [f"ratings_file={file}", "density=0.1"])
    assert world.n_items == world.params.n_items == 40
    truth = world.truth_arrays(0, 1)
    assert truth["ratings"].shape == (60, 40)
    assert [(truth["ratings"] == r).mean() for r in STARS] == pytest.approx(MARGINALS, abs=1e-3)
    assert truth["observation_propensities"].mean() == pytest.approx(0.1)
    np.savez(tmp_path / "truth.npz", **truth)
    np.save(tmp_path / "matrix.npy", truth["ratings"])
    for name in ("truth.npz", "matrix.npy"):
        again = make_world("ratings", None, [f"ratings_file={tmp_path / name}", "density=0.1"])
        assert simulate(again, Uniform(40), 9, 1).digest(optional=True) == (
            simulate(world, Uniform(40), 9, 1).digest(optional=True)
        )


def test_alpha_model_has_the_papers_numbers():
    matrix = rerank(np.random.default_rng(0).normal(size=(943, 500)))
    assert [(matrix == r).mean() for r in STARS] == pytest.approx(MARGINALS, abs=1e-5)
    p = alpha_propensities(matrix, 0.25)
    # k = .05 / (p1 / 64 + p2 / 16 + p3 / 4 + p4 + p5)
    assert p[matrix >= 4].min() == pytest.approx(0.05 / 0.146861, abs=1e-4)
    marginals = [p[matrix == r].sum() / p.sum() for r in STARS]
    assert marginals == pytest.approx(REVEALED, abs=0.001)
    assert abs(observe(p, 1).mean() - 0.05) < binomial_error(0.05, p.size)
    assert np.unique(alpha_propensities(matrix, 1.0)).size == 1
    assert relative_propensity([1.0, 4.0, 5.0], 0.5).tolist() == [0.125, 1.0, 1.0]


def test_completion_has_the_marginals_and_the_order_of_the_ratings():
    g = np.random.default_rng(0)
    scores = g.normal(size=(60, 2)) @ g.normal(size=(2, 40))
    full = np.clip(np.rint(scores + 3), 1, 5)
    done = complete(Ratings.from_dense(full, g.random(full.shape) < 0.4), ranks=(2,), penalties=(1e-3, 1e-2))
    assert [(done.ratings == r).mean() for r in STARS] == pytest.approx(MARGINALS, abs=1e-3)
    assert np.corrcoef(done.ratings.ravel(), full.ravel())[0, 1] > 0.6
    assert len(done.accuracy) == 2


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("empty.csv", "user,item,rating\n", "no ratings"),
        ("short.csv", "user,item\n1,2\n", "not a table"),
        ("text.csv", "user,item,rating\n1,2,good\n", "not a number"),
        ("junk.npz", "user", "holds no array"),
        ("junk.npy", "user", "holds no array"),
        ("other.npz", None, "must hold 'ratings'"),
    ],
)
def test_files_that_are_no_ratings(tmp_path, name, content, text):
    if content is None:
        np.savez(tmp_path / name, x=np.ones(3))
    else:
        (tmp_path / name).write_text(content)
    with refused(text):
        make_world("ratings", None, [f"ratings_file={tmp_path / name}"])
