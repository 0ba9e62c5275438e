"""Runner of tasks in worlds of exposures: slates in a user's later periods, and the purchases that they cause."""

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
from recsim_mnar.tasks.running import Earned, Items, learner_of


class TopSlates(SlatePolicy):
    """The ``slate_size`` items that a policy ranks highest; items that tie for the last places are drawn evenly."""

    def probabilities(self, seed: int, users: Ints) -> Floats:
        """Implement :meth:`SlatePolicy.probabilities`: 1 above the last place, 0 below it."""
        return top_shares(self._scores(users), self.params.slate_size)


def top_shares(scores: Floats, size: int) -> Floats:
    """Return (n, I) the probability of each item to be in the top ``size``, ties drawn evenly."""
    last = np.partition(scores, -size, axis=1)[:, -size, None]
    above = scores > last
    tied = scores == last
    return np.where(tied, (size - above.sum(axis=1, keepdims=True)) / tied.sum(axis=1, keepdims=True), above)


class UpliftOracle(DeployedPolicy):
    """Shows each user the items of largest true uplift, which no slates surpass."""

    name = ORACLE

    def probabilities(self, seed: int, users: Ints) -> Floats:
        """Implement :meth:`recsim_mnar.purchases.policies.SlatePolicy.probabilities`."""
        return top_shares(self.world.outcomes_of(seed, users).uplift, self.params.slate_size)


class LaterSlates(SlatePolicy):
    """Recommends as the world's own recommender in the first periods, then as another that observed them.

    Args:
        world: of slates.
        own: who recommends later.
        past: periods before.
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


class Slates(Items):
    """Users who are shown slates; a value is the purchases that slates cause, by true uplift.

    The last periods of the world's lives are those of the horizon. In those before users live under the world's own
    recommender: it is their past, from which learners know them, and which every policy observes.
    """

    world: ExposureWorld  # type: ignore[assignment]  # users of both live apart in lanes
    step = "period"
    earns = "purchases caused"
    references: ClassVar = {"oracle": UpliftOracle, "deployed": DeployedPolicy}

    @property
    def learns_from(self) -> str:
        """Implement :class:`Runner`."""
        return f"the users' own {self.past} periods before, under {self.task.logging}"

    @property
    def past(self) -> int:
        """Periods before those of the horizon."""
        return int(self.world.params.n_periods - self.task.horizon)

    def log(self) -> Log:
        """Implement :meth:`Runner.log`: the past of the public users."""
        return self._past_of(self.task.users, self.task.seed)[0]

    def _past_of(self, n: int, seed: int) -> tuple[Log, Exposures]:
        """Simulate the past of n users; return its log and exposures."""
        before = self.world.lasting(self.past)
        deployed = DeployedPolicy(before)
        log = simulate(before, deployed, n, seed)
        return log, exposures_of(before, deployed, log, n, seed)

    def random(self) -> Any:
        """Implement :meth:`Runner.random`: each slate as likely."""
        return TopSlates(super().random(), self.world.params)

    def taken(self, agent: Any) -> Any:
        """Implement :meth:`Runner.taken`: slates as a policy of slates draws them, or what ranks items."""
        if isinstance(agent, SlatePolicy):
            return agent
        return learner_of(agent)

    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """Implement :meth:`Runner.run`; a learner is fitted on the past of these very users."""
        if not isinstance(policy, SlatePolicy):
            policy = TopSlates(self._fitted(policy, n, seed), self.world.params)
        later = LaterSlates(self.world, policy, self.past)
        size = self.world.params.slate_size
        rows = range(self.past * size, self.world.params.n_periods * size)
        return self.summed(functools.partial(_uplift, self.world, seed), rows, later, n, seed, executor)

    def _fitted(self, learner: Learner, n: int, seed: int) -> Policy:
        """Return the policy of a learner fitted on the past of n users of a seed."""
        if isinstance(unwrapped(learner), ReadyLearner):
            return fitted(learner, Log({}), n_items=self.world.n_items, seed=0)
        log, exposures = self._past_of(n, seed)
        exposure_learner = able(learner, "fit_exposures")
        if exposure_learner is None:
            return fitted(learner, log, n_items=self.world.n_items, seed=self.fit_seed)
        return as_policy(exposure_learner.fit_exposures(exposures, seed=self.fit_seed))


def _uplift(world: ExposureWorld, seed: int, columns: Columns, shown: Flags, users: Ints, place: Ints) -> Floats:
    """Return the true uplift of each item shown."""
    return world.outcomes_of(seed, users).uplift[place, columns["action"][shown]]
