"""advise_on: how to find the best of some agents, by the log alone (docs/advise.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import distributions
from recsim_mnar.fitting.advice import deciding
from recsim_mnar.fitting.advice.deciding import LEVEL, TOLERANCE, Check, Compared, Floats, Ints, Shown, check
from recsim_mnar.kernels.checks import of_type, whole_number
from recsim_mnar.log.contexts import ContextRule
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import user_begins, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.plan.experiment import UserTotals, users_an_arm
from recsim_mnar.own_log.plan.pilot import factor_range, quantile
from recsim_mnar.replays.probabilities import slate_size_of
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms

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
    """Fit of each model to held-out users, and its predicted values; ``raw`` values are the model's own.

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
    """True if some model that fits gives each agent a value within the log's own limits."""
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
        return None, f"it may take {low:,} to {high:,} users per arm"
    number = f"{sum(model['fits'] for model in models)} of {len(models)}"
    said = f"The range is that of the click models that fit ({number}) and of the log's own error."
    return {"users": max(needed), "low": low, "high": high, "tolerance": TOLERANCE, "why": said}, ""


def what_to_log(log: Log, shown: Shown, models: Sequence[Model], have: int, whole: bool) -> dict[str, Any]:
    """The exploration by which the log would decide whichever of the fitting models held.

    ``have`` users are what an arm can have; no more than their rows are asked for where agents are not shown ``whole``:
    what is still unseen may soon be clear.
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


AGENTS = ("random", "popularity", "user-popularity", "svd", "item-knn")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Question:
    """The question.

    Attributes:
        agents: to choose among; names, learners or policies, at least two.
        logging: the policy that made the log, a name or an object; what the log's provenance says where None.
        seed: of folds, fits and draws.
        n_items: how many items there are, where neither the log shows all nor its provenance says so.
        users: that each arm of an A/B test can have; as many as the log has where None.
        rewards: least and largest reward possible; None for 0 and 1.
    """

    agents: Sequence[Any] = AGENTS
    logging: Any = None
    seed: int = 0
    n_items: int | None = None
    users: int | None = None
    rewards: tuple[float, float] | None = None


@dataclass(kw_only=True)
class Advice:
    """The advice, its reasons, and its evidence; fields are JSON types.

    Attributes:
        answer: "log", "ab_test" or "cannot_tell".
        pick: the agent that the log decides for; None with another answer.
        tied: agents that the log does not know to be worse.
        cost: ``high``, the most that the pick costs, as a share of the best agent's value; None without a pick.
        ab_test: users per arm that suffice under every model that fits, their range, and what it rests on; or None.
        exploration: what to log first; or None.
        why: why the log does not decide.
        agents: one row per agent: what the log covers, its value in the log's states and the limits.
        pairs: differences, simultaneous.
        protocols: one row per offline protocol.
        models: click models and what they foresee.
        checks: what could speak against the log's decision.
        facts: of the log.
        doctor: what is wrong with the file, where the log is of one that was examined.
    """

    answer: str = "cannot_tell"
    pick: str | None = None
    tied: list[str] = field(default_factory=list)
    cost: Row | None = None
    ab_test: Row | None = None
    exploration: Row | None = None
    why: list[str] = field(default_factory=list)
    agents: list[Row] = field(default_factory=list)
    pairs: list[Row] = field(default_factory=list)
    protocols: list[Row] = field(default_factory=list)
    models: list[Model] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    facts: Row = field(default_factory=dict)
    doctor: list[str] = field(default_factory=list)

    def coverage(self) -> list[str]:
        """One line per agent: its coverage by the log."""
        lines = []
        for row in self.agents:
            low, high = row["covered_low"], row["covered_high"]
            span = "" if low == high else f" ({low:.1%} to {high:.1%})"
            known = deciding.HOW[row["known"]]
            lines.append(f"{row['agent']}: the log shows {row['covered']:.1%} of it{span}, {known}.")
        return lines

    def headline(self) -> str:
        """The answer in a sentence."""
        if self.cost is not None:
            most, tied = self.cost["high"], f" {', '.join(self.tied)} may be as good." if self.tied else ""
            cost = f"it costs at most {most:.1%} of the best agent's value" if most > 0 else "no other agent is better"
            return f"The log decides: take {self.pick}, {cost}.{tied}"
        if self.ab_test is not None:
            users, low, high, tolerance = (self.ab_test[name] for name in ("users", "low", "high", "tolerance"))
            return (
                f"The log does not decide. An A/B test does: {users:,} users per arm ({low:,} to {high:,}); what it "
                f"picks costs at most {tolerance:.0%} with probability {self.facts['level']:g}."
            )
        return "This log cannot show which agent is best, nor how large an A/B test would have to be."

    def sentences(self) -> list[str]:
        """The answer, why, what to log, and whether leave-one-out may be trusted here."""
        lines = [self.headline(), *self.why]
        lines += [] if self.ab_test is None else [self.ab_test["why"]]
        lines += [] if self.exploration is None else [self.exploration["line"]]
        return lines + [row["sentence"] for row in self.protocols]

    def to_dict(self) -> Row:
        """JSON types."""
        return {**vars(self), "sentences": self.sentences()}


_PAIR = "the least and the largest reward possible"


def refuse_slates(log: Log) -> None:
    """Raise UserError for a log of slates: agents are judged here by the single items that they show."""
    size = slate_size_of(log)
    if size > 1:
        raise UserError(
            f"the log has slates of {size} items, and advise judges agents that show one: replay each agent on it "
            "(recsim-mnar replay LOG --policy NAME --out FILE), then recsim-mnar estimate FILE --target NAME"
        )


def advise_on(
    log: Log | Ratings,
    question: Question,
    *,
    report: Callable[[str], None] = lambda stage: None,
    executor: Executor | None = None,
) -> Advice:
    """Say whether a log decides which agent is best, or an A/B test of how many users, or neither.

    Args:
        log: ordered by (user, step).
        question: what is asked.
        report: called with a line whenever a stage begins.
        executor: to spread users over; no number depends on it.

    Raises:
        UserError: fewer than two agents, one that cannot be fitted or replayed, a log that contradicts the question,
            or one of slates.
    """
    of_type(log, "log", (Log, Ratings), "a Log (read_log reads one)")
    of_type(question, "question", Question, "a Question")
    if question.rewards is not None and len(of_type(question.rewards, "rewards", (tuple, list), _PAIR)) != 2:
        raise UserError(f"rewards must be {_PAIR}, got {question.rewards!r}")
    whole_number(1 if question.users is None else question.users, "users", 1)
    if isinstance(log, Log):
        refuse_slates(log)
    seed, agents = check_seed(question.seed), deciding.agents_of(question.agents)
    bounds = question.rewards or (0.0, 1.0)
    found, absurd = Advice(facts=_facts(log)), _absurd(log, question.rewards)
    if absurd:
        line = "Log first: one recommendation in ten drawn uniformly from all items, all with their propensities."
        found.why, found.exploration = [absurd], {"epsilon": 0.1, "rows": None, "line": line}
        return found
    assert isinstance(log, Log)
    met = max(2, log.highest_item + 1)
    n_items = max(log.n_items, met) if question.n_items is None else whole_number(question.n_items, "n_items", met)
    report("read the logging policy")
    logger = deciding.logger_of(log, question.logging, n_items, seed, executor)
    report(f"fit and replay {len(agents)} agents, each on users that it was not fitted on")
    shown = deciding.shown_of(log, agents, logger, n_items, seed, executor)
    found.facts |= {"items": n_items, "logging": logger.known, "level": LEVEL}
    compared, tires = None, deciding.CALM
    if logger.known != deciding.ABSENT:
        report("compare agents, and look at rows in their order")
        compared = Compared(shown, bounds)
        found.checks, tires = deciding.order_checks(compared)
        found.checks.append(deciding.permuted_clicks(shown, bounds, seed))
        found.pairs = compared.pairs()
    found.agents = [_row(name, shown, compared) for name in agents]
    report("fit click models")
    if shown.totals.unit:
        limits = {row["agent"]: (row["low"], row["high"]) for row in found.agents}
        found.models = click_models(log, shown, limits, seed)
        found.checks.append(models_check(found.models, found.agents))
    _decide(found, compared, tires)
    report("leave-one-out on the same folds")
    off = [each["check"] for each in found.checks if each["grade"] != "clear"]
    loo = deciding.by_leave_one_out(log, agents, shown, compared, tires, found.models, off, seed, executor)
    found.protocols = [loo]
    if found.answer != "log":
        _ask_for_more(found, log, shown, question.users or shown.totals.users)
    return found


def _absurd(log: Log | Ratings, rewards: tuple[float, float] | None) -> str:
    """Why a log allows no answer; empty if it may allow one."""
    if isinstance(log, Ratings) or not log.is_bandit.any():
        what = "The file holds ratings" if isinstance(log, Ratings) else "The log shows no recommendation"
        return f"{what}: nothing in it says what users do with what they are shown."
    reward, action, time, user = (log[name][log.is_bandit] for name in ("reward", "action", "time", "user"))
    span = f"are in {reward.min():g} to {reward.max():g}"
    if rewards and (reward.min() < rewards[0] or reward.max() > rewards[1]):
        raise UserError(f"rewards {span}, not {rewards[0]:g} to {rewards[1]:g}: state both")
    if not rewards and not np.all((reward == 0.0) | (reward == 1.0)):
        said = f"Rewards {span}, and are not 0 or 1: what one more could earn is not known."
        return f"{said} State the least and the largest reward possible."
    if np.ptp(reward) == 0.0:
        return f"Every recommendation earned {reward[0]:g}: such rewards make all agents look the same."
    if len(np.unique(action)) == 1:
        return "The log shows one item only: nothing in it says what another would have earned."
    if np.any((np.diff(time) < 0.0) & ~user_begins(user)[1:]):
        return "Time runs backwards within users: the rows are not in the order of the events. Sort them by time."
    return ""


def _facts(log: Log | Ratings) -> Row:
    if isinstance(log, Ratings):
        return {"ratings": len(log)}
    reward = log["reward"][log.is_bandit]
    rate = float(reward.mean()) if reward.size else None
    return {"recommendations": reward.size, "views": len(log) - reward.size, "users": log.users().size, "reward": rate}


def _row(name: str, shown: Shown, compared: Compared | None) -> Row:
    """The log's coverage of an agent, and its value; limits hold for all agents together."""
    if compared is None:
        ever = np.bincount(shown.action, minlength=shown.n_items) > 0
        limits: tuple[float | None, ...] = (float(np.mean(shown.taken[name] @ ever)), 0.0, 1.0, None, 0.0, 1.0)
    else:
        level = 1.0 - (1.0 - LEVEL) / len(compared.agents)
        limits = *compared.covered(name, level), *compared.value(name, level)
    keys = ("covered", "covered_low", "covered_high", "value", "low", "high")
    return {"agent": name, "known": shown.logger.known, **dict(zip(keys, limits, strict=True))}


def _decide(found: Advice, compared: Compared | None, tires: deciding.Tiring) -> None:
    """Let the log decide, or say why it does not."""
    stopping = [each for each in found.checks if each["check"] != "click_models" and each["grade"] != "clear"]
    found.why = [f"It does not decide: {each['sentence']}." for each in stopping]
    if compared is None:
        found.why.append("The log has no propensities, so it is unknown how often it would show what.")
        return
    best = deciding.decide(compared, tires)
    if best.high > TOLERANCE:
        hidden = [row["agent"] for row in found.agents if row["covered_low"] < 1.0 - 1e-9]
        said = f"Choosing {best.pick} may cost {best.high:.0%} of the best agent's value for all that the log shows"
        if tires[0] > 0.0 and deciding.decide(compared).high <= TOLERANCE:
            said += f": it cannot exclude that users tire of what is shown again, which may cost {tires[0]:.0%}"
            found.checks[0] |= {"grade": "cannot say"} if found.checks[0]["grade"] == "clear" else {}
        elif hidden:
            said = f"The log does not show all that {', '.join(hidden)} recommend, so it is unknown what they earn"
        found.why.append(f"{said}.")
    if not found.why:
        found.answer, found.pick, found.tied, found.cost = "log", best.pick, best.tied, {"high": best.high}


def _ask_for_more(found: Advice, log: Log, shown: Shown, have: int) -> None:
    """An A/B test if its size is known; else the exploration to log, also if an arm cannot have so many users."""
    found.ab_test, unknown = ab_test(found.models, shown.totals)
    if found.ab_test is None:
        found.why.append(f"How large an A/B test has to be the log does not say either: {unknown}.")
    else:
        found.answer = "ab_test"
        if found.ab_test["users"] <= have:
            return
        found.why.append(f"That is more than the {have:,} users that an arm can have: log with exploration first.")
    whole = all(row["covered_low"] >= 1.0 for row in found.agents)
    found.exploration = what_to_log(log, shown, found.models, have, whole)
