"""The page of ``validate``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from recsim_mnar.fitting.validation import Validation
from recsim_mnar.report.charts import (
    PLAIN,
    Chart,
    Dot,
    dots,
)
from recsim_mnar.report.template import of_validation, write_from

_CLASSES = {"matches": "trust", "close": "trust", "cannot say": "caution", "off": "do_not_use"}
"""CSS class by grade of a check."""
WIDTH = 80
"""Width of lines for the terminal, in characters."""


def table_lines(validation: Validation) -> Iterator[str]:
    """Yield a line per check, of at most :data:`WIDTH` columns."""
    yield f"{'check':<29}{'grade':<11}{'real':>10}{'simulated':>10}{'apart':>7}{'chance':>7}{'p':>6}"
    for check in validation.checks:
        p = ""
        if check.p_adjusted is not None:
            p = f"{check.p_adjusted:.3f}".removeprefix("0")
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
"""Explanation of the table."""


def legend_lines() -> list[str]:
    """Return the explanation of columns and grades, wrapped to :data:`WIDTH` columns."""
    return textwrap.wrap(LEGEND, WIDTH)


def sentence_lines(validation: Validation) -> Iterator[str]:
    """Yield lines on the questions for which the world is valid or not, wrapped to :data:`WIDTH` columns."""
    for _, head, questions in answers(validation):
        if questions:
            yield f"{head}:"
            for question in questions:
                yield from textwrap.wrap(question, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    for note in validation.notes:
        yield from textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")


def answers(validation: Validation) -> list[tuple[str, str, list[str]]]:
    """Return the four lists of questions, each with its CSS class and heading."""
    return [
        ("best", "valid for these questions", validation.valid_for),
        ("costs", "not valid for these", validation.not_valid_for),
        ("indistinguishable", "cannot say for these: see the check", validation.cannot_say),
        ("", "not checked for those", validation.not_checked),
    ]


def write_validation(path: Path, validation: Validation, made_by: Mapping[str, object]) -> None:
    """Write the page of a validation under a temporary name, then rename it.

    Args:
        path: path of the page.
        validation: the validation.
        made_by: options of the command for the foot of the page; JSON types.
    """
    write_from(
        "validation.html",
        path,
        made_by,
        of_validation(validation),
        [_distance_chart(validation)],
        answers=answers(validation),
        checks=validation.checks,
        classes=_CLASSES,
        notes=validation.notes,
        facts=validation.facts,
        features=next((c.picture["features"] for c in validation.checks if c.kind == "classifier"), []),
    )


_GRADES = {"matches": "good", "close": "good", "cannot say": "tie", "off": "bad"}


def _distance_chart(validation: Validation) -> Chart:
    """Draw the distance of simulated from real users in each check, and the range that chance explains."""
    checks = sorted(validation.checks, key=lambda check: check.distance)
    rows = [Dot(c.name, c.distance, 0.0, c.visible, _GRADES[c.grade], words=c.grade) for c in checks]
    caption = (
        "How far the simulated users are from the real ones in each check; the whisker is what chance does to real "
        "users in 95 % of all divisions."
    )
    return Chart("Where the world is like the log, and where not", dots(rows, PLAIN), caption, folded=False)
