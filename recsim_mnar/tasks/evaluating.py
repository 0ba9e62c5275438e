"""evaluate(agent, task): what an agent earns per user on a frozen task, and its score between random and reference."""

from __future__ import annotations

import dataclasses
import functools
import math
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar._version import __version__
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import one_of, whole_number
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.tasks.definition import Known, Task, task

Floats = NDArray[np.float64]

USERS = ("public", "quoted")
LEVEL = 0.95


class Lead(NamedTuple):
    """How far one agent's score is ahead of another's on the same users, and the ends of its interval."""

    score: float
    low: float
    high: float

    def __str__(self) -> str:
        where = "ahead" if self.low > 0.0 else "behind" if self.high < 0.0 else "tied"
        return f"{where}, {self.score:+.3f} ({self.low:+.3f} to {self.high:+.3f})"


@dataclass(frozen=True)
class Evaluation:
    """What an agent earns on a task.

    Attributes:
        task: its name.
        agent: its name.
        value: expected rewards per user within the horizon, with the ends of its interval.
        score: 0 as random, 1 as the reference, with the ends of its interval, in which the errors of both are.
        decisions: recommendations per user within the horizon.
        users: over whom it was measured.
        which: "public", whom all may try on, or "quoted", whose seed follows from what the agent does.
        seed: of the users.
        behaviour: sha256 of what the agent did with the public users.
        level: of the intervals.
        earned: (users,) what each user's recommendations earned within the horizon.
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
    earned: Floats = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)

    def ahead_of(self, other: Evaluation) -> Lead:
        """How far the score is ahead of another agent's: the interval is of pairs, user by user.

        Raises:
            UserError: the two are of other tasks or users.
        """
        if (self.task, self.seed, self.users) != (other.task, other.seed, other.users):
            raise UserError(
                "a lead is of one task and the same users: evaluate both on the public users, as many of them"
            )
        known, apart = task(self.task), self.earned - other.earned
        lead, reach = _mean(apart / (known.best.value - known.random.value)), _quantile(self.users)
        return Lead(lead.value, lead.value - reach * lead.error, lead.value + reach * lead.error)

    def to_dict(self) -> dict[str, Any]:
        """As JSON types, with the task's digest and the package's version."""
        own = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "earned"}
        return {"package": __version__, "task_digest": task(self.task).digest, **own}

    def __repr__(self) -> str:
        known, percent = task(self.task), f"{100 * self.level:g} %"
        runner = known.runner()
        return (
            f"{self.agent} on {self.task}: score {self.score:.3f} ({percent} interval {self.score_low:.3f} "
            f"to {self.score_high:.3f}); 0 is random, 1 is {known.reference}.\n"
            f"{runner.earns} per user {self.value:.4g} ({self.value_low:.4g} to {self.value_high:.4g}) "
            f"in {self.decisions:.3g} recommendations; {self.users:,} {self.which} {runner.unit}s."
        )


def evaluate(
    agent: Any,
    on: str | Task,
    *,
    users: str = "public",
    n_users: int | None = None,
    executor: Executor | None = None,
) -> Evaluation:
    """What an agent earns on a task: expected rewards per user within the horizon, and its score.

    The expected reward of what is shown stands for the reward, which has the same mean and more luck. The uniform
    policy runs on the same users: what it earns beyond its frozen value is the luck of these users, which regression
    takes off the value. A score is (value - random) / (reference - random). On the public users the reference's value
    is the one frozen with the task, and the errors of both are in the interval; on quoted users it runs, too, and the
    interval is of pairs.

    Args:
        agent: a policy; a learner, fitted on the task's log; or an agent's name, or one of its
            ``recsim_mnar.tasks.running.Runner.references``. See docs/tasks.md for slates and platforms.
        on: the task, or its name (:func:`tasks` lists them).
        users: "public", for development, or "quoted": users whose seed follows from what the agent did with the public
            ones, so that nobody can have tried on them. A score in a paper is of these.
        n_users: how many; the task's number where None.
        executor: to spread users over; no number depends on it.

    Raises:
        UserError: an unknown task, no agent, or one that learns from all users while it acts.
    """
    chosen = on if isinstance(on, Task) else task(on)
    one_of(users, "users", USERS)
    n = chosen.users if n_users is None else whole_number(n_users, "n_users", 2)
    runner = chosen.runner()
    policy, run = runner.policy_of(agent), functools.partial(runner.run, executor=executor)
    earned, decisions, behaviour = run(policy, n, chosen.seed)
    seed = chosen.seed
    if users == "quoted":
        seed = derive_seed(chosen.seed, f"task/{chosen.digest}/{behaviour}")
        earned, decisions, _ = run(policy, n, seed)
    lowest = run(runner.random(), n, seed).rewards
    value, slope = _without_luck(earned, lowest, chosen.random)
    if users == "quoted":
        score, error = _paired_score(earned, lowest, run(runner.policy_of(chosen.reference), n, seed).rewards)
    else:
        score, error = _frozen_score(value, slope, chosen)
    value, reach = Known(value.value, math.hypot(value.error, slope * chosen.random.error)), _quantile(n)
    return Evaluation(
        chosen.name,
        policy.name,
        value.value,
        value.value - reach * value.error,
        value.value + reach * value.error,
        score,
        score - reach * error,
        score + reach * error,
        float(decisions.mean()),
        n,
        users,
        check_seed(seed),
        behaviour,
        earned=earned,
    )


def measured(chosen: Task, policy: Any, n_users: int, seed: int, executor: Executor | None = None) -> Known:
    """The value of a policy over some users of a task's world: what is frozen."""
    return _mean(chosen.runner().run(policy, n_users, seed, executor).rewards)


def _mean(earned: Floats) -> Known:
    return Known(float(earned.mean()), float(earned.std(ddof=1)) / math.sqrt(len(earned)))


def _quantile(n: int) -> float:
    """Student's, of an interval over n users."""
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, 0.5 + LEVEL / 2))


def _without_luck(earned: Floats, lowest: Floats, random: Known) -> tuple[Known, float]:
    """The value less what the users' luck explains, its error on these users, and the slope of the regression."""
    apart = lowest - lowest.mean()
    square = float(apart @ apart)
    slope = float(apart @ earned) / square if square > 0.0 else 0.0
    luck = float(lowest.mean()) - random.value
    left = earned - slope * lowest
    # A slope that is fitted costs a degree of freedom, and its own error counts as far as luck was taken off.
    spread = float(((left - left.mean()) ** 2).sum()) / max(len(left) - 2, 1)
    error = math.sqrt(spread * (1.0 / len(left) + (luck * luck / square if square > 0.0 else 0.0)))
    return Known(float(earned.mean()) - slope * luck, error), slope


def _frozen_score(value: Known, slope: float, chosen: Task) -> tuple[float, float]:
    """The score and its error; the value leans on the frozen one of random by the slope of its regression."""
    room = chosen.best.value - chosen.random.value
    score = (value.value - chosen.random.value) / room
    parts = (value.error, (slope + score - 1.0) * chosen.random.error, score * chosen.best.error)
    return score, math.hypot(*parts) / room


def _paired_score(earned: Floats, lowest: Floats, highest: Floats) -> tuple[float, float]:
    """The score and its error; the three ran on the same users."""
    room = float((highest - lowest).mean())
    score = float((earned - lowest).mean()) / room
    influence = (earned - lowest - score * (highest - lowest)) / room
    return score, float(influence.std(ddof=1)) / math.sqrt(len(earned))
