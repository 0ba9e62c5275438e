import numpy as np
import pytest

from recsim_mnar.kernels.lbfgs import NotConverged, minimise
from recsim_mnar.log.ratings import Ratings, split_folds
from recsim_mnar.models.factorization import FactorizationConfig, Objective, factorise, fold_in
from toys import refused
from twins import factorization as twin

FORM = FactorizationConfig()


def some_ratings(n_users=12, n_items=9, n=60, seed=0):
    g = np.random.default_rng(seed)
    users, items = np.divmod(g.choice(n_users * n_items, n, replace=False), n_items)
    return Ratings(users, items, g.integers(1, 6, n).astype(float), n_users, n_items), g


@pytest.mark.parametrize("loss", ["mse", "mae"])
@pytest.mark.parametrize("biases", ["regularised", "free", "none"])
@pytest.mark.parametrize("rank", [0, 1, 5, 8])
def test_loss_and_gradient_are_the_plain_twins(loss, biases, rank):
    ratings, g = some_ratings()
    objective = Objective(
        ratings, g.uniform(1, 20, len(ratings)), FactorizationConfig(rank, 0.01, biases, loss, smoothing=0.1)
    )
    x = objective.start(3, spread=1.0)
    x[-22:] += g.normal(size=22)
    gradient = np.empty_like(x)
    value = objective(x, gradient)
    expected, expected_gradient = twin.loss_and_gradient(objective, x)
    assert value == pytest.approx(expected, abs=1e-10)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=0.0, atol=1e-10)


def test_gradient_is_the_finite_difference():
    ratings, g = some_ratings()
    objective = Objective(ratings, None, FactorizationConfig(3, 0.1, loss="mae", smoothing=0.5))
    x, spare = objective.start(1, spread=1.0), np.empty(objective.size)
    gradient = np.empty_like(x)
    objective(x, gradient)
    move = g.normal(size=x.size)
    v, w, _, _ = objective.parts(move)
    v[:, 3:] = w[:, 3:] = 0
    slope = (objective(x + 1e-5 * move, spare) - objective(x - 1e-5 * move, spare)) / 2e-5
    assert slope == pytest.approx(gradient @ move, rel=1e-6)


def test_rows_folded_in_are_the_normal_equations():
    ratings, g = some_ratings()
    model = factorise(ratings, None, FactorizationConfig(4, 0.05), max_iterations=3, warn=False).factors
    weights = g.uniform(0.1, 1, len(ratings))
    v, a = fold_in(model, ratings, weights, 0.05, bias_penalty=0.2)
    for u in range(12):
        rows = ratings.users == u
        if rows.any():
            y = twin.solve_row(
                ratings.items[rows], ratings.values[rows], weights[rows], model.c, model.w, model.b, 0.05, 0.2
            )
            assert np.abs(np.append(v[u], a[u]) - y).max() < 1e-9
        else:
            assert not v[u].any()
            assert a[u] == 0


def test_the_minimum_is_where_every_row_solves_its_normal_equations():
    ratings, g = some_ratings(30, 20, 300)
    weights = g.uniform(1, 5, 300)
    config = FactorizationConfig(2, 0.05)
    fit = factorise(ratings, weights, config, value_tolerance=1e-15, max_iterations=3000, gradient_tolerance=1e-10)
    assert fit.converged
    model = fit.factors
    sides = [
        (ratings.users, ratings.items, (model.v, model.a), (model.w, model.b)),
        (ratings.items, ratings.users, (model.w, model.b), (model.v, model.a)),
    ]
    for ids, other_ids, (factors, offsets), others in sides:
        for one in np.unique(ids):
            rows = ids == one
            exact = twin.solve_row(
                other_ids[rows], ratings.values[rows], weights[rows] / 600, model.c, *others, 0.05, 0.05
            )
            assert np.append(factors[one], offsets[one]) == pytest.approx(exact, abs=1e-4)


def test_free_offsets_of_a_full_matrix_are_its_margins():
    matrix = np.add.outer([1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 0.5])
    fit = factorise(
        Ratings.from_dense(matrix, np.ones((3, 4))), None, FactorizationConfig(0, 0.0, "free"), value_tolerance=1e-14
    )
    np.testing.assert_allclose(fit.factors.matrix(), matrix, rtol=0.0, atol=1e-4)


def test_a_fit_that_does_not_converge_says_so():
    ratings, _ = some_ratings()
    with pytest.warns(NotConverged, match=r"did not converge: 2 iterations, largest gradient entry .*bound"):
        factorise(ratings, None, FactorizationConfig(4, 1e-6), max_iterations=2)


@pytest.mark.parametrize(
    "how",
    [
        {"value_tolerance": 1e-5, "gradient_tolerance": 0.0},
        {"value_tolerance": 0.0, "gradient_tolerance": 1e-4},
        {"value_tolerance": 1e-5, "gradient_tolerance": 0.0, "loss": "mae"},
    ],
)
def test_a_fit_ends_alike_whatever_the_unit_of_its_objective(how):
    """A thousandth of an objective (2^-10, so that it rounds alike) takes as many steps to the same model."""
    ratings, g = some_ratings(30, 20, 300)
    weights, how = g.uniform(1, 5, 300), {"max_iterations": 5000, **how}
    loss = how.pop("loss", "mse")
    fits = [
        factorise(ratings, unit * weights, FactorizationConfig(3, unit * 0.02, loss=loss), **how)
        for unit in (1.0, 2.0**-10)
    ]
    assert fits[0].converged
    assert fits[0].iterations == fits[1].iterations > 5
    assert fits[1].value == 2.0**-10 * fits[0].value
    assert np.array_equal(fits[0].factors.matrix(), fits[1].factors.matrix())


def test_lbfgs_ends_at_a_minimum_of_nothing():
    """Steps and gradients of x^4 underflow before its value does."""

    def flat(x, gradient):
        gradient[:] = 4 * x**3
        return float((x**4).sum())

    minimum = minimise(flat, np.full(3, 0.7), gradient_tolerance=0.0, value_tolerance=0.0, max_iterations=5_000)
    assert minimum.converged
    assert minimum.value < 1e-100


def test_lbfgs_finds_rosenbrocks_minimum():
    def rosenbrock(x, g):
        g[:] = -400 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]), 200 * (x[1] - x[0] ** 2)
        return 100 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2

    minimum = minimise(rosenbrock, np.array([-1.2, 1.0]), value_tolerance=0.0, gradient_tolerance=1e-8)
    assert np.abs(minimum.x - 1).max() < 1e-6
    assert minimum.evaluations < 80


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda r: factorise(r, np.full(60, np.inf), FORM), "not a finite number"),
        (lambda r: factorise(r, np.ones(3), FORM), "weights must have shape"),
        (lambda r: factorise(r, np.where(np.arange(60) == 4, -1.0, 1.0), FORM), "rating 4: weight -1; .*not be neg"),
        (lambda r: factorise(r, np.zeros(60), FORM), "nor all of them 0"),
        (lambda r: factorise(r, None, FORM, seed=-1), "seed must be in"),
        (lambda r: Ratings(["a"], [0], [1.0], 1, 9), "user must hold whole numbers"),
        (lambda r: Ratings([0, 0.5], [0, 1], [1.0, 2.0], 2, 9), r"row 1: user must be a whole number .*got 0\.5"),
        (lambda r: Ratings([0], [0], ["good"], 1, 9), "value must hold numbers"),
        (lambda r: factorise(r.select(np.zeros(60, bool)), None, FORM), "no ratings"),
        (lambda r: FactorizationConfig(biases="some"), "biases must be"),
        (lambda r: r.at(np.zeros((2, 2))), r"shape \(2, 2\)"),
        (lambda r: r.check_scale((1.0, 2.0)), "outside the scale"),
        (lambda r: Ratings([0], [9], [1.0], 1, 9), "item 9 is out of range"),
        (lambda r: Ratings([0], [0], [np.nan], 1, 9), "not a finite number"),
        (lambda r: split_folds(3, 4, 0), "without ratings"),
    ],
)
def test_bad_input_gets_one_line(call, text):
    ratings, _ = some_ratings()
    with refused(text):
        call(ratings)


def test_the_metric_is_the_hessians_diagonal_where_factors_are_of_the_size_it_takes():
    ratings, g = some_ratings(30, 20, 300)
    objective = Objective(ratings, g.uniform(1, 20, 300), FactorizationConfig(4, 0.05))
    square = 0.5 * ratings.values.std() / 2.0
    x = np.zeros(objective.size)
    for part in objective.parts(x)[:2]:
        part[:] = np.sqrt(square) * g.choice([-1.0, 1.0], part.shape)
    metric, up, down = objective.preconditioner(), np.empty_like(x), np.empty_like(x)
    for i in range(0, x.size, 7):
        move = np.zeros_like(x)
        move[i] = 1e-4
        objective(x + move, up)
        objective(x - move, down)
        assert (up[i] - down[i]) / 2e-4 == pytest.approx(2.0 * metric[i], rel=1e-5)
