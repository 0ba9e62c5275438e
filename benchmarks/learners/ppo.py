"""PPO of Stable-Baselines3 in the study's worlds; imported only where that library is there."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3 import PPO

from recsim_mnar.integrations.stable_baselines3 import PPO_SETTINGS, VecEnvAdapter, policy_of
from recsim_mnar.policy import Policy

SHIPPED, DEFAULTS = "ppo, shipped settings", "ppo, defaults"


def trained(world: Any, kind: str, given: dict[str, Any]) -> tuple[dict[str, Policy], dict[str, Any]]:
    """PPO after so many steps: policies by the name of their row, and what training took.

    The library's defaults are of one environment; here, as there, 2,048 steps of each lane stand between two updates.
    """
    torch.set_num_threads(1)
    settings: dict[str, Any] = PPO_SETTINGS if kind == SHIPPED else {}
    env = VecEnvAdapter(
        gym.make_vec(
            "recsim_mnar/World-v0",
            num_envs=given["ppo_lanes"] if kind == SHIPPED else given["ppo_default_lanes"],
            vectorization_mode="vector_entry_point",
            autoreset_mode="SameStep",
            world=world,
        )
    )
    model = PPO("MlpPolicy", env, seed=0, device="cpu", **settings)
    began = time.process_time()
    model.learn(given["ppo_steps"])
    took = {"steps": int(model.num_timesteps), "cpu_seconds": time.process_time() - began}
    policies: dict[str, Policy] = {kind: policy_of(model)}
    policies[f"{kind}, its likeliest item"] = policy_of(model, deterministic=True)
    return policies, took
