"""Examine a file: the roles of its columns, the contents of its rows, and their problems."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.datasets.tool_logs import ToolLog
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.columns import Floats
from recsim_mnar.log.rows import shown_time
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import NOTE, PROBLEM, Problem, Reading, chance_of, columns_of_copies
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.doctor_columns import (
    BANDIT,
    INTERACTIONS,
    Asked,
    KnownSlates,
    MeanWeight,
    Propensities,
    SlateFacts,
    Unnamed,
    columns_of,
    mean_weight,
    problems_of,
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
from recsim_mnar.own_log.shown_item import UNCLEAR, ShownItem, held_items, same_items
from recsim_mnar.own_log.slate_estimates import endings_of
from recsim_mnar.own_log.slate_file import perhaps_slates
from recsim_mnar.own_log.target_file import TargetFile
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.receipts import SIDECAR
from recsim_mnar.tables.files import is_text
from recsim_mnar.tables.parts import TableFile, verify
from recsim_mnar.tables.roles import GUESSED, RECOGNISED, Columns, in_words, say_which
from recsim_mnar.tables.rows import DROP, Events, Rows, n_repeats, repeats
from recsim_mnar.tables.values import MISSING, Ids, as_array, in_rows, listed, percent_lines

MOST_EXAMINED = 5_000_000
"""Rows from the beginning of a file that are examined, so that its size does not set the time and the memory."""


@dataclass
class TargetFacts:
    """Contents of a second file with the targets.

    Attributes:
        file: path as the user gave it.
        on: column by which its rows are found; None if they are the log's rows in order.
        policies: policies whose probabilities it has.
        lines: notes for a person on how it was read.
    """

    file: str
    on: str | None
    policies: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


@dataclass
class Contents:
    """Contents of the rows of a file; None for what does not apply.

    Attributes:
        rows: number of rows: ``bandit_rows``, ``organic_rows`` and ``other_rows`` by their events.
        users: number of users, with the median and the most ``rows_of_a_user``.
        repeats: number of rows whose user has an earlier row with the same item.
        loggers: number of policies that logged.
        items: number of items; of a bandit log the number of ``actions`` shown and ``share_shown``, their share of the
            ``actions_known``.
        time: first and last time, as numbers and as text.
        duplicates: number of rows that are equal to an earlier one; ``copies`` if chance does not explain them.
        reward: least, largest and mean reward.
        propensity: contents of the column of propensities.
        mean_weight: mean weight of each target, and of a policy that shows all items equally often.
        events: rows by event.
        missing: missing values by column.
        slates: contents of a file of slates.
        receipts: result of verifying the receipts.
        target_file: contents of a second file.
    """

    rows: int
    bandit_rows: int | None = None
    organic_rows: int | None = None
    other_rows: int | None = None
    users: int | None = None
    rows_of_a_user: dict[str, float] | None = None
    repeats: int | None = None
    loggers: int | None = None
    items: int | None = None
    actions: int | None = None
    actions_known: int | None = None
    share_shown: float | None = None
    time: dict[str, float | str] | None = None
    duplicates: int = 0
    copies: int = 0
    reward: dict[str, float] | None = None
    propensity: Propensities | None = None
    mean_weight: list[MeanWeight] = field(default_factory=list)
    events: dict[str, int] | None = None
    missing: dict[str, int] = field(default_factory=dict)
    slates: SlateFacts | None = None
    receipts: str | None = None
    target_file: TargetFacts | None = None

    def to_dict(self) -> Mapping[str, Any]:
        """Return JSON types."""
        return asdict(self) | {"mean_weight": [weight.to_dict() for weight in self.mean_weight]}


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
        segments: columns without a role by which estimates can be split.
        targets: columns of target policies.
        contents: contents of the rows.
        problems: problems and remarks.
        guesses: by role the likeliest column, for ambiguous roles and those without a usual name.
        context: columns of a log without propensities within whose values these can be estimated.
        items: how columns without a role hold items (:func:`recsim_mnar.own_log.shown_item.held_items`).
        decimal: decimal mark that the user states.
    """

    source: str
    kind: str
    ours: bool
    written: list[str]
    columns: Columns
    others: list[str]
    segments: list[str]
    targets: tuple[str, ...]
    contents: Contents
    problems: list[Problem]
    guesses: dict[str, str] = field(default_factory=dict)
    context: list[str] = field(default_factory=list)
    items: dict[str, str] = field(default_factory=dict)
    decimal: str | None = None

    @property
    def facts(self) -> Mapping[str, Any]:
        """The contents as JSON types."""
        return self.contents.to_dict()

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
            "segments": self.segments,
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
        UserError: no such file or column, one that is no table, or a log that differs from its receipts (see `verify`);
            problems of values are reported, not raised.
    """
    asked = asked or Asked()
    receipts = _receipts(path_of(path))
    file = TableFile.open(path, asked.decimal)
    for name in asked.targets:
        if name not in file.names and asked.target_file is None:
            raise UserError(f"{path} has no column {name!r}; {nearest(name, file.names)} (--target)")
    slates, problems = slates_of_file(file, asked)
    how = dict.fromkeys(asked.guessed, GUESSED)
    if slates is not None:
        file = slates.file.file
        how |= dict.fromkeys(slates.recognised, RECOGNISED)
        asked = replace(asked, columns=slates.columns)
    else:
        perhaps = perhaps_slates(file, asked.columns, endings_of(asked.targets, file.names))
        if perhaps is not None:
            problems.append(perhaps)
    kind, columns, shown_item = columns_of(file, str(path), asked)
    columns = replace(columns, how=columns.how | {role: word for role, word in how.items() if role in columns})
    targets = tuple(name for name in asked.targets if name in file.names)
    if not targets:
        of_one_policy = _columns_of_one_policy(file, columns, problems)
        if kind == BANDIT:
            targets = tuple(name for name in targets_of(file, columns) if name not in of_one_policy)
    items = _items(file, columns) if kind == BANDIT else {}
    most = MOST_EXAMINED if slates is None else None
    rows = file.read(_kinds(file, columns, [name for name in targets if name not in items]), most)
    if len(rows) == most:
        problems.append(Problem.of("first_rows", NOTE, number=MOST_EXAMINED))
    examiner = _Examiner(file, kind, columns, targets, asked, rows, items, slates)
    examination = examiner.examine(shown_item, problems)
    contents = examination.contents
    contents.receipts = receipts
    if asked.target_file is not None:
        contents.target_file = _examine_target_file(file, asked, examination)
    return examination


def examine_tool_log(tool: ToolLog, asked: Asked) -> Examination:
    """Examine the table that a tool's log was converted to, and add the damages of the log to the problems."""
    columns = {role: name for role, name in asked.columns.items() if name in tool.file.names}
    targets = tuple(asked.targets or tool.policies if tool.has_propensities else ())
    examination = examine_file(tool.file.parts.path, replace(asked, columns=columns, targets=targets))
    damages = [Problem(damage.code, PROBLEM, damage.message, damage.advice, ("propensity",)) for damage in tool.damages]
    return replace(examination, source=str(tool.file.path), kind=BANDIT, problems=[*damages, *examination.problems])


def _examine_target_file(file: TableFile, asked: Asked, examination: Examination) -> TargetFacts:
    """Join a second file to the rows, and add its problems to the examination."""
    assert asked.target_file is not None
    facts = TargetFacts(str(asked.target_file), asked.on)
    try:
        outside = [name for name in asked.targets if name not in file.names]
        second = TargetFile.open(asked.target_file, asked.on, outside, file.names)
        columns = {role: name for role, name in asked.columns.items() if role != "item"}
        required_roles = ("action",) if second.by_action else ()
        reading = Reading(columns, key=asked.on, drop_missing=True)
        log = BanditLog.open(file, reading=reading, required_roles=required_roles).read()
        targets = second.read(log, drop_missing=True)
    except UserError as error:
        examination.problems.append(Problem("target_file", PROBLEM, str(error)))
        return facts
    number = int(targets.absent.sum())
    if number:
        params = {"number": number, "rows": in_rows(len(log)), "file": asked.target_file}
        if number == 1:
            params["says"] = "one"
        examination.problems.append(Problem.of("without_target", PROBLEM, **params))
    if log.propensity is not None:
        weights = [mean_weight(log.propensity, p, log.users, policy=name) for name, p in targets.policies.items()]
        propensity_column = log.columns.get("propensity") or ""
        examination.contents.mean_weight += _with_problems(weights, propensity_column, examination.problems)
    facts.policies = list(second.names)
    facts.lines = targets.lines
    return facts


def _receipts(path: Path) -> str | None:
    """Verify a folder, or a file with a receipt; return the result in one sentence, None without receipts.

    Raises:
        UserError: files differ from their receipts: no command reads such a log.
    """
    if not (path.is_dir() or path.with_name(path.name + SIDECAR).exists()):
        return None
    verified = verify(path)
    number = len(verified.faults)
    if number:
        several = f"{number:,} faults: " if number > 1 else ""
        raise UserError(f"{path}: {several}{'; '.join(verified.faults)}")
    if verified.n_files:
        return verified.sentence()
    return None


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
    head = file.head()
    items: dict[str, str] = {}
    if action is None or not head:
        return items
    for name in file.names:
        if name not in columns.names.values():
            how = held_items(head, action, name)
            if how not in ("", UNCLEAR):
                items[name] = how
    return items


def _kinds(file: TableFile, columns: Columns, targets: Sequence[str]) -> dict[str, str]:
    """List how the values of each column are used."""
    of_role = {"reward": "number", "propensity": "number", "time": "time"}
    kinds = dict.fromkeys(file.names, "text")
    kinds |= {name: of_role.get(role, "id") for role, name in columns.names.items()}
    return kinds | dict.fromkeys(targets, "number")


def kinds_of_rows(rows: Rows, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
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
        all_rows: all rows that were read, with views.
        rows: the recommendations among them; all rows if no column tells recommendations from views.
        shown: (n,) which rows are recommendations.
        viewed: (n,) which rows are views.
        mixed: True if a column tells recommendations from views, and there are recommendations.
        none_shown: True if such a column marks no row as a recommendation.
        items: by column that holds items, the way in which it does.
        user: (m,) numbers of the users of ``rows``, once they are read; None without such a column.
        problems: problems so far, which the methods extend.
        contents: contents of the rows, which the methods fill in.
    """

    def __init__(
        self,
        file: TableFile,
        kind: str,
        columns: Columns,
        targets: tuple[str, ...],
        asked: Asked,
        rows: Rows,
        items: dict[str, str],
        slates: KnownSlates | None,
    ) -> None:
        self.file = file
        self.kind = kind
        self.columns = columns
        self.targets = targets
        self.asked = asked
        self.items = items
        self.all_rows = rows
        self.slates = slates
        self.problems: list[Problem] = []
        self.contents = Contents(len(rows), slates=None if slates is None else slates.facts)
        kinds = kinds_of_rows(rows, columns) if kind == BANDIT else None
        self.shown = np.ones(len(rows), np.bool_)
        self.viewed = np.zeros(len(rows), np.bool_)
        self.mixed = kinds is not None and bool(kinds[0].any())
        if kinds is not None and self.mixed:
            self.shown, self.viewed = kinds
        self.none_shown = kinds is not None and not self.mixed
        self.rows = rows if self.shown.all() else rows.kept(self.shown)
        self.user: NDArray[np.int64] | None = None

    def examine(self, shown: ShownItem, slate_problems: Sequence[Problem]) -> Examination:
        """Examine everything.

        Args:
            shown: how the column of the items shown was chosen.
            slate_problems: problems of slates, which are added to the problems found here.
        """
        contents = self.contents
        if shown.line:
            self.problems.append(Problem("action_chosen", NOTE, shown.line, "", (shown.column,)))
        if self.none_shown:
            case = {} if "event" in self.columns else {"says": "none"}
            self._add("no_recommendations", column=self.columns.get("event"), **case)
        self.problems += slate_problems
        if self.kind == BANDIT:
            contents.bandit_rows = int(self.shown.sum())
        if self.mixed:
            contents.organic_rows = int(self.viewed.sum())
            contents.other_rows = int((~(self.shown | self.viewed)).sum())
        self._ids()
        self._times()
        self._copies()
        self._values()
        self._events()
        self._missing()
        self.problems += problems_of(self.rows.faults.faults)
        self.problems += [Problem("percent", NOTE, line) for line in percent_lines(self.rows.faults.percents)]
        ours = set(OWN) <= set(self.file.names)
        unused = self._unused_columns()
        unnamed = Unnamed(
            self.rows.quiet(),
            self.columns,
            [name for name in self.targets if name not in self.items],
            unused,
            self.file.decimal,
            {name: how for name, how in self.items.items() if name in unused},
            self.slates is not None,
        )
        guesses = unnamed.guesses()
        if shown.rivals:
            guesses.pop("action", None)
        self._unclear(shown.rivals, unnamed, guesses)
        segments = self._unnamed(unnamed, ours=ours)
        return Examination(
            source=str(self.file.path),
            kind=self.kind,
            ours=ours,
            written=self.file.how_written(),
            columns=self.columns,
            others=unused,
            segments=segments,
            targets=self.targets,
            contents=contents,
            problems=self.problems,
            guesses=guesses,
            context=unnamed.context(segments),
            items=self.items,
            decimal=self.asked.decimal,
        )

    def _unused_columns(self) -> list[str]:
        """List the columns without a role."""
        used = {*self.columns.names.values(), *self.targets}
        if self.slates is not None:
            used |= {*self.slates.file.columns.values(), *self.slates.facts.propensities_of}
            used |= {*endings_of(self.targets, self.file.names)}
        return [name for name in self.file.names if name not in used]

    def _unnamed(self, unnamed: Unnamed, *, ours: bool) -> list[str]:
        """Add problems for possible uses of columns without a role, and return the columns of segments."""
        if ours or self.kind != BANDIT:  # further columns of our own logs are known
            return []
        if not self.targets and "propensity" in {*self.columns.names, *self.columns.without}:
            # Columns with other probabilities of slates, and the like, of a policy whose own column is there too.
            further = {end for name in unnamed.others for end in endings_of([name], unnamed.others) if end != name}
            further |= {
                name for problem in self.problems if problem.code == "shares_of_items" for name in problem.columns
            }
            candidates = [name for name in unnamed.others if name not in further]
            self.problems += replace(unnamed, others=candidates).maybe_targets(self.user)
        if "reward" in self.columns:
            self.problems += rows_not_shown(self.file.head(), self.columns["reward"], self.file.decimal)
        segments: list[str] = []
        remarks: list[Problem] = []
        if self.slates is None:
            segments, remarks = unnamed.segments()
        self.problems += [*unnamed.items_of_policies(), *remarks]
        return segments

    def _add(self, code: str, level: str = PROBLEM, **params: Any) -> None:
        """Add a problem that concerns no column."""
        self.problems.append(Problem.of(code, level, **params))

    def _column(self, role: str) -> Ids | None:
        """Read the column of ids of a role; None without one, or without rows."""
        name = self.columns.get(role)
        if name is None or not len(self.rows):
            return None
        return self.rows.ids(name)

    def _ids(self) -> None:
        """Count users, actions and repeated items."""
        contents = self.contents
        user = self._column("user")
        item = self._column("item" if self.kind == INTERACTIONS else "action")
        logger = self._column("logger")
        if user is not None:
            self.user = user.codes
            counts = np.unique(user.codes[user.codes >= 0], return_counts=True)[1]
            contents.users = len(counts)
            if len(counts):
                contents.rows_of_a_user = {"median": float(np.median(counts)), "most": int(counts.max())}
            if len(counts) == 1:
                self._add("one_user")
            if item is not None:
                good = (user.codes >= 0) & (item.codes >= 0)
                pairs = user.codes[good] * max(item.number, 1) + item.codes[good]  # one number per user and item
                contents.repeats = n_repeats(pairs)
        if logger is not None:
            contents.loggers = logger.number
        if item is not None:
            self._actions(item)

    def _actions(self, item: Ids) -> None:
        """Count the actions (items), and the share of them that was ever shown."""
        contents = self.contents
        number = len(np.unique(item.codes[item.codes >= 0]))
        if self.kind == INTERACTIONS:
            contents.items = number
            return
        contents.actions = number
        catalogue = max(self.asked.n_actions or 0, self._catalogue(item))
        if catalogue:
            contents.actions_known = catalogue
            contents.share_shown = number / catalogue

    def _catalogue(self, item: Ids) -> int:
        """Count the items of the log's world, or those that were shown or viewed; 0 if neither is known."""
        world = provenance_of(self.file.parts).get("world")
        items = 0
        if isinstance(world, dict):
            items = int(world.get("params", {}).get("n_items", 0))
        if items or not self.mixed or not self.viewed.any():
            return items
        name = self.columns.get("item") or self.columns["action"]
        viewed = self.all_rows.kept(self.viewed).quiet().ids(name)
        if viewed.number == 0:
            return 0
        return len({*viewed.ids.astype(str), *item.ids.astype(str)})

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
        if first == last:
            self._add("one_time", NOTE, time=shown_time(first))
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
        self._add("duplicates", PROBLEM if copies else NOTE, **params)
        self.contents.duplicates = number
        self.contents.copies = number * copies  # 0 if chance explains them

    def _values(self) -> None:
        """Summarise rewards, propensities and weights."""
        if not len(self.rows):
            return
        contents = self.contents
        if "reward" in self.columns:
            values = self.rows.numbers(self.columns["reward"])
            if not np.isnan(values).all():
                least = float(np.nanmin(values))
                largest = float(np.nanmax(values))
                contents.reward = {"least": least, "largest": largest, "mean": float(np.nanmean(values))}
                if least == largest:
                    self._add("one_reward", reward=least)
                self.problems += odd_rewards(values, self.columns["reward"])
        targets = {name: self._target(name) for name in self.targets}
        name = self.columns.get("propensity")
        if name is None:
            return
        values = self.rows.numbers(name)
        facts = Propensities.of(values)
        contents.propensity = facts
        self.problems += facts.problems(values, name, self.rows.row_numbers)
        if not facts.percent:
            contents.mean_weight = self._mean_weights(values, name, targets)
        if facts.least == 1.0 == facts.largest:  # a deterministic policy logged
            self._add("no_exploration")

    def _target(self, name: str) -> Floats:
        """Read a target's probability (n,) of the item shown, from a column of these or of the items that it shows."""
        if name not in self.items:
            return self.rows.probabilities(name, zero=True, advice="give a probability")
        return same_items(self.rows.ids(name), self.rows.quiet().ids(self.columns["action"]), fold=True)

    def _mean_weights(self, propensity: Floats, name: str, targets: dict[str, Floats]) -> list[MeanWeight]:
        """Compute the mean weights of the targets, and of equal shares of the items shown."""
        weights = []
        for target, values in targets.items():
            weight = mean_weight(propensity, values, self.user, policy=target)
            exchanged = mean_weight(values, propensity, self.user)
            if weight is not None and exchanged is not None and weight.low > 1.0:
                weight = replace(weight, exchanged_holds=exchanged.holds and exchanged.high < weight.mean)
            weights.append(weight)
        n_actions = self.contents.actions
        if n_actions and (self.slates is None or self.slates.main == "marginal"):
            uniform = np.full(len(propensity), 1.0 / n_actions)
            weights.append(mean_weight(propensity, uniform, self.user, actions=n_actions))
        return _with_problems(weights, name, self.problems)

    def _missing(self) -> None:
        """Count missing values by column, in the rows that the column is for."""
        used = {fault.column: fault.count for fault in self.rows.faults.faults if fault.code == MISSING}
        missing = self.contents.missing
        for name in self.file.names:
            number = used.get(name, 0) or _nulls(self.rows.column(name))
            if number and not (self.mixed and name == self.columns.get("item")):  # a recommendation has none
                missing[name] = number
        needed = [f"{name} {number:,}" for name, number in missing.items() if name in used]
        if needed:
            reward = self.columns.get("reward")
            advice = DROP
            if reward in used:
                advice = missing_rewards(self.file.head(), reward, self.file.decimal) + advice
            self._add("missing", listed=", ".join(needed), drop=advice)

    def _unclear(self, rivals: tuple[str, ...], unnamed: Unnamed, guesses: Mapping[str, str]) -> None:
        """Report ambiguous roles, and what the rows say of the candidates for the propensities."""
        for role, names in self.columns.unclear.items():
            grave = role in ("propensity", "user", "reward") or names == rivals
            params = {"role": role, "listed": in_words(names), "which": say_which(role)}
            if role == "propensity":
                params |= unnamed.on_candidates(guesses.get(role, ""))
            self.problems.append(Problem.of("unclear", PROBLEM if grave else NOTE, *names, **params))


def _with_problems(weights: Sequence[MeanWeight | None], propensity: str, problems: list[Problem]) -> list[MeanWeight]:
    """Drop weights that are None, and add those that cannot be 1 to the problems."""
    present = [weight for weight in weights if weight is not None]
    problems += [weight.problem(propensity) for weight in present if not weight.holds]
    return present


def _nulls(column: Any) -> int:
    """Count the missing values of a column: null, NaN, or blank text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    number = int(column.null_count)
    if pa.types.is_floating(kind):
        number += pc.sum(pc.is_nan(column)).as_py() or 0
    elif is_text(kind):
        number += pc.sum(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py() or 0
    return number
