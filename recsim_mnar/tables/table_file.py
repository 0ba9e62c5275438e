"""A table as people have it: text with any separator and encoding, Parquet or Arrow; one file or parts."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_mnar.errors import MachineError, UserError
from recsim_mnar.kernels.memory import free_memory, in_words
from recsim_mnar.tables.arrow import names_in, objects_of, read_blocks, unpacked_bytes
from recsim_mnar.tables.faults import Faults
from recsim_mnar.tables.files import is_text, refuse_unpacked
from recsim_mnar.tables.parts import Parts
from recsim_mnar.tables.rows import Rows
from recsim_mnar.tables.text import AgainError, TextForm, TextPart

_HEAD = 4096
_WHOLE_ROWS = 1 << 20
"""Rows decoded at a time where all of them are wanted."""
_COPIES = 8
"""Times its size that a whole table takes while it is worked with."""


@dataclass(frozen=True)
class TableFile:
    """A table on disk, looked at but not read: what its columns are called, and how it is written.

    Attributes:
        path: as it was named.
        parts: its files, checked against their receipts; several where ``path`` is a folder of parts.
        names: the columns, in order.
        form: how a text file is written; None for Parquet and Arrow.
    """

    path: Path
    parts: Parts
    names: list[str]
    form: TextForm | None = None

    @staticmethod
    def open(path: str | os.PathLike[str] | Parts) -> TableFile:
        """Look at a file, or at a folder of parts.

        Args:
            path: a text file with a header line, compressed with gzip, bz2 or zstd where the name says so; a Parquet
                or Arrow file; a folder of one of them.

        Raises:
            UserError: no such file, nothing in it, not of these kinds, a column named twice.
        """
        parts = path if isinstance(path, Parts) else Parts.of(path)
        first = parts.first
        form = TextForm.of(first) if is_text(first) else None
        names = _unique(first, names_in(first) if form is None else form.names)
        return TableFile(parts.path, parts, names, form)

    @property
    def is_text(self) -> bool:
        """Whether it is a text file."""
        return self.form is not None

    @property
    def decimal(self) -> str:
        """The decimal mark."""
        return "." if self.form is None else self.form.decimal

    def how_written(self) -> list[str]:
        """What was made of a text file, where it is not commas, points and UTF-8."""
        return [] if self.form is None else self.form.how_written()

    def head(self) -> dict[str, list[Any]]:
        """The first rows: the values of each column, as text where the file is."""
        if self.form is not None:
            return self.form.head(self.parts.files[0])
        table = next((each for each in read_blocks(self.parts.files[0], _HEAD) if len(each)), None)
        if table is None:
            return {}
        return {name: objects_of(table.column(name).slice(0, _HEAD)) for name in table.column_names}

    def read(self, kinds: Mapping[str, str]) -> Rows:
        """Read columns of all rows.

        Args:
            kinds: by column, what it is read for: "number", "id", "time" or "text".

        Raises:
            UserError: the file is no table, a row has another number of fields, or there is no room for all rows.
        """
        import pyarrow as pa

        self._refuse_too_large(list(kinds))
        while True:
            tables, held = [], 0
            try:
                for rows in self.blocks(kinds, _WHOLE_ROWS):
                    tables.append(rows.table)
                    held += rows.table.nbytes
                    _check_room(self.path, held)
                table = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
            except AgainError:
                continue
            except pa.ArrowException:
                raise UserError(
                    f"{self.path}: the parts hold columns of different types; write them with one schema"
                ) from None
            return Rows(str(self.path), table, self.decimal)

    def _refuse_too_large(self, names: list[str]) -> None:
        """Raise UserError where columns of all rows take more than there is, or far more than their files do."""
        size = 0
        for part in self.parts:
            if self.form is None:
                whole = unpacked_bytes(part, names)
            else:
                whole = 8 * self._text_part(part).counted()[1] * len(names)
            refuse_unpacked(part, 2 * whole)  # what is made of them, too
            size += whole
        _check_room(self.path, size)

    def blocks(self, kinds: Mapping[str, str], rows: int, faults: Faults | None = None) -> Iterator[Rows]:
        """Read columns, some ``rows`` rows at a time; their faults are gathered together.

        Raises:
            UserError: as :meth:`read`.
            AgainError: the file must be read anew, from its first row.
        """
        first, faults = 1, Faults(str(self.path)) if faults is None else faults
        for part in self.parts:
            for table in self._tables(part, kinds, rows):
                if len(table):
                    yield Rows(str(self.path), table, self.decimal, first, faults=faults)
                    first += len(table)
        if first == 1:
            raise UserError(f"{self.path} has a header but no rows")

    def _tables(self, part: Path, kinds: Mapping[str, str], rows: int) -> Iterator[Any]:
        names = self.names if part == self.parts.files[0] else self._names_of(part)
        for name in kinds:
            if name not in names:
                raise UserError(f"part {part.name} has no column {name!r}, which the other parts have")
        if self.form is not None:
            return self._text_part(part).blocks(kinds)
        return read_blocks(part, rows, list(kinds), held=self.parts.index is not None)

    def _names_of(self, part: Path) -> list[str]:
        return names_in(part) if self.form is None else self._text_part(part).form.names

    def _text_part(self, part: Path) -> TextPart:
        assert self.form is not None
        if part not in self._text_parts:
            self._text_parts[part] = TextPart(part, self.form if part == self.parts.files[0] else TextForm.of(part))
        return self._text_parts[part]

    @functools.cached_property
    def _text_parts(self) -> dict[Path, TextPart]:
        return {}


def _unique(path: Path, names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: column {name!r} appears twice in the header; rename one")
    return names


def _check_room(path: Path, size: int) -> None:
    """Raise UserError where the rows read so far fill the memory that is left."""
    free = free_memory()
    if _COPIES * size > free + size:
        raise MachineError(
            f"{path}: all of its rows are needed at once, {in_words(size)} as they are read and "
            f"{in_words(_COPIES * size)} to work with them; this machine has {in_words(free)} left. Give fewer rows or "
            "columns"
        )
