"""Factor models of purchases with and without a recommendation, by whose difference items are ranked."""

from __future__ import annotations

from dataclasses import dataclass

from recsim_mnar.agents.purchases.factor_learner import FactorLearner
from recsim_mnar.agents.purchases.factor_policy import FactorModelConfig
from recsim_mnar.agents.purchases.observed import NR, Observed, Plan, R, Stratum
from recsim_mnar.agents.purchases.training import Loss
from recsim_mnar.log.exposures import Exposures


@dataclass(kw_only=True, eq=False)
class _ResponseLearner(FactorLearner):
    """Purchases predicted on samples that are recommended or not in given shares, not stratified by purchase.

    A stratification by purchase would distort the probabilities whose difference is wanted (section 5.1).
    """

    gamma_r: float = 0.5

    needs = frozenset({"clicks"})
    shares = ("gamma_r",)

    def plan(self, observed: Observed) -> Plan:
        """Recommended with gamma_R, else not; the label is whether the item was purchased."""
        return Plan.of(observed, [Stratum(self.gamma_r, R), Stratum(1.0 - self.gamma_r, NR)])


@dataclass(kw_only=True, eq=False)
class RecResp(_ResponseLearner):
    """A purchase model in which each user and item responds to a recommendation (Sato et al. 2016), by p^T - p^C.

    x = p_u . q_i + b_u + b_i + Z (r_u + r_i). Settings: see
    :class:`recsim_mnar.agents.purchases.factor_learner.FactorLearner`.

    Args:
        gamma_r: share of the samples that are recommended.
    """

    name = "recresp"
    form = FactorModelConfig(response=True)


@dataclass(kw_only=True, eq=False)
class CausE(_ResponseLearner):
    """Two factor models, of recommended items and of others, kept near each other (Bonner & Vasile 2018), by p^T - p^C.

    Users and items have two rows each; every sample adds ``between`` times the distance of its rows from their
    counterparts. Settings: see :class:`recsim_mnar.agents.purchases.factor_learner.FactorLearner`.

    Args:
        gamma_r: share of the samples that are recommended.
        between: coefficient of the distance, lambda_between.
        distance: ``l1``, ``l2`` (squared) or ``cosine`` (1 - cosine of the factors).
    """

    between: float = 1e-2
    distance: str = "l2"

    name = "cause"
    form = FactorModelConfig(apart_users=True, apart_items=True)

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        Loss(pairs=False, distance=self.distance, between=self.between)

    def loss(self, observed: Observed, exposures: Exposures | None = None) -> Loss:
        """The point loss with the distance."""
        return Loss(pairs=False, form=self.form, distance=self.distance, between=self.between)


@dataclass(kw_only=True, eq=False)
class CausEProd(CausE):
    """As CausE, with one row a user in common: only the items have two (Bonner & Vasile 2018), by p^T - p^C.

    Settings: see :class:`CausE`.
    """

    name = "cause-prod"
    form = FactorModelConfig(apart_items=True)
