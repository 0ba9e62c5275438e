"""Markdown and pictures of the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LABELS = {
    "random": "Random", "popularity": "Popularity", "rmf": "RMF", "bpr": "BPR", "recresp": "RecResp", "cause": "CausE",
    "cause-prod": "CausE-Prod", "ulrmf": "ULRMF", "ulbpr": "ULBPR", "dlce": "DLCE (true e)", "cubn": "CUBN",
    "cibn": "CIBN", "oracle": "Oracle",
}  # fmt: skip
WORLDS = {
    "dunnhumby-original": "Dunnhumby, original",
    "dunnhumby-personalised": "Dunnhumby, personalised",
    "ml100k": "ML-100K",
}


def grid(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def verdicts(checks: dict[str, bool]) -> str:
    """Each check, PASS or short."""
    lines = [f"{'PASS ' if ok else 'short'} {text}" for text, ok in checks.items()]
    return "\n".join(["```", *lines, "```", f"\n{sum(checks.values())} of {len(checks)} checks pass."])


def cell(row: dict[str, list[float]], k: int, digits: int) -> str:
    value = f"{row['mean'][k]:.{digits}f}"
    return value + (f" ±{row['high'][k] - row['mean'][k]:.{digits}f}" if "high" in row else "")


def semisynthetic(result: dict[str, Any]) -> str:
    parts = ["# Semi-synthetic worlds", ""]
    told = result["published"]["semisynthetic"]
    for name, found in result["worlds"].items():
        world, metrics = found["world"], found["metrics"]
        parts += [
            f"## {WORLDS[name]}", "",
            f"{world['users']} users, {world['items']} items, training logs of {world['periods']} periods; mean Y "
            f"{world['mean Y']:.4f}, mean Z {world['mean Z']:.4f}, mean tau {world['mean tau']:.4f}. Mean over seeds of "
            "the log and the training, ± half of the 95 % interval.", "",
        ]  # fmt: skip
        rows = []
        for method in LABELS:
            if method not in found["rows"]:
                continue
            row = found["rows"][method]
            known = told[name].get(method)
            published = "" if known is None else " / ".join("-" if v is None else f"{v:g}" for v in known)
            values = [cell(row, k, 4 if k < 2 else 3) for k in range(len(metrics))]
            rows.append([LABELS[method], *values, published])
        parts += [grid(["method", *metrics, "published (PropCare)"], rows), "", chosen(found["chosen"]), ""]
    return "\n".join([*parts, verdicts(result["checks"])])


def chosen(picks: dict[str, Any]) -> str:
    rows = []
    for method, pick in picks.items():
        settings = ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in pick["settings"].items())
        updates = "" if pick["updates"] is None else f"{pick['updates']:,}"
        rows.append([LABELS[method].split(" (")[0], settings, updates, str(pick["fits"]), f"{pick['seconds']:.0f}"])
    return grid(["chosen", "settings", "updates", "fits tried", "CPU s"], rows)


TEXTS = {"semisynthetic": semisynthetic}


def draw(part: str, result: dict[str, Any], out: Path) -> None:
    """The part's pictures."""
