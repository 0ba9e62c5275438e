"""Many users side by side: the native vector environment, one call of the policy a step, and regret against the truth.

python examples/vector_loop.py
"""

import gymnasium as gym
import numpy as np

import recsim_mnar  # registers the environments
from recsim_mnar import Log
from recsim_mnar.policies import registry
from recsim_mnar.rng import policy_uniforms

SEED, LANES, STEPS = 3, 256, 400
env = gym.make_vec(
    "recsim_mnar/Sessions-v0",
    num_envs=LANES,
    vectorization_mode="vector_entry_point",
    n_items=20,
    autoreset_mode="SameStep",
    info="views",
)
policy = registry.learner("user-popularity").fit(Log({}), n_items=20, seed=0)


def meet(lanes: np.ndarray, infos: dict) -> None:
    """New users in these lanes."""
    users[lanes], decisions[lanes] = infos["user"][lanes], 0
    policy.reset(users[lanes])


def show(infos: dict) -> None:
    """What the users of lanes have viewed since the policy acted."""
    lanes = np.flatnonzero(infos["_views"]) if "views" in infos else np.zeros(0, int)
    views = [infos["views"][lane] for lane in lanes]
    if views:
        policy.observe(np.repeat(users[lanes], [len(seen) for seen in views]), np.concatenate(views))


users, decisions = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
_, infos = env.reset(seed=SEED)
meet(np.arange(LANES), infos)
show(infos)
earned = regret = 0.0
for _ in range(STEPS):
    actions, propensities = policy.act(users, policy_uniforms(SEED, users, decisions))
    means = env.unwrapped.reward_means()
    regret += float((means.max(axis=1) - means[np.arange(LANES), actions]).sum())
    _, rewards, terminated, truncated, infos = env.step(actions)
    earned += float(rewards.sum())
    decisions += 1
    ended = np.flatnonzero(terminated | truncated)
    policy.forget(users[ended])
    meet(ended, infos)
    show(infos)
print(f"recsim-mnar {recsim_mnar.__version__}: {STEPS * LANES:,} decisions in {LANES} lanes, {policy.name}")
print(f"CTR {earned / (STEPS * LANES):.5f}, mean regret {regret / (STEPS * LANES):.5f}")
