"""Constant lists, given or read off a log."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import registry


def log_of(views, shown):
    n = len(views) + len(shown)
    item, action = np.full(n, -1), np.full(n, -1)
    item[: len(views)], action[len(views) :] = views, shown
    event = np.repeat([0, 1], [len(views), len(shown)])
    return Log(
        {
            "user": np.arange(n),
            "step": np.zeros(n),
            "time": np.zeros(n),
            "event": event,
            "item": item,
            "action": action,
            "propensity": np.where(event, 0.5, np.nan),
            "reward": np.where(event, 0.0, np.nan),
        }
    )


def listed(policy):
    scores = policy.scores(np.array([0]))[0]
    return [int(i) for i in np.argsort(-scores, kind="stable") if np.isfinite(scores[i])]


def test_lists():
    log = log_of([0, 0, 0, 1, 1, 5, 4, 4], [0, 3, 3, 2])
    assert listed(registry.learner("constant-list+items=4;1").fit(log, n_items=6)) == [4, 1]
    assert listed(registry.learner("constant-list+items=4").fit(log, n_items=6)) == [4]
    assert listed(registry.learner("most-recommended+places=2").fit(log, n_items=6)) == [3, 0]
    assert listed(registry.learner("most-recommended").fit(log, n_items=6)) == [3, 0, 2]
    assert listed(registry.learner("never-recommended+places=2").fit(log, n_items=6)) == [1, 4]
    assert listed(registry.learner("never-recommended").fit(log, n_items=6)) == [1, 4, 5]


def test_bad_input():
    for items in ("a", "1;1", "-2", "1.5"):
        with pytest.raises(UserError, match=r"constant-list.*items must be"):
            registry.learner(f"constant-list+items={items}")
    log = log_of([0, 1], [1, 0])
    with pytest.raises(UserError, match="item 9 is out of range"):
        registry.learner("constant-list+items=9").fit(log, n_items=6)
    with pytest.raises(UserError, match="no recommendation"):
        registry.learner("most-recommended").fit(log_of([0, 1], []), n_items=6)
    with pytest.raises(UserError, match="every item that users hold is recommended"):
        registry.learner("never-recommended").fit(log, n_items=6)
    with pytest.raises(UserError, match="places must be a whole number"):
        registry.learner("most-recommended+places=0")
    with pytest.raises(UserError, match="recommends item 7"):
        registry.learner("most-recommended").fit(log_of([0], [7]), n_items=6)
