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

    # + reset observe

    def probabilities(self, users):
        x = torch.as_tensor(np.stack([self.counts[user] for user in users.tolist()]))
        with torch.no_grad():
            shares = torch.softmax(network(x), dim=1).numpy().astype(np.float64)
        return shares / shares.sum(axis=1, keepdims=True)

    # + act


policy = Trained()
# --- after
from recsim_mnar.policies import FeaturePolicy

policy = FeaturePolicy(P, distribution=lambda x: network(torch.as_tensor(x)).softmax(dim=1).detach())
# --- end
print(tried(policy))
