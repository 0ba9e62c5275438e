"""Advice as one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.fitting.advice import Advice
from recsim_mnar.report.figures import Figure, axes_of, label_of, svg_of
from recsim_mnar.report.template import write_from

_LINE = "#111827"
_OPEN = "#9ca3af"
"""Of differences that the log leaves open."""


def write_advice(path: Path, found: Advice, made_by: dict[str, Any]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        found: what it tells.
        made_by: what was asked, shown at its foot; JSON types.
    """
    figures = [_coverage(found)] if found.agents else []
    figures += [_differences(found)] if found.pairs else []
    agents = [row["agent"] for row in found.agents]
    write_from("advice.html", path, made_by, figures, found=found, lines=found.sentences()[1:], agents=agents)


def _coverage(found: Advice) -> Figure:
    rows = [(r["agent"], r["covered"], r["covered_low"], r["covered_high"]) for r in found.agents]
    svg = _whiskers(rows, "share of the agent's recommendations that the log shows", [_LINE] * len(rows), (0.0, 1.02))
    return Figure("What the log shows of each agent", svg, "What it does not show, no estimate and no model knows.")


def _differences(found: Advice) -> Figure:
    rows = [(f"{p['first']} less {p['second']}", p["difference"], p["low"], p["high"]) for p in found.pairs]
    colours = [_LINE if p["decided"] else _OPEN for p in found.pairs]
    svg = _whiskers(rows, "difference of mean rewards of a recommendation", colours, None)
    caption = (
        "Whiskers hold for all pairs together at 95 %, with what the log does not show at its least and at its most; "
        "pale ones leave open which agent is better."
    )
    return Figure("What the log says of each pair", svg, caption)


def _whiskers(
    rows: Sequence[tuple[str, float, float, float]], label: str, colours: list[str], limits: tuple[float, float] | None
) -> str:
    figure, axes = axes_of(6.2, 0.8 + 0.32 * len(rows))
    for y, (row, colour) in enumerate(zip(reversed(rows), reversed(colours), strict=True)):
        _, value, low, high = row
        axes.errorbar(
            [value], [y], xerr=[[max(value - low, 0.0)], [max(high - value, 0.0)]], fmt="o", color=colour, capsize=3
        )
    axes.set_yticks(np.arange(len(rows)), [label_of(row[0]) for row in reversed(rows)])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    if limits is None:
        axes.axvline(0.0, color=_OPEN, linewidth=1.0)
    else:
        axes.set_xlim(*limits)
    axes.set_xlabel(label)
    return svg_of(figure)
