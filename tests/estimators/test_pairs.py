"""Sums over users of what two policies differ by, against NumPy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from recsim_mnar.estimators.off_policy.differences import PairMoments
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.log.columns import Clusters


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("clip", [math.inf, 2.0])
def test_sums_of_products_agree_with_their_definition(clustered, clip):
    rng = np.random.default_rng(7)
    n = 400
    reward, p = rng.random(n), rng.uniform(0.05, 0.9, n)
    target, baseline = rng.random((2, n))
    user = np.sort(rng.integers(0, 60, n)) if clustered else np.arange(n)
    clusters = Clusters.of(user, n) if clustered else None
    both = [Moments.of(reward, p, policy, clip=None if math.isinf(clip) else clip, cluster=clusters)
            for policy in (target, baseline)]  # fmt: skip
    pair = PairMoments(*both)
    pair.extend(reward, p, target, baseline, clusters)

    def of_users(values):
        return np.bincount(np.unique(user, return_inverse=True)[1], values)

    w, b, rows = target / p, baseline / p, of_users(np.ones(n))
    c, d = np.minimum(w, clip), np.minimum(b, clip)
    expected = {
        "plain": [rows, of_users(np.maximum(w - b, 0.0) * reward), of_users(np.maximum(b - w, 0.0) * reward)],
        "cut": [rows, of_users(np.maximum(c - d, 0.0) * reward), of_users(np.maximum(d - c, 0.0) * reward)],
        "ratio": [of_users((w - b) * reward), of_users(b * reward), of_users(w - b), of_users(b)],
    }
    for name, numbers in expected.items():
        products, units = getattr(pair, name), np.eye(len(numbers)).tolist()
        for k in (1, 2, 3, 4) if clustered else (1, 2):
            for chosen in itertools.combinations_with_replacement(range(len(numbers)), k):
                found = products.of(*(units[i] for i in chosen))
                wanted = float(np.sum(np.prod([numbers[i] for i in chosen], axis=0)))
                size = float(np.sum(np.abs(np.prod([numbers[i] for i in chosen], axis=0))))
                assert found == pytest.approx(wanted, rel=1e-10, abs=1e-12 * size), (name, chosen)
    assert pair.differing == np.count_nonzero(w != b)
    gains = [np.maximum(w - b, 0.0), np.maximum(b - w, 0.0), np.maximum(c - d, 0.0), np.maximum(d - c, 0.0)]
    np.testing.assert_allclose(pair.excesses, [np.max(of_users(gain) - rows) for gain in gains])
