"""A policy in a Gymnasium loop, its log recorded, and the log's own estimate compared with what really happened."""

import gymnasium as gym
import numpy as np

from recsim_mnar import Facts, Log, estimate, replay
from recsim_mnar.envs.recording import RecordLog
from recsim_mnar.policies import registry
from recsim_mnar.rng import policy_uniforms

SEED, USERS = 3, 200
# RecordLog asks for info["views"], the items viewed since the last decision, from which a log can be made.
env = RecordLog(gym.make("recsim_mnar/Sessions-v0", n_items=20))
policy = registry.learner("user-popularity+epsilon=0.5").fit(Log({}), n_items=20, seed=0)

_, info = env.reset(seed=SEED)
for _ in range(USERS):
    user, decision, ended = np.array([info["user"]]), 0, False
    policy.reset(user)
    while not ended:
        if info["views"]:
            policy.observe(np.repeat(user, len(info["views"])), np.array(info["views"]))
        actions, propensities = policy.act(user, policy_uniforms(SEED, user, decision))
        env.propensity = float(propensities[0])
        _, _, ended, _, info = env.step(int(actions[0]))
        decision += 1
    _, info = env.reset()

log = env.log()
shown = log.is_bandit
target = registry.learner("user-popularity-greedy").fit(Log({}), n_items=20, seed=0)
print(f"{len(log):,} events of {len(log.users())} users; CTR of the logging policy {log['reward'][shown].mean():.5f}")
print(
    "user-popularity-greedy,",
    estimate(
        log["reward"][shown],
        log["propensity"][shown],
        replay(log, target)[shown],
        cluster=log["user"][shown],
        facts=Facts(propensity_min=0.5 / 20),
    ),
)
