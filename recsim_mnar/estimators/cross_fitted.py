"""Cross-fitted models: of rewards (DM, DR), and of an unknown logging policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.facts import PRECISION, Facts
from recsim_mnar.estimators.from_columns import difference, estimate_value
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Estimate, Finding, Verdict
from recsim_mnar.log.columns import Clusters, Floats, column
from recsim_mnar.rng import Stream, uniforms

_BLOCK = 2**22  # entries of rows times actions held at once
_REWARD_FOLDS, _LOGGING_FOLDS = 3, 5
"""Folds of users: every K-th user is in one."""


@dataclass
class ActionMeans:
    """Mean reward of each action, drawn towards the mean of all, plus a ridge regression on the context.

    q(x, a) = m_a + (x - mean x) b with m_a = (sum of a's rewards + strength * mean) / (n_a + strength).

    Attributes:
        n_actions: actions are 0 .. n_actions - 1.
        strength: rows of the overall mean that an action's mean is mixed with.
        ridge: penalty on b, in units of rows.
        means: (n_actions,) m, once it is fitted.
        centre, slope: (d,) the mean context, and b.
    """

    n_actions: int
    strength: float = 20.0
    ridge: float = 1.0
    means: Floats = field(init=False)
    centre: Floats = field(init=False)
    slope: NDArray[np.floating] = field(init=False)

    def fit(self, context: Floats, action: NDArray[np.int64], reward: Floats) -> None:
        """Fit on (n, d) contexts, (n,) actions and (n,) rewards."""
        counts = np.bincount(action, minlength=self.n_actions)
        sums = np.bincount(action, reward, self.n_actions)
        self.means = (sums + self.strength * float(np.mean(reward))) / (counts + self.strength)
        self.centre = context.sum(axis=0) / reward.size
        centred = context - self.centre
        gram = centred.T @ centred + self.ridge * np.eye(context.shape[1])
        self.slope = np.linalg.solve(gram, centred.T @ (reward - self.means[action]))

    def all_actions(self, context: Floats) -> Floats:
        """(n, n_actions) predictions."""
        return self.means[None, :] + ((context - self.centre) @ self.slope)[:, None]


def cross_fitted_rewards(
    reward: Any,
    action: Any,
    target: Callable[[NDArray[np.int64]], Any] | Any,
    *,
    n_actions: int,
    context: Any = None,
    cluster: Any = None,
) -> tuple[Floats, Floats]:
    """``q_logged`` and ``q_target`` of a reward model that never saw the users it predicts for.

    Args:
        reward: (n,) rewards.
        action: (n,) logged actions, 0 .. n_actions - 1.
        target: the target policy: a function from (m,) row numbers to (m, n_actions) probabilities, called block by
            block so that no n x actions array is held; or such an (n, n_actions) array.
        n_actions: number of actions.
        context: (n, d) numbers, or None.
        cluster: (n,) users; a user's rows are in one fold. None where rows are independent.

    Returns:
        (n,) value of the logged action, (n,) mean under the target policy.

    Raises:
        UserError: shapes that do not fit, fewer users than folds.
    """
    r = column(reward, "reward")
    n = r.size
    actions = column(action, "action", rows=n).astype(np.int64)
    if n == 0 or actions.min() < 0 or actions.max() >= n_actions:
        raise UserError(f"column 'action' must hold whole numbers from 0 to {n_actions - 1}")
    if context is None:
        x = np.zeros((n, 0))
    else:
        x = np.asarray(context, dtype=np.float64).reshape(n, -1)
    fold_of = _folds(Clusters.of(cluster, n), n, _REWARD_FOLDS)[0] % _REWARD_FOLDS
    probabilities = target if callable(target) else lambda rows: np.asarray(target, dtype=np.float64)[rows]
    q_logged = np.empty(n)
    q_target = np.empty(n)
    size = max(_BLOCK // n_actions, 1)
    for fold in range(_REWARD_FOLDS):
        held = np.flatnonzero(fold_of == fold)
        training_rows = np.flatnonzero(fold_of != fold)
        fitted = ActionMeans(n_actions)
        fitted.fit(x[training_rows], actions[training_rows], r[training_rows])
        for start in range(0, held.size, size):
            rows = held[start : start + size]
            q = fitted.all_actions(x[rows])
            pi = np.asarray(probabilities(rows), dtype=np.float64)
            if pi.shape != q.shape:
                raise UserError(
                    f"the target policy must give {q.shape} probabilities for {rows.size} rows, got {pi.shape}"
                )
            q_logged[rows] = q[np.arange(rows.size), actions[rows]]
            q_target[rows] = np.sum(pi * q, axis=1)
    return q_logged, q_target


def _folds(clusters: Clusters | None, n: int, folds: int) -> tuple[NDArray[np.int64], int]:
    """Return the number of each row's user (the row's own without users), and how many there are.

    Raises:
        UserError: fewer than folds.
    """
    units, number = (np.arange(n), n) if clusters is None else clusters.dense()
    if number < folds:
        raise UserError(f"models are fitted on {folds} folds of users, and there are {number}: bring a longer log")
    return units, number


@dataclass(frozen=True)
class LoggingModel:
    """Estimated probability of each row's logged action, cross-fitted by user.

    It is the action's share among the rows of the same context label in the other folds, each action of the label
    counted ``prior`` times more.

    Attributes:
        action: (n,) codes from 0.
        context: (n,) codes from 0 of a discrete context.
        fold: (n,) fold of each row.
        n_actions: number of actions.
        prior: added to each count.
    """

    action: NDArray[np.int64]
    context: NDArray[np.int64]
    fold: NDArray[np.int64]
    n_actions: int
    prior: float = 1.0

    def propensities(self, weight: Floats) -> Floats:
        """(n,) propensities with every row counted ``weight`` times in the fit."""
        folds = int(self.fold.max()) + 1
        contexts = int(self.context.max()) + 1
        cell = self.context * self.n_actions + self.action
        cells = contexts * self.n_actions
        by_cell = np.bincount(self.fold * cells + cell, weight, folds * cells).reshape(folds, cells)
        by_context = by_cell.reshape(folds, contexts, self.n_actions).sum(axis=2)
        above = (by_cell.sum(axis=0) - by_cell)[self.fold, cell] + self.prior
        below = (by_context.sum(axis=0) - by_context)[self.fold, self.context] + self.prior * self.n_actions
        return above / below


def estimate_without_propensities(
    reward: Any,
    action: Any,
    target: Any,
    *,
    context: Any = None,
    cluster: Any = None,
    estimator: str = "ips",
    clip: float | None = None,
    level: float = 0.95,
    replicates: int = 200,
    seed: int = 0,
    from_today: bool = False,
    facts: Facts | None = None,
    precision: float = PRECISION,
) -> Estimate:
    """Estimate a target policy's value from a log without propensities.

    The logging policy is estimated by user folds; users are resampled through both steps (Poisson bootstrap), and the
    interval is the wider one of that and of the interval that takes the estimated propensities as true. The verdict is
    never "trust": what moved the logging policy and is not in ``context`` biases the value, which no interval shows.

    Args:
        reward: (n,) rewards.
        action: (n,) logged actions, labels of any kind.
        target: (n,) the target policy's probability of the logged action.
        context: (n,) labels of a discrete context on which the logging policy acted.
        cluster: (n,) the user of each row.
        estimator: "ips", "clipped_ips" or "snips".
        clip: of clipped_ips.
        level: nominal coverage.
        replicates: of the bootstrap.
        seed: of its draws.
        from_today: estimate its difference from the log's mean reward, which is what the logging policy earned.
        facts: as :func:`recsim_mnar.estimators.estimate_value`.
        precision: of a value, likewise.

    Raises:
        UserError: as :func:`recsim_mnar.estimators.estimate_value`.
    """
    if estimator not in ("ips", "clipped_ips", "snips"):
        raise UserError(f"without propensities the estimators are ips, clipped_ips and snips, not {estimator!r}")
    r = column(reward, "reward")
    n = r.size
    t = column(target, "target", rows=n)
    actions = Clusters.of(action, n, "action")
    if actions is None or n == 0:
        raise UserError("the logged actions are needed to estimate the logging policy. Give one per row")
    clusters = Clusters.of(cluster, n)
    units, users = _folds(clusters, n, _LOGGING_FOLDS)
    codes, n_actions = actions.dense()
    contexts = Clusters.of(context, n, "context")
    labels = np.zeros(n, np.int64) if contexts is None else contexts.dense()[0]
    fitted = LoggingModel(codes, labels, units % _LOGGING_FOLDS, n_actions)
    p = fitted.propensities(np.ones(n))
    arguments: dict[str, Any] = {
        "clip": clip,
        "cluster": clusters,
        "level": level,
        "facts": facts,
        "estimator": estimator,
    }
    base = (
        difference(r, p, t, p, **arguments) if from_today else estimate_value(r, p, t, precision=precision, **arguments)
    )
    values = np.empty(replicates)
    above = r - base.diagnostics.reward_min
    limit = np.inf if clip is None or estimator != "clipped_ips" else clip
    for i in range(replicates):
        count = _poisson(uniforms(seed, Stream.BOOTSTRAP, np.arange(users), 2**20 + i))[units]
        w = np.minimum(t / fitted.propensities(count), limit) * count
        below = np.sum(w) if estimator == "snips" else np.sum(count)
        values[i] = np.sum(w * above) / below if below > 0.0 else 0.0
        values[i] -= np.average(above, weights=count) if from_today and count.any() else 0.0
    half = (1.0 - level) / 2.0
    centre = base.value - float(np.median(values))  # the resampled fits are a little further from the truth: recentred
    low, high = np.quantile(values, [half, 1.0 - half]) + centre
    return replace(
        base,
        low=min(base.low, float(low)),
        high=max(base.high, float(high)),
        method=f"{base.method}, widened by a user bootstrap of the estimated propensities",
        diagnostics=replace(base.diagnostics, bootstrap_low=float(low), bootstrap_high=float(high)),
        verdict=_with_estimated(base.verdict, context is not None),
    )


def _with_estimated(verdict: Verdict, seen: bool) -> Verdict:
    """A verdict that mentions estimated propensities, also if the mean weight speaks against them.

    Without anything that the logging policy saw the estimated propensities are shares of the actions, and whatever
    it saw biases the value.
    """
    findings = [
        Finding(finding.code, finding.severity, finding.number, finding.message, do="estimated")
        if finding.code == "propensities"
        else finding
        for finding in verdict.findings
    ]
    if seen:
        case = {}
    else:
        case = {"says": "blind", "do": "blind"}
    return Verdict.of([*findings, Finding("propensities_estimated", CAUTION if seen else GRAVE, 1.0, **case)])


def _poisson(uniform: Floats) -> Floats:
    """Poisson(1) counts by inversion."""
    from scipy.special import pdtr

    return np.searchsorted(pdtr(np.arange(13), 1.0), uniform, side="right").astype(np.float64)
