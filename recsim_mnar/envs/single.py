"""The single environment: a batch of one over any world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.envs.observing import observer
from recsim_mnar.envs.user_queue import Info, UserQueue, counted, rewards_of
from recsim_mnar.envs.validation import (
    Specified,
    checked_info,
    checked_options,
    first_user,
    one_integer,
    refuse_render_mode,
    reset_seed,
)
from recsim_mnar.errors import UserError
from recsim_mnar.worlds.base import LaneWorld, World, decision_world, needs_decisions


class WorldEnv(Specified, gym.Env[Any, Any]):
    """Environment of one user at a time: an episode is a user's visit, a step is a recommendation.

    The observation is the vector of the user's view counts so far, the reward is the world's (sessions: 1 for a
    click). After ``reset(seed=s)`` the user is number 0 of seed s, after the next ``reset()`` number 1, and so on;
    ``options={"user": u}`` selects user u. ``info`` has ``user``, ``step`` and ``time`` of the awaited decision,
    ``n_views``, the number of organic events since the previous decision, and ``n_skipped``, the number of users who
    left without a decision before this user arrived.

    In the ratings world the observation holds the ratings revealed so far, 0 for none, including those revealed by
    recommendations; the reward is the rating of the recommended item. In a world with user features the observation
    holds these features.

    Args:
        world: world of the users.
        observation: form of the observation. ``counts``: view counts, or ratings. ``decayed``: counts that each later
            event multiplies by a factor (``decayed=0.95``). ``last``: the latest items (``last=20``) as item + 1, the
            latest first, 0 for none. ``shown``: decayed counts of viewed and of shown items, and of the rewards of the
            latter (``shown=0.95``). Each of these takes ``+features``, which appends the user's features.
            ``features``: the user's features alone. ``own``: the world's own definition. ``dict``: a dictionary with
            ``counts`` and, if the world has features, ``user`` and ``item_features``. None: ``own`` if the world
            defines it, else ``features`` if the world has them, else ``counts``.
        info: content of ``info`` about events. ``counts`` (default): numbers, ``n_views``. ``views``: the events
            themselves, from which a log can be made: tuples ``views`` and ``view_times``, in the ratings world also
            ``ratings`` and ``observation_propensities``, and ``skipped`` if users left without a decision. ``none``:
            ``info`` is empty.
        render_mode: None, because nothing is rendered.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium reads a plain dict here)
    _more_events: tuple[str, ...] = ()

    def __init__(
        self,
        world: World,
        *,
        observation: str | None = None,
        info: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        refuse_render_mode(render_mode)
        lane_world = self._checked_world(world)
        lane_world.decides()
        self.world = world = lane_world
        self._observer = observer(world, 1, observation)
        self.observation_space = self._observer.space
        self._user = -1
        self._step = 0
        self.action_space = gym.spaces.Discrete(world.n_items)
        self._queue = UserQueue(world, 1)
        self._event_keys = (*(key for key, _ in self._queue.entries), *self._more_events)
        self.info = checked_info(info)
        self._lane = np.zeros(1, np.int64)
        self._action = np.zeros(1, np.int32)
        self._waiting = False
        # Number of next decisions without reward or views, whatever is shown: the world has simulated them already,
        # so that the state of its lane is the one after them.
        self._ahead = 0

    def _checked_world(self, world: World) -> LaneWorld:
        """Return the world if this environment can run it."""
        return decision_world(world, "this environment")

    @property
    def user_seed(self) -> int | None:
        """Return the seed of the users; None before the first reset."""
        return self._queue.seed

    @property
    def user(self) -> int:
        """Return the id of the present user; -1 before the first reset."""
        return self._user

    @property
    def info(self) -> str:
        """Get the content of ``info`` about events: "views", "counts" or "none"."""
        return self._info_kind

    @info.setter
    def info(self, kind: str) -> None:
        self._info_kind = kind
        # Entries of a step without views, which most are, ready to be merged; None for an empty info.
        no_events = {"counts": {"n_views": 0, "n_skipped": 0}, "views": dict.fromkeys(self._event_keys, ())}
        self._quiet: Any = no_events.get(kind)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, Info]:
        """Advance to the next user who reaches a decision."""
        user = first_user(checked_options(options, ("user",)))
        seed = reset_seed(seed)
        super().reset(seed=seed)
        self._queue.assign_only_lane(seed, user, lambda: int(self.np_random.integers(2**63)))
        info = self._queue.start_next_user(self._lane)
        features = None
        if self.world.n_user_features:
            features = self._queue.features(self._lane)
        self._observer.begin(self._lane, features)
        return self._observe_views(info), self._info(info, waiting=True)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Recommend an item and advance to the next decision or the end."""
        self._check_waiting()
        chosen = self._checked(action)
        if self._ahead:
            # The world has already simulated this decision, which has no reward and no views.
            self._ahead -= 1
            observation = self._observer.observe_unrewarded(chosen)
            reward = 0.0
        elif (transition := self._queue.lanes.take_alone(chosen)) is not None:
            reward, self._waiting = transition
            if self.world.rates and reward > 0:  # a reward above 0 is a rating that is now revealed
                self._observer.add_events_alone((chosen,), (reward,))
            observation = self._observer.observation_alone()
        else:
            return self._step_with_events(chosen)
        self._step += 1
        self._time += 1.0
        info: Info = {}
        if self._quiet is not None:
            info = {"user": self._user, "step": self._step, "time": self._time, **self._quiet}
        return observation, reward, not self._waiting, False, info

    def _check_waiting(self) -> None:
        """Raise ResetNeeded unless a user waits for a recommendation."""
        if not self._waiting:
            raise gym.error.ResetNeeded("no user is waiting for a recommendation: call reset() first")

    def close(self) -> None:
        """End the episode; call :meth:`reset` before the next :meth:`step`."""
        self._waiting = False

    def _step_with_events(self, chosen: int) -> tuple[Any, float, bool, bool, Info]:
        """Step with an item after which the user may view items, and return the results of :meth:`step`."""
        self._action[0] = chosen
        transition = self._queue.show_items(self._lane, self._action)
        reward = rewards_of(transition).item()
        alive = transition.alive.item()
        if self._observer.counts_shown or (self.world.rates and reward > 0):
            self._observer.add_recommendations(self._lane, self._action, np.array([reward]))
        info = self._queue.info(transition, 0)
        observation = self._observe_views(info)
        return observation, reward, not alive, False, self._info(info, waiting=alive)

    def reward_means(self) -> NDArray[np.float64]:
        """Return the true expected reward (n_items,) of every item for the waiting user, to measure regret.

        It is for evaluation, never for agents: no observation and no ``info`` holds it.

        Raises:
            ResetNeeded: no user is waiting.
            UserError: the world shows slates, or does not define its expected rewards.
        """
        self._check_waiting()
        return needs_decisions(self.world, "reward_means").reward_means(self._queue.lanes.state)[0].copy()

    def _observe_views(self, info: Info) -> Any:
        """Add the organic events of ``info`` to the observation, and return it in a new array."""
        if info["views"]:
            ratings = info["ratings"] if self.world.rates else None
            self._observer.add_events_alone(info["views"], ratings)
        return self._observer.observation_alone()

    def _sized(self, info: Info) -> Info:
        """Return ``info`` in the requested form: empty, with numbers of events, or with tuples."""
        if self._info_kind == "none":
            return {}
        if self._info_kind == "counts":
            return counted(info, self._event_keys)
        return info

    def _info(self, info: Info, *, waiting: bool) -> Info:
        """Store the lane's new state, simulate ahead over decisions without events, and return the complete ``info``.

        Args:
            info: events of the reset or step.
            waiting: True if the user waits for a decision.
        """
        lanes = self._queue.lanes
        self._waiting = waiting
        self._user = lanes.user.item()
        self._step = lanes.step.item()
        self._time = lanes.time.item()
        self._ahead = 0
        if waiting:
            self._ahead = lanes.skip_uneventful(self._lane).item()
        return self._sized({"user": self._user, "step": self._step, "time": self._time, **info})

    def _checked(self, action: Any) -> int:
        """Return the action as an int; raise UserError unless it is an item of the world."""
        kind = type(action)
        if kind is np.int64 or kind is int:  # the two usual types take the short way, at every step
            chosen = int(action)
        else:
            chosen = one_integer(action)
        if not 0 <= chosen < self.world.n_items:
            raise UserError(f"action {chosen} is out of range, the world has items 0..{self.world.n_items - 1}")
        return chosen
