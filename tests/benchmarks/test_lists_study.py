"""The study of lists: its README and its page say what its results hold, and name the command that makes them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

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


def test_intervals_are_wilsons_and_those_of_pairs_exact(study):
    found, arm = study["analysis"].summary(FOUND["lists"]), FOUND["lists"]
    for title, own in found.items():
        hits = arm["rankings"][title]["outcome"].count("best")
        expected = stats.binomtest(hits, arm["catalogues"]).proportion_ci(method="wilson")
        assert (own["best"]["low"], own["best"]["high"]) == (pytest.approx(expected.low), pytest.approx(expected.high))
    for line in study["analysis"].pairs(arm)[2:]:
        one, other, alone, wins, interval, better = line.strip("| ").split(" | ")
        hits = [np.array(arm["rankings"][title]["outcome"]) == "best" for title in (one, other)]
        assert (int(alone), int(wins)) == ((hits[0] != hits[1]).sum(), (hits[0] & ~hits[1]).sum())
        if int(alone):
            limits = stats.binomtest(int(wins), int(alone)).proportion_ci()
            assert interval == f"{100 * limits.low:.0f} to {100 * limits.high:.0f} %"
            assert (better == "not settled") == (limits.low <= 0.5 <= limits.high)
