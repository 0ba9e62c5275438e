"""Build the records of estimates: one per policy and estimator, for all rows and for segments.

Segments group the rows by a column that was fixed before the recommendation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from recsim_mnar.answers.sentence import (
    GAPS,
    ByRows,
    Record,
    baseline_of,
    best_record,
    candidates,
    kind_of_log,
    label,
    lacks,
    leading,
    subject,
    target_of,
    tolerated,
    with_tolerance,
)
from recsim_mnar.answers.weights import THIN, Segments, Weights, weight_tolerance
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import difference, estimate_value
from recsim_mnar.estimators.facts import PRECISION, Facts
from recsim_mnar.estimators.scores import check_name, known_to_differ
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, LEVEL_WORDS, LEVELS, Estimate, Finding, Verdict
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.log.columns import Ints, LogColumns

NO_VALUE = "no value"


def segment_label(record: Record) -> str:
    """Return a reader's name of a record's segment."""
    if record["segment"] is None:
        return NO_VALUE
    return str(record["segment"])


def segment_title(records: Sequence[Record]) -> str:
    """Describe the joint coverage of the intervals of segments."""
    first = records[0]
    n = len({record["segment"] for record in records})
    of_all = f"{100 * first['level_of_all']:g} %"
    return f"By {first['by']}: {n} segments; all {first['intervals']} intervals hold at once with {of_all}"


def segment_lines(records: Sequence[Record]) -> list[str]:
    """Summarise the records of segments: one line per difference, or one line without any."""
    if not records:
        return []
    column = records[0]["by"]
    n = len({record["segment"] for record in records})
    by_difference: dict[tuple[str, str | None], list[Record]] = {}
    for record in records:
        if "baseline" in record:
            by_difference.setdefault(subject(record), []).append(record)
    lines = []
    for group in by_difference.values():
        ways: dict[str, list[str]] = {"earns less": [], "looks worse": []}
        for record in group:
            ways.setdefault(_direction(record), []).append(segment_label(record))
        undecided = ways.pop("", [])
        target = target_of(group[0])
        than = f"than {baseline_of(group[0])} in"
        words = [f"{target} {way} {than} {', '.join(names)}" for way, names in ways.items() if names]
        if len(undecided) == n:
            words.append(f"cannot tell: all {n} segments")
        elif undecided:
            words.append(f"cannot tell: {', '.join(undecided)}")
        lines.append(f"By {column}: {'; '.join(words)}.")
    return lines or [f"By {column}: {n} segments; --baseline today adds each one's difference from today's policy."]


def segment_summary(leader: Record, records: Sequence[Record]) -> dict[str, object]:
    """Return, for a leading difference, the segments in which it is positive or negative, by the key ``segments``.

    Args:
        leader: record of all rows; nothing is returned unless it is a leading difference with segments.
        records: records of the segments.
    """
    group = [record for record in records if subject(record) == subject(leader)]
    if not (group and leader["leads"] and "baseline" in leader):
        return {}
    ways: dict[str, list[str]] = {"worse": [], "better": [], "cannot_tell": [], "do_not_use": []}
    for record in group:
        way = "cannot_tell"
        if record["verdict_level"] == "do_not_use":
            way = "do_not_use"
        elif record["low"] > 0.0:
            way = "better"
        elif record["high"] < 0.0:
            way = "worse"
        ways[way].append(segment_label(record))
    return {"segments": {"by": group[0]["by"], **ways}}


def _direction(record: Record) -> str:
    """Describe the direction of a difference; "" if it is undecided."""
    sure = record["verdict_level"] == "trust"
    if record["verdict_level"] == "do_not_use":
        return ""
    if record["low"] > 0.0:
        return "earns more" if sure else "looks better"
    if record["high"] < 0.0:
        return "earns less" if sure else "looks worse"
    return ""


def segment_reasons(records: Sequence[Record]) -> list[str]:
    """List the reasons to doubt segments, the gravest first: one line per reason, with its segments."""
    by_reason: dict[tuple[str, str], dict[str, str]] = {}
    for record in records:
        for finding in record["findings"]:
            if finding["level"] == record["verdict_level"] != "trust":
                messages = by_reason.setdefault((finding["level"], finding["code"]), {})
                messages.setdefault(segment_label(record), finding["message"])
    lines = []
    for (level, _), messages in sorted(by_reason.items(), key=lambda item: -LEVELS.index(item[0][0])):
        names = list(messages)
        example = f" (in {names[0]})" if len(names) > 1 else ""
        lines.append(f"{LEVEL_WORDS[level]} ({', '.join(names)}): {messages[names[0]]}{example}.")
    return lines


# -------------------------------------------------------------------------------------------------------------- records

Answering = Callable[..., Estimate | None]

UNSUPPORTED = "_unsupported"
"""Ending of the column of a policy's mass where the logging probability is 0."""
_OF_ESTIMATES = ("estimator", "value", "low", "high", "level", "method", "n", "ess")
_OF_POLICIES = ("target", "today", "role", "baseline", "baseline_kind")
_CLICKS = (0.0, 1.0)


def estimate_columns(
    log: LogColumns,
    targets: Sequence[str],
    estimators: Sequence[str] = ("ips", "snips"),
    level: float = 0.95,
    segments: Segments | None = None,
    action: Ints | None = None,
    **of_rows: Any,
) -> list[Record]:
    """Estimate the value of each target policy from columns in memory.

    Args:
        log: see :class:`PolicyRows`.
        targets: names of columns of ``log.others``.
        estimators: names of estimators.
        level: coverage of the intervals.
        segments: segments whose estimates are added.
        action: (n,) numbers of the items shown, to check the segments with.
        **of_rows: further fields of :class:`PolicyRows`.

    Returns:
        Records as in :class:`recsim_mnar.own_log.estimating.Answer`.

    Raises:
        UserError: as :func:`recsim_mnar.estimators.estimate_value`; also for segments that are refused.
    """
    rows = PolicyRows(log, **of_rows)
    to_estimate = rows.question(targets, estimators, level)
    records = records_of(to_estimate, rows.value, rows.apart)
    if segments is not None:
        records += rows.by_segment(segments, action, to_estimate, records)
    return records


@dataclass(frozen=True)
class PolicyRows:
    """Rows of a log, to estimate policies from.

    Attributes:
        log: columns of the rows; ``others`` has one for each policy, its probability of the logged action.
        baseline: the policy that others are compared with.
        models: by policy, its reward model's value (n,) of the logged action and its mean (n,); if some policies have
            one, those without get no estimate that needs it.
        missing: by policy, its mass (n,) where the logging probability is 0.
        made: provenance of the log.
        largest: by policy, its largest probability of any action, if all of them are known.
        facts: known facts about the log.
        clip: largest weight of the clipped estimators.
        precision: half the interval over the value up to which a value is trusted.
        weights: (n,) how many rows each row stands for, or None.
        interval: kind of the intervals of values.
        today: names of the policy that logged the rows; None for those whose column is that of the propensities.
    """

    log: LogColumns
    baseline: str | None = None
    models: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    missing: Mapping[str, Any] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)
    largest: Mapping[str, float] = field(default_factory=dict)
    facts: Facts = field(default_factory=Facts)
    clip: float | None = None
    precision: float = PRECISION
    weights: Any = None
    interval: str = "auto"
    today: Collection[str] | None = None

    @cached_property
    def logged(self) -> frozenset[str]:
        """Names of the policy that logged the rows."""
        if self.today is not None:
            return frozenset(self.today)
        return frozenset(name for name, values in self.log.others.items() if values is self.log.propensity)

    def question(self, targets: Sequence[str], estimators: Sequence[str], level: float) -> Asked:
        """Return the question for the values of policies and their differences from the baseline."""
        policies = list(targets)
        compared = []
        if self.baseline is not None:
            policies += [self.baseline] * (self.baseline not in targets)
            compared = [name for name in targets if name != self.baseline]
        return Asked(policies, estimators, level, self.baseline, compared, self.logged, self.made, self._tolerance)

    def _tolerance(self, name: str, **ends: Any) -> float:
        """Compute the propensity tolerance of a policy."""
        target = self.log.others[name]
        if self.weights is not None:
            target = target * self.weights
        return weight_tolerance(self.log.reward, self.log.propensity, target, **ends)

    def _missing_mass(self, name: str) -> Any:
        """Return a policy's missing mass (n,), None if unknown; the policy that logged the rows has none."""
        if name in self.missing:
            return self.missing[name]
        if name in self.logged:
            return np.zeros(len(self.log.reward))
        return None

    def most(self, *names: str) -> float | None:
        """Return the largest probability of any action under the policies but the logging one; None if unknown."""
        names = tuple(name for name in names if name not in self.logged)
        if names and all(name in self.largest for name in names):
            return max(self.largest[name] for name in names)
        return None

    def _call(
        self, estimate: Callable[..., Estimate], estimator: str, facts: Facts, level: float, *args: Any, **kwargs: Any
    ) -> Estimate:
        """Call an estimator with these rows and the arguments of the policies."""
        weights = self.weights if estimator in known_to_differ() else None
        return estimate(
            self.log.reward,
            self.log.propensity,
            *args,
            cluster=self.log.cluster,
            weights=weights,
            facts=facts,
            estimator=estimator,
            clip=self.clip,
            level=level,
            **kwargs,
        )

    def value(self, name: str, estimator: str, *, level: float) -> Estimate | None:
        """Estimate the value of a policy; None if that needs a reward model that only others have."""
        model = None
        if check_name(estimator).needs:
            model = self.models.get(name)
            if self.models and model is None:
                return None
        facts = replace(self.facts, unsupported=self._missing_mass(name), target_max=self.most(name))
        options = {"model": model, "interval": self.interval, "precision": self.precision}
        return self._call(estimate_value, estimator, facts, level, self.log.others[name], **options)

    def apart(self, name: str, estimator: str, *, level: float) -> Estimate:
        """Estimate the difference of a policy from the baseline."""
        assert self.baseline is not None
        facts = replace(
            self.facts,
            unsupported=self._missing_mass(name),
            baseline_unsupported=self._missing_mass(self.baseline),
            target_max=self.most(name, self.baseline),
        )
        policies = self.log.others
        return self._call(difference, estimator, facts, level, policies[name], policies[self.baseline])

    def part(self, rows: Ints) -> PolicyRows:
        """Select some of the rows."""
        log = self.log
        facts = self.facts
        columns = LogColumns(
            log.reward[rows],
            log.propensity[rows],
            None if log.cluster is None else log.cluster.at(rows),
            {name: values[rows] for name, values in log.others.items()},
            np.asarray(log.numbers)[rows],
        )
        if facts.reward_limit is not None:
            facts = replace(facts, reward_limit=_at(facts.reward_limit, rows))
        elif np.isin(log.reward, _CLICKS).all():  # also known of a segment without a click
            least, most = _CLICKS
            if facts.reward_min is None:
                facts = replace(facts, reward_min=least)
            if facts.reward_max is None:
                facts = replace(facts, reward_max=most)
        return replace(
            self,
            log=columns,
            models={name: (_at(logged, rows), _at(mean, rows)) for name, (logged, mean) in self.models.items()},
            missing={name: values[rows] for name, values in self.missing.items()},
            facts=facts,
            weights=_at(self.weights, rows),
            today=self.logged,
        )

    def by_segment(
        self, segments: Segments, action: Ints | None, asked: Asked, records: Sequence[Record]
    ) -> list[Record]:
        """Return the leading estimates of each segment, with intervals that hold jointly at the level asked for."""
        log = self.log
        leaders = [record for record in records if record["leads"]]
        targets = {name: log.others[name] for name in asked.policies if name not in self.logged}
        if self.weights is None:
            Weights(log.reward, log.propensity, log.cluster, targets, self.missing, action, self.facts).refuse(segments)
        number = len(segments.names) * len(leaders)
        level = level_of_best(asked.level, number)
        estimated = []
        for value, rows in segments:
            part = self.part(rows)
            more = {"leads": False, "by": segments.column, "segment": value}
            more |= {"intervals": number, "level_of_all": asked.level}
            for total in leaders:
                ask = part.apart if "baseline" in total else part.value
                estimate = ask(target_of(total), total["estimator"], level=level)
                assert estimate is not None
                estimate = with_adaptive_findings(estimate, asked.made, *subject(total))
                findings = [Finding.from_dict(finding) for finding in total["findings"]]
                # Propensities that are wrong in the whole log are wrong in each segment.
                wrong = [f for f in findings if f.code == "propensities" and f.level != "trust"]
                record = _record(total["policy"], part._widened(estimate.with_findings(wrong)))
                estimated.append(record | {key: total[key] for key in _OF_POLICIES if key in total} | more)
        return estimated

    def _widened(self, estimate: Estimate) -> Estimate:
        """Replace the interval of a few users by what the rewards allow: at such levels any other would miss."""
        facts = estimate.diagnostics
        if facts.users >= THIN:
            return estimate
        limited = self.facts.reward_max is not None or self.facts.reward_limit is not None
        low = facts.reward_min
        high = facts.reward_max if limited else np.inf
        if facts.value_baseline is not None:
            high -= low
            low = -high
        return replace(
            estimate,
            low=min(low, estimate.value),
            high=max(high, estimate.value),
            method="no interval: few users",
        )


def _at(values: Any, rows: Ints) -> Any:
    """Select rows of a column that may be None."""
    if values is None:
        return None
    return values[rows]


@dataclass(frozen=True)
class Asked:
    """Policies to estimate, however the rows are read.

    Attributes:
        policies: policies whose values are estimated.
        estimators: names of estimators.
        level: coverage of the intervals.
        baseline: one of the policies, or None.
        compared: policies whose differences from the baseline are estimated.
        today: names of the policy that logged the rows.
        made: provenance of the log.
        off_by: function that computes the propensity tolerance of a policy, if rows are at hand.
        differing: estimators with differences; empty for those of single items.
    """

    policies: Sequence[str]
    estimators: Sequence[str]
    level: float
    baseline: str | None = None
    compared: Sequence[str] = ()
    today: Collection[str] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
    off_by: ByRows | None = None
    differing: Collection[str] = ()

    def differs(self, estimator: str) -> bool:
        """Return whether an estimator has differences."""
        if self.differing:
            return estimator in self.differing
        return check_name(estimator).in_blocks

    def role(self, name: str, baseline: str | None) -> str:
        """Return the role of a record."""
        if baseline is not None:
            return "difference"
        if name in self.today:
            return "today"
        if name == self.baseline:
            return "baseline"
        return "target"


def records_of(asked: Asked, value: Answering, apart: Answering | None = None) -> list[Record]:
    """Return one record per policy and estimator, then one per difference and estimator; keys as :class:`Record`.

    The best of several policies gets ``best_of``: its interval and verdict at a level corrected for the choice.

    Args:
        asked: policies and estimators.
        value: estimates a policy with an estimator at a level; None if that estimator cannot.
        apart: likewise the difference from the baseline.
    """
    pairs: list[tuple[str, str | None, Any]] = [(name, None, value) for name in asked.policies]
    pairs += [(name, asked.baseline, apart) for name in asked.compared]
    records: list[Record] = []
    estimate_again: dict[tuple[str, str | None], Any] = {}
    for name, baseline, ask in pairs:
        policy = name if baseline is None else f"{name} - {baseline}"
        for estimator in asked.estimators:
            if baseline is not None and not asked.differs(estimator):
                continue
            estimate = ask(name, estimator, level=asked.level)
            if estimate is None:
                continue
            estimate = with_adaptive_findings(estimate, asked.made, name, baseline)
            today = (baseline or name) in asked.today
            record = _record(policy, estimate)
            record |= {"target": name, "today": today, "role": asked.role(name, baseline)}
            if baseline is not None:
                record |= {"baseline": baseline, "baseline_kind": "policy"}
            if today:
                record["baseline_kind"] = kind_of_log(estimate.numbers())
            records.append(record)
            estimate_again[policy, baseline] = functools.partial(ask, name)
    records = [with_tolerance(record, asked.off_by) for record in leading(records)]
    best = best_record(records)
    number = len(candidates(records))
    if best is not None and number > 1:
        level = level_of_best(asked.level, number)
        estimate = estimate_again[best["policy"], best.get("baseline")](best["estimator"], level=level)
        assert estimate is not None
        estimate = with_adaptive_findings(estimate, asked.made, *subject(best))
        ends = {"policies": number, "level": level, "low": estimate.low, "high": estimate.high}
        best["best_of"] = ends | tolerated(best | ends, asked.off_by) | estimate.verdict.to_dict()
    return records


def todays(baseline: str, columns: Sequence[str], propensity: str) -> str:
    """Return the baseline's column: that of propensities for ``today``, unless a column has that name."""
    if baseline == "today" and "today" not in columns:
        return propensity
    return baseline


def check_question(targets: Sequence[str], estimators: Sequence[str], baseline: str | None) -> None:
    """Check that there are targets and known estimators, one of which has differences if there is a baseline.

    Raises:
        UserError: one of these is not so.
    """
    if not targets:
        raise UserError("no target column; name at least one, made by `recsim-mnar replay` for instance")
    if not estimators:
        raise UserError("no estimator; name at least one, for instance ips")
    for name in estimators:
        check_name(name)
    if baseline is not None and not set(estimators) & set(known_to_differ()):
        raise UserError(
            f"no difference from the baseline {baseline!r} with {', '.join(estimators)}: "
            f"it is known for {', '.join(known_to_differ())}; name one of these too, or no baseline"
        )


def missing_columns(policies: Sequence[str], named: Sequence[str], known: Sequence[str]) -> dict[str, str]:
    """Return the columns of missing mass by policy, for the policies that have one.

    Raises:
        UserError: another number of columns than policies.
    """
    if not named:
        return {name: name + UNSUPPORTED for name in policies if name + UNSUPPORTED in known}
    if len(named) != len(policies):
        raise UserError(
            f"{len(named)} columns of missing mass for {len(policies)} policies: name one for each of "
            f"{', '.join(policies)}"
        )
    return dict(zip(policies, named, strict=True))


def _record(policy: str, estimate: Estimate) -> Record:
    return {
        "policy": policy,
        **{name: getattr(estimate, name) for name in _OF_ESTIMATES},
        **estimate.verdict.to_dict(),
        "diagnostics": estimate.numbers(),
    }


def with_findings(record: Record, findings: Sequence[Finding], *, first: bool = False) -> Record:
    """Add findings to the verdict of a record; with ``first`` before others of their level."""
    before = [Finding.from_dict(finding) for finding in record["findings"]]
    every = [*findings, *before] if first else [*before, *findings]
    return record | Verdict(record["verdict_level"], every).to_dict()


@dataclass(frozen=True)
class Reason:
    """A reason to doubt estimates.

    Attributes:
        level: "caution" or "do_not_use".
        message: what was found.
        action: what to do.
        of: policies that it concerns.
    """

    level: str
    message: str
    action: str
    of: tuple[str, ...]

    @property
    def line(self) -> str:
        """The reason in one line for a person."""
        of = ", ".join(self.of)
        return f"{LEVEL_WORDS[self.level]} ({of}): {self.message}. {self.action[:1].upper()}{self.action[1:]}."


def reasons(records: Sequence[Record]) -> list[Reason]:
    """List the reasons to doubt estimates, the gravest first, each once.

    A finding against a target also concerns its differences, and one against the log several policies; each is listed
    once. Policies that the log does not cover are left to :func:`identified`.
    """
    by_policy: dict[tuple[str, str], tuple[Record, Record]] = {}
    for record in records:
        for finding in record["findings"]:
            if finding["level"] != "trust" and not (lacks(record) and finding["code"] in (*GAPS, "wide_interval")):
                by_policy.setdefault((target_of(record), finding["code"]), (record, finding))
    labels: dict[tuple[str, str, str], list[str]] = {}
    for record, finding in by_policy.values():
        labels.setdefault((finding["level"], finding["message"], finding["action"]), []).append(label(record))
    listed = [Reason(*reason, tuple(policies)) for reason, policies in labels.items()]
    return sorted(listed, key=lambda reason: -LEVELS.index(reason.level))


FITTED_ON = "fitted_on"
"""Key of a replayed log's provenance: ``policies`` that were fitted, on the log of ``digest``, which shares ``shared``
of the log's ``users``; ``half`` of the users that the policies are evaluated on, if they were split."""
PROPENSITY_MIN = "propensity_min"
"""Key of a replayed log's provenance: the smallest propensity under its ``policy``."""
MOST_SHARED = 0.1
"""Share of users from which an estimate of a policy that was fitted on them is useless."""


def level_of_best(level: float, k: int) -> float:
    """Return the level of each of k intervals such that a statement about the best of them holds at ``level``.

    The best of k estimates is the luckiest too; all k intervals hold together at ``level`` if each holds at
    1 - (1 - level) / k (Bonferroni), and then so does the winner's.

    Args:
        level: in (0, 1).
        k: number of policies that the best was chosen from, 1 or more.
    """
    return 1.0 - (1.0 - level_of(level)) / whole_number(k, "k", least=1)


def adaptive_findings(provenance: Mapping[str, Any]) -> list[Finding]:
    """Return the finding that users depend on each other, if a log's provenance says so.

    Args:
        provenance: of a :class:`recsim_mnar.log.Log`, or of a file that it was written to.
    """
    run = provenance.get("online")
    if not isinstance(run, dict) or run.get("learns") != "all users":
        return []
    lanes = int(run.get("lanes", 1))
    return [Finding("users_not_independent", CAUTION, float(lanes), lanes=lanes)]


def fitted_findings(provenance: Mapping[str, Any], policies: Collection[str | None]) -> list[Finding]:
    """Return the finding that a policy was fitted on users of the log, if the provenance says so.

    Args:
        provenance: as :func:`adaptive_findings`.
        policies: names of the columns that the estimate is of.
    """
    made = provenance.get(FITTED_ON)
    if not isinstance(made, dict) or not set(made.get("policies", ())) & set(policies):
        return []
    shared = int(made.get("shared", 0))
    users = max(int(made.get("users", 0)), 1)
    if shared == 0:
        return []
    severity = GRAVE if shared >= MOST_SHARED * users else CAUTION
    return [Finding("trained_on_log", severity, shared / users, shared=shared, users=users)]


def with_adaptive_findings(estimate: Estimate, provenance: Mapping[str, Any], *policies: str | None) -> Estimate:
    """Add findings about how the log was made, and what the policies were fitted on, to an estimate."""
    return estimate.with_findings([*adaptive_findings(provenance), *fitted_findings(provenance, policies)])


def known_bound(provenance: Mapping[str, Any], stated: Mapping[str, Any], propensity: str) -> float | None:
    """Return the smallest propensity that a log's provenance records; None if unknown, or if the user states a bound.

    Args:
        provenance: as :func:`adaptive_findings`.
        stated: the user's statements, of which ``propensity_min`` and ``weight_max`` are bounds.
        propensity: column of the propensities; the provenance is about the log's own column only.
    """
    least = provenance.get(PROPENSITY_MIN)
    if propensity != "propensity" or "policy" not in provenance or not isinstance(least, float):
        return None
    is_stated = stated.get("propensity_min") is not None or stated.get("weight_max") is not None
    if is_stated or not 0.0 < least <= 1.0:
        return None
    return least


def taken(records: Sequence[Record], least: float | None) -> list[Record]:
    """Add the smallest propensity from the provenance, if there is one, to the diagnostics of records."""
    if least is None:
        return list(records)
    return [record | {"diagnostics": record["diagnostics"] | {"propensity_min_taken": least}} for record in records]


def bound_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the bound from the provenance, if there is one."""
    for record in records[:1]:
        least = record["diagnostics"].get("propensity_min_taken")
        if least is not None:
            return [f"--propensity-min {least:.3g}: from the log's provenance"]
    return []
