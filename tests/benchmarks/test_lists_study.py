"""The study of lists: its README and its page say what its results hold, and name the command that makes them."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "slates" / "study"
if not (FOLDER / "results.json").exists():
    pytest.skip("the benchmarks are not next to the tests", allow_module_level=True)
FOUND = json.loads((FOLDER / "results.json").read_text())
SETTINGS = tomllib.loads((FOLDER / "settings.toml").read_text())
README, PAGE = (FOLDER / "README.md").read_text(), (ROOT / "docs" / "questions" / "lists.md").read_text()


@pytest.fixture
def study(modules_of):
    return modules_of("slates/study", "run", "analysis")


def between(mark, text):
    """What stands between the two marks of a text."""
    return text.split(f"<!-- {mark} -->\n")[1]


def test_sentences_and_tables_are_those_of_the_results(study):
    assert between("tables", README) == "\n".join(study["run"].lines_of(FOUND)) + "\n"
    assert between("answer", PAGE) == "\n".join(study["run"].answer(FOUND["lists"])) + "\n"


@pytest.mark.parametrize("name", FOUND)
def test_results_are_of_all_catalogues_and_follow_from_the_true_rates(name):
    arm = FOUND[name]
    assert arm["catalogues"] == SETTINGS["catalogues"]
    assert list(arm["truth"]) == SETTINGS["agents"]
    top = np.max(list(arm["truth"].values()), axis=0)
    for own in arm["rankings"].values():
        assert len(own["pick"]) == arm["catalogues"]
        for c, picks in enumerate(own["pick"]):
            costs = [1.0 - arm["truth"][pick][c] / top[c] for pick in picks.split(" = ")]
            assert own["cost"][c] == pytest.approx(np.mean(costs), abs=2e-5)
            assert (own["outcome"][c] == "best") == (max(costs) == 0.0)
