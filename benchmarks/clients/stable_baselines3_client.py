import gymnasium as gym
import numpy as np
import torch
from shared import SETTINGS, P, tried
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from recsim_mnar.policies import Policy

lanes = gym.make_vec("recsim_mnar/Sessions-v0", 8, "vector_entry_point", autoreset_mode="SameStep", **SETTINGS)


# --- before
class Lanes(VecEnv):
    def __init__(self, env):
        self.env = env
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self):
        observations, _ = self.env.reset(seed=self._seeds[0])
        self._reset_seeds()
        return observations

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        observations, rewards, terminated, truncated, extras = self.env.step(self.actions)
        infos = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(terminated | truncated):
            infos[lane]["terminal_observation"] = extras["final_obs"][lane]
            infos[lane]["TimeLimit.truncated"] = bool(truncated[lane] and not terminated[lane])
        return observations, rewards.astype(np.float32), terminated | truncated, infos

    def close(self): ...
    def get_attr(self, name, indices=None):
        return [getattr(self.env, name)] * self.num_envs

    def set_attr(self, name, value, indices=None): ...
    def env_method(self, name, *arguments, indices=None, **named): ...
    def env_is_wrapped(self, kind, indices=None):
        return [False] * self.num_envs


class Trained(Policy):
    name, n_items, batches_decisions = "ppo", P, True

    def __init__(self, model):
        self.model, self.counts = model, {}

    # + reset observe

    def probabilities(self, users):
        x = torch.as_tensor(np.stack([self.counts[user] for user in users.tolist()]))
        with torch.no_grad():
            shares = self.model.policy.get_distribution(x).distribution.probs.numpy().astype(np.float64)
        return shares / shares.sum(axis=1, keepdims=True)

    # + act

    def fresh(self):
        return Trained(self.model)


lanes = Lanes(lanes)
# --- after
from recsim_mnar.integrations.stable_baselines3 import VecEnvAdapter, policy_of

lanes = VecEnvAdapter(lanes)
# --- end
lanes.seed(4)
model = PPO("MlpPolicy", lanes, n_steps=16, batch_size=64, n_epochs=2, seed=1, device="cpu").learn(1024)
# --- before, not counted
policy = Trained(model)
# --- after
policy = policy_of(model)
# --- end
print(tried(policy))
