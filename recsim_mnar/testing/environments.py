"""Rules for vector environments: Gymnasium's conventions and, lane by lane, equality with single environments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recsim_mnar.envs.recording import RecordVectorLog, lane_info
from recsim_mnar.envs.user_queue import Info
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import Rule
from recsim_mnar.testing.rules import Breach, Reasons, breaches_of

Env = gym.Env[Any, Any]
VectorEnv = gym.vector.VectorEnv[Any, Any, Any]
MakeSingle = Callable[[], Env]
MakeVector = Callable[[AutoresetMode], VectorEnv]
_RESULTS = {"rewards": np.floating, "terminations": np.bool_, "truncations": np.bool_}
"""Arrays that a step returns between observations and infos, in their order, with their types."""


def check_vector(
    make_vector: MakeVector,
    make_single: MakeSingle,
    *,
    steps: int = 200,
    seed: int = 0,
) -> list[Breach]:
    """Compare the lanes of a vector environment with single environments, in each mode of automatic resets.

    Every lane gets a different seed, and a single environment with that seed must have exactly the same episodes:
    observations, rewards, ends and infos.

    Args:
        make_vector: function from a mode to a new vector environment.
        make_single: function that makes a new single environment of the same kind, without a step limit.
        steps: number of steps to compare in each mode.
        seed: seed of the actions; the lanes' seeds follow from it.

    Returns:
        one breach per mode in which they differ; an empty list if they never do.
    """

    def rule_of(mode: AutoresetMode) -> Rule:
        """Make the rule of one mode."""

        def finds(_: Any) -> Reasons:
            yield from _space_faults(make_vector(mode), mode)
            env = make_vector(mode)
            yield from _lane_differences(env, [make_single() for _ in range(env.num_envs)], mode, steps, seed)
            env.close()

        fix = "let every lane do what a single environment of its seed does, and hand out new arrays"
        return Rule(f"lanes_{mode.name.lower()}", fix, finds)

    return breaches_of({rule.name: rule for rule in map(rule_of, AutoresetMode)}, None)


def _space_faults(env: VectorEnv, mode: AutoresetMode) -> Reasons:
    """Yield what is wrong with a vector environment's stated mode of automatic resets and its spaces."""
    stated = env.metadata.get("autoreset_mode")
    if stated is not mode:
        yield f"metadata['autoreset_mode'] must be the enum {mode}, got {stated!r}"
    for name in ("observation_space", "action_space"):
        single = getattr(env, f"single_{name}")
        if getattr(env, name) != gym.vector.utils.batch_space(single, env.num_envs):
            yield f"{name} is not the batch of {env.num_envs} single_{name}"


def _result_faults(env: VectorEnv, observations: Any, results: Sequence[NDArray[Any]], where: str) -> Reasons:
    """Yield what is wrong with the observations of a step and with its rewards and ends."""
    for (name, dtype), values in zip(_RESULTS.items(), results, strict=True):
        if values.shape != (env.num_envs,) or not np.issubdtype(values.dtype, dtype):
            yield f"{where}: {name} must have shape ({env.num_envs},), got {values.shape} of {values.dtype}"
    if observations not in env.observation_space:
        yield f"{where}: the observation is outside observation_space"


def _lane_differences(env: VectorEnv, singles: list[Env], mode: AutoresetMode, steps: int, seed: int) -> Reasons:
    """Yield differences between the lanes of a vector environment and single environments with the same actions.

    Args:
        env: the vector environment.
        singles: a single environment per lane.
        mode: mode of automatic resets, by which an episode's end is compared.
        steps: number of steps.
        seed: seed of the actions; the lanes' seeds follow from it.
    """
    env.action_space.seed(seed)
    seeds = [seed + 1000 + i for i in range(env.num_envs)]
    observations, infos = env.reset(seed=seeds)  # type: ignore[arg-type]  # lists are allowed, untyped
    resets_next = np.zeros(env.num_envs, np.bool_)  # lanes whose next step is a reset

    def same(lane: int, of_single: tuple[Any, Info], where: str, info: Info | None = None) -> Reasons:
        """Compare a lane's present observation and info with those of its single environment."""
        if info is None:
            info = lane_info(infos, lane)
        observed = list(gym.vector.utils.iterate(env.observation_space, observations))
        observation, info_of_single = of_single
        return _differences(observed[lane], observation, info, info_of_single, where)

    for lane, single in enumerate(singles):
        yield from same(lane, single.reset(seed=seeds[lane]), f"lane {lane} at reset")
    returned = []  # each observation as it was returned, and a copy of it made at once
    for k in range(steps):
        returned.append((observations, copy.deepcopy(observations)))
        actions = env.action_space.sample()
        observations, rewards, terminated, truncated, infos = env.step(actions)
        yield from _result_faults(env, observations, (rewards, terminated, truncated), f"step {k}")
        for lane, single in enumerate(singles):
            where = f"lane {lane} at step {k} ({mode.value})"
            if resets_next[lane]:
                if rewards[lane] != 0 or terminated[lane]:
                    yield f"{where}: a reset step must have reward 0 and no end"
                yield from same(lane, single.reset(), where)
                continue
            observation, *results, info = single.step(actions[lane])
            for name, values, value in zip(_RESULTS, (rewards, terminated, truncated), results, strict=True):
                if values[lane] != value:
                    yield f"{where}: {name} {values[lane]}, single {value}"
            of_lane = lane_info(infos, lane)
            _, has_terminated, was_truncated = results
            if mode is AutoresetMode.SAME_STEP and (has_terminated or was_truncated):
                # The lane has begun a new episode; its info has the last observation and info of the old one.
                final = of_lane.pop("final_obs")
                final_info = of_lane.pop("final_info")
                yield from _differences(final, observation, final_info, info, f"{where}, final")
                observation, info = single.reset()
            yield from same(lane, (observation, info), where, of_lane)
        has_ended = terminated | truncated
        resets_next = has_ended & ~resets_next & (mode is AutoresetMode.NEXT_STEP)
        if mode is AutoresetMode.DISABLED and has_ended.any():
            observations, infos = env.reset(options={"reset_mask": has_ended})
            for lane in np.flatnonzero(has_ended).tolist():
                yield from same(lane, singles[lane].reset(), f"lane {lane}, masked reset")
    for k, (array, before) in enumerate(returned):
        if not _equal(array, before):
            yield f"the observation of step {k} was changed later: a buffer is used twice"


def _differences(observed: Any, expected: Any, of_lane: Info, of_single: Info, where: str) -> Reasons:
    """Yield differences between a lane and its single environment.

    Args:
        observed: the lane's observation.
        expected: the single environment's observation.
        of_lane: the lane's info.
        of_single: the single environment's info.
        where: lane and step, for messages.
    """
    if not _equal(observed, expected):
        yield f"{where}: observations differ"
    # A vector environment may leave out keys of empty sequences.
    lane, single = ({k: v for k, v in d.items() if not (isinstance(v, tuple) and not v)} for d in (of_lane, of_single))
    if set(lane) != set(single):
        yield f"{where}: info has {sorted(lane)}, the single environment's {sorted(single)}"
        return
    for key, value in single.items():
        if not _equal(lane[key], value):
            yield f"{where}: info[{key!r}] is {lane[key]!r}, the single environment's {value!r}"


def _equal(a: Any, b: Any) -> bool:
    """Return True if two values are equal: arrays, or dictionaries, lists and tuples of such values."""
    if isinstance(b, dict):
        return set(a) == set(b) and all(_equal(a[key], b[key]) for key in b)
    if isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


# ----------------------------------------------------------------------------------------------------- a log once more


def stepped_again(env: Any, log: Log, size: int = 1) -> Log:
    """Step an environment with the decisions of a simulated log, and return the log that it makes of them.

    Args:
        env: single environment, or vector environment in NEXT_STEP mode, of the world in which the log was made.
        log: log of ``simulate``, from user 0 on.
        size: number of items shown at each decision.

    Raises:
        StopIteration: the environment asks for a decision that the log does not have.
    """
    n_users = log.provenance["n_users"]
    rows = np.flatnonzero(log.is_bandit).reshape(-1, size)
    decisions = {user: iter(rows[log["user"][rows[:, 0]] == user]) for user in range(n_users)}
    if not isinstance(env, gym.vector.VectorEnv):
        single = env
        env = gym.vector.SyncVectorEnv([lambda: single])
    recorder = RecordVectorLog(env)
    infos = recorder.reset(seed=log.provenance["seed"])[1]
    ended = np.zeros(env.num_envs, np.bool_)
    actions = np.tile(np.arange(size), (env.num_envs, 1))  # users who come after the log's are shown anything
    propensities = np.ones(actions.shape)
    shape = env.action_space.shape
    while True:
        users = infos["user"]
        awake = np.flatnonzero(~ended & (users < n_users))
        if not len(awake) and users.max() >= n_users - 1:  # the last user has started, and left
            again = recorder.log()
            return again.select(again["user"] < n_users)
        for lane in awake.tolist():
            row = next(decisions[users[lane]])
            actions[lane] = log["action"][row]
            propensities[lane] = log["propensity"][row]
        recorder.propensities = propensities.reshape(shape)
        *_, ended, _, infos = recorder.step(actions.reshape(shape))
