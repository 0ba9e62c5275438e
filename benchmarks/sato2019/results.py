"""results.json: the summary of each part on a line of its own, small enough to be kept beside the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from _study import read, rounded, write_text

DIGITS = 4  # significant, of what is kept


def kept_results(out: Path) -> dict[str, Any]:
    """The summary of each part that was run."""
    return {part: unpacked(result) for part, result in read(out / "results.json").items()}


def write_results(out: Path, results: dict[str, Any]) -> None:
    """All summaries, under a temporary name that is then renamed."""
    short = {k: rounded(packed(v), DIGITS) for k, v in results.items()}
    parts = [f"{json.dumps(k)}: {json.dumps(v, allow_nan=False, separators=(',', ':'))}" for k, v in short.items()]
    write_text(out / "results.json", "{\n" + ",\n".join(parts) + "\n}\n")


def packed(result: dict[str, Any]) -> dict[str, Any]:
    """A log's estimates by method and length as lists, their names once."""
    if "lengths" not in result:
        return result
    rows = result["rows"]
    columns = list(next(iter(next(iter(rows.values()))["estimates"].values())))
    short = {
        m: {**row, "estimates": {n: [of[k] for k in columns] for n, of in row["estimates"].items()}}
        for m, row in rows.items()
    }
    return {**result, "columns": columns, "rows": short}


def unpacked(result: dict[str, Any]) -> dict[str, Any]:
    """What :func:`packed` was given."""
    if "columns" not in result:
        return result
    columns = result["columns"]
    rows = {
        m: {**row, "estimates": {n: dict(zip(columns, of, strict=True)) for n, of in row["estimates"].items()}}
        for m, row in result["rows"].items()
    }
    return {**{k: v for k, v in result.items() if k != "columns"}, "rows": rows}
