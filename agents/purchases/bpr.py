"""Accuracy-optimised factor models: BPR and RMF. Purchases, recommended or not, are what they are to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsim_mnar.agents.purchases.factor_learner import FactorLearner
from recsim_mnar.agents.purchases.factor_policy import FoldInPolicy
from recsim_mnar.agents.purchases.observed import NP, Observed, P, Plan, Stratum
from recsim_mnar.agents.purchases.training import Trainer, train
from recsim_mnar.errors import UserError
from recsim_mnar.log.views import view_counts
from recsim_mnar.policies.base import Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

_DRAWN_BY = ("row", "cell")


class _AccuracyLearner(FactorLearner):
    """Also learns from a log's views alone, and then ranks for new users by their views."""

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; the log's organic rows are read, and its users not met again.

        What a user views more than once counts once. Users are guessed from their views, see
        :class:`recsim_mnar.agents.purchases.factor_policy.FoldInPolicy`; ``fit_exposures`` makes a policy for known
        users.
        """
        counts, _ = view_counts(log, n_items)
        counts.data[:] = 1
        observed = Observed.of_counts(counts)
        with self.named():
            training = train(Trainer(self.plan(observed), self.loss(observed), self.settings, seed), self.updates)
        return FoldInPolicy.of(training.model, counts, self.name, self.parameters())


@dataclass(kw_only=True, eq=False)
class BPR(_AccuracyLearner):
    """Purchased items above others, pair by pair (Rendle et al. 2009).

    Loss -log sigma(x_ui - x_uj) of a purchased item i and one j that is not, in the same period. ``draw="row"`` takes a
    period, a user and an item, each uniformly (Sato et al. 2019); ``cell`` any purchase uniformly (Rendle et al.).
    Settings: see :class:`recsim_mnar.agents.purchases.factor_learner.FactorLearner`.

    Args:
        draw: ``row`` or ``cell``.
    """

    draw: str = "row"

    name = "bpr"
    pairs = True

    def __post_init__(self) -> None:
        """Check the values."""
        super().__post_init__()
        if self.draw not in _DRAWN_BY:
            raise UserError(f"{self.name}: draw must be one of {', '.join(_DRAWN_BY)}, got {self.draw!r}")

    def plan(self, observed: Observed) -> Plan:
        """One stratum: purchased against not purchased."""
        return Plan.of(observed, [Stratum(1.0, P, NP)], by=self.draw)


@dataclass(kw_only=True, eq=False)
class RMF(_AccuracyLearner):
    """Purchased or not, item by item: logistic loss of x = p_u . q_i + b_u + b_i (Sato et al. 2019).

    Settings: see :class:`recsim_mnar.agents.purchases.factor_learner.FactorLearner`.

    Args:
        gamma_p: share of the samples that are purchased.
    """

    gamma_p: float = 0.2

    name = "rmf"
    shares = ("gamma_p",)

    def plan(self, observed: Observed) -> Plan:
        """Purchased with gamma_P, else not purchased."""
        return Plan.of(observed, [Stratum(self.gamma_p, P, label=1), Stratum(1.0 - self.gamma_p, NP, label=0)])
