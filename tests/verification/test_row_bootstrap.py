"""The law that stands for obp's bootstrap in benchmarks/coverage, against all resamples of a log of six rows."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "coverage" / "row_bootstrap.py"
SPEC = importlib.util.spec_from_file_location("row_bootstrap", PATH)
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)


@pytest.mark.parametrize("rows", [[0, 0, 0, 1.0, 2.5, 0.7], [0, 0, 0, 0, 0, 3.0], [1.0, 1.3, 2.0, 2.0, 4.0, 9.0]])
def test_law_is_that_of_all_resamples(rows):
    rows = np.array(rows)
    means = np.array([rows[list(drawn)].mean() for drawn in itertools.product(range(6), repeat=6)])
    law = MODULE.RowBootstrap(rows)
    # Sums are multiples of .1 and six rows reach six lattice steps, less than .05: no probability is shared across.
    between = np.arange(-0.5, 6 * rows.max() * 10) / 60
    expected = np.searchsorted(np.sort(means), between) / means.size
    got = np.append(0.0, law.below)[np.searchsorted(law.values, between, side="right")]
    assert law.values[0] <= means.min()
    np.testing.assert_allclose(got, expected, atol=1e-9)
    # What is shared moves a quantile by those steps at most.
    np.testing.assert_allclose(law.interval(0.95), np.quantile(means, [0.025, 0.975], method="inverted_cdf"), atol=0.01)


def test_moments_of_a_long_log():
    rng = np.random.default_rng(5)
    rows = np.where(rng.random(100_000) < 0.1, rng.lognormal(0.0, 1.5, 100_000), 0.0)
    law = MODULE.RowBootstrap(rows)
    probability = np.diff(law.below, prepend=0.0)
    mean = float(probability @ law.values)
    assert mean == pytest.approx(rows.mean(), rel=1e-9)
    # Sharing rows between lattice points adds at most k step^2 / 4 to the variance of the sum.
    added = np.count_nonzero(rows) * (law.values[1] - law.values[0]) ** 2 / 4
    exact = rows.var() / rows.size
    assert exact * (1 - 1e-6) <= probability @ (law.values - mean) ** 2 <= exact + added
    assert added < 0.01 * exact


@pytest.mark.parametrize("value", [0.0, 2.0])
def test_equal_rows_leave_nothing_to_chance(value):
    assert MODULE.RowBootstrap(np.full(10, value)).interval(0.95) == (value, value)


def test_sampled_interval_nears_the_quantiles():
    rows = np.r_[np.zeros(900), np.random.default_rng(6).random(100)]
    law = MODULE.RowBootstrap(rows)
    many = (np.arange(200_000) + 0.5) / 200_000
    step = law.values[1] - law.values[0]
    np.testing.assert_allclose(law.sampled_interval(0.95, many), law.interval(0.95), atol=2 * step)
