import numpy as np
import pandas as pd
from lenskit.data import ItemList, RecQuery, from_interactions_df
from lenskit.knn import ItemKNNScorer
from shared import P, log, tried

from recsim_mnar.policies import EpsilonMixture, Policy

organic = log.organic()
scorer = ItemKNNScorer(max_nbrs=5, feedback="implicit")
scorer.train(
    from_interactions_df(pd.DataFrame({"user_id": organic["user"], "item_id": organic["item"]}).drop_duplicates())
)


# --- before
class Counted(Policy):
    n_items, batches_decisions = P, True

    # + init reset observe probabilities act

    def score(self, x):
        scores = np.zeros((len(x), P))
        for row, seen in enumerate(x):
            if seen.any():
                query = RecQuery(user_items=ItemList(item_ids=np.flatnonzero(seen)))
                given = scorer(query=query, items=ItemList(item_ids=np.arange(P))).scores().astype(np.float64)
                scores[row] = np.where(np.isnan(given), np.nanmin(given, initial=0.0) - 1.0, given)
        return scores


policy = Counted()
# --- after
from recsim_mnar.integrations.lenskit import policy_of

policy = policy_of(scorer, P)
# --- end
print(tried(EpsilonMixture(policy, 0.1)))
