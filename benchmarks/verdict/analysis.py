"""What the judged logs amount to: summaries by family, pooled shares, the bars of the study, results.json and .md."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import exact_limits, read, table, word, write_results, write_text
from interface import Family

HERE = Path(__file__).resolve().parent
MODES, QUANTITIES = ("plain", "facts"), ("value", "difference")
NOMINAL = 0.95
BANDS = ((0.0, 0.2), (0.2, 0.5), (0.5, 1.0))
"""Shares of trusted logs by which families are pooled; the lower end is outside."""
FAR, FAR_POOLED = 0.001, 0.01
"""Chances below which a coverage of .95 is ruled out: of one family, of a pool."""
LEAST_LOGS, LEAST_TRUSTED, MOST_LOGS, LEAST_FAMILIES = 400, 100, 4000, 60
COLUMNS = ("family", "mode", "quantity", "honest", "production", "logs", "trusted", "right_given_trust", "right",
           "width", "rmse_ratio", "clipped_ratio", "relative_rmse", "estimators", "reasons", "said")  # fmt: skip
SIGNED = ("better", "worse", "looks_better", "looks_worse")
"""Answers of a first sentence that say which policy earns more."""
Summary = dict[str, Any]


def chance_of_so_few(hits: int, of: int) -> float:
    """Probability of at most so many hits where each has chance .95."""
    from scipy.stats import binom

    return float(binom.cdf(hits, of, NOMINAL)) if of else 1.0


def summary(family: Family, mode: str, quantity: str, rows: list[dict[str, Any]]) -> Summary:
    """One family's logs in one mode.

    width: median width over 2 x 1.96 times the true rmse of the same estimate. rmse_ratio: that rmse over the better of
    ips and snips; clipped_ratio: that of the clip of 15. relative_rmse: over the true value or difference.
    """
    truth, low, high, level, estimate, *plain = (
        np.array([row[f"{quantity}.{name}"] for row in rows], float)
        for name in ("truth", "low", "high", "level", "estimate", "ips", "snips", "clipped")
    )
    size = max(float(np.mean([abs(row["value.truth"]) for row in rows])), abs(family.baseline_value))
    # Rounding: a difference of two sums of large rewards has their digits.
    slack = 1e-12 * size
    right = (low <= truth + slack) & (truth - slack <= high)
    trusted = level == 0
    rmse, *others = (_rmse(x, truth) for x in (estimate, *plain))
    better, least = min(others[:2]), 1e-9 * size
    reasons = Counter(code for row in rows for code in str(row[f"{quantity}.codes"]).split(",") if code)
    return {
        "family": family.name,
        "mode": mode,
        "quantity": quantity,
        "honest": family.honest,
        "production": family.production,
        "logs": len(rows),
        "trusted": int(trusted.sum()),
        "right_given_trust": int((trusted & right).sum()),
        "right": int(right.sum()),
        "width": _over(float(np.median(high - low)), 3.92 * rmse, least),
        "rmse_ratio": _over(rmse, better, least),
        "clipped_ratio": _over(others[2], better, least),
        "relative_rmse": _over(rmse, float(np.mean(np.abs(truth))), least),
        "estimators": ", ".join(sorted({str(row[f"{quantity}.estimator"]) for row in rows})),
        "reasons": "; ".join(f"{code} {_share(count / len(rows))}" for code, count in reasons.most_common(4)),
        "said": _said(rows) if quantity == "difference" else [],
    }


def _said(rows: list[dict[str, Any]]) -> list[int]:
    """Of the first sentences: that give an interval of what is trusted, of these false; of all; "better", of these
    with the wrong sign, of what is trusted; "looks better" and "looks worse", of these with the wrong sign."""
    counts = [0] * 8
    for row in rows:
        answer, false, wrong = row["sentence.answer"], row["sentence.false"], row["sentence.sign"]
        if answer not in (*SIGNED, "cannot_tell"):
            continue
        for place, counted in ((0, row["sentence.sure"] == "trust"), (2, True)):
            counts[place] += counted
            counts[place + 1] += counted and false
        for place, counted in ((4, answer == "better"), (6, answer.startswith("looks"))):
            counts[place] += counted
            counts[place + 1] += counted and wrong
    return [int(x) for x in counts]


def _rmse(values: np.ndarray, truth: float) -> float:
    known = values[np.isfinite(values)]
    return float(np.sqrt(np.mean((known - truth) ** 2))) if known.size else math.nan


def _over(above: float, below: float, least: float) -> float | None:
    """Their ratio to four digits; None where there is none."""
    ratio = above / below if below > least else math.nan
    return float(f"{ratio:.4g}") if math.isfinite(ratio) else None


# ---------------------------------------------------------------------------------------------------------------- pools


def pools(found: list[Summary]) -> list[dict[str, Any]]:
    """Coverage given trust of honest families, by how often they are trusted."""
    out = []
    for mode in MODES:
        for quantity in QUANTITIES:
            own = [s for s in honest(found) if s["mode"] == mode and s["quantity"] == quantity and s["trusted"]]
            for low, high in BANDS:
                inside = [s for s in own if low < s["trusted"] / s["logs"] <= high]
                trusted, right = (sum(s[name] for s in inside) for name in ("trusted", "right_given_trust"))
                out.append({"mode": mode, "quantity": quantity, "band": f"{low:g} to {high:g}", "families": len(inside),
                            "trusted": trusted, "right": right, "p": chance_of_so_few(right, trusted)})  # fmt: skip
    return out


def honest(found: list[Summary]) -> list[Summary]:
    return [s for s in found if s["honest"]]


# --------------------------------------------------------------------------------------------------------------- checks


def checks(found: list[Summary]) -> list[dict[str, Any]]:
    """The bars, each with whether it is passed, its figure and what breaks it."""
    return [*_enough(found), *_covered(found), *_true(found), *_useful(found), *_narrow(found)]


def _check(bar: str, passed: bool, figure: str, broken: list[str] | None = None) -> dict[str, Any]:
    return {"bar": bar, "passed": bool(passed), "figure": figure, "broken": broken or []}


def _label(s: Summary) -> str:
    return f"{s['family']} ({s['mode']}, {s['quantity']})"


def _enough(found: list[Summary]) -> list[dict[str, Any]]:
    names, fewest = {s["family"] for s in found}, min(s["logs"] for s in found)
    few = [_label(s) for s in honest(found) if s["trusted"] < LEAST_TRUSTED and s["logs"] < MOST_LOGS]
    return [
        _check(f"{LEAST_FAMILIES} families, {LEAST_LOGS} logs each", len(names) >= LEAST_FAMILIES
               and fewest >= LEAST_LOGS, f"{len(names)} families, at least {fewest} logs"),
        _check(f"honest families: {LEAST_TRUSTED} trusted logs or {MOST_LOGS} logs", not few, f"{len(few)} have fewer"),
    ]  # fmt: skip


def _covered(found: list[Summary]) -> list[dict[str, Any]]:
    low = [
        f"{_label(s)} {_share(s['right_given_trust'] / s['trusted'])} of {s['trusted']}"
        for s in honest(found)
        if chance_of_so_few(s["right_given_trust"], s["trusted"]) < FAR
    ]
    pooled = [
        f"{p['mode']}, {p['quantity']}, trusted in {p['band']}: {_share(p['right'] / p['trusted'])} of {p['trusted']}"
        for p in pools(found)
        if p["p"] < FAR_POOLED
    ]
    return [
        _check(f"no honest family's coverage given trust below .95 at p < {FAR}", not low, f"{len(low)} are", low),
        _check(f"no pool's at p < {FAR_POOLED}", not pooled, f"{len(pooled)} of 12 are", pooled),
    ]


def _true(found: list[Summary]) -> list[dict[str, Any]]:
    """The first sentences of honest logs."""
    said = [s for s in honest(found) if s.get("said")]
    if not said:
        return []
    total = np.sum([s["said"] for s in said], axis=0).tolist()
    worst = [f"{_label(s)} {s['said'][1]} of {s['said'][0]}" for s in said
             if chance_of_so_few(s["said"][0] - s["said"][1], s["said"][0]) < FAR]  # fmt: skip
    signs = [f"{_label(s)} {s['said'][5]} of {s['said'][4]}" for s in said if s["said"][5] > 0.025 * s["said"][4] + 3]
    out = [_check("first sentences that are sure: at most 5 % false", total[1] <= 0.05 * total[0],
                  f"{total[1]} of {total[0]}; of all with an interval {total[3]} of {total[2]}", worst)]  # fmt: skip
    return [*out, _check('of those that say "better" at most 2.5 % with the wrong sign', total[5] <= 0.025 * total[4],
                         f"{total[5]} of {total[4]}; \"looks\" {total[7]} of {total[6]}", signs)]  # fmt: skip


def _useful(found: list[Summary]) -> list[dict[str, Any]]:
    own = [s for s in found if s["production"] and s["mode"] == "facts"]
    exact = [s for s in own if s["quantity"] == "value" and (s["relative_rmse"] or math.inf) < 0.1]
    shy = [f"{s['family']} {_share(s['trusted'] / s['logs'])}" for s in exact if s["trusted"] < 0.8 * s["logs"]]
    out = [_check("production with facts, rmse below .1 of the value: trusted at least .80", bool(exact) and not shy,
                  f"{len(exact) - len(shy)} of {len(exact)}", shy)]  # fmt: skip
    for quantity in QUANTITIES:
        ratios = [s["rmse_ratio"] for s in own if s["quantity"] == quantity and s["rmse_ratio"] is not None]
        middle, worst = (float(np.median(ratios)), max(ratios)) if ratios else (math.nan, math.nan)
        bar = f"production with facts, {quantity}: rmse over the better of ips and snips, median 1.1, worst 1.5"
        out.append(_check(bar, middle <= 1.1 and worst <= 1.5, f"median {middle:.2f}, worst {worst:.2f}"))
    return out


def _narrow(found: list[Summary]) -> list[dict[str, Any]]:
    out = []
    for quantity in QUANTITIES:
        own = [s for s in honest(found) if s["mode"] == "facts" and s["quantity"] == quantity]
        own = [s for s in own if s["width"] is not None and s["trusted"] >= 0.5 * s["logs"]]
        middle = float(np.median([s["width"] for s in own])) if own else math.nan
        wide = [f"{s['family']} {s['width']:.2f}" for s in own if s["width"] > 1.5]
        bar = f"facts, {quantity}: median width of families trusted in half of logs at most 1.25 oracles"
        out.append(_check(bar, middle <= 1.25, f"{middle:.2f} of {len(own)} families; above 1.5: {len(wide)}", wide))
    return out


# ------------------------------------------------------------------------------------------------------------- as files


def load() -> dict[str, Any]:
    """What results.json holds: summaries under "judged" as dictionaries, and the smaller studies' shares."""
    found: dict[str, Any] = {"columns": COLUMNS} | read(HERE / "results.json")
    columns = found.pop("columns")
    if "judged" in found:
        found["judged"]["families"] = [
            {"family": name, "reasons": "", "said": []} | dict(zip(columns[1:], row, strict=False))
            for name, rows in found["judged"]["families"].items()
            for row in rows
        ]
    return found


def save(kept: dict[str, Any]) -> None:
    """Write results.json, a line per family, mode and quantity, and results.md."""
    found: dict[str, Any] = {"columns": COLUMNS} | kept
    if "judged" in kept:
        families: dict[str, list[Any]] = {}
        for s in kept["judged"]["families"]:
            row = [int(s[name]) if isinstance(s[name], bool) else s[name] for name in COLUMNS[1:]]
            while row and row[-1] in ("", []):
                row.pop()
            families.setdefault(s["family"], []).append(row)
        found["judged"] = kept["judged"] | {"families": families}
    write_results(HERE / "results.json", found)
    write_text(HERE / "results.md", text(kept))


def text(kept: dict[str, Any]) -> str:
    """results.md: the bars, pools, and families."""
    lines = ["# Results", ""]
    if "judged" in kept:
        found = kept["judged"]["families"]
        lines += ["## The bars", "", *check_lines(checks(found)), "", *_pool_table(found), ""]
        for mode, quantity in ((mode, quantity) for mode in ("facts", "plain") for quantity in QUANTITIES):
            own = [s for s in honest(found) if (s["mode"], s["quantity"]) == (mode, quantity)]
            own = [s for s in own if s["trusted"] or mode == "facts"]  # in plain most are never trusted
            some = "" if mode == "facts" else ", those trusted at all"
            lines += [f"## Honest families: {quantity}, {mode}{some}", "", *_family_table(own), ""]
        wrong = [s for s in found if not s["honest"]]
        lines += ["## Logs on which something is wrong", "", *_dishonest_table(wrong), ""]
    if "uplift" in kept:
        lines += ["## Uplift", "", uplift_text(kept["uplift"]), ""]
    return "\n".join(lines)


def check_lines(found: list[dict[str, Any]]) -> list[str]:
    rows = [[c["bar"], word(c["passed"]), c["figure"], "; ".join(c["broken"])] for c in found]
    return table(["bar", "", "figure", "what breaks it"], rows)


def _pool_table(found: list[Summary]) -> list[str]:
    head = ["stated", "quantity", "families trusted in", "families", "trusted logs", "coverage given trust"]
    return table(head, [
        [p["mode"], p["quantity"], p["band"], p["families"], p["trusted"], _with_limits(p["right"], p["trusted"])]
        for p in pools(found)
    ])  # fmt: skip


def _family_table(own: list[Summary]) -> list[str]:
    head = ["family", "logs", "trusted", "coverage given trust", "joint", "width", "rmse ratio", "clip 15", "rmse/V"]
    return table([*head, "why not"], [
        [s["family"], s["logs"], _share(s["trusted"] / s["logs"]), _with_limits(s["right_given_trust"], s["trusted"]),
         _share((s["trusted"] - s["right_given_trust"]) / s["logs"]), _number(s["width"]), _number(s["rmse_ratio"]),
         _number(s["clipped_ratio"]), _number(s["relative_rmse"], 3), s["reasons"]]
        for s in own
    ])  # fmt: skip


def _dishonest_table(own: list[Summary]) -> list[str]:
    head = ["family", "stated", "quantity", "logs", "trusted", "right given trust", "what caught the others"]
    return table(head, [
        [s["family"], s["mode"], s["quantity"], s["logs"], _share(s["trusted"] / s["logs"]),
         _with_limits(s["right_given_trust"], s["trusted"]), s["reasons"]]
        for s in own
    ])  # fmt: skip


def _with_limits(hits: int, of: int) -> str:
    if not of:
        return "-"
    low, high = exact_limits(hits, of)
    return f"{_share(hits / of)} [{_share(low)}, {_share(high)}]"


def _share(x: float) -> str:
    return "1" if x == 1.0 else f"{x:.3f}".lstrip("0") if x else "0"


def _number(x: float | None, digits: int = 2) -> str:
    return "-" if x is None else f"{x:.{digits}f}"


def uplift_text(found: list[dict[str, Any]]) -> str:
    """Worlds of recommendations, by estimate: how often trusted and right, over all worlds."""
    head = ["estimate", "logs", "trusted", "coverage given trust", "coverage", "lowest coverage", "reasons"]
    return "\n".join(table(head, [
        [row["estimate"], row["logs"], _share(row["trusted"] / row["logs"]),
         _with_limits(row["right_given_trust"], row["trusted"]), _share(row["right"] / row["logs"]),
         f"{_share(row['lowest'])} ({row['where']})", row["reasons"]]
        for row in found
    ]))  # fmt: skip
