"""The tables of speeds stand in the documentation as they were measured."""

import json

from study_modules import BENCHMARKS, bring

HERE = BENCHMARKS / "speed"


def test_the_documentation_shows_the_table_as_it_was_measured():
    page = (HERE.parents[1] / "docs" / "speed.md").read_text()
    shown = page.split("<!-- speed -->\n")[1].split("<!-- /speed -->")[0]
    assert shown == (HERE / "results.md").read_text()


def test_the_documentation_shows_the_steps_as_they_were_measured():
    with bring("speed", "table", "stepping") as found:
        lines = found["stepping"].lines(json.loads((HERE / "results.json").read_text())["stepping"]["rates"])
    page = (HERE.parents[1] / "docs" / "speed.md").read_text()
    assert page.split("<!-- stepping -->\n")[1].splitlines() == lines
