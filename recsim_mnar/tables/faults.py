"""What is wrong with the rows of a file: all of it at once, counted, with the first rows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError

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
        """What is wrong and where, without the advice."""
        shown = [
            f"{row}: {self.values[i]}" if i < len(self.values) and self.values[i] else f"{row}"
            for i, row in enumerate(self.rows)
        ]
        rows = ", ".join(shown) + (", ..." if self.count > len(self.rows) else "")
        head = f"column {self.column!r} {self.what}" if self.column else self.what
        return f"{head} in {self.count:,} rows ({rows})" if self.count > 1 else f"{head} in row {rows}"

    def __str__(self) -> str:
        return f"{self.message}: {self.advice}" if self.advice else self.message

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
        shown = tuple(shown_value(values[int(row)]) for row in first) if values is not None else ()
        rows = tuple((first + 1 if numbers is None else numbers[first]).tolist())
        for place, known in enumerate(self.found):
            if (known.code, known.column, known.what) == (code, column, what):
                count = known.count + count
                rows = known.rows + rows
                shown = known.values + shown
                self.found[place] = replace(known, count=count, rows=rows[:SHOWN], values=shown[:SHOWN])
                return
        self.found.append(Fault(code, column, what, count, rows, shown, advice))

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
        number = f"{len(self.found)} faults: " if len(self.found) > 1 else ""
        advice = f"; {missing}" if missing and any(fault.code == MISSING for fault in self.found) else ""
        advice = f"; {invalid}{advice}" if invalid else advice
        code = "missing_values" if all(fault.code == MISSING for fault in self.found) else "invalid_values"
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
    shown = [str(word) for word in itertools.islice(words, most + 1)]
    return ", ".join([*shown[:most], *(["..."] if len(shown) > most else [])])


def shown_value(value: Any) -> str:
    """A value of an array or of pyarrow as text, at most 30 characters; "" for null."""
    value = value.as_py() if hasattr(value, "as_py") else value
    if value is None:
        return ""
    text = f"{value:g}" if isinstance(value, (float, np.floating)) else str(value)
    return text if len(text) <= 30 else text[:27] + "..."
