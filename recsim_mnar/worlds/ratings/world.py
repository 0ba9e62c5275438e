"""The ratings world: users reveal some of their ratings, not at random, and rate the items recommended to them.

The model is that of Schnabel, Swaminathan, Singh, Chandak & Joachims 2016, "Recommendations as treatments". Both the
full rating matrix Y and the propensity P with which each entry is revealed are known.
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
        n_items: number of items I; a file determines it.
        n_factors: rank of the low-rank part (tastes) of the ratings' scores; 0 for item offsets and noise only.
        sigma_item: standard deviation of the items' offsets; the taste part of a score has standard deviation 1.
        sigma_noise: standard deviation of the noise in a score, independent for each user and item.
        marginals: shares of ratings 1 to 5 among all entries, separated by commas; by default those of randomly chosen
            songs (Marlin & Zemel 2009).
        ratings_file: path of a file that replaces the drawn ratings; empty to draw them. Revealed ratings in it are
            completed and re-ranked to ``marginals`` (section 6.2); a full matrix (``.npy`` or ``.npz``) is taken
            unchanged. If an ``.npz`` file holds ``observation_propensities`` too, these replace ``alpha``, ``density``
            and ``observation``.
        alpha: severity of selection in the observation model ``alpha``: a rating r < 4 is revealed alpha^(4 - r) times
            as often as 4 or 5.
        density: expected share of ratings that are revealed.
        observation: model of the propensities: ``alpha`` (they depend on the rating), ``popularity`` (1 / rank of the
            item's offset or mean rating) or ``uniform``.
        n_decisions: number of recommendations of each user.
        repeat_pays: True if an item that the user has rated before, unasked or after a recommendation, earns its rating
            again when it is recommended; False if it then earns 0.
        catalogue_seed: seed of the items, and of the completion of a file.
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
        """Return ``marginals`` as five numbers."""
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
"""Number of simulated users from whose scores the thresholds between stars are computed."""
_TRUTH_CHUNK = 4096
"""Number of users whose true ratings are computed at a time."""
_USERS_AHEAD = 64
"""Largest number of users whose ratings a single lane draws in advance; a call takes longer than one user."""
_RATINGS_AHEAD = 1 << 17
"""Largest number of ratings that a single lane draws in advance."""


class RatingsLanes(CountedLanes):
    """Lanes of the ratings world, made by :meth:`RatingsWorld.open_lanes`.

    Args:
        world: ratings world to which the lanes belong.
        n_lanes: number of users simulated at once.
        truth_column: name of the column of expected rewards; None to omit it.
    """

    trusted = True
    optional = ("observation_propensity",)

    def __init__(self, world: RatingsWorld, n_lanes: int, *, truth_column: str | None) -> None:
        self._world = world
        self._params = params = world.params
        super().__init__(n_lanes, truth_column=truth_column)
        self._rewards_now = np.zeros((n_lanes, params.n_items), np.float32)
        # Users drawn in advance for begin_alone: seed, first user, and each user's rewards and revealed ratings.
        self._drawn_ahead: tuple[int, int, Floats, list[dict[str, list[Any]]]] = 0, 0, np.zeros((0, params.n_items)), []

    @property
    def state(self) -> Floats:
        """Implement :attr:`Lanes.state`: the reward that each item would earn now, (n, I)."""
        return self._rewards_now.astype(np.float64)

    def begin(self, which: Ints, seeds: Seeds, users: Ints) -> Transition:
        """Implement :meth:`Lanes.begin`: the organic rows are the ratings that the users reveal."""
        n = len(which)
        ratings = np.empty((n, self._params.n_items))
        p = np.empty_like(ratings)
        revealed = np.empty(ratings.shape, np.bool_)
        for seed, rows in self.seat(which, seeds, users):
            ratings[rows], p[rows], revealed[rows] = self._reveal(seed, users[rows])
        self._rewards_now[which] = self._first_rewards(ratings, revealed)
        lane, item = np.nonzero(revealed)
        starts, columns = self.rows(which, revealed.sum(axis=1))
        columns["event"][:] = schema.ORGANIC
        columns["item"][:] = item
        columns["reward"][:] = ratings[lane, item]
        columns["observation_propensity"][:] = p[lane, item]
        self.time[which] = self.step[which]
        return Transition(starts, columns, np.ones(n, np.bool_))

    def _reveal(self, seed: int, users: Ints) -> tuple[Floats, Floats, Flags]:
        """Draw the ratings of users (n,) of a seed.

        Returns:
            ratings: (n, I) all ratings.
            p: (n, I) propensity of each to be revealed.
            revealed: (n, I) True for the ratings that are revealed.
        """
        n_items = self._params.n_items
        ratings = self._world.ratings_of(seed, users)
        p = self._world.propensities_of(users, ratings)
        items = np.tile(np.arange(n_items), len(users))
        drawn = rng.uniforms(seed, Stream.ORGANIC, np.repeat(users, n_items), items)
        return ratings, p, drawn.reshape(p.shape) < p

    def _first_rewards(self, ratings: Floats, revealed: Flags) -> Floats:
        """Return the reward (n, I) of each item at its first recommendation.

        Args:
            ratings: (n, I) all ratings.
            revealed: (n, I) True for the ratings that the user has revealed.
        """
        if self._params.repeat_pays:
            return ratings
        return np.where(revealed, 0.0, ratings)

    def begin_alone(self, seed: int, user: int) -> dict[str, list[Any]] | None:
        """Implement :meth:`Lanes.begin_alone`.

        If users arrive in the order of their ids, twice as many are drawn in advance each time, up to
        :data:`_USERS_AHEAD`.
        """
        if type(self) is not RatingsLanes:  # a derived class may override `begin`
            return None
        last_seed, first, first_rewards, histories = self._drawn_ahead
        if seed != last_seed or not first <= user < first + len(histories):
            n_ahead = 1
            if seed == last_seed and user == first + len(histories):  # users arrive in the order of their ids
                n_ahead = max(min(2 * len(histories), _USERS_AHEAD, _RATINGS_AHEAD // self._params.n_items), 1)
            ratings, p, revealed = self._reveal(seed, np.arange(user, user + n_ahead))
            first = user
            first_rewards = self._first_rewards(ratings, revealed)
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
            self._drawn_ahead = seed, first, first_rewards, histories
        columns = histories[user - first]
        self.user[0] = user
        self.seed[0] = seed
        self.n_decisions[0] = 0
        self.step[0] = self.time[0] = len(columns["item"])
        self._rewards_now[0] = first_rewards[user - first]
        return columns

    def take_alone(self, action: int) -> tuple[float, bool] | None:
        """Implement :meth:`Lanes.take_alone`; None for a derived class, which may override :meth:`take`."""
        if type(self) is not RatingsLanes:
            return None
        reward = self._rewards_now.item(0, action)
        if not self._params.repeat_pays:
            self._rewards_now[0, action] = 0.0
        n_decisions = self.n_decisions.item() + 1
        self.n_decisions[0] = n_decisions
        self.step[0] += 1
        self.time[0] += 1.0
        return reward, n_decisions < self._params.n_decisions

    def take(self, which: Ints, actions: Actions, propensities: Floats) -> Transition:
        """Implement :meth:`Lanes.take`: the reward is the user's rating of the item, or 0, see ``repeat_pays``."""
        starts, columns = self.rows(which)
        columns["event"][:] = schema.BANDIT
        columns["action"][:] = actions
        columns["propensity"][:] = propensities
        columns["reward"][:] = self._rewards_now[which, actions]
        if self.truth_column is not None:
            columns[self.truth_column][:] = columns["reward"]
        if not self._params.repeat_pays:
            self._rewards_now[which, actions] = 0.0
        self.time[which] += 1
        self.n_decisions[which] += 1
        return Transition(starts, columns, self.n_decisions[which] < self._params.n_decisions)


class RatingsWorld(DecisionWorld):
    """World whose users reveal some of their ratings, then receive recommendations and rate them.

    A user's ratings never change: a recommended item gets the rating that the user would have revealed. Items rated
    before may be recommended, and earn their rating again (or 0, see ``repeat_pays``).

    Args:
        params: parameters of the world; None for the defaults.
        matrix: (U, I) ratings in place of drawn ones; user u of any seed has row u mod U, and the seed determines which
            ratings are revealed. None to draw ratings, or to read those of ``params.ratings_file``.
        propensities: (U, I) propensity of each rating in ``matrix``; None for those of the observation model.
    """

    name = "ratings"
    rates = True
    reward_name = "stars"
    log_holds = frozenset({"outcomes", "ratings"})
    truth_column = "expected_reward"
    compared_by = "recsim_mnar.protocols.ratings:RatingsExperiment"
    observation_words = OBSERVATIONS
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
            # Called for its check only: it refuses a density that cannot be reached.
            alpha_scale(STARS, params.shares, params.alpha, params.density)

    @classmethod
    def from_matrix(cls, matrix: Any, propensities: Any = None, **params: Any) -> RatingsWorld:
        """Make a world of the ratings in a matrix.

        Args:
            matrix: (U, I) ratings.
            propensities: (U, I) propensity of each rating; None for those of the observation model.
            **params: parameters, see :class:`RatingsParams`.

        Raises:
            UserError: ratings outside 1..5, or shapes that do not fit together.
        """
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
        """Factors of each item, of mean square length 1, followed by its offset: (I, n_factors + 1)."""
        p = self.params
        draws = rng.normals(p.catalogue_seed, Stream.CATALOGUE, 0, (p.n_items, p.n_factors))
        offsets = rng.normals(p.catalogue_seed, Stream.OFFSETS, 0, (p.n_items, 1)) * p.sigma_item
        return np.concatenate([draws / math.sqrt(max(p.n_factors, 1)), offsets], axis=1)

    @functools.cached_property
    def _thresholds(self) -> Floats:
        """Thresholds (4,) between the scores of ratings r and r + 1, with which ratings have the marginal shares.

        They are quantiles of the scores of simulated users: as many as :data:`_CALIBRATION_USERS`, but at most 4
        million scores.
        """
        n_users = min(_CALIBRATION_USERS, max(1, 4_000_000 // self.n_items))
        seed = derive_seed(self.params.catalogue_seed, "ratings/calibration")
        scores = self._scores(seed, np.arange(n_users))
        return np.quantile(scores, np.minimum(np.cumsum(self.params.shares)[:-1], 1.0))

    def _scores(self, seed: int, users: Ints) -> Floats:
        """Return the scores (n, I) of users (n,) with consecutive ids; thresholds between them make ratings."""
        p = self.params
        items = self._item_factors  # the last column has the offsets
        first = int(users[0])
        # At least one column: the generator needs one, and without factors it is not used.
        taste = rng.normals(seed, Stream.USER, first, (len(users), max(p.n_factors, 1)))
        scores = np.tile(items[:, -1], (len(users), 1))
        add_products(scores, taste[:, : p.n_factors], items)
        scores += p.sigma_noise * rng.normals(seed, Stream.RESPONSE, first, (len(users), p.n_items))
        return scores

    def ratings_of(self, seed: int, users: Ints) -> Floats:
        """Return all ratings (n, I) of users (n,) of a seed, revealed or not."""
        if self.matrix is not None:
            return self.matrix[users % len(self.matrix)]
        out = np.empty((len(users), self.n_items))
        for rows in consecutive(users):
            out[rows] = 1.0 + np.searchsorted(self._thresholds, self._scores(seed, users[rows]), side="right")
        return out

    @functools.cached_property
    def _item_propensities(self) -> Floats:
        """Propensity of each item, (I,), in the observation models in which it does not depend on the rating."""
        return _item_propensities(self._item_factors[:, -1], self.params)

    def propensities_of(self, users: Ints, ratings: Floats) -> Floats:
        """Return the propensity (n, I) with which each rating of users (n,) is revealed.

        Args:
            users: (n,) ids.
            ratings: (n, I) ratings of these users.
        """
        p = self.params
        if self.propensities is not None:
            return self.propensities[users % len(self.propensities)]
        if p.observation == "alpha":
            return alpha_scale(STARS, p.shares, p.alpha, p.density) * relative_propensity(ratings, p.alpha)
        return np.tile(self._item_propensities, (len(users), 1))

    def reward_means(self, state: Floats) -> Floats:
        """Implement :meth:`DecisionWorld.reward_means`: the state consists of the items' rewards."""
        return np.asarray(state, np.float64)

    def truth_arrays(self, seed: int, n_users: int) -> Columns:
        """Implement :meth:`DecisionWorld.truth_arrays`.

        The arrays are ``ratings`` (U, I) int8 and ``observation_propensities`` (U, I), for the users of a matrix or for
        users 0 .. U - 1. Without a matrix there are also ``item_factors`` (I, n_factors), ``item_offsets`` (I,) and
        ``thresholds`` (4,).
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
    """Return ratings as a float64 matrix (U, I); UserError for another number of items or ratings outside 1..5."""
    ratings = np.asarray(matrix, np.float64)
    if ratings.ndim != 2 or ratings.shape[1] != params.n_items or len(ratings) == 0:
        raise UserError(f"the matrix has shape {ratings.shape}, the parameters say (users, {params.n_items})")
    refuse_first(
        ~np.isin(ratings, STARS),
        lambda u, i: f"the matrix has a rating {ratings[u, i]:g} (user {u}, item {i}), outside the scale 1..5",
    )
    return ratings


def _item_propensities(appeal: Floats, params: RatingsParams) -> Floats:
    """Return item propensities (I,) of the observation models ``popularity`` (by ``appeal``, (I,)) and ``uniform``."""
    if params.observation == "popularity":
        return popularity_propensities(appeal, params.density)
    return np.full(len(appeal), params.density)


def _checked_propensities(propensities: Any, matrix: Floats, params: RatingsParams) -> Floats:
    """Return the propensity (U, I) of each rating in a matrix.

    Args:
        propensities: (U, I) from the user or a file; None for those of the observation model.
        matrix: (U, I) ratings.
        params: parameters with the observation model.

    Raises:
        UserError: a wrong shape, or propensities outside (0, 1].
    """
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
