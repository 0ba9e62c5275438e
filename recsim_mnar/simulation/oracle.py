"""References: an oracle that knows the users' states, and a planner that sees observations alone.

The planner knows the world, follows each user's interests, and thinks of later.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.policies.base import Floats, Ints, Learns, Policy
from recsim_mnar.policies.slots import Entry, Indices, StatefulPolicy
from recsim_mnar.worlds.base import World, decision_world

ORACLE = "oracle"


class _Reference(Policy):
    """One item per decision, and the world by which it is chosen."""

    world: Any

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`."""
        out = np.zeros((len(users), self.n_items))
        out[np.arange(len(users)), self.act(users, np.zeros(len(users)))[0]] = 1.0
        return out

    def describe(self) -> dict[str, Any]:
        """Implement :meth:`Policy.describe`."""
        return {"name": self.name, "world": self.world.describe()}


class Oracle(_Reference):
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
        self.world = decision_world(world, "an oracle")
        self.plans = plans
        if not self.world.knows_rewards:
            raise UserError(f"the {world.name} world does not say its expected rewards, which an oracle shows by")
        self.name = "planning-oracle" if plans else ORACLE
        self.n_items = world.n_items
        self._best: dict[int, int] = {}
        self._values: dict[int, Floats] = {}

    def see(self, users: Ints, state: Floats) -> None:
        """Receive the hidden states (n, .) of users (n,) at their next decisions."""
        if self.plans:
            values = self.world.planned_values(state)
        else:
            values = self.world.reward_means(state)
        self._best.update(zip(users.tolist(), np.argmax(values, axis=1).tolist(), strict=True))
        if self.world.slate_size > 1:
            self._values.update(zip(users.tolist(), values, strict=True))

    def scores(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.scores`: rankings are in the order of what each item is worth."""
        if self.world.slate_size == 1:
            return self.probabilities(users)
        rows = [self._values[user] for user in users.tolist()]
        return np.asarray(rows, np.float64).reshape(len(users), self.n_items)

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`Policy.act`."""
        return np.array([self._best[user] for user in users.tolist()], np.int64), np.ones(len(users))

    def forget(self, users: Ints) -> None:
        """Implement :meth:`Policy.forget`."""
        for user in users.tolist():
            self._best.pop(user, None)
            self._values.pop(user, None)

    def fresh(self) -> Oracle:
        """Implement :meth:`Policy.fresh`."""
        return type(self)(self.world, plans=self.plans)


class Planner(_Reference, StatefulPolicy):
    """Shows what is worth most with what it changes later, in the state that a user's views and showings suggest.

    Of the world it knows parameters and catalogue, of a user only what a recommender sees. Interests are followed by a
    Gaussian filter: a view is an observation of a softmax, whose gradient and curvature at the present mean are taken
    (an extended Kalman filter). What was shown is known; satisfaction is what the mean makes of it.

    Args:
        world: whose users it is shown to.
        myopic: show what earns most at once instead.

    Raises:
        UserError: no sessions world, or one with a calendar: a recommender does not see when a user arrived.
    """

    name = "planner"
    learns: Learns = "own user"
    _mean: Floats
    _covariance: Floats
    _recency: Floats
    _weariness: Floats
    _satisfaction: Floats

    def __init__(self, world: World, *, myopic: bool = False) -> None:
        from recsim_mnar.worlds.sessions.world import SessionsWorld

        if not isinstance(world, SessionsWorld) or world.params.calendar > 0.0:
            raise UserError("a planner is for sessions worlds without a calendar")
        self.world = world
        self.myopic = myopic
        self.n_items = world.n_items
        if myopic:
            self.name = "myopic"
        self._start()

    def _entries(self) -> dict[str, Entry]:
        p = self.world.params
        n_recent = self.n_items if p.fatigue > 0.0 else 0
        return {
            "_mean": Entry(np.float64, 0, (p.n_factors,)),
            "_covariance": Entry(np.float64, 0, (p.n_factors, p.n_factors)),
            "_recency": Entry(np.float64, 0, (n_recent,)),
            "_weariness": Entry(np.float64, 0),
            "_satisfaction": Entry(np.float64, 0),
        }

    def _clear(self, slots: Indices) -> None:
        super()._clear(slots)
        self._covariance[slots] = self.world.params.sigma_omega_initial**2 * np.eye(self.world.params.n_factors)

    def observe(self, users: Ints, items: Ints) -> None:
        """Implement :meth:`Policy.observe`."""
        slots = self._slots.find(users)
        for some in _one_each(slots):
            self._view(slots[some], np.asarray(items)[some])

    def _view(self, slots: Indices, items: Ints) -> None:
        p = self.world.params
        factors = self.world.catalogue.item_factors
        self._fade(slots)
        if p.fatigue > 0.0:
            self._recency[slots, items] += p.fatigue_of_views
        mean = self._mean[slots]
        likely = self.world.view_probabilities(mean)
        expected = likely @ factors
        curvature = np.einsum("np,pi,pj->nij", likely, factors, factors, optimize=True)
        curvature -= expected[:, :, None] * expected[:, None, :]
        before = self._covariance[slots] + p.sigma_omega**2 * np.eye(p.n_factors)
        after = np.linalg.inv(np.linalg.inv(before) + curvature)
        self._covariance[slots] = after
        self._mean[slots] = mean + np.einsum("nij,nj->ni", after, factors[items] - expected)

    def _fade(self, slots: Indices) -> None:
        """Let recency and weariness fade by one event."""
        if self.world.params.fatigue > 0.0:
            self._recency[slots] *= self.world.params.fatigue_memory
            self._weariness[slots] *= self.world.params.fatigue_memory

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`Policy.learn`: what was shown, and where a click moved the interests."""
        p = self.world.params
        slots = self._slots.find(users)
        actions = np.asarray(actions)
        factors = self.world.catalogue.item_factors
        mean = self._mean[slots]
        factors_shown = factors[actions]
        self._fade(slots)
        if p.fatigue > 0.0:
            self._weariness[slots] += self._recency[slots, actions]
            self._recency[slots, actions] += 1.0
        if p.retention > 0.0:
            length = np.maximum(np.sqrt((mean**2).sum(axis=1)), 1e-9)
            suits = np.tanh((mean * factors_shown).sum(axis=1) / length)
            kept = p.retention_memory
            self._satisfaction[slots] = kept * self._satisfaction[slots] + (1.0 - kept) * suits
        if p.influence > 0.0:
            moved = slots[np.asarray(rewards) > 0.0]
            self._mean[moved] += p.influence * (factors_shown[np.asarray(rewards) > 0.0] - self._mean[moved])

    def scores(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.scores`: what each item is worth."""
        slots = self._slots.find(users)
        fading = self.world.params.fatigue_memory
        if not self.world.params.changes:
            return self.world.reward_means(self._mean[slots])
        weariness = fading * self._weariness[slots]
        time = np.zeros(len(slots))
        state = np.column_stack(
            [self._mean[slots], fading * self._recency[slots], weariness, self._satisfaction[slots], time]
        )
        if self.myopic:
            return self.world.reward_means(state)
        return self.world.planned_values(state)

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`Policy.act`."""
        return np.argmax(self.scores(users), axis=1), np.ones(len(users))


def _one_each(slots: Indices) -> Iterator[Indices]:
    """Yield groups of events, in order, with at most one event of each user."""
    order = np.argsort(slots, kind="stable")
    begins = np.flatnonzero(np.diff(slots[order], prepend=-1))
    rank = np.empty(len(slots), np.int64)
    rank[order] = np.arange(len(slots)) - np.repeat(begins, np.diff(np.append(begins, len(slots))))
    for number in range(int(rank.max(initial=-1)) + 1):
        yield np.flatnonzero(rank == number)
