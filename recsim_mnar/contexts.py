"""Rewards of recommendations and the views before each: a bandit log as a factorisation sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.lbfgs import Minimum, minimise

if TYPE_CHECKING:
    from recsim_mnar.log import Log

Floats = NDArray[np.float64]
_SPECTRAL_UP_TO = 500
"""Items up to which a fit begins at a ridge regression, which takes (items, items) matrices; above, at random."""


@dataclass(frozen=True)
class Contexts:
    """Recommendations grouped by context, the state of a user's view counts.

    Attributes:
        features: (C, n_items) scipy CSR, h / (n + shrinkage) of each context.
        user_of_context: (C,) user ids.
        context: (n,) context of each recommendation, ascending.
        actions, propensities, rewards: (n,) each.
        n_items: number of items.
    """

    features: Any
    user_of_context: NDArray[np.int64]
    context: NDArray[np.int64]
    actions: NDArray[np.int64]
    propensities: Floats
    rewards: Floats
    n_items: int

    @classmethod
    def from_log(cls, log: Log, n_items: int, *, shrinkage: float) -> Contexts:
        """The contexts of a log's bandit rows.

        Raises:
            UserError: no bandit rows, an item out of range, a propensity of 0.
        """
        from scipy import sparse

        bandit = log.is_bandit
        if not bandit.any():
            raise UserError("the log has no bandit rows: this agent learns from recommendations and their rewards")
        for name, rows in (("item", ~bandit), ("action", bandit)):
            values = log[name][rows]
            if len(values) and (values.min() < 0 or values.max() >= n_items):
                bad = int(values[(values < 0) | (values >= n_items)][0])
                raise UserError(f"the log has {name} {bad}, but n_items = {n_items}: it must lie in 0..{n_items - 1}")
        p, r = log["propensity"][bandit], log["reward"][bandit]
        if not (np.all((p > 0) & (p <= 1)) and np.isfinite(r).all()):
            raise UserError(
                "bandit rows need a propensity in (0, 1] and a reward; the log lacks one: log.validate() says where"
            )
        user = log["user"]
        new = np.concatenate([[True], user[1:] != user[:-1]])
        changes = new | ~bandit
        state = np.cumsum(changes) - 1
        context, first = np.unique(state[bandit], return_inverse=True)
        # Views of the user up to and including the row that made the context.
        n_views = np.cumsum(~bandit)
        begin = np.maximum.accumulate(np.where(new, n_views - ~bandit, 0))
        made_by = np.flatnonzero(changes)[context]
        stop, start = n_views[made_by], begin[made_by]
        length: NDArray[np.int64] = stop - start
        views = log["item"][~bandit]
        owner = np.repeat(np.arange(len(context)), length)
        position = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length) + np.repeat(start, length)
        value = np.repeat(1.0 / np.maximum(length + shrinkage, 1e-300), length)
        shape = (len(context), n_items)
        features = sparse.csr_array((value, (owner, views[position])), shape=shape)
        return cls(features, user[made_by], first, log["action"][bandit].astype(np.int64), p, r, n_items)

    def select(self, rows: NDArray[np.bool_]) -> Contexts:
        """The recommendations at a mask, and their contexts."""
        kept, context = np.unique(self.context[rows], return_inverse=True)
        return Contexts(
            self.features[kept], self.user_of_context[kept], context,
            self.actions[rows], self.propensities[rows], self.rewards[rows], self.n_items,
        )  # fmt: skip


class LinearObjective:
    """(1/n) sum_n weight_n e_n^2 + penalty (|M|^2 + |W|^2) + (prior/n) |b|^2, e = (r - centre)/sd - x'M w_a - b_a.

    The fused kernel of the factorisation sees the contexts as users with factors x'M; the chain rule does the rest.

    Args:
        data: recommendations.
        weights: (n,).
        rank: d.
        prior: see :class:`recsim_mnar.agents.mf.MFIPS`.
        centre: (mean, sd) of rewards; the weighted ones of ``data`` where None.
    """

    def __init__(
        self, data: Contexts, weights: Floats, rank: int, *, prior: float, centre: tuple[float, float] | None = None
    ) -> None:
        self.data, self.rank, self.prior = data, rank, prior
        self.stride = -(-rank // 4) * 4
        n = len(data.rewards)
        if centre is None:
            mean = float(np.average(data.rewards, weights=weights))
            sd = float(np.sqrt(np.average((data.rewards - mean) ** 2, weights=weights)))
            if sd == 0.0:
                raise UserError("all recorded rewards are the same: there is nothing to learn from them")
            centre = (mean, sd)
        self.centre = centre
        self._targets = (data.rewards - centre[0]) / centre[1]
        self._weights = weights / n
        self._starts = np.searchsorted(data.context, np.arange(data.features.shape[0] + 1))
        self._transposed = data.features.T.tocsr()
        self._zeros = np.zeros(data.features.shape[0])
        self.size = data.n_items * (2 * self.stride + 1)

    def _split(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        p, edge = self.data.n_items, self.data.n_items * self.stride
        return x[:edge].reshape(p, -1), x[edge : 2 * edge].reshape(p, -1), x[2 * edge :]

    def parts(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """M (n_items, d), W (n_items, d) and b (n_items,) on the scale of the standardised reward."""
        m, w, b = self._split(x)
        return m[:, : self.rank].copy(), w[:, : self.rank].copy(), b.copy()

    def start(self, seed: int, penalty: float) -> Floats:
        """Offsets of the weighted means; M W' the leading part of a ridge regression of all rewards on the views.

        Under uniform logging every item meets the same contexts, and one matrix of moments serves all of them.
        """
        from scipy import sparse

        data = self.data
        x = np.zeros(self.size)
        m, w, b = self._split(x)
        mass = np.bincount(data.actions, self._weights, minlength=data.n_items)
        prior = max(self.prior, 1.0) / len(data.rewards)
        b[:] = np.bincount(data.actions, self._weights * self._targets, minlength=data.n_items) / (mass + prior)
        if data.n_items <= _SPECTRAL_UP_TO and data.features.nnz:
            residual = self._weights * (self._targets - b[data.actions])
            shape = (data.features.shape[0], data.n_items)
            by_context = sparse.csr_array((residual, (data.context, data.actions)), shape=shape)
            moments = (self._transposed @ by_context).toarray() * data.n_items
            of_context = np.bincount(data.context, self._weights, minlength=shape[0])
            gram = (self._transposed @ sparse.diags_array(of_context) @ data.features).toarray()
            gram.flat[:: data.n_items + 1] += penalty * data.n_items
            u, s, v = np.linalg.svd(np.linalg.solve(gram, moments), full_matrices=False)
            d = min(self.rank, len(s))
            m[:, :d], w[:, :d] = u[:, :d] * np.sqrt(s[:d]), v[:d].T * np.sqrt(s[:d])
        else:
            draws = rng.normals(seed, rng.Stream.FIT, 0, (2 * data.n_items, self.rank)) * 0.05
            m[:, : self.rank], w[:, : self.rank] = draws[: data.n_items], draws[data.n_items :]
        return x

    def value(self, x: Floats, penalty: float) -> float:
        """The objective."""
        return self._evaluate(x, np.empty(self.size), penalty)

    def _evaluate(self, x: Floats, gradient: Floats, penalty: float) -> float:
        from recsim_mnar import _factorization_kernel as k

        data = self.data
        m, w, b = self._split(x)
        gm, gw, gb = self._split(gradient)
        z = np.ascontiguousarray(data.features @ m)
        gz = np.empty_like(z)
        edge = 2 * data.n_items * self.stride
        value = k.penalise(x[:edge], penalty, gradient[:edge])
        value += k.penalise(b, self.prior / len(data.rewards), gb)
        value += k.loss_and_gradient(
            self._starts, data.actions, self._targets, self._weights, -1.0,
            z, w, self._zeros, b, 0.0, gz, gw, np.zeros(len(z)), gb, np.zeros(1),
        )  # fmt: skip
        gm += self._transposed @ gz
        return float(value)

    def fit(self, penalty: float, start: Floats, *, rough: bool = False) -> tuple[Floats, Minimum]:
        """Minimise from ``start``; ``rough`` stops early, for choosing a penalty."""
        found = minimise(
            lambda x, g: self._evaluate(x, g, penalty),
            start,
            max_iterations=100 if rough else 500,
            gradient_tolerance=1e-7,
            value_tolerance=3e-8 if rough else 3e-9,
            warn=not rough,
        )
        return found.x, found
