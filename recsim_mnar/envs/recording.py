"""Recorders: the log of an environment, rebuilt from what ``reset`` and ``step`` return and nothing else."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from recsim_mnar.envs.user_queue import Info
from recsim_mnar.envs.wrappers import (
    LogBuilder,
    RecordLog,
    RecordVectorLog,
    ask_views,
    events_of,
    lane_info,
    shows_rankings,
)
from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.policies.answers import Acting
from recsim_mnar.policies.base import observe_events
from recsim_mnar.policies.door import as_policy, learning_of
from recsim_mnar.policies.rankings import RankingPolicy, as_ranking_policy, ranking_uniforms
from recsim_mnar.rng import policy_uniforms
from recsim_mnar.simulation.items import described, online_provenance, provenance

__all__ = ["LogBuilder", "RecordLog", "RecordVectorLog", "lane_info", "record", "record_vector"]


def record(env: gym.Env[Any, Any], policy: Any, n_users: int, seed: int) -> Log:
    """The log of ``simulate``, to the byte, from a single environment: users 0 .. n_users - 1 of a seed.

    Of a policy that learns from all users it is the log of :func:`recsim_mnar.simulation.items.simulate_online` with
    one lane: one object throughout, and the column ``round``, by which ``replay`` goes through it again.

    Args:
        env: made by ``gymnasium.make("recsim_mnar/Sessions-v0")`` or wrapping it.
        policy: as :func:`recsim_mnar.policies.door.as_policy` takes it; it is not changed.
        n_users: how many.
        seed: of the users and of the policy's uniforms.
    """
    return recorded(env, _recorder(env, policy, n_users, seed), n_users, seed)


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
    return recorded(env, _recorder(env, policy, n_users, seed), n_users, seed)


def _recorder(env: Any, policy: Any, n_users: int, seed: int) -> Recorder:
    return (RankingRecorder if shows_rankings(env) else Recorder)(env, policy, n_users, seed)


def recorded(env: Any, recorder: Any, n_users: int, seed: int) -> Log:
    """The log of users 0 .. n_users - 1 of a seed, from any environment: single, or vector in NEXT_STEP mode.

    Args:
        env: stepped until all of them were met.
        recorder: that is given who arrives, decides, and is given the answers: a :class:`Recorder`, or one of slates.
        n_users: how many.
        seed: of the users.
    """
    ask_views(env)
    lanes = _Lanes(env, recorder.shape) if isinstance(env, gym.vector.VectorEnv) else _OneLane(env)
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


_Stepped = tuple[list[Info], NDArray[np.float64], NDArray[np.bool_]]


class _Lanes:
    """A vector environment as a recorder steps it, with actions of this shape; ``ended`` are lanes to be reset next.

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
        """A step; lanes whose last one was the end meet their next users."""
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
    """A single environment, stepped as :class:`_Lanes` are."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        self._env = env
        self.ended = [False]

    def reset(self, seed: int) -> list[Info]:
        """``info`` of the first user."""
        return [self._env.reset(seed=seed)[1]]

    def step(self, _awake: list[int], chosen: NDArray[Any] | None) -> _Stepped:
        """A step, or a reset where the last one was the end."""
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
    """One policy among the users of an environment, asked in rounds and given the answers, and its log.

    Args:
        env: that the users live in.
        policy: that decides.
        n_users: users whom it meets.
        seed: of its uniforms.
    """

    shape: tuple[int, ...] = ()

    def __init__(self, env: Any, policy: Any, n_users: int, seed: int) -> None:
        original = as_policy(policy)
        self.policy = original.fresh()
        self.n_users = n_users
        self.seed = seed
        self.world = getattr(env.unwrapped, "world", None)
        self._acting = Acting(self.policy, getattr(self.world, "n_items", self.policy.n_items), original)
        self._described = described(self.policy)
        learning = learning_of(self.policy)
        self._learns = learning != "nothing"
        self._online = learning == "all users"
        self._lanes = getattr(env, "num_envs", 1)
        self.builder = LogBuilder(ranked=shows_rankings(env))
        self.builder.round = 0 if self._online else None
        self._n_decisions: dict[int, int] = {}
        self._arrived: list[Info] = []
        self._gone: list[int] = []

    def arrive(self, info: Info) -> None:
        """Add a user who arrived after others left without a decision; the policy will observe those first."""
        self.builder.begin(info)
        left = [one for one in info.get("skipped") or () if int(one["user"]) < self.n_users]
        # Users who left without a trace in the log are not met, so that the log holds all that a policy was given.
        self._arrived += [one for one in left if len(events_of(one, "views"))]
        self._gone += [int(one["user"]) for one in left if len(events_of(one, "views"))]
        if int(info["user"]) < self.n_users:
            self._arrived.append(info)
            self._n_decisions[int(info["user"])] = 0

    def decide(self, infos: list[Info]) -> NDArray[np.int32]:
        """(n,) actions for the waiting users, by ascending user."""
        self._admit()
        users = [int(info["user"]) for info in infos]
        self._users = np.array(users)
        drawn = policy_uniforms(self.seed, self._users, [self._n_decisions[user] for user in users])
        self._actions, self._propensities = self._acting(self._users, drawn)
        return self._actions

    def answer(
        self,
        before: list[Info],
        after: list[Info],
        rewards: NDArray[np.float64],
        ended: NDArray[np.bool_],
    ) -> None:
        """Record the outcomes of the actions and end the round."""
        users = self._users.tolist()
        decided = zip(users, self._actions.tolist(), self._propensities.tolist(), rewards.tolist(), strict=True)
        for (user, action, propensity, reward), info, came in zip(decided, before, after, strict=True):
            self.builder.answer(info, came, action, propensity, reward)
            self._n_decisions[user] += 1
        if self._learns:
            self._teach(rewards, after)
        self._observe(users, after)
        self._gone += self._users[ended].tolist()
        self._forget()
        if self.builder.round is not None:
            self.builder.round += 1

    def _teach(self, rewards: NDArray[np.float64], after: list[Info]) -> None:
        self.policy.learn(self._users, self._actions, rewards, self._propensities)

    def log(self) -> Log:
        """The whole log, after observing the last arrivals."""
        self._admit()
        self._forget()
        log = self.builder.log(self.n_users)
        if self.world is None:
            return log
        made = {**provenance(self.world, self.policy, self.n_users, self.seed), "policy": self._described}
        if self._online:
            made["online"] = online_provenance(log, self.policy, self._lanes)
        return Log(log.columns, made)

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
        """Let the policy observe what each of these users, ascending, did alone."""
        counts = [len(events_of(info, "views")) for info in infos]
        if not sum(counts):
            return
        viewing = [info for info, count in zip(infos, counts, strict=True) if count]
        items = np.concatenate([np.array(events_of(info, "views"), np.int32) for info in viewing])
        ratings = [
            np.array(events_of(info, "ratings") or (np.nan,) * len(events_of(info, "views"))) for info in viewing
        ]
        observe_events(self.policy, np.repeat(users, counts), items, np.concatenate(ratings))


class RankingRecorder(Recorder):
    """A ranking policy among the users of an environment, and its log; see :class:`Recorder`."""

    def __init__(self, env: Any, policy: Any, n_users: int, seed: int) -> None:
        world = env.unwrapped.world
        self.rankings: RankingPolicy = as_ranking_policy(policy, world.slate_size).fresh()
        super().__init__(env, self.rankings.policy, n_users, seed)
        self.policy = self.rankings.policy
        self.shape = (world.slate_size,)
        self._stated: dict[int, list[NDArray[Any]]] = {}

    def decide(self, infos: list[Info]) -> NDArray[np.int32]:
        """(n, k) rankings for the waiting users, by ascending user."""
        self._admit()
        users = [int(info["user"]) for info in infos]
        self._users = np.array(users)
        numbers = np.array([self._n_decisions[user] for user in users])
        drawn = ranking_uniforms(self.seed, self._users, numbers, self.rankings.slate_size)
        self._actions = self.rankings.rank(self._users, drawn)
        stated = self.rankings.propensities_of(self._users, self._actions)
        self._propensities = stated.marginal
        size = self.rankings.slate_size
        for j, user in enumerate(users):
            of_slate = (stated.conditional[j], np.full(size, stated.slate[j]), np.full(size, stated.set[j]))
            self._stated.setdefault(user, []).append(np.array(of_slate))
        return self._actions

    def _teach(self, rewards: NDArray[Any], after: list[Info]) -> None:
        clicked = [set(events_of(came, "clicked")) for came in after]
        earned = [
            [float(item in own) for item in row] for row, own in zip(self._actions.tolist(), clicked, strict=True)
        ]
        rows = np.repeat(self._users, self.shape[0])
        self.policy.learn(rows, self._actions.ravel(), np.ravel(earned), self._propensities.ravel())

    def log(self) -> Log:
        """See :meth:`Recorder.log`; with the propensities of the rankings."""
        log = super().log()
        columns = dict(log.columns)
        rows = np.flatnonzero(log.is_bandit)
        met = np.unique(log["user"][rows]).tolist()
        none = np.zeros((3, 0))
        stated = np.concatenate([none, *(each for user in met for each in self._stated[user])], axis=1)
        for name, values in zip(schema.OF_RANKINGS[2:], stated, strict=True):
            columns[name] = np.full(len(log), np.nan)
            columns[name][rows] = values
        return Log(columns, {**log.provenance, "policy": described(self.rankings)} if log.provenance else {})
