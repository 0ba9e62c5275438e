"""An SVG picture as it stands inside a page."""

from __future__ import annotations

import html
import re

from recsim_mnar.errors import visible
from recsim_mnar.report.style import INK, LINE, TRUTH

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
