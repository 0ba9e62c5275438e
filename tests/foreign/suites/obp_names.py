"""Open Bandit Pipeline's own tests, with five of its names answered by our estimators.

In its repository: ``PYTHONPATH=<this folder> pytest -p obp_names tests/ope/test_all_estimators.py``. obp's estimator is
called first, for what it says of bad arguments; a call without propensities stays its own.
"""

import numpy as np
from obp.ope import estimators as obp

from recsim_mnar.estimators import ESTIMATORS, estimate_value

NAMES = {"InverseProbabilityWeighting": "ips", "SelfNormalizedInverseProbabilityWeighting": "snips"}
NAMES |= {"DirectMethod": "dm", "DoublyRobust": "dr", "SelfNormalizedDoublyRobust": "sndr"}


def answered(cls, name, theirs):
    def estimate(self, reward, action, action_dist, **more):
        value, p = theirs(self, reward=reward, action=action, action_dist=action_dist, **more), more.get("pscore")
        if type(self) is not cls or p is None:
            return value
        rows, place = np.arange(len(reward)), 0 if more.get("position") is None else more["position"]
        pi, q = action_dist[rows, :, place], more.get("estimated_rewards_by_reg_model")
        q = np.zeros_like(pi) if q is None else q[rows, :, place]
        model = (q[rows, action], (q * pi).sum(1)) if ESTIMATORS[name].needs else None
        return float(estimate_value(reward, p, pi[rows, action], estimator=name, model=model).value)

    return estimate


for theirs, name in NAMES.items():
    cls = getattr(obp, theirs)
    cls.estimate_policy_value = answered(cls, name, cls.estimate_policy_value)
