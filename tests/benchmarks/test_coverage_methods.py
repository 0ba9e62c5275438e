"""Intervals that only the coverage study compares."""

import math

import numpy as np
import pytest


@pytest.fixture
def methods(modules_of):
    return modules_of("coverage", "worlds", "row_bootstrap", "methods")["methods"]


def test_empirical_bernstein_is_maurer_and_pontils(methods):
    values = np.random.default_rng(0).random(300)
    half = math.sqrt(2 * values.var(ddof=1) * math.log(40 * 2) / 300) + 7 * math.log(80) / (3 * 299)
    ends = values.mean() - half, values.mean() + half
    assert methods.empirical_bernstein(values, np.ones(300), 0.95) == pytest.approx(ends)


@pytest.mark.parametrize("name", ["empirical_bernstein", "log_smoothing"])
def test_they_hold_the_ratio_and_cover(methods, name):
    method = getattr(methods, name)
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 21, 800) / 20.0
    values = lengths * rng.beta(0.3, 3.0, 800)
    low, high = method(values, lengths, 0.95)
    assert 0.0 <= low < values.sum() / lengths.sum() < high <= 1.0
    whole = method(lengths * 0.0, lengths, 0.95)
    assert whole[0] == 0.0
    assert 0.0 < whole[1] < 0.1
    logs, covered = 300, 0
    for _ in range(logs):
        low, high = method(rng.beta(0.05, 0.95, 300), np.ones(300), 0.95)
        covered += low <= 0.05 <= high
    assert covered / logs >= 0.95 - 3.1 * math.sqrt(0.05 * 0.95 / logs)
