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
from recsim_mnar.replays.probabilities import Policies, Replayed, added, check_replayable, replay_blocks
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
    """Replay of policies on a log in files.

    Attributes:
        log: in files.
        survey: of it.
        policies: by the names of their columns.
        logging: the policy under which the log was collected, where it is known.
        executor: to spread blocks of users over.
        progress: called with the number of rows done since the last call.
        fitted_on: what the policies were fitted on, for the provenance; see
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
            UserError: there is one.
        """
        check_replayable(self.survey.highest_item, self.policies, self.logging)

    @property
    def provenance(self) -> dict[str, Any]:
        """Build the provenance of the replayed log."""
        return {**self.log.provenance, **self.fitted_on}

    def _blocks(self) -> Iterator[Columns]:
        return (block.columns for block in self.log.blocks(SHARD_USERS, self.survey.with_gaps))

    def to_file(self, out: Path, form: str) -> None:
        """Write one file, as the rows at once would be written, and its receipt.

        Args:
            out: the file.
            form: as :func:`recsim_mnar.log.table.write_stream`.

        Raises:
            UserError: the log cannot be read, or is none, or a policy answers with what is no probability.
            OSError: the file cannot be written.
        """

        def write(path: Path) -> None:
            write_stream(path, self._columns(), self.provenance, form)

        if form == "csv":
            write(out)
        else:
            write_file(out, self.survey.n_rows, write)

    def _columns(self) -> Iterator[Columns]:
        """Yield the columns of each block, followed by those of the policies."""
        waiting: collections.deque[Columns] = collections.deque()

        def kept() -> Iterator[Columns]:
            for block in self._blocks():
                waiting.append(block)
                yield block

        of_policies = functools.partial(added, frozenset(self.policies))
        for result in replay_blocks(kept(), self.policies, self.logging, of_policies, self.executor):
            columns = waiting.popleft()
            self.progress(len(columns["user"]))
            yield {**columns, **result}

    def to_folder(self, out: Path, asked: dict[str, Any], *, resume: bool = False) -> int:
        """Write a folder: ``log/`` with parts of 8,192 users and their receipts, ``replay.json`` and ``index.json``.

        Args:
            out: a new folder, or with ``resume`` that of an interrupted run.
            asked: what was asked for, for the manifest; JSON types only.
            resume: keep the parts that are what their receipts say, and make the others.

        Returns:
            how many parts were kept.

        Raises:
            UserError: as :meth:`to_file`; or the folder holds something else, or what was made otherwise.
        """
        n_parts = -(-self.survey.n_users // (SHARD_USERS * PART_SHARDS))
        run_config = {**asked, "log": digest_of_files(self.log.parts), "format": _FORM}
        settings = {**run_config, "code": origin_of(*self.policies.values())}
        with (
            RunFolder.fill(out, resume=resume, what="--out") as into,
            parts_of(into, REPLAY, settings, n_parts) as parts,
        ):
            return self._fill(parts, n_parts)

    def _fill(self, parts: RunFolder, n_parts: int) -> int:
        lacks = [parts.whole(part_path(parts.path, i).name) is None for i in range(n_parts)]
        blocks = (block for i, block in enumerate(self._blocks()) if lacks[i // PART_SHARDS])
        result = replay_blocks(blocks, self.policies, self.logging, dict, self.executor)
        n_blocks = -(-self.survey.n_users // SHARD_USERS)
        for i in np.flatnonzero(lacks).tolist():
            rows = list(itertools.islice(result, min(PART_SHARDS, n_blocks - i * PART_SHARDS)))
            record_part(parts, i, rows, self.provenance, _FORM)
            self.progress(sum(len(row["user"]) for row in rows))
        return n_parts - sum(lacks)


def digest_of_files(parts: Parts) -> str:
    """A digest of the bytes of a log."""
    receipts = {}
    if parts.index is not None:
        receipts = parts.index.receipts
    digests = [receipts[file.name].sha256 if file.name in receipts else file_digest(file) for file in parts.files]
    return digest_of(digests)
