import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.errors import UserError
from recsim_mnar.log.exposures import Exposures

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
    probability = 1 / (1 + np.exp(-(design @ true)))
    return np.sqrt(np.diag(np.linalg.inv(design.T @ (design * (probability * (1 - probability))[:, None]))))


@pytest.mark.verify
def test_recent_periods_give_back_the_law_that_made_them():
    """Recommendations drawn by that law from the counts of the last two periods; within 4.5 standard errors."""
    draw, true = np.random.default_rng(0), np.array([-2.0, 0.8, 0.5])
    shape = (200, 20, 14)
    y, z, present = draw.random(shape) < 0.3, np.zeros(shape, bool), draw.random((200, 14)) < 0.7
    for t in range(14):
        counts = [x[:, :, max(t - 2, 0) : t].sum(axis=2) for x in (z, y)]
        probability = 1 / (1 + np.exp(-(true[0] + true[1] * counts[0] + true[2] * counts[1])))
        z[:, :, t] = (draw.random(shape[:2]) < probability) & present[:, t, None]
    exposures = of_grid(z, y)
    fitted = recent(exposures, range(10), lags=2, present=present)
    features = []
    for t in range(2, 10):
        who = present[:, t]
        features.append(np.stack([x[who, :, t - 2 : t].sum(axis=2).ravel() for x in (z, y)], axis=1))
    assert np.all(np.abs(fitted.coefficients - true) < 4.5 * standard_errors(np.concatenate(features), true))
    u, i, t = np.indices(shape)
    counts = [x[:, :, 9:11].sum(axis=2) for x in (z, y)]
    expected = fitted.table[counts[0], counts[1]]
    asked = exposures.with_propensities(fitted)
    assert np.allclose(asked.propensity_of(u[:, :, 11], i[:, :, 11], t[:, :, 11]), expected)
    assert np.allclose(asked.propensity_of(u[:, :, 0], i[:, :, 0], t[:, :, 0]), fitted.table[0, 0])


def test_recent_periods_by_item_give_back_the_law_that_made_them():
    """Each item's share of users is drawn from its shares in the last two periods; within 4.5 standard errors."""
    draw, true = np.random.default_rng(0), np.array([-2.0, 2.5, 1.5])
    shape = (300, 25, 14)
    y, z, present = (
        draw.random(shape) < draw.random((1, 25, 1)) * 0.6,
        np.zeros(shape, bool),
        draw.random((300, 14)) < 0.7,
    )
    y &= present[:, None]
    rates = np.zeros((14, 25, 2))
    for t in range(14):
        users = max(present[:, max(t - 2, 0) : t].sum(), 1)
        rates[t] = np.stack([x[:, :, max(t - 2, 0) : t].sum(axis=(0, 2)) / users for x in (z, y)], axis=1)
        probability = 1 / (1 + np.exp(-(true[0] + rates[t] @ true[1:])))
        z[:, :, t] = (draw.random(shape[:2]) < probability) & present[:, t, None]
    fitted = recent(of_grid(z, y), range(10), by="item", lags=2, present=present)
    rows = np.concatenate([np.repeat(rates[t], present[:, t].sum(), axis=0) for t in range(2, 10)])
    assert np.all(np.abs(fitted.coefficients - true) < 4.5 * standard_errors(rows, true))
    u, i = np.indices(shape[:2])
    expected = 1 / (1 + np.exp(-(fitted.coefficients[0] + rates[11] @ fitted.coefficients[1:])))
    asked = of_grid(z, y).with_propensities(fitted).propensity_of(u, i, np.full(u.shape, 11))
    np.testing.assert_allclose(asked, np.tile(expected, (300, 1)), rtol=1e-6)


def test_bad_input_gets_one_line():
    z = np.zeros((3, 2, 6), bool)
    some = z.copy()
    some[0, 0] = True
    for call, message in (
        (lambda: shares(of_grid(z), range(3)), "share of recommended items is 0 or 1"),
        (lambda: shares(of_grid(some), range(3), prior=0), "prior must be above 0"),
        (lambda: recent(of_grid(some), range(3)), "no training period has 4 periods before it"),
        (lambda: recent(of_grid(z), range(6)), "nothing was recommended in these periods"),
        (lambda: recent(of_grid(some), range(6), present=np.ones((2, 2))), r"present must have shape \(3, 6\)"),
        (lambda: recent(of_grid(some), range(6), floor=0.0), "floor must lie in"),
        (lambda: recent(of_grid(some), range(6), by="store"), "by must be 'user' or 'item'"),
    ):
        with pytest.raises(UserError, match=message) as error:
            call()
        assert "\n" not in str(error.value)
