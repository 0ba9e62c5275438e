"""Cross-fitted models: of rewards (DM, DR), and of an unknown logging policy."""

from __future__ import annotations

import math
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

_BLOCK = 2**22
"""Largest size of an array of rows times actions."""
_REWARD_FOLDS, _LOGGING_FOLDS = 3, 5
"""Numbers of folds of users for the reward model and for the logging policy; user i is in fold i modulo K."""


@dataclass
class ActionMeans:
    """Reward model: mean reward of each action, shrunk to the overall mean, plus a ridge regression on the context.

    q(x, a) = m_a + (x - mean x) b with m_a = (sum of a's rewards + strength * overall mean) / (n_a + strength).

    Attributes:
        n_actions: number of actions, which are 0 .. n_actions - 1.
        strength: number of rows that the overall mean counts for in an action's mean.
        ridge: penalty on b, in units of rows.
        means: (n_actions,) m, set by :meth:`fit`.
        centre: (d,) mean context, set by :meth:`fit`.
        slope: (d,) coefficients b, set by :meth:`fit`.
    """

    n_actions: int
    strength: float = 20.0
    ridge: float = 1.0
    means: Floats = field(init=False)
    centre: Floats = field(init=False)
    slope: NDArray[np.floating] = field(init=False)

    def fit(self, context: Floats, action: NDArray[np.int64], reward: Floats) -> None:
        """Fit the model in place: means of actions first, then a ridge regression of the residuals on the contexts.

        The mean of each action is shrunk to the overall mean. The residuals are rewards minus these means.

        Args:
            context: (n, d) contexts.
            action: (n,) actions.
            reward: (n,) rewards.
        """
        counts = np.bincount(action, minlength=self.n_actions)
        sums = np.bincount(action, reward, self.n_actions)
        self.means = (sums + self.strength * float(np.mean(reward))) / (counts + self.strength)
        self.centre = context.sum(axis=0) / reward.size
        centred = context - self.centre
        gram = centred.T @ centred + self.ridge * np.eye(context.shape[1])
        self.slope = np.linalg.solve(gram, centred.T @ (reward - self.means[action]))

    def all_actions(self, context: Floats) -> Floats:
        """Predict the reward of every action in each context, (n, n_actions)."""
        return self.means + ((context - self.centre) @ self.slope)[:, None]


def cross_fitted_rewards(
    reward: Any,
    action: Any,
    target: Callable[[NDArray[np.int64]], Any] | Any,
    *,
    n_actions: int,
    context: Any = None,
    cluster: Any = None,
) -> tuple[Floats, Floats]:
    """Fit a reward model by cross-fitting: predict each fold of users by a model of the users in the other folds.

    Args:
        reward: (n,) rewards.
        action: (n,) logged actions, 0 .. n_actions - 1.
        target: target policy: (n, n_actions) probabilities, or a function from (m,) row numbers to (m, n_actions)
            probabilities, which is called block by block so that no array of all rows and actions is in memory.
        n_actions: number of actions.
        context: (n, d) numbers; None without a context.
        cluster: (n,) user ids; all rows of a user are in the same fold. None if rows are independent.

    Returns:
        (n,) ``q_logged``, predictions for the logged actions.
        (n,) ``q_target``, means of the predictions under the target policy.

    Raises:
        UserError: arrays of other shapes, or fewer users than folds.
    """
    rewards = column(reward, "reward")
    n = rewards.size
    actions = column(action, "action", rows=n).astype(np.int64)
    if n == 0 or actions.min() < 0 or actions.max() >= n_actions:
        raise UserError(f"column 'action' must hold whole numbers from 0 to {n_actions - 1}")
    features = np.zeros((n, 0))
    if context is not None:
        features = np.asarray(context, dtype=np.float64).reshape(n, -1)
    fold_of_row = _user_numbers(Clusters.of(cluster, n), n, _REWARD_FOLDS) % _REWARD_FOLDS
    probabilities = target  # as a function from row numbers to probabilities
    if not callable(target):
        probabilities = np.asarray(target, dtype=np.float64).__getitem__
    q_logged = np.empty(n)
    q_target = np.empty(n)
    block_size = max(_BLOCK // n_actions, 1)
    for fold in range(_REWARD_FOLDS):
        test_rows = np.flatnonzero(fold_of_row == fold)
        training = fold_of_row != fold
        model = ActionMeans(n_actions)
        model.fit(features[training], actions[training], rewards[training])
        for start in range(0, test_rows.size, block_size):
            rows = test_rows[start : start + block_size]
            q = model.all_actions(features[rows])
            pi = np.asarray(probabilities(rows), dtype=np.float64)
            if pi.shape != q.shape:
                raise UserError(
                    f"the target policy must give {q.shape} probabilities for {rows.size} rows, got {pi.shape}"
                )
            q_logged[rows] = q[np.arange(rows.size), actions[rows]]
            q_target[rows] = np.sum(pi * q, axis=1)
    return q_logged, q_target


def _user_numbers(clusters: Clusters | None, n: int, folds: int) -> NDArray[np.int64]:
    """Return (n,) the number of each row's user, or of the row itself if users are not known.

    Args:
        clusters: user of each row, or None.
        n: number of rows.
        folds: number of folds, of which each needs a user.

    Raises:
        UserError: fewer users than folds.
    """
    numbers = np.arange(n)
    n_users = n
    if clusters is not None:
        numbers, n_users = clusters.dense()
    if n_users < folds:
        raise UserError(f"models are fitted on {folds} folds of users, and there are {n_users}: bring a longer log")
    return numbers


@dataclass(frozen=True)
class LoggingModel:
    """Model of an unknown logging policy, cross-fitted by user.

    The propensity of a row is its action's share among the rows of the other folds with the same context, with
    ``prior`` added to the count of each action.

    Attributes:
        action: (n,) codes of the logged actions, from 0.
        context: (n,) codes of the values of a discrete context, from 0.
        fold: (n,) number of the fold of each row.
        n_actions: number of actions.
        prior: number that is added to each action's count.
    """

    action: NDArray[np.int64]
    context: NDArray[np.int64]
    fold: NDArray[np.int64]
    n_actions: int
    prior: float = 1.0

    def propensities(self, weight: Floats) -> Floats:
        """Fit the model and return (n,) propensities of the logged actions.

        Args:
            weight: (n,) number of times that each row counts in the fit.
        """
        # Counts by fold, context and action; those of the other folds are the total minus those of the row's fold.
        shape = (int(self.fold.max()) + 1, int(self.context.max()) + 1, self.n_actions)
        cell = np.ravel_multi_index((self.fold, self.context, self.action), shape)
        counts = np.bincount(cell, weight, math.prod(shape)).reshape(shape)
        context_counts = counts.sum(axis=2)
        other_counts = (counts.sum(axis=0) - counts)[self.fold, self.context, self.action]
        other_context_counts = (context_counts.sum(axis=0) - context_counts)[self.fold, self.context]
        return (other_counts + self.prior) / (other_context_counts + self.prior * self.n_actions)


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

    The logging policy is estimated by cross-fitting on folds of users. The interval is the union of one that takes the
    estimated propensities as true, and of one from a Poisson bootstrap of users, which estimates them again in each
    resample. The verdict is never "trust": if the logging policy used anything besides ``context``, the value is
    biased, and no interval shows that.

    Args:
        reward: (n,) rewards.
        action: (n,) labels of the logged actions.
        target: (n,) the target policy's probability of the logged action.
        context: (n,) labels of a discrete context that the logging policy used; None without one.
        cluster: (n,) user ids; None if rows are independent.
        estimator: name of the estimator, "ips", "clipped_ips" or "snips".
        clip: largest weight of clipped_ips; None for no clipping.
        level: nominal coverage.
        replicates: number of bootstrap resamples.
        seed: seed of the resamples.
        from_today: whether to estimate the difference from the log's mean reward, which is the logging policy's value.
        facts: facts about the log that its rows do not show.
        precision: largest ratio of half the interval to the value with which the value is trusted.

    Raises:
        UserError: invalid input, with the column and row; or another estimator.
    """
    if estimator not in ("ips", "clipped_ips", "snips"):
        raise UserError(f"without propensities the estimators are ips, clipped_ips and snips, not {estimator!r}")
    r = column(reward, "reward")
    t = column(target, "target", rows=r.size)
    clusters = Clusters.of(cluster, r.size)
    model = _logging_model(action, context, clusters, r.size)
    p = model.propensities(np.ones(r.size))
    common: dict[str, Any] = {"clip": clip, "cluster": clusters, "level": level, "facts": facts}
    if from_today:  # the logging policy is the baseline: its probabilities of the logged actions are the propensities
        estimate = difference(r, p, target=t, baseline=p, estimator=estimator, **common)
    else:
        estimate = estimate_value(r, p, t, estimator=estimator, precision=precision, **common)
    users = _user_numbers(clusters, r.size, _LOGGING_FOLDS)
    values = _resampled_values(estimate, model, r, t, users, from_today=from_today, seed=seed, replicates=replicates)
    return _widened(estimate, values, has_context=context is not None)


def _logging_model(action: Any, context: Any, clusters: Clusters | None, n: int) -> LoggingModel:
    """Make the model of the logging policy from columns of the log.

    Args:
        action: (n,) labels of the logged actions.
        context: (n,) labels of a discrete context; None to estimate the same propensities for all rows.
        clusters: user of each row, or None.
        n: number of rows.

    Raises:
        UserError: no actions, no rows, or fewer users than folds.
    """
    actions = Clusters.of(action, n, "action")
    if actions is None or n == 0:
        raise UserError("the logged actions are needed to estimate the logging policy. Give one per row")
    contexts = Clusters.of(context, n, "context")
    labels = np.zeros(n, np.int64)
    if contexts is not None:
        labels = contexts.dense()[0]
    fold = _user_numbers(clusters, n, _LOGGING_FOLDS) % _LOGGING_FOLDS
    codes, n_actions = actions.dense()
    return LoggingModel(codes, labels, fold, n_actions)


def _resampled_values(
    estimate: Estimate,
    model: LoggingModel,
    reward: Floats,
    target: Floats,
    user: NDArray[np.int64],
    *,
    from_today: bool,
    replicates: int,
    seed: int,
) -> Floats:
    """Repeat an estimate, and that of its propensities, in Poisson resamples of the users.

    Args:
        estimate: estimate from the whole log.
        model: model of the logging policy.
        reward: (n,) rewards.
        target: (n,) the target policy's probabilities of the logged actions.
        user: (n,) number of each row's user.
        from_today: whether the difference from the log's mean reward is estimated.
        replicates: number of resamples.
        seed: seed of the resamples.

    Returns:
        (replicates,) values above the least reward; 0 for a resample without weight.
    """
    from scipy.special import pdtr

    # P(Poisson(1) <= k) for k = 0 .. 12: counts are drawn by inversion. Larger ones have a probability below 1e-10.
    poisson = pdtr(np.arange(13), 1.0)
    users = np.arange(int(user.max()) + 1)
    gain = reward - estimate.diagnostics.reward_min
    limit = estimate.diagnostics.clip or np.inf
    values = np.empty(replicates)
    for i in range(replicates):
        # From 2**20 on, so that no address is one of the other bootstraps of users.
        draws = uniforms(seed, Stream.BOOTSTRAP, users, 2**20 + i)
        count = np.searchsorted(poisson, draws, side="right").astype(np.float64)[user]
        weight = np.minimum(target / model.propensities(count), limit) * count
        # snips divides by the sum of weights, ips by the number of rows.
        divisor = weight if estimate.estimator == "snips" else count
        total = np.sum(divisor)
        values[i] = np.sum(weight * gain) / total if total > 0.0 else 0.0
        if from_today and count.any():  # minus the resample's mean reward
            values[i] -= np.average(gain, weights=count)
    return values


def _widened(estimate: Estimate, values: Floats, *, has_context: bool) -> Estimate:
    """Widen an estimate's interval by that of its resampled values, and add findings on estimated propensities.

    Args:
        estimate: estimate from the whole log.
        values: (replicates,) values in resamples of the users.
        has_context: whether the logging policy was estimated with a context.
    """
    # Propensities fitted in resamples are a little more biased than those of the log, so the interval of the values is
    # moved to have the estimate as its median.
    half = (1.0 - estimate.level) / 2.0
    low, high = np.quantile(values, [half, 1.0 - half]) + (estimate.value - float(np.median(values)))
    return replace(
        estimate,
        low=min(estimate.low, float(low)),
        high=max(estimate.high, float(high)),
        method=f"{estimate.method}, widened by a user bootstrap of the estimated propensities",
        diagnostics=replace(estimate.diagnostics, bootstrap_low=float(low), bootstrap_high=float(high)),
        verdict=_with_estimated(estimate.verdict, has_context=has_context),
    )


def _with_estimated(verdict: Verdict, *, has_context: bool) -> Verdict:
    """Return a verdict with the finding that propensities are estimated.

    Without a context the estimated propensities are shares of the actions, and any information that the logging policy
    used biases the value, so that finding is grave. If the mean weight is proved not to be 1, the texts are changed to
    those for estimated ones, which may be the only reason.
    """
    findings = []
    for finding in verdict.findings:
        if finding.code == "propensities":
            finding = Finding(finding.code, finding.severity, finding.number, finding.message, do="estimated")
        elif finding.code == "support_missing" and finding.severity >= GRAVE:
            gap = finding.number
            finding = Finding(finding.code, finding.severity, gap, says="estimated", do="estimated", mean=1.0 - gap)
        findings.append(finding)
    if has_context:
        findings.append(Finding("propensities_estimated", CAUTION, 1.0))
    else:
        findings.append(Finding("propensities_estimated", GRAVE, 1.0, says="blind", do="blind"))
    return Verdict.of(findings)
