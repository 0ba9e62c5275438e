"""Estimates of a policy's value, and of the difference of two policies' values, from columns of a log."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.facts import (
    PRECISION,
    Facts,
    check_clip,
    check_precision,
    limit_column,
    model_column,
    refuse_outside,
)
from recsim_mnar.estimators.intervals import Interval, betting, poisson_ratios
from recsim_mnar.estimators.refuters import item_findings
from recsim_mnar.estimators.repeats import RepeatSums
from recsim_mnar.estimators.scores import ESTIMATORS, EstimatorInfo, Rows, Scores, check_name, known_to_differ
from recsim_mnar.estimators.sums import PolicySums, ScoreSums, refuse_overflow
from recsim_mnar.estimators.value import AUTO, LEADING, Bounds, PairSums, difference_of, value_of
from recsim_mnar.estimators.verdict import Estimate, Finding
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.columns import Clusters, Floats, column, finite_column, refuse_rows, user_sums

GUARANTEED = {
    "betting": "betting (Waudby-Smith-Ramdas)",
    "anytime": "betting confidence sequence, anytime-valid",
}
"""Kinds of intervals that hold for any number of users, and the beginnings of their descriptions."""
INTERVALS = ("auto", "bootstrap", *GUARANTEED)
"""Kinds of intervals."""

_COMMON = ("replicates", "seed")
"""Parameters of the bootstrap, which every estimator takes."""
_MEANING = {
    "loggers": ": each logger's probability of the logged action, one row per row of the log and one column per logger",
    "logger": ": the number of each row's logger, a column of loggers",
}
"""Descriptions of required parameters in messages."""


def estimate_value(
    reward: Any,
    propensity: Any,
    target: Any,
    *,
    cluster: Any = None,
    action: Any = None,
    context: Any = None,
    weights: Any = None,
    facts: Facts | None = None,
    model: Any = None,
    estimator: str = AUTO,
    clip: float | None = None,
    level: float = 0.95,
    interval: str = "auto",
    precision: float = PRECISION,
    **parameters: Any,
) -> Estimate:
    """Estimate the mean reward per decision of a target policy from the log of another.

    Args:
        reward: (n,) observed rewards, any real numbers.
        propensity: (n,) in (0, 1], the logging policy's probability of the logged action.
        target: (n,) in [0, 1], the target policy's probability of the logged action.
        cluster: (n,) user ids of any kind in any order. Without it rows are taken as independent.
        action: (n,) ids of the items shown, to check propensities item by item and effects of earlier rows of a user.
        context: (n,) values of a column that was known before the item was chosen, to check propensities by its levels
            too.
        weights: (n,) number of rows that each row stands for, in a log that keeps a part of its rows.
        facts: facts about the log that its rows do not show.
        model: reward model for dm, dr and others: (q_logged, q_target), as
            :func:`recsim_mnar.estimators.cross_fitted_rewards` returns it.
        estimator: name in :data:`recsim_mnar.estimators.ESTIMATORS`; "auto" for "snips", or "clipped_ips" with a
            clip; or ``package.module:function``, from :class:`recsim_mnar.estimators.scores.Rows` to (n,) scores.
        clip: largest weight of the clipped estimators; None for no clipping.
        level: nominal coverage of the interval for the target policy's value, the bias of clipping included.
        interval: "auto" for Student's by user; "bootstrap" for a Poisson bootstrap by user; "betting" or "anytime"
            (valid while the log grows by whole users), for which the facts should state reward_max, user_rows_max, and
            weight_max or propensity_min.
        precision: largest ratio of half the interval to the value with which the value is trusted.
        **parameters: parameters of the estimator, which ``ESTIMATORS[estimator].requires`` and ``.takes`` name, e.g.
            ``lam``; balanced_ips requires loggers, (n, J) probabilities of the logged action, and logger, the number of
            each row's logger. Also replicates and seed, of the bootstrap.

    Raises:
        UserError: invalid input, with the column and row.
    """
    info = _requested_estimator(estimator, clip)
    facts = _checked_facts(facts)
    level = level_of(level)
    precision = check_precision(precision)
    _check_parameters(info, parameters)
    targets = {"target": (target, facts.unsupported)}
    (rows,) = _policy_rows(reward, propensity, targets, info, cluster=cluster, weights=weights, facts=facts, clip=clip)
    policy = PolicySums.of_rows(rows, facts)
    rows = _with_model(rows, info, model)
    options: dict[str, Any] = {name: parameters.pop(name) for name in _COMMON if name in parameters}
    options |= {"facts": facts, "level": level, "precision": precision, "interval": interval}
    estimate = estimate_scores(info.scores(rows, **parameters), rows, policy, info.name, **options)
    return estimate.with_findings(_findings_on_log(rows, action, context))


def estimate_scores(
    scores: Scores,
    rows: Rows,
    policy: PolicySums,
    estimator: str,
    *,
    facts: Facts,
    level: float,
    precision: float = PRECISION,
    interval: str = "auto",
    replicates: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Estimate a value from an estimator's scores of all rows.

    Args:
        scores: scores of the rows.
        rows: rows of the log.
        policy: sums of these rows' weights and rewards.
        estimator: name of the estimator.
        facts: facts about the log that its user states.
        level: nominal coverage.
        precision: largest ratio of half the interval to the value with which the value is trusted.
        interval: kind of the interval, one of ``INTERVALS``.
        replicates: number of bootstrap resamples.
        seed: seed of the resamples.

    Raises:
        UserError: an unknown interval, or one that the estimator does not allow.
    """
    if interval not in INTERVALS:
        raise UserError(f"no interval {interval!r}; {nearest(str(interval), INTERVALS)}")
    if interval in GUARANTEED and not (scores.counts and scores.linear is not None):
        weighted = ", ".join(name for name, info in ESTIMATORS.items() if info.counts)
        raise UserError(f"interval {interval!r} is for weighted rewards ({weighted}); use interval='auto'")
    if scores.other_weights:
        # Diagnostics are those of the weights that the estimator uses, to which the stated bounds do not apply.
        assert scores.used is not None
        policy = PolicySums.of_rows(replace(rows, weight=scores.used))
        facts = replace(facts, weight_max=None, propensity_min=None)
    scored = ScoreSums.of(scores, rows, policy)
    sampling = None
    if policy.users > 1 and policy.supported:
        if interval in GUARANTEED:
            sampling = _guaranteed(scores, rows, policy, facts, level, interval)
        elif interval == "bootstrap" and (policy.rewarded or rows.q_target is not None):
            sampling = _bootstrap(scores, rows, policy.unit, level, replicates, seed)
    return value_of(scored, estimator, facts=facts, level=level, precision=precision, clip=rows.clip, sampling=sampling)


def _bootstrap(scores: Scores, rows: Rows, unit: str, level: float, replicates: int, seed: int) -> Interval:
    """Compute the percentile interval of a Poisson bootstrap by user.

    Args:
        scores: scores of the rows.
        rows: rows of the log.
        unit: unit of resampling in words, for the method.
        level: nominal coverage.
        replicates: number of resamples.
        seed: seed of the resamples; the linear part and the ratio use the same ones.
    """
    ones = np.ones(rows.reward.size)
    values = np.zeros(1)
    for numerator, denominator in ((scores.linear, ones), (scores.numerator, scores.denominator)):
        if numerator is not None and denominator is not None:
            above = user_sums(numerator, rows.clusters)
            below = user_sums(denominator, rows.clusters)
            values = values + poisson_ratios(above, below, replicates=replicates, seed=seed)
    half = (1.0 - level) / 2.0
    low, high = np.quantile(values, [half, 1.0 - half])
    return Interval(float(low), float(high), f"Poisson bootstrap, {unit}, percentile, asymptotic")


def _guaranteed(scores: Scores, rows: Rows, policy: PolicySums, facts: Facts, level: float, interval: str) -> Interval:
    """Compute a betting interval of bounded scores, with one observation per user (docs/verdict.md).

    If a bound is not stated, the log's largest value is used, and the method names the condition.

    Args:
        scores: scores of the rows, weights times rewards.
        rows: rows of the log.
        policy: sums of these rows' weights and rewards.
        facts: stated bounds.
        level: nominal coverage.
        interval: a key of :data:`GUARANTEED`.

    Raises:
        UserError: a user with more rows than stated.
    """
    assert scores.linear is not None
    bounds = Bounds.of(policy, facts)
    if math.isinf(bounds.reach):
        return Interval(0.0, math.inf, f"{GUARANTEED[interval]}: no end without the range of rewards")
    sums = user_sums(scores.linear, rows.clusters)
    lengths = user_sums(np.ones(rows.reward.size), rows.clusters)
    if rows.clusters is not None:  # bets see the users in the order of their first rows
        order = np.argsort(rows.clusters.first_rows(), kind="stable")
        sums = sums[order]
        lengths = lengths[order]
    longest = float(np.max(lengths))
    stated_longest = facts.user_rows_max
    if stated_longest is not None and longest > stated_longest:
        raise UserError(f"user_rows_max is {stated_longest:g} and a user has {longest:g} rows; raise it")
    conditions = []
    if policy.clustered and stated_longest is not None:
        longest = float(stated_longest)
    elif policy.clustered:
        conditions.append("no user can have more rows")
    if facts.largest_weight is None and not math.isfinite(scores.most):
        conditions.append("no larger weight is possible")
    if bounds.stated is None:
        conditions.append("no larger reward is possible")
    method = f"{GUARANTEED[interval]}, {policy.unit}"
    if conditions:
        method += f", if {' and '.join(conditions)}"
    # Divided by the largest possible values, a user's sum and number of rows are in [0, 1], as bets require.
    most = _largest_weight(scores, rows, facts) * bounds.reach
    low, high = betting(sums / (most * longest), lengths / longest, level, anytime=interval == "anytime")
    return Interval(low * most, high * most, method)


def _largest_weight(scores: Scores, rows: Rows, facts: Facts) -> float:
    """Return the largest possible weight, if it is stated and applies to the estimator's weights; else the log's."""
    if scores.signed is not None:
        return float(np.max(np.abs(scores.signed)))
    seen = float(np.max(rows.weight if scores.used is None else scores.used))
    stated = facts.largest_weight
    if stated is None or scores.other_weights:
        return seen
    if scores.used is not None:
        stated = min(stated, scores.most)
    return max(stated, seen)


def _policy_rows(
    reward: Any,
    propensity: Any,
    policies: Mapping[str, tuple[Any, Any]],
    info: EstimatorInfo,
    *,
    cluster: Any,
    weights: Any,
    facts: Facts,
    clip: float | None,
) -> list[Rows]:
    """Check the columns and return one table of rows per policy, in the order of ``policies``.

    Args:
        reward: (n,) rewards.
        propensity: (n,) the logging policy's probabilities of the logged actions.
        policies: (n,) probabilities of the logged actions and (n,) probability of actions that the log never takes (or
            None), by policy.
        info: record of the estimator.
        cluster: (n,) user ids; None if rows are independent.
        weights: (n,) number of rows that each row stands for; None if every row stands for itself.
        facts: facts about the log that its user states.
        clip: largest weight, for estimators that clip; None for no clipping.

    Raises:
        UserError: no rows, an invalid value, a reward outside its range.
    """
    rewards = column(reward, "reward")
    if rewards.size == 0:
        raise UserError("the log has no rows; give at least one")
    refuse_outside(rewards, facts.reward_min, facts.reward_max, "reward")
    if facts.reward_limit is not None:
        limit_column(facts.reward_limit, rewards)
    stands_for = 1.0 if weights is None else row_weights(weights, rewards.size, info)
    clusters = Clusters.of(cluster, rewards.size)
    shift = facts.counted_from(float(np.min(rewards)))
    limit = check_clip(clip) if info.clips else math.inf
    tables = []
    for name, (target, missing) in policies.items():
        names = ("reward", "propensity", name)
        rows = Rows.of(rewards, propensity, target, clusters=clusters, shift=shift, missing=missing, names=names)
        tables.append(replace(rows, weight=rows.weight * stands_for, stands_for=stands_for, clip=limit))
    return tables


def _with_model(rows: Rows, info: EstimatorInfo, model: Any) -> Rows:
    """Return rows with the reward model's columns that an estimator needs, shifted like the rewards.

    Args:
        rows: rows of the log.
        info: record of the estimator.
        model: (q_logged, q_target), or None.

    Raises:
        UserError: a column that is missing or invalid, or a model that the estimator does not use.
    """
    if not info.needs:
        if model is not None:
            raise UserError(f"estimator {info.name!r} uses no model of rewards: leave model out, or use dr")
        return rows
    q_logged = q_target = None
    if model is not None:
        if not (isinstance(model, (tuple, list)) and len(model) == 2):
            raise UserError(f"model must be the pair (q_logged, q_target), got {type(model).__name__}")
        q_logged, q_target = model
    columns = {"q_logged": q_logged, "q_target": q_target}
    if any(columns[name] is None for name in info.needs):
        raise UserError(
            f"estimator {info.name!r} needs a reward model: give model=(q_logged, q_target), its value of each row's "
            "logged action and its mean under the target policy"
        )
    heaviest = float(np.max(rows.weight))
    needed: dict[str, Any] = {
        name: model_column(columns[name], name, rows.reward, heaviest) - rows.shift for name in info.needs
    }
    return replace(rows, **needed)


def _findings_on_log(rows: Rows, action: Any, context: Any) -> list[Finding]:
    """Check the propensities of the items shown, and the effects of a user's earlier rows.

    Args:
        rows: rows of the log.
        action: (n,) ids of the items shown; None for no checks.
        context: (n,) values of a column that was known before the item was chosen, or None.

    Raises:
        UserError: a context without the items shown.
    """
    if action is None:
        if context is not None:
            raise UserError("context is read with the items shown: give action too, or omit context")
        return []
    if isinstance(rows.stands_for, np.ndarray):
        # Rows of the log are missing, so that effects of earlier rows cannot be seen, and counts within a level of the
        # context are not those of the full log. The inverse of the scaled propensity is a row's weight stands_for /
        # propensity over the largest stands_for.
        scaled_propensity = rows.propensity * (np.max(rows.stands_for) / rows.stands_for)
        return item_findings(action, scaled_propensity, rows.clusters)
    findings = item_findings(action, rows.propensity, rows.clusters, context=context)
    return findings + RepeatSums.of(rows.reward + rows.shift, rows.propensity, action, rows.clusters).findings()


def row_weights(values: Any, rows: int, info: EstimatorInfo) -> Floats:
    """Check the numbers of rows that each row stands for, and return them scaled to mean 1.

    Args:
        values: (n,) numbers of rows.
        rows: number n of rows.
        info: record of the estimator.

    Raises:
        UserError: a number that is not positive, or an estimator that cannot use weights of rows.
    """
    if not info.in_blocks:
        raise UserError(f"estimator {info.name!r} knows no weights of rows; use {', '.join(known_to_differ())}")
    weights = finite_column(values, "weights", rows)
    refuse_rows(weights <= 0.0, weights, "weights", "is not positive; give how many rows the row stands for")
    return weights / float(np.mean(weights))


def _checked_facts(facts: Any) -> Facts:
    """Return the stated facts, or empty ones for None; raise UserError for another type."""
    if facts is None:
        return Facts()
    if not isinstance(facts, Facts):
        raise UserError(f"facts must be recsim_mnar.Facts(...), got {type(facts).__name__}")
    return facts


def _requested_estimator(estimator: str, clip: float | None) -> EstimatorInfo:
    """Return the record of the requested estimator; "auto" means the default one, or "clipped_ips" with a clip."""
    check_clip(clip)
    if estimator == AUTO:
        estimator = LEADING if clip is None else "clipped_ips"
    return check_name(estimator)


def _check_parameters(info: EstimatorInfo, parameters: Mapping[str, Any]) -> None:
    """Raise UserError for a parameter that the estimator does not take, or a missing one."""
    accepted = (*info.requires, *info.takes, *_COMMON)
    for name in sorted(parameters):
        if name not in accepted:
            hint = f"it takes: {', '.join(accepted)}"
            if name in Facts.__match_args__:
                hint = f"state it as facts=Facts({name}=...)"
            raise UserError(f"estimator {info.name!r} has no parameter {name!r}; {hint}")
    for name in info.requires:
        if parameters.get(name) is None:
            raise UserError(f"estimator {info.name!r} needs the parameter {name!r}{_MEANING.get(name, '')}")


def difference(
    reward: Any,
    propensity: Any,
    target: Any,
    baseline: Any,
    *,
    cluster: Any = None,
    action: Any = None,
    context: Any = None,
    weights: Any = None,
    facts: Facts | None = None,
    estimator: str = AUTO,
    clip: float | None = None,
    level: float = 0.95,
) -> Estimate:
    """Estimate the value of a target policy minus that of a baseline policy.

    Both values are estimated from the same rows, so the interval is computed for the difference itself (Jeunen 2024),
    which is narrower than one made of two intervals.

    Args:
        reward: (n,) observed rewards, any real numbers.
        propensity: (n,) in (0, 1], the logging policy's probability of the logged action.
        target: (n,) in [0, 1], the target policy's probability of the logged action.
        baseline: (n,) in [0, 1], the baseline policy's probability of the logged action.
        cluster: (n,) user ids of any kind in any order. Without it rows are taken as independent.
        action: (n,) ids of the items shown, to check propensities item by item and effects of earlier rows of a user.
        context: (n,) values of a column that was known before the item was chosen, to check propensities by its levels
            too.
        weights: (n,) number of rows that each row stands for, in a log that keeps a part of its rows.
        facts: facts about the log that its rows do not show. Full support and bounds hold for both policies, or for the
            target alone if the baseline is the logging policy.
        estimator: "ips", "clipped_ips" or "snips"; "auto" for "snips", or "clipped_ips" with a clip.
        clip: largest weight of clipped_ips; None for no clipping.
        level: nominal coverage.

    Raises:
        UserError: invalid input, with the column and row.
    """
    info = _requested_estimator(estimator, clip)
    facts = _checked_facts(facts)
    level = level_of(level)
    if not info.in_blocks:
        raise UserError(f"difference knows the estimators {', '.join(known_to_differ())}, not {estimator!r}")
    policies = {"target": (target, facts.unsupported), "baseline": (baseline, facts.baseline_unsupported)}
    options: dict[str, Any] = {"cluster": cluster, "weights": weights, "facts": facts, "clip": clip}
    target_rows, baseline_rows = _policy_rows(reward, propensity, policies, info, **options)
    estimate = difference_in_rows(target_rows, baseline_rows, info, facts=facts, level=level)
    return estimate.with_findings(_findings_on_log(target_rows, action, context))


def difference_in_rows(
    target_rows: Rows, baseline_rows: Rows, info: EstimatorInfo, *, facts: Facts, level: float
) -> Estimate:
    """Estimate the difference of two policies from their rows.

    Args:
        target_rows: rows of the log with the target's probabilities and weights.
        baseline_rows: rows of the log with the baseline's probabilities and weights.
        info: record of an estimator that can be computed in blocks.
        facts: facts about the log that its user states.
        level: nominal coverage.

    Raises:
        UserError: a weight or a reward whose powers overflow.
    """
    scored = []
    for rows in (target_rows, baseline_rows):
        policy = PolicySums.of_rows(rows, facts, degree=2)
        scores = info.scores(rows)
        scored.append((rows, scores, ScoreSums.of(scores, rows, policy)))
    sums = PairSums.of(target=scored[0], baseline=scored[1])
    if not sums.finite:
        refuse_overflow(target_rows)
    return difference_of(sums, info.name, facts=facts, level=level, clip=target_rows.clip)
