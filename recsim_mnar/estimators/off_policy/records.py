"""The estimates of a log file: one record per policy and estimator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Estimate, difference, estimate_value
from recsim_mnar.estimators.off_policy.scores import check_name, known_to_differ
from recsim_mnar.estimators.off_policy.segments import THIN, Segments, Weights, users_of
from recsim_mnar.estimators.off_policy.sentence import best_record, candidates, leading
from recsim_mnar.estimators.off_policy.stated import Stated, level_of_best, with_adaptive_findings
from recsim_mnar.estimators.off_policy.written import (
    ByRows,
    Record,
    target_of,
    tolerated,
    weight_tolerance,
    with_tolerance,
)
from recsim_mnar.estimators.verdict import Finding
from recsim_mnar.log.columns import Ints, LogColumns

Answering = Callable[..., Estimate | None]

UNSUPPORTED = "_unsupported"
"""Behind a policy's name: the column of its mass where the logging probability is 0."""
_CLICKS = {"reward_min": 0.0, "reward_max": 1.0}


def estimate_columns(
    log: LogColumns,
    targets: Sequence[str],
    *,
    baseline: str | None = None,
    estimators: Sequence[str] = ("ips", "snips"),
    clip: float | None = None,
    level: float = 0.95,
    interval: str = "auto",
    models: Mapping[str, Mapping[str, Any]] | None = None,
    missing: Mapping[str, Any] | None = None,
    made: Mapping[str, Any] | None = None,
    largest: Mapping[str, float] | None = None,
    segments: Segments | None = None,
    action: Ints | None = None,
    **stated: Any,
) -> list[Record]:
    """Estimate the value of each target policy from columns that were read and checked.

    Args:
        log: with a column of ``others`` for each policy: its probability of the logged action.
        targets: names of such columns.
        baseline: likewise.
        estimators: as :func:`recsim_mnar.own_log.estimating.estimate_file`.
        clip: likewise.
        level: likewise.
        interval: likewise.
        models: by policy, the arrays ``q_logged`` and ``q_target`` of its reward model; where some policies have one,
            those without get no estimate that needs it.
        missing: by policy, its mass (n,) where the logging probability is 0.
        made: provenance of the log.
        largest: by policy, its largest probability of any action, where all of them are known.
        segments: whose estimates are added.
        action: (n,) numbers of the items shown, by which segments are checked.
        **stated: as :func:`recsim_mnar.own_log.estimating.estimate_file`, and the column ``reward_limit`` (n,).

    Returns:
        As :func:`recsim_mnar.own_log.estimating.estimate_file`.

    Raises:
        UserError: as :func:`recsim_mnar.estimators.estimate_value`.
    """
    policies = targets if baseline is None or baseline in targets else [*targets, baseline]
    # The policy that logged the rows takes nothing that it cannot take.
    today = [name for name in policies if log.others[name] is log.propensity]
    missing = {**{name: np.zeros(len(log.reward)) for name in today}, **(missing or {})}
    rows = _Rows(log, baseline, today, models or {}, missing, largest or {}, {"clip": clip, **stated}, interval)

    def off_by(name: str, **ends: Any) -> float:
        return weight_tolerance(log.reward, log.propensity, log.others[name], **ends)

    compared = [] if baseline is None else [name for name in targets if name != baseline]
    asked = Asked(policies, estimators, level, baseline, compared, set(today), made or {}, off_by)
    records = records_of(asked, rows.value, rows.apart)
    return records if segments is None else records + rows.by_segment(segments, action, asked, records)


@dataclass(frozen=True)
class _Rows:
    """Rows to be asked for estimates, as :func:`estimate_columns`.

    Attributes:
        log: their columns.
        baseline: the policy that others are compared with.
        today: names of the policy that logged them.
        models: reward models by policy.
        missing: mass by policy.
        largest: probability by policy.
        common: what all estimates are given.
        interval: of values.
    """

    log: LogColumns
    baseline: str | None
    today: Collection[str]
    models: Mapping[str, Mapping[str, Any]]
    missing: Mapping[str, Any]
    largest: Mapping[str, float]
    common: Mapping[str, Any]
    interval: str

    def most(self, *names: str) -> float | None:
        """The largest probability of any action, where it is known of all policies; that of today has no weights."""
        found = [self.largest.get(name) for name in names if name not in self.today]
        known = [each for each in found if each is not None]
        return max(known) if known and len(known) == len(found) else None

    def value(self, name: str, estimator: str, *, level: float) -> Estimate | None:
        """The estimate of a policy; None where it needs a reward model that only others have."""
        log, needs = self.log, check_name(estimator).needs
        if needs and self.models and name not in self.models:
            return None
        given: Mapping[str, Any] = self.models.get(name, {}) if needs else {}
        return estimate_value(
            log.reward, log.propensity, log.others[name], estimator=estimator, interval=self.interval, level=level,
            unsupported=self.missing.get(name), target_max=self.most(name), cluster=log.cluster, **given, **self.common,
        )  # fmt: skip

    def apart(self, name: str, estimator: str, *, level: float) -> Estimate:
        """The estimate of a policy's difference from the baseline."""
        log, missing = self.log, self.missing
        assert self.baseline is not None
        return difference(
            log.reward, log.propensity, log.others[name], log.others[self.baseline], estimator=estimator, level=level,
            unsupported=missing.get(name), baseline_unsupported=missing.get(self.baseline),
            target_max=self.most(name, self.baseline), cluster=log.cluster, **self.common,
        )  # fmt: skip

    def part(self, rows: Ints) -> _Rows:
        """Some of the rows."""
        log, numbers = self.log, np.asarray(self.log.numbers)[rows]
        others = {name: values[rows] for name, values in log.others.items()}
        columns = LogColumns(log.reward[rows], log.propensity[rows], users_of(log.cluster, rows), others, numbers)
        models = {name: {key: values[rows] for key, values in own.items()} for name, own in self.models.items()}
        common = {key: value[rows] if np.ndim(value) else value for key, value in self.common.items()}
        clicks = common.get("reward_limit") is None and np.isin(log.reward, (0.0, 1.0)).all()
        if clicks:  # what is known of the whole log, a segment without a click knows too
            common |= {key: end for key, end in _CLICKS.items() if common.get(key) is None}
        missing = {name: values[rows] for name, values in self.missing.items()}
        return replace(self, log=columns, models=models, missing=missing, common=common)

    def by_segment(
        self, segments: Segments, action: Ints | None, asked: Asked, records: Sequence[Record]
    ) -> list[Record]:
        """The leading estimates of each segment, whose intervals hold all at once at the level that is asked for."""
        log, leaders = self.log, [record for record in records if record["leads"]]
        known = {key: self.common.get(key) for key in ("propensity_min", "weight_max", "full_support")}
        stated = Stated(bool(known["full_support"]), None, None, known["weight_max"], known["propensity_min"])
        targets = {name: log.others[name] for name in asked.policies if name not in self.today}
        Weights(log.reward, log.propensity, log.cluster, targets, self.missing, action, stated).refuse(segments)
        number = len(segments.names) * len(leaders)
        level, found = level_of_best(asked.level, number), []
        for value, rows in segments:
            part = self.part(rows)
            more = {"leads": False, "by": segments.column, "segment": value}
            more |= {"intervals": number, "level_of_all": asked.level}
            for whole in leaders:
                name = target_of(whole)
                estimate = (part.apart if "baseline" in whole else part.value)(name, whole["estimator"], level=level)
                assert estimate is not None
                names = [each for each in (name, whole.get("baseline")) if each is not None]
                estimate = with_adaptive_findings(estimate, asked.made, *names).with_findings(_off_everywhere(whole))
                of_it = {"baseline": whole["baseline"]} if "baseline" in whole else {}
                found.append(_record(whole["policy"], part._wide_enough(estimate), whole["today"]) | of_it | more)
        return found

    def _wide_enough(self, estimate: Estimate) -> Estimate:
        """The estimate; that of few users has what rewards allow for an interval: at such levels any other misses."""
        if estimate.diagnostics["users"] >= THIN:
            return estimate
        facts, differs = estimate.diagnostics, "value_baseline" in estimate.diagnostics
        known = self.common.get("reward_max") is not None or self.common.get("reward_limit") is not None
        least, most = facts["reward_min"], facts["reward_max"] if known else np.inf
        low, high = (least - most, most - least) if differs else (least, most)
        low, high = min(low, estimate.value), max(high, estimate.value)
        return replace(estimate, low=low, high=high, method="no interval: few users")


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
    """

    policies: Sequence[str]
    estimators: Sequence[str]
    level: float
    baseline: str | None = None
    compared: Sequence[str] = ()
    today: Collection[str] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
    off_by: ByRows | None = None


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
            estimate = ask(name, estimator, level=asked.level) if _answers(estimator, other) else None
            if estimate is None:
                continue
            of_it = {} if other is None else {"baseline": other}
            called = name if other is None else f"{name} - {other}"
            estimate = with_adaptive_findings(estimate, asked.made, *(n for n in (name, other) if n is not None))
            records.append(_record(called, estimate, (other or name) in asked.today) | of_it)
            again[called, other] = functools.partial(ask, name)
    records = [with_tolerance(record, asked.off_by) for record in leading(records)]
    best, number = best_record(records), len(candidates(records))
    if best is not None and number > 1:
        at = level_of_best(asked.level, number)
        estimate = again[best["policy"], best.get("baseline")](best["estimator"], level=at)
        assert estimate is not None
        names = best["policy"].split(" - ") if "baseline" in best else [best["policy"]]
        estimate = with_adaptive_findings(estimate, asked.made, *names)
        ends = {"policies": number, "level": at, "low": estimate.low, "high": estimate.high}
        best["best_of"] = ends | tolerated(best | ends, asked.off_by) | estimate.verdict.to_dict()
    return records


def _off_everywhere(whole: Record) -> list[Finding]:
    """What proves the propensities of the whole log wrong, and so those of each segment."""
    found = [each for each in whole["findings"] if each["code"] == "propensities" and each["level"] != "trust"]
    return [Finding(**{key: value for key, value in each.items() if key != "level"}) for each in found]


def _answers(estimator: str, baseline: str | None) -> bool:
    """Whether an estimator knows differences, where one is asked for."""
    return baseline is None or check_name(estimator).from_moments


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


def _record(policy: str, estimate: Estimate, today: bool) -> Record:
    return {
        "policy": policy,
        "estimator": estimate.estimator,
        "value": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "level": estimate.level,
        "method": estimate.method,
        "n": estimate.n,
        "ess": estimate.ess,
        **estimate.verdict.to_dict(),
        "diagnostics": estimate.diagnostics,
        "today": today,
    }
