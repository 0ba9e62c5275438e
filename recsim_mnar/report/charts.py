"""The report's charts: where their numbers stand; ``charts.html`` draws them, in the page's own inks."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from recsim_mnar.errors import visible

if TYPE_CHECKING:
    from jinja2 import Environment

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


@functools.cache
def environment() -> Environment:
    """Create what renders the templates next to this module; their texts have control characters as escapes."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("recsim_mnar.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"anchor": anchor_of, "whole": "{:,}".format, "short": short, "step": least_step}
    made.tests["finite"] = _is_finite
    made.globals["plain"] = PLAIN
    return made


def _shown(value: Any) -> Any:
    """Escape a text's control characters and marks of direction for a page."""
    if type(value) is str:
        return visible(value, keep="\n")
    return value


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def drawn(macro: str, *arguments: Any) -> str:
    """Draw by a macro of ``charts.html``."""
    return str(getattr(environment().get_template("charts.html").module, macro)(*arguments))


def anchor_of(place: float, margin: float) -> str:
    """Side by which a label hangs at its place, so that it is within the chart; both in per cent of the width."""
    if place <= margin:
        return "start"
    if place > 100.0 - margin:
        return "end"
    return "middle"


def least_step(numbers: Iterable[float]) -> float:
    """The least that matters of numbers: their largest has three digits."""
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    return float(10.0 ** (math.floor(math.log10(largest or 1.0)) - 2))


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """One class per name, the same wherever a page shows it, and of :data:`OWN_COLOURS` on all pages.

    There are :data:`COLOURS`; then they begin again.
    """
    names = dict.fromkeys(names)
    own_colours = {name: OWN_COLOURS[name] for name in names if name in OWN_COLOURS}
    free = [f"a{place}" for place in range(COLOURS) if f"a{place}" not in own_colours.values()]
    further_colours = {
        name: free[place % len(free)] for place, name in enumerate(name for name in names if name not in own_colours)
    }
    return {name: own_colours.get(name) or further_colours[name] for name in names}


def short(name: str) -> str:
    """A name as a chart has room for it."""
    name = visible(name)
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2]}…{name[-(_LONGEST // 2 - 1) :]}"


class Unit(NamedTuple):
    """Format of the numbers of a chart.

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
        """Write a number with as many decimals as ``step`` has, the least difference that matters."""
        # The logarithm of a power of ten may come out just below the integer.
        exponent = math.floor(math.log10(step * self.factor) + 1e-9)
        decimals = max(0, -exponent)
        number = f"{value * self.factor:,.{decimals}f}"
        rounded = float(number.replace(",", ""))
        if rounded == 0.0:
            number = number.lstrip("-")
        if self.bare and number.startswith(("0.", "-0.")):
            number = number.replace("0.", ".", 1)
        if self.signed and rounded > 0.0:
            plus = "+"
        else:
            plus = ""
        return f"{plus}{number}{self.ending}".replace("-", "\N{MINUS SIGN}")

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
    """Positions of numbers across a chart.

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

    def at(self, value: float) -> str:
        """Format a number for a chart."""
        return f"{self.place(value):.2f}%"

    def up(self, value: float) -> str:
        """From below, in a square of 100 by 100."""
        return f"{100.0 - self.place(value):.2f}"

    @property
    def step(self) -> float:
        """Between ticks."""
        if len(self.ticks) > 1:
            return self.ticks[1] - self.ticks[0]
        return (self.high - self.low) / _TICKS


def axis_of(low: float, high: float, most: int = _TICKS) -> Axis:
    """An axis with a few round ticks, about ``most``, that holds both ends."""
    if not high > low:
        low = low - abs(low or 1.0) / 2
        high = high + abs(high or 1.0) / 2
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * nice for nice in _STEPS if size * nice >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    ticks = [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return Axis(low, high, tuple(ticks))


def log_axis(low: float, high: float) -> Axis:
    """An axis of powers of ten, at most six of them named."""
    first = math.floor(math.log10(low) + 1e-9)
    last = math.ceil(math.log10(high) - 1e-9)
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
        """List numbers that the chart must have room for."""
        values = [self.value, *(value for value, _ in self.cloud), *(() if self.known is None else (self.known,))]
        return [number for number in values if math.isfinite(number)]

    def cloud_marks(self, axis: Axis) -> Iterator[tuple[str, int, bool]]:
        """Place, height and kind of further values, below and above the dot, those that would hide each other apart."""
        places: list[tuple[float, int]] = []
        for value, hollow in sorted(self.cloud):
            place = axis.place(value)
            near = {level for at, level in places if place - at < _APART}
            level = next(level for level in itertools.count() if level not in near)
            places.append((place, level))
            side = -1 if level % 2 else 1
            yield axis.at(value), side * (10 + 6 * (level // 2 % 3)), hollow

    def end_labels(self, axis: Axis, unit: Unit) -> list[tuple[str, str, str]]:
        """Place, side and text of the ends of the interval, where they are within the chart and apart."""
        ends = [end for end in (self.low, self.high) if axis.low <= end <= axis.high]
        if not self.labelled or len(ends) < 2 or axis.place(self.high) - axis.place(self.low) < _ENDS_APART:
            return []
        step = least_step(ends)
        return [(axis.at(end), anchor_of(axis.place(end), 10.0), unit.text(end, step)) for end in ends]


def room_for(dots: Sequence[Dot]) -> Axis:
    """The axis that shows dots, and intervals as far as half the spread of the dots beyond them.

    It does not begin below 0 where no number does.
    """
    numbers = [number for dot in dots for number in dot.numbers()] or [0.0, 1.0]
    low = min(numbers)
    high = max(numbers)
    beyond = 0.5 * ((high - low) or abs(high) or 1.0)
    ends = [end for dot in dots for end in (dot.low, dot.high) if math.isfinite(end)]
    low = max(low - beyond, min([low, *ends])) - 0.1 * beyond
    high = min(high + beyond, max([high, *ends])) + 0.1 * beyond
    return axis_of(max(low, 0.0) if min([*numbers, *ends]) >= 0.0 else low, high)


def dots(rows: Sequence[Dot], unit: Unit, axis: Axis | None = None) -> str:
    """One row per name: its dot, its interval and its number."""
    return drawn("dots", rows, unit, axis or room_for(rows))


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
    if axis.ticks:
        last = axis.ticks[-1]
    else:
        last = axis.high
    more = last + axis.step
    if axis.high <= last or len(axis.ticks) < 2:
        return axis
    return Axis(axis.low, more, (*axis.ticks, more))


def panels(shown: Sequence[Panel]) -> str:
    """Panels of dots side by side where there is room; those of one unit have one axis."""
    rows: dict[Unit, list[Dot]] = {}
    for one in shown:
        rows.setdefault(one.unit, []).extend(one.rows)
    axes = {unit: _to_a_tick(room_for(of_unit)) for unit, of_unit in rows.items()}
    return drawn("panels", [(one, axes[one.unit]) for one in shown], any(one.says for one in shown))


def shares(
    rows: Mapping[str, Mapping[str, float]], kinds: Mapping[str, str], notes: Mapping[str, str] | None = None
) -> str:
    """One bar per name, divided into kinds, each with its share written in it.

    Args:
        rows: by name, by kind its share.
        kinds: by kind the class of its colour, in order.
        notes: by name what follows it.
    """
    return drawn("shares", rows, kinds, notes or {})


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
    """Frame of a chart of curves.

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

    def points(self, values: Sequence[float], axis: Axis) -> list[str]:
        """Corners of a line."""
        return [f"{100 * x:.2f},{axis.up(value)}" for x, value in zip(self.places, values, strict=True)]


def curves(lines: Sequence[Curve], plot: Plot) -> str:
    """Lines with their names at their ends, over an axis from 0 or from the least value."""
    numbers = [value for values in (*(one.values for one in lines), *plot.band) for value in values]
    largest = max(numbers)
    axis = axis_of(min([0.0, *numbers]), largest * 1.05 if largest > 0 else 1.0)
    return drawn("curves", lines, plot, axis, _CURVES)


@dataclass(frozen=True)
class Histogram:
    """Frequencies of numbers.

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

    def bars(self, axis: Axis, tallest: float) -> Iterator[tuple[float, float, float]]:
        """Place, width and height of each bar; ``tallest`` is the logarithm of the largest count."""
        for (low, high), count in zip(itertools.pairwise(self.edges), self.counts, strict=True):
            if count:
                width = max(axis.place(high) - axis.place(low), 0.3)
                yield axis.place(low), width, 36 * math.log1p(count) / tallest


def histograms(shown: Sequence[Histogram], line: tuple[float, str] | None = None) -> str:
    """Histograms below each other on one axis of ratios, their heights by the logarithm of the counts.

    Args:
        shown: at least one.
        line: a number to be marked where it is among the others, and its name.
    """
    low = min(one.edges[0] for one in shown)
    high = max(one.edges[-1] for one in shown)
    axis = log_axis(low, max(high, low * 1.01))
    tallest = math.log1p(max(max(one.counts) for one in shown))
    if line is not None and low < line[0] <= high:
        marked = line
    else:
        marked = None
    return drawn("histograms", [(one, one.bars(axis, tallest)) for one in shown], axis, marked)
