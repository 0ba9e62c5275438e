"""Logs of known value: a uniform logging policy over many actions, and users who differ."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import gamma
from settings import N_ACTIONS, Setting

from recsim_mnar.rng import Stream, uniforms

N_EFFECTS = 256  # equiprobable user effects, so that a policy's value is a finite sum


class World:
    """A setting's actions, user effects and the target policy's value.

    Attributes:
        weight: (actions,) target / logging probability.
        click: (actions,) click probability of a user with effect 1.
        effects: (k,) equiprobable user effects.
        value: the target policy's click rate.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        normal = ndtri((np.arange(N_ACTIONS) + 0.5) / N_ACTIONS)

        def weights(scale: float) -> np.ndarray:
            w = np.exp(scale * normal)
            return w / w.mean()

        self.weight = weights(_solve(lambda s: (weights(s) ** 2).mean() - setting.weights, 0.0, 8.0))
        shape = self.weight**setting.correlation
        scale = _solve(lambda c: (self.weight * np.minimum(c * shape, 0.9)).mean() - setting.ctr, 0.0, 100.0)
        self.click = np.minimum(scale * shape, 0.9)
        self.effects = np.ones(1)
        if setting.effect is not None:
            middle = (np.arange(N_EFFECTS) + 0.5) / N_EFFECTS
            self.effects = gamma.ppf(middle, setting.effect)
            self.effects /= self.effects.mean()
        probabilities = np.minimum(self.click[:, None] * self.effects[None, :], 1.0)
        self.value = float((self.weight[:, None] * probabilities).mean())

    def log(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Reward, propensity, target probability and user of each row of one log."""
        s = self.setting
        seed = s.seed * 100_000 + number
        users = np.arange(s.users)
        draws = [uniforms(seed, Stream.USER, users, i) for i in range(3)]
        lengths = np.full(s.users, s.rows)
        if not s.fixed and s.rows > 1:
            lengths = 1 + np.floor(np.log1p(-draws[0]) / np.log1p(-1.0 / s.rows)).astype(np.int64)
        user = np.repeat(users, lengths)
        rows = np.arange(user.size)
        action = (uniforms(seed, Stream.POLICY, rows, 0) * N_ACTIONS).astype(np.int64)
        if s.sticky > 0.0:
            own = (draws[1] * N_ACTIONS).astype(np.int64)[user]
            action = np.where(uniforms(seed, Stream.POLICY, rows, 1) < s.sticky, own, action)
        effect = self.effects[(draws[2] * self.effects.size).astype(np.int64)][user]
        reward = (uniforms(seed, Stream.RESPONSE, rows, 0) < self.click[action] * effect).astype(np.float64)
        return reward, np.full(user.size, 1.0 / N_ACTIONS), self.weight[action] / N_ACTIONS, user


def _solve(function, low: float, high: float) -> float:
    """Root of an increasing function by bisection."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if function(middle) > 0.0:
            high = middle
        else:
            low = middle
    return 0.5 * (low + high)
