"""Training of factor models by sampled gradients: settings, a trainer that can be resumed, learning curves."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.agents.purchases.factor_policy import FactorModel, FactorModelConfig
from recsim_mnar.agents.purchases.observed import Plan
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.kernels.checks import number_in, one_of, whole_number

DISTANCES = {"l1": 1, "l2": 2, "cosine": 3}
OPTIMIZERS = ("adam", "sgd")
_DRAWN_AT_ONCE = 1000


class DivergedWarning(UserWarning):
    """Training diverged; the message names the update, the learning rate and the model that is kept."""


@dataclass(frozen=True)
class Settings:
    """Training settings of a factor model; the defaults are those of Sato et al. 2019, section 5.1.

    Adam is lazy: a batch changes the rows that its samples touch and no other, and each row's bias correction counts
    its own steps. A dense Adam would also move all other rows on their old momentum, at a cost that grows with the
    number of users and items rather than with the batch.

    Attributes:
        factors: length of the factors.
        rate: learning rate.
        penalty: lambda; each sample's loss has lambda times the squares of its rows.
        bias_penalty: lambda of the biases and responses; None: the same.
        batch: samples a step; a step descends the mean loss of its samples. SGD of batch 1 takes pairs one by one.
        optimizer: ``adam`` (beta .9 and .999) or ``sgd``.
        scale: standard deviation of the first factors, times 1/sqrt(factors).
    """

    factors: int = 100
    rate: float = 1e-4
    penalty: float = 1e-6
    bias_penalty: float | None = None
    batch: int = 1000
    optimizer: str = "adam"
    scale: float = 0.1

    def __post_init__(self) -> None:
        """Validate the values.

        Raises:
            UserError: one is out of range.
        """
        for name in ("factors", "batch"):
            whole_number(getattr(self, name), name, 1)
        for name, ends in (("rate", "(]"), ("scale", "(]"), ("penalty", "[]"), ("bias_penalty", "[]")):
            if name != "bias_penalty" or self.bias_penalty is not None:
                number_in(getattr(self, name), name, ends=ends)
        one_of(self.optimizer, "optimizer", OPTIMIZERS)


@dataclass(frozen=True)
class Loss:
    """Loss of a plan's samples.

    Attributes:
        pairs: two items a sample and the loss ``|w| log(1 + exp(-sign(w)(x_ui - x_uj)))``; else one item and the
            logistic loss of its label.
        signed: w of each place in the plan's items (float32), or empty: 1.
        form: of the model.
        distance: ``l1``, ``l2`` (squared) or ``cosine``: between coupled rows.
        between: its coefficient.
    """

    pairs: bool
    signed: NDArray[np.float32] | None = None
    form: FactorModelConfig = field(default_factory=FactorModelConfig)
    distance: str = "l2"
    between: float = 0.0

    def __post_init__(self) -> None:
        """Validate the distance.

        Raises:
            UserError: unknown distance, or a negative coefficient.
        """
        one_of(self.distance, "distance", DISTANCES)
        number_in(self.between, "between")


class Trainer:
    """A model in training; the bytes are the same whether it advances in one go or in steps.

    Sample n is a function of (seed, n) alone, and a trainer's arrays are its own.

    Args:
        plan: how samples are drawn.
        loss: what they are scored by.
        settings: see :class:`Settings`.
        seed: of the draws and of the first factors.

    Attributes:
        model: the model as it stands.
        updates: samples taken so far.
    """

    def __init__(self, plan: Plan, loss: Loss, settings: Settings, seed: int = 0) -> None:
        rng.check_seed(seed)
        self.plan, self.loss, self.settings, self.seed = plan, loss, settings, seed
        shape = (plan.observed.n_users, plan.observed.n_items)
        scale = settings.scale / np.sqrt(settings.factors)
        self.model = FactorModel.start(shape, settings.factors, loss.form, scale=scale, seed=seed)
        self._singly = loss.pairs and settings.optimizer == "sgd" and settings.batch == 1
        self._batch = _DRAWN_AT_ONCE if self._singly else settings.batch
        self._batches = 0
        self._draw_seed = rng.derive_seed(seed, "samples")
        self._drawn = plan.room(self._batch)
        adam = settings.optimizer == "adam"
        self._moments = tuple(
            array for table in (self.model.users, self.model.items) for array in _moments_of(table, adam)
        )
        n = 0 if self._singly else 2 * self._batch
        self._gathered = tuple(
            array for table in (self.model.users, self.model.items) for array in _gathering_of(table, n)
        )

    @property
    def updates(self) -> int:
        """Samples taken so far."""
        return self._batches * self._batch

    def advance(self, updates: int) -> int | None:
        """Take at least this many more samples, in whole batches (SGD of batch 1: blocks of 1,000).

        Returns:
            None, or the update at which the model diverged: its scores passed 1e4 or were no numbers.
        """
        from recsim_mnar.agents.purchases import _training_kernel as kernel

        last = self._batches + -(-updates // self._batch)
        settings, loss = self.settings, self.loss
        where = (np.uint64(self._draw_seed), np.uint64(rng.Stream.FIT), self._batches, last, self._batch)
        draws = (self.plan.arrays(), self.plan.observed.arrays(), self.plan.observed.n_items, self._drawn)
        tables = (self.model.users, self.model.items)
        signed = np.zeros(0, np.float32) if loss.signed is None else loss.signed
        own = settings.penalty if settings.bias_penalty is None else settings.bias_penalty
        penalties, d = (np.float32(settings.penalty), np.float32(own)), self.model.factors
        rest = (self._moments, self._gathered, float(settings.rate), (0.9, 0.999))
        with np.errstate(over="ignore", invalid="ignore"):
            if self._singly:
                bad = kernel.train_pairs_singly(where, draws, tables, d, signed, penalties, float(settings.rate))
            elif loss.pairs:
                bad = kernel.train_pairs(where, draws, tables, d, signed, penalties, *rest)
            else:
                form = self._form()
                bad = kernel.train_points(where, draws, tables, d, form, penalties, np.float32(loss.between), *rest)
        self._batches = last if bad < 0 else int(bad)
        if bad < 0 and all(np.isfinite(table).all() for table in tables):
            return None
        return self.updates

    def _form(self) -> tuple[Any, ...]:
        form, observed = self.loss.form, self.plan.observed
        return (
            self.plan.labels(),
            int(form.response),
            observed.n_users if form.apart_users else 0,
            observed.n_items if form.apart_items else 0,
            DISTANCES[self.loss.distance],
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save what is needed to resume: tables, moments and count (written under a temporary name, then renamed)."""
        from recsim_mnar.runs.files import replacing

        arrays = {f"moments{k}": array for k, array in enumerate(self._moments)}
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(
                file,
                allow_pickle=False,
                identity=np.array(self._identity()),
                batches=np.array(self._batches),
                users=self.model.users,
                items=self.model.items,
                **arrays,
            )

    def resume(self, path: str | os.PathLike[str]) -> None:
        """Resume from a file written by :meth:`save`.

        Raises:
            UserError: no such file, or of another training.
        """
        if not Path(path).exists():
            raise UserError(f"{path} does not exist")
        data = read_arrays(path)
        if "identity" not in data or str(data["identity"]) != self._identity():
            raise UserError(
                f"{path} belongs to a training with other settings, data or seed: remove it, or restore them"
            )
        self.model.users[:], self.model.items[:] = data["users"], data["items"]
        for k, array in enumerate(self._moments):
            array[:] = data[f"moments{k}"]
        self._batches = int(data["batches"])

    def _identity(self) -> str:
        """Settings and data that identify this training."""
        import hashlib

        digest = hashlib.blake2b(digest_size=16)
        for array in (*self.plan.arrays(), *self.plan.observed.arrays()):
            digest.update(np.ascontiguousarray(array).tobytes())
        if self.loss.signed is not None:
            digest.update(self.loss.signed.tobytes())
        loss = {"pairs": self.loss.pairs, "form": asdict(self.loss.form), "distance": self.loss.distance}
        run_config = {"settings": asdict(self.settings), **loss, "between": self.loss.between, "seed": self.seed}
        return json.dumps({**run_config, "data": digest.hexdigest()}, sort_keys=True)


def _moments_of(table: NDArray[Any], adam: bool) -> tuple[NDArray[Any], ...]:
    """First and second moments, and the powers of the betas for each row; empty without Adam."""
    n = len(table) if adam else 0
    return np.zeros((n, table.shape[1]), np.float32), np.zeros((n, table.shape[1]), np.float32), np.ones((n, 2))


def _gathering_of(table: NDArray[Any], n: int) -> tuple[NDArray[Any], ...]:
    """Position of each row's gradient, the rows touched, and their gradients."""
    return np.full(len(table), -1, np.int32), np.zeros(n, np.int64), np.zeros((n, table.shape[1]), np.float32)


@dataclass(frozen=True)
class Training:
    """Result of a training.

    Attributes:
        model: the best model by the validation metric; without one, the last.
        updates: samples that the model took.
        curve: (updates, metric) of each check; the metric is None without validation.
        stopped: why training ended: ``"done"``, ``"no better"`` or the line of a divergence.
    """

    model: FactorModel
    updates: int
    curve: list[tuple[int, float | None]]
    stopped: str


def train(
    trainer: Trainer,
    updates: int,
    *,
    check_every: int | None = None,
    validate: Callable[[FactorModel], float] | None = None,
    patience: int | None = None,
) -> Training:
    """Train, evaluate the model every ``check_every`` updates, and keep the best one.

    Args:
        trainer: advanced in place; it may have gone some way already.
        updates: samples in all.
        check_every: samples between two looks (a tenth of ``updates`` by default).
        validate: the metric of a model, larger being better.
        patience: checks in a row without a better metric after which training ends; None: never.

    Warns:
        DivergedWarning: training diverged after a check; the best model until then is kept.

    Raises:
        UserError: it diverged before any check, or the metric is not a number.
    """
    check_every = check_every or max(updates // 10, 1)
    if updates < 1 or check_every < 1:
        raise UserError(f"updates and check_every must be at least 1, got {updates} and {check_every}")
    curve: list[tuple[int, float | None]] = []
    best: tuple[float, int, FactorModel] | None = None
    worse, stopped = 0, "done"
    while trainer.updates < updates:
        bad = trainer.advance(min(check_every, updates - trainer.updates))
        if bad is not None:
            stopped = _diverged(bad, trainer.settings.rate, best)
            break
        metric = None if validate is None else float(validate(trainer.model))
        curve.append((trainer.updates, metric))
        if metric is not None and np.isnan(metric):
            raise UserError(f"the validation metric is not a number after {trainer.updates} updates")
        if best is None or metric is None or metric > best[0]:
            best, worse = (0.0 if metric is None else metric, trainer.updates, trainer.model.copy()), 0
        else:
            worse += 1
            if patience is not None and worse >= patience:
                stopped = "no better"
                break
    if best is None:
        return Training(trainer.model.copy(), trainer.updates, curve, stopped)
    return Training(best[2], best[1], curve, stopped)


def _diverged(update: int, rate: float, best: tuple[float, int, FactorModel] | None) -> str:
    line = f"training diverged at update {update} with learning rate {rate:g}: "
    if best is None:
        raise UserError(f"{line}no earlier model was kept; lower the rate, or check more often")
    line += f"the model of update {best[1]} is kept; lower the rate to go on"
    warnings.warn(line, DivergedWarning, stacklevel=3)
    return line
