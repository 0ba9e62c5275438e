"""The gates as classifiers, and what they decide: `python benchmarks/gate/analysis.py` prints and writes results.json.

A gate passes a log or blocks it. A false pass is a bad log that passes, a false block a good one that is blocked. Gates
with a threshold (our largest severity, Kish's effective sample, the share of supported rows) are compared at equal
shares of false blocks; the published rule is one point. Intervals come from resampling the populations that logs are
drawn from. A gate that knew of every log how often logs of its size from its population err (the share of bad ones
among the others) shows what is left to luck: which of several logs of one population errs, no gate can see in them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import packed, read, write_results

HERE = Path(__file__).resolve().parent
# Which logs the gate is judged on, and when one is bad: fixed before it was run on any of them.
MIX = {"sessions": 3000, "ratings": 1500, "purchases": 1500, "generator": 4000}
"""Logs from each source. Those of the generator come from all its settings in turn, fresh families included."""

POPULATION = 20_000
"""Users of a world that are simulated once; a log is a draw of some of them."""

USERS = (30, 100, 300, 1000, 3000)
"""Users a log of a world, in turn."""

RELATIVE_ERROR = 0.2
"""A log is bad where the estimate is further from the truth than this share of it."""

LEAST_OVERLAP, LEAST_EFFECTIVE = 0.8, 1000.0
"""The published rule: blocked below either."""

GATES = ("severity", "effective sample", "overlap")
REPLICATES = 400
EFFECTS = ((-np.inf, -0.2), (-0.2, -0.05), (-0.05, 0.05), (0.05, 0.2), (0.2, np.inf))


def load() -> tuple[list[dict[str, Any]], np.ndarray, np.ndarray]:
    """Every log, the number of the population it was drawn from, and that of its population and size."""
    rows: list[dict[str, Any]] = []
    groups: list[int] = []
    sizes: list[int] = []
    for number, path in enumerate(sorted((HERE / "logs").glob("*.json"))):
        found = json.loads(path.read_text())
        for k, row in enumerate(found):
            rows.append(row | {"source": path.stem.split("-")[0]})
            # a simulated population serves four targets: each is a population of its own
            drawn = path.stem.startswith("generator")
            groups.append(1000 * number + (0 if drawn else (4 * k) // max(len(found), 1)))
            # logs of a world have its sizes in turn, beginning anew with every target
            turns = len(found) // (1 if path.stem.startswith("purchases") else 4)
            sizes.append(10 * groups[-1] + (0 if drawn else k % max(turns, 1) % len(USERS)))
    return rows, *(np.unique(x, return_inverse=True)[1] for x in (groups, sizes))


def labels(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """What is bad: a relative error above 20 %, and B shipped (its estimate is above A's) although it is worse."""

    def of(key: str) -> np.ndarray:
        return np.array([r[key] for r in rows], dtype=float)

    least = np.array([r.get("shift", 0.0) for r in rows])
    error = np.abs(of("value") - of("truth")) > RELATIVE_ERROR * np.abs(of("truth") - least)
    return {"error above a fifth": error, "worse and looks better": (of("gap") > 0) & (of("truth") < of("baseline"))}


def scores(rows: list[dict[str, Any]], key: str) -> dict[str, np.ndarray]:
    """Doubt, larger for worse, of each gate; ``key`` is severity or gap_severity."""

    def of(name: str) -> np.ndarray:
        return np.array([np.nan_to_num(r[name], nan=0.0, posinf=1e9) for r in rows], dtype=float)

    return {"severity": of(key), "effective sample": -of("ess"), "overlap": -of("overlap")}


def curve(doubt: np.ndarray, bad: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares of false blocks and of false passes over all thresholds; ties pass or are blocked together."""
    order = np.argsort(doubt, kind="stable")
    last = np.append(doubt[order][1:] != doubt[order][:-1], True)
    passed_bad = np.append(0, np.cumsum(bad[order])[last])
    passed_good = np.append(0, np.cumsum(~bad[order])[last])
    return 1.0 - passed_good / max((~bad).sum(), 1), passed_bad / max(bad.sum(), 1)


def at(doubt: np.ndarray, bad: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Share of false passes at shares of false blocks, on the straight lines between thresholds."""
    x, y = curve(doubt, bad)
    return np.interp(blocks, x[::-1], y[::-1])


def area(doubt: np.ndarray, bad: np.ndarray) -> float:
    """Probability that a bad log is doubted more than a good one."""
    x, y = curve(doubt, bad)
    return 1.0 - float(np.sum((x[:-1] - x[1:]) * (y[1:] + y[:-1]) / 2.0))


def known(bad: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Doubt of a gate that knows the share of bad logs among the others of the same population and size."""
    count, errs = np.bincount(sizes), np.bincount(sizes, bad)
    whole = float(bad.mean())
    return (errs[sizes] - bad + whole) / count[sizes]


def compare(found: dict[str, np.ndarray], bad: np.ndarray, groups: np.ndarray) -> dict[str, Any]:
    """False passes at equal false blocks, and the ratio of ours to the better of the others, with intervals."""
    points = np.array([0.05, 0.1, 0.2, 0.3, 0.5])
    passes = {name: at(doubt, bad, points) for name, doubt in found.items()}
    ratio = passes["severity"] / np.maximum(np.minimum(passes["effective sample"], passes["overlap"]), 1e-12)
    members = [np.flatnonzero(groups == g) for g in range(groups.max() + 1)]
    rng = np.random.default_rng(0)
    drawn: dict[str, list[np.ndarray]] = {name: [] for name in (*found, "ratio")}
    for _ in range(REPLICATES):
        index = np.concatenate([members[i] for i in rng.integers(0, len(members), len(members))])
        own = {name: at(doubt[index], bad[index], points) for name, doubt in found.items()}
        for name, values in own.items():
            drawn[name].append(values)
        drawn["ratio"].append(own["severity"] / np.maximum(np.minimum(own["effective sample"], own["overlap"]), 1e-12))
    ends = {name: np.quantile(values, [0.025, 0.975], axis=0).T.round(4).tolist() for name, values in drawn.items()}
    return {
        "bad": int(bad.sum()),
        "false blocks": points.tolist(),
        "false passes": {name: values.round(4).tolist() for name, values in passes.items()},
        "ratio to the better of the others": ratio.round(3).tolist(),
        "intervals": ends,
        "area": {name: round(area(doubt, bad), 4) for name, doubt in found.items()},
    }


def published(rows: list[dict[str, Any]], bad: np.ndarray, found: dict[str, np.ndarray]) -> dict[str, float]:
    """The rule "overlap below .8 or effective sample below 1,000 blocks", and ours at its share of false blocks."""
    passes = np.array([r["overlap"] >= LEAST_OVERLAP and r["ess"] >= LEAST_EFFECTIVE for r in rows])
    blocks = float((~passes & ~bad).sum() / max((~bad).sum(), 1))
    return {
        "false blocks": round(blocks, 4),
        "false passes": round(float((passes & bad).sum() / max(bad.sum(), 1)), 4),
        "ours at the same false blocks": round(float(at(found["severity"], bad, np.array([blocks]))[0]), 4),
    }


def by_level(rows: list[dict[str, Any]], bad: np.ndarray, key: str) -> dict[str, Any]:
    """Bad logs at each level of the verdict."""
    levels = np.array([r[key] for r in rows])
    return {
        level: {"logs": int((levels == level).sum()), "bad": round(float(bad[levels == level].mean()), 4)}
        for level in ("trust", "caution", "do_not_use")
        if (levels == level).any()
    }


def carried(rows: list[dict[str, Any]], bad: np.ndarray) -> dict[str, dict[str, float]]:
    """Which finding carries how much: area of each alone, and of the largest severity without it."""
    codes = sorted({code for r in rows for code in r["findings"]})
    table = np.array([[r["findings"].get(code, 0.0) for code in codes] for r in rows])
    whole = area(table.max(axis=1), bad)
    out = {}
    for j, code in enumerate(codes):
        rest = np.delete(table, j, axis=1).max(axis=1)
        out[code] = {"alone": round(area(table[:, j], bad), 3), "lost without it": round(whole - area(rest, bad), 4)}
    return dict(sorted(out.items(), key=lambda item: -item[1]["alone"]))


def decisions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By true effect: shipped (trusted, interval above 0), held (trusted, below 0), else sent to an A/B test."""
    effect = np.array(
        [(r["truth"] - r["baseline"]) / max(abs(r["baseline"] - r.get("shift", 0.0)), 1e-12) for r in rows]
    )
    trust = np.array([r["gap_level"] == "trust" for r in rows])
    ship = trust & (np.array([r["gap_low"] for r in rows]) > 0)
    hold = trust & (np.array([r["gap_high"] for r in rows]) < 0)
    out = []
    for low, high in EFFECTS:
        own = (effect > low) & (effect <= high)
        if own.any():
            shares = {
                "shipped": ship[own].mean(),
                "held": hold[own].mean(),
                "to an A/B test": (~ship & ~hold)[own].mean(),
            }
            out.append(
                {"effect above": str(low), "up to": str(high), "logs": int(own.sum())}
                | {name: round(float(x), 4) for name, x in shares.items()}
            )
    return out


def main() -> None:
    rows, groups, sizes = load()
    bad = labels(rows)
    result: dict[str, Any] = {
        "logs": len(rows),
        "sources": {s: sum(r["source"] == s for r in rows) for s in ("sessions", "ratings", "purchases", "generator")},
    }
    for name, key, level in (
        ("error above a fifth", "severity", "level"),
        ("worse and looks better", "gap_severity", "gap_level"),
    ):
        found = scores(rows, key)
        result[name] = compare(found, bad[name], groups) | {
            "published rule": published(rows, bad[name], found),
            "levels": by_level(rows, bad[name], level),
        }
        sources = {}
        for source in ("sessions", "ratings", "purchases", "generator"):
            own = np.array([r["source"] == source for r in rows])
            if own.any():
                sources[source] = {gate: round(area(doubt[own], bad[name][own]), 3) for gate, doubt in found.items()}
        result[name]["area by source"] = sources
        doubt, points = known(bad[name], sizes), np.array(result[name]["false blocks"])
        result[name]["knowing the population"] = {
            "false passes": at(doubt, bad[name], points).round(4).tolist(),
            "area": round(area(doubt, bad[name]), 4),
        }
    result["findings"] = carried(rows, bad["error above a fifth"])
    result["decisions"] = decisions(rows)
    result |= {key: value for key, value in read(HERE / "results.json").items() if key == "winner_of_100"}
    write_results(HERE / "results.json", result)
    print(packed(result))


if __name__ == "__main__":
    main()
