"""Uplift-optimised factor models: ULRMF and ULBPR (Sato et al. 2019, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from recsim_mnar.agents.purchases.factor_learner import FactorLearner
from recsim_mnar.agents.purchases.observed import NR_NP, NR_P, R_NP, R_P, Observed, Plan, Stratum


@dataclass(kw_only=True, eq=False)
class ULRMF(FactorLearner):
    """Items that a recommendation may have sold, against others, item by item (Sato et al. 2019, algorithm 1).

    R-P is positive, R-NP and NR-P are negative, NR-NP is positive with probability alpha. Settings: see
    :class:`recsim_mnar.agents.purchases.factor_learner.FactorLearner`.

    Args:
        alpha: probability that an item neither recommended nor purchased counts as positive.
        gamma_p: share of the samples that are purchased.
        gamma_r: share of the samples that are recommended, of the purchased and of the others.
    """

    alpha: float = 0.2
    gamma_p: float = 0.2
    gamma_r: float = 0.5

    name = "ulrmf"
    needs = frozenset({"exposures"})
    shares = ("alpha", "gamma_p", "gamma_r")

    def plan(self, observed: Observed) -> Plan:
        """The four classes in shares gamma_P gamma_R, (1 - gamma_P) gamma_R, ...; the last one divided by alpha."""
        p, r, a = self.gamma_p, self.gamma_r, self.alpha
        rest = (1.0 - p) * (1.0 - r)
        strata = [
            Stratum(p * r, R_P, label=1),
            Stratum((1.0 - p) * r, R_NP, label=0),
            Stratum(p * (1.0 - r), NR_P, label=0),
            Stratum(rest * a, NR_NP, label=1),
            Stratum(rest * (1.0 - a), NR_NP, label=0),
        ]
        return Plan.of(observed, strata)


@dataclass(kw_only=True, eq=False)
class ULBPR(FactorLearner):
    """Items that a recommendation may have sold above others, pair by pair (Sato et al. 2019, algorithm 2).

    With probability alpha one of R-P and NR-NP, half each, against one of R-NP and NR-P, half each; otherwise R-P
    against R-NP, NR-P and NR-NP, a third each. Settings: see
    :class:`recsim_mnar.agents.purchases.factor_learner.FactorLearner`.

    Args:
        alpha: probability that an item neither recommended nor purchased may count as positive.
    """

    alpha: float = 0.2

    name = "ulbpr"
    needs = frozenset({"exposures"})
    shares = ("alpha",)
    pairs = True

    def plan(self, observed: Observed) -> Plan:
        """The five pairs of classes."""
        quarter, third = self.alpha / 4.0, (1.0 - self.alpha) / 3.0
        strata = [
            Stratum(quarter + third, R_P, R_NP),
            Stratum(quarter + third, R_P, NR_P),
            Stratum(third, R_P, NR_NP),
            Stratum(quarter, NR_NP, R_NP),
            Stratum(quarter, NR_NP, NR_P),
        ]
        return Plan.of(observed, strata)
