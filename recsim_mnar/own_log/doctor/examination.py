"""A file looked at: which column is what, what its rows hold, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.datasets.tool_logs import ToolLog
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.columns import Floats
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.bandit_log import BanditLog, chance_of, columns_of_copies
from recsim_mnar.own_log.doctor.columns import (
    BANDIT,
    INTERACTIONS,
    NOTE,
    PROBLEM,
    Asked,
    MeanWeight,
    Problem,
    Unnamed,
    columns_of,
    impossible,
    mean_weight,
    problems_of,
    propensity_facts,
    targets_of,
    weight_problem,
)
from recsim_mnar.own_log.estimating import OWN
from recsim_mnar.own_log.shown_item import UNCLEAR, ShownItem, held_items, same_items
from recsim_mnar.own_log.slate_estimates import endings_of, read_slates
from recsim_mnar.own_log.slate_file import SlateFile, Wrong, find_slates, perhaps_slates
from recsim_mnar.own_log.target_file import TargetFile
from recsim_mnar.runs.files import path_of
from recsim_mnar.runs.receipts import SIDECAR
from recsim_mnar.tables.faults import MISSING, in_rows, percent_lines
from recsim_mnar.tables.ids import Ids
from recsim_mnar.tables.parts import TableFile, verify
from recsim_mnar.tables.roles import (
    GUESSED,
    RECOGNISED,
    Columns,
    in_words,
    say_which,
)
from recsim_mnar.tables.rows import DROP, Events, Rows, repeats


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
        facts: counts and ranges, JSON types; what does not apply is None.
        problems: what is wrong, or worth knowing.
        guesses: by role the likeliest column, of roles that several could have, or none by its name.
        items: columns without a role that hold items, and how (:func:`recsim_mnar.own_log.shown_item.held_items`).
    """

    source: str
    kind: str
    ours: bool
    written: list[str]
    columns: Columns
    others: list[str]
    segments: list[str]
    targets: tuple[str, ...]
    facts: dict[str, Any]
    problems: list[Problem]
    guesses: dict[str, str] = field(default_factory=dict)
    items: dict[str, str] = field(default_factory=dict)

    def has(self, code: str) -> bool:
        """Whether a problem of this code was found."""
        return any(problem.code == code for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        columns = {role: {"column": name, "how": self.columns.how[role]} for role, name in self.columns.names.items()}
        return {
            "source": self.source, "kind": self.kind, "log_of_ours": self.ours, "written": self.written,
            "columns": columns, "unclear": {role: list(names) for role, names in self.columns.unclear.items()},
            "other_columns": self.others, "segments": self.segments, "targets": list(self.targets), **self.facts,
            "problems": [problem.to_dict() for problem in self.problems],
        }  # fmt: skip


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
    file = TableFile.open(path)
    for name in asked.targets:
        if name not in file.names and asked.target_file is None:
            raise UserError(f"{path} has no column {name!r}; {nearest(name, file.names)} (--target)")
    slates, problems = _slates(file, asked)
    guess = slates.guess if isinstance(slates, Wrong) else ""
    slates = None if isinstance(slates, Wrong) else slates
    if slates is not None:
        file, asked = slates.found.file, replace(asked, columns=slates.columns)
    kind, columns, shown = columns_of(file, str(path), asked)
    columns = replace(columns, how=columns.how | {role: GUESSED for role in asked.guessed if role in columns})
    if slates is not None:
        columns = replace(columns, how=columns.how | dict.fromkeys(slates.taken & {*columns.names}, RECOGNISED))
    targets = tuple(name for name in asked.targets if name in file.names) or targets_of(file.names, columns)
    items = _items(file, columns) if kind == BANDIT else {}
    rows = file.read(_kinds(file, columns, [name for name in targets if name not in items]))
    patient = _Patient(file, kind, columns, targets, asked, rows, items, shown)
    patient.problems += problems
    patient.slates = slates
    found = patient.examined()
    if guess:  # then what its probabilities are of is found out
        left = {role: name for role, name in found.guesses.items() if role != "propensity"}
        found = replace(found, guesses=left | {"slate": guess})
    found.facts["slates"] = None if slates is None else slates.facts
    found.facts["receipts"] = receipts
    found.facts["target_file"] = None if asked.target_file is None else _of_target_file(file, asked, found)
    return found


def examine_tool_log(tool: ToolLog, asked: Asked) -> Examination:
    """What is found about a tool's log, as :func:`recsim_mnar.own_log.doctor.examine_file`."""
    columns = {role: name for role, name in asked.columns.items() if name in tool.file.names}
    targets = tuple(asked.targets or tool.policies if tool.has_propensities else ())
    found = examine_file(tool.file.parts.path, replace(asked, columns=columns, targets=targets))
    damages = [Problem(each.code, PROBLEM, each.message, each.advice, ("propensity",)) for each in tool.damages]
    return replace(found, source=str(tool.file.path), kind=BANDIT, problems=[*damages, *found.problems])


@dataclass(frozen=True)
class _Slates:
    """What is known of a file of slates.

    Attributes:
        found: the file.
        columns: by role, as the user says and as they were found.
        taken: roles that the user did not name.
        main: what the propensities are of; "" where that is not known.
        facts: form, slates, sizes, what propensities are of in words, and the options that a command needs.
    """

    found: SlateFile
    columns: dict[str, str | None]
    taken: frozenset[str]
    main: str
    facts: dict[str, Any]


def _slates(file: TableFile, asked: Asked) -> tuple[_Slates | Wrong | None, list[Problem]]:
    """What a file of slates is, and what is wrong with them; of single items what says that they may be slates."""
    found = find_slates(file, asked.columns, endings_of(asked.targets, file.names))
    columns = {role: name for role, name in asked.columns.items() if role not in ("slate", "position")}
    if found is None:
        perhaps = perhaps_slates(file, asked.columns, endings_of(asked.targets, file.names))
        return perhaps, [] if perhaps is None else [_problem(perhaps, NOTE)]
    options = [word for role in ("slate", "position") if (name := asked.columns.get(role)) is not None
               for word in (f"--{role}-column", name)]  # fmt: skip
    options += [] if asked.propensities_of is None else ["--propensities-of", asked.propensities_of]
    facts: dict[str, Any] = {"form": found.form, "slates": None, "least": None, "most": None, "propensities_of": {}}
    facts |= {"columns": {role: found.columns[role] for role in ("slate", "position")} if not found.per_slate else {}}
    facts |= {"options": options, "lines": [found.form]}
    facts |= {"guessed": [asked.columns["slate"]]} if "slate" in asked.guessed else {}
    named = {role: name for role, name in asked.columns.items() if role != "item"}
    reading = Reading(named, drop_missing=True, drop_invalid=1.0, propensities_of=asked.propensities_of)
    problems, main, own = [], "", {"action": found.columns["action"]} if found.per_slate else {}
    try:
        read = read_slates(found, reading, [name for name in asked.targets if endings_of([name], file.names)])
    except UserError:
        try:  # what is wrong where no row is left
            read_slates(found, replace(reading, drop_missing=False, drop_invalid=None))
        except UserError as error:
            problems.append(Problem("slates_not_read", PROBLEM, str(error).removeprefix(f"{file.path}: ")))
    else:
        slates, main = read.slates, read.main
        own |= {role: name for role, name in read.log.columns.names.items() if role in ("user", "propensity", "reward")}
        facts |= {"slates": slates.number, "least": int(slates.sizes.min()), "most": int(slates.sizes.max())}
        facts["propensities_of"] = {name: kind for kind, name in read.kinds.items()}
        least, most = facts["least"], facts["most"]
        sizes = "several sizes" if least < most else f"{most} items"
        facts["lines"] = read.lines if slates.size else [f"{found.form}: {slates.number:,} slates of {sizes}"]
        both = (found.columns["slate"], found.columns["position"])
        lacking = [f"{name} {n:,}" for name in both if (n := read.log.counts[f"lacks:{name}"])]
        if lacking:
            problems.append(Problem("missing", PROBLEM, f"values are missing: {', '.join(lacking)}", DROP, both))
        problems += [_problem(each, PROBLEM) for each in slates.problems]
        if not main and slates.size:
            problems.append(Problem("unclear_propensities", PROBLEM, *read.unclear, ("propensity",)))
    taken = frozenset(role for role in own if columns.get(role) is None)
    return _Slates(found, {**columns, **{role: own[role] for role in taken}}, taken, main, facts), problems


def _of_other_kinds(names: Sequence[str]) -> set[str]:
    """Columns with the probabilities, of slates and the like, of a policy whose own column is there too."""
    return {each for name in names for each in endings_of([name], names) if each != name}


def _problem(wrong: Wrong, level: str) -> Problem:
    return Problem(wrong.code, level, wrong.message, wrong.advice, wrong.columns)


def _of_target_file(file: TableFile, asked: Asked, found: Examination) -> dict[str, Any]:
    """What a second file says of the rows; its problems are added to those found."""
    assert asked.target_file is not None
    facts: dict[str, Any] = {"file": str(asked.target_file), "on": asked.on, "policies": [], "lines": []}
    try:
        outside = [name for name in asked.targets if name not in file.names]
        second = TargetFile.open(asked.target_file, asked.on, outside, file.names)
        columns = {role: name for role, name in asked.columns.items() if role != "item"}
        needs = ["action"] if second.by_action else []
        log = BanditLog.open(file, reading=Reading(columns, key=asked.on, drop_missing=True), needs=needs).read()
        targets = second.read(log, drop_missing=True)
    except UserError as error:
        found.problems.append(Problem("target_file", PROBLEM, str(error)))
        return facts
    number = int(targets.absent.sum())
    if number:
        message = (
            f"{number:,} of {in_rows(len(log))} {'have' if number > 1 else 'has'} no targets in {asked.target_file}"
        )
        found.problems.append(Problem("without_target", PROBLEM, message, "--drop-missing leaves them out"))
    weights = [] if log.propensity is None else [
        mean_weight(log.propensity, values, None if log.user is None else log.user.codes, policy=name)
        for name, values in targets.policies.items()
    ]  # fmt: skip
    found.facts["mean_weight"] += _weighed(weights, log.columns.get("propensity") or "", found.problems)
    return {**facts, "policies": list(second.names), "lines": targets.lines}


def _receipts(path: Path) -> str | None:
    """Check a folder, or a file with a receipt, against the receipts; the outcome, None without any.

    Raises:
        UserError: what is there is not what was written: every fault, since no command reads such a log.
    """
    if not (path.is_dir() or path.with_name(path.name + SIDECAR).exists()):
        return None
    held = verify(path)
    if held.faults:
        several = f"{len(held.faults):,} faults: " if len(held.faults) > 1 else ""
        raise UserError(f"{path}: {several}{'; '.join(held.faults)}")
    return held.sentence() if held.n_files else None


def _items(file: TableFile, columns: Columns) -> dict[str, str]:
    """Columns without a role that hold items, and how."""
    action, free = columns.get("action"), (name for name in file.names if name not in columns.names.values())
    head = {} if action is None else file.head()
    how = {name: held_items(head, action or "", name) for name in free} if head else {}
    return {name: each for name, each in how.items() if each not in ("", UNCLEAR)}


def _kinds(file: TableFile, columns: Columns, targets: Sequence[str]) -> dict[str, str]:
    """What each column of the file is read for."""
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
        return None if about_others else (events.shown, events.viewed)
    if "action" in columns and "item" in columns:
        action, item = (_there(rows.column(columns[role])) for role in ("action", "item"))
        return (action, item) if np.all(action ^ item) else None
    return None


def _there(column: Any) -> NDArray[np.bool_]:
    """(n,) which values are not missing."""
    return np.asarray(column.is_valid().to_numpy()).astype(np.bool_)


class _Patient:
    """A file's rows under examination."""

    def __init__(
        self, file: TableFile, kind: str, columns: Columns, targets: tuple[str, ...], asked: Asked, rows: Rows,
        items: dict[str, str], shown: ShownItem,
    ) -> None:  # fmt: skip
        self.file, self.kind, self.columns, self.targets, self.items = file, kind, columns, targets, items
        self.n_actions, self.whole = asked.n_actions, rows
        self.problems = [Problem("action_chosen", NOTE, shown.line, "", (shown.column,))] if shown.line else []
        self.rivals = shown.rivals
        self.slates: _Slates | None = None
        kinds = kinds_of_rows(rows, columns) if kind == BANDIT else None
        self.shown, self.viewed = np.ones(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        self.mixed = kinds is not None and bool(kinds[0].any())
        if kinds is not None and self.mixed:
            self.shown, self.viewed = kinds
        self.rows = rows if self.shown.all() else rows.kept(self.shown)
        if kinds is not None and not self.mixed:
            message = f"no row is a recommendation by column {columns['event']!r}" if "event" in columns else "no row"
            advice = "write bandit where something was recommended and organic where a user met it alone"
            self.problems.append(Problem("no_recommendations", PROBLEM, message, advice))

    def examined(self) -> Examination:
        """Examine everything."""
        facts: dict[str, Any] = {
            "rows": len(self.whole),
            "bandit_rows": int(self.shown.sum()) if self.kind == BANDIT else None,
            "organic_rows": int(self.viewed.sum()) if self.mixed else None,
            "other_rows": int((~(self.shown | self.viewed)).sum()) if self.mixed else None,
        }
        facts |= self._ids() | self._times() | self._copies() | self._values() | {"events": self._events()}
        facts["missing"] = self._missing()
        # Our own logs' further columns are known; what is missing in rows of another kind is no fault.
        self.problems += problems_of(self.rows.faults.found)
        self.problems += [Problem("percent", NOTE, line) for line in percent_lines(self.rows.faults.percents)]
        self.problems += self._unclear()
        own = set(OWN) <= set(self.file.names)
        used = {*self.columns.names.values(), *self.targets}
        if self.slates is not None:
            facts_of_slates = self.slates.facts["propensities_of"]
            used |= {*self.slates.found.columns.values(), *facts_of_slates, *endings_of(self.targets, self.file.names)}
        others = [n for n in self.file.names if n not in used]
        of_shares = [name for name in self.targets if name not in self.items]
        items = {name: how for name, how in self.items.items() if name in others}
        unnamed = Unnamed(self.rows.quiet(), self.columns, of_shares, others, self.file.decimal, items)
        segments: list[str] = []
        if not own and self.kind == BANDIT:
            if "propensity" in self.columns and not self.targets:
                one = replace(unnamed, others=[n for n in others if n not in _of_other_kinds(others)])
                self.problems += one.maybe_targets(self.user, mixed=self.mixed)
            segments, remarks = unnamed.segments() if self.slates is None else ([], [])
            self.problems += [*unnamed.items_of_policies(), *remarks]
        guesses = {role: name for role, name in unnamed.guesses().items() if role != "action" or not self.rivals}
        return Examination(
            str(self.file.path), self.kind, own, self.file.how_written(), self.columns, others, segments, self.targets,
            facts, self.problems, guesses, self.items,
        )  # fmt: skip

    def _numbers(self, role: str) -> Floats | None:
        name = self.columns.get(role)
        return None if name is None or not len(self.rows) else self.rows.numbers(name)

    def _column(self, role: str) -> Ids | None:
        name = self.columns.get(role)
        return None if name is None or not len(self.rows) else self.rows.ids(name)

    def _ids(self) -> dict[str, Any]:
        """Count users, actions and repeated items."""
        user = self._column("user")
        what = self._column("item") if self.kind == INTERACTIONS else self._column("action")
        logger = self._column("logger")
        self.user = None if user is None else user.codes
        facts: dict[str, Any] = {"users": None, "rows_of_a_user": None, "repeats": None}
        if user is not None:
            counts = np.bincount(user.codes[user.codes >= 0], minlength=user.number)
            counts = counts[counts > 0]
            facts["users"] = len(counts)
            if len(counts):
                facts["rows_of_a_user"] = {"median": float(np.median(counts)), "most": int(counts.max())}
                if len(counts) == 1:
                    one = Problem("one_user", PROBLEM, "all rows belong to one user", "intervals need many")
                    self.problems.append(one)
        if user is not None and what is not None:
            good = (user.codes >= 0) & (what.codes >= 0)
            pairs = user.codes[good] * max(what.number, 1) + what.codes[good]
            facts["repeats"] = int(good.sum() - len(np.unique(pairs)))
        facts |= {"loggers": None if logger is None else logger.number}
        return facts | self._actions(what)

    def _actions(self, what: Ids | None) -> dict[str, Any]:
        """How many actions (items) are there, and which share of them was ever shown."""
        facts: dict[str, Any] = {"items": None, "actions": None, "actions_known": None, "share_shown": None}
        self.n_shown = None
        if what is None:
            return facts
        met = len(np.unique(what.codes[what.codes >= 0]))
        if self.kind == INTERACTIONS:
            return {**facts, "items": met}
        self.n_shown = met
        known = max(self.n_actions or 0, self._catalogue(what))
        if known:
            facts |= {"actions_known": known, "share_shown": met / known}
        return {**facts, "actions": met}

    def _catalogue(self, what: Ids) -> int:
        """Actions that there are as far as the log says: items of its world, or met in its organic rows; 0 unknown."""
        made = provenance_of(self.file.parts)
        items = made.get("world", {}).get("params", {}).get("n_items", 0) if isinstance(made.get("world"), dict) else 0
        name = self.columns.get("item") or self.columns["action"]
        if items or not self.mixed:
            return int(items)
        viewed = self.whole.kept(self.viewed).quiet().ids(name) if self.viewed.any() else None
        if viewed is None or viewed.number == 0:
            return 0
        return len(set(viewed.ids.astype(str)) | set(what.ids.astype(str)))

    def _events(self) -> dict[str, int] | None:
        """How many rows of each event there are, in a file of interactions with a column of them."""
        if self.kind != INTERACTIONS or "event" not in self.columns:
            return None
        found = self.rows.quiet().ids(self.columns["event"])
        counts = np.bincount(found.codes[found.codes >= 0], minlength=found.number)
        return {str(word): int(number) for word, number in zip(found.ids, counts, strict=True)}

    def _times(self) -> dict[str, Any]:
        from recsim_mnar.log.rows import shown_time

        name = self.columns.get("time")
        if name is None:
            return {"time": None}
        values = self.rows.times(name)
        known = values[~np.isnan(values)]
        if not known.size:
            return {"time": None}
        first, last = float(known.min()), float(known.max())
        span = {"first": first, "last": last, "from": shown_time(first), "to": shown_time(last)}
        if first == last:
            self.problems.append(Problem("one_time", NOTE, f"all rows have the same time, {span['from']}"))
        return {"time": span}

    def _copies(self) -> dict[str, Any]:
        """Rows that are equal to an earlier one in every column but one that numbers the rows."""
        digests = self.whole.digests(columns_of_copies(self.file.names))
        again = repeats(digests)
        number, copies = int(again.sum()), False
        if number:
            rows = ", ".join(str(row) for row in np.flatnonzero(again)[:3] + 1) + (", ..." if number > 3 else "")
            said = f"{number:,} rows are equal to an earlier row in every column (rows {rows})"
            if number == 1:
                said = f"row {rows} is equal to an earlier row in every column"
            group = [self.columns[role] for role in ("user", "time", "logger") if role in self.columns]
            seen = columns_of_copies(self.file.names), self.file.head()
            expected, copies = chance_of([self.whole], self.columns, group, seen, digests)
            said += f"; chance makes some {expected:,.0f} equal"
            advice = "leave copies out (--deduplicate), or say that these are events of their own (--separate-events)"
            if self.kind == INTERACTIONS:
                advice = "compare counts them as further views: remove them first if they are copies"
            elif not copies:
                advice = "these are separate events"
            self.problems.append(Problem("duplicates", PROBLEM if copies else NOTE, said, advice))
        return {"duplicates": number, "copies": number * copies}

    def _values(self) -> dict[str, Any]:
        """Rewards, propensities and weights."""
        facts: dict[str, Any] = {"reward": None, "propensity": None, "mean_weight": []}
        reward = self._numbers("reward")
        if reward is not None and (~np.isnan(reward)).any():
            least, largest, mean = (float(of(reward)) for of in (np.nanmin, np.nanmax, np.nanmean))
            facts["reward"] = {"least": least, "largest": largest, "mean": mean}
            if least == largest:
                advice = "no policy can be shown to be better than another"
                self.problems.append(Problem("one_reward", PROBLEM, f"every reward is {least:g}", advice))
        targets = {name: self._target(name) for name in self.targets if len(self.rows)}
        values = self._numbers("propensity")
        if values is None:
            return facts
        name = self.columns["propensity"]
        facts["propensity"] = propensity_facts(values)
        self.problems += impossible(values, facts["propensity"], name, self.rows.row_numbers)
        if not facts["propensity"]["percent"]:
            facts["mean_weight"] = self._mean_weights(values, name, targets)
        if facts["propensity"]["least"] == 1.0 == facts["propensity"]["largest"]:
            advice = "the log says nothing of other actions: log with exploration"
            self.problems.append(Problem("no_exploration", PROBLEM, "every propensity is 1", advice))
        return facts

    def _target(self, name: str) -> Floats:
        """(n,) a target's probability of the item shown: a column of these, or of the items that it shows."""
        if name not in self.items:
            return self.rows.probabilities(name, zero=True, advice="give a probability")
        return same_items(self.rows.ids(name), self.rows.quiet().ids(self.columns["action"]), fold=True)

    def _mean_weights(self, propensity: Floats, name: str, targets: dict[str, Floats]) -> list[dict[str, Any]]:
        found = [mean_weight(propensity, values, self.user, policy=each) for each, values in targets.items()]
        if self.n_shown and (self.slates is None or self.slates.main == "marginal"):
            uniform = np.full(len(propensity), 1.0 / self.n_shown)
            found.append(mean_weight(propensity, uniform, self.user, actions=self.n_shown))
        return _weighed(found, name, self.problems)

    def _missing(self) -> dict[str, int]:
        """Missing values by column, those with any; in the rows that the column is for."""
        used = {fault.column: fault.count for fault in self.rows.faults.found if fault.code == MISSING}
        found = {}
        for name in self.file.names:
            number = used.get(name, 0) or _nulls(self.rows.column(name))
            if number and not (self.mixed and name == self.columns.get("item")):  # a recommendation has none
                found[name] = number
        needed = {name: number for name, number in found.items() if name in used}
        if needed:
            listed = ", ".join(f"{name} {number:,}" for name, number in needed.items())
            self.problems.append(Problem("missing", PROBLEM, f"values are missing: {listed}", DROP))
        return found

    def _unclear(self) -> list[Problem]:
        return [
            Problem(
                "unclear", PROBLEM if role in ("propensity", "user", "reward") or names == self.rivals else NOTE,
                f"the {role} could be column {in_words(names)}", say_which(role), names,
            )
            for role, names in self.columns.unclear.items()
        ]  # fmt: skip


def _weighed(found: Sequence[MeanWeight | None], propensity: str, problems: list[Problem]) -> list[dict[str, Any]]:
    """Mean weights as JSON types; those that cannot be 1 are added to the problems."""
    there = [each for each in found if each is not None]
    problems += [problem for each in there if (problem := weight_problem(each, propensity)) is not None]
    return [{**each.to_dict(), "line": each.line()} for each in there]


def _nulls(column: Any) -> int:
    """How many values of a column are missing: null, NaN, or blank text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    number = int(column.null_count)
    if pa.types.is_floating(kind):
        number += int(pc.sum(pc.is_nan(column)).as_py() or 0)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        number += int(pc.sum(pc.equal(pc.utf8_trim_whitespace(column), "")).as_py() or 0)
    return number
