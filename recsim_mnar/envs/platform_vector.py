"""The vector environment of campaigns: several platforms side by side, each living by itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from recsim_mnar.envs.platform import CampaignsEnv
from recsim_mnar.envs.validation import as_numbers, checked_count, checked_mode, checked_options, reset_mask, reset_seed
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.worlds.campaigns.world import CampaignsWorld

Array = NDArray[Any]


class CampaignsVectorEnv(gym.vector.VectorEnv[Array, Array, Array]):
    """Lanes of platforms; see :class:`recsim_mnar.envs.CampaignsEnv` for what a lane does.

    With one seed, lane i opens platform number i of it (those that a single environment meets at its resets), and a
    lane that ends takes the next one that no lane has opened. With a list of seeds every lane opens the platforms of
    its own seed. ``infos`` hold arrays with one entry a lane, and a mask under the same key with ``_`` before it.

    Args:
        world: the model.
        num_envs: number of platforms.
        max_episode_steps: truncate an episode after so many campaigns.
        autoreset_mode: NEXT_STEP (default), SAME_STEP or DISABLED, as the enum or its value.
    """

    def __init__(
        self,
        world: CampaignsWorld,
        num_envs: int = 1,
        *,
        max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        self.num_envs = checked_count("num_envs", num_envs)
        self.max_episode_steps = (
            None if max_episode_steps is None else checked_count("max_episode_steps", max_episode_steps)
        )
        self.autoreset_mode = checked_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.world = world
        self._lanes = [CampaignsEnv(world) for _ in range(self.num_envs)]
        self.single_observation_space = self._lanes[0].observation_space
        self.single_action_space = self._lanes[0].action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._seeds = [0] * self.num_envs
        self._queue = list(range(self.num_envs))
        self._next: list[int] = []
        self._observations = np.zeros((self.num_envs, world.n_items + 1), np.float32)
        self._elapsed = np.zeros(self.num_envs, np.int64)
        self._ended = np.ones(self.num_envs, np.bool_)
        self._seeded = False

    @property
    def platforms(self) -> list[Any]:
        """The platform of each lane, with its truth; for what judges, never for what acts."""
        return [lane.platform for lane in self._lanes]

    def reset(
        self, *, seed: int | Iterable[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """Every lane, or those in ``options["reset_mask"]``, opens its next platform."""
        options = checked_options(options, ("reset_mask",))
        mask = reset_mask(options.pop("reset_mask", None), self.num_envs, whole=not self._seeded)
        which = np.flatnonzero(mask).tolist()
        self._seat(which, seed)
        infos: dict[str, Any] = {}
        for lane in which:
            self._open(lane, infos)
        return self._observations.copy(), infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """A campaign on every platform; in NEXT_STEP mode, a lane that has ended opens its next one instead."""
        weights = as_numbers(actions, "weights")
        if weights.shape != self.action_space.shape:
            raise UserError(f"weights must have shape {self.action_space.shape}, got {weights.shape}")
        self._check_ready()
        infos: dict[str, Any] = {}
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), np.bool_)
        resetting = np.flatnonzero(self._ended).tolist()
        for lane in np.flatnonzero(~self._ended).tolist():
            observation, rewards[lane], terminated[lane], _cut, info = self._lanes[lane].step(weights[lane])
            self._elapsed[lane] += 1
            truncated[lane] = not terminated[lane] and self._elapsed[lane] == self.max_episode_steps
            over = bool(terminated[lane] or truncated[lane])
            if over and self.autoreset_mode is AutoresetMode.SAME_STEP:
                resetting.append(lane)
                self._set(infos, "final_obs", lane, observation)
                for key, value in info.items():
                    self._set(infos.setdefault("final_info", {}), key, lane, value)
                infos.setdefault("_final_info", np.zeros(self.num_envs, np.bool_))[lane] = True
            else:
                self._observations[lane] = observation
                for key, value in info.items():
                    self._set(infos, key, lane, value)
        self._ended = terminated | truncated
        for lane in resetting:
            self._open(lane, infos)
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                self._ended[lane] = False
        return self._observations.copy(), rewards, terminated, truncated, infos

    # ---------------------------------------------------------------------------------------------------------- inside

    def _seat(self, which: list[int], seed: Any) -> None:
        if isinstance(seed, (list, tuple)) or (isinstance(seed, np.ndarray) and seed.ndim):
            seeds = [reset_seed(one) for one in seed]
            if len(seeds) != self.num_envs:
                raise UserError(f"a list of seeds must have one for each of {self.num_envs} lanes, got {len(seeds)}")
            given = [lane for lane in which if seeds[lane] is not None]
            if len(given) < len(which) and not self._seeded:
                raise UserError("a list of seeds with None in it needs an earlier reset with a seed for those lanes")
            for lane in given:
                self._seeds[lane], self._queue[lane] = int(seeds[lane] or 0), self._new_queue()
        else:
            single = reset_seed(seed)
            if single is not None or not self._seeded:
                super().reset(seed=single)
                queue = self._new_queue()
                drawn = int(self.np_random.integers(2**63)) if single is None else single
                for lane in which:
                    self._seeds[lane], self._queue[lane] = drawn, queue
        self._seeded = True

    def _new_queue(self) -> int:
        self._next.append(0)
        return len(self._next) - 1

    def _open(self, lane: int, infos: dict[str, Any]) -> None:
        """The lane's next platform, and what is info of it."""
        queue = self._queue[lane]
        observation, info = self._lanes[lane].open(self._seeds[lane], self._next[queue])
        self._next[queue] += 1
        self._observations[lane], self._elapsed[lane], self._ended[lane] = observation, 0, False
        for key, value in info.items():
            self._set(infos, key, lane, value)

    def _check_ready(self) -> None:
        if not self._seeded:
            raise gym.error.ResetNeeded("call reset() before step()")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._ended.any():
            lane = int(np.flatnonzero(self._ended)[0])
            raise gym.error.ResetNeeded(f"lane {lane} has ended: reset it with options={{'reset_mask': ...}}")

    def _set(self, infos: dict[str, Any], key: str, lane: int, value: Any) -> None:
        if key not in infos:
            kind = np.int64 if isinstance(value, int) else object
            infos[key] = np.zeros(self.num_envs, kind) if kind is np.int64 else np.empty(self.num_envs, object)
            infos[f"_{key}"] = np.zeros(self.num_envs, np.bool_)
        infos[key][lane] = value
        infos[f"_{key}"][lane] = True
