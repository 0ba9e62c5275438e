"""Comparisons as tables, one row per agent and one column per metric of a protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from recsim_mnar.errors import printable
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record

BIASED = "* Outside its interval, which is of the true value: what the clip cuts away is more than chance explains."
_MOST_INTERVALS = 6
"""Columns of a table on a screen that has room for intervals next to its values; the report has them always."""


@dataclass(frozen=True)
class Grid:
    """Cells of a table.

    Attributes:
        heads: titles of the columns after the agent's.
        rows: agent and its records, one per column, None where there is none.
        best: in each column the best value of those that can be picked (references cannot); NaN where none is better,
            or where the best one must not be used, so that the column picks nobody.
    """

    heads: list[str]
    rows: list[tuple[str, list[Record | None]]]
    best: list[float]


def grid(comparison: Comparison, *, full: bool = False) -> Grid:
    """Agents by metrics; ``full`` for every metric there is, otherwise those of the comparison's short table."""
    records = comparison.records
    # The reciprocal rank at 1 is the hit rate at 1: one column says it.
    there = [key for key in dict.fromkeys((r.protocol, r.metric) for r in records) if key != ("loocv", "mrr@1")]
    keys = there if full or not comparison.columns else [key for key in comparison.columns if key in there]
    agents = list(dict.fromkeys(r.agent for r in records))
    by_key = {(r.agent, r.protocol, r.metric): r for r in records}
    rows = [(agent, [by_key.get((agent, *key)) for key in keys]) for agent in agents]
    best = [
        math.nan if key[1] in comparison.neutral else _best([row[i] for _, row in rows], key[1] in comparison.losses)
        for i, key in enumerate(keys)
    ]
    return Grid([heading(comparison, key) for key in keys], rows, best)


def heading(comparison: Comparison, key: tuple[str, str]) -> str:
    """How a column is headed."""
    return comparison.headings.get(key, key[1] if key[0] in ("truth", "loocv") else " ".join(key))


def _best(cells: list[Record | None], loss: bool) -> float:
    """The best value of those that can be picked."""
    known = [c for c in cells if c is not None and math.isfinite(c.value)]
    known = [c for c in known if not (c.covers or c.details.get("reference"))]
    first = (min if loss else max)(known, key=lambda c: c.value, default=None)
    return math.nan if first is None or first.forbidden else first.value


def has_interval(record: Record) -> bool:
    """Whether it is an estimate: a fact of what was listed has no interval."""
    return not (math.isnan(record.low) and math.isnan(record.high))


def number(value: float) -> str:
    """Five decimals, without the leading zero that rates do not need."""
    text = f"{value:.5f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def comparison_table(comparison: Comparison) -> Any:
    """The comparison as a rich table, the best value of a column in bold."""
    from rich.markup import escape
    from rich.table import Table

    cells = grid(comparison)
    level = comparison.records[0].level if comparison.records else 0.95
    narrow = len(cells.heads) <= _MOST_INTERVALS
    title = f"value [{level:.0%} interval]" if narrow else "value"
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("agent", no_wrap=True)
    for head in cells.heads:
        table.add_column(escape(printable(head)), justify="right", no_wrap=narrow)
    for agent, row in cells.rows:
        shown = []
        for record, best in zip(row, cells.best, strict=True):
            if record is None:
                shown.append("-")
                continue
            if record.covers:
                shown.append(record.covers)
                continue
            limits = f" [dim]\\[{number(record.low)}, {number(record.high)}][/dim]"
            table.caption = BIASED if record.biased else table.caption
            text = number(record.value) + "*" * record.biased + (limits if narrow and has_interval(record) else "")
            shown.append(f"[bold]{text}[/bold]" if record.value == best else text)
        table.add_row(escape(printable(agent)), *shown)
    return table
