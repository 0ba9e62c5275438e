"""PPO in one file, in the style of CleanRL, on a frozen task: three lines of ours, marked, and `evaluate` scores it.

    pip install torch && python examples/ppo_one_file.py [STEPS]

CleanRL's own script takes the same three lines: see docs/rl.md.
"""

import sys
import time

import gymnasium as gym
import numpy as np

import recsim_mnar  # ours: it registers the environments

try:
    import torch
    from torch import nn
except ImportError as error:
    print(f"examples/ppo_one_file.py: left out, {error}: pip install torch")
    sys.exit(0)

ITEMS, LANES, LENGTH, EPOCHS, BATCHES = 100, 128, 64, 4, 4
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, RATE, SEED = 0.0, 0.95, 0.2, 0.001, 0.5, 3e-3, 1
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 196_608


class Agent(nn.Module):
    """Logits and value of view counts."""

    def __init__(self) -> None:
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(ITEMS, 64), nn.Tanh(), nn.Linear(64, ITEMS))
        self.critic = nn.Sequential(nn.Linear(ITEMS, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.distributions.Categorical, torch.Tensor]:
        x = torch.log1p(x)
        return torch.distributions.Categorical(logits=self.actor(x)), self.critic(x)[:, 0]


torch.manual_seed(SEED)
torch.set_num_threads(1)
envs = gym.make_vec(
    "recsim_mnar/Flipped100-v1", num_envs=LANES, vectorization_mode="vector_entry_point", autoreset_mode="SameStep"
)
agent = Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
x = torch.zeros(LENGTH, LANES, ITEMS)
actions = torch.zeros(LENGTH, LANES, dtype=torch.long)
logp, rewards, values, dones = (torch.zeros(LENGTH, LANES) for _ in range(4))

observed, _ = envs.reset(seed=SEED)
began, earned = time.perf_counter(), 0.0
for _update in range(STEPS // (LENGTH * LANES)):
    for t in range(LENGTH):
        with torch.no_grad():
            x[t] = torch.as_tensor(observed)
            distribution, values[t] = agent(x[t])
            actions[t] = distribution.sample()
            logp[t] = distribution.log_prob(actions[t])
        observed, reward, terminated, truncated, _ = envs.step(actions[t].numpy())
        rewards[t], dones[t] = torch.as_tensor(reward), torch.as_tensor(terminated | truncated)
    earned += float(rewards.sum())
    with torch.no_grad():
        following = agent(torch.as_tensor(observed))[1]
        advantages, running = torch.zeros_like(rewards), torch.zeros(LANES)
        for t in reversed(range(LENGTH)):
            delta = rewards[t] + GAMMA * following * (1 - dones[t]) - values[t]
            running = delta + GAMMA * LAMBDA * (1 - dones[t]) * running
            advantages[t], following = running, values[t]
    flat = [
        part.reshape(LENGTH * LANES, -1).squeeze(-1) for part in (x, actions, logp, advantages, advantages + values)
    ]
    for _ in range(EPOCHS):
        for rows in torch.randperm(LENGTH * LANES).chunk(BATCHES):
            x_, action, old, advantage, target = (part[rows] for part in flat)
            distribution, value = agent(x_)
            ratio = (distribution.log_prob(action) - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            gain = torch.min(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
            loss = -gain - ENTROPY * distribution.entropy().mean() + VALUE * (value - target).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
seconds = time.perf_counter() - began
print(f"{STEPS:,} steps, {STEPS / seconds:,.0f} a second; CTR while learning {earned / STEPS:.5f}")


def probabilities(x: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return agent(torch.as_tensor(x))[0].probs.numpy()


policy = recsim_mnar.FeaturePolicy(ITEMS, distribution=probabilities, rows=64, name="ppo")  # ours
print(recsim_mnar.evaluate(policy, "flipped-100-v1"))  # ours
