"""The functions that users call: the value of a policy, and the difference of two, from columns of a log."""

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
from recsim_mnar.estimators.scores import EstimatorInfo, Rows, Scores, check_name, known_to_differ
from recsim_mnar.estimators.sums import PolicySums, ScoreSums, refuse_overflow
from recsim_mnar.estimators.value import AUTO, LEADING, Bounds, PairSums, difference_of, value_of
from recsim_mnar.estimators.verdict import Estimate, Finding
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.columns import Clusters, Floats, column, finite_column, refuse_rows, user_sums

GUARANTEED = {
    "betting": "betting (Waudby-Smith-Ramdas)",
    "anytime": "betting confidence sequence, anytime-valid",
}
INTERVALS = ("auto", "bootstrap", *GUARANTEED)

_COMMON = ("replicates", "seed")
_MEANING = {
    "loggers": "each logger's probability of the logged action, one row per row of the log and one column per logger",
    "logger": "the number of each row's logger, a column of loggers",
}


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
    """Estimate what a target policy would have earned a decision on the log of another.

    Args:
        reward: (n,) observed rewards, any real numbers.
        propensity: (n,) in (0, 1], the logging policy's probability of the logged action.
        target: (n,) in [0, 1], the target policy's probability of the logged action.
        cluster: (n,) the user of each row, ids of any kind in any order. Without it rows are taken as independent.
        action: (n,) ids of the items shown; then the verdict says where the log proves propensities wrong item by item
            (:func:`recsim_mnar.estimators.refuters.item_findings`), and what was shown before.
        context: (n,) a column that was known before the item was chosen; then by item and level of it, too.
        weights: (n,) how many rows each row stands for, in a log that keeps only some of its rows; for ips,
            clipped_ips and snips.
        facts: what is known of the log besides its rows.
        model: a reward model, as :func:`recsim_mnar.estimators.cross_fitted_rewards` returns it: its value (n,) of the
            logged action, and its mean (n,) under the target. ``dm`` needs the second alone.
        estimator: "auto" for the one that leads, "snips", or "clipped_ips" with a clip. Else a name of
            :data:`recsim_mnar.estimators.ESTIMATORS`, or ``package.module:function``: a function of
            :class:`recsim_mnar.estimators.scores.Rows` that gives one score per row.
        clip: weights of the clipped estimators are cut there; None for no clipping.
        level: nominal coverage of the interval.
        interval: "auto" is Student's by user, on a log scale where rewards above the least one make a positive value.
            "bootstrap" is Poisson's, by user. "betting" and "anytime" (holds while the log grows by whole users) have a
            guarantee if ``reward_max``, ``weight_max`` or ``propensity_min``, and ``user_rows_max`` are stated; without
            them the method's name says what it rests on.
        precision: half the interval over the value up to which a value is trusted.
        **parameters: of the estimator: tau (switch_dr: weights up to tau are kept), lam (dros, sg_ips, sg_dr), gamma
            (ix_ips), group_target and group_propensity (mips), folds (beta_ips: every K-th user or row is one),
            loggers and logger (balanced_ips: (n, J) probabilities of the logged action and each row's logger). And
            replicates and seed, of the bootstrap.

    Returns:
        The estimate; ``low`` and ``high`` cover the target policy's value, what clipping may hide included.

    Raises:
        UserError: for input that is no data, with the column and row.
    """
    info, facts, level = _asked(estimator, clip), _facts(facts), level_of(level)
    precision = check_precision(precision)
    _check_parameters(info, parameters)
    policies = {"target": (target, facts.unsupported)}
    (rows,) = _rows(reward, propensity, policies, info, cluster=cluster, weights=weights, facts=facts)
    policy = PolicySums.of_rows(rows, facts)
    rows = replace(_with_model(rows, info, model), clip=check_clip(clip if info.clips else None))
    scores = info.scores(rows, **{name: value for name, value in parameters.items() if name not in _COMMON})
    common = {name: value for name, value in parameters.items() if name in _COMMON}
    estimate = estimate_scores(
        scores, rows, policy, info.name, facts=facts, level=level, precision=precision, interval=interval, **common
    )
    return estimate.with_findings(_findings(rows, action, context))


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
    """The estimate of an estimator's scores of all rows.

    Args:
        scores: of the rows.
        rows: of the log.
        policy: their sums.
        estimator: name.
        facts: of the log.
        level: nominal coverage.
        precision: as :func:`value_of`.
        interval: one of ``INTERVALS``.
        replicates: of the bootstrap.
        seed: likewise.

    Raises:
        UserError: an unknown interval, or one that the estimator does not allow.
    """
    if interval not in INTERVALS:
        raise UserError(f"no interval {interval!r}; {nearest(str(interval), INTERVALS)}")
    if interval in GUARANTEED and not (scores.counts and scores.linear is not None):
        raise UserError(
            f"interval {interval!r} is for weighted rewards (ips, clipped_ips, sg_ips, ix_ips, balanced_ips); use "
            "interval='auto'"
        )
    if scores.other_weights:  # judged by the weights that it uses
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
    total = np.zeros(1)
    for above, below in ((scores.linear, np.ones(rows.reward.size)), (scores.numerator, scores.denominator)):
        if above is not None and below is not None:
            sums = user_sums(above, rows.clusters), user_sums(below, rows.clusters)
            total = total + poisson_ratios(*sums, replicates=replicates, seed=seed)
    half = (1.0 - level) / 2.0
    low, high = np.quantile(total, [half, 1.0 - half])
    return Interval(float(low), float(high), f"Poisson bootstrap, {unit}, percentile, asymptotic")


def _guaranteed(scores: Scores, rows: Rows, policy: PolicySums, facts: Facts, level: float, interval: str) -> Interval:
    """Intervals for bounded scores; observations are users, in order of first appearance (docs/verdict.md)."""
    assert scores.linear is not None
    bounds = Bounds.of(policy, facts)
    if math.isinf(bounds.reach):
        return Interval(0.0, math.inf, f"{GUARANTEED[interval]}: no end without the range of rewards")
    sums = user_sums(scores.linear, rows.clusters)
    lengths = user_sums(np.ones(rows.reward.size), rows.clusters)
    if rows.clusters is not None:
        order = np.argsort(rows.clusters.first_rows(), kind="stable")
        sums = sums[order]
        lengths = lengths[order]
    longest = float(np.max(lengths))
    stated_longest = facts.user_rows_max
    if stated_longest is not None and longest > stated_longest:
        raise UserError(f"user_rows_max is {stated_longest:g} and a user has {longest:g} rows; raise it")
    provisos = {
        "no user can have more rows": stated_longest is None and policy.clustered,
        "no larger weight is possible": facts.largest_weight is None and not math.isfinite(scores.most),
        "no larger reward is possible": bounds.stated is None,
    }
    if stated_longest is not None and policy.clustered:
        longest = float(stated_longest)
    most = _largest_weight(scores, rows, facts) * bounds.reach
    ends = betting(sums / (most * longest), lengths / longest, level, anytime=interval == "anytime")
    unstated = " and ".join(words for words, needed in provisos.items() if needed)
    words = f"{GUARANTEED[interval]}, {policy.unit}" + (f", if {unstated}" if unstated else "")
    return Interval(ends[0] * most, ends[1] * most, words)


def _largest_weight(scores: Scores, rows: Rows, facts: Facts) -> float:
    """The largest weight possible, as stated and if none changes it; else the largest seen."""
    if scores.signed is not None:
        return float(np.max(np.abs(scores.signed)))
    seen = float(np.max(rows.weight if scores.used is None else scores.used))
    stated = facts.largest_weight
    if stated is None or scores.other_weights:
        return seen
    return max(stated if scores.used is None else min(stated, scores.most), seen)


def _rows(
    reward: Any,
    propensity: Any,
    policies: Mapping[str, tuple[Any, Any]],
    info: EstimatorInfo,
    *,
    cluster: Any,
    weights: Any,
    facts: Facts,
) -> list[Rows]:
    """The checked rows of each policy.

    Args:
        reward: (n,).
        propensity: (n,).
        policies: by name, the probabilities (n,), and those of what the log cannot show, or None.
        info: of the estimator.
        cluster: (n,) users, or None.
        weights: (n,) how many rows each row stands for, or None.
        facts: of the log.

    Raises:
        UserError: no rows, a value that is no data, a reward outside its range.
    """
    rewards = column(reward, "reward")
    if rewards.size == 0:
        raise UserError("the log has no rows; give at least one")
    refuse_outside(rewards, facts.reward_min, facts.reward_max, "reward")
    if facts.reward_limit is not None:
        limit_column(facts.reward_limit, rewards)
    weights_of_rows = 1.0 if weights is None else row_weights(weights, rewards.size, info)
    clusters = Clusters.of(cluster, rewards.size)
    shift = facts.counted_from(float(np.min(rewards)))
    tables = []
    for name, (target, missing) in policies.items():
        names = ("reward", "propensity", name)
        rows = Rows.of(rewards, propensity, target, clusters=clusters, shift=shift, missing=missing, names=names)
        tables.append(
            rows if weights is None else replace(rows, weight=rows.weight * weights_of_rows, stands_for=weights_of_rows)
        )
    return tables


def _with_model(rows: Rows, info: EstimatorInfo, model: Any) -> Rows:
    """The rows with the columns of the reward model that an estimator needs, counted as rewards are.

    Raises:
        UserError: a column that is missing or no data, or a model that the estimator does not use.
    """
    if not info.needs:
        if model is not None:
            raise UserError(f"estimator {info.name!r} uses no model of rewards: leave model out, or use dr")
        return rows
    if model is not None and not (isinstance(model, (tuple, list)) and len(model) == 2):
        raise UserError(f"model must be the pair (q_logged, q_target), got {type(model).__name__}")
    model_columns = dict(zip(("q_logged", "q_target"), model or (None, None), strict=True))
    if any(model_columns[name] is None for name in info.needs):
        raise UserError(
            f"estimator {info.name!r} needs a reward model: give model=(q_logged, q_target), its value of each row's "
            "logged action and its mean under the target policy"
        )
    heaviest = float(np.max(rows.weight))
    columns = {name: model_column(model_columns[name], name, rows.reward, heaviest) - rows.shift for name in info.needs}
    return replace(rows, q_logged=columns.get("q_logged"), q_target=columns["q_target"])


def _findings(rows: Rows, action: Any, context: Any) -> list[Finding]:
    """Get the findings about the items shown and about the order of the rows.

    Raises:
        UserError: a context without the items shown.
    """
    if action is None:
        if context is not None:
            raise UserError("context is read with the items shown: give action too, or omit context")
        return []
    if isinstance(rows.stands_for, np.ndarray):
        # Earlier rows are missing, so their order says nothing; and the rows of a level of the context stand for
        # more or fewer rows than they are.
        return item_findings(action, rows.propensity * (np.max(rows.stands_for) / rows.stands_for), rows.clusters)
    findings = item_findings(action, rows.propensity, rows.clusters, context=context)
    return findings + RepeatSums.of(rows.reward + rows.shift, rows.propensity, action, rows.clusters).findings()


def row_weights(values: Any, rows: int, info: EstimatorInfo) -> Floats:
    """Compute how many rows each row stands for, with mean 1, (n,).

    Raises:
        UserError: a weight that is not positive, or an estimator that has no use for weights of rows.
    """
    if not info.in_blocks:
        raise UserError(f"estimator {info.name!r} knows no weights of rows; use {', '.join(known_to_differ())}")
    weights = finite_column(values, "weights", rows)
    refuse_rows(weights <= 0.0, weights, "weights", "is not positive; give how many rows the row stands for")
    return weights / float(np.mean(weights))


def _facts(facts: Any) -> Facts:
    """Check stated facts; None states nothing. Raise UserError for anything else."""
    if facts is None:
        return Facts()
    if not isinstance(facts, Facts):
        raise UserError(f"facts must be recsim_mnar.Facts(...), got {type(facts).__name__}")
    return facts


def _asked(estimator: str, clip: float | None) -> EstimatorInfo:
    """The record of the estimator that is asked for; by itself the one that leads, with a clip "clipped_ips"."""
    check_clip(clip)
    if estimator == AUTO:
        return check_name(LEADING if clip is None else "clipped_ips")
    return check_name(estimator)


def _check_parameters(info: EstimatorInfo, given: Mapping[str, Any]) -> None:
    """Refuse parameters that an estimator does not take, and missing ones."""
    accepted = (*info.requires, *info.takes, *_COMMON)
    unknown = sorted(set(given) - set(accepted))
    if unknown:
        fact = unknown[0] in Facts.__match_args__
        if fact:
            hint = f"state it as facts=Facts({unknown[0]}=...)"
        else:
            hint = f"it takes: {', '.join(accepted)}"
        raise UserError(f"estimator {info.name!r} has no parameter {unknown[0]!r}; {hint}")
    missing = [name for name in info.requires if given.get(name) is None]
    if missing:
        if missing[0] in _MEANING:
            meaning = f": {_MEANING[missing[0]]}"
        else:
            meaning = ""
        raise UserError(f"estimator {info.name!r} needs the parameter {missing[0]!r}{meaning}")


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
    """Estimate how much more than a baseline policy the target policy would have earned a decision.

    The two policies share the log, so the interval is of the difference itself (Jeunen 2024), not of two intervals.

    Args:
        reward: (n,) observed rewards.
        propensity: (n,) in (0, 1].
        target: (n,) the target policy's probability of the logged action.
        baseline: (n,) the baseline policy's.
        cluster: (n,) the user of each row.
        action: (n,) ids of the items shown, as :func:`estimate_value`.
        context: (n,) likewise.
        weights: (n,) likewise.
        facts: likewise; full support and bounds are of both policies, or of the target where the baseline is the policy
            that logged.
        estimator: "ips", "clipped_ips" or "snips"; "auto" as :func:`estimate_value`.
        clip: weights of clipped_ips are cut there; None for no clipping.
        level: nominal coverage.

    Raises:
        UserError: as :func:`estimate_value`.
    """
    info = _asked(estimator, clip)
    facts = _facts(facts)
    level = level_of(level)
    if not info.in_blocks:
        raise UserError(f"difference knows the estimators {', '.join(known_to_differ())}, not {estimator!r}")
    policies = {"target": (target, facts.unsupported), "baseline": (baseline, facts.baseline_unsupported)}
    both = _rows(reward, propensity, policies, info, cluster=cluster, weights=weights, facts=facts)
    ours, theirs = (replace(rows, clip=check_clip(clip if info.clips else None)) for rows in both)
    estimate = difference_in_rows(ours, theirs, info, facts=facts, level=level)
    return estimate.with_findings(_findings(ours, action, context))


def difference_in_rows(ours: Rows, theirs: Rows, info: EstimatorInfo, *, facts: Facts, level: float) -> Estimate:
    """Estimate the difference of two policies from their rows.

    Args:
        ours: of the target.
        theirs: of the baseline, the same rows.
        info: an estimator that needs no other rows.
        facts: of the log.
        level: nominal coverage.

    Raises:
        UserError: a weight or a reward whose powers are too large for numbers.
    """
    both = []
    for rows in (ours, theirs):
        policy = PolicySums.of_rows(rows, facts, degree=2)
        scores = info.scores(rows)
        both.append((rows, scores, ScoreSums.of(scores, rows, policy)))
    sums = PairSums.of(*both)
    if not sums.finite:
        refuse_overflow(ours)
    return difference_of(sums, info.name, facts=facts, level=level, clip=ours.clip)
