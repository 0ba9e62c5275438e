import gymnasium as gym
from shared import SETTINGS, tried
from stable_baselines3 import PPO

lanes = gym.make_vec("recsim_mnar/Sessions-v0", 8, "vector_entry_point", autoreset_mode="SameStep", **SETTINGS)
# --- the client's own lines
from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter, policy_of

lanes = VecEnvAdapter(lanes)
# --- end
lanes.seed(4)
model = PPO("MlpPolicy", lanes, n_steps=16, batch_size=64, n_epochs=2, seed=1, device="cpu").learn(1024)
# --- the client's own lines
policy = policy_of(model)
# --- end
print(tried(policy))
