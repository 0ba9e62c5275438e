"""A classifier trained on the samples of ULRMF or RMF, as a recommender of purchases.

Sato et al. 2019, section 6: "our uplift-based optimizations are generic methods, they are applicable to various
recommender models".
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from recsim_mnar.agents.purchases.learners import ULRMF, ExposureLearner, FactorLearner
from recsim_mnar.agents.purchases.training import Plan
from recsim_mnar.agents.state.acting import KnownUsersPolicy
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.rng import derive_seed

Ints = NDArray[np.integer[Any]]
CELLS = 1 << 18


class PointwiseLearner(ExposureLearner):
    """A classifier by ``partial_fit`` on samples that a rule draws and labels.

    Args:
        model: unfitted; its ``random_state`` is set from the seed of the fit.
        rule: whose samples these are; its training settings have no effect.
        samples: number drawn.
        batch: samples of a call of ``partial_fit``.
        name: under which results are reported.
    """

    needs = frozenset({"exposures"})

    def __init__(self, model: Any, rule: FactorLearner, *, samples: int, batch: int, name: str) -> None:
        self.model, self.rule, self.samples, self.batch, self.name = model, rule, samples, batch, name

    def draws(self, plan: Plan, seed: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """All samples in batches: users, items and labels; the rule's own training draws the same for the same seed."""
        labels, address = plan.labels(), derive_seed(seed, "samples")
        for first in range(0, self.samples, self.batch):
            users, items, _, strata, _, _ = plan.draw(address, first, min(self.batch, self.samples - first))
            yield users, items, labels[strata]

    def fit_exposures(self, exposures: Exposures, *, seed: int = 0) -> ScoreTablePolicy:
        """A policy for the users of the exposures: the probability of label 1 of each cell."""
        plan = self.rule.plan(self.exposed(exposures, None))
        model = copy.deepcopy(self.model).set_params(random_state=seed % 2**32)
        shape = exposures.n_users, exposures.n_items
        for users, items, labels in self.draws(plan, seed):
            model.partial_fit(one_hot(users, items, shape), labels, classes=np.arange(2))
        scores = np.empty(shape, np.float32)
        step = max(1, CELLS // shape[1])
        for first in range(0, shape[0], step):
            users = np.arange(first, min(first + step, shape[0]))
            cells = np.repeat(users, shape[1]), np.tile(np.arange(shape[1]), len(users))
            scores[users] = model.predict_proba(one_hot(*cells, shape))[:, 1].reshape(len(users), -1)
        parameters = {"model": " ".join(repr(self.model).split()), "rule": self.rule.name, "samples": self.samples}
        return ScoreTablePolicy(shape[1], self.name, scores=scores, parameters=parameters)


def one_hot(users: Ints, items: Ints, shape: tuple[int, int]) -> Any:
    """CSR rows with a 1 for the user and a 1 for the item."""
    from scipy import sparse

    places = np.stack([users, shape[0] + items], axis=1).astype(np.int32).ravel()
    starts = np.arange(0, len(places) + 1, 2, dtype=np.int32)
    return sparse.csr_matrix((np.ones(len(places), np.float32), places, starts), shape=(len(users), sum(shape)))


class ULOMLP(PointwiseLearner):
    """A small neural network on ULRMF's samples: one hidden layer of ReLU, Adam, logistic loss.

    Args:
        samples: number drawn, in whole steps.
        hidden: units of the hidden layer.
        rate: learning rate.
        penalty: of the squares of all weights, divided by the samples of a step (scikit-learn's ``alpha``).
    """

    name = "ulo-mlp"

    def __init__(self, samples: int = 3_000_000, hidden: int = 128, rate: float = 0.001, penalty: float = 0.01) -> None:
        # Samples are drawn in random order; shuffling again would use draws of another generator.
        model = MLPClassifier((hidden,), learning_rate_init=rate, alpha=penalty, batch_size=STEP, shuffle=False)
        whole = -(-samples // STEP) * STEP  # the last step is as long, too
        super().__init__(model, ULRMF(), samples=whole, batch=50 * STEP, name=self.name)


STEP = 1000
"""Samples of a gradient step."""


class ScoreTablePolicy(KnownUsersPolicy):
    """Greedy by a table of scores of known users; other users get the mean row."""

    def __init__(self, n_items: int, name: str, *, scores: NDArray[Any], parameters: dict[str, Any]) -> None:
        mean = scores.mean(axis=0, dtype=np.float64)[None]
        self._table = np.concatenate([scores, mean]).astype(np.float32)
        super().__init__(n_items, len(scores), name, {"scores": self._table[:-1]}, parameters)

    def _scores_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._table[rows]
