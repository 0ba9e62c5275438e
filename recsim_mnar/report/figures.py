"""The report's figures, as SVG text to stand inside a page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recsim_mnar.protocols.compare import Comparison
from recsim_mnar.protocols.records import Record
from recsim_mnar.report.tables import head_of

_INK = "#1f2937"
_COLOURS = {"loocv": "#4c6ef5", "off_policy": "#e8590c", "ab_test": "#2b8a3e", "truth": "#111827"}


_METRIC_COLOURS = {"uplift": "#c2255c", "uplift_snips": "#9c36b5", "uplift_ips": "#e8590c"}


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
    """The figures that the comparison's records have something for."""
    made = [
        (
            "Leave-one-out",
            hit_rate_figure(comparison),
            "Share of held-out views that an agent ranks first.",
        ),
        (
            "Clipped IPS beside the A/B test",
            rates_figure(comparison),
            "Click-through rates; whiskers are intervals from sample size alone. How much clipping may hide beside "
            "them stands in the next table.",
        ),
        (
            "Precision",
            precision_figure(comparison),
            "Share of the listed items that the user bought in the further periods of the log.",
        ),
        (
            "Uplift from the log, from the A/B test, and in truth",
            uplift_figure(comparison),
            "Purchases caused, an item of the list and period.",
        ),
    ]
    return [Figure(title, svg, caption) for title, svg, caption in made if svg is not None]


def precision_figure(comparison: Comparison) -> str | None:
    """Precision@N of each agent with its interval; None where the uplift protocol did not compute it."""
    records = [r for r in comparison.records if r.protocol == "uplift" and r.metric.startswith("precision@")]
    return _bars(records, head_of("uplift", records[0].metric), _COLOURS["loocv"]) if records else None


def uplift_figure(comparison: Comparison) -> str | None:
    """Each estimate of uplift beside the truth; None outside the purchases world."""
    chosen = {
        key: [r for r in comparison.records if (r.protocol, r.metric) == key]
        for key in comparison.columns
        if not key[1].startswith("precision")
    }
    if not any(key[0] == "truth" for key in chosen) or len(chosen) < 2:
        return None
    marks = {"truth": "_", "ab_test": "s"}
    series = {
        head_of(*key): (records, marks.get(key[0], "o"), _COLOURS.get(key[0]) or _METRIC_COLOURS.get(_name(key), _INK))
        for key, records in chosen.items()
    }
    return _dots(series, "purchases caused, an item and period")


def _name(key: tuple[str, str]) -> str:
    return key[1].partition("@")[0]


def hit_rate_figure(comparison: Comparison) -> str | None:
    """HR@1 of each agent with its interval; None where leave-one-out did not run."""
    records = [r for r in comparison.records if (r.protocol, r.metric) == ("loocv", "hr@1")]
    if not records:
        return None
    return _bars(records, "HR@1, leave-one-out", _COLOURS["loocv"])


def rates_figure(comparison: Comparison) -> str | None:
    """Clipped IPS beside the A/B test, with the true CTR; None where neither ran."""
    series = {
        "clipped IPS": ("off_policy", "clipped_ips", "o"),
        "A/B test": ("ab_test", "ctr", "s"),
        "truth": ("truth", "ctr", "_"),
    }
    chosen = {
        label: [r for r in comparison.records if (r.protocol, r.metric) == (protocol, metric)]
        for label, (protocol, metric, _) in series.items()
    }
    if not chosen["clipped IPS"] and not chosen["A/B test"]:
        return None
    shown = {
        label: (records, series[label][2], _COLOURS[series[label][0]]) for label, records in chosen.items() if records
    }
    return _dots(shown, "click-through rate")


def _dots(series: Mapping[str, tuple[list[Record], str, str]], label: str) -> str:
    """Values with intervals, agents along the axis and series side by side: records, marker and colour by title."""
    import numpy as np

    agents = list(dict.fromkeys(r.agent for records, _, _ in series.values() for r in records))
    width = _width(len(agents) * max(1.0, 0.28 * len(series)))
    entry = 0.55 + 0.085 * max(map(len, series))  # inches that one takes in the legend
    columns = max(1, min(len(series), int(width / entry)))
    figure, axes = _axes(width, 3.6 + 0.25 * -(-len(series) // columns))
    place = {agent: i for i, agent in enumerate(agents)}
    apart = min(0.22, 0.75 / len(series))
    dash = min(14.0, 72 * 0.8 * apart * (width - 1) / len(agents))  # points; no wider than the series stand apart
    floor, ceiling = 0.0, 0.0
    for k, (title, (records, marker, colour)) in enumerate(series.items()):
        shift = apart * (k - (len(series) - 1) / 2)
        x = np.array([place[r.agent] + shift for r in records])
        values = np.array([r.value for r in records])
        low = np.array([r.value - _sampling(r)[0] for r in records])
        high = np.array([_sampling(r)[1] - r.value for r in records])
        axes.errorbar(
            x,
            values,
            yerr=np.maximum([low, high], 0),
            fmt=marker,
            markersize=6 if marker != "_" else dash,
            capsize=3,
            linewidth=1.3,
            color=colour,
            label=title,
        )
        floor, ceiling = min(floor, float(np.min(values - low))), max(ceiling, float(np.max(values + high)))
    axes.set_ylim(floor * 1.08, ceiling * 1.08)
    if floor < 0:
        axes.axhline(0, color=_INK, linewidth=0.8)
    axes.set_xticks(range(len(agents)), agents, rotation=20, ha="right")
    axes.set_ylabel(label)
    axes.set_xlim(-0.6, len(agents) - 0.4)
    figure.legend(frameon=False, ncols=columns, loc="outside upper left")  # outside: room is made for it
    return _svg(figure)


def _sampling(record: Record) -> tuple[float, float]:
    """The interval from sample size alone, where the record tells it apart from what clipping may hide."""
    details = record.details
    low, high = details.get("sampling_low"), details.get("sampling_high")
    return (record.low, record.high) if low is None or high is None else (float(low), float(high))


def _bars(records: Sequence[Record], label: str, colour: str) -> str:
    import numpy as np

    figure, axes = _axes(_width(len(records)), 3.6)
    values = np.array([r.value for r in records])
    errors = np.array([[r.value - r.low for r in records], [r.high - r.value for r in records]])
    axes.bar(range(len(records)), values, width=0.6, color=colour, alpha=0.85)
    axes.errorbar(
        range(len(records)), values, yerr=np.maximum(errors, 0), fmt="none", ecolor=_INK, capsize=4, linewidth=1.2
    )
    axes.set_xticks(range(len(records)), [r.agent for r in records], rotation=20, ha="right")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.set_xlim(-0.7, len(records) - 0.3)
    return _svg(figure)


def _width(places: float) -> float:
    """Inches for so many agents' places, within what a page holds."""
    return min(max(5.0, 1.15 * places + 1.2), 10.5)


def _axes(width: float, height: float):  # type: ignore[no-untyped-def]  # matplotlib publishes no complete types
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK)
    return figure, axes


def _svg(figure) -> str:  # type: ignore[no-untyped-def]  # same
    import matplotlib

    buffer = io.StringIO()
    # A fixed salt and no date: the same results give the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "recsim-mnar", "svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
