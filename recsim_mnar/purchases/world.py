"""The purchases world: people buy, and some of what is recommended they would have bought anyway (Sato et al. 2019).

Each user buys or does not buy each item in each period. Both potential outcomes are there: Y^T where the item is
recommended, Y^C where it is not. Uplift is tau = Y^T - Y^C; only one of the two is ever seen.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels import elementary as ranked
from recsim_mnar.log.rows import consecutive
from recsim_mnar.purchases.slates import Outcomes, check_slates
from recsim_mnar.rng import Stream
from recsim_mnar.worlds.base import ExposureWorld
from recsim_mnar.worlds.params import Params, must, one_of

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


def rank_weights(n_items: int, params: PurchasesParams) -> NDArray[np.float64]:
    """(I,) weight of the items of rank 1, 2, ... under the parameters' deployment and law."""
    if params.deployment == "uniform":
        return np.ones(n_items)
    return ranked.rank_weights(n_items, params.rank_decay, params.exponent)


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


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

    name: ClassVar[str] = "purchases"
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
            self._given = Outcomes(*(self._matrix(x, n) for x, n in ((control, "control"), (treated, "treated"))))
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
        if not np.all((matrix >= 0) & (matrix <= 1)):
            raise UserError(f"{name} must hold probabilities, it has {matrix[~((matrix >= 0) & (matrix <= 1))][0]:g}")
        return matrix

    @classmethod
    def from_matrices(cls, control: Any, treated: Any, propensities: Any = None, **params: Any) -> PurchasesWorld:
        """A world of given probabilities; ``params`` as in :class:`PurchasesParams`."""
        n_items = np.asarray(control).shape[1]
        sizes = {"n_items": n_items, "n_periods": 1, "slate_size": min(10, (n_items + 1) // 2)}
        return cls(PurchasesParams(**{**sizes, **params}), control=control, treated=treated, propensities=propensities)

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
        from recsim_mnar.purchases import _slates_kernel

        p = self.params
        directions, responses, offsets = self._items
        own = np.empty((len(users), 2 * p.n_factors))
        for rows in consecutive(users):
            own[rows] = rng.normals(seed, Stream.USER, int(users[rows][0]), own[rows].shape)
        odds = np.tile(p.base + offsets, (len(users), 1))
        gain = np.tile(p.effect + p.effect_popularity * offsets, (len(users), 1))
        for k in range(p.n_factors):  # in a fixed order: BLAS rounds by machine, and a last bit can move a purchase
            odds += p.sigma_taste * own[:, k : k + 1] * directions[:, k]
            gain += p.sigma_effect * own[:, p.n_factors + k, None] * responses[:, k]
        control, treated = np.empty_like(odds), np.empty_like(odds)
        _slates_kernel.logistic(odds, control)
        _slates_kernel.logistic(odds + gain, treated)
        return Outcomes(control, treated)

    def deployed_propensities(self, seed: int, users: Any) -> Floats:
        """See :meth:`ExposureWorld.deployed_propensities`: as ``deployment`` says, or as given."""
        users = np.asarray(users, np.int64)
        p = self.params
        if self._deployed is not None:
            return self._deployed[users % len(self._deployed)]
        weights = self._law[self._ranks(seed, users)]
        return ranked.scaled(weights, p.slate_size, p.smallest_propensity, p.largest_propensity)

    def _ranks(self, seed: int, users: Ints) -> Ints:
        """(n, I) rank of every item from 0 by which the deployed policy recommends."""
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
