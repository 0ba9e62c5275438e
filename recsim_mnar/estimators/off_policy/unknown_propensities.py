"""Logs without propensities: the logging policy is estimated, and the interval widened for it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.value import estimate_value
from recsim_mnar.estimators.result import Estimate
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Finding, Verdict
from recsim_mnar.log.columns import Clusters, Floats, column
from recsim_mnar.rng import Stream, uniforms

_ESTIMATED = Finding(
    "propensities_estimated",
    CAUTION,
    1.0,
    "the propensities are estimated, so what the logging policy saw and the context does not hold biases the value",
    "log propensities",
)
_BLIND = Finding(
    "propensities_estimated",
    GRAVE,
    1.0,
    "the propensities are estimated without anything that the logging policy saw, so whatever it saw biases the value",
    "log propensities, or give what the policy saw (--context-columns)",
)


class LoggingModel:
    """Estimated probability of each row's logged action, cross-fitted by user.

    Without ``model`` it is the action's share among the rows of the same context label in the other folds, each action
    of the label counted ``prior`` times more.

    Args:
        action: (n,) codes from 0.
        context: (n,) codes from 0 of a discrete context, or (n, d) numbers for ``model``.
        fold: (n,) fold of each row.
        n_actions: number of actions.
        prior: added to each count.
        model: a scikit-learn classifier (``fit`` with ``sample_weight``, ``predict_proba``), or None.
    """

    def __init__(
        self,
        action: NDArray[np.int64],
        context: NDArray[Any],
        fold: NDArray[np.int64],
        n_actions: int,
        prior: float = 1.0,
        model: Any = None,
    ) -> None:
        self.action = action
        self.context = context
        self.fold = fold
        self.n_folds = int(fold.max()) + 1
        self.n_actions = n_actions
        self.prior = prior
        self.model = model

    def propensities(self, weight: Floats) -> Floats:
        """(n,) propensities with every row counted ``weight`` times in the fit."""
        if self.model is not None:
            return self._from_model(weight)
        contexts = int(self.context.max()) + 1
        cell = self.context * self.n_actions + self.action
        cells = contexts * self.n_actions
        by_cell = np.bincount(self.fold * cells + cell, weight, self.n_folds * cells).reshape(self.n_folds, cells)
        by_context = by_cell.reshape(self.n_folds, contexts, self.n_actions).sum(axis=2)
        above = (by_cell.sum(axis=0) - by_cell)[self.fold, cell] + self.prior
        below = (by_context.sum(axis=0) - by_context)[self.fold, self.context] + self.prior * self.n_actions
        return above / below

    def _from_model(self, weight: Floats) -> Floats:
        out = np.empty(self.action.size)
        for fold in range(self.n_folds):
            held, others = self.fold == fold, (self.fold != fold) & (weight > 0.0)
            fitted = copy.deepcopy(self.model)
            fitted.fit(self.context[others], self.action[others], sample_weight=weight[others])
            place = np.full(self.n_actions, -1)
            place[np.asarray(fitted.classes_, dtype=np.int64)] = np.arange(len(fitted.classes_))
            probabilities = np.asarray(fitted.predict_proba(self.context[held]))
            index = place[self.action[held]]
            own = np.where(index >= 0, probabilities[np.arange(index.size), np.maximum(index, 0)], 0.0)
            out[held] = np.clip(own, 1.0 / (others.sum() + self.n_actions), 1.0)
        return out


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
    folds: int = 5,
    model: Any = None,
    replicates: int = 200,
    seed: int = 0,
    **stated: Any,
) -> Estimate:
    """Estimate a target policy's value from a log that does not say how likely its actions were.

    The logging policy is estimated by user folds; users are resampled through both steps (Poisson bootstrap), and the
    interval is the wider one of that and of the interval that takes the estimated propensities as true. The verdict is
    never "trust": what moved the logging policy and is not in ``context`` biases the value, which no interval shows.

    Args:
        reward: (n,) rewards.
        action: (n,) logged actions, labels of any kind.
        target: (n,) the target policy's probability of the logged action.
        context: (n,) labels of a discrete context on which the logging policy acted, or (n, d) numbers for ``model``.
        cluster: (n,) the user of each row.
        estimator: "ips", "clipped_ips" or "snips".
        clip: of clipped_ips.
        level: nominal coverage.
        folds: number of user folds.
        model: a scikit-learn classifier of the action; None for shares within a context label.
        replicates: of the bootstrap.
        seed: of its draws.
        **stated: full_support, reward_min, reward_max, as :func:`recsim_mnar.estimators.estimate_value`.

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
        raise UserError("the logged actions are needed to estimate the logging policy; give one a row")
    clusters = Clusters.of(cluster, n)
    units, users = (np.arange(n), n) if clusters is None else clusters.dense()
    if not 2 <= folds <= users:
        raise UserError(f"folds must lie between 2 and the number of users ({users}), got {folds}")
    codes, n_actions = actions.dense()
    labels: NDArray[Any] = np.zeros(n, np.int64)
    if context is not None:
        given = np.asarray(context)
        discrete = Clusters.of(given, n, "context") if model is None else None
        labels = discrete.dense()[0] if discrete is not None else given.reshape(n, -1).astype(np.float64)
    elif model is not None:
        raise UserError("a model of the logging policy needs a context of numbers; give context=")
    fitted = LoggingModel(codes, labels, units % folds, n_actions, model=model)
    base = estimate_value(
        r,
        fitted.propensities(np.ones(n)),
        t,
        estimator=estimator,
        clip=clip,
        cluster=clusters,
        level=level,
        **stated,
    )
    values = np.empty(replicates)
    above = r - base.diagnostics["reward_min"]
    limit = np.inf if clip is None or estimator != "clipped_ips" else clip
    for i in range(replicates):
        count = _poisson(uniforms(seed, Stream.BOOTSTRAP, np.arange(users), 2**20 + i))[units]
        w = np.minimum(t / fitted.propensities(count), limit) * count
        below = np.sum(w) if estimator == "snips" else np.sum(count)
        values[i] = np.sum(w * above) / below if below > 0.0 else 0.0
    half = (1.0 - level) / 2.0
    centre = base.value - float(np.median(values))  # the resampled fits are a little further from the truth: recentred
    low, high = np.quantile(values, [half, 1.0 - half]) + centre
    facts = base.diagnostics | {"bootstrap_low": float(low), "bootstrap_high": float(high)}
    return replace(
        base,
        low=min(base.low, float(low)),
        high=max(base.high, float(high)),
        method=f"{base.method}, widened by a user bootstrap of the estimated propensities",
        diagnostics=facts,
        verdict=_told_estimated(base.verdict, context is not None),
    )


def _told_estimated(verdict: Verdict, seen: bool) -> Verdict:
    """A verdict that says that propensities are estimated, also where the mean weight speaks against them.

    Without anything that the logging policy saw the estimated propensities are shares of the actions, and whatever
    it saw biases the value.
    """
    found = [
        replace(
            each,
            message=f"the propensities are estimated, and {each.message}",
            action="give more of what the logging policy saw as context, or log propensities",
        )
        if each.code == "propensities"
        else each
        for each in verdict.findings
    ]
    return Verdict.of([*found, _ESTIMATED if seen else _BLIND])


def _poisson(uniform: Floats) -> Floats:
    """Poisson(1) counts by inversion."""
    steps = np.cumsum(np.exp(-1.0) / np.cumprod([1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]))
    return np.searchsorted(steps, uniform, side="right").astype(np.float64)
