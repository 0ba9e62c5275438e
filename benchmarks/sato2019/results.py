"""results.json: the summary of each part on a line of its own, small enough to be kept beside the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.log import replacing

DIGITS = 4  # significant, of what is kept


def kept_results(out: Path) -> dict[str, Any]:
    """The summary of each part that was run."""
    path = out / "results.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    return {part: unpacked(result) for part, result in found.items()}


def write_results(out: Path, results: dict[str, Any]) -> None:
    """All summaries, under a temporary name that is then renamed."""
    tight = (",", ":")
    parts = [
        f"{json.dumps(k)}: {json.dumps(rounded(packed(v)), allow_nan=False, separators=tight)}"
        for k, v in results.items()
    ]
    with replacing(out / "results.json") as temporary:
        temporary.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def rounded(value: Any) -> Any:
    """The same with floats of DIGITS significant digits, numbers of NumPy's as Python's own."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(v) for v in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


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
