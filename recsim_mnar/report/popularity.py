"""The figure of how popular what is recommended is, beside what users come to on their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recsim_mnar.report.figures import Figure, axes_of, label_of, svg_of
from recsim_mnar.report.style import CYCLE, TRUTH

MOST_LINES = 12
"""That can be told apart; the caption says how many are not drawn."""


def popularity_figure(rows: Sequence[dict[str, Any]], where: str = "A/B test") -> Figure | None:
    """Shares of views and of recommendations over groups of items, the most viewed first.

    Args:
        rows: of :func:`recsim_mnar.protocols.ab_test.popularity`.
        where: things were recommended, for the caption.
    """
    lines: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault(row["agent"], []).append(row)
    if len(lines) < 2:
        return None
    own = lines.pop("")
    drawn = list(lines.items())[:MOST_LINES]
    groups = [_name(row) for row in own]
    figure, axes = axes_of(8.0, 3.6 + 0.22 * (len(drawn) // 3))
    axes.plot(groups, [row["share"] for row in own], color=TRUTH, linewidth=2.4, linestyle="--", label="users' own")
    for place, (agent, of_it) in enumerate(drawn):
        axes.plot(groups, [row["share"] for row in of_it], color=CYCLE[place % len(CYCLE)], linewidth=1.5,
                  marker="os^Dv"[place % 5], markersize=4.5, label=label_of(agent))  # fmt: skip
    axes.set_ylim(bottom=0.0)
    axes.set_xlabel("items by their rank in views, the most viewed first")
    axes.set_ylabel("share")
    figure.legend(frameon=False, ncols=4, loc="outside upper left")
    top = own[0]["last_rank"] - own[0]["first_rank"] + 1
    of_top = "; ".join(f"{agent} {of_it[0]['share']:.0%}" for agent, of_it in drawn)
    caption = (
        f"Of what each agent recommends in the {where}, the share that falls on items of each rank; dashed, of what "
        f"users view on their own. On the {top:,} most viewed of {own[-1]['last_rank']:,} items fall: users' own "
        f"{own[0]['share']:.0%}; {of_top}."
    )
    if len(lines) > len(drawn):
        caption += f" {len(lines) - len(drawn)} more agents stand in the data of this page."
    return Figure("How popular what is recommended is", svg_of(figure), caption)


def _name(row: dict[str, Any]) -> str:
    first, last = row["first_rank"], row["last_rank"]
    return f"{first:,}" if first == last else f"{first:,}-{last:,}"
