"""The files of a log by name: parts, tables, what makes a folder a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, not_written
from recsim_mnar.runs.files import replacing

PARQUET = (".parquet", ".pq")
"""Endings of Parquet files."""
ARROW = (".arrow", ".feather")
"""Endings of Arrow's own files (IPC)."""
TEXT = (".csv", ".tsv", ".inter", ".txt", ".dat")
"""Endings of text tables."""
COMPRESSED = (".gz", ".bz2", ".zst")
"""Endings that follow those of compressed text tables."""
PACKED = {"compression": "zstd", "compression_level": 1, "write_page_checksum": True}
"""Options of pyarrow's writer of Parquet, for all of ours."""


def part_path(folder: Path, index: int, ending: str = PARQUET[0]) -> Path:
    """The path of part ``index`` of a log folder."""
    return folder / f"part-{index:05d}{ending}"


def write_table(table: Any, path: Path) -> None:
    """Write a pyarrow Table as Parquet under a temporary name, then rename it; its pages bear checksums."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, **PACKED)


def kind_of(path: Path) -> str:
    """A file's ending without that of its compression, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in COMPRESSED:
        return suffixes[-2] if suffixes[-2] in TEXT else suffixes[-1]
    return (suffixes or [""])[-1]


def is_text(path: Path) -> bool:
    """Whether a file's name says that it is a text table."""
    return kind_of(path) in TEXT


def is_table(path: Path) -> bool:
    """Whether a file's name ends as those of tables do."""
    return kind_of(path) in (*PARQUET, *ARROW, *TEXT)


def part_files(path: Path) -> list[Path]:
    """The files of a log, in the order of their names: those of a folder, or the file itself.

    A folder holds them itself or in its folder ``log`` (as what ``simulate`` and ``compare`` write, with other files
    beside it). Hidden files, whose names begin with a dot or an underscore, do not count.
    :class:`recsim_mnar.tables.parts.Parts` checks them against their receipts, too.

    Raises:
        UserError: nothing there, nothing in it, tables of two formats, or a file of another kind.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist: give a Parquet or CSV file, or a folder of parts", code="no_such_file")
    if not path.is_dir():
        if not is_table(path):
            raise UserError(
                f"{path} is neither Parquet nor CSV: tables are read from {', '.join((*TEXT, *PARQUET, *ARROW))} files "
                f"(text may be compressed: {', '.join(COMPRESSED)}), not {kind_of(path) or 'without an ending'}",
                code="not_a_table",
            )
        if not path.is_file():
            raise UserError(f"{path} is no regular file, and tables are read more than once: write it into one first")
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty: give a log with at least one row", code="empty")
        return [path]
    folder = path / "log" if (path / "log").is_dir() else path
    found = listed(folder)
    if not found:
        raise UserError(f"{folder} holds no Parquet or CSV parts")
    other = next((file for file in found if _format_of(file) != _format_of(found[0])), None)
    if other is not None:
        raise UserError(
            f"{folder} holds {found[0].name} and {other.name}: the parts of a log have one format. Name one of them, "
            "or move the others away"
        )
    return found


def listed(folder: Path) -> list[Path]:
    """The tables in a folder, by name, but for hidden ones.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.name[0] not in "._" and is_table(path))
    except OSError as error:
        raise not_written(error, f"{folder} cannot be read: {error.strerror}") from None


def _format_of(file: Path) -> int:
    """Which of the formats a table's name says."""
    return next(number for number, endings in enumerate((PARQUET, ARROW, TEXT)) if kind_of(file) in endings)
