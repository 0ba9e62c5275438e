"""Where, at the whole platform's shape, do the constant lists move as in Figure 5, and what does Figure 7 show there?

Settings are drawn uniformly from the region of settings.toml at an eighth of users and items, one platform each; those
that do as the paper says are read again at full size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from _study import exact_limits
from analysis import CFS, NAMES
from platforms import lived, world_of
from scipy import stats
from whole import MORE, Case, change_of, figure5, holds, measured, over, table
from whole import numbers as whole_numbers

from recsim_mnar.rng import Stream, uniforms


def jobs(settings: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    """One job per setting."""
    return {f"{n:03d}": functools.partial(tried, settings, n) for n in range(settings["settings"])}


def drawn_case(search: dict[str, Any], number: int, scale: int) -> Case:
    """Setting ``number`` of the region, at ``1 / scale`` of the whole platform's users and items.

    The favoured items' share of the weight is drawn, not their factor, and ranks are shares of the catalogue, so that
    one setting means the same at every scale.
    """
    region = search["region"]
    draws = iter(
        uniforms(search["seed"], Stream.PROTOCOL, np.full(len(region) + 1, number), np.arange(len(region) + 1))
    )
    values: Case = {}
    for name, spec in region.items():
        u = float(next(draws))
        if isinstance(spec[0], str):
            values[name] = spec[min(int(u * len(spec)), len(spec) - 1)]
        else:
            low, high = spec[:2]
            values[name] = low * (high / low) ** u if spec[-1] == "log" else low + (high - low) * u
            values[name] = round(values[name]) if spec[-1] == "whole" else float(f"{values[name]:.4g}")
    return values | {"number": number, "scale": scale}


def settings_of(values: Case, search: dict[str, Any], organic: float) -> Case:
    """The world's settings of a drawn case, with so many items added alone per user."""
    users, items = (n // values["scale"] for n in (search["users"], search["items"]))
    given = {name: values[name] for name in search["direct"]}
    given |= {
        "n_users": users, "n_items": items, "n_never": items // 7, "organic_items": organic,
        "never_from": max(round(values["never_rank"] * items), 2 * values["n_focus"]), "focus_boost": 1.0,
    }  # fmt: skip
    world = world_of(search["preset"], 0, [f"{name}={value:g}" for name, value in given.items()])
    weights = world.deployed_weights
    focus = np.isin(np.argsort(np.argsort(-world.log_popularity)), 2 * np.arange(values["n_focus"]) + 1)
    share = values["focus_share"]
    given["focus_boost"] = share / (1 - share) * float(weights[~focus].sum() / weights[focus].sum())
    return {
        "set": [f"{name}={value:.9g}" for name, value in given.items()],
        "recommender": values["recommender"], "sharpness": values["sharpness"] if values["recommender"] else 0.0,
    }  # fmt: skip


def tried(search: dict[str, Any], number: int) -> dict[str, Any]:
    """One drawn setting at the search's scale: items added alone such that profiles have the published mean size."""
    values, organic = drawn_case(search, number, search["scale"]), search["organic"]
    for _ in range(2):
        case = settings_of(values, search, organic)
        world = world_of(search["preset"], 0, case["set"])
        held = lived(world, 0, case).holders().sum() / world.params.n_users
        organic += (search["mean_items"] - float(held)) / (1 - np.exp(-world.params.n_days / world.params.fading))
        if organic < search["least_organic"]:
            return {"values": values, "refused": "no room for items added alone"}
    case = settings_of(values, search, float(organic))
    found = measured(search["preset"], 0, case, search["p"])
    return {"values": values, "organic": float(organic), "changes": change_of(found), "mean_items": found["mean_items"]}


def at_full_size(search: dict[str, Any], found: dict[str, Any], seed: int) -> dict[str, Any]:
    """A setting that was tried, on the whole platform."""
    values = drawn_case(search, found["values"]["number"], 1)
    return measured(search["preset"], seed, settings_of(values, search, found["organic"]), search["p_full"])


def more_jobs(search: dict[str, Any], found: dict[str, Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    """The first at full size: g1 rises, g2 falls and weights help both; then where Figure 5 holds; nearest first."""

    def order(one: dict[str, Any]) -> tuple[bool, bool, float]:
        change = one["changes"]
        falls = all(change[name]["0"][0] < 0 for name in CFS)
        away = sum(abs(change[name]["0"][0] - search["published"][j]) for j, name in enumerate(("g1", "g2")))
        return not (rises(change) and holds(change, MORE)), not falls, away

    fit = [one for one in found.values() if "changes" in one]
    held = [c for c in fit if figure5(c["changes"], search["figure5"]) or not order(c)[0]]
    return {
        f"{one['values']['number']:03d}-{seed}": functools.partial(at_full_size, search, one, seed)
        for one in sorted(held, key=order)[: search["confirmed"]]
        for seed in range(search["platforms"])
    }


def rises(change: dict[str, Any]) -> bool:
    """Whether g1 rises and g2 falls by the classical score."""
    return bool(change["g1"]["0"][0] > 0 > change["g2"]["0"][0])


def numbers(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """How many settings were tried, in what share each figure holds, and what the full size shows."""
    small = {key: one for key, one in found.items() if "-" not in key}
    fit = [one for one in small.values() if "changes" in one]
    five = [one for one in fit if figure5(one["changes"], settings["figure5"])]
    falls = [one for one in fit if all(one["changes"][name]["0"][0] < 0 for name in CFS)]
    counts = {
        "drawn": len(small), "of the published size": len(fit), "figure 5": len(five),
        "g1 up and g2 down": sum(rises(one["changes"]) for one in fit),
        "g1 up and g2 down, weights help": sum(rises(one["changes"]) and holds(one["changes"], MORE) for one in fit),
        "both fall": len(falls), "figure 5, both fall": sum(one in falls for one in five),
        "weights help": sum(holds(one["changes"], MORE) for one in fit),
        "figure 5, weights help": sum(holds(one["changes"], MORE) for one in five),
        "figure 7": sum(holds(one["changes"]) for one in fit),
        "figure 5 and 7": sum(holds(one["changes"]) for one in five),
    }  # fmt: skip
    full: dict[str, Any] = {}
    for key, one in found.items():
        if "-" in key:
            full.setdefault(key.split("-")[0], {})[key] = one
    large = {
        key: figure5(over([change_of(one) for one in ones.values()]), settings["figure5"]) for key, ones in full.items()
    }
    counts |= {
        "read at full size": len(full), "of them, figure 5": sum(small[key] in five for key in full),
        "figure 5 at full size": sum(large.values()),
        "figure 5 at both sizes": sum(holds and small[k] in five for k, holds in large.items()),
    }  # fmt: skip
    keys = list(fit[0]["changes"]) if fit else []
    most = str(max(settings["p"]))
    gain = {name: [one["changes"][name][most][0] - one["changes"][name]["0"][0] for one in fit] for name in CFS}
    rise = [one["changes"]["g1"]["0"][0] for one in fit]
    return {
        "counts": counts,
        "gain against g1": {name: float(stats.spearmanr(rise, values).statistic) for name, values in gain.items()},
        # What was drawn follows from the number (drawn_case).
        "columns": ["number", *(f"{name} {q}" for name in keys for q in fit[0]["changes"][name])],
        "settings": [
            [one["values"]["number"], *(round(v[0], 3) for row in one["changes"].values() for v in row.values())]
            for one in fit
        ],
        "full": {
            key: whole_numbers(ones, settings)
            | {"values": small[key]["values"], "figure5": large[key], "small": small[key] in five}
            for key, ones in full.items()
        },
    }  # fmt: skip


def _share(hits: int, n: int) -> str:
    """A share with Clopper and Pearson's 95 % interval."""
    low, high = exact_limits(hits, n)
    return f"{hits} of {n}, {hits / n:.0%} [{low:.0%}, {high:.0%}]"


def markdown(found: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """What the search found."""
    counts = found["counts"]
    n = counts["of the published size"]
    lines = [
        f"## {settings['title']}", "",
        f"{counts['drawn']} settings of the region in settings.toml at 1/{settings['scale']} of the size. In {n} "
        f"profiles can have the published size ({settings['mean_items']:g} items per user). Bounds of Figure 5: g1 "
        f"{settings['figure5']['g1']}, g2 {settings['figure5']['g2']}. Share of settings [95 %]:", "",
        "| | settings |", "|---|---|",
        *(f"| {text} | {_share(counts[key], n)} |" for key, text in (
            ("g1 up and g2 down", "g1 rises and g2 falls"), ("figure 5", "Figure 5: both within the bounds"),
            ("both fall", "both collaborative filterings fall"), ("figure 5, both fall", "Figure 5, and both fall"),
            ("weights help", "both fall, and weights bring back a part of each"),
            ("g1 up and g2 down, weights help", "g1 rises, g2 falls, both fall, and weights bring back a part of each"),
            ("figure 5, weights help", "Figure 5, both fall, and weights bring back a part of each"),
            ("figure 7", "Figure 7: the same, and 80 weights more than 20"), ("figure 5 and 7", "Figures 5 and 7"),
        )), "",
        "Rank correlation over settings of g1's change and what the weights add to a score: "
        + ", ".join(f"{NAMES[name]} {value:+.2f}" for name, value in found["gain against g1"].items()) + ".", "",
        f"Read at full size: {counts['read at full size']} settings, chosen by what they showed at "
        f"1/{settings['scale']}. Figure 5 held there in {counts['of them, figure 5']} of them, "
        f"at full size in {counts['figure 5 at full size']}, at both in {counts['figure 5 at both sizes']}.", "",
    ]  # fmt: skip
    for key, one in found["full"].items():
        values = {name: value for name, value in one["values"].items() if name not in ("number", "scale")}
        if not values["recommender"]:
            del values["sharpness"]
        lines += [
            f"### Setting {int(key)} at full size", "",
            ", ".join(f"{name} {value or 'none'}" for name, value in values.items())
            + f"; {one['platforms']} platform{'s' * (one['platforms'] > 1)}, {one['mean_items']:.2f} items per user. "
            + f"Figure 5 {'holds' if one['figure5'] else 'does not hold'} at this size, and "
            + f"{'held' if one['small'] else 'did not'} at 1/{settings['scale']}.", "", *table(one),
        ]  # fmt: skip
    return lines
