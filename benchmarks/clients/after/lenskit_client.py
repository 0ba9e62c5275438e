import pandas as pd
from lenskit.data import from_interactions_df
from lenskit.knn import ItemKNNScorer
from shared import P, log, tried

from recsim_mnar.policy import EpsilonMixture

organic = log.organic()
scorer = ItemKNNScorer(max_nbrs=5, feedback="implicit")
scorer.train(
    from_interactions_df(pd.DataFrame({"user_id": organic["user"], "item_id": organic["item"]}).drop_duplicates())
)


# --- the client's own lines
from recsim_mnar.integrations.lenskit import policy_of

policy = policy_of(scorer, P)
# --- end
print(tried(EpsilonMixture(policy, 0.1)))
