"""Detect the format of a text table (separator, decimal mark, encoding) and read its columns block by block."""

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
from recsim_mnar.tables.values import MISSING_WORDS, Decimal, listed

SEPARATORS = "\t,;|"
"""Separators between the fields of a text file, the likeliest first."""
_VALUE = re.compile(r"[0-9]+[.:/-][0-9]")
"""Beginning of a decimal number, a time or a date, but not of a column's name, which may be 12."""
_BLOCK_BYTES = 1 << 24
"""Number of bytes that are parsed at a time; no row may be longer."""
_LOOK = 1 << 18
"""Number of first bytes from which the format is detected."""
_KINDS = {
    b"\x1f\x8b": "gzip: let its name end in .csv.gz",
    b"BZh": "bzip2: let its name end in .csv.bz2",
    b"\x28\xb5\x2f\xfd": "zstd: let its name end in .csv.zst",
    b"PAR1": "Parquet: let its name end in .parquet",
    b"ARROW1": "Arrow: let its name end in .arrow",
    b"PK\x03\x04": "a zip archive (or a spreadsheet): write it as .csv",
}
"""First bytes of files that are not text, and what they are."""
_LONG = f"a row is longer than {_BLOCK_BYTES >> 20} MB; shorten it, or close a quote that is open"


@dataclass(frozen=True)
class TextForm:
    """Format of a text file.

    Attributes:
        names: the columns, in order.
        delimiter: separator between fields.
        decimal: the decimal mark.
        encoding: name of a Python codec.
        skip: number of lines before the first row: empty ones and the header.
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
            UserError: the file cannot be read, is empty, or is not text.
        """
        encoding, lines = _begin(part)
        skip = next((i for i, line in enumerate(lines) if line.strip()), None)  # empty lines above the header
        if skip is None:
            raise UserError(f"{part} is empty: give a table with a header and at least one row", code="empty")
        if "::" in lines[skip]:
            raise UserError(f"{part}: '::' stands between the fields: write commas, and names in the first line")
        delimiter = _delimiter(part, lines[skip:])
        header = next(_fields(part, lines[skip:], delimiter))
        if len(lines) == skip + 1 and ends_within_a_line(part):  # a reader of such a file may never end
            raise UserError(f"{part} holds one line and no row: give a table with a header and rows", code="empty")
        form = TextForm([name.strip() for name in header], delimiter, Decimal(), encoding, skip + 1)
        return replace(form, decimal=Decimal.of(form.head(part), delimiter, decimal))

    def head(self, part: Path) -> dict[str, list[Any]]:
        """Read the first rows as text: by column a list of values."""
        state = part.stat()
        columns = _first_columns(part, state.st_mtime_ns, state.st_size, self.skip, self.delimiter, len(self.names))
        return dict(zip(self.names, columns, strict=True))

    def how_written(self) -> list[str]:
        """Describe what is unusual: a separator, decimal mark or encoding other than comma, point and UTF-8."""
        remarks = []
        sign = {"\t": "tabs", ";": "semicolons", "|": "bars"}.get(self.delimiter)
        if sign:
            remarks.append(f"separated by {sign}")
        if any(map(_VALUE.match, self.names)):
            remarks.append("the first line may hold values")
        if self.decimal.mark == ",":
            remarks.append("decimal commas")
        if self.encoding != "utf-8":
            remarks.append(f"encoding {self.encoding}")
        return remarks


@functools.lru_cache(maxsize=2)  # one command reads them several times
def _first_columns(part: Path, changed: int, size: int, skip: int, delimiter: str, width: int) -> list[list[str]]:
    """Read the columns of a file's first complete rows; ``changed`` and ``size`` identify its state for the cache."""
    rows = _fields(part, _begin(part)[1][skip:], delimiter)
    full_rows = [row for row in rows if len(row) == width]
    return [[row[place].strip() for row in full_rows] for place in range(width)]


def _begin(part: Path) -> tuple[str, list[str]]:
    """Return the encoding and the first lines of a text file, decompressed.

    Raises:
        UserError: the file cannot be read, or is of another kind than its name says.
    """
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
    if len(begin) == _LOOK and len(lines) > 1:
        del lines[-1]  # it may be cut off
    return encoding, lines


def _decoded(begin: bytes) -> tuple[str, str]:
    """Return the encoding, and the text without its byte-order mark.

    The incremental decoders tolerate a character that is cut off at the end.
    """
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16", codecs.getincrementaldecoder("utf-16")(errors="replace").decode(begin)
    try:
        return "utf-8", codecs.getincrementaldecoder("utf-8-sig")().decode(begin)
    except UnicodeDecodeError:
        return "cp1252", begin.decode("cp1252", errors="replace")


def _fields(part: Path, lines: Sequence[str], delimiter: str) -> Iterator[list[str]]:
    """Yield the fields of each line.

    Raises:
        UserError: a field is longer than those of tables are.
    """
    try:
        yield from csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter)
    except csv.Error as error:
        raise _unreadable(part, error) from None


def _delimiter(part: Path, lines: Sequence[str]) -> str:
    """Find the separator that gives the header several fields, and most of the next lines as many."""
    best = ","
    best_fit = (0, 0)  # number of lines as wide as the header, and its width; equal fits keep the likelier separator
    for sign in SEPARATORS:
        rows = list(_fields(part, lines[:50], sign))
        fields = len(rows[0]) if rows else 0
        if fields > 1:
            fit = (sum(len(row) == fields for row in rows), fields)
            if fit > best_fit:
                best = sign
                best_fit = fit
    return best


class TextPart:
    """A text file that is read block by block; the way that worked is kept for the next pass.

    A way is a choice of column types and encoding. The fastest is tried first; if a block does not fit, the next way
    starts again from the first row.

    Args:
        path: path of the file.
        form: its format.

    Attributes:
        _way: index of the way in use.
    """

    def __init__(self, path: Path, form: TextForm) -> None:
        self.path = path
        self.form = form
        self._way = 0

    def blocks(self, kinds: Mapping[str, str]) -> Iterator[Any]:
        """Yield pyarrow tables: columns of numbers as such if all values are, ids as dictionaries, others as text.

        Args:
            kinds: by column how its values are used: "number", "id", "time" or "text".

        Raises:
            UserError: the file is no table, or a row has another number of fields.
            AgainError: a later row shows that rows already yielded must be read in another way.
        """
        import pyarrow as pa

        ways = self._ways(kinds)
        last_way = len(ways) - 1  # the only one that finds out which rows are ragged
        n_rows = 0
        while True:
            ragged: list[tuple[int, int]] = []
            try:
                types, encoding = ways[self._way]
                collect = ragged if self._way == last_way else None
                for block in self._parsed(types, encoding, list(kinds), collect):
                    n_rows += len(block)
                    yield block
                self._refuse_open_quote(n_rows)
                self._refuse_ragged(ragged)
                return
            except (pa.ArrowException, OSError, UnicodeError) as error:
                reason = str(error).splitlines()[0]
                if self._way == last_way:
                    raise _unreadable(self.path, _LONG if "straddling" in str(error) else reason) from None
                # A wrong number of fields is one in every way but the last.
                self._way = last_way if "CSV parse error" in reason else self._way + 1
            if n_rows:  # rows are already with the caller
                raise AgainError

    def _ways(self, kinds: Mapping[str, str]) -> list[tuple[Mapping[str, Any], str]]:
        """List column types and encodings to try, the likeliest first; the last one allows line breaks in quotes."""
        import pyarrow as pa

        decimal = self.form.decimal
        # Numbers whose mark is uncertain are read as text, and parsed by the evidence in their own column.
        in_doubt = not decimal.known or decimal.mark == self.form.delimiter
        typed = {}
        as_text = {}
        for name, kind in kinds.items():
            as_text[name] = pa.string()
            if kind == "id":
                as_text[name] = pa.dictionary(pa.int32(), pa.string())
            if kind != "time":  # pyarrow infers the type of times
                typed[name] = as_text[name]
            if kind == "number" and not (in_doubt or (name in decimal.unclear and not decimal.stated)):
                typed[name] = pa.float64()
        encodings = [self.form.encoding]
        if self.form.encoding == "utf-8":
            encodings.append("cp1252")
        return [(typed, encodings[0]), *((as_text, encoding) for encoding in encodings), (as_text, encodings[0])]

    def _parsed(
        self,
        types: Mapping[str, Any],
        encoding: str,
        names: list[str],
        ragged: list[tuple[int, int]] | None,
    ) -> Iterator[Any]:
        """Yield pyarrow tables of the named columns.

        Args:
            types: pyarrow type by column; others are inferred.
            encoding: name of the encoding.
            names: columns to read.
            ragged: list to which rows with another number of fields than the header are added, as number and width;
                None to raise pyarrow's error for them, which is faster.
        """
        import pyarrow as pa
        import pyarrow.csv as pacsv

        form = self.form
        parse_options = pacsv.ParseOptions(delimiter=form.delimiter)
        if ragged is not None:

            def skip(row: Any) -> str:
                """Record a row of another width, and tell pyarrow to go on without it."""
                ragged.append((row.number, row.actual_columns))
                return "skip"

            parse_options.newlines_in_values = True
            parse_options.invalid_row_handler = skip
        reader = pacsv.open_csv(
            self.path,
            read_options=pacsv.ReadOptions(
                column_names=form.names,
                skip_rows=form.skip,
                block_size=_BLOCK_BYTES,
                use_threads=ragged is None,
                encoding="utf8" if encoding == "utf-8" else encoding,
            ),
            parse_options=parse_options,
            convert_options=pacsv.ConvertOptions(
                include_columns=names,
                column_types=dict(types),
                strings_can_be_null=True,
                null_values=list(MISSING_WORDS),
                # With commas between the fields, numbers with decimal commas are read as text.
                decimal_point="." if form.delimiter == "," else form.decimal.mark,
            ),
        )
        with reader:
            for batch in reader:
                yield pa.Table.from_batches([batch])

    @functools.cached_property
    def _quotes_and_lines(self) -> tuple[int, int]:
        """Numbers of quotation marks and of line ends in the file."""
        import pyarrow as pa

        quotes = lines = 0
        with pa.input_stream(str(self.path), compression="detect") as stream:
            while block := stream.read(1 << 22):
                quotes += block.count(b'"')
                lines += block.count(b"\n")
        return quotes, lines

    def _refuse_ragged(self, ragged: list[tuple[int, int]]) -> None:
        """Raise UserError if rows have another number of fields than the header."""
        if not ragged:
            return
        fields = len(self.form.names)
        lines = listed((f"{number - self.form.skip}: {count}" for number, count in ragged), 3)
        hint = (
            "write one value per column, with values that hold the separator, such as decimal commas, in quotation "
            "marks, and nothing above the header"
        )
        if len(ragged) == 1 and ends_within_a_line(self.path):
            hint = "its last line has no end, so the file may be cut there"
        rows = "row has" if len(ragged) == 1 else "rows have"
        raise _unreadable(self.path, f"{len(ragged):,} {rows} not the header's {fields} fields (row {lines}); {hint}")

    def _refuse_open_quote(self, n_rows: int) -> None:
        """Raise UserError for a quoted value that contains lines like rows, or the end of the file.

        Args:
            n_rows: number of rows that were read.
        """
        import pyarrow as pa

        quotes, ends = self._quotes_and_lines
        # As many rows as lines: no value holds a line end.
        if quotes == 0 or n_rows >= ends - self.form.skip:
            return
        form = self.form
        opened = 0  # line in which a value begins that goes on in the next line
        with pa.input_stream(str(self.path), compression="detect") as stream:
            for number, line in enumerate(io.TextIOWrapper(stream, form.encoding, "replace"), 1):
                looks_like_row = 1 < len(form.names) <= line.partition('"')[0].count(form.delimiter) + 1
                if opened and looks_like_row:
                    break
                if line.count('"') % 2:
                    opened = 0 if opened else number
        if opened:
            raise _unreadable(
                self.path, f"a quoted value goes on below line {opened:,}: a quotation mark may be open there"
            )


def _unreadable(part: Path, why: object) -> UserError:
    """Create the error for a file that cannot be read as a table."""
    return UserError(f"{part} is not a readable table: {why}", code="not_a_table")


def ends_within_a_line(part: Path) -> bool:
    """Return whether the last line of a text file is unterminated; never of a compressed file."""
    if kind_of(part) != part.suffix.lower() or not is_text_file(part):
        return False
    with part.open("rb") as file:
        file.seek(-min(2, part.stat().st_size), io.SEEK_END)  # a line end in UTF-16 has two bytes, one of them 0
        return not file.read().rstrip(b"\0").endswith((b"\n", b"\r"))


def typed_table(part: Path) -> Any:
    """Read all columns of a text file as a pyarrow Table, with types inferred from their values.

    Raises:
        UserError: the file is no table.
    """
    import pyarrow as pa
    import pyarrow.csv as pacsv

    form = TextForm.of(part)
    try:
        return pacsv.read_csv(part, parse_options=pacsv.ParseOptions(delimiter=form.delimiter))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unreadable(part, str(error).splitlines()[0]) from None


def rows_in_text(part: Path) -> int:
    """Count the rows of a text file by reading all of it.

    Raises:
        UserError: the file is no table.
    """
    form = TextForm.of(part)
    return sum(len(block) for block in TextPart(part, form).blocks({form.names[0]: "text"}))
