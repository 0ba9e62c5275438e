"""What click models foresee where the log is silent: values if they held, users an A/B test needs, exploration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from recsim_mnar.fitting.advice.coverage import Floats, Ints, Shown
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.plan.amounts import factor_range, quantile
from recsim_mnar.own_log.plan.users import UserTotals
from recsim_mnar.rng import Stream, derive_seed, uniforms

CELLS = 1 << 22
"""Decisions times items that models are fitted on, at most."""
TASTES = 2
"""Directions of tastes whose signs divide users into segments."""
WORSE = 2.0
"""Standard errors, paired by user, by which a model that does not count is worse on held-out users."""
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of uniform exploration that are tried."""

Facts = tuple[Ints, Floats, Floats, Ints]
"""Of entries of one shape: the item, how often the user has viewed it, the share of the user's views times their items'
cosine with it, and the user's segment."""
Fit = Callable[[Facts, Floats], Callable[[Facts], Floats]]
"""From facts and clicks to click probabilities by facts."""
Model = dict[str, Any]


def histories(log: Log, rows: Ints, n_items: int) -> Floats:
    """(len(rows), n_items) how often each row's user had viewed each item before it; ``rows`` ascend."""
    counts, views = np.zeros((len(rows), n_items)), np.flatnonzero(~log.is_bandit)
    after = np.searchsorted(rows, views)
    views, after = views[after < len(rows)], after[after < len(rows)]
    same = log["user"][views] == log["user"][rows[after]]
    np.add.at(counts, (after[same], log["item"][views[same]]), 1.0)
    starts = user_starts(log["user"][rows])
    for first, last in zip(starts, [*starts[1:], len(rows)], strict=True):
        np.cumsum(counts[first:last], axis=0, out=counts[first:last])
    return counts


def _facts_from(profiles: Floats) -> Callable[[Floats], Facts]:
    """What makes facts of counts of views (S, n_items), by users' whole profiles (U, n_items)."""
    norm = np.sqrt(np.maximum(np.sum(profiles**2, axis=0), 1e-12))
    cosine = profiles.T @ profiles / np.outer(norm, norm)
    np.fill_diagonal(cosine, 0.0)
    shares = profiles / np.maximum(profiles.sum(axis=1, keepdims=True), 1.0)
    mean = shares.mean(axis=0)
    tastes = np.linalg.eigh((shares - mean).T @ (shares - mean))[1][:, -TASTES:]

    def facts(counts: Floats) -> Facts:
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        segment = ((share - mean) @ tastes > 0.0) @ (1 << np.arange(tastes.shape[1]))
        item = np.broadcast_to(np.arange(counts.shape[1]), counts.shape)
        return item, counts, share @ cosine, np.broadcast_to(segment[:, None], counts.shape)

    return facts


def _logistic(columns: Callable[[Facts], Sequence[Floats]]) -> Fit:
    """Logistic regression on some columns, with a ridge of one row on all but the intercept, by Newton's method."""

    def design(facts: Facts) -> Floats:
        return np.stack([np.ones(facts[1].shape), *columns(facts)], axis=-1)

    def fit(facts: Facts, clicks: Floats) -> Callable[[Facts], Floats]:
        x = design(facts)
        ridge, beta = np.diag([1e-6, *[1.0] * (x.shape[1] - 1)]), np.zeros(x.shape[1])
        beta[0] = math.log((clicks.sum() + 0.5) / (clicks.size - clicks.sum() + 0.5))
        for _ in range(50):
            p = 1.0 / (1.0 + np.exp(-x @ beta))
            step = np.linalg.solve((x * (p * (1.0 - p))[:, None]).T @ x + ridge, x.T @ (clicks - p) - ridge @ beta)
            beta = beta + np.clip(step, -2.0, 2.0)
        return lambda asked: 1.0 / (1.0 + np.exp(-(design(asked) @ beta)))

    return fit


def _shrunk(number: Ints, clicks: Floats, prior: Floats) -> Floats:
    """(G,) rates of groups, drawn to their priors (G,) by as many rows as the spread between groups says (moments)."""
    n, sums = np.bincount(number, minlength=prior.size), np.bincount(number, clicks, prior.size)
    apart = np.divide(sums, n, out=prior.copy(), where=n > 0) - prior
    within = float(np.mean(clicks) * (1.0 - np.mean(clicks)))
    between = float(n @ apart**2 - within * np.count_nonzero(n)) / float(n.sum())
    weight = within / max(between, 1e-4 * within)
    return np.asarray((sums + weight * prior) / (n + weight))


def _by_item(n_items: int, segments: int) -> Fit:
    def fit(facts: Facts, clicks: Floats) -> Callable[[Facts], Floats]:
        rates = _shrunk(facts[0], clicks, np.full(n_items, clicks.mean()))
        if segments > 1:
            rates = _shrunk(facts[3] * n_items + facts[0], clicks, np.tile(rates, segments))
        return lambda asked: rates[asked[0] + (asked[3] * n_items if segments > 1 else 0)]

    return fit


def click_models(
    log: Log,
    shown: Shown,
    limits: Mapping[str, tuple[float, float]],
    totals: UserTotals,
    tolerance: float,
    level: float,
    seed: int,
) -> list[Model]:
    """Each model's fit to held-out users, and what it foresees; ``raw`` values are its own, ``values`` within limits.

    Args:
        log: with recommendations; rewards are clicks.
        shown: its recommendations and the agents.
        limits: by agent, of its value as the log shows it.
        totals: of the users.
        tolerance: for :func:`users_an_arm`.
        level: likewise.
        seed: of the users that models are fitted on.
    """
    n_items = next(iter(shown.taken.values())).shape[1]
    draw = derive_seed(seed, "advise/models")
    rows = _whole_users(log, max(CELLS // n_items, 100), draw)
    users, clicks, place = log["user"][rows], log["reward"][rows], np.arange(len(rows))
    starts, every = user_starts(users), histories(log, rows, n_items)
    facts_of = _facts_from(every[np.r_[starts[1:], len(rows)] - 1])
    facts: Facts = tuple(each[place, log["action"][rows]] for each in facts_of(every))
    asked = facts_of(histories(log, shown.states, n_items))
    half = uniforms(draw, Stream.PROTOCOL, users, 1) < 0.5
    kinds: dict[str, Fit] = {
        "clicks go with views": _logistic(lambda f: [np.log1p(f[1]), f[2]]),
        "clicks are independent": _logistic(lambda f: []),
        "viewed and not viewed differ": _logistic(lambda f: [(f[1] > 0) * 1.0, (f[1] == 0) * f[2]]),
        "items' appeal": _by_item(n_items, 1),
        "by segment of users": _by_item(n_items, 1 << TASTES),
    }
    held, found = {}, []
    for name, fit in kinds.items():
        rate = np.zeros(len(rows))
        for part in (half, ~half):
            trained = fit(tuple(f[~part] for f in facts), clicks[~part])  # type: ignore[arg-type]
            rate[part] = trained(tuple(f[part] for f in facts))  # type: ignore[arg-type]
        held[name] = np.add.reduceat(np.log(np.clip(np.where(clicks > 0.0, rate, 1.0 - rate), 1e-9, 1.0)), starts)
    best = max(held.values(), key=np.sum)
    for name, fit in kinds.items():
        rates, apart = fit(facts, clicks)(asked), best - held[name]
        raw = {agent: float(np.mean(np.sum(t * rates, axis=1))) for agent, t in shown.taken.items()}
        values = {agent: min(max(value, limits[agent][0]), limits[agent][1]) for agent, value in raw.items()}
        fits = bool(apart.sum() <= WORSE * math.sqrt(apart.size) * apart.std())
        users_needed = users_an_arm(totals, max(values.values()), len(values), tolerance, level)
        score = float(held[name].sum() / len(rows))
        found.append({"model": name, "score": score, "fits": fits, "values": values, "users": users_needed, "raw": raw})
    return found


def _whole_users(log: Log, most: int, seed: int) -> Ints:
    """Rows, ascending, of recommendations to users that are drawn until there are ``most``."""
    rows = np.flatnonzero(log.is_bandit)
    users, number = np.unique(log["user"][rows], return_inverse=True)
    order = np.argsort(uniforms(seed, Stream.PROTOCOL, users, 0), kind="stable")
    kept = order[: max(int(np.searchsorted(np.cumsum(np.bincount(number)[order]), most, side="right")), 2)]
    return rows[np.isin(number, kept)]


def totals_of(shown: Shown) -> UserTotals:
    """Users' totals of recommendations."""
    starts, r = user_starts(shown.user), shown.reward
    sums, lengths, squares = (np.add.reduceat(each, starts) for each in (r, np.ones(r.size), r * r))
    return UserTotals(sums, lengths, squares, float(np.sum((r - r.mean()) ** 2)), bool(np.all((r == 0.0) | (r == 1.0))))


def users_an_arm(totals: UserTotals, value: float, arms: int, tolerance: float, level: float) -> int | None:
    """Users an arm from which the arm with the largest mean costs at most ``tolerance`` with probability ``level``.

    Bechhofer's (1954) indifference zone: N = 2 (t s / (tolerance value))^2. t is the quantile of the largest of k - 1
    normal variables with correlations 1/2, s the spread of a user's deviation over the mean number of decisions where
    every user's rewards are so many times as frequent. The gap between agents does not enter.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    if not (value > 0.0 and totals.value > 0.0):
        return None
    x = np.linspace(-8.0, 8.0, 2001)
    density = np.exp(-x * x / 2.0) / np.sum(np.exp(-x * x / 2.0))
    t = brentq(lambda t: float(density @ ndtr(x + t * math.sqrt(2.0)) ** (arms - 1)) - level, -5.0, 10.0)
    spread = totals.variance_under(value / totals.value - 1.0) / totals.length**2
    return max(math.ceil(2.0 * (t / (tolerance * value)) ** 2 * spread), 2)


def range_of_users(models: Iterable[Model], totals: UserTotals, level: float) -> tuple[int, int, int] | None:
    """Users an arm that suffice whichever of the fitting models holds, and the range with the log's own error."""
    needed = [model["users"] for model in models if model["fits"] and model["users"] is not None]
    if not needed:
        return None
    less, more = factor_range(totals.relative_error(relative=True), level)
    return max(needed), math.floor(min(needed) * less), math.ceil(min(max(needed) * more, 1e15))


def exploration(
    shown: Shown, today: Floats | None, values: Mapping[str, float], totals: UserTotals, tolerance: float, rows: int,
    level: float,
) -> tuple[float, int]:  # fmt: skip
    """Share of uniform exploration, and rows, from which the log would decide if these were the agents' values.

    Under the mixture p a row's weighted difference has the variance E[sum over items of (p_a - p_b)^2 / p value],
    with the users' dependence of the log. Another agent is excluded where its upper limit is at most ``tolerance`` of
    the best value. The least share is taken for which the platform's rows suffice; all of it where none does.

    Args:
        shown: with the agents' distributions.
        today: (S, n_items) the log's own policy's; None where it is not known, and counts as nothing.
        values: by agent.
        totals: of the log's users.
        tolerance: share of the best value.
        rows: that the platform has.
        level: of the decision.
    """
    best = max(values, key=lambda name: values[name])
    z, n_items = quantile(1.0 - (1.0 - level) / (len(values) - 1)), shown.taken[best].shape[1]
    needed = math.inf
    for epsilon in EPSILONS:
        mixed = (0.0 if today is None else (1.0 - epsilon) * today) + epsilon / n_items
        needed = 0.0
        for name, value in values.items():
            square = float(np.mean(np.sum((shown.taken[best] - shown.taken[name]) ** 2 / mixed, axis=1)))
            room = values[best] - value + tolerance * values[best]
            needed = max(needed, z * z * square * values[best] * max(totals.design_effect, 1.0) / room**2)
        if needed <= rows:
            break
    return epsilon, math.ceil(needed)
