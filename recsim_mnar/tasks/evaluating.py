"""A frozen task, and evaluate(agent, task): an agent's rewards per user on it, and its score."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
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
    """Estimate of a mean over users, such as the mean reward per user within the horizon, with its standard error.

    Attributes:
        value: the estimate.
        error: standard error of the estimate.
    """

    value: float
    error: float


@dataclass(frozen=True)
class Task:
    """A frozen benchmark: a world, its users, and the scale of scores.

    In a world of slates the horizon is in periods. In a world of platforms it is in campaigns, and ``users`` counts
    platforms.

    Attributes:
        name: name with its version, ``sessions-10-v1``.
        summary: description in one line.
        world: name of the world.
        params: all parameters of the world.
        horizon: number of decisions of each user, from the first, whose rewards count.
        users: number of users of an evaluation.
        seed: seed of the public users.
        logging: name of the policy of the task's log.
        log_users: number of users of the log.
        reference: "oracle", which maximises the next reward, or "planning-oracle", which plans; both know the users'
            states.
        random: value of the uniform policy.
        best: value of the reference.
        digest: sha256 of the task's file.
        environment: True if agents may be trained in an environment; False if they must learn from the task's log.
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
        """Make the task's world."""
        return make_world(self.world, None, dict(self.params))

    def runner(self, number: int = 0) -> Runner:
        """Make the runner of policies on this task; it fits learners with the training seed numbered ``number``."""
        return runner_of(self, number)

    def log(self) -> Log:
        """Simulate the task's log for learners: users other than those of evaluations, under the logging policy."""
        return self.runner().log()

    def reference_policy(self) -> Any:
        """Make the policy with the score 1, which knows the users' states."""
        return self.runner().policy_of(self.reference)

    def random_policy(self) -> Any:
        """Make the policy with the score 0."""
        return self.runner().random_policy()


def tasks() -> list[str]:
    """Return the names of all tasks."""
    files = resources.files(__package__).joinpath(FOLDER).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


@functools.cache
def task(name: str) -> Task:
    """Return the task with this name, such as ``sessions-10-v1``.

    Raises:
        UserError: there is no such task.
    """
    if not isinstance(name, str) or name not in tasks():
        raise UserError(f"unknown task {name!r}; {nearest(str(name), tasks())}")
    content = resources.files(__package__).joinpath(FOLDER, f"{name}.toml").read_bytes()
    fields: dict[str, Any] = tomllib.loads(content.decode())
    for policy in ("random", "best"):
        fields[policy] = Known(**fields[policy])
    return Task(name=name, digest=hashlib.sha256(content).hexdigest(), **fields)


def task_env(name: str, **params: Any) -> Any:
    """Make the single environment of a task, whose episodes end with the horizon.

    Args:
        name: name of the task.
        **params: keywords of the environment, such as those of :class:`recsim_mnar.envs.WorldEnv`. ``observation`` is
            view counts by default; ``fatigue-50-v1``, where shown items matter, needs ``shown=0.9``.
    """
    chosen = task(name)
    return env_of(chosen, world_of_env(chosen, params, vector=False), **params)


def env_of(chosen: Task, world: World, **params: Any) -> Any:
    """Make the single environment of a task in its world, which several environments may share."""
    from gymnasium.wrappers import TimeLimit

    from recsim_mnar.envs import world_env

    env: Any = world_env(world, **params)
    env.unwrapped.max_episode_steps = chosen.horizon  # before gymnasium.make adds any other limit
    if world.most_decisions == chosen.horizon:  # the world itself ends every episode there
        return env
    return TimeLimit(env, chosen.horizon)


def task_vector_env(num_envs: int = 1, *, name: str, **options: Any) -> Any:
    """Make the vector environment of a task, whose episodes end with the horizon.

    Args:
        num_envs: number of lanes.
        name: name of the task.
        **options: keywords of the environment, such as those of :class:`recsim_mnar.envs.WorldVectorEnv`.

    Raises:
        UserError: ``max_episode_steps`` is beyond the horizon, which is frozen.
    """
    from recsim_mnar.envs import world_vector_env

    chosen = task(name)
    world = world_of_env(chosen, options, vector=True)
    steps = options.pop("max_episode_steps", None)
    if steps is None:
        steps = chosen.horizon
    steps = whole_number(steps, "max_episode_steps", 1)
    if steps > chosen.horizon:
        raise UserError(
            f"max_episode_steps={steps}: the horizon of the task {name}, {chosen.horizon}, is frozen. Give at most that"
        )
    return world_vector_env(num_envs, world=world, max_episode_steps=steps, **options)


def world_of_env(chosen: Task, keywords: Mapping[str, Any], *, vector: bool) -> World:
    """Check the keywords of a task's environment, and make its world.

    Raises:
        UserError: a keyword is unknown or a frozen parameter of the world; or the task has no environment.
    """
    from recsim_mnar.envs.validation import keywords_of

    if not chosen.environment:
        raise UserError(
            f"the task {chosen.name} has no environment: it is learned from its log alone, "
            f"recsim_mnar.task({chosen.name!r}).log()"
        )
    for name in set(keywords) - set(keywords_of(vector)):  # ``observation`` is also a parameter of the ratings world
        if name in chosen.params:
            world = f"recsim_mnar/{chosen.world.capitalize()}-v0"
            raise UserError(f"{name} is frozen in the task {chosen.name}: for other parameters make {world!r}")
        raise KeywordError.of(name, keywords_of(vector))
    return chosen.make_world()


Floats = NDArray[np.float64]

USERS = ("public", "quoted")
LEVEL = 0.95


class Lead(NamedTuple):
    """Difference of two agents' scores on the same users, and the ends of its interval."""

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
    """Rewards and score of an agent on a task; with several training seeds, their means.

    Attributes:
        task: name of the task.
        agent: name of the agent.
        value: expected rewards per user within the horizon.
        value_low: lower end of the value's interval.
        value_high: upper end of the value's interval.
        score: value on the scale on which random has 0 and the reference has 1.
        score_low: lower end of the score's interval, which includes the errors of random and of the reference.
        score_high: upper end of the score's interval.
        decisions: recommendations, or slates, per user within the horizon.
        users: number of users.
        which: "public" users, for development; "quoted" users, whose seed follows from the agent's actions; or
            "shared", the quoted users of another agent.
        seed: seed of the users.
        behaviour: sha256 of the agent's actions for the public users.
        level: coverage of the intervals.
        scores: score of each training seed, if there are several; the intervals then cover other seeds too.
        earned: (users,) expected rewards of each user within the horizon.
        room: (users,) rewards of the reference minus those of random for each user; on public users the difference of
            the frozen values, the same for each user.
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
        """Compute the lead of this score over another agent's, with an interval from each user's difference.

        If either has several training seeds, the interval covers other seeds too.

        Raises:
            UserError: the two evaluations are on different tasks or users.
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
        frozen = task(self.task)
        percent = f"{100 * self.level:g} %"
        runner = frozen.runner()  # for the names of units
        seeds = ""
        if self.scores:
            seeds = f"; mean of {len(self.scores)} training seeds, {min(self.scores):.3f} to {max(self.scores):.3f}"
        return (
            f"{self.agent} on {self.task}: score {self.score:.3f} ({percent} interval {self.score_low:.3f} "
            f"to {self.score_high:.3f}){seeds}; 0 is random, 1 is {frozen.reference}.\n"
            f"{runner.reward_noun} per user {self.value:.4g} ({self.value_low:.4g} to {self.value_high:.4g}) "
            f"in {self.decisions:.3g} {runner.decision_noun}s; {self.users:,} {self.which} {runner.unit_noun}s."
        )


def evaluate(
    agent: Any,
    on: str | Task,
    *,
    users: str | Evaluation = "public",
    n_users: int | None = None,
    executor: Executor | None = None,
) -> Evaluation:
    """Evaluate an agent on a task: its expected rewards per user within the horizon, and its score.

    Expected rewards are summed instead of drawn ones: they have the same mean and less variance. The uniform policy
    runs on the same users as a control variate: regression on its rewards, whose mean is frozen with the task, removes
    some of the variance between samples of users. The score is (value - random) / (reference - random). On public
    users the reference's value is frozen as well, and the interval includes the errors of both frozen values; on quoted
    users the reference runs too, and the interval is that of a ratio of user means.

    A list of agents is one agent trained with several seeds. All run on the same users, the score is their mean, and
    the interval covers other users and training seeds: two variances are added, with Satterthwaite's degrees of
    freedom. With few seeds it is wide; if seeds matter less than users, it covers more than its level, because part of
    the variance then enters both terms.

    Args:
        agent: a policy; a learner, which is fitted on the task's log; or the name of an agent or of one of
            ``recsim_mnar.tasks.running.Runner.references``. Or a list with one of these per training seed: names and
            learners, such as ``5 * ["poem"]``, are fitted with a seed each. See docs/tasks.md for slates and platforms.
        on: the task, or its name (:func:`tasks` lists them).
        users: "public" for development; or "quoted" for scores in papers: users whose seed follows from the agent's
            actions for public users, so that nobody can have tuned on them. Or an evaluation whose users to take, for
            :meth:`Evaluation.ahead_of`.
        n_users: number of users; None for that of the task, or of the evaluation.
        executor: executor to spread users over; results do not depend on it.

    Raises:
        UserError: the task is unknown, there is no agent, an agent learns from all users, or users are another task's.
    """
    chosen = on if isinstance(on, Task) else task(on)
    agents = list(agent) if isinstance(agent, (list, tuple)) else [agent]
    if not agents:
        raise UserError("no agent: give one, or a list with one per training seed")
    runners = [chosen.runner(number) for number in range(len(agents))]
    policies = [runner.policy_of(seeded_agent) for runner, seeded_agent in zip(runners, agents, strict=True)]

    def run_all(n: int, seed: int) -> list[Earned]:
        return [runner.run(policy, n, seed, executor) for runner, policy in zip(runners, policies, strict=True)]

    names = "/".join(dict.fromkeys(policy.name for policy in policies))
    return evaluation_of(chosen, names, run_all, users, n_users, executor)


def evaluation_of(
    chosen: Task,
    name: str,
    run_all: Callable[[int, int], list[Earned]],
    users: str | Evaluation,
    n_users: int | None,
    executor: Executor | None = None,
) -> Evaluation:
    """Run an agent, random and, if its value is not frozen, the reference on the same users, and return the scores.

    Args:
        chosen: the task.
        name: name of the agent.
        run_all: function of the number of users and their seed that returns the rewards for each training seed.
        users: "public", "quoted", or an evaluation whose users to take.
        n_users: number of users; None for that of the task, or of the evaluation.
        executor: executor for random and the reference.
    """
    which, n, seed = _resolve_users(users, n_users, chosen)
    runs = run_all(n, chosen.seed)  # on the public users
    behaviour = runs[0].behaviour
    if len(runs) > 1:
        behaviour = hashlib.sha256("".join(earned.behaviour for earned in runs).encode()).hexdigest()
    if which == "quoted":
        seed = derive_seed(chosen.seed, f"task/{chosen.digest}/{behaviour}")
    runner = chosen.runner()
    reference_rewards = None  # on public users the reference's value is frozen with the task
    if which != "public":
        runs = run_all(n, seed)
        reference_rewards = runner.run(runner.policy_of(chosen.reference), n, seed, executor).rewards
    random_rewards = runner.run(runner.random_policy(), n, seed, executor).rewards
    return _evaluation(chosen, name, runs, random_rewards, reference_rewards, (which, check_seed(seed), behaviour))


def _evaluation(
    chosen: Task,
    agent: str,
    runs: Sequence[Earned],
    random_rewards: Floats,
    reference_rewards: Floats | None,
    users: tuple[str, int, str],
) -> Evaluation:
    """Compute the value and the score of an agent, with their intervals, from its runs on the same users.

    Args:
        chosen: the task.
        agent: name of the agent.
        runs: rewards of each user, one run per training seed.
        random_rewards: (n,) rewards of the uniform policy.
        reference_rewards: (n,) rewards of the reference; None on the public users, where its value is frozen.
        users: kind of the users, their seed, and the digest of the agent's actions for the public ones.
    """
    n = len(random_rewards)
    room = np.full(n, chosen.best.value - chosen.random.value)
    if reference_rewards is not None:
        room = reference_rewards - random_rewards

    def value_and_score(earned: Floats) -> tuple[Known, Known]:
        """Return value and score from the rewards (n,) of users, each with its standard error."""
        value, slope = _with_control_variate(earned, random_rewards, chosen.random)
        if reference_rewards is None:
            score = _frozen_score(value, slope, chosen)
        else:
            score = _ratio(earned - random_rewards, room)
        return Known(value.value, math.hypot(value.error, slope * chosen.random.error)), score

    earned = np.mean([run.rewards for run in runs], axis=0)
    value, score = value_and_score(earned)
    by_seed: list[tuple[Known, Known]] = []
    if len(runs) > 1:
        by_seed = [value_and_score(run.rewards) for run in runs]
    scores = [seed_score.value for _, seed_score in by_seed]
    value_reach = _reach(value.error, n, [seed_value.value for seed_value, _ in by_seed])
    score_reach = _reach(score.error, n, scores)
    which, seed, behaviour = users
    return Evaluation(
        task=chosen.name,
        agent=agent,
        value=value.value,
        value_low=value.value - value_reach,
        value_high=value.value + value_reach,
        score=score.value,
        score_low=score.value - score_reach,
        score_high=score.value + score_reach,
        decisions=float(np.mean([run.decisions for run in runs], axis=0).mean()),
        users=n,
        which=which,
        seed=seed,
        behaviour=behaviour,
        scores=scores,
        earned=earned,
        room=room,
    )


def mean_of(earned: Floats) -> Known:
    """Return the mean of the rewards (n,) of users, and its standard error."""
    return Known(float(earned.mean()), float(earned.std(ddof=1)) / math.sqrt(len(earned)))


def _resolve_users(users: str | Evaluation, n_users: int | None, chosen: Task) -> tuple[str, int, int]:
    """Check the arguments of :func:`evaluate` about users, and return the users' kind, number and seed.

    Returns:
        Kind of the users: "public", "quoted" or "shared".
        Number of users.
        Seed of the users; for quoted users the seed of the public ones, which the caller replaces.
    """
    if isinstance(users, Evaluation):
        if users.task != chosen.name or n_users not in (None, users.users):
            raise UserError(f"users of an evaluation: it is of {users.users:,} users of {users.task}; ask for the same")
        which = "public" if users.which == "public" else "shared"
        return which, users.users, users.seed
    n = chosen.users if n_users is None else whole_number(n_users, "n_users", 2)
    if isinstance(users, int):
        raise UserError(f"users={users}: write n_users={users} for so many; users is one of {', '.join(USERS)}")
    return one_of(users, "users", USERS), n, chosen.seed


def _reach(error: float, n: int, *by_seed: Sequence[float]) -> float:
    """Return half the width of Student's t interval at the level :data:`LEVEL`.

    Args:
        error: standard error of the mean over users.
        n: number of users.
        *by_seed: values of each agent's training seeds. Agents with several add the variance of their mean; the degrees
            of freedom of the sum are Satterthwaite's.
    """
    from scipy.special import stdtrit

    # Pairs of a variance and its degrees of freedom.
    parts = [(error**2, n - 1)] + [(float(np.var(x, ddof=1)) / len(x), len(x) - 1) for x in by_seed if len(x) > 1]
    total = sum(variance for variance, _ in parts)
    freedom = n - 1.0
    if total > parts[0][0]:  # training seeds add to the variance of users; also avoids 0 / 0 if nothing varies
        freedom = total**2 / sum(variance**2 / degrees for variance, degrees in parts)
    return float(stdtrit(freedom, 0.5 + LEVEL / 2)) * math.sqrt(total)


def _with_control_variate(earned: Floats, random_rewards: Floats, random: Known) -> tuple[Known, float]:
    """Correct an agent's mean reward for the sample of users, with the uniform policy's rewards as control variate.

    The corrected value is the prediction of a linear regression of the agent's rewards on the uniform policy's, at the
    latter's known mean.

    Args:
        earned: (n,) rewards of the agent for each user.
        random_rewards: (n,) rewards of the uniform policy for the same users.
        random: frozen value of the uniform policy.

    Returns:
        The corrected value, with its standard error over samples of users.
        The slope of the regression.
    """
    centred = random_rewards - random_rewards.mean()
    sum_of_squares = float(centred @ centred)
    sample_error = float(random_rewards.mean()) - random.value  # by which this sample of users deviates from all users
    slope = 0.0
    slope_term = 0.0
    if sum_of_squares > 0.0:  # 0 if the uniform policy earns the same from every user: then there is no correction
        slope = float(centred @ earned) / sum_of_squares
        slope_term = sample_error * sample_error / sum_of_squares
    residual = earned - slope * random_rewards
    # Standard error of a regression's prediction: two parameters are fitted, hence n - 2 degrees of freedom.
    variance = float(((residual - residual.mean()) ** 2).sum()) / max(len(residual) - 2, 1)
    error = math.sqrt(variance * (1.0 / len(residual) + slope_term))
    return Known(float(earned.mean()) - slope * sample_error, error), slope


def _frozen_score(value: Known, slope: float, chosen: Task) -> Known:
    """Return the score of a value on the scale of the two frozen values, with its standard error.

    Args:
        value: value of the agent, corrected by :func:`_with_control_variate`.
        slope: slope of the regression in that correction.
        chosen: the task, with the frozen values of random and of the reference.
    """
    room = chosen.best.value - chosen.random.value
    score = (value.value - chosen.random.value) / room
    # The delta method: each independent error times the derivative of the score, times room. The corrected value
    # depends on the frozen value of random as well, with the derivative ``slope``.
    parts = (value.error, (slope + score - 1.0) * chosen.random.error, score * chosen.best.error)
    return Known(score, math.hypot(*parts) / room)


def _ratio(earned: Floats, room: Floats) -> Known:
    """Return the ratio of the means over users of ``earned`` (n,) and ``room`` (n,), with its delta-method error.

    Args:
        earned: rewards of the agent less those of another policy, for each user.
        room: rewards of the reference less those of random, for each user.
    """
    share = float(earned.mean() / room.mean())
    mean_room = float(room.mean())
    return Known(share, mean_of((earned - share * room) / mean_room).error)
