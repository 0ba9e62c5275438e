"""Text tables: how one is written (separator, decimal mark, encoding), and its columns, some rows at a time."""

from __future__ import annotations

import codecs
import csv
import functools
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, not_written
from recsim_mnar.tables.files import is_text_file, kind_of
from recsim_mnar.tables.rows import AgainError
from recsim_mnar.tables.values import MISSING_WORDS, Decimal

SEPARATORS = "\t,;|"
"""What may stand between the fields of a text file, likeliest first where two fit equally well."""
_VALUE = re.compile(r"[0-9]+[.:/-][0-9]")
"""What begins a number with decimals, a time or a date, and no name of a column; a column may be called 12."""
_BLOCK_BYTES = 1 << 24
_LOOK = 1 << 18
_KINDS = {
    b"\x1f\x8b": "gzip: let its name end in .csv.gz",
    b"BZh": "bzip2: let its name end in .csv.bz2",
    b"\x28\xb5\x2f\xfd": "zstd: let its name end in .csv.zst",
    b"PAR1": "Parquet: let its name end in .parquet",
    b"ARROW1": "Arrow: let its name end in .arrow",
    b"PK\x03\x04": "a zip archive (or a spreadsheet): write it as .csv",
}
"""How files begin that are no text."""


_LONG = f"a row is longer than {_BLOCK_BYTES >> 20} MB; shorten it, or close a quote that is open"


@dataclass(frozen=True)
class TextForm:
    """Format of a text file.

    Attributes:
        names: the columns, in order.
        delimiter: between fields.
        decimal: the decimal mark.
        encoding: a Python codec's name.
        skip: lines up to and with the header.
    """

    names: list[str]
    delimiter: str
    decimal: Decimal
    encoding: str
    skip: int

    @staticmethod
    def of(part: Path, decimal: str | None = None) -> TextForm:
        """Detect a file's format from its beginning; ``decimal`` is the mark that the user states.

        Raises:
            UserError: it cannot be read, is empty, or is no text.
        """
        encoding, lines = _begin(part)
        skip = next((i for i, line in enumerate(lines) if line.strip()), None)
        if skip is None:
            raise UserError(f"{part} is empty: give a table with a header and at least one row", code="empty")
        if "::" in lines[skip]:
            raise UserError(f"{part}: '::' stands between the fields: write commas, and names in the first line")
        delimiter = _delimiter(part, lines[skip:])
        rows = _fields(part, lines[skip:], delimiter)
        names = [name.strip() for name in next(rows)]
        form = TextForm(names, delimiter, Decimal(), encoding, skip + 1)
        return replace(form, decimal=Decimal.of(form.head(part), delimiter, decimal))

    def head(self, part: Path) -> dict[str, list[Any]]:
        """The first rows as text, by column."""
        state = part.stat()
        columns = _first_columns(part, state.st_mtime_ns, state.st_size, self.skip, self.delimiter, len(self.names))
        return dict(zip(self.names, columns, strict=True))

    def how_written(self) -> list[str]:
        """Describe what is not commas, points and UTF-8."""
        sign = {"\t": "tabs", ";": "semicolons", "|": "bars"}.get(self.delimiter)
        if sign:
            remarks = [f"separated by {sign}"]
        else:
            remarks = []
        if any(map(_VALUE.match, self.names)):
            remarks += ["the first line may hold values"]
        if self.decimal.mark == ",":
            remarks += ["decimal commas"]
        return remarks + ([f"encoding {self.encoding}"] if self.encoding != "utf-8" else [])


@functools.lru_cache(maxsize=2)  # one command looks at them several times
def _first_columns(part: Path, changed: int, size: int, skip: int, delimiter: str, width: int) -> list[list[str]]:
    """Columns of the first rows that are whole, of a file in one state."""
    rows = _fields(part, _begin(part)[1][skip:], delimiter)
    full_rows = [row for row in rows if len(row) == width]
    return [[row[place].strip() for row in full_rows] for place in range(width)]


def _begin(part: Path) -> tuple[str, list[str]]:
    """Encoding and the first lines of a text file."""
    import pyarrow as pa

    try:
        with pa.input_stream(str(part), compression="detect") as stream:
            begin = stream.read(_LOOK)
    except (OSError, pa.ArrowInvalid) as error:
        raise not_written(error, f"{part} cannot be read: {str(error).splitlines()[0]}") from None
    for mark, what in _KINDS.items():
        if begin.startswith(mark):
            raise UserError(f"{part} is not text but {what}")
    encoding, text = _decoded(begin)
    lines = text.splitlines()
    return encoding, lines[:-1] if len(begin) == _LOOK and len(lines) > 1 else lines  # the last one may be cut off


def _decoded(begin: bytes) -> tuple[str, str]:
    """Encoding, and the text without its byte-order mark."""
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", codecs.getincrementaldecoder("utf-16")(errors="replace").decode(begin)
    try:
        return "utf-8", codecs.getincrementaldecoder("utf-8-sig")().decode(begin)
    except UnicodeDecodeError:
        return "cp1252", begin.decode("cp1252", errors="replace")


def _fields(part: Path, lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    """The fields of each line.

    Raises:
        UserError: one is longer than those of tables are.
    """
    try:
        yield from csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter)
    except csv.Error as error:
        raise _unreadable(part, error) from None


def _delimiter(part: Path, lines: Sequence[str]) -> str:
    """The sign that cuts the header into most fields, and the next lines into as many."""

    def fits(sign: str) -> tuple[int, int]:
        rows = list(_fields(part, lines[:50], sign))
        fields = len(rows[0]) if rows else 0
        return (sum(len(row) == fields for row in rows) if fields > 1 else 0, fields)

    best = max(SEPARATORS, key=lambda sign: (fits(sign)[1] > 1, *fits(sign)))
    if fits(best)[1] > 1:
        return best
    return ","


class TextPart:
    """A text file, read some rows at a time; what reading teaches of it is kept for the next pass.

    Args:
        path: of the file.
        form: how it is written.
    """

    def __init__(self, path: Path, form: TextForm) -> None:
        self.path = path
        self.form = form
        self._way = 0
        self._quotes_are_closed = False
        self._counted: tuple[int, int] | None = None

    def blocks(self, kinds: Mapping[str, str] | None = None) -> Iterator[Any]:
        """Tables of pyarrow's, one after another: numbers as such where all are, ids as dictionaries, the rest as text.

        Args:
            kinds: by column, what it is read for; None for all columns, by what they hold.

        Raises:
            UserError: it is no table, or a row has another number of fields.
            AgainError: rows were handed out, and a later one says that it must be read in another way.
        """
        import pyarrow as pa

        ways = self._ways(kinds)
        n_rows = 0
        while True:
            ragged: list[tuple[int, int, str]] = []
            try:
                for block in self._parsed(*ways[self._way], kinds, ragged if self._way == len(ways) - 1 else None):
                    n_rows += len(block)
                    yield block
                self._refuse_ragged(ragged)
                self._refuse_open_quote(n_rows)
                return
            except (pa.ArrowException, OSError, UnicodeError) as error:
                if "straddling" in str(error):
                    reason = _LONG
                else:
                    reason = str(error).splitlines()[0]
                if self._way == len(ways) - 1:
                    raise _unreadable(self.path, reason) from None
                if "CSV parse error" in reason:
                    self._way = len(ways) - 1
                else:
                    self._way = self._way + 1
            if n_rows:
                raise AgainError

    def _ways(self, kinds: Mapping[str, str] | None) -> list[tuple[Mapping[str, Any], str]]:
        """Types and encodings, the likeliest first; the last one allows lines to go on within quotes."""
        import pyarrow as pa

        plain = {"number": pa.float64(), "id": pa.dictionary(pa.int32(), pa.string())}
        column_types = dict(kinds or {})
        as_given = {name: plain.get(kind, pa.string()) for name, kind in column_types.items() if kind != "time"}
        decimal = self.form.decimal
        every = not decimal.known or decimal.mark == self.form.delimiter
        in_doubt = [name for name in column_types if every or (name in decimal.unclear and not decimal.stated)]
        as_given |= {name: pa.string() for name in in_doubt if column_types[name] == "number"}
        as_text = {name: plain["id"] if kind == "id" else pa.string() for name, kind in column_types.items()}
        if self.form.encoding == "utf-8":
            encodings = ["utf-8", "cp1252"]
        else:
            encodings = [self.form.encoding]
        return [(as_given, encodings[0]), *((as_text, encoding) for encoding in encodings), (as_text, encodings[0])]

    def _parsed(
        self,
        types: Mapping[str, Any],
        encoding: str,
        kinds: Mapping[str, str] | None,
        ragged: list[tuple[int, int, str]] | None,
    ) -> Iterator[Any]:
        """Tables of the columns asked for; rows that do not fit are gathered where there is a list for them."""
        import pyarrow as pa
        import pyarrow.csv as pacsv

        def skip(row: Any) -> str:
            assert ragged is not None
            ragged.append((row.number, row.actual_columns, row.text))
            return "skip"

        parsing: dict[str, Any] = {} if ragged is None else {"newlines_in_values": True, "invalid_row_handler": skip}
        form = self.form
        # Where commas stand between the fields, numbers with decimal commas are read as text.
        if form.delimiter == ",":
            decimal_point = "."
        else:
            decimal_point = form.decimal.mark
        reader = pacsv.open_csv(
            self.path,
            read_options=pacsv.ReadOptions(
                column_names=form.names,
                skip_rows=form.skip,
                block_size=_BLOCK_BYTES,
                use_threads=ragged is None,
                encoding={"utf-8": "utf8"}.get(encoding, encoding),
            ),
            parse_options=pacsv.ParseOptions(delimiter=form.delimiter, **parsing),
            convert_options=pacsv.ConvertOptions(
                include_columns=list(kinds or form.names),
                column_types=dict(types),
                strings_can_be_null=True,
                null_values=list(MISSING_WORDS),
                decimal_point=decimal_point,
            ),
        )
        with reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

    def counted(self) -> tuple[int, int]:
        """Count quotation marks and ends of lines."""
        self._counted = self._counted or _counted(self.path)
        return self._counted

    def _refuse_ragged(self, ragged: list[tuple[int, int, str]]) -> None:
        """Raise UserError where rows have another number of fields than the header."""
        if not ragged:
            return
        fields = len(self.form.names)
        lines = ", ".join(f"{number - self.form.skip}: {count}" for number, count, _ in ragged[:3])
        if len(ragged) > 3:
            lines += ", ..."
        hint = "one value for each column"
        if any('"' in text for _, _, text in ragged[:3]):
            hint += "; a quote may be open there"
        if self.form.delimiter == "," and ragged[0][1] > fields:
            hint = "write decimal points, or semicolons between the columns, if these are decimal commas"
        if len(ragged) == 1 and ends_within_a_line(self.path):
            hint = "its last line has no end, so the file may be cut there"
        if len(ragged) == 1:
            rows = "row has"
        else:
            rows = "rows have"
        raise _unreadable(self.path, f"{len(ragged):,} {rows} not the header's {fields} fields (row {lines}); {hint}")

    def _refuse_open_quote(self, n_rows: int) -> None:
        """Raise UserError where a value in quotation marks holds lines that look like rows, or the end of the file.

        Args:
            n_rows: how many rows were read.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        quotes, ends = self.counted()
        if quotes == 0 or n_rows >= ends - self.form.skip or self._quotes_are_closed:
            return
        line = self.form.skip + 1
        text = dict.fromkeys(self.form.names, pa.string())
        for block in self._parsed(text, self.form.encoding, None, []):
            for row in pc.indices_nonzero(_holds_line_ends(block)).to_pylist():
                at_the_end = quotes % 2 == 1 and line + row - self.form.skip == n_rows
                for name, value in block.slice(row, 1).to_pylist()[0].items():
                    if self._looks_like_rows(value or "") or (at_the_end and "\n" in (value or "")):
                        raise _unreadable(
                            self.path,
                            f"column {name!r} holds {value.count(chr(10)):,} line ends in one row: a quotation mark "
                            f"may be open near line {line + row:,}",
                        )
            line += len(block)
        self._quotes_are_closed = True

    def _looks_like_rows(self, value: str) -> bool:
        """Return whether a line of a value has as many fields as a row of the file, of two or more."""
        fields = len(self.form.names)
        return fields > 1 and any(line.count(self.form.delimiter) >= fields - 1 for line in value.split("\n"))


def _holds_line_ends(block: Any) -> Any:
    """Find the rows (n,) of a table of texts with a value of several lines."""
    import pyarrow.compute as pc

    line_ends = None
    for column in block.columns:
        in_column = pc.fill_null(pc.match_substring(column, "\n"), False)
        if line_ends is None:
            line_ends = in_column
        else:
            line_ends = pc.or_(line_ends, in_column)
    return line_ends


def _unreadable(part: Path, why: object) -> UserError:
    return UserError(f"{part} is not a readable table: {why}", code="not_a_table")


def ends_within_a_line(part: Path) -> bool:
    """Return whether the last line of a text file has no end.

    Never of a compressed one, whose end is known to be there.
    """
    if kind_of(part) != part.suffix.lower() or not is_text_file(part):
        return False
    with part.open("rb") as file:
        file.seek(-min(2, part.stat().st_size), io.SEEK_END)
        return not file.read().rstrip(b"\0").endswith((b"\n", b"\r"))


def _counted(part: Path) -> tuple[int, int]:
    """Count the quotation marks and ends of lines of a text file, a block of it at a time."""
    import pyarrow as pa

    quotes = lines = 0
    with pa.input_stream(str(part), compression="detect") as stream:
        while block := stream.read(1 << 22):
            quotes = quotes + block.count(b'"')
            lines = lines + block.count(b"\n")
    return quotes, lines


def typed_table(part: Path) -> Any:
    """All columns of a text file as a pyarrow Table, their types by what they hold.

    Raises:
        UserError: it is no table.
    """
    import pyarrow as pa
    import pyarrow.csv as pacsv

    form = TextForm.of(part)
    try:
        return pacsv.read_csv(part, parse_options=pacsv.ParseOptions(delimiter=form.delimiter))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(part, str(error).splitlines()[0]) from None


def rows_in_text(part: Path) -> int:
    """Count the rows of a text file; all of it is read.

    Raises:
        UserError: it is no table.
    """
    form = TextForm.of(part)
    return sum(len(block) for block in TextPart(part, form).blocks({form.names[0]: "text"}))
