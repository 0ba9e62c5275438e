import itertools

import numpy as np
from study_modules import study_module

from recsim_mnar.log.ratings import Ratings
from twins import joint_learning as twin

product_kernel = study_module("schnabel2016", "product_kernel")
groups_of = product_kernel.groups_of
ProductKernelConfig, Sides, fit_side = product_kernel.ProductKernelConfig, product_kernel.Sides, product_kernel.fit_side


def world(seed, n_users=14, n_items=11):
    """Ratings that depend on categories, which also decide what is revealed."""
    g = np.random.default_rng(seed)
    x, z = g.integers(2, size=(n_users, 2)), g.integers(3, size=(n_items, 2))
    taste = g.normal(size=(2, 3)) * 1.5
    truth = 3 + taste[x[:, :1], z[:, 0]] + 0.5 * g.normal(size=n_users)[:, None]
    values = truth + 0.4 * g.normal(size=truth.shape)
    p = np.where(taste[x[:, :1], z[:, 0]] > 0, 0.6, 0.2)
    features = [np.concatenate([np.eye(c.max() + 1)[c[:, j]] for j in range(2)], axis=1) for c in (x, z)]
    return truth, p, Ratings.from_dense(values, g.random(p.shape) < p), x, z, Sides.of(*features)


FORM = {"user_category": (0.5, 0.2), "item_category": (0.8, 0.3), "scale": 0.2, "user_browsing": 0.4}


def test_it_is_the_posterior_mean_of_the_gaussian_process():
    _, p, ratings, x, z, sides = world(0)
    form = ProductKernelConfig(**FORM)
    found = fit_side(ratings, p, sides, form, tolerance=1e-10)
    chosen = np.zeros(p.shape)
    chosen[ratings.users, ratings.items] = 1
    browsing, audience = twin.shares(chosen, sides.item_features), twin.shares(chosen.T, sides.user_features)
    cells = list(itertools.product(range(p.shape[0]), range(p.shape[1])))
    train = list(zip(ratings.users, ratings.items, strict=True))

    def covariances(first):
        return np.array([[twin.covariance(*a, *b, x, z, browsing, audience, form) for b in train] for a in first])

    weights = ratings.at(p) ** -form.weighting
    weights /= weights.mean()
    c = weights @ ratings.values / weights.sum()
    alpha = np.linalg.solve(covariances(train) + np.diag(1 / weights), ratings.values - c)
    expected = (c + covariances(cells) @ alpha).reshape(p.shape)
    assert np.abs(found - expected).max() < 1e-7


def test_the_absolute_error_is_at_its_minimum():
    """At the mode K^-1 f = the loss's slope: f = K of the slopes."""
    _, p, ratings, _, _, sides = world(1)
    form = ProductKernelConfig(**FORM, loss="mae", weighting=0.7)
    found = fit_side(ratings, p, sides, form, tolerance=1e-11, max_sweeps=3000)
    weights = ratings.at(p) ** -form.weighting
    weights /= weights.mean()
    e = ratings.values - ratings.at(found)
    grid = np.zeros(p.shape)
    grid[ratings.users, ratings.items] = weights * e / np.sqrt(e * e + form.smoothing**2)
    rest = found - product_kernel.kernels(ratings, sides, form).times(grid)
    assert np.ptp(rest) < 1e-5  # c, which is every cell's alike


def test_features_beat_offsets_where_taste_goes_by_category():
    gains = []
    for seed in range(20):
        truth, p, ratings, _, _, sides = world(20 + seed)
        alone = sides.form(0.0, item_own=0.0, user_own=0.0, user_browsing=0.0, item_audience=0.0)
        with_features, without = (
            ((fit_side(ratings, p, sides, form) - truth) ** 2).mean() for form in (ProductKernelConfig(**FORM), alone)
        )
        gains.append(without - with_features)
    assert np.mean(gains) > 3 * np.std(gains, ddof=1) / np.sqrt(len(gains))


def test_neighbouring_columns_of_one_category_are_a_group():
    g = np.random.default_rng(2)
    number = g.normal(size=(30, 1))
    first, second = np.eye(2)[np.arange(30) % 2], np.eye(4)[np.arange(30) % 4]
    assert groups_of(np.concatenate([first, number, second], axis=1)) == (slice(0, 2), slice(2, 3), slice(3, 7))
    several = (g.random((30, 2)) < 0.9).astype(float)  # not exclusive: two groups of one column
    assert groups_of(several) == (slice(0, 1), slice(1, 2))


def test_a_form_survives_json():
    form = ProductKernelConfig(**FORM)
    assert ProductKernelConfig.from_dict(form.to_dict()) == form
