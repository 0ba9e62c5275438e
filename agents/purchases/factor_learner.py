"""What the learners of factor models share: parameters, and fitting on exposures or on a log."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from recsim_mnar.agents.purchases.factor_model import FactorModel
from recsim_mnar.agents.purchases.factor_policy import FactorPolicy
from recsim_mnar.agents.purchases.observed import Observed, Plan
from recsim_mnar.agents.purchases.training import Loss, Settings, Trainer, Training, train
from recsim_mnar.errors import UserError
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.policies.base import Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


def exposures_of(log: Log, n_items: int, name: str) -> Exposures:
    """The exposures in a log of purchases.

    Raises:
        UserError: the log recommends nothing.
    """
    if not log.is_bandit.any():
        raise UserError(
            f"{name} learns from what was recommended and what was not, but the log has no recommendation flags "
            "(bandit rows)"
        )
    return Exposures.from_log(log, n_items=n_items)


@dataclass(kw_only=True, eq=False)
class FactorLearner(Learner):
    """A factor model trained by sampled gradients (Sato et al. 2019, section 5.1, whose settings are the defaults).

    Args:
        updates: samples in all.
        factors: length of the factors.
        rate: learning rate.
        penalty: coefficient of the squares, lambda.
        bias_penalty: that of the biases and responses, where it is another.
        batch: samples a step.
        optimizer: ``adam`` or ``sgd``, see :class:`recsim_mnar.agents.purchases.training.Settings`.
    """

    updates: int = 10_000_000
    factors: int = 100
    rate: float = 1e-4
    penalty: float = 1e-6
    bias_penalty: float | None = None
    batch: int = 1000
    optimizer: str = "adam"

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UserError: one is out of range.
        """
        try:
            self.settings = Settings(
                self.factors, self.rate, self.penalty, self.bias_penalty, self.batch, self.optimizer
            )
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None
        if isinstance(self.updates, (bool, str)) or not self.updates >= 1 or self.updates != int(self.updates):
            raise UserError(f"{self.name}: updates must be a whole number from 1, got {self.updates!r}")
        self.updates = int(self.updates)

    def _check_share(self, name: str) -> None:
        """The parameter ``name`` is a number in [0, 1]."""
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
            raise UserError(f"{self.name}: {name} must lie in [0, 1], got {value!r}")

    @abc.abstractmethod
    def plan(self, observed: Observed) -> Plan:
        """How samples are drawn."""

    @abc.abstractmethod
    def loss(self, observed: Observed, exposures: Exposures) -> Loss:
        """What they are scored by."""

    def parameters(self) -> dict[str, Any]:
        """Of JSON types, for provenance."""
        return asdict(self)

    def trainer(self, exposures: Exposures, *, periods: Sequence[int] | None = None, seed: int = 0) -> Trainer:
        """A training on some periods (all by default) that the caller advances.

        Raises:
            UserError: the exposures lack what the agent learns from.
        """
        try:
            observed = Observed.of(exposures.classes(periods))
            return Trainer(self.plan(observed), self.loss(observed, exposures), self.settings, seed)
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None

    def train(
        self,
        exposures: Exposures,
        *,
        periods: Sequence[int] | None = None,
        seed: int = 0,
        validate: Callable[[FactorModel], float] | None = None,
        check_every: int | None = None,
        patience: int | None = None,
    ) -> Training:
        """Train on exposures; see :func:`recsim_mnar.agents.purchases.training.train` for the last three."""
        return train(
            self.trainer(exposures, periods=periods, seed=seed),
            self.updates,
            validate=validate,
            check_every=check_every,
            patience=patience,
        )

    def fit_exposures(self, exposures: Exposures, *, seed: int = 0, **options: Any) -> FactorPolicy:
        """A policy for the users of the exposures; ``options`` as in :meth:`train`."""
        training = self.train(exposures, seed=seed, **options)
        return FactorPolicy.of(training.model, self.name, self.parameters())

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; the log's users are met again under their own ids.

        Raises:
            UserError: the log has no recommendation flags.
        """
        return self.fit_exposures(exposures_of(log, n_items, self.name), seed=seed)
