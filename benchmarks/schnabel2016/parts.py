"""The study's one results file and its text, with one section per part."""

# ruff: noqa: F401  (what the study's modules take from here)
from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import _study
from _study import parser_of, student, table, verdicts

HERE = Path(__file__).resolve().parent
ORDER = (
    "table1", "figure2", "figure6", "figure6_by_ips", "figure10", "table2", "hl", "propensities", "yahoo_shaped",
    "sessions",
)  # fmt: skip
"""Of results.md; the last two were made once, as README.md says."""
QUICK = Path("runs/schnabel2016-quick")


def folder(out: Path | None, quick: bool) -> Path:
    """Where results go: as named, else the study's folder; of a quick run never there."""
    chosen = out or (QUICK if quick else HERE)
    (chosen / "work").mkdir(parents=True, exist_ok=True)
    return chosen


def read(out: Path) -> dict[str, Any]:
    """The results of all parts made so far, by name."""
    return dict(_study.read(out / "results.json"))


def as_kept(result: dict[str, Any]) -> dict[str, Any]:
    """A result with the six digits of ``results.json``: its text is then the same whether it was just made or kept."""
    return dict(_study.rounded(result, 6))


def write(out: Path, part: str, result: dict[str, Any], text: str) -> None:
    """Put one part into ``results.json`` and its text into ``results.md``."""
    results = {**read(out), part: as_kept(result)}
    lines = [f" {json.dumps(name)}: {json.dumps(results[name])}" for name in ORDER if name in results]
    _study.write_text(out / "results.json", "{\n" + ",\n".join(lines) + "\n}\n")
    texts = {**_texts(out), part: text.strip()}
    sections = [f"<!-- {name} -->\n\n{texts[name]}\n" for name in ORDER if name in texts]
    _study.write_text(out / "results.md", "# Results\n\n" + "\n".join(sections))


def _texts(out: Path) -> dict[str, str]:
    path = out / "results.md"
    pieces = re.split(r"^<!-- (\w+) -->$", path.read_text() if path.exists() else "", flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2], strict=True)}
