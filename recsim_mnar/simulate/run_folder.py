"""Folders that commands write: a new one is empty, an interrupted one can be taken up again."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import part_path, replacing, write_json, write_table
from recsim_mnar.log.packing import FORMATS, Packed, check_format, packed, rows_in, write_part
from recsim_mnar.log.table import Log
from recsim_mnar.policy.base import Policy
from recsim_mnar.policy.slates import SlatePolicy
from recsim_mnar.simulate.executor import SHARD_USERS, carrying, run_in_order
from recsim_mnar.simulate.items import as_recommender, checked_run, provenance, simulate_shard
from recsim_mnar.worlds.base import World

PART_SHARDS = 8
"""Shards of users in one Parquet part: some 800,000 rows in the sessions world."""

MANIFEST = "simulation.json"
_NOT_OF_THE_LOG = ("truth", "format")
"""Of the manifest: what says nothing of how the log was made."""


def new_folder(out: str | Path | None, kind: str, *, what: str = "folder") -> Path:
    """The folder to write: ``out`` (errors call it ``what``), or a new one under ``./runs`` named after the time.

    Raises:
        UserError: it exists and holds something.
    """
    if out is None:
        stamp = time.strftime(f"{kind}-%Y%m%d-%H%M%S")
        for suffix in itertools.chain([""], (f"-{i}" for i in itertools.count(2))):
            folder = Path("runs") / (stamp + suffix)
            if not folder.exists():
                break
    else:
        folder = Path(out)
        refuse_occupied(folder, what)
    return folder


def refuse_occupied(folder: Path, what: str = "folder") -> None:
    """Raise UserError where ``folder`` is a file or holds something; ``what`` is what the user knows it by."""
    if folder.is_file():
        raise UserError(f"{what} {folder} is a file: name a folder")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{what} {folder} exists and is not empty: name another folder, or remove it first")


@contextlib.contextmanager
def claimed(folder: Path, *, resume: bool = False, what: str = "folder") -> Iterator[None]:
    """Make ``folder`` before the work that fills it; if the work fails before it wrote a part of a log, remove it.

    So a folder that cannot be written is found at once, and a command that failed can be given again as it is. With
    ``resume`` a folder that holds a run is left as it is. ``what`` is what the user knows the folder by.

    Raises:
        UserError: it is a file, holds something, or cannot be made or written.
    """
    if resume and (folder / MANIFEST).exists():
        yield
        return
    refuse_occupied(folder, what)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{what} {folder} cannot be made: {error.strerror}; name another folder") from None
    if not os.access(folder, os.W_OK):
        raise UserError(f"{what} {folder} cannot be written: name another folder")
    try:
        yield
    except BaseException:
        if not any((folder / "log").glob("part-*")):
            _remove(folder, made)
        raise


def _remove(folder: Path, made: list[Path]) -> None:
    """Take away what a run without parts has written, and the empty folders that were made for it."""
    for file in (folder / MANIFEST, *folder.glob(".truth-*")):
        file.unlink(missing_ok=True)
    for empty in (folder / "log", *made):
        with contextlib.suppress(OSError):  # not there, or somebody else's file lies in it
            empty.rmdir()


def simulate_to(
    folder: Path,
    world: World,
    policy: Any,
    n_users: int,
    seed: int,
    *,
    training: dict[str, Any] | None = None,
    keep_truth: bool = False,
    form: str = "parquet",
    resume: bool = False,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda users: None,
) -> dict[str, int]:
    """Simulate into a folder: ``log/`` and, where asked for, ``truth.parquet`` and ``catalogue.npz``.

    A part is a fixed range of users, written under a temporary name and renamed, so an interrupted run has whole parts
    only; ``resume`` keeps those and makes the rest. Memory is bounded by a few parts.

    Args:
        folder: a new one, or with ``resume`` that of the interrupted run.
        world: where users live.
        policy: what recommends.
        n_users: how many.
        seed: of the users and of the policy's uniforms.
        training: what the policy was fitted on, for the provenance; JSON types only.
        keep_truth: write the truth too.
        form: of the parts, ``parquet`` or ``arrow`` (larger, and read without decoding).
        resume: keep what is there.
        executor: to spread shards over.
        progress: called with the number of users done since the last call.

    Returns:
        users, rows and parts of the whole log, and how many parts were kept.

    Raises:
        UserError: the folder holds something else, or a run of other parameters; or as
            :func:`recsim_mnar.simulate.items.simulate`.
    """
    policy = as_recommender(world, policy)
    n_users, seed = checked_run(world, policy, n_users, seed, 0)
    if keep_truth and world.truth_column is None:
        raise UserError(f"the {world.name} world has no truth column: it says no expected reward; ask for no truth")
    run_config = {**provenance(world, policy, n_users, seed), "training": training, "truth": keep_truth}
    run_config["format"] = check_format(form)
    manifest = folder / MANIFEST
    if resume and manifest.exists():
        before = json.loads(manifest.read_text())
        if before != json.loads(json.dumps(run_config)):
            changed = sorted(key for key in run_config if before.get(key) != json.loads(json.dumps(run_config[key])))
            raise UserError(
                f"cannot resume: {folder} holds a run that differs in {', '.join(changed)}: name another folder"
            )
    with claimed(folder, resume=resume):
        write_json(manifest, run_config)
        (folder / "log").mkdir(exist_ok=True)
        return _fill(folder, world, policy, run_config, executor, progress)


def _fill(
    folder: Path,
    world: World,
    policy: Policy | SlatePolicy,
    run_config: dict[str, Any],
    executor: Executor | None,
    progress: Callable[[int], None],
) -> dict[str, int]:
    """Make the parts that are missing of the run that ``run_config`` tells; returns as :func:`simulate_to`."""
    n_users, seed, keep_truth, form = (run_config[key] for key in ("n_users", "seed", "truth", "format"))
    part_users = PART_SHARDS * SHARD_USERS
    firsts = list(range(0, n_users, part_users))
    missing = [i for i in range(len(firsts)) if not _part_done(folder, i, keep_truth, form)]
    progress(n_users - sum(min(part_users, n_users - firsts[i]) for i in missing))
    run_shard = carrying(_packed_shard, world, policy, seed, keep_truth, form)
    jobs = (
        functools.partial(run_shard, first, min(SHARD_USERS, n_users - first))
        for i in missing
        for first in range(firsts[i], min(firsts[i] + part_users, n_users), SHARD_USERS)
    )
    shards = run_in_order(jobs, executor)
    for i in missing:
        n_here = min(part_users, n_users - firsts[i])
        made = _counted(itertools.islice(shards, -(-n_here // SHARD_USERS)), progress)
        if keep_truth:
            write_table(_truth_table([shard.truth for shard in made]), _truth_path(folder, i))
        story = {key: value for key, value in run_config.items() if key not in _NOT_OF_THE_LOG}
        write_part(_log_path(folder, i, form), [shard.rows for shard in made], story)
    if keep_truth:
        _merge_truth(folder, len(firsts))
        with replacing(folder / "catalogue.npz") as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **world.truth_arrays(seed, n_users))  # type: ignore[arg-type]  # keywords of ours
    rows = sum(rows_in(_log_path(folder, i, form)) for i in range(len(firsts)))
    return {"users": n_users, "rows": rows, "parts": len(firsts), "kept": len(firsts) - len(missing)}


@dataclass(frozen=True)
class _Shard:
    """What a worker hands back of a few users: rows packed for the file, and the truth of those that were shown."""

    n_users: int
    rows: Packed
    truth: dict[str, Any]


def _packed_shard(
    world: World, policy: Any, seed: int, keep_truth: bool, form: str, first_user: int, n_users: int
) -> _Shard:
    """Simulate a few users, and pack their rows while they are in the caches."""
    log = Log(simulate_shard(world, policy, seed, first_user, n_users, keep_truth=keep_truth))
    truth: dict[str, Any] = {}
    if keep_truth and world.truth_column is not None:
        shown = log.is_bandit
        truth = {name: log[name][shown] for name in ("user", "step", world.truth_column)}
        del log.columns[world.truth_column]
    return _Shard(n_users, packed(log.columns, form), truth)


def _counted(shards: Iterable[_Shard], progress: Callable[[int], None]) -> list[_Shard]:
    kept = []
    for shard in shards:
        kept.append(shard)
        progress(shard.n_users)
    return kept


def _log_path(folder: Path, index: int, form: str) -> Path:
    return part_path(folder / "log", index, FORMATS[form])


def _part_done(folder: Path, index: int, keep_truth: bool, form: str) -> bool:
    done = _log_path(folder, index, form).exists()
    # The truth of a part is written before its log, so a part with a log has its truth, merged or not.
    return done and (not keep_truth or _truth_path(folder, index).exists() or (folder / "truth.parquet").exists())


def _truth_path(folder: Path, index: int) -> Path:
    return folder / f".truth-{index:05d}.parquet"


def _truth_table(truths: Sequence[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.table({name: np.concatenate([truth[name] for truth in truths]) for name in truths[0]})


def _merge_truth(folder: Path, n_parts: int) -> None:
    import pyarrow.parquet as pq

    paths = [_truth_path(folder, i) for i in range(n_parts)]
    if (folder / "truth.parquet").exists():
        for path in paths:
            path.unlink(missing_ok=True)
        return
    columns = pq.read_schema(paths[0])
    with (
        replacing(folder / "truth.parquet") as temporary,
        pq.ParquetWriter(temporary, columns, compression="zstd", compression_level=1) as writer,
    ):
        for path in paths:
            writer.write_table(pq.read_table(path))
    for path in paths:
        path.unlink()
