"""Worlds of slates: their parameters, both potential outcomes, and lanes in which users buy period after period."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.rng import Stream, check_seed
from recsim_mnar.worlds.lanes import CountedLanes, Transition
from recsim_mnar.worlds.params import Params, must, one_of

LAWS = ("power", "log")
COUPLINGS = ("independent", "shared")


@dataclass(frozen=True)
class SlateParams(Params):
    """What a world of slates of one's own has for parameters; derive, and add others with defaults.

    Attributes:
        n_items: number of items I.
        n_periods: periods that a user lives.
        slate_size: items recommended to a user in a period, N (expected number where ``slates`` is ``independent``).
        rank_decay: weight of rank r from 1: ``power`` r^-exponent, ``log`` 1 / log2(1 + r).
        exponent: of the power law.
        smallest_propensity: no item is recommended with a smaller probability; above 0.
        largest_propensity: nor with a larger one; below 1.
        slates: each item is drawn by itself (``independent``), or slates of exactly N items (``fixed``).
        catalogue_seed: of the items.
        coupling: see :class:`recsim_mnar.purchases.world.PurchasesParams`.
    """

    n_items: int = 50
    n_periods: int = 4
    slate_size: int = 5
    rank_decay: str = "power"
    exponent: float = 0.5
    smallest_propensity: float = 1e-3
    largest_propensity: float = 0.9
    slates: str = "independent"
    catalogue_seed: int = 0
    coupling: str = "independent"

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        check_slates(self)


RULES = tuple(name for name in SlateParams.__dataclass_fields__ if name != "catalogue_seed")
"""Parameters that a world of slates must have."""


def check_slates(p: Any) -> None:
    """Raise UserError naming the parameter by which slates cannot be made; ``p`` has those of :class:`SlateParams`."""
    must(p, "be at least 1", "n_items", "n_periods", "slate_size")
    if p.slate_size > p.n_items:
        raise UserError(f"slate_size = {p.slate_size} is larger than the number of items, n_items = {p.n_items}")
    if p.n_items * p.n_periods >= 2**32:
        raise UserError("n_items times n_periods must be below 2**32: lower one of them")
    must(p, "not be negative", "exponent")
    one_of(p, rank_decay=LAWS, slates=("independent", "fixed"), coupling=COUPLINGS)
    low, high = p.smallest_propensity, p.largest_propensity
    if not 0 < low <= high < 1:
        raise UserError(
            f"smallest_propensity and largest_propensity must satisfy 0 < smallest <= largest < 1, got {low:g} and "
            f"{high:g}: uplift needs a probability of both to be shown and not to be shown"
        )
    if not low * p.n_items <= p.slate_size <= high * p.n_items:
        raise UserError(
            f"slate_size = {p.slate_size} of {p.n_items} items cannot be reached with propensities in "
            f"[{low:g}, {high:g}]: change slate_size or the bounds"
        )
    check_seed(getattr(p, "catalogue_seed", 0), "catalogue_seed")


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Outcomes:
    """Truth of some users: probabilities of both potential outcomes, (n, I).

    Attributes:
        control: P(Y^C = 1), bought without a recommendation.
        treated: P(Y^T = 1), bought with one.
    """

    control: Floats
    treated: Floats

    @property
    def uplift(self) -> Floats:
        """E[tau] = P(Y^T) - P(Y^C)."""
        return self.treated - self.control


def checked_slates(slates: Any, n: int, n_items: int) -> NDArray[np.int64]:
    """Slates as (n, N) integers.

    Raises:
        UserError: another shape, not integers, or an item out of range.
    """
    slates = np.asarray(slates)
    if slates.ndim != 2 or len(slates) != n or slates.shape[1] < 1:
        raise UserError(f"slates must have shape ({n}, N), got {slates.shape}")
    if not np.issubdtype(slates.dtype, np.integer):
        raise UserError(f"slates must hold integers, got {slates.dtype}")
    outside = (slates < 0) | (slates >= n_items)
    if outside.any():
        raise UserError(f"item {slates[outside][0]} is out of range, the world has items 0..{n_items - 1}")
    return slates.astype(np.int64)


def flags_of(slates: NDArray[np.int64], n_items: int) -> Flags:
    """(n, I) which items slates show; an item named twice in a slate is shown once, and the second place is lost."""
    shown = np.zeros((len(slates), n_items), bool)
    np.put_along_axis(shown, slates, True, axis=1)
    return shown


def addresses(
    seeds: Any, users: Ints, periods: Ints, coupling: str
) -> tuple[NDArray[np.uint64], np.uint64, Ints, Ints, bool]:
    """The first arguments of the kernels that draw purchases; the last is whether both outcomes share a uniform."""
    seeds = np.ascontiguousarray(np.broadcast_to(np.asarray(seeds, np.uint64), users.shape))
    users, periods = np.ascontiguousarray(users), np.ascontiguousarray(periods, np.int64)
    return seeds, np.uint64(Stream.PURCHASE), users, periods, coupling == "shared"


class PurchasesLanes(CountedLanes):
    """See :class:`recsim_mnar.worlds.base.Lanes`; opened by :meth:`ExposureWorld.open_lanes`.

    A decision is a slate. Its rows come first, items ascending, then the purchases without recommendation, items
    ascending; ``time`` is the period.

    Args:
        params: of the world: ``n_items``, ``n_periods`` and ``coupling``.
        outcomes_of: truth of users (n,) of a seed.
        n_lanes: users side by side.
        truth_column: name of the column of P(Y^T) of what is shown; None to leave it out.
    """

    trusted = True

    def __init__(
        self,
        params: Any,
        outcomes_of: Callable[[int, NDArray[np.int64]], Outcomes],
        n_lanes: int,
        *,
        truth_column: str | None,
    ) -> None:
        super().__init__(n_lanes, truth_column=truth_column)
        self._params, self._outcomes_of = params, outcomes_of
        self._control = np.zeros((n_lanes, params.n_items))
        self._treated = np.zeros((n_lanes, params.n_items))

    @property
    def state(self) -> Floats:
        """See :attr:`Lanes.state`: here P(Y^T) of all items, (n, I)."""
        return self._treated.copy()

    @property
    def uplift(self) -> Floats:
        """Truth, E[tau] of all items, (n, I), for what judges."""
        return self._treated - self._control

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.uint64], users: NDArray[np.int64]) -> Transition:
        """See :meth:`Lanes.begin`: nothing has happened yet."""
        for seed, rows in self.seat(which, seeds, users):
            truth = self._outcomes_of(seed, users[rows])
            self._control[which[rows]], self._treated[which[rows]] = truth.control, truth.treated
        starts, columns = self.rows(which, np.zeros(len(which), np.int64))
        return Transition(starts, columns, np.ones(len(which), np.bool_))

    def take(self, which: NDArray[np.int64], actions: NDArray[Any], propensities: NDArray[np.float64]) -> Transition:
        """See :meth:`Lanes.take`: ``actions`` are slates (n, N), ``propensities`` one for each item, or one a user."""
        slates = checked_slates(np.asarray(actions).reshape(len(which), -1), len(which), self._params.n_items)
        probability = np.zeros((len(which), self._params.n_items))
        given = np.broadcast_to(np.asarray(propensities, np.float64).reshape(len(which), -1), slates.shape)
        np.put_along_axis(probability, slates, given, axis=1)
        return self.show(which, flags_of(slates, self._params.n_items), probability)

    def show(self, which: NDArray[np.int64], shown: Flags, probability: Floats) -> Transition:
        """A period in which lanes ``which`` are shown these items: (n, I) flags and probabilities."""
        from recsim_mnar.purchases import _slates_kernel

        bought = np.empty(shown.shape, np.uint8)
        control, treated = self._control, self._treated
        if not np.array_equal(which, np.arange(len(self.user))):  # all lanes, as ``simulate`` has it, need no copy
            control, treated = control[which], treated[which]
        with np.errstate(over="ignore"):
            drawn_at = addresses(self.seed[which], self.user[which], self.n_decisions[which], self._params.coupling)
            _slates_kernel.buy(*drawn_at, control, treated, shown.view(np.uint8), bought)
        lane, item = np.nonzero(shown | (bought != 0))
        recommended = shown[lane, item]
        order = np.lexsort((~recommended, lane))
        lane, item, recommended = lane[order], item[order], recommended[order]
        starts, columns = self.rows(which, np.bincount(lane, minlength=len(which)))
        columns["time"][:] = self.time[which][lane]
        columns["event"][:] = np.where(recommended, schema.BANDIT, schema.ORGANIC)
        columns["item"][:] = np.where(recommended, -1, item)
        columns["action"][:] = np.where(recommended, item, -1)
        columns["propensity"][:] = np.where(recommended, probability[lane, item], np.nan)
        columns["reward"][:] = np.where(recommended, bought[lane, item], np.nan)
        if self.truth_column is not None:
            columns[self.truth_column][:] = np.where(recommended, self._treated[which[lane], item], np.nan)
        self.time[which] += 1
        self.n_decisions[which] += 1
        return Transition(starts, columns, self.n_decisions[which] < self._params.n_periods)
