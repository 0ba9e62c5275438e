"""A comparison as files: one self-contained page, results that two identical runs write alike, times."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recsim_mnar.answers.weights import WeightDistribution
from recsim_mnar.estimators.ranking_records import RANKING_ESTIMATORS
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record
from recsim_mnar.protocols.scoreboard import scoreboard
from recsim_mnar.report.charts import colours_of
from recsim_mnar.report.figures import figures_of, weight_figures
from recsim_mnar.report.finding import of_comparison
from recsim_mnar.report.tables import grid
from recsim_mnar.report.template import downloads_of, together, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import INDEX, digest_of

SCHEMA = 1
"""Of results.json."""


def write_comparison(folder: Path, comparison: Comparison, run_config: dict[str, Any], seconds: float) -> None:
    """Write ``log/``, ``summary.json``, ``results.json``, ``timings.json`` and ``report.html``, and their index.

    Args:
        folder: that exists.
        comparison: what was found.
        run_config: what suffices to make it again; JSON types.
        seconds: wall time of the whole.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        into.begin(digest_of(run_config))
        if comparison.log is not None:
            comparison.log.write(folder / "log")
            into.record(f"log/{INDEX}")
        if comparison.exposures is not None:
            comparison.exposures.write(folder)
        into.write_json("summary.json", {**run_config, **comparison.summary()})
        into.write_json("results.json", headed([untimed(r) for r in comparison.records]))
        with into.recording("report.html") as path:
            write_page(path, comparison, run_config)
        # Of times there is no receipt: they differ.
        write_json(folder / "timings.json", {"seconds": round(seconds, 3), "records": timings(comparison.records)})


def results_of(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """What ``results.json`` and ``summary.json`` hold, as one object, and their folder."""
    return {
        **headed([untimed(r) for r in comparison.records]),
        **comparison.summary(),
        "sentences": comparison.sentences(),
        "folder": str(folder),
    }


def headed(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What ``results.json`` holds: ``{schema, package, records}``."""
    from recsim_mnar._version import __version__

    return {"schema": SCHEMA, "package": f"recsim-mnar {__version__}", "records": rows}


def untimed(record: Record) -> dict[str, Any]:
    """A record without its time; JSON types."""
    return {name: value for name, value in record.to_dict().items() if name != "seconds"}


def timings(records: Iterable[Record]) -> list[dict[str, Any]]:
    """Seconds of each record."""
    return [
        {"protocol": r.protocol, "agent": r.agent, "metric": r.metric, "seconds": round(r.seconds, 4)} for r in records
    ]


def write_page(path: Path, comparison: Comparison, run_config: dict[str, Any]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        comparison: what it says.
        run_config: settings and provenance, shown at its foot; JSON types only.
    """
    clip = comparison.details.get("clip")
    board = scoreboard(comparison, whole=True)
    rows_of_weights, popularity = (comparison.details.get(name, []) for name in ("weights", "popularity"))
    weights = [WeightDistribution.from_dict(row) for row in rows_of_weights]
    write_from(
        "page.html",
        path,
        _as_run(comparison, run_config),
        of_comparison(comparison),
        [*figures_of(comparison, board), *weight_figures(weights, clip, colours_of(board.agents))],
        downloads=together(
            downloads_of("results", (row_of(record) for record in comparison.records)),
            downloads_of("weights", rows_of_weights),
            downloads_of("popularity", popularity),
        ),
        weights=weights,
        clip=clip,
        comparison=comparison,
        board=board,
        again=comparison.again if comparison.judgements else "",
        full=grid(comparison),
        verdicts=_verdicts(comparison),
    )


def _verdicts(comparison: Comparison) -> dict[str, list[tuple[str, str, float | None, Record]]]:
    """Agents, verdicts, true values on the log and records, by heading: clipped IPS, or estimators of slates."""
    found: dict[str, list[tuple[str, str, float | None, Record]]] = {}
    for r in comparison.records:
        if r.protocol == "off_policy" and r.metric in ("clipped_ips", *RANKING_ESTIMATORS):
            heading = (
                "clipped IPS"
                if r.metric == "clipped_ips"
                else comparison.headings.get((r.protocol, r.metric), r.metric)
            )
            row = r.agent, r.details.get("verdict", ""), r.details.get("value_on_log"), r
            found.setdefault(heading, []).append(row)
    return found


def _as_run(comparison: Comparison, run_config: dict[str, Any]) -> dict[str, Any]:
    """The settings with the estimators that were used: in a world of slates the defaults are others."""
    used = dict.fromkeys(r.metric for r in comparison.records if r.protocol == "off_policy")
    if not used.keys() & RANKING_ESTIMATORS.keys():
        return run_config
    estimators = ",".join(name for name in used if name in RANKING_ESTIMATORS)
    return {**run_config, "settings": {**run_config["settings"], "estimators": estimators}}


def row_of(record: Record) -> dict[str, Any]:
    """A record as the page carries it: without its time, which no two runs share, and what only programs read."""
    row = record.to_dict()
    return {name: row[name] for name in row if name not in ("seconds", "details")}
