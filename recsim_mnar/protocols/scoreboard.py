"""The scoreboard of a comparison, for terminal and page: a table with one row per agent, and one line per protocol."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from recsim_mnar.errors import printable
from recsim_mnar.protocols.base import BUILT_IN
from recsim_mnar.protocols.records import Judgement, Record, has_interval, listed

WIDTH = 80
"""Width, in characters, of a terminal that a scoreboard fits into."""
CATALOGUES = 24
"""Number of catalogues of the study that a single comparison recommends."""
MOST_LINES = 5
"""Largest number of rankings with a line for each; of more rankings, those with the same pick share a line."""
PICKED, UNUSABLE = "*", "?"
"""Signs of the agent with the best value of a column, and of an estimate from too little data."""
_LONGEST_NAME = 22
_LONGEST_HEADING = 16
_GAP = "  "

Key = tuple[str, str]


class Scored(Protocol):
    """Input of a scoreboard: fields of a :class:`recsim_mnar.protocols.comparison.Comparison`."""

    records: list[Record]
    judgements: list[Judgement]
    columns: list[Key]
    losses: frozenset[str]
    neutral: frozenset[str]
    conclusion: list[str]
    setting: Any

    @property
    def front_notes(self) -> list[str]:
        """Sentences that follow the scoreboard."""

    def heading(self, key: Key) -> str:
        """Return the heading of the column of a protocol and metric."""


@dataclass(frozen=True)
class Cell:
    """One number of the scoreboard.

    Attributes:
        record: value and interval.
        decimals: number of decimals, the same throughout a column.
        picked: True if the column ranks this agent first.
    """

    record: Record
    decimals: int
    picked: bool

    @property
    def unusable(self) -> bool:
        """True if the log has too little data for this estimate."""
        return not self.record.usable

    @property
    def value(self) -> str:
        """The formatted value, without the zero before the point."""
        return decimal(self.record.value, self.decimals)

    @property
    def text(self) -> str:
        """The formatted value with its signs."""
        text = self.value
        if self.unusable:
            text += UNUSABLE
        if self.picked:
            return f"{PICKED} {text}"
        return text

    @property
    def half_width(self) -> str:
        """Half the width of the interval, as text; empty for the truth and for a value without an interval."""
        if self.record.protocol == "truth" or not has_interval(self.record):
            return ""
        return f"±{decimal((self.record.high - self.record.low) / 2, self.decimals)}"


@dataclass(frozen=True)
class Column:
    """One protocol's numbers, or the truth's.

    Attributes:
        key: protocol and metric.
        heading: heading of the column.
        cells: cell by agent.
        judgement: judgement of the column's ranking; None for the truth and for a ranking that is not judged.
    """

    key: Key
    heading: str
    cells: dict[str, Cell]
    judgement: Judgement | None

    @property
    def is_truth(self) -> bool:
        """True for the truth's column."""
        return self.key[0] == "truth"


@dataclass(frozen=True)
class Choice:
    """Pick of one protocol, or of several that agree.

    Attributes:
        label: names of the protocols.
        picks: the picked agent, or several with equal estimates; an unusable estimate is marked.
        result: result of the pick in words: the best, a tie, or the loss.
        outcome: one of :data:`recsim_mnar.protocols.records.OUTCOMES`.
        several: True if the label names several protocols.
    """

    label: str
    picks: str
    result: str
    outcome: str
    several: bool = False

    @property
    def verb(self) -> str:
        """The verb for the label: picks, or pick for several protocols."""
        if self.several:
            return "pick"
        return "picks"


@dataclass(frozen=True)
class Scoreboard:
    """First table of a comparison.

    Attributes:
        title: subject of the comparison.
        columns: columns of estimates in the order of the comparison, and the truth's.
        agents: names of the agents, the one with the best true value first and references last.
        choices: one choice per protocol, or per group of protocols that agree.
        notes: sentences that follow.
    """

    title: str
    columns: list[Column]
    agents: list[str]
    choices: list[Choice]
    notes: list[str]

    @property
    def marks(self) -> list[tuple[str, str]]:
        """Signs in the table, each with its meaning."""
        cells = [cell for column in self.columns for cell in column.cells.values()]
        result = []
        if any(cell.picked for cell in cells):
            result.append((PICKED, "first in its column"))
        if any(cell.unusable for cell in cells):
            result.append((UNUSABLE, "rests on too little data"))
        half_widths = [cell.record.level for cell in cells if cell.half_width]
        if half_widths:
            result.append(("±", f"half a {100 * half_widths[0]:g} % interval"))
        return result

    def headline(self) -> str:
        """Describe in one sentence the pick of each protocol and its result; "" without choices."""
        groups: dict[tuple[str, str], list[Choice]] = {}
        for choice in self.choices:
            groups.setdefault((choice.picks, choice.result), []).append(choice)
        parts = []
        for (picks, result), choices in groups.items():
            verb = choices[0].verb if len(choices) == 1 else "pick"
            parts.append(f"{listed([choice.label for choice in choices])} {verb} {picks}, {_as_clause(result)}")
        text = "; ".join(parts)
        if text:
            return f"{text[0].upper()}{text[1:]}."
        return ""

    def lines(self, width: int = WIDTH) -> list[str]:
        """Format the scoreboard as lines for a terminal of this width; rows of the table are never wrapped."""
        table = _table_lines(self, width)
        width = min(width, WIDTH)  # of sentences, which are hard to read in longer lines
        marks = textwrap.wrap("   ".join(f"{sign} {meaning}" for sign, meaning in self.marks), width)
        choices = _choice_lines(self.choices, width)
        notes = [line for note in self.notes for line in textwrap.wrap(note, width, break_on_hyphens=False)]
        blocks = [textwrap.wrap(self.title, width), [*table, *marks], [*choices, *notes]]
        result: list[str] = []
        for block in filter(None, blocks):
            if result:
                result.append("")
            result += block
        return result


def decimal(value: float, decimals: int) -> str:
    """Format a number with this number of decimals, without a zero before the point: ``.0123``."""
    text = f"{value:,.{decimals}f}"
    if text.startswith(("0.", "-0.")):
        return text.replace("0.", ".", 1)
    return text


def scoreboard(comparison: Scored) -> Scoreboard:
    """Make the scoreboard of a comparison."""
    columns = [_column(comparison, key) for key in shown_keys(comparison)]
    return Scoreboard(
        title="" if comparison.setting is None else str(comparison.setting),
        columns=columns,
        agents=agents_of(comparison, columns),
        choices=choices_of(comparison.judgements),
        notes=[*comparison.conclusion, *comparison.front_notes],
    )


def shown_keys(comparison: Scored) -> list[Key]:
    """Return the columns of a scoreboard, by (protocol, metric), in the order of the comparison, the truth last."""
    keys = comparison.columns or list(dict.fromkeys((r.protocol, r.metric) for r in comparison.records))
    truth = [key for key in keys if key[0] == "truth"][:1]
    return [*(key for key in keys if key[0] != "truth"), *truth]


def agents_of(comparison: Scored, columns: Sequence[Column]) -> list[str]:
    """Sort the agents by the truth or, without it, by the first column, the best first and references last."""
    names = list(dict.fromkeys(r.agent for r in comparison.records))
    if not columns:
        return names
    column = next((column for column in columns if column.is_truth), columns[0])
    sign = 1.0 if column.key[1] in comparison.losses else -1.0  # the best agent gets the smallest sort key
    sort_keys = {
        name: sign * cell.record.value for name, cell in column.cells.items() if math.isfinite(cell.record.value)
    }
    references = {r.agent for r in comparison.records if r.is_reference}
    return sorted(names, key=lambda name: (name in references, sort_keys.get(name, math.inf)))


def _column(comparison: Scored, key: Key) -> Column:
    """Make the column of a protocol and metric, and mark the best agents that can be picked."""
    records = [r for r in comparison.records if (r.protocol, r.metric) == key]
    judgement = next((j for j in comparison.judgements if (j.protocol, j.metric) == key), None)
    candidates = [r for r in records if math.isfinite(r.value) and not r.is_reference]
    decimals = _decimals(r.value for r in records if math.isfinite(r.value))
    best = math.nan  # equals no value, so that no cell is marked
    if len(candidates) > 1 and key[1] not in comparison.neutral:
        best_of = max
        if key[1] in comparison.losses:
            best_of = min
        best = best_of(r.value for r in candidates)
    cells = {r.agent: Cell(r, decimals, bool(r.value == best) and not r.is_reference) for r in records}
    return Column(key, comparison.heading(key), cells, judgement)


def _decimals(values: Iterable[float]) -> int:
    """Return the number of decimals of a column: four for rates, and fewer for larger numbers."""
    largest = max(map(abs, values), default=0.0)
    if largest < 1.0:
        return 4
    if largest < 10.0:
        return 3
    return 2


def choices_of(judgements: Sequence[Judgement]) -> list[Choice]:
    """List the picks of the rankings; of more than :data:`MOST_LINES` rankings, those with the same pick are merged."""
    targets = dict.fromkeys(j.target for j in judgements)
    groups: dict[tuple[str, ...], list[Judgement]] = {}
    for number, j in enumerate(judgements):
        shared_by: tuple[str, ...] = (str(number),)
        if len(judgements) > MOST_LINES:
            shared_by = (j.target, j.outcome, *j.picks, str(j.pick_unusable))
        groups.setdefault(shared_by, []).append(j)
    return [_choice(group, judgements, several_targets=len(targets) > 1) for group in groups.values()]


def _choice(group: Sequence[Judgement], judgements: Sequence[Judgement], *, several_targets: bool) -> Choice:
    """Make the choice of one ranking, or of several with the same pick.

    Args:
        group: judgements of these rankings.
        judgements: judgements of all rankings.
        several_targets: True if the rankings have different targets, which the label then names.
    """
    first = group[0]
    names = ", ".join(j.title for j in group)
    if several_targets:
        n_of_target = sum(j.target == first.target for j in judgements)
        if len(group) == n_of_target > 1:
            names = "all"
        names = f"{first.target}: {names}"
    picks = " or ".join(first.picks)
    if first.ranks_nothing:
        picks = "all alike"
    elif first.pick_unusable:
        picks = f"{picks}{UNUSABLE}"
    return Choice(names, picks, first.result, first.outcome, several=len(group) > 1)


def _as_clause(result: str) -> str:
    """Phrase a result as a clause after a comma: "loses 3 % of the clicks" becomes "which loses ..."."""
    if result.startswith(("loses", "adds", "is ")):
        return f"which {result}"
    return result


def brief(name: str) -> str:
    """Shorten a name that is too long for the table in its middle."""
    name = printable(name)
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 3) // 2
    return f"{name[: _LONGEST_NAME - 3 - half]}...{name[-half:]}"


def _table_lines(board: Scoreboard, width: int) -> list[str]:
    """Format the table; estimates that do not fit are left out, and named below.

    Protocols of the user's own stay longest, then the first column of every other protocol.
    """
    columns = list(board.columns)
    estimates = [column for column in columns if not column.is_truth]
    first = {column.key[0]: column.key for column in reversed(estimates)}
    estimates.sort(key=lambda c: (c.key[0].partition("+")[0] in BUILT_IN, c.key != first[c.key[0]]))
    rows = _rows(board, columns)
    while len(columns) > 1 and estimates and max(map(len, rows), default=0) > width:
        columns.remove(estimates.pop())
        rows = _rows(board, columns)
    left_out = [printable(column.heading) for column in board.columns if column not in columns]
    if left_out:
        text = f"Too wide for this screen: {', '.join(left_out)}. The report and frame() have them."
        rows += textwrap.wrap(text, min(width, WIDTH), break_on_hyphens=False)
    return rows


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of texts as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_GAP.join(f"{text:<{w}}" for text, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def _rows(board: Scoreboard, columns: Sequence[Column]) -> list[str]:
    """Format the headings, which may have several lines, and one line per agent."""
    heads = [textwrap.wrap(printable(c.heading), _LONGEST_HEADING, break_on_hyphens=False) or [""] for c in columns]
    tall = max(map(len, heads), default=1)
    # Shorter headings begin lower, so that all of them end directly above the numbers.
    padded = [[""] * (tall - len(head)) + head for head in heads]
    names = [*[""] * (tall - 1), "agent", *map(brief, board.agents)]
    texts = [
        [f"  {line}" for line in head] + _cell_texts(column, board.agents)
        for head, column in zip(padded, columns, strict=True)
    ]
    return aligned(list(zip(names, *texts, strict=True)))


def _cell_texts(column: Column, agents: Sequence[str]) -> list[str]:
    """Format a column's cells: mark of the pick, value aligned to the right with its sign, and half width."""
    cells = [column.cells.get(agent) for agent in agents]
    numbers = ["-" if cell is None or not math.isfinite(cell.record.value) else cell.value for cell in cells]
    width = max(map(len, numbers), default=0)
    has_unusable = any(cell is not None and cell.unusable for cell in cells)
    texts = []
    for cell, number in zip(cells, numbers, strict=True):
        mark = " "
        sign = " " * has_unusable
        half_width = ""
        if cell is not None:
            half_width = cell.half_width
            if cell.picked:
                mark = PICKED
            if cell.unusable:
                sign = UNUSABLE
        texts.append(f"{mark} {number:>{width}}{sign} {half_width}".rstrip())
    return texts


def _choice_lines(choices: Sequence[Choice], width: int) -> list[str]:
    """Format the choices in aligned columns, or as sentences if these do not fit."""
    if not choices:
        return []
    lines = aligned([(c.label, f"{c.verb} {c.picks}", c.result) for c in choices])
    if max(map(len, lines)) <= width:
        return [printable(line) for line in lines]
    sentences = [f"{c.label} {c.verb} {c.picks}: {c.result}" for c in choices]
    return [line for text in sentences for line in textwrap.wrap(printable(text), width, break_on_hyphens=False)]
