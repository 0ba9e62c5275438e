"""False statements on slates: the README against statements.json, and what these must show."""

import json

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
