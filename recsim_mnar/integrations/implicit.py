"""implicit (MIT): a fitted recommender as a policy, and one that ``compare`` fits itself.

A model saved by pickle can run any code when it is loaded; implicit's own ``save`` writes arrays (``.npz``).
"""

from __future__ import annotations

import copy
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from recsim_mnar.errors import UserError
from recsim_mnar.log.views import view_counts
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.features import FeaturePolicy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


def policy_of(model: Any, n_items: int, *, name: str | None = None) -> FeaturePolicy:
    """Wrap a fitted model of implicit as a policy that recommends the item with the highest score for a user's views.

    A user's factors are computed from the views so far (``recalculate_user``), so users need not be those that the
    model was fitted on. An item that no viewed item has as a neighbour scores 0, and so do all items for a user without
    views.

    Args:
        model: a fitted model that can recalculate users, such as ALS and item neighbours; BPR and logistic matrix
            factorisation cannot.
        n_items: number of items.
        name: name in reports; that of the model's class if None.
    """

    def scores(x: NDArray[np.float32]) -> NDArray[np.float64]:
        """Score all items for users by their view counts, both (n, n_items)."""
        out = np.zeros((len(x), n_items))
        with_views = np.flatnonzero(x.any(axis=1))
        if len(with_views) == 0:
            return out
        try:
            items, item_scores = model.recommend(
                np.arange(len(with_views)),
                sparse.csr_matrix(x[with_views].astype(np.float64)),
                N=n_items,  # scores of all items
                filter_already_liked_items=False,
                recalculate_user=True,
            )
        except NotImplementedError:
            raise UserError(
                f"{type(model).__name__} of implicit cannot score a user by views alone: take ALS or item neighbours"
            ) from None
        row, column = np.nonzero(items >= 0)  # implicit fills up short lists with -1
        out[with_views[row], items[row, column]] = item_scores[row, column]
        return out

    policy_name = name or type(model).__name__
    return FeaturePolicy(n_items, scores=scores, name=policy_name)


class Recommender(Learner):
    """Learner that fits a copy of a model of implicit to the view counts of a log.

    Args:
        model: an unfitted model of implicit; it is copied, not changed.
        name: name in reports; that of the model's class if None.
    """

    def __init__(self, model: Any, name: str | None = None) -> None:
        self.model = model
        self.name = name or type(model).__name__

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`; the seed becomes the model's ``random_state``, if any."""
        counts, _users = view_counts(log, n_items)
        model = copy.deepcopy(self.model)
        if hasattr(model, "random_state"):
            model.random_state = seed % 2**31  # fits a signed 32-bit integer
        with warnings.catch_warnings():
            # The library warns of a conversion that it makes itself, of its weights.
            warnings.filterwarnings("ignore", message="Method expects CSR input")
            model.fit(sparse.csr_matrix(counts.astype(np.float64)), show_progress=False)
        return policy_of(model, n_items, name=self.name)
