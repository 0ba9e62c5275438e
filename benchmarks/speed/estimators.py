"""Speed of the estimators: `python benchmarks/speed/estimators.py [--rows N] [--out FILE]`.

IPS, clipped IPS and SNIPS with all that is behind their intervals and diagnostics, over ten million rows, beside the
read bandwidth of the same three columns in the same run, NumPy expressions and pandas; the bootstrap; and obp in
its own environment (make_peers.sh obp). A peer that was not run prints "not measured".
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from table import Row, peer

from recsim_mnar.estimators import Moments, estimate_value
from recsim_mnar.estimators.off_policy.from_moments import estimate_from_moments

HERE = Path(__file__).resolve().parent

CLIP = 15.0
REPEATS = 7
PAIR_REPEATS = 60  # of the two whose ratio is looked for: the best of a few is still noise on a shared machine
THREE = ("ips", "clipped_ips", "snips")


def columns(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reward, propensity and target, filled in place so that no second copy is ever held."""
    rng = np.random.default_rng(0)
    reward, propensity, target = np.empty(rows), np.empty(rows), np.empty(rows)
    for start in range(0, rows, 1 << 16):
        part = slice(start, start + (1 << 16))
        rng.random(out=propensity[part])
        propensity[part] *= 0.49
        propensity[part] += 0.01
        rng.random(out=target[part])
        target[part] *= 0.5
        rng.random(out=reward[part])
        reward[part] = reward[part] < 0.05
    return reward, propensity, target


def three_estimates(reward, propensity, target, cluster=None):
    moments = Moments.of(reward, propensity, target, clip=CLIP, cluster=cluster)
    return [estimate_from_moments(moments, name) for name in THREE]


def three_values(reward, propensity, target):
    """The moments behind everything, and the three values."""
    m = Moments.of(reward, propensity, target, clip=CLIP)
    return m.sum("x") / m.rows, m.sum("y") / m.rows, m.sum("x") / m.sum("w")


def with_numpy(reward, propensity, target):
    w = target / propensity
    x = w * reward
    c = np.minimum(w, CLIP)
    y = c * reward
    return [a.sum() for a in (w, w * w, x, x * x, w * x, c, c * c, y, y * y, c * y)]


def with_pandas(reward, propensity, target):
    import pandas as pd

    w = target / propensity
    table = pd.DataFrame({"w": w, "x": w * reward, "y": np.minimum(w, CLIP) * reward})
    return table.agg(["mean", "var"])


def in_turn(functions: dict, repeats: int = REPEATS) -> dict[str, float]:
    """Best wall seconds of each, run in turn so that all meet the same neighbours."""
    best = dict.fromkeys(functions, float("inf"))
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def one_pass(rows: int) -> dict:
    from _floors_kernel import read

    data = columns(rows)
    users = np.arange(rows) // 30
    seconds = in_turn(
        {
            "read the three columns": lambda: read(*data),
            "ours, moments and values": lambda: three_values(*data),
            "ours, intervals and verdicts too": lambda: three_estimates(*data),
        },
        PAIR_REPEATS,
    )
    seconds |= in_turn(
        {
            "ours, 30 rows a user": lambda: three_estimates(*data, users),
            "NumPy, sums only": lambda: with_numpy(*data),
            "pandas, means and variances": lambda: with_pandas(*data),
        }
    )
    read_alone = seconds["read the three columns"]
    return {
        "rows": rows,
        "seconds": seconds,
        "share_of_read_bandwidth": read_alone / seconds["ours, moments and values"],
        "share_with_intervals": read_alone / seconds["ours, intervals and verdicts too"],
    }


def bootstrap(rows: int = 1_000_000, resamples: int = 1000) -> dict:
    data = columns(rows)
    start = [time.perf_counter()]
    for _ in range(4):
        estimate_value(*data, estimator="ips", interval="bootstrap", replicates=resamples)
        start.append(time.perf_counter())
    snips = time.perf_counter()
    estimate_value(*data, estimator="snips", interval="bootstrap", replicates=resamples)
    return {
        "rows": rows,
        "resamples": resamples,
        "seconds": min(np.diff(start)),
        "snips_seconds": time.perf_counter() - snips,
    }


MEMORY = """
import resource, sys
from estimators import columns, three_estimates
data = columns(int(sys.argv[1]))
three_estimates(*(c[:1000].copy() for c in data))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
three_estimates(*data)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, before)
"""


def memory(rows: int) -> dict:
    """Peak memory above that of a process that holds the columns and has the package loaded."""
    command = [sys.executable, "-c", MEMORY, str(rows)]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
    above, before = (int(a) * 1024 for a in done.stdout.split())
    return {"rows": rows, "columns_bytes": 24 * rows, "above_bytes": above, "process_bytes": before}


def obp(rows: int, actions: int, resamples: int) -> dict | None:
    """Seconds of obp, None where it was not run."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if 2.5 * 8 * rows * actions > available:
        return None
    return peer("obp", "peer_obp.py", [rows, actions, resamples])


def rows(quick: bool) -> list[Row]:
    """Clipped IPS with all its moments, and with intervals and verdicts, beside reading the same columns."""
    found = one_pass(1_000_000 if quick else 10_000_000)
    seconds, n = found["seconds"], found["rows"]
    read_alone = seconds["read the three columns"]
    told = {"theirs": read_alone, "unit": "s", "floor": read_alone, "floor_is": "reading the three columns"}
    return [
        Row(f"clipped IPS, all moments, {n:,} rows", "reading the same columns", seconds["ours, moments and values"],
            bar=0.9, **told),
        Row("the same, with intervals and verdicts", "reading the same columns",
            seconds["ours, intervals and verdicts too"], bar=None, **told),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    result = {"machine": platform.processor() or platform.machine(), "one_pass": one_pass(arguments.rows)}
    seconds, rows = result["one_pass"]["seconds"], arguments.rows
    print(f"{rows:,} rows: IPS, clipped IPS and SNIPS")
    for name, value in seconds.items():
        print(f"  {name:33s} {value:8.4f} s  {value / rows * 1e9:6.3f} ns a row")
    shares = result["one_pass"]
    print(
        f"  share of the read bandwidth: {shares['share_of_read_bandwidth']:.1%}, with intervals and verdicts "
        f"{shares['share_with_intervals']:.1%}"
    )
    result["memory"] = memory(rows)
    print(f"  memory above the three columns: {result['memory']['above_bytes'] / 1e6:.0f} MB")
    million = columns(1_000_000)
    ours = in_turn({"ours": lambda: three_estimates(*million)})["ours"]
    result["million_rows_seconds"] = ours
    result["bootstrap"] = bootstrap()
    print(f"a million rows: ours {ours * 1e3:.2f} ms for the three estimators")
    result["obp"] = []
    for actions, resamples in ((10, 1000), (1000, 0)):
        timed = obp(1_000_000, actions, resamples)
        result["obp"].append(timed)
        if timed is None:
            print(f"  obp, {actions} actions: not measured")
            continue
        both = timed["ips"] + timed["snips"]
        print(
            f"  obp, {actions} actions: IPS {timed['ips']:.4f} s, SNIPS {timed['snips']:.4f} s: IPS alone takes "
            f"{timed['ips'] / ours:.0f} times as long as our three, both {both / ours:.0f} times"
        )
    own = result["bootstrap"]
    print(
        f"bootstrap of IPS, a million rows, 1,000 resamples: ours {own['seconds']:.3f} s "
        f"(SNIPS {own['snips_seconds']:.3f})"
    )
    timed = result["obp"][0]
    if timed is None:
        print("  obp: not measured")
    else:
        print(f"  obp {timed['bootstrap']:.2f} s: {timed['bootstrap'] / own['seconds']:.0f} times as long")
    if arguments.out:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
