"""Balance of covariates within strata of the propensity."""

import numpy as np
import pytest
from scipy import stats
from study_modules import study_module

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ratings import estimate_ratings, loss, naive_bayes, popularity
from recsim_mnar.log.ratings import Ratings

balance = study_module("schnabel2016", "balance").balance


def world(seed, n_users=120, n_items=50):
    """User and item covariates, and propensities that depend on the first of each and on their product."""
    g = np.random.default_rng(seed)
    x, z = g.normal(size=(n_users, 2)), g.normal(size=(n_items, 2))
    p = 1 / (1 + np.exp(1.5 - 0.9 * x[:, :1] - 0.7 * z[:, 0] - 0.4 * x[:, :1] * z[:, 0]))
    return g, x, z, p


def drawn(g, p):
    return Ratings.from_dense(np.ones(p.shape), g.random(p.shape) < p)


def by_hand(ratings, p, x, z, strata):
    """Differences and standard errors, cell by cell."""
    seen = set(zip(ratings.users.tolist(), ratings.items.tolist(), strict=True))
    at = sorted(p[u, i] for u, i in seen)
    edges = [at[int(np.ceil(len(at) * k / strata)) - 1] for k in range(1, strata)]
    out = np.empty((2, x.shape[1] + z.shape[1], strata))
    values = [(lambda u, i, k=k: x[u, k]) for k in range(x.shape[1])]
    values += [(lambda u, i, k=k: z[i, k]) for k in range(z.shape[1])]
    for s in range(strata):
        cells = [(u, i) for u, i in np.ndindex(p.shape) if sum(p[u, i] >= edge for edge in edges) == s]
        n = sum(cell in seen for cell in cells)
        mass = sum(p[cell] for cell in cells)
        for k, value in enumerate(values):
            mean = sum(value(*cell) for cell in cells if cell in seen) / n
            middle = sum(p[cell] * value(*cell) for cell in cells) / mass
            parts = np.zeros(len(p))
            for u, i in cells:
                parts[u] += ((u, i) in seen) * (value(u, i) - mean) / n - p[u, i] * (value(u, i) - middle) / mass
            out[:, k, s] = mean - middle, np.sqrt(len(p) / (len(p) - 1) * (parts**2).sum())
    return out / np.concatenate([x.std(axis=0), z.std(axis=0)])[:, None]


def test_balance_is_the_plain_twin():
    g, x, z, p = world(1, 30, 20)
    ratings = drawn(g, p)
    found = balance(ratings, p, x, z, strata=3, level=0.9)
    difference, error = by_hand(ratings, p, x, z, 3)
    np.testing.assert_allclose(found.differences, difference, atol=1e-12)
    half = stats.t.ppf(1 - 0.1 / 24, 29) * error
    np.testing.assert_allclose(found.high - found.differences, half, rtol=1e-9)
    np.testing.assert_allclose(found.differences - found.low, half, rtol=1e-9)
    assert found.n.sum() == len(ratings)
    assert found.unadjusted[0] == pytest.approx((x[ratings.users, 0].mean() - x[:, 0].mean()) / x[:, 0].std())


@pytest.mark.verify
@pytest.mark.parametrize("strata", [1, 5])
def test_right_propensities_are_seldom_called_unbalanced(strata):
    """At most 5 % of 300 logs, all covariates and strata together, however much P varies within a stratum."""
    alarms = 0
    for seed in range(300):
        g, x, z, p = world(seed)
        alarms += bool(balance(drawn(g, p), p, x, z, strata=strata).unbalanced)
    assert alarms <= stats.binom.ppf(1 - 1e-4, 300, 0.05)
    assert alarms > 0  # intervals that never exclude 0 would say nothing


def test_a_covariate_that_the_propensities_lack_is_found():
    g, x, z, p = world(7, 300, 80)
    ratings = drawn(g, p)
    names = ("age", "noise", "price", "more noise")
    found = balance(ratings, np.broadcast_to(p.mean(axis=0), p.shape), x, z, names=names)
    assert found.unbalanced == ("age",)
    assert "age" in str(found)
    assert "out of balance" in str(found)
    # The catalogue is fixed: what goes with the price among its 80 items is out of balance with it.
    assert {"age", "price"} <= set(balance(ratings, np.full(p.shape, 0.3), x, z, names=names).unbalanced)
    assert len(balance(ratings, np.full(p.shape, 0.3), x, z).n) == 1  # equal propensities are one stratum
    assert balance(ratings, p, x, z, names=names).unbalanced == ()


def test_selection_on_the_rating_leaves_no_trace():
    """Covariates are balanced under propensities that make IPS wrong by half: the text must not promise otherwise."""
    g = np.random.default_rng(2)
    truth = g.choice(5, (400, 60), p=[0.4, 0.25, 0.2, 0.1, 0.05]) + 1.0
    ratings = Ratings.from_dense(truth, g.random(truth.shape) < 0.4 * 0.3 ** (5 - truth))
    x, z = g.normal(size=(400, 2)), g.normal(size=(60, 2))
    flat = np.full(truth.shape, ratings.density)
    found = balance(ratings, flat, x, z)
    assert found.unbalanced == ()
    delta = loss("mae", np.ones(truth.shape))
    assert estimate_ratings(delta, ratings, flat).ips > 1.5 * delta.risk(truth)
    assert "selection on the rating itself" in str(found)


def test_popularity_has_what_naive_bayes_lacks():
    g, x, z, p = world(1, 30, 20)
    ratings = drawn(g, p)
    with pytest.raises(UserError):
        balance(ratings, naive_bayes(ratings, [1.0]), x, z)
    assert np.isfinite(balance(ratings, popularity(ratings), x, z).differences).all()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"propensities": np.ones(3)}, "naive Bayes has those of observed"),
        ({"propensities": "bayes"}, "naive Bayes has those of observed"),
        ({"propensities": np.zeros((30, 20))}, r"must be in \(0, 1\]"),
        ({"propensities": np.full((3, 20), 0.5)}, "shape"),
        ({"user_covariates": None, "item_covariates": None}, "at least one"),
        ({"user_covariates": np.ones((30, 1))}, "the same everywhere"),
        ({"names": ("one",)}, "4 covariates and 1 names"),
        ({"strata": 0}, "strata must be"),
        ({"level": 1.0}, "level must be"),
    ],
)
def test_bad_input_gets_one_line(given, text):
    g, x, z, p = world(1, 30, 20)
    ratings = drawn(g, p)
    if given.get("propensities") is not None and isinstance(given["propensities"], str):
        given = {"propensities": naive_bayes(ratings, [1.0])}
    with pytest.raises(UserError, match=text) as caught:
        balance(**{"ratings": ratings, "propensities": p, "user_covariates": x, "item_covariates": z, **given})
    assert "\n" not in str(caught.value)
