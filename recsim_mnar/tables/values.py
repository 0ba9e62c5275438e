"""Parse the values of a column: numbers, ids and times in their usual notations, and the faults among them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.tables.files import is_text

MISSING_WORDS = (
    *("", "-", "na", "NA", "n/a", "N/A", "N/a", "#N/A", "nan", "NaN", "NAN", "Nan"),
    *("null", "NULL", "Null", "none", "None", "NONE", "NaT", r"\N", "<NA>", "(null)"),
)
"""Texts that stand for a missing value."""
YES_WORDS, NO_WORDS = ("true", "yes", "y"), ("false", "no", "n")
"""Words for 1 and for 0 in a column of numbers, in any case."""
GROUPS = {".": ",", ",": "."}
"""Mark between groups of three digits, by decimal mark."""

_SPECIAL = r"^[-+]?(?i:inf|infinity)$"
"""Pattern of an infinite number."""
_END = r"([eE][-+]?[0-9]+)?(\s*%)?$"
"""Pattern of the end of a number: an exponent and a percent sign, if any."""
_OPEN = {mark: rf"^[-+]?[1-9][0-9]{{0,2}}[{mark}][0-9]{{3}}(\s*%)?$" for mark in GROUPS}
"""Patterns of ambiguous numbers such as 1,250, by mark."""
_MARKED = {mark: rf"^[-+]?([0-9]+[{mark}][0-9]*|[{mark}][0-9]+){_END}" for mark in GROUPS}
"""Patterns of numbers with a decimal mark and no groups, by mark."""
_GROUPED = {
    mark: rf"^[-+]?[1-9][0-9]{{0,2}}([{group}][0-9]{{3}})+([{mark}][0-9]*)?{_END}" for mark, group in GROUPS.items()
}
"""Patterns of numbers with groups of three digits, by decimal mark."""
_BOTH_WAYS = (
    "holds numbers such as {}, which may be {} or {}: state the file's decimal mark, --decimal . or --decimal ,"
)
_LOOKED_AT = 1000
"""Number of first values of each column in which the decimal mark of a file is looked for."""


@dataclass(frozen=True)
class Marks:
    """Evidence in the numbers of a column for its decimal mark.

    Attributes:
        sure: by mark, count of numbers that can only be read with this decimal mark, as 0,5 and 1.250,00.
        open: by mark, count of numbers that have it once, before three last digits, as 1,250.
        whole: count of numbers below 1,000 without any mark.
    """

    sure: Mapping[str, int]
    open: Mapping[str, int]
    whole: int

    @staticmethod
    def of(texts: Any) -> Marks:
        """Count the numbers in a pyarrow array of texts without spaces around them."""
        import pyarrow.compute as pc

        def count(pattern: str) -> int:
            return pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0

        open_numbers = {mark: count(pattern) for mark, pattern in _OPEN.items()}
        n_open = sum(open_numbers.values())
        # An open number matches both patterns: with its mark as the decimal mark, and in groups of the other one.
        sure = {mark: count(_MARKED[mark]) + count(_GROUPED[mark]) - n_open for mark in GROUPS}
        return Marks(sure, open_numbers, count(r"^[-+]?[0-9]{1,3}(\s*%)?$"))

    def decimal(self, of_file: Decimal) -> str | None:
        """Choose the decimal mark of the column from its numbers and the file's mark; None if both are possible."""
        if of_file.stated:
            return of_file.mark
        if self.sure["."] != self.sure[","]:
            return max(GROUPS, key=lambda mark: self.sure[mark])
        if not any(self.open.values()):
            return of_file.mark
        if all(self.open.values()):
            return None
        mark = max(GROUPS, key=lambda mark: self.open[mark])
        # A column with three decimals has them in every row, so a 7 next to 1,250 suggests groups.
        if of_file.known and (mark != of_file.mark or not self.whole):
            return of_file.mark
        return None


@dataclass(frozen=True)
class Decimal:
    """The decimal mark of a file.

    Attributes:
        mark: "," or ".".
        known: whether numbers of the file confirm it; otherwise it is a guess.
        stated: whether the user states it.
        unclear: columns with ambiguous numbers in the first rows.
    """

    mark: str = "."
    known: bool = False
    stated: bool = False
    unclear: frozenset[str] = frozenset()

    @staticmethod
    def of(columns: Mapping[str, Sequence[str]], delimiter: str, stated: str | None = None) -> Decimal:
        """Detect the decimal mark from the first rows of a text file, by column.

        Raises:
            UserError: the ``stated`` mark is neither "." nor ",".
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if stated is not None:
            if stated not in GROUPS:
                raise UserError(f"--decimal {stated}: give . or ,")
            return Decimal(stated, known=True, stated=True)
        first = {name: pa.array(texts[:_LOOKED_AT], pa.string()) for name, texts in columns.items()}
        marks = {name: Marks.of(pc.utf8_trim_whitespace(texts)) for name, texts in first.items()}
        points = sum(column.sure["."] for column in marks.values())
        commas = sum(column.sure[","] for column in marks.values())
        unclear = frozenset(name for name, column in marks.items() if any(column.open.values()))
        # A file with commas between its fields has decimal points, unless a quoted field holds a comma.
        usual = delimiter == "," and not any(column.open[","] for column in marks.values())
        return Decimal("," if commas > points else ".", points != commas or usual, unclear=unclear)


POINT = Decimal()
"""The default: a point, not confirmed by any number."""


def _is_missing(text: Any) -> Any:
    """Return which texts (n,) stand for a missing value, as a pyarrow array."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(text, pa.array([*MISSING_WORDS, None], text.type))


def text_numbers(
    column: Any, decimal: Decimal = POINT, name: str = ""
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Parse numbers written as text.

    Args:
        column: (n,) array of a pyarrow string type.
        decimal: decimal mark of the file; the column's numbers may prove that it uses the other mark.
        name: column and file for the error; if empty, ambiguous numbers are read with the file's mark.

    Returns:
        values: (n,) numbers, NaN for texts that are missing or are not numbers.
        missing: (n,) which texts stand for a missing value.
        bad: (n,) which texts are not numbers.

    Raises:
        UserError: the numbers are ambiguous.
    """
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column)
    missing = _is_missing(text)
    mark = Marks.of(text).decimal(decimal)
    if mark is None and name:
        raise UserError(f"{name} {_both_readings(text)}", code="unclear_numbers")
    mark = mark or decimal.mark
    text = _without_group_marks(_yes_and_no_as_digits(text), mark)
    plain = pc.match_substring_regex(text, rf"^[-+]?([0-9]+[{mark}]?[0-9]*|[{mark}][0-9]+){_END}")
    is_number = pc.fill_null(pc.or_(plain, pc.match_substring_regex(text, _SPECIAL)), False)
    is_number = pc.and_(is_number, pc.invert(missing))  # no missing word is a number, but null is neither
    absent = as_array(missing).astype(np.bool_)
    bad = ~as_array(is_number).astype(np.bool_) & ~absent
    return _parsed(text, is_number), absent, bad


def _yes_and_no_as_digits(text: Any) -> Any:
    """Replace words for yes and no in a pyarrow array of texts by 1 and 0."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lower = pc.utf8_lower(text)
    for words, digit in ((YES_WORDS, "1"), (NO_WORDS, "0")):
        text = pc.if_else(pc.is_in(lower, pa.array(words, text.type)), digit, text)
    return text


def _without_group_marks(text: Any, mark: str) -> Any:
    """Remove the marks between groups of three digits from a pyarrow array of texts with this decimal mark."""
    import pyarrow.compute as pc

    grouped = pc.match_substring_regex(text, _GROUPED[mark])
    return pc.if_else(grouped, pc.replace_substring(text, GROUPS[mark], ""), text)


def _parsed(text: Any, is_number: Any) -> NDArray[np.float64]:
    """Convert a pyarrow array of texts (n,) without group marks to numbers; NaN where ``is_number`` is false."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_ltrim(pc.replace_substring(text, ",", "."), "+")  # pyarrow parses neither a comma nor a plus
    percent = pc.fill_null(pc.ends_with(text, "%"), False)
    values = pc.if_else(is_number, pc.utf8_rtrim(text, "% "), pa.scalar(None, text.type)).cast(pa.float64())
    values = pc.if_else(percent, pc.divide(values, 100.0), values)
    return as_array(values).astype(np.float64, copy=False)


def _both_readings(text: Any) -> str:
    """Format the first ambiguous number of a column with both readings."""
    import pyarrow.compute as pc

    is_open = pc.or_(*(pc.match_substring_regex(text, pattern) for pattern in _OPEN.values()))
    first = text.filter(is_open)[0].as_py()
    return _BOTH_WAYS.format(first, first.replace(",", "."), first.replace(",", "").replace(".", ""))


def as_array(column: Any) -> NDArray[Any]:
    """Convert a pyarrow array, chunked or not, to NumPy; null becomes NaN."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class Ids:
    """A column of ids, numbered.

    Attributes:
        codes: (n,) 0 .. number - 1; -1 if the id is missing.
        ids: (number,) the file's ids, ascending: integers if all are written as such, otherwise text.
    """

    codes: NDArray[np.int64]
    ids: NDArray[Any]

    @property
    def number(self) -> int:
        """Number of different ids."""
        return len(self.ids)

    def by_row(self) -> NDArray[Any]:
        """Return the id of each row (n,) as text, "" if it is missing."""
        texts = np.array([*map(str, self.ids), ""], object)
        return texts[self.codes]

    def codes_in(self, other: Ids) -> NDArray[np.int64]:
        """Return for each row (n,) the code of its id in another column, -1 if that has no such id."""
        import pandas as pd

        ours = self.ids
        theirs = other.ids
        if ours.dtype != theirs.dtype:
            ours = ours.astype(str)
            theirs = theirs.astype(str)
        code_there = np.append(pd.Index(theirs).get_indexer(ours), -1)  # the last one serves missing ids, of code -1
        return code_there[self.codes]

    def folded(self) -> Ids:
        """Return the ids as case-folded text, so that spellings in other capitals are one id."""
        words = np.array([str(text).casefold() for text in self.ids], object)
        folded, place = np.unique(words, return_inverse=True)
        return Ids(np.append(place.reshape(-1), -1)[self.codes], folded)

    def used(self) -> Ids:
        """Drop ids that no row has and renumber the others; none may be missing."""
        used_codes, codes = np.unique(self.codes, return_inverse=True)
        return Ids(codes.reshape(-1), self.ids[used_codes])


def numbered(column: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Number the ids of a pyarrow column.

    Returns:
        codes: (n,) numbers 0 .. k - 1 of the ids, -1 for null.
        ids: (k,) different ids, ascending; integers if all are written as integers, otherwise text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = as_dictionary(column)
    ids = encoded.dictionary
    place = None
    if is_text(ids.type):
        bare = pc.replace_substring_regex(pc.utf8_trim_whitespace(ids), r"^(0|-?[1-9][0-9]{0,17})\.0$", r"\1")
        again = bare.dictionary_encode()  # "a" and "a " are one id, and so are 7 and what pandas makes of it, 7.0
        place = again.indices
        ids = pc.if_else(pc.equal(again.dictionary, ""), pa.scalar(None, ids.type), again.dictionary)
        # Written as integers without signs, spaces or leading zeros, so that nothing of an id is lost.
        integral = pc.match_substring_regex(ids, r"^(0|-?[1-9][0-9]{0,17})$")
        if len(ids) and pc.all(integral, min_count=0).as_py():
            ids = ids.cast(pa.int64())
    elif not (pa.types.is_integer(ids.type) or pa.types.is_floating(ids.type)):
        ids = ids.cast(pa.string())
    order = pc.sort_indices(ids).to_numpy()  # null last
    order = order[: len(ids) - ids.null_count]
    rank = np.full(len(ids) + 1, -1, np.int64)  # the last entry stays -1: null, of code -1, finds it
    rank[order] = np.arange(len(order))
    if place is not None:
        rank = np.append(rank[place.fill_null(len(ids)).to_numpy()], -1)
    codes = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy()
    return rank[codes], ids.take(pa.array(order)).to_numpy(zero_copy_only=False)


def spelled_alike(ids: NDArray[Any]) -> list[list[str]]:
    """Group text ids that differ only in capitals, such as DE and de."""
    if ids.dtype.kind != "O":
        return []
    groups: dict[str, list[str]] = {}
    for text in map(str, ids):
        groups.setdefault(text.casefold(), []).append(text)
    return [group for group in groups.values() if len(group) > 1]


def padded(ids: NDArray[Any]) -> dict[str, str]:
    """Map each text id of digits with leading zeros to the same digits without them: 007 to 7."""
    texts = ids if ids.dtype.kind == "O" else ()
    return {text: text.lstrip("0") or "0" for text in texts if text[:1] == "0" and len(text) > 1 and text.isdigit()}


def as_dictionary(column: Any) -> Any:
    """Encode a column as one pyarrow dictionary array."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        return column
    return column.dictionary_encode()


UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
"""Number of each unit in a second."""
_FIRST, _LAST = 631_152_000.0, 4_102_444_800.0
"""The years 1990 to 2099, in seconds since 1970: other numbers are no dates."""
_FEW = 0.01
"""Largest share of rows that may be in another unit without an error."""
_AT_THE_ENDS = 0.005
"""Share of the rows at either end among which dates far from the others are looked for."""
_SLASHED = r"^\s*(\d{1,2})/(\d{1,2})/(\d{4})"
_DAY = re.compile(r"^\s*(\d{1,2})[./](\d{1,2})[./](\d{4})")
_DOTTED = r"^\s*\d{1,2}\.\d{1,2}\.\d{4}"
_ZONE = r"\s*(UTC|GMT)$"


def in_seconds(times: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Convert times (n,) in seconds, milliseconds, ... since 1970, or as 20240531, to seconds since 1970.

    Other numbers, such as step numbers, are returned as they are.

    Raises:
        UserError: the times are in several units.
    """
    present = times[np.isfinite(times)]
    counts = {}
    for unit, size in UNITS.items():
        is_date = (present >= _FIRST * size) & (present < _LAST * size)
        counts[unit] = int(is_date.sum())
    units = [unit for unit, count in counts.items() if count > _FEW * present.size]
    if len(units) > 1:
        shares = " and ".join(f"{counts[unit]:,} rows in {unit}" for unit in units)
        raise UserError(f"{name} mixes units of time: {shares}; write it in one unit", code="mixed_units")
    if units:
        return times / UNITS[units[0]]
    return _of_days(times, present)


def _of_days(times: NDArray[np.float64], present: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert times as 20240531 to seconds since 1970, if all ``present`` ones are such numbers."""
    import pandas as pd

    if not present.size or present.min() < 19_900_101 or present.max() > 20_991_231:
        return times
    if np.any(present != np.floor(present)):
        return times
    days, codes = np.unique(present.astype(np.int64), return_inverse=True)
    dates = pd.to_datetime(pd.Series(days.astype(str)), format="%Y%m%d", errors="coerce", utc=True)
    if dates.isna().any():
        return times
    seconds = times.copy()
    seconds[np.isfinite(times)] = _seconds(dates)[codes]
    return seconds


def far_from_the_others(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which dates (n,) are further from the bulk of all dates than the bulk spans, such as one in a wrong year.

    The bulk is between the quantiles :data:`_AT_THE_ENDS` and 1 - :data:`_AT_THE_ENDS`.
    """
    present = times[np.isfinite(times)]
    if not present.size:
        return np.zeros(times.size, np.bool_)
    low, high = np.quantile(present, [_AT_THE_ENDS, 1.0 - _AT_THE_ENDS])
    span = high - low
    return (times < low - span) | (times > high + span)


def text_times(column: Any, decimal: Decimal) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], str]:
    """Parse times written as text.

    Numbers are returned as they are, in the file's unit, and dates in seconds since 1970.

    Returns:
        values: (n,) times, NaN if a text is missing or bad.
        missing: (n,) which texts stand for a missing value.
        bad: (n,) which texts are not times.
        phrase: phrase for messages that says why these are bad; empty without any text.
    """
    import pandas as pd
    import pyarrow as pa

    n = len(column)
    if pa.types.is_null(column.type):
        return np.full(n, np.nan), np.ones(n, np.bool_), np.zeros(n, np.bool_), ""
    absent = as_array(_is_missing(column)).astype(np.bool_)
    numbers, _, no_number = text_numbers(column, decimal)
    if 2 * no_number.sum() <= n - absent.sum():  # at least half of the texts are numbers, so the column is one of them
        return numbers, absent, no_number, "is neither a number nor a date"
    codes, ids = numbered(column)
    words = pd.Series(ids.astype(object), dtype="str").str.replace(_ZONE, "", regex=True)
    dates = pd.to_datetime(words, errors="coerce", utc=True, format="ISO8601")
    if dates.isna().all():
        dates = _other_dates(words)
    values = np.append(_seconds(dates), np.nan)[codes]
    return values, absent, np.isnan(values) & ~absent, "is not a date"


def _seconds(dates: Any) -> NDArray[np.float64]:
    """Convert a pandas Series (n,) of dates to seconds since 1970."""
    import pandas as pd

    seconds: NDArray[np.float64] = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    return seconds


def _other_dates(words: Any) -> Any:
    """Parse dates such as 31.5.2024 and 5/31/2024; NaT for all if the rows do not show which number is the day.

    With dots the day comes first. With slashes the number that exceeds 12 in some row is the day.
    """
    import pandas as pd

    slashed = words.str.extract(_SLASHED).dropna().astype(int)
    if len(slashed) > len(words) / 2:
        first_is_day, second_is_day = (slashed[[0, 1]] > 12).any()
        is_clear = first_is_day != second_is_day
    else:
        first_is_day = is_clear = words.str.match(_DOTTED, na=False).any()
    if not is_clear:
        return pd.Series(pd.NaT, index=words.index).dt.tz_localize("UTC")
    day, month = (1, 2) if first_is_day else (2, 1)
    written = words.str.replace(_DAY, lambda match: f"{match[3]}-{match[month]:0>2}-{match[day]:0>2}", regex=True)
    dates = pd.to_datetime(written, errors="coerce", utc=True, format="ISO8601")  # 100 times faster than "mixed"
    missing = dates.isna()
    if missing.any():
        texts = words[missing]
        dates[missing] = pd.to_datetime(texts, errors="coerce", utc=True, dayfirst=bool(first_is_day), format="mixed")
    return dates


MISSING = "missing"
"""Code of values that are not there; rows that have such faults alone may be dropped."""
INVALID = ("not_a_number", "not_finite", "outside", "not_a_date")
"""Codes of values that cannot be what their column holds; rows that have these may be dropped, if they are few."""
SHOWN = 3
"""Number of rows that a message about a fault shows."""


@dataclass(frozen=True)
class Fault:
    """A kind of fault in the rows of a column.

    Attributes:
        code: stable name for programs: missing, not_a_number, not_finite, outside, not_a_date, ...
        column: name of the column; "" for faults of whole rows.
        what: phrase that follows the column, for instance "is outside (0, 1]".
        count: number of rows.
        rows: numbers of the first rows, from 1 below the header.
        values: their values as text; empty if there are none to show.
        advice: what to do; empty if that is clear.
    """

    code: str
    column: str
    what: str
    count: int
    rows: tuple[int, ...]
    values: tuple[str, ...] = ()
    advice: str = ""

    @property
    def message(self) -> str:
        """The fault with its first rows, without the advice."""
        places = []
        for row, value in itertools.zip_longest(self.rows, self.values):
            places.append(f"{row}: {value}" if value else f"{row}")
        if self.count > len(self.rows):
            places.append("...")
        rows = ", ".join(places)
        head = self.what
        if self.column:
            head = f"column {self.column!r} {self.what}"
        if self.count > 1:
            return f"{head} in {self.count:,} rows ({rows})"
        return f"{head} in row {rows}"

    def __str__(self) -> str:
        if self.advice:
            return f"{self.message}: {self.advice}"
        return self.message


@dataclass
class Faults:
    """All faults of a file.

    Attributes:
        source: name of the file in messages.
        faults: the faults in the order in which they were found.
    """

    source: str
    faults: list[Fault] = field(default_factory=list)

    def add(
        self,
        code: str,
        column: str,
        bad: NDArray[np.bool_],
        what: str,
        *,
        values: Any = None,
        advice: str = "",
        numbers: NDArray[np.int64] | None = None,
    ) -> None:
        """Record bad rows, if there are any; a fault of an earlier block is extended.

        Args:
            code: stable name of the kind of fault.
            column: name of the column.
            bad: (n,) which rows are bad.
            what: phrase that follows the column, for instance "is not a number".
            values: (n,) values of the rows, an array or a pyarrow column; None to show none.
            advice: advice to the user; empty if that is clear.
            numbers: (n,) row numbers in the file from 1; None for 1 .. n.
        """
        count = int(np.count_nonzero(bad))
        if count == 0:
            return
        first = np.flatnonzero(bad)[:SHOWN]
        rows = tuple((first + 1 if numbers is None else numbers[first]).tolist())
        texts: tuple[str, ...] = ()
        if values is not None:
            texts = tuple(shown_value(values[int(row)]) for row in first)
        for place, fault in enumerate(self.faults):
            if (fault.code, fault.column, fault.what) == (code, column, what):
                rows = (*fault.rows, *rows)[:SHOWN]
                texts = (*fault.values, *texts)[:SHOWN]
                self.faults[place] = replace(fault, count=fault.count + count, rows=rows, values=texts)
                return
        self.faults.append(Fault(code, column, what, count, rows, texts, advice))

    def forgive(self, codes: Iterable[str]) -> list[Fault]:
        """Remove the faults of these codes, and return them."""
        codes = set(codes)
        forgiven = [fault for fault in self.faults if fault.code in codes]
        self.faults = [fault for fault in self.faults if fault.code not in codes]
        return forgiven

    def refuse(self, missing: str = "", invalid: str = "") -> None:
        """Raise UserError if there is a fault.

        Args:
            missing: advice for missing values, given once at the end if there are any.
            invalid: advice for values that cannot be read, given once before it; empty without advice.

        Raises:
            UserError: one line with every fault.
        """
        if not self.faults:
            return
        is_missing = [fault.code == MISSING for fault in self.faults]
        message = f"{self.source}: "
        if len(self.faults) > 1:
            message += f"{len(self.faults)} faults: "
        message += "; ".join(map(str, self.faults))
        if invalid:
            message += f"; {invalid}"
        if missing and any(is_missing):
            message += f"; {missing}"
        raise UserError(message, code="missing_values" if all(is_missing) else "invalid_values")


def in_rows(number: int) -> str:
    """Format ``1 row``, ``2 rows``."""
    return f"{number:,} row{'s' * (number != 1)}"


def listed(words: Iterable[object], most: int) -> str:
    """Join the first ``most`` words: ``1, 2, 3, ...``."""
    texts = [str(word) for word in itertools.islice(words, most + 1)]
    if len(texts) > most:
        texts[most] = "..."
    return ", ".join(texts)


def shown_value(value: Any) -> str:
    """Format a value of an array or of pyarrow in at most 30 characters; "" for null."""
    if hasattr(value, "as_py"):
        value = value.as_py()
    if value is None:
        return ""
    text = str(value)
    if isinstance(value, (float, np.floating)):
        text = f"{value:g}"
    if len(text) <= 30:
        return text
    return text[:27] + "..."
