"""Parameters of the purchases world and its presets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels import slates as ranked
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.slate_params import check_slates

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
        check_slates(self)
        if self.n_factors < 1:
            raise UserError(f"n_factors must be at least 1, got {self.n_factors}")
        for name in ("sigma_item", "sigma_taste", "sigma_effect"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative, got {getattr(self, name):g}")
        if self.deployment not in DEPLOYMENTS:
            raise UserError(f"deployment must be one of {', '.join(DEPLOYMENTS)}, got {self.deployment!r}")


PRESETS: dict[str, tuple[PurchasesParams, str]] = {
    "personalised": (PurchasesParams(), "200 items, ten recommendations a period, more of what the user would buy"),
    "uniform": (PurchasesParams(deployment="uniform"), "the same, recommended at random"),
    "popularity": (PurchasesParams(deployment="popularity"), "the same, the same popular items for everybody"),
    "quick": (PurchasesParams(n_items=50, n_periods=4, slate_size=5), "50 items, 4 periods, slates of 5"),
}


def rank_weights(n_items: int, params: PurchasesParams) -> NDArray[np.float64]:
    """(I,) weight of the items of rank 1, 2, ... under the parameters' deployment and law."""
    if params.deployment == "uniform":
        return np.ones(n_items)
    return ranked.rank_weights(n_items, params.rank_decay, params.exponent)
