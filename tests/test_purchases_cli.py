"""``simulate --world purchases``: the log, its second part, the truth, and what wrong calls get."""

import json

import numpy as np
import pytest

from recsim_mnar.log import Log
from recsim_mnar.purchases.exposures import Exposures
from twins.commands import status_of as run
from twins.purchases_log import propensity_matrix

QUICK = ("simulate", "--world", "purchases", "--preset", "quick")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("purchases") / "run"
    assert run(*QUICK, "--policy", "house", "--users", 40, "--seed", 5, "--truth", "--out", out) == 0
    return out


def test_simulate_writes_a_log_its_exposures_and_the_truth(folder):
    log, exposures = Log.read(folder).validate(n_items=50), Exposures.read(folder)
    assert len(exposures) == len(log)
    assert exposures.recommended.sum() == log.is_bandit.sum()
    assert (exposures.n_users, exposures.n_items, exposures.n_periods) == (40, 50, 4)
    shown = log.is_bandit
    at = exposures.propensity_of(log["user"][shown], log["action"][shown], log["time"][shown].astype(int))
    np.testing.assert_allclose(at, log["propensity"][shown], rtol=1e-6)
    with np.load(folder / "outcomes.npz") as truth:
        assert truth["control"].shape == truth["treated"].shape == (40, 50)
        rate = truth["treated"][log["user"][shown], log["action"][shown]].mean()
    assert abs(log["reward"][shown].mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / shown.sum())
    assert json.loads((folder / "simulation.json").read_text())["policy"] == {"name": "deployed"}


def test_an_agent_writes_its_own_propensities_and_a_run_can_be_taken_up(tmp_path):
    out = tmp_path / "run"
    arguments = (*QUICK, "--policy", "popularity", "--users", 30, "--train-users", 50, "--out", out)
    assert run(*arguments, "--workers", 1) == 0
    digest = Log.read(out).digest()
    (out / "exposures.parquet").unlink()
    assert run(*arguments, "--workers", 2, "--resume") == 0
    assert Log.read(out).digest() == digest
    np.testing.assert_allclose(propensity_matrix(Exposures.read(out)).sum(axis=1), 5, rtol=1e-5)
