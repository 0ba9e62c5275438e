"""PPO by Stable-Baselines3 on the native vector environment, and back as a policy that replays and is judged exactly.

    pip install 'recsim-mnar[stable-baselines3]' && python examples/ppo.py [STEPS]

PyPI's torch is the CUDA build, some gigabytes. The default of 65,536 steps shows the way; it takes some two million to
beat what users viewed before.
"""

import sys

import gymnasium as gym

from recsim_mnar import Log, make_world, replay, simulate
from recsim_mnar.policies import registry

try:
    import torch
    from stable_baselines3 import PPO

    from recsim_mnar.integrations.stable_baselines3 import PPO_SETTINGS, VecEnvAdapter, policy_of
except ImportError as error:
    print(f"examples/ppo.py: left out, {error}: pip install 'recsim-mnar[stable-baselines3]'")
    sys.exit(0)

STEPS, ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 65_536, 20
lanes = gym.make_vec(
    "recsim_mnar/Sessions-v0",
    num_envs=128,
    vectorization_mode="vector_entry_point",
    autoreset_mode="SameStep",
    n_items=ITEMS,
)
torch.set_num_threads(1)  # small networks: more threads cost more than they save
# Shares of views as observation, and no discounted future rewards: a recommendation hardly changes what comes later.
model = PPO("MlpPolicy", VecEnvAdapter(lanes), **PPO_SETTINGS, seed=0, device="cpu")
model.learn(STEPS)

world = make_world("sessions", n_items=ITEMS)
learned, random = policy_of(model), registry.learner("random").fit(Log({}), n_items=ITEMS, seed=0)
for policy in (learned, random):
    log = simulate(world, policy, n_users=500, seed=9)
    shown = log.is_bandit
    worst = abs(replay(log, policy)[shown] - log["propensity"][shown]).max()
    earned = log["reward"][shown].mean()
    print(f"{policy.name:8s} CTR {earned:.5f} over {shown.sum():,} decisions; replayed to {worst:.1g}")
