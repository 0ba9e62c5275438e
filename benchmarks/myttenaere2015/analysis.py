"""What the platforms of the benchmark say together: numbers with intervals, and the tables for a person."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

NAMES = {"g1": "g1", "g2": "g2", "cosine-cf": "cosine CF", "naive-cf": "naive CF"}

SHOWN = ("g1", "cosine-cf", "naive-cf")


Interval = list[float]
"""Mean over platforms and the two ends of its 95 % interval."""


def interval(values: Iterable[float], least: float = -math.inf, most: float = math.inf) -> Interval:
    """Mean over platforms and its 95 % interval (Student's t), cut to what the quantity can be."""
    x = np.array([v for v in values if v is not None and math.isfinite(v)], float)
    if len(x) < 2:
        return [float(x.mean()) if len(x) else math.nan, least, most]
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x))
    return [float(x.mean()), max(float(x.mean() - half), least), min(float(x.mean() + half), most)]


def figure_numbers(
    found: list[dict[str, Any]], control: list[dict[str, Any]], settings: dict[str, Any]
) -> dict[str, Any]:
    """Relative changes from the reference day, by kind of campaign, recommender, p and day; and without campaigns."""
    out: dict[str, Any] = {}
    for kind in settings["kinds"]:
        ones = [one for one in found if one["kind"] == kind]
        days = ones[0]["days"]
        out[kind] = {
            "days": days,
            "pairs": {name: interval(one["pairs"][name] for one in ones) for name in ones[0]["pairs"]},
            "change": {
                name: {
                    str(p): [
                        interval(one["curves"][name][str(p)][j] / one["curves"][name]["0"][0] - 1 for one in ones)
                        for j in range(len(days))
                    ]
                    for p in settings["p"]
                }
                for name in NAMES
            },
            "change_without_campaigns": {
                name: [
                    interval(c["curves"][name][j] / c["curves"][name][0] - 1 for c in control if c["kind"] == kind)
                    for j in range(len(days))
                ]
                for name in NAMES
            },
            "classical_at_reference": {name: interval(one["curves"][name]["0"][0] for one in ones) for name in NAMES},
            "largest_kl": {str(p): max(max(one["kl"][str(p)]) for one in ones) for p in settings["p"]},
        }
    return out


def tau(scores: dict[str, float], truth: dict[str, float]) -> float:
    """Kendall's tau-b of the rankings of the same algorithms."""
    names = list(truth)
    return float(stats.kendalltau([scores[n] for n in names], [truth[n] for n in names]).statistic)


def study_numbers(found: list[dict[str, Any]], settings: dict[str, Any]) -> dict[str, Any]:
    """Of every scheme, by kind of campaign and time: Kendall's tau, the cost of its choice, and its bias."""
    out: dict[str, Any] = {}
    for kind in settings["kinds"]:
        ones = [one for one in found if one["kind"] == kind]
        out[kind] = {}
        for j, t in enumerate(settings["times"]):
            rows = [one["rows"][j] for one in ones]
            schemes = list(rows[0]["scores"]["with"])
            out[kind][str(t)] = {scheme: _judged(rows, scheme) for scheme in schemes}
            out[kind][str(t)]["truth"] = {
                name: interval(row["truth"][name] for row in rows) for name in rows[0]["truth"]
            }
        # Differences within platforms: what platforms have in common cancels.
        last = [one["rows"][-1] for one in ones]
        taus = {s: np.array([tau(r["scores"]["with"][s], r["truth"]) for r in last]) for s in last[0]["scores"]["with"]}
        out[kind]["tau_gain_over_unweighted"] = {s: interval(v - taus["unweighted"]) for s, v in taus.items()}
    return out


def _judged(rows: list[dict[str, Any]], scheme: str) -> dict[str, Any]:
    taus, costs, best, bias = [], [], [], []
    relative: dict[str, list[float]] = {name: [] for name in NAMES}
    for row in rows:
        truth, scores = row["truth"], row["scores"]["with"][scheme]
        taus.append(tau(scores, truth))
        pick, top = max(scores, key=lambda n: scores[n]), max(truth, key=lambda n: truth[n])
        best.append(pick == top)
        costs.append(1 - truth[pick] / truth[top])
        clean = row["scores"]["without"].get(scheme)
        if clean is not None:
            bias.append(float(np.mean([abs(scores[n] - clean[n]) for n in scores])))
            for name, values in relative.items():
                values.append(scores[name] / clean[name] - 1)
    return {
        "tau": interval(taus, -1.0, 1.0),
        "cost": interval(costs, 0.0, 1.0),
        "picks_best": interval([float(b) for b in best], 0.0, 1.0),
        "bias": interval(bias, 0.0) if bias else None,
        "relative_bias": {name: interval(values) for name, values in relative.items()} if bias else None,
    }


def percent(row: Interval) -> str:
    return f"{row[0]:+.1%} [{row[1]:+.1%}, {row[2]:+.1%}]"


def plain(row: Interval | None, form: str = ".2f") -> str:
    return "-" if row is None else f"{row[0]:{form}} [{row[1]:{form}}, {row[2]:{form}}]"


def markdown(results: dict[str, Any], settings: dict[str, Any]) -> str:
    """The results for a person."""
    lines = ["# De Myttenaere et al. 2015: campaigns, leave-one-out and item weights", ""]
    lines += [
        "Made by `python benchmarks/myttenaere2015/run.py`. Brackets: 95 % intervals of the mean over platforms.",
        "",
    ]
    figures = settings["figures"]
    for kind, found in results["figures"].items():
        recommender = settings["kinds"][kind]["recommender"]
        how = f"personalised ({recommender})" if recommender else "not personalised"
        pairs = found["pairs"]
        lines += [
            f"## Scores from day {found['days'][0]} to {found['days'][-1]}, campaigns {how}",
            "",
            f"Preset {figures['preset']}, {figures['seeds']} platforms; "
            f"pairs {plain(pairs['reference'], ',.0f')} at first, {plain(pairs['last'], ',.0f')} at last, "
            f"{plain(pairs['campaigns'], ',.0f')} of them from campaigns.",
            "",
            "| | no campaign | " + " | ".join("classical" if p == 0 else f"p = {p}" for p in figures["p"]) + " |",
            "|---" * (len(figures["p"]) + 2) + "|",
        ]
        clean = found["change_without_campaigns"]
        for name, title in NAMES.items():
            cells = [percent(row[-1]) for row in (clean[name], *(found["change"][name][str(p)] for p in figures["p"]))]
            lines.append(f"| {title}, last day | " + " | ".join(cells) + " |")
        after = next(j for j, day in enumerate(found["days"]) if day >= 350)
        for name in ("cosine-cf", "naive-cf"):
            rows = (clean[name], *(found["change"][name][str(p)] for p in figures["p"]))
            cells = [percent(row[after]) for row in rows]
            lines.append(f"| {NAMES[name]}, day {found['days'][after]} | " + " | ".join(cells) + " |")
        lines.append(
            "| largest KL divergence | - | " + " | ".join(f"{v:.1e}" for v in found["largest_kl"].values()) + " |"
        )
        lines.append("")
    lines += ["Published: g1 rises by more than 25 %, g2 falls by 33 % (classical); the rest in words only.", ""]
    study = settings["study"]
    for kind, found in results["study"].items():
        recommender = settings["kinds"][kind]["recommender"]
        how = f"personalised ({recommender})" if recommender else "not personalised"
        last = str(study["times"][-1])
        lines += [
            f"## Protocols against the truth, campaigns {how}",
            "",
            f"Preset {study['preset']} {' '.join(study['set'])}, {study['platforms']} platforms, day {last}; truth: "
            "expected share of accepted recommendations. Bias: mean over algorithms of the distance from the same "
            "score on the same platform without any campaign; last columns: that distance, relative and with its sign.",
            "",
            "| protocol | Kendall's tau | gain over unweighted | picks the best | cost of choice "
            "| bias | g1 | cosine CF | naive CF |",
            "|---" * 9 + "|",
        ]
        for scheme, row in sorted(
            ((s, r) for s, r in found[last].items() if s != "truth"), key=lambda sr: -sr[1]["tau"]["mean"]
        ):
            relative = row["relative_bias"]
            ours = " | ".join("-" if relative is None else percent(relative[name]) for name in SHOWN)
            lines.append(
                f"| {scheme} | {plain(row['tau'])} | {plain(found['tau_gain_over_unweighted'][scheme], '+.3f')} "
                f"| {row['picks_best']['mean']:.0%} | {plain(row['cost'], '.1%')} | {plain(row['bias'], '.3f')} "
                f"| {ours} |"
            )
        times = [str(t) for t in study["times"]]
        lines += ["", "Kendall's tau over time:", "", "| protocol | " + " | ".join(f"day {t}" for t in times) + " |"]
        lines.append("|---" * (len(times) + 1) + "|")
        for scheme in study["schemes"]:
            lines.append(f"| {scheme} | " + " | ".join(plain(found[t][scheme]["tau"]) for t in times) + " |")
        ranked = sorted(found[last]["truth"].items(), key=lambda item: -item[1]["mean"])
        told = ", ".join(f"{name} {plain(row, '.3f')}" for name, row in ranked)
        lines += ["", f"True quality on day {last}: {told}.", ""]
    lines.append((Path(__file__).parent / "differences.md").read_text().rstrip())
    return "\n".join(lines)
