"""Training of factor models: observed classes of items, samples drawn from them, and their gradients.

For a user in a period an item is recommended (R) or not (NR) and purchased (P) or not (NP): four classes (Sato et al.
2019, section 3.1). Three are short lists; NR-NP is every other item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.agents.purchases.factor_policy import FactorModel, FactorModelConfig
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, one_of, whole_number

NR_P, R_P, R_NP, NR_NP = 1, 2, 4, 8
P, NP, R, NR, ANY = NR_P | R_P, R_NP | NR_NP, R_P | R_NP, NR_P | NR_NP, 15
NAMES = {
    NR_P: "purchased without recommendation (NR-P)",
    R_P: "recommended and purchased (R-P)",
    R_NP: "recommended and not purchased (R-NP)",
    NR_NP: "neither recommended nor purchased (NR-NP)",
    P: "purchased (P)",
    NP: "not purchased (NP)",
    R: "recommended (R)",
    NR: "not recommended (NR)",
    ANY: "of any kind",
}
"""Masks of classes: a set of classes is the sum of its members."""


@dataclass(frozen=True)
class Observed:
    """Rows of (period, user), each with the items of three classes; rows without a purchase are left out.

    Attributes:
        n_users, n_items: sizes.
        user: (n_rows,) int32.
        period: (n_rows,) int32, ascending.
        bounds: (n_rows, 4) int64: where a row's NR-P, R-P and R-NP items begin, and where it ends.
        items: int32; the items of a row by class, [NR-P | R-P | R-NP], ascending within each.
        taken: int32; the same items of each row, ascending over all three.
    """

    n_users: int
    n_items: int
    user: NDArray[np.int32]
    period: NDArray[np.int32]
    bounds: NDArray[np.int64]
    items: NDArray[np.int32]
    taken: NDArray[np.int32]

    @classmethod
    def of(cls, classes: Any) -> Observed:
        """Build from :class:`recsim_mnar.purchases.exposures.Classes`.

        Raises:
            UserError: no purchase at all.
        """
        rows = classes.active()
        if len(rows) == 0:
            raise UserError("nothing is purchased in these periods: there is nothing to learn from")
        parts = (classes.nrp, classes.rp, classes.rnp)
        counts = np.stack([part.counts()[rows] for part in parts], axis=1)
        ends = np.cumsum(counts.ravel())
        bounds = np.empty((len(rows), 4), np.int64)
        bounds[:, 1:] = ends.reshape(-1, 3)
        bounds[:, 0] = np.concatenate([[0], bounds[:-1, 3]])
        items = np.empty(int(ends[-1]), np.int32)
        for k, part in enumerate(parts):
            n = counts[:, k]
            within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
            items[np.repeat(bounds[:, k], n) + within] = part.items[np.repeat(part.indptr[rows], n) + within]
        owner = np.repeat(np.arange(len(rows)), bounds[:, 3] - bounds[:, 0])
        items_of_users = items[np.lexsort((items, owner))]
        return cls(
            classes.n_users,
            classes.n_items,
            (rows % classes.n_users).astype(np.int32),
            classes.periods[rows // classes.n_users].astype(np.int32),
            bounds,
            items,
            items_of_users,
        )

    @classmethod
    def of_counts(cls, counts: Any) -> Observed:
        """Build from a scipy CSR array (n_users, n_items) with sorted indices; entries are purchases in one period."""
        start = counts.indptr.astype(np.int64)
        items = counts.indices.astype(np.int32)
        rows = np.flatnonzero(np.diff(start))
        bounds = np.stack([start[rows], *[start[rows + 1]] * 3], axis=1)
        shape = (int(counts.shape[0]), int(counts.shape[1]))
        return cls(*shape, rows.astype(np.int32), np.zeros(len(rows), np.int32), bounds, items, items)

    def sizes(self, mask: int) -> NDArray[np.int64]:
        """(n_rows,) number of items in a set of classes."""
        counts = np.diff(self.bounds, axis=1)
        rest = self.n_items - counts.sum(axis=1)
        every = np.column_stack([counts, rest])
        return every[:, [bool(mask & bit) for bit in (NR_P, R_P, R_NP, NR_NP)]].sum(axis=1)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Arrays that the drawing kernel reads."""
        return self.user, self.bounds, self.items, self.taken

    def of_place(self) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
        """User, period and class of each entry of ``items``."""
        length = self.bounds[:, 3] - self.bounds[:, 0]
        counts = np.diff(self.bounds, axis=1)
        part = np.repeat(np.tile([NR_P, R_P, R_NP], len(counts)), counts.ravel())
        return np.repeat(self.user, length), np.repeat(self.period.astype(np.int64), length), part


@dataclass(frozen=True)
class Stratum:
    """One stratum and its share of the samples.

    Attributes:
        probability: share of the samples, above 0.
        first: mask of the classes of the first item, uniform over their items.
        second: likewise of the second item; 0 where a sample has one item only.
        label: 1, 0, or -1: whether the first item was purchased.
    """

    probability: float
    first: int
    second: int = 0
    label: int = -1


@dataclass(frozen=True)
class Plan:
    """Plan of draws of samples: a stratum; a row with the stratum's classes; the items, uniform within their classes.

    Rows without one of the classes that a stratum asks for are passed over in that stratum, so that each stratum has
    exactly its share. ``by="row"``: a period uniformly, then a row of it (Sato et al. 2019, section 5.1).
    ``by="cell"``: a row by the number of its items in the first classes, so that all cells of these are equally likely
    (Rendle et al. 2009).

    Attributes:
        observed: what is drawn from.
        strata: as given.
    """

    observed: Observed
    strata: tuple[Stratum, ...]
    _arrays: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, observed: Observed, strata: Sequence[Stratum], *, by: str = "row") -> Plan:
        """Lay out the rows that each stratum can use.

        Raises:
            UserError: no row has the classes that a stratum needs.
        """
        kept = [s for s in strata if s.probability > 0.0]
        rows = []
        slots = [0]
        groups = [0]
        for stratum in kept:
            first = observed.sizes(stratum.first)
            usable = first > 0
            if stratum.second:
                usable &= observed.sizes(stratum.second) > 0
            chosen = np.flatnonzero(usable)
            if len(chosen) == 0:
                need = NAMES[stratum.first] + (f" and one {NAMES[stratum.second]}" if stratum.second else "")
                raise UserError(
                    f"no user has, in one period, an item {need}: the log lacks what this agent learns from"
                )
            if by == "cell":
                chosen = np.repeat(chosen, first[chosen])
                lengths = np.array([len(chosen)])
            else:
                lengths = np.unique(observed.period[chosen], return_counts=True)[1]
            rows.append(chosen.astype(np.int32))
            slots.extend((slots[-1] + np.cumsum(lengths)).tolist())
            groups.append(groups[-1] + len(lengths))
        probabilities = np.array([s.probability for s in kept])
        arrays = (
            np.cumsum(probabilities) / probabilities.sum(),
            np.array([s.first for s in kept], np.int64),
            np.array([s.second for s in kept], np.int64),
            np.array(groups, np.int64),
            np.array(slots, np.int64),
            np.concatenate(rows),
        )
        return cls(observed, tuple(kept), arrays)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Arrays that the drawing kernel reads."""
        return self._arrays

    def labels(self) -> NDArray[np.int64]:
        """(K,) label of each stratum."""
        return np.array([s.label for s in self.strata], np.int64)

    def room(self, n: int) -> tuple[NDArray[Any], ...]:
        """Arrays for n samples: user, first item, second item, stratum, class of the first, its place; and more."""
        kinds = (np.int32, np.int32, np.int32, np.int32, np.int32, np.int64, np.int32)
        return *(np.zeros(n, kind) for kind in kinds), np.zeros((n, 2), np.uint32), np.zeros(n, np.int64)

    def draw(self, seed: int, first: int, n: int) -> tuple[NDArray[Any], ...]:
        """Samples ``first .. first + n - 1``, as :meth:`room` lays them out; the class is the bit of its mask."""
        from recsim_mnar.agents.purchases import _training_kernel

        out = self.room(n)
        with np.errstate(over="ignore"):
            _training_kernel.draw(
                np.uint64(seed), np.uint64(rng.Stream.FIT), first, n, self._arrays, self.observed.arrays(),
                self.observed.n_items, out,
            )  # fmt: skip
        return out[:6]


DISTANCES = {"l1": 1, "l2": 2, "cosine": 3}
OPTIMIZERS = ("adam", "sgd")
_DRAWN_AT_ONCE = 1000


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
        self.plan = plan
        self.loss = loss
        self.settings = settings
        self.seed = seed
        shape = (plan.observed.n_users, plan.observed.n_items)
        scale = settings.scale / np.sqrt(settings.factors)
        self.model = FactorModel.start(shape, settings.factors, loss.form, scale=scale, seed=seed)
        self._singly = loss.pairs and settings.optimizer == "sgd" and settings.batch == 1
        if self._singly:
            self._batch = _DRAWN_AT_ONCE
        else:
            self._batch = settings.batch
        self._batches = 0
        self._draw_seed = rng.derive_seed(seed, "samples")
        self._drawn = plan.room(self._batch)
        adam = settings.optimizer == "adam"
        self._moments = tuple(
            array for table in (self.model.users, self.model.items) for array in _moments_of(table, adam)
        )
        self._gathered = tuple(
            array for table in (self.model.users, self.model.items) for array in _gathering_of(table, 2 * self._batch)
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
        settings = self.settings
        loss = self.loss
        where = (np.uint64(self._draw_seed), np.uint64(rng.Stream.FIT), self._batches, last, self._batch)
        draws = (self.plan.arrays(), self.plan.observed.arrays(), self.plan.observed.n_items, self._drawn)
        tables = (self.model.users, self.model.items)
        if loss.signed is None:
            signed = np.zeros(0, np.float32)
        else:
            signed = loss.signed
        if settings.bias_penalty is None:
            penalty = settings.penalty
        else:
            penalty = settings.bias_penalty
        penalties = (np.float32(settings.penalty), np.float32(penalty))
        d = self.model.factors
        form = None if loss.pairs else self._form()
        gathered = None if self._singly else self._gathered
        rest = (penalties, np.float32(loss.between), self._moments, gathered, float(settings.rate), (0.9, 0.999))
        with np.errstate(over="ignore", invalid="ignore"):
            bad = kernel.train(where, draws, tables, d, form, signed, *rest)
        if bad < 0:
            self._batches = last
        else:
            self._batches = int(bad)
        if bad < 0 and all(np.isfinite(table).all() for table in tables):
            return None
        return self.updates

    def run(self, updates: int) -> FactorModel:
        """Take samples until there are ``updates``, in whole batches, and return the model.

        Raises:
            UserError: it diverged.
        """
        bad = self.advance(updates - self.updates)
        if bad is not None:
            rate = self.settings.rate
            raise UserError(f"training diverged at update {bad} with learning rate {rate:g}: lower the rate")
        return self.model

    def _form(self) -> tuple[Any, ...]:
        form = self.loss.form
        observed = self.plan.observed
        return (
            self.plan.labels(),
            int(form.response),
            observed.n_users if form.apart_users else 0,
            observed.n_items if form.apart_items else 0,
            DISTANCES[self.loss.distance],
        )


def _moments_of(table: NDArray[Any], adam: bool) -> tuple[NDArray[Any], ...]:
    """First and second moments, and the powers of the betas for each row; empty without Adam."""
    n = len(table) if adam else 0
    return np.zeros((n, table.shape[1]), np.float32), np.zeros((n, table.shape[1]), np.float32), np.ones((n, 2))


def _gathering_of(table: NDArray[Any], n: int) -> tuple[NDArray[Any], ...]:
    """Position of each row's gradient, the rows touched, and their gradients."""
    return np.full(len(table), -1, np.int32), np.zeros(n, np.int64), np.zeros((n, table.shape[1]), np.float32)
