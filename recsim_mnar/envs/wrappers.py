"""Wrappers that record the log of an environment while anything steps it: single and vector, items and slates."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recsim_mnar.envs.log_builder import LogBuilder, ask_views, lane_info, shows_rankings
from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.simulation.items import made_by


class RecordLog(gym.Wrapper):
    """Records a single environment's log while anything steps it.

    Gymnasium has no place for propensities in ``step``: an agent that wants its log to be of use to estimators sets
    ``propensity`` before each step to the probability of its action, for a slate to those of its items, in their order;
    it is asked for each time and never guessed. The environment's ``info`` holds views from here on.

    Args:
        env: made by ``gymnasium.make("recsim_mnar/Sessions-v0")`` or wrapping it.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        ask_views(env)
        self._builder = LogBuilder(ranked=shows_rankings(env))
        self._seeds: list[int] = []
        self.propensity: Any = None

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin the next user's record."""
        observation, info = self.env.reset(**arguments)
        self._builder.begin(info)
        self._last = info
        _keep_seed(self._seeds, self.env)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and record; the propensity given beforehand is used up."""
        propensity = _checked(self.propensity, np.shape(action), ".propensity")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._builder.answer(self._last, info, action, propensity, float(reward))
        self._last, self.propensity = info, None
        return observation, reward, terminated, truncated, info

    def log(self) -> Log:
        """The recorded log; its provenance names the world and the seeds."""
        return _recorded(self._builder, self.env, self._seeds)


class RecordVectorLog(gym.vector.VectorWrapper):
    """Records a vector environment's log while anything steps it, in each of the modes of automatic resets.

    Before each step the agent sets ``propensities``, one per lane (of slates one row): that of a lane that is being
    reset may be any. All lanes must draw their users from one seed: users of several would share their numbers.

    Args:
        env: made by ``gymnasium.make_vec("recsim_mnar/Sessions-v0", ...)`` or wrapping it.
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        ask_views(env)
        self._builder = LogBuilder(ranked=shows_rankings(env))
        self._seeds: list[int] = []
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._ended = np.zeros(env.num_envs, np.bool_)
        self._last: list[dict[str, Any]] = [{} for _ in range(env.num_envs)]
        self.propensities: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin the records of the next users, in all lanes or in those that the mask names."""
        observations, infos = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        for lane in range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist():
            self._begin(lane, infos)
        _keep_seed(self._seeds, self.env)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step and record; the propensities given beforehand are used up."""
        chosen = np.asarray(actions)
        awake = ~self._ended
        if self.propensities is None or np.shape(self.propensities) != chosen.shape:
            raise UserError(
                f"set .propensities to P(action | state) of every lane, {chosen.shape}, before step(); "
                f"got {np.shape(self.propensities) if self.propensities is not None else None}"
            )
        stated = np.asarray(self.propensities, np.float64)
        _checked(stated[awake], chosen[awake].shape, ".propensities")
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = terminated | truncated
        same_step = self._mode is AutoresetMode.SAME_STEP
        for lane in np.flatnonzero(awake).tolist():
            came = lane_info(infos, lane)
            after = came.get("final_info", came) if same_step and over[lane] else came
            self._builder.answer(self._last[lane], after, chosen[lane], stated[lane], float(rewards[lane]))
            self._last[lane] = after
        for lane in np.flatnonzero(over if same_step else ~awake).tolist():
            self._begin(lane, infos)
        self._ended = over if self._mode is AutoresetMode.NEXT_STEP else np.zeros(self.num_envs, np.bool_)
        self.propensities = None
        return observations, rewards, terminated, truncated, infos

    def log(self) -> Log:
        """The recorded log; its provenance names the world and the seeds."""
        return _recorded(self._builder, self.env, self._seeds)

    def _begin(self, lane: int, infos: dict[str, Any]) -> None:
        info = lane_info(infos, lane)
        self._builder.begin(info)
        self._last[lane] = info


def _checked(propensity: Any, shape: tuple[int, ...], name: str) -> NDArray[np.float64]:
    """Propensities of an action, or of a slate's items."""
    try:
        given = np.asarray(propensity, np.float64)
    except (TypeError, ValueError):
        given = np.full(shape, np.nan)
    if given.shape != shape and given.size == int(np.prod(shape)):
        given = given.reshape(shape)  # an action may be an array of one number
    if given.shape != shape or not ((given > 0.0) & (given <= 1.0)).all():
        raise UserError(f"set {name} to P(action | state), in (0, 1], before step(); it is {propensity}")
    return given


def _keep_seed(seeds: list[int], env: Any) -> None:
    seed = getattr(env.unwrapped, "user_seed", None)
    if seed is not None and seed not in seeds:
        seeds.append(seed)


def _recorded(builder: LogBuilder, env: Any, seeds: list[int]) -> Log:
    world = getattr(env.unwrapped, "world", None)
    made = {} if world is None else made_by(world)
    if len(seeds) == 1:
        made["seed"] = seeds[0]
    elif seeds:
        made["seeds"] = seeds
    return builder.log(provenance=made)
