"""Assignment of users to lanes, the same for single and vector environments, and its fields in ``info``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log import schema
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.base import LaneWorld, Transition
from recsim_mnar.worlds.lanes import rows_by_seed

Ints = NDArray[np.int64]


_VIEWS = (("views", "item"), ("view_times", "time"))
_RATINGS = (("ratings", "reward"), ("observation_propensities", "observation_propensity"))

Info = dict[str, Any]
"""Dictionary that Gymnasium's ``reset`` and ``step`` return besides the observation."""

Arrivals = tuple[Ints, Ints, Transition]
"""Lanes (m,), the users (m,) who start in them, and the transition up to their first decisions or ends."""


class UserQueue:
    """Lanes of a world, and queues of user ids from which the lanes take their next users.

    Args:
        world: world of the users.
        n_lanes: number of lanes.

    Attributes:
        entries: pairs of a key of ``info`` and the log column with its values, for organic events. A world of ratings
            adds the ratings and the probabilities with which they were revealed.
        seed: seed of the only lane of a single environment; None before its first reset.
        seeds: (n_lanes,) seed of each lane's users.
        queue: (n_lanes,) index in ``next_user`` of each lane's queue. Lanes may share one.
        next_user: (n_queues,) id of the next user in each queue.
        at_once: True if one call of :meth:`recsim_mnar.worlds.lanes.Lanes.step_at_once` can move all lanes.
    """

    def __init__(self, world: LaneWorld, n_lanes: int) -> None:
        self.world = world
        self.lanes = world.lanes(n_lanes)
        self.at_once = self.lanes.at_once and not world.n_user_features
        self.entries = _VIEWS + _RATINGS if world.rates else _VIEWS
        self.seed: int | None = None
        self.seeds = np.zeros(n_lanes, np.uint64)
        self.queue = np.zeros(n_lanes, np.int64)
        self.next_user = np.zeros(0, np.int64)
        self._propensities = np.ones(n_lanes)  # an environment does not know the agent's: its rows hold 1

    def assign(self, which: Ints, seeds: list[int], first_user: int) -> None:
        """Give the lanes ``which`` new queues that begin with ``first_user``: one for all lanes, or one per seed."""
        self.seeds[which] = np.array(seeds, np.uint64)
        if len(which) == len(self.queue):  # every lane gets a new queue, so the old queues can go
            self.next_user = self.next_user[:0]
        self.queue[which] = len(self.next_user) + np.arange(len(seeds))
        self.next_user = np.append(self.next_user, np.full(len(seeds), first_user))

    def assign_only_lane(self, seed: int | None, user: int | None, draw: Callable[[], int]) -> None:
        """Give the only lane a new queue if a reset names a seed or a user, or is the first; else keep its queue.

        Args:
            seed: new seed, or None.
            user: first user of the new queue, 0 if None.
            draw: function that draws a seed, for a first reset without one.

        Raises:
            UserError: ``seed`` is not a valid seed.
        """
        if seed is None and self.seed is None:
            seed = draw()
        if seed is not None:
            self.seed = check_seed(seed)
        elif user is None:
            return
        assert self.seed is not None
        self.assign(np.zeros(1, np.int64), [self.seed], user or 0)

    def move(self, which: Ints, user: int) -> None:
        """Give lanes ``which`` queues that begin with ``user``; lanes that shared a queue still share one."""
        old_queues, place = np.unique(self.queue[which], return_inverse=True)
        self.queue[which] = len(self.next_user) + place
        self.next_user = np.append(self.next_user, np.full(len(old_queues), user))

    def admit(self, which: Ints) -> Iterator[Arrivals]:
        """Start the next user in each of the lanes ``which``, ascending, until every lane has one who waits.

        Users may leave without a decision. The next users of their lanes start in a further pass.

        Yields:
            For each pass: the lanes, their users, and the transition up to the users' first decisions or ends.
        """
        while len(which):
            users = np.empty(len(which), np.int64)
            for j, queue in enumerate(self.queue[which].tolist()):
                users[j] = self.next_user[queue]
                self.next_user[queue] += 1
            transition = self.lanes.begin(which, self.seeds[which], users)
            yield which, users, transition
            which = which[~transition.alive]

    def start_next_user(self, lane: Ints) -> Info:
        """Start the next user who reaches a decision in the only lane.

        Returns:
            The user's organic events, and under ``skipped``, if there are any, users who left without a decision.
        """
        skipped: list[Info] = []
        queue = self.queue.item()
        # A shorter way for one lane; None if the world has none, or if this user leaves without a decision.
        columns = self.lanes.begin_alone(self.seeds.item(), self.next_user.item(queue))
        if columns is not None:
            self.next_user[queue] += 1
            return {key: tuple(columns[name]) for key, name in self.entries}
        for _lane, users, transition in self.admit(lane):
            info = self.info(transition, 0)
            if transition.alive[0]:
                break
            skipped.append({"user": int(users[0]), **info})
        if skipped:
            return {**info, "skipped": tuple(skipped)}
        return info

    def features(self, which: Ints) -> NDArray[np.float32]:
        """Return the features (n, n_user_features) of the users in lanes (n,)."""
        out = np.empty((len(which), self.world.n_user_features), np.float32)
        for seed, rows in rows_by_seed(self.seeds[which]):
            out[rows] = self.world.features_of(seed, self.lanes.user[which[rows]])
        return out

    def show_items(self, which: Ints, actions: NDArray[np.int32]) -> Transition:
        """Show items (n,), or rankings (n, k), in lanes ``which``, and return the transition to the next decisions."""
        propensities = np.ones(actions.shape)
        if actions.ndim == 1:
            propensities = self._propensities[: len(which)]
        return self.lanes.take(which, actions, propensities)

    def info(self, transition: Transition, j: int) -> Info:
        """Return the organic events of the j-th lane of a transition, in order.

        They are tuples, because Gymnasium's vector environments require arrays in ``info`` to keep their shape.
        """
        first = transition.starts[j]
        last = transition.starts[j + 1]
        if first < last and transition.columns["event"][first] == schema.BANDIT:
            first += 1  # the first row of a step is the shown item
        return {key: tuple(transition.columns[name][first:last].tolist()) for key, name in self.entries}


def rewards_of(transition: Transition) -> NDArray[np.float64]:
    """Return the rewards (n,) of the actions of a transition: a lane's first row is its action."""
    return transition.columns["reward"][transition.starts[:-1]]


def organic_rows(transition: Transition) -> Ints:
    """Return the row numbers of a transition's organic events."""
    return np.flatnonzero(transition.columns["event"] == schema.ORGANIC)


def counted(info: Info, keys: tuple[str, ...]) -> Info:
    """Return an environment's ``info`` with the number of events in place of the events under ``keys``."""
    out = info.copy()
    n_skipped = len(out.pop("skipped", ()))
    for key in keys:
        out.pop(key, None)
    out["n_views"] = len(info["views"])
    out["n_skipped"] = n_skipped
    for key in ("bought", "clicked"):
        if key in keys:
            out[f"n_{key}"] = len(info.get(key, ()))
    return out
