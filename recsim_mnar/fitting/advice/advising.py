"""advise_on: what to do to find the best of some agents, by what a log shows and by nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.advice.coverage import (
    ABSENT,
    Logger,
    Shown,
    States,
    agents_of,
    distributions,
    logger_of,
    shown_of,
)
from recsim_mnar.fitting.advice.deciding import (
    Check,
    Compared,
    check_bounds,
    decide,
    decision_for,
    order_checks,
    permuted_clicks,
)
from recsim_mnar.fitting.advice.findings import AB_TEST, CANNOT_TELL, LOG, Advice
from recsim_mnar.fitting.advice.foreseeing import (
    TOO_WIDE,
    Foreseen,
    exploration,
    fitted_models,
    range_of_users,
    totals_of,
)
from recsim_mnar.fitting.advice.offline import FEWEST, Agreement, leave_one_out_agreement
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import user_begins
from recsim_mnar.log.table import Log
from recsim_mnar.policy.base import Learner
from recsim_mnar.rng import check_seed

AGENTS = ("random", "popularity", "user-popularity", "svd", "item-knn")
Report = Callable[[str], None]


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


def advise_on(
    log: Log | Ratings,
    question: Question,
    *,
    report: Report = lambda stage: None,
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
        UserError: fewer than two agents, one that cannot be fitted or replayed, or a log that is none.
    """
    check_seed(question.seed)
    agents = agents_of(question.agents)
    why = _unanswerable(log, question)
    if why:
        return Advice(CANNOT_TELL, why=[why], doctor=doctor, exploration=_first_line(question), facts=_facts(log))
    assert isinstance(log, Log)
    met = max(int(log["item"].max(initial=-1)), int(log["action"].max(initial=-1))) + 1
    n_items = max(question.n_items or 0, met)
    report("read the logging policy")
    bare = bool(np.isnan(log["propensity"][log.is_bandit]).any())
    given = Logger(None, None, ABSENT)
    logger = given if bare else logger_of(log, question.logging, n_items, question.seed, executor)
    report(f"fit and replay {len(agents)} agents, each on users that it was not fitted on")
    shown, states = shown_of(log, agents, logger, n_items, question.seed, executor)
    run = _Run(log, question, agents, shown, states, n_items, report, executor)
    return replace(run.advice(), doctor=list(doctor))


def _unanswerable(log: Log | Ratings, question: Question) -> str:
    """Why nothing can be said of a log; empty where something may be."""
    if isinstance(log, Ratings):
        return "The file holds ratings, and nothing of what was recommended: no agent can be judged by it."
    shown = log.is_bandit
    if not shown.any():
        return "The log shows no recommendation: nothing in it says what users click of what they are shown."
    reward, action, time, user = (log[name][shown] for name in ("reward", "action", "time", "user"))
    if check_bounds(reward, question.rewards) is None:
        return (
            f"Rewards lie between {reward.min():g} and {reward.max():g}, not at 0 or 1: how much an unseen one may "
            "earn is not known. Say the least and the largest reward possible."
        )
    if np.ptp(reward) == 0.0:
        return f"Every recommendation earned {reward[0]:g}: such rewards tell no agent from another."
    if len(np.unique(action)) == 1:
        return "The log shows one item only: nothing in it says what another would have earned."
    if np.any((np.diff(time) < 0.0) & ~user_begins(user)[1:]):
        return "Time runs backwards within users: the order of the rows is not that of the events. Sort them by time."
    return ""


def _facts(log: Log | Ratings) -> dict[str, Any]:
    if isinstance(log, Ratings):
        return {"ratings": len(log)}
    reward = log["reward"][log.is_bandit]
    return {
        "recommendations": int(reward.size),
        "views": len(log) - int(reward.size),
        "users": len(log.users()),
        "mean_reward": float(np.mean(reward)) if reward.size else None,
    }


def _first_line(question: Question) -> dict[str, Any]:
    line = (
        "Log first: recommendations of which one in ten is an item drawn uniformly, each with its propensity; then "
        "advise again."
    )
    return {"epsilon": 0.1, "rows": None, "line": line}


@dataclass(frozen=True)
class _Run:
    """One log with its agents replayed, on the way to advice."""

    log: Log
    question: Question
    agents: dict[str, Any]
    shown: Shown
    states: States
    n_items: int
    report: Report
    executor: Executor | None

    def advice(self) -> Advice:
        asked, shown = self.question, self.shown
        bounds = check_bounds(shown.reward, asked.rewards)
        assert bounds is not None
        totals = totals_of(shown.user, shown.reward)
        absent = shown.logger.known == ABSENT
        if absent:
            compared, checks, loss = None, [], 1.0
            rows = [self._row(name, None, None) for name in self.agents]
            agreed = Agreement("leave_one_out", "hr@1", {}, None, why="the log has no propensities to judge it by")
        else:
            self.report("compare agents, and look at rows in their order")
            compared = Compared(shown, asked.level, bounds)
            checks, loss = order_checks(shown, self.log["action"][self.log.is_bandit], asked.level)
            checks.append(permuted_clicks(shown, asked.level, bounds, asked.seed))
            each = 1.0 - (1.0 - asked.level) / len(self.agents)
            rows = [self._row(name, compared, each) for name in self.agents]
            self.report("leave-one-out on the same folds")
            learners = {name: agent for name, agent in self.agents.items() if isinstance(agent, Learner)}
            agreed = leave_one_out_agreement(self.log, learners, compared, self.n_items, asked.seed, self.executor)
        models: list[Foreseen] = []
        if bounds == (0.0, 1.0):
            self.report("fit click models")
            limits = {row["agent"]: (row["value"] or 0.0, row["low"], row["high"]) for row in rows}
            models = fitted_models(
                self.log, self.states, limits, totals, asked.tolerance, asked.level, self.n_items, asked.seed
            )
            checks.append(_click_models(models, rows, asked.level))
        found = Advice(
            CANNOT_TELL,
            agents=rows,
            pairs=[] if compared is None else compared.pairs(),
            models=models,
            checks=checks,
            facts={
                **_facts(self.log),
                "agents": list(self.agents),
                "items": self.n_items,
                "logging": shown.logger.known,
            },
        )
        return self._answered(found, compared, loss, totals, agreed)

    def _row(self, name: str, compared: Compared | None, level: float | None) -> dict[str, Any]:
        if compared is None:
            ever = np.bincount(self.log["action"][self.log.is_bandit], minlength=self.n_items) > 0
            share = float(np.mean(self.states.taken[name] @ ever))
            limits = {"value": None, "low": 0.0, "high": 1.0}
            return {"agent": name, "covered": share, "covered_low": 0.0, "covered_high": 1.0, "known": ABSENT, **limits}
        assert level is not None
        covered = compared.covered(name, level)
        value, low, high = compared.value(name, level)
        return {
            "agent": name,
            "covered": covered.share,
            "covered_low": covered.low,
            "covered_high": covered.high,
            "known": covered.known,
            "value": value,
            "low": low,
            "high": high,
        }

    def _answered(
        self, found: Advice, compared: Compared | None, loss: float, totals: Any, agreed: Agreement
    ) -> Advice:
        asked = self.question
        decision = None if compared is None else decide(compared, loss)
        off = [check for check in found.checks if check.grade == "off" and check.check != "click_models"]
        why = [f"The log does not decide: {check.sentence}." for check in off]
        if decision is None:
            why.append("The log has no propensities: what it does not show, and how often it shows what, is not known.")
        elif decision.high > asked.tolerance:
            why.append(_open(found, decision, compared, loss, asked))
        found = replace(found, protocols=[_protocol(agreed, found, compared, loss, asked)])
        if decision is not None and not why:
            return replace(
                found,
                answer=LOG,
                pick=decision.pick,
                tied=decision.tied,
                cost={"high": decision.high},
                next=f"put {decision.pick} into service, and watch it by an A/B test against today's policy",
            )
        return self._by_test(replace(found, why=why), totals)

    def _by_test(self, found: Advice, totals: Any) -> Advice:
        """The A/B test where its size can be said, and what to log where not or where it is too large."""
        asked = self.question
        users = range_of_users(found.models, totals, asked.level)
        affordable = asked.users or totals.users
        test, why = None, list(found.why)
        if users is None:
            why.append("Nothing says how large an A/B test has to be: too few rewards, or rewards that are no clicks.")
        elif users[2] > TOO_WIDE * users[1]:
            why.append(
                f"Models that fit equally well ask for {users[1]:,} to {users[2]:,} users an arm: too wide to act on."
            )
        else:
            fitting = sum(model.fits for model in found.models)
            said = f"The range is that of {fitting} click models that fit the log equally well, and of its own error."
            test = {"users": users[0], "low": users[1], "high": users[2], "tolerance": asked.tolerance, "why": said}
        if test is not None and users is not None and users[0] > affordable:
            why.append(
                f"An arm can have {affordable:,} users, fewer than the A/B test needs: log with exploration first."
            )
        first = None if test is not None and test["users"] <= affordable else self._exploration(found, totals)
        types = "run the A/B test and take its best arm" if first is None else "log as said, then advise again"
        return replace(
            found, answer=CANNOT_TELL if test is None else AB_TEST, why=why, ab_test=test, exploration=first, next=types
        )

    def _exploration(self, found: Advice, totals: Any) -> dict[str, Any]:
        asked, logger = self.question, self.shown.logger
        fitting = [max(model.values.values()) for model in found.models if model.fits]
        value = min(fitting, default=0.0) or totals.value
        today = None if logger.policy is None else distributions(self.log, logger.policy, self.states.rows)
        have = math.ceil((asked.users or totals.users) * totals.length)
        epsilon, rows = exploration(self.states, today, value, totals, asked.tolerance, have, asked.level)
        mixed = "every one" if epsilon == 1.0 else f"{epsilon:.0%} of them"
        line = (
            f"Log first: about {rows:,} recommendations, {mixed} an item drawn uniformly from all {self.n_items:,} and "
            "the others today's policy's, each with its propensity; then advise again with --logging naming that policy."
        )
        return {"epsilon": epsilon, "rows": rows, "line": line}


def _open(found: Advice, decision: Any, compared: Any, loss: float, asked: Question) -> str:
    hidden = [row["agent"] for row in found.agents if row["covered_low"] < 1.0 - 1e-9]
    said = (
        f"The choice that it leaves least open, {decision.pick}, may cost {decision.high:.0%} of the best value, more "
        f"than {asked.tolerance:.0%}"
    )
    if loss > 0.0 and decide(compared).high <= asked.tolerance:
        return (
            f"{said}: users may tire of what they are shown again, by up to {loss:.0%}, and the log cannot exclude it."
        )
    return f"{said}{': it does not show all that these take: ' + ', '.join(hidden) if hidden else ''}."


def _click_models(models: Sequence[Foreseen], rows: Sequence[dict[str, Any]], level: float) -> Check:
    """Whether the models that fit give each agent a value that the log's own limits leave open."""
    missed = []
    for row in rows:
        fitting = [model.raw[row["agent"]] for model in models if model.fits]
        if not any(row["low"] <= value <= row["high"] for value in fitting):
            missed.append(row["agent"])
    grade = "off" if missed else "clear"
    said = f"no click model that fits gives what the log shows of {', '.join(missed)}" if missed else (
        "click models that fit give what the log shows of every agent"
    )  # fmt: skip
    return Check("click_models", grade, float(len(missed)), 0.0, said)


def _protocol(
    agreed: Agreement, found: Advice, compared: Compared | None, loss: float, asked: Question
) -> dict[str, Any]:
    """What an offline protocol is worth here: what its choice costs, and whether to choose by it."""
    costs = []
    if agreed.pick is not None:
        for model in found.models:
            best = max(model.values.values())
            costs += [1.0 - model.values[agreed.pick] / best] if model.fits and best > 0.0 else []
    low, high = (min(costs), max(costs)) if costs else (None, None)
    why = agreed.why
    if not why and agreed.decided < FEWEST:
        why = f"the log decides {agreed.decided} differences, fewer than the {FEWEST} that it would have to agree with"
    if not why and agreed.reversed:
        why = f"it orders {agreed.reversed} of {agreed.decided} differences the other way round than the log"
    if not why and agreed.agree < agreed.decided:
        why = f"it leaves {agreed.decided - agreed.agree} of {agreed.decided} differences open that the log decides"
    off = [check.check for check in found.checks if check.grade == "off"]
    if not why and off:
        why = f"a check is off: {', '.join(off)}"
    if not why and compared is not None and agreed.pick is not None:
        high = decision_for(compared, agreed.pick, loss).high
        if high > asked.tolerance:
            why = f"its choice, {agreed.pick}, may cost {high:.0%} of the best value for all that the log shows"
    sentence = (
        f"Do not choose by leave-one-out: {why}." if why else
        f"Leave-one-out orders all {agreed.decided} differences that the log decides as the log does."
    )  # fmt: skip
    return {
        "protocol": agreed.protocol, "metric": agreed.metric, "decided_pairs": agreed.decided, "agree": agreed.agree,
        "reversed": agreed.reversed, "advised": not why, "pick": agreed.pick, "cost_low": low, "cost_high": high,
        "sentence": sentence,
    }  # fmt: skip
