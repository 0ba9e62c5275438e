"""Which rows of a file are recommendations and which are views, by what a column of events says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.tables.faults import in_rows

VIEWS = ("organic", "view", "views", "viewed", "pageview", "page_view", "item_view", "detail", "0", "false")
"""What a view may be called, in lower case."""
SHOWN = (
    *("bandit", "recommendation", "recommendations", "recommended", "recommend", "impression", "exposure", "shown"),
    *("show", "served", "1", "true"),
)
"""What a recommendation may be called."""


@dataclass(frozen=True)
class Events:
    """What the rows of a file, or of a block of it, are.

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
        """What a pyarrow column of words, codes (0, 1) or truth values says; nothing in it is a fault."""
        import pyarrow as pa

        shown, viewed, words = [np.zeros(0, np.bool_)], [np.zeros(0, np.bool_)], dict[str, None]()
        if pa.types.is_nested(column.type):
            return Events(np.zeros(len(column), np.bool_), np.zeros(len(column), np.bool_), [str(column.type)])
        for chunk in column.chunks:  # a look at each word instead of at each row
            encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            met = [_word(each) for each in encoded.dictionary.to_pylist()]
            codes = np.asarray(encoded.indices.fill_null(len(met)) if encoded.null_count else encoded.indices)
            shown.append(np.array([*(word in SHOWN for word in met), False], np.bool_)[codes])
            viewed.append(np.array([*(word in VIEWS for word in met), False], np.bool_)[codes])
            words |= dict.fromkeys(word for word in met if word and word not in SHOWN and word not in VIEWS)
        return Events(np.concatenate(shown), np.concatenate(viewed), list(words))


def _word(value: Any) -> str:
    """A value of the column in lower case; whole numbers without a point."""
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    return "" if value is None else str(value).strip().lower()


def others_in_words(number: int, words: list[str]) -> list[str]:
    """A line about rows that are neither, if there are any."""
    listed = f" ({', '.join(words[:5])})" if words else ""
    are = "is" if number == 1 else "are"
    return [f"{in_rows(number)} {are} neither views nor recommendations{listed}: left out"] if number else []


def without_recommendations(words: list[str], column: str) -> str:
    """Why a column of events marks no recommendation."""
    if not words:
        return f"its column {column!r} says so, and nothing was recommended in it"
    listed = ", ".join(words[:5]) + (", ..." if len(words) > 5 else "")
    return f"its column {column!r} holds {listed}; write bandit (or 1) where something was recommended"
