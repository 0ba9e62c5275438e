"""Matrix factorisation on a bandit log: a user's factors are a linear map of the user's view counts.

Schnabel et al. 2016 put to the job of recommending: the "users" of the factorisation are the contexts in which
something was recommended, x = h / (n + shrinkage) for n views with counts h, and each recorded reward is weighted by
1 / propensity. The map from x to factors and the items' factors are learned together, from the log's views and its
rewards (:mod:`recsim_mnar.models.bandit` says how). A user never seen in training is folded in from views alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.acting import GreedyPolicy, MappedViews
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, whole_number
from recsim_mnar.models.bandit import Contexts, ItemParameters, JointObjective, RewardMoments, Ridge, ViewMap, check_log
from recsim_mnar.policies.base import Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Floats = NDArray[np.float64]

SPREADS = (
    0.00125,
    0.0018,
    0.0025,
    0.003,
    0.0035,
    0.004,
    0.005,
    0.006,
    0.007,
    0.0085,
    0.01,
    0.014,
    0.02,
    0.03,
    0.06,
    0.2,
    1.0,
)
"""Values of ``spread`` tried in cross-validation, in units of the reward's standard deviation."""
OFFSET_SPREADS = (0.01, 0.03, 0.06, 0.12, 0.3, 1.0)
"""Values of ``offset_spread`` tried in cross-validation, in the same unit."""
MAP_SPREADS = (0.0, 0.1)
"""Values of ``map_spread`` tried in cross-validation, in units of the standard deviation of a user's factors."""


class MFIPS(Learner):
    """Learner of a factorisation of the recorded rewards, each weighted by 1 / propensity.

    Parameters that are ``auto`` are chosen by cross-validation on the training log alone, by the IPS score: the
    weighted squared error of held-out users' rewards.

    Args:
        rank: number of factors.
        shrinkage: number added to a user's number of views, so that few views give small factors.
        spread: prior standard deviation of an item's factors around those that the views give, in units of the
            reward's standard deviation.
        offset_spread: prior standard deviation of an item's mean reward around that of all items, in the same unit.
        map_spread: prior standard deviation of the map from views to factors around the one that the views give; with 0
            rewards do not change the map.
        folds: number of folds of users in cross-validation.
        clip: largest weight in units of a uniform recommendation's; 0 for no limit.
    """

    name = "mf-ips"
    needs = frozenset({"outcomes"})
    weighted: ClassVar[bool] = True

    def __init__(
        self,
        rank: int = 5,
        shrinkage: float = 2.0,
        spread: float | str = "auto",
        offset_spread: float | str = "auto",
        map_spread: float | str = "auto",
        folds: int = 5,
        clip: float = 0.0,
    ) -> None:
        for key, number, least in (("rank", rank, 1), ("folds", folds, 2)):
            whole_number(number, f"{self.name}: {key}", least)
        number_in(shrinkage, f"{self.name}: shrinkage", ends="(]")
        for key, value, ends in (  # "[]": 0 is allowed
            ("spread", spread, "(]"),
            ("offset_spread", offset_spread, "(]"),
            ("map_spread", map_spread, "[]"),
        ):
            if value != "auto":
                number_in(value, f"{self.name}: {key} (or auto)", ends=ends)
        number_in(clip, f"{self.name}: clip", ends="[]")
        self.rank = int(rank)
        self.folds = int(folds)
        self.clip = float(clip)
        self.shrinkage = float(shrinkage)
        self.spread = spread
        self.offset_spread = offset_spread
        self.map_spread = map_spread

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; reads bandit rows, and the views before each of them."""
        problem = _Problem(self, log, n_items, seed)
        ridge, map_spread = problem.choose()
        view_map, solution = problem.solve(ridge, map_spread)
        moments = problem.moments  # they have the scale on which the solution predicts rewards
        parameters = {
            "rank": view_map.mapping.shape[1],
            "shrinkage": self.shrinkage,
            "spread": ridge.spread,
            "offset_spread": ridge.offset_spread,
            "map_spread": map_spread,
            "clip": self.clip,
            "trained_on": int(moments.rows.sum()),
        }
        return MFPolicy(
            n_items,
            self.name,
            mapping=view_map.mapping,
            factors=moments.sd * solution.factors.T,
            offsets=moments.mean + moments.sd * (solution.offsets - solution.factors @ view_map.centre),
            parameters=parameters,
        )

    def chosen_on(self, log: Log, *, n_items: int, seed: int = 0) -> Self:
        """Return a copy with each ``auto`` parameter chosen on a log, to be fitted on parts of it without choosing."""
        problem = _Problem(self, log, n_items, seed)
        ridge, map_spread = problem.choose()
        twin = copy.copy(self)
        twin.spread = ridge.spread
        twin.offset_spread = ridge.offset_spread
        twin.map_spread = map_spread
        return twin


class MFNaive(MFIPS):
    """Learner of the same factorisation without weights, as if recommendations had been drawn uniformly."""

    name = "mf-naive"
    weighted = False


class _Problem:
    """Learning problem of an :class:`MFIPS`: its parameters, a log, and the sums over the log that all fits use.

    Args:
        learner: the learner.
        log: the training log.
        n_items: number of items.
        seed: seed of the map from views and of the folds.

    Attributes:
        weights: (n,) weight of each recommendation, 1 on average.
        view_map: map from view counts to factors, by the log's views.
        moments: weighted sums of rewards and factors, by fold.
    """

    def __init__(self, learner: MFIPS, log: Log, n_items: int, seed: int) -> None:
        self.learner = learner
        self.log = log
        self.n_items = n_items
        self.seed = seed
        bandit = check_log(log, n_items)
        self.weights = np.ones(int(bandit.sum()))
        if learner.weighted:
            self.weights = 1.0 / (n_items * log["propensity"][bandit])
            if learner.clip:
                self.weights = np.minimum(self.weights, learner.clip)
            # On average 1: a common factor of all weights would change the meaning of the spreads.
            self.weights /= self.weights.mean()
        self.view_map = ViewMap.from_log(log, n_items, rank=learner.rank, shrinkage=learner.shrinkage, seed=seed)
        folds = 1
        if "auto" in (learner.spread, learner.offset_spread, learner.map_spread):
            folds = learner.folds
        self.moments = RewardMoments.from_log(log, bandit, self.view_map, self.weights, folds=folds, seed=seed)
        self._contexts: Contexts | None = None  # read from the log when first needed

    def choose(self) -> tuple[Ridge, float]:
        """Choose the parameters that are ``auto``, one after another, by cross-validation.

        Returns:
            ridge: the spreads of items' factors and offsets.
            map_spread: the spread of the map.

        Raises:
            UserError: a fold without recommendations.
        """
        learner = self.learner
        folds = len(self.moments.rows)
        if folds > 1 and self.moments.rows.min() == 0:
            empty = int(self.moments.rows.argmin())
            raise UserError(
                f"{learner.name}: fold {empty} of {folds} has no recommendations: give more users, or set spread=, "
                "offset_spread= and map_spread="
            )
        offset = learner.offset_spread
        if offset == "auto":
            # With a spread that shrinks factors to almost nothing: they hardly change which offset spread is best.
            offset = min(OFFSET_SPREADS, key=lambda s: self._score(Ridge(1e-6, s)).sum())
        spread = learner.spread
        if spread == "auto":
            spread = _smallest_good(SPREADS, [self._score(Ridge(s, float(offset))) for s in SPREADS])
        ridge = Ridge(float(spread), float(offset))
        map_spread = learner.map_spread
        if map_spread == "auto":
            map_spread = _smallest_good(MAP_SPREADS, [self._score(ridge, s) for s in MAP_SPREADS])
        return ridge, float(map_spread)

    def _score(self, ridge: Ridge, map_spread: float = 0.0) -> Floats:
        """Return each fold's weighted squared error on held-out users minus that of predicting the mean, (folds,)."""
        scores = np.empty(len(self.moments.rows))
        for fold in range(len(scores)):
            if map_spread == 0.0:
                solution = self.moments.solve(self.view_map.places, ridge, without=fold)
                scores[fold] = self.moments.held_out_error(solution, fold)
            else:
                view_map, solution = self.solve(ridge, map_spread, without=fold)
                scores[fold] = self._held_out_error(view_map, solution, fold)
        return scores

    def solve(self, ridge: Ridge, map_spread: float, without: int | None = None) -> tuple[ViewMap, ItemParameters]:
        """Fit the model to all users, or to those outside one fold.

        Args:
            ridge: spreads of items' factors and offsets.
            map_spread: spread of the map; 0 keeps the map that the views give.
            without: number of the fold that is left out; None for none.

        Returns:
            view_map: map from view counts to factors.
            solution: items' factors and offsets.
        """
        solution = self.moments.solve(self.view_map.places, ridge, without=without)
        if map_spread == 0.0 or self.view_map.mapping.shape[1] == 0:
            return self.view_map, solution
        data, rewards, fold = self._standardised_rows()
        scale = self.moments.scale(without)
        kept = np.ones(len(rewards), bool)
        if without is not None:
            kept = fold != without
        # Both map and items are fitted together, from the solution for the fixed map on; in standard units of the rows.
        objective = JointObjective(
            data.select(kept),
            (self.weights / scale.noise[data.actions])[kept],
            (rewards[kept] - scale.mean) / scale.sd,
            view_map=self.view_map,
            solution=solution.rescaled(1.0 / scale.sd, -scale.mean / scale.sd),
            ridge=ridge,
            map_spread=map_spread,
        )
        view_map, solution, _ = objective.fit()
        return view_map, solution.rescaled(scale.sd, scale.mean)

    def _standardised_rows(self) -> tuple[Contexts, Floats, NDArray[np.int64]]:
        """Return the single recommendations of the log.

        Returns:
            data: contexts and actions.
            rewards: (n,) standardised rewards.
            fold: (n,) fold of each recommendation's user.
        """
        if self._contexts is None:
            self._contexts = Contexts.from_log(self.log, self.n_items, shrinkage=self.learner.shrinkage)
        data = self._contexts
        moments = self.moments
        fold = moments.fold_of(data.user_of_context, self.seed)[data.context]
        return data, (data.rewards - moments.mean) / moments.sd, fold

    def _held_out_error(self, view_map: ViewMap, solution: ItemParameters, fold: int) -> float:
        """Return the weighted squared error in a fold minus that of predicting the mean, which is 0 after scaling."""
        data, rewards, fold_of_row = self._standardised_rows()
        rows = np.flatnonzero(fold_of_row == fold)
        user_factors = data.features @ view_map.mapping - view_map.centre  # by context
        u = user_factors[data.context[rows]]
        actions = data.actions[rows]
        predicted = np.einsum("nk,nk->n", u, solution.factors[actions]) + solution.offsets[actions]
        # (predicted - reward)^2 - reward^2 = predicted (predicted - 2 reward)
        return float((self.weights[rows] * predicted * (predicted - 2.0 * rewards[rows])).sum())


def _smallest_good(values: Sequence[float], scores: Sequence[Floats]) -> float:
    """Return the smallest value, which shrinks most, whose score is within one standard error of the best.

    The rule of one standard error (Breiman et al. 1984) is used because a policy takes the largest of many predictions,
    and so suffers more from too little shrinkage than from too much.

    Args:
        values: values of a parameter, ascending.
        scores: (folds,) score of each value; smaller is better.
    """
    best = min(scores, key=np.sum)
    for value, score in zip(values, scores, strict=True):
        excess = score - best  # by fold
        if excess.sum() <= math.sqrt(len(excess)) * excess.std(ddof=1):  # one standard error of the sum
            return value
    raise AssertionError("the best value is as good as itself")


class MFPolicy(MappedViews, GreedyPolicy):
    """Policy that recommends the item a with the largest predicted reward (h M) . w_a / (n + shrinkage) + b_a.

    A user has n views with counts h; h M is updated with each view. Scores are in units of the reward, and so is a
    ``+temperature``: use about .001 if one recommendation in a hundred is clicked.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        mapping: (n_items, d) map M from view counts to a user's factors.
        factors: (d, n_items) items' factors, w_a in column a.
        offsets: (n_items,) items' offsets b_a.
        parameters: the learner's parameters, for provenance; ``shrinkage`` is used.
    """

    ranks_strangers = True  # by the offsets

    def __init__(
        self,
        n_items: int,
        name: str,
        *,
        mapping: NDArray[Any],
        factors: NDArray[Any],
        offsets: NDArray[Any],
        parameters: Mapping[str, Any],
    ) -> None:
        self._mapping = mapping
        # The offsets are one more factor, by which users have 1. The kernel needs a multiple of four rows.
        self._width = len(factors)
        n_rows = -(-(self._width + 1) // 4) * 4
        self._factors = np.zeros((n_rows, n_items), np.float32)
        self._factors[: self._width] = factors
        self._factors[self._width] = offsets
        self._shrinkage = float(parameters["shrinkage"])
        arrays = {"mapping": mapping, "factors": self._factors[: self._width], "offsets": offsets}
        super().__init__(n_items, name, arrays, parameters)

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Implement :meth:`recsim_mnar.agents.acting.GreedyPolicy._score`."""
        from recsim_mnar.agents.factors import _factors_kernel

        states = np.zeros((len(slots), len(self._factors)), np.float32)
        n_views = self._views[slots]
        states[:, : self._width] = self._sums[slots] / (n_views + self._shrinkage)[:, None]
        states[:, self._width] = 1.0  # multiplies the offsets
        out = np.empty((len(slots), self.n_items), np.float32)
        _factors_kernel.project(states, np.arange(len(slots)), self._factors, out)
        return out
