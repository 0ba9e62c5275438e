"""Pages from their templates, written whole or not at all, with the data that they carry and words explained."""

from __future__ import annotations

import base64
import csv
import functools
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record, has_interval
from recsim_mnar.report.charts import OWN_COLOURS, Chart, environment
from recsim_mnar.report.finding import Finding
from recsim_mnar.runs.files import replacing


@dataclass(frozen=True)
class Grid:
    """Cells of a table.

    Attributes:
        heads: titles of the columns after the agent's.
        rows: agent and its records, one per column, None where there is none.
        best: in each column the best value of those that can be picked; NaN where none is better.
    """

    heads: list[str]
    rows: list[tuple[str, list[Record | None]]]
    best: list[float]


def grid(comparison: Comparison) -> Grid:
    """Agents by every metric there is."""
    records = comparison.records
    # The reciprocal rank at 1 is the hit rate at 1: one column says it.
    keys = [key for key in dict.fromkeys((r.protocol, r.metric) for r in records) if key != ("loocv", "mrr@1")]
    agents = list(dict.fromkeys(r.agent for r in records))
    by_key = {(r.agent, r.protocol, r.metric): r for r in records}
    rows = [(agent, [by_key.get((agent, *key)) for key in keys]) for agent in agents]
    best = [
        math.nan if key[1] in comparison.neutral else _best([row[i] for _, row in rows], key[1] in comparison.losses)
        for i, key in enumerate(keys)
    ]
    return Grid([comparison.heading(key) for key in keys], rows, best)


def _best(cells: list[Record | None], loss: bool) -> float:
    """The best value of those that can be picked."""
    values = [c.value for c in cells if c is not None and math.isfinite(c.value) and not c.is_reference]
    if not values:
        return math.nan
    return min(values) if loss else max(values)


def number(value: float) -> str:
    """Five decimals, without the leading zero that rates do not need."""
    text = f"{value:.5f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


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


def downloads_of(stem: str, rows: Iterable[Mapping[str, object]]) -> list[Download]:
    """Rows as CSV and as JSON; what is larger than :data:`MOST_BYTES` is left to the files next to the page.

    Args:
        stem: of the files' names.
        rows: of JSON types.
    """
    rows = list(rows)
    if not rows:
        return []
    kinds = [(f"{stem}.csv", "text/csv", _csv(rows)), (f"{stem}.json", "application/json", json.dumps(rows, indent=1))]
    encoded = [(name, kind, text.encode()) for name, kind, text in kinds]
    return [
        Download(name, f"data:{kind};base64,{base64.b64encode(data).decode()}", f"{max(1, round(len(data) / 1e3))} kB")
        for name, kind, data in encoded
        if len(data) <= MOST_BYTES
    ]


def together(*lists: list[Download]) -> list[Download]:
    """All of them in order, without those that would make the page as heavy as two of :data:`MOST_BYTES` and more."""
    found, room = [], 2 * (MOST_BYTES * 4 // 3 + 64)  # what names a file's kind included
    for file in (file for of_rows in lists for file in of_rows):
        if len(file.href) <= room:
            found.append(file)
            room -= len(file.href)
    return found


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
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
    made_by: Mapping[str, object],
    finding: Finding | None,
    charts: Iterable[Chart],
    *,
    downloads: Sequence[Download] = (),
    **values: Any,
) -> None:
    """Write a page under a temporary name, then rename it.

    Args:
        template: file next to this module, which extends ``base.html``.
        path: of the page.
        made_by: settings and provenance, shown at its foot; JSON types only.
        finding: its first screen; None where there is nothing to decide.
        charts: that it shows.
        downloads: files that it carries.
        **values: what else the template names.
    """
    from recsim_mnar._version import __version__

    renderer = environment()
    renderer.filters["number"] = number
    renderer.tests["estimate"] = has_interval
    page = renderer.get_template(template).render(
        made_by=json.dumps(made_by, indent=2),
        version=__version__,
        finding=finding,
        charts=list(charts),
        downloads=downloads,
        **values,
    )
    page = unbroken(explained(page, words()))
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def unbroken(page: str) -> str:
    """The page, with numbers that no line's end divides from their sign of per cent, nor intervals in brackets."""
    page = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", page)
    return re.sub(r"(\[-?[\d.,]+%?), (?=-?[\d.,]+%?\])", "\\1,\N{NO-BREAK SPACE}", page)


# ------------------------------------------------------------------------------------------------------------ glossary

_ENTRY = re.compile(r'(?s)<dt id="[^"]*">(.*?)</dt>\s*<dd>(.*?)</dd>\n')
_TAG = re.compile(r"(<[^>]*>)")
_CLOSED = ("script", "style", "title", "a", "pre", "code", "svg", "dl", "summary")
"""Elements in which words are left as they are, as they are in charts."""
_ANEW = ("<h2", "<details", "<thead")
"""Where a word is explained once more."""


@functools.cache
def words() -> dict[str, str]:
    """What each term of a page means, from the glossary at its foot."""
    text = files("recsim_mnar.report").joinpath("words.html").read_text(encoding="utf-8")
    return dict(_ENTRY.findall(text))


def explained(page: str, known: Mapping[str, str]) -> str:
    """The page, each term with its meaning as a tooltip and a link to the glossary, once in each of its parts.

    A recommender's name, which may be a word as any other, is one only where a table has it. Of the glossary what the
    page does not use is left out.
    """
    named = [name for name in known if name not in OWN_COLOURS or f">{name}</th>" in page]
    longest = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    term = re.compile(rf"(?i)(?<![\w/.-])(?<!at )({longest})(?![\w-]|@\D|\.\w)")
    lower = {name.lower(): name for name in known}
    made, said, used, closed = [], set[str](), set[str](), list[str]()

    def linked(found: re.Match[str]) -> str:
        name = lower[found[1].lower()]
        if name in said:
            return found[1]
        said.add(name)
        used.add(name)
        return f'<a class="term" href="#{anchor(name)}" title="{known[name]}">{found[1]}</a>'

    head, body, rest = page.partition("<main>")
    for piece in _TAG.split(rest):
        if piece.startswith("<"):
            name = piece.strip("</> ").split()[0].lower()
            drawn = piece.startswith('<div role="img"') or (name == "div" and "div" in closed)
            if (name in _CLOSED or drawn) and not piece.endswith("/>"):
                closed.append(name) if not piece.startswith("</") else closed.pop()
            if piece.startswith(_ANEW):
                said.clear()
            made.append(piece)
        else:
            made.append(piece if closed else term.sub(linked, piece))
    return head + body + _ENTRY.sub(lambda found: found[0] if found[1] in used else "", "".join(made))


def anchor(name: str) -> str:
    """Where the glossary of a page has a term."""
    return "word-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
