"""LensKit (MIT): a trained scorer or pipeline as a policy, and one that ``compare`` trains itself.

A pipeline saved by pickle can run any code when it is loaded: load only what you trust.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.pipeline import Pipeline
from lenskit.training import TrainingOptions
from numpy.typing import NDArray

from recsim_mnar.log.views import views_of
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.features import FeaturePolicy

if TYPE_CHECKING:
    from recsim_mnar.log.table import Log


def policy_of(scorer: Any, n_items: int, *, name: str | None = None) -> FeaturePolicy:
    """Wrap a trained scorer of LensKit, or a pipeline with one, as a policy that takes the item with the best score.

    A user's query is the set of items viewed so far, so users need not be those that the scorer was trained on. Items
    without a score rank last; for a user without views all items are equal.

    Args:
        scorer: a component that takes ``query`` and ``items``, trained on items 0 .. n_items - 1, or a pipeline with
            such a component.
        n_items: number of items.
        name: name in reports; that of the scorer's class if None.
    """
    everything = ItemList(item_ids=np.arange(n_items))

    def scored(query: RecQuery) -> Any:
        """Return LensKit's list of all items with their scores for a query."""
        if isinstance(scorer, Pipeline):
            return scorer.run("scorer", query=query, items=everything)
        return scorer(query=query, items=everything)

    def scores(x: NDArray[np.float32]) -> NDArray[np.float64]:
        """Score all items for users by their view counts, both (n, n_items)."""
        out = np.zeros((len(x), n_items))
        for row, counts in enumerate(x):
            viewed = np.flatnonzero(counts)
            if len(viewed):
                query = RecQuery(user_items=ItemList(item_ids=viewed))
                item_scores = np.asarray(scored(query).scores(), np.float64)  # NaN for items that it cannot score
                finite = np.isfinite(item_scores)
                below_all = item_scores[finite].min(initial=0.0) - 1.0
                out[row] = np.where(finite, item_scores, below_all)
        return out

    policy_name = name or type(scorer).__name__
    return FeaturePolicy(n_items, scores=scores, name=policy_name)


class Scorer(Learner):
    """Learner that trains a copy of a scorer of LensKit on the views of a log, each pair of user and item once.

    Args:
        scorer: an untrained component with ``train``; it is copied, not changed.
        name: name in reports; that of the scorer's class if None.
    """

    def __init__(self, scorer: Any, name: str | None = None) -> None:
        self.scorer = scorer
        self.name = name or type(scorer).__name__

    def fit(self, log: Log, *, n_items: int, seed: int = 0) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Learner.fit`."""
        import pandas as pd

        users, items = views_of(log, n_items)
        views = pd.DataFrame({"user_id": users, "item_id": items.astype(np.int64)}).drop_duplicates()
        scorer = copy.deepcopy(self.scorer)
        scorer.train(from_interactions_df(views), TrainingOptions(rng=seed))
        return policy_of(scorer, n_items, name=self.name)
