"""What a log decides of agents: simultaneous differences, what rows in their order say, and the control."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.estimators.intervals.limits import Deviations, Spread, positive_limits
from recsim_mnar.estimators.off_policy.differences import estimate_difference
from recsim_mnar.estimators.off_policy.from_moments import AUTO, estimate_from_moments
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.pairs import PairMoments
from recsim_mnar.estimators.off_policy.row_order import OrderSums
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.support import STRICT, mean_weight_limits, support_of
from recsim_mnar.fitting.advice.coverage import REPLAYED, WEIGHED, Floats, Ints, Shown
from recsim_mnar.log.columns import Clusters
from recsim_mnar.log.rows import steps_within, user_begins, user_starts
from recsim_mnar.rng import Stream, derive_seed, uniforms

OF_VALUE = 0.2
"""Share of the level's complement that the lower limit of the pick's own value takes; the differences take the rest."""
CONTROLS, MOST_DECIDED = 20, 2
"""Logs of the control, and in how many of them one best agent may seem to be decided."""
SOON = (1, 3)
"""Decisions within which an item is shown again: at once, or soon."""
LASTING = (3, 15)
"""Decisions over which the rewards that follow are summed: what moves each by little moves their sum by much."""
Limits = tuple[float, float, float]
"""A number, and its lower and upper limit."""
Tiring = tuple[float, dict[str, float]]
"""Share of its value that what is shown again may lose, and by agent how often it repeats itself at least."""
CALM: Tiring = (0.0, {})
Check = dict[str, Any]


def check(name: str, grade: str, figure: float | None, limit: float | None, sentence: str) -> Check:
    """What may speak against the log; ``grade`` is "clear", "off" or "cannot say"."""
    return {"check": name, "grade": grade, "figure": figure, "limit": limit, "sentence": sentence}


class Compared:
    """Agents' values on one log, from moments that are gathered once.

    Args:
        shown: the log's recommendations.
        level: of every simultaneous statement.
        bounds: least and largest reward possible.
    """

    def __init__(self, shown: Shown, level: float, bounds: tuple[float, float]) -> None:
        self.shown, self.level, self.agents = shown, level, list(shown.targets)
        self.least, self.range = bounds[0], bounds[1] - bounds[0]
        self.clusters = Clusters.of(shown.user, shown.reward.size)
        self.stated = Stated(reward_min=bounds[0], reward_max=bounds[1], propensity_min=shown.logger.least)
        self.moments = {name: self._gathered(name) for name in self.agents}
        self._pairs: dict[tuple[str, str], PairMoments] = {}

    def _gathered(self, agent: str) -> Moments:
        shown, target = self.shown, self.shown.targets[agent]
        found = Moments.of(
            shown.reward, shown.propensity, target, cluster=self.clusters, reward_min=self.least,
            reward_max=self.least + self.range, unsupported=shown.missing.get(agent),
        )  # fmt: skip
        found.denied = self.stated.denied(target, shown.propensity)
        return found

    def covered(self, agent: str, level: float) -> Limits:
        """Share of an agent's mass that the log shows in the states that it met."""
        if self.stated.propensity_min is not None:
            return 1.0, 1.0, 1.0
        found = support_of(self.moments[agent], self.stated, level)
        if self.shown.logger.known == REPLAYED:
            told = found.known or 0.0
            return 1.0 - told, 1.0 - found.entering, min(1.0 - 2.0 * told + found.entering, 1.0)
        low, high = (min(max(limit, 0.0), 1.0) for limit in mean_weight_limits(self.moments[agent], self.stated, level))
        return min(found.mean, 1.0), min(low, 1.0 - found.hidden), high

    def _hidden(self, agent: str, level: float) -> float:
        """Most that mass earns which may be missing, and which the estimators leave out as long as it is not proved."""
        if self.shown.logger.known != WEIGHED:
            return 0.0
        return support_of(self.moments[agent], self.stated, level).hidden * self.range

    def value(self, agent: str, level: float) -> Limits:
        """Mean reward of a decision; what the log does not show earns anything."""
        found, hidden = estimate_from_moments(self.moments[agent], AUTO, level=level, stated=self.stated), 0.0
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

    def pairs(self) -> list[dict[str, Any]]:
        """All pairs, together at the level (Bonferroni)."""
        every, rows = list(itertools.combinations(self.agents, 2)), []
        for a, b in every:
            value, low, high = self.difference(a, b, 1.0 - (1.0 - self.level) / len(every))
            found = {"difference": value, "low": low, "high": high, "decided": low > 0.0 or high < 0.0}
            rows.append({"first": a, "second": b, **found})
        return rows

    def beyond(self, other: str, pick: str) -> float:
        """Upper limit of what another agent earns more than the pick, whichever is the best and whichever is picked.

        Of the pairs only those of the truly best agent can mislead, each at one end: k - 1 of them share the level's
        complement (comparisons with the best, Hsu 1981), less the part of :data:`OF_VALUE`.
        """
        level = 1.0 - 2.0 * (1.0 - OF_VALUE) * (1.0 - self.level) / (len(self.agents) - 1)
        return self.difference(other, pick, level)[2]


@dataclass(frozen=True)
class Decision:
    """What a log says of an agent's choice.

    Attributes:
        pick: the agent.
        above: upper limit of what the best agent earns more than it.
        high: the same as a share of the best agent's value, 0 where it is surely the best.
        tied: agents that are not surely worse.
    """

    pick: str
    above: float
    high: float
    tied: list[str]


def decision_for(compared: Compared, pick: str, tires: Tiring = CALM) -> Decision:
    """What the log says of one agent, if what is shown again earns less: the pick always, the others as they repeat."""
    loss, again = tires
    value, low, _ = compared.value(pick, 1.0 - 2.0 * OF_VALUE * (1.0 - compared.level))
    beyond = {name: compared.beyond(name, pick) for name in compared.agents if name != pick}
    if loss > 0.0:
        kept = {name: again.get(name, 0.0) * compared.value(name, compared.level)[0] for name in beyond}
        beyond = {name: most + loss * max(value - kept[name], 0.0) for name, most in beyond.items()}
    above, low = max(beyond.values()), low * (1.0 - loss)
    # The best earns at most `above` more than the pick, which earns at least `low`.
    high = 0.0 if above <= 0.0 else above / (above + low) if low > 0.0 else 1.0
    return Decision(pick, above, high, [name for name, most in beyond.items() if most > 0.0])


def decide(compared: Compared, tires: Tiring = CALM) -> Decision:
    """The agent of which the log says most surely that it costs little."""
    every = [decision_for(compared, name) for name in compared.agents]
    return decision_for(compared, min(every, key=lambda each: each.above).pick, tires)


def repeating(shown: Shown, agent: str, level: float) -> float:
    """Lower limit of the probability that an agent shows a user the same item twice running."""
    follows, starts = ~user_begins(shown.user), user_starts(shown.user)
    weight = shown.targets[agent] / shown.propensity
    again = follows & np.r_[False, shown.action[1:] == shown.action[:-1]]
    sums = np.add.reduceat(again * weight * np.r_[0.0, weight[:-1]], starts)
    pairs = np.add.reduceat(follows * 1.0, starts)
    share = float(sums.sum() / pairs.sum())
    variance = float(np.sum((sums - share * pairs) ** 2)) / float(pairs.sum()) ** 2
    return min(positive_limits(share, Spread(variance, 0.0, 0.0, 0.0), level)[0], 1.0)


def tiring(shown: Shown, within: int, level: float) -> Limits | None:
    """Logarithm of how much an item earns where it is shown again, over what it earned before.

    Two decisions of a user, at most ``within`` apart, for the same item earn r and later r'. The ratio of the sums of
    r' and r over such pairs is put over the same ratio over pairs for two items: what changes with time for all items
    alike cancels. Where all items are always shown as often, who is shown one again is chance: r counts as 1 then, for
    half of the variance. None where one of the four sums is 0.
    """
    user, action, reward, starts = shown.user, shown.action, shown.reward, user_starts(shown.user)
    parts, before = np.zeros((4, user.size)), np.ones(user.size) if np.ptp(shown.propensity) == 0.0 else reward
    for lag in range(1, min(within, user.size - 1) + 1):
        same, again = user[lag:] == user[:-lag], action[lag:] == action[:-lag]
        for place, which in ((0, same & again), (2, same & ~again)):
            parts[place, lag:] += which * reward[lag:]
            parts[place + 1, lag:] += which * before[:-lag]
    sums = np.add.reduceat(parts, starts, axis=1)
    totals, signs = sums.sum(axis=1), np.array([1.0, -1.0, -1.0, 1.0])
    if np.min(totals) <= 0.0:
        return None
    effect, apart = float(signs @ np.log(totals)), (signs / totals) @ sums
    square = apart * apart
    powers = (float(np.sum(square)), float(square @ apart), float(square @ square))
    step = 1.0 / float(np.min(totals))
    spread = Deviations(*powers, starts.size, starts.size, grouped=True).spread(1.0, step, step, level)
    less, more = spread.reaches(level)
    return effect, effect - less, effect + more


def lasting(shown: Shown, agent: str, within: int, level: float) -> Limits:
    """What an agent's decision adds to the logged rewards of the user's next decisions, per decision.

    The mean of (w - 1) times the sum, over at most ``within`` decisions that follow, of rewards above the log's mean.
    It is 0 where nothing outlasts a decision, for w has mean 1 whatever went before. Later actions are the log's.
    """
    starts, n = user_starts(shown.user), shown.user.size
    weight = shown.targets[agent] / shown.propensity
    sums = np.r_[0.0, np.cumsum(shown.reward - np.mean(shown.reward))]
    ends = np.repeat(np.r_[starts[1:], n], np.diff(np.r_[starts, n]))
    later = sums[np.minimum(np.arange(1, n + 1) + within, ends)] - sums[1:]
    parts = np.add.reduceat((weight - 1.0) * later, starts) / n
    effect, apart = float(np.sum(parts)), parts - np.mean(parts)
    square = apart * apart
    powers = (float(np.sum(square)), float(square @ apart), float(square @ square))
    step = float(np.max(np.abs(weight - 1.0))) * float(np.max(np.abs(later))) / n
    less, more = (
        Deviations(*powers, starts.size, starts.size, grouped=True).spread(1.0, step, step, level).reaches(level)
    )
    return effect, effect - less, effect + more


def order_checks(shown: Shown, complete: list[str], level: float, tolerance: float) -> tuple[list[Check], Tiring]:
    """Carry-over and staying, and how far users may tire of what they are shown again, for all that the log says.

    Args:
        shown: the log's recommendations.
        complete: agents whose mean weight may be 1; the others' weights say nothing of effects.
        level: of the limit on tiring. Effects are found at the strict level over the number of agents.
        tolerance: tiring is found where it costs more than this share.
    """
    if user_begins(shown.user).all():
        alone = "every user has one recommendation, so none can change a later one"
        return [check(name, "clear", None, None, alone) for name in ("carry_over", "staying")], CALM
    strict, effects = 1.0 - (1.0 - STRICT) / len(shown.targets), []
    for name in complete:
        sums = OrderSums(float(np.mean(shown.reward)))
        sums.extend(shown.reward, shown.propensity, shown.targets[name], shown.user)
        effects.append((name, sums.carry_over(strict), sums.staying(strict)))
    limit = tiring(shown, SOON[1], 1.0 - 2.0 * (1.0 - level))
    loss = 1.0 if limit is None else max(-math.expm1(limit[1]), 0.0)
    said = f"no recommendation is found to change the next one; tiring may cost an agent up to {loss:.0%} of its value"
    carried = check("carry_over", "clear", None if limit is None else -math.expm1(limit[0]), loss, said)
    for within in SOON:
        tired = tiring(shown, within, STRICT)
        if tired is not None and tired[2] < math.log1p(-tolerance):
            less = f"an item that is shown again soon earns {-math.expm1(tired[0]):.0%} less: users tire of it"
            carried |= {"grade": "off", "sentence": less}
    stayed = check("staying", "clear", None, None, "no recommendation is found to change who goes on")
    if not complete:
        stayed |= {
            "grade": "cannot say",
            "sentence": "what changes who goes on is not known, for no agent is shown whole",
        }
    for name, carry, stay in effects:
        if carry[1] > 0.0 or carry[2] < 0.0:
            moved = (
                f"what {name} shows moves what the next one earns by {carry[0]:+.3g} [{carry[1]:.3g}, {carry[2]:.3g}]"
            )
            carried |= {"grade": "off", "sentence": moved} if carried["grade"] == "clear" else {}
        if stay[1] > 0.0 or stay[2] < 0.0:
            span = f"{100 * stay[0]:+.2g} [{100 * stay[1]:+.2g}, {100 * stay[2]:+.2g}]"
            went = f"what {name} shows changes who goes on: another recommendation follows {span} points more often"
            stayed |= {"grade": "off", "figure": stay[0], "sentence": went}
    for name, within in itertools.product(complete, LASTING):
        found = lasting(shown, name, within, 1.0 - (1.0 - strict) / len(LASTING))
        if carried["grade"] == "clear" and (found[1] > 0.0 or found[2] < 0.0):
            moved = f"{found[0]:+.3g} [{found[1]:.3g}, {found[2]:.3g}]"
            moved = f"what {name} shows moves what the next {within} recommendations earn together by {moved}"
            carried |= {"grade": "off", "sentence": moved}
    again = {name: repeating(shown, name, 1.0 - 2.0 * (1.0 - level)) for name in complete} if loss > 0.0 else {}
    return [carried, stayed], (loss, again)


def turned(user: Ints, reward: Floats, seed: int, number: int) -> Floats:
    """Rewards (n,) turned round within each user by a drawn number of rows, so that none of several keeps its row."""
    starts = user_starts(user)
    count = np.diff(np.r_[starts, user.size])
    draw = uniforms(derive_seed(seed, "advise/control"), Stream.BOOTSTRAP, user[starts], number)
    by = 1 + (draw * (count - 1)).astype(np.int64)
    place = (steps_within(user) + np.repeat(by, count)) % np.repeat(count, count)
    return np.asarray(reward[np.repeat(starts, count) + place])


def permuted_clicks(shown: Shown, level: float, bounds: tuple[float, float], seed: int) -> Check:
    """The control: how often one best agent is decided where each reward stands in another row of its user.

    With rewards that keep their row, as some do in a permutation, a share of the true lead would stay. Users with one
    row say nothing there; where there are no others, the rewards of the whole log are turned.
    """
    several = np.isin(shown.user, shown.user[~user_begins(shown.user)])
    rows = shown.part(several) if several.any() else shown
    user, decided = rows.user if several.any() else np.zeros_like(shown.user), 0
    for number in range(CONTROLS):
        other = replace(rows, reward=turned(user, rows.reward, seed, number))
        decided += decide(Compared(other, level, bounds)).above <= 0.0
    said = f"with rewards moved to other rows of their users one best agent seems decided in {decided} of {CONTROLS}"
    return check("permuted_clicks", "off" if decided > MOST_DECIDED else "clear", decided, MOST_DECIDED, f"{said} logs")
