"""The observed classes of purchases: recommended or not, purchased or not, as sets of items a user and period."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CLASSES = ("R-P", "R-NP", "NR-P", "NR-NP")
"""The four observed classes: recommended or not, purchased or not."""


@dataclass(frozen=True)
class CSRLists:
    """Items of each (period, user) in one observed class, as compressed rows.

    Attributes:
        indptr: (n_rows + 1,) int64; row r's items are ``items[indptr[r] : indptr[r + 1]]``.
        items: int32, ascending within a row.
    """

    indptr: NDArray[np.int64]
    items: NDArray[np.int32]

    def of(self, row: int) -> NDArray[np.int32]:
        """The items of one row."""
        return self.items[self.indptr[row] : self.indptr[row + 1]]

    def counts(self) -> NDArray[np.int64]:
        """(n_rows,) number of items in each row."""
        return np.diff(self.indptr)


@dataclass(frozen=True)
class Classes:
    """The observed classes of some periods; row ``k * n_users + u`` is user u in ``periods[k]``.

    Attributes:
        periods: (K,) which.
        n_users, n_items: sizes.
        rp, rnp, nrp: R-P, R-NP and NR-P; every item in none of the three is NR-NP.
    """

    periods: NDArray[np.int64]
    n_users: int
    n_items: int
    rp: CSRLists
    rnp: CSRLists
    nrp: CSRLists

    def active(self) -> NDArray[np.int64]:
        """Rows of users who bought something in the period."""
        return np.flatnonzero(self.rp.counts() + self.nrp.counts() > 0)
