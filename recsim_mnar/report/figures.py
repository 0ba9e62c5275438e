"""A comparison's charts: each protocol's numbers next to the truth, popularity, weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recsim_mnar.answers.weights import WeightDistribution
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import listed
from recsim_mnar.protocols.scoreboard import PICKED, UNUSABLE, Column, Scoreboard
from recsim_mnar.report.charts import (
    PER_CENT,
    Chart,
    Dot,
    Histogram,
    Panel,
    Unit,
    colours_of,
    dots,
    histograms,
    panels,
)

MOST_ROWS = 24
"""Of a chart that names each of them."""
Colours = Mapping[str, str]


def figures_of(comparison: Comparison, board: Scoreboard) -> list[Chart]:
    """The charts for which the comparison has numbers, the one that a page begins with first."""
    colours = colours_of(board.agents)
    made = [board_chart(comparison, board, colours)]
    made += [popularity_figure(comparison.details.get("popularity", []), colours=colours)]
    shown = [chart for chart in made if chart is not None]
    return [replace(chart, folded=place > 0) for place, chart in enumerate(shown)]


def board_chart(comparison: Comparison, board: Scoreboard, colours: Colours) -> Chart | None:
    """One panel per protocol, agents in rows, the truth as a tick where the protocol estimates it."""
    truth = next((column for column in board.columns if column.is_truth), None)
    shown = [column for column in board.columns if not column.is_truth]
    if not shown or len(board.agents) < 2:
        return None
    drawn = [_panel(comparison, board, column, truth, colours) for column in shown]
    names = [column.heading for column in shown]
    title = f"{listed(names)} of {len(board.agents):,} agents"
    ticks = truth is not None and any(column.key in comparison.truth_estimates for column in shown)
    title += f", and the {truth.heading}" if truth is not None and ticks else ""
    return Chart(title, panels(drawn), board_caption(comparison, board, ticks=ticks))


def board_caption(comparison: Comparison, board: Scoreboard, *, ticks: bool) -> str:
    """How to read the chart of a scoreboard."""
    level = comparison.records[0].level if comparison.records else 0.95
    parts = [f"Dots are estimates, lines their {100 * level:g} % intervals."]
    parts += ["The upright tick is the truth."] if ticks else []
    names = {PICKED: "*", UNUSABLE: "Hollow and ?"}
    parts += [f"{names[sign]}: {meaning}." for sign, meaning in board.marks if sign in names]
    parts += [f"Agents beyond {MOST_ROWS} are in the tables."] if len(board.agents) > MOST_ROWS else []
    return " ".join(parts)


def _panel(comparison: Comparison, board: Scoreboard, column: Column, truth: Column | None, colours: Colours) -> Panel:
    """A protocol's numbers."""
    rows = []
    for agent in board.agents[:MOST_ROWS]:
        cell = column.cells.get(agent)
        if cell is None or not math.isfinite(cell.record.value):
            continue
        true = truth.cells.get(agent) if truth is not None and column.key in comparison.truth_estimates else None
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
    rows: Sequence[dict[str, Any]], where: str = "A/B test", colours: Colours | None = None
) -> Chart | None:
    """The share of views and of recommendations that falls on the most viewed items.

    Args:
        rows: of :func:`recsim_mnar.protocols.ab_test.popularity`.
        where: things were recommended, for the caption.
        colours: of agents; own ones where None.
    """
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row["agent"], row)
    if len(first) < 2:
        return None
    colours = colours_of(name for name in first if name) if colours is None else colours
    own = first[""]
    top, n_items = own["last_rank"] - own["first_rank"] + 1, max(row["last_rank"] for row in rows)
    shown = sorted(first.items(), key=lambda item: -item[1]["share"])[:MOST_ROWS]
    drawn = [
        Dot(name or "what users view unasked", row["share"], colour=colours.get(name, "ink"), known=own["share"])
        for name, row in shown
    ]
    caption = (
        f"Of what each agent shows in the {where}, the share that falls on the {top:,} most viewed of "
        f"{n_items:,} items. The upright line: users' own views."
    )
    if len(first) > len(shown):
        caption += f" {len(first) - len(shown)} more are in the data of this page."
    return Chart("How popular what is recommended is", dots(drawn, PER_CENT), caption)


def weight_figures(
    weights: Sequence[WeightDistribution], clip: float | None, colours: Colours | None = None
) -> list[Chart]:
    """How many rows have which weight; policies whose weights are all 0 are left out.

    Args:
        weights: one per policy, under the name that the page gives it.
        clip: largest weight of the clipped estimators, None for none.
        colours: of policies; own ones where None.
    """
    drawn = [each for each in weights if each.counts]
    if not drawn:
        return []
    colours = colours_of(each.policy for each in weights) if colours is None else colours
    shown = [
        Histogram(each.policy, f": {each.effective:,.0f} effective of {each.rows:,} rows, {each.zero:.1%} weigh 0",
                  each.edges, each.counts, colours.get(each.policy, "ink"))
        for each in drawn
    ]  # fmt: skip
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
    line = None if clip is None else (clip, f"clip {clip:g}")
    return [Chart("How the weights are distributed", histograms(shown, line), caption)]
