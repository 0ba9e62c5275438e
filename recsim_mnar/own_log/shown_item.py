"""Recognise a log's columns by name, and the shown item's where several columns hold the same items."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.refuters import ItemSums
from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import (
    NAMED,
    OWN_SCHEMA,
    RECOGNISED,
    Columns,
    find_columns,
    in_words,
    likely_columns,
    say_which,
    says_shown,
    similar_columns,
)
from recsim_mnar.tables.values import Ids, text_numbers

ALIKE, IN_CAPITALS, UNCLEAR = "alike", "in capitals", "unclear"
"""How a column holds items: written as in the action column, in other capitals, or as 0 and 1, which may be items."""
_ROWS = 200_000
"""Most rows that a choice is based on."""
_ERRORS = 4.0
"""Standard errors by which the mean of 1 / propensity of one item may differ from 1."""
_SOME = 0.5
"""Least share of a target's items that the log shows; a new policy may show others."""
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
    items_shown = _texts(head, action)
    values = _texts(head, name)
    numbers = all(_NUMBER.fullmatch(value) for value in values)
    if not values or (numbers and not likely_columns("action", [name])):
        return ""
    return _way_of_holding(values, items_shown, 0.9, numbers=numbers)


def _texts(head: Mapping[str, Sequence[Any]], name: str) -> set[str]:
    """Return the different values of a column as text, without missing ones."""
    return {_text_of(value) for value in head.get(name, ())} - {""}


def held_in_file(file: TableFile, action: str, name: str) -> str:
    """Return how a target's column holds items: ALIKE, IN_CAPITALS or UNCLEAR; "" if it does not.

    If the first rows do not tell (:func:`held_items`), all rows are read. Numbers are items if the log has them as
    items and they are no probabilities. 0 and 1, or numbers up to 100 that could be per cent, are :data:`UNCLEAR` if
    the log has them as items and the name does not tell.
    """
    head = file.head()
    values = _texts(head, name)
    numbers = bool(values) and all(_NUMBER.fullmatch(value) for value in values)
    if not values or (numbers and not all(value.isdigit() for value in values)):
        return ""
    how = held_items(head, action, name)
    if how and how != UNCLEAR:
        return how
    binary = {"0", "1"}
    if how == "" and numbers and values <= binary and not _texts(head, action) <= binary:
        return ""
    rows = file.read({name: "id", action: "id"}).quiet()
    values = set(map(str, rows.ids(name).ids))
    items_shown = set(map(str, rows.ids(action).ids))
    if not numbers:
        return _way_of_holding(values, items_shown, _SOME, numbers=False)
    if values <= binary:
        if items_shown == binary or (how == UNCLEAR and values <= items_shown):
            return UNCLEAR
        return ""
    if len(values & items_shown) < _SOME * len(values):
        return ""
    if max(map(int, values)) <= 100 and not likely_columns("action", [name]):
        return UNCLEAR
    return ALIKE


def _way_of_holding(values: set[str], shown: set[str], share: float, *, numbers: bool) -> str:
    """Return how values are items: ALIKE, IN_CAPITALS or UNCLEAR; "" if too few of them were shown.

    Args:
        values: different values of a column.
        shown: different items shown.
        share: least share of the values that must be items shown.
        numbers: True if the values are numbers.
    """
    least = share * len(values)
    if len(values & shown) >= least:
        if numbers and values <= {"0", "1"}:
            return UNCLEAR
        return ALIKE
    folded = {value.casefold() for value in shown}
    if not numbers and sum(value.casefold() in folded for value in values) >= least:
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
        items: columns of policies that hold items, while no column of the items shown is known.
        perhaps: columns that hold the same items as ``items``.
    """

    column: str = ""
    line: str = ""
    rivals: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()

    def refuse(self, source: str) -> None:
        """Raise UserError if the column of the items shown is not known."""
        if self.rivals:
            raise UserError(
                f"{source}: columns {' and '.join(map(repr, self.rivals))} hold the same items, and which of them was "
                f"shown is not known: {say_which('action')}, then the other one can be a target",
                code="unclear_column",
            )
        if self.items:
            perhaps = f" (perhaps {in_words(self.perhaps)})" if self.perhaps else ""
            raise UserError(
                f"{source}: column {self.items[0]!r} holds items, it seems, and no probabilities. If a policy shows "
                f"them, name the column of what was shown, which is not known, with --action-column{perhaps}",
                code="unclear_column",
            )


def find_shown(file: TableFile, columns: Columns, policies: Sequence[str] = (), leave: Sequence[str] = ()) -> ShownItem:
    """Choose the column of the items shown among those that hold the same items.

    The mean over rows of 1{item} / propensity is 1 for each item of the column that was shown, if propensities are
    right and every item can be shown. For another column it differs. If the numbers do not tell, a name that says so
    (``shown_item``, ``arm``) does.

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
    items: tuple[str, ...] = ()
    seeds: tuple[str, ...] = (action or "",)
    if action is None:
        items = tuple(name for name in policies if _holds_items(head.get(name, ()), name))
        seeds = (*unclear, *items)
    used = {name for role, name in columns.names.items() if role not in ("action", "item") or how[role] == NAMED}
    used |= {*policies, *leave}
    if how.get("action") == OWN_SCHEMA:  # whose column of items viewed is empty in these rows
        used.add("item")
    candidates = [
        name
        for name in file.names
        if name not in used and (name == action or any(_alike(head, name, seed) for seed in seeds if seed != name))
    ]
    enough = len(candidates) >= (1 if items else 2)
    if enough and (action is not None or set(unclear) <= set(candidates)):
        return _chosen(file, columns, candidates, items)
    return ShownItem(items=items, perhaps=tuple(candidates))


def _chosen(file: TableFile, columns: Columns, candidates: list[str], items: tuple[str, ...]) -> ShownItem:
    """Choose among columns that hold the same items; those of policies (``items``) are compared but not chosen."""
    action = columns.get("action")
    fits = _agreeing(file, columns, [*candidates, *items])
    rivals = tuple(name for name in fits if name not in items)
    # Columns that are missing from ``fits`` are mostly empty, or repeat another column.
    if (action is not None and action not in rivals) or (len(rivals) < 2 and not items):
        return ShownItem()
    right = [name for name in rivals if fits[name]]
    named = [name for name in rivals if says_shown(name)]
    if len(right) == 1 and (right == named or len(named) != 1):
        wrong = " and ".join(name for name in fits if not fits[name])
        but = f" and not with {wrong}" if wrong else ""
        return ShownItem(right[0], f"action: {right[0]}, as 1 / {columns.get('propensity')} agrees with it{but}")
    if len(named) == 1 and (not right or named[0] in right):
        same = " and ".join(name for name in fits if name != named[0])
        return ShownItem(named[0], f"action: {named[0]}, by its name; the same items are in {same}")
    if items and len(rivals) < 2:
        return ShownItem(items=items, perhaps=rivals)
    return ShownItem(rivals=rivals)


def _holds_items(values: Sequence[Any], name: str) -> bool:
    """Return whether a policy's column holds items: words, or whole numbers above 1 if its name tells."""
    present = [str(value) for value in values if value not in (None, "")]
    numbered = all(value.isdigit() for value in present) and not set(present) <= {"0", "1"}
    return _holds_words(values) or (numbered and bool(likely_columns("action", [name])))


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


def _agreeing(file: TableFile, columns: Columns, names: Sequence[str]) -> dict[str, bool]:
    """Test by column of items whether 1 / propensity agrees with it, as with the items shown.

    Args:
        file: the log, of whose first rows at most :data:`_ROWS` are read.
        columns: columns by role.
        names: columns of items.

    Returns:
        Results by column, without columns that are mostly empty or repeat another one; of equals the action stays.
    """
    user = columns.get("user")
    propensity = columns.get("propensity")
    action = columns.get("action")
    kinds = dict.fromkeys(names, "id")
    if user:
        kinds[user] = "id"
    if propensity:
        kinds[propensity] = "number"
    rows = next(file.blocks(kinds, _ROWS)).quiet()
    ids = {name: rows.ids(name) for name in names}
    p = rows.numbers(propensity) if propensity else np.full(len(rows), np.nan)
    users = rows.ids(user).codes if user else np.arange(len(rows))
    good = (p > 0.0) & (p <= 1.0)
    base = good  # recommendations: rows with a propensity or, without any, with an action
    if not good.any() and action is not None:
        base = ids[action].codes >= 0
    elif not good.any():
        base = np.ones(len(rows), np.bool_)
    agreeing: dict[str, bool] = {}
    for name in sorted(names, key=lambda name: name != action):
        column = ids[name]
        filled = base & (column.codes >= 0)
        is_repeat = any(same_items(column, ids[other], fold=True)[filled].all() for other in agreeing)
        if filled.sum() >= _FILLED * base.sum() and not is_repeat:
            agreeing[name] = bool(good.any()) and _agrees(column.codes[filled], p[filled], users[filled])
    return {name: agreeing[name] for name in names if name in agreeing}


def _agrees(items: NDArray[np.int64], propensity: Floats, user: NDArray[np.int64]) -> bool:
    """Return whether the mean of 1{item} / propensity over rows can be 1 for every item.

    Args:
        items: (n,) code of each row's item.
        propensity: (n,) propensities.
        user: (n,) user of each row; users are independent.
    """
    sums = ItemSums.of(items, propensity, user)
    n = float(sums.rows[0])
    means = sums.x[0] / n
    # The variance of a ratio of sums over users (delta method), times the squared number of rows.
    square = sums.xx[0] - 2.0 * means * sums.xl[0] + means**2 * sums.ll[0]
    # If a mean is small by chance, so is its error: it is scaled to what it would be at a mean of 1.
    errors = np.sqrt(np.maximum(square, 0.0) * np.maximum(1.0, 1.0 / means)) / n
    # Of many items one deviates more: the largest of K normal errors is about sqrt(2 ln K).
    limit = math.sqrt(_ERRORS**2 + 2.0 * math.log(means.size))
    return means.size > 1 and bool(np.all(np.abs(means - 1.0) <= limit * errors))


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
        how = held_in_file(file, action, name)
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
