"""plan_estimate: how many rows until the verdict on an estimate turns, finding by finding."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.off_policy.from_file import UNSUPPORTED
from recsim_mnar.estimators.off_policy.from_moments import estimate_from_moments
from recsim_mnar.estimators.off_policy.inputs import check_clip, check_level
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.registry import check_name, known_to_differ
from recsim_mnar.estimators.off_policy.sampling import of_letters
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.support import STRICT, mean_weight_limits, support_of
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.verdict import LEVELS, Finding, Verdict
from recsim_mnar.log.columns import Floats
from recsim_mnar.numerics.checks import whole_number
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.plan.amounts import factor_range
from recsim_mnar.own_log.plan.calibration import of_rows, spread_factor, strata, user_factors
from recsim_mnar.own_log.plan.pilot import Pilot

MOST = 1e6
"""Times as many rows as the log has, beyond which a finding counts as one that never turns."""
_GRID = 40
_CHANCE = ("propensities", "support_missing")
"""Findings of a mean weight that is not what it must be."""
_UNSTATED = "support_unstated"


@dataclass(frozen=True)
class Turn:
    """A finding of the verdict, and what more rows do to it.

    Attributes:
        code: of the finding.
        level: it gives the verdict today; "trust" for one that only more rows bring up.
        message: of the finding, today or where it first appears.
        changes: (rows, level) from which on it gives another level, ascending; empty where it never does.
        last: level that it ends at, with a million times the rows.
        action: what to do, of the finding.
    """

    code: str
    level: str
    message: str
    changes: tuple[tuple[int, str], ...]
    last: str
    action: str

    @property
    def clears(self) -> int | None:
        """Rows from which on it says nothing against the estimate; None where there are none such."""
        if self.last != "trust":
            return None
        return self.changes[-1][0] if self.changes else 0


@dataclass(frozen=True)
class EstimatePlan:
    """What more rows do to the verdict on a target.

    Attributes:
        target: its column.
        estimator: whose estimate is judged.
        rows: of the log.
        users: of the log; rows where there are no users.
        value: today's estimate.
        half_width: of its interval today.
        level: of the interval.
        verdict: today's level.
        caution: rows from which on the verdict is at least caution; None where more rows never make it so.
        trust: rows from which on it is trust; None where more rows never make it so.
        low, high: factors on these rows between which they lie, at ``level``, by what the log leaves open of the
            variance.
        turns: finding by finding, the gravest first.
        ahead: where a number of rows was asked about: ``rows``, ``half_width`` and ``verdict`` (its level) from them.
        reading: what was taken from a file, where that had to be recognised.
    """

    target: str
    estimator: str
    rows: int
    users: int
    value: float
    half_width: float
    level: float
    verdict: str
    caution: int | None
    trust: int | None
    low: float
    high: float
    turns: tuple[Turn, ...]
    ahead: dict[str, Any] | None = None
    reading: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        turns = [asdict(turn) | {"clears": turn.clears} for turn in self.turns]
        return asdict(self) | {"turns": turns}


def plan_estimate(
    log: Any,
    target: str,
    *,
    rows: int | None = None,
    estimator: str = "clipped_ips",
    clip: float | None = 15.0,
    level: float = 0.95,
    unsupported: str | None = None,
    columns: Mapping[str, str | None] | Reading | None = None,
    **stated: Any,
) -> EstimatePlan:
    """Say how many rows a log needs until its verdict on a target turns, and what more rows will never mend.

    The log of n' rows is taken to be n' / n times this one: the same users again, the same largest weight and reward.
    So each finding is judged at n' as `estimate` will judge it.

    Args:
        log: a file or folder, a :class:`recsim_mnar.log.Log`, or columns by name.
        target: column of the target policy's probability of the logged action.
        rows: adds the width and the verdict that a log of so many rows would give.
        estimator: ``ips``, ``clipped_ips`` or ``snips``.
        clip: weights of ``clipped_ips`` are cut there; None for no clipping.
        level: of the interval.
        unsupported: column of the target's mass where the logging probability is 0; None for the one named as the
            target with ``_unsupported`` behind it, where there is one.
        columns: column by role (reward, propensity, user, time), those left out are recognised; or a whole ``Reading``.
        **stated: full_support, reward_min, reward_max, weight_max and propensity_min, as
            :func:`recsim_mnar.estimators.estimate_value`.

    Raises:
        UserError: no such column, an estimator that is not a function of moments, or values that are no data.
    """
    level = check_level(level)
    check_clip(clip)
    info = check_name(estimator)
    if not info.from_moments:
        raise UserError(f"no plan for the estimator {estimator!r}; {nearest(estimator, known_to_differ())}")
    allowed = ("full_support", "reward_min", "reward_max", "weight_max", "propensity_min")
    unknown = sorted(set(stated) - set(allowed))
    if unknown:
        raise UserError(f"plan_estimate has no parameter {unknown[0]!r}; it takes: {', '.join(allowed)}")
    known = Stated(**stated)
    lost = target + UNSUPPORTED if unsupported is None else unsupported
    pilot = Pilot.of(log, [target], optional={target: lost}, columns=columns)
    if unsupported is not None and not pilot.missing:
        raise UserError(f"{pilot.name} has no column {unsupported!r} of missing mass: name another, or leave it away")
    assert pilot.propensity is not None

    propensity, policy = pilot.propensity, pilot.policies[target]

    def gather(rows: Any, least: float | None) -> Moments:
        return Moments.of(
            pilot.reward[rows], propensity[rows], policy[rows], clip=clip if info.clips else None,
            cluster=None if codes is None else codes[rows], names=("reward", "propensity", target), reward_min=least,
            reward_max=known.reward_max, unsupported=pilot.missing[target][rows] if pilot.missing else None,
        )  # fmt: skip

    codes = None if pilot.clusters is None else pilot.clusters.codes
    moments = gather(slice(None), known.reward_min)
    moments.denied = known.denied(policy, propensity)
    expected, steady = _expected(pilot, policy / propensity, lambda rows: gather(rows, moments.shift), moments)
    judge = functools.cache(
        lambda factor: estimate_from_moments(expected.scaled(factor), estimator, level=level, stated=known)
    )
    today = estimate_from_moments(moments, estimator, level=level, stated=known)
    clears = None if expected is moments else _chance_clears(moments, known, level)
    outlook = _Outlook(judge, _findings(today), 1.0 if estimator == "snips" else steady, clears)
    turns = _turns(outlook, moments.rows)
    low, high = factor_range(_relative_error(moments, estimator, today), level)
    return EstimatePlan(
        target, estimator, moments.rows, moments.users, today.value, (today.high - today.low) / 2.0, level,
        today.verdict.level, _from_then_on(turns, "caution", moments.rows),
        _from_then_on(turns, "trust", moments.rows), low, high, turns,
        None if rows is None else _ahead(outlook, whole_number(rows, "rows", least=1), moments.rows),
        pilot.lines,
    )  # fmt: skip


@dataclass(frozen=True)
class _Outlook:
    """What a log of so many times the rows gives.

    Attributes:
        judge: the estimate from the expected moments.
        today: findings of the log itself.
        steady: the variance that is to be expected, as a share of these moments'.
        clears: factor from which a mean weight that is off by chance is not noticed; None where it is no chance.
    """

    judge: Callable[[float], Estimate]
    today: dict[str, Finding]
    steady: float
    clears: float | None

    def findings(self, factor: float) -> dict[str, Finding]:
        """By code; chance is as it is today until it clears, and is not taken for a trend."""
        if factor <= 1.0:
            return self.today
        found = _findings(self.judge(factor))
        if self.clears is not None:
            found = {code: finding for code, finding in found.items() if code not in _CHANCE}
            kept = (*_CHANCE, _UNSTATED) if factor < self.clears else (_UNSTATED,)
            found |= {code: finding for code, finding in self.today.items() if code in kept}
        return found


def _chance_clears(moments: Moments, stated: Stated, level: float) -> float:
    """The factor from which a mean weight that is off by d today, d / factor then, lies within its limits.

    These are h / root(factor) from it, h being today's: the factor is (d / h)^2.
    """
    mean = moments.sum("w") / moments.rows
    off = 1.0 - (moments.missing or 0.0) / moments.rows - mean
    low, high = mean_weight_limits(moments, stated, level)
    reach = high - mean if off > 0.0 else mean - low
    return (off / reach) ** 2 if reach > 0.0 else 1.0


def _ahead(outlook: _Outlook, rows: int, today: int) -> dict[str, Any]:
    found = outlook.judge(rows / today)
    half = (found.high - found.low) / 2.0 * math.sqrt(outlook.steady)
    return {"rows": rows, "half_width": half, "verdict": Verdict.of(outlook.findings(rows / today).values()).level}


def _expected(
    pilot: Pilot, weights: Floats, gather: Callable[[Any], Moments], moments: Moments
) -> tuple[Moments, float]:
    """The moments that a log like this one is expected to have, and what is to be expected of squared rewards beside.

    Where the mean weight does not speak against support beyond doubt, that it is not 1 is chance, and users are
    weighted so that it is (:mod:`recsim_mnar.own_log.plan.calibration`).
    """
    known = support_of(moments, Stated(), STRICT)
    if moments.supported == 0 or known.proved or known.excess > 0.0:
        return moments, 1.0
    told = sum(pilot.missing.values(), np.zeros(len(pilot)))
    factors = user_factors((weights + told)[:, None], pilot.clusters)
    parts = strata(factors, pilot.clusters)
    squares = of_rows(factors, pilot.clusters) * np.minimum(weights, moments.clip) ** 2
    steady = spread_factor(pilot.reward - moments.shift, squares, pilot.clusters)
    if len(parts) == 1:
        return moments, steady
    weighted = functools.reduce(operator.add, (gather(rows).scaled(factor) for rows, factor in parts))
    return moments.with_sums_of(weighted), steady


def _turns(outlook: _Outlook, rows: int) -> tuple[Turn, ...]:
    """Every finding that speaks against the estimate today or later."""
    factors = [MOST ** (step / _GRID) for step in range(_GRID + 1)]
    levels = [outlook.findings(factor) for factor in factors]
    codes = dict.fromkeys(code for found in levels for code, finding in found.items() if finding.level != "trust")
    turns = []
    for code in codes:
        changes = []
        for place in range(1, len(factors)):
            before, after = (_level(levels[at], code) for at in (place - 1, place))
            if before != after:
                factor = _crossing(outlook, code, after, factors[place - 1], factors[place])
                # The width alone rests on rewards' squares, which the log may show by chance too large or too small.
                factor = max(factor * outlook.steady, 1.001) if code == "wide_interval" else factor
                changes.append((math.ceil(factor * rows), after))
        said = next(found[code] for found in levels if _level(found, code) != "trust")
        turns.append(
            Turn(code, _level(levels[0], code), said.message, tuple(changes), _level(levels[-1], code), said.action)
        )
    return tuple(
        sorted(turns, key=lambda turn: (-LEVELS.index(turn.level), -LEVELS.index(turn.last), -(turn.clears or 0)))
    )


def _findings(estimate: Estimate) -> dict[str, Finding]:
    """By code, the gravest of each."""
    found: dict[str, Finding] = {}
    for finding in sorted(estimate.verdict.findings, key=lambda finding: finding.severity):
        found[finding.code] = finding
    return found


def _level(found: dict[str, Finding], code: str) -> str:
    return found[code].level if code in found else "trust"


def _crossing(outlook: _Outlook, code: str, after: str, low: float, high: float) -> float:
    """The factor between two at which a finding's level becomes ``after``, to a thousandth."""
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        if _level(outlook.findings(middle), code) == after:
            high = middle
        else:
            low = middle
    return high


def _from_then_on(turns: Sequence[Turn], wanted: str, rows: int) -> int | None:
    """Rows from which on no finding is worse than a level; the log's own where that is so today."""
    limit, needed = LEVELS.index(wanted), rows
    for turn in turns:
        levels = [(rows, turn.level), *turn.changes]
        worse = [place for place, (_, level) in enumerate(levels) if LEVELS.index(level) > limit]
        if not worse:
            continue
        if worse[-1] == len(levels) - 1:
            return None
        needed = max(needed, levels[worse[-1] + 1][0])
    return needed


def _relative_error(moments: Moments, estimator: str, today: Estimate) -> float:
    """Standard error, as a share, of the variance behind the interval: of sum d^2, by the users' d^4."""
    above, below = ("y", "l") if estimator == "clipped_ips" and math.isfinite(moments.clip) else ("x", "l")
    if estimator == "snips":
        below = "w"
    deviations = of_letters(moments, above, below, today.value - moments.shift)
    resting = deviations.resting()
    if resting is None:
        # Of rows the fourth moment is not kept: rewards that are rare rest on as many rows as are effectively rewarded.
        resting = max(today.diagnostics["effective_rewards"], 1.0)
    return math.sqrt(max(1.0 / max(resting, 1.0) - 1.0 / max(moments.users, 1), 0.0))
