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
    """Learns from exposures: items recommended to each user, items not recommended, and items purchased."""

    def exposed(self, exposures: Exposures, periods: Sequence[int] | None) -> Observed:
        """Observed classes of items in some periods (all by default).

        Raises:
            UserError: nothing is purchased in them.
        """
        with self.named():
            return Observed.of(exposures.classes(periods))

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Prefix an error about missing data with the learner's name."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; the log's users keep their ids.

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
        """A policy for the users of the exposures."""


@dataclass(kw_only=True, eq=False)
class FactorLearner(ExposureLearner):
    """A factor model trained by sampled gradients (Sato et al. 2019, section 5.1, whose settings are the defaults).

    Args:
        updates: samples in all.
        factors: length of the factors.
        rate: learning rate.
        penalty: coefficient of the squares, lambda.
        bias_penalty: that of the biases and responses, where it is another.
        batch: samples a step.
        optimizer: ``adam`` or ``sgd``, see :class:`recsim_mnar.agents.purchases.training.Settings`.

    Attributes:
        shares: names of parameters that are shares.
        pairs: whether a sample is a pair of items, or one item with a label; see
            :class:`recsim_mnar.agents.purchases.training.Loss`.
        form: of the model.
    """

    updates: int = 10_000_000
    factors: int = 100
    rate: float = 1e-4
    penalty: float = 1e-6
    bias_penalty: float | None = None
    batch: int = 1000
    optimizer: str = "adam"

    shares: ClassVar[tuple[str, ...]] = ()
    pairs: ClassVar[bool] = False
    form: ClassVar[FactorModelConfig] = FactorModelConfig()

    def __post_init__(self) -> None:
        """Validate the values.

        Raises:
            UserError: one is out of range.
        """
        with self.named():
            self.settings = Settings(
                self.factors, self.rate, self.penalty, self.bias_penalty, self.batch, self.optimizer
            )
            for name in self.shares:
                number_in(getattr(self, name), name, 0.0, 1.0)
        if isinstance(self.updates, (bool, str)) or not self.updates >= 1 or self.updates != int(self.updates):
            raise UserError(f"{self.name}: updates must be a whole number from 1, got {self.updates!r}")
        self.updates = int(self.updates)

    @abc.abstractmethod
    def plan(self, observed: Observed) -> Plan:
        """Plan the draws of samples."""

    def loss(self, observed: Observed, exposures: Exposures | None = None) -> Loss:
        """Loss of the samples."""
        return Loss(self.pairs, form=self.form)

    def parameters(self) -> dict[str, Any]:
        """The settings as JSON types, for provenance."""
        return asdict(self)

    def trainer(self, exposures: Exposures, *, periods: Sequence[int] | None = None, seed: int = 0) -> Trainer:
        """Start a training on some periods (all by default) that the caller advances.

        Raises:
            UserError: the exposures lack what the agent learns from.
        """
        observed = self.exposed(exposures, periods)
        with self.named():
            return Trainer(self.plan(observed), self.loss(observed, exposures), self.settings, seed)

    def fit_exposures(
        self, exposures: Exposures, *, periods: Sequence[int] | None = None, seed: int = 0
    ) -> FactorPolicy:
        """A policy for the users of the exposures.

        Raises:
            UserError: the exposures lack what the agent learns from, or the training diverged.
        """
        trainer = self.trainer(exposures, periods=periods, seed=seed)
        with self.named():
            return FactorPolicy.of(trainer.run(self.updates), self.name, self.parameters())


_DRAWN_BY = ("row", "cell")


class _AccuracyLearner(FactorLearner):
    """Also learns from a log's views alone, and then ranks for new users by their views."""

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; reads the log's organic rows, and acts for new users.

        What a user views more than once counts once. Users are guessed from their views, see
        :class:`recsim_mnar.agents.purchases.factor_policy.FoldInPolicy`; ``fit_exposures`` makes a policy for known
        users.
        """
        counts, _ = view_counts(log, n_items)
        counts.data[:] = 1
        observed = Observed.of_counts(counts)
        with self.named():
            model = Trainer(self.plan(observed), self.loss(observed), self.settings, seed).run(self.updates)
        return FoldInPolicy.of(model, counts, self.name, self.parameters())


@dataclass(kw_only=True, eq=False)
class BPR(_AccuracyLearner):
    """Purchased items above others, pair by pair (Rendle et al. 2009).

    Loss -log sigma(x_ui - x_uj) of a purchased item i and one j that is not, in the same period. ``draw="row"`` takes a
    period, a user and an item, each uniformly (Sato et al. 2019); ``cell`` any purchase uniformly (Rendle et al.).
    Settings: see :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        draw: ``row`` or ``cell``.
    """

    draw: str = "row"

    name = "bpr"
    pairs = True

    def __post_init__(self) -> None:
        """Validate the values."""
        super().__post_init__()
        one_of(self.draw, f"{self.name}: draw", _DRAWN_BY)

    def plan(self, observed: Observed) -> Plan:
        """One stratum: purchased against not purchased."""
        return Plan.of(observed, [Stratum(1.0, P, NP)], by=self.draw)


@dataclass(kw_only=True, eq=False)
class RMF(_AccuracyLearner):
    """Purchased or not, item by item: logistic loss of x = p_u . q_i + b_u + b_i (Sato et al. 2019).

    Settings: see :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        gamma_p: share of the samples that are purchased.
    """

    gamma_p: float = 0.2

    name = "rmf"
    shares = ("gamma_p",)

    def plan(self, observed: Observed) -> Plan:
        """Purchased with gamma_P, else not purchased."""
        return Plan.of(observed, [Stratum(self.gamma_p, P, label=1), Stratum(1.0 - self.gamma_p, NP, label=0)])


@dataclass(kw_only=True, eq=False)
class ULRMF(FactorLearner):
    """Items that a recommendation may have sold, against others, item by item (Sato et al. 2019, algorithm 1).

    R-P is positive, R-NP and NR-P are negative, NR-NP is positive with probability alpha. Settings: see
    :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

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
        p = self.gamma_p
        r = self.gamma_r
        a = self.alpha
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
    :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

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
        quarter = self.alpha / 4.0
        third = (1.0 - self.alpha) / 3.0
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
    :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

    Args:
        gamma_r: share of the samples that are recommended.
    """

    name = "recresp"
    form = FactorModelConfig(response=True)


@dataclass(kw_only=True, eq=False)
class CausE(_ResponseLearner):
    """Two factor models, of recommended items and of others, kept near each other (Bonner & Vasile 2018), by p^T - p^C.

    Users and items have two rows each; every sample adds ``between`` times the distance of its rows from their
    counterparts. Settings: see :class:`recsim_mnar.agents.purchases.learners.FactorLearner`.

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
        """Validate the values."""
        super().__post_init__()
        Loss(pairs=False, distance=self.distance, between=self.between)

    def loss(self, observed: Observed, exposures: Exposures | None = None) -> Loss:
        """The point loss with the distance."""
        return Loss(pairs=False, form=self.form, distance=self.distance, between=self.between)


@dataclass(kw_only=True, eq=False)
class CausEProd(CausE):
    """CausE with one row per user in common: only the items have two (Bonner & Vasile 2018), by p^T - p^C.

    Settings: see :class:`CausE`.
    """

    name = "cause-prod"
    form = FactorModelConfig(apart_items=True)
