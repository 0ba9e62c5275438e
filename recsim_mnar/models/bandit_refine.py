"""A bandit log's factorisation with map and items moved together, by L-BFGS (see :mod:`recsim_mnar.models.bandit`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.lbfgs import Minimum, minimise
from recsim_mnar.log.rows import user_begins
from recsim_mnar.models.bandit import Ridge, Solution, ViewMap, check_log

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Floats = NDArray[np.float64]


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
            UserError: as :func:`recsim_mnar.models.bandit.check_log`, or a shrinkage that is not above 0.
        """
        from scipy import sparse

        if not shrinkage > 0:
            raise UserError(f"shrinkage must be above 0, got {shrinkage}")
        bandit = check_log(log, n_items)
        user = log["user"]
        new = user_begins(user)
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
        value = np.repeat(1.0 / (length + shrinkage), length)
        shape = (len(context), n_items)
        features = sparse.csr_array((value, (owner, views[position])), shape=shape)
        return cls(
            features, user[made_by], first, log["action"][bandit].astype(np.int64),
            log["propensity"][bandit], log["reward"][bandit], n_items,
        )  # fmt: skip

    def only(self, rows: NDArray[np.bool_]) -> Contexts:
        """The recommendations at a mask; the contexts stay, some of them perhaps without any."""
        return replace(
            self,
            context=self.context[rows],
            actions=self.actions[rows],
            propensities=self.propensities[rows],
            rewards=self.rewards[rows],
        )


class JointObjective:
    """Sum of weight (r - u . w_a - b_a)^2 + precisions, over map and items together; u = x M - centre.

    The precisions hold w_a and b_a to where :meth:`recsim_mnar.models.bandit.RewardMoments.solve` holds them, and M to
    ``view_map``: ``|D^1/2 (M - M_0)|^2 / map_spread^2`` with D the items' shares of views. The fused kernel of the
    factorisation sees the contexts as users with factors u; the chain rule does the rest. The sum is divided by n, and
    M is moved on the scale of D^1/2, so that L-BFGS meets numbers of one size.

    Args:
        data: recommendations.
        weights: (n,), divided by the items' noise.
        rewards: (n,) standardised.
        view_map: M_0.
        solution: its stretch and common offset are kept; its factors and offsets are where :meth:`start` is.
        ridge: of the items.
        map_spread: of the map.
    """

    def __init__(
        self,
        data: Contexts,
        weights: Floats,
        rewards: Floats,
        *,
        view_map: ViewMap,
        solution: Solution,
        ridge: Ridge,
        map_spread: float,
    ) -> None:
        self.data, self.view_map, self.solution = data, view_map, solution
        self.k = view_map.mapping.shape[1]
        self.stride = -(-self.k // 4) * 4
        self._n = len(rewards)
        self._targets, self._weights = rewards, weights / self._n
        self._penalties = [s**-2.0 / self._n for s in (map_spread, ridge.spread, ridge.offset_spread)]
        self._starts = np.searchsorted(data.context, np.arange(data.features.shape[0] + 1))
        self._transposed = data.features.T.tocsr()
        self._zeros = np.zeros(data.features.shape[0])
        self._scale = 1.0 / np.sqrt(view_map.shares)[:, None]
        self.size = data.n_items * (2 * self.stride + 1)
        self._anchors = np.zeros(self.size)
        _, w, b = self._split(self._anchors)
        w[:, : self.k], b[:] = view_map.places * solution.stretch, solution.common
        self._base = np.zeros((data.features.shape[0], self.stride))
        self._base[:, : self.k] = data.features @ view_map.mapping - view_map.centre

    def _split(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        p, edge = self.data.n_items, self.data.n_items * self.stride
        return x[:edge].reshape(p, -1), x[edge : 2 * edge].reshape(p, -1), x[2 * edge :]

    def start(self) -> Floats:
        """M_0 and the solution."""
        x = np.zeros(self.size)
        _, w, b = self._split(x)
        w[:, : self.k], b[:] = self.solution.factors, self.solution.offsets
        return x

    def parts(self, x: Floats) -> tuple[ViewMap, Solution]:
        """The map and the items' parameters of a vector."""
        m, w, b = self._split(x)
        moved = self.view_map.mapping + self._scale * m[:, : self.k]
        return (
            replace(self.view_map, mapping=moved),
            replace(self.solution, factors=w[:, : self.k].copy(), offsets=b.copy()),
        )

    def __call__(self, x: Floats, gradient: Floats) -> float:
        """Value at ``x``; ``gradient`` is filled."""
        from recsim_mnar.kernels import _lbfgs_kernel
        from recsim_mnar.models import _factorization_kernel as k

        away = x - self._anchors
        value = 0.0
        for part, grown, penalty in zip(self._split(away), self._split(gradient), self._penalties, strict=True):
            value += _lbfgs_kernel.penalise(part.reshape(-1), penalty, grown.reshape(-1))
        m, w, b = self._split(x)
        gm, gw, gb = self._split(gradient)
        u = self._base + self.data.features @ (self._scale * m)
        gu = np.empty_like(u)
        value += k.loss_and_gradient(
            self._starts, self.data.actions, self._targets, self._weights, -1.0,
            u, w, self._zeros, b, 0.0, gu, gw, np.zeros(len(u)), gb, np.zeros(1),
        )  # fmt: skip
        gm += self._scale * (self._transposed @ gu)
        return float(value)

    def preconditioner(self) -> Floats:
        """About the Hessian's diagonal at the start, for :func:`recsim_mnar.kernels.lbfgs.minimise`.

        u has variance 1.
        """
        data, k = self.data, self.k
        out = np.zeros(self.size)
        m, w, b = self._split(out)
        mass = np.bincount(data.actions, self._weights, data.n_items)
        of_context = np.bincount(data.context, self._weights, data.features.shape[0])
        squares = self._transposed.power(2) @ of_context
        m[:] = self._penalties[0]
        m[:, :k] += self._scale**2 * squares[:, None] * (self.solution.factors**2).mean(axis=0)
        w[:] = (mass + self._penalties[1])[:, None]
        b[:] = mass + self._penalties[2]
        return out

    def fit(self) -> tuple[ViewMap, Solution, Minimum]:
        """Minimise from :meth:`start`."""
        found = minimise(
            self,
            self.start(),
            preconditioner=self.preconditioner(),
            max_iterations=300,
            gradient_tolerance=1e-9,
            value_tolerance=1e-8,
        )
        return *self.parts(found.x), found
