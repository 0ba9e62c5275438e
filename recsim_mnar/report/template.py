"""Pages from their templates, written whole or not at all, with the data that they carry."""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_mnar.errors import visible
from recsim_mnar.report.figures import INK, LINE, TRUTH, Figure
from recsim_mnar.report.tables import has_interval, number, shade, state
from recsim_mnar.runs.files import replacing

_NAMES = re.compile(r'(\bid="|\bhref="#|url\(#)')


def inside_page(svg: str, *, place: int, label: str) -> str:
    """The picture with a name for those who cannot see it, in the page's own ink, with names that no other one has.

    Args:
        svg: of :func:`recsim_mnar.report.figures.svg_of`.
        place: of the picture on the page.
        label: what it shows.
    """
    named = _NAMES.sub(lambda found: f"{found[1]}f{place}-", svg)
    # Ink follows the page's, which is light where the page is dark.
    for colour, taken in ((INK, "currentColor"), (TRUTH, "currentColor"), (LINE, "var(--grid)")):
        named = named.replace(colour, taken)
    return named.replace("<svg ", f'<svg role="img" aria-label="{html.escape(visible(label))}" ', 1)


MOST_BYTES = 700_000
"""Of a file that a page carries; two of them, base64's third more, leave the page below 3 MB (:func:`together`)."""


@dataclass(frozen=True)
class Download:
    """A file within a page.

    Attributes:
        name: under which it is saved.
        href: its bytes as a data URL.
        size: for a person.
    """

    name: str
    href: str
    size: str


def downloads_of(stem: str, rows: Iterable[dict[str, Any]]) -> list[Download]:
    """Rows as CSV and as JSON; what is larger than :data:`MOST_BYTES` is left to the files next to the page.

    Args:
        stem: of the files' names.
        rows: of JSON types.
    """
    rows = list(rows)
    if not rows:
        return []
    files = [(f"{stem}.csv", "text/csv", _csv(rows)), (f"{stem}.json", "application/json", json.dumps(rows, indent=1))]
    encoded = [(name, kind, text.encode()) for name, kind, text in files]
    return [
        Download(name, f"data:{kind};base64,{base64.b64encode(data).decode()}", f"{max(1, round(len(data) / 1e3))} kB")
        for name, kind, data in encoded
        if len(data) <= MOST_BYTES
    ]


def together(*files: list[Download]) -> list[Download]:
    """All of them in order, without those that would make the page as heavy as two of :data:`MOST_BYTES` and more."""
    found, room = [], 2 * (MOST_BYTES * 4 // 3 + 64)  # what names a file's kind included
    for file in (file for of_rows in files for file in of_rows):
        if len(file.href) <= room:
            found.append(file)
            room -= len(file.href)
    return found


def _csv(rows: list[dict[str, Any]]) -> str:
    """Plain values as they are; what holds further values is left to the JSON."""
    names = [name for name in rows[0] if not any(isinstance(row.get(name), (dict, list)) for row in rows)]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write_from(
    template: str,
    path: Path,
    made_by: Any,
    figures: Iterable[Figure],
    *,
    downloads: Sequence[Download] = (),
    **values: Any,
) -> None:
    """Write a page under a temporary name, then rename it.

    Args:
        template: file next to this module, which extends ``base.html``.
        path: of the page.
        made_by: settings and provenance, shown at its foot; JSON types only.
        figures: that it shows.
        downloads: files that it carries.
        **values: what else the template names.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from recsim_mnar._version import __version__

    environment = Environment(
        loader=PackageLoader("recsim_mnar.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"number": number, "state": state, "shade": shade}
    environment.tests["estimate"] = has_interval
    page = environment.get_template(template).render(
        made_by=json.dumps(made_by, indent=2),
        version=__version__,
        figures=[
            (one.title, Markup(inside_page(one.svg, place=place, label=f"{one.title}. {one.caption}")), one.caption)
            for place, one in enumerate(figures)
        ],
        downloads=downloads,
        **values,
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def _shown(value: Any) -> Any:
    """What stands in a page: a text's control characters and marks of direction as escapes."""
    return visible(value, keep="\n") if type(value) is str else value
