"""Recognise a file of slates, with one row per position, and check the slates."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.rows import user_starts
from recsim_mnar.own_log.bandit_file import NOTE, PROBLEM, BanditFile, Problem
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NONE, USUAL_NAMES, find_columns, named_column, plain_name, slate_probabilities
from recsim_mnar.tables.rows import n_repeats

OF = {
    "marginal": "the item at its position",
    "conditional": "the item, given the items above it",
    "slate": "the whole slate in order",
    "set": "the slate's items in any order",
}
"""The event whose probability a log of slates has, by kind of probability."""
SAID = {"position": "marginal", "conditional": "conditional", "slate": "slate", "set": "set"}
"""Kind of probability by the value of ``--propensities-of``."""
PERHAPS = "perhaps_slates"
"""Code of a finding: rows that count as single items may belong to slates."""
_LISTS = {
    *("items", "itemids", "actions", "actionids", "slate", "ranking", "list", "recommendations", "recommendeditems"),
    *("shownitems", "impressions", "products", "productids", "articles", "articleids", "skus"),
}
"""Names of columns of lists of items, besides those of one item."""


@dataclass(frozen=True)
class SlateFile:
    """A file of slates as a table with one row per position.

    Attributes:
        file: the table.
        columns: column by role: slate and position.
        probabilities: by kind, the column of the logging policy's probability whose name tells the kind.
    """

    file: TableFile
    columns: dict[str, str]
    probabilities: dict[str, str] = field(default_factory=dict)

    @property
    def own(self) -> bool:
        """True for a log that this package wrote, whose propensities are of the item at its position."""
        return {"user", "step", "event", "propensity", "slate", "position"} <= set(self.file.names)


def find_slates(file: TableFile, columns: Mapping[str, str | None], leave: Collection[str] = ()) -> SlateFile | None:
    """Recognise a file of slates; return None for a file of single items.

    Args:
        file: the table.
        columns: column by role, as the user states; "none" for the slate or position says that rows are single items.
        leave: columns that cannot have a role: those of target policies, with their endings.

    Raises:
        UserError: a named column is missing, a column of slates is named and no column of positions is found, or
            a column of items holds lists.
    """
    if NONE in (columns.get("slate"), columns.get("position")):
        return None
    named = {}
    for role in ("slate", "position", "action"):
        name = columns.get(role)
        if name is not None and name != NONE:
            named[role] = named_column(str(file.path), role, name, file.names)
    free = [name for name in file.names if name not in leave]
    slate_file = _one_row_per_position(file, columns, named, free)
    if slate_file is None:
        _refuse_lists(file, named, free)
        return None
    used = (*slate_file.columns.values(), *columns.values())
    return replace(slate_file, probabilities=slate_probabilities([name for name in free if name not in used]))


def _one_row_per_position(
    file: TableFile, columns: Mapping[str, str | None], named: dict[str, str], free: list[str]
) -> SlateFile | None:
    """Recognise a file with columns of slates and of positions, in which a slate has several rows.

    Returns None for another file.

    Args:
        file: the table.
        columns: column by role, as the user states.
        named: columns of slates, positions and actions that the user names.
        free: names of the columns that may have a role.
    """
    positions = [named["position"]] if "position" in named else _usual("position", free)
    if not positions:
        if "slate" not in named:
            return None
        raise UserError(f"{file.path}: no column is recognised as the position; name it with --position-column")
    if "slate" in named:
        return _slates_of(file, columns, free, named["slate"], positions[0], may_be_single=False)
    for rank, tier in enumerate(USUAL_NAMES["slate"]):
        for name in free:
            if plain_name(name) in tier and name not in (positions[0], columns.get("user")):
                # Names of the last tier are those of sessions and queries, which may have single items in succession.
                slates = _slates_of(file, columns, free, name, positions[0], may_be_single=rank == 2)
                if slates is not None:
                    return slates
    return None


def _slates_of(
    file: TableFile,
    columns: Mapping[str, str | None],
    free: list[str],
    name: str,
    position: str,
    *,
    may_be_single: bool,
) -> SlateFile | None:
    """Return the file with the slates of a column; None if that column cannot be one of slates.

    Args:
        file: the table.
        columns: column by role, as the user states.
        free: names of the columns that may have a role.
        name: column of slates.
        position: column of positions.
        may_be_single: True for a name that may be that of a session: then all slates must have the same positions.
    """
    if name == position:
        return None
    named = {"user": columns.get("user")}
    user = find_columns(str(file.path), free, named=named, optional=("user",), leave=(name,)).get("user")
    kinds = {name: "id", position: "number"}
    if user:
        kinds[user] = "id"
    rows = file.read(kinds).quiet()
    slate = rows.ids(name).codes
    place = rows.numbers(position)
    if not np.isfinite(place).any():  # positions are text, which is reported later, when the log is read
        place = np.zeros(len(rows))
    present = (slate >= 0) & ~np.isnan(place)
    if not present.any():
        return None
    users = rows.ids(user).codes if user else np.zeros(len(rows), np.int64)
    place = place[present]
    key = slate_keys(slate[present], users[present], place)
    sizes = np.unique(key, return_counts=True)[1]
    # Each slate has all positions, once each.
    complete = sizes.min() == sizes.max() == np.ptp(place) + 1 and not _doubles(key, place)
    if sizes.max() > 1 and (complete or not may_be_single):
        return SlateFile(file, {"slate": name, "position": position})
    return None


def perhaps_slates(file: TableFile, columns: Mapping[str, str | None], leave: Collection[str] = ()) -> Problem | None:
    """Report, from the first rows, that rows of single items may belong to slates.

    Args:
        file: the table.
        columns: column by role, as the user states; "none" for the slate or position says that rows are single items.
        leave: columns that cannot have a role: those of target policies, with their endings.

    Returns:
        The problem; None without a sign of slates, or if the user states that there are none.
    """
    if NONE in (columns.get("slate"), columns.get("position")):
        return None
    free = [name for name in file.names if name not in leave]
    head = file.head()
    single = "state --slate-column none, if each row is a single item"
    usual = {name for tier in USUAL_NAMES["slate"][:2] for name in tier}
    slates = [name for name in free if plain_name(name) in usual]
    positions = _usual("position", free)
    if slates:
        for name in slates:
            values = head.get(name, ())
            if len(set(map(str, values))) < len(values) and not positions:
                message = f"rows with the same {name!r} may be one slate, and no column of positions is recognised"
                return Problem(PERHAPS, NOTE, message, f"name it with --position-column NAME, or {single}", (name,))
        return None
    kinds = slate_probabilities(free)
    for name in positions:
        numbers = _counted(head.get(name, ()))
        if numbers:
            where: tuple[str, ...] = (name,)
            message = f"column {name!r} counts positions {numbers[0]} to {numbers[-1]}"
            break
    else:
        if len(kinds) < 2:
            return None
        where = tuple(kinds.values())
        message = f"columns {', '.join(where)} are called as probabilities of slates are"
    message += ", as of slates, and no column is recognised that says which rows are one slate"
    return Problem(PERHAPS, NOTE, message, f"name it with --slate-column NAME, or {single}", where)


def _counted(values: Sequence[Any]) -> list[int]:
    """Return the different positions, ascending; an empty list unless they are 0, 1, ... or 1, 2, ... without a gap."""
    try:
        # NaN is the only number that differs from itself.
        distinct = sorted({float(number) for number in values if number not in (None, "") and number == number})
    except (TypeError, ValueError):
        return []
    if len(distinct) > 1 and distinct[0] in (0.0, 1.0) and np.all(np.diff(distinct) == 1.0):
        return [int(number) for number in distinct]
    return []


def _usual(role: str, free: Sequence[str]) -> list[str]:
    """List the free columns with a usual name of a role, those of the best tier first."""
    return [name for tier in USUAL_NAMES[role] for name in free if plain_name(name) in tier]


def joint(one: Ints, other: Ints) -> Ints:
    """Number the pairs (n,) of two columns of codes, which are -1 or more; equal pairs have equal numbers from 0 on."""
    return np.unique(one * (int(other.max(initial=0)) + 2) + other, return_inverse=True)[1].reshape(-1)


def slate_keys(slate: Ints, user: Ints, place: Floats) -> Ints:
    """Return a number (n,) for each row that is equal for the rows of one slate.

    Some logs number the slates of each user anew, so that equal numbers of different users are different slates. Pairs
    of user and number are returned if they leave fewer rows at a position that an earlier row of the slate has.

    Args:
        slate: (n,) number of each row's slate in the file.
        user: (n,) number of each row's user.
        place: (n,) position of each row.
    """
    user_and_slate = joint(user, slate)
    if _doubles(slate, place) > _doubles(user_and_slate, place):
        return user_and_slate
    return slate


def _doubles(key: Ints, place: Floats) -> int:
    """Count the rows whose position an earlier row of the same slate has."""
    places = np.unique(place, return_inverse=True)[1]
    return n_repeats(joint(key, places))


def _refuse_lists(file: TableFile, named: Mapping[str, str], free: Sequence[str]) -> None:
    """Raise UserError if a column of items holds lists, so that a row is a whole slate.

    Args:
        file: the table.
        named: columns of slates, positions and actions that the user names.
        free: names of the columns that may have a role.
    """
    usual = {*_LISTS, *(name for role in ("action", "item") for tier in USUAL_NAMES[role] for name in tier)}
    names = [named["action"]] if "action" in named else [name for name in free if plain_name(name) in usual]
    if not names:
        return
    head = file.head()
    for name in names:
        present = [value for value in head.get(name, ()) if value is not None and not np.array_equal(value, "")]
        if sum(_holds_several(value) for value in present) > 0.5 * len(present):
            advice = "explode them: one row per position, with its own reward and propensity, and columns of the slate "
            raise UserError(f"{file.path}: {name!r} holds lists: {advice}and the position", code="lists_of_items")


def _holds_several(value: Any) -> bool:
    """Return whether a value is a list of several items, or such a list written as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return False
    return isinstance(value, list | tuple | np.ndarray) and len(value) > 1


# ------------------------------------------------------------------------------------------------ rows, put in order


@dataclass
class Slates:
    """The rows of a log in the order of slates, and the problems of the slates.

    Attributes:
        order: (n,) numbers of the rows, slate by slate, each from the top position; the slates of a user are in the
            order of time or, without times, of the file.
        sizes: (S,) number of items of each slate.
        size: number of items that all slates have; 0 if they have several sizes or other problems.
        name: function that describes a slate, by its number from 0, with its first row in the file.
        problems: problems of the slates.
    """

    order: Ints
    sizes: Ints
    size: int
    name: Callable[[int], str]
    problems: list[Problem] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Number of slates."""
        return self.sizes.size

    def at(self, values: Any) -> Any:
        """Arrange values (n,) of rows as (S, size), one row per slate; all slates must have the same size."""
        return np.asarray(values)[self.order].reshape(-1, self.size)

    def add(self, code: str, bad: Any, *columns: str, **params: Any) -> None:
        """Add a problem if any slate has it.

        Args:
            code: code of the problem.
            bad: (S,) True for slates that have the problem.
            *columns: columns that it is about.
            **params: further arguments of :meth:`Problem.of`.
        """
        if bad.any():
            number = int(bad.sum())
            problem = Problem.of(code, PROBLEM, *columns, **params)
            first = self.name(int(np.argmax(bad)))
            where = f"{number:,} slate{'s' * (number > 1)} of {self.number:,}, first {first}"
            self.problems.append(replace(problem, message=f"{problem.message}: {where}"))


def arrange(log: BanditFile, found: SlateFile) -> Slates:
    """Put the rows of a log into the order of slates, each from the top position, and look for problems.

    Args:
        log: the rows, with ids of slates as ``key``.
        found: the file, for the column of positions.
    """
    assert log.key is not None
    column = found.columns["position"]
    slate = log.key.codes
    ids = log.key.ids
    position = log.others[column]
    time = log.others.get(log.columns.get("time") or "")
    user = _users(log)
    # `first` is the first row of each slate, and `key` the number of each row's slate.
    _, first, key = np.unique(slate_keys(slate, user, position), return_index=True, return_inverse=True)
    key = key.reshape(-1)
    began = first[key]
    if time is not None:
        began = np.lexsort((first, time[first])).argsort()[key]  # rank of each slate by time, then by first row
    order = np.lexsort((position, first[key], began, user[first][key]))  # by user, rank, slate, then position
    key = key[order]
    place = position[order]
    begins = user_starts(key)
    sizes = np.diff(np.append(begins, key.size))

    def name(i: int) -> str:
        """Describe slate ``i`` in the order of slates, for a person."""
        row = order[begins[i]]
        return f"slate {ids[slate[row]]} (row {log.row_numbers[row]})"

    def by_slate(bad: Any) -> Any:
        """Return True for each slate (S,) with a bad row; ``bad`` (n,) is in the order of slates."""
        return np.logical_or.reduceat(bad, begins)

    slates = Slates(order, sizes, 0, name)
    copies = log.counts["duplicates"] > log.counts["dropped_duplicates"]
    repeated = by_slate(np.append(False, (place[1:] == place[:-1]) & (key[1:] == key[:-1])))
    case = {"do": "copies"} if copies else {}  # another advice
    slates.add("slate_position_twice", repeated, column, **case)
    _check_positions(slates, place, begins, repeated, column)
    usual = int(np.bincount(sizes).argmax())
    if not slates.problems:  # gaps and repeats change sizes, too
        slates.add("slate_sizes", sizes != usual, column, least=sizes.min(), most=sizes.max(), usual=usual)
        if not slates.problems:
            slates.size = usual
    mixed_users = by_slate(user[order] != np.repeat(user[order][begins], sizes))
    slates.add("slate_users", mixed_users, found.columns["slate"])
    if log.action is not None:
        pairs = joint(key, log.action.codes[order])
        slates.add("slate_item_twice", by_slate(np.bincount(pairs)[pairs] > 1), log.columns["action"])
    return slates


def _check_positions(slates: Slates, place: Floats, begins: Ints, repeated: NDArray[np.bool_], column: str) -> None:
    """Add slates whose positions do not count up from the usual top position, 0 or 1, to the problems.

    Args:
        slates: the slates.
        place: (n,) position of each row, in the order of slates.
        begins: (S,) first row of each slate in this order.
        repeated: (S,) True for slates with a repeated position, which is another problem.
        column: column of positions.
    """
    top = float(np.median(place[begins]))
    if top not in (0.0, 1.0):
        top = 1.0 if place.min() == 1.0 else 0.0
    expected = top + np.arange(place.size) - np.repeat(begins, slates.sizes)
    slates.add("slate_gap", np.logical_or.reduceat(place != expected, begins) & ~repeated, column)


def _users(log: BanditFile) -> Ints:
    """Return the users (n,) of a log, 0 for all rows without any."""
    if log.users is None:
        return np.zeros(len(log), np.int64)
    return log.users


def slates_in(log: BanditFile, found: SlateFile) -> int:
    """Count the slates of the rows of a log; ``found`` names the column of positions."""
    assert log.key is not None
    return int(np.unique(slate_keys(log.key.codes, _users(log), log.others[found.columns["position"]])).size)


def check_probabilities(slates: Slates, known: Mapping[str, Floats], names: Mapping[str, str]) -> None:
    """Add contradictions between the logging policy's probabilities of different kinds to the problems.

    Args:
        slates: the slates; nothing is checked if they have several sizes.
        known: by kind, the probabilities (n,).
        names: by kind, the column.
    """
    if not slates.size:
        return
    p = {kind: slates.at(values) for kind, values in known.items()}  # (S, size) each
    for kind, values in p.items():
        slates.add("outside", ~((values > 0.0) & (values <= 1.0 + 1e-6)).all(1), names[kind])
        if kind in ("slate", "set"):
            slates.add("slate_varies", ~_same(values, values[:, :1]).all(1), names[kind], kind=OF[kind])
    _add_product(slates, "slate_product", p, names)
    _add_top(slates, "slate_top", p, names)
    for other in ("marginal", "set"):  # the slate in this order implies either event, so it is no more probable
        if "slate" in p and other in p:
            above = (p["slate"] > p[other] * (1.0 + 1e-6)).any(1)
            slates.add("slate_above", above, names["slate"], part=names[other], kind=OF[other])


def _same(first: Any, second: Any) -> Any:
    """Return True where two arrays of probabilities are equal up to rounding."""
    return np.isclose(first, second, rtol=1e-6, atol=0.0)


def _add_product(slates: Slates, code: str, p: Mapping[str, Floats], names: Mapping[str, str]) -> None:
    """Add slates whose probability is not the product of the conditional probabilities of their items."""
    if {"conditional", "slate"} <= set(p):
        differs = ~_same(p["conditional"].prod(1), p["slate"][:, 0])
        slates.add(code, differs, names["conditional"], names["slate"])


def _add_top(slates: Slates, code: str, p: Mapping[str, Floats], names: Mapping[str, str]) -> None:
    """Add slates whose top item has different conditional and marginal probabilities, a sign of exchanged columns."""
    if {"conditional", "marginal"} <= set(p):
        # The tolerance of 1 % allows for rounded columns.
        differs = ~np.isclose(p["conditional"][:, 0], p["marginal"][:, 0], rtol=0.01, atol=1e-12)
        slates.add(code, differs, names["conditional"], names["marginal"])


def check_target(
    slates: Slates,
    name: str,
    kinds: Mapping[str, Floats],
    names: Mapping[str, str],
    items: Any,
    main: str,
) -> None:
    """Add problems of a target policy.

    Args:
        slates: slates of the log; nothing is checked if they have several sizes.
        name: name of the policy.
        kinds: by kind, the policy's probabilities (n,); a column without an ending has the kind of the propensities.
        names: by kind, the column.
        items: (n,) numbers of the items that the policy ranks; None if its columns are of probabilities.
        main: kind of the log's propensities.
    """
    if not slates.size:
        return
    if items is not None:
        slates.add("slate_target_item_twice", (np.diff(np.sort(slates.at(items), 1), axis=1) == 0).any(1), name)
        return
    p = {kind: np.nan_to_num(slates.at(values)) for kind, values in kinds.items()}
    _add_product(slates, "slate_target_product", p, names)
    _add_top(slates, "slate_target_top", p, names)
    if main in ("slate", "set") and names.get(main) == name and not np.isin(p[main], (0.0, 1.0)).all():
        slates.add("slate_target_kind", ~_same(p[main], p[main][:, :1]).all(1), name, kind=OF[main])
