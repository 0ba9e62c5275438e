"""Logs with policies' probabilities as further columns, written block by block."""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.log.blocks import Columns, LogBlocks, Survey
from recsim_mnar.log.table import record_part, write_stream
from recsim_mnar.replays.probabilities import Policies, Replayed, added_columns, check_replayable, replay_blocks
from recsim_mnar.runs.folder import REPLAY, RunFolder
from recsim_mnar.runs.receipts import digest_of, file_digest
from recsim_mnar.simulation.executor import SHARD_USERS
from recsim_mnar.simulation.own_code import origin_of
from recsim_mnar.simulation.run_folder import PART_SHARDS, parts_of
from recsim_mnar.tables.files import part_path
from recsim_mnar.tables.parts import Parts, write_file

_FORM = "parquet"


@dataclass(frozen=True)
class ReplayRun:
    """Replay of policies on a log in files, which writes the log with the policies' probabilities as columns.

    Attributes:
        log: the log in files.
        survey: its number of users and rows, its largest item, and columns with missing values.
        policies: policies by the names of their columns.
        logging: policy under which the log was collected; None if unknown.
        executor: executor to spread blocks of users over.
        progress: function that is called with the number of rows done since the last call.
        fitted_on: description of the log on which the policies were fitted, for the provenance; see
            :mod:`recsim_mnar.own_log.replaying`.
    """

    log: LogBlocks
    survey: Survey
    policies: Policies
    logging: Replayed | None = None
    executor: Executor | None = None
    progress: Callable[[int], None] = lambda rows: None
    fitted_on: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse policies that cannot be replayed on this log.

        Raises:
            UserError: a policy cannot be replayed.
        """
        check_replayable(self.survey.highest_item, self.policies, self.logging)

    @property
    def provenance(self) -> dict[str, Any]:
        """Return the provenance of the replayed log."""
        return {**self.log.provenance, **self.fitted_on}

    def _blocks(self) -> Iterator[Columns]:
        """Read the log's columns in blocks of :data:`SHARD_USERS` whole users."""
        return (block.columns for block in self.log.blocks(SHARD_USERS, self.survey.with_gaps))

    def to_file(self, out: Path, form: str) -> None:
        """Write the replayed log to one file, block by block, with the bytes that writing it whole would give.

        The rows of formats other than CSV are counted in the file.

        Args:
            out: the file.
            form: format, one that :func:`recsim_mnar.log.table.write_stream` takes.

        Raises:
            UserError: the log cannot be read or is not a log, or a policy returns values that are not probabilities.
            OSError: the file cannot be written.
        """

        def write(path: Path) -> None:
            write_stream(path, self._columns(), self.provenance, form)

        if form == "csv":
            write(out)
        else:
            write_file(out, self.survey.n_rows, write)

    def _columns(self) -> Iterator[Columns]:
        """Yield each block's columns, all of the log's and then those of the policies.

        Only the policies' columns come back from the executor. The log's own columns wait in a queue, which is cheaper
        than to send them back from worker processes.
        """
        waiting: collections.deque[Columns] = collections.deque()

        def blocks() -> Iterator[Columns]:
            for block in self._blocks():
                waiting.append(block)
                yield block

        select_added = functools.partial(added_columns, frozenset(self.policies))
        for result in replay_blocks(blocks(), self.policies, self.logging, select_added, self.executor):
            columns = waiting.popleft()
            self.progress(len(columns["user"]))
            yield {**columns, **result}

    def to_folder(self, out: Path, asked: dict[str, Any], *, resume: bool = False) -> int:
        """Write a folder: ``log/`` with parts of 8,192 users and their receipts, ``replay.json`` and ``index.json``.

        Args:
            out: a new folder, or with ``resume`` that of an interrupted run.
            asked: settings of the run for the manifest; JSON types only.
            resume: True to keep the parts that match their receipts, and make the others.

        Returns:
            The number of parts that were kept.

        Raises:
            UserError: the log or a policy is refused, as by :meth:`to_file`; or the folder holds other files or a run
                with other settings.
        """
        n_parts = -(-self.survey.n_users // (SHARD_USERS * PART_SHARDS))  # rounded up
        run_config = {**asked, "log": digest_of_files(self.log.parts), "format": _FORM}
        settings = {**run_config, "code": origin_of(*self.policies.values())}
        with (
            RunFolder.fill(out, resume=resume, what="--out") as into,
            parts_of(into, REPLAY, settings, n_parts) as parts,
        ):
            return self._fill(parts, n_parts)

    def _fill(self, parts: RunFolder, n_parts: int) -> int:
        """Write the parts of the log that are missing or damaged, and return the number of those that were kept."""
        lacks = [parts.whole(part_path(parts.path, i).name) is None for i in range(n_parts)]  # missing or damaged
        blocks = (block for i, block in enumerate(self._blocks()) if lacks[i // PART_SHARDS])
        result = replay_blocks(blocks, self.policies, self.logging, reduce=dict, executor=self.executor)
        n_blocks = -(-self.survey.n_users // SHARD_USERS)  # rounded up
        for i in np.flatnonzero(lacks).tolist():
            tables = list(itertools.islice(result, min(PART_SHARDS, n_blocks - i * PART_SHARDS)))
            record_part(parts, i, tables, self.provenance, _FORM)
            self.progress(sum(len(table["user"]) for table in tables))
        return n_parts - sum(lacks)


def digest_of_files(parts: Parts) -> str:
    """Return a digest of the bytes of a log's files, from their receipts if it has an index of them."""
    receipts = {}
    if parts.index is not None:
        receipts = parts.index.receipts
    digests = [receipts[file.name].sha256 if file.name in receipts else file_digest(file) for file in parts.files]
    return digest_of(digests)
