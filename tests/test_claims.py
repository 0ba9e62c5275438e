"""The page of claims: its commands are there, and its figures are in the files that it links to."""

import re
import shlex
from pathlib import Path

import pytest

from recsim_mnar.cli import main

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "claims.md"
pytestmark = pytest.mark.skipif(
    not PAGE.exists(), reason="the page is not where the tests are: they run against a wheel"
)


def rows():
    text = re.sub(r"<!--.*?-->", "", PAGE.read_text()) if PAGE.exists() else ""
    lines = text.splitlines()
    return [line.strip("| ").split(" | ") for line in lines if line.startswith("| ") and "shown by" not in line]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:30])
def test_commands_and_figures_are_where_the_page_says(row, capsys):
    claim, shown, _ = row
    commands = [shlex.split(each) for each in re.findall(r"`([^`]+ [^`]+)`", shown)]
    assert commands
    for words in commands:
        if words[0] == "recsim-mnar":
            with pytest.raises(SystemExit, match="0"):
                main([words[1], "--help"])
            options = capsys.readouterr().out
            assert all(word in options for word in words if word.startswith("--"))
        else:
            assert words[0] in ("pytest", "python")
            files = [ROOT / word for word in words if word.endswith(".py")]
            assert files, words
            assert all(file.is_file() for file in files), words
    linked = [PAGE.parent / each.partition("#")[0] for each in re.findall(r"\]\(([^)]+)\)", " ".join(row))]
    there = "".join(path.read_text() for path in linked)
    bold = " ".join(row).split("**")[1::2] if "main rows" not in claim else []
    assert [each for each in bold if re.search(r"\d", each) and each not in there] == []


def test_the_papers_main_rows_are_counted():
    papers = (ROOT / "benchmarks" / "README.md").read_text().partition("## The papers")[2].partition("\n## ")[0]
    verdicts = [
        line.split(" | ")[2] for line in papers.splitlines() if line.startswith("| ") and "all claims" not in line
    ]
    begins = sum(each.startswith("reproduced") for each in verdicts)
    assert f"Of **{len(verdicts)}** main rows **{begins}** begin with" in PAGE.read_text()
