"""A softmax policy on the user's history: logits linear in a few factors of the views."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.state.acting import SlotPolicy, as_array, checked_items
from recsim_mnar.policies.base import Floats, Ints, Scores


class HistorySoftmax(SlotPolicy):
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
        parameters: dict[str, Any],
    ) -> None:
        self._mapping, self._centre, self._weights = mapping, centre, np.ascontiguousarray(weights, np.float64)
        self._shrinkage = float(parameters["shrinkage"])
        self._parameters = parameters
        super().__init__(n_items, name)

    def _start(self) -> None:
        self._sums = np.empty((0, self._mapping.shape[1]))
        self._views = np.empty(0)
        super()._start()

    def _resize(self, n_slots: int) -> None:
        super()._resize(n_slots)
        more = n_slots - len(self._views)
        self._sums = np.concatenate([self._sums, np.zeros((more, self._sums.shape[1]))])
        self._views = np.concatenate([self._views, np.zeros(more)])

    def _clear(self, slots: NDArray[np.int64]) -> None:
        super()._clear(slots)
        self._sums[slots] = 0.0
        self._views[slots] = 0.0

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        super()._view(slots, items)
        np.add.at(self._sums, slots, self._mapping[items])
        np.add.at(self._views, slots, 1.0)

    def _features(self, users: Ints) -> Floats:
        slots = self._slots.find(users)
        factors = self._sums[slots] / (self._views[slots] + self._shrinkage)[:, None] - self._centre
        return np.concatenate([np.ones((len(slots), 1)), factors], axis=1)

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`recsim_mnar.policies.Policy.probabilities`."""
        from recsim_mnar.agents.off_policy import _off_policy_kernel

        features = self._features(users)
        out = np.empty((len(features), self.n_items))
        _off_policy_kernel.probabilities(features, self._weights, out)
        return out

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """See :meth:`recsim_mnar.policies.Policy.propensity_of`."""
        return self.probabilities(users)[np.arange(len(users)), checked_items(actions, self.n_items)]

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """See :meth:`recsim_mnar.policies.Policy.act`."""
        from recsim_mnar.agents.state import _drawing_kernel

        actions, propensities = np.empty(len(users), np.int32), np.empty(len(users))
        _drawing_kernel.draw(self.probabilities(users), as_array(uniforms, np.float64), actions, propensities)
        return actions, propensities

    def scores(self, users: Ints) -> Scores:
        """The logits, (n, n_items)."""
        features, out = self._features(users), np.zeros((len(users), self.n_items))
        for d in range(features.shape[1]):  # in a fixed order: a product of matrices rounds by its shape
            out += features[:, d, None] * self._weights[:, d]
        return out

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        arrays = {"mapping": self._mapping, "centre": self._centre, "weights": self._weights}
        return arrays, dict(self._parameters)

    def sharpened(self, factor: float) -> HistorySoftmax:
        """The policy whose logits are ``factor`` times these."""
        parameters = {**self._parameters, "sharpness": factor * float(self._parameters.get("sharpness", 1.0))}
        return HistorySoftmax(
            self.n_items,
            self.name,
            mapping=self._mapping,
            centre=self._centre,
            weights=factor * self._weights,
            parameters=parameters,
        )
