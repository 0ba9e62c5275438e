"""Every case before and after: `python benchmarks/verdict/findings.py before|after [part of a name ...]`.

For each method: share trusted, coverage, coverage given trust, share trusted and wrong, mean width over the oracle's
(3.92 standard deviations of unclipped IPS over the same logs). What a careful user would state of a log (support,
ranges, bounds) is stated where `estimate_value` can be told.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from pathlib import Path

import numpy as np
from cases import Case, every_case
from edges import every_edge
from tally import judged

from recsim_mnar.estimators import estimate_value

HERE = Path(__file__).resolve().parent

LOGS = 300
KNOWS = "full_support" in inspect.signature(estimate_value).parameters


def arguments(case: Case, columns: dict, method: str, options: dict) -> dict:
    """What estimate_value is given for one method."""
    given = {k: v for k, v in columns.items() if k not in ("context", "action", "q_logged", "q_target")}
    given |= options
    if method in ("dr", "sndr", "switch_dr"):
        given |= {k: columns[k] for k in ("q_logged", "q_target")}
    if method == "mips":
        given["groups"] = columns["action"]
        if KNOWS:
            given["context"] = columns["context"]
    stated = case.stated if KNOWS else {k: v for k, v in case.stated.items() if k == "reward_max"}
    if "interval" not in options or options["interval"] not in ("bernstein", "betting", "log_smoothing", "anytime"):
        stated = {k: v for k, v in stated.items() if k != "user_rows_max"}
    return given | stated


def run(case: Case, logs: int = LOGS) -> dict:
    """One case over all its methods."""
    found: dict[str, list[tuple[float, float, float, bool]]] = {name: [] for name in case.methods}
    plain = []
    for number in range(logs):
        columns = case.draw(np.random.default_rng([7, number, len(case.name)]))
        plain.append(float(np.mean(columns["target"] / columns["propensity"] * columns["reward"])))
        for method, options in case.methods.items():
            e = estimate_value(**arguments(case, columns, method, options))
            found[method].append((e.value, e.low, e.high, e.trusted))
    oracle = 3.92 * float(np.std(plain))
    out = {"truth": case.truth, "logs": logs, "oracle_width": oracle, "methods": {}}
    for method, rows in found.items():
        out["methods"][method] = judged(np.array(rows, dtype=float), case.truth, oracle)
    return out


def line(name: str, method: str, r: dict) -> str:
    def show(key: str) -> str:
        return "-" if r.get(key) is None else f"{r[key]:.3f}"

    keys = ("trusted", "coverage", "coverage_given_trust", "trusted_and_wrong", "median_width")
    return f"{name:28s} {method:14s} " + " ".join(f"{key} {show(key)}" for key in keys)


def main() -> None:
    when, *parts = sys.argv[1:]
    path = HERE / f"{when}.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    work = {case.name: (lambda case=case: run(case)) for case in every_case()} | every_edge()
    for name, job in work.items():
        if parts and not any(part in name for part in parts):
            continue
        began = time.process_time()
        results[name] = job()
        results[name]["cpu_seconds"] = round(time.process_time() - began, 1)
        for method, r in results[name].get("methods", {}).items():
            print(line(name, method, r), flush=True)
        if "methods" not in results[name]:
            print(name, json.dumps(results[name]), flush=True)
        part = path.with_suffix(".part")
        part.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
        part.replace(path)


if __name__ == "__main__":
    main()
