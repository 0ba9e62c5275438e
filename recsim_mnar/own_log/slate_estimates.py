"""Estimates of policies that rank from a file of slates: what its probabilities are of, and one record per estimator.

The values are those of :func:`recsim_mnar.estimators.rankings.estimate_ranking_value`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.answers.records import Asked, bound_lines, known_bound, records_of, taken, todays, with_findings
from recsim_mnar.answers.sentence import Record
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.ranking_records import LOGGED, SUFFIXES, ranking_estimator
from recsim_mnar.estimators.rankings import about_users, estimate_ranking_value
from recsim_mnar.estimators.verdict import LEVELS, Estimate, Verdict
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import PROBLEM, BanditFile, Problem, Reading, but_for_slates
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.estimating import Answer, Question, Usual
from recsim_mnar.own_log.file_findings import of_the_rows, unweighed
from recsim_mnar.own_log.slate_file import (
    OF,
    SAID,
    SlateFile,
    Slates,
    arrange,
    check_probabilities,
    check_target,
    joint,
)
from recsim_mnar.tables.roles import NONE, RECOGNISED, find_columns

_UNSUPPORTED = "_unsupported"
STATED = "as stated"
"""Why it is known what the propensities are of."""
_DENIED = ("item_propensities", "propensities")
"""Findings that the propensities are not of what they are taken for."""
_OF_SINGLE_ITEMS = {
    "target_file": "--target-file",
    "fit_reward_model": "--fit-reward-model",
    "by": "--by",
    "refute": "--refute",
    "reward_limit": "--reward-limit-column",
    "unsupported": "--unsupported",
}
"""What is asked of single items only, and its option."""
_OBP_NAMES = (
    "the columns have Open Bandit Pipeline's names, which do not say what each is of: rename pscore to slate_pscore, "
    "pscore_item_position to position_pscore, evaluation_policy_pscore to new_slate and "
    "evaluation_policy_pscore_item_position to new, and give --target new"
)
_IN_OPTIONS = {kind: said for said, kind in SAID.items()}
_LEAST = ("slate_ips", "reward_interaction_ips", "independent_ips", "set_ips")
"""Estimators, that which assumes least of users first."""


def endings_of(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """The columns of target policies, those with an ending included."""
    endings = (*SUFFIXES.values(), _UNSUPPORTED)
    return [name + ending for name in names for ending in endings if name + ending in known]


@dataclass(frozen=True)
class SlateLog:
    """A file of slates as it was read.

    Attributes:
        log: its rows, one per position.
        slates: how they stand together.
        kinds: column by what its probabilities are of.
        main: the kind of the column of propensities; "" where that is not clear.
        why: how it was found.
        known: (n,) the log's probabilities by kind, rows as in ``log``.
    """

    log: BanditFile
    slates: Slates
    kinds: dict[str, str]
    main: str
    why: str
    known: dict[str, Floats]
    lines: list[str]

    @property
    def unclear(self) -> tuple[str, str]:
        """Report that it is unclear what the propensities are of, and what to do."""
        kinds = ", ".join(f"{text} ({OF[kind]})" for text, kind in SAID.items())
        name = self.log.columns["propensity"]
        return (
            f"no name says what {name!r} is the probability of",
            f"state --propensities-of {kinds}, or name the column so: position_propensity, say",
        )

    def check(self, policies: Sequence[str], ranked: Mapping[str, Any], *, one_reward: bool) -> None:
        """Add what contradicts what in the probabilities to the problems of the slates.

        Args:
            policies: target policies.
            ranked: of those whose columns hold items, these.
            one_reward: whether a slate has one reward.
        """
        slates, known_kinds, main, generic = self.slates, self.known, self.main, self.kinds[self.main]
        check_probabilities(slates, known_kinds, self.kinds)
        read = self.log.of_policies
        bare = "marginal"
        if "marginal" not in self.kinds:
            bare = main
        for name in policies:
            names = {kind: name + end for kind, end in SUFFIXES.items() if end and name + end in read}
            if name in read:
                names.setdefault(bare, name)
            values = {kind: read[entry] for kind, entry in names.items()}
            items = getattr(ranked.get(name), "codes", ranked.get(name))
            check_target(slates, name, values, names, items, bare)
        if one_reward and not {*known_kinds} & {"conditional", "slate", "set"}:
            slates.problems.append(Problem.of("slate_reward", PROBLEM, generic, kind=OF[main]))

    def refuse(self) -> None:
        """Raise UserError for all that is wrong, and where it is not clear what propensities are of."""
        problems = self.slates.problems
        source = self.log.source
        if problems:
            raise UserError(f"{source}: {'; '.join(map(str, problems))}", code="bad_slates")
        if not self.main:
            what, advice = self.unclear
            raise UserError(f"{source}: {what}. S{advice[1:]}", code="unclear_propensities")


@dataclass(frozen=True)
class _Table:
    """Roles of the columns of a file of slates.

    Attributes:
        found: the file.
        reading: what the user says of it, with its columns of slates.
        policies: columns of target policies that have a value in every row, and ``gaps`` those that may lack some.
        gaps: see there.
        kinds: column by what the log's probabilities in it are of, if their names say so.
        propensity: the column of propensities; None where none is recognised.
        main: what these are of, by their name; "" where it does not say so.
    """

    found: SlateFile
    reading: Reading
    policies: Sequence[str]
    gaps: Sequence[str]
    kinds: Mapping[str, str]
    propensity: str | None
    main: str

    @staticmethod
    def of(found: SlateFile, reading: Reading, policies: Sequence[str]) -> _Table:
        """Recognise what the user does not say."""
        source = str(found.file.path)
        names = found.file.names
        kinds = found.probabilities
        columns = but_for_slates(reading.columns)
        if "action" in found.columns:
            columns |= {"action": found.columns["action"]}
        own_endings = endings_of([name for name in policies if name != columns.get("propensity")], names)
        of_slates = {*found.columns.values()}

        def recognised(role: str, leave: Collection[str]) -> str | None:
            return find_columns(source, names, named={}, optional=(role,), leave=leave).get(role)

        propensity = columns.get("propensity") or recognised("propensity", {*own_endings, *kinds.values(), *of_slates})
        propensity = propensity or next(iter(kinds.values()), None)
        main = next((kind for kind, name in kinds.items() if name == propensity), "")
        if columns.get("user") is None:  # a column of slates may be called as one of users
            columns |= {"user": recognised("user", {*(of_slates - {columns.get("action")}), *own_endings}) or NONE}
        gaps = [name for name in own_endings if name.endswith(("_conditional", _UNSUPPORTED))]
        whole_columns = [name for name in own_endings if name not in gaps]
        columns |= {"propensity": propensity}
        reading = replace(reading, columns=columns, key=found.columns["slate"], context=gaps, times=True)
        return _Table(found, reading, whole_columns, gaps, kinds, propensity, main)

    def read(self, said: Mapping[str, str | None], others: Sequence[str]) -> tuple[BanditFile, Mapping[str, Any]]:
        """All rows, and by policy the items that it ranks.

        Args:
            said: columns by role that the user named.
            others: further columns of numbers.
        """
        more = [name for name in self.kinds.values() if name != self.propensity]
        others = [self.found.columns["position"], *more, *others]
        table = BanditLog.open(self.found.file, self.policies, reading=self.reading, others=others)
        how = {role: word if said.get(role) else RECOGNISED for role, word in table.columns.how.items()}
        table.columns = replace(table.columns, how=how)
        table.reading = replace(table.reading, context=[*self.gaps, *sorted(table.of_items)])
        log = table.read()
        table.reading = replace(table.reading, context=())  # what policies need is none
        if self.found.per_slate and log.key is not None:
            table.unit = "item"
            table.lists = log.key.ids.size
        log.lines[:] = table.lines
        return log, {name: log.context.pop(name) for name in table.of_items}

    def main_of(self, log: BanditFile, slates: Slates) -> tuple[str, str]:
        """Find whether propensities are of items or slates, and how that is known; empty where it is not."""
        if self.reading.propensities_of is not None:
            return SAID[self.reading.propensities_of], STATED
        if self.found.own:
            return "marginal", "a log of this package's"
        if self.main:
            return self.main, "its name says so"
        if self.found.per_slate and slates.size:
            p = slates.at(log.propensity)
            if np.all(p == p[:, :1]):
                return "slate", "one number per slate"
        return "", ""


def read_slates(
    found: SlateFile, reading: Reading, policies: Sequence[str] = (), others: Sequence[str] = ()
) -> SlateLog:
    """Read a file of slates.

    Args:
        found: the file.
        reading: what the user says of it.
        policies: target policies, by the names of their columns without endings.
        others: further columns of numbers.

    Raises:
        UserError: values that are no data; no column of probabilities.
    """
    table = _Table.of(found, reading, policies)
    try:
        log, ranked = table.read(reading.columns, others)
    except UserError as error:
        if error.code not in ("missing_values", "invalid_values") or reading.drop_invalid == 1.0:
            raise
        besides: list[Problem] = []
        with contextlib.suppress(UserError):  # all that is wrong at once
            complete = replace(reading, drop_missing=True, drop_invalid=1.0)
            besides = read_slates(found, complete, policies, others).slates.problems
        raise UserError("; ".join([str(error), *map(str, besides)]), code=error.code) from error
    if log.propensity is None or log.key is None:
        source = found.file.path
        raise UserError(f"{source}: no column is recognised as the propensity. Name it with --propensity-column")
    if log.counts["dropped_missing"] + log.counts["dropped_invalid"]:
        log = _whole(log, log.key.codes)
    slates = arrange(log, found)
    kinds = dict(table.kinds)
    generic = str(table.propensity)
    main, why = table.main_of(log, slates)
    known_kinds = {kind: log.others[name] for kind, name in kinds.items() if name != generic}
    lines = []
    if slates.size:
        lines = [f"{found.form}: {in_words(slates.number)} of {slates.size} items"]
    lines += [f"{name}: the probability of {OF[kind]}" for kind, name in kinds.items() if kind != main]
    if main:
        known_kinds[main], kinds[main] = np.asarray(log.propensity), generic
        lines.append(f"{generic}: the probability of {OF[main]} ({why}; --propensities-of states another)")
    read = SlateLog(log, slates, kinds, main, why, known_kinds, lines)
    if main:
        read.check(policies, ranked, one_reward=found.one_reward)
    if slates.size and log.columns.get("time") is None and not found.per_slate:
        slates, order = _by_number(slates, log)
        read = replace(read, slates=slates, lines=[*lines, *order])
    return replace(read, lines=list(dict.fromkeys(read.lines)))


def _by_number(slates: Slates, log: BanditFile) -> tuple[Slates, list[str]]:
    """The slates of a user in the order of their numbers where no column has times, and a line where they have none."""
    assert log.key is not None
    if log.user is None:
        return slates, []
    first = slates.order[:: slates.size]
    user = log.user.codes[first]
    if np.unique(user).size == user.size:
        return slates, []
    matches = [re.fullmatch(r"(\D*)(\d{1,18})(?:\.0)?", str(text)) for text in log.key.ids]
    if None in matches or len({text[1] for text in matches if text}) > 1:
        return slates, ["no column has times: the slates of a user are taken in the order of the file"]
    number = np.array([int(text[2]) for text in matches if text], np.int64)[log.key.codes[first]]
    place = np.lexsort((number, user))
    return replace(slates, order=slates.order.reshape(-1, slates.size)[place].reshape(-1)), []


def in_words(n: int) -> str:
    """A number of slates."""
    return f"{n:,} slate{'s' * (n != 1)}"


def _whole(log: BanditFile, slate: Ints) -> BanditFile:
    """Without the slates that lost a row to --drop-missing or --drop-invalid."""
    key = np.unique(slate if log.users is None else joint(log.users, slate), return_inverse=True)[1]
    sizes = np.bincount(key)
    keep = sizes[key] == sizes.max()
    assert log.key is not None
    n_incomplete = log.key.ids.size - np.unique(log.key.codes).size  # those of which no row is left
    log.lines.append(f"slates that lost a row are left out: {int((sizes < sizes.max()).sum()) + n_incomplete:,}")
    return log.kept(keep)


# ------------------------------------------------------------------------------------------------------------ estimates


def estimate_slates(found: SlateFile, question: Question, reading: Reading) -> Answer:
    """The estimates of a file of slates, one record per policy and estimator, then the differences from today's policy.

    Of each policy the estimator leads that assumes least of users, among those with the best verdict of all.

    Raises:
        UserError: what is asked of single items only; values, or slates, that are no data.
    """
    path = found.file.path
    for name, option in _OF_SINGLE_ITEMS.items():
        if getattr(question, name):
            raise UserError(f"{option}: {path} is a log of slates ({found.form}), and this is for single items")
    if "precision" in question.stated:
        raise UserError(f"--precision: {path} is a log of slates ({found.form}), and this is for single items")
    for estimator in () if isinstance(question.estimators, Usual) else question.estimators:
        ranking_estimator(estimator)
    names = found.file.names
    propensity_name = reading.columns.get("propensity") or "propensity"
    baseline = None
    if question.baseline is not None:
        baseline = todays(question.baseline, names, propensity_name)
    today = {"propensity", propensity_name, *({"today"} - {*names})}
    targets = [name for name in question.targets if name not in today]
    if "pscore_item_position" in names and any(name.startswith("evaluation_policy_pscore") for name in targets):
        raise UserError(f"{path}: {_OBP_NAMES}", code="unclear_propensities")
    for name in targets:
        if not endings_of([name], names):
            there = [name for name in names if name not in getattr(found.file, "added", {}).values()]
            raise UserError(f"{path} has no column {name!r}; {nearest(name, there)}", code="no_such_column")
    models = {key: name for key in ("q_logged", "q_target") if (name := getattr(question, key)) is not None}
    slates = read_slates(found, reading, targets, list(models.values()))
    slates.refuse()
    if baseline is not None and baseline not in {*today, *slates.kinds.values()}:
        raise UserError(f"--baseline {baseline}: of slates differences are from today's policy: --baseline today")
    ask_today = baseline is not None or len(targets) < len(question.targets)
    return _Ranked(found, slates, question, models).answer(targets, baseline or propensity_name, ask_today=ask_today)


class _Ranked:
    """A log of slates in the house's columns, to be asked for estimates."""

    def __init__(self, found: SlateFile, slates: SlateLog, question: Question, models: Mapping[str, str]) -> None:
        self.found = found
        self.slates = slates
        self.question = question
        log = slates.log
        order = slates.slates.order
        size = slates.slates.size
        self.rows: Ints = order[::size] if found.one_reward else order
        if found.one_reward:
            self.size = 1
        else:
            self.size = size
        self.columns: dict[str, NDArray[Any]] = {
            "reward": log.reward[self.rows],
            "position": np.tile(np.arange(self.size), slates.slates.number),
        }
        if log.user is not None:
            self.columns["user"] = log.user.codes[self.rows]
        if log.action is not None and not found.one_reward:
            if log.action.ids.dtype.kind in "iu":
                names = log.action.ids
            else:
                names = log.action.ids.astype(object)
            self.columns["action"] = names[log.action.codes[self.rows]]
        self.logged = self._kinds(slates.known)
        self.columns |= {LOGGED[kind]: values for kind, values in self.logged.items()}
        self.given: dict[str, Floats] = {key: log.others[name][self.rows] for key, name in models.items()}
        if found.own:
            self.made = provenance_of(found.file.parts)
        else:
            self.made = {}
        self.bound = known_bound(self.made, question.stated, log.columns["propensity"])
        self.met: dict[Any, dict[str, Estimate]] = {}

    def _kinds(self, values: dict[str, Floats]) -> dict[str, Floats]:
        """Probabilities (n,) of the file's rows by kind, with those of slates, as they are estimated with."""
        if "conditional" in values and "slate" not in values:
            slates, columns = self.slates.slates, np.empty(len(self.slates.log))
            columns[slates.order] = np.repeat(np.nan_to_num(slates.at(values["conditional"])).prod(1), slates.size)
            values = {**values, "slate": columns}
        kinds = ("slate", "set") if self.found.one_reward else values
        return {kind: values[kind][self.rows] for kind in kinds if kind in values}

    def _target(self, name: str) -> dict[str, Floats]:
        """The probabilities of a policy by kind, whole slates' too of one that is sure of each item."""
        log = self.slates.log
        main = self.slates.main
        read = log.of_policies
        kinds = {kind: read[name + ending] for kind, ending in SUFFIXES.items() if ending and name + ending in read}
        if name in read:
            sure = bool(np.isin(read[name], (0.0, 1.0)).all())
            bare = ("marginal", "conditional") if sure else ("marginal" if main in kinds else main,)
            kinds = dict.fromkeys(bare, read[name]) | kinds
        return {kind: column for kind, column in self._kinds(kinds).items() if kind in self.logged}

    def estimates(self, name: str, level: float, *, today: bool, apart: bool = False) -> dict[str, Estimate]:
        """All estimates of a policy, or of its difference from today's, by estimator."""
        if (name, level, apart) in self.met:
            return self.met[name, level, apart]
        question = self.question
        stated = {key: value for key, value in question.stated.items() if value is not None} | self.given
        least = stated.pop("propensity_min", self.bound)
        # A bound is of items at their positions: of whole slates it says that none is impossible.
        if self.bound is not None or today:
            stated["full_support"] = True
        else:
            stated["full_support"] = stated.get("full_support")
        if today:
            target = dict(self.logged)
        else:
            target = self._target(name)
        if not target:
            have = ", ".join(OF[kind] for kind in self.logged)
            raise UserError(f"target {name!r} has no probabilities of what the log has them of: {have}")
        by_estimator = estimate_ranking_value(
            self.columns,
            target,
            level=level,
            estimators=None if isinstance(question.estimators, Usual) else question.estimators,
            called=name,
            clip=question.clip,
            assumption=question.assumption,
            interval=question.interval,
            from_today=apart,
            position_weights=question.position_weights,
            propensity_min=None if least is None else {"marginal": least},
            **stated,
        )
        unit = "item shown"
        if self.found.one_reward or question.position_weights != "mean":
            unit = "slate"
        facts: dict[str, object] = {
            "unit": unit + " (dcg)" * (question.position_weights == "dcg"),
            "slate_size": self.slates.slates.size,
        }
        by_estimator = {key: self._in_the_file(estimate, facts, today=today) for key, estimate in by_estimator.items()}
        self.met[name, level, apart] = by_estimator
        return by_estimator

    def _in_the_file(self, estimate: Estimate, facts: dict[str, object], *, today: bool) -> Estimate:
        """The estimate in the names of the file; of today's policy nothing is assumed."""
        findings = [f for f in estimate.verdict.findings if not (today and about_users(f.code))]
        if self.slates.why == STATED:
            advice = f"state another --propensities-of: the numbers deny {_IN_OPTIONS[self.slates.main]!r}"
            findings = [replace(f, action=advice) if f.code in _DENIED else f for f in findings]
        return replace(
            estimate,
            diagnostics=estimate.numbers() | facts,
            verdict=Verdict("trust" if today else estimate.verdict.level, findings),
        )

    def answer(self, targets: Sequence[str], own: str, *, ask_today: bool) -> Answer:
        """The records, with lines on what was read."""
        asked = self.question
        log = self.slates.log
        policies = [*targets, *([own] if ask_today else [])]
        by_name: dict[str, list[int]] = {}
        for policy in policies:
            for name, name_of_estimator in self.estimates(policy, asked.level, today=policy == own).items():
                by_name.setdefault(name, []).append(LEVELS.index(name_of_estimator.verdict.level))
        # The first one leads, of those that all policies have.
        names = sorted(
            by_name,
            key=lambda name: (-len(by_name[name]), sum(by_name[name]), name not in _LEAST, [*_LEAST, name].index(name)),
        )

        def value(name: str, estimator: str, *, level: float) -> Estimate | None:
            return self.estimates(name, level, today=name == own).get(estimator)

        def apart(name: str, estimator: str, *, level: float) -> Estimate | None:
            return self.estimates(name, level, today=False, apart=True).get(estimator)

        question = Asked(policies, names, asked.level, today={own}, made=self.made, differing=names)
        if asked.baseline is not None:
            question = replace(question, baseline=own, compared=targets)
        records: list[Record] = taken(records_of(question, value, apart), self.bound)
        records = [with_findings(record, [*unweighed(log, record), *of_the_rows(log.counts)]) for record in records]
        lines = [*log.lines, *self.slates.lines, *assumption_lines(records), *bound_lines(records)]
        shown_policies = {name: log.policies[name] for name in targets if name in log.policies}
        return Answer(records, lines, replace(log, policies=shown_policies))


def assumption_lines(records: Sequence[Record]) -> list[str]:
    """Describe each estimator's assumption about users, and the log's evidence on it, once for each."""
    lines: dict[str, str] = {}
    for record in (record for record in records if record["role"] == "target"):
        about = record["diagnostics"]["assumption"]
        of_users = sorted((f for f in record["findings"] if about_users(f["code"])), key=lambda f: str(f["code"]))
        messages = [f["message"] for f in of_users]
        messages += list(dict.fromkeys(f["action"] for f in of_users if record["leads"] and f["level"] != "trust"))
        messages = messages or ["the log does not contradict that"] * bool(about["premise"])
        line = f"{record['estimator']} assumes {'that ' if about['premise'] else ''}{about['assumes']}"
        lines.setdefault(record["estimator"], ". ".join([line, *(text[:1].upper() + text[1:] for text in messages)]))
    return list(lines.values())
