"""The table of speeds: what counts as a ratio, and as a bar that is reached."""

from __future__ import annotations

import json

import pytest
from study_modules import BENCHMARKS, bring

HERE = BENCHMARKS / "speed"


@pytest.fixture(scope="module")
def table():
    with bring("speed", "table") as found:
        yield found["table"]


def test_ratios_say_how_many_times_better_or_as_dear(table):
    costs = {"path": "a", "peer": "b", "ours": 2.0, "theirs": 6.0, "unit": "s"}
    assert table.Row(**costs, bar=3).ratio == 3.0
    assert table.Row(**costs, bar=3).met
    assert not table.Row(**costs, bar=3.1).met
    assert table.Row(**{**costs, "ours": 6.0, "theirs": 2.0}, bar=3, at_least=False).met
    assert not table.Row(**{**costs, "ours": 6.1, "theirs": 2.0}, bar=3, at_least=False).met
    rates = {**costs, "ours": 6.0, "theirs": 2.0, "of_costs": False}
    assert table.Row(**rates, bar=3).ratio == 3.0
    assert table.Row(**rates, bar=3, floor=12.0).distance == 2.0
    assert table.Row(**costs, bar=None, floor=0.5).distance == 4.0
    assert table.Row(**costs, bar=None).met is None


def test_the_page_says_which_bars_are_not_reached(table):
    costs = {"path": "a", "peer": "b", "ours": 2.0, "unit": "s"}
    rows = [
        table.Row(**costs, theirs=6.0, bar=3),
        table.Row(**costs, theirs=6.0, bar=4),
        table.Row(**costs, theirs=None, bar=3),
    ]
    lines = table.markdown(rows).splitlines()[2:]
    assert lines == [
        "| a | 2 s | b | 6 | 3 | ≥ 3 |  |",
        "| a | 2 s | b | 6 | 3 | ≥ 4, not reached |  |",
        "| a | 2 s | b | not measured |  | ≥ 3, not reached |  |",
    ]


def test_the_documentation_shows_the_table_as_it_was_measured():
    page = (HERE.parents[1] / "docs" / "speed.md").read_text()
    shown = page.split("<!-- speed -->\n")[1].split("<!-- /speed -->")[0]
    assert shown == (HERE / "results.md").read_text()


def test_the_documentation_shows_the_steps_as_they_were_measured():
    with bring("speed", "table", "stepping") as found:
        lines = found["stepping"].lines(json.loads((HERE / "results.json").read_text())["stepping"]["rates"])
    page = (HERE.parents[1] / "docs" / "speed.md").read_text()
    assert page.split("<!-- stepping -->\n")[1].splitlines() == lines
