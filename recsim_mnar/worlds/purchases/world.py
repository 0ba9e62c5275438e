"""The purchases world: people buy, and some of what is recommended they would have bought anyway (Sato et al. 2019).

Each user buys or does not buy each item in each period. Both potential outcomes are there: Y^T where the item is
recommended, Y^C where it is not. Uplift is tau = Y^T - Y^C; only one of the two is ever seen.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.numerics import slates as ranked
from recsim_mnar.rng import Stream, check_seed
from recsim_mnar.worlds.base import Lanes, Transition, World
from recsim_mnar.worlds.params import Params

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

DEPLOYMENTS = ("uniform", "popularity", "personalised")
LAWS = ("power", "log")
HIDDEN = ("FD", "TU", "TD", "FU")
"""The four hidden classes: ``HIDDEN[Y^T + 2 Y^C]``."""


@dataclass(frozen=True)
class PurchasesParams(Params):
    """Parameters of the purchases world.

    Attributes:
        n_items: number of items I.
        n_periods: periods that a user lives.
        slate_size: items recommended to a user in a period, N (expected number where ``slates`` is ``independent``).
        n_factors: rank of the tastes and of the personal part of what a recommendation does.
        base: log odds of buying an item of mean appeal to a user of no taste, unrecommended.
        sigma_item: standard deviation of the items' offsets in those log odds.
        sigma_taste: standard deviation of a user's taste for an item.
        effect: mean of what a recommendation adds to the log odds.
        effect_popularity: what it adds for each unit of the item's offset; below 0, popular items gain less.
        sigma_effect: standard deviation of the rest of what it adds, personal to user and item.
        deployment: the house recommender shows items by chance ``uniform``, by the item's rank of offset
            (``popularity``) or by the rank of the user's (P(Y^T) + P(Y^C)) / 2 (``personalised``).
        rank_decay: weight of rank r from 1: ``power`` r^-exponent, ``log`` 1 / log2(1 + r).
        exponent: of the power law.
        smallest_propensity: no cell is recommended by the house with a smaller probability; above 0.
        largest_propensity: nor with a larger one; below 1.
        slates: the house draws each item by itself (``independent``) or slates of exactly N items (``fixed``).
        catalogue_seed: of the items.
    """

    n_items: int = 200
    n_periods: int = 10
    slate_size: int = 10
    n_factors: int = 4
    base: float = -3.5
    sigma_item: float = 1.0
    sigma_taste: float = 0.7
    effect: float = 0.9
    effect_popularity: float = -0.4
    sigma_effect: float = 0.7
    deployment: str = "personalised"
    rank_decay: str = "power"
    exponent: float = 0.5
    smallest_propensity: float = 1e-3
    largest_propensity: float = 0.9
    slates: str = "independent"
    catalogue_seed: int = 0

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        for name, least in (("n_items", 1), ("n_periods", 1), ("slate_size", 1), ("n_factors", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.slate_size > self.n_items:
            raise UserError(
                f"slate_size = {self.slate_size} is larger than the number of items, n_items = {self.n_items}"
            )
        if self.n_items * self.n_periods >= 2**32:
            raise UserError("n_items times n_periods must be below 2**32: lower one of them")
        for name in ("sigma_item", "sigma_taste", "sigma_effect", "exponent"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative, got {getattr(self, name):g}")
        for name, known in (
            ("deployment", DEPLOYMENTS),
            ("rank_decay", LAWS),
            ("slates", ("independent", "fixed")),
        ):
            if getattr(self, name) not in known:
                raise UserError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        low, high = self.smallest_propensity, self.largest_propensity
        if not 0 < low <= high < 1:
            raise UserError(
                f"smallest_propensity and largest_propensity must satisfy 0 < smallest <= largest < 1, got {low:g} and "
                f"{high:g}: uplift needs a probability of both to be shown and not to be shown"
            )
        if not low * self.n_items <= self.slate_size <= high * self.n_items:
            raise UserError(
                f"slate_size = {self.slate_size} of {self.n_items} items cannot be reached with propensities in "
                f"[{low:g}, {high:g}]: change slate_size or the bounds"
            )
        check_seed(self.catalogue_seed, "catalogue_seed")


PRESETS: dict[str, tuple[PurchasesParams, str]] = {
    "personalised": (PurchasesParams(), "200 items, ten recommendations a period, more of what the user would buy"),
    "uniform": (PurchasesParams(deployment="uniform"), "the same, recommended at random"),
    "popularity": (PurchasesParams(deployment="popularity"), "the same, the same popular items for everybody"),
    "quick": (PurchasesParams(n_items=50, n_periods=4, slate_size=5), "50 items, 4 periods, slates of 5"),
}


@dataclass(frozen=True)
class Outcomes:
    """Truth of some users: probabilities of both potential outcomes, (n, I).

    Attributes:
        control: P(Y^C = 1), bought without a recommendation.
        treated: P(Y^T = 1), bought with one.
    """

    control: Floats
    treated: Floats

    @property
    def uplift(self) -> Floats:
        """E[tau] = P(Y^T) - P(Y^C)."""
        return self.treated - self.control


class PurchasesWorld(World):
    """People buy in periods and are recommended slates.

    Model: log odds of buying without a recommendation are base + offset_i + taste_u . direction_i, and a recommendation
    adds effect + effect_popularity offset_i + sigma_effect sensitivity_u . response_i. Given both, Y^C and Y^T of every
    (user, item, period) are independent draws, which no recommendation changes.

    Args:
        params: the synthetic model.
        control: (U, I) P(Y^C) that is used instead of the model's; user u is row u mod U.
        treated: (U, I) P(Y^T), likewise.
        propensities: (U, I) or (1, I) probabilities of being recommended, instead of ``deployment``'s; in (0, 1).
    """

    name: ClassVar[str] = "purchases"
    slates: ClassVar[bool] = True
    params: PurchasesParams

    def __init__(
        self,
        params: PurchasesParams | None = None,
        *,
        control: Any = None,
        treated: Any = None,
        propensities: Any = None,
    ) -> None:
        self.params = params or PurchasesParams()
        self.n_items = self.params.n_items
        self._given: Outcomes | None = None
        self._house: Floats | None = None
        if (control is None) != (treated is None):
            raise UserError("P(Y^C) and P(Y^T) belong together: give both control and treated")
        if control is not None:
            self._given = Outcomes(*(self._matrix(x, n) for x, n in ((control, "control"), (treated, "treated"))))
            if self._given.control.shape != self._given.treated.shape:
                raise UserError(
                    f"control has shape {self._given.control.shape}, treated {self._given.treated.shape}: "
                    "they must be the same"
                )
        if propensities is not None:
            self._house = self._matrix(propensities, "propensities")
            if not np.all((self._house > 0) & (self._house < 1)):
                raise UserError("propensities must lie in (0, 1): uplift needs a probability of both")

    def _matrix(self, values: Any, name: str) -> Floats:
        matrix = np.ascontiguousarray(values, np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != self.n_items:
            raise UserError(f"{name} has shape {matrix.shape}, the parameters say {self.n_items} items")
        if not np.all((matrix >= 0) & (matrix <= 1)):
            raise UserError(f"{name} must hold probabilities, it has {matrix[~((matrix >= 0) & (matrix <= 1))][0]:g}")
        return matrix

    @classmethod
    def from_matrices(cls, control: Any, treated: Any, propensities: Any = None, **params: Any) -> PurchasesWorld:
        """A world of given probabilities; ``params`` as in :class:`PurchasesParams`."""
        n_items = np.asarray(control).shape[1]
        sizes = {"n_items": n_items, "n_periods": 1, "slate_size": min(10, (n_items + 1) // 2)}
        return cls(PurchasesParams(**{**sizes, **params}), control=control, treated=treated, propensities=propensities)

    def lasting(self, n_periods: int) -> PurchasesWorld:
        """The same world, users and draws, with lives of ``n_periods``."""
        longer = copy.copy(self)
        longer.params = replace(self.params, n_periods=n_periods)
        return longer

    # ------------------------------------------------------------------------------------------------------ the truth

    @functools.cached_property
    def _items(self) -> tuple[Floats, Floats, Floats]:
        """Directions (I, K), responses (I, K), both of mean square length 1, and offsets (I,)."""
        p = self.params
        drawn = rng.normals(p.catalogue_seed, Stream.CATALOGUE, 0, (p.n_items, 2 * p.n_factors)) / math.sqrt(
            p.n_factors
        )
        offsets = rng.normals(p.catalogue_seed, Stream.OFFSETS, 0, (p.n_items, 1))[:, 0] * p.sigma_item
        return drawn[:, : p.n_factors], drawn[:, p.n_factors :], offsets

    def outcomes_of(self, seed: int, users: Any) -> Outcomes:
        """Truth: both probabilities of every item for users of a seed, (n, I) each."""
        users = np.asarray(users, np.int64)
        if self._given is not None:
            rows = users % len(self._given.control)
            return Outcomes(self._given.control[rows], self._given.treated[rows])
        from recsim_mnar.worlds.purchases import _purchases_kernel

        p = self.params
        directions, responses, offsets = self._items
        own = np.empty((len(users), 2 * p.n_factors))
        for rows in _runs(users):
            own[rows] = rng.normals(seed, Stream.USER, int(users[rows][0]), own[rows].shape)
        odds = np.tile(p.base + offsets, (len(users), 1))
        gain = np.tile(p.effect + p.effect_popularity * offsets, (len(users), 1))
        for k in range(p.n_factors):  # in a fixed order: BLAS rounds by machine, and a last bit can move a purchase
            odds += p.sigma_taste * own[:, k : k + 1] * directions[:, k]
            gain += p.sigma_effect * own[:, p.n_factors + k, None] * responses[:, k]
        control, treated = np.empty_like(odds), np.empty_like(odds)
        _purchases_kernel.logistic(odds, control)
        _purchases_kernel.logistic(odds + gain, treated)
        return Outcomes(control, treated)

    def house_propensities(self, seed: int, users: Any) -> Floats:
        """Chance with which the house recommender shows every item to users of a seed in any period, (n, I)."""
        users = np.asarray(users, np.int64)
        p = self.params
        if self._house is not None:
            return self._house[users % len(self._house)]
        weights = self._law[self._ranks(seed, users)]
        return ranked.scaled(weights, p.slate_size, p.smallest_propensity, p.largest_propensity)

    def _ranks(self, seed: int, users: Ints) -> Ints:
        """(n, I) rank of every item from 0 by which the house recommends."""
        if self.params.deployment == "personalised":
            truth = self.outcomes_of(seed, users)
            order = np.argsort(-(truth.control + truth.treated), axis=1, kind="stable")
        else:
            appeal = self._items[2] if self._given is None else (self._given.control + self._given.treated).sum(axis=0)
            order = np.tile(np.argsort(-appeal, kind="stable"), (len(users), 1))
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(self.n_items)[None, :], axis=1)
        return ranks

    @functools.cached_property
    def _law(self) -> Floats:
        """(I,) weight of each rank from 0."""
        return rank_weights(self.n_items, self.params)

    def potential_outcomes(self, seed: int, users: Any, period: int) -> tuple[Flags, Flags]:
        """Truth: Y^C and Y^T of every item for users of a seed in one period, (n, I) flags."""
        from recsim_mnar.worlds.purchases import _purchases_kernel

        users = np.asarray(users, np.int64)
        truth = self.outcomes_of(seed, users)
        y = np.empty((2, *truth.control.shape), np.uint8)
        with np.errstate(over="ignore"):
            _purchases_kernel.outcomes(
                *_addresses(seed, users, np.full(len(users), period)), truth.control, truth.treated, y[0], y[1]
            )
        return y[0].astype(bool), y[1].astype(bool)

    def hidden_classes(self, seed: int, users: Any, period: int) -> NDArray[np.uint8]:
        """Truth: index into :data:`HIDDEN` of every item for users of a seed in one period, (n, I)."""
        control, treated = self.potential_outcomes(seed, users, period)
        return (treated + 2 * control.astype(np.uint8)).astype(np.uint8)

    def slate_uplift(self, seed: int, users: Any, slates: Any) -> Floats:
        """Truth: expected purchases that these slates cause, (n,): the sum of E[tau] over their distinct items."""
        slates = checked_slates(slates, len(np.atleast_1d(users)), self.n_items)
        shown = flags_of(slates, self.n_items)
        return np.where(shown, self.outcomes_of(seed, users).uplift, 0.0).sum(axis=1)

    def reward_means(self, state: Floats) -> Floats:
        """See :meth:`World.reward_means`: the state is P(Y^T), what a recommended item earns."""
        return np.asarray(state, np.float64)

    # --------------------------------------------------------------------------------------------------- the dynamics

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> PurchasesLanes:
        """See :meth:`World.open_lanes`."""
        return PurchasesLanes(self, n_lanes, keep_truth=keep_truth)

    def trajectories(
        self, seed: int, first_user: int, n_users: int, distribution: Floats | None, *, keep_truth: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Refused: a policy that names one item makes no slate."""
        raise UserError("the purchases world recommends slates: use recsim_mnar.simulate.slates")


def rank_weights(n_items: int, params: PurchasesParams) -> Floats:
    """(I,) weight of the items of rank 1, 2, ... under the parameters' deployment and law."""
    if params.deployment == "uniform":
        return np.ones(n_items)
    return ranked.rank_weights(n_items, params.rank_decay, params.exponent)


def checked_slates(slates: Any, n: int, n_items: int) -> NDArray[np.int64]:
    """Slates as (n, N) integers.

    Raises:
        UserError: another shape, not integers, or an item out of range.
    """
    slates = np.asarray(slates)
    if slates.ndim != 2 or len(slates) != n or slates.shape[1] < 1:
        raise UserError(f"slates must have shape ({n}, N), got {slates.shape}")
    if not np.issubdtype(slates.dtype, np.integer):
        raise UserError(f"slates must hold integers, got {slates.dtype}")
    outside = (slates < 0) | (slates >= n_items)
    if outside.any():
        raise UserError(f"item {slates[outside][0]} is out of range, the world has items 0..{n_items - 1}")
    return slates.astype(np.int64)


def flags_of(slates: NDArray[np.int64], n_items: int) -> Flags:
    """(n, I) which items slates show; an item named twice in a slate is shown once, and the second place is lost."""
    shown = np.zeros((len(slates), n_items), bool)
    np.put_along_axis(shown, slates, True, axis=1)
    return shown


def _addresses(seeds: Any, users: Ints, periods: Ints) -> tuple[NDArray[np.uint64], np.uint64, Ints, Ints]:
    seeds = np.ascontiguousarray(np.broadcast_to(np.asarray(seeds, np.uint64), users.shape))
    return seeds, np.uint64(Stream.PURCHASE), np.ascontiguousarray(users), np.ascontiguousarray(periods, np.int64)


def _runs(users: Ints) -> list[slice]:
    """Stretches of consecutive ids."""
    edges = [0, *(np.flatnonzero(np.diff(users) != 1) + 1).tolist(), len(users)]
    return [slice(a, b) for a, b in itertools.pairwise(edges) if b > a]


class PurchasesLanes(Lanes):
    """See :class:`recsim_mnar.worlds.base.Lanes`; opened by :meth:`PurchasesWorld.open_lanes`.

    A decision is a slate. Its rows come first, items ascending, then the purchases without recommendation, items
    ascending; ``time`` is the period.
    """

    def __init__(self, world: PurchasesWorld, n_lanes: int, *, keep_truth: bool) -> None:
        self._world, self._keep_truth = world, keep_truth
        self.user = np.zeros(n_lanes, np.int64)
        self.step = np.zeros(n_lanes, np.int64)
        self.time = np.zeros(n_lanes)
        self.n_decisions = np.zeros(n_lanes, np.int64)
        self._seeds = np.zeros(n_lanes, np.uint64)
        self._control = np.zeros((n_lanes, world.n_items))
        self._treated = np.zeros((n_lanes, world.n_items))

    @property
    def state(self) -> Floats:
        """See :attr:`Lanes.state`: here P(Y^T) of all items, (n, I)."""
        return self._treated.copy()

    @property
    def uplift(self) -> Floats:
        """Truth: E[tau] of all items, (n, I), for what judges."""
        return self._treated - self._control

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.uint64], users: NDArray[np.int64]) -> Transition:
        """See :meth:`Lanes.begin`: nothing has happened yet."""
        for seed in np.unique(seeds):
            rows = seeds == seed
            truth = self._world.outcomes_of(int(seed), users[rows])
            self._control[which[rows]], self._treated[which[rows]] = truth.control, truth.treated
        self.user[which], self._seeds[which] = users, seeds
        self.step[which], self.time[which], self.n_decisions[which] = 0, 0, 0
        return Transition(np.zeros(len(which) + 1, np.int64), self._columns(0), np.ones(len(which), np.bool_))

    def take(self, which: NDArray[np.int64], actions: NDArray[Any], propensities: NDArray[np.float64]) -> Transition:
        """See :meth:`Lanes.take`: ``actions`` are slates (n, N), ``propensities`` one for each item, or one a user."""
        slates = checked_slates(np.asarray(actions).reshape(len(which), -1), len(which), self._world.n_items)
        probability = np.zeros((len(which), self._world.n_items))
        given = np.broadcast_to(np.asarray(propensities, np.float64).reshape(len(which), -1), slates.shape)
        np.put_along_axis(probability, slates, given, axis=1)
        return self.show(which, flags_of(slates, self._world.n_items), probability)

    def show(self, which: NDArray[np.int64], shown: Flags, probability: Floats) -> Transition:
        """A period in which lanes ``which`` are shown these items: (n, I) flags and probabilities."""
        from recsim_mnar.worlds.purchases import _purchases_kernel

        n = len(which)
        bought = np.empty(shown.shape, np.uint8)
        control, treated = self._control, self._treated
        if not np.array_equal(which, np.arange(len(self.user))):  # all lanes, as ``simulate`` has it, need no copy
            control, treated = control[which], treated[which]
        with np.errstate(over="ignore"):
            _purchases_kernel.buy(
                *_addresses(self._seeds[which], self.user[which], self.n_decisions[which]),
                control, treated, shown.view(np.uint8), bought,
            )  # fmt: skip
        lane, item = np.nonzero(shown | (bought != 0))
        recommended = shown[lane, item]
        order = np.lexsort((~recommended, lane))
        lane, item, recommended = lane[order], item[order], recommended[order]
        count = np.bincount(lane, minlength=n)
        starts = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        columns = self._columns(len(lane))
        columns["user"][:] = self.user[which][lane]
        columns["step"][:] = self.step[which][lane] + np.arange(len(lane)) - starts[lane]
        columns["time"][:] = self.time[which][lane]
        columns["event"][:] = np.where(recommended, schema.BANDIT, schema.ORGANIC)
        columns["item"][:] = np.where(recommended, -1, item)
        columns["action"][:] = np.where(recommended, item, -1)
        columns["propensity"][:] = np.where(recommended, probability[lane, item], np.nan)
        columns["reward"][:] = np.where(recommended, bought[lane, item], np.nan)
        if self._keep_truth:
            columns["click_probability"][:] = np.where(recommended, self._treated[which[lane], item], np.nan)
        self.step[which] += count
        self.time[which] += 1
        self.n_decisions[which] += 1
        return Transition(starts, columns, self.n_decisions[which] < self._world.params.n_periods)

    def _columns(self, n: int) -> dict[str, NDArray[Any]]:
        columns: dict[str, NDArray[Any]] = {}
        for column in schema.COLUMNS:
            columns[column.name] = np.full(n, 0 if column.null is None else column.null, column.dtype)
        if self._keep_truth:
            columns["click_probability"] = np.full(n, np.nan)
        return columns
