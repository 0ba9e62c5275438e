"""Figures of importance weights: a panel a policy, the clip as a line."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_mnar.estimators.off_policy.weights import WeightDistribution
from recsim_mnar.report.figures import Figure, axes_of, label_of, svg_of
from recsim_mnar.report.style import CLIP, INK, WEIGHTS

PANELS = 6
"""Of one figure: more of them would not fit on a sheet of paper."""
_TALLEST = 0.62
"""Of a panel's height; above it stands whose it is."""


def weight_figures(weights: Sequence[WeightDistribution], clip: float | None) -> list[Figure]:
    """How many rows have which weight, a panel a policy; policies whose weights are all 0 have none.

    Args:
        weights: one a policy, under the name that the page gives it.
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
    return [
        Figure(
            title if len(parts) == 1 else f"{title}, {place} of {len(parts)}",
            _panels(part, clip),
            f"{caption} {_said(part)}",
        )
        for place, part in enumerate(parts, 1)
    ]


def _said(part: Sequence[WeightDistribution]) -> str:
    """What those who cannot see the panels are told."""
    each = "; ".join(f"{w.policy} {w.effective:,.0f} of {w.rows:,}" for w in part)
    return f"Effective rows: {each}."


def _panels(part: Sequence[WeightDistribution], clip: float | None) -> str:
    """Histograms one below the other in one pair of axes, which is ten times as fast as axes of each one's own."""
    import numpy as np

    figure, axes = axes_of(6.8, 0.8 + 0.8 * len(part))
    least, largest = min(w.edges[0] for w in part), max(w.edges[-1] for w in part)
    tallest = np.log1p(max(max(w.counts) for w in part))
    for place, each in enumerate(part):
        heights = _TALLEST * np.log1p(np.array(each.counts)) / tallest
        axes.stairs(heights - place, each.edges, baseline=-place, fill=True, fc=WEIGHTS, ec=WEIGHTS, lw=0.8)
        axes.annotate(
            f"{label_of(each.policy)}: {each.effective:,.0f} effective of {each.rows:,} rows, {each.zero:.1%} weigh 0",
            (0.0, _TALLEST - place), xycoords=("axes fraction", "data"), fontsize=9, color=INK, va="bottom",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.minorticks_off()  # they take longer to draw than all the rest
    axes.set_xlim(least, max(largest, 1.0) * 1.02)
    axes.set_ylim(-len(part) + 0.95, 1.0)
    axes.set_yticks([-place for place in range(len(part))], [""] * len(part))
    axes.set_ylabel("rows (logarithmic)")
    axes.set_xlabel("weight")
    if clip is not None and least < clip <= largest:
        axes.axvline(clip, color=CLIP, linewidth=1.4)
        beside = {"xytext": (3, -1), "textcoords": "offset points", "va": "top", "fontsize": 9}
        axes.annotate(f"clip {clip:g}", (clip, 1.0), xycoords=("data", "axes fraction"), color=CLIP, **beside)
    return svg_of(figure)
