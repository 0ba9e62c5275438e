"""Are wrong probabilities in the logs of tools found, and honest ones left in peace?

    python benchmarks/own_log/damage.py [--honest 100] [--damaged 4] [--decisions 10000] [--quick]

Each log is made by ``tools.py``. Found means: the file is refused for its probabilities, or they are named as a reason
for doubt, "caution" or worse, of a policy but today's. Of an honest log that is a false alarm. Writes ``damage.json``
next to this file (not with ``--quick``).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import tools

from recsim_mnar.datasets.tool_logs import opened
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.estimating import Question
from recsim_mnar.own_log.gate import estimate_tool_log
from recsim_mnar.studies.result import share

HERE = Path(__file__).parent
ABOUT = ("propensities", "item_propensities", "support_missing", "support_denied", "bound_denied")
"""Codes of findings of every log that say that its probabilities are wrong."""


def found(folder: Path, format_: str, seed: int, n: int, damage: str | None) -> str:
    """What the answer says of the probabilities; empty if nothing."""
    tools.make(folder, format_, seed, n, damage)
    path, metrics = tools.log_of(folder, format_)
    try:
        with opened(path, metrics=metrics) as tool:
            codes = {each.code for each in tool.damages}
            answer = estimate_tool_log(tool, Question(), Reading())
    except UserError as error:
        return f"refused: {error}"[:120]
    records = [r for r in answer.records if r["leads"] and "baseline" not in r and r["policy"] != "propensity"]
    doubts = {each["code"] for r in records for each in r["findings"] if each["level"] != "trust"}
    return ", ".join(sorted(codes | (doubts & set(ABOUT))))


def changes(format_: str, damage: str) -> bool:
    """Whether a damage changes what a format logs."""
    if damage == "other-country":
        return format_ != "statsig"  # one set of weights, whoever comes
    return not (damage == "greedy" and format_ == "growthbook")  # logs the weights of all, none of the one shown


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--honest", type=int, default=100)
    parser.add_argument("--damaged", type=int, default=4)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    honest, damaged, n = (1, 1, 2000) if given.quick else (given.honest, given.damaged, given.decisions)
    rows, damages = [], ["swapped", "greedy"] if given.quick else list(tools.DAMAGES)
    with tempfile.TemporaryDirectory() as folder:
        for format_ in tools.FORMATS:
            plan = [(None, 10_000 + seed) for seed in range(honest)]
            plan += [(name, seed) for name in damages if changes(format_, name) for seed in range(damaged)]
            for damage, seed in plan:
                said = found(Path(folder), format_, seed, n, damage)
                rows.append({"format": format_, "damage": damage or "", "seed": seed, "said": said})
            show(format_, [row for row in rows if row["format"] == format_])
    for name in damages:
        own = [row for row in rows if row["damage"] == name]
        seen = "" if name in tools.SEEN else "  (not looked at)"
        print(f"{name:14} found {sum(bool(r['said']) for r in own):3} of {len(own):3}{seen}")
    show("all", rows)
    if not given.quick:
        (HERE / "damage.json").write_text(json.dumps({"decisions": n, **counted(rows)}, indent=0) + "\n")


def counted(rows: list[dict[str, object]]) -> dict[str, object]:
    """How many were found of each format and damage, and what honest logs were suspected of."""
    kinds = list(dict.fromkeys((r["format"], r["damage"]) for r in rows))
    found = [
        {"format": format_, "damage": damage, "found": sum(bool(r["said"]) for r in own), "logs": len(own)}
        for format_, damage in kinds
        for own in [[r for r in rows if (r["format"], r["damage"]) == (format_, damage)]]
    ]
    return {"found": found, "false_alarms": [r for r in rows if not r["damage"] and r["said"]]}


def show(name: str, rows: list[dict[str, object]]) -> None:
    """A line of the table."""
    for kind, own in (
        ("damages found", [r for r in rows if r["damage"]]),
        ("of those not looked at", [r for r in rows if r["damage"] and r["damage"] not in tools.SEEN]),
        ("false alarms", [r for r in rows if not r["damage"]]),
    ):
        if own:
            rate = share([bool(r["said"]) for r in own])
            ends = f"{rate['low']:.1%} to {rate['high']:.1%}"
            print(f"{name:12} {kind:24} {rate['count']:4} of {len(own):4}  {rate['share']:.1%} ({ends})", flush=True)


if __name__ == "__main__":
    main()
