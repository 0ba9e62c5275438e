"""From single estimates to results.json, and from that to the tables of the README."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import worlds
from scipy import stats

NEEDS = {
    "set_ips": "unordered",
    "set_snips": "unordered",
    "reward_interaction_ips": "cascade",
    "reward_interaction_snips": "cascade",
    "cascade_dr": "cascade",
    "independent_ips": "independent",
    "independent_snips": "independent",
    "pseudo_inverse": "additive",
}
UNBIASED = (
    "slate_ips",
    "adaptive_ips",
    "set_ips",
    "reward_interaction_ips",
    "cascade_dr",
    "independent_ips",
    "pseudo_inverse",
)
MODES = ("claimed", "silent")
DISPUTED = {"assumption_contradicted", "position_effect", "clicks_after_click"}  # codes of findings
START, END = "<!-- tables: run.py writes them -->", "<!-- end of tables -->"


def summary(raw: Path, frozen: dict[str, Any]) -> dict[str, Any]:
    """By setting and estimator, what the files of single estimates say."""
    out = {}
    for name, spec in frozen["settings"].items():
        path = raw / f"{name}.json"
        if path.exists():
            logs = json.loads(path.read_text())
            setting = worlds.Setting(spec)
            estimators = sorted({one for log in logs for one in log["claimed"]})
            out[name] = {
                "logs": len(logs),
                "truth": float(np.mean([log["truth"] for log in logs])),
                "stated": "propensities"
                if "stated" in spec
                else "no support"
                if not spec.get("supported", True)
                else "right",
                "estimators": {one: of_estimator(one, logs, setting, frozen["judge"]) for one in estimators},
            }
    return out


def of_estimator(
    name: str, logs: list[dict[str, Any]], setting: worlds.Setting, judge: dict[str, Any]
) -> dict[str, Any]:
    """Bias and, by mode, coverage and verdicts."""
    truth = np.array([log["truth"] for log in logs])
    refused = [log["claimed"][name] for log in logs if isinstance(log["claimed"][name], str)]
    kept = [not isinstance(log["claimed"][name], str) for log in logs]
    if refused:
        return {"holds": holds(name, setting), "refused": len(refused), "why": refused[0], "kept": sum(kept)}
    error = np.array([log["claimed"][name][0] for log in logs]) - truth
    bias, se = float(error.mean()), float(error.std(ddof=1) / np.sqrt(len(error)))
    out: dict[str, Any] = {
        "holds": holds(name, setting),
        "bias": bias / truth.mean(),
        "z": bias / se if se > 1e-12 else 0.0,
        "sd": float(error.std(ddof=1) / truth.mean()),
    }
    for mode in MODES:
        low, high, level = (np.array([log[mode][name][at] for log in logs]) for at in (1, 2, 3))
        codes = [log[mode][name][4] for log in logs]
        inside, trusted = (low <= truth) & (truth <= high), level == 0
        half = (high - low) / 2
        harmful, narrow = np.abs(bias) > half, half <= judge["narrow"] * truth
        ok, n = int((inside & trusted).sum()), int(trusted.sum())
        out[mode] = {
            "covered": int(inside.sum()),
            "half_width": float(np.median(half / truth)),
            "levels": [int((level == at).sum()) for at in range(3)],
            "covered_trusted": ok,
            "p": float(stats.binomtest(ok, n, judge["level"], alternative="less").pvalue) if n else None,
            "disputed": sum(bool(DISPUTED & set(one)) for one in codes),
            "harmful": int(harmful.sum()),
            "harmful_trusted": int((harmful & trusted).sum()),
            "narrow": int(narrow.sum()),
            "narrow_untrusted": int((narrow & ~trusted).sum()),
            "codes": dict(Counter(code for one in codes for code in one).most_common()),
        }
    return out


def holds(name: str, setting: worlds.Setting) -> bool:
    """Whether the estimator's assumption on users is true; adaptive_ips is given the true behaviour."""
    return name not in NEEDS or NEEDS[name] in setting.holds


def cells(part: dict[str, Any], mode: str) -> list[tuple[str, str, dict[str, Any], dict[str, Any], int]]:
    """(setting, estimator, the estimator's record, that of the mode, logs) of what was estimated."""
    return [
        (setting, name, one, one[mode], record["logs"])
        for setting, record in part.items()
        for name, one in record["estimators"].items()
        if mode in one
    ]


def failures(
    part: dict[str, Any], p: float, mode: str = "claimed"
) -> list[tuple[str, str, dict[str, Any], dict[str, Any], int]]:
    """Cells whose coverage given trust is below the level, whatever was stated."""
    return [cell for cell in cells(part, mode) if cell[3]["p"] is not None and cell[3]["p"] < p]


def share(count: float, n: float, digits: int = 1) -> str:
    return f"{100 * count / n:.{digits}f}" if n else "."


def tables(part: dict[str, Any], judge: dict[str, Any], title: str) -> list[str]:
    """The README's tables of one judgement."""
    lines = [f"### {title}", ""]
    order = ["slate_ips", "slate_snips", "adaptive_ips", *NEEDS]
    lines += [
        "| estimator | settings where its assumption holds | worst bias, z, where usable | coverage, all logs "
        "| trusted | coverage given trust | caution | do not use | cries wolf |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name in order:
        mine = [
            cell
            for cell in cells(part, "claimed")
            if cell[1] == name and cell[2]["holds"] and part[cell[0]]["stated"] == "right"
        ]
        if mine:
            logs = sum(cell[4] for cell in mine)
            total = {
                key: sum(cell[3][key] for cell in mine)
                for key in ("covered", "covered_trusted", "narrow", "narrow_untrusted")
            }
            levels = np.sum([cell[3]["levels"] for cell in mine], 0)
            # The mean of logs that hardly ever show what the target shows says nothing, and the verdict says so.
            judged = [cell for cell in mine if cell[3]["levels"][2] < cell[4] / 2]
            worst = max((cell[2]["z"] for cell in judged), key=abs, default=0.0)
            lines.append(
                f"| `{name}` | {len(mine)} | {worst:+.1f} | {share(total['covered'], logs)} | "
                f"{share(levels[0], logs)} | {share(total['covered_trusted'], levels[0])} | "
                f"{share(levels[1], logs)} | {share(levels[2], logs)} | "
                f"{share(total['narrow_untrusted'], total['narrow'])} of {total['narrow']} |"
            )
    lines += [
        "",
        "Where the assumption on users is wrong and claimed all the same:",
        "",
        "| estimator | settings | logs with a bias above the half width | of these trusted (false trust) "
        "| disputed, of all logs | disputed where it holds |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name in NEEDS:
        mine = [cell for cell in cells(part, "claimed") if cell[1] == name and not cell[2]["holds"]]
        right = [cell for cell in cells(part, "claimed") if cell[1] == name and cell[2]["holds"]]
        if mine:
            logs, harmful, trusted = (
                sum(cell[4] for cell in mine),
                sum(cell[3]["harmful"] for cell in mine),
                sum(cell[3]["harmful_trusted"] for cell in mine),
            )
            lines.append(
                f"| `{name}` | {len(mine)} | {harmful} of {logs} | {share(trusted, harmful)} | "
                f"{share(sum(cell[3]['disputed'] for cell in mine), logs)} | "
                f"{share(sum(cell[3]['disputed'] for cell in right), sum(cell[4] for cell in right))} |"
            )
    lines += [
        "",
        "Findings against an assumption that holds, nothing stated on users (about 5 % by chance):",
        "",
        "| finding | estimator | logs | share | worst setting | share there |",
        "|---|---|---:|---:|---|---:|",
    ]
    for code, name in (
        ("clicks_after_click", "independent_ips"),
        ("position_effect", "set_ips"),
        ("assumption_contradicted", "independent_ips"),
        ("assumption_contradicted", "reward_interaction_ips"),
        ("assumption_contradicted", "set_ips"),
        ("assumption_contradicted", "cascade_dr"),
        ("assumption_contradicted", "pseudo_inverse"),
    ):
        mine = [cell for cell in cells(part, "silent") if cell[1] == name and cell[2]["holds"]]
        mine = [cell for cell in mine if part[cell[0]]["stated"] != "propensities"]
        if not mine:
            continue
        shares = {cell[0]: cell[3]["codes"].get(code, 0) / cell[4] for cell in mine}
        logs, worst = sum(cell[4] for cell in mine), max(shares, key=lambda one: shares[one])
        lines.append(
            f"| `{code}` | `{name}` | {logs} | {share(sum(cell[3]['codes'].get(code, 0) for cell in mine), logs)} "
            f"| {worst} | {share(shares[worst], 1)} |"
        )
    for mode, what in (("claimed", "with the assumption claimed"), ("silent", "with nothing stated on users")):
        lines += ["", f"Coverage given trust below {100 * judge['level']:.0f} % at p < {judge['p']}, {what}:", ""]
        bad = failures(part, judge["p"], mode)
        if not bad:
            lines.append("None.")
            continue
        lines += [
            "| setting | estimator | assumption | stated | bias, % | trusted | coverage given trust |",
            "|---|---|---|---|---:|---:|---:|",
        ]
        for setting, name, one, of_mode, logs in bad:
            trusted = of_mode["levels"][0]
            lines.append(
                f"| {setting} | `{name}` | {'holds' if one['holds'] else 'wrong'} | {part[setting]['stated']} | "
                f"{100 * one['bias']:+.1f} | {share(trusted, logs)} | {share(of_mode['covered_trusted'], trusted)} |"
            )
    pooled = {}
    for mode in MODES:
        for kind in (True, False):
            mine = [
                cell for cell in cells(part, mode) if cell[2]["holds"] == kind and part[cell[0]]["stated"] == "right"
            ]
            pooled[mode, kind] = (
                sum(cell[3]["covered_trusted"] for cell in mine),
                sum(cell[3]["levels"][0] for cell in mine),
            )
    lines += [
        "",
        "Coverage given trust, all settings whose propensities and support are right:",
        "",
        "| | assumption holds | assumption wrong |",
        "|---|---:|---:|",
    ]
    for mode in MODES:
        row = [f"{share(*pooled[mode, kind], 2)} % of {pooled[mode, kind][1]}" for kind in (True, False)]
        lines.append(f"| {mode} | {row[0]} | {row[1]} |")
    return [*lines, ""]


def written(readme: str, results: dict[str, Any]) -> str:
    """The README with the tables of the results between its marks."""
    head, rest = readme.split(START)
    _, tail = rest.split(END)
    body = [
        line
        for title, part in results["parts"].items()
        for line in tables(part["settings"], results["judge"], f"{title} (seed {part['seed']})")
    ]
    return "\n".join([head + START, "", *body, END]) + tail
