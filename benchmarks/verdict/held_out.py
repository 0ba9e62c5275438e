"""Families of logs whose truth is known, drawn blind by an outside auditor.

A world is a finite table: types of users (the random effects), contexts, actions, days. The mean reward of every cell is known,
so the value of any fixed policy is a finite sum over cells, weighted by the rows that a type brings. Parameters of a world come
from a generator of their own; a draw comes from np.random.default_rng([number, seed]).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from interface import Family, Log

# ---------------------------------------------------------------------------------------------------------------- tables


class Alias:
    """Draws from the rows of a table of probabilities (Walker's aliases)."""

    def __init__(self, table: np.ndarray) -> None:
        table = np.atleast_2d(np.asarray(table, float))
        assert np.allclose(table.sum(1), 1.0, atol=1e-12), table.sum(1)
        rows, self.k = table.shape
        threshold, other = np.ones((rows, self.k)), np.tile(np.arange(self.k), (rows, 1))
        for i in range(rows):
            mass = (table[i] / table[i].sum() * self.k).tolist()
            small = [j for j, m in enumerate(mass) if m < 1.0]
            large = [j for j, m in enumerate(mass) if m >= 1.0]
            while small and large:
                s, b = small.pop(), large.pop()
                threshold[i, s], other[i, s] = mass[s], b
                mass[b] -= 1.0 - mass[s]
                (small if mass[b] < 1.0 else large).append(b)
            for j in small:  # left by rounding: all but 1, unless nothing may be drawn there
                if table[i, j] == 0.0:
                    threshold[i, j], other[i, j] = 0.0, int(table[i].argmax())
        self.threshold, self.other = threshold.ravel(), other.ravel()

    def pick(self, rng: np.random.Generator, size: int, row: np.ndarray | None = None) -> np.ndarray:
        u = rng.random(size)
        u *= self.k
        j = u.astype(np.int64)
        u -= j
        at = j if row is None else row * self.k + j
        return np.where(u < self.threshold[at], j, self.other[at])


def zipf(n: int, power: float = 1.0, shift: float = 1.0) -> np.ndarray:
    p = (np.arange(n) + shift) ** -power
    return p / p.sum()


def lengths(mean_like: float, most: int, shape: str = "geometric") -> np.ndarray:
    """Probabilities of 1..most rows."""
    k = np.arange(1, most + 1)
    if shape == "geometric":
        p = (1.0 - 1.0 / mean_like) ** (k - 1.0)
    elif shape == "power":
        p = k ** -mean_like
    else:  # uniform
        p = np.ones(most)
    return p / p.sum()


def one_hot(best: np.ndarray, k: int) -> np.ndarray:
    return np.eye(k)[best]


def greedy(score: np.ndarray) -> np.ndarray:
    return one_hot(score.argmax(1), score.shape[1])


def epsilon_greedy(score: np.ndarray, epsilon: float) -> np.ndarray:
    return (1.0 - epsilon) * greedy(score) + epsilon / score.shape[1]


def softmax(score: np.ndarray, floor: float = 0.0, sharp: float = 1.0) -> np.ndarray:
    z = np.exp(sharp * (score - score.max(1, keepdims=True)))
    z /= z.sum(1, keepdims=True)
    return (1.0 - floor * score.shape[1]) * z + floor


def top(score: np.ndarray, shares: tuple[float, ...]) -> np.ndarray:
    """The best actions by score, with these shares."""
    out, order = np.zeros_like(score), np.argsort(-score, 1)
    for i, share in enumerate(shares):
        out[np.arange(len(score)), order[:, i]] = share
    return out


def noisy(rng: np.random.Generator, score: np.ndarray, sd: float) -> np.ndarray:
    return score + rng.normal(0.0, sd, score.shape)


def tastes(rng: np.random.Generator, contexts: int, items: int, item_sd: float, cell_sd: float) -> np.ndarray:
    """Log appeal of every item in every context."""
    return rng.normal(0.0, item_sd, items)[None, :] + rng.normal(0.0, cell_sd, (contexts, items))


# --------------------------------------------------------------------------------------------------------------- rewards


class Clicks:
    low, high = 0.0, 1.0

    def __init__(self, rate: np.ndarray) -> None:
        assert rate.min() >= 0.0 and rate.max() <= 1.0
        self.mean, self.flat = rate, rate.ravel()

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        return (rng.random(len(cell)) < self.flat[cell]).astype(float)


class Priced(Clicks):
    """A sale brings the item's price."""

    def __init__(self, rate: np.ndarray, price: np.ndarray) -> None:
        super().__init__(rate)
        self.price, self.mean, self.high = price, rate * price, float(price.max())

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        return np.where(rng.random(len(cell)) < self.flat[cell], self.price[action], 0.0)


class Baskets(Clicks):
    """A sale brings one of a few amounts."""

    def __init__(self, rate: np.ndarray, amounts: np.ndarray, chance: np.ndarray) -> None:
        super().__init__(rate)
        self.amounts, self.alias, self.high = amounts, Alias(chance), float(amounts.max())
        self.mean = rate * (chance @ amounts)

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        out = np.zeros(len(cell))
        sold = np.flatnonzero(rng.random(len(cell)) < self.flat[cell])
        out[sold] = self.amounts[self.alias.pick(rng, len(sold), action[sold] if len(self.alias.threshold) > self.alias.k else None)]
        return out


class Ratings:
    low, high = 1.0, 5.0

    def __init__(self, liking: np.ndarray) -> None:
        self.flat, self.mean = liking.ravel(), 1.0 + 4.0 * liking

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        q, out = self.flat[cell], np.ones(len(cell))
        for _ in range(4):
            out += rng.random(len(cell)) < q
        return out


class Watched:
    """The share that was watched: all of it, or a share u^c."""

    low, high = 0.0, 1.0

    def __init__(self, through: np.ndarray, power: float) -> None:
        self.flat, self.power, self.mean = through.ravel(), power, through + (1.0 - through) / (1.0 + power)

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        part = rng.random(len(cell)) ** self.power
        return np.where(rng.random(len(cell)) < self.flat[cell], 1.0, part)


class Pareto(Clicks):
    """A sale brings scale x Pareto(index): no upper limit."""

    high = None

    def __init__(self, rate: np.ndarray, scale: np.ndarray, index: float) -> None:
        super().__init__(rate)
        self.scale, self.index, self.mean = scale, index, rate * scale * index / (index - 1.0)

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        out = np.zeros(len(cell))
        sold = np.flatnonzero(rng.random(len(cell)) < self.flat[cell])
        out[sold] = self.scale[action[sold]] * (1.0 - rng.random(len(sold))) ** (-1.0 / self.index)
        return out


class Lognormal(Pareto):
    """A sale brings scale x exp(spread z): no upper limit."""

    def __init__(self, rate: np.ndarray, scale: np.ndarray, spread: float) -> None:
        super().__init__(rate, scale, 2.0)
        self.spread, self.mean = spread, rate * scale * np.exp(spread**2 / 2)

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        out = np.zeros(len(cell))
        sold = np.flatnonzero(rng.random(len(cell)) < self.flat[cell])
        out[sold] = self.scale[action[sold]] * np.exp(self.spread * rng.standard_normal(len(sold)))
        return out


class Jackpots(Clicks):
    """Clicks, and rarely a jackpot."""

    def __init__(self, rate: np.ndarray, chance: np.ndarray, jackpot: float) -> None:
        super().__init__(rate)
        self.chance, self.jackpot, self.high, self.mean = chance, jackpot, jackpot, rate * (1 - chance) + chance * jackpot

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        small = (rng.random(len(cell)) < self.flat[cell]).astype(float)
        return np.where(rng.random(len(cell)) < self.chance[action], self.jackpot, small)


class Moved:
    """Another kind of reward, scaled and moved."""

    def __init__(self, inner: Any, scale: float, add: float) -> None:
        self.inner, self.scale, self.add = inner, scale, add
        self.mean = add + scale * inner.mean
        ends = sorted((add + scale * inner.low, add + scale * inner.high))
        self.low, self.high = ends

    def draw(self, rng: np.random.Generator, cell: np.ndarray, action: np.ndarray) -> np.ndarray:
        return self.add + self.scale * self.inner.draw(rng, cell, action)


# ---------------------------------------------------------------------------------------------------------------- worlds


@dataclass
class World:
    """One row a unit where rows_by is None, else users of a type with 1..len(rows_by[t]) rows."""

    number: int
    size: int  # users, or rows where rows_by is None
    contexts: np.ndarray  # (G,) or (T, G): how often a row of a type has a context
    logging: np.ndarray  # (G, K) or (D, G, K): what draws actions
    target: np.ndarray  # (G, K)
    reward: Any  # mean: (T, G, K)
    types: tuple[float, ...] = (1.0,)
    rows_by: list[np.ndarray] | None = None
    stays: float = 1.0  # chance that a row has its user's home context (else a fresh one); of no meaning without users
    baseline: np.ndarray | None = None  # None: today's
    stated: np.ndarray | None = None  # what the log says of the propensities, where that is not the truth
    days: tuple[float, ...] = (1.0,)
    sort_days: bool = False
    show_context: bool = True

    def __post_init__(self) -> None:
        if self.logging.ndim == 2:
            self.logging = self.logging[None]
        self.k, self.g = self.target.shape[1], self.target.shape[0]
        self.type_alias = Alias(np.array(self.types))
        self.day_alias = Alias(np.array(self.days))
        if self.contexts.ndim == 1:
            self.contexts = np.tile(self.contexts, (len(self.types), 1))
        self.context_alias = Alias(self.contexts)
        self.use(self.logging)
        self.target_flat = self.target.ravel()
        self.baseline_flat = None if self.baseline is None else self.baseline.ravel()
        self.stated_flat = self.logging.ravel() if self.stated is None else self.stated.ravel()
        brought = np.array(self.types)
        if self.rows_by is not None:
            most = max(len(p) for p in self.rows_by)
            self.length_alias = Alias(np.array([np.pad(p, (0, most - len(p))) for p in self.rows_by]))
            brought = brought * [p @ np.arange(1, len(p) + 1) for p in self.rows_by]
        self.share = brought / brought.sum()  # of rows, by type
        self.cells = np.einsum("t,tg,tga->ga", self.share, self.contexts, self.reward.mean)
        self.context_share = self.share @ self.contexts

    def use(self, policy: np.ndarray) -> None:
        """Draw actions by this policy (for checks)."""
        self.action_alias = Alias(policy.reshape(-1, self.k))

    def today(self) -> np.ndarray:
        return np.einsum("d,dga->ga", np.array(self.days), self.logging)

    def value_of(self, policy: np.ndarray) -> float:
        return float((self.cells * policy).sum())

    def states(self, rng: np.random.Generator) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        """User, type and context of each row."""
        kind = self.type_alias.pick(rng, self.size)
        home = self.context_alias.pick(rng, self.size, kind)
        if self.rows_by is None:
            return None, kind, home
        count = self.length_alias.pick(rng, self.size, kind) + 1
        user = np.repeat(np.arange(self.size), count)
        kind, context = kind[user], home[user]
        if self.stays < 1.0:
            move = np.flatnonzero(rng.random(len(user)) >= self.stays)
            context[move] = self.context_alias.pick(rng, len(move), kind[move])
        return user, kind, context

    def acts(self, rng: np.random.Generator, context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Actions and where they stand in the tables of (day,) context, action."""
        at = context
        if len(self.days) > 1:
            at = self.day_alias.pick(rng, len(context)) * self.g + context
        action = self.action_alias.pick(rng, len(context), at)
        return action, at * self.k + action

    def draw(self, seed: int) -> Log:
        rng = np.random.default_rng([self.number, seed])
        user, kind, context = self.states(rng)
        action, at = self.acts(rng, context)
        place = context * self.k + action
        reward = self.reward.draw(rng, kind * (self.g * self.k) + place, action)
        return self.log(reward, self.stated_flat[at], place, user, action, context)

    def log(
        self, reward: np.ndarray, propensity: np.ndarray, place: np.ndarray, user: np.ndarray | None, action: np.ndarray,
        context: np.ndarray,
    ) -> Log:
        return Log(
            reward=reward,
            propensity=propensity,
            target=self.target_flat[place],
            baseline=propensity.copy() if self.baseline_flat is None else self.baseline_flat[place],
            user=user,
            action=action,
            context=context if self.show_context else None,
        )

    def facts(self) -> dict[str, Any]:
        takes = self.target > 0 if self.baseline is None else (self.target > 0) | (self.baseline > 0)
        least = []
        for table in (self.logging, self.stated):
            if table is not None:
                table = np.atleast_3d(table) if table.ndim == 3 else table[None]
                can = (table > 0) | takes if self.baseline is None else np.broadcast_to(takes, table.shape)
                least.append(table[can].min())
        out: dict[str, Any] = {"propensity_min": float(min(least))}
        if self.reward.high is not None:
            out["reward_max"] = float(self.reward.high)
        out["reward_min"] = float(self.reward.low)
        return out


FAMILIES: list[Family] = []
WORLDS: dict[str, World] = {}  # for checks


def add(name: str, world: World, note: str, *, honest: bool = True, production: bool = False, **more: Any) -> None:
    base = world.today() if world.baseline is None else world.baseline
    given = {"draw": world.draw, "value": world.value_of(world.target), "baseline_value": world.value_of(base), "facts": world.facts()}
    given.update(more)
    FAMILIES.append(Family(name=name, honest=honest, production=production, note=note, **given))
    WORLDS[name] = world


def parameters(number: int) -> np.random.Generator:
    return np.random.default_rng([number, 271828, 1])


def rated(appeal: np.ndarray, policy: np.ndarray, contexts: np.ndarray, rate: float, effects: tuple[float, ...] = (1.0,),
          types: tuple[float, ...] = (1.0,), most: float = 0.95) -> np.ndarray:
    """(T, G, K) rates with about `rate` under the policy."""
    m = np.exp(appeal)
    if contexts.ndim == 2:
        contexts = np.array(types) @ contexts
    m = m * rate / float(contexts @ (policy * m).sum(1))
    effects = np.array(effects) / float(np.dot(effects, types))
    return np.clip(effects[:, None, None] * m[None], 0.0, most)


# ------------------------------------------------------------------------------------------------ production: 16 settings


def production() -> None:
    # 1: news front page: epsilon-greedy over popularity, a personalised greedy policy
    rng = parameters(1)
    pi, a = zipf(8, 0.6), tastes(rng, 8, 12, 0.4, 0.45)
    log = epsilon_greedy(np.tile(noisy(rng, a.mean(0, keepdims=True), 0.15), (8, 1)), 0.1)
    types, effect = (0.4, 0.4, 0.2), (0.5, 1.0, 2.0)
    add("news-front", World(1, 6000, pi, log, greedy(noisy(rng, a, 0.2)), Clicks(rated(a, log, pi, 0.04, effect, types)), types,
        [lengths(3, 15), lengths(6, 30), lengths(9, 30)], stays=0.7),
        "Epsilon-greedy (.1) over popularity, 12 items, 8 segments; a personalised greedy policy. Clicks 4 %; who clicks more comes more often.", production=True)

    # 2: shop carousel: softmax with a floor, a sharper ranking by a better model
    rng = parameters(2)
    pi, a = zipf(40, 0.7, 2), tastes(rng, 40, 25, 0.5, 0.5)
    log = softmax(noisy(rng, a, 0.6), 0.008, 1.2)
    types, effect = (0.7, 0.3), (0.7, 1.7)
    add("shop-carousel", World(2, 5500, pi, log, softmax(noisy(rng, a, 0.3), 0.002, 2.2), Clicks(rated(a, log, pi, 0.02, effect, types)), types,
        [lengths(5, 20), lengths(7, 25)]),
        "Softmax with a floor of .008, 25 items, 40 segments that stay with the user; a sharper softmax of a better model. Clicks 2 %.", production=True)

    # 3: mail subjects: uniform over five arms, rows independent
    rng = parameters(3)
    pi, a = zipf(6, 0.5), tastes(rng, 6, 5, 0.15, 0.2)
    log = np.full((6, 5), 0.2)
    add("mail-subjects", World(3, 20000, pi, log, greedy(noisy(rng, a, 0.1)), Clicks(rated(a, log, pi, 0.08))),
        "Uniform over 5 subjects, one mail a person; the best subject by segment. Clicks 8 %.", production=True)

    # 4: ad slots: epsilon .05, 20 ads, 100 contexts; the new policy differs in every seventh context
    rng = parameters(4)
    pi, a = zipf(100, 0.8, 3), tastes(rng, 100, 20, 0.4, 0.4)
    score = noisy(rng, a, 0.5)
    other = score.copy()
    other[3::7] = a[3::7]
    log = epsilon_greedy(score, 0.05)
    add("ad-slots", World(4, 100000, pi, log, epsilon_greedy(other, 0.05), Clicks(rated(a, log, pi, 0.01))),
        "Epsilon-greedy (.05) over 20 ads, 100 contexts, independent rows; the new ranking differs in every seventh context. Clicks 1 %.", production=True)

    # 5: video home: watch share
    rng = parameters(5)
    pi, a = zipf(20, 0.8, 2), tastes(rng, 20, 30, 0.35, 0.35)
    log = epsilon_greedy(noisy(rng, a, 0.5), 0.2)
    types, effect = (0.5, 0.5), (0.6, 1.4)
    add("video-home", World(5, 4000, pi, log, epsilon_greedy(noisy(rng, a, 0.2), 0.05), Watched(rated(a, log, pi, 0.2, effect, types), 3.0), types,
        [lengths(1.2, 30, "power"), lengths(0.8, 30, "power")], stays=0.6),
        "Epsilon-greedy (.2) over 30 videos, 20 groups, the share watched as reward; a better model with epsilon .05.", production=True)

    # 6: hotels: revenue with eight prices
    rng = parameters(6)
    pi, a = zipf(12, 0.5), tastes(rng, 12, 10, 0.3, 0.3)
    price = np.array([60, 75, 90, 90, 110, 130, 150, 180, 180, 240.0])
    a = a - 0.5 * np.log(price / 100)
    log = softmax(noisy(rng, a, 0.3), 0.02)
    types, effect = (0.8, 0.2), (0.7, 2.2)
    add("hotel-margin", World(6, 12000, pi, log, softmax(a + np.log(price / 100), 0.005, 3.0), Priced(rated(a, log, pi, 0.05, effect, types), price), types,
        [lengths(3, 12), lengths(4, 20)]),
        "Softmax with a floor of .02 over 10 hotels, bookings of 5 % at 8 prices up to 240; the new ranking weighs the price.", production=True)

    # 7: ratings
    rng = parameters(7)
    pi, a = zipf(30, 0.7, 2), tastes(rng, 30, 50, 0.5, 0.5)
    log = epsilon_greedy(noisy(rng, a, 0.7), 0.3)
    types = (0.3, 0.4, 0.3)
    liking = 1.0 / (1.0 + np.exp(-(a[None] + np.array([-0.6, 0.0, 0.6])[:, None, None])))
    add("film-ratings", World(7, 2500, pi, log, greedy(noisy(rng, a, 0.3)), Ratings(liking), types,
        [lengths(8, 30), lengths(8, 30), lengths(12, 30)], stays=0.8),
        "Epsilon-greedy (.3) over 50 films, ratings 1 to 5, strict and lenient users; the greedy policy of a better model.", production=True)

    # 8: Thompson-like, probabilities change by day
    rng = parameters(8)
    pi, a = zipf(5, 0.4), tastes(rng, 5, 8, 0.25, 0.25)
    days = []
    for day in range(7):
        sd = 0.5 / np.sqrt(day + 1.0)
        centre = noisy(rng, a, sd)
        wins = (centre[None] + rng.normal(0, sd, (2000, 5, 8))).argmax(2)
        chance = np.stack([np.bincount(wins[:, g], minlength=8) / 2000 for g in range(5)])
        days.append((1 - 8 * 0.015) * chance + 0.015)
    log = np.stack(days)
    share = (0.2, 0.16, 0.15, 0.14, 0.13, 0.12, 0.1)
    types, effect = (0.6, 0.4), (0.6, 1.6)
    add("thompson-week", World(8, 9000, pi, log, greedy(noisy(rng, a, 0.05)), Clicks(rated(a, np.einsum("d,dga->ga", share, log), pi, 0.06, effect, types)), types,
        [lengths(3, 15), lengths(5, 25)], days=share),
        "Thompson sampling with a floor of .015, probabilities that change by day, 8 items; the greedy policy of a model fitted elsewhere. Clicks 6 %.", production=True)

    # 9: two loggers, each row with its own logger's propensity
    rng = parameters(9)
    pi, a = zipf(10, 0.6), tastes(rng, 10, 15, 0.35, 0.35)
    old = epsilon_greedy(noisy(rng, a, 0.6), 0.05)
    log = np.stack([old, np.full((10, 15), 1 / 15)])
    types, effect = (0.5, 0.5), (0.5, 1.5)
    add("two-loggers", World(9, 8000, pi, log, epsilon_greedy(noisy(rng, a, 0.25), 0.05), Clicks(rated(a, old, pi, 0.05, effect, types)), types,
        [lengths(3, 20), lengths(5, 30)], stays=0.5, days=(0.8, 0.2)),
        "A fifth of the rows from a uniform logger, the others epsilon-greedy (.05), each with its own logger's propensity; 15 items, clicks 5 %.", production=True)

    # 10: exploration bucket by row, propensities of the mixture
    rng = parameters(10)
    pi, a = zipf(60, 0.8, 3), tastes(rng, 60, 40, 0.45, 0.45)
    log = 0.85 * softmax(noisy(rng, a, 0.5), 0.0, 1.5) + 0.15 / 40
    types, effect = (0.6, 0.3, 0.1), (0.5, 1.2, 3.4)
    add("exploration-bucket", World(10, 10000, pi, log, softmax(noisy(rng, a, 0.25), 0.0, 2.0), Clicks(rated(a, log, pi, 0.03, effect, types)), types,
        [lengths(4, 20), lengths(5, 30), lengths(8, 30)]),
        "15 % of decisions uniform over 40 items, the rest a softmax of a model; the log has the mixture's propensities. A better, sharper model.", production=True)

    # 11: a new item promoted, 60 items, 200 segments
    rng = parameters(11)
    pi, a = zipf(200, 0.7, 5), tastes(rng, 200, 60, 0.4, 0.3)
    score = noisy(rng, a, 0.4)
    score[:, 59] = -9.0
    log = epsilon_greedy(score, 0.15)
    target = 0.8 * log
    target[:, 59] += 0.2
    add("new-item", World(11, 50000, pi, log, target, Clicks(rated(a, log, pi, 0.025))),
        "Epsilon-greedy (.15) over 60 items, 200 segments; the target shows a new item, today explored only, in a fifth of decisions. Clicks 2.5 %.", production=True)

    # 12: a large log with few clicks
    rng = parameters(12)
    pi, a = zipf(50, 0.8, 2), tastes(rng, 50, 10, 0.35, 0.35)
    score = noisy(rng, a, 0.5)
    other = score.copy()
    other[1::3] = noisy(rng, a, 0.2)[1::3]
    log = epsilon_greedy(score, 0.1)
    types, effect = (0.7, 0.3), (0.6, 1.9)
    add("display-large", World(12, 70000, pi, log, epsilon_greedy(other, 0.1), Clicks(rated(a, log, pi, 0.005, effect, types)), types,
        [lengths(2.5, 8), lengths(3.5, 8)]),
        "Clicks .5 %, epsilon-greedy (.1) over 10 items, 50 contexts, some 180,000 rows; a better ranking in every third context.", production=True)

    # 13: push messages: three texts, two groups, very uneven users
    rng = parameters(13)
    pi, a = np.array([0.6, 0.4]), np.array([[0.0, 0.15, -0.1], [0.1, -0.2, 0.25]])
    log = epsilon_greedy(np.array([[0.2, 0.1, 0.0], [0.2, 0.1, 0.0]]), 0.3)
    types, effect = (0.45, 0.4, 0.15), (0.2, 1.0, 3.5)
    add("push-texts", World(13, 5000, pi, log, greedy(a), Clicks(rated(a, log, pi, 0.12, effect, types)), types,
        [lengths(1.6, 30, "power"), lengths(1.0, 30, "power"), lengths(0.4, 30, "power")]),
        "Epsilon-greedy (.3) over 3 texts, two groups, users of 1 to 30 rows with strong effects, those who click more have more rows.", production=True)

    # 14: music: a part of the decisions by a new ranker
    rng = parameters(14)
    pi, a = zipf(25, 0.6), tastes(rng, 25, 20, 0.3, 0.3)
    log = softmax(noisy(rng, a, 0.4), 0.005, 1.5)
    types, effect = (0.5, 0.5), (0.6, 1.4)
    add("music-blend", World(14, 3500, pi, log, 0.8 * log + 0.2 * greedy(noisy(rng, a, 0.2)), Clicks(rated(a, log, pi, 0.2, effect, types)), types,
        [lengths(6, 30), lengths(9, 30)], stays=0.5),
        "Softmax with a floor of .005 over 20 items, clicks 20 %; four fifths today's policy, one fifth a new ranker.", production=True)

    # 15: baskets with a limit, rows independent
    rng = parameters(15)
    pi, a = zipf(16, 0.5), tastes(rng, 16, 6, 0.2, 0.3)
    log = epsilon_greedy(np.tile(noisy(rng, a.mean(0, keepdims=True), 0.1), (16, 1)), 0.2)
    amounts = 5.0 * np.arange(1, 11)
    chance = np.stack([zipf(10, s) for s in (1.6, 1.4, 1.2, 1.0, 1.3, 1.5)])
    worth = a + np.log(chance @ amounts)
    add("coupon-baskets", World(15, 80000, pi, log, greedy(noisy(rng, worth, 0.1)), Baskets(rated(a, log, pi, 0.03), amounts, chance)),
        "Epsilon-greedy (.2) over 6 coupons, sales of 3 % with baskets of 5 to 50; a personalised greedy policy, independent rows.", production=True)

    # 16: a small tweak of the temperature
    rng = parameters(16)
    pi, a = zipf(12, 0.5), tastes(rng, 12, 12, 0.4, 0.4)
    score = noisy(rng, a, 0.3)
    log = softmax(score, 0.01, 1.5)
    types, effect = (0.5, 0.35, 0.15), (0.4, 1.2, 2.5)
    add("temperature-tweak", World(16, 6000, pi, log, softmax(score, 0.01, 1.9), Clicks(rated(a, log, pi, 0.12, effect, types)), types,
        [lengths(3, 20), lengths(5, 30), lengths(8, 30)], stays=0.8),
        "Softmax with a floor of .01 over 12 items; the same scores, a bit sharper. Clicks 12 %.", production=True)


# ------------------------------------------------------------------------------------------------------- honest but hard


class ByUser(World):
    """The action is drawn once a user, and stays."""

    def acts(self, rng: np.random.Generator, context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = np.r_[True, self._user[1:] != self._user[:-1]]
        drawn = self.action_alias.pick(rng, int(first.sum()), context[first])
        action = drawn[np.cumsum(first) - 1]
        return action, context * self.k + action

    def states(self, rng: np.random.Generator) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        user, kind, context = super().states(rng)
        self._user = user
        return user, kind, context


class UserBucket(World):
    """A share of the users (not of the rows) meets the uniform logger; the log has the mixture's propensities."""

    bucket = 0.2

    def acts(self, rng: np.random.Generator, context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inside = (rng.random(self.size) < self.bucket)[self._user].astype(np.int64)
        action = self.parts.pick(rng, len(context), inside * self.g + context)
        return action, context * self.k + action

    def states(self, rng: np.random.Generator) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
        user, kind, context = super().states(rng)
        self._user = user
        return user, kind, context


def hard() -> None:
    # 17: 48 prices; logging shows the cheap ones
    rng = parameters(17)
    pi = zipf(4, 0.3)
    price = np.round(np.geomspace(4, 900, 48), 0)
    a = tastes(rng, 4, 48, 0.2, 0.15) - 0.75 * np.log(price)[None]
    log = 0.9 * softmax(np.tile(-1.6 * np.log(price), (4, 1))) + 0.1 / 48
    target = 0.3 * log + 0.7 * softmax(np.tile(0.8 * np.log(price), (4, 1)))
    add("price-ladder", World(17, 60000, pi, log, target, Priced(rated(a, log, pi, 0.04), price)),
        "48 prices from 4 to 900: logging shows cheap items (a tenth uniform), the target the dear ones, which sell rarely.")

    # 18: jackpots
    rng = parameters(18)
    pi, a = zipf(6, 0.4), tastes(rng, 6, 9, 0.3, 0.2)
    log = epsilon_greedy(noisy(rng, a, 0.3), 0.4)
    chance = np.full(9, 2e-6)
    chance[[2, 5]] = 4e-5
    target = np.full((6, 9), 0.05)
    target[:, 2] += 0.3
    target[:, 5] += 0.25
    types, effect = (0.5, 0.5), (0.6, 1.4)
    add("jackpots", World(18, 8000, pi, log, target, Jackpots(rated(a, log, pi, 0.06, effect, types), chance, 3000.0), types,
        [lengths(4, 20), lengths(5, 20)]),
        "Clicks, and a jackpot of 3,000 in four of 100,000 decisions for two items that the target prefers: most of the value, often unseen.")

    # 19: rare heavy actions
    rng = parameters(19)
    pi, a = zipf(10, 0.4), tastes(rng, 10, 9, 0.3, 0.3)
    body = epsilon_greedy(noisy(rng, a[:, :7], 0.3), 0.15)
    log = np.concatenate([body * (1 - 6e-5), np.full((10, 1), 2e-5), np.full((10, 1), 4e-5)], 1)
    target = np.concatenate([0.965 * epsilon_greedy(noisy(rng, a[:, :7], 0.15), 0.1), np.full((10, 1), 0.01), np.full((10, 1), 0.025)], 1)
    rate = rated(np.concatenate([a[:, :7], np.full((10, 2), -9.0)], 1), log, pi, 0.04)
    rate[:, :, 7:] = np.array([0.55, 0.7])
    add("rare-payers", World(19, 40000, pi, log, target, Clicks(rate)),
        "3.5 % of the target's mass at propensities of 2e-5 and 4e-5, where clicks are fifteen times as frequent; full support.")

    # 20: heavy-tailed revenue
    rng = parameters(20)
    pi, a = zipf(8, 0.5), tastes(rng, 8, 10, 0.3, 0.3)
    log = softmax(noisy(rng, a, 0.4), 0.02)
    types, effect = (0.7, 0.3), (0.7, 1.7)
    add("pareto-revenue", World(20, 8000, pi, log, softmax(a, 0.01, 1.8), Pareto(rated(a, log, pi, 0.08, effect, types), np.linspace(8, 25, 10), 2.2), types,
        [lengths(4, 20), lengths(6, 30)]),
        "Sales of 8 % with Pareto amounts of index 2.2 (variance finite, no upper limit).")

    # 21: weights by user
    rng = parameters(21)
    pi, a = zipf(5, 0.4), tastes(rng, 5, 6, 0.3, 0.25)
    log = softmax(noisy(rng, a, 0.8), 0.02, 1.0)
    types, effect = (0.4, 0.4, 0.2), (0.4, 1.0, 2.2)
    add("arm-by-user", ByUser(21, 5000, pi, log, softmax(noisy(rng, a, 0.2), 0.02, 2.5), Clicks(rated(a, log, pi, 0.09, effect, types)), types,
        [lengths(3, 20), lengths(5, 30), lengths(9, 40)]),
        "The action is drawn once a user: all rows of a user have one weight.")

    # 22: very low click rates
    rng = parameters(22)
    pi, a = zipf(10, 0.5), tastes(rng, 10, 4, 0.3, 0.3)
    log = epsilon_greedy(noisy(rng, a, 0.4), 0.25)
    add("conversions-rare", World(22, 60000, pi, log, epsilon_greedy(noisy(rng, a, 0.2), 0.1), Clicks(rated(a, log, pi, 0.0008))),
        "Conversions of .08 %: some fifty in a log.")

    # 23: few users with many rows
    rng = parameters(23)
    pi, a = zipf(6, 0.4), tastes(rng, 6, 8, 0.3, 0.4)
    log = softmax(noisy(rng, a, 0.5), 0.03)
    types, effect = (0.5, 0.35, 0.15), (0.3, 1.0, 2.6)
    grid = np.zeros(400)
    grid[39:200] = 3.0
    grid[200:] = 1.0
    late = np.zeros(400)
    late[99:] = 1.0
    add("few-users", World(23, 140, pi, log, greedy(noisy(rng, a, 0.2)), Clicks(rated(a, log, pi, 0.1, effect, types)), types,
        [grid / grid.sum(), grid / grid.sum(), late / late.sum()], stays=0.85),
        "140 users of 40 to 400 rows with strong effects; a greedy policy.")

    # 24: near-deterministic logger
    rng = parameters(24)
    pi, a = zipf(30, 0.6, 2), tastes(rng, 30, 10, 0.4, 0.4)
    score = noisy(rng, a, 0.4)
    other = score.copy()
    other[2::5] = a[2::5]
    log = epsilon_greedy(score, 0.01)
    types, effect = (0.5, 0.5), (0.5, 1.5)
    add("near-deterministic", World(24, 8000, pi, log, epsilon_greedy(other, 0.01), Clicks(rated(a, log, pi, 0.07, effect, types)), types,
        [lengths(4, 20), lengths(6, 20)]),
        "Epsilon .01 over 10 items; the new ranking differs in up to a fifth of the contexts, where weights are near 1,000.")

    # 25: target equal to logger, against uniform
    rng = parameters(25)
    pi, a = zipf(8, 0.5), tastes(rng, 8, 10, 0.3, 0.3)
    log = epsilon_greedy(noisy(rng, a, 0.3), 0.2)
    types, effect = (0.5, 0.5), (0.4, 1.6)
    add("same-as-today", World(25, 4000, pi, log, log.copy(), Clicks(rated(a, log, pi, 0.05, effect, types)), types,
        [lengths(4, 20), lengths(7, 30)], baseline=np.full((8, 10), 0.1)),
        "The target is the logger (weights of 1); the baseline is uniform, and was not what logged.")

    # 26: offset rewards
    rng = parameters(26)
    pi, a = zipf(8, 0.5), tastes(rng, 8, 10, 0.3, 0.3)
    log = softmax(noisy(rng, a, 0.3), 0.02)
    types, effect = (0.6, 0.4), (0.6, 1.6)
    add("offset-thousand", World(26, 6000, pi, log, epsilon_greedy(a, 0.1), Moved(Clicks(rated(a, log, pi, 0.15, effect, types)), 1.0, 1000.0), types,
        [lengths(3, 20), lengths(5, 30)]),
        "Clicks of 15 % plus 1,000: what matters is a difference far below the mean weight's error.")

    # 27: a tiny log
    rng = parameters(27)
    pi, a = np.array([0.5, 0.3, 0.2]), tastes(rng, 3, 4, 0.3, 0.3)
    log = epsilon_greedy(noisy(rng, a, 0.4), 0.4)
    add("tiny-log", World(27, 800, pi, log, greedy(a), Clicks(rated(a, log, pi, 0.15))),
        "800 independent rows, epsilon .4 over 4 items, clicks 15 %.")

    # 28: losses
    rng = parameters(28)
    pi, a = zipf(10, 0.5), tastes(rng, 10, 7, 0.4, 0.3)
    log = softmax(noisy(rng, -a, 0.4), 0.03)
    types, effect = (0.7, 0.3), (0.6, 1.9)
    amounts = np.array([1.0, 2.0, 4.0, 8.0, 20.0])
    add("support-costs", World(28, 7000, pi, log, softmax(-a, 0.02, 1.8), Moved(Baskets(rated(a, log, pi, 0.12, effect, types), amounts, zipf(5, 1.2)), -1.0, 0.0), types,
        [lengths(3, 15), lengths(5, 20)]),
        "Rewards are costs: 0, or -1 to -20 in 12 % of the rows.")

    # 29: buckets by user, two new policies, actions that neither takes are rarer still
    rng = parameters(29)
    pi, a = zipf(9, 0.5), tastes(rng, 9, 14, 0.35, 0.35)
    one, two = np.zeros((9, 14)), np.zeros((9, 14))
    one[:, :10] = softmax(noisy(rng, a[:, :10], 0.3), 0.002, 2.0)
    two[:, :10] = softmax(noisy(rng, a[:, :10], 0.7), 0.002, 2.0)
    show = np.concatenate([np.full((9, 10), 0.0975), np.full((9, 4), 0.00625)], 1)
    rest = np.zeros((9, 14))
    rest[:, :10] = epsilon_greedy(noisy(rng, a[:, :10], 0.5), 0.02)
    log = 0.8 * rest + 0.2 * show
    types, effect = (0.5, 0.5), (0.5, 1.5)
    world = UserBucket(29, 6000, pi, log, one, Clicks(rated(a, log, pi, 0.07, effect, types)), types,
        [lengths(4, 20), lengths(7, 30)], baseline=two)
    world.parts = Alias(np.concatenate([rest, show]))
    add("bucket-by-user", world,
        "A fifth of the users, not of the rows, is explored; the log has the mixture's propensities. Two new policies are compared; four items that "
        "neither takes are logged with less than the propensity_min stated, which is of what the policies can take.")

    # 42: lognormal spending with weights up to 200
    rng = parameters(42)
    pi, a = zipf(15, 0.5), tastes(rng, 15, 20, 0.35, 0.35)
    log = epsilon_greedy(noisy(rng, a, 0.4), 0.1)
    types, effect = (0.6, 0.4), (0.6, 1.6)
    other = noisy(rng, a, 0.4)
    other[::2] = a[::2]
    add("lognormal-spend", World(42, 9000, pi, log, 0.5 * log + 0.5 * epsilon_greedy(other, 0.1), Lognormal(rated(a, log, pi, 0.07, effect, types), np.linspace(30, 12, 20), 1.2), types,
        [lengths(4, 20), lengths(7, 30)]),
        "Sales of 7 % with lognormal amounts (spread 1.2, no upper limit) and weights of about 100 under epsilon .1 over 20 items.")


# ------------------------------------------------------------------------------------------------------- something wrong


@dataclass(frozen=True)
class JudgedLog(Log):
    """A log whose target depends on it."""

    truth: float = float("nan")


def shifted(policy: np.ndarray, z: np.ndarray, s: float) -> np.ndarray:
    odds = policy * np.exp(s * z)[None, :]
    return odds / odds.sum(1, keepdims=True)


class Trained(World):
    """The target is fitted on the log that judges it."""

    prior, explore, repeats = 0.0, 0.0, 0

    def learn(self, reward: np.ndarray, propensity: np.ndarray, place: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        n = np.bincount(place, minlength=self.g * self.k).reshape(self.g, self.k)
        s = np.bincount(place, reward, minlength=self.g * self.k).reshape(self.g, self.k)
        item = (s.sum(0) + 1.0 * s.sum() / n.sum()) / (n.sum(0) + 1.0)
        mean = (s + self.prior * item[None]) / np.maximum(n + self.prior, 1e-9)
        return epsilon_greedy(mean, self.explore)

    def draw(self, seed: int) -> Log:
        rng = np.random.default_rng([self.number, seed])
        user, kind, context = self.states(rng)
        action, at = self.acts(rng, context)
        place = context * self.k + action
        reward = self.reward.draw(rng, kind * (self.g * self.k) + place, action)
        p = self.stated_flat[at]
        policy = self.learn(reward, p, place, rng)
        return JudgedLog(reward, p, policy.ravel()[place], p.copy(), user, action, context, self.value_of(policy))


class Winner(Trained):
    """The best of many fixed candidates by the log's own estimate."""

    def learn(self, reward: np.ndarray, propensity: np.ndarray, place: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        s = np.bincount(place, reward / propensity, minlength=self.g * self.k)
        return self.candidates[int((self.candidates.reshape(len(self.candidates), -1) @ s).argmax())]


class Tripled(World):
    def draw(self, seed: int) -> Log:
        one = super().draw(seed)
        return Log(*(None if c is None else np.repeat(c, 3) for c in
                     (one.reward, one.propensity, one.target, one.baseline, one.user, one.action, one.context)))


class Sessions(World):
    """The user column holds sessions of at most `most` rows."""

    most = 4

    def draw(self, seed: int) -> Log:
        one = super().draw(seed)
        first = np.r_[0, np.flatnonzero(one.user[1:] != one.user[:-1]) + 1]
        start = np.zeros(len(one.user), np.int64)
        start[first] = first
        inside = np.arange(len(one.user)) - np.maximum.accumulate(start)
        session = np.cumsum(inside % self.most == 0) - 1
        return Log(one.reward, one.propensity, one.target, one.baseline, session, one.action, one.context)


class Confounded(World):
    """A hidden intent of each row decides what is shown (parts: (2, G, K)) and what is clicked (rates: (2, T, G, K))."""

    intent = 0.3

    def draw(self, seed: int) -> Log:
        rng = np.random.default_rng([self.number, seed])
        user, kind, context = self.states(rng)
        hidden = (rng.random(len(context)) < self.intent).astype(np.int64)
        action = self.parts_alias.pick(rng, len(context), hidden * self.g + context)
        place = context * self.k + action
        cell = kind * (self.g * self.k) + place
        reward = (rng.random(len(context)) < self.rates[hidden * len(self.rates) // 2 + cell]).astype(float)
        return self.log(reward, self.stated_flat[place], place, user, action, context)


class CarryOver(World):
    """Who was shown the same item in the row before clicks less: times `cut`."""

    cut = 0.35

    def draw(self, seed: int) -> Log:
        rng = np.random.default_rng([self.number, seed])
        user, kind, context = self.states(rng)
        action, at = self.acts(rng, context)
        place = context * self.k + action
        again = np.r_[False, (user[1:] == user[:-1]) & (action[1:] == action[:-1])]
        rate = self.reward.flat[kind * (self.g * self.k) + place] * np.where(again, self.cut, 1.0)
        reward = (rng.random(len(rate)) < rate).astype(float)
        return self.log(reward, self.stated_flat[at], place, user, action, context)

    def carried(self, before: np.ndarray, now: np.ndarray) -> float:
        """Value of `now` where `before` showed what came before (contexts stay with the user)."""
        rows = [p @ np.arange(1, len(p) + 1) for p in self.rows_by]
        later = np.array([1.0 - 1.0 / r for r in rows])  # share of a type's rows that have a row before
        factor = 1.0 - later[:, None, None] * (1.0 - self.cut) * before[None]
        return float(np.einsum("t,tg,tga,ga->", self.share, self.contexts, self.reward.mean * factor, now))


class Leaving(World):
    """After each row the user stays with a chance that depends on type and on the item shown (stay: (T, G, K))."""

    most = 30

    def draw(self, seed: int) -> Log:
        rng = np.random.default_rng([self.number, seed])
        kind = self.type_alias.pick(rng, self.size)
        home = self.context_alias.pick(rng, self.size, kind)
        alive, users, actions = np.arange(self.size), [], []
        for _ in range(self.most):
            act = self.action_alias.pick(rng, len(alive), home[alive])
            users.append(alive)
            actions.append(act)
            goes_on = rng.random(len(alive)) < self.stay[kind[alive], home[alive], act]
            alive = alive[goes_on]
            if not len(alive):
                break
        user, action = np.concatenate(users), np.concatenate(actions)
        order = np.argsort(user, kind="stable")
        user, action = user[order], action[order]
        context = home[user]
        place = context * self.k + action
        reward = (rng.random(len(user)) < self.reward.flat[kind[user] * (self.g * self.k) + place]).astype(float)
        return self.log(reward, self.stated_flat[place], place, user, action, context)

    def met(self, states_of: np.ndarray, now: np.ndarray) -> float:
        """Value of `now` in the states that `states_of` meets."""
        rho = np.einsum("tga,ga->tg", self.stay, states_of)
        rows = np.array(self.types)[:, None] * self.contexts * (1.0 - rho**self.most) / (1.0 - rho)
        return float(np.einsum("tg,tga,ga->", rows, self.reward.mean, now) / rows.sum())


def wrong() -> None:
    # 30: odds changed after scoring, strong
    rng = parameters(30)
    pi, a = zipf(8, 0.5), tastes(rng, 8, 20, 0.4, 0.4)
    stated = softmax(noisy(rng, a, 0.4), 0.01)
    types, effect = (0.5, 0.5), (0.6, 1.4)
    log = shifted(stated, rng.normal(size=20), 0.5)
    add("stock-rules-strong", World(30, 5000, pi, log, softmax(noisy(rng, a, 0.2), 0.005, 4.0), Clicks(rated(a, log, pi, 0.06, effect, types)), types,
        [lengths(3, 20), lengths(5, 30)], stated=stated),
        "Propensities are those of the scores; afterwards each item's odds were multiplied by exp(.5 z) (stock).", honest=False)

    # 31: odds changed after scoring, weak
    rng = parameters(31)
    pi, a = zipf(12, 0.5), tastes(rng, 12, 10, 0.3, 0.3)
    stated = epsilon_greedy(noisy(rng, a, 0.5), 0.3)
    log = shifted(stated, rng.normal(size=10), 0.2)
    add("business-rules-weak", World(31, 40000, pi, log, greedy(noisy(rng, a, 0.2)), Clicks(rated(a, log, pi, 0.1)), stated=stated),
        "Epsilon-greedy (.3); afterwards each item's odds were multiplied by exp(.2 z) (rules). Clicks 10 %.", honest=False)

    # 32: wrong by context, right on average within each item
    rng = parameters(32)
    g, k = 8, 10
    pi = np.full(g, 1 / g)
    a = tastes(rng, g, k, 0.2, 0.2)
    a[::2] += 0.6
    stated = softmax(noisy(rng, a - a.mean(1, keepdims=True), 0.2), 0.02)
    best = np.repeat(rng.integers(0, k, g // 2), 2)
    delta = np.zeros((g, k))
    for i in range(0, g, 2):
        d = rng.normal(0, 0.15, k)
        d[best[i]] = 1.0
        basis, _ = np.linalg.qr(np.stack([stated[i], stated[i + 1]], 1))
        d = d - basis @ (basis.T @ d)
        delta[i] = 0.6 * d / np.abs(d).max()
        delta[i + 1] = -delta[i]
    log = stated * (1 + delta)
    target = 0.8 * one_hot(best, k) + 0.2 * stated
    types, effect = (0.5, 0.5), (0.7, 1.3)
    add("wrong-by-context", World(32, 8000, pi, log, target, Clicks(rated(a, log, pi, 0.12, effect, types)), types,
        [lengths(3, 15), lengths(4, 20)], stated=stated),
        "Stated propensities are wrong by up to 1.6 within contexts, and right on average over contexts for each item.", honest=False)

    # 33: target trained on the log, tabular argmax
    rng = parameters(33)
    pi, a = zipf(40, 0.5, 2), tastes(rng, 40, 20, 0.25, 0.25)
    log = softmax(noisy(rng, a, 0.3), 0.03)
    add("trained-argmax", Trained(33, 20000, pi, log, log, Clicks(rated(a, log, pi, 0.06))),
        "The target takes, in each context, the item with the largest mean reward in this very log. Its true value is in the log's `truth`.",
        honest=False, value=float("nan"))

    # 34: the same, regularised, by users
    rng = parameters(34)
    pi, a = zipf(60, 0.6, 2), tastes(rng, 60, 15, 0.3, 0.3)
    log = epsilon_greedy(noisy(rng, a, 0.5), 0.4)
    types, effect = (0.5, 0.5), (0.6, 1.4)
    world = Trained(34, 8000, pi, log, log, Clicks(rated(a, log, pi, 0.08, effect, types)), types, [lengths(4, 20), lengths(6, 30)], stays=0.6)
    world.prior, world.explore = 10.0, 0.1
    add("trained-shrunk", world,
        "The target is epsilon-greedy (.1) over this log's means, shrunk towards the items' means by ten rows. Truth in `truth`.",
        honest=False, value=float("nan"))

    # 35: the winner of forty candidates
    rng = parameters(35)
    pi, a = zipf(20, 0.6, 2), tastes(rng, 20, 12, 0.25, 0.2)
    log = softmax(noisy(rng, a, 0.4), 0.02)
    world = Winner(35, 15000, pi, log, log, Clicks(rated(a, log, pi, 0.05)))
    world.candidates = np.stack([softmax(noisy(rng, a, 0.6), 0.002, 3.0) for _ in range(40)])
    add("winner-of-forty", world,
        "The target is that of 40 fixed candidates whose estimate on this very log is largest. Truth in `truth`.", honest=False, value=float("nan"))

    # 36: rows tripled
    rng = parameters(36)
    pi, a = zipf(10, 0.5), tastes(rng, 10, 8, 0.3, 0.3)
    log = epsilon_greedy(noisy(rng, a, 0.4), 0.3)
    add("rows-tripled", Tripled(36, 12000, pi, log, epsilon_greedy(noisy(rng, a, 0.1), 0.1), Clicks(rated(a, log, pi, 0.08))),
        "A faulty join has written every row three times; rows are said to be independent.", honest=False)

    # 37: confounding
    rng = parameters(37)
    g, k = 6, 8
    pi, a = zipf(g, 0.4), tastes(rng, g, k, 0.3, 0.3)
    cold = softmax(noisy(rng, a, 0.3), 0.03)
    warm = shifted(cold, np.where(np.arange(k) < 3, 1.0, -0.3), 1.1)
    types, effect = (0.5, 0.5), (0.7, 1.3)
    mixed = 0.7 * cold + 0.3 * warm
    base = rated(a, mixed, pi, 0.05, effect, types)
    rates = np.stack([base * 0.7, np.clip(base * 2.4, 0, 0.95)])
    world = Confounded(37, 7000, pi, mixed, softmax(np.where(np.arange(k) < 3, 1.5, 0.0)[None] + a, 0.01, 1.2), Clicks(0.7 * rates[0] + 0.3 * rates[1]), types,
        [lengths(3, 20), lengths(5, 20)])
    world.parts_alias, world.rates = Alias(np.concatenate([cold, warm])), rates.ravel()
    today = float(sum(s * np.einsum("t,tg,tga,ga->", world.share, world.contexts, rates[h], part)
                      for h, s, part in ((0, 0.7, cold), (1, 0.3, warm))))
    add("hidden-intent", world,
        "The logger saw an intent that the log omits: who has it is shown three items more often and clicks three times as much on any; stated "
        "propensities are right on average over intents.", honest=False, baseline_value=today,
        facts={"propensity_min": float(min(cold.min(), warm.min())), "reward_max": 1.0, "reward_min": 0.0})

    # 38: carry-over
    rng = parameters(38)
    g, k = 6, 8
    pi, a = zipf(g, 0.4), tastes(rng, g, k, 0.3, 0.3)
    log = softmax(noisy(rng, a, 0.3), 0.03, 0.8)
    types, effect = (0.5, 0.5), (0.6, 1.4)
    world = CarryOver(38, 2500, pi, log, epsilon_greedy(a, 0.1), Clicks(rated(a, log, pi, 0.12, effect, types)), types,
        [lengths(10, 30), lengths(14, 40)])
    add("repeats-tire", world,
        "An item that was shown in the row before gets .35 of its clicks. `value` is in the states that the log met; an A/B test would find "
        f"{world.carried(world.target, world.target):.6f} for the target.", honest=False,
        value=world.carried(log, world.target), baseline_value=world.carried(log, log))

    # 39: users leave
    rng = parameters(39)
    g, k = 6, 8
    pi, a = zipf(g, 0.4), tastes(rng, g, k, 0.3, 0.3)
    log = softmax(noisy(rng, a, 0.4), 0.03)
    types, effect = (0.5, 0.5), (0.3, 1.7)
    world = Leaving(39, 4000, pi, log, epsilon_greedy(a, 0.1), Clicks(rated(a, log, pi, 0.1, effect, types)), types, [lengths(2, 30)] * 2)
    pushy = (a - a.mean(1, keepdims=True)) / a.std(1, keepdims=True)
    world.stay = np.clip(np.stack([0.9 - 0.03 * pushy, 0.88 - 0.2 * pushy]), 0.3, 0.96)
    add("users-leave", world,
        "Attractive items make users leave, those who click most of all. `value` is in the states that the log met; an A/B test would find "
        f"{world.met(world.target, world.target):.6f} for the target.", honest=False,
        value=world.met(log, world.target), baseline_value=world.met(log, log))

    # 40: propensities rounded to two decimals
    rng = parameters(40)
    pi, a = zipf(10, 0.5), tastes(rng, 10, 40, 0.5, 0.4)
    log = softmax(noisy(rng, a, 0.3), 0.004)
    stated = np.maximum(np.round(log, 2), 0.01)
    types, effect = (0.5, 0.5), (0.6, 1.4)
    add("rounded-propensities", World(40, 6000, pi, log, softmax(-0.6 * a, 0.005), Clicks(rated(a, log, pi, 0.08, effect, types)), types,
        [lengths(4, 20), lengths(6, 20)], stated=stated),
        "Propensities were stored with two decimals (at least .01); the target prefers items that today are rare.", honest=False)

    # 41: sessions instead of users
    rng = parameters(41)
    pi, a = zipf(6, 0.3), tastes(rng, 6, 6, 0.2, 0.4)
    log = softmax(noisy(rng, a, 0.2), 0.05, 1.0)
    types, effect = (0.55, 0.3, 0.15), (0.1, 1.0, 4.0)
    long = np.zeros(160)
    long[29:] = 1.0
    world = Sessions(41, 350, pi, log, softmax(a, 0.03, 1.5), Clicks(rated(a, log, pi, 0.15, effect, types, 0.9)), types, [long / long.sum()] * 3)
    add("sessions-for-users", world,
        "The user column holds sessions of four rows; 350 users of 30 to 160 rows differ forty-fold in how much they click.", honest=False)

    # 43: yesterday's scores
    rng = parameters(43)
    pi, a = zipf(20, 0.6), tastes(rng, 20, 10, 0.35, 0.35)
    yesterday = noisy(rng, a, 0.4)
    stated, log = softmax(yesterday, 0.015, 1.3), softmax(0.5 * yesterday + 0.5 * noisy(rng, a, 0.2), 0.015, 1.3)
    types, effect = (0.5, 0.5), (0.6, 1.4)
    add("stale-scores", World(43, 6000, pi, log, softmax(a, 0.005, 3.0), Clicks(rated(a, log, pi, 0.08, effect, types)), types,
        [lengths(4, 20), lengths(7, 30)], stated=stated),
        "The log holds the propensities of yesterday's model; actions were drawn by today's, which knows the tastes better.", honest=False)

    # 44: stock, a hundred items
    rng = parameters(44)
    pi, a = zipf(5, 0.4), tastes(rng, 5, 100, 0.6, 0.2)
    stated = softmax(noisy(rng, a, 0.3), 0.002)
    z = -0.6 * (a.mean(0) - a.mean()) / a.mean(0).std() + 0.8 * rng.normal(size=100)
    log = shifted(stated, z, 0.5)
    add("stock-hundred-items", World(44, 20000, pi, log, softmax(noisy(rng, a, 0.2), 0.001, 2.0), Clicks(rated(a, log, pi, 0.05)), stated=stated),
        "A hundred items; after scoring the odds were multiplied by exp(.5 z), z being lower for what sells (little stock).", honest=False)


production()
hard()
wrong()
assert len({f.name for f in FAMILIES}) == len(FAMILIES)
