"""Settings of the plan study, drawn at random, and logs made in them: NumPy alone, nothing of the package.

A setting is drawn whole from its number, before anything was planned in it. Users have a segment and an inclination of
their own; a decision has one of three slots, so a context is a segment and a slot. The deployed policy and the
candidates take one item a context (some candidates spread over two); the pilot mixes the deployed policy with uniform
exploration.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLOTS = 3
DEVELOPMENT, HELD_OUT = 1_000_000, 0
"""First numbers of the two sets of settings."""
LEAST_REWARDS = 100.0
"""Effective rewards that a pilot expects for each candidate, (E[w r])^2 n / E[w^2 r^2]: what a pilot is worth, however
many users it has. Settings with fewer are drawn again, and a set of their own (``scarce``) is made of those with a
fifth as many at least, in which the plan's own range is judged."""


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        number: what it was drawn from.
        kind: of rewards: "click", "amount" (most rows earn nothing, the others a lognormal amount) or "dwell" (gamma).
        users: of the pilot.
        rows: mean number of rows a user has.
        lengths: how users differ in it: "same", "poisson" or "geometric".
        spread: standard deviation of users' inclination on the log scale.
        epsilon: share of uniform exploration in the pilot.
        growth: how many times as many users the later log has.
        mean: (C, K) mean reward of an average user, a row a context.
        policies: (1 + M, C, K) distributions; the deployed policy's first.
        width: the half width to plan for, relative to the value.
    """

    number: int
    kind: str
    users: int
    rows: float
    lengths: str
    spread: float
    epsilon: float
    growth: float
    mean: Floats
    policies: Floats
    width: float

    @property
    def n_items(self) -> int:
        """K."""
        return self.mean.shape[1]

    @cached_property
    def pilot(self) -> Floats:
        """(C, K) the pilot's logging policy."""
        return uniform_epsilon(self, self.epsilon)

    def describe(self) -> dict[str, Any]:
        """For the table of results."""
        return {
            "number": self.number, "kind": self.kind, "users": self.users, "rows": round(self.rows, 2),
            "lengths": self.lengths, "spread": self.spread, "epsilon": round(self.epsilon, 3),
            "growth": round(self.growth, 2), "items": self.n_items, "candidates": len(self.policies) - 1,
            "mean_reward": round(float(self.mean.mean()), 4), "width": round(self.width, 3),
        }  # fmt: skip


def uniform_epsilon(setting: Setting, epsilon: float) -> Floats:
    """(C, K) the deployed policy, with uniform exploration of a share ``epsilon``."""
    return (1.0 - epsilon) * setting.policies[0] + epsilon / setting.n_items


def draw(number: int, *, scarce: bool = False) -> Setting:
    """The setting of a number; drawn again until its pilot expects enough rewards (or, ``scarce``, too few)."""
    for attempt in range(1000):
        setting = _draw(np.random.default_rng([20261, number, attempt]), number)
        fewest = effective_rewards(setting).min()
        if LEAST_REWARDS / 5.0 <= fewest < LEAST_REWARDS if scarce else fewest >= LEAST_REWARDS:
            return setting
    raise RuntimeError(f"no setting for number {number}")


def first_moment(setting: Setting) -> Floats:
    """(C, K) E[r] of a decision."""
    return setting.mean * (np.exp(1.0 + 0.6**2 / 2.0) if setting.kind == "amount" else 1.0)


def second_moment(setting: Setting) -> Floats:
    """(C, K) E[r^2] of a decision, but for rates that users' inclinations would bring above 1."""
    if setting.kind == "dwell":
        return 1.5 * setting.mean**2 * np.exp(setting.spread**2)
    return setting.mean * (np.exp(2.0 + 2.0 * 0.6**2) if setting.kind == "amount" else 1.0)


def weighted_squares(setting: Setting, logging: Floats) -> Floats:
    """(M,) E[w^2 r^2] of each candidate under a logging policy, (C, K)."""
    shown = np.maximum(logging, 1e-300)
    return (setting.policies[1:] ** 2 * second_moment(setting) / shown).sum(axis=2).mean(axis=1)


def effective_rewards(setting: Setting) -> Floats:
    """(M,) effective rewards that the pilot expects for each candidate."""
    value = (setting.policies[1:] * first_moment(setting)).sum(axis=2).mean(axis=1)
    return value**2 / weighted_squares(setting, setting.pilot) * setting.users * setting.rows


def _draw(rng: np.random.Generator, number: int) -> Setting:
    n_items = int(rng.choice([5, 10, 20, 30]))
    n_contexts = SLOTS * int(rng.integers(3, 11))
    kind = str(rng.choice(["click", "click", "amount", "dwell"]))
    base = np.exp(rng.uniform(np.log(0.02), np.log(0.3)))
    appeal = rng.normal(0.0, 0.4, (1, n_items)) + rng.normal(0.0, 0.5, (n_contexts, n_items))
    mean = np.minimum(base * np.exp(appeal), 0.6)
    n_candidates = int(rng.integers(3, 6))
    policies = [_policy(rng, appeal, 1.0)]
    policies += [_policy(rng, appeal, float(rng.uniform(0.3, 1.5))) for _ in range(n_candidates)]
    return Setting(
        number=number,
        kind=kind,
        users=int(np.exp(rng.uniform(np.log(5_000), np.log(15_000)))),
        rows=float(rng.uniform(2.0, 6.0)),
        lengths=str(rng.choice(["same", "poisson", "geometric"])),
        spread=float(rng.choice([0.0, 0.4, 0.8])),
        epsilon=float(np.exp(rng.uniform(np.log(0.1), 0.0))),
        growth=float(np.exp(rng.uniform(np.log(0.5), np.log(3.0)))),
        mean=mean,
        policies=np.array(policies),
        width=float(rng.uniform(0.05, 0.2)),
    )


def _policy(rng: np.random.Generator, appeal: Floats, noise: float) -> Floats:
    """The best item of each context by noisy scores; one policy in three takes the second best in a third of cases."""
    scores = appeal + rng.normal(0.0, noise, appeal.shape)
    order = np.argsort(-scores, axis=1)
    second = rng.choice([0.0, 0.0, 1.0 / 3.0])
    out = np.zeros_like(appeal)
    contexts = np.arange(len(appeal))
    out[contexts, order[:, 0]] = 1.0 - second
    out[contexts, order[:, 1]] += second
    return out


@dataclass(frozen=True)
class Rows:
    """A log: (n,) each, and the (n, 1 + M) probabilities of the logged actions, the deployed policy's first."""

    user: Ints
    action: Ints
    propensity: Floats
    reward: Floats
    policies: Floats


def simulate(setting: Setting, logging: Floats, users: int, rng: np.random.Generator) -> Rows:
    """``users`` users meet a logging policy, (C, K)."""
    lengths = np.full(users, round(setting.rows))
    if setting.lengths == "poisson":
        lengths = 1 + rng.poisson(setting.rows - 1.0, users)
    elif setting.lengths == "geometric":
        lengths = rng.geometric(1.0 / setting.rows, users)
    user = np.repeat(np.arange(users), lengths)
    n_segments = len(setting.mean) // SLOTS
    segment = rng.integers(0, n_segments, users)[user]
    context = segment * SLOTS + rng.integers(0, SLOTS, len(user))
    inclination = np.exp(setting.spread * rng.standard_normal(users) - setting.spread**2 / 2.0)[user]
    cumulative = np.cumsum(logging, axis=1)
    cumulative[:, -1] = 1.0
    action = (rng.random(len(user))[:, None] >= cumulative[context]).sum(axis=1)
    reward = _rewards(setting, setting.mean[context, action] * inclination, rng)
    policies = np.ascontiguousarray(setting.policies[:, context, action].T)
    return Rows(user, action, logging[context, action], reward, policies)


def _rewards(setting: Setting, mean: Floats, rng: np.random.Generator) -> Floats:
    if setting.kind == "dwell":
        return mean * rng.gamma(2.0, 0.5, len(mean))
    reward = (rng.random(len(mean)) < np.minimum(mean, 1.0)).astype(np.float64)
    if setting.kind == "amount":
        reward[reward > 0.0] = rng.lognormal(1.0, 0.6, int(reward.sum()))
    return reward
