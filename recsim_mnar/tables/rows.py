"""Parse the rows of a table file: columns as numbers, ids, times and events, with every fault collected."""

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
    listed,
    numbered,
    padded,
    shown_value,
    text_numbers,
    text_times,
)

MISSING_IN_WORDS = r"empty, NA, N/A, NaN, null, none, \N and - count as missing; rename an id that is called so"
_OF_NULL = np.uint64(0x9E3779B97F4A7C15)
"""Hash of a missing value."""
DROP = f"--drop-missing leaves out the rows with missing values ({MISSING_IN_WORDS})"

HIGHEST = 1.0 + 1e-6
"""Largest probability, with room for rounding."""


@dataclass
class Rows:
    """Rows of a file with the faults that were found in them.

    Attributes:
        source: name of the file in messages.
        table: a pyarrow table.
        decimal: the decimal mark of numbers written as text.
        faults: faults that the methods record; nothing is raised for a value before ``faults.refuse()``.
        missing: (n,) which rows lack a value; None if none does so far.
        invalid: (n,) which rows have a value that cannot be read (:data:`INVALID`); None if none does so far.
        row_numbers: (n,) numbers in the file, from 1 below the header; equal if one row of the file became several.
        noted: columns whose missing values are among the faults; a column may be parsed more than once.
    """

    source: str
    table: Any
    decimal: Decimal = POINT
    faults: Faults = field(default_factory=lambda: Faults(""))
    missing: NDArray[np.bool_] | None = None
    invalid: NDArray[np.bool_] | None = None
    row_numbers: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    noted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Set the source of the faults, and number the rows from 1 if they have no numbers."""
        self.faults.source = self.source
        if not self.row_numbers.size:
            self.row_numbers = np.arange(1, len(self) + 1)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def kept(self, keep: NDArray[np.bool_]) -> Rows:
        """Select the rows marked in ``keep`` (n,); they share the faults of these rows."""
        import pyarrow as pa

        table = self.table.filter(pa.array(keep))
        return replace(self, table=table, row_numbers=self.row_numbers[keep], noted=set(), missing=None, invalid=None)

    def quiet(self) -> Rows:
        """Return the same rows with a new list of faults, so that parsing them leaves none in the file's list."""
        return replace(self, faults=Faults(self.source), noted=set(), missing=None, invalid=None)

    def column(self, name: str) -> Any:
        """Return a pyarrow column (n,)."""
        return self.table.column(name)

    def _decoded(self, name: str) -> Any:
        """Return a pyarrow column (n,) of numbers or times, decoded if it is a dictionary."""
        import pyarrow as pa

        values = self.column(name)
        if pa.types.is_dictionary(values.type):
            return values.cast(values.type.value_type)
        return values

    def note(
        self, code: str, column: str, bad: NDArray[np.bool_], what: str, *, values: Any = None, advice: str = ""
    ) -> None:
        """Record bad rows (n,) as a fault, and mark them as missing or invalid if the code says so.

        Missing values of a column are recorded once, however often it is parsed. The arguments are those of
        :meth:`recsim_mnar.tables.values.Faults.add`.
        """
        if not bad.any():
            return
        if code == MISSING:
            self.lack(bad)
            if column in self.noted:
                return
            self.noted.add(column)
        numbers = self.row_numbers
        counted = np.zeros(len(bad), np.bool_)  # a row of the file counts once
        counted[np.flatnonzero(bad)[np.unique(numbers[bad], return_index=True)[1]]] = True
        self.faults.add(code, column, counted, what, values=values, advice=advice, numbers=numbers)
        if code in INVALID:
            self.invalid = _either(self.invalid, bad)

    def lack(self, missing: NDArray[np.bool_]) -> None:
        """Mark rows (n,) that lack a value."""
        self.missing = _either(self.missing, missing)

    def probabilities(self, name: str, *, zero: bool, advice: str | None = None) -> NDArray[np.float64]:
        """Parse a column (n,) of probabilities; others are recorded as faults, except slightly above 1, by rounding.

        Args:
            name: name of the column.
            zero: True to allow 0, for columns of target policies; False for propensities, which are divisors.
            advice: advice in the fault; None to guess from the values.
        """
        values = self.numbers(name)
        if len(values) and values.max() <= 1.0 and (values.min() >= 0.0 if zero else values.min() > 0.0):
            return values
        if zero:  # targets are kept as written; propensities above 1 are rounded to 1
            good = (values >= 0.0) & (values <= HIGHEST)
        else:
            values = np.where((values > 1.0) & (values <= HIGHEST), 1.0, values)
            good = (values > 0.0) & (values <= 1.0)
        what = "is outside [0, 1]" if zero else "is outside (0, 1]"
        if advice is None:
            advice = _advice_on_probabilities(values)
        self.note("outside", name, ~good & ~np.isnan(values), what, values=values, advice=advice)
        return values

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Parse a column (n,) of numbers; true and yes are 1, false and no are 0; NaN at a fault.

        Raises:
            UserError: a column of lists, dates or the like.
        """
        import pyarrow as pa

        if pa.types.is_float64(self.table.column(name).type):
            values = self.table.column(name).to_numpy()
            if len(values) and np.isfinite(values.min()) and np.isfinite(values.max()):  # the usual case, fast
                return np.ascontiguousarray(values)
        column = self._decoded(name)
        kind = column.type
        missing = _nulls(column)
        if pa.types.is_null(kind):
            values = np.full(len(column), np.nan)
        elif is_text(kind):
            values, missing, bad = text_numbers(column, self.decimal, f"{self.source}: column {name!r}")
            advice = "write numbers, or name another column"
            self.note("not_a_number", name, bad, "is not a number", values=column, advice=advice)
        elif pa.types.is_floating(kind):
            values = column.to_numpy().astype(np.float64, copy=False)
            missing = missing | np.isnan(values)
        elif _is_number(kind):
            values = column.cast(pa.float64(), safe=False).to_numpy()
        else:
            raise UserError(
                f"{self.source}: column {name!r} holds {kind}, not numbers (row 1: {shown_value(column[0])}): write "
                "one number per row, or name another column"
            )
        self.note(MISSING, name, missing, "is missing")
        return np.ascontiguousarray(self._finite(name, values, "write a number, or nothing"))

    def _finite(self, name: str, values: NDArray[np.float64], advice: str = "") -> NDArray[np.float64]:
        """Record infinite values (n,) of a column as faults and replace them by NaN."""
        infinite = np.isinf(values)
        if not infinite.any():
            return values
        self.note("not_finite", name, infinite, "is not a finite number", values=values, advice=advice)
        return np.where(infinite, np.nan, values)

    def ids(self, name: str) -> Ids:
        """Read a column of ids without loss: text stays text, whole numbers stay whole.

        Raises:
            UserError: a column of lists or the like.
        """
        import pyarrow as pa

        column = self.column(name)
        if pa.types.is_nested(column.type):
            raise UserError(f"{self.source}: column {name!r} holds {column.type}: ids are numbers or text, one per row")
        infinite = np.zeros(len(column), np.bool_)
        if pa.types.is_floating(column.type):
            values = column.to_numpy()
            infinite = np.isinf(values)
            self.note("not_finite", name, infinite, "is not a finite number", values=values)
            finite = np.isfinite(values)
            column = pa.array(values, mask=~finite)
            ids = values[finite]
            # pandas writes a column of integers with a missing one as floats, which are exact below 2^53.
            if np.all(ids == np.floor(ids)) and np.all(np.abs(ids) < 2**53):
                column = column.cast(pa.int64())
        try:
            codes, ids = numbered(column)
        except pa.ArrowException:  # bytes that are no text
            kind = getattr(column.type, "value_type", column.type)
            raise UserError(f"{self.source}: column {name!r} holds {kind}: ids are numbers or text") from None
        self.refuse_two_ways(name, codes, ids, set(padded(ids).values()) & set(ids))
        self.note(MISSING, name, (codes < 0) & ~infinite, "is missing")
        return Ids(codes, ids)

    def refuse_two_ways(self, name: str, codes: NDArray[np.int64], ids: NDArray[Any], bare: set[str]) -> None:
        """Record rows whose ids may be one id written in two ways: 7 next to 007.

        Args:
            name: name of the column.
            codes: (n,) code of each row's id, -1 if it is missing.
            ids: (k,) ids by code.
            bare: ids without leading zeros that also occur with them.
        """
        if bare:
            texts = {text for text, without in padded(ids).items() if without in bare} | bare
            bad = np.array([*(text in texts for text in ids), False])[codes]  # the last one serves the code -1
            self.note(
                "two_ways",
                name,
                bad,
                "stands with leading zeros and without",
                values=self.column(name),
                advice="write it alike or, if these are two, with a letter first",
            )

    def times(self, name: str) -> NDArray[np.float64]:
        """Parse a column (n,) of times: dates become seconds since 1970; NaN at a fault.

        Dates are ISO 8601 (``2024-05-31 17:00:00``), day.month.year, dates with slashes if the rows show which number
        is the day, or numbers: seconds, milliseconds, microseconds or nanoseconds since 1970, or 20240531.

        Raises:
            UserError: a column of lists or the like, or one that mixes units.
        """
        import pyarrow as pa

        source = f"{self.source}: column {name!r}"
        column = self._decoded(name)
        kind = column.type
        if pa.types.is_null(kind) or is_text(kind):
            values, missing, bad, what = text_times(column, self.decimal)
            self.note("not_a_date", name, bad, what, values=column, advice="write 2024-05-31 17:00:00")
        elif pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            missing = _nulls(column)
            seconds = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).fill_null(0)  # drops nanoseconds
            values = np.where(missing, np.nan, as_array(seconds).astype(np.float64) / 1e6)
        elif _is_number(kind):
            return in_seconds(self.numbers(name), source)
        else:
            raise UserError(f"{source} holds {kind}: times are numbers or dates")
        self.note(MISSING, name, missing, "is missing")
        return in_seconds(self._finite(name, values), source)

    def digests(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Hash each row (n,) to 64 bits, equal for rows that are equal in these columns; missing values are equal.

        The column's place is added, so that equal values in two columns do not cancel each other.
        """
        mixed = np.zeros(len(self), np.uint64)
        with np.errstate(over="ignore"):
            for place, name in enumerate(names):
                mixed = _mix(mixed ^ (_bits(self.column(name)) + np.uint64(place)))
        return mixed


def _either(marked: NDArray[np.bool_] | None, more: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rows (n,) that are marked in one of two masks, the first of which may be None."""
    if marked is None:
        return more.copy()
    return marked | more


def n_repeats(digests: NDArray[Any]) -> int:
    """Count the rows that repeat an earlier one."""
    ordered = np.sort(digests)  # np.unique hashes, which takes five times as long for millions of numbers
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))


def repeats(digests: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows (n,) repeat an earlier one: all but the first of equal digests."""
    is_repeat = np.ones(len(digests), np.bool_)
    is_repeat[np.unique(digests, return_index=True)[1]] = False
    return is_repeat


def repeats_by_chance(
    digests: NDArray[Any],
    group: NDArray[Any],
    item: NDArray[Any],
    cell: NDArray[Any],
    probability: NDArray[np.float64] | None,
) -> tuple[float, bool]:
    """Estimate how many rows repeat an earlier one if all are separate events, and whether more do.

    A row shows its item with probability p, and of the rows with that item a share f has its reward. So each of the k
    earlier rows of its group (user and time, at the precision of the file) equals it with probability q = p f, and the
    sum over rows of 1 - (1 - q)^k is what chance explains. Copies make groups larger, so groups are counted as well:
    two rows of a group are equal with the mean of q, s, so that for each group with different rows chance makes
    s / (1 - s) at most whose rows are all equal.

    Args:
        digests: (n,) equal for equal rows.
        group: (n,) equal for rows of one user at one time.
        item: (n,) equal for rows with one item.
        cell: (n,) equal for rows with one item and one reward.
        probability: (n,) probability of the item; None for its share of the rows.

    Returns:
        expected: number of rows that repeat an earlier one although they are separate events.
        more: True if there are clearly more, so that some are copies.
    """
    n_item = _group_sizes(item)
    if probability is None:
        probability = n_item / len(item)
    equal = _group_sizes(cell) / n_item * probability  # q of each row
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    equal = equal[order]
    rows = digests[np.lexsort((digests, group))]  # by group as above, and by digest within each group
    same_group = ordered[1:] == ordered[:-1]
    first = np.flatnonzero(np.append(True, ~same_group))
    sizes = np.diff(np.append(first, len(order)))
    repeated = np.append(False, (rows[1:] == rows[:-1]) & same_group)
    earlier = np.arange(len(order)) - np.repeat(first, sizes)  # k of each row
    expected = float(np.sum(1.0 - (1.0 - equal) ** earlier))
    n_different = sizes - np.add.reduceat(repeated, first)
    alike = (sizes > 1) & (n_different == 1)  # groups whose rows are all equal
    mean_equal = 0.0  # s
    if np.any(sizes > 1):
        mean_equal = min(float(np.mean(equal[np.repeat(sizes > 1, sizes)])), 0.99)  # below 1, as 1 - s divides
    expected_alike = float(np.sum(n_different > 1)) * mean_equal / (1.0 - mean_equal)
    if _more_than_chance(int(np.sum(alike)), expected_alike):
        # Copies inflate ``expected`` through the sizes of groups: count chance in the other groups instead.
        return min(expected, float(np.sum((sizes - n_different)[~alike])) + expected_alike), True
    return expected, _more_than_chance(int(np.sum(repeated)), expected)


def _group_sizes(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return for each row (n,) how many rows have its key."""
    _, group, sizes = np.unique(keys, return_inverse=True, return_counts=True)
    return sizes[group]


def _more_than_chance(number: int, expected: float) -> bool:
    """Return whether a count is clearly above its expectation.

    The margin is a quarter, because users who click often repeat themselves a little more often, and 4 standard errors
    of a count.
    """
    return number > 1.25 * expected + 4.0 * math.sqrt(expected)


def _nulls(column: Any) -> NDArray[np.bool_]:
    """Return which values (n,) of a pyarrow column are null."""
    return as_array(column.is_null()).astype(np.bool_)


def _is_number(kind: Any) -> bool:
    """Return whether a pyarrow type is of numbers or truth values."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _bits(column: Any) -> NDArray[np.uint64]:
    """Hash each value (n,) to 64 bits, equal for equal values in any block."""
    import pandas as pd
    import pyarrow as pa

    if pa.types.is_nested(column.type):
        column = pa.array([str(value) for value in column])
    encoded = as_dictionary(column)
    hashes = pd.util.hash_array(as_array(encoded.dictionary), categorize=False)
    # The last one, which is no hash of a usual number, serves null, of code -1.
    return np.append(hashes, _OF_NULL)[np.asarray(encoded.indices.fill_null(-1))]


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each number (the finaliser of SplitMix64, Steele, Lea & Flood 2014)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _advice_on_probabilities(values: NDArray[np.float64]) -> str:
    """Guess why probabilities (n,) are outside [0, 1]."""
    present = values[~np.isnan(values)]
    if present.size and present.max() <= 0.0:
        return "these look like logarithms: write the probabilities"
    if present.size and present.max() <= 100.0 and np.median(present) > HIGHEST:
        return "these look like percent: divide them by 100"
    return "give the probability of the logged action"


# -------------------------------------------------------------------------------------------- views and recommendations

VIEWS = ("organic", "view", "views", "viewed", "pageview", "page_view", "item_view", "detail", "0", "false")
"""Names of views, in lower case."""
SHOWN = (
    *("bandit", "recommendation", "recommendations", "recommended", "recommend", "impression", "exposure", "shown"),
    *("show", "served", "1", "true"),
)
"""Names of recommendations, in lower case."""


@dataclass(frozen=True)
class Events:
    """Kinds of the rows of a file, or of a block of it.

    Attributes:
        shown: (n,) which are recommendations.
        viewed: (n,) which are views.
        words: different values of the column that are neither, in lower case.
    """

    shown: NDArray[np.bool_]
    viewed: NDArray[np.bool_]
    words: list[str]

    @property
    def others(self) -> int:
        """Number of rows that are neither recommendations nor views."""
        return int((~(self.shown | self.viewed)).sum())

    @staticmethod
    def of(column: Any) -> Events:
        """Read a pyarrow column of words, codes (0, 1) or truth values; other values are no fault."""
        import pyarrow as pa

        if pa.types.is_nested(column.type):
            none = np.zeros(len(column), np.bool_)
            return Events(none, none, [str(column.type)])
        encoded = as_dictionary(column)  # each word is compared once, not each row
        words = [*map(_word, encoded.dictionary.to_pylist()), ""]
        codes = np.asarray(encoded.indices.fill_null(-1))
        shown = np.array([word in SHOWN for word in words])[codes]
        viewed = np.array([word in VIEWS for word in words])[codes]
        others = dict.fromkeys(word for word in words if word and word not in SHOWN + VIEWS)
        return Events(shown, viewed, list(others))


def _word(value: Any) -> str:
    """Return a value in lower case; whole numbers without a point."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip().lower()


def others_in_words(number: int, words: list[str]) -> list[str]:
    """Describe, in one line, rows that are neither views nor recommendations; no line without any."""
    if not number:
        return []
    examples = f" ({', '.join(words[:5])})" if words else ""
    are = "is" if number == 1 else "are"
    return [f"{in_rows(number)} {are} neither views nor recommendations{examples}: left out"]


def without_recommendations(words: list[str], column: str) -> str:
    """Explain why a column of events marks no recommendation."""
    if not words:
        return f"its column {column!r} says so, and nothing was recommended in it"
    return f"its column {column!r} holds {listed(words, 5)}; write bandit (or 1) where something was recommended"


class AgainError(Exception):
    """Raised if the file must be read again from its first row, in another way."""


_WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,17})(\.0)?$")
"""Pattern of a whole number of at most 18 digits, which fits 64 bits; pandas may have added ``.0``."""


class Numbering:
    """Numbers for ids that stay the same from one block, or pass over a file, to the next.

    Whole numbers stand for themselves until :meth:`by_order_met` is called. Other ids are numbered in order of first
    appearance, so that numbers ascend if the rows of each id are consecutive.

    Attributes:
        plain: True if all ids so far are whole numbers.
        _by_order: True to number ids in order of first appearance.
        _read_any: True if some rows were read as whole numbers that stand for themselves.
        _tried_order: True if :meth:`by_order_met` was called before.
    """

    def __init__(self) -> None:
        self.plain = True
        self._numbers: dict[str, int] = {}
        self._bare: set[str] = set()  # ids without their leading zeros
        self._by_order = False
        self._read_any = False
        self._tried_order = False

    def codes(self, rows: Rows, name: str, *, alone: bool = False) -> NDArray[np.int64]:
        """Return the number (n,) of each row's id; missing ids are recorded as faults.

        Args:
            rows: rows of a block.
            name: column of ids.
            alone: True for a part that is read apart from the others, in which only whole numbers mean the same ids.

        Raises:
            AgainError: ids that are not whole numbers, after rows whose ids were, or with ``alone``.
        """
        import pandas as pd

        if not self._by_order:
            whole_numbers = _whole_numbers(rows, name)
            if whole_numbers is not None:
                self._read_any = True
                return whole_numbers
            self._by_order = True
            self.plain = False
            if self._read_any or alone:
                raise AgainError
        ids = rows.ids(name)
        # ``codes`` are the different codes in order of appearance, and ``places`` each row's place among them.
        places, codes = pd.factorize(ids.codes)
        id_texts = ids.ids.astype(str).astype(object)
        texts = np.append(id_texts, "")[codes].tolist()
        numbers = np.array([self._numbers.setdefault(_normal(text), len(self._numbers)) for text in texts], np.int64)
        bare = set(padded(ids.ids).values())
        self._bare |= bare
        earlier = {text for text in bare if text in self._numbers} | self._bare.intersection(texts)
        rows.refuse_two_ways(name, ids.codes, id_texts, earlier - (bare & set(texts)))
        return numbers[places]

    def by_order_met(self) -> bool:
        """Number whole numbers, too, in order of first appearance from the next pass on.

        Returns:
            True if the next pass will have other numbers; False if ids were already, or once, numbered so.
        """
        is_new = not self._by_order and not self._tried_order
        self._by_order = True
        self._tried_order = True
        return is_new

    def by_value(self) -> None:
        """Let whole numbers stand for themselves again from here on."""
        self._by_order = not self.plain

    def ranks(self) -> NDArray[np.int64] | None:
        """Return the rank (k,) of each number by its id; None if whole numbers stand for themselves.

        Ids are in numerical order if all are whole numbers, otherwise in alphabetical order.
        """
        if not self._by_order:
            return None
        texts = list(self._numbers)
        integral = all(_WHOLE.match(text) for text in texts)
        ids = np.array([int(text) for text in texts]) if integral else np.array(texts)
        order = np.argsort(ids, kind="stable")
        rank = np.empty(len(texts), np.int64)
        rank[order] = np.arange(len(texts))
        return rank

    def names(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the ids of numbers that :meth:`codes` returned."""
        if not self._by_order:
            return codes
        return np.array(list(self._numbers), object)[codes]


def _normal(text: str) -> str:
    """Return an id as it is numbered: 1.0, as pandas writes integers next to missing ones, is 1."""
    if text.endswith(".0") and _WHOLE.match(text):
        return text[:-2]
    return text


def _whole_numbers(rows: Rows, name: str) -> NDArray[np.int64] | None:
    """Read a column (n,) of integers, recording missing ones; None for any other column."""
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
        rows.note(MISSING, name, _nulls(values), "is missing")
        values = values.fill_null(0)
    return np.ascontiguousarray(values.to_numpy()).astype(np.int64, copy=False)
