"""A frozen task, and evaluate(agent, task): what an agent earns per user on it, and its score."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar._version import __version__
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import one_of, whole_number
from recsim_mnar.log.table import Log
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.tasks.running import Earned, Runner, runner_of
from recsim_mnar.worlds.base import World
from recsim_mnar.worlds.params import KeywordError
from recsim_mnar.worlds.registry import make_world

FOLDER = "frozen"


@dataclass(frozen=True)
class Known:
    """A value that is frozen with a task: rewards per user within the horizon.

    Attributes:
        value: the mean over users.
        error: its standard error.
    """

    value: float
    error: float


@dataclass(frozen=True)
class Task:
    """Task of a policy, and the measure of its value; every field is frozen.

    In a world of slates a horizon is in periods. In one of platforms it is in campaigns, and ``users`` are platforms.

    Attributes:
        name: with its version, ``sessions-10-v1``.
        summary: a line for a person.
        world: name of the world.
        params: all of its parameters.
        horizon: decisions of a user that count, from the first on.
        users: of an evaluation.
        seed: of the public users.
        logging: the policy of the task's log.
        log_users: of the log.
        reference: "oracle", which takes the most at once, or "planning-oracle", which thinks of later; both know the
            users' states.
        random: the value of the uniform policy.
        best: the value of the reference.
        digest: sha256 of the task's file.
        environment: whether an agent may be trained in an environment; else from the task's log alone.
    """

    name: str
    summary: str
    world: str
    params: Mapping[str, Any] = field(repr=False)
    horizon: int
    users: int
    seed: int
    logging: str
    log_users: int
    reference: str
    random: Known
    best: Known
    digest: str = field(repr=False)
    environment: bool = True

    def make_world(self) -> World:
        """The task's world."""
        return make_world(self.world, None, dict(self.params))

    def runner(self, number: int = 0) -> Runner:
        """Get the runner of policies of the task; learners are fitted with the training seed of this number."""
        return runner_of(self, number)

    def log(self) -> Log:
        """The task's log, for learners: other users under the logging policy, without truth."""
        return self.runner().log()

    def reference_policy(self) -> Any:
        """The policy whose value is a score of 1; it knows the users' states."""
        return self.runner().policy_of(self.reference)

    def random_policy(self) -> Any:
        """The policy whose value is a score of 0."""
        return self.runner().random()


def tasks() -> list[str]:
    """Names of all tasks."""
    files = resources.files(__package__).joinpath(FOLDER).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


@functools.cache
def task(name: str) -> Task:
    """The task of a name, ``sessions-10-v1``.

    Raises:
        UserError: there is none of this name.
    """
    if not isinstance(name, str) or name not in tasks():
        raise UserError(f"unknown task {name!r}; {nearest(str(name), tasks())}")
    content = resources.files(__package__).joinpath(FOLDER, f"{name}.toml").read_bytes()
    held: dict[str, Any] = tomllib.loads(content.decode())
    for which in ("random", "best"):
        held[which] = Known(**held[which])
    return Task(name=name, digest=hashlib.sha256(content).hexdigest(), **held)


def task_env(name: str, **params: Any) -> Any:
    """The single environment of a task, of which an episode ends with the horizon.

    Args:
        name: of the task.
        **params: keywords of the environment: of :class:`recsim_mnar.envs.WorldEnv`, say. ``observation`` is view
            counts unless given; in ``fatigue-50-v1``, where what was shown decides, give ``shown=0.9``.
    """
    from gymnasium.wrappers import TimeLimit

    from recsim_mnar.envs import world_env

    chosen = task(name)
    world = _world_of_env(chosen, params, vector=False)
    env: Any = world_env(world, **params)
    env.unwrapped.max_episode_steps = chosen.horizon  # what its spec says, whatever limit gymnasium.make adds
    if world.most_decisions == chosen.horizon:
        return env
    return TimeLimit(env, chosen.horizon)


def task_vector_env(num_envs: int = 1, *, name: str, **options: Any) -> Any:
    """The vector environment of a task, of which episodes end with the horizon.

    Args:
        num_envs: number of lanes.
        name: of the task.
        **options: keywords of the environment: of :class:`recsim_mnar.envs.WorldVectorEnv`, say.

    Raises:
        UserError: ``max_episode_steps`` is beyond the horizon, which is frozen.
    """
    from recsim_mnar.envs import world_vector_env

    chosen = task(name)
    world = _world_of_env(chosen, options, vector=True)
    most_steps = options.pop("max_episode_steps", None)
    if most_steps is None:
        steps = chosen.horizon
    else:
        steps = whole_number(most_steps, "max_episode_steps", 1)
    if steps > chosen.horizon:
        raise UserError(
            f"max_episode_steps={steps}: the horizon of the task {name}, {chosen.horizon}, is frozen. Give at most that"
        )
    return world_vector_env(num_envs, world=world, max_episode_steps=steps, **options)


def _world_of_env(chosen: Task, given: Mapping[str, Any], *, vector: bool) -> World:
    """The world of a task's environment.

    Raises:
        UserError: a keyword is a parameter of the world, which is frozen, or none; or there is no environment.
    """
    from recsim_mnar.envs.validation import keywords_of

    if not chosen.environment:
        raise UserError(
            f"the task {chosen.name} has no environment: it is learned from its log alone, "
            f"recsim_mnar.task({chosen.name!r}).log()"
        )
    for name in set(given) - set(keywords_of(vector)):  # ``observation`` is a parameter of the ratings world, too
        if name in chosen.params:
            world = f"recsim_mnar/{chosen.world.capitalize()}-v0"
            raise UserError(f"{name} is frozen in the task {chosen.name}: for other parameters make {world!r}")
        raise KeywordError.of(name, keywords_of(vector))
    return chosen.make_world()


Floats = NDArray[np.float64]

USERS = ("public", "quoted")
LEVEL = 0.95


class Lead(NamedTuple):
    """Lead of one agent's score over another's on the same users, and the ends of its interval."""

    score: float
    low: float
    high: float

    def __str__(self) -> str:
        where = "tied"
        if self.low > 0.0:
            where = "ahead"
        elif self.high < 0.0:
            where = "behind"
        return f"{where}, {self.score:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


@dataclass(frozen=True)
class Evaluation:
    """Earnings of an agent on a task; of several training seeds, their mean.

    Attributes:
        task: its name.
        agent: its name.
        value: expected rewards per user within the horizon, with the ends of its interval.
        score: 0 as random, 1 as the reference, with the ends of its interval, in which the errors of both are.
        decisions: recommendations per user within the horizon; of rankings, slates.
        users: over whom it was measured.
        which: "public", whom all may try on; "quoted", whose seed follows from what the agent does; or "shared", those
            quoted for another agent.
        seed: of the users.
        behaviour: sha256 of what the agent did with the public users.
        level: of the intervals.
        scores: of each training seed, where there are several; the intervals then cover other seeds too.
        earned: (users,) what each user's recommendations earned within the horizon.
        room: (users,) what the reference earns there beyond random; of public users the frozen mean.
    """

    task: str
    agent: str
    value: float
    value_low: float
    value_high: float
    score: float
    score_low: float
    score_high: float
    decisions: float
    users: int
    which: str
    seed: int
    behaviour: str
    level: float = LEVEL
    scores: list[float] = field(default_factory=list)
    earned: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    room: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)

    def ahead_of(self, other: Evaluation) -> Lead:
        """Compute the lead over another agent's score: the interval is of pairs, user by user.

        Where either has several training seeds, the interval covers other seeds too.

        Raises:
            UserError: the two are of other tasks or users.
        """
        if (self.task, self.seed, self.users) != (other.task, other.seed, other.users):
            raise UserError(
                "a lead is of one task and the same users: evaluate both on the public users, as many of them, or the "
                "other one with users=EVALUATION, on the users of the first"
            )
        lead = _ratio(self.earned - other.earned, self.room)
        reach = _reach(lead.error, self.users, self.scores, other.scores)
        return Lead(lead.value, lead.value - reach, lead.value + reach)

    def to_dict(self) -> Mapping[str, Any]:
        """Convert to JSON types, with the task's digest and the package's version."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.compare}
        if not values["scores"]:
            del values["scores"]
        return {"package": __version__, "task_digest": task(self.task).digest, **values}

    def __repr__(self) -> str:
        own_task = task(self.task)
        percent = f"{100 * self.level:g} %"
        runner = own_task.runner()
        seeds = ""
        if self.scores:
            seeds = f"; mean of {len(self.scores)} training seeds, {min(self.scores):.3f} to {max(self.scores):.3f}"
        return (
            f"{self.agent} on {self.task}: score {self.score:.3f} ({percent} interval {self.score_low:.3f} "
            f"to {self.score_high:.3f}){seeds}; 0 is random, 1 is {own_task.reference}.\n"
            f"{runner.earns} per user {self.value:.4g} ({self.value_low:.4g} to {self.value_high:.4g}) "
            f"in {self.decisions:.3g} {runner.decides}s; {self.users:,} {self.which} {runner.unit}s."
        )


def evaluate(
    agent: Any,
    on: str | Task,
    *,
    users: str | Evaluation = "public",
    n_users: int | None = None,
    executor: Executor | None = None,
) -> Evaluation:
    """Evaluate an agent on a task: expected rewards per user within the horizon, and its score.

    The expected reward of what is shown stands for the reward, which has the same mean and more luck. The uniform
    policy runs on the same users: what it earns beyond its frozen value is the luck of these users, which regression
    takes off the value. A score is (value - random) / (reference - random). On the public users the reference's value
    is the one frozen with the task, and the errors of both are in the interval; on quoted users it runs, too, and the
    interval is of pairs.

    A list is one agent trained with several seeds: all run on the same users, the score is their mean, and the interval
    covers other users and other training seeds (the two parts' degrees of freedom by Satterthwaite). Few seeds make it
    wide; where seeds matter less than users it covers more than its level, because what is left counts in both parts.

    Args:
        agent: a policy; a learner, fitted on the task's log; or an agent's name, or one of its
            ``recsim_mnar.tasks.running.Runner.references``. Or a list of them, one per training seed: names and
            learners, ``5 * ["poem"]``, are fitted with a seed each. See docs/tasks.md for slates and platforms.
        on: the task, or its name (:func:`tasks` lists them).
        users: "public", for development, or "quoted": users whose seed follows from what the agent did with the public
            ones, so that nobody can have tried on them. A score in a paper is of these. Or an evaluation: its users,
            for :meth:`Evaluation.ahead_of`.
        n_users: how many; the task's number where None, or the evaluation's.
        executor: to spread users over; no number depends on it.

    Raises:
        UserError: an unknown task, no agent, one that learns from all users while it acts, or users of another task.
    """
    chosen = on if isinstance(on, Task) else task(on)
    agents = list(agent) if isinstance(agent, (list, tuple)) else [agent]
    if not agents:
        raise UserError("no agent: give one, or a list with one per training seed")
    which, n, seed = _users_of(users, n_users, chosen)
    runners = [chosen.runner(number) for number in range(len(agents))]
    policies = [own_part.policy_of(agent_given) for own_part, agent_given in zip(runners, agents, strict=True)]

    def run(seed: int) -> list[Earned]:
        return [runner.run(policy, n, seed, executor) for runner, policy in zip(runners, policies, strict=True)]

    runs = run(chosen.seed)
    behaviour = runs[0].behaviour
    if len(runs) > 1:
        behaviour = hashlib.sha256("".join(agent_given.behaviour for agent_given in runs).encode()).hexdigest()
    if which == "quoted":
        seed = derive_seed(chosen.seed, f"task/{chosen.digest}/{behaviour}")
    runner = runners[0]
    best = None
    if which != "public":
        runs = run(seed)
        best = runner.run(runner.policy_of(chosen.reference), n, seed, executor).rewards
    lowest = runner.run(runner.random(), n, seed, executor).rewards
    names = "/".join(dict.fromkeys(policy.name for policy in policies))
    return _evaluation(chosen, names, runs, lowest, best, (which, check_seed(seed), behaviour))


def _evaluation(
    chosen: Task,
    agent: str,
    runs: Sequence[Earned],
    lowest: Floats,
    best: Floats | None,
    users: tuple[str, int, str],
) -> Evaluation:
    """Score runs of an agent on the same users.

    Args:
        chosen: the task.
        agent: its name.
        runs: one per training seed.
        lowest: rewards of the uniform policy.
        best: of the reference; None on the public users, where the frozen value stands for them.
        users: which they are, their seed, and the digest of what the agent did with the public ones.
    """
    n = len(lowest)
    if best is None:
        room = np.full(n, chosen.best.value - chosen.random.value)
    else:
        room = best - lowest

    def scored(earned: Floats) -> tuple[Known, Known]:
        value, slope = _without_luck(earned, lowest, chosen.random)
        if best is None:
            score = _frozen_score(value, slope, chosen)
        else:
            score = _ratio(earned - lowest, room)
        return Known(value.value, math.hypot(value.error, slope * chosen.random.error)), score

    earned = np.mean([run.rewards for run in runs], axis=0)
    value, score = scored(earned)
    if len(runs) > 1:
        several = [scored(run.rewards) for run in runs]
    else:
        several = []
    values = [known_values.value for known_values, _ in several]
    scores = [known_values.value for _, known_values in several]
    up = _reach(value.error, n, values)
    wide = _reach(score.error, n, scores)
    return Evaluation(
        chosen.name,
        agent,
        value.value,
        value.value - up,
        value.value + up,
        score.value,
        score.value - wide,
        score.value + wide,
        float(np.mean([run.decisions for run in runs], axis=0).mean()),
        n,
        *users,
        scores=scores,
        earned=earned,
        room=room,
    )


def mean_of(earned: Floats) -> Known:
    """Mean over users and its standard error."""
    return Known(float(earned.mean()), float(earned.std(ddof=1)) / math.sqrt(len(earned)))


def _users_of(given: str | Evaluation, n_users: int | None, chosen: Task) -> tuple[str, int, int]:
    """Choose the users, their number and their seed; that of quoted ones follows later."""
    if not isinstance(given, Evaluation):
        if n_users is None:
            n = chosen.users
        else:
            n = whole_number(n_users, "n_users", 2)
        if isinstance(given, int):
            raise UserError(f"users={given}: write n_users={given} for so many; users is one of {', '.join(USERS)}")
        return one_of(given, "users", USERS), n, chosen.seed
    if given.task != chosen.name or n_users not in (None, given.users):
        raise UserError(f"users of an evaluation: it is of {given.users:,} users of {given.task}; ask for the same")
    return ("public" if given.which == "public" else "shared"), given.users, given.seed


def _reach(error: float, n: int, *by_seed: Sequence[float]) -> float:
    """Half the width of an interval over n users and, of each agent that has several, over training seeds."""
    from scipy.special import stdtrit

    parts = [(error**2, n - 1)] + [(float(np.var(x, ddof=1)) / len(x), len(x) - 1) for x in by_seed if len(x) > 1]
    total = sum(part for part, _ in parts)
    free = n - 1.0
    if total > parts[0][0]:
        free = total**2 / sum(part**2 / reach_of_part for part, reach_of_part in parts)
    return float(stdtrit(free, 0.5 + LEVEL / 2)) * math.sqrt(total)


def _without_luck(earned: Floats, lowest: Floats, random: Known) -> tuple[Known, float]:
    """The value less what the users' luck explains, its error on these users, and the slope of the regression."""
    apart = lowest - lowest.mean()
    square = float(apart @ apart)
    if square > 0.0:
        slope = float(apart @ earned) / square
    else:
        slope = 0.0
    luck = float(lowest.mean()) - random.value
    left = earned - slope * lowest
    # A slope that is fitted costs a degree of freedom, and its own error counts as far as luck was taken off.
    spread = float(((left - left.mean()) ** 2).sum()) / max(len(left) - 2, 1)
    error = math.sqrt(spread * (1.0 / len(left) + (luck * luck / square if square > 0.0 else 0.0)))
    return Known(float(earned.mean()) - slope * luck, error), slope


def _frozen_score(value: Known, slope: float, chosen: Task) -> Known:
    """The score and its error. The value leans on the frozen one of random by the slope of its regression."""
    room = chosen.best.value - chosen.random.value
    score = (value.value - chosen.random.value) / room
    parts = (value.error, (slope + score - 1.0) * chosen.random.error, score * chosen.best.error)
    return Known(score, math.hypot(*parts) / room)


def _ratio(earned: Floats, room: Floats) -> Known:
    """Compute the earnings as a share of the room on the same users, in pairs."""
    share = float(earned.mean() / room.mean())
    mean_room = float(room.mean())
    return Known(share, mean_of((earned - share * room) / mean_room).error)
