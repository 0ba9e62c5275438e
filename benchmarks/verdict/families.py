"""The families that the verdict's rules are developed on, each with its exact values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from generator import World as Drawn
from generator import draw_fresh, draw_settings
from interface import Family, Log
from worlds import World, bought, changed, greedy, ranking, rates, softmax, stars, watched, with_jackpot

SEED = 20271122

# name, logger, its epsilon or floor, items, contexts, users, lengths, shape of user effects, mean click rate
PRODUCTION: list[tuple[str, str, float, int, int, int, tuple[str, float], float | None, float]] = [
    ("p01-greedy.05-k5", "greedy", 0.05, 5, 20, 20_000, ("geometric", 5.0), 1.0, 0.05),
    ("p02-greedy.05-k20", "greedy", 0.05, 20, 40, 25_000, ("geometric", 4.0), 1.0, 0.04),
    ("p03-greedy.05-k50", "greedy", 0.05, 50, 20, 30_000, ("pareto", 1.4), 1.0, 0.03),
    ("p04-greedy.1-k10", "greedy", 0.1, 10, 30, 15_000, ("geometric", 8.0), None, 0.05),
    ("p05-greedy.1-k20", "greedy", 0.1, 20, 50, 25_000, ("pareto", 1.2), 1.0, 0.03),
    ("p06-greedy.1-k50", "greedy", 0.1, 50, 25, 20_000, ("geometric", 6.0), 1.0, 0.03),
    ("p07-greedy.1-k30", "greedy", 0.1, 30, 60, 8_000, ("fixed", 20.0), 0.5, 0.02),
    ("p08-greedy.2-k10", "greedy", 0.2, 10, 20, 60_000, ("pareto", 1.4), 1.0, 0.005),
    ("p09-greedy.2-k30", "greedy", 0.2, 30, 30, 12_000, ("geometric", 10.0), 1.0, 0.04),
    ("p10-greedy.2-k50", "greedy", 0.2, 50, 20, 10_000, ("pareto", 1.2), 1.0, 0.04),
    ("p11-softmax.1-k20", "softmax", 0.1, 20, 30, 20_000, ("geometric", 4.0), 1.0, 0.03),
    ("p12-softmax.2-k50", "softmax", 0.2, 50, 20, 40_000, ("pareto", 1.4), 1.0, 0.03),
    ("p13-bucket-k10", "uniform", 1.0, 10, 40, 8_000, ("geometric", 4.0), 1.0, 0.03),
    ("p14-bucket-k50", "uniform", 1.0, 50, 20, 20_000, ("geometric", 4.0), 1.0, 0.03),
]


def production() -> list[Family]:
    """Realistic settings: a model ranks items, a better one is to replace it; a bucket's "today" did not log."""
    found = [_clicks(number, *row).family(production=True) for number, row in enumerate(PRODUCTION)]
    rng = np.random.default_rng([SEED, 100])
    sales = rates(rng, 30, 10, 0.02)
    prices = np.round(np.geomspace(5.0, 60.0, 10), 2)
    shop = _against("p15-revenue", rng, sales * prices, greedy(ranking(rng, sales * prices, 0.8), 0.1), 30_000)
    found.append(replace(shop, rewards=bought(prices)).family(production=True, reward_max=60.0))
    liked = 1.0 + 4.0 * np.clip(0.6 + 0.15 * rng.standard_normal((20, 30)), 0.1, 0.95)
    rated = _against("p16-ratings", rng, liked, softmax(4.0 * ranking(rng, liked, 0.1), 0.1), 6_000)
    found.append(replace(rated, rewards=stars).family(production=True, reward_min=1.0, reward_max=5.0))
    share = np.clip(0.35 + 0.12 * rng.standard_normal((25, 20)), 0.05, 0.8)
    films = _against("p17-watched", rng, share, greedy(ranking(rng, share, 0.3), 0.1), 10_000)
    return [*found, replace(films, rewards=watched).family(production=True)]


def _clicks(number: int, name: str, logger: str, epsilon: float, items: int, contexts: int, users: int,
            lengths: tuple[str, float], effect: float | None, rate: float) -> World:  # fmt: skip
    rng = np.random.default_rng([SEED, number])
    mean = rates(rng, contexts, items, rate)
    today = ranking(rng, mean, 0.8)
    logging = {"greedy": greedy(today, epsilon), "softmax": softmax(2.0 * today, epsilon),
               "uniform": greedy(today, 1.0)}[logger]  # fmt: skip
    baseline = greedy(today, 0.0) if logger == "uniform" else logging
    world = _against(name, rng, mean, logging, users, lengths)
    return replace(world, baseline=baseline, effect=effect)


def _against(name: str, rng: np.random.Generator, mean: np.ndarray, logging: np.ndarray, users: int,
             lengths: tuple[str, float] = ("geometric", 5.0)) -> World:  # fmt: skip
    """A logger, and a new model with its own ranking and no exploration."""
    return World(name, mean, logging, greedy(ranking(rng, mean, 0.4), 0.0), logging, users, lengths)


# ------------------------------------------------------------------------------------------------------ hard and honest


def revenue() -> list[Family]:
    """Forty prices; logging shows cheap items, the target dear ones. Every item is logged hundreds of times."""
    found = []
    for name, top, chance in (("revenue-dear", 2000.0, 3e-4), ("revenue-dearest", 10_000.0, 6e-5)):
        prices = np.append(np.round(np.geomspace(5.0, 50.0, 30), 2), np.full(10, top))
        sold = np.append(np.full(30, 0.05), np.full(10, chance))
        logging = np.append(np.full(30, 0.97 / 30), np.full(10, 0.003))
        target = np.append(np.full(30, 0.5 / 30), np.full(10, 0.05))
        one = (x[None, :] for x in (prices * sold, logging, target, logging))
        world = World(name, *one, users=25_000, lengths=("geometric", 4.0), rewards=bought(prices))
        found.append(world.family(reward_max=top, note="few of the dear items are sold, or none"))
    return found


def jackpots() -> list[Family]:
    """Clicks, and a prize that most logs hold once or not at all."""
    found = []
    for name, wins in (("jackpot-anywhere", np.ones(8)), ("jackpot-target", np.append(np.zeros(6), [1.0, 1.0]))):
        rng = np.random.default_rng([SEED, 200 + int(wins.sum())])
        mean = rates(rng, 10, 8, 0.05) + 1000.0 * 3e-5 * wins
        logging = softmax(rng.standard_normal(mean.shape), 0.3)
        world = World(name, mean, logging, softmax(np.tile(wins, (10, 1)), 0.2), logging, 6_000, ("geometric", 5.0))
        family = replace(world, rewards=with_jackpot(1000.0, 3e-5, wins)).family(reward_max=1000.0)
        found.append(replace(family, note="a prize of 1,000 with chance 3e-5"))
    return found


def rare() -> list[Family]:
    """Two per cent of the target's mass at propensity 4e-5, paying twenty times as much; support is full."""
    found = []
    logging = np.array([[0.6, 0.25, 0.1, 0.05 - 4e-5, 4e-5]])
    target = np.array([[0.1, 0.2, 0.3, 0.38, 0.02]])
    for name, users, rate in (("rare-10k", 10_000, 0.05), ("rare-20k", 20_000, 0.04), ("rare-50k", 50_000, 0.02)):
        mean = rate * np.array([[1.0, 1.0, 1.0, 1.0, 20.0]])
        note = "the heavy action is in the log a few times or never"
        found.append(World(name, mean, logging, target, logging, users).family(note=note))
    return found


def pairs() -> list[Family]:
    """Differences: the typed example, two new policies, nearly equal ones, with and without uneven users."""
    rng = np.random.default_rng([SEED, 300])
    shown, other = np.tile(np.arange(10) == 0, (20, 1)), np.tile(np.arange(10) == 1, (20, 1))
    mean = np.full((20, 10), 0.03) + 0.015 * shown
    mean[:10] += 0.0196 * other[:10]
    target = np.where(np.arange(20)[:, None] < 10, other, shown).astype(float)
    logging = greedy(shown.astype(float), 0.2)
    found = [World("typed-difference", mean, logging, target, logging, 300_000).family(note="item 2's example")]
    mean = rates(rng, 50, 20, 0.05)
    logging = greedy(ranking(rng, mean, 1.0), 0.1)
    two = _against("two-new-policies", rng, mean, logging, 25_000, ("geometric", 4.0))
    found.append(replace(two, baseline=greedy(ranking(rng, mean, 0.4), 0.0), effect=1.0).family())
    for name, lengths in (("nearly-equal", ("geometric", 4.0)), ("nearly-equal-uneven", ("pareto", 1.2))):
        table = rates(rng, 40, 20, 0.04)
        scores = ranking(rng, table, 1.0)
        logging, better = greedy(scores, 0.1), scores.copy()
        better[:2] = np.log(table[:2])
        world = World(name, table, logging, greedy(better, 0.0), greedy(scores, 0.0), 20_000, lengths, effect=1.0)
        found.append(world.family(note="the policies differ in two contexts of forty, at heavy weights"))
    return found


def others() -> list[Family]:
    """An offset, long users who earn less per row, the policy that logged, many rare items."""
    rng = np.random.default_rng([SEED, 400])
    mean = rates(rng, 20, 10, 0.05)
    logging = softmax(ranking(rng, mean, 0.8), 0.2)
    base = _against("", rng, mean, logging, 8_000, ("geometric", 5.0))
    plain = replace(base, name="offset-1000", effect=1.0).family(reward_min=1000.0, reward_max=1001.0)
    offset = changed(plain, lambda log: replace(log, reward=log.reward + 1000.0), value=plain.value + 1000.0,
                     baseline_value=plain.baseline_value + 1000.0, note="every reward is 1,000 more")  # fmt: skip
    long = replace(base, name="long-users-earn-less", users=3_000, lengths=("pareto", 1.2), length_power=-0.5)
    same = replace(base, name="same-policy", target=logging, effect=1.0).family(note="the target is the logger")
    few = replace(base, name="ninety-users", users=90, lengths=("fixed", 100.0)).family(note="fewer than 100 users")
    mean, logging, target = np.full((3, 1, 104), 0.05)
    mean[0, 4:], logging[0] = 0.2, np.append(np.full(4, 0.249), np.full(100, 4e-5))
    target[0] = np.append(np.full(4, 0.245), np.full(100, 2e-4))
    many = World("many-rare-items", mean, logging, target, logging, 40_000).family(note="weights of 5 at most")
    uneven = long.family(note="mean reward falls with the root of a user's rows")
    return [offset, uneven, same, few, many, _endless_users()]


def _endless_users(most: int = 100_000) -> Family:
    """Numbers of rows with a Pareto tail of index 2: no log shows the longest users, who earn least per row."""
    size = np.arange(1, most + 1)
    above = np.append(size, most + 1.0) ** -2.0
    above[-1] = 0.0
    chance = above[:-1] - above[1:]
    value = float(chance @ (0.9 * np.sqrt(size)) / (chance @ size))

    def draw(seed: int) -> Log:
        rng = np.random.default_rng([SEED, 410, seed])
        rows = 1 + np.searchsorted(np.cumsum(chance)[:-1], rng.random(1_000), side="right")
        user, rate = np.repeat(np.arange(1_000), rows), np.repeat(0.9 / np.sqrt(rows), rows)
        action = rng.integers(0, 2, user.size)
        reward, p = (rng.random(user.size) < rate).astype(float), np.full(user.size, 0.5)
        return Log(reward, p, np.array([0.8, 0.2])[action], p, user, action)

    facts = {"propensity_min": 0.5, "reward_min": 0.0, "reward_max": 1.0}
    return Family("endless-users", True, False, draw, value, value, facts=facts, note="users of up to 100,000 rows")


# ---------------------------------------------------------------------------------------------------------------- drawn

CHOSEN = ("000", "014", "024", "031", "041", "061", "077", "082", "f21", "f34")


def drawn() -> list[Family]:
    """Settings drawn for the first version of this study (generator.py), with full support."""
    wanted = [s for s in (*draw_settings(), *draw_fresh()) if s.name.split("-")[0] in CHOSEN]
    return [_of_setting(Drawn(setting)) for setting in wanted]


def _of_setting(world: Drawn) -> Family:
    context, action, chance = world.actions()

    def draw(seed: int) -> Log:
        columns, kind = world.log_with_kinds(seed)
        p = chance[kind]
        return Log(columns["reward"], p, world.weight[kind] * p, p, columns["cluster"], action[kind], context[kind])

    least, largest = world.reward_bounds
    # A kind of row stands for many actions, so that its chance is no least propensity: the heaviest weight is known.
    facts = {"weight_max": world.largest * (1 + 1e-9), "reward_min": least}
    facts |= {"reward_max": largest} if np.isfinite(largest) else {}
    name = f"drawn-{world.setting.name.rsplit('-', 1)[0]}"
    return Family(name, True, False, draw, world.value, world.baseline_value, facts=facts)


# ----------------------------------------------------------------------------------------------------------- not honest


def dishonest() -> list[Family]:
    """Logs on which something is wrong that the statements deny."""
    return [*_wrong_propensities(), *_learned(), *_dependent(), _missing()]


def _wrong_propensities() -> list[Family]:
    found = []
    for name, s, users, soft in (("changed-.5", 0.5, 10_000, 0.0), ("changed-.5-soft", 0.5, 10_001, 1.0),
                                 ("changed-.2", 0.2, 20_000, 0.0)):  # fmt: skip
        rng = np.random.default_rng([SEED, 500 + users])
        mean = rates(rng, 20, 20, 0.05)
        stated = softmax(2.0 * ranking(rng, mean, 0.8), 0.1)
        true = stated * np.exp(s * rng.standard_normal(20))
        true /= true.sum(axis=1, keepdims=True)
        world = _against(name, rng, mean, true, users, ("geometric", 4.0))
        target = softmax(np.log(mean), 0.2) if soft else world.target
        note = f"items' odds were changed after scoring, by exp({s} z)"
        world = replace(world, stated=stated, target=target, baseline=stated, effect=1.0)
        found.append(world.family(honest=False, note=note))
    rng = np.random.default_rng([SEED, 510])
    mean = np.concatenate([rates(rng, 20, 10, 0.02), rates(rng, 20, 10, 0.10)])
    scores = ranking(rng, mean, 0.8)
    keen = np.arange(40)[:, None] >= 20
    true = softmax(scores + np.where(keen, 1.0, -1.0) * (np.arange(10) < 3), 0.1)
    stated = np.tile((true[:20] + true[20:]) / 2.0, (2, 1))
    target = np.tile(greedy(ranking(rng, mean[:20] + mean[20:], 0.3), 0.0), (2, 1))
    world = World("confounded", mean, true, target, stated, 20_000, ("geometric", 4.0), stated=stated)
    family = world.family(honest=False, note="keen visitors, whom the log does not name, were shown other items")
    return [*found, changed(family, lambda log: replace(log, context=log.context % 20))]


def _learned() -> list[Family]:
    """All items are alike, so whatever is learned has the same value, exactly."""
    logging = softmax(np.random.default_rng([SEED, 520]).standard_normal((50, 10)), 0.3)
    found = []
    for name, how, users in (("trained-on-log", _best_means, 5_000), ("trained-on-large-log", _best_means, 25_000),
                             ("best-of-100", _best_of_100, 5_000)):  # fmt: skip
        world = World(name, np.full((50, 10), 0.05), logging, logging, logging, users, ("geometric", 4.0))
        note = (
            "the target is the best of 100 by this log" if how is _best_of_100 else "the target learned from this log"
        )
        family = world.family(honest=False, note=note)
        found.append(changed(family, lambda log, how=how: _with_target(log, how(log))))
    return found


def _with_target(log: Log, best: np.ndarray) -> Log:
    return replace(log, target=(best[log.context] == log.action).astype(float))


def _cells(log: Log, of: np.ndarray) -> np.ndarray:
    """(50, 10) sums by context and action."""
    return np.bincount(log.context * 10 + log.action, of, 500).reshape(50, 10)


def _best_means(log: Log) -> np.ndarray:
    """(50,) the action of the highest mean reward in each context."""
    return np.asarray((_cells(log, log.reward) / np.maximum(_cells(log, np.ones(log.reward.size)), 1.0)).argmax(axis=1))


def _best_of_100(log: Log) -> np.ndarray:
    """(50,) the actions of the policy that earns most by IPS."""
    policies = np.random.default_rng([SEED, 530]).integers(0, 10, (100, 50))
    earned = _cells(log, log.reward / log.propensity)
    return np.asarray(policies[earned[np.arange(50), policies].sum(axis=1).argmax()])


def _dependent() -> list[Family]:
    """Rows that are not independent where the log says that they are, and users whom what was shown changes."""
    rng = np.random.default_rng([SEED, 540])
    mean = rates(rng, 20, 10, 0.08)
    logging = softmax(ranking(rng, mean, 0.8), 0.2)
    base = _against("", rng, mean, logging, 10_000)

    def tripled(log: Log) -> Log:
        three = {name: np.repeat(getattr(log, name), 3) for name in ("reward", "propensity", "target", "baseline",
                                                                     "action", "context")}  # fmt: skip
        return Log(user=None, **three)

    thrice = replace(base, name="rows-tripled", lengths=("fixed", 1.0)).family(honest=False)
    own = replace(base, name="sessions-for-users", users=1_000, lengths=("fixed", 40.0), effect=0.3, mean=mean / 3.0)
    parts = own.family(honest=False, note="sessions of two rows are stated as users, whose tastes differ")
    return [
        changed(thrice, tripled, note="every row stands there three times, and no users are given"),
        changed(parts, lambda log: replace(log, user=np.arange(log.reward.size) // 2)),
        _tired(500, "carry-over-500"),
        _tired(3_000, "carry-over-3000"),
    ]


def _tired(users: int, name: str) -> Family:
    """Twenty rows per user; what was shown a moment ago is clicked .3 times as often. The value is an A/B test's."""
    mean = np.array([[0.08, 0.1, 0.12, 0.14, 0.3]])
    logging, target = np.full((1, 5), 0.2), np.array([[0.05, 0.05, 0.05, 0.05, 0.8]])
    world = World(name, mean, logging, target, logging, users, ("fixed", 20.0), rewards=_clicks_less_when_repeated)
    values = [float(mean[0] @ (p * (1.0 - 0.7 * p * 19 / 20))) for p in (target[0], logging[0])]
    family = world.family(honest=False, note="a repeat cuts clicks to .3, and the target repeats itself more")
    return replace(family, value=values[0], baseline_value=values[1])


def _clicks_less_when_repeated(rng: np.random.Generator, mean: np.ndarray, action: np.ndarray) -> np.ndarray:
    again = np.append(False, action[1:] == action[:-1]) & (np.arange(action.size) % 20 > 0)
    return (rng.random(mean.size) < mean * np.where(again, 0.3, 1.0)).astype(float)


def _missing() -> Family:
    """A tenth of what the target shows can never be logged, whatever is stated."""
    rng = np.random.default_rng([SEED, 550])
    mean = rates(rng, 20, 10, 0.05)
    mean[:, 9] = 0.15
    logging = softmax(ranking(rng, mean, 0.8), 0.2) * (np.arange(10) < 9)
    logging /= logging.sum(axis=1, keepdims=True)
    target = 0.9 * logging
    target[:, 9] = 0.1
    world = World("support-missing", mean, logging, target, logging, 10_000, ("geometric", 4.0))
    return world.family(honest=False, note="a tenth of the target's mass is on an item that is never logged")


MAKERS: tuple[Callable[[], list[Family]], ...] = (
    production, revenue, jackpots, rare, pairs, others, drawn, dishonest,
)  # fmt: skip
FAMILIES: list[Family] = [family for maker in MAKERS for family in maker()]


def named(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)
