"""A bandit log as a factorisation sees it: users' factors from their views, items' factors from recorded rewards.

The expected reward of recommending item a to a user with n views so far, h of each item, is modelled as

    r(x, a) = (x M - centre) . w_a + b_a,    x = h / (n + shrinkage)

M is learned from the views, which a log has many of: the leading left singular
vectors of the correlations between the state x before a view and the item viewed. The rewards, of which a log has few,
then determine w_a and b_a by weighted ridge regressions. They shrink w_a to the item's place in the space of view
factors, stretched along each dimension by a factor that is fitted too. Such fits and their cross-validation need only
sums over rows, by fold and item, which are computed in one pass.

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
_MOST_MAPPED_ITEMS = 3000
"""Items whose views the map reads, the most viewed ones: its correlations are a matrix of this size."""
_MOST_DENSE = 400
"""Largest number of items for which singular vectors come from a full decomposition."""
_SPREAD_OF_NOISE = 0.3
"""Assumed variance of the items' reward variances, relative to the square of their mean."""
_RIDGE = 0.1
"""Factor on an item's share of views that is added to the variance of x, so that rare items get small correlations."""
_PRIOR_VIEWS = 4.0
"""Number of views at the origin that is added to each item's, so that places of items with few views shrink to 0."""


def check_log(log: Log, n_items: int) -> NDArray[np.bool_]:
    """Check that a log can be learned from, and return the mask of its recommendations.

    Raises:
        UserError: the log has no recommendations, an item out of range, an invalid propensity or reward, or rows that
            are not ordered by user.
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
    """Linear map from a user's view counts to K factors, and the items' places in the space of factors.

    With x = h / (n + shrinkage) after n views with counts h, a user's factors are x M - centre. Over the states before
    the log's views they have mean 0 and variance 1 and are uncorrelated.

    Attributes:
        mapping: (n_items, K) the matrix M.
        centre: (K,) the vector that is subtracted.
        places: (n_items, K) mean factors of users who are about to view the item, shrunk to 0 where views are few.
        shares: (n_items,) smoothed shares of all views; they weight changes of M in :class:`JointObjective`.
        shrinkage: number added to the number of views, so that users with few views have small factors.
    """

    mapping: Floats
    centre: Floats
    places: Floats
    shares: Floats
    shrinkage: float

    @classmethod
    def from_log(cls, log: Log, n_items: int, *, rank: int, shrinkage: float, seed: int = 0) -> ViewMap:
        """Fit the map to the views of a log.

        M has the leading left singular vectors of the correlations between the state x before a view (by entry) and the
        viewed item, rescaled so that the factors are uncorrelated with variance 1.

        Args:
            log: a log whose organic rows are read.
            n_items: number of items.
            rank: largest number of factors.
            shrinkage: positive number that is added to each user's number of views.
            seed: seed of the start of the iteration by which singular vectors of many items are computed.

        The map has no factors if no user has two views, or if states vary in too few directions.
        """
        organic = log["event"] == schema.ORGANIC
        users = log["user"][organic]
        items = log["item"][organic].astype(np.int64)
        counts = np.bincount(items, minlength=n_items).astype(np.float64)
        shares = (counts + 1.0) / (counts.sum() + n_items)
        used = np.sort(np.argsort(-counts, kind="stable")[:_MOST_MAPPED_ITEMS])  # the most viewed items, ascending
        k = min(rank, len(used) - 1)
        without_factors = cls(np.zeros((n_items, 0)), np.zeros(0), np.zeros((n_items, 0)), shares, shrinkage)
        if k < 1 or np.all(users[1:] != users[:-1]):  # no views, or at most one per user
            return without_factors
        from recsim_mnar.models import _factorization_kernel

        # Renumber the used items from 0, and leave out the views of others.
        number = np.full(n_items, -1, np.int64)  # -1 for items that are left out
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
        covariance = following / m - np.outer(mean, counts[used] / m)
        sd = np.sqrt(squares / m - mean**2 + _RIDGE * p)
        # An item that is viewed with the small probability p has the standard deviation sqrt(p), about.
        directions = _leading_vectors(covariance / np.outer(sd, np.sqrt(p)), k, seed) / sd[:, None]
        gram = np.zeros((k, k))
        _factorization_kernel.state_sums(starts, items, shrinkage, directions, mean @ directions, np.empty(2 * k), gram)
        gram = (gram + np.triu(gram, 1).T) / m  # covariance of the factors; the kernel fills the upper triangle
        if not np.linalg.eigvalsh(gram)[0] > 1e-12 * np.trace(gram):
            return without_factors  # the states differ in fewer directions than K: too few views to learn from
        directions = np.linalg.solve(np.linalg.cholesky(gram), directions.T).T
        mapping = np.zeros((n_items, k))
        places = np.zeros((n_items, k))
        mapping[used] = directions
        places[used] = (covariance.T @ directions) * m / (counts[used] + _PRIOR_VIEWS)[:, None]
        return cls(mapping, mean @ directions, places, shares, shrinkage)


def _leading_vectors(matrix: Floats, k: int, seed: int) -> Floats:
    """Return the k leading left singular vectors as columns, the one of the largest singular value first.

    The sign of a singular vector is arbitrary: here its largest entry is positive.

    Args:
        matrix: square matrix.
        k: number of vectors.
        seed: seed of the start of the iteration for a large matrix.
    """
    if len(matrix) <= _MOST_DENSE:
        vectors = np.linalg.svd(matrix)[0][:, :k]
    else:
        from scipy.sparse.linalg import svds

        start = rng.normals(seed, rng.Stream.FIT, 2, (len(matrix), 1))[:, 0].astype(np.float32)
        # Single precision halves the time, and its errors are far below the sampling errors of the correlations.
        vectors = svds(matrix.astype(np.float32), k, v0=start, tol=1e-3)[0][:, ::-1].astype(np.float64)
    return vectors * np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(k)])


@dataclass(frozen=True)
class Ridge:
    """Prior spread of the items' parameters, in units of the reward's standard deviation.

    Attributes:
        spread: standard deviation of an item's factors about its place, as stretched.
        offset_spread: standard deviation of an item's offset about the common offset.
    """

    spread: float
    offset_spread: float

    def precision(self, k: int) -> Floats:
        """Return the penalties (k + 1,) of k factors and of the offset, 1 / spread^2 each."""
        return np.append(np.full(k, self.spread**-2.0), self.offset_spread**-2.0)


@dataclass(frozen=True)
class ItemParameters:
    """Parameters w_a and b_a of all items in the model of rewards, with their prior means.

    Attributes:
        factors: (n_items, K) item factors w.
        offsets: (n_items,) item offsets b.
        stretch: (K,) multipliers, one per factor: the prior mean of ``factors`` is stretch * :attr:`ViewMap.places`.
        common: prior mean of all offsets.
    """

    factors: Floats
    offsets: Floats
    stretch: Floats
    common: float

    def rescaled(self, factor: float, shift: float = 0.0) -> ItemParameters:
        """Return the parameters whose predicted rewards are ``factor`` times these plus ``shift``."""
        return ItemParameters(
            factors=factor * self.factors,
            offsets=shift + factor * self.offsets,
            stretch=factor * self.stretch,
            common=shift + factor * self.common,
        )


@dataclass(frozen=True)
class Scale:
    """Mean and variation of rewards in some folds, in units of the standardised reward of the whole log.

    Attributes:
        mean: weighted mean.
        sd: weighted standard deviation.
        noise: (P,) variance of each item's rewards relative to sd^2, shrunk to 1 where recommendations are few. Rare
            rewards of 0 or 1 vary the more, the more likely they are: with equal variances the best items would be
            shrunk too little.
    """

    mean: float
    sd: float
    noise: Floats


@dataclass(frozen=True)
class RewardMoments:
    """Moments of a log's recommendations by F folds and P items, from which regressions of rewards are solved.

    A recommendation has the weight w, the regressors u = (x M - centre, 1) and the standardised reward
    r = (reward - mean) / sd.

    Attributes:
        gram: (F, P, K + 1, K + 1) sums of w u u'.
        cross: (F, P, K + 1) sums of w u r.
        powers: (3, F, P) sums of w r^2, w r^3 and w r^4.
        rows: (F,) numbers of recommendations.
        mean: weighted mean of the rewards.
        sd: weighted standard deviation of the rewards.
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
        """Sum the moments over a log in one pass; UserError if all rewards are the same.

        Args:
            log: a log that has passed :func:`check_log`.
            bandit: mask of its recommendations, as :func:`check_log` returns it.
            view_map: map from view counts to users' factors.
            weights: (n,) weights of the recommendations, in the log's order.
            folds: number of folds; each user is in one of them at random.
            seed: seed of the folds.
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
        standard = (rewards - mean) / sd
        # The kernel reads one reward and one weight per row of the log; those of views are not used.
        rewards_by_row = np.zeros(len(users))
        weights_by_row = np.zeros(len(users))
        rewards_by_row[bandit] = standard
        weights_by_row[bandit] = weights
        _factorization_kernel.reward_sums(
            users,
            bandit.view(np.uint8),
            log["item"],
            log["action"],
            rewards_by_row,
            weights_by_row,
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
            gram=gram,
            cross=cross,
            powers=np.reshape(powers, (3, folds, n_items)),
            rows=np.bincount(fold[bandit], minlength=folds),
            mean=mean,
            sd=sd,
        )

    def fold_of(self, users: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
        """Return the fold (n,) of each user (n,), with the seed that :meth:`from_log` was called with."""
        return _folds(users, len(self.rows), seed)

    def scale(self, without: int | None = None) -> Scale:
        """Compute mean, standard deviation and items' noise of the rewards, over all folds or all but ``without``."""
        kept = np.arange(len(self.rows)) != without
        mass = self.gram[kept, :, -1, -1].sum(axis=0)
        first = self.cross[kept, :, -1].sum(axis=0)
        second, third, fourth = self.powers[:, kept].sum(axis=1)
        total = mass.sum()
        mean = 0.0
        variance = 1.0  # rewards are standardised over all folds
        if without is not None:
            mean = float(first.sum() / total)
            variance = float(second.sum() / total) - mean**2
        # Rounding turns the variance of a constant reward into about 1e-16.
        sd = 1.0  # avoids a division by 0 where rewards are constant
        if variance > 1e-12:
            sd = math.sqrt(variance)
        safe_mass = np.maximum(mass, 1e-300)
        squares = (second - first**2 / safe_mass) / sd**2  # by item, sums of squared deviations from the item's mean
        fourth_central = fourth.sum() - 4 * mean * third.sum() + 6 * mean**2 * second.sum() - 3 * mean**4 * total
        # Empirical Bayes. The variance of n rewards of kurtosis c has a relative squared error of about c / n, that of
        # items' variances among themselves is assumed: so the prior variance 1 counts as c / _SPREAD_OF_NOISE rewards.
        prior_mass = float(fourth_central / total) / sd**4 / _SPREAD_OF_NOISE
        return Scale(mean, sd, (np.maximum(squares, 0.0) + prior_mass) / (mass + prior_mass))

    def solve(self, places: Floats, ridge: Ridge, *, without: int | None = None) -> ItemParameters:
        """Fit the items' parameters and the stretch of their places to the rewards.

        Over theta_a = (w_a, b_a) of each item a, the stretch and the common offset, this minimises

            sum over recommendations of w / noise_a (r - u . theta_a)^2
            + sum over items of precision . (theta_a - (stretch * place_a, common))^2

        Given stretch and common offset, theta_a is one ridge regression per item; these two are the generalised
        least-squares estimate of a hierarchical model with known variances. Mean, standard deviation and noise are
        those of the folds in use; the solution is on the scale of rewards standardised over all folds.

        Args:
            places: (P, K) the items' places, from :class:`ViewMap`.
            ridge: prior spread of the items' parameters.
            without: fold to leave out; None for none.
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
        # (gram^-1 + precision^-1)^-1, the precision of an item's estimate about its prior mean, by Woodbury's identity:
        # in this form gram may be singular, as it is for items without recommendations.
        data_precision = np.diag(precision) - precision[:, None] * inverse * precision
        estimate = precision * np.einsum("pij,pj->pi", inverse, cross)
        normal = np.einsum("pi,pij,pj->ij", design, data_precision, design)
        normal.flat[:: k + 2] += 1e-9 * max(float(np.trace(normal)), 1e-300)  # the diagonal: a slight ridge
        stretch = np.linalg.solve(normal, (design * estimate).sum(axis=0))
        theta = np.einsum("pij,pj->pi", inverse, cross + precision * stretch * design)
        return ItemParameters(theta[:, :k], theta[:, k], stretch[:k], float(stretch[k])).rescaled(scale.sd, scale.mean)

    def held_out_error(self, solution: ItemParameters, fold: int) -> float:
        """Return the weighted squared error of predictions in a fold, less that of predicting the mean reward.

        Since the mean of standardised rewards is 0, it is the sum of w ((u . theta_a - r)^2 - r^2), which needs only
        the fold's moments.

        Args:
            solution: items' parameters, fitted without the fold.
            fold: number of the fold.
        """
        theta = np.concatenate([solution.factors, solution.offsets[:, None]], axis=1)
        quadratic = float(np.einsum("pi,pij,pj->", theta, self.gram[fold], theta, optimize=True))
        return quadratic - 2.0 * float((theta * self.cross[fold]).sum())


def _folds(users: NDArray[np.int64], folds: int, seed: int) -> NDArray[np.int64]:
    """Draw the fold of each user (n,), from 0 to folds - 1, by the user's number."""
    return (rng.uniforms(seed, rng.Stream.FIT, users, 1) * folds).astype(np.int64)


@dataclass(frozen=True)
class Contexts:
    """Recommendations grouped by context: the state of a user's view counts, of which there are C.

    Attributes:
        features: (C, n_items) scipy CSR array of h / (n + shrinkage) after n views with counts h.
        user_of_context: (C,) user of each context.
        context: (n,) number of each recommendation's context, ascending.
        actions: (n,) recommended items.
        propensities: (n,) propensities of the recommendations.
        rewards: (n,) rewards of the recommendations.
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
        """Collect the recommendations of a log and their contexts.

        Args:
            log: a log.
            n_items: number of items.
            shrinkage: positive number that is added to each user's number of views.

        Raises:
            UserError: :func:`check_log` refuses the log, or the shrinkage is not positive.
        """
        from scipy import sparse

        number_in(shrinkage, "shrinkage", ends="(]")
        bandit = check_log(log, n_items)
        user = log["user"]
        new = user_begins(user)
        # Each view, and each user's first row, begins a new state; states with a recommendation are contexts.
        begins_state = new | ~bandit
        state = np.cumsum(begins_state) - 1
        state_of_context, context = np.unique(state[bandit], return_inverse=True)
        # A context's views are start:stop among all views: those of the user up to the row that began the state.
        n_views = np.cumsum(~bandit)
        first_view = np.maximum.accumulate(np.where(new, n_views - ~bandit, 0))
        row_of_context = np.flatnonzero(begins_state)[state_of_context]
        stop = n_views[row_of_context]
        start = first_view[row_of_context]
        length: NDArray[np.int64] = stop - start
        views = log["item"][~bandit]
        # One entry per context and view; the sparse array adds the entries of repeated views.
        owner = np.repeat(np.arange(len(length)), length)
        position = np.arange(len(owner)) - np.repeat(np.cumsum(length) - length, length) + np.repeat(start, length)
        value = np.repeat(1.0 / (length + shrinkage), length)
        features = sparse.csr_array((value, (owner, views[position])), shape=(len(length), n_items))
        return cls(
            features=features,
            user_of_context=user[row_of_context],
            context=context,
            actions=log["action"][bandit].astype(np.int64),
            propensities=log["propensity"][bandit],
            rewards=log["reward"][bandit],
            n_items=n_items,
        )

    def select(self, rows: NDArray[np.bool_]) -> Contexts:
        """Select recommendations by a mask (n,); all contexts stay, even those left without a recommendation."""
        return replace(
            self,
            context=self.context[rows],
            actions=self.actions[rows],
            propensities=self.propensities[rows],
            rewards=self.rewards[rows],
        )


class JointObjective:
    """Objective of fitting the map M and the items' parameters w, b together to the rewards.

    With u = x M - centre it is the mean over n recommendations of weight (r - u . w_a - b_a)^2, plus penalties over n:
    those of w and b about their prior means, as in :meth:`RewardMoments.solve`, and that of M about the fitted map M_0,
    |D^1/2 (M - M_0)|^2 / map_spread^2 with D the diagonal of the items' shares of views.

    It is a function of one flat vector: D^1/2 (M - M_0), so that entries are of one size for L-BFGS, then w, then b;
    rows are padded by zeros to ``stride`` entries. The kernel of the factorisation computes loss and gradient with
    contexts as users, whose factors are u; the chain rule gives the gradient in M.

    Args:
        data: recommendations.
        weights: (n,) weights of the recommendations, divided by the items' noise.
        rewards: (n,) standardised rewards.
        view_map: the map M_0.
        solution: items' parameters from which to start; stretch and common offset give the prior means.
        ridge: prior spread of the items' parameters.
        map_spread: prior spread of the map.
    """

    def __init__(
        self,
        data: Contexts,
        weights: Floats,
        rewards: Floats,
        *,
        view_map: ViewMap,
        solution: ItemParameters,
        ridge: Ridge,
        map_spread: float,
    ) -> None:
        self.data = data
        self.view_map = view_map
        self.solution = solution
        self.k = view_map.mapping.shape[1]
        self.stride = -(-self.k // 4) * 4  # rounded up to a multiple of 4, as the kernel needs
        n_contexts = data.features.shape[0]
        n = len(rewards)
        self._targets = rewards
        self._weights = weights / n
        # Penalties of M, w and b, in the order of the vector's parts: precisions over n, as the loss is a mean.
        self._penalties = [s**-2.0 / n for s in (map_spread, ridge.spread, ridge.offset_spread)]
        # (C + 1,) where each context's recommendations begin.
        self._starts = np.searchsorted(data.context, np.arange(n_contexts + 1))
        # (n_items, C) features for the chain rule's product, by rows.
        self._transposed = data.features.T.tocsr()
        # (C,) the contexts have no offsets of their own, as the kernel's users have.
        self._context_offsets = np.zeros(n_contexts)
        # (n_items, 1) D^-1/2, which turns the vector's first part into M - M_0.
        self._scale = 1.0 / np.sqrt(view_map.shares)[:, None]
        self.size = data.n_items * (2 * self.stride + 1)
        # Prior means of all entries: 0 for the change of M, the stretched places for w, the common offset for b.
        self._prior_means = np.zeros(self.size)
        _, w, b = self._split(self._prior_means)
        w[:, : self.k] = view_map.places * solution.stretch
        b[:] = solution.common
        # (C, stride) factors u of the contexts under M_0.
        self._base = np.zeros((n_contexts, self.stride))
        self._base[:, : self.k] = data.features @ view_map.mapping - view_map.centre

    def _split(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Return views into a vector: scaled change of M (n_items, stride), w (n_items, stride) and b (n_items,)."""
        p = self.data.n_items
        edge = self.data.n_items * self.stride
        return x[:edge].reshape(p, -1), x[edge : 2 * edge].reshape(p, -1), x[2 * edge :]

    def start(self) -> Floats:
        """Return the vector from which to minimise: M_0, and the items' parameters of ``solution``."""
        x = np.zeros(self.size)
        _, w, b = self._split(x)
        w[:, : self.k] = self.solution.factors
        b[:] = self.solution.offsets
        return x

    def parts(self, x: Floats) -> tuple[ViewMap, ItemParameters]:
        """Return the map and the items' parameters that a vector holds."""
        m, w, b = self._split(x)
        mapping = self.view_map.mapping + self._scale * m[:, : self.k]
        return (
            replace(self.view_map, mapping=mapping),
            replace(self.solution, factors=w[:, : self.k].copy(), offsets=b.copy()),
        )

    def __call__(self, x: Floats, gradient: Floats) -> float:
        """Return the objective at parameters ``x`` (size,), and write its gradient to ``gradient`` (size,)."""
        from recsim_mnar.kernels import _vectors_kernel
        from recsim_mnar.models import _factorization_kernel as factorization

        deviation = x - self._prior_means
        value = 0.0
        # Overwrites the gradient by the penalties' part; the data's part is added below.
        for part, part_of_gradient, penalty in zip(
            self._split(deviation), self._split(gradient), self._penalties, strict=True
        ):
            value += _vectors_kernel.penalise(part.reshape(-1), penalty, part_of_gradient.reshape(-1))
        m, w, b = self._split(x)
        gm, gw, gb = self._split(gradient)
        u = self._base + self.data.features @ (self._scale * m)
        gu = np.empty_like(u)
        squared_error = -1.0  # the kernel's flag
        common_offset = 0.0  # the items' offsets include it here
        gradient_of_context_offsets = np.zeros(len(u))  # the kernel fills these two, which are not used
        gradient_of_common_offset = np.zeros(1)
        value += factorization.loss_and_gradient(
            self._starts,
            self.data.actions,
            self._targets,
            self._weights,
            squared_error,
            u,
            w,
            self._context_offsets,
            b,
            common_offset,
            gu,
            gw,
            gradient_of_context_offsets,
            gb,
            gradient_of_common_offset,
        )
        gm += self._scale * (self._transposed @ gu)
        return float(value)

    def preconditioner(self) -> Floats:
        """Return approximately half the Hessian's diagonal at the start, for L-BFGS.

        Half the curvature in an item's factor is the sum of its weights, since u has variance 1, plus the penalty. That
        in an entry of M is its feature's weighted sum of squares times the items' mean squared factor.
        """
        data = self.data
        k = self.k
        out = np.zeros(self.size)
        m, w, b = self._split(out)
        weight_of_item = np.bincount(data.actions, self._weights, data.n_items)
        weight_of_context = np.bincount(data.context, self._weights, data.features.shape[0])
        squares = self._transposed.power(2) @ weight_of_context
        m[:] = self._penalties[0]
        m[:, :k] += self._scale**2 * squares[:, None] * (self.solution.factors**2).mean(axis=0)
        w[:] = (weight_of_item + self._penalties[1])[:, None]
        b[:] = weight_of_item + self._penalties[2]
        return out

    def fit(self) -> tuple[ViewMap, ItemParameters, Minimum]:
        """Minimise the objective from :meth:`start`.

        Returns:
            view_map: the fitted map.
            solution: the fitted items' parameters.
            minimum: facts on the minimisation.
        """
        minimum = minimise(
            self,
            self.start(),
            preconditioner=self.preconditioner(),
            max_iterations=300,
            gradient_tolerance=1e-9,
            value_tolerance=1e-8,
        )
        return *self.parts(minimum.x), minimum
