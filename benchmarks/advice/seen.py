"""Hidden worlds that rules of ``advise`` may be tried on: five of the sessions model and six families outside of it.

Drawn by somebody who has not read the code of advice, calibration or validation. The other families are kept away until
the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from lives import Floats, Hidden, Ints, Lives, LivesParams, LivesWorld, logistic, logistic_sessions, logit, made

from recsim_mnar.rng import Stream
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

# ------------------------------------------------------------------------------------------------------------- novelty


@dataclass(frozen=True)
class NoveltyParams(LivesParams):
    """Share of its click probability that an item keeps once the user has viewed it (``kept``)."""

    kept: float = 0.1


class NoveltyLives(Lives):
    """Users look for what they do not know yet: what they have viewed they hardly click."""

    def chances(self, which: Ints) -> Floats:
        w = self.world
        free = logistic(w.intercept + w.params.effect * (self.taste[which] @ w.factors.T))
        return np.where(self.viewed[which] > 0, w.params.kept, 1.0) * free


class NoveltyWorld(LivesWorld):
    """What resembles the user's views is clicked, what is among them is not."""

    name = "novelty"
    params_class = NoveltyParams
    lanes_class = NoveltyLives

    def draw(self) -> None:
        self.intercept = logit(self.params.level)


# ---------------------------------------------------------------------------------------------------------------- coin


@dataclass(frozen=True)
class CoinParams(LivesParams):
    """Standard deviation over users of a click's logit (``unlike``); items make no difference."""

    unlike: float = 0.0


class CoinLives(Lives):
    """Users click whatever is shown with a probability of their own; avid ones stay longer."""

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.own = np.zeros(n_lanes)

    def settle(self, which: Ints) -> None:
        z = self.of_user(which, 1, stream=Stream.PURCHASE, normal=True)[:, 0]
        self.own[which] = logistic(logit(self.world.params.level) + self.world.params.unlike * z)
        self.left[which] += (z > 1.0) * self.left[which]

    def chances(self, which: Ints) -> Floats:
        return np.repeat(self.own[which, None], self.world.n_items, axis=1)


class CoinWorld(LivesWorld):
    """Clicks by coin: all agents are level."""

    name = "coin"
    params_class = CoinParams
    lanes_class = CoinLives


# ------------------------------------------------------------------------------------------------------------- boredom


@dataclass(frozen=True)
class BoredomParams(LivesParams):
    """Topics; how much a topic's click logit falls with each recommendation of it, and what remains at the next."""

    n_topics: int = 4
    tires: float = 0.7
    remains: float = 0.8
    views_tire: float = 0.0


class BoredomLives(Lives):
    """Users tire of a topic of which they are shown much, and recover."""

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.bored = np.zeros((n_lanes, world.params.n_topics))

    def settle(self, which: Ints) -> None:
        self.bored[which] = 0.0

    def browse(self, which: Ints) -> tuple[Ints, Ints]:
        count, items = super().browse(which)
        np.add.at(self.bored, (np.repeat(which, count), self.world.topic[items]), self.world.params.views_tire)
        return count, items

    def chances(self, which: Ints) -> Floats:
        w = self.world
        logits = logit(w.params.level) + w.params.effect * (self.taste[which] @ w.factors.T)
        return logistic(logits - w.params.tires * self.bored[which][:, w.topic])

    def shown(self, which: Ints, actions: Any, clicked: Any) -> None:
        self.bored[which] *= self.world.params.remains
        self.bored[which, self.world.topic[actions]] += 1.0


class BoredomWorld(LivesWorld):
    """Items of a topic are alike, and a user has soon seen enough of them."""

    name = "boredom"
    params_class = BoredomParams
    lanes_class = BoredomLives

    def draw(self) -> None:
        n = self.params.n_topics
        self.topic = np.arange(self.n_items) % n
        factors = self.factors[self.topic] + 0.35 * self.factors
        self.factors = factors / np.sqrt((factors**2).sum(axis=1, keepdims=True))


# ------------------------------------------------------------------------------------------------------------ segments


@dataclass(frozen=True)
class SegmentsParams(LivesParams):
    """Kinds of users; correlation of clicks with views in the first kind (``first``), which falls to ``last``."""

    n_kinds: int = 4
    first: float = 0.9
    last: float = -0.5


class SegmentsLives(Lives):
    """Users of a kind share one table of views and one of clicks."""

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.kind = np.zeros(n_lanes, np.int64)

    def settle(self, which: Ints) -> None:
        u = self.of_user(which, 1, stream=Stream.PURCHASE)[:, 0]
        self.kind[which] = (u**1.5 * self.world.params.n_kinds).astype(np.int64)

    def view_logits(self, which: Ints) -> Floats:
        return self.world.views_of[self.kind[which]] + 0.3 * super().view_logits(which)

    def chances(self, which: Ints) -> Floats:
        return self.world.clicks_of[self.kind[which]]


class SegmentsWorld(LivesWorld):
    """Kinds of users: some click what they view, some do not, some click the contrary."""

    name = "segments"
    params_class = SegmentsParams
    lanes_class = SegmentsLives

    def draw(self) -> None:
        p = self.params
        views = self.normals(Stream.CATALOGUE, p.n_kinds, first=1).T
        other = self.normals(Stream.CATALOGUE, p.n_kinds, first=2).T
        share = np.linspace(p.first, p.last, p.n_kinds)[:, None]
        self.views_of = p.sharpness * views
        clicks = share * views + np.sqrt(1.0 - share**2) * other
        self.clicks_of = logistic(logit(p.level) + p.effect * clicks)


# --------------------------------------------------------------------------------------------------------------- churn


@dataclass(frozen=True)
class ChurnParams(LivesParams):
    """Who leaves: ``leaves`` after a middling recommendation, on the scale of logits less ``regard`` times its worth.

    ``picky``: by how much less users with strong tastes click, on the scale of logits.
    """

    leaves: float = 0.08
    regard: float = 1.2
    picky: float = 0.8


class ChurnLives(Lives):
    """Bad recommendations make users leave, good ones make them stay; the picky ones first."""

    def worth(self, which: Ints) -> Floats:
        return self.taste[which] @ self.world.factors.T + 0.5 * self.world.quality

    def chances(self, which: Ints) -> Floats:
        p = self.world.params
        strength = np.sqrt((self.taste[which] ** 2).mean(axis=1, keepdims=True))
        return logistic(logit(p.level) + p.effect * self.worth(which) - p.picky * (strength - 1.0))

    def shown(self, which: Ints, actions: Any, clicked: Any) -> Any:
        p = self.world.params
        worth = self.worth(which)[np.arange(len(which)), actions]
        return self.uniforms(which, Stream.EXPOSURE) >= logistic(logit(p.leaves) - p.regard * worth)


class ChurnWorld(LivesWorld):
    """Who stays depends on what was shown, so agents meet other users."""

    name = "churn"
    params_class = ChurnParams
    lanes_class = ChurnLives

    def draw(self) -> None:
        self.quality = self.normals(Stream.OFFSETS, 1, first=1)[:, 0]


# ------------------------------------------------------------------------------------------------------------ position


@dataclass(frozen=True)
class PositionParams(LivesParams):
    """Decisions of a session (``session``); fall of the click logit within one (``falls``).

    ``turn``: how far clicks turn, over a life, from what is popular to what is the user's own: 0 not at all, 1 wholly.
    """

    session: int = 6
    falls: float = 0.25
    turn: float = 0.0


class PositionLives(Lives):
    """Click rates depend on how far into the session, and the life, a recommendation comes."""

    def chances(self, which: Ints) -> Floats:
        w, p = self.world, self.world.params
        n = self.n_decisions[which, None]
        old = 1.0 - 0.5 ** (n / (0.4 * p.life))
        own = 1.0 - p.turn * (1.0 - old)
        liked = own * (self.taste[which] @ w.factors.T) + p.turn * (1.0 - old) * 1.3 * w.appeal
        return logistic(logit(p.level) + p.effect * liked - p.falls * (n % p.session))


class PositionWorld(LivesWorld):
    """Sessions tire users, and old users click otherwise than new ones."""

    name = "position"
    params_class = PositionParams
    lanes_class = PositionLives

    def draw(self) -> None:
        self.appeal = 0.6 * self.offsets + 0.8 * self.normals(Stream.OFFSETS, 1, first=1)[:, 0]


# ------------------------------------------------------------------------------------------------------------ sessions


def _sessions_1() -> SessionsWorld:
    return SessionsWorld(SessionsParams(n_items=10, sigma_mu_organic=1.0, catalogue_seed=2801))


def _sessions_2() -> SessionsWorld:
    params = SessionsParams(
        n_items=20, n_factors=4, sigma_omega_initial=0.9, sigma_omega=0.05, sigma_mu_organic=0.6, catalogue_seed=2802,
        p_bandit_to_organic=0.15, p_leave_bandit=0.03, p_leave_organic=0.02, p_organic_to_bandit=0.3,
    )  # fmt: skip
    return logistic_sessions(0.07, 0.6, params)


def _sessions_3() -> SessionsWorld:
    params = SessionsParams(
        n_items=30, n_factors=6, sigma_omega_initial=0.7, sigma_omega=0.1, sigma_mu_organic=1.2, catalogue_seed=2803,
        n_flips=15, p_bandit_to_organic=0.2, p_leave_bandit=0.05, p_leave_organic=0.05, p_organic_to_bandit=0.4,
    )  # fmt: skip
    return logistic_sessions(0.04, 0.5, params)


def _sessions_4() -> SessionsWorld:
    params = SessionsParams(
        n_items=40, n_factors=5, sigma_omega_initial=1.2, sigma_omega=0.02, sigma_mu_organic=0.3, n_flips=20,
        catalogue_seed=2804, p_bandit_to_organic=0.1, p_leave_bandit=0.03, p_leave_organic=0.03,
    )  # fmt: skip
    return SessionsWorld(params)


def _sessions_5() -> SessionsWorld:
    params = SessionsParams(
        n_items=12, n_factors=3, sigma_omega_initial=1.0, sigma_omega=0.03, sigma_mu_organic=0.4, catalogue_seed=2805,
        p_bandit_to_organic=0.1, p_leave_bandit=0.04, p_leave_organic=0.02, p_organic_to_bandit=0.25,
    )  # fmt: skip
    return logistic_sessions(0.12, 0.9, params)


# --------------------------------------------------------------------------------------------------------------- worlds


WORLDS: tuple[Hidden, ...] = (
    Hidden(
        "sessions-1", "sessions", True, _sessions_1,
        "random", ("random", "popularity", "user-popularity-greedy", "item-knn"), 3000,
        "RecoGym's link: all click rates are between .45 and 2.93 %; ten items, many recommendations a user.",
    ),
    Hidden(
        "sessions-2", "sessions", True, _sessions_2,
        "user-popularity+epsilon=0.3", ("random", "popularity", "user-popularity", "svd+rank=4", "mf-ips"), 6000,
        "Logistic link, clicks go with views.",
    ),
    Hidden(
        "sessions-3", "sessions", True, _sessions_3,
        "user-popularity", ("random", "popularity", "user-popularity", "item-knn"), 4000,
        "Logistic link, all items flipped; the log shows users what they have viewed, and nothing else.",
    ),
    Hidden(
        "sessions-4", "sessions", True, _sessions_4,
        "item-knn+epsilon=0.2", ("random", "popularity", "item-knn", "svd+rank=5", "user-knn"), 4000,
        "RecoGym's link, all items flipped, flat popularity: gaps are small.",
    ),
    Hidden(
        "sessions-5", "sessions", True, _sessions_5,
        "random", ("random", "popularity", "user-popularity-greedy", "svd+rank=3", "mf-ips"), 8000,
        "Logistic link, clicks go with views, wide spread.",
    ),
    Hidden(
        "novelty-1", "novelty", False,
        made(NoveltyWorld, n_items=12, level=0.12, effect=0.9, kept=0.05, first_views=3.0, views=0.2,
              catalogue_seed=11),
        "random", ("random", "popularity", "user-popularity-greedy", "item-knn", "mf-ips"), 12_000,
        "Viewed is not clicked; new items near one's taste are. Uniform logging shows it.",
    ),
    Hidden(
        "novelty-2", "novelty", False,
        made(NoveltyWorld, n_items=30, level=0.05, effect=0.7, kept=0.1, first_views=6.0, views=0.6,
              catalogue_seed=12),
        "user-popularity", ("random", "popularity", "user-popularity", "item-knn"), 4000,
        "Viewed is not clicked, and the log shows nothing but what was viewed.",
    ),
    Hidden(
        "coin-1", "coin", False,
        made(CoinWorld, n_items=15, level=0.06, unlike=0.8, catalogue_seed=21),
        "user-popularity+epsilon=0.3", ("random", "popularity", "user-popularity", "item-knn", "svd+rank=4"), 8000,
        "A coin per user; all agents are level, exactly.",
    ),
    Hidden(
        "coin-2", "coin", False,
        made(CoinWorld, n_items=40, level=0.02, unlike=0.0, life=20.0, popularity=1.2, catalogue_seed=22),
        "item-knn", ("random", "popularity", "item-knn", "user-knn"), 1200,
        "One coin for all, under a logger without exploration; all agents are level, exactly.",
    ),
    Hidden(
        "boredom-1", "boredom", False,
        made(BoredomWorld, n_items=20, n_topics=4, level=0.2, effect=1.0, tires=0.9, remains=0.85, life=20.0,
              catalogue_seed=31),
        "random", ("random", "user-popularity-greedy", "user-popularity", "svd+rank=4"), 8000,
        "An agent that shows one topic tires its users; in the states of a uniform log it looks best.",
    ),
    Hidden(
        "boredom-2", "boredom", False,
        made(BoredomWorld, n_items=30, n_topics=6, level=0.1, effect=1.2, tires=0.35, remains=0.7, life=10.0,
              catalogue_seed=32),
        "user-popularity-greedy+epsilon=0.2",
        ("random", "popularity", "user-popularity-greedy", "item-knn", "mf-ips"), 10_000,
        "Mild and short boredom.",
    ),
    Hidden(
        "boredom-3", "boredom", False,
        made(BoredomWorld, n_items=50, n_topics=5, level=0.25, effect=0.8, tires=0.6, remains=0.95, life=25.0,
              views_tire=0.1, popularity=1.0, catalogue_seed=33),
        "svd+rank=5", ("random", "popularity", "user-popularity", "svd+rank=5", "user-knn"), 2500,
        "Long boredom, of views too, under a logger without exploration.",
    ),
    Hidden(
        "segments-1", "segments", False,
        made(SegmentsWorld, n_items=10, n_kinds=3, level=0.1, effect=0.9, first=0.9, last=-0.7, sharpness=1.2,
              popularity=0.3, first_views=6.0, catalogue_seed=41),
        "random", ("random", "popularity", "user-popularity-greedy", "item-knn", "dr-policy"), 15_000,
        "Three kinds; one clicks the contrary of what it views.",
    ),
    Hidden(
        "segments-2", "segments", False,
        made(SegmentsWorld, n_items=15, n_kinds=5, level=0.08, effect=0.8, first=0.95, last=0.2, sharpness=1.5,
              catalogue_seed=42),
        "item-knn+epsilon=0.5", ("random", "popularity", "user-popularity", "item-knn", "svd+rank=5"), 12_000,
        "Five kinds, clicks with views in most; half of the log is uniform.",
    ),
    Hidden(
        "segments-3", "segments", False,
        made(SegmentsWorld, n_items=60, n_kinds=6, level=0.03, effect=1.0, first=0.6, last=-0.9, sharpness=1.8,
              life=15.0, catalogue_seed=43),
        "user-popularity-greedy", ("random", "user-popularity-greedy", "user-knn", "popularity"), 3000,
        "Clicks against views in most kinds, no exploration.",
    ),
    Hidden(
        "churn-1", "churn", False,
        made(ChurnWorld, n_items=15, level=0.1, effect=0.7, leaves=0.08, regard=1.2, picky=1.5, life=40.0,
              first_views=4.0, catalogue_seed=51),
        "random", ("random", "popularity", "user-popularity-greedy", "item-knn", "svd+rank=4"), 15_000,
        "Good agents keep picky users, who click less: rates over lives are not those in the log's states.",
    ),
    Hidden(
        "churn-2", "churn", False,
        made(ChurnWorld, n_items=40, level=0.04, effect=0.5, leaves=0.05, regard=2.0, picky=0.0, life=60.0,
              catalogue_seed=52),
        "user-popularity+epsilon=0.1", ("random", "popularity", "user-popularity", "svd+rank=6"), 5000,
        "Strong churn, small catalogue share of exploration.",
    ),
    Hidden(
        "position-1", "position", False,
        made(PositionWorld, n_items=10, level=0.15, effect=0.8, session=5, falls=0.3, turn=0.0, catalogue_seed=61),
        "random", ("random", "popularity", "user-popularity-greedy", "svd+rank=4", "mf-ips"), 15_000,
        "Clicks fall within a session of five decisions, of all items alike: agents do not change it.",
    ),
    Hidden(
        "position-2", "position", False,
        made(PositionWorld, n_items=20, level=0.1, effect=1.0, session=8, falls=0.1, turn=1.0, catalogue_seed=62),
        "svd+rank=4+epsilon=0.3", ("random", "popularity", "user-popularity", "svd+rank=4", "poem"), 12_000,
        "New users click what is popular, old ones what is their own.",
    ),
    Hidden(
        "position-3", "position", False,
        made(PositionWorld, n_items=80, level=0.02, effect=0.8, session=4, falls=0.4, turn=0.6, life=8.0,
              catalogue_seed=63),
        "user-popularity", ("random", "popularity", "user-popularity", "user-popularity-greedy", "item-knn"), 6000,
        "Rare clicks, large catalogue, no exploration.",
    ),
)  # fmt: skip
"""The worlds, by name unique."""
