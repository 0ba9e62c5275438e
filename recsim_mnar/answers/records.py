"""The estimates of a log file: one record per policy and estimator, of all rows and of segments.

Segments are the rows by a column's values, where the column was fixed before the recommendation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from recsim_mnar.answers.provenance import level_of_best, with_adaptive_findings
from recsim_mnar.answers.sentence import (
    ByRows,
    Record,
    baseline_of,
    best_record,
    candidates,
    kind_of_log,
    leading,
    subject,
    target_of,
    tolerated,
    weight_tolerance,
    with_tolerance,
)
from recsim_mnar.errors import UserError, printable
from recsim_mnar.estimators import Estimate, difference, estimate_value
from recsim_mnar.estimators.checks import mean_weight_limits
from recsim_mnar.estimators.facts import PRECISION, Facts
from recsim_mnar.estimators.refuters import refute
from recsim_mnar.estimators.scores import check_name, known_to_differ
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import CAUTION, LEVEL_WORDS, LEVELS, Finding, Verdict, written
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Clusters, Floats, Ints, LogColumns

MOST = 100
"""Segments that are estimated at most."""
FIXED = 0.99
"""Level of the limits of all mean weights together that refuse a column: by chance, one fixed column in 200 at most."""
CERTAIN = 20
"""Users of a segment from which it is no chance that all its rows have what at most half of the log's rows have."""
THIN = 30
"""Users below which a segment has no interval: at the level that many intervals share, it would miss too often."""
NOT_FIXED, TOO_MANY = "segment_not_fixed", "too_many_segments"
"""Codes of why a column is refused."""
NO_VALUE = "no value"


class RefusedColumnError(UserError):
    """A column by which no segments are estimated; the estimates of all rows are not touched by it.

    Attributes:
        column: its name.
        code: :data:`NOT_FIXED` or :data:`TOO_MANY`.
    """

    def __init__(self, message: str, column: str = "", code: str = NOT_FIXED) -> None:
        super().__init__(message, code=code)
        self.column = column

    @staticmethod
    def of(column: str, code: str = NOT_FIXED, **params: Any) -> RefusedColumnError:
        """The error of a code of ``findings.toml``; ``params`` are those of its text."""
        return RefusedColumnError(printable(f"--by {column}: {written(code, 'says', params)}"), column, code)

    def to_dict(self) -> Mapping[str, object]:
        """For JSON."""
        return {"by": self.column, "code": self.code, "message": str(self)}


@dataclass(frozen=True)
class Segments:
    """Rows by the values of a column, those of most rows first and those without a value last.

    Attributes:
        column: its name.
        names: the values; None for the rows without one.
        rows: by segment, its rows in ascending order.
    """

    column: str
    names: tuple[str | None, ...]
    rows: tuple[Ints, ...]

    @staticmethod
    def of(column: str, codes: Ints, values: Any) -> Segments:
        """Segments of rows.

        Args:
            column: its name.
            codes: (n,) which of the values each row has; -1 for none.
            values: all of them.

        Raises:
            RefusedColumnError: more than :data:`MOST` segments.
        """
        used, sizes = np.unique(codes, return_counts=True)
        if used.size > MOST:
            raise RefusedColumnError.of(column, TOO_MANY, number=used.size, most=MOST)
        order, ends = np.argsort(codes, kind="stable"), np.cumsum(sizes)
        rows_of = {int(code): order[end - size : end] for code, size, end in zip(used, sizes, ends, strict=True)}
        listed = sorted(rows_of, key=lambda code: (code < 0, -rows_of[code].size, code))
        names = tuple(None if code < 0 else str(values[code]) for code in listed)
        return Segments(column, names, tuple(rows_of[code] for code in listed))

    def where(self, value: str | None) -> str:
        """A segment, in a sentence."""
        return f"where {self.column} is {value}" if value is not None else f"where {self.column} has no value"

    def __iter__(self) -> Iterator[tuple[str | None, Ints]]:
        return iter(zip(self.names, self.rows, strict=True))


def users_of(clusters: Clusters | None, rows: Ints) -> Clusters | None:
    """The users of some rows."""
    return None if clusters is None else clusters.at(rows)


@dataclass(frozen=True)
class Weights:
    """What says whether a column was fixed before the recommendation: E[w | segment] = 1 then, of any policy.

    Where the log lacks support it is less, so that below 1 is a proof only where support and a bound of the weights are
    stated.

    Attributes:
        reward: (n,).
        propensity: (n,).
        users: of the rows, or None.
        targets: by policy, (n,) its probability of the logged action.
        missing: by policy, (n,) its mass where the logging probability is 0.
        action: (n,) numbers of the items shown, from 0; None where they are not known.
        facts: of the log.
    """

    reward: Floats
    propensity: Floats
    users: Clusters | None
    targets: Mapping[str, Floats]
    missing: Mapping[str, Floats]
    action: Ints | None
    facts: Facts

    def refuse(self, segments: Segments) -> None:
        """Refuse a column that depends on what was recommended.

        By each policy's weights; and, where the items shown are known, by those of a policy that shows the items a
        segment has too many of: found on half of the users, and tested on the others. What the whole log's weights fail
        is the propensities' fault and not the column's, so it is passed over: the verdicts say it.

        Raises:
            RefusedColumnError: a mean weight is proved not to be 1; all segments, policies and items together at
                :data:`FIXED`. Or the column says what the reward is.
        """
        self._refuse_outcomes(segments)
        level = 1.0 - (1.0 - FIXED) / (len(segments.names) * (len(self.targets) + 2))
        everything = np.arange(self.propensity.size)
        sound = [name for name in self.targets if not self._by_policy(name, everything, level)]
        items = self.action is not None and not self._by_items(everything, level)
        for value, rows in segments:
            named = [f"the mean weight of {name} is" for name in sound]
            found = [self._by_policy(name, rows, level) for name in sound]
            if items:
                named.append("the items shown there have a mean weight of")
                found.append(self._by_items(rows, level))
            for words, mean in zip(named, found, strict=True):
                if mean is not None:
                    said, wanted = told_apart(mean, 1.0)
                    params = {"where": segments.where(value), "what": words, "said": said, "wanted": wanted}
                    raise RefusedColumnError.of(segments.column, says="weights", **params)

    def _refuse_outcomes(self, segments: Segments) -> None:
        """Refuse a column with a segment all of whose rows are rewarded, or none where most are."""
        rewarded = self.reward > self.reward.min()
        usual = bool(rewarded.mean() > 0.5)
        for value, rows in segments:
            users = rows if self.users is None else np.unique(self.users.codes[rows])
            if users.size >= CERTAIN and np.all(rewarded[rows] != usual):
                what = f"none of the {rows.size:,} rows is" if usual else f"all {rows.size:,} rows are"
                raise RefusedColumnError.of(segments.column, says="rewards", where=segments.where(value), what=what)

    def _by_policy(self, name: str, rows: Ints, level: float) -> float | None:
        missing = self.missing.get(name)
        lost = 0.0 if missing is None else float(np.mean(missing[rows]))
        return self._off(self.targets[name][rows], rows, level, lost, self.facts)

    def _by_items(self, rows: Ints, level: float) -> float | None:
        """The mean weight, proved to be above 1, of a policy made of half of the users, on the other half."""
        assert self.action is not None
        half = np.arange(rows.size) if self.users is None else self.users.dense()[0][rows]
        for first in (0, 1):
            law = _too_many(self.action[rows[half % 2 == first]], self.propensity[rows[half % 2 == first]])
            others = rows[half % 2 != first]
            if law.any() and others.size:
                target = np.append(law, np.zeros(self.action.max() + 1 - law.size))[self.action[others]]
                mean = self._off(target, others, level, 0.0, Facts())
                if mean is not None:
                    return mean
        return None

    def _off(self, target: Floats, rows: Ints, level: float, lost: float, facts: Facts) -> float | None:
        """The mean weight on some rows, where it is proved to be none of a column that was fixed before."""
        sums = PolicySums.of(self.propensity[rows], target, users_of(self.users, rows))
        low, high = mean_weight_limits(sums, level)
        below = facts.supports and high + lost < 1.0
        return sums.mean_weight if low + lost > 1.0 or below else None


def _too_many(action: Ints, propensity: Floats) -> Floats:
    """A law on the items whose mean of 1 / propensity is above 1, each by its excess over its variance; 0 if none."""
    weight = 1.0 / propensity
    mean, square = np.bincount(action, weight), np.bincount(action, weight**2)
    law = np.maximum(mean - action.size, 0.0) / np.maximum(square, 1e-300)
    return law / law.sum() if law.any() else law


def segment_label(record: Record) -> str:
    """Reader's name of a record's segment."""
    return NO_VALUE if record["segment"] is None else str(record["segment"])


def segment_title(records: Sequence[Record]) -> str:
    """What holds of the intervals of some segments."""
    first = records[0]
    n, of_all = len({record["segment"] for record in records}), f"{100 * first['level_of_all']:g} %"
    return f"By {first['by']}: {n} segments; all {first['intervals']} intervals hold at once with {of_all}"


def segment_lines(records: Sequence[Record]) -> list[str]:
    """What the records of segments come to, for a person: one line per difference, or one where there is none."""
    if not records:
        return []
    first = records[0]
    n, column = len({record["segment"] for record in records}), first["by"]
    lines = []
    for compared in dict.fromkeys(subject(record) for record in records if "baseline" in record):
        of_it = [record for record in records if subject(record) == compared]
        target, other = target_of(of_it[0]), baseline_of(of_it[0])
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
    """What the record of a difference says; "" where it says nothing."""
    sure, low, high = record["verdict_level"], record["low"], record["high"]
    if sure == "do_not_use" or low <= 0.0 <= high:
        return ""
    words = ("earns more", "earns less") if sure == "trust" else ("looks better", "looks worse")
    return words[0] if low > 0.0 else words[1]


def segment_reasons(records: Sequence[Record]) -> list[str]:
    """The reasons to doubt segments, the gravest first: one line per reason, with the segments that it is about."""
    by_reason: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        for each in record["findings"]:
            if each["level"] == record["verdict_level"] != "trust":
                by_reason.setdefault((each["level"], each["code"]), {}).setdefault(segment_label(record), each)
    lines = []
    for (level, _), of in sorted(by_reason.items(), key=lambda item: -LEVELS.index(item[0][0])):
        name, each = next(iter(of.items()))
        example = "" if len(of) == 1 else f" (in {name})"
        lines.append(f"{LEVEL_WORDS[level]} ({', '.join(of)}): {each['message']}{example}.")
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
    asked = rows.question(targets, estimators, level)
    records = records_of(asked, rows.value, rows.apart)
    return records if segments is None else records + rows.by_segment(segments, action, asked, records)


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
        policies = targets if self.baseline is None or self.baseline in targets else [*targets, self.baseline]
        compared = [] if self.baseline is None else [name for name in targets if name != self.baseline]
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
        known = [each for each in probabilities if each is not None]
        return max(known) if known and len(known) == len(probabilities) else None

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
        model = self.models.get(name) if needs else None
        found: Estimate = ask(self.log.others[name], model=model, interval=self.interval, precision=self.precision)
        return found

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
        found: Estimate = ask(self.log.others[name], self.log.others[self.baseline])
        return found

    def part(self, rows: Ints) -> PolicyRows:
        """Some of the rows."""
        log, facts, numbers = self.log, self.facts, np.asarray(self.log.numbers)[rows]
        others = {name: values[rows] for name, values in log.others.items()}
        columns = LogColumns(log.reward[rows], log.propensity[rows], users_of(log.cluster, rows), others, numbers)
        models = {name: (_at(logged, rows), _at(mean, rows)) for name, (logged, mean) in self.models.items()}
        if facts.reward_limit is not None:
            facts = replace(facts, reward_limit=_at(facts.reward_limit, rows))
        elif np.isin(log.reward, (0.0, 1.0)).all():  # what is known of the whole log, a segment without a click knows
            least = _CLICKS[0] if facts.reward_min is None else facts.reward_min
            most = _CLICKS[1] if facts.reward_max is None else facts.reward_max
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
        log, leaders = self.log, [record for record in records if record["leads"]]
        targets = {name: log.others[name] for name in asked.policies if name not in self.logged}
        if self.weights is None:
            Weights(log.reward, log.propensity, log.cluster, targets, self.missing, action, self.facts).refuse(segments)
        number = len(segments.names) * len(leaders)
        level, estimated = level_of_best(asked.level, number), []
        for value, rows in segments:
            part = self.part(rows)
            more = {"leads": False, "by": segments.column, "segment": value}
            more |= {"intervals": number, "level_of_all": asked.level}
            for whole in leaders:
                name = target_of(whole)
                estimate = (part.apart if "baseline" in whole else part.value)(name, whole["estimator"], level=level)
                assert estimate is not None
                estimate = with_adaptive_findings(estimate, asked.made, *subject(whole))
                estimate = estimate.with_findings(_off_everywhere(whole))
                own = {key: whole[key] for key in _OF_POLICIES if key in whole}
                estimated.append(_record(whole["policy"], part._wide_enough(estimate)) | own | more)
        return estimated

    def _wide_enough(self, estimate: Estimate) -> Estimate:
        """The estimate; that of few users has what rewards allow for an interval: at such levels any other misses."""
        if estimate.diagnostics.users >= THIN:
            return estimate
        found, differs = estimate.diagnostics, estimate.diagnostics.value_baseline is not None
        limited = self.facts.reward_max is not None or self.facts.reward_limit is not None
        least, most = found.reward_min, found.reward_max if limited else np.inf
        low, high = (least - most, most - least) if differs else (least, most)
        low, high = min(low, estimate.value), max(high, estimate.value)
        return replace(estimate, low=low, high=high, method="no interval: few users")


def _at(values: Any, rows: Ints) -> Any:
    """Some rows of a column; None for none."""
    return None if values is None else values[rows]


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
            estimate = ask(name, estimator, level=asked.level) if _answers(estimator, other, asked.differing) else None
            if estimate is None:
                continue
            of_it = {} if other is None else {"baseline": other, "baseline_kind": "policy"}
            called = name if other is None else f"{name} - {other}"
            estimate = with_adaptive_findings(estimate, asked.made, name, other)
            today = (other or name) in asked.today
            of_it |= {"baseline_kind": kind_of_log(estimate.numbers())} if today else {}
            role = "difference" if other else "today" if today else "baseline" if name == asked.baseline else "target"
            records.append(_record(called, estimate) | {"target": name, "today": today, "role": role} | of_it)
            again[called, other] = functools.partial(ask, name)
    records = [with_tolerance(record, asked.off_by) for record in leading(records)]
    best, number = best_record(records), len(candidates(records))
    if best is not None and number > 1:
        at = level_of_best(asked.level, number)
        estimate = again[best["policy"], best.get("baseline")](best["estimator"], level=at)
        assert estimate is not None
        estimate = with_adaptive_findings(estimate, asked.made, *subject(best))
        ends = {"policies": number, "level": at, "low": estimate.low, "high": estimate.high}
        best["best_of"] = ends | tolerated(best | ends, asked.off_by) | estimate.verdict.to_dict()
    return records


def _off_everywhere(whole: Record) -> list[Finding]:
    """What proves the propensities of the whole log wrong, and so those of each segment."""
    findings = [Finding.from_dict(finding) for finding in whole["findings"]]
    return [finding for finding in findings if finding.code == "propensities" and finding.level != "trust"]


def _answers(estimator: str, baseline: str | None, differing: Collection[str]) -> bool:
    """Whether an estimator knows differences, where one is asked for."""
    return baseline is None or (estimator in differing if differing else check_name(estimator).in_blocks)


def todays(baseline: str, columns: Sequence[str], propensity: str) -> str:
    """The baseline's column: that of propensities for ``today``, unless a column has that name."""
    return propensity if baseline == "today" and "today" not in columns else baseline


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


# ------------------------------------------------------------------------------------------------------------- refuters


def with_refuters(
    records: Sequence[Record], targets: Sequence[str], log: LogColumns, least: float | None = None, **shown: Any
) -> list[Record]:
    """The records, each target's leading value with ``refuters``, and verdicts with what they found.

    Args:
        records: of :func:`recsim_mnar.own_log.estimating.estimate_file`.
        targets: names; one that takes none of the logged actions is left out.
        log: the rows behind them.
        least: no item has a smaller propensity in any row, where the log's provenance says so.
        **shown: further columns (n,), if the file has them: ids of the items shown (``action``), one that was known
            before the item was chosen (``context``), and numbers that grow with ``time``.
    """
    users = None if log.cluster is None else log.cluster.codes
    known = {"cluster": users, "propensity_min": least, **shown}
    found = {
        name: refute(log.reward, log.propensity, log.others[name], **known)
        for name in targets
        if log.others[name].any()
    }
    changed = []
    for record in records:
        of_it, before = found.get(target_of(record), []), {finding["code"] for finding in record["findings"]}
        new = [finding for finding in of_it if finding.severity >= CAUTION and finding.code not in before]
        record = with_findings(record, new)
        if of_it and record["leads"] and "baseline" not in record:
            record |= {"refuters": [finding.to_dict() for finding in of_it]}
        changed.append(record)
    return changed


def with_findings(record: Record, findings: Sequence[Finding], *, first: bool = False) -> Record:
    """A record with further findings in its verdict; ``first``: before others of their level."""
    before = [Finding.from_dict(finding) for finding in record["findings"]]
    return record | Verdict(record["verdict_level"], [*findings, *before] if first else [*before, *findings]).to_dict()


def refuter_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Outcome of the refuters, one line per policy; their findings are among the reasons."""
    lines = []
    for record in records:
        if "refuters" in record:
            alarms = [finding["code"] for finding in record["refuters"] if finding["level"] != "trust"]
            found = f"{', '.join(dict.fromkeys(alarms))} found something" if alarms else "none found anything"
            lines.append(f"refuters of {record['policy']}: {len(record['refuters'])} run, {found}")
    return lines
