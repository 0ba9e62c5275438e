"""The playground: its page holds what its study found, and the commands that it names make that anew."""

import itertools
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from recsim_mnar.cli.comparison import compare

ROOT = Path(__file__).parents[2]
STORED = ROOT / "benchmarks" / "playground" / "results.json"
if not STORED.exists():
    pytest.skip("the benchmarks are not next to the tests", allow_module_level=True)
FOUND = json.loads(STORED.read_text())
SAID = r"\b{} (?:picks .*, )?in (\d+) (?:of \d+ worlds and loses |\()([\d.]+)\s%"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The page's text."""
    pytest.importorskip("jinja2")
    sys.path.insert(0, str(ROOT / "docs" / "extensions"))
    import playground

    path = tmp_path_factory.mktemp("site") / "playground.html"
    playground.write(path)
    yield path.read_text()
    sys.path.remove(str(ROOT / "docs" / "extensions"))


def test_the_page_says_of_each_setting_what_was_found(page):
    grid = json.loads(re.search(r'(?s)<script type="application/json" id="grid">(.*?)</script>', page)[1])
    assert grid["values"] == FOUND["sliders"]
    assert [one["key"] for one in grid["shown"]] == [
        "-".join(f"{value:g}" for value in values) for values in itertools.product(*FOUND["sliders"].values())
    ]
    for shown, point in zip(grid["shown"], FOUND["points"], strict=True):
        assert shown["command"] == point["command"]
        for name, own in point["protocols"].items():
            right, lost = re.search(SAID.format(re.escape(name)), shown["sentence"], re.IGNORECASE).groups()
            assert int(right) == own["best"] + own["tied"]
            assert float(lost) == pytest.approx(100 * own["cost"][0], abs=0.5 if own["cost"][0] > 0.0995 else 0.05)
            share, low, high = own["right"]
            assert share == pytest.approx(int(right) / FOUND["catalogues"], rel=1e-3)
            assert 0 <= low <= share + 1e-12 <= high + 2e-12 <= 1 + 3e-12


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, -1], ids=["first", "last of the smallest logs"])
def test_a_settings_command_makes_its_numbers_anew(tmp_path, place):
    smallest = [p for p in FOUND["points"] if p["users"] == min(FOUND["sliders"]["users"])]
    point = smallest[place]
    program, command, *words = shlex.split(point["command"])
    assert (program, command) == ("recsim-mnar", "compare")
    done = CliRunner().invoke(compare, [*words, "--workers", "1", "--quiet", "--out", str(tmp_path / "made")])
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "made" / "summary.json").read_text())["summary"]
    for row in summary:
        stored = point["protocols"][row["title"]]
        assert (row["best"]["count"], row["indistinguishable"]["count"]) == (stored["best"], stored["tied"])
        assert row["picks"] == stored["picks"]
        assert row["cost_share"]["mean"] == pytest.approx(stored["cost"][0], rel=1e-3, abs=1e-12)
