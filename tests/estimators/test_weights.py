"""How weights are distributed: counted block by block, and reported in few bins."""

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
    whole, parts = weight_distribution("p", weight, 2.0), tally.distribution("p")
    assert parts.counts == whole.counts
    assert parts.edges == whole.edges
    assert parts.effective == pytest.approx(weight.sum() ** 2 / (weight**2).sum())
    assert (parts.rows, parts.zero, parts.clipped) == (3001, np.mean(weight == 0), np.mean(weight > 2.0))
    assert parts.mass_clipped == pytest.approx((weight - np.minimum(weight, 2.0)).sum() / weight.sum())
    assert sum(parts.counts) == np.count_nonzero(weight)
    assert len(parts.counts) <= MOST_BINS
    ratios = np.diff(np.log(parts.edges))
    assert ratios == pytest.approx(ratios[0])
    positive = weight[weight > 0]
    assert parts.counts == tuple(np.histogram(positive, parts.edges)[0])


def test_weights_that_are_all_zero_have_no_bins():
    found = weight_distribution("p", np.zeros(5), None)
    assert (found.counts, found.edges, found.effective, found.mass_clipped) == ((), (), 0.0, 0.0)


def test_it_goes_through_json():
    found = weight_distribution("p", np.array([0.5, 1.0, 0.0]))
    assert WeightDistribution.from_dict(json.loads(json.dumps(found.to_dict()))) == found
