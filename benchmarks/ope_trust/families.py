"""Families of logs: each a function from the parameters of a setting and its draws to a world.

``rows`` is the size of the log, ``rate`` the mean chance of a reward under the logger, ``gap`` how far the target is
from the logger (0 the same preferences, 1 unrelated ones), ``x`` what a family is about. settings.toml has the ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import log_softmax, ndtr, ndtri
from worlds import Draws, Numbers, People, Reward, World

Family = Callable[[dict[str, Any], Draws], World]
FAMILIES: dict[str, Family] = {}


def family(function: Family) -> Family:
    """Enter a family under its function's name."""
    FAMILIES[function.__name__] = function
    return function


# ------------------------------------------------------------------------------------------------------------- parts


def softmax(scores: Numbers) -> Numbers:
    """Laws of the rows of a table of scores."""
    return np.exp(log_softmax(scores, axis=1))


def explore(law: Numbers, share: float) -> Numbers:
    """A law with a share of uniform draws."""
    return (1 - share) * law + share / law.shape[1]


def greedy(scores: Numbers, share: float = 0.0) -> Numbers:
    """The best action of each row, with a share of uniform draws."""
    return explore(np.eye(scores.shape[1])[scores.argmax(1)], share)


def crowd(contexts: int, rows: int = 1, **more: Any) -> People:
    """Users of one kind, all contexts equally frequent."""
    states = np.full((1, contexts), 1 / contexts)
    return People(np.ones(1), np.array([rows]), states, **more)


def kinds(contexts: int, share: list[float], rows: list[int], **more: Any) -> People:
    """Users of several kinds; a context is (kind, what is seen)."""
    states = np.kron(np.eye(len(share)), np.full((1, contexts), 1 / contexts))
    return People(np.array(share) / sum(share), np.array(rows), states, **more)


def scores(p: dict[str, Any], d: Draws, contexts: int, actions: int) -> tuple[Numbers, Numbers]:
    """Preferences of the logger and of the target, standard normal, at the setting's angle."""
    logger = d.normal("logger", contexts * actions).reshape(contexts, actions)
    other = d.normal("target", contexts * actions).reshape(contexts, actions)
    angle = p["gap"] * np.pi / 2
    return logger, np.cos(angle) * logger + np.sin(angle) * other


def chances(p: dict[str, Any], d: Draws, logger: Numbers, *liked: Numbers, lift: float = 0.5) -> Numbers:
    """Chances of rewards with the setting's mean under a logger; higher where policies put their weight."""
    own = d.normal("chance", logger.size).reshape(logger.shape)
    raw = np.exp(lift * (own + sum(liked)) / np.sqrt(1 + len(liked)))
    return np.minimum(raw * p["rate"] / np.mean((logger * raw).sum(1)), 0.95)


def shop(p: dict[str, Any], d: Draws, contexts: int = 20, actions: int = 20, **more: Any) -> World:
    """A softmax logger with 5 % exploration and a softmax target that prefers other items."""
    sharp, share = more.pop("sharp", 1.0), more.pop("share", 0.05)
    s, t = scores(p, d, contexts, actions)
    logger = explore(softmax(sharp * s), share)
    people = more.pop("people", None) or crowd(contexts)
    return World(people, logger, softmax(sharp * t), chances(p, d, logger, s, t), p["rows"], **more)


def grouped(world: World) -> World:
    """The world with chances that stay below 1 within the groups that respond at all."""
    return replace(world, chance=np.minimum(world.chance, 0.95 * world.engaged))


def by_kind(world: World, people: People, effect: list[float], contexts: int) -> World:
    """The world for users of several kinds, whose chances are multiplied by their kind's effect."""
    n = len(effect)
    chance = np.concatenate([np.minimum(world.chance * e, 0.95) for e in effect])
    tables = {name: np.tile(getattr(world, name), (n, 1)) for name in ("logger", "target")}
    return replace(world, people=people, chance=chance, seen=np.tile(np.arange(contexts), n), **tables)


def order_value(sigma: float, cap: float) -> Reward:
    """Rewards for sales: lognormal with median 20, never above a cap; the gain is the capped mean, in closed form."""
    mu, edge = np.log(20.0), np.log(cap)
    body = np.exp(mu + sigma**2 / 2) * ndtr((edge - mu - sigma**2) / sigma)
    mean = float(body + cap * ndtr((mu - edge) / sigma))

    def draw(d: Draws, chance: Numbers, action: Numbers) -> Numbers:
        worth = np.exp(mu + sigma * ndtri(d.uniform("worth", len(chance))))
        return np.where(d.uniform("click", len(chance)) < chance, np.minimum(worth, cap), 0.0)

    return Reward(draw, gain=mean, high=cap)


def trials(n: int, offset: float = 0.0) -> Reward:
    """Counts: successes of n trials."""

    def draw(d: Draws, chance: Numbers, action: Numbers) -> Numbers:
        return offset + np.sum([d.uniform("click", len(chance), i) < chance for i in range(n)], axis=0)

    return Reward(draw, gain=float(n), offset=offset, low=offset, high=offset + n)


# ------------------------------------------------------------------------------------------- recommenders and bandits


@family
def shop_window(p, d):
    """A home page: one of 20 items, clicks."""
    return shop(p, d)


@family
def near_on_policy(p, d):
    """A small change: the target deviates in a share x of decisions."""
    world = shop(p, d)
    return replace(world, target=(1 - p["x"]) * world.logger + p["x"] * world.target)


@family
def epsilon_greedy(p, d):
    """Ten arms, a greedy logger with exploration x, a greedy target that mostly differs."""
    s, t = scores(p, d, 30, 10)
    logger = greedy(s, p["x"])
    return World(crowd(30), logger, greedy(t), chances(p, d, logger, s, t), p["rows"])


@family
def random_bucket(p, d):
    """Uniform traffic over x items, a sharp softmax target."""
    return shop(p, d, actions=round(p["x"]), share=1.0, sharp=2.0)


@family
def two_arms(p, d):
    """An even experiment of two variants, and a rule that personalises them."""
    _, t = scores(p, d, 40, 2)
    logger = np.full((40, 2), 0.5)
    return World(crowd(40), logger, greedy(t), chances(p, d, logger, t), p["rows"])


@family
def large_catalogue(p, d):
    """Two thousand items by popularity with 20 % uniform draws; the target flattens the popularity."""
    s, t = scores(p, d, 4, 2000)
    fame = -np.log1p(np.arange(2000.0))
    logger = explore(softmax(fame + 0.5 * s), 0.2)
    return World(crowd(4), logger, softmax(p["x"] * fame + 0.5 * t), chances(p, d, logger, t), p["rows"])


@family
def rare_clicks(p, d):
    """Banners: some clicks in a thousand."""
    return shop(p, d)


@family
def rare_conversions(p, d):
    """Purchases after a banner: some in ten thousand."""
    return shop(p, d)


@family
def likes_everywhere(p, d):
    """Most recommendations are liked."""
    return shop(p, d)


@family
def cold_softmax(p, d):
    """A logger that is nearly sure; the target sometimes is not."""
    s, t = scores(p, d, 25, 15)
    logger = softmax(p["x"] * s)
    return World(crowd(25), logger, softmax(0.5 * p["x"] * t), chances(p, d, logger, s), p["rows"])


@family
def learning_bandit(p, d):
    """Six arms of an epsilon-greedy bandit that learns during the log; a fixed target."""
    s, t = scores(p, d, 1, 6)
    even, chance = np.full((1, 6), 1 / 6), chances(p, d, softmax(s), s, t)
    return World(crowd(1), even, softmax(t), chance, p["rows"], learns=p["x"])


# ---------------------------------------------------------------------------------------------------- ads and revenue


@family
def tiny_propensities(p, d):
    """An ad server that explores a share x; the target moves to ads that it hardly shows."""
    s, t = scores(p, d, 20, 20)
    logger = explore(softmax(4 * s), p["x"])
    return World(crowd(20), logger, softmax(2 * t), chances(p, d, logger, t), p["rows"])


@family
def hidden_gems(p, d):
    """The target spends .1 on an ad of propensity x that is rewarded up to ten times as often."""
    s, t = scores(p, d, 20, 10)
    logger, target = softmax(s), softmax(t)
    chance = chances(p, d, logger, s)
    logger, target = (np.hstack([(1 - q) * law, np.full((20, 1), q)]) for law, q in ((logger, p["x"]), (target, 0.1)))
    return World(crowd(20), logger, target, np.hstack([chance, np.full((20, 1), min(0.9, 10 * p["rate"]))]), p["rows"])


@family
def order_values(p, d):
    """Revenue: a sale in some rows, lognormal."""
    return shop(p, d, reward=order_value(0.8, 500.0))


@family
def whales(p, d):
    """Revenue with outliers: a few orders are hundreds of times the median."""
    return shop(p, d, reward=order_value(2.0, 10_000.0))


@family
def returned_goods(p, d):
    """Profit: a sale earns 5 to 80, and -20 where it is sent back, 15 % of them."""

    def draw(d, chance, action):
        worth = 5 + 75 * d.uniform("worth", len(chance))
        kept = np.where(d.uniform("back", len(chance)) < 0.15, -20.0, worth)
        return np.where(d.uniform("click", len(chance)) < chance, kept, 0.0)

    return shop(p, d, reward=Reward(draw, gain=0.85 * 42.5 - 0.15 * 20, low=-20.0, high=80.0))


@family
def prices(p, d):
    """Eight prices from 1 to 30: a higher one is paid less often."""
    price = np.geomspace(1.0, 30.0, 8)

    def draw(d, chance, action):
        return np.where(d.uniform("click", len(chance)) < chance, price[action], 0.0)

    world = shop(p, d, actions=8, reward=Reward(draw, gain=price, high=30.0))
    return replace(world, chance=np.minimum(world.chance * (price / 5.0) ** -0.7, 0.95))


@family
def streams(p, d):
    """Songs played of twenty."""
    return shop(p, d, reward=trials(20))


@family
def dwell_time(p, d):
    """Seconds on a page, up to 120, mostly few."""

    def draw(d, chance, action):
        return np.where(chance > 0, 120 * d.uniform("time", len(chance)) ** (1 / np.maximum(chance, 1e-9) - 1), 0.0)

    return shop(p, d, reward=Reward(draw, gain=120.0, high=120.0))


@family
def stars(p, d):
    """Ratings of one to five stars."""
    return shop(p, d, reward=trials(4, offset=1.0))


# --------------------------------------------------------------------------------------------------- users, sessions


@family
def sessions(p, d):
    """Twelve rows per session; a share x of the sessions is of people who click at all."""
    return grouped(shop(p, d, people=crowd(20, 12), engaged=p["x"]))


@family
def one_banner_per_session(p, d):
    """The system draws once per user and shows that item in x rows of one context."""
    return shop(p, d, people=crowd(20, round(p["x"]), sticky=True), held=True)


@family
def heavy_users(p, d):
    """One user in a hundred has a few hundred rows; those click x times as often."""
    return by_kind(shop(p, d), kinds(20, [0.8, 0.19, 0.01], [2, 15, 300]), [1.0, 1.0, p["x"]], 20)


@family
def loyal_users(p, d):
    """The more rows a user has, the more he clicks."""
    return by_kind(shop(p, d), kinds(20, [0.5, 0.3, 0.15, 0.05], [1, 4, 12, 40]), [0.5, 0.8, 1.2, p["x"]], 20)


@family
def bots(p, d):
    """A share x of users are programs with 200 rows and no click."""
    return by_kind(shop(p, d), kinds(20, [1 - p["x"], p["x"]], [5, 200]), [1.0, 0.0], 20)


@family
def click_farms(p, d):
    """A share x of users are programs with 100 rows that click in half of them."""
    return by_kind(shop(p, d), kinds(20, [1 - p["x"], p["x"]], [5, 100]), [1.0, 0.5 / p["rate"]], 20)


@family
def households(p, d):
    """Cookies of eight rows; x cookies of one household respond together, which the log does not show."""
    return grouped(shop(p, d, people=crowd(20, 8), engaged=0.15, group=round(p["x"])))


@family
def fatigue(p, d):
    """Clicks fall by a factor x over the sixteen rows of a user's life."""
    people = crowd(20, 16, stages=4)
    world, falling = shop(p, d), np.tile(p["x"] ** (np.arange(4) / 3), 20)
    tables = {name: np.repeat(getattr(world, name), 4, axis=0) for name in ("logger", "target", "chance")}
    tables["chance"] *= falling[:, None]
    return replace(world, people=people, seen=np.repeat(np.arange(20), 4), **tables)


@family
def seasons(p, d):
    """Tastes and the logger change five times; the target is that of the last model."""
    people = crowd(10, 4, stages=5, calendar=True)
    s, t = scores(p, d, 50, 12)
    logger = explore(softmax(1.5 * s), 0.1)
    target = np.repeat(softmax(1.5 * t)[4::5], 5, axis=0)
    return World(people, logger, target, chances(p, d, logger, s), p["rows"], seen=np.arange(50) // 5)


# ------------------------------------------------------------------------------------------------- loggers, and defects


@family
def two_loggers(p, d):
    """A share x of users in a uniform bucket, the others under the production system; each with its propensity."""
    world = by_kind(shop(p, d, sharp=2.0, share=0.01), kinds(20, [p["x"], 1 - p["x"]], [6, 6]), [1.0, 1.0], 20)
    return replace(world, logger=np.vstack([np.full((20, 20), 0.05), world.logger[20:]]))


@family
def pooled_loggers(p, d):
    """The same, written with the propensity of the mixture."""
    world = two_loggers(p, d)
    mixed = p["x"] * world.logger[:20] + (1 - p["x"]) * world.logger[20:]
    return replace(world, written=np.tile(mixed, (2, 1)))


@family
def rounded_propensities(p, d):
    """Propensities written with two decimals, never below .01."""
    world = shop(p, d, actions=40, sharp=p["x"])
    return replace(world, written=np.maximum(np.round(world.logger, 2), 0.01))


@family
def raised_propensities(p, d):
    """Propensities below x are written as x."""
    world = shop(p, d, sharp=1.5)
    return replace(world, written=np.maximum(world.logger, p["x"]))


@family
def stale_propensities(p, d):
    """Propensities of yesterday's model: off by lognormal factors of spread x."""
    world = shop(p, d)
    noise = np.exp(p["x"] * d.normal("stale", world.logger.size).reshape(world.logger.shape))
    wrong = world.logger * noise
    return replace(world, written=wrong / wrong.sum(1, keepdims=True))


@family
def forgotten_filter(p, d):
    """A share x of items is out of stock and never drawn; propensities are written as if it were not."""
    world = shop(p, d)
    stock = d.uniform("stock", world.logger.size).reshape(world.logger.shape) >= p["x"]
    stock[:, 0] = True
    true, target = world.logger * stock, world.target * stock
    laws = {"logger": true / true.sum(1, keepdims=True), "target": target / target.sum(1, keepdims=True)}
    return replace(world, written=world.logger, **laws)


@family
def new_items(p, d):
    """The target gives a share x to items that the logger never shows; they are as good as the others."""
    world = shop(p, d)
    laws = ((world.logger, 0.0), (world.target, p["x"]))
    logger, target = (np.hstack([(1 - q) * law, np.full((20, 4), q / 4)]) for law, q in laws)
    fresh = np.minimum(p["rate"] * np.exp(0.5 * d.normal("fresh", 80).reshape(20, 4)), 0.95)
    return replace(world, logger=logger, target=target, chance=np.hstack([world.chance, fresh]))


@family
def blocked_contexts(p, d):
    """In one context of 20 the logger shows one item and the target others; chances there are x times as high."""
    world = shop(p, d)
    logger, chance = world.logger.copy(), world.chance.copy()
    logger[0] = np.eye(20)[world.target[0].argmin()]
    chance[0] = np.minimum(p["x"] * chance[0], 0.95)
    return replace(world, logger=logger, chance=chance)


@family
def retries(p, d):
    """Rows are written twice: 5 % of those without and a share x of those with a click."""
    return shop(p, d, people=crowd(20, 3), doubled=(0.05, p["x"]))
