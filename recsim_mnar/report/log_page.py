"""The page of ``simulate``: what was simulated, what users did, what they were shown, and how to go on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.own_log.in_numbers import Lengths, LogNumbers
from recsim_mnar.protocols.ab_test import popularity
from recsim_mnar.report.figures import CYCLE, Figure, Ridge, axes_of, popularity_figure, ridges_svg, svg_of
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
    figures = [popularity_figure(rows, "log"), _lengths_figure(found), _propensities_figure(found)]
    write_from(
        "log.html",
        path,
        found.provenance,
        [figure for figure in figures if figure is not None],
        downloads=together(downloads_of("popularity", rows), downloads_of("lengths", lengths)),
        lead=_lead(found),
        sentences=sentences_of(found),
        facts=_facts(found, rows),
        commands=commands,
    )


def summary_of(found: LogNumbers) -> dict[str, Any]:
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


def popularity_rows(found: LogNumbers) -> list[dict[str, Any]]:
    """See :func:`recsim_mnar.protocols.ab_test.popularity`; none where nothing was met or nothing shown."""
    if not (found.n_views and found.n_shown):
        return []
    n_items = max(len(found.views), len(found.shown), _n_items(found))
    padded = [np.pad(counts, (0, n_items - len(counts))) for counts in (found.views, found.shown)]
    return popularity(padded[0], {_policy(found): padded[1]})


def sentences_of(found: LogNumbers) -> list[str]:
    """What there is to say first."""
    if found.rewards is None:
        return ["Nothing was recommended."]
    rate, span = _rate(found), f"{100 * found.rewards['level']:g} % interval"
    values = [_percent(found.rewards[name]) if found.binary else f"{found.rewards[name]:.4g}" for name in
              ("value", "low", "high")]  # fmt: skip
    return [
        f"Of {found.n_shown:,} recommendations {values[0]} were {rate} ({span} {values[1]} to {values[2]})."
        if found.binary
        else f"The mean {rate} of {found.n_shown:,} recommendations is {values[0]} ({span} {values[1]} to {values[2]})."
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


def _n_items(found: LogNumbers) -> int:
    world = found.provenance.get("world")
    params = world.get("params") if isinstance(world, dict) else None
    n_items = params.get("n_items") if isinstance(params, dict) else None
    return n_items if isinstance(n_items, int) else 0


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


def _facts(found: LogNumbers, rows: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    asked = found.provenance.get("n_users")
    users = f"{found.users:,}"
    if isinstance(asked, int) and asked > found.users:
        users += f"; {asked - found.users:,} more left without an event"
    facts = [("rows", f"{found.rows:,}"), ("users", users)]
    n_items = _n_items(found)
    for kind, counts in (("organic", found.views), ("bandit", found.shown)):
        name, of_user, stretch = _kinds(found)[kind], found.by_user[kind], found.stretches[kind]
        n = int(counts.sum())
        if not n:
            facts.append((name, "none"))
            continue
        of_items = f"{np.count_nonzero(counts):,} items" + (f" of {n_items:,}" if n_items else "")
        facts.append((name, f"{n:,}, of {of_items}"))
        facts.append((f"{name} of a user", f"median {of_user.median:,}, most {of_user.longest:,}"))
        facts.append((f"{name} in a row", f"median {stretch.median:,}, most {stretch.longest:,}"))
    if rows:
        first = {row["what"]: row for row in rows if row["first_rank"] == 1}
        top = first["views"]["last_rank"]
        shares = f"{first['views']['share']:.0%} of the {_kinds(found)['organic']}"
        facts.append((f"of the {top:,} items that users met most are",
                      f"{shares}, {first['recommendations']['share']:.0%} of the recommendations"))  # fmt: skip
    if np.isfinite(found.days).all():
        facts.append(("time", f"{found.days[0]:g} to {found.days[1]:g}"))
    return facts


def _length_rows(found: LogNumbers) -> list[dict[str, Any]]:
    rows = []
    for of, by_kind in (("user", found.by_user), ("stretch", found.stretches)):
        for kind, lengths in by_kind.items():
            for length, share in zip(*lengths.at_least(), strict=True):
                rows.append({"of": of, "kind": kind, "length": length, "share_at_least": share})
    return rows


def _lengths_figure(found: LogNumbers) -> Figure | None:
    if not found.users:
        return None
    figure, axes = axes_of(7.4, 3.4)
    drawn = [(f"{name} of a user", found.by_user[kind], "-") for kind, name in _kinds(found).items()]
    drawn += [(f"{name} in a row", found.stretches[kind], ":") for kind, name in _kinds(found).items()]
    for place, (name, lengths, style) in enumerate(drawn):
        if lengths.number:
            _steps(axes, lengths, label=name, color=CYCLE[place % 2], linestyle=style, linewidth=1.6)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("events, at least")
    axes.set_ylabel("share")
    figure.legend(frameon=False, ncols=2, loc="outside upper left")
    caption = (
        "Of users with such events, the share with at least so many; dotted, of the stretches without an event of "
        "another kind (sessions)."
    )
    return Figure("How long users stay", svg_of(figure), caption)


def _steps(axes: Any, lengths: Lengths, **look: Any) -> None:
    occurring, share = lengths.at_least()
    axes.step([1, *occurring], [1.0, *share], where="pre", **look)


def _propensities_figure(found: LogNumbers) -> Figure | None:
    edges, counts = found.propensities.joined()
    if not counts:
        return None
    ridge = Ridge(_policy(found), f": {sum(counts):,} recommendations", edges, counts)
    caption = (
        "The probability with which each recommendation was chosen. The smaller they are, the larger the weights of a "
        "policy that recommends the same more often."
    )
    return Figure("How the propensities are distributed", ridges_svg([ridge], "propensity", "rows"), caption)
