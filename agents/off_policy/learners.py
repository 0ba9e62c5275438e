"""Learners of softmax policies from a bandit log: POEM, BanditNet, doubly robust, and cross-entropy weighted by reward.

All fit the weights of :class:`~recsim_mnar.agents.off_policy.learners.HistorySoftmax` on factors that the log's views
give (:class:`recsim_mnar.models.factorization.ViewMap`), by Adam (Kingma & Ba 2015) on minibatches of contexts.
Rewards are divided by their mean, so that settings have no unit.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.agents.acting import DrawingPolicy, MappedViews
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, one_of, whole_number
from recsim_mnar.models.bandit import Contexts, ViewMap, check_log
from recsim_mnar.policies.base import Floats, Ints, Learner, Scores

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


class HistorySoftmax(MappedViews, DrawingPolicy):
    """Softmax policy on the user's views: item a has a probability proportional to exp(weights_a . (1, x M - centre)).

    For a user with n views and view counts h, x = h / (n + shrinkage). Every item has a positive probability unless it
    is below e^-700 times the largest one.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        mapping: (n_items, K) map M from view counts to factors.
        centre: (K,) vector that is subtracted from the factors.
        weights: (n_items, K + 1) weights of the constant 1 and of the factors.
        parameters: the learner's parameters, for provenance; ``shrinkage`` is used.
    """

    def __init__(
        self,
        n_items: int,
        name: str,
        *,
        mapping: NDArray[Any],
        centre: NDArray[Any],
        weights: NDArray[Any],
        parameters: Mapping[str, Any],
    ) -> None:
        self._mapping = mapping
        self._centre = centre
        self._weights = np.ascontiguousarray(weights, np.float64)
        self._shrinkage = float(parameters["shrinkage"])
        arrays = {"mapping": mapping, "centre": centre, "weights": self._weights}
        super().__init__(n_items, name, arrays, parameters)

    def _features(self, users: Ints) -> Floats:
        """Return the regressors (1, x M - centre) of n users, (n, K + 1)."""
        slots = self._slots.find(users)
        factors = self._sums[slots] / (self._views[slots] + self._shrinkage)[:, None] - self._centre
        return np.concatenate([np.ones((len(slots), 1)), factors], axis=1)

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.policies.Policy.probabilities`."""
        from recsim_mnar.agents.off_policy import _off_policy_kernel

        features = self._features(users)
        out = np.empty((len(features), self.n_items))
        _off_policy_kernel.probabilities(features, self._weights, out)
        return out

    def scores(self, users: Ints) -> Scores:
        """Return the logits of all items for n users, (n, n_items)."""
        features = self._features(users)
        out = np.zeros((len(users), self.n_items))
        for d in range(features.shape[1]):  # in a fixed order: a product of matrices rounds by its shape
            out += features[:, d, None] * self._weights[:, d]
        return out


@dataclass(frozen=True)
class LoggedContexts:
    """The n recommendations of a log grouped by context, a user's views at that time; there are C contexts.

    Attributes:
        starts: (C + 1,) index of each context's first recommendation, and n at the end.
        features: (C, K + 1) regressors (1, x M - centre) of each context.
        actions: (n,) int64 recommended items.
        propensities: (n,) their probabilities.
        rewards: (n,) their rewards.
        centre: (K,) mean of the factors x M over the recommendations.
    """

    starts: NDArray[np.int64]
    features: Floats
    actions: NDArray[np.int64]
    propensities: Floats
    rewards: Floats
    centre: Floats

    @classmethod
    def of(cls, log: Log, mapping: Floats, *, shrinkage: float) -> LoggedContexts:
        """Collect the recommendations of a log.

        Args:
            log: the log.
            mapping: (n_items, K) map M from view counts to factors.
            shrinkage: number added to a user's number of views, by which view counts are divided.

        Raises:
            UserError: the log has no recommendations, or invalid ones.
        """
        data = Contexts.from_log(log, len(mapping), shrinkage=shrinkage)
        n_contexts = data.features.shape[0]
        starts = np.searchsorted(data.context, np.arange(n_contexts + 1)).astype(np.int64)
        features = np.ascontiguousarray(np.concatenate([np.ones((n_contexts, 1)), data.features @ mapping], axis=1))
        n_rows = np.diff(starts)  # recommendations of each context
        centre = (n_rows @ features[:, 1:]) / n_rows.sum()
        features[:, 1:] -= centre
        propensities, rewards = (
            np.ascontiguousarray(column, np.float64) for column in (data.propensities, data.rewards)
        )
        return cls(starts, features, data.actions, propensities, rewards, centre)


_FIRST_EPOCH = 100
"""Address of the draws that order the first epoch's contexts; other learners use smaller addresses of the stream."""


class OffPolicyLearner(Learner):
    """Base of learners that fit a softmax policy by Adam on minibatches of contexts.

    Args:
        rank: number of factors of the views.
        shrinkage: number added to a user's number of views, so that few views give small factors.
        penalty: coefficient of half the squared weights, which is added to the objective; rewards have mean 1 there.
        epochs: number of passes over the log.
        rate: Adam's first step size; it falls linearly to 0.
        batch: number of contexts in a minibatch.
        sharpness: factor by which the logits of the fitted policy are multiplied.
        **own: parameters of the subclass, which are checked to be numbers.

    Attributes:
        by_ratio: True if the self-normalised estimate is maximised.
    """

    needs = frozenset({"outcomes"})
    by_ratio: ClassVar[bool] = False

    def __init__(
        self,
        *,
        rank: int = 5,
        shrinkage: float = 2.0,
        penalty: float = 1e-3,
        epochs: int = 20,
        rate: float = 0.05,
        batch: int = 512,
        sharpness: float = 1.0,
        **own: float,
    ) -> None:
        self.settings: dict[str, Any] = {}
        for key, number in (("rank", rank), ("epochs", epochs), ("batch", batch)):
            self.settings[key] = whole_number(number, f"{self.name}: {key}", 1)
        for key, value in (("shrinkage", shrinkage), ("rate", rate), ("sharpness", sharpness)):
            self.settings[key] = number_in(value, f"{self.name}: {key}", ends="(]")
        self.settings["penalty"] = number_in(penalty, f"{self.name}: penalty", ends="[]")  # 0 is allowed
        for key, value in own.items():
            if key != "clip":
                self.settings[key] = number_in(value, f"{self.name}: {key}", ends="[]")
            elif value == math.inf:  # no clip
                self.settings[key] = value
            else:
                self.settings[key] = number_in(value, f"{self.name}: {key}", ends="(]")

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> HistorySoftmax:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; reads bandit rows, and the views before each of them."""
        check_log(log, n_items)
        mapping, model = self.factors(log, n_items, seed)
        data = LoggedContexts.of(log, mapping, shrinkage=self.settings["shrinkage"])
        mean = float(data.rewards.mean())
        if not mean > 0.0:  # also NaN
            raise UserError(f"{self.name}: the log's mean reward is {mean:g}: there is nothing to learn from it")
        objective = self.objective(data, mean, _centred_model(model, data.centre))
        weights = self._descend(objective, data, n_items, seed)
        parameters = {**self.settings, "trained_on": len(data.actions)}
        return HistorySoftmax(
            n_items,
            self.name,
            mapping=mapping,
            centre=data.centre,
            weights=self.settings["sharpness"] * weights,
            parameters=parameters,
        )

    def factors(self, log: Log, n_items: int, seed: int) -> tuple[Floats, Floats]:
        """Compute what is fitted before the policy: the map from views to factors, and the reward model.

        Returns:
            mapping: (P, K) map M from view counts of P items to K factors.
            model: (P, K + 1) linear reward model of each item on (1, x M); zeros for learners without such a model.
        """
        view_map = ViewMap.from_log(
            log, n_items, rank=self.settings["rank"], shrinkage=self.settings["shrinkage"], seed=seed
        )
        return view_map.mapping, np.zeros((n_items, view_map.mapping.shape[1] + 1))

    def objective(self, data: LoggedContexts, mean: float, model: Floats) -> Objective:
        """Return the objective to minimise.

        Args:
            data: recommendations of the log.
            mean: mean reward, by which rewards and model are to be divided.
            model: (P, K + 1) linear reward model of each item on (1, x M - centre).
        """
        variance = self.settings.get("variance", 0.0)
        return ImportanceWeighted(
            data, mean, model, clip=self.settings["clip"], variance=variance, by_ratio=self.by_ratio
        )

    def _descend(self, objective: Objective, data: LoggedContexts, n_items: int, seed: int) -> Floats:
        """Minimise the objective by Adam (Kingma & Ba 2015), and return the weights (P, K + 1).

        The first weights are 0, those of the uniform policy; each epoch has the contexts in another random order.
        """
        n_contexts = len(data.features)
        batch = self.settings["batch"]
        weights = np.zeros((n_items, data.features.shape[1]))
        first_moment = np.zeros_like(weights)
        second_moment = np.zeros_like(weights)
        gradient = np.zeros_like(weights)
        step = 0
        n_steps = self.settings["epochs"] * -(-n_contexts // batch)  # minibatches of an epoch, rounded up
        for epoch in range(self.settings["epochs"]):
            objective.prepare(weights)
            order = np.argsort(rng.uniforms(seed, rng.Stream.FIT, np.arange(n_contexts), _FIRST_EPOCH + epoch))
            for begin in range(0, n_contexts, batch):
                gradient[:] = 0.0
                sums = objective.add(order[begin : begin + batch], weights, gradient)
                gradient /= max(sums[_N_ROWS], 1.0)
                gradient += self.settings["penalty"] * weights
                step += 1
                # Decay rates .9 and .999, and the bias corrections, are those of the paper.
                first_moment += 0.1 * (gradient - first_moment)
                second_moment += 0.001 * (gradient**2 - second_moment)
                step_size = self.settings["rate"] * (1.0 - (step - 1.0) / n_steps)  # falls linearly to 0
                deviation = np.sqrt(second_moment / (1.0 - 0.999**step)) + 1e-10  # above 0 without a gradient, too
                weights -= step_size * first_moment / (1.0 - 0.9**step) / deviation
        return weights


_N_ROWS = 4
"""Index of the number of rows in the sums of an objective: u, u^2, w, w r, number of rows."""


class Objective(abc.ABC):
    """Objective of learning, a sum over the log's recommendations, computed with its gradient context by context."""

    def __init__(self, data: LoggedContexts, n_items: int) -> None:
        self.data = data
        self._scratch = np.empty((3, n_items))  # rows of the kernels, by item

    def prepare(self, weights: Floats) -> None:
        """Compute, before an epoch, the terms of the objective that depend on the whole log."""

    @abc.abstractmethod
    def add(self, contexts: NDArray[np.int64], weights: Floats, gradient: Floats) -> Floats:
        """Add the gradient over the recommendations of some contexts to ``gradient``, and return their sums (5,).

        The sums are those of u, u^2, w, w r, and the number of rows, as the kernel defines them.
        """

    def whole(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the sums (5,) over the whole log, and the mean gradient of a recommendation, (P, K + 1)."""
        gradient = np.zeros_like(weights)
        sums = self.add(np.arange(len(self.data.features)), weights, gradient)
        return sums, gradient / sums[_N_ROWS]


class ImportanceWeighted(Objective):
    """Importance-weighted objective: -mean u + variance sqrt(Var u / n) over the n recommendations.

    u = w (r - q) + sum_b pi_b q_b is a recommendation's term of the doubly robust estimate, with the weight
    w = min(pi / p, clip) and the reward model q, which is 0 for IPS. The standard error is replaced by its tangent at
    the weights with which an epoch begins, which bounds it from above (Swaminathan & Joachims 2015, section 5.2). With
    ``by_ratio`` the model q is the constant sum w r / sum w at these weights: the gradient is then that of this ratio,
    the self-normalised estimate.

    Args:
        data: recommendations of the log.
        mean: mean reward, by which rewards and model are divided.
        model: (P, K + 1) linear reward model of each item.
        clip: largest weight.
        variance: factor of the standard error.
        by_ratio: maximise the self-normalised estimate.
    """

    def __init__(
        self,
        data: LoggedContexts,
        mean: float,
        model: Floats,
        *,
        clip: float,
        variance: float = 0.0,
        by_ratio: bool = False,
    ) -> None:
        super().__init__(data, len(model))
        self._rewards = data.rewards / mean
        self._model = model / mean
        self._clip = clip
        self._variance = variance
        self._by_ratio = by_ratio
        self._slope = self._centre = 0.0

    def prepare(self, weights: Floats) -> None:
        """Implement :meth:`Objective.prepare`."""
        self._slope = self._centre = 0.0  # of the tangent to the standard error, see the class
        if not (self._variance or self._by_ratio):
            return
        if self._by_ratio:
            self._model = np.zeros_like(self._model)
        sums, _ = self.whole(weights)
        u, u_squared, w, w_r, n = sums.tolist()
        if self._by_ratio:
            self._model[:, 0] = w_r / w
        elif n > 1:
            variance = (u_squared - u * u / n) / (n - 1.0)
            if variance > 0.0:
                self._centre = u / n
                self._slope = self._variance * n / ((n - 1.0) * math.sqrt(variance * n))

    def add(self, contexts: NDArray[np.int64], weights: Floats, gradient: Floats) -> Floats:
        """Implement :meth:`Objective.add`."""
        from recsim_mnar.agents.off_policy import _off_policy_kernel

        data = self.data
        sums = np.zeros(5)
        _off_policy_kernel.weighted(
            contexts,
            data.starts,
            data.features,
            data.actions,
            data.propensities,
            self._rewards,
            weights,
            self._model,
            np.array([self._clip, self._slope, self._centre]),
            self._scratch,
            sums,
            gradient,
        )
        return sums


class CrossEntropy(Objective):
    """Cross-entropy with the recommended actions: the mean of -cost log pi(a|x).

    Args:
        data: recommendations of the log.
        costs: (n,) weight of each recommendation, not negative.
        n_items: number of items.
    """

    def __init__(self, data: LoggedContexts, costs: Floats, n_items: int) -> None:
        super().__init__(data, n_items)
        self._costs = costs

    def add(self, contexts: NDArray[np.int64], weights: Floats, gradient: Floats) -> Floats:
        """Implement :meth:`Objective.add`; only the first sum, the objective, and the number of rows are computed."""
        from recsim_mnar.agents.off_policy import _off_policy_kernel

        data = self.data
        sums = np.zeros(5)
        _off_policy_kernel.cross_entropy(
            contexts, data.starts, data.features, data.actions, self._costs, weights, self._scratch, sums, gradient
        )
        return sums


class POEM(OffPolicyLearner):
    """Learner of a softmax policy by clipped IPS minus its standard error (POEM, Swaminathan & Joachims 2015).

    Args:
        clip: largest importance weight.
        variance: factor of the standard error that is subtracted from the estimate (equation 12).
        **settings: parameters of :class:`OffPolicyLearner`.
    """

    name = "poem"

    def __init__(self, clip: float = 100.0, variance: float = 1.0, **settings: Any) -> None:
        super().__init__(clip=clip, variance=variance, **settings)


class BanditNet(OffPolicyLearner):
    """Learner of a softmax policy by self-normalised IPS (BanditNet, Joachims, Swaminathan & de Rijke 2018).

    The ratio sum w r / sum w is maximised by steps along the gradient of sum w (r - lambda), their equation 11. The
    paper tries a grid of lambda; here lambda is the ratio itself, computed before each epoch.

    Args:
        clip: largest importance weight.
        **settings: parameters of :class:`OffPolicyLearner`.
    """

    name = "banditnet"
    by_ratio = True

    def __init__(self, clip: float = 100.0, **settings: Any) -> None:
        super().__init__(clip=clip, **settings)


class DRPolicy(OffPolicyLearner):
    """Learner of a softmax policy by the doubly robust estimate (Dudik, Langford & Li 2011), with ``mf-ips`` as model.

    Args:
        clip: largest importance weight of the model's errors.
        variance: factor of the standard error that is subtracted from the estimate.
        **settings: parameters of :class:`OffPolicyLearner`.
    """

    name = "dr-policy"

    def __init__(self, clip: float = 100.0, variance: float = 0.0, **settings: Any) -> None:
        super().__init__(clip=clip, variance=variance, **settings)

    def factors(self, log: Log, n_items: int, seed: int) -> tuple[Floats, Floats]:
        """Implement :meth:`OffPolicyLearner.factors`."""
        return reward_model(log, n_items, rank=self.settings["rank"], shrinkage=self.settings["shrinkage"], seed=seed)


class RewardCrossEntropy(OffPolicyLearner):
    """Learner of a softmax policy by cross-entropy with the recorded actions, weighted by their rewards.

    The fitted probabilities tend to be proportional to each item's expected reward times the logging policy's
    probability, or with ``weight="ips"`` to the expected reward alone.

    Args:
        weight: ``reward``, or ``ips`` for reward / propensity.
        clip: largest 1 / propensity, in units of a uniform recommendation's.
        **settings: parameters of :class:`OffPolicyLearner`.
    """

    name = "reward-cross-entropy"

    def __init__(self, weight: str = "reward", clip: float = math.inf, **settings: Any) -> None:
        super().__init__(clip=clip, **settings)
        self.settings["weight"] = one_of(weight, f"{self.name}: weight", ("reward", "ips"))
        if math.isinf(self.settings["clip"]):
            del self.settings["clip"]  # JSON knows no infinity

    def objective(self, data: LoggedContexts, mean: float, model: Floats) -> Objective:
        """Implement :meth:`OffPolicyLearner.objective`."""
        if data.rewards.min() < 0.0:
            raise UserError(f"{self.name}: rewards must not be negative, the log has {data.rewards.min():g}")
        costs = data.rewards / mean
        if self.settings["weight"] == "ips":
            costs *= np.minimum(1.0 / (len(model) * data.propensities), self.settings.get("clip", math.inf))
            costs /= costs.mean()  # so that the penalty keeps its meaning
        return CrossEntropy(data, costs, len(model))


def reward_model(log: Log, n_items: int, *, rank: int, shrinkage: float, seed: int) -> tuple[Floats, Floats]:
    """Fit ``mf-ips`` on a log, and return its reward model: the reward of item a at context x is model_a . (1, x M).

    Args:
        log: the log.
        n_items: number of items P.
        rank: number of factors K.
        shrinkage: number added to a user's number of views, by which view counts are divided.
        seed: seed of the fit.

    Returns:
        mapping: (P, K) map M from view counts to factors.
        model: (P, K + 1) coefficients of each item, the constant first.
    """
    from recsim_mnar.agents.factors.mf import MFIPS, MFPolicy

    policy = MFIPS(rank=rank, shrinkage=shrinkage).fit(log, n_items=n_items, seed=seed)
    assert isinstance(policy, MFPolicy)
    arrays = policy.fitted()[0]
    model = np.concatenate([arrays["offsets"][:, None], arrays["factors"].T], axis=1)
    return np.ascontiguousarray(arrays["mapping"], np.float64), np.ascontiguousarray(model, np.float64)


def _centred_model(model: Floats, centre: Floats) -> Floats:
    """Convert a linear model on (1, x M), (P, K + 1), to the equal one on (1, x M - centre)."""
    centred = model.copy()
    centred[:, 0] += model[:, 1:] @ centre
    return centred
