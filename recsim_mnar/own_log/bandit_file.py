"""A bandit log in a file as it was read: how it is to be read, its decisions, and facts about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Clusters, Floats, LogColumns
from recsim_mnar.tables.ids import Ids
from recsim_mnar.tables.roles import Columns


@dataclass(frozen=True)
class Reading:
    """How the user wants a file read.

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
        """Whether the user says more of the file than our own logs need."""
        leaves_out = self.drop_missing or self.deduplicate or self.drop_invalid is not None
        return leaves_out or any(self.columns.values()) or bool(self.context)


def but_for_slates(columns: Mapping[str, str | None]) -> dict[str, str | None]:
    """Columns by role, without those that say how rows stand in slates."""
    return {role: name for role, name in columns.items() if role not in ("slate", "position")}


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
        return None if self.user is None else self.user.codes

    @property
    def weight(self) -> Floats | None:
        """(n,) how many rows each row stands for; None where that is the same positive number for all."""
        name = self.columns.get("weight")
        if name is None:
            return None
        values = self.others[name]
        alike = values[0] > 0.0 and np.all(values == values[0])
        return None if alike else values

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
                return {name: part(each) for name, each in values.items()}
            if isinstance(values, Ids):
                return Ids(values.codes[keep], values.ids)
            return None if values is None else values[keep]

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
            codes = met if np.all(met[1:] >= met[:-1]) else codes
        found = Clusters.of(codes, len(self), self.columns["user"])
        return None if found is None else replace(found, again=self.again)

    def values(self, policies: Sequence[str] = ()) -> LogColumns:
        """What estimators read.

        Raises:
            UserError: there are no propensities.
        """
        if self.propensity is None:
            raise UserError(
                f"{self.source}: no column is recognised as the propensity. Name it with --propensity-column"
            )
        others = {name: self.policies[name] for name in policies} if policies else self.policies
        return LogColumns(self.reward, self.propensity, self.clusters(), others, self.row_numbers)


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
        users = None if log.users is None else int(np.unique(log.users).size)
        weights = {}
        if log.propensity is not None:
            weights = {name: values / log.propensity for name, values in log.policies.items()}
        told = {} if log.exact else {name: n for name, n in log.counts.items() if n and ":" not in name}
        return WeighedLog(len(log), users, float(np.average(log.reward, weights=log.weight)), told, weights)
