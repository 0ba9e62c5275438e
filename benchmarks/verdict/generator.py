"""Settings drawn at random, and logs of them whose value is known: families of weights and rewards.

Settings follow from their seed alone. They were drawn before any rule was run on them, and a setting's logs are
addressed by its seed and their number. The fresh ones have other kinds of weights and of rewards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

SEED = 20261
POINTS = 1000  # equiprobable points of a law of weights
EFFECTS = 16  # equiprobable user effects
LONGEST = 200
WEIGHTS = ("lognormal", "two_point", "epsilon_greedy", "pareto", "by_user", "by_length")
REWARDS = ("binary", "cost", "lognormal", "pareto")
PER_FAMILY = 5
HELD_OUT = 8  # of 24 families
FRESH_SEED = 20263
FRESH_WEIGHTS = ("gamma", "softmax", "three_point", "user_and_row")
FRESH_REWARDS = ("graded", "basket", "gamma", "weibull", "loglogistic")
PER_FRESH_FAMILY = 3
CONTEXTS, ACTIONS = 50, 10  # of softmax policies
KINDS_OF_USERS = 30  # and of a user's rows, where weights are products of both
BOUNDED = ("binary", "cost", "graded")
LEAST_BENT = 0.05  # fresh families: the weight below which rewards go no further with it


@dataclass(frozen=True)
class Setting:
    """A world of weights and rewards, a size of log, and what its user states.

    Attributes:
        name: stable id.
        weights, rewards: kinds; together the family.
        shape: of the weights: sd of log w, (heavy weight, its mass), (epsilon, actions, share), index, power of length;
            gamma's shape, (sd of the logging policy's logits, of what the target adds), (heavy weight, its mass, rows
            that weigh nothing), (sd of log w between users, within).
        spread: of the rewards: sd of the logarithm, index of Pareto and log-logistic tails, shape of gamma and
            Weibull laws; unused where they are binary or graded.
        rate: mean reward of a row before user effects (a click's probability).
        cost: taken off every reward.
        correlation: power of w that the mean reward is proportional to.
        effect: shape of the gamma law of user effects; None for none.
        length_power: power of the user's number of rows that the mean reward is proportional to.
        users: a log.
        lengths: ("fixed", rows), ("geometric", mean) or ("pareto", index).
        missing: the target's mass where the log never goes.
        missing_reward: mean reward there, in units of the rate.
        support: "full", "column" or "no": what is stated of it.
        weight_max, reward_range: whether they are stated.
        clip: of the clipped estimates.
        seed: of the logs.
        held_out: whether its family is.
    """

    name: str
    weights: str
    rewards: str
    shape: tuple[float, ...]
    spread: float
    rate: float
    cost: float
    correlation: float
    effect: float | None
    length_power: float
    users: int
    lengths: tuple[str, float]
    missing: float
    missing_reward: float
    support: str
    weight_max: bool
    reward_range: bool
    clip: float
    seed: int
    held_out: bool

    @property
    def family(self) -> str:
        return f"{self.weights}-{self.rewards}"


# ------------------------------------------------------------------------------------------------------------- drawing


def draw_settings(seed: int = SEED) -> list[Setting]:
    """All settings, the same for the same seed."""
    rng = np.random.default_rng(seed)
    families = [(w, r) for w in WEIGHTS for r in REWARDS]
    held = {families[i] for i in rng.permutation(len(families))[:HELD_OUT]}
    out: list[Setting] = []
    for family in families:
        for _ in range(PER_FAMILY):
            out.append(_draw(rng, len(out), *family, family in held))
    return out


class _Drawn:
    """Values drawn one after the other."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def one(self, *values: Any) -> Any:
        return values[int(self.rng.integers(len(values)))]

    def between(self, low: float, high: float) -> float:
        return float(f"{np.exp(self.rng.uniform(np.log(low), np.log(high))):.3g}")


def draw_fresh(seed: int = FRESH_SEED) -> list[Setting]:
    """Settings of further families, all held out."""
    rng = np.random.default_rng(seed)
    out: list[Setting] = []
    for weights in FRESH_WEIGHTS:
        for rewards in FRESH_REWARDS:
            out += [_draw_fresh(rng, len(out) + k, weights, rewards) for k in range(PER_FRESH_FAMILY)]
    return out


def _draw_fresh(rng: np.random.Generator, number: int, weights: str, rewards: str) -> Setting:
    drawn = _Drawn(rng)
    one, between = drawn.one, drawn.between
    shapes = {
        "gamma": lambda: (one(0.3, 1.0, 3.0),),
        "softmax": lambda: (one(0.5, 1.5), one(0.5, 1.0, 2.0)),
        "three_point": lambda: (one(5.0, 20.0, 60.0), one(0.05, 0.2, 0.5), one(0.2, 0.6)),
        "user_and_row": lambda: (one(0.2, 0.6), one(0.3, 1.0)),
    }
    spreads = {"graded": (0.0,), "basket": (0.5, 1.0), "gamma": (0.3, 1.0), "weibull": (0.5, 0.7)}
    spreads["loglogistic"] = (1.5, 2.5, 4.0)
    shape, spread = tuple(shapes[weights]()), one(*spreads[rewards])
    rate = between(0.02, 0.4)
    lengths = one(("fixed", one(1.0, 4.0, 15.0)), ("geometric", one(2.0, 8.0)), ("pareto", one(1.4, 2.5)))
    users = int(np.clip(round(between(500, 50_000) / mean_length(lengths)), 20, 10_000))
    absent, stated = rng.random() < 0.3, rng.random() < 0.85
    missing = between(0.005, 0.1) if absent else 0.0
    return Setting(
        name=f"f{number:02d}-{weights}-{rewards}-u{users}", weights=weights, rewards=rewards, shape=shape,
        spread=spread, rate=rate, cost=0.0, correlation=one(-0.5, 0.0, 0.0, 0.5), effect=one(None, None, 0.3, 1.0),
        length_power=one(0.0, 0.0, -0.5), users=users, lengths=lengths, missing=missing,
        missing_reward=one(0.0, 1.0, 3.0), support=("column" if absent else "full") if stated else "no",
        weight_max=bool(rng.random() < 0.6), reward_range=bool(rng.random() < 0.6) and rewards == "graded",
        clip=one(3.0, 10.0, 30.0), seed=int(rng.integers(2**31)), held_out=True,
    )  # fmt: skip


def _draw(rng: np.random.Generator, number: int, weights: str, rewards: str, held_out: bool) -> Setting:
    drawn = _Drawn(rng)
    one, between = drawn.one, drawn.between

    shapes = {
        "lognormal": lambda: (one(0.5, 1.0, 1.5, 2.0),),
        "two_point": lambda: (one(10.0, 30.0, 100.0), one(0.1, 0.3, 0.7)),
        "epsilon_greedy": lambda: (one(0.05, 0.1, 0.3), one(5.0, 20.0, 100.0), one(0.1, 0.5, 1.0)),
        "pareto": lambda: (one(1.5, 2.5, 4.0),),
        "by_user": lambda: (one(0.3, 0.7, 1.0),),
        "by_length": lambda: (one(-0.5, 0.5), one(0.3, 0.7)),
    }
    shape = tuple(shapes[weights]())
    spread = one(0.5, 1.0) if rewards == "lognormal" else one(1.2, 1.8, 2.5, 4.0)
    rate = between(0.005, 0.4)
    lengths = [("fixed", one(1.0, 5.0, 20.0)), ("geometric", one(3.0, 10.0)), ("pareto", one(1.2, 2.0))]
    length = one(*lengths)
    rows = between(200, 50_000)
    users = int(np.clip(round(rows / mean_length(length)), 20, 10_000))
    absent = rng.random() < 0.4
    missing = between(0.005, 0.1) if absent else 0.0
    stated = rng.random() < 0.8
    return Setting(
        name=f"{number:03d}-{weights}-{rewards}-u{users}",
        weights=weights,
        rewards=rewards,
        shape=shape,
        spread=spread,
        rate=rate,
        cost=float(f"{rate * rng.uniform(0.3, 1.5):.3g}") if rewards == "cost" else 0.0,
        correlation=one(-0.5, 0.0, 0.0, 0.5),
        effect=one(None, None, 0.3, 1.0),
        length_power=one(0.0, 0.0, -0.5),
        users=users,
        lengths=length,
        missing=missing,
        missing_reward=one(0.0, 1.0, 3.0),
        support=("column" if absent else "full") if stated else "no",
        weight_max=bool(rng.random() < 0.6),
        reward_range=rewards in ("binary", "cost") and bool(rng.random() < 0.6),
        clip=one(3.0, 10.0, 30.0),
        seed=int(rng.integers(2**31)),
        held_out=held_out,
    )


def length_chances(lengths: tuple[str, float]) -> np.ndarray:
    """(200,) probability of 1, 2, ... rows a user."""
    kind, value = lengths
    size = np.arange(1, LONGEST + 1)
    if kind == "fixed":
        return (size == value).astype(float)
    if kind == "geometric":
        chance = (1 / value) * (1 - 1 / value) ** (size - 1)
    else:
        chance = size**-value - np.append(size[1:], np.inf) ** -value
    chance[-1] += 1.0 - chance.sum()
    return chance


def mean_length(lengths: tuple[str, float]) -> float:
    return float(np.arange(1, LONGEST + 1) @ length_chances(lengths))


# ---------------------------------------------------------------------------------------------------------------- logs


class World:
    """A setting made concrete.

    Attributes:
        setting: it.
        chance: (k,) logging probability of each kind of row.
        weight: (k,) its target / logging probability, before what is missing and what a user's length does.
        value: the target policy's value, exactly.
        baseline_value: the logging policy's.
        largest: largest weight possible.
        reward_bounds: least and largest reward possible, inf where there is none.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = s = setting
        self.chance, self.weight = _weights(s)
        self.lengths = length_chances(s.lengths)
        size = np.arange(1, LONGEST + 1)
        mean = float(size @ self.lengths)
        self.by_length = np.ones(LONGEST)
        if s.weights == "by_length":
            self.by_length = size ** s.shape[0]
            self.by_length /= float((size * self.lengths) @ self.by_length) / mean
        self.effects: np.ndarray = np.ones(1)
        if s.effect is not None:
            from scipy.stats import gamma

            self.effects = gamma.ppf((np.arange(EFFECTS) + 0.5) / EFFECTS, s.effect)
            self.effects /= self.effects.mean()
        self.fresh = s.weights in FRESH_WEIGHTS
        least = LEAST_BENT if self.fresh else 0.0
        bent = np.maximum(np.where(self.weight > 0, self.weight, 1.0), least) ** s.correlation
        self.bent = bent / float((self.chance * self.weight) @ bent)
        self.of_length = size**s.length_power
        self.of_length /= float((size * self.lengths) @ self.of_length) / mean
        there = np.flatnonzero(self.lengths > 0)
        self.base = s.rate if s.rewards in BOUNDED else 1.0
        value = baseline = 0.0
        for i in there:
            means = self._means(self.bent[:, None], self.effects[None, :], np.full((1, 1), self.of_length[i])).mean(
                axis=1
            )
            share = self.lengths[i] * size[i] / mean
            value += share * self.by_length[i] * float((self.chance * self.weight) @ means)
            baseline += share * float(self.chance @ means)
        self.missing_mean = s.missing_reward * self.base
        if s.rewards in BOUNDED:
            self.missing_mean = min(self.missing_mean, 0.95)
        self.value = (1 - s.missing) * value + s.missing * self.missing_mean - s.cost
        self.baseline_value = baseline - s.cost
        self.largest = float(self.weight.max() * self.by_length[there].max())
        top = 1.0 if s.rewards in BOUNDED else np.inf
        self.reward_bounds = (-s.cost, top - s.cost)
        self.propensity = min(0.5, 0.999 / self.largest)

    def _means(self, bent: Any, effect: Any, of_length: Any) -> np.ndarray:
        mean = self.base * bent * effect * of_length
        return np.minimum(mean, 0.95) if self.setting.rewards in BOUNDED else np.asarray(mean)

    def log_with_kinds(self, number: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Columns of one log, and each row's kind."""
        s = self.setting
        rng = np.random.default_rng([s.seed, number])
        lengths = 1 + np.searchsorted(np.cumsum(self.lengths)[:-1], rng.random(s.users), side="right")
        user = np.repeat(np.arange(s.users), lengths)
        n = user.size
        draws = rng.random(s.users if s.weights == "by_user" else n)
        if self.chance[0] == self.chance[-1]:
            kind = (draws * self.chance.size).astype(np.int64)
        else:
            kind = np.searchsorted(np.cumsum(self.chance)[:-1], draws, side="right")
        if s.weights == "by_user":
            kind = kind[user]
        if s.weights == "user_and_row":
            kind = kind % KINDS_OF_USERS + KINDS_OF_USERS * rng.integers(0, KINDS_OF_USERS, s.users)[user]
        weight = self.weight[kind]
        row_length = lengths[user] - 1
        if s.weights == "by_length":
            weight = weight * self.by_length[row_length]
        effect = self.effects[rng.integers(0, self.effects.size, s.users)][user] if s.effect is not None else 1.0
        mean = self._means(self.bent[kind], effect, self.of_length[row_length])
        reward = _rewards(s, mean, rng)
        columns = {"reward": reward, "cluster": user}
        if s.missing:
            lost = np.where(rng.random(n) < 0.5, 2 * s.missing, 0.0)
            weight = weight * (1 - lost)
            columns["unsupported"] = lost
        propensity = np.full(n, self.propensity)
        return columns | {"propensity": propensity, "target": weight * propensity, "baseline": propensity}, kind

    def actions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(k,) context, action and logging probability in that context, of each kind of row."""
        if self.setting.weights == "softmax":
            cell = np.argsort(_softmax_weights(self.setting)[1], axis=None)
            return cell // ACTIONS, cell % ACTIONS, self.chance * CONTEXTS
        return np.zeros(self.chance.size, int), np.arange(self.chance.size), self.chance


def _rewards(s: Setting, mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n,) rewards of means (n,)."""
    n = mean.size
    if s.rewards in ("binary", "cost"):
        return (rng.random(n) < mean) - s.cost
    if s.rewards == "graded":
        return rng.binomial(4, mean) / 4.0
    if s.rewards == "lognormal":
        return mean * np.exp(s.spread * rng.standard_normal(n) - s.spread**2 / 2)
    if s.rewards == "basket":
        bought = rng.random(n) < s.rate
        return bought / s.rate * mean * np.exp(s.spread * rng.standard_normal(n) - s.spread**2 / 2)
    if s.rewards == "gamma":
        return mean * rng.gamma(s.spread, 1.0 / s.spread, n)
    if s.rewards == "weibull":
        return mean * rng.weibull(s.spread, n) / math.gamma(1.0 + 1.0 / s.spread)
    chance = rng.random(n)
    if s.rewards == "loglogistic":
        angle = math.pi / s.spread
        return mean * (chance / (1.0 - chance)) ** (1 / s.spread) * math.sin(angle) / angle
    return mean * chance ** (-1 / s.spread) * (s.spread - 1) / s.spread


def _weights(s: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Logging probabilities and weights of the kinds of rows; the mean weight is 1."""
    from scipy.special import ndtri

    middle = (np.arange(POINTS) + 0.5) / POINTS
    equal = np.full(POINTS, 1 / POINTS)
    if s.weights == "two_point":
        heavy, mass = s.shape
        rare = mass / heavy
        return np.array([1 - rare, rare]), np.array([(1 - mass) / (1 - rare), heavy])
    if s.weights == "epsilon_greedy":
        epsilon, actions, share = s.shape
        each = epsilon / actions
        greedy = 1 - epsilon + each
        others = 1 - greedy - each
        return np.array([greedy, others, each]), np.array([(1 - share) / greedy, 0.0, share / each])
    if s.weights == "three_point":
        heavy, mass, idle = s.shape
        rare = mass / heavy
        return np.array([1 - idle - rare, idle, rare]), np.array([(1 - mass) / (1 - idle - rare), 0.0, heavy])
    if s.weights == "softmax":
        return _softmax(s)
    if s.weights == "user_and_row":
        points = (np.arange(KINDS_OF_USERS) + 0.5) / KINDS_OF_USERS
        between, within = (np.exp(sd * ndtri(points)) for sd in s.shape)
        product = np.outer(between / between.mean(), within / within.mean()).ravel()
        return np.full(product.size, 1 / product.size), product
    if s.weights == "gamma":
        from scipy.special import gammaincinv

        weight = gammaincinv(s.shape[0], middle)
    elif s.weights == "pareto":
        weight = (1 - middle) ** (-1 / s.shape[0])
    else:
        weight = np.exp((s.shape[1] if s.weights == "by_length" else s.shape[0]) * ndtri(middle))
    return equal, weight / weight.mean()


def _softmax(s: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Every action of every context is a kind of row; the policies' logits are normal."""
    logging, weight = _softmax_weights(s)
    order = np.argsort(weight, axis=None)
    return (logging / CONTEXTS).ravel()[order], weight.ravel()[order]


def _softmax_weights(s: Setting) -> tuple[np.ndarray, np.ndarray]:
    """(contexts, actions) logging probabilities and weights."""
    rng = np.random.default_rng([s.seed, CONTEXTS, ACTIONS])
    logits = s.shape[0] * rng.standard_normal((CONTEXTS, ACTIONS))
    own, target = (np.exp(x) for x in (logits, logits + s.shape[1] * rng.standard_normal(logits.shape)))
    logging = own / own.sum(axis=1, keepdims=True)
    return logging, target / target.sum(axis=1, keepdims=True) / logging
