"""Which user enters which lane: the one place where environments decide it, single or vector."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import schema
from recsim_mnar.worlds.base import Moment, World


@dataclass(slots=True)
class News:
    """What an environment tells of one lane after a reset or a step; the source of ``info``.

    Attributes:
        views, view_times: organic events since the last decision, in order. Tuples: Gymnasium's own vector environments
            take an array in ``info`` to have the same shape at every step.
        ratings, observation_propensities: in a world of ratings, what those events gave the items, and with which
            probability each was revealed; None in other worlds.
        skipped: users who left without a decision before this one, and their events.
    """

    views: tuple[int, ...] = ()
    view_times: tuple[float, ...] = ()
    ratings: tuple[float, ...] | None = None
    observation_propensities: tuple[float, ...] | None = None
    skipped: list[tuple[int, News]] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """The entries of ``info`` about events."""
        entries: dict[str, Any] = {"views": self.views, "view_times": self.view_times}
        if self.ratings is not None:
            entries |= {"ratings": self.ratings, "observation_propensities": self.observation_propensities}
        return entries

    def told_skipped(self) -> tuple[dict[str, Any], ...]:
        """The entry ``skipped`` of ``info``."""
        return tuple({"user": user, **news.told()} for user, news in self.skipped)

    def show(self, observation: NDArray[np.float32]) -> None:
        """Bring a user's observation up to date: the item's rating in a world of ratings, else one more view."""
        if self.ratings is not None:
            observation[list(self.views)] = self.ratings
            return
        for item in self.views:
            observation[item] += 1


class Crowd:
    """Lanes and the users who enter them.

    Args:
        world: where users live.
        n_lanes: how many at once.
    """

    def __init__(self, world: World, n_lanes: int) -> None:
        self.world = world
        self.lanes = world.open_lanes(n_lanes)
        self._seeds = np.zeros(n_lanes, np.uint64)
        self._queue = np.zeros(n_lanes, np.int64)
        self._next: list[int] = []

    def seat(self, which: NDArray[np.int64], seeds: list[int], first_user: int) -> None:
        """Lanes ``which`` draw from the users of one seed together, or of one seed each, from ``first_user`` on."""
        self._seeds[which] = np.array(seeds, np.uint64)
        if len(seeds) == 1:
            self._queue[which] = self._new_queue(first_user)
        else:
            for lane in which:
                self._queue[lane] = self._new_queue(first_user)

    def move(self, which: NDArray[np.int64], user: int) -> None:
        """Lanes ``which`` go on from another user; those that share a queue go on sharing it among themselves."""
        moved: dict[int, int] = {}
        for lane in which:
            before = int(self._queue[lane])
            if before not in moved:
                moved[before] = self._new_queue(user)
            self._queue[lane] = moved[before]

    def _new_queue(self, first_user: int) -> int:
        self._next.append(first_user)
        return len(self._next) - 1

    def admit(self, which: NDArray[np.int64]) -> dict[int, News]:
        """A next user for each of these lanes (ascending); those who leave without a decision are passed over."""
        news: dict[int, News] = {}
        skipped: dict[int, list[tuple[int, News]]] = {}
        while len(which):
            users = np.empty(len(which), np.int64)
            for j, lane in enumerate(which):
                queue = self._queue[lane]
                users[j] = self._next[queue]
                self._next[queue] += 1
            moment = self.lanes.begin(which, self._seeds[which], users)
            for j, lane in enumerate(which):
                met = news_of(moment, j)
                if moment.alive[j]:
                    news[int(lane)] = met
                else:
                    skipped.setdefault(int(lane), []).append((int(users[j]), met))
            which = which[~moment.alive]
        for lane, left in skipped.items():
            news[lane].skipped = left
        return news

    def take(self, which: NDArray[np.int64], actions: NDArray[np.int32]) -> tuple[Moment, NDArray[np.float64]]:
        """These lanes are shown these items; returns what happened and the rewards."""
        moment = self.lanes.take(which, actions, np.ones(len(which)))
        return moment, moment.columns["reward"][moment.starts[:-1]]


def news_of(moment: Moment, j: int) -> News:
    """The organic events of the moment's lane number j."""
    first, last = moment.starts[j], moment.starts[j + 1]
    if first < last and moment.columns["event"][first] == schema.BANDIT:
        first += 1
    item, time = (tuple(moment.columns[name][first:last].tolist()) for name in ("item", "time"))
    if "observation_propensity" not in moment.columns:
        return News(item, time)
    rating, p = (tuple(moment.columns[name][first:last].tolist()) for name in ("reward", "observation_propensity"))
    return News(item, time, rating, p)


def show_answer(world: World, observation: NDArray[np.float32], action: int, reward: float) -> None:
    """In a world of ratings the answer to a recommendation reveals a rating; 0 says nothing new of it."""
    if world.rates and reward > 0:
        observation[action] = reward


def info_of(crowd: Crowd, lane: int, news: News) -> dict[str, Any]:
    """The ``info`` of one lane."""
    info: dict[str, Any] = {
        "user": int(crowd.lanes.user[lane]),
        "step": int(crowd.lanes.step[lane]),
        "time": float(crowd.lanes.time[lane]),
        **news.told(),
    }
    if news.skipped:
        info["skipped"] = news.told_skipped()
    return info
