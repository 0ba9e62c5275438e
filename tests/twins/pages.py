"""Pages of reports as tests read them."""

from __future__ import annotations

import re
from pathlib import Path


def unlinked(path: Path) -> str:
    """A page without its links, which words have to the glossary, and spaces that no line ends at as plain ones."""
    return re.sub(r"</?a\b[^>]*>", "", path.read_text()).replace("\N{NO-BREAK SPACE}", " ")
