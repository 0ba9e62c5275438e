"""The report: one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recsim_mnar.log.files import replacing
from recsim_mnar.protocols.compare import Comparison
from recsim_mnar.report.figures import figures_of
from recsim_mnar.report.tables import grid, number


def write_page(path: Path, comparison: Comparison, run_config: dict[str, Any]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        comparison: what it tells.
        run_config: settings and provenance, shown at its foot; JSON types only.
    """
    import json

    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    from recsim_mnar import __version__

    environment = Environment(
        loader=PackageLoader("recsim_mnar.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["number"] = number
    page = environment.get_template("page.html").render(
        comparison=comparison,
        short=grid(comparison),
        full=grid(comparison, full=True),
        level=comparison.records[0].level if comparison.records else 0.95,
        figures=[(figure.title, Markup(figure.svg), figure.caption) for figure in figures_of(comparison)],
        verdicts=[
            (r.agent, r.details.get("verdict", ""), r.details.get("share_supported"), r.details.get("value_on_log"), r)
            for r in comparison.records
            if (r.protocol, r.metric) == ("off_policy", "clipped_ips")
        ],
        run_config=json.dumps(run_config, indent=2),
        version=__version__,
    )
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
