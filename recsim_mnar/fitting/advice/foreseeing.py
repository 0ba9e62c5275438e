"""What click models foresee where the log is silent: values if they held, users an A/B test needs, exploration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.fitting.advice.coverage import Floats, States
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.plan.amounts import factor_range
from recsim_mnar.own_log.plan.users import UserTotals
from recsim_mnar.rng import Stream, derive_seed, uniforms

Ints = NDArray[np.int64]

CELLS = 1 << 22
"""Decisions times items that models are fitted on, at most."""
SEGMENTS = 2
"""Directions of tastes whose signs divide users into segments."""
WORSE = 2.0
"""Standard errors, paired by user, by which a model that does not count is worse on held-out users."""
TOO_WIDE = 4.0
"""A range whose ends differ by more than this factor is no number to act on."""
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0)


@dataclass(frozen=True)
class Facts:
    """What click models look at, entries of one shape.

    Attributes:
        item: which.
        views: how often the user has viewed it.
        near: share of the user's views times their items' cosine with it.
        segment: of the user.
    """

    item: Ints
    views: Floats
    near: Floats
    segment: Ints

    def part(self, rows: NDArray[np.bool_]) -> Facts:
        """Some of the entries."""
        return Facts(self.item[rows], self.views[rows], self.near[rows], self.segment[rows])


Rates = Callable[[Facts], Floats]


@dataclass(frozen=True)
class Foreseen:
    """One click model.

    Attributes:
        model: its name.
        score: mean logarithm of the probability that it gives a held-out click or none.
        fits: whether it is not clearly worse than the best.
        raw: by agent, its value in the log's states if the model held.
        values: the same within the limits that the log sets.
        users: an arm, if it held.
    """

    model: str
    score: float
    fits: bool
    raw: dict[str, float]
    values: dict[str, float]
    users: int | None


def histories(log: Log, rows: Ints, n_items: int) -> Floats:
    """(len(rows), n_items) how often each row's user had viewed each item before it; ``rows`` ascend."""
    counts = np.zeros((len(rows), n_items))
    views = np.flatnonzero(~log.is_bandit)
    following = np.searchsorted(rows, views)
    inside = following < len(rows)
    views, following = views[inside], following[inside]
    same = log["user"][views] == log["user"][rows[following]]
    np.add.at(counts, (following[same], log["item"][views[same]]), 1.0)
    total = np.cumsum(counts, axis=0)
    starts = user_starts(log["user"][rows])
    before = np.where((starts > 0)[:, None], total[starts - 1], 0.0)
    return total - np.repeat(before, np.diff(np.r_[starts, len(rows)]), axis=0)


@dataclass(frozen=True)
class _Tables:
    """What follows from all views: cosines between items, mean profile, directions of tastes."""

    cosine: Floats
    mean: Floats
    axes: Floats

    @staticmethod
    def of(profiles: Floats) -> _Tables:
        gram = profiles.T @ profiles
        norm = np.sqrt(np.maximum(np.diag(gram), 1e-12))
        cosine = gram / np.outer(norm, norm)
        np.fill_diagonal(cosine, 0.0)
        shares = profiles / np.maximum(profiles.sum(axis=1, keepdims=True), 1.0)
        mean = shares.mean(axis=0)
        apart = shares - mean
        return _Tables(cosine, mean, np.linalg.eigh(apart.T @ apart)[1][:, ::-1][:, :SEGMENTS])

    def facts(self, counts: Floats) -> Facts:
        """Of every item in states with these counts of views (S, n_items)."""
        shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
        signs = ((shares - self.mean) @ self.axes > 0.0).astype(np.int64)
        segment = signs @ (1 << np.arange(signs.shape[1]))
        item = np.broadcast_to(np.arange(counts.shape[1]), counts.shape)
        return Facts(item, counts, shares @ self.cosine, np.broadcast_to(segment[:, None], counts.shape))


def _logistic(columns: Callable[[Facts], Sequence[Floats]]) -> Callable[[Facts, Floats], Rates]:
    """Logistic regression on some columns, with a ridge of one row on all but the intercept, by Newton's method."""

    def design(facts: Facts) -> Floats:
        return np.stack([np.ones(facts.views.shape), *columns(facts)], axis=-1)

    def fit(facts: Facts, clicks: Floats) -> Rates:
        x = design(facts)
        ridge = np.diag([1e-6, *[1.0] * (x.shape[1] - 1)])
        beta = np.zeros(x.shape[1])
        beta[0] = math.log((clicks.sum() + 0.5) / (clicks.size - clicks.sum() + 0.5))
        for _ in range(30):
            p = 1.0 / (1.0 + np.exp(-x @ beta))
            step = np.linalg.solve((x * (p * (1.0 - p))[:, None]).T @ x + ridge, x.T @ (clicks - p) - ridge @ beta)
            beta = beta + np.clip(step, -2.0, 2.0)
            if np.max(np.abs(step)) < 1e-8:
                break
        return lambda asked: 1.0 / (1.0 + np.exp(-(design(asked) @ beta)))

    return fit


def _shrunk(number: Ints, clicks: Floats, groups: int, prior: Floats | float) -> Floats:
    """(groups,) rates, each drawn to its prior as by so many rows as the spread between groups says (by moments)."""
    n, sums = np.bincount(number, minlength=groups), np.bincount(number, clicks, groups)
    mean = np.broadcast_to(np.asarray(prior, np.float64), (groups,))
    within = float(np.mean(clicks) * (1.0 - np.mean(clicks)))
    apart = np.divide(sums, n, out=mean.copy(), where=n > 0) - mean
    between = float(np.sum(n * apart**2) - within * np.count_nonzero(n)) / max(float(n.sum()), 1.0)
    weight = within / max(between, 1e-4 * within, 1e-12)
    return np.asarray((sums + weight * mean) / (n + weight))


def _appeal(facts: Facts, clicks: Floats, n_items: int) -> Rates:
    rates = _shrunk(facts.item, clicks, n_items, float(np.mean(clicks)))
    return lambda asked: rates[asked.item]


def _by_segment(facts: Facts, clicks: Floats, n_items: int) -> Rates:
    appeal = _shrunk(facts.item, clicks, n_items, float(np.mean(clicks)))
    groups = n_items << SEGMENTS
    rates = _shrunk(facts.segment * n_items + facts.item, clicks, groups, np.tile(appeal, 1 << SEGMENTS))
    return lambda asked: rates[asked.segment * n_items + asked.item]


def _kinds(n_items: int) -> dict[str, Callable[[Facts, Floats], Rates]]:
    """The click models: they say the like of what the log shows, and different things of what it does not."""
    return {
        "clicks go with views": _logistic(lambda f: [np.log1p(f.views), f.near]),
        "clicks are independent": _logistic(lambda f: []),
        "viewed is not clicked, or the contrary": _logistic(lambda f: [(f.views > 0) * 1.0, (f.views == 0) * f.near]),
        "items' appeal": lambda f, c: _appeal(f, c, n_items),
        "by segment of users": lambda f, c: _by_segment(f, c, n_items),
    }


def fitted_models(
    log: Log,
    states: States,
    limits: Mapping[str, tuple[float, float, float]],
    totals: UserTotals,
    tolerance: float,
    level: float,
    n_items: int,
    seed: int,
) -> list[Foreseen]:
    """Each model's fit to held-out users, and what it foresees.

    Args:
        log: with recommendations; rewards are clicks.
        states: where the agents' distributions are known.
        limits: by agent its value and limits, as the log shows them.
        totals: of the users.
        tolerance: for :func:`users_an_arm`.
        level: likewise.
        n_items: of the log's world.
        seed: of the users that models are fitted on.
    """
    rows = _whole_users(log, max(CELLS // n_items, 100), seed)
    every = histories(log, rows, n_items)
    last = np.r_[user_starts(log["user"][rows])[1:], len(rows)] - 1
    tables = _Tables.of(every[last])
    all_items = tables.facts(every)
    shown, clicks = log["action"][rows], log["reward"][rows]
    place = np.arange(len(rows))
    facts = Facts(shown, all_items.views[place, shown], all_items.near[place, shown], all_items.segment[place, shown])
    asked = tables.facts(histories(log, states.rows, n_items))
    half = uniforms(derive_seed(seed, "advise/models"), Stream.PROTOCOL, log["user"][rows], 1) < 0.5
    found: dict[str, tuple[Floats, dict[str, float]]] = {}
    for name, fit in _kinds(n_items).items():
        held = np.zeros(len(rows))
        for part in (half, ~half):
            rate = np.clip(fit(facts.part(~part), clicks[~part])(facts.part(part)), 1e-9, 1.0 - 1e-9)
            held[part] = np.where(clicks[part] > 0.0, np.log(rate), np.log1p(-rate))
        rates = fit(facts, clicks)(asked)
        found[name] = held, {agent: float(np.mean(np.sum(t * rates, axis=1))) for agent, t in states.taken.items()}
    starts = user_starts(log["user"][rows])
    best = max((held for held, _ in found.values()), key=lambda held: float(np.sum(held)))
    out = []
    for name, (held, raw) in found.items():
        apart = np.add.reduceat(best - held, starts)
        error = math.sqrt(float(np.sum((apart - apart.mean()) ** 2)))
        values = {agent: min(max(value, limits[agent][1]), limits[agent][2]) for agent, value in raw.items()}
        users = users_an_arm(totals, max(values.values()), len(values), tolerance, level)
        fits = float(np.sum(apart)) <= WORSE * error
        out.append(Foreseen(name, float(np.mean(held)), fits, raw, values, users))
    return out


def _whole_users(log: Log, most: int, seed: int) -> Ints:
    """Rows, ascending, of recommendations to users that are drawn until there are ``most``."""
    rows = np.flatnonzero(log.is_bandit)
    users, number = np.unique(log["user"][rows], return_inverse=True)
    draw = uniforms(derive_seed(seed, "advise/models"), Stream.PROTOCOL, users, 0)
    order = np.argsort(draw, kind="stable")
    count = np.cumsum(np.bincount(number)[order])
    kept = np.zeros(len(users), bool)
    kept[order[: max(int(np.searchsorted(count, most, side="right")), 2)]] = True
    return rows[kept[number]]


def totals_of(user: Ints, reward: Floats) -> UserTotals:
    """Users' totals of recommendations in the order of users."""
    starts = user_starts(user)
    sums = [np.add.reduceat(each, starts) for each in (reward, np.ones(reward.size), reward * reward)]
    unit = bool(np.all((reward == 0.0) | (reward == 1.0)))
    return UserTotals(*sums, float(np.sum((reward - reward.mean()) ** 2)), unit)


def users_an_arm(totals: UserTotals, value: float, arms: int, tolerance: float, level: float) -> int | None:
    """Users an arm from which the arm with the largest mean is good enough with the probability ``level``.

    Bechhofer's (1954) indifference zone: the best of k arms whose lead is ``tolerance`` of its value is picked with
    this probability if N = 2 (t s / (tolerance value))^2, t being the quantile of the largest of k - 1 normal variables
    with correlations 1/2; then a pick that costs more is less likely than 1 - level. s is the spread of a user's
    deviation over the mean number of decisions, as it is where all rewards are so many times as frequent.

    Args:
        totals: of the log's users.
        value: of the best agent.
        arms: k.
        tolerance: share of the value.
        level: probability.
    """
    if not (value > 0.0 and totals.value > 0.0):
        return None
    spread = totals.variance_under(value / totals.value - 1.0) / totals.length**2
    return max(math.ceil(2.0 * (_largest_of(arms - 1, level) / (tolerance * value)) ** 2 * spread), 2)


def _largest_of(number: int, level: float) -> float:
    """Quantile of the largest of some normal variables with correlations 1/2."""
    from scipy.optimize import brentq
    from scipy.special import ndtr

    x = np.linspace(-8.0, 8.0, 2001)
    density = np.exp(-x * x / 2.0)
    density /= density.sum()
    return float(brentq(lambda t: float(density @ ndtr(x + t * math.sqrt(2.0)) ** number) - level, -5.0, 10.0))


def range_of_users(models: Sequence[Foreseen], totals: UserTotals, level: float) -> tuple[int, int, int] | None:
    """Users an arm that suffice whichever of the fitting models holds, and the range with the log's own error."""
    needed = [model.users for model in models if model.fits and model.users is not None]
    if not needed:
        return None
    less, more = factor_range(totals.relative_error(relative=True), level)
    return max(needed), math.floor(min(needed) * less), math.ceil(min(max(needed) * more, 1e15))


def exploration(
    states: States,
    today: Floats | None,
    value: float,
    totals: UserTotals,
    tolerance: float,
    rows: int,
    level: float,
) -> tuple[float, int]:
    """Share of uniform exploration, and rows, from which every difference is known to ``tolerance`` of the best value.

    The variance of a row's weighted difference is E[sum over items of (p_a - p_b)^2 / p value], p the mixture's
    probability; users' dependence counts as in the log. The least of a few shares is taken for which the rows that the
    platform has suffice, all of it where none does.

    Args:
        states: where the agents' distributions are known.
        today: (S, n_items) what the log's own policy takes there; None where it is not known, and counts as nothing.
        value: of the best agent.
        totals: of the log's users.
        tolerance: share of the value.
        rows: that the platform has.
        level: of the intervals.
    """
    from scipy.special import ndtri

    names = list(states.taken)
    z = float(ndtri(1.0 - (1.0 - level) / max(len(names) - 1, 1)))
    n_items = next(iter(states.taken.values())).shape[1]
    base = 0.0 if today is None else today
    for epsilon in EPSILONS:
        mixed = (1.0 - epsilon) * base + epsilon / n_items
        square = max(
            float(np.mean(np.sum((states.taken[a] - states.taken[b]) ** 2 / mixed, axis=1)))
            for i, a in enumerate(names)
            for b in names[:i]
        )
        needed = z * z * square * max(totals.design_effect, 1.0) / (tolerance**2 * value)
        if needed <= rows or epsilon == EPSILONS[-1]:
            return epsilon, math.ceil(needed)
    raise AssertionError("unreachable")
