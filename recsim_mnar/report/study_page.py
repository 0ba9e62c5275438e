"""What a study looks like: its files, its table, and the distribution over catalogues."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from recsim_mnar.errors import printable
from recsim_mnar.protocols.records import BEST, COSTS, INDISTINGUISHABLE, UNUSABLE
from recsim_mnar.report.charts import PER_CENT, Chart, Dot, axis_of, dots, room_for, shares
from recsim_mnar.report.finding import judged_of, mostly_unusable, of_study
from recsim_mnar.report.page import headed
from recsim_mnar.report.template import downloads_of, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.studies.result import Study, percent

KINDS = {"picks the best": "good", "a tie": "tie", "not to be used": "unusable", "picks a worse one": "bad"}
"""What may come of a protocol's pick, and the class of its colour."""
_KIND = dict(zip((BEST, INDISTINGUISHABLE, UNUSABLE, COSTS), KINDS, strict=True))


def write_study(folder: Path, study: Study, seconds: float) -> None:
    """Write ``results.json``, ``summary.json``, ``timings.json`` and ``report.html``.

    Args:
        folder: that exists; the tasks' own results are in it.
        study: what was found.
        seconds: wall time of this run.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        into.write_json("results.json", headed(study.rows()))
        summary = {"settings": study.settings, "summary": study.summary(), "judgements": study.judgements()}
        into.write_json("summary.json", summary)
        with into.recording("report.html") as path:
            _write_page(path, study)
        # Of times there is no receipt: they differ.
        write_json(folder / "timings.json", {"seconds": round(seconds, 3), "tasks": study.seconds})


def _write_page(path: Path, study: Study) -> None:
    write_from(
        "study.html",
        path,
        study.settings,
        of_study(study),
        figures_of(study),
        downloads=downloads_of("judgements", study.judgements()),
        heads=[*COLUMNS],
        rows=[cells_of(row) for row in study.summary()],
        sentences=study.sentences(),
        agents=agents_table(study),
    )


COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "study": lambda row: str(row["study"]),
    "ranking": lambda row: str(row["title"]),
    "catalogues": lambda row: str(row["catalogues"]),
    "picks the best": lambda row: _share(row[BEST]),
    "tied": lambda row: _share(row[INDISTINGUISHABLE]),
    "costs": lambda row: _share(row[COSTS]),
    "mean cost, share of the best": lambda row: _cost(row["cost_share"]),
    "Kendall's tau": lambda row: _mean(row["kendall_tau"]),
    "best by upper bound": lambda row: _share(row["best_by_upper_bound"]),
    "its tau": lambda row: _mean(row["tau_by_upper_bound"]),
}
"""Heads of the summary's table, and the text of each cell from a row of the summary."""


def cells_of(row: dict[str, Any]) -> list[str]:
    """A row of the summary as texts, in the order of :data:`COLUMNS`."""
    return [cell(row) for cell in COLUMNS.values()]


def _cost(row: dict[str, Any]) -> str:
    return "-" if row["mean"] is None else percent(row)


def _share(row: dict[str, Any]) -> str:
    return f"{row['share']:.0%} [{row['low']:.0%}, {row['high']:.0%}]"


def _mean(row: dict[str, Any]) -> str:
    if row["mean"] is None:
        return "-"
    limits = "" if row["low"] is None else f" [{row['low']:.2f}, {row['high']:.2f}]"
    return f"{row['mean']:.2f}{limits}"


def study_table(study: Study) -> Any:
    """The summary as a rich table."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="over catalogues [95% interval]", title_justify="left")
    for head in COLUMNS:
        table.add_column(head, justify="left" if head in ("study", "ranking") else "right")
    for row in study.summary():
        table.add_row(*(escape(printable(cell)) for cell in cells_of(row)))
    return table


def agents_table(study: Study) -> list[dict[str, Any]]:
    """Mean of every metric over catalogues: one table per study, one row per agent."""
    tables: dict[str, dict[str, dict[str, list[float]]]] = {}
    for row in study.rows():
        if row["value"] is not None:
            own = tables.setdefault(row["study"].rpartition("-")[0], {}).setdefault(row["agent"], {})
            own.setdefault(f"{row['protocol']} {row['metric']}", []).append(row["value"])
    found = []
    for name, agents in tables.items():
        heads = list(dict.fromkeys(head for own in agents.values() for head in own))
        rows = [
            (agent, [f"{sum(own[h]) / len(own[h]):.5f}" if h in own else "-" for h in heads])
            for agent, own in agents.items()
        ]
        found.append({"study": name, "heads": heads, "rows": rows})
    return found


# ------------------------------------------------------------------------------------------------------------- charts


def figures_of(study: Study) -> list[Chart]:
    """Two charts per world of the study: what each protocol's pick costs, and how often it is the best."""
    charts: list[Chart] = []
    judged = judged_of(study)
    for name in dict.fromkeys(j["study"] for j in study.judgements()):
        own = {title: rows for (of, title), rows in judged.items() if of == name}
        caption = (
            "Each pale dot is one catalogue: how much less the pick truly earns than the best agent. The dark dot is "
            "the mean, its whisker the 95 % interval; hollow: its estimates must not be used."
        )
        title = f"{name}: cost of the pick, in % of the best"
        charts.append(Chart(title, costs_chart(study, name, own), caption, folded=bool(charts)))
        parts = {
            title: {_KIND[kind]: sum(j["shown"] == kind for j in rows) / len(rows) for kind in _KIND}
            for title, rows in own.items()
        }
        caption = "Share of catalogues on which the pick is the best agent, a tie with it, not to be used, or worse."
        charts.append(Chart(f"{name}: outcome of each protocol's pick", shares(parts, KINDS), caption))
    return charts


def costs_chart(study: Study, name: str, own: dict[str, list[dict[str, Any]]]) -> str:
    """One row per ranking, that of the least mean cost first."""
    summary = {row["title"]: row["cost_share"] for row in study.summary() if row["study"] == name}
    rows = []
    for title, judged in own.items():
        costs, mean = [j["cost_share"] for j in judged if j["cost_share"] is not None], summary[title]
        if mean["mean"] is None:
            continue
        low, high = (math.nan if mean[end] is None else mean[end] for end in ("low", "high"))
        rows.append(Dot(title, mean["mean"], low, high, cloud=costs, hollow=mostly_unusable(judged)))
    return dots(sorted(rows, key=lambda row: row.value), PER_CENT, axis_of(0.0, room_for(rows).high))
