"""The study's one file of results, and its text."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from _study import into_marks, read, table, write_results
from worlds import GRID

HERE = Path(__file__).resolve().parent
LEAST_COVERAGE = 0.9345  # what a true 95 % interval misses once in a thousand, over 2,000 logs
WIDEST_RATIO = 1.3
NORMAL_COVERS = 0.94
KEPT = ("logs", "coverage", "above", "width", "normal_width")  # of a method, as a list


def load() -> dict[str, Any]:
    """Settings by name, with obp's own code where it was measured; and the estimated propensities."""
    found = {"methods": [], "settings": {}, "propensities": {}} | read(HERE / "results.json")
    names = found.pop("methods")
    for result in found["settings"].values():
        rows = zip(names, result["methods"], strict=False)
        result["methods"] = {name: dict(zip(KEPT, row, strict=False)) for name, row in rows}
    return found


def save(found: dict[str, Any]) -> None:
    """Write results.json; once every setting is there, its part of results.md and the README's summary too."""
    settings = {s.name: found["settings"][s.name] for s in GRID if s.name in found["settings"]}
    kept = {
        name: result | {"methods": [[row[k] for k in KEPT if k in row] for row in result["methods"].values()]}
        for name, result in settings.items()
    }
    names = _names(list(settings.values()))
    write_results(HERE / "results.json", found | {"methods": names, "settings": kept})
    if len(settings) == len(GRID):
        into_marks(HERE / "results.md", "settings", report(settings).splitlines())
        into_marks(HERE / "README.md", "summary", summary(list(settings.values())))


def _names(results: list[dict]) -> list[str]:
    return list(dict.fromkeys(name for result in results for name in result["methods"]))


def _ratio(method: dict, normal: dict) -> float:
    """Mean width over the by-user normal interval's on the same logs."""
    width = method.get("normal_width", normal["width"])
    return method["width"] / width if width > 0 else math.nan


def _logs(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{most:,}" if least == most else f"{least:,} to {most:,}"


def _marks(methods: dict) -> str:
    normal, default = methods["normal by user"], methods["default"]
    marks = "!" if default["coverage"] < LEAST_COVERAGE else ""
    if normal["coverage"] >= NORMAL_COVERS and default["width"] > WIDEST_RATIO * normal["width"]:
        marks += "w"
    return marks


def summary(results: list[dict]) -> list[str]:
    """A line a method, over all settings."""
    head = [
        "interval",
        "settings",
        "logs in each",
        f"covers {LEAST_COVERAGE} or more",
        "lowest",
        "median",
        "width, median",
    ]
    rows = []
    for name in _names(results):
        found = [(r["methods"][name], r["methods"]["normal by user"]) for r in results if name in r["methods"]]
        coverage = [method["coverage"] for method, _ in found]
        rows.append([
            name, len(found), _logs([method["logs"] for method, _ in found]),
            sum(c >= LEAST_COVERAGE for c in coverage), f"{min(coverage):.3f}", f"{statistics.median(coverage):.3f}",
            f"{statistics.median(_ratio(*pair) for pair in found):.2f}",
        ])  # fmt: skip
        if name == "default":
            rows.append(where_trusted(results))
    return table(head, rows)


def where_trusted(results: list[dict]) -> list:
    """The default's line of logs with the verdict trust, of settings with a hundred of them."""
    found = [r["trusted"] for r in results if r.get("trusted", [0])[0] >= 100]
    shares = [right / trusted for trusted, right in found]
    well = sum(share >= LEAST_COVERAGE for share in shares)
    ends = (f"{min(shares):.3f}", f"{statistics.median(shares):.3f}") if shares else ("-", "-")
    return ["default, where trusted", len(found), _logs([t for t, _ in found] or [0]), well, *ends, ""]


def agreement(results: list[dict]) -> list[str]:
    """Whether obp's own code and the law that stands for it agree, over the settings where both were measured."""
    found = [r["obp"] for r in results if "obp" in r]
    if not found:
        return []
    ends = [a[end] for a in found for end in ("low", "high")]
    coverage = [a["coverage"] for a in found]

    def in_words(z: list[float]) -> str:
        return f"root mean square {math.sqrt(sum(x * x for x in z) / len(z)):.2f}, largest {max(map(abs, z)):.2f}"

    return [
        f"obp's own ends next to as many draws from the law, on the same logs of {len(found)} settings, in standard",
        "errors of the mean difference (of equals one expects 1.00 in root mean square):",
        f"{len(ends)} ends, {in_words(ends)};",
        f"coverage, {in_words(coverage)}.",
        "",
    ]


def _cell(method: dict, methods: dict) -> str:
    cell = f"{method['coverage']:.3f} ({_ratio(method, methods['normal by user']):.2f})"
    return cell if method["logs"] == methods["default"]["logs"] else f"{cell}, {method['logs']} logs"


def report(settings: dict[str, dict]) -> str:
    """Markdown of the settings: a line a method over all of them, and each."""
    results = list(settings.values())
    names = _names(results)
    logs = [r["methods"]["default"]["logs"] for r in results]
    marks = [_marks(r["methods"]) for r in results]
    rows = [
        [name, f"{r['mean_clicks']:.0f}"]
        + [_cell(r["methods"][n], r["methods"]) if n in r["methods"] else "" for n in names]
        + [mark]
        for (name, r), mark in zip(settings.items(), marks, strict=True)
    ]
    lowest = min(r["methods"]["default"]["coverage"] for r in results)
    return "\n".join([
        "## Settings",
        "",
        *summary(results),
        "",
        *agreement(results),
        "Below, each cell: coverage (mean width over that of the normal interval by user), over",
        f"{_logs(logs)} logs or as many as the cell says. The default is `snips` by user.",
        f"`!` default below {LEAST_COVERAGE}; `w` default more than {WIDEST_RATIO} times as wide as a normal",
        f"interval by user that covers {NORMAL_COVERS:.0%}.",
        "",
        *table(["setting", "clicks", *names, ""], rows),
        "",
        f"{len(results)} settings, at least {min(logs)} logs each; the default's lowest coverage is {lowest:.4f}; "
        f"{sum(map(bool, marks))} settings break a rule.",
        "",
    ])  # fmt: skip
