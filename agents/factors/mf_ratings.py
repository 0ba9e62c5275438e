"""Matrix factorisation on revealed ratings: MF-IPS and MF-Naive of Schnabel et al. 2016, as agents."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.acting import GreedyPolicy, checked_items
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ratings import check_propensities
from recsim_mnar.kernels.checks import flag, one_of, whole_number
from recsim_mnar.kernels.lbfgs import NotConverged
from recsim_mnar.log import schema
from recsim_mnar.log.ratings import Ratings, split_folds
from recsim_mnar.models.factorization import FactorizationConfig, Factors, factorise, fold_in
from recsim_mnar.policies.base import Ints, Learner, Policy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


Floats = NDArray[np.float64]

SCORES = ("loss", "dcg")
_CHUNK_CELLS = 4_000_000
"""Largest number of predictions that are ranked at once, to bound memory."""
_CROSS_VALIDATED: dict[str, Any] = {"max_iterations": 3000, "value_tolerance": 1e-5}
"""Stopping rule of fits in cross-validation, less strict than that of the final fit."""


@dataclass(frozen=True)
class CrossValidation:
    """Result of a cross-validation between forms of the model.

    Attributes:
        best: the form with the best score.
        forms: all forms that were compared.
        scores: score of each form, the mean over folds of the IPS estimate of the loss (smaller is better) or of DCG
            (larger is better).
    """

    best: FactorizationConfig
    forms: tuple[FactorizationConfig, ...]
    scores: Floats


def cross_validate(
    ratings: Ratings,
    propensities: Any,
    forms: Sequence[FactorizationConfig],
    *,
    score: str = "loss",
    n_folds: int = 4,
    seed: int = 0,
) -> CrossValidation:
    """Choose the form of the model with the best IPS score on held-out ratings (Schnabel et al. 2016, section 6.1).

    Each of k folds is held out in turn. A rating is revealed and in the training folds with probability P (k - 1) / k,
    and revealed and held out with probability P / k, so these take the place of P.

    The score ``loss`` is the form's own loss, as in the paper, which suits the prediction of ratings. The score ``dcg``
    suits recommendations: it is the DCG (section 3) of each user's items outside the training folds, ranked by
    predicted rating. Under severe selection the loss is smallest for a model of offsets alone, which ranks the items
    equally for all users.

    Args:
        ratings: the n observed ratings of a (U, I) matrix.
        propensities: probability P with which each rating is revealed; (U, I), (n,), or one number.
        forms: forms to choose from.
        score: ``loss`` or ``dcg``.
        n_folds: number of folds k.
        seed: seed of the folds and of the fits' starting points.

    Raises:
        UserError: a propensity outside (0, 1], a fold without ratings, no form, an unknown score.
    """
    one_of(score, "score", SCORES)
    if not forms:
        raise UserError("cross-validation needs at least one form to choose from")
    p = check_propensities(ratings, propensities)
    fold = split_folds(len(ratings), n_folds, seed)
    scores = np.empty((len(forms), n_folds))
    n_failed = 0  # fits that did not converge
    for f in range(n_folds):
        in_training = fold != f
        train = ratings.select(in_training)
        test = ratings.select(~in_training)
        weights = 1.0 / (p[in_training] * ((n_folds - 1) / n_folds))
        for j, form in enumerate(forms):
            fit = factorise(train, weights, form, seed=seed, warn=False, **_CROSS_VALIDATED)
            n_failed += not fit.converged
            if score == "loss":
                scores[j, f] = held_out_loss(fit.factors, form, test, p[~in_training] / n_folds)
            else:
                scores[j, f] = held_out_dcg(fit.factors, train, test, p[~in_training], n_folds)
    mean = scores.mean(axis=1)
    best = mean.argmax()
    if score == "loss":
        best = mean.argmin()
    if n_failed:
        most = _CROSS_VALIDATED["max_iterations"]
        message = f"{n_failed} of {len(forms) * n_folds} cross-validation fits stopped at {most} iterations"
        warnings.warn(message, NotConverged, stacklevel=2)
    return CrossValidation(forms[int(best)], tuple(forms), mean)


def held_out_loss(factors: Factors, form: FactorizationConfig, test: Ratings, p: Floats) -> float:
    """Estimate a model's mean loss over all cells by IPS from held-out ratings.

    Args:
        factors: the fitted model.
        form: form of the model, which has the loss.
        test: held-out ratings.
        p: (n_test,) probability with which each of them is revealed and held out.
    """
    error = factors.at(test.users, test.items) - test.values
    if form.loss == "mse":
        loss = error * error
    else:
        loss = np.abs(error)
    return float((loss / p).sum() / (test.n_users * test.n_items))


def held_out_dcg(factors: Factors, train: Ratings, test: Ratings, p: Floats, n_folds: int) -> float:
    """Estimate a model's DCG per user over the items outside the training folds, by IPS from held-out ratings.

    A cell outside the k - 1 training folds is revealed and held out with probability (P / k) / (1 - P (k - 1) / k).

    Args:
        factors: the fitted model.
        train: ratings in the training folds.
        test: held-out ratings.
        p: (n_test,) probability P with which each of them is revealed.
        n_folds: number of folds k.
    """
    p_held_out = (p / n_folds) / (1.0 - p * ((n_folds - 1) / n_folds))
    discount = 1.0 / np.log2(1.0 + ranks_outside(factors, train, test))  # of rank 1: 1
    return float((discount * test.values / p_held_out).sum() / test.n_users)


def ranks_outside(factors: Factors, train: Ratings, test: Ratings) -> Floats:
    """Rank each test rating's item by prediction among its user's items outside ``train``, (n_test,), from 1.

    Tied items share their mean rank.
    """
    from scipy import sparse

    in_train = sparse.csr_array((np.ones(len(train), np.bool_), (train.users, train.items)), shape=train.shape)
    ranks = np.empty(len(test))
    n_at_once = max(1, _CHUNK_CELLS // train.n_items)
    for first in range(0, len(test), n_at_once):
        users = test.users[first : first + n_at_once]
        items = test.items[first : first + n_at_once]
        scores = factors.v[users] @ factors.w.T + factors.b
        own_scores = scores[np.arange(len(users)), items]
        scores[in_train[users].toarray()] = -np.inf
        better = (scores > own_scores[:, None]).sum(axis=1)
        tied = (scores == own_scores[:, None]).sum(axis=1)
        ranks[first : first + n_at_once] = 1.0 + better + 0.5 * (tied - 1)  # the item itself is among the tied ones
    return ranks


SCALED_PENALTIES = (3.0, 1.0, 0.3, 0.1, 0.05, 0.025)
"""Values of lambda sqrt(U I) that agents choose from.

The penalties of |V|^2 and |W|^2 amount to a penalty of the nuclear norm of V W'. For entries of the same size that norm
grows as sqrt(U I), while the loss is a mean over the matrix. So equal shrinkage takes a lambda proportional to
1 / sqrt(U I).
"""


class RatingMF(Learner):
    """Learner that factorises revealed ratings, each weighted by 1 / P(revealed), and ranks by predictions (MF-IPS).

    It reads a log's organic rows, in which ``reward`` is the rating and ``observation_propensity`` its P. The policy
    acts for new users, whose factors it fits to the ratings that they reveal, also in answer to recommendations.

    Args:
        rank: number of factors d.
        penalty: coefficient lambda of the squared factors; 0 to choose the best of :data:`SCALED_PENALTIES` by
            cross-validation.
        biases: ``regularised`` for offsets with the same penalty, or ``free`` for offsets without.
        loss: ``mse`` or ``mae``.
        folds: number of folds of cross-validation.
        score: score of cross-validation, ``dcg`` or ``loss``; see :func:`cross_validate`.
        unrated: recommend only items that the user has not rated, as long as there are any.
    """

    name = "mf-ips-ratings"
    needs = frozenset({"ratings"})
    weighted = True

    def __init__(
        self,
        rank: int = 5,
        penalty: float = 0.0,
        biases: str = "regularised",
        loss: str = "mse",
        folds: int = 4,
        score: str = "dcg",
        unrated: bool = False,
    ) -> None:
        if biases == "none":
            raise UserError("biases must be regularised or free: without offsets a user without ratings has no ranking")
        folds = whole_number(folds, "folds", 2)
        unrated = flag(unrated, "unrated")
        self.form = FactorizationConfig(rank=rank, penalty=penalty, biases=biases, loss=loss)
        self.folds = folds
        self.score = one_of(score, "score", SCORES)
        self.unrated = unrated

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`."""
        ratings, propensities = ratings_of(log, n_items, need_propensities=self.weighted)
        p = propensities
        if not self.weighted:  # the same P for all, their share of the cells
            p = np.full(len(ratings), ratings.density)
        cells = ratings.n_users * ratings.n_items
        form = self.form
        choice = {}
        if form.penalty == 0.0:
            forms = [
                FactorizationConfig(**{**form.to_dict(), "penalty": scaled / math.sqrt(cells)})
                for scaled in SCALED_PENALTIES
            ]
            result = cross_validate(ratings, p, forms, score=self.score, n_folds=self.folds, seed=seed)
            form = result.best
            scores = result.scores.tolist()
            tried = {f"{tried_form.penalty:.4g}": score for tried_form, score in zip(forms, scores, strict=True)}
            choice = {"score": self.score, "tried": tried}
        fit = factorise(ratings, 1.0 / p, form, seed=seed, max_iterations=5000, value_tolerance=1e-6)
        values, place = np.unique(ratings.values, return_inverse=True)
        # An answer to a recommendation is revealed for certain: P = 1.
        answer_weight = 1.0
        if not self.weighted:
            answer_weight = 1.0 / ratings.density
        parameters = {
            **form.to_dict(),
            "weighted": self.weighted,
            "unrated": self.unrated,
            "c": fit.factors.c,
            "answer_weight": answer_weight / cells,
            "cross_validation": choice,
        }
        return RatingMFPolicy(
            n_items,
            self.name,
            factors=fit.factors.w,
            offsets=fit.factors.b,
            values=values,
            weights=np.bincount(place, 1.0 / p) / np.bincount(place) / cells,  # mean 1 / P of each value
            parameters=parameters,
        )


class RatingMFNaive(RatingMF):
    """Learner that factorises revealed ratings as if revealed at random, and ranks by predictions (MF-Naive).

    Args:
        rank: number of factors d.
        penalty: coefficient lambda of the squared factors; 0 to choose the best of :data:`SCALED_PENALTIES` by
            cross-validation.
        biases: ``regularised`` for offsets with the same penalty, or ``free`` for offsets without.
        loss: ``mse`` or ``mae``.
        folds: number of folds of cross-validation.
        score: score of cross-validation, ``dcg`` or ``loss``; see :func:`cross_validate`.
        unrated: recommend only items that the user has not rated, as long as there are any.
    """

    name = "mf-naive-ratings"
    weighted = False


def ratings_of(log: Log, n_items: int, *, need_propensities: bool = True) -> tuple[Ratings, Floats]:
    """Read the ratings in a log's organic rows.

    Args:
        log: log with a rating as the reward of each organic row.
        n_items: number of items.
        need_propensities: read the column ``observation_propensity``.

    Returns:
        ratings: the n ratings, with users numbered from 0.
        propensities: (n,) probabilities with which they are revealed; 1 without ``need_propensities``.

    Raises:
        UserError: organic rows without ratings, an item out of range, or no known ``observation_propensity``.
    """
    organic = log["event"] == schema.ORGANIC
    values = log["reward"][organic]
    if not organic.any():
        raise UserError("the log has no organic rows: this agent learns from revealed ratings")
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(organic)[~np.isfinite(values)][0])
        raise UserError(f"row {row} of the log is organic and has no rating (reward): this agent learns from ratings")
    _, users = np.unique(log["user"][organic], return_inverse=True)
    items = checked_items(log["item"][organic], n_items).astype(np.int64)
    ratings = Ratings(users, items, values, int(users.max()) + 1, n_items)
    if not need_propensities:
        return ratings, np.ones(len(ratings))
    if "observation_propensity" not in log.columns:
        raise UserError(
            "the log has no column 'observation_propensity', the probability with which each rating is revealed: "
            "estimate it (recsim_mnar.estimators.ratings), or use mf-naive-ratings"
        )
    p = log["observation_propensity"][organic]
    bad = ~((p > 0.0) & (p <= 1.0))
    if bad.any():
        row = int(np.flatnonzero(organic)[bad][0])
        raise UserError(f"row {row} of the log: observation_propensity must be in (0, 1], got {p[bad][0]:g}")
    return ratings, p


class RatingMFPolicy(GreedyPolicy):
    """Policy that recommends the item with the largest predicted rating; users' factors are fitted to their ratings.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        factors: (n_items, d) items' factors W.
        offsets: (n_items,) items' offsets b.
        values: (r,) distinct ratings in the training data, ascending.
        weights: (r,) mean weight of a training rating of each value, which a new user's rating of this value gets
            because its propensity is unknown.
        parameters: the learner's parameters, for provenance; ``penalty``, ``biases``, ``c``, ``unrated`` and
            ``answer_weight`` are used.
    """

    batches_decisions = False  # it learns from every answer
    ranks_strangers = True  # by the offsets
    predicts_ratings = True
    learns = "own user"

    def __init__(
        self,
        n_items: int,
        name: str,
        *,
        factors: Floats,
        offsets: Floats,
        values: Floats,
        weights: Floats,
        parameters: Mapping[str, Any],
    ) -> None:
        no_users = np.zeros(0)
        self._model = Factors(np.zeros((0, factors.shape[1])), factors, no_users, offsets, float(parameters["c"]))
        arrays = {"factors": factors, "offsets": offsets, "values": values, "weights": weights}
        super().__init__(n_items, name, arrays, parameters)

    def _start(self) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.SlotPolicy._start`."""
        self._ratings: dict[int, dict[int, tuple[float, float]]] = {}  # by slot and item: (rating, weight)
        super()._start()

    def _clear(self, slots: NDArray[np.int64]) -> None:
        """Implement :meth:`recsim_mnar.agents.acting.SlotPolicy._clear`."""
        super()._clear(slots)
        for slot in slots.tolist():
            self._ratings.pop(slot, None)

    def observe_ratings(self, users: Ints, items: Ints, ratings: Floats) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.observe_ratings`."""
        values = self._arrays["values"]
        # Index of the training value nearest to each rating: the one above it, or the one before that if not further.
        above = np.clip(np.searchsorted(values, ratings), 1, max(len(values) - 1, 1))
        value_above = values[above % len(values)]  # with a single value, that value
        nearest = above - (np.abs(ratings - values[above - 1]) <= np.abs(value_above - ratings))
        self._store(users, items, np.asarray(ratings, np.float64), self._arrays["weights"][nearest])

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.learn`: store each reward as a rating of the recommended item.

        A reward below every training rating is none: the world gives it for an item that was rated before, unless its
        ``repeat_pays`` is on.
        """
        rewards = np.asarray(rewards, np.float64)
        rated = rewards >= self._arrays["values"][0]
        weight = np.full(int(rated.sum()), float(self._parameters["answer_weight"]))
        self._store(np.asarray(users)[rated], np.asarray(actions)[rated], rewards[rated], weight)

    def _store(self, users: Ints, items: Ints, ratings: Floats, weights: Floats) -> None:
        """Store ratings with their weights, (m,) each; a user's first rating of an item is kept."""
        slots = self._slots.find(users)
        columns = (slots, checked_items(items, self.n_items), ratings, weights)
        for slot, item, rating, weight in zip(*(column.tolist() for column in columns), strict=True):
            self._ratings.setdefault(slot, {}).setdefault(item, (rating, weight))
        self._ties[slots] = 0  # best items are to be computed again

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Fit the factors of the slots' users to their ratings, and predict all ratings, (n, n_items)."""
        by_slot = [self._ratings.get(slot, {}) for slot in slots.tolist()]
        owner = np.repeat(np.arange(len(slots)), [len(by_item) for by_item in by_slot])
        items = np.array([item for by_item in by_slot for item in by_item], np.int64)
        pairs = np.array([pair for by_item in by_slot for pair in by_item.values()]).reshape(-1, 2)
        values, weights = pairs.T
        ratings = Ratings(owner, items, values, len(slots), self.n_items)
        penalty = float(self._parameters["penalty"])
        bias_penalty = penalty
        if self._parameters["biases"] == "free":
            bias_penalty = 0.0
        v, a = fold_in(self._model, ratings, weights, penalty, bias_penalty=bias_penalty)  # users' factors, offsets
        scores = self._model.b + self._model.c + a[:, None]
        for k in range(v.shape[1]):  # in a fixed order: a product of matrices may round by its shape
            scores += v[:, k : k + 1] * self._model.w[:, k]
        if self._parameters["unrated"]:
            has_rated_all = np.bincount(owner, minlength=len(slots)) == self.n_items
            excluded = ~has_rated_all[owner]
            scores[owner[excluded], items[excluded]] = -np.inf
        return scores.astype(np.float32)
