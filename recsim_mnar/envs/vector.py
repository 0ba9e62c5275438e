"""The native vector environment: many lanes of one world, stepped together in one kernel call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from recsim_mnar import schema
from recsim_mnar.envs.crowd import Crowd, News, news_of
from recsim_mnar.envs.single import _first_user, check_decides, observation_space
from recsim_mnar.errors import UserError
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.base import Moment, World

Array = NDArray[Any]


class WorldVectorEnv(gym.vector.VectorEnv[Array, Array, Array]):
    """Lanes of one world; see :class:`recsim_mnar.envs.WorldEnv` for what a lane does.

    With one seed, lane i starts with user i, and a lane that ends takes the next user that no lane has met. With a
    list of seeds every lane meets the users of its own seed from user 0 on. ``infos`` hold arrays with one entry a
    lane and a mask under the same key with ``_`` before it; ``views`` and ``view_times`` are set for the lanes that
    have new views. In the ratings world ``ratings`` and ``observation_propensities`` stand beside them, and all are set
    for every lane that is reset.

    Args:
        world: where users live.
        num_envs: number of lanes.
        max_episode_steps: truncate an episode after so many steps; the user is then lost from sight.
        autoreset_mode: NEXT_STEP (default), SAME_STEP or DISABLED, as the enum or its value.
    """

    def __init__(
        self,
        world: World,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        check_decides(world)
        if num_envs < 1:
            raise UserError(f"num_envs must be at least 1, got {num_envs}")
        if max_episode_steps is not None and max_episode_steps < 1:
            raise UserError(f"max_episode_steps must be at least 1, got {max_episode_steps}")
        try:
            self.autoreset_mode = AutoresetMode(autoreset_mode)
        except ValueError:
            known = ", ".join(mode.value for mode in AutoresetMode)
            raise UserError(f"unknown autoreset_mode {autoreset_mode!r}; known: {known}") from None
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.world = world
        self.num_envs = num_envs
        self.max_episode_steps = max_episode_steps
        self.single_observation_space = observation_space(world)
        self.single_action_space = gym.spaces.Discrete(world.n_items)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._crowd = Crowd(world, num_envs)
        self._all = np.arange(num_envs)
        self._counts = np.zeros((num_envs, world.n_items), np.float32)
        self._elapsed = np.zeros(num_envs, np.int64)
        self._ended = np.ones(num_envs, np.bool_)
        self._seeded = False

    def reset(
        self, *, seed: int | Iterable[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Every lane, or those in ``options["reset_mask"]``, meets its next user who comes to a decision."""
        options = dict(options or {})
        mask = self._reset_mask(options.pop("reset_mask", None))
        which = np.flatnonzero(mask)
        self._seat(which, seed, _first_user(options))
        infos = self._empty_infos()
        self._admit(which, infos)
        return self._counts.copy(), infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Recommend an item in every lane; in NEXT_STEP mode, a lane that has ended is reset instead."""
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_envs,):
            raise UserError(f"actions must have shape ({self.num_envs},), got {chosen.shape}")
        if not np.issubdtype(chosen.dtype, np.integer):
            raise UserError(f"actions must be integers, got {chosen.dtype}")
        if not self._seeded:
            raise gym.error.ResetNeeded("call reset() before step()")
        if self._ended.any() and self.autoreset_mode is AutoresetMode.DISABLED:
            lane = int(np.flatnonzero(self._ended)[0])
            raise gym.error.ResetNeeded(f"lane {lane} has ended: reset it with options={{'reset_mask': ...}}")
        acting = self._all[~self._ended]
        outside = (chosen < 0) | (chosen >= self.world.n_items)
        if outside[acting].any():
            bad = chosen[acting][outside[acting]][0]
            raise UserError(f"action {bad} is out of range, the world has items 0..{self.world.n_items - 1}")
        infos = self._empty_infos()
        rewards = np.zeros(self.num_envs)
        terminated = np.zeros(self.num_envs, np.bool_)
        truncated = np.zeros(self.num_envs, np.bool_)
        resetting = self._all[self._ended]
        if len(acting):
            moment, rewards[acting] = self._crowd.take(acting, chosen[acting].astype(np.int32))
            terminated[acting] = ~moment.alive
            self._elapsed[acting] += 1
            if self.max_episode_steps is not None:
                truncated[acting] = moment.alive & (self._elapsed[acting] >= self.max_episode_steps)
            self._see(acting, moment, infos)
        self._ended = terminated | truncated
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            ended = np.flatnonzero(self._ended)
            if len(ended):
                self._finish(ended, infos)
                resetting = ended
        if len(resetting):
            self._admit(resetting, infos)
        return self._counts.copy(), rewards, terminated, truncated, infos

    # ---------------------------------------------------------------------------------------------------------- inside

    def _reset_mask(self, mask: Any) -> NDArray[np.bool_]:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        mask = np.asarray(mask)
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise UserError(
                f"options['reset_mask'] must be a boolean array of shape ({self.num_envs},) with a True in it, "
                f"got {mask.dtype} of shape {mask.shape}"
            )
        if not self._seeded and not mask.all():
            raise gym.error.ResetNeeded("the first reset() must reset every lane")
        return mask

    def _seat(self, which: NDArray[np.int64], seed: Any, user: int | None) -> None:
        if isinstance(seed, (list, tuple, np.ndarray)):
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise UserError(f"a list of seeds must have one for each of {self.num_envs} lanes, got {len(seeds)}")
            given = [lane for lane in which if seeds[lane] is not None]
            for lane in given:
                self._crowd.seat(np.array([lane]), [check_seed(seeds[lane])], user or 0)
            if len(given) == len(which) or self._seeded:
                self._seeded = True
                return
            raise UserError("a list of seeds with None in it needs an earlier reset with a seed for those lanes")
        if seed is not None or not self._seeded:
            super().reset(seed=seed if seed is None else check_seed(seed))
            self._seed = check_seed(int(self.np_random.integers(2**63)) if seed is None else seed)
            self._crowd.seat(which, [self._seed], user or 0)
            self._seeded = True
        elif user is not None:
            self._crowd.move(which, user)

    def _empty_infos(self) -> dict[str, Any]:
        return {}

    def _admit(self, which: NDArray[np.int64], infos: dict[str, Any]) -> None:
        """Reset lanes: next users, counts, and what is told of them."""
        news = self._crowd.admit(which)
        self._counts[which] = 0
        self._elapsed[which] = 0
        self._ended[which] = False
        for lane in which:
            told = news[int(lane)]
            told.show(self._counts[lane])
            self._tell(infos, int(lane), told, empty=self.world.rates)
            if told.skipped:
                self._set(infos, "skipped", int(lane), told.told_skipped())
        self._tell_state(infos, which)

    def _see(self, acting: NDArray[np.int64], moment: Moment, infos: dict[str, Any]) -> None:
        """Count the views of a moment and tell them; in a world of ratings, bring the ratings up to date."""
        c, first = moment.columns, moment.starts[:-1]
        views = c["event"] == schema.ORGANIC
        if self.world.rates:
            rewards, answered = c["reward"][first], c["reward"][first] > 0
            self._counts[acting[answered], c["action"][first[answered]]] = rewards[answered]
        if views.any():
            lane_of_row = np.repeat(acting, np.diff(moment.starts))[views]
            if self.world.rates:
                self._counts[lane_of_row, c["item"][views]] = c["reward"][views]
            else:
                np.add.at(self._counts, (lane_of_row, c["item"][views]), np.float32(1))
            for j in np.flatnonzero(np.diff(moment.starts) > 1):
                self._tell(infos, int(acting[j]), news_of(moment, int(j)))
        self._tell_state(infos, acting)

    def _tell(self, infos: dict[str, Any], lane: int, news: News, *, empty: bool = False) -> None:
        if news.views or empty:
            for key, events in news.told().items():
                self._set(infos, key, lane, events)

    def _tell_state(self, infos: dict[str, Any], which: NDArray[np.int64]) -> None:
        lanes = self._crowd.lanes
        for key, source in (("user", lanes.user), ("step", lanes.step), ("time", lanes.time)):
            if key not in infos:
                infos[key] = np.zeros(self.num_envs, source.dtype)
                infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
            infos[key][which] = source[which]
            infos[f"_{key}"][which] = True

    def _finish(self, ended: NDArray[np.int64], infos: dict[str, Any]) -> None:
        """Move what was told of lanes that ended to ``final_obs`` and ``final_info``."""
        final: dict[str, Any] = {}
        for lane in ended:
            self._set(infos, "final_obs", int(lane), self._counts[lane].copy())
        for key in [k for k in infos if not k.startswith("_") and k != "final_obs"]:
            values, mask = infos[key], infos[f"_{key}"]
            moved = mask & self._ended
            final[key] = np.where(moved, values, np.zeros(1, values.dtype)) if values.dtype != object else values.copy()
            final[f"_{key}"] = moved
            if values.dtype == object:
                final[key][~moved] = None
                values[moved] = None
            infos[f"_{key}"] = mask & ~self._ended
        infos["final_info"] = final
        infos["_final_info"] = self._ended.copy()

    def _set(self, infos: dict[str, Any], key: str, lane: int, value: Any) -> None:
        if key not in infos:
            infos[key] = np.full(self.num_envs, None, object)
            infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
        infos[key][lane] = value
        infos[f"_{key}"][lane] = True
