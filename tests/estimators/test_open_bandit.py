"""The Open Bandit loader, on files of its layout."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.datasets import open_bandit
from recsim_mnar.errors import UserError
from twins.facts import estimate_value


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for policy in ("random", "bts"):
        where = tmp_path / "dataset" / "obd" / policy / "women"
        where.mkdir(parents=True)
        n = 400
        item = rng.integers(0, 4, n)
        table = pd.DataFrame(
            {
                "timestamp": pd.date_range("2019-11-24", periods=n, freq="s", tz="UTC")[::-1].astype(str),
                "item_id": item,
                "position": rng.integers(1, 4, n),
                "click": (rng.random(n) < 0.2).astype(int),
                "propensity_score": 0.25,
                **{f"user_feature_{i}": rng.choice(["x", "y"], n) for i in range(4)},
                "user-item_affinity_0": 0.0,
            }
        )
        table.to_csv(where / "women.csv")
        pd.DataFrame({"item_id": range(5)}).to_csv(where / "item_context.csv")
    return tmp_path


def test_load(folder):
    log = open_bandit.load_open_bandit(folder, policy="random")
    assert (len(log), log.n_actions) == (400, 5)
    assert set(log.position) == {0, 1, 2}
    assert log.context.shape == (400, 4)
    assert np.all(np.diff(log.time) == 1.0)
    assert log.time[0] == pd.Timestamp("2019-11-24", tz="UTC").timestamp()
    np.testing.assert_array_equal(log.uniform(), 0.2)
    shares = log.shares()
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    estimate = estimate_value(log.reward, log.propensity, log.under(shares))
    assert estimate.low <= log.reward.mean() <= estimate.high
    assert set(log.columns(a=log.uniform())) == {"time", "action", "position", "propensity", "reward", "a"}


def test_what_is_wrong_is_said(folder):
    with pytest.raises(UserError, match="did you mean 'random'"):
        open_bandit.load_open_bandit(folder, policy="randm")
    with pytest.raises(UserError, match="no campaign"):
        open_bandit.load_open_bandit(folder, campaign="children")
    with pytest.raises(UserError, match="no file"):
        open_bandit.load_open_bandit(folder, campaign="men")
    with pytest.raises(UserError, match="holds no folders"):
        open_bandit.load_open_bandit(folder / "dataset" / "obd" / "bts" / "women")
    (folder / "dataset" / "obd" / "bts" / "women" / "women.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="no column 'timestamp'"):
        open_bandit.load_open_bandit(folder)
