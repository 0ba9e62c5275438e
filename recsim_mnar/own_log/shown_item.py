"""Which column of a log is what: by names, and that of what was shown where several columns hold the same items."""

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
    """How a column holds items, as the first rows say: nearly all of them are shown there; "" where it does not.

    Numbers could be per cent as well: of them the column's name must say so, too.
    """
    shown, values = ({_text_of(value) for value in head.get(each, ())} - {""} for each in (action, name))
    numbers = all(_NUMBER.fullmatch(value) for value in values)
    if not values or (numbers and not likely_columns("action", [name])):
        return ""
    return _held(values, shown, 0.9, numbers=numbers)


def held_in_file(file: TableFile, action: str, name: str) -> str:
    """How a target's column holds items, as :func:`held_items`, but by all rows where the first ones do not tell.

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
    values, shown = ({str(each) for each in rows.ids(column).ids} for column in (name, action))
    if not numbers:
        return _held(values, shown, _SOME, numbers=False)
    if values <= {"0", "1"}:
        return UNCLEAR if shown == {"0", "1"} or (how == UNCLEAR and values <= shown) else ""
    named = bool(likely_columns("action", [name]))
    if len(values & shown) < _SOME * len(values):
        return ""
    percent = max(map(int, values)) <= 100
    return UNCLEAR if percent and not named else ALIKE


def _held(values: set[str], shown: set[str], share: float, *, numbers: bool) -> str:
    """How values are items: at least a share of them is shown."""
    if len(values & shown) >= share * len(values):
        return UNCLEAR if numbers and values <= {"0", "1"} else ALIKE
    alike = {value.casefold() for value in shown}
    folded = not numbers and sum(value.casefold() in alike for value in values) >= share * len(values)
    return IN_CAPITALS if folded else ""


def _text_of(value: Any) -> str:
    """An id as text: 3.0, as pandas writes integers among which some are missing, is 3."""
    text = "" if value is None else str(value).strip()
    return text[:-2] if text.endswith(".0") and text[:-2].isdigit() else "" if text == "nan" else text


def same_items(one: Ids, other: Ids, *, fold: bool = False) -> Floats:
    """(n,) 1.0 where both ids are the same, with ``fold`` but for capitals; those that are missing are not."""
    if fold:
        one, other = one.folded(), other.folded()
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
            perhaps = f" (perhaps {in_words(self.perhaps)})" if self.perhaps else ""
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
    head, taken, unclear = file.head(), columns.get("action"), columns.unclear.get("action", ())
    items = tuple(name for name in policies if taken is None and _holds_items(head.get(name, ()), name))
    seeds = (*unclear, *items) if taken is None else (taken,)
    used = {name for role, name in columns.names.items() if role not in ("action", "item") or how[role] == NAMED}
    # Our own logs have a column of what was viewed, which is empty where something was recommended.
    used |= {*policies, *leave, *(["item"] if how.get("action") == OWN_SCHEMA else [])}
    free = [name for name in file.names if name not in used]
    there = [name for name in free if name == taken or any(_alike(head, name, seed) for seed in seeds if seed != name)]
    if (there if items else there[1:]) and (taken is not None or set(unclear) <= set(there)):
        return _chosen(file, columns, there, items)
    return ShownItem(items=items, perhaps=tuple(there))


def _chosen(file: TableFile, columns: Columns, there: list[str], items: tuple[str, ...]) -> ShownItem:
    """The choice among columns that hold the same items; those of policies (``items``) are no candidates."""
    taken, propensity = columns.get("action"), columns.get("propensity")
    every = _agreeing(file, columns, [*there, *items])
    agrees = {name: fits for name, fits in every.items() if name not in items}
    # Other columns are filled in where nothing was recommended, or are the same one again.
    if (taken is not None and taken not in agrees) or (len(agrees) < 2 and not items):
        return ShownItem()
    right, named = [name for name, fits in agrees.items() if fits], [name for name in agrees if says_shown(name)]
    if len(right) == 1 and (right == named or len(named) != 1):
        wrong = [name for name, fits in every.items() if not fits]
        others = f" and not with {' and '.join(wrong)}" if wrong else ""
        return ShownItem(right[0], f"action: {right[0]}, as 1 / {propensity} agrees with it{others}")
    if len(named) == 1 and (not right or named[0] in right):
        others = " and ".join(name for name in every if name != named[0])
        return ShownItem(named[0], f"action: {named[0]}, by its name; the same items are in {others}")
    if items and len(agrees) < 2:
        return ShownItem(items=items, perhaps=tuple(agrees))
    return ShownItem(rivals=tuple(agrees))


def _holds_items(values: Sequence[Any], name: str) -> bool:
    """Whether a policy's column holds items: words, or whole numbers above 1 under a name that says so."""
    known = [str(value) for value in values if value not in (None, "")]
    numbered = all(value.isdigit() for value in known) and not set(known) <= {"0", "1"}
    return _holds_words(values) or (numbered and bool(likely_columns("action", [name])))


def _holds_words(values: Sequence[Any]) -> bool:
    """Whether values are words, and no numbers however they are written."""
    import pyarrow as pa

    if not all(isinstance(value, str) for value in values if value is not None):
        return False
    _, missing, bad = text_numbers(pa.array(list(values), pa.string()))
    return bool(bad.sum() > 0 and bad.sum() >= _WORDS * (~missing).sum())


def _alike(head: Mapping[str, Sequence[Any]], one: str, other: str) -> bool:
    """Whether two columns hold the same items, or one of them some of the other's; of numbers both names say so."""
    pairs = (one, other), (other, one)
    if not any(held_items(head, *pair) in (ALIKE, IN_CAPITALS) for pair in pairs):
        return False
    return all(_holds_words(head[name]) or likely_columns("action", [name]) or says_shown(name) for name in pairs[0])


def _agreeing(file: TableFile, columns: Columns, names: Sequence[str]) -> dict[str, bool]:
    """Whether 1 / propensity agrees with each column; without those that are empty, or the same column again."""
    roles = {role: columns.get(role) for role in ("user", "propensity", "action")}
    user, propensity, taken = roles.values()
    kinds = dict.fromkeys((*names, *([user] if user else [])), "id") | ({propensity: "number"} if propensity else {})
    rows = next(file.blocks(kinds, _ROWS)).quiet()
    ids = {name: rows.ids(name) for name in names}
    p = rows.numbers(propensity) if propensity else np.full(len(rows), np.nan)
    users = rows.ids(user).codes if user else np.arange(len(rows))
    good = np.isfinite(p) & (p > 0.0) & (p <= 1.0)
    base = good if good.any() else np.ones(len(rows), np.bool_) if taken is None else ids[taken].codes >= 0
    found: dict[str, bool] = {}
    for name in sorted(names, key=lambda name: name != taken):
        each = ids[name]
        filled = base & (each.codes >= 0)
        again = any(same_items(each, ids[other], fold=True)[filled].all() for other in found)
        if filled.sum() >= _FILLED * base.sum() and not again:
            found[name] = bool(good.any()) and _agrees(each.codes[filled], p[filled], users[filled])
    return {name: found[name] for name in names if name in found}


def _agrees(items: NDArray[np.int64], propensity: Floats, user: NDArray[np.int64]) -> bool:
    """Whether the mean of 1 / propensity can be 1 for every item."""
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
    found = []
    for name, values in file.head().items():
        if name in used or len(values) < 100 or not all(isinstance(value, (str, int)) for value in values):
            continue
        distinct = len(set(values))
        numbers = sum(bool(re.fullmatch(r"[-+]?[0-9]*[.,:/][-+0-9.,:/ eE]*", str(value))) for value in values)
        if 20 < distinct < len(values) and numbers < len(values) / 2:
            found.append(name)
    return found[:3]


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
    """Which column is what; what is needed and missing, or unclear, is an error."""
    source, named = str(file.path), dict(reading.columns)
    roles = ("propensity", "user", "action", "logger", "time", "event", "weight")
    optional = [role for role in roles if role not in needs]
    taken = [name for name in (*policies, *reading.context) if name not in ("propensity", reading.today)]
    by_names = find_columns(source, file.names, named=named, optional=("reward", *needs, *optional), leave=taken)
    shown = find_shown(file, by_names, [name for name in policies if name in taken], reading.context)
    if policies or "action" in needs:
        shown.refuse(source)
    columns = find_columns(
        source,
        file.names,
        named=named | ({"action": shown.column} if shown.column else {}),
        needed=("reward", *needs),
        optional=optional,
        leave=taken,
    )
    columns = columns.with_action(shown.column, RECOGNISED, shown.rivals)
    almost = [] if "propensity" in columns else similar_columns("propensity", file.names)
    if almost and "action" not in columns:  # without either there is no estimate
        raise UserError(
            f"{source}: no column is recognised as the propensity; did you mean {almost[0]!r}? name it with "
            "--propensity-column"
        )
    # Two candidates for what changes the answer are asked about, not passed over.
    for role in ("propensity", "user", "weight"):
        columns.refuse_unclear(source, role)
    return columns, shown
