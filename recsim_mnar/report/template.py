"""Pages from their templates: written whole, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recsim_mnar.log.files import replacing
from recsim_mnar.report.figures import Figure
from recsim_mnar.report.tables import has_interval, number


def write_from(template: str, path: Path, made_by: Any, figures: Iterable[Figure], **values: Any) -> None:
    """Write a page under a temporary name, then rename it.

    Args:
        template: file beside this module, which extends ``base.html``.
        path: of the page.
        made_by: settings and provenance, shown at its foot; JSON types only.
        figures: that it shows.
        **values: what else the template names.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from recsim_mnar import __version__

    environment = Environment(
        loader=PackageLoader("recsim_mnar.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["number"] = number
    environment.tests["estimate"] = has_interval
    page = environment.get_template(template).render(
        made_by=json.dumps(made_by, indent=2),
        version=__version__,
        figures=[(figure.title, Markup(figure.svg), figure.caption) for figure in figures],
        **values,
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
