"""The study of calibration: its ranks, bands and corrections by hand, and a slice of it."""

import numpy as np
import pytest
from scipy.stats import binom
from study_modules import bring


@pytest.fixture(scope="module")
def run():
    with bring("calibration", "generator", "run") as found:
        yield found["run"]


def test_ranks(run):
    draws = np.array([1.0, 2.0, 2.0, 3.0])
    assert run.rank_of(2.5, draws, 0) == 3
    assert {run.rank_of(2.0, draws, number) for number in range(30)} == {1, 2, 3}  # ties by lot


def test_bands_hold_uniform_ranks_and_no_others(run):
    draw = np.random.default_rng(4)
    p = [run.ecdf_p(draw.integers(0, 100, 80), simulated=300) for _ in range(60)]
    assert sum(each < 0.1 for each in p) <= binom.ppf(0.9999, 60, 0.1)
    assert run.ecdf_p(draw.integers(0, 50, 80), simulated=300) < 0.01  # biased
    assert run.ecdf_p(draw.integers(35, 65, 80), simulated=300) < 0.01  # intervals that are too wide
    assert run.ecdf_p(np.where(draw.random(80) < 0.5, 2, 97), simulated=300) < 0.01  # too narrow


@pytest.mark.slow
@pytest.mark.verify
def test_a_slice(run):
    """Twelve worlds of a personalised logger: intervals hold as many truths as 90 % would."""
    fits = [run.fit_of("user-popularity", 5000 + i, 250, 19) for i in range(12)]
    ranks = np.array([rank for row in fits for rank in row["rank"].values()])
    inside = int(((ranks >= 1) & (ranks <= 18)).sum())
    assert len(ranks) == 12 * 13
    assert inside >= binom.ppf(0.001, 156, 0.9) - 8  # functionals of one world go together
    assert not any(row["off"] for row in fits)
    wrong = sum(row["link"] != "logistic" for row in fits if row["weight"] > 0.95)
    assert wrong <= binom.ppf(0.999, 12, 0.05)
