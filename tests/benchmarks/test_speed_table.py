"""The tables of speeds stand in the documentation as they were measured."""

import json

from study_modules import BENCHMARKS, bring

HERE = BENCHMARKS / "speed"


def test_the_documentation_shows_the_steps_as_they_were_measured():
    with bring("speed", "table", "stepping") as found:
        lines = found["stepping"].lines(json.loads((HERE / "results.json").read_text())["stepping"]["rates"])
    page = (HERE.parents[1] / "docs" / "speed.md").read_text()
    assert page.split("<!-- stepping -->\n")[1].splitlines() == lines
