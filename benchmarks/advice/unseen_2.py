"""Twenty hidden worlds by somebody who has read nothing of ``recsim_mnar/fitting``; nine are slow or delayed.

The rules before the present ones were judged by them and failed; the present ones were changed with them in sight.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from interface import Hidden
from lives import Floats, Ints, Lives, LivesParams, LivesWorld, logistic, logistic_sessions, logit, made
from numpy.typing import NDArray

from recsim_mnar.rng import Stream
from recsim_mnar.worlds.sessions import SessionsParams

Bools = NDArray[np.bool_]
Actions = NDArray[np.int32]
Kept = dict[str, tuple[str, float]]
_TRAIT, _LIFE = Stream.EXPOSURE, Stream.PURCHASE
"""Streams of a user's traits and of the length of a life; nothing else here draws from them."""


@dataclass(frozen=True)
class FreshParams(LivesParams):
    """Parameters of every family here.

    Attributes:
        n_categories: of items; at most n_factors.
        align: cosine, on average, between what an item is to those who view and to those who click.
        quality: standard deviation of the items' offsets of clicks that have nothing to do with views.
        fame: what an item's offset of views adds to the logit of a click.
        tail: standard deviation among users of the logit of a click.
        heavy: standard deviation among users of the logarithm of a life's length.
    """

    n_categories: int = 4
    align: float = 0.7
    quality: float = 0.5
    fame: float = 0.0
    tail: float = 0.0
    heavy: float = 0.0


class FreshLives(Lives):
    """Users to whom every item has an appeal, a logit that is theirs from arrival on.

    Attributes:
        keeps: what the family keeps of users, by name: width (a parameter's name, "" for one number), first value.
        appeal: (n_lanes, n_items).
    """

    keeps: ClassVar[Kept] = {}

    def __init__(self, world: FreshWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.appeal = np.zeros((n_lanes, world.n_items))
        for name, (width, first) in self.keeps.items():
            shape = (n_lanes, getattr(world.params, width)) if width else (n_lanes,)
            setattr(self, name, np.full(shape, first))

    def settle(self, which: Ints) -> None:
        """See :meth:`Lives.settle`."""
        p = self.world.params
        for name, (_, first) in self.keeps.items():
            getattr(self, name)[which] = first
        self.appeal[which] = self.world.appeal(self.taste[which])
        if p.tail:
            self.appeal[which] += p.tail * self.of_user(which, 1, stream=_TRAIT, normal=True)
        if p.heavy:
            z = self.of_user(which, 1, stream=_LIFE, normal=True)[:, 0]
            longer = np.round(self.left[which] * np.exp(p.heavy * z - p.heavy**2 / 2.0)).astype(np.int64)
            self.left[which] = np.clip(longer, 1, int(8 * p.life))

    def logits(self, which: Ints) -> Floats:
        """(n, n_items) of a click now."""
        return self.appeal[which]

    def chances(self, which: Ints) -> Floats:
        """See :meth:`Lives.chances`."""
        return logistic(self.logits(which))


class FreshWorld(LivesWorld):
    """Items with categories, and with factors and offsets of clicks that are not those of views."""

    name = "fresh"
    params_class: ClassVar[type[LivesParams]] = FreshParams
    lanes_class: ClassVar[type[Lives]] = FreshLives

    def draw(self) -> None:
        """See :meth:`LivesWorld.draw`."""
        p = self.params
        own = _unit(self.normals(Stream.CATALOGUE, p.n_factors, 1))
        self.click_factors = _unit(p.align * self.factors + np.sqrt(1.0 - p.align**2) * own)
        self.worth = p.quality * self.normals(Stream.OFFSETS, 1, 1)[:, 0] + p.fame * self.offsets
        self.category = self.factors[:, : p.n_categories].argmax(axis=1)
        self.draw_more()

    def draw_more(self) -> None:
        """Draw what only the family has."""

    def appeal(self, taste: Floats) -> Floats:
        """(n, n_items) logit of a click of users of these tastes."""
        p = self.params
        return logit(p.level) + p.effect * _product(taste, self.click_factors) + self.worth

    def view_logits(self, taste: Floats) -> Floats:
        """See :meth:`LivesWorld.view_logits`."""
        return self.params.sharpness * _product(taste, self.factors) + self.params.popularity * self.offsets

    def opposed(self, to: Floats, how: float, block: int) -> Floats:
        """(n_items,) standard offsets whose correlation with ``to`` is about ``how``."""
        scaled = (to - to.mean()) / to.std()
        return how * scaled + np.sqrt(1.0 - how**2) * self.normals(Stream.OFFSETS, 1, block)[:, 0]


def family(name: str, params: type[LivesParams], lanes: type[Lives]) -> type[LivesWorld]:
    """A world whose catalogue has nothing of its own."""
    own = {"name": name.removesuffix("World").lower(), "params_class": params, "lanes_class": lanes}
    return type(name, (FreshWorld,), own | {"__module__": __name__})


def _product(left: Floats, right: Floats) -> Floats:
    """``left @ right.T``, whose last bits do not depend on how many rows there are."""
    return (left[:, None, :] * right[None, :, :]).sum(axis=2)


def _unit(rows: Floats) -> Floats:
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class HabitParams(FreshParams):
    """Attributes: cost: logits that a category alone costs in the end; keep: of the habit at each decision."""

    cost: float = 4.0
    keep: float = 0.95


class HabitLives(FreshLives):
    """A category that one is shown over and over is overlooked; the habit forms, and is lost, over many decisions."""

    keeps: ClassVar[Kept] = {"habit": ("n_categories", 0.0)}

    def logits(self, which: Ints) -> Floats:
        return self.appeal[which] - self.world.params.cost * self.habit[which][:, self.world.category]

    def shown(self, which: Ints, actions: Actions, clicked: Bools) -> None:
        keep = self.world.params.keep
        self.habit[which] *= keep
        self.habit[which, self.world.category[actions]] += 1.0 - keep


HabitWorld = family("HabitWorld", HabitParams, HabitLives)


@dataclass(frozen=True)
class AcquiredParams(FreshParams):
    """Attributes: after: showings of an item before it is liked; gain: logits from then on."""

    after: int = 5
    gain: float = 2.0


class AcquiredLives(FreshLives):
    """An item is understood only once it has been shown so many times; until then nothing changes."""

    keeps: ClassVar[Kept] = {"met": ("n_items", 0)}

    def logits(self, which: Ints) -> Floats:
        p = self.world.params
        return self.appeal[which] + p.gain * (self.met[which] >= p.after)

    def shown(self, which: Ints, actions: Actions, clicked: Bools) -> None:
        self.met[which, actions] += 1


AcquiredWorld = family("AcquiredWorld", AcquiredParams, AcquiredLives)


@dataclass(frozen=True)
class PayoffParams(FreshParams):
    """Attributes: lag: decisions until it shows; gain: logits of a standard payoff; how: it goes with worth."""

    lag: int = 7
    gain: float = 1.2
    how: float = -0.8


class PayoffLives(FreshLives):
    """What was shown ``lag`` decisions ago has gone well or badly, and the user answers accordingly, once."""

    keeps: ClassVar[Kept] = {"past": ("lag", -1)}

    def logits(self, which: Ints) -> Floats:
        p = self.world.params
        then = self.past[which, self.n_decisions[which] % p.lag]
        moved = np.where(then >= 0, p.gain * self.world.payoff[np.maximum(then, 0)], 0.0)
        return self.appeal[which] + moved[:, None]

    def shown(self, which: Ints, actions: Actions, clicked: Bools) -> None:
        self.past[which, self.n_decisions[which] % self.world.params.lag] = actions


class PayoffWorld(family("PayoffWorld", PayoffParams, PayoffLives)):  # type: ignore[misc]
    def draw_more(self) -> None:
        self.payoff = self.opposed(self.worth, self.params.how, 2)


@dataclass(frozen=True)
class NeedParams(FreshParams):
    """Attributes: need: clicks in a category that satisfy it; depth: logits that its items lose then, for good."""

    need: int = 3
    depth: float = 3.0


class NeedLives(FreshLives):
    """Whoever has bought so often in a category needs no more of it."""

    keeps: ClassVar[Kept] = {"bought": ("n_categories", 0)}

    def logits(self, which: Ints) -> Floats:
        p = self.world.params
        return self.appeal[which] - p.depth * (self.bought[which] >= p.need)[:, self.world.category]

    def shown(self, which: Ints, actions: Actions, clicked: Bools) -> None:
        self.bought[which, self.world.category[actions]] += clicked


NeedWorld = family("NeedWorld", NeedParams, NeedLives)


@dataclass(frozen=True)
class LookingParams(FreshParams):
    """Attributes: rate: of learning at each decision."""

    rate: float = 0.05


class LookingLives(FreshLives):
    """Users look at the slot as often as it has shown them something good (delta rule), and click what they see."""

    keeps: ClassVar[Kept] = {"looks": ("", 0.5)}

    def chances(self, which: Ints) -> Floats:
        return self.looks[which][:, None] * logistic(self.appeal[which])

    def shown(self, which: Ints, actions: Actions, clicked: Bools) -> None:
        p = self.world.params
        good = logistic(self.appeal[which, actions])
        self.looks[which] += p.rate * (good / (good + p.level) - self.looks[which])


LookingWorld = family("LookingWorld", LookingParams, LookingLives)


@dataclass(frozen=True)
class WearingParams(FreshParams):
    """Attributes: floor: share of the chances that stays; decisions: after which a share 1/e of the novelty is left."""

    floor: float = 0.4
    decisions: float = 8.0


class WearingLives(FreshLives):
    """Recommendations are new at first, whatever they show; the novelty goes at the same speed under every agent."""

    def chances(self, which: Ints) -> Floats:
        p = self.world.params
        new = np.exp(-self.n_decisions[which] / p.decisions)
        return (p.floor + (1.0 - p.floor) * new)[:, None] * logistic(self.appeal[which])


WearingWorld = family("WearingWorld", WearingParams, WearingLives)


@dataclass(frozen=True)
class MembersParams(FreshParams):
    """Attributes: growth: logits gained with each decision; cap: decisions until none is gained; patience: mean number
    of repeats borne; notice: decisions between giving notice and leaving; within: decisions, that make a repeat."""

    growth: float = 0.08
    cap: int = 25
    patience: float = 6.0
    notice: int = 5
    within: int = 3


class MembersLives(FreshLives):
    """Members are worth more the longer they have been there, and give notice after so many repeats."""

    keeps: ClassVar[Kept] = {"last": ("within", -1), "borne": ("", 0.0), "until": ("", -1)}

    def settle(self, which: Ints) -> None:
        super().settle(which)
        u = self.of_user(which, 2, stream=_TRAIT)[:, 1]
        self.borne[which] = 1.0 - self.world.params.patience * np.log1p(-u)

    def logits(self, which: Ints) -> Floats:
        p = self.world.params
        return self.appeal[which] + p.growth * np.minimum(self.n_decisions[which], p.cap)[:, None]

    def shown(self, which: Ints, actions: Actions, clicked: Bools) -> Bools | None:
        again = (self.last[which] == actions[:, None]).any(axis=1)
        self.last[which, self.n_decisions[which] % self.world.params.within] = actions
        self.borne[which] -= again
        until = self.until[which]
        fresh = np.where(self.borne[which] <= 0.0, self.world.params.notice, -1)
        self.until[which] = np.where(until >= 0, until - 1, fresh)
        return self.until[which] != 0


MembersWorld = family("MembersWorld", MembersParams, MembersLives)


@dataclass(frozen=True)
class FormingParams(FreshParams):
    """Attributes: rate: of the way to what is shown, at each decision; reach: length of a formed taste."""

    rate: float = 0.04
    reach: float = 3.0


class FormingLives(FreshLives):
    """Tastes move towards what is shown, whether it is clicked or not; views and clicks follow them."""

    def shown(self, which: Ints, actions: Actions, clicked: Bools) -> None:
        p = self.world.params
        self.taste[which] += p.rate * (p.reach * self.world.factors[actions] - self.taste[which])
        self.appeal[which] = self.world.appeal(self.taste[which])
        logits = self.view_logits(which)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        self.cumulative[which] = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)


FormingWorld = family("FormingWorld", FormingParams, FormingLives)


@dataclass(frozen=True)
class BaitParams(FreshParams):
    """Attributes: bait: logits of a standard bait; famed: it goes with popularity; how: substance goes with it;
    rate: of regret at each click; strength: logits of a full standard of it."""

    bait: float = 0.9
    famed: float = 0.8
    how: float = -0.85
    rate: float = 0.15
    strength: float = 1.5


class BaitLives(FreshLives):
    """A click teaches what stands behind the items; the user's opinion of them all goes there, click by click."""

    keeps: ClassVar[Kept] = {"opinion": ("", 0.0)}

    def logits(self, which: Ints) -> Floats:
        p = self.world.params
        return self.appeal[which] + p.bait * self.world.bait + p.strength * self.opinion[which][:, None]

    def shown(self, which: Ints, actions: Actions, clicked: Bools) -> None:
        step = self.world.params.rate * (self.world.substance[actions] - self.opinion[which])
        self.opinion[which] += np.where(clicked, step, 0.0)


class BaitWorld(family("BaitWorld", BaitParams, BaitLives)):  # type: ignore[misc]
    def draw_more(self) -> None:
        self.bait = self.opposed(self.offsets, self.params.famed, 2)
        self.substance = self.opposed(self.bait, self.params.how, 3)


class CoinLives(FreshLives):
    """Every user has a rate, heavy-tailed among users, at which anything is clicked."""

    def settle(self, which: Ints) -> None:
        super().settle(which)
        p = self.world.params
        self.appeal[which] = logit(p.level) + p.tail * self.of_user(which, 1, stream=_TRAIT, normal=True)


CoinWorld = family("CoinWorld", FreshParams, CoinLives)


@dataclass(frozen=True)
class OwnedParams(FreshParams):
    """Attributes: loss: logits of an item that was viewed; gain: of the share of its category among the views."""

    loss: float = 3.0
    gain: float = 2.5


class OwnedLives(FreshLives):
    """What was viewed is known and not clicked; others of its category are."""

    def logits(self, which: Ints) -> Floats:
        p = self.world.params
        viewed = self.viewed[which]
        of = viewed @ np.eye(p.n_categories)[self.world.category]
        share = of / np.maximum(of.sum(axis=1, keepdims=True), 1.0)
        return self.appeal[which] - p.loss * (viewed > 0.0) + p.gain * share[:, self.world.category]


OwnedWorld = family("OwnedWorld", OwnedParams, OwnedLives)


@dataclass(frozen=True)
class SegmentsParams(FreshParams):
    """Attributes: slope: of clicks on popularity: for followers this, for collectors less this, for the rest 0."""

    slope: float = 1.2


class SegmentsLives(FreshLives):
    """Followers (half) click what is popular, collectors (a third) what is not, though both view the same."""

    def settle(self, which: Ints) -> None:
        super().settle(which)
        u = self.of_user(which, 2, stream=_TRAIT)[:, 1]
        side = np.where(u < 1.0 / 2.0, 1.0, np.where(u < 5.0 / 6.0, -1.0, 0.0))
        self.appeal[which] += self.world.params.slope * side[:, None] * self.world.offsets


SegmentsWorld = family("SegmentsWorld", SegmentsParams, SegmentsLives)


@dataclass(frozen=True)
class ComplementsParams(FreshParams):
    """Attributes: gain: logits of the category that goes with the last view's; loss: of its own."""

    gain: float = 1.5
    loss: float = 1.0


class ComplementsLives(FreshLives):
    """After a view of a category its complement is wanted, and more of the same is not."""

    keeps: ClassVar[Kept] = {"want": ("", -1)}

    def browse(self, which: Ints) -> tuple[Ints, Ints]:
        count, items = super().browse(which)
        some = count > 0
        self.want[which[some]] = self.world.category[items[np.cumsum(count)[some] - 1]]
        return count, items

    def logits(self, which: Ints) -> Floats:
        p = self.world.params
        last, own = self.want[which][:, None], self.world.category[None, :]
        goes = (last + 1) % p.n_categories == own
        return self.appeal[which] + (last >= 0) * (p.gain * goes - p.loss * (last == own))


ComplementsWorld = family("ComplementsWorld", ComplementsParams, ComplementsLives)


@dataclass(frozen=True)
class NeuralParams(FreshParams):
    """Attributes: n_hidden: units; spread: standard deviation of what the network adds to a logit, about."""

    n_hidden: int = 12
    spread: float = 1.6


class NeuralLives(FreshLives):
    """Clicks by a random network of tastes, factors, their products, offsets, and how often the item was viewed."""

    def __init__(self, world: FreshWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.before = np.zeros((n_lanes, world.n_items, world.params.n_hidden))

    def settle(self, which: Ints) -> None:
        super().settle(which)
        w, taste = self.world, self.taste[which]
        of_item = np.concatenate([w.factors, w.offsets[:, None]], axis=1) @ w.by_item
        both = sum(taste[:, k, None, None] * w.factors[None, :, k, None] * row for k, row in enumerate(w.by_both))
        self.before[which] = _product(taste, w.by_user.T)[:, None, :] + of_item[None, :, :] + both

    def logits(self, which: Ints) -> Floats:
        w = self.world
        hidden = np.tanh(self.before[which] + np.log1p(self.viewed[which])[:, :, None] * w.by_views)
        return logit(w.params.level) + w.params.spread * (hidden * w.out).sum(axis=2)


class NeuralWorld(family("NeuralWorld", NeuralParams, NeuralLives)):  # type: ignore[misc]
    def draw_more(self) -> None:
        k, h = self.params.n_factors, self.params.n_hidden
        drawn = self.normals(Stream.CATALOGUE, h, 2)[: 3 * k + 3]  # needs n_items of at least 3 k + 3
        self.by_user, self.by_item = drawn[:k] / np.sqrt(k), drawn[k : 2 * k + 1]
        self.by_both, self.by_views = 2.0 * drawn[2 * k + 1 : 3 * k + 1], drawn[3 * k + 1]
        self.out = drawn[3 * k + 2] / np.sqrt(h)


@dataclass(frozen=True)
class FashionParams(FreshParams):
    """Attributes: swing: logits from the middle to the height of a fashion; period: decisions from height to height."""

    swing: float = 1.5
    period: float = 30.0


class FashionLives(FreshLives):
    """Items have their season; users arrive at any time of the year, and it goes on while they are there."""

    keeps: ClassVar[Kept] = {"arrived": ("", 0.0)}

    def settle(self, which: Ints) -> None:
        super().settle(which)
        self.arrived[which] = self.of_user(which, 2, stream=_TRAIT)[:, 1]

    def logits(self, which: Ints) -> Floats:
        p = self.world.params
        now = self.arrived[which] + self.n_decisions[which] / p.period
        return self.appeal[which] + p.swing * np.cos(2.0 * np.pi * (now[:, None] - self.world.height))


class FashionWorld(family("FashionWorld", FashionParams, FashionLives)):  # type: ignore[misc]
    def draw_more(self) -> None:
        self.height = self.normals(Stream.OFFSETS, 1, 4)[:, 0] / 2.0


def _inside(
    name: str, level: float, scale: float, logging: str, agents: str, users: int, note: str, **of: Any
) -> Hidden:
    params = SessionsParams(click_link="logistic", **of)
    make = functools.partial(logistic_sessions, level, scale, params)
    return Hidden(name, "sessions", True, make, logging, tuple(agents.split()), users, note)


def _outside(kind: type[LivesWorld], logging: str, agents: str, users: int, note: str, **of: Any) -> Hidden:
    return Hidden(f"{kind.name}-a", kind.name, False, made(kind, **of), logging, tuple(agents.split()), users, note)


# fmt: off
WORLDS = [
    _inside("sessions-fair", 0.12, 0.5, "random",
            "random popularity user-popularity user-popularity-greedy+epsilon=0.2 item-knn svd", 600,
            "ten items, clicks go with views", n_items=10, catalogue_seed=9101),
    _inside("sessions-flipped", 0.08, 0.6, "random", "random popularity user-popularity item-knn", 700,
            "all items flipped", n_items=24, n_flips=12, sigma_mu_organic=1.0, catalogue_seed=9102),
    _inside("sessions-knn", 0.15, 0.4, "item-knn+epsilon=0.4", "random popularity user-popularity item-knn user-knn",
            1600, "some flips, short lives", n_items=16, n_flips=3, sigma_mu_organic=1.5, p_bandit_to_organic=0.2,
            p_leave_bandit=0.03, catalogue_seed=9103),
    _inside("sessions-drift", 0.06, 0.45, "user-popularity+epsilon=0.2",
            "random popularity+epsilon=0.1 user-popularity user-popularity-greedy+epsilon=0.2 svd", 1200,
            "tastes drift fast, forty items", n_items=40, sigma_mu_organic=0.5, sigma_omega=0.3, p_leave_bandit=0.02,
            catalogue_seed=9104),
    _inside("sessions-closed", 0.03, 0.5, "svd", "random popularity user-popularity svd item-knn", 900,
            "a logger that never explores", n_items=20, sigma_mu_organic=1.0, p_leave_bandit=0.02, catalogue_seed=9105),
    _outside(HabitWorld, "random", "random popularity user-popularity user-popularity-greedy", 1500,
             "slow, strong, reverses: who repeats a category loses in a life what it earns at first",
             n_items=12, life=30.0, level=0.2, effect=1.2, align=0.9, cost=4.0, keep=0.95, catalogue_seed=9201),
    _outside(AcquiredWorld, "user-popularity+epsilon=0.5",
             "random popularity user-popularity user-popularity-greedy item-knn", 1800,
             "after a count of showings, strong: only agents that repeat come to where an item pays",
             n_items=14, life=22.0, level=0.1, align=0.1, quality=0.4, after=6, gain=1.6, catalogue_seed=9202),
    _outside(PayoffWorld, "svd+epsilon=0.4", "random popularity user-popularity item-knn", 2000,
             "exactly seven decisions later, reverses: what is clicked now is paid for then",
             n_items=10, life=28.0, level=0.2, effect=0.4, quality=0.2, fame=0.8, popularity=1.0, catalogue_seed=9203),
    _outside(NeedWorld, "item-knn+epsilon=0.6", "random popularity user-popularity svd+epsilon=0.1", 2200,
             "slow, mild: four clicks satisfy a category, a little", n_items=16, life=24.0, level=0.15, effect=1.2,
             align=0.9, need=4, depth=1.0, catalogue_seed=9204),
    _outside(LookingWorld, "random", "random popularity user-popularity item-knn user-knn", 2000,
             "slow, harmless: who shows what is liked is looked at more, which widens the gaps",
             n_items=15, life=20.0, level=0.2, effect=1.3, align=0.9, rate=0.06, catalogue_seed=9205),
    _outside(WearingWorld, "user-knn+epsilon=0.3", "random popularity user-popularity user-knn", 2500,
             "slow, harmless: rates fall by half within a life, under every agent alike",
             n_items=12, life=18.0, level=0.07, effect=1.6, align=0.8, sharpness=1.0, catalogue_seed=9206),
    _outside(MembersWorld, "user-popularity", "random popularity user-popularity item-knn+epsilon=0.3", 1500,
             "delayed churn: repeats make members leave after a notice, before they are worth most",
             n_items=20, life=30.0, level=0.08, effect=0.9, align=0.8, catalogue_seed=9207),
    _outside(FormingWorld, "popularity+epsilon=0.8", "random popularity user-popularity item-knn svd", 2200,
             "slow, upwards: tastes are made by what is shown, and who insists is liked in the end",
             n_items=12, life=30.0, level=0.07, effect=1.3, align=0.95, quality=0.1, rate=0.03, catalogue_seed=9208),
    _outside(BaitWorld, "user-popularity-greedy+epsilon=0.3",
             "random popularity user-popularity user-popularity-greedy", 2500,
             "slow, at clicks only: popular items are bait, and opinion of all items falls with each click on them",
             n_items=12, life=26.0, level=0.18, effect=0.7, popularity=1.0, bait=0.28, strength=0.8, rate=0.08,
             catalogue_seed=9209),
    _outside(CoinWorld, "random", "random popularity user-popularity item-knn", 1500,
             "all agents are level; rates and lives are heavy-tailed among users",
             n_items=20, level=0.1, tail=1.2, heavy=0.8, catalogue_seed=9210),
    _outside(OwnedWorld, "item-knn", "random popularity user-popularity item-knn svd", 1500,
             "what was viewed is not clicked, its cousins are",
             n_items=100, life=14.0, level=0.05, align=0.5, catalogue_seed=9211),
    _outside(SegmentsWorld, "user-popularity", "random popularity user-popularity svd", 2500,
             "who likes what everyone likes cannot be seen from views",
             n_items=60, life=12.0, level=0.04, effect=0.8, align=0.6, popularity=1.0, tail=0.5, catalogue_seed=9212),
    _outside(ComplementsWorld, "user-knn", "random popularity user-popularity item-knn user-knn svd", 2000,
             "the last view decides what is wanted next, and it is something else",
             n_items=24, views=1.0, life=10.0, level=0.08, catalogue_seed=9213),
    _outside(NeuralWorld, "random", "random popularity user-popularity item-knn svd", 2500,
             "a random network of tastes, factors, offsets and counts of views",
             n_items=18, life=14.0, level=0.12, catalogue_seed=9214),
    _outside(FashionWorld, "user-popularity-greedy", "random popularity user-popularity user-popularity-greedy", 2000,
             "items have seasons, users arrive at any time of the year; heavy-tailed lives",
             n_items=18, life=15.0, level=0.1, heavy=0.6, catalogue_seed=9215),
]
# fmt: on
