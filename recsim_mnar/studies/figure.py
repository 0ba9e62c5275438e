"""The figures of a study: mean cost or rank correlation by the levels of a factor, and risk against coverage."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.runs.files import replacing

_OF = {"cost": ("cost_share", "mean cost, % of the best"), "tau": ("kendall_tau", "Kendall's tau with the truth")}
RISK = "risk"
_WIDTH = 0.6
"""Of the place that a level's protocols share along the axis, in levels."""


def plot_study(study: Any, path: Path, by: str | None, of: str, protocols: Sequence[str] | None = None) -> None:
    """Draw and write the figure; see :meth:`recsim_mnar.studies.result.Study.plot`."""
    from matplotlib.figure import Figure

    if of != RISK and of not in _OF:
        raise UserError(f"of must be cost, tau or risk, got {of!r}")
    factor = by or next(iter(study.factors), None)
    if factor is not None and factor not in study.factors:
        raise UserError(f"the study has no factor {factor!r}; {nearest(factor, study.factors)}")
    figure = Figure(figsize=(7.5, 3.4), layout="constrained")
    axes = figure.subplots()
    if of == RISK:
        _draw_risk(axes, study, protocols)
    else:
        _draw_means(axes, study, factor, of, protocols)
    figure.legend(loc="outside right upper", frameon=False, fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip(".") or "svg")


def _draw_risk(axes: Any, study: Any, protocols: Sequence[str] | None) -> None:
    """Mean cost of each protocol that may abstain, against the share of catalogues in which it decides."""
    abstaining = dict.fromkeys(j["title"] for j in study.judgements() if j["abstains"] and _wanted(j, protocols))
    for title in abstaining:
        for label, own in study.risk_coverage(title).groupby("study", sort=False):
            axes.plot(100.0 * own["decides"], 100.0 * own["cost"], drawstyle="steps-post", label=f"{title}, {label}")
    axes.set_xlabel("decides, % of the catalogues")
    axes.set_ylabel("mean cost there, % of the best")


def _draw_means(axes: Any, study: Any, factor: str | None, of: str, protocols: Sequence[str] | None) -> None:
    key, label = _OF[of]
    summary = [row for row in study.summary() if row[key]["mean"] is not None and _wanted(row, protocols)]
    levels = list(dict.fromkeys(row["levels"].get(factor) for row in summary))
    series: dict[str, list[dict[str, Any]]] = {}
    for row in summary:
        others = [f"{name}={level}" for name, level in row["levels"].items() if name != factor]
        series.setdefault(", ".join([row["title"], *others]), []).append(row)
    scale = 100.0 if of == "cost" else 1.0
    for place, (title, own) in enumerate(series.items()):
        shift = _WIDTH * ((place + 0.5) / len(series) - 0.5)
        at = [levels.index(row["levels"].get(factor)) + shift for row in own]
        _draw(axes, at, [row[key] for row in own], title, scale, f"C{place}")
    axes.set_xticks(range(len(levels)), ["all" if level is None else _broken(level) for level in levels])
    axes.set_xlabel(factor or "")
    axes.set_ylabel(label)


def _wanted(row: Any, protocols: Sequence[str] | None) -> bool:
    return protocols is None or any(name in protocols for name in (row["protocol"], row["metric"], row["title"]))


def _broken(level: Any) -> str:
    """A level in several lines, so that its neighbours have room."""
    return str(level).replace("+", "\n+").replace(",", ",\n")


def _draw(axes: Any, at: list[float], found: list[dict[str, Any]], title: str, scale: float, colour: str) -> None:
    """Means as points, with intervals where there are any."""
    axes.plot(at, [scale * one["mean"] for one in found], "o", color=colour, label=title)
    for x, one in zip(at, found, strict=True):
        if one["low"] is not None:
            axes.plot([x, x], [scale * one["low"], scale * one["high"]], "-", color=colour)
