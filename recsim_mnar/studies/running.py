"""run_study: tasks on any executor, each result a file of its own, so that an interrupted study is taken up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import write_json
from recsim_mnar.protocols.own_code import left_by_own_code, raised_by_own_code
from recsim_mnar.protocols.records import plain
from recsim_mnar.protocols.setup import Setup
from recsim_mnar.studies.result import Study
from recsim_mnar.studies.tasks import Task, filled, labels_of, tasks_of

MANIFEST = "study.json"
TASKS = "tasks"
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
        worlds: names, or tables of :class:`recsim_mnar.protocols.setup.Setup`'s fields (``world``, ``preset``,
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
    setups = [filled(world, agents, protocols, estimators, options or {}, tie) for world in worlds]
    tasks = tasks_of(setups, seeds, seed)
    settings = {
        "studies": [plain(asdict(s)) for s in setups],
        "seeds": seeds if isinstance(seeds, int) else list(seeds),
        "seed": seed,
    }
    for label, setup in zip(labels_of(setups), setups, strict=True):
        number = len(tasks) // len(setups)
        report(f"{label}: {number} catalogue{'s' if number > 1 else ''}")
        setup.resolved()
    where = None if folder is None else Path(folder)
    if where is not None:
        _claim(where, settings, resume)
    return _run(tasks, settings, where, executor, report)


def _run(
    tasks: list[Task], settings: dict[str, Any], folder: Path | None, executor: Executor | None, report: Report
) -> Study:
    missing = [t for t in tasks if folder is None or not _path(folder, t.label).exists()]
    if len(missing) < len(tasks):
        report(f"{len(tasks) - len(missing)} of {len(tasks)} were there already")
    found: dict[str, dict[str, Any]] = {}
    seconds: dict[str, float] = {}
    for task, (result, took) in _finished(missing, executor):
        seconds[task.label] = took["seconds"]
        if folder is None:
            found[task.label] = result
        else:
            write_json(_path(folder, task.label), result)
        report(f"{task.label} done, {len(seconds)} of {len(missing)}")
    results = [found[t.label] if folder is None else json.loads(_path(folder, t.label).read_text()) for t in tasks]
    return Study(settings, results, seconds)


def _finished(tasks: list[Task], executor: Executor | None) -> Iterator[tuple[Task, Any]]:
    """Tasks and results as they end."""
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
        own = left_by_own_code(error) if isinstance(error, SystemExit) else raised_by_own_code(error)
        if own is None:
            raise
        raise UserError(f"{task.label}: {own}") from error


def processes(n: int) -> Any:
    """An executor of so many fresh processes; None where one suffices.

    Processes and not threads: agents learn in Python, which lets one thread at a time.
    """
    import contextlib
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    if n == 1:
        return contextlib.nullcontext()
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(n, mp_context=context, initializer=_end_with_parent)


def _path(folder: Path, label: str) -> Path:
    return folder / TASKS / f"{label}.json"


def _claim(folder: Path, settings: dict[str, Any], resume: bool) -> None:
    """Make the folder of a study, or find that it holds this one."""
    wanted = json.loads(json.dumps(settings))
    manifest = folder / MANIFEST
    if resume and manifest.exists():
        before = json.loads(manifest.read_text())
        there, here = (_count(study["seeds"]) for study in (before, wanted))
        changed = differences(_first(before, min(there, here)), _first(wanted, min(there, here)))
        if not changed and here < there:
            raise UserError(
                f"--resume: {folder} holds a study of {there} catalogues, of which {here} are asked for: ask for at "
                "least as many, or name another folder"
            )
        if changed:
            raise UserError(
                f"--resume: {folder} holds a study that differs in {', '.join(changed)}: name another folder"
            )
    elif folder.exists() and any(folder.iterdir()):
        hint = " (--resume takes up the study that it holds)" if manifest.exists() else ""
        raise UserError(f"--out {folder} exists and is not empty: name another folder, or remove it first{hint}")
    (folder / TASKS).mkdir(parents=True, exist_ok=True)
    write_json(manifest, wanted)


def _count(seeds: int | list[int]) -> int:
    return seeds if isinstance(seeds, int) else len(seeds)


def _first(settings: dict[str, Any], count: int) -> dict[str, Any]:
    """The settings of a study of the first catalogues alone; they do not depend on how many follow."""
    seeds = settings["seeds"]
    return {**settings, "seeds": count if isinstance(seeds, int) else seeds[:count]}


def differences(before: Any, wanted: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, as paths with both values."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        keys = sorted({*before, *wanted})
        return [d for k in keys for d in differences(before.get(k), wanted.get(k), f"{path}.{k}" if path else k)]
    if isinstance(before, list) and isinstance(wanted, list) and len(before) == len(wanted):
        pairs = enumerate(zip(before, wanted, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{path}[{i}]")]
    return [] if before == wanted else [f"{path} ({json.dumps(before)} there, {json.dumps(wanted)} here)"]


def _end_with_parent() -> None:
    """In a worker: end when the process that started it has gone, killed or not; a pool's own workers wait for ever."""
    import multiprocessing
    import os
    import threading

    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
