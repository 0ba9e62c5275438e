"""The page of ``simulate``: what was simulated, what users did, what they were shown, and how to go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from recsim_mnar.own_log.in_numbers import Lengths, LogNumbers
from recsim_mnar.protocols.ab_test import Popularity, popularity
from recsim_mnar.report.charts import PER_CENT, Chart, Curve, Histogram, Plot, curves, histograms, log_axis
from recsim_mnar.report.finding import Finding
from recsim_mnar.report.page import popularity_figure
from recsim_mnar.report.template import downloads_of, together, write_from

_OWN = {"ratings": "ratings revealed", "campaigns": "items added on their own", "purchases": "purchases on their own"}
"""What organic events are in a world; views in others."""
_BOUGHT = {"sessions": "clicked", "purchases": "bought", "campaigns": "accepted"}
"""What a reward of 1 says in a world."""


def write_log_page(path: Path, found: LogNumbers, commands: Sequence[tuple[str, str]]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        found: what the log holds.
        commands: to go on with, each with what it does.
    """
    rows = popularity_rows(found)
    lengths = _length_rows(found)
    made = [popularity_figure(rows, "log"), _lengths_chart(found), _propensities_chart(found)]
    charts = [chart for chart in made if chart is not None]
    write_from(
        "log.html",
        path,
        found.provenance,
        _finding(found),
        [replace(chart, folded=place > 0) for place, chart in enumerate(charts)],
        downloads=together(downloads_of("popularity", rows), downloads_of("lengths", lengths)),
        lead=_lead(found),
        found=found,
        left=_asked_users(found) - found.users,
        slates=_slates(found),
        n_items=_number(found, "n_items"),
        kinds=_kinds(found),
        most_viewed={row["what"]: row for row in rows if row["first_rank"] == 1},
        is_dated=bool(np.isfinite(found.days).all()),
        commands=commands,
    )


def summary_of(found: LogNumbers) -> Mapping[str, object]:
    """What the page says, as JSON types."""
    edges, counts = found.propensities.joined()
    return {
        "rows": found.rows,
        "users": found.users,
        "views": found.n_views,
        "recommendations": found.n_shown,
        "rewards": found.rewards,
        "popularity": popularity_rows(found),
        "lengths": _length_rows(found),
        "propensities": {"edges": list(edges), "counts": list(counts)},
    }


def popularity_rows(found: LogNumbers) -> list[Popularity]:
    """See :func:`recsim_mnar.protocols.ab_test.popularity`; none where nothing was met or nothing shown."""
    if not (found.n_views and found.n_shown):
        return []
    n_items = max(len(found.views), len(found.shown), _number(found, "n_items"))
    padded = [np.pad(counts, (0, n_items - len(counts))) for counts in (found.views, found.shown)]
    return popularity(padded[0], {_policy(found): padded[1]})


def sentences_of(found: LogNumbers) -> list[str]:
    """What there is to say first."""
    if found.rewards is None:
        return ["Nothing was recommended."]
    rate, span = _rate(found), f"{100 * found.rewards['level']:g} % interval"
    values = [_percent(found.rewards[name]) if found.binary else f"{found.rewards[name]:.4g}" for name in
              ("value", "low", "high")]  # fmt: skip
    said = f"{found.n_shown:,} " + (f"items in {_slates(found)}" if _slates(found) else "recommendations")
    return [
        f"Of {said} {values[0]} were {rate} ({span} {values[1]} to {values[2]})."
        if found.binary
        else f"The mean {rate} of {said} is {values[0]} ({span} {values[1]} to {values[2]})."
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _rate(found: LogNumbers) -> str:
    if not found.binary:
        return "reward"
    return _BOUGHT.get(_world(found), "rewarded")


def _kinds(found: LogNumbers) -> dict[str, str]:
    """What each kind of event is called."""
    return {"organic": _OWN.get(_world(found), "views"), "bandit": "recommendations"}


def _world(found: LogNumbers) -> str:
    world = found.provenance.get("world") or {}
    return str(world.get("name", "a")) if isinstance(world, dict) else str(world)


def _slates(found: LogNumbers) -> str:
    """How many slates users read place by place, in words; "" where they see one item."""
    size = _number(found, "slate_size") if "user_model" in _params(found) else 0
    return f"{found.n_shown // size:,} slates of {size}" if size > 1 else ""


def _params(found: LogNumbers) -> Mapping[str, object]:
    world = found.provenance.get("world")
    params = world.get("params") if isinstance(world, dict) else None
    return params if isinstance(params, dict) else {}


def _number(found: LogNumbers, name: str) -> int:
    number = _params(found).get(name)
    return number if isinstance(number, int) else 0


def _policy(found: LogNumbers) -> str:
    policy = found.provenance.get("policy")
    return str(
        policy["name"] if isinstance(policy, dict) else policy or found.provenance.get("recommender") or "policy"
    )


def _lead(found: LogNumbers) -> str:
    seed = found.provenance.get("seed")
    return f"{found.users:,} users of the {_world(found)} world under {_policy(found)}" + (
        "." if seed is None else f", seed {seed}."
    )


def _asked_users(found: LogNumbers) -> int:
    """Users who were asked for; those in the log where that is not known."""
    asked = found.provenance.get("n_users")
    return asked if isinstance(asked, int) else found.users


def _length_rows(found: LogNumbers) -> list[Mapping[str, object]]:
    return [
        {"of": of, "kind": kind, "length": length, "share_at_least": share}
        for of, by_kind in (("user", found.by_user), ("stretch", found.stretches))
        for kind, lengths in by_kind.items()
        for length, share in zip(*lengths.at_least(), strict=True)
    ]


def _lengths_chart(found: LogNumbers) -> Chart | None:
    drawn = [
        (lengths[kind], f"{name} {ending}", "ink" if kind == "organic" else "a0", dashed)
        for lengths, ending, dashed in ((found.by_user, "of a user", False), (found.stretches, "in a row", True))
        for kind, name in _kinds(found).items()
        if lengths[kind].number
    ]
    if not found.users or not drawn:
        return None
    longest = max(lengths.longest for lengths, *_ in drawn)
    axis = log_axis(1.0, max(float(longest), 10.0))
    events = np.unique(np.geomspace(1, max(longest, 2), 60).astype(int))
    lines = [Curve(name, _shares_at(lengths, events), colour, dashed) for lengths, name, colour, dashed in drawn]
    ticks = [(axis.place(tick) / 100, f"{tick:,.0f}") for tick in axis.ticks]
    plot = Plot([axis.place(float(n)) / 100 for n in events], ticks, PER_CENT, below="events, at least")
    caption = (
        "Of users with such events, the share with at least so many; dashed, of the stretches without an event of "
        "another kind (sessions)."
    )
    return Chart("How long users stay", curves(lines, plot), caption)


def _shares_at(lengths: Lengths, events: np.ndarray) -> list[float]:
    """The share of at least so many events, for each number of them."""
    occurring, share = (np.array(each, float) for each in lengths.at_least())
    place = np.searchsorted(occurring, events)
    return [float(share[i]) if i < len(share) else 0.0 for i in place]


def _propensities_chart(found: LogNumbers) -> Chart | None:
    edges, counts = found.propensities.joined()
    if not counts:
        return None
    shown = Histogram(_policy(found), f": {sum(counts):,} recommendations", edges, counts, "a0")
    caption = (
        "The probability with which each recommendation was chosen. The smaller they are, the larger the weights of a "
        "policy that recommends the same more often."
    )
    return Chart("How the propensities are distributed", histograms([shown]), caption)


def _finding(found: LogNumbers) -> Finding:
    slates = _slates(found)
    shown = f"{slates} items" if slates else f"{found.n_shown:,} recommendations"
    decision = f"The log is ready: {found.users:,} users, {shown}."
    sure = "Certain, because it was simulated. Next: run the commands below, from top to bottom."
    return Finding(decision, sentences_of(found)[0], sure, "good")
