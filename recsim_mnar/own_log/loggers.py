"""Who logged the rows of a file, what the logging policy saw, and probabilities that are wrong by one factor."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.answers.sentence import EXPLORE, Record, target_of
from recsim_mnar.estimators.checks import OFF_BY, STRICT, mean_weight_limits
from recsim_mnar.estimators.refuters import ItemSums
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Finding, Verdict
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import BanditFile
from recsim_mnar.tables.ids import Ids

_EXPLAINED = ("support_missing", "support_denied", "propensities")
_ERRORS = 4.0
"""Standard errors within which two numbers are the same."""
_CLOSE, _APART = 0.02, 1.25
"""Share within which a sum is that of all items, and factor from which one is worth a word."""
_LEAST_ROWS = 100


def with_likely_faults(records: Sequence[Record], sums: Callable[[], ItemSums | None], propensity: str) -> list[Record]:
    """The records; a mean weight that is proved not to be 1 has the likely fault for an action, where one fits.

    Args:
        records: of a log.
        sums: gives sums of 1 / propensity by item, of all rows; None where items are not known.
        propensity: the column.
    """
    proved = any(finding["code"] in _EXPLAINED for record in records for finding in record["findings"])
    items = sums() if proved else None
    return [record if items is None else _explained(record, items, propensity) for record in records]


def sums_of(log: BanditFile) -> ItemSums | None:
    """Sums of 1 / propensity by item; None where items or propensities are not known."""
    if log.action is None or log.chances is None:
        return None
    return ItemSums.of(np.asarray(log.action.ids)[log.action.codes], log.chances, log.clusters())


def _explained(record: Record, items: ItemSums, propensity: str) -> Record:
    fault = likely_fault(items, record["diagnostics"], propensity, target_of(record))
    if not fault or not any(finding["code"] in _EXPLAINED for finding in record["findings"]):
        return record

    def put(judged: Record) -> Record:
        found = [Finding.from_dict(finding) for finding in judged["findings"]]
        named = [replace(finding, action=fault) if finding.code in _EXPLAINED else finding for finding in found]
        return judged | Verdict(judged["verdict_level"], named).to_dict()

    return put(record) | ({"best_of": put(record["best_of"])} if "best_of" in record else {})


def likely_fault(items: ItemSums, facts: Mapping[str, float], propensity: str, target: str) -> str:
    """What is likely wrong with probabilities, with the numbers that say so; "" where none of these fits.

    The mean over rows of 1{item} / propensity is 1 for an item that can always be shown, so that over K such items they
    sum to K.

    Args:
        items: of all rows, in one level.
        facts: diagnostics of an estimate: propensity_min and least_propensity_rows.
        propensity: the column.
        target: the policy.
    """
    n, shown = float(items.rows[0]), items.x[0] > 0.0
    means, number = items.x[0][shown] / n, int(shown.sum())
    square = (items.xx[0] - 2.0 * items.x[0] / n * items.xl[0] + (items.x[0] / n) ** 2 * items.ll[0])[shown]
    errors, total = np.sqrt(np.maximum(square, 0.0)) / n, float(means.sum())
    of_each = total / number
    alike = bool(np.all(np.abs(means - of_each) <= _ERRORS * errors)) and number > 1
    alike = alike and math.sqrt(float(errors @ errors)) <= 0.1 * total
    said = f"the mean of 1 / {propensity} over all rows, counting one item's, is {{}} for each of the {number:,} items"
    if alike and of_each > _APART:
        twice = " (divided by the number of items twice?)" if abs(of_each / number - 1.0) < 0.1 else ""
        return (
            f"{said.format(f'{of_each:.3g}')}, and 1 at most where {propensity} is right: it is some {of_each:.3g} "
            f"times too small{twice}"
        )
    if alike and of_each < 1.0 / _APART:
        return (
            f"{said.format(f'{of_each:.3g}')}, and 1 if every item can be shown in every row: then {propensity} is "
            f"{1.0 / of_each:.3g} times too large (the probability of a group of items, or of a page of several "
            f"places?), so divide it by that; if rows choose among fewer items, {EXPLORE}"
        )
    if alike and np.all(np.abs(means - 1.0) <= _ERRORS * errors):
        elsewhere = f"; or it shows items that are not in the log: {EXPLORE}" * (facts.get("mean_weight", 1.0) < 1.0)
        return (
            f"{said.format('1')}, as it must be where {propensity} is right: look at {target}, whose probabilities "
            f"are not of the item shown, or do not sum to 1 over the items{elsewhere}"
        )
    fault = _epsilon(facts, propensity, number, total, n)
    if fault or not (number > 1 and np.all(means + _ERRORS * errors < 1.0 / _APART)):
        return fault
    return (
        f"the mean of 1 / {propensity} over all rows, counting one item's, is {means.min():.3g} to {means.max():.3g}, "
        f"and 1 if every item can be shown in every row: check whether {propensity} is too large; if rows choose among "
        f"fewer items, {EXPLORE}"
    )


def _epsilon(facts: Mapping[str, float], propensity: str, number: int, total: float, n: float) -> str:
    """Whether the smallest propensity is epsilon, undivided: with epsilon / number of items the sum is that number."""
    least, rows = facts.get("propensity_min", 0.0), facts.get("least_propensity_rows", 0)
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


MANY = 50
"""More loggers than this are no loggers: the column is something else."""


def logger_findings(log: BanditFile, name: str) -> tuple[list[Finding], list[str]]:
    """Whether each logger's mean weight is 1, as it is where its propensities are right and it has support.

    Args:
        log: whose loggers and propensities are known.
        name: of the target policy.

    Returns:
        Findings for the verdict, and one line per logger.
    """
    assert log.logger is not None
    assert log.propensity is not None
    findings, lines = [], []
    for code, logger in enumerate(log.logger.ids):
        of = np.flatnonzero(log.logger.codes == code)
        cluster = None if log.users is None else log.users[of]
        sums = PolicySums.of(log.propensity[of], log.policies[name][of], cluster)
        mean = sums.mean_weight
        low, high = mean_weight_limits(sums, STRICT)
        lines.append(
            f"logger {logger}: {len(of):,} rows, mean reward {log.reward[of].mean():.4g}, mean weight of {name} "
            f"{mean:.3g} ({low:.3g} to {high:.3g} at {100 * STRICT:g} %)"
        )
        if low <= 1.0 <= high:
            continue
        # The strict limits leave one logger in a thousand to chance.
        severity = GRAVE if min(abs(low - 1.0), abs(high - 1.0)) > OFF_BY else CAUTION
        said, wanted = told_apart(mean, 1.0)
        case = {"says": "below"} if high < 1.0 else {}
        params = {"logger": logger, "said": said, "wanted": wanted}
        findings.append(Finding("logger_propensities", severity, mean, **params, **case))
    return findings, lines


FEW = 12
"""Numbers with more values than this are cut into groups of equal size."""
GROUPS = 5
LEVELS = 50
"""Texts with more values than this are no use to a regression."""


def labels(context: Mapping[str, Floats | Ids], n: int) -> tuple[NDArray[np.int64], list[str]]:
    """(n,) codes from 0, one for each combination of values, and how each column was used.

    Args:
        context: by column, (n,) numbers or ids; missing ones are a value of their own.
        n: rows.
    """
    codes = np.zeros(n, np.int64)
    said = []
    for name, values in context.items():
        if isinstance(values, Ids):
            own, number = values.codes + 1, values.number + 1
            said.append(f"{name} ({values.number} values)")
        else:
            distinct = np.unique(values[~np.isnan(values)])
            if len(distinct) > FEW:
                edges = np.unique(np.nanquantile(values, np.arange(1, GROUPS) / GROUPS))
                own = np.searchsorted(edges, values, side="right") + 1
                number = len(edges) + 2
                said.append(f"{name} (in {len(edges) + 1} groups of about equal size)")
            else:
                own, number = np.searchsorted(distinct, values) + 1, len(distinct) + 2
                said.append(f"{name} ({len(distinct)} values)")
            own = np.where(np.isnan(values), 0, own)
        codes = np.unique(codes * number + own, return_inverse=True)[1].reshape(n)
    return codes, said


def as_numbers(context: Mapping[str, Floats | Ids]) -> tuple[Floats | None, list[str]]:
    """(n, d) numbers, None where there are none, and the columns that are left out.

    Numbers are taken to mean 0 and standard deviation 1, the mean in place of what is missing; texts of up to
    :data:`LEVELS` values have one column per value.
    """
    columns: list[Floats] = []
    left = []
    for name, values in context.items():
        if isinstance(values, Ids):
            if values.number > LEVELS:
                left.append(name)
            else:
                columns += [(values.codes == code).astype(np.float64) for code in range(values.number)]
            continue
        known = values[~np.isnan(values)]
        mean, spread = (float(known.mean()), float(known.std())) if known.size else (0.0, 0.0)
        columns.append((np.where(np.isnan(values), mean, values) - mean) / (spread or 1.0))
    return (np.column_stack(columns) if columns else None), left
