"""Truncated singular value decomposition of the view counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.agents.acting import GreedyPolicy
from recsim_mnar.agents.counts import view_counts
from recsim_mnar.errors import UserError
from recsim_mnar.policy import Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log import Log

SOLVERS = ("arpack", "randomized")

_DENSE_BELOW = 64
"""Matrices with a side this short are decomposed whole: ARPACK needs rank < side, and gains nothing here."""

_OVERSAMPLE = 10
_POWER_ITERATIONS = 4


class SVD(Learner):
    """Scores h V V' of a user with view counts h, V the right singular vectors of the matrix of view counts.

    Rank 30 in Jeunen, Rohde & Vasile 2019. Singular values below rounding error are dropped, and the rank is never
    above the number of items or of users.

    Args:
        rank: number of singular vectors.
        solver: "arpack" (to rounding), or "randomized" (Halko, Martinsson & Tropp 2011, LU-normalised power
            iterations), which is several times faster at 10,000 items and more.
    """

    name = "svd"

    def __init__(self, rank: int = 30, solver: str = "arpack") -> None:
        if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
            raise UserError(f"svd: rank must be an integer from 1, got {rank!r}")
        if solver not in SOLVERS:
            raise UserError(f"svd: solver must be one of {', '.join(SOLVERS)}, got {solver!r}")
        self.rank = int(rank)
        self.solver = solver

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """See :meth:`recsim_mnar.policy.Learner.fit`; ``seed`` is of the start vectors."""
        counts, _ = view_counts(log, n_items)
        vectors = right_singular_vectors(counts, self.rank, solver=self.solver, seed=seed)
        return SVDPolicy(n_items, self.name, vectors=vectors, parameters={"rank": self.rank, "solver": self.solver})


def right_singular_vectors(matrix: Any, rank: int, *, solver: str = "arpack", seed: int = 0) -> NDArray[np.float32]:
    """The leading right singular vectors of a sparse (n, m) matrix.

    Args:
        matrix: scipy CSR array.
        rank: how many.
        solver: see :class:`SVD`.
        seed: of the start vectors, which are addressed draws (``Stream.FIT``).

    Returns:
        (rank, m) float32, by descending singular value, fewer rows where the matrix has a lower rank; the largest entry
        of each vector is positive, so the result does not depend on the solver's choice of sign.
    """
    shorter = min(matrix.shape)
    rank = min(rank, shorter)
    data = matrix.astype(np.float32)
    if shorter <= max(_DENSE_BELOW, rank + _OVERSAMPLE):
        values, vectors = np.linalg.svd(data.toarray().astype(np.float64), full_matrices=False)[1:]
    elif solver == "arpack":
        from scipy.sparse.linalg import svds

        start = rng.normals(seed, rng.Stream.FIT, 0, (1, shorter))[0].astype(np.float32)
        values, vectors = svds(data, k=rank, v0=start, return_singular_vectors="vh")[1:]
        order = np.argsort(-values, kind="stable")
        values, vectors = values[order], vectors[order]
    else:
        values, vectors = _randomized(data, rank + _OVERSAMPLE, seed)
    values, vectors = values[:rank], vectors[:rank]
    if len(values):
        vectors = vectors[values > values[0] * np.finfo(np.float32).eps * max(matrix.shape)]
    peak = vectors[np.arange(len(vectors)), np.abs(vectors).argmax(axis=1)]
    return np.ascontiguousarray(vectors * np.sign(peak)[:, None], dtype=np.float32)


def _randomized(matrix: Any, width: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Singular values and right vectors (Halko, Martinsson & Tropp 2011, algorithm 4.4 with LU for QR)."""
    from scipy.linalg import lu, qr

    start = rng.normals(seed, rng.Stream.FIT, 0, (matrix.shape[1], width)).astype(np.float32)
    transposed = matrix.T.tocsr()
    left = matrix @ start
    for _ in range(_POWER_ITERATIONS):
        left = lu(left, permute_l=True)[0]
        right = lu(transposed @ left, permute_l=True)[0]
        left = matrix @ right
    basis = qr(left, mode="economic")[0]
    values, vectors = np.linalg.svd((transposed @ basis).T, full_matrices=False)[1:]
    return values, vectors


class SVDPolicy(GreedyPolicy):
    """Greedy on h V V'; each user's h V is updated a view at a time.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        vectors: (rank, n_items) float32, the rows V'.
        parameters: the learner's, for provenance.
    """

    def __init__(self, n_items: int, name: str, *, vectors: NDArray[Any], parameters: dict[str, Any]) -> None:
        # Padded to a multiple of four rows for the kernel; a row of zeros changes no score.
        rank = -(-max(len(vectors), 1) // 4) * 4
        self._rank_kept = len(vectors)
        self._vectors = np.zeros((rank, n_items), np.float32)
        self._vectors[: len(vectors)] = vectors
        self._rows = (
            np.arange(n_items + 1, dtype=np.int64) * rank,
            np.tile(np.arange(rank, dtype=np.int32), n_items),
            np.ascontiguousarray(self._vectors.T).ravel(),
        )
        self._parameters = parameters
        super().__init__(n_items, name)

    def _start(self) -> None:
        self._states = np.empty((0, len(self._vectors)), np.float32)
        super()._start()

    def _resize(self, n_slots: int) -> None:
        super()._resize(n_slots)
        more = n_slots - len(self._states)
        self._states = np.concatenate([self._states, np.zeros((more, len(self._vectors)), np.float32)])

    def _clear(self, slots: NDArray[np.int64]) -> None:
        super()._clear(slots)
        self._states[slots] = 0.0

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        from recsim_mnar.agents import _neighbours_kernel

        super()._view(slots, items)
        _neighbours_kernel.add_rows(self._states, slots, items, *self._rows)

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        from recsim_mnar.agents import _factors_kernel

        out = np.empty((len(slots), self.n_items), np.float32)
        _factors_kernel.project(self._states, slots, self._vectors, out)
        return out

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.agents.stored.Stored.fitted`."""
        return {"vectors": self._vectors[: self._rank_kept]}, dict(self._parameters)
