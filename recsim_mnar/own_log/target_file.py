"""Read targets from a second file with one column per policy, or per candidate action, joined by a key."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import BanditFile
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.rows import DROP, Rows, repeats
from recsim_mnar.tables.values import MISSING, Faults, Ids, in_rows, listed, percent_lines

_Places = tuple[NDArray[np.int64], NDArray[np.bool_]]
TOLERANCE = 1e-3
"""Largest difference from 1 of the sum of a row's probabilities, which may be rounded."""


@dataclass(frozen=True)
class Distributions:
    """A policy's probabilities of every candidate action.

    Attributes:
        table: (m, K) probabilities, one row per key.
        rows: (n,) row of each decision in the table.
        actions: (n,) number of the logged action, K and more for actions that are no candidates.
        candidates: (K,) ids of the candidate actions.
        n_actions: number of candidates and of logged actions that are none.
    """

    table: Floats
    rows: NDArray[np.int64]
    actions: NDArray[np.int64]
    candidates: list[str]
    n_actions: int

    def logged(self) -> Floats:
        """Return the probability (n,) of the logged action, 0 for actions that are no candidates."""
        is_candidate = self.actions < len(self.candidates)
        return np.where(is_candidate, self.table[self.rows, np.where(is_candidate, self.actions, 0)], 0.0)

    def largest(self) -> float:
        """Return the largest probability of any action in the decisions."""
        return min(float(self.table[np.unique(self.rows)].max()), 1.0)

    def __call__(self, rows: NDArray[np.int64]) -> Floats:
        """Return the probabilities (m, n_actions) of all actions in the decisions ``rows``."""
        probabilities = self.table[self.rows[rows]]
        more = self.n_actions - probabilities.shape[1]
        if more == 0:
            return probabilities
        return np.hstack([probabilities, np.zeros((len(probabilities), more))])


@dataclass
class Targets:
    """A target file's probabilities for the decisions of a log.

    Attributes:
        policies: (n,) probability of the logged action by policy, NaN for decisions without a row in the file.
        lines: notes for a person on how the file was read.
        absent: (n,) which decisions have no row in the file.
        distributions: probabilities of all actions by policy, if the file has a column per candidate action.
    """

    policies: dict[str, Floats]
    lines: list[str]
    absent: NDArray[np.bool_]
    distributions: dict[str, Distributions] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetFile:
    """A file of targets.

    Attributes:
        file: the table.
        key: column that identifies the decision of a row; None if its rows are those of the log, in order.
        names: policies to read: columns, or one name for the columns of candidate actions.
        by_action: whether its columns are candidate actions.
    """

    file: TableFile
    key: str | None
    names: tuple[str, ...]
    by_action: bool

    @staticmethod
    def open(
        path: str | os.PathLike[str], key: str | None, wanted: Sequence[str], log: Sequence[str] = ()
    ) -> TargetFile:
        """Open a file and find the policies in it.

        Args:
            path: as :meth:`TableFile.open`.
            key: the column by which its rows are found, of the same name in the log; None for row by row.
            wanted: policies without a column in the log; empty if the file's one column, or its actions, are the only
                target.
            log: columns of the log.

        Raises:
            UserError: no such file or column; some of the policies are columns and some are not.
        """
        file = TableFile.open(path)
        both = [name for name in file.names if name in log]
        if key is None and both:
            raise UserError(
                f"{path}: it has column {both[0]!r} of the log: if rows are found by it, add --on {both[0]}"
            )
        if key is not None and key not in file.names:
            raise UserError(f"{path} has no column {key!r}; {nearest(key, file.names)} (--on)")
        other_columns = [name for name in file.names if name != key]
        wanted = wanted or (other_columns if len(other_columns) == 1 else ())
        there = [name for name in wanted if name in file.names]
        if there and len(there) < len(wanted):
            other = next(name for name in wanted if name not in there)
            raise UserError(
                f"neither the log nor {path} has a column {other!r}; {nearest(other, file.names)} (--target)"
            )
        if len(wanted) > 1 and not there:
            raise UserError(
                f"neither the log nor {path} has the columns {', '.join(wanted)}; a file with one column per candidate "
                "action is one policy: give it one name with --target, or none"
            )
        if there:
            return TargetFile(file, key, tuple(wanted), False)
        return TargetFile(file, key, tuple(wanted) or (Path(path).name.split(".")[0],), True)

    def read(self, log: BanditFile, *, drop_missing: bool = False) -> Targets:
        """Find the targets of a log's decisions.

        Args:
            log: the log with ``key``, and with ``action`` if this file has a column per candidate action.
            drop_missing: whether rows of the file without a probability count as absent.

        Raises:
            UserError: one line with every fault of the file.
        """
        rows, keys, lines = self._rows()
        if log.key is None:
            if len(rows) != log.counts["rows"]:
                raise UserError(
                    f"{self.file.path} has {len(rows):,} rows and {log.source} {log.counts['rows']:,}: without a key "
                    "they must be the same rows in the same order. Name the column that both have with --on"
                )
            place = log.row_numbers - 1
            absent = np.zeros(len(log), np.bool_)
        else:
            place, absent = _matched(log.key, keys)
            lines += self._unused(log.key, keys, place[~absent])
        if log.key is not None and absent.all():
            raise UserError(
                f"no {self.key} of {log.source} is in {self.file.path} (for instance {_example(log.key)} and "
                f"{_example(keys)}): name the column that both have with --on"
            )
        if self.by_action:
            return self._by_action(log, rows, keys, (place, absent), lines)
        return self._by_policy(log, rows, keys, (place, absent), lines, drop_missing)

    def _unused(self, log: Ids, keys: Ids, used: NDArray[np.int64]) -> Iterator[str]:
        """Describe keys of the file that no decision has: of rows that were left out, or of no row at all."""
        unused = int(keys.number - len(np.unique(used)))
        every = Ids(np.arange(log.number), log.ids)  # of the rows that were left out for a missing value, too
        place, absent = _matched(every, keys)
        unknown = int(keys.number - len(np.unique(place[~absent])))
        if unused - unknown:
            yield f"{unused - unknown:,} keys of {self.file.path.name} belong to rows of the log that are left out"
        if unknown:
            yield f"{unknown:,} keys of {self.file.path.name} are not in the log"

    def _rows(self) -> tuple[Rows, Ids, list[str]]:
        """Read the file's rows, one per key; returns them with their keys and notes for a person."""
        if self.by_action:
            other_columns = [name for name in self.file.names if name != self.key]
        else:
            other_columns = list(self.names)
        kinds = dict.fromkeys(other_columns, "number")
        if self.key is not None:
            kinds[self.key] = "id"
        rows = self.file.read(kinds)
        written = ", ".join(self.file.how_written())
        lines = [f"{self.file.path}: {in_rows(len(rows))}" + (f" ({written})" if written else "")]
        if self.key is None:
            return rows, Ids(np.arange(len(rows)), np.arange(len(rows))), lines
        again = repeats(rows.digests([self.key, *other_columns]))
        if again.any():
            lines.append(f"{in_rows(int(again.sum()))} of {self.file.path.name} left out: equal to an earlier one")
            rows = rows.kept(~again)
        keys = rows.ids(self.key)
        known_keys = keys.codes >= 0
        doubled = known_keys & repeats(keys.codes)
        rows.note(
            "doubled",
            self.key,
            doubled,
            "repeats an earlier key with other values",
            values=keys.by_row(),
            advice="a key needs one row of targets",
        )
        return rows, keys, lines

    def _by_policy(
        self, log: BanditFile, rows: Rows, keys: Ids, at: _Places, lines: list[str], drop_missing: bool
    ) -> Targets:
        place, absent = at
        policies = {}
        for name in self.names:
            policies[name] = rows.probabilities(name, zero=True, advice="give a probability")
        if drop_missing:
            rows.faults.forgive([MISSING])
        rows.faults.refuse(DROP)
        lines += percent_lines(rows.faults.percents)
        if self.key is not None:
            _not_one_to_one(log, self.key).refuse()
        row = _row_of(keys)[place]
        for values in policies.values():
            absent = absent | np.isnan(values[row])
        lines.append(
            f"targets by {self.key or 'row'}: {', '.join(self.names)}, the probability of each row's logged action"
        )
        return Targets(
            {name: np.where(absent, np.nan, values[row]) for name, values in policies.items()}, lines, absent
        )

    def _by_action(self, log: BanditFile, rows: Rows, keys: Ids, at: _Places, lines: list[str]) -> Targets:
        place, absent = at
        assert log.action is not None
        columns = [name for name in self.file.names if name != self.key]
        candidates, prefix = _candidates(columns, [str(item) for item in log.action.ids])
        if not candidates:
            raise UserError(
                f"the columns of {self.file.path} ({_some(columns)}) are neither policies named with --target nor "
                f"logged actions ({_some([str(item) for item in log.action.ids])}, column {log.columns['action']!r}); "
                "--action-column names the log's column of actions"
            )
        table = self._probabilities(rows, columns)
        rows.faults.refuse()
        lines += percent_lines(rows.faults.percents)
        number = {name: i for i, name in enumerate(candidates)}
        more = [str(item) for item in log.action.ids if str(item) not in number]
        number |= {name: len(candidates) + i for i, name in enumerate(more)}
        actions = np.array([number[str(item)] for item in log.action.ids], np.int64)[log.action.codes]
        name = self.names[0]
        behind = ""
        if prefix:
            behind = f" (columns {prefix}...)"
        lines.append(f"target {name}: {len(candidates)} candidate actions by {self.key or 'row'}{behind}")
        if more:
            lines.append(f"{len(more)} logged actions are not candidates, so their probability is 0: {_some(more)}")
        law = Distributions(table, _row_of(keys)[place], actions, candidates, len(number))
        is_shown = np.zeros(len(number), np.bool_)
        is_shown[actions] = True
        never = [i for i in range(len(candidates)) if not is_shown[i]]
        if never:
            mass = float(table[law.rows[~absent]][:, never].sum(axis=1).mean())
            lines.append(
                f"{len(never)} candidate actions were never logged ({_some([candidates[i] for i in never])}): "
                f"{name} gives them {100 * mass:.2g} % on average, of which the log says nothing"
            )
        return Targets({name: np.where(absent, np.nan, law.logged())}, lines, absent, {name: law})

    def _probabilities(self, rows: Rows, columns: Sequence[str]) -> Floats:
        """Read the probabilities (m, K); empty values are 0 if the row sums to 1 without them."""
        table = np.empty((len(rows), len(columns)))
        for place, name in enumerate(columns):
            table[:, place] = rows.probabilities(name, zero=True, advice="")
        rows.faults.forgive([MISSING])
        sums = np.nansum(table, axis=1)
        off = np.abs(sums - 1.0) > TOLERANCE
        written = np.array([f"{value:.6g}" for value in sums[off][:3]], object)
        texts: NDArray[Any] = np.full(len(sums), "", object)
        texts[np.flatnonzero(off)[:3]] = written
        rows.note("sum", "", off, "the probabilities do not sum to 1", values=texts)
        return np.nan_to_num(table, nan=0.0)


def _matched(log: Ids, file: Ids) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the code (n,) in the file of each of the log's keys, and which have none (code 0)."""
    code = log.codes_in(file)
    return np.maximum(code, 0), code < 0


def _row_of(keys: Ids) -> NDArray[np.int64]:
    """Return the first row (number,) of each key."""
    first_rows = np.zeros(keys.number, np.int64)
    rows = np.flatnonzero(keys.codes >= 0)[::-1]
    first_rows[keys.codes[rows]] = rows
    return first_rows


def _not_one_to_one(log: BanditFile, key: str) -> Faults:
    """Find keys in several rows of the log: a probability of the logged action belongs to one row."""
    assert log.key is not None
    faults = Faults(log.source)
    again = repeats(log.key.codes) & (log.key.codes >= 0)
    faults.add(
        "not_one_to_one",
        key,
        again,
        "stands in an earlier row of the log too",
        values=log.key.by_row(),
        numbers=log.row_numbers,
        advice="a probability of the logged action belongs to one row: name a key that does too, or --deduplicate",
    )
    return faults


def _candidates(columns: Sequence[str], logged: Sequence[str]) -> tuple[list[str], str]:
    """Return the ids of the candidate actions in column names, and their common prefix; empty if they are none."""
    actions = set(logged)
    if actions & set(columns):
        return list(columns), ""
    prefix = columns[0]
    while prefix:
        if not all(name.startswith(prefix) for name in columns):
            prefix = prefix[:-1]
            continue
        cut = [name[len(prefix) :] for name in columns]
        if all(cut) and actions & set(cut):
            return cut, prefix
        prefix = prefix[:-1]
    return [], ""


def _example(ids: Ids) -> str:
    if ids.number:
        return repr(str(ids.ids[0]))
    return "nothing"


def _some(names: Sequence[str]) -> str:
    return listed(names, 4)
