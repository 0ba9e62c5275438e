"""Hidden worlds kept away until the end: five of the sessions model and six families outside of it.

Drawn by somebody who has not read the code of advice, calibration or validation. ``interface`` and ``lives`` are those
next to ``seen.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from interface import Hidden
from lives import Floats, Ints, Lives, LivesParams, LivesWorld, logistic, logistic_sessions, logit, made

from recsim_mnar import rng
from recsim_mnar.rng import Stream
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

# ------------------------------------------------------------------------------------------------------------- fatigue


@dataclass(frozen=True)
class FatigueParams(LivesParams):
    """Share of clicks that each recommendation of an item costs it (``tires``), and what remains of that at the next.

    ``views_tire``: of a view, in recommendations.
    """

    tires: float = 0.5
    remains: float = 0.9
    views_tire: float = 0.0


class FatigueLives(Lives):
    """Users click an item less, the more of it they were shown lately."""

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.seen = np.zeros((n_lanes, world.n_items))

    def settle(self, which: Ints) -> None:
        self.seen[which] = 0.0

    def browse(self, which: Ints) -> tuple[Ints, Ints]:
        count, items = super().browse(which)
        if self.world.params.views_tire > 0:
            np.add.at(self.seen, (np.repeat(which, count), items), self.world.params.views_tire)
        return count, items

    def chances(self, which: Ints) -> Floats:
        w, p = self.world, self.world.params
        fresh = logistic(logit(p.level) + p.effect * (self.taste[which] @ w.factors.T + 0.3 * w.offsets))
        return fresh * np.exp(-p.tires * self.seen[which])

    def shown(self, which: Ints, actions: Any, clicked: Any) -> None:
        self.seen[which] *= self.world.params.remains
        self.seen[which, actions] += 1.0


class FatigueWorld(LivesWorld):
    """What was shown or viewed lately is clicked less."""

    name = "fatigue"
    params_class = FatigueParams
    lanes_class = FatigueLives


# ------------------------------------------------------------------------------------------------------------- fashion


@dataclass(frozen=True)
class FashionParams(LivesParams):
    """The log's period, in events; length of a fashion; how far clicks follow it (``moves``), and views (``follows``).

    ``trend``: items rise or fall over the period instead of coming and going.
    """

    period: float = 50_000.0
    cycle: float = 20_000.0
    moves: float = 1.0
    follows: float = 0.5
    trend: bool = False


class FashionLives(Lives):
    """Users arrive at any time of the period, each at one of their own, and find the items of the day."""

    def settle(self, which: Ints) -> None:
        start = self.of_user(which, 1, stream=Stream.PURCHASE)[:, 0]
        self.time[which] = np.floor(start * self.world.params.period)

    def view_logits(self, which: Ints) -> Floats:
        w = self.world
        return super().view_logits(which) + w.params.follows * w.fashion(self.time[which])

    def chances(self, which: Ints) -> Floats:
        w, p = self.world, self.world.params
        own = self.taste[which] @ w.factors.T
        return logistic(logit(p.level) + p.effect * own + p.moves * w.fashion(self.time[which]))


class FashionWorld(LivesWorld):
    """The appeal of items moves in calendar time."""

    name = "fashion"
    params_class = FashionParams
    lanes_class = FashionLives

    def draw(self) -> None:
        p = self.params
        self.phase = rng.uniforms(p.catalogue_seed, Stream.OFFSETS, np.arange(self.n_items), 7)
        self.slope = self.normals(Stream.OFFSETS, 1, first=1)[:, 0]

    def fashion(self, time: Floats) -> Floats:
        """(n, n_items) of these times, variance about 1."""
        p = self.params
        if p.trend:
            return np.asarray(1.7 * self.slope * (2.0 * time[:, None] / p.period - 1.0))
        return np.asarray(np.sqrt(2.0) * np.sin(2.0 * np.pi * (time[:, None] / p.cycle + self.phase)))


# -------------------------------------------------------------------------------------------------------------- neural


@dataclass(frozen=True)
class NeuralParams(LivesParams):
    """Hidden units; share of the clicks' network that is the views' (``agrees``)."""

    units: int = 8
    agrees: float = 0.0


class NeuralLives(Lives):
    """Clicks of a small random network of user and item; views of another."""

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.chance = np.zeros((n_lanes, world.n_items))

    def settle(self, which: Ints) -> None:
        w, p = self.world, self.world.params
        clicks = w.network(1, self.taste[which])
        if p.agrees > 0:
            views = w.network(0, self.taste[which])
            clicks = p.agrees * views + np.sqrt(1.0 - p.agrees**2) * clicks
        self.chance[which] = logistic(logit(p.level) + p.effect * clicks)

    def view_logits(self, which: Ints) -> Floats:
        w = self.world
        return w.params.sharpness * w.network(0, self.taste[which]) + w.params.popularity * w.offsets

    def chances(self, which: Ints) -> Floats:
        return self.chance[which].copy()


class NeuralWorld(LivesWorld):
    """Nothing is linear in anything."""

    name = "neural"
    params_class = NeuralParams
    lanes_class = NeuralLives

    def draw(self) -> None:
        p = self.params
        self.nets = [self._weights(first) for first in (0, 1)]
        users = rng.normals(p.catalogue_seed, Stream.USER, 0, (500, p.n_factors))
        self.scale = [(0.0, 1.0), (0.0, 1.0)]
        drawn = [self.network(first, users) for first in (0, 1)]
        self.scale = [(float(x.mean()), float(x.std())) for x in drawn]

    def _weights(self, first: int) -> tuple[Floats, Floats, Floats]:
        p = self.params
        shape = (p.units, p.n_factors)
        of_user = rng.normals(p.catalogue_seed, Stream.FIT, 1000 * first, shape)
        of_item = self.normals(Stream.CATALOGUE, p.units, first=3 + first)
        out = rng.normals(p.catalogue_seed, Stream.FIT, 1000 * first + 500, (p.units, 1))[:, 0]
        return of_user, of_item, out

    def network(self, number: int, taste: Floats) -> Floats:
        """(n, n_items) outputs of one of the two, mean 0 and variance 1 over users and items."""
        of_user, of_item, out = self.nets[number]
        hidden = taste @ of_user.T
        total = np.zeros((len(taste), self.n_items))
        for k in range(len(out)):
            total += out[k] * np.tanh(hidden[:, k, None] * of_item[:, k] + of_item[:, k - 1])
        mean, sd = self.scale[number]
        return np.asarray((total - mean) / sd)


# -------------------------------------------------------------------------------------------------------------- appeal


@dataclass(frozen=True)
class AppealParams(LivesParams):
    """Correlation of appeal with popularity (``agrees``); users differ by nothing but a level (``unlike``)."""

    agrees: float = 0.0
    unlike: float = 0.5


class AppealLives(Lives):
    """All users click the same cheap and good items."""

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.own = np.zeros(n_lanes)

    def settle(self, which: Ints) -> None:
        self.own[which] = self.of_user(which, 1, stream=Stream.PURCHASE, normal=True)[:, 0]

    def chances(self, which: Ints) -> Floats:
        w, p = self.world, self.world.params
        return logistic(logit(p.level) + p.effect * w.appeal + p.unlike * self.own[which, None])


class AppealWorld(LivesWorld):
    """Views go by taste, clicks by quality less price alone."""

    name = "appeal"
    params_class = AppealParams
    lanes_class = AppealLives

    def draw(self) -> None:
        share = self.params.agrees
        quality = self.normals(Stream.OFFSETS, 1, first=1)[:, 0]
        self.appeal = share * self.offsets + np.sqrt(1.0 - share**2) * quality


# --------------------------------------------------------------------------------------------------------------- trust


@dataclass(frozen=True)
class TrustParams(LivesParams):
    """How far trust moves with the worth of what is shown (``moves``), and what remains of it at the next decision."""

    moves: float = 0.3
    remains: float = 0.9
    share: float = 0.5


class TrustLives(Lives):
    """Users who were shown good things look at the next recommendation, others no more."""

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.trust = np.zeros(n_lanes)

    def settle(self, which: Ints) -> None:
        self.trust[which] = 0.0

    def worth(self, which: Ints) -> Floats:
        """(n, n_items) a matter of taste and of quality, which views do not show."""
        w, share = self.world, self.world.params.share
        return share * (self.taste[which] @ w.factors.T) + np.sqrt(1.0 - share**2) * w.quality

    def chances(self, which: Ints) -> Floats:
        p = self.world.params
        return logistic(
            logit(p.level) + p.effect * (self.taste[which] @ self.world.factors.T) + self.trust[which, None]
        )

    def shown(self, which: Ints, actions: Any, clicked: Any) -> None:
        p = self.world.params
        worth = self.worth(which)[np.arange(len(which)), actions]
        self.trust[which] = p.remains * self.trust[which] + p.moves * worth


class TrustWorld(LivesWorld):
    """What was recommended before decides whether the next recommendation is looked at."""

    name = "trust"
    params_class = TrustParams
    lanes_class = TrustLives

    def draw(self) -> None:
        self.quality = self.normals(Stream.OFFSETS, 1, first=1)[:, 0]


# ---------------------------------------------------------------------------------------------------------- complement


@dataclass(frozen=True)
class ComplementParams(LivesParams):
    """How much less the item itself is clicked (``itself``), and all items once the need is met (``sated``)."""

    itself: float = 2.0
    sated: float = 0.0
    likeness: float = 0.0


class ComplementLives(Lives):
    """Users want what goes with the item that they viewed last."""

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.last, self.met = np.zeros(n_lanes, np.int64), np.zeros(n_lanes)

    def settle(self, which: Ints) -> None:
        self.last[which], self.met[which] = self.world.n_items, 0.0

    def browse(self, which: Ints) -> tuple[Ints, Ints]:
        count, items = super().browse(which)
        some = count > 0
        self.last[which[some]] = items[np.cumsum(count)[some] - 1]
        self.met[which[some]] = 0.0
        return count, items

    def chances(self, which: Ints) -> Floats:
        w, p = self.world, self.world.params
        return logistic(logit(p.level) + p.effect * w.goes_with[self.last[which]] - p.sated * self.met[which, None])

    def shown(self, which: Ints, actions: Any, clicked: Any) -> None:
        self.met[which] = np.maximum(self.met[which], clicked)


class ComplementWorld(LivesWorld):
    """Clicks go with the last view, by a table of which item goes with which."""

    name = "complement"
    params_class = ComplementParams
    lanes_class = ComplementLives

    def draw(self) -> None:
        p = self.params
        table = np.sqrt(1.0 - p.likeness**2) * self.normals(Stream.CATALOGUE, self.n_items, first=1)
        table += p.likeness * np.sqrt(p.n_factors) * (self.factors @ self.factors.T)
        table[np.arange(self.n_items), np.arange(self.n_items)] = -p.itself
        self.goes_with = np.vstack([table, np.zeros(self.n_items)])


# ------------------------------------------------------------------------------------------------------------ sessions


def _sessions_6() -> SessionsWorld:
    params = SessionsParams(
        n_items=15, n_factors=5, sigma_omega_initial=0.8, sigma_omega=0.02, sigma_mu_organic=0.5, n_flips=5,
        catalogue_seed=2906, p_bandit_to_organic=0.1, p_leave_bandit=0.04, p_leave_organic=0.02,
    )  # fmt: skip
    return logistic_sessions(0.06, 0.7, params)


def _sessions_7() -> SessionsWorld:
    params = SessionsParams(
        n_items=12, n_factors=4, sigma_omega_initial=1.0, sigma_omega=0.04, sigma_mu_organic=0.8, n_flips=6,
        catalogue_seed=2907, p_bandit_to_organic=0.15, p_leave_bandit=0.04, p_leave_organic=0.03,
        p_organic_to_bandit=0.35,
    )  # fmt: skip
    return logistic_sessions(0.05, 0.6, params)


def _sessions_8() -> SessionsWorld:
    params = SessionsParams(
        n_items=100, n_factors=10, sigma_omega_initial=0.6, sigma_omega=0.15, sigma_mu_organic=1.5,
        drift_in_bandit=True, catalogue_seed=2908, p_bandit_to_organic=0.25, p_leave_bandit=0.06, p_leave_organic=0.06,
        p_organic_to_bandit=0.4,
    )  # fmt: skip
    return logistic_sessions(0.02, 0.4, params)


def _sessions_9() -> SessionsWorld:
    params = SessionsParams(
        n_items=25, n_factors=3, sigma_omega_initial=1.5, sigma_omega=0.1, sigma_mu_organic=2.0, clock="normal",
        clock_mean=1.0, clock_sd=0.5, catalogue_seed=2909, p_bandit_to_organic=0.1, p_leave_bandit=0.02,
    )  # fmt: skip
    return SessionsWorld(params)


def _sessions_10() -> SessionsWorld:
    params = SessionsParams(
        n_items=10, n_factors=5, sigma_omega_initial=1.0, sigma_mu_organic=3.0, n_flips=5, catalogue_seed=2910,
        no_repeats=False, p_bandit_to_organic=0.05, p_leave_bandit=0.02,
    )  # fmt: skip
    return SessionsWorld(params)


# --------------------------------------------------------------------------------------------------------------- worlds


WORLDS: tuple[Hidden, ...] = (
    Hidden(
        "sessions-6", "sessions", True, _sessions_6,
        "random", ("random", "popularity", "user-popularity-greedy", "item-knn", "poem"), 10_000,
        "Logistic link, a third of the items flipped in pairs.",
    ),
    Hidden(
        "sessions-7", "sessions", True, _sessions_7,
        "user-popularity+epsilon=0.5", ("random", "popularity", "user-popularity", "svd+rank=4", "mf-ips", "banditnet"),
        12_000, "Logistic link, all items flipped, half of the log uniform.",
    ),
    Hidden(
        "sessions-8", "sessions", True, _sessions_8,
        "svd+rank=8+epsilon=0.1", ("random", "popularity", "svd+rank=8", "user-knn"), 3000,
        "A hundred items, fast drift, little exploration.",
    ),
    Hidden(
        "sessions-9", "sessions", True, _sessions_9,
        "user-popularity-greedy", ("popularity", "user-popularity-greedy", "user-popularity", "item-knn"), 1500,
        "RecoGym's link without flips or exploration; times are drawn.",
    ),
    Hidden(
        "sessions-10", "sessions", True, _sessions_10,
        "random", ("random", "popularity", "user-popularity", "mf-ips", "most-recommended"), 6000,
        "RecoGym's link, popularity and clicks apart; a long log of rare clicks.",
    ),
    Hidden(
        "fatigue-1", "fatigue", False,
        made(FatigueWorld, n_items=12, level=0.2, effect=0.8, tires=0.5, remains=0.9, life=15.0, catalogue_seed=131),
        "random", ("random", "popularity", "user-popularity-greedy", "user-popularity", "mf-ips"), 10_000,
        "Greedy agents tire what they show; the uniform log does not show it in its rates.",
    ),
    Hidden(
        "fatigue-2", "fatigue", False,
        made(FatigueWorld, n_items=25, level=0.08, effect=1.2, tires=0.08, remains=0.7, life=10.0, catalogue_seed=132),
        "user-popularity+epsilon=0.25", ("random", "popularity", "user-popularity", "svd+rank=4", "item-knn"), 10_000,
        "Slight fatigue that is soon gone.",
    ),
    Hidden(
        "fatigue-3", "fatigue", False,
        made(FatigueWorld, n_items=60, level=0.12, effect=0.8, tires=0.4, remains=0.97, views_tire=0.5, life=20.0,
              first_views=8.0, catalogue_seed=133),
        "user-popularity-greedy", ("random", "user-popularity-greedy", "user-popularity", "item-knn", "user-knn"), 2500,
        "Lasting fatigue, of views too, under a logger without exploration.",
    ),
    Hidden(
        "fashion-1", "fashion", False,
        made(FashionWorld, n_items=15, level=0.08, effect=0.8, moves=0.8, follows=1.0, catalogue_seed=141),
        "user-popularity-greedy+epsilon=0.4",
        ("random", "popularity", "user-popularity-greedy", "item-knn", "svd+rank=4"), 12_000,
        "Views follow the fashion, so that who looks at views follows it too.",
    ),
    Hidden(
        "fashion-2", "fashion", False,
        made(FashionWorld, n_items=10, level=0.1, effect=0.5, moves=1.2, follows=0.0, trend=True, first_views=6.0,
              catalogue_seed=142),
        "random", ("random", "popularity", "user-popularity-greedy", "svd+rank=3", "mf-ips"), 20_000,
        "Items rise and fall over the period, views do not; users arrive over the whole of it in every arm.",
    ),
    Hidden(
        "fashion-3", "fashion", False,
        made(FashionWorld, n_items=80, level=0.01, effect=0.6, moves=1.0, follows=0.3, cycle=5000.0, life=8.0,
              catalogue_seed=143),
        "item-knn+temperature=0.2", ("random", "popularity", "user-popularity", "item-knn"), 5000,
        "Rare clicks, fast fashion, a logger that draws among few items.",
    ),
    Hidden(
        "neural-1", "neural", False,
        made(NeuralWorld, n_items=10, level=0.06, effect=1.0, units=8, agrees=0.3, first_views=7.0,
              catalogue_seed=151),
        "random", ("random", "popularity", "user-popularity-greedy", "user-knn", "mf-ips"), 15_000,
        "Views say little of clicks.",
    ),
    Hidden(
        "neural-2", "neural", False,
        made(NeuralWorld, n_items=20, level=0.15, effect=0.8, units=12, agrees=0.6, views=1.0, catalogue_seed=152),
        "item-knn+epsilon=0.5", ("random", "popularity", "user-popularity", "svd+rank=5", "mf-naive"), 12_000,
        "Views say something of clicks, half of the log is uniform.",
    ),
    Hidden(
        "neural-3", "neural", False,
        made(NeuralWorld, n_items=50, level=0.03, effect=1.0, units=6, agrees=0.0, life=10.0, catalogue_seed=153),
        "svd+rank=5", ("random", "popularity", "svd+rank=5", "user-knn", "item-knn", "user-popularity"), 1000,
        "A small log without exploration; views say nothing of clicks.",
    ),
    Hidden(
        "appeal-1", "appeal", False,
        made(AppealWorld, n_items=12, level=0.03, effect=0.6, agrees=0.6, popularity=0.8, catalogue_seed=161),
        "user-popularity+epsilon=0.5", ("random", "popularity", "user-popularity", "item-knn", "mf-ips"), 16_000,
        "Popular items are the better ones, tastes are of no use.",
    ),
    Hidden(
        "appeal-2", "appeal", False,
        made(AppealWorld, n_items=30, level=0.011, effect=0.7, agrees=-0.5, life=30.0, popularity=1.0,
              catalogue_seed=162),
        "svd+rank=4+temperature=0.3", ("random", "popularity", "user-popularity", "svd+rank=4"), 3000,
        "Popular items are the worse ones; the logger draws among few of them.",
    ),
    Hidden(
        "trust-1", "trust", False,
        made(TrustWorld, n_items=15, level=0.12, effect=0.7, moves=0.25, remains=0.9, share=0.2, life=15.0,
              catalogue_seed=171),
        "random", ("random", "popularity", "user-popularity-greedy", "svd+rank=4"), 10_000,
        "Trust is lost over poor items, whichever is clicked today: values in the log's states mislead.",
    ),
    Hidden(
        "trust-2", "trust", False,
        made(TrustWorld, n_items=40, level=0.05, effect=0.9, moves=0.15, remains=0.8, share=0.8, life=12.0,
              catalogue_seed=172),
        "item-knn", ("random", "user-popularity", "item-knn", "svd+rank=6", "user-knn"), 4000,
        "Trust goes with taste, no exploration.",
    ),
    Hidden(
        "complement-1", "complement", False,
        made(ComplementWorld, n_items=15, level=0.05, effect=0.9, itself=2.5, sated=0.0, likeness=0.3, views=1.0,
              life=20.0, catalogue_seed=181),
        "user-popularity+epsilon=0.5", ("random", "popularity", "user-popularity", "item-knn", "mf-ips"), 15_000,
        "Clicks go with the last view; a long log.",
    ),
    Hidden(
        "complement-2", "complement", False,
        made(ComplementWorld, n_items=40, level=0.04, effect=0.7, itself=1.0, sated=2.0, likeness=0.8, views=0.6,
              catalogue_seed=182),
        "user-popularity", ("random", "user-popularity", "item-knn", "svd+rank=6"), 2000,
        "The need is met by a click, until the next view; no exploration.",
    ),
)  # fmt: skip
"""The worlds, by name unique."""
