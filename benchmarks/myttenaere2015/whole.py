"""The whole platform of the paper's second description, 34,448 users and 35,741 items.

The constant lists and both collaborative filterings from day 300 to day 500, by the classical score and with weights.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from _study import check_lines
from figures import figures_5_and_6
from platforms import CFS, NAMES, K, four, interval, lived, percent, world_of

from recsim_mnar.campaigns.platform import platform_log
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import hit_probabilities, make_scheme, score

MORE = "more weights bring it nearer"

Case = dict[str, Any]
Changes = dict[str, dict[str, list[float]]]
"""By algorithm and number of weights: relative change of the score, and half the width of its sampling interval."""


def measured(preset: str, seed: int, case: Case, p: list[int]) -> dict[str, Any]:
    """Scores on the reference day and the last, with half the width of their sampling interval over users.

    Without campaigns those of the same platform on the last day.

    Args:
        preset: of the world.
        seed: of catalogue and users.
        case: ``set``, ``recommender`` and ``sharpness``.
        p: numbers of weights.
    """
    world = world_of(preset, seed, case["set"])
    log, plain = (platform_log(lived(world, seed, case, days=days)) for days in (None, []))
    first_day, last_day = world.params.reference_day, world.params.n_days
    reference, now = (Profiles.of(log, day, world.n_items) for day in (first_day, last_day))
    without = Profiles.of(plain, last_day, world.n_items)
    agents = four(log, reference)
    first, plainly = (make_scheme("unweighted").weigh(profiles, reference) for profiles in (reference, without))
    weighings = {str(q): make_scheme(f"weights+p={q}" if q else "unweighted").weigh(now, reference) for q in (0, *p)}
    scores: dict[str, Any] = {}
    for name, learner in agents.items():
        before, hits = (hit_probabilities(profiles, learner, K) for profiles in (reference, now))
        found = {q: score(weighing, hits) for q, weighing in weighings.items()}
        scores[name] = {
            "before": float(first.probabilities @ before),
            "without": float(plainly.probabilities @ hit_probabilities(without, learner, K)),
            **{q: [float(value), float(high - low) / 2] for q, (value, low, high) in found.items()},
        }
    return {
        "users": now.n_users, "items": world.n_items, "pairs": now.n_pairs, "mean_items": now.n_pairs / now.n_users,
        "items_held": int((now.n_holders() > 0).sum()), "scores": scores,
    }  # fmt: skip


def change_of(found: dict[str, Any]) -> Changes:
    """Of one platform, by algorithm and p: relative change since the reference day, and its sampling half width."""
    return {
        name: {q: [v[0] / row["before"] - 1, v[1] / row["before"]] for q, v in row.items() if q.isdigit()}
        for name, row in found["scores"].items()
    }


def over(ones: list[Changes]) -> Changes:
    """Means over platforms."""
    return {
        name: {q: np.mean([one[name][q] for one in ones], axis=0).tolist() for q in row}
        for name, row in ones[0].items()
    }


def figure7(row: dict[str, list[float]]) -> dict[str, bool]:
    """Figure 7's findings for one recommender, each beyond the sampling interval of the score.

    The classical score falls; weights bring back a part, and no more than that (no change of sign, of a score that
    falls: a score that stays has none either); more weights bring back more.
    """
    (fall, width), *weighted = (row[q] for q in sorted(row, key=int))
    falls = fall < -width
    return {
        "falls": falls,
        "weights bring it nearer to 0": all(abs(value) < abs(fall) - half for value, half in weighted),
        "no change of sign": falls and all(value < half for value, half in weighted),
        MORE: all(
            abs(b) < abs(a) - half for (a, _), (b, half) in itertools.pairwise(weighted)
        ),
    }  # fmt: skip


def jobs(settings: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    """One platform per seed."""
    return {
        f"{seed:03d}": functools.partial(measured, settings["preset"], seed, settings, settings["p"])
        for seed in range(settings["platforms"])
    }


def numbers(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Changes with intervals over platforms, Figure 7's findings and sizes."""
    ones = list(found.values())
    each, mean = [change_of(one) for one in ones], over([change_of(one) for one in ones])
    sizes = ("users", "items", "items_held", "pairs", "mean_items")
    return {
        "platforms": len(ones), **{name: float(np.mean([one[name] for one in ones])) for name in sizes},
        "before": {name: float(np.mean([one["scores"][name]["before"] for one in ones])) for name in NAMES},
        "without": {
            name: interval(one["scores"][name]["without"] / one["scores"][name]["before"] - 1 for one in ones)
            for name in NAMES
        },
        "change": {name: {q: interval(one[name][q][0] for one in each) for q in row} for name, row in mean.items()},
        "sampling": {name: {q: value[1] for q, value in row.items()} for name, row in mean.items()},
        "checked": settings["p"],
        "figure7": {name: figure7({q: mean[name][q] for q in map(str, (0, *settings["p"]))}) for name in CFS},
    }  # fmt: skip


def table(found: dict[str, Any]) -> list[str]:
    """Changes by algorithm and number of weights, with sampling half widths, and Figure 7's findings."""
    ps = list(found["change"]["g1"])
    titles = " | ".join("classical" if q == "0" else f"p = {q}" for q in ps)
    lines = [f"| | day 300 | no campaign | {titles} |", "|---" * (len(ps) + 3) + "|"]
    for name, row in found["change"].items():
        cells = [f"{percent(row[q])}, sampling {found['sampling'][name][q]:.1%}" for q in ps]
        own = f"{NAMES[name]} | {found['before'][name]:.4f} | {percent(found['without'][name])}"
        lines.append(f"| {own} | {' | '.join(cells)} |")
    few, more = map(str, found["checked"])
    checks = figures_5_and_6(found["change"]["g1"], found["change"]["g2"], few, more)
    for name, own in found["figure7"].items():
        checks |= {f"Figure 7, {NAMES[name]}: {text}": ok for text, ok in own.items()}
    return [*lines, "", f"Checked at p = {few} and {more}:", "", *check_lines(checks), ""]


def markdown(found: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The table of the whole platform."""
    return [
        f"## {settings['title']}", "",
        f"{found['platforms']} platforms: {found['users']:,.0f} users, {found['items']:,.0f} items "
        f"({found['items_held']:,.0f} of them held by somebody), {found['pairs']:,.0f} pairs, "
        f"{found['mean_items']:.2f} items per user (published {settings['mean_items']:g}).", "",
        "Change of the score from day 300 to day 500 [95 % interval over platforms], and half the width of the score's "
        "sampling interval over users. A finding passes where it is beyond that.", "", *table(found),
    ]  # fmt: skip
