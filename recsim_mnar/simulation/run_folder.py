"""Folders that commands write: a new one is empty, an interrupted one can be taken up again."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import PACKED, listed, part_path, replacing, told_in, write_json, write_table
from recsim_mnar.log.filled_folder import FilledFolder, filling, refuse_occupied
from recsim_mnar.log.made_with import differences, made_with
from recsim_mnar.log.owned_folder import holder_of
from recsim_mnar.log.parts import MANIFEST, REPLAY_MANIFEST, read_table
from recsim_mnar.log.receipts import INDEX, JOURNAL, digest_of
from recsim_mnar.log.table import Log
from recsim_mnar.log.writing import FORMATS, Columns, check_format, record_part
from recsim_mnar.policy.base import Policy
from recsim_mnar.policy.slates import SlatePolicy
from recsim_mnar.simulation.executor import SHARD_USERS, carrying, run_in_order, user_shards
from recsim_mnar.simulation.items import acts_in_python, as_recommender, checked_run, provenance, simulate_shard
from recsim_mnar.simulation.origin import origin_of
from recsim_mnar.worlds.base import World

__all__ = ["MANIFEST", "PART_SHARDS", "begin_run", "claimed", "new_folder", "refuse_occupied", "simulate_to"]

PART_SHARDS = 8
"""Shards of users in one Parquet part: some 800,000 rows in the sessions world."""

TRUTH = "truth.parquet"
CATALOGUE = "catalogue.npz"
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
        if holder_of(folder) is None:
            refuse_occupied(folder, what)
    return folder


@contextlib.contextmanager
def claimed(folder: Path, *, resume: bool = False, what: str = "folder") -> Iterator[FilledFolder]:
    """Own ``folder`` before the work that fills it, see :func:`recsim_mnar.log.filled_folder.filling`.

    With ``resume`` a folder that holds a run may be filled further. ``what`` is what the user knows the folder by.

    Raises:
        UserError: it is a file, holds something, cannot be made or written, or another process owns it.
    """
    held = any((folder / name).exists() for name in (MANIFEST, REPLAY_MANIFEST, INDEX, JOURNAL))
    with filling(folder, resume=resume and held, what=what) as into:
        yield into


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
    lane_bytes: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda users: None,
) -> dict[str, int]:
    """Simulate into a folder: ``log/`` and, where asked for, ``truth.parquet`` and ``catalogue.npz``.

    A part is a fixed range of users, written under a temporary name and renamed, and taken down in a receipt; the index
    of receipts is written last. ``resume`` keeps the parts that are what their receipts say and makes the others. One
    process owns the folder meanwhile. Memory is bounded by a few parts.

    Args:
        folder: a new one, or with ``resume`` that of the interrupted run.
        world: where users live.
        policy: what recommends.
        n_users: how many.
        seed: of the users and of the policy's uniforms.
        training: what the policy was fitted on, for the provenance; JSON types only.
        keep_truth: write the truth too.
        form: of the parts, ``parquet`` or ``arrow`` (larger, and sooner written).
        resume: keep what is there.
        lane_bytes: what the users of one shard who live side by side may take; None for what is usual.
        executor: to spread shards over.
        progress: called with the number of users done since the last call.

    Returns:
        users, rows and parts of the whole log, and how many parts were kept.

    Raises:
        UserError: the folder holds something else, or what was made otherwise (other parameters, code or versions), or
            another process writes it; or as :func:`recsim_mnar.simulation.items.simulate`.
    """
    policy = as_recommender(world, policy)
    n_users, seed = checked_run(world, policy, n_users, seed, 0)
    if keep_truth and world.truth_column is None:
        raise UserError(f"the {world.name} world has no truth column: it says no expected reward; ask for no truth")
    run_config = {**provenance(world, policy, n_users, seed), "training": training, "truth": keep_truth}
    run_config["format"] = check_format(form)
    with claimed(folder, resume=resume) as into:
        made = begin_run(into, run_config, origin_of(world, policy), len(_firsts(n_users)), resume=resume)
        with filling(folder / "log", resume=resume) as parts:
            if resume:
                parts.take_up()
            parts.begin(made, made_with())
            counts = _Run(into, parts, world, policy, run_config, executor, progress, lane_bytes).fill()
        into.record(f"log/{INDEX}")
        return counts


def begin_run(
    into: FilledFolder,
    run_config: dict[str, Any],
    code: dict[str, str],
    n_parts: int,
    *,
    resume: bool,
    name: str = MANIFEST,
) -> str:
    """Write the manifest of a run, or find that the folder holds this one; returns the digest of what makes it.

    Args:
        into: the folder, whose parts lie in its folder ``log``.
        run_config: what makes the run, JSON types only; ``format`` is that of the parts.
        code: digests of the code and files that have part in it.
        n_parts: how many parts it makes.
        resume: it may hold this run.
        name: of the manifest.

    Raises:
        UserError: the folder holds a run that was made otherwise.
    """
    wanted = {**json.loads(json.dumps(run_config)), "code": code}
    made = digest_of(wanted)
    manifest = into.path / name
    if resume:
        before = _manifest(manifest)
        versions = before.pop("made_with", None) if before is not None else None
        found = into.take_up()
        # Receipts say what made the files: a manifest that says otherwise was changed since, and is written anew.
        if found.made == made:
            versions = found.made_with
        elif before is None:
            if found.made is not None or (into.path / INDEX).exists() or manifest.exists():
                raise UserError(f"cannot resume: {manifest} is missing or damaged: restore it, or name another folder")
        elif before != wanted:
            _refuse_other(into.path, before, wanted)
        if versions is not None:
            _refuse_versions(into.path, versions)
        _refuse_strangers(into.path / "log", n_parts, run_config["format"])
    into.begin(made, made_with())
    if not manifest.exists():
        into.made_here(manifest)
    write_json(manifest, {**wanted, "made_with": made_with()})
    into.at_the_end(name)
    return made


def _manifest(path: Path) -> dict[str, Any] | None:
    """What a manifest says; None where there is none, or none that can be read."""
    try:
        found = json.loads(told_in(path))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse_other(folder: Path, before: dict[str, Any], wanted: dict[str, Any]) -> None:
    changed = sorted(key for key in {**before, **wanted} if before.get(key) != wanted.get(key))
    if changed == ["code"]:
        if "code" not in before:
            changed = ["what it says of itself (a version of this package that kept no receipts made it)"]
        else:
            names = sorted({**before["code"], **wanted["code"]})
            changed = [f"the code of {n}" for n in names if before["code"].get(n) != wanted["code"].get(n)]
    raise UserError(f"cannot resume: {folder} holds a run that differs in {', '.join(changed)}: name another folder")


def _refuse_versions(folder: Path, before: Any) -> None:
    changed = differences(before if isinstance(before, dict) else {}, made_with())
    if changed:
        raise UserError(
            f"cannot resume: {folder} holds a run that was made with other versions: {', '.join(changed)}; "
            "restore them, or name another folder"
        )


def _refuse_strangers(log: Path, n_parts: int, form: str) -> None:
    """Raise UserError for a table that lies among the parts and is none of this run's: a reader would read it."""
    if log.is_dir():
        expected = {part_path(log, i, FORMATS[form]).name for i in range(n_parts)}
        for file in listed(log):
            if file.name not in expected:
                raise UserError(f"cannot resume: {file} is no part of this run: move it away")


def _firsts(n_users: int) -> range:
    """The first user of each part."""
    return range(0, n_users, PART_SHARDS * SHARD_USERS)


@dataclass(frozen=True)
class _Run:
    """A run and the folders that it fills."""

    into: FilledFolder
    parts: FilledFolder
    world: World
    policy: Policy | SlatePolicy
    run_config: dict[str, Any]
    executor: Executor | None
    progress: Callable[[int], None]
    lane_bytes: int | None

    @property
    def keep_truth(self) -> bool:
        return bool(self.run_config["truth"])

    def fill(self) -> dict[str, int]:
        """Make the parts that are missing or damaged; returns as :func:`simulate_to`."""
        firsts = _firsts(self.run_config["n_users"])
        wants_truth = self.keep_truth and self.into.whole(TRUTH) is None
        lacks_log = [self.parts.whole(self._part_name(i)) is None for i in range(len(firsts))]
        lacks_truth = [wants_truth and self.into.whole(_truth_name(i)) is None for i in range(len(firsts))]
        missing = [i for i in range(len(firsts)) if lacks_log[i] or lacks_truth[i]]
        self.progress(self.run_config["n_users"] - sum(self._n_users(first) for first in (firsts[i] for i in missing)))
        known = {key: value for key, value in self.run_config.items() if key not in _NOT_OF_THE_LOG}
        for i, shards in zip(missing, self._shards([firsts[i] for i in missing]), strict=True):
            if lacks_truth[i]:
                with self.into.recording(_truth_name(i)) as path:
                    write_table(_truth_table([shard.truth for shard in shards]), path)
            if lacks_log[i]:
                record_part(self.parts, i, [shard.rows for shard in shards], known, self.run_config["format"])
        if self.keep_truth:
            self._write_truth(len(firsts), wants_truth)
        rows = sum(receipt.rows or 0 for receipt in self.parts.index.receipts.values())
        kept = len(firsts) - sum(lacks_log)
        return {"users": self.run_config["n_users"], "rows": rows, "parts": len(firsts), "kept": kept}

    def _n_users(self, first: int) -> int:
        return min(PART_SHARDS * SHARD_USERS, self.run_config["n_users"] - first)

    def _part_name(self, number: int) -> str:
        return part_path(self.parts.path, number, FORMATS[self.run_config["format"]]).name

    def _shards(self, firsts: list[int]) -> Iterator[list[_Shard]]:
        """The shards of parts by their first users, in order."""
        config = self.run_config
        options = {"keep_truth": self.keep_truth, "lane_bytes": self.lane_bytes}
        run_shard = carrying(
            *(_shard, self.world, self.policy, config["seed"], options),
            in_python=acts_in_python(self.policy),
        )
        jobs = (
            functools.partial(run_shard, user, n)
            for first in firsts
            for user, n in user_shards(first, self._n_users(first))
        )
        shards = run_in_order(jobs, self.executor)
        for first in firsts:
            n_shards = -(-self._n_users(first) // SHARD_USERS)
            yield _counted(itertools.islice(shards, n_shards), self.progress)

    def _write_truth(self, n_parts: int, wanted: bool) -> None:
        """Put the truth of the parts together, and write the catalogue."""
        folder = self.into.path
        if wanted:
            with self.into.recording(TRUTH) as path:
                _merge_truth(path, [folder / _truth_name(i) for i in range(n_parts)])
        for i in range(n_parts):
            self.into.drop(_truth_name(i))
        if self.into.whole(CATALOGUE) is None:
            arrays = self.world.truth_arrays(self.run_config["seed"], self.run_config["n_users"])
            with (
                self.into.recording(CATALOGUE) as path,
                replacing(path) as temporary,
                temporary.open("wb") as file,
            ):
                np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # keywords of ours


@dataclass(frozen=True)
class _Shard:
    """What a worker hands back of a few users: rows for the file, and the truth of those that were shown."""

    n_users: int
    rows: Columns
    truth: dict[str, Any]


def _shard(world: World, policy: Any, seed: int, options: dict[str, Any], first_user: int, n_users: int) -> _Shard:
    """Simulate a few users."""
    log = Log(simulate_shard(world, policy, seed, first_user, n_users, **options))
    columns: dict[str, Any] = dict(log.columns)
    truth: dict[str, Any] = {}
    if options["keep_truth"] and world.truth_column is not None:
        shown = log.is_bandit
        truth = {name: log[name][shown] for name in ("user", "step", world.truth_column)}
        del columns[world.truth_column]
    return _Shard(n_users, columns, truth)


def _counted(shards: Iterable[_Shard], progress: Callable[[int], None]) -> list[_Shard]:
    kept = []
    for shard in shards:
        kept.append(shard)
        progress(shard.n_users)
    return kept


def _truth_name(index: int) -> str:
    return f".truth-{index:05d}.parquet"


def _truth_table(truths: Sequence[dict[str, Any]]) -> Any:
    import pyarrow as pa

    return pa.table({name: np.concatenate([truth[name] for truth in truths]) for name in truths[0]})


def _merge_truth(path: Path, pieces: list[Path]) -> None:
    import pyarrow.parquet as pq

    columns = pq.read_schema(pieces[0])
    with (
        replacing(path) as temporary,
        pq.ParquetWriter(temporary, columns, **PACKED) as writer,
    ):
        for piece in pieces:
            writer.write_table(read_table(piece))
