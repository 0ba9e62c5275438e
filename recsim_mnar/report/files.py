"""The files of a comparison: results that two identical runs write alike, and times beside them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record
from recsim_mnar.report.page import write_page
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
    with RunFolder.fill(folder, beside=True) as into:
        into.begin(digest_of(run_config))
        if comparison.log is not None:
            comparison.log.write(folder / "log")
            into.record(f"log/{INDEX}")
        if comparison.exposures is not None:
            comparison.exposures.write(folder)
        write_json(folder / "summary.json", {**run_config, **comparison.summary()})
        write_results(folder / "results.json", [untimed(r) for r in comparison.records])
        write_json(folder / "timings.json", {"seconds": round(seconds, 3), "records": timings(comparison.records)})
        write_page(folder / "report.html", comparison, run_config)
        for name in ("summary.json", "results.json", "report.html"):  # of times there is no receipt: they differ
            into.record(name)


def write_results(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write ``{schema, package, records}``."""
    write_json(path, _headed(rows))


def results_of(comparison: Comparison, folder: Path) -> dict[str, Any]:
    """What ``results.json`` and ``summary.json`` hold, as one object, and the folder where they lie."""
    return {
        **_headed([untimed(r) for r in comparison.records]),
        **comparison.summary(),
        "sentences": comparison.sentences(),
        "folder": str(folder),
    }


def _headed(rows: list[dict[str, Any]]) -> dict[str, Any]:
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
