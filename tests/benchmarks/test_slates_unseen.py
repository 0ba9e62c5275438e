"""The unseen settings of slates: their worlds against laws written out, and the README against results.json."""

from __future__ import annotations

import json

import numpy as np
import pytest
from study_modules import BENCHMARKS

HERE = BENCHMARKS / "slates" / "unseen"
SMALL = ["crowd_peaked_close", "satiation_peaked", "bottom_best", "tired", "heavy_tail", "graded_cascade"]


@pytest.fixture
def modules(modules_of):
    return modules_of("slates/unseen", "worlds", "summary")


def test_the_readme_has_the_tables_of_the_results(modules):
    readme = (HERE / "README.md").read_text()
    results = json.loads((HERE / "results.json").read_text())
    assert modules["summary"].written(readme, results) == readme


def test_every_frozen_setting_was_judged_with_as_many_logs_as_frozen(modules):
    frozen = modules["worlds"].frozen()
    parts = json.loads((HERE / "results.json").read_text())["parts"]
    assert list(parts["As found"]["settings"]) == list(frozen["settings"])
    for part in parts.values():
        counts = {one["logs"] for one in part["settings"].values()}
        assert counts <= {frozen["judge"]["logs"], frozen["judge"]["logs_large"]}
    assert len({part["seed"] for part in parts.values()}) == len(parts)


def test_probabilities_are_those_of_all_rankings(modules):
    worlds = modules["worlds"]
    weights = np.array([0.5, 1.0, 2.0, 4.0])
    order = np.array([2, 0, 3, 1])
    uniform = worlds.PlackettLuce(np.ones(4), 3)
    ranks = worlds.rankings(4, 3)
    for law in (
        worlds.PlackettLuce(weights, 3),
        worlds.PlackettLuce(weights, 3, first=1),
        worlds.Placewise(order, 3, 0.4),
        worlds.Mixed(0.3, uniform, worlds.Placewise(order, 3)),
    ):
        slate = law.prefix(ranks)[:, -1]
        assert slate.sum() == pytest.approx(1, abs=1e-12)
        sets = np.array([slate[(np.sort(ranks, 1) == np.sort(one)).all(1)].sum() for one in ranks])
        assert law.sets(ranks) == pytest.approx(sets, abs=1e-12)
        table = np.array([[slate[ranks[:, j] == item].sum() for j in range(3)] for item in range(4)])
        assert law.table() == pytest.approx(table, abs=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_logs_of_the_target_earn_the_exact_value(modules, name):
    worlds = modules["worlds"]
    spec = worlds.frozen()["settings"][name]
    setting = worlds.Setting(spec)
    setting.logs, setting.log_tables = setting.targets, setting.target_tables
    setting.spec = {**spec, "users": 20_000}
    log = setting.sample(np.random.default_rng(3))
    earned = log["reward"].reshape(-1, setting.k) @ setting.factor - log["truth"]
    by_user = np.bincount(log["user"][:: setting.k], earned)
    assert abs(by_user.sum()) < 4.5 * np.sqrt((by_user**2).sum())
