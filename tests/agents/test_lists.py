"""Constant lists, given or read off a log."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.policies import registry
from twins.logs import log_of

LOG = log_of(np.arange(12), [0, 0, 0, 1, 1, 5, 4, 4, -1, -1, -1, -1], [*[-1] * 8, 0, 3, 3, 2])


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("constant-list+items=4;1", [4, 1]),
        ("constant-list+items=4", [4]),
        ("most-recommended+places=2", [3, 0]),
        ("most-recommended", [3, 0, 2]),
        ("never-recommended+places=2", [1, 4]),
        ("never-recommended", [1, 4, 5]),
    ],
)
def test_lists(spec, expected):
    scores = registry.learner(spec).fit(LOG, n_items=6).scores(np.array([0]))[0]
    assert [i for i in np.argsort(-scores, kind="stable") if np.isfinite(scores[i])] == expected
