"""The single environment: a batch of one over any world."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from recsim_mnar.envs.crowd import Crowd, News, info_of, news_of, show_answer
from recsim_mnar.errors import UserError
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.base import World

Observation = NDArray[np.float32]

COUNT_LIMIT = float(2**24)
"""Upper bound of a view count: float32 counts exactly up to here, and no life comes near it."""


RATING_LIMIT = 5.0
"""Upper bound of a rating."""


def observation_space(world: World) -> Any:
    """Flat, an entry an item: the user's view counts so far, or ratings revealed so far (0 for none)."""
    return gym.spaces.Box(0.0, RATING_LIMIT if world.rates else COUNT_LIMIT, (world.n_items,), np.float32)


_NOTHING_NEW = News()


class WorldEnv(gym.Env[Observation, np.int64]):
    """One user at a time; an episode is a user's life, a step a recommendation.

    The observation is the vector of the user's view counts so far, the reward what the world pays (sessions: 1 for a
    click). After ``reset(seed=s)`` the environment meets user 0 of seed s, then user 1 at the next ``reset()``, and
    so on; ``options={"user": u}`` goes to user u. ``info`` carries ``user``, ``step`` and ``time`` of the decision
    awaited, and ``views`` and ``view_times``, the organic events since the last one; ``reset`` adds ``skipped``
    where users left without a decision.

    In the ratings world the observation holds the ratings revealed so far (0 for none), those that answered
    recommendations among them; the reward is the rating of the item recommended, and ``info`` adds ``ratings`` and
    ``observation_propensities``, one for each of ``views``.

    Args:
        world: where users live.
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium reads a plain dict here)

    def __init__(self, world: World) -> None:
        check_decides(world)
        self.world = world
        self.observation_space = observation_space(world)
        self.action_space = gym.spaces.Discrete(world.n_items)
        self._crowd = Crowd(world, 1)
        self._lane = np.zeros(1, np.int64)
        self._action = np.zeros(1, np.int32)
        self._counts = np.zeros(world.n_items, np.float32)
        self._seeded = False
        self._waiting = False
        self._uneventful = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Meet the next user who comes to a decision."""
        super().reset(seed=seed)
        user = _first_user(options)
        if seed is not None or not self._seeded:
            self._seed = check_seed(int(self.np_random.integers(2**63)) if seed is None else seed)
            self._crowd.seat(self._lane, [self._seed], user or 0)
            self._seeded = True
        elif user is not None:
            self._crowd.seat(self._lane, [self._seed], user)
        news = self._crowd.admit(self._lane)[0]
        self._counts[:] = 0
        news.show(self._counts)
        self._waiting = True
        self._uneventful = self._crowd.lanes.uneventful(0)
        return self._counts.copy(), info_of(self._crowd, 0, news)

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Recommend an item; the user answers and lives on until the next decision or the end."""
        if not self._waiting:
            raise gym.error.ResetNeeded("no user is waiting for a recommendation: call reset() first")
        chosen = self._checked(action)
        lanes = self._crowd.lanes
        if self._uneventful:
            # Most recommendations come to nothing whatever they are: the dynamics need not be asked.
            self._uneventful -= 1
            lanes.pass_over(0)
            return self._counts.copy(), 0.0, False, False, info_of(self._crowd, 0, _NOTHING_NEW)
        self._action[0] = chosen
        moment, rewards = self._crowd.take(self._lane, self._action)
        news = news_of(moment, 0)
        show_answer(self.world, self._counts, chosen, float(rewards[0]))
        news.show(self._counts)
        self._waiting = bool(moment.alive[0])
        if self._waiting:
            self._uneventful = lanes.uneventful(0)
        return self._counts.copy(), float(rewards[0]), not self._waiting, False, info_of(self._crowd, 0, news)

    def _checked(self, action: np.int64) -> int:
        if type(action) is not np.int64 and not np.issubdtype(np.asarray(action).dtype, np.integer):
            raise UserError(f"an action must be an integer, got {action!r}")
        chosen = int(action)
        if not 0 <= chosen < self.world.n_items:
            raise UserError(f"action {chosen} is out of range, the world has items 0..{self.world.n_items - 1}")
        return chosen


def check_decides(world: World) -> None:
    """Refuse a world whose users never come to a decision: ``reset`` could not return."""
    if getattr(world.params, "p_organic_to_bandit", 1.0) == 0.0:
        raise UserError(
            "p_organic_to_bandit = 0: no user ever sees a recommendation; set it above 0 for an environment"
        )


def _first_user(options: dict[str, Any] | None) -> int | None:
    if not options or options.get("user") is None:
        return None
    user = options["user"]
    if isinstance(user, (bool, np.bool_)) or not isinstance(user, (int, np.integer)) or user < 0:
        raise UserError(f"options['user'] must be a whole number of at least 0, got {user!r}")
    return int(user)
