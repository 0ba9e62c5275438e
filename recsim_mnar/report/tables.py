"""Every metric of a comparison as a table: one row per agent and one column per metric of a protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass

from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record


@dataclass(frozen=True)
class Grid:
    """Cells of a table.

    Attributes:
        heads: titles of the columns after the agent's.
        rows: agent and its records, one per column, None where there is none.
        best: in each column the best value of those that can be picked; NaN where none is better.
    """

    heads: list[str]
    rows: list[tuple[str, list[Record | None]]]
    best: list[float]


def grid(comparison: Comparison) -> Grid:
    """Agents by every metric there is."""
    records = comparison.records
    # The reciprocal rank at 1 is the hit rate at 1: one column says it.
    keys = [key for key in dict.fromkeys((r.protocol, r.metric) for r in records) if key != ("loocv", "mrr@1")]
    agents = list(dict.fromkeys(r.agent for r in records))
    by_key = {(r.agent, r.protocol, r.metric): r for r in records}
    rows = [(agent, [by_key.get((agent, *key)) for key in keys]) for agent in agents]
    best = [
        math.nan if key[1] in comparison.neutral else _best([row[i] for _, row in rows], key[1] in comparison.losses)
        for i, key in enumerate(keys)
    ]
    return Grid([comparison.heading(key) for key in keys], rows, best)


def _best(cells: list[Record | None], loss: bool) -> float:
    """The best value of those that can be picked."""
    values = [c.value for c in cells if c is not None and math.isfinite(c.value) and not c.is_reference]
    if not values:
        return math.nan
    return min(values) if loss else max(values)


def number(value: float) -> str:
    """Five decimals, without the leading zero that rates do not need."""
    text = f"{value:.5f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text
