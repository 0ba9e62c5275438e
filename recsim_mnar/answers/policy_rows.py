"""Estimate policies from rows in memory: values and differences, of all rows and of segments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from recsim_mnar.answers.records import (
    EstimateRequest,
    level_of_best,
    record_of,
    records_of,
    with_adaptive_findings,
)
from recsim_mnar.answers.segments import THIN, Segments, SegmentTest
from recsim_mnar.answers.sentence import Record, subject, target_of
from recsim_mnar.answers.weights import weight_tolerance
from recsim_mnar.estimators import difference, estimate_value
from recsim_mnar.estimators.facts import PRECISION, Facts
from recsim_mnar.estimators.scores import check_name, known_to_differ
from recsim_mnar.estimators.verdict import Estimate, Finding
from recsim_mnar.log.columns import Ints, LogColumns

_POLICY_KEYS = ("target", "today", "role", "baseline", "baseline_kind")
"""Keys of a record that describe its policies."""
_CLICKS = (0.0, 1.0)
"""Rewards of a log of clicks."""


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
                record = record_of(total["policy"], estimate)
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
