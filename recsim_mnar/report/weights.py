"""Figures of importance weights: a histogram a policy, the clip as a line."""

from __future__ import annotations

from collections.abc import Sequence

from recsim_mnar.estimators.off_policy.weights import WeightDistribution
from recsim_mnar.report.figures import Figure
from recsim_mnar.report.ridges import PANELS, Ridge, ridges_svg


def weight_figures(weights: Sequence[WeightDistribution], clip: float | None) -> list[Figure]:
    """How many rows have which weight; policies whose weights are all 0 are left out.

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
