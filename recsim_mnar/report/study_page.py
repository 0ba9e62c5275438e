"""Presentation of a study: its files, its table, and the distribution over catalogues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from recsim_mnar.errors import printable
from recsim_mnar.protocols.records import two_digits
from recsim_mnar.protocols.scoreboard import WIDTH, aligned
from recsim_mnar.report.charts import MANY_TICKS, PER_CENT, Chart, Dot, axis_of, dots, room_for
from recsim_mnar.report.page import with_versions
from recsim_mnar.report.template import Finding, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.studies.design import Levels
from recsim_mnar.studies.result import COLUMNS, Always, Row, Study, full_title, percent


def write_study(folder: Path, study: Study, seconds: float) -> None:
    """Write ``results.json``, ``summary.json``, ``timings.json`` and ``report.html``.

    Args:
        folder: an existing folder, with the tasks' results in it.
        study: the study.
        seconds: wall time of this run.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        into.write_json("results.json", with_versions(study.rows()))
        summary = {
            "settings": study.settings,
            "summary": study.summary(),
            "always": study.always(),
            "judgements": study.judgements(),
        }
        into.write_json("summary.json", summary)
        with into.recording("report.html") as path:
            _write_page(path, study)
        # It gets no receipt, because times differ between runs.
        write_json(folder / "timings.json", {"seconds": round(seconds, 3), "tasks": study.seconds})


def _write_page(path: Path, study: Study) -> None:
    """Write the page of a study."""
    summary = study.summary()
    places, levels = _cell_columns(study, [(row["study"], row["levels"]) for row in summary])
    write_from(
        "study.html",
        path,
        study.settings,
        of_study(study),
        figures_of(study),
        heads=[*places, *COLUMNS],
        rows=[[*first, *(text(row) for text in COLUMNS.values())] for first, row in zip(levels, summary, strict=True)],
        sentences=study.sentences(),
        catalogues=max((row["catalogues"] for row in summary), default=0),
        names=list(dict.fromkeys(row["agent"] for row in study.rows())),
    )


def of_study(study: Study) -> Finding | None:
    """Summarise the mean loss of each protocol's picks by the first target, the smallest loss first; None if unknown.

    In a study of several cells (setups and levels) a protocol has a range of losses.
    """
    summary = study.summary()
    judged = [row for row in summary if row["target"] == summary[0]["target"] and row["cost_share"]["mean"] is not None]
    if not judged:
        return None
    by_title: dict[str, list[Row]] = {}
    for row in sorted(judged, key=lambda row: row["cost_share"]["mean"] or 0.0):
        by_title.setdefault(row["title"], []).append(row)
    text = "; ".join(_loss_in_words(title, rows) for title, rows in by_title.items())
    n_cells = len({row["study"] for row in judged})
    if n_cells > 1:
        return Finding(f"In {n_cells} cells, means over catalogues: {text}.", "", "")
    return Finding(f"{text[0].upper()}{text[1:]}.", "", "")


def _loss_in_words(title: str, rows: list[Row]) -> str:
    """Describe how often a protocol's pick is the best, and its mean loss.

    Args:
        title: name of the protocol.
        rows: rows of the protocol in the summary, one per cell, in the order of their losses.
    """
    loss = two_digits(rows[0]["cost_share"]["mean"] or 0.0)
    largest = two_digits(rows[-1]["cost_share"]["mean"] or 0.0)
    if loss != largest:
        loss += f" to {largest}"
    n = sum(row["catalogues"] for row in rows)
    n_right = sum(row["best"]["count"] + row["indistinguishable"]["count"] for row in rows)
    n_abstains = n - sum(row["decides"]["count"] for row in rows)
    text = f"{title} picks the best or a tie in {n_right} of {n} and loses {loss} %"
    if n_abstains:
        text += f" (too little data to decide in {n_abstains})"
    return text


def _cell_columns(study: Study, cells: Sequence[tuple[str, Levels]]) -> tuple[list[str], list[list[str]]]:
    """Return the columns of a table that name the cell of each row: its setup, and its level of each factor.

    Args:
        study: the study.
        cells: name of the cell, and levels by factor, of each row.

    Returns:
        heads: heads of the columns: the factors, after "setup" if there are several setups.
        texts: texts of each row.
    """
    setups = [_setup_in_words(study, *cell) for cell in cells]
    texts = [[str(levels.get(name, "")) for name in study.factors] for _, levels in cells]
    if len(set(setups)) <= 1:
        return study.factors, texts
    return ["setup", *study.factors], [[setup, *row] for setup, row in zip(setups, texts, strict=True)]


def study_lines(study: Study, width: int = WIDTH) -> list[str]:
    """Format the summary for a terminal of this width: one row per setup, level of every factor, and protocol."""
    summary = study.summary()
    if not summary:
        return ["Nothing to judge: no protocol ranked two agents with a known truth."]
    always = _always_once(study.always())
    heads = ["protocol", "best pick", "tie", "mean loss", "Kendall's tau", "enough data"]
    table = [
        [*heads[:4], "tau", heads[5]],
        *([full_title(row), *(COLUMNS[head](row) for head in heads[1:])] for row in summary),
    ]
    table += [[f"always {row['agent']}", "-", "-", percent(row["cost"]), "-", "-"] for row in always]
    places, levels = _cell_columns(study, [(row["study"], row["levels"]) for row in (*summary, *always)])
    for place in (4, 2, 1, 3):  # the loss keeps its intervals longest
        # Leave out the intervals of one column after another until the table fits; the report has all of them.
        if max(map(len, aligned(table))) > width:
            for row_of_texts in table:
                row_of_texts[place] = row_of_texts[place].partition(" [")[0]
    head, *texts = aligned(table)
    by_cell: dict[str, list[str]] = {}
    for values, line in zip(levels, texts, strict=True):
        names = [f"{place} {value}" for place, value in zip(places, values, strict=True) if value]
        by_cell.setdefault(", ".join(names), []).append(line)
    lines = [head]
    for name, of_cell in by_cell.items():
        if len(by_cell) > 1:
            lines.append("")
        if name:
            lines.append(name)
        lines += of_cell
    title = "several setups"
    if "setup" not in places:
        title = _setup_in_words(study, summary[0]["study"], summary[0]["levels"])
    n = max(row["catalogues"] for row in summary)
    notes = ["Loss: mean share of the best true value. tau: Kendall's, with the true ranking."]
    if any("[" in line for line in lines):
        notes.append("[ ]: 95 % intervals over catalogues.")
    notes += [
        "Enough data: catalogues in which a protocol has enough on its pick and on every",
        "agent that may be better; in the others its pick counts too, and is a guess.",
    ]
    return [printable(line) for line in (f"{title}: {n:,} catalogues", "", *lines, "", *notes)]


def _always_once(always: list[Always]) -> list[Always]:
    """Merge the rows of always picking one agent if its loss is the same in all cells."""
    if len(always) > 1 and all(row["cost"] == always[0]["cost"] for row in always):
        return [{**always[0], "levels": {}}]
    return always


def _setup_in_words(study: Study, cell: str, levels: Levels) -> str:
    """Return world and preset of a cell, in words; those that are factors are left out, because they have columns.

    If nothing remains, it is the name of the cell.
    """
    config = next((r.get("run_config", {}) for r in study.results if r["cell"] == cell), {})
    setup = {"world": config.get("world", {}).get("name", ""), "preset": config.get("preset")}
    return ", ".join(text for name, text in setup.items() if text and name not in levels) or cell


# ------------------------------------------------------------------------------------------------------------- charts


def figures_of(study: Study) -> list[Chart]:
    """Draw the losses of each protocol's picks, one chart per cell."""
    charts: list[Chart] = []
    summary = study.summary()
    setups = list(dict.fromkeys(row["study"] for row in summary))
    for setup in setups:
        rows = sorted((r for r in summary if r["study"] == setup), key=lambda r: r["cost_share"]["mean"] or 0.0)
        prefix = f"{setup}: " if len(setups) > 1 else ""
        title = f"{prefix}What each protocol's picks lose"
        caption = (
            "Each small dot is one catalogue: the share of the best true value that the pick loses; hollow where the "
            "protocol abstains. The large dot is the mean, the line its 95 % interval."
        )
        charts.append(Chart(title, costs_chart(study, rows), caption, folded=bool(charts)))
    return charts


def costs_chart(study: Study, summary: list[Row]) -> str:
    """Draw the mean loss of each row of the summary as a dot, the smallest first, with small dots for its catalogues.

    Args:
        study: the study, with the loss in each catalogue.
        summary: rows of its summary; those without a mean loss are left out.
    """
    clouds: dict[tuple[str, str, str], list[tuple[float, bool]]] = {}
    for j in study.judgements():
        if j["cost_share"] is not None:
            cloud = clouds.setdefault((j["study"], j["protocol"], j["metric"]), [])
            cloud.append((j["cost_share"], j["abstains"]))
    rows = []
    for row in summary:
        cost = row["cost_share"]
        users = row["users_per_arm"]
        if cost["mean"] is None:
            continue
        # Without an interval there is no line.
        low, high = (math.nan if end is None else end for end in (cost["low"], cost["high"]))
        cloud = clouds.get((row["study"], row["protocol"], row["metric"]), [])
        note = ""
        if users is not None:
            note = f"{users:,} users per arm"
        rows.append(Dot(full_title(row), cost["mean"], low, high, cloud=cloud, note=note))
    return dots(sorted(rows, key=lambda row: row.value), PER_CENT, axis_of(0.0, room_for(rows).high, MANY_TICKS))
