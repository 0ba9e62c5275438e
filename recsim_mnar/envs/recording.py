"""Recorders that rebuild the log of an environment from the returns of ``reset`` and ``step``.

Wrappers record while anything steps the environment; :func:`record` lets a policy act in it.
"""

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
from recsim_mnar.policies.base import observe_events
from recsim_mnar.policies.door import as_policy, learning_of
from recsim_mnar.policies.rankings import RankingPolicy, as_ranking_policy
from recsim_mnar.simulation.items import ROUND, decider, described, made_by, online_provenance, provenance

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


_Row = tuple[int, int, float, int, int, int, float, float, float, int, int, int]


_NO_VIEWS = "a log is made of the events in info, here are none. Make the environment with info='views'"


def ask_views(env: Any) -> None:
    """Set ``info`` to hold events, not their number."""
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
        """Start a user; ``info`` is that of ``reset``."""
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
        """Add a recommendation and the events that followed: one row for each item shown.

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
        shown = _clicks(action, propensity, after) if self._ranked else _shown(action, propensity, reward, after)
        for place, answer in enumerate(shown):
            slate = (self.round or 0, self._slates[user], place)
            self._rows[user].append((user, step, time, schema.BANDIT, -1, *answer, np.nan, *slate))
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
        events = zip(views, times, ratings, probabilities, strict=True)
        for step, (item, time, rating, p) in enumerate(events, first_step):
            event = (schema.ORGANIC, int(item), -1, np.nan, float(rating), float(p))
            rows.append((user, step, float(time), *event, self.round or 0, -1, -1))

    @property
    def users(self) -> set[int]:
        """Users seen so far, including skipped ones."""
        return set(self._rows)

    def log(self, n_users: int | None = None, provenance: Mapping[str, Any] | None = None) -> Log:
        """Return the log of users below ``n_users`` (all if None), ordered by (user, step)."""
        rows = [row for user in sorted(self._rows) if n_users is None or user < n_users for row in self._rows[user]]
        declared = (*schema.COLUMNS, schema.OPTIONAL["observation_propensity"])
        columns = list(zip(*rows, strict=True)) or [()] * (len(declared) + 3)
        arrays = {c.name: np.array(values, c.dtype) for c, values in zip(declared, columns, strict=False)}
        if not self._rated:
            del arrays["observation_propensity"]
        if self.round is not None:
            arrays[ROUND] = np.array(columns[-3], np.int64)
        if self._ranked:
            for name, values in zip(("slate", "position"), columns[-2:], strict=True):
                arrays[name] = np.array(values, np.int32)
        return Log(arrays, dict(provenance or {}))


def _shown(action: Any, propensity: Any, reward: float, after: Info) -> list[tuple[int, float, float]]:
    """Return item, propensity and reward of each item shown, by ascending item."""
    if type(action) is int:  # almost always: this runs at every step
        return [(action, propensity, reward)]
    if np.size(action) == 1:
        return [(np.asarray(action).item(), np.asarray(propensity).item(), reward)]
    items, place = np.unique(np.asarray(action), return_index=True)
    stated = np.ravel(propensity)[place].tolist()
    bought = np.isin(items, events_of(after, "bought")).astype(np.float64).tolist()
    return list(zip(items.tolist(), stated, bought, strict=True))


def _clicks(ranking: Any, propensity: Any, after: Info) -> list[tuple[int, float, float]]:
    """Return item, propensity and reward of each place of a ranking, from the top.

    Raises:
        UserError: an item stands there twice, so that a place was empty.
    """
    items = np.ravel(ranking).tolist()
    if len(set(items)) < len(items):
        raise UserError(f"a ranking that is recorded must hold each item once, got {items}")
    stated = np.ravel(propensity).tolist()
    clicked = np.isin(items, events_of(after, "clicked")).astype(np.float64).tolist()
    return list(zip(items, stated, clicked, strict=True))


def events_of(info: Info, key: str) -> tuple[Any, ...]:
    """Return the events under one key of an ``info``, also of fixed size.

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
        n = int(info["n_views"])
        if key in ("bought", "clicked"):
            n = int((values >= 0).sum())
        if n > len(values) or info["n_skipped"]:
            raise UserError(
                f"info_size={len(values)} is too small to record this environment: {n} views since the last decision, "
                f"{info['n_skipped']} users skipped; make it without info_size"
            )
        values = values[:n].tolist()
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
            self._builder.answer(self._last[lane], after, chosen[lane], stated[lane], float(rewards[lane]))
            self._last[lane] = after
        for lane in np.flatnonzero(over if same_step else ~awake).tolist():
            self._begin(lane, infos)
        self._ended = over & (self._mode is AutoresetMode.NEXT_STEP)
        self.propensities = None
        return observations, rewards, terminated, truncated, infos

    def log(self) -> Log:
        """The recorded log; its provenance names the world and the seeds."""
        return _recorded(self._builder, self.env, self._seeds)

    def _begin(self, lane: int, infos: Info) -> None:
        info = lane_info(infos, lane)
        self._builder.begin(info)
        self._last[lane] = info


def _checked(propensity: Any, shape: tuple[int, ...], name: str) -> Floats:
    """Check the propensities of an action, or of a slate's items."""
    try:
        propensities = np.asarray(propensity, np.float64)
    except (TypeError, ValueError):
        propensities = np.full(shape, np.nan)
    if propensities.shape != shape and propensities.size == int(np.prod(shape)):
        propensities = propensities.reshape(shape)  # an action may be an array of one number
    if propensities.shape != shape or not ((propensities > 0.0) & (propensities <= 1.0)).all():
        raise UserError(f"set {name} to P(action | state), in (0, 1], before step(); it is {propensity}")
    return propensities


def _keep_seed(seeds: list[int], env: Any) -> None:
    seed = getattr(env.unwrapped, "user_seed", None)
    if seed is not None and seed not in seeds:
        seeds.append(seed)


def _recorded(builder: LogBuilder, env: Any, seeds: list[int]) -> Log:
    world = getattr(env.unwrapped, "world", None)
    provenance = {} if world is None else made_by(world)
    if len(seeds) == 1:
        provenance["seed"] = seeds[0]
    elif seeds:
        provenance["seeds"] = seeds
    return builder.log(provenance=provenance)


# ------------------------------------------------------------------------------------------------ a policy among users


def record(env: gym.Env[Any, Any], policy: Any, n_users: int, seed: int) -> Log:
    """Record the log of ``simulate``, to the byte, from a single environment: the first users of a seed.

    Of a policy that learns from all users it is the log of :func:`recsim_mnar.simulation.items.simulate_online` with
    one lane: one object throughout, and the column ``round``, by which ``replay`` goes through it again.

    Args:
        env: made by ``gymnasium.make("recsim_mnar/Sessions-v0")`` or wrapping it.
        policy: as :func:`recsim_mnar.policies.door.as_policy` takes it; it is not changed.
        n_users: how many.
        seed: of the users and of the policy's uniforms.
    """
    return recorded(env, Recorder(env, policy, n_users, seed), n_users, seed)


def record_vector(env: gym.vector.VectorEnv[Any, Any, Any], policy: Any, n_users: int, seed: int) -> Log:
    """:func:`record` through a vector environment in NEXT_STEP mode: the same log, for any number of lanes.

    A policy that learns from all users meets them in another order than in one lane, so its log is another one. Every
    call that it gets is by ascending user, as in :func:`recsim_mnar.simulation.items.simulate_online`.

    Raises:
        UserError: an environment of another mode.
    """
    mode = env.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.NEXT_STEP:
        raise UserError(f"record_vector steps environments whose autoreset_mode is NextStep, this one's is {mode}")
    return recorded(env, Recorder(env, policy, n_users, seed), n_users, seed)


def recorded(env: Any, recorder: Any, n_users: int, seed: int) -> Log:
    """Record the first users of a seed from any environment: single, or vector in NEXT_STEP mode.

    Args:
        env: stepped until all of them were met.
        recorder: that is given who arrives, decides, and is given the answers: a :class:`Recorder`, or one of slates.
        n_users: how many.
        seed: of the users.
    """
    ask_views(env)
    lanes: _Lanes | _OneLane = _OneLane(env)
    if isinstance(env, gym.vector.VectorEnv):
        lanes = _Lanes(env, recorder.shape)
    latest = lanes.reset(seed)
    for info in latest:
        recorder.arrive(info)
    # A lane that meets a user beyond the last is shown item 0 until the others are done; it is not recorded.
    while True:
        ended = lanes.ended
        awake = [lane for lane, info in enumerate(latest) if not ended[lane] and info["user"] < n_users]
        if not awake and max(recorder.builder.users) >= n_users - 1:
            return recorder.log()
        if len(awake) > 1:
            awake.sort(key=lambda lane: int(latest[lane]["user"]))
        before = [latest[lane] for lane in awake]
        after, rewards, over = lanes.step(awake, recorder.decide(before) if awake else None)
        if awake:
            recorder.answer(before, [after[lane] for lane in awake], rewards, over)
        for info, arrived in zip(after, ended, strict=True):
            if arrived:
                recorder.arrive(info)
        latest = after


_Stepped = tuple[list[Info], Floats, Flags]


class _Lanes:
    """Adapter of a vector environment for a recorder; ``ended`` are lanes to be reset next.

    A step returns the ``info`` of each lane, and of those that decided the rewards and whether their users left.
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any], shape: tuple[int, ...]) -> None:
        self._env = env
        self._shape = shape
        self.ended = [False] * env.num_envs

    def reset(self, seed: int) -> list[Info]:
        """``info`` of the first users."""
        return self._infos(self._env.reset(seed=seed)[1])

    def step(self, awake: list[int], chosen: NDArray[Any] | None) -> _Stepped:
        """Step; ended lanes start their next users."""
        actions = np.zeros((self._env.num_envs, *self._shape), np.int64)
        if chosen is not None:
            actions[awake] = chosen
        _observation, rewards, terminated, truncated, infos = self._env.step(actions)
        over = terminated | truncated
        self.ended = over.tolist()
        return self._infos(infos), np.asarray(rewards, np.float64)[awake], over[awake]

    def _infos(self, infos: Info) -> list[Info]:
        return [lane_info(infos, lane) for lane in range(self._env.num_envs)]


class _OneLane:
    """Adapter of a single environment with the methods of :class:`_Lanes`."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._env = env
        self.ended = [False]

    def reset(self, seed: int) -> list[Info]:
        """``info`` of the first user."""
        return [self._env.reset(seed=seed)[1]]

    def step(self, _awake: list[int], chosen: NDArray[Any] | None) -> _Stepped:
        """Step, or reset after an end."""
        if chosen is None:
            info = self._env.reset()[1]
            reward = 0.0
            self.ended = [False]
        else:
            _observation, earned, terminated, truncated, info = self._env.step(chosen[0])
            reward = float(earned)
            self.ended = [bool(terminated or truncated)]
        return [info], np.array([reward]), np.array(self.ended)


class Recorder:
    """Runs one policy on the users of an environment and records its log.

    Args:
        env: that the users live in.
        policy: that decides.
        n_users: users whom it meets.
        seed: of its uniforms.
    """

    def __init__(self, env: Any, policy: Any, n_users: int, seed: int) -> None:
        self.world = getattr(env.unwrapped, "world", None)
        ranked = shows_rankings(env)
        original = as_ranking_policy(policy, env.unwrapped.world.slate_size) if ranked else as_policy(policy)
        self._decider = decider(original, getattr(self.world, "n_items", original.n_items))
        self.policy = self._decider.policy
        self.shape = (self.policy.slate_size,) if isinstance(self.policy, RankingPolicy) else ()
        self.n_users = n_users
        self.seed = seed
        self._described = described(self.policy)
        learning = learning_of(self.policy)
        self._learns = learning != "nothing"
        self._online = learning == "all users"
        self._lanes = getattr(env, "num_envs", 1)
        self.builder = LogBuilder(ranked=ranked)
        if self._online:
            self.builder.round = 0
        self._n_decisions: dict[int, int] = {}
        self._stated: dict[int, list[NDArray[Any]]] = {}
        self._arrived: list[Info] = []
        self._gone: list[int] = []

    def arrive(self, info: Info) -> None:
        """Add a user who arrived after others left without a decision; the policy will observe those first."""
        self.builder.begin(info)
        for skipped in info.get("skipped") or ():
            # Users who left without a trace in the log are not met, so that the log holds all that a policy was given.
            if int(skipped["user"]) < self.n_users and events_of(skipped, "views"):
                self._arrived.append(skipped)
                self._gone.append(int(skipped["user"]))
        if int(info["user"]) < self.n_users:
            self._arrived.append(info)
            self._n_decisions[int(info["user"])] = 0

    def decide(self, infos: list[Info]) -> NDArray[np.int32]:
        """(n,) items, or (n, k) rankings, for the waiting users, by ascending user."""
        self._admit()
        users = [int(info["user"]) for info in infos]
        self._users = np.array(users)
        decided = self._decider.decide(self.seed, self._users, np.array([self._n_decisions[user] for user in users]))
        self._actions = decided.items
        self._propensities = decided.propensities
        if decided.columns:
            for user, *columns in zip(users, *decided.columns.values(), strict=True):
                self._stated.setdefault(user, []).append(np.array(columns))
        return self._actions

    def answer(self, before: list[Info], after: list[Info], rewards: Floats, ended: Flags) -> None:
        """Record the outcomes of the actions and end the round."""
        users = self._users.tolist()
        decided = zip(users, self._actions.tolist(), self._propensities.tolist(), rewards.tolist(), strict=True)
        for (user, action, propensity, reward), info, next_info in zip(decided, before, after, strict=True):
            self.builder.answer(info, next_info, action, propensity, reward)
            self._n_decisions[user] += 1
        if self._learns:
            self._teach(rewards, after)
        self._observe(users, after)
        self._gone += self._users[ended].tolist()
        self._forget()
        if self.builder.round is not None:
            self.builder.round += 1

    def _teach(self, rewards: Floats, after: list[Info]) -> None:
        """Let the policy learn from the rewards of the items shown, in a ranking one for each place."""
        places = int(np.prod(self.shape))
        if self.shape:
            rewards = np.empty(self._actions.shape)
            for row, ranking, info in zip(rewards, self._actions, after, strict=True):
                row[:] = np.isin(ranking, events_of(info, "clicked"))
        users = np.repeat(self._users, places)
        self.policy.learn(users, self._actions.ravel(), rewards.ravel(), self._propensities.ravel())

    def log(self) -> Log:
        """The whole log, after observing the last arrivals."""
        self._admit()
        self._forget()
        log = self.builder.log(self.n_users)
        columns = {**log.columns, **self._of_rankings(log)}
        origin: dict[str, Any] = {}
        if self.world is not None:
            origin = {**provenance(self.world, self.policy, self.n_users, self.seed), "policy": self._described}
            if self._online:
                origin["online"] = online_provenance(log, self.policy, self._lanes)
        return Log(columns, origin)

    def _of_rankings(self, log: Log) -> dict[str, NDArray[Any]]:
        """Return the columns with the rankings' probabilities; none if items are shown one by one."""
        if not self.shape:
            return {}
        rows = np.flatnonzero(log.is_bandit)
        stated = [np.zeros((3, 0))]
        for user in np.unique(log["user"][rows]).tolist():
            stated += self._stated[user]
        columns = {}
        for name, values in zip(schema.OF_RANKINGS[2:], np.concatenate(stated, axis=1), strict=True):
            columns[name] = np.full(len(log), np.nan)
            columns[name][rows] = values
        return columns

    def _admit(self) -> None:
        if self._arrived:
            self._arrived.sort(key=lambda info: int(info["user"]))
            users = [int(info["user"]) for info in self._arrived]
            self.policy.reset(np.array(users))
            self._observe(users, self._arrived)
            self._arrived = []

    def _forget(self) -> None:
        if self._gone:
            self.policy.forget(np.sort(np.array(self._gone)))
            self._gone = []

    def _observe(self, users: list[int], infos: list[Info]) -> None:
        """Let the policy observe the organic events of users, ascending."""
        viewers: list[int] = []
        items: list[int] = []
        ratings: list[float] = []
        for user, info in zip(users, infos, strict=True):
            views = events_of(info, "views")
            viewers += [user] * len(views)
            items += views
            ratings += events_of(info, "ratings") or (np.nan,) * len(views)
        if viewers:
            observe_events(self.policy, np.array(viewers), np.array(items, np.int32), np.array(ratings))
