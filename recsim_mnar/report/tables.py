"""Comparisons as tables: a row an agent, a column a protocol's metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recsim_mnar.protocols.compare import Comparison
from recsim_mnar.protocols.records import Record
from recsim_mnar.protocols.uplift.judgement import title

TITLES = {
    ("off_policy", "clipped_ips"): "clipped IPS",
    ("off_policy", "ips"): "IPS",
    ("off_policy", "snips"): "SNIPS",
    ("ab_test", "ctr"): "A/B CTR",
    ("ab_test", "ctr_exact"): "A/B CTR, exact",
    ("truth", "ctr"): "true CTR",
}
"""How a (protocol, metric) is headed; others are headed by their own names."""

_IN_SHORT = (("loocv", "hr@1"), ("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr"))
_OWN_DATA = (("loocv", "hr@1"), ("loocv", "hr@10"), ("loocv", "mrr@10"))


@dataclass(frozen=True)
class Grid:
    """Cells of a table.

    Attributes:
        heads: titles of the columns after the agent's.
        rows: agent and its records, one a column, None where there is none.
        best: in each column the largest value of those that can be picked (references cannot).
    """

    heads: list[str]
    rows: list[tuple[str, list[Record | None]]]
    best: list[float]


def grid(comparison: Comparison, *, full: bool = False) -> Grid:
    """Agents by metrics; ``full`` for every metric there is, otherwise one a protocol."""
    records = comparison.records
    # The reciprocal rank at 1 is the hit rate at 1: one column says it.
    there = [key for key in dict.fromkeys((r.protocol, r.metric) for r in records) if key != ("loocv", "mrr@1")]
    standard = _IN_SHORT if any(r.protocol == "truth" for r in records) else _OWN_DATA
    short = comparison.columns or standard
    keys = there if full else [key for key in short if key in there]
    agents = list(dict.fromkeys(r.agent for r in records))
    by_key = {(r.agent, r.protocol, r.metric): r for r in records}
    rows = [(agent, [by_key.get((agent, *key)) for key in keys]) for agent in agents]
    best = []
    for i in range(len(keys)):
        there_are = [
            cell.value for _, row in rows if (cell := row[i]) is not None and not cell.details.get("reference")
        ]
        best.append(max(there_are, default=float("nan")))
    return Grid([head_of(*key) for key in keys], rows, best)


def head_of(protocol: str, metric: str) -> str:
    """How a column is headed."""
    if protocol == "uplift":
        return title(metric)
    if protocol == "loocv":
        return metric.upper()
    if (protocol, metric.partition("@")[0]) == ("ab_test", "uplift"):
        return "A/B uplift"
    if (protocol, metric) == ("ab_test", "purchases"):
        return "A/B, all purchases"
    if metric.startswith("cp@"):
        return f"true uplift, {metric.upper()}"
    return TITLES.get((protocol, metric), metric)


def number(value: float) -> str:
    """Five decimals, without the leading zero that rates do not need."""
    text = f"{value:.5f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def comparison_table(comparison: Comparison) -> Any:
    """The comparison as a rich table, the largest value of a column in bold."""
    from rich.table import Table

    cells = grid(comparison)
    level = comparison.records[0].level if comparison.records else 0.95
    table = Table(title=f"value [{level:.0%} interval]", title_justify="left")
    table.add_column("agent", no_wrap=True)
    for head in cells.heads:
        table.add_column(head, justify="right", no_wrap=True)
    for agent, row in cells.rows:
        shown = []
        for record, best in zip(row, cells.best, strict=True):
            if record is None:
                shown.append("-")
                continue
            text = f"{number(record.value)} [dim]\\[{number(record.low)}, {number(record.high)}][/dim]"
            shown.append(f"[bold]{text}[/bold]" if record.value == best else text)
        table.add_row(agent, *shown)
    return table
