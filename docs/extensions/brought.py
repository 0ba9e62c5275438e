"""Include files of the repository in pages of the site, with their links made to fit.

A line ``[Read benchmarks/README.md](../benchmarks/README.md)`` stands for that file. Its headings move one level down
where the page has a title, or an earlier such line. In every page a link to a brought file leads to its section, a link
to any other file is a download, and a link to a folder shows the folder's name.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mdit_py_plugins.anchors.index import slugify
from sphinx.application import Sphinx

_BRING = re.compile(r"^\[Read \S+\]\((\S+)\)$", re.MULTILINE)
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
    titled = content[0].startswith(("# ", "---"))

    def included(match: re.Match[str]) -> str:
        origin = (page.parent / match.group(1)).resolve()
        app.env.note_dependency(str(origin))
        lowered = titled or match.start() > 0
        return _outside_code(origin.read_text(), lambda part: _section(app, part, origin.parent, page, lowered))

    pieces = _BRING.split(content[0])  # the page's own text, and between two pieces of it the name of a file
    own = [_outside_code(piece, lambda part: _links(app, part, page.parent, page)) for piece in pieces[::2]]
    brought = [included(match) for match in _BRING.finditer(content[0])]
    content[0] = "".join(own[:1] + [text for pair in zip(brought, own[1:], strict=True) for text in pair])


def _section(app: Sphinx, text: str, beside: Path, page: Path, lowered: bool) -> str:
    """Fit a brought file's links, and move its headings down where they are not the page's."""
    fitted = _links(app, text, beside, page)
    return re.sub(r"^#{1,5} ", r"#\g<0>", fitted, flags=re.MULTILINE) if lowered else fitted


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
        place = anchor or (known and _anchor(path)) or ""
        return f"{image}[{words}]({os.path.relpath(known or path, page.parent)}{place})"

    return _STUDY.sub(lambda match: _study(app, match, page), _LINK.sub(fitted, text))


def _anchor(brought: Path) -> str:
    """Return the anchor of a brought file's title, empty if it has none."""
    first = brought.read_text().partition("\n")[0]
    return f"#{slugify(first.removeprefix('# '))}" if first.startswith("# ") else ""


def _study(app: Sphinx, match: re.Match[str], page: Path) -> str:
    """A study that is named as code, as a link to its page."""
    readme = Path(app.srcdir).parent / "benchmarks" / match[1] / "README.md"
    known = app.brought.get(readme)  # type: ignore[attr-defined]
    if known in (None, page):
        return match[0]
    return f"[{match[0]}]({os.path.relpath(known, page.parent)}{_anchor(readme)})"
