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
"""A matrix with a side this short is decomposed whole, by the dot products of that side."""

_NIL = 1e-6
"""Singular values below this share of the Frobenius norm count as zero: from squares they are known to about 1e-7."""


_BLOCKS_FROM = 1 << 20
"""Entries from which several vectors pass through the matrix together, where the tolerance lets float32 do."""

_SINGLE_TOLERANCE = 1e-4
"""Least tolerance that sums of float32 keep."""

_SINGLE_NIL = 1e-5
"""Squared singular values below this share of the largest may be rounding of float32: float64 is asked then."""


class SVD(Learner):
    """Scores h V V' of a user with view counts h, V the leading right singular vectors of the view counts.

    Rank 30 in Jeunen, Rohde & Vasile 2019. Singular values below rounding error are dropped, and the rank is never
    above the number of items or of users.

    Args:
        rank: number of singular vectors.
        tolerance: largest residual of a singular pair, relative to its squared singular value. A larger one is faster
            on millions of interactions, at a cost in captured energy of about its square.
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
    """The leading right singular vectors of a sparse (n, m) matrix.

    By the Lanczos recurrence for A'A with full reorthogonalisation and without restarts (Golub & Van Loan, Matrix
    Computations, section 10.1): a serial kernel, because the dense linear algebra of other solvers runs in threads that
    wait for each other wherever cores are shared (a hundredfold slowdown was seen), and rounds by their number. From a
    million entries on, and with a tolerance from 1e-4, in blocks of 16 vectors of float32: what a step costs is to
    fetch the entries, and a block fetches them once.

    Args:
        matrix: scipy CSR array.
        rank: how many.
        tolerance: see :class:`SVD`.
        seed: of the start vector, an addressed draw (``Stream.FIT``).

    Returns:
        (rank, m) float32, by descending singular value, fewer rows where the matrix has a lower rank; the largest entry
        of each vector is positive.
    """
    rank = min(rank, *matrix.shape)
    nil = _NIL * np.sqrt(np.square(matrix.data, dtype=np.float64).sum())
    if min(matrix.shape) <= _GRAM_UP_TO:
        values, vectors = _whole(matrix.astype(np.float64), nil)
    elif matrix.nnz >= _BLOCKS_FROM and tolerance >= _SINGLE_TOLERANCE and matrix.shape[1] >= 4 * rank + 64:
        values, vectors = _block_lanczos(matrix, rank, tolerance, seed)
    else:
        values, vectors = _lanczos(matrix, rank, tolerance, seed)
    vectors = vectors[:rank][values[:rank] > nil]
    peak = vectors[np.arange(len(vectors)), np.abs(vectors).argmax(axis=1)]
    return np.ascontiguousarray(vectors * np.sign(peak)[:, None], dtype=np.float32)


def _whole(matrix: Any, nil: float) -> tuple[NDArray[Any], NDArray[Any]]:
    """All singular values above ``nil`` and their right vectors, from the eigenvectors of A'A or AA'."""
    tall = matrix.shape[0] >= matrix.shape[1]
    gram = (matrix.T @ matrix if tall else matrix @ matrix.T).toarray()
    squares, vectors = np.linalg.eigh(gram)
    values = np.sqrt(np.maximum(squares[::-1], 0.0))
    kept = values > nil
    values = values[kept]
    rows = vectors[:, ::-1].T[kept]
    return values, rows if tall else (matrix.T @ rows.T).T / values[:, None]


def _lanczos(matrix: Any, rank: int, tolerance: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Singular values and right vectors; at least ``rank`` of them, unless the matrix has fewer."""
    from scipy.linalg import eigh_tridiagonal

    from recsim_mnar.agents.factors import _factors_kernel

    n = matrix.shape[1]
    arrays = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float64))
    tiny = 1e-13 * float(np.square(arrays[2]).sum())  # the sum of squares is that of the eigenvalues of A'A
    basis = np.empty((0, n))
    alpha = np.empty(0)
    beta = np.empty(0)
    done = 0
    starts = 0
    settled = np.full(rank, -1.0)
    fresh = True
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
        fresh = bool(beta[reached - 1] <= tiny)
        done = reached
        if fresh:
            beta[done - 1] = 0.0
        values, weights = eigh_tridiagonal(alpha[:done], beta[: done - 1])
        values = values[::-1]
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
    steps = -(-done // 4) * 4
    combination = np.zeros((n_kept, steps), np.float32)
    combination[:, :done] = weights[:, :n_kept].T
    rows = np.zeros((steps, n), np.float32)
    rows[:done] = basis[:done]
    vectors = np.empty((n_kept, n), np.float32)
    _factors_kernel.project(combination, np.arange(n_kept), rows, vectors)
    return np.sqrt(np.maximum(values[:n_kept], 0.0)), vectors


def _block_lanczos(matrix: Any, rank: int, tolerance: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """``rank`` singular values and right vectors: the Rayleigh-Ritz values of a block Krylov space of A'A.

    Only for a tolerance that float32 keeps, which the default of :class:`SVD` is not: ``svd+tolerance=0.05`` on a
    million interactions and more.

    The block Lanczos recurrence, every new block made orthogonal to all before it (Golub & Van Loan, Matrix
    Computations, section 10.3.6; Musco & Musco 2015 on what such spaces capture).
    """
    from recsim_mnar.agents.factors import _factors_kernel as kernels

    n_items = matrix.shape[1]
    width = kernels.BLOCK
    n = -(-n_items // 4) * 4  # as many rows as the kernels take at once; those added stay zero
    arrays = (matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float32))
    small = np.empty((width, width))
    scratch = np.empty(width, np.float32)
    projected = np.zeros((0, 0))
    basis: list[NDArray[np.float32]] = []
    block = np.zeros((n, width), np.float32)
    block[:n_items] = rng.normals(seed, rng.Stream.FIT, 0, (n_items, width))
    beyond = _orthonormalise(block, [], small)
    while True:
        basis.append(block)
        done = len(basis) * width
        product = np.empty((n, width), np.float32)
        kernels.normal_product(*arrays, block, scratch, product)
        grown = np.zeros((done, done))
        grown[:-width, :-width] = projected
        kernels.inner(block, product, small)
        grown[-width:, -width:] = (small + small.T) / 2
        kernels.take_away(block, small.astype(np.float32), product)
        if len(basis) > 1:
            grown[-width:, -2 * width : -width] = beyond
            grown[-2 * width : -width, -width:] = beyond.T
            kernels.take_away(basis[-2], beyond.T.astype(np.float32), product)
        projected = grown
        block = product
        beyond = _orthonormalise(block, basis, small)
        if done < rank + width:
            continue
        squares, weights = np.linalg.eigh(projected)
        squares = squares[::-1][:rank]
        weights = weights[:, ::-1][:, :rank]
        residual = np.sqrt(np.square(beyond @ weights[-width:]).sum(axis=0))
        if np.all(residual <= tolerance * np.maximum(squares, 0.0)) or done + width > n_items:
            break
    if squares[-1] <= _SINGLE_NIL * squares[0]:
        return _lanczos(matrix, rank, tolerance, seed)
    vectors = np.empty((rank, n), np.float32)
    rows = np.ascontiguousarray(np.concatenate(basis, axis=1).T)
    kernels.project(np.ascontiguousarray(weights.T, np.float32), np.arange(rank), rows, vectors)
    return np.sqrt(np.maximum(squares, 0.0)), vectors[:, :n_items]


def _orthonormalise(
    block: NDArray[np.float32], basis: list[NDArray[np.float32]], small: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Make a block orthogonal to the columns of ``basis`` and orthonormalise it in place.

    Returns:
        R (16, 16) with what was left of the block outside the basis equal to the new block times R.
    """
    from recsim_mnar.agents.factors import _factors_kernel as kernels

    rotation = np.eye(len(small))
    kernels.inner(block, block, small)
    before = small.trace()
    rest = basis
    for _ in range(2):
        for other in rest:
            kernels.inner(other, block, small)
            kernels.take_away(other, small.astype(np.float32), block)
        kernels.inner(block, block, small)
        squares, turn = np.linalg.eigh(small)
        # Directions of which only rounding is left are held at a length that the next round can divide by.
        length = np.sqrt(np.maximum(squares, max(squares[-1], 1e-30) * 1e-10))
        mixed = np.zeros_like(block)
        kernels.take_away(block, -(turn / length).astype(np.float32), mixed)
        block[:] = mixed
        rotation = (length[:, None] * turn.T) @ rotation
        if squares[0] > 1e-6 * before:
            rest = basis[-1:]  # nothing was lost in the differences, and what is left needs little mending
    return rotation


def _orthogonal_start(basis: NDArray[np.float64], seed: int, index: int) -> NDArray[np.float64]:
    """A random unit vector orthogonal to the rows of ``basis``."""
    start = rng.normals(seed, rng.Stream.FIT, index, (1, basis.shape[1]))[0]
    for _ in range(2):
        for row in basis:
            start -= (row * start).sum() * row
    return start / np.sqrt((start * start).sum())


class SVDPolicy(GreedyPolicy):
    """Greedy on h V V'; each user's h V is updated with each view.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        vectors: (rank, n_items) float32, the rows V'.
        parameters: the learner's, for provenance.
    """

    _states: NDArray[np.float32]

    def __init__(self, n_items: int, name: str, *, vectors: NDArray[Any], parameters: Mapping[str, Any]) -> None:
        # Padded to a multiple of four rows for the kernel; a row of zeros changes no score.
        rank = -(-max(len(vectors), 1) // 4) * 4
        self._vectors = np.zeros((rank, n_items), np.float32)
        self._vectors[: len(vectors)] = vectors
        self._rows = (
            np.arange(n_items + 1, dtype=np.int64) * rank,
            np.tile(np.arange(rank, dtype=np.int32), n_items),
            np.ascontiguousarray(self._vectors.T).ravel(),
        )
        super().__init__(n_items, name, {"vectors": self._vectors[: len(vectors)]}, parameters)

    def _entries(self) -> dict[str, Entry]:
        return {**super()._entries(), "_states": Entry(np.float32, 0, (len(self._vectors),))}

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        from recsim_mnar.agents.neighbours import _neighbours_kernel

        super()._view(slots, items)
        _neighbours_kernel.add_rows(self._states, slots, items, *self._rows, None, None)

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        from recsim_mnar.agents.factors import _factors_kernel

        out = np.empty((len(slots), self.n_items), np.float32)
        _factors_kernel.project(self._states, slots, self._vectors, out)
        return out
