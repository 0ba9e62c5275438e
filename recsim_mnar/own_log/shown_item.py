"""Recognise a log's columns by name, and the shown item's where several columns hold the same items."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import (
    NAMED,
    OWN_SCHEMA,
    RECOGNISED,
    Columns,
    find_columns,
    likely_columns,
    new_policies,
    say_which,
    says_shown,
    similar_columns,
)
from recsim_mnar.tables.values import Ids, text_numbers

ALIKE, IN_CAPITALS, UNCLEAR = "alike", "in capitals", "unclear"
"""How a column holds items: written as in the action column, in other capitals, or as numbers that may be items."""
_MOST, _SOME = 0.9, 0.5
"""Least share of a column's items that the log shows: of a column nobody named, and of a target."""
_NUMBER = re.compile(r"[-+]?[0-9.,]+(e[-+]?[0-9]+)?")
_FILLED = 0.5
"""Least share of the rows in which a column of items shown has a value."""
_WORDS = 0.9
"""Least share of values that are no numbers in a column of words."""


def held_items(head: Mapping[str, Sequence[Any]], action: str, name: str) -> str:
    """Return how a column holds items, by the first rows: ALIKE, IN_CAPITALS or UNCLEAR; "" if it does not.

    It does if nearly all of its values are values of the action column. Numbers could also be per cent, so that the
    name of a column of numbers must have a word for items.

    Args:
        head: first values by column.
        action: column of the items shown.
        name: column in question.
    """
    values = set(_texts(head, name)) - {""}
    if _are_numbers(values) and not likely_columns("action", [name]):
        return ""
    return _way_of_holding(values, set(_texts(head, action)), _MOST)


def _texts(head: Mapping[str, Sequence[Any]], name: str) -> list[str]:
    """Return the first values of a column as text, "" where missing."""
    return [_text_of(value) for value in head.get(name, ())]


def _are_numbers(values: Iterable[str]) -> bool:
    """Return whether all values are numbers."""
    return all(_NUMBER.fullmatch(value) for value in values)


def _held_in_file(file: TableFile, action: str, name: str) -> str:
    """Return how a target's column holds items: ALIKE, IN_CAPITALS or UNCLEAR; "" if it does not.

    Whole numbers are items if the log has them as items and they are no probabilities. 0 and 1, or numbers up to 100
    that could be per cent, are :data:`UNCLEAR` if the log has them as items and the name does not tell.
    """
    binary = {"0", "1"}
    named = bool(likely_columns("action", [name]))
    first_values = set(_texts(file.head(), name)) - {""}
    if _are_numbers(first_values) and not all(value.isdigit() for value in first_values):
        return ""
    if first_values <= binary and not named and not set(_texts(file.head(), action)) - {""} <= binary:
        return ""
    rows = file.read({name: "id", action: "id"}).quiet()
    values = set(map(str, rows.ids(name).ids))
    items_shown = set(map(str, rows.ids(action).ids))
    if values <= binary:
        return UNCLEAR if items_shown == binary or (named and values <= items_shown) else ""
    how = _way_of_holding(values, items_shown, _SOME)
    numbers = all(value.isdigit() for value in values)
    if how and numbers and max(map(int, values)) <= 100 and not named:
        return UNCLEAR
    return how


def _way_of_holding(values: set[str], shown: set[str], share: float) -> str:
    """Return how values are items: ALIKE, IN_CAPITALS or UNCLEAR; "" if too few of them were shown.

    Args:
        values: different values of a column.
        shown: different items shown.
        share: least share of the values that must be items shown.
    """
    least = share * len(values)
    if not values:
        return ""
    if len(values & shown) >= least:
        return UNCLEAR if values <= {"0", "1"} else ALIKE
    folded = {value.casefold() for value in shown}
    if sum(value.casefold() in folded for value in values) >= least:
        return IN_CAPITALS
    return ""


def _text_of(value: Any) -> str:
    """Return an id as text: 3.0, as pandas writes integers next to missing ones, is 3."""
    if value is None:
        return ""
    text = str(value).strip()
    if text.endswith(".0") and text[:-2].isdigit():
        return text[:-2]
    if text == "nan":
        return ""
    return text


def same_items(one: Ids, other: Ids, *, fold: bool = False) -> Floats:
    """Return 1.0 for rows (n,) with the same id, with ``fold`` in any capitals; 0.0 for missing ids."""
    if fold:
        one = one.folded()
        other = other.folded()
    code = one.codes_in(other)
    return ((code == other.codes) & (code >= 0)).astype(np.float64)


@dataclass(frozen=True)
class ShownItem:
    """The column of the items shown, if names alone do not tell which it is.

    Attributes:
        column: the column that was chosen; "" if none had to be, or could be.
        line: reason for the choice, for a person; "" without a choice.
        rivals: columns that hold the same items, one of which was shown; empty after a choice.
    """

    column: str = ""
    line: str = ""
    rivals: tuple[str, ...] = ()

    def refuse(self, source: str) -> None:
        """Raise UserError if the column of the items shown is not known."""
        if self.rivals:
            raise UserError(
                f"{source}: columns {' and '.join(map(repr, self.rivals))} hold the same items, and which of them was "
                f"shown is not known: {say_which('action')}, then the other one can be a target",
                code="unclear_column",
            )


def find_shown(file: TableFile, columns: Columns, policies: Sequence[str] = (), leave: Sequence[str] = ()) -> ShownItem:
    """Choose the column of the items shown among those that hold the same items, by a name such as ``shown_item``.

    Args:
        file: the log.
        columns: columns by role, as their names tell.
        policies: columns of target policies, none of which was shown.
        leave: columns with other uses.
    """
    how = columns.how
    if how.get("action") == NAMED or "action" in columns.without:
        return ShownItem()
    head = file.head()
    action = columns.get("action")
    unclear = columns.unclear.get("action", ())
    used = {name for role, name in columns.names.items() if role not in ("action", "item") or how[role] == NAMED}
    used |= {*policies, *leave, *new_policies(file.names, items=True)} - {action}
    if how.get("action") == OWN_SCHEMA:  # whose column of items viewed is empty in these rows
        used.add("item")
    seeds = unclear if action is None else (action,)
    candidates = [
        name
        for name in file.names
        if name not in used and (name == action or any(_alike(head, name, seed) for seed in seeds if seed != name))
    ]
    if len(candidates) < 2 or not set(unclear) <= set(candidates):
        return ShownItem()
    rivals = _different(head, columns, candidates)
    # Columns that are missing from ``rivals`` are mostly empty, or repeat another column.
    if len(rivals) < 2 or (action is not None and action not in rivals):
        return ShownItem()
    named = [name for name in rivals if says_shown(name)]
    if len(named) == 1:
        same = " and ".join(name for name in rivals if name != named[0])
        return ShownItem(named[0], f"action: {named[0]}, by its name; the same items are in {same}")
    return ShownItem(rivals=rivals)


def _different(head: Mapping[str, Sequence[Any]], columns: Columns, names: Sequence[str]) -> tuple[str, ...]:
    """Leave out columns of items that are mostly empty in recommendations, or repeat another one; the action stays.

    Args:
        head: first values by column.
        columns: columns by role; a row with a propensity or, without such a column, an action is a recommendation.
        names: columns of items.
    """
    action = columns.get("action")
    marking = columns.get("propensity") or action or names[0]
    is_shown = [bool(text) for text in _texts(head, marking)]
    different: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: name != action):
        items = [text.casefold() for text in itertools.compress(_texts(head, name), is_shown)]
        n_filled = sum(map(bool, items))
        if n_filled >= _FILLED * len(items) and items not in different.values():
            different[name] = items
    return tuple(name for name in names if name in different)


def _holds_words(values: Sequence[Any]) -> bool:
    """Return whether values are words, and no numbers in any notation."""
    import pyarrow as pa

    if not all(isinstance(value, str) for value in values if value is not None):
        return False
    _, missing, bad = text_numbers(pa.array(list(values), pa.string()))
    return bool(bad.any() and bad.sum() >= _WORDS * (~missing).sum())


def _alike(head: Mapping[str, Sequence[Any]], one: str, other: str) -> bool:
    """Return whether two columns hold the same items, or one holds some of the items of the other.

    The names of both must have a word for items, unless the values are words.
    """
    ways = (held_items(head, one, other), held_items(head, other, one))
    if ALIKE not in ways and IN_CAPITALS not in ways:
        return False
    return all(
        _holds_words(head[name]) or likely_columns("action", [name]) or says_shown(name) for name in (one, other)
    )


def likely_users(file: TableFile, used: Sequence[str]) -> list[str]:
    """List up to three columns that could be ids of users: many values in the first rows, some of them repeated."""
    likely = []
    for name, values in file.head().items():
        if name in used or len(values) < 100 or not all(isinstance(value, (str, int)) for value in values):
            continue
        distinct = len(set(values))
        # Decimal numbers, times and dates, but not whole numbers.
        numbers = sum(bool(re.fullmatch(r"[-+]?[0-9]*[.,:/][-+0-9.,:/ eE]*", str(value))) for value in values)
        if 20 < distinct < len(values) and numbers < len(values) / 2:
            likely.append(name)
    return likely[:3]


def columns_of_items(file: TableFile, action: str, policies: Sequence[str], reading: Reading) -> Iterator[str]:
    """Yield the policies whose columns hold items, by the user's statement or, without one, by the values.

    Raises:
        UserError: the values could be either, or they are items in other capitals and ``fold_case`` is not said.
    """
    if reading.target_is is not None:
        yield from policies if reading.target_is == "item" else ()
        return
    for name in policies:
        how = _held_in_file(file, action, name)
        if how == UNCLEAR:
            raise UserError(
                f"{file.path}: column {name!r} could hold items or probabilities, as all its values are items of "
                f"{action!r}: state --target-is item or --target-is probability",
                code="unclear_column",
            )
        if how == IN_CAPITALS and not reading.fold_case:
            raise UserError(
                f"{file.path}: the items of column {name!r} are those of {action!r}, but for capitals: add --fold-case "
                "to take them as the same, or write them alike"
            )
        if how:
            yield name


def recognised_columns(
    file: TableFile, policies: Sequence[str], reading: Reading, needs: Sequence[str]
) -> tuple[Columns, ShownItem]:
    """Recognise the columns of a bandit log.

    Args:
        file: the table.
        policies: columns of policies.
        reading: the user's statements about the file.
        needs: roles besides the reward that must have a column.

    Returns:
        columns: columns by role.
        shown_item: how the column of the items shown was chosen.

    Raises:
        UserError: a needed role has no column or several candidates, or propensities, users or weights are ambiguous.
    """
    source = str(file.path)
    named = dict(reading.columns)
    roles = ("propensity", "user", "action", "logger", "time", "event", "weight")
    optional = [role for role in roles if role not in needs]
    with_other_use = [name for name in (*policies, *reading.context) if name not in ("propensity", reading.today)]
    by_names = find_columns(
        source, file.names, named=named, optional=("reward", *needs, *optional), leave=with_other_use
    )
    shown_item = find_shown(file, by_names, [name for name in policies if name in with_other_use], reading.context)
    if policies or "action" in needs:
        shown_item.refuse(source)
    columns = find_columns(
        source,
        file.names,
        named=named | ({"action": shown_item.column} if shown_item.column else {}),
        needed=("reward", *needs),
        optional=optional,
        leave=with_other_use,
    )
    columns = columns.with_action(shown_item.column, RECOGNISED, shown_item.rivals)
    almost = []
    if "propensity" not in columns:
        almost = similar_columns("propensity", file.names)
    if almost and "action" not in columns:  # without either there is no estimate
        raise UserError(
            f"{source}: no column is recognised as the propensity; did you mean {almost[0]!r}? name it with "
            "--propensity-column"
        )
    # These roles change the estimates, so that two candidates are an error even if the role is optional.
    for role in ("propensity", "user", "weight"):
        columns.refuse_unclear(source, role)
    return columns, shown_item
