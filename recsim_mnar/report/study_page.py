"""What a study looks like: its files, its table, and the distribution over catalogues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recsim_mnar.errors import printable
from recsim_mnar.protocols.records import BEST, COSTS, INDISTINGUISHABLE
from recsim_mnar.report.figures import BEST_COLOUR, COSTS_COLOUR, LEVEL_COLOUR, TRUTH, Figure, axes_of, label_of, svg_of
from recsim_mnar.report.page import headed
from recsim_mnar.report.template import downloads_of, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.studies.result import Study, percent

OUTCOMES = {
    BEST: ("picks the best", BEST_COLOUR),
    INDISTINGUISHABLE: ("tied with the best", LEVEL_COLOUR),
    COSTS: ("costs", COSTS_COLOUR),
}


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


# ------------------------------------------------------------------------------------------------------------ figures


def figures_of(study: Study) -> list[Figure]:
    """For each study: share of the outcomes of every ranking, and what its pick costs on each catalogue."""
    figures = []
    for name in dict.fromkeys(j["study"] for j in study.judgements()):
        own = [j for j in study.judgements() if j["study"] == name]
        figures += [
            Figure(
                f"{name}: outcome of each protocol's pick",
                outcomes_figure(own),
                "Share of catalogues on which the pick is the best agent, ties with it, or costs something.",
            ),
            Figure(
                f"{name}: cost of the pick",
                costs_figure(own),
                "Each dot is one catalogue: how much less the pick truly earns than the best agent. Bars are means.",
            ),
        ]
    return figures


def _by_title(judgements: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for j in judgements:
        groups.setdefault(j["title"], []).append(j)
    return groups


def outcomes_figure(judgements: list[dict[str, Any]]) -> str:
    """Stacked bars, one per ranking."""
    groups = _by_title(judgements)
    figure, axes = axes_of(8.5, 1.2 + 0.42 * len(groups))
    for place, own in enumerate(groups.values()):
        left = 0.0
        for outcome, (_, colour) in OUTCOMES.items():
            width = sum(j["outcome"] == outcome for j in own) / len(own)
            axes.barh(place, width, left=left, color=colour, height=0.6)
            left += width
    axes.set_yticks(range(len(groups)), [label_of(title) for title in groups])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of catalogues")
    handles = [axes.barh([0], [0], color=colour) for _, colour in OUTCOMES.values()]
    labels = [label for label, _ in OUTCOMES.values()]
    figure.legend(handles, labels, frameon=False, ncols=3, loc="outside upper left")
    return svg_of(figure)


def costs_figure(judgements: list[dict[str, Any]]) -> str:
    """A dot a catalogue, rankings below each other."""
    groups = _by_title(judgements)
    figure, axes = axes_of(8.5, 1.0 + 0.42 * len(groups))
    for place, own in enumerate(groups.values()):
        costs = [100 * j["cost_share"] for j in own if j["cost_share"] is not None]
        if not costs:
            continue
        spread = [place + 0.22 * (2 * (i % 5) / 4 - 1) for i in range(len(costs))]
        colours = [OUTCOMES[j["outcome"]][1] for j in own if j["cost_share"] is not None]
        axes.scatter(costs, spread, s=16, color=colours, alpha=0.8, linewidths=0)
        mean = sum(costs) / len(costs)
        axes.plot([mean, mean], [place - 0.32, place + 0.32], color=TRUTH, linewidth=1.6)
    axes.set_yticks(range(len(groups)), [label_of(title) for title in groups])
    axes.invert_yaxis()
    axes.set_xlim(left=-0.5)
    axes.set_xlabel("cost of the pick, % of the best agent's true value")
    return svg_of(figure)
