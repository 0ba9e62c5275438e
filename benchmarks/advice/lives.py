"""What a hidden world is, and what they share: users with tastes who view items, answer recommendations and leave.

A family says how likely users click (:meth:`Lives.chances`) and what a recommendation does to them
(:meth:`Lives.shown`). All draws are at the user's address, all steps are made for many users at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.rng import Stream
from recsim_mnar.worlds import DecisionWorld, Params, PlainLanes
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from recsim_mnar.worlds.sessions.catalogue import make_catalogue

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_VIEWS = 40
"""Views between two decisions."""
_LONGEST = 5
"""Longest life, in mean lives."""


def logistic(x: Floats) -> Floats:
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + np.exp(-x))


def logit(p: float) -> float:
    """The inverse of :func:`logistic`."""
    return float(np.log(p / (1.0 - p)))


@dataclass(frozen=True)
class LivesParams(Params):
    """Parameters of every family.

    Attributes:
        n_items: number of items.
        n_factors: of tastes.
        sharpness: standard deviation, over users and items, of the part of a view's logit that is the user's own.
        popularity: standard deviation of the items' offsets of views.
        first_views: mean number of views before the first decision.
        views: mean number of views before each later one.
        life: mean number of decisions.
        level: click probability of a middling item.
        effect: standard deviation, over users and items, of a click's logit.
        catalogue_seed: of all that belongs to items.
    """

    n_items: int = 20
    n_factors: int = 4
    sharpness: float = 1.5
    popularity: float = 0.7
    first_views: float = 5.0
    views: float = 0.5
    life: float = 12.0
    level: float = 0.08
    effect: float = 1.0
    catalogue_seed: int = 0


class Lives(PlainLanes):
    """Users who view what is to their taste; how they click is the family's.

    Attributes:
        taste: (n_lanes, n_factors) standard normal, drawn at the user's address.
        cumulative: (n_lanes, n_items) of the distribution of views.
        viewed: (n_lanes, n_items) number of views of each item so far.
        left: (n_lanes,) decisions until the user leaves.
    """

    def __init__(self, world: LivesWorld, n_lanes: int, truth_column: str | None) -> None:
        super().__init__(n_lanes, truth_column=truth_column)
        self.world: Any = world
        self.taste = np.zeros((n_lanes, world.params.n_factors))
        self.cumulative = np.zeros((n_lanes, world.n_items))
        self.viewed = np.zeros((n_lanes, world.n_items))
        self.left = np.zeros(n_lanes, np.int64)

    # ------------------------------------------------------------------------------------------------ the family's part

    def chances(self, which: Ints) -> Floats:
        """(n, n_items) click probability of every item now."""
        raise NotImplementedError

    def view_logits(self, which: Ints) -> Floats:
        """(n, n_items) of the distribution of views, on arrival."""
        return self.world.view_logits(self.taste[which])

    def settle(self, which: Ints) -> None:
        """Set up what the family keeps of new users."""

    def shown(self, which: Ints, actions: NDArray[np.int32], clicked: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """What these recommendations do to users; (n,) whether they stay, None where it is not for them to say."""
        return None

    # ------------------------------------------------------------------------------------------------------ as lanes do

    @property
    def state(self) -> Floats:
        """(n_lanes, n_items) click probability of every item."""
        return self.chances(np.arange(len(self.user)))

    def of_user(self, which: Ints, n: int, *, stream: int = Stream.USER, normal: bool = False) -> Floats:
        """(len(which), n) uniforms, or normals, that belong to a user as a whole."""
        out = np.empty((len(which), n))
        draw = rng.normals_of if normal else rng.uniforms
        for seed in np.unique(self.seed[which]):
            rows = np.flatnonzero(self.seed[which] == seed)
            users = np.repeat(self.user[which[rows]], n)
            out[rows] = draw(int(seed), stream, users, np.tile(np.arange(n), len(rows))).reshape(-1, n)
        return out

    def arrive(self, which: Ints) -> None:
        """See :meth:`PlainLanes.arrive`."""
        p = self.world.params
        self.taste[which] = self.of_user(which, p.n_factors, normal=True)
        self.viewed[which] = 0.0
        u = self.of_user(which, 1, stream=Stream.CLOCK)[:, 0]
        self.left[which] = np.minimum(1 + _geometric(u, p.life - 1.0), int(_LONGEST * p.life))
        self.settle(which)
        logits = self.view_logits(which)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        self.cumulative[which] = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)

    def browse(self, which: Ints) -> tuple[Ints, Ints]:
        """See :meth:`PlainLanes.browse`."""
        p = self.world.params
        mean = np.where(self.n_decisions[which] == 0, p.first_views, p.views)
        count = np.minimum(_geometric(self.uniforms(which, Stream.ORGANIC), mean), _MOST_VIEWS)
        lanes = np.repeat(which, count)
        turn = np.arange(len(lanes)) - np.repeat(np.cumsum(count) - count, count)
        u = np.empty(len(lanes))
        for seed in np.unique(self.seed[lanes]):
            rows = np.flatnonzero(self.seed[lanes] == seed)
            index = self.n_decisions[lanes[rows]] * _MOST_VIEWS + turn[rows]
            u[rows] = rng.uniforms(int(seed), Stream.VIEW, self.user[lanes[rows]], index)
        items = np.minimum((self.cumulative[lanes] <= u[:, None]).sum(axis=1), self.world.n_items - 1)
        np.add.at(self.viewed, (lanes, items), 1.0)
        return count, items

    def expected(self, which: Ints, actions: NDArray[np.int32]) -> Floats:
        """See :meth:`PlainLanes.expected`."""
        return self.chances(which)[np.arange(len(which)), actions]

    def answer(self, which: Ints, actions: NDArray[np.int32]) -> tuple[Floats, NDArray[np.bool_]]:
        """See :meth:`PlainLanes.answer`."""
        clicked = self.uniforms(which) < self.expected(which, actions)
        self.left[which] -= 1
        stays = self.left[which] > 0
        of_family = self.shown(which, actions, clicked)
        return clicked.astype(np.float64), stays if of_family is None else stays & of_family


class LivesWorld(DecisionWorld):
    """A catalogue with factors and offsets; a family adds its own tables (:meth:`draw`)."""

    truth_column = "expected_reward"
    reward_name = "click"
    log_holds = frozenset({"outcomes", "clicks"})
    params_class: ClassVar[type[LivesParams]] = LivesParams
    lanes_class: ClassVar[type[Lives]] = Lives

    def __init__(self, params: Any = None) -> None:
        self.params: Any = params or self.params_class()
        p = self.params
        self.n_items = p.n_items
        # Long factors for all items alike: tastes divide them, offsets alone make them popular.
        factors = self.normals(Stream.CATALOGUE, p.n_factors)
        self.factors = factors / np.sqrt((factors**2).sum(axis=1, keepdims=True))
        self.offsets = self.normals(Stream.OFFSETS, 1)[:, 0]
        self.draw()

    def draw(self) -> None:
        """Draw what else belongs to items."""

    def normals(self, stream: int, n: int, first: int = 0) -> Floats:
        """(n_items, n) standard normals of the catalogue; ``first`` sets blocks of rows apart."""
        return rng.normals(self.params.catalogue_seed, stream, first * 100_000, (self.n_items, n))

    def view_logits(self, taste: Floats) -> Floats:
        """(n, n_items) what users of these tastes view."""
        p = self.params
        return p.sharpness * (taste @ self.factors.T) + p.popularity * self.offsets

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> Lives:
        """See :meth:`LaneWorld.open_lanes`."""
        return self.lanes_class(self, n_lanes, self.truth_column if keep_truth else None)

    def reward_means(self, state: Floats) -> Floats:
        """Click probabilities, which the state is."""
        return state


def _geometric(u: Floats, mean: Any) -> Ints:
    """A number of this mean, each next one with the same probability, from a uniform."""
    mean = np.maximum(np.asarray(mean, np.float64), 1e-9)
    return np.floor(np.log1p(-u) / np.log(mean / (1.0 + mean))).astype(np.int64)


def made(kind: type[LivesWorld], **params: Any) -> Callable[[], LivesWorld]:
    """What makes the world of a kind with these parameters."""
    return lambda: kind(kind.params_class(**params))


def logistic_sessions(level: float, scale: float, params: SessionsParams) -> SessionsWorld:
    """Sessions with the logistic link: the drawn catalogue's clicks, scaled, around ``level``."""
    p = params
    drawn = make_catalogue(
        n_items=p.n_items,
        n_factors=p.n_factors,
        sigma_mu_organic=p.sigma_mu_organic,
        n_flips=p.n_flips,
        normalize_beta=False,
        seed=p.catalogue_seed,
    )
    offsets = logit(level) + scale * drawn.click_offsets
    moved = dataclasses.replace(drawn, click_factors=scale * drawn.click_factors, click_offsets=offsets)
    return SessionsWorld(dataclasses.replace(p, click_link="logistic"), catalogue=moved)


@dataclass(frozen=True)
class Hidden:
    """A world whose logs ``advise`` is judged by.

    Attributes:
        name: short, one of its own.
        family: of worlds that differ in parameters and sizes alone.
        inside: whether the sessions model contains it.
        make: gives the world, always the same one.
        logging: name of the logging policy, as the command line takes it; one that learns is fitted on other users
            under the uniform policy, as ``simulate`` does.
        agents: names of the agents to choose from, as the command line takes them.
        users: of one log.
        note: what a judge should know.
    """

    name: str
    family: str
    inside: bool
    make: Callable[[], DecisionWorld]
    logging: str
    agents: tuple[str, ...]
    users: int
    note: str
