"""Environments whose action is a ranking of several items."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from recsim_mnar.envs.single import WorldEnv
from recsim_mnar.envs.user_queue import organic_rows
from recsim_mnar.envs.validation import as_array, check_ready
from recsim_mnar.envs.vector import WorldVectorEnv
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.worlds.base import DecisionWorld, Transition, checked_slates

Array = NDArray[Any]


def space_of(world: DecisionWorld) -> gym.spaces.MultiDiscrete:
    """Rankings of a world's items, top first."""
    return gym.spaces.MultiDiscrete([world.n_items] * world.slate_size)


def shown_of(rankings: Any, world: DecisionWorld, lanes: int | None = None) -> NDArray[np.int32]:
    """(n, k) items shown, each once: -1 at the lower places of an item that stands in a ranking again.

    Args:
        rankings: (k,), or (lanes, k) where there are lanes.
        world: whose ``slate_size`` is k.
        lanes: how many; None for a single environment.

    Raises:
        UserError: another shape, not integers, or an item out of range.
    """
    size, given = world.slate_size, as_array(rankings, "a ranking")
    shape = (size,) if lanes is None else (lanes, size)
    if given.shape != shape:
        what = "an action is a ranking" if lanes is None else f"actions are {lanes} rankings"
        got = f"an array of shape {given.shape}" if given.ndim else f"{rankings!r:.60}"
        raise UserError(f"{what} of {size} items, top first: an array of shape {shape}, got {got}")
    shown = checked_slates(given.reshape(-1, size), lanes or 1, world.n_items).astype(np.int32)
    for place in range(1, size):
        again = (shown[:, :place] == shown[:, place, None]).any(axis=1)
        shown[again, place] = -1
    return shown


def _places(transition: Transition, size: int) -> NDArray[np.int64]:
    """(n, k) rows of a transition that answer its rankings."""
    return transition.starts[:-1, None] + np.arange(size)


class RankingEnv(WorldEnv):
    """One user at a time; a step is a ranking of ``slate_size`` items, top first.

    The reward is the number of clicks. An item that stands in a ranking twice is shown once; its lower place stays
    empty. ``info`` is that of :class:`recsim_mnar.envs.WorldEnv` and ``n_clicked``, or with ``info="views"`` the items
    ``clicked``, from the top; each stands at one place.

    Args:
        world: whose ``slate_size`` is above 1.
        **asked: keywords of :class:`recsim_mnar.envs.WorldEnv`.
    """

    _more_events = ("clicked",)
    world: DecisionWorld

    def __init__(self, world: DecisionWorld, **asked: Any) -> None:
        super().__init__(world, **asked)
        self.action_space = space_of(world)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Recommend a ranking; the user reads it and lives on until the next decision or the end."""
        if not self._waiting:
            raise gym.error.ResetNeeded("no user is waiting for a recommendation: call reset() first")
        shown = shown_of(action, self.world)
        transition = self._queue.take(self._lane, shown)
        clicks = transition.columns["reward"][: self.world.slate_size]
        alive, reward = bool(transition.alive[0]), float(clicks.sum())
        if self._observer.counts_shown:
            _note_showings(self._observer, self._lane, shown, clicks[None])
        views = organic_rows(transition)
        info = {key: tuple(transition.columns[name][views].tolist()) for key, name in self._queue.entries}
        info["clicked"] = tuple(shown[0][clicks > 0].tolist())
        seen = self._seen(info)
        info = self._info(info, waiting=alive, answered=(shown[0].tolist(), reward))
        return seen, reward, not alive, False, info

    def ranking_means(self, action: Any) -> NDArray[np.float64]:
        """Truth: (k,) click probability of each place of a ranking now. For what judges, never for what acts."""
        if not self._waiting:
            raise gym.error.ResetNeeded("no user is waiting for a recommendation: call reset() first")
        return self.world.ranking_means(self._queue.lanes.state, shown_of(action, self.world))[0]


class RankingVectorEnv(WorldVectorEnv):
    """Lanes of one world of slates; see :class:`RankingEnv` for what a lane does and :class:`WorldVectorEnv`.

    Args:
        world: whose ``slate_size`` is above 1.
        num_envs: number of lanes.
        **asked: keywords of :class:`WorldVectorEnv`.
    """

    _more_events, _more_counts = ("clicked",), ("n_clicked",)
    world: DecisionWorld

    def __init__(self, world: DecisionWorld, num_envs: int = 1, **asked: Any) -> None:
        super().__init__(world, num_envs, **asked)
        self.single_action_space = space_of(world)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _checked(self, actions: Array) -> Array:
        check_ready(self.autoreset_mode, self._ended if self._seeded and not self.closed else None)
        return shown_of(actions, self.world, self.num_envs)

    def _earned(self, transition: Transition) -> NDArray[np.float64]:
        return transition.columns["reward"][_places(transition, self.world.slate_size)].sum(axis=1)

    def _note_answers(self, due: NDArray[np.int64], chosen: Array, rewards: Array, transition: Transition) -> None:
        clicks = transition.columns["reward"][_places(transition, self.world.slate_size)]
        _note_showings(self._observer, due, chosen, clicks)

    def _see(self, which: NDArray[np.int64], transition: Transition, infos: dict[str, Any]) -> None:
        self._browse(which, transition, infos)
        c = transition.columns
        rows = np.flatnonzero((c["event"] == schema.BANDIT) & (c["reward"] == 1.0))
        self._note(infos, which, rows.searchsorted(transition.starts), {"clicked": c["action"][rows]})


def _note_showings(observer: Any, lanes: NDArray[np.int64], shown: Array, clicks: Array) -> None:
    """Let an observer see rankings place by place, as the events that they are in a log."""
    for place in range(shown.shape[1]):
        there = shown[:, place] >= 0
        observer.answered(lanes[there], shown[there, place], clicks[there, place])
