"""run_study: tasks on any executor, each result a file of its own, so that an interrupted study is taken up."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import refuse_link, sweep, told_in, write_json
from recsim_mnar.log.filled_folder import FilledFolder, filling, is_filled_here
from recsim_mnar.log.made_with import differences as version_differences
from recsim_mnar.log.made_with import made_with
from recsim_mnar.log.owned_folder import holder_of
from recsim_mnar.log.receipts import INDEX, JOURNAL, digest_of
from recsim_mnar.protocols.records import plain
from recsim_mnar.protocols.setup import Setup
from recsim_mnar.simulation.origin import origin_named
from recsim_mnar.simulation.own_code import of_own_code
from recsim_mnar.simulation.pools import processes
from recsim_mnar.studies.result import Study
from recsim_mnar.studies.tasks import Task, filled, labels_of, tasks_of

__all__ = ["MANIFEST", "TASKS", "differences", "processes", "run_study", "study_folder"]

MANIFEST = "study.json"
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
    labels, number = labels_of(setups), len(tasks) // max(len(setups), 1)
    named = labels if len(labels) <= _NAMED else [f"{labels[0]} to {labels[-1]}, each"]
    for label in named:
        report(f"{label}: {number} catalogue{'s' if number > 1 else ''}")
    for setup in setups:
        setup.resolved()
    if folder is None:
        return _run(tasks, settings, None, executor, report)
    with study_folder(Path(folder), resume) as into:
        _begin(into, settings, resume)
        return _run(tasks, settings, into, executor, report)


def _run(
    tasks: list[Task], settings: dict[str, Any], into: FilledFolder | None, executor: Executor | None, report: Report
) -> Study:
    kept = {} if into is None else {t.label: found for t in tasks if (found := _kept(into, t)) is not None}
    missing = [t for t in tasks if t.label not in kept]
    if len(missing) < len(tasks):
        report(f"{len(tasks) - len(missing)} of {len(tasks)} were there already")
    seconds: dict[str, float] = {}
    began = time.monotonic()
    for task, (result, took) in _finished(missing, executor):
        seconds[task.label] = took["seconds"]
        kept[task.label] = result
        if into is not None:
            with into.recording(_name(task)) as path:
                write_json(path, result)
            # As it is read again: what a study says does not depend on whether it was interrupted.
            kept[task.label] = json.loads(path.read_text())
        report(f"{task.label} done, {len(seconds)} of {len(missing)}{_left(began, len(seconds), len(missing))}")
    return Study(settings, [kept[t.label] for t in tasks], seconds)


def _left(began: float, done: int, total: int) -> str:
    """In words, how long the rest will take at the rate of what is done."""
    minutes = (time.monotonic() - began) / 60 / done * (total - done)
    return f", about {minutes:,.0f} min left" if minutes >= 1 else ""


def _kept(into: FilledFolder, task: Task) -> dict[str, Any] | None:
    """The result of a task that an earlier run has left; None where there is none, or none that is whole."""
    if into.whole(_name(task)) is None:
        return None
    result: dict[str, Any] = json.loads((into.path / _name(task)).read_text())
    return result if (result["label"], result["seed"]) == (task.label, task.seed) else None


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
        own = of_own_code(error)
        if own is None:
            raise
        raise UserError(f"{task.label}: {own}") from error


def _name(task: Task) -> str:
    return f"{TASKS}/{task.label}.json"


@contextlib.contextmanager
def study_folder(folder: Path, resume: bool) -> Iterator[FilledFolder]:
    """Own the folder of a study while it is filled: a new one, or with ``resume`` one that holds a study.

    Raises:
        UserError: it holds something else, cannot be written, or another process owns it.
    """
    holds = any((folder / name).exists() for name in (MANIFEST, INDEX, JOURNAL))
    if (folder / MANIFEST).exists() and not resume and holder_of(folder) is None and not is_filled_here(folder):
        raise UserError(
            f"--out {folder} exists and is not empty: name another folder, or remove it first (--resume takes up the "
            "study that it holds)"
        )
    with filling(folder, resume=resume and holds, what="--out") as into:
        yield into


def _begin(into: FilledFolder, settings: dict[str, Any], resume: bool) -> None:
    """Write the manifest of a study, or find that the folder holds this one."""
    wanted = json.loads(json.dumps(settings))
    code = origin_named(wanted["studies"])
    made = digest_of({"studies": wanted["studies"], "seed": wanted["seed"], "code": code})
    manifest = into.path / MANIFEST
    if resume:
        _check_before(into, wanted, code, made)
        refuse_link(into.path / TASKS)
        sweep(into.path / TASKS)
    into.begin(made, made_with())
    if not manifest.exists():
        into.made_here(manifest)
    write_json(manifest, {**wanted, "code": code, "made_with": made_with()})
    into.at_the_end(MANIFEST)


def _check_before(into: FilledFolder, wanted: dict[str, Any], code: dict[str, str], made: str) -> None:
    """Raise UserError where the folder holds a study that is not this one, or the first catalogues of it."""
    folder, manifest = into.path, into.path / MANIFEST
    found = into.take_up()
    try:
        before = json.loads(told_in(manifest)) if manifest.exists() else None
        there = None if before is None else _count(before["seeds"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        before = there = None
    if before is None or there is None:
        if found.made != made and (manifest.exists() or found.made is not None):
            raise UserError(f"--resume: {manifest} is missing or damaged: restore it, or name another folder")
        return
    versions = before.pop("made_with", None)
    if versions is None:
        raise UserError(f"--resume: {folder} holds a study of a version that kept no receipts: name another folder")
    here = _count(wanted["seeds"])
    wanted = {**wanted, "code": code}
    changed = differences(_first(before, min(there, here)), _first(wanted, min(there, here)))
    if not changed and here < there:
        raise UserError(
            f"--resume: {folder} holds a study of {there} catalogues, of which {here} are asked for: ask for at "
            "least as many, or name another folder"
        )
    if changed:
        raise UserError(f"--resume: {folder} holds a study that differs in {', '.join(changed)}: name another folder")
    others = version_differences(versions if isinstance(versions, dict) else {}, made_with())
    if others:
        raise UserError(
            f"--resume: {folder} holds a study that was made with other versions: {', '.join(others)}; restore them, "
            "or name another folder"
        )


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
