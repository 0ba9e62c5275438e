"""The features world: a team's own feature matrices of users and items, made a world whose truth is known."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.kernels import elementary
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.rng import Stream
from recsim_mnar.worlds.base import DecisionWorld
from recsim_mnar.worlds.features.lanes import FeatureLanes
from recsim_mnar.worlds.features.params import PRESETS, REWARDS, FeatureParams

__all__ = ["PRESETS", "FeatureParams", "FeatureWorld"]

Floats = NDArray[np.float64]
Reward = str | Callable[[Floats, Floats], Any] | Any


class FeatureWorld(DecisionWorld):
    """Users and items are rows of feature matrices; each user answers recommendations by a mean reward for the item.

    User u of any seed is row u mod U (round robin): U users, or a multiple of U, meet every row equally often. Seeds
    differ in what is drawn: rewards and, where it is drawn, when users leave. Nobody views anything unasked, so a
    policy that acts on views learns nothing of a user; an environment's observation is the user's features. The mean
    rewards of all rows and items are kept, 8 U I bytes.

    Args:
        user_features: (U, d); None: those that ``params`` names or draws.
        item_features: (I, k).
        reward: a function of both matrices that gives the mean rewards (U, I); those as an array; or ``logistic`` or
            ``linear``, see :class:`FeatureParams`.
        length: recommendations that a user answers, or their mean.
        weights: (d, k) of ``logistic`` and ``linear``; the identity where None.
        params: further parameters, or all of them.

    Raises:
        UserError: matrices that do not belong together or hold no numbers, or means that are no probabilities where
            rewards are 0 or 1.
    """

    name: ClassVar[str] = "features"
    truth_column: ClassVar[str | None] = "expected_reward"
    log_holds: ClassVar = frozenset({"outcomes", "clicks"})
    params_class = FeatureParams
    presets = PRESETS
    params: FeatureParams

    @property
    def reward_name(self) -> str:  # type: ignore[override]  # by its parameters
        """See :class:`World`: rewards of 0 or 1 are clicks."""
        return "reward" if self.params.noise else "click"

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
        if isinstance(user_features, FeatureParams):  # as every world is made from its parameters alone
            params, user_features = user_features, None
        params = params or FeatureParams()
        if length is not None:
            params = replace(params, length=length)
        if isinstance(reward, str):
            params = replace(params, reward=reward)
        if (user_features is None) != (item_features is None):
            raise UserError("user_features and item_features belong together: give both")
        self._given = user_features is not None
        means = None if reward is None or isinstance(reward, str) else reward
        if user_features is None:
            user_features, item_features, weights, means = _of_params(params, weights, means)
        x, z = _matrix("user_features", user_features), _matrix("item_features", item_features)
        if callable(means):
            means = means(x.copy(), z.copy())
        if means is not None:
            params = replace(params, reward="means")
            table = _matrix("the mean rewards", means)
            if table.shape != (len(x), len(z)):
                raise UserError(
                    f"the mean rewards must have shape ({len(x)}, {len(z)}), a row a user and a column an item, "
                    f"got {table.shape}"
                )
        elif params.reward == "means":
            raise UserError(f"reward = means: there are none: give them, or one of {', '.join(REWARDS[:2])}")
        else:
            table = _bilinear(x, z, weights, params)
        _check_means(table, params)
        self.params = replace(params, n_users=len(x), n_items=len(z))
        self.user_features, self.item_features, self.means = x, z, table
        self.n_items = len(z)
        self.n_user_features = x.shape[1]

    def describe(self) -> dict[str, Any]:
        """See :meth:`World.describe`; matrices that were given are named by their digest."""
        told = super().describe()
        if self._given or self.params.file:
            sha = hashlib.sha256()
            for values in (self.user_features, self.item_features, self.means):
                sha.update(values.astype("<f8").tobytes())
            told["arrays"] = {"sha256": sha.hexdigest()}
        return told

    def rows_of(self, users: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) row of the features that each user is: their id modulo the number of rows."""
        return users % len(self.user_features)

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> FeatureLanes:
        """See :meth:`DecisionWorld.open_lanes`."""
        truth_column = self.truth_column if keep_truth else None
        return FeatureLanes(self.params, self.means, self.rows_of, n_lanes, truth_column=truth_column)

    def reward_means(self, state: Floats) -> Floats:
        """See :meth:`DecisionWorld.reward_means`: the state is the user's row."""
        return self.means[np.asarray(state)[:, 0].astype(np.int64)]

    def features_of(self, seed: int, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """See :meth:`DecisionWorld.features_of`."""
        return self.user_features[self.rows_of(users)].astype(np.float32)

    def truth_arrays(self, seed: int, n_users: int) -> dict[str, NDArray[Any]]:
        """See :meth:`World.truth_arrays`: a file that makes the same world again, as ``means``."""
        return {"user_features": self.user_features, "item_features": self.item_features, "means": self.means}


def _of_params(params: FeatureParams, weights: Any, means: Any) -> tuple[Any, Any, Any, Any]:
    """Matrices of a file, or drawn; and what the file has of weights and means."""
    if params.file:
        held = _arrays_of(params.file)
        for name in ("user_features", "item_features"):
            if name not in held:
                raise UserError(f"file {params.file} lacks {name!r}, a (rows, features) matrix of numbers")
        if params.reward == "means" and "means" not in held:
            raise UserError(f"file {params.file} lacks 'means', (users, items), which reward = means needs")
        given = held.get("means") if means is None and params.reward == "means" else means
        return held["user_features"], held["item_features"], held.get("weights") if weights is None else weights, given
    size = params.n_features
    x = rng.normals(params.catalogue_seed, Stream.USER, 0, (params.n_users, size))
    z = rng.normals(params.catalogue_seed, Stream.CATALOGUE, 0, (params.n_items, size))
    return x, z, np.eye(size) / np.sqrt(size) if weights is None else weights, means


def _arrays_of(file: str) -> dict[str, Any]:
    path = Path(file)
    try:
        return read_arrays(path)
    except FileNotFoundError:
        raise UserError(f"file {path} does not exist") from None


def _matrix(name: str, values: Any) -> Floats:
    """A copy as float64, (n, d), finite."""
    try:
        matrix = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a matrix of numbers") from None
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise UserError(f"{name} must be a matrix with a row and a column at least, got shape {matrix.shape}")
    bad = ~(np.abs(matrix) <= np.finfo(np.float32).max)
    if bad.any():
        row, column = np.argwhere(bad)[0].tolist()
        raise UserError(
            f"{name} must hold finite float32 numbers, got {matrix[row, column]} in row {row}, column {column}"
        )
    return matrix


def _bilinear(x: Floats, z: Floats, weights: Any, params: FeatureParams) -> Floats:
    """Offset + x W z, through the logistic curve where the parameters say so; (U, I).

    Summed in a fixed order: BLAS rounds by machine, and a last bit can move a reward.
    """
    if weights is None:
        if x.shape[1] != z.shape[1]:
            raise UserError(
                f"users have {x.shape[1]} features and items {z.shape[1]}: give weights ({x.shape[1]}, {z.shape[1]})"
            )
        seen = x
    else:
        w = _matrix("weights", weights)
        if w.shape != (x.shape[1], z.shape[1]):
            raise UserError(f"weights must have shape ({x.shape[1]}, {z.shape[1]}), got {w.shape}")
        seen = np.zeros((len(x), z.shape[1]))
        for d in range(x.shape[1]):
            seen += x[:, d, None] * w[d]
    score = np.full((len(x), len(z)), params.offset)
    for k in range(z.shape[1]):
        score += seen[:, k, None] * z[:, k]
    if params.reward == "linear":
        return score
    return 1.0 / (1.0 + elementary.exp(-score.ravel()).reshape(score.shape))


def _check_means(means: Floats, params: FeatureParams) -> None:
    outside = (means < 0) | (means > 1)
    if params.noise == 0 and outside.any():
        u, i = np.argwhere(outside)[0].tolist()
        raise UserError(
            f"the mean reward of user {u}, item {i} is {means[u, i]:g}: rewards of 0 or 1 need means in [0, 1]; use "
            "reward = logistic, or noise above 0 for rewards that are numbers"
        )
