"""PPO of Stable-Baselines3 in the study's worlds; imported only where that library is there."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import PPO

from recsim_mnar.integrations.stable_baselines3 import PPO_SETTINGS, VecEnvAdapter, policy_of
from recsim_mnar.policy import Policy


def trained(world: Any, given: dict[str, Any], *, shipped: bool) -> tuple[dict[str, Policy], dict[str, Any]]:
    """PPO after so many steps: policies by the name of their row, and what training took.

    With the library's defaults 2,048 steps of each lane stand between two updates, so there are few lanes.
    """
    torch.set_num_threads(1)
    kind = "ppo, shipped settings" if shipped else "ppo, defaults"
    settings: dict[str, Any] = PPO_SETTINGS if shipped else {}
    env = VecEnvAdapter(
        gym.make_vec(
            "recsim_mnar/World-v0",
            num_envs=given["ppo_lanes"] if shipped else given["ppo_default_lanes"],
            vectorization_mode="vector_entry_point",
            autoreset_mode="SameStep",
            world=world,
        )
    )
    model = PPO("MlpPolicy", env, seed=0, device="cpu", **settings)
    began = time.process_time()
    model.learn(given["ppo_steps"])
    took = {"steps": int(model.num_timesteps), "cpu_seconds": time.process_time() - began}
    return {kind: policy_of(model), f"{kind}, its likeliest item": policy_of(model, deterministic=True)}, took
