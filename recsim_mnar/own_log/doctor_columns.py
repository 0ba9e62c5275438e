"""The kind of a file and the likely roles of its columns, by their names and by their values."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.answers.weights import Segments, Weights
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import STRICT, mean_weight_limits
from recsim_mnar.estimators.facts import Facts
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Clusters, Floats
from recsim_mnar.own_log.bandit_file import NOTE, PROBLEM, Problem, Reading, but_for_slates
from recsim_mnar.own_log.shown_item import IN_CAPITALS, ShownItem, find_shown, same_items
from recsim_mnar.own_log.slate_estimates import SlateLog, endings_of, read_slates
from recsim_mnar.own_log.slate_file import SlateFile, find_slates
from recsim_mnar.tables.files import is_text
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import (
    GUESSED,
    USUAL_NAMES,
    Columns,
    find_columns,
    likely_columns,
    new_policies,
    of_what_was_shown,
    plain_name,
)
from recsim_mnar.tables.rows import DROP, Rows
from recsim_mnar.tables.values import MISSING, Decimal, Fault, Ids, listed, spelled_alike, text_numbers

HOLDS_ITEMS = "holds_items"
"""Code of columns of items that a new policy may show."""


def problems_of(faults: Iterable[Fault]) -> list[Problem]:
    """The faults of values: what is missing is said apart, with its counts in every column."""
    return [
        Problem(fault.code, PROBLEM, fault.message, fault.advice, (fault.column,))
        for fault in faults
        if fault.code != MISSING
    ]


HIGHEST = 1.0 + 1e-6
_PERCENT = 100.0
_SHOWN = 3


@dataclass(frozen=True)
class MeanWeight:
    """Evidence on whether the weights of a policy have the mean that they must have.

    Attributes:
        policy: a target's column; "" for the policy that takes every action ever shown equally often, which needs none.
        mean: of target / propensity over the rows whose values are possible.
        low, high: of its expectation, at :data:`STRICT`, users being independent.
        actions: number of actions of that policy, None for a target's column.
    """

    policy: str
    mean: float
    low: float
    high: float
    actions: int | None = None

    @property
    def holds(self) -> bool:
        """True if the mean can be 1."""
        return self.low <= 1.0 <= self.high

    def to_dict(self) -> Mapping[str, object]:
        """JSON types; what is not finite is None."""
        ends = {name: value if np.isfinite(value) else None for name, value in (("low", self.low), ("high", self.high))}
        return {
            "policy": self.policy or None,
            "mean": self.mean,
            **ends,
            "actions": self.actions,
            "holds": self.holds,
            "line": self.line(),
        }

    def line(self) -> str:
        """For a person: what was checked, and the numbers."""
        mean_text, expected_text = told_apart(self.mean, 1.0)
        numbers = f"{mean_text} ({self.low:.3g} to {self.high:.3g} at {100 * STRICT:g} %), should be {expected_text}"
        if self.actions is None:
            return f"of {self.policy} / logged probability: {numbers}"
        return f"of equal shares of the {self.actions:,} items shown / logged probability: {numbers}"

    def problem(self, column: str) -> Problem:
        """The problem of a mean that cannot be 1, of propensities in a column."""
        below = self.mean < 1.0
        level, kind = (PROBLEM, "target") if self.actions is None else (NOTE, "shares")
        case = f"{kind}_{'below' if below else 'above'}"
        if below and self.low <= 1.0 / _PERCENT <= self.high:
            case = "percent"
        possible = self.mean * (self.actions or 1)
        return Problem.of(
            "mean_weight", level, column, do=case, line=self.line(), policy=self.policy, possible=possible
        )


@dataclass(frozen=True)
class Propensities:
    """Contents of a column of propensities.

    Attributes:
        least, largest: of those that are there; None where none is.
        zero, negative, above_1: how many are impossible, ``impossible`` all of them.
        impossible: see there.
        percent: whether they look like per cent.
    """

    least: float | None
    largest: float | None
    zero: int
    negative: int
    above_1: int
    impossible: int
    percent: bool

    @staticmethod
    def of(values: Floats) -> Propensities:
        """Summarise (n,) propensities, NaN where missing."""
        present = values[~np.isnan(values)]
        zero, negative, above = (int(np.sum(bad)) for bad in (present == 0.0, present < 0.0, present > HIGHEST))
        counts = zero, negative, above, zero + negative + above
        if not present.size:
            return Propensities(None, None, *counts, False)
        least = float(present.min())
        largest = float(present.max())
        many = above > 0 and above >= present.size / 2
        return Propensities(least, largest, *counts, many and least >= 0.0 and largest <= _PERCENT)

    def problems(self, values: Floats, column: str, numbers: NDArray[np.int64]) -> list[Problem]:
        """The problems of those that are impossible.

        Args:
            values: (n,).
            column: their name.
            numbers: (n,) rows in the file, from 1.
        """
        result = []
        if self.above_1:
            case = {}
            if self.percent:
                case = {"do": "percent"}
            rows = _rows(values, np.flatnonzero(values > HIGHEST), numbers)
            result.append(Problem.of("propensity_above_1", PROBLEM, column, rows=rows, **case))
        low = np.flatnonzero(values <= 0.0)
        if low.size:
            rows = _rows(values, low, numbers)
            result.append(Problem.of("propensity_not_positive", PROBLEM, column, rows=rows))
        return result


def _rows(values: Floats, bad: NDArray[np.int64], numbers: NDArray[np.int64]) -> str:
    rows_shown = listed([f"{numbers[row]}: {values[row]:g}" for row in bad], _SHOWN)
    if bad.size > 1:
        return f"{bad.size:,} rows ({rows_shown})"
    return f"row {rows_shown}"


def mean_weight(
    propensity: Floats, target: Floats, user: NDArray[np.int64] | None, *, policy: str = "", actions: int | None = None
) -> MeanWeight | None:
    """The mean weight of a policy with its limits; None where no row has possible values.

    Args:
        propensity: (n,).
        target: (n,) the policy's probability of the logged action.
        user: (n,) numbers of users, -1 where missing; None where rows are independent.
        policy: its column.
        actions: of the policy that takes so many equally often.
    """
    good = (propensity > 0.0) & (propensity <= HIGHEST) & (target >= 0.0) & (target <= HIGHEST)
    if user is not None:
        good &= user >= 0
    if not good.any():
        return None
    p = np.minimum(propensity[good], 1.0)
    t = target[good]
    cluster = None
    if user is not None:
        cluster = Clusters.of(user[good], int(good.sum()))
    sums = PolicySums.of(p, t, cluster)
    low, high = mean_weight_limits(sums, STRICT)
    return MeanWeight(policy, sums.mean_weight, low, high, actions)


BANDIT, INTERACTIONS, TABLE = "bandit log", "interactions", "table"
"""What a file can be: recommendations with what came of them; who met what; neither."""

_ROLES = ("user", "action", "reward", "propensity", "time", "logger", "event", "item")
_RATINGS = USUAL_NAMES["reward"][-1]
_LOOKED_AT = 1000
"""Values looked at of a column with no named role."""
_TWO = 2
"""Sizes of shares that are taken for a policy's by their mean weight alone."""
_MOST_SEGMENTS = 30
"""Words of a column that estimates are offered by."""
_GUESSES = ("reward", "propensity", "user", "item", "action", "time")
"""Roles that a likely column is named for, in this order."""
_LEAST_USERS = 20
"""Values of a column of users at least."""


@dataclass(frozen=True)
class Asked:
    """The user's statements about a file.

    Attributes:
        columns: by role (user, item, action, reward, propensity, time, logger); None or left out: recognised.
        targets: columns of target policies' probabilities of the logged action.
        n_actions: how many actions there are; None where the file is all that is known.
        target_file: a second file with the targets, and ``on`` the column by which its rows are found.
        on: see ``target_file``.
        guessed: roles of ``columns`` that the user did not name.
        decimal: decimal mark of a text file; None: found out.
        propensities_of: what the propensities of slates are of, as ``--propensities-of`` says.
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    targets: Sequence[str] = ()
    n_actions: int | None = None
    target_file: str | os.PathLike[str] | None = None
    on: str | None = None
    guessed: Collection[str] = ()
    propensities_of: str | None = None
    decimal: str | None = None


def columns_of(file: TableFile, source: str, asked: Asked) -> tuple[str, Columns, ShownItem]:
    """Identify the file, its columns, and the reason for the choice of the action."""
    named = asked.columns
    item = asked.columns.get("item")
    left = [name for name in asked.targets if name in file.names]
    columns = find_columns(source, file.names, named=named, optional=_ROLES, leave=left)
    if item is not None:
        shown_item = ShownItem()
    else:
        shown_item = find_shown(file, columns, left)
    columns = columns.with_action(shown_item.column, GUESSED, shown_item.rivals)
    if "propensity" not in {*columns.names, *columns.unclear, *columns.without} and item is None:
        shares = _perhaps_propensities(file, {*columns.names.values(), *left, *targets_of(file.names, columns)})
        columns = replace(columns, unclear=columns.unclear | ({"propensity": shares} if shares else {}))
    if "reward" not in columns.names:
        columns = replace(columns, unclear=columns.unclear | _perhaps_rewards(file, columns))
    rated = plain_name(columns.get("reward") or "") in _RATINGS
    logged = "propensity" in columns or "propensity" in columns.unclear
    if logged or asked.targets or asked.target_file is not None or ("reward" in columns and not rated and item is None):
        return BANDIT if "reward" in columns or "propensity" in columns else TABLE, columns, shown_item
    wanted_columns = {"user": named.get("user"), "item": item, "time": named.get("time")}
    met = find_columns(source, file.names, named=wanted_columns, optional=("user", "item", "time", "event"))
    return (INTERACTIONS if "user" in met and "item" in met else TABLE), met, ShownItem()


def targets_of(names: Sequence[str], columns: Columns) -> tuple[str, ...]:
    """Columns that are targets by their names: those that ``replay`` has written the missing mass of, or say so."""
    free = [name for name in names if name not in columns.names.values()]
    replayed = [name for name in free if f"{name}_unsupported" in names]
    policies = new_policies(free)
    return tuple(dict.fromkeys([*replayed, *(name for name in policies if "propensity" in columns)]))


def _are_shares(column: Any, decimal: Decimal, *, zero: bool = True) -> bool:
    """Return whether the first values are numbers in [0, 1], not 0 and 1 alone; or in (0, 1], and not all of them 1."""
    import pyarrow as pa

    words = [str(value) for value in column[:_LOOKED_AT] if not isinstance(value, bool)]
    values, _, bad = text_numbers(pa.array(words, pa.string()), decimal)
    present = values[~np.isnan(values)]
    fits = np.all((present >= 0.0 if zero else present > 0.0) & (present <= 1.0))
    if zero:
        many = len(np.unique(present)) > 1 and np.any((present > 0.0) & (present < 1.0))
    else:
        many = np.any(present < 1.0)
    return bool(not bad.any() and fits and many)


def _perhaps_propensities(file: TableFile, used: Collection[str]) -> tuple[str, ...]:
    """Unused columns whose first values are all in (0, 1]: the probability of what was shown, for all one knows."""
    candidates = [name for name, values in file.head().items() if name not in used]
    return tuple(name for name in candidates if _are_shares(file.head()[name], file.decimal, zero=False))


def _perhaps_rewards(file: TableFile, columns: Columns) -> dict[str, tuple[str, ...]]:
    """Columns that the reward could be, those of zeros and ones first; without usual names these alone."""
    import pyarrow as pa

    text = columns.unclear.get("reward", ())
    yes_or_no = []
    likely = likely_columns("reward", file.names)
    for name, values in file.head().items():
        numbers, _, bad = text_numbers(pa.array([str(value) for value in values], pa.string()))
        if name not in columns.names.values() and not bad.any() and set(numbers[~np.isnan(numbers)]) == {0.0, 1.0}:
            yes_or_no.append(name)
    if not text and "propensity" not in {*columns.names, *columns.unclear}:
        return {}
    yes_or_no.sort(key=lambda name: name not in likely)
    names_in_order = [name for name in text if name in yes_or_no] + [name for name in text if name not in yes_or_no]
    if names_in_order or yes_or_no:
        return {"reward": tuple(names_in_order or yes_or_no)}
    return {}


@dataclass(frozen=True)
class Unnamed:
    """Columns that have no role, and what they could be for all that their names and values say.

    Attributes:
        rows: of the recommendations; nothing in them is a fault.
        columns: those that have a role.
        targets: columns of target policies.
        others: the other columns.
        decimal: mark of the file's numbers.
        items: of the other columns those that hold items, and how.
    """

    rows: Rows
    columns: Columns
    targets: Sequence[str]
    others: Sequence[str]
    decimal: Decimal
    items: Mapping[str, str] = field(default_factory=dict)

    def guesses(self) -> dict[str, str]:
        """The likeliest column of roles that are not clear; of users one of their words whose values recur."""
        result: dict[str, str] = {}
        for role in _GUESSES:
            names = [name for name in self.columns.unclear.get(role, ()) if name not in result.values()]
            if role == "propensity":  # those whose names say that they are of what was shown come first
                names.sort(key=lambda name: not of_what_was_shown(name))
            result |= {role: names[0]} if names else {}
        if "user" not in {*self.columns.names, *result, *self.columns.without} and len(self.rows):
            free = [name for name in likely_columns("user", self.others) if name not in result.values()]
            values = {name: self.rows.ids(name) for name in free}
            likely = [name for name, column in values.items() if _LEAST_USERS <= column.number <= len(self.rows) / 2]
            if likely:
                result |= {"user": max(likely, key=lambda name: values[name].number)}
        return result

    def segments(self) -> tuple[list[str], list[Problem]]:
        """Those of a few words each, fixed before; words that differ only in capitals are a remark."""
        result = []
        remarks = []
        unclear = {name for names in self.columns.unclear.values() for name in names}
        for name in self.others:
            if name in unclear or name in self.items or not len(self.rows) or not is_text(self.rows.column(name).type):
                continue
            values = self.rows.ids(name)
            if not (values.ids.dtype.kind == "O" and 2 <= values.number <= _MOST_SEGMENTS) or self._depends(
                name, values
            ):
                continue
            result.append(name)
            counts = dict(zip(values.ids, np.bincount(values.codes[values.codes >= 0]).tolist(), strict=True))
            groups = [sorted(group, key=lambda word: (-counts[word], word)) for group in spelled_alike(values.ids)]
            if groups:
                pairs = ", ".join(" and ".join(group) for group in sorted(groups, key=lambda each: -counts[each[0]]))
                share = sum(counts[word] for group in groups for word in group[1:]) / len(self.rows)
                remarks.append(Problem.of("spelled_alike", NOTE, name, pairs=pairs, percent=100 * share))
        return result, remarks

    def items_of_policies(self) -> list[Problem]:
        """Those that hold items, as of a policy that would have shown them; not what was shown, under another name."""
        if not (self.items and len(self.rows)):
            return []
        action = self.rows.ids(self.columns["action"])
        ids = {name: self.rows.ids(name) for name in self.items}
        names_of_items = [name for name, column in ids.items() if not same_items(column, action, fold=True).all()]
        names_of_items = new_policies(names_of_items, items=True) or names_of_items
        if not names_of_items:
            return []
        fold = ""
        if any(self.items[name] == IN_CAPITALS for name in names_of_items):
            fold = " --fold-case"
        case = {}
        if len(names_of_items) > 1:
            case = {"says": "several", "do": "several"}
        target = f"{','.join(names_of_items)}{fold}"
        return [Problem.of(HOLDS_ITEMS, NOTE, *names_of_items, listed=", ".join(names_of_items), target=target, **case)]

    def _depends(self, name: str, values: Ids) -> bool:
        """Return whether `estimate --by` would refuse a column, as one that depends on what was recommended."""
        weights = self._weights
        rows = self._good
        if weights is None:
            return False
        try:
            weights.refuse(Segments.of(name, values.codes[rows], values.ids))
        except UserError:
            return True
        return False

    @cached_property
    def _good(self) -> NDArray[np.int64]:
        """Rows whose reward, propensity, targets, user and action are there and possible."""
        rows = self.rows
        read = {role: rows.numbers(self.columns[role]) for role in ("reward", "propensity") if role in self.columns}
        targets = [rows.numbers(name) for name in self.targets]
        good = np.ones(len(rows), np.bool_)
        for values in (*read.values(), *targets):
            good &= np.isfinite(values)
        for role in ("user", "action"):
            if role in self.columns:
                good &= rows.ids(self.columns[role]).codes >= 0
        if "propensity" in read:
            good &= (read["propensity"] > 0.0) & (read["propensity"] <= 1.0)
        return np.flatnonzero(good)

    @cached_property
    def _weights(self) -> Weights | None:
        """Gather evidence on whether a column was fixed before; None where rewards or propensities are not known."""
        rows = self.rows
        kept = self._good
        if not {"reward", "propensity"} <= set(self.columns.names) or not kept.size:
            return None
        ids = {role: rows.ids(self.columns[role]).codes[kept] for role in ("user", "action") if role in self.columns}
        numbers = {name: rows.numbers(name)[kept] for name in self.targets}
        reward, propensity = (rows.numbers(self.columns[role])[kept] for role in ("reward", "propensity"))
        users = None
        if "user" in ids:
            users = Clusters.of(ids["user"], kept.size)
        return Weights(reward, propensity, users, numbers, {}, ids.get("action"), Facts())

    def maybe_targets(self, user: NDArray[np.int64] | None) -> list[Problem]:
        """Those that look like a policy's probabilities; ``user`` (n,) as :func:`mean_weight`."""
        rows = self.rows
        names = [name for name in self.others if name]
        propensity = rows.numbers(self.columns["propensity"])

        def weight_of(name: str, values: Floats) -> MeanWeight | None:
            weight = mean_weight(propensity, values, user, policy=name)
            if weight is not None and weight.holds:
                return weight
            return None

        shares = [
            name for name in names if name not in self.columns.unclear.get("reward", ())
            and _are_shares(rows.column(name).slice(0, _LOOKED_AT).drop_null().to_pylist(), self.decimal)
        ]  # fmt: skip
        columns_found = [name for name in shares if weight_of(name, rows.numbers(name)) is not None]
        columns_found = columns_found or [
            name for name in shares if len(np.unique(rows.numbers(name)[:_LOOKED_AT])) > _TWO
        ]
        if columns_found:
            case = {}
            if len(columns_found) > 1:
                case = {"says": "several"}
            listed = ", ".join(map(repr, columns_found))
            return [
                Problem.of("maybe_target", NOTE, *columns_found, listed=listed, target=",".join(columns_found), **case)
            ]
        return []


@dataclass(frozen=True)
class SlateFacts:
    """Contents of a file of slates.

    Attributes:
        form: one row per position, or per slate.
        slates: how many, of ``least`` to ``most`` items; None where they could not be read.
        least: see ``slates``.
        most: likewise.
        propensities_of: by column, the kind of its probabilities.
        columns: by role those of slates and positions; empty where a row is a slate.
        options: that a command needs to read the file so.
        lines: what was read, for a person.
    """

    form: str
    slates: int | None = None
    least: int | None = None
    most: int | None = None
    propensities_of: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    options: Sequence[str] = ()
    lines: Sequence[str] = ()

    def to_dict(self) -> Mapping[str, object]:
        """JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class KnownSlates:
    """Facts on a file of slates.

    Attributes:
        found: the file.
        columns: by role, as the user says and as they were found.
        taken: roles that the user did not name.
        main: what the propensities are of; "" where that is not known.
        facts: what it holds.
    """

    found: SlateFile
    columns: dict[str, str | None]
    taken: frozenset[str]
    main: str
    facts: SlateFacts


def slates_of_file(file: TableFile, asked: Asked) -> tuple[KnownSlates | None, list[Problem]]:
    """Return the facts on a file of slates and the problems they have; None for a file of single items."""
    found = find_slates(file, asked.columns, endings_of(asked.targets, file.names))
    if found is None:
        return None, []
    columns = but_for_slates(asked.columns)
    of_slates = {role: asked.columns.get(role) for role in ("slate", "position")}
    options = [word for role, name in of_slates.items() if name is not None for word in (f"--{role}-column", name)]
    if asked.propensities_of is None:
        options += []
    else:
        options += ["--propensities-of", asked.propensities_of]
    facts = SlateFacts(
        found.form,
        columns={} if found.per_slate else {role: found.columns[role] for role in of_slates},
        options=options,
        lines=[found.form],
    )
    own = {}
    if found.per_slate:
        own = {"action": found.columns["action"]}
    read, problems = _read(found, asked)
    if read is not None:
        slates = read.slates
        names = read.log.columns.names
        own |= {role: names[role] for role in ("user", "propensity", "reward") if role in names}
        least = int(slates.sizes.min())
        most = int(slates.sizes.max())
        if least < most:
            sizes = "several sizes"
        else:
            sizes = f"{most} items"
        if slates.size:
            lines = read.lines
        else:
            lines = [f"{found.form}: {slates.number:,} slates of {sizes}"]
        facts = replace(
            facts,
            slates=slates.number,
            least=least,
            most=most,
            propensities_of={name: kind for kind, name in read.kinds.items()},
            lines=lines,
        )
    taken = frozenset(role for role in own if columns.get(role) is None)
    columns |= {role: own[role] for role in taken}
    return KnownSlates(found, columns, taken, "" if read is None else read.main, facts), problems


def _read(found: SlateFile, asked: Asked) -> tuple[SlateLog | None, list[Problem]]:
    """The slates that can be read, and what is wrong with them; why, where none can."""
    named = {role: name for role, name in asked.columns.items() if role != "item"}
    reading = Reading(named, drop_missing=True, drop_invalid=1.0, propensities_of=asked.propensities_of)
    try:
        read = read_slates(found, reading, [name for name in asked.targets if endings_of([name], found.file.names)])
    except UserError:
        try:  # what is wrong where no row is left
            read_slates(found, replace(reading, drop_missing=False, drop_invalid=None))
        except UserError as error:
            message = str(error).removeprefix(f"{found.file.path}: ")
            return None, [Problem("slates_not_read", PROBLEM, message)]
        return None, []
    problems = []
    both = (found.columns["slate"], found.columns["position"])
    lacking = [f"{name} {n:,}" for name in both if (n := read.log.counts[f"lacks:{name}"])]
    if lacking:
        problems.append(Problem.of("missing", PROBLEM, *both, listed=", ".join(lacking), drop=DROP))
    problems += read.slates.problems
    if not read.main and read.slates.size:
        problems.append(Problem("unclear_propensities", PROBLEM, *read.unclear, ("propensity",)))
    return read, problems
