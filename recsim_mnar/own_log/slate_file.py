"""A file of slates, one row per position or one row per slate: recognised, taken apart, and checked."""

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
from recsim_mnar.tables.rows import Rows
from recsim_mnar.tables.values import Faults

OF = {
    "marginal": "the item at its position",
    "conditional": "the item, given the items above it",
    "slate": "the whole slate in order",
    "set": "the slate's items in any order",
}
"""What a probability of a log of slates is of, by kind."""
SAID = {"position": "marginal", "conditional": "conditional", "slate": "slate", "set": "set"}
"""Kinds by what ``--propensities-of`` says."""
PERHAPS = "perhaps_slates"
"""Code of rows that are taken as single items and may be of slates."""
_LISTS = {
    *("items", "itemids", "actions", "actionids", "slate", "ranking", "list", "recommendations", "recommendeditems"),
    *("shownitems", "impressions", "products", "productids", "articles", "articleids", "skus"),
}
"""Names of columns of lists of items, besides those of one item."""


@dataclass(frozen=True)
class SlateFile:
    """A file of slates as a table of one row per position.

    Attributes:
        file: the table.
        columns: column by role: slate, position and, of lists, the action.
        probabilities: columns of the log's probabilities whose names say what they are of, by kind.
        per_slate: whether the file has one row per slate, with lists.
        one_reward: whether a row has one reward for the whole slate.
    """

    file: TableFile
    columns: dict[str, str]
    probabilities: dict[str, str] = field(default_factory=dict)
    per_slate: bool = False
    one_reward: bool = False

    @property
    def form(self) -> str:
        """In words."""
        if self.per_slate:
            return "one row per slate"
        return "one row per position"

    @property
    def own(self) -> bool:
        """Return whether it has our own logs' columns, whose propensities are of the item at its position."""
        return {"user", "step", "event", "propensity", "slate", "position"} <= set(self.file.names)


def find_slates(file: TableFile, columns: Mapping[str, str | None], leave: Collection[str] = ()) -> SlateFile | None:
    """Recognise slates; None for a file of single items.

    Args:
        file: the table.
        columns: by role, as the user says; "none" for slate: single items, whatever the columns are called.
        leave: columns of target policies, with their endings.

    Raises:
        UserError: a named column is missing; a column of slates is named and none of positions is there.
    """
    if NONE in (columns.get("slate"), columns.get("position")):
        return None
    named = {
        role: named_column(str(file.path), role, name, file.names)
        for role in ("slate", "position", "action")
        if (name := columns.get(role)) not in (None, NONE)
    }
    free = [name for name in file.names if name not in leave]
    slate_file = _of_positions(file, columns, named, free) or _of_lists(file, columns, named, free)
    if slate_file is None:
        return None
    taken_columns = {*slate_file.columns.values(), *(name for name in columns.values() if name)}
    return replace(slate_file, probabilities=slate_probabilities([name for name in free if name not in taken_columns]))


def _of_positions(
    file: TableFile, columns: Mapping[str, str | None], named: dict[str, str], free: list[str]
) -> SlateFile | None:
    """A file with a column of slates and one of positions, where a slate has several rows."""
    if "position" in named:
        places = [named["position"]]
    else:
        places = _usual("position", free)
    if not places:
        if "slate" not in named:
            return None
        raise UserError(f"{file.path}: no column is recognised as the position; name it with --position-column")
    for tier, names in enumerate([[named["slate"]]] if "slate" in named else USUAL_NAMES["slate"]):
        for name in [name for name in free if name in names or plain_name(name) in names]:
            if name == places[0] or ("slate" not in named and name == columns.get("user")):
                continue
            user = find_columns(
                str(file.path), free, named={"user": columns.get("user")}, optional=("user",), leave=(name,)
            ).get("user")
            kinds = {name: "id", places[0]: "number"} | ({user: "id"} if user else {})
            rows = file.read(kinds).quiet()
            slate = rows.ids(name)
            place = rows.numbers(places[0])
            # text is named when it is read
            if not np.isfinite(place).any():
                place = np.zeros(len(rows))
            there = (slate.codes >= 0) & ~np.isnan(place)
            if not there.any():
                continue
            if user:
                users = rows.ids(user).codes
            else:
                users = np.zeros(len(rows), np.int64)
            key = slate_keys(slate.codes[there], users[there], place[there])
            place = place[there]
            sizes = np.bincount(np.unique(key, return_inverse=True)[1])
            # A session or a query may hold single items one after another: only what is whole counts there.
            complete = sizes.min() == sizes.max() == np.ptp(place) + 1 and not _doubles(key, place)
            if sizes.max() > 1 and (tier < 2 or "slate" in named or complete):
                return SlateFile(file, {"slate": name, "position": places[0]})
    return None


def slate_names(names: Sequence[str]) -> list[str]:
    """Columns that are called as slates are."""
    return [name for name in names if plain_name(name) in {*USUAL_NAMES["slate"][0], *USUAL_NAMES["slate"][1]}]


def perhaps_slates(file: TableFile, columns: Mapping[str, str | None], leave: Collection[str] = ()) -> Problem | None:
    """Report that rows taken as single items may be of slates; None where there is no sign, or the user says they are.

    The first rows are looked at. Arguments as of :func:`find_slates`.
    """
    if NONE in (columns.get("slate"), columns.get("position")):
        return None
    free = [name for name in file.names if name not in leave]
    head = file.head()
    single = "state --slate-column none, if each row is a single item"
    called = slate_names(free)
    kinds = slate_probabilities(free)
    several = [name for name in called if len({*map(str, head.get(name, ()))}) < len(head.get(name, ()))]
    places = next(
        ((name, places_found) for name in _usual("position", free) if (places_found := _counted(head.get(name, ())))),
        None,
    )
    if several and not _usual("position", free):
        message = f"rows with the same {several[0]!r} may be one slate, and no column of positions is recognised"
        return Problem(PERHAPS, NOTE, message, f"name it with --position-column NAME, or {single}", (several[0],))
    if called or (places is None and len(kinds) < 2):
        return None
    if places is None:
        where = tuple(kinds.values())
        message = f"columns {', '.join(where)} are called as probabilities of slates are"
    else:
        name, places_known = places
        where = (name,)
        message = f"column {name!r} counts positions {places_known[0]} to {places_known[-1]}"
    message += ", as of slates, and no column is recognised that says which rows are one slate"
    return Problem(PERHAPS, NOTE, message, f"name it with --slate-column NAME, or {single}", where)


def _counted(values: Sequence[Any]) -> list[int]:
    """The positions that there are, ascending; none where they do not count 0, 1, ... or 1, 2, ... without a gap."""
    try:
        distinct = sorted({float(number) for number in values if number not in (None, "") and number == number})
    except (TypeError, ValueError):
        return []
    counts = (
        len(distinct) > 1 and distinct[0] in (0.0, 1.0) and distinct == [distinct[0] + i for i in range(len(distinct))]
    )
    if counts:
        return [int(number) for number in distinct]
    return []


def _usual(role: str, free: Sequence[str]) -> list[str]:
    return [name for tier in USUAL_NAMES[role] for name in free if plain_name(name) in tier]


def joint(one: Ints, other: Ints) -> Ints:
    """(n,) numbers of the pairs of two numbers."""
    return np.unique(one * (int(other.max(initial=0)) + 2) + other, return_inverse=True)[1].reshape(-1)


def slate_keys(slate: Ints, user: Ints, place: Floats) -> Ints:
    """(n,) numbers of slates, alike within one; of users and slates where these are numbered anew for each user."""
    both = joint(user, slate)
    if _doubles(slate, place) > _doubles(both, place):
        return both
    return slate


def _doubles(key: Ints, place: Floats) -> int:
    """Count the rows that repeat the position of an earlier one of their slate."""
    places = np.unique(place, return_inverse=True)[1]
    return int(key.size - np.unique(joint(key, places)).size)


# ------------------------------------------------------------------------------------------------- lists, taken apart


def _of_lists(
    file: TableFile, columns: Mapping[str, str | None], named: dict[str, str], free: list[str]
) -> SlateFile | None:
    """A file whose column of items holds lists."""
    usual = {*_LISTS, *(name for role in ("action", "item") for tier in USUAL_NAMES[role] for name in tier)}
    if "action" in named:
        names = [named["action"]]
    else:
        names = [name for name in free if plain_name(name) in usual]
    if not names:
        return None
    lists = {name: column for name, values in file.head().items() if (column := _lists_of(values)) is not None}
    for name in (name for name in names if name in lists):
        sizes = [len(column) for column in lists[name]]
        alike = tuple(
            column
            for column, values in lists.items()
            if np.mean([len(v) == n for v, n in zip(values, sizes, strict=True)]) > 0.5
        )
        added = {
            role: next(column for column in (role, f"{role}_of_list") if column not in file.names)
            for role in ("slate", "position")
        }
        table = ListedSlates(file.path, file.parts, [*file.names, *added.values()], file.form, name, alike, added)
        reward = find_columns(str(file.path), free, named={"reward": columns.get("reward")}, optional=("reward",))
        one = "reward" in reward and reward["reward"] not in alike
        return SlateFile(table, {**added, "action": name}, per_slate=True, one_reward=one)
    return None


def _lists_of(values: Sequence[Any]) -> list[list[Any]] | None:
    """The lists that the first values of a column hold; None where most are none, or of one."""
    present = [value for value in values if value not in (None, "")]
    lists = [_parts(value) if isinstance(value, str) else value for value in values]
    lists = [
        list(parts_of_value) if isinstance(parts_of_value, list | tuple | np.ndarray) else []
        for parts_of_value in lists
    ]
    if present and sum(len(parts_of_value) > 1 for parts_of_value in lists) > 0.5 * len(present):
        return lists
    return None


def _parts(text: str | None) -> list[Any]:
    """The items of a list written as JSON; none of any other text."""
    try:
        parsed = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return []
    if isinstance(parsed, list):
        return [None if part is None else str(part) for part in parsed]
    return []


@dataclass(frozen=True)
class ListedSlates(TableFile):
    """A table of one row per slate as one of one row per position.

    Attributes:
        action: the column of lists of items.
        lists: the columns of lists of the same lengths.
        added: names of the columns of slates, numbered as the file's rows from 1, and of positions, from 0.
    """

    action: str = ""
    lists: tuple[str, ...] = ()
    added: Mapping[str, str] = field(default_factory=dict)

    def head(self) -> dict[str, list[Any]]:
        """The first rows, one per position."""
        columns = super().head()
        parts = {name: _lists_of(columns[name]) or [] for name in self.lists}
        sizes = [len(part) for part in parts[self.action]]
        return {
            name: [x for part in parts[name] for x in part]
            if name in parts
            else [x for x, n in zip(values, sizes, strict=True) for _ in range(n)]
            for name, values in columns.items()
        }

    def read(self, kinds: Mapping[str, str]) -> Rows:
        """All rows, one per position.

        Raises:
            UserError: also where lists of one row have different lengths.
        """
        import pyarrow as pa

        wanted_columns = [name for name in kinds if name not in self.added.values()]
        listed_file = TableFile(self.path, self.parts, self.names[: -len(self.added)], self.form)
        read = {name: "text" if name in self.lists else kinds[name] for name in wanted_columns}
        table = listed_file.read({self.action: "text", **read}).table
        flat, sizes = _flat(table.column(self.action))
        self._refuse(sizes < 0, f"has a list in {self.action!r} that cannot be read")
        self._refuse(sizes < 1, f"has no item in {self.action!r}")
        of_row = np.repeat(np.arange(table.num_rows), sizes)
        made = {self.action: flat}
        for name in wanted_columns:
            if name not in self.lists:
                made[name] = table.column(name).take(pa.array(of_row))
            elif name != self.action:
                made[name], lengths = _flat(table.column(name))
                self._refuse(lengths < 0, f"has a list in {name!r} that cannot be read")
                self._refuse(
                    lengths != sizes, f"has another number of values in {name!r} than of items in {self.action!r}"
                )
        starts = np.cumsum(sizes) - sizes
        made |= {self.added["slate"]: pa.array(of_row + 1)}
        made |= {self.added["position"]: pa.array(np.arange(of_row.size) - starts[of_row])}
        return Rows(str(self.path), pa.table({name: made[name] for name in kinds}), self.decimal, of_row=of_row + 1)

    def blocks(self, kinds: Mapping[str, str], rows: int, faults: Faults | None = None) -> Any:
        """All rows in one block, as :meth:`read`."""
        read_part = self.read(kinds)
        if faults is not None:
            read_part.faults = faults
        yield read_part

    def how_written(self) -> list[str]:
        """Describe the format as of any table, and that its lists were taken apart."""
        return [*super().how_written(), "lists of items"]

    def _refuse(self, bad: NDArray[np.bool_], what: str) -> None:
        if bad.any():
            more = ""
            if bad.sum() > 1:
                more = f" ({int(bad.sum()):,} such rows)"
            row = int(np.argmax(bad)) + 1
            advice = "write one value per item"
            if "cannot be read" in what:
                advice = "write it as JSON, [1, 2]"
            raise UserError(f"{self.path}: row {row} {what}{more}: {advice}", code="bad_slates")


def _flat(column: Any) -> tuple[Any, Ints]:
    """The items of a column of lists, and how many each row has; -1 where a text is no list."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        sizes = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
        return pc.list_flatten(column), sizes
    values = column.cast(pa.string()).to_pylist()
    lists = [_parts(value) for value in values]
    sizes = np.array([len(part) for part in lists], np.int64)
    texts = [(value or "").strip() for value in values]
    sizes[(sizes == 0) & [text not in ("", "[]") for text in texts]] = -1
    return pa.array([x for part in lists for x in part], pa.string()), sizes


# ------------------------------------------------------------------------------------------------ rows, put in order


@dataclass
class Slates:
    """The rows of slates, checked; what is wrong with them is in ``problems``.

    Attributes:
        order: (n,) rows, slate by slate from the top; users' slates by time, else as the file has them.
        sizes: (S,) items of each slate.
        size: of all slates, 0 where they are not of one size.
        name: of a slate, from 0, with its first row in the file, in words.
        problems: what is wrong.
    """

    order: Ints
    sizes: Ints
    size: int
    name: Callable[[int], str]
    problems: list[Problem] = field(default_factory=list)

    @property
    def number(self) -> int:
        """Count the slates."""
        return self.sizes.size

    def at(self, values: Any) -> Any:
        """(slates, size) values (n,) in order."""
        return np.asarray(values)[self.order].reshape(-1, self.size)

    def add(self, code: str, bad: Any, *columns: str, **params: Any) -> None:
        """Add a problem of the slates (S,) that are marked, if any is; ``params`` as of :meth:`Problem.of`."""
        if bad.any():
            number = int(bad.sum())
            first = self.name(int(np.argmax(bad)))
            problem = Problem.of(code, PROBLEM, *columns, **params)
            where = f"{number:,} slate{'s' * (number > 1)} of {self.number:,}, first {first}"
            self.problems.append(replace(problem, message=f"{problem.message}: {where}"))


def arrange(log: BanditFile, found: SlateFile) -> Slates:
    """Put the rows of a log into slates, from the top, and look for what is wrong with them."""
    assert log.key is not None
    ids = log.key.ids
    numbers = log.row_numbers
    column = found.columns["position"]
    slate, position, time = log.key.codes, log.others[column], log.others.get(log.columns.get("time") or "")
    if log.users is None:
        user = np.zeros(slate.size, np.int64)
    else:
        user = log.users
    _, first, key = np.unique(slate_keys(slate, user, position), return_index=True, return_inverse=True)
    key = key.reshape(-1)
    if time is None:
        began = first[key]
    else:
        began = np.lexsort((first, time[first])).argsort()[key]
    order = np.lexsort((position, first[key], began, user[first][key]))
    key, place, begins = key[order], position[order], user_starts(key[order])
    sizes = np.diff(np.append(begins, key.size))
    usual = int(np.bincount(sizes).argmax())

    def name(i: int) -> str:
        row = order[begins[i]]
        if found.per_slate:
            return f"row {numbers[row]}"
        return f"slate {ids[slate[row]]} (row {numbers[row]})"

    def some(bad: Any) -> Any:
        """(S,) whether a row (n,) is bad, by slate."""
        return np.logical_or.reduceat(bad, begins)

    slates = Slates(order, sizes, 0, name)
    copies = log.counts["duplicates"] > log.counts["dropped_duplicates"]
    top = place[begins]  # before a gap is looked for: where slates count from 0 and from 1, none of them has one
    if np.median(top) in (0.0, 1.0):
        usual_top = float(np.median(top))
    else:
        usual_top = place.min() if place.min() == 1.0 else 0.0
    other_top = (top == 1.0 - usual_top) & ((sizes == usual) | (usual_top == 1.0))
    again = some(np.append(False, (place[1:] == place[:-1]) & (key[1:] == key[:-1])))
    slates.add("slate_position_twice", again, column, **({"do": "copies"} if copies else {}))
    slates.add("slate_gap", other_top, column, says="top", do="top", other_top=1 - usual_top, top=usual_top)
    base = np.repeat(np.where(other_top, top, usual_top), sizes)
    gap = some(place - base != np.arange(key.size) - np.repeat(begins, sizes)) & ~again
    slates.add("slate_gap", gap, column)
    if not slates.problems:
        slates.add("slate_sizes", sizes != usual, column, least=sizes.min(), most=sizes.max(), usual=usual)
        if slates.problems:
            slates.size = 0
        else:
            slates.size = usual
    mixed_users = some(user[order] != np.repeat(user[order][begins], sizes))
    slates.add("slate_users", mixed_users, found.columns["slate"])
    if log.action is not None:
        pairs = joint(key, log.action.codes[order])
        slates.add("slate_item_twice", some(np.bincount(pairs)[pairs] > 1), log.columns["action"])
    return slates


def slates_in(log: BanditFile, found: SlateFile) -> int:
    """Count the slates of the rows of a log."""
    assert log.key is not None
    if log.users is None:
        user = np.zeros(len(log), np.int64)
    else:
        user = log.users
    return int(np.unique(slate_keys(log.key.codes, user, log.others[found.columns["position"]])).size)


def check_probabilities(slates: Slates, known: Mapping[str, Floats], names: Mapping[str, str]) -> None:
    """Add what contradicts what in the log's probabilities (n,), by kind, to the problems."""
    if not slates.size:
        return
    p = {kind: slates.at(values) for kind, values in known.items()}
    for kind, values in p.items():
        slates.add("outside", ~((values > 0.0) & (values <= 1.0 + 1e-6)).all(1), names[kind])
        if kind in ("slate", "set"):
            slates.add("slate_varies", ~_same(values, values[:, :1]).all(1), names[kind], kind=OF[kind])
    _add_product(slates, "slate_product", p, names)
    _add_top(slates, "slate_top", p, names)
    for kind, other in (("slate", "marginal"), ("slate", "set")):
        if {kind, other} <= set(p):
            above = (p[kind] > p[other] * (1.0 + 1e-6)).any(1)
            slates.add("slate_above", above, names[kind], part=names[other], kind=OF[other])


def _same(one: Any, other: Any) -> Any:
    """Compare the probabilities of two arrays, up to rounding."""
    return np.isclose(one, other, rtol=1e-6, atol=0.0)


def _add_product(slates: Slates, code: str, p: Mapping[str, Floats], names: Mapping[str, str]) -> None:
    """Add slates whose probability is not the product of its items', given those above."""
    if {"conditional", "slate"} <= set(p):
        off = ~_same(p["conditional"].prod(1), p["slate"][:, 0])
        slates.add(code, off, names["conditional"], names["slate"])


def _add_top(slates: Slates, code: str, p: Mapping[str, Floats], names: Mapping[str, str]) -> None:
    """Add slates in which it matters at the top what is above: positions from below, or columns exchanged."""
    if {"conditional", "marginal"} <= set(p):
        off = ~np.isclose(p["conditional"][:, 0], p["marginal"][:, 0], rtol=0.01, atol=1e-12)  # columns may be rounded
        slates.add(code, off, names["conditional"], names["marginal"])


def check_target(
    slates: Slates,
    name: str,
    kinds: Mapping[str, Floats],
    names: Mapping[str, str],
    items: Any,
    main: str,
) -> None:
    """Add what is wrong with a target policy to the problems.

    Args:
        slates: of the log.
        name: of the policy.
        kinds: by kind, its probabilities (n,); its column without an ending under the kind of the log's propensities.
        names: by kind, their columns.
        items: (n,) numbers of the items that it ranks, None where its columns are of probabilities.
        main: what the log's propensities are of.
    """
    if not slates.size:
        return
    if items is not None:
        slates.add("slate_target_item_twice", (np.diff(np.sort(slates.at(items), 1), axis=1) == 0).any(1), name)
        return
    p = {kind: np.nan_to_num(slates.at(values)) for kind, values in kinds.items()}
    _add_product(slates, "slate_target_product", p, names)
    _add_top(slates, "slate_target_top", p, names)
    bare = None
    if names.get(main) == name:
        bare = p.get(main)
    if bare is None or np.isin(bare, (0.0, 1.0)).all():
        return
    if main in ("slate", "set"):
        slates.add("slate_target_kind", ~_same(bare, bare[:, :1]).all(1), name, kind=OF[main])
