"""Recognise the kind of a file and the likely roles of its columns, by their names and values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import PROBLEM, Problem, Reading, but_for_slates
from recsim_mnar.own_log.odd_values import head_numbers
from recsim_mnar.own_log.shown_item import ShownItem, find_shown
from recsim_mnar.own_log.slate_estimates import endings_of, read_slates
from recsim_mnar.own_log.slate_file import SlateFile, find_slates
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import (
    GUESSED,
    USUAL_NAMES,
    Columns,
    are_amounts,
    find_columns,
    likely_columns,
    new_policies,
    option_of,
    plain_name,
)
from recsim_mnar.tables.rows import DROP
from recsim_mnar.tables.values import Decimal

HOLDS_ITEMS = "holds_items"
"""Code of a problem: columns of items that a new policy may show."""
BANDIT, INTERACTIONS, TABLE = "bandit log", "interactions", "table"
"""Kinds of files: recommendations with their outcomes; users with the items they met; anything else."""

_ROLES = ("user", "action", "reward", "propensity", "time", "logger", "event", "item")
_RATINGS = USUAL_NAMES["reward"][-1]
_LOOKED_AT = 1000
"""Number of values to inspect of a column without a role."""


@dataclass(frozen=True)
class Asked:
    """The user's statements about a file.

    Attributes:
        columns: by role (user, item, action, reward, propensity, time, logger); None or left out: recognised.
        targets: columns of target policies' probabilities of the logged action.
        guessed: roles of ``columns`` that the user did not name.
        decimal: decimal mark of a text file; None to detect it.
        propensities_of: event that propensities of slates are of, a value of ``--propensities-of``; None to detect it.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    targets: Sequence[str] = ()
    guessed: Collection[str] = ()
    propensities_of: str | None = None
    decimal: str | None = None

    def options(self) -> dict[str, str]:
        """Return the statements that are not about columns of rows, by option."""
        stated = {option_of(role): self.columns.get(role) for role in ("slate", "position")}
        stated |= {"--propensities-of": self.propensities_of, "--decimal": self.decimal}
        return {option: value for option, value in stated.items() if value is not None}


def columns_of(file: TableFile, source: str, asked: Asked) -> tuple[str, Columns, ShownItem]:
    """Recognise the kind of a file and its columns.

    Args:
        file: the table.
        source: name of the file in messages.
        asked: the user's statements about it.

    Returns:
        kind: :data:`BANDIT`, :data:`INTERACTIONS` or :data:`TABLE`.
        columns: columns by role.
        shown_item: how the column of the items shown was chosen; empty for interactions and tables.
    """
    named = asked.columns
    item = named.get("item")
    targets = asked.targets
    columns = find_columns(source, file.names, named=named, optional=_ROLES, leave=targets)
    shown_item = ShownItem()
    if item is None:
        shown_item = find_shown(file, columns, targets)
    columns = columns.with_action(shown_item.column, GUESSED, shown_item.rivals)
    unclear = dict(columns.unclear)
    targets = targets or targets_of(file, columns)
    if "propensity" not in {*columns.names, *unclear, *columns.without} and item is None:
        shares = _perhaps_propensities(file, {*columns.names.values(), *targets})
        if shares:
            unclear["propensity"] = shares
    logged = "propensity" in {*columns.names, *unclear} or (bool(targets) and item is None)
    if "reward" not in columns:
        rewards = _perhaps_rewards(file, columns, logged=logged)
        if rewards:
            unclear["reward"] = rewards
    columns = replace(columns, unclear=unclear)
    rated = plain_name(columns.get("reward") or "") in _RATINGS
    rewarded = "reward" in columns and not rated and item is None
    if logged or rewarded or asked.targets:
        is_bandit = "reward" in columns or "propensity" in columns
        return BANDIT if is_bandit else TABLE, columns, shown_item
    # No bandit log: items are those of interactions now, not of recommendations.
    named = {role: named.get(role) for role in ("user", "item", "time")}
    columns = find_columns(source, file.names, named=named, optional=("user", "item", "time", "event"))
    kind = INTERACTIONS if "user" in columns and "item" in columns else TABLE
    return kind, columns, ShownItem()


def targets_of(file: TableFile, columns: Columns) -> tuple[str, ...]:
    """List columns that are targets by their names: those written by ``replay``, and names of new policies.

    Without propensities, the latter must hold shares, since ``target`` is a name of much else.
    """
    free = [name for name in file.names if name not in columns.names.values()]
    targets = [name for name in free if f"{name}_unsupported" in file.names]
    named = new_policies(free)
    if named and "propensity" not in columns:
        head = file.head()
        named = [name for name in named if len(np.unique(shares_in(head.get(name, ()), file.decimal))) > 1]
    return tuple(dict.fromkeys([*targets, *named]))


def shares_in(column: Sequence[Any], decimal: Decimal) -> Floats:
    """Return the first values (n,) of a column if all are in [0, 1] and not only 0 and 1; otherwise none, (0,)."""
    values = head_numbers([value for value in column[:_LOOKED_AT] if not isinstance(value, bool)], decimal)
    if values is None or np.any((values < 0.0) | (values > 1.0)) or not np.any((values > 0.0) & (values < 1.0)):
        return np.zeros(0)
    return values


def _perhaps_propensities(file: TableFile, used: Collection[str]) -> tuple[str, ...]:
    """List unused columns whose first values are all in (0, 1]: likely propensity columns."""
    shares = {name: shares_in(column, file.decimal) for name, column in file.head().items() if name not in used}
    return tuple(name for name, values in shares.items() if values.size and values.min() > 0.0)


def _perhaps_rewards(file: TableFile, columns: Columns, *, logged: bool) -> tuple[str, ...]:
    """List columns that could be the reward, the likeliest first.

    If several columns have usual names of rewards, these are the candidates, those of zeros and ones first. Otherwise
    all columns of zeros and ones are, those with a word for an outcome first, and then numbers named as amounts.

    Args:
        file: the table.
        columns: columns by role.
        logged: True if the file seems to have propensities; without them and without usual names there is no candidate.
    """
    candidates = columns.unclear.get("reward", ())
    if not candidates and not logged:
        return ()
    binary = []
    amounts = []
    for name, values in file.head().items():
        numbers = head_numbers(values, file.decimal)
        if name in columns.names.values() or numbers is None:
            continue
        if set(numbers) == {0.0, 1.0}:
            binary.append(name)
        elif are_amounts(name):
            amounts.append(name)
    if candidates:
        return tuple(sorted(candidates, key=lambda name: name not in binary))
    likely = likely_columns("reward", file.names)
    return (*sorted(binary, key=lambda name: name not in likely), *amounts)


@dataclass(frozen=True)
class SlateFacts:
    """Contents of a file of slates.

    Attributes:
        slates: number of slates; None if they could not be read.
        propensities_of: by column, the kind of its probabilities.
        columns: columns of slates and positions by role.
        lines: notes for a person on how the file was read.
    """

    slates: int | None
    propensities_of: dict[str, str]
    columns: dict[str, str]
    lines: Sequence[str]


@dataclass(frozen=True)
class KnownSlates:
    """A file of slates and its contents.

    Attributes:
        file: the file.
        columns: column by role, named or recognised.
        recognised: roles that the user did not name.
        facts: the contents.
    """

    file: SlateFile
    columns: dict[str, str | None]
    recognised: frozenset[str]
    facts: SlateFacts


def slates_of_file(file: TableFile, asked: Asked) -> tuple[KnownSlates | None, list[Problem]]:
    """Read a file of slates, without faulty rows.

    Returns:
        slates: the file and its contents; None for a file of single items.
        problems: problems of the slates, or the reason why they cannot be read.
    """
    slate_file = find_slates(file, asked.columns, endings_of(asked.targets, file.names))
    if slate_file is None:
        return None, []
    named = {role: name for role, name in asked.columns.items() if role != "item"}
    reading = Reading(named, drop_missing=True, drop_invalid=1.0, propensities_of=asked.propensities_of)
    facts = SlateFacts(None, {}, slate_file.columns, ["one row per position"])
    names = {}
    try:
        log = read_slates(slate_file, reading, asked.targets)
    except UserError as error:
        problems = [Problem("slates_not_read", PROBLEM, str(error).removeprefix(f"{slate_file.file.path}: "))]
    else:
        problems = []
        by_role = log.log.columns.names
        names = {role: by_role[role] for role in ("user", "propensity", "reward") if role in by_role}
        kinds = {name: kind for kind, name in log.kinds.items()}
        facts = replace(facts, slates=log.slates.number, propensities_of=kinds, lines=log.lines)
        both = (slate_file.columns["slate"], slate_file.columns["position"])
        missing = {name: log.log.counts[f"lacks:{name}"] for name in both}
        examples = ", ".join(f"{name} {n:,}" for name, n in missing.items() if n)
        if examples:
            problems.append(Problem.of("missing", PROBLEM, *both, listed=examples, drop=DROP))
        problems += log.slates.problems
        if not log.main and log.slates.size:
            problems.append(Problem("unclear_propensities", PROBLEM, *log.unclear, ("propensity",)))
    columns = but_for_slates(asked.columns)
    recognised = frozenset(role for role in names if columns.get(role) is None)
    columns |= {role: names[role] for role in recognised}
    return KnownSlates(slate_file, columns, recognised, facts), problems
