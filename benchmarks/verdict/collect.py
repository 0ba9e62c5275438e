"""Puts the study's steps together and holds them against what must be shown: `python benchmarks/verdict/collect.py`.

Prints the rules with the settings that break them and writes results.json; `dev`, `held_out` or `fresh` takes these
only.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from generator import load

HERE = Path(__file__).resolve().parent

METHODS = ("default", "clipped", "snips", "beta_ips", "difference", "dr")
LEVEL = 0.05
ACCURATE = 0.95


def limits(logs: int, tests: int) -> tuple[float, float]:
    """Shares of misses and of covered logs beyond which one of ``tests`` true intervals goes once in 20 studies."""
    from scipy.stats import binom

    alpha = LEVEL / max(tests, 1)
    return float(binom.ppf(1 - alpha, logs, LEVEL)) / logs, float(binom.ppf(alpha, logs, 1 - LEVEL)) / logs


def read() -> list[dict[str, Any]]:
    """The settings, with the logs of all their steps."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((HERE / "logs").glob("*.json")):
        step = json.loads(path.read_text())
        found.setdefault(step["facts"]["name"], []).append(step)
    return [_joined(steps) for steps in found.values()]


def _joined(steps: list[dict[str, Any]]) -> dict[str, Any]:
    facts = steps[0]["facts"]
    plain = np.concatenate([step["plain"] for step in steps])
    squares = np.concatenate([step["squares"] for step in steps])
    oracle = 3.92 * float(np.std(plain))
    methods = {}
    for name, truth in facts["truths"].items():
        rows = [row for step in steps for row in step["methods"].get(name, {"rows": []})["rows"]]
        reasons: Counter[str] = Counter()
        for step in steps:
            reasons.update(step["methods"].get(name, {"reasons": {}})["reasons"])
        if rows:
            methods[name] = summary(np.array(rows, float), truth, oracle, reasons)
    steps_seen = float(np.mean(squares)) / steps[0]["largest"][0] ** 2 if squares.size else 0.0
    return {k: v for k, v in facts.items() if k != "truths"} | {
        "logs": len(plain),
        "oracle_width": oracle,
        "steps": steps_seen,
        "methods": methods,
    }


def summary(rows: np.ndarray, truth: float, oracle: float, reasons: Counter[str]) -> dict[str, Any]:
    """Of (value, low, high, trusted, severity) rows."""
    value, low, high, trusted, _ = rows.T
    slack = 1e-12 * max(abs(truth), 1e-12)
    covers = (low <= truth + slack) & (truth - slack <= high)
    seen = int(trusted.sum())
    width = float(np.median(high - low))
    return {
        "truth": truth,
        "logs": len(rows),
        "coverage": float(covers.mean()),
        "above": float(np.mean(low > truth + slack)),
        "below": float(np.mean(high < truth - slack)),
        "trusted": float(trusted.mean()),
        "trusted_logs": seen,
        "coverage_given_trust": float(covers[trusted > 0].mean()) if seen >= 200 else None,
        "trusted_and_wrong": float(np.mean((trusted > 0) & ~covers)),
        "over_oracle": width / oracle if oracle > 0 and np.isfinite(width) else None,
        "within_a_fifth": float(np.mean(np.abs(value - truth) <= 0.2 * abs(truth))),
        "sd": float(np.std(value)),
        "reasons": dict(reasons.most_common(5)),
    }


PARTS = {"dev": "developed on", "held_out": "held out at first", "fresh": "fresh"}
"""Families: the rules were developed on the first; the second were held out then, and seen before the rules changed
again; the third were drawn before that change and run once, after it."""


def part_of(result: dict[str, Any]) -> str:
    """The part that a setting's family is of."""
    return "fresh" if result["name"].startswith("f") else "held_out" if result["held_out"] else "dev"


def _kinds(off: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Settings whose support is stated, by what else is known of them."""
    drawn = {s.name: s for s in (*load(), *load("fresh.json"))}

    def endless(r: dict[str, Any]) -> bool:
        """Rewards of a tail index below 2 and no range: at most caution, whatever the log."""
        setting = drawn[r["name"]]
        return setting.rewards in ("pareto", "loglogistic") and setting.spread < 2.0

    many = [r for r in off if r["users"] >= 100 and r["support"] != "no"]
    full = [r for r in many if r["missing"] == 0]
    return {
        "full support": [r for r in full if not endless(r)],
        "full support, range of rewards stated": [r for r in full if drawn[r["name"]].reward_range],
        "full support, tail index below 2": [r for r in full if endless(r)],
        "missing mass stated": [r for r in many if r["missing"] > 0],
        "fewer than 100 users": [r for r in off if r["support"] != "no" and r["users"] < 100],
    }


def _shy(chosen: list[dict[str, Any]]) -> dict[str, Any]:
    """Estimates within a fifth in 95 % of logs, and those of them that are trusted in less than 70 %."""
    exact = [
        (r, m, r["methods"][m])
        for r in chosen
        for m in METHODS
        if m in r["methods"] and m != "difference" and r["methods"][m]["within_a_fifth"] >= ACCURATE
    ]
    shy = [(r["name"], m, round(x["trusted"], 3), r["spread"], x["reasons"]) for r, m, x in exact if x["trusted"] < 0.7]
    return {"estimates": len(exact), "defaults": sum(m == "default" for _, m, _ in exact), "broken": shy}


def rules(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Every rule with its counts and what breaks it."""
    off = [r for r in results if r["family"] != "uplift"]
    tests = sum(len(r["methods"]) for r in results)
    wrong, shares = [], []
    for r in results:
        for m, x in r["methods"].items():
            shares.append((round(x["trusted_and_wrong"], 4), r["name"], m))
            if x["trusted_and_wrong"] > limits(x["logs"], tests)[0]:
                wrong.append(shares[-1])
    promised = [r for r in off if r["bounded"]]
    covered = {m: sorted((round(r["methods"][m]["coverage"], 4), r["name"]) for r in promised) for m in METHODS[:2]}
    short = [
        (m, *x)
        for m, found in covered.items()
        for x in found
        if x[0] < limits(min(r["logs"] for r in promised), len(promised))[1]
    ]
    dense = [r for r in off if r["users"] >= 100 and r["missing"] == 0 and r["bounded"] and r["steps"] >= 3]
    formula = [
        r for r in off if r["users"] >= 100 and r["missing"] == 0 and r["bounded"] and r["steps_by_formula"] >= 3
    ]
    broad = [
        (r["name"], m, round(r["methods"][m]["over_oracle"], 2))
        for r in dense
        for m in METHODS[:2]
        if r["methods"][m]["over_oracle"] > 1.3
    ]
    broad_formula = [
        (r["name"], m, round(r["methods"][m]["over_oracle"], 2), round(r["steps"], 1))
        for r in formula
        for m in METHODS[:2]
        if r["methods"][m]["over_oracle"] > 1.3
    ]
    never = {kind: _shy(chosen) for kind, chosen in _kinds(off).items()}
    worst = {}
    for m in METHODS:
        own = [
            (round(r["methods"][m]["coverage"], 4), r["name"], r["users"])
            for r in off
            if m in r["methods"] and r["support"] != "no"
        ]
        worst[m] = sorted(own)[:4]
    pairs = [
        (r["methods"]["beta_ips"]["sd"] / r["methods"]["snips"]["sd"]) for r in off if r["methods"]["snips"]["sd"] > 0
    ]
    return {
        "settings": len(results),
        "logs": sorted({r["logs"] for r in results}),
        "wrong": {
            "tests": tests,
            "limit": limits(min(r["logs"] for r in results), tests)[0],
            "broken": wrong,
            "largest": sorted(shares)[-3:],
        },
        "coverage": {
            "settings": len(promised),
            "limit": limits(min(r["logs"] for r in promised), len(promised))[1] if promised else None,
            "broken": short,
            "lowest": {m: c[:3] for m, c in covered.items()},
        },
        "width": {
            "settings": len(dense),
            "broken": broad,
            "settings_by_formula": len(formula),
            "broken_by_formula": broad_formula,
        },
        "never": never,
        "worst_coverage_support_stated": worst,
        "sd_beta_ips_over_snips": {
            "median": float(np.median(pairs)),
            "smallest": min(pairs),
            "largest": max(pairs),
            "below_one": float(np.mean(np.array(pairs) < 1.0)),
        }
        if pairs
        else {},
    }


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """What must be shown, and what breaks it, for the README."""
    names = [name for name in PARTS if name in found]
    parts = [found[name] for name in names]
    lines = ["| families | " + " | ".join(PARTS[name] for name in names) + " |", "|---" * (1 + len(names)) + "|"]

    def add(title: str, cell: Any) -> None:
        lines.append(f"| {title} | " + " | ".join("-" if part is None else cell(part) for part in parts) + " |")

    def listed(names: list[Any]) -> str:
        return "none" if not names else "; ".join(" ".join(str(x) for x in name[:3]) for name in names[:6])

    def shy(own: dict[str, Any]) -> str:
        defaults = [b[:1] + b[2:3] for b in own["broken"] if b[1] == "default"]
        return (
            f"{len(own['broken'])} of {own['estimates']} estimates; default {len(defaults)} of {own['defaults']}: "
            f"{listed(defaults)}"
        )

    add("settings, logs each", lambda d: f"{d['settings']}, {'/'.join(map(str, d['logs']))}")
    add("trusted and wrong above the limit", lambda d: f"{len(d['wrong']['broken'])} of {d['wrong']['tests']} "
        f"(limit {d['wrong']['limit']:.4f})")  # fmt: skip
    add("largest share trusted and wrong", lambda d: listed(d["wrong"]["largest"][-1:]))
    add("default or clipped covers below the limit, where promised", lambda d: f"{len(d['coverage']['broken'])} of "
        f"{2 * d['coverage']['settings']} (limit {d['coverage']['limit']:.4f}); lowest "
        f"{listed(d['coverage']['lowest']['default'][:1])}")  # fmt: skip
    add("wider than 1.3 oracles, where n E[w^2 r] / w_max^2 is 3 or more", lambda d: f"{len(d['width']['broken'])} of "
        f"{2 * d['width']['settings']}: {listed(d['width']['broken'])}")  # fmt: skip
    for kind in parts[0]["never"]:
        add(f"within a fifth in 95 %, trusted in less than 70 %: {kind}", lambda d, kind=kind: shy(d["never"][kind]))
    add("lowest coverage of the default, support stated", lambda d: listed([w[::-1][1:] for w in
        d["worst_coverage_support_stated"].get("default", [])[:3]]))  # fmt: skip
    return lines


def into_readme(lines: list[str]) -> None:
    """The table, between its marks."""
    path, mark = HERE / "README.md", "<!-- table -->"
    before, _, after = path.read_text().split(mark)
    path.write_text(mark.join([before, "\n" + "\n".join(lines) + "\n", after]))


def main() -> None:
    which = sys.argv[1] if len(sys.argv) > 1 else "all"
    results = [r for r in read() if which in ("all", part_of(r))]
    parts = {name: [r for r in results if part_of(r) == name] for name in PARTS}
    found = {name: rules(part) for name, part in parts.items() if part}
    print(json.dumps(found, indent=1))
    if which == "all":
        (HERE / "results.json").write_text(json.dumps({"rules": found, "settings": results}, indent=1) + "\n")
        into_readme(table(found))


if __name__ == "__main__":
    main()
