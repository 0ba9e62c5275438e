"""Numbers written as text: their decimal mark, digits in groups, per cent, currency signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError

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
    """What the numbers of a column say about its decimal mark.

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
            return "." if self.sure["."] > self.sure[","] else ","
        if not any(self.open.values()):
            return of_file.mark
        if all(self.open.values()):
            return None
        mark = "." if self.open["."] else ","
        if of_file.known and mark != of_file.mark:
            return of_file.mark
        # A column with three decimals has them in every row: 7 beside 1,250 says that these may be groups.
        return of_file.mark if of_file.known and not self.whole else None


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
        known = points != commas or usual
        return Decimal("," if commas > points else ".", known, unclear=unclear)


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

    of_file = decimal if isinstance(decimal, Decimal) else Decimal(decimal)
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
    absent, fine = as_array(missing).astype(np.bool_), as_array(good).astype(np.bool_)
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
