"""Worlds of tables: contexts, items, reward rates and policies, from which logs are drawn and values summed exactly."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from generator import LONGEST, length_chances, mean_length
from interface import Family, Log

EFFECTS = 16  # equiprobable user effects
Rewards = Callable[[np.random.Generator, np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class World:
    """What logs of one family are drawn from. C contexts, equally likely in every row; K actions.

    Attributes:
        name: of the family.
        mean: (C, K) mean reward, before user effects.
        logging: (C, K) probabilities that choose.
        target, baseline: (C, K) the policies that are compared.
        users: number of users per log.
        lengths: law of a user's number of rows, as generator.length_chances takes it.
        rewards: draws rewards from a Generator, their means (n,) and the actions (n,).
        stated: (C, K) propensities that the log states; None for those that choose.
        effect: shape of the gamma law of user effects, which multiply means; None for none.
        length_power: a user's mean reward is proportional to this power of the number of rows.
    """

    name: str
    mean: np.ndarray
    logging: np.ndarray
    target: np.ndarray
    baseline: np.ndarray
    users: int
    lengths: tuple[str, float] = ("fixed", 1.0)
    rewards: Rewards = lambda rng, mean, action: (rng.random(mean.size) < mean).astype(float)
    stated: np.ndarray | None = None
    effect: float | None = None
    length_power: float = 0.0

    def effects(self) -> np.ndarray:
        """Equiprobable user effects of mean 1."""
        if self.effect is None:
            return np.ones(1)
        from scipy.stats import gamma

        found = gamma.ppf((np.arange(EFFECTS) + 0.5) / EFFECTS, self.effect)
        return np.asarray(found / found.mean())

    def of_length(self) -> np.ndarray:
        """(200,) factor of the mean reward of users with 1, 2, ... rows; 1 in the mean over rows."""
        size = np.arange(1, LONGEST + 1)
        factor = size**self.length_power
        return np.asarray(factor * mean_length(self.lengths) / float((size * length_chances(self.lengths)) @ factor))

    def value(self, policy: np.ndarray) -> float:
        """Expected reward per decision of a (C, K) policy, exactly."""
        return float(np.sum(policy * self.mean) / len(policy))

    def log(self, seed: int) -> Log:
        """One log; the same seed gives the same log."""
        rng = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        rows = 1 + np.searchsorted(np.cumsum(length_chances(self.lengths))[:-1], rng.random(self.users), side="right")
        user = np.repeat(np.arange(self.users), rows)
        # Independent draws of (context, action): counts of each cell, in random order.
        counts = rng.multinomial(user.size, (self.logging / len(self.logging)).ravel())
        cell = np.repeat(np.arange(counts.size, dtype=np.int32), counts)
        rng.shuffle(cell)
        mean = self.mean.ravel()[cell]
        if self.length_power:
            mean = mean * np.repeat(self.of_length()[rows - 1], rows)
        if self.effect is not None:
            effects = self.effects()
            mean = mean * np.repeat(effects[rng.integers(0, effects.size, self.users)], rows)
        context, action = np.divmod(cell, self.logging.shape[1])
        reward = self.rewards(rng, mean, action)
        stated = self.logging if self.stated is None else self.stated
        columns = [table.ravel()[cell] for table in (stated, self.target, self.baseline)]
        return Log(reward, *columns, user=user, action=action, context=context)

    def family(self, honest: bool = True, production: bool = False, note: str = "", **facts: Any) -> Family:
        """The family of these logs. Facts: propensity_min is the least propensity stated, rewards are in [0, 1]."""
        stated = self.logging if self.stated is None else self.stated
        found = {"propensity_min": float(stated[stated > 0.0].min()), "reward_min": 0.0, "reward_max": 1.0} | facts
        most = float(
            self.mean.max() * self.effects().max() * self.of_length()[length_chances(self.lengths) > 0.0].max()
        )
        if most > found["reward_max"]:
            raise ValueError(f"{self.name}: a mean reward of {most:.3g} is above the largest reward")
        values = self.value(self.target), self.value(self.baseline)
        return Family(self.name, honest, production, self.log, *values, facts=found, note=note)


def changed(family: Family, how: Callable[[Log], Log], **more: Any) -> Family:
    """A family whose logs are made of another's."""
    return replace(family, draw=lambda seed: how(family.draw(seed)), **more)


# ------------------------------------------------------------------------------------------------------------- policies


def greedy(scores: np.ndarray, epsilon: float) -> np.ndarray:
    """(C, K) probabilities: the best by score, and any with probability epsilon."""
    table = np.full(scores.shape, epsilon / scores.shape[1])
    table[np.arange(len(scores)), scores.argmax(axis=1)] += 1.0 - epsilon
    return table


def softmax(scores: np.ndarray, floor: float) -> np.ndarray:
    """(C, K) probabilities proportional to exp(score), mixed with uniform ones of share ``floor``."""
    table = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray((1.0 - floor) * table / table.sum(axis=1, keepdims=True) + floor / scores.shape[1])


def rates(rng: np.random.Generator, contexts: int, items: int, mean: float, spread: float = 0.6) -> np.ndarray:
    """(C, K) lognormal click rates of this mean, none above four times it."""
    drawn = np.minimum(np.exp(spread * rng.standard_normal((contexts, items)) - spread**2 / 2), 4.0)
    return np.asarray(mean * drawn / drawn.mean())


def ranking(rng: np.random.Generator, rate: np.ndarray, noise: float) -> np.ndarray:
    """(C, K) scores of a model that knows log rates with an error of sd ``noise``."""
    return np.asarray(np.log(rate) + noise * rng.standard_normal(rate.shape))


# -------------------------------------------------------------------------------------------------------------- rewards


def bought(prices: np.ndarray) -> Rewards:
    """Rewards of an item's price or 0; the mean is the price times the chance of a sale."""
    return lambda rng, mean, action: np.where(rng.random(mean.size) * prices[action] < mean, prices[action], 0.0)


def with_jackpot(prize: float, chance: float, wins: np.ndarray) -> Rewards:
    """Clicks, and a prize with this chance for actions that win; the mean holds both."""

    def draw(rng: np.random.Generator, mean: np.ndarray, action: np.ndarray) -> np.ndarray:
        own = chance * wins[action]
        clicked = rng.random(mean.size) < mean - prize * own
        return np.where(rng.random(mean.size) < own, prize, clicked)

    return draw


def stars(rng: np.random.Generator, mean: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Ratings 1 to 5."""
    return 1.0 + rng.binomial(4, (mean - 1.0) / 4.0)


def watched(rng: np.random.Generator, mean: np.ndarray, action: np.ndarray) -> np.ndarray:
    """Shares of a film that were watched, in (0, 1)."""
    return np.asarray(rng.random(mean.size) ** ((1.0 - mean) / mean))
