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
from recsim_mnar.simulation.items import (
    ROUND,
    decider,
    describe_policy,
    online_provenance,
    provenance,
    world_provenance,
)

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]


_Row = tuple[int, int, float, int, int, int, float, float, float, int, int, int]
"""Values of a row: those of :data:`schema.COLUMNS`, ``observation_propensity``, round, slate and position."""

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

    Attributes:
        round: number of the present round, for the column :data:`ROUND`; None for a log without this column, of a
            policy that does not learn from all users.
    """

    def __init__(self, *, ranked: bool = False) -> None:
        self.round: int | None = None
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
            slate = (self.round or 0, self._slates[user], place)
            # The columns ``item`` (-1) and ``observation_propensity`` (NaN) are those of organic rows alone.
            self._rows[user].append((user, step, time, schema.BANDIT, -1, *outcome, np.nan, *slate))
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
            rows.append((user, step, float(time), *event, self.round or 0, -1, -1))

    @property
    def users(self) -> set[int]:
        """Return the ids of users so far, including skipped ones."""
        return set(self._rows)

    def log(self, n_users: int | None = None, provenance: Mapping[str, Any] | None = None) -> Log:
        """Return the log of users with ids below ``n_users`` (all if None), ordered by (user, step)."""
        rows = [row for user in sorted(self._rows) if n_users is None or user < n_users for row in self._rows[user]]
        declared = (*schema.COLUMNS, schema.OPTIONAL["observation_propensity"])
        columns = list(zip(*rows, strict=True)) or [()] * (len(declared) + 3)  # 3: round, slate and position
        *values_declared, rounds, slates, positions = columns
        arrays = {c.name: np.array(values, c.dtype) for c, values in zip(declared, values_declared, strict=True)}
        if not self._rated:
            del arrays["observation_propensity"]
        if self.round is not None:
            arrays[ROUND] = np.array(rounds, np.int64)
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
    """Return the events under a key of ``info``, from a tuple or from a padded array; () if there are none.

    Raises:
        UserError: ``info`` holds only the number of events, or its arrays of a fixed size are too small for all events
            or omit events of skipped users.
    """
    values = info.get(key)
    if values is None:
        if f"n_{key}" in info:
            raise UserError(_NO_VIEWS)
        return ()
    if "n_views" in info:  # info_size was set: values are a padded array
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


# ------------------------------------------------------------------------------------------------ a policy among users


def record(env: gym.Env[Any, Any], policy: Any, n_users: int, seed: int) -> Log:
    """Run a policy on the first users of a seed in a single environment, and return its log.

    The log has the same bytes as that of ``simulate``. For a policy that learns from all users it is the log of
    :func:`recsim_mnar.simulation.items.simulate_online` with one lane: one copy of the policy acts throughout, and a
    column ``round`` lets ``replay`` repeat its learning.

    Args:
        env: environment made by ``gymnasium.make("recsim_mnar/Sessions-v0")``, or a wrapper of it.
        policy: any object that :func:`recsim_mnar.policies.door.as_policy` accepts; it is not changed.
        n_users: number of users.
        seed: seed of the users and of the policy's uniforms.
    """
    return recorded(env, Recorder(env, policy, n_users, seed), n_users, seed)


def record_vector(env: gym.vector.VectorEnv[Any, Any, Any], policy: Any, n_users: int, seed: int) -> Log:
    """Run a policy on the first users of a seed in a vector environment, and return its log, that of :func:`record`.

    The log does not depend on the number of lanes, unless the policy learns from all users, who then arrive in another
    order. Each call of the policy has users in ascending order, as in
    :func:`recsim_mnar.simulation.items.simulate_online`.

    Raises:
        UserError: the environment's ``autoreset_mode`` is not NEXT_STEP.
    """
    mode = env.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.NEXT_STEP:
        raise UserError(f"record_vector steps environments whose autoreset_mode is NextStep, this one's is {mode}")
    return recorded(env, Recorder(env, policy, n_users, seed), n_users, seed)


def recorded(env: Any, recorder: Any, n_users: int, seed: int) -> Log:
    """Step an environment until a recorder has acted on users 0 .. n_users - 1 of a seed, and return its log.

    Args:
        env: single environment, or vector environment in NEXT_STEP mode.
        recorder: a :class:`Recorder`, or an object with its methods, such as the one for sets of items.
        n_users: number of users.
        seed: seed of the users.
    """
    ask_views(env)
    lanes: _Lanes | _OneLane = _OneLane(env)
    if isinstance(env, gym.vector.VectorEnv):
        lanes = _Lanes(env, recorder.shape)
    latest = lanes.reset(seed)
    for info in latest:
        recorder.arrive(info)
    # Users with ids from n_users on only keep their lanes busy, with item 0, until the other lanes are done; the
    # recorder leaves them out of the log.
    while True:
        ended = lanes.ended
        awake = [lane for lane, info in enumerate(latest) if not ended[lane] and info["user"] < n_users]
        if not awake and max(recorder.builder.users) >= n_users - 1:  # the last user has started, and left
            return recorder.log()
        if len(awake) > 1:  # policies get users in ascending order
            awake.sort(key=lambda lane: int(latest[lane]["user"]))
        before = [latest[lane] for lane in awake]
        after, rewards, over = lanes.step(awake, recorder.decide(before) if awake else None)
        if awake:
            recorder.record_outcomes(before, [after[lane] for lane in awake], rewards, over)
        for info, was_reset in zip(after, ended, strict=True):
            if was_reset:
                recorder.arrive(info)
        latest = after


_StepOutcome = tuple[list[Info], Floats, Flags]
"""``info`` of every lane; rewards, and True for users who left, of the lanes that decided."""


class _Lanes:
    """Adapter of a vector environment for :func:`recorded`.

    Attributes:
        ended: flags of the lanes that the next step resets.
    """

    def __init__(self, env: gym.vector.VectorEnv[Any, Any, Any], shape: tuple[int, ...]) -> None:
        self._env = env
        self._shape = shape
        self.ended = [False] * env.num_envs

    def reset(self, seed: int) -> list[Info]:
        """Reset all lanes, and return the ``info`` of each."""
        return self._infos(self._env.reset(seed=seed)[1])

    def step(self, awake: list[int], chosen: NDArray[Any] | None) -> _StepOutcome:
        """Step the lanes ``awake`` with the actions ``chosen``; ended lanes start their next users."""
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
        """Reset the environment, and return its ``info`` in a list."""
        return [self._env.reset(seed=seed)[1]]

    def step(self, _awake: list[int], chosen: NDArray[Any] | None) -> _StepOutcome:
        """Step with the only action in ``chosen``, or reset if it is None because the episode has ended."""
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
    """Runner of one policy on the users of an environment, which records its log.

    It calls the policy as :func:`recsim_mnar.simulation.items.drive` does: ``reset`` and views of the users who arrive,
    ``act``, ``learn``, the views that followed, and ``forget``, each in one call with users ascending.

    Args:
        env: environment of the users.
        policy: the policy; a fresh copy of it acts.
        n_users: number of users on whom it acts.
        seed: seed of its uniforms.
    """

    def __init__(self, env: Any, policy: Any, n_users: int, seed: int) -> None:
        self.world = getattr(env.unwrapped, "world", None)
        ranked = shows_rankings(env)
        original: Any
        if ranked:
            original = as_ranking_policy(policy, env.unwrapped.world.slate_size)
        else:
            original = as_policy(policy)
        self._decider = decider(original, getattr(self.world, "n_items", original.n_items))
        self.policy = self._decider.policy
        self.shape = (self.policy.slate_size,) if isinstance(self.policy, RankingPolicy) else ()
        self.n_users = n_users
        self.seed = seed
        self._described = describe_policy(self.policy)
        learning = learning_of(self.policy)
        self._learns = learning != "nothing"
        self._online = learning == "all users"
        self._lanes = getattr(env, "num_envs", 1)
        self.builder = LogBuilder(ranked=ranked)
        if self._online:
            self.builder.round = 0
        self._n_decisions: dict[int, int] = {}  # by user
        self._ranking_columns: dict[int, list[NDArray[Any]]] = {}  # by user: (columns, places) of each decision
        self._arrived: list[Info] = []  # users whom the policy has not observed yet
        self._finished_users: list[int] = []  # users whom the policy can forget

    def arrive(self, info: Info) -> None:
        """Record the user in the ``info`` of a reset, and users skipped before; the policy observes them later."""
        self.builder.begin(info)
        for skipped in info.get("skipped") or ():
            # A user without any event has no row in the log. The policy does not observe such users, so that the log
            # holds all that the policy was given.
            if self._is_recorded(skipped) and events_of(skipped, "views"):
                self._arrived.append(skipped)
                self._finished_users.append(int(skipped["user"]))
        if self._is_recorded(info):
            self._arrived.append(info)
            self._n_decisions[int(info["user"])] = 0

    def _is_recorded(self, info: Info) -> bool:
        """Return whether the policy acts on the user in ``info``; users beyond ``n_users`` only keep lanes busy."""
        return int(info["user"]) < self.n_users

    def decide(self, infos: list[Info]) -> NDArray[np.int32]:
        """Return items (n,), or rankings (n, k), for the waiting users in ``infos``, which are by ascending user."""
        self._admit()
        users = [int(info["user"]) for info in infos]
        self._users = np.array(users)
        decided = self._decider.decide(self.seed, self._users, np.array([self._n_decisions[user] for user in users]))
        self._actions = decided.items
        self._propensities = decided.propensities
        if decided.columns:
            for user, *columns in zip(users, *decided.columns.values(), strict=True):
                self._ranking_columns.setdefault(user, []).append(np.array(columns))
        return self._actions

    def record_outcomes(self, before: list[Info], after: list[Info], rewards: Floats, ended: Flags) -> None:
        """Record the outcomes of the latest decisions, let the policy learn from and observe them, and end the round.

        Args:
            before: ``info`` with each decision, as :meth:`decide` got them.
            after: ``info`` that the step returned for each.
            rewards: (n,) reward of each.
            ended: (n,) flags of the users who left.
        """
        users = self._users.tolist()
        actions_taken = zip(users, self._actions.tolist(), self._propensities.tolist(), rewards.tolist(), strict=True)
        for (user, action, propensity, reward), info, next_info in zip(actions_taken, before, after, strict=True):
            self.builder.add_step(info, next_info, action, propensity, reward)
            self._n_decisions[user] += 1
        if self._learns:
            self._learn(rewards, after)
        self._observe(users, after)
        self._finished_users += self._users[ended].tolist()
        self._forget()
        if self.builder.round is not None:  # the log of a policy that learns from all users has a column of rounds
            self.builder.round += 1

    def _learn(self, rewards: Floats, after: list[Info]) -> None:
        """Let the policy learn from the reward of each shown item.

        Args:
            rewards: (n,) reward of each decision; unused for rankings, whose items have rewards of their own.
            after: ``info`` after each decision, which holds the clicked items of rankings.
        """
        places = int(np.prod(self.shape))  # items per decision; 1 for the empty shape of single items
        if self.shape:
            rewards = np.empty(self._actions.shape)
            for row, ranking, info in zip(rewards, self._actions, after, strict=True):
                row[:] = np.isin(ranking, events_of(info, "clicked"))
        users = np.repeat(self._users, places)
        self.policy.learn(users, self._actions.ravel(), rewards.ravel(), self._propensities.ravel())

    def log(self) -> Log:
        """Return the whole log, once the policy has observed the last users who arrived."""
        self._admit()
        self._forget()
        log = self.builder.log(self.n_users)
        columns = {**log.columns, **self._ranking_probabilities(log)}
        origin: dict[str, Any] = {}
        if self.world is not None:
            origin = {**provenance(self.world, self.policy, self.n_users, self.seed), "policy": self._described}
            if self._online:
                origin["online"] = online_provenance(log, self.policy, self._lanes)
        return Log(columns, origin)

    def _ranking_probabilities(self, log: Log) -> dict[str, NDArray[Any]]:
        """Return columns (n,) with the probabilities of rankings, NaN on organic rows; {} if actions are items."""
        if not self.shape:
            return {}
        rows = np.flatnonzero(log.is_bandit)
        names = schema.OF_RANKINGS[2:]  # without slate and position
        parts = [np.zeros((len(names), 0))]  # an empty table, so that a log without decisions can be concatenated
        for user in np.unique(log["user"][rows]).tolist():
            parts += self._ranking_columns[user]
        columns = {}
        for name, values in zip(names, np.concatenate(parts, axis=1), strict=True):
            columns[name] = np.full(len(log), np.nan)
            columns[name][rows] = values
        return columns

    def _admit(self) -> None:
        """Reset the policy for the users who arrived since the last call, and let it observe their views."""
        if self._arrived:
            self._arrived.sort(key=lambda info: int(info["user"]))
            users = [int(info["user"]) for info in self._arrived]
            self.policy.reset(np.array(users))
            self._observe(users, self._arrived)
            self._arrived = []

    def _forget(self) -> None:
        """Let the policy forget the users who left since the last call."""
        if self._finished_users:
            self.policy.forget(np.sort(np.array(self._finished_users)))
            self._finished_users = []

    def _observe(self, users: list[int], infos: list[Info]) -> None:
        """Let the policy observe the organic events in the ``info`` of each user, in one call."""
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
