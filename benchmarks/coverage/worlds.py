"""The worlds and sizes of the study, fixed before it was first run, and logs of known value from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import gamma

from recsim_mnar.rng import Stream, uniforms

N_ACTIONS = 1000
N_EFFECTS = 256  # equiprobable user effects, so that a policy's value is a finite sum
LEVEL = 0.95


@dataclass(frozen=True)
class Setting:
    """A world and a size of log.

    Attributes:
        name: stable id.
        weights: E[w^2] under the logging policy, which is uniform over 1,000 actions; log w is a normal's quantiles.
        correlation: power of w that the click probability is proportional to.
        ctr: click rate of the target policy before user effects.
        users: users a log.
        rows: mean rows a user; all users have as many where ``fixed``, else the number is geometric.
        effect: shape of the gamma distribution of user effects on the click probability (mean 1); None for no effect.
        sticky: probability that a row repeats its user's own action, so that weights depend within a user.
        fixed: see ``rows``.
        logs: number of logs.
        seed: of the draws.
    """

    name: str
    weights: float
    correlation: float
    ctr: float
    users: int
    rows: int = 1
    effect: float | None = None
    sticky: float = 0.0
    fixed: bool = True
    logs: int = 2000
    seed: int = 0


def _grid() -> list[Setting]:
    grid: list[Setting] = []

    def add(kind: str, *args, **named) -> None:
        seed = 20190 + 7919 * (len(grid) + 1)
        grid.append(Setting(f"{len(grid) + 1:02d}-{kind}", *args, seed=seed, **named))

    for label, weights in (("moderate", 5.7), ("heavy", 59.0)):
        for n in (1_000, 10_000, 100_000):
            for ctr in (0.001, 0.01, 0.1):
                add(f"{label}-n{n}-ctr{ctr:g}", weights, 0.0, ctr, n)
    for label, weights in (("moderate", 5.7), ("heavy", 59.0)):
        for word, power in (("correlated", 0.5), ("anticorrelated", -0.5)):
            for n, ctr in ((1_000, 0.1), (10_000, 0.01), (10_000, 0.1), (100_000, 0.01)):
                add(f"{label}-{word}-n{n}-ctr{ctr:g}", weights, power, ctr, n)
    for label, weights in (("light", 1.7), ("moderate", 5.7), ("heavy", 59.0)):
        for users, rows in ((100, 10), (100, 200), (300, 30), (3_000, 30), (500, 200)):
            for ctr in (0.01, 0.1):
                add(f"{label}-users{users}x{rows}-ctr{ctr:g}", weights, 0.0, ctr, users, rows, effect=0.3, fixed=False)
    for weights in (1.7, 5.7):
        add(f"same-users100x200-w{weights:g}", weights, 0.0, 0.1, 100, 200)
        add(f"weak-effect-users300x30-w{weights:g}", weights, 0.0, 0.1, 300, 30, effect=3.0, fixed=False)
        add(f"sticky-users3000x30-w{weights:g}", weights, 0.0, 0.01, 3_000, 30, effect=1.0, sticky=0.3, fixed=False)
    return grid


GRID = _grid()


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
