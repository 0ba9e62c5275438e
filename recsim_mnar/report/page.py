"""A comparison as files: one self-contained page with figures, results that identical runs write alike, times."""

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
from recsim_mnar.report.charts import PER_CENT, Chart, Dot, Histogram, Panel, Unit, colours_of, dots, histograms, panels
from recsim_mnar.report.template import downloads_of, grid, of_comparison, together, write_from
from recsim_mnar.runs.files import write_json
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import INDEX, digest_of

MOST_ROWS = 24
"""Of a chart that names each of them."""
Colours = Mapping[str, str]
RunConfig = Mapping[str, Any]


def figures_of(comparison: Comparison, board: Scoreboard) -> list[Chart]:
    """The charts for which the comparison has numbers, the one that a page begins with first."""
    colours = colours_of(board.agents)
    made = [board_chart(comparison, board, colours)]
    made += [popularity_figure(comparison.details.get("popularity", []), colours=colours)]
    charts = [chart for chart in made if chart is not None]
    return [replace(chart, folded=place > 0) for place, chart in enumerate(charts)]


def board_chart(comparison: Comparison, board: Scoreboard, colours: Colours) -> Chart | None:
    """One panel per protocol, agents in rows, the truth as a tick where the protocol estimates it."""
    truth = next((column for column in board.columns if column.is_truth), None)
    columns = [column for column in board.columns if not column.is_truth]
    if not columns or len(board.agents) < 2:
        return None
    drawn = [_panel(comparison, board, column, truth, colours) for column in columns]
    names = [column.heading for column in columns]
    title = f"{listed(names)} of {len(board.agents):,} agents"
    ticks = truth is not None and any(column.key in comparison.truth_estimates for column in columns)
    if truth is not None and ticks:
        title += f", and the {truth.heading}"
    return Chart(title, panels(drawn), board_caption(comparison, board, ticks=ticks))


def board_caption(comparison: Comparison, board: Scoreboard, *, ticks: bool) -> str:
    """Explain the chart of a scoreboard."""
    if comparison.records:
        level = comparison.records[0].level
    else:
        level = 0.95
    parts = [f"Dots are estimates, lines their {100 * level:g} % intervals."]
    if ticks:
        parts += ["The upright tick is the truth."]
    names = {PICKED: "*", UNUSABLE: "Hollow and ?"}
    parts += [f"{names[sign]}: {meaning}." for sign, meaning in board.marks if sign in names]
    if len(board.agents) > MOST_ROWS:
        parts += [f"Agents beyond {MOST_ROWS} are in the tables."]
    return " ".join(parts)


def _panel(comparison: Comparison, board: Scoreboard, column: Column, truth: Column | None, colours: Colours) -> Panel:
    """A protocol's numbers."""
    rows = []
    for agent in board.agents[:MOST_ROWS]:
        cell = column.cells.get(agent)
        if cell is None or not math.isfinite(cell.record.value):
            continue
        if truth is not None and column.key in comparison.truth_estimates:
            true = truth.cells.get(agent)
        else:
            true = None
        rows.append(
            Dot(
                agent,
                cell.record.value,
                cell.record.low,
                cell.record.high,
                colours[agent],
                hollow=cell.unusable,
                known=None if true is None else true.record.value,
                words=cell.text,
            )
        )
    says = ""
    if column.judgement is not None:
        says = f"picks {' or '.join(column.judgement.picks)}: {column.judgement.result}"
    quantity = column.heading
    if truth is not None and column.key in comparison.truth_estimates:
        quantity = truth.heading
    return Panel(column.heading, says, rows, Unit(bare=True, quantity=quantity))


def popularity_figure(
    rows: Sequence[Popularity], where: str = "A/B test", colours: Colours | None = None
) -> Chart | None:
    """The share of views and of recommendations that falls on the most viewed items.

    Args:
        rows: of :func:`recsim_mnar.protocols.ab_test.popularity`.
        where: things were recommended, for the caption.
        colours: of agents; own ones where None.
    """
    first: dict[str, Popularity] = {}
    for row in rows:
        first.setdefault(row["agent"], row)
    if len(first) < 2:
        return None
    if colours is None:
        colours = colours_of(name for name in first if name)
    first_group = first[""]
    top = first_group["last_rank"] - first_group["first_rank"] + 1
    n_items = max(row["last_rank"] for row in rows)
    rows_shown = sorted(first.items(), key=lambda item: -item[1]["share"])[:MOST_ROWS]
    drawn = [
        Dot(
            name or "what users view unasked", row["share"], colour=colours.get(name, "ink"), known=first_group["share"]
        )
        for name, row in rows_shown
    ]
    caption = (
        f"Of what each agent shows in the {where}, the share that falls on the {top:,} most viewed of "
        f"{n_items:,} items. The upright line: users' own views."
    )
    if len(first) > len(rows_shown):
        caption += f" {len(first) - len(rows_shown)} more are in the data of this page."
    return Chart("How popular what is recommended is", dots(drawn, PER_CENT), caption)


def weight_figures(
    weights: Sequence[WeightDistribution], clip: float | None, colours: Colours | None = None
) -> list[Chart]:
    """Draw the distribution of weights; policies whose weights are all 0 are left out.

    Args:
        weights: one per policy, under the name that the page gives it.
        clip: largest weight of the clipped estimators, None for none.
        colours: of policies; own ones where None.
    """
    drawn = [weight for weight in weights if weight.counts]
    if not drawn:
        return []
    if colours is None:
        colours = colours_of(weight.policy for weight in weights)
    charts = [
        Histogram(
            weight.policy,
            f": {weight.effective:,.0f} effective of {weight.rows:,} rows, {weight.zero:.1%} weigh 0",
            weight.edges,
            weight.counts,
            colours.get(weight.policy, "ink"),
        )
        for weight in drawn
    ]
    caption = (
        "Along: the weight of a row, the policy's probability of what was shown over the recorded one; the axis is "
        "logarithmic. Up: how many rows have it, logarithmic too; rows of weight 0 are not drawn. A row counts for "
        "as many recommendations of the policy as its weight says"
        + (f", up to the clip, {clip:g}." if clip is not None else ".")
    )
    largest = max(drawn, key=lambda each: each.largest)
    if largest.largest > 1.0:
        caption += f" Farthest right is the largest weight, {largest.largest:.3g}: what the log hardly ever shows, and "
        caption += f"{largest.policy} more often would."
    if clip is None:
        line = None
    else:
        line = (clip, f"clip {clip:g}")
    return [Chart("How the weights are distributed", histograms(charts, line), caption)]


SCHEMA = 1
"""Of results.json."""


def write_comparison(folder: Path, comparison: Comparison, run_config: RunConfig, seconds: float) -> None:
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
        into.write_json("results.json", headed([r.untimed() for r in comparison.records]))
        with into.recording("report.html") as path:
            write_page(path, comparison, run_config)
        # Of times there is no receipt: they differ.
        write_json(folder / "timings.json", {"seconds": round(seconds, 3), "records": timings(comparison.records)})


def results_of(comparison: Comparison, folder: Path) -> Mapping[str, object]:
    """Read ``results.json`` and ``summary.json`` as one object, and their folder."""
    return {
        **headed([r.untimed() for r in comparison.records]),
        **comparison.summary(),
        "sentences": comparison.sentences(),
        "folder": str(folder),
    }


def headed(rows: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Build the content of ``results.json``: ``{schema, package, records}``."""
    from recsim_mnar._version import __version__

    return {"schema": SCHEMA, "package": f"recsim-mnar {__version__}", "records": rows}


def timings(records: Iterable[Record]) -> list[Mapping[str, object]]:
    """Seconds of each record."""
    return [
        {"protocol": r.protocol, "agent": r.agent, "metric": r.metric, "seconds": round(r.seconds, 4)} for r in records
    ]


def write_page(path: Path, comparison: Comparison, run_config: RunConfig) -> None:
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


def _verdicts(comparison: Comparison) -> dict[str, list[Record]]:
    """Records of off-policy estimates by heading: clipped IPS, or estimators of slates."""
    headings = {(r.protocol, r.metric): r.metric for r in comparison.records} | comparison.headings
    headings["off_policy", "clipped_ips"] = "clipped IPS"
    verdicts: dict[str, list[Record]] = {}
    for r in comparison.records:
        if r.protocol == "off_policy" and r.metric in ("clipped_ips", *RANKING_ESTIMATORS):
            verdicts.setdefault(headings[r.protocol, r.metric], []).append(r)
    return verdicts


def _as_run(comparison: Comparison, run_config: RunConfig) -> RunConfig:
    """The settings with the estimators that were used: in a world of slates the defaults are others."""
    used = dict.fromkeys(r.metric for r in comparison.records if r.protocol == "off_policy")
    if not used.keys() & RANKING_ESTIMATORS.keys():
        return run_config
    estimators = ",".join(name for name in used if name in RANKING_ESTIMATORS)
    return {**run_config, "settings": {**run_config["settings"], "estimators": estimators}}


def row_of(record: Record) -> Mapping[str, object]:
    """A record as the page carries it: without its time, which no two runs share, and what only programs read."""
    return {name: value for name, value in record.untimed().items() if name != "details"}
