import numpy as np
import torch
from shared import P, tried
from torch import nn

from recsim_mnar.policies import Policy

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(P, 16), nn.Tanh(), nn.Linear(16, P))  # as a script holds one, its weights drawn


# --- before
class Trained(Policy):
    name, n_items, batches_decisions = "network", P, True

    def __init__(self):
        self.counts = {}

    def reset(self, users):
        self.counts.update({user: np.zeros(P, np.float32) for user in users.tolist()})

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.counts[user][item] += 1

    def probabilities(self, users):
        x = torch.as_tensor(np.stack([self.counts[user] for user in users.tolist()]))
        with torch.no_grad():
            shares = torch.softmax(network(x), dim=1).numpy().astype(np.float64)
        return shares / shares.sum(axis=1, keepdims=True)

    def act(self, users, uniforms):
        shares = self.probabilities(users)
        actions = np.minimum((np.cumsum(shares, axis=1) <= uniforms[:, None]).sum(axis=1), P - 1)
        return actions, shares[np.arange(len(users)), actions]


policy = Trained()
# --- after
from recsim_mnar.policies import FeaturePolicy

policy = FeaturePolicy(P, distribution=lambda x: network(torch.as_tensor(x)).softmax(dim=1).detach())
# --- end
print(tried(policy))
