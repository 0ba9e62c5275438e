"""Where do both collaborative filterings fall after campaigns, and where do the item weights bring a part of it back?

Figure 7 asks for both at once. Campaigns between untargeted and sharply personalised (``sharpness``), by either
recommender, and acceptance that is the same for all or follows affinity (``strength``). The change of the score since
the reference day is split: with all weights the items' probabilities are those of the reference day to the last digit,
so what then remains is structural, and total = marginal + structural.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from _study import check_lines
from platforms import CFS, NAMES, K, interval, lived, percent, world_of
from schemes import scheme_of

from recsim_mnar.campaigns.platform import platform_log
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import hit_probabilities
from recsim_mnar.policies import registry

SCHEMES = ("unweighted", "weights", "structure", "alone")

Case = tuple[str, float, float]


def cases(settings: dict[str, Any]) -> list[Case]:
    """(recommender of the campaigns, sharpness, strength); sharpness 0 is the house's lists, for every recommender."""
    found = list(itertools.product(settings["recommenders"], settings["sharpness"], settings["strengths"]))
    return [case for case in found if case[1] > 0 or case[0] == settings["recommenders"][0]]


def jobs(settings: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    """One platform per case and seed."""
    return {
        f"{by}-{sharpness:g}-{strength:g}-{seed}": functools.partial(
            platform_of, settings, (by, sharpness, strength), seed
        )
        for by, sharpness, strength in cases(settings)
        for seed in range(settings["platforms"])
    }


def platform_of(settings: dict[str, Any], case: Case, seed: int) -> dict[str, Any]:
    """Scores of both recommenders on one platform at the reference day and on the last, by each scheme."""
    recommender, sharpness, strength = case
    world = world_of(settings["preset"], seed, [f"acceptance_strength={strength:g}", *settings["set"]])
    kind = {"recommender": recommender if sharpness else "", "sharpness": sharpness}
    log = platform_log(lived(world, seed, kind))
    reference = Profiles.of(log, world.params.reference_day, world.n_items)
    learners = {name: registry.learner(name) for name in CFS}
    out: dict[str, Any] = {name: {} for name in CFS}
    for day in (world.params.reference_day, world.params.n_days):
        now = Profiles.of(log, day, world.n_items)
        chosen = SCHEMES if day > world.params.reference_day else SCHEMES[:1]
        weighings = {scheme: scheme_of(scheme).weigh(now, reference) for scheme in chosen}
        for name, learner in learners.items():
            hits = {id(w.profiles): hit_probabilities(w.profiles, learner, K) for w in weighings.values()}
            out[name][str(day)] = {s: float(w.probabilities @ hits[id(w.profiles)]) for s, w in weighings.items()}
    return out


def changes(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Relative changes since the reference day over platforms: total, marginal, structural, and of other schemes."""
    first = [next(iter(one[name].values()))["unweighted"] for one in found]
    last = [list(one[name].values())[-1] for one in found]
    rel = {s: [b[s] / a - 1 for a, b in zip(first, last, strict=True)] for s in SCHEMES}
    marginal = [a - b for a, b in zip(rel["unweighted"], rel["weights"], strict=True)]
    return {
        "total": interval(rel["unweighted"]), "marginal": interval(marginal), "structural": interval(rel["weights"]),
        **{s: interval(rel[s]) for s in SCHEMES[2:]},
    }  # fmt: skip


def numbers(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """By case, the split of both recommenders' change."""
    out: dict[str, Any] = {}
    for by, sharpness, strength in cases(settings):
        case = f"{by}-{sharpness:g}-{strength:g}"
        ones = [one for key, one in found.items() if key.rsplit("-", 1)[0] == case]
        out[f"{by}/{sharpness:g}/{strength:g}"] = {name: changes(ones, name) for name in CFS}
    return out


def within(row: dict[str, Any]) -> bool:
    """Figure 7's finding: the classical score falls, and with weights it falls less, but no further than to 0."""
    total, marginal, structural = (row[part] for part in ("total", "marginal", "structural"))
    return bool(total[2] < 0 and marginal[2] < 0 and structural[0] <= max(0.0, structural[0] - structural[1]))


def markdown(found: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The table, and what it shows."""
    lines = [
        "## The fall of both collaborative filterings, marginal and structural", "",
        f"Change of the score from day 300 to day 500, {settings['platforms']} platforms of 6,000 users [95 %]. "
        "Marginal: what the item weights undo. Structural: what remains when the items' probabilities are those of day "
        "300. Figure 7: the score falls, and with weights less, without a change of sign.", "",
        "| campaigns by | sharpness | acceptance follows affinity | recommender | total | marginal | structural "
        "| structure weights | alone | Figure 7 |",
        "|---" * 10 + "|",
    ]  # fmt: skip
    for key, rows in found.items():
        recommender, sharpness, strength = key.split("/")
        for name in CFS:
            cells = [percent(rows[name][part]) for part in ("total", "marginal", "structural", *SCHEMES[2:])]
            where = [recommender if float(sharpness) else "house", sharpness, strength]
            lines.append("| " + " | ".join([*where, NAMES[name], *cells, "yes" if within(rows[name]) else "no"]) + " |")
    both = [key for key, rows in found.items() if all(within(rows[name]) for name in CFS)]
    naive = sum(within(rows["naive-cf"]) for rows in found.values())
    text = ", ".join(both) or "none"
    checks = {
        f"both fall and weights help, in some case (campaigns by/sharpness/strength): {text}": both,
        f"the same for the naive CF alone: {naive} of {len(found)} cases": naive,
        "no case in which all weights bring either score back to within 2 %": all(
            abs(rows[name]["structural"][0]) > 0.02 for rows in found.values() for name in CFS
        ),
    }
    return [*lines, "", *check_lines({text: bool(ok) for text, ok in checks.items()}), ""]
