"""Coverage of the intervals on logs of known value: `python benchmarks/coverage/run.py [setting ...]`.

Each setting is a step of its own whose result is kept under `results/`; a setting that is done is not run again.
Without a click a method that then has no width counts as a miss, as it should.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from settings import GRID, LEAST_COVERAGE, LEVEL, NORMAL_COVERS, WIDEST_RATIO, Setting  # noqa: E402
from worlds import World  # noqa: E402

from recsim_mnar.estimators import estimate_value, guarantees  # noqa: E402

RESULTS = HERE / "results"
QUICK_FIRST = 50_000  # a quick look never sees the logs of the study
SLOW_LOGS = 400  # of the methods that read every row many times
QUANTILE = 1.959963984540054
CLIP = 15.0


def fast_methods(reward, propensity, target, user, users) -> dict[str, tuple[float, float]]:
    """Intervals that are cheap enough for every log."""
    clustered = user.size > users
    cluster = user if clustered else None
    out = {}
    default = estimate_value(reward, propensity, target, cluster=cluster, level=LEVEL)
    out["default"] = (default.low, default.high)
    clipped = estimate_value(reward, propensity, target, clip=CLIP, cluster=cluster, level=LEVEL)
    out["clipped, sampling part only"] = (clipped.diagnostics["sampling_low"], clipped.diagnostics["sampling_high"])
    out["clipped, clip part included"] = (clipped.low, clipped.high)
    snips = estimate_value(reward, propensity, target, estimator="snips", cluster=cluster, level=LEVEL)
    out["snips, delta by user"] = (snips.low, snips.high)
    n = reward.size
    w = target / propensity
    x = w * reward
    value = x.mean()
    half = QUANTILE * x.std() / math.sqrt(n)
    out["normal by row"] = (value - half, value + half)
    sums = np.bincount(user, x - value, users)
    half = QUANTILE * math.sqrt(sums @ sums) / n
    out["normal by user"] = (value - half, value + half)
    effective = w.sum() ** 2 / (w @ w)
    rate, square = min(x.sum() / w.sum(), 1.0), QUANTILE**2 / effective
    centre = (rate + square / 2) / (1 + square)
    half = QUANTILE * math.sqrt(rate * (1 - rate) / effective + square / effective / 4) / (1 + square)
    out["Wilson, effective n"] = (centre - half, centre + half)
    return out


def slow_methods(reward, propensity, target, user, users, bound) -> dict[str, tuple[float, float]]:
    """Intervals that read the rows many times."""
    cluster = user if user.size > users else None
    boot = estimate_value(reward, propensity, target, cluster=cluster, level=LEVEL, interval="bootstrap")
    per_user = user.size / users
    values = np.bincount(user, target / propensity * reward, users) / per_user
    longest = np.bincount(user, minlength=users).max() / per_user
    return {
        "bootstrap by user": (boot.low, boot.high),
        "empirical Bernstein": guarantees.empirical_bernstein(values, bound * longest, LEVEL),
        "betting": guarantees.betting(values, bound * longest, LEVEL),
        "log smoothing": guarantees.log_smoothing(values, bound * longest, LEVEL),
    }


def run(setting: Setting, logs: int | None = None, first: int = 0) -> dict:
    """One setting: coverage, mean width and misses on either side of every method."""
    world = World(setting)
    start = time.process_time()
    ends: dict[str, list[tuple[float, float]]] = {}
    clicks = []
    total = setting.logs if logs is None else logs
    for number in range(total):
        reward, propensity, target, user = world.log(first + number)
        clicks.append(float(reward.sum()))
        found = fast_methods(reward, propensity, target, user, setting.users)
        if number < SLOW_LOGS:
            found |= slow_methods(reward, propensity, target, user, setting.users, float(world.weight.max()))
        for name, pair in found.items():
            ends.setdefault(name, []).append(pair)
    methods = {}
    for name, pairs in ends.items():
        low, high = np.array(pairs).T
        assert np.all(np.isfinite(low)), f"{name}: an end is not finite"
        assert np.all(np.isfinite(high)), f"{name}: an end is not finite"
        methods[name] = {
            "logs": len(low),
            "coverage": float(np.mean((low <= world.value) & (world.value <= high))),
            "above": float(np.mean(low > world.value)),
            "below": float(np.mean(high < world.value)),
            "width": float(np.mean(high - low)),
        }
    return {
        "setting": setting.as_dict(),
        "value": world.value,
        "mean_clicks": float(np.mean(clicks)),
        "logs_without_click": int(np.sum(np.array(clicks) == 0)),
        "methods": methods,
        "cpu_seconds": time.process_time() - start,
    }


def report(results: list[dict]) -> str:
    """The results as Markdown."""
    names = list(dict.fromkeys(name for result in results for name in result["methods"]))
    lines = [
        "# Coverage at nominal 95 %",
        "",
        "Each cell: coverage (mean width over that of the normal interval by user). The default is the gamma interval",
        "on user sums. `!` default below .9345; `w` default more than 1.3 times as wide as a normal interval by user",
        f"that covers {NORMAL_COVERS:.0%}. The first {SLOW_LOGS} logs for the bootstrap, the guaranteed methods and",
        "obp's own code (empty where it was not measured).",
        "",
        "| setting | clicks | " + " | ".join(names) + " | |",
        "|---|---|" + "---|" * (len(names) + 1),
    ]
    failed = 0
    for result in results:
        methods = result["methods"]
        normal, default = methods["normal by user"], methods["default"]
        cells = []
        for name in names:
            if name not in methods:
                cells.append("")
                continue
            ratio = methods[name]["width"] / normal["width"] if normal["width"] > 0 else math.nan
            cells.append(f"{methods[name]['coverage']:.3f} ({ratio:.2f})")
        marks = "!" if default["coverage"] < LEAST_COVERAGE else ""
        if normal["coverage"] >= NORMAL_COVERS and default["width"] > WIDEST_RATIO * normal["width"]:
            marks += "w"
        failed += bool(marks)
        lines.append(
            f"| {result['setting']['name']} | {result['mean_clicks']:.0f} | " + " | ".join(cells) + f" | {marks} |"
        )
    logs = min(r["methods"]["default"]["logs"] for r in results)
    lowest = min(r["methods"]["default"]["coverage"] for r in results)
    lines += [
        "",
        f"{len(results)} settings, at least {logs} logs each; the default's lowest coverage is {lowest:.4f}; "
        f"{failed} settings break a rule.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("settings", nargs="*", help="names or parts of names; all where none is given")
    parser.add_argument("--quick", type=int, help="this many logs a setting, printed and not kept")
    arguments = parser.parse_args()
    chosen = [s for s in GRID if not arguments.settings or any(part in s.name for part in arguments.settings)]
    RESULTS.mkdir(exist_ok=True)
    results = []
    for setting in chosen:
        path = RESULTS / f"{setting.name}.json"
        if arguments.quick:
            result = run(setting, arguments.quick, QUICK_FIRST)
        elif path.exists():
            result = json.loads(path.read_text())
        else:
            result = run(setting)
            path.write_text(json.dumps(result, indent=1) + "\n")
        default = result["methods"]["default"]
        print(
            f"{setting.name}: default {default['coverage']:.4f}, normal by user "
            f"{result['methods']['normal by user']['coverage']:.4f}, {result['cpu_seconds']:.0f} s",
            flush=True,
        )
        results.append(result)
    if (RESULTS / "obp.json").exists() and not arguments.quick:
        peers = json.loads((RESULTS / "obp.json").read_text())
        for result in results:
            result["methods"] |= peers.get(result["setting"]["name"], {})
    text = report(results)
    if not arguments.quick and len(results) == len(GRID):
        (HERE / "results.md").write_text(text)
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
