"""Families of OPE-trust v2: thirty honest ones and ten whose logs are not what their owner says.

``rows`` is the size of the log, ``rate`` the mean chance of a reward under the logger, ``gap`` how far the target is
from the logger (0 the same preferences, 1 unrelated ones), ``x`` what a family is about. settings_v2.toml has the
ranges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from families import chances, explore, greedy, scores, softmax
from scipy.special import ndtr, ndtri
from worlds import Draws, Numbers
from worlds_v2 import SECONDS, Baited, Crowded, Learner, Pay, Shocked, Tired, Visits, World

Family = Callable[[dict[str, Any], Draws], World]
HONEST: dict[str, Family] = {}
DISHONEST: dict[str, Family] = {}


def honest(function: Family) -> Family:
    """Enter a family whose logs are as they say."""
    HONEST[function.__name__] = function
    return function


def dishonest(function: Family) -> Family:
    """Enter a family whose logs are not as they say."""
    DISHONEST[function.__name__] = function
    return function


# ------------------------------------------------------------------------------------------------------------- parts


def even(*shape: int) -> Numbers:
    """Uniform laws."""
    return np.full(shape, 1 / shape[-1])


def visits(p: dict[str, Any], seen: int, sizes: Numbers, kinds: int = 1, **more: Any) -> Visits:
    """Users of equally frequent kinds, sizes and contexts."""
    return Visits(p["rows"], even(kinds, seen), sizes, np.full((len(sizes), kinds), 1 / len(sizes) / kinds), **more)


def few(p: dict[str, Any], d: Draws, seen: int, kinds: int = 1, **more: Any) -> Visits:
    """Users of few rows: one each, up to eight within minutes, or up to thirty-two over the whole period."""
    lot = d.uniform("sizes", 1)[0]
    if lot < 0.3:
        return visits(p, seen, np.array([1]), kinds, **more)
    if lot < 0.7:
        return visits(p, seen, np.array([1, 1, 1, 2, 2, 3, 5, 8]), kinds, **more)
    return visits(p, seen, np.array([1, 2, 4, 8, 16, 32]), kinds, **{"session": False} | more)


def other(d: Draws, logger: Numbers, target: Numbers) -> Numbers:
    """A baseline: the logger itself, half of a roll-out of the target, or a candidate that flattens the logger."""
    lot = d.uniform("baseline", 1)[0]
    if lot < 0.4:
        return logger
    if lot < 0.6:
        return 0.5 * logger + 0.5 * target
    raw = np.sqrt(logger) * np.exp(0.7 * d.normal("candidate", logger.size).reshape(logger.shape))
    return raw / raw.sum(1, keepdims=True)


def wanted(d: Draws, preferences: Numbers) -> Numbers:
    """A target: mostly a softmax, at times greedy with exploration .1 or without."""
    lot = d.uniform("wanted", 1)[0]
    return softmax(preferences) if lot < 0.6 else greedy(preferences, 0.1 if lot < 0.8 else 0.0)


def tastes(d: Draws, chance: Numbers, kinds: int, spread: float) -> Numbers:
    """Chances of users of several kinds, who like some actions more and others less."""
    own = np.exp(spread * d.normal("taste", kinds * chance.shape[1]) - spread**2 / 2).reshape(kinds, 1, -1)
    return np.minimum(own * chance, 0.95).reshape(-1, chance.shape[1])


def times(chance: Numbers, *factors: float) -> Numbers:
    """Chances of users of several kinds, who respond more or less to everything."""
    return np.concatenate([np.minimum(chance * factor, 0.95) for factor in factors])


def build(d: Draws, who: Visits, logger: Numbers, target: Numbers, chance: Numbers, **more: Any) -> World:
    """A world from tables over what is seen and stages, or over all states; chances are over either, too."""
    full = len(who.states) * who.states.shape[1] * who.stages
    more.setdefault("baseline", other(d, logger, target))
    more.setdefault("seen", np.arange(full) // who.stages % who.states.shape[1])
    tables = {"logger": logger, "target": target, "baseline": more.pop("baseline"), "chance": chance}
    tables = {name: np.tile(table, (full // len(table), 1)) for name, table in tables.items()}
    return World(who, **tables, **more)


def page(p: dict[str, Any], d: Draws, seen: int = 12, actions: int = 15, **more: Any) -> World:
    """A softmax logger with some exploration, and a target of some kind; at times users who respond more or less."""
    sharp, share = 0.7 * 3 ** d.uniform("sharp", 1)[0], 0.02 * 15 ** d.uniform("share", 1)[0]
    s, t = scores(p, d, seen, actions)
    logger = explore(softmax(sharp * s), share)
    who, respond, chance = more.pop("who", None), more.pop("respond", None), chances(p, d, logger, s, t)
    if who is None and respond is None and d.uniform("people", 1)[0] < 0.6:
        who, respond = few(p, d, seen, 3), lambda chance: times(chance, 0.3, 1.0, 1.7)
    chance = respond(chance) if respond else chance
    return build(d, who or few(p, d, seen), logger, wanted(d, sharp * t), chance, **more)


def paid(d: Draws, chance: Numbers, worth: Numbers) -> Numbers:
    """Worths where there is a purchase, and nothing elsewhere."""
    return np.where(d.uniform("click", len(chance)) < chance, worth, 0.0)


def lognormal(median: Numbers, sigma: float, cap: float) -> Pay:
    """Baskets by the item: lognormal, never above a cap, with the capped mean in closed form."""
    mu, edge = np.log(median), np.log(cap)
    body = np.exp(mu + sigma**2 / 2) * ndtr((edge - mu - sigma**2) / sigma)
    mean = body + cap * ndtr((mu - edge) / sigma)

    def draw(d: Draws, chance: Numbers, action: Numbers) -> Numbers:
        worth = median[action] * np.exp(sigma * ndtri(d.uniform("worth", len(chance))))
        return paid(d, chance, np.minimum(worth, cap))

    return Pay(draw, lambda chance: chance * mean, high=cap)


def pareto(least: Numbers, tail: float, cap: float) -> Pay:
    """Orders by the item: P(order > y) = (least / y)^tail, never above a cap."""
    mean = least * tail / (tail - 1) - least**tail * cap ** (1 - tail) / (tail - 1)

    def draw(d: Draws, chance: Numbers, action: Numbers) -> Numbers:
        return paid(d, chance, np.minimum(least[action] * d.uniform("worth", len(chance)) ** (-1 / tail), cap))

    return Pay(draw, lambda chance: chance * mean, high=cap)


# ------------------------------------------------------------------------------------------------- honest: who comes


@honest
def zipf_readers(p, d):
    """Rows per user with a Zipf tail of exponent x; those with more rows respond in another way."""
    sizes = np.arange(1, min(2000, p["rows"] // 10) + 1)
    law = sizes ** -p["x"] / (sizes ** -p["x"]).sum()
    share = law[:, None] * np.eye(3)[np.searchsorted([4, 31], sizes, side="right")]
    who = Visits(p["rows"], even(3, 12), sizes, share, session=False)
    factors = np.exp(0.4 * d.normal("heavy", 3))
    return page(p, d, who=who, respond=lambda chance: times(chance, *factors))


@honest
def own_tastes(p, d):
    """Twelve kinds of users who like items of their own; the recommender sees a noisy segment."""
    who = visits(p, 12, np.arange(5, 61, 5), 12, session=False)
    who = replace(who, states=0.6 * np.eye(12) + 0.4 * even(12, 12))
    return page(p, d, who=who, respond=lambda chance: tastes(d, chance, 12, p["x"]))


@honest
def moody_sessions(p, d):
    """Sessions of 3 to 25 rows; a session's mood, which nobody sees, decides whether there are clicks at all."""
    who = visits(p, 12, np.arange(3, 26), 3)
    return page(p, d, who=who, respond=lambda chance: times(chance, 0.05, p["x"], 2.95 - p["x"]))


@honest
def crawler(p, d):
    """One id has a share x of all rows and never clicks."""
    who = few(p, d, 12, 2, alone=p["x"])
    who = replace(who, share=who.share * [2.0, 0.0])
    return page(p, d, who=who, respond=lambda chance: times(chance, 1.0, 0.0))


@honest
def guest(p, d):
    """A share x of rows is of people without account, all under one id, who come for other things."""
    who = visits(p, 12, np.arange(1, 20), 2, alone=p["x"])
    states = np.vstack([even(12), softmax(d.normal("guests", 12)[None])])
    who = replace(who, share=who.share * [2.0, 0.0], states=states)
    return page(p, d, who=who, respond=lambda chance: times(chance, 1.0, 0.5 + d.uniform("guest", 1)[0]))


@honest
def evening_traffic(p, d):
    """Most rows come in the evening, when other things are liked; the target knows the hour, the logger does not."""
    _, t = scores(p, d, 24, 10)
    s = np.repeat(d.normal("segment", 60).reshape(6, 10), 4, axis=0)
    logger, target = explore(softmax(1.5 * s), 0.1), softmax(np.cos(p["gap"]) * s + np.sin(p["gap"]) * 1.5 * t)
    who = replace(few(p, d, 24, session=False), states=np.tile([0.05, 0.2, 0.3, 0.45], 6)[None] / 6)
    return build(d, who, logger, target, chances(p, d, logger, s, t), parts=np.arange(24) % 4)


# ----------------------------------------------------------------------------------------------- honest: what is earned


@honest
def lognormal_baskets(p, d):
    """Sales of items of different prices, lognormal with spread x."""
    return page(p, d, pay=lognormal(30 * np.exp(0.4 * d.normal("price", 15)), p["x"], 1e4))


@honest
def pareto_orders(p, d):
    """Orders of businesses with a power tail of exponent x."""
    return page(p, d, pay=pareto(10 * np.exp(0.3 * d.normal("price", 15)), p["x"], 1e5))


@honest
def returned_parcels(p, d):
    """A sale earns 30 % of its price; one that is sent back, which some items often are, costs 8."""
    price, back = 10 * 10 ** d.uniform("price", 15), 0.05 + 0.5 * d.uniform("back", 15)

    def draw(d, chance, action):
        return paid(d, chance, np.where(d.uniform("returned", len(chance)) < back[action], -8.0, 0.3 * price[action]))

    mean = (1 - back) * 0.3 * price - back * 8
    return page(p, d, pay=Pay(draw, lambda chance: chance * mean, -8.0, 30.0))


@honest
def star_ratings(p, d):
    """Ratings of one to five stars, mostly the best or the worst one; half of the users are strict."""
    ladder, stars = np.cumsum([0.35, 0.15, 0.2, 0.3]), np.arange(1.0, 5.0)
    low = float(np.diff(ladder, prepend=0.0) @ stars)

    def draw(d, chance, action):
        others = stars[np.searchsorted(ladder[:3], d.uniform("star", len(chance)))]
        return np.where(d.uniform("click", len(chance)) < chance, 5.0, others)

    who = visits(p, 12, np.array([1, 2, 4, 8, 16, 32]), 2, session=False)
    pay = Pay(draw, lambda chance: 5 * chance + low * (1 - chance), 1.0, 5.0)
    return page(p, d, who=who, pay=pay, respond=lambda chance: times(chance, 1.3, 0.6))


@honest
def installs(p, d):
    """Installs of an app: some in ten thousand."""
    return page(p, d, actions=8)


@honest
def watched_minutes(p, d):
    """Films are seen to their end or left early; viewers of three kinds have different patience."""
    length = np.round(20 * 6 ** d.uniform("length", 15))

    def draw(d, chance, action):
        left = d.uniform("left", len(chance)) ** 3
        return length[action] * np.where(d.uniform("click", len(chance)) < chance, 1.0, left)

    pay = Pay(draw, lambda chance: length * (0.25 + 0.75 * chance), high=float(length.max()))
    return page(p, d, who=few(p, d, 12, 3), pay=pay, respond=lambda chance: times(chance, 0.4, 1.0, 1.6))


@honest
def notifications(p, d):
    """To send a message or not: it may be opened (1), or the user leaves (-5); nothing is earned without one."""
    s, t = scores(p, d, 30, 2)
    logger, leaves = explore(softmax(0.7 * s), 0.3), p["x"]

    def draw(d, chance, action):
        lot = d.uniform("click", len(chance))
        return np.where(action == 0, 0.0, np.where(lot < leaves, -5.0, 1.0 * (lot < leaves + chance)))

    pay = Pay(draw, lambda chance: np.array([0.0, 1.0]) * (np.minimum(chance, 1 - leaves) - 5 * leaves), -5.0, 1.0)
    who = visits(p, 30, np.array([1, 7, 14, 30]), session=False, days=30)
    return build(d, who, logger, greedy(t), chances(p, d, logger, t), pay=pay)


# ------------------------------------------------------------------------------------------------------ honest: loggers


@honest
def three_systems(p, d):
    """Users under a uniform bucket, a softmax and a nearly greedy system; each row has its own propensity."""
    s, t = scores(p, d, 12, 15)
    laws = np.vstack([even(12, 15), explore(softmax(2 * s), 0.02), greedy(s, 0.1)])
    who = few(p, d, 12, 3)
    who = replace(who, share=who.share * 3 * [p["x"], 0.7 - p["x"], 0.3])
    chance = chances(p, d, laws[12:24], s, t)
    return build(d, who, laws, np.tile(softmax(1.5 * t), (3, 1)), chance, system=np.arange(36) // 12)


@honest
def pooled_systems(p, d):
    """A share x of rows is decided by a uniform system, the others by a greedy one; only the mixture is written."""
    s, t = scores(p, d, 12, 10)
    pool = p["x"] * even(12, 10) + (1 - p["x"]) * greedy(s)
    who = replace(few(p, d, 24), states=np.repeat([p["x"] / 12, (1 - p["x"]) / 12], 12)[None])
    target, chance = np.tile(softmax(2 * t), (2, 1)), np.tile(chances(p, d, pool, s, t), (2, 1))
    tables = {"written": np.tile(pool, (2, 1)), "baseline": np.tile(other(d, pool, target[:12]), (2, 1))}
    return build(d, who, np.vstack([even(12, 10), greedy(s)]), target, chance, seen=np.arange(24) % 12, **tables)


@honest
def boltzmann_learner(p, d):
    """Eight arms in three contexts: a softmax of the arms' means that are learned from everybody's rows."""
    s, t = scores(p, d, 3, 8)
    chance, target = chances(p, d, even(3, 8), s, t, lift=0.8), softmax(2 * t)
    base = even(3, 8) if d.uniform("uniform", 1)[0] < 0.5 else softmax(s)
    return build(d, few(p, d, 3), even(3, 8), target, chance, baseline=base, learner=Learner(p["x"], 2.0, False))


@honest
def exponential_weights(p, d):
    """Twelve arms of a bandit that learns by exponential weights; a greedy target."""
    s, t = scores(p, d, 1, 12)
    chance, learner = chances(p, d, even(1, 12), s, t, lift=0.8), Learner(p["x"], 0.5, True)
    return build(d, few(p, d, 1), even(1, 12), greedy(t, 0.1), chance, baseline=softmax(s), learner=learner)


@honest
def epsilon_pair(p, d):
    """An epsilon-greedy logger with exploration x, and a target with half of it and other favourites."""
    s, t = scores(p, d, 20, 10)
    logger = greedy(s, p["x"])
    return build(d, few(p, d, 20), logger, greedy(t, p["x"] / 2), chances(p, d, logger, s, t))


@honest
def sure_logger(p, d):
    """A logger with 1 to 5 % of exploration; a deterministic target that agrees in most contexts."""
    s, t = scores(p, d, 40, 8)
    logger = greedy(s, p["x"])
    return build(d, few(p, d, 40), logger, greedy(t), chances(p, d, logger, s, t))


@honest
def uniform_thousand(p, d):
    """A uniform logger of x items, up to a thousand, and a sharp target."""
    actions = round(p["x"])
    _, t = scores(p, d, 6, actions)
    logger = even(6, actions)
    return build(d, few(p, d, 6), logger, softmax(1.5 * t), chances(p, d, logger, t))


# ------------------------------------------------------------------------------------------- honest: targets and items


@honest
def cooler_softmax(p, d):
    """The target is the logger at another temperature: scores times x."""
    s, _ = scores(p, d, 12, 15)
    logger = softmax(1.5 * s)
    return build(d, few(p, d, 12), logger, softmax(1.5 * p["x"] * s), chances(p, d, logger, s))


@honest
def greedy_target(p, d):
    """A softmax logger of x items; the target shows the one that it thinks best."""
    actions = round(p["x"])
    s, t = scores(p, d, 15, actions)
    logger = explore(softmax(s), 0.1)
    return build(d, few(p, d, 15), logger, greedy(t), chances(p, d, logger, s, t))


@honest
def tiny_doors(p, d):
    """The target spends up to .3 on an item of propensity x."""
    s, t = scores(p, d, 12, 12)
    logger, target = softmax(s), softmax(t)
    chance, spent = chances(p, d, logger, s, t), 0.05 + 0.25 * d.uniform("spent", 1)[0]
    logger, target = (np.hstack([(1 - q) * law, np.full((12, 1), q)]) for law, q in ((logger, p["x"]), (target, spent)))
    door = np.minimum(p["rate"] * np.exp(d.normal("door", 12)), 0.9)[:, None]
    return build(d, few(p, d, 12), logger, target, np.hstack([chance, door]))


@honest
def launched_items(p, d):
    """Ten of twenty items are launched half-way; logger and target show them from then on, the target more."""
    s, t = scores(p, d, 16, 20)
    late = (np.arange(20) >= 10)[None] * 1.0
    before = np.where((np.arange(16) % 2 == 0)[:, None], -np.inf * np.ones((1, 20)), 0.0)
    new = np.where(late > 0, before, 0.0)
    logger = softmax(s + new)
    logger = 0.95 * logger + 0.05 * (new == 0) / (new == 0).sum(1, keepdims=True)
    chance = chances(p, d, logger, s, t)
    return build(d, few(p, d, 8, stages=2), logger, softmax(t + p["x"] * late + new), chance)


@honest
def few_rows_each(p, d):
    """Five hundred items by popularity with few rows each; the target flattens the popularity."""
    s, t = scores(p, d, 3, 500)
    fame = -0.8 * np.log1p(np.arange(500.0))
    logger = explore(softmax(fame + 0.5 * s), 0.3)
    return build(d, few(p, d, 3), logger, softmax(p["x"] * fame + 0.7 * t), chances(p, d, logger, t))


@honest
def eligible_items(p, d):
    """In each context a share x of thirty items may be shown, by age, stock and country; both policies know which."""
    s, t = scores(p, d, 20, 30)
    may = d.uniform("may", 600).reshape(20, 30) < p["x"]
    may[:, :2] = True
    law, target = softmax(np.where(may, 1.5 * s, -np.inf)), softmax(np.where(may, 1.5 * t, -np.inf))
    logger = 0.95 * law + 0.05 * may / may.sum(1, keepdims=True)
    return build(d, few(p, d, 20), logger, target, chances(p, d, logger, s, t))


@honest
def drifting_tastes(p, d):
    """What is liked turns by an angle x over the year; logger and target are trained each month."""
    s, t = scores(p, d, 72, 12)
    angle = p["x"] * np.linspace(0, 1, 12)[None, :, None]
    first, last = (d.normal(name, 72).reshape(6, 1, 12) for name in ("first", "last"))
    liked = (np.cos(angle) * first + np.sin(angle) * last).reshape(72, 12)
    logger, target = explore(softmax(liked + 0.5 * s), 0.1), softmax(1.5 * liked + 0.5 * t)
    season = 1 + 0.5 * np.sin(2 * np.pi * np.arange(72) / 12)[:, None]
    chance = np.minimum(chances(p, d, logger, liked) * season, 0.95)
    return build(d, few(p, d, 6, stages=12, days=360), logger, target, chance)


# ------------------------------------------------------------------------------------------------ honest: rows as kept


@honest
def thinned_rows(p, d):
    """A share x of rows without click is kept, each with the weight of those that it stands for."""
    more = {**p, "rows": round(p["rows"] / (p["rate"] + (1 - p["rate"]) * p["x"]))}
    return page(more, d, kept=(p["x"], 1.0))


@honest
def thinned_items(p, d):
    """Rows of popular items are kept more rarely, by known chances."""
    more = {**p, "rows": round(2.5 * p["rows"])}
    world = page(more, d)
    often = world.visits.law() @ world.logger
    return replace(world, kept_items=np.minimum(1.0, p["x"] / len(often) / often))


@honest
def coincidences(p, d):
    """Three items, one context, whole days, rare clicks: users have many rows that look written twice."""
    who = visits(p, 1, np.array([2, 5, 10, 20, 40]), days=5, session=False)
    return page(p, d, seen=1, actions=3, who=who, dated=True)


# ------------------------------------------------------------------------------------------------------------ dishonest


def bored(p: dict[str, Any], d: Draws, who: Visits, effect: Any, actions: int = 20) -> World:
    """A uniform logger, and a target that shows the item that is best at first."""
    s, t = scores(p, d, who.states.shape[1], actions)
    logger = even(*s.shape)
    chance = chances(p, d, logger, t)
    return build(d, who, logger, greedy(t, 0.05), chance, effect=effect)


@dishonest
def tired_for_good(p, d):
    """An item that a user has seen before, at any distance, earns a fraction x."""
    return bored(p, d, visits(p, 2, np.array([10, 15, 20, 30]), session=False), Tired(p["x"], ever=True))


@dishonest
def tired_at_once(p, d):
    """An item that the user saw in the row before earns a fraction x."""
    return bored(p, d, visits(p, 2, np.array([6, 12, 24])), Tired(p["x"], ever=False), actions=12)


@dishonest
def carried_over(p, d):
    """Each time that a user is shown one of the loudest items, all that comes later earns a fraction x."""
    who = visits(p, 12, np.array([8, 12, 16]), session=False)
    world = page(p, d, who=who)
    more = world.visits.law() @ (world.target - world.logger)
    return replace(world, effect=Baited(p["x"], more >= np.sort(more)[-4]))


@dishonest
def crowded_items(p, d):
    """An item's chance falls as its share of everybody's rows grows; the target shows few items."""
    world = page(p, d, seen=4, actions=20, who=few(p, d, 4))
    hits, own = d.normal("hits", 20), d.normal("own", 80).reshape(4, 20)
    target = softmax(2 * hits + 0.5 * own)
    return replace(world, target=target, effect=Crowded(p["x"]))


@dishonest
def shocked_days(p, d):
    """Each day is good or bad for all users: chances times 1 + x or 1 - x."""
    world = page(p, d, who=few(p, d, 12, days=round(3 + 9 * d.uniform("days", 1)[0])))
    return replace(world, chance=np.minimum(world.chance, 0.5), effect=Shocked(p["x"]))


@dishonest
def swapped_model(p, d):
    """A share x of users is served by another version of the model than the one whose propensities are written."""
    world = page(p, d, who=few(p, d, 12, 2))
    share = world.visits.share * [2 * (1 - p["x"]), 2 * p["x"]]
    version = explore(softmax(1.2 * d.normal("version", 180).reshape(12, 15)), 0.05)
    true = np.vstack([world.logger[:12], version])
    who = replace(world.visits, share=share)
    return replace(world, visits=who, logger=true, written=world.logger)


@dishonest
def hidden_gap(p, d):
    """The logger never shows a share x of items, the target does; propensities are written as if all were shown."""
    world = page(p, d, who=few(p, d, 12))
    shown = d.uniform("shown", world.logger.size).reshape(world.logger.shape) >= p["x"]
    shown[:, 0] = True
    shown[0, 1] = False
    true = world.logger * shown
    return replace(world, logger=true / true.sum(1, keepdims=True), written=world.logger)


@dishonest
def written_twice(p, d):
    """A share x of rows with click, and a tenth of it without, is written again: at once, or seconds later."""
    delay = SECONDS * (d.uniform("delay", 1)[0] < 0.5)
    return page(p, d, doubled=(p["x"] / 10, p["x"]), delay=delay)


@dishonest
def told_target(p, d):
    """In a share x of clicks the target's probability was computed after the click was known."""
    return page(p, d, leak=p["x"])


@dishonest
def thinned_in_silence(p, d):
    """A share x of rows without click is kept, and nothing says so."""
    more = {**p, "rows": round(p["rows"] / (p["rate"] + (1 - p["rate"]) * p["x"]))}
    return page(more, d, kept=(p["x"], 1.0), told=False)


FAMILIES = HONEST | DISHONEST
