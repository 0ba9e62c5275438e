"""Whether an offline protocol orders agents as the log does: leave-one-out against the differences that are decided."""

from __future__ import annotations

import itertools
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals.limits import poisson_reach, small_sample_factor
from recsim_mnar.fitting.advice.coverage import Floats, Shown, folds_of
from recsim_mnar.fitting.advice.deciding import Compared
from recsim_mnar.log.rows import user_starts
from recsim_mnar.log.table import Log
from recsim_mnar.policy.base import Learner
from recsim_mnar.protocols.leave_one_out.protocol import fold_ranks

FEWEST = 10
"""Decided pairs without which no agreement is claimed."""
SHARES = (0.25, 0.5, 0.75)
"""Of the other policy in mixed agents."""
HELD = 2
"""Views of each user that are held out, one at a time."""
UNIFORM = "uniform"


@dataclass(frozen=True)
class Agreement:
    """An offline protocol against the log.

    Attributes:
        protocol, metric: which.
        scores: by agent.
        pick: the agent that it ranks first; None where it cannot judge these agents.
        decided: pairs of agents, mixed ones among them, whose order the log decides.
        agree, reversed: how many of them it orders as the log does, and the other way round.
        why: why it cannot judge.
    """

    protocol: str
    metric: str
    scores: dict[str, float]
    pick: str | None
    decided: int = 0
    agree: int = 0
    reversed: int = 0
    why: str = ""


def leave_one_out_agreement(
    log: Log,
    learners: dict[str, Learner],
    compared: Compared,
    n_items: int,
    seed: int,
    executor: Executor | None = None,
) -> Agreement:
    """Hit rate at 1 of held-out views, agents fitted on the same folds, and whether its order is the log's.

    Args:
        log: with views.
        learners: the agents; those that are no learners are not judged.
        compared: the agents on the log.
        n_items: of the log's world.
        seed: of the draws.
        executor: to spread folds over.
    """
    nothing = Agreement("leave_one_out", "hr@1", {}, None)
    if set(learners) != set(compared.agents):
        return Agreement(**{**vars(nothing), "why": "it fits agents anew, and not all of these are fitted"})
    hits, users = dict.fromkeys(learners, 0.0), 0
    try:
        for mine, others in folds_of(log, seed):
            found = fold_ranks(
                log.select(mine), learners, n_items=n_items, folds=HELD, seed=seed, train=log.select(others),
                executor=executor,
            )  # fmt: skip
            users += next(iter(found.ranks.values())).shape[1]
            for name, ranks in found.ranks.items():
                hits[name] += float(np.sum(np.mean(ranks == 1, axis=0)))
    except UserError as error:
        return Agreement(**{**vars(nothing), "why": str(error)})
    scores = {name: total / users for name, total in hits.items()}
    return agreement(compared, scores, n_items)


def agreement(compared: Compared, scores: dict[str, float], n_items: int) -> Agreement:
    """Hold scores that are linear in mixed policies, as hit rates are, against the differences that the log decides.

    A policy that takes each decision from one of two agents earns their mean, and hits their mean: so its estimate
    needs no replay. Every mixture is held against every agent, and agents against each other; the limits hold for all
    of them together.
    """
    names, uniform = list(compared.agents), compared.shown.logger.least is not None
    base = [*names, *([UNIFORM] if uniform else [])]
    scored = np.array([scores.get(name, 1.0 / n_items) for name in base])
    forms = _forms(len(names), len(base))
    level = 1.0 - (1.0 - compared.level) / len(forms)
    low, high = _limits(compared, base, n_items, forms, level)
    sign = np.where(low > 0.0, 1.0, np.where(high < 0.0, -1.0, 0.0))
    said = np.sign(np.round(forms @ scored, 12))
    return Agreement(
        "leave_one_out",
        "hr@1",
        scores,
        max(scores, key=lambda name: scores[name]),
        int(np.count_nonzero(sign)),
        int(np.count_nonzero((sign != 0.0) & (said == sign))),
        int(np.count_nonzero((sign != 0.0) & (said == -sign))),
    )


def _forms(agents: int, base: int) -> Floats:
    """(m, base) differences of two policies, by their shares in the policies that they mix."""
    unit = np.eye(base)
    rows = [unit[a] - unit[b] for a, b in itertools.combinations(range(agents), 2)]
    for a in range(agents):
        for b in range(a + 1, base):
            for share in SHARES:
                mixed = (1.0 - share) * unit[a] + share * unit[b]
                rows += [mixed - unit[c] for c in range(agents) if c not in (a, b)]
                rows += [mixed - unit[b]] if b >= agents else []
    return np.array(rows)


def _limits(compared: Compared, base: list[str], n_items: int, forms: Floats, level: float) -> tuple[Floats, Floats]:
    """Limits (m,) of sums of policies' values, by user, with one more of the heaviest rows and what is not shown."""
    shown = compared.shown
    targets = [shown.targets.get(name, np.full(shown.reward.size, 1.0 / n_items)) for name in base]
    starts = user_starts(shown.user)
    rows, users = shown.reward.size, starts.size
    length = np.diff(np.r_[starts, rows])
    parts, heaviest = [], []
    for target in targets:
        weight = target / shown.propensity
        earned = weight * (shown.reward - compared.least)
        parts.append(np.add.reduceat(earned, starts) - length * float(np.mean(earned)))
        heaviest.append(max(float(np.max(weight)), 1.0 / shown.logger.least if shown.logger.least else 0.0))
    means = np.array([float(np.mean(t / shown.propensity * (shown.reward - compared.least))) for t in targets])
    square = np.array(parts) @ np.array(parts).T / rows**2 * small_sample_factor(users, level)
    gaps = np.array([compared.gap(name, level) if name != UNIFORM else 0.0 for name in base])
    values, step = forms @ means, np.abs(forms) @ np.array(heaviest) * compared.range / rows
    variance = np.einsum("mi,ij,mj->m", forms, square, forms)
    reach = np.array([poisson_reach(float(v), float(s), level) for v, s in zip(variance, step, strict=True)])
    return (
        values - reach + np.minimum(forms, 0.0) @ gaps,
        values + reach + np.maximum(forms, 0.0) @ gaps,
    )
