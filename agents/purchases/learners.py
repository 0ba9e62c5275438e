"""Learners of factor models of purchases: by accuracy (BPR, RMF), by uplift (ULRMF, ULBPR) and by difference.

Purchases, recommended or not, are what BPR and RMF predict. ULRMF and ULBPR (Sato et al. 2019, section 3.2) learn what
a recommendation may have sold. RecResp and CausE model purchases with and without a recommendation, and rank by the
difference.
"""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from recsim_mnar.agents.purchases.factor_policy import FactorModelConfig, FactorPolicy, FoldInPolicy
from recsim_mnar.agents.purchases.training import (
    NP,
    NR,
    NR_NP,
    NR_P,
    R_NP,
    R_P,
    Loss,
    Observed,
    P,
    Plan,
    R,
    Settings,
    Stratum,
    Trainer,
)
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, one_of
from recsim_mnar.log.views import view_counts
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.purchases.exposures import Exposures

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


class ExposureLearner(Learner):
    """Base of learners from exposures: the items recommended to each user, not recommended, and purchased."""

    def exposed(self, exposures: Exposures, periods: Sequence[int] | None) -> Observed:
        """Return each user's items by class (recommended or not, purchased or not) in some periods; all if None.

        Raises:
            UserError: nothing is purchased in these periods.
        """
        with self.errors_name_agent():
            return Observed.of(exposures.classes(periods))

    @contextlib.contextmanager
    def errors_name_agent(self) -> Iterator[None]:
        """Put the learner's name in front of the message of a UserError that the block raises."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; the policy knows the log's users by their ids.

        Raises:
            UserError: the log has no recommendation flags.
        """
        if not log.is_bandit.any():
            raise UserError(
                f"{self.name} learns from what was recommended and what was not, but the log has no recommendation "
                "flags (bandit rows)"
            )
        return self.fit_exposures(Exposures.from_log(log, n_items=n_items), seed=seed)

    @abc.abstractmethod
    def fit_exposures(self, exposures: Exposures, *, seed: int = 0) -> Policy:
        """Train on the exposures, and return the policy for their users."""


@dataclass(kw_only=True, eq=False)
class FactorLearner(ExposureLearner):
    """Base of learners of factor models by stochastic gradients; defaults are those of Sato et al. 2019, section 5.1.

    Args:
        updates: total number of samples.
        factors: number of factors.
        rate: learning rate.
        penalty: coefficient lambda of the squared factors in the loss.
        bias_penalty: coefficient of the squared biases and responses; that of the factors if None.
        batch: number of samples per step of Adam.

    Attributes:
        shares: names of the parameters that must be in [0, 1].
        pairs: True if a sample is a pair of items, False if it is one item with a label; see
            :class:`recsim_mnar.agents.purchases.training.Loss`.
        form: terms and tables of the model.
    """

    updates: int = 10_000_000
    factors: int = 100
    rate: float = 1e-4
    penalty: float = 1e-6
    bias_penalty: float | None = None
    batch: int = 1000

    shares: ClassVar[tuple[str, ...]] = ()
    pairs: ClassVar[bool] = False
    form: ClassVar[FactorModelConfig] = FactorModelConfig()

    def __post_init__(self) -> None:
        """Validate the values.

        Raises:
            UserError: one is out of range.
        """
        with self.errors_name_agent():
            self.settings = Settings(self.factors, self.rate, self.penalty, self.bias_penalty, self.batch)
            for name in self.shares:
                number_in(getattr(self, name), name, 0.0, 1.0)
        if isinstance(self.updates, (bool, str)) or not self.updates >= 1 or self.updates != int(self.updates):
            raise UserError(f"{self.name}: updates must be a whole number from 1, got {self.updates!r}")
        self.updates = int(self.updates)

    @abc.abstractmethod
    def plan(self, observed: Observed) -> Plan:
        """Return the plan by which samples are drawn from the observed classes."""

    def loss(self, observed: Observed, exposures: Exposures | None = None) -> Loss:
        """Return the loss of a sample; the exposures are for losses that weight samples."""
        return Loss(self.pairs, form=self.form)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name, JSON types, for provenance."""
        return asdict(self)

    def trainer(self, exposures: Exposures, *, periods: Sequence[int] | None = None, seed: int = 0) -> Trainer:
        """Return a trainer that has taken no sample yet, which the caller advances.

        Args:
            exposures: the training data.
            periods: periods to learn from; None for all.
            seed: seed of the samples and of the first factors.

        Raises:
            UserError: the exposures lack a class of items that is needed.
        """
        observed = self.exposed(exposures, periods)
        with self.errors_name_agent():
            return Trainer(self.plan(observed), self.loss(observed, exposures), self.settings, seed)

    def fit_exposures(
        self, exposures: Exposures, *, periods: Sequence[int] | None = None, seed: int = 0
    ) -> FactorPolicy:
        """Train on the exposures, and return the policy for their users.

        Args:
            exposures: the training data.
            periods: periods to learn from; None for all.
            seed: seed of the samples and of the first factors.

        Raises:
            UserError: the exposures lack a class of items that is needed, or the training diverged.
        """
        trainer = self.trainer(exposures, periods=periods, seed=seed)
        with self.errors_name_agent():
            return FactorPolicy.of(trainer.run(self.updates), self.name, self.parameters())


_DRAWN_BY = ("row", "cell")
"""Ways in which :class:`BPR` draws samples."""


class _AccuracyLearner(FactorLearner):
    """Base of learners that can also be fitted on a log's views alone; the policy then ranks for new users by views."""

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`: train on the log's views, for a policy for new users.

        Several views of an item by a user count once. A user's factors are predicted from the views, see
        :class:`recsim_mnar.agents.purchases.factor_policy.FoldInPolicy`; ``fit_exposures`` by contrast makes a policy
        for the training users.
        """
        counts, _ = view_counts(log, n_items)
        counts.data[:] = 1  # several views of an item count once
        observed = Observed.of_counts(counts)
        with self.errors_name_agent():
            model = Trainer(self.plan(observed), self.loss(observed), self.settings, seed).run(self.updates)
        return FoldInPolicy.of(model, counts, self.name, self.parameters())


@dataclass(kw_only=True, eq=False)
class BPR(_AccuracyLearner):
    """Learner that ranks purchased items above others, by pairs of items (Rendle et al. 2009).

    The loss of a pair is -log sigma(x_ui - x_uj) for an item i that user u purchased and an item j that u did not, in
    the same period. The other parameters are those of :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        draw: ``row`` draws a period, a user, and a purchased item, each uniformly (Sato et al. 2019); ``cell`` draws
            uniformly from all purchases (Rendle et al. 2009).
    """

    draw: str = "row"

    name = "bpr"
    pairs = True

    def __post_init__(self) -> None:
        """Validate the values."""
        super().__post_init__()
        one_of(self.draw, f"{self.name}: draw", _DRAWN_BY)

    def plan(self, observed: Observed) -> Plan:
        """Return a plan of pairs: a purchased item, and one that is not purchased."""
        return Plan.of(observed, [Stratum(1.0, P, NP)], by=self.draw)


@dataclass(kw_only=True, eq=False)
class RMF(_AccuracyLearner):
    """Learner that predicts purchases by logistic regression of x = p_u . q_i + b_u + b_i (Sato et al. 2019).

    The other parameters are those of :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        gamma_p: share of purchased items among the samples.
    """

    gamma_p: float = 0.2

    name = "rmf"
    shares = ("gamma_p",)

    def plan(self, observed: Observed) -> Plan:
        """Return a plan of single items: purchased ones in the share gamma_P, and others."""
        return Plan.of(observed, [Stratum(self.gamma_p, P, label=1), Stratum(1.0 - self.gamma_p, NP, label=0)])


@dataclass(kw_only=True, eq=False)
class ULRMF(FactorLearner):
    """Learner of uplift by logistic regression on single items (Sato et al. 2019, algorithm 1).

    Positive are the items that a recommendation may have sold: recommended and purchased ones (R-P), and with
    probability alpha those that are neither (NR-NP). Items that are only one of both (R-NP, NR-P) are negative. The
    other parameters are those of :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        alpha: probability that an item neither recommended nor purchased counts as positive.
        gamma_p: share of purchased items among the samples.
        gamma_r: share of recommended items among the purchased samples, and among the others.
    """

    alpha: float = 0.2
    gamma_p: float = 0.2
    gamma_r: float = 0.5

    name = "ulrmf"
    needs = frozenset({"exposures"})
    shares = ("alpha", "gamma_p", "gamma_r")

    def plan(self, observed: Observed) -> Plan:
        """Return a plan of single items from the four classes, NR-NP with both labels."""
        p = self.gamma_p
        r = self.gamma_r
        a = self.alpha
        rest = (1.0 - p) * (1.0 - r)  # share of NR-NP
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
    """Learner of uplift by pairs of a positive and a negative item (Sato et al. 2019, algorithm 2).

    With probability alpha the positive item is from R-P or NR-NP, with equal probabilities, and the negative one from
    R-NP or NR-P; otherwise the positive item is from R-P, and the negative one from R-NP, NR-P or NR-NP. The other
    parameters are those of :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        alpha: probability that an item neither recommended nor purchased may count as positive.
    """

    alpha: float = 0.2

    name = "ulbpr"
    needs = frozenset({"exposures"})
    shares = ("alpha",)
    pairs = True

    def plan(self, observed: Observed) -> Plan:
        """Return a plan of pairs from the five combinations of a positive and a negative class."""
        quarter = self.alpha / 4.0  # two positive classes times two negative ones
        third = (1.0 - self.alpha) / 3.0  # one positive class times three negative ones
        strata = [
            Stratum(quarter + third, R_P, R_NP),
            Stratum(quarter + third, R_P, NR_P),
            Stratum(third, R_P, NR_NP),
            Stratum(quarter, NR_NP, R_NP),
            Stratum(quarter, NR_NP, NR_P),
        ]
        return Plan.of(observed, strata)


@dataclass(kw_only=True, eq=False)
class _ResponseLearner(FactorLearner):
    """Base of learners of the purchase probability with and without recommendation, which rank by the difference.

    Samples are stratified by recommendation alone: a stratification by purchase would distort the two probabilities
    (Sato et al. 2019, section 5.1).
    """

    gamma_r: float = 0.5

    needs = frozenset({"clicks"})
    shares = ("gamma_r",)

    def plan(self, observed: Observed) -> Plan:
        """Return a plan of single items, recommended ones in the share gamma_R; the label says if it was purchased."""
        return Plan.of(observed, [Stratum(self.gamma_r, R), Stratum(1.0 - self.gamma_r, NR)])


@dataclass(kw_only=True, eq=False)
class RecResp(_ResponseLearner):
    """Learner of a purchase model with a response of each user and item to a recommendation (Sato et al. 2016).

    The purchase probability is sigma(p_u . q_i + b_u + b_i + Z (r_u + r_i)), Z = 1 for a recommended item and 0 else;
    items are ranked by its difference between Z = 1 and Z = 0. The other parameters are those of
    :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        gamma_r: share of recommended items among the samples.
    """

    name = "recresp"
    form = FactorModelConfig(response=True)


@dataclass(kw_only=True, eq=False)
class CausE(_ResponseLearner):
    """Learner of two purchase models, with and without recommendation, kept close to each other (Bonner & Vasile 2018).

    Items are ranked by the difference of the two probabilities. Users and items have a row of parameters in each model;
    the loss of a sample has ``between`` times the distance between its rows and those in the other model. The other
    parameters are those of :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        gamma_r: share of recommended items among the samples.
        between: coefficient lambda_between of the distance in the loss.
        distance: ``l1``, ``l2`` (squared) or ``cosine`` (1 - cosine of the factors).
    """

    between: float = 1e-2
    distance: str = "l2"

    name = "cause"
    form = FactorModelConfig(apart_users=True, apart_items=True)

    def __post_init__(self) -> None:
        """Validate the values."""
        super().__post_init__()
        Loss(pairs=False, distance=self.distance, between=self.between)  # raises UserError if a value is invalid

    def loss(self, observed: Observed, exposures: Exposures | None = None) -> Loss:
        """Return the logistic loss of single items with the distance between the two models."""
        return Loss(pairs=False, form=self.form, distance=self.distance, between=self.between)


@dataclass(kw_only=True, eq=False)
class CausEProd(CausE):
    """Learner as :class:`CausE`, except that a user has the same row in both models (Bonner & Vasile 2018)."""

    name = "cause-prod"
    form = FactorModelConfig(apart_items=True)
