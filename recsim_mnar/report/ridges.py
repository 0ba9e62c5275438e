"""Histograms one below the other, in one pair of axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from recsim_mnar.report.figures import axes_of, label_of, svg_of
from recsim_mnar.report.style import CLIP, COUNTS, INK

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
        line: a number to be marked where it lies among the others, and its name.
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
        beside = {"xytext": (3, -1), "textcoords": "offset points", "va": "top", "fontsize": 9}
        axes.annotate(line[1], (line[0], 1.0), xycoords=("data", "axes fraction"), color=CLIP, **beside)
    return svg_of(figure)
