"""Figures of protocols and the truth: values, ranks, differences, and the power of an A/B test."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import Judgement, Record, half_width
from recsim_mnar.report.figures import (
    CYCLE,
    INK,
    LINE,
    TRUTH,
    Figure,
    axes_of,
    colour_of,
    label_of,
    sampling_limits,
    svg_of,
)
from recsim_mnar.report.tables import has_interval, heading

MOST_AGENTS = 24
"""In a figure that names each of them."""
_OF_THE_TRUTHS_UNIT = ("off_policy", "ab_test", "naive", "ips", "snips", "ips_estimated", "snips_estimated")
"""Protocols whose values estimate the truth itself."""


def judged_figures(comparison: Comparison) -> list[Figure]:
    """The figures for which the comparison has numbers; none where there is no truth."""
    if not comparison.judgements:
        return []
    target = comparison.judgements[0]
    truth = {
        r.agent: r
        for r in comparison.records
        if ("truth", r.metric) == (r.protocol, _metric(comparison, target)) and math.isfinite(r.value)
    }
    makers: Sequence[Callable[[Comparison, dict[str, Record]], Figure | None]] = (
        _against_truth,
        _ranks,
        _differences,
        _power,
    )
    made = [maker(comparison, truth) for maker in makers] if len(truth) > 1 else []
    return [figure for figure in made if figure is not None]


def _metric(comparison: Comparison, judgement: Judgement) -> str:
    """Of the truth that a judgement is about."""
    of_best = [r for r in comparison.records if r.protocol == "truth" and r.agent == judgement.best]
    return next((r.metric for r in of_best if r.value == judgement.best_truth), "")


def _judged(comparison: Comparison) -> list[Judgement]:
    """Judgements of the first target, which the figures are about."""
    first = comparison.judgements[0]
    return [j for j in comparison.judgements if j.target == first.target]


def _against_truth(comparison: Comparison, truth: dict[str, Record]) -> Figure | None:
    """Estimates over true values, with the line on which both are equal."""
    keys = [(j.protocol, j.metric) for j in _judged(comparison) if j.protocol in _OF_THE_TRUTHS_UNIT]
    if not keys:
        return None
    figure, axes = axes_of(6.4, 4.6)
    top = 0.0
    for place, key in enumerate(keys):
        own = [r for r in comparison.records if (r.protocol, r.metric) == key and r.agent in truth]
        own = [r for r in own if math.isfinite(r.value)]
        limits = [sampling_limits(r) for r in own]
        x, y = [truth[r.agent].value for r in own], [r.value for r in own]
        errors = [[max(r.value - low, 0.0) for r, (low, _) in zip(own, limits, strict=True)],
                  [max(high - r.value, 0.0) for r, (_, high) in zip(own, limits, strict=True)]]  # fmt: skip
        axes.errorbar(x, y, yerr=errors, fmt="os^D"[place % 4], markersize=5, capsize=2, linewidth=1.0,
                      color=colour_of(key, place), label=heading(comparison, key), alpha=0.9)  # fmt: skip
        top = max([top, *y, *x])
    low = min(0.0, *(r.value for r in truth.values()))
    axes.plot(
        [low, top * 1.05], [low, top * 1.05], color=TRUTH, linewidth=1.0, linestyle="--", label="estimate = truth"
    )
    axes.set_ylim(low, top * 1.35)
    axes.set_xlabel(f"true {_judged(comparison)[0].target}")
    axes.set_ylabel("estimate")
    figure.legend(frameon=False, ncols=min(3, len(keys) + 1), loc="outside upper left")
    caption = "A point an agent and a protocol. Above the dashed line the estimate is too large, below it too small."
    return Figure("Estimate against truth", svg_of(figure), caption)


def _ranks(comparison: Comparison, truth: dict[str, Record]) -> Figure | None:
    """How each protocol ranks the agents, the truth's ranking at the right."""
    agents = sorted((a for a, r in truth.items() if not r.details.get("reference")), key=lambda a: -truth[a].value)
    if not 2 <= len(agents) <= MOST_AGENTS:
        return None
    judged = _judged(comparison)
    smaller = _metric(comparison, judged[0]) in comparison.losses
    if smaller:
        agents.reverse()
    columns = [(j.title, _rank_by(comparison, (j.protocol, j.metric), agents, smaller)) for j in judged]
    columns.append(("truth", {agent: float(place) for place, agent in enumerate(agents, 1)}))
    figure, axes = axes_of(min(2.6 + 1.5 * len(columns), 10.5), 1.2 + 0.34 * len(agents))
    for place, agent in enumerate(agents):
        points = [(x, ranks[agent]) for x, (_, ranks) in enumerate(columns) if agent in ranks]
        axes.plot(*zip(*points, strict=True), marker="o", color=CYCLE[place % len(CYCLE)], linewidth=1.6, markersize=5)
        style = {"xytext": (9, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
        axes.annotate(label_of(agent), (len(columns) - 1, place + 1), color=INK, **style)
    axes.set_xticks(range(len(columns)), [label_of(title) for title, _ in columns], rotation=15, ha="right")
    axes.set_yticks(range(1, len(agents) + 1))
    axes.set_ylabel("rank, 1 is the best")
    axes.invert_yaxis()
    axes.set_xlim(-0.3, len(columns) - 0.4)
    axes.grid(visible=False)
    caption = "A line an agent; where lines cross, a protocol and the truth disagree."
    if any(j.unranked for j in judged):
        caption += " An agent of which the log lacks too much has no rank."
    return Figure("Each protocol's ranking next to the true one", svg_of(figure), caption)


def _rank_by(comparison: Comparison, key: tuple[str, str], agents: list[str], smaller: bool) -> dict[str, float]:
    """Mid-ranks of the agents by a protocol's values."""
    from scipy.stats import rankdata

    values = {
        r.agent: r.value
        for r in comparison.records
        if (r.protocol, r.metric) == key and r.agent in agents and math.isfinite(r.value) and not r.covers
    }
    ranks = rankdata([value if smaller else -value for value in values.values()])
    return dict(zip(values, ranks.tolist(), strict=True))


def _differences(comparison: Comparison, truth: dict[str, Record]) -> Figure | None:
    """Each agent's difference from the best, in truth and by the A/B test."""
    best = _judged(comparison)[0].best
    others = [agent for agent in truth if agent != best]
    if best not in truth or not 1 <= len(others) <= MOST_AGENTS or not all(has_interval(r) for r in truth.values()):
        return None
    series = [("truth", truth, TRUTH, -0.14)]
    metric = truth[best].metric
    tested = {r.agent: r for r in comparison.records if (r.protocol, r.metric) == ("ab_test", metric)}
    if best in tested:
        series.append(("A/B test", tested, colour_of(("ab_test", metric), 0), 0.14))
    figure, axes = axes_of(8.5, 1.2 + 0.36 * len(others))
    for title, records, colour, shift in series:
        there = [(i, records[a]) for i, a in enumerate(others) if a in records]
        axes.errorbar(
            [r.value - records[best].value for _, r in there],
            [i + shift for i, _ in there],
            xerr=[half_width(records[best], r) for _, r in there],
            fmt="o", markersize=4.5, capsize=3, linewidth=1.2, color=colour, label=title,
        )  # fmt: skip
    axes.axvline(0.0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(others)), [label_of(agent) for agent in others])
    axes.invert_yaxis()
    axes.grid(axis="x", color=LINE, linewidth=0.8)
    axes.set_xlabel(f"difference from {label_of(best)}, {_judged(comparison)[0].target}")
    figure.legend(frameon=False, ncols=2, loc="outside upper left")
    caption = "Whiskers are intervals for the difference. If one includes 0, the agent may be as good as the best."
    return Figure(f"How far each agent is from {best}", svg_of(figure), caption)


def _power(comparison: Comparison, truth: dict[str, Record]) -> Figure | None:
    """Power of an A/B test of the best against the agents that come nearest, over its users an arm."""
    import numpy as np
    from scipy.special import ndtr, ndtri

    best = _judged(comparison)[0].best
    metric = truth[best].metric if best in truth else ""
    tested = {r.agent: r for r in comparison.records if (r.protocol, r.metric) == ("ab_test", metric)}
    tested = {agent: r for agent, r in tested.items() if r.details.get("users") and agent in truth}
    rivals = sorted((a for a in tested if a != best), key=lambda a: abs(truth[a].value - truth[best].value))[:4]
    if best not in tested or not rivals or tested[best].details.get("paired"):
        return None
    quantile = float(ndtri(0.5 + tested[best].level / 2))
    variance = {a: tested[a].details["users"] * ((r.high - r.low) / 2 / quantile) ** 2 for a, r in tested.items()}
    users = np.geomspace(50, 1e6, 200)
    figure, axes = axes_of(6.8, 3.6)
    for place, rival in enumerate(rivals):
        gap = abs(truth[best].value - truth[rival].value)
        z = gap / np.sqrt((variance[best] + variance[rival]) / users)
        power = ndtr(z - quantile) + ndtr(-z - quantile)
        axes.plot(users, power, color=CYCLE[place % len(CYCLE)], linewidth=1.6, label=f"against {label_of(rival)}")
    axes.axvline(tested[best].details["users"], color=INK, linewidth=1.0, linestyle=":", label="users of this test")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("users an arm")
    axes.set_ylabel("chance to see the difference")
    figure.legend(frameon=False, ncols=2, loc="outside upper left")
    caption = (
        f"An A/B test of {best} at the true differences, two-sided at {100 * (1 - tested[best].level):g} %; each arm's "
        "variance is this test's own."
    )
    return Figure("How many users an A/B test needs", svg_of(figure), caption)
