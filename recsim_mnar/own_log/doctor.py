"""Examine a file: the roles of its columns, the contents of its rows, and their problems."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.datasets.tool_logs import ToolLog
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.rows import shown_time
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import NOTE, PROBLEM, Problem, chance_of, columns_of_copies
from recsim_mnar.own_log.doctor_columns import (
    BANDIT,
    HOLDS_ITEMS,
    INTERACTIONS,
    Asked,
    KnownSlates,
    SlateFacts,
    columns_of,
    shares_in,
    slates_of_file,
    targets_of,
)
from recsim_mnar.own_log.estimating import OWN
from recsim_mnar.own_log.odd_values import (
    columns_of_one_policy,
    missing_rewards,
    odd_rewards,
    only_first_days,
    rows_not_shown,
)
from recsim_mnar.own_log.shown_item import IN_CAPITALS, UNCLEAR, ShownItem, held_items, likely_users, same_items
from recsim_mnar.own_log.slate_estimates import endings_of
from recsim_mnar.own_log.slate_file import perhaps_slates
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import (
    GUESSED,
    RECOGNISED,
    Columns,
    in_words,
    likely_columns,
    named_probabilities,
    new_policies,
    say_which,
)
from recsim_mnar.tables.rows import DROP, Events, Rows, repeats
from recsim_mnar.tables.values import MISSING, as_array, listed

MOST_EXAMINED = 5_000_000
"""Rows from the beginning of a file that are examined, so that its size does not set the time and the memory."""
_GUESSES = ("reward", "propensity", "user", "item", "action", "time")
"""Roles for which a column is guessed, in this order."""
_TWO = 2
"""Number of distinct shares above which a column may be a policy's, whatever its name."""


@dataclass
class Contents:
    """Contents of the rows of a file; None for what does not apply.

    Attributes:
        rows: number of rows: ``bandit_rows``, ``organic_rows`` and ``other_rows`` by their events.
        users: number of users, with the median and the most ``rows_of_a_user``.
        loggers: number of policies that logged.
        items: number of items; of a bandit log the number of ``actions`` shown.
        time: first and last time, as numbers and as text.
        duplicates: number of rows that are equal to an earlier one; ``copies`` if chance does not explain them.
        reward: least, largest and mean reward.
        propensity: least and largest propensity, and the number of impossible ones.
        events: rows by event.
        missing: missing values by column.
        slates: contents of a file of slates.
    """

    rows: int
    bandit_rows: int | None = None
    organic_rows: int | None = None
    other_rows: int | None = None
    users: int | None = None
    rows_of_a_user: dict[str, float] | None = None
    loggers: int | None = None
    items: int | None = None
    actions: int | None = None
    time: dict[str, float | str] | None = None
    duplicates: int = 0
    copies: int = 0
    reward: dict[str, float] | None = None
    propensity: dict[str, float] | None = None
    events: dict[str, int] | None = None
    missing: dict[str, int] = field(default_factory=dict)
    slates: SlateFacts | None = None


@dataclass(frozen=True)
class Examination:
    """Findings about a file.

    Attributes:
        source: path as the user gave it.
        kind: :data:`BANDIT`, :data:`INTERACTIONS` or :data:`TABLE`.
        ours: True for a log that this package wrote.
        written: what is unusual in the format of a text file.
        columns: columns by role.
        others: columns without a role.
        targets: columns of target policies.
        contents: contents of the rows.
        problems: problems and remarks.
        guesses: by role the likeliest column, for ambiguous roles and for users without a usual name.
        items: how columns without a role hold items (:func:`recsim_mnar.own_log.shown_item.held_items`).
        stated: the user's further statements, by option.
    """

    source: str
    kind: str
    ours: bool
    written: list[str]
    columns: Columns
    others: list[str]
    targets: tuple[str, ...]
    contents: Contents
    problems: list[Problem]
    guesses: dict[str, str]
    items: dict[str, str]
    stated: dict[str, str]

    @property
    def facts(self) -> Mapping[str, Any]:
        """The contents as JSON types."""
        return asdict(self.contents)

    def has(self, code: str) -> bool:
        """Return whether there is a problem of this code."""
        return any(problem.code == code for problem in self.problems)

    def to_dict(self) -> Mapping[str, object]:
        """Return JSON types."""
        columns = {role: {"column": name, "how": self.columns.how[role]} for role, name in self.columns.names.items()}
        return {
            "source": self.source,
            "kind": self.kind,
            "log_of_ours": self.ours,
            "written": self.written,
            "columns": columns,
            "unclear": {role: list(names) for role, names in self.columns.unclear.items()},
            "other_columns": self.others,
            "targets": list(self.targets),
            **self.facts,
            "problems": [problem.to_dict() for problem in self.problems],
        }


def examine_file(path: str | os.PathLike[str], asked: Asked | None = None) -> Examination:
    """Examine a table file: CSV with any separator, decimal mark and encoding, or Parquet; or a folder of parts.

    Args:
        path: path of the file or folder.
        asked: the user's statements about it; None for none.

    Raises:
        UserError: no such file or column, one that is no table, or a log that differs from its receipts; problems of
            values are reported, not raised.
    """
    asked = asked or Asked()
    file = TableFile.open(path, asked.decimal)
    provenance_of(file.parts)  # refuses a log of another version of the schema
    for name in asked.targets:
        if name not in file.names:
            raise UserError(f"{path} has no column {name!r}; {nearest(name, file.names)} (--target)")
    stated = asked.options()
    slates, problems = slates_of_file(file, asked)
    how = dict.fromkeys(asked.guessed, GUESSED)
    if slates is not None:
        how |= dict.fromkeys(slates.recognised, RECOGNISED)
        asked = replace(asked, columns=slates.columns)
    else:
        perhaps = perhaps_slates(file, asked.columns, endings_of(asked.targets, file.names))
        if perhaps is not None:
            problems.append(perhaps)
    kind, columns, shown_item = columns_of(file, str(path), asked)
    columns = replace(columns, how=columns.how | {role: word for role, word in how.items() if role in columns})
    targets = tuple(asked.targets)
    if not targets:
        of_one_policy = _columns_of_one_policy(file, columns, problems)
        if kind == BANDIT:
            targets = tuple(name for name in targets_of(file, columns) if name not in of_one_policy)
    items = _items(file, columns) if kind == BANDIT else {}
    most = MOST_EXAMINED if slates is None else None
    rows = file.read(_kinds(file, columns, [name for name in targets if name not in items]), most)
    if len(rows) == most:
        problems.append(Problem.of("first_rows", NOTE, number=MOST_EXAMINED))
    examiner = _Examiner(file, kind, columns, targets, rows, items, slates)
    examiner.examine(shown_item, problems)
    return Examination(
        source=str(file.path),
        kind=kind,
        ours=set(OWN) <= set(file.names),
        written=file.how_written(),
        columns=columns,
        others=examiner.others,
        targets=targets,
        contents=examiner.contents,
        problems=examiner.problems,
        guesses=_guesses(file, columns, examiner.others, shown_item),
        items=items,
        stated=stated,
    )


def examine_tool_log(tool: ToolLog, asked: Asked) -> Examination:
    """Examine the table that a tool's log was converted to, and add the damages of the log to the problems."""
    columns = {role: name for role, name in asked.columns.items() if name in tool.file.names}
    targets = tuple(asked.targets or tool.policies if tool.has_propensities else ())
    examination = examine_file(tool.file.parts.path, replace(asked, columns=columns, targets=targets))
    damages = [Problem(damage.code, PROBLEM, damage.message, damage.advice, ("propensity",)) for damage in tool.damages]
    return replace(examination, source=str(tool.file.path), kind=BANDIT, problems=[*damages, *examination.problems])


def _columns_of_one_policy(file: TableFile, columns: Columns, problems: list[Problem]) -> list[str]:
    """List columns with one policy's probabilities of all items, and add a problem for them."""
    unused = [name for name in file.names if name not in columns.names.values()]
    names = columns_of_one_policy(file.head(), unused, file.decimal)
    if names:
        problems.append(Problem.of("shares_of_items", NOTE, *names, listed=", ".join(names)))
    return names


def _items(file: TableFile, columns: Columns) -> dict[str, str]:
    """Map columns without a role that hold items to the way in which they do (ALIKE or IN_CAPITALS).

    A column whose values may be items or probabilities is left out.
    """
    action = columns.get("action")
    if action is None:
        return {}
    head = file.head()
    ways = {name: held_items(head, action, name) for name in file.names if name not in columns.names.values()}
    return {name: how for name, how in ways.items() if how not in ("", UNCLEAR)}


def _kinds(file: TableFile, columns: Columns, targets: Sequence[str]) -> dict[str, str]:
    """List how the values of each column are used."""
    of_role = {"reward": "number", "propensity": "number", "time": "time"}
    kinds = dict.fromkeys(file.names, "text")
    kinds |= {name: of_role.get(role, "id") for role, name in columns.names.items()}
    return kinds | dict.fromkeys(targets, "number")


def _guesses(file: TableFile, columns: Columns, others: Sequence[str], shown: ShownItem) -> dict[str, str]:
    """Return by role the likeliest column of ambiguous roles, and of the user if that has no column.

    Of several columns that may be the propensities, or items shown, the user is to name one.
    """
    guesses: dict[str, str] = {}
    for role in _GUESSES:
        names = [name for name in columns.unclear.get(role, ()) if name not in guesses.values()]
        is_open = (role == "propensity" and len(names) > 1) or (role == "action" and shown.rivals)
        if names and not is_open:
            guesses[role] = names[0]
    if "user" not in {*columns.names, *guesses, *columns.without}:
        unused = [name for name in likely_columns("user", others) if name not in guesses.values()]
        users = [name for name in likely_users(file, ()) if name in unused]
        if users:
            guesses["user"] = users[0]
    return guesses


def _kinds_of_rows(rows: Rows, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Return which rows are recommendations and which are views; None if no column tells, so that all are the former.

    Without a column of events, a row with an action is a recommendation and a row with an item is a view, if every row
    has one of the two.

    Returns:
        shown: (n,) which rows are recommendations.
        viewed: (n,) which rows are views.
    """
    if "event" in columns:
        events = Events.of(rows.column(columns["event"]))
        if columns["event"] == "event" or events.shown.any() or events.viewed.any():
            return events.shown, events.viewed
        return None
    if "action" in columns and "item" in columns:
        action = as_array(rows.column(columns["action"]).is_valid()).astype(np.bool_)
        item = as_array(rows.column(columns["item"]).is_valid()).astype(np.bool_)
        if np.all(action ^ item):
            return action, item
    return None


class _Examiner:
    """Examines the rows of a file.

    Attributes:
        rows: the recommendations; all rows if no column tells recommendations from views.
        none_shown: True if such a column marks no row as a recommendation.
        items: by column that holds items, the way in which it does.
        others: columns without a role.
        problems: problems so far, which the methods extend.
        contents: contents of the rows, which the methods fill in.
    """

    def __init__(
        self,
        file: TableFile,
        kind: str,
        columns: Columns,
        targets: tuple[str, ...],
        rows: Rows,
        items: dict[str, str],
        slates: KnownSlates | None,
    ) -> None:
        self.file = file
        self.kind = kind
        self.columns = columns
        self.targets = targets
        self.items = items
        self.rows = rows
        self.problems: list[Problem] = []
        self.contents = Contents(len(rows), slates=None if slates is None else slates.facts)
        self.none_shown = False
        used = {*columns.names.values(), *targets}
        if slates is not None:
            used |= {*slates.file.columns.values(), *slates.facts.propensities_of}
            used |= {*endings_of(targets, file.names)}
        self.others = [name for name in file.names if name not in used]
        if kind != BANDIT:
            return
        self.contents.bandit_rows = len(rows)
        kinds = _kinds_of_rows(rows, columns)
        if kinds is None:
            return
        shown, viewed = kinds
        self.none_shown = not shown.any()
        if not self.none_shown:
            self.rows = rows.kept(shown)
            self.contents.bandit_rows = len(self.rows)
            self.contents.organic_rows = int(viewed.sum())
            self.contents.other_rows = int((~(shown | viewed)).sum())

    def examine(self, shown: ShownItem, problems_of_form: Sequence[Problem]) -> None:
        """Examine everything.

        Args:
            shown: how the column of the items shown was chosen.
            problems_of_form: problems of columns and slates, which are added to the problems found here.
        """
        if shown.line:
            self.problems.append(Problem("action_chosen", NOTE, shown.line, "", (shown.column,)))
        if self.none_shown:
            case = {} if "event" in self.columns else {"says": "none"}
            self.problems.append(Problem.of("no_recommendations", PROBLEM, column=self.columns.get("event"), **case))
        self.problems += problems_of_form
        self._ids()
        self._times()
        self._copies()
        if len(self.rows):
            self._numbers()
        self._events()
        self._missing()
        self.problems += [
            Problem(fault.code, PROBLEM, fault.message, fault.advice, (fault.column,))
            for fault in self.rows.faults.faults
            if fault.code != MISSING
        ]
        for role, names in self.columns.unclear.items():
            grave = role in ("propensity", "user", "reward") or names == shown.rivals
            params = {"role": role, "listed": in_words(names), "which": say_which(role)}
            self.problems.append(Problem.of("unclear", PROBLEM if grave else NOTE, *names, **params))
        if self.kind == BANDIT and not set(OWN) <= set(self.file.names):  # further columns of our own logs are known
            self._perhaps_targets()
            self._items_of_policies()

    def _ids(self) -> None:
        """Count users, actions or items, and loggers."""
        contents = self.contents
        counts = {}
        for role in ("user", "item" if self.kind == INTERACTIONS else "action", "logger"):
            if role in self.columns and len(self.rows):
                codes = self.rows.ids(self.columns[role]).codes
                counts[role] = np.unique(codes[codes >= 0], return_counts=True)[1]
        rows_of_users = counts.get("user")
        if rows_of_users is not None:
            contents.users = len(rows_of_users)
            if len(rows_of_users):
                contents.rows_of_a_user = {"median": float(np.median(rows_of_users)), "most": int(rows_of_users.max())}
        for role, name in (("item", "items"), ("action", "actions"), ("logger", "loggers")):
            if role in counts:
                setattr(contents, name, len(counts[role]))

    def _events(self) -> None:
        """Count the rows of each event of a file of interactions."""
        if self.kind == INTERACTIONS and "event" in self.columns:
            events = self.rows.quiet().ids(self.columns["event"])
            counts = np.bincount(events.codes[events.codes >= 0], minlength=events.number)
            self.contents.events = dict(zip(map(str, events.ids), counts.tolist(), strict=True))

    def _times(self) -> None:
        """Find the first and the last time."""
        name = self.columns.get("time")
        if name is None:
            return
        values = self.rows.times(name)
        present = values[~np.isnan(values)]
        if not present.size:
            return
        first = float(present.min())
        last = float(present.max())
        self.contents.time = {"first": first, "last": last, "from": shown_time(first), "to": shown_time(last)}
        if only_first_days(present):
            self.problems.append(Problem.of("first_days", NOTE, name))

    def _copies(self) -> None:
        """Count recommendations that are equal to an earlier one in every column but one of row numbers."""
        names = columns_of_copies(self.file.names)
        digests = self.rows.digests(names)
        is_repeat = repeats(digests)
        number = int(is_repeat.sum())
        if not number:
            return
        group = [self.columns[role] for role in ("user", "time", "logger") if role in self.columns]
        expected, copies = chance_of([self.rows], self.columns, group, (names, self.file.head()), digests)
        params = {"number": number, "rows": listed(self.rows.row_numbers[is_repeat], 3), "expected": expected}
        params["do"] = "copies" if copies else "events"
        if self.kind == INTERACTIONS:
            params["do"] = "views"
        if number == 1:
            params["says"] = "one"
        self.problems.append(Problem.of("duplicates", PROBLEM if copies else NOTE, **params))
        self.contents.duplicates = number
        self.contents.copies = number * copies  # 0 if chance explains them

    def _numbers(self) -> None:
        """Summarise rewards and propensities, and record faults in the columns of numbers."""
        reward = self.columns.get("reward")
        propensity = self.columns.get("propensity")
        for target in self.targets:
            if target not in self.items:
                self.rows.probabilities(target, zero=True, advice="give a probability")
        if reward is not None:
            values = self.rows.numbers(reward)
            if not np.isnan(values).all():
                least, largest, mean = (float(of(values)) for of in (np.nanmin, np.nanmax, np.nanmean))
                self.contents.reward = {"least": least, "largest": largest, "mean": mean}
                self.problems += odd_rewards(values, reward)
            if self.kind == BANDIT:
                self.problems += rows_not_shown(self.file.head(), reward, self.file.decimal)
        if propensity is None:
            return
        values = self.rows.probabilities(propensity, zero=False)
        present = values[~np.isnan(values)]
        if present.size:
            impossible = int(np.sum((present <= 0.0) | (present > 1.0)))
            least = float(present.min())
            self.contents.propensity = {"least": least, "largest": float(present.max()), "impossible": impossible}
            if least == 1.0 == present.max():  # a deterministic policy logged
                self.problems.append(Problem.of("no_exploration", PROBLEM))

    def _missing(self) -> None:
        """Count missing values by column, of the columns with a role."""
        faults = self.rows.faults.faults
        missing = {fault.column: fault.count for fault in faults if fault.code == MISSING}
        self.contents.missing = missing
        if missing:
            reward = self.columns.get("reward")
            advice = DROP
            if reward in missing:
                advice = missing_rewards(self.file.head(), reward, self.file.decimal) + advice
            columns = ", ".join(f"{name} {number:,}" for name, number in missing.items())
            self.problems.append(Problem.of("missing", PROBLEM, listed=columns, drop=advice))

    def _perhaps_targets(self) -> None:
        """Note columns that look like a policy's probabilities of the logged action.

        These are columns of shares with a word for a probability in their names or, without any, of three shares.
        """
        if self.targets or "propensity" not in {*self.columns.names, *self.columns.without}:
            return
        # Columns with other probabilities of slates, and the like, of a policy whose own column is there too.
        further = {end for name in self.others for end in endings_of([name], self.others) if end != name}
        further |= {name for problem in self.problems if problem.code == "shares_of_items" for name in problem.columns}
        further |= {*self.columns.unclear.get("reward", ())}
        head = self.file.head()
        distinct = {name: len(np.unique(shares_in(head.get(name, ()), self.file.decimal))) for name in self.others}
        shares = {name: number for name, number in distinct.items() if number > 1 and name not in further}
        names = named_probabilities(shares) or [name for name, number in shares.items() if number > _TWO]
        if names:
            case = {"says": "several"} if len(names) > 1 else {}
            params = {"listed": ", ".join(map(repr, names)), "target": ",".join(names), **case}
            self.problems.append(Problem.of("maybe_target", NOTE, *names, **params))

    def _items_of_policies(self) -> None:
        """Note columns of the items that a policy would have shown, unless they repeat the item shown."""
        if not (self.items and len(self.rows)):
            return
        rows = self.rows.quiet()
        action = rows.ids(self.columns["action"])
        unused = [name for name in self.items if name in self.others]
        names = [name for name in unused if not same_items(rows.ids(name), action, fold=True).all()]
        names = new_policies(names, items=True) or names
        if not names:
            return
        target = ",".join(names)
        if any(self.items[name] == IN_CAPITALS for name in names):
            target += " --fold-case"
        case = {"says": "several", "do": "several"} if len(names) > 1 else {}
        self.problems.append(Problem.of(HOLDS_ITEMS, NOTE, *names, listed=", ".join(names), target=target, **case))
