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
from recsim_mnar.tables.values import MISSING, Faults, Ids, in_rows, listed

_Places = tuple[NDArray[np.int64], NDArray[np.bool_]]
"""For each decision (n,), the code of its key in the file, and True if the file lacks the key (the code is then 0)."""
TOLERANCE = 1e-3
"""Largest difference from 1 of the sum of a row's probabilities, which may be rounded."""


@dataclass(frozen=True)
class Distributions:
    """A policy's probabilities of every candidate action.

    Attributes:
        table: (m, K) probabilities, one row per key.
        rows: (n,) row of each decision in the table.
        actions: (n,) number of the logged action: its index among the candidates, or K and more if it is none of them.
        candidates: (K,) ids of the candidate actions.
        n_actions: number of candidates plus number of logged actions that are no candidates.
    """

    table: Floats
    rows: NDArray[np.int64]
    actions: NDArray[np.int64]
    candidates: list[str]
    n_actions: int

    def logged(self) -> Floats:
        """Return the probability (n,) of the logged action; 0 for actions that are no candidates."""
        is_candidate = self.actions < len(self.candidates)
        # Other actions have no column in the table; column 0 stands for them until their value is replaced by 0.
        return np.where(is_candidate, self.table[self.rows, np.where(is_candidate, self.actions, 0)], 0.0)

    def largest(self) -> float:
        """Return the largest probability of any action in the decisions; at most 1, which rounding may exceed."""
        return min(float(self.table[np.unique(self.rows)].max()), 1.0)

    def __call__(self, rows: NDArray[np.int64]) -> Floats:
        """Return the probabilities (m, n_actions) of all actions in the decisions ``rows``."""
        probabilities = self.table[self.rows[rows]]
        n_not_candidates = self.n_actions - probabilities.shape[1]  # logged actions that the policy never takes
        if n_not_candidates == 0:
            return probabilities
        return np.hstack([probabilities, np.zeros((len(probabilities), n_not_candidates))])


@dataclass
class Targets:
    """A target file's probabilities for the decisions of a log.

    Attributes:
        policies: by policy, the probability (n,) of the logged action; NaN for decisions without a row in the file.
        lines: notes for a person on how the file was read.
        absent: (n,) True for decisions without a row in the file.
        distributions: by policy, the probabilities of all actions; empty unless the file has a column per action.
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
        key: column that identifies the decision of a row; None if the rows are those of the log, in order.
        names: names of the policies: columns of the file, or one name for all columns of candidate actions.
        by_action: True if each column is a candidate action.
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
            path: path of the file, or of a folder of parts.
            key: column, of the same name in the log, by which rows are found; None if they are the log's in order.
            wanted: names of policies without a column in the log; empty if the only target is the file's one column, or
                the policy whose candidate actions are its columns.
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
            code = log.key.codes_in(keys)
            place = np.maximum(code, 0)
            absent = code < 0
            lines += self._unused(log.key, keys)
        if log.key is not None and absent.all():
            raise UserError(
                f"no {self.key} of {log.source} is in {self.file.path} (for instance {_example(log.key)} and "
                f"{_example(keys)}): name the column that both have with --on"
            )
        if self.by_action:
            return self._by_action(log, rows, keys, (place, absent), lines)
        return self._by_policy(log, rows, keys, (place, absent), lines, drop_missing)

    def _unused(self, log: Ids, keys: Ids) -> Iterator[str]:
        """Yield a note on keys of the file that the log lacks; ids of ``log`` include those of rows left out."""
        n_unknown = int(np.count_nonzero(Ids(np.arange(keys.number), keys.ids).codes_in(log) < 0))
        if n_unknown:
            yield f"{n_unknown:,} keys of {self.file.path.name} are not in the log"

    def _rows(self) -> tuple[Rows, Ids, list[str]]:
        """Read the file's rows, and note keys that several different rows have as a fault.

        Returns:
            rows: the rows without exact copies.
            keys: the key of each row; its number in the file if rows have no keys.
            lines: notes for a person.
        """
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
        is_copy = repeats(rows.digests([self.key, *other_columns]))
        if is_copy.any():
            lines.append(f"{in_rows(int(is_copy.sum()))} of {self.file.path.name} left out: equal to an earlier one")
            rows = rows.kept(~is_copy)
        keys = rows.ids(self.key)
        has_key = keys.codes >= 0
        doubled = has_key & repeats(keys.codes)
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
        """Read the targets of a file with one column per policy.

        Args:
            log: the log.
            rows: rows of the file.
            keys: keys of these rows.
            at: place of each decision's key in the file.
            lines: notes for a person, which are extended.
            drop_missing: True if decisions without a probability count as absent; otherwise they are a fault.

        Raises:
            UserError: faults of the file, or a key that several decisions have.
        """
        place, absent = at
        policies = {}
        for name in self.names:
            policies[name] = rows.probabilities(name, zero=True, advice="give a probability")
        if drop_missing:
            rows.faults.forgive([MISSING])
        rows.faults.refuse(DROP)
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
        """Read the target of a file with one column per candidate action.

        Args:
            log: the log, with actions.
            rows: rows of the file.
            keys: keys of these rows.
            at: place of each decision's key in the file.
            lines: notes for a person, which are extended.

        Raises:
            UserError: faults of the file, or no column is a logged action.
        """
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
        number = {name: i for i, name in enumerate(candidates)}
        not_candidates = [str(item) for item in log.action.ids if str(item) not in number]
        number |= {name: len(candidates) + i for i, name in enumerate(not_candidates)}
        actions = np.array([number[str(item)] for item in log.action.ids], np.int64)[log.action.codes]
        name = self.names[0]
        columns_note = ""
        if prefix:
            columns_note = f" (columns {prefix}...)"
        lines.append(f"target {name}: {len(candidates)} candidate actions by {self.key or 'row'}{columns_note}")
        if not_candidates:
            lines.append(
                f"{len(not_candidates)} logged actions are not candidates, so their probability is 0: "
                f"{_some(not_candidates)}"
            )
        policy = Distributions(table, _row_of(keys)[place], actions, candidates, len(number))
        is_logged = np.zeros(len(number), np.bool_)
        is_logged[actions] = True
        not_logged = [i for i in range(len(candidates)) if not is_logged[i]]
        if not_logged:
            mass = float(table[policy.rows[~absent]][:, not_logged].sum(axis=1).mean())
            examples = _some([candidates[i] for i in not_logged])
            lines.append(
                f"{len(not_logged)} candidate actions were never logged ({examples}): "
                f"{name} gives them {100 * mass:.2g} % on average, of which the log says nothing"
            )
        return Targets({name: np.where(absent, np.nan, policy.logged())}, lines, absent, {name: policy})

    def _probabilities(self, rows: Rows, columns: Sequence[str]) -> Floats:
        """Read the probabilities (m, K) of all actions; an empty value counts as 0.

        A row whose sum is not 1 is noted as a fault, with its sum.
        """
        table = np.empty((len(rows), len(columns)))
        for place, name in enumerate(columns):
            table[:, place] = rows.probabilities(name, zero=True, advice="")
        rows.faults.forgive([MISSING])
        sums = np.nansum(table, axis=1)
        is_wrong = np.abs(sums - 1.0) > TOLERANCE
        # The message shows at most three values, so only three sums are formatted.
        written = np.array([f"{value:.6g}" for value in sums[is_wrong][:3]], object)
        texts: NDArray[Any] = np.full(len(sums), "", object)
        texts[np.flatnonzero(is_wrong)[:3]] = written
        rows.note("sum", "", is_wrong, "the probabilities do not sum to 1", values=texts)
        return np.nan_to_num(table, nan=0.0)


def _row_of(keys: Ids) -> NDArray[np.int64]:
    """Return the first row of each key, by the key's code."""
    first_rows = np.zeros(keys.number, np.int64)
    rows = np.flatnonzero(keys.codes >= 0)[::-1]  # the last assignment counts, which is that of the first row
    first_rows[keys.codes[rows]] = rows
    return first_rows


def _not_one_to_one(log: BanditFile, key: str) -> Faults:
    """Return as faults the rows of a log whose key an earlier row has: a probability belongs to one row."""
    assert log.key is not None
    faults = Faults(log.source)
    is_repeat = repeats(log.key.codes) & (log.key.codes >= 0)
    faults.add(
        "not_one_to_one",
        key,
        is_repeat,
        "stands in an earlier row of the log too",
        values=log.key.by_row(),
        numbers=log.row_numbers,
        advice="a probability of the logged action belongs to one row: name a key that does too, or --deduplicate",
    )
    return faults


def _candidates(columns: Sequence[str], logged: Sequence[str]) -> tuple[list[str], str]:
    """Recognise the candidate actions in the names of columns, which may have a common prefix (``p_1``, ``p_2``).

    Args:
        columns: names of the columns.
        logged: ids of the logged actions, at least one of which must be a candidate.

    Returns:
        candidates: ids of the candidate actions, in the order of the columns; empty if they are not recognised.
        prefix: prefix of all names; may be empty.
    """
    actions = set(logged)
    if actions & set(columns):
        return list(columns), ""
    prefix = columns[0]
    while prefix:  # the longest common prefix first
        if all(name.startswith(prefix) for name in columns):
            candidates = [name[len(prefix) :] for name in columns]
            if all(candidates) and actions & set(candidates):
                return candidates, prefix
        prefix = prefix[:-1]
    return [], ""


def _example(ids: Ids) -> str:
    """Return the first id in quotes, for a message."""
    if ids.number:
        return repr(str(ids.ids[0]))
    return "nothing"


def _some(names: Sequence[str]) -> str:
    """List at most four names, for a message."""
    return listed(names, 4)
