"""What all parts share: intervals over platforms, Kendall's tau, and their text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import stats

NAMES = {"g1": "g1", "g2": "g2", "cosine-cf": "cosine CF", "naive-cf": "naive CF"}
CFS = ("cosine-cf", "naive-cf")

Interval = list[float]
"""Mean over platforms and the two ends of its 95 % interval."""


def interval(values: Iterable[float], least: float = -math.inf, most: float = math.inf) -> Interval:
    """Mean over platforms and its 95 % interval (Student's t), cut to what the quantity can be."""
    x = np.array([v for v in values if v is not None and math.isfinite(v)], float)
    if len(x) < 2:
        return [float(x.mean()) if len(x) else math.nan, least, most]
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / math.sqrt(len(x))
    return [float(x.mean()), max(float(x.mean() - half), least), min(float(x.mean() + half), most)]


def tau(scores: dict[str, float], truth: dict[str, float]) -> float:
    """Kendall's tau-b of the rankings of the same algorithms."""
    names = list(truth)
    return float(stats.kendalltau([scores[n] for n in names], [truth[n] for n in names]).statistic)


def percent(row: Any) -> str:
    """An interval of a relative change; of one platform its value alone."""
    if row[1] is None or not math.isfinite(row[1]):
        return f"{row[0]:+.1%}"
    return f"{row[0]:+.1%} [{row[1]:+.1%}, {row[2]:+.1%}]"


def plain(row: Any, form: str = ".2f") -> str:
    """An interval in the form of a number; a dash where there is none."""
    if row is None:
        return "-"
    if None in row or not all(map(math.isfinite, row)):
        return f"{row[0]:{form}}"
    return f"{row[0]:{form}} [{row[1]:{form}}, {row[2]:{form}}]"
