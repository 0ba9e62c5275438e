"""What a log shows of each agent: probabilities of the logged actions, mass that is never shown, states on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.stated import Stated
from recsim_mnar.estimators.off_policy.support import mean_weight_limits, support_of
from recsim_mnar.log.table import Log
from recsim_mnar.policy import registry
from recsim_mnar.policy.acting import TOLERANCE
from recsim_mnar.policy.adapting import as_learner, as_policy, fitted, role_of
from recsim_mnar.policy.base import Learner, Policy, observe_events
from recsim_mnar.policy.checks import checked_distribution, name_of
from recsim_mnar.policy.needs import check_needs
from recsim_mnar.replay import least_propensity, replay, replay_batches, replay_with_support
from recsim_mnar.rng import Stream, derive_seed, uniforms

Floats = NDArray[np.float64]

FOLDS = 4
"""Of users. An agent is fitted on the others: three quarters of them, for a fit each; the replays cost the same."""
STATES = 600
"""Users, at most, in one state of each of whom the agents' whole distributions are kept."""
REPLAYED, BOUNDED, WEIGHED, ABSENT = "replayed", "least propensity", "mean weight", "no propensities"
"""How coverage is known: the logging policy is replayed, explores by its name, is not known, or nothing is."""


@dataclass(frozen=True)
class Logger:
    """What is known of the policy that made a log.

    Attributes:
        policy: it gives the log's propensities; None where none is known that does.
        least: no action has a smaller propensity in any state; None where nobody says so.
        known: of the four words above.
    """

    policy: Policy | None
    least: float | None
    known: str


@dataclass(frozen=True)
class Shown:
    """The recommendations of a log, n rows in the order of (user, step), and what agents make of them.

    Attributes:
        user, reward, propensity: (n,).
        targets: by agent (n,) its probability of the logged action; it was fitted on other users.
        missing: by agent (n,) its mass on what the logging policy never shows; empty where that is not known.
        logger: what is known of the logging policy.
    """

    user: NDArray[np.int64]
    reward: Floats
    propensity: Floats
    targets: dict[str, Floats]
    missing: dict[str, Floats]
    logger: Logger

    def with_reward(self, reward: Floats) -> Shown:
        """The same rows with other rewards."""
        return replace(self, reward=reward)


@dataclass(frozen=True)
class States:
    """Decisions of some users, and each agent's distribution over the items there.

    Attributes:
        rows: (S,) of the log.
        taken: by agent (S, n_items).
    """

    rows: NDArray[np.int64]
    taken: dict[str, Floats]


def agents_of(given: Sequence[Any]) -> dict[str, Learner | Policy]:
    """Learners of names and of objects that fit, and policies of objects that act, by name.

    Raises:
        UserError: fewer than two, one twice, or what is neither.
    """
    found: dict[str, Learner | Policy] = {}
    for each in given:
        one = registry.learner(each) if isinstance(each, str) else each
        name = each if isinstance(each, str) else name_of(each)
        if name in found:
            raise UserError(f"agent {name!r} is named twice; name each once")
        found[name] = as_policy(one) if role_of(one) == "policy" else as_learner(one, name=name)
    if len(found) < 2:
        raise UserError(f"advise chooses among agents: name at least two, got {', '.join(found) or 'none'}")
    return found


def logger_of(log: Log, given: Any, n_items: int, seed: int, executor: Executor | None = None) -> Logger:
    """What may be believed of a logging policy: only what the log's propensities bear out.

    Args:
        log: with propensities.
        given: a name, a policy, or None where it is not known. A name is fitted on the log itself.
        n_items: of the log's world.
        seed: of the fit.
        executor: to spread the replay over.

    Raises:
        UserError: the log's propensities contradict what is given.
    """
    if given is None:
        return Logger(None, None, WEIGHED)
    learner = registry.learner(given) if isinstance(given, str) else given
    policy = fitted(learner, log, n_items=n_items, seed=seed) if role_of(learner) != "policy" else as_policy(learner)
    least, logged = least_propensity(policy), log["propensity"][log.is_bandit]
    if least is not None and float(np.min(logged)) < least * (1.0 - 1e-9):
        raise UserError(
            f"logging policy {policy.name!r} takes no action with less than {least:.4g}, and the log has a propensity "
            f"of {np.min(logged):.4g}: name the policy that made the log, or none"
        )
    try:
        same = np.abs(replay(log, policy, executor=executor)[log.is_bandit] - logged)
    except UserError:  # it cannot be replayed, or learns from all users
        same = np.ones(1)
    if np.all(same <= TOLERANCE):
        return Logger(policy, least, REPLAYED)
    return Logger(None, least, WEIGHED if least is None else BOUNDED)


def shown_of(
    log: Log,
    agents: dict[str, Learner | Policy],
    logger: Logger,
    n_items: int,
    seed: int,
    executor: Executor | None = None,
) -> tuple[Shown, States]:
    """Replay each agent on users that it was not fitted on.

    Args:
        log: validated, with recommendations.
        agents: by name; policies were fixed without this log.
        logger: see :func:`logger_of`.
        n_items: of the log's world.
        seed: of folds and fits.
        executor: to spread users over.

    Raises:
        UserError: an agent that cannot be fitted on the log or replayed.
    """
    bandit = log.is_bandit
    targets = {name: np.full(len(log), np.nan) for name in agents}
    missing = {name: np.full(len(log), np.nan) for name in agents} if logger.policy is not None else {}
    chosen = _one_decision_each(log, seed)
    taken = {name: np.zeros((len(chosen), n_items)) for name in agents}
    for name, agent in agents.items():
        for rows, policy in _policies(log, name, agent, n_items, seed):
            part = log.select(rows)
            if logger.policy is None:
                targets[name][rows] = replay(part, policy, executor=executor)
            else:
                targets[name][rows], missing[name][rows] = replay_with_support(
                    part, policy, logger.policy, executor=executor
                )
            here = np.flatnonzero(np.isin(chosen, rows))
            taken[name][here] = distributions(log, policy, chosen[here])
    shown = Shown(
        log["user"][bandit],
        log["reward"][bandit],
        log["propensity"][bandit],
        {name: values[bandit] for name, values in targets.items()},
        {name: values[bandit] for name, values in missing.items()},
        logger,
    )
    return shown, States(chosen, taken)


def _policies(
    log: Log, name: str, agent: Learner | Policy, n_items: int, seed: int
) -> Iterator[tuple[NDArray[np.int64], Policy]]:
    """Rows of whole users, and the policy that is replayed on them."""
    if isinstance(agent, Policy):
        yield np.arange(len(log)), agent
        return
    check_needs(name, agent, {"outcomes", "clicks"} if log.is_bandit.any() else set(), "the log")
    for mine, others in folds_of(log, seed):
        yield mine, fitted(agent, log.select(others), n_items=n_items, seed=derive_seed(seed, "fit"))


def folds_of(log: Log, seed: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows of the users of each fold, and those of all others."""
    draw = uniforms(derive_seed(seed, "advise/folds"), Stream.PROTOCOL, log["user"], 0)
    fold = (draw * FOLDS).astype(np.int64)
    for each in range(FOLDS):
        mine = fold == each
        if mine.any() and not mine.all():
            yield np.flatnonzero(mine), np.flatnonzero(~mine)


def _one_decision_each(log: Log, seed: int) -> NDArray[np.int64]:
    """Rows, ascending: a decision of each of at most ``STATES`` users, all decisions of these as likely."""
    rows = np.flatnonzero(log.is_bandit)
    users, draw = log["user"][rows], derive_seed(seed, "advise/states")
    order = np.lexsort((uniforms(draw, Stream.PROTOCOL, users, log["step"][rows]), users))
    first = order[np.flatnonzero(np.r_[True, users[order][1:] != users[order][:-1]])]
    among = uniforms(draw, Stream.PROTOCOL, users[first], 1 << 31)
    # Users weigh by their decisions, as in a mean over decisions: the few drawn are the first of an exponential race.
    count = np.unique(users, return_counts=True)[1]
    race = -np.log1p(-among) / count
    return np.sort(rows[first[np.argsort(race, kind="stable")[:STATES]]])


def distributions(log: Log, policy: Policy, chosen: NDArray[np.int64]) -> Floats:
    """(len(chosen), n_items) what a policy would take at these decisions, one for each of their users."""
    rows = np.flatnonzero(np.isin(log["user"], log["user"][chosen]))
    part = log.select(rows)
    user, item, reward, propensity = (part[name] for name in ("user", "item", "reward", "propensity"))
    acting = policy.fresh()
    acting.reset(part.users())
    out = np.zeros((len(chosen), policy.n_items))
    for views, decisions in replay_batches(part, 0, len(part), one_by_one=True):
        if len(views):
            observe_events(acting, user[views], item[views], reward[views])
        place = np.searchsorted(chosen, rows[decisions])
        asked = np.flatnonzero((place < len(chosen)) & (chosen[np.minimum(place, len(chosen) - 1)] == rows[decisions]))
        if len(asked):
            users = user[decisions[asked]]
            found = checked_distribution(acting, acting.probabilities(users), policy.n_items, n=len(users))
            out[place[asked]] = found
        acting.learn(user[decisions], part["action"][decisions], reward[decisions], propensity[decisions])
    return out


@dataclass(frozen=True)
class Covered:
    """How much of an agent's recommendations a log shows, in the states that it met.

    Attributes:
        share: the estimate.
        low, high: its interval.
        hidden: upper limit of the mass that estimates do not know, beyond the column of missing mass.
        known: how, of the words above.
    """

    share: float
    low: float
    high: float
    hidden: float
    known: str


def covered(shown: Shown, agent: str, moments: Moments, stated: Stated, level: float) -> Covered:
    """The share of an agent's mass that the log shows, and what may be hidden beyond it."""
    known = shown.logger.known
    if known == BOUNDED or (known == REPLAYED and stated.propensity_min is not None):
        return Covered(1.0, 1.0, 1.0, 0.0, known)
    found = support_of(moments, stated, level)
    if known == REPLAYED:
        told = float(found.known or 0.0)
        return Covered(1.0 - told, 1.0 - found.entering, min(1.0 - told + (found.entering - told), 1.0), 0.0, known)
    low, high = (min(max(limit, 0.0), 1.0) for limit in mean_weight_limits(moments, stated, level))
    return Covered(min(found.mean, 1.0), min(low, 1.0 - found.hidden), high, found.hidden, known)
