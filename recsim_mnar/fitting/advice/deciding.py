"""Coverage of each agent by a log, and decisions between agents: differences, order of rows, leave-one-out."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import poisson_reach, small_sample_factor
from recsim_mnar.estimators.off_policy.differences import PairMoments, estimate_difference
from recsim_mnar.estimators.off_policy.from_moments import AUTO, estimate_from_moments
from recsim_mnar.estimators.off_policy.limits import STRICT, mean_weight_limits, support_of
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.row_order import (
    Limits,
    OrderSums,
    earlier_choices,
    earlier_showings,
    lasting,
    moved_by,
    proved,
    repeating,
    tiring,
)
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.export.arrays import distributions
from recsim_mnar.kernels.checks import list_of
from recsim_mnar.log.columns import Clusters
from recsim_mnar.log.rows import steps_within, user_begins, user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.plan.experiment import UserTotals
from recsim_mnar.policies import registry
from recsim_mnar.policies.answers import name_of
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import as_learner, as_policy, check_needs, fitted, role_of
from recsim_mnar.protocols.leave_one_out.protocol import fold_ranks
from recsim_mnar.replays.probabilities import gives_propensities, least_propensity, replay, replay_with_support
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation.run_folder import logging_policy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Agents = dict[str, Learner | Policy]

FOLDS = 4
"""Of users. An agent is fitted on the others, three quarters; each further fold is a fit more and no replay."""
STATES = 600
"""Users, at most, of whom the agents' whole distributions are kept in one state each."""
REPLAYED, BOUNDED, WEIGHED, ABSENT = "replayed", "least propensity", "mean weight", "no propensities"
HOW = {
    REPLAYED: "by the logging policy, replayed",
    BOUNDED: "for the logging policy explores, by its name",
    WEIGHED: "by the mean weight, for the logging policy is not known",
    ABSENT: "counting the items that it shows at all, for it has no propensities",
}
"""How coverage is known, in words."""


class Logger(NamedTuple):
    """Known facts about the policy that made a log.

    ``policy`` gives the log's propensities, None where none is known that does; no action has a smaller propensity than
    ``least`` in any state, None if not stated; ``known`` is one of the words of :data:`HOW`.
    """

    policy: Policy | None
    least: float | None
    known: str


@dataclass(frozen=True)
class Shown:
    """The n recommendations of a log in the order of (user, step), and the agents' probabilities of them.

    Attributes:
        user, action, reward, propensity: (n,).
        targets: by agent (n,) its probability of the logged action; it was fitted on other users.
        missing: by agent (n,) its mass on what the logging policy never shows; empty where that is not known.
        logger: what is known of the logging policy.
        states: (S,) rows of the log, one decision of each of some users.
        taken: by agent (S, n_items) its distribution there.
    """

    user: Ints
    action: Ints
    reward: Floats
    propensity: Floats
    targets: dict[str, Floats]
    missing: dict[str, Floats]
    logger: Logger
    states: Ints
    taken: dict[str, Floats]

    @property
    def n_items(self) -> int:
        """Of the log's world."""
        return next(iter(self.taken.values())).shape[1]

    @functools.cached_property
    def totals(self) -> UserTotals:
        """Of the users' recommendations."""
        return UserTotals.of(self.reward, Clusters.of(self.user, self.user.size))

    def part(self, rows: NDArray[np.bool_]) -> Shown:
        """Some of the recommendations."""
        columns: dict[str, Any] = {n: getattr(self, n)[rows] for n in ("user", "action", "reward", "propensity")}
        columns |= {n: {a: x[rows] for a, x in getattr(self, n).items()} for n in ("targets", "missing")}
        return replace(self, **columns)


def agents_of(given: Sequence[Any]) -> Agents:
    """Learners of names and of what fits, policies of what acts, by name: at least two, each once."""
    found: Agents = {}
    for each in list_of(given, "agents"):
        one, name = (registry.learner(each), each) if isinstance(each, str) else (each, name_of(each))
        if name in found:
            raise UserError(f"agent {name!r} is named twice; name each once")
        found[name] = as_policy(one) if role_of(one) == "policy" else as_learner(one, name=name)
    if len(found) < 2:
        raise UserError(f"advise chooses among agents: name at least two, got {', '.join(found) or 'none'}")
    return found


def logger_of(log: Log, given: Any, n_items: int, seed: int, executor: Executor | None) -> Logger:
    """Credible description of a logging policy: only as far as the log's propensities confirm it.

    ``given`` is a name, which is fitted on the log itself, or a policy; None for what the log's provenance says.

    Raises:
        UserError: the log breaks a rule of its schema, or its propensities contradict what is given.
    """
    logged = log["propensity"][log.is_bandit]
    read = log.provenance.get("columns", ("propensity",))  # a file without them is read as if its policy were uniform
    if np.isnan(logged).any() or "propensity" not in read:
        return Logger(None, None, ABSENT)
    log.validate(n_items)
    one = registry.learner(given) if isinstance(given, str) else given
    one = logging_policy(log.provenance, executor=executor) if one is None else one
    if one is None:
        return Logger(None, None, WEIGHED)
    policy = as_policy(one) if role_of(one) == "policy" else fitted(one, log, n_items=n_items, seed=seed)
    least = least_propensity(policy)
    if least is not None and float(np.min(logged)) < least * (1.0 - 1e-9):
        raise UserError(
            f"logging policy {policy.name!r} takes no action with less than {least:.4g}, and the log has a propensity "
            f"of {np.min(logged):.4g}: name the policy that made the log, or none"
        )
    if gives_propensities(log, policy, executor=executor):
        return Logger(policy, least, REPLAYED)
    return Logger(None, least, WEIGHED if least is None else BOUNDED)


def shown_of(log: Log, agents: Agents, logger: Logger, n_items: int, seed: int, executor: Executor | None) -> Shown:
    """Replay each agent on users that it was not fitted on; policies were fixed without this log."""
    chosen, shown = _one_decision_each(log, seed), log.is_bandit
    targets, missing = ({name: np.full(len(log), np.nan) for name in agents} for _ in range(2))
    taken = {name: np.zeros((len(chosen), n_items)) for name in agents}
    for name, agent in agents.items():
        for mine, policy in _on_others(log, name, agent, logger, n_items, seed):
            part, here = log.select(mine), np.flatnonzero(np.isin(chosen, mine))
            if logger.policy is None:
                targets[name][mine] = replay(part, policy, executor=executor)
            else:
                found = replay_with_support(part, policy, logger.policy, executor=executor)
                targets[name][mine], missing[name][mine] = found
            taken[name][here] = distributions(log, policy, chosen[here])
    known = {} if logger.policy is None else missing
    targets, missing = ({name: x[shown] for name, x in table.items()} for table in (targets, known))
    user, action, reward, propensity = (log[name][shown] for name in ("user", "action", "reward", "propensity"))
    return Shown(user, action, reward, propensity, targets, missing, logger, chosen, taken)


def _on_others(
    log: Log, name: str, agent: Learner | Policy, logger: Logger, n_items: int, seed: int
) -> Iterator[tuple[Ints, Policy]]:
    """Rows of whole users, and the policy that is replayed there."""
    if isinstance(agent, Policy):
        yield np.arange(len(log)), agent
        return
    check_needs(name, agent, {"clicks"} if logger.known == ABSENT else {"outcomes", "clicks"}, "the log")
    for mine, others in folds_of(log, seed):
        yield mine, fitted(agent, log.select(others), n_items=n_items, seed=derive_seed(seed, "fit"))


def folds_of(log: Log, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Rows of the users of each fold, and those of all others."""
    draw = uniforms(derive_seed(seed, "advise/folds"), Stream.PROTOCOL, log["user"], 0)
    for each in range(FOLDS):
        mine = (draw * FOLDS).astype(np.int64) == each
        if mine.any() and not mine.all():
            yield np.flatnonzero(mine), np.flatnonzero(~mine)


def _one_decision_each(log: Log, seed: int) -> Ints:
    """Rows, ascending: a decision of each of at most ``STATES`` users, who are drawn by how many they have."""
    rows = np.flatnonzero(log.is_bandit)
    users, draw = log["user"][rows], derive_seed(seed, "advise/states")
    order = np.lexsort((uniforms(draw, Stream.PROTOCOL, users, log["step"][rows]), users))
    starts = user_starts(users)
    first = order[starts]
    among = -np.log1p(-uniforms(draw, Stream.PROTOCOL, users[first], 1 << 31))
    race = among / np.diff(np.r_[starts, len(rows)])  # the first of an exponential race
    return np.sort(rows[first[np.argsort(race, kind="stable")[:STATES]]])


LEVEL, TOLERANCE = 0.95, 0.05
"""Of every simultaneous statement; and the cost of a choice, as a share of the best agent's value, that is none."""
ONE_SIDED = 1.0 - 2.0 * (1.0 - LEVEL)
"""Level of two-sided limits of which only one is read."""
OF_VALUE = 0.2
"""Share of the level's complement that the lower limit of the pick's own value takes; the differences take the rest."""
CONTROLS, MOST_DECIDED = 20, 2
"""Logs of the control, and in how many of them one best agent may seem to be decided."""
SOON = (1, 3)
"""Decisions within which an item is shown again: at once, or soon."""
LASTING, EARLIER, SHOWN_BEFORE, WARNED = (3, 15), 15, (15, 60), 0.9
"""Decisions over which later rewards, earlier decisions and earlier showings are summed, and the level at which all of
them are looked at together: a false alarm costs an A/B test, and a missed one a wrong pick."""
FEWEST = 10
"""Decided pairs without which no agreement of leave-one-out with the log is claimed."""
SHARES = (0.25, 0.5, 0.75)
"""Of the other policy in mixed agents, which count as pairs."""
HELD = 2
"""Views of each user that leave-one-out holds out, one at a time."""
Tiring = tuple[float, dict[str, float]]
"""Share of its value that what is shown again may lose, and by agent how often it repeats itself at least."""
CALM: Tiring = (0.0, {})
Check = dict[str, Any]


def check(name: str, grade: str, figure: float | None, limit: float | None, sentence: str) -> Check:
    """Evidence against the log; ``grade`` is "clear", "off" or "cannot say"."""
    return {"check": name, "grade": grade, "figure": figure, "limit": limit, "sentence": sentence}


class Compared:
    """Agents' values on one log, from moments that are gathered once; ``bounds`` are the least and largest reward."""

    def __init__(self, shown: Shown, bounds: tuple[float, float] = (0.0, 1.0)) -> None:
        self.shown, self.agents, self.least, self.range = shown, list(shown.targets), bounds[0], bounds[1] - bounds[0]
        self.clusters = Clusters.of(shown.user, shown.reward.size)
        self.stated = Stated(reward_min=bounds[0], reward_max=bounds[1], propensity_min=shown.logger.least)
        self.moments: dict[str, Moments] = {}
        self._pairs: dict[tuple[str, str], PairMoments] = {}
        for name, target in shown.targets.items():
            self.moments[name] = Moments.of(
                shown.reward, shown.propensity, target, cluster=self.clusters, reward_min=bounds[0],
                reward_max=bounds[1], unsupported=shown.missing.get(name),
            )  # fmt: skip
            self.moments[name].denied = self.stated.denied(target, shown.propensity)

    def covered(self, agent: str, level: float) -> Limits:
        """Share of an agent's mass that the log shows in the visited states."""
        if self.stated.propensity_min is not None:
            return 1.0, 1.0, 1.0
        found = support_of(self.moments[agent], self.stated, level)
        if self.shown.logger.known == REPLAYED:
            hidden = found.known or 0.0
            return 1.0 - hidden, 1.0 - found.entering, min(1.0 - 2.0 * hidden + found.entering, 1.0)
        low, high = (min(max(limit, 0.0), 1.0) for limit in mean_weight_limits(self.moments[agent], self.stated, level))
        return min(found.mean, 1.0), min(low, 1.0 - found.hidden), high

    def _hidden(self, agent: str, level: float) -> float:
        """Most that mass earns which may be missing, and which the estimators leave out as long as it is not proved."""
        if self.shown.logger.known != WEIGHED:
            return 0.0
        return support_of(self.moments[agent], self.stated, level).hidden * self.range

    def value(self, agent: str, level: float) -> Limits:
        """Mean reward per decision; items that the log does not show may earn anything."""
        found = estimate_from_moments(self.moments[agent], AUTO, level=level, stated=self.stated)
        hidden = self._hidden(agent, level)
        return found.value, max(found.low - hidden, self.least), min(found.high + hidden, self.least + self.range)

    def difference(self, first: str, second: str, level: float) -> Limits:
        """How much more the first earns than the second."""
        key, shown = (first, second), self.shown
        if key not in self._pairs:
            pair = PairMoments(self.moments[first], self.moments[second])
            ours, theirs = shown.targets[first], shown.targets[second]
            pair.extend(shown.reward, shown.propensity, ours, theirs, self.clusters)
            self._pairs[key] = pair
        found = estimate_difference(self._pairs[key], AUTO, level=level, stated=self.stated)
        gain, loss = (self._hidden(name, level) if self._pairs[key].differing else 0.0 for name in key)
        return found.value, max(found.low - loss, -self.range), min(found.high + gain, self.range)

    def whole(self) -> list[str]:
        """Agents that the log may show whole."""
        end = 2 if self.shown.logger.known == WEIGHED else 0
        return [name for name in self.agents if self.covered(name, LEVEL)[end] >= 1.0]

    def pairs(self) -> list[dict[str, Any]]:
        """All pairs, together at the level (Bonferroni)."""
        rows, level = [], 1.0 - (1.0 - LEVEL) / math.comb(len(self.agents), 2)
        for a, b in itertools.combinations(self.agents, 2):
            value, low, high = self.difference(a, b, level)
            found = {"difference": value, "low": low, "high": high, "decided": proved((value, low, high))}
            rows.append({"first": a, "second": b, **found})
        return rows

    def beyond(self, other: str, pick: str) -> float:
        """Upper limit of what another agent earns more than the pick, whichever is the best and whichever is picked.

        Of the pairs only those of the truly best agent can mislead, each at one end: k - 1 of them share the level's
        complement (comparisons with the best, Hsu 1981), less the part of :data:`OF_VALUE`.
        """
        level = 1.0 - 2.0 * (1.0 - OF_VALUE) * (1.0 - LEVEL) / (len(self.agents) - 1)
        return self.difference(other, pick, level)[2]


class Decision(NamedTuple):
    """The log's evidence on an agent's choice.

    ``above`` is the upper limit of what the best agent earns more than the pick; ``high`` the same as a share of the
    best agent's value, 0 where the pick is surely the best; ``tied`` are agents that are not surely worse.
    """

    pick: str
    above: float
    high: float
    tied: list[str]


def decision_for(compared: Compared, pick: str, tires: Tiring = CALM) -> Decision:
    """What the log says of one agent, if what is shown again earns less: the pick always, the others as they repeat."""
    loss, again = tires
    value, low, _ = compared.value(pick, 1.0 - 2.0 * OF_VALUE * (1.0 - LEVEL))
    beyond = {name: compared.beyond(name, pick) for name in compared.agents if name != pick}
    if loss > 0.0:
        kept = {name: again.get(name, 0.0) * compared.value(name, LEVEL)[0] for name in beyond}
        beyond = {name: most + loss * max(value - kept[name], 0.0) for name, most in beyond.items()}
    above, low = max(beyond.values()), low * (1.0 - loss)
    # The best earns at most `above` more than the pick, which earns at least `low`.
    high = 0.0 if above <= 0.0 else above / (above + low) if low > 0.0 else 1.0
    return Decision(pick, above, high, [name for name, most in beyond.items() if most > 0.0])


def decide(compared: Compared, tires: Tiring = CALM) -> Decision:
    """The agent of which the log says most surely that it costs little."""
    every = [decision_for(compared, name) for name in compared.agents]
    return decision_for(compared, min(every, key=lambda each: each.above).pick, tires)


def order_checks(compared: Compared) -> tuple[list[Check], Tiring]:
    """Carry-over and staying, and how far users may tire of what they are shown again, for all that the log says.

    Effects are found at the strict level over the number of agents, and only of those that are shown whole: the weights
    of others say nothing of effects.
    """
    shown = compared.shown
    if user_begins(shown.user).all():
        alone = "every user has one recommendation, so none can change a later one"
        return [check(name, "clear", None, None, alone) for name in ("carry_over", "staying")], CALM
    weights = {name: shown.targets[name] / shown.propensity for name in compared.whole()}
    limit = tiring(shown.user, shown.action, shown.reward, shown.propensity, SOON[1], ONE_SIDED)
    loss = 1.0 if limit is None else max(-math.expm1(limit[1]), 0.0)
    again = {name: repeating(shown.user, shown.action, w, ONE_SIDED) for name, w in weights.items() if loss > 0.0}
    strict, sums = 1.0 - (1.0 - STRICT) / len(shown.targets), {}
    for name in weights:
        sums[name] = OrderSums(float(np.mean(shown.reward)))
        sums[name].extend(shown.reward, shown.propensity, shown.targets[name], shown.user)
    said = f"no recommendation is found to change the next one; tiring may cost an agent up to {loss:.0%} of its value"
    moved = next(_moved(shown, weights, sums, strict), None)
    figure = None if limit is None else -math.expm1(limit[0])
    carried = check("carry_over", "off" if moved else "clear", figure, loss, moved or said)
    return [carried, _staying(sums, strict)], (loss, again)


def _moved(shown: Shown, weights: dict[str, Floats], sums: dict[str, OrderSums], strict: float) -> Iterator[str]:
    """How what is shown changes what is earned later: what is shown again, the next decision, the next few."""
    for within in reversed(SOON):
        tired = tiring(shown.user, shown.action, shown.reward, shown.propensity, within, STRICT)
        if tired is not None and tired[2] < math.log1p(-TOLERANCE):
            yield f"an item that is shown again soon earns {-math.expm1(tired[0]):.0%} less: users tire of it"
    for name, each in sums.items():
        effect = each.carry_over(strict)
        if proved(effect):
            yield f"what {name} shows moves what the next one earns by {_span(effect)}"
    for said, effect in effects_of_the_past(shown, weights):
        if proved(effect):
            yield f"{said} by {_span(effect)}"


def effects_of_the_past(shown: Shown, weights: dict[str, Floats]) -> Iterator[tuple[str, Limits]]:
    """Effects of more than one decision, which hold for all together at :data:`WARNED` (Bonferroni).

    Earlier showings of an item are read where all items are shown: for what agents show on average, and for uniform
    choice.
    """
    again = [] if shown.logger.least is None else [np.mean(list(weights.values()), axis=0), 1.0 / shown.propensity]
    level = 1.0 - (1.0 - WARNED) / max((len(LASTING) + 1) * len(weights) + len(SHOWN_BEFORE) * len(again), 1)
    for name, within in itertools.product(weights, LASTING):
        said = f"what {name} shows moves what the next {within} recommendations earn together"
        yield said, lasting(shown.user, shown.reward, weights[name], within, level)
    for name, weight in weights.items():
        earlier = earlier_choices(shown.user, weight, EARLIER)
        said = f"what {name} showed in {EARLIER} decisions moves what it earns in the next"
        yield said, moved_by(shown.user, shown.reward, weight, earlier, level)
    for within in SHOWN_BEFORE if again else ():
        earlier = earlier_showings(shown.user, shown.action, shown.propensity, within)
        for weight in again:
            said = f"an item that was shown in the last {within} decisions moves what it earns"
            yield said, moved_by(shown.user, shown.reward, weight, earlier, level)


def _span(effect: Limits) -> str:
    return f"{effect[0]:+.3g} [{effect[1]:.3g}, {effect[2]:.3g}]"


def _staying(sums: dict[str, OrderSums], strict: float) -> Check:
    """True if recommendations change which users stay."""
    if not sums:
        unknown = "what changes who goes on is not known, for no agent is shown whole"
        return check("staying", "cannot say", None, None, unknown)
    for name, each in reversed(sums.items()):
        effect, low, high = each.staying(strict)
        if proved((effect, low, high)):
            span = f"{100 * effect:+.2g} [{100 * low:+.2g}, {100 * high:+.2g}]"
            went = f"what {name} shows changes who goes on: another recommendation follows {span} points more often"
            return check("staying", "off", effect, None, went)
    return check("staying", "clear", None, None, "no recommendation is found to change who goes on")


def turned(user: Ints, reward: Floats, seed: int, number: int) -> Floats:
    """Rewards (n,) turned round within each user by a drawn number of rows, so that none of several keeps its row."""
    starts = user_starts(user)
    count = np.diff(np.r_[starts, user.size])
    draw = uniforms(derive_seed(seed, "advise/control"), Stream.BOOTSTRAP, user[starts], number)
    by = 1 + (draw * (count - 1)).astype(np.int64)
    place = (steps_within(user) + np.repeat(by, count)) % np.repeat(count, count)
    return np.asarray(reward[np.repeat(starts, count) + place])


def permuted_clicks(shown: Shown, bounds: tuple[float, float], seed: int) -> Check:
    """The control: how often one best agent is decided where each reward stands in another row of its user.

    With rewards that keep their row, as some do in a permutation, a share of the true lead would stay. Users with one
    row say nothing there; where there are no others, the rewards of the whole log are turned.
    """
    several = np.isin(shown.user, shown.user[~user_begins(shown.user)])
    rows = shown.part(several) if several.any() else shown
    user, decided = rows.user if several.any() else np.zeros_like(shown.user), 0
    for number in range(CONTROLS):
        other = replace(rows, reward=turned(user, rows.reward, seed, number))
        decided += decide(Compared(other, bounds)).above <= 0.0
    said = f"with rewards moved to other rows of their users one best agent seems decided in {decided} of {CONTROLS}"
    return check("permuted_clicks", "off" if decided > MOST_DECIDED else "clear", decided, MOST_DECIDED, f"{said} logs")


def by_leave_one_out(
    log: Log, agents: Agents, shown: Shown, compared: Compared | None, tires: Tiring, models: Sequence[dict[str, Any]],
    off: Sequence[str], seed: int, executor: Executor | None,
) -> dict[str, Any]:  # fmt: skip
    """True if leave-one-out may choose: only if its order is the log's, which bounds the cost of its choice.

    ``off`` are the checks that are not clear; without ``compared`` the log orders nothing.
    """
    row: dict[str, Any] = {"protocol": "leave_one_out", "metric": "hr@1", "decided_pairs": 0, "agree": 0, "reversed": 0}
    row |= {"pick": None, "advised": False, "cost_low": None, "cost_high": None}
    why = f"not clear: {', '.join(off)}" if off else ""
    try:
        scores = hit_rates(log, agents, shown.n_items, seed, executor)
        row["pick"] = pick = max(scores, key=lambda name: scores[name])
        costs = [1.0 - m["values"][pick] / max(max(m["values"].values()), 1e-300) for m in models if m["fits"]]
        row |= {"cost_low": min(costs), "cost_high": max(costs)} if costs else {}
        if compared is not None:
            decided, agree, against = agreement(compared, scores)
            row |= {"decided_pairs": decided, "agree": agree, "reversed": against}
            row["cost_high"] = high = decision_for(compared, pick, tires).high
            if agree < decided:
                why = f"it orders {decided - agree} of {decided} differences otherwise than the log"
            elif high > TOLERANCE:
                why = f"what it picks, {pick}, may cost {high:.0%} of the best agent's value"
        if row["decided_pairs"] < FEWEST:
            why = f"the log decides {row['decided_pairs']} differences that could confirm it, fewer than {FEWEST}"
    except UserError as error:
        why = str(error)
    right = f"Leave-one-out orders all {row['decided_pairs']} differences that the log decides as the log does."
    return row | {"advised": not why, "sentence": f"Do not choose by leave-one-out: {why}." if why else right}


def hit_rates(log: Log, agents: Agents, n_items: int, seed: int, executor: Executor | None) -> dict[str, float]:
    """By agent the share of held-out views that it ranks first, fitted on the same folds as for the log's estimates."""
    learners = {name: agent for name, agent in agents.items() if isinstance(agent, Learner)}
    if len(learners) < len(agents):
        raise UserError("it fits agents anew, and some of these are fitted already")
    hits, users = dict.fromkeys(learners, 0.0), 0
    for mine, others in folds_of(log, seed):
        part, train = log.select(mine), log.select(others)
        found = fold_ranks(part, learners, n_items=n_items, folds=HELD, seed=seed, train=train, executor=executor)
        users += next(iter(found.ranks.values())).shape[1]
        for name, ranks in found.ranks.items():
            hits[name] += float(np.sum(np.mean(ranks == 1, axis=0)))
    return {name: total / users for name, total in hits.items()}


def agreement(compared: Compared, scores: dict[str, float]) -> tuple[int, int, int]:
    """How many differences the log decides, and how many of them scores order alike, and the other way round.

    A policy that leaves each decision to one of two others earns, and hits, their weighted mean: it needs no replay.
    Agents are compared with each other, and every mixture of an agent with another one, or with uniform choice where
    the log shows every item, with the agents. The limits hold for all of them together.
    """
    shown = compared.shown
    least, n_items, rows, starts = shown.logger.least, shown.n_items, shown.user.size, user_starts(shown.user)
    targets = [*shown.targets.values(), *([] if least is None else [np.full(rows, 1.0 / n_items)])]
    forms = _forms(len(scores), len(targets))
    level = 1.0 - (1.0 - LEVEL) / len(forms)
    weights = np.array(targets) / shown.propensity
    earned = weights * (shown.reward - compared.least)
    means = earned.mean(axis=1)
    apart = np.add.reduceat(earned, starts, axis=1) - np.outer(means, np.diff(np.r_[starts, rows]))
    square = apart @ apart.T / rows**2 * small_sample_factor(starts.size, level)
    heaviest = np.maximum(weights.max(axis=1), 0.0 if least is None else 1.0 / least)
    gaps = np.array([1.0 - compared.covered(name, level)[1] for name in scores] + [0.0] * (least is not None))
    variance, step = np.einsum("mi,ij,mj->m", forms, square, forms), np.abs(forms) @ heaviest / rows
    reach = np.array([poisson_reach(v, compared.range * s, level) for v, s in zip(variance, step, strict=True)])
    low = forms @ means - reach + compared.range * np.minimum(forms, 0.0) @ gaps
    high = forms @ means + reach + compared.range * np.maximum(forms, 0.0) @ gaps
    sign = np.where(low > 0.0, 1, np.where(high < 0.0, -1, 0))
    said = np.sign(np.round(forms @ [*scores.values(), *[1.0 / n_items] * (least is not None)], 12))
    return tuple(int(np.count_nonzero(each)) for each in (sign, sign * said > 0, sign * said < 0))  # type: ignore[return-value]


def _forms(agents: int, base: int) -> Floats:
    """(m, base) differences of two policies, by their shares in those that they mix."""
    unit = np.eye(base)
    rows = [unit[a] - unit[b] for a, b in itertools.combinations(range(agents), 2)]
    for a, b, share in itertools.product(range(agents), range(base), SHARES):
        if b > a:
            mixed = (1.0 - share) * unit[a] + share * unit[b]
            rows += [mixed - unit[c] for c in range(agents) if c not in (a, b)]
    return np.array(rows)
