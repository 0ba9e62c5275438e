"""Data that a page carries within itself, for those who have nothing but the page."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
    """Rows as CSV and as JSON; what is larger than :data:`MOST_BYTES` is left to the files beside the page.

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
