"""The report: one self-contained HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recsim_mnar.estimators.off_policy.weights import WeightDistribution
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record
from recsim_mnar.report.downloads import downloads_of, together
from recsim_mnar.report.figures import figures_of
from recsim_mnar.report.finding import finding_of
from recsim_mnar.report.judged_figures import judged_figures
from recsim_mnar.report.popularity import popularity_figure
from recsim_mnar.report.tables import grid
from recsim_mnar.report.template import write_from
from recsim_mnar.report.weights import weight_figures


def write_page(path: Path, comparison: Comparison, run_config: dict[str, Any]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        comparison: what it tells.
        run_config: settings and provenance, shown at its foot; JSON types only.
    """
    clip = comparison.details.get("clip")
    rows_of_weights, popularity = (comparison.details.get(name, []) for name in ("weights", "popularity"))
    weights = [WeightDistribution.from_dict(row) for row in rows_of_weights]
    made = [*figures_of(comparison), *judged_figures(comparison), popularity_figure(popularity)]
    of_weights = weight_figures(weights, clip)
    write_from(
        "page.html",
        path,
        run_config,
        [*(figure for figure in made if figure is not None), *of_weights],
        downloads=together(
            downloads_of("results", (row_of(record) for record in comparison.records)),
            downloads_of("weights", rows_of_weights),
            downloads_of("popularity", popularity),
        ),
        n_of_weights=len(of_weights),
        weights=weights,
        clip=clip,
        comparison=comparison,
        finding=finding_of(comparison),
        again=comparison.again,
        short=grid(comparison),
        full=grid(comparison, full=True),
        level=comparison.records[0].level if comparison.records else 0.95,
        verdicts=[
            (r.agent, r.details.get("verdict", ""), r.details.get("share_supported"), r.details.get("value_on_log"), r)
            for r in comparison.records
            if (r.protocol, r.metric) == ("off_policy", "clipped_ips")
        ],
    )


def row_of(record: Record) -> dict[str, Any]:
    """A record as the page carries it: without its time, which no two runs share, and what only programs read."""
    row = record.to_dict()
    return {name: row[name] for name in row if name not in ("seconds", "details")}
