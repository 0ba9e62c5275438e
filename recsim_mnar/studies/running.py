"""run_study: tasks on any executor, each result a file of its own, so that an interrupted study is taken up."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.progress import counted
from recsim_mnar.runs.files import path_of, replacing
from recsim_mnar.runs.folder import STUDY, RunFolder
from recsim_mnar.runs.receipts import digest_of
from recsim_mnar.simulation.executor import check_executor
from recsim_mnar.simulation.own_code import of_own_code, origin_named
from recsim_mnar.simulation.pools import processes
from recsim_mnar.studies.design import Design, Result, Task, Took, design_of_table
from recsim_mnar.studies.result import Study

__all__ = ["TASKS", "processes", "run_study"]

TASKS, RAW, TABLE, TIMINGS = "tasks", "raw", "study.parquet", "timings.json"
Report = Callable[[str], None]


def run_study(
    design: Design | Mapping[str, Any],
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    save_raw: bool = False,
    executor: Executor | None = None,
    report: Report = lambda stage: None,
) -> Study:
    """Run every cell of a design over its catalogues.

    Args:
        design: what is compared, or its attributes as a table.
        folder: for the results, and the table of them all, ``study.parquet``; nothing is written where None.
        resume: keep the results that the folder holds; the design may have more levels and more catalogues than those.
        save_raw: write ``raw/CELL-CATALOGUE.parquet``, what each value is the mean of
            (:class:`recsim_mnar.protocols.base.RawResults`).
        executor: to spread comparisons over: processes, as agents learn in Python; the results do not depend on it.
        report: called with a line as comparisons end.

    Raises:
        UserError: a cell that cannot be, or a folder that holds another study.
    """
    if isinstance(design, Design):
        made = design
    else:
        made = design_of_table(design)
    if save_raw and folder is None:
        raise UserError("save_raw: name a folder for the raw results")
    cells = made.all_cells()
    manifest = made.manifest()
    report(f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'} x {made.catalogues} catalogues")
    for cell in cells:
        cell.setup.resolved()
    if folder is None:
        return _run(made.tasks(), manifest, None, executor, report, save_raw=False)
    with RunFolder.fill(path_of(folder), resume=resume, what="--out") as into:
        _begin(into, manifest)
        study = _run(made.tasks(), manifest, into, executor, report, save_raw=save_raw)
        with into.recording(TABLE) as path:
            _write_table(study, path)
    return study


def _run(
    tasks: list[Task],
    manifest: Mapping[str, Any],
    into: RunFolder | None,
    executor: Executor | None,
    report: Report,
    *,
    save_raw: bool,
) -> Study:
    if into is None:
        kept = {}
    else:
        kept = {t.label: found for t in tasks if (found := _kept(into, t, save_raw)) is not None}
    missing = [t for t in tasks if t.label not in kept]
    if len(missing) < len(tasks):
        report(f"{len(tasks) - len(missing)} of {len(tasks)} already existed")
    if into is None:
        seconds = {}
    else:
        seconds = _earlier_seconds(into)
    numeric = _numeric_factors(tasks)
    advance = counted(len(missing), "comparisons")
    for done, (task, (result, took, raw)) in enumerate(_finished(missing, executor, save_raw), start=1):
        seconds[task.label] = took
        kept[task.label] = result
        if into is not None:
            if raw is not None:
                (into.path / RAW).mkdir(exist_ok=True)
                with into.recording(_raw_name(task)) as path:
                    write_parquet(_with_cell(raw.table(), result, numeric), path)
            into.write_json(_name(task), result)
            # As it is read again: what a study says does not depend on whether it was interrupted.
            kept[task.label] = json.loads((into.path / _name(task)).read_text())
        report(f"{task.label} done, {done} of {len(missing)}")
        advance(1)
    return Study(manifest, [kept[t.label] for t in tasks], seconds)


def _with_cell(table: Any, result: Result, numeric: Collection[str]) -> Any:
    """Raw results with the columns that the study's table has before its own: levels, catalogue, seed.

    Args:
        table: raw results of a cell and catalogue.
        result: of these.
        numeric: factors all of whose levels are numbers; other levels are text, so that all files have the same types.
    """
    import pyarrow as pa

    levels = {
        name: pa.array([level], pa.float64()) if name in numeric else pa.array([str(level)])
        for name, level in result["levels"].items()
    }
    columns = {
        **levels,
        "catalogue": pa.array([result["catalogue"]], pa.int64()),
        "seed": pa.array([result["seed"]], pa.uint64()),
    }
    first = pa.array(np.zeros(table.num_rows, np.int32))
    for place, (name, value) in enumerate(columns.items()):
        table = table.add_column(place, name, pa.DictionaryArray.from_arrays(first, value))
    return table


def _numeric_factors(tasks: Sequence[Task]) -> set[str]:
    """Names of the factors all of whose levels are numbers."""
    all_levels = [task.cell.levels for task in tasks]
    text = {name for levels in all_levels for name, level in levels.items() if not _is_number(level)}
    return {name for levels in all_levels for name in levels} - text


def _is_number(level: Any) -> bool:
    return isinstance(level, (int, float)) and not isinstance(level, bool)


def _write_table(study: Study, path: Path) -> None:
    """Write the study's table as Parquet, without times; factors are text where levels are of several types."""
    import pyarrow as pa

    frame = study.frame().drop(columns="seconds")
    for name in study.factors:
        if frame[name].map(type).nunique() > 1:
            frame[name] = frame[name].map(str)
    write_parquet(pa.Table.from_pandas(frame, preserve_index=False), path)


def write_parquet(table: Any, path: Path) -> None:
    """Write an Arrow table under a temporary name, and rename it."""
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary)


def _earlier_seconds(into: RunFolder) -> dict[str, Took]:
    """Read the seconds of earlier tasks from ``timings.json``, which bears no receipt."""
    path = into.path / TIMINGS
    if not path.is_file():
        return {}
    try:
        tasks = json.loads(path.read_text()).get("tasks", {})
    except (ValueError, AttributeError):
        return {}
    if isinstance(tasks, dict):
        return tasks
    return {}


def _kept(into: RunFolder, task: Task, save_raw: bool) -> Result | None:
    """Return the result of a task from an earlier run; None where it is missing or incomplete."""
    if into.whole(_name(task)) is None or (save_raw and into.whole(_raw_name(task)) is None):
        return None
    result: Result = json.loads((into.path / _name(task)).read_text())
    same = (result["cell"], result["catalogue"], result["seed"]) == (task.cell.label, task.catalogue, task.seed)
    if same:
        return result
    return None


def _finished(tasks: list[Task], executor: Executor | None, keep_raw: bool) -> Iterator[tuple[Task, Any]]:
    """Tasks and results as they end."""
    check_executor(executor)
    if executor is None:
        for task in tasks:
            yield task, task.run(keep_raw=keep_raw)
        return
    running = {executor.submit(_run_elsewhere, task, keep_raw): task for task in tasks}
    try:
        for future in as_completed(running):
            yield running[future], future.result()
    finally:
        for future in running:
            future.cancel()


def _run_elsewhere(task: Task, keep_raw: bool) -> Any:
    """Compute a task's result; errors of the user's own code are described here, while their frames exist.

    Raises:
        UserError: an agent, a world or a protocol of the user's own raised an exception, or ended the process.
    """
    try:
        return task.run(keep_raw=keep_raw)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        own_code = of_own_code(error)
        if own_code is None:
            raise
        raise UserError(f"{task.label}: {own_code}") from error


def _name(task: Task) -> str:
    return f"{TASKS}/{task.label}.json"


def _raw_name(task: Task) -> str:
    return f"{RAW}/{task.label}.parquet"


def _begin(into: RunFolder, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a study, or find that the folder holds a part of this one."""
    wanted_manifest = {**manifest, "code": origin_named(manifest["cells"])}
    made = digest_of({name: manifest[name] for name in ("first_seed", "seed")})
    into.refuse_other_run(STUDY, wanted_manifest, made=made, alike=functools.partial(_common, into.path))
    into.begin_run(STUDY, wanted_manifest, made)


def _common(folder: Path, before: Any, wanted: Any) -> tuple[Any, Any]:
    """Get what two designs have in common; more cells and catalogues here change none of those there.

    Raises:
        UserError: there are more of them there.
    """
    cells = before.get("cells")
    if not isinstance(cells, dict) or not isinstance(before.get("catalogues"), int):
        return None, wanted
    missing = [label for label in cells if label not in wanted["cells"]]
    if missing:
        raise UserError(
            f"cannot resume: {folder} holds a study with the cell {missing[0]}, which is not asked for: ask for its "
            "cells too, or name another folder"
        )
    if wanted["catalogues"] < before["catalogues"]:
        raise UserError(
            f"cannot resume: {folder} holds a study of {before['catalogues']} catalogues, of which "
            f"{wanted['catalogues']} are asked for: ask for at least as many, or name another folder"
        )
    code = before.get("code", {})
    there = {name: before.get(name) for name in ("first_seed", "seed")}
    here = {name: wanted[name] for name in ("first_seed", "seed")}
    return {**there, "cells": cells, "code": code}, {
        **here,
        "cells": {label: wanted["cells"][label] for label in cells},
        "code": {name: digest for name, digest in wanted["code"].items() if name in code},
    }
