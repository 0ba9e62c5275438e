"""The features world: users and items from feature matrices, with known mean rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels import elementary
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.kernels.checks import refuse_first
from recsim_mnar.rng import Stream, check_seed
from recsim_mnar.runs.files import path_of
from recsim_mnar.worlds.base import DecisionWorld, add_products, sha256_of
from recsim_mnar.worlds.lanes import Actions, Columns, Flags, Floats, Floats32, Ints, PlainLanes
from recsim_mnar.worlds.params import Params, must, one_of

REWARDS = ("logistic", "linear", "means")
LENGTHS = ("fixed", "geometric")


@dataclass(frozen=True)
class FeatureParams(Params):
    """Parameters of the features world.

    Attributes:
        file: path of an ``.npz`` file with ``user_features`` (U, d), ``item_features`` (I, k) and, depending on
            ``reward``, ``weights`` (d, k) or ``means`` (U, I); empty to draw both matrices of features.
        n_users: number of rows of user features to draw; a file determines it.
        n_items: number of rows of item features to draw; a file determines it.
        n_features: number of columns of both matrices to draw.
        reward: model of the mean reward of item i with features z_i for a user with features x: ``logistic`` is 1 / (1
            + exp(-(offset + x W z_i))), ``linear`` is offset + x W z_i, ``means`` takes a matrix of mean rewards.
            Without weights W is the identity matrix, divided by the root of ``n_features`` if features are drawn.
        offset: constant in the mean reward.
        noise: standard deviation of normal noise on rewards; 0 for rewards of 0 or 1, whose probability of 1 is the
            mean reward.
        length: number of recommendations of a user, or its mean.
        lengths: distribution of the number of recommendations: ``fixed``, or ``geometric`` (a user leaves after each
            recommendation with probability 1 / length).
        catalogue_seed: seed of the features that are drawn.
    """

    file: str = ""
    n_users: int = 200
    n_items: int = 20
    n_features: int = 4
    reward: str = "logistic"
    offset: float = 0.0
    noise: float = 0.0
    length: float = 10.0
    lengths: str = "fixed"
    catalogue_seed: int = 0

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        must(self, "be at least 1", "n_users", "n_items", "n_features", "length")
        must(self, "be at most 10,000,000", "n_items")
        must(self, "not be negative", "noise")
        one_of(self, reward=REWARDS, lengths=LENGTHS)
        if self.lengths == "fixed" and self.length != int(self.length):
            raise UserError(f"length must be a whole number where lengths = fixed, got {self.length:g}")
        check_seed(self.catalogue_seed, "catalogue_seed")


PRESETS: dict[str, tuple[FeatureParams, str]] = {
    "quick": (FeatureParams(), "200 users and 20 items of 4 drawn features, 10 recommendations each"),
    "clicks": (FeatureParams(offset=-3.0), "the same, some 5 % of the recommendations clicked"),
}


class FeatureLanes(PlainLanes):
    """Lanes of the features world, made by :meth:`FeatureWorld.open_lanes`.

    Args:
        world: features world to which the lanes belong.
        n_lanes: number of users simulated at once.
        truth_column: name of the column of mean rewards; None to omit it.
    """

    trusted = True

    def __init__(self, world: FeatureWorld, n_lanes: int, *, truth_column: str | None) -> None:
        super().__init__(n_lanes, truth_column=truth_column)
        self._world = world

    @property
    def state(self) -> Floats:
        """Implement :attr:`Lanes.state`: the row of each user's features, (n, 1)."""
        return self._world.rows_of(self.user).astype(np.float64)[:, None]

    def expected(self, which: Ints, actions: Actions) -> Floats:
        """Implement :meth:`PlainLanes.expected`."""
        return self._world.means[self._world.rows_of(self.user[which]), actions]

    def answer(self, which: Ints, actions: Actions) -> tuple[Floats, Flags]:
        """Implement :meth:`PlainLanes.answer`: rewards are drawn in stream RESPONSE, departures in ORGANIC."""
        p = self._world.params
        means = self.expected(which, actions)
        if p.noise > 0:
            rewards = means + p.noise * self.normals(which)
        else:
            rewards = (self.uniforms(which) < means).astype(np.float64)
        if p.lengths == "fixed":
            alive = self.n_decisions[which] + 1 < p.length
        else:
            alive = self.uniforms(which, Stream.ORGANIC) * p.length >= 1.0  # leaves with probability 1 / length
        return rewards, alive


Reward = str | Callable[[Floats, Floats], Any] | Any


class FeatureWorld(DecisionWorld):
    """World whose users and items are rows of feature matrices, with a known mean reward for each pair.

    User u of any seed has the features in row u mod U, so that U users, or a multiple of U, have every row equally
    often. Seeds differ in the random draws only: rewards and, for geometric lengths, when users leave. Users have no
    organic views, so a policy that acts on views learns nothing about a user; an environment's observation is the
    user's features. The mean rewards of all pairs are in memory, 8 U I bytes.

    Args:
        user_features: (U, d) matrix; None for the features that ``params`` reads or draws.
        item_features: (I, k) matrix; None if ``user_features`` is None.
        reward: mean rewards (U, I), a function that computes them from both matrices, or ``logistic`` or ``linear``,
            see :class:`FeatureParams`; None for the reward model of ``params``.
        length: number of recommendations of a user, or its mean; None for that of ``params``.
        weights: (d, k) matrix W of ``logistic`` and ``linear``; None for the identity matrix.
        params: all other parameters; None for the defaults.

    Raises:
        UserError: matrices of shapes that do not fit together or with entries that are not finite, or mean rewards
            outside [0, 1] although rewards are 0 or 1.
    """

    name = "features"
    truth_column = "expected_reward"
    log_holds = frozenset({"outcomes", "clicks"})
    params_class = FeatureParams
    presets = PRESETS
    params: FeatureParams

    @property
    def reward_name(self) -> str:  # type: ignore[override]  # by its parameters
        """Implement :class:`World`: rewards of 0 or 1 are clicks."""
        if self.params.noise:
            return "reward"
        return "click"

    def __init__(
        self,
        user_features: Any = None,
        item_features: Any = None,
        *,
        reward: Reward = None,
        length: float | None = None,
        weights: Any = None,
        params: FeatureParams | None = None,
    ) -> None:
        if isinstance(user_features, FeatureParams):  # the registry makes every world by Class(params)
            params = user_features
            user_features = None
        params = params or FeatureParams()
        if length is not None:
            params = replace(params, length=length)
        if isinstance(reward, str):
            params = replace(params, reward=reward)
            means = None
        else:  # a matrix, a function that computes it, or None
            means = reward
        if (user_features is None) != (item_features is None):
            raise UserError("user_features and item_features belong together: give both")
        self._has_given_matrices = user_features is not None
        if user_features is None:
            user_features, item_features, weights, means = _read_or_draw(params, weights, means)
        x = _matrix("user_features", user_features)
        z = _matrix("item_features", item_features)
        if callable(means):
            means = means(x.copy(), z.copy())  # copies, which the function may change
        if means is not None:
            params = replace(params, reward="means")
            mean_rewards = _matrix("the mean rewards", means)
            if mean_rewards.shape != (len(x), len(z)):
                raise UserError(
                    f"the mean rewards must have shape ({len(x)}, {len(z)}), one row per user and one column per item, "
                    f"got {mean_rewards.shape}"
                )
        elif params.reward == "means":
            raise UserError(f"reward = means: there are none: give them, or one of {', '.join(REWARDS[:2])}")
        else:
            mean_rewards = _mean_rewards_of_model(x, z, weights, params)
        _check_means(mean_rewards, params)
        self.params = replace(params, n_users=len(x), n_items=len(z))
        self.user_features = x
        self.item_features = z
        self.means = mean_rewards
        self.n_items = len(z)
        self.n_user_features = x.shape[1]
        if params.lengths == "fixed":
            self.most_decisions = int(params.length)
        else:
            self.most_decisions = None

    def describe(self) -> dict[str, Any]:
        """Implement :meth:`World.describe`; matrices that were given are named by their digest."""
        described = super().describe()
        if self._has_given_matrices or self.params.file:
            arrays = (self.user_features, self.item_features, self.means)
            described["arrays"] = {"sha256": sha256_of(*(values.astype("<f8") for values in arrays))}
        return described

    def rows_of(self, users: Ints) -> Ints:
        """Return the row (n,) of each user's features: the user's id modulo the number of rows."""
        return users % len(self.user_features)

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> FeatureLanes:
        """Implement :meth:`DecisionWorld.open_lanes`."""
        return FeatureLanes(self, n_lanes, truth_column=self.kept_truth(keep_truth))

    def reward_means(self, state: Floats) -> Floats:
        """Implement :meth:`DecisionWorld.reward_means`: the state is the user's row."""
        return self.means[np.asarray(state)[:, 0].astype(np.int64)]

    def features_of(self, seed: int, users: Ints) -> Floats32:
        """Implement :meth:`DecisionWorld.features_of`."""
        return self.user_features[self.rows_of(users)].astype(np.float32)

    def truth_arrays(self, seed: int, n_users: int) -> Columns:
        """Implement :meth:`World.truth_arrays`: a file that makes the same world again, as ``means``."""
        return {"user_features": self.user_features, "item_features": self.item_features, "means": self.means}


def _read_or_draw(params: FeatureParams, weights: Any, means: Any) -> tuple[Any, Any, Any, Any]:
    """Read features from the parameters' file, or draw them if there is no file.

    Args:
        params: parameters of the world.
        weights: user's weights, which take precedence; None for those of the file or the default.
        means: user's mean rewards, which take precedence; None for those of the file.

    Returns:
        user_features: (U, d).
        item_features: (I, k).
        weights: (d, k), or None for the identity matrix.
        means: (U, I) or a function of both matrices, or None if the reward model computes them.

    Raises:
        UserError: the file is missing or lacks an array.
    """
    if not params.file:
        size = params.n_features
        x = rng.normals(params.catalogue_seed, Stream.USER, 0, (params.n_users, size))
        z = rng.normals(params.catalogue_seed, Stream.CATALOGUE, 0, (params.n_items, size))
        if weights is None:
            weights = np.eye(size) / np.sqrt(size)
        return x, z, weights, means
    path = path_of(params.file)
    try:
        arrays = read_arrays(path)
    except FileNotFoundError:
        raise UserError(f"file {path} does not exist") from None
    for name in ("user_features", "item_features"):
        if name not in arrays:
            raise UserError(f"file {params.file} lacks {name!r}, a (rows, features) matrix of numbers")
    if params.reward == "means":
        if "means" not in arrays:
            raise UserError(f"file {params.file} lacks 'means', (users, items), which reward = means needs")
        if means is None:
            means = arrays["means"]
    if weights is None:
        weights = arrays.get("weights")
    return arrays["user_features"], arrays["item_features"], weights, means


def _matrix(name: str, values: Any) -> Floats:
    """Return a copy of a matrix as float64 (n, d) with n, d >= 1.

    Entries must be finite in float32, the type in which users' features are observed.

    Raises:
        UserError: no matrix of numbers, or an entry that is not finite in float32; ``name`` begins the message.
    """
    try:
        matrix = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a matrix of numbers") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise UserError(f"{name} must be a matrix with a row and a column at least, got shape {matrix.shape}")
    refuse_first(
        ~(np.abs(matrix) <= np.finfo(np.float32).max),
        lambda row, column: (
            f"{name} must hold finite float32 numbers, got {matrix[row, column]} in row {row}, column {column}"
        ),
    )
    return matrix


def _mean_rewards_of_model(x: Floats, z: Floats, weights: Any, params: FeatureParams) -> Floats:
    """Return the mean rewards (U, I) of the reward models ``logistic`` and ``linear``.

    Args:
        x: (U, d) user features.
        z: (I, k) item features.
        weights: (d, k) matrix W; None for the identity matrix.
        params: parameters with the reward model and the offset.

    Raises:
        UserError: shapes that do not fit together.
    """
    if weights is None:
        if x.shape[1] != z.shape[1]:
            raise UserError(
                f"users have {x.shape[1]} features and items {z.shape[1]}: give weights ({x.shape[1]}, {z.shape[1]})"
            )
        projected = x
    else:
        w = _matrix("weights", weights)
        if w.shape != (x.shape[1], z.shape[1]):
            raise UserError(f"weights must have shape ({x.shape[1]}, {z.shape[1]}), got {w.shape}")
        projected = np.zeros((len(x), z.shape[1]))  # x W
        add_products(projected, x, w.T)
    score = np.full((len(x), len(z)), params.offset)
    add_products(score, projected, z)
    if params.reward == "linear":
        return score
    return 1.0 / (1.0 + elementary.exp(-score.ravel()).reshape(score.shape))


def _check_means(means: Floats, params: FeatureParams) -> None:
    """Raise UserError if a mean reward is outside [0, 1] although rewards are 0 or 1."""
    refuse_first(
        ((means < 0) | (means > 1)) & (params.noise == 0),
        lambda u, i: (
            f"the mean reward of user {u}, item {i} is {means[u, i]:g}: rewards of 0 or 1 need means in [0, 1]; use "
            "reward = logistic, or noise above 0 for rewards that are numbers"
        ),
    )
