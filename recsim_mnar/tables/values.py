"""Values of a column as people write them: numbers, ids and times; and what is wrong with them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.tables.files import is_text

MISSING_WORDS = (
    *("", "-", "na", "NA", "n/a", "N/A", "N/a", "#N/A", "nan", "NaN", "NAN", "Nan"),
    *("null", "NULL", "Null", "none", "None", "NONE", "NaT"),
)
"""What stands for a missing value in a text file."""
YES_WORDS, NO_WORDS = ("true", "yes", "y", "ja", "oui", "si", "sí"), ("false", "no", "n", "nein", "non")
"""What stands for 1 and for 0 where numbers are wanted, in any case."""
GROUPS = {".": ",", ",": "."}
"""By decimal mark, the mark between groups of three digits."""

_MONEY = r"^([-+]?)\s*[$€£¥]\s*|\s*[$€£¥]$"
"""A currency sign before or behind a number says nothing about its size."""
_SPECIAL = r"^[-+]?(?i:inf|infinity)$"
_END = r"([eE][-+]?[0-9]+)?(\s*%)?$"
_OPEN = {mark: rf"^[-+]?[1-9][0-9]{{0,2}}[{mark}][0-9]{{3}}(\s*%)?$" for mark in GROUPS}
"""Numbers such as 1,250, whose mark may be either."""
_MARKED = {mark: rf"^[-+]?([0-9]+[{mark}][0-9]*|[{mark}][0-9]+){_END}" for mark in GROUPS}
_GROUPED = {
    mark: rf"^[-+]?[1-9][0-9]{{0,2}}([{group}][0-9]{{3}})+([{mark}][0-9]*)?{_END}" for mark, group in GROUPS.items()
}
_BOTH_WAYS = (
    "holds numbers such as {}, which may be {} or {}: state the file's decimal mark, --decimal . or --decimal ,"
)
_LOOKED_AT = 1000


@dataclass(frozen=True)
class Marks:
    """Evidence of the numbers of a column on its decimal mark.

    Attributes:
        sure: by mark, how many numbers can be read with this decimal mark alone, as 0,5 and 1.250,00.
        open: by mark, how many numbers have it once, before three last digits, as 1,250.
        whole: how many are below 1,000 and have no mark.
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
        # An open number has its mark as a decimal mark, and is a number in groups of the other one.
        sure = {
            mark: count(_MARKED[mark]) + count(_GROUPED[mark]) - open_numbers[mark] - open_numbers[group]
            for mark, group in GROUPS.items()
        }
        return Marks(sure, open_numbers, count(r"^[-+]?[0-9]{1,3}(\s*%)?$"))

    def decimal(self, of_file: Decimal) -> str | None:
        """Choose the decimal mark of the column; None where both readings are possible."""
        if of_file.stated:
            return of_file.mark
        if self.sure["."] != self.sure[","]:
            if self.sure["."] > self.sure[","]:
                return "."
            return ","
        if not any(self.open.values()):
            return of_file.mark
        if all(self.open.values()):
            return None
        mark = "." if self.open["."] else ","
        if of_file.known and mark != of_file.mark:
            return of_file.mark
        # A column with three decimals has them in every row: 7 beside 1,250 says that these may be groups.
        if of_file.known and not self.whole:
            return of_file.mark
        return None


@dataclass(frozen=True)
class Decimal:
    """The decimal mark of a file.

    Attributes:
        mark: "," or ".".
        known: whether numbers of the file show it; without them it is a guess.
        stated: whether the user states it.
        unclear: columns with numbers whose mark may be either, in the first rows.
    """

    mark: str = "."
    known: bool = False
    stated: bool = False
    unclear: frozenset[str] = frozenset()

    @staticmethod
    def of(columns: Mapping[str, Sequence[str]], delimiter: str, stated: str | None = None) -> Decimal:
        """Find the decimal mark in the first rows of a text file, by column.

        Raises:
            UserError: what is ``stated`` is no mark.
        """
        import pyarrow as pa

        if stated is not None:
            if stated not in GROUPS:
                raise UserError(f"--decimal {stated}: give . or ,")
            return Decimal(stated, known=True, stated=True)
        every = {name: Marks.of(_bare(pa.array(texts[:_LOOKED_AT], pa.string()))) for name, texts in columns.items()}
        points, commas = (sum(marks.sure[mark] for marks in every.values()) for mark in (".", ","))
        unclear = frozenset(name for name, marks in every.items() if any(marks.open.values()))
        # Commas between the fields go with decimal points, unless a field in quotation marks holds a comma.
        usual = delimiter == "," and not any(marks.open[","] for marks in every.values())
        unambiguous = points != commas or usual
        return Decimal("," if commas > points else ".", unambiguous, unclear=unclear)


POINT = Decimal()
"""A point, where nothing is known of a file."""


def _bare(column: Any) -> Any:
    """Texts without spaces and currency signs around them."""
    import pyarrow.compute as pc

    return pc.replace_substring_regex(pc.utf8_trim_whitespace(column), _MONEY, r"\1")


def text_numbers(
    column: Any, decimal: Decimal | str = ".", name: str = ""
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Read numbers written as text.

    Args:
        column: (n,) of a pyarrow string type.
        decimal: the file's mark; the column has the other one where its numbers show that.
        name: the column with its file, for an error; without one, the file's mark holds where both are possible.

    Returns:
        (n,) values, NaN where there is none; (n,) which are missing; (n,) which are no numbers.

    Raises:
        UserError: the numbers can be read in two ways.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(decimal, Decimal):
        of_file = decimal
    else:
        of_file = Decimal(decimal)
    text = pc.utf8_trim_whitespace(column)
    missing = pc.or_(pc.is_null(text), pc.fill_null(pc.is_in(text, pa.array(MISSING_WORDS, text.type)), False))
    text = _bare(text)
    mark = Marks.of(text).decimal(of_file)
    if mark is None and name:
        raise UserError(f"{name} {_in_two_ways(text)}", code="unclear_numbers")
    mark = mark or of_file.mark
    lower = pc.utf8_lower(text)
    yes, no = (pc.is_in(lower, pa.array(words, text.type)) for words in (YES_WORDS, NO_WORDS))
    text = pc.if_else(yes, "1", pc.if_else(no, "0", text))
    grouped = pc.match_substring_regex(text, _GROUPED[mark])
    text = pc.if_else(grouped, pc.replace_substring(text, GROUPS[mark], ""), text)
    plain = pc.match_substring_regex(text, rf"^[-+]?([0-9]+[{mark}]?[0-9]*|[{mark}][0-9]+){_END}")
    good = pc.and_(pc.fill_null(pc.or_(plain, pc.match_substring_regex(text, _SPECIAL)), False), pc.invert(missing))
    text = pc.utf8_ltrim(pc.replace_substring(text, ",", "."), "+")
    percent = pc.ends_with(text, "%")
    values = pc.if_else(good, pc.utf8_rtrim(text, "% "), pa.scalar(None, text.type)).cast(pa.float64())
    values = pc.if_else(pc.fill_null(percent, False), pc.divide(values, 100.0), values)
    absent = as_array(missing).astype(np.bool_)
    fine = as_array(good).astype(np.bool_)
    return as_array(values).astype(np.float64, copy=False), absent, ~fine & ~absent


def _in_two_ways(text: Any) -> str:
    """Name the first number of a column that can be read in two ways, and both readings."""
    import pyarrow.compute as pc

    is_open = pc.or_(*(pc.match_substring_regex(text, pattern) for pattern in _OPEN.values()))
    first = text.filter(is_open)[0].as_py()
    return _BOTH_WAYS.format(first, first.replace(",", "."), first.replace(",", "").replace(".", ""))


def percents(column: Any) -> int:
    """Count the texts with a percent sign."""
    import pyarrow.compute as pc

    return int(pc.sum(pc.match_substring(column, "%")).as_py() or 0)


def as_array(column: Any) -> NDArray[Any]:
    """Convert a pyarrow array, in chunks or not, to NumPy; null is NaN."""
    return np.asarray(column.to_numpy(zero_copy_only=False))


@dataclass(frozen=True)
class Ids:
    """A column of ids, numbered.

    Attributes:
        codes: (n,) 0 .. number - 1; -1 where the id is missing.
        ids: (number,) the file's own, integers where all are written as such, else text; ascending.
    """

    codes: NDArray[np.int64]
    ids: NDArray[Any]

    @property
    def number(self) -> int:
        """Count the ids."""
        return len(self.ids)

    def by_row(self) -> NDArray[Any]:
        """(n,) the id of each row as text, "" where it is missing."""
        texts = np.array([*map(str, self.ids), ""], object)
        return texts[self.codes]

    def codes_in(self, other: Ids) -> NDArray[np.int64]:
        """(n,) code of each row's id among those of another column, -1 where that has none like it."""
        import pandas as pd

        ours = self.ids
        theirs = other.ids
        if ours.dtype != theirs.dtype:
            ours = ours.astype(str)
            theirs = theirs.astype(str)
        place = np.append(pd.Index(theirs).get_indexer(ours), -1)
        return place[self.codes]

    def folded(self) -> Ids:
        """The ids as text without capitals; those that differ in nothing else are one."""
        words = np.array([str(each).casefold() for each in self.ids], object)
        folded, place = np.unique(words, return_inverse=True)
        return Ids(np.append(place.reshape(-1), -1)[self.codes], folded)

    def used(self) -> Ids:
        """Those that stand in a row, numbered anew; none may be missing."""
        used_codes, codes = np.unique(self.codes, return_inverse=True)
        return Ids(codes.reshape(-1), self.ids[used_codes])


def numbered(column: Any) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Numbers 0 .. k - 1 in place of ids, -1 for null, and the ids ascending: integers where all are written so."""
    import pyarrow as pa
    import pyarrow.compute as pc

    encoded = as_dictionary(column)
    ids = encoded.dictionary
    place = None
    if is_text(ids.type):
        bare = pc.replace_substring_regex(pc.utf8_trim_whitespace(ids), r"^(0|-?[1-9][0-9]{0,17})\.0$", r"\1")
        again = bare.dictionary_encode()  # "a" and "a " are one id, and so are 7 and what pandas makes of it, 7.0
        ids = again.dictionary
        place = again.indices
        # Written as integers without signs, spaces or leading zeros, so that nothing of an id is lost.
        integral = pc.match_substring_regex(ids, r"^(0|-?[1-9][0-9]{0,17})$")
        if len(ids) and pc.all(pc.or_(integral, pc.equal(ids, ""))).as_py():
            ids = pc.if_else(pc.equal(ids, ""), pa.scalar(None, ids.type), ids).cast(pa.int64())
        else:
            ids = pc.if_else(pc.equal(ids, ""), pa.scalar(None, ids.type), ids)
    elif not (pa.types.is_integer(ids.type) or pa.types.is_floating(ids.type)):
        ids = ids.cast(pa.string())
    order = pc.sort_indices(ids).to_numpy()  # null last
    order = order[: len(ids) - ids.null_count]
    rank = np.full(len(ids) + 1, -1, np.int64)
    rank[order] = np.arange(len(order))
    if place is not None:
        rank = np.append(rank[place.fill_null(len(ids)).to_numpy()], -1)
    used = encoded.indices.cast(pa.int64()).fill_null(len(rank) - 1).to_numpy()
    return rank[used], ids.take(pa.array(order)).to_numpy(zero_copy_only=False)


def spelled_alike(ids: NDArray[Any]) -> list[list[str]]:
    """Groups of text ids that differ only in capitals, such as DE and de."""
    groups: dict[str, list[str]] = {}
    for text in ids if ids.dtype.kind == "O" else ():
        groups.setdefault(str(text).casefold(), []).append(str(text))
    return [group for group in groups.values() if len(group) > 1]


def padded(ids: NDArray[Any]) -> dict[str, str]:
    """Those of text ids that are digits with leading zeros, without these: 7 of 007."""
    texts = ids if ids.dtype.kind == "O" else ()
    return {text: text.lstrip("0") or "0" for text in texts if text[:1] == "0" and len(text) > 1 and text.isdigit()}


def as_dictionary(column: Any) -> Any:
    """A column as one dictionary array."""
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            if column.num_chunks:
                column = column.chunk(0)
            else:
                column = pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        return column
    return column.dictionary_encode()


UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
"""How many there are in a second."""
_FIRST, _LAST = 631_152_000.0, 4_102_444_800.0
"""The years 1990 to 2099, in seconds since 1970: other numbers are no dates."""
_FEW = 0.01
"""Share of the rows that may be of another unit: they count as faults."""
_AT_THE_ENDS = 0.005
"""Share of the rows at either end among which dates far from the others are looked for."""
_SLASHED = r"^\s*(\d{1,2})/(\d{1,2})/(\d{4})"
_DAY = re.compile(r"^\s*(\d{1,2})[./](\d{1,2})[./](\d{4})")
_DOTTED = r"^\s*\d{1,2}\.\d{1,2}\.\d{4}"
_ZONE = r"\s*(UTC|GMT)$"


def in_seconds(times: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """Convert numbers (n,) of seconds, milliseconds, ... since 1970, or as 20240531, to seconds since 1970.

    Other numbers, such as those of steps, are returned as they are.

    Raises:
        UserError: the numbers are of several units.
    """
    present = times[np.isfinite(times)]
    counts = {unit: int(_are_dates(present, size).sum()) for unit, size in UNITS.items()}
    there = [unit for unit, count in counts.items() if count > _FEW * present.size]
    if len(there) > 1:
        shares = " and ".join(f"{counts[unit]:,} rows in {unit}" for unit in there)
        raise UserError(f"{name} mixes units of time: {shares}; write it in one unit", code="mixed_units")
    if there:
        return times / UNITS[there[0]]
    return _of_days(times, present)


def _are_dates(times: NDArray[np.float64], unit: float) -> NDArray[np.bool_]:
    """Find the times (n,) that are dates where ``unit`` of them make a second."""
    return (times >= _FIRST * unit) & (times < _LAST * unit)


def _of_days(times: NDArray[np.float64], known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Convert numbers as 20240531, where all of them are, to seconds since 1970."""
    import pandas as pd

    if not known.size or known.min() < 19_900_101 or known.max() > 20_991_231 or np.any(known != np.floor(known)):
        return times
    days, codes = np.unique(known.astype(np.int64), return_inverse=True)
    dates = pd.to_datetime(pd.Series(days.astype(str)), format="%Y%m%d", errors="coerce", utc=True)
    if dates.isna().any():
        return times
    seconds = times.copy()
    seconds[np.isfinite(times)] = _seconds(dates)[codes]
    return seconds


def far_from_the_others(times: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Find the few dates (n,) that lie further from the others than these span, as one of a wrong year does."""
    present = times[np.isfinite(times)]
    if not present.size:
        return np.zeros(times.size, np.bool_)
    low, high = np.quantile(present, [_AT_THE_ENDS, 1.0 - _AT_THE_ENDS])
    return (times < low - (high - low)) | (times > high + (high - low))


def text_times(column: Any, decimal: Decimal) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], str]:
    """Read times written as text.

    Returns:
        (n,) values, NaN where there is none; (n,) which are missing; (n,) which are neither numbers nor dates; what
        these are not.
    """
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan), np.ones(len(column), np.bool_), np.zeros(len(column), np.bool_), ""
    missing = pc.or_(pc.is_null(column), pc.fill_null(pc.is_in(column, pa.array(MISSING_WORDS, column.type)), False))
    absent = as_array(missing).astype(np.bool_)
    numbers, _, bad_numbers = text_numbers(column, decimal)
    if bad_numbers.sum() <= absent.size - absent.sum() - bad_numbers.sum():
        return numbers, absent, bad_numbers, "is neither a number nor a date"
    codes, ids = numbered(column)
    words = pd.Series(ids.astype(object), dtype="str").str.replace(_ZONE, "", regex=True)
    dates = pd.to_datetime(words, errors="coerce", utc=True, format="ISO8601")
    if dates.notna().sum() == 0:
        dates = _other_dates(words)
    values = np.append(_seconds(dates), np.nan)[codes]
    return values, absent, np.isnan(values) & ~absent, "is not a date"


def _seconds(dates: Any) -> NDArray[np.float64]:
    """Convert a pandas Series (n,) of dates to seconds since 1970."""
    import pandas as pd

    seconds: NDArray[np.float64] = (dates - pd.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(dtype=np.float64)
    return seconds


def _other_dates(words: Any) -> Any:
    """Dates that begin with the day, or with the month where some row shows that it is one."""
    import pandas as pd

    day_first = True
    slashed = words.str.extract(_SLASHED).dropna().astype(int)
    if len(slashed) > len(words) / 2:
        first = bool((slashed[0] > 12).any())
        second = bool((slashed[1] > 12).any())
        if first == second:
            return pd.Series(pd.NaT, index=words.index).dt.tz_localize("UTC")
        day_first = first
    elif not words.str.match(_DOTTED, na=False).any():
        return pd.Series(pd.NaT, index=words.index).dt.tz_localize("UTC")
    day, month = (1, 2) if day_first else (2, 1)
    written = words.str.replace(_DAY, lambda found: f"{found[3]}-{found[month]:0>2}-{found[day]:0>2}", regex=True)
    dates = pd.to_datetime(written, errors="coerce", utc=True, format="ISO8601")  # a hundred times as fast
    missing = dates.isna()
    if missing.any():
        dates[missing] = pd.to_datetime(words[missing], errors="coerce", utc=True, dayfirst=day_first, format="mixed")
    return dates


MISSING = "missing"
"""Code of values that are not there; rows that have such faults alone may be dropped."""
INVALID = ("not_a_number", "not_finite", "outside", "not_a_date")
"""Codes of values that cannot be what their column holds; rows that have these may be dropped, if they are few."""
SHOWN = 3
"""Rows named of each fault."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong in rows of a column.

    Attributes:
        code: stable name for programs: missing, not_a_number, not_finite, outside, not_a_date, ...
        column: where; "" for faults of whole rows.
        what: as a sentence goes on behind the column, for instance "is outside (0, 1]".
        count: rows.
        rows: the first of them, counted from 1 below the header.
        values: what stands there, as text; empty where nothing does.
        advice: what to do; empty where it goes without saying.
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
        """Describe the fault and its place, without the advice."""
        places = [
            f"{row}: {self.values[i]}" if i < len(self.values) and self.values[i] else f"{row}"
            for i, row in enumerate(self.rows)
        ]
        rows = ", ".join(places) + (", ..." if self.count > len(self.rows) else "")
        if self.column:
            head = f"column {self.column!r} {self.what}"
        else:
            head = self.what
        if self.count > 1:
            return f"{head} in {self.count:,} rows ({rows})"
        return f"{head} in row {rows}"

    def __str__(self) -> str:
        if self.advice:
            return f"{self.message}: {self.advice}"
        return self.message

    def to_dict(self) -> Mapping[str, object]:
        """For JSON."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}


@dataclass
class Faults:
    """All that is wrong with a file.

    Attributes:
        source: the file, for messages.
        found: the faults, in the order in which they were met.
        percents: by column, how many values were written with a percent sign, which is no fault.
    """

    source: str
    found: list[Fault] = field(default_factory=list)
    percents: Counter[str] = field(default_factory=Counter)

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
        """Note the rows that are bad, if any; what a block before had too is counted on.

        Args:
            code: stable name of the kind of fault.
            column: where.
            bad: (n,) which rows.
            what: for instance "is not a number".
            values: (n,) what stands there, an array, or a pyarrow column.
            advice: what to do.
            numbers: (n,) row numbers in the file from 1, where they are not 1 .. n.
        """
        count = int(np.count_nonzero(bad))
        if count == 0:
            return
        first = np.flatnonzero(bad)[:SHOWN]
        if values is not None:
            texts = tuple(shown_value(values[int(row)]) for row in first)
        else:
            texts = ()
        rows = tuple((first + 1 if numbers is None else numbers[first]).tolist())
        for place, fault in enumerate(self.found):
            if (fault.code, fault.column, fault.what) == (code, column, what):
                count = fault.count + count
                rows = fault.rows + rows
                texts = fault.values + texts
                self.found[place] = replace(fault, count=count, rows=rows[:SHOWN], values=texts[:SHOWN])
                return
        self.found.append(Fault(code, column, what, count, rows, texts, advice))

    def forgive(self, codes: Iterable[str]) -> list[Fault]:
        """Take the faults of these codes away, and return them."""
        codes = set(codes)
        away = [fault for fault in self.found if fault.code in codes]
        self.found = [fault for fault in self.found if fault.code not in codes]
        return away

    def refuse(self, missing: str = "", invalid: str = "") -> None:
        """Raise where anything is wrong.

        Args:
            missing: what to do where values are missing, said once at the end.
            invalid: what to do where values cannot be read, likewise.

        Raises:
            UserError: one line with every fault.
        """
        if not self.found:
            return
        if len(self.found) > 1:
            number = f"{len(self.found)} faults: "
        else:
            number = ""
        if missing and any(fault.code == MISSING for fault in self.found):
            advice = f"; {missing}"
        else:
            advice = ""
        if invalid:
            advice = f"; {invalid}{advice}"
        if all(fault.code == MISSING for fault in self.found):
            code = "missing_values"
        else:
            code = "invalid_values"
        raise UserError(f"{self.source}: {number}{'; '.join(str(fault) for fault in self.found)}{advice}", code=code)


def percent_lines(percents: Mapping[str, int]) -> list[str]:
    """A line per column with values that were written in per cent."""
    have = {False: "values with % are", True: "value with % is"}
    return [f"{name}: {number:,} {have[number == 1]} divided by 100" for name, number in percents.items() if number]


def in_rows(number: int) -> str:
    """``1 row``, ``2 rows``."""
    return f"{number:,} row{'s' * (number != 1)}"


def listed(words: Iterable[object], most: int) -> str:
    """The first of some words: ``1, 2, 3, ...``."""
    texts = [str(word) for word in itertools.islice(words, most + 1)]
    return ", ".join([*texts[:most], *(["..."] if len(texts) > most else [])])


def shown_value(value: Any) -> str:
    """A value of an array or of pyarrow as text, at most 30 characters; "" for null."""
    if hasattr(value, "as_py"):
        value = value.as_py()
    if value is None:
        return ""
    if isinstance(value, (float, np.floating)):
        text = f"{value:g}"
    else:
        text = str(value)
    if len(text) <= 30:
        return text
    return text[:27] + "..."
