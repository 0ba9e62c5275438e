"""Truncated singular value decomposition of the view counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.agents.acting import GreedyPolicy
from recsim_mnar.kernels.checks import number_in, whole_number
from recsim_mnar.log.views import view_counts
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.slots import Entry

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

_GRAM_UP_TO = 64
"""Largest number of rows or columns for a dense decomposition of the dot products of these."""

_NIL = 1e-6
"""Share of the Frobenius norm below which a singular value counts as 0: computed from squares, its error is 1e-7."""


class SVD(Learner):
    """Learner of a policy with the scores h V V' for a user with view counts h.

    The training users' view counts are N = U S V', of which V keeps the leading right singular vectors; so a user of N
    has the scores of the nearest matrix of that rank (Zhang et al. 2005; Jeunen, Rohde & Vasile 2019, section 3, with
    30 of them in the notebook). There are fewer if the matrix has a lower rank.

    Args:
        rank: number of singular vectors.
        tolerance: largest residual of a singular pair, relative to its squared singular value. A larger tolerance is
            faster on millions of interactions, and loses about its square of the captured energy.
    """

    name = "svd"

    def __init__(self, rank: int = 30, tolerance: float = 1e-6) -> None:
        self.rank = whole_number(rank, "svd: rank", 1)
        self.tolerance = number_in(tolerance, "svd: tolerance", 0.0, 1.0, ends="()")

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; ``seed`` draws the start vector."""
        counts, _ = view_counts(log, n_items)
        vectors = right_singular_vectors(counts, self.rank, tolerance=self.tolerance, seed=seed)
        parameters = {"rank": self.rank, "tolerance": self.tolerance}
        return SVDPolicy(n_items, self.name, vectors=vectors, parameters=parameters)


def right_singular_vectors(matrix: Any, rank: int, *, tolerance: float = 1e-6, seed: int = 0) -> NDArray[np.float32]:
    """Compute the leading right singular vectors of a sparse (n, m) matrix A.

    The method is the Lanczos recurrence for A'A with full reorthogonalisation and without restarts (Golub & Van Loan,
    Matrix Computations, section 10.1). It is a serial kernel: the dense linear algebra of other solvers runs in threads
    that wait for each other on shared cores (up to a hundred times slower), and its rounding depends on their number.

    Args:
        matrix: scipy CSR array A.
        rank: number of vectors.
        tolerance: largest residual of a singular pair, as in :class:`SVD`.
        seed: seed of the start vector.

    Returns:
        (rank, m) float32 vectors as rows, by descending singular value, fewer if A has a lower rank. The sign of each
        is such that its entry of the largest absolute value is positive.
    """
    rank = min(rank, *matrix.shape)
    # The Frobenius norm is the root of the sum of all squared singular values.
    nil = _NIL * np.sqrt(np.square(matrix.data, dtype=np.float64).sum())
    if min(matrix.shape) <= _GRAM_UP_TO:
        values, vectors = _all_singular_values(matrix.astype(np.float64), nil)
    else:
        values, vectors = _lanczos(matrix, rank, tolerance, seed)
    vectors = vectors[:rank][values[:rank] > nil]
    peak = vectors[np.arange(len(vectors)), np.abs(vectors).argmax(axis=1)]
    return np.ascontiguousarray(vectors * np.sign(peak)[:, None], dtype=np.float32)


def _all_singular_values(matrix: Any, nil: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute all singular values of A above ``nil`` from the eigenvectors of A'A or AA', whichever is smaller.

    Returns:
        values: singular values, descending.
        vectors: right singular vectors as rows.
    """
    tall = matrix.shape[0] >= matrix.shape[1]
    if tall:
        gram = matrix.T @ matrix
    else:
        gram = matrix @ matrix.T
    squares, vectors = np.linalg.eigh(gram.toarray())
    values = np.sqrt(np.maximum(squares[::-1], 0.0))
    kept = values > nil
    values = values[kept]
    rows = vectors[:, ::-1].T[kept]
    if tall:
        return values, rows
    return values, (matrix.T @ rows.T).T / values[:, None]  # from left to right singular vectors


def _lanczos(matrix: Any, rank: int, tolerance: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Compute the leading singular values and right vectors of A by the Lanczos recurrence, in float64.

    Returns:
        values: singular values, descending; ``rank`` of them unless A has fewer.
        vectors: right singular vectors as rows.
    """
    from scipy.linalg import eigh_tridiagonal

    from recsim_mnar.agents.factors import _factors_kernel

    n = matrix.shape[1]
    arrays = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float64))
    tiny = 1e-13 * float(np.square(arrays[2]).sum())  # the sum of squares is that of the eigenvalues of A'A
    basis = np.empty((0, n))
    alpha = np.empty(0)
    beta = np.empty(0)
    done = 0  # number of steps made
    starts = 0  # number of start vectors used
    settled = np.full(rank, -1.0)  # leading eigenvalues when the last invariant space was complete
    fresh = True  # True if the next vector is a new start vector
    while True:
        if done + 1 >= len(basis):
            room = min(max(2 * rank + 20, len(basis) + max(rank, len(basis) // 4)), n + 1)
            basis = np.concatenate([basis, np.empty((room - len(basis), n))])
            alpha = np.resize(alpha, room)
            beta = np.resize(beta, room)
        if fresh:
            basis[done] = _orthogonal_start(basis[:done], seed, starts)
            starts += 1
        target = min(len(basis) - 1, n)
        reached = _factors_kernel.lanczos(*arrays, basis, alpha, beta, done, target, tiny)
        fresh = bool(beta[reached - 1] <= tiny)  # nothing is left outside the basis: its space is invariant under A'A
        done = reached
        if fresh:
            beta[done - 1] = 0.0
        values, weights = eigh_tridiagonal(alpha[:done], beta[: done - 1])
        values = values[::-1]  # descending
        weights = weights[:, ::-1]
        top = np.zeros(rank)
        top[: len(values[:rank])] = np.maximum(values[:rank], 0.0)
        residual = beta[done - 1] * np.abs(weights[-1, :rank])
        if done >= n:
            break
        if fresh:
            # An invariant space: complete unless values are repeated, which only another start vector can show.
            if np.allclose(top, settled, rtol=1e-9, atol=tiny):
                break
            settled = top
        elif done >= rank and np.all(residual <= tolerance * np.maximum(top, tiny)):
            break
    n_kept = min(rank, done)
    return np.sqrt(np.maximum(values[:n_kept], 0.0)), _combine(weights[:, :n_kept], basis[:done])


def _combine(weights: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the combinations ``weights' @ basis`` of basis vectors, (k, n), for weights (m, k) and a basis (m, n)."""
    from recsim_mnar.agents.factors import _factors_kernel

    n_vectors, n = basis.shape
    padded = -(-n_vectors // 4) * 4  # the kernel needs a multiple of four basis vectors
    combination = np.zeros((weights.shape[1], padded), np.float32)
    combination[:, :n_vectors] = weights.T
    rows = np.zeros((padded, n), np.float32)
    rows[:n_vectors] = basis
    vectors = np.empty((len(combination), n), np.float32)
    _factors_kernel.project(combination, np.arange(len(combination)), rows, vectors)
    return vectors


def _orthogonal_start(basis: NDArray[np.float64], seed: int, index: int) -> NDArray[np.float64]:
    """Return a random unit vector orthogonal to the rows of ``basis``; ``index`` is the address of its draw."""
    start = rng.normals(seed, rng.Stream.FIT, index, (1, basis.shape[1]))[0]
    for _ in range(2):  # the second time removes the rounding of the first
        for row in basis:
            start -= (row * start).sum() * row
    return start / np.sqrt((start * start).sum())


class SVDPolicy(GreedyPolicy):
    """Policy that recommends the item with the largest score h V V'; a user's h V is updated with each view.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        vectors: (rank, n_items) float32, V', the right singular vectors as rows.
        parameters: the learner's parameters, for provenance.
    """

    _states: NDArray[np.float32]

    def __init__(self, n_items: int, name: str, *, vectors: NDArray[Any], parameters: Mapping[str, Any]) -> None:
        # The kernel needs a multiple of four rows; a row of zeros changes no score.
        rank = -(-max(len(vectors), 1) // 4) * 4
        self._vectors = np.zeros((rank, n_items), np.float32)
        self._vectors[: len(vectors)] = vectors
        self._rows = (  # V as a CSR matrix, whose row of an item is added with each view of it
            np.arange(n_items + 1, dtype=np.int64) * rank,
            np.tile(np.arange(rank, dtype=np.int32), n_items),
            np.ascontiguousarray(self._vectors.T).ravel(),
        )
        super().__init__(n_items, name, {"vectors": self._vectors[: len(vectors)]}, parameters)

    def _entries(self) -> dict[str, Entry]:
        return {**super()._entries(), "_states": Entry(np.float32, 0, (len(self._vectors),))}

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.SlotPolicy._view`: add V's rows of the viewed items."""
        from recsim_mnar.agents.neighbours import _neighbours_kernel

        super()._view(slots, items)
        _neighbours_kernel.add_rows(self._states, slots, items, *self._rows, None, None)

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Implement :meth:`recsim_mnar.agents.acting.GreedyPolicy._score`."""
        from recsim_mnar.agents.factors import _factors_kernel

        out = np.empty((len(slots), self.n_items), np.float32)
        _factors_kernel.project(self._states, slots, self._vectors, out)
        return out
