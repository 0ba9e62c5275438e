"""A learner of a later paper: DLCE (Sato et al. 2020). In this folder ``--agents later_learners:DLCE``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from recsim_mnar.agents.purchases.learners import FactorLearner
from recsim_mnar.agents.purchases.training import ANY, R_NP, R_P, Loss, Observed, P, Plan, Stratum
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.log.exposures import Exposures


@dataclass(kw_only=True, eq=False)
class DLCE(FactorLearner):
    """Purchases after a recommendation up, purchases without one down, by inverse propensity (Sato et al. 2020).

    A purchased item i against a random item j: log(1 + exp(-(x_i - x_j)))/max(e, chi) where i was recommended,
    log(1 + exp(x_i - x_j))/max(1 - e, chi) where it was not. (The first form with a negative weight would be unbounded
    below.) Settings: see :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        chi: smallest propensity divided by.
    """

    chi: float = 0.1

    name = "dlce"
    needs = frozenset({"exposures"})
    shares = ("chi",)

    def plan(self, observed: Observed) -> Plan:
        """Any purchase, each equally likely, and any item."""
        return Plan.of(observed, [Stratum(1.0, P, ANY)], by="cell")

    def loss(self, observed: Observed, exposures: Exposures | None = None) -> Loss:
        """Scales the weights of the pair loss by their mean so that the learning rate keeps its meaning.

        Raises:
            UserError: no propensities, or one of 0 (recommended) or 1 (not) while chi = 0.
        """
        assert exposures is not None  # this agent learns from nothing else
        exposures.need_propensities()
        users, periods, part = observed.of_place()
        shown = (part == R_P) | (part == R_NP)
        e = exposures.propensity_of(users, observed.items, periods)
        probability = np.maximum(np.where(shown, e, 1.0 - e), self.chi)
        bad = ~(probability > 0.0)
        if bad.any():
            k = int(np.flatnonzero(bad)[0])
            raise UserError(
                f"user {users[k]}, item {observed.items[k]}, period {periods[k]} has propensity {e[k]:g}, whose "
                "inverse is needed: give propensities strictly between 0 and 1, or chi above 0"
            )
        weights = 1.0 / probability
        weights /= weights[part != R_NP].mean()
        return Loss(pairs=True, signed=np.where(shown, weights, -weights).astype(np.float32))
