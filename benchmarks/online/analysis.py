"""Tables of the study: `python benchmarks/online/analysis.py` makes results.json and results.md of what run.py kept."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import read, table, write_results, write_text

HERE = Path(__file__).resolve().parent
RUNS = HERE / "runs"


def coverage() -> list[dict[str, Any]]:
    """Share of logs whose interval holds the truth, by who logged, target and estimator."""
    found = []
    for path in sorted(RUNS.glob("coverage-*.jsonl")):
        who = path.stem.removeprefix("coverage-")
        logs = [json.loads(line) for line in path.read_text().splitlines()]
        for k, row in enumerate(logs[0]):
            rows = [log[k] for log in logs]
            low, high, truth, value = (np.array([r[key] for r in rows]) for key in ("low", "high", "truth", "value"))
            covered = float(np.mean((low <= truth) & (truth <= high)))
            found.append(
                {
                    "logged by": "frozen" if who == "frozen" else f"learner, {who} lanes",
                    "target": row["target"],
                    "estimator": row["estimator"],
                    "logs": len(logs),
                    "covered": covered,
                    "standard_error": float(np.sqrt(covered * (1.0 - covered) / len(logs))),
                    "relative_bias": float((value - truth).mean() / truth.mean()),
                    "relative_width": float(np.mean((high - low) / 2.0 / truth)),
                }
            )
    return found


def lines(head: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown; the bars of a cell are no columns."""
    return "\n".join(table(head, [[str(cell).replace("|", "/") for cell in row] for row in rows]))


def report(found: dict[str, Any]) -> str:
    """Markdown of all steps."""
    runs = [r for r in found["learning"] if "rows" in r]
    parts = [
        "# Learning while acting: results",
        "## One object, all its rows",
        lines(
            ["by", "users", "lanes", "rows", "rounds", "decisions", "replayed equal"],
            [[r[key] for key in ("by", "users", "lanes", "rows", "rounds", "decisions", "equal")] for r in runs],
        ),
        lines(["asked", "refused with"], [[r["by"], r["refused"]] for r in found["learning"] if "refused" in r]),
        "## Coverage of 95 % intervals",
        lines(
            ["logged by", "target", "estimator", "logs", "covered", "relative bias", "half width / value"],
            [
                [
                    *(r[key] for key in ("logged by", "target", "estimator", "logs")),
                    f"{r['covered']:.3f} ± {r['standard_error']:.3f}",
                    f"{r['relative_bias']:+.3f}",
                    f"{r['relative_width']:.2f}",
                ]
                for r in found["coverage"]
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Write both files."""
    found = read(HERE / "results.json") | {"learning": read(RUNS / "learning.json") or [], "coverage": coverage()}
    write_results(HERE / "results.json", found, 6)
    write_text(HERE / "results.md", report(found))


if __name__ == "__main__":
    main()
