"""The report's charts: positions of their numbers; ``charts.html`` draws them in the page's colours."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from recsim_mnar.errors import visible

if TYPE_CHECKING:
    from jinja2 import Environment

COLOURS = 9
"""Number of colours of agents: the classes ``a0``, ``a1``, ... of ``style.css``."""
OWN_COLOURS = {
    "svd": "a0",
    "user-knn": "a1",
    "item-knn": "a2",
    "user-popularity": "a3",
    "popularity": "a4",
    "random": "a8",
}
"""Colour class by recommender, for those that most comparisons have, so that all pages show them alike."""
INK = "ink"
"""Colour class of everything that belongs to no agent."""
_LONGEST = 32
"""Characters of the longest name that a chart shows in full."""
_STEPS = (1.0, 2.0, 5.0, 10.0)
"""Possible distances between ticks, times a power of ten."""
_TICKS = 4
"""Approximate number of ticks of a narrow chart."""
MANY_TICKS = 6
"""Approximate number of ticks of a chart of the full width."""
_APART = 2.5
"""Least distance of two dots at the same height, in per cent of the width: nearer ones would overlap on a phone."""
_ENDS_APART = 28.0
"""Least distance of the labels of an interval's ends, in per cent of the width: nearer ones would touch on a phone."""


@dataclass(frozen=True)
class Chart:
    """A chart of a page.

    Attributes:
        title: heading, preferably a sentence on the result.
        body: HTML.
        caption: explanation.
        folded: True if the page shows it only after a click.
    """

    title: str
    body: str
    caption: str
    folded: bool = True


@functools.cache
def environment() -> Environment:
    """Create the environment of the templates next to this module; it escapes control characters in texts."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    templates = Environment(
        loader=PackageLoader("recsim_mnar.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: visible(value, keep="\n") if type(value) is str else value,
    )
    templates.filters |= {"anchor": anchor_of, "whole": "{:,}".format, "short": short, "step": least_step}
    templates.tests["finite"] = lambda value: value is not None and math.isfinite(value)
    return templates


def render_chart(macro: str, *arguments: Any) -> str:
    """Render a chart as HTML with a macro of ``charts.html``."""
    return str(getattr(environment().get_template("charts.html").module, macro)(*arguments))


def anchor_of(place: float, margin: float) -> str:
    """Return the SVG text anchor that keeps a label within the chart; place and margin are in per cent of the width."""
    if place <= margin:
        return "start"
    if place > 100.0 - margin:
        return "end"
    return "middle"


def least_step(numbers: Iterable[float]) -> float:
    """Return the least difference that matters among numbers: the third significant digit of the largest one."""
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    return float(10.0 ** (math.floor(math.log10(largest or 1.0)) - 2))


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """Return a colour class for each name: that of :data:`OWN_COLOURS`, or the next free one.

    With more than :data:`COLOURS` names, colours repeat.
    """
    names = list(dict.fromkeys(names))
    fixed = {name: OWN_COLOURS[name] for name in names if name in OWN_COLOURS}
    free = itertools.cycle(sorted({f"a{i}" for i in range(COLOURS)} - set(fixed.values())))
    return {name: fixed.get(name) or next(free) for name in names}


def short(name: str) -> str:
    """Shorten a name in its middle to at most :data:`_LONGEST` characters, so that it fits into a chart."""
    name = visible(name)
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST // 2]}…{name[-(_LONGEST // 2 - 1) :]}"


class Unit(NamedTuple):
    """Format of the numbers of a chart.

    Attributes:
        factor: factor by which numbers are multiplied, such as 100 for per cent.
        ending: text after the number.
        signed: True for a plus sign before positive numbers.
        bare: True to omit the zero before the point of rates.
        quantity: name of the measured quantity; panels with equal units share their axis.
    """

    factor: float = 1.0
    ending: str = ""
    signed: bool = False
    bare: bool = False
    quantity: str = ""

    def text(self, value: float, step: float) -> str:
        """Format a number with as many decimals as ``step``, the least difference that matters."""
        # Rounding may leave the logarithm of a power of ten just below the integer.
        exponent = math.floor(math.log10(step * self.factor) + 1e-9)
        decimals = max(0, -exponent)
        number = f"{value * self.factor:,.{decimals}f}"
        rounded = float(number.replace(",", ""))
        if rounded == 0.0:
            number = number.lstrip("-")
        if self.bare and number.startswith(("0.", "-0.")):
            number = number.replace("0.", ".", 1)
        if self.signed and rounded > 0.0:
            number = f"+{number}"
        return f"{number}{self.ending}".replace("-", "\N{MINUS SIGN}")


PER_CENT = Unit(100.0, " %")
CHANGE = Unit(100.0, " %", True)
PLAIN = Unit()


@dataclass(frozen=True)
class Axis:
    """An axis, which maps numbers to positions across a chart.

    Attributes:
        low, high: numbers at the ends.
        ticks: numbers with a line and a label.
    """

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Return the position in per cent of the width; numbers beyond the ends are moved to 0 or 100."""
        return min(max(100.0 * (value - self.low) / (self.high - self.low), 0.0), 100.0)

    def at(self, value: float) -> str:
        """Format the position for HTML, such as ``12.50%``."""
        return f"{self.place(value):.2f}%"

    @property
    def step(self) -> float:
        """Distance between ticks."""
        if len(self.ticks) > 1:
            return self.ticks[1] - self.ticks[0]
        return (self.high - self.low) / _TICKS


def axis_of(low: float, high: float, most: int = _TICKS) -> Axis:
    """Make an axis from ``low`` to ``high`` with about ``most`` ticks at round numbers."""
    if not high > low:  # equal ends are moved apart
        low = low - abs(low or 1.0) / 2
        high = high + abs(high or 1.0) / 2
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * nice for nice in _STEPS if size * nice >= rough * (1 - 1e-9))  # 1e-9 allows for rounding
    first = math.ceil(low / step - 1e-9)
    ticks = [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return Axis(low, high, tuple(ticks))


@dataclass(frozen=True)
class Dot:
    """A row of a chart of dots.

    Attributes:
        name: label of the row.
        value: number that the dot shows; NaN for no dot.
        low, high: ends of the interval, NaN for none; an arrow shows an end outside the chart.
        colour: colour class.
        hollow: True for a hollow dot: a value that must not be used.
        known: number to mark across the row, such as the truth; None for no mark.
        cloud: numbers of further small dots, each with True for a hollow one.
        words: text in place of the formatted value; empty for the value.
        note: text below the name, in small letters.
        labelled: True to print the numbers at the ends of the interval.
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
        """Return the numbers that the chart must have room for."""
        values = [self.value, self.known, *(value for value, _ in self.cloud)]
        return [value for value in values if value is not None and math.isfinite(value)]

    def cloud_marks(self, axis: Axis) -> Iterator[tuple[str, int, bool]]:
        """Place the small dots; dots that would overlap get different heights.

        Yields:
            Horizontal position for HTML, vertical distance from the row in pixels, and True for a hollow dot.
        """
        placed: list[tuple[float, int]] = []
        for value, hollow in sorted(self.cloud):
            place = axis.place(value)
            near = {level for earlier, level in placed if place - earlier < _APART}
            level = next(level for level in itertools.count() if level not in near)
            placed.append((place, level))
            # Levels alternate between below and above the row, 10, 16 and 22 pixels from it, then from 10 again.
            side = -1 if level % 2 else 1
            yield axis.at(value), side * (10 + 6 * (level // 2 % 3)), hollow

    def end_labels(self, axis: Axis, unit: Unit) -> list[tuple[str, str, str]]:
        """Return position, text anchor and text of the labels of the interval's ends.

        The list is empty unless labels are wanted, both ends are in the chart, and the labels would not touch.
        """
        ends = [end for end in (self.low, self.high) if axis.low <= end <= axis.high]
        if not self.labelled or len(ends) < 2 or axis.place(self.high) - axis.place(self.low) < _ENDS_APART:
            return []
        step = least_step(ends)
        return [(axis.at(end), anchor_of(axis.place(end), 10.0), unit.text(end, step)) for end in ends]


def room_for(dots: Sequence[Dot]) -> Axis:
    """Make an axis with room for all dots, and for their intervals up to half the spread of the dots to either side.

    Longer intervals are cut, so that one wide interval does not squeeze all dots together. The axis begins at 0 or
    above if no number is negative.
    """
    numbers = [number for dot in dots for number in dot.numbers()] or [0.0, 1.0]
    low = min(numbers)
    high = max(numbers)
    beyond = 0.5 * ((high - low) or abs(high) or 1.0)  # equal numbers have no spread: their size replaces it
    ends = [end for dot in dots for end in (dot.low, dot.high) if math.isfinite(end)]
    # A margin of a tenth keeps dots off the edges.
    low = max(low - beyond, min([low, *ends])) - 0.1 * beyond
    high = min(high + beyond, max([high, *ends])) + 0.1 * beyond
    if min([*numbers, *ends]) >= 0.0:
        low = max(low, 0.0)
    return axis_of(low, high)


def dots(rows: Sequence[Dot], unit: Unit, axis: Axis | None = None) -> str:
    """Draw a chart with one row per name: its dot, interval and number; without an axis, on one with room for all."""
    return render_chart("dots", rows, unit, axis or room_for(rows))


@dataclass(frozen=True)
class Panel:
    """Dots under a heading, next to other panels.

    Attributes:
        title: heading.
        says: line below the heading; may be empty.
        rows: rows of dots.
        unit: format of the numbers.
    """

    title: str
    says: str
    rows: Sequence[Dot]
    unit: Unit = PER_CENT


def _to_a_tick(axis: Axis) -> Axis:
    """Extend an axis to the next tick, so that its upper end has a label."""
    if len(axis.ticks) < 2 or axis.high <= axis.ticks[-1]:
        return axis
    end = axis.ticks[-1] + axis.step
    return Axis(axis.low, end, (*axis.ticks, end))


def panels(contents: Sequence[Panel]) -> str:
    """Draw panels side by side if there is room; panels with equal units share an axis."""
    rows: dict[Unit, list[Dot]] = {}
    for panel in contents:
        rows.setdefault(panel.unit, []).extend(panel.rows)
    axes = {unit: _to_a_tick(room_for(rows_of_unit)) for unit, rows_of_unit in rows.items()}
    with_axes = [(panel, axes[panel.unit]) for panel in contents]
    any_line_below = any(panel.says for panel in contents)  # then all panels keep room for one
    return render_chart("panels", with_axes, any_line_below)
