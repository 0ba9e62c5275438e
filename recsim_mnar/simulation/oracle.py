"""Reference policies: an oracle that knows the users' hidden states, and a planner that infers them.

The planner knows the world's parameters, estimates each user's interests from events, and plans ahead.
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
    """Base of deterministic policies that choose items by a world's parameters."""

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
    """Policy that shows each user the item with the largest expected reward in the user's hidden state.

    No policy earns more at the next decision. Over a user's whole visit it is optimal if recommendations do not change
    the user's state. It acts in simulations only, because a log does not hold states.

    Args:
        world: world of the users.
        plans: True to maximise the value that includes later rewards, :meth:`DecisionWorld.planned_values`, instead.

    Raises:
        UserError: the world does not define its expected rewards, or shows sets of items.
    """

    batches_decisions = True  # the state does not change within a run of decisions
    replayable = False

    def __init__(self, world: World, *, plans: bool = False) -> None:
        self.world = decision_world(world, "an oracle")
        self.plans = plans
        if not self.world.knows_rewards:
            raise UserError(f"the {world.name} world does not say its expected rewards, which an oracle shows by")
        self.name = "planning-oracle" if plans else ORACLE
        self.n_items = world.n_items
        self._best: dict[int, int] = {}  # best item by user
        self._values: dict[int, Floats] = {}  # value of every item by user, for rankings only

    def see(self, users: Ints, state: Floats) -> None:
        """Receive the hidden states (n, d) of users (n,) at their next decisions, before :meth:`act`."""
        if self.plans:
            values = self.world.planned_values(state)
        else:
            values = self.world.reward_means(state)
        self._best.update(zip(users.tolist(), np.argmax(values, axis=1).tolist(), strict=True))
        if self.world.slate_size > 1:
            self._values.update(zip(users.tolist(), values, strict=True))

    def scores(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.scores`: rankings sort items by their values."""
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
    """Policy that maximises planned value in a user state estimated from the user's views and shown items.

    It knows the world's parameters and catalogue, but of a user only what any recommender observes. An extended Kalman
    filter holds a Gaussian for each user's interests: a view is an observation of a softmax over items, expanded to
    second order at the present mean. Recency and weariness follow from the shown items; satisfaction is computed as if
    the mean were the true interests.

    Args:
        world: a sessions world.
        myopic: True to maximise the expected reward of the next decision only.

    Raises:
        UserError: it is not a sessions world, or has a calendar: a recommender does not observe a user's arrival time.
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
        """Return the arrays of state per user; without fatigue, recency has no columns."""
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
        for events in _events_by_rank(slots):
            self._view(slots[events], np.asarray(items)[events])

    def _view(self, slots: Indices, items: Ints) -> None:
        """Update the filter for one view of each of some users.

        The information form of the update: the inverse covariance grows by the curvature of the softmax's logarithm
        (the covariance of the item factors under it), and the mean moves along its gradient.
        """
        p = self.world.params
        factors = self.world.catalogue.item_factors
        self._fade(slots)
        if p.fatigue > 0.0:
            self._recency[slots, items] += p.fatigue_of_views
        mean = self._mean[slots]
        probabilities = self.world.view_probabilities(mean)
        expected = probabilities @ factors
        curvature = np.einsum("np,pi,pj->nij", probabilities, factors, factors, optimize=True)
        curvature -= expected[:, :, None] * expected[:, None, :]
        before = self._covariance[slots] + p.sigma_omega**2 * np.eye(p.n_factors)
        after = np.linalg.inv(np.linalg.inv(before) + curvature)
        self._covariance[slots] = after
        self._mean[slots] = mean + np.einsum("nij,nj->ni", after, factors[items] - expected)

    def _fade(self, slots: Indices) -> None:
        """Multiply recency and weariness by the memory of fatigue: one event has passed."""
        if self.world.params.fatigue > 0.0:
            self._recency[slots] *= self.world.params.fatigue_memory
            self._weariness[slots] *= self.world.params.fatigue_memory

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`Policy.learn`: update fatigue and satisfaction, and move interests towards clicked items."""
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
            length = np.maximum(np.sqrt((mean**2).sum(axis=1)), 1e-9)  # a mean of 0 suits no item
            suits = np.tanh((mean * factors_shown).sum(axis=1) / length)
            memory = p.retention_memory
            self._satisfaction[slots] = memory * self._satisfaction[slots] + (1.0 - memory) * suits
        if p.influence > 0.0:
            is_clicked = np.asarray(rewards) > 0.0
            clicking = slots[is_clicked]
            self._mean[clicking] += p.influence * (factors_shown[is_clicked] - self._mean[clicking])

    def scores(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.scores`: the value of each item in the estimated states."""
        slots = self._slots.find(users)
        fading = self.world.params.fatigue_memory
        if not self.world.params.changes:
            return self.world.reward_means(self._mean[slots])
        # The columns of a state in the sessions world; fatigue fades before the coming decision.
        weariness = fading * self._weariness[slots]
        time = np.zeros(len(slots))  # unknown, and of no effect without a calendar
        state = np.column_stack(
            [self._mean[slots], fading * self._recency[slots], weariness, self._satisfaction[slots], time]
        )
        if self.myopic:
            return self.world.reward_means(state)
        return self.world.planned_values(state)

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`Policy.act`."""
        return np.argmax(self.scores(users), axis=1), np.ones(len(users))


def _events_by_rank(slots: Indices) -> Iterator[Indices]:
    """Yield the row numbers of every user's first event, then of the second ones, and so on.

    ``slots`` (n,) are the users of events in order; each group can be handled at once, as it has no user twice.
    """
    order = np.argsort(slots, kind="stable")
    begins = np.flatnonzero(np.diff(slots[order], prepend=-1))
    rank = np.empty(len(slots), np.int64)
    rank[order] = np.arange(len(slots)) - np.repeat(begins, np.diff(np.append(begins, len(slots))))
    for number in range(int(rank.max(initial=-1)) + 1):
        yield np.flatnonzero(rank == number)
