"""Runner of tasks in worlds of slates: the purchases caused by slates in each user's later periods."""

from __future__ import annotations

import functools
from concurrent.futures import Executor
from typing import Any, ClassVar

import numpy as np

from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import ReadyLearner, able, as_policy, fitted, unwrapped
from recsim_mnar.purchases.exposures import Exposures, Flags, Floats, Ints
from recsim_mnar.purchases.policies import DeployedPolicy, SlatePolicy, exposures_of
from recsim_mnar.purchases.world import ExposureWorld
from recsim_mnar.simulation.items import Columns, simulate
from recsim_mnar.simulation.oracle import ORACLE
from recsim_mnar.tasks.running import DecisionRunner, Earned, learner_of


class TopSlates(SlatePolicy):
    """Recommender of the ``slate_size`` items that a policy ranks highest; ties for the last places by fair draws."""

    def probabilities(self, seed: int, users: Ints) -> Floats:
        """Implement :meth:`SlatePolicy.probabilities`: 1 or 0 unless an item ties for the last places."""
        return top_shares(self._scores(users), self.params.slate_size)


def top_shares(scores: Floats, size: int) -> Floats:
    """Return the probability (n, I) of each item to be in the top ``size``, if ties are broken by fair draws."""
    last_score = np.partition(scores, -size, axis=1)[:, -size, None]  # (n, 1) score of the last place
    is_above = scores > last_score
    is_tied = scores == last_score
    n_places_left = size - is_above.sum(axis=1, keepdims=True)
    return np.where(is_tied, n_places_left / is_tied.sum(axis=1, keepdims=True), is_above)


class UpliftOracle(DeployedPolicy):
    """Reference policy that shows each user the items of largest true uplift; no other slates cause more purchases."""

    name = ORACLE

    def probabilities(self, seed: int, users: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.purchases.policies.SlatePolicy.probabilities`."""
        return top_shares(self.world.outcomes_of(seed, users).uplift, self.params.slate_size)


class LaterSlates(SlatePolicy):
    """Recommender that acts like the world's own in the first periods, and then like another that has observed them.

    Args:
        world: world of slates.
        own: recommender of the later periods.
        past: number of first periods.
    """

    def __init__(self, world: Any, own: SlatePolicy, past: int) -> None:
        self.deployed = DeployedPolicy(world)
        self.own = own
        self.past = past
        self._period = 0
        self.name = own.name
        self.params = world.params
        self.n_items = own.n_items

    def probabilities(self, seed: int, users: Ints) -> Floats:
        """Implement :meth:`SlatePolicy.probabilities`."""
        if self._period < self.past:
            return self.deployed.probabilities(seed, users)
        return self.own.probabilities(seed, users)

    changes = True

    def reset(self, users: Ints) -> None:
        """Implement :meth:`SlatePolicy.reset`."""
        self._period = 0
        self.own.reset(users)

    def observe_events(self, columns: Columns) -> None:
        """Implement :meth:`SlatePolicy.observe_events`."""
        self._period += 1
        self.own.observe_events(columns)

    def fresh(self) -> LaterSlates:
        """Implement :meth:`SlatePolicy.fresh`."""
        return LaterSlates(self.deployed.world, self.own.fresh(), self.past)

    def describe(self) -> dict[str, Any]:
        """Implement :meth:`SlatePolicy.describe`."""
        return {**self.own.describe(), "past": self.past}


class Slates(DecisionRunner):
    """Runner on users who are shown slates; a value is the number of purchases that slates cause, by true uplift.

    The last periods are those of the horizon. In the periods before, the users' past, the world's own recommender acts:
    learners are fitted on this past, and every policy observes it.
    """

    world: ExposureWorld  # type: ignore[assignment]  # users of both live apart in lanes
    step_noun = "period"
    reward_noun = "purchases caused"
    references: ClassVar = {"oracle": UpliftOracle, "deployed": DeployedPolicy}

    @property
    def log_description(self) -> str:
        """Return a description of the log for learners."""
        return f"the users' own {self.past} periods before, under {self.task.logging}"

    @property
    def past(self) -> int:
        """Return the number of periods before the horizon's."""
        return int(self.world.params.n_periods - self.task.horizon)

    def log(self) -> Log:
        """Implement :meth:`Runner.log`: the log of the public users' past."""
        return self._past_of(self.task.users, self.task.seed)[0]

    def _past_of(self, n: int, seed: int) -> tuple[Log, Exposures]:
        """Simulate the past of n users of a seed.

        Returns:
            The log.
            Its exposures, with propensities.
        """
        before = self.world.lasting(self.past)
        deployed = DeployedPolicy(before)
        log = simulate(before, deployed, n, seed)
        return log, exposures_of(before, deployed, log, n, seed)

    def random_policy(self) -> Any:
        """Implement :meth:`Runner.random_policy`: all slates have the same probability."""
        return TopSlates(super().random_policy(), self.world.params)

    def policy_from_agent(self, agent: Any) -> Any:
        """Implement :meth:`Runner.policy_from_agent`: a slate policy itself, or a learner, which :meth:`run` fits."""
        if isinstance(agent, SlatePolicy):
            return agent
        return learner_of(agent)

    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """Implement :meth:`Runner.run`; a learner is fitted on the past of the same users."""
        if not isinstance(policy, SlatePolicy):
            policy = TopSlates(self._fitted(policy, n, seed), self.world.params)
        later = LaterSlates(self.world, policy, self.past)
        size = self.world.params.slate_size
        counted = range(self.past * size, self.world.params.n_periods * size)  # shown items of the horizon's periods
        return self.sum_rewards(functools.partial(_shown_uplift, self.world, seed), counted, later, n, seed, executor)

    def _fitted(self, learner: Learner, n: int, seed: int) -> Policy:
        """Fit a learner on the past of n users of a seed: on exposures if it can, else on the log."""
        if isinstance(unwrapped(learner), ReadyLearner):
            return fitted(learner, Log({}), n_items=self.world.n_items, seed=0)
        log, exposures = self._past_of(n, seed)
        exposure_learner = able(learner, "fit_exposures")
        if exposure_learner is None:
            return fitted(learner, log, n_items=self.world.n_items, seed=self.fit_seed)
        return as_policy(exposure_learner.fit_exposures(exposures, seed=self.fit_seed))


def _shown_uplift(world: ExposureWorld, seed: int, columns: Columns, shown: Flags, users: Ints, place: Ints) -> Floats:
    """Return the true uplift of each shown item in a shard's log.

    Args:
        world: the world.
        seed: seed of the users.
        columns: columns of the log.
        shown: flags of the rows of shown items.
        users: ids of the shard's users.
        place: index in ``users`` of each shown item's user.
    """
    return world.outcomes_of(seed, users).uplift[place, columns["action"][shown]]
