"""The report's figures, as SVG text to stand inside a page."""

from __future__ import annotations

import io
from collections.abc import Sequence

from recsim_mnar.protocols.compare import Comparison
from recsim_mnar.protocols.records import Record

_INK = "#1f2937"
_COLOURS = {"loocv": "#4c6ef5", "off_policy": "#e8590c", "ab_test": "#2b8a3e", "truth": "#111827"}


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
    import numpy as np

    agents = list(dict.fromkeys(r.agent for r in comparison.records))
    figure, axes = _axes(len(agents))
    place = {agent: i for i, agent in enumerate(agents)}
    ceiling = 0.0
    shown = [label for label, records in chosen.items() if records]
    for k, label in enumerate(shown):
        protocol, _, marker = series[label]
        shift = 0.22 * (k - (len(shown) - 1) / 2)
        x = np.array([place[r.agent] + shift for r in chosen[label]])
        values = np.array([r.value for r in chosen[label]])
        low = np.array([r.value - _sampling(r)[0] for r in chosen[label]])
        high = np.array([_sampling(r)[1] - r.value for r in chosen[label]])
        axes.errorbar(
            x,
            values,
            yerr=np.maximum([low, high], 0),
            fmt=marker,
            markersize=6 if marker != "_" else 14,
            capsize=3,
            linewidth=1.3,
            color=_COLOURS[protocol],
            label=label,
        )
        ceiling = max(ceiling, float(np.max(values + high)))
    axes.set_ylim(0, ceiling * 1.08)
    axes.set_xticks(range(len(agents)), agents, rotation=20, ha="right")
    axes.set_ylabel("click-through rate")
    axes.legend(frameon=False, ncols=3, loc="upper left", bbox_to_anchor=(0, 1.12))
    return _svg(figure)


def _sampling(record: Record) -> tuple[float, float]:
    """The interval from sample size alone, where the record tells it apart from what clipping may hide."""
    details = record.details
    low, high = details.get("sampling_low"), details.get("sampling_high")
    return (record.low, record.high) if low is None or high is None else (float(low), float(high))


def _bars(records: Sequence[Record], label: str, colour: str) -> str:
    import numpy as np

    figure, axes = _axes(len(records))
    values = np.array([r.value for r in records])
    errors = np.array([[r.value - r.low for r in records], [r.high - r.value for r in records]])
    axes.bar(range(len(records)), values, width=0.6, color=colour, alpha=0.85)
    axes.errorbar(
        range(len(records)), values, yerr=np.maximum(errors, 0), fmt="none", ecolor=_INK, capsize=4, linewidth=1.2
    )
    axes.set_xticks(range(len(records)), [r.agent for r in records], rotation=20, ha="right")
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    return _svg(figure)


def _axes(n_agents: int):  # type: ignore[no-untyped-def]  # matplotlib publishes no complete types
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(5.0, 1.15 * n_agents + 1.2), 3.6), layout="constrained")
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
