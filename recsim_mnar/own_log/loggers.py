"""Rows of several logging policies in one file: each one's propensities held against its own rows."""

from __future__ import annotations

import numpy as np

from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.sampling import STRICT, mean_weight_limits
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.verdict import OFF_BY
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Finding
from recsim_mnar.log.columns import Floats
from recsim_mnar.tables.rows import Ids

MANY = 50
"""More loggers than this are no loggers: the column is something else."""


def logger_findings(
    logger: Ids, name: str, reward: Floats, propensity: Floats, target: Floats, user: Ids | None
) -> tuple[list[Finding], list[str]]:
    """Whether each logger's mean weight is 1, as it is where its propensities are right and it has support.

    Args:
        logger: ids (n,).
        name: of the target policy.
        reward: (n,).
        propensity: (n,) of each row's own logger.
        target: (n,).
        user: ids (n,), or None where rows are independent.

    Returns:
        Findings for the verdict, and a line a logger.
    """
    findings, lines = [], []
    for code, each in enumerate(logger.ids):
        of = np.flatnonzero(logger.codes == code)
        cluster = None if user is None else user.codes[of]
        moments = Moments.of(reward[of], propensity[of], target[of], cluster=cluster)
        mean = moments.sum("w") / moments.rows
        low, high = mean_weight_limits(moments, Stated(), STRICT)
        lines.append(
            f"logger {each}: {len(of):,} rows, mean reward {reward[of].mean():.4g}, mean weight of {name} {mean:.3g} "
            f"({low:.3g} to {high:.3g} at {100 * STRICT:g} %)"
        )
        if low <= 1.0 <= high:
            continue
        # The strict limits leave one logger in a thousand to chance.
        severity = GRAVE if min(abs(low - 1.0), abs(high - 1.0)) > OFF_BY else CAUTION
        what = "its propensities are not those that chose the actions"
        if high < 1.0:
            what += ", or it never takes some of what the target takes"
        message = f"among the rows of logger {each} the mean weight is {mean:.3g} and should be 1: {what}"
        findings.append(
            Finding(
                "logger_propensities", severity, mean, message, f"check the propensities of {each}, or omit its rows"
            )
        )
    return findings, lines
