"""Uplift of lists, estimated from a log of recommendations and purchases or computed from the truth.

See section 2 of Sato et al. 2019. Each user has a list of N items. Metrics are computed in each period and averaged
over the periods with equal weights; Y is a purchase and e the propensity of a recommendation:

- ``uplift`` (equation 4): mean Y of the list's recommended items minus mean Y of its other items;
- ``uplift_snips`` (5): the same with weights 1/e and 1/(1 - e), a self-normalised ratio for each user;
- ``uplift_ips``: (1/N) (sum of Y/e over the recommended items - sum of Y/(1 - e) over the others);
- ``precision``: mean Y of the list's items; ``precision_recommended``: of its recommended items.

If recommendations are random, the first three are unbiased. If they are personal, ``uplift`` is confounded, because
users are recommended what they are likely to buy. ``uplift_snips`` corrects this in part only: a ratio of few weighted
items per user is biased, as its denominator varies with the recommendations. ``uplift_ips`` is unbiased with the true
propensities.

``uplift`` and ``uplift_snips`` are undefined for a list whose items were all recommended, or none of them; the paper
assumes that there are both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals import Spread, degrees_of_freedom, small_sample_factor
from recsim_mnar.estimators.ratings import check_length
from recsim_mnar.estimators.ratings import top_items as top_items
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Estimate, Finding, Verdict, few_users, scaled
from recsim_mnar.kernels.checks import level_of, refuse_first
from recsim_mnar.purchases.exposures import Exposures, Flags, Floats, Ints

LEAST_ESS = 100.0
"""Effective sample size below which a finding is raised."""
FEW_ESS = 30.0
"""Effective sample size below which that finding is grave."""
WIDE = 0.4
"""Half width of an interval, relative to the larger of effect and purchase rate, from which a finding is raised; this
limit and the next are those of off-policy values."""
USELESS = 1.0
"""Relative half width of an interval from which that finding is grave."""
_METHOD = "Student on sums by user, with the heaviest step"


@dataclass(frozen=True)
class _Statistic:
    """Estimate and the contributions of U users to its error.

    Attributes:
        value: the estimate.
        influence: (U,) each user's term of the estimate's error; the sum of their squares is its variance.
        rewarded: (U,) flags of users with a purchase.
        n: number of cells (user, item, period).
        ess: effective number of cells, after weighting.
        step: largest change of the estimate, up or down, by one more purchase.
    """

    value: float
    influence: Floats
    rewarded: Flags
    n: int
    ess: float
    step: float = 0.0


def _estimate(
    statistic: _Statistic,
    level: float,
    name: str,
    *,
    diagnostics: dict[str, Any],
    scale: float | None = None,
    findings: Sequence[Finding] = (),
) -> Estimate:
    """Return the estimate of a statistic, with its interval, and a verdict from the findings about it.

    Args:
        statistic: value and influences.
        level: nominal coverage.
        name: name of the estimator.
        diagnostics: further numbers for the estimate's diagnostics.
        scale: purchase rate to which the interval's width is compared, if it exceeds the value; None for no comparison.
        findings: findings of the estimator, added to those about the interval.
    """
    level = level_of(level)
    value = statistic.value
    influence = statistic.influence
    users = len(influence)
    # Second, third and fourth moments of the influences, for variance, skewness and degrees of freedom.
    square = influence**2
    second = float(square.sum())
    fourth = float((square**2).sum())
    reach_below = reach_above = math.inf  # distances from the value to the ends of its interval
    if users > 1:
        degrees = degrees_of_freedom(users, int(statistic.rewarded.sum()), second, fourth)
        variance = second * small_sample_factor(users, level, degrees)
        third = 0.0
        if second > 0.0:
            third = float((square * influence).sum()) / second
        reach_below, reach_above = Spread(variance, third, statistic.step, statistic.step).reaches(level)
    all_findings = [*few_users(users), *findings]
    if statistic.ess < statistic.n * (1.0 - 1e-9):  # the weights differ by more than rounding
        message = f"the effective sample is {statistic.ess:.3g} of {statistic.n:,} cells"
        severity = scaled(statistic.ess, LEAST_ESS, FEW_ESS)
        all_findings.append(Finding("effective_sample", severity, statistic.ess, message, _MORE_USERS))
    if scale is not None:
        all_findings.append(_wide_interval((reach_below + reach_above) / 2.0, max(scale, abs(value))))
    if fourth > 0.0:
        equal_users = second**2 / fourth  # n if n users have equal influences and the others none
        message = f"the spread rests on the equivalent of {equal_users:.2g} equal users, so its own size is uncertain"
        severity = min(scaled(equal_users, 10.0, 2.0), CAUTION)
        all_findings.append(Finding("uneven_users", severity, equal_users, message, _MORE_USERS))
    details = {**diagnostics, "standard_error": float(np.sqrt(second))}
    low = value - reach_below
    high = value + reach_above
    return Estimate(
        value, low, high, level, _METHOD, statistic.n, statistic.ess, details, Verdict.of(all_findings), name
    )


_MORE_USERS = "use more users"
"""Advice of several findings."""


def _wide_interval(half_width: float, scale: float) -> Finding:
    """Return the finding about the half width of an interval relative to ``scale``."""
    ratio = math.inf
    if scale > 0.0:
        ratio = half_width / scale
    message = f"half the interval is {100 * ratio:.3g} % of the purchase rate"
    return Finding("wide_interval", scaled(ratio, WIDE, USELESS), ratio, message, _MORE_USERS)


def checked_lists(lists: Any, exposures: Exposures, n_periods: int) -> Ints:
    """Return lists as an integer array (P, U, N), or (1, U, N) if all periods have the same.

    Raises:
        UserError: the shape is another, an item is out of range or repeated in a list, or N exceeds the number of
            items.
    """
    table = np.asarray(lists)
    if table.ndim == 2:
        table = table[None]
    if table.ndim != 3 or table.shape[0] not in (1, n_periods) or table.shape[1] != exposures.n_users:
        raise UserError(
            f"lists must have shape ({exposures.n_users}, N), or ({n_periods}, {exposures.n_users}, N) for the "
            f"periods; got {np.shape(lists)}"
        )
    check_length(table.shape[2], exposures.n_items)
    if not np.issubdtype(table.dtype, np.integer):
        raise UserError(f"lists must hold integers, got {table.dtype}")
    refuse_first(
        (table < 0) | (table >= exposures.n_items),
        lambda *place: f"a list has item {table[place]}, outside 0..{exposures.n_items - 1}",
    )
    ordered = np.sort(table, axis=2)
    refuse_first(
        ordered[:, :, 1:] == ordered[:, :, :-1],
        lambda k, u, j: f"the list of user {u} has item {ordered[k, u, j]} twice",
    )
    return table.astype(np.int64)


def causal_precision(uplift: Any, lists: Any, *, level: float = 0.95) -> Estimate:
    """Compute CP@K, the mean true uplift of the items in lists of K.

    Args:
        uplift: (U, I) tau: its expectation, or its value in one draw of both outcomes.
        lists: (U, K) items.
        level: nominal coverage of the interval, for which users are the sample.
    """
    tau = np.asarray(uplift, np.float64)
    lists = np.asarray(lists)
    check_length(lists.shape[1], tau.shape[1])
    return _mean_estimate(
        np.take_along_axis(tau, lists, axis=1).mean(axis=1), level, f"cp@{lists.shape[1]}", lists.size
    )


def _mean_estimate(values: Floats, level: float, name: str, n: int) -> Estimate:
    """Return the estimate of a mean of values (U,) over users, from n cells."""
    mean = float(values.mean())
    influence = (values - mean) / len(values)
    every_user = np.ones(len(values), bool)  # true uplifts are no purchases, of which a user might have none
    statistic = _Statistic(mean, influence, rewarded=every_user, n=n, ess=float(n))
    return _estimate(statistic, level, name, diagnostics={})


LIST_METRICS = ("uplift", "uplift_snips", "uplift_ips", "precision", "precision_recommended")
COUNTED = {"leave_out": "are left out", "zero": "count 0", "half": "count their other half"}
"""Treatments of lists without recommended or without other items, with their wording in findings."""
EMPTY = tuple(COUNTED)
WEIGHTED = ("uplift_snips", "uplift_ips")


def evaluate_lists(
    exposures: Exposures,
    lists: Any,
    *,
    metrics: Sequence[str] = ("uplift", "uplift_snips", "uplift_ips", "precision"),
    periods: Sequence[int] | None = None,
    present: Any = "all",
    empty: str = "leave_out",
    clip: float = 0.0,
    level: float = 0.95,
) -> dict[str, Estimate]:
    """Estimate the purchases that lists of N items per user would have caused, from the log of another recommender.

    Args:
        exposures: the log.
        lists: (U, N) distinct items of each user, or (P, U, N) with lists of each period.
        metrics: names from :data:`LIST_METRICS`, which the module's description defines.
        periods: numbers of the periods; None for all.
        present: users who count in a period: ``all``, ``active`` for those who bought an item in it, or flags
            (U, n_periods).
        empty: treatment of users whose list has no recommended items, or no others; the diagnostics count them.
            ``leave_out``: the mean is over the other users, who may be few if a list's items are hardly ever
            recommended; ``zero``: these users count 0; ``half``: the missing mean counts 0.
        clip: lower bound of e and of 1 - e in the weights, which lowers the variance and adds bias; 0 for none.
        level: nominal coverage of the intervals, for which users are the sample.

    Raises:
        UserError: a metric or ``empty`` is unknown; the lists are not distinct items for all users; propensities are
            unknown, or 0 or 1 where an inverse is needed; or a period has no user with an estimate.
    """
    for metric in metrics:
        if metric not in LIST_METRICS:
            raise UserError(f"unknown list metric {metric!r}; {nearest(metric, LIST_METRICS)}")
    if empty not in EMPTY:
        raise UserError(f"unknown way to count lists without an estimate, {empty!r}; {nearest(empty, EMPTY)}")
    numbers = list(range(exposures.n_periods))
    if periods is not None:
        numbers = np.asarray(periods, np.int64).tolist()
    table = checked_lists(lists, exposures, len(numbers))
    least_weight: float | None = None
    if set(metrics) & set(WEIGHTED):
        least_weight = clip
        exposures.need_propensities()
        if not 0.0 <= clip < 1.0:
            raise UserError(f"clip must be in [0, 1), got {clip}")
    looked_up = []
    for k, period in enumerate(numbers):
        users = _counted_users(exposures, present, period)
        items = table[min(k, len(table) - 1), users]  # all periods share the lists if there is one row
        looked_up.append(_look_up_lists(exposures, period, users, items, clip=least_weight))
    return {metric: _list_estimate(metric, looked_up, exposures, empty, level) for metric in metrics}


@dataclass(frozen=True)
class _Period:
    """The log's data about the list items of n users in one period.

    Attributes:
        period: number of the period.
        users: (n,) users who count.
        treated: (n, N) flags of recommended items.
        bought: (n, N) flags of purchased items.
        propensities: (n, N) P(recommended); NaN if unknown.
        weights: (n, N) 1/e of recommended items and 1/(1 - e) of others; ones if no metric is weighted.
    """

    period: int
    users: Ints
    treated: Flags
    bought: Flags
    propensities: Floats
    weights: Floats


def _look_up_lists(exposures: Exposures, period: int, users: Ints, items: Ints, *, clip: float | None) -> _Period:
    """Look up the items (n, N) of lists of users (n,) in one period of the log.

    With ``clip`` they get weights, whose inverses are at least ``clip``; with None all weights are 1.

    Raises:
        UserError: a weight is infinite.
    """
    treated, bought = exposures.flags(users[:, None], items, period)
    propensities = exposures.propensity_of(users[:, None], items, period)
    weights = np.ones(items.shape)
    if clip is not None:
        p_observed = np.maximum(np.where(treated, propensities, 1.0 - propensities), clip)

        def message(row: int, place: int) -> str:
            """Return the error about the cell whose weight would be infinite."""
            negation = "" if treated[row, place] else "not "
            return (
                f"user {users[row]}, item {items[row, place]}, period {period}: the propensity is "
                f"{propensities[row, place]:g} on a cell that was {negation}recommended; clip it, or leave it out"
            )

        refuse_first(~(p_observed > 0), message)  # NaN too
        weights = 1.0 / p_observed
    return _Period(
        period=period, users=users, treated=treated, bought=bought, propensities=propensities, weights=weights
    )


def _list_estimate(metric: str, periods: list[_Period], exposures: Exposures, empty: str, level: float) -> Estimate:
    """Return the estimate of one metric: its mean over the periods, with findings about it."""
    values = []
    influences = np.zeros((len(periods), exposures.n_users))
    rewarded = np.zeros(exposures.n_users, bool)
    step = 0.0
    purchase_rate = 0.0
    for k, part in enumerate(periods):
        period_value, period_influence = _metric_in_period(metric, part, empty)
        values.append(period_value)
        influences[k, part.users] = period_influence
        rewarded[part.users] |= part.bought.any(axis=1)
        step = max(step, _largest_step(metric, part.weights))
        purchase_rate += float(part.bought.mean()) / len(periods)
    user_periods = sum(len(part.users) for part in periods)
    length = periods[0].treated.shape[1]
    details: dict[str, Any] = {
        "user_periods": user_periods,
        "without_treated": sum(int((~part.treated.any(axis=1)).sum()) for part in periods),
        "without_control": sum(int(part.treated.all(axis=1).sum()) for part in periods),
        "empty": empty,
        "periods": len(periods),
        "list_length": length,
    }
    n = user_periods * length
    ess = float(n)
    if metric in WEIGHTED:
        details["largest_weight"] = max(1.0, *(float(part.weights.max()) for part in periods))
        ess = sum(_effective_cells(part.weights) for part in periods)
    value = float(np.mean(values))
    influence = np.mean(influences, axis=0)
    statistic = _Statistic(value, influence, rewarded=rewarded, n=n, ess=ess, step=step / len(periods))
    scale = purchase_rate  # of which an uplift is a difference; a precision is a purchase rate itself
    if metric.startswith("precision"):
        scale = abs(value)
    return _estimate(
        statistic,
        level,
        metric,
        diagnostics=details,
        scale=scale,
        findings=_list_findings(metric, periods, exposures, details),
    )


def _effective_cells(weights: Floats) -> float:
    """Return the effective number of cells with these weights (Kish 1965)."""
    square = float((weights**2).sum())
    if square > 0:
        return float(weights.sum()) ** 2 / square
    return 0.0


def _largest_step(metric: str, weights: Floats) -> float:
    """Return the largest change of a metric in one period by one more purchase, for weights (n, N)."""
    if metric in ("uplift", "uplift_snips", "precision_recommended"):
        return 1.0 / len(weights)  # a user's ratio changes by at most 1
    heaviest = 1.0
    if metric == "uplift_ips":
        heaviest = float(weights.max())
    return heaviest / (weights.shape[1] * len(weights))


def _list_findings(metric: str, periods: list[_Period], exposures: Exposures, details: dict[str, Any]) -> list[Finding]:
    """Return the findings about a list metric that do not depend on its interval: confounding and undefined lists."""
    if metric not in ("uplift", "uplift_snips"):
        return []
    findings = []
    at_random = False
    if exposures.propensities is None:
        if metric == "uplift":
            message = f"{metric}@N holds only where recommendations are random, and the propensities are not known"
            findings.append(Finding("confounding_unknown", CAUTION, float("nan"), message, "give the propensities"))
    else:
        low = min(float(part.propensities.min()) for part in periods)
        high = max(float(part.propensities.max()) for part in periods)
        at_random = high - low <= 1e-6 * high  # equal up to rounding
        if metric == "uplift_snips" and not at_random:
            message = "a ratio within each user's list undoes varying propensities only in part"
            findings.append(Finding("ratio_in_user", CAUTION, high - low, message, "compare with uplift_ips"))
        elif metric == "uplift" and high - low > 1e-6 * max(high, 1e-6):
            message = f"propensities vary from {low:.3g} to {high:.3g}, and uplift@N takes that for an effect"
            findings.append(Finding("confounded", GRAVE, high - low, message, "use uplift_ips"))
    n_empty = details["without_treated"] + details["without_control"]
    if n_empty:
        share = n_empty / details["user_periods"]
        largest_severity = CAUTION
        # If all propensities are equal, it is by chance alone which lists are left out: no bias.
        if at_random and details["empty"] == "leave_out":
            largest_severity = 0.0
        message = (
            f"{100 * share:.0f} % of lists have no recommended or no unrecommended item and {COUNTED[details['empty']]}"
        )
        severity = min(scaled(share, 0.1, np.inf), largest_severity)
        findings.append(Finding("left_out", severity, share, message, "see uplift_ips"))
    return findings


def _metric_in_period(metric: str, part: _Period, empty: str) -> tuple[float, Floats]:
    """Compute a metric in one period.

    Returns:
        The value.
        (n,) influence of each user: 0 for users without an estimate.

    Raises:
        UserError: no user has an estimate.
    """
    treated = part.treated
    weighted_purchases = part.weights * part.bought
    if metric == "uplift":
        values = halves(treated, part.bought, np.ones_like(part.weights), empty)
    elif metric == "uplift_snips":
        values = halves(treated, part.bought, part.weights, empty)
    elif metric == "uplift_ips":
        values = np.where(treated, weighted_purchases, -weighted_purchases).sum(axis=1) / treated.shape[1]
    elif metric == "precision":
        values = part.bought.mean(axis=1)
    else:  # precision_recommended
        with np.errstate(invalid="ignore"):  # 0 / 0 is NaN: no item of the list was recommended
            values = (part.bought & treated).sum(axis=1) / treated.sum(axis=1)
    is_defined = ~np.isnan(values)
    if not is_defined.any():
        raise UserError(
            f"period {part.period}: no user's list has both a recommended and an unrecommended item, so {metric} has "
            "no estimate; use uplift_ips, or longer lists"
        )
    value = float(values[is_defined].mean())
    return value, np.where(is_defined, values - value, 0.0) / is_defined.sum()


def halves(z: Flags, y: Flags, weight: Floats, empty: str = "leave_out") -> Floats:
    """Compute each user's uplift (n,): the weighted mean of purchases of recommended items minus that of others.

    Args:
        z: (n, N) flags of recommended items.
        y: (n, N) flags of purchased items.
        weight: (n, N) weights of items.
        empty: treatment of users without recommended or without other items, one of :data:`EMPTY`; with ``leave_out``
            they have NaN.
    """
    bought = weight * y
    with np.errstate(invalid="ignore"):
        treated = (bought * z).sum(axis=1) / (weight * z).sum(axis=1)
        control = (bought * ~z).sum(axis=1) / (weight * ~z).sum(axis=1)
    if empty == "half":
        return np.nan_to_num(treated) - np.nan_to_num(control)
    gain = treated - control
    if empty == "zero":
        return np.nan_to_num(gain)
    return gain


def _counted_users(exposures: Exposures, present: Any, period: int) -> Ints:
    """Return the users who count in a period, by the argument ``present`` of :func:`evaluate_lists`."""
    if isinstance(present, str):
        if present == "all":
            return np.arange(exposures.n_users)
        if present == "active":
            return exposures.active_users(period)
        raise UserError(f"present must be 'all', 'active' or flags, got {present!r}")
    flags = np.asarray(present, bool)
    if flags.shape != (exposures.n_users, exposures.n_periods):
        raise UserError(f"present must have shape {(exposures.n_users, exposures.n_periods)}, got {flags.shape}")
    users = np.flatnonzero(flags[:, period])
    if len(users) == 0:
        raise UserError(f"period {period} has no user who is present: leave it out of the periods used")
    return users
