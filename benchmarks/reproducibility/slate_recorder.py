"""Runs of a slate policy in the environments of a world of slates; their logs are those of ``simulate``."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from recsim_mnar.envs.recording import LogBuilder, events_of, recorded
from recsim_mnar.envs.user_queue import Info
from recsim_mnar.log.table import Log
from recsim_mnar.purchases.envs import PurchasesVectorEnv
from recsim_mnar.purchases.exposures import Ints
from recsim_mnar.purchases.policies import SlatePolicy


def record_slates(env: gym.Env[Any, Any], policy: SlatePolicy, n_users: int, seed: int) -> Log:
    """Run a slate policy on the first users of a seed in a single environment, and return the log of ``simulate``.

    Args:
        env: environment of a world whose parameter ``slates`` is ``fixed``.
        policy: the slate policy; a fresh copy of it acts.
        n_users: number of users.
        seed: seed of the users and of the slates.
    """
    return recorded(env, SlateRecorder(policy.fresh(), n_users, seed), n_users, seed)


def record_slates_vector(env: PurchasesVectorEnv, policy: SlatePolicy, n_users: int, seed: int) -> Log:
    """Run a slate policy in a vector environment in NEXT_STEP mode; the log equals that of :func:`record_slates`."""
    return recorded(env, SlateRecorder(policy.fresh(), n_users, seed), n_users, seed)


class SlateRecorder:
    """Runner of a slate policy, with the methods of :class:`recsim_mnar.envs.recording.Recorder`."""

    def __init__(self, policy: SlatePolicy, n_users: int, seed: int) -> None:
        self.policy = policy
        self.seed = seed
        self.builder = LogBuilder()
        self._n_users = n_users
        self.shape = (policy.params.slate_size,)

    def arrive(self, info: Info) -> None:
        """Record the user in the ``info`` of a reset, and start the user in the policy."""
        self.builder.begin(info)
        self.policy.reset(np.array([info["user"]]))

    def log(self) -> Log:
        """Return the log of the recorded users."""
        return self.builder.log(self._n_users)

    def decide(self, infos: list[Info]) -> Ints:
        """Draw and return slates (n, N) for the waiting users in ``infos``, one draw per group in the same period.

        Slates and probabilities are kept for :meth:`record_outcomes`.
        """
        users = np.array([i["user"] for i in infos])
        periods = np.array([i["time"] for i in infos]).astype(np.int64)
        self.slates = slates = np.empty((len(users), *self.shape), np.int64)
        self.probability = np.empty(slates.shape)
        for period in np.unique(periods):
            rows = periods == period
            slates[rows], self.probability[rows] = self.policy.slates(self.seed, users[rows], int(period))
        return slates

    def record_outcomes(self, before: list[Info], after: list[Info], *_: Any) -> None:
        """Record the outcome of each user's slate, and let the policy observe it with the user's own purchases."""
        slates = self.slates
        for j, (info, next_info) in enumerate(zip(before, after, strict=True)):
            user = int(info["user"])
            bought = events_of(next_info, "bought")
            order = np.argsort(slates[j])  # a log has the items of a slate ascending
            first_item_reward = float(slates[j, 0] in bought)  # read only if a slate has one item
            self.builder.add_step(info, next_info, slates[j], self.probability[j], first_item_reward)
            unaided = np.array(events_of(next_info, "views"), np.int32)
            action = np.concatenate([slates[j][order], np.full(len(unaided), -1)]).astype(np.int32)
            # The columns of a log, as the policy gets them in a simulation: the slate's rows, then organic rows.
            self.policy.observe_events(
                {
                    "user": np.full(len(action), user),
                    "action": action,
                    "item": np.concatenate([np.full(slates.shape[1], -1, np.int32), unaided]),
                    "reward": np.isin(action, bought).astype(np.float64),
                    "propensity": np.append(self.probability[j][order], np.full(len(unaided), np.nan)),
                }
            )
