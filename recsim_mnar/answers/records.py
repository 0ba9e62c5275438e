"""Build the records of estimates: one per policy and estimator.

A record is a dict of JSON types with an estimate, its verdict and its diagnostics; its keys are listed in
:class:`recsim_mnar.own_log.estimating.Answer`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recsim_mnar.answers.segments import segment_label
from recsim_mnar.answers.sentence import (
    GAPS,
    Amounts,
    ByRows,
    Record,
    best_record,
    candidates,
    cells,
    kind_of_log,
    label,
    lacks,
    leading,
    subject,
    target_of,
    tolerated,
    verdict_in_words,
    with_tolerance,
)
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.rankings import about_users
from recsim_mnar.estimators.scores import check_name, known_to_differ
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, LEVEL_WORDS, LEVELS, Estimate, Finding, Verdict
from recsim_mnar.kernels.checks import level_of, whole_number


def table_lines(records: Sequence[Record]) -> list[str]:
    """Format records as a table in plain text: a header, and one line per record."""
    amounts = Amounts.of(records)
    by = records[0].get("by")
    interval = f"{100.0 * records[0]['level']:.4g} % interval"
    rows = [["policy", "estimator", "value", interval, "verdict"]]
    rows += [[label(r), r["estimator"], *cells(r, amounts), verdict_in_words(r)] for r in records]
    if by is not None:
        names = [by, *map(segment_label, records)]
        rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


EstimateFunction = Callable[..., Estimate | None]
"""Function (policy, estimator, *, level) that estimates; None if that estimator cannot be computed for the policy."""

UNSUPPORTED = "_unsupported"
"""Suffix of the column with a policy's probability of actions whose logging probability is 0."""
_ESTIMATE_KEYS = ("estimator", "value", "low", "high", "level", "method", "n", "ess")
"""Fields of an estimate that a record has."""


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
            record = record_of(policy, estimate)
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


def record_of(policy: str, estimate: Estimate) -> Record:
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


def without_margins(records: Sequence[Record]) -> list[Record]:
    """Return records without the findings that are no reason to doubt them: how far they are from one is of no use.

    Those about users of slates stay, because they say what was tested.
    """

    def reasons(judged: Mapping[str, Any]) -> Record:
        """Return a record, or its ``best_of``, with the findings to keep."""
        kept = [f for f in judged["findings"] if f["level"] != "trust" or about_users(f["code"])]
        return {**judged, "findings": kept}

    changed = [reasons(record) for record in records]
    for record in changed:
        if "best_of" in record:
            record["best_of"] = reasons(record["best_of"])
    return changed


@dataclass(frozen=True)
class Reason:
    """A reason to doubt estimates.

    Attributes:
        level: level of the verdict, "caution" or "do_not_use".
        message: finding in words.
        action: advice in words; empty if another reason gives it with a larger number.
        policies: names of the policies that it concerns.
    """

    level: str
    message: str
    action: str
    policies: tuple[str, ...]

    @property
    def line(self) -> str:
        """The reason in one line for a person."""
        line = f"{LEVEL_WORDS[self.level]} ({', '.join(self.policies)}): {self.message}."
        if self.action:
            line += f" {self.action[:1].upper()}{self.action[1:]}."
        return line


def reasons(records: Sequence[Record]) -> list[Reason]:
    """List the reasons to doubt estimates, the gravest first.

    A reason is listed once, even if it concerns a target and its differences, or several policies. If the log does not
    cover a policy, :func:`recsim_mnar.answers.sentence.identified` says so, and that reason is left out here.
    """
    by_policy: dict[tuple[str, str], tuple[Record, Record]] = {}
    for record in records:
        for finding in record["findings"]:
            in_other_sentence = lacks(record) and finding["code"] in (*GAPS, "wide_interval")
            if finding["level"] != "trust" and not in_other_sentence:
                by_policy.setdefault((target_of(record), finding["code"]), (record, finding))
    labels: dict[tuple[str, str, str], list[str]] = {}
    for record, finding in by_policy.values():
        labels.setdefault((finding["level"], finding["message"], finding["action"]), []).append(label(record))
    listed = [Reason(*reason, tuple(policies)) for reason, policies in labels.items()]
    return sorted(listed, key=lambda reason: -LEVELS.index(reason.level))


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
