"""The paper's second description of its data, the whole platform: 34,448 users, 35,741 items, 5.33 items a user.

    python benchmarks/myttenaere2015/whole.py [--quick] [--seeds N] [--out DIR]

The preset ``viadeo`` at that size with house campaigns: scores of the constant lists and of both collaborative
filterings from day 300 to day 500, classical and with p = 20 and 80 weights, with time and memory. Writes ``whole.md``
and ``whole.json``.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from pathlib import Path
from typing import Any

from analysis import interval, percent
from platforms import K, constant_lists, lived, world_of

from recsim_mnar.log.files import write_json
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.policy import registry
from recsim_mnar.protocols.temporal.weighted_leave_one_out import hit_probabilities
from recsim_mnar.protocols.temporal.weighting_schemes import make_scheme
from recsim_mnar.simulate.platform import platform_log

HERE = Path(__file__).resolve().parent
SIZE = ("n_users=34448", "n_items=35741", "organic_items=1.55", "never_from=1000", "n_never=5000")
SCHEMES = ("unweighted", "weights+p=20", "weights+p=80")


def measured(seed: int, settings: tuple[str, ...], preset: str = "viadeo") -> dict[str, Any]:
    """Scores on both days by each scheme, sizes, and CPU seconds of each step."""
    seconds, began = {}, time.process_time()

    def lap(name: str) -> None:
        nonlocal began
        seconds[name] = round(time.process_time() - began, 1)
        began = time.process_time()

    world = world_of(preset, seed, settings)
    log = platform_log(lived(world, seed, {"recommender": "", "sharpness": 0.0}))
    lap("platform")
    params = world.params
    reference, now = (Profiles.of(log, day, world.n_items) for day in (params.reference_day, params.n_days))
    agents = constant_lists(log, reference) | {name: registry.learner(name) for name in ("cosine-cf", "naive-cf")}
    schemes = [scheme for scheme in SCHEMES if scheme == "unweighted" or int(scheme.split("=")[1]) <= world.n_items]
    weighings = {scheme: make_scheme(scheme).weigh(now, reference) for scheme in schemes}
    lap("weights")
    scores: dict[str, Any] = {}
    for name, learner in agents.items():
        first = make_scheme("unweighted").weigh(reference, reference)
        before = float(first.probabilities @ hit_probabilities(reference, learner, K))
        hits = hit_probabilities(now, learner, K)
        scores[name] = {"before": before, **{s: float(w.probabilities @ hits) for s, w in weighings.items()}}
        lap(name)
    return {
        "users": now.n_users, "items": world.n_items, "pairs": now.n_pairs, "mean_items": now.n_pairs / now.n_users,
        "items_held": int((now.n_holders() > 0).sum()), "scores": scores, "seconds": seconds,
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }  # fmt: skip


def changes(ones: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By algorithm and scheme, the relative change of the score since the reference day over platforms."""
    schemes = [s for s in next(iter(ones[0]["scores"].values())) if s != "before"]
    return {
        name: {s: interval(one["scores"][name][s] / one["scores"][name]["before"] - 1 for one in ones) for s in schemes}
        for name in ones[0]["scores"]
    }


def checks(found: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """Figure 7's finding for both recommenders: the classical score falls, and weights bring back a part."""
    out = {}
    for name in ("cosine-cf", "naive-cf"):
        row = found[name]
        text = ", ".join(f"{scheme} {value['mean']:+.1%}" for scheme, value in row.items())
        weighted = [value["mean"] for scheme, value in row.items() if scheme != "unweighted"]
        fall = row["unweighted"]["mean"]
        out[f"{name} falls, and weights bring back a part: {text}"] = fall < 0 and max(weighted) > fall
    return out


def markdown(ones: list[dict[str, Any]]) -> str:
    found, first = changes(ones), ones[0]
    schemes = list(found["g1"])
    mean = {name: sum(one["seconds"][name] for one in ones) / len(ones) for name in first["seconds"]}
    lines = ["# The whole platform", ""]
    lines += [
        f"{len(ones)} platforms: {first['users']:,} users, {first['items']:,} items "
        f"({first['items_held']:,} of them held by somebody), {first['pairs']:,} pairs, "
        f"{first['mean_items']:.2f} items a user (published 5.33) on the first. CPU s a platform: "
        f"{', '.join(f'{name} {value:.0f}' for name, value in mean.items())}; {first['memory_gb']:.1f} GB.", "",
        "Change of the score from day 300 to day 500 [95 % interval over platforms]:", "",
        f"| | day 300 | {' | '.join(schemes)} |", "|---|---|" + "---|" * len(schemes),
    ]  # fmt: skip
    for name, row in found.items():
        before = sum(one["scores"][name]["before"] for one in ones) / len(ones)
        cells = [percent(row[s]) if len(ones) > 1 else f"{row[s]['mean']:+.1%}" for s in schemes]
        lines.append(f"| {name} | {before:.4f} | {' | '.join(cells)} |")
    told = checks(found)
    lines += ["", "```", *(f"{'PASS ' if ok else 'short'} {text}" for text, ok in told.items()), "```"]
    return "\n".join(lines)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small preset")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    out = options.out or (Path("runs/myttenaere2015-quick") if options.quick else HERE)
    out.mkdir(parents=True, exist_ok=True)
    size, preset = ((), "quick") if options.quick else (SIZE, "viadeo")
    ones = []
    for seed in range(options.seeds):
        ones.append(measured(seed, size, preset))
        print(f"platform {seed} done", flush=True)
    write_json(out / "whole.json", ones)
    text = markdown(ones)
    (out / "whole.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
