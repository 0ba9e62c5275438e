"""Read a bandit log from disk: recognise its columns and check its rows, all at once or in blocks."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import (
    BLOCK_ROWS,
    PROBLEM,
    BanditFile,
    Block,
    Problem,
    Reading,
    chance_of,
    columns_of_copies,
    context_values,
    exact_columns,
    names_behind,
)
from recsim_mnar.own_log.odd_values import (
    columns_of_one_policy,
    head_numbers,
    missing_rewards,
    odd_rewards,
    rows_not_shown,
)
from recsim_mnar.own_log.shown_item import ShownItem, columns_of_items, likely_users, recognised_columns, same_items
from recsim_mnar.tables.parts import Parts, TableFile
from recsim_mnar.tables.roles import Columns
from recsim_mnar.tables.rows import (
    DROP,
    AgainError,
    Events,
    Numbering,
    Rows,
    n_repeats,
    others_in_words,
    repeats,
    without_recommendations,
)
from recsim_mnar.tables.text import ends_within_a_line
from recsim_mnar.tables.values import INVALID, MISSING, Faults, in_rows

_WORD, _LACKS, _ALIKE = "word:", "lacks:", "alike:"
"""Prefixes of counts: of unknown words of events, of missing values by column, and of rows
that repeat an earlier one in the columns read but not in all."""
_DROP_INVALID = "--drop-invalid leaves out the rows with values that cannot be read"
_FEW_INVALID = 0.05
"""Default share of rows that ``--drop-invalid`` leaves out."""
_MOST_EVENTS = 50
"""Most kinds of events: a column with more of them numbers its rows."""


@dataclass
class BanditLog:
    """A bandit log on disk; opening it reads the first rows only.

    Attributes:
        file: the table.
        columns: columns by role.
        policies: columns of policies' probabilities of the logged action.
        extra_columns: further columns of numbers.
        reading: the user's statements about the file.
        required_roles: roles that must have a column.
        logging_names: further names of the policy that logged the rows.
        item_policies: policies whose columns hold the item that they show instead of probabilities.
        counts: counts of the last pass, also of unknown words of events and missing values by column.
        users: numbers of the users.
        actions: numbers of the items shown.
        some_without_action: whether some row lacks the item shown.
        unreadable: faults of the rows that the last pass left out as unreadable.
        copies_in: columns in which copies are equal, in words for messages.
        compared_columns: columns in which copies were last compared; empty before the first comparison.
        choice_note: reason why a column is the action, if further columns hold the same items.
    """

    file: TableFile
    columns: Columns
    policies: Sequence[str]
    extra_columns: Sequence[str]
    reading: Reading
    required_roles: Sequence[str]
    logging_names: Sequence[str] = ()
    item_policies: frozenset[str] = frozenset()
    counts: Counter[str] = field(default_factory=Counter)
    users: Numbering = field(default_factory=Numbering)
    actions: Numbering = field(default_factory=Numbering)
    _no_events: bool | None = None
    some_without_action: bool = False
    unreadable: Sequence[str] = ()
    copies_in: str = "every column"
    compared_columns: Sequence[str] = ()
    choice_note: str = ""

    @staticmethod
    def open(
        path: str | os.PathLike[str] | TableFile,
        policies: Sequence[str] = (),
        *,
        reading: Reading | None = None,
        required_roles: Sequence[str] = (),
        extra_columns: Sequence[str] = (),
    ) -> BanditLog:
        """Open a bandit log and recognise its columns.

        Args:
            path: a file, a folder of parts, or an open table (:meth:`recsim_mnar.tables.parts.TableFile.open`).
            policies: columns of policies' probabilities of the logged action.
            reading: the user's statements about the file.
            required_roles: roles besides the reward that must have a column: "propensity", "action", "user".
            extra_columns: further columns of numbers.

        Raises:
            UserError: no such file or column, or several candidates.
        """
        reading = reading or Reading()
        file = TableFile.open(path, reading.decimal)
        _check_named(file, (*policies, *extra_columns), reading)
        shown_item = ShownItem()
        item_policies: frozenset[str] = frozenset()
        if reading.exact:  # nothing is recognised: columns have the names of the package's own logs
            columns = exact_columns(file, reading)
        else:
            columns, shown_item = recognised_columns(file, policies, reading, required_roles)
            if "action" in columns:
                targets = [name for name in policies if name != columns.get("propensity")]
                item_policies = frozenset(columns_of_items(file, columns["action"], targets, reading))
            _refuse_one_policy(file, policies, reading)
        if "weight" in columns:
            extra_columns = [*extra_columns, columns["weight"]]
        return BanditLog(
            file,
            columns,
            policies,
            extra_columns,
            reading,
            required_roles,
            item_policies=item_policies,
            choice_note=shown_item.line,
        )

    @property
    def parts(self) -> Parts:
        """The files of the log."""
        return self.file.parts

    def kinds(self) -> dict[str, str]:
        """Return by column how its values are parsed: "number", "id" or "time".

        A column with two uses keeps the first kind that it gets here, except that an item policy's column holds ids.
        """
        columns = self.columns
        reading = self.reading
        numbers = [columns[role] for role in ("reward", "propensity") if role in columns]
        kinds = dict.fromkeys((*numbers, *self.policies, *self.extra_columns), "number")
        kinds |= dict.fromkeys(self.item_policies, "id")
        ids = [columns[role] for role in ("user", "action", "logger") if role in columns]
        for name in (*ids, *reading.context, reading.key, reading.by):
            if name:
                kinds.setdefault(name, "id")
        for role, kind in (("time", "time"), ("event", "id")):
            if role in columns:
                kinds.setdefault(columns[role], kind)
        return kinds

    @property
    def looks_for_copies(self) -> bool:
        """True if equal rows are suspicious: with times or a key, unless the user says that they are no copies."""
        reading = self.reading
        if reading.separate_events:
            return False
        # Without a time or a key, equal rows are common: the same user sees the same item twice.
        identifies_events = ("time" in self.columns and "user" in self.columns) or reading.key is not None
        return (identifies_events and not reading.exact) or reading.deduplicate

    @property
    def needs_all_rows(self) -> bool:
        """True if a column that is read, or a search for copies, needs all rows at once."""
        reading = self.reading
        loggers = "logger" in self.columns and not reading.exact
        copies = self.looks_for_copies and "user" not in self.columns
        by_id = reading.key or reading.by or reading.context  # columns of ids that are numbered over all rows
        return bool(by_id or reading.deduplicate or loggers or copies or "weight" in self.columns)

    def read(self) -> BanditFile:
        """Read all decisions.

        Raises:
            UserError: the file is no table; or one line with every fault of the values.
        """
        work = _Pass(self)
        rows = self.file.read(self.kinds())
        rows.faults = work.faults
        log = work.decisions(rows)
        work.finish()
        log.lines[:] = self.lines  # only now: the notes need the counts of the finished pass
        return log

    def blocks(self, rows: int) -> Iterator[Block]:
        """Yield all decisions, about ``rows`` at a time.

        Raises:
            UserError: the file is no table; or, after the last row, one line with every fault of the values.
            AgainError: another pass from the first row is necessary.
        """
        work = _Pass(self)
        for table in self.file.blocks(dict.fromkeys(self.compared_columns, "text") | self.kinds(), rows, work.faults):
            block = work.block(table)
            if block is not None and len(block):
                yield block
        work.finish()

    def digests(self) -> NDArray[np.uint64]:
        """Hash each recommendation (m,) to 64 bits, equal for rows that are equal in all columns.

        If a part of the log lacks one of the columns, only the columns that are read are compared.
        ``compared_columns`` and ``copies_in`` are set to the columns that were compared.
        """
        names = columns_of_copies(self.file.names)
        self.copies_in = "every column"
        while True:
            try:
                digests = [rows.digests(names) for rows in self._recommendations(names)]
                break
            except AgainError:
                continue
            except UserError:
                if names == self.read_columns:  # already without the columns that a part may lack
                    raise
                names = self.read_columns
                self.copies_in = ", ".join(names)
        self.compared_columns = names
        return np.concatenate(digests)

    def _recommendations(self, text_columns: Sequence[str] = ()) -> Iterator[Rows]:
        """Yield the recommendations of another pass, without changing the counts of the last one.

        Args:
            text_columns: further columns to read, as text.
        """
        counts = self.counts
        unreadable = self.unreadable
        work = _Pass(self)  # it sets new counts, which are undone at the end
        try:
            for table in self.file.blocks(dict.fromkeys(text_columns, "text") | self.kinds(), BLOCK_ROWS):
                yield work.recommendations(table)
        finally:
            self.counts = counts
            self.unreadable = unreadable

    def count_copies(self, n_alike: int = 1) -> None:
        """Count rows that repeat an earlier one in every column, and those that do so only in the columns read.

        Takes 8 bytes for each row. If chance explains the equal rows, they count as separate events from now on.

        Args:
            n_alike: number of rows that repeat an earlier one in the columns read; if 0, no row can be a copy, and the
                rows are not read again.
        """
        digests = np.zeros(0, np.uint64)
        if n_alike:
            digests = self.digests()
        self.counts[_ALIKE] = n_alike - n_repeats(digests)
        if not self.are_copies(digests):
            self.reading = replace(self.reading, separate_events=True)

    def are_copies(self, digests: NDArray[np.uint64]) -> bool:
        """Count the rows that repeat an earlier one, and return whether they are more than chance explains.

        The number is counted as "duplicates" if they are, otherwise as "coincidences".

        Args:
            digests: (m,) hashes of the recommendations, from :meth:`digests`.
        """
        number = n_repeats(digests)
        if not number:
            return False
        group = [self.columns[role] for role in ("user", "time", "logger") if role in self.columns]
        if self.reading.key:
            group += [self.reading.key, *self.extra_columns]
        compared = (self.compared_columns, self.file.head())
        tables = self._recommendations(self.compared_columns)
        expected, more_than_chance = chance_of(tables, self.columns, group, compared, digests)
        self.counts["duplicates" if more_than_chance else "coincidences"] = number
        self.counts["by_chance"] = round(expected)
        return more_than_chance

    @property
    def read_columns(self) -> list[str]:
        """Columns that are read, except that of events."""
        return [name for name in self.kinds() if name != self.columns.get("event")]

    def out_of_order(self) -> bool:
        """Renumber users after a pass in which they did not come in ascending order.

        First users are numbered in order of appearance, which ascends if the rows of each user are consecutive.

        Returns:
            False if another pass with these numbers may find ascending users; True if rows must be sorted by user.
        """
        if not self.reading.exact and self.users.by_order_met():
            return False
        self.users.by_value()
        return True

    @property
    def lines(self) -> list[str]:
        """Notes on the last pass: columns used, repeated rows, and rows left out."""
        if self.reading.exact:
            return [*self._left_out()]
        return [*self._introduction(), *self._copies(), *self._left_out()]

    def _copies(self) -> Iterator[str]:
        """Describe rows that are equal, in all columns or in those that are read."""
        number = self.counts["duplicates"] + self.counts["coincidences"]
        by_chance = self.counts["coincidences"] > 0
        head = f"{in_rows(number)} repeat{'s' * (number == 1)} an earlier row in {self.copies_in}"
        chance = f"chance makes some {self.counts['by_chance']:,} equal"
        if number and self.reading.deduplicate:
            yield f"{head}: left out" + f", though {chance}: are they different events?" * by_chance
        elif number and by_chance:
            yield f"{head}: kept as separate events, as {chance}"
        elif number:
            yield f"{head}: kept; --deduplicate leaves them out ({chance}; --separate-events: they are no copies)"
        n_alike = self.counts[_ALIKE]
        if n_alike > 0 and "time" in self.columns:
            head = f"{in_rows(n_alike)} repeat{'s' * (n_alike == 1)} an earlier row in what is read"
            yield f"{head} ({', '.join(self.read_columns)}) and not in the other columns: kept"

    def _left_out(self) -> Iterator[str]:
        """Describe rows that are left out."""
        missing = self.counts["dropped_missing"]
        invalid = self.counts["dropped_invalid"]
        if missing:
            columns = ", ".join(f"{name} {self.counts[_LACKS + name]:,}" for name in names_behind(_LACKS, self.counts))
            yield f"{self._have(missing, 'missing values', 'missing values')} left out ({columns})"
        if invalid:
            have = self._have(invalid, "a value that cannot be read", "values that cannot be read")
            yield f"{have} left out: {'; '.join(self.unreadable)}"

    def _have(self, number: int, one: str, several: str) -> str:
        """Format ``1 row has a value and is``, ``2 rows have values and are``."""
        if number > 1:
            return f"{number:,} rows have {several} and are"
        return f"1 row has {one} and is"

    def _odd_values(self) -> Iterator[str]:
        """Yield a line for each sign, in the first rows, that the rewards are not what their column should hold."""
        column = self.columns["reward"]
        rewards = head_numbers(self.file.head().get(column, ()), self.file.decimal)
        if rewards is not None:
            yield from map(str, odd_rewards(rewards, column))
        yield from map(str, rows_not_shown(self.file.head(), column, self.file.decimal))

    def _introduction(self) -> Iterator[str]:
        """Describe the file, its columns, its users and its events."""
        counts = self.counts
        rows = in_rows(counts["rows"])
        written = ", ".join(self.file.how_written())
        yield f"{self.file.path}: {rows}" + (f" ({written})" if written else "")
        yield f"taken: {self.columns.line()}"
        if self.choice_note:
            yield self.choice_note
        yield from self.columns.lines()[1:]  # the first line is the one above
        cut = [part.name for part in self.parts.files if ends_within_a_line(part)]
        if cut:
            yield f"{', '.join(cut[:3])}: the last line has no end, so the file may be cut there"
        same = "both are the same" + " but for capitals" * self.reading.fold_case
        for column in sorted(self.item_policies):
            yield f"{column}: the item that the policy shows. Its probability of the item shown is 1 where {same}"
        yield from self._odd_values()
        if self.reading.context:
            yield f"context: {', '.join(self.reading.context)}"
        if "user" not in self.columns:
            used = [*self.columns.names.values(), *self.reading.context, self.reading.key or ""]
            perhaps = " or ".join(likely_users(self.file, used))
            hint = f" (perhaps {perhaps})" if perhaps else ""
            yield (
                "no user column is recognised, so rows are taken as independent; --user-column names the one whose "
                f"rows belong together{hint}"
            )
        event = self.columns.get("event")
        if event is None:
            return
        words = names_behind(_WORD, counts)
        if not counts["shown_rows"]:  # not a column of events: finish() has raised an error otherwise
            yield f"column {event} holds {', '.join(words[:3])}: all rows count as recommendations"
            return
        viewed = counts["organic_rows"]
        if viewed:
            yield f"{in_rows(viewed)} {'are views' if viewed > 1 else 'is a view'} ({event})"
        yield from others_in_words(counts["other_rows"], words)


def _refuse_one_policy(file: TableFile, policies: Sequence[str], reading: Reading) -> None:
    """Raise UserError for policies' columns that look like one policy's probabilities of all items."""
    names = columns_of_one_policy(file.head(), policies, file.decimal)
    if names and reading.target_is is None:
        problem = Problem.of("shares_of_items", PROBLEM, *names, listed=", ".join(names))
        raise UserError(f"{file.path}: {problem}, or state --target-is probability", code="one_policy")


def _check_named(file: TableFile, columns: Sequence[str], reading: Reading) -> None:
    """Raise UserError for a column, of policies or of an option, that the file does not have."""
    by = reading.by
    if by and by not in file.names and {part.strip() for part in by.split(",")} <= set(file.names):
        raise UserError(f"--by {by}: one column at a time. Run it once per column")
    named = [(name, "") for name in columns] + [(name, " (--context-columns)") for name in reading.context]
    named += [(name, option) for name, option in ((reading.key, " (--on)"), (by, " (--by)")) if name is not None]
    for name, option in named:
        if name not in file.names:
            message = f"{file.path} has no column {name!r}; {nearest(name, file.names)}{option}"
            raise UserError(message, code="no_such_column")


class _Pass:
    """One pass over a log, which counts its rows and collects their faults.

    Attributes:
        log: the log, whose counts and unreadable faults are replaced by those of this pass.
        faults: faults of all rows so far.
        counts: numbers of rows by what became of them.
        forgiven: codes of faults whose rows are left out, as the user wishes, instead of raising an error.
    """

    def __init__(self, log: BanditLog) -> None:
        self.log = log
        self.faults = Faults(str(log.file.path))
        self.counts: Counter[str] = Counter()
        log.counts = self.counts
        log.unreadable = ()
        self.forgiven: tuple[str, ...] = ()
        if log.reading.drop_missing:
            self.forgiven += (MISSING,)
        if log.reading.drop_invalid is not None:
            self.forgiven += INVALID

    def decisions(self, rows: Rows) -> BanditFile:
        """Return the decisions of all rows, without those that miss a value."""
        log = self.log
        columns = log.columns
        reading = log.reading
        self.counts["rows"] += len(rows)
        rows = self.recommendations(rows)
        is_copy = None
        if log.looks_for_copies:
            rows, is_copy = self._without_copies(rows)
        reward, propensity, policies = self._probabilities(rows)
        other_columns = {name: rows.numbers(name) for name in log.extra_columns}
        if reading.times and "time" in columns:
            other_columns[columns["time"]] = rows.times(columns["time"])
        ids = {role: rows.ids(columns[role]) for role in ("user", "logger") if role in columns}
        if "action" in log.required_roles and "action" in columns:
            ids["action"] = rows.ids(columns["action"])
        elif "action" in columns:  # items are used if all rows have one; a missing one is no fault
            quiet = rows.quiet()
            actions = quiet.ids(columns["action"])
            if not quiet.faults.faults:
                ids["action"] = actions
        if reading.key is not None:
            ids["key"] = rows.ids(reading.key)
        if reading.by is not None:
            ids["segment"] = rows.quiet().ids(reading.by)
        result = BanditFile(
            source=rows.source,
            columns=columns,
            reward=reward,
            propensity=propensity,
            policies=policies,
            others=other_columns,
            context={name: context_values(rows, name) for name in reading.context},
            row_numbers=rows.row_numbers,
            lines=[],  # set after the pass
            counts=self.counts,
            exact=reading.exact,
            again=is_copy,
            **ids,
        )
        keep = self._kept(rows)
        if keep.all():
            return result
        return result.kept(keep)

    def block(self, rows: Rows) -> Block | None:
        """Return the decisions of a block; None once there is a fault, as the pass then only collects faults."""
        log = self.log
        columns = log.columns
        self.counts["rows"] += len(rows)
        rows = self.recommendations(rows)
        reward, propensity, policies = self._probabilities(rows)
        assert propensity is not None  # callers read blocks only if there is such a column
        numbers = {columns["reward"]: reward, columns["propensity"]: propensity, **policies}
        numbers |= dict.fromkeys(log.logging_names, propensity)
        numbers |= {name: rows.numbers(name) for name in log.extra_columns}
        user = digest = None
        if "user" in columns:
            user = log.users.codes(rows, columns["user"])
        if log.looks_for_copies:
            digest = rows.digests(log.compared_columns or log.read_columns)
        action = self._actions(rows)
        if log.reading.times and "time" in columns:
            rows.times(columns["time"])  # only for its faults
        keep = self._kept(rows)
        if any(fault.code not in self.forgiven for fault in self.faults.faults):
            return None
        block = Block(numbers, user, rows.row_numbers, action, digest)
        if keep.all():
            return block
        return block[keep]

    def _actions(self, rows: Rows) -> NDArray[np.int64] | None:
        """Number the items shown (n,); None if the log has no such column, or an earlier pass found a row without one.

        Raises:
            AgainError: a row lacks the item; earlier blocks of this pass had items, so that it is repeated without.
        """
        log = self.log
        if "action" not in log.columns or log.some_without_action:
            return None
        quiet = rows.quiet()
        codes = log.actions.codes(quiet, log.columns["action"])
        if quiet.faults.faults:
            log.some_without_action = True
            raise AgainError
        return codes

    def _probabilities(self, rows: Rows) -> tuple[Floats, Floats | None, dict[str, Floats]]:
        """Parse rewards, propensities and policies' probabilities.

        Returns:
            reward: (n,) rewards.
            propensity: (n,) propensities; None without such a column.
            policies: (n,) probability of the logged action by policy; the same array as ``propensity`` if it is that
                column, so that each fault is recorded once.
        """
        log = self.log
        columns = log.columns
        reward = rows.numbers(columns["reward"])
        propensity = None
        if "propensity" in columns:
            propensity = rows.probabilities(columns["propensity"], zero=False)
        policies = {}
        for name in log.policies:
            if name in log.item_policies:
                action = rows.quiet().ids(columns["action"])
                policies[name] = same_items(rows.ids(name), action, fold=log.reading.fold_case)
            elif propensity is not None and name == columns["propensity"]:
                policies[name] = propensity
            elif name not in policies:
                policies[name] = rows.probabilities(name, zero=True)
        return reward, propensity, policies

    def _kept(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which rows (n,) have all values, and count the rows that are left out and kept."""
        keep = np.ones(len(rows), np.bool_)
        for name, bad in (("dropped_missing", rows.missing), ("dropped_invalid", rows.invalid)):
            if bad is not None:
                self.counts[name] += int(np.count_nonzero(bad & keep))  # a row counts once, under its first reason
                keep &= ~bad
        self.counts["kept"] += int(np.count_nonzero(keep))
        return keep

    def recommendations(self, rows: Rows) -> Rows:
        """Select the rows that a column of events marks as recommendations, and count views and other events.

        If the column holds something else, all rows are selected.

        Raises:
            AgainError: the first block's column held no events, but a later block's does.
        """
        log = self.log
        name = log.columns.get("event")
        if name is None:
            return rows
        values = rows.table.column(name)
        events = Events.of(values)
        for word in events.words:
            self.counts[_WORD + word] = 1
        any_known = bool(events.shown.any() or events.viewed.any())
        numbers_rows = len(events.words) > _MOST_EVENTS
        if log._no_events is None:  # the first block decides
            log._no_events = numbers_rows or (not any_known and name != "event")
        if log._no_events:
            if any_known and not numbers_rows:
                log._no_events = False
                raise AgainError
            return rows
        self.counts["organic_rows"] += int(np.count_nonzero(events.viewed))
        self.counts["other_rows"] += events.others
        self.counts["shown_rows"] += int(np.count_nonzero(events.shown))
        if log.reading.exact and events.words:
            other = ~(events.shown | events.viewed)
            phrase = "is neither organic nor bandit"
            rows.note("unknown_event", name, other, phrase, values=values, advice="write one of them")
        if events.shown.all():
            return rows
        return rows.kept(events.shown)

    def _without_copies(self, rows: Rows) -> tuple[Rows, NDArray[np.bool_] | None]:
        """Count rows that repeat an earlier one in every column, and drop them if the user wishes.

        Returns:
            rows: the rows, without repeats if these are dropped.
            is_copy: (n,) which rows are copies; None if they were dropped, or chance explains them.
        """
        n_alike = n_repeats(rows.digests(self.log.read_columns))
        if n_alike:
            digests = self.log.digests()
        else:  # rows that differ in the columns read differ: no pass over all columns is necessary
            digests = np.arange(len(rows), dtype=np.uint64)
        is_repeat = repeats(digests)
        number = int(np.count_nonzero(is_repeat))
        self.counts[_ALIKE] = n_alike - number
        copies = self.log.are_copies(digests)
        if self.log.reading.deduplicate and number:
            self.counts["dropped_duplicates"] = number
            return rows.kept(~is_repeat), None
        return rows, is_repeat if copies else None

    def finish(self) -> None:
        """Raise for faults of the pass that are not forgiven, and count the faults that are.

        Raises:
            UserError: nothing was recommended, no row is left, or one line with every fault.
        """
        log = self.log
        counts = self.counts
        faults = self.faults
        name = log.columns.get("event")
        if name is not None and not log._no_events and not counts["shown_rows"]:
            why = without_recommendations(names_behind(_WORD, counts), name)
            raise UserError(f"{faults.source} holds no bandit rows: {why}")
        forgiven = faults.forgive(self.forgiven)
        log.unreadable = [fault.message for fault in forgiven if fault.code != MISSING]
        if faults.faults and log.looks_for_copies and "duplicates" not in counts:
            log.count_copies()
        advice = DROP
        n_copies = counts["duplicates"] - counts["dropped_duplicates"]
        if n_copies:
            advice += f"; besides, {n_copies:,} rows repeat an earlier row (--deduplicate)"
        n_invalid = sum(fault.count for fault in faults.faults if fault.code in INVALID)
        if any(fault.code == MISSING and fault.column == log.columns["reward"] for fault in faults.faults):
            advice = missing_rewards(log.file.head(), log.columns["reward"], log.file.decimal) + advice
        few = 0 < n_invalid <= _FEW_INVALID * counts["rows"]
        faults.refuse(advice, _DROP_INVALID if few else "")
        self._refuse_many_invalid()
        if not counts["kept"]:
            raise UserError(f"{faults.source}: no row is left", code="empty")
        counts.update({_LACKS + fault.column: fault.count for fault in forgiven if fault.code == MISSING})

    def _refuse_many_invalid(self) -> None:
        """Raise UserError if more rows are unreadable than ``drop_invalid`` allows to leave out."""
        limit = self.log.reading.drop_invalid
        number = self.counts["dropped_invalid"]
        total = number + self.counts["dropped_missing"] + self.counts["kept"]
        if limit is not None and number and number / total > limit:
            share = 100.0 * number / total
            raise UserError(
                f"{self.faults.source}: {in_rows(number)} of {total:,} ({share:.2g} %) cannot be read, more than "
                f"{100 * limit:g} %: {'; '.join(self.log.unreadable)}. If they may be left out all the same, "
                f"--drop-invalid {math.ceil(share) / 100:g}",
                code="invalid_values",
            )
