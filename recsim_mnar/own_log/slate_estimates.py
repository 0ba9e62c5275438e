"""Estimate ranking policies from a file of slates: find the kind of its probabilities, and return the records.

The values are those of :func:`recsim_mnar.estimators.rankings.estimate_ranking_value`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.answers.records import (
    EstimateRequest,
    baseline_column,
    bound_lines,
    known_bound,
    records_of,
    with_findings,
    with_known_bound,
)
from recsim_mnar.answers.words import Record
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.ranking_records import LOGGED, SUFFIXES, ranking_estimator
from recsim_mnar.estimators.rankings import about_users, estimate_ranking_value
from recsim_mnar.estimators.verdict import LEVELS, Estimate, Verdict
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import BanditFile, Reading, but_for_slates
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
"""Value of :attr:`SlateLog.why` if the user states the kind of the propensities."""
_DENIED = ("item_propensities", "propensities")
"""Codes of findings that contradict the kind of the propensities."""
_OF_SINGLE_ITEMS = {
    "target_file": "--target-file",
    "fit_reward_model": "--fit-reward-model",
    "by": "--by",
    "refute": "--refute",
    "reward_limit": "--reward-limit-column",
}
"""Fields of a question that are for single items only, with their options."""
_OBP_NAMES = (
    "the columns have Open Bandit Pipeline's names, which do not say what each is of: rename pscore to slate_pscore, "
    "pscore_item_position to position_pscore, evaluation_policy_pscore to new_slate and "
    "evaluation_policy_pscore_item_position to new, and give --target new"
)
_IN_OPTIONS = {kind: option for option, kind in SAID.items()}
"""Value of ``--propensities-of`` by kind of probability."""
_LEAST = ("slate_ips", "reward_interaction_ips", "independent_ips", "set_ips")
"""Estimators, ordered by their assumptions on users, the weakest first."""


def endings_of(names: Sequence[str], known: Sequence[str]) -> list[str]:
    """List the existing columns of policies: their names, with or without the ending of a kind of probability."""
    endings = (*SUFFIXES.values(), _UNSUPPORTED)
    return [name + ending for name in names for ending in endings if name + ending in known]


@dataclass(frozen=True)
class SlateLog:
    """A log of slates, with the kinds of its probabilities.

    Attributes:
        log: the rows, one per position.
        slates: the slates with their problems.
        kinds: by kind, the column of the logging policy's probabilities.
        main: kind of the column of propensities; "" if it is not clear.
        why: reason for ``main``, in words.
        known: by kind, the logging policy's probabilities (n,) of the rows of ``log``.
        lines: notes for a person.
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
        """Message and advice for propensities of an unknown kind."""
        kinds = ", ".join(f"{text} ({OF[kind]})" for text, kind in SAID.items())
        name = self.log.columns["propensity"]
        return (
            f"no name says what {name!r} is the probability of",
            f"state --propensities-of {kinds}, or name the column so: position_propensity, say",
        )

    def check(self, policies: Sequence[str], ranked: Mapping[str, Any]) -> None:
        """Add contradictions between probabilities to the problems of the slates.

        Args:
            policies: target policies.
            ranked: by policy, the items that it ranks, for policies whose columns hold items.
        """
        slates = self.slates
        check_probabilities(slates, self.known, self.kinds)
        read = self.log.of_policies
        bare = "marginal" if "marginal" in self.kinds else self.main  # kind of a column without an ending
        for name in policies:
            # Columns of the policy by kind: those with an ending first, then the one without, unless it has a twin.
            names = {kind: name + end for kind, end in SUFFIXES.items() if end and name + end in read}
            if name in read:
                names.setdefault(bare, name)
            values = {kind: read[column] for kind, column in names.items()}
            items = getattr(ranked.get(name), "codes", ranked.get(name))  # ids, or numbers as they are; None without
            check_target(slates, name, values, names, items, bare)

    def refuse(self) -> None:
        """Raise UserError for all problems, or for propensities of an unknown kind."""
        source = self.log.source
        if self.slates.problems:
            raise UserError(f"{source}: {'; '.join(map(str, self.slates.problems))}", code="bad_slates")
        if not self.main:
            message, advice = self.unclear
            raise UserError(f"{source}: {message}. S{advice[1:]}", code="unclear_propensities")  # "State ..."


@dataclass(frozen=True)
class _Table:
    """Columns of a file of slates.

    Attributes:
        slates: the file.
        reading: statements about the columns, completed by those of slates.
        policies: columns of target policies that must have a value in every row.
        gaps: columns of target policies that may lack values.
        propensity: column of propensities; None if none is recognised.
    """

    slates: SlateFile
    reading: Reading
    policies: Sequence[str]
    gaps: Sequence[str]
    propensity: str | None

    @staticmethod
    def of(slates: SlateFile, reading: Reading, policies: Sequence[str]) -> _Table:
        """Recognise the columns that the user does not name."""
        names = slates.file.names
        kinds = slates.probabilities
        columns = but_for_slates(reading.columns)
        of_policies = endings_of([name for name in policies if name != columns.get("propensity")], names)
        of_slates = {*slates.columns.values()}

        def recognised(role: str, leave: Collection[str]) -> str | None:
            """Return the column that has a usual name of a role and is not in ``leave``; None without one."""
            leave = {*leave, *of_policies}
            return find_columns(str(slates.file.path), names, optional=(role,), leave=leave).get(role)

        propensity = columns.get("propensity") or recognised("propensity", {*kinds.values(), *of_slates})
        propensity = propensity or next(iter(kinds.values()), None)
        columns["propensity"] = propensity
        if columns.get("user") is None:  # a column of slates may have a usual name of a column of users
            columns["user"] = recognised("user", of_slates - {columns.get("action")}) or NONE
        gaps = [name for name in of_policies if name.endswith(("_conditional", _UNSUPPORTED))]
        complete = [name for name in of_policies if name not in gaps]
        reading = replace(reading, columns=columns, key=slates.columns["slate"], context=gaps, times=True)
        return _Table(slates, reading, complete, gaps, propensity)

    def read(self, named: Mapping[str, str | None]) -> tuple[BanditFile, Mapping[str, Any]]:
        """Read all rows.

        Args:
            named: columns by role that the user named.

        Returns:
            log: the rows.
            ranked: by policy, the items that it ranks, for policies whose columns hold items.
        """
        of_kinds = [name for name in self.slates.probabilities.values() if name != self.propensity]
        others = [self.slates.columns["position"], *of_kinds]
        table = BanditLog.open(self.slates.file, self.policies, reading=self.reading, extra_columns=others)
        # The columns of slates were passed on as if the user had named them.
        how = {role: way if named.get(role) else RECOGNISED for role, way in table.columns.how.items()}
        table.columns = replace(table.columns, how=how)
        # Columns that may lack values, and those of items, are read as if they were context, which may be anything.
        table.reading = replace(table.reading, context=[*self.gaps, *sorted(table.item_policies)])
        log = table.read()
        table.reading = replace(table.reading, context=())  # the notes must not name columns of policies as context
        log.lines[:] = table.lines
        return log, {name: log.context.pop(name) for name in table.item_policies}

    def main_of(self) -> tuple[str, str]:
        """Return the kind of the propensities, and the reason for it in words; "" for both if the kind is unknown."""
        if self.reading.propensities_of is not None:
            return SAID[self.reading.propensities_of], STATED
        if self.slates.own:
            return "marginal", "a log of this package's"
        for kind, name in self.slates.probabilities.items():
            if name == self.propensity:
                return kind, "its name says so"
        return "", ""


def read_slates(slate_file: SlateFile, reading: Reading, policies: Sequence[str] = ()) -> SlateLog:
    """Read a file of slates.

    Args:
        slate_file: the file.
        reading: the user's statements about it.
        policies: target policies, by the names of their columns without endings.

    Raises:
        UserError: invalid values; no column of probabilities.
    """
    table = _Table.of(slate_file, reading, policies)
    log, ranked = table.read(reading.columns)
    if log.propensity is None or log.key is None:
        source = slate_file.file.path
        raise UserError(f"{source}: no column is recognised as the propensity. Name it with --propensity-column")
    if log.counts["dropped_missing"] + log.counts["dropped_invalid"]:
        log = _complete(log)
    slates = arrange(log, slate_file)
    kinds = dict(slate_file.probabilities)
    propensity = str(table.propensity)
    main, why = table.main_of()
    by_kind = {kind: log.others[name] for kind, name in kinds.items() if name != propensity}
    lines = []
    if slates.size:
        lines.append(f"one row per position: {in_words(slates.number)} of {slates.size} items")
    lines += [f"{name}: the probability of {OF[kind]}" for kind, name in kinds.items() if kind != main]
    if main:
        by_kind[main] = np.asarray(log.propensity)
        kinds[main] = propensity
        lines.append(f"{propensity}: the probability of {OF[main]} ({why}; --propensities-of states another)")
    read = SlateLog(log, slates, kinds, main, why, by_kind, lines)
    if main:
        read.check(policies, ranked)
    if slates.size and log.columns.get("time") is None:
        slates, remarks = _by_number(slates, log)
        read = replace(read, slates=slates, lines=lines + remarks)
    return replace(read, lines=list(dict.fromkeys(read.lines)))


def _by_number(slates: Slates, log: BanditFile) -> tuple[Slates, list[str]]:
    """Sort the slates of each user by the numbers in their ids, which take the place of times.

    Returns:
        slates: the sorted slates; unchanged if ids have no numbers, or no user has several slates.
        remarks: a note for a person if ids have no numbers.
    """
    assert log.key is not None
    if log.user is None:
        return slates, []
    first = slates.order[:: slates.size]  # the top row of each slate
    user = log.user.codes[first]
    if np.unique(user).size == user.size:
        return slates, []
    numbers = []
    prefixes = set()
    for text in log.key.ids:
        match = re.fullmatch(r"(\D*)(\d{1,18})(?:\.0)?", str(text))  # "s12" has prefix "s" and number 12
        prefixes.add(match and match[1])  # None without a match
        numbers.append(int(match[2]) if match else 0)
    if None in prefixes or len(prefixes) > 1:
        return slates, ["no column has times: the slates of a user are taken in the order of the file"]
    number = np.array(numbers, np.int64)[log.key.codes[first]]
    place = np.lexsort((number, user))
    return replace(slates, order=slates.order.reshape(-1, slates.size)[place].reshape(-1)), []


def in_words(n: int) -> str:
    """Format a number of slates, such as ``1 slate`` or ``2,000 slates``."""
    return f"{n:,} slate{'s' * (n != 1)}"


def _complete(log: BanditFile) -> BanditFile:
    """Drop slates that lost a row to --drop-missing or --drop-invalid: those with fewer rows than the largest slate."""
    assert log.key is not None
    slate = log.key.codes
    if log.users is not None:  # each user's slates may be numbered anew
        slate = joint(log.users, slate)
    _, key, sizes = np.unique(slate, return_inverse=True, return_counts=True)
    n_incomplete = int((sizes < sizes.max()).sum())
    # Slates that lost all rows have an id that no row has.
    n_empty = log.key.ids.size - np.unique(log.key.codes).size
    log.lines.append(f"slates that lost a row are left out: {n_incomplete + n_empty:,}")
    return log.kept(sizes[key.reshape(-1)] == sizes.max())


# ------------------------------------------------------------------------------------------------------------ estimates


def estimate_slates(slate_file: SlateFile, question: Question, reading: Reading) -> Answer:
    """Estimate from a file of slates: one record per policy and estimator, then differences from the logging policy.

    The leading estimator is, of those with the best verdict, the one with the weakest assumptions on users.

    Args:
        slate_file: the file.
        question: policies to estimate, and the settings of the estimates.
        reading: statements about the columns and rows of the file.

    Raises:
        UserError: an option that is for single items only; invalid values or slates.
    """
    path = slate_file.file.path
    refused = [option for name, option in _OF_SINGLE_ITEMS.items() if getattr(question, name)]
    if "precision" in question.stated:
        refused.append("--precision")
    for option in refused:
        raise UserError(f"{option}: {path} is a log of slates, and this is for single items")
    if not isinstance(question.estimators, Usual):
        for estimator in question.estimators:
            ranking_estimator(estimator)
    names = slate_file.file.names
    propensity_name = reading.columns.get("propensity") or "propensity"
    baseline = question.baseline
    if baseline is not None:
        baseline = baseline_column(baseline, names, propensity_name)
    # Names of the logging policy: "today" is one unless a column has that name.
    logging_names = {"propensity", propensity_name, *({"today"} - {*names})}
    targets = [name for name in question.targets if name not in logging_names]
    if "pscore_item_position" in names and any(name.startswith("evaluation_policy_pscore") for name in targets):
        raise UserError(f"{path}: {_OBP_NAMES}", code="unclear_propensities")
    for name in targets:
        if not endings_of([name], names):
            raise UserError(f"{path} has no column {name!r}; {nearest(name, names)}", code="no_such_column")
    slates = read_slates(slate_file, reading, targets)
    slates.refuse()
    if baseline is not None and baseline not in {*logging_names, *slates.kinds.values()}:
        raise UserError(f"--baseline {baseline}: of slates differences are from today's policy: --baseline today")
    ask_today = baseline is not None or len(targets) < len(question.targets)
    return _Ranked(slate_file, slates, question).answer(targets, baseline or propensity_name, ask_today=ask_today)


class _Ranked:
    """A log of slates with a question about ranking policies.

    Attributes:
        rows: rows of the log in the order of slates.
        columns: arguments of the estimators by name, one value per row.
        logged: by kind, the logging policy's probabilities.
        bound: smallest propensity by statement or provenance; None if it is unknown.
    """

    def __init__(self, slate_file: SlateFile, slates: SlateLog, question: Question) -> None:
        self.slates = slates
        self.question = question
        log = slates.log
        self.rows: Ints = slates.slates.order
        self.columns: dict[str, NDArray[Any]] = {
            "reward": log.reward[self.rows],
            "position": np.tile(np.arange(slates.slates.size), slates.slates.number),
        }
        if log.user is not None:
            self.columns["user"] = log.user.codes[self.rows]
        if log.action is not None:
            names = log.action.ids
            if names.dtype.kind not in "iu":
                names = names.astype(object)
            self.columns["action"] = names[log.action.codes[self.rows]]
        self.logged = self._kinds(slates.known)
        self.columns |= {LOGGED[kind]: values for kind, values in self.logged.items()}
        self.provenance = provenance_of(slate_file.file.parts) if slate_file.own else {}
        self.bound = known_bound(self.provenance, question.stated, log.columns["propensity"])

    def _kinds(self, values: dict[str, Floats]) -> dict[str, Floats]:
        """Put probabilities into the order of slates.

        A missing probability of the slate is computed as the product of the conditional probabilities of its items.

        Args:
            values: by kind, the probabilities (n,) of all rows of the log.
        """
        if "conditional" in values and "slate" not in values:
            slates = self.slates.slates
            product = np.empty(len(self.slates.log))
            product[slates.order] = np.repeat(np.nan_to_num(slates.at(values["conditional"])).prod(1), slates.size)
            values = {**values, "slate": product}
        return {kind: column[self.rows] for kind, column in values.items()}

    def _target(self, name: str) -> dict[str, Floats]:
        """Return the probabilities of a target policy by kind, for the kinds that the log has.

        A column without an ending has the kind of the propensities. If it is 0 or 1 throughout, the policy is
        deterministic, and the column is both marginal and conditional, from which the slate's probability follows.
        """
        log = self.slates.log
        main = self.slates.main
        read = log.of_policies
        kinds = {kind: read[name + ending] for kind, ending in SUFFIXES.items() if ending and name + ending in read}
        if name in read:
            bare_kinds = ["marginal" if main in kinds else main]
            if np.isin(read[name], (0.0, 1.0)).all():
                bare_kinds = ["marginal", "conditional"]
            kinds = dict.fromkeys(bare_kinds, read[name]) | kinds
        return {kind: column for kind, column in self._kinds(kinds).items() if kind in self.logged}

    @functools.cache  # noqa: B019  # the object exists for one answer only
    def estimates(self, name: str, level: float, *, today: bool, from_today: bool = False) -> dict[str, Estimate]:
        """Estimate a policy with every estimator.

        Args:
            name: name of the policy.
            level: nominal coverage of the interval.
            today: True for the logging policy itself.
            from_today: True for the difference from the logging policy in place of the value.

        Returns:
            Estimates by estimator.

        Raises:
            UserError: the target and the log have no kind of probability in common.
        """
        question = self.question
        stated = {key: value for key, value in question.stated.items() if value is not None}
        least_propensity = stated.pop("propensity_min", self.bound)
        # A bound is about items at their positions; for whole slates it only means that none is impossible.
        stated.setdefault("full_support", None)
        if self.bound is not None or today:
            stated["full_support"] = True
        target = dict(self.logged) if today else self._target(name)
        if not target:
            have = ", ".join(OF[kind] for kind in self.logged)
            raise UserError(f"target {name!r} has no probabilities of what the log has them of: {have}")
        estimates = estimate_ranking_value(
            self.columns,
            target,
            level=level,
            estimators=None if isinstance(question.estimators, Usual) else question.estimators,
            called=name,
            clip=question.clip,
            assumption=question.assumption,
            interval=question.interval,
            from_today=from_today,
            position_weights=question.position_weights,
            propensity_min=None if least_propensity is None else {"marginal": least_propensity},
            **stated,
        )
        unit = "item shown"
        if question.position_weights != "mean":
            unit = "slate" + " (dcg)" * (question.position_weights == "dcg")
        facts: dict[str, object] = {"unit": unit, "slate_size": self.slates.slates.size}
        return {key: self._with_facts(estimate, facts, today=today) for key, estimate in estimates.items()}

    def _with_facts(self, estimate: Estimate, facts: dict[str, object], *, today: bool) -> Estimate:
        """Return an estimate with facts about the file in its diagnostics, and with adapted findings.

        The logging policy's value needs no assumption on users, so it is trusted and findings about them are dropped.
        Findings against a stated kind of propensities advise to state another one.
        """
        findings = [f for f in estimate.verdict.findings if not (today and about_users(f.code))]
        if self.slates.why == STATED:
            advice = f"state another --propensities-of: the numbers deny {_IN_OPTIONS[self.slates.main]!r}"
            findings = [replace(f, action=advice) if f.code in _DENIED else f for f in findings]
        verdict = Verdict("trust" if today else estimate.verdict.level, findings)
        return replace(estimate, diagnostics=estimate.numbers() | facts, verdict=verdict)

    def answer(self, targets: Sequence[str], own_name: str, *, ask_today: bool) -> Answer:
        """Return the records, with notes on how the file was read.

        Args:
            targets: names of the target policies.
            own_name: name of the logging policy in the records.
            ask_today: True to estimate the logging policy, too.
        """
        question = self.question
        log = self.slates.log
        policies = [*targets, *([own_name] if ask_today else [])]
        levels: dict[str, list[int]] = {}  # by estimator, the level of the verdict on each policy; 0 is the best
        for policy in policies:
            for name, estimate in self.estimates(policy, question.level, today=policy == own_name).items():
                levels.setdefault(name, []).append(LEVELS.index(estimate.verdict.level))

        def rank(name: str) -> tuple[int, int, int]:
            """Return the sort key of an estimator: by number of policies that it fits, verdicts, and assumptions."""
            weakest = _LEAST.index(name) if name in _LEAST else len(_LEAST)
            return -len(levels[name]), sum(levels[name]), weakest

        names = sorted(levels, key=rank)

        def value(name: str, estimator: str, *, level: float) -> Estimate | None:
            """Estimate a policy's value; None if the estimator does not apply to it."""
            return self.estimates(name, level, today=name == own_name).get(estimator)

        def difference(name: str, estimator: str, *, level: float) -> Estimate | None:
            """Estimate a policy's difference from the logging policy; None if the estimator does not apply to it."""
            return self.estimates(name, level, today=False, from_today=True).get(estimator)

        to_estimate = EstimateRequest(
            policies, names, question.level, today={own_name}, made=self.provenance, difference_estimators=names
        )
        if question.baseline is not None:
            to_estimate = replace(to_estimate, baseline=own_name, compared=targets)
        records: list[Record] = with_known_bound(records_of(to_estimate, value, difference), self.bound)
        records = [with_findings(record, [*unweighed(log, record), *of_the_rows(log.counts)]) for record in records]
        lines = [*log.lines, *self.slates.lines, *assumption_lines(records), *bound_lines(records)]
        policies_read = {name: log.policies[name] for name in targets if name in log.policies}
        return Answer(records, lines, replace(log, policies=policies_read))


def assumption_lines(records: Sequence[Record]) -> list[str]:
    """Describe, in one line per estimator, its assumption on users and the evidence against it in the log."""
    lines: dict[str, str] = {}
    for record in records:
        if record["role"] != "target":
            continue
        about = record["diagnostics"]["assumption"]
        findings = [finding for finding in record["findings"] if about_users(finding["code"])]
        findings.sort(key=lambda finding: str(finding["code"]))
        messages = [finding["message"] for finding in findings]
        if record["leads"]:
            actions = [finding["action"] for finding in findings if finding["level"] != "trust"]
            messages += dict.fromkeys(actions)
        if about["premise"] and not messages:
            messages.append("the log does not contradict that")
        that = "that " if about["premise"] else ""
        sentences = [f"{record['estimator']} assumes {that}{about['assumes']}"]
        sentences += [text[:1].upper() + text[1:] for text in messages]
        lines.setdefault(record["estimator"], ". ".join(sentences))
    return list(lines.values())
