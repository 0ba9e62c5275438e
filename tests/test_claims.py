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
def test_commands_are_where_the_page_says(row, capsys):
    commands = [shlex.split(text) for text in re.findall(r"`([^`]+ [^`]+)`", row[1])]
    assert commands
    for program, *words in commands:
        if program == "recsim-mnar":
            with pytest.raises(SystemExit, match="0"):
                main([words[0], "--help"])
            options = capsys.readouterr().out
            assert [word for word in words if word.startswith("--") and word not in options] == []
        else:
            assert program in ("pytest", "python")
            files = [word for word in words if word.endswith(".py")]
            assert files, words
            assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("row", [row for row in rows() if "main rows" not in row[0]], ids=lambda row: row[0][:30])
def test_figures_are_where_the_page_says(row):
    text = " ".join(row)
    linked = [PAGE.parent / link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text)]
    results = "".join(path.read_text() for path in linked)
    figures = [bold for bold in text.split("**")[1::2] if re.search(r"\d", bold)]
    assert [figure for figure in figures if figure not in results] == []


def test_the_papers_main_rows_are_counted():
    papers = (ROOT / "benchmarks" / "README.md").read_text().partition("## The papers")[2].partition("\n## ")[0]
    lines = [line for line in papers.splitlines() if line.startswith("| ") and "all claims" not in line]
    reproduced = [line for line in lines if line.split(" | ")[2].startswith("reproduced")]
    assert f"Of **{len(lines)}** main rows **{len(reproduced)}** begin with" in PAGE.read_text()
