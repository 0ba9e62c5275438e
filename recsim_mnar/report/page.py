"""A comparison as files: a self-contained page with figures, reproducible results, and times."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recsim_mnar.answers.weights import WeightDistribution
from recsim_mnar.estimators.ranking_records import RANKING_ESTIMATORS
from recsim_mnar.protocols.ab_test import Popularity
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Record, listed
from recsim_mnar.protocols.scoreboard import PICKED, UNUSABLE, Column, Scoreboard, scoreboard
from recsim_mnar.report.charts import PER_CENT, Chart, Dot, Panel, Unit, colours_of, dots, panels
from recsim_mnar.report.template import grid, of_comparison, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import INDEX, digest_of

MOST_ROWS = 24
"""Largest number of rows of a chart with a label for each."""
Colours = Mapping[str, str]
RunConfig = Mapping[str, Any]


def figures_of(comparison: Comparison, board: Scoreboard) -> list[Chart]:
    """Draw the charts of a comparison: the scoreboard and the popularity of recommendations, if there are such data."""
    colours = colours_of(board.agents)
    charts = [board_chart(comparison, board, colours)]
    charts += [popularity_figure(comparison.details.get("popularity", []), colours=colours)]
    return unfolded(charts)


def unfolded(charts: Iterable[Chart | None]) -> list[Chart]:
    """Return the charts that are not None; the first one is unfolded, the others are folded."""
    present = [chart for chart in charts if chart is not None]
    return [replace(chart, folded=number > 0) for number, chart in enumerate(present)]


def board_chart(comparison: Comparison, board: Scoreboard, colours: Colours) -> Chart | None:
    """Draw one panel per protocol with agents in rows, and a tick at the truth if the protocol estimates it.

    Args:
        comparison: the comparison.
        board: its scoreboard.
        colours: colour class by agent.

    Returns:
        The chart; None without estimates or with fewer than two agents.
    """
    truth = next((column for column in board.columns if column.is_truth), None)
    columns = [column for column in board.columns if not column.is_truth]
    if not columns or len(board.agents) < 2:
        return None
    title = f"{listed([column.heading for column in columns])} of {len(board.agents):,} agents"
    estimates_truth = truth is not None and any(column.key in comparison.truth_estimates for column in columns)
    if truth is not None and estimates_truth:
        title += f", and the {truth.heading}"
    drawn = []
    for column in columns:
        is_estimate = column.key in comparison.truth_estimates
        drawn.append(_panel(board, column, truth if is_estimate else None, colours))
    return Chart(title, panels(drawn), board_caption(comparison, board, ticks=estimates_truth))


def board_caption(comparison: Comparison, board: Scoreboard, *, ticks: bool) -> str:
    """Return the caption of the chart of a scoreboard; ``ticks`` is True if the chart marks the truth."""
    level = 0.95
    if comparison.records:
        level = comparison.records[0].level
    parts = [f"Dots are estimates, lines their {100 * level:g} % intervals."]
    if ticks:
        parts += ["The upright tick is the truth."]
    names = {PICKED: "*", UNUSABLE: "Hollow and ?"}
    parts += [f"{names[sign]}: {meaning}." for sign, meaning in board.marks if sign in names]
    if len(board.agents) > MOST_ROWS:
        parts += [f"Agents beyond {MOST_ROWS} are in the tables."]
    return " ".join(parts)


def _panel(board: Scoreboard, column: Column, truth: Column | None, colours: Colours) -> Panel:
    """Make the panel of a protocol's numbers.

    Args:
        board: the scoreboard.
        column: column of the protocol.
        truth: column of the truth, if the protocol estimates it; else None.
        colours: colour class by agent.
    """
    rows = []
    for agent in board.agents[:MOST_ROWS]:
        cell = column.cells.get(agent)
        if cell is None or not math.isfinite(cell.record.value):
            continue
        true_value = None
        if truth is not None and agent in truth.cells:
            true_value = truth.cells[agent].record.value
        rows.append(
            Dot(
                name=agent,
                value=cell.record.value,
                low=cell.record.low,
                high=cell.record.high,
                colour=colours[agent],
                hollow=cell.unusable,
                known=true_value,
                words=cell.text,
            )
        )
    line = ""
    if column.judgement is not None:
        line = f"picks {' or '.join(column.judgement.picks)}: {column.judgement.result}"
    quantity = column.heading
    if truth is not None:
        quantity = truth.heading
    return Panel(column.heading, line, rows, Unit(bare=True, quantity=quantity))


def popularity_figure(
    rows: Sequence[Popularity], where: str = "A/B test", colours: Colours | None = None
) -> Chart | None:
    """Draw the shares of views and of recommendations that fall on the most viewed items.

    Args:
        rows: rows of :func:`recsim_mnar.protocols.ab_test.popularity`.
        where: place of the recommendations, for the caption.
        colours: colour class by agent; None for default ones.

    Returns:
        The chart; None without an agent.
    """
    # Each agent's first row is that of the most viewed items; the agent "" stands for views.
    first: dict[str, Popularity] = {}
    for row in rows:
        first.setdefault(row["agent"], row)
    if len(first) < 2:
        return None
    if colours is None:
        colours = colours_of(filter(None, first))
    views = first[""]
    n_top = views["last_rank"] - views["first_rank"] + 1
    n_items = max(row["last_rank"] for row in rows)
    largest = sorted(first.items(), key=lambda item: -item[1]["share"])[:MOST_ROWS]
    drawn = []
    for name, row in largest:
        label = name or "what users view unasked"
        drawn.append(Dot(label, row["share"], colour=colours.get(name, "ink"), known=views["share"]))
    caption = (
        f"Of what each agent shows in the {where}, the share that falls on the {n_top:,} most viewed of "
        f"{n_items:,} items. The upright line: users' own views."
    )
    if len(first) > len(drawn):
        caption += f" {len(first) - len(drawn)} more are in summary.json."
    return Chart("How popular what is recommended is", dots(drawn, PER_CENT), caption)


SCHEMA = 1
"""Version of the layout of results.json."""


def write_comparison(folder: Path, comparison: Comparison, run_config: RunConfig, seconds: float) -> None:
    """Write ``log/``, ``summary.json``, ``results.json``, ``timings.json`` and ``report.html``, and their index.

    Args:
        folder: an existing folder.
        comparison: the comparison.
        run_config: settings that reproduce the comparison; JSON types.
        seconds: wall time of the comparison.
    """
    with RunFolder.fill(folder, keep_others=True) as into:
        into.begin(digest_of(run_config))
        if comparison.log is not None:
            comparison.log.write(folder / "log")
            into.record(f"log/{INDEX}")
        if comparison.exposures is not None:
            comparison.exposures.write(folder)
        into.write_json("summary.json", {**run_config, **comparison.summary()})
        into.write_json("results.json", with_versions([r.untimed() for r in comparison.records]))
        with into.recording("report.html") as path:
            write_page(path, comparison, run_config)
        timings = [
            {"protocol": r.protocol, "agent": r.agent, "metric": r.metric, "seconds": round(r.seconds, 4)}
            for r in comparison.records
        ]
        # It gets no receipt, because times differ between runs.
        write_json(folder / "timings.json", {"seconds": round(seconds, 3), "records": timings})


def results_of(comparison: Comparison, folder: Path) -> Mapping[str, object]:
    """Return the contents of ``results.json`` and ``summary.json``, the sentences and the folder as one JSON object."""
    return {
        **with_versions([r.untimed() for r in comparison.records]),
        **comparison.summary(),
        "sentences": comparison.sentences(),
        "folder": str(folder),
    }


def with_versions(rows: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return the content of ``results.json``: rows with the version of the layout and of the package."""
    from recsim_mnar._version import __version__

    return {"schema": SCHEMA, "package": f"recsim-mnar {__version__}", "records": rows}


def write_page(path: Path, comparison: Comparison, run_config: RunConfig) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: path of the page.
        comparison: the comparison.
        run_config: settings for the foot of the page; JSON types.
    """
    clip = comparison.details.get("clip")
    board = scoreboard(comparison)
    weights = [WeightDistribution(**row) for row in comparison.details.get("weights", [])]
    write_from(
        "page.html",
        path,
        _as_run(comparison, run_config),
        of_comparison(comparison),
        figures_of(comparison, board),
        weights=weights,
        clip=clip,
        comparison=comparison,
        board=board,
        again=comparison.again if comparison.judgements else "",
        full=grid(comparison),
        verdicts=_verdicts(comparison),
    )


def _verdicts(comparison: Comparison) -> dict[str, list[Record]]:
    """Return, by heading, the records with verdicts that the page shows: clipped IPS, or estimators of slates."""
    headings = {(r.protocol, r.metric): r.metric for r in comparison.records} | comparison.headings
    headings["off_policy", "clipped_ips"] = "clipped IPS"
    verdicts: dict[str, list[Record]] = {}
    for r in comparison.records:
        if r.protocol == "off_policy" and r.metric in ("clipped_ips", *RANKING_ESTIMATORS):
            verdicts.setdefault(headings[r.protocol, r.metric], []).append(r)
    return verdicts


def _as_run(comparison: Comparison, run_config: RunConfig) -> RunConfig:
    """Return the settings with the estimators that were used: for slates, others than the settings name."""
    used = dict.fromkeys(r.metric for r in comparison.records if r.protocol == "off_policy")
    if not used.keys() & RANKING_ESTIMATORS.keys():
        return run_config
    estimators = ",".join(name for name in used if name in RANKING_ESTIMATORS)
    return {**run_config, "settings": {**run_config["settings"], "estimators": estimators}}
