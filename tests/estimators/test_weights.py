"""Summaries of importance weights."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.answers.weights import weight_distribution


@pytest.mark.parametrize("spread", [0.0, 0.3, 9.0])
def test_weights_are_summarised(spread):
    rng = np.random.default_rng(3)
    weight = np.exp(spread * rng.normal(size=3001)) * (rng.random(3001) < 0.6)
    total = weight_distribution("p", weight, 2.0)
    assert total.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert (total.rows, total.zero, total.clipped) == (3001, np.mean(weight == 0), np.mean(weight > 2.0))
    assert total.mass_clipped == pytest.approx((weight - np.minimum(weight, 2.0)).sum() / weight.sum())


def test_weights_that_are_all_zero_count_for_nothing():
    empty = weight_distribution("p", np.zeros(5), None)
    assert (empty.effective, empty.mass_clipped, empty.zero) == (0.0, 0.0, 1.0)
