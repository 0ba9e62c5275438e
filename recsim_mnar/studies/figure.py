"""The figures of a study: mean cost or rank correlation by the levels of a factor, and risk against coverage."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError
from recsim_mnar.protocols.records import is_named
from recsim_mnar.runs.files import replacing

if TYPE_CHECKING:
    import pandas as pd

_LABELS = {"cost": "mean cost, % of the best", "tau": "Kendall's tau with the truth"}
RISK = "risk"
_WIDTH = 0.6
"""Of the place that a level's protocols share along the axis, in levels."""
_MOST_FACTORS = 2
_ROOM, _LEAST_ROOM = 60, 8
"""Characters along the axes of all panels, and the least of one level's label."""


def plot_study(study: Any, path: Path, by: Sequence[str], of: str, protocols: Sequence[str] | None = None) -> None:
    """Draw and write the figure; see :meth:`recsim_mnar.studies.result.Study.plot`."""
    from matplotlib.figure import Figure

    if of != RISK and of not in _LABELS:
        raise UserError(f"of must be cost, tau or risk, got {of!r}")
    if of != RISK and len(by) > _MOST_FACTORS:
        raise UserError(f"by has {len(by)} factors: give one for the axis, and one more for panels")
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    if of == RISK:
        axes = figure.subplots()
        _draw_risk(axes, study, by, protocols)
        handles = axes.get_legend_handles_labels()
    else:
        handles = _draw_panels(figure, study, by or study.factors[:1], of, protocols)
    figure.legend(*handles, loc="outside right upper", frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip(".") or "svg")


def _draw_risk(axes: Any, study: Any, by: Sequence[str], protocols: Sequence[str] | None) -> None:
    """Mean cost of each protocol that may abstain, against the share of comparisons in which it decides."""
    abstaining = [j["title"] for j in study.judgements() if j["abstains"] and is_named(j, protocols)]
    for title in dict.fromkeys(abstaining):
        curves = study.risk_coverage(title, by)
        groups = list(curves.groupby(list(by), sort=False, dropna=False)) if by else [((), curves)]
        for levels, own in groups:
            label = ", ".join([title, *(f"{name} {level}" for name, level in zip(by, levels, strict=True))])
            axes.plot(100.0 * own["decides"], 100.0 * own["cost"], drawstyle="steps-post", label=label)
    axes.set_xlabel("decides, % of the catalogues")
    axes.set_ylabel("mean cost there, % of the best")


def _draw_panels(figure: Any, study: Any, by: Sequence[str], of: str, protocols: Sequence[str] | None) -> Any:
    """Draw one panel per level of the second factor, and return the legend's handles and labels."""
    means = study.means(by, of=of, protocols=protocols)
    panels = list(means.groupby(by[1], sort=False, dropna=False)) if len(by) > 1 else [("", means)]
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (level, own) in zip(all_axes, panels, strict=True):
        _draw_means(axes, own, by[0] if by else None, 100.0 if of == "cost" else 1.0, len(panels))
        axes.set_title(f"{by[1]} {level}" if len(by) > 1 else "", fontsize="medium")
    all_axes[0].set_ylabel(_LABELS[of])
    return all_axes[0].get_legend_handles_labels()


def _draw_means(axes: Any, means: pd.DataFrame, factor: str | None, scale: float, panels: int) -> None:
    """Draw means as points, one colour per protocol, with intervals where there are any; one of several panels."""
    levels = ["all"] if factor is None else list(dict.fromkeys(means[factor]))
    series = list(means.groupby("title", sort=False))
    for place, (title, own) in enumerate(series):
        shift = _WIDTH * ((place + 0.5) / len(series) - 0.5)
        at = [shift if factor is None else levels.index(level) + shift for level in own[factor or "title"]]
        colour = f"C{place}"
        axes.plot(at, scale * own["mean"], "o", color=colour, label=title)
        axes.vlines(at, scale * own["low"].astype(float), scale * own["high"].astype(float), color=colour)
    room = max(_LEAST_ROOM, _ROOM // (len(levels) * panels))
    axes.set_xticks(range(len(levels)), [textwrap.fill(str(level), room) for level in levels], fontsize="small")
    axes.set_xlabel(factor or "")
