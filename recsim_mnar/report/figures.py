"""The report's figures, as SVG text to stand inside a page: values, weights, popularity, histograms."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from recsim_mnar.errors import visible
from recsim_mnar.estimators.off_policy.weights import WeightDistribution
from recsim_mnar.protocols.base import Picture
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record
from recsim_mnar.report.tables import has_interval, heading

INK = "#1f2937"
"""Of axes and writing; a page puts its own in the place of it."""
LINE = "#e5e7eb"
"""Of grids."""
TRUTH = "#111827"
"""Of what is known."""

BEST_COLOUR, LEVEL_COLOUR, COSTS_COLOUR = "#2b8a3e", "#f08c00", "#c92a2a"
CYCLE = ("#c2255c", "#9c36b5", "#e8590c", "#1971c2", "#2f9e44", "#f08c00", "#0c8599", "#6741d9", "#868e96")
COUNTS, CLIP = "#4c6ef5", "#e8590c"
"""Of histograms, and of the line where weights are clipped."""


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
    """The interval from sample size alone, where the record has it; the value itself where there is none."""
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


MOST_LINES = 12
"""Most lines that a reader can tell apart; the caption says how many are not drawn."""


def popularity_figure(rows: Sequence[dict[str, Any]], where: str = "A/B test") -> Figure | None:
    """Shares of views and of recommendations over groups of items, the most viewed first.

    Args:
        rows: of :func:`recsim_mnar.protocols.ab_test.popularity`.
        where: things were recommended, for the caption.
    """
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault(row["agent"], []).append(row)
    if len(lines) < 2:
        return None
    own = lines.pop("")
    drawn = list(lines.items())[:MOST_LINES]
    groups = [_name(row) for row in own]
    figure, axes = axes_of(8.0, 3.6 + 0.22 * (len(drawn) // 3))
    axes.plot(groups, [row["share"] for row in own], color=TRUTH, linewidth=2.4, linestyle="--", label="users' own")
    for place, (agent, of_it) in enumerate(drawn):
        axes.plot(groups, [row["share"] for row in of_it], color=CYCLE[place % len(CYCLE)], linewidth=1.5,
                  marker="os^Dv"[place % 5], markersize=4.5, label=label_of(agent))  # fmt: skip
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("items by their rank in views, the most viewed first")
    axes.set_ylabel("share")
    figure.legend(frameon=False, ncols=4, loc="outside upper left")
    top = own[0]["last_rank"] - own[0]["first_rank"] + 1
    of_top = "; ".join(f"{agent} {of_it[0]['share']:.0%}" for agent, of_it in drawn)
    caption = (
        f"Of what each agent recommends in the {where}, the share that falls on items of each rank; dashed, of what "
        f"users view on their own. On the {top:,} most viewed of {own[-1]['last_rank']:,} items fall: users' own "
        f"{own[0]['share']:.0%}; {of_top}."
    )
    if len(lines) > len(drawn):
        caption += f" {len(lines) - len(drawn)} more agents stand in the data of this page."
    return Figure("How popular what is recommended is", svg_of(figure), caption)


def _name(row: dict[str, Any]) -> str:
    first, last = row["first_rank"], row["last_rank"]
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"


PANELS = 6
"""Of one figure: more of them would not fit on a sheet of paper."""
_TALLEST = 0.62
"""Of a panel's height; above it stands what it is of."""


class Ridge(NamedTuple):
    """One histogram.

    Attributes:
        name: of what, cut where it is long.
        words: that follow it.
        edges: (b + 1,) of the bins, positive and ascending.
        counts: (b,) in them.
    """

    name: str
    words: str
    edges: Sequence[float]
    counts: Sequence[int]


def ridges_svg(ridges: Sequence[Ridge], unit: str, what: str, line: tuple[float, str] | None = None) -> str:
    """The histograms as SVG, on a logarithmic axis. In one pair of axes they take a tenth of the time of several.

    Args:
        ridges: at least one.
        unit: the axis of the numbers.
        what: is counted.
        line: a number to be marked where it is among the others, and its name.
    """
    import numpy as np

    figure, axes = axes_of(6.8, max(0.8 + 0.8 * len(ridges), 2.0))
    least, largest = min(one.edges[0] for one in ridges), max(one.edges[-1] for one in ridges)
    tallest = np.log1p(max(max(one.counts) for one in ridges))
    for place, one in enumerate(ridges):
        heights = _TALLEST * np.log1p(np.array(one.counts)) / tallest
        axes.stairs(heights - place, one.edges, baseline=-place, fill=True, fc=COUNTS, ec=COUNTS, lw=0.8)
        axes.annotate(
            f"{label_of(one.name)}{one.words}", (0.0, _TALLEST - place), xycoords=("axes fraction", "data"),
            fontsize=9, color=INK, va="bottom",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.minorticks_off()  # they take longer to draw than all the rest
    axes.set_xlim(least / 1.02, largest * 1.02)
    axes.set_ylim(-len(ridges) + 0.95, 1.0)
    axes.set_yticks([-place for place in range(len(ridges))], [""] * len(ridges))
    axes.set_ylabel(f"{what} (log)")
    axes.set_xlabel(unit)
    if line is not None and least < line[0] <= largest:
        axes.axvline(line[0], color=CLIP, linewidth=1.4)
        style = {"xytext": (3, -1), "textcoords": "offset points", "va": "top", "fontsize": 9}
        axes.annotate(line[1], (line[0], 1.0), xycoords=("data", "axes fraction"), color=CLIP, **style)
    return svg_of(figure)


def weight_figures(weights: Sequence[WeightDistribution], clip: float | None) -> list[Figure]:
    """How many rows have which weight; policies whose weights are all 0 are left out.

    Args:
        weights: one per policy, under the name that the page gives it.
        clip: largest weight of the clipped estimators, None for none.
    """
    drawn = [each for each in weights if each.counts]
    parts = [drawn[first : first + PANELS] for first in range(0, len(drawn), PANELS)]
    caption = (
        "How many rows have which weight, target / propensity; rows of weight 0 are not drawn. A row counts for as "
        "many decisions of the policy as its weight says"
        + (f", up to the clip, {clip:g}." if clip is not None else ".")
    )
    title = "How the weights are distributed"
    line = None if clip is None else (clip, f"clip {clip:g}")
    return [
        Figure(
            title if len(parts) == 1 else f"{title}, {place} of {len(parts)}",
            ridges_svg([_ridge(each) for each in part], "weight", "rows", line),
            f"{caption} Effective rows: "
            + "; ".join(f"{each.policy} {each.effective:,.0f} of {each.rows:,}" for each in part)
            + ".",
        )
        for place, part in enumerate(parts, 1)
    ]


def _ridge(of: WeightDistribution) -> Ridge:
    words = f": {of.effective:,.0f} effective of {of.rows:,} rows, {of.zero:.1%} weigh 0"
    return Ridge(of.policy, words, of.edges, of.counts)
