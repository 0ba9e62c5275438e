"""The pages of ``simulate``, ``calibrate`` and ``validate``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.fitting.calibration import FittedWorld
from recsim_mnar.fitting.validation import Check, Validation
from recsim_mnar.own_log.in_numbers import Lengths, LogNumbers
from recsim_mnar.protocols.ab_test import Popularity, popularity
from recsim_mnar.report.charts import (
    PER_CENT,
    PLAIN,
    Chart,
    Curve,
    Dot,
    Histogram,
    Plot,
    axis_of,
    curves,
    dots,
    histograms,
    log_axis,
    short,
)
from recsim_mnar.report.page import popularity_figure
from recsim_mnar.report.template import Finding, downloads_of, of_fit, of_validation, together, write_from

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
    """Summarise the page, as JSON types."""
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
    """Implement :func:`recsim_mnar.protocols.ab_test.popularity`; none where nothing was met or nothing shown."""
    if not (found.n_views and found.n_shown):
        return []
    n_items = max(len(found.views), len(found.shown), _number(found, "n_items"))
    padded = [np.pad(counts, (0, n_items - len(counts))) for counts in (found.views, found.shown)]
    return popularity(padded[0], {_policy(found): padded[1]})


def sentences_of(found: LogNumbers) -> list[str]:
    """Write the first sentences."""
    if found.rewards is None:
        return ["Nothing was recommended."]
    rate = _rate(found)
    span = f"{100 * found.rewards['level']:g} % interval"
    values = [_percent(found.rewards[name]) if found.binary else f"{found.rewards[name]:.4g}" for name in
              ("value", "low", "high")]  # fmt: skip
    recommended = f"{found.n_shown:,} " + (f"items in {_slates(found)}" if _slates(found) else "recommendations")
    return [
        f"Of {recommended} {values[0]} were {rate} ({span} {values[1]} to {values[2]})."
        if found.binary
        else f"The mean {rate} of {recommended} is {values[0]} ({span} {values[1]} to {values[2]})."
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _rate(found: LogNumbers) -> str:
    if not found.binary:
        return "reward"
    return _BOUGHT.get(_world(found), "rewarded")


def _kinds(found: LogNumbers) -> dict[str, str]:
    """Get the name of each kind of event."""
    return {"organic": _OWN.get(_world(found), "views"), "bandit": "recommendations"}


def _world(found: LogNumbers) -> str:
    world = found.provenance.get("world") or {}
    if isinstance(world, dict):
        return str(world.get("name", "a"))
    return str(world)


def _slates(found: LogNumbers) -> str:
    """Count the slates that users read place by place, in words; "" where they see one item."""
    if "user_model" in _params(found):
        size = _number(found, "slate_size")
    else:
        size = 0
    if size > 1:
        return f"{found.n_shown // size:,} slates of {size}"
    return ""


def _params(found: LogNumbers) -> Mapping[str, object]:
    world = found.provenance.get("world")
    if isinstance(world, dict):
        params = world.get("params")
    else:
        params = None
    if isinstance(params, dict):
        return params
    return {}


def _number(found: LogNumbers, name: str) -> int:
    number = _params(found).get(name)
    if isinstance(number, int):
        return number
    return 0


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
    n_asked = found.provenance.get("n_users")
    if isinstance(n_asked, int):
        return n_asked
    return found.users


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
    occurring, share = (np.array(entry, float) for entry in lengths.at_least())
    place = np.searchsorted(occurring, events)
    return [float(share[i]) if i < len(share) else 0.0 for i in place]


def _propensities_chart(found: LogNumbers) -> Chart | None:
    edges, counts = found.propensities.joined()
    if not counts:
        return None
    histogram = Histogram(_policy(found), f": {sum(counts):,} recommendations", edges, counts, "a0")
    caption = (
        "The probability with which each recommendation was chosen. The smaller they are, the larger the weights of a "
        "policy that recommends the same more often."
    )
    return Chart("How the propensities are distributed", histograms([histogram]), caption)


def _finding(found: LogNumbers) -> Finding:
    slates = _slates(found)
    if slates:
        subject = f"{slates} items"
    else:
        subject = f"{found.n_shown:,} recommendations"
    decision = f"The log is ready: {found.users:,} users, {subject}."
    sure = "Certain, because it was simulated. Next: run the commands below, from top to bottom."
    return Finding(decision, sentences_of(found)[0], sure, "good")


def write_fit(path: Path, found: FittedWorld, made_by: Mapping[str, object]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        found: the fitted world.
        made_by: what was asked, shown at its foot; JSON types.
    """
    identified = {name: row for name, row in found.identified.items() if row["value"] > 0 and row["low"] >= 0}
    rows = [
        Dot(name.replace("_", " "), 1.0, row["low"] / row["value"], row["high"] / row["value"],
            words=f"{row['value']:.4g}")
        for name, row in sorted(identified.items(), key=lambda one: (one[1]["high"] - one[1]["low"]) / one[1]["value"])
    ]  # fmt: skip
    caption = "Each value of the fit as 100 %, with its 90 % interval from the log; the most certain first."
    charts = [Chart("How closely the log settles each feature", dots(rows, PER_CENT), caption, folded=False)]
    write_from("fit.html", path, made_by, of_fit(found), charts if rows else [], found=found)


_CLASSES = {"matches": "trust", "close": "trust", "cannot say": "caution", "off": "do_not_use"}
_MOST_TICKS = 5
_FEW = 12
_LETTERS = 30
"""Of all labels of an axis, that stand side by side on a phone without touching."""
WIDTH = 80


def table_lines(found: Validation) -> Iterator[str]:
    """The checks, a line each, within :data:`WIDTH` columns."""
    yield f"{'check':<29}{'grade':<11}{'real':>10}{'simulated':>10}{'apart':>7}{'chance':>7}{'p':>6}"
    for check in found.checks:
        if check.p_adjusted is None:
            p = ""
        else:
            p = f"{check.p_adjusted:.3f}".removeprefix("0")
        yield (
            f"{check.name[:28]:<29}{check.grade:<11}{check.real:>10.4g}{check.simulated:>10.4g}"
            f"{check.distance:>7.3f}{check.chance:>7.3f}{p:>6}"
        )


LEGEND = (
    "real, simulated: the number of the check's name on either side. apart: how far the two sides differ, 0 is not at "
    "all. chance: how far the same users differ where they are divided at random. p: how often chance makes as much, "
    "corrected for all checks. matches: like real users; close: slightly different; off: different; "
    "cannot say: too few users, or it is unknown what they were shown."
)
"""Of the table."""


def legend_lines() -> list[str]:
    """Explain the columns and grades, wrapped to :data:`WIDTH` columns."""
    return textwrap.wrap(LEGEND, WIDTH)


def sentence_lines(found: Validation) -> Iterator[str]:
    """Describe where it is valid and where not, wrapped to :data:`WIDTH` columns."""
    for _, head, questions in answers(found):
        if questions:
            yield f"{head}:"
            for question in questions:
                yield from textwrap.wrap(question, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    for note in found.notes:
        yield from textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")


def answers(found: Validation) -> list[tuple[str, str, list[str]]]:
    """The four lists: the class that a page shows them in, the heading, the questions."""
    return [
        ("best", "valid for these questions", found.valid_for),
        ("costs", "not valid for these", found.not_valid_for),
        ("indistinguishable", "cannot say for these: see the check", found.cannot_say),
        ("", "not checked for those", found.not_checked),
    ]


def write_validation(path: Path, found: Validation, made_by: Mapping[str, object]) -> None:
    """Write the page under a temporary name, then rename it.

    Args:
        path: of the page.
        found: what it says.
        made_by: what was asked, shown at its foot; JSON types.
    """
    write_from(
        "validation.html",
        path,
        made_by,
        of_validation(found),
        [_apart(found), *(chart for chart in map(_chart, found.checks) if chart is not None)],
        answers=answers(found),
        checks=found.checks,
        unpictured=[check for check in found.checks if "kind" not in check.picture],
        classes=_CLASSES,
        notes=found.notes,
        facts=found.facts,
        features=next((c.picture["features"] for c in found.checks if c.kind == "classifier"), []),
    )


_GRADES = {"matches": "good", "close": "good", "cannot say": "tie", "off": "bad"}


def _apart(found: Validation) -> Chart:
    rows = [
        Dot(check.name, check.distance, 0.0, check.visible, _GRADES[check.grade], words=check.grade)
        for check in sorted(found.checks, key=lambda check: check.distance)
    ]
    caption = (
        "How far the simulated users are from the real ones in each check; the whisker is what chance does to real "
        "users in 95 % of all divisions."
    )
    return Chart("Where the world is like the log, and where not", dots(rows, PLAIN), caption, folded=False)


def _chart(check: Check) -> Chart | None:
    picture = check.picture
    kind = picture.get("kind")
    if kind in ("cumulative", "scaled", "standard", "shares"):
        body = _lines(picture)
        caption = "The band: what chance does to real users (5 to 95 %)."
    elif kind == "features":
        rows = [Dot(row["feature"], row["auc"], colour="a1") for row in picture["features"]]
        body = dots(sorted(rows, key=lambda row: -row.value), PLAIN, axis_of(0.5, 1.0))
        caption = "How well single features separate real users from simulated ones; .5 is not at all."
    else:
        return None
    return Chart(f"{check.name}: {check.grade}", body, f"{check.says}. {caption}")


def _lines(picture: Mapping[str, Any]) -> str:
    n = len(picture["entries"])
    if picture["kind"] == "shares" and n > _FEW:  # items, the largest first; few groups keep their order
        order = np.argsort(picture["real"], kind="stable")[::-1]
        names = ("entries", "real", "simulated", "low", "high")
        picture = dict(picture) | {name: [picture[name][i] for i in order] for name in names}
    entries = [short(str(entry)) for entry in picture["entries"]]
    ticks = np.unique(np.linspace(0, n - 1, min(n, _MOST_TICKS)).astype(int))
    if sum(len(entries[i]) for i in ticks) > _LETTERS:
        ticks = np.array([0])
    places = (np.arange(n) / max(n - 1, 1)).tolist()
    plot = Plot(places, [(places[i], entries[i]) for i in ticks], PLAIN, (picture["low"], picture["high"]),
                below=picture["axis"])  # fmt: skip
    real = Curve("real users", picture["real"])
    simulated = Curve("simulated", picture["simulated"], "a1")
    return curves([real, simulated], plot)
