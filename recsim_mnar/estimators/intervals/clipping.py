"""What an estimate may miss because weights were clipped or shrunk, from row scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recsim_mnar.estimators.intervals.limits import (
    Cut,
    clipping_bias_bound,
    gamma_limits,
    small_sample_factor,
    student_limits,
)
from recsim_mnar.estimators.off_policy.scores import Rows, Scores
from recsim_mnar.log.columns import Floats, user_sums


def hidden_part(
    scores: Scores, rows: Rows, level: float, reward_range: float, one_reward: float
) -> tuple[float, float]:
    """How far below and above the estimate's mean the target policy's value may lie because weights were changed.

    With weights u in place of w the bias is E[(w - u)(r - q)], q = 0 without a reward model. Where neither rewards nor
    the model are negative it lies between -E[(w - u)+ q] - E[(u - w)+ r] and E[(w - u)+ r] + E[(u - w)+ q], each of
    which is taken at an upper limit; otherwise between the ranges of r - q times E[(w - u)+] and E[(u - w)+] (Bottou et
    al. 2013, eq. 12-13).

    Args:
        scores: of the estimator.
        rows: the columns.
        level: nominal coverage; every limit is one-sided at half of 1 - level, by user.
        one_reward: what one more reward is reckoned as, above the least.
        reward_range: largest minus least reward possible; rewards and model are counted from the least one.

    Returns:
        (below, above), in the reward's unit.
    """
    if scores.used is None or scores.other_weights:
        return 0.0, 0.0
    bounds = (0.0, reward_range)
    if np.isinf(reward_range):
        return 0.0 if scores.counts else reward_range, reward_range
    users = rows.reward.size if rows.clusters is None else rows.clusters.number
    if users < 2:
        return bounds[1] - bounds[0], bounds[1] - bounds[0]
    inflate = small_sample_factor(users, level)
    kept = np.minimum(rows.weight, scores.used)
    excess, more = rows.weight - kept, scores.used - kept
    cut = Cut(
        kept=float(np.mean(kept)),
        kept_variance=_variance(kept - np.mean(kept), rows) * inflate,
        excess=float(np.mean(excess)),
        excess_variance=_variance(excess, rows) * inflate,
        reward=None,
        reward_variance=0.0,
        weight=float(np.mean(rows.weight)),
        weight_variance=_variance(rows.weight - np.mean(rows.weight), rows) * inflate,
        largest=float(np.max(excess)) / rows.reward.size,
    )
    q = rows.q_logged if rows.q_logged is not None and not scores.counts else np.zeros(1)
    q_low, q_high = float(np.min(q)), float(np.max(q))
    if bounds[0] < 0.0 or q_low < 0.0:
        up, down = max(bounds[1] - q_low, 0.0), max(q_high - bounds[0], 0.0)
        grown = student_limits(float(np.mean(more)), _variance(more - np.mean(more), rows), users, level)[1]
        return clipping_bias_bound(cut, down, down, level) + grown * up, clipping_bias_bound(
            cut, up, up, level
        ) + grown * down

    def lost(outcome: Floats, most: float, one: float) -> float:
        """Upper limit of E[(w - u)+ outcome]."""
        product = excess * outcome
        own = replace(cut, reward=float(np.mean(product)), reward_variance=_variance(product, rows) * inflate)
        return clipping_bias_bound(own, most, one, level) if most > 0.0 else 0.0

    def added(outcome: Floats, most: float) -> float:
        """Upper limit of E[(u - w)+ outcome]."""
        largest = float(np.max(more)) * most
        if largest <= 0.0:
            return 0.0
        product = more * outcome
        return gamma_limits(
            float(np.mean(product)), _variance(product, rows) * inflate, largest / rows.reward.size, level
        )[1]

    below = lost(q, q_high, q_high) + added(rows.reward, one_reward)
    return below, lost(rows.reward, bounds[1], one_reward) + added(q, q_high)


def _variance(values: Floats, rows: Rows) -> float:
    """Sum of squared user sums of ``values`` (n,) over n^2: the variance of a mean of rows about 0."""
    sums = user_sums(values, rows.clusters)
    return float(sums @ sums) / values.size**2
