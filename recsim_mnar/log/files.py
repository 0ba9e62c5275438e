"""The files in which logs lie: parts, temporary names, what makes a folder a log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError

PARQUET = (".parquet", ".pq")
"""Endings of Parquet files."""
ARROW = (".arrow", ".feather")
"""Endings of Arrow's own files (IPC), which are mapped and not decoded."""
SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": ","}
"""Endings of text tables, and what separates their columns."""


class replacing:  # noqa: N801  (used as a verb in a with-statement)
    """``with replacing(path) as temporary``: write to ``temporary``; on success it takes the name ``path``."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return self.temporary

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None:
            os.replace(self.temporary, self.path)
        else:
            self.temporary.unlink(missing_ok=True)


def part_path(folder: Path, index: int, ending: str = PARQUET[0]) -> Path:
    """Where part ``index`` of a log folder lies."""
    return folder / f"part-{index:05d}{ending}"


def write_table(table: Any, path: Path) -> None:
    """Write a pyarrow Table as Parquet under a temporary name, then rename it."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=1)


def part_files(path: Path) -> list[Path]:
    """The files of a log, in the order of their names: those of a folder, or the file itself.

    A folder holds them itself or in its folder ``log`` (as what ``simulate`` and ``compare`` write, with other files
    beside). Where there are Parquet files Arrow and CSV files do not count, and hidden files never do.

    Raises:
        UserError: nothing there, nothing in it, or a file of another kind.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: give a Parquet or CSV file, or a folder of parts")
    if not path.is_dir():
        if path.suffix.lower() not in (*PARQUET, *ARROW, *SEPARATORS):
            raise UserError(f"{path} is neither Parquet nor CSV: name it .parquet, .arrow, .csv or .tsv")
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty: give a log with at least one row")
        return [path]
    folder = path / "log" if (path / "log").is_dir() else path
    for endings in (PARQUET, ARROW, tuple(SEPARATORS)):
        found = sorted(p for p in folder.iterdir() if p.suffix.lower() in endings and not p.name.startswith("."))
        if found:
            return found
    raise UserError(f"{folder} holds no Parquet or CSV parts")


def write_json(path: Path, value: Any) -> None:
    """Write JSON under a temporary name, then rename it."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    """A number of NumPy's as Python's own; anything else is no JSON."""
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no JSON")
