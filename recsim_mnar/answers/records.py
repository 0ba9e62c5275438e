"""Build the records of estimates: one per policy and estimator, for all rows and for segments.

A record is a dict of JSON types with an estimate, its verdict and its diagnostics; its keys are listed in
:class:`recsim_mnar.own_log.estimating.Answer`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from recsim_mnar.answers.sentence import ByRows, best_record, candidates, leading, tolerated, with_tolerance
from recsim_mnar.answers.weights import THIN, Segments, SegmentTest, weight_tolerance
from recsim_mnar.answers.words import Record, kind_of_log, subject, target_of
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import difference, estimate_value
from recsim_mnar.estimators.facts import PRECISION, Facts
from recsim_mnar.estimators.scores import check_name, known_to_differ
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Estimate, Finding, Verdict
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.log.columns import Ints, LogColumns

EstimateFunction = Callable[..., Estimate | None]
"""Function (policy, estimator, *, level) that estimates; None if that estimator cannot be computed for the policy."""
UNSUPPORTED = "_unsupported"
"""Suffix of the column with a policy's probability of actions whose logging probability is 0."""
_ESTIMATE_KEYS = ("estimator", "value", "low", "high", "level", "method", "n", "ess")
"""Fields of an estimate that a record has."""
_POLICY_KEYS = ("target", "today", "role", "baseline", "baseline_kind")
"""Keys of a record that describe its policies."""
_CLICKS = (0.0, 1.0)
"""Rewards of a log of clicks."""


@dataclass(frozen=True)
class EstimateRequest:
    """Request for estimates: policies, estimators and comparisons, independent of how the rows are read.

    Attributes:
        policies: names of the policies whose values are estimated.
        estimators: names of estimators.
        level: nominal coverage of the intervals.
        baseline: name of the policy that others are compared with; None for no comparison.
        compared: names of the policies whose differences from the baseline are estimated.
        today: names of the policy that logged the rows.
        made: provenance of the log.
        tolerance: function that computes a policy's propensity tolerance from the rows; None if no rows are in memory.
        difference_estimators: names of the estimators that can estimate differences; empty for decisions on single
            items, whose estimators have an attribute for it.
    """

    policies: Sequence[str]
    estimators: Sequence[str]
    level: float
    baseline: str | None = None
    compared: Sequence[str] = ()
    today: Collection[str] = ()
    made: Mapping[str, Any] = field(default_factory=dict)
    tolerance: ByRows | None = None
    difference_estimators: Collection[str] = ()

    def has_difference(self, estimator: str) -> bool:
        """Return whether an estimator can estimate the difference of two policies."""
        if self.difference_estimators:
            return estimator in self.difference_estimators
        return check_name(estimator).in_blocks

    def role(self, name: str, compared_with: str | None) -> str:
        """Return "difference", "today", "baseline" or "target": the role of the record of a policy.

        Args:
            name: name of the policy.
            compared_with: name of the policy that its value is compared with; None for the value itself.
        """
        if compared_with is not None:
            return "difference"
        if name in self.today:
            return "today"
        if name == self.baseline:
            return "baseline"
        return "target"


def records_of(
    request: EstimateRequest, value: EstimateFunction, difference_from_baseline: EstimateFunction | None = None
) -> list[Record]:
    """Estimate policies and differences, and return one record per policy and estimator, then per difference.

    Args:
        request: policies, comparisons and estimators.
        value: function (policy, estimator, *, level) that estimates a policy's value; None if the estimator cannot.
        difference_from_baseline: function with the same arguments that estimates the difference from the baseline; None
            if there is no baseline.

    Returns:
        Records. The best of several policies has ``best_of``: interval and verdict at a level corrected for the choice.
    """
    pairs: list[tuple[str, str | None, Any]] = [(name, None, value) for name in request.policies]
    pairs += [(name, request.baseline, difference_from_baseline) for name in request.compared]
    records: list[Record] = []
    functions: dict[tuple[str, str | None], Any] = {}
    for name, baseline, estimate_policy in pairs:
        policy = name if baseline is None else f"{name} - {baseline}"
        functions[policy, baseline] = functools.partial(estimate_policy, name)
        for estimator in request.estimators:
            if baseline is not None and not request.has_difference(estimator):
                continue
            estimate = estimate_policy(name, estimator, level=request.level)
            if estimate is None:
                continue
            estimate = with_adaptive_findings(estimate, request.made, name, baseline)
            today = (baseline or name) in request.today
            record = _record(policy, estimate)
            record |= {"target": name, "today": today, "role": request.role(name, baseline)}
            if baseline is not None:
                record |= {"baseline": baseline, "baseline_kind": "policy"}
            if today:
                record["baseline_kind"] = kind_of_log(estimate.numbers())
            records.append(record)
    records = [with_tolerance(record, request.tolerance) for record in leading(records)]
    _add_best_of(records, request, functions)
    return records


def _add_best_of(
    records: Sequence[Record], request: EstimateRequest, functions: Mapping[tuple[str, str | None], EstimateFunction]
) -> None:
    """Add ``best_of`` to the record of the best policy, in place, if it was chosen from several.

    Args:
        records: records of all policies and differences.
        request: request that they answer.
        functions: function (estimator, *, level) that estimates each policy, by its name and that of the baseline.
    """
    best = best_record(records)
    number = len(candidates(records))
    if best is None or number <= 1:
        return
    level = level_of_best(request.level, number)
    estimate = functions[best["policy"], best.get("baseline")](best["estimator"], level=level)
    assert estimate is not None
    estimate = with_adaptive_findings(estimate, request.made, *subject(best))
    ends = {"policies": number, "level": level, "low": estimate.low, "high": estimate.high}
    best["best_of"] = ends | tolerated(best | ends, request.tolerance) | estimate.verdict.to_dict()


def baseline_column(baseline: str, columns: Sequence[str], propensity: str) -> str:
    """Return the name of the baseline's column.

    Args:
        baseline: name of a column, or "today" for the policy that logged the rows.
        columns: names of all columns; one that is named "today" comes first.
        propensity: name of the column of propensities, which is the logging policy's.
    """
    if baseline == "today" and "today" not in columns:
        return propensity
    return baseline


def check_question(targets: Sequence[str], estimators: Sequence[str], baseline: str | None) -> None:
    """Refuse a request that cannot be answered.

    Raises:
        UserError: no target, no estimator, an unknown one, or a baseline and no estimator of differences.
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


def missing_columns(policies: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Return, by policy, the column with its probability of actions that the log never takes, if there is one."""
    return {name: name + UNSUPPORTED for name in policies if name + UNSUPPORTED in columns}


def _record(policy: str, estimate: Estimate) -> Record:
    """Return the keys of a record that come from its estimate."""
    return {
        "policy": policy,
        **{name: getattr(estimate, name) for name in _ESTIMATE_KEYS},
        **estimate.verdict.to_dict(),
        "diagnostics": estimate.numbers(),
    }


def with_findings(record: Record, findings: Sequence[Finding], *, first: bool = False) -> Record:
    """Return a record with more findings in its verdict; with ``first``, they precede others of the same level."""
    present = [Finding.from_dict(finding) for finding in record["findings"]]
    if first:
        combined = [*findings, *present]
    else:
        combined = [*present, *findings]
    return record | Verdict(record["verdict_level"], combined).to_dict()


FITTED_ON = "fitted_on"
"""Key in the provenance of a replayed log, for a dict about policies that were fitted on data: their names
(``policies``), the ``digest`` of the log that they were fitted on, the number of ``users`` of this log and how many of
them that log has too (``shared``)."""
PROPENSITY_MIN = "propensity_min"
"""Key in the provenance of a replayed log, for the smallest propensity under its ``policy``."""
MOST_SHARED = 0.1
"""Share of a log's users that a policy was fitted on from which its estimate on that log must not be used."""


def level_of_best(level: float, k: int) -> float:
    """Return the level of each of k intervals such that all of them hold jointly at ``level`` (Bonferroni).

    The best of k estimates is likely to be a lucky one. An interval for it at the returned level, 1 - (1 - level) / k,
    is valid despite the choice.

    Args:
        level: joint level, in (0, 1).
        k: number of intervals, 1 or more.
    """
    return 1.0 - (1.0 - level_of(level)) / whole_number(k, "k", least=1)


def adaptive_findings(provenance: Mapping[str, Any]) -> list[Finding]:
    """Return the finding that users are not independent, if the logging policy learned from all users; else [].

    Args:
        provenance: provenance of a :class:`recsim_mnar.log.Log`, or of a file that it was written to.
    """
    run = provenance.get("online")
    if not isinstance(run, dict) or run.get("learns") != "all users":
        return []
    lanes = int(run.get("lanes", 1))
    return [Finding("users_not_independent", CAUTION, float(lanes), lanes=lanes)]


def fitted_findings(provenance: Mapping[str, Any], policies: Collection[str | None]) -> list[Finding]:
    """Return the finding that a policy is evaluated on users that it was fitted on, if it is; else an empty list.

    Args:
        provenance: provenance of the log.
        policies: names of the policies that are estimated.
    """
    fitted = provenance.get(FITTED_ON)
    if not isinstance(fitted, dict) or not set(fitted.get("policies", ())) & set(policies):
        return []
    shared = int(fitted.get("shared", 0))
    users = max(int(fitted.get("users", 0)), 1)  # at least 1, so that the share below is defined
    if shared == 0:
        return []
    severity = GRAVE if shared >= MOST_SHARED * users else CAUTION
    return [Finding("trained_on_log", severity, shared / users, shared=shared, users=users)]


def with_adaptive_findings(estimate: Estimate, provenance: Mapping[str, Any], *policies: str | None) -> Estimate:
    """Return an estimate with findings from the log's provenance: on dependent users and on fitted policies."""
    return estimate.with_findings([*adaptive_findings(provenance), *fitted_findings(provenance, policies)])


def known_bound(provenance: Mapping[str, Any], stated: Mapping[str, Any], propensity: str) -> float | None:
    """Return the smallest propensity that a log's provenance records.

    Args:
        provenance: provenance of the log.
        stated: facts that the user states, by name.
        propensity: name of the column of propensities; the provenance is about the column ``propensity`` only.

    Returns:
        The smallest propensity; None if it is not recorded, or if the user states ``propensity_min`` or ``weight_max``.
    """
    least = provenance.get(PROPENSITY_MIN)
    if propensity != "propensity" or "policy" not in provenance or not isinstance(least, float):
        return None
    is_stated = stated.get("propensity_min") is not None or stated.get("weight_max") is not None
    if is_stated or not 0.0 < least <= 1.0:
        return None
    return least


def with_known_bound(records: Sequence[Record], least: float | None) -> list[Record]:
    """Return records whose diagnostics have the smallest propensity of the provenance; unchanged ones if it is None."""
    if least is None:
        return list(records)
    return [record | {"diagnostics": record["diagnostics"] | {"propensity_min_taken": least}} for record in records]


def bound_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return one line on the smallest propensity if it comes from the log's provenance; else an empty list."""
    for record in records[:1]:  # all records have the same one; there may be no record
        least = record["diagnostics"].get("propensity_min_taken")
        if least is not None:
            return [f"--propensity-min {least:.3g}: from the log's provenance"]
    return []


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
        log: columns of the log, with one column of probabilities per policy in ``log.others``.
        targets: names of the target policies, which are columns of ``log.others``.
        estimators: names of estimators.
        level: nominal coverage of the intervals.
        segments: segments whose estimates are added; None for all rows only.
        action: (n,) numbers of the items shown, to test whether the segments were fixed before the recommendation.
        **of_rows: further fields of :class:`PolicyRows`, by name.

    Returns:
        Records of all rows, and then of segments (:class:`recsim_mnar.own_log.estimating.Answer` lists the keys).

    Raises:
        UserError: invalid input (:func:`recsim_mnar.estimators.estimate_value`), or segments that depend on what was
            recommended.
    """
    rows = PolicyRows(log, **of_rows)
    to_estimate = rows.question(targets, estimators, level)
    records = records_of(to_estimate, rows.value, rows.difference_from_baseline)
    if segments is not None:
        records += rows.by_segment(segments, action, to_estimate, records)
    return records


@dataclass(frozen=True)
class PolicyRows:
    """Rows of a log from which policies are estimated, with what is known about the log and the policies.

    Attributes:
        log: columns of the rows; ``others`` has one per policy, with its probability of the logged action.
        baseline: name of the policy that others are compared with; None for no comparison.
        models: reward model of each policy: (n,) predictions for the logged actions and (n,) means under the policy.
            If some policies have a model, the others get no estimate that needs one.
        missing: (n,) each policy's probability of actions whose logging probability is 0, by policy.
        made: provenance of the log.
        largest: largest probability that each policy gives any action, by policy, if all of them are known.
        facts: facts about the log that the user states.
        clip: largest weight of the clipped estimators; None for no clipping.
        precision: half the interval over the value up to which a value is trusted.
        weights: (n,) number of rows that each row stands for; None if every row stands for itself.
        interval: kind of the intervals of values.
        today: names of the columns of the policy that logged the rows; None for those that are the very column of
            propensities.
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
        """The names, in ``log.others``, of the policy that logged the rows: of columns equal to the propensities."""
        if self.today is not None:
            return frozenset(self.today)
        return frozenset(name for name, values in self.log.others.items() if values is self.log.propensity)

    def question(self, targets: Sequence[str], estimators: Sequence[str], level: float) -> EstimateRequest:
        """Return the request to estimate targets and baseline, and the targets' differences from the baseline."""
        policies = list(targets)
        compared = []
        if self.baseline is not None:
            if self.baseline not in targets:
                policies.append(self.baseline)
            compared = [name for name in targets if name != self.baseline]
        return EstimateRequest(
            policies=policies,
            estimators=estimators,
            level=level,
            baseline=self.baseline,
            compared=compared,
            today=self.logged,
            made=self.made,
            tolerance=self._tolerance,
        )

    def _tolerance(self, name: str, **ends: Any) -> float:
        """Compute the propensity tolerance of a policy; ``ends`` are passed to :func:`weight_tolerance`."""
        target = self.log.others[name]
        if self.weights is not None:
            target = target * self.weights
        return weight_tolerance(self.log.reward, self.log.propensity, target, **ends)

    def _missing_mass(self, name: str) -> Any:
        """Return (n,) a policy's probability of actions whose logging probability is 0; None if it is unknown.

        It is 0 for the policy that logged the rows.
        """
        if name in self.missing:
            return self.missing[name]
        if name in self.logged:
            return np.zeros(len(self.log.reward))
        return None

    def _largest_probability(self, *names: str) -> float | None:
        """Return the largest probability that any of the policies, except the logging one, gives any action.

        Returns None if that is unknown for one of them, or if only the logging policy is named.
        """
        names = tuple(name for name in names if name not in self.logged)
        if names and all(name in self.largest for name in names):
            return max(self.largest[name] for name in names)
        return None

    def _call(
        self, estimate: Callable[..., Estimate], estimator: str, facts: Facts, level: float, *args: Any, **kwargs: Any
    ) -> Estimate:
        """Call ``estimate_value`` or ``difference`` with these rows.

        Args:
            estimate: the function.
            estimator: name of the estimator.
            facts: facts about the log and the policies.
            level: nominal coverage of the interval.
            *args: (n,) probabilities of the logged actions of each policy.
            **kwargs: further arguments of the function.
        """
        # Estimators that take no weights of rows treat the rows of such a log like any others.
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
        """Estimate the value of a policy; return None if the estimator needs a reward model that only others have."""
        model = None
        if check_name(estimator).needs:
            model = self.models.get(name)
            if self.models and model is None:
                return None
        facts = replace(self.facts, unsupported=self._missing_mass(name), target_max=self._largest_probability(name))
        options = {"model": model, "interval": self.interval, "precision": self.precision}
        return self._call(estimate_value, estimator, facts, level, self.log.others[name], **options)

    def difference_from_baseline(self, name: str, estimator: str, *, level: float) -> Estimate:
        """Estimate the value of a policy minus that of the baseline."""
        assert self.baseline is not None
        facts = replace(
            self.facts,
            unsupported=self._missing_mass(name),
            baseline_unsupported=self._missing_mass(self.baseline),
            target_max=self._largest_probability(name, self.baseline),
        )
        policies = self.log.others
        return self._call(difference, estimator, facts, level, policies[name], policies[self.baseline])

    def select(self, rows: Ints) -> PolicyRows:
        """Return the rows with the row numbers ``rows`` (m,), as a separate log.

        The names of the logging policy are passed on, because copied columns are not the column of propensities.
        """
        log = self.log
        facts = self.facts
        cluster = None
        if log.cluster is not None:
            cluster = log.cluster.at(rows)
        columns = LogColumns(
            log.reward[rows],
            log.propensity[rows],
            cluster,
            others={name: values[rows] for name, values in log.others.items()},
            numbers=np.asarray(log.numbers)[rows],
        )
        if facts.reward_limit is not None:
            facts = replace(facts, reward_limit=_select(facts.reward_limit, rows))
        elif np.isin(log.reward, _CLICKS).all():
            # The whole log shows that rewards are clicks; a segment without a click does not.
            least, most = _CLICKS
            if facts.reward_min is None:
                facts = replace(facts, reward_min=least)
            if facts.reward_max is None:
                facts = replace(facts, reward_max=most)
        return replace(
            self,
            log=columns,
            models={name: (_select(logged, rows), _select(mean, rows)) for name, (logged, mean) in self.models.items()},
            missing={name: values[rows] for name, values in self.missing.items()},
            facts=facts,
            weights=_select(self.weights, rows),
            today=self.logged,
        )

    def by_segment(
        self, segments: Segments, action: Ints | None, request: EstimateRequest, records: Sequence[Record]
    ) -> list[Record]:
        """Estimate each segment by the leading estimators of all rows, with intervals that hold jointly.

        Args:
            segments: rows of each segment.
            action: (n,) numbers of the items shown; None if they are not known.
            request: request that ``records`` answer; all intervals of segments hold jointly at its level.
            records: records of all rows.

        Raises:
            RefusedColumnError: the segments depend on what was recommended.
        """
        log = self.log
        leaders = [record for record in records if record["leads"]]
        targets = {name: log.others[name] for name in request.policies if name not in self.logged}
        if self.weights is None:
            weights = SegmentTest(
                reward=log.reward,
                propensity=log.propensity,
                users=log.cluster,
                targets=targets,
                missing=self.missing,
                action=action,
                facts=self.facts,
            )
            weights.refuse(segments)
        n_intervals = len(segments.names) * len(leaders)
        level = level_of_best(request.level, n_intervals)
        estimated = []
        for value, rows in segments:
            part = self.select(rows)
            segment_keys = {"leads": True, "by": segments.column, "segment": value}
            segment_keys |= {"intervals": n_intervals, "level_of_all": request.level}
            for total in leaders:
                estimate_policy = part.difference_from_baseline if "baseline" in total else part.value
                estimate = estimate_policy(target_of(total), total["estimator"], level=level)
                assert estimate is not None
                estimate = with_adaptive_findings(estimate, request.made, *subject(total))
                findings = [Finding.from_dict(finding) for finding in total["findings"]]
                # Propensities that are wrong in the whole log are wrong in each segment.
                wrong_propensities = [f for f in findings if f.code == "propensities" and f.level != "trust"]
                estimate = part._without_thin_interval(estimate.with_findings(wrong_propensities))
                record = _record(total["policy"], estimate)
                policy_keys = {key: total[key] for key in _POLICY_KEYS if key in total}
                estimated.append(record | policy_keys | segment_keys)
        return estimated

    def _without_thin_interval(self, estimate: Estimate) -> Estimate:
        """Replace the interval of an estimate from fewer than :data:`THIN` users by the range that rewards allow.

        At the high levels that many joint intervals need, an interval from so few users would miss too often.
        """
        facts = estimate.diagnostics
        if facts.users >= THIN:
            return estimate
        # Rewards have a known lower bound, but not always an upper one: facts.reward_max may be just the log's largest.
        has_upper_bound = self.facts.reward_max is not None or self.facts.reward_limit is not None
        low = facts.reward_min
        high = facts.reward_max if has_upper_bound else np.inf
        if facts.value_baseline is not None:  # a difference of two values in [low, high]
            high -= low
            low = -high
        return replace(
            estimate,
            low=min(low, estimate.value),
            high=max(high, estimate.value),
            method="no interval: few users",
        )


def _select(values: Any, rows: Ints) -> Any:
    """Select rows of a column that may be None."""
    if values is None:
        return None
    return values[rows]
