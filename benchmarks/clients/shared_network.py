"""A small network as a CleanRL script holds one, trained here by nothing: its weights are drawn."""

import torch
from shared import P
from torch import nn

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(P, 16), nn.Tanh(), nn.Linear(16, P))
