"""Wrappers that record the log of an environment while anything steps it, and the builder of that log."""

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
from recsim_mnar.simulation.items import ROUND, made_by

_Row = tuple[int, int, float, int, int, int, float, float, float, int, int, int]


_NO_VIEWS = "a log is made of the events in info, here are none. Make the environment with info='views'"


def ask_views(env: Any) -> None:
    """Let ``info`` hold events and not their number, for a recorder that makes a log of them."""
    whole = env.unwrapped
    if isinstance(whole, (gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv)):
        whole.set_attr("info", "views")
    elif hasattr(whole, "info"):
        whole.info = "views"


def shows_rankings(env: Any) -> bool:
    """Whether a decision of an environment is a ranking, whose places are rows in their order."""
    whole = env.unwrapped
    copies = isinstance(whole, (gym.vector.SyncVectorEnv, gym.vector.AsyncVectorEnv))
    world = whole.get_attr("world")[0] if copies else getattr(whole, "world", None)
    return world is not None and world.slate_size > 1


class LogBuilder:
    """Collects events of users from ``info`` dictionaries and returns them as a Log.

    Args:
        ranked: whether decisions are rankings.

    Attributes:
        round: what the column :data:`ROUND` of rows that are added says; None for a log without it.
    """

    def __init__(self, *, ranked: bool = False) -> None:
        self.round: int | None = None
        self._rows: dict[int, list[_Row]] = {}
        self._rated = False
        self._ranked = ranked
        self._slates: Counter[int] = Counter()

    def begin(self, info: Info) -> None:
        """A user has arrived; ``info`` as ``reset`` returned it."""
        if "user" not in info:
            raise UserError(_NO_VIEWS)
        for left in info.get("skipped") or ():
            self._rows[left["user"]] = []
            self._events(left["user"], 0, left)
        user = int(info["user"])
        if user in self._rows:
            raise UserError(f"user {user} is in this record already: record each seed, and each user of it, once")
        self._rows[user] = []
        self._events(user, 0, info)

    def answer(self, before: Info, after: Info, action: Any, propensity: Any, reward: float) -> None:
        """A recommendation and what followed: one row, or of a slate one for each of its items.

        They stand by ascending item, those of a ranking from the top.

        Args:
            before: ``info`` that announced the decision.
            after: ``info`` that its step returned.
            action: an item, or the items of a slate.
            propensity: of each of them.
            reward: of an item; of a slate ``after`` says which were bought or clicked.
        """
        user = int(before["user"])
        step = int(before["step"])
        time = float(before["time"])
        answers = _clicks(action, propensity, after) if self._ranked else _shown(action, propensity, reward, after)
        for place, shown in enumerate(answers):
            of_slate = (self.round or 0, self._slates[user], place)
            self._rows[user].append((user, step, time, schema.BANDIT, -1, *shown, np.nan, *of_slate))
            step += 1
        self._slates[user] += 1
        self._events(user, step, after)

    def _events(self, user: int, first_step: int, info: Info) -> None:
        views = events_of(info, "views")
        self._rated |= "ratings" in info
        if not views:
            return
        rows = self._rows[user]
        times = events_of(info, "view_times")
        unknown = (np.nan,) * len(views)
        ratings = events_of(info, "ratings") or unknown
        probabilities = events_of(info, "observation_propensities") or unknown
        for k, (item, time, rating, p) in enumerate(zip(views, times, ratings, probabilities, strict=True)):
            event = (
                float(time),
                schema.ORGANIC,
                int(item),
                -1,
                np.nan,
                float(rating),
                float(p),
                self.round or 0,
                -1,
                -1,
            )
            rows.append((user, first_step + k, *event))

    @property
    def users(self) -> set[int]:
        """Users seen so far, including skipped ones."""
        return set(self._rows)

    def log(self, n_users: int | None = None, provenance: Mapping[str, Any] | None = None) -> Log:
        """The events of users below ``n_users`` (all where None), ordered by (user, step)."""
        rows = [row for user in sorted(self._rows) if n_users is None or user < n_users for row in self._rows[user]]
        known = (*schema.COLUMNS, schema.OPTIONAL["observation_propensity"])
        columns = list(zip(*rows, strict=True)) if rows else [()] * (len(known) + 3)
        arrays = {c.name: np.array(values, c.dtype) for c, values in zip(known, columns, strict=False)}
        if not self._rated:
            del arrays["observation_propensity"]
        if self.round is not None:
            arrays[ROUND] = np.array(columns[-3], np.int64)
        if self._ranked:
            for name, values in zip(("slate", "position"), columns[-2:], strict=True):
                arrays[name] = np.array(values, np.int32)
        return Log(arrays, dict(provenance or {}))


def _shown(action: Any, propensity: Any, reward: float, after: Info) -> list[tuple[int, float, float]]:
    """The item, propensity and reward of each item shown, by ascending item."""
    if type(action) is int:  # almost always: this runs at every step
        return [(action, propensity, reward)]
    if np.size(action) == 1:
        return [(np.asarray(action).item(), np.asarray(propensity).item(), reward)]
    items, place = np.unique(np.asarray(action), return_index=True)
    bought = set(events_of(after, "bought"))
    stated = np.ravel(propensity)[place].tolist()
    return [(item, p, float(item in bought)) for item, p in zip(items.tolist(), stated, strict=True)]


def _clicks(ranking: Any, propensity: Any, after: Info) -> list[tuple[int, float, float]]:
    """The item, propensity and reward of each place of a ranking, from the top.

    Raises:
        UserError: an item stands there twice, so that a place was empty.
    """
    items = np.ravel(ranking).tolist()
    clicked = set(events_of(after, "clicked"))
    if len(set(items)) < len(items):
        raise UserError(f"a ranking that is recorded must hold each item once, got {items}")
    return [(item, p, float(item in clicked)) for item, p in zip(items, np.ravel(propensity).tolist(), strict=True)]


def events_of(info: Info, key: str) -> tuple[Any, ...]:
    """The entries of one key of an ``info``, one an event; also of one that is of a fixed size.

    Raises:
        UserError: a fixed size that was too small for all events, or that omits users who were skipped; or events that
            were counted only.
    """
    values = info.get(key)
    if values is None:
        if f"n_{key}" in info:
            raise UserError(_NO_VIEWS)
        return ()
    if "n_views" in info:
        n = int(info["n_views"]) if key not in ("bought", "clicked") else int((values >= 0).sum())
        if n > len(values) or info["n_skipped"]:
            raise UserError(
                f"info_size={len(values)} is too small to record this environment: {n} views since the last decision, "
                f"{info['n_skipped']} users skipped; make it without info_size"
            )
        values = values[:n].tolist()
    return tuple(values)


def lane_info(infos: Info, lane: int) -> Info:
    """The entries of one lane of a vector environment's ``infos``: those whose mask is set; nested where they are."""
    info = {}
    for key, values in infos.items():
        if not key.startswith("_") and infos[f"_{key}"][lane]:
            info[key] = lane_info(values, lane) if isinstance(values, dict) else values[lane]
    return info


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

    def reset(self, **arguments: Any) -> tuple[Any, Info]:
        """Begin the next user's record."""
        observation, info = self.env.reset(**arguments)
        self._builder.begin(info)
        self._last = info
        _keep_seed(self._seeds, self.env)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Step and record; the propensity given beforehand is used up."""
        propensity = _checked(self.propensity, np.shape(action), ".propensity")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._builder.answer(self._last, info, action, propensity, float(reward))
        self._last = info
        self.propensity = None
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
        self._last: list[Info] = [{} for _ in range(env.num_envs)]
        self.propensities: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, Info]:
        """Begin the records of the next users, in all lanes or in those that the mask names."""
        observations, infos = self.env.reset(seed=seed, options=options)
        mask = (options or {}).get("reset_mask")
        for lane in range(self.num_envs) if mask is None else np.flatnonzero(mask).tolist():
            self._begin(lane, infos)
        _keep_seed(self._seeds, self.env)
        return observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
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

    def _begin(self, lane: int, infos: Info) -> None:
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
