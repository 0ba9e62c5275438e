"""Facts about a log that its user states, and checks of the log's columns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Floats, RowNumbers, finite_column, refuse_rows, row_in_words

HIGHEST_TARGET = 1.0 + 1e-6
"""Largest target probability: a softmax in float32 may exceed 1 by a rounding error."""
ROUNDED = 0.98
"""Tolerance of stated bounds, which people round to two digits: a row contradicts a bound only if its value is beyond
the bound by more than this factor."""
PRECISION = 0.25
"""Default for the largest ratio of half the interval to the value with which a value is trusted."""
LEAST_PRECISE = 0.99
"""Largest such ratio that can be requested: from 1, the interval includes both 0 and twice the value."""
LARGEST_REWARD = 1e100
"""Largest reward, whose square does not overflow."""


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts about a log that its user knows; None for each that is not known. A true fact never makes an answer worse.

    Attributes:
        full_support: whether the logging policy can take every action that the target can take.
        reward_min: least possible reward.
        reward_max: largest possible reward.
        weight_max: upper bound of the weights target / propensity.
        propensity_min: lower bound of the propensities of all actions that the target can take (for instance epsilon /
            number of actions of an epsilon-greedy policy); it implies full support.
        target_max: largest probability that the target gives any action.
        user_rows_max: largest possible number of rows of a user, for intervals with a guarantee.
        unsupported: (n,) the target's probability, in each row's context, of actions whose logging probability is 0,
            as `recsim-mnar replay` writes it.
        baseline_unsupported: (n,) the same probability under the baseline of a difference.
        reward_limit: (n,) largest possible reward of each row's action, for instance its price.
    """

    full_support: bool | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    weight_max: float | None = None
    propensity_min: float | None = None
    target_max: float | None = None
    user_rows_max: float | None = None
    unsupported: Any = None
    baseline_unsupported: Any = None
    reward_limit: Any = None

    def __post_init__(self) -> None:
        """Refuse invalid facts.

        Raises:
            UserError: a value of a wrong type, a reversed range, or a bound that is not positive.
        """
        if self.full_support is not None and not isinstance(self.full_support, (bool, np.bool_)):
            raise UserError(f"full_support must be True, False or None, got {self.full_support!r}")
        _check_range(self.reward_min, self.reward_max)
        for name in ("weight_max", "user_rows_max"):
            _check_bound(name, getattr(self, name), math.inf)
        for name in ("propensity_min", "target_max"):
            _check_bound(name, getattr(self, name), 1.0)

    def counted_from(self, least_seen: float) -> float:
        """Return the amount that is subtracted from all rewards, so that none is negative.

        It is the smaller of 0 and the least logged reward ``least_seen``, or the stated least reward if that is larger.
        """
        least = min(least_seen, 0.0)
        if self.reward_min is None:
            return least
        return max(float(self.reward_min), least)

    @property
    def supports(self) -> bool | None:
        """Full support as stated directly or through ``propensity_min``; None if it is not stated."""
        if self.propensity_min is not None:
            return True
        return self.full_support

    @property
    def largest_weight(self) -> float | None:
        """The upper bound of weights as stated directly or through ``propensity_min``; None if none is stated."""
        bounds = []
        if self.weight_max is not None:
            bounds.append(float(self.weight_max))
        if self.propensity_min is not None:
            bounds.append(float(self.target_max or 1.0) / float(self.propensity_min))  # no probability is above 1
        return min(bounds, default=None)

    @property
    def bounds(self) -> dict[str, float]:
        """The stated bounds that rows may contradict, by their names in texts."""
        bounds = {
            "least propensity": self.propensity_min,
            "largest weight": self.weight_max,
            "largest target probability": self.target_max,
        }
        return {name: float(value) for name, value in bounds.items() if value is not None}

    def denied(self, target: Floats, propensity: Floats) -> int:
        """Count the rows that contradict ``propensity_min``, ``weight_max`` or ``target_max``.

        Args:
            target: (n,) the target's probabilities of the logged actions.
            propensity: (n,) the logging policy's probabilities of them.
        """
        denied = np.zeros(target.size, bool)
        if self.propensity_min is not None:
            denied |= (propensity < float(self.propensity_min) * ROUNDED) & (target > 0.0)
        if self.weight_max is not None:
            denied |= target > propensity * (float(self.weight_max) / ROUNDED)
        # The logging policy, as a baseline, is not the target of which ``target_max`` is stated.
        if self.target_max is not None and not np.array_equal(target, propensity):
            denied |= target > float(self.target_max) * HIGHEST_TARGET
        return int(np.count_nonzero(denied))


def check_precision(precision: Any) -> float:
    """Return the precision as a float, or raise UserError unless it is in (0, ``LEAST_PRECISE``]."""
    _check_bound("precision", precision, LEAST_PRECISE)
    return float(precision)


def _check_bound(name: str, value: Any, most: float) -> None:
    """Raise UserError unless a bound is None or a number in (0, most]; ask whether a probability was given in %."""
    if value is None or (_is_number(value) and 0.0 < float(value) <= most):
        return
    limit = "a positive number" if math.isinf(most) else f"a number in (0, {most:g}]"
    hint = ""
    if most <= 1.0 and _is_number(value) and 1.0 < float(value) <= 100.0:
        hint = f": did you mean {value:g} % = {value / 100.0:g}?"
    raise UserError(f"{name} must be {limit}, got {value!r}{hint}")


def _is_number(value: Any) -> bool:
    """Return whether a value is a real number; True and False are none."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _check_range(reward_min: float | None, reward_max: float | None) -> None:
    """Raise UserError unless both rewards are None or finite numbers, the least below the largest."""
    for name, which, value in (("reward_min", "least", reward_min), ("reward_max", "largest", reward_max)):
        if value is not None and not (_is_number(value) and abs(value) <= LARGEST_REWARD):
            raise UserError(
                f"{name} must be a finite number, the {which} reward possible (at most {LARGEST_REWARD:g}), "
                f"got {value!r}"
            )
    if reward_min is not None and reward_max is not None and reward_min >= reward_max:
        raise UserError(
            f"--reward-min {reward_min} must be below --reward-max {reward_max}: give the least reward first"
        )


def refuse_outside(
    reward: Floats,
    least: float | None,
    largest: float | None,
    name: str,
    numbers: RowNumbers = None,
) -> None:
    """Raise UserError for the first reward outside the stated range.

    Args:
        reward: (n,) rewards.
        least: least possible reward; None for no limit.
        largest: largest possible reward; None for no limit.
        name: name of the column in the message.
        numbers: (n,) row numbers in a file, for the message; None to count rows from 0.
    """
    if least is not None:
        refuse_rows(reward < least, reward, name, f"is below --reward-min {least:g}; lower it", numbers)
    if largest is not None:
        refuse_rows(reward > largest, reward, name, f"is above --reward-max {largest:g}; raise it", numbers)


def limit_column(
    values: Any,
    reward: Floats,
    names: tuple[str, str] = ("reward", "reward_limit"),
    numbers: RowNumbers = None,
) -> Floats:
    """Check the column of the largest possible reward of each row's action, and return it as floats (n,).

    Args:
        values: (n,) limits.
        reward: (n,) rewards; none may be above its limit.
        names: names of the columns of rewards and limits in messages.
        numbers: (n,) row numbers in a file, for messages; None to count rows from 0.

    Raises:
        UserError: a limit that is no finite number, a reward above its limit, or limits that are the rewards
            themselves.
    """
    array = finite_column(values, names[1], reward.size, numbers)
    refuse_rows(np.abs(array) > LARGEST_REWARD, array, names[1], "is too large; use larger units", numbers)
    above = reward > array
    if above.any():
        row = int(np.argmax(above))
        why = f"is above the row's {names[1]!r} {array[row]:g}; raise that, or mend the reward"
        refuse_rows(above, reward, names[0], why, numbers)
    if np.array_equal(array, reward) and np.any(array == 0.0) and np.any(array > 0.0):
        raise UserError(
            f"column {names[1]!r} holds what each row earned, 0 where it earned nothing: give the largest reward that "
            "the action can earn, a price say, whether it was sold or not"
        )
    return array


def missing_column(values: Any, target: Floats, numbers: RowNumbers = None) -> Floats:
    """Check the target's probability of actions whose logging probability is 0, and return it as floats (n,).

    Args:
        values: (n,) the probability in each row.
        target: (n,) the target's probabilities of the logged actions.
        numbers: (n,) row numbers in a file, for messages; None to count rows from 0.

    Raises:
        UserError: a value outside [0, 1 - target].
    """
    array = finite_column(values, "unsupported", target.size, numbers)
    bad = ~((array >= 0.0) & (array + target <= HIGHEST_TARGET))
    if bad.any():
        row = int(np.argmax(bad))
        raise UserError(
            f"column 'unsupported', {row_in_words(row, numbers)}: {array[row]:g} cannot add to the logged action's "
            f"{target[row]:g}; it must be in [0, 1 - target]"
        )
    return array


def model_column(values: Any, name: str, reward: Floats, largest_weight: float) -> Floats:
    """Check a column of a reward model: finite numbers whose weighted sums can be raised to the fourth power.

    Args:
        values: (n,) predictions.
        name: name of the column in messages.
        reward: (n,) rewards.
        largest_weight: largest weight of a row.
    """
    array = finite_column(values, name, reward.size)
    limit = 1e75 / (max(largest_weight, 1.0) * reward.size)  # the fourth power of 1e75 is still a float
    refuse_rows(np.abs(array) > limit, array, name, "is too large; use larger units, as for the reward")
    return array


def check_rows(
    reward: Floats,
    propensity: Floats,
    target: Floats,
    names: tuple[str, str, str],
    numbers: RowNumbers = None,
) -> None:
    """Raise UserError for the first invalid value: a propensity outside (0, 1], a target outside [0, 1], no reward.

    Args:
        reward: (n,) rewards; nan for a missing one.
        propensity: (n,) the logging policy's probabilities of the logged actions.
        target: (n,) the target's probabilities of the logged actions.
        names: names of the three columns in messages.
        numbers: (n,) row numbers in a file, for messages; None to count rows from 0.
    """
    bad = ~((propensity > 0.0) & (propensity <= 1.0))
    why = "is outside (0, 1]; a logged action has a positive probability"
    refuse_rows(bad, propensity, names[1], why, numbers)
    bad = ~((target >= 0.0) & (target <= HIGHEST_TARGET))
    why = "is no probability; give the target policy's probability of the logged action"
    refuse_rows(bad, target, names[2], why, numbers)
    why = "is not a finite number; drop the row or fill in the reward"
    refuse_rows(~np.isfinite(reward), reward, names[0], why, numbers)


def check_clip(clip: float | None) -> float:
    """Return the largest weight as a float, inf for None; raise UserError unless it is positive."""
    if clip is None:
        return math.inf
    if not _is_number(clip) or not float(clip) > 0.0:
        raise UserError(f"clip must be a positive number (weights are cut there), got {clip!r}; None means no clipping")
    return float(clip)
