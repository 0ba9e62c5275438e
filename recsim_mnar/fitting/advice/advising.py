"""advise_on: what to do to find the best of some agents, by what a log shows and by nothing else (docs/advise.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.advice import deciding
from recsim_mnar.fitting.advice.coverage import ABSENT, HOW, Shown, agents_of, logger_of, shown_of
from recsim_mnar.fitting.advice.deciding import LEVEL, TOLERANCE, Check, Compared
from recsim_mnar.fitting.advice.foreseeing import Model, ab_test, click_models, models_check, what_to_log
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.rows import user_begins
from recsim_mnar.log.table import Log
from recsim_mnar.rng import check_seed
from recsim_mnar.simulation.named import n_items_of

AGENTS = ("random", "popularity", "user-popularity", "svd", "item-knn")
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked.

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
            most, tied = self.cost["high"], f" {', '.join(self.tied)} may be as good." if self.tied else ""
            cost = f"it costs at most {most:.1%} of the best agent's value" if most > 0 else "no other agent is better"
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
) -> Advice:
    """Say whether a log decides which agent is best, or an A/B test of how many users, or neither.

    Args:
        log: ordered by (user, step).
        question: what is asked.
        report: called with a line whenever a stage begins.
        executor: to spread users over; no number depends on it.

    Raises:
        UserError: fewer than two agents, one that cannot be fitted or replayed, or a log that contradicts the question.
    """
    seed, agents, bounds = check_seed(question.seed), agents_of(question.agents), question.rewards or (0.0, 1.0)
    found, absurd = Advice(facts=_facts(log)), _absurd(log, question.rewards)
    if absurd:
        line = "Log first: one recommendation in ten drawn uniformly from all items, all with their propensities."
        found.why, found.exploration = [absurd], {"epsilon": 0.1, "rows": None, "line": line}
        return found
    assert isinstance(log, Log)
    n_items = max(question.n_items or n_items_of(log), int(log["item"].max()) + 1, int(log["action"].max()) + 1)
    report("read the logging policy")
    logger = logger_of(log, question.logging, n_items, seed, executor)
    report(f"fit and replay {len(agents)} agents, each on users that it was not fitted on")
    shown = shown_of(log, agents, logger, n_items, seed, executor)
    found.facts |= {"items": n_items, "logging": logger.known, "level": LEVEL}
    compared, tires = None, deciding.CALM
    if logger.known != ABSENT:
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
    found.protocols = [
        deciding.by_leave_one_out(log, agents, shown, compared, tires, found.models, off, seed, executor)
    ]
    if found.answer != "log":
        _ask_for_more(found, log, shown, question.users or shown.totals.users)
    return found


def _absurd(log: Log | Ratings, rewards: tuple[float, float] | None) -> str:
    """Why nothing can be said of a log; empty where something may be."""
    if isinstance(log, Ratings) or not log.is_bandit.any():
        what = "The file holds ratings" if isinstance(log, Ratings) else "The log shows no recommendation"
        return f"{what}: nothing in it says what users do with what they are shown."
    reward, action, time, user = (log[name][log.is_bandit] for name in ("reward", "action", "time", "user"))
    span = f"lie in {reward.min():g} to {reward.max():g}"
    if rewards and (reward.min() < rewards[0] or reward.max() > rewards[1]):
        raise UserError(f"rewards {span}, not {rewards[0]:g} to {rewards[1]:g}: state both")
    if not rewards and not np.all((reward == 0.0) | (reward == 1.0)):
        said = f"Rewards {span}, and are not 0 or 1: what one more could earn is not known."
        return f"{said} State the least and the largest reward possible."
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


def _row(name: str, shown: Shown, compared: Compared | None) -> Row:
    """What the log covers of an agent, and its value; limits hold for all agents together."""
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
        found.why.append("The log has no propensities, so that nobody knows how often it would show what.")
        return
    best = deciding.decide(compared, tires)
    if best.high > TOLERANCE:
        hidden = [row["agent"] for row in found.agents if row["covered_low"] < 1.0 - 1e-9]
        said = f"Choosing {best.pick} may cost {best.high:.0%} of the best agent's value for all that the log shows"
        if tires[0] > 0.0 and deciding.decide(compared).high <= TOLERANCE:
            said += f": it cannot exclude that users tire of what is shown again, which may cost {tires[0]:.0%}"
            found.checks[0] |= {"grade": "cannot say"} if found.checks[0]["grade"] == "clear" else {}
        elif hidden:
            said = f"The log does not show all that {', '.join(hidden)} recommend, so that nobody knows what they earn"
        found.why.append(f"{said}.")
    if not found.why:
        found.answer, found.pick, found.tied, found.cost = "log", best.pick, best.tied, {"high": best.high}


def _ask_for_more(found: Advice, log: Log, shown: Shown, have: int) -> None:
    """An A/B test where its size can be said; what to log where not, or where an arm cannot have so many users."""
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
