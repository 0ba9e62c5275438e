"""Advice and a validation as one page each, with pictures; a validation as a table on a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.fitting.advice import Advice
from recsim_mnar.fitting.validation import Check, Validation
from recsim_mnar.report.figures import Figure, axes_of, label_of, svg_of
from recsim_mnar.report.template import write_from

_LINE = "#111827"
_OPEN = "#9ca3af"
"""Of differences that the log leaves open."""


def write_advice(path: Path, found: Advice, made_by: dict[str, Any]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        found: what it says.
        made_by: what was asked, shown at its foot; JSON types.
    """
    figures = [_coverage(found)] if found.agents else []
    figures += [_differences(found)] if found.pairs else []
    agents = [row["agent"] for row in found.agents]
    write_from("advice.html", path, made_by, figures, found=found, lines=found.sentences()[1:], agents=agents)


def _coverage(found: Advice) -> Figure:
    rows = [(r["agent"], r["covered"], r["covered_low"], r["covered_high"]) for r in found.agents]
    svg = _whiskers(rows, "share of the agent's recommendations that the log shows", [_LINE] * len(rows), (0.0, 1.02))
    return Figure(
        "What the log shows of each agent", svg, "Neither an estimate nor a model knows the part it does not show."
    )


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


_REAL, _SIMULATED, _BAND = "#111827", "#e8590c", "#c7d2fe"
_CLASSES = {"matches": "trust", "close": "trust", "cannot say": "caution", "off": "do_not_use"}
_MOST_TICKS = 9
_FEW = 12
_LETTERS = 40
"""Of all labels of an axis, that stand side by side without touching."""
WIDTH = 80


def table_lines(found: Validation) -> Iterator[str]:
    """The checks, a line each, within :data:`WIDTH` columns."""
    yield f"{'check':<29}{'grade':<11}{'real':>10}{'simulated':>10}{'apart':>7}{'chance':>7}{'p':>6}"
    for check in found.checks:
        p = "" if check.p_adjusted is None else f"{check.p_adjusted:.3f}".removeprefix("0")
        yield (
            f"{check.name[:28]:<29}{check.grade:<11}{check.real:>10.4g}{check.simulated:>10.4g}"
            f"{check.distance:>7.3f}{check.chance:>7.3f}{p:>6}"
        )


LEGEND = (
    "real, simulated: the number of the check's name on either side. apart: how far the two sides differ, 0 is not at "
    "all. chance: how far the same users differ where they are divided at random. p: how often chance makes as much, "
    "corrected for all checks. matches: like real users; close: slightly different; off: different; "
    "cannot say: too few users, or it is unknown what they were shown."
)
"""Of the table."""


def legend_lines() -> list[str]:
    """What the columns and grades mean, wrapped to :data:`WIDTH` columns."""
    return textwrap.wrap(LEGEND, WIDTH)


def sentence_lines(found: Validation) -> Iterator[str]:
    """What it is valid for, and for what not, wrapped to :data:`WIDTH` columns."""
    for _, head, questions in answers(found):
        if questions:
            yield f"{head}:"
            for question in questions:
                yield from textwrap.wrap(question, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    for note in found.notes:
        yield from textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")


def answers(found: Validation) -> list[tuple[str, str, list[str]]]:
    """The four lists: the class that a page shows them in, the heading, the questions."""
    return [
        ("best", "valid for these questions", found.valid_for),
        ("costs", "not valid for these", found.not_valid_for),
        ("indistinguishable", "cannot say for these: see the check", found.cannot_say),
        ("", "not checked for those", found.not_checked),
    ]


def write_validation(path: Path, found: Validation, made_by: dict[str, Any]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        found: what it says.
        made_by: what was asked, shown at its foot; JSON types.
    """
    write_from(
        "validation.html",
        path,
        made_by,
        [figure for figure in map(_figure, found.checks) if figure is not None],
        answers=answers(found),
        checks=found.checks,
        unpictured=[check for check in found.checks if "kind" not in check.picture],
        classes=_CLASSES,
        notes=found.notes,
        facts=found.facts,
        features=next((c.picture["features"] for c in found.checks if c.kind == "classifier"), []),
    )


def _figure(check: Check) -> Figure | None:
    picture = check.picture
    kind = picture.get("kind")
    if kind in ("cumulative", "scaled", "standard") or (kind == "shares" and len(picture["entries"]) <= _FEW):
        svg, caption = (
            _lines(picture),
            "Black: real users; orange: simulated ones; the band: what chance does to real ones (5 to 95 %).",
        )
    elif kind == "shares":
        svg, caption = _scatter(picture), "A dot an item, of those with the largest shares; bars: what chance does."
    elif kind == "features":
        svg, caption = _bars(picture["features"]), "How well single features separate real users from simulated ones."
    else:
        return None
    return Figure(f"{check.name}: {check.grade}", svg, f"{check.says}. {caption}")


def _lines(picture: dict[str, Any]) -> str:
    figure, axes = axes_of(6.2, 2.6)
    x = np.arange(len(picture["entries"]))
    axes.fill_between(x, picture["low"], picture["high"], color=_BAND, linewidth=0, step=None)
    marker = "o" if len(x) <= _FEW else None
    axes.plot(x, picture["real"], color=_REAL, linewidth=1.4, marker=marker, markersize=4, label="real")
    axes.plot(x, picture["simulated"], color=_SIMULATED, linewidth=1.4, marker=marker, markersize=4, label="simulated")
    ticks = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST_TICKS)).astype(int))
    names = [label_of(picture["entries"][i]) for i in ticks]
    if sum(map(len, names)) > _LETTERS:
        axes.set_xticks(ticks, names, rotation=20, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(ticks, names)
    axes.set_xlabel(picture["axis"])
    axes.legend(frameon=False)
    return svg_of(figure)


def _scatter(picture: dict[str, Any]) -> str:
    figure, axes = axes_of(4.6, 3.6)
    real, simulated = np.array(picture["real"]), np.array(picture["simulated"])
    low, high = np.array(picture["low"]), np.array(picture["high"])
    axes.hlines(simulated, low, high, color=_BAND, linewidth=2)
    axes.scatter(real, simulated, s=14, color=_SIMULATED, linewidths=0)
    most = float(max(real.max(), simulated.max(), high.max()))
    axes.plot([0, most], [0, most], color=_REAL, linewidth=0.8)
    axes.set_xlabel(f"share of each {picture['axis']}, real")
    axes.set_ylabel("simulated")
    return svg_of(figure)


def _bars(features: list[dict[str, Any]]) -> str:
    figure, axes = axes_of(6.2, 0.8 + 0.34 * len(features))
    names = [label_of(row["feature"]) for row in features][::-1]
    axes.barh(range(len(names)), [row["auc"] - 0.5 for row in features][::-1], left=0.5, color=_SIMULATED, height=0.6)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0.5, 1.0)
    axes.set_xlabel("area under the curve, by this feature alone")
    return svg_of(figure)
