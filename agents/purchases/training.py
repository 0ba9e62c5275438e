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
"""Bits of the four classes."""
P, NP, R, NR, ANY = NR_P | R_P, R_NP | NR_NP, R_P | R_NP, NR_P | NR_NP, 15
"""Masks of several classes."""
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
"""Names for messages, by mask. A mask is a set of classes, the sum of their bits, as in P = NR_P + R_P."""


@dataclass(frozen=True)
class Observed:
    """Observed classes of items for each (period, user) with a purchase, a row; other rows are left out.

    Attributes:
        n_users: number of users.
        n_items: number of items.
        user: (n_rows,) int32 user of each row.
        period: (n_rows,) int32 period of each row, ascending.
        bounds: (n_rows, 4) int64 indices in ``items`` at which a row's NR-P, R-P and R-NP items begin, and the end.
        items: int32 items of all rows, those of a row by class, [NR-P | R-P | R-NP], ascending within a class.
        sorted_items: int32 items of all rows, those of a row ascending over its three classes; all others are NR-NP.
    """

    n_users: int
    n_items: int
    user: NDArray[np.int32]
    period: NDArray[np.int32]
    bounds: NDArray[np.int64]
    items: NDArray[np.int32]
    sorted_items: NDArray[np.int32]

    @classmethod
    def of(cls, classes: Any) -> Observed:
        """Convert :class:`recsim_mnar.purchases.exposures.Classes`, lists of items for every period and user.

        Raises:
            UserError: there is no purchase.
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
            n = counts[:, k]  # items of this class in each row
            within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)  # position of each item among its row's
            items[np.repeat(bounds[:, k], n) + within] = part.items[np.repeat(part.indptr[rows], n) + within]
        owner = np.repeat(np.arange(len(rows)), bounds[:, 3] - bounds[:, 0])
        sorted_items = items[np.lexsort((items, owner))]
        return cls(
            classes.n_users,
            classes.n_items,
            (rows % classes.n_users).astype(np.int32),
            classes.periods[rows // classes.n_users].astype(np.int32),
            bounds,
            items,
            sorted_items,
        )

    @classmethod
    def of_counts(cls, counts: Any) -> Observed:
        """Convert a scipy CSR array (n_users, n_items) with sorted indices, whose entries are purchases in one period.

        Nothing counts as recommended: all items of a row are NR-P.
        """
        start = counts.indptr.astype(np.int64)
        items = counts.indices.astype(np.int32)
        rows = np.flatnonzero(np.diff(start))
        end = start[rows + 1]
        bounds = np.stack([start[rows], end, end, end], axis=1)  # the lists of R-P and R-NP items are empty
        shape = (int(counts.shape[0]), int(counts.shape[1]))
        return cls(*shape, rows.astype(np.int32), np.zeros(len(rows), np.int32), bounds, items, items)

    def sizes(self, mask: int) -> NDArray[np.int64]:
        """Return each row's number of items in a set of classes, a mask, (n_rows,)."""
        counts = np.diff(self.bounds, axis=1)
        rest = self.n_items - counts.sum(axis=1)
        by_class = np.column_stack([counts, rest])
        in_mask = [bool(mask & bit) for bit in (NR_P, R_P, R_NP, NR_NP)]
        return by_class[:, in_mask].sum(axis=1)

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays that the drawing kernel reads, in its order."""
        return self.user, self.bounds, self.items, self.sorted_items


@dataclass(frozen=True)
class Stratum:
    """Stratum of samples: the classes from which items are drawn, and its share of all samples.

    Attributes:
        probability: share of the samples.
        first: mask of the classes from whose items the first item is drawn uniformly.
        second: mask of the classes of the second item; 0 if a sample has one item only.
        label: label of the first item, 1 or 0; -1 for 1 if it was purchased, else 0.
    """

    probability: float
    first: int
    second: int = 0
    label: int = -1


@dataclass(frozen=True)
class Plan:
    """Plan by which samples are drawn: a stratum, then a row that has the stratum's classes, then items of these.

    Rows that lack one of the stratum's classes are not drawn in it, so that each stratum has exactly its share.

    Attributes:
        observed: rows of items from which samples are drawn.
        strata: the strata with a positive share.
    """

    observed: Observed
    strata: tuple[Stratum, ...]
    _arrays: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, observed: Observed, strata: Sequence[Stratum], *, by: str = "row") -> Plan:
        """Make a plan.

        Args:
            observed: rows of items from which samples are drawn.
            strata: the strata; those with probability 0 are left out.
            by: ``row`` draws a period uniformly, then a row of it (Sato et al. 2019, section 5.1); ``cell`` draws a row
                with a probability proportional to its number of items in the first classes, so that all of these items
                are equally likely (Rendle et al. 2009).

        Raises:
            UserError: no row has the classes that a stratum needs.
        """
        kept = [s for s in strata if s.probability > 0.0]
        # A stratum is a range of groups (its periods), a group a range of slots, and each slot a row.
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
                need = NAMES[stratum.first]
                if stratum.second:
                    need += f" and one {NAMES[stratum.second]}"
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
        """Return the arrays that the drawing kernel reads, in its order."""
        return self._arrays

    def labels(self) -> NDArray[np.int64]:
        """Return the label of each stratum, (K,)."""
        return np.array([s.label for s in self.strata], np.int64)

    def sample_arrays(self, n: int) -> tuple[NDArray[Any], ...]:
        """Return arrays for n samples, zeros, which the drawing kernel fills.

        Returns:
            user, first item, second item, stratum, class of the first item, and its place in ``observed.items``, (n,)
            each; and three scratch arrays of the kernel.
        """
        kinds = (np.int32, np.int32, np.int32, np.int32, np.int32, np.int64)
        scratch = (np.zeros(n, np.int32), np.zeros((n, 2), np.uint32), np.zeros(n, np.int64))
        return *(np.zeros(n, kind) for kind in kinds), *scratch

    def draw(self, seed: int, first: int, n: int) -> tuple[NDArray[Any], ...]:
        """Draw samples ``first .. first + n - 1``; each depends on the seed and its number alone.

        Returns:
            six arrays (n,): user, first item, second item, stratum, class of the first item (the bit of its mask), and
            its place in ``observed.items``.
        """
        from recsim_mnar.agents.purchases import _training_kernel

        out = self.sample_arrays(n)
        with np.errstate(over="ignore"):  # integers of the random generator wrap around
            _training_kernel.draw(
                np.uint64(seed), np.uint64(rng.Stream.FIT), first, n, self._arrays, self.observed.arrays(),
                self.observed.n_items, out,
            )  # fmt: skip
        return out[:6]


DISTANCES = {"l1": 1, "l2": 2, "cosine": 3}
"""Numbers by which the kernel knows the distances between coupled rows."""


@dataclass(frozen=True)
class Settings:
    """Training settings of a factor model; the defaults are those of Sato et al. 2019, section 5.1.

    Adam is lazy: a batch changes only the rows of its samples, and the bias correction of a row counts the steps of
    this row. Dense Adam would also move all other rows by their momentum, at a cost that grows with the number of users
    and items instead of the batch.

    Attributes:
        factors: number of factors.
        rate: learning rate.
        penalty: coefficient lambda of the squared factors of a sample's rows in its loss.
        bias_penalty: coefficient of the squared biases and responses; None for that of the factors.
        batch: number of samples per step, which reduces their mean loss by Adam (beta .9 and .999).
        scale: standard deviation of the first factors times sqrt(factors).
    """

    factors: int = 100
    rate: float = 1e-4
    penalty: float = 1e-6
    bias_penalty: float | None = None
    batch: int = 1000
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


@dataclass(frozen=True)
class Loss:
    """Loss of a sample.

    Attributes:
        pairs: True for two items i and j per sample and the loss ``|w| log(1 + exp(-sign(w)(x_ui - x_uj)))``; False for
            one item and the logistic loss of its label.
        signed: float32 weight w of a pair by the place of its first item in the observed items; None for 1.
        form: terms and tables of the model.
        distance: distance between a row and its separate counterpart for recommended items: ``l1``, ``l2`` (squared) or
            ``cosine``.
        between: coefficient of the distance.
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
    """Training of a factor model, with the same result to the last bit whether it advances in one call or in several.

    Sample n is a function of the seed and n alone.

    Args:
        plan: plan by which samples are drawn.
        loss: loss of a sample.
        settings: settings of the training.
        seed: seed of the samples and of the first factors.

    Attributes:
        model: the model after the samples so far; its tables change with further ones.
        updates: number of samples so far.
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
        self._batch = settings.batch
        self._batches = 0
        self._draw_seed = rng.derive_seed(seed, "samples")
        self._samples = plan.sample_arrays(self._batch)
        users = self.model.users
        items = self.model.items
        self._moments = (*_moments_of(users), *_moments_of(items))
        n_rows = 2 * self._batch  # a sample changes at most two rows of a table
        self._gradients = (*_gradient_arrays(users, n_rows), *_gradient_arrays(items, n_rows))

    @property
    def updates(self) -> int:
        """Number of samples so far."""
        return self._batches * self._batch

    def advance(self, updates: int) -> int | None:
        """Train on at least this many more samples, rounded up to whole batches.

        Returns:
            None; or, if the model diverged, the number of samples by then. It has diverged when a score is above 1e4 or
            not a number.
        """
        from recsim_mnar.agents.purchases import _training_kernel as kernel

        last = self._batches + -(-updates // self._batch)  # rounded up
        settings = self.settings
        loss = self.loss
        batches = (np.uint64(self._draw_seed), np.uint64(rng.Stream.FIT), self._batches, last, self._batch)
        draws = (self.plan.arrays(), self.plan.observed.arrays(), self.plan.observed.n_items, self._samples)
        tables = (self.model.users, self.model.items)
        signed = np.zeros(0, np.float32)  # empty: all weights are 1
        if loss.signed is not None:
            signed = loss.signed
        bias_penalty = settings.penalty
        if settings.bias_penalty is not None:
            bias_penalty = settings.bias_penalty
        penalties = (np.float32(settings.penalty), np.float32(bias_penalty))
        d = self.model.factors
        form = None  # the kernel's sign for pairs
        if not loss.pairs:
            form = self._form()
        betas = (0.9, 0.999)  # decay rates of Adam's moments
        rest = (penalties, np.float32(loss.between), self._moments, self._gradients, float(settings.rate), betas)
        with np.errstate(over="ignore", invalid="ignore"):
            diverged_at = int(kernel.train(batches, draws, tables, d, form, signed, *rest))  # a batch; -1 for none
        if diverged_at >= 0:
            self._batches = diverged_at
            return self.updates
        self._batches = last
        if all(np.isfinite(table).all() for table in tables):
            return None
        return self.updates

    def run(self, updates: int) -> FactorModel:
        """Train until there were ``updates`` samples, rounded up to whole batches, and return the model.

        Raises:
            UserError: the training diverged.
        """
        diverged_at = self.advance(updates - self.updates)
        if diverged_at is not None:
            rate = self.settings.rate
            raise UserError(f"training diverged at update {diverged_at} with learning rate {rate:g}: lower the rate")
        return self.model

    def _form(self) -> tuple[Any, ...]:
        """Return the form of the model as the kernel takes it.

        These are the strata's labels, a flag for responses, the offsets of the users' and of the items' separate rows
        for recommended items (0 without these), and the number of the distance.
        """
        form = self.loss.form
        observed = self.plan.observed
        user_offset = 0
        if form.apart_users:
            user_offset = observed.n_users
        item_offset = 0
        if form.apart_items:
            item_offset = observed.n_items
        return self.plan.labels(), int(form.response), user_offset, item_offset, DISTANCES[self.loss.distance]


def _moments_of(table: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return Adam's first and second moments of a table, and each row's powers of the two betas."""
    shape = table.shape
    return np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.ones((len(table), 2))


def _gradient_arrays(table: NDArray[Any], n: int) -> tuple[NDArray[Any], ...]:
    """Return arrays in which the kernel collects the gradients of at most n rows of a table.

    Returns:
        index of each row's gradient, -1 without one, (len(table),); the rows with a gradient, (n,); and their
        gradients, (n, row length).
    """
    return np.full(len(table), -1, np.int32), np.zeros(n, np.int64), np.zeros((n, table.shape[1]), np.float32)
