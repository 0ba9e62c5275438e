"""From what each user adds to an estimate to its interval and its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals.limits import Spread, degrees_of_freedom, small_sample_factor
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.verdict import CAUTION, Finding, Verdict, few_users, scaled

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LEAST_ESS, FEW_ESS = 100.0, 30.0
WIDE, USELESS = 0.4, 1.0
"""Half widths over the larger of the effect and the purchase rates it is a difference of, as for off-policy values."""
_METHOD = "Student on sums by user, with the heaviest step"


def ratio_difference(a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[float, Floats]:
    """Sum a / sum b - sum c / sum d over users, and what each user adds to its error (delta method)."""
    treated, control = a.sum() / b.sum(), c.sum() / d.sum()
    return float(treated - control), (a - treated * b) / b.sum() - (c - control * d) / d.sum()


def estimate_of(
    value: float, influence: Floats, rewarded: Flags, level: float, name: str, *, n: int, ess: float,
    diagnostics: dict[str, Any], steps: tuple[float, float] = (0.0, 0.0), scale: float | None = None,
    findings: Sequence[Finding] = (),
) -> Estimate:  # fmt: skip
    """The estimate of user influences.

    Args:
        value: it.
        influence: (U,) what each user adds to its error.
        rewarded: (U,) users with a purchase.
        level: nominal coverage.
        name: of the estimator.
        n: cells.
        ess: effective cells.
        diagnostics: to keep.
        steps: what one more purchase could add, and take away.
        scale: what the width is measured by beside the value; None where the width says nothing of trust.
        findings: of the estimator.
    """
    if not 0.0 < level < 1.0:
        raise UserError(f"level must lie in (0, 1), got {level}")
    users = len(influence)
    square = influence**2
    second, fourth = float(square.sum()), float((square**2).sum())
    degrees = degrees_of_freedom(users, int(rewarded.sum()), second, fourth)
    variance = second * small_sample_factor(users, level, degrees) if users > 1 else float("inf")
    third = float((square * influence).sum()) / second if second > 0.0 else 0.0
    less, more = Spread(variance, third, *steps).reaches(level) if users > 1 else (float("inf"), float("inf"))
    found = [*few_users(users), *findings]
    if ess < n * (1.0 - 1e-9):
        message = f"the effective sample is {ess:.3g} of {n:,} cells"
        found.append(Finding("effective_sample", scaled(ess, LEAST_ESS, FEW_ESS), ess, message, "use more users"))
    if scale is not None:
        against = max(scale, abs(value))
        ratio = (less + more) / 2.0 / against if against > 0.0 else float("inf")
        message = f"the interval reaches {100 * ratio:.3g} % of the purchase rate to either side"
        found.append(Finding("wide_interval", scaled(ratio, WIDE, USELESS), ratio, message, "use more users"))
    if fourth > 0.0:
        resting = second**2 / fourth
        message = f"the spread rests on the equivalent of {resting:.2g} equal users, so its own size is uncertain"
        found.append(
            Finding("uneven_users", min(scaled(resting, 10.0, 2.0), CAUTION), resting, message, "use more users")
        )
    details = {**diagnostics, "standard_error": float(np.sqrt(second))}
    return Estimate(value, value - less, value + more, level, _METHOD, n, ess, details, Verdict.of(found), name)
