"""The estimates of a log file: one record per policy and estimator, of all rows and of segments.

Segments are the rows by a column's values, where the column was fixed before the recommendation.
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
from recsim_mnar.answers.weights import THIN, Segments, Weights, users_of, weight_tolerance
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import difference, estimate_value
from recsim_mnar.estimators.facts import PRECISION, Facts
from recsim_mnar.estimators.scores import check_name, known_to_differ
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, LEVEL_WORDS, LEVELS, Estimate, Finding, Verdict
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.log.columns import Ints, LogColumns

NO_VALUE = "no value"


def segment_label(record: Record) -> str:
    """Reader's name of a record's segment."""
    if record["segment"] is None:
        return NO_VALUE
    return str(record["segment"])


def segment_title(records: Sequence[Record]) -> str:
    """Describe the coverage of the intervals of some segments."""
    first = records[0]
    n = len({record["segment"] for record in records})
    of_all = f"{100 * first['level_of_all']:g} %"
    return f"By {first['by']}: {n} segments; all {first['intervals']} intervals hold at once with {of_all}"


def segment_lines(records: Sequence[Record]) -> list[str]:
    """Summarise the records of segments: one line per difference, or one line where there is none."""
    if not records:
        return []
    first = records[0]
    n = len({record["segment"] for record in records})
    column = first["by"]
    lines = []
    for compared in dict.fromkeys(subject(record) for record in records if "baseline" in record):
        of_it = [record for record in records if subject(record) == compared]
        target = target_of(of_it[0])
        other = baseline_of(of_it[0])
        ways: dict[str, list[str]] = {way: [] for way in ("earns less", "looks worse")}
        for record in of_it:
            ways.setdefault(_said(record), []).append(segment_label(record))
        rest = ways.pop("", [])
        words = [f"{target} {way} than {other} in {', '.join(which)}" for way, which in ways.items() if which]
        if rest:
            words.append(f"cannot tell: {', '.join(rest) if len(rest) < n else f'all {n} segments'}")
        lines.append(f"By {column}: {'; '.join(words)}.")
    return lines or [f"By {column}: {n} segments; --baseline today adds each one's difference from today's policy."]


def segment_summary(whole: Record, records: Sequence[Record]) -> dict[str, object]:
    """By the key ``segments`` of a leading difference the names of the segments in which it is what; else nothing.

    Args:
        whole: the record of all rows.
        records: those of the segments.
    """
    of_it = [r for r in records if subject(r) == subject(whole)]
    if not (of_it and whole["leads"] and "baseline" in whole):
        return {}
    ways: dict[str, list[str]] = {"worse": [], "better": [], "cannot_tell": [], "do_not_use": []}
    for record in of_it:
        way = {"": "cannot_tell", "earns less": "worse", "looks worse": "worse"}.get(_said(record), "better")
        ways["do_not_use" if record["verdict_level"] == "do_not_use" else way].append(segment_label(record))
    return {"segments": {"by": of_it[0]["by"], **ways}}


def _said(record: Record) -> str:
    """Describe the record of a difference; "" where there is nothing to add."""
    sure = record["verdict_level"]
    low = record["low"]
    high = record["high"]
    if sure == "do_not_use" or low <= 0.0 <= high:
        return ""
    if sure == "trust":
        words = ("earns more", "earns less")
    else:
        words = ("looks better", "looks worse")
    if low > 0.0:
        return words[0]
    return words[1]


def segment_reasons(records: Sequence[Record]) -> list[str]:
    """The reasons to doubt segments, the gravest first: one line per reason, with the segments that it is about."""
    by_reason: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        for finding in record["findings"]:
            if finding["level"] == record["verdict_level"] != "trust":
                by_reason.setdefault((finding["level"], finding["code"]), {}).setdefault(segment_label(record), finding)
    lines = []
    for (level, _), of in sorted(by_reason.items(), key=lambda item: -LEVELS.index(item[0][0])):
        name, finding = next(iter(of.items()))
        example = ""
        if len(of) != 1:
            example = f" (in {name})"
        lines.append(f"{LEVEL_WORDS[level]} ({', '.join(of)}): {finding['message']}{example}.")
    return lines


# -------------------------------------------------------------------------------------------------------------- records

Answering = Callable[..., Estimate | None]

UNSUPPORTED = "_unsupported"
"""Behind a policy's name: the column of its mass where the logging probability is 0."""
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
    """Estimate the value of each target policy from columns that were read and checked.

    Args:
        log: see :class:`PolicyRows`.
        targets: names of columns of ``log.others``.
        estimators: as :func:`recsim_mnar.own_log.estimating.estimate_file`.
        level: likewise.
        segments: whose estimates are added.
        action: (n,) numbers of the items shown, by which segments are checked.
        **of_rows: further fields of :class:`PolicyRows`.

    Returns:
        As :func:`recsim_mnar.own_log.estimating.estimate_file`.

    Raises:
        UserError: as :func:`recsim_mnar.estimators.estimate_value`; also for segments that are refused.
    """
    rows = PolicyRows(log, **of_rows)
    estimates = rows.question(targets, estimators, level)
    records = records_of(estimates, rows.value, rows.apart)
    if segments is None:
        return records
    return records + rows.by_segment(segments, action, estimates, records)


@dataclass(frozen=True)
class PolicyRows:
    """Rows to be asked for estimates of policies.

    Attributes:
        log: their columns; ``others`` has one for each policy, its probability of the logged action.
        baseline: the policy that others are compared with.
        models: by policy, its reward model's value (n,) of the logged action and its mean (n,); where some policies
            have one, those without get no estimate that needs it.
        missing: by policy, its mass (n,) where the logging probability is 0.
        made: provenance of the log.
        largest: by policy, its largest probability of any action, where all of them are known.
        facts: of the log.
        clip: of the clipped estimators.
        precision: half the interval over the value up to which a value is trusted.
        weights: (n,) how many rows each row stands for, or None.
        interval: of values.
        today: names of the policy that logged them; None to find those whose column is that of the propensities.
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
        """The question for the values of policies, and for their differences from the baseline."""
        if self.baseline is None or self.baseline in targets:
            policies = targets
        else:
            policies = [*targets, self.baseline]
        compared = []
        if self.baseline is not None:
            compared = [name for name in targets if name != self.baseline]
        return Asked(policies, estimators, level, self.baseline, compared, self.logged, self.made, self._off_by)

    def _off_by(self, name: str, **ends: Any) -> float:
        """The tolerance of a policy by its rows."""
        target = self.log.others[name] * (1.0 if self.weights is None else self.weights)
        return weight_tolerance(self.log.reward, self.log.propensity, target, **ends)

    def _gap(self, name: str) -> Any:
        """(n,) a policy's missing mass, or None; the one that logged the rows takes nothing that it cannot take."""
        return self.missing.get(name, np.zeros(len(self.log.reward)) if name in self.logged else None)

    def most(self, *names: str) -> float | None:
        """The largest probability of any action, where it is known of all policies; that of today has no weights."""
        probabilities = [self.largest.get(name) for name in names if name not in self.logged]
        known_probabilities = [probability for probability in probabilities if probability is not None]
        if known_probabilities and len(known_probabilities) == len(probabilities):
            return max(known_probabilities)
        return None

    def _partial(self, estimate: Callable[..., Estimate], estimator: str, facts: Facts, level: float) -> Any:
        """An estimate of these rows, which lacks the policies alone."""
        return functools.partial(
            estimate,
            self.log.reward,
            self.log.propensity,
            cluster=self.log.cluster,
            weights=self.weights if estimator in known_to_differ() else None,
            facts=facts,
            estimator=estimator,
            clip=self.clip,
            level=level,
        )

    def value(self, name: str, estimator: str, *, level: float) -> Estimate | None:
        """The estimate of a policy; None where it needs a reward model that only others have."""
        needs = check_name(estimator).needs
        if needs and self.models and name not in self.models:
            return None
        facts = replace(self.facts, unsupported=self._gap(name), target_max=self.most(name))
        ask = self._partial(estimate_value, estimator, facts, level)
        model = None
        if needs:
            model = self.models.get(name)
        estimate: Estimate = ask(self.log.others[name], model=model, interval=self.interval, precision=self.precision)
        return estimate

    def apart(self, name: str, estimator: str, *, level: float) -> Estimate:
        """The estimate of a policy's difference from the baseline."""
        assert self.baseline is not None
        facts = replace(
            self.facts,
            unsupported=self._gap(name),
            baseline_unsupported=self._gap(self.baseline),
            target_max=self.most(name, self.baseline),
        )
        ask = self._partial(difference, estimator, facts, level)
        estimate: Estimate = ask(self.log.others[name], self.log.others[self.baseline])
        return estimate

    def part(self, rows: Ints) -> PolicyRows:
        """Some of the rows."""
        log, facts, numbers = self.log, self.facts, np.asarray(self.log.numbers)[rows]
        targets = {name: values[rows] for name, values in log.others.items()}
        columns = LogColumns(log.reward[rows], log.propensity[rows], users_of(log.cluster, rows), targets, numbers)
        models = {name: (_at(logged, rows), _at(mean, rows)) for name, (logged, mean) in self.models.items()}
        if facts.reward_limit is not None:
            facts = replace(facts, reward_limit=_at(facts.reward_limit, rows))
        elif np.isin(log.reward, (0.0, 1.0)).all():  # what is known of the whole log, a segment without a click knows
            if facts.reward_min is None:
                least = _CLICKS[0]
            else:
                least = facts.reward_min
            if facts.reward_max is None:
                most = _CLICKS[1]
            else:
                most = facts.reward_max
            facts = replace(facts, reward_min=least, reward_max=most)
        missing = {name: values[rows] for name, values in self.missing.items()}
        weights = _at(self.weights, rows)
        return replace(
            self, log=columns, models=models, missing=missing, facts=facts, weights=weights, today=self.logged
        )

    def by_segment(
        self, segments: Segments, action: Ints | None, asked: Asked, records: Sequence[Record]
    ) -> list[Record]:
        """The leading estimates of each segment, whose intervals hold all at once at the level that is asked for."""
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
                name = target_of(total)
                estimate = (part.apart if "baseline" in total else part.value)(name, total["estimator"], level=level)
                assert estimate is not None
                estimate = with_adaptive_findings(estimate, asked.made, *subject(total))
                estimate = estimate.with_findings(_off_everywhere(total))
                shared_fields = {key: total[key] for key in _OF_POLICIES if key in total}
                estimated.append(_record(total["policy"], part._wide_enough(estimate)) | shared_fields | more)
        return estimated

    def _wide_enough(self, estimate: Estimate) -> Estimate:
        """The estimate; that of few users has what rewards allow for an interval: at such levels any other misses."""
        if estimate.diagnostics.users >= THIN:
            return estimate
        diagnostics = estimate.diagnostics
        differs = estimate.diagnostics.value_baseline is not None
        limited = self.facts.reward_max is not None or self.facts.reward_limit is not None
        least = diagnostics.reward_min
        most = diagnostics.reward_max if limited else np.inf
        low, high = (least - most, most - least) if differs else (least, most)
        low = min(low, estimate.value)
        high = max(high, estimate.value)
        return replace(estimate, low=low, high=high, method="no interval: few users")


def _at(values: Any, rows: Ints) -> Any:
    """Some rows of a column; None for none."""
    if values is None:
        return None
    return values[rows]


@dataclass(frozen=True)
class Asked:
    """A question to a log, however its rows are read.

    Attributes:
        policies: whose values are estimated.
        estimators: names.
        level: of the intervals.
        baseline: one of the policies, or None.
        compared: policies whose differences from the baseline are estimated.
        today: names of the policy that logged the rows.
        made: provenance of the log.
        off_by: where rows are at hand, the tolerance of a policy by them.
        differing: estimators that know differences; empty for those of single items that do.
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


def records_of(asked: Asked, value: Answering, apart: Answering | None = None) -> list[Record]:
    """One record per policy and estimator, then one per difference and estimator; keys as :class:`Record`.

    The best of several policies gets ``best_of``: its interval and verdict at a level corrected for the choice.

    Args:
        asked: what is asked.
        value: the estimate of a policy by an estimator at a level; None where that estimator has none.
        apart: likewise of the difference from the baseline.
    """
    rows: list[tuple[str, str | None, Any]] = [(name, None, value) for name in asked.policies]
    rows += [(name, asked.baseline, apart) for name in asked.compared]
    records: list[Record] = []
    again: dict[tuple[str, str | None], Any] = {}
    for name, other, ask in rows:
        for estimator in asked.estimators:
            estimate = None
            if _answers(estimator, other, asked.differing):
                estimate = ask(name, estimator, level=asked.level)
            if estimate is None:
                continue
            of_it = {}
            if other is not None:
                of_it = {"baseline": other, "baseline_kind": "policy"}
            called = name
            if other is not None:
                called = f"{name} - {other}"
            estimate = with_adaptive_findings(estimate, asked.made, name, other)
            today = (other or name) in asked.today
            of_it |= {"baseline_kind": kind_of_log(estimate.numbers())} if today else {}
            role = "difference"
            if not other:
                role = "today" if today else "baseline" if name == asked.baseline else "target"
            records.append(_record(called, estimate) | {"target": name, "today": today, "role": role} | of_it)
            again[called, other] = functools.partial(ask, name)
    records = [with_tolerance(record, asked.off_by) for record in leading(records)]
    best = best_record(records)
    number = len(candidates(records))
    if best is not None and number > 1:
        at = level_of_best(asked.level, number)
        estimate = again[best["policy"], best.get("baseline")](best["estimator"], level=at)
        assert estimate is not None
        estimate = with_adaptive_findings(estimate, asked.made, *subject(best))
        ends = {"policies": number, "level": at, "low": estimate.low, "high": estimate.high}
        best["best_of"] = ends | tolerated(best | ends, asked.off_by) | estimate.verdict.to_dict()
    return records


def _off_everywhere(whole: Record) -> list[Finding]:
    """Get the findings that prove the propensities of the whole log wrong, and so those of each segment."""
    findings = [Finding.from_dict(finding) for finding in whole["findings"]]
    return [finding for finding in findings if finding.code == "propensities" and finding.level != "trust"]


def _answers(estimator: str, baseline: str | None, differing: Collection[str]) -> bool:
    """Return whether an estimator knows differences, where one is asked for."""
    return baseline is None or (estimator in differing if differing else check_name(estimator).in_blocks)


def todays(baseline: str, columns: Sequence[str], propensity: str) -> str:
    """The baseline's column: that of propensities for ``today``, unless a column has that name."""
    if baseline == "today" and "today" not in columns:
        return propensity
    return baseline


def check_question(targets: Sequence[str], estimators: Sequence[str], baseline: str | None) -> None:
    """Refuse a question without a target or estimator, or for a difference that none of the estimators knows.

    Raises:
        UserError: one of these, or an unknown estimator.
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
    """The column of each policy's missing mass, where there is one.

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
    """A record with further findings in its verdict; ``first``: before others of their level."""
    before = [Finding.from_dict(finding) for finding in record["findings"]]
    return record | Verdict(record["verdict_level"], [*findings, *before] if first else [*before, *findings]).to_dict()


@dataclass(frozen=True)
class Reason:
    """A reason for doubt, of one or several estimates.

    Attributes:
        level: "caution" or "do_not_use".
        message: what was found.
        action: what to do.
        of: the policies that it is about.
    """

    level: str
    message: str
    action: str
    of: tuple[str, ...]

    @property
    def line(self) -> str:
        """For a person, in one line."""
        of = ", ".join(self.of)
        return f"{LEVEL_WORDS[self.level]} ({of}): {self.message}. {self.action[:1].upper()}{self.action[1:]}."


def reasons(records: Sequence[Record]) -> list[Reason]:
    """The reasons to doubt estimates, the gravestt first, each once.

    A difference shares what speaks against its target, and several policies what speaks against the log. Of a policy
    that the log does not cover :func:`identified` says it.
    """
    by_policy: dict[tuple[str, str], tuple[Record, Record]] = {}
    for record in records:
        for finding in record["findings"]:
            if finding["level"] != "trust" and not (lacks(record) and finding["code"] in (*GAPS, "wide_interval")):
                by_policy.setdefault((target_of(record), finding["code"]), (record, finding))
    labels: dict[tuple[str, ...], list[str]] = {}
    for record, finding in by_policy.values():
        labels.setdefault((finding["level"], finding["message"], finding["action"]), []).append(label(record))
    listed = [Reason(level, message, action, tuple(of)) for (level, message, action), of in labels.items()]
    return sorted(listed, key=lambda reason: -LEVELS.index(reason.level))


FITTED_ON = "fitted_on"
"""Key of a replayed log's provenance: ``policies`` that were fitted, on the log of ``digest``, which shares ``shared``
of the log's ``users``; ``half`` of the users that are judged, where they were split."""
PROPENSITY_MIN = "propensity_min"
"""Key of a replayed log's provenance: no action has a smaller propensity under the ``policy`` that the log names."""
MOST_SHARED = 0.1
"""Share of users that a policy may have been fitted on before its estimate is of no use."""


def level_of_best(level: float, k: int) -> float:
    """The level of each of k intervals such that a statement about the best of them holds at ``level``.

    The best of k estimates is the luckiest too; all k intervals hold together at ``level`` if each holds at
    1 - (1 - level) / k (Bonferroni), and then so does the winner's.

    Args:
        level: in (0, 1).
        k: how many policies the best is one of, 1 and more.
    """
    return 1.0 - (1.0 - level_of(level)) / whole_number(k, "k", least=1)


def adaptive_findings(provenance: Mapping[str, Any]) -> list[Finding]:
    """Dependence between the users according to a log's provenance; empty if they are independent.

    Args:
        provenance: of a :class:`recsim_mnar.log.Log`, or of a file that it was written to.
    """
    run = provenance.get("online")
    if not isinstance(run, dict) or run.get("learns") != "all users":
        return []
    lanes = int(run.get("lanes", 1))
    return [Finding("users_not_independent", CAUTION, float(lanes), lanes=lanes)]


def fitted_findings(provenance: Mapping[str, Any], policies: Collection[str | None]) -> list[Finding]:
    """The finding of a policy that was fitted on users who judge it; empty where none is known to be.

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
    severity = CAUTION
    if shared >= MOST_SHARED * users:
        severity = GRAVE
    return [Finding("trained_on_log", severity, shared / users, shared=shared, users=users)]


def with_adaptive_findings(estimate: Estimate, provenance: Mapping[str, Any], *policies: str | None) -> Estimate:
    """The estimate of policies, its verdict with how the log was made and what they were fitted on."""
    return estimate.with_findings([*adaptive_findings(provenance), *fitted_findings(provenance, policies)])


def known_bound(provenance: Mapping[str, Any], stated: Mapping[str, Any], propensity: str) -> float | None:
    """The least propensity of the named policy according to a log's provenance; None if unknown.

    Args:
        provenance: as :func:`adaptive_findings`.
        stated: what the user states; nothing is taken where it has ``propensity_min`` or ``weight_max``.
        propensity: column of the propensities: nothing is known of another one than the log's own.
    """
    least = provenance.get(PROPENSITY_MIN)
    if propensity != "propensity" or "policy" not in provenance or not isinstance(least, float):
        return None
    stated_bounds = [stated.get(name) for name in ("propensity_min", "weight_max")]
    if stated_bounds == [None, None] and 0.0 < least <= 1.0:
        return least
    return None


def taken(records: Sequence[Record], least: float | None) -> list[Record]:
    """Records whose diagnostics say that this least propensity was taken from the provenance, where one was."""
    if least is None:
        return list(records)
    return [record | {"diagnostics": record["diagnostics"] | {"propensity_min_taken": least}} for record in records]


def bound_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe a bound that was taken from the provenance."""
    least = None
    if records:
        least = records[0]["diagnostics"].get("propensity_min_taken")
    if least is None:
        return []
    return [f"--propensity-min {least:.3g}: from the log's provenance"]
