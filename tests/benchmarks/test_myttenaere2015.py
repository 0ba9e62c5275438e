"""The checks of the campaigns study, where campaigns change something and where they do not."""

import json
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "myttenaere2015" / "results.json"

STILL = {"0": [-0.004, -0.009, 0.001], "20": [-0.001, -0.002, 0.0], "80": [0.0, -0.001, 0.001]}


@pytest.fixture
def study(modules_of):
    return modules_of("myttenaere2015", "figures", "whole")


def test_no_check_of_the_constant_lists_passes_where_nothing_changes(study):
    assert not any(study["figures"].figures_5_and_6(STILL, STILL, "20", "80").values())


def test_no_check_of_figure_7_passes_where_nothing_changes(study):
    """Changes without campaigns, and half widths, of 18,294 users and 180 items."""
    assert not any(
        study["whole"].figure7({"0": [-0.006, 0.017], "20": [-0.002, 0.017], "80": [-0.001, 0.017]}).values()
    )
    assert all(study["whole"].figure7({"0": [-0.3, 0.01], "20": [-0.2, 0.01], "80": [-0.1, 0.01]}).values())


@pytest.mark.skipif(not RESULTS.exists(), reason="the results are not where the tests are: they run against a wheel")
def test_what_the_committed_results_hold_of_figures_5_and_6(study):
    """Figure 6 as published where campaigns are not personal; with personal ones 20 weights help g2 too."""
    results = json.loads(RESULTS.read_text())

    def held(change):
        return list(study["figures"].figures_5_and_6(change["g1"], change["g2"], "20", "80").values())

    for kind, expected in (("house", [True] * 5), ("personal", [True, True, True, False, True])):
        change = results["figures"][kind]["change"]
        assert held({name: {p: days["500"] for p, days in change[name].items()} for name in ("g1", "g2")}) == expected
    assert held(results["whole"]["change"]) == [False, True, False, True, False]
