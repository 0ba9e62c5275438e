"""Which column holds the item that was shown, where several hold the same items, and what such columns hold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.refuters import ItemSums
from recsim_mnar.log.columns import Floats
from recsim_mnar.tables.ids import Ids
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NAMED, OWN_SCHEMA, Columns, in_words, likely_columns, say_which, says_shown
from recsim_mnar.tables.text import AgainError

ALIKE, IN_CAPITALS, UNCLEAR = "alike", "in capitals", "unclear"
"""How a column's values are items: written as in the action column, so but for capitals, or 0 and 1, perhaps items."""
_ROWS = 200_000
"""Rows at most that a choice rests on."""
_ERRORS = 4.0
"""Standard errors by which the mean of 1 / propensity of one item may differ from 1."""
_FILLED = 0.5
"""Share of the rows that a column of what was shown has a value in."""
_WORDS = 0.9
"""Share of values that are no numbers in a column of words."""
_NUMBER = re.compile(r"[-+]?[0-9.,]+(e[-+]?[0-9]+)?%?")


def held_items(head: Mapping[str, Sequence[Any]], action: str, name: str) -> str:
    """How a column holds items, as the first rows say: nearly all of them are shown there; "" where it does not.

    Numbers could be per cent as well: of them the column's name must say so, too.
    """
    shown = {str(value).strip() for value in head.get(action, ()) if value is not None}
    values = [str(value).strip() for value in head.get(name, ()) if value not in (None, "")]
    numbers = all(re.fullmatch(r"[-+]?[0-9.,]+(e[-+]?[0-9]+)?", value) for value in values)
    if not values or (numbers and not likely_columns("action", [name])):
        return ""
    if sum(value in shown for value in values) >= 0.9 * len(values):
        return UNCLEAR if numbers and set(values) <= {"0", "1"} else ALIKE
    alike = {value.casefold() for value in shown}
    folded = not numbers and sum(value.casefold() in alike for value in values) >= 0.9 * len(values)
    return IN_CAPITALS if folded else ""


def same_items(one: Ids, other: Ids, *, fold: bool = False) -> Floats:
    """(n,) 1.0 where both ids are the same, with ``fold`` but for capitals; those that are missing are not."""
    words = np.concatenate([one.ids.astype(str), other.ids.astype(str)])
    words = np.array([word.casefold() for word in words.tolist()]) if fold and words.size else words
    codes = np.unique(words, return_inverse=True)[1]
    first, second = np.append(codes[: one.number], -1), np.append(codes[one.number :], -2)
    return (first[one.codes] == second[other.codes]).astype(np.float64)


@dataclass(frozen=True)
class ShownItem:
    """The column of what was shown, where names alone do not say which it is.

    Attributes:
        column: that was chosen; "" where nothing had to be, or could be.
        line: why that one, for a person.
        rivals: where none was chosen, columns that hold the same items, one of which was shown.
        words: columns of policies that hold words, while no column of what was shown is known.
        perhaps: columns that hold the same items as these.
    """

    column: str = ""
    line: str = ""
    rivals: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    perhaps: tuple[str, ...] = field(default=())

    def refuse(self, source: str) -> None:
        """Raise UserError where it is not known which column holds what was shown."""
        if self.rivals:
            raise UserError(
                f"{source}: columns {' and '.join(map(repr, self.rivals))} hold the same items, and which of them was "
                f"shown is not known: {say_which('action')}, then the other one can be a target",
                code="unclear_column",
            )
        if self.words:
            perhaps = f" (perhaps {in_words(self.perhaps)})" if self.perhaps else ""
            raise UserError(
                f"{source}: column {self.words[0]!r} holds words, not probabilities. If they are the items that a "
                f"policy shows, name the column of what was shown, which is not known, with --action-column{perhaps}",
                code="unclear_column",
            )


def find_shown(file: TableFile, columns: Columns, policies: Sequence[str] = ()) -> ShownItem:
    """Choose the column of what was shown among those that hold the same items.

    The mean over rows of 1{item} / propensity is 1 for each item of the column that was shown, where propensities are
    right and every item can be shown. Of another column it is another number. If the numbers do not tell, a name that
    says it is of what was shown (``shown_item``, ``arm``) does.

    Args:
        file: the log.
        columns: which column is what, by names.
        policies: columns that hold something of target policies: none of them was shown.
    """
    if columns.how.get("action") == NAMED or "action" in columns.without:
        return ShownItem()
    head, taken = file.head(), columns.get("action")
    words = tuple(name for name in policies if taken is None and _holds_words(head.get(name, ())))
    unclear = columns.unclear.get("action", ())
    seeds = (taken,) if taken is not None else (*unclear, *words)
    ours = columns.how.get("action") == OWN_SCHEMA
    used = [
        name for role, name in columns.names.items()
        if role != "action" and not (role == "item" and columns.how[role] not in (NAMED, *([OWN_SCHEMA] * ours)))
    ]  # fmt: skip
    free = [name for name in file.names if name not in (*used, *policies)]
    there = [name for name in free if name == taken or any(_alike(head, name, seed) for seed in seeds if seed != name)]
    if len(there) < 2 and not (there and words):
        return ShownItem(words=words, perhaps=tuple(there))
    if taken is None and not set(unclear) <= set(there):
        return ShownItem(words=words)
    return _chosen(file, columns, there, words)


def _chosen(file: TableFile, columns: Columns, there: list[str], words: tuple[str, ...]) -> ShownItem:
    """The choice among columns that hold the same items; those of policies (``words``) are no candidates."""
    taken, propensity = columns.get("action"), columns.get("propensity")
    every = _agreeing(file, columns, [*there, *words])
    agrees = {name: fits for name, fits in every.items() if name not in words}
    # Other columns are filled in where nothing was recommended, or are the same one again.
    if (taken is not None and taken not in agrees) or (len(agrees) < 2 and not words):
        return ShownItem()
    right, named = [name for name, fits in agrees.items() if fits], [name for name in agrees if says_shown(name)]
    if len(right) == 1 and (right == named or len(named) != 1):
        wrong = [name for name, fits in every.items() if not fits]
        others = f" and not with {' and '.join(wrong)}" if wrong else ""
        return ShownItem(right[0], f"action: {right[0]}, as 1 / {propensity} agrees with it{others}")
    if len(named) == 1 and (not right or named[0] in right):
        others = " and ".join(name for name in every if name != named[0])
        return ShownItem(named[0], f"action: {named[0]}, by its name; the same items are in {others}")
    if words and len(agrees) < 2:
        return ShownItem(words=words, perhaps=tuple(agrees))
    return ShownItem(rivals=tuple(agrees))


def _holds_words(values: Sequence[Any]) -> bool:
    """Whether values are words that recur, and no numbers."""
    known = [str(value).strip() for value in values if value not in (None, "")]
    other = sum(isinstance(value, str) and not _NUMBER.fullmatch(value) for value in known)
    return bool(known) and other >= _WORDS * len(known)


def _alike(head: Mapping[str, Sequence[Any]], one: str, other: str) -> bool:
    """Whether two columns hold the same items, or one of them some of the other's; of numbers both names say so."""
    pairs = (one, other), (other, one)
    if not any(held_items(head, *pair) in (ALIKE, IN_CAPITALS) for pair in pairs):
        return False
    return all(_holds_words(head[name]) or likely_columns("action", [name]) or says_shown(name) for name in pairs[0])


def _agreeing(file: TableFile, columns: Columns, names: Sequence[str]) -> dict[str, bool]:
    """Whether 1 / propensity agrees with each column; without those that are empty, or the same column again."""
    propensity, cluster, ids = _read(file, columns, names)
    good = np.isfinite(propensity) & (propensity > 0.0) & (propensity <= 1.0)
    taken = columns.get("action")
    base = good if good.any() else np.ones(good.size, np.bool_) if taken is None else ids[taken] != ""
    found: dict[str, bool] = {}
    for name in sorted(names, key=lambda name: name != taken):
        filled = base & (ids[name] != "")
        if filled.sum() < _FILLED * base.sum():
            continue
        if any(np.array_equal(ids[name][base], ids[other][base]) for other in found):
            continue
        found[name] = bool(good.any()) and _agrees(ids[name][filled], propensity[filled], cluster, filled)
    return {name: found[name] for name in names if name in found}


def _agrees(items: NDArray[Any], propensity: Floats, cluster: NDArray[Any] | None, filled: NDArray[np.bool_]) -> bool:
    """Whether the mean of 1 / propensity can be 1 for every item."""
    sums = ItemSums.of(items, propensity, None if cluster is None else cluster[filled])
    n = float(sums.rows[0])
    means = sums.x[0] / n
    square = sums.xx[0] - 2.0 * means * sums.xl[0] + means**2 * sums.ll[0]
    # Of a mean that came out small the error did, too: it is scaled to what it would be at 1.
    errors = np.sqrt(np.maximum(square, 0.0) * np.maximum(1.0, 1.0 / means)) / n
    limit = math.sqrt(_ERRORS**2 + 2.0 * math.log(means.size))
    return means.size > 1 and bool(np.all(np.abs(means - 1.0) <= limit * errors))


def _read(
    file: TableFile, columns: Columns, names: Sequence[str]
) -> tuple[Floats, NDArray[Any] | None, dict[str, NDArray[Any]]]:
    """Of the first rows (n,): propensities, NaN for none; users, where there is such a column; items by column."""
    user, propensity = columns.get("user"), columns.get("propensity")
    kinds = dict.fromkeys((*names, *([] if user is None else [user])), "id")
    kinds |= {} if propensity is None else {propensity: "number"}
    while True:
        try:
            blocks, rows = [], 0
            for block in file.blocks(kinds, _ROWS):
                each = block.quiet()
                p = np.full(len(each), np.nan) if propensity is None else each.numbers(propensity)
                blocks.append((p, *(_text(each.ids(name)) for name in kinds if kinds[name] == "id")))
                rows += len(each)
                if rows >= _ROWS:
                    break
            break
        except AgainError:
            continue
    p, *texts = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    found = dict(zip((name for name in kinds if kinds[name] == "id"), texts, strict=True))
    return p, None if user is None else found[user], {name: found[name] for name in names}


def _text(ids: Ids) -> NDArray[Any]:
    """(n,) ids as text, "" where they are missing."""
    return np.append(ids.ids.astype(str), "").astype(object)[ids.codes].astype(str)
