import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix
from shared import P, log, tried

from recsim_mnar.log.views import view_counts
from recsim_mnar.policies import EpsilonMixture, Policy

model = AlternatingLeastSquares(4, random_state=1, num_threads=1)
model.fit(csr_matrix(view_counts(log, P)[0].astype(np.float64)), show_progress=False)


# --- before
class Counted(Policy):
    n_items, batches_decisions = P, True

    # + init reset observe probabilities act

    def score(self, x):
        ids, given = model.recommend(
            np.arange(len(x)),
            csr_matrix(x.astype(np.float64)),
            N=P,
            filter_already_liked_items=False,
            recalculate_user=True,
        )
        scores = np.zeros((len(x), P))
        np.put_along_axis(scores, ids, given, axis=1)
        scores[~x.any(axis=1)] = 0.0
        return scores


policy = Counted()
# --- after
from recsim_mnar.integrations.implicit import policy_of

policy = policy_of(model, P)
# --- end
print(tried(EpsilonMixture(policy, 0.1)))
