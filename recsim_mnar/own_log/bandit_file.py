"""Decisions of a bandit log: how to read them, blocks and files of them, and their problems."""

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
    """The user's statements about a file.

    Attributes:
        columns: column by role (reward, propensity, action, user, time, logger, weight); None or left out: recognised.
        context: columns that the logging policy saw.
        key: column by which rows of a second file are found.
        by: column of segments.
        drop_missing: whether to drop rows without a value that is needed.
        drop_invalid: share of rows with a value that cannot be read up to which they are dropped; None to refuse them.
        fold_case: whether values of ``by``, and items of policies' columns, are equal in any capitals.
        deduplicate: whether to keep only the first of rows that are equal in every column.
        separate_events: whether rows that are equal in every column are separate events, not copies.
        today: name of a policy that may have the column of the propensities, as it logged the rows; None if none may.
        decimal: decimal mark of a text file, "." or ","; None to detect it.
        target_is: contents of policies' columns: "item", "probability"; None to detect them.
        times: whether to read a column of times into ``others``.
        propensities_of: event that propensities of slates are of: position, conditional, slate or set; None to detect
            it.
        exact: True if columns have the names of this package's logs, or those stated, so that nothing is recognised or
            noted.
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
        """True if the user states more about columns and rows than reading this package's own logs needs."""
        leaves_out = self.drop_missing or self.deduplicate or self.drop_invalid is not None
        return leaves_out or any(self.columns.values()) or bool(self.context)


def but_for_slates(columns: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return columns by role without those of slates and positions."""
    return {role: name for role, name in columns.items() if role not in ("slate", "position")}


BLOCK_ROWS = 1 << 19
"""Number of rows of a block."""


@dataclass(frozen=True)
class Block:
    """Consecutive decisions of a log.

    Attributes:
        columns: (n,) numbers by name.
        user: (n,) numbers of the users; None if rows are independent.
        numbers: (n,) row numbers in the file, from 1 below the header.
        action: (n,) numbers of the items shown; None if not needed.
        digest: (n,) hashes, equal for rows that are equal in the columns compared for copies; None if not needed.
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
        """Concatenate blocks, and select ``rows`` of the result: an index, a slice or a mask of NumPy."""

        def join(arrays: Sequence[Any]) -> Any:
            """Concatenate one column of all blocks; None if they lack it. One array is not copied."""
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
        source: name of the file in messages.
        columns: columns by role.
        reward: (n,) rewards.
        propensity: (n,) propensities; None without such a column.
        user: ids of the users; None without such a column.
        action: ids of the logged actions; None if they are not needed or some are missing.
        logger: ids of the policies that logged the rows; None without such a column.
        key: ids by which rows of a second file are found; None without such a column.
        segment: values of the column of segments, with code -1 for a missing one; None without such a column.
        again: (n,) which rows are copies of an earlier one; None if no row is known to be.
        policies: (n,) probability of the logged action by policy, from the file's own columns.
        others: (n,) further columns of numbers, by name.
        context: by column, (n,) numbers or ids.
        row_numbers: (n,) rows in the file, from 1 below the header.
        lines: notes for a person on columns used and rows left out.
        counts: rows, organic_rows, duplicates, coincidences, by_chance, dropped_duplicates, dropped_missing,
            dropped_invalid, kept, if they are not 0.
        exact: True if no column had to be recognised (:attr:`Reading.exact`).
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
        """Columns (n,) of policies: their probabilities, or the numbers or ids that were read as context."""
        return {**self.policies, **self.context}

    @property
    def users(self) -> NDArray[np.int64] | None:
        """(n,) numbers of the users, None if rows are independent."""
        if self.user is None:
            return None
        return self.user.codes

    @property
    def weight(self) -> Floats | None:
        """(n,) number of rows that each row stands for; None without weights, or if all have one positive weight."""
        name = self.columns.get("weight")
        if name is None:
            return None
        values = self.others[name]
        if values[0] > 0.0 and np.all(values == values[0]):
            return None
        return values

    @property
    def chances(self) -> Floats | None:
        """(n,) propensities divided by relative weights of rows; None without propensities.

        Sums of 1 / chance over rows then are weighted sums of 1 / propensity, with weights of mean 1.
        """
        weight = self.weight
        if self.propensity is None or weight is None:
            return self.propensity
        return self.propensity * (float(weight.mean()) / weight)

    def kept(self, keep: NDArray[np.bool_]) -> BanditFile:
        """Select the rows marked in ``keep`` (n,)."""

        def select(values: Any) -> Any:
            """Select the rows of an array, of ids, or of each value of a dictionary; None stays None."""
            if isinstance(values, dict):
                return {name: select(column) for name, column in values.items()}
            if isinstance(values, Ids):
                return Ids(values.codes[keep], values.ids)
            if values is None:
                return None
            return values[keep]

        names = ("reward", "propensity", "user", "action", "logger", "key", "segment", "policies", "others", "context")
        return replace(self, **{name: select(getattr(self, name)) for name in (*names, "row_numbers", "again")})

    def clusters(self) -> Clusters | None:
        """Return the users as clusters of dependent rows; None if rows are independent."""
        codes = self.users
        if codes is None:
            return None
        if np.any(codes[1:] < codes[:-1]):
            # Text ids seldom come in alphabetical order, but often user by user: nothing to sort then.
            import pandas as pd

            by_order = pd.factorize(codes)[0].astype(np.int64)
            if np.all(by_order[1:] >= by_order[:-1]):
                codes = by_order
        clusters = Clusters.of(codes, len(self), self.columns["user"])
        assert clusters is not None
        return replace(clusters, again=self.again)

    def values(self) -> LogColumns:
        """Return the columns that estimators read.

        Raises:
            UserError: there are no propensities.
        """
        if self.propensity is None:
            raise UserError(
                f"{self.source}: no column is recognised as the propensity. Name it with --propensity-column"
            )
        return LogColumns(self.reward, self.propensity, self.clusters(), self.policies, self.row_numbers)


@dataclass(frozen=True)
class WeighedLog:
    """Facts for a report on the rows behind estimates, which identify no user.

    Attributes:
        rows: number of rows.
        users: number of users, None if rows are independent.
        mean_reward: weighted mean reward of the rows: the value of the policy that logged them.
        counts: numbers of rows read and left out, by the names of :attr:`BanditFile.counts`.
        weights: (n,) target / propensity by policy; empty without propensities.
    """

    rows: int
    users: int | None
    mean_reward: float
    counts: dict[str, int] = field(default_factory=dict)
    weights: dict[str, Floats] = field(default_factory=dict)

    @staticmethod
    def of(log: BanditFile) -> WeighedLog:
        """Summarise a log as it was read for the estimates."""
        users = None if log.users is None else int(np.unique(log.users).size)
        weights = {}
        if log.propensity is not None:
            weights = {name: values / log.propensity for name, values in log.policies.items()}
        counts = {}
        if not log.exact:
            counts = {name: n for name, n in log.counts.items() if n and ":" not in name}
        return WeighedLog(len(log), users, float(np.average(log.reward, weights=log.weight)), counts, weights)


NOTE, PROBLEM = "note", "problem"
"""Levels: worth knowing; or estimates from the file would be wrong, or a command would refuse it."""


@dataclass(frozen=True)
class Problem:
    """One problem or remark.

    Attributes:
        code: stable name, for programs.
        level: :data:`NOTE` or :data:`PROBLEM`.
        message: the problem, with counts and rows (from 1 below the header).
        advice: what to do; empty if there is nothing to do.
        columns: columns that it concerns.
    """

    code: str
    level: str
    message: str
    advice: str = ""
    columns: tuple[str, ...] = ()

    @staticmethod
    def of(code: str, level: str, *columns: str, **params: Any) -> Problem:
        """Create a problem with the texts of ``findings.toml``.

        Args:
            code: key of the texts.
            level: :data:`NOTE` or :data:`PROBLEM`.
            *columns: columns that it concerns; the first two are ``column`` and ``other`` in the texts.
            **params: further parameters of the texts; ``says`` and ``do`` choose another case of them.
        """
        return Problem(code, level, *texts_of(code, columns, params), columns)

    def to_dict(self) -> Mapping[str, object]:
        """Return the fields as JSON types."""
        return dict(vars(self))

    def __str__(self) -> str:
        if self.advice:
            return f"{self.message}: {self.advice}"
        return self.message


def texts_of(code: str, columns: tuple[str, ...], params: Mapping[str, Any]) -> tuple[str, str]:
    """Return the texts of a code for some columns: the problem and what to do."""
    parameters = {**dict(zip(("column", "other"), columns, strict=False)), **params}
    return written(code, "says", parameters), written(code, "do", parameters)


_SAMPLED = 1 << 18
"""Number of rows from which coincidences are estimated."""
_ROW_NUMBERS = ("", "unnamed0", "rownumber", "rownum")
"""Names of columns of row numbers, such as the index that pandas writes, by which copies differ."""


def chance_of(
    tables: Iterable[Rows],
    columns: Columns,
    group: Sequence[str],
    seen: tuple[Sequence[str], Mapping[str, Sequence[Any]]],
    digests: NDArray[np.uint64],
) -> tuple[float, bool]:
    """Estimate how many rows are equal to an earlier one by chance, and whether more are.

    None are by chance if a column differs in all rows that differ, as a request's number does, or if the whole log is
    written twice. Large logs are sampled by group.

    Args:
        tables: all rows, in any number of tables.
        columns: columns by role.
        group: columns of users, times and the like, in which rows must be equal to be compared.
        seen: columns in which rows are equal, and by column the values of the first rows.
        digests: (m,) hashes of all rows, equal for rows that are equal in these columns.

    Returns:
        expected: number of rows that are equal to an earlier one by chance.
        more: True if more rows are, so that some are copies.
    """
    rows_alike = np.unique(digests, return_counts=True)[1]
    if np.gcd.reduce(rows_alike) > 1:  # every different row occurs 2, 4, ... times, or 3, 6, ...
        return 0.0, True
    numbering = _numbering_columns(*seen)
    one_in = np.uint64(max(1, digests.size // _SAMPLED))
    sample = _sample(tables, columns, group, numbering, digests, one_in)
    n_equal = n_repeats(sample["row"])
    # Rows with equal numbers are equal in all columns, so that the numbers are of requests, and equal rows are copies.
    if any(n_repeats(sample[f"number {name}"]) == n_equal for name in numbering):
        return 0.0, True
    probability = None
    if "propensity" in columns:
        probability = np.clip(sample["propensity"], 0.0, 1.0)
    expected, more = repeats_by_chance(
        sample["row"], sample["group"], sample["item"], sample["item and reward"], probability
    )
    return expected * float(one_in), more


def _sample(
    tables: Iterable[Rows],
    columns: Columns,
    group: Sequence[str],
    numbering: Sequence[str],
    digests: NDArray[np.uint64],
    one_in: np.uint64,
) -> dict[str, NDArray[Any]]:
    """Draw one in ``one_in`` groups of rows, and hash the columns that :func:`chance_of` compares.

    Returns:
        For the rows drawn, hashes under "row", "group", "item", "item and reward" and, for each column of
        ``numbering``, "number" with its name; and, if there are any, the propensities.
    """
    item = [columns[role] for role in ("action", "item") if role in columns][:1]
    item_and_reward = [*item, *(columns[role] for role in ("reward",) if role in columns)]
    parts: dict[str, list[NDArray[Any]]] = defaultdict(list)
    begin = 0
    for table in tables:
        end = begin + len(table)
        groups = table.digests(group)
        sampled = groups % one_in == 0  # whole groups, as hashes are uniform
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
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _numbering_columns(names: Sequence[str], head: Mapping[str, Sequence[Any]]) -> list[str]:
    """List columns that differ in all of the first rows that differ, as a request's number does."""
    texts = {name: [str(value) for value in head[name]] for name in names if name in head}
    different_rows = len(set(zip(*texts.values(), strict=True)))
    return [name for name, values in texts.items() if len(set(values)) == different_rows]


def columns_of_copies(names: Sequence[str]) -> list[str]:
    """List the columns in which copies are equal: all but one of row numbers."""
    return [name for name in names if plain_name(name) not in _ROW_NUMBERS]


def exact_columns(file: TableFile, reading: Reading) -> Columns:
    """Find the columns by the names of this package's logs, or by those stated; nothing else is recognised."""
    named: dict[str, str | None] = {"reward": "reward", "propensity": "propensity"}
    also = ["user", "event", "action", *(["time"] if reading.times else [])]
    named |= {role: role for role in also if role in file.names}
    named |= {role: name for role, name in reading.columns.items() if name is not None}
    return find_columns(file.path.name, file.names, named=named)


def context_values(rows: Rows, name: str) -> Floats | Ids:
    """Read a column of context: numbers (NaN where missing) if all values are, otherwise ids; faults are ignored."""
    import pyarrow as pa

    ids = rows.quiet().ids(name)
    if ids.ids.dtype.kind in "iuf":
        return np.append(ids.ids.astype(np.float64), np.nan)[ids.codes]
    numbers, _, bad = text_numbers(pa.array(ids.ids.astype(str)), rows.decimal)
    if bad.any() or ids.number == 0:
        return ids
    return np.append(numbers, np.nan)[ids.codes]


def names_behind(mark: str, counts: Counter[str]) -> list[str]:
    """Return the names of counts that begin with a prefix, without it."""
    return [name.removeprefix(mark) for name in counts if name.startswith(mark)]
