"""A bandit log as a factorisation sees it: users' factors from their views, items' factors from recorded rewards.

A recommendation's reward is modelled as r(x, a) = (x M - centre) . w_a + b_a, where x = h / (n + shrinkage) are the
user's n views so far with counts h. M is learned from the views, which a log has many of: the leading left singular
vectors of the correlations between the state x before a view and the item viewed. The rewards, of which a log has few,
then say w_a and b_a: ridge regressions, each reward weighted, in which w_a is drawn to the item's place among the
views, stretched by a factor a dimension that is fitted too. Everything that such fits and their cross-validation need
are sums over rows, by fold and item, gathered in one pass.

The singular vectors are those of correlations entry by entry, not of a regression on all entries of x: with fewer users
than items the inverse of x's covariance would be noise, and with many it was no better (100 items, 20,000 users).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in
from recsim_mnar.kernels.lbfgs import Minimum, minimise
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins, user_starts

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Floats = NDArray[np.float64]
_MAPPED_ITEMS = 3000
"""Items whose views the map reads, the most viewed ones: its correlations are a matrix of this size."""
_DENSE = 400
"""Items up to which singular vectors come from a full decomposition."""
_SPREAD_OF_NOISE = 0.3
"""Variance, relative to their mean's square, that items' reward variances are thought to have among themselves."""
_RIDGE, _DOUBT = 0.1, 4.0
"""Added to x's variances, in shares of views, against items hardly viewed; views that an item's place lacks."""


def check_log(log: Log, n_items: int) -> NDArray[np.bool_]:
    """Return a mask of the recommendations.

    Raises:
        UserError: no bandit rows, an item out of range, a propensity or reward that is none, or users out of order.
    """
    bandit = log["event"] == schema.BANDIT
    if not bandit.any():
        raise UserError("the log has no bandit rows: this agent learns from recommendations and their rewards")
    for name, rows in (("item", ~bandit), ("action", bandit)):
        values = log[name][rows]
        if len(values) and (values.min() < 0 or values.max() >= n_items):
            bad = int(values[(values < 0) | (values >= n_items)][0])
            raise UserError(f"the log has {name} {bad}, but n_items = {n_items}: it must be in 0..{n_items - 1}")
    p = log["propensity"][bandit]
    r = log["reward"][bandit]
    if not (np.all((p > 0) & (p <= 1)) and np.isfinite(r).all()):
        raise UserError(
            "bandit rows need a propensity in (0, 1] and a reward; the log lacks one: log.validate() says where"
        )
    if np.any(log["user"][1:] < log["user"][:-1]):
        raise UserError("the log's rows are out of order: sort them by (user, step)")
    return bandit


@dataclass(frozen=True)
class ViewMap:
    """A linear map from view counts to a few factors, and the items' places among them.

    Over the states before the log's views the factors x M - centre have mean 0, variance 1 and are uncorrelated.

    Attributes:
        mapping: M, (n_items, K).
        centre: (K,).
        places: (n_items, K), mean factors of users about to view an item, drawn to 0 where views are few.
        shares: (n_items,) of all views, smoothed; the metric of changes to M.
        shrinkage: views that a user is thought to lack.
    """

    mapping: Floats
    centre: Floats
    places: Floats
    shares: Floats
    shrinkage: float

    @classmethod
    def from_log(cls, log: Log, n_items: int, *, rank: int, shrinkage: float, seed: int = 0) -> ViewMap:
        """Fit the map on a log's organic rows.

        Args:
            log: only its organic rows are read; without any the map has no factors.
            n_items: number of items.
            rank: at most this many factors.
            shrinkage: above 0.
            seed: of the start of the iteration by which many items' singular vectors are found.
        """
        organic = log["event"] == schema.ORGANIC
        users = log["user"][organic]
        items = log["item"][organic].astype(np.int64)
        counts = np.bincount(items, minlength=n_items).astype(np.float64)
        shares = (counts + 1.0) / (counts.sum() + n_items)
        used = np.sort(np.argsort(-counts, kind="stable")[:_MAPPED_ITEMS])
        k = min(rank, len(used) - 1)
        nothing = cls(np.zeros((n_items, 0)), np.zeros(0), np.zeros((n_items, 0)), shares, shrinkage)
        if k < 1 or np.all(users[1:] != users[:-1]):  # no views, or at most one per user
            return nothing
        from recsim_mnar.models import _factorization_kernel

        number = np.full(n_items, -1, np.int64)
        number[used] = np.arange(len(used))
        kept = number[items] >= 0
        users = users[kept]
        items = number[items[kept]]
        n = len(used)
        m = len(items)
        p = shares[used]
        starts = np.append(user_starts(users), len(users))
        following = np.zeros((n, n))
        squares = np.zeros(n)
        total = np.zeros(n)
        after = np.empty(int(np.diff(starts).max()) + 1)
        _factorization_kernel.next_view_sums(starts, items, shrinkage, after, squares, following, total)
        mean = total / m
        residual = following / m - np.outer(mean, counts[used] / m)
        sd = np.sqrt(squares / m - mean**2 + _RIDGE * p)
        reduced = _leading(residual / np.outer(sd, np.sqrt(p)), k, seed) / sd[:, None]
        gram = np.zeros((k, k))
        _factorization_kernel.state_sums(starts, items, shrinkage, reduced, mean @ reduced, np.empty(2 * k), gram)
        gram = (gram + np.triu(gram, 1).T) / m
        if not np.linalg.eigvalsh(gram)[0] > 1e-12 * np.trace(gram):
            return nothing  # the states differ in fewer directions than K: too few views to learn from
        reduced = np.linalg.solve(np.linalg.cholesky(gram), reduced.T).T
        mapping = np.zeros((n_items, k))
        places = np.zeros((n_items, k))
        mapping[used] = reduced
        places[used] = (residual.T @ reduced) * m / (counts[used] + _DOUBT)[:, None]
        return cls(mapping, mean @ reduced, places, shares, shrinkage)


def _leading(matrix: Floats, k: int, seed: int) -> Floats:
    """Return the k leading left singular vectors, largest first, each with its largest entry positive."""
    if len(matrix) <= _DENSE:
        vectors = np.linalg.svd(matrix)[0][:, :k]
    else:
        from scipy.sparse.linalg import svds

        start = rng.normals(seed, rng.Stream.FIT, 2, (len(matrix), 1))[:, 0].astype(np.float32)
        # Single precision halves the time, and is far more certain than the sampled correlations.
        vectors = svds(matrix.astype(np.float32), k, v0=start, tol=1e-3)[0][:, ::-1].astype(np.float64)
    return vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(k)])


@dataclass(frozen=True)
class Ridge:
    """Spread of the items' parameters, in units of the reward's standard deviation.

    Attributes:
        spread: of a factor from the item's stretched place.
        offset_spread: of an offset from the items' common one.
    """

    spread: float
    offset_spread: float

    def precision(self, k: int) -> Floats:
        """Return (k + 1,) penalties, in units of squared errors of standardised rewards."""
        return np.append(np.full(k, self.spread**-2.0), self.offset_spread**-2.0)


@dataclass(frozen=True)
class Solution:
    """Items' parameters on the scale of the standardised reward.

    Attributes:
        factors: w, (n_items, K).
        offsets: b, (n_items,).
        stretch: (K,) by which places are multiplied, and
        common: the offset to which offsets are drawn.
    """

    factors: Floats
    offsets: Floats
    stretch: Floats
    common: float

    def times(self, factor: float, shift: float = 0.0) -> Solution:
        """Return the solution whose predictions are ``factor`` times these plus ``shift``."""
        return Solution(
            factor * self.factors, shift + factor * self.offsets, factor * self.stretch, shift + factor * self.common
        )


@dataclass(frozen=True)
class Scale:
    """Scale of rewards, in units of the standardised reward of the whole log.

    Attributes:
        mean: weighted.
        sd: standard deviation.
        noise: (P,) variance of each item's rewards relative to sd^2, drawn to 1 where an item was recommended seldom.
            Rewards that are seldom 1 vary the more the likelier they are: without this the best items would be shrunk
            too little.
    """

    mean: float
    sd: float
    noise: Floats


@dataclass(frozen=True)
class RewardMoments:
    """Sums of standardised rewards over recommendations by fold and item; sums of two logs can be added.

    Attributes:
        gram: (F, P, K + 1, K + 1), of w u u' with u = (x M - centre, 1).
        cross: (F, P, K + 1), of w u r.
        powers: (3, F, P), of w r^2, w r^3 and w r^4.
        rows: (F,) number of recommendations.
        mean: of rewards, weighted, and
        sd: their standard deviation; r = (reward - mean) / sd.
    """

    gram: Floats
    cross: Floats
    powers: Floats
    rows: NDArray[np.int64]
    mean: float
    sd: float

    @classmethod
    def from_log(
        cls, log: Log, bandit: NDArray[np.bool_], view_map: ViewMap, weights: Floats, *, folds: int, seed: int
    ) -> RewardMoments:
        """Gather the sums.

        Args:
            log: as :func:`check_log` found it good.
            bandit: what that returned.
            view_map: users' factors.
            weights: (n,) of the recommendations, in the log's order.
            folds: users are spread over so many by addressed draws.
            seed: of these draws.

        Raises:
            UserError: all rewards are the same.
        """
        from recsim_mnar.models import _factorization_kernel

        users = log["user"]
        rewards = log["reward"][bandit]
        mean = float(np.average(rewards, weights=weights))
        sd = float(np.sqrt(np.average((rewards - mean) ** 2, weights=weights)))
        if not sd > 0.0:
            raise UserError("all recorded rewards are the same: there is nothing to learn from them")
        new = user_begins(users)
        fold = _folds(users[new], folds, seed)[np.cumsum(new) - 1]
        n_items, k = view_map.mapping.shape
        gram = np.zeros((folds, n_items, k + 1, k + 1))
        cross = np.zeros((folds, n_items, k + 1))
        by_row = np.zeros((2, len(users)))
        standard = (rewards - mean) / sd
        by_row[0, bandit], by_row[1, bandit] = standard, weights
        _factorization_kernel.reward_sums(
            users,
            bandit.view(np.uint8),
            log["item"],
            log["action"],
            by_row[0],
            by_row[1],
            fold,
            view_map.mapping,
            view_map.centre,
            view_map.shrinkage,
            np.empty(2 * k + 1),
            gram,
            cross,
        )
        upper = np.triu(np.ones((k + 1, k + 1)), 1)
        gram += np.swapaxes(gram * upper, 2, 3)
        cell = fold[bandit] * n_items + log["action"][bandit]
        powers = [np.bincount(cell, weights * standard**p, folds * n_items) for p in (2, 3, 4)]
        return cls(
            gram, cross, np.reshape(powers, (3, folds, n_items)), np.bincount(fold[bandit], minlength=folds), mean, sd
        )

    def fold_of(self, users: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """Return the fold of each user, for the seed of :meth:`from_log`."""
        return _folds(users, len(self.rows), seed)

    def scale(self, without: int | None = None) -> Scale:
        """Return mean, deviation and items' noise of the rewards, of all folds or of all but one."""
        kept = np.arange(len(self.rows)) != without
        mass = self.gram[kept, :, -1, -1].sum(axis=0)
        first = self.cross[kept, :, -1].sum(axis=0)
        second, third, fourth = self.powers[:, kept].sum(axis=1)
        total = mass.sum()
        # of all folds, by construction
        mean = 0.0
        variance = 1.0
        if without is not None:
            mean = float(first.sum() / total)
            variance = float(second.sum() / total) - mean**2
        # Rounding leaves of a constant reward a variance of about 1e-16.
        if variance > 1e-12:
            sd = math.sqrt(variance)
        else:
            sd = 1.0
        seen = np.maximum(mass, 1e-300)
        squares = (second - first**2 / seen) / sd**2
        four = fourth.sum() - 4 * mean * third.sum() + 6 * mean**2 * second.sum() - 3 * mean**4 * total
        # n rewards of kurtosis c show a variance with a relative error of about c / n: so 1 counts for c / .3.
        doubt = float(four / total) / sd**4 / _SPREAD_OF_NOISE
        return Scale(mean, sd, (np.maximum(squares, 0.0) + doubt) / (mass + doubt))

    def solve(self, places: Floats, ridge: Ridge, *, without: int | None = None) -> Solution:
        """Minimise sum w/noise_a (r - u . theta_a)^2 + sum_a precision . (theta_a - stretch * place_a)^2 over both.

        Given the stretch an item's theta is one ridge regression; the stretch that minimises what is left is a
        generalised least-squares estimate (the hierarchical model's, its variances given). Mean, deviation and noise
        are those of the folds that take part; the solution is on the scale of all.

        Args:
            places: (P, K), see :class:`ViewMap`.
            ridge: the precisions, in units of the deviation.
            without: a fold to leave out.
        """
        scale = self.scale(without)
        gram = self.gram.sum(axis=0)
        cross = self.cross.sum(axis=0)
        if without is not None:
            gram = gram - self.gram[without]
            cross = cross - self.cross[without]
        cross = (cross - scale.mean * gram[:, :, -1]) / scale.sd
        gram = gram / scale.noise[:, None, None]
        cross = cross / scale.noise[:, None]
        k = places.shape[1]
        precision = ridge.precision(k)
        design = np.concatenate([places, np.ones((len(places), 1))], axis=1)
        inverse = np.linalg.inv(gram + np.diag(precision))
        # What the data say about an item's mean: (gram^-1 + precision^-1)^-1, in a form for items without data.
        data_precision = np.diag(precision) - precision[:, None] * inverse * precision
        estimate = precision * np.einsum("pij,pj->pi", inverse, cross)
        normal = np.einsum("pi,pij,pj->ij", design, data_precision, design)
        normal.flat[:: k + 2] += 1e-9 * max(float(np.trace(normal)), 1e-300)
        stretch = np.linalg.solve(normal, (design * estimate).sum(axis=0))
        theta = np.einsum("pij,pj->pi", inverse, cross + precision * stretch * design)
        return Solution(theta[:, :k], theta[:, k], stretch[:k], float(stretch[k])).times(scale.sd, scale.mean)

    def held_out(self, solution: Solution, fold: int) -> float:
        """Sum the weighted squared error on a fold's recommendations, less that of predicting the mean."""
        theta = np.concatenate([solution.factors, solution.offsets[:, None]], axis=1)
        quadratic = float(np.einsum("pi,pij,pj->", theta, self.gram[fold], theta, optimize=True))
        return quadratic - 2.0 * float((theta * self.cross[fold]).sum())


def _folds(users: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    return (rng.uniforms(seed, rng.Stream.FIT, users, 1) * folds).astype(np.int64)


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
            UserError: as :func:`check_log`, or a shrinkage that is not above 0.
        """
        from scipy import sparse

        number_in(shrinkage, "shrinkage", ends="(]")
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
        stop = n_views[made_by]
        start = begin[made_by]
        length: NDArray[np.int64] = stop - start
        views = log["item"][~bandit]
        owner = np.repeat(np.arange(len(context)), length)
        position = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length) + np.repeat(start, length)
        value = np.repeat(1.0 / (length + shrinkage), length)
        shape = (len(context), n_items)
        features = sparse.csr_array((value, (owner, views[position])), shape=shape)
        return cls(
            features,
            user[made_by],
            first,
            log["action"][bandit].astype(np.int64),
            log["propensity"][bandit],
            log["reward"][bandit],
            n_items,
        )

    def only(self, rows: NDArray[np.bool_]) -> Contexts:
        """Select the recommendations at a mask; contexts are kept, even without any."""
        return replace(
            self,
            context=self.context[rows],
            actions=self.actions[rows],
            propensities=self.propensities[rows],
            rewards=self.rewards[rows],
        )


class JointObjective:
    """Sum of weight (r - u . w_a - b_a)^2 + precisions, over map and items together; u = x M - centre.

    The precisions hold w_a and b_a to where :meth:`RewardMoments.solve` holds them, and M to
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
        self.data = data
        self.view_map = view_map
        self.solution = solution
        self.k = view_map.mapping.shape[1]
        self.stride = -(-self.k // 4) * 4
        self._n = len(rewards)
        self._targets = rewards
        self._weights = weights / self._n
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
        p = self.data.n_items
        edge = self.data.n_items * self.stride
        return x[:edge].reshape(p, -1), x[edge : 2 * edge].reshape(p, -1), x[2 * edge :]

    def start(self) -> Floats:
        """Return M_0 and the solution as a vector."""
        x = np.zeros(self.size)
        _, w, b = self._split(x)
        w[:, : self.k], b[:] = self.solution.factors, self.solution.offsets
        return x

    def parts(self, x: Floats) -> tuple[ViewMap, Solution]:
        """Return the map and the items' parameters of a vector."""
        m, w, b = self._split(x)
        moved = self.view_map.mapping + self._scale * m[:, : self.k]
        return (
            replace(self.view_map, mapping=moved),
            replace(self.solution, factors=w[:, : self.k].copy(), offsets=b.copy()),
        )

    def __call__(self, x: Floats, gradient: Floats) -> float:
        """Return the value at ``x`` and fill ``gradient``."""
        from recsim_mnar.kernels import _vectors_kernel
        from recsim_mnar.models import _factorization_kernel as k

        away = x - self._anchors
        value = 0.0
        for part, grown, penalty in zip(self._split(away), self._split(gradient), self._penalties, strict=True):
            value += _vectors_kernel.penalise(part.reshape(-1), penalty, grown.reshape(-1))
        m, w, b = self._split(x)
        gm, gw, gb = self._split(gradient)
        u = self._base + self.data.features @ (self._scale * m)
        gu = np.empty_like(u)
        value += k.loss_and_gradient(
            self._starts,
            self.data.actions,
            self._targets,
            self._weights,
            -1.0,
            u,
            w,
            self._zeros,
            b,
            0.0,
            gu,
            gw,
            np.zeros(len(u)),
            gb,
            np.zeros(1),
        )
        gm += self._scale * (self._transposed @ gu)
        return float(value)

    def preconditioner(self) -> Floats:
        """About the Hessian's diagonal at the start, for :func:`recsim_mnar.kernels.lbfgs.minimise`.

        u has variance 1.
        """
        data = self.data
        k = self.k
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
        minimum = minimise(
            self,
            self.start(),
            preconditioner=self.preconditioner(),
            max_iterations=300,
            gradient_tolerance=1e-9,
            value_tolerance=1e-8,
        )
        return *self.parts(minimum.x), minimum
