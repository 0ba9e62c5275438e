"""A file looked at: which column is what, what its rows hold, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.off_policy.records import Segments, Weights
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.log.columns import Clusters, Floats
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import BanditLog, Reading
from recsim_mnar.own_log.doctor.problems import (
    NOTE,
    PROBLEM,
    Problem,
    impossible,
    mean_weight,
    problems_of,
    propensity_facts,
    weight_problem,
)
from recsim_mnar.own_log.estimating import OWN
from recsim_mnar.own_log.target_file import TargetFile
from recsim_mnar.runs.receipts import SIDECAR
from recsim_mnar.tables.arrow import is_text
from recsim_mnar.tables.faults import MISSING, in_rows, percent_lines
from recsim_mnar.tables.parts import TableFile, verify
from recsim_mnar.tables.roles import (
    GUESSED,
    USUAL_NAMES,
    Columns,
    find_columns,
    in_words,
    likely_columns,
    new_policies,
    of_what_was_shown,
    plain_name,
    say_which,
)
from recsim_mnar.tables.rows import DROP, Events, Ids, Rows, repeats, spelled_alike, text_numbers

BANDIT, INTERACTIONS, TABLE = "bandit log", "interactions", "table"
"""What a file can be: recommendations with what came of them; who met what; neither."""

_ROLES = ("user", "action", "reward", "propensity", "time", "logger", "event", "item")
_RATINGS = USUAL_NAMES["reward"][-1]
_LOOKED_AT = 1000
_TWO = 2
"""Sizes of shares that are taken for a policy's by their mean weight alone."""
"""Values of a column with no named role."""
_MOST_SEGMENTS = 30
"""Words of a column that estimates are offered by."""
_ROW_NUMBERS = ("", "unnamed0", "rownumber", "rownum")
_GUESSES = ("reward", "propensity", "user", "item", "action", "time")
"""Roles that a likely column is named for, in this order."""
_LEAST_USERS, BY_CHANCE = 20, 0.001
"""Values of a column of users at least; share of rows that may be equal in what is read and not in the rest."""


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
    """

    columns: Mapping[str, str | None] = field(default_factory=dict)
    targets: Sequence[str] = ()
    n_actions: int | None = None
    target_file: str | os.PathLike[str] | None = None
    on: str | None = None
    guessed: Collection[str] = ()


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
    receipts = _receipts(Path(path))
    file = TableFile.open(path)
    for name in asked.targets:
        if name not in file.names and asked.target_file is None:
            raise UserError(f"{path} has no column {name!r}; {nearest(name, file.names)} (--target)")
    kind, columns = _columns(file, str(path), asked)
    columns = replace(columns, how=columns.how | {role: GUESSED for role in asked.guessed if role in columns})
    targets = tuple(name for name in asked.targets if name in file.names) or _targets(file.names, columns)
    rows = file.read(_kinds(file, columns, targets))
    found = _Patient(file, kind, columns, targets, asked, rows).examined()
    found.facts["receipts"] = receipts
    found.facts["target_file"] = None if asked.target_file is None else _of_target_file(file, asked, found)
    return found


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
    there = [each for each in weights if each is not None]
    found.facts["mean_weight"] += [{**each.to_dict(), "line": each.line()} for each in there]
    name = log.columns.get("propensity") or ""
    found.problems.extend(problem for each in there if (problem := weight_problem(each, name)) is not None)
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


def _columns(file: TableFile, source: str, asked: Asked) -> tuple[str, Columns]:
    """What the file is, and which column is what: an item is what was met, an action what was shown."""
    named, item = asked.columns, asked.columns.get("item")
    left = [name for name in asked.targets if name in file.names]
    columns = find_columns(source, file.names, named=named, optional=_ROLES, leave=left)
    if "propensity" not in {*columns.names, *columns.unclear, *columns.without} and item is None:
        shares = _perhaps_propensities(file, {*columns.names.values(), *left, *_targets(file.names, columns)})
        columns = replace(columns, unclear=columns.unclear | ({"propensity": shares} if shares else {}))
    if "reward" not in columns.names:
        columns = replace(columns, unclear=columns.unclear | _perhaps_rewards(file, columns))
    rated = plain_name(columns.get("reward") or "") in _RATINGS
    logged = "propensity" in columns or "propensity" in columns.unclear
    if logged or asked.targets or asked.target_file is not None or ("reward" in columns and not rated and item is None):
        return BANDIT if "reward" in columns or "propensity" in columns else TABLE, columns
    wanted = {"user": named.get("user"), "item": item, "time": named.get("time")}
    met = find_columns(source, file.names, named=wanted, optional=("user", "item", "time", "event"))
    return (INTERACTIONS if "user" in met and "item" in met else TABLE), met


def _targets(names: Sequence[str], columns: Columns) -> tuple[str, ...]:
    """Columns that are targets by their names: those that ``replay`` has written the missing mass of, or say so."""
    free = [name for name in names if name not in columns.names.values()]
    replayed = [name for name in free if f"{name}_unsupported" in names]
    said = new_policies(free)
    return tuple(dict.fromkeys([*replayed, *(name for name in said if "propensity" in columns)]))


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


_ZERO_OR_ONE = {"0", "1", "0.0", "1.0", "True", "False", "true", "false"}
_NARROW = 0.5
"""Width of the limits of a mean weight from which a column of 0 and 1 is taken for a policy: others miss 1 by more."""


def _are_shares(column: Any, decimal: str, *, zero: bool = True) -> bool:
    """Whether the first values are numbers in [0, 1], not 0 and 1 alone; or in (0, 1], and not all of them 1."""
    import pyarrow as pa

    words = [str(each) for each in column[:_LOOKED_AT] if not isinstance(each, bool)]
    values, _, bad = text_numbers(pa.array(words, pa.string()), decimal)
    known = values[~np.isnan(values)]
    fits = np.all((known >= 0.0 if zero else known > 0.0) & (known <= 1.0))
    many = len(np.unique(known)) > 1 and np.any((known > 0.0) & (known < 1.0)) if zero else np.any(known < 1.0)
    return bool(not bad.any() and fits and many)


def _perhaps_propensities(file: TableFile, used: Collection[str]) -> tuple[str, ...]:
    """Unused columns whose first values are all in (0, 1]: the probability of what was shown, for all one knows."""
    found = [name for name, values in file.head().items() if name not in used]
    return tuple(name for name in found if _are_shares(file.head()[name], file.decimal, zero=False))


def _perhaps_rewards(file: TableFile, columns: Columns) -> dict[str, tuple[str, ...]]:
    """Columns that the reward could be, those of zeros and ones first; without usual names these alone."""
    import pyarrow as pa

    said, yes_or_no = columns.unclear.get("reward", ()), []
    likely = likely_columns("reward", file.names)
    for name, values in file.head().items():
        known, _, bad = text_numbers(pa.array([str(each) for each in values], pa.string()))
        if name not in columns.names.values() and not bad.any() and set(known[~np.isnan(known)]) == {0.0, 1.0}:
            yes_or_no.append(name)
    if not said and "propensity" not in {*columns.names, *columns.unclear}:
        return {}
    yes_or_no.sort(key=lambda name: name not in likely)
    found = [name for name in said if name in yes_or_no] + [name for name in said if name not in yes_or_no]
    return {"reward": tuple(found or yes_or_no)} if found or yes_or_no else {}


class _Patient:
    """A file's rows under examination."""

    def __init__(
        self, file: TableFile, kind: str, columns: Columns, targets: tuple[str, ...], asked: Asked, rows: Rows
    ) -> None:
        self.file, self.kind, self.columns, self.targets = file, kind, columns, targets
        self.n_actions, self.key, self.whole = asked.n_actions, asked.on, rows
        self.problems: list[Problem] = []
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
        others = [n for n in self.file.names if n not in {*self.columns.names.values(), *self.targets}]
        if not own and self.kind == BANDIT and "propensity" in self.columns and not self.targets:
            self.problems += self._maybe_targets(others)
        segments = self._segments([] if own or self.kind != BANDIT else others)
        return Examination(
            str(self.file.path), self.kind, own, self.file.how_written(), self.columns, others, segments, self.targets,
            facts, self.problems, self._guesses(others),
        )  # fmt: skip

    def _guesses(self, others: Sequence[str]) -> dict[str, str]:
        """The likeliest column of roles that are not clear; of users one of their words whose values recur."""
        found: dict[str, str] = {}
        for role in _GUESSES:
            names = [name for name in self.columns.unclear.get(role, ()) if name not in found.values()]
            names = self._likely_propensities(names) if role == "propensity" else names
            found |= {role: names[0]} if names else {}
        if "user" not in {*self.columns.names, *found, *self.columns.without} and len(self.rows):
            free = [name for name in likely_columns("user", others) if name not in found.values()]
            values = {name: self.rows.quiet().ids(name) for name in free}
            likely = [name for name, each in values.items() if _LEAST_USERS <= each.number <= len(self.rows) / 2]
            found |= {"user": max(likely, key=lambda name: values[name].number)} if likely else {}
        return found

    def _likely_propensities(self, names: list[str]) -> list[str]:
        """Those whose names say it first, then those by which another one has a mean weight near 1."""
        rows = self.rows.quiet()
        values = {name: rows.numbers(name) for name in names} if len(names) > 1 else {}

        def off(name: str) -> float:
            others = [values[each] / values[name] for each in names if each != name]
            means = [float(np.nanmean(np.where(np.isfinite(each), each, np.nan))) for each in others]
            return min((abs(np.log(max(mean, 1e-12))) for mean in means), default=0.0)

        with np.errstate(divide="ignore", invalid="ignore"):
            return sorted(names, key=lambda name: (not of_what_was_shown(name), off(name) if values else 0.0))

    def _segments(self, others: Sequence[str]) -> list[str]:
        """Unused columns of a few words each, fixed before; words that differ only in capitals are a remark."""
        found = []
        unclear = {name for names in self.columns.unclear.values() for name in names}
        for name in others:
            if name in unclear or not len(self.rows) or not is_text(self.rows.column(name).type):
                continue
            values = self.rows.quiet().ids(name)
            if not (values.ids.dtype.kind == "O" and 2 <= values.number <= _MOST_SEGMENTS) or self._depends(
                name, values
            ):
                continue
            found.append(name)
            counts = dict(zip(values.ids, np.bincount(values.codes[values.codes >= 0]).tolist(), strict=True))
            groups = [sorted(group, key=lambda word: (-counts[word], word)) for group in spelled_alike(values.ids)]
            if groups:
                pairs = ", ".join(" and ".join(group) for group in sorted(groups, key=lambda each: -counts[each[0]]))
                share = sum(counts[word] for group in groups for word in group[1:]) / len(self.rows)
                message = f"{name} has {pairs}: the rarer spellings are {100 * share:.2g} % of rows"
                advice = "are these the same? Then write them alike, or add --fold-case to --by"
                self.problems.append(Problem("spelled_alike", NOTE, message, advice, (name,)))
        return found

    def _depends(self, name: str, values: Ids) -> bool:
        """Whether `estimate --by` would refuse a column, as one that depends on what was recommended."""
        weights, rows = self._weights, self._good
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
        rows = self.rows.quiet()
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
        """What says whether a column was fixed before; None where rewards or propensities are not known."""
        rows, kept = self.rows.quiet(), self._good
        if not {"reward", "propensity"} <= set(self.columns.names) or not kept.size:
            return None
        ids = {role: rows.ids(self.columns[role]).codes[kept] for role in ("user", "action") if role in self.columns}
        numbers = {name: rows.numbers(name)[kept] for name in self.targets}
        reward, propensity = (rows.numbers(self.columns[role])[kept] for role in ("reward", "propensity"))
        users = Clusters.of(ids["user"], kept.size) if "user" in ids else None
        return Weights(reward, propensity, users, numbers, {}, ids.get("action"), Stated())

    def _numbers(self, role: str) -> Floats | None:
        name = self.columns.get(role)
        return None if name is None or not len(self.rows) else self.rows.numbers(name)

    def _column(self, role: str) -> Ids | None:
        name = self.columns.get(role)
        if name is None or not len(self.rows):
            return None
        return self.rows.ids(name)

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
                    self.problems.append(
                        Problem("one_user", PROBLEM, "all rows belong to one user", "intervals need many")
                    )
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
        names = [name for name in self.file.names if plain_name(name) not in _ROW_NUMBERS]
        again = repeats(self.whole.digests(names))
        number = alike = int(again.sum())
        read = [name for role, name in self.columns.names.items() if role not in ("item", "event")]
        if number and read:
            alike = int(repeats(self.whole.digests([*read, *self.targets, *([self.key] if self.key else [])])).sum())
        if number:
            rows = ", ".join(str(row) for row in np.flatnonzero(again)[:3] + 1) + (", ..." if number > 3 else "")
            said = f"{number:,} rows are equal to an earlier row in every column (rows {rows})"
            if number == 1:
                said = f"row {rows} is equal to an earlier row in every column"
            dated = "time" in self.columns
            advice = "leave them out (--deduplicate) unless the same thing happened twice"
            if self.kind == INTERACTIONS:
                advice = "compare counts them as further views: remove them first if they are copies"
            elif alike - number > BY_CHANCE * len(self.whole) and self.kind == BANDIT:
                more = "" if dated else ", or name the column of times (--time-column)"
                advice = (
                    f"--deduplicate is not for them: it compares only columns that are read, and {alike:,} rows are "
                )
                advice += f"equal in these. Take them out of the file{more}"
            self.problems.append(Problem("duplicates", PROBLEM if dated else NOTE, said, advice))
        return {"duplicates": number, "duplicates_as_read": alike}

    def _values(self) -> dict[str, Any]:
        """Rewards, propensities and weights."""
        facts: dict[str, Any] = {"reward": None, "propensity": None, "mean_weight": []}
        reward = self._numbers("reward")
        if reward is not None and (~np.isnan(reward)).any():
            facts["reward"] = {
                "least": float(np.nanmin(reward)), "largest": float(np.nanmax(reward)),
                "mean": float(np.nanmean(reward)),
            }  # fmt: skip
            if facts["reward"]["least"] == facts["reward"]["largest"]:
                message = f"every reward is {facts['reward']['least']:g}"
                self.problems.append(
                    Problem("one_reward", PROBLEM, message, "no policy can be shown to be better than another")
                )
        targets = {name: self._target(name) for name in self.targets} if len(self.rows) else {}
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
        return self.rows.probabilities(name, zero=True, advice="give a probability")

    def _mean_weights(self, propensity: Floats, name: str, targets: dict[str, Floats]) -> list[dict[str, Any]]:
        found = [mean_weight(propensity, values, self.user, policy=each) for each, values in targets.items()]
        if self.n_shown:
            uniform = np.full(len(propensity), 1.0 / self.n_shown)
            found.append(mean_weight(propensity, uniform, self.user, actions=self.n_shown))
        there = [each for each in found if each is not None]
        self.problems += [problem for each in there if (problem := weight_problem(each, name)) is not None]
        return [{**each.to_dict(), "line": each.line()} for each in there]

    def _maybe_targets(self, others: Sequence[str]) -> list[Problem]:
        """Unnamed columns that look like a policy's probabilities."""
        found = [
            name
            for name in others
            if name
            and name not in self.columns.unclear.get("reward", ())
            and _are_shares(self.rows.column(name).slice(0, _LOOKED_AT).drop_null().to_pylist(), self.file.decimal)
        ]
        rows, probable = self.rows.quiet(), self._of_mean_1(found)
        found = probable or [name for name in found if len(np.unique(rows.numbers(name)[:_LOOKED_AT])) > _TWO]
        if not found:
            return self._sure_targets([name for name in others if name])
        one = len(found) == 1
        message = f"column {found[0]!r} holds shares" if one else f"columns {', '.join(map(repr, found))} hold shares"
        advice = f"if they are policies' probabilities of the logged action, add --target {','.join(found)}"
        return [Problem("maybe_target", NOTE, message, advice, tuple(found))]

    def _of_mean_1(self, names: Sequence[str]) -> list[str]:
        """Those whose mean weight can be 1."""
        rows = self.rows.quiet()
        propensity = rows.numbers(self.columns["propensity"])
        weights = {name: mean_weight(propensity, rows.numbers(name), self.user, policy=name) for name in names}
        return [name for name, weight in weights.items() if weight is not None and weight.holds]

    def _sure_targets(self, others: Sequence[str]) -> list[Problem]:
        """Unnamed columns of 0 and 1 whose mean weight is 1, as of a policy that is sure of its choice."""
        propensity, found = self._numbers("propensity"), []
        if propensity is None or self.mixed or not np.all((propensity > 0.0) & (propensity <= 1.0)):
            return []
        for name in others:
            column = self.rows.column(name)
            first = set(map(str, column.slice(0, _LOOKED_AT).drop_null().to_pylist()))
            if column.null_count or len(column) != len(propensity) or not first <= _ZERO_OR_ONE or len(first) < 2:
                continue
            values, _, bad = text_numbers(column.cast("string"))
            weight = None if bad.any() else mean_weight(propensity, values, self.user, policy=name)
            if weight is not None and weight.holds and weight.high - weight.low < _NARROW:
                found.append(name)
        if not found:
            return []
        message = f"{in_words(found)}: 1 or 0, and divided by the logged probability 1 on average"
        advice = f"as of a new policy that shows the item or does not: if it is one, add --target {','.join(found)}"
        return [Problem("maybe_target", NOTE, message, advice, tuple(found))]

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
                "unclear", PROBLEM if role in ("propensity", "user", "reward") else NOTE,
                f"the {role} could be column {in_words(names)}", say_which(role), names,
            )
            for role, names in self.columns.unclear.items()
        ]  # fmt: skip


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
