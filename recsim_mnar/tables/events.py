"""Which rows of a file are recommendations and which are views, by what a column of events says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.tables.rows import Rows

VIEWS = ("organic", "view", "views", "viewed", "pageview", "page_view", "item_view", "detail", "0", "false")
"""What a view may be called, in lower case."""
SHOWN = (
    *("bandit", "recommendation", "recommendations", "recommended", "recommend", "impression", "exposure", "shown"),
    *("show", "served", "1", "true"),
)
"""What a recommendation may be called."""


@dataclass(frozen=True)
class Events:
    """What the rows of a file are.

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

    def line(self) -> list[str]:
        """A line about rows that are neither, if there are any."""
        listed = f" ({', '.join(self.words[:5])})" if self.words else ""
        return [f"{self.others:,} rows are neither views nor recommendations{listed}: left out"] if self.others else []


def events_of(rows: Rows, name: str) -> Events:
    """What a column of events says; nothing in it is a fault.

    Args:
        rows: of a file.
        name: of the column.
    """
    quiet = Rows(rows.source, rows.table.select([name]), rows.decimal)
    events = quiet.ids(name)
    words = [str(each).strip().lower() for each in events.ids]
    shown = np.array([*(word in SHOWN for word in words), False], np.bool_)
    viewed = np.array([*(word in VIEWS for word in words), False], np.bool_)
    other = [word for word in words if word not in SHOWN and word not in VIEWS]
    return Events(shown[events.codes], viewed[events.codes], other)
