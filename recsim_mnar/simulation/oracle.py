"""References that know the users' states: oracles, which show what earns most at once, and one that plans."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.slates import DeployedPolicy, top_shares
from recsim_mnar.worlds.base import World
from recsim_mnar.worlds.checks import decision_world

ORACLE = "oracle"


class Oracle(Policy):
    """Shows each user the item of the largest expected reward in the user's hidden state.

    No policy that sees observations alone earns more at the next decision. Over a whole life it is the best there is
    where what is shown changes nothing later. It acts in a simulation only: a log does not hold states.

    Args:
        world: whose users it is shown to.
        plans: show what is worth most with what it changes later (:meth:`DecisionWorld.planned_values`) instead.

    Raises:
        UserError: the world does not say its expected rewards, or its users do not decide one by one.
    """

    batches_decisions = True  # within a run of decisions the state is the same
    replayable = False

    def __init__(self, world: World, *, plans: bool = False) -> None:
        self.world, self.plans = decision_world(world, "an oracle"), plans
        if not self.world.knows_rewards:
            raise UserError(f"the {world.name} world does not say its expected rewards, which an oracle shows by")
        self.name, self.n_items = "planning-oracle" if plans else ORACLE, world.n_items
        self._best: dict[int, int] = {}

    def see(self, users: Ints, state: NDArray[np.float64]) -> None:
        """The hidden states (n, .) in which users (n,) are at their next decisions."""
        values = self.world.planned_values(state) if self.plans else self.world.reward_means(state)
        self._best.update(zip(users.tolist(), np.argmax(values, axis=1).tolist(), strict=True))

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """See :meth:`Policy.act`."""
        return np.array([self._best[user] for user in users.tolist()], np.int64), np.ones(len(users))

    def forget(self, users: Ints) -> None:
        """See :meth:`Policy.forget`."""
        for user in users.tolist():
            self._best.pop(user, None)

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`Policy.probabilities`."""
        out = np.zeros((len(users), self.n_items))
        out[np.arange(len(users)), self.act(users, np.zeros(len(users)))[0]] = 1.0
        return out

    def fresh(self) -> Oracle:
        """See :meth:`Policy.fresh`."""
        return type(self)(self.world, plans=self.plans)

    def describe(self) -> dict[str, Any]:
        """See :meth:`Policy.describe`."""
        return {"name": self.name, "world": self.world.describe()}


class UpliftOracle(DeployedPolicy):
    """Shows each user the items of largest true uplift, which no slates surpass."""

    name = ORACLE

    def probabilities(self, seed: int, users: NDArray[np.int64]) -> Floats:
        """See :meth:`recsim_mnar.policies.slates.SlatePolicy.probabilities`."""
        return top_shares(self.world.outcomes_of(seed, users).uplift, self.params.slate_size)
