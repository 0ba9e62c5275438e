"""DQN by Stable-Baselines3 on the native vector environment; its greedy policy is softened so that its log can be used.

pip install 'recsim-mnar[stable-baselines3]' && python examples/dqn.py [STEPS]
"""

import sys

import gymnasium as gym

from recsim_mnar import Log, make_world, replay, simulate
from recsim_mnar.policies import EpsilonMixture, registry

try:
    from stable_baselines3 import DQN

    from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter, policy_of
except ImportError as error:
    print(f"examples/dqn.py: left out, {error}: pip install 'recsim-mnar[stable-baselines3]'")
    sys.exit(0)

STEPS, ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, 20
lanes = gym.make_vec(
    "recsim_mnar/Sessions-v0",
    num_envs=32,
    vectorization_mode="vector_entry_point",
    autoreset_mode="SameStep",
    n_items=ITEMS,
)
model = DQN("MlpPolicy", VecEnvAdapter(lanes), gamma=0.0, learning_starts=2_000, train_freq=4, seed=0, device="cpu")
model.learn(STEPS)

policy = EpsilonMixture(policy_of(model), 0.2)
log = simulate(make_world("sessions", None, [f"n_items={ITEMS}"]), policy, n_users=500, seed=9)
shown = log.is_bandit
worst = abs(replay(log, policy)[shown] - log["propensity"][shown]).max()
print(f"{policy.name}: CTR {log['reward'][shown].mean():.5f} over {shown.sum():,} decisions; replayed to {worst:.1g}")
uniform = registry.learner("random").fit(Log({}), n_items=ITEMS, seed=0)
log = simulate(make_world("sessions", None, [f"n_items={ITEMS}"]), uniform, n_users=500, seed=9)
print(f"random: CTR {log['reward'][log.is_bandit].mean():.5f}")
