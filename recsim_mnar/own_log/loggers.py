"""Who logged the rows of a file, and what the logging policy saw."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.checks import OFF_BY, STRICT, mean_weight_limits
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Finding
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import BanditFile
from recsim_mnar.tables.ids import Ids

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
