"""Advice as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.fitting.advice import Advice
from recsim_mnar.report.figures import Figure, axes_of, label_of, svg_of
from recsim_mnar.report.template import write_from

_LINE = "#111827"


def write_advice(path: Path, found: Advice, made_by: dict[str, Any]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        found: what it tells.
        made_by: what was asked, shown at its foot; JSON types.
    """
    write_from(
        "advice.html",
        path,
        made_by,
        [_costs(found)] if found.ranked else [],
        sentences=found.sentences(),
        nothing=found.says_nothing_of_agents,
        trust=found.trust(),
        rows=[(r, r.price()) for r in [*found.ranked, *found.exploring]],
        identified=found.identified,
        not_identified=found.not_identified,
        doctor=found.doctor,
    )


def _costs(found: Advice) -> Figure:
    rows = [r for r in found.ranked if r.cost["mean"] is not None]
    figure, axes = axes_of(6.2, 0.8 + 0.4 * len(rows))
    y = np.arange(len(rows))[::-1]
    means = np.array([r.cost["mean"] for r in rows])
    low = np.array([r.cost["low"] if r.cost["low"] is not None else r.cost["mean"] for r in rows])
    high = np.array([r.cost["high"] if r.cost["high"] is not None else r.cost["mean"] for r in rows])
    axes.errorbar(means, y, xerr=[means - low, high - means], fmt="o", color=_LINE, capsize=4)
    axes.set_yticks(y, [label_of(r.title) for r in rows])
    axes.set_xlim(left=0)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("mean cost of the choice, share of the best agent's value")
    caption = "Whiskers: 95 % for the mean, over the worlds of the ensemble."
    if any(r.too_few for r in rows):
        caption += " They are too few to say what a choice costs on average."
    return Figure("What a choice costs", svg_of(figure), caption)
