"""The report's figures, as SVG text to stand inside a page."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_mnar.errors import visible
from recsim_mnar.protocols.base import Picture
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record
from recsim_mnar.report.style import CYCLE, INK, LINE, TRUTH
from recsim_mnar.report.tables import has_interval, heading

_COLOURS = {
    ("loocv", "hr"): "#4c6ef5",
    ("off_policy", "clipped_ips"): "#e8590c",
    ("off_policy", "ips"): "#c2255c",
    ("off_policy", "snips"): "#1971c2",
    ("ab_test", ""): "#2b8a3e",
    ("truth", ""): TRUTH,
    ("uplift", "precision"): "#4c6ef5",
    ("uplift", "uplift"): "#c2255c",
    ("uplift", "uplift_snips"): "#9c36b5",
    ("uplift", "uplift_ips"): "#e8590c",
}
_LONGEST = 32
"""Letters of a name in a figure."""
_MARKERS = {"truth": "_", "ab_test": "s"}


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Attributes:
        title: its heading.
        svg: the picture.
        caption: what it shows.
    """

    title: str
    svg: str
    caption: str


def figures_of(comparison: Comparison) -> list[Figure]:
    """The comparison's pictures that its records have something for."""
    made = [(picture, draw(comparison, picture)) for picture in comparison.pictures]
    return [Figure(picture.title, svg, picture.caption) for picture, svg in made if svg is not None]


def draw(comparison: Comparison, picture: Picture) -> str | None:
    """A picture as SVG; None where only the truth, or nothing, has records."""
    chosen = {
        key: [r for r in comparison.records if (r.protocol, r.metric) == key and math.isfinite(r.value)]
        for key in picture.keys
    }
    chosen = {key: records for key, records in chosen.items() if records}
    if all(protocol == "truth" for protocol, _ in chosen):
        return None
    if picture.bars:
        key = next(iter(chosen))
        return _bars(chosen[key], picture.label, colour_of(key, 0))
    series = {
        heading(comparison, key): (records, _MARKERS.get(key[0], "o"), colour_of(key, place))
        for place, (key, records) in enumerate(chosen.items())
    }
    return _dots(series, picture.label)


def colour_of(key: tuple[str, str], place: int) -> str:
    """Of a (protocol, metric); by its place where it has none of its own."""
    protocol, metric = key[0], key[1].partition("@")[0]
    return _COLOURS.get((protocol, metric)) or _COLOURS.get((protocol, "")) or CYCLE[place % len(CYCLE)]


def _dots(series: Mapping[str, tuple[list[Record], str, str]], label: str) -> str:
    """Values with intervals, agents along the axis and series side by side: records, marker and colour by title."""
    import numpy as np

    agents = list(dict.fromkeys(r.agent for records, _, _ in series.values() for r in records))
    width = _width(len(agents) * max(1.0, 0.28 * len(series)))
    entry = 0.55 + 0.085 * max(map(len, series))  # inches that one takes in the legend
    columns = max(1, min(len(series), int(width / entry)))
    figure, axes = axes_of(width, 3.6 + 0.25 * -(-len(series) // columns))
    place = {agent: i for i, agent in enumerate(agents)}
    apart = min(0.22, 0.75 / len(series))
    dash = min(14.0, 72 * 0.8 * apart * (width - 1) / len(agents))  # points; no wider than the series stand apart
    floor, ceiling = 0.0, 0.0
    for k, (title, (records, marker, colour)) in enumerate(series.items()):
        shift = apart * (k - (len(series) - 1) / 2)
        x = np.array([place[r.agent] + shift for r in records])
        values = np.array([r.value for r in records])
        low = np.array([r.value - sampling_limits(r)[0] for r in records])
        high = np.array([sampling_limits(r)[1] - r.value for r in records])
        axes.errorbar(
            x,
            values,
            yerr=np.maximum([low, high], 0),
            fmt=marker,
            markersize=6 if marker != "_" else dash,
            capsize=3,
            linewidth=1.3,
            color=colour,
            label=label_of(title),
        )
        floor, ceiling = min(floor, float(np.min(values - low))), max(ceiling, float(np.max(values + high)))
    axes.set_ylim(floor * 1.08, ceiling * 1.08)
    if floor < 0:
        axes.axhline(0, color=INK, linewidth=0.8)
    axes.set_xticks(range(len(agents)), [label_of(a) for a in agents], rotation=20, ha="right")
    axes.set_ylabel(label_of(label))
    axes.set_xlim(-0.6, len(agents) - 0.4)
    figure.legend(frameon=False, ncols=columns, loc="outside upper left")  # outside: room is made for it
    return svg_of(figure)


def sampling_limits(record: Record) -> tuple[float, float]:
    """The interval from sample size alone, where the record tells it apart; the value itself where there is none."""
    details = record.details
    if not has_interval(record):
        return record.value, record.value
    low, high = details.get("sampling_low"), details.get("sampling_high")
    return (record.low, record.high) if low is None or high is None else (float(low), float(high))


def _bars(records: Sequence[Record], label: str, colour: str) -> str:
    import numpy as np

    figure, axes = axes_of(_width(len(records)), 3.6)
    values = np.array([r.value for r in records])
    errors = np.array([[r.value - r.low for r in records], [r.high - r.value for r in records]])
    axes.bar(range(len(records)), values, width=0.6, color=colour, alpha=0.85)
    axes.errorbar(
        range(len(records)), values, yerr=np.maximum(errors, 0), fmt="none", ecolor=INK, capsize=4, linewidth=1.2
    )
    axes.set_xticks(range(len(records)), [label_of(r.agent) for r in records], rotation=20, ha="right")
    axes.set_ylabel(label_of(label))
    axes.set_ylim(bottom=0)
    axes.set_xlim(-0.7, len(records) - 0.3)
    return svg_of(figure)


def _width(places: float) -> float:
    """Inches for so many agents' places, within what a page holds."""
    return min(max(5.0, 1.15 * places + 1.2), 10.5)


def axes_of(width: float, height: float):  # type: ignore[no-untyped-def]  # matplotlib publishes no complete types
    """A figure of so many inches, and its axes in the report's style."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", facecolor="none")
    axes = figure.subplots()
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color=LINE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK)
    return figure, axes


def label_of(name: str) -> str:
    """A name as a figure has room for it, and as text: matplotlib reads dollar signs as formulas."""
    name = visible(name)
    short = name if len(name) <= _LONGEST else f"{name[: _LONGEST // 2]}…{name[-(_LONGEST // 2 - 1) :]}"
    return short.replace("$", r"\$")


def svg_of(figure) -> str:  # type: ignore[no-untyped-def]  # same
    """A figure as SVG text, the same bytes for the same figure."""
    import matplotlib

    buffer = io.StringIO()
    # A fixed salt and no date: the same results give the same bytes.
    settings: Any = {"svg.hashsalt": "recsim-mnar", "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Letters stay text, and the browser has more of them than the font that measures them here.
        warnings.filterwarnings("ignore", "Glyph")
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
