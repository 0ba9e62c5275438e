"""The rows of a table file: columns as numbers, ids, times and events, with every fault of every value gathered."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.tables.files import is_text
from recsim_mnar.tables.values import (
    INVALID,
    MISSING,
    POINT,
    Decimal,
    Faults,
    Ids,
    as_array,
    as_dictionary,
    in_rows,
    in_seconds,
    numbered,
    padded,
    percents,
    shown_value,
    text_numbers,
    text_times,
)

MISSING_IN_WORDS = "empty, NA, N/A, NaN, null, none and - count as missing; rename an id that is called so"
DROP = f"--drop-missing leaves out the rows with missing values ({MISSING_IN_WORDS})"

_LONGEST = 1 << 12
"""Bytes of a number or a time."""
HIGHEST = 1.0 + 1e-6
"""A probability may pass 1 by a rounding."""


@dataclass
class Rows:
    """Rows of a file as read, and what is wrong with them.

    Attributes:
        source: the file, for messages.
        table: a pyarrow table.
        decimal: the decimal mark of numbers written as text.
        first: number in the file of the table's first row, from 1 below the header.
        picked: the table's rows that count, ascending, from 0; None for all.
        of_row: (m,) number in the file of each row of the table, where it has several for one of the file.
        faults: gathered by the methods below; nothing is raised for a value before ``faults.refuse()``.
        missing: (n,) which of the rows miss a value, None while none does.
        invalid: (n,) which of them have a value that cannot be read (:data:`INVALID`), likewise.
    """

    source: str
    table: Any
    decimal: Decimal = POINT
    first: int = 1
    picked: NDArray[np.int64] | None = None
    faults: Faults = field(default_factory=lambda: Faults(""))
    missing: NDArray[np.bool_] | None = None
    invalid: NDArray[np.bool_] | None = None
    of_row: NDArray[np.int64] | None = None
    _mask: Any = None

    def __post_init__(self) -> None:
        """Name the source of faults."""
        self.faults.source = self.source

    def __len__(self) -> int:
        if self.picked is None:
            return int(self.table.num_rows)
        return len(self.picked)

    def kept(self, keep: NDArray[np.bool_]) -> Rows:
        """The rows (n,) that are marked; their faults are gathered with the others'."""
        import pyarrow as pa

        if self.picked is None:
            picked = np.flatnonzero(keep)
        else:
            picked = self.picked[keep]
        mask = np.zeros(self.table.num_rows, np.bool_)
        mask[picked] = True
        return replace(self, picked=picked, missing=None, invalid=None, _mask=pa.array(mask))

    def quiet(self) -> Rows:
        """The same rows, whose faults from here on count for nothing."""
        return replace(self, faults=Faults(self.source), missing=None, invalid=None)

    def column(self, name: str) -> Any:
        """A pyarrow column (n,)."""
        values = self.table.column(name)
        if self._mask is None:
            return values
        return values.filter(self._mask)

    def _plain(self, name: str) -> Any:
        """A pyarrow column (n,) of numbers or times, not as a dictionary.

        Raises:
            UserError: a text of it is longer than these are, and may stand in many rows.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        values = self.column(name)
        if not pa.types.is_dictionary(values.type):
            return values
        words = [
            chunk.dictionary for chunk in values.chunks if is_text(chunk.dictionary.type) and len(chunk.dictionary)
        ]
        longest = max((pc.max(pc.binary_length(word)).as_py() or 0 for word in words), default=0)
        if longest > _LONGEST:
            raise UserError(f"{self.source}: column {name!r} holds a text of {longest:,} bytes, no number and no time")
        return values.cast(values.type.value_type)

    @property
    def row_numbers(self) -> NDArray[np.int64]:
        """(n,) numbers in the file, from 1 below the header."""
        if self.of_row is not None:
            if self.picked is None:
                return self.of_row
            return self.of_row[self.picked]
        if self.picked is None:
            return np.arange(self.first, self.first + len(self))
        return self.picked + self.first

    def note(
        self, code: str, column: str, bad: NDArray[np.bool_], what: str, *, values: Any = None, advice: str = ""
    ) -> None:
        """Call :meth:`recsim_mnar.tables.values.Faults.add` with the rows' numbers in the file."""
        if bad.any():
            numbers = self.row_numbers
            counted = bad
            if self.of_row is not None:  # a row of the file counts once
                counted = np.zeros(len(bad), np.bool_)
                counted[np.flatnonzero(bad)[np.unique(numbers[bad], return_index=True)[1]]] = True
            self.faults.add(code, column, counted, what, values=values, advice=advice, numbers=numbers)
            if code == MISSING:
                self.lack(bad)
            elif code in INVALID:
                if self.invalid is None:
                    self.invalid = bad.copy()
                else:
                    self.invalid = self.invalid | bad

    def lack(self, missing: NDArray[np.bool_]) -> None:
        """Mark rows (n,) that miss a value."""
        if self.missing is None:
            self.missing = missing.copy()
        else:
            self.missing = self.missing | missing

    def probabilities(self, name: str, *, zero: bool, advice: str | None = None) -> NDArray[np.float64]:
        """A column (n,) of numbers up to 1, above 0 or with ``zero`` from 0 on and with room for a rounding."""
        values = self.numbers(name)
        if len(values) and values.max() <= 1.0 and (values.min() >= 0.0 if zero else values.min() > 0.0):
            return values
        if not zero:  # a propensity that passes 1 by a rounding is 1
            values = np.where((values > 1.0) & (values <= HIGHEST), 1.0, values)
        if zero:
            good = (values >= 0.0) & (values <= HIGHEST)
        else:
            good = (values > 0.0) & (values <= 1.0)
        if zero:
            what = "is outside [0, 1]"
        else:
            what = "is outside (0, 1]"
        if advice is None:
            advice_text = _of_probabilities(values)
        else:
            advice_text = advice
        self.note("outside", name, ~good & ~np.isnan(values), what, values=values, advice=advice_text)
        return values

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column (n,) of numbers; true and yes are 1, false and no are 0; NaN where there is a fault.

        Raises:
            UserError: a column of lists, dates or the like.
        """
        import pyarrow as pa

        if pa.types.is_float64(self.table.column(name).type):
            values = self.table.column(name).to_numpy()
            if self.picked is not None:
                values = values[self.picked]
            if len(values) and np.isfinite(values.min()) and np.isfinite(values.max()):  # the usual case, at two looks
                return np.ascontiguousarray(values)
        column = self._plain(name)
        kind = column.type
        if pa.types.is_null(kind):
            values = np.full(len(column), np.nan)
            missing = np.ones(len(column), np.bool_)
        elif is_text(kind):
            values, missing, bad = text_numbers(column, self.decimal, f"{self.source}: column {name!r}")
            self.faults.percents[name] += percents(column) - percents(column.filter(pa.array(bad)))
            advice = "write numbers, or name another column"
            self.note("not_a_number", name, bad, "is not a number", values=column, advice=advice)
        elif _is_number(kind):
            missing = _nulls(column)
            if pa.types.is_floating(kind):
                cast = column
            else:
                cast = column.cast(pa.float64(), safe=False)
            values = cast.to_numpy().astype(np.float64, copy=False)
            if pa.types.is_floating(kind):
                missing = missing | np.isnan(values)
        else:
            raise UserError(
                f"{self.source}: column {name!r} holds {kind}, not numbers (row 1: {shown_value(column[0])}): write "
                "one number per row, or name another column"
            )
        self.note(MISSING, name, missing, "is missing")
        bad = np.isinf(values)
        advice = "write a number, or nothing"
        self.note("not_finite", name, bad, "is not a finite number", values=values, advice=advice)
        if bad.any():
            values = np.where(bad, np.nan, values)
        return np.ascontiguousarray(values)

    def ids(self, name: str) -> Ids:
        """A column of ids, which lose nothing: text stays text, whole numbers stay whole.

        Raises:
            UserError: a column of lists or the like.
        """
        import pyarrow as pa

        column = self.column(name)
        if pa.types.is_nested(column.type):
            raise UserError(f"{self.source}: column {name!r} holds {column.type}: ids are numbers or text, one per row")
        bad = None
        if pa.types.is_floating(column.type):
            values = column.to_numpy()
            missing = np.isnan(values)
            bad = np.isinf(values)
            self.note("not_finite", name, bad, "is not a finite number", values=values)
            column = pa.array(values, mask=missing | bad)
            values_read = values[~(missing | bad)]
            if np.all(values_read == np.floor(values_read)) and np.all(np.abs(values_read) < 2**53):
                column = column.cast(pa.int64())
        try:
            codes, ids = numbered(column)
        except pa.ArrowException:  # bytes that are no text
            kind = getattr(column.type, "value_type", column.type)
            raise UserError(f"{self.source}: column {name!r} holds {kind}: ids are numbers or text") from None
        self.refuse_two_ways(name, codes, ids, set(padded(ids).values()) & set(ids))
        self.note(MISSING, name, codes < 0 if bad is None else (codes < 0) & ~bad, "is missing")
        return Ids(codes, ids)

    def refuse_two_ways(self, name: str, codes: NDArray[np.int64], ids: NDArray[Any], bare: set[str]) -> None:
        """Note the rows (n,) of a column whose ids are ``bare``, or that with leading zeros: 7 next to 007."""
        if bare:
            texts = {text for text, without in padded(ids).items() if without in bare} | bare
            twice = np.array([*(text in texts for text in ids), False])[codes]
            self.note(
                "two_ways",
                name,
                twice,
                "stands with leading zeros and without",
                values=self.column(name),
                advice="write it alike or, if these are two, with a letter first",
            )

    def times(self, name: str) -> NDArray[np.float64]:
        """A column (n,) of times as numbers: dates as seconds since 1970; NaN where there is a fault.

        Dates are ISO 8601 (``2024-05-31 17:00:00``), or day.month.year, or with slashes where the rows show the day
        from the month, or numbers: seconds, milliseconds, microseconds or nanoseconds since 1970, or 20240531.

        Raises:
            UserError: a column of lists or the like, or one that mixes units.
        """
        import pyarrow as pa

        column = self._plain(name)
        kind = column.type
        if pa.types.is_null(kind) or is_text(kind):
            values, missing, bad, what = text_times(column, self.decimal)
            self.note("not_a_date", name, bad, what, values=column, advice="write 2024-05-31 17:00:00")
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            missing = _nulls(column)
            seconds = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(0)  # less nanoseconds
            values = np.where(missing, np.nan, as_array(seconds).astype(np.float64) / 1e6)
        elif _is_number(kind):
            return in_seconds(self.numbers(name), f"{self.source}: column {name!r}")
        else:
            raise UserError(f"{self.source}: column {name!r} holds {kind}: times are numbers or dates")
        self.note(MISSING, name, missing, "is missing")
        infinite = np.isinf(values)
        self.note("not_finite", name, infinite, "is not a finite number", values=values)
        return in_seconds(np.where(infinite, np.nan, values), f"{self.source}: column {name!r}")

    def digests(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """(n,) 64 bits for each row, equal where it is equal in all these columns; missing values equal each other."""
        mixed = np.zeros(len(self), np.uint64)
        with np.errstate(over="ignore"):
            for place, name in enumerate(names):
                mixed = _mix(mixed ^ (_bits(self.column(name)) + np.uint64(place)))
        return mixed


def n_repeats(digests: NDArray[Any]) -> int:
    """Count the rows that repeat an earlier one."""
    ordered = np.sort(digests)
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))


def repeats(digests: NDArray[Any]) -> NDArray[np.bool_]:
    """(n,) which rows repeat an earlier one."""
    again = np.ones(len(digests), np.bool_)
    again[np.unique(digests, return_index=True)[1]] = False
    return again


def repeats_by_chance(
    digests: NDArray[Any],
    group: NDArray[Any],
    item: NDArray[Any],
    cell: NDArray[Any],
    probability: NDArray[np.float64] | None,
) -> tuple[float, bool]:
    """Estimate how many rows repeat an earlier one where all are separate events, and whether more do.

    A row shows its item with probability p, and of the rows with that item a share f has its reward. So each of the k
    earlier rows of its group (user and time, as far as they are written) equals it with probability q = p f, and the
    sum over rows of 1 - (1 - q)^k is what chance explains. Copies make groups larger, so groups are counted as well:
    two rows of a group are equal with the mean of q, s, so that for each group with different rows chance makes
    s / (1 - s) at most whose rows are all equal.

    Args:
        digests: (n,) equal for equal rows.
        group: (n,) equal for rows of one user at one time.
        item: (n,) equal for rows with one item.
        cell: (n,) equal for rows with one item and one reward.
        probability: (n,) of the item; None for its share of the rows.
    """
    items, cells = (np.unique(column, return_inverse=True, return_counts=True)[1:] for column in (item, cell))
    with_item = items[1][items[0]]
    equal = cells[1][cells[0]] / with_item * (with_item / len(item) if probability is None else probability)
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    equal = equal[order]
    rows = digests[np.lexsort((digests, group))]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(first, len(order)))
    repeated = np.append(False, (rows[1:] == rows[:-1]) & (ordered[1:] == ordered[:-1]))
    earlier = np.arange(len(order)) - np.repeat(first, sizes)
    expected = float(np.sum(1.0 - (1.0 - equal) ** earlier))
    different = sizes - np.add.reduceat(repeated, first)
    alike = (sizes > 1) & (different == 1)
    if np.any(sizes > 1):
        shared = min(float(np.mean(equal[np.repeat(sizes > 1, sizes)])), 0.99)
    else:
        shared = 0.0
    groups = float(np.sum(different > 1)) * shared / (1.0 - shared)
    if _more_than_chance(int(np.sum(alike)), groups):
        return min(expected, float(np.sum((sizes - different)[~alike])) + groups), True
    return expected, _more_than_chance(int(np.sum(repeated)), expected)


def _more_than_chance(number: int, expected: float) -> bool:
    """Return whether a number is above what chance explains.

    By a quarter, since users who click often, or see what they like, meet the same a little oftener; and by 4 standard
    errors of a count.
    """
    return number > 1.25 * expected + 4.0 * math.sqrt(expected)


def _nulls(column: Any) -> NDArray[np.bool_]:
    return as_array(column.is_null()).astype(np.bool_)


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _bits(column: Any) -> NDArray[np.uint64]:
    """(n,) 64 bits for each value, equal for equal values, in whatever block they are."""
    import pandas as pd
    import pyarrow as pa

    kind = column.type
    if pa.types.is_nested(kind):
        column = pa.array([str(value) for value in column])
    if pa.types.is_floating(kind) and not column.null_count:
        return column.to_numpy().astype(np.float64).view(np.uint64)
    if pa.types.is_uint64(kind) and not column.null_count:
        return column.to_numpy()
    if (pa.types.is_integer(kind) or pa.types.is_timestamp(kind)) and not column.null_count:
        return column.cast(pa.int64()).to_numpy().view(np.uint64)
    encoded = as_dictionary(column)
    words = encoded.dictionary.to_numpy(zero_copy_only=False)
    hashes = np.append(pd.util.hash_array(words.astype(str).astype(object)), np.uint64(0))
    return hashes[encoded.indices.cast(pa.int64()).fill_null(len(words)).to_numpy()]


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Bits spread over all 64 places (the finaliser of SplitMix64, Steele, Lea & Flood 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _of_probabilities(values: NDArray[np.float64]) -> str:
    """Guess what is wrong with probabilities outside [0, 1]."""
    present = values[~np.isnan(values)]
    if present.size and present.max() <= 0.0:
        return "these look like logarithms: write the probabilities"
    if present.size and present.max() <= 100.0 and np.median(present) > HIGHEST:
        return "these look like percent: divide them by 100"
    return "give the probability of the logged action"


# -------------------------------------------------------------------------------------------- views and recommendations

VIEWS = ("organic", "view", "views", "viewed", "pageview", "page_view", "item_view", "detail", "0", "false")
"""What a view may be called, in lower case."""
SHOWN = (
    *("bandit", "recommendation", "recommendations", "recommended", "recommend", "impression", "exposure", "shown"),
    *("show", "served", "1", "true"),
)
"""What a recommendation may be called."""


@dataclass(frozen=True)
class Events:
    """Events of the rows of a file, or of a block of it.

    Attributes:
        shown: (n,) recommendations.
        viewed: (n,) views.
        words: what else the column holds.
    """

    shown: NDArray[np.bool_]
    viewed: NDArray[np.bool_]
    words: list[str]

    @property
    def others(self) -> int:
        """Rows that are neither."""
        return int((~(self.shown | self.viewed)).sum())

    @staticmethod
    def of(column: Any) -> Events:
        """Read a pyarrow column of words, codes (0, 1) or truth values; nothing in it is a fault."""
        import pyarrow as pa

        is_shown = [np.zeros(0, np.bool_)]
        viewed = [np.zeros(0, np.bool_)]
        words = dict[str, None]()
        if pa.types.is_nested(column.type):
            return Events(np.zeros(len(column), np.bool_), np.zeros(len(column), np.bool_), [str(column.type)])
        for chunk in column.chunks:  # a look at each word instead of at each row
            if pa.types.is_dictionary(chunk.type):
                encoded = chunk
            else:
                encoded = chunk.dictionary_encode()
            met = [_word(entry) for entry in encoded.dictionary.to_pylist()]
            codes = np.asarray(encoded.indices.fill_null(len(met)) if encoded.null_count else encoded.indices)
            is_shown.append(np.array([*(word in SHOWN for word in met), False], np.bool_)[codes])
            viewed.append(np.array([*(word in VIEWS for word in met), False], np.bool_)[codes])
            words |= dict.fromkeys(word for word in met if word and word not in SHOWN and word not in VIEWS)
        return Events(np.concatenate(is_shown), np.concatenate(viewed), list(words))


def _word(value: Any) -> str:
    """A value of the column in lower case; whole numbers without a point."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None:
        return ""
    return str(value).strip().lower()


def others_in_words(number: int, words: list[str]) -> list[str]:
    """A line about rows that are neither, if there are any."""
    if words:
        listed = f" ({', '.join(words[:5])})"
    else:
        listed = ""
    are = "is" if number == 1 else "are"
    if number:
        return [f"{in_rows(number)} {are} neither views nor recommendations{listed}: left out"]
    return []


def without_recommendations(words: list[str], column: str) -> str:
    """Why a column of events marks no recommendation."""
    if not words:
        return f"its column {column!r} says so, and nothing was recommended in it"
    listed = ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")
    return f"its column {column!r} holds {listed}; write bandit (or 1) where something was recommended"


class AgainError(Exception):
    """A discovery about a file that makes another pass over it necessary, from its first row."""


_WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,17})(\.0)?$")


class Numbering:
    """Numbers in place of ids, kept from one block to the next and from one pass to the next.

    Whole numbers stand for themselves unless asked otherwise. Other ids are numbered as they are met, so that numbers
    ascend where the rows of each id stand together.
    """

    def __init__(self) -> None:
        self.plain = True
        self._given: dict[str, int] = {}
        self._bare: set[str] = set()  # ids without the zeros that they begin with
        self._met = self._asked = self._tried = False

    def codes(self, rows: Rows, name: str, *, alone: bool = False) -> NDArray[np.int64]:
        """(n,) the number of each row's id; what is missing is noted as a fault.

        Raises:
            AgainError: the ids are no whole numbers, though earlier ones were, or though the table is ``alone``, a
                part whose numbers mean nothing in the others.
        """
        import pandas as pd

        if not self._met:
            result = _whole_numbers(rows, name)
            if result is not None:
                self._asked = True
                return result
            self._met = True
            self.plain = False
            if self._asked or alone:
                raise AgainError
        ids = rows.ids(name)
        met, places = pd.factorize(ids.codes)
        texts = np.append(ids.ids.astype(str), "")[places].tolist()
        codes_given = [self._given.setdefault(_normal(text), len(self._given)) for text in texts]
        bare = set(padded(ids.ids).values())
        self._bare |= bare
        earlier = {text for text in bare if text in self._given} | (self._bare and self._bare.intersection(texts))
        rows.refuse_two_ways(name, ids.codes, ids.ids.astype(str).astype(object), earlier - (bare & set(texts)))
        return np.array(codes_given, np.int64)[met]

    def by_order_met(self) -> bool:
        """From here on number whole numbers as they are met; whether that is new."""
        new = not self._met and not self._tried
        self._met = True
        self._tried = True
        return new

    def by_value(self) -> None:
        """From here on let whole numbers stand for themselves again."""
        self._met = not self.plain

    def ranks(self) -> NDArray[np.int64] | None:
        """Place of each number in the order of ids: of numbers, where all are, else of the alphabet.

        None where whole numbers stand for themselves.
        """
        if not self._met:
            return None
        texts = list(self._given)
        integral = all(_WHOLE.match(text) for text in texts)
        order = np.argsort(np.array([int(text) for text in texts]) if integral else np.array(texts), kind="stable")
        rank = np.empty(len(texts), np.int64)
        rank[order] = np.arange(len(texts))
        return rank

    def names(self, codes: NDArray[Any]) -> NDArray[Any]:
        """The ids of numbers that :meth:`codes` gave."""
        if not self._met:
            return codes
        return np.array(list(self._given), object)[codes]


def _normal(text: str) -> str:
    """An id as it is numbered: 1.0, as pandas writes integers among which some are missing, is 1."""
    if text.endswith(".0") and _WHOLE.match(text):
        return text[:-2]
    return text


def _whole_numbers(rows: Rows, name: str) -> NDArray[np.int64] | None:
    """A column (n,) of integers as it stands, missing ones noted; None for any other column."""
    import pyarrow as pa

    kind = rows.table.column(name).type
    if is_text(kind):
        ids = rows.ids(name)
        numbers = ids.ids if len(ids.ids) else np.zeros(0, np.int64)
        if numbers.dtype.kind != "i":
            return None
        return np.append(numbers, 0)[ids.codes]
    if not pa.types.is_integer(kind) or pa.types.is_uint64(kind):
        return None
    values = rows.column(name)
    if values.null_count:
        rows.note(MISSING, name, values.is_null().to_numpy(zero_copy_only=False), "is missing")
        values = values.fill_null(0)
    return np.ascontiguousarray(values.to_numpy()).astype(np.int64, copy=False)
