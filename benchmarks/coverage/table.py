"""The study's results as Markdown."""

from __future__ import annotations

import math
import statistics

from settings import LEAST_COVERAGE, NORMAL_COVERS, WIDEST_RATIO


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
    lines = [
        f"| interval | settings | logs in each | covers {LEAST_COVERAGE} or more | lowest | median | width, median |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in _names(results):
        found = [(r["methods"][name], r["methods"]["normal by user"]) for r in results if name in r["methods"]]
        coverage = [method["coverage"] for method, _ in found]
        lines.append(
            f"| {name} | {len(found)} | {_logs([method['logs'] for method, _ in found])} "
            f"| {sum(c >= LEAST_COVERAGE for c in coverage)} | {min(coverage):.3f} | {statistics.median(coverage):.3f} "
            f"| {statistics.median(_ratio(*pair) for pair in found):.2f} |"
        )
    return lines


def agreement(results: list[dict]) -> list[str]:
    """Whether obp's own code and the law that stands for it agree, over the settings where both were measured."""
    found = [r["obp_agreement"] for r in results if "obp_agreement" in r]
    if not found:
        return []
    ends = [a[end] for a in found for end in ("low", "high")]
    coverage = [a["coverage"] for a in found]

    def told(z: list[float]) -> str:
        return f"root mean square {math.sqrt(sum(x * x for x in z) / len(z)):.2f}, largest {max(map(abs, z)):.2f}"

    return [
        f"obp's own ends beside as many draws from the law, on the same logs of {len(found)} settings, in standard",
        "errors of the mean difference (of equals one expects 1.00 in root mean square):",
        f"{len(ends)} ends, {told(ends)};",
        f"coverage, {told(coverage)}.",
        "",
    ]


def report(results: list[dict]) -> str:
    names = _names(results)
    logs = [r["methods"]["default"]["logs"] for r in results]
    lines = [
        "# Coverage at nominal 95 %",
        "",
        *summary(results),
        "",
        *agreement(results),
        "Below, each cell: coverage (mean width over that of the normal interval by user), over",
        f"{_logs(logs)} logs or as many as the cell says. The default is the gamma interval on user sums.",
        f"`!` default below {LEAST_COVERAGE}; `w` default more than {WIDEST_RATIO} times as wide as a normal",
        f"interval by user that covers {NORMAL_COVERS:.0%}.",
        "",
        "| setting | clicks | " + " | ".join(names) + " | |",
        "|---|---|" + "---|" * (len(names) + 1),
    ]
    failed = 0
    for result in results:
        methods = result["methods"]
        cells = []
        for name in names:
            cell = ""
            if name in methods:
                cell = f"{methods[name]['coverage']:.3f} ({_ratio(methods[name], methods['normal by user']):.2f})"
                if methods[name]["logs"] != methods["default"]["logs"]:
                    cell += f", {methods[name]['logs']} logs"
            cells.append(cell)
        marks = _marks(methods)
        failed += bool(marks)
        lines.append(
            f"| {result['setting']['name']} | {result['mean_clicks']:.0f} | " + " | ".join(cells) + f" | {marks} |"
        )
    lowest = min(r["methods"]["default"]["coverage"] for r in results)
    lines += [
        "",
        f"{len(results)} settings, at least {min(logs)} logs each; the default's lowest coverage is {lowest:.4f}; "
        f"{failed} settings break a rule.",
        "",
    ]
    return "\n".join(lines)
