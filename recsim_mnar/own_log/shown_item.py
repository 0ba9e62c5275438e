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
"""How a column's values are items: written as in the action column, so but for capitals, or 0 and 1, perhaps items."""
_ROWS = 200_000
"""Rows at most that a choice rests on."""
_ERRORS = 4.0
"""Standard errors by which the mean of 1 / propensity of one item may differ from 1."""
_SOME = 0.5
"""Share of a target's items that the log shows; a new policy may show others."""
_NUMBER = re.compile(r"[-+]?[0-9.,]+(e[-+]?[0-9]+)?")
_FILLED = 0.5
"""Share of the rows that a column of what was shown has a value in."""
_WORDS = 0.9
"""Share of values that are no numbers in a column of words."""


def held_items(head: Mapping[str, Sequence[Any]], action: str, name: str) -> str:
    """Find how a column holds items, by the first rows: nearly all of them are shown there; "" where it does not.

    Numbers could be per cent as well: of them the column's name must say so, too.
    """
    items_shown, values = ({_text_of(value) for value in head.get(column, ())} - {""} for column in (action, name))
    numbers = all(_NUMBER.fullmatch(value) for value in values)
    if not values or (numbers and not likely_columns("action", [name])):
        return ""
    return _held(values, items_shown, 0.9, numbers=numbers)


def held_in_file(file: TableFile, action: str, name: str) -> str:
    """Find how a target's column holds items, as :func:`held_items`, but by all rows where the first ones do not tell.

    Numbers are items where they are no probabilities and items of the log. 0 and 1, or numbers up to 100 that could be
    per cent, are :data:`UNCLEAR` where the log has them as items and the name does not say what they are.
    """
    head = file.head()
    values = {_text_of(value) for value in head.get(name, ())} - {""}
    numbers = bool(values) and all(_NUMBER.fullmatch(value) for value in values)
    if not values or (numbers and not all(value.isdigit() for value in values)):
        return ""
    how = held_items(head, action, name)
    if how and how != UNCLEAR:
        return how
    first = {_text_of(value) for value in head.get(action, ())}
    if how == "" and numbers and values <= {"0", "1"} and not first <= {"", "0", "1"}:
        return ""
    rows = file.read({name: "id", action: "id"}).quiet()
    values, items_shown = ({str(entry) for entry in rows.ids(column).ids} for column in (name, action))
    if not numbers:
        return _held(values, items_shown, _SOME, numbers=False)
    if values <= {"0", "1"}:
        if items_shown == {"0", "1"} or (how == UNCLEAR and values <= items_shown):
            return UNCLEAR
        return ""
    named = bool(likely_columns("action", [name]))
    if len(values & items_shown) < _SOME * len(values):
        return ""
    percent = max(map(int, values)) <= 100
    if percent and not named:
        return UNCLEAR
    return ALIKE


def _held(values: set[str], shown: set[str], share: float, *, numbers: bool) -> str:
    """Find how values are items: at least a share of them is shown."""
    if len(values & shown) >= share * len(values):
        if numbers and values <= {"0", "1"}:
            return UNCLEAR
        return ALIKE
    alike = {value.casefold() for value in shown}
    folded = not numbers and sum(value.casefold() in alike for value in values) >= share * len(values)
    if folded:
        return IN_CAPITALS
    return ""


def _text_of(value: Any) -> str:
    """An id as text: 3.0, as pandas writes integers among which some are missing, is 3."""
    text = ""
    if value is not None:
        text = str(value).strip()
    if text.endswith(".0") and text[:-2].isdigit():
        return text[:-2]
    return "" if text == "nan" else text


def same_items(one: Ids, other: Ids, *, fold: bool = False) -> Floats:
    """(n,) 1.0 where both ids are the same, with ``fold`` but for capitals; those that are missing are not."""
    if fold:
        one = one.folded()
        other = other.folded()
    code = one.codes_in(other)
    return ((code == other.codes) & (code >= 0)).astype(np.float64)


@dataclass(frozen=True)
class ShownItem:
    """The column of what was shown, where names alone do not say which it is.

    Attributes:
        column: that was chosen; "" where nothing had to be, or could be.
        line: why that one, for a person.
        rivals: where none was chosen, columns that hold the same items, one of which was shown.
        items: columns of policies that hold items, while no column of what was shown is known.
        perhaps: columns that hold the same items as these.
    """

    column: str = ""
    line: str = ""
    rivals: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = ()

    def refuse(self, source: str) -> None:
        """Raise UserError where it is not known which column holds what was shown."""
        if self.rivals:
            raise UserError(
                f"{source}: columns {' and '.join(map(repr, self.rivals))} hold the same items, and which of them was "
                f"shown is not known: {say_which('action')}, then the other one can be a target",
                code="unclear_column",
            )
        if self.items:
            perhaps = ""
            if self.perhaps:
                perhaps = f" (perhaps {in_words(self.perhaps)})"
            raise UserError(
                f"{source}: column {self.items[0]!r} holds items, it seems, and no probabilities. If a policy shows "
                f"them, name the column of what was shown, which is not known, with --action-column{perhaps}",
                code="unclear_column",
            )


def find_shown(file: TableFile, columns: Columns, policies: Sequence[str] = (), leave: Sequence[str] = ()) -> ShownItem:
    """Choose the column of what was shown among those that hold the same items.

    The mean over rows of 1{item} / propensity is 1 for each item of the column that was shown, where propensities are
    right and every item can be shown. Of another column it is another number. If the numbers do not tell, a name that
    says it is of what was shown (``shown_item``, ``arm``) does.

    Args:
        file: the log.
        columns: which column is what, by names.
        policies: columns that hold something of target policies: none of them was shown.
        leave: columns that are something else.
    """
    how = columns.how
    if how.get("action") == NAMED or "action" in columns.without:
        return ShownItem()
    head = file.head()
    action_named = columns.get("action")
    unclear = columns.unclear.get("action", ())
    items = tuple(name for name in policies if action_named is None and _holds_items(head.get(name, ()), name))
    if action_named is None:
        seeds = (*unclear, *items)
    else:
        seeds = (action_named,)
    used = {name for role, name in columns.names.items() if role not in ("action", "item") or how[role] == NAMED}
    # Our own logs have a column of what was viewed, which is empty where something was recommended.
    used |= {*policies, *leave, *(["item"] if how.get("action") == OWN_SCHEMA else [])}
    free = [name for name in file.names if name not in used]
    there = [
        name for name in free if name == action_named or any(_alike(head, name, seed) for seed in seeds if seed != name)
    ]
    if (there if items else there[1:]) and (action_named is not None or set(unclear) <= set(there)):
        return _chosen(file, columns, there, items)
    return ShownItem(items=items, perhaps=tuple(there))


def _chosen(file: TableFile, columns: Columns, there: list[str], items: tuple[str, ...]) -> ShownItem:
    """The choice among columns that hold the same items; those of policies (``items``) are no candidates."""
    action_column = columns.get("action")
    propensity = columns.get("propensity")
    every = _agreeing(file, columns, [*there, *items])
    agrees = {name: fits for name, fits in every.items() if name not in items}
    # Other columns are filled in where nothing was recommended, or are the same one again.
    if (action_column is not None and action_column not in agrees) or (len(agrees) < 2 and not items):
        return ShownItem()
    right = [name for name, fits in agrees.items() if fits]
    named = [name for name in agrees if says_shown(name)]
    if len(right) == 1 and (right == named or len(named) != 1):
        wrong = [name for name, fits in every.items() if not fits]
        other_columns = ""
        if wrong:
            other_columns = f" and not with {' and '.join(wrong)}"
        return ShownItem(right[0], f"action: {right[0]}, as 1 / {propensity} agrees with it{other_columns}")
    if len(named) == 1 and (not right or named[0] in right):
        other_columns = " and ".join(name for name in every if name != named[0])
        return ShownItem(named[0], f"action: {named[0]}, by its name; the same items are in {other_columns}")
    if items and len(agrees) < 2:
        return ShownItem(items=items, perhaps=tuple(agrees))
    return ShownItem(rivals=tuple(agrees))


def _holds_items(values: Sequence[Any], name: str) -> bool:
    """Return whether a policy's column holds items: words, or whole numbers above 1 under a name that says so."""
    present = [str(value) for value in values if value not in (None, "")]
    numbered = all(value.isdigit() for value in present) and not set(present) <= {"0", "1"}
    return _holds_words(values) or (numbered and bool(likely_columns("action", [name])))


def _holds_words(values: Sequence[Any]) -> bool:
    """Return whether values are words, and no numbers however they are written."""
    import pyarrow as pa

    if not all(isinstance(value, str) for value in values if value is not None):
        return False
    _, missing, bad = text_numbers(pa.array(list(values), pa.string()))
    return bool(bad.sum() > 0 and bad.sum() >= _WORDS * (~missing).sum())


def _alike(head: Mapping[str, Sequence[Any]], one: str, other: str) -> bool:
    """Return whether two columns hold the same items, or one of them some of the other's.

    Of numbers both names say so.
    """
    pairs = (one, other), (other, one)
    if not any(held_items(head, *pair) in (ALIKE, IN_CAPITALS) for pair in pairs):
        return False
    return all(_holds_words(head[name]) or likely_columns("action", [name]) or says_shown(name) for name in pairs[0])


def _agreeing(file: TableFile, columns: Columns, names: Sequence[str]) -> dict[str, bool]:
    """Compare 1 / propensity with each column, but for those that are empty or the same column again."""
    roles = {role: columns.get(role) for role in ("user", "propensity", "action")}
    user, propensity, action_column = roles.values()
    kinds = dict.fromkeys((*names, *([user] if user else [])), "id") | ({propensity: "number"} if propensity else {})
    rows = next(file.blocks(kinds, _ROWS)).quiet()
    ids = {name: rows.ids(name) for name in names}
    if propensity:
        p = rows.numbers(propensity)
    else:
        p = np.full(len(rows), np.nan)
    if user:
        users = rows.ids(user).codes
    else:
        users = np.arange(len(rows))
    good = np.isfinite(p) & (p > 0.0) & (p <= 1.0)
    if good.any():
        base = good
    else:
        if action_column is None:
            base = np.ones(len(rows), np.bool_)
        else:
            base = ids[action_column].codes >= 0
    agreeing: dict[str, bool] = {}
    for name in sorted(names, key=lambda name: name != action_column):
        ids_of_column = ids[name]
        filled = base & (ids_of_column.codes >= 0)
        again = any(same_items(ids_of_column, ids[other], fold=True)[filled].all() for other in agreeing)
        if filled.sum() >= _FILLED * base.sum() and not again:
            agreeing[name] = bool(good.any()) and _agrees(ids_of_column.codes[filled], p[filled], users[filled])
    return {name: agreeing[name] for name in names if name in agreeing}


def _agrees(items: NDArray[np.int64], propensity: Floats, user: NDArray[np.int64]) -> bool:
    """Return whether the mean of 1 / propensity can be 1 for every item."""
    sums = ItemSums.of(items, propensity, user)
    n = float(sums.rows[0])
    means = sums.x[0] / n
    square = sums.xx[0] - 2.0 * means * sums.xl[0] + means**2 * sums.ll[0]
    # Of a mean that came out small the error did, too: it is scaled to what it would be at 1.
    errors = np.sqrt(np.maximum(square, 0.0) * np.maximum(1.0, 1.0 / means)) / n
    limit = math.sqrt(_ERRORS**2 + 2.0 * math.log(means.size))
    return means.size > 1 and bool(np.all(np.abs(means - 1.0) <= limit * errors))


def likely_users(file: TableFile, used: Sequence[str]) -> list[str]:
    """Columns that could be ids of users: many values, and not each its own, in the first rows."""
    likely = []
    for name, values in file.head().items():
        if name in used or len(values) < 100 or not all(isinstance(value, (str, int)) for value in values):
            continue
        distinct = len(set(values))
        numbers = sum(bool(re.fullmatch(r"[-+]?[0-9]*[.,:/][-+0-9.,:/ eE]*", str(value))) for value in values)
        if 20 < distinct < len(values) and numbers < len(values) / 2:
            likely.append(name)
    return likely[:3]


def columns_of_items(file: TableFile, action: str, policies: Sequence[str], reading: Reading) -> Iterator[str]:
    """Policies whose columns hold items, as the user says, or else as the values do.

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
    """Recognise the columns; a needed one that is missing or unclear is an error."""
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
    # Two candidates for what changes the answer are asked about, not passed over.
    for role in ("propensity", "user", "weight"):
        columns.refuse_unclear(source, role)
    return columns, shown_item
