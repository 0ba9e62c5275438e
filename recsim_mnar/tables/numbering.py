"""Ids of users and items, numbered alike in all blocks of a file."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.tables.faults import MISSING
from recsim_mnar.tables.ids import padded
from recsim_mnar.tables.rows import Rows


class AgainError(Exception):
    """What was learnt of a file on the way makes another pass over it necessary, from its first row."""


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
        self._rank: NDArray[np.int64] | None = None

    def codes(self, rows: Rows, name: str, *, alone: bool = False) -> NDArray[np.int64]:
        """(n,) the number of each row's id; what is missing is noted as a fault.

        Raises:
            AgainError: the ids are no whole numbers, though earlier ones were, or though the table is ``alone``, a
                part whose numbers mean nothing in the others.
        """
        import pandas as pd

        if not self._met:
            found = _whole_numbers(rows, name)
            if found is not None:
                self._asked = True
                return found
            self._met, self.plain = True, False
            if self._asked or alone:
                raise AgainError
        ids = rows.ids(name)
        met, places = pd.factorize(ids.codes)
        texts = np.append(ids.ids.astype(str), "")[places].tolist()
        given = [self._given.setdefault(_normal(text), len(self._given)) for text in texts]
        bare = set(padded(ids.ids).values())
        self._bare |= bare
        earlier = {text for text in bare if text in self._given} | (self._bare and self._bare.intersection(texts))
        rows.refuse_two_ways(name, ids.codes, ids.ids.astype(str).astype(object), earlier - (bare & set(texts)))
        numbers = np.array(given, np.int64)
        return (numbers if self._rank is None else self._rank[numbers])[met]

    def by_order_met(self) -> bool:
        """From here on number whole numbers as they are met; whether that is new."""
        new, self._met = not self._met and not self._tried, True
        self._tried = True
        return new

    def by_value(self) -> bool:
        """From here on let whole numbers stand for themselves again; whether they are that."""
        self._met = not self.plain
        return self.plain

    def rank(self) -> None:
        """From here on number ids in their order: of numbers, where all are, else of the alphabet."""
        texts = list(self._given)
        whole = all(_WHOLE.match(text) for text in texts)
        order = np.argsort(np.array([int(text) for text in texts]) if whole else np.array(texts), kind="stable")
        self._rank = np.empty(len(texts), np.int64)
        self._rank[order] = np.arange(len(texts))

    def names(self, codes: NDArray[Any]) -> NDArray[Any]:
        """The ids of numbers that :meth:`codes` gave."""
        return codes if not self._met else np.array(list(self._given), object)[codes]


def _normal(text: str) -> str:
    """An id as it is numbered: 1.0, as pandas writes integers among which some are missing, is 1."""
    return text[:-2] if text.endswith(".0") and _WHOLE.match(text) else text


def _whole_numbers(rows: Rows, name: str) -> NDArray[np.int64] | None:
    """A column (n,) of integers as it stands, missing ones noted; None for any other column."""
    import pyarrow as pa

    kind = rows.table.column(name).type
    if not pa.types.is_integer(kind) or pa.types.is_uint64(kind):
        return None
    values = rows.column(name)
    if values.null_count:
        rows.note(MISSING, name, values.is_null().to_numpy(zero_copy_only=False), "is missing")
        values = values.fill_null(0)
    return np.ascontiguousarray(values.to_numpy()).astype(np.int64, copy=False)
