"""Recorders: the log of an environment, rebuilt from what ``reset`` and ``step`` return and nothing else."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.policy.acting import Acting
from recsim_mnar.policy.adapting import as_policy
from recsim_mnar.policy.base import Policy, observe_events
from recsim_mnar.policy.capabilities import learning_of, refuse_common_learning
from recsim_mnar.rng import policy_uniforms

_Row = tuple[int, int, float, int, int, int, float, float, float]


class LogBuilder:
    """Collects events of users from ``info`` dictionaries and gives them as a Log."""

    def __init__(self) -> None:
        self._rows: dict[int, list[_Row]] = {}
        self._rated = False

    def begin(self, info: dict[str, Any]) -> None:
        """A user has arrived; ``info`` as ``reset`` returned it."""
        for left in info.get("skipped") or ():
            self._rows[left["user"]] = []
            self._events(left["user"], 0, left)
        user = int(info["user"])
        if user in self._rows:
            raise UserError(f"user {user} is in this record already: record each seed, and each user of it, once")
        self._rows[user] = []
        self._events(user, 0, info)

    def decide(self, user: int, step: int, time: float, action: int, propensity: float, reward: float) -> None:
        """A recommendation was made at the decision that the last ``info`` announced."""
        self._rows[user].append((user, step, time, schema.BANDIT, -1, action, propensity, reward, np.nan))

    def browse(self, user: int, first_step: int, info: dict[str, Any]) -> None:
        """Organic events that followed; ``info`` as ``step`` returned it."""
        self._events(user, first_step, info)

    def _events(self, user: int, first_step: int, info: dict[str, Any]) -> None:
        rows = self._rows[user]
        views, times = info.get("views") or (), info.get("view_times") or ()
        unknown = (np.nan,) * len(views)
        self._rated |= "ratings" in info
        ratings, probabilities = info.get("ratings") or unknown, info.get("observation_propensities") or unknown
        for k, (item, time, rating, p) in enumerate(zip(views, times, ratings, probabilities, strict=True)):
            row = (user, first_step + k, float(time), schema.ORGANIC, int(item), -1, np.nan, float(rating), float(p))
            rows.append(row)

    @property
    def users(self) -> set[int]:
        """Users met so far, those skipped included."""
        return set(self._rows)

    def log(self, n_users: int | None = None, provenance: dict[str, Any] | None = None) -> Log:
        """The events of users below ``n_users`` (all where None), ordered by (user, step)."""
        rows = [row for user in sorted(self._rows) if n_users is None or user < n_users for row in self._rows[user]]
        known = (*schema.COLUMNS, schema.OPTIONAL["observation_propensity"])
        columns = zip(*rows, strict=True) if rows else [()] * len(known)
        arrays = {c.name: np.array(values, c.dtype) for c, values in zip(known, columns, strict=True)}
        if not self._rated:
            del arrays["observation_propensity"]
        return Log(arrays, provenance or {})


class RecordLog(gym.Wrapper):
    """Records a single environment's log while anything steps it.

    Gymnasium has no place for propensities in ``step``: an agent that wants its log to be of use to estimators sets
    ``propensity`` to the probability of its action before each step; it is asked for each time and never guessed.

    Args:
        env: made by ``gymnasium.make("recsim_mnar/Sessions-v0")`` or wrapping it.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._builder = LogBuilder()
        self.propensity: float | None = None

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """Begin the next user's record."""
        observation, info = self.env.reset(**arguments)
        self._builder.begin(info)
        self._last = info
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step and record; the propensity given beforehand is used up."""
        if self.propensity is None or not 0.0 < self.propensity <= 1.0:
            raise UserError(f"set .propensity to P(action | state), in (0, 1], before step(); it is {self.propensity}")
        observation, reward, terminated, truncated, info = self.env.step(action)
        last = self._last
        self._builder.decide(
            int(last["user"]), int(last["step"]), float(last["time"]), int(action), self.propensity, float(reward)
        )
        self._builder.browse(int(last["user"]), int(last["step"]) + 1, info)
        self._last, self.propensity = info, None
        return observation, reward, terminated, truncated, info

    def log(self) -> Log:
        """What has been recorded."""
        return self._builder.log()


def record(env: gym.Env[Any, Any], policy: Policy, n_users: int, seed: int) -> Log:
    """The log of ``simulate``, to the byte, from a single environment: users 0 .. n_users - 1 of a seed."""
    original = as_policy(policy)
    policy = original.fresh()
    acting = Acting(policy, policy.n_items, original)
    refuse_common_learning(policy, "record")
    learns = learning_of(policy) != "nothing"
    builder = LogBuilder()
    _observation, info = env.reset(seed=seed)
    while True:
        builder.begin(info)
        user = int(info["user"])
        if user >= n_users:
            break
        one = np.array([user])
        policy.reset(one)
        _observe(policy, user, info)
        ended, decision = False, 0
        while not ended:
            uniforms = policy_uniforms(seed, one, decision)
            actions, propensities = acting(one, uniforms)
            step, time = int(info["step"]), float(info["time"])
            _observation, reward, terminated, truncated, info = env.step(actions[0])
            builder.decide(user, step, time, int(actions[0]), float(propensities[0]), float(reward))
            builder.browse(user, step + 1, info)
            if learns:
                policy.learn(one, actions, np.array([float(reward)]), propensities)
            _observe(policy, user, info)
            ended, decision = terminated or truncated, decision + 1
        if max(builder.users) >= n_users - 1:
            break
        _observation, info = env.reset()
    return builder.log(n_users)


def record_vector(env: gym.vector.VectorEnv[Any, Any, Any], policy: Policy, n_users: int, seed: int) -> Log:
    """:func:`record` through a vector environment in NEXT_STEP mode: the same log, for any number of lanes."""
    original = as_policy(policy)
    policy = original.fresh()
    acting = Acting(policy, policy.n_items, original)
    refuse_common_learning(policy, "record_vector")
    learns = learning_of(policy) != "nothing"
    builder = LogBuilder()
    n = env.num_envs
    _observation, infos = env.reset(seed=seed)
    user, step = np.zeros(n, np.int64), np.zeros(n, np.int64)
    time, decision = np.zeros(n), np.zeros(n, np.int64)
    ended = np.zeros(n, np.bool_)

    def arrive(lanes: Any) -> None:
        for lane in lanes:
            info = lane_info(infos, int(lane))
            builder.begin(info)
            user[lane], decision[lane] = info["user"], 0
            policy.reset(user[lane : lane + 1])
            _observe(policy, int(user[lane]), info)

    arrive(range(n))
    # A lane that meets a user beyond the last goes on until the others are done; what it did is left out of the log.
    while True:
        step[:], time[:] = infos["step"], infos["time"]
        awake = np.flatnonzero(~ended)
        if np.all(ended | (user >= n_users)) and max(builder.users) >= n_users - 1:
            break
        users = user[awake]
        actions = np.zeros(n, np.int64)
        if len(awake):
            drawn = policy_uniforms(seed, users, decision[awake])
            chosen, propensities = acting(users, drawn)
            actions[awake] = chosen
        _observation, rewards, terminated, truncated, infos = env.step(actions)
        for j, lane in enumerate(awake):
            info = lane_info(infos, int(lane))
            u = int(user[lane])
            builder.decide(
                u, int(step[lane]), float(time[lane]), int(chosen[j]), float(propensities[j]), float(rewards[lane])
            )
            builder.browse(u, int(step[lane]) + 1, info)
        if learns and len(awake):
            policy.learn(users, chosen, rewards[awake], propensities)
        for lane in awake:
            _observe(policy, int(user[lane]), lane_info(infos, int(lane)))
        decision[awake] += 1
        arrive(np.flatnonzero(ended))
        ended = terminated | truncated
        policy.forget(user[ended])
    return builder.log(n_users)


def lane_info(infos: dict[str, Any], lane: int) -> dict[str, Any]:
    """The entries of one lane of a vector environment's ``infos``: those whose mask is set; nested where they are."""
    info = {}
    for key, values in infos.items():
        if not key.startswith("_") and infos[f"_{key}"][lane]:
            info[key] = lane_info(values, lane) if isinstance(values, dict) else values[lane]
    return info


def _observe(policy: Policy, user: int, info: dict[str, Any]) -> None:
    views = info.get("views")
    if views is not None and len(views):
        ratings = np.array(info.get("ratings") or (np.nan,) * len(views))
        observe_events(policy, np.full(len(views), user), np.array(views, np.int32), ratings)
