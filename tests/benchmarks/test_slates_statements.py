"""False statements on slates: the README against statements.json, what these must show, and the users of the study."""

from __future__ import annotations

import json

import numpy as np
import pytest
from study_modules import BENCHMARKS

HERE = BENCHMARKS / "slates"


@pytest.fixture
def modules(modules_of):
    return modules_of("slates", "worlds", "statements")


@pytest.fixture
def results():
    return json.loads((HERE / "statements.json").read_text())["settings"]


def test_the_readme_has_the_table_of_the_results(modules, results):
    readme = (HERE / "README.md").read_text()
    assert modules["statements"].written(readme, results) == readme


def test_what_is_true_is_rarely_contradicted_and_what_is_false_is_not_trusted_where_logs_can_show_it(results):
    true = [each for name, each in results.items() if name.startswith("cascade")]
    assert sum(each["below"] for each in true) <= 0.012 * sum(each["logs"] for each in true)
    for users in ("crowd", "bottom"):
        for pair in ("uniform", "softmax"):
            large = results[f"{users} {pair} 1200"]
            assert large["contradicted"] >= 0.9 * large["logs"]
            assert large["trusted"] <= 0.1 * large["logs"]


@pytest.mark.parametrize("users", ["cascade", "bottom"])
def test_clicks_of_the_worlds_are_as_frequent_as_their_means(modules, users):
    world = modules["worlds"].World(modules["worlds"].Setting(users, "uniform", "uniform", 6, 3))
    (log,) = world.logs(range(1), 4000, 5, 1)
    clicks = log["clicks"].reshape(-1, 3)
    expected = world.means[np.repeat(log["taste"], 5), log["chosen"].ravel()]
    error = np.sqrt((expected * (1.0 - expected)).sum(0))
    # A user's five slates are alike by keenness, which the means average over.
    assert np.all(np.abs((clicks - expected).sum(0)) < 4.0 * 1.5 * error)
    assert np.argmax(expected.mean(0)) == (0 if users == "cascade" else 2)
