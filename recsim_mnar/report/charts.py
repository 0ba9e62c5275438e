"""The report's charts: text of a page that stretches with it, in the page's own inks; one module has the style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

from recsim_mnar.errors import visible

COLOURS = 9
"""Agents' colours that a page has, as classes ``a0`` and on; see ``style.css``."""
OWN_COLOURS = {
    "svd": "a0",
    "user-knn": "a1",
    "item-knn": "a2",
    "user-popularity": "a3",
    "popularity": "a4",
    "random": "a8",
}
"""Of recommenders that most comparisons show."""
INK = "ink"
"""The class of what is known, and of what is no agent's."""
_LONGEST = 32
_STEPS = (1.0, 2.0, 5.0, 10.0)
_TICKS = 4
MANY_TICKS = 6
"""Of a chart that has the whole width."""
_APART = 2.5
"""Per cent of the width between dots that do not hide each other, also on a narrow screen."""
_ENDS_APART = 28.0
"""Per cent of the width between labels of an interval's ends that do not touch each other on a narrow screen."""
_SHORT = 3
"""Letters of a tick's label that has room beyond the chart's end."""
_CURVES = 170
"""Height of a chart of lines, in pixels."""


@dataclass(frozen=True)
class Chart:
    """A chart of a page.

    Attributes:
        title: its heading, best a sentence with what it shows.
        body: HTML.
        caption: how to read it.
        folded: whether the page shows it only when it is asked for.
    """

    title: str
    body: str
    caption: str
    folded: bool = True


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """One class per name, the same wherever a page shows it, and of :data:`OWN_COLOURS` on all pages.

    There are :data:`COLOURS`; then they begin again.
    """
    names = dict.fromkeys(names)
    own = {name: OWN_COLOURS[name] for name in names if name in OWN_COLOURS}
    free = [f"a{place}" for place in range(COLOURS) if f"a{place}" not in own.values()]
    others = {name: free[place % len(free)] for place, name in enumerate(name for name in names if name not in own)}
    return {name: own.get(name) or others[name] for name in names}


def short(name: str) -> str:
    """A name as a chart has room for it."""
    name = visible(name)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-(_LONGEST // 2 - 1) :]}"


class Unit(NamedTuple):
    """How numbers of a chart are written.

    Attributes:
        factor: they are multiplied by.
        ending: that follows them.
        signed: whether positive ones have their sign.
        bare: whether a rate has no zero before its point.
        quantity: what is measured; panels of one quantity share their axis.
    """

    factor: float = 1.0
    ending: str = ""
    signed: bool = False
    bare: bool = False
    quantity: str = ""

    def text(self, value: float, step: float) -> str:
        """A number with as many decimals as ``step``, the least that matters, has."""
        shown = value * self.factor
        text = f"{shown:,.{max(0, -math.floor(math.log10(step * self.factor) + 1e-9))}f}"
        text = text if float(text.replace(",", "")) else text.lstrip("-")
        if self.bare and text.startswith(("0.", "-0.")):
            text = text.replace("0.", ".", 1)
        return f"{'+' if self.signed and float(text.replace(',', '')) > 0 else ''}{text}{self.ending}".replace(
            "-", "\N{MINUS SIGN}"
        )

    def tick(self, value: float, axis: Axis) -> str:
        """A tick's label; of powers of ten a short one."""
        if not axis.log:
            return self.text(value, axis.step)
        for size, letter in ((1e6, "M"), (1e3, "k")):
            if value >= size:
                return f"{value / size:,.0f}{letter}"
        return f"{value:g}"


PER_CENT = Unit(100.0, " %")
CHANGE = Unit(100.0, " %", True)
PLAIN = Unit()


@dataclass(frozen=True)
class Axis:
    """Where numbers are across a chart.

    Attributes:
        low, high: its ends.
        ticks: numbers with a line and a label.
        log: whether equal ratios take equal room.
    """

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """In per cent of the width, within it."""
        low, high, at = (math.log(max(x, 1e-300)) if self.log else x for x in (self.low, self.high, value))
        return min(max(100.0 * (at - low) / (high - low), 0.0), 100.0)

    @property
    def step(self) -> float:
        """Between ticks."""
        return self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else (self.high - self.low) / _TICKS


def axis_of(low: float, high: float, most: int = _TICKS) -> Axis:
    """An axis with a few round ticks, about ``most``, that holds both ends."""
    if not high > low:
        low, high = low - abs(low or 1.0) / 2, high + abs(high or 1.0) / 2
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * nice for nice in _STEPS if size * nice >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    ticks = [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return Axis(low, high, tuple(ticks))


def log_axis(low: float, high: float) -> Axis:
    """An axis of powers of ten, at most six of them named."""
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    every = max(1, math.ceil((last - first) / 5))
    ticks = tuple(10.0**power for power in range(first, last + 1, every) if low <= 10.0**power <= high)
    return Axis(low, high, ticks, log=True)


@dataclass(frozen=True)
class Dot:
    """A row of a chart of dots.

    Attributes:
        name: of the row.
        value: of the dot; NaN for none.
        low, high: ends of its interval, NaN for none; outside the chart they are cut with an arrow.
        colour: a class.
        hollow: whether it is not to be used.
        known: a number that is marked across the row; None for none.
        cloud: further values, small, and whether each is hollow.
        words: in the place of the value's text.
        note: below the name, in small letters; a line each.
        labelled: whether the ends of its interval are written at them.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    colour: str = INK
    hollow: bool = False
    known: float | None = None
    cloud: Sequence[tuple[float, bool]] = ()
    words: str = ""
    note: str = ""
    labelled: bool = False

    def numbers(self) -> list[float]:
        """That the chart must have room for."""
        found = [self.value, *(value for value, _ in self.cloud), *(() if self.known is None else (self.known,))]
        return [number for number in found if math.isfinite(number)]


def room_for(dots: Sequence[Dot]) -> Axis:
    """The axis that shows dots, and intervals as far as half the spread of the dots beyond them.

    It does not begin below 0 where no number does.
    """
    numbers = [number for dot in dots for number in dot.numbers()] or [0.0, 1.0]
    low, high = min(numbers), max(numbers)
    beyond = 0.5 * ((high - low) or abs(high) or 1.0)
    ends = [end for dot in dots for end in (dot.low, dot.high) if math.isfinite(end)]
    low, high = (
        max(low - beyond, min([low, *ends])) - 0.1 * beyond,
        min(high + beyond, max([high, *ends])) + 0.1 * beyond,
    )
    return axis_of(max(low, 0.0) if min([*numbers, *ends]) >= 0.0 else low, high)


def dots(rows: Sequence[Dot], unit: Unit, axis: Axis | None = None) -> str:
    """One row per name: its dot, its interval and its number."""
    axis = room_for(rows) if axis is None else axis
    largest = max((abs(row.value) for row in rows if math.isfinite(row.value)), default=0.0) or 1.0
    step = 10.0 ** (math.floor(math.log10(largest)) - 2)
    lines = [_row(row, unit.text(row.value, step) if math.isfinite(row.value) else "", axis, unit) for row in rows]
    return f'<div class="dots">{"".join(lines)}{_scale(axis, unit)}</div>'


def _row(row: Dot, number: str, axis: Axis, unit: Unit) -> str:
    ends = _ends(row, axis, unit) if row.labelled else ""
    track = f'<svg class="track" aria-hidden="true">{marks(row, axis)}{ends}</svg>'
    track += f'<svg class="lines" aria-hidden="true">{grid(axis)}</svg>'
    kind = f"{row.colour}{' clouded' if row.cloud else ''}{' labelled' if ends else ''}"
    return (
        f'<div class="row {kind}">{_name(row.name, row.note)}'
        f'<span class="value">{escape(visible(row.words or number))}</span>{track}</div>'
    )


def _name(name: str, note: str) -> str:
    more = "".join(f" <small>{escape(visible(line))}</small>" for line in note.split("\n") if line)
    return f'<span class="name">{escape(short(name))}{more}</span>'


def grid(axis: Axis) -> str:
    """Lines at the ticks; that of 0 is the stronger one."""
    return "".join(
        f'<line class="{"zero" if tick == 0 else "grid"}" x1="{axis.place(tick):.2f}%" x2="{axis.place(tick):.2f}%" '
        f'y1="0" y2="100%"/>'
        for tick in axis.ticks
    )


def marks(row: Dot, axis: Axis) -> str:
    """A row's dot, interval and further marks, without the lines of the grid."""
    made = _cloud(row, axis)
    if row.known is not None and math.isfinite(row.known):
        made.append(_at(axis.place(row.known), '<line class="known" y1="-9" y2="9"/>'))
    if math.isfinite(row.value) and not axis.low <= row.value <= axis.high:
        out, tip = (axis.low, 8) if row.value < axis.low else (axis.high, -8)
        made.append(_at(axis.place(out), f'<path class="arrow" d="M{tip},-5 L0,0 L{tip},5 M0,0 H{3 * tip}"/>'))
    elif math.isfinite(row.value):
        made.append(_whisker(row, axis))
        hollow = " hollow" if row.hollow else ""
        made.append(f'<circle class="dot{hollow}" cx="{axis.place(row.value):.2f}%" cy="50%" r="5"/>')
    return "".join(made)


def _cloud(row: Dot, axis: Axis) -> list[str]:
    """A row's further values below and above its own dot, those that would hide each other farther away."""
    made, taken = [], list[tuple[float, int]]()
    for value, hollow in sorted(row.cloud):
        place = axis.place(value)
        near = {level for at, level in taken if place - at < _APART}
        level = next(level for level in range(len(taken) + 1) if level not in near)
        taken.append((place, level))
        y = (10 + 6 * (level // 2 % 3)) * (-1 if level % 2 else 1)
        made.append(_at(place, f'<circle class="cloud{" hollow" if hollow else ""}" cy="{y}" r="3"/>'))
    return made


def _at(place: float, mark: str) -> str:
    """A mark of pixels in the middle of a track that has its places in per cent."""
    return f'<svg x="{place:.2f}%" y="50%" overflow="visible">{mark}</svg>'


def _whisker(row: Dot, axis: Axis) -> str:
    if math.isnan(row.low) or math.isnan(row.high):
        return ""
    ends = [axis.place(end) for end in (row.low, row.high)]
    made = f'<line class="whisker" x1="{ends[0]:.2f}%" x2="{ends[1]:.2f}%" y1="50%" y2="50%"/>'
    for place, cut, tip in ((ends[0], row.low < axis.low, 6), (ends[1], row.high > axis.high, -6)):
        if cut:
            made += _at(place, f'<path class="arrow" d="M{tip},-4 L0,0 L{tip},4"/>')
    return made


def _ends(row: Dot, axis: Axis, unit: Unit) -> str:
    """The ends of an interval as text below them, where they are within the chart and apart."""
    ends = [end for end in (row.low, row.high) if axis.low <= end <= axis.high]
    if len(ends) < 2 or axis.place(row.high) - axis.place(row.low) < _ENDS_APART:
        return ""
    step = 10.0 ** (math.floor(math.log10(max(abs(end) for end in ends) or 1.0)) - 2)

    def label(end: float) -> str:
        place = axis.place(end)
        anchor = ("start", "middle", "end")[(place > 10) + (place > 90)]
        return _at(place, f'<text y="19" text-anchor="{anchor}">{escape(unit.text(end, step))}</text>')

    return "".join(map(label, ends))


def _scale(axis: Axis, unit: Unit) -> str:
    """Labels of the ticks, each under its line, those at the ends within the chart."""
    return f'<svg class="track scale" height="16" aria-hidden="true">{labels(axis, unit, 12)}</svg>'


def labels(axis: Axis, unit: Unit, y: float) -> str:
    """The ticks' numbers as SVG text, under their lines, long ones at the ends within the chart."""
    ends = {0: "start", 1: "middle", 2: "end"}

    def label(tick: float) -> str:
        text, place = unit.tick(tick, axis), axis.place(tick)
        anchor = 1 if len(text) <= _SHORT else (place > 3) + (place > 97)
        return f'<text x="{place:.2f}%" y="{y:g}" text-anchor="{ends[anchor]}">{text}</text>'

    return "".join(map(label, axis.ticks))


@dataclass(frozen=True)
class Panel:
    """Dots under a heading of their own, next to others.

    Attributes:
        title: of the panel.
        says: a line below it.
        rows: its dots.
        unit: of its numbers.
    """

    title: str
    says: str
    rows: Sequence[Dot]
    unit: Unit = PER_CENT


def _to_a_tick(axis: Axis) -> Axis:
    """The axis with a tick at its upper end."""
    last = axis.ticks[-1] if axis.ticks else axis.high
    more = last + axis.step
    return axis if axis.high <= last or len(axis.ticks) < 2 else Axis(axis.low, more, (*axis.ticks, more))


def panels(shown: Sequence[Panel]) -> str:
    """Panels of dots side by side where there is room; those of one unit have one axis."""
    made = []
    for one in shown:
        axis = _to_a_tick(room_for([row for each in shown if each.unit == one.unit for row in each.rows]))
        head = f"<h3>{escape(visible(one.title))}</h3>"
        head += f"<p>{escape(visible(one.says)) or '&nbsp;'}</p>" if any(each.says for each in shown) else ""
        made.append(f'<div class="panel">{head}{dots(one.rows, one.unit, axis)}</div>')
    return f'<div class="panels">{"".join(made)}</div>'


def shares(
    rows: Mapping[str, Mapping[str, float]], kinds: Mapping[str, str], notes: Mapping[str, str] | None = None
) -> str:
    """One bar per name, divided into kinds, each with its share written in it.

    Args:
        rows: by name, by kind its share.
        kinds: by kind the class of its colour, in order.
        notes: by name what follows it.
    """
    made = []
    for name, parts in rows.items():
        bars = "".join(
            f'<span class="part {colour}" style="flex:{parts[kind]:.4f} 1 0">{_share(kind, parts[kind])}</span>'
            for kind, colour in kinds.items()
            if parts.get(kind)
        )
        made.append(f'<div class="row">{_name(name, (notes or {}).get(name, ""))}<span class="bar">{bars}</span></div>')
    return f'<div class="dots shares">{"".join(made)}</div>'


def _share(kind: str, share: float) -> str:
    return f"{escape(kind)} {share:.0%}" if share > 0.24 else f"{share:.0%}" if share > 0.07 else ""


@dataclass(frozen=True)
class Curve:
    """A line of a chart.

    Attributes:
        name: written at its end.
        values: one per place along the axis.
        colour: a class.
        dashed: whether it is not drawn through.
    """

    name: str
    values: Sequence[float]
    colour: str = INK
    dashed: bool = False


@dataclass(frozen=True)
class Plot:
    """What curves are drawn in.

    Attributes:
        places: one per value, from 0 at the left to 1 at the right.
        ticks: labels below, by place.
        unit: of the values.
        band: ends of a band behind them, or nothing.
        below: what is along the axis.
    """

    places: Sequence[float]
    ticks: Sequence[tuple[float, str]]
    unit: Unit = PLAIN
    band: tuple[Sequence[float], Sequence[float]] = ((), ())
    below: str = ""


def curves(lines: Sequence[Curve], plot: Plot) -> str:
    """Lines with their names at their ends, over an axis from 0 or from the least value."""
    numbers = [v for one in lines for v in one.values] + [v for end in plot.band for v in end]
    axis = axis_of(min([0.0, *numbers]), max(numbers) * 1.05 if max(numbers) > 0 else 1.0)

    def y(value: float) -> float:
        return 100.0 - axis.place(value)

    def path(values: Sequence[float]) -> str:
        return " ".join(f"{100 * x:.2f},{y(v):.2f}" for x, v in zip(plot.places, values, strict=True))

    low, high = plot.band
    drawn = ""
    if len(low):
        back = " ".join(reversed(path(low).split()))
        drawn = f'<polygon class="band" points="{path(high)} {back}"/>'
    for one in lines:
        drawn += f'<polyline class="{one.colour}{" dashed" if one.dashed else ""}" points="{path(one.values)}"/>'
    grids = "".join(
        f'<line class="grid" x1="0" x2="100%" y1="{y(t):.2f}%" y2="{y(t):.2f}%"/>'
        f'<text x="0" y="{y(t):.2f}%" dy="-3">{plot.unit.tick(t, axis)}</text>'
        for t in axis.ticks
    )
    ends = {True: "start", False: "end"}
    below = "".join(
        f'<text x="{100 * x:.2f}%" y="{_CURVES + 16}" '
        f'text-anchor="{"middle" if 0.06 < x < 0.94 else ends[x < 0.5]}">{escape(label)}</text>'
        for x, label in plot.ticks
    )
    inner = (
        f'<svg height="{_CURVES}" width="100%" viewBox="0 0 100 100" preserveAspectRatio="none">{drawn}</svg>'
        f'<svg height="{_CURVES}" width="100%">{grids}</svg>'
    )
    named = "".join(
        f'<span class="{one.colour}{" dashed" if one.dashed else ""}">{escape(visible(one.name))}</span>'
        for one in lines
    )
    axis_name = f'<p class="below">{escape(visible(plot.below))}</p>' if plot.below else ""
    return (
        f'<div class="curves"><p class="names">{named}</p>'
        f'<svg class="plot" width="100%" height="{_CURVES + 20}" aria-hidden="true">{inner}{below}</svg>'
        f"{axis_name}</div>"
    )


@dataclass(frozen=True)
class Histogram:
    """How often numbers occur.

    Attributes:
        name: of what.
        words: that follow it.
        edges: (b + 1,) of the bins, positive and ascending.
        counts: (b,) in them.
        colour: a class.
    """

    name: str
    words: str
    edges: Sequence[float]
    counts: Sequence[int]
    colour: str = INK


def histograms(drawn: Sequence[Histogram], line: tuple[float, str] | None = None) -> str:
    """Histograms below each other on one axis of ratios, their heights by the logarithm of the counts.

    Args:
        drawn: at least one.
        line: a number to be marked where it is among the others, and its name.
    """
    low, high = min(one.edges[0] for one in drawn), max(one.edges[-1] for one in drawn)
    axis = log_axis(low, max(high, low * 1.01))
    tallest = math.log1p(max(max(one.counts) for one in drawn))
    made = []
    for one in drawn:
        bars = "".join(_bar(axis, a, b, 36 * math.log1p(count) / tallest) for a, b, count in
                       zip(one.edges, one.edges[1:], one.counts, strict=False) if count)  # fmt: skip
        if line is not None and low < line[0] <= high:
            x = axis.place(line[0])
            bars += f'<line class="known" x1="{x:.2f}%" x2="{x:.2f}%" y1="0" y2="40"/>'
            bars += (
                f'<text x="{x:.2f}%" y="11" dx="{-4 if x > 70 else 4}" text-anchor="{"end" if x > 70 else "start"}">'
            )
            bars += f"{escape(line[1])}</text>"
        made.append(
            f'<div class="row {one.colour}"><p><b>{escape(short(one.name))}</b>{escape(visible(one.words))}</p>'
            f'<svg class="track" height="40" aria-hidden="true">{grid(axis)}{bars}</svg></div>'
        )
    return f'<div class="dots histograms">{"".join(made)}{_scale(axis, PLAIN)}</div>'


def _bar(axis: Axis, low: float, high: float, height: float) -> str:
    x, width = axis.place(low), max(axis.place(high) - axis.place(low), 0.3)
    return f'<rect x="{x:.2f}%" width="{width:.2f}%" y="{40 - height:.1f}" height="{height:.1f}"/>'
