"""A softmax policy on the user's history: logits linear in a few factors of the views."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.state.acting import DrawingPolicy, MappedViews
from recsim_mnar.policies.base import Floats, Ints, Scores


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
        parameters: dict[str, Any],
    ) -> None:
        self._mapping, self._centre, self._weights = mapping, centre, np.ascontiguousarray(weights, np.float64)
        self._shrinkage = float(parameters["shrinkage"])
        arrays = {"mapping": mapping, "centre": centre, "weights": self._weights}
        super().__init__(n_items, name, arrays, parameters)

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

    def scores(self, users: Ints) -> Scores:
        """The logits, (n, n_items)."""
        features, out = self._features(users), np.zeros((len(users), self.n_items))
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
