"""Differences from today's policy with the factor by which propensities may be off before they say nothing more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from recsim_mnar.estimators.off_policy.tolerance import propensity_tolerance
from recsim_mnar.estimators.off_policy.written import Amounts, Record, target_of

ByRows = Callable[..., float]
"""Of a policy's name and ``today``, ``half_width`` and ``worse``, see
:func:`recsim_mnar.estimators.off_policy.tolerance.weight_tolerance`."""

TOLERANCE = "propensity_tolerance"


def tolerated(record: Mapping[str, Any], by_rows: ByRows | None = None) -> dict[str, float]:
    """The tolerance of a difference from today's policy whose interval excludes 0; else, or if it has no end, nothing.

    Args:
        record: a difference.
        by_rows: for rewards other than 0 and 1; without it nothing is said of them.
    """
    low, high = float(record["low"]), float(record["high"])
    if "baseline" not in record or not record["today"] or low <= 0.0 <= high:
        return {}
    today, worse = record["diagnostics"]["mean_reward"], high < 0.0
    near = high if worse else low
    if Amounts.of([dict(record)]).shares:
        factor = propensity_tolerance(min(max(today + near, 0.0), 1.0), min(max(today, 0.0), 1.0))
    elif by_rows is not None:
        factor = by_rows(target_of(dict(record)), today=today, half_width=abs(record["value"] - near), worse=worse)
    else:
        return {}
    return {TOLERANCE: factor} if math.isfinite(factor) else {}


def with_tolerance(record: Record, by_rows: ByRows | None = None) -> Record:
    """The record, its diagnostics with :func:`tolerated`."""
    return record | {"diagnostics": record["diagnostics"] | tolerated(record, by_rows)}


def unless(record: Mapping[str, Any]) -> str:
    """How the sentence of a difference ends: for a person, with two digits of what is above 1."""
    factor = record.get("best_of", record["diagnostics"]).get(TOLERANCE)
    if factor is None or factor <= 1.0:
        return ""
    return f", unless propensities are off by more than {1.0 + float(f'{factor - 1.0:.2g}'):.6g} times"
