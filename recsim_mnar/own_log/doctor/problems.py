"""Problems that doctor finds in a file, its propensities first: are they possible, and is the mean weight 1?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.estimators.checks import STRICT, mean_weight_limits
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.kernels.checks import told_apart
from recsim_mnar.log.columns import Clusters, Floats
from recsim_mnar.tables.faults import MISSING, Fault

HOLDS_ITEMS = "holds_items"
"""Code of columns of items that a new policy may show."""
NOTE, PROBLEM = "note", "problem"
"""Worth knowing; or numbers made of the file would be wrong, or a command would refuse it."""


@dataclass(frozen=True)
class Problem:
    """One problem or remark.

    Attributes:
        code: stable name, for programs.
        level: :data:`NOTE` or :data:`PROBLEM`.
        message: what was found, with counts and rows (from 1 below the header).
        advice: what to do; empty where there is nothing.
        columns: where.
    """

    code: str
    level: str
    message: str
    advice: str = ""
    columns: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.message}: {self.advice}" if self.advice else self.message


def problems_of(faults: Iterable[Fault]) -> list[Problem]:
    """The faults of values: what is missing is said apart, with its counts in every column."""
    return [
        Problem(fault.code, PROBLEM, str(fault).removesuffix(f": {fault.advice}"), fault.advice, (fault.column,))
        for fault in faults
        if fault.code != MISSING
    ]


HIGHEST = 1.0 + 1e-6
_PERCENT = 100.0
_SHOWN = 3


@dataclass(frozen=True)
class MeanWeight:
    """Whether the weights of a policy have the mean that they must have.

    Attributes:
        policy: a target's column; "" for the policy that takes every action ever shown equally often, which needs none.
        mean: of target / propensity over the rows whose values are possible.
        low, high: of its expectation, at :data:`STRICT`, users being independent.
        actions: number of actions of that policy, None for a target's column.
    """

    policy: str
    mean: float
    low: float
    high: float
    actions: int | None = None

    @property
    def holds(self) -> bool:
        """True if the mean can be 1."""
        return self.low <= 1.0 <= self.high

    def to_dict(self) -> dict[str, Any]:
        """JSON types; what is not finite is None."""
        ends = {name: value if np.isfinite(value) else None for name, value in (("low", self.low), ("high", self.high))}
        return {"policy": self.policy or None, "mean": self.mean, **ends, "actions": self.actions, "holds": self.holds}

    def line(self) -> str:
        """For a person: what was checked, and the numbers."""
        said, wanted = told_apart(self.mean, 1.0)
        numbers = f"{said} ({self.low:.3g} to {self.high:.3g} at {100 * STRICT:g} %), should be {wanted}"
        if self.actions is None:
            return f"of {self.policy} / logged probability: {numbers}"
        return f"of equal shares of the {self.actions:,} items shown / logged probability: {numbers}"


def propensity_facts(values: Floats) -> dict[str, Any]:
    """Counts of (n,) propensities, NaN where missing; JSON types."""
    known = values[~np.isnan(values)]
    above = known[known > HIGHEST]
    counts = {"zero": int(np.sum(known == 0.0)), "negative": int(np.sum(known < 0.0)), "above_1": int(above.size)}
    return {
        "least": float(known.min()) if known.size else None,
        "largest": float(known.max()) if known.size else None,
        **counts,
        "impossible": sum(counts.values()),
        "percent": bool(above.size and above.size >= known.size / 2 and known.min() >= 0.0 and known.max() <= _PERCENT),
    }


def impossible(values: Floats, facts: dict[str, Any], name: str, numbers: NDArray[np.int64]) -> list[Problem]:
    """The problems of impossible propensities.

    Args:
        values: (n,).
        facts: of :func:`propensity_facts`.
        name: of the column.
        numbers: (n,) rows in the file, from 1.
    """
    found = []
    if facts["above_1"]:
        bad = np.flatnonzero(values > HIGHEST)
        message = f"column {name!r} is above 1 in {_rows(values, bad, numbers)}"
        if facts["percent"]:
            advice = "these look like percent: divide the column by 100"
        else:
            advice = "these are no probabilities; if they are densities, give the probability of the action shown"
        found.append(Problem("propensity_above_1", PROBLEM, message, advice, (name,)))
    bad = np.flatnonzero(values <= 0.0)
    if bad.size:
        message = f"column {name!r} is 0 or below in {_rows(values, bad, numbers)}"
        advice = "a logged action has a positive probability: correct these rows, or leave them out"
        found.append(Problem("propensity_not_positive", PROBLEM, message, advice, (name,)))
    return found


def _rows(values: Floats, bad: NDArray[np.int64], numbers: NDArray[np.int64]) -> str:
    shown = ", ".join(f"{numbers[row]}: {values[row]:g}" for row in bad[:_SHOWN]) + (
        ", ..." if bad.size > _SHOWN else ""
    )
    return f"{bad.size:,} rows ({shown})" if bad.size > 1 else f"row {shown}"


def mean_weight(
    propensity: Floats, target: Floats, user: NDArray[np.int64] | None, *, policy: str = "", actions: int | None = None
) -> MeanWeight | None:
    """The mean weight of a policy with its limits; None where no row has possible values.

    Args:
        propensity: (n,).
        target: (n,) the policy's probability of the logged action.
        user: (n,) numbers of users, -1 where missing; None where rows are independent.
        policy: its column.
        actions: of the policy that takes so many equally often.
    """
    good = (propensity > 0.0) & (propensity <= HIGHEST) & (target >= 0.0) & (target <= HIGHEST)
    if user is not None:
        good &= user >= 0
    if not good.any():
        return None
    p, t = np.minimum(propensity[good], 1.0), target[good]
    cluster = None if user is None else Clusters.of(user[good], int(good.sum()))
    sums = PolicySums.of(p, t, cluster)
    low, high = mean_weight_limits(sums, STRICT)
    return MeanWeight(policy, sums.mean_weight, low, high, actions)


def weight_problem(found: MeanWeight, column: str) -> Problem | None:
    """Meaning of a mean weight that cannot be 1; None if it can.

    Args:
        found: the mean weight.
        column: of the propensities.
    """
    if found.holds:
        return None
    low = found.mean < 1.0
    if found.actions is None:
        advice = f"either {column!r} or {found.policy!r} is not the probability of the item shown"
        if low:
            advice = f"the target takes actions that were never shown, or {column!r} is too large"
    else:
        possible = (
            f"1 / {column!r} is {found.mean * found.actions:,.3g} on average: rows could choose among about so many"
        )
        advice = f"{possible} actions, some of which were never shown, or {column!r} is too small"
        if low:
            advice = f"{possible} actions, or {column!r} is too large"
    if low and found.low <= 1.0 / _PERCENT <= found.high:
        advice = f"{column!r} looks like percent: divide it by 100"
    level = PROBLEM if found.actions is None else NOTE
    return Problem("mean_weight", level, f"the mean {found.line()}", advice, (column,))
