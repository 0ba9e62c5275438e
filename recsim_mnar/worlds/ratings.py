"""The ratings world: people who reveal some of their ratings, not at random, and answer recommendations with a rating.

Schnabel, Swaminathan, Singh, Chandak & Joachims 2016, "Recommendations as treatments". The full rating matrix Y is
known, and so is the propensity P with which each entry is revealed.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng, schema
from recsim_mnar.errors import UserError
from recsim_mnar.rng import Stream, check_seed, derive_seed
from recsim_mnar.worlds.base import Lanes, Moment, World
from recsim_mnar.worlds.params import Params

Floats = NDArray[np.float64]
STARS = (1.0, 2.0, 3.0, 4.0, 5.0)
MARGINALS = (0.526, 0.242, 0.144, 0.062, 0.026)
"""Shares of ratings 1 .. 5 among randomly chosen songs (Marlin & Zemel 2009), to which section 6.2 re-ranks ML-100K."""

OBSERVATIONS = ("alpha", "popularity", "uniform")
_CALIBRATION_USERS = 4000


@dataclass(frozen=True)
class RatingsParams(Params):
    """Parameters of the ratings world.

    Attributes:
        n_items: number of items I.
        n_factors: rank of the tastes behind the ratings; 0 for items' offsets and noise alone.
        sigma_item: standard deviation of the items' offsets, a user's taste having 1.
        sigma_noise: standard deviation of what neither taste nor item explains.
        alpha: severity of selection: a rating r < 4 is revealed alpha^(4 - r) times as often as 4 or 5 (``alpha``).
        density: expected share of ratings revealed.
        observation: ``alpha`` (by the rating), ``popularity`` (by the item: 1/rank of its offset), or ``uniform``.
        n_decisions: recommendations a user answers.
        catalogue_seed: of the items.
    """

    n_items: int = 100
    n_factors: int = 5
    sigma_item: float = 0.5
    sigma_noise: float = 0.5
    alpha: float = 0.25
    density: float = 0.05
    observation: str = "alpha"
    n_decisions: int = 10
    catalogue_seed: int = 0

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        for name, least in (("n_items", 1), ("n_factors", 0), ("n_decisions", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("sigma_item", "sigma_noise"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative, got {getattr(self, name):g}")
        for name in ("alpha", "density"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} must lie in (0, 1], got {getattr(self, name):g}")
        if self.observation not in OBSERVATIONS:
            raise UserError(f"observation must be one of {', '.join(OBSERVATIONS)}, got {self.observation!r}")
        check_seed(self.catalogue_seed, "catalogue_seed")


PRESETS: dict[str, tuple[RatingsParams, str]] = {
    "schnabel2016": (
        RatingsParams(n_items=500, n_decisions=20),
        "the 2016 observation model at alpha = .25, 500 items",
    ),
    "mcar": (RatingsParams(alpha=1.0), "ratings revealed uniformly at random"),
    "quick": (RatingsParams(), "100 items, alpha = .25"),
}


def relative_propensity(ratings: Any, alpha: float) -> Floats:
    """alpha^(4 - r) for r < 4, else 1 (section 6.2)."""
    below = np.maximum(4.0 - np.asarray(ratings, np.float64), 0.0)
    # Powers from a table: the last bit of pow() differs between machines, and a last bit can flip a draw.
    powers = np.array([1.0, alpha, alpha * alpha, alpha * alpha * alpha])
    whole = below.astype(np.int64)
    return powers[whole] if np.array_equal(whole, below) else np.asarray(alpha**below)


def alpha_propensities(matrix: Any, alpha: float, density: float = 0.05) -> Floats:
    """The paper's observation model: k alpha^max(0, 4 - Y), k such that a share ``density`` is revealed on average.

    Raises:
        UserError: alpha or density outside (0, 1], or a k above 1.
    """
    if not (0 < alpha <= 1 and 0 < density <= 1):
        raise UserError(f"alpha and density must lie in (0, 1], got {alpha:g} and {density:g}")
    relative = relative_propensity(matrix, alpha)
    k = density / relative.mean()
    if k > 1.0:
        raise UserError(f"density {density:g} cannot be reached at alpha = {alpha:g}: k would be {k:.3g}")
    return k * relative


def rerank(scores: Any, marginals: Any = MARGINALS) -> Floats:
    """Ratings 1, 2, ... by value: the bottom share ``marginals[0]`` of all entries gets 1, the next 2, and so on."""
    scores = np.asarray(scores, np.float64)
    shares = np.asarray(marginals, np.float64)
    if not (np.all(shares >= 0) and abs(shares.sum() - 1.0) < 1e-6):
        raise UserError(f"marginals must be shares that sum to 1, got {shares.tolist()}")
    order = np.argsort(scores.ravel(), kind="stable")
    edges = np.rint(np.cumsum(shares) * scores.size).astype(np.int64)
    out = np.empty(scores.size)
    out[order] = 1.0 + np.searchsorted(edges[:-1], np.arange(scores.size), side="right")
    return out.reshape(scores.shape)


def observe(propensities: Any, seed: int) -> NDArray[np.bool_]:
    """O ~ Bernoulli(P), elementwise, each cell at its own address."""
    p = np.asarray(propensities, np.float64)
    users, items = np.divmod(np.arange(p.size), p.shape[1])
    return (rng.uniforms(seed, Stream.ORGANIC, users, items) < p.ravel()).reshape(p.shape)


class RatingsWorld(World):
    """People reveal ratings, are shown recommendations, and rate them.

    Args:
        params: the synthetic model.
        matrix: (U, I) ratings that are used instead of the model's; user u is row u mod U.
        propensities: (U, I) of these ratings; by default the alpha model's.
    """

    name: ClassVar[str] = "ratings"
    rates: ClassVar[bool] = True
    params: RatingsParams

    def __init__(self, params: RatingsParams | None = None, *, matrix: Any = None, propensities: Any = None) -> None:
        self.params = params or RatingsParams()
        self.n_items = self.params.n_items
        self.matrix: Floats | None = None
        self.propensities: Floats | None = None
        if matrix is None:
            if propensities is not None:
                raise UserError("propensities belong to a matrix of ratings: give both")
            return
        self.matrix = np.asarray(matrix, np.float64)
        if self.matrix.ndim != 2 or self.matrix.shape[1] != self.n_items:
            raise UserError(f"the matrix has shape {self.matrix.shape}, the parameters say {self.n_items} items")
        if not np.isin(self.matrix, STARS).all():
            bad = self.matrix[~np.isin(self.matrix, STARS)][0]
            raise UserError(f"the matrix has a rating {bad:g}, outside the scale 1..5")
        if propensities is None:
            self.propensities = alpha_propensities(self.matrix, self.params.alpha, self.params.density)
        else:
            self.propensities = np.asarray(propensities, np.float64)
            if self.propensities.shape != self.matrix.shape:
                raise UserError(
                    f"the propensities have shape {self.propensities.shape}, the ratings {self.matrix.shape}"
                )
            if not np.all((self.propensities > 0) & (self.propensities <= 1)):
                raise UserError("every propensity must lie in (0, 1]: each rating must have a chance to be revealed")

    @classmethod
    def from_matrix(cls, matrix: Any, propensities: Any = None, **params: Any) -> RatingsWorld:
        """A world of given ratings; ``params`` as in :class:`RatingsParams`."""
        return cls(
            RatingsParams(n_items=np.asarray(matrix).shape[1], **params), matrix=matrix, propensities=propensities
        )

    # ------------------------------------------------------------------------------------------------------ the truth

    @functools.cached_property
    def _item_factors(self) -> Floats:
        """(I, n_factors + 1): tastes' directions, of length 1 on average, and the offset."""
        p = self.params
        draws = rng.normals(p.catalogue_seed, Stream.CATALOGUE, 0, (p.n_items, p.n_factors))
        offsets = rng.normals(p.catalogue_seed, Stream.OFFSETS, 0, (p.n_items, 1)) * p.sigma_item
        return np.concatenate([draws / math.sqrt(max(p.n_factors, 1)), offsets], axis=1)

    @functools.cached_property
    def _thresholds(self) -> Floats:
        """Between scores of ratings r and r + 1, so that many users' ratings have the marginals."""
        users = np.arange(_CALIBRATION_USERS)
        per_batch = max(1, 4_000_000 // self.n_items)
        seed = derive_seed(self.params.catalogue_seed, "ratings/calibration")
        scores = self._scores(seed, users[:per_batch])
        return np.quantile(scores, np.cumsum(MARGINALS)[:-1])

    def _scores(self, seed: int, users: NDArray[np.int64]) -> Floats:
        """What is cut into stars, (n, I), for consecutive users."""
        p, items = self.params, self._item_factors
        first = int(users[0])
        taste = rng.normals(seed, Stream.USER, first, (len(users), max(p.n_factors, 1)))
        scores = np.tile(items[:, -1], (len(users), 1))
        for k in range(p.n_factors):  # in a fixed order: BLAS rounds by machine, and a last bit can move a rating
            scores += taste[:, k : k + 1] * items[:, k]
        scores += p.sigma_noise * rng.normals(seed, Stream.RESPONSE, first, (len(users), p.n_items))
        return scores

    def ratings_of(self, seed: int, users: NDArray[np.int64]) -> Floats:
        """Truth: all ratings of these users, (n, I)."""
        if self.matrix is not None:
            return self.matrix[users % len(self.matrix)]
        out = np.empty((len(users), self.n_items))
        for rows in _runs(users):
            out[rows] = 1.0 + np.searchsorted(self._thresholds, self._scores(seed, users[rows]), side="right")
        return out

    def propensities_of(self, users: NDArray[np.int64], ratings: Floats) -> Floats:
        """P(O = 1) of every item for users with these ratings, (n, I)."""
        p = self.params
        if self.propensities is not None:
            return self.propensities[users % len(self.propensities)]
        if p.observation == "alpha":
            k = p.density / float((np.array(MARGINALS) * relative_propensity(STARS, p.alpha)).sum())
            return np.minimum(k * relative_propensity(ratings, p.alpha), 1.0)
        if p.observation == "popularity":
            rank = np.empty(p.n_items)
            rank[np.argsort(-self._item_factors[:, -1], kind="stable")] = np.arange(1, p.n_items + 1)
            share = (1.0 / rank) * (p.density * p.n_items / (1.0 / rank).sum())
            return np.broadcast_to(np.minimum(share, 1.0), ratings.shape).copy()
        return np.full(ratings.shape, p.density)

    def reward_means(self, state: Floats) -> Floats:
        """See :meth:`World.reward_means`: the state is the user's row of ratings."""
        return np.asarray(state, np.float64)

    # --------------------------------------------------------------------------------------------------- the dynamics

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> RatingsLanes:
        """See :meth:`World.open_lanes`."""
        return RatingsLanes(self, n_lanes, keep_truth=keep_truth)

    def live(
        self, seed: int, first_user: int, n_users: int, distribution: Floats | None, *, keep_truth: bool = False
    ) -> dict[str, NDArray[Any]]:
        """See :meth:`World.live`."""
        users = np.arange(first_user, first_user + n_users)
        lanes = self.open_lanes(n_users, keep_truth=keep_truth)
        which = np.arange(n_users)
        parts = [lanes.begin(which, np.full(n_users, seed, np.uint64), users).columns]
        cumulative = None if distribution is None else np.cumsum(distribution)
        for decision in range(self.params.n_decisions):
            drawn = rng.policy_uniforms(seed, users, decision)
            if cumulative is None or distribution is None:
                actions = np.minimum((drawn * self.n_items).astype(np.int64), self.n_items - 1)
                chance = np.full(n_users, 1.0 / self.n_items)
            else:
                actions = np.minimum(np.searchsorted(cumulative, drawn, side="right"), self.n_items - 1)
                chance = distribution[actions]
            parts.append(lanes.take(which, actions.astype(np.int32), chance).columns)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.argsort(columns["user"], kind="stable")
        return {name: values[order] for name, values in columns.items()}


def _runs(users: NDArray[np.int64]) -> list[slice]:
    """Stretches of consecutive ids."""
    edges = [0, *(np.flatnonzero(np.diff(users) != 1) + 1).tolist(), len(users)]
    return [slice(a, b) for a, b in itertools.pairwise(edges) if b > a]


class RatingsLanes(Lanes):
    """See :class:`recsim_mnar.worlds.base.Lanes`; opened by :meth:`RatingsWorld.open_lanes`."""

    def __init__(self, world: RatingsWorld, n_lanes: int, *, keep_truth: bool) -> None:
        self._world, self._keep_truth = world, keep_truth
        self.user = np.zeros(n_lanes, np.int64)
        self.step = np.zeros(n_lanes, np.int64)
        self.time = np.zeros(n_lanes)
        self.n_decisions = np.zeros(n_lanes, np.int64)
        self._ratings = np.zeros((n_lanes, world.n_items), np.float32)

    @property
    def state(self) -> Floats:
        """See :attr:`Lanes.state`: here the ratings of all items, (n, I)."""
        return self._ratings.astype(np.float64)

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.uint64], users: NDArray[np.int64]) -> Moment:
        """See :meth:`Lanes.begin`: users reveal their ratings."""
        world = self._world
        n = len(which)
        ratings, p = np.empty((n, world.n_items)), np.empty((n, world.n_items))
        revealed = np.empty((n, world.n_items), np.bool_)
        items = np.arange(world.n_items)
        for seed in np.unique(seeds):
            rows = np.flatnonzero(seeds == seed)
            ratings[rows] = world.ratings_of(int(seed), users[rows])
            p[rows] = world.propensities_of(users[rows], ratings[rows])
            drawn = rng.uniforms(
                int(seed), Stream.ORGANIC, np.repeat(users[rows], len(items)), np.tile(items, len(rows))
            )
            revealed[rows] = drawn.reshape(len(rows), -1) < p[rows]
        count = revealed.sum(axis=1)
        lane, item = np.nonzero(revealed)
        starts = np.concatenate([[0], np.cumsum(count)])
        step = np.arange(len(lane)) - np.repeat(starts[:-1], count)
        self.user[which], self.step[which], self.time[which] = users, count, count
        self.n_decisions[which] = 0
        self._ratings[which] = ratings
        columns = _columns(len(lane))
        columns["user"][:], columns["step"][:], columns["time"][:] = users[lane], step, step
        columns["event"][:] = schema.ORGANIC
        columns["item"][:], columns["reward"][:] = item, ratings[lane, item]
        columns["observation_propensity"][:] = p[lane, item]
        return self._moment(starts, columns, np.ones(n, np.bool_))

    def take(self, which: NDArray[np.int64], actions: NDArray[np.int32], propensities: Floats) -> Moment:
        """See :meth:`Lanes.take`: the reward is the user's rating of what is shown."""
        columns = _columns(len(which))
        columns["user"][:], columns["step"][:], columns["time"][:] = (
            self.user[which],
            self.step[which],
            self.time[which],
        )
        columns["event"][:] = schema.BANDIT
        columns["action"][:], columns["propensity"][:] = actions, propensities
        columns["reward"][:] = self._ratings[which, actions]
        for array in (self.step, self.time, self.n_decisions):
            array[which] += 1
        alive = self.n_decisions[which] < self._world.params.n_decisions
        return self._moment(np.arange(len(which) + 1), columns, alive)

    def _moment(self, starts: Any, columns: dict[str, NDArray[Any]], alive: NDArray[np.bool_]) -> Moment:
        if self._keep_truth:
            shown = columns["event"] == schema.BANDIT
            columns["click_probability"] = np.where(shown, columns["reward"], np.nan)
        return Moment(starts.astype(np.int64), columns, alive)


def _columns(n: int) -> dict[str, NDArray[Any]]:
    """Columns of n rows full of nulls."""
    columns: dict[str, NDArray[Any]] = {}
    for column in schema.COLUMNS:
        columns[column.name] = np.full(n, 0 if column.null is None else column.null, column.dtype)
    columns["observation_propensity"] = np.full(n, np.nan)
    return columns
