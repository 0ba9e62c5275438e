"""Files of the repository that are pages of the site: included as they are, with their links made to fit.

Where a page says ``% bring: ../benchmarks/README.md`` (relative to the page) that file stands, without its title if the
page has one; a line ``[Read it here](...)`` before it is for who reads the page outside of the site. In every page a
link to a brought file becomes a link to its page, a link to any other file a download, and one to a folder its name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

_BRING = re.compile(r"^(?:\[Read it here\]\([^)]*\)\n+)?% bring: (\S+)$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\((?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")

_STUDY = re.compile(r"(?<!\[)`benchmarks/(\w+)/?`(?!\])")


def setup(app: Sphinx) -> dict[str, Any]:
    """Learn which pages bring which files, and change pages as they are read."""
    app.connect("builder-inited", _learn)
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _learn(app: Sphinx) -> None:
    source = Path(app.srcdir)
    app.brought = {}  # type: ignore[attr-defined]  # file -> page
    for page in source.rglob("*.md"):
        if "_build" not in page.parts:
            for target in _BRING.findall(page.read_text()):
                app.brought[(page.parent / target).resolve()] = page  # type: ignore[attr-defined]


def _read(app: Sphinx, docname: str, content: list[str]) -> None:
    page = Path(app.env.doc2path(docname))
    if page.suffix != ".md":
        return
    text = content[0]
    marker = _BRING.search(text)
    if marker:
        origin = (page.parent / marker.group(1)).resolve()
        app.env.note_dependency(str(origin))
        brought = _outside_code(origin.read_text(), lambda part: _links(app, part, origin.parent, page))
        if text.startswith("# "):  # the page has a title of its own
            brought = re.sub(r"\A# .*\n", "", brought)
        text = text[: marker.start()] + brought + text[marker.end() :]
    else:
        text = _outside_code(text, lambda part: _links(app, part, page.parent, page))
    content[0] = text


def _outside_code(text: str, change: Any) -> str:
    """Change what does not lie in fenced blocks."""
    parts = re.split(r"(^```.*?^```[ \t]*$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)


def _links(app: Sphinx, text: str, beside: Path, page: Path) -> str:
    def fitted(match: re.Match[str]) -> str:
        image, words, target, anchor = match.groups()
        path = (beside / target).resolve()
        if not path.exists():
            return match.group(0)  # Sphinx says that it is missing
        known = app.brought.get(path)  # type: ignore[attr-defined]
        if path.is_dir() or (path.suffix == ".md" and known is None and not path.is_relative_to(app.srcdir)):
            return words if words.startswith("`") else f"{words} (`{path.relative_to(Path(app.srcdir).parent)}`)"
        return f"{image}[{words}]({os.path.relpath(known or path, page.parent)}{anchor or ''})"

    return _STUDY.sub(lambda match: _study(app, match, page), _LINK.sub(fitted, text))


def _study(app: Sphinx, match: re.Match[str], page: Path) -> str:
    """A study that is named as code, as a link to its page."""
    readme = Path(app.srcdir).parent / "benchmarks" / match[1] / "README.md"
    known = app.brought.get(readme)  # type: ignore[attr-defined]
    return match[0] if known in (None, page) else f"[{match[0]}]({os.path.relpath(known, page.parent)})"
