"""A conformance check for vector environments: Gymnasium has none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from recsim_mnar.envs.recording import lane_info


def check_vector_env(
    make_vector: Callable[[AutoresetMode], gym.vector.VectorEnv[Any, Any, Any]],
    make_single: Callable[[], gym.Env[Any, Any]],
    *,
    modes: tuple[AutoresetMode, ...] = tuple(AutoresetMode),
    steps: int = 200,
    seed: int = 0,
) -> None:
    """Check a vector environment against Gymnasium's conventions and, lane by lane, against single environments.

    Every lane gets a seed of its own, so that a single environment with that seed must live through exactly the same
    episodes: observations, rewards, ends and infos.

    Args:
        make_vector: gives a new vector environment of the mode asked for.
        make_single: gives a new single environment of the same kind, without a step limit.
        modes: of automatic resets, to be checked.
        steps: how long to compare.
        seed: of the actions, and the first of the lanes' seeds.

    Raises:
        AssertionError: naming what differs, where.
    """
    for mode in modes:
        env = make_vector(mode)
        _check_spaces(env, mode)
        seeds = [seed + 1000 + i for i in range(env.num_envs)]
        _check_deterministic(make_vector, mode, seed)
        singles = [make_single() for _ in range(env.num_envs)]
        _compare(env, singles, seeds, steps, mode, np.random.default_rng(seed))
        env.close()


def _check_spaces(env: gym.vector.VectorEnv[Any, Any, Any], mode: AutoresetMode) -> None:
    stated = env.metadata.get("autoreset_mode")
    _true(isinstance(stated, AutoresetMode), f"metadata['autoreset_mode'] must be the enum, got {stated!r}")
    _true(stated is mode, f"asked for {mode}, metadata['autoreset_mode'] says {stated}")
    n = env.num_envs
    expected = gym.vector.utils.batch_space(env.single_observation_space, n)
    _true(env.observation_space == expected, f"observation_space is not the batch of {n} single_observation_space")
    expected = gym.vector.utils.batch_space(env.single_action_space, n)
    _true(env.action_space == expected, f"action_space is not the batch of {n} single_action_space")


def _check_deterministic(
    make_vector: Callable[[AutoresetMode], gym.vector.VectorEnv[Any, Any, Any]], mode: AutoresetMode, seed: int
) -> None:
    """Two copies with one seed and the same actions; arrays handed out once are not changed afterwards."""
    first, second = make_vector(mode), make_vector(mode)
    a, _ = first.reset(seed=seed)
    b, _ = second.reset(seed=seed)
    first.action_space.seed(seed)
    kept = []
    for k in range(30):
        _equal(a, b, f"two copies with seed {seed} differ at step {k}")
        kept.append((a, copy.deepcopy(a)))
        actions = first.action_space.sample()
        a, rewards, terminated, truncated, _ = first.step(actions)
        b, rewards_b, terminated_b, truncated_b, _ = second.step(actions)
        _equal(rewards, rewards_b, f"rewards of two copies differ at step {k}")
        _equal(terminated, terminated_b, f"ends of two copies differ at step {k}")
        _equal(truncated, truncated_b, f"truncations of two copies differ at step {k}")
        for name, values, kind in (
            ("rewards", rewards, np.floating),
            ("terminations", terminated, np.bool_),
            ("truncations", truncated, np.bool_),
        ):
            _true(values.shape == (first.num_envs,), f"{name} have shape {values.shape}, not ({first.num_envs},)")
            _true(np.issubdtype(values.dtype, kind), f"{name} have type {values.dtype}")
        _true(a in first.observation_space, f"the observation of step {k} lies outside observation_space")
        if mode is AutoresetMode.DISABLED and (terminated | truncated).any():
            mask = terminated | truncated
            a, _ = first.reset(options={"reset_mask": mask})
            b, _ = second.reset(options={"reset_mask": mask.copy()})
    for k, (array, before) in enumerate(kept):
        _equal(array, before, f"the observation handed out at step {k} was changed later: a buffer is used twice")


def _compare(
    env: gym.vector.VectorEnv[Any, Any, Any],
    singles: list[gym.Env[Any, Any]],
    seeds: list[int],
    steps: int,
    mode: AutoresetMode,
    generator: np.random.Generator,
) -> None:
    observations, infos = env.reset(seed=seeds)  # type: ignore[arg-type]  # lists are allowed, untyped
    ended = [False] * env.num_envs
    for lane, (single, lane_seed) in enumerate(zip(singles, seeds, strict=True)):
        observation, info = single.reset(seed=lane_seed)
        _same(_of_lane(observations, lane), observation, lane_info(infos, lane), info, f"lane {lane} at reset")
    for k in range(steps):
        actions = _random_actions(env, generator)
        observations, rewards, terminated, truncated, infos = env.step(actions)
        for lane, single in enumerate(singles):
            where = f"lane {lane} at step {k} ({mode.value})"
            if ended[lane]:
                observation, info = single.reset()
                _true(
                    rewards[lane] == 0 and not terminated[lane], f"{where}: a reset step must have reward 0 and no end"
                )
                _same(_of_lane(observations, lane), observation, lane_info(infos, lane), info, where)
                ended[lane] = False
                continue
            observation, reward, done, cut, info = single.step(actions[lane])
            _true(float(rewards[lane]) == reward, f"{where}: reward {rewards[lane]}, single {reward}")
            _true(bool(terminated[lane]) == done, f"{where}: terminated {terminated[lane]}, single {done}")
            _true(bool(truncated[lane]) == cut, f"{where}: truncated {truncated[lane]}, single {cut}")
            stated = lane_info(infos, lane)
            if mode is AutoresetMode.SAME_STEP and (done or cut):
                final = stated.pop("final_info")
                _same(stated.pop("final_obs"), observation, final, info, f"{where}, final")
                observation, info = single.reset()
            _same(_of_lane(observations, lane), observation, stated, info, where)
            ended[lane] = (done or cut) and mode is AutoresetMode.NEXT_STEP
        over = terminated | truncated
        if mode is AutoresetMode.DISABLED and over.any():
            observations, infos = env.reset(options={"reset_mask": over})
            for lane in np.flatnonzero(over).tolist():
                observation, info = singles[lane].reset()
                _same(
                    _of_lane(observations, lane),
                    observation,
                    lane_info(infos, int(lane)),
                    info,
                    f"lane {lane}, masked reset",
                )


def _random_actions(env: gym.vector.VectorEnv[Any, Any, Any], generator: np.random.Generator) -> Any:
    space = env.single_action_space
    if isinstance(space, gym.spaces.Box):
        low, high = np.asarray(space.low), np.asarray(space.high)
        return (low + (high - low) * generator.random((env.num_envs, *space.shape))).astype(space.dtype)
    if isinstance(space, gym.spaces.MultiDiscrete):  # a slate: an action for each of its places
        return generator.integers(space.nvec, size=(env.num_envs, *space.nvec.shape))
    return generator.integers(space.n, size=env.num_envs)  # type: ignore[attr-defined]


def _same(a: Any, b: Any, of_lane: dict[str, Any], of_single: dict[str, Any], where: str) -> None:
    _equal(a, b, f"{where}: observations differ")
    # An empty sequence says no more than an absent key, and a vector environment may leave it out.
    lane, single = ({k: v for k, v in d.items() if not (isinstance(v, tuple) and not v)} for d in (of_lane, of_single))
    _true(set(lane) == set(single), f"{where}: info has {sorted(lane)}, the single environment's {sorted(single)}")
    for key, value in single.items():
        _true(_alike(lane[key], value), f"{where}: info[{key!r}] is {lane[key]!r}, the single environment's {value!r}")


def _alike(a: Any, b: Any) -> bool:
    if isinstance(b, dict):
        return set(a) == set(b) and all(_alike(a[key], b[key]) for key in b)
    if isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def _of_lane(observations: Any, lane: int) -> Any:
    """One lane's observation, of a batch that may be a dictionary."""
    if isinstance(observations, dict):
        return {name: _of_lane(part, lane) for name, part in observations.items()}
    return observations[lane]


def _equal(a: Any, b: Any, message: str) -> None:
    _true(_alike(a, b), message)


def _true(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)
