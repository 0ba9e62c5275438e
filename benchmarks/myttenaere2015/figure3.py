"""Figures 3 and 4 to the letter: what campaigns induce, five kinds of item, and the law of items per user.

Figure 3, left: the share of all additions up to a day that recommendations induced. Right: P_t(i) of items that both
campaigns favour, of one that only the second recommends, and of one that is never recommended. For that the house
chooses anew for each campaign: the second favours its own items besides those of the first, and some of them the
first does not recommend at all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from _study import check_lines
from platforms import Interval, interval, plain, world_of

from recsim_mnar.campaigns.platform import platform_log, run_campaign
from recsim_mnar.campaigns.profiles import Profiles

N_LATE = 3
KINDS = ("favoured twice", "recommended twice", "favoured at first", "first in the second", "never recommended")


def jobs(settings: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    """One platform per seed."""
    return {
        f"{seed:03d}": functools.partial(platform_of, settings["preset"], seed, settings["step"])
        for seed in range(settings["platforms"])
    }


def weights_of(world: Any) -> tuple[list[Any], dict[str, int]]:
    """Weights of each campaign, and an item of each kind: of the favoured the middle one, else the most popular."""
    first = world.deployed_weights.copy()
    popular = np.argsort(-world.log_popularity, kind="stable")
    focus = [int(i) for i in popular if first[i] >= world.params.focus_boost * 0.5]
    others = [int(i) for i in popular if 0 < first[i] < world.params.focus_boost * 0.5]
    late, second = others[:N_LATE], first.copy()
    first[late] = 0.0
    second[late] = world.deployed_weights.max()
    second[focus[-1]] = np.median(world.deployed_weights[world.deployed_weights > 0])
    never = [int(i) for i in popular if world.deployed_weights[i] == 0]
    return [first, second], dict(
        zip(KINDS, (focus[len(focus) // 2], others[N_LATE], focus[-1], late[0], never[0]), strict=True)
    )


def platform_of(preset: str, seed: int, step: int) -> dict[str, Any]:
    """Shares by day, probabilities of the five items, and items per user, of one platform."""
    world = world_of(preset, seed)
    weights, items = weights_of(world)
    platform = world.open_platform(seed)
    for day, own in zip(world.campaign_days(), weights, strict=True):
        platform.advance(day)
        run_campaign(platform, weights=own)
    platform.advance(world.params.n_days)
    log = platform_log(platform)
    days = list(range(world.params.reference_day, world.params.n_days + 1, step))
    out: dict[str, Any] = {"days": days, "items": items, "induced": [], "probabilities": {kind: [] for kind in KINDS}}
    for day in days:
        now = Profiles.of(log, day, world.n_items)
        p = now.item_probabilities()
        out["induced"].append(float((now.causes >= 0).mean()))
        for kind, item in items.items():
            out["probabilities"][kind].append(float(p[item]))
    final = Profiles.of(log, world.params.n_days, world.n_items)
    out["campaign_days"] = world.campaign_days()
    out["mean_items"] = final.n_pairs / final.n_users
    out["law"] = power_law(final.lengths())
    quiet = world.open_platform(seed)  # the same users without any campaign
    quiet.advance(world.params.n_days)
    out["law without"] = power_law(Profiles.of(platform_log(quiet), world.params.n_days, world.n_items).lengths())
    return out


def power_law(lengths: Any) -> dict[str, float]:
    """Discrete power law from the x_min of smallest Kolmogorov-Smirnov distance, against a geometric law (Vuong).

    Clauset, Shalizi & Newman 2009, "Power-law distributions in empirical data"; both laws end at the largest length.
    """
    x = np.asarray(lengths)
    best: dict[str, float] = {"distance": np.inf}
    for least in range(2, 9):
        tail = x[x >= least]
        if len(tail) < 200:
            break
        values = np.arange(least, tail.max() + 1, dtype=float)
        counts = np.bincount(tail - least, minlength=len(values))
        laws = {"power": -np.log(values), "geometric": -values}
        grid = {"power": np.linspace(1.01, 6, 500), "geometric": np.linspace(0.005, 3, 600)}
        logs, chosen = {}, {}
        for name, base in laws.items():
            table = grid[name][:, None] * base
            table -= np.log(np.exp(table - table.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)) + table.max(
                axis=1, keepdims=True
            )
            k = int((table @ counts).argmax())
            logs[name], chosen[name] = table[k], float(grid[name][k])
        distance = float(np.abs(np.cumsum(counts) / len(tail) - np.cumsum(np.exp(logs["power"]))).max())
        if distance < best["distance"]:
            ratio = np.repeat(logs["power"] - logs["geometric"], counts)
            z = float(ratio.mean() / (ratio.std(ddof=1) / np.sqrt(len(ratio))))
            best = {"distance": distance, "x_min": least, "exponent": chosen["power"], "vuong_z": z, "users": len(tail)}
    return best


def numbers(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Changes in the 30 days after each campaign by kind of item, shares induced, and the law of items per user."""
    ones = list(found.values())
    days, campaigns = ones[0]["days"], ones[0]["campaign_days"]

    def at(day: int) -> int:
        return int(np.searchsorted(days, day, side="right")) - 1

    def jump(kind: str, day: int) -> Interval:
        curves = (one["probabilities"][kind] for one in ones)
        return interval(curve[at(day + 30)] / curve[at(day)] - 1 for curve in curves)

    return {
        "platforms": len(ones), "mean_items": interval(one["mean_items"] for one in ones),
        "jump": {
            kind: [jump(kind, day) for day in campaigns] for kind in KINDS
        },
        "induced": [
            interval(one["induced"][at(t)] for one in ones) for t in (campaigns[0] - 10, campaigns[1] - 10, days[-1])
        ],
        **{
            of: {name: interval(one[of][name] for one in ones) for name in ("exponent", "vuong_z")}
            for of in ("law", "law without")
        },
    }  # fmt: skip


def markdown(found: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """What the paper says of Figures 3 and 4, checked."""
    jump, share = found["jump"], found["induced"]
    words = {kind: " and ".join(f"{row[0]:+.0%}" for row in rows) for kind, rows in jump.items()}
    late = jump["first in the second"]
    checks = {
        f"Figure 3: P_t(i) of favoured items rises after each campaign: {words['favoured twice']} in 30 days": all(
            row[1] > 0 for row in jump["favoured twice"]
        ),
        f"Figure 3: of an item of the second campaign alone, only then: {words['first in the second']}": late[0][2]
        < 0
        < late[1][1],
        f"Figure 3: of an item never recommended it falls at the same time: {words['never recommended']}": all(
            row[2] < 0 for row in jump["never recommended"]
        ),
        f"Figure 3, left: the induced share rises with each campaign: {', '.join(f'{row[0]:.1%}' for row in share)}": (
            share[0][0] == 0 and share[1][1] > 0 and share[2][1] > share[1][2]
        ),
    }
    laws = [
        f"exponent {law['exponent'][0]:.2f}, Vuong's z against a geometric law {law['vuong_z'][0]:.1f}"
        for law in (found["law"], found["law without"])
    ]
    return [
        "## Figures 3 and 4: campaigns and the items they move", "",
        f"{found['platforms']} platforms, {plain(found['mean_items'])} items per user on the last day. "
        "The paper describes its data twice: 18,294 users, 180 items and 117,376 pairs (6.42 per user), the preset, "
        "and 34,448 users, 35,741 items and 5.33 per user, the whole platform (below).", "",
        *check_lines(checks), "",
        f"Figure 4, items per user follow roughly a power law, by construction: {laws[0]}; without any campaign "
        f"{laws[1]}.",
        "",
    ]  # fmt: skip
