"""A file looked at: which column is what, what its rows hold, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.datasets.tool_logs import ToolLog
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.columns import Floats
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
from recsim_mnar.own_log.shown_item import UNCLEAR, ShownItem, held_items, same_items
from recsim_mnar.own_log.slate_estimates import endings_of
from recsim_mnar.own_log.slate_file import perhaps_slates
from recsim_mnar.own_log.target_file import TargetFile
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.receipts import SIDECAR
from recsim_mnar.tables.parts import TableFile, verify
from recsim_mnar.tables.roles import GUESSED, RECOGNISED, Columns, in_words, say_which
from recsim_mnar.tables.rows import DROP, Events, Rows, repeats
from recsim_mnar.tables.values import MISSING, Ids, in_rows, listed, percent_lines


@dataclass
class TargetFacts:
    """Contents of a second file with the targets.

    Attributes:
        file: as it was named.
        on: the column by which its rows are found.
        policies: it has probabilities of.
        lines: what was read, for a person.
    """

    file: str
    on: str | None
    policies: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


@dataclass
class Contents:
    """Contents of the rows of a file; None for what does not apply.

    Attributes:
        rows: all of them: ``bandit_rows``, ``organic_rows`` and ``other_rows`` by their events.
        users: how many, and the median and the most ``rows_of_a_user``.
        repeats: rows whose user has met the same before.
        loggers: how many policies logged.
        items: met; of a bandit log how many ``actions`` were shown, and of the ``actions_known`` which share.
        time: the first and the last, as numbers and as text.
        duplicates: rows that are equal to an earlier one; ``copies`` where chance does not explain it.
        reward: least, largest and mean.
        propensity: what is in their column.
        mean_weight: of each target, and of equal shares.
        events: rows by event.
        missing: values by column.
        slates: where rows are of slates.
        receipts: what was found of them.
        target_file: where there is one.
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

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        slates = None
        if self.slates is not None:
            slates = self.slates.to_dict()
        return asdict(self) | {"mean_weight": [weight.to_dict() for weight in self.mean_weight], "slates": slates}


@dataclass(frozen=True)
class Examination:
    """The findings about a file.

    Attributes:
        source: as it was named.
        kind: :data:`BANDIT`, :data:`INTERACTIONS` or :data:`TABLE`.
        ours: whether it is a log as this package writes them.
        written: what is unusual in how a text file is written.
        columns: which column is what.
        others: the other columns.
        segments: those of them that estimates can be split by: words, of which there are few.
        targets: columns of target policies.
        contents: what its rows hold.
        problems: what is wrong, or worth knowing.
        guesses: by role the likeliest column, of roles that several could have, or none by its name.
        items: columns without a role that hold items, and how (:func:`recsim_mnar.own_log.shown_item.held_items`).
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
    items: dict[str, str] = field(default_factory=dict)
    decimal: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The contents as JSON types."""
        return self.contents.to_dict()

    def has(self, code: str) -> bool:
        """Return whether a problem of this code was found."""
        return any(problem.code == code for problem in self.problems)

    def to_dict(self) -> Mapping[str, object]:
        """JSON types."""
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
    """Look at a table file: CSV with any separator, decimal mark and encoding, or Parquet; one, or a folder of parts.

    Args:
        path: as :meth:`recsim_mnar.tables.parts.TableFile.open`.
        asked: what the user says of it.

    Raises:
        UserError: no such file or column, one that is no table, or a log that is not as it was written (see `verify`);
            what is wrong with values is found, not raised.
    """
    asked = asked or Asked()
    receipts = _receipts(path_of(path))
    file = TableFile.open(path, asked.decimal)
    for name in asked.targets:
        if name not in file.names and asked.target_file is None:
            raise UserError(f"{path} has no column {name!r}; {nearest(name, file.names)} (--target)")
    slates, problems = slates_of_file(file, asked)
    perhaps = None
    if not slates:
        perhaps = perhaps_slates(file, asked.columns, endings_of(asked.targets, file.names))
    if perhaps:
        problems += [perhaps]
    recognised: set[str] = set()
    if slates is not None:
        file = slates.found.file
        recognised = set(slates.taken)
        asked = replace(asked, columns=slates.columns)
    kind, columns, shown_item = columns_of(file, str(path), asked)
    how = dict.fromkeys(asked.guessed, GUESSED) | dict.fromkeys(recognised, RECOGNISED)
    columns = replace(columns, how=columns.how | {role: word for role, word in how.items() if role in columns})
    targets = tuple(name for name in asked.targets if name in file.names) or targets_of(file.names, columns)
    items = {}
    if kind == BANDIT:
        items = _items(file, columns)
    rows = file.read(_kinds(file, columns, [name for name in targets if name not in items]))
    examiner = _Examiner(file, kind, columns, targets, asked.n_actions, rows, items, slates)
    examination = examiner.examined(shown_item, problems)
    contents = examination.contents
    if slates is None:
        contents.slates = None
    else:
        contents.slates = slates.facts
    contents.receipts = receipts
    if asked.target_file is None:
        contents.target_file = None
    else:
        contents.target_file = _of_target_file(file, asked, examination)
    return replace(examination, decimal=asked.decimal)


def examine_tool_log(tool: ToolLog, asked: Asked) -> Examination:
    """Examine a tool's log as :func:`recsim_mnar.own_log.doctor.examine_file` does."""
    columns = {role: name for role, name in asked.columns.items() if name in tool.file.names}
    targets = tuple(asked.targets or tool.policies if tool.has_propensities else ())
    examination = examine_file(tool.file.parts.path, replace(asked, columns=columns, targets=targets))
    damages = [Problem(damage.code, PROBLEM, damage.message, damage.advice, ("propensity",)) for damage in tool.damages]
    return replace(examination, source=str(tool.file.path), kind=BANDIT, problems=[*damages, *examination.problems])


def _of_other_kinds(names: Sequence[str]) -> set[str]:
    """Columns with the probabilities, of slates and the like, of a policy whose own column is there too."""
    return {ending for name in names for ending in endings_of([name], names) if ending != name}


def _of_target_file(file: TableFile, asked: Asked, found: Examination) -> TargetFacts:
    """Join a second file to the rows; its problems are added to those found."""
    assert asked.target_file is not None
    facts = TargetFacts(str(asked.target_file), asked.on)
    try:
        outside = [name for name in asked.targets if name not in file.names]
        second = TargetFile.open(asked.target_file, asked.on, outside, file.names)
        columns = {role: name for role, name in asked.columns.items() if role != "item"}
        needs = []
        if second.by_action:
            needs = ["action"]
        log = BanditLog.open(file, reading=Reading(columns, key=asked.on, drop_missing=True), needs=needs).read()
        targets = second.read(log, drop_missing=True)
    except UserError as error:
        found.problems.append(Problem("target_file", PROBLEM, str(error)))
        return facts
    number = int(targets.absent.sum())
    if number:
        if number > 1:
            case = {}
        else:
            case = {"says": "one"}
        params = {"number": number, "rows": in_rows(len(log)), "file": asked.target_file}
        found.problems.append(Problem.of("without_target", PROBLEM, **params, **case))
    if log.propensity is not None:
        policies = targets.policies.items()
        weights = [mean_weight(log.propensity, values, log.users, policy=name) for name, values in policies]
        found.contents.mean_weight += _weighed(weights, log.columns.get("propensity") or "", found.problems)
    facts.policies = list(second.names)
    facts.lines = targets.lines
    return facts


def _receipts(path: Path) -> str | None:
    """Check a folder, or a file with a receipt, against the receipts; the outcome, None without any.

    Raises:
        UserError: what is there is not what was written: every fault, since no command reads such a log.
    """
    if not (path.is_dir() or path.with_name(path.name + SIDECAR).exists()):
        return None
    held = verify(path)
    if held.faults:
        several = ""
        if len(held.faults) > 1:
            several = f"{len(held.faults):,} faults: "
        raise UserError(f"{path}: {several}{'; '.join(held.faults)}")
    if held.n_files:
        return held.sentence()
    return None


def _items(file: TableFile, columns: Columns) -> dict[str, str]:
    """Columns without a role that hold items, and how."""
    action = columns.get("action")
    free = (name for name in file.names if name not in columns.names.values())
    head = {}
    if action is not None:
        head = file.head()
    how = {}
    if head:
        how = {name: held_items(head, action or "", name) for name in free}
    return {name: item for name, item in how.items() if item not in ("", UNCLEAR)}


def _kinds(file: TableFile, columns: Columns, targets: Sequence[str]) -> dict[str, str]:
    """List the use of each column of the file."""
    of_role = {"reward": "number", "propensity": "number", "time": "time"}
    kinds = {name: of_role.get(role, "id") for role, name in columns.names.items()}
    kinds |= dict.fromkeys(targets, "number")
    return {name: kinds.get(name, "text") for name in file.names}


def kinds_of_rows(rows: Rows, columns: Columns) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """(n,) which rows are recommendations and which are views: by the words of the events, or by what is filled in.

    None if no column shows it, and so every row is a recommendation.
    """
    if "event" in columns:
        events = Events.of(rows.column(columns["event"]))
        about_others = not (events.shown.any() or events.viewed.any()) and columns["event"] != "event"
        if about_others:
            return None
        return (events.shown, events.viewed)
    if "action" in columns and "item" in columns:
        action, item = (_there(rows.column(columns[role])) for role in ("action", "item"))
        if np.all(action ^ item):
            return (action, item)
        return None
    return None


def _there(column: Any) -> NDArray[np.bool_]:
    """(n,) which values are not missing."""
    return np.asarray(column.is_valid().to_numpy()).astype(np.bool_)


class _Examiner:
    """A file's rows under examination."""

    def __init__(
        self,
        file: TableFile,
        kind: str,
        columns: Columns,
        targets: tuple[str, ...],
        n_actions: int | None,
        rows: Rows,
        items: dict[str, str],
        slates: KnownSlates | None,
    ) -> None:
        self.file = file
        self.kind = kind
        self.columns = columns
        self.targets = targets
        self.items = items
        self.n_actions = n_actions
        self.whole = rows
        self.slates = slates
        self.problems: list[Problem] = []
        self.contents = Contents(len(rows))
        kinds = None
        if kind == BANDIT:
            kinds = kinds_of_rows(rows, columns)
        self.shown = np.ones(len(rows), np.bool_)
        self.viewed = np.zeros(len(rows), np.bool_)
        self.mixed = kinds is not None and bool(kinds[0].any())
        if kinds is not None and self.mixed:
            self.shown, self.viewed = kinds
        self.none_shown = kinds is not None and not self.mixed
        if self.shown.all():
            self.rows = rows
        else:
            self.rows = rows.kept(self.shown)

    def examined(self, shown: ShownItem, problems: Sequence[Problem]) -> Examination:
        """Examine everything; ``problems`` are those of slates."""
        contents = self.contents
        if shown.line:
            self.problems.append(Problem("action_chosen", NOTE, shown.line, "", (shown.column,)))
        if self.none_shown:
            case = {}
            if "event" not in self.columns:
                case = {"says": "none"}
            self._add("no_recommendations", column=self.columns.get("event"), **case)
        self.problems += problems
        if self.kind == BANDIT:
            contents.bandit_rows = int(self.shown.sum())
        if self.mixed:
            contents.organic_rows = int(self.viewed.sum())
            contents.other_rows = int((~(self.shown | self.viewed)).sum())
        self._ids()
        self._times()
        self._copies()
        self._values()
        contents.events = self._events()
        self._missing()
        # Our own logs' further columns are known; what is missing in rows of another kind is no fault.
        self.problems += problems_of(self.rows.faults.faults)
        self.problems += [Problem("percent", NOTE, line) for line in percent_lines(self.rows.faults.percents)]
        self.problems += self._unclear(shown.rivals)
        own = set(OWN) <= set(self.file.names)
        used = {*self.columns.names.values(), *self.targets}
        if self.slates is not None:
            used |= {*self.slates.found.columns.values(), *self.slates.facts.propensities_of}
            used |= {*endings_of(self.targets, self.file.names)}
        others = [name for name in self.file.names if name not in used]
        of_shares = [name for name in self.targets if name not in self.items]
        items = {name: how for name, how in self.items.items() if name in others}
        unnamed = Unnamed(self.rows.quiet(), self.columns, of_shares, others, self.file.decimal, items)
        segments: list[str] = []
        if not own and self.kind == BANDIT:
            if "propensity" in self.columns and not self.targets:
                of_others = _of_other_kinds(others)
                one = replace(unnamed, others=[name for name in others if name not in of_others])
                self.problems += one.maybe_targets(self.user)
            segments, remarks = unnamed.segments() if self.slates is None else ([], [])
            self.problems += [*unnamed.items_of_policies(), *remarks]
        guesses = {role: name for role, name in unnamed.guesses().items() if role != "action" or not shown.rivals}
        return Examination(
            str(self.file.path),
            self.kind,
            own,
            self.file.how_written(),
            self.columns,
            others,
            segments,
            self.targets,
            contents,
            self.problems,
            guesses,
            self.items,
        )

    def _add(self, code: str, level: str = PROBLEM, **params: Any) -> None:
        self.problems.append(Problem.of(code, level, **params))

    def _column(self, role: str) -> Ids | None:
        name = self.columns.get(role)
        if name is None or not len(self.rows):
            return None
        return self.rows.ids(name)

    def _ids(self) -> None:
        """Count users, actions and repeated items."""
        user = self._column("user")
        what = self._column("item" if self.kind == INTERACTIONS else "action")
        logger = self._column("logger")
        if user is None:
            self.user = None
        else:
            self.user = user.codes
        contents = self.contents
        if user is not None:
            counts = np.unique(user.codes[user.codes >= 0], return_counts=True)[1]
            contents.users = len(counts)
            if len(counts):
                contents.rows_of_a_user = {"median": float(np.median(counts)), "most": int(counts.max())}
            if len(counts) == 1:
                self._add("one_user")
        if user is not None and what is not None:
            good = (user.codes >= 0) & (what.codes >= 0)
            pairs = user.codes[good] * max(what.number, 1) + what.codes[good]
            contents.repeats = int(good.sum() - len(np.unique(pairs)))
        if logger is None:
            contents.loggers = None
        else:
            contents.loggers = logger.number
        if what is not None:
            self._actions(what)

    def _actions(self, what: Ids) -> None:
        """Count the actions (items), and the share of them that was ever shown."""
        contents = self.contents
        met = len(np.unique(what.codes[what.codes >= 0]))
        if self.kind == INTERACTIONS:
            contents.items = met
            return
        contents.actions = met
        known = max(self.n_actions or 0, self._catalogue(what))
        if known:
            contents.actions_known = known
            contents.share_shown = met / known

    def _catalogue(self, what: Ids) -> int:
        """Actions that there are as far as the log says: items of its world, or met in its organic rows; 0 unknown."""
        made = provenance_of(self.file.parts)
        items = 0
        if isinstance(made.get("world"), dict):
            items = made.get("world", {}).get("params", {}).get("n_items", 0)
        name = self.columns.get("item") or self.columns["action"]
        if items or not self.mixed:
            return int(items)
        viewed = None
        if self.viewed.any():
            viewed = self.whole.kept(self.viewed).quiet().ids(name)
        if viewed is None or viewed.number == 0:
            return 0
        return len(set(viewed.ids.astype(str)) | set(what.ids.astype(str)))

    def _events(self) -> dict[str, int] | None:
        """Count the rows of each event, in a file of interactions with a column of them."""
        if self.kind != INTERACTIONS or "event" not in self.columns:
            return None
        found = self.rows.quiet().ids(self.columns["event"])
        counts = np.bincount(found.codes[found.codes >= 0], minlength=found.number)
        return {str(word): int(number) for word, number in zip(found.ids, counts, strict=True)}

    def _times(self) -> None:
        from recsim_mnar.log.rows import shown_time

        name = self.columns.get("time")
        if name is None:
            values = np.zeros(0)
        else:
            values = self.rows.times(name)
        known = values[~np.isnan(values)]
        if not known.size:
            return
        first = float(known.min())
        last = float(known.max())
        self.contents.time = {"first": first, "last": last, "from": shown_time(first), "to": shown_time(last)}
        if first == last:
            self._add("one_time", NOTE, time=shown_time(first))

    def _copies(self) -> None:
        """Count the rows that are equal to an earlier one in every column but one that numbers the rows."""
        digests = self.whole.digests(columns_of_copies(self.file.names))
        again = repeats(digests)
        number = int(again.sum())
        if not number:
            return
        rows = listed(np.flatnonzero(again) + 1, 3)
        group = [self.columns[role] for role in ("user", "time", "logger") if role in self.columns]
        seen = columns_of_copies(self.file.names), self.file.head()
        expected, copies = chance_of([self.whole], self.columns, group, seen, digests)
        case = {"do": "copies" if copies else "events"} | ({"says": "one"} if number == 1 else {})
        if self.kind == INTERACTIONS:
            case["do"] = "views"
        self._add("duplicates", PROBLEM if copies else NOTE, number=number, rows=rows, expected=expected, **case)
        self.contents.duplicates, self.contents.copies = number, number * copies

    def _values(self) -> None:
        """Look at rewards, propensities and weights."""
        contents = self.contents
        reward, propensity = (self.columns.get(role) for role in ("reward", "propensity"))
        if reward is not None and len(self.rows):
            values = self.rows.numbers(reward)
        else:
            values = np.zeros(0)
        if (~np.isnan(values)).any():
            least, largest, mean = (float(of(values)) for of in (np.nanmin, np.nanmax, np.nanmean))
            contents.reward = {"least": least, "largest": largest, "mean": mean}
            if least == largest:
                self._add("one_reward", reward=least)
        targets = {name: self._target(name) for name in self.targets if len(self.rows)}
        if propensity is None or not len(self.rows):
            return
        values = self.rows.numbers(propensity)
        facts = contents.propensity = Propensities.of(values)
        self.problems += facts.problems(values, propensity, self.rows.row_numbers)
        if not facts.percent:
            contents.mean_weight = self._mean_weights(values, propensity, targets)
        if facts.least == 1.0 == facts.largest:
            self._add("no_exploration")

    def _target(self, name: str) -> Floats:
        """(n,) a target's probability of the item shown: a column of these, or of the items that it shows."""
        if name not in self.items:
            return self.rows.probabilities(name, zero=True, advice="give a probability")
        return same_items(self.rows.ids(name), self.rows.quiet().ids(self.columns["action"]), fold=True)

    def _mean_weights(self, propensity: Floats, name: str, targets: dict[str, Floats]) -> list[MeanWeight]:
        weights = [mean_weight(propensity, values, self.user, policy=each) for each, values in targets.items()]
        shown = self.contents.actions
        if shown and (self.slates is None or self.slates.main == "marginal"):
            uniform = np.full(len(propensity), 1.0 / shown)
            weights.append(mean_weight(propensity, uniform, self.user, actions=shown))
        return _weighed(weights, name, self.problems)

    def _missing(self) -> None:
        """Count missing values by column, those with any; in the rows that the column is for."""
        used = {fault.column: fault.count for fault in self.rows.faults.faults if fault.code == MISSING}
        found = self.contents.missing
        for name in self.file.names:
            number = used.get(name, 0) or _nulls(self.rows.column(name))
            if number and not (self.mixed and name == self.columns.get("item")):  # a recommendation has none
                found[name] = number
        needed = [f"{name} {number:,}" for name, number in found.items() if name in used]
        if needed:
            self._add("missing", listed=", ".join(needed), drop=DROP)

    def _unclear(self, rivals: tuple[str, ...]) -> Iterator[Problem]:
        for role, names in self.columns.unclear.items():
            level = NOTE
            if role in ("propensity", "user", "reward") or names == rivals:
                level = PROBLEM
            yield Problem.of("unclear", level, *names, role=role, listed=in_words(names), which=say_which(role))


def _weighed(found: Sequence[MeanWeight | None], propensity: str, problems: list[Problem]) -> list[MeanWeight]:
    """The mean weights that there are; those that cannot be 1 are added to the problems."""
    there = [weight for weight in found if weight is not None]
    problems += [weight.problem(propensity) for weight in there if not weight.holds]
    return there


def _nulls(column: Any) -> int:
    """Count the missing values of a column: null, NaN, or blank text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    number = int(column.null_count)
    if pa.types.is_floating(kind):
        number += int(pc.sum(pc.is_nan(column)).as_py() or 0)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        number += int(pc.sum(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py() or 0)
    return number
