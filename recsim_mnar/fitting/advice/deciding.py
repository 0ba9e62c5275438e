"""What a log decides of agents: simultaneous differences, what rows in their order say, and the control."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals.limits import Deviations
from recsim_mnar.estimators.off_policy.difference import estimate_difference
from recsim_mnar.estimators.off_policy.from_moments import AUTO, estimate_from_moments
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.pairs import PairMoments
from recsim_mnar.estimators.off_policy.row_order import OrderSums
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.support import STRICT
from recsim_mnar.fitting.advice.coverage import Covered, Floats, Shown, covered
from recsim_mnar.log.columns import Clusters
from recsim_mnar.log.rows import steps_within, user_begins, user_starts
from recsim_mnar.rng import Stream, derive_seed, uniforms

OF_VALUE = 0.2
"""Share of the level's complement that the lower limit of the pick's own value takes, the differences the rest."""
CONTROLS, MOST_DECIDED = 20, 2
"""Logs of the control, and in how many of them one best agent may seem to be decided."""


@dataclass(frozen=True)
class Pair:
    """How much more the first agent earns a decision than the second; the limits hold for all pairs together."""

    first: str
    second: str
    difference: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether 0 is no possible difference."""
        return self.low > 0.0 or self.high < 0.0


class Compared:
    """Agents' values on one log, from moments that are gathered once.

    Args:
        shown: the log's recommendations.
        level: of every simultaneous statement.
        bounds: least and largest reward possible.
    """

    def __init__(self, shown: Shown, level: float, bounds: tuple[float, float]) -> None:
        self.shown, self.level, self.agents = shown, level, list(shown.targets)
        least, largest = bounds
        self.least, self.range = least, largest - least
        self.clusters = Clusters.of(shown.user, shown.reward.size)
        self.stated = Stated(reward_min=least, reward_max=largest, propensity_min=shown.logger.least)
        self._moments = {name: self._gathered(name) for name in self.agents}
        self._pairs: dict[tuple[str, str], PairMoments] = {}

    def _gathered(self, agent: str) -> Moments:
        shown, stated = self.shown, self.stated
        found = Moments.of(
            shown.reward,
            shown.propensity,
            shown.targets[agent],
            cluster=self.clusters,
            reward_min=stated.reward_min,
            reward_max=stated.reward_max,
            unsupported=shown.missing.get(agent),
        )
        found.denied = stated.denied(shown.targets[agent], shown.propensity)
        return found

    def covered(self, agent: str, level: float | None = None) -> Covered:
        """What the log shows of an agent."""
        return covered(self.shown, agent, self._moments[agent], self.stated, level or self.level)

    def value(self, agent: str, level: float) -> tuple[float, float, float]:
        """Mean reward of a decision, and its limits; mass that may be hidden earns anything."""
        found = estimate_from_moments(self._moments[agent], AUTO, level=level, stated=self.stated)
        hidden = self.covered(agent, level).hidden * self.range
        return found.value, max(found.low - hidden, self.least), min(found.high + hidden, self.least + self.range)

    def gap(self, agent: str, level: float) -> float:
        """Most that an agent may earn by what the log does not show."""
        found = self.covered(agent, level)
        return (1.0 - found.low) * self.range

    def difference(self, first: str, second: str, level: float) -> tuple[float, float, float]:
        """How much more the first earns, and its limits at a level."""
        key = (first, second)
        if key not in self._pairs:
            shown = self.shown
            pair = PairMoments(self._moments[first], self._moments[second])
            targets = [shown.targets[name] for name in key]
            pair.extend(shown.reward, shown.propensity, *targets, self.clusters)
            self._pairs[key] = pair
        found = estimate_difference(self._pairs[key], AUTO, level=level, stated=self.stated)
        if self._pairs[key].differing == 0:
            hidden = [0.0, 0.0]
        else:
            hidden = [self.covered(name, level).hidden * self.range for name in key]
        return found.value, max(found.low - hidden[1], -self.range), min(found.high + hidden[0], self.range)

    def pairs(self) -> list[Pair]:
        """All pairs, by Bonferroni's inequality."""
        every = list(itertools.combinations(self.agents, 2))
        level = 1.0 - (1.0 - self.level) / len(every)
        return [Pair(a, b, *self.difference(a, b, level)) for a, b in every]

    def above(self, pick: str, share: float = 1.0) -> float:
        """Upper limit of what the best agent earns more than ``pick``, whichever of them is picked.

        Of the pairs only those of the truly best agent can mislead, k - 1 of them, each at one end (Hsu 1981,
        comparisons with the best): each limit takes 1 / (k - 1) of ``share`` of the level's complement.
        """
        return max(self.beyond(other, pick, share) for other in self.agents if other != pick)

    def beyond(self, other: str, pick: str, share: float = 1.0) -> float:
        """One of the limits of :meth:`above`."""
        level = 1.0 - 2.0 * share * (1.0 - self.level) / (len(self.agents) - 1)
        return self.difference(other, pick, level)[2]


@dataclass(frozen=True)
class Decision:
    """What a log decides.

    Attributes:
        pick: the agent whose choice can cost least; with none it is only the one that is nearest to being decided.
        high: upper limit of its cost as a share of the best agent's value, 0 where it is surely the best.
        above: the same in the reward's unit, not cut at 0.
        tied: agents that are not surely worse.
        best: whether it is surely the best.
    """

    pick: str
    high: float
    above: float
    tied: list[str]

    @property
    def best(self) -> bool:
        """Whether every other agent is surely no better."""
        return self.above <= 0.0


def decide(compared: Compared, loss: float = 0.0) -> Decision:
    """The agent of which the log says most surely that it costs little.

    Args:
        compared: the agents on the log.
        loss: share of an agent's value that it may lose by what it showed before, see :func:`tiring`.
    """
    above = {name: compared.above(name, 1.0 - OF_VALUE) for name in compared.agents}
    pick = min(above, key=lambda name: above[name])
    return decision_for(compared, pick, loss)


def decision_for(compared: Compared, pick: str, loss: float = 0.0) -> Decision:
    """What the log says of one agent's choice; arguments as :func:`decide`."""
    value, low, _ = compared.value(pick, 1.0 - 2.0 * OF_VALUE * (1.0 - compared.level))
    above, low = compared.above(pick, 1.0 - OF_VALUE) + loss * value, low * (1.0 - loss)
    # The best earns at most `above` more than the pick, which earns at least `low`.
    high = 0.0 if above <= 0.0 else above / (above + low) if low > 0.0 else 1.0
    others = [name for name in compared.agents if name != pick]
    tied = [name for name in others if compared.beyond(name, pick, 1.0 - OF_VALUE) + loss * value > 0.0]
    return Decision(pick, high, above, tied)


@dataclass(frozen=True)
class Check:
    """What speaks against a decision: ``grade`` is "clear", "off" or "cannot say"."""

    check: str
    grade: str
    figure: float | None
    limit: float | None
    sentence: str


def tiring(shown: Shown, action: np.ndarray, level: float) -> tuple[float, float, float] | None:
    """Logarithm of how much less an item earns when it is shown again at once, and its limits by user.

    A user's next decision after one for item a earns r' where it is for a again, and r before. The ratio of the sums
    of r' and r over such decisions is held against the same ratio over decisions in which another item follows: what
    changes with time for all items alike cancels. None where nothing was earned in one of the four sums.
    """
    follows = ~user_begins(shown.user)
    again = follows & np.r_[False, action[1:] == action[:-1]]
    before, starts = np.r_[0.0, shown.reward[:-1]], user_starts(shown.user)
    parts = [again * shown.reward, again * before, (follows & ~again) * shown.reward, (follows & ~again) * before]
    sums = [np.add.reduceat(part, starts) for part in parts]
    totals = [float(np.sum(each)) for each in sums]
    if min(totals) <= 0.0:
        return None
    logs = [math.log(total) for total in totals]
    effect = logs[0] - logs[1] - logs[2] + logs[3]
    apart = sums[0] / totals[0] - sums[1] / totals[1] - sums[2] / totals[2] + sums[3] / totals[3]
    square = apart * apart
    found = Deviations(
        float(np.sum(square)), float(square @ apart), float(square @ square), starts.size, starts.size, grouped=True
    )
    step = 1.0 / min(totals)
    less, more = found.spread(1.0, step, step, level).reaches(level)
    return effect, effect - less, effect + more


def order_checks(shown: Shown, action: np.ndarray, level: float) -> tuple[list[Check], float]:
    """Carry-over and staying, and the share of its value that tiring may cost an agent for all that the log shows.

    Args:
        shown: the log's recommendations.
        action: (n,) the items shown.
        level: of the limit on tiring; an effect is found at the strict level over the number of tests.
    """
    if user_begins(shown.user).all():
        alone = "every user has one recommendation: none can change what a later one earns"
        return [Check(name, "clear", None, None, alone) for name in ("carry_over", "staying")], 0.0
    strict = 1.0 - (1.0 - STRICT) / len(shown.targets)
    sums = {}
    for name, target in shown.targets.items():
        sums[name] = OrderSums(float(np.mean(shown.reward)))
        sums[name].extend(shown.reward, shown.propensity, target, shown.user)
    whole = not shown.missing or all(not np.any(each > 0.0) for each in shown.missing.values())
    carried = {name: each.carry_over(strict) for name, each in sums.items()} if whole else {}
    stayed = {name: each.staying(strict) for name, each in sums.items()} if whole else {}
    tired, limit = tiring(shown, action, STRICT), tiring(shown, action, 1.0 - 2.0 * (1.0 - level))
    loss = 1.0 if limit is None else max(-math.expm1(limit[1]), 0.0)
    return [_carry_over(carried, tired, loss, sums), _staying(stayed)], loss


def _carry_over(
    carried: dict[str, tuple[float, float, float]],
    tired: tuple[float, float, float] | None,
    loss: float,
    sums: dict[str, OrderSums],
) -> Check:
    if tired is not None and tired[2] < 0.0:
        share = -math.expm1(tired[0])
        said = (
            f"an item shown again at once earns {share:.0%} less: users tire, and the log's users of other agents too"
        )
        return Check("carry_over", "off", share, loss, said)
    for name, (effect, low, high) in carried.items():
        if low > 0.0 or high < 0.0:
            said = (
                f"what {name} shows changes what the next recommendation earns by {effect:+.3g} [{low:.3g}, {high:.3g}]"
            )
            return Check("carry_over", "off", effect, loss, said)
    said = f"no recommendation is found to change the next one; tiring may cost an agent up to {loss:.0%} of its value"
    return Check("carry_over", "clear", 0.0 if tired is None else -math.expm1(tired[0]), loss, said)


def _staying(stayed: dict[str, tuple[float, float, float]]) -> Check:
    for name, (change, low, high) in stayed.items():
        if low > 0.0 or high < 0.0:
            said = (
                f"what {name} shows changes who goes on: a further recommendation follows {100 * change:+.2g} "
                f"[{100 * low:+.2g}, {100 * high:+.2g}] points more often"
            )
            return Check("staying", "off", change, None, said)
    most = max((max(abs(low), abs(high)) for _, low, high in stayed.values()), default=None)
    return Check("staying", "clear", None, most, "no recommendation is found to change who goes on")


def permuted_clicks(shown: Shown, level: float, bounds: tuple[float, float], seed: int) -> Check:
    """The control: how often one best agent is decided where each reward stands in another row of its user.

    Rewards are turned round within each user by a number of rows that is drawn, so that none keeps its row: a share of
    the true lead would stay with those that do. Users with one row say nothing there; where there are no others, the
    rewards of all rows are turned.
    """
    kept = _of_several(shown)
    rows = shown if not kept.any() else _part(shown, kept)
    decided = 0
    for number in range(CONTROLS):
        turned = rows.with_reward(_turned(rows, kept.any(), derive_seed(seed, "advise/control"), number))
        decided += decide(Compared(turned, level, bounds)).best
    off = decided > MOST_DECIDED
    said = (
        f"with rewards moved to other rows of their users one best agent seems decided in {decided} of {CONTROLS} logs"
    )
    return Check("permuted_clicks", "off" if off else "clear", float(decided), float(MOST_DECIDED), said)


def _of_several(shown: Shown) -> np.ndarray:
    count = np.diff(np.r_[user_starts(shown.user), shown.user.size])
    return np.repeat(count > 1, count)


def _part(shown: Shown, kept: np.ndarray) -> Shown:
    return replace(
        shown,
        user=shown.user[kept],
        reward=shown.reward[kept],
        propensity=shown.propensity[kept],
        targets={name: values[kept] for name, values in shown.targets.items()},
        missing={name: values[kept] for name, values in shown.missing.items()},
    )


def _turned(shown: Shown, within: bool, seed: int, number: int) -> Floats:
    users = shown.user if within else np.zeros(shown.user.size, np.int64)
    starts = user_starts(users)
    count = np.diff(np.r_[starts, users.size])
    by = 1 + (uniforms(seed, Stream.BOOTSTRAP, users[starts], number) * (count - 1)).astype(np.int64)
    place = (steps_within(users) + np.repeat(by, count)) % np.repeat(count, count)
    return shown.reward[np.repeat(starts, count) + place]


def check_bounds(reward: Floats, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
    """The range of rewards: (0, 1) where all are 0 or 1, else what was stated; None where nobody says.

    Raises:
        UserError: a reward outside of the stated range.
    """
    if bounds is None:
        return (0.0, 1.0) if bool(np.all((reward == 0.0) | (reward == 1.0))) else None
    low, high = bounds
    if not low < high or reward.size and (np.min(reward) < low or np.max(reward) > high):
        raise UserError(
            f"rewards lie in [{np.min(reward):g}, {np.max(reward):g}], not in the stated {low:g} to {high:g}"
        )
    return low, high
