"""The files in which logs lie: parts, temporary names, what makes a folder a log."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError

PART_PATTERN = "part-*.parquet"


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


def part_path(folder: Path, index: int) -> Path:
    """Where part ``index`` of a log folder lies."""
    return folder / f"part-{index:05d}.parquet"


def write_table(table: Any, path: Path) -> None:
    """Write a pyarrow Table as Parquet under a temporary name, then rename it."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=1)


def part_files(path: Path) -> list[Path]:
    """The files of a log: the parts of a folder, in order, or the file itself.

    Raises:
        UserError: nothing there.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist")
    if path.is_dir():
        if (path / "log").is_dir():  # what ``simulate`` or ``compare`` wrote, other files beside its log
            path = path / "log"
        parts = sorted(p for p in path.glob("*.parquet") if not p.name.startswith("."))
        if not parts:
            raise UserError(f"{path} holds no Parquet parts ({PART_PATTERN})")
        return parts
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty")
    return [path]


def write_json(path: Path, value: Any) -> None:
    """Write JSON under a temporary name, then rename it."""
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
