"""run_study: tasks on any executor, each result a file of its own, so that an interrupted study is taken up."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import of_type
from recsim_mnar.protocols.comparison import Setup
from recsim_mnar.protocols.records import plain
from recsim_mnar.runs.files import refuse_link, sweep
from recsim_mnar.runs.folder import STUDY, RunFolder
from recsim_mnar.runs.receipts import digest_of
from recsim_mnar.simulation.executor import check_executor
from recsim_mnar.simulation.own_code import of_own_code, origin_named
from recsim_mnar.simulation.pools import processes
from recsim_mnar.studies.result import Study
from recsim_mnar.studies.tasks import Task, filled, labels_of, tasks_of

__all__ = ["TASKS", "processes", "run_study"]

TASKS = "tasks"
_NAMED = 6
"""Studies that are named one by one where work begins."""
Report = Callable[[str], None]


def run_study(
    worlds: Sequence[str | Mapping[str, Any] | Setup],
    agents: Sequence[str] | None = None,
    protocols: Sequence[str] | None = None,
    estimators: Sequence[str] | None = None,
    seeds: int | Sequence[int] = 10,
    *,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    tie: float = 0.0,
    folder: str | Path | None = None,
    resume: bool = False,
    executor: Executor | None = None,
    report: Report = lambda stage: None,
) -> Study:
    """Compare over catalogues.

    Args:
        worlds: names, or tables of :class:`recsim_mnar.protocols.comparison.Setup`'s fields (``world``, ``preset``,
            ``params``, ``agents``, ...), whose own agents, protocols and options come first.
        agents: names or ``package.module:Class``; each world's own list where None.
        protocols: likewise.
        estimators: of off-policy evaluation, in the worlds that have it.
        seeds: how many catalogues, whose users' seeds are derived from ``seed`` and the task's labels; or a seed a
            catalogue.
        seed: see ``seeds``.
        options: of the comparisons.
        tie: share of the best true value that counts as nothing.
        folder: for the tasks' results; nothing is written where None.
        resume: keep the results that the folder holds; there may be more catalogues than the folder's study has.
        executor: to spread tasks over: processes, as a task's agents learn in Python; the results do not depend on it.
        report: called with a line as tasks end.

    Raises:
        UserError: a setup that cannot be, or a folder that holds another study.
    """
    of_type(worlds, "worlds", (list, tuple), "a list of worlds")
    setups = [filled(world, agents, protocols, estimators, {} if options is None else options, tie) for world in worlds]
    tasks = tasks_of(setups, seeds, seed)
    settings = {
        "studies": [plain(asdict(s)) for s in setups],
        "seeds": seeds if isinstance(seeds, int) else list(seeds),
        "seed": seed,
    }
    labels, number = labels_of(setups), len(tasks) // max(len(setups), 1)
    named = labels if len(labels) <= _NAMED else [f"{labels[0]} to {labels[-1]}, each"]
    for label in named:
        report(f"{label}: {number} catalogue{'s' if number > 1 else ''}")
    for setup in setups:
        setup.resolved()
    if folder is None:
        return _run(tasks, settings, None, executor, report)
    with RunFolder.fill(Path(folder), resume=resume, what="--out") as into:
        _begin(into, settings)
        return _run(tasks, settings, into, executor, report)


def _run(
    tasks: list[Task], settings: dict[str, Any], into: RunFolder | None, executor: Executor | None, report: Report
) -> Study:
    kept = {} if into is None else {t.label: found for t in tasks if (found := _kept(into, t)) is not None}
    missing = [t for t in tasks if t.label not in kept]
    if len(missing) < len(tasks):
        report(f"{len(tasks) - len(missing)} of {len(tasks)} already existed")
    seconds: dict[str, float] = {}
    began = time.monotonic()
    for task, (result, took) in _finished(missing, executor):
        seconds[task.label] = took["seconds"]
        kept[task.label] = result
        if into is not None:
            into.write_json(_name(task), result)
            # As it is read again: what a study says does not depend on whether it was interrupted.
            kept[task.label] = json.loads((into.path / _name(task)).read_text())
        report(f"{task.label} done, {len(seconds)} of {len(missing)}{_left(began, len(seconds), len(missing))}")
    return Study(settings, [kept[t.label] for t in tasks], seconds)


def _left(began: float, done: int, total: int) -> str:
    """In words, how long the rest will take at the rate of what is done."""
    minutes = (time.monotonic() - began) / 60 / done * (total - done)
    return f", about {minutes:,.0f} min left" if minutes >= 1 else ""


def _kept(into: RunFolder, task: Task) -> dict[str, Any] | None:
    """The result of a task that an earlier run has left; None where there is none, or none that is whole."""
    if into.whole(_name(task)) is None:
        return None
    result: dict[str, Any] = json.loads((into.path / _name(task)).read_text())
    return result if (result["label"], result["seed"]) == (task.label, task.seed) else None


def _finished(tasks: list[Task], executor: Executor | None) -> Iterator[tuple[Task, Any]]:
    """Tasks and results as they end."""
    check_executor(executor)
    if executor is None:
        for task in tasks:
            yield task, task.run()
        return
    running = {executor.submit(_run_elsewhere, task): task for task in tasks}
    try:
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        for future in running:
            future.cancel()


def _run_elsewhere(task: Task) -> Any:
    """A task's result, in a process whose frames end with it: what code of the user's own raised is said here.

    Raises:
        UserError: an agent, a world or a protocol of the user's own raised an exception, or ended the process.
    """
    try:
        return task.run()
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        own = of_own_code(error)
        if own is None:
            raise
        raise UserError(f"{task.label}: {own}") from error


def _name(task: Task) -> str:
    return f"{TASKS}/{task.label}.json"


def _begin(into: RunFolder, settings: dict[str, Any]) -> None:
    """Write the manifest of a study, or find that the folder holds this one."""
    wanted = {**settings, "code": origin_named(settings["studies"])}
    made = digest_of({name: value for name, value in wanted.items() if name != "seeds"})
    into.refuse_other_run(STUDY, wanted, made=made, alike=functools.partial(_of_the_first, into.path))
    refuse_link(into.path / TASKS)
    sweep(into.path / TASKS)
    into.begin_run(STUDY, wanted, made)


def _of_the_first(folder: Path, before: Any, wanted: Any) -> tuple[Any, Any]:
    """The settings there and here, of the catalogues that both have: they do not depend on how many follow.

    Raises:
        UserError: there are more of them there.
    """
    there, here = (_count(settings.get("seeds")) for settings in (before, wanted))
    if there is None or here is None:
        return None, wanted
    first_before, first_wanted = (_first(settings, min(there, here)) for settings in (before, wanted))
    if here < there and first_before == first_wanted:
        raise UserError(
            f"cannot resume: {folder} holds a study of {there} catalogues, of which {here} are asked for: ask for at "
            "least as many, or name another folder"
        )
    return first_before, first_wanted


def _count(seeds: Any) -> int | None:
    return len(seeds) if isinstance(seeds, list) else seeds if isinstance(seeds, int) else None


def _first(settings: dict[str, Any], count: int) -> dict[str, Any]:
    seeds = settings["seeds"]
    return {**settings, "seeds": seeds[:count] if isinstance(seeds, list) else count}
