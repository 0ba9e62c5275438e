"""Worlds whose users are shown several items at a time, and the purchases world (Sato et al. 2019).

Each user buys or does not buy each item in each period. Both potential outcomes are there: Y^T where the item is
recommended, Y^C where it is not. Uplift is tau = Y^T - Y^C; only one of the two is ever seen. In the purchases world
people would have bought some of what is recommended anyway.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels import elementary
from recsim_mnar.kernels.checks import refuse_first
from recsim_mnar.log import schema
from recsim_mnar.log.rows import consecutive
from recsim_mnar.rng import Stream, check_seed
from recsim_mnar.worlds.base import LaneWorld, add_products, checked_slates
from recsim_mnar.worlds.lanes import CountedLanes, Transition
from recsim_mnar.worlds.params import Params, must, one_of

Seeds = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


LAWS = ("power", "log")
COUPLINGS = ("independent", "shared")


@dataclass(frozen=True)
class SlateParams(Params):
    """Parameters of a user's own world of slates; derive, and add others with defaults.

    Attributes:
        n_items: number of items I.
        n_periods: periods that a user lives.
        slate_size: items recommended to a user in a period, N (expected number where ``slates`` is ``independent``).
        rank_decay: weight of rank r from 1: ``power`` r^-exponent, ``log`` 1 / log2(1 + r).
        exponent: of the power law.
        smallest_propensity: no item is recommended with a smaller probability; above 0.
        largest_propensity: nor with a larger one; below 1.
        slates: each item is drawn by itself (``independent``), or slates of exactly N items (``fixed``).
        catalogue_seed: of the items.
        coupling: see :class:`recsim_mnar.purchases.world.PurchasesParams`.
    """

    n_items: int = 50
    n_periods: int = 4
    slate_size: int = 5
    rank_decay: str = "power"
    exponent: float = 0.5
    smallest_propensity: float = 1e-3
    largest_propensity: float = 0.9
    slates: str = "independent"
    catalogue_seed: int = 0
    coupling: str = "independent"

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        check_slates(self)


RULES = tuple(name for name in SlateParams.__dataclass_fields__ if name != "catalogue_seed")
"""Parameters that a world of slates must have."""


def check_slates(p: Any) -> None:
    """Raise UserError naming the parameter by which slates cannot be made; ``p`` has those of :class:`SlateParams`."""
    must(p, "be at least 1", "n_items", "n_periods", "slate_size")
    if p.slate_size > p.n_items:
        raise UserError(f"slate_size = {p.slate_size} is larger than the number of items, n_items = {p.n_items}")
    if p.n_items * p.n_periods >= 2**32:
        raise UserError("n_items times n_periods must be below 2**32: lower one of them")
    must(p, "not be negative", "exponent")
    one_of(p, rank_decay=LAWS, slates=("independent", "fixed"), coupling=COUPLINGS)
    low = p.smallest_propensity
    high = p.largest_propensity
    if not 0 < low <= high < 1:
        raise UserError(
            f"smallest_propensity and largest_propensity must satisfy 0 < smallest <= largest < 1, got {low:g} and "
            f"{high:g}: uplift needs a probability of both to be shown and not to be shown"
        )
    if not low * p.n_items <= p.slate_size <= high * p.n_items:
        raise UserError(
            f"slate_size = {p.slate_size} of {p.n_items} items cannot be reached with propensities in "
            f"[{low:g}, {high:g}]: change slate_size or the bounds"
        )
    check_seed(getattr(p, "catalogue_seed", 0), "catalogue_seed")


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


def flags_of(slates: Ints, n_items: int) -> Flags:
    """Return (n, I) flags of the items in slates; an item that is named twice is shown once."""
    flags = np.zeros((len(slates), n_items), bool)
    np.put_along_axis(flags, slates, True, axis=1)
    return flags


def addresses(seeds: Any, users: Ints, periods: Ints, coupling: str) -> tuple[Seeds, np.uint64, Ints, Ints, bool]:
    """Return the first arguments of the kernels that draw purchases; the last is the coupling flag."""
    seeds = np.ascontiguousarray(np.broadcast_to(np.asarray(seeds, np.uint64), users.shape))
    users = np.ascontiguousarray(users)
    periods = np.ascontiguousarray(periods, np.int64)
    return seeds, np.uint64(Stream.PURCHASE), users, periods, coupling == "shared"


class PurchasesLanes(CountedLanes):
    """Implement :class:`recsim_mnar.worlds.base.Lanes`; opened by :meth:`ExposureWorld.open_lanes`.

    A decision is a slate. Its rows come first, items ascending, then the purchases without recommendation, items
    ascending; ``time`` is the period.

    Args:
        world: the world that opens them.
        n_lanes: users side by side.
        truth_column: name of the column of P(Y^T) of what is shown; None to leave it out.
    """

    trusted = True

    def __init__(self, world: ExposureWorld, n_lanes: int, *, truth_column: str | None) -> None:
        super().__init__(n_lanes, truth_column=truth_column)
        self._world = world
        self._params = world.params
        self._control = np.zeros((n_lanes, world.n_items))
        self._treated = np.zeros((n_lanes, world.n_items))

    @property
    def state(self) -> Floats:
        """Implement :attr:`Lanes.state`: here P(Y^T) of all items, (n, I)."""
        return self._treated.copy()

    @property
    def uplift(self) -> Floats:
        """Truth, E[tau] of all items, (n, I), for what judges."""
        return self._treated - self._control

    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Implement :meth:`Lanes.begin`: nothing has happened yet."""
        for seed, rows in self.seat(which, seeds, users):
            truth = self._world.checked_outcomes(seed, users[rows])
            self._control[which[rows]] = truth.control
            self._treated[which[rows]] = truth.treated
        starts, columns = self.rows(which, np.zeros(len(which), np.int64))
        return Transition(starts, columns, np.ones(len(which), np.bool_))

    def take(self, which: Ints, actions: NDArray[Any], propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`: ``actions`` are slates (n, N), ``propensities`` one per item or per user."""
        slates = checked_slates(np.asarray(actions).reshape(len(which), -1), len(which), self._params.n_items)
        probability = np.zeros((len(which), self._params.n_items))
        stated = np.broadcast_to(np.asarray(propensities, np.float64).reshape(len(which), -1), slates.shape)
        np.put_along_axis(probability, slates, stated, axis=1)
        return self.show(which, flags_of(slates, self._params.n_items), probability)

    def show(self, which: Ints, shown: Flags, probability: Floats) -> Transition:
        """Show items in lanes ``which`` for one period: (n, I) flags and probabilities."""
        from recsim_mnar.purchases import _slates_kernel

        bought = np.empty(shown.shape, np.uint8)
        control = self._control
        treated = self._treated
        if not np.array_equal(which, np.arange(len(self.user))):  # all lanes, as ``simulate`` has it, need no copy
            control = control[which]
            treated = treated[which]
        with np.errstate(over="ignore"):
            drawn_at = addresses(self.seed[which], self.user[which], self.n_decisions[which], self._params.coupling)
            _slates_kernel.buy(*drawn_at, control, treated, shown.view(np.uint8), bought)
        lane, item = np.nonzero(shown | (bought != 0))
        recommended = shown[lane, item]
        order = np.lexsort((~recommended, lane))
        lane = lane[order]
        item = item[order]
        recommended = recommended[order]
        starts, columns = self.rows(which, np.bincount(lane, minlength=len(which)))
        columns["time"][:] = self.time[which][lane]
        columns["event"][:] = np.where(recommended, schema.BANDIT, schema.ORGANIC)
        columns["item"][:] = np.where(recommended, -1, item)
        columns["action"][:] = np.where(recommended, item, -1)
        columns["propensity"][:] = np.where(recommended, probability[lane, item], np.nan)
        columns["reward"][:] = np.where(recommended, bought[lane, item], np.nan)
        if self.truth_column is not None:
            columns[self.truth_column][:] = np.where(recommended, self._treated[which[lane], item], np.nan)
        self.time[which] += 1
        self.n_decisions[which] += 1
        return Transition(starts, columns, self.n_decisions[which] < self._params.n_periods)


class ExposureWorld(LaneWorld):
    """World of independent users who are shown slates, with both potential outcomes known.

    In every period a user buys or does not buy each item: with probability ``treated`` where it is recommended, else
    with ``control``. A world of one's own says these (:meth:`outcomes_of`), and its ``params_class`` derives from
    :class:`SlateParams`; all else follows, and may be defined otherwise.
    """

    truth_column = "purchase_probability"
    simulated_by = "recsim_mnar.purchases.policies:simulated"
    recommended_by = "recsim_mnar.purchases.policies:as_slate_policy"
    compared_by = "recsim_mnar.purchases.comparison:PurchasesExperiment"
    environments_by = "recsim_mnar.purchases.envs:of_exposures"
    tasks_by = "recsim_mnar.purchases.tasks:Slates"
    instead = "recommends slates: use recsim_mnar.simulate or the environment recsim_mnar/Purchases-v0"
    params: Any

    def check_params(self) -> None:
        """Implement :meth:`World.check_params`: they say how slates are made."""
        lacking = [rule for rule in RULES if not hasattr(self.params, rule)]
        if lacking:
            raise UserError(
                f"world {self.name!r}: its parameters lack {', '.join(lacking)}: derive its params_class from "
                "recsim_mnar.worlds.SlateParams"
            )

    @property
    def most_decisions(self) -> int:  # type: ignore[override]  # by its parameters
        """Implement :class:`World`: one in every period."""
        return int(self.params.n_periods)

    @abstractmethod
    def outcomes_of(self, seed: int, users: Any) -> Outcomes:
        """Truth: both probabilities of every item for users (n,) of a seed, (n, n_items) each.

        They must depend on the seed and on each user alone, not on who else is asked for.
        """

    def deployed_propensities(self, seed: int, users: Any) -> Floats:
        """P(shown) of every item to users of a seed in any period, by the world's own recommender; (n, n_items).

        Uniform unless defined. Where the parameter ``slates`` is ``fixed``, rows sum to ``slate_size``.
        """
        return np.full((len(np.atleast_1d(users)), self.n_items), self.params.slate_size / self.n_items)

    def potential_outcomes(self, seed: int, users: Any, period: int) -> tuple[Flags, Flags]:
        """Truth: Y^C and Y^T of every item for users of a seed in one period, (n, n_items) flags each."""
        from recsim_mnar.purchases import _slates_kernel

        users = np.asarray(users, np.int64)
        truth = self.checked_outcomes(seed, users)
        y = np.empty((2, *truth.control.shape), np.uint8)
        with np.errstate(over="ignore"):
            drawn_at = addresses(seed, users, np.full(len(users), period), self.params.coupling)
            _slates_kernel.outcomes(*drawn_at, truth.control, truth.treated, y[0], y[1])
        return y[0].astype(bool), y[1].astype(bool)

    def slate_uplift(self, seed: int, users: Any, slates: Any) -> Floats:
        """Truth: expected purchases that these slates cause, (n,): the sum of E[tau] over their distinct items."""
        slates = checked_slates(slates, len(np.atleast_1d(users)), self.n_items)
        flags = flags_of(slates, self.n_items)
        return np.where(flags, self.outcomes_of(seed, users).uplift, 0.0).sum(axis=1)

    def reward_means(self, state: Floats) -> Floats:
        """Truth: (n, n_items) P(Y^T), what a recommended item earns; it is the lanes' state."""
        return np.asarray(state, np.float64)

    def lasting(self, n_periods: int) -> Self:
        """Return the same world, users and draws, with ``n_periods`` periods."""
        longer = copy.copy(self)
        longer.params = dataclasses.replace(self.params, n_periods=n_periods)
        return longer

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> PurchasesLanes:
        """Implement :meth:`LaneWorld.open_lanes`."""
        return PurchasesLanes(self, n_lanes, truth_column=self.kept_truth(keep_truth))

    def checked_outcomes(self, seed: int, users: Ints) -> Outcomes:
        """Return :meth:`outcomes_of`; UserError where they are no probabilities of the right shape."""
        outcomes = self.outcomes_of(seed, users)
        shape = (len(users), self.n_items)
        for name in ("control", "treated"):
            values = np.asarray(getattr(outcomes, name, None), np.float64)
            if values.shape != shape or not np.all((values >= 0) & (values <= 1)):
                got = f"of shape {values.shape}"
                if values.shape == shape:
                    got = f"{values[~((values >= 0) & (values <= 1))][0]:g} somewhere"
                raise UserError(
                    f"the {self.name} world: outcomes_of() must return Outcomes(control, treated), probabilities of "
                    f"shape {shape} each; its {name} is {got}"
                )
        return outcomes


def weights_by_rank(n_items: int, rank_decay: str, exponent: float) -> Floats:
    """(n_items,) weight of rank r = 1, 2, ...: ``power`` r^-exponent, ``log`` 1 / log2(1 + r)."""
    rank = np.arange(1, n_items + 1, dtype=np.float64)
    if rank_decay == "log":
        logs = elementary.log(rank + 1.0)
        return logs[0] / logs
    return elementary.exp(-exponent * elementary.log(rank))


def scaled(weights: Floats, size: int, smallest: float, largest: float) -> Floats:
    """Return (n, I) probabilities min(max(c weights, smallest), largest), with c such that rows sum to ``size``."""
    from recsim_mnar.purchases import _slates_kernel

    out = np.empty_like(weights)
    _slates_kernel.scale_rows(weights, float(size), smallest, largest, out)
    return out


DEPLOYMENTS = ("uniform", "popularity", "personalised")


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
        deployment: the deployed policy shows items by chance ``uniform``, by the item's rank of offset
            (``popularity``) or by the rank of the user's (P(Y^T) + P(Y^C)) / 2 (``personalised``).
        rank_decay: weight of rank r from 1: ``power`` r^-exponent, ``log`` 1 / log2(1 + r).
        exponent: of the power law.
        smallest_propensity: no cell is recommended by the deployed policy with a smaller probability; above 0.
        largest_propensity: nor with a larger one; below 1.
        slates: the deployed policy draws each item by itself (``independent``), or slates of exactly N items
            (``fixed``).
        catalogue_seed: of the items.
        coupling: Y^C and Y^T of a cell are drawn apart (``independent``), or by one uniform (``shared``), so that a
            recommendation that changes no probability changes no purchase. Expected uplifts, metrics and the law of a
            log are the same under both.
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
    coupling: str = "independent"

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        check_slates(self)
        must(self, "be at least 1", "n_factors")
        must(self, "not be negative", "sigma_item", "sigma_taste", "sigma_effect")
        one_of(self, deployment=DEPLOYMENTS)


PRESETS: dict[str, tuple[PurchasesParams, str]] = {
    "personalised": (PurchasesParams(), "200 items, ten recommendations per period, more of what the user would buy"),
    "uniform": (PurchasesParams(deployment="uniform"), "the same, recommended at random"),
    "popularity": (PurchasesParams(deployment="popularity"), "the same, the same popular items for everybody"),
    "quick": (PurchasesParams(n_items=50, n_periods=4, slate_size=5), "50 items, 4 periods, slates of 5"),
}


def rank_weights(n_items: int, params: PurchasesParams) -> Floats:
    """(I,) weight of the items of rank 1, 2, ... under the parameters' deployment and law."""
    if params.deployment == "uniform":
        return np.ones(n_items)
    return weights_by_rank(n_items, params.rank_decay, params.exponent)


class PurchasesWorld(ExposureWorld):
    """People buy in periods and are recommended slates.

    Model: log odds of buying without a recommendation are base + offset_i + taste_u . direction_i, and a recommendation
    adds effect + effect_popularity offset_i + sigma_effect sensitivity_u . response_i. Given both, Y^C and Y^T of every
    (user, item, period) are drawn as ``coupling`` says, and no recommendation changes them.

    Args:
        params: the synthetic model.
        control: (U, I) P(Y^C) that is used instead of the model's; user u is row u mod U.
        treated: (U, I) P(Y^T), likewise.
        propensities: (U, I) or (1, I) probabilities of being recommended, instead of ``deployment``'s; in (0, 1).
    """

    name = "purchases"
    summary = "users buy in periods, recommended or not; both potential outcomes are known (Sato et al. 2019)"
    params_class = PurchasesParams
    presets = PRESETS
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
        self._deployed: Floats | None = None
        if (control is None) != (treated is None):
            raise UserError("P(Y^C) and P(Y^T) belong together: give both control and treated")
        if control is not None:
            self._given = Outcomes(self._matrix(control, "control"), self._matrix(treated, "treated"))
            if self._given.control.shape != self._given.treated.shape:
                raise UserError(
                    f"control has shape {self._given.control.shape}, treated {self._given.treated.shape}: "
                    "they must be the same"
                )
        if propensities is not None:
            self._deployed = self._matrix(propensities, "propensities")
            if not np.all((self._deployed > 0) & (self._deployed < 1)):
                raise UserError("propensities must be in (0, 1): uplift needs a probability of both")

    def _matrix(self, values: Any, name: str) -> Floats:
        matrix = np.ascontiguousarray(values, np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != self.n_items:
            raise UserError(f"{name} has shape {matrix.shape}, the parameters say {self.n_items} items")
        refuse_first(
            ~((matrix >= 0) & (matrix <= 1)), lambda *cell: f"{name} must hold probabilities, it has {matrix[cell]:g}"
        )
        return matrix

    @classmethod
    def from_matrices(cls, control: Any, treated: Any, propensities: Any = None, **params: Any) -> PurchasesWorld:
        """A world of given probabilities; ``params`` as in :class:`PurchasesParams`."""
        n_items = np.asarray(control).shape[1]
        sizes = {"n_items": n_items, "n_periods": 1, "slate_size": min(10, (n_items + 1) // 2), **params}
        return cls(PurchasesParams(**sizes), control=control, treated=treated, propensities=propensities)

    # ------------------------------------------------------------------------------------------------------ the truth

    @functools.cached_property
    def _items(self) -> tuple[Floats, Floats, Floats]:
        """Directions (I, K), responses (I, K), both of mean square length 1, and offsets (I,)."""
        p = self.params
        drawn = rng.normals(p.catalogue_seed, Stream.CATALOGUE, 0, (p.n_items, 2 * p.n_factors))
        drawn /= math.sqrt(p.n_factors)
        offsets = rng.normals(p.catalogue_seed, Stream.OFFSETS, 0, (p.n_items, 1))[:, 0] * p.sigma_item
        return drawn[:, : p.n_factors], drawn[:, p.n_factors :], offsets

    def outcomes_of(self, seed: int, users: Any) -> Outcomes:
        """Truth: both probabilities of every item for users of a seed, (n, I) each."""
        users = np.asarray(users, np.int64)
        if self._given is not None:
            rows = users % len(self._given.control)
            return Outcomes(self._given.control[rows], self._given.treated[rows])
        from recsim_mnar.purchases import _slates_kernel

        p = self.params
        directions, responses, offsets = self._items
        normals = np.empty((len(users), 2 * p.n_factors))
        for rows in consecutive(users):
            normals[rows] = rng.normals(seed, Stream.USER, int(users[rows][0]), normals[rows].shape)
        odds = np.tile(p.base + offsets, (len(users), 1))
        gain = np.tile(p.effect + p.effect_popularity * offsets, (len(users), 1))
        add_products(odds, p.sigma_taste * normals[:, : p.n_factors], directions)
        add_products(gain, p.sigma_effect * normals[:, p.n_factors :], responses)
        control = np.empty_like(odds)
        treated = np.empty_like(odds)
        _slates_kernel.logistic(odds, control)
        _slates_kernel.logistic(odds + gain, treated)
        return Outcomes(control, treated)

    def deployed_propensities(self, seed: int, users: Any) -> Floats:
        """Implement :meth:`ExposureWorld.deployed_propensities`: as ``deployment`` says, or as given."""
        users = np.asarray(users, np.int64)
        p = self.params
        if self._deployed is not None:
            return self._deployed[users % len(self._deployed)]
        weights = rank_weights(self.n_items, p)[self._ranks(seed, users)]
        return scaled(weights, p.slate_size, p.smallest_propensity, p.largest_propensity)

    def _ranks(self, seed: int, users: Ints) -> Ints:
        """Return (n, I) ranks, from 0, by which the deployed policy recommends."""
        if self.params.deployment == "personalised":
            truth = self.outcomes_of(seed, users)
            order = np.argsort(-(truth.control + truth.treated), axis=1, kind="stable")
        else:
            appeal = self._items[2]
            if self._given is not None:
                appeal = (self._given.control + self._given.treated).sum(axis=0)
            order = np.tile(np.argsort(-appeal, kind="stable"), (len(users), 1))
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(self.n_items)[None, :], axis=1)
        return ranks
