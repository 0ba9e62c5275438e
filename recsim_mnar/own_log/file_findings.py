"""Find reasons in a file's rows to doubt its estimates: loggers, propensities by item, rows left out or repeated."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.answers.records import with_findings
from recsim_mnar.answers.sentence import EXPLORE
from recsim_mnar.answers.words import Record, is_of_slates, target_of
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import OFF_BY, STRICT, mean_weight_limits
from recsim_mnar.estimators.refuters import ItemSums, item_findings, refute
from recsim_mnar.estimators.repeats import RepeatSums
from recsim_mnar.estimators.scores import known_to_differ
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Finding, Verdict, scaled
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Floats, LogColumns
from recsim_mnar.own_log.bandit_file import BanditFile
from recsim_mnar.tables.values import Ids, in_rows

MANY = 50
"""Most loggers: a column with more values is something else."""


def logger_findings(log: BanditFile, name: str) -> tuple[list[Finding], list[str]]:
    """Test whether each logger's mean weight is 1, as with right propensities and full support.

    Args:
        log: a log with loggers and propensities.
        name: name of the target policy.

    Returns:
        Findings for the verdict, and one line per logger.
    """
    assert log.logger is not None
    assert log.propensity is not None
    findings = []
    lines = []
    for code, logger in enumerate(log.logger.ids):
        rows = np.flatnonzero(log.logger.codes == code)
        users = None if log.users is None else log.users[rows]
        sums = PolicySums.of(log.propensity[rows], log.policies[name][rows], users)
        mean = sums.mean_weight
        low, high = mean_weight_limits(sums, STRICT)
        lines.append(
            f"logger {logger}: {len(rows):,} rows, mean reward {log.reward[rows].mean():.4g}, mean weight of {name} "
            f"{mean:.3g} ({low:.3g} to {high:.3g} at {100 * STRICT:g} %)"
        )
        if low <= 1.0 <= high:
            continue
        # The strict limits leave one logger in a thousand to chance.
        severity = GRAVE if min(abs(low - 1.0), abs(high - 1.0)) > OFF_BY else CAUTION
        mean_text, expected_text = told_apart(mean, 1.0)
        params = {"logger": logger, "said": mean_text, "wanted": expected_text}
        if high < 1.0:
            params["says"] = "below"
        findings.append(Finding("logger_propensities", severity, mean, **params))
    return findings, lines


FEW = 12
"""Number of values above which numbers are cut into groups of equal size."""
GROUPS = 5
"""Number of these groups."""
MOST_VALUES = 50
"""Most values of a text in a regression."""


def labels(context: Mapping[str, Floats | Ids], n: int) -> tuple[NDArray[np.int64], list[str]]:
    """Number the combinations of values of columns, for estimates within each combination.

    Args:
        context: by column, (n,) numbers or ids; missing ones are a value.
        n: number of rows.

    Returns:
        codes: (n,) number of each row's combination, from 0.
        lines: description of the use of each column, for a person.
    """
    codes = np.zeros(n, np.int64)
    lines = []
    for name, values in context.items():
        if isinstance(values, Ids):
            column = values.codes + 1
            number = values.number + 1
            used = f"{values.number} values"
        else:
            distinct = np.unique(values[~np.isnan(values)])
            number = len(distinct) + 2  # at least the number of codes: 0 for NaN, then from 1
            if len(distinct) > FEW:
                edges = np.unique(np.nanquantile(values, np.arange(1, GROUPS) / GROUPS))
                column = np.searchsorted(edges, values, side="right") + 1
                used = f"in {len(edges) + 1} groups of about equal size"
            else:
                column = np.searchsorted(distinct, values) + 1
                used = f"{len(distinct)} values"
            column = np.where(np.isnan(values), 0, column)
        lines.append(f"{name} ({used})")
        # Numbered anew after each column, so that products stay small.
        codes = np.unique(codes * number + column, return_inverse=True)[1].reshape(n)
    return codes, lines


def as_numbers(context: Mapping[str, Floats | Ids]) -> tuple[Floats | None, list[str]]:
    """Convert columns of context to a matrix for a regression.

    Numbers are scaled to mean 0 and standard deviation 1, with the mean for missing values; texts of up to
    :data:`MOST_VALUES` values have one column per value.

    Args:
        context: by column, (n,) numbers or ids.

    Returns:
        numbers: (n, d) matrix; None without columns.
        left_out: names of columns with too many values.
    """
    columns: list[Floats] = []
    left_out = []
    for name, values in context.items():
        if isinstance(values, Ids):
            if values.number > MOST_VALUES:
                left_out.append(name)
            else:
                columns += [(values.codes == code).astype(np.float64) for code in range(values.number)]
            continue
        mean = 0.0
        spread = 0.0
        present = values[~np.isnan(values)]
        if present.size:
            mean = float(present.mean())
            spread = float(present.std())
        columns.append((np.where(np.isnan(values), mean, values) - mean) / (spread or 1.0))  # constant columns are 0
    if not columns:
        return None, left_out
    return np.column_stack(columns), left_out


MANY_DROPPED = 0.05
"""Share of rows left out from which the verdict mentions it."""


def findings_in_order(log: BanditFile) -> list[Finding]:
    """Return the findings that depend on the order of rows; none with weights of rows."""
    if log.weight is not None or log.propensity is None:
        return []
    items = None if log.action is None else log.action.codes
    return RepeatSums.of(log.reward, log.propensity, items, log.clusters()).findings()


def unweighed(log: BanditFile, record: Record) -> list[Finding]:
    """Return a grave finding if the log has weights of rows and the record's estimator ignores them; empty if not."""
    if log.weight is None or (log.propensity is not None and record["estimator"] in known_to_differ()):
        return []
    params = {"estimator": record["estimator"], "column": log.columns["weight"]}
    if is_of_slates(record):
        params["do"] = "slates"
    return [Finding("weights_ignored", GRAVE, 1.0, **params)]


def values_of(column: Any) -> Any:
    """Return the ids or numbers (n,) of a column."""
    if isinstance(column, Ids):
        return column.ids[column.codes]
    return column


def with_file_findings(
    records: list[Record], log: BanditFile, targets: Sequence[str], lines: list[str]
) -> list[Record]:
    """Return records with findings about the file: propensities by item, rows left out or repeated, and loggers.

    Args:
        records: records of the estimates.
        log: the rows behind them.
        targets: names of the target policies.
        lines: notes for a person, which are extended by those on loggers.
    """
    of_log = [*_propensities_by_item(log), *of_the_rows(log.counts)]
    by_policy: dict[str, list[Finding]] = {}
    if log.logger is not None and log.weight is None and log.propensity is not None and 1 < log.logger.number <= MANY:
        for name in targets:
            by_policy[name], logger_lines = logger_findings(log, name)
            lines += logger_lines
        lines.append(
            f"{log.logger.number} loggers (column {log.columns['logger']}) are pooled, each row with the propensity of "
            "its own"
        )
    changed = []
    for record in records:
        record = with_findings(record, unweighed(log, record), first=True)
        changed.append(with_findings(record, [*of_log, *by_policy.get(target_of(record), [])]))
    return with_likely_faults(changed, functools.partial(_sums_by_item, log), log.columns.get("propensity") or "")


def _propensities_by_item(log: BanditFile) -> list[Finding]:
    """Find propensities that the log disproves item by item, in all rows or by the values of a context column."""
    if log.action is None or log.chances is None:
        return []
    items = values_of(log.action)
    users = log.clusters()
    for name, values in [("", None), *log.context.items()]:  # all rows first
        findings = item_findings(items, log.chances, users, context=values_of(values), context_name=name)
        if findings:
            return findings
    return []


def of_the_rows(counts: Counter[str]) -> list[Finding]:
    """Return the findings about rows that were left out, or that repeat others."""
    findings = []
    kept = counts["kept"]
    missing = counts["dropped_missing"] + counts["dropped_without_target"]
    dropped = missing + counts["dropped_invalid"]
    if dropped:
        share = dropped / (dropped + kept)
        why = " or ".join(["are missing"] * bool(missing) + ["cannot be read"] * bool(counts["dropped_invalid"]))
        severity = scaled(share, MANY_DROPPED, np.inf)
        findings.append(Finding("rows_dropped", severity, share, percent=100 * share, why=why))
    n_repeats = counts["duplicates"] - counts["dropped_duplicates"]
    if n_repeats:
        share = n_repeats / kept
        params: dict[str, Any] = {
            "rows": in_rows(n_repeats),
            "repeat": "repeat" + "s" * (n_repeats == 1),
            "by_chance": counts["by_chance"],
        }
        if counts["by_chance"]:
            params["says"] = "chance"
        findings.append(Finding("rows_repeated", scaled(share, MANY_DROPPED, np.inf), share, **params))
    # Rows that --deduplicate left out although chance explains that they are equal.
    n_events = counts["dropped_duplicates"] * bool(counts["coincidences"])
    if n_events:
        share = n_events / (n_events + kept)
        findings.append(Finding("events_dropped", scaled(share, 0.0, MANY_DROPPED), share, rows=in_rows(n_events)))
    return findings


def with_refuters(
    records: Sequence[Record], targets: Sequence[str], log: LogColumns, least: float | None = None, **columns: Any
) -> list[Record]:
    """Add ``refuters`` to the leading value of each target, and their findings to verdicts.

    Args:
        records: records of the estimates (:class:`recsim_mnar.own_log.estimating.Answer`).
        targets: names of target policies; one that takes none of the logged actions is left out.
        log: the rows behind the estimates.
        least: smallest propensity of any item in any row, if the log's provenance has it.
        **columns: further columns (n,), if the file has them: ids of the items shown (``action``), one that was known
            before the item was chosen (``context``), and numbers that grow with ``time``.
    """
    users = None if log.cluster is None else log.cluster.codes
    findings = {}
    for name in targets:
        target = log.others[name]
        if target.any():
            options = {"cluster": users, "propensity_min": least, **columns}
            findings[name] = refute(log.reward, log.propensity, target, **options)
    changed = []
    for record in records:
        of_target = findings.get(target_of(record), [])
        codes = {finding["code"] for finding in record["findings"]}
        record = with_findings(record, [f for f in of_target if f.severity >= CAUTION and f.code not in codes])
        if of_target and record["leads"] and "baseline" not in record:
            record["refuters"] = [finding.to_dict() for finding in of_target]
        changed.append(record)
    return changed


def refuter_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Summarise the refuters, one line per policy; their findings are among the reasons."""
    lines = []
    for record in records:
        if "refuters" in record:
            codes = [finding["code"] for finding in record["refuters"] if finding["level"] != "trust"]
            outcome = "none found anything"
            if codes:
                outcome = f"{', '.join(dict.fromkeys(codes))} found something"
            lines.append(f"refuters of {record['policy']}: {len(record['refuters'])} run, {outcome}")
    return lines


def refuse_refuters(log: BanditFile) -> None:
    """Raise UserError for a log that refuters cannot use."""
    if log.propensity is None:
        raise UserError("--refute: refuters need propensities. Name their column with --propensity-column")
    if log.weight is not None:
        raise UserError(f"--refute: refuters know no weights of rows ({log.columns['weight']}): leave --refute away")


# ------------------------------------------------------------------------------ probabilities wrong by one factor

_EXPLAINED = ("support_missing", "support_denied", "propensities")
"""Codes of findings whose advice a likely fault replaces."""
_ERRORS = 4.0
"""Standard errors within which two numbers count as equal."""
_CLOSE, _APART = 0.02, 1.25
"""Relative difference up to which a sum counts as the number of items, and ratio from which it counts as different."""
_LEAST_ROWS = 100
"""Least number of rows with the smallest propensity for it to count as an undivided epsilon."""


def with_likely_faults(records: Sequence[Record], sums: Callable[[], ItemSums | None], propensity: str) -> list[Record]:
    """Replace the advice on a mean weight that is proved not to be 1 by the likely fault, if one fits.

    Args:
        records: records of a log.
        sums: returns sums of 1 / propensity by item over all rows; None if items are not known.
        propensity: column of the propensities.
    """
    codes = {finding["code"] for record in records for finding in record["findings"]}
    if codes.isdisjoint(_EXPLAINED):
        return list(records)
    items = sums()
    return [_explained(record, items, propensity) for record in records]


def _sums_by_item(log: BanditFile) -> ItemSums | None:
    """Sum 1 / propensity by item; None if items or propensities are not known."""
    if log.action is None or log.chances is None:
        return None
    return ItemSums.of(values_of(log.action), log.chances, log.clusters())


def _explained(record: Record, items: ItemSums | None, propensity: str) -> Record:
    """Replace the advice in a record by the likely fault that sums by item suggest, if any."""
    advice = {finding["code"]: finding["action"] for finding in record["findings"]}
    if advice.keys().isdisjoint(_EXPLAINED):
        return record
    disproof = advice.get("item_propensities", "")
    fault = ""
    if items is not None:
        fault = likely_fault(items, record["diagnostics"], propensity, target_of(record), disproved=bool(disproof))
    fault = fault or disproof
    if not fault:
        return record

    def explain(judged: Record) -> Record:
        """Return a verdict with the likely fault as the advice of its explained findings."""
        findings = [Finding.from_dict(finding) for finding in judged["findings"]]
        findings = [replace(finding, action=fault) if finding.code in _EXPLAINED else finding for finding in findings]
        return judged | Verdict(judged["verdict_level"], findings).to_dict()

    explained = explain(record)
    if "best_of" in record:
        explained["best_of"] = explain(record["best_of"])
    return explained


def likely_fault(
    items: ItemSums, facts: Mapping[str, float], propensity: str, target: str, *, disproved: bool = False
) -> str:
    """Return a sentence on the likely fault of the probabilities, with the numbers that show it; "" if no guess fits.

    The mean over rows of 1{item} / propensity is 1 for an item that can always be shown, so that over K such items they
    sum to K.

    Args:
        items: sums over all rows, without levels of a context.
        facts: diagnostics of an estimate: propensity_min, least_propensity_rows and mean_weight.
        propensity: column of the propensities.
        target: name of the target policy.
        disproved: True if propensities are proved wrong for some item, if only within a context.
    """
    # With x the sum of 1 / propensity over a user's rows with an item, and l its number of rows: sums over users.
    n = float(items.rows[0])
    is_shown = items.x[0] > 0.0
    means = items.x[0][is_shown] / n
    number = int(is_shown.sum())
    square = (items.xx[0] - 2.0 * items.x[0] / n * items.xl[0] + (items.x[0] / n) ** 2 * items.ll[0])[is_shown]
    errors = np.sqrt(np.maximum(square, 0.0)) / n
    total = float(means.sum())
    of_each = total / number
    # All items have the same mean, and it is precise enough to judge.
    alike = bool(np.all(np.abs(means - of_each) <= _ERRORS * errors)) and number > 1
    alike = alike and math.sqrt(float(errors @ errors)) <= 0.1 * total
    of_one = f"the sum of 1 / {propensity} over the rows of one item, divided by the number of all rows, is"
    description = f"{of_one} {{}} for each of the {number:,} items"
    if alike and of_each > _APART:
        twice = ""
        if abs(of_each / number - 1.0) < 0.1:
            twice = " (divided by the number of items twice?)"
        return (
            f"{description.format(f'{of_each:.3g}')}, and 1 at most where {propensity} is right: it is some "
            f"{of_each:.3g} times too small{twice}"
        )
    if alike and of_each < 1.0 / _APART:
        return (
            f"{description.format(f'{of_each:.3g}')}, and 1 if every item can be shown in every row: then {propensity} "
            f"is {1.0 / of_each:.3g} times too large (the probability of a group of items, or of a page of several "
            f"places?), so divide it by that; if rows choose among fewer items, {EXPLORE}"
        )
    if alike and np.all(np.abs(means - 1.0) <= _ERRORS * errors) and not disproved:
        elsewhere = f"; or it shows items that are not in the log: {EXPLORE}" * (facts.get("mean_weight", 1.0) < 1.0)
        return (
            f"{description.format('1')}, as of right probabilities, but also of each item's share of the rows, which "
            f"the policy may not have drawn from. Check whether {propensity} is what it drew from, and whether "
            f"{target} is of the item shown and sums to 1 over the items{elsewhere}"
        )
    fault = _epsilon(facts, propensity, number, total, n)
    if fault or not (number > 1 and np.all(means + _ERRORS * errors < 1.0 / _APART)):
        return fault
    return (
        f"{of_one} {means.min():.3g} to {means.max():.3g}, and 1 if every item can be shown in every row: check "
        f"whether {propensity} is too large; if rows choose among fewer items, {EXPLORE}"
    )


def _epsilon(facts: Mapping[str, float], propensity: str, number: int, total: float, n: float) -> str:
    """Return a sentence if the smallest propensity is an epsilon that was not divided by the number of items; else "".

    The mean of 1 / propensity over all rows is the number of items if propensities are right. It is tested with
    epsilon / number in place of the smallest propensity.

    Args:
        facts: diagnostics of an estimate: propensity_min and least_propensity_rows.
        propensity: column of the propensities.
        number: number of items shown.
        total: mean of 1 / propensity over all rows.
        n: number of rows.
    """
    least = facts.get("propensity_min", 0.0)
    rows = facts.get("least_propensity_rows", 0)
    if number < 2 or rows < _LEAST_ROWS or not 0.0 < least < 1.0:
        return ""
    divided = total + (number - 1) * rows / (n * least)
    error = number / least * math.sqrt(rows / n * (1.0 - rows / n) / n)
    if abs(divided - number) > max(_CLOSE * number, _ERRORS * error) or _APART * total > number:
        return ""
    return (
        f"{propensity} looks like epsilon where it must be epsilon / number of items: its smallest value, {least:.4g}, "
        f"is in {rows:,} rows. The mean of 1 / {propensity} is {total:.3g}; with {least:.4g} / {number:,} = "
        f"{least / number:.3g} in these rows it is {divided:.3g}, as it must be of {number:,} items. Divide it there"
    )
