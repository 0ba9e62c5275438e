"""Value and difference of policies: every estimator, every interval, and what changed weights may hide."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.intervals import (
    ROUNDING,
    Cut,
    Deviations,
    Interval,
    betting,
    clipping_bias_bound,
    gamma_limits,
    poisson_ratios,
    small_sample_factor,
    student_limits,
)
from recsim_mnar.estimators.off_policy.from_moments import (
    AUTO,
    LEADING,
    assemble,
    estimate_from_moments,
    intersected,
    spread_facts,
)
from recsim_mnar.estimators.off_policy.limits import (
    Bounds,
    Limits,
    heavy_tail,
    limits_of,
    mean_limits,
    ratio_limits,
    unit,
)
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.refuters import item_findings
from recsim_mnar.estimators.off_policy.repeats import RepeatSums
from recsim_mnar.estimators.off_policy.scores import EstimatorInfo, Rows, Scores, check_name, known_to_differ
from recsim_mnar.estimators.off_policy.stated import PRECISION, Stated, check_clip, check_rows, model_column
from recsim_mnar.estimators.verdict import Estimate
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.columns import Clusters, Floats, column, finite_column, refuse_rows, user_sums

GUARANTEED = {
    "betting": "betting (Waudby-Smith-Ramdas)",
    "anytime": "betting confidence sequence, anytime-valid",
}
INTERVALS = ("auto", "bootstrap", *GUARANTEED)


@dataclass(frozen=True)
class Case:
    """Ingredients of one estimate's limits; rewards and model are counted from the least reward.

    Attributes:
        scores: of the estimator.
        rows: the columns.
        moments: of the columns (of the estimator's own weights, where it has others).
        stated: what is known of the log.
        bounds: of rewards.
        level: nominal coverage.
    """

    scores: Scores
    rows: Rows
    moments: Moments
    stated: Stated
    bounds: Bounds
    level: float

    @property
    def used(self) -> Floats:
        """The weights that multiply rewards."""
        return self.rows.weight if self.scores.used is None else self.scores.used

    @property
    def largest(self) -> float:
        """The largest weight possible, as given and if none changes it; else the largest seen."""
        if self.scores.signed is not None:
            return float(np.max(np.abs(self.scores.signed)))
        seen = float(np.max(self.used))
        given = self.stated.largest_weight
        if given is None or self.scores.other_weights:
            return seen
        return max(given if self.scores.used is None else min(given, self.scores.most), seen)

    def sums(self, values: Floats) -> Floats:
        """(U,) sums by user of row values (n,)."""
        return user_sums(values, self.rows.clusters)

    def variance(self, values: Floats) -> float:
        """Sum of squared user sums over n^2: the variance of a mean of rows about 0."""
        sums = self.sums(values)
        return float(sums @ sums) / values.size**2

    def limits(self, value: float) -> Limits:
        """Limits of the estimate, from the users' sums of its influence."""
        sums, moments = self.sums(self.scores.influence()), self.moments
        square = sums * sums
        second = float(np.sum(square))
        if second <= ROUNDING**2 * moments.power("xx"):
            second = 0.0
        fourth = float(square @ square) if second > 0.0 else 0.0
        found = Deviations(second, 0.0, fourth, moments.users, moments.rewarded_users, moments.grouped)
        positive = self.scores.counts or self.scores.linear is None
        n = float(self.rows.reward.size)
        if not positive:
            low, high = found.limits(value, n, self.level)
            return Limits(Interval(low, high, f"Student {unit(moments)}"), found.carrying, found.error(n))
        return limits_of(found, value, n, self.level, unit(moments))


def estimate_from_scores(
    scores: Scores,
    rows: Rows,
    moments: Moments,
    estimator: str,
    *,
    level: float,
    interval: str,
    stated: Stated,
    replicates: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Value, interval, diagnostics and verdict of any estimator.

    Args:
        scores: of the estimator on the rows.
        rows: the columns, rewards and model counted from the moments' least reward.
        moments: of the columns, for the diagnostics.
        estimator: its name.
        level: nominal coverage.
        interval: one of ``INTERVALS``; "auto" is Student's by user. Where no reward was seen the bootstrap is "auto"
            too.
        stated: what is known of the log besides its rows.
        replicates: of the bootstrap.
        seed: of the bootstrap.

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
    bounds = Bounds.of(moments, stated)
    case = Case(scores, rows, moments, stated, bounds, level)
    value = scores.value()
    reason = "one user" if moments.users < 2 else "no support" if moments.supported == 0 and estimator != "dm" else ""
    if reason:
        sampling = Interval(0.0, bounds.reach, f"no interval: {reason}")
    elif interval in GUARANTEED:
        sampling = _guaranteed(case, interval)
    elif interval == "bootstrap" and (moments.rewarded or rows.q_target is not None):
        sampling = _bootstrap(case, replicates, seed)
    else:
        sampling = case.limits(value).interval
    extras = spread_facts(moments) | {"warnings": scores.warnings, "ratio": scores.linear is None}
    if not reason and rows.q_target is None:
        found, ratios = case.limits(value), ratio_limits(moments, bounds.one_reward, level)
        extras |= {"carrying": found.carrying, "heavy_tail": heavy_tail(moments, ratios.error)}
    extras["slope"] = scores.slope if rows.q_logged is None else max(float(np.max(rows.q_logged)), 0.0)
    whole = sampling
    below, above = hidden_part(case)
    if max(below, above) > 0.0:
        extras["changed"] = True
        whole = Interval(sampling.low - below, sampling.high + above, sampling.method)
        if scores.counts and interval == "auto" and not sampling.method.startswith("no interval"):
            unclipped = mean_limits(moments, bounds.one_reward, level, clipped=False).interval
            whole, facts = intersected(replace(whole, high=sampling.high), above, unclipped, value)
            extras |= facts
    return assemble(value, sampling, whole, moments, bounds, stated, estimator, level, extras)


def _bootstrap(case: Case, replicates: int, seed: int) -> Interval:
    scores, total = case.scores, np.zeros(1)
    for above, below in ((scores.linear, np.ones(case.rows.reward.size)), (scores.numerator, scores.denominator)):
        if above is not None and below is not None:
            total = total + poisson_ratios(case.sums(above), case.sums(below), replicates=replicates, seed=seed)
    half = (1.0 - case.level) / 2.0
    low, high = np.quantile(total, [half, 1.0 - half])
    return Interval(float(low), float(high), f"Poisson bootstrap, {unit(case.moments)}, percentile, asymptotic")


def _guaranteed(case: Case, interval: str) -> Interval:
    """Intervals for bounded scores; observations are users, in order of first appearance (docs/verdict.md)."""
    scores, rows, moments = case.scores, case.rows, case.moments
    assert scores.linear is not None
    if math.isinf(case.bounds.reach):
        return Interval(0.0, math.inf, f"{GUARANTEED[interval]}: no end without the range of rewards")
    sums, lengths = case.sums(scores.linear), case.sums(np.ones(rows.reward.size))
    if rows.clusters is not None:
        order = np.argsort(rows.clusters.first_rows(), kind="stable")
        sums, lengths = sums[order], lengths[order]
    longest, given = float(np.max(lengths)), case.stated.user_rows_max
    if given is not None and longest > given:
        raise UserError(f"user_rows_max is {given:g} and a user has {longest:g} rows; raise it")
    provisos = {
        "no user can have more rows": given is None and moments.clustered,
        "no larger weight is possible": case.stated.largest_weight is None and not math.isfinite(scores.most),
        "no larger reward is possible": case.bounds.stated is None,
    }
    longest = float(given) if given is not None and moments.clustered else longest
    most = case.largest * case.bounds.reach
    ends = betting(sums / (most * longest), lengths / longest, case.level, anytime=interval == "anytime")
    said = " and ".join(words for words, needed in provisos.items() if needed)
    words = f"{GUARANTEED[interval]}, {unit(moments)}" + (f", if {said}" if said else "")
    return Interval(ends[0] * most, ends[1] * most, words)


def hidden_part(case: Case) -> tuple[float, float]:
    """Distance below and above the estimate's mean that the value may be because weights were changed.

    With weights u in place of w the bias is E[(w - u)(r - q)], q = 0 without a reward model. Where the model is not
    negative either it is between -E[(w - u)+ q] - E[(u - w)+ r] and E[(w - u)+ r] + E[(u - w)+ q], each of
    which is taken at an upper limit; otherwise between the ranges of r - q times E[(w - u)+] and E[(u - w)+] (Bottou et
    al. 2013, eq. 12-13). Every limit is one-sided at half of 1 - level, by user.

    Returns:
        (below, above), in the reward's unit.
    """
    scores, rows, level, reach = case.scores, case.rows, case.level, case.bounds.one_reward
    if scores.used is None or scores.other_weights:
        return 0.0, 0.0
    if math.isinf(reach):
        return 0.0 if scores.counts else reach, reach
    n, users = rows.reward.size, rows.reward.size if rows.clusters is None else rows.clusters.number
    if users < 2:
        return reach, reach
    inflate = small_sample_factor(users, level)
    kept = np.minimum(rows.weight, scores.used)
    excess, more = rows.weight - kept, scores.used - kept
    cut = Cut(
        kept=float(np.mean(kept)),
        kept_variance=case.variance(kept - np.mean(kept)) * inflate,
        excess=float(np.mean(excess)),
        excess_variance=case.variance(excess) * inflate,
        reward=None,
        reward_variance=0.0,
        weight=float(np.mean(rows.weight)),
        weight_variance=case.variance(rows.weight - np.mean(rows.weight)) * inflate,
        largest=float(np.max(excess)) / n,
    )
    q = rows.q_logged if rows.q_logged is not None and not scores.counts else np.zeros(1)
    q_low, q_high = float(np.min(q)), float(np.max(q))
    if q_low < 0.0:
        up, down = max(reach - q_low, 0.0), max(q_high, 0.0)
        grown = student_limits(float(np.mean(more)), case.variance(more - np.mean(more)), users, level)[1]
        below, above = (clipping_bias_bound(cut, most, most, level) for most in (down, up))
        return below + grown * up, above + grown * down

    def lost(outcome: Floats, most: float, one: float) -> float:
        """Upper limit of E[(w - u)+ outcome]."""
        product = excess * outcome
        own = replace(cut, reward=float(np.mean(product)), reward_variance=case.variance(product) * inflate)
        return clipping_bias_bound(own, most, one, level) if most > 0.0 else 0.0

    def added(outcome: Floats, most: float) -> float:
        """Upper limit of E[(u - w)+ outcome]."""
        largest, product = float(np.max(more)) * most, more * outcome
        if largest <= 0.0:
            return 0.0
        return gamma_limits(float(np.mean(product)), case.variance(product) * inflate, largest / n, level)[1]

    below = lost(q, q_high, q_high) + added(rows.reward, reach)
    return below, lost(rows.reward, reach, reach) + added(q, q_high)


# ------------------------------------------------------------------------------------------------- value and difference

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
    full_support: bool | None = None,
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
    weights: Any = None,
    precision: float = PRECISION,
    **parameters: Any,
) -> Estimate:
    """Estimate what a target policy would have earned a decision on the log of another.

    Args:
        reward: (n,) observed rewards, any real numbers.
        propensity: (n,) in (0, 1], the logging policy's probability of the logged action.
        target: (n,) in [0, 1], the target policy's probability of the logged action.
        estimator: "auto" for the one that leads, "snips", or "clipped_ips" with a clip. Else a name of
            :data:`recsim_mnar.estimators.ESTIMATORS`, or ``package.module:function``: a function of
            :class:`recsim_mnar.estimators.off_policy.scores.Rows` that gives one score per row.
        clip: weights of the clipped estimators are cut there; None for no clipping.
        q_logged: (n,) a reward model's value of the logged action.
        q_target: (n,) its mean under the target policy.
        cluster: (n,) the user of each row, ids of any kind in any order. Without it rows are taken as independent.
        level: nominal coverage of the interval.
        interval: "auto" is Student's by user, on a log scale where rewards above the least one make a positive value.
            "bootstrap" is Poisson's, by user. "betting" and "anytime" (holds while the log grows by whole users) have a
            guarantee if ``reward_max``, ``weight_max`` or ``propensity_min``, and ``user_rows_max`` are given; without
            them the method's name says what it rests on.
        full_support: whether the logging policy can take whatever the target can; None where that is not known.
        unsupported: (n,) the target's mass, in each row's state, on actions whose logging probability is 0;
            `recsim-mnar replay` writes it where it can rebuild the logging policy.
        reward_min: least reward possible, from which rewards are counted; None for 0, or for the least reward of the
            log where that is negative.
        reward_max: largest reward possible; None where it is not known.
        weight_max: no weight target / propensity can be larger.
        propensity_min: no action that the target can take has a smaller propensity: epsilon / number of actions under
            an epsilon-greedy policy. States full support.
        user_rows_max: no user can have more rows; for the intervals with a guarantee.
        target_max: the target gives no action a larger probability, for callers who know all of its probabilities: with
            ``propensity_min`` no weight is above the ratio of the two.
        reward_limit: (n,) the largest reward possible of each row's action (its price, say).
        action: (n,) ids of the items shown; then the verdict says where the log proves propensities wrong item by item
            (:func:`recsim_mnar.estimators.off_policy.refuters.item_findings`).
        context: (n,) a column that was known before the item was chosen; then by item and level of it, too.
        weights: (n,) how many rows each row stands for, in a log that keeps only some of its rows; for ips and snips.
        precision: half the interval over the value up to which a value is trusted.
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
    stated = Stated(
        full_support, reward_min, reward_max, weight_max, propensity_min, user_rows_max, target_max, precision
    )
    rewards, clusters = _checked_rewards(reward, cluster)
    facts: dict[str, Any] = {"clusters": clusters, "stated": stated, "reward_limit": reward_limit}
    used_clip = clip if info.clips else None
    rows_per_row = None if weights is None else row_weights(weights, rewards.size, info)
    facts["rows_per_row"] = rows_per_row
    moments, p, t = _gathered(rewards, propensity, target, clip=used_clip, unsupported=unsupported, **facts)
    if info.from_moments and interval == "auto":
        name = AUTO if (estimator, clip) == (AUTO, None) else info.name
        found = estimate_from_moments(moments, name, level=level, stated=stated)
    else:
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
    return _with_findings(found, rewards, p, t, clusters, action, context, rows_per_row)


def row_weights(values: Any, rows: int, info: EstimatorInfo) -> Floats:
    """How many rows each row stands for, with mean 1, (n,).

    Raises:
        UserError: a weight that is not positive, or an estimator that has no use for weights of rows.
    """
    if info.name not in ("ips", "snips"):
        raise UserError(f"estimator {info.name!r} knows no weights of rows; use ips or snips")
    found = finite_column(values, "weights", rows)
    refuse_rows(found <= 0.0, found, "weights", "is not positive; give how many rows the row stands for")
    return found / float(np.mean(found))


def _asked(estimator: str, clip: float | None) -> EstimatorInfo:
    """The record of the estimator that is asked for; by itself the one that leads, with a clip "clipped_ips"."""
    if estimator == AUTO:
        return check_name(LEADING if clip is None else "clipped_ips")
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
    name: str = "target", rows_per_row: Floats | None = None,
) -> tuple[Moments, Floats, Floats]:  # fmt: skip
    """A policy's moments, the rows that contradict the statements, and the columns of propensities and targets."""
    p, t = column(propensity, "propensity", rows=reward.size), column(target, name, rows=reward.size)
    denied = stated.denied(t, p)
    if rows_per_row is not None:  # the weight t / p times the row's own, as two probabilities
        check_rows(reward, p, t, ("reward", "propensity", name))
        largest = float(np.max(rows_per_row))
        p, t = p / largest, t * (rows_per_row / largest)
    moments = Moments.of(
        reward, p, t, clip=clip, cluster=clusters, names=("reward", "propensity", name), unsupported=unsupported,
        reward_min=stated.reward_min, reward_max=stated.reward_max, reward_limit=reward_limit,
    )  # fmt: skip
    moments.denied, moments.thinned = denied, rows_per_row is not None
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
    estimate: Estimate,
    reward: Floats,
    p: Floats,
    target: Floats,
    clusters: Clusters | None,
    action: Any,
    context: Any,
    rows_per_row: Floats | None,
) -> Estimate:
    """The estimate, with the findings from the order of its rows and item by item.

    Raises:
        UserError: a context without the items shown.
    """
    if action is None and context is not None:
        raise UserError("context is read with the items shown: give action too, or omit context")
    found = []
    if rows_per_row is not None:  # earlier rows are missing, so their order says nothing
        if action is None:
            return estimate
        # Not by context: the rows of a level stand for more or fewer rows than they are.
        weighted = p * (float(np.max(rows_per_row)) / rows_per_row)
        return estimate.with_findings(item_findings(action, weighted, clusters))
    if action is not None:
        found += item_findings(action, p, clusters, context=context)
        found += RepeatSums.of(reward, p, action, clusters).findings()
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
    weights: Any = None,
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
        weights: (n,) likewise.
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
    rows_per_row = None if weights is None else row_weights(weights, rewards.size, info)
    given["rows_per_row"] = rows_per_row
    ours, p, t = _gathered(rewards, propensity, target, unsupported=unsupported, **given)
    theirs, _, b = _gathered(rewards, propensity, baseline, unsupported=baseline_unsupported, name="baseline", **given)
    pair = PairMoments(ours, theirs)
    pair.extend(rewards, p, t, b, clusters)
    name = AUTO if (estimator, clip) == (AUTO, None) else info.name
    found = estimate_difference(pair, name, level=level, stated=given["stated"])
    return _with_findings(found, rewards, p, t, clusters, action, context, rows_per_row)
