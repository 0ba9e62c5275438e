"""What the learners of factor models share: parameters, and fitting on exposures or on a log."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from recsim_mnar.agents.purchases.factor_policy import FactorModel, FactorModelConfig, FactorPolicy
from recsim_mnar.agents.purchases.observed import Observed, Plan
from recsim_mnar.agents.purchases.training import Loss, Settings, Trainer, Training, train
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in
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


class ExposureLearner(Learner):
    """Learns from exposures: what was recommended to each user, what was not, and what was bought."""

    def exposed(self, exposures: Exposures, periods: Sequence[int] | None) -> Observed:
        """What some periods (all by default) show of the classes of items.

        Raises:
            UserError: nothing is purchased in them.
        """
        with self.named():
            return Observed.of(exposures.classes(periods))

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Put the learner's name before what its data lack."""
        try:
            yield
        except UserError as error:
            raise UserError(f"{self.name}: {error}") from None

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policies.Learner.fit`; the log's users are met again under their own ids.

        Raises:
            UserError: the log has no recommendation flags.
        """
        return self.fit_exposures(exposures_of(log, n_items, self.name), seed=seed)

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
        """Check the values.

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
        """How samples are drawn."""

    def loss(self, observed: Observed, exposures: Exposures | None = None) -> Loss:
        """What they are scored by."""
        return Loss(self.pairs, form=self.form)

    def parameters(self) -> dict[str, Any]:
        """Of JSON types, for provenance."""
        return asdict(self)

    def trainer(self, exposures: Exposures, *, periods: Sequence[int] | None = None, seed: int = 0) -> Trainer:
        """A training on some periods (all by default) that the caller advances.

        Raises:
            UserError: the exposures lack what the agent learns from.
        """
        observed = self.exposed(exposures, periods)
        with self.named():
            return Trainer(self.plan(observed), self.loss(observed, exposures), self.settings, seed)

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
