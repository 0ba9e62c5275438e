import numpy as np
from implicit.als import AlternatingLeastSquares
from scipy.sparse import csr_matrix
from shared import P, log, tried

from recsim_mnar.log.views import view_counts
from recsim_mnar.policy import EpsilonMixture

model = AlternatingLeastSquares(4, random_state=1, num_threads=1)
model.fit(csr_matrix(view_counts(log, P)[0].astype(np.float64)), show_progress=False)


# --- the client's own lines
from recsim_mnar.integrations.implicit import policy_of

policy = policy_of(model, P)
# --- end
print(tried(EpsilonMixture(policy, 0.1)))
