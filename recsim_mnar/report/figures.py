"""What a comparison's charts show: who is behind whom, each protocol's numbers, popularity, weights, A/B tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from recsim_mnar.estimators.off_policy.moments import WeightDistribution
from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.protocols.base import Picture
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.interactions import TITLES
from recsim_mnar.protocols.records import POWER, Record, as_subject, half_width
from recsim_mnar.report.charts import (
    MANY_TICKS,
    PER_CENT,
    PLAIN,
    Chart,
    Dot,
    Histogram,
    Panel,
    Unit,
    axis_of,
    colours_of,
    dots,
    histograms,
    log_axis,
    panels,
    room_for,
)
from recsim_mnar.report.finding import counted, is_share_listed, rounded, state, truths_of, users_needed
from recsim_mnar.report.naming import in_plain, method, spoken
from recsim_mnar.report.tables import has_interval, heading
from recsim_mnar.studies.result import two_digits

MOST_ROWS = 24
"""Of a chart that names each of them."""
_NO_SHARES = ("ndcg", "dcg", "mrr", "uplift", "cp", "mse", "mae", "rmse")
"""Metrics that are no shares, so that per cent would mislead."""
_RATES = {"CTR": "clicks per recommendation"}
_FAR = 15.0
"""Times as far behind the best as the next one is: what is farther is cut off with an arrow."""
Colours = Mapping[str, str]


def agents_of(comparison: Comparison) -> list[str]:
    """All agents, the truly best first; without a truth the best of what is judged first."""
    records = comparison.records
    truth = truths_of(comparison, comparison.judgements[0]) if comparison.judgements else []
    if not truth and comparison.columns:
        key = comparison.columns[0]
        truth = sorted((r for r in records if (r.protocol, r.metric) == key), key=lambda r: -_finite(r.value))
    return list(dict.fromkeys([*(r.agent for r in truth), *(r.agent for r in records)]))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else -math.inf


def figures_of(comparison: Comparison) -> list[Chart]:
    """The charts for which the comparison has numbers, the one that a page begins with first."""
    colours = colours_of(agents_of(comparison))
    made = [_picks(comparison, colours)] if comparison.judgements else []
    made += [_picture(comparison, picture, colours) for picture in comparison.pictures]
    made += [popularity_figure(comparison.details.get("popularity", []), colours=colours)]
    made += [_power(comparison, colours)] if comparison.judgements else []
    shown = [chart for chart in made if chart is not None]
    return [replace(chart, folded=place > 0) for place, chart in enumerate(shown)]


def _picks(comparison: Comparison, colours: Colours) -> Chart | None:
    """Each agent's true distance from the best, and which protocol picks it."""
    first = comparison.judgements[0]
    truth = truths_of(comparison, first)
    if len(truth) < 2:
        return None
    best = truth[0]
    scale = abs(best.value) or 1.0
    rows = []
    for record in truth[:MOST_ROWS]:
        width = half_width(best, record) if has_interval(record) and record is not best else math.nan
        behind = abs(record.value - best.value) / scale
        ends = (behind - width / scale, behind + width / scale)
        words = "the best" if record is best else f"{two_digits(behind)} %" if best.value else ""
        rows.append(in_plain(Dot(record.agent, behind, *ends, colours[record.agent], words=words)))
    far = sorted(row.value for row in rows if row.value)
    near = [row for row in rows if not far or row.value <= max(_FAR * far[0], far[:2][-1])]
    axis = room_for(near)
    caption = (
        f"True {_RATES.get(first.target, first.target)} compared with {spoken(best.agent)}; the lines are "
        f"{100 * best.level:g} % intervals of that difference."
    )
    caption += " An arrow: too far behind for this axis." if len(near) < len(rows) else ""
    what = "fewer clicks than" if first.target == "CTR" else "far behind"
    title = f"The truth, which no method saw: how {'many ' * (first.target == 'CTR')}{what} {spoken(best.agent)}"
    drawn = dots(rows, PER_CENT if best.value else PLAIN, axis_of(axis.low, axis.high, MANY_TICKS))
    return Chart(title, drawn, caption)


def _picture(comparison: Comparison, picture: Picture, colours: Colours) -> Chart | None:
    """A panel per protocol and metric; None where only the truth, or nothing, has records."""
    chosen = {
        key: [r for r in comparison.records if (r.protocol, r.metric) == key and math.isfinite(r.value)]
        for key in picture.keys
    }
    chosen = {key: records for key, records in chosen.items() if records}
    if all(protocol == "truth" for protocol, _ in chosen):
        return None
    known = {r.agent: r.value for (protocol, _), records in chosen.items() if protocol == "truth" for r in records}
    place = {name: i for i, name in enumerate(colours)}

    def order(record: Record) -> float:
        return place[record.agent] if known else -record.value

    shown = [
        Panel(
            _title(comparison, key),
            _says(comparison, key),
            [
                _noted(_dot(r, colours, None if key[0] == "truth" else known.get(r.agent)), comparison, r)
                for r in sorted(records, key=order)[:MOST_ROWS]
            ],
            unit_of(key, comparison),
        )
        for key, records in sorted(chosen.items(), key=lambda item: item[0][0] != "truth")
    ]
    return Chart(picture.title, panels(shown), picture.caption)


def _title(comparison: Comparison, key: tuple[str, str]) -> str:
    """Of a panel; a test without a truth has its plain name."""
    if comparison.judgements or key[0] not in TITLES:
        return heading(comparison, key)
    return as_subject(method(TITLES[key[0]]))


def _dot(record: Record, colours: Colours, known: float | None) -> Dot:
    """Of a record; one of which the log lacks too much has words for a number."""
    ends = (record.low, record.high) if has_interval(record) else (math.nan, math.nan)
    value = math.nan if record.covers else record.value
    more: dict[str, Any] = {"hollow": record.forbidden, "known": known, "words": record.covers}
    return in_plain(Dot(record.agent, value, *ends, colours[record.agent], **more))


def _noted(dot: Dot, comparison: Comparison, record: Record) -> Dot:
    """Where no truth is known: hits of 100, and whether the recommender is out."""
    judged = [one for one in comparison.details.get("best", ()) if one["protocol"] == record.protocol]
    if comparison.judgements or not judged or not is_share_listed(record.metric):
        return dot
    out = "" if record.agent in judged[0]["may_be_the_best"] else "out as a predictor"
    return replace(dot, note=f"{dot.note}\n{out}".strip("\n"), words=f"{100.0 * record.value:.0f} of 100")


def _says(comparison: Comparison, key: tuple[str, str]) -> str:
    judged = next((j for j in comparison.judgements if (j.protocol, j.metric) == key), None)
    if judged is None:
        return _rules_out(comparison, key)
    return f"Picks {spoken(judged.pick)}: {state(judged)[:1].lower()}{state(judged)[1:]}."


def _rules_out(comparison: Comparison, key: tuple[str, str]) -> str:
    """Where no truth is known: how many recommenders a test rules out, and of how many users it is."""
    own = [r for r in comparison.records if (r.protocol, r.metric) == key]
    if comparison.judgements or not is_share_listed(key[1]):
        return ""
    judged = next((one for one in comparison.details.get("best", ()) if one["protocol"] == key[0]), None)
    out = 0 if judged is None else len(own) - len(judged["may_be_the_best"])
    if out:
        return f"{own[0].n:,} users rule out {counted(out)} of {counted(len(own))}."
    few = own[0].n < LEAST_USERS
    return f"{own[0].n:,} users: " + (f"below {LEAST_USERS}, a hint only." if few else "none is ruled out.")


def unit_of(key: tuple[str, str], comparison: Comparison) -> Unit:
    """Per cent of what is a share."""
    metric = key[1].partition("@")[0]
    values = [abs(r.value) for r in comparison.records if (r.protocol, r.metric) == key and math.isfinite(r.value)]
    plain = metric.startswith(_NO_SHARES) or metric in comparison.losses or max(values, default=0.0) > 1.0
    return PLAIN if plain else PER_CENT


def _power(comparison: Comparison, colours: Colours) -> Chart | None:
    """Users per arm with which an A/B test tells the best from those that come nearest."""
    needed, users = users_needed(comparison)
    ordered = sorted(needed.items(), key=lambda item: -item[1])[:MOST_ROWS]
    rows = [
        in_plain(Dot(a, n, colour=colours[a], known=users, words=f"{rounded(n):,} users"))
        for a, n in ordered
        if n > 0.0
    ]
    if not rows:
        return None
    best = truths_of(comparison, comparison.judgements[0])[0]
    sizes = [*(row.value for row in rows), users]
    axis = log_axis(10.0 ** math.floor(math.log10(min(sizes))), 10.0 ** math.ceil(math.log10(max(sizes)) + 1e-9))
    caption = (
        f"Users per variant with which an A/B test sees, in {POWER:.0%} of all tests, that {spoken(best.agent)} is "
        f"better than the one named (two-sided at {100 * (1 - best.level):.2g} %). The upright line is the size of "
        f"this test, {users:,} users: what is right of it, this test cannot see. The axis is logarithmic."
    )
    return Chart("How many users an A/B test needs", dots(rows, PLAIN, axis), caption)


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
        in_plain(
            Dot(name or "what users view unasked", row["share"], colour=colours.get(name, "ink"), known=own["share"])
        )
        for name, row in shown
    ]
    caption = (
        f"Of what each recommender shows in the {where}, the share that falls on the {top:,} most viewed of "
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
