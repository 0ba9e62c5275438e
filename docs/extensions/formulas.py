"""Formulas as MathML: browsers draw it themselves, so that no page asks another host for a script."""

from __future__ import annotations

from typing import Any

from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx


def setup(app: Sphinx) -> dict[str, Any]:
    """Announce the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (_inline, _leave), (_display, _leave))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _inline(translator: Any, node: Any) -> None:
    translator.body.append(tex2mathml(node.astext()))
    _skip()


def _display(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="formula">{tex2mathml(node.astext(), as_block=True)}</div>')
    _skip()


def _skip() -> None:
    from docutils.nodes import SkipNode

    raise SkipNode


def _leave(translator: Any, node: Any) -> None:
    pass
