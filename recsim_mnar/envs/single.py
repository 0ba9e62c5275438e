"""The single environment: a batch of one over any world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.envs.observing import observer
from recsim_mnar.envs.user_queue import Info, UserQueue, counted, fixed, rewards_of
from recsim_mnar.envs.validation import (
    Specified,
    arrival_line,
    checked_info,
    checked_options,
    checked_render_mode,
    first_user,
    one_integer,
    reset_seed,
    step_line,
)
from recsim_mnar.errors import UserError
from recsim_mnar.worlds.base import LaneWorld, World, decision_world


class WorldEnv(Specified, gym.Env[Any, Any]):
    """Environment of one user at a time; an episode is a user's life, a step a recommendation.

    The observation is the vector of the user's view counts so far, the reward what the world pays (sessions: 1 for a
    click). After ``reset(seed=s)`` the environment meets user 0 of seed s, then user 1 at the next ``reset()``, and
    so on; ``options={"user": u}`` goes to user u. ``info`` carries ``user``, ``step`` and ``time`` of the decision
    awaited, ``n_views``, the number of organic events since the last one, and ``n_skipped``, the number of users who
    left without a decision before this one came.

    In the ratings world the observation holds the ratings revealed so far (0 for none), those that answered
    recommendations among them; the reward is the rating of the item recommended. In a world of user features the
    observation is those.

    Args:
        world: where users live.
        observation: ``counts`` of views (or the ratings), ``decayed`` counts (``decayed=0.95``: what a share keeps at
            each later event), the ``last`` items (``last=20``; the latest first, item + 1, 0 for none), decayed counts
            of what was viewed and what was ``shown``, with its rewards (``shown=0.95``), each with ``+features`` for
            the user's features behind it; ``features`` of the user alone, what the world defines as its ``own``, or a
            ``dict`` of ``counts`` and, where the world has features, ``user`` and ``item_features``. None: the world's
            own, else features, else counts, as the world has them.
        info: ``counts`` (default), as above. ``views``: instead of numbers the events themselves, of which a log is
            made: tuples ``views`` and ``view_times``, in the ratings world ``ratings`` and
            ``observation_propensities`` next to them, and ``skipped`` where users left without a decision. ``none``:
            an empty dictionary.
        info_size: ``views`` in arrays of this length; see :func:`recsim_mnar.envs.user_queue.fixed`.
        render_mode: ``ansi``: :meth:`render` gives the last step in one line. None: nothing is rendered.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012  (Gymnasium reads a plain dict here)
    _more_events: tuple[str, ...] = ()

    def __init__(
        self,
        world: World,
        *,
        observation: str | None = None,
        info: str | None = None,
        info_size: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        self.render_mode = checked_render_mode(render_mode, self.metadata["render_modes"])
        lived = self._checked_world(world)
        lived.decides()
        self.world = world = lived
        self._observer = observer(world, 1, observation)
        self.observation_space = self._observer.space
        kind, self._info_size = checked_info(info, info_size)
        self._line = ""
        self._user = -1
        self._step = 0
        self.action_space = gym.spaces.Discrete(world.n_items)
        self._queue = UserQueue(world, 1)
        self._event_keys = (*(key for key, _ in self._queue.entries), *self._more_events)
        self.info = kind
        self._lane = np.zeros(1, np.int64)
        self._action = np.zeros(1, np.int32)
        self._waiting = False
        self._ahead = 0  # decisions that come to nothing, through which the lane has lived and the agent has not

    def _checked_world(self, world: World) -> LaneWorld:
        """Return the world if this environment can run it."""
        return decision_world(world, "this environment")

    @property
    def user_seed(self) -> int | None:
        """The seed whose users are met; None before the first reset."""
        return self._queue.seed

    @property
    def info(self) -> str:
        """Get the content of ``info`` about events: "views", "counts" or "none"."""
        return self._info_kind

    @info.setter
    def info(self, kind: str) -> None:
        self._info_kind = kind
        # Events of a step in which nothing is viewed, as most are; None where more is to be done than to say so.
        plain = {"counts": {"n_views": 0, "n_skipped": 0}, "views": dict.fromkeys(self._event_keys, ())}.get(kind)
        self._quiet: Any = plain if self.render_mode is None and self._info_size is None else None

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Any, Info]:
        """Advance to the next user who reaches a decision."""
        user = first_user(checked_options(options, ("user",)))
        seed = reset_seed(seed)
        super().reset(seed=seed)
        self._queue.seat_alone(seed, user, lambda: int(self.np_random.integers(2**63)))
        info = self._queue.meet(self._lane)
        self._observer.begin(self._lane, self._queue.features(self._lane) if self.world.n_user_features else None)
        return self._seen(info), self._info(info, waiting=True)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Recommend an item and advance to the next decision or the end."""
        self._check_waiting()
        chosen = self._checked(action)
        if self._ahead:
            # Most recommendations come to nothing whatever they are: the dynamics need not be asked.
            self._ahead -= 1
            observation = self._observer.alone_shown(chosen)
            reward = 0.0
        elif (transition := self._queue.lanes.take_alone(chosen)) is not None:
            reward, self._waiting = transition
            if self.world.rates and reward > 0:  # the answer reveals a rating; 0 says nothing new of it
                self._observer.alone_sees((chosen,), (reward,))
            observation = self._observer.alone()
        else:
            return self._answered(chosen)
        self._step += 1
        self._time += 1.0
        if self._quiet is None:
            info = self._unseen(chosen, reward)
        else:
            info = {"user": self._user, "step": self._step, "time": self._time, **self._quiet}
        return observation, reward, not self._waiting, False, info

    def _check_waiting(self) -> None:
        if not self._waiting:
            raise gym.error.ResetNeeded("no user is waiting for a recommendation: call reset() first")

    def close(self) -> None:
        """End the episode; call :meth:`reset` before the next :meth:`step`."""
        self._waiting = False

    def _answered(self, chosen: int) -> tuple[Any, float, bool, bool, Info]:
        """Build the return value of :meth:`step` where the user may view something before the next decision."""
        self._action[0] = chosen
        transition = self._queue.take(self._lane, self._action)
        reward = rewards_of(transition).item()
        alive = transition.alive.item()
        if self._observer.counts_shown or (self.world.rates and reward > 0):
            self._observer.answered(self._lane, self._action, np.array([reward]))
        info = self._queue.info(transition, 0)
        return self._seen(info), reward, not alive, False, self._info(info, waiting=alive, answered=(chosen, reward))

    def _unseen(self, chosen: int, reward: float) -> Info:
        """Return the ``info`` of a step without views, and set its line."""
        if self.render_mode is not None:
            left = not self._waiting
            self._line = step_line(self._user, self._step - 1, chosen, reward, {"views": ()}, left=left)
        events = dict.fromkeys(self._event_keys, ())
        return self._sized({"user": self._user, "step": self._step, "time": self._time, **events})

    def render(self) -> str | None:
        """Describe the last step or reset in one line; None without a render mode."""
        if self.render_mode is None:
            return None
        return self._line

    def reward_means(self) -> NDArray[np.float64]:
        """Truth: (n_items,) expected reward of every item for the user who waits now; regret is measured against it.

        It is for evaluation, never for agents: no observation and no ``info`` holds it.

        Raises:
            ResetNeeded: no user is waiting.
            UserError: a world of slates, or an own world that does not say its expected rewards.
        """
        self._check_waiting()
        return decision_world(self.world, "reward_means").reward_means(self._queue.lanes.state)[0].copy()

    def _seen(self, info: Info) -> Any:
        """Return a new observation, updated with the user's organic events."""
        if info["views"]:
            self._observer.alone_sees(info["views"], info["ratings"] if self.world.rates else None)
        return self._observer.alone()

    def _sized(self, info: Info) -> Info:
        """Return ``info`` in the requested form."""
        if self._info_kind == "none":
            return {}
        if self._info_kind == "counts":
            return counted(info, self._event_keys)
        if self._info_size is None:
            return info
        return fixed(info, self._event_keys, self._info_size)

    def _info(self, info: Info, *, waiting: bool, answered: tuple[Any, float] | None = None) -> Info:
        """Return the complete ``info`` after a move, and skip decisions that change nothing.

        Args:
            info: of the events.
            waiting: whether the user has come to a decision.
            answered: what was shown, and what it earned; None after a reset.
        """
        lanes = self._queue.lanes
        if self.render_mode is not None:
            self._line = arrival_line(lanes.user.item(), info)
            if answered is not None:
                self._line = step_line(self._user, self._step, *answered, info, left=not waiting)
        self._waiting = waiting
        self._user = lanes.user.item()
        self._step = lanes.step.item()
        self._time = lanes.time.item()
        self._ahead = 0
        if waiting:
            self._ahead = lanes.skip_uneventful(self._lane).item()
        return self._sized({"user": self._user, "step": self._step, "time": self._time, **info})

    def _checked(self, action: Any) -> int:
        kind = type(action)  # almost always one of two: this runs at every step
        chosen = int(action) if kind is np.int64 or kind is int else one_integer(action)
        if not 0 <= chosen < self.world.n_items:
            raise UserError(f"action {chosen} is out of range, the world has items 0..{self.world.n_items - 1}")
        return chosen
