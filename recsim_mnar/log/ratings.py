"""Ratings: the revealed entries of a user x item matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.rows import steps_within
from recsim_mnar.log.schema import as_type, read_only
from recsim_mnar.log.table import Log
from recsim_mnar.runs.receipts import arrays_digest

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ratings:
    """Observed entries of a (U, I) rating matrix, in the order in which they were given.

    The arrays are read-only: a learner that changes one copies it first.

    Attributes:
        users: (n,) int64 user of each rating, below n_users.
        items: (n,) int64 item of each rating, below n_items.
        values: (n,) float64 ratings.
        n_users: number of users U, with or without ratings.
        n_items: number of items I, with or without ratings.
    """

    users: NDArray[np.int64]
    items: NDArray[np.int64]
    values: Floats
    n_users: int
    n_items: int

    def __post_init__(self) -> None:
        """Convert the arrays to their types, check them, and make them read-only.

        Raises:
            UserError: different lengths, an index that is no whole number or out of range, or a value that is not a
                finite number.
        """
        users, items = (as_type(getattr(self, f"{name}s"), np.dtype(np.int64), name) for name in ("user", "item"))
        values = as_type(self.values, np.dtype(np.float64), "value")
        if not users.shape == items.shape == values.shape or users.ndim != 1:
            raise UserError(
                f"users, items and values must have one length, got {users.shape}, {items.shape} and {values.shape}"
            )
        for name, index, limit in (("user", users, self.n_users), ("item", items, self.n_items)):
            if len(index) and (index.min() < 0 or index.max() >= limit):
                row = int(np.flatnonzero((index < 0) | (index >= limit))[0])
                raise UserError(f"rating {row}: {name} {index[row]} is out of range 0..{limit - 1}")
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values))[0])
            raise UserError(f"rating {row}: the value {values[row]} is not a finite number")
        for name, array in (("users", users), ("items", items), ("values", values)):
            object.__setattr__(self, name, read_only(array))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (U, I) of the rating matrix."""
        return self.n_users, self.n_items

    def digest(self) -> str:
        """Return the SHA-256 of the ratings and of the matrix's shape."""
        sizes = np.array(self.shape)
        return arrays_digest({"users": self.users, "items": self.items, "values": self.values, "sizes": sizes})

    @property
    def density(self) -> float:
        """Share of the matrix's entries that are observed, n / (U I)."""
        return len(self) / (self.n_users * self.n_items)

    @classmethod
    def from_dense(cls, matrix: Any, observed: Any = None) -> Ratings:
        """Return the observed entries of a matrix.

        Args:
            matrix: (U, I) ratings.
            observed: (U, I) True for observed entries; if None, those that are not 0.

        Raises:
            UserError: ``matrix`` or ``observed`` of another shape.
        """
        matrix = np.asarray(matrix, np.float64)
        mask = matrix != 0
        if observed is not None:
            mask = np.asarray(observed, bool)
        if matrix.ndim != 2 or mask.shape != matrix.shape:
            raise UserError(f"a rating matrix and its mask must be (U, I), got {matrix.shape} and {mask.shape}")
        users, items = np.nonzero(mask)
        return cls(users, items, matrix[users, items], *matrix.shape)

    def select(self, rows: NDArray[Any]) -> Ratings:
        """Return the ratings at a boolean mask or at indices; the matrix keeps its shape."""
        return Ratings(self.users[rows], self.items[rows], self.values[rows], self.n_users, self.n_items)

    def at(self, matrix: Any, name: str = "matrix") -> Floats:
        """Return the entries of another (U, I) matrix, such as predictions, at the cells of the ratings, (n,).

        Raises:
            UserError: a matrix of another shape.
        """
        matrix = np.asarray(matrix)
        if matrix.shape != self.shape:
            raise UserError(f"{name} has shape {matrix.shape}, the ratings are of a {self.shape} matrix")
        return np.asarray(matrix[self.users, self.items], np.float64)

    def check_scale(self, scale: tuple[float, ...]) -> Ratings:
        """Raise UserError naming the first rating that is not one of ``scale``; returns the ratings themselves."""
        outside = ~np.isin(self.values, scale)
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise UserError(
                f"rating {row} (user {self.users[row]}, item {self.items[row]}) is {self.values[row]:g}, "
                f"outside the scale {', '.join(f'{r:g}' for r in scale)}"
            )
        return self


def split_folds(n: int, n_folds: int, seed: int) -> NDArray[np.int64]:
    """Draw the fold of each of n ratings, (n,), from 0 to n_folds - 1; sizes of folds differ by at most one.

    Args:
        n: number of ratings.
        n_folds: number of folds.
        seed: seed of the random order in which ratings are dealt to the folds.

    Raises:
        UserError: a fold would be without ratings.
    """
    from recsim_mnar import rng

    if n_folds < 2:
        raise UserError(f"cross-validation needs at least 2 folds, got {n_folds}")
    if n < n_folds:
        raise UserError(f"{n} ratings cannot fill {n_folds} folds: fold {n} would be without ratings")
    order = np.argsort(rng.uniforms(seed, rng.Stream.PROTOCOL, np.arange(n), 0), kind="stable")
    fold = np.empty(n, np.int64)
    fold[order] = np.arange(n) % n_folds
    return fold


def log_of_ratings(
    ratings: Ratings, propensities: Floats | None = None, provenance: Mapping[str, Any] | None = None
) -> Log:
    """Convert n ratings to a log with an organic row per rating, the rating as its reward.

    Ratings have no times: the time of a row is its number among the user's rows.

    Args:
        ratings: the ratings.
        propensities: (n,) probabilities with which the ratings were revealed; None if they are unknown.
        provenance: provenance of the log; if None it only says that the log is of ratings.
    """
    order = np.argsort(ratings.users, kind="stable")
    user = ratings.users[order]
    step = steps_within(user)
    columns: dict[str, NDArray[Any]] = {
        "user": user,
        "step": step,
        "time": step.astype(np.float64),
        "event": np.full(len(user), schema.ORGANIC, np.int8),
        "item": ratings.items[order],
        "reward": ratings.values[order],
    }
    if propensities is not None:
        columns["observation_propensity"] = np.asarray(propensities)[order]
    if provenance is None:
        provenance = {"kind": "ratings"}
    return Log(columns, dict(provenance))
