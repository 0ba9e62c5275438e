"""Score known agents on every frozen task: see README.md.

python benchmarks/tasks/run.py              # every cell that is not there, then the table
python benchmarks/tasks/run.py --only svd   # those of one agent
python benchmarks/tasks/run.py table        # the table of the cells that are there
python benchmarks/tasks/run.py --tasks cold-100-v1   # those of one task; the others stay as results.json has them
python benchmarks/tasks/run.py --quick      # few agents, users and tasks; nothing is recorded
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import making
import table
from _study import into_marks, once, parser_of, read, settings_of, write_results

from recsim_mnar import evaluate, task
from recsim_mnar.errors import UserError
from recsim_mnar.policies import Policy

HERE = Path(__file__).resolve().parent
QUICK = {"ranked": [], "once": ["random", "popularity"], "planners": [], "learners": [], "bandits": [], "users": 40}


class Cell(NamedTuple):
    """One training of one agent on one task."""

    task: str
    agent: str
    seed: int

    @property
    def path(self) -> Path:
        """Of its file, in the folder of all cells."""
        return Path(self.task) / f"{self.agent}-{self.seed}.json"


@functools.lru_cache(maxsize=1)
def log_of(name: str) -> Any:
    """The log of a task; the last one asked for is kept."""
    return task(name).log()


def made(cell: Cell, given: Mapping[str, Any]) -> Policy | str:
    """The agent of a cell, fitted or trained; its name where the evaluation fits it."""
    chosen, (kind, _, way) = task(cell.task), cell.agent.partition("-")
    acts = cell.agent in given["planners"] or cell.agent in given["bandits"] or kind in making.KINDS
    if cell.task in given["ranked"]:
        if acts:
            raise UserError("it shows one item at a time, and here an action is none")
        return cell.agent
    if acts and not chosen.environment:
        raise UserError("here agents learn from the log alone")
    if cell.agent in given["planners"]:
        return making.planner(cell.agent, chosen)
    if cell.agent in given["bandits"]:
        own = {"users": given["bandit_users"], "lanes": given["bandit_lanes"]}
        return making.bandit(cell.agent, chosen, cell.seed, **own)
    if kind in making.KINDS:
        setting = making.DEFAULTS if way == "default" else read(HERE / "tuning.json")[kind]["best"]["setting"]
        model = making.trained(kind, chosen, setting, steps=given["rl"]["steps"], seed=cell.seed)
        return making.as_policy(model, setting)
    return making.fitted(cell.agent, chosen, log_of(cell.task), cell.seed)


def scored(cell: Cell, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the agent of a cell earned of each public user, or why it cannot be run."""
    began = time.process_time()
    try:
        if cell.agent in (*given["once"], *given["learners"]) and cell.task not in given["ranked"]:
            log_of(cell.task)
            began = time.process_time()  # the log is not counted among an agent's seconds
        policy = made(cell, given)
        trained = time.process_time()
        found = evaluate(policy, cell.task, n_users=given.get("users"))
    except UserError as error:
        return {**cell._asdict(), "refused": str(error)}
    seconds = {"train": trained - began, "evaluate": time.process_time() - trained}
    earned = [float(f"{each:.7g}") for each in found.earned.tolist()]
    return {**found.to_dict(), **cell._asdict(), "cpu_seconds": seconds, "earned": earned}


def cells(given: Mapping[str, Any], names: list[str]) -> Iterator[Cell]:
    """All cells: first the table with one seed, then further seeds."""
    for name in names:
        for agent in (*given["once"], *given["planners"], *given["learners"]):
            yield Cell(name, agent, 0)
    models = making.KINDS if given.get("rl") else ()
    groups = (
        dict.fromkeys(given["bandits"], given["bandit_seeds"])
        | {f"{kind}-tuned": given["rl"]["seeds"] for kind in models},
        {f"{kind}-default": 1 for kind in models},
        dict.fromkeys(given["learners"], given["learner_seeds"]),
    )
    for seed, group in itertools.product(range(max(given["learner_seeds"], given["bandit_seeds"])), groups):
        for name, (agent, many) in itertools.product(names, group.items()):
            if seed < (1 if name in given["ranked"] else many) and not (agent in given["learners"] and seed == 0):
                yield Cell(name, agent, seed)


def main() -> None:
    parser = parser_of(__doc__, quick="few agents, users and tasks; nothing is recorded")
    parser.add_argument("what", nargs="?", choices=["all", "table"], default="all")
    parser.add_argument(
        "--only", metavar="AGENTS", help="make cells of these alone, as random,svd; the table is of all"
    )
    parser.add_argument("--tasks", metavar="TASKS", help="make cells of these alone, as fatigue-50-v1,uplift-200-v1")
    options = parser.parse_args()
    given = settings_of(HERE, {**QUICK, "rl": {}} if options.quick else None)
    names = given["tasks"][2:4] if options.quick else given["tasks"]
    folder = Path("runs") / ("tasks-quick" if options.quick else "tasks")
    wanted = list(cells(given, names))
    if options.what == "all":
        only = options.only.split(",") if options.only else [cell.agent for cell in wanted]
        on = options.tasks.split(",") if options.tasks else names
        for cell in (cell for cell in wanted if cell.agent in only and cell.task in on):
            found = once(folder / cell.path, functools.partial(scored, cell, given))
            said = found.get("refused") or f"{found['score']:.3f} [{found['score_low']:.3f}, {found['score_high']:.3f}]"
            print(cell.task, cell.agent, cell.seed, said, flush=True)
    found = [read(folder / cell.path) or {**cell._asdict(), "refused": "not run"} for cell in wanted]
    results, kept = table.results(found), {}
    if not options.quick:
        results, kept = table.merged(read(HERE / "results.json"), results)
    lines = table.lines(results)
    print("\n".join([*lines, *(f"{name} stays as it was: {why}" for name, why in kept.items())]))
    if not options.quick:
        write_results(HERE / "results.json", results)
        into_marks(HERE / "README.md", "scores", lines)
        if tuned := read(HERE / "tuning.json"):
            into_marks(HERE / "README.md", "tuned", table.tuned_lines(tuned, given["tuning"]["tasks"]))


if __name__ == "__main__":
    main()
