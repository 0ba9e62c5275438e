"""The observed classes of items, and plans by which training samples are drawn from them.

For a user in a period an item is recommended (R) or not (NR) and purchased (P) or not (NP): four classes (Sato et al.
2019, section 3.1). Three are short lists; NR-NP is every other item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError

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
        """Build from :class:`recsim_mnar.log.exposures.Classes`.

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
        taken = items[np.lexsort((items, owner))]
        return cls(
            classes.n_users,
            classes.n_items,
            (rows % classes.n_users).astype(np.int32),
            classes.periods[rows // classes.n_users].astype(np.int32),
            bounds,
            items,
            taken,
        )

    @classmethod
    def of_counts(cls, counts: Any) -> Observed:
        """Build from a scipy CSR array (n_users, n_items) with sorted indices; entries are purchases in one period."""
        start, items = counts.indptr.astype(np.int64), counts.indices.astype(np.int32)
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
    """How samples are drawn: a stratum; a row that has the stratum's classes; the items, uniform within their classes.

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
        rows, slots, groups = [], [0], [0]
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
