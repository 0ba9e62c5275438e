"""Estimators of rankings on logs of known value: `python benchmarks/slates/run.py [part of a setting's name ...]`.

Each setting is a step whose result is kept in `results.json`; one that stands there for as many logs is not run again.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import parser_of, read, settings_of, write_results, write_text
from worlds import USERS, Setting, World

from recsim_mnar.estimators import Estimate
from recsim_mnar.estimators.rankings import RANKING_ESTIMATORS, estimate_ranking_value

HERE = Path(__file__).parent
STATED = {"position": "independent", "cascade": "cascade", "independent": "independent", "crowd": "unordered"}
"""What is stated of users, and true."""
HOLDS = {
    "slate_ips": USERS,
    "set_ips": ("independent", "crowd"),
    "independent_ips": ("position", "independent"),
    "reward_interaction_ips": ("position", "independent", "cascade"),
    "cascade_dr": ("position", "independent", "cascade"),
    "pseudo_inverse": ("position", "independent"),
    "adaptive_ips": USERS,
}
"""Users under which an estimator is unbiased."""
TOO_FAR, RARE = 3.5, 0.001
SNIPS = [name for name in RANKING_ESTIMATORS if name.endswith("snips")]
SUMS = ("logs", "covers", "trusted", "trusted_covers")


def settings(found: dict[str, Any]) -> list[Setting]:
    """All of them."""
    return [
        Setting(users, pair["name"], pair["logger"], pair["n_items"], pair["slate_size"])
        for users in USERS
        for pair in found["pairs"]
    ]


def count(judged: dict[str, int], way: str, estimate: Estimate, truth: float) -> None:
    """Add an estimate to the counts."""
    covers = estimate.low <= truth <= estimate.high
    proofs = ("assumption_contradicted", "position_effect", "clicks_after_click")
    contradicted = any(f.code in proofs and f.severity >= 1.0 for f in estimate.verdict.findings)
    found = {"logs": True, "covers": covers, "trusted": estimate.trusted, "contradicted": contradicted}
    for name, yes in (found | {"trusted_covers": covers and estimate.trusted}).items():
        judged[way + name] = judged.get(way + name, 0) + int(yes)


def run(setting: Setting, facts: dict[str, Any], logs: int) -> dict[str, Any]:
    """Bias and coverage of every estimator on the logs of one setting."""
    start, world = time.process_time(), World(setting)
    most = {kind: float(np.max(t / p)) for kind, (p, t) in world.probabilities.items()}
    most |= {"adaptive": most[{"position": "marginal", "independent": "marginal", "cascade": "cumulative"}.get(
        setting.users, "slate")]}  # fmt: skip
    values: dict[str, list[float]] = {}
    judged: dict[str, dict[str, int]] = {}
    for number, log in enumerate(world.logs(range(logs), facts["users"], facts["slates"], facts["seed"])):
        for name, value in world.values(log).items():
            values.setdefault(name, []).append(value)
        columns, target, given = world.columns(log)
        shared = {"level": facts["level"], "full_support": True, "weight_max": most, **given}
        ways = {"": STATED[setting.users]} | ({"unstated_": None} if number < facts["unstated"] else {})
        chosen = None
        for way, assumption in ways.items():
            found = estimate_ranking_value(columns, target, estimators=chosen, assumption=assumption, **shared)
            chosen = [*found, *SNIPS]
            for name, estimate in found.items():
                assert abs(estimate.value - values[name][-1]) <= 1e-9, name
                count(judged.setdefault(name, {}), way, estimate, world.truth)
    estimators = {}
    for name, each in values.items():
        sample = np.array(each)
        error = float(sample.std(ddof=1))
        tends = None if name.endswith("snips") else world.tends_to(name)
        estimators[name] = {
            "mean": float(sample.mean()),
            "error": error,
            "tends_to": tends,
            "z": float((sample.mean() - world.truth) / error * np.sqrt(logs)),
            "z_tends": None if tends is None else float((sample.mean() - tends) / error * np.sqrt(logs)),
            **judged.get(name, {}),
        }
    return {"truth": world.truth, "logs": logs, "estimators": estimators, "cpu_seconds": time.process_time() - start}


def holds(name: str, setting: str) -> bool:
    """Whether an estimator is unbiased in a setting."""
    return setting.split(" ")[0] in HOLDS[name.replace("snips", "ips")]


def report(results: dict[str, Any]) -> str:
    """The tables, in Markdown."""
    lines = ["| estimator | unbiased in | largest z there | biased in | bias there, % | largest z of the stated bias |"]
    lines += ["|---|---|---|---|---|---|"]
    for name in HOLDS:
        fine, off, stated, worst = [], [], [], 0.0
        for setting, found in results.items():
            each = found["estimators"][name]
            stated.append(each["z_tends"])
            if holds(name, setting):
                fine.append(abs(each["z"]))
            else:
                off.append(100.0 * (each["tends_to"] / found["truth"] - 1.0))
            worst = max(worst, abs(each["z_tends"]))
        span = f"{min(off):+.1f} to {max(off):+.1f}" if off else "-"
        largest = f"{max(fine):.2f}" if fine else "-"
        lines.append(f"| {name} | {len(fine)} | {largest} | {len(off)} | {span} | {worst:.2f} |")
    for way, words in (("", "What is true of users is stated."), ("unstated_", "Nothing is stated of users.")):
        lines += ["", words, "", *coverage(results, way)]
    lines += ["", "| self-normalised | largest bias, in standard errors of one log |", "|---|---|"]
    for name in SNIPS:
        off = [
            abs(r["estimators"][name]["mean"] - r["truth"]) / r["estimators"][name]["error"]
            for s, r in results.items()
            if holds(name, s)
        ]
        lines.append(f"| {name} | {max(off):.3f} |" if off else f"| {name} | - |")
    return "\n".join(lines)


def coverage(results: dict[str, Any], way: str) -> list[str]:
    """A table of coverage by estimator, and the line on all together."""
    lines = ["| estimator | logs | covers | contradicted where wrong | where right | trusted | covers given trust |"]
    lines[0] += " least setting given trust | p |"
    lines += ["|---" * 9 + "|"]
    every = []
    for name in [*HOLDS, *(SNIPS if way else [])]:
        of_it = {s: r["estimators"][name] for s, r in results.items() if way + "logs" in r["estimators"][name]}
        counts = [{key.removeprefix(way): n for key, n in c.items() if key.startswith(way)} for c in of_it.values()]
        of_it = dict(zip(of_it, counts, strict=True))
        every += counts
        logs, covers, trusted, right = (sum(c[key] for c in counts) for key in SUMS)
        fails = {
            fine: [c["contradicted"] / c["logs"] for s, c in of_it.items() if holds(name, s) == fine]
            for fine in (False, True)
        }
        wrong, fine = (f"{np.mean(each):.3f}" if each else "-" for each in fails.values())
        least, where, p = lowest(of_it)
        share = f"{right / trusted:.4f}" if trusted else "-"
        cells = [name, f"{logs:,}", f"{covers / logs:.4f}", wrong, fine, f"{trusted:,}", share, f"{least} {where}", p]
        lines.append(f"| {' | '.join(cells)} |")
    trusted, right = (sum(c[key] for c in every) for key in SUMS[2:])
    lines += [
        "",
        f"All together: {trusted:,} trusted, of which {right / trusted:.4f} cover." if trusted else "No trust.",
    ]
    return lines


def lowest(found: dict[str, dict[str, int]]) -> tuple[str, str, str]:
    """The setting whose coverage given trust is the least likely at the level: coverage, name and p."""
    some = {s: (c["trusted_covers"], c["trusted"]) for s, c in found.items() if c["trusted"]}
    if not some:
        return "-", "-", "-"
    p = {s: float(binom.cdf(right, trusted, 0.95)) for s, (right, trusted) in some.items()}
    name = min(p, key=lambda each: p[each])
    right, trusted = some[name]
    return f"{right / trusted:.4f}", name, f"{p[name]:.2g}"


def failures(results: dict[str, Any]) -> list[str]:
    """What is not as it must be."""
    found = []
    for setting, result in results.items():
        for name in HOLDS:
            each = result["estimators"][name]
            if holds(name, setting) and abs(each["z"]) > TOO_FAR:
                found.append(f"{setting}: {name} is biased, z = {each['z']:.2f}")
            if abs(each["z_tends"]) > TOO_FAR:
                found.append(f"{setting}: {name} is not what its bias says, z = {each['z_tends']:.2f}")
            for way in ("", "unstated_"):
                right, trusted = (each.get(way + key, 0) for key in ("trusted_covers", "trusted"))
                if trusted and binom.cdf(right, trusted, 0.95) < RARE:
                    found.append(f"{setting}: {name} ({way or 'stated_'}) covers {right / trusted:.4f} given trust")
    for way in ("", "unstated_"):
        every = [each for result in results.values() for each in result["estimators"].values()]
        trusted, right = (sum(each.get(way + key, 0) for each in every) for key in ("trusted", "trusted_covers"))
        if trusted and right < 0.95 * trusted:
            found.append(f"pooled: {right / trusted:.4f} of {trusted:,} trusted cover")
    return found


def main() -> None:
    facts = settings_of(HERE)
    parser = parser_of(__doc__, quick="twenty logs, printed and not kept")
    parser.add_argument("settings", nargs="*", help="names or parts of names; all where none is given")
    parser.add_argument("--logs", type=int, default=facts["logs"], help="logs per setting")
    asked = parser.parse_args()
    logs = 20 if asked.quick else asked.logs
    results = {} if asked.quick else read(HERE / "results.json").get("settings", {})
    for setting in settings(facts):
        if asked.settings and not any(part in setting.name for part in asked.settings):
            continue
        if results.get(setting.name, {}).get("logs") != logs:
            results[setting.name] = run(setting, facts, logs)
            print(f"{setting.name}: {results[setting.name]['cpu_seconds']:.1f} s", flush=True)
            if not asked.quick:
                write_results(HERE / "results.json", {"settings": results})
    text = report(results)
    print(text)
    if not asked.quick:
        write_text(HERE / "results.md", f"# Estimators of rankings\n\n{text}\n")
    print("\n".join(failures(results)) or "nothing fails")


if __name__ == "__main__":
    main()
