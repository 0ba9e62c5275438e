"""Comparisons as tables, one row per agent and one column per metric of a protocol, and as a first sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recsim_mnar.errors import printable
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import COSTS, INDISTINGUISHABLE, Judgement, Record, half_width, headline

_MOST_INTERVALS = 6
"""Columns of a table on a screen that has room for intervals next to its values; the report has them always."""


@dataclass(frozen=True)
class Grid:
    """Cells of a table.

    Attributes:
        heads: titles of the columns after the agent's.
        rows: agent and its records, one per column, None where there is none.
        best: in each column the best value of those that can be picked (references cannot); NaN where none is better.
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
    values = [c.value for c in cells if c is not None and not (c.covers or c.details.get("reference"))]
    return (min if loss else max)(values, default=float("nan"))


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
    table = Table(title=f"value [{level:.0%} interval]" if narrow else "value", title_justify="left")
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
            text = number(record.value) + (limits if narrow and has_interval(record) else "")
            shown.append(f"[bold]{text}[/bold]" if record.value == best else text)
        table.add_row(escape(printable(agent)), *shown)
    return table


DEEPEST = 0.10
"""Share of the best value at which the colour of a cost is deepest."""


@dataclass(frozen=True)
class Headline:
    """The first lines of a report.

    Attributes:
        sentence: what was found.
        sure: how sure it is.
    """

    sentence: str
    sure: str


def headline_of(comparison: Comparison) -> Headline | None:
    """The headline; None if no truth judges the protocols."""
    judgements = comparison.judgements
    if not judgements:
        return None
    first = judgements[0]
    truths = _truths(comparison, first)
    of_first = [j for j in judgements if (j.target, j.best) == (first.target, first.best)]
    sentence = comparison.headline or headline(of_first, _in_truth)
    return Headline(sentence, _how_sure(truths, first))


def _in_truth(judgement: Judgement) -> str:
    return f"{judgement.best} has the best true {judgement.target}, {judgement.best_truth:.4g}"


def _truths(comparison: Comparison, judgement: Judgement) -> list[Record]:
    """True values of what the judgement is about, of those that can be picked."""
    records = [r for r in comparison.records if r.protocol == "truth" and not r.details.get("reference")]
    metrics = [r.metric for r in records if r.agent == judgement.best and abs(r.value - judgement.best_truth) <= 0.0]
    return [r for r in records if metrics and r.metric == metrics[0]]


def _how_sure(truths: Sequence[Record], judgement: Judgement) -> str:
    """Whether the truth separates the best from the one that comes nearest to it."""
    best = next((r for r in truths if r.agent == judgement.best), None)
    others = [r for r in truths if r.agent != judgement.best]
    if best is None or not others:
        return "How sure: one agent alone has a true value, so there is nothing to compare."
    second = min(others, key=lambda r: abs(r.value - best.value))
    gap, width = abs(best.value - second.value), half_width(best, second)
    known = f"in truth {best.agent} and the next, {second.agent}, differ by {_size(gap, best.value)}"
    if width == 0.0:
        return f"How sure: {known}, which is known exactly."
    within = f"{known}, known to within {_size(width, best.value)}"
    if gap > width:
        return f"How sure: {within}. So their order is certain on this catalogue."
    return f"How sure: {within}. So either of the two may be the better one."


def _size(difference: float, value: float) -> str:
    """As a share of the value, or in its unit where that is 0."""
    return f"{difference:.2g}" if value == 0.0 else f"{100 * difference / abs(value):.2g} %"


def state(judgement: Judgement) -> str:
    """One of three: best, tied with the best, or the cost of the pick."""
    if judgement.outcome == COSTS:
        return f"Costs {judgement.loss}"
    return "Tied with the best" if judgement.outcome == INDISTINGUISHABLE else "Best"


def shade(judgement: Judgement) -> int:
    """How deep a cost is coloured, 6 to 32 in a hundred."""
    share = DEEPEST if judgement.cost_share is None else min(judgement.cost_share, DEEPEST)
    return 6 + round(26 * share / DEEPEST)
