"""estimate_value: from the columns of a log to an estimate with its interval and verdict."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.from_moments import AUTO, estimate_from_moments
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.refuters import item_findings
from recsim_mnar.estimators.off_policy.row_order import order_findings, weights_agree
from recsim_mnar.estimators.off_policy.scores import EstimatorInfo, Rows, check_name, known_to_differ
from recsim_mnar.estimators.off_policy.stated import Stated, check_clip, model_column
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.columns import Clusters, Floats, column

_COMMON = ("replicates", "seed")
_STATED = ("full_support", "reward_min", "reward_max", "weight_max", "propensity_min", "user_rows_max", "target_max")
_MEANING = {
    "q_logged": "a reward model's value of each row's logged action",
    "q_target": "the reward model's mean under the target policy, for each row",
    "loggers": "each logger's probability of the logged action, one row per row of the log and one column per logger",
    "logger": "the number of each row's logger, a column of loggers",
}


def estimate_value(
    reward: Any,
    propensity: Any,
    target: Any,
    *,
    estimator: str = AUTO,
    clip: float | None = None,
    q_logged: Any = None,
    q_target: Any = None,
    cluster: Any = None,
    level: float = 0.95,
    interval: str = "auto",
    full_support: bool = False,
    unsupported: Any = None,
    reward_min: float | None = None,
    reward_max: float | None = None,
    weight_max: float | None = None,
    propensity_min: float | None = None,
    user_rows_max: float | None = None,
    target_max: float | None = None,
    reward_limit: Any = None,
    action: Any = None,
    context: Any = None,
    **parameters: Any,
) -> Estimate:
    """Estimate what a target policy would have earned a decision on the log of another.

    Args:
        reward: (n,) observed rewards, any real numbers.
        propensity: (n,) in (0, 1], the logging policy's probability of the logged action.
        target: (n,) in [0, 1], the target policy's probability of the logged action.
        estimator: "auto" for the one that leads: "ips", or "snips" where most rows are rewarded
            (:func:`recsim_mnar.estimators.off_policy.from_moments.leading`), "clipped_ips" with a clip. Else a name of
            :data:`recsim_mnar.estimators.ESTIMATORS`, or ``package.module:function``: a function of
            :class:`recsim_mnar.estimators.off_policy.scores.Rows` that gives one score per row.
        clip: weights of the clipped estimators are cut there; None for no clipping.
        q_logged: (n,) a reward model's value of the logged action.
        q_target: (n,) its mean under the target policy.
        cluster: (n,) the user of each row, ids of any kind in any order. Without it rows are taken as independent and
            the verdict is at most caution; where they are, give each row a number of its own.
        level: nominal coverage of the interval.
        interval: "auto" chooses and says what it chose in ``method``: "gamma" (Fay & Feuer, on user sums above the
            least reward) for weighted rewards and their ratios, else Student's limits that reckon with one more of
            the heaviest rows. Also "delta" (by user, asymptotic) and "bootstrap" (Poisson, by user): what they leave
            out the verdict says; where no reward was seen they would have no width, and "auto" is taken. With a
            guarantee, if ``reward_max``, ``weight_max`` or ``propensity_min``, and ``user_rows_max`` are given
            (without them the method's name says what it rests on): "bernstein", "betting", "log_smoothing" and
            "anytime" (holds while the log grows by whole users).
        full_support: states that the logging policy can take whatever the target can. No log shows it, and it bounds
            no weight: an action may be too rare to be met. So the verdict is "trust" only with ``propensity_min``, or
            with ``weight_max`` and this (or ``unsupported``).
        unsupported: (n,) the target's mass, in each row's state, on actions whose logging probability is 0;
            `recsim-mnar replay` writes it where it can rebuild the logging policy.
        reward_min: least reward possible, from which rewards are counted; None for 0, or for the least reward of the
            log where that is negative.
        reward_max: largest reward possible; None for the largest of the log, and then the verdict is at most caution
            unless every reward is 0 or 1.
        weight_max: no weight target / propensity can be larger; None for the largest of the log.
        propensity_min: no action that the target can take has a smaller propensity: epsilon / number of actions under
            an epsilon-greedy policy. States full support and bounds the weights.
        user_rows_max: no user can have more rows; for the intervals with a guarantee.
        target_max: the target gives no action a larger probability, for callers who know all of its probabilities: with
            ``propensity_min`` no weight is above the ratio of the two.
        reward_limit: (n,) the largest reward possible of each row's action (its price, say). Rewards of actions that
            the log never shows it does not bound: ``reward_max`` does or, if every action can be shown in every row,
            ``propensity_min`` and enough rows to have shown them all. Else the verdict is at most caution.
        action: (n,) ids of the items shown; then the verdict says where the log proves propensities wrong item by item
            (:func:`recsim_mnar.estimators.off_policy.refuters.item_findings`).
        context: (n,) a column that was known before the item was chosen; then by item and level of it, too.
        **parameters: of the estimator: tau (switch_dr: weights up to tau are kept), lam (dros, sg_ips, sg_dr), gamma
            (ix_ips), group_target and group_propensity, or groups and context (mips), folds (beta_ips: a number, every
            K-th user or row being a fold, or a label a row), loggers and logger (balanced_ips: (n, J) probabilities
            of the logged action and each row's logger). And replicates and seed, of the bootstrap.

    Returns:
        The estimate; ``low`` and ``high`` cover the target policy's value, what clipping may hide included.

    Raises:
        UserError: for input that is no data, with the column and row.
    """
    info = _asked(estimator, clip)
    level = level_of(level)
    check_clip(clip)
    if "context" in info.takes and context is not None:
        parameters["context"], context = context, None if action is None else context
    _check_parameters(info, parameters)
    stated = Stated(full_support, reward_min, reward_max, weight_max, propensity_min, user_rows_max, target_max)
    rewards, clusters = _checked_rewards(reward, cluster)
    facts: dict[str, Any] = {"clusters": clusters, "stated": stated, "reward_limit": reward_limit}
    used_clip = clip if info.clips else None
    moments, p, t = _gathered(rewards, propensity, target, clip=used_clip, unsupported=unsupported, **facts)
    if info.from_moments and interval == "auto":
        name = AUTO if (estimator, clip) == (AUTO, None) else info.name
        found = estimate_from_moments(moments, name, level=level, stated=stated)
    else:
        from recsim_mnar.estimators.off_policy.from_scores import estimate_from_scores

        logged = _model(info, "q_logged", q_logged, rewards, moments)
        mean = _model(info, "q_target", q_target, rewards, moments)
        above = rewards - moments.shift if moments.shift else rewards
        rows = Rows(above, p, t, t / p, logged, mean, clusters, check_clip(used_clip))
        scores = info.scores(rows, **{name: value for name, value in parameters.items() if name not in _COMMON})
        if scores.other_weights:
            # Judged by the weights that it uses: any probabilities of that ratio will do.
            assert scores.used is not None
            scale = np.maximum(scores.used, 1.0)
            ratio = 1.0 / scale, scores.used / scale
            moments, _, _ = _gathered(above + moments.shift, *ratio, unsupported=unsupported, **facts)
            moments.denied, stated = 0, replace(stated, weight_max=None, propensity_min=None)
        common = {name: value for name, value in parameters.items() if name in _COMMON}
        found = estimate_from_scores(
            scores, rows, moments, info.name, level=level, interval=interval, stated=stated, **common
        )
    return _with_findings(found, rewards, p, t, clusters, action, context)


def _asked(estimator: str, clip: float | None) -> EstimatorInfo:
    """The record of the estimator that is asked for; of the one that leads that of "ips", with a clip "clipped_ips"."""
    if estimator == AUTO:
        return check_name("ips" if clip is None else "clipped_ips")
    return check_name(estimator)


def _check_parameters(info: EstimatorInfo, given: dict[str, Any]) -> None:
    """Refuse parameters that an estimator does not take, and missing ones."""
    own = (*info.requires, *info.takes, *_COMMON)
    unknown = sorted(set(given) - set(own))
    if unknown:
        known = ", ".join((*own, *_STATED))
        raise UserError(f"estimator {info.name!r} has no parameter {unknown[0]!r}; it takes: {known}")
    missing = [name for name in info.requires if given.get(name) is None]
    if missing:
        meaning = f": {_MEANING[missing[0]]}" if missing[0] in _MEANING else ""
        raise UserError(f"estimator {info.name!r} needs the parameter {missing[0]!r}{meaning}")


def _checked_rewards(reward: Any, cluster: Any) -> tuple[Floats, Clusters | None]:
    rewards = column(reward, "reward")
    if rewards.size == 0:
        raise UserError("the log has no rows; give at least one")
    return rewards, Clusters.of(cluster, rewards.size)


def _gathered(
    reward: Floats, propensity: Any, target: Any, *,
    clusters: Clusters | None, stated: Stated, unsupported: Any, reward_limit: Any, clip: float | None = None,
    name: str = "target",
) -> tuple[Moments, Floats, Floats]:  # fmt: skip
    """A policy's moments, the rows that contradict the statements, and the columns of propensities and targets."""
    p, t = column(propensity, "propensity", rows=reward.size), column(target, name, rows=reward.size)
    moments = Moments.of(
        reward, p, t, clip=clip, cluster=clusters, names=("reward", "propensity", name), unsupported=unsupported,
        reward_min=stated.reward_min, reward_max=stated.reward_max, reward_limit=reward_limit,
    )  # fmt: skip
    moments.denied = stated.denied(t, p)
    return moments, p, t


def _model(info: EstimatorInfo, name: str, values: Any, reward: Floats, moments: Moments) -> Floats | None:
    """A column of the model, counted from the least reward; None where the estimator does not need it."""
    if name not in info.needs:
        return None
    if values is None:
        raise UserError(f"estimator {info.name!r} needs {name}: {_MEANING[name]}")
    checked = model_column(values, name, reward, moments.weight_max)
    return checked - moments.shift if moments.shift else checked


def _with_findings(
    estimate: Estimate, reward: Floats, p: Floats, target: Floats, clusters: Clusters | None, action: Any, context: Any
) -> Estimate:
    """The estimate, with the findings from the order of its rows and item by item.

    Raises:
        UserError: a context without the items shown.
    """
    if action is None and context is not None:
        raise UserError("context is read with the items shown: give action too, or omit context")
    found = []
    if weights_agree(estimate.verdict):
        half = (estimate.high - estimate.low) / 2.0
        found = order_findings(reward, p, target, clusters, half_width=half, level=estimate.level)
    if action is not None:
        found += item_findings(action, p, clusters, context=context)
    return estimate.with_findings(found)


def difference(
    reward: Any,
    propensity: Any,
    target: Any,
    baseline: Any,
    *,
    estimator: str = AUTO,
    clip: float | None = None,
    cluster: Any = None,
    level: float = 0.95,
    unsupported: Any = None,
    baseline_unsupported: Any = None,
    reward_limit: Any = None,
    action: Any = None,
    context: Any = None,
    **stated: Any,
) -> Estimate:
    """Estimate how much more than a baseline policy the target policy would have earned a decision.

    The two policies share the log, so the interval is of the difference itself (Jeunen 2024), not of two intervals.

    Args:
        reward: (n,) observed rewards.
        propensity: (n,) in (0, 1].
        target: (n,) the target policy's probability of the logged action.
        baseline: (n,) the baseline policy's.
        estimator: "ips", "clipped_ips" or "snips"; "auto" as :func:`estimate_value`.
        clip: weights of clipped_ips are cut there; None for no clipping.
        cluster: (n,) the user of each row.
        level: nominal coverage.
        unsupported: (n,) the target's mass on actions whose logging probability is 0.
        baseline_unsupported: (n,) the baseline's.
        reward_limit: (n,) the largest reward possible of each row's action, as :func:`estimate_value`.
        action: (n,) ids of the items shown, as :func:`estimate_value`.
        context: (n,) likewise.
        **stated: full_support (of both policies), reward_min, reward_max, weight_max, propensity_min and target_max (of
            both; of the target where the baseline is the policy that logged), as :func:`estimate_value`.

    Raises:
        UserError: as :func:`estimate_value`.
    """
    from recsim_mnar.estimators.off_policy.differences import PairMoments, estimate_difference

    info, level = _asked(estimator, clip), level_of(level)
    if not info.from_moments:
        raise UserError(f"difference knows the estimators {', '.join(known_to_differ())}, not {estimator!r}")
    unknown = sorted(set(stated) - set(_STATED))
    if unknown:
        raise UserError(f"difference has no parameter {unknown[0]!r}; it takes: {', '.join(_STATED)}")
    rewards, clusters = _checked_rewards(reward, cluster)
    given: dict[str, Any] = {"clusters": clusters, "stated": Stated(**stated), "reward_limit": reward_limit}
    given["clip"] = clip if info.clips else None
    ours, p, t = _gathered(rewards, propensity, target, unsupported=unsupported, **given)
    theirs, _, b = _gathered(rewards, p, baseline, unsupported=baseline_unsupported, name="baseline", **given)
    pair = PairMoments(ours, theirs)
    pair.extend(rewards, p, t, b, clusters)
    name = AUTO if (estimator, clip) == (AUTO, None) else info.name
    found = estimate_difference(pair, name, level=level, stated=given["stated"])
    return _with_findings(found, rewards, p, t, clusters, action, context)
