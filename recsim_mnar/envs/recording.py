"""Wrappers that rebuild the log of an environment from the returns of ``reset`` and ``step``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recsim_mnar.envs.user_queue import Info
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.simulation.items import world_provenance

Floats = NDArray[np.float64]


_Row = tuple[int, int, float, int, int, int, float, float, float, int, int]
"""Values of a row: those of :data:`schema.COLUMNS`, ``observation_propensity``, slate and position."""

_NO_VIEWS = "a log is made of the events in info, here are none. Make the environment with info='views'"


def ask_views(env: Any) -> None:
    """Set an environment, or each lane of a vector environment, to return events in ``info``, not their numbers."""
    inner = env.unwrapped
    if isinstance(inner, (gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv)):
        inner.set_attr("info", "views")
    elif hasattr(inner, "info"):
        inner.info = "views"


def shows_rankings(env: Any) -> bool:
    """Return whether the actions of an environment are rankings."""
    inner = env.unwrapped
    world = getattr(inner, "world", None)
    if isinstance(inner, (gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv)):
        world = inner.get_attr("world")[0]
    return world is not None and world.slate_size > 1


class LogBuilder:
    """Builder of a log from the ``info`` dictionaries that an environment returns.

    Args:
        ranked: True if decisions are rankings.
    """

    def __init__(self, *, ranked: bool = False) -> None:
        self._rows: dict[int, list[_Row]] = {}
        self._rated = False
        self._ranked = ranked
        self._slates: Counter[int] = Counter()

    def begin(self, info: Info) -> None:
        """Start the user in the ``info`` of a reset, and add users who left without a decision before.

        Raises:
            UserError: ``info`` holds no events, or the user is recorded already.
        """
        if "user" not in info:
            raise UserError(_NO_VIEWS)
        for skipped in info.get("skipped") or ():
            self._rows[skipped["user"]] = []
            self._events(skipped["user"], 0, skipped)
        user = int(info["user"])
        if user in self._rows:
            raise UserError(f"user {user} is in this record already: record each seed, and each user of it, once")
        self._rows[user] = []
        self._events(user, 0, info)

    def add_step(self, before: Info, after: Info, action: Any, propensity: Any, reward: float) -> None:
        """Add the rows of an environment's step: one per shown item, then the organic events that followed.

        Items of a set are in ascending order, those of a ranking from the top.

        Args:
            before: ``info`` returned before the step, with the user, step and time of the decision.
            after: ``info`` returned by the step.
            action: the item, or the items of a slate.
            propensity: probability of the item, or of each item of a slate.
            reward: reward of a single item; of a slate, ``after`` tells which items were bought or clicked.
        """
        user = int(before["user"])
        step = int(before["step"])
        time = float(before["time"])
        if self._ranked:
            shown = _ranking_outcomes(action, propensity, after)
        else:
            shown = _set_outcomes(action, propensity, reward, after)
        for place, outcome in enumerate(shown):
            # The columns ``item`` (-1) and ``observation_propensity`` (NaN) are those of organic rows alone.
            row = (user, step, time, schema.BANDIT, -1, *outcome, np.nan, self._slates[user], place)
            self._rows[user].append(row)
            step += 1
        self._slates[user] += 1
        self._events(user, step, after)

    def _events(self, user: int, first_step: int, info: Info) -> None:
        """Add the organic events of an ``info`` to a user's rows, with steps from ``first_step`` on."""
        views = events_of(info, "views")
        self._rated |= "ratings" in info
        if not views:
            return
        rows = self._rows[user]
        times = events_of(info, "view_times")
        unknown = (np.nan,) * len(views)  # in worlds without ratings
        ratings = events_of(info, "ratings") or unknown
        probabilities = events_of(info, "observation_propensities") or unknown
        events = zip(views, times, ratings, probabilities, strict=True)
        for step, (item, time, rating, p) in enumerate(events, first_step):
            event = (schema.ORGANIC, int(item), -1, np.nan, float(rating), float(p))
            rows.append((user, step, float(time), *event, -1, -1))

    def log(self, provenance: Mapping[str, Any] | None = None) -> Log:
        """Return the log of all users, ordered by (user, step)."""
        rows = [row for user in sorted(self._rows) for row in self._rows[user]]
        declared = (*schema.COLUMNS, schema.OPTIONAL["observation_propensity"])
        columns = list(zip(*rows, strict=True)) or [()] * (len(declared) + 2)  # 2: slate and position
        *values_declared, slates, positions = columns
        arrays = {c.name: np.array(values, c.dtype) for c, values in zip(declared, values_declared, strict=True)}
        if not self._rated:
            del arrays["observation_propensity"]
        if self._ranked:
            arrays["slate"] = np.array(slates, np.int32)
            arrays["position"] = np.array(positions, np.int32)
        return Log(arrays, dict(provenance or {}))


def _set_outcomes(action: Any, propensity: Any, reward: float, after: Info) -> list[tuple[int, float, float]]:
    """Return (item, propensity, reward) of the shown item, or of each item of a shown set, by ascending item.

    An item of a set has the reward 1 if ``after`` holds it among the items bought, else 0.
    """
    if type(action) is int:  # the usual case, at every step
        return [(action, propensity, reward)]
    if np.size(action) == 1:
        return [(np.asarray(action).item(), np.asarray(propensity).item(), reward)]
    items, place = np.unique(np.asarray(action), return_index=True)
    stated = np.ravel(propensity)[place].tolist()
    bought = np.isin(items, events_of(after, "bought")).astype(np.float64).tolist()
    return list(zip(items.tolist(), stated, bought, strict=True))


def _ranking_outcomes(ranking: Any, propensity: Any, after: Info) -> list[tuple[int, float, float]]:
    """Return (item, propensity, click) of each place of a ranking, from the top.

    Raises:
        UserError: the ranking holds an item twice, which leaves a place empty.
    """
    items = np.ravel(ranking).tolist()
    if len(set(items)) < len(items):
        raise UserError(f"a ranking that is recorded must hold each item once, got {items}")
    stated = np.ravel(propensity).tolist()
    clicked = np.isin(items, events_of(after, "clicked")).astype(np.float64).tolist()
    return list(zip(items, stated, clicked, strict=True))


def events_of(info: Info, key: str) -> tuple[Any, ...]:
    """Return the events under a key of ``info``, a tuple; () if there are none.

    Raises:
        UserError: ``info`` holds only the number of events.
    """
    values = info.get(key)
    if values is None:
        if f"n_{key}" in info:
            raise UserError(_NO_VIEWS)
        return ()
    return tuple(values)


def lane_info(infos: Info, lane: int) -> Info:
    """Return the entries of one lane of a vector environment's ``infos``."""
    info = {}
    for key, values in infos.items():
        if not key.startswith("_") and infos[f"_{key}"][lane]:
            if isinstance(values, dict):
                info[key] = lane_info(values, lane)
            else:
                info[key] = values[lane]
    return info


class RecordLog(gym.Wrapper):
    """Wrapper that records the log of a single environment while anything steps it.

    Estimators need propensities, which Gymnasium's ``step`` does not take. Before each step, set ``propensity`` to the
    probability of the action or, for a slate, to the probabilities of its items in their order; a step without it is
    an error. The wrapper sets the environment's ``info`` to "views".

    Args:
        env: environment made by ``gymnasium.make("recsim_mnar/Sessions-v0")``, or a wrapper of it.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        ask_views(env)
        self._builder = LogBuilder(ranked=shows_rankings(env))
        self._seeds: list[int] = []
        self.propensity: Any = None

    def reset(self, **arguments: Any) -> tuple[Any, Info]:
        """Reset the environment, and start the record of its user."""
        observation, info = self.env.reset(**arguments)
        self._builder.begin(info)
        self._last = info
        _keep_seed(self._seeds, self.env)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Step the environment and record the step; the next step needs another :attr:`propensity`."""
        propensity = _checked(self.propensity, np.shape(action), ".propensity")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._builder.add_step(self._last, info, action, propensity, float(reward))
        self._last = info
        self.propensity = None
        return observation, reward, terminated, truncated, info

    def log(self) -> Log:
        """Return the recorded log; its provenance names the world and the seeds."""
        return _recorded(self._builder, self.env, self._seeds)


class RecordVectorLog(gym.vector.VectorWrapper):
    """Wrapper that records the log of a vector environment while anything steps it, in any mode of automatic resets.

    Before each step, set ``propensities``, one per lane, or one row per lane for slates; the value for a lane that is
    being reset is ignored. All lanes must have the same seed: users of different seeds have the same ids.

    Args:
        env: environment made by ``gymnasium.make_vec("recsim_mnar/Sessions-v0", ...)``, or a wrapper of it.
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        ask_views(env)
        self._builder = LogBuilder(ranked=shows_rankings(env))
        self._seeds: list[int] = []
        self._mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self._ended = np.zeros(env.num_envs, np.bool_)
        self._last: list[Info] = [{} for _ in range(env.num_envs)]
        self.propensities: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Reset all lanes, or those of ``options["reset_mask"]``, and start the records of their users."""
        observations, infos = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        lanes = list(range(self.num_envs))
        if mask is not None:
            lanes = np.flatnonzero(mask).tolist()
        for lane in lanes:
            self._begin(lane, infos)
        _keep_seed(self._seeds, self.env)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """Step the environment and record the steps; the next step needs other :attr:`propensities`."""
        chosen = np.asarray(actions)
        awake = ~self._ended
        shape = None
        if self.propensities is not None:
            shape = np.shape(self.propensities)
        if shape != chosen.shape:
            raise UserError(
                f"set .propensities to P(action | state) of every lane, {chosen.shape}, before step(); got {shape}"
            )
        stated = np.asarray(self.propensities, np.float64)
        _checked(stated[awake], chosen[awake].shape, ".propensities")
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        over = terminated | truncated
        same_step = self._mode is AutoresetMode.SAME_STEP
        for lane in np.flatnonzero(awake).tolist():
            after = lane_info(infos, lane)
            if same_step and over[lane]:
                after = after.get("final_info", after)
            self._builder.add_step(self._last[lane], after, chosen[lane], stated[lane], float(rewards[lane]))
            self._last[lane] = after
        was_reset = over if same_step else ~awake  # lanes whose next user started in this step
        for lane in np.flatnonzero(was_reset).tolist():
            self._begin(lane, infos)
        self._ended = over & (self._mode is AutoresetMode.NEXT_STEP)
        self.propensities = None
        return observations, rewards, terminated, truncated, infos

    def log(self) -> Log:
        """Return the recorded log; its provenance names the world and the seeds."""
        return _recorded(self._builder, self.env, self._seeds)

    def _begin(self, lane: int, infos: Info) -> None:
        """Start the record of the user who has just started in a lane."""
        info = lane_info(infos, lane)
        self._builder.begin(info)
        self._last[lane] = info


def _checked(propensity: Any, shape: tuple[int, ...], name: str) -> Floats:
    """Return the propensities of an action as an array of its shape; raise UserError unless they are in (0, 1]."""
    try:
        propensities = np.asarray(propensity, np.float64)
    except (TypeError, ValueError):
        propensities = np.full(shape, np.nan)
    if propensities.shape != shape and propensities.size == int(np.prod(shape)):
        propensities = propensities.reshape(shape)  # one number for an action that is an array of one item, or reversed
    if propensities.shape != shape or not ((propensities > 0.0) & (propensities <= 1.0)).all():
        raise UserError(f"set {name} to P(action | state), in (0, 1], before step(); it is {propensity}")
    return propensities


def _keep_seed(seeds: list[int], env: Any) -> None:
    """Append the seed of an environment's users to ``seeds`` unless it is there."""
    seed = getattr(env.unwrapped, "user_seed", None)
    if seed is not None and seed not in seeds:
        seeds.append(seed)


def _recorded(builder: LogBuilder, env: Any, seeds: list[int]) -> Log:
    """Return the log of a builder, with the environment's world and seeds as its provenance."""
    world = getattr(env.unwrapped, "world", None)
    provenance = {} if world is None else world_provenance(world)
    if len(seeds) == 1:
        provenance["seed"] = seeds[0]
    elif seeds:
        provenance["seeds"] = seeds
    return builder.log(provenance=provenance)
