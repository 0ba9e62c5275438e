"""Logistic propensities of the study of Schnabel et al. (2016): the model is found."""

import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.log.ratings import Ratings

kernel = study_module("schnabel2016", "_logistic_kernel")
study = study_module("schnabel2016", "logistic_propensities")


def features(seed=2, n_users=80, n_items=60):
    g = np.random.default_rng(seed)
    return g.normal(size=(n_users, 2)), g.normal(size=(n_items, 3)), g


def test_weak_penalties_reach_the_minimum():
    """Next to a search that stops at rounding; a value within 1e-6 of the minimum is per cents off in propensities."""
    from scipy.optimize import minimize

    x, z, g = features(n_users=30, n_items=20)
    p = 1 / (1 + np.exp(2 - 0.8 * x[:, :1] * z[:, 0]))
    observed = Ratings.from_dense(np.ones(p.shape), g.random(p.shape) < p)
    shown = np.zeros(p.shape)
    shown[observed.users, observed.items] = 1.0
    model = study._Bilinear(
        shown, np.ones(p.shape, np.uint8),
        np.column_stack([np.ones(30), x]), np.column_stack([np.ones(20), z]), 0.1,
    )  # fmt: skip

    def objective(theta):
        gradient = np.empty(model.size)
        return model(theta, gradient), gradient

    best = minimize(objective, np.zeros(model.size), jac=True, method="BFGS", options={"gtol": 1e-7})
    expected = 1 / (1 + np.exp(-model.logits(best.x)))
    fit = study.logistic(observed, x, z, penalties=(0.1,))
    assert np.abs(fit.matrix / expected - 1).max() < 2e-3


def test_likelihood_kernel_is_the_plain_twin():
    g = np.random.default_rng(0)
    logits, o = g.normal(size=(6, 5)) * 20, (g.random((6, 5)) < 0.5).astype(float)
    mask = (g.random((6, 5)) < 0.7).astype(np.uint8)
    residual = np.empty((6, 5))
    value = kernel.likelihood(logits, o, mask, residual)
    assert value == pytest.approx((mask * (np.logaddexp(0, logits) - o * logits)).sum())
    assert residual == pytest.approx(mask * (1 / (1 + np.exp(-logits)) - o))
