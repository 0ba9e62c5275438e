"""Pages of reports as tests read them."""

from __future__ import annotations

from pathlib import Path


def page_text(path: Path) -> str:
    """A page with spaces that no line ends at as plain ones."""
    return path.read_text().replace("\N{NO-BREAK SPACE}", " ")
