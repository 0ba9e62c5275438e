"""Score known agents on every frozen task, on quoted users: see README.md."""

from __future__ import annotations

import argparse
import functools
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import into_marks, once, settings_of, write_results

from recsim_mnar import Planner, evaluate, task, task_names
from recsim_mnar.errors import UserError

HERE = Path(__file__).resolve().parent
QUICK = {"agents": ["random", "popularity"], "users": 40}


def cell(name: str, agent: str, users: int | None) -> dict[str, Any]:
    """The evaluation of one agent on one task, or why there is none."""
    began = time.process_time()
    try:
        made: Any = agent
        if agent in ("planner", "myopic"):
            made = Planner(task(name).make_world(), myopic=agent == "myopic")
        found = evaluate(made, name, users="quoted", n_users=users)
    except UserError as error:
        return {"task": name, "agent": agent, "refused": str(error)}
    return {**found.to_dict(), "agent": agent, "cpu_seconds": time.process_time() - began}


def written(one: dict[str, Any] | None) -> str:
    """A cell of the table."""
    if one is None or "refused" in one:
        return "-"
    return f"{one['score']:.2f} [{one['score_low']:.2f}, {one['score_high']:.2f}]"


def table(cells: list[dict[str, Any]], names: list[str], agents: list[str]) -> list[str]:
    """Lines of the table: one row per agent, one column per task."""
    found = {(one["task"], one["agent"]): one for one in cells}
    lines = ["| agent | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    rows = {agent: [written(found.get((name, agent))) for name in names] for agent in agents}
    return [*lines, *(f"| {agent} | " + " | ".join(row) + " |" for agent, row in rows.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few agents, users and tasks; nothing is recorded")
    options = parser.parse_args()
    given = settings_of(HERE, QUICK if options.quick else None)
    names = task_names()[:2] if options.quick else task_names()
    agents = [*given["agents"], *given["planners"]]
    folder = Path("runs") / ("tasks-quick" if options.quick else "tasks")
    cells = []
    for name in names:
        for agent in agents:
            make = functools.partial(cell, name, agent, given.get("users"))
            cells.append(once(folder / name / f"{agent}.json", make))
            print(name, agent, written(cells[-1]), flush=True)
    lines = table(cells, names, agents)
    print("\n".join(lines))
    if not options.quick:
        write_results(HERE / "results.json", {"cells": cells})
        into_marks(HERE / "README.md", "scores", lines)


if __name__ == "__main__":
    main()
