"""A bandit log on disk: its columns recognised or named, its rows checked, at once or in blocks."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.log.columns import Floats, row_in_words
from recsim_mnar.own_log.bandit_file import (
    BLOCK_ROWS,
    BanditFile,
    Block,
    Reading,
    chance_of,
    columns_of_copies,
    context_values,
    exact_columns,
    names_behind,
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
from recsim_mnar.tables.values import INVALID, MISSING, Faults, in_rows, percent_lines

_WORD, _LACKS, _PERCENT, _ALIKE = "word:", "lacks:", "percent:", "alike:"
"""Before counts of unknown words of events, of missing values and of values in per cent by column, and of rows that
repeat an earlier one in what is read and differ elsewhere."""
_DROP_INVALID = "--drop-invalid leaves out the rows with values that cannot be read"
_FEW_INVALID = 0.05
"""Share of rows that ``--drop-invalid`` leaves out."""
_MOST_EVENTS = 50
"""Kinds of events: a column with more of them numbers its rows."""


@dataclass
class BanditLog:
    """A bandit log on disk, looked at; nothing but its header is read before it is needed.

    Attributes:
        file: the table.
        columns: which column is what.
        policies: columns of policies' probabilities of the logged action.
        others: further columns of numbers.
        reading: what the user says of it.
        needs: roles that must be there.
        today: further names of the policy that logged the rows.
        of_items: policies whose columns hold the item that they show, and no probability.
        alone: whether this is one part of a log, whose ids have no meaning in the others unless they are numbers.
        counts: of the last pass; with them the words of events that are unknown, and what is missing by column.
        unread: of the last pass, what could not be read in the rows that were left out for it.
        digested: columns in which copies were last found to be equal; none before they were looked for.
        chosen: why a column is the action, where others hold the same items; "" where none does.
        unit: what is counted: rows, or items where rows hold lists.
        lists: how many lists there are then.
    """

    file: TableFile
    columns: Columns
    policies: Sequence[str]
    others: Sequence[str]
    reading: Reading
    needs: Sequence[str]
    today: Sequence[str] = ()
    of_items: frozenset[str] = frozenset()
    alone: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    users: Numbering = field(default_factory=Numbering)
    actions: Numbering = field(default_factory=Numbering)
    _no_events: bool | None = None
    some_without_action: bool = False
    unread: Sequence[str] = ()
    copies_in: str = "every column"
    digested: Sequence[str] = ()
    chosen: str = ""
    unit: str = "row"
    lists: int | None = None

    @staticmethod
    def open(
        path: str | os.PathLike[str] | TableFile,
        policies: Sequence[str] = (),
        *,
        reading: Reading | None = None,
        needs: Sequence[str] = (),
        others: Sequence[str] = (),
    ) -> BanditLog:
        """Look at a bandit log.

        Args:
            path: as :meth:`recsim_mnar.tables.parts.TableFile.open`, or what that opened.
            policies: columns of policies' probabilities of the logged action.
            reading: what the user says of the file.
            needs: roles that must be there, apart from the reward: "propensity", "action", "user".
            others: further columns of numbers.

        Raises:
            UserError: no such file or column, several that could be meant.
        """
        reading = reading or Reading()
        file = TableFile.open(path, reading.decimal)
        key, by = ([] if name is None else [name] for name in (reading.key, reading.by))
        column_groups = (
            ((*policies, *others), ""),
            (reading.context, " (--context-columns)"),
            (key, " (--on)"),
            (by, " (--by)"),
        )
        if by and by[0] not in file.names and {part.strip() for part in by[0].split(",")} <= set(file.names):
            raise UserError(f"--by {by[0]}: one column at a time. Run it once per column")
        for names, option in column_groups:
            for name in names:
                if name not in file.names:
                    message = f"{file.path} has no column {name!r}; {nearest(name, file.names)}{option}"
                    raise UserError(message, code="no_such_column")
        shown_item = ShownItem()
        if reading.exact:
            columns = exact_columns(file, reading)
        else:
            columns, shown_item = recognised_columns(file, policies, reading, needs)
        if "weight" in columns:
            others = [*others, columns["weight"]]
        action = None
        if not reading.exact:
            action = columns.get("action")
        others_than_logged = [name for name in policies if name != columns.get("propensity")]
        of_items = () if action is None else columns_of_items(file, action, others_than_logged, reading)
        return BanditLog(
            file, columns, policies, others, reading, needs, of_items=frozenset(of_items), chosen=shown_item.line
        )

    @property
    def parts(self) -> Parts:
        """Its files."""
        return self.file.parts

    def at(self, part: Path) -> BanditLog:
        """One of its files, read alike."""
        return BanditLog(
            TableFile.open(part, self.reading.decimal),
            self.columns,
            self.policies,
            self.others,
            self.reading,
            self.needs,
            self.today,
            self.of_items,
            True,
            digested=self.digested,
        )

    def kinds(self) -> dict[str, str]:
        """Use of each column."""
        own_columns = [self.columns[role] for role in ("reward", "propensity") if role in self.columns]
        kinds = dict.fromkeys((*own_columns, *self.policies, *self.others), "number")
        kinds |= dict.fromkeys(self.of_items, "id")
        names = [self.columns[role] for role in ("user", "action", "logger") if role in self.columns]
        further = [name for name in (self.reading.key, self.reading.by) if name]
        for name in (*names, *self.reading.context, *further):
            kinds.setdefault(name, "id")
        for role, kind in (("time", "time"), ("event", "id")):
            if role in self.columns:
                kinds.setdefault(self.columns[role], kind)
        return kinds

    @property
    def looks_for_copies(self) -> bool:
        """True if equal rows are suspicious: only with a time or a key, and if nobody says that they are no copies."""
        if self.reading.separate_events:
            return False
        dated = ("time" in self.columns and "user" in self.columns) or self.reading.key is not None
        return (dated and not self.reading.exact) or self.reading.deduplicate

    @property
    def needs_all_rows(self) -> bool:
        """Return whether something that is read can only be worked with as a whole."""
        reading, loggers = self.reading, "logger" in self.columns and not self.reading.exact
        copies = self.looks_for_copies and "user" not in self.columns
        whole_log = loggers or copies or "weight" in self.columns
        return bool(reading.key or reading.by or reading.context or reading.deduplicate or whole_log)

    def read(self) -> BanditFile:
        """All decisions.

        Raises:
            UserError: the file is no table; or one line with every fault of the values.
        """
        work = _Pass(self)
        rows = self.file.read(self.kinds())
        rows.faults = work.faults
        log = work.decisions(rows)
        work.finish()
        log.lines[:] = self.lines
        return log

    def blocks(self, rows: int) -> Iterator[Block]:
        """All decisions, some at a time.

        Raises:
            UserError: as :meth:`read`, after the last row: every fault is named at once.
            AgainError: what was learnt of the file on the way makes another pass necessary.
        """
        work = _Pass(self)
        for table in self.file.blocks(dict.fromkeys(self.digested, "text") | self.kinds(), rows, work.faults):
            block = work.block(table)
            if block is not None and len(block):
                yield block
        work.finish()

    def digests(self) -> NDArray[np.uint64]:
        """(m,) 64 bits for each recommendation, equal for copies: rows that are equal in all columns.

        Where a part lacks one that is not read, in those that are.
        """
        names = columns_of_copies(self.file.names)
        self.copies_in = "every column"
        while True:
            try:
                result = [rows.digests(names) for rows in self._recommendations(names)]
                break
            except AgainError:
                continue
            except UserError:
                if names == self.read_columns:
                    raise
                names = self.read_columns
                self.copies_in = ", ".join(names)
        self.digested = names
        return np.concatenate(result)

    def _recommendations(self, digested: Sequence[str] = ()) -> Iterator[Rows]:
        """The recommendations once more, some at a time; what is known of the last pass stays.

        Args:
            digested: columns that are read as text besides.
        """
        counts = self.counts
        unread = self.unread
        work = _Pass(self)
        try:
            for table in self.file.blocks(dict.fromkeys(digested, "text") | self.kinds(), BLOCK_ROWS):
                yield work.recommendations(table)
        finally:
            self.counts = counts
            self.unread = unread

    def count_copies(self, alike: int = 1) -> None:
        """Count copies, and the other of the rows that are ``alike`` in what is read; takes 8 bytes for each row.

        Where chance explains that rows are equal they are taken as separate events from here on.
        """
        if alike:
            digests = self.digests()
        else:
            digests = np.zeros(0, np.uint64)
        self.counts[_ALIKE] = alike - n_repeats(digests)
        if not self.are_copies(digests):
            self.reading = replace(self.reading, separate_events=True)

    def longest_user(self) -> str:
        """Count the rows of the user with most of them, and name the first one; no id, as pages hold none.

        The rows are read once more.
        """
        rows_of = Counter[str]()
        first_rows = dict[str, int]()
        for rows in self._recommendations():
            quiet = rows.quiet()
            ids = quiet.ids(self.columns["user"])
            codes, places, numbers = np.unique(ids.codes, return_index=True, return_counts=True)
            for code, place, number in zip(codes.tolist(), places.tolist(), numbers.tolist(), strict=True):
                if code >= 0:
                    user = str(ids.ids[code])
                    rows_of[user] += number
                    first_rows.setdefault(user, int(quiet.row_numbers[place]))
        (user, number), *_ = rows_of.most_common(1)
        return f"one user has {in_rows(number)}, the first of them {row_in_words(0, np.array([first_rows[user]]))}"

    def are_copies(self, digests: NDArray[np.uint64]) -> bool:
        """Count rows that repeat an earlier one as copies, or as coincidences where chance explains as many.

        Args:
            digests: (m,) of :meth:`digests`.
        """
        number = n_repeats(digests)
        if not number:
            return False
        key = []
        if self.reading.key:
            key = [self.reading.key, *self.others]
        group = [self.columns[role] for role in ("user", "time", "logger") if role in self.columns]
        seen = (self.digested, self.file.head())
        tables = self._recommendations(self.digested)
        expected, more_than_chance = chance_of(tables, self.columns, [*group, *key], seen, digests)
        counts = self.counts
        counts["duplicates" if more_than_chance else "coincidences"], counts["by_chance"] = number, round(expected)
        return more_than_chance

    @property
    def read_columns(self) -> list[str]:
        """Columns that are read, but for that of events: copies are looked for where rows are equal in these."""
        return [name for name in self.kinds() if name != self.columns.get("event")]

    def out_of_order(self) -> bool:
        """Take note that users are not in ascending order; whether their rows must be sorted."""
        if not self.reading.exact and self.users.by_order_met():
            return False
        if not self.users.by_value():
            for _ in self.blocks(BLOCK_ROWS):
                pass
            self.users.rank()
        return True

    @property
    def lines(self) -> list[str]:
        """Summary of the last pass: columns used, repeated rows, and rows left out."""
        if self.reading.exact:
            return [*self._left_out()]
        return [*self._introduction(), *self._copies(), *self._left_out()]

    def _copies(self) -> Iterator[str]:
        """Describe rows that are equal, in all columns or in those that are read."""
        number = self.counts["duplicates"] + self.counts["coincidences"]
        alike = self.counts[_ALIKE]
        by_chance = self.counts["coincidences"] > 0
        what = f"{in_rows(number)} repeat{'s' * (number == 1)} an earlier row in {self.copies_in}"
        chance = f"chance makes some {self.counts['by_chance']:,} equal"
        if number and self.reading.deduplicate:
            yield f"{what}: left out" + f", though {chance}: are they different events?" * by_chance
        elif number and by_chance:
            yield f"{what}: kept as separate events, as {chance}"
        elif number:
            yield f"{what}: kept; --deduplicate leaves them out ({chance}; --separate-events: they are no copies)"
        if alike > 0 and "time" in self.columns:
            only = f"{in_rows(alike)} repeat{'s' * (alike == 1)} an earlier row in what is read"
            yield f"{only} ({', '.join(self.read_columns)}) and not in the other columns: kept"

    def _left_out(self) -> Iterator[str]:
        """Describe rows that are left out."""
        missing = self.counts["dropped_missing"]
        invalid = self.counts["dropped_invalid"]
        if missing:
            by_column = ", ".join(
                f"{name} {self.counts[_LACKS + name]:,}" for name in names_behind(_LACKS, self.counts)
            )
            yield f"{self._have(missing, 'missing values', 'missing values')} left out ({by_column})"
        if invalid:
            have = self._have(invalid, "a value that cannot be read", "values that cannot be read")
            yield f"{have} left out: {'; '.join(self.unread)}"

    def _have(self, number: int, one: str, several: str) -> str:
        """``1 row has a value and is``, ``2 rows have values and are``."""
        if number > 1:
            return f"{number:,} {self.unit}s have {several} and are"
        return f"1 {self.unit} has {one} and is"

    def _introduction(self) -> list[str]:
        counts = self.counts
        name = self.columns.get("event")
        written = self.file.how_written()
        rows = in_rows(counts["rows"] if self.lists is None else self.lists)
        rows += "" if self.lists is None else f", {counts['rows']:,} items"
        lines = [f"{self.file.path}: {rows}" + (f" ({', '.join(written)})" if written else "")]
        lines += [f"taken: {self.columns.line()}", *([self.chosen] if self.chosen else []), *self.columns.lines()[1:]]
        cut = [part.name for part in self.parts.files if ends_within_a_line(part)]
        if cut:
            lines += [f"{', '.join(cut[:3])}: the last line has no end, so the file may be cut there"]
        lines += [
            f"{column}: the item that the policy shows. Its probability of the item shown is 1 where both are the same"
            + (" but for capitals" if self.reading.fold_case else "")
            for column in sorted(self.of_items)
        ]
        lines += percent_lines({name: counts[_PERCENT + name] for name in names_behind(_PERCENT, counts)})
        if self.reading.context:
            lines.append(f"context: {', '.join(self.reading.context)}")
        if "user" not in self.columns:
            key = []
            if self.reading.key:
                key = [self.reading.key]
            perhaps = likely_users(self.file, [*self.columns.names.values(), *self.reading.context, *key])
            hint = ""
            if perhaps:
                hint = f" (perhaps {' or '.join(perhaps)})"
            lines.append(
                "no user column is recognised, so rows are taken as independent; --user-column names the one whose "
                f"rows belong together{hint}"
            )
        words = names_behind(_WORD, counts)
        if name is not None and not counts["shown_rows"]:
            lines.append(f"column {name} holds {', '.join(words[:3])}: all rows count as recommendations")
        elif name is not None:
            viewed = counts["organic_rows"]
            if viewed:
                lines += [f"{in_rows(viewed)} {'are views' if viewed > 1 else 'is a view'} ({name})"]
            lines += others_in_words(counts["other_rows"], words)
        return lines


class _Pass:
    """One pass over a log: counts, and problems found."""

    def __init__(self, log: BanditLog) -> None:
        self.log = log
        self.faults = Faults(str(log.file.path))
        self.counts: Counter[str] = Counter()
        log.counts = self.counts
        log.unread = ()
        dropped = (MISSING,) if log.reading.drop_missing else ()
        self.forgiven = (*dropped, *(() if log.reading.drop_invalid is None else INVALID))

    def decisions(self, rows: Rows) -> BanditFile:
        """The decisions of all rows; those that miss a value are left out."""
        log, columns, reading = self.log, self.log.columns, self.log.reading
        self.counts["rows"] += len(rows)
        rows = self.recommendations(rows)
        rows, again = self._without_copies(rows) if log.looks_for_copies else (rows, None)
        reward, propensity, policies = self._probabilities(rows)
        other_columns = {name: rows.numbers(name) for name in log.others}
        if reading.times and "time" in columns:
            other_columns[columns["time"]] = rows.times(columns["time"])
        ids = {role: rows.ids(columns[role]) for role in ("user", "logger") if role in columns}
        if "action" in columns:
            quiet = rows
            if "action" not in log.needs:
                quiet = rows.quiet()
            item_ids = quiet.ids(columns["action"])
            if quiet is not rows and quiet.faults.faults:
                ids |= {}
            else:
                ids |= {"action": item_ids}
        if reading.key is not None:
            ids["key"] = rows.ids(reading.key)
        if reading.by is not None:
            ids["segment"] = rows.quiet().ids(reading.by)
        context = {name: context_values(rows, name) for name in reading.context}
        result = BanditFile(
            rows.source,
            columns,
            reward,
            propensity,
            policies,
            other_columns,
            context,
            rows.row_numbers,
            [],
            self.counts,
            reading.exact,
            again=again,
            **ids,
        )
        keep = self._kept(rows)
        if keep.all():
            return result
        return result.kept(keep)

    def block(self, rows: Rows) -> Block | None:
        """The decisions of a block; None from the first fault on."""
        log, columns = self.log, self.log.columns
        self.counts["rows"] += len(rows)
        rows = self.recommendations(rows)
        reward, propensity, policies = self._probabilities(rows)
        assert propensity is not None
        numbers = {columns["reward"]: reward, columns["propensity"]: propensity, **policies}
        numbers |= dict.fromkeys(log.today, propensity) | {name: rows.numbers(name) for name in log.others}
        user = None
        if "user" in columns:
            user = log.users.codes(rows, columns["user"], alone=log.alone)
        digest = None
        if log.looks_for_copies:
            digest = rows.digests(log.digested or log.read_columns)
        action = self._actions(rows)
        if log.reading.times and "time" in columns:
            rows.times(columns["time"])
        keep = self._kept(rows)
        if any(fault.code not in self.forgiven for fault in self.faults.faults):
            return None
        block = Block(numbers, user, rows.row_numbers, action, digest)
        if keep.all():
            return block
        return block[keep]

    def _actions(self, rows: Rows) -> NDArray[np.int64] | None:
        log = self.log
        if "action" not in log.columns or log.some_without_action:
            return None
        quiet = rows.quiet()
        codes = log.actions.codes(quiet, log.columns["action"], alone=log.alone)
        if quiet.faults.faults:
            log.some_without_action = True
            raise AgainError
        return codes

    def _probabilities(self, rows: Rows) -> tuple[Floats, Floats | None, dict[str, Floats]]:
        """Rewards, propensities and policies; the propensities under another name are the same array."""
        columns = self.log.columns
        reward = rows.numbers(columns["reward"])
        read_columns = {}
        if "propensity" in columns:
            read_columns[columns["propensity"]] = rows.probabilities(columns["propensity"], zero=False)
        for name in self.log.policies:
            if name in self.log.of_items:
                action = rows.quiet().ids(columns["action"])
                read_columns[name] = same_items(rows.ids(name), action, fold=self.log.reading.fold_case)
            elif name not in read_columns:
                read_columns[name] = rows.probabilities(name, zero=True)
        propensity = None
        if "propensity" in columns:
            propensity = read_columns[columns["propensity"]]
        return reward, propensity, {name: read_columns[name] for name in self.log.policies}

    def _kept(self, rows: Rows) -> NDArray[np.bool_]:
        """(n,) which rows miss nothing, and have nothing that cannot be read; the others are counted."""
        keep = np.ones(len(rows), np.bool_)
        for why, bad in (("dropped_missing", rows.missing), ("dropped_invalid", rows.invalid)):
            if bad is not None:
                self.counts[why] += int(np.count_nonzero(bad & keep))
                keep &= ~bad
        self.counts["kept"] += int(np.count_nonzero(keep))
        return keep

    def recommendations(self, rows: Rows) -> Rows:
        """The rows that a column of events calls recommendations; all of them where it is about something else."""
        name = self.log.columns.get("event")
        log = self.log
        if name is None:
            return rows
        events = Events.of(rows.table.column(name))
        self.counts.update(dict.fromkeys((_WORD + word for word in events.words), 1))
        any_known = bool(events.shown.any() or events.viewed.any())
        numbers_rows = len(events.words) > _MOST_EVENTS
        if log._no_events is None:
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
            values = rows.table.column(name)
            rows.note(
                "unknown_event", name, other, "is neither organic nor bandit", values=values, advice="write one of them"
            )
        if events.shown.all():
            return rows
        return rows.kept(events.shown)

    def _without_copies(self, rows: Rows) -> tuple[Rows, NDArray[np.bool_] | None]:
        """Count rows that repeat others in every column; leave them out where that is asked for, or else mark them."""
        alike = n_repeats(rows.digests(self.log.read_columns))
        if alike:
            digests = self.log.digests()
        else:
            digests = np.arange(len(rows), dtype=np.uint64)
        again = repeats(digests)
        number = int(np.count_nonzero(again))
        self.counts[_ALIKE] = alike - number
        copies = self.log.are_copies(digests)
        if not self.log.reading.deduplicate or not number:
            return rows, again if copies else None
        self.counts["dropped_duplicates"] = number
        return rows.kept(~again), None

    def finish(self) -> None:
        """Report the columns read.

        Raises:
            UserError: nothing was recommended, no row is left, or one line with every fault.
        """
        log = self.log
        counts = self.counts
        source = self.faults.source
        name = log.columns.get("event")
        if name is not None and not log._no_events and not counts["shown_rows"]:
            raise UserError(
                f"{source} holds no bandit rows: {without_recommendations(names_behind(_WORD, counts), name)}"
            )
        away = self.faults.forgive(self.forgiven)
        log.unread = [fault.message for fault in away if fault.code != MISSING]
        away = [fault for fault in away if fault.code == MISSING]
        if self.faults.faults and log.looks_for_copies and "duplicates" not in counts:
            log.count_copies()
        again = counts["duplicates"] - counts["dropped_duplicates"]
        besides = ""
        if again:
            besides = f"; besides, {again:,} rows repeat an earlier row (--deduplicate)"
        unread = sum(fault.count for fault in self.faults.faults if fault.code in INVALID)
        self.faults.refuse(DROP + besides, _DROP_INVALID if 0 < unread <= _FEW_INVALID * counts["rows"] else "")
        self._refuse_many_invalid()
        if not counts["kept"]:
            raise UserError(f"{source}: no row is left", code="empty")
        counts.update({_LACKS + fault.column: fault.count for fault in away})
        counts.update({_PERCENT + name: number for name, number in self.faults.percents.items() if number})

    def _refuse_many_invalid(self) -> None:
        """Refuse where more rows have values that cannot be read than may be left out unasked."""
        limit = self.log.reading.drop_invalid
        number = self.counts["dropped_invalid"]
        total = number + self.counts["dropped_missing"] + self.counts["kept"]
        if limit is not None and number and number / total > limit:
            share = 100.0 * number / total
            raise UserError(
                f"{self.faults.source}: {in_rows(number)} of {total:,} ({share:.2g} %) cannot be read, more than "
                f"{100 * limit:g} %: {'; '.join(self.log.unread)}. If they may be left out all the same, "
                f"--drop-invalid {math.ceil(share) / 100:g}",
                code="invalid_values",
            )
