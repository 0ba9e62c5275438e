"""Settings of the study of estimators against the truth of the sessions world, fixed before it was first run."""

from __future__ import annotations

N_ITEMS = 20
TRAIN_USERS = 1000
TRAIN_SEED = 990_001
USERS = 200  # a log
LOGS = 300
FIRST_SEED = 500_000
LOGGING = "user-popularity+epsilon=0.3"
AGENTS = ("random", "popularity", "user-popularity", "svd", "item-knn", "user-knn")
CLIP = 15.0
LEVEL = 0.95
N_GROUPS = 5  # of items by popularity, for mips
ESTIMATORS: dict[str, dict] = {
    "ips": {},
    "clipped_ips": {"clip": CLIP},
    "snips": {},
    "beta_ips": {},
    "ix_ips": {"gamma": 0.01},
    "sg_ips": {"lam": 0.05},
    "mips": {},
    "dm": {},
    "dr": {},
    "clipped_dr": {"clip": CLIP},
    "sndr": {},
    "switch_dr": {"tau": 15.0},
    "dros": {"lam": 225.0},
    "sg_dr": {"lam": 0.05},
}
