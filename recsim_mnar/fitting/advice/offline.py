"""Whether leave-one-out orders agents, and mixtures of them, as the log does where the log decides."""

from __future__ import annotations

import itertools
from concurrent.futures import Executor

import numpy as np

from recsim_mnar.estimators.intervals.limits import poisson_reach, small_sample_factor
from recsim_mnar.fitting.advice.coverage import Floats, folds_of
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


def hit_rates(
    log: Log, learners: dict[str, Learner], n_items: int, seed: int, executor: Executor | None
) -> dict[str, float]:
    """By agent the share of held-out views that it ranks first, fitted on the same folds as for the log's estimates.

    Raises:
        UserError: no user has two views, or an agent cannot rank.
    """
    hits, users = dict.fromkeys(learners, 0.0), 0
    for mine, others in folds_of(log, seed):
        part, train = log.select(mine), log.select(others)
        found = fold_ranks(part, learners, n_items=n_items, folds=HELD, seed=seed, train=train, executor=executor)
        users += next(iter(found.ranks.values())).shape[1]
        for name, ranks in found.ranks.items():
            hits[name] += float(np.sum(np.mean(ranks == 1, axis=0)))
    return {name: total / users for name, total in hits.items()}


def agreement(compared: Compared, scores: dict[str, float], n_items: int) -> tuple[int, int, int]:
    """How many differences the log decides, and how many of them scores order alike, and the other way round.

    A policy that leaves each decision to one of two others earns, and hits, their weighted mean: it needs no replay.
    Agents are held against each other, and every mixture of an agent with another one, or with uniform choice where the
    log shows every item, against the agents. The limits hold for all of them together.

    Args:
        compared: the agents on the log.
        scores: by agent, linear in mixtures, as hit rates are.
        n_items: of the log's world.
    """
    shown = compared.shown
    least = shown.logger.least
    targets = [*shown.targets.values(), *([] if least is None else [np.full(shown.user.size, 1.0 / n_items)])]
    forms = _forms(len(scores), len(targets))
    level = 1.0 - (1.0 - compared.level) / len(forms)
    weights = np.array(targets) / shown.propensity
    earned = weights * (shown.reward - compared.least)
    means, starts, rows = earned.mean(axis=1), user_starts(shown.user), shown.user.size
    apart = np.add.reduceat(earned, starts, axis=1) - np.outer(means, np.diff(np.r_[starts, rows]))
    square = apart @ apart.T / rows**2 * small_sample_factor(starts.size, level)
    heaviest = np.maximum(weights.max(axis=1), 0.0 if least is None else 1.0 / least)
    gaps = np.array([1.0 - compared.covered(name, level)[1] for name in scores] + [0.0] * (least is not None))
    variance, step = np.einsum("mi,ij,mj->m", forms, square, forms), np.abs(forms) @ heaviest / rows
    reach = np.array([poisson_reach(v, compared.range * s, level) for v, s in zip(variance, step, strict=True)])
    low = forms @ means - reach + compared.range * np.minimum(forms, 0.0) @ gaps
    high = forms @ means + reach + compared.range * np.maximum(forms, 0.0) @ gaps
    sign = np.where(low > 0.0, 1, np.where(high < 0.0, -1, 0))
    said = np.sign(np.round(forms @ [*scores.values(), *[1.0 / n_items] * (least is not None)], 12))
    return tuple(int(np.count_nonzero(each)) for each in (sign, sign * said > 0, sign * said < 0))  # type: ignore[return-value]


def _forms(agents: int, base: int) -> Floats:
    """(m, base) differences of two policies, by their shares in those that they mix."""
    unit = np.eye(base)
    rows = [unit[a] - unit[b] for a, b in itertools.combinations(range(agents), 2)]
    for a, b, share in itertools.product(range(agents), range(base), SHARES):
        if b > a:
            mixed = (1.0 - share) * unit[a] + share * unit[b]
            rows += [mixed - unit[c] for c in range(agents) if c not in (a, b)]
    return np.array(rows)
