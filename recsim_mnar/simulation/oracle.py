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
from recsim_mnar.worlds.sessions.catalogue import empty_states, parts_of

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
    _state: Floats
    _covariance: Floats

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
        """Return the arrays per user: the estimated state, in the world's own columns, and the interests' covariance.

        The time stays 0: it is unknown, and of no effect without a calendar.
        """
        p = self.world.params
        return {
            "_state": Entry(np.float64, 0, empty_states(p, self.n_items, 1).shape[1:]),
            "_covariance": Entry(np.float64, 0, (p.n_factors, p.n_factors)),
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
        matrix = self._state[slots]
        state = parts_of(matrix, p.n_factors)  # views of the matrix
        state.fade(p)
        state.was_viewed(p, items)
        mean = np.ascontiguousarray(state.omega)
        probabilities = self.world.view_probabilities(mean)
        expected = probabilities @ factors
        curvature = np.einsum("np,pi,pj->nij", probabilities, factors, factors, optimize=True)
        curvature -= expected[:, :, None] * expected[:, None, :]
        before = self._covariance[slots] + p.sigma_omega**2 * np.eye(p.n_factors)
        after = np.linalg.inv(np.linalg.inv(before) + curvature)
        self._covariance[slots] = after
        state.omega[:] = mean + np.einsum("nij,nj->ni", after, factors[items] - expected)
        self._state[slots] = matrix

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`Policy.learn`: update the state by the items shown and clicked, as if the mean were true."""
        p = self.world.params
        slots = self._slots.find(users)
        actions = np.asarray(actions)
        factors = self.world.catalogue.item_factors[actions]
        matrix = self._state[slots]
        state = parts_of(matrix, p.n_factors)  # views of the matrix
        state.fade(p)
        state.was_shown(p, actions, factors)
        state.was_clicked(p, np.asarray(rewards) > 0.0, factors)
        self._state[slots] = matrix

    def scores(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.scores`: the value of each item in the estimated states."""
        p = self.world.params
        matrix = self._state[self._slots.find(users)]
        state = parts_of(matrix, p.n_factors)
        if not p.changes:
            return self.world.reward_means(state.omega)
        state.fade(p)  # before the coming decision; in a copy, as long as it has not happened
        if self.myopic:
            return self.world.reward_means(matrix)
        return self.world.planned_values(matrix)

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
