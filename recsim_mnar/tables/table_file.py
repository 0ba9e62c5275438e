"""A table file as people have them: CSV with any separator, decimal mark and encoding, or Parquet; one or in parts."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import check_utf8
from recsim_mnar.tables.arrow import batches_of, schema_of
from recsim_mnar.tables.files import ARROW, PARQUET
from recsim_mnar.tables.parts import Parts, read_table
from recsim_mnar.tables.rows import MISSING_WORDS, Rows

TEXT = (".csv", ".tsv", ".inter", ".txt", ".dat")
BINARY = (*PARQUET, *ARROW)
"""Endings of files whose columns have types."""
COMPRESSED = (".gz", ".bz2", ".zst")
SEPARATORS = "\t,;|"
"""What may stand between the fields of a text file, likeliest first where two fit equally well."""
_LOOK, _HEAD = 1 << 18, 4096
_COMMA = re.compile(r"^[-+]?\d*,\d+([eE][-+]?\d+)?$")
_POINT = re.compile(r"^[-+]?\d*\.\d+([eE][-+]?\d+)?$")


@dataclass(frozen=True)
class TableFile:
    """A table on disk, looked at but not read: what its columns are called, and how it is written.

    Attributes:
        path: as it was named.
        parts: the files; several where ``path`` is a folder of parts, whose rows follow one another.
        names: the columns, in order.
        delimiter: between fields; "" for Parquet.
        decimal: "," or ".".
        encoding: a Python codec's name.
        skip: lines up to and with the header.
        door: the same files, held against their receipts; None for a single text file.
    """

    path: Path
    parts: tuple[Path, ...]
    names: list[str]
    delimiter: str = ""
    decimal: str = "."
    encoding: str = "utf-8"
    skip: int = 1
    door: Parts | None = None

    @property
    def is_text(self) -> bool:
        """Whether it is a text file."""
        return bool(self.delimiter)

    @staticmethod
    def open(path: str | os.PathLike[str], what: str = "a table") -> TableFile:
        """Look at a file, or at a folder of parts.

        Args:
            path: a text file with a header line, compressed with gzip, bz2 or zstd where the name says so; a Parquet
                file; a folder of either.
            what: what it is to hold, for messages.

        Raises:
            UserError: no such file, nothing in it, not of these kinds, a column named twice.
        """
        path = Path(path)
        check_utf8(path)
        if not path.exists():
            raise UserError(f"{path} does not exist: name a file, or a folder of parts")
        door = None
        if path.is_dir():
            door = Parts.of(path)
            parts = tuple(door.files)
        else:
            kind = kind_of(path)
            if kind not in TEXT + BINARY:
                raise UserError(
                    f"{path}: {what} is read from {', '.join(TEXT + BINARY)} files (text may be compressed: "
                    f"{', '.join(COMPRESSED)}), not {kind or 'from a file without an ending'}"
                )
            if path.stat().st_size == 0:
                raise UserError(f"{path} is empty")
            parts = (path,)
        if kind_of(parts[0]) in BINARY:
            door = door or Parts.of(path)
            return TableFile(path, parts, _unique(path, _binary_names(door.first)), door=door)
        return replace(_look(path, parts), door=door)

    def read(self, columns: Mapping[str, str]) -> Rows:
        """Read columns.

        Args:
            columns: by name, what they are read for: "number", "id", "time" or "text".

        Raises:
            UserError: the file is no table, or a row has another number of fields.
        """
        import pyarrow as pa

        tables = [self._part(part, columns) for part in self.door or self.parts]
        try:
            table = tables[0] if len(tables) == 1 else pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException:
            raise UserError(f"{self.path}: the parts hold columns of different types; write them alike") from None
        if table.num_rows == 0:
            raise UserError(f"{self.path} has a header but no rows")
        return Rows(str(self.path), table, self.decimal)

    def head(self) -> dict[str, list[Any]]:
        """The first rows: the values of each column, as text where the file is."""
        if self.is_text:
            rows = csv.reader(
                io.StringIO("\n".join(_begin(self.path, self.parts[0])[2][self.skip :])), delimiter=self.delimiter
            )
            whole = [row for row in rows if len(row) == len(self.names)]
            return {name: [row[place].strip() for row in whole] for place, name in enumerate(self.names)}
        if kind_of(self.parts[0]) in ARROW:
            reader = batches_of(self.parts[0])
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            import pyarrow.parquet as pq

            batches = pq.ParquetFile(self.parts[0]).iter_batches(batch_size=_HEAD)
        batch = next((each for each in batches if len(each)), None)
        return {} if batch is None else batch.slice(0, _HEAD).to_pydict()

    def how_written(self) -> list[str]:
        """What was made of a text file, where it is not commas, points and UTF-8."""
        if not self.is_text:
            return []
        sign = {"\t": "tabs", ";": "semicolons", "|": "bars"}.get(self.delimiter)
        said = [f"separated by {sign}"] if sign else []
        said += ["decimal commas"] if self.decimal == "," else []
        said += [f"encoding {self.encoding}"] if self.encoding != "utf-8" else []
        return said

    def _part(self, part: Path, columns: Mapping[str, str]) -> Any:
        if not self.is_text:
            return _read_binary(part, list(columns), held=self.door is not None and self.door.index is not None)
        if part == self.parts[0]:
            return _read_text(self, part, columns)
        own = _look(part, (part,))
        for name in columns:
            if name not in own.names:
                raise UserError(f"part {part.name} has no column {name!r}, which the other parts have")
        return _read_text(own, part, columns)


def kind_of(path: Path) -> str:
    """A file's ending without that of its compression, in lower case."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if len(suffixes) > 1 and suffixes[-1] in COMPRESSED:
        return suffixes[-2]
    return (suffixes or [""])[-1]


def _unique(path: Path, names: list[str]) -> list[str]:
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{path}: column {name!r} appears twice in the header; rename one")
    return names


# ---------------------------------------------------------------------------------------------------------- text files


def _look(path: Path, parts: Sequence[Path]) -> TableFile:
    """How a text file is written, from its beginning."""
    encoding, _, lines = _begin(path, parts[0])
    skip = next((i for i, line in enumerate(lines) if line.strip()), None)
    if skip is None:
        raise UserError(f"{path} is empty")
    delimiter = _delimiter(lines[skip:])
    rows = csv.reader(io.StringIO("\n".join(lines[skip:])), delimiter=delimiter)
    names = _unique(path, [name.strip() for name in next(rows)])
    return TableFile(path, tuple(parts), names, delimiter, _decimal(rows, delimiter), encoding, skip + 1)


def _begin(path: Path, part: Path) -> tuple[str, bool, list[str]]:
    """Encoding, whether there is more, and the first lines of a text file."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(part), compression="detect") as stream:
            begin = stream.read(_LOOK)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{path} cannot be read: {str(error).splitlines()[0]}") from None
    _refuse_binary(part, begin)
    encoding, text = _decoded(begin)
    lines = text.splitlines()
    more = len(begin) == _LOOK and len(lines) > 1
    return encoding, more, lines[:-1] if more else lines  # the last one may be cut off


_KINDS = {
    b"\x1f\x8b": "gzip: let its name end in .csv.gz",
    b"BZh": "bzip2: let its name end in .csv.bz2",
    b"\x28\xb5\x2f\xfd": "zstd: let its name end in .csv.zst",
    b"PAR1": "Parquet: let its name end in .parquet",
    b"ARROW1": "Arrow: let its name end in .arrow",
    b"PK\x03\x04": "a zip archive (or a spreadsheet): write it as .csv",
}
"""How files begin that are no text."""


def _refuse_binary(part: Path, begin: bytes) -> None:
    """Raise UserError for a file that is named as text and is something else."""
    for mark, what in _KINDS.items():
        if begin.startswith(mark):
            raise UserError(f"{part} is no text but {what}")


def _decoded(begin: bytes) -> tuple[str, str]:
    """Encoding, and the text without its byte-order mark."""
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", codecs.getincrementaldecoder("utf-16")(errors="replace").decode(begin)
    try:
        return "utf-8", codecs.getincrementaldecoder("utf-8-sig")().decode(begin)
    except UnicodeDecodeError:
        return "cp1252", begin.decode("cp1252", errors="replace")


def _delimiter(lines: Sequence[str]) -> str:
    """The sign that cuts the header into most fields, and the next lines into as many."""

    def fits(sign: str) -> tuple[int, int]:
        rows = list(csv.reader(lines[:50], delimiter=sign))
        fields = len(rows[0]) if rows else 0
        return (sum(len(row) == fields for row in rows) if fields > 1 else 0, fields)

    best = max(SEPARATORS, key=lambda sign: (fits(sign)[1] > 1, *fits(sign)))
    return best if fits(best)[1] > 1 else ","


def _decimal(rows: Any, delimiter: str) -> str:
    """The decimal mark of the numbers in some rows."""
    commas = points = 0
    try:
        for row in rows:
            commas += sum(bool(_COMMA.match(field.strip())) for field in row)
            points += sum(bool(_POINT.match(field.strip())) for field in row)
    except csv.Error:
        pass
    return "," if commas > points and delimiter != "," else "."


def _read_text(file: TableFile, part: Path, columns: Mapping[str, str]) -> Any:
    """The columns: numbers as such where all are, ids as dictionaries, everything else as text."""
    import pyarrow as pa

    plain = {"number": pa.float64(), "id": pa.dictionary(pa.int32(), pa.string())}
    as_text = {name: plain["id"] if kind == "id" else pa.string() for name, kind in columns.items()}
    as_given = {name: plain.get(kind, pa.string()) for name, kind in columns.items() if kind != "time"}
    attempts = [(as_given, file.encoding), (as_text, file.encoding)]
    if file.encoding == "utf-8":  # whose beginning is, at least
        attempts.append((as_text, "cp1252"))
    said = ""
    for types, encoding in attempts:
        try:
            table = _parsed(file, part, types, encoding, names=list(columns))
            _refuse_open_quote(file, part, encoding)
            return table
        except (pa.ArrowException, OSError, UnicodeError) as error:
            said = str(error).splitlines()[0]
            if "CSV parse error" in said:
                break
    try:
        table, ragged = _parsed_with_ragged(file, part, as_text)
    except (pa.ArrowException, OSError, UnicodeError):
        raise UserError(f"{part} is not a readable table: {said}") from None
    _refuse_open_quote(file, part, file.encoding)
    if not ragged:
        return table
    fields = len(file.names)
    shown = ", ".join(f"{number}: {count}" for number, count, _ in ragged[:3]) + (", ..." if len(ragged) > 3 else "")
    hint = "one value for each column"
    quoted = any('"' in text for _, _, text in ragged[:3])
    if quoted:
        hint += "; a quote may be open there"
    if file.delimiter == "," and ragged[0][1] > fields:
        hint = "write decimal points, or semicolons between the columns, if these are decimal commas"
    rows = "row has" if len(ragged) == 1 else "rows have"
    raise UserError(
        f"{part} is not a readable table: {len(ragged):,} {rows} not the header's {fields} fields (row {shown}); {hint}"
    )


def _parsed(
    file: TableFile, part: Path, types: Mapping[str, Any], encoding: str, names: Sequence[str] = (), **parsing: Any
) -> Any:
    """A table of the columns ``names`` (those of ``types`` without it); what has no type gets one by what it holds."""
    import pyarrow.csv as pacsv

    serial = bool(parsing)
    return pacsv.read_csv(
        part,
        read_options=pacsv.ReadOptions(
            column_names=file.names,
            skip_rows=file.skip,
            encoding={"utf-8": "utf8"}.get(encoding, encoding),
            use_threads=not serial,
        ),
        parse_options=pacsv.ParseOptions(delimiter=file.delimiter, **parsing),
        convert_options=pacsv.ConvertOptions(
            include_columns=list(names or types),
            column_types=dict(types),
            strings_can_be_null=True,
            null_values=list(MISSING_WORDS),
            decimal_point=file.decimal,
        ),
    )


def _parsed_with_ragged(
    file: TableFile, part: Path, types: Mapping[str, Any]
) -> tuple[Any, list[tuple[int, int, str]]]:
    """The table with lines that go on within quotes, and (row from 1, fields, text) of rows that do not fit."""
    found: list[tuple[int, int, str]] = []

    def ragged(row: Any) -> str:
        found.append((row.number, row.actual_columns, row.text))
        return "skip"

    table = _parsed(file, part, types, file.encoding, newlines_in_values=True, invalid_row_handler=ragged)
    return table, [(number - file.skip, count, text) for number, count, text in found]


def _refuse_open_quote(file: TableFile, part: Path, encoding: str) -> None:
    """A quote that nobody closes makes one value of all that follows: said, where the last value goes over lines.

    Raises:
        UserError: so it is.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if _quotes(part) % 2 == 0:  # the usual case: one look at the file's bytes
        return
    every = _parsed(file, part, {name: pa.string() for name in file.names}, encoding, newlines_in_values=True,
                    invalid_row_handler=lambda row: "skip")  # fmt: skip
    last = every.slice(every.num_rows - 1)
    goes_on = [name for name in file.names if pc.any(pc.match_substring(last.column(name), "\n")).as_py()]
    if goes_on:
        raise UserError(
            f"{part} is not a readable table: a quote seems to be left open in row {every.num_rows:,}, "
            f"column {goes_on[0]!r}"
        )


def _quotes(part: Path) -> int:
    """How many quotation marks a text file holds."""
    import pyarrow as pa

    count = 0
    with pa.input_stream(str(part), compression="detect") as stream:
        while block := stream.read(1 << 22):
            count += block.count(b'"')
    return count


# --------------------------------------------------------------------------------------------------- Parquet and Arrow


def _binary_names(path: Path) -> list[str]:
    import pyarrow as pa

    try:
        return list(schema_of(path).names)
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        kind = "Arrow" if kind_of(path) in ARROW else "Parquet"
        raise UserError(
            f"{path} is not a readable {kind} file: {reason}; restore it, or name it as what it is"
        ) from None


def _read_binary(path: Path, names: list[str], held: bool) -> Any:
    there = _binary_names(path)
    for name in names:
        if name not in there:
            raise UserError(f"part {path.name} has no column {name!r}, which the other parts have")
    return read_table(path, names, held=held)
