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
        event: key of ``info`` for the shown items that earned a reward, such as ``clicked``.
        shown: ``shown(items, lanes)`` returns the items (n, k) that an action shows in n = ``lanes`` lanes; ``lanes``
            None is a single environment. It raises UserError for a wrong shape or type, or an item out of range.
        earned: ``earned(transition)`` returns the reward (n,) of each lane.
        observe_shown: ``observe_shown(lanes, shown, transition)`` adds the items shown in lanes (n,), and their
            rewards, to the observation.
    """

    event: ClassVar[str]
    world: Any
    shown: Callable[..., Any]
    earned: Callable[..., Floats]
    observe_shown: Callable[..., None]
    _observer: Any

    @property
    def size(self) -> int:
        """Return the number of items in an action."""
        return int(self.world.slate_size)

    def space(self) -> gym.spaces.MultiDiscrete:
        """Return the action space of one lane."""
        return gym.spaces.MultiDiscrete([self.world.n_items] * self.size)


def earning_rows(transition: Transition) -> Ints:
    """Return the row numbers of a transition's shown items whose reward is 1."""
    columns = transition.columns
    return np.flatnonzero((columns["event"] == schema.BANDIT) & (columns["reward"] == 1.0))


class SeveralEnv(ShowsSeveral, WorldEnv):
    """Base of single environments that show several items to one user at a time.

    Args:
        world: world of the users.
        **asked: keywords of :class:`recsim_mnar.envs.WorldEnv`.
    """

    def __init__(self, world: Any, **asked: Any) -> None:
        super().__init__(world, **asked)
        self.action_space = self.space()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Show items, and advance to the user's next decision or end."""
        self._check_waiting()
        shown = self.shown(action, None)
        transition = self._queue.show_items(self._lane, shown.astype(np.int32))
        columns = transition.columns
        alive = bool(transition.alive[0])
        rows = organic_rows(transition)
        info = {key: tuple(columns[name][rows].tolist()) for key, name in self._queue.entries}
        info[self.event] = tuple(columns["action"][earning_rows(transition)].tolist())
        observation = self._observe_outcome(shown, transition, info)
        return observation, float(self.earned(transition)[0]), not alive, False, self._info(info, waiting=alive)

    def _observe_outcome(self, shown: NDArray[np.integer], transition: Transition, info: Info) -> Any:
        """Add the shown items and then the user's views to the observation, and return it."""
        self.observe_shown(self._lane, shown, transition)
        return self._observe_views(info)


class SeveralVectorEnv(ShowsSeveral, WorldVectorEnv):
    """Base of vector environments that show several items to the user in each lane.

    Args:
        world: world of the users.
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

    def _rewards_of_step(self, transition: Transition) -> Floats:
        return self.earned(transition)

    def _add_shown_items(self, due: Ints, chosen: Array, rewards: Array, transition: Transition) -> None:
        self.observe_shown(due, chosen, transition)

    def _observe_outcomes(self, which: Ints, transition: Transition, infos: Info) -> None:
        """Add organic events to the observations, and the shown items that earned a reward to ``infos``."""
        self._add_organic_events(which, transition, infos)
        rows = earning_rows(transition)
        events = {self.event: transition.columns["action"][rows]}
        self._note_events(infos, which, rows.searchsorted(transition.starts), events)


class _Rankings(ShowsSeveral):
    """Actions that are rankings of a world's items, top first; the reward is the number of clicks."""

    event = "clicked"
    world: DecisionWorld

    def shown(self, items: Any, lanes: int | None) -> NDArray[np.int32]:
        """Implement :meth:`ShowsSeveral.shown`: (n, k) items, where a repeated item's lower places hold -1, empty."""
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
            is_repeated = (shown[:, :place] == shown[:, place, None]).any(axis=1)
            shown[is_repeated, place] = -1
        return shown

    def _clicks(self, transition: Transition) -> Floats:
        """Return the clicks (n, k) at each place: the first k rows of a lane are its ranking."""
        return transition.columns["reward"][transition.starts[:-1, None] + np.arange(self.size)]

    def earned(self, transition: Transition) -> Floats:
        """Implement :meth:`ShowsSeveral.earned`: the number of clicks."""
        return self._clicks(transition).sum(axis=1)

    def observe_shown(self, lanes: Ints, shown: NDArray[np.integer], transition: Transition) -> None:
        """Implement :meth:`ShowsSeveral.observe_shown`: place by place, in the order of their rows in a log."""
        if not self._observer.counts_shown:
            return
        clicks = self._clicks(transition)
        for place in range(self.size):
            filled = shown[:, place] >= 0
            self._observer.add_recommendations(lanes[filled], shown[filled, place], clicks[filled, place])


class RankingEnv(_Rankings, SeveralEnv):
    """Environment of one user at a time whose action is a ranking of ``slate_size`` items, top first.

    The reward is the number of clicks. An item that a ranking holds twice is shown at its upper place only, and the
    lower place stays empty. ``info`` is that of :class:`recsim_mnar.envs.WorldEnv` with ``n_clicked`` added, or, with
    ``info="views"``, the items ``clicked`` from the top.

    Args:
        world: world whose ``slate_size`` is above 1.
        **asked: keywords of :class:`recsim_mnar.envs.WorldEnv`.
    """

    _more_events = ("clicked",)

    def ranking_means(self, action: Any) -> Floats:
        """Return the true click probability (k,) of each place of a ranking for the waiting user.

        It is for evaluation, never for agents.
        """
        self._check_waiting()
        return self.world.ranking_means(self._queue.lanes.state, self.shown(action, None))[0]


class RankingVectorEnv(_Rankings, SeveralVectorEnv):
    """Vector environment whose actions are rankings: each lane behaves like a :class:`RankingEnv`.

    Args:
        world: world whose ``slate_size`` is above 1.
        num_envs: number of lanes.
        **asked: keywords of :class:`WorldVectorEnv`.
    """

    _more_counts = ("n_clicked",)
