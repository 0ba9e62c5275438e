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

_PADS: dict[str, np.generic] = {
    **dict.fromkeys(("views", "bought", "clicked"), np.int64(-1)),
    **dict.fromkeys(("view_times", "ratings", "observation_propensities"), np.float64(0.0)),
}
"""Values of places without an event."""


Info = dict[str, Any]
"""What ``reset`` and ``step`` say besides the observation: Gymnasium's interface wants a dictionary."""

Arrivals = tuple[Ints, Ints, Transition]
"""Lanes, their users, and what happened in them."""


class UserQueue:
    """Lanes and the users who enter them.

    Args:
        world: where users live.
        n_lanes: how many at once.

    Attributes:
        entries: what is info of organic events: the key in ``info``, and the log's column whose values stand there. In
            a world of ratings those are also what the events gave the items, and how likely each was to be revealed.
        seed: of the only lane, None before it is seated.
        seeds: (n_lanes,) whose users each lane meets.
        queue: (n_lanes,) index in ``next_user`` of the queue that each lane draws users from.
        next_user: the next one in each queue.
        at_once: whether lanes are moved by :meth:`recsim_mnar.worlds.lanes.Lanes.step_at_once`.
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
        self._certain = np.ones(n_lanes)

    def assign(self, which: Ints, seeds: list[int], first_user: int) -> None:
        """Assign seeds to lanes ``which``, one for all or one each, from ``first_user`` on."""
        self.seeds[which] = np.array(seeds, np.uint64)
        if len(which) == len(self.queue):  # nobody draws from those that there are
            self.next_user = self.next_user[:0]
        self.queue[which] = len(self.next_user) + np.arange(len(seeds))
        self.next_user = np.append(self.next_user, np.full(len(seeds), first_user))

    def seat_alone(self, seed: int | None, user: int | None, draw: Callable[[], int]) -> None:
        """Seat the only lane: with a seed, the first time with one that ``draw`` gives, later only to move to ``user``.

        Raises:
            UserError: ``seed`` is no seed.
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
        """Move lanes ``which`` to another user; lanes that share a queue keep sharing it."""
        shared, place = np.unique(self.queue[which], return_inverse=True)
        self.queue[which] = len(self.next_user) + place
        self.next_user = np.append(self.next_user, np.full(len(shared), user))

    def admit(self, which: Ints) -> Iterator[Arrivals]:
        """Start the next user of each lane (ascending); users who leave without a decision are skipped.

        Yields the lanes, their users and what happened, again for those whose users left, until every lane waits.
        """
        while len(which):
            users = np.empty(len(which), np.int64)
            for j, queue in enumerate(self.queue[which].tolist()):
                users[j] = self.next_user[queue]
                self.next_user[queue] += 1
            transition = self.lanes.begin(which, self.seeds[which], users)
            yield which, users, transition
            which = which[~transition.alive]

    def meet(self, lane: Ints) -> Info:
        """Start the next user of one lane (1,); return their info, with ``skipped`` users if any."""
        skipped: list[Info] = []
        queue = self.queue.item()
        alone = self.lanes.begin_alone(self.seeds.item(), self.next_user.item(queue))
        if alone is not None:
            self.next_user[queue] += 1
            return {key: tuple(alone[name]) for key, name in self.entries}
        for _lane, users, transition in self.admit(lane):
            info = self.info(transition, 0)
            if transition.alive[0]:
                break
            skipped.append({"user": int(users[0]), **info})
        if skipped:
            return {**info, "skipped": tuple(skipped)}
        return info

    def features(self, which: Ints) -> NDArray[np.float32]:
        """(n, n_user_features) of the users in these lanes."""
        out = np.empty((len(which), self.world.n_user_features), np.float32)
        for seed, rows in rows_by_seed(self.seeds[which]):
            out[rows] = self.world.features_of(seed, self.lanes.user[which[rows]])
        return out

    def take(self, which: Ints, actions: NDArray[np.int32]) -> Transition:
        """Show items, or rankings (n, k), in lanes."""
        certain = self._certain[: len(which)] if actions.ndim == 1 else np.ones(actions.shape)
        return self.lanes.take(which, actions, certain)

    def info(self, transition: Transition, j: int) -> Info:
        """Return the organic events of lane number j of a transition, in order.

        Tuples: Gymnasium's own vector environments take an array in ``info`` to have the same shape at every step.
        """
        first = transition.starts[j]
        last = transition.starts[j + 1]
        if first < last and transition.columns["event"][first] == schema.BANDIT:
            first += 1
        return {key: tuple(transition.columns[name][first:last].tolist()) for key, name in self.entries}


def rewards_of(transition: Transition) -> NDArray[np.float64]:
    """(n,) rewards of the actions taken."""
    return transition.columns["reward"][transition.starts[:-1]]


def organic_rows(transition: Transition) -> Ints:
    """Rows of a transition that are organic events."""
    return np.flatnonzero(transition.columns["event"] == schema.ORGANIC)


def counted(info: Info, keys: tuple[str, ...]) -> Info:
    """Return an environment's ``info`` with numbers of events: ``n_views``, ``n_skipped``, ..."""
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


def fixed(info: Info, keys: tuple[str, ...], size: int) -> Info:
    """Return an environment's ``info`` with the last ``size`` events in arrays, oldest first.

    Places beyond them hold -1 (items) or 0; ``n_views`` says how many events there were, which may be more than
    ``size``, and ``n_skipped`` how many users left without a decision before this one.

    Args:
        info: as the environment makes it.
        keys: of the events, each a tuple.
        size: of the arrays.
    """
    out = {key: value for key, value in info.items() if key not in keys and key != "skipped"}
    for key in keys:
        events = info.get(key) or ()
        array = np.full(size, _PADS[key])
        last = events[-size:]
        array[: len(last)] = last
        out[key] = array
    out["n_views"] = len(info.get("views") or ())
    out["n_skipped"] = len(info.get("skipped") or ())
    return out


def fixed_lanes(infos: Info, keys: tuple[str, ...], size: int, n_lanes: int) -> Info:
    """Return :func:`fixed` of a vector environment: arrays (n_lanes, size) for lanes with a ``user``."""
    if "final_info" in infos:
        infos = {**infos, "final_info": fixed_lanes(infos["final_info"], keys, size, n_lanes)}
    changed = {*keys, "skipped"}
    out = {key: value for key, value in infos.items() if key.removeprefix("_") not in changed}
    has_user = infos["_user"]
    for key in keys:
        array = np.full((n_lanes, size), _PADS[key])
        for lane in np.flatnonzero(infos.get(f"_{key}", np.zeros(n_lanes, np.bool_))).tolist():
            last = infos[key][lane][-size:]
            array[lane, : len(last)] = last
        out[key] = array
        out[f"_{key}"] = has_user.copy()
    for name, key in (("n_views", "views"), ("n_skipped", "skipped")):
        there = infos.get(f"_{key}", np.zeros(n_lanes, np.bool_))
        counts = [len(infos[key][lane]) if there[lane] else 0 for lane in range(n_lanes)]
        out[name] = np.array(counts, np.int64)
        out[f"_{name}"] = has_user.copy()
    return out
