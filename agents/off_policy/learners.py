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
    """Draws item a with probability proportional to exp(weights_a . (1, x M - centre)), x = h / (n + shrinkage).

    The h are the counts of the user's n views so far. Every item has a probability above 0, down to e^-700 of the
    largest.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        mapping: (n_items, K), M.
        centre: (K,).
        weights: (n_items, K + 1), the constant's first.
        parameters: the learner's, for provenance; ``shrinkage`` is read.
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
        """The logits, (n, n_items)."""
        features = self._features(users)
        out = np.zeros((len(users), self.n_items))
        for d in range(features.shape[1]):  # in a fixed order: a product of matrices rounds by its shape
            out += features[:, d, None] * self._weights[:, d]
        return out

    def sharpened(self, factor: float) -> HistorySoftmax:
        """The same policy with its logits multiplied by ``factor``."""
        parameters = {**self._parameters, "sharpness": factor * float(self._parameters.get("sharpness", 1.0))}
        return HistorySoftmax(
            self.n_items,
            self.name,
            mapping=self._mapping,
            centre=self._centre,
            weights=factor * self._weights,
            parameters=parameters,
        )


@dataclass(frozen=True)
class Logged:
    """Recommendations grouped by context, the state of a user's views; n rows, C contexts.

    Attributes:
        starts: (C + 1,) where the rows of each context begin.
        features: (C, K + 1), (1, x M - centre) of each context.
        actions: (n,) int64.
        propensities: (n,).
        rewards: (n,).
        centre: (K,) mean of the factors over the recommendations.
    """

    starts: NDArray[np.int64]
    features: Floats
    actions: NDArray[np.int64]
    propensities: Floats
    rewards: Floats
    centre: Floats

    @classmethod
    def of(cls, log: Log, mapping: Floats, *, shrinkage: float) -> Logged:
        """The recommendations of a log.

        Raises:
            UserError: as :func:`recsim_mnar.models.factorization.check_log`.
        """
        data = Contexts.from_log(log, len(mapping), shrinkage=shrinkage)
        n = data.features.shape[0]
        starts = np.searchsorted(data.context, np.arange(n + 1)).astype(np.int64)
        features = np.ascontiguousarray(np.concatenate([np.ones((n, 1)), data.features @ mapping], axis=1))
        rows = np.diff(starts)
        centre = (rows @ features[:, 1:]) / rows.sum()
        features[:, 1:] -= centre
        propensities, rewards = (
            np.ascontiguousarray(column, np.float64) for column in (data.propensities, data.rewards)
        )
        return cls(starts, features, data.actions, propensities, rewards, centre)


_FIRST_EPOCH = 100
"""Index of the draws that put the first epoch's contexts in their order; smaller ones are other learners'."""


class OffPolicyLearner(Learner):
    """Base of the learners: the factors, the minibatches, and Adam.

    Args:
        rank: number of factors of the views.
        shrinkage: views that a user is thought to lack: few views then say little.
        penalty: half of it times the weights' squares is added to the objective, the mean of relative rewards.
        epochs: passes over the log.
        rate: Adam's step at first; it falls linearly to 0.
        batch: contexts of a minibatch.
        sharpness: logits of the fitted policy are multiplied by it.

    Attributes:
        by_ratio: whether the estimate that is maximised is self-normalised.
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
        for key, value in (("shrinkage", shrinkage), ("rate", rate), ("sharpness", sharpness), ("penalty", penalty)):
            self.settings[key] = number_in(value, f"{self.name}: {key}", ends="[]" if key == "penalty" else "(]")
        for key, value in own.items():
            unbounded = key == "clip" and value == math.inf  # no clip
            ends = "(]" if key == "clip" else "[]"
            if unbounded:
                self.settings[key] = value
            else:
                self.settings[key] = number_in(value, f"{self.name}: {key}", ends=ends)

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> HistorySoftmax:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; reads bandit rows, and the views before each of them."""
        check_log(log, n_items)
        mapping, model = self.factors(log, n_items, seed)
        data = Logged.of(log, mapping, shrinkage=self.settings["shrinkage"])
        mean = float(data.rewards.mean())
        if not mean > 0.0:
            raise UserError(f"{self.name}: the log's mean reward is {mean:g}: there is nothing to learn from it")
        objective = self.objective(data, mean, _about(model, data.centre))
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
        """The map (P, K) from views to factors, and a reward model (P, K + 1) on x M; zeros if none is needed."""
        view_map = ViewMap.from_log(
            log, n_items, rank=self.settings["rank"], shrinkage=self.settings["shrinkage"], seed=seed
        )
        return view_map.mapping, np.zeros((n_items, view_map.mapping.shape[1] + 1))

    def objective(self, data: Logged, mean: float, model: Floats) -> Objective:
        """Objective to minimise; rewards and the model (P, K + 1) are not yet divided by the mean."""
        variance = self.settings.get("variance", 0.0)
        return Weighted(data, mean, model, clip=self.settings["clip"], variance=variance, by_ratio=self.by_ratio)

    def _descend(self, objective: Objective, data: Logged, n_items: int, seed: int) -> Floats:
        """Weights (P, K + 1) after all epochs, starting from a uniform policy."""
        contexts = len(data.features)
        batch = self.settings["batch"]
        weights = np.zeros((n_items, data.features.shape[1]))
        first = np.zeros_like(weights)
        second = np.zeros_like(weights)
        gradient = np.zeros_like(weights)
        step = 0
        steps = self.settings["epochs"] * -(-contexts // batch)
        for epoch in range(self.settings["epochs"]):
            objective.prepare(weights)
            order = np.argsort(rng.uniforms(seed, rng.Stream.FIT, np.arange(contexts), _FIRST_EPOCH + epoch))
            for begin in range(0, contexts, batch):
                gradient[:] = 0.0
                rows = objective.add(order[begin : begin + batch], weights, gradient)[4]
                gradient /= max(rows, 1.0)
                gradient += self.settings["penalty"] * weights
                step += 1
                first += 0.1 * (gradient - first)
                second += 0.001 * (gradient**2 - second)
                size = self.settings["rate"] * (1.0 - (step - 1.0) / steps)
                weights -= size * first / (1.0 - 0.9**step) / (np.sqrt(second / (1.0 - 0.999**step)) + 1e-10)
        return weights


class Objective(abc.ABC):
    """A sum over rows with its gradient, context by context."""

    def __init__(self, data: Logged, n_items: int) -> None:
        self.data = data
        self._scratch = np.empty((3, n_items))

    def prepare(self, weights: Floats) -> None:
        """Compute, before an epoch, the terms of the objective that depend on the whole log."""

    @abc.abstractmethod
    def add(self, contexts: NDArray[np.int64], weights: Floats, gradient: Floats) -> Floats:
        """Add the gradient over the rows of some contexts; returns their sums (5,), see the kernel."""

    def whole(self, weights: Floats) -> tuple[Floats, Floats]:
        """Sums (5,) and the mean row's gradient (P, K + 1) of all contexts."""
        gradient = np.zeros_like(weights)
        sums = self.add(np.arange(len(self.data.features)), weights, gradient)
        return sums, gradient / sums[4]


class Weighted(Objective):
    """-mean u + variance sqrt(Var u / n), u = w (r - q) + sum_b pi_b q_b, w = min(pi / p, clip); see the kernel.

    The variance enters by its tangent at the weights that an epoch begins with (Swaminathan & Joachims 2015, section
    5.2), which bounds it from above. With ``by_ratio`` q is the ratio sum w r / sum w at these weights: the step then
    follows the gradient of that ratio.
    """

    def __init__(
        self, data: Logged, mean: float, model: Floats, *, clip: float, variance: float = 0.0, by_ratio: bool = False
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
        self._slope = self._centre = 0.0
        if not (self._variance or self._by_ratio):
            return
        if self._by_ratio:
            self._model = np.zeros_like(self._model)
        u, u2, w, wr, n = self.whole(weights)[0].tolist()
        if self._by_ratio:
            self._model[:, 0] = wr / w
        elif n > 1:
            variance = (u2 - u * u / n) / (n - 1.0)
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
    """-mean of cost log pi(a|x)."""

    def __init__(self, data: Logged, costs: Floats, n_items: int) -> None:
        super().__init__(data, n_items)
        self._costs = costs

    def add(self, contexts: NDArray[np.int64], weights: Floats, gradient: Floats) -> Floats:
        """Convert a model on (1, x M - centre) to one on (1, x M)."""
        from recsim_mnar.agents.off_policy import _off_policy_kernel

        data = self.data
        sums = np.zeros(5)
        _off_policy_kernel.cross_entropy(
            contexts, data.starts, data.features, data.actions, self._costs, weights, self._scratch, sums, gradient
        )
        return sums


class POEM(OffPolicyLearner):
    """A softmax policy by clipped IPS with a penalty on its variance (POEM, Swaminathan & Joachims 2015).

    Args:
        clip: largest importance weight.
        variance: factor of the estimate's standard error that is taken from it (equation 12).
        **settings: see :class:`OffPolicyLearner`.
    """

    name = "poem"

    def __init__(self, clip: float = 100.0, variance: float = 1.0, **settings: Any) -> None:
        super().__init__(clip=clip, variance=variance, **settings)


class BanditNet(OffPolicyLearner):
    """A softmax policy by self-normalised IPS (BanditNet, Joachims, Swaminathan & de Rijke 2018).

    The ratio sum w r / sum w is maximised by steps along the gradient of sum w (r - lambda), their equation 11; lambda
    is the ratio itself, taken anew before each epoch, instead of one of a grid.

    Args:
        clip: largest importance weight.
        **settings: see :class:`OffPolicyLearner`.
    """

    name = "banditnet"
    by_ratio = True

    def __init__(self, clip: float = 100.0, **settings: Any) -> None:
        super().__init__(clip=clip, **settings)


class DRPolicy(OffPolicyLearner):
    """A softmax policy by the doubly robust estimate (Dudik, Langford & Li 2011), its reward model that of ``mf-ips``.

    Args:
        clip: largest importance weight of the model's errors.
        variance: factor of the estimate's standard error that is taken from it.
        **settings: see :class:`OffPolicyLearner`.
    """

    name = "dr-policy"

    def __init__(self, clip: float = 100.0, variance: float = 0.0, **settings: Any) -> None:
        super().__init__(clip=clip, variance=variance, **settings)

    def factors(self, log: Log, n_items: int, seed: int) -> tuple[Floats, Floats]:
        """Implement :meth:`OffPolicyLearner.factors`."""
        return reward_model(log, n_items, rank=self.settings["rank"], shrinkage=self.settings["shrinkage"], seed=seed)


class RewardCrossEntropy(OffPolicyLearner):
    """A softmax policy by cross-entropy with the recorded actions, each weighted by its reward.

    With ``weight="ips"`` by reward / propensity, at most ``clip`` of it: the policy then tends to be proportional to
    the expected reward of each item, else to that times the logging policy.

    Args:
        weight: ``reward`` or ``ips``.
        clip: largest 1 / propensity, relative to a uniform recommendation's.
        **settings: see :class:`OffPolicyLearner`.
    """

    name = "reward-cross-entropy"

    def __init__(self, weight: str = "reward", clip: float = math.inf, **settings: Any) -> None:
        super().__init__(clip=clip, **settings)
        self.settings["weight"] = one_of(weight, f"{self.name}: weight", ("reward", "ips"))
        if math.isinf(self.settings["clip"]):
            del self.settings["clip"]  # JSON knows no infinity

    def objective(self, data: Logged, mean: float, model: Floats) -> Objective:
        """Implement :meth:`OffPolicyLearner.objective`."""
        if data.rewards.min() < 0.0:
            raise UserError(f"{self.name}: rewards must not be negative, the log has {data.rewards.min():g}")
        costs = data.rewards / mean
        if self.settings["weight"] == "ips":
            costs *= np.minimum(1.0 / (len(model) * data.propensities), self.settings.get("clip", math.inf))
            costs /= costs.mean()
        return CrossEntropy(data, costs, len(model))


def reward_model(log: Log, n_items: int, *, rank: int, shrinkage: float, seed: int) -> tuple[Floats, Floats]:
    """Map (P, K) and reward model (P, K + 1), the constant first, of ``mf-ips`` fitted on a log.

    The reward of item a is model_a . (1, x M) for the context x.
    """
    from recsim_mnar.agents.factors.mf import MFIPS, MFPolicy

    policy = MFIPS(rank=rank, shrinkage=shrinkage).fit(log, n_items=n_items, seed=seed)
    assert isinstance(policy, MFPolicy)
    arrays = policy.fitted()[0]
    model = np.concatenate([arrays["offsets"][:, None], arrays["factors"].T], axis=1)
    return np.ascontiguousarray(arrays["mapping"], np.float64), np.ascontiguousarray(model, np.float64)


def _about(model: Floats, centre: Floats) -> Floats:
    """A model on (1, x M) as one on (1, x M - centre)."""
    moved = model.copy()
    moved[:, 0] += model[:, 1:] @ centre
    return moved
