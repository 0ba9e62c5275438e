"""Environments whose action holds several items: what they share, and those whose action is a ranking."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from recsim_mnar.envs.single import WorldEnv
from recsim_mnar.envs.user_queue import Info, organic_rows
from recsim_mnar.envs.validation import as_array, check_ready
from recsim_mnar.envs.vector import WorldVectorEnv
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.worlds.base import DecisionWorld, Transition, checked_slates

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


Array = NDArray[Any]


class ShowsSeveral:
    """Base of environments whose action holds several items.

    Attributes:
        event: key in ``info`` of the items shown that earned something.
        shown: ``shown(items, lanes)`` returns the (n, k) items that an action shows, of one environment where ``lanes``
            is None; or raises UserError for another shape, not integers, or an item out of range.
        earned: ``earned(transition)`` returns the (n,) reward of each lane.
        note: ``note(lanes, shown, transition)`` lets the observer see what was shown in lanes (n,), and what it earned.
    """

    event: ClassVar[str]
    world: Any
    shown: Callable[..., Any]
    earned: Callable[..., Floats]
    note: Callable[..., None]
    _observer: Any

    @property
    def size(self) -> int:
        """Items of an action."""
        return int(self.world.slate_size)

    def space(self) -> gym.spaces.MultiDiscrete:
        """Space of the action of one lane."""
        return gym.spaces.MultiDiscrete([self.world.n_items] * self.size)


def earning_rows(transition: Transition) -> Ints:
    """Rows of a transition that are items shown that earned 1."""
    columns = transition.columns
    return np.flatnonzero((columns["event"] == schema.BANDIT) & (columns["reward"] == 1.0))


class SeveralEnv(ShowsSeveral, WorldEnv):
    """One user at a time, to whom several items are shown; see the derived classes.

    Args:
        world: where users live.
        **asked: keywords of :class:`recsim_mnar.envs.WorldEnv`.
    """

    def __init__(self, world: Any, **asked: Any) -> None:
        super().__init__(world, **asked)
        self.action_space = self.space()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Show items; the user answers and lives on until the next decision or the end."""
        self._check_waiting()
        shown = self.shown(action, None)
        transition = self._queue.take(self._lane, shown.astype(np.int32))
        columns = transition.columns
        alive = bool(transition.alive[0])
        rows = organic_rows(transition)
        info = {key: tuple(columns[name][rows].tolist()) for key, name in self._queue.entries}
        info[self.event] = tuple(columns["action"][earning_rows(transition)].tolist())
        seen = self._seen_after(shown, transition, info)
        reward = float(self.earned(transition)[0])
        info = self._info(info, waiting=alive, answered=(shown[0].tolist(), reward))
        return seen, reward, not alive, False, info

    def _seen_after(self, shown: NDArray[np.integer], transition: Transition, info: Info) -> Any:
        """A new observation: what was shown, then what the user viewed."""
        self.note(self._lane, shown, transition)
        return self._seen(info)


class SeveralVectorEnv(ShowsSeveral, WorldVectorEnv):
    """Lanes of one world whose users are shown several items; see the derived classes.

    Args:
        world: where users live.
        num_envs: number of lanes.
        **asked: keywords of :class:`WorldVectorEnv`.
    """

    def __init__(self, world: Any, num_envs: int = 1, **asked: Any) -> None:
        super().__init__(world, num_envs, **asked)
        self.single_action_space = self.space()
        self.action_space = batch_space(self.single_action_space, num_envs)

    def _checked(self, actions: Array) -> Array:
        check_ready(self.autoreset_mode, self._ended if self._seeded and not self.closed else None)
        return self.shown(actions, self.num_envs)

    def _earned(self, transition: Transition) -> Floats:
        return self.earned(transition)

    def _note_answers(self, due: Ints, chosen: Array, rewards: Array, transition: Transition) -> None:
        self.note(due, chosen, transition)

    def _see(self, which: Ints, transition: Transition, infos: Info) -> None:
        """Observe what users did alone, and note which items shown earned something."""
        self._browse(which, transition, infos)
        rows = earning_rows(transition)
        events = {self.event: transition.columns["action"][rows]}
        self._note(infos, which, rows.searchsorted(transition.starts), events)


class _Rankings(ShowsSeveral):
    """Rankings of a world's items, top first."""

    event = "clicked"
    world: DecisionWorld

    def shown(self, items: Any, lanes: int | None) -> NDArray[np.int32]:
        """Implement :meth:`ShowsSeveral.shown`: an item's further places hold -1."""
        size = self.size
        array = as_array(items, "a ranking")
        shape = (size,) if lanes is None else (lanes, size)
        if array.shape != shape:
            what = f"actions are {lanes} rankings"
            if lanes is None:
                what = "an action is a ranking"
            got = f"an array of shape {array.shape}"
            if not array.ndim:
                got = f"{items!r:.60}"
            raise UserError(f"{what} of {size} items, top first: an array of shape {shape}, got {got}")
        shown = checked_slates(array.reshape(-1, size), lanes or 1, self.world.n_items).astype(np.int32)
        for place in range(1, size):
            again = (shown[:, :place] == shown[:, place, None]).any(axis=1)
            shown[again, place] = -1
        return shown

    def _clicks(self, transition: Transition) -> Floats:
        """(n, k) clicks at each place."""
        return transition.columns["reward"][transition.starts[:-1, None] + np.arange(self.size)]

    def earned(self, transition: Transition) -> Floats:
        """Implement :meth:`ShowsSeveral.earned`: the number of clicks."""
        return self._clicks(transition).sum(axis=1)

    def note(self, lanes: Ints, shown: NDArray[np.integer], transition: Transition) -> None:
        """Implement :meth:`ShowsSeveral.note`: place by place, as the events that they are in a log."""
        if not self._observer.counts_shown:
            return
        clicks = self._clicks(transition)
        for place in range(self.size):
            there = shown[:, place] >= 0
            self._observer.answered(lanes[there], shown[there, place], clicks[there, place])


class RankingEnv(_Rankings, SeveralEnv):
    """One user at a time; a step is a ranking of ``slate_size`` items, top first.

    The reward is the number of clicks. An item that stands in a ranking twice is shown once; its lower place stays
    empty. ``info`` is that of :class:`recsim_mnar.envs.WorldEnv` and ``n_clicked``, or with ``info="views"`` the items
    ``clicked``, from the top; each stands at one place.

    Args:
        world: whose ``slate_size`` is above 1.
        **asked: keywords of :class:`recsim_mnar.envs.WorldEnv`.
    """

    _more_events = ("clicked",)

    def ranking_means(self, action: Any) -> Floats:
        """Truth: (k,) click probability of each place of a ranking now. For what judges, never for what acts."""
        self._check_waiting()
        return self.world.ranking_means(self._queue.lanes.state, self.shown(action, None))[0]


class RankingVectorEnv(_Rankings, SeveralVectorEnv):
    """Lanes of one world of slates; see :class:`RankingEnv` for what a lane does and :class:`WorldVectorEnv`.

    Args:
        world: whose ``slate_size`` is above 1.
        num_envs: number of lanes.
        **asked: keywords of :class:`WorldVectorEnv`.
    """

    _more_events, _more_counts = ("clicked",), ("n_clicked",)
