"""A second set of families of logs whose truth is known, drawn blind by an outside auditor.

A world is a finite table: kinds of users, contexts, items. A user's kind decides how many rows the user brings, in
which contexts, and what is liked. The mean reward of every cell is known, so the value of a fixed policy is a finite
sum over cells, weighted by the rows that a kind brings. Parameters come from a generator of their own, a log from
np.random.default_rng([number, seed]).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from interface import Family, Log

# --------------------------------------------------------------------------------------------------------------- tables


class Table:
    """Draws from the rows of a table of probabilities."""

    def __init__(self, chance: np.ndarray) -> None:
        chance = np.atleast_2d(np.asarray(chance, float))
        assert chance.min() >= 0.0
        assert np.allclose(chance.sum(1), 1.0, rtol=0.0, atol=1e-12)
        rows, self.k = chance.shape
        steps = np.minimum(np.cumsum(chance, 1), 1.0)
        for i in range(rows):  # what rounding leaves goes to the last entry that can be drawn
            steps[i, np.flatnonzero(chance[i])[-1] :] = 1.0
        self.steps = (steps + np.arange(rows)[:, None]).ravel()

    def pick(self, rng: np.random.Generator, row: np.ndarray) -> np.ndarray:
        """One entry for each of these rows."""
        at = np.searchsorted(self.steps, row + rng.random(len(row)), side="right") - row * self.k
        return np.minimum(at, self.k - 1)


def zipf(n: int, power: float) -> np.ndarray:
    """Shares that fall with a power of the rank."""
    p = np.arange(1.0, n + 1.0) ** -power
    return p / p.sum()


def geometric(means: Sequence[float], most: int) -> np.ndarray:
    """Probabilities of 1 to `most` rows, one line per kind of user."""
    p = (1.0 - 1.0 / np.asarray(means, float))[:, None] ** np.arange(most)
    return p / p.sum(1, keepdims=True)


def power_law(powers: Sequence[float], most: int) -> np.ndarray:
    """The same, with long tails."""
    p = np.arange(1.0, most + 1.0) ** -np.asarray(powers, float)[:, None]
    return p / p.sum(1, keepdims=True)


def between(least: int, most: int, kinds: int) -> np.ndarray:
    """The same, anything from `least` to `most` alike."""
    p = (np.arange(1, most + 1) >= least).astype(float)
    return np.tile(p / p.sum(), (kinds, 1))


def top(score: np.ndarray, *shares: float) -> np.ndarray:
    """The best items by score, with these shares; all to the best where none are given."""
    out, order = np.zeros_like(score), np.argsort(-score, 1)
    for i, share in enumerate(shares or (1.0,)):
        out[np.arange(len(score)), order[:, i]] = share
    return out


def explore(policy: np.ndarray, epsilon: float | np.ndarray) -> np.ndarray:
    """The policy, and with chance epsilon any item."""
    return (1.0 - epsilon) * policy + epsilon / policy.shape[1]


def softmax(score: np.ndarray, sharp: float, floor: float = 0.0) -> np.ndarray:
    """Shares by exp(sharp x score), of which none is below the floor."""
    z = np.exp(sharp * (score - score.max(1, keepdims=True)))
    z /= z.sum(1, keepdims=True)
    return (1.0 - floor * score.shape[1]) * z + floor


# -------------------------------------------------------------------------------------------------------------- rewards


class Clicks:
    """A click brings 1, or what it is worth in its cell; `worth` is also the most that the cell can bring."""

    def __init__(self, rate: np.ndarray, worth: np.ndarray | None = None) -> None:
        self.rate = rate
        self.worth = None if worth is None else np.broadcast_to(worth, rate.shape).ravel()
        self.mean = rate if worth is None else rate * worth
        self.limit = None if self.worth is None else np.maximum(self.worth, 0.0)

    def draw(self, rng: np.random.Generator, cell: np.ndarray) -> np.ndarray:
        """Rewards of rows in these cells."""
        hit = rng.random(len(cell)) < self.rate.ravel()[cell]
        return hit.astype(float) if self.worth is None else np.where(hit, self.worth[cell], 0.0)


class PartlyPaid(Clicks):
    """A sale brings a small share of its price, and rarely the whole price."""

    def __init__(self, rate: np.ndarray, price: np.ndarray, part: float, chance: float) -> None:
        super().__init__(rate, price)
        self.part, self.chance = part, chance
        self.mean = rate * price * (chance + (1.0 - chance) * part)

    def draw(self, rng: np.random.Generator, cell: np.ndarray) -> np.ndarray:
        """Rewards of rows in these cells."""
        paid = super().draw(rng, cell)
        return np.where(rng.random(len(cell)) < self.chance, paid, self.part * paid)


class Stars:
    """Ratings from 1 to 5: one star, and four chances of one more."""

    limit = None

    def __init__(self, liking: np.ndarray) -> None:
        self.liking, self.mean = liking, 1.0 + 4.0 * liking

    def draw(self, rng: np.random.Generator, cell: np.ndarray) -> np.ndarray:
        """Rewards of rows in these cells."""
        return 1.0 + rng.binomial(4, self.liking.ravel()[cell])


class Promoters:
    """What one reply adds to a net promoter score: -100, 0 or 100."""

    limit = None

    def __init__(self, liking: np.ndarray) -> None:
        self.liking = liking
        self.mean = 100.0 * (liking**2 - (1.0 - liking) ** 2)

    def draw(self, rng: np.random.Generator, cell: np.ndarray) -> np.ndarray:
        """Rewards of rows in these cells."""
        q, u = self.liking.ravel()[cell], rng.random(len(cell))
        return 100.0 * (u < q**2) - 100.0 * (u > 1.0 - (1.0 - q) ** 2)


class Watched:
    """Seconds of a clip: all of them, or a share u^power."""

    def __init__(self, through: np.ndarray, seconds: np.ndarray, power: float) -> None:
        self.through, self.power = through, power
        self.limit = np.broadcast_to(seconds, through.shape).ravel()
        self.mean = seconds * (through + (1.0 - through) / (1.0 + power))

    def draw(self, rng: np.random.Generator, cell: np.ndarray) -> np.ndarray:
        """Rewards of rows in these cells."""
        done, part = rng.random(len(cell)) < self.through.ravel()[cell], rng.random(len(cell)) ** self.power
        return self.limit[cell] * np.where(done, 1.0, part)


# --------------------------------------------------------------------------------------------------------------- worlds


class World:
    """Kinds of users (levels of an effect x homes), contexts, items, and how much each item appeals in each context.

    effect: levels add log odds from -effect to effect. stay: the share of a user's rows in the contexts of the user's
    home (the others are anywhere). item, cell, taste: spreads of what an item, an item in a context, an item for a kind
    adds.
    """

    def __init__(
        self,
        number: int,
        users: int,
        items: int,
        contexts: int,
        *,
        levels: int = 3,
        homes: int = 4,
        effect: float = 0.5,
        stay: float = 0.5,
        item: float = 0.4,
        cell: float = 0.4,
        taste: float = 0.15,
    ) -> None:
        self.number, self.users, self.items = number, users, items
        self.rng = rng = np.random.default_rng([number, 20_000_000])
        self.kinds = levels * homes
        self.share = np.outer(np.full(levels, 1.0 / levels), zipf(homes, 0.5)).ravel()
        self.effect = np.repeat(np.linspace(-effect, effect, levels) if levels > 1 else np.zeros(1), homes)
        anywhere = rng.permutation(zipf(contexts, 0.7))
        self.where = np.empty((self.kinds, contexts))
        for kind in range(self.kinds):
            home = np.where(np.arange(contexts) % homes == kind % homes, anywhere, 0.0)
            self.where[kind] = (1.0 - stay) * anywhere + stay * home / home.sum()
        self.appeal = rng.normal(0.0, item, items)[None, :] + rng.normal(0.0, cell, (contexts, items))
        self.taste = rng.normal(0.0, taste, (self.kinds, 1, items))
        self.rows = geometric(np.full(self.kinds, 2.0), 1)

    def model(self, error: float) -> np.ndarray:
        """Somebody's idea of the appeal."""
        return self.appeal + self.rng.normal(0.0, error, self.appeal.shape)

    @property
    def states(self) -> np.ndarray:
        """Share of the rows by kind of user and context."""
        rows = self.share * (self.rows @ np.arange(1, self.rows.shape[1] + 1))
        return (rows / rows.sum())[:, None] * self.where

    def rates(self, logging: np.ndarray, mean: float, sharp: float = 1.0) -> np.ndarray:
        """Chances by kind, context and item, whose mean under the logging policy is `mean`."""
        odds = sharp * (self.effect[:, None, None] + self.appeal + self.taste)
        low, high = -30.0, 30.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            rate = 1.0 / (1.0 + np.exp(-(odds + middle)))
            low, high = (middle, high) if self.value(logging, rate) < mean else (low, middle)
        return rate

    def value(self, policy: np.ndarray, mean: np.ndarray) -> float:
        """Mean reward of a policy, exactly."""
        return float((self.states * (policy * mean).sum(2)).sum())

    def people(self, rng: np.random.Generator, days: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Kind and user of every row; where kinds are those of days, users stand in the order of their days."""
        kind = Table(self.share).pick(rng, np.zeros(self.users, np.int64))
        if days:
            kind = kind[np.argsort(kind // (self.kinds // days), kind="stable")]
        user = np.repeat(np.arange(self.users), 1 + Table(self.rows).pick(rng, kind))
        return kind[user], user

    def log(
        self, rng: np.random.Generator, shown: np.ndarray, reward: Any, days: int = 0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """User, context, action, cell and reward of every row, items being drawn from `shown`."""
        kind, user = self.people(rng, days)
        context = Table(self.where).pick(rng, kind)
        action = Table(shown).pick(rng, context)
        cell = (kind * len(shown) + context) * self.items + action
        return user, context, action, cell, reward.draw(rng, cell)


FAMILIES: list[Family] = []


def add(
    name: str,
    world: World,
    logging: np.ndarray,
    target: np.ndarray,
    reward: Any,
    note: str,
    *,
    baseline: np.ndarray | None = None,
    kind: str = "production",
    singles: bool = False,
    days: int = 0,
    largest: bool = False,
    limits: bool = False,
    shown: np.ndarray | None = None,
    spoil: Callable[[np.random.Generator, Log], Log] | None = None,
    **facts: float,
) -> None:
    """One more family.

    kind: production, hard or wrong. singles: every row is a user, and `user` is None. largest: the largest probability
    of the policies is known, so that `weight_max` is. limits: the log has `reward_limit`. shown: what was really shown,
    where it was not the logging policy. spoil: what is done to a right log.
    """
    for policy in (logging, target, baseline, shown):
        assert policy is None or np.allclose(policy.sum(1), 1.0, rtol=0.0, atol=1e-12)
    if largest:
        most = max(target.max(), 0.0 if baseline is None else baseline.max())
        assert most < 0.7
        facts["weight_max"] = float(most / facts["propensity_min"])

    def draw(seed: int) -> Log:
        rng = np.random.default_rng([world.number, seed])
        user, context, action, cell, r = world.log(rng, logging if shown is None else shown, reward, days)
        p = logging[context, action]
        log = Log(
            reward=r,
            propensity=p,
            target=target[context, action],
            baseline=p if baseline is None else baseline[context, action],
            user=None if singles else user,
            action=action,
            context=context,
            **({"reward_limit": reward.limit[cell]} if limits else {}),
        )
        return log if spoil is None else spoil(rng, log)

    today = logging if shown is None else shown
    FAMILIES.append(
        Family(
            name=name,
            honest=kind != "wrong",
            production=kind == "production",
            draw=draw,
            value=world.value(target, reward.mean),
            baseline_value=world.value(today if baseline is None else baseline, reward.mean),
            facts=facts,
            note=note,
        )
    )


# ----------------------------------------------------------------------------------------------------------- production


def recipe_shelf() -> None:
    """Clicks, epsilon-greedy."""
    w = World(2701, 13_000, 12, 16)
    w.rows = geometric(4.0 + 2.0 * np.arange(w.kinds) / 3.0, 80)
    logging = explore(top(w.model(0.35)), 0.1)
    add(
        "recipe-shelf",
        w,
        logging,
        top(w.model(0.15)),
        Clicks(w.rates(logging, 0.06)),
        "epsilon-greedy, epsilon .1, 12 items, 16 contexts, clicks of 6 %; the target is a greedy ranking by a better "
        "model",
        propensity_min=0.1 / 12,
        reward_min=0.0,
        reward_max=1.0,
    )


def podcast_row() -> None:
    """Seconds heard of a trailer, softmax with a floor."""
    w = World(2702, 6_000, 20, 18, effect=0.8, taste=0.25)
    w.rows = geometric(np.linspace(3.0, 20.0, w.kinds), 150)
    logging = softmax(w.model(0.4), 2.0, 0.01)
    add(
        "podcast-row",
        w,
        logging,
        softmax(w.model(0.2), 3.0),
        Watched(w.rates(logging, 0.35), w.rng.choice([30.0, 45.0, 60.0, 90.0], 20), 2.0),
        "softmax with a floor of .01 over 20 items, seconds heard of trailers of 30 to 90; a sharper softmax of a "
        "better model",
        largest=True,
        propensity_min=0.01,
        reward_min=0.0,
        reward_max=90.0,
    )


def fashion_grid() -> None:
    """Revenue at list prices, 60 items."""
    w = World(2703, 30_000, 60, 12, item=0.5, cell=0.3)
    w.rows = geometric(np.linspace(2.0, 8.0, w.kinds), 60)
    price = np.round(np.clip(35.0 * np.exp(w.rng.normal(0.0, 0.6, 60)), 9.0, 110.0))
    logging = softmax(w.model(0.3), 1.5, 0.004)
    add(
        "fashion-grid",
        w,
        logging,
        softmax(w.model(0.2) + 0.7 * np.log(price / 35.0), 2.5),
        Clicks(w.rates(logging, 0.03), price),
        "softmax with a floor of .004 over 60 items, 3 % are bought at list prices of 9 to 110; a softmax that leans "
        "to dearer items",
        largest=True,
        limits=True,
        propensity_min=0.004,
        reward_min=0.0,
        reward_max=float(price.max()),
    )


def insurance_quotes() -> None:
    """Premiums that depend on who asks."""
    w = World(2704, 28_000, 8, 20, levels=2, homes=5, stay=0.8, effect=0.3)
    w.rows = geometric(np.full(w.kinds, 1.8), 12)
    premium = np.round(np.linspace(0.7, 2.2, 20)[:, None] * w.rng.uniform(120.0, 380.0, 8))
    logging = softmax(w.model(0.3) - 0.5 * np.log(premium / 300.0), 1.5, 0.03)
    add(
        "insurance-quotes",
        w,
        logging,
        top(w.model(0.2) + np.log(premium), 0.6, 0.25, 0.15),
        Clicks(w.rates(logging, 0.08), premium),
        "softmax with a floor of .03 over 8 tariffs, 8 % are bought at premiums that depend on the tariff and on who "
        "asks (20 classes of risk, each row has its quote); .6, .25, .15 to the three best by expected premium",
        largest=True,
        limits=True,
        propensity_min=0.03,
        reward_min=0.0,
        reward_max=float(premium.max()),
    )


def wine_cellar() -> None:
    """Prices that logging avoids."""
    w = World(2705, 30_000, 9, 10, item=0.2, cell=0.3)
    w.rows = geometric(np.linspace(3.0, 7.0, w.kinds), 50)
    price = np.round(6.0 * 15.0 ** (np.arange(9) / 8.0))
    w.appeal -= 0.5 * np.log(price)
    logging = explore(top(w.model(0.2)), 0.3)
    add(
        "wine-cellar",
        w,
        logging,
        top(w.model(0.15) + np.log(price)),
        Clicks(w.rates(logging, 0.07), price),
        "epsilon-greedy by chance of a sale, epsilon .3, 9 wines of 6 to 90: today's policy shows cheap ones, the "
        "target ranks by expected revenue and shows dear ones",
        limits=True,
        propensity_min=0.3 / 9,
        reward_min=0.0,
        reward_max=float(price.max()),
    )


def reply_scripts() -> None:
    """A net promoter score."""
    w = World(2706, 30_000, 5, 6, item=0.3, cell=0.3, effect=1.0)
    logging = softmax(w.model(0.3), 2.0, 0.06)
    add(
        "reply-scripts",
        w,
        logging,
        top(w.model(0.1)),
        Promoters(w.rates(logging, 0.62)),
        "softmax with a floor of .06 over 5 scripts, each reply is -100, 0 or 100 of a net promoter score, one per "
        "customer; greedy",
        singles=True,
        propensity_min=0.06,
        reward_min=-100.0,
        reward_max=100.0,
    )


def course_stars() -> None:
    """Ratings, half-way to a greedy policy."""
    w = World(2707, 5_000, 10, 14, levels=5, homes=3, effect=1.2, taste=0.2)
    w.rows = geometric(np.linspace(14.0, 4.0, w.kinds), 100)
    logging = explore(top(w.model(0.4)), 0.08)
    add(
        "course-stars",
        w,
        logging,
        explore(top(w.model(0.2)), 0.35),
        Stars(w.rates(logging, 0.65)),
        "epsilon-greedy, epsilon .08, 10 courses, ratings from 1 to 5, severe users rate less often; .65 to the best "
        "item by a better model and the rest to all alike",
        largest=True,
        propensity_min=0.08 / 10,
        reward_min=1.0,
        reward_max=5.0,
    )


def app_banners() -> None:
    """Rare conversions, two candidates."""
    w = World(2708, 150_000, 5, 12, item=0.3, cell=0.4)
    logging = explore(top(w.model(0.5)), 0.2)
    target, other = top(w.model(0.15)), top(w.model(0.5))
    add(
        "app-banners",
        w,
        logging,
        target,
        Clicks(w.rates(logging, 0.012)),
        "a uniform bucket of .2 of the visits, else greedy; 5 banners, 1.2 % convert, one row per visitor; compared "
        "with another candidate, not with today's policy",
        baseline=other,
        singles=True,
        propensity_min=0.2 / 5,
        reward_min=0.0,
        reward_max=1.0,
    )


def short_clips() -> None:
    """Watch time of users of very different zeal."""
    w = World(2709, 6_500, 40, 20, effect=0.7, taste=0.3)
    w.rows = power_law(np.linspace(1.9, 1.3, w.kinds), 300)
    logging = softmax(w.model(0.4), 2.0, 0.004)
    add(
        "short-clips",
        w,
        logging,
        softmax(w.model(0.2), 2.5),
        Watched(w.rates(logging, 0.25), np.round(w.rng.uniform(12.0, 60.0, 40)), 1.5),
        "softmax with a floor of .004 over 40 clips of 12 to 60 seconds, seconds watched, users of 1 to 300 rows; "
        "each row has its clip's length as limit; a sharper softmax of a better model",
        largest=True,
        limits=True,
        propensity_min=0.004,
        reward_min=0.0,
        reward_max=60.0,
    )


def front_page_segments() -> None:
    """An epsilon for each segment."""
    w = World(2710, 18_000, 15, 16, homes=2, stay=0.9)
    w.rows = geometric(np.where(np.arange(w.kinds) % 2 == 0, 9.0, 2.5), 120)
    epsilon = np.where(np.arange(16) % 2 == 0, 0.08, 0.3)[:, None]
    logging = explore(top(w.model(0.3)), epsilon)
    add(
        "front-page-segments",
        w,
        logging,
        explore(top(w.model(0.15)), 0.02),
        Clicks(w.rates(logging, 0.09)),
        "epsilon-greedy, epsilon .3 for new and .08 for returning visitors, 15 stories, clicks of 9 %; the target "
        "keeps an epsilon of .02",
        propensity_min=0.08 / 15,
        reward_min=0.0,
        reward_max=1.0,
    )


def ride_discounts() -> None:
    """Margins less discounts, of either sign."""
    w = World(2711, 14_000, 6, 15, item=0.1, cell=0.3, effect=0.4)
    w.rows = geometric(np.linspace(1.5, 5.0, w.kinds), 40)
    discount = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    margin = np.round(np.linspace(3.0, 14.0, 15), 1)[w.rng.permutation(15)][:, None]
    w.appeal += 0.25 * discount
    logging = softmax(w.model(0.3), 1.5, 0.04)
    rate = w.rates(logging, 0.4)
    expected = (rate.mean(0) * (margin - discount)) + w.rng.normal(0.0, 0.3, (15, 6))
    add(
        "ride-discounts",
        w,
        logging,
        0.5 * top(expected) + 0.5 / 6,
        Clicks(rate, margin - discount),
        "softmax with a floor of .04 over 6 discounts; a ride that is taken (40 %) brings its margin less the "
        "discount, -2 to 14; half to the best discount by expected margin, half to all alike",
        largest=True,
        limits=True,
        propensity_min=0.04,
        reward_min=float((margin - discount).min()),
        reward_max=float((margin - discount).max()),
    )


def grocery_substitutes() -> None:
    """Acceptance of a substitute: most rows are rewarded."""
    w = World(2712, 9_000, 8, 24, effect=0.8, item=0.3, cell=0.5)
    w.rows = geometric(np.linspace(3.0, 11.0, w.kinds), 90)
    logging = explore(top(w.model(0.5)), 0.12)
    add(
        "grocery-substitutes",
        w,
        logging,
        top(w.model(0.2)),
        Clicks(w.rates(logging, 0.66)),
        "epsilon-greedy, epsilon .12, 8 substitutes for what is out of stock, 66 % are accepted; greedy by a better "
        "model",
        propensity_min=0.12 / 8,
        reward_min=0.0,
        reward_max=1.0,
    )


# ------------------------------------------------------------------------------------------------------ honest and hard


def clinic_reminders() -> None:
    """A hundred and twenty users."""
    w = World(2721, 120, 6, 12, levels=5, homes=4, effect=1.4, stay=0.8, taste=0.5)
    w.rows = between(100, 500, w.kinds)
    logging = explore(top(w.model(0.4)), 0.3)
    add(
        "clinic-reminders",
        w,
        logging,
        top(w.model(0.2)),
        Clicks(w.rates(logging, 0.2)),
        "120 users of 100 to 500 rows, very different from each other; epsilon .3, 6 reminders, 20 % are followed",
        kind="hard",
        propensity_min=0.3 / 6,
        reward_min=0.0,
        reward_max=1.0,
    )


def seldom_shown() -> None:
    """The target's best item is hardly in the log."""
    w = World(2722, 16_000, 10, 12)
    w.rows = geometric(np.full(w.kinds, 5.0), 60)
    score = w.model(0.3)
    score[:, 9] = -8.0
    logging = softmax(score, 1.5, 0.001)
    w.appeal[:, 9] = w.appeal.max() + 0.7
    share = np.where(np.arange(12) % 4 == 1, 0.3, 0.0)[:, None]
    add(
        "seldom-shown",
        w,
        logging,
        (1.0 - share) * top(np.where(np.arange(10) == 9, -9.0, w.model(0.2))) + share * (np.arange(10) == 9),
        Clicks(w.rates(logging, 0.04)),
        "softmax with a floor of .001 over 10 items; a new item, at the floor, is much the best, and the target gives "
        "it .3 in some contexts, where fourteen rows of the log show it and two of them are clicked",
        kind="hard",
        propensity_min=0.001,
        reward_min=0.0,
        reward_max=1.0,
    )


def deposit_or_all() -> None:
    """Jackpots within the price limit."""
    w = World(2723, 20_000, 10, 8, item=0.3, cell=0.3)
    w.rows = geometric(np.full(w.kinds, 4.0), 40)
    price = np.round(150.0 * 6.0 ** (w.rng.permutation(10) / 9.0))
    logging = explore(top(w.model(0.3)), 0.2)
    add(
        "deposit-or-all",
        w,
        logging,
        top(w.model(0.2) + 0.5 * np.log(price)),
        PartlyPaid(w.rates(logging, 0.05), price, 0.02, 0.006),
        "epsilon .2, 10 journeys of 150 to 900; 5 % book and leave a deposit of 2 %, six in a thousand of them pay "
        "all at once: nearly a quarter of the revenue, within the price limit of each row",
        kind="hard",
        limits=True,
        propensity_min=0.2 / 10,
        reward_min=0.0,
        reward_max=float(price.max()),
    )


def gamers_uneven() -> None:
    """Users of 1 to 3,000 rows, and the long ones like other items."""
    w = World(2724, 5_000, 8, 10, levels=4, homes=3, effect=0.7, stay=0.6, taste=0.4)
    w.rows = power_law(np.repeat([2.2, 2.0, 1.8, 1.6], 3), 3_000)
    logging = explore(top(w.model(0.4)), 0.25)
    add(
        "gamers-uneven",
        w,
        logging,
        top(w.model(0.2)),
        Clicks(w.rates(logging, 0.12)),
        "users of 1 to 3,000 rows by a power law, long ones click more and like other items; epsilon .25, 8 quests",
        kind="hard",
        propensity_min=0.25 / 8,
        reward_min=0.0,
        reward_max=1.0,
    )


def tilted_twins() -> None:
    """Two softmax policies that hardly differ."""
    w = World(2725, 18_000, 15, 20, item=0.4, cell=0.3)
    w.rows = geometric(np.linspace(2.0, 8.0, w.kinds), 60)
    price = np.round(w.rng.uniform(5.0, 40.0, 15))
    logging = softmax(w.model(0.4), 1.5, 0.01)
    score = w.model(0.2)
    tilted = score + 0.002 * np.log(price) + w.rng.normal(0.0, 0.02, score.shape)
    add(
        "tilted-twins",
        w,
        logging,
        softmax(tilted, 1.6),
        Clicks(w.rates(logging, 0.06), price),
        "the target and the candidate it is compared with are softmax policies of the same scores, one tilted a very "
        "little to dearer items; 15 items of 5 to 40, of which the log has each row's price and nobody states the "
        "largest",
        baseline=softmax(score, 1.6),
        kind="hard",
        largest=True,
        limits=True,
        propensity_min=0.01,
        reward_min=0.0,
    )


def festival_days() -> None:
    """Popularity drifts by day, and a user belongs to one day."""
    days, parts, items = 15, 4, 9
    w = World(2726, 12_000, items, days * parts, levels=days, homes=2, effect=0.0, item=0.2, cell=0.2, taste=0.2)
    w.share = np.repeat(zipf(days, 0.4)[w.rng.permutation(days)], 2) / 2.0
    w.rows = geometric(np.tile([3.0, 9.0], days), 80)
    w.effect = (w.rng.normal(0.0, 0.4, days)[:, None] + np.array([-0.4, 0.4])).ravel()
    drift = 0.9 * np.sin(2.0 * np.pi * (np.arange(days)[:, None] / days + np.arange(items) / items))
    w.appeal += np.repeat(drift, parts, 0)
    w.where = np.repeat(np.kron(np.eye(days), w.rng.dirichlet(np.full(parts, 4.0))), 2, 0)
    before = np.repeat(np.roll(drift, 1, 0) - drift, parts, 0)
    logging = explore(top(w.model(0.2) + before), 0.15)
    add(
        "festival-days",
        w,
        logging,
        top(w.model(0.2)),
        Clicks(w.rates(logging, 0.1)),
        "15 days, each user on one day; which of 9 stages is liked drifts by day, and so does everything; today's "
        "policy follows a day late, epsilon .15; the context is day and hour",
        kind="hard",
        days=days,
        propensity_min=0.15 / items,
        reward_min=0.0,
        reward_max=1.0,
    )


# --------------------------------------------------------------------------------------------------- something is wrong


def pinned_brand() -> None:
    """Propensities from before a business rule."""
    w = World(2731, 14_000, 12, 12)
    w.rows = geometric(np.full(w.kinds, 5.0), 60)
    logging = softmax(w.model(0.3), 1.5, 0.02)
    pinned = np.where(np.arange(12) % 3 == 0, 0.12, 0.0)[:, None]
    w.appeal[:, [3, 7]] += 0.5
    add(
        "pinned-brand",
        w,
        logging,
        top(w.model(0.3) + 0.4 * np.isin(np.arange(12), [3, 7])),
        Clicks(w.rates(logging, 0.07)),
        "after scoring a rule puts one of two brands in .12 of the rows of a third of the contexts; the log has the "
        "scored propensity of what was shown",
        kind="wrong",
        shown=(1.0 - pinned) * logging + pinned * 0.5 * np.isin(np.arange(12), [3, 7]),
        propensity_min=0.02,
        reward_min=0.0,
        reward_max=1.0,
    )


def tuned_on_half() -> None:
    """A target tuned on the log's first half and judged on all of it."""
    w = World(2732, 9_000, 30, 16, item=0.0, cell=0.0, taste=0.0)
    w.rows = geometric(np.full(w.kinds, 5.0), 60)
    section = np.arange(30) // 6
    w.appeal = w.rng.normal(0.0, 0.4, (16, 5))[:, section]
    first = w.appeal.argmax(1)
    logging = explore(top(w.model(0.4)), 0.2)

    def tune(rng: np.random.Generator, log: Log) -> Log:
        half = len(log.reward) // 2
        code = log.context[:half] * 30 + log.action[:half]
        shown, clicks = (np.bincount(code, x, 480).reshape(16, 30) for x in (None, log.reward[:half]))
        rate = np.where(section == section[first][:, None], (clicks + 0.5) / (shown + 5.0), -1.0)
        chosen = rate.argmax(1)
        return Log(
            reward=log.reward,
            propensity=log.propensity,
            target=(log.action == chosen[log.context]).astype(float),
            baseline=log.propensity,
            user=log.user,
            action=log.action,
            context=log.context,
        )

    add(
        "tuned-on-half",
        w,
        logging,
        top(w.appeal),
        Clicks(w.rates(logging, 0.08)),
        "30 items in 5 sections, items of a section are alike; which item of the best section is shown in each of 16 "
        "contexts was picked by click rate in the first half of the log that judges it",
        kind="wrong",
        spoil=tune,
        propensity_min=0.2 / 30,
        reward_min=0.0,
        reward_max=1.0,
    )


def crawler_copies() -> None:
    """Sessions that crawlers replay under new ids."""
    w = World(2733, 8_000, 8, 12, effect=0.8, taste=0.4)
    w.rows = geometric(np.full(w.kinds, 6.0), 60)
    logging = explore(top(w.model(0.4)), 0.2)

    def replay(rng: np.random.Generator, log: Log) -> Log:
        rows = np.bincount(log.user)
        first = np.cumsum(rows) - rows
        source = rng.choice(np.flatnonzero(rows >= 15), 12, replace=False)
        copies = np.repeat(source, 60)
        again = np.concatenate([np.arange(first[u], first[u] + rows[u]) for u in copies])
        keep = np.concatenate([np.arange(len(log.reward)), again])
        user = np.concatenate([log.user, len(rows) + np.repeat(np.arange(len(copies)), rows[copies])])
        return Log(
            reward=log.reward[keep],
            propensity=log.propensity[keep],
            target=log.target[keep],
            baseline=log.baseline[keep],
            user=user,
            action=log.action[keep],
            context=log.context[keep],
        )

    add(
        "crawler-copies",
        w,
        logging,
        top(w.model(0.2)),
        Clicks(w.rates(logging, 0.15)),
        "crawlers replay twelve long sessions sixty times each, rewards and all, under new users' ids; the value is "
        "that of people",
        kind="wrong",
        spoil=replay,
        propensity_min=0.2 / 8,
        reward_min=0.0,
        reward_max=1.0,
    )


def floored_in_log() -> None:
    """Propensities that were raised to a floor when they were written."""
    w = World(2734, 16_000, 25, 14)
    w.rows = geometric(np.full(w.kinds, 5.0), 60)
    logging = explore(top(w.model(0.35)), 0.2)

    def write(rng: np.random.Generator, log: Log) -> Log:
        p = np.maximum(log.propensity, 0.02)
        return Log(
            reward=log.reward,
            propensity=p,
            target=log.target,
            baseline=p,
            user=log.user,
            action=log.action,
            context=log.context,
        )

    add(
        "floored-in-log",
        w,
        logging,
        top(w.model(0.15)),
        Clicks(w.rates(logging, 0.08)),
        "epsilon .2 over 25 items, so .008 at least, but the log was written with .02 for everything below",
        kind="wrong",
        spoil=write,
        propensity_min=0.2 / 25,
        reward_min=0.0,
        reward_max=1.0,
    )


def late_conversions() -> None:
    """Conversions of the last days that have not arrived."""
    days, parts, items = 10, 3, 6
    w = World(2735, 40_000, items, days * parts, levels=days, homes=2, effect=0.0, stay=0.0, item=0.3, cell=0.0)
    w.rows = geometric(np.full(w.kinds, 2.0), 20)
    w.where = np.repeat(np.kron(np.eye(days), w.rng.dirichlet(np.full(parts, 4.0))), 2, 0)
    w.appeal += np.tile(w.rng.normal(0.0, 0.3, (parts, items)), (days, 1))
    slow = np.array([0.05, 0.1, 0.2, 0.5, 0.6, 0.7])
    w.appeal += 0.6 * slow
    w.taste = np.tile(w.taste[:2], (days, 1, 1))
    logging = softmax(np.tile(w.model(0.3)[:parts], (days, 1)) - slow, 1.5, 0.05)
    left = np.arange(days)[::-1][:, None]
    arrived = 1.0 - slow ** (1.0 + left)

    def lose(rng: np.random.Generator, log: Log) -> Log:
        there = rng.random(len(log.reward)) < arrived[log.context // parts, log.action]
        return Log(
            reward=np.where(there, log.reward, 0.0),
            propensity=log.propensity,
            target=log.target,
            baseline=log.baseline,
            user=log.user,
            action=log.action,
            context=log.context % parts,
        )

    add(
        "late-conversions",
        w,
        logging,
        top(np.tile(w.model(0.1)[:parts], (days, 1))),
        Clicks(w.rates(logging, 0.06)),
        "ten days; conversions arrive days after the click, those of some items later, and the log was closed on the "
        "last day; the value is that of all conversions",
        kind="wrong",
        days=days,
        spoil=lose,
        propensity_min=0.05,
        reward_min=0.0,
        reward_max=1.0,
    )


def thinned_misses() -> None:
    """Rows without a click that were thinned out to save storage."""
    w = World(2736, 12_000, 10, 12, effect=0.6)
    w.rows = geometric(np.full(w.kinds, 9.0), 90)
    logging = softmax(w.model(0.3), 1.5, 0.03)

    def thin(rng: np.random.Generator, log: Log) -> Log:
        keep = np.flatnonzero((log.reward > 0.0) | (rng.random(len(log.reward)) < 0.7))
        return Log(
            reward=log.reward[keep],
            propensity=log.propensity[keep],
            target=log.target[keep],
            baseline=log.baseline[keep],
            user=np.unique(log.user[keep], return_inverse=True)[1],
            action=log.action[keep],
            context=log.context[keep],
        )

    add(
        "thinned-misses",
        w,
        logging,
        top(w.model(0.15)),
        Clicks(w.rates(logging, 0.2)),
        "three in ten rows without a click were dropped to save storage, and nobody remembers; the value is that of "
        "all rows",
        kind="wrong",
        spoil=thin,
        propensity_min=0.03,
        reward_min=0.0,
        reward_max=1.0,
    )


class Series:
    """A world in which serials warm users up for what comes next; the carry-over fades by chance."""

    number, users, items, contexts, most, fade, lift = 2737, 5_000, 8, 6, 20, 0.6, 0.6

    def __init__(self) -> None:
        rng = np.random.default_rng([self.number, 20_000_000])
        self.where = rng.dirichlet(np.full(self.contexts, 5.0))
        self.rows = geometric([12.0], self.most)[0]
        appeal = rng.normal(0.0, 0.3, (self.contexts, self.items))
        self.serial = np.arange(self.items) < 3
        self.rate = 0.12 * np.exp(np.clip(appeal, -0.8, 0.8))
        self.logging = softmax(appeal + rng.normal(0.0, 0.3, appeal.shape), 1.5, 0.05)
        self.target = top(appeal + 0.5 * self.serial, 0.8, 0.2)

    def value(self, policy: np.ndarray) -> float:
        """Clicks per row of users who meet this policy only, exactly."""
        share = float(self.where @ (policy * self.serial).sum(1))
        cold = float(self.where @ (policy * self.rate).sum(1))
        warm, clicks, rows = 0.0, 0.0, 0.0
        for row in range(self.most):
            there = self.rows[row:].sum()
            clicks += there * cold * (1.0 + self.lift * warm)
            rows += there
            warm = share + (1.0 - share) * self.fade * warm
        return float(clicks / rows)

    def draw(self, seed: int, policy: np.ndarray | None = None) -> Log:
        """A log of the logging policy, or of another one."""
        rng = np.random.default_rng([self.number, seed])
        policy = self.logging if policy is None else policy
        rows = 1 + Table(self.rows).pick(rng, np.zeros(self.users, np.int64))
        user = np.repeat(np.arange(self.users), rows)
        context = Table(self.where).pick(rng, np.zeros(len(user), np.int64))
        action = Table(policy).pick(rng, context)
        stays, first = rng.random(len(user)) < self.fade, np.cumsum(rows) - rows
        warm = np.zeros(len(user))
        for row in range(1, self.most):
            at = first[rows > row] + row
            warm[at] = self.serial[action[at - 1]] | ((warm[at - 1] > 0.0) & stays[at])
        chance = self.rate[context, action] * (1.0 + self.lift * warm)
        p = policy[context, action]
        return Log(
            reward=(rng.random(len(user)) < chance).astype(float),
            propensity=p,
            target=self.target[context, action],
            baseline=p,
            user=user,
            action=action,
            context=context,
        )


def serials_warm() -> None:
    """Carry-over from one row to those after it."""
    w = Series()
    FAMILIES.append(
        Family(
            name="serials-warm",
            honest=False,
            production=False,
            draw=w.draw,
            value=w.value(w.target),
            baseline_value=w.value(w.logging),
            facts={"propensity_min": 0.05, "reward_min": 0.0, "reward_max": 1.0},
            note="a serial warms its user up for the rows after it (clicks x 1.6 until it fades), and the target "
            "shows more serials; the value is an A/B test's",
        )
    )


for build in (
    recipe_shelf,
    podcast_row,
    fashion_grid,
    insurance_quotes,
    wine_cellar,
    reply_scripts,
    course_stars,
    app_banners,
    short_clips,
    front_page_segments,
    ride_discounts,
    grocery_substitutes,
    clinic_reminders,
    seldom_shown,
    deposit_or_all,
    gamers_uneven,
    tilted_twins,
    festival_days,
    pinned_brand,
    tuned_on_half,
    crawler_copies,
    floored_in_log,
    late_conversions,
    thinned_misses,
    serials_warm,
):
    build()
