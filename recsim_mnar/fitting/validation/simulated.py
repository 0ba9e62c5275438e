"""Users of a world who are shown what the real log's users were shown, as far as the log says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.policy.base import Floats, Ints, Policy
from recsim_mnar.simulate import simulate
from recsim_mnar.worlds.base import DecisionWorld

_UNIFORM = 1e-9


class SharesPolicy(Policy):
    """Recommends each item to everyone with a fixed probability.

    Args:
        shares: (n_items,) probabilities.
        name: under which logs name it.
    """

    def __init__(self, shares: Floats, name: str = "shares") -> None:
        self.shares = np.asarray(shares, np.float64) / float(np.sum(shares))
        self.n_items = len(self.shares)
        self.name = name

    @property
    def is_uniform(self) -> bool:  # type: ignore[override]  # of these shares
        """Whether all items are equally likely."""
        return bool(np.ptp(self.shares) < _UNIFORM)

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """See :meth:`recsim_mnar.policy.Policy.act`."""
        actions = np.searchsorted(np.cumsum(self.shares), uniforms, side="right")
        actions = np.minimum(actions, np.flatnonzero(self.shares)[-1]).astype(np.int32)
        return actions, self.shares[actions]

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`recsim_mnar.policy.Policy.probabilities`."""
        return np.tile(self.shares, (len(users), 1))

    def fixed_distribution(self) -> Floats:
        """See :meth:`recsim_mnar.policy.Policy.fixed_distribution`."""
        return self.shares


@dataclass(frozen=True)
class Shown:
    """What simulated users are shown.

    Attributes:
        policy: that recommends.
        says: how it was found, a sentence; empty where nothing is left open.
    """

    policy: Policy
    says: str


def shown_in(log: Log, n_items: int) -> Shown:
    """A policy like the one that logged: uniform where propensities say so, else the log's shares of each item."""
    bandit = log["event"] == schema.BANDIT
    if not bandit.any():
        return Shown(SharesPolicy(np.ones(n_items), "random"), "")
    propensity = log["propensity"][bandit]
    if np.all(np.abs(propensity * n_items - 1.0) < 1e-6):
        return Shown(SharesPolicy(np.ones(n_items), "random"), "")
    counts = np.bincount(log["action"][bandit], minlength=n_items).astype(np.float64)
    return Shown(
        SharesPolicy(counts, "shares of the log"),
        "simulated users are shown each item as often as the log shows it, whoever they are: where the logging policy "
        "looks at users, clicks differ for that reason too",
    )


def simulated_log(world: Any, policy: Policy, n_users: int, seed: int, *, recommendations: bool) -> Log:
    """A log of users of a world; without recommendations where the real log has none.

    Raises:
        UserError: a world whose users do not live apart.
    """
    if not isinstance(world, DecisionWorld):
        raise UserError(
            f"validate: the {world.name} world is not one whose users are recommended one item at a time (sessions, "
            "ratings, features)"
        )
    log = simulate(world, policy, n_users, seed)
    return log if recommendations else log.organic()
