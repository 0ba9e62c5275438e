"""User-supplied facts about a log besides its rows, and requirements on its columns.

A user states what no log can show: support, the range of rewards, the largest weight. A provenance says which users
depend on each other, which policies were fitted on them, and the least propensity.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.verdict import ASSUMES, CAUTION, GRAVE, Estimate, Finding
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.log.columns import Floats, RowNumbers, finite_column, refuse_rows, row_in_words

HIGHEST_TARGET = 1.0 + 1e-6
"""A softmax in float32 may pass 1 by a rounding."""
ROUNDED = 0.98
"""Of the least propensity of the log what is stated of it with two digits: rows contradict no bound by less than that,
and what is below is stated more loosely."""
PRECISION = 0.25
"""Half the interval over the value up to which a value is trusted, unless another is asked for."""
LEAST_PRECISE = 0.99
"""An interval that reaches as far as the value says nothing, whatever precision is asked for."""
LARGEST_REWARD = 1e100
"""Its square is still a number."""


@dataclass(frozen=True)
class Stated:
    """Facts about a log that its user gives.

    Attributes:
        full_support: whether the logging policy can take every action that the target can; None where it is not known.
        reward_min, reward_max: the range of rewards.
        weight_max: no weight target / propensity can be larger.
        propensity_min: no action that the target can take has a smaller propensity; states full support, too.
        target_max: the target gives no action a larger probability, where its whole distribution is known.
        user_rows_max: no user has more rows (for the intervals with a guarantee).
        precision: half the interval over the value from which the value is not precise enough to be trusted.
    """

    full_support: bool | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    weight_max: float | None = None
    propensity_min: float | None = None
    user_rows_max: float | None = None
    target_max: float | None = None
    precision: float = PRECISION

    def __post_init__(self) -> None:
        """Refuse invalid facts.

        Raises:
            UserError: a value of another kind, a reversed range, a bound that is not positive.
        """
        if self.full_support is not None and not isinstance(self.full_support, (bool, np.bool_)):
            raise UserError(f"full_support must be True, False or None, got {self.full_support!r}")
        check_range(self.reward_min, self.reward_max)
        limits = {"weight_max": math.inf, "user_rows_max": math.inf, "propensity_min": 1.0, "target_max": 1.0}
        for name, most in {**limits, "precision": LEAST_PRECISE}.items():
            value = getattr(self, name)
            if value is not None and not (_is_number(value) and 0.0 < float(value) <= most):
                limit = "a positive number" if math.isinf(most) else f"a number in (0, {most:g}]"
                percent = most <= 1.0 and _is_number(value) and 1.0 < float(value) <= 100.0
                hint = f": did you mean {value:g} % = {value / 100.0:g}?" if percent else ""
                raise UserError(f"{name} must be {limit}, got {value!r}{hint}")

    @property
    def supports(self) -> bool | None:
        """Whether full support is stated, directly or through the least propensity; None where nothing is."""
        return True if self.propensity_min is not None else self.full_support

    @property
    def largest_weight(self) -> float | None:
        """The bound on weights that is given, directly or through the least propensity, for intervals that need one."""
        bounds = [] if self.weight_max is None else [float(self.weight_max)]
        if self.propensity_min is not None:
            bounds.append(float(self.target_max or 1.0) / float(self.propensity_min))
        return min(bounds, default=None)

    @property
    def bounds(self) -> dict[str, float]:
        """The bounds that rows may contradict, by their words."""
        given = {"least propensity": self.propensity_min, "largest weight": self.weight_max}
        given["largest target probability"] = self.target_max
        return {words: float(value) for words, value in given.items() if value is not None}

    def denied(self, target: Floats, propensity: Floats) -> int:
        """How many rows contradict ``propensity_min``, ``weight_max`` or ``target_max``.

        Args:
            target: (n,) probabilities.
            propensity: (n,).
        """
        denied = np.zeros(target.size, bool)
        if self.propensity_min is not None:
            denied |= (propensity < float(self.propensity_min) * ROUNDED) & (target > 0.0)
        if self.weight_max is not None:
            denied |= target > propensity * (float(self.weight_max) / ROUNDED)
        if self.target_max is not None and not np.array_equal(target, propensity):  # else it is the policy that logged
            denied |= target > float(self.target_max) * HIGHEST_TARGET
        return int(np.count_nonzero(denied))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def check_range(reward_min: float | None, reward_max: float | None) -> tuple[float | None, float | None]:
    """The range of rewards as floats.

    Raises:
        UserError: no finite numbers, or the least not below the largest.
    """
    for name, value in (("reward_min", reward_min), ("reward_max", reward_max)):
        if value is not None and not (_is_number(value) and abs(value) <= LARGEST_REWARD):
            which = "least" if name == "reward_min" else "largest"
            raise UserError(
                f"{name} must be a finite number, the {which} reward possible (at most {LARGEST_REWARD:g}), "
                f"got {value!r}"
            )
    least = None if reward_min is None else float(reward_min)
    largest = None if reward_max is None else float(reward_max)
    if largest is not None and (least if least is not None else -math.inf) >= largest:
        raise UserError(
            f"--reward-min {reward_min} must be below --reward-max {reward_max}: give the least reward first"
        )
    return least, largest


def refuse_outside(
    reward: Floats,
    least: float | None,
    largest: float | None,
    name: str,
    numbers: RowNumbers = None,
) -> None:
    """Raise UserError for the first reward outside [least, largest]; ``numbers`` are its rows in the file."""
    low = np.zeros(reward.size, bool) if least is None else reward < least
    high = np.zeros(reward.size, bool) if largest is None else reward > largest
    outside = low | high
    if outside.any():
        row = int(np.argmax(outside))
        what = f"below --reward-min {least:g}; lower it" if low[row] else f"above --reward-max {largest:g}; raise it"
        raise UserError(f"column {name!r}, {row_in_words(row, numbers)}: {reward[row]:g} is {what}")


def limit_column(
    values: Any,
    reward: Floats,
    names: tuple[str, str] = ("reward", "reward_limit"),
    numbers: RowNumbers = None,
) -> Floats:
    """The largest reward possible of each row's action, (n,), checked.

    Args:
        values: (n,).
        reward: (n,), none above its limit.
        names: of the columns of rewards and limits, for messages.
        numbers: rows in a file.

    Raises:
        UserError: a limit that is no number, a reward above its own, or limits that are the rewards over again.
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
    """The target's mass where the logging probability is 0, (n,), checked; ``numbers`` are its rows in a file.

    Raises:
        UserError: a value outside [0, 1], or one that the logged action's own probability leaves no room for.
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


FITTED_ON = "fitted_on"
"""Key of a replayed log's provenance: ``policies`` that were fitted, on the log of ``digest``, which shares ``shared``
of the log's ``users``; ``half`` of the users that are judged, where they were split."""
PROPENSITY_MIN = "propensity_min"
"""Key of a replayed log's provenance: no action has a smaller propensity under the ``policy`` that the log names."""
MOST_SHARED = 0.1
"""Share of users that a policy may have been fitted on before its estimate is of no use."""


def model_column(values: Any, name: str, reward: Floats, largest_weight: float) -> Floats:
    """As :func:`finite_column`, and fourth powers of sums of weighted values are numbers."""
    array = finite_column(values, name, reward.size)
    limit = 1e75 / (max(largest_weight, 1.0) * reward.size)
    refuse_rows(np.abs(array) > limit, array, name, "is too large; use larger units, as for the reward")
    return array


def check_rows(
    reward: Floats,
    propensity: Floats,
    target: Floats,
    names: tuple[str, str, str],
    numbers: RowNumbers = None,
) -> None:
    """Raise UserError for the first row that is no data: propensity outside (0, 1], negative target, missing reward.

    Args:
        reward: (n,).
        propensity: (n,).
        target: (n,).
        names: of the three columns, for messages.
        numbers: (n,) row numbers for messages, where the rows are a file's.
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
    """``clip`` as a positive float, inf for None, or UserError."""
    if clip is None:
        return float("inf")
    if isinstance(clip, bool) or not isinstance(clip, (int, float, np.number)) or not float(clip) > 0.0:
        raise UserError(f"clip must be a positive number (weights are cut there), got {clip!r}; None means no clipping")
    return float(clip)


def level_of_best(level: float, k: int) -> float:
    """The level of each of k intervals such that a statement about the best of them holds at ``level``.

    The best of k estimates is the luckiest too; all k intervals hold together at ``level`` if each holds at
    1 - (1 - level) / k (Bonferroni), and then so does the winner's.

    Args:
        level: in (0, 1).
        k: how many policies the best is one of, 1 and more.
    """
    return 1.0 - (1.0 - level_of(level)) / whole_number(k, "k", least=1)


def adaptive_findings(provenance: Mapping[str, Any]) -> list[Finding]:
    """Dependence between the users according to a log's provenance; empty if they are independent.

    Args:
        provenance: of a :class:`recsim_mnar.log.Log`, or of a file that it was written to.
    """
    run = provenance.get("online")
    if not isinstance(run, dict) or run.get("learns") != "all users":
        return []
    lanes = int(run.get("lanes", 1))
    message = (
        f"the logging policy learned from all users while it acted ({lanes} at a time), so users are not independent "
        "and the interval, which takes them as such, is not derived for this log"
    )
    action = "log under a policy that does not learn, or repeat the whole run with several seeds"
    return [Finding("users_not_independent", CAUTION, float(lanes), message, action)]


def fitted_findings(provenance: Mapping[str, Any], policies: Collection[str]) -> list[Finding]:
    """The finding of a policy that was fitted on users who judge it; empty where none is known to be.

    Args:
        provenance: as :func:`adaptive_findings`.
        policies: names of the columns that the estimate is of.
    """
    made = provenance.get(FITTED_ON)
    if not isinstance(made, dict) or not set(made.get("policies", ())) & set(policies):
        return []
    shared, users = int(made.get("shared", 0)), max(int(made.get("users", 0)), 1)
    if shared == 0:
        return []
    message = f"it was fitted on {shared:,} of the {users:,} users who judge it, and an estimate {ASSUMES}"
    action = "fit it on other users (replay --train, or --split-users)"
    severity = GRAVE if shared >= MOST_SHARED * users else CAUTION
    return [Finding("trained_on_log", severity, shared / users, message, action)]


def with_adaptive_findings(estimate: Estimate, provenance: Mapping[str, Any], *policies: str) -> Estimate:
    """The estimate of policies, its verdict with how the log was made and what they were fitted on."""
    return estimate.with_findings([*adaptive_findings(provenance), *fitted_findings(provenance, policies)])


def known_bound(provenance: Mapping[str, Any], stated: Mapping[str, Any], propensity: str) -> float | None:
    """The least propensity of the named policy according to a log's provenance; None if unknown.

    Args:
        provenance: as :func:`adaptive_findings`.
        stated: what the user states; nothing is taken where it has ``propensity_min`` or ``weight_max``.
        propensity: column of the propensities: nothing is known of another one than the log's own.
    """
    least = provenance.get(PROPENSITY_MIN)
    if propensity != "propensity" or "policy" not in provenance or not isinstance(least, float):
        return None
    given = [stated.get(name) for name in ("propensity_min", "weight_max")]
    return least if given == [None, None] and 0.0 < least <= 1.0 else None


def taken(records: Sequence[dict[str, Any]], least: float | None) -> list[dict[str, Any]]:
    """Records whose diagnostics say that this least propensity was taken from the provenance, where one was."""
    if least is None:
        return list(records)
    return [record | {"diagnostics": record["diagnostics"] | {"propensity_min_taken": least}} for record in records]


def bound_lines(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is said of a bound that was taken from the provenance."""
    least = records[0]["diagnostics"].get("propensity_min_taken") if records else None
    if least is None:
        return []
    return [f"--propensity-min {least:.3g}: from the log's provenance"]
