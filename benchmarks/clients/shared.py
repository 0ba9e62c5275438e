"""What both files of a client begin with, not counted: a world, a log with propensities, users to try a policy on."""

from __future__ import annotations

import warnings

import numpy as np

from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

warnings.simplefilter("ignore")
P = 8
SETTINGS = {"n_items": P, "p_leave_bandit": 0.1}
world = SessionsWorld(SessionsParams(**SETTINGS))


def agent(name: str):
    """A fitted agent of ours."""
    return registry.learner(name).fit(Log({}), n_items=P, seed=0)


log = simulate(world, agent("user-popularity+epsilon=0.5"), n_users=120, seed=3)


def tried(policy) -> str:
    """What a policy does for some users: a line that agrees where two policies do."""
    made = simulate(world, policy, n_users=60, seed=9)
    shown = made.is_bandit
    actions = made["action"][shown].astype(np.int64)
    return f"{shown.sum()} decisions, actions {actions.sum()}, propensities {made['propensity'][shown].sum():.5f}"
