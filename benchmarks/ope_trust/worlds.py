"""A world of OPE-trust: tables from which logs are drawn and from which the target's value is exact.

A context is all that decides a row: what the recommender sees, the kind of user, the time. Policies and chances are
tables over contexts and actions, so that the value is a sum. Every draw is a function of its address.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from recsim_mnar.rng import derive_seed, uniforms

Numbers = NDArray[Any]


@dataclass(frozen=True)
class Draws:
    """Random numbers of one seed, by the name of what they are for."""

    seed: int

    def uniform(self, name: str, n: int, index: int = 0) -> Numbers:
        """n uniforms on (0, 1)."""
        return uniforms(self.seed, zlib.crc32(name.encode()), np.arange(n), index) + 2.0**-54

    def normal(self, name: str, n: int, index: int = 0) -> Numbers:
        """n standard normals."""
        return ndtri(self.uniform(name, n, index))


@dataclass(frozen=True)
class Facts:
    """What is true of a log and known to every entry."""

    full_support: bool  # the logger can do whatever the target can
    reward_min: float  # no reward can be smaller
    reward_max: float  # or larger
    propensity_min: float  # no action that the target can take has a smaller true propensity; 0 without full support


@dataclass(frozen=True)
class Log:
    """One row per decision."""

    user: Numbers
    action: Numbers
    propensity: Numbers  # of the logged action, as the system wrote it
    target: Numbers  # the target policy's probability of the logged action
    reward: Numbers
    context: Numbers  # what the recommender saw; without the kind of user, which nobody sees
    n_actions: int


@dataclass(frozen=True)
class People:
    """Users by kind: the share of each kind, the rows of one user, and the law of their contexts."""

    share: Numbers  # (kinds,)
    rows: Numbers  # (kinds,) integers
    states: Numbers  # (kinds, contexts / stages)
    sticky: bool = False  # all rows of a user have one context
    stages: int = 1  # contexts are states x stages
    calendar: bool = False  # stages follow the order of users; otherwise the position in a user's life

    def law(self) -> Numbers:
        """Share of each context among decisions, (contexts,)."""
        weight = self.share * self.rows
        return np.repeat(weight @ self.states / weight.sum() / self.stages, self.stages)

    def draw(self, draws: Draws, rows: int) -> tuple[Numbers, Numbers]:
        """User and context of some ``rows`` rows: as many whole users as have them on average."""
        users = max(1, round(rows / float(self.share @ self.rows) / self.stages)) * self.stages
        kind = pick(self.share[None], np.zeros(users, int), draws.uniform("kind", users))
        length = self.rows[kind]
        user = np.repeat(np.arange(users), length)
        place = np.arange(len(user)) - np.repeat(np.cumsum(length) - length, length)
        lots = draws.uniform("context", users)[user] if self.sticky else draws.uniform("context", len(user))
        state = pick(self.states, kind[user], lots)
        stage = user * self.stages // users if self.calendar else place * self.stages // length[user]
        return user, state * self.stages + stage


@dataclass(frozen=True)
class Reward:
    """Rewards of mean ``offset + gain[action] x chance``, within ``low`` and ``high``."""

    draw: Callable[[Draws, Numbers, Numbers], Numbers]  # of draws, chances and actions of the rows
    gain: float | Numbers = 1.0
    offset: float = 0.0
    low: float = 0.0
    high: float = 1.0


CLICK = Reward(lambda draws, chance, action: (draws.uniform("click", len(chance)) < chance) * 1.0)


@dataclass(frozen=True)
class World:
    """Tables over contexts and actions, all (contexts, actions)."""

    people: People
    logger: Numbers
    target: Numbers
    chance: Numbers
    rows: int
    reward: Reward = CLICK
    written: Numbers | None = None  # propensities that the system writes, where they are not the logger's
    seen: Numbers | None = None  # (contexts,) what the recommender sees of a context; None for all of it
    held: bool = False  # a user is shown one draw of the logger in every row
    engaged: float = 1.0  # share of groups of users that respond at all; the others' chance is 0
    group: int = 1  # users who are engaged or not together
    doubled: tuple[float, float] = (0.0, 0.0)  # chance that a row without and with reward is written twice
    learns: float = 0.0  # epsilon of a bandit that learns while it logs; the logger's table is then not used

    @property
    def value(self) -> float:
        """The target's mean reward per decision, exactly."""
        mean = self.reward.offset + self.reward.gain * self.chance
        return float(self.people.law() @ (self.target * mean).sum(1))

    @property
    def facts(self) -> Facts:
        """What every entry may know."""
        used = (self.target > 0) & (self.people.law() > 0)[:, None]
        least = self.learns / self.logger.shape[1] if self.learns else float(self.logger[used].min())
        return Facts(least > 0, self.reward.low, self.reward.high, least)

    def log(self, seed: int, rows: int | None = None) -> Log:
        """The log of a seed, of the setting's size where no number of rows is given."""
        draws = Draws(seed)
        user, context = self.people.draw(draws, rows or self.rows)
        if self.learns:
            action, wrote, reward = self._learning(draws, context)
        else:
            lots = draws.uniform("action", user[-1] + 1)[user] if self.held else draws.uniform("action", len(user))
            action = pick(self.logger, context, lots)
            wrote = (self.logger if self.written is None else self.written)[context, action]
            reward = self.reward.draw(draws, self._chances(draws, user, context, action), action)
        again = np.where(reward != 0, self.doubled[1], self.doubled[0]) > draws.uniform("doubled", len(user))
        kept = np.repeat(np.arange(len(user)), 1 + again)
        shown = context if self.seen is None else self.seen[context]
        columns = (user, action, wrote, self.target[context, action], reward, shown)
        return Log(*(column[kept] for column in columns), n_actions=self.logger.shape[1])

    def _chances(self, draws: Draws, user: Numbers, context: Numbers, action: Numbers) -> Numbers:
        chance = self.chance[context, action]
        if self.engaged == 1.0:
            return chance
        groups = user // self.group
        responds = draws.uniform("engaged", groups[-1] + 1)[groups] < self.engaged
        return responds * chance / self.engaged

    def _learning(self, draws: Draws, context: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Rows of an epsilon-greedy bandit that learns the arms' means after each twentieth of the log."""
        n, arms = len(context), self.logger.shape[1]
        action, wrote, reward = np.empty(n, int), np.empty(n), np.empty(n)
        shown, earned = np.ones(arms), np.ones(arms)
        for index, part in enumerate(np.array_split(np.arange(n), 20)):
            law = np.full(arms, self.learns / arms)
            law[np.argmax(earned / shown)] += 1 - self.learns
            action[part] = pick(law[None], np.zeros(len(part), int), draws.uniform("action", len(part), index))
            wrote[part] = law[action[part]]
            block = Draws(derive_seed(draws.seed, f"part {index}"))
            reward[part] = self.reward.draw(block, self.chance[context[part], action[part]], action[part])
            shown += np.bincount(action[part], minlength=arms)
            earned += np.bincount(action[part], reward[part], minlength=arms)
        return action, wrote, reward


def pick(laws: Numbers, row: Numbers, lots: Numbers) -> Numbers:
    """One draw of each named row of a table of laws."""
    ladder = np.cumsum(laws, axis=1)
    ladder = ladder / ladder[:, -1:] + np.arange(len(laws))[:, None]
    found = np.searchsorted(ladder.ravel(), row + lots, side="left") - row * laws.shape[1]
    return np.minimum(found, laws.shape[1] - 1)
