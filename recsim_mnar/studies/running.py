"""Running of studies: tasks on any executor, each result in its own file, so that an interrupted study can resume."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.progress import counted
from recsim_mnar.protocols.comparison import remarks_on
from recsim_mnar.runs.files import path_of, replacing
from recsim_mnar.runs.folder import STUDY, RunFolder
from recsim_mnar.runs.receipts import digest_of
from recsim_mnar.simulation.executor import check_executor
from recsim_mnar.simulation.own_code import of_own_code, origin_named
from recsim_mnar.simulation.pools import processes
from recsim_mnar.studies.design import Design, Result, Task, WallTimes, design_of_table
from recsim_mnar.studies.result import Study, wall_times_in

__all__ = ["TASKS", "processes", "run_study"]

TASKS, RAW, TABLE = "tasks", "raw", "study.parquet"
Report = Callable[[str], None]


def run_study(
    design: Design | Mapping[str, Any],
    *,
    folder: str | Path | None = None,
    resume: bool = False,
    save_raw: bool = False,
    executor: Executor | None = None,
    report: Report = lambda stage: None,
    warn: Report = warnings.warn,
) -> Study:
    """Run every cell of a design over its catalogues.

    Args:
        design: the design, or a table of its attributes.
        folder: folder for the results and the table of all of them, ``study.parquet``; None to write nothing.
        resume: whether to keep results that the folder holds; the design may have further levels and catalogues.
        save_raw: whether to write ``raw/CELL-CATALOGUE.parquet`` with the rows behind each mean
            (:class:`recsim_mnar.protocols.base.RawResults`).
        executor: executor over which comparisons are spread; best one of processes, since agents learn in Python. The
            results do not depend on it. None to run one comparison after another.
        report: called with a line as comparisons end.
        warn: called with a sentence where a factor changes less, or more, than it seems to.

    Raises:
        UserError: a cell cannot be run, or the folder holds another study.
    """
    if not isinstance(design, Design):
        design = design_of_table(design)
    if save_raw and folder is None:
        raise UserError("save_raw: name a folder for the raw results")
    cells = design.all_cells()
    manifest = design.manifest()
    report(f"{len(cells)} {'cell' if len(cells) == 1 else 'cells'} x {design.catalogues} catalogues")
    for remark in remarks_on(
        [cell.setup for cell in cells]
    ):  # raises for a cell that cannot be run, before any comparison begins
        warn(remark)
    if folder is None:
        return _run_missing(design.tasks(), manifest, None, executor, report, save_raw=False)
    with RunFolder.fill(path_of(folder), resume=resume, what="--out") as into:
        _begin_study(into, manifest)
        study = _run_missing(design.tasks(), manifest, into, executor, report, save_raw=save_raw)
        with into.recording(TABLE) as path:
            _write_table(study, path)
    return study


def _run_missing(
    tasks: list[Task],
    manifest: Mapping[str, Any],
    into: RunFolder | None,
    executor: Executor | None,
    report: Report,
    *,
    save_raw: bool,
) -> Study:
    """Run the tasks whose results do not exist yet, write each result as it ends, and return the study of all.

    Args:
        tasks: all tasks of the study.
        manifest: manifest of the design.
        into: folder with earlier results, to which results are written; None to keep them in memory only.
        executor: executor to run tasks on, or None.
        report: called with a line as tasks end.
        save_raw: whether to write the rows behind each mean.
    """
    results: dict[str, Result] = {}
    seconds: dict[str, WallTimes] = {}
    if into is not None:
        for task in tasks:
            earlier = _earlier_result(into, task, save_raw)
            if earlier is not None:
                results[task.label] = earlier
        seconds = wall_times_in(into.path)
    missing = [t for t in tasks if t.label not in results]
    if results:
        report(f"{len(results)} of {len(tasks)} already existed")
    numeric = _factors_with_numbers(tasks)
    advance = counted(len(missing), "comparisons")
    for done, (task, (result, wall_times, raw)) in enumerate(_run_each(missing, executor, save_raw), start=1):
        seconds[task.label] = wall_times
        results[task.label] = result
        if into is not None:
            if raw is not None:
                (into.path / RAW).mkdir(exist_ok=True)
                with into.recording(_raw_file(task)) as path:
                    write_parquet(_with_columns_of_cell(raw.table(), result, numeric), path)
            into.write_json(_result_file(task), result)
            # Read back from the file, as a resumed run does: so both give the same study, down to the types.
            results[task.label] = json.loads((into.path / _result_file(task)).read_text())
        report(f"{task.label} done, {done} of {len(missing)}")
        advance(1)
    return Study(manifest, [results[t.label] for t in tasks], seconds)


def _with_columns_of_cell(table: Any, result: Result, numeric: Collection[str]) -> Any:
    """Prepend the columns of a task to its raw results: levels, catalogue and seed, the same in every row.

    Args:
        table: Arrow table of the raw results.
        result: result of the same task.
        numeric: factors whose levels are all numbers; other levels become text, so that all files have the same types.

    Returns:
        an Arrow table, the new columns dictionary-encoded.
    """
    import pyarrow as pa

    columns = {}
    for name, level in result["levels"].items():
        if name in numeric:
            columns[name] = pa.array([level], pa.float64())
        else:
            columns[name] = pa.array([str(level)])
    columns["catalogue"] = pa.array([result["catalogue"]], pa.int64())
    columns["seed"] = pa.array([result["seed"]], pa.uint64())
    indices = pa.array(np.zeros(table.num_rows, np.int32))  # every row has the dictionary's only value
    for place, (name, value) in enumerate(columns.items()):
        table = table.add_column(place, name, pa.DictionaryArray.from_arrays(indices, value))
    return table


def _factors_with_numbers(tasks: Sequence[Task]) -> set[str]:
    """Return the names of the factors whose levels are all numbers."""
    all_levels = [task.cell.levels for task in tasks]
    text = {name for levels in all_levels for name, level in levels.items() if not _is_number(level)}
    return {name for levels in all_levels for name in levels} - text


def _is_number(level: Any) -> bool:
    return isinstance(level, (int, float)) and not isinstance(level, bool)


def _write_table(study: Study, path: Path) -> None:
    """Write the study's table as Parquet, without times; the levels of a factor become text if their types differ."""
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


def _earlier_result(into: RunFolder, task: Task, save_raw: bool) -> Result | None:
    """Return the result of a task from an earlier run.

    Args:
        into: folder of the study.
        task: the task.
        save_raw: whether the task's raw results are needed as well.

    Returns:
        The result; None if a file is missing or incomplete, or is of another task.
    """
    if into.whole(_result_file(task)) is None or (save_raw and into.whole(_raw_file(task)) is None):
        return None
    result: Result = json.loads((into.path / _result_file(task)).read_text())
    if (result["cell"], result["catalogue"], result["seed"]) != (task.cell.label, task.catalogue, task.seed):
        return None
    return result


def _run_each(tasks: list[Task], executor: Executor | None, keep_raw: bool) -> Iterator[tuple[Task, Any]]:
    """Yield each task with what :meth:`Task.run` returns, in the order in which tasks end.

    Args:
        tasks: tasks to run.
        executor: executor to run them on; None to run one after another in this process.
        keep_raw: whether to collect the rows behind each mean.
    """
    check_executor(executor)
    if executor is None:
        for task in tasks:
            yield task, task.run(keep_raw=keep_raw)
        return
    running = {executor.submit(_run_elsewhere, task, keep_raw): task for task in tasks}
    try:
        for future in as_completed(running):
            yield running[future], future.result()
    finally:  # after an error, or if the caller stops early
        for future in running:
            future.cancel()


def _run_elsewhere(task: Task, keep_raw: bool) -> Any:
    """Run a task in a process of an executor.

    Errors in the user's own code are turned into messages here, since an exception loses its frames, and with them the
    place in the code, on the way to the main process.

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


def _result_file(task: Task) -> str:
    return f"{TASKS}/{task.label}.json"


def _raw_file(task: Task) -> str:
    return f"{RAW}/{task.label}.parquet"


def _begin_study(into: RunFolder, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a study to its folder.

    Raises:
        UserError: the folder holds a study that is not part of this one.
    """
    manifest_with_code = {**manifest, "code": origin_named(manifest["cells"])}
    # Results depend on the seeds and on their own cell, so that a study may gain cells and catalogues.
    made = digest_of({name: manifest[name] for name in ("first_seed", "seed")})
    into.refuse_other_run(STUDY, manifest_with_code, made=made, alike=functools.partial(_comparable_parts, into.path))
    into.begin_run(STUDY, manifest_with_code, made)


def _comparable_parts(folder: Path, before: Any, now: Any) -> tuple[Any, Any]:
    """Return the parts of two manifests that must be equal for the earlier study to be extended.

    Further cells and catalogues do not change earlier ones, so these are left out.

    Args:
        folder: folder of the study, for messages.
        before: manifest in the folder.
        now: manifest of the study to run.

    Returns:
        part of ``before``: None if it is no manifest of a study.
        part of ``now``: for the cells and the code that ``before`` has.

    Raises:
        UserError: the earlier study has cells or catalogues that this one does not have.
    """
    cells = before.get("cells")
    if not isinstance(cells, dict) or not isinstance(before.get("catalogues"), int):
        return None, now
    missing = [label for label in cells if label not in now["cells"]]
    if missing:
        raise UserError(
            f"cannot resume: {folder} holds a study with the cell {missing[0]}, which is not asked for: ask for its "
            "cells too, or name another folder"
        )
    if now["catalogues"] < before["catalogues"]:
        raise UserError(
            f"cannot resume: {folder} holds a study of {before['catalogues']} catalogues, of which "
            f"{now['catalogues']} are asked for: ask for at least as many, or name another folder"
        )
    code = before.get("code", {})
    part_before = {"first_seed": before.get("first_seed"), "seed": before.get("seed"), "cells": cells, "code": code}
    part_now = {
        "first_seed": now["first_seed"],
        "seed": now["seed"],
        "cells": {label: now["cells"][label] for label in cells},
        "code": {name: digest for name, digest in now["code"].items() if name in code},
    }
    return part_before, part_now
