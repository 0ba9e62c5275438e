"""Uplift from logs of recommendations and purchases, and where the truth is known (Sato et al. 2019, section 2).

Of a model's lists: Uplift@N (equation 4) and UpliftSNIPS@N (5), both averaged over users (6), the IPS form, which alone
is unbiased where recommendations are personalised, and Precision@N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals import Spread, degrees_of_freedom, small_sample_factor
from recsim_mnar.estimators.ratings import check_length, top_items
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Estimate, Finding, Verdict, few_users, scaled
from recsim_mnar.kernels.checks import level_of, refuse_first
from recsim_mnar.purchases.exposures import Exposures, Flags, Floats, Ints


def inverse_propensities(exposures: Exposures, users: Any, items: Any, times: Any, z: Flags, clip: float) -> Floats:
    """1/e where recommended, 1/(1 - e) where not.

    Raises:
        UserError: one of them is infinite, and ``clip`` is 0.
    """
    e = exposures.propensity_of(users, items, times)
    p = bounded(np.where(z, e, 1.0 - e), clip)
    check_cells(~(p > 0), users, items, times, e, z)
    return 1.0 / p


def bounded(p: Floats, clip: float) -> Floats:
    """Probabilities raised to at least ``clip``.

    Raises:
        UserError: ``clip`` is not in [0, 1).
    """
    if not 0.0 <= clip < 1.0:
        raise UserError(f"clip must be in [0, 1), got {clip}")
    return np.maximum(p, clip)


def check_cells(bad: Flags, users: Any, items: Any, times: Any, e: Any, shown: Any) -> None:
    """Raise UserError for the first cell without a finite inverse propensity; all arguments broadcast to ``bad``."""

    def says(*at: int) -> str:
        u, i, t, p, flag = (np.broadcast_to(x, bad.shape)[at] for x in (users, items, times, e, shown))
        what = f"{p:g} on a cell that was {'' if flag else 'not '}recommended"
        return f"user {u}, item {i}, period {t}: the propensity is {what}; clip it, or leave it out"

    refuse_first(bad, says)


def propensity_range(exposures: Exposures, users: Any, items: Any, times: Any) -> tuple[float, float] | None:
    """Least and largest propensity of cells; None where they are unknown."""
    if exposures.propensities is None:
        return None
    e = exposures.propensity_of(users, items, times)
    if np.size(e):
        return (float(np.min(e)), float(np.max(e)))
    return (0.0, 0.0)


def confounding(spread: tuple[float, float] | None, what: str, action: str) -> list[Finding]:
    """Findings of an estimator that is unbiased only where recommendations are random."""
    if spread is None:
        message = f"{what} holds only where recommendations are random, and the propensities are not known"
        return [Finding("confounding_unknown", CAUTION, float("nan"), message, "give the propensities")]
    low, high = spread
    if high - low <= 1e-6 * max(high, 1e-6):
        return []
    message = f"propensities vary from {low:.3g} to {high:.3g}, and {what} takes that for an effect"
    return [Finding("confounded", GRAVE, high - low, message, action)]


def kish(weights: Floats) -> float:
    """Effective number of cells with these weights (Kish 1965)."""
    square = float((weights**2).sum())
    if square > 0:
        return float(weights.sum()) ** 2 / square
    return 0.0


LEAST_ESS, FEW_ESS = 100.0, 30.0
WIDE, USELESS = 0.4, 1.0
"""Half widths over the larger of the effect and the purchase rates it is a difference of, as for off-policy values."""
_METHOD = "Student on sums by user, with the heaviest step"


def ratio_difference(a: Floats, b: Floats, c: Floats, d: Floats) -> tuple[float, Floats]:
    """Sum a / sum b - sum c / sum d over users, and what each user adds to its error (delta method)."""
    treated = a.sum() / b.sum()
    control = c.sum() / d.sum()
    return float(treated - control), (a - treated * b) / b.sum() - (c - control * d) / d.sum()


def estimate_of(
    value: float,
    influence: Floats,
    rewarded: Flags,
    level: float,
    name: str,
    *,
    n: int,
    ess: float,
    diagnostics: dict[str, Any],
    steps: tuple[float, float] = (0.0, 0.0),
    scale: float | None = None,
    findings: Sequence[Finding] = (),
) -> Estimate:
    """The estimate of user influences.

    Args:
        value: it.
        influence: (U,) what each user adds to its error.
        rewarded: (U,) users with a purchase.
        level: nominal coverage.
        name: of the estimator.
        n: cells.
        ess: effective cells.
        diagnostics: to keep.
        steps: what one more purchase could add, and take away.
        scale: what the width is measured by besides the value; None where the width says nothing of trust.
        findings: of the estimator.
    """
    level, users, square = level_of(level), len(influence), influence**2
    second, fourth = float(square.sum()), float((square**2).sum())
    degrees = degrees_of_freedom(users, int(rewarded.sum()), second, fourth)
    if users > 1:
        variance = second * small_sample_factor(users, level, degrees)
    else:
        variance = math.inf
    third = float((square * influence).sum()) / second if second > 0.0 else 0.0
    less, more = Spread(variance, third, *steps).reaches(level) if users > 1 else (math.inf, math.inf)
    result = [*few_users(users), *findings]

    def add(code: str, severity: float, number: float, message: str) -> None:
        result.append(Finding(code, severity, number, message, "use more users"))

    if ess < n * (1.0 - 1e-9):
        add(
            "effective_sample",
            scaled(ess, LEAST_ESS, FEW_ESS),
            ess,
            f"the effective sample is {ess:.3g} of {n:,} cells",
        )
    if scale is not None:
        against = max(scale, abs(value))
        ratio = (less + more) / 2.0 / against if against > 0.0 else math.inf
        message = f"the interval reaches {100 * ratio:.3g} % of the purchase rate to either side"
        add("wide_interval", scaled(ratio, WIDE, USELESS), ratio, message)
    if fourth > 0.0:
        resting = second**2 / fourth
        message = f"the spread rests on the equivalent of {resting:.2g} equal users, so its own size is uncertain"
        add("uneven_users", min(scaled(resting, 10.0, 2.0), CAUTION), resting, message)
    details = {**diagnostics, "standard_error": float(np.sqrt(second))}
    return Estimate(value, value - less, value + more, level, _METHOD, n, ess, details, Verdict.of(result), name)


def checked_lists(lists: Any, exposures: Exposures, n_periods: int) -> Ints:
    """Lists as (1 or P, U, N).

    Raises:
        UserError: another shape, an item out of range or twice in a list, N larger than the number of items.
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
    if table.min() < 0 or table.max() >= exposures.n_items:
        bad = table[(table < 0) | (table >= exposures.n_items)][0]
        raise UserError(f"a list has item {bad}, outside 0..{exposures.n_items - 1}")
    ordered = np.sort(table, axis=2)
    twice = ordered[:, :, 1:] == ordered[:, :, :-1]
    if twice.any():
        k, u, j = np.argwhere(twice)[0]
        raise UserError(f"the list of user {u} has item {ordered[k, u, j]} twice")
    return table.astype(np.int64)


def causal_precision(uplift: Any, lists: Any, *, level: float = 0.95) -> Estimate:
    """CP@K: mean true uplift of the items in lists of K.

    Args:
        uplift: (U, I) tau: expected, or that of one draw of both outcomes.
        lists: (U, K) items.
        level: nominal coverage of the interval, for other users of the same kind.
    """
    tau = np.asarray(uplift, np.float64)
    lists = np.asarray(lists)
    check_length(lists.shape[1], tau.shape[1])
    return _mean(np.take_along_axis(tau, lists, axis=1).mean(axis=1), level, f"cp@{lists.shape[1]}", lists.size)


def causal_dcg(uplift: Any, scores: Any, *, level: float = 0.95, seed: int = 0) -> Estimate:
    """CDCG: sum of tau / log2(1 + rank) over a user's whole ranking by score, averaged over users."""
    tau = np.asarray(uplift, np.float64)
    ranking = top_items(scores, tau.shape[1], seed=seed)
    gains = 1.0 / np.log2(np.arange(2, tau.shape[1] + 2))
    return _mean(np.take_along_axis(tau, ranking, axis=1) @ gains, level, "cdcg", tau.size)


def _mean(own: Floats, level: float, name: str, n: int) -> Estimate:
    value = float(own.mean())
    influence = (own - value) / len(own)
    return estimate_of(value, influence, np.ones(len(own), bool), level, name, n=n, ess=float(n), diagnostics={})


LIST_METRICS = ("uplift", "uplift_snips", "uplift_ips", "uplift_pooled", "precision", "precision_recommended")
COUNTED = {"leave_out": "are left out", "zero": "count 0", "half": "count their other half"}
EMPTY = tuple(COUNTED)
WEIGHTED = ("uplift_snips", "uplift_ips", "uplift_pooled")


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
    """Purchases that lists of N items per user would have caused, from the log of another recommender.

    Every metric is computed in each period and averaged over the periods, each weighing the same, as in the paper.

    - ``uplift`` (equation 4): mean purchases of the list's items that were recommended, minus that of the others;
    - ``uplift_snips`` (5): the same with weights 1/e and 1/(1 - e), a ratio in each user;
    - ``uplift_ips``: (1/N) (sum of Y/e over the recommended - sum of Y/(1 - e) over the others);
    - ``uplift_pooled``: weights as in (5), one ratio over all users of a period;
    - ``precision``: mean purchases of the list's items; ``precision_recommended``: of those that were recommended.

    Where recommendations are random the first three are unbiased. Where they are personal, ``uplift`` takes for an
    effect that what was recommended is what the user would rather buy; ``uplift_snips`` takes that out only as far as a
    ratio of a few weighted items in each user can (its denominator varies with the recommendations, which the weights
    do not undo); ``uplift_ips`` is unbiased given the true propensities, ``uplift_pooled`` for many users.

    A user whose list is wholly in or wholly outside what was recommended has no ``uplift`` or ``uplift_snips``: the
    paper only assumes that neither half is empty. ``empty`` says what such users count; the diagnostics number them.

    Args:
        exposures: the log.
        lists: (U, N) distinct items of each user, or (P, U, N) for the periods.
        metrics: of :data:`LIST_METRICS`.
        periods: which; all by default.
        present: users who count: ``all``, ``active`` (who bought something in the period), or (U, n_periods) flags.
        empty: ``leave_out``: the mean is over the others, so that a list of which almost nothing is ever recommended
            is judged by few users; ``zero``: such users count 0; ``half``: the half without items counts 0, the other
            stays.
        clip: raises e, and 1 - e, to at least this: less variance for some bias.
        level: nominal coverage of the intervals, whose independent parts are users.

    Raises:
        UserError: an unknown metric or ``empty``, lists that are not distinct items of all users, no propensities, one
            of 0 or 1 where its inverse is needed, or a period in which no user has an estimate.
    """
    for metric in metrics:
        if metric not in LIST_METRICS:
            raise UserError(f"unknown list metric {metric!r}; {nearest(metric, LIST_METRICS)}")
    if empty not in EMPTY:
        raise UserError(f"unknown way to count lists without an estimate, {empty!r}; {nearest(empty, EMPTY)}")
    if periods is None:
        chosen = np.arange(exposures.n_periods)
    else:
        chosen = np.asarray(periods, np.int64)
    table = checked_lists(lists, exposures, len(chosen))
    if set(metrics) & set(WEIGHTED):
        exposures.need_propensities()
    sums: dict[str, list[tuple[float, Floats]]] = {metric: [] for metric in metrics}
    counts = {"user_periods": 0, "without_treated": 0, "without_control": 0}
    largest, ess, rewarded = 1.0, 0.0, np.zeros(exposures.n_users, bool)
    bought, spread = 0.0, propensity_range(exposures, 0, 0, 0)
    span: list[float] = []
    steps: dict[str, float] = dict.fromkeys(metrics, 0.0)
    for k, t in enumerate(chosen.tolist()):
        users = _present(exposures, present, t)
        items = table[min(k, len(table) - 1), users]
        z, y = exposures.flags(users[:, None], items, t)
        counts["user_periods"] += len(users)
        counts["without_treated"] += int((~z.any(axis=1)).sum())
        counts["without_control"] += int(z.all(axis=1).sum())
        rewarded[users] |= y.any(axis=1)
        bought += float(y.mean()) / len(chosen)
        if spread is not None:
            e = exposures.propensity_of(users[:, None], items, t)
            span += [float(np.min(e)), float(np.max(e))]
        weight = np.ones(items.shape)
        if set(metrics) & set(WEIGHTED):
            weight = inverse_propensities(exposures, users[:, None], items, t, z, clip)
            largest, ess = max(largest, float(weight.max())), ess + kish(weight)
        for metric in metrics:
            value, influence = _in_period(metric, z, y, weight, t, empty)
            steps[metric] = max(steps[metric], _list_step(metric, weight, len(users)))
            everyone = np.zeros(exposures.n_users)
            everyone[users] = influence
            sums[metric].append((value, everyone))
    out = {}
    for metric, parts in sums.items():
        influence = np.mean([part for _, part in parts], axis=0)
        details: dict[str, Any] = {**counts, "empty": empty, "periods": len(chosen), "list_length": int(table.shape[2])}
        if metric in WEIGHTED:
            details["largest_weight"] = largest
        value = float(np.mean([value for value, _ in parts]))
        step = steps[metric] / len(chosen)
        findings = _list_findings(metric, (min(span), max(span)) if span else None, details)
        out[metric] = estimate_of(
            value,
            influence,
            rewarded,
            level,
            metric,
            n=counts["user_periods"] * int(table.shape[2]),
            ess=ess if metric in WEIGHTED else counts["user_periods"] * float(table.shape[2]),
            diagnostics=details,
            steps=(step, step),
            scale=abs(value) if metric.startswith("precision") else bought,
            findings=findings,
        )
    return out


def _list_step(metric: str, weight: Floats, users: int) -> float:
    """Effect of one more purchase on a metric of one period, up and down."""
    if metric in ("uplift", "uplift_snips", "precision_recommended"):
        return 1.0 / users  # of a ratio within one user
    if metric == "uplift_pooled":
        return float(weight.max()) / float(weight.sum())
    if metric == "uplift_ips":
        heaviest = float(weight.max())
    else:
        heaviest = 1.0
    return heaviest / (weight.shape[1] * users)


def _list_findings(metric: str, spread: tuple[float, float] | None, details: dict[str, Any]) -> list[Finding]:
    """Doubts about a list metric that do not depend on its interval."""
    findings: list[Finding] = []
    if metric == "uplift":
        findings = confounding(spread, "uplift@N", "use uplift_ips")
    elif metric == "uplift_snips" and spread is not None and spread[1] - spread[0] > 1e-6 * spread[1]:
        message = "a ratio within each user's list undoes varying propensities only in part"
        findings = [Finding("ratio_in_user", CAUTION, spread[1] - spread[0], message, "compare with uplift_ips")]
    left = details["without_treated"] + details["without_control"]
    at_random = spread is not None and spread[1] - spread[0] <= 1e-6 * spread[1]
    if metric in ("uplift", "uplift_snips") and left:
        share = left / details["user_periods"]
        # Where every item is recommended with the same probability, which lists are left out is chance alone.
        if at_random and details["empty"] == "leave_out":
            worst = 0.0
        else:
            worst = CAUTION
        message = (
            f"{100 * share:.0f} % of lists have no recommended or no unrecommended item and {COUNTED[details['empty']]}"
        )
        findings.append(Finding("left_out", min(scaled(share, 0.1, np.inf), worst), share, message, "see uplift_ips"))
    return findings


def _in_period(metric: str, z: Flags, y: Flags, weight: Floats, period: int, empty: str) -> tuple[float, Floats]:
    """A metric's value in one period and each user's share of its error; (n, N) flags and weights."""
    length = z.shape[1]
    bought = weight * y
    if metric == "uplift_pooled":
        if z.all() or not z.any():
            if z.any():
                which = "everything"
            else:
                which = "nothing"
            raise UserError(f"period {period}: {which} in the lists was recommended, there is nothing to compare with")
        a, b, c, d = ((x * flag).sum(axis=1) for flag in (z, ~z) for x in (bought, weight))
        return ratio_difference(a, b, c, d)
    if metric in ("uplift", "uplift_snips"):
        values = halves(z, y, weight if metric == "uplift_snips" else np.ones_like(weight), empty)
    elif metric == "uplift_ips":
        values = (np.where(z, bought, -bought)).sum(axis=1) / length
    elif metric == "precision":
        values = y.mean(axis=1)
    else:
        with np.errstate(invalid="ignore"):
            values = (y & z).sum(axis=1) / z.sum(axis=1)
    there = ~np.isnan(values)
    if not there.any():
        raise UserError(
            f"period {period}: no user's list has both a recommended and an unrecommended item, so {metric} has no "
            "estimate; use uplift_ips, or longer lists"
        )
    value = float(values[there].mean())
    return value, np.where(there, values - value, 0.0) / there.sum()


def halves(z: Flags, y: Flags, weight: Floats, empty: str = "leave_out") -> Floats:
    """Each user's uplift: weighted mean purchases of the recommended items of the list less that of the others.

    Args:
        z: (n, N) whether recommended.
        y: (n, N) whether purchased.
        weight: (n, N) of each item in its half.
        empty: of :data:`EMPTY`; with ``leave_out`` a user without an estimate has NaN.
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


def _present(exposures: Exposures, present: Any, period: int) -> Ints:
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
