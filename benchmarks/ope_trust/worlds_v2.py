"""Worlds of OPE-trust v2: logs with a baseline policy, times, weights of thinned rows, and values that are sums.

A state is all that decides a row: the kind of the user, what the recommender sees, and the part of the period. Policies
and chances are tables over states and actions. Where earlier rows or other users decide too, an effect multiplies the
chances, and its mean under a policy that acts in every row has a closed form: values are those of an A/B test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from families import explore, softmax
from worlds import Draws, Facts, Numbers, pick
from worlds import Log as FirstLog

from recsim_mnar.rng import derive_seed

HOURS = 24.0
BLOCKS = 25  # parts of a log after which a learning logger learns
MINUTES = 0.02  # hours between the rows of a session, about a minute
SECONDS = 0.0005  # hours until a row is written a second time


@dataclass(frozen=True)
class Log(FirstLog):
    """One row per decision that was kept, by time."""

    baseline: Numbers  # the baseline policy's probability of the logged action
    weight: Numbers  # rows that a row stands for; 1 where rows are not thinned, or are and nobody says so
    time: Numbers  # hours since the log began
    logger: Numbers  # which logging system decided; 0 where there is one, or nobody knows


@dataclass(frozen=True)
class Rows:
    """What decides the rows of a log, by time."""

    user: Numbers
    state: Numbers
    time: Numbers


@dataclass(frozen=True)
class Visits:
    """Who comes, how often, when, and in which state; states are kinds x what is seen x stages."""

    rows: int  # of the log, before rows are thinned or written twice
    states: Numbers  # (kinds, seen) law of what is seen of a kind's rows
    sizes: Numbers = field(default_factory=lambda: np.ones(1, int))  # numbers of rows that users have
    share: Numbers = field(default_factory=lambda: np.ones((1, 1)))  # (sizes, kinds) share among users
    stages: int = 1  # equal parts of the period
    days: int = 14
    session: bool = True  # a user's rows follow within minutes; otherwise they are spread over the period
    alone: float = 0.0  # share of rows with one id, of the last kind

    @property
    def users(self) -> int:
        """Users beside the one of ``alone``."""
        return max(1, round(self.rows * (1 - self.alone) / float(self.sizes @ self.share.sum(1))))

    def law(self) -> Numbers:
        """Share of each state among decisions, (states,)."""
        kinds = self.users * (self.sizes @ self.share)
        kinds[-1] += round(self.rows * self.alone)
        return np.repeat((kinds[:, None] * self.states).ravel() / kinds.sum() / self.stages, self.stages)

    def places(self) -> Numbers:
        """Share among a kind's decisions of those after 0, 1, ... earlier rows of the user, (kinds, longest)."""
        later = np.arange(self.sizes.max()) < self.sizes[:, None]
        count = self.share.T @ later
        return count / np.maximum(count.sum(1, keepdims=True), 1e-300)

    def draw(self, draws: Draws) -> Rows:
        """The rows of a log, by time."""
        users, kinds = self.users, self.share.shape[1]
        cell = pick(self.share.ravel()[None], np.zeros(users, int), draws.uniform("kind", users))
        one = round(self.rows * self.alone)
        size, kind = np.append(self.sizes[cell // kinds], one), np.append(cell % kinds, kinds - 1)
        user = np.repeat(np.arange(users + 1), size)
        n, period = len(user), self.days * HOURS
        when = draws.uniform("time", n)
        time, start = when * period, draws.uniform("start", users + 1)[user] * period
        if self.session:
            place = np.arange(n) - np.repeat(np.cumsum(size) - size, size)
            time = np.where(user < users, start + MINUTES * (place + 0.5 * when), time)
        part = np.where(user < users, start, time) if self.session else time
        stage = np.minimum((part * self.stages / period).astype(int), self.stages - 1)
        seen = pick(self.states, kind[user], draws.uniform("state", n))
        order = np.argsort(time, kind="stable")
        state = (kind[user] * self.states.shape[1] + seen) * self.stages + stage
        return Rows(user[order], state[order], time[order])


# ----------------------------------------------------------------------------------------------------- rewards, effects


@dataclass(frozen=True)
class Pay:
    """Rewards within ``low`` and ``high``, and their mean as a function of a table of chances."""

    draw: Callable[[Draws, Numbers, Numbers], Numbers]  # of draws, chances and actions of the rows
    mean: Callable[[Numbers], Numbers]
    low: float = 0.0
    high: float = 1.0


CLICK = Pay(lambda draws, chance, action: (draws.uniform("click", len(chance)) < chance) * 1.0, lambda chance: chance)


class Effect(Protocol):
    """What multiplies chances."""

    def on_rows(self, draws: Draws, rows: Rows, action: Numbers, world: World) -> Numbers:
        """The factor of each row of a log."""

    def mean(self, policy: Numbers, world: World) -> Numbers:
        """The mean factor of states and actions where a policy acts in every row; broadcasts to (states, actions)."""


def by_user(user: Numbers) -> tuple[Numbers, Numbers]:
    """Rows in the order of users and time, and which of these begin a user."""
    order = np.argsort(user, kind="stable")
    first = np.append(True, np.diff(user[order]) != 0)
    return order, first


def shown(policy: Numbers, world: World) -> Numbers:
    """Share of each action in a kind's rows, (kinds, actions); for worlds of one stage."""
    states = world.visits.states
    return np.einsum("ks,ksa->ka", states, policy.reshape(*states.shape, -1))


def per_state(table: Numbers, world: World) -> Numbers:
    """A table over kinds as one over states."""
    return np.repeat(table, world.visits.states.shape[1], axis=0)


@dataclass(frozen=True)
class Tired:
    """An item earns a fraction where the user saw it before: in any earlier row, or in the last one."""

    fraction: float
    ever: bool

    def on_rows(self, draws: Draws, rows: Rows, action: Numbers, world: World) -> Numbers:
        again = np.ones(len(action), bool)
        if self.ever:
            again[np.unique(rows.user * world.target.shape[1] + action, return_index=True)[1]] = False
        else:
            order, first = by_user(rows.user)
            again[order] = ~first & (action[order] == np.roll(action[order], 1))
        return np.where(again, self.fraction, 1.0)

    def mean(self, policy: Numbers, world: World) -> Numbers:
        often, places = shown(policy, world), world.visits.places()
        if self.ever:
            unseen = sum(places[:, [t]] * (1 - often) ** t for t in range(places.shape[1]))
        else:
            unseen = places[:, [0]] + (1 - places[:, [0]]) * (1 - often)
        return per_state(unseen + (1 - unseen) * self.fraction, world)


@dataclass(frozen=True)
class Baited:
    """Each earlier row with one of some items multiplies all later chances of the user."""

    factor: float
    bait: Numbers  # (actions,) bool

    def on_rows(self, draws: Draws, rows: Rows, action: Numbers, world: World) -> Numbers:
        order, first = by_user(rows.user)
        bait = self.bait[action[order]] * 1
        before = np.cumsum(bait) - bait
        before -= np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), len(bait))))
        factor = np.empty(len(action))
        factor[order] = self.factor**before
        return factor

    def mean(self, policy: Numbers, world: World) -> Numbers:
        share, places = shown(policy, world) @ self.bait, world.visits.places()
        step = 1 - share + share * self.factor
        kept = (places * step[:, None] ** np.arange(places.shape[1])).sum(1)
        return per_state(kept[:, None], world)


@dataclass(frozen=True)
class Crowded:
    """An item earns less, the larger its share of everybody's rows is."""

    strength: float

    def factor(self, policy: Numbers, world: World) -> Numbers:
        return 1 / (1 + self.strength * (world.visits.law() @ policy))

    def on_rows(self, draws: Draws, rows: Rows, action: Numbers, world: World) -> Numbers:
        return self.factor(world.logger, world)[action]

    def mean(self, policy: Numbers, world: World) -> Numbers:
        return self.factor(policy, world)[None]


@dataclass(frozen=True)
class Shocked:
    """A day is good or bad for all of its users, with even chances and a mean of 1."""

    spread: float

    def on_rows(self, draws: Draws, rows: Rows, action: Numbers, world: World) -> Numbers:
        day = (rows.time / HOURS).astype(int)
        good = draws.uniform("day", day.max() + 1) < 0.5
        return np.where(good[day], 1 + self.spread, 1 - self.spread)

    def mean(self, policy: Numbers, world: World) -> Numbers:
        return np.ones((1, 1))


@dataclass(frozen=True)
class Learner:
    """A logger that learns after each part of a log, from everybody's rows, by what it sees."""

    share: float  # of uniform draws
    heat: float
    weighted: bool  # exponential weights of rewards over propensities; otherwise a softmax of the arms' means

    def laws(self, shown: Numbers, earned: Numbers, weighed: Numbers) -> Numbers:
        """Laws of the next part from rows, rewards, and rewards over propensities so far, (seen, actions)."""
        if self.weighted:
            return explore(softmax(self.heat * weighed / np.sqrt(1 + shown.sum(1, keepdims=True))), self.share)
        mean = (earned + 1) / (shown + 10)
        return explore(softmax(self.heat * mean / mean.mean()), self.share)


# ------------------------------------------------------------------------------------------------------------- worlds


@dataclass(frozen=True)
class World:
    """Tables over states and actions; what is written where that is not what is true."""

    visits: Visits
    logger: Numbers
    target: Numbers
    baseline: Numbers
    chance: Numbers
    seen: Numbers  # (states,) what the recommender sees
    pay: Pay = CLICK
    written: Numbers | None = None  # propensities that the system writes, where they are not the logger's
    system: Numbers | None = None  # (states,) the logging system that is named in the log
    effect: Effect | None = None
    learner: Learner | None = None  # decides instead of the logger's table
    parts: Numbers | None = None  # (states,) quarter of the day of a row
    dated: bool = False  # times are whole days
    kept: tuple[float, float] = (1.0, 1.0)  # chance that a row without and with reward is kept
    kept_items: Numbers | None = None  # (actions,) the same by the item
    told: bool = True  # whether thinned rows have their weights
    doubled: tuple[float, float] = (0.0, 0.0)  # chance that a row without and with reward is written twice
    delay: float = 0.0  # hours until then
    leak: float = 0.0  # share of rewarded rows whose target probability was computed from the reward

    @property
    def propensities(self) -> Numbers:
        """What the system writes, for loggers that do not learn."""
        return self.logger if self.written is None else self.written

    def value(self, policy: Numbers) -> float:
        """Mean reward per decision where a policy acts in every row, exactly."""
        factor = np.ones((1, 1)) if self.effect is None else self.effect.mean(policy, self)
        return float(self.visits.law() @ (policy * self.pay.mean(self.chance * factor)).sum(1))

    @property
    def facts(self) -> Facts:
        """What the log's owner states; true in the honest families."""
        used = ((self.target > 0) | (self.baseline > 0)) & (self.visits.law() > 0)[:, None]
        least = float(self.propensities[used].min())
        if self.learner:
            least = self.learner.share / self.logger.shape[1]
        return Facts(least > 0, self.pay.low, self.pay.high, least)

    def log(self, seed: int) -> Log:
        """The log of a seed."""
        draws = Draws(seed)
        rows = self.visits.draw(draws)
        if self.learner:
            action, wrote, reward = self._learned(draws, rows, self.learner)
        else:
            action = pick(self.logger, rows.state, draws.uniform("action", len(rows.user)))
            wrote = self.propensities[rows.state, action]
            reward = self._rewards(draws, rows, action)
        return self._written(draws, rows, action, wrote, reward)

    def _rewards(self, draws: Draws, rows: Rows, action: Numbers) -> Numbers:
        chance = self.chance[rows.state, action]
        if self.effect is not None:
            chance = chance * self.effect.on_rows(draws, rows, action, self)
        return self.pay.draw(draws, chance, action)

    def _learned(self, draws: Draws, rows: Rows, learner: Learner) -> tuple[Numbers, Numbers, Numbers]:
        n, shape = len(rows.user), (self.seen.max() + 1, self.logger.shape[1])
        lots, action, wrote, reward = draws.uniform("action", n), np.empty(n, int), np.empty(n), np.empty(n)
        seen, sums = self.seen[rows.state], np.zeros((3, *shape))
        for index, part in enumerate(np.array_split(np.arange(n), BLOCKS)):
            laws = learner.laws(*sums)
            action[part] = pick(laws, seen[part], lots[part])
            wrote[part] = laws[seen[part], action[part]]
            block = Draws(derive_seed(draws.seed, f"part {index}"))
            reward[part] = self.pay.draw(block, self.chance[rows.state[part], action[part]], action[part])
            cell = seen[part] * shape[1] + action[part]
            for total, added in zip(sums, (None, reward[part], reward[part] / wrote[part]), strict=True):
                total += np.bincount(cell, added, minlength=total.size).reshape(shape)
        return action, wrote, reward

    def _written(self, draws: Draws, rows: Rows, action: Numbers, wrote: Numbers, reward: Numbers) -> Log:
        n, state = len(action), rows.state
        target, time, weight = self.target[state, action], self._times(draws, rows), np.ones(n)
        again, stays = np.zeros(n, int), np.ones(n)
        if self.leak:
            known = (reward != 0) & (draws.uniform("leak", n) < self.leak)
            target = np.where(known, np.maximum(target, 0.5 + 0.5 * draws.uniform("known", n)), target)
        if any(self.doubled):
            again = (draws.uniform("doubled", n) < np.where(reward != 0, self.doubled[1], self.doubled[0])) * 1
        if self.kept != (1.0, 1.0):
            stays = np.where(reward != 0, self.kept[1], self.kept[0])
        if self.kept_items is not None:
            stays = stays * self.kept_items[action]
        stay = draws.uniform("kept", n) < stays if stays.min() < 1 else np.ones(n, bool)
        weight = 1 / stays if self.told else weight
        system = np.zeros(n, int) if self.system is None else self.system[state]
        columns = [rows.user, action, wrote, target, reward, self.seen[state]]
        columns += [self.baseline[state, action], weight, time, system]
        taken = np.repeat(np.arange(n), (1 + again) * stay)
        columns = [column[taken] for column in columns]
        columns[8] = columns[8] + self.delay * np.append(False, np.diff(taken) == 0)
        order = np.argsort(columns[8], kind="stable")
        columns = [column[order] for column in columns]
        return Log(*columns[:6], self.logger.shape[1], *columns[6:])

    def _times(self, draws: Draws, rows: Rows) -> Numbers:
        days = np.floor(rows.time / HOURS)
        if self.dated:
            return days * HOURS
        if self.parts is None:
            return rows.time
        return (days + (self.parts[rows.state] + draws.uniform("clock", len(days))) / 4) * HOURS
