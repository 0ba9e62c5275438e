"""Coverage of each agent by a log: probabilities of the logged actions, missing mass, and visited states."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import distributions
from recsim_mnar.kernels.checks import list_of
from recsim_mnar.log.columns import Clusters
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.plan.experiment import UserTotals
from recsim_mnar.policies import registry
from recsim_mnar.policies.answers import name_of
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import as_learner, as_policy, check_needs, fitted, role_of
from recsim_mnar.replays.probabilities import gives_propensities, least_propensity, replay, replay_with_support
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulation.run_folder import logging_policy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Agents = dict[str, Learner | Policy]

FOLDS = 4
"""Of users. An agent is fitted on the others, three quarters; each further fold is a fit more and no replay."""
STATES = 600
"""Users, at most, of whom the agents' whole distributions are kept in one state each."""
REPLAYED, BOUNDED, WEIGHED, ABSENT = "replayed", "least propensity", "mean weight", "no propensities"
HOW = {
    REPLAYED: "by the logging policy, replayed",
    BOUNDED: "for the logging policy explores, by its name",
    WEIGHED: "by the mean weight, for the logging policy is not known",
    ABSENT: "counting the items that it shows at all, for it has no propensities",
}
"""How coverage is known, in words."""


class Logger(NamedTuple):
    """Known facts about the policy that made a log.

    ``policy`` gives the log's propensities, None where none is known that does; no action has a smaller propensity than
    ``least`` in any state, None if not stated; ``known`` is one of the words of :data:`HOW`.
    """

    policy: Policy | None
    least: float | None
    known: str


@dataclass(frozen=True)
class Shown:
    """The n recommendations of a log in the order of (user, step), and the agents' probabilities of them.

    Attributes:
        user, action, reward, propensity: (n,).
        targets: by agent (n,) its probability of the logged action; it was fitted on other users.
        missing: by agent (n,) its mass on what the logging policy never shows; empty where that is not known.
        logger: what is known of the logging policy.
        states: (S,) rows of the log, one decision of each of some users.
        taken: by agent (S, n_items) its distribution there.
    """

    user: Ints
    action: Ints
    reward: Floats
    propensity: Floats
    targets: dict[str, Floats]
    missing: dict[str, Floats]
    logger: Logger
    states: Ints
    taken: dict[str, Floats]

    @property
    def n_items(self) -> int:
        """Of the log's world."""
        return next(iter(self.taken.values())).shape[1]

    @functools.cached_property
    def totals(self) -> UserTotals:
        """Of the users' recommendations."""
        return UserTotals.of(self.reward, Clusters.of(self.user, self.user.size))

    def part(self, rows: NDArray[np.bool_]) -> Shown:
        """Some of the recommendations."""
        columns: dict[str, Any] = {n: getattr(self, n)[rows] for n in ("user", "action", "reward", "propensity")}
        columns |= {n: {a: x[rows] for a, x in getattr(self, n).items()} for n in ("targets", "missing")}
        return replace(self, **columns)


def agents_of(given: Sequence[Any]) -> Agents:
    """Learners of names and of what fits, policies of what acts, by name: at least two, each once."""
    found: Agents = {}
    for each in list_of(given, "agents"):
        one, name = (registry.learner(each), each) if isinstance(each, str) else (each, name_of(each))
        if name in found:
            raise UserError(f"agent {name!r} is named twice; name each once")
        found[name] = as_policy(one) if role_of(one) == "policy" else as_learner(one, name=name)
    if len(found) < 2:
        raise UserError(f"advise chooses among agents: name at least two, got {', '.join(found) or 'none'}")
    return found


def logger_of(log: Log, given: Any, n_items: int, seed: int, executor: Executor | None) -> Logger:
    """Credible description of a logging policy: only as far as the log's propensities confirm it.

    ``given`` is a name, which is fitted on the log itself, or a policy; None for what the log's provenance says.

    Raises:
        UserError: the log breaks a rule of its schema, or its propensities contradict what is given.
    """
    logged = log["propensity"][log.is_bandit]
    read = log.provenance.get("columns", ("propensity",))  # a file without them is read as if its policy were uniform
    if np.isnan(logged).any() or "propensity" not in read:
        return Logger(None, None, ABSENT)
    log.validate(n_items)
    one = registry.learner(given) if isinstance(given, str) else given
    one = logging_policy(log.provenance, executor=executor) if one is None else one
    if one is None:
        return Logger(None, None, WEIGHED)
    policy = as_policy(one) if role_of(one) == "policy" else fitted(one, log, n_items=n_items, seed=seed)
    least = least_propensity(policy)
    if least is not None and float(np.min(logged)) < least * (1.0 - 1e-9):
        raise UserError(
            f"logging policy {policy.name!r} takes no action with less than {least:.4g}, and the log has a propensity "
            f"of {np.min(logged):.4g}: name the policy that made the log, or none"
        )
    if gives_propensities(log, policy, executor=executor):
        return Logger(policy, least, REPLAYED)
    return Logger(None, least, WEIGHED if least is None else BOUNDED)


def shown_of(log: Log, agents: Agents, logger: Logger, n_items: int, seed: int, executor: Executor | None) -> Shown:
    """Replay each agent on users that it was not fitted on; policies were fixed without this log."""
    chosen, shown = _one_decision_each(log, seed), log.is_bandit
    targets, missing = ({name: np.full(len(log), np.nan) for name in agents} for _ in range(2))
    taken = {name: np.zeros((len(chosen), n_items)) for name in agents}
    for name, agent in agents.items():
        for mine, policy in _on_others(log, name, agent, logger, n_items, seed):
            part, here = log.select(mine), np.flatnonzero(np.isin(chosen, mine))
            if logger.policy is None:
                targets[name][mine] = replay(part, policy, executor=executor)
            else:
                found = replay_with_support(part, policy, logger.policy, executor=executor)
                targets[name][mine], missing[name][mine] = found
            taken[name][here] = distributions(log, policy, chosen[here])
    known = {} if logger.policy is None else missing
    targets, missing = ({name: x[shown] for name, x in table.items()} for table in (targets, known))
    user, action, reward, propensity = (log[name][shown] for name in ("user", "action", "reward", "propensity"))
    return Shown(user, action, reward, propensity, targets, missing, logger, chosen, taken)


def _on_others(
    log: Log, name: str, agent: Learner | Policy, logger: Logger, n_items: int, seed: int
) -> Iterator[tuple[Ints, Policy]]:
    """Rows of whole users, and the policy that is replayed there."""
    if isinstance(agent, Policy):
        yield np.arange(len(log)), agent
        return
    check_needs(name, agent, {"clicks"} if logger.known == ABSENT else {"outcomes", "clicks"}, "the log")
    for mine, others in folds_of(log, seed):
        yield mine, fitted(agent, log.select(others), n_items=n_items, seed=derive_seed(seed, "fit"))


def folds_of(log: Log, seed: int) -> Iterator[tuple[Ints, Ints]]:
    """Rows of the users of each fold, and those of all others."""
    draw = uniforms(derive_seed(seed, "advise/folds"), Stream.PROTOCOL, log["user"], 0)
    for each in range(FOLDS):
        mine = (draw * FOLDS).astype(np.int64) == each
        if mine.any() and not mine.all():
            yield np.flatnonzero(mine), np.flatnonzero(~mine)


def _one_decision_each(log: Log, seed: int) -> Ints:
    """Rows, ascending: a decision of each of at most ``STATES`` users, who are drawn by how many they have."""
    rows = np.flatnonzero(log.is_bandit)
    users, draw = log["user"][rows], derive_seed(seed, "advise/states")
    order = np.lexsort((uniforms(draw, Stream.PROTOCOL, users, log["step"][rows]), users))
    starts = user_starts(users)
    first = order[starts]
    among = -np.log1p(-uniforms(draw, Stream.PROTOCOL, users[first], 1 << 31))
    race = among / np.diff(np.r_[starts, len(rows)])  # the first of an exponential race
    return np.sort(rows[first[np.argsort(race, kind="stable")[:STATES]]])
