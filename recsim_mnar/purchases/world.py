"""Worlds whose users are shown slates, sets of items, and the purchases world (Sato et al. 2019).

Each user buys or does not buy each item in each period. Both potential outcomes are defined: Y^T if the item is
recommended, Y^C if it is not. Uplift is tau = Y^T - Y^C; a log shows only one of the two. In the purchases world users
would buy some of the recommended items without the recommendation.
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


RANK_DECAYS = ("power", "log")
COUPLINGS = ("independent", "shared")


@dataclass(frozen=True)
class SlateParams(Params):
    """Parameters of a user's own world of slates; derive a class from it, and add others with defaults.

    Attributes:
        n_items: number of items I.
        n_periods: number of periods of each user.
        slate_size: number N of items recommended to a user in a period; its expectation if ``slates`` is
            ``independent``.
        rank_decay: weight of rank r, from 1: ``power`` for r^-exponent, ``log`` for 1 / log2(1 + r).
        exponent: exponent of the power.
        smallest_propensity: smallest probability with which an item is recommended, above 0.
        largest_propensity: largest probability with which an item is recommended, below 1.
        slates: ``independent`` to draw each item by itself, ``fixed`` for slates of exactly N items.
        catalogue_seed: seed of the items.
        coupling: joint distribution of Y^C and Y^T: ``independent``, or ``shared`` for one uniform that decides both.
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
"""Parameters that a world of slates must have, to say how slates are drawn."""


def check_slates(p: Any) -> None:
    """Raise UserError naming the parameter of ``p``, with the fields of :class:`SlateParams`, that prevents slates."""
    must(p, "be at least 1", "n_items", "n_periods", "slate_size")
    if p.slate_size > p.n_items:
        raise UserError(f"slate_size = {p.slate_size} is larger than the number of items, n_items = {p.n_items}")
    if p.n_items * p.n_periods >= 2**32:
        raise UserError("n_items times n_periods must be below 2**32: lower one of them")
    must(p, "not be negative", "exponent")
    one_of(p, rank_decay=RANK_DECAYS, slates=("independent", "fixed"), coupling=COUPLINGS)
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
    """True probabilities of both potential outcomes for n users.

    Attributes:
        control: (n, I) P(Y^C = 1), the probability of a purchase without a recommendation.
        treated: (n, I) P(Y^T = 1), the probability of a purchase with one.
    """

    control: Floats
    treated: Floats

    @property
    def uplift(self) -> Floats:
        """Return E[tau] = P(Y^T) - P(Y^C), (n, I)."""
        return self.treated - self.control


def flags_of(slates: Ints, n_items: int) -> Flags:
    """Return flags (n, I) of the items in slates (n, N); a repeated item is shown once."""
    flags = np.zeros((len(slates), n_items), bool)
    np.put_along_axis(flags, slates, True, axis=1)
    return flags


def addresses(seeds: Any, users: Ints, periods: Ints, coupling: str) -> tuple[Seeds, np.uint64, Ints, Ints, bool]:
    """Return the first arguments of the kernels that draw purchases: the addresses of the draws, and the coupling.

    Returns:
        (n,) seeds; stream; (n,) users; (n,) periods; True if one uniform decides both outcomes.
    """
    seeds = np.ascontiguousarray(np.broadcast_to(np.asarray(seeds, np.uint64), users.shape))
    users = np.ascontiguousarray(users)
    periods = np.ascontiguousarray(periods, np.int64)
    return seeds, np.uint64(Stream.PURCHASE), users, periods, coupling == "shared"


class PurchasesLanes(CountedLanes):
    """Lanes of a world of slates; opened by :meth:`ExposureWorld.open_lanes`.

    A decision is a slate, and a step a period. Its rows are the shown items, ascending, followed by the items bought
    without a recommendation, ascending; ``time`` is the period.

    Args:
        world: the world that opens the lanes.
        n_lanes: number of lanes.
        truth_column: name of the column with P(Y^T) of each shown item; None for no such column.
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
        """Implement :attr:`Lanes.state`: P(Y^T) of all items, (n, I)."""
        return self._treated.copy()

    @property
    def uplift(self) -> Floats:
        """Return the true E[tau] (n, I) of all items, for evaluation."""
        return self._treated - self._control

    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Implement :meth:`Lanes.begin`: users start without any event."""
        for seed, rows in self.seat(which, seeds, users):
            truth = self._world.checked_outcomes(seed, users[rows])
            self._control[which[rows]] = truth.control
            self._treated[which[rows]] = truth.treated
        starts, columns = self.rows(which, np.zeros(len(which), np.int64))
        return Transition(starts, columns, np.ones(len(which), np.bool_))

    def take(self, which: Ints, actions: NDArray[Any], propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`: ``actions`` are slates (n, N), ``propensities`` (n, N), or one per user."""
        slates = checked_slates(np.asarray(actions).reshape(len(which), -1), len(which), self._params.n_items)
        probability = np.zeros((len(which), self._params.n_items))
        stated = np.broadcast_to(np.asarray(propensities, np.float64).reshape(len(which), -1), slates.shape)
        np.put_along_axis(probability, slates, stated, axis=1)
        return self.show(which, flags_of(slates, self._params.n_items), probability)

    def show(self, which: Ints, shown: Flags, probability: Floats) -> Transition:
        """Show items in lanes ``which`` (n,) for one period, draw the purchases, and return the transition.

        Args:
            which: (n,) lanes.
            shown: (n, I) flags of the shown items.
            probability: (n, I) probability with which each item is shown.
        """
        from recsim_mnar.purchases import _slates_kernel

        bought = np.empty(shown.shape, np.uint8)
        control = self._control
        treated = self._treated
        if not np.array_equal(which, np.arange(len(self.user))):  # all lanes, as in a simulation, need no copy
            control = control[which]
            treated = treated[which]
        with np.errstate(over="ignore"):
            draw_addresses = addresses(
                self.seed[which], self.user[which], self.n_decisions[which], self._params.coupling
            )
            _slates_kernel.buy(*draw_addresses, control, treated, shown.view(np.uint8), bought)
        lane, item = np.nonzero(shown | (bought != 0))
        recommended = shown[lane, item]
        order = np.lexsort((~recommended, lane))  # by lane, the recommended items first; stable, so items ascend
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
    """Base of worlds of independent users who are shown slates, with known potential outcomes.

    In every period a user buys each item with probability ``treated`` if it is recommended, else with probability
    ``control``. A world of a user's own defines these in :meth:`outcomes_of`, and its ``params_class`` derives from
    :class:`SlateParams`; other methods have defaults.
    """

    truth_column = "purchase_probability"
    simulated_by = "recsim_mnar.purchases.policies:simulated"
    recommended_by = "recsim_mnar.purchases.policies:as_slate_policy"
    compared_by = "recsim_mnar.purchases.comparison:PurchasesExperiment"
    environments_by = "recsim_mnar.purchases.envs:make_slate_env"
    tasks_by = "recsim_mnar.purchases.tasks:Slates"
    instead = "recommends slates: use recsim_mnar.simulate or the environment recsim_mnar/Purchases-v0"
    params: Any

    def check_params(self) -> None:
        """Implement :meth:`World.check_params`: the parameters must say how slates are drawn."""
        lacking = [rule for rule in RULES if not hasattr(self.params, rule)]
        if lacking:
            raise UserError(
                f"world {self.name!r}: its parameters lack {', '.join(lacking)}: derive its params_class from "
                "recsim_mnar.worlds.SlateParams"
            )

    @property
    def most_decisions(self) -> int:  # type: ignore[override]  # by its parameters
        """Return the number of a user's decisions: one in every period."""
        return int(self.params.n_periods)

    @abstractmethod
    def outcomes_of(self, seed: int, users: Any) -> Outcomes:
        """Return the true probabilities (n, n_items) of both outcomes of every item for users (n,) of a seed.

        A user's probabilities must depend on the seed and on that user only, not on other users in the call.
        """

    def deployed_propensities(self, seed: int, users: Any) -> Floats:
        """Return the probability (n, n_items) that the world's own recommender shows each item, in any period.

        Here it is the same for all items. If the parameter ``slates`` is ``fixed``, rows must sum to ``slate_size``.
        """
        return np.full((len(np.atleast_1d(users)), self.n_items), self.params.slate_size / self.n_items)

    def potential_outcomes(self, seed: int, users: Any, period: int) -> tuple[Flags, Flags]:
        """Draw the true outcomes of every item for users (n,) of a seed in one period.

        Returns:
            (n, n_items) Y^C, flags of items that are bought without a recommendation.
            (n, n_items) Y^T, flags of items that are bought with one.
        """
        from recsim_mnar.purchases import _slates_kernel

        users = np.asarray(users, np.int64)
        truth = self.checked_outcomes(seed, users)
        y_control = np.empty(truth.control.shape, np.uint8)
        y_treated = np.empty(truth.control.shape, np.uint8)
        with np.errstate(over="ignore"):
            drawn_at = addresses(seed, users, np.full(len(users), period), self.params.coupling)
            _slates_kernel.outcomes(*drawn_at, truth.control, truth.treated, y_control, y_treated)
        return y_control.astype(bool), y_treated.astype(bool)

    def slate_uplift(self, seed: int, users: Any, slates: Any) -> Floats:
        """Return the true expected purchases (n,) that slates (n, N) cause: E[tau] summed over their distinct items."""
        slates = checked_slates(slates, len(np.atleast_1d(users)), self.n_items)
        flags = flags_of(slates, self.n_items)
        return np.where(flags, self.outcomes_of(seed, users).uplift, 0.0).sum(axis=1)

    def reward_means(self, state: Floats) -> Floats:
        """Return the true expected reward (n, n_items) of each recommended item: P(Y^T), which is the lanes' state."""
        return np.asarray(state, np.float64)

    def lasting(self, n_periods: int) -> Self:
        """Return a world with the same users and draws, and ``n_periods`` periods."""
        longer = copy.copy(self)
        longer.params = dataclasses.replace(self.params, n_periods=n_periods)
        return longer

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> PurchasesLanes:
        """Implement :meth:`LaneWorld.open_lanes`."""
        return PurchasesLanes(self, n_lanes, truth_column=self.kept_truth(keep_truth))

    def checked_outcomes(self, seed: int, users: Ints) -> Outcomes:
        """Return :meth:`outcomes_of`; raise UserError unless they are probabilities of the right shape."""
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
    """Return the weight (n_items,) of each rank r from 1: r^-exponent for ``power``, 1 / log2(1 + r) for ``log``."""
    rank = np.arange(1, n_items + 1, dtype=np.float64)
    if rank_decay == "log":
        logs = elementary.log(rank + 1.0)
        return logs[0] / logs
    return elementary.exp(-exponent * elementary.log(rank))


def scaled(weights: Floats, size: int, smallest: float, largest: float) -> Floats:
    """Scale and clip weights (n, I) to probabilities in [smallest, largest] whose rows sum to ``size``.

    They are min(max(c w, smallest), largest) with a factor c for each row.
    """
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
        n_periods: number of periods of each user.
        slate_size: number N of items recommended to a user in a period; its expectation if ``slates`` is
            ``independent``.
        n_factors: number of latent factors of tastes, and of the personal effects of recommendations.
        base: mean log odds of buying an item without a recommendation.
        sigma_item: standard deviation of the items' offsets in these log odds.
        sigma_taste: standard deviation of a user's taste for an item, in the same units.
        effect: mean effect of a recommendation on the log odds.
        effect_popularity: change of the effect per unit of the item's offset; below 0, popular items gain less.
        sigma_effect: standard deviation of the part of the effect that is personal to user and item.
        deployment: order by which the deployed policy prefers items: ``uniform`` for none, ``popularity`` for the
            items' offsets, ``personalised`` for the user's (P(Y^T) + P(Y^C)) / 2.
        rank_decay: weight of rank r, from 1: ``power`` for r^-exponent, ``log`` for 1 / log2(1 + r).
        exponent: exponent of the power.
        smallest_propensity: smallest probability with which the deployed policy recommends an item, above 0.
        largest_propensity: largest probability with which it recommends an item, below 1.
        slates: ``independent`` to draw each item by itself, ``fixed`` for slates of exactly N items.
        catalogue_seed: seed of the items.
        coupling: joint distribution of Y^C and Y^T of a user, item and period: ``independent``, or ``shared`` for one
            uniform that decides both, so that a recommendation without effect changes no purchase. Expected uplifts,
            metrics and the distribution of logs do not depend on it.
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
    """Return the weight (I,) of the items of rank 1, 2, ... under the parameters' deployment and rank decay."""
    if params.deployment == "uniform":
        return np.ones(n_items)
    return weights_by_rank(n_items, params.rank_decay, params.exponent)


class PurchasesWorld(ExposureWorld):
    """World whose users buy items in periods and are recommended slates.

    Model: the log odds of a purchase without a recommendation are base + offset_i + taste_u . direction_i, and a
    recommendation adds effect + effect_popularity offset_i + sigma_effect sensitivity_u . response_i. Y^C and Y^T of
    each user, item and period are drawn from these probabilities, and do not depend on recommendations.

    Args:
        params: parameters; None for the preset ``personalised``.
        control: (U, I) P(Y^C) in place of the model's; user u has row u mod U. None for the model's.
        treated: (U, I) P(Y^T) in place of the model's; given if ``control`` is.
        propensities: (U, I) or (1, I) probabilities in (0, 1) with which the deployed policy recommends items; None for
            those of ``deployment``.
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
        self._given_outcomes: Outcomes | None = None
        self._given_propensities: Floats | None = None
        if (control is None) != (treated is None):
            raise UserError("P(Y^C) and P(Y^T) belong together: give both control and treated")
        if control is not None:
            self._given_outcomes = Outcomes(
                self._probability_matrix(control, "control"), self._probability_matrix(treated, "treated")
            )
            outcomes = self._given_outcomes
            if outcomes.control.shape != outcomes.treated.shape:
                raise UserError(
                    f"control has shape {outcomes.control.shape}, treated {outcomes.treated.shape}: "
                    "they must be the same"
                )
        if propensities is not None:
            self._given_propensities = self._probability_matrix(propensities, "propensities")
            if not np.all((self._given_propensities > 0) & (self._given_propensities < 1)):
                raise UserError("propensities must be in (0, 1): uplift needs a probability of both")

    def _probability_matrix(self, values: Any, name: str) -> Floats:
        """Return a caller's matrix of probabilities (U, I) as an array.

        Raises:
            UserError: another number of items, or a value that is no probability.
        """
        matrix = np.ascontiguousarray(values, np.float64)
        if matrix.ndim != 2 or matrix.shape[1] != self.n_items:
            raise UserError(f"{name} has shape {matrix.shape}, the parameters say {self.n_items} items")
        refuse_first(
            ~((matrix >= 0) & (matrix <= 1)), lambda *cell: f"{name} must hold probabilities, it has {matrix[cell]:g}"
        )
        return matrix

    @classmethod
    def from_matrices(cls, control: Any, treated: Any, propensities: Any = None, **params: Any) -> PurchasesWorld:
        """Make a world of given probabilities of purchases (U, I), with one period by default.

        Args:
            control: (U, I) P(Y^C).
            treated: (U, I) P(Y^T).
            propensities: (U, I) or (1, I) probabilities with which the deployed policy recommends items; None for those
                of ``deployment``.
            **params: fields of :class:`PurchasesParams` that differ from the defaults.
        """
        n_items = np.asarray(control).shape[1]
        sizes = {"n_items": n_items, "n_periods": 1, "slate_size": min(10, (n_items + 1) // 2), **params}
        return cls(PurchasesParams(**sizes), control=control, treated=treated, propensities=propensities)

    # ------------------------------------------------------------------------------------------------------ the truth

    @functools.cached_property
    def _item_parameters(self) -> tuple[Floats, Floats, Floats]:
        """Draw the latent factors of the items.

        Returns:
            (I, K) directions of taste, of mean square length 1.
            (I, K) responses to recommendations, of mean square length 1.
            (I,) offsets.
        """
        p = self.params
        factors = rng.normals(p.catalogue_seed, Stream.CATALOGUE, 0, (p.n_items, 2 * p.n_factors))
        factors /= math.sqrt(p.n_factors)
        offsets = rng.normals(p.catalogue_seed, Stream.OFFSETS, 0, (p.n_items, 1))[:, 0] * p.sigma_item
        return factors[:, : p.n_factors], factors[:, p.n_factors :], offsets

    def outcomes_of(self, seed: int, users: Any) -> Outcomes:
        """Implement :meth:`ExposureWorld.outcomes_of`, by the model or the given matrices."""
        users = np.asarray(users, np.int64)
        if self._given_outcomes is not None:
            rows = users % len(self._given_outcomes.control)  # any number of users shares the given rows
            return Outcomes(self._given_outcomes.control[rows], self._given_outcomes.treated[rows])
        from recsim_mnar.purchases import _slates_kernel

        p = self.params
        directions, responses, offsets = self._item_parameters
        # One row per user: K normals of taste, then K of sensitivity to recommendations.
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
        """Implement :meth:`ExposureWorld.deployed_propensities`, by ``deployment`` or the given matrix."""
        users = np.asarray(users, np.int64)
        p = self.params
        if self._given_propensities is not None:
            return self._given_propensities[users % len(self._given_propensities)]
        weights = rank_weights(self.n_items, p)[self._ranks(seed, users)]
        return scaled(weights, p.slate_size, p.smallest_propensity, p.largest_propensity)

    def _ranks(self, seed: int, users: Ints) -> Ints:
        """Return the rank (n, I) of each item, from 0, in the order by which the deployed policy prefers items."""
        if self.params.deployment == "personalised":
            truth = self.outcomes_of(seed, users)
            order = np.argsort(-(truth.control + truth.treated), axis=1, kind="stable")
        else:
            _directions, _responses, appeal = self._item_parameters
            if self._given_outcomes is not None:
                appeal = (self._given_outcomes.control + self._given_outcomes.treated).sum(axis=0)
            order = np.tile(np.argsort(-appeal, kind="stable"), (len(users), 1))
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(self.n_items)[None, :], axis=1)
        return ranks
