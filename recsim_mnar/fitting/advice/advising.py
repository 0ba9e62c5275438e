"""advise_on: what to do to find the best of some agents, by what a log shows and by nothing else (docs/advise.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.advice.coverage import (
    ABSENT,
    BOUNDED,
    REPLAYED,
    WEIGHED,
    Shown,
    agents_of,
    distributions,
    logger_of,
    shown_of,
)
from recsim_mnar.fitting.advice.deciding import (
    CALM,
    Check,
    Compared,
    Tiring,
    check,
    decide,
    decision_for,
    order_checks,
    permuted_clicks,
)
from recsim_mnar.fitting.advice.foreseeing import Model, click_models, exploration, range_of_users, totals_of
from recsim_mnar.fitting.advice.offline import FEWEST, agreement, hit_rates
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import user_begins
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.plan.users import UserTotals
from recsim_mnar.policy.base import Learner
from recsim_mnar.rng import check_seed

AGENTS = ("random", "popularity", "user-popularity", "svd", "item-knn")
TOO_WIDE = 4.0
"""A range of users whose ends differ by more than this factor is no number to act on."""
HOW = {
    REPLAYED: "by the logging policy, replayed",
    BOUNDED: "for the logging policy explores, by its name",
    WEIGHED: "by the mean weight, for the logging policy is not known",
    ABSENT: "counting the items that it shows at all, for it has no propensities",
}
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked.

    Attributes:
        agents: to choose among; names, learners or policies, at least two.
        logging: the policy that made the log, a name or an object; None where it is not known.
        seed: of folds, fits and draws.
        n_items: how many items there are, where the log does not show all.
        level: of every simultaneous statement.
        tolerance: cost of a choice, as a share of the best agent's value, that is none.
        users: that each arm of an A/B test can have; as many as the log has where None.
        rewards: least and largest reward possible; None for 0 and 1.
    """

    agents: Sequence[Any] = AGENTS
    logging: Any = None
    seed: int = 0
    n_items: int | None = None
    level: float = 0.95
    tolerance: float = 0.05
    users: int | None = None
    rewards: tuple[float, float] | None = None


@dataclass(kw_only=True)
class Advice:
    """What to do, why, and what it rests on; fields are JSON types.

    Attributes:
        answer: "log", "ab_test" or "cannot_tell".
        pick: the agent that the log decides for; None with another answer.
        tied: agents that the log does not know to be worse.
        cost: ``high``, the most that the pick costs, as a share of the best agent's value; None without a pick.
        ab_test: users an arm that suffice under every model that fits, their range, and what it rests on; or None.
        exploration: what to log first; or None.
        why: why the log does not decide.
        agents: one row per agent: what the log covers, its value in the log's states and the limits.
        pairs: differences, simultaneous.
        protocols: one row per offline protocol.
        models: click models and what they foresee.
        checks: what could speak against the log's decision.
        facts: of the log.
        doctor: what is wrong with the file.
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
        """One line per agent: what the log shows of it."""
        lines = []
        for row in self.agents:
            low, high = row["covered_low"], row["covered_high"]
            span = "" if low == high else f" ({low:.1%} to {high:.1%})"
            lines.append(f"{row['agent']}: the log shows {row['covered']:.1%} of it{span}, {HOW[row['known']]}.")
        return lines

    def headline(self) -> str:
        """The answer in a sentence."""
        if self.cost is not None:
            most = self.cost["high"]
            cost = (
                f"it costs at most {most:.1%} of the best agent's value" if most > 0.0 else "no other agent is better"
            )
            tied = f" {', '.join(self.tied)} may be as good." if self.tied else ""
            return f"The log decides: take {self.pick}, {cost}.{tied}"
        if self.ab_test is not None:
            users, low, high, tolerance = (self.ab_test[name] for name in ("users", "low", "high", "tolerance"))
            return (
                f"The log does not decide. An A/B test does: {users:,} users an arm ({low:,} to {high:,}); what it "
                f"picks costs at most {tolerance:.0%} with probability {self.facts['level']:g}."
            )
        return "This log cannot tell which agent is best, nor how large an A/B test would have to be."

    def sentences(self) -> list[str]:
        """The answer, why, what to log, and whether leave-one-out may be trusted here."""
        lines = [self.headline(), *self.why]
        lines += [] if self.ab_test is None else [self.ab_test["why"]]
        lines += [] if self.exploration is None else [self.exploration["line"]]
        return lines + [row["sentence"] for row in self.protocols]

    def to_dict(self) -> Row:
        """JSON types."""
        return {**vars(self), "sentences": self.sentences()}


def advise_on(
    log: Log | Ratings,
    question: Question,
    *,
    report: Callable[[str], None] = lambda stage: None,
    executor: Executor | None = None,
    doctor: Sequence[str] = (),
) -> Advice:
    """Say whether a log decides which agent is best, or an A/B test of how many users, or neither.

    Args:
        log: ordered by (user, step).
        question: what is asked.
        report: called with a line whenever a stage begins.
        executor: to spread users over; no number depends on it.
        doctor: lines on the file, which are kept with the rest.

    Raises:
        UserError: fewer than two agents, one that cannot be fitted or replayed, or a log that contradicts the question.
    """
    seed, agents = check_seed(question.seed), agents_of(question.agents)
    found, absurd = Advice(doctor=list(doctor), facts=_facts(log)), _absurd(log, question)
    if absurd:
        line = "Log first: one recommendation in ten drawn uniformly from all items, all with their propensities."
        found.why, found.exploration = [absurd], {"epsilon": 0.1, "rows": None, "line": line}
        return found
    assert isinstance(log, Log)
    n_items = max(question.n_items or 0, int(log["item"].max()) + 1, int(log["action"].max()) + 1)
    report("read the logging policy")
    logger = logger_of(log, question.logging, n_items, seed, executor)
    report(f"fit and replay {len(agents)} agents, each on users that it was not fitted on")
    shown = shown_of(log, agents, logger, n_items, seed, executor)
    found.facts |= {"items": n_items, "logging": logger.known, "level": question.level}
    compared, tires, totals = None, CALM, totals_of(shown)
    bounds = question.rewards or (0.0, 1.0)
    if logger.known != ABSENT:
        report("compare agents, and look at rows in their order")
        compared = Compared(shown, question.level, bounds)
        shares = {name: compared.covered(name, question.level) for name in agents}
        whole = [name for name in agents if shares[name][2 if logger.known == WEIGHED else 0] >= 1.0]
        found.checks, tires = order_checks(shown, whole, question.level, question.tolerance)
        found.checks.append(permuted_clicks(shown, question.level, bounds, seed))
        found.pairs = compared.pairs()
    found.agents = [_row(name, log, shown, compared) for name in agents]
    report("fit click models")
    if totals.unit:
        limits = {row["agent"]: (row["low"], row["high"]) for row in found.agents}
        found.models = click_models(log, shown, limits, totals, question.tolerance, question.level, seed)
        found.checks.append(_models_check(found))
    _decide(found, compared, tires, question)
    report("leave-one-out on the same folds")
    found.protocols = [_leave_one_out(found, log, agents, compared, tires, question, executor)]
    if found.answer != "log":
        _ask_for_more(found, log, shown, totals, question)
    return found


def _absurd(log: Log | Ratings, question: Question) -> str:
    """Why nothing can be said of a log; empty where something may be."""
    if isinstance(log, Ratings) or not log.is_bandit.any():
        what = "The file holds ratings" if isinstance(log, Ratings) else "The log shows no recommendation"
        return f"{what}: nothing in it says what users do with what they are shown."
    shown = log.is_bandit
    reward, action, time, user = (log[name][shown] for name in ("reward", "action", "time", "user"))
    least, largest = question.rewards or (0.0, 1.0)
    if question.rewards and (reward.min() < least or reward.max() > largest):
        raise UserError(
            f"rewards lie in {reward.min():g} to {reward.max():g}, not {least:g} to {largest:g}: state both"
        )
    if not question.rewards and not np.all((reward == 0.0) | (reward == 1.0)):
        span = f"Rewards lie in {reward.min():g} to {reward.max():g}, and are not 0 or 1"
        return f"{span}: what one more could earn is not known. State the least and the largest reward possible."
    if np.ptp(reward) == 0.0:
        return f"Every recommendation earned {reward[0]:g}: such rewards tell no agent from another."
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


def _row(name: str, log: Log, shown: Shown, compared: Compared | None) -> Row:
    """What the log covers of an agent, and its value; limits hold for all agents together."""
    if compared is None:
        ever = np.bincount(shown.action, minlength=shown.taken[name].shape[1]) > 0
        limits: tuple[float | None, ...] = (float(np.mean(shown.taken[name] @ ever)), 0.0, 1.0, None, 0.0, 1.0)
    else:
        level = 1.0 - (1.0 - compared.level) / len(compared.agents)
        limits = *compared.covered(name, level), *compared.value(name, level)
    keys = ("covered", "covered_low", "covered_high", "value", "low", "high")
    return {"agent": name, "known": shown.logger.known, **dict(zip(keys, limits, strict=True))}


def _models_check(found: Advice) -> Check:
    """Whether some model that fits gives each agent a value that the log's own limits leave open."""
    fitting = [model["raw"] for model in found.models if model["fits"]]
    missed = [r["agent"] for r in found.agents if not any(r["low"] <= raw[r["agent"]] <= r["high"] for raw in fitting)]
    if missed:
        said = f"no click model that fits gives what the log shows of {', '.join(missed)}"
        return check("click_models", "off", len(missed), 0.0, said)
    return check("click_models", "clear", 0.0, 0.0, "click models that fit give what the log shows of every agent")


def _decide(found: Advice, compared: Compared | None, tires: Tiring, question: Question) -> None:
    """Let the log decide, or say why it does not."""
    stopping = [each for each in found.checks if each["check"] != "click_models" and each["grade"] != "clear"]
    found.why = [f"It does not decide: {each['sentence']}." for each in stopping]
    if compared is None:
        found.why.append("The log has no propensities, so that nobody knows how often it would show what.")
        return
    best = decide(compared, tires)
    if best.high > question.tolerance:
        hidden = [row["agent"] for row in found.agents if row["covered_low"] < 1.0 - 1e-9]
        said = f"Choosing {best.pick} may cost {best.high:.0%} of the best agent's value for all that the log shows"
        if tires[0] > 0.0 and decide(compared).high <= question.tolerance:
            said += f": it cannot exclude that users tire of what is shown again, which may cost {tires[0]:.0%}"
            found.checks[0] |= {"grade": "cannot say"} if found.checks[0]["grade"] == "clear" else {}
        elif hidden:
            said = f"The log does not show all that {', '.join(hidden)} recommend, so that nobody knows what they earn"
        found.why.append(f"{said}.")
    if not found.why:
        found.answer, found.pick, found.tied, found.cost = "log", best.pick, best.tied, {"high": best.high}


def _leave_one_out(
    found: Advice,
    log: Log,
    agents: dict[str, Any],
    compared: Compared | None,
    tires: Tiring,
    question: Question,
    executor: Executor | None,
) -> Row:
    """Whether to choose by leave-one-out: only where its order is the log's, which bounds what its choice costs."""
    n_items = found.facts["items"]
    row: Row = {"protocol": "leave_one_out", "metric": "hr@1", "decided_pairs": 0, "agree": 0, "reversed": 0}
    row |= {"pick": None, "advised": False, "cost_low": None, "cost_high": None}
    why, off = "", [each["check"] for each in found.checks if each["grade"] != "clear"]
    try:
        if not all(isinstance(agent, Learner) for agent in agents.values()):
            raise UserError("it fits agents anew, and some of these are fitted already")
        scores = hit_rates(log, agents, n_items, question.seed, executor)
        row["pick"] = pick = max(scores, key=lambda name: scores[name])
        costs = [1.0 - m["values"][pick] / max(max(m["values"].values()), 1e-300) for m in found.models if m["fits"]]
        row |= {"cost_low": min(costs), "cost_high": max(costs)} if costs else {}
        if compared is not None:
            decided, agree, turned = agreement(compared, scores, n_items)
            row |= {"decided_pairs": decided, "agree": agree, "reversed": turned}
            row["cost_high"] = high = decision_for(compared, pick, tires).high
            if agree < decided:
                why = f"it orders {decided - agree} of {decided} differences otherwise than the log"
            elif high > question.tolerance:
                why = f"what it picks, {pick}, may cost {high:.0%} of the best agent's value"
        if row["decided_pairs"] < FEWEST:
            why = f"the log decides {row['decided_pairs']} differences that could confirm it, fewer than {FEWEST}"
    except UserError as error:
        why = str(error)
    why = why or (f"not clear: {', '.join(off)}" if off else "")
    right = f"Leave-one-out orders all {row['decided_pairs']} differences that the log decides as the log does."
    return row | {"advised": not why, "sentence": f"Do not choose by leave-one-out: {why}." if why else right}


def _ask_for_more(found: Advice, log: Log, shown: Shown, totals: UserTotals, question: Question) -> None:
    """An A/B test where its size can be said; what to log where not, or where the platform has too few users."""
    users, have = range_of_users(found.models, totals, question.level), question.users or totals.users
    if users is None or users[2] > TOO_WIDE * users[1]:
        span = "no model of clicks fits" if users is None else f"it may take {users[1]:,} to {users[2]:,} users an arm"
        found.why.append(f"How large an A/B test has to be the log does not say either: {span}.")
    else:
        number = f"{sum(model['fits'] for model in found.models)} of {len(found.models)}"
        said = f"The range is that of the click models that fit ({number}) and of the log's own error."
        found.answer, sizes = "ab_test", dict(zip(("users", "low", "high"), users, strict=True))
        found.ab_test = {**sizes, "tolerance": question.tolerance, "why": said}
        if users[0] <= have:
            return
        found.why.append(f"That is more than the {have:,} users that an arm can have: log with exploration first.")
    today = None if shown.logger.policy is None else distributions(log, shown.logger.policy, shown.states)
    values = [m["values"] for m in found.models if m["fits"] and max(m["values"].values()) > 0.0]
    values = values or [dict.fromkeys(shown.targets, float(totals.value))]
    rows = math.ceil(have * totals.length)
    tried = [exploration(shown, today, each, totals, question.tolerance, rows, question.level) for each in values]
    epsilon, needed = max(tried, key=lambda each: each[1])
    mixed = "" if epsilon == 1.0 else f" in {epsilon:.0%} of cases and by today's policy in the others"
    whole, items = all(row["covered_low"] >= 1.0 for row in found.agents), found.facts["items"]
    asked = needed if whole else min(needed, rows)  # what nobody has seen yet may soon be clear
    may = f" (up to {needed:,} may be needed before it decides)" if needed > asked else ""
    line = (
        f"Log first: about {asked:,} recommendations{may}, drawn uniformly from all {items:,} items{mixed}, all with "
        "their propensities; then advise again, naming that log's policy by --logging."
    )
    found.exploration = {"epsilon": epsilon, "rows": asked, "line": line}
