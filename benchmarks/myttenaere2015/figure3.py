"""Figures 3 and 4 to the letter: what campaigns induce, five kinds of item, and the law of items per user.

    python benchmarks/myttenaere2015/figure3.py [--quick] [--seeds N] [--out DIR]

Figure 3, left: the share of all additions up to a day that recommendations induced. Right: P_t(i) of items that both
campaigns favour, of one that only the second recommends, and of one that is never recommended. For that the house
chooses anew for each campaign: the second favours items of its own beside those of the first, and some of them the
first does not recommend at all. Writes ``figure3.json``, ``figure3.md`` and ``figure3.png``.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from analysis import interval, plain
from platforms import world_of

from recsim_mnar.log.files import write_json
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.simulate.platform import platform_log, run_campaign

HERE = Path(__file__).resolve().parent

N_LATE = 3
KINDS = ("favoured twice", "recommended twice", "favoured at first", "first in the second", "never recommended")


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


def checks(found: list[dict[str, Any]]) -> dict[str, bool]:
    """What the paper says of Figures 3 and 4."""
    days, (first, second) = found[0]["days"], found[0]["campaign_days"]

    def jump(kind: str, day: int, after: int = 30) -> dict[str, float]:
        at = [days.index(max(d for d in days if d <= t)) for t in (day, day + after)]
        return interval(one["probabilities"][kind][at[1]] / one["probabilities"][kind][at[0]] - 1 for one in found)

    out = {}
    rise = [jump("favoured twice", first), jump("favoured twice", second)]
    text = f"{rise[0]['mean']:+.0%} and {rise[1]['mean']:+.0%} in 30 days"
    out[f"Figure 3: P_t(i) of favoured items rises after each campaign: {text}"] = all(r["low"] > 0 for r in rise)
    late = [jump("first in the second", first), jump("first in the second", second)]
    text = f"{late[0]['mean']:+.0%} after the first, {late[1]['mean']:+.0%} after the second"
    out[f"Figure 3: of an item of the second campaign alone, only then: {text}"] = late[0]["high"] < 0 < late[1]["low"]
    fall = [jump("never recommended", first), jump("never recommended", second)]
    text = f"{fall[0]['mean']:+.0%} and {fall[1]['mean']:+.0%}"
    out[f"Figure 3: of an item never recommended it falls at the same time: {text}"] = all(r["high"] < 0 for r in fall)
    share = [interval(one["induced"][days.index(max(d for d in days if d <= t))] for one in found)
             for t in (first - 10, second - 10, days[-1])]  # fmt: skip
    text = ", ".join(f"{row['mean']:.1%}" for row in share)
    out[f"Figure 3, left: the induced share rises with each campaign: {text}"] = (
        share[0]["mean"] == 0 and share[1]["low"] > 0 and share[2]["low"] > share[1]["high"]
    )
    z = interval(one["law"]["vuong_z"] for one in found)
    law = interval(one["law"]["exponent"] for one in found)
    text = f"exponent {law['mean']:.2f}, Vuong's z against a geometric law {z['mean']:.1f} (> 2)"
    out[f"Figure 4: items per user follow roughly a power law: {text}"] = z["low"] > 2
    return out


def draw(one: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    left.plot(one["days"], [100 * v for v in one["induced"]], "k.-")
    left.set(xlabel="t (days)", ylabel="% of additions", title="Figure 3: induced by recommendations")
    for kind in KINDS:
        right.plot(one["days"], one["probabilities"][kind], ".-", label=kind, lw=1)
    right.set(xlabel="t (days)", ylabel="$P_t(i)$", title="five kinds of item")
    right.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for axes in (left, right):
        for day in one["campaign_days"]:
            axes.axvline(day, color="0.7", lw=0.8)
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small preset")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    out = options.out or (Path("runs/myttenaere2015-quick") if options.quick else HERE)
    out.mkdir(parents=True, exist_ok=True)
    found = [platform_of("quick" if options.quick else "viadeo", seed, 10) for seed in range(options.seeds)]
    told = {text: bool(ok) for text, ok in checks(found).items()}
    write_json(out / "figure3.json", json.loads(json.dumps({"platforms": found, "checks": told})))
    lines = ["# Figures 3 and 4: campaigns and the items they move", ""]
    mean = interval(one["mean_items"] for one in found)
    lines += [
        f"{options.seeds} platforms, {plain(mean)} items a user on the last day. The paper describes its data twice: "
        "18,294 users, 180 items and 117,376 pairs (6.42 a user), which the preset has, and 34,448 users, 35,741 items "
        "and 5.33 a user, the whole platform (`whole.py`).", "",
    ]  # fmt: skip
    lines += ["```", *(f"{'PASS ' if ok else 'short'} {text}" for text, ok in told.items()), "```"]
    (out / "figure3.md").write_text("\n".join(lines) + "\n")
    draw(found[0], out / "figure3.png")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
