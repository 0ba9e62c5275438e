import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.purchases.exposures import Exposures

exposure_propensities = study_module("sato2019", "exposure_propensities")
recent, shares = exposure_propensities.recent, exposure_propensities.shares
logistic_of_groups = exposure_propensities.logistic_of_groups


def of_grid(z, y=None, e=None):
    y = np.zeros_like(z) if y is None else y
    u, i, t = np.nonzero(z | y)
    return Exposures(u, i, t, z[u, i, t], y[u, i, t], *z.shape, propensities=e)


def test_shares_are_those_of_the_training_periods_and_stay_inside():
    z = np.zeros((4, 3, 6), bool)
    z[:, 0, :4], z[:2, 1, 0], z[:, 2, 4:] = True, True, True
    table = shares(of_grid(z), range(4), prior=1e-9)
    assert table.shape == (1, 3, 1)
    assert np.allclose(table[0, :, 0], [1.0, 2 / 16, 0.0])
    table = shares(of_grid(z), range(4))[0, :, 0]
    assert np.all((table > 0) & (table < 1))
    present = np.ones((4, 6), bool)
    present[2:, :2] = False
    z[2:, :, :2] = False
    assert np.allclose(shares(of_grid(z), range(4), present=present, prior=1e-9)[0, :, 0], [1.0, 2 / 12, 0.0])


def test_grouped_logistic_regression_finds_where_the_gradient_vanishes():
    design = np.array([[1.0, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1]])
    positive, total = np.array([10.0, 60, 5, 30]), np.array([100.0, 90, 80, 70])
    beta = logistic_of_groups(design, positive, total, ridge=0.0)
    fitted = 1 / (1 + np.exp(-(design @ beta)))
    assert np.allclose(design.T @ (positive - total * fitted), 0, atol=1e-6)
    apart = logistic_of_groups(design[:2], np.array([0.0, 90]), total[:2])  # separable: the ridge keeps it finite
    assert np.all(np.isfinite(apart))


def standard_errors(features, true):
    """Of a logistic regression's coefficients, from the information at the true ones."""
    design = np.concatenate([np.ones((len(features), 1)), features], axis=1)
    probability = logistic(true, features)
    return np.sqrt(np.diag(np.linalg.inv(design.T @ (design * (probability * (1 - probability))[:, None]))))


def latest(by, flags, present, t):
    """Of the last two periods (users, items, 2): a user's own counts, or an item's share of the users present."""
    last = [x[:, :, max(t - 2, 0) : t] for x in flags]
    if by == "user":
        return np.stack([x.sum(axis=2) for x in last], axis=2)
    users = max(present[:, max(t - 2, 0) : t].sum(), 1)
    shares = np.stack([x.sum(axis=(0, 2)) / users for x in last], axis=1)
    return np.broadcast_to(shares, (len(present), *shares.shape))


def logistic(coefficients, features):
    return 1 / (1 + np.exp(-(coefficients[0] + features @ coefficients[1:])))


@pytest.mark.verify
@pytest.mark.parametrize(("by", "true"), [("user", [-2.0, 0.8, 0.5]), ("item", [-2.0, 2.5, 1.5])])
def test_recent_periods_give_back_the_law_that_made_them(by, true):
    """Recommendations drawn by that law from the last two periods; within 4.5 standard errors."""
    draw, true, shape = np.random.default_rng(0), np.array(true), (300, 25, 14)
    present = draw.random((300, 14)) < 0.7
    y, z = (draw.random(shape) < draw.random((1, 25, 1)) * 0.6) & present[:, None], np.zeros(shape, bool)
    for t in range(14):
        probability = logistic(true, latest(by, (z, y), present, t))
        z[:, :, t] = (draw.random(shape[:2]) < probability) & present[:, t, None]
    exposures = of_grid(z, y)
    fitted = recent(exposures, range(10), by=by, lags=2, present=present)
    rows = [latest(by, (z, y), present, t)[present[:, t]].reshape(-1, 2) for t in range(2, 10)]
    assert np.all(np.abs(fitted.coefficients - true) < 4.5 * standard_errors(np.concatenate(rows), true))
    asked, (u, i) = exposures.with_propensities(fitted), np.indices(shape[:2])
    for t in (0, 11):
        expected = logistic(fitted.coefficients, latest(by, (z, y), present, t))
        np.testing.assert_allclose(asked.propensity_of(u, i, np.full(u.shape, t)), expected, rtol=1e-6)
