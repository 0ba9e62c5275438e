"""A log as learning from it wants it: contexts, and the recommendations made in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.models.factorization import Contexts

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Logged:
    """Recommendations by context, the state of a user's views; n rows, C contexts.

    Attributes:
        starts: (C + 1,) where the rows of each context begin.
        features: (C, K + 1), (1, x M - centre) of each context.
        actions: (n,) int64.
        propensities: (n,).
        rewards: (n,).
    """

    starts: NDArray[np.int64]
    features: Floats
    actions: NDArray[np.int64]
    propensities: Floats
    rewards: Floats

    @classmethod
    def of(cls, log: Log, mapping: Floats, centre: Floats, *, shrinkage: float) -> Logged:
        """The recommendations of a log.

        Raises:
            UserError: as :func:`recsim_mnar.models.bandit.check_log`.
        """
        data = Contexts.from_log(log, len(mapping), shrinkage=shrinkage)
        n = data.features.shape[0]
        starts = np.searchsorted(data.context, np.arange(n + 1))
        features = np.concatenate([np.ones((n, 1)), data.features @ mapping - centre], axis=1)
        return cls(
            starts.astype(np.int64), np.ascontiguousarray(features), data.actions,
            np.ascontiguousarray(data.propensities, np.float64), np.ascontiguousarray(data.rewards, np.float64),
        )  # fmt: skip
