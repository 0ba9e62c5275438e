"""Errors of propensities that a result tolerates, against brute force and linear programmes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from recsim_mnar.answers.weights import propensity_tolerance, weight_tolerance
from recsim_mnar.errors import UserError
from twins.log_checks import least_ratio


def log(seed, kind):
    rng = np.random.default_rng(seed)
    n = 60
    propensity = rng.uniform(0.1, 0.9, n)
    target = rng.uniform(0.0, 1.0, n)
    reward = {"clicks": (rng.random(n) < 0.4) * 1.0, "money": rng.lognormal(size=n), "signed": rng.standard_normal(n)}
    return reward[kind], propensity, target


def linear_fractional(weight, reward, factor):
    """The least sum(g w r) / sum(g w) as a linear programme, with h = g / sum(g w) (Charnes & Cooper 1962)."""
    n = len(weight)
    least = np.column_stack([-np.eye(n), np.full(n, 1.0 / factor)])
    most = np.column_stack([np.eye(n), -np.full(n, factor)])
    result = linprog(
        np.append(weight * reward, 0.0),
        A_ub=np.vstack([most, least]),
        b_ub=np.zeros(2 * n),
        A_eq=[np.append(weight, 0.0)],
        b_eq=[1.0],
    )
    assert result.success
    return result.fun


@pytest.mark.parametrize("kind", ["clicks", "money", "signed"])
@pytest.mark.parametrize("seed", range(4))
def test_at_the_factor_the_extreme_meets_todays_value(kind, seed):
    reward, propensity, target = log(seed, kind)
    w = target / propensity
    today = w @ reward / w.sum() - 0.2
    half = 0.05
    factor = weight_tolerance(reward, propensity, target, today=today, half_width=half)
    assert factor > 1.0
    assert least_ratio(w, reward, factor) - half == pytest.approx(today, abs=1e-9)
    assert linear_fractional(w, reward, factor) - half == pytest.approx(today, abs=1e-6)
    mirrored = weight_tolerance(-reward, propensity, target, today=-today, half_width=half, worse=True)
    assert mirrored == pytest.approx(factor, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_clicks_have_both_forms(seed):
    reward, propensity, target = log(seed, "clicks")
    w = target / propensity
    value = w @ reward / w.sum()
    for today, worse in ((0.7 * value, False), (0.5 + 0.5 * value, True)):
        by_rows = weight_tolerance(reward, propensity, target, today=today, half_width=0.0, worse=worse)
        assert by_rows == pytest.approx(propensity_tolerance(value, today), rel=1e-12)


def test_limits_of_the_tolerance():
    assert propensity_tolerance(0.3, 0.3) == 1.0
    assert propensity_tolerance(0.3, 0.0) == math.inf
    assert propensity_tolerance(1.0, 0.3) == math.inf
    reward, propensity, target = log(1, "money")
    w = target / propensity
    value = w @ reward / w.sum()
    assert weight_tolerance(reward, propensity, target, today=value, half_width=0.1) == 1.0
    assert weight_tolerance(reward, propensity, target, today=reward.min() - 1.0, half_width=0.1) == math.inf
    with pytest.raises(UserError, match="mean of 0/1 rewards"):
        propensity_tolerance(1.2, 0.3)
