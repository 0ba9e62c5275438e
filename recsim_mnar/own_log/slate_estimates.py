"""Estimates of policies that rank from a file of slates: what its probabilities are of, and one record per estimator.

The values are those of :func:`recsim_mnar.estimators.rankings.estimate_ranking_value`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.off_policy.records import Asked, records_of, todays
from recsim_mnar.estimators.off_policy.refuters import with_findings
from recsim_mnar.estimators.off_policy.scores import ESTIMATORS
from recsim_mnar.estimators.off_policy.sentence import Record
from recsim_mnar.estimators.off_policy.stated import bound_lines, known_bound, taken
from recsim_mnar.estimators.rankings import LOGGED, RANKING_ESTIMATORS, SUFFIXES, estimate_ranking_value
from recsim_mnar.estimators.verdict import LEVELS, Estimate, Verdict
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.log.table import provenance_of
from recsim_mnar.own_log.bandit_file import BanditFile, Reading
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.estimating import Answer, Question, _of_the_rows
from recsim_mnar.own_log.slate_file import (
    OF,
    SAID,
    SlateFile,
    Slates,
    Wrong,
    arrange,
    check_probabilities,
    kind_of,
)
from recsim_mnar.tables.faults import in_rows
from recsim_mnar.tables.roles import RECOGNISED, find_columns

_UNSUPPORTED = "_unsupported"
UNCLEAR = "unclear_propensities"
"""Code of propensities of which it is not known what they are of."""
_OF_SINGLE_ITEMS = {
    "target_file": "--target-file",
    "fit_reward_model": "--fit-reward-model",
    "by": "--by",
    "refute": "--refute",
    "reward_limit": "--reward-limit-column",
    "unsupported": "--unsupported",
}
"""What is asked of single items only, and its option."""
_LARGEST = "state the largest target / propensity of a slate possible, if you know it: --weight-max W"
_ASSUMED_LEAST = ("slate_ips", "reward_interaction_ips", "independent_ips", "set_ips")
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
    def unclear(self) -> str:
        """What to do where it is not clear what the propensities are of."""
        but = f", {self.why}" if self.why else ""
        name = self.log.columns["propensity"]
        kinds = ", ".join(f"{said} ({OF[kind]})" for said, kind in SAID.items())
        return (
            f"what {name!r} is the probability of does not follow from its numbers{but}: say --propensities-of {kinds}"
        )

    @property
    def problems(self) -> list[Wrong]:
        """What is wrong with them."""
        return self.slates.problems


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
    file, names = found.file, found.file.names
    columns = {role: name for role, name in reading.columns.items() if role not in ("slate", "position")}
    columns |= {role: name for role, name in found.columns.items() if role == "action"}
    own = endings_of([name for name in policies if name != columns.get("propensity")], names)
    kinds = dict(found.probabilities)
    leave = {*own, *kinds.values(), *found.columns.values()}
    generic = columns.get("propensity") or find_columns(
        str(file.path), names, named={}, optional=("propensity",), leave=leave
    ).get("propensity")
    main = next((kind for kind, name in kinds.items() if name == generic), "")
    if generic is None and kinds:
        main, generic = next(iter(kinds.items()))
    columns |= {"propensity": generic}
    more = [name for kind, name in kinds.items() if name != generic]
    gaps = [name for name in own if name.endswith(("_conditional", _UNSUPPORTED))]
    leave = {*found.columns.values()} - {columns.get("action")}
    if columns.get("user") is None:  # a column of slates may be called as one of users
        user = find_columns(str(file.path), names, named={}, optional=("user",), leave={*leave, *own}).get("user")
        columns |= {"user": user or "none"}
    table = BanditLog.open(
        file, [name for name in own if name not in gaps],
        reading=replace(reading, columns=columns, key=found.columns["slate"], context=gaps, times=True),
        others=[found.columns["position"], *more, *others],
    )  # fmt: skip
    said = {role: how if reading.columns.get(role) else RECOGNISED for role, how in table.columns.how.items()}
    table.columns = replace(table.columns, how=said)
    log = _whole(table.read(), found)
    log.lines[:] = [line for line in log.lines if not line.startswith("context: ")]
    if log.propensity is None:
        raise UserError(
            f"{file.path}: no column is recognised as the propensity of an item or of a slate. Name it with "
            "--propensity-column"
        )
    slates = _arranged(log, found)
    known = {kind: log.others[name] for kind, name in kinds.items() if name != generic}
    why = "its name says so" if main else ""
    if reading.propensities_of is not None:
        main, why = SAID[reading.propensities_of], "as stated"
    elif found.own:
        main, why = "marginal", "a log of this package's"
    elif not main and slates.size:
        p = slates.at(log.propensity)
        action = None if log.action is None else slates.at(log.action.codes)
        users = np.arange(len(p)) if log.user is None else slates.at(log.user.codes)[:, 0]
        main, why = kind_of(p, action, users, {kind: slates.at(values) for kind, values in known.items()})
        if not main and found.per_slate and np.all(p == p[:, :1]):
            main, why = "slate", "one number per slate"
    if main:
        known[main], kinds[main] = log.propensity, str(generic)
        check_probabilities(slates, known, kinds, _where(log, found))
        if found.one_reward and not {*known} & {"conditional", "slate", "set"}:
            message = f"one reward per slate needs the probability of the whole slate, and {generic!r} is of {OF[main]}"
            slates.problems.append(Wrong("slate_reward", message, "give lists of rewards", (str(generic),)))
    lines = [f"{found.form}: {slates.number:,} slates of {slates.size} items"] if slates.size else []
    for kind, name in kinds.items():
        by = (
            f" ({why}; if it is of something else, state that with --propensities-of)"
            if kind == main and why != "as stated"
            else ""
        )
        lines.append(f"{name}: the probability of {OF[kind]}{by}")
    return SlateLog(log, slates, kinds, main, why, known, lines)


def _where(log: BanditFile, found: SlateFile) -> Callable[[int], str]:
    """Where a row is, in words."""
    assert log.key is not None
    key = log.key
    if found.per_slate:
        return lambda row: f"in row {log.row_numbers[row]}"
    return lambda row: f"slate {key.ids[key.codes[row]]} (row {log.row_numbers[row]})"


def _arranged(log: BanditFile, found: SlateFile) -> Slates:
    assert log.key is not None
    user, action, time = (None if each is None else each.codes for each in (log.user, log.action, None))
    time = log.others.get(log.columns.get("time") or "")
    position = found.columns["position"]
    return arrange(log.key.codes, log.others[position], user, action, time, _where(log, found), position)


def _whole(log: BanditFile, found: SlateFile) -> BanditFile:
    """Without the slates that lost a row to --drop-missing or --drop-invalid."""
    if not log.counts["dropped_missing"] + log.counts["dropped_invalid"]:
        return log
    assert log.key is not None
    users = np.zeros(len(log), np.int64) if log.user is None else log.user.codes
    key = np.unique(np.stack([users, log.key.codes]), axis=1, return_inverse=True)[1].reshape(-1)
    sizes = np.bincount(key)
    keep = (sizes == sizes.max())[key]
    if not keep.all():
        log.lines.append(f"{int((sizes < sizes.max()).sum()):,} slates that lost a row are left out")
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
    own = reading.columns.get("propensity") or "propensity"
    today = [
        name for name in ("today", "propensity", own) if name not in found.file.names or name in ("propensity", own)
    ]
    baseline = None if question.baseline is None else todays(question.baseline, found.file.names, own)
    targets = [name for name in question.targets if name not in today]
    for name in targets:
        if not endings_of([name], found.file.names):
            raise UserError(f"{path} has no column {name!r}; {nearest(name, found.file.names)}", code="no_such_column")
    if not question.targets:
        raise UserError("no target column; name at least one with --target")
    models = {key: name for key in ("q_logged", "q_target") if (name := getattr(question, key)) is not None}
    slates = read_slates(found, reading, targets, list(models.values()))
    if slates.problems:
        said = "; ".join(map(str, slates.problems))
        raise UserError(f"{path}: {said}", code=slates.problems[0].code)
    if not slates.main:
        raise UserError(f"{path}: {slates.unclear}", code=UNCLEAR)
    if baseline is not None and baseline not in (*today, *slates.kinds.values()):
        raise UserError(f"--baseline {baseline}: of slates differences are from today's policy: --baseline today")
    ask_today = baseline is not None or len(targets) < len(question.targets)
    return _Ranked(found, slates, question, models).answer(targets, baseline or own, ask_today=ask_today)


class _Ranked:
    """A log of slates in the house's columns, to be asked for estimates."""

    def __init__(self, found: SlateFile, slates: SlateLog, question: Question, models: Mapping[str, str]) -> None:
        self.found, self.slates, self.question = found, slates, question
        log, order, size = slates.log, slates.slates.order, slates.slates.size
        self.rows: Ints = order[::size] if found.one_reward else order
        self.size = 1 if found.one_reward else size
        self.columns: dict[str, Any] = {
            "reward": log.reward[self.rows], "position": np.tile(np.arange(self.size), slates.slates.number)
        }  # fmt: skip
        if log.user is not None:
            self.columns["user"] = log.user.codes[self.rows]
        if log.action is not None and not found.one_reward:
            self.columns["action"] = log.action.codes[self.rows]
        self.logged = self._kinds(slates.known)
        self.columns |= {LOGGED[kind]: values for kind, values in self.logged.items()}
        self.given = {key: log.others[name][self.rows] for key, name in models.items()}
        self.made = provenance_of(found.file.parts) if found.own else {}
        self.bound = known_bound(self.made, question.stated, log.columns["propensity"])
        self.met: dict[Any, dict[str, Estimate]] = {}

    def _kinds(self, values: Mapping[str, Floats]) -> dict[str, Floats]:
        """Probabilities (n,) of the file's rows by kind, as they are estimated with."""
        if not self.found.one_reward:
            return {kind: each[self.rows] for kind, each in values.items()}
        of_slates = {kind: each[self.rows] for kind, each in values.items() if kind in ("slate", "set")}
        if "conditional" in values and "slate" not in of_slates:
            of_slates["slate"] = self.slates.slates.at(values["conditional"]).prod(1)
        return of_slates

    def _target(self, name: str) -> Any:
        """The probabilities of a policy by kind."""
        log, kinds = self.slates.log, {}
        read = {**log.policies, **log.context}
        for kind, ending in SUFFIXES.items():
            if ending and name + ending in read:
                kinds[kind] = read[name + ending]
        if name in log.policies:
            bare = self.slates.main if self.slates.main not in kinds else "marginal"
            kinds[bare] = log.policies[name]
            if set(np.unique(log.policies[name])) <= {0.0, 1.0}:  # a policy that is sure of each item
                kinds.setdefault("marginal", kinds[bare])
                kinds.setdefault("conditional", kinds[bare])
        return {kind: each for kind, each in self._kinds(kinds).items() if kind in self.logged}

    def estimates(self, name: str, level: float, *, today: bool, apart: bool = False) -> dict[str, Estimate]:
        """All estimates of a policy, or of its difference from today's, by estimator."""
        if (name, level, apart) in self.met:
            return self.met[name, level, apart]
        asked = self.question
        stated = {key: value for key, value in asked.stated.items() if value is not None}
        least = stated.pop("propensity_min", self.bound)
        # A bound is of items at their positions: of whole slates it says that none is impossible.
        stated["full_support"] = bool(stated.get("full_support")) or self.bound is not None
        if today:  # it shows nothing that it cannot show
            stated["full_support"] = True
        target = dict(self.logged) if today else self._target(name)
        if not target:
            have = ", ".join(OF[kind] for kind in self.logged)
            raise UserError(f"target {name!r} has no probabilities of what the log has them of: {have}")
        found = estimate_ranking_value(
            self.columns, target, estimators=self.named, position_weights=asked.position_weights, level=level,
            clip=asked.clip, assumption=asked.assumption, interval=asked.interval, from_today=apart,
            propensity_min=None if least is None else {"marginal": least}, **stated, **self.given,
        )  # fmt: skip
        unit = "slate" if self.found.one_reward or asked.position_weights != "mean" else "item shown"
        facts = {"unit": unit + " (dcg)" * (asked.position_weights == "dcg"), "slate_size": self.slates.slates.size}
        found = {key: _of_slates(each, facts, today=today) for key, each in found.items()}
        self.met[name, level, apart] = found
        return found

    @property
    def named(self) -> list[str] | None:
        """Estimators that were asked for; None for all that can be had."""
        names = list(self.question.estimators)
        if set(names) & {*RANKING_ESTIMATORS} or any(":" in name for name in names):
            return names
        if set(names) - {"ips", "snips", "clipped_ips"}:
            other = next(name for name in names if name not in ("ips", "snips", "clipped_ips"))
            kind = "is for single items" if other in ESTIMATORS else "is unknown"
            raise UserError(f"estimator {other!r} {kind}; of slates there are {', '.join(RANKING_ESTIMATORS)}")
        return None

    def answer(self, targets: Sequence[str], own: str, *, ask_today: bool) -> Answer:
        """The records, with lines on what was read."""
        asked, log = self.question, self.slates.log
        policies = [*targets, *([own] if ask_today else [])]
        first = {name: self.estimates(name, asked.level, today=name == own) for name in policies}
        by_name: dict[str, list[Estimate]] = {}
        for found in first.values():
            for name, each in found.items():
                by_name.setdefault(name, []).append(each)
        shared = [name for name, each in by_name.items() if len(each) == len(policies)]
        least = {name: place for place, name in enumerate(_ASSUMED_LEAST)}
        judged = {name: sum(LEVELS.index(each.verdict.level) for each in by_name[name]) for name in by_name}
        # The first one leads.
        names = sorted(by_name, key=lambda name: (name not in shared, judged[name], least.get(name, len(least))))

        def value(name: str, estimator: str, *, level: float) -> Estimate | None:
            return self.estimates(name, level, today=name == own).get(estimator)

        def apart(name: str, estimator: str, *, level: float) -> Estimate | None:
            return self.estimates(name, level, today=False, apart=True).get(estimator)

        compared = [name for name in targets if asked.baseline is not None]
        baseline = own if asked.baseline is not None else None
        question = Asked(policies, names, asked.level, baseline, compared, {own}, self.made, differing=names)
        records: list[Record] = taken(records_of(question, value, apart), self.bound)
        more = _of_the_rows(log.counts)
        records = [with_findings(record, more) for record in records]
        lines = [*log.lines, *self.slates.lines, *assumption_lines(records), *bound_lines(records)]
        if self.found.per_slate:
            n = log.counts["rows"]
            lines = [line.replace(in_rows(n), f"{in_rows(self.slates.slates.number)} of {n:,} items") for line in lines]
        policies = {name: log.policies[name] for name in targets if name in log.policies}
        return Answer(records, lines, replace(log, policies=policies))


def _of_slates(estimate: Estimate, facts: dict[str, Any], *, today: bool) -> Estimate:
    """The estimate with more diagnostics; its advice is about slates, and of today's policy nothing is assumed."""
    findings = [f for f in estimate.verdict.findings if not (today and _about_users(f.code))]
    if estimate.diagnostics["weight"] != "marginal":
        findings = [replace(f, action=_LARGEST) if "--propensity-min" in f.action else f for f in findings]
    return replace(estimate, diagnostics=estimate.diagnostics | facts, verdict=Verdict.of(findings))


def _about_users(code: str) -> bool:
    return code.startswith("assumption") or code in ("position_effect", "clicks_after_click")


def assumption_lines(records: Sequence[Record]) -> list[str]:
    """What each estimator assumes of users, and what the log says of it, once for each."""
    lines: dict[str, str] = {}
    for record in (each for each in records if each["role"] == "target"):
        about = record["diagnostics"]["assumption"]
        of_users = sorted((f for f in record["findings"] if _about_users(f["code"])), key=lambda f: str(f["code"]))
        said = [f["message"].removeprefix(f"it assumes that {about['assumes']}").lstrip(",. ") for f in of_users]
        said = [each.removeprefix("and ").replace("which does not", "this does not") for each in said] or [
            "the log does not contradict that"
        ] * bool(about["premise"])
        line = f"{record['estimator']} assumes {'that ' if about['premise'] else ''}{about['assumes']}"
        lines.setdefault(record["estimator"], ". ".join([line, *(each[:1].upper() + each[1:] for each in said)]))
    return list(lines.values())
