"""results.json and results.md of what run.py kept: `python benchmarks/online/analysis.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
RUNS = HERE / "runs"


def kept(name: str) -> Any:
    """What a step found; nothing where it was not run."""
    path = RUNS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else []


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


def table(heads: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)


def main() -> None:
    """Write both files."""
    found = {"learning": kept("learning"), "odd": kept("odd"), "checks": kept("checks"), "coverage": coverage()}
    (HERE / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    runs = [r for r in found["learning"] if "rows" in r]
    parts = [
        "# Learning while acting: results",
        "## One object, all its rows",
        table(
            ["by", "users", "lanes", "rows", "rounds", "decisions", "replayed equal"],
            [[r[key] for key in ("by", "users", "lanes", "rows", "rounds", "decisions", "equal")] for r in runs],
        ),
        table(["asked", "refused with"], [[r["by"], r["refused"]] for r in found["learning"] if "refused" in r]),
        "## Policies that lie, and policies that only look odd",
        table(
            ["policy", "is", "simulate", "simulate_online"],
            [[r["policy"], r["what"], r["simulate"], r["simulate_online"]] for r in found["odd"]],
        ),
        *(f"{r['policy']}: {r['cost']}." for r in found["odd"] if "cost" in r),
        "## What the checks cost",
        table(
            ["run", "users", "CPU s, checked", "unchecked", "share (median of paired runs)"],
            [
                [r["run"], r["users"], f"{r['checked']:.3f}", f"{r['unchecked']:.3f}", f"{100 * r['share']:+.1f} %"]
                for r in found["checks"]
            ],
        ),
        "## Coverage of 95 % intervals",
        table(
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
    (HERE / "results.md").write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
