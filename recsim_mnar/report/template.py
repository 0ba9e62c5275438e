"""Pages from their templates: written whole, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from recsim_mnar.errors import visible
from recsim_mnar.report.downloads import Download
from recsim_mnar.report.figures import Figure
from recsim_mnar.report.finding import shade, state
from recsim_mnar.report.svg import inside_page
from recsim_mnar.report.tables import has_interval, number
from recsim_mnar.runs.files import replacing


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
        template: file beside this module, which extends ``base.html``.
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
    environment.filters["number"] = number
    environment.filters |= {"state": state, "shade": shade}
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
