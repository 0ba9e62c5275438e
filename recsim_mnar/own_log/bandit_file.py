"""A bandit log in a file as it was read: how it is to be read, its decisions, and what is wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.verdict import written
from recsim_mnar.log.columns import Clusters, Floats, LogColumns
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import Columns, find_columns, plain_name
from recsim_mnar.tables.rows import Rows, n_repeats, repeats_by_chance
from recsim_mnar.tables.values import Ids, text_numbers

STATED = (
    *("drop_missing", "drop_invalid", "deduplicate", "separate_events", "fold_case"),
    *("propensities_of", "decimal", "target_is"),
)
"""Fields of a :class:`Reading` that a user states under the same names."""


@dataclass(frozen=True)
class Reading:
    """The user's instructions for reading a file.

    Attributes:
        columns: column by role (reward, propensity, action, user, time, logger, weight); None or left out: recognised.
        context: columns of what the logging policy saw.
        key: column by which rows of a second file are found.
        by: column of segments.
        drop_missing: leave out rows that miss a value that is needed.
        drop_invalid: leave out rows with a value that cannot be read, up to this share of all; None: refuse them.
        fold_case: take values of ``by``, and items of policies' columns, that differ only in capitals as one.
        deduplicate: keep the first of rows that are equal in every column.
        separate_events: rows that are equal in every column are events of their own, not copies.
        today: the policy that may be the logging policy itself, its column that of the propensities; None: no policy's
            column is taken for it.
        decimal: decimal mark of a text file, "." or ","; None: found out.
        target_is: what columns of policies hold: "item", "probability"; None: found out.
        times: read the column of times, where there is one, into ``others``.
        propensities_of: what the propensities of slates are of: position, conditional, slate or set; None: found out.
        exact: nothing is recognised, and nothing is said of what was read: columns have the names of our own logs,
            or those given.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    context: Sequence[str] = ()
    key: str | None = None
    by: str | None = None
    drop_missing: bool = False
    drop_invalid: float | None = None
    fold_case: bool = False
    deduplicate: bool = False
    separate_events: bool = False
    today: str | None = None
    decimal: str | None = None
    target_is: str | None = None
    times: bool = False
    propensities_of: str | None = None
    exact: bool = False

    @property
    def says_more(self) -> bool:
        """Return whether the user says more of the file than our own logs need."""
        leaves_out = self.drop_missing or self.deduplicate or self.drop_invalid is not None
        return leaves_out or any(self.columns.values()) or bool(self.context)


def but_for_slates(columns: Mapping[str, str | None]) -> dict[str, str | None]:
    """Columns by role, without those that say how rows stand in slates."""
    return {role: name for role, name in columns.items() if role not in ("slate", "position")}


BLOCK_ROWS = 1 << 19
"""Rows of a block."""


@dataclass(frozen=True)
class Block:
    """Consecutive decisions of a log.

    Attributes:
        columns: (n,) numbers by name.
        user: (n,) int64 ids of the users, or None.
        numbers: (n,) row numbers in the file, from 1 below the header.
        action: (n,) int64 ids of the items shown, None if not needed.
        digest: (n,) equal for rows that are equal in the columns compared for copies, None if not needed.
    """

    columns: dict[str, Floats]
    user: NDArray[np.int64] | None
    numbers: NDArray[np.int64]
    action: NDArray[np.int64] | None = None
    digest: NDArray[np.uint64] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, rows: Any) -> Block:
        return Block.concat([self], rows)

    @staticmethod
    def concat(blocks: Sequence[Block], rows: Any = slice(None)) -> Block:
        """Concatenate blocks, and select ``rows`` of the result."""

        def join(arrays: Sequence[Any]) -> Any:
            if arrays[0] is None:
                return None
            return (arrays[0] if len(arrays) == 1 else np.concatenate(arrays))[rows]

        columns = {name: join([block.columns[name] for block in blocks]) for name in blocks[0].columns}
        names = ("user", "numbers", "action", "digest")
        return Block(columns, *(join([getattr(block, name) for block in blocks]) for name in names))

    @property
    def clusters(self) -> Clusters | None:
        """The users, whose rows must be consecutive; None if rows are independent."""
        if self.user is None:
            return None
        return Clusters(self.user, None)


@dataclass(frozen=True)
class BanditFile:
    """The decisions of a file, n rows.

    Attributes:
        source: the file, for messages.
        columns: which column is what.
        reward: (n,).
        propensity: (n,), None where the file has none.
        user: ids of the users, None where no column is one.
        action: ids of the logged actions, None where they are not needed or not there.
        logger: ids of the policies that logged the rows, None without such a column.
        key: ids by which rows of a second file are found.
        segment: values of the column of segments, -1 for none.
        again: (n,) which rows repeat an earlier one in every column, None where that was not looked for.
        policies: (n,) probability of the logged action by policy, from the file's own columns.
        others: (n,) further columns of numbers, by name.
        context: by column, (n,) numbers or ids.
        row_numbers: (n,) rows in the file, from 1 below the header.
        lines: what was taken and what was left out, for a person.
        counts: rows, organic_rows, duplicates, coincidences, by_chance, dropped_duplicates, dropped_missing,
            dropped_invalid, kept, those that are not 0.
        exact: as it was read, see :class:`Reading`.
    """

    source: str
    columns: Columns
    reward: Floats
    propensity: Floats | None
    policies: dict[str, Floats]
    others: dict[str, Floats]
    context: dict[str, Floats | Ids]
    row_numbers: NDArray[np.int64]
    lines: list[str]
    counts: Counter[str]
    exact: bool
    user: Ids | None = None
    action: Ids | None = None
    logger: Ids | None = None
    key: Ids | None = None
    segment: Ids | None = None
    again: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def of_policies(self) -> dict[str, Any]:
        """By column, (n,) numbers or ids of policies: their probabilities, or what else was read of them."""
        return {**self.policies, **self.context}

    @property
    def users(self) -> NDArray[np.int64] | None:
        """(n,) numbers of the users, None where rows are independent."""
        if self.user is None:
            return None
        return self.user.codes

    @property
    def weight(self) -> Floats | None:
        """(n,) how many rows each row stands for; None where that is the same positive number for all."""
        name = self.columns.get("weight")
        if name is None:
            return None
        values = self.others[name]
        alike = values[0] > 0.0 and np.all(values == values[0])
        if alike:
            return None
        return values

    @property
    def chances(self) -> Floats | None:
        """(n,) propensities, over the rows' weights where they have any: their inverses still sum to the rows."""
        weight = self.weight
        if self.propensity is None or weight is None:
            return self.propensity
        return self.propensity * (float(weight.mean()) / weight)

    def kept(self, keep: NDArray[np.bool_]) -> BanditFile:
        """The rows that are marked, (n,)."""

        def part(values: Any) -> Any:
            if isinstance(values, dict):
                return {name: part(values_of) for name, values_of in values.items()}
            if isinstance(values, Ids):
                return Ids(values.codes[keep], values.ids)
            if values is None:
                return None
            return values[keep]

        names = ("reward", "propensity", "user", "action", "logger", "key", "segment", "policies", "others", "context")
        return replace(self, **{name: part(getattr(self, name)) for name in (*names, "row_numbers", "again")})

    def clusters(self) -> Clusters | None:
        """Users, or None where rows are independent."""
        codes = self.users
        if codes is None:
            return None
        if np.any(codes[1:] < codes[:-1]):
            # Text ids seldom come in the order of the alphabet, but often user by user: nothing to sort then.
            import pandas as pd

            met = pd.factorize(codes)[0].astype(np.int64)
            if np.all(met[1:] >= met[:-1]):
                codes = met
        result = Clusters.of(codes, len(self), self.columns["user"])
        if result is None:
            return None
        return replace(result, again=self.again)

    def values(self, policies: Sequence[str] = ()) -> LogColumns:
        """Columns that estimators read.

        Raises:
            UserError: there are no propensities.
        """
        if self.propensity is None:
            raise UserError(
                f"{self.source}: no column is recognised as the propensity. Name it with --propensity-column"
            )
        targets = self.policies
        if policies:
            targets = {name: self.policies[name] for name in policies}
        return LogColumns(self.reward, self.propensity, self.clusters(), targets, self.row_numbers)


@dataclass(frozen=True)
class WeighedLog:
    """Facts about the rows behind estimates, for a report; nothing in it identifies a user.

    Attributes:
        rows: number that the estimates rest on.
        users: number of users, None where rows are taken as independent.
        mean_reward: of these rows, by their weights if they have any: what the policy that logged them earned.
        counts: rows left out and the like, as :class:`BanditFile` counts them.
        weights: (n,) target / propensity by policy; empty where propensities are not known.
    """

    rows: int
    users: int | None
    mean_reward: float
    counts: dict[str, int] = field(default_factory=dict)
    weights: dict[str, Floats] = field(default_factory=dict)

    @staticmethod
    def of(log: BanditFile) -> WeighedLog:
        """The weights of a log as it was read for the estimates."""
        users = None
        if log.users is not None:
            users = int(np.unique(log.users).size)
        weights = {}
        if log.propensity is not None:
            weights = {name: values / log.propensity for name, values in log.policies.items()}
        counts = {}
        if not log.exact:
            counts = {name: n for name, n in log.counts.items() if n and ":" not in name}
        return WeighedLog(len(log), users, float(np.average(log.reward, weights=log.weight)), counts, weights)


NOTE, PROBLEM = "note", "problem"
"""Worth knowing; or numbers made of the file would be wrong, or a command would refuse it."""


@dataclass(frozen=True)
class Problem:
    """One problem or remark.

    Attributes:
        code: stable name, for programs.
        level: :data:`NOTE` or :data:`PROBLEM`.
        message: what was found, with counts and rows (from 1 below the header).
        advice: what to do; empty where there is nothing.
        columns: where.
    """

    code: str
    level: str
    message: str
    advice: str = ""
    columns: tuple[str, ...] = ()

    @staticmethod
    def of(code: str, level: str, *columns: str, **params: Any) -> Problem:
        """The problem of a code of ``findings.toml``; its texts know ``column`` and ``other``, the first two columns.

        Args:
            code: of the table.
            level: see the class.
            *columns: where.
            **params: further ones of the texts; ``says`` and ``do`` choose another case of them.
        """
        return Problem(code, level, *texts_of(code, columns, params), columns)

    def to_dict(self) -> Mapping[str, object]:
        """For JSON."""
        return dict(vars(self))

    def __str__(self) -> str:
        if self.advice:
            return f"{self.message}: {self.advice}"
        return self.message


def texts_of(code: str, columns: tuple[str, ...], params: Mapping[str, Any]) -> tuple[str, str]:
    """Get the texts of a code for some columns: the problem and what to do."""
    parameters = {**dict(zip(("column", "other"), columns, strict=False)), **params}
    return written(code, "says", parameters), written(code, "do", parameters)


_SAMPLED = 1 << 18
"""Rows that say how many are equal by chance."""
_ROW_NUMBERS = ("", "unnamed0", "rownumber", "rownum")


def chance_of(
    tables: Iterable[Rows],
    columns: Columns,
    group: Sequence[str],
    seen: tuple[Sequence[str], Mapping[str, Sequence[Any]]],
    digests: NDArray[np.uint64],
) -> tuple[float, bool]:
    """Estimate how many rows are equal to an earlier one by chance, and whether more are.

    By chance none where a column differs in all rows that differ, as a request's number does, or where the whole log
    is written twice. Of a large log some groups are looked at.

    Args:
        tables: the rows.
        columns: which column is what.
        group: columns in which rows must be equal to be compared: of users, times and the like.
        seen: columns in which rows are equal, and the values of the first rows.
        digests: (m,) equal for rows that are equal in these columns.
    """
    rows_alike = np.unique(digests, return_counts=True)[1]
    if np.gcd.reduce(rows_alike) > 1:
        return 0.0, True
    numbering = _numbering_columns(*seen)
    item = [columns[role] for role in ("action", "item") if role in columns][:1]
    item_and_reward = [*item, *(columns[role] for role in ("reward",) if role in columns)]
    one_in = np.uint64(max(1, digests.size // _SAMPLED))
    parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
    begin = 0
    for table in tables:
        end = begin + len(table)
        groups = table.digests(group)
        sampled = groups % one_in == 0
        rows = table.kept(sampled)
        parts["row"].append(digests[begin:end][sampled])
        parts["group"].append(groups[sampled])
        parts["item"].append(rows.digests(item))
        parts["item and reward"].append(rows.digests(item_and_reward))
        for name in numbering:
            parts[f"number {name}"].append(rows.digests([name]))
        if "propensity" in columns:
            parts["propensity"].append(np.nan_to_num(rows.quiet().numbers(columns["propensity"]), nan=1.0))
        begin = end
    digests_of_rows = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    copies = n_repeats(digests_of_rows["row"])
    if any(n_repeats(digests_of_rows[f"number {name}"]) == copies for name in numbering):
        return 0.0, True
    probability = None
    if "propensity" in columns:
        probability = np.clip(digests_of_rows["propensity"], 0.0, 1.0)
    expected, more = repeats_by_chance(
        digests_of_rows["row"],
        digests_of_rows["group"],
        digests_of_rows["item"],
        digests_of_rows["item and reward"],
        probability,
    )
    return expected * float(one_in), more


def _numbering_columns(names: Sequence[str], head: Mapping[str, Sequence[Any]]) -> list[str]:
    """Columns that differ in all of the first rows that differ, as a request's number does."""
    texts = {name: [str(value) for value in head[name]] for name in names if name in head}
    different_rows = len(set(zip(*texts.values(), strict=True)))
    return [name for name, values in texts.items() if len(set(values)) == different_rows]


def columns_of_copies(names: Sequence[str]) -> list[str]:
    """Columns in which copies are equal: all but one that numbers the rows."""
    return [name for name in names if plain_name(name) not in _ROW_NUMBERS]


def exact_columns(file: TableFile, reading: Reading) -> Columns:
    """The columns by the names of our own logs, or those given."""
    named: dict[str, str | None] = {"reward": "reward", "propensity": "propensity"}
    also = ["user", "event", "action", *(["time"] if reading.times else [])]
    named |= {role: role for role in also if role in file.names}
    named |= {role: name for role, name in reading.columns.items() if name is not None}
    return find_columns(file.path.name, file.names, named=named)


def context_values(rows: Rows, name: str) -> Floats | Ids:
    """A column of context: numbers (NaN where missing) where all of it is, else ids; nothing in it is a fault."""
    import pyarrow as pa

    ids = rows.quiet().ids(name)
    if ids.ids.dtype.kind in "iuf":
        return np.append(ids.ids.astype(np.float64), np.nan)[ids.codes]
    numbers, _, bad = text_numbers(pa.array(ids.ids.astype(str)), rows.decimal)
    if bad.any() or ids.number == 0:
        return ids
    return np.append(numbers, np.nan)[ids.codes]


def names_behind(mark: str, counts: Counter[str]) -> list[str]:
    """Return the endings of the names of counts that begin with a mark."""
    return [name.removeprefix(mark) for name in counts if name.startswith(mark)]
