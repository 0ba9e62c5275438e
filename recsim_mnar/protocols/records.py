"""The record: one judgement of one agent by one protocol, the same fields for all of them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Record:
    """One row of ``results.json``.

    Attributes:
        world: name of the world, or "interactions" for a user's own data.
        protocol: ``loocv``, ``off_policy``, ``uplift``, ``ab_test`` or ``truth``.
        agent: name of the policy judged.
        metric: ``hr@1``, ``clipped_ips``, ``ctr``, ...
        value: the estimate.
        low, high: interval of nominal coverage ``level``.
        level: of the interval.
        n: units it rests on (decisions, or users for leave-one-out).
        seconds: wall time it took, shared evenly where agents were judged together.
        details: what else a person should know; JSON types only.
    """

    world: str
    protocol: str
    agent: str
    metric: str
    value: float
    low: float
    high: float
    level: float
    n: int
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a number that is not finite becomes null, which JSON has and NaN it has not."""
        return {name: _plain(value) for name, value in asdict(self).items()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value


def ratio_interval(
    sums: ArrayLike, counts: ArrayLike, level: float, largest: float | None = None
) -> tuple[float, float, float]:
    """A mean over rows whose users are independent but whose rows within a user are not: R = sum y_u / sum n_u.

    By user, with Student's quantile at the degrees of freedom that unequal users leave, and with what one more row
    could
    add: no interval is a point, and one of rewards that are not negative has no negative end (docs/verdict.md).

    Args:
        sums: (U,) each user's sum.
        counts: (U,) each user's number of rows; users without rows count for nothing.
        level: nominal coverage.
        largest: largest reward of a row; None for the largest mean of a user, or 1 where every sum is 0.

    Returns:
        value, low, high; the interval is infinite for fewer than two users with rows.
    """
    from recsim_mnar.estimators.intervals.limits import positive_limits
    from recsim_mnar.estimators.off_policy.sampling import Deviations

    y, n = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    y, n = y[n > 0], n[n > 0]
    if len(n) == 0:
        return math.nan, -math.inf, math.inf
    total = float(n.sum())
    value = float(y.sum()) / total
    if len(n) == 1:
        return value, -math.inf, math.inf
    residual = y - value * n
    square = residual * residual
    found = Deviations(
        float(square.sum()), float(square @ residual), float(square @ square), len(n), int(np.count_nonzero(y)),
        grouped=True,
    )  # fmt: skip
    step = float(np.max(np.abs(y) / n)) if largest is None else largest
    spread = found.spread(total, step or 1.0, max(value, 0.0), level)
    if np.all(y >= 0.0):
        return value, *positive_limits(value, spread, level)
    less, more = spread.reaches(level)
    return value, value - less, value + more
