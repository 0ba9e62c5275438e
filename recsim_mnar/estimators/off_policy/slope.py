"""SLOPE: choosing a clip (or any order of estimators from least to most biased) from the data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.value import estimate_value
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.log.columns import Clusters, column


def slope(values: Sequence[float], half_widths: Sequence[float]) -> int:
    """Index chosen by SLOPE (Su, Srinath & Krishnamurthy 2020, eq. 2).

    Candidates are ordered so that bias grows and the confidence width shrinks. The last one is taken whose interval of
    twice the half width, like those of all before it, still has a point in common with all of them.

    Args:
        values: the candidates' estimates.
        half_widths: half the widths of their intervals, which hold without the bias.

    Raises:
        UserError: none, or of different length.
    """
    if len(values) == 0 or len(values) != len(half_widths):
        raise UserError(f"slope needs as many half widths as values, got {len(half_widths)} and {len(values)}")
    low, high = -math.inf, math.inf
    chosen = 0
    for i, (value, half) in enumerate(zip(values, half_widths, strict=True)):
        low, high = max(low, value - 2.0 * half), min(high, value + 2.0 * half)
        if low > high:
            break
        chosen = i
    return chosen


def choose_clip(
    reward: Any,
    propensity: Any,
    target: Any,
    *,
    estimator: str = "clipped_ips",
    clips: Sequence[float] | None = None,
    q_logged: Any = None,
    q_target: Any = None,
    cluster: Any = None,
    level: float = 0.95,
    **stated: Any,
) -> tuple[float, Estimate]:
    """The clip that SLOPE chooses, and the estimate with it.

    The interval of that estimate takes the clip as given beforehand; its clip part covers the bias.

    Args:
        reward: (n,) rewards.
        propensity: (n,) in (0, 1].
        target: (n,) in [0, 1].
        estimator: "clipped_ips" or "clipped_dr".
        clips: candidates; None for ten on a scale of logarithms from the largest weight down to 1.
        q_logged: (n,) for clipped_dr.
        q_target: (n,) for clipped_dr.
        cluster: (n,) the user of each row.
        level: nominal coverage.
        **stated: full_support, unsupported, reward_min, reward_max, weight_max, propensity_min, as
            :func:`recsim_mnar.estimators.estimate_value`.

    Returns:
        The clip and its estimate.

    Raises:
        UserError: another estimator, or as :func:`recsim_mnar.estimators.estimate_value`.
    """
    if estimator not in ("clipped_ips", "clipped_dr"):
        raise UserError(f"choose_clip knows clipped_ips and clipped_dr, not {estimator!r}")
    rewards = column(reward, "reward")
    clusters = Clusters.of(cluster, rewards.size)
    common: dict[str, Any] = {
        "estimator": estimator,
        "q_logged": q_logged,
        "q_target": q_target,
        "cluster": clusters,
        "level": level,
        **stated,
    }
    if clips is None:
        first = estimate_value(rewards, propensity, target, **common)
        clips = np.geomspace(max(first.diagnostics["max_weight"], 1.0), 1.0, 10).tolist()
    ordered = sorted(set(map(float, clips)), reverse=True)
    # The delta width is the standard error's: the gamma interval's upper end holds a step for what was not seen.
    found = [estimate_value(rewards, propensity, target, clip=c, interval="delta", **common) for c in ordered]
    halves = [(e.diagnostics["sampling_high"] - e.diagnostics["sampling_low"]) / 2.0 for e in found]
    clip = ordered[slope([e.value for e in found], halves)]
    return clip, estimate_value(rewards, propensity, target, clip=clip, **common)
