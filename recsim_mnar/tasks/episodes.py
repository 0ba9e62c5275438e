"""evaluate_agent(make_agent, task): the score of an agent that acts in the task's own environment.

The agent brings its observation, wrappers, memory and masks. Users, horizon and score are those of
:func:`recsim_mnar.tasks.evaluate`, and each decision earns the expected reward of what was shown, which only the world
knows: a policy that chooses the same items gets the same number by both functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.vector.utils import concatenate, create_empty_array
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import whole_number
from recsim_mnar.policies.answers import name_of
from recsim_mnar.policies.door import binds
from recsim_mnar.tasks.evaluating import Evaluation, Task, env_of, evaluation_of, task, world_of_env
from recsim_mnar.tasks.running import Earned
from recsim_mnar.worlds.base import DecisionWorld

if TYPE_CHECKING:
    from recsim_mnar.envs.user_queue import Info

Act = Callable[..., Any]
"""``act(observations, state, starts)`` returns the actions (lanes, ...) and the next state, as ``predict`` of
Stable-Baselines3 does; ``starts`` (lanes,) is True where a user begins. ``act(observations)`` returns actions alone."""
MakeAgent = Callable[[gym.Env[Any, Any]], Act]
"""Function from an environment, with all its wrappers, to the agent that acts in environments like it."""

LANES = 256
"""Number of users at a time, whose observations an agent gets in one call."""


def evaluate_agent(
    make_agent: MakeAgent | Sequence[MakeAgent],
    on: str | Task,
    *,
    wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]] | None = None,
    users: str | Evaluation = "public",
    n_users: int | None = None,
    lanes: int = LANES,
    name: str | None = None,
    **environment: Any,
) -> Evaluation:
    """Evaluate an agent that acts in a task's own environment: its expected rewards per user, and its score.

    An agent that draws its actions itself has the noise of these draws in its value, which the interval covers; the
    same call then gives another value. The luck of users' answers is taken off in either case.

    Args:
        make_agent: function that gets an environment, for its spaces, and returns ``act(observations, state, starts)``,
            which returns the actions of all lanes and the state for the next call, at first None; or
            ``act(observations)``, which returns the actions. With a further parameter ``masks`` it gets the wrappers'
            ``action_masks()`` of all lanes. A list has one such function per training seed, see
            :func:`recsim_mnar.tasks.evaluate`.
        on: the task, or its name.
        wrap: function that wraps each environment, as in training; None for no wrapper.
        users: "public", "quoted", or an evaluation whose users to take, as for :func:`recsim_mnar.tasks.evaluate`.
        n_users: number of users; None for that of the task, or of the evaluation.
        lanes: number of users at a time; a user's decisions do not depend on it unless the agent's do.
        name: name in reports; None for that of the function.
        **environment: keywords of the task's environment, such as ``observation="shown=0.9"``.

    Raises:
        UserError: the task has no environment, or one whose rewards are not of single decisions; the agent is no
            function, or returns another number of actions.
    """
    chosen = on if isinstance(on, Task) else task(on)
    makers: list[Any] = list(make_agent) if isinstance(make_agent, (list, tuple)) else [make_agent]
    if not makers or not all(map(callable, makers)):
        raise UserError(
            "make_agent must be a function of an environment that returns act(observations, state, starts), got "
            f"{make_agent!r:.60}. A policy or learner of this package is for evaluate()"
        )
    world = world_of_env(chosen, environment, vector=False)
    if not isinstance(world, DecisionWorld):
        raise UserError(
            f"evaluate_agent: {chosen.name} does not reward single decisions. Give its policy to evaluate()"
        )
    lanes = whole_number(lanes, "lanes", 1)

    def make_env() -> gym.Env[Any, Any]:
        env: gym.Env[Any, Any] = ExpectedRewards(env_of(chosen, world, **environment))
        return env if wrap is None else wrap(env)

    def run_all(n: int, seed: int) -> list[Earned]:
        return [_Episodes(make_env, maker, min(lanes, n)).run(n, seed) for maker in makers]

    names = name or "/".join(dict.fromkeys(getattr(maker, "__name__", name_of(maker)) for maker in makers))
    return evaluation_of(chosen, names, run_all, users, n_users)


class ExpectedRewards(gym.Wrapper[Any, Any, Any, Any]):
    """Innermost wrapper: sums the expected rewards of an episode's actions, as they reach the world.

    Attributes:
        expected: sum of the expected rewards since the last reset.
        actions: actions since the last reset.
        ended: True if the user has left or the horizon is reached.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.expected = 0.0
        self.actions: list[Any] = []
        self.ended = False

    def reset(self, **arguments: Any) -> tuple[Any, Info]:
        """Reset the environment and the sums."""
        self.expected = 0.0
        self.actions = []
        self.ended = False
        return self.env.reset(**arguments)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Info]:
        """Step the environment, and add the expected reward of the action."""
        inner: Any = self.env.unwrapped
        if inner.world.slate_size > 1:
            expected = float(inner.ranking_means(action).sum())
            outcome = self.env.step(action)
        else:
            means = inner.reward_means()  # of all items: the environment has yet to check the action
            outcome = self.env.step(action)
            expected = float(means[np.asarray(action).item()])
        self.expected += expected
        self.actions.append(np.array(action, np.int64))
        self.ended = outcome[2] or outcome[3]
        return outcome


class _Episodes:
    """Loop of an agent through one environment per lane.

    Args:
        make_env: function that makes a lane's environment, an :class:`ExpectedRewards` within its wrappers.
        make_agent: function that makes the agent.
        lanes: number of environments.
    """

    def __init__(self, make_env: Callable[[], gym.Env[Any, Any]], make_agent: MakeAgent, lanes: int) -> None:
        self.envs = [make_env() for _ in range(lanes)]
        self.scorers = [_scorer_of(env) for env in self.envs]
        self.space = self.envs[0].observation_space
        self.act = make_agent(self.envs[0])
        if not callable(self.act):
            raise UserError(f"make_agent must return a function act(observations, state, starts), got {self.act!r:.60}")
        has_masks = self.envs[0].has_wrapper_attr("action_masks")
        self.takes_masks = has_masks and binds(self.act, [None, None, None], {"masks": None})
        self.keeps_state = self.takes_masks or binds(self.act, [None, None, None], {})
        if not self.keeps_state and not binds(self.act, [None], {}):
            raise UserError(
                "act() must take (observations) or (observations, state, starts), and masks only if a wrapper has "
                "action_masks()"
            )

    def run(self, n: int, seed: int) -> Earned:
        """Run users 0 .. n - 1 of a seed, and return what each of them earned."""
        self.rewards = np.zeros(n)
        self.decisions = np.zeros(n)
        self.digests = [b""] * n
        self.seed = seed
        self.next_user = 0
        self.observations: list[Any] = [None] * len(self.envs)
        running = np.array([self._begin(lane) for lane in range(len(self.envs))])
        starts = np.ones(len(self.envs), np.bool_)
        state = None
        batch: Any = create_empty_array(self.space, len(self.envs))
        while running.any():
            for lane in np.flatnonzero(~running).tolist():  # a lane without a user shows what another one sees
                self.observations[lane] = self.observations[int(np.argmax(running))]
            batch = concatenate(self.space, self.observations, batch)
            actions, state = self._actions(batch, state, starts)
            starts[:] = False
            for lane in np.flatnonzero(running).tolist():
                self.observations[lane], _, terminated, truncated, _ = self.envs[lane].step(actions[lane])
                if terminated or truncated:
                    self._end(lane)
                    starts[lane] = True
                    running[lane] = self._begin(lane)
        digest = hashlib.sha256(b"".join(self.digests)).hexdigest()
        return Earned(self.rewards, self.decisions, digest)

    def _begin(self, lane: int) -> bool:
        """Start the next user who reaches a decision in a lane; return False if no user is left."""
        n = len(self.rewards)
        if self.next_user >= n and self.observations[lane] is not None:
            return False
        observation, _ = self.envs[lane].reset(seed=self.seed, options={"user": self.next_user})
        self.observations[lane] = observation
        inner: Any = self.scorers[lane].env.unwrapped
        user = inner.user
        if inner.user_seed != self.seed or user < self.next_user:
            raise UserError("wrap: reset() must pass its seed and options on, which name the user to start")
        # Users who left without a decision are passed over: they earn nothing.
        self.next_user = user + 1
        return bool(user < n)

    def _end(self, lane: int) -> None:
        """Keep what the user of a lane has earned."""
        scorer = self.scorers[lane]
        if not scorer.ended:
            raise UserError("wrap: a wrapper ends visits before the user leaves. The task's horizon is frozen: omit it")
        user = scorer.env.unwrapped.user  # type: ignore[attr-defined]  # ours has it
        self.rewards[user] = scorer.expected
        self.decisions[user] = len(scorer.actions)
        self.digests[user] = hashlib.sha256(np.array(scorer.actions).astype("<i4").tobytes()).digest()

    def _actions(self, batch: Any, state: Any, starts: NDArray[np.bool_]) -> tuple[NDArray[Any], Any]:
        """Return the agent's actions, one per lane, and its next state.

        Raises:
            UserError: the agent returns something else.
        """
        if not self.keeps_state:
            answer = (self.act(batch), None)
        else:
            masks: Mapping[str, Any] = {}
            if self.takes_masks:
                masks = {"masks": np.stack([env.get_wrapper_attr("action_masks")() for env in self.envs])}
            answer = self.act(batch, state, starts.copy(), **masks)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise UserError(f"act(observations, state, starts) must return (actions, state), got {answer!r:.60}")
        actions = np.asarray(answer[0])
        if actions.ndim == 0 or len(actions) != len(self.envs):
            raise UserError(
                f"act() must return one action per lane, the first axis {len(self.envs)}: got shape {actions.shape}"
            )
        return actions, answer[1]


def _scorer_of(env: Any) -> ExpectedRewards:
    """Return the wrapper of expected rewards within an environment.

    Raises:
        UserError: ``wrap`` made another environment.
    """
    while not isinstance(env, ExpectedRewards):
        if not isinstance(env, gym.Wrapper):
            raise UserError("wrap must return a wrapper of the environment that it gets")
        env = env.env
    return env
