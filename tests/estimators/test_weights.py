"""Distributions of weights: counted block by block, and reported in few bins."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recsim_mnar.answers.weights import MOST_BINS, WeightDistribution, WeightTally, weight_distribution


@pytest.mark.parametrize("spread", [0.0, 0.001, 0.3, 2.0, 9.0])
def test_blocks_give_what_the_whole_gives(spread):
    rng = np.random.default_rng(3)
    weight = np.exp(spread * rng.normal(size=3001)) * (rng.random(3001) < 0.6)
    tally = WeightTally(clip=2.0)
    for block in np.array_split(weight, 7):
        tally.extend(block)
    total = tally.distribution("p")
    at_once = weight_distribution("p", weight, 2.0)
    assert total.counts == at_once.counts
    assert total.edges == at_once.edges
    positive = weight[weight > 0]
    assert total.counts == tuple(np.histogram(positive, total.edges)[0])
    assert sum(total.counts) == positive.size
    assert len(total.counts) <= MOST_BINS
    ratios = np.diff(np.log(total.edges))
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)
    assert total.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert (total.rows, total.zero, total.clipped) == (3001, np.mean(weight == 0), np.mean(weight > 2.0))
    assert total.mass_clipped == pytest.approx((weight - np.minimum(weight, 2.0)).sum() / weight.sum())


def test_weights_that_are_all_zero_have_no_bins():
    empty = weight_distribution("p", np.zeros(5), None)
    assert (empty.counts, empty.edges, empty.effective, empty.mass_clipped) == ((), (), 0.0, 0.0)


def test_it_goes_through_json():
    distribution = weight_distribution("p", np.array([0.5, 1.0, 0.0]))
    assert WeightDistribution.from_dict(json.loads(json.dumps(distribution.to_dict()))) == distribution
