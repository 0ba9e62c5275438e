"""What click models foresee where the log is silent: values if they held, users an A/B test needs, exploration."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.export.arrays import distributions
from recsim_mnar.fitting.advice.coverage import Floats, Ints, Shown
from recsim_mnar.fitting.advice.deciding import LEVEL, TOLERANCE, Check, check
from recsim_mnar.log.contexts import ContextRule
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.plan.experiment import UserTotals, users_an_arm
from recsim_mnar.own_log.plan.pilot import factor_range, quantile
from recsim_mnar.rng import Stream, derive_seed, uniforms

CELLS = 1 << 22
"""Decisions times items that models are fitted on, at most."""
TASTES = 2
"""Directions of tastes whose signs divide users into segments."""
WORSE = 2.0
"""Standard errors, paired by user, by which a model that does not count is worse on held-out users."""
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of uniform exploration that are tried."""
TOO_WIDE = 4.0
"""A range of users whose ends differ by more than this factor is no number to act on."""

Facts = tuple[Ints, Floats, Floats, Ints]
"""Of entries of one shape: the item, how often the user has viewed it, the share of the user's views times their items'
cosine with it, and the user's segment."""
Fit = Callable[[Facts, Floats], Callable[[Facts], Floats]]
"""From facts and clicks to click probabilities by facts."""
Model = dict[str, Any]


def histories(log: Log, rows: Ints, n_items: int) -> Floats:
    """(len(rows), n_items) how often each row's user had viewed each item before it; rows of decisions, ascending."""
    kept = ~log.is_bandit & np.isin(log["user"], log["user"][rows])
    kept[rows] = True
    return ContextRule("counts").of(log.select(kept), n_items)[0].astype(np.float64)


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


def click_models(log: Log, shown: Shown, limits: Mapping[str, tuple[float, float]], seed: int) -> list[Model]:
    """Each model's fit to held-out users, and what it foresees: ``raw`` values are its own.

    ``values`` are kept within ``limits``, those of each agent's value as the log shows it. Rewards are clicks.
    """
    n_items, draw = shown.n_items, derive_seed(seed, "advise/models")
    rows = _whole_users(log, max(CELLS // n_items, 100), draw)
    users, clicks, place = log["user"][rows], log["reward"][rows], np.arange(len(rows))
    starts, every = user_starts(users), histories(log, rows, n_items)
    facts_of = _facts_from(every[np.r_[starts[1:], len(rows)] - 1])
    facts: Facts = tuple(each[place, log["action"][rows]] for each in facts_of(every))
    asked = facts_of(histories(log, shown.states, n_items))
    kinds: dict[str, Fit] = {
        "clicks go with views": _logistic(lambda f: [np.log1p(f[1]), f[2]]),
        "clicks are independent": _logistic(lambda f: []),
        "viewed and not viewed differ": _logistic(lambda f: [(f[1] > 0) * 1.0, (f[1] == 0) * f[2]]),
        "items' appeal": _by_item(n_items, 1),
        "by segment of users": _by_item(n_items, 1 << TASTES),
    }
    half = uniforms(draw, Stream.PROTOCOL, users, 1) < 0.5
    held = {name: np.add.reduceat(_held_out(fit, facts, clicks, half), starts) for name, fit in kinds.items()}
    best, found = max(held.values(), key=np.sum), []
    for name, fit in kinds.items():
        rates, apart = fit(facts, clicks)(asked), best - held[name]
        raw = {agent: float(np.mean(np.sum(t * rates, axis=1))) for agent, t in shown.taken.items()}
        values = {agent: min(max(value, limits[agent][0]), limits[agent][1]) for agent, value in raw.items()}
        fits = bool(apart.sum() <= WORSE * math.sqrt(apart.size) * apart.std())
        needed = users_an_arm(shown.totals, max(values.values()), len(values), TOLERANCE, LEVEL)
        score = float(held[name].sum() / len(rows))
        found.append({"model": name, "score": score, "fits": fits, "values": values, "users": needed, "raw": raw})
    return found


def _whole_users(log: Log, most: int, seed: int) -> Ints:
    """Rows, ascending, of recommendations to users that are drawn until there are ``most``."""
    rows = np.flatnonzero(log.is_bandit)
    users, number = np.unique(log["user"][rows], return_inverse=True)
    order = np.argsort(uniforms(seed, Stream.PROTOCOL, users, 0), kind="stable")
    kept = order[: max(int(np.searchsorted(np.cumsum(np.bincount(number)[order]), most, side="right")), 2)]
    return rows[np.isin(number, kept)]


def _held_out(fit: Fit, facts: Facts, clicks: Floats, half: NDArray[np.bool_]) -> Floats:
    """Log likelihood of each click, or of none, by a fit to the other half of the users."""
    rate = np.zeros(clicks.size)
    for part in (half, ~half):
        one, other = (tuple(f[some] for f in facts) for some in (part, ~part))
        rate[part] = fit(other, clicks[~part])(one)  # type: ignore[arg-type]
    return np.asarray(np.log(np.clip(np.where(clicks > 0.0, rate, 1.0 - rate), 1e-9, 1.0)))


def models_check(models: Sequence[Model], agents: Sequence[Mapping[str, Any]]) -> Check:
    """Whether some model that fits gives each agent a value that the log's own limits leave open."""
    fitting = [model["raw"] for model in models if model["fits"]]
    missed = [r["agent"] for r in agents if not any(r["low"] <= raw[r["agent"]] <= r["high"] for raw in fitting)]
    if missed:
        said = f"no click model that fits gives what the log shows of {', '.join(missed)}"
        return check("click_models", "off", len(missed), 0.0, said)
    return check("click_models", "clear", 0.0, 0.0, "click models that fit give what the log shows of every agent")


def ab_test(models: Sequence[Model], totals: UserTotals) -> tuple[dict[str, Any] | None, str]:
    """Users an arm that suffice whichever of the fitting models holds, and their range; or why they are not known."""
    needed = [model["users"] for model in models if model["fits"] and model["users"] is not None]
    if not needed:
        return None, "no model of clicks fits"
    less, more = factor_range(totals.relative_error(relative=True), LEVEL)
    low, high = math.floor(min(needed) * less), math.ceil(min(max(needed) * more, 1e15))
    if high > TOO_WIDE * low:
        return None, f"it may take {low:,} to {high:,} users an arm"
    number = f"{sum(model['fits'] for model in models)} of {len(models)}"
    said = f"The range is that of the click models that fit ({number}) and of the log's own error."
    return {"users": max(needed), "low": low, "high": high, "tolerance": TOLERANCE, "why": said}, ""


def what_to_log(log: Log, shown: Shown, models: Sequence[Model], have: int, whole: bool) -> dict[str, Any]:
    """The exploration by which the log would decide whichever of the fitting models held.

    ``have`` users are what an arm can have; no more than their rows are asked for where agents are not shown ``whole``:
    what nobody has seen yet may soon be clear.
    """
    today = None if shown.logger.policy is None else distributions(log, shown.logger.policy, shown.states)
    values = [m["values"] for m in models if m["fits"] and max(m["values"].values()) > 0.0]
    values = values or [dict.fromkeys(shown.targets, float(shown.totals.value))]
    rows = math.ceil(have * shown.totals.length)
    epsilon, needed = max((exploration(shown, today, each, rows) for each in values), key=lambda each: each[1])
    mixed = "" if epsilon == 1.0 else f" in {epsilon:.0%} of cases and by today's policy in the others"
    asked = needed if whole else min(needed, rows)
    may = f" (up to {needed:,} may be needed before it decides)" if needed > asked else ""
    line = (
        f"Log first: about {asked:,} recommendations{may}, drawn uniformly from all {shown.n_items:,} items{mixed}, "
        "all with their propensities; then advise again, naming that log's policy by --logging."
    )
    return {"epsilon": epsilon, "rows": asked, "line": line}


def exploration(shown: Shown, today: Floats | None, values: Mapping[str, float], rows: int) -> tuple[float, int]:
    """Share of uniform exploration, and rows, from which the log would decide if these were the agents' values.

    Under the mixture p a row's weighted difference has the variance E[sum over items of (p_a - p_b)^2 / p value],
    with the users' dependence of the log. Another agent is excluded where its upper limit is at most the tolerance of
    the best value. The least share is taken for which ``rows`` suffice; all of it where none does. ``today`` is what
    the log's own policy takes (S, n_items); where it is not known it counts as nothing.
    """
    best = max(values, key=lambda name: values[name])
    z, needed = quantile(1.0 - (1.0 - LEVEL) / (len(values) - 1)), math.inf
    for epsilon in EPSILONS:
        mixed = (0.0 if today is None else (1.0 - epsilon) * today) + epsilon / shown.n_items
        needed = 0.0
        for name, value in values.items():
            square = float(np.mean(np.sum((shown.taken[best] - shown.taken[name]) ** 2 / mixed, axis=1)))
            room = values[best] - value + TOLERANCE * values[best]
            needed = max(needed, z * z * square * values[best] * max(shown.totals.design_effect, 1.0) / room**2)
        if needed <= rows:
            break
    return epsilon, math.ceil(needed)
