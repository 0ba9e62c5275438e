"""The ratings world: people who reveal some of their ratings, not at random, and answer recommendations with a rating.

Schnabel, Swaminathan, Singh, Chandak & Joachims 2016, "Recommendations as treatments". The full rating matrix Y is
known, and so is the propensity P with which each entry is revealed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import refuse_first
from recsim_mnar.log import schema
from recsim_mnar.log.rows import consecutive
from recsim_mnar.rng import Stream, check_seed, derive_seed
from recsim_mnar.worlds.base import DecisionWorld, add_products, sha256_of
from recsim_mnar.worlds.lanes import Actions, Columns, CountedLanes, Flags, Ints, Seeds, Transition
from recsim_mnar.worlds.params import Params, must, one_of
from recsim_mnar.worlds.ratings.observation import (
    MARGINALS,
    STARS,
    Floats,
    alpha_propensities,
    alpha_scale,
    popularity_propensities,
    relative_propensity,
)

OBSERVATIONS = ("alpha", "popularity", "uniform")


@dataclass(frozen=True)
class RatingsParams(Params):
    """Parameters of the ratings world.

    Attributes:
        n_items: number of items I; that of the file where there is one.
        n_factors: rank of the tastes behind the ratings; 0 for items' offsets and noise alone.
        sigma_item: standard deviation of the items' offsets, a user's taste having 1.
        sigma_noise: standard deviation of what neither taste nor item explains.
        marginals: shares of ratings 1 to 5 among all entries, with commas; by default those of randomly chosen songs
            (Marlin & Zemel 2009).
        ratings_file: instead of the three sigmas' model, a file of ratings, completed and re-ranked to ``marginals``
            (section 6.2), or an ``.npy`` or ``.npz`` file of a full matrix, taken as it is. An ``.npz`` file that
            holds ``observation_propensities`` too brings its own: ``alpha``, ``density`` and ``observation`` are then
            not read.
        alpha: severity of selection: a rating r < 4 is revealed alpha^(4 - r) times as often as 4 or 5 (``alpha``).
        density: expected share of ratings revealed.
        observation: ``alpha`` (by the rating), ``popularity`` (by the item: 1/rank of its offset or mean), or
            ``uniform``.
        n_decisions: recommendations a user answers.
        repeat_pays: whether an item that the user has rated already, revealed or recommended before, earns its rating
            again when it is recommended; otherwise it earns 0.
        catalogue_seed: of the items, and of the completion of a file.
    """

    n_items: int = 100
    n_factors: int = 5
    sigma_item: float = 0.5
    sigma_noise: float = 0.5
    marginals: str = ",".join(f"{share:g}" for share in MARGINALS)
    ratings_file: str = ""
    alpha: float = 0.25
    density: float = 0.05
    observation: str = "alpha"
    n_decisions: int = 10
    repeat_pays: bool = True
    catalogue_seed: int = 0

    @property
    def shares(self) -> tuple[float, ...]:
        """``marginals`` as numbers."""
        return tuple(float(part) for part in self.marginals.split(","))

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        must(self, "be at least 1", "n_items", "n_decisions")
        must(self, "be at least 0", "n_factors")
        must(self, "be at most 10,000,000", "n_items")
        must(self, "not be negative", "sigma_item", "sigma_noise")
        must(self, "be in (0, 1]", "alpha", "density")
        one_of(self, observation=OBSERVATIONS)
        check_seed(self.catalogue_seed, "catalogue_seed")
        try:
            shares = self.shares
        except ValueError:
            shares = ()
        if len(shares) != len(STARS) or not (min(shares) >= 0 and abs(sum(shares) - 1) < 1e-6):
            raise UserError(f"marginals must be five shares with commas that sum to 1, got {self.marginals!r}")


PRESETS: dict[str, tuple[RatingsParams, str]] = {
    "schnabel2016": (
        RatingsParams(n_items=500, n_decisions=20),
        "the 2016 observation model at alpha = .25, 500 items of low rank",
    ),
    "mcar": (RatingsParams(alpha=1.0), "100 items, ratings revealed uniformly at random"),
    "quick": (RatingsParams(), "100 items, alpha = .25"),
}


_CALIBRATION_USERS = 4000
_TRUTH_CHUNK = 4096
_USERS_AHEAD, _RATINGS_AHEAD = 64, 1 << 17
"""Users, and ratings of theirs, that are made together for a single lane: a call costs more than a user."""


class RatingsLanes(CountedLanes):
    """Implement :class:`recsim_mnar.worlds.base.Lanes`; opened by :meth:`RatingsWorld.open_lanes`.

    Args:
        world: the world that opens them.
        n_lanes: users side by side.
        truth_column: name of the column of expected rewards; None to leave it out.
    """

    trusted = True
    optional = ("observation_propensity",)

    def __init__(self, world: RatingsWorld, n_lanes: int, *, truth_column: str | None) -> None:
        self._world = world
        self._params = params = world.params
        super().__init__(n_lanes, truth_column=truth_column)
        self._earns = np.zeros((n_lanes, params.n_items), np.float32)
        self._ahead: tuple[int, int, Floats, list[dict[str, list[Any]]]] = 0, 0, np.zeros((0, params.n_items)), []

    @property
    def state(self) -> Floats:
        """Implement :attr:`Lanes.state`: here what each item would earn, (n, I)."""
        return self._earns.astype(np.float64)

    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Implement :meth:`Lanes.begin`: users reveal their ratings."""
        n = len(which)
        ratings = np.empty((n, self._params.n_items))
        p = np.empty_like(ratings)
        revealed = np.empty(ratings.shape, np.bool_)
        for seed, rows in self.seat(which, seeds, users):
            ratings[rows], p[rows], revealed[rows] = self._reveal(seed, users[rows])
        self._earns[which] = self._earned(ratings, revealed)
        lane, item = np.nonzero(revealed)
        starts, columns = self.rows(which, revealed.sum(axis=1))
        columns["event"][:] = schema.ORGANIC
        columns["item"][:] = item
        columns["reward"][:] = ratings[lane, item]
        columns["observation_propensity"][:] = p[lane, item]
        self.time[which] = self.step[which]
        return Transition(starts, columns, np.ones(n, np.bool_))

    def _reveal(self, seed: int, users: Ints) -> tuple[Floats, Floats, Flags]:
        """Ratings of users of a seed, P(O = 1) and O, (n, I) each."""
        n_items = self._params.n_items
        ratings = self._world.ratings_of(seed, users)
        p = self._world.propensities_of(users, ratings)
        items = np.tile(np.arange(n_items), len(users))
        drawn = rng.uniforms(seed, Stream.ORGANIC, np.repeat(users, n_items), items)
        return ratings, p, drawn.reshape(p.shape) < p

    def _earned(self, ratings: Floats, revealed: Flags) -> Floats:
        """Return (n, I) the reward of each item when it is first recommended."""
        if self._params.repeat_pays:
            return ratings
        return np.where(revealed, 0.0, ratings)

    def begin_alone(self, seed: int, user: int) -> dict[str, list[Any]] | None:
        """Implement :meth:`Lanes.begin_alone`. Users who come one after the other are made more and more at a time."""
        if type(self) is not RatingsLanes:  # what a derived class does is its own
            return None
        last_seed, first, earns, histories = self._ahead
        if seed != last_seed or not first <= user < first + len(histories):
            n_ahead = 1
            if seed == last_seed and user == first + len(histories):
                n_ahead = max(min(2 * len(histories), _USERS_AHEAD, _RATINGS_AHEAD // self._params.n_items), 1)
            ratings, p, revealed = self._reveal(seed, np.arange(user, user + n_ahead))
            first = user
            earns = self._earned(ratings, revealed)
            histories = []
            for j in range(n_ahead):
                item = np.flatnonzero(revealed[j])
                histories.append(
                    {
                        "item": item.tolist(),
                        "reward": ratings[j, item].tolist(),
                        "observation_propensity": p[j, item].tolist(),
                        "time": np.arange(len(item), dtype=np.float64).tolist(),
                    }
                )
            self._ahead = seed, first, earns, histories
        columns = histories[user - first]
        self.user[0] = user
        self.seed[0] = seed
        self.n_decisions[0] = 0
        self.step[0] = self.time[0] = len(columns["item"])
        self._earns[0] = earns[user - first]
        return columns

    def take_alone(self, action: int) -> tuple[float, bool] | None:
        """Implement :meth:`Lanes.take_alone`."""
        if type(self) is not RatingsLanes:
            return None
        reward = self._earns.item(0, action)
        if not self._params.repeat_pays:
            self._earns[0, action] = 0.0
        n_decisions = self.n_decisions.item() + 1
        self.n_decisions[0] = n_decisions
        self.step[0] += 1
        self.time[0] += 1.0
        return reward, n_decisions < self._params.n_decisions

    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`: the reward is the user's rating of what is shown, see ``repeat_pays``."""
        starts, columns = self.rows(which)
        columns["event"][:] = schema.BANDIT
        columns["action"][:] = actions
        columns["propensity"][:] = propensities
        columns["reward"][:] = self._earns[which, actions]
        if self.truth_column is not None:
            columns[self.truth_column][:] = columns["reward"]
        if not self._params.repeat_pays:
            self._earns[which, actions] = 0.0
        self.time[which] += 1
        self.n_decisions[which] += 1
        return Transition(starts, columns, self.n_decisions[which] < self._params.n_decisions)


class RatingsWorld(DecisionWorld):
    """People reveal ratings, are shown recommendations, and rate them.

    A user's ratings do not change: a recommended item gets the rating that the user would have revealed. An item
    rated already may be recommended, and earns its rating again (or nothing, see ``repeat_pays``).

    Args:
        params: the synthetic model, or the file that stands in its place.
        matrix: (U, I) ratings that are used instead of the model's; user u is row u mod U, whatever the seed, which
            then draws what is revealed.
        propensities: (U, I) of these ratings; by default those of the observation model.
    """

    name = "ratings"
    rates = True
    reward_name = "stars"
    log_holds = frozenset({"outcomes", "ratings"})
    truth_column = "expected_reward"
    compared_by = "recsim_mnar.protocols.ratings:RatingsExperiment"
    params_class = RatingsParams
    presets = PRESETS
    params: RatingsParams

    def __init__(self, params: RatingsParams | None = None, *, matrix: Any = None, propensities: Any = None) -> None:
        params = params or RatingsParams()
        if matrix is None and params.ratings_file:
            from recsim_mnar.worlds.ratings.observation import matrix_of_file

            matrix, propensities = matrix_of_file(params.ratings_file, params.shares, params.catalogue_seed)
            params = dataclasses.replace(params, n_items=matrix.shape[1])
        self.params = params
        self.n_items = params.n_items
        self.most_decisions = params.n_decisions
        self.matrix: Floats | None = None
        self.propensities: Floats | None = None
        if matrix is not None:
            self.matrix = _checked_matrix(matrix, params)
            self.propensities = _checked_propensities(propensities, self.matrix, params)
        elif propensities is not None:
            raise UserError("propensities belong to a matrix of ratings: give both")
        elif params.observation == "alpha":
            alpha_scale(STARS, params.shares, params.alpha, params.density)  # refuses what cannot be reached

    @classmethod
    def from_matrix(cls, matrix: Any, propensities: Any = None, **params: Any) -> RatingsWorld:
        """A world of given ratings (U, I); ``params`` as in :class:`RatingsParams`."""
        matrix = np.asarray(matrix, np.float64)
        if matrix.ndim != 2:
            raise UserError(f"a matrix of ratings must be (U, I), got shape {matrix.shape}")
        return cls(RatingsParams(n_items=matrix.shape[1], **params), matrix=matrix, propensities=propensities)

    def describe(self) -> dict[str, Any]:
        """Implement :meth:`World.describe`; a given matrix is named by its digest."""
        described = super().describe()
        if self.matrix is not None and self.propensities is not None:
            digest = sha256_of(self.matrix.astype("<i1"), self.propensities.astype("<f8"))
            described["matrix"] = {"users": len(self.matrix), "sha256": digest}
        return described

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
        """Thresholds between the scores of ratings r and r + 1 that give the marginals."""
        users = np.arange(_CALIBRATION_USERS)
        per_batch = max(1, 4_000_000 // self.n_items)
        seed = derive_seed(self.params.catalogue_seed, "ratings/calibration")
        scores = self._scores(seed, users[:per_batch])
        return np.quantile(scores, np.minimum(np.cumsum(self.params.shares)[:-1], 1.0))

    def _scores(self, seed: int, users: Ints) -> Floats:
        """Compute the scores to be cut into stars, (n, I), for consecutive users."""
        p = self.params
        items = self._item_factors
        first = int(users[0])
        taste = rng.normals(seed, Stream.USER, first, (len(users), max(p.n_factors, 1)))
        scores = np.tile(items[:, -1], (len(users), 1))
        add_products(scores, taste[:, : p.n_factors], items)
        scores += p.sigma_noise * rng.normals(seed, Stream.RESPONSE, first, (len(users), p.n_items))
        return scores

    def ratings_of(self, seed: int, users: Ints) -> Floats:
        """Truth: all ratings of these users, (n, I)."""
        if self.matrix is not None:
            return self.matrix[users % len(self.matrix)]
        out = np.empty((len(users), self.n_items))
        for rows in consecutive(users):
            out[rows] = 1.0 + np.searchsorted(self._thresholds, self._scores(seed, users[rows]), side="right")
        return out

    @functools.cached_property
    def _item_propensities(self) -> Floats:
        """P of each item where it does not depend on the rating, (I,)."""
        return _item_propensities(self._item_factors[:, -1], self.params)

    def propensities_of(self, users: Ints, ratings: Floats) -> Floats:
        """P(O = 1) of every item for users with these ratings, (n, I)."""
        p = self.params
        if self.propensities is not None:
            return self.propensities[users % len(self.propensities)]
        if p.observation == "alpha":
            return alpha_scale(STARS, p.shares, p.alpha, p.density) * relative_propensity(ratings, p.alpha)
        return np.tile(self._item_propensities, (len(users), 1))

    def reward_means(self, state: Floats) -> Floats:
        """Implement :meth:`DecisionWorld.reward_means`: the state is what each item would earn."""
        return np.asarray(state, np.float64)

    def truth_arrays(self, seed: int, n_users: int) -> Columns:
        """Implement :meth:`DecisionWorld.truth_arrays`.

        ``ratings`` (U, I) int8 and ``observation_propensities`` (U, I) of the file's users or of users 0 .. U - 1; of
        a synthetic world also ``item_factors``, ``item_offsets`` and ``thresholds`` (of scores, between stars).
        """
        if self.matrix is not None and self.propensities is not None:
            return {"ratings": self.matrix.astype(np.int8), "observation_propensities": self.propensities}
        ratings = np.empty((n_users, self.n_items), np.int8)
        p = np.empty((n_users, self.n_items))
        for first in range(0, n_users, _TRUTH_CHUNK):
            users = np.arange(first, min(first + _TRUTH_CHUNK, n_users))
            ratings[users] = user_ratings = self.ratings_of(seed, users)
            p[users] = self.propensities_of(users, user_ratings)
        return {
            "ratings": ratings,
            "observation_propensities": p,
            "item_factors": self._item_factors[:, :-1],
            "item_offsets": self._item_factors[:, -1],
            "thresholds": self._thresholds,
        }

    # --------------------------------------------------------------------------------------------------- the dynamics

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> RatingsLanes:
        """Implement :meth:`DecisionWorld.open_lanes`."""
        return RatingsLanes(self, n_lanes, truth_column=self.kept_truth(keep_truth))


def _checked_matrix(matrix: Any, params: RatingsParams) -> Floats:
    """A (U, I) matrix of stars."""
    ratings = np.asarray(matrix, np.float64)
    if ratings.ndim != 2 or ratings.shape[1] != params.n_items or len(ratings) == 0:
        raise UserError(f"the matrix has shape {ratings.shape}, the parameters say (users, {params.n_items})")
    refuse_first(
        ~np.isin(ratings, STARS),
        lambda u, i: f"the matrix has a rating {ratings[u, i]:g} (user {u}, item {i}), outside the scale 1..5",
    )
    return ratings


def _item_propensities(appeal: Floats, params: RatingsParams) -> Floats:
    """(I,) propensities that do not depend on the rating: by popularity, or the same for all items."""
    if params.observation == "popularity":
        return popularity_propensities(appeal, params.density)
    return np.full(len(appeal), params.density)


def _checked_propensities(propensities: Any, matrix: Floats, params: RatingsParams) -> Floats:
    """(U, I) propensities as given, or those of the observation model."""
    if propensities is None:
        if params.observation == "alpha":
            return alpha_propensities(matrix, params.alpha, params.density)
        return np.tile(_item_propensities(matrix.sum(axis=0), params), (len(matrix), 1))
    p = np.asarray(propensities, np.float64)
    if p.shape != matrix.shape:
        raise UserError(f"the propensities have shape {p.shape}, the ratings {matrix.shape}")
    refuse_first(
        ~((p > 0) & (p <= 1)), lambda u, i: f"the propensity of user {u}, item {i} is {p[u, i]:g}: it must be in (0, 1]"
    )
    return p
