"""Twenty more hidden worlds, platforms as an outsider imagines them: the present rules were judged by them, once.

Products of tastes and factors are summed factor by factor, so that a user's rows have the same bits in any company.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from interface import Hidden
from lives import Floats, Ints, Lives, LivesParams, LivesWorld, logistic, logistic_sessions, logit, made
from numpy.typing import NDArray

from recsim_mnar.worlds.sessions import SessionsParams

_TRAITS, _MOMENT = 9001, 9002
"""Streams of users: what they are, and what a decision finds them at."""
_APPEAL, _KIND, _LAYERS = 9101, 9102, 9103
"""Streams of the catalogue."""

Actions = NDArray[np.int32]
Clicks = NDArray[np.bool_]


def dot(a: Floats, b: Floats) -> Floats:
    """(n, m) products of the rows of ``a`` and ``b``, summed in one order whatever n is."""
    out = a[:, :1] * b[:, 0]
    for k in range(1, a.shape[1]):
        out = out + a[:, k : k + 1] * b[:, k]
    return out


def mixed(rho: float, a: Floats, b: Floats) -> Floats:
    """Correlated by ``rho`` with ``a``, of the same spread if a and b are standard normal."""
    return rho * a + math.sqrt(1.0 - rho * rho) * b


@dataclass(frozen=True)
class PlatformParams(LivesParams):
    """As in ``lives``.

    Attributes:
        like: correlation of items' appeal with their offsets of views.
        personal: weight of the user's taste in clicks, in logits.
    """

    like: float = 0.0
    personal: float = 0.5


class Platform(Lives):
    """Users whose liking of items is found on arrival; families say what else moves it."""

    def __init__(self, world: Any, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(world, n_lanes, truth_column)
        self.liking = np.zeros((n_lanes, world.n_items))
        self.open()

    def open(self) -> None:
        """Make the family's arrays."""

    def settle(self, which: Ints) -> None:
        """Find what the users like; then what the family keeps."""
        w = self.world
        self.liking[which] = w.base + w.params.personal * dot(self.taste[which], w.factors)
        self.born(which)

    def born(self, which: Ints) -> None:
        """Set up what the family keeps of new users."""

    def traits(self, which: Ints, n: int, *, normal: bool = True) -> Floats:
        """(len(which), n) draws of the user, apart from the taste."""
        return self.of_user(which, n, stream=_TRAITS, normal=normal)

    def chances(self, which: Ints) -> Floats:
        """By liking alone."""
        return logistic(self.liking[which])


class PlatformWorld(LivesWorld):
    """Items have an appeal of their own, more or less like the offsets of their views."""

    name = "platform"
    params_class = PlatformParams
    lanes_class = Platform

    def draw(self) -> None:
        """Draw appeal; ``base`` is the logit of a click for a user without tastes."""
        p = self.params
        self.appeal = mixed(p.like, self.offsets, self.normals(_APPEAL, 1)[:, 0])
        self.base = logit(p.level) + p.effect * self.appeal
        self.more()

    def more(self) -> None:
        """Draw what else belongs to items."""

    def view_logits(self, taste: Floats) -> Floats:
        """See :meth:`LivesWorld.view_logits`."""
        p = self.params
        return p.sharpness * dot(taste, self.factors) + p.popularity * self.offsets


# ------------------------------------------------------------------------------------- slow: fatigue by creator


@dataclass(frozen=True)
class CreatorParams(PlatformParams):
    """A feed; whoever sees a creator often tires of all of that creator's items, and forgets slowly."""

    n_creators: int = 8
    tire: float = 0.2
    keep: float = 0.97


class CreatorLives(Platform):
    """``seen``: (n, n_creators) recommendations of each creator, forgotten by ``keep`` a decision."""

    def open(self) -> None:
        self.seen = np.zeros((len(self.user), self.world.params.n_creators))

    def born(self, which: Ints) -> None:
        self.seen[which] = 0.0

    def chances(self, which: Ints) -> Floats:
        w = self.world
        return logistic(self.liking[which] - w.params.tire * self.seen[which][:, w.creator])

    def shown(self, which: Ints, actions: Actions, clicked: Clicks) -> None:
        self.seen[which] *= self.world.params.keep
        self.seen[which, self.world.creator[actions]] += 1.0


class CreatorWorld(PlatformWorld):
    params_class = CreatorParams
    lanes_class = CreatorLives

    def more(self) -> None:
        self.creator = np.arange(self.n_items) % self.params.n_creators


# ------------------------------------------------------------------------------------------- slow: lessons learnt


@dataclass(frozen=True)
class LessonParams(PlatformParams):
    """A school: easy lessons are finished now; hard ones teach, and who has learnt finishes more of everything."""

    hard: float = 1.5
    gain: float = 3.0
    rate: float = 0.08


class LessonLives(Platform):
    """``skill``: (n,) in [0, 1)."""

    def open(self) -> None:
        self.skill = np.zeros(len(self.user))

    def born(self, which: Ints) -> None:
        self.skill[which] = 0.3 * self.traits(which, 1, normal=False)[:, 0] ** 2

    def chances(self, which: Ints) -> Floats:
        return logistic(self.liking[which] + self.world.params.gain * self.skill[which][:, None])

    def shown(self, which: Ints, actions: Actions, clicked: Clicks) -> None:
        work = self.world.params.rate * self.world.difficulty[actions] * np.where(clicked, 1.0, 0.6)
        self.skill[which] += work * (1.0 - self.skill[which])


class LessonWorld(PlatformWorld):
    params_class = LessonParams
    lanes_class = LessonLives

    def more(self) -> None:
        """Easy lessons are the popular ones."""
        self.difficulty = logistic(2.0 * mixed(-0.85, self.offsets, self.normals(_KIND, 1)[:, 0]))
        self.base = self.base - self.params.hard * self.difficulty


# --------------------------------------------------------------------------------------------- slow: tastes formed


@dataclass(frozen=True)
class AcquiredParams(PlatformParams):
    """A wine shop: a region that is shown again and again comes to be liked, and is slowly forgotten."""

    n_regions: int = 5
    strength: float = 1.1
    rate: float = 0.06
    keep: float = 0.995


class AcquiredLives(Platform):
    """``known``: (n, n_regions) in [0, 1]."""

    def open(self) -> None:
        self.known = np.zeros((len(self.user), self.world.params.n_regions))

    def born(self, which: Ints) -> None:
        self.known[which] = 0.0

    def chances(self, which: Ints) -> Floats:
        w = self.world
        return logistic(self.liking[which] + w.params.strength * self.known[which][:, w.region])

    def shown(self, which: Ints, actions: Actions, clicked: Clicks) -> None:
        p, of = self.world.params, self.world.region[actions]
        self.known[which] *= p.keep
        self.known[which, of] += p.rate * (1.0 - self.known[which, of])


class AcquiredWorld(PlatformWorld):
    params_class = AcquiredParams
    lanes_class = AcquiredLives

    def more(self) -> None:
        self.region = np.arange(self.n_items) % self.params.n_regions


# ---------------------------------------------------------------------------------------------------- slow: regret


@dataclass(frozen=True)
class RegretParams(PlatformParams):
    """News: bait is clicked, and it and the sight of it are regretted some ten items later, in all that is shown."""

    bait: float = 0.7
    cost: float = 0.5
    dawns: float = 0.1
    fades: float = 0.03


class RegretLives(Platform):
    """``coming``, ``felt``: (n,) regret that has not dawned yet, and that has."""

    def open(self) -> None:
        self.coming, self.felt = np.zeros(len(self.user)), np.zeros(len(self.user))

    def born(self, which: Ints) -> None:
        self.coming[which] = self.felt[which] = 0.0

    def chances(self, which: Ints) -> Floats:
        return logistic(self.liking[which] - self.world.params.cost * self.felt[which][:, None])

    def shown(self, which: Ints, actions: Actions, clicked: Clicks) -> None:
        p = self.world.params
        dawning = p.dawns * self.coming[which]
        self.felt[which] = (1.0 - p.fades) * self.felt[which] + dawning
        self.coming[which] += np.where(clicked, 1.0, 0.8) * self.world.empty[actions] - dawning


class RegretWorld(PlatformWorld):
    params_class = RegretParams
    lanes_class = RegretLives

    def more(self) -> None:
        """The popular items are bait, more or less."""
        self.empty = logistic(5.0 * (mixed(0.85, self.offsets, self.normals(_KIND, 1)[:, 0]) - 1.0))
        self.base = self.base + self.params.bait * (2.0 * self.empty - 1.0)


# ---------------------------------------------------------------------------------------------- slow: purses empty


@dataclass(frozen=True)
class PurseParams(PlatformParams):
    """Vouchers: each one taken costs its price, and a purse that runs low takes fewer; it fills slowly again."""

    purse: float = 14.0
    filled: float = 0.2


class PurseLives(Platform):
    """``full``, ``purse``: (n,) what the user's purse holds at most, and now."""

    def open(self) -> None:
        self.full, self.purse = np.ones(len(self.user)), np.ones(len(self.user))

    def born(self, which: Ints) -> None:
        self.full[which] = self.world.params.purse * np.exp(0.6 * self.traits(which, 1)[:, 0])
        self.purse[which] = self.full[which]

    def chances(self, which: Ints) -> Floats:
        now = self.purse[which][:, None]
        return logistic(self.liking[which]) * now / (now + 0.6 * self.world.price)

    def shown(self, which: Ints, actions: Actions, clicked: Clicks) -> None:
        left = np.maximum(self.purse[which] - clicked * self.world.price[actions], 0.0)
        self.purse[which] = np.minimum(left + self.world.params.filled, self.full[which])


class PurseWorld(PlatformWorld):
    params_class = PurseParams
    lanes_class = PurseLives

    def more(self) -> None:
        self.price = np.exp(0.5 * self.normals(_KIND, 1)[:, 0])


# --------------------------------------------------------------------------------------------- slow: leaving later


@dataclass(frozen=True)
class LeavingParams(PlatformParams):
    """Short films: each dull one annoys a little; users leave for good long after, when it has become too much."""

    keep: float = 0.96
    patience: float = 9.0
    sours: float = 0.08


class LeavingLives(Platform):
    """``annoyed``, ``bears``: (n,) how much, and how much is borne."""

    def open(self) -> None:
        self.annoyed, self.bears = np.zeros(len(self.user)), np.ones(len(self.user))

    def born(self, which: Ints) -> None:
        self.annoyed[which] = 0.0
        self.bears[which] = self.world.params.patience * np.exp(0.4 * self.traits(which, 1)[:, 0])

    def chances(self, which: Ints) -> Floats:
        return logistic(self.liking[which] - self.world.params.sours * self.annoyed[which][:, None])

    def shown(self, which: Ints, actions: Actions, clicked: Clicks) -> Clicks:
        dull = np.maximum(0.0, 1.0 - 2.0 * logistic(self.liking[which, actions]))
        self.annoyed[which] = self.world.params.keep * self.annoyed[which] + dull
        return self.annoyed[which] < self.bears[which]


class LeavingWorld(PlatformWorld):
    params_class = LeavingParams
    lanes_class = LeavingLives


# -------------------------------------------------------------------------------------- households share an account


class HouseholdLives(Platform):
    """A child or an adult sits at the screen; ``share``: (n,) of the child in an account."""

    def open(self) -> None:
        self.share = np.zeros(len(self.user))

    def born(self, which: Ints) -> None:
        u = self.traits(which, 2, normal=False)
        self.share[which] = np.where(u[:, 0] < 0.4, 0.0, u[:, 1])

    def view_logits(self, which: Ints) -> Floats:
        share = self.share[which][:, None]
        return self.world.view_logits(self.taste[which]) + np.log(
            np.where(self.world.for_child, 2.5 * share, 1.0 - share) + 0.03
        )

    def chances(self, which: Ints) -> Floats:
        child = (self.uniforms(which, _MOMENT) < self.share[which])[:, None]
        keen = 0.22 * logistic(1.5 + self.world.appeal)
        adult = logistic(self.liking[which]) * np.where(self.world.for_child, 0.15, 1.0)
        return np.where(child, np.where(self.world.for_child, keen, 0.02), adult)


class HouseholdWorld(PlatformWorld):
    lanes_class = HouseholdLives

    def more(self) -> None:
        self.for_child = np.arange(self.n_items) % 3 == 0


# ----------------------------------------------------------------------------------------------------- a few whales


class WhaleLives(Platform):
    """Most players hardly ever take an offer, a few take nearly everything; ``zeal``: (n,) in logits."""

    def open(self) -> None:
        self.zeal = np.zeros(len(self.user))

    def born(self, which: Ints) -> None:
        u = self.traits(which, 1, normal=False)[:, 0]
        zeal = np.minimum(0.55 * -np.log1p(-u), 3.2) + np.where(
            u > 0.98, 1.0, 0.0
        )  # exponential in logits: a power law
        self.zeal[which] = zeal
        self.left[which] = np.minimum(self.left[which] + np.floor(4.0 * zeal).astype(np.int64), 60)

    def chances(self, which: Ints) -> Floats:
        return logistic(self.liking[which] + self.zeal[which][:, None])


class WhaleWorld(PlatformWorld):
    lanes_class = WhaleLives


# -------------------------------------------------------------------------------------------- goods that complement


class ComplementLives(Platform):
    """Who has looked at a camera clicks lenses, and no more cameras."""

    def chances(self, which: Ints) -> Floats:
        w, views = self.world, self.viewed[which]
        partner = np.zeros_like(views)
        for partners in w.partners:  # (n_items,) each: whose views make this item wanted
            partner = partner + views[:, partners]
        logits = self.liking[which] + 0.9 * np.log1p(partner) - 0.7 * np.minimum(views, 2.0)
        return logistic(logits)


class ComplementWorld(PlatformWorld):
    lanes_class = ComplementLives

    def more(self) -> None:
        """Partners are of a like taste, though not the most alike."""
        near = np.argsort(-dot(self.factors, self.factors), axis=1, kind="stable")
        self.partners = (near[:, 2], near[:, 3], near[:, 5])


# -------------------------------------------------------------------------------------------------------- by price


class PriceLives(Platform):
    """Users look at what is dear and take what they can afford."""

    def born(self, which: Ints) -> None:
        thrift = np.exp(0.5 * self.traits(which, 1))
        self.liking[which] -= 0.9 * thrift * self.world.price


class PriceWorld(PlatformWorld):
    lanes_class = PriceLives

    def more(self) -> None:
        self.price = mixed(0.6, self.offsets, self.normals(_KIND, 1)[:, 0])


# -------------------------------------------------------------------------------------------------- by time of day


class DayLives(Platform):
    """``hour``: (n,) of arrival; half an hour goes by from one recommendation to the next."""

    def open(self) -> None:
        self.hour = np.zeros(len(self.user))

    def born(self, which: Ints) -> None:
        self.hour[which] = 24.0 * self.traits(which, 1, normal=False)[:, 0]

    def wave(self, hour: Floats) -> Floats:
        return np.cos(2.0 * np.pi * (hour[:, None] - self.world.peak) / 24.0)

    def view_logits(self, which: Ints) -> Floats:
        return self.world.view_logits(self.taste[which]) + 1.2 * self.wave(self.hour[which])

    def chances(self, which: Ints) -> Floats:
        return logistic(self.liking[which] + 1.1 * self.wave(self.hour[which] + 0.5 * self.n_decisions[which]))


class DayWorld(PlatformWorld):
    lanes_class = DayLives

    def more(self) -> None:
        self.peak = 24.0 * logistic(1.7 * self.normals(_KIND, 1)[:, 0])


# ---------------------------------------------------------------------------------------------------------- neural


class NeuralLives(Platform):
    """Clicks by a random network of taste, two traits that views do not show, and the item."""

    def born(self, which: Ints) -> None:
        w = self.world
        user = dot(np.hstack([self.taste[which], self.traits(which, 2)]), w.of_user)
        out = np.zeros_like(self.liking[which])
        for h in range(len(w.last)):
            out = out + w.last[h] * np.tanh(user[:, h : h + 1] + w.of_item[:, h])
        self.liking[which] += 0.8 * out


class NeuralWorld(PlatformWorld):
    lanes_class = NeuralLives

    def more(self) -> None:
        p, n_hidden = self.params, 12
        layers = self.normals_of_shape(3, (n_hidden, p.n_factors + 2))
        self.of_user = layers / math.sqrt(p.n_factors + 2)
        self.of_item = 1.5 * dot(self.factors, self.normals_of_shape(4, (n_hidden, p.n_factors))) + 0.5
        self.last = self.normals_of_shape(5, (n_hidden, 1))[:, 0] / 2.0

    def normals_of_shape(self, block: int, shape: tuple[int, int]) -> Floats:
        """Standard normals of a layer; blocks stand apart."""
        from recsim_mnar import rng

        return rng.normals(self.params.catalogue_seed, _LAYERS, block * 100_000, shape)


# ------------------------------------------------------------------------------------------------------ seen it all


class SeenLives(Platform):
    """Films: what was watched unasked is hardly ever clicked."""

    def chances(self, which: Ints) -> Floats:
        return logistic(self.liking[which]) * np.where(self.viewed[which] > 0, 0.15, 1.0)


class SeenWorld(PlatformWorld):
    lanes_class = SeenLives


# --------------------------------------------------------------------------------------------------------- fashion


class FashionLives(Platform):
    """Users come at any time of the year; they look at what was worn last season and click what is worn now."""

    def open(self) -> None:
        self.date = np.zeros(len(self.user))

    def born(self, which: Ints) -> None:
        self.date[which] = self.traits(which, 1, normal=False)[:, 0]
        self.liking[which] += 0.9 * self.worn(self.date[which])

    def worn(self, date: Floats) -> Floats:
        return np.cos(2.0 * np.pi * (date[:, None] - self.world.season))

    def view_logits(self, which: Ints) -> Floats:
        return self.world.view_logits(self.taste[which]) + 0.8 * self.worn(self.date[which] - 0.12)


class FashionWorld(PlatformWorld):
    lanes_class = FashionLives

    def more(self) -> None:
        self.season = logistic(1.7 * self.normals(_KIND, 1)[:, 0])


# ------------------------------------------------------------------------------------------ place in the visit only


class PlaceLives(Platform):
    """An item's appeal, less and less of it as the visit goes on, whatever was shown."""

    def chances(self, which: Ints) -> Floats:
        worn = 0.35 + 0.65 * np.power(0.85, np.minimum(self.n_decisions[which], 25))
        return logistic(self.liking[which]) * worn[:, None]


class PlaceWorld(PlatformWorld):
    lanes_class = PlaceLives


# ------------------------------------------------------------------------------------------------------- the worlds


def sessions(level: float, scale: float, **params: Any) -> Any:
    """What makes a sessions world with the logistic link."""
    return partial(logistic_sessions, level, scale, SessionsParams(**params))


def outside(
    name: str, kind: type[PlatformWorld], logging: str, agents: str, users: int, note: str, **params: Any
) -> Hidden:
    """A world that is not of the sessions model."""
    family = name.removesuffix("-b")
    return Hidden(name, family, False, made(kind, **params), logging, tuple(agents.split()), users, note)


def inside(name: str, make: Any, logging: str, agents: str, users: int) -> Hidden:
    """A world of the sessions model."""
    return Hidden(
        name, "sessions", True, make, logging, tuple(agents.split()), users, "sessions, logistic link; no effects"
    )


_NONE = "recommendations have no effect on later rewards"

WORLDS = (
    inside(
        "sessions-bookshop-b",
        sessions(
            0.09,
            0.45,
            n_items=15,
            sigma_mu_organic=1.0,
            p_organic_to_bandit=0.3,
            p_bandit_to_organic=0.1,
            p_leave_bandit=0.04,
            p_leave_organic=0.02,
            catalogue_seed=9201,
        ),
        "random",
        "random popularity user-popularity item-knn",
        4000,
    ),
    inside(
        "sessions-flipped-b",
        sessions(
            0.15,
            0.4,
            n_items=20,
            n_flips=10,
            sigma_mu_organic=2.0,
            p_bandit_to_organic=0.08,
            p_leave_bandit=0.05,
            p_leave_organic=0.03,
            catalogue_seed=9202,
        ),
        "user-popularity+epsilon=0.2",
        "random popularity user-popularity svd+rank=4",
        5000,
    ),
    inside(
        "sessions-wide-b",
        sessions(
            0.05,
            0.4,
            n_items=40,
            n_factors=8,
            n_flips=5,
            sigma_mu_organic=1.5,
            p_bandit_to_organic=0.15,
            p_leave_bandit=0.05,
            catalogue_seed=9203,
        ),
        "item-knn",
        "random popularity item-knn user-knn user-popularity",
        3000,
    ),
    inside(
        "sessions-restless-b",
        sessions(
            0.04,
            0.6,
            n_items=10,
            n_factors=3,
            sigma_omega=0.2,
            sigma_mu_organic=0.5,
            drift_in_bandit=True,
            p_bandit_to_organic=0.2,
            p_leave_bandit=0.05,
            catalogue_seed=9204,
        ),
        "random",
        "random user-popularity user-popularity-greedy",
        5000,
    ),
    inside(
        "sessions-many-b",
        sessions(
            0.18,
            0.3,
            n_items=60,
            n_factors=6,
            n_flips=20,
            sigma_mu_organic=1.2,
            p_bandit_to_organic=0.3,
            p_leave_bandit=0.04,
            catalogue_seed=9205,
        ),
        "item-knn+epsilon=0.6",
        "random popularity item-knn svd+rank=4 user-popularity+epsilon=0.1",
        4500,
    ),
    outside(
        "creators-b",
        CreatorWorld,
        "random",
        "random popularity user-popularity item-knn",
        3600,
        "SLOW, reverses: fatigue by creator, half-life 23 decisions",
        n_items=24,
        life=30.0,
        level=0.16,
        effect=0.45,
        like=0.5,
        personal=0.6,
        popularity=1.0,
        catalogue_seed=9301,
    ),
    outside(
        "lessons-b",
        LessonWorld,
        "user-popularity+epsilon=0.3",
        "random popularity user-popularity svd+rank=4",
        3000,
        "SLOW, reverses: hard lessons earn less now and raise all later rewards",
        n_items=20,
        life=38.0,
        level=0.10,
        effect=0.3,
        personal=0.25,
        popularity=1.4,
        catalogue_seed=9302,
    ),
    outside(
        "acquired-b",
        AcquiredWorld,
        "random",
        "random popularity user-popularity item-knn",
        3800,
        "SLOW, positive: regions that are shown come to be liked; favours agents that repeat",
        n_items=30,
        life=28.0,
        level=0.07,
        effect=0.5,
        like=-0.5,
        personal=0.6,
        popularity=1.0,
        catalogue_seed=9303,
    ),
    outside(
        "regret-b",
        RegretWorld,
        "user-popularity+epsilon=0.5",
        "random popularity user-popularity item-knn",
        3300,
        "SLOW, reverses: bait lowers everything some ten decisions later, half-life 23 then",
        n_items=20,
        life=34.0,
        level=0.14,
        effect=0.4,
        like=0.6,
        personal=0.3,
        popularity=0.8,
        catalogue_seed=9309,
    ),
    outside(
        "purses-b",
        PurseWorld,
        "random",
        "random popularity item-knn user-popularity-greedy",
        5000,
        "SLOW, harmless: purses empty and fill again",
        n_items=25,
        life=22.0,
        level=0.06,
        effect=0.4,
        like=0.3,
        personal=1.1,
        catalogue_seed=9305,
    ),
    outside(
        "leaving-b",
        LeavingWorld,
        "svd+rank=4",
        "random popularity svd+rank=4 item-knn user-popularity+epsilon=0.1",
        4500,
        "SLOW: dull items lower later rewards a little and drive users away long after",
        n_items=36,
        life=26.0,
        level=0.10,
        effect=0.6,
        like=0.3,
        personal=1.2,
        catalogue_seed=9306,
    ),
    outside(
        "household-b",
        HouseholdWorld,
        "random",
        "random popularity user-popularity item-knn user-knn",
        7500,
        f"child or adult at the screen, drawn anew each time; {_NONE}",
        n_items=30,
        life=14.0,
        level=0.05,
        effect=0.4,
        personal=0.7,
        catalogue_seed=9307,
    ),
    outside(
        "whales-b",
        WhaleWorld,
        "user-knn+epsilon=0.3",
        "random popularity user-popularity user-knn",
        6000,
        f"a power law of users; whales stay longer; {_NONE}",
        n_items=16,
        life=9.0,
        level=0.025,
        effect=0.5,
        like=0.4,
        personal=0.8,
        catalogue_seed=9308,
    ),
    outside(
        "complements-b",
        ComplementWorld,
        "random",
        "random popularity user-popularity-greedy item-knn",
        6000,
        f"clicks on what goes with the viewed, not on the viewed; {_NONE}",
        n_items=28,
        life=15.0,
        level=0.06,
        effect=0.5,
        like=0.2,
        personal=0.6,
        views=0.3,
        catalogue_seed=9389,
    ),
    outside(
        "prices-b",
        PriceWorld,
        "user-popularity-greedy",
        "random popularity user-popularity-greedy svd+rank=4",
        4000,
        f"dear items are viewed, cheap ones clicked; {_NONE}",
        n_items=40,
        life=12.0,
        level=0.12,
        effect=0.4,
        personal=0.6,
        catalogue_seed=9310,
    ),
    outside(
        "daypart-b",
        DayWorld,
        "user-popularity",
        "random popularity user-popularity item-knn",
        7000,
        f"time of day, which goes on during a visit; {_NONE}",
        n_items=18,
        life=14.0,
        level=0.08,
        effect=0.4,
        like=0.3,
        personal=0.4,
        catalogue_seed=9311,
    ),
    outside(
        "neural-b",
        NeuralWorld,
        "user-knn",
        "random popularity user-knn item-knn svd+rank=4",
        3500,
        f"a random network of taste, hidden traits and item; {_NONE}",
        n_items=45,
        n_factors=5,
        life=11.0,
        level=0.20,
        effect=0.3,
        personal=0.0,
        catalogue_seed=9312,
    ),
    outside(
        "seen-it-b",
        SeenWorld,
        "item-knn+epsilon=0.1",
        "random user-popularity item-knn svd+rank=4",
        8000,
        f"what was viewed is hardly clicked; {_NONE}",
        n_items=12,
        life=12.0,
        level=0.20,
        effect=0.5,
        personal=0.9,
        first_views=3.0,
        views=0.2,
        catalogue_seed=9313,
    ),
    outside(
        "fashion-b",
        FashionWorld,
        "svd+rank=4+epsilon=0.5",
        "random popularity svd+rank=4 user-popularity",
        7000,
        f"seasons, drawn on arrival; views lag behind clicks; {_NONE}",
        n_items=22,
        life=13.0,
        level=0.06,
        effect=0.4,
        personal=0.3,
        catalogue_seed=9314,
    ),
    outside(
        "place-b",
        PlaceWorld,
        "user-popularity",
        "random popularity user-popularity",
        1800,
        f"item appeal alone, wearing off with the place in a visit; {_NONE}",
        n_items=14,
        life=20.0,
        level=0.25,
        effect=0.6,
        like=0.2,
        personal=0.0,
        catalogue_seed=9315,
    ),
)
