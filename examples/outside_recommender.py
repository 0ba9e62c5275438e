"""A recommender of another library in ``compare``: item neighbours of implicit next to ours, judged by every protocol.

pip install 'recsim-mnar[implicit]' && python examples/outside_recommender.py
"""

import sys

from recsim_mnar import compare, make_world
from recsim_mnar.policies import registry
from recsim_mnar.protocols.decisions import Settings

try:
    from implicit.nearest_neighbours import CosineRecommender

    from recsim_mnar.integrations.implicit import Recommender
except ImportError as error:
    print(f"examples/outside_recommender.py: left out, {error}: pip install 'recsim-mnar[implicit]'")
    sys.exit(0)

learners = {name: registry.learner(name) for name in ("random", "popularity", "item-knn")}
learners["implicit-cosine"] = Recommender(CosineRecommender(K=20, num_threads=1))
sizes = Settings(train_users=500, test_users=800, arm_users=500, truth_users=1000, folds=3)
outcome = compare(make_world("sessions", None, ["n_items=20"]), learners, settings=sizes, seed=1)
values = {(record.protocol, record.metric, record.agent): record.value for record in outcome.records}
columns = [("loocv", "hr@1"), ("off_policy", "snips"), ("ab_test", "ctr"), ("truth", "ctr")]
print(f"{'':16s}" + "".join(f"{protocol + ' ' + metric:>18s}" for protocol, metric in columns))
for name in learners:
    print(f"{name:16s}" + "".join(f"{values[(*column, name)]:18.5f}" for column in columns))
