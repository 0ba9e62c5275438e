"""A fitted world and a validation as one page each; a validation as a table on a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.fitting.calibration import FittedWorld
from recsim_mnar.fitting.validation import Check, Validation
from recsim_mnar.report.charts import (
    PER_CENT,
    PLAIN,
    Chart,
    Curve,
    Dot,
    Plot,
    axis_of,
    curves,
    dots,
    short,
)
from recsim_mnar.report.finding import of_fit, of_validation
from recsim_mnar.report.template import write_from


def write_fit(path: Path, found: FittedWorld, made_by: Mapping[str, object]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        found: the fitted world.
        made_by: what was asked, shown at its foot; JSON types.
    """
    known = {name: row for name, row in found.identified.items() if row["value"] > 0 and row["low"] >= 0}
    rows = [
        Dot(name.replace("_", " "), 1.0, row["low"] / row["value"], row["high"] / row["value"],
            words=f"{row['value']:.4g}")
        for name, row in sorted(known.items(), key=lambda one: (one[1]["high"] - one[1]["low"]) / one[1]["value"])
    ]  # fmt: skip
    caption = "Each value of the fit as 100 %, with its 90 % interval from the log; the most certain first."
    charts = [Chart("How closely the log settles each feature", dots(rows, PER_CENT), caption, folded=False)]
    write_from("fit.html", path, made_by, of_fit(found), charts if rows else [], found=found)


_CLASSES = {"matches": "trust", "close": "trust", "cannot say": "caution", "off": "do_not_use"}
_MOST_TICKS = 5
_FEW = 12
_LETTERS = 30
"""Of all labels of an axis, that stand side by side on a phone without touching."""
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


def write_validation(path: Path, found: Validation, made_by: Mapping[str, object]) -> None:
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
        of_validation(found),
        [_apart(found), *(chart for chart in map(_chart, found.checks) if chart is not None)],
        answers=answers(found),
        checks=found.checks,
        unpictured=[check for check in found.checks if "kind" not in check.picture],
        classes=_CLASSES,
        notes=found.notes,
        facts=found.facts,
        features=next((c.picture["features"] for c in found.checks if c.kind == "classifier"), []),
    )


_GRADES = {"matches": "good", "close": "good", "cannot say": "tie", "off": "bad"}


def _apart(found: Validation) -> Chart:
    rows = [
        Dot(check.name, check.distance, 0.0, check.visible, _GRADES[check.grade], words=check.grade)
        for check in sorted(found.checks, key=lambda check: check.distance)
    ]
    caption = (
        "How far the simulated users are from the real ones in each check; the whisker is what chance does to real "
        "users in 95 % of all divisions."
    )
    return Chart("Where the world is like the log, and where not", dots(rows, PLAIN), caption, folded=False)


def _chart(check: Check) -> Chart | None:
    picture = check.picture
    kind = picture.get("kind")
    if kind in ("cumulative", "scaled", "standard", "shares"):
        body, caption = _lines(picture), "The band: what chance does to real users (5 to 95 %)."
    elif kind == "features":
        rows = [Dot(row["feature"], row["auc"], colour="a1") for row in picture["features"]]
        body = dots(sorted(rows, key=lambda row: -row.value), PLAIN, axis_of(0.5, 1.0))
        caption = "How well single features separate real users from simulated ones; .5 is not at all."
    else:
        return None
    return Chart(f"{check.name}: {check.grade}", body, f"{check.says}. {caption}")


def _lines(picture: Mapping[str, Any]) -> str:
    n = len(picture["entries"])
    if picture["kind"] == "shares" and n > _FEW:  # items, the largest first; few groups keep their order
        order = np.argsort(picture["real"], kind="stable")[::-1]
        names = ("entries", "real", "simulated", "low", "high")
        picture = dict(picture) | {name: [picture[name][i] for i in order] for name in names}
    entries = [short(str(entry)) for entry in picture["entries"]]
    ticks = np.unique(np.linspace(0, n - 1, min(n, _MOST_TICKS)).astype(int))
    if sum(len(entries[i]) for i in ticks) > _LETTERS:
        ticks = np.array([0])
    places = (np.arange(n) / max(n - 1, 1)).tolist()
    plot = Plot(places, [(places[i], entries[i]) for i in ticks], PLAIN, (picture["low"], picture["high"]),
                below=picture["axis"])  # fmt: skip
    real, simulated = Curve("real users", picture["real"]), Curve("simulated", picture["simulated"], "a1")
    return curves([real, simulated], plot)
