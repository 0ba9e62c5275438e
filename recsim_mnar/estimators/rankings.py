"""The value of a ranking policy, from a log of slates with one row per position.

Each estimator of :mod:`recsim_mnar.estimators.ranking_records` gives a score per row, whose mean is the value.
Intervals by user, diagnostics and verdicts are computed as by :func:`recsim_mnar.estimators.estimate_value`. The
verdict also checks the estimator's assumption about users: by comparison with estimators that assume less, on the same
slates, and by direct evidence from clicks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.checks import FEW_ESS, HEAVY, LEAST_ESS
from recsim_mnar.estimators.facts import Facts, check_clip, missing_column, refuse_outside
from recsim_mnar.estimators.from_columns import difference_in_rows, estimate_scores
from recsim_mnar.estimators.ranking_records import (
    LOGGED,
    MEANING,
    RANKING_ESTIMATORS,
    STATEMENTS,
    RankingEstimatorInfo,
    RankingRows,
    SlateLog,
    columns_of,
    ranking_estimator,
    read_log,
)
from recsim_mnar.estimators.refuters import item_findings
from recsim_mnar.estimators.repeats import BELOW, CLICKS, ClickFacts, Limits, click_facts, excludes_0, mean_limits
from recsim_mnar.estimators.scores import ESTIMATORS, Scores
from recsim_mnar.estimators.sums import PolicySums
from recsim_mnar.estimators.verdict import CAUTION, GRAVE, Diagnostics, Estimate, Finding, Verdict, scaled
from recsim_mnar.kernels.checks import level_of
from recsim_mnar.log.columns import Floats, finite_column

SUMS = ("mean", "clicks", "dcg")
"""Names of position weights: the mean reward per item shown, clicks per slate, sum of reward / log2(2 + position)."""
BEHAVIOURS = {"independent": "marginal", "cascade": "cumulative", "whole": "slate"}
"""Kind of importance weight that covers the positions on which a click depends, by the user's behaviour."""
TESTED = {"independent": BELOW + CLICKS, "cascade": BELOW, "additive": CLICKS, "unordered": CLICKS}
"""Share of the error probability 1 - level that tests of clicks use, by premise. Comparisons with other estimators use
the rest, so that all tests of an estimate together reject a true assumption with a probability of at most 1 - level."""
TOLERABLE, WIDE = 0.2, 0.5
"""Shares of the value from which a proved bias makes the verdict caution, and do not use."""
ROOM = 0.25
"""Bias that a verdict of trust tolerates, as a share of the interval's half width: such a bias costs the interval less
than one hundredth of its coverage."""
SAME = 1e-9
"""Largest difference between scores that count as equal, as a share of the largest score."""
_CODES_ABOUT_USERS = ("assumption", "position_effect", "clicks_after_click")
"""Beginnings of the codes of findings about users."""
_FACTS = ("full_support", "reward_min", "reward_max", "weight_max", "propensity_min")
"""Keyword arguments of :func:`estimate_ranking_value` that state facts about the log."""


def position_factors(position_weights: Any, slate_size: int) -> Floats:
    """Return (k,) factors for the rewards of each position: the weights of the positions times the slate size k.

    The factor k makes the mean over rows, of which a slate has k, equal to the value per slate.

    Args:
        position_weights: "mean" for the mean reward per item shown, "clicks" for the sum of rewards per slate, "dcg"
            for the sum of reward / log2(2 + position), or (k,) weights that are not negative.
        slate_size: number k of items per slate.

    Raises:
        UserError: an unknown name, or invalid weights.
    """
    if isinstance(position_weights, str):
        if position_weights not in SUMS:
            raise UserError(f"position_weights must be one of {', '.join(SUMS)} or numbers, got {position_weights!r}")
        if position_weights == "mean":
            return np.ones(slate_size)
        if position_weights == "clicks":
            return np.full(slate_size, float(slate_size))
        return slate_size / np.log2(2.0 + np.arange(slate_size))
    factors = finite_column(position_weights, "position_weights", slate_size) * slate_size
    if np.any(factors < 0.0) or not np.any(factors > 0.0):
        raise UserError("position_weights must not be negative, and not all 0")
    return factors


def estimate_ranking_value(
    columns: Any,
    target: Any,
    *,
    estimators: Sequence[str] | str | None = None,
    position_weights: Any = "mean",
    cluster: Any = "user",
    level: float = 0.95,
    clip: float | None = None,
    assumption: str | None = None,
    interval: str = "auto",
    from_today: bool = False,
    called: str | None = None,
    **options: Any,
) -> dict[str, Estimate]:
    """Estimate the value of a policy that ranks items, from the log of another ranking policy, by several estimators.

    Args:
        columns: (n,) columns by name, one row per position: ``reward``, ``position`` (from 0 at the top), and the
            log's probabilities (:data:`LOGGED`); ``user``, ``slate`` and ``action`` if known. A mapping, a frame,
            or a :class:`recsim_mnar.log.Log`. Rows are whole slates from the top; if they are not, they are sorted by
            ``user``, ``slate`` and ``position``. Rows with a negative position are dropped.
        target: name of the target policy's columns (NAME, NAME_conditional, NAME_slate, NAME_set, NAME_unsupported),
            or (n,) arrays by kind of probability: marginal, conditional, slate, set.
        estimators: names of :data:`RANKING_ESTIMATORS`, or ``package.module:function``. None for all estimators that
            the columns and arguments allow, except the self-normalised ones.
        position_weights: weights of the positions, see :func:`position_factors`.
        cluster: name of the user column, or (n,) ids. Without users slates are taken as independent.
        level: nominal coverage of the intervals.
        clip: largest weight, or None. Self-normalised estimators and pseudo_inverse do not clip.
        assumption: assumption about users that the caller states, a key of :data:`STATEMENTS`. Without it the verdict
            on an estimator whose assumption the log cannot prove is at most caution.
        interval: kind of interval, see :func:`recsim_mnar.estimators.estimate_value`.
        from_today: whether to estimate the difference from the logging policy, by estimators that only weight rewards.
        called: name of the target policy in advice, if ``target`` is arrays.
        **options: arguments of estimators (:data:`MEANING`), and of :class:`Facts`: full_support, reward_min and
            reward_max of a row, and weight_max and propensity_min, each one number for whole slates or a mapping by
            kind of weight.

    Returns:
        The estimates by estimator name. ``diagnostics.assumption`` of each has the evidence on its estimator's
        assumption about users.

    Raises:
        UserError: invalid input, with the column and row; a clip for estimators that have none.
    """
    target_name = target if isinstance(target, str) else "NAME"
    case = _RankingEstimation(
        facts={name: options.pop(name, None) for name in _FACTS},
        position_weights=position_weights,
        level=level_of(level),
        interval=interval,
        clip=check_clip(clip),
        from_today=from_today,
        assumption=assumption,
        target_name=called or target_name,
        log=read_log(columns, target, cluster),
        options=options,
    )
    return case.estimates(estimators)


@dataclass(frozen=True, kw_only=True)
class SlateDiagnostics(Diagnostics):
    """Diagnostics of an estimate from slates: those of its rows, and some of its slates.

    Attributes:
        weight: kind of the estimator's importance weight.
        slate_size: number of items per slate.
        slates: number of slates.
        effective_slates: Kish's effective number of slates.
        position_weights: weights of the positions' rewards: their name, or a list of numbers.
        assumption: fields of :class:`AboutUsers`.
    """

    weight: str
    slate_size: int
    slates: int
    effective_slates: float
    position_weights: Any
    assumption: dict[str, Any]


def _bound_for(kind: str, bound: Any, worst: Callable[[Any], float]) -> Any:
    """Return the stated bound for one kind of weights, or None if none is stated.

    Args:
        kind: kind of weight. "adaptive" weights mix several kinds and get the worst of their bounds.
        bound: one number for all kinds, a mapping by kind, or None.
        worst: ``max`` for upper and ``min`` for lower bounds.
    """
    if not isinstance(bound, Mapping):
        return bound
    if kind != "adaptive" or kind in bound:
        return bound.get(kind)
    bounds = [bound.get(mixed) for mixed in BEHAVIOURS.values()]
    if None in bounds:
        return None
    return worst(bounds)


def _reward_range(log: SlateLog, factor: Floats, least: float | None, most: float | None) -> tuple[Any, Any]:
    """Compute the range of weighted rewards from the stated range of the logged ones.

    Args:
        log: the log; rewards of 0 and 1 only are taken as clicks, which are at most 1.
        factor: (n,) factors of the rewards.
        least: least logged reward, as stated; None if it is not.
        most: largest logged reward, as stated; None if it is not.

    Returns:
        The least weighted reward, None if it is not known.
        The largest weighted reward, None if it is not known.
    """
    top = float(factor.max())
    low = float(factor.min())
    # With all factors 1 the largest weighted reward is in the log, and need not be stated.
    if most is None and not top == low == 1.0 and np.isin(log.reward, (0.0, 1.0)).all():
        most = 1.0
    if most is not None:
        most *= top
    if least is not None:
        least *= top if least < 0.0 else low
    return least, most


def _add_behaviour(log: SlateLog, behaviour: Any) -> None:
    """Add probabilities of the kind "adaptive" to a log in place: in each row those of the kind for its behaviour.

    Args:
        log: the log, to whose ``logging`` and ``targets`` the kind is added.
        behaviour: (n,) keys of :data:`BEHAVIOURS`, or one key for all rows.

    Raises:
        UserError: an unknown behaviour, or a kind of probabilities that the log or the target lacks.
    """
    behaviours = np.broadcast_to(np.asarray(log.given(behaviour)), log.reward.shape)
    if not np.isin(behaviours, list(BEHAVIOURS)).all():
        raise UserError(
            f"behaviour must be one of {', '.join(BEHAVIOURS)} per row, got {np.unique(behaviours)[:4].tolist()}"
        )
    masks = {BEHAVIOURS[name]: behaviours == name for name in BEHAVIOURS if np.any(behaviours == name)}
    for name, kind in BEHAVIOURS.items():
        if kind in masks and kind not in log.kinds:
            raise UserError(f"behaviour {name!r} needs {columns_of(kind, 'log')} and {columns_of(kind, 'target')}")
    for by_kind in (log.logging, log.targets):
        by_kind["adaptive"] = np.select(list(masks.values()), [by_kind[kind] for kind in masks])


def _select_estimators(
    estimators: Sequence[str] | str | None, log: SlateLog, options: Mapping[str, Any], *, equal_weights: bool
) -> list[RankingEstimatorInfo]:
    """Return the records of the requested estimators, or of all available ones.

    Args:
        estimators: names, one name, or None for all that are available except the self-normalised ones.
        log: log whose columns they use.
        options: arguments of estimators.
        equal_weights: whether all positions have the same weight; estimators that ignore the order need that.

    Raises:
        UserError: an unknown estimator, one that lacks a column or an argument, or an argument that none takes.
    """
    if estimators is None:
        infos = []
        for info in RANKING_ESTIMATORS.values():
            available = info.weight in log.kinds and set(info.requires) <= set(options)
            if available and info.item_estimator_name != "snips" and (equal_weights or info.weight != "set"):
                infos.append(info)
        if not infos:
            raise UserError(
                f"no estimator has its columns: give for log and target one of {', '.join(LOGGED)} (the columns "
                f"{', '.join(LOGGED.values())} and NAME, NAME_conditional, NAME_slate, NAME_set)"
            )
    else:
        if isinstance(estimators, str):
            estimators = [estimators]
        infos = [ranking_estimator(name) for name in estimators]
    for info in infos:
        if info.weight == "set" and not equal_weights:
            why = "forgets the order of the items, so all positions must weigh alike"
            raise UserError(f"estimator {info.name!r} {why}: use slate_ips")
        for need in info.requires:
            if options.get(need) is None:
                raise UserError(f"estimator {info.name!r} needs {need}: {MEANING.get(need, 'an argument of its own')}")
        # A user's own function may do with any kind of probabilities.
        if info.weight not in log.kinds and (info.name in RANKING_ESTIMATORS or not log.kinds):
            whose = "target" if info.weight in log.logging else "log"
            raise UserError(f"estimator {info.name!r} needs {columns_of(info.weight, whose)}")
    accepted = {name for info in infos for name in (*info.requires, *info.takes)}
    for extra in sorted(set(options) - accepted):
        takes = ", ".join(sorted(accepted)) or "-"
        raise UserError(f"no estimator that is asked for takes {extra!r}; they take: {takes}")
    return infos


def _refuse_unclipped(infos: Sequence[RankingEstimatorInfo]) -> None:
    """Raise UserError for the first estimator that does not clip its weights, with one that does as advice."""
    for info in infos:
        if not info.clipped_item_estimator:
            message = f"estimator {info.name!r} does not clip its weights: leave the clip out"
            clipping = info.name.replace("_snips", "_ips")
            if clipping != info.name and clipping in RANKING_ESTIMATORS:
                message += f", or use {clipping}"
            raise UserError(message)


@dataclass(frozen=True)
class AboutUsers:
    """An estimator's assumption about users, and the log's evidence for or against it.

    Attributes:
        premise: key of the assumption in :data:`PREMISES`.
        assumes: assumption in words.
        stated: assumption that the caller states, or None.
        differences: this estimate minus that of each estimator that assumes less, with confidence limits, by the name
            of the latter.
        clicks: direct evidence from clicks.
    """

    premise: str
    assumes: str
    stated: str | None
    differences: Mapping[str, Limits]
    clicks: ClickFacts

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types, with the fields of ``clicks`` at the same level as the others."""
        by_name = asdict(self)
        clicks = by_name.pop("clicks")
        return by_name | clicks


def _finding_on(code: str, limits: Limits, severity: float = CAUTION, **params: Any) -> Finding:
    """Return a finding about a number whose confidence limits exclude 0.

    The text gives the absolute value and limits, and a word for the sign.

    Args:
        code: code of the finding.
        limits: the number and its limits.
        severity: severity of the finding.
        **params: parameters of the text; ``sides`` are the words for a positive and a negative number.
    """
    value, low, high = limits
    positive_word, negative_word = params.pop("sides", ("more", "less"))
    if value > 0.0:
        ends = {"low": low, "high": high, "side": positive_word}
    else:
        ends = {"low": -high, "high": -low, "side": negative_word}
    return Finding(code, severity, value, size=abs(value), **ends, **params)


def heavy_tail(weight: Floats, reward: Floats, apart: Floats) -> float:
    """Compute the ratio of the standard error expected from the weights to the observed one.

    The ratio is above 1 if the heaviest slates happened to earn little, so that the interval is too narrow. The
    expected variance assumes that rewards do not depend on the weights: the sum of squared slate weights times the
    variance of a slate's reward under the target. Each slate counts as one observation.

    Args:
        weight: (S, k) weights of the target.
        reward: (S, k) rewards above the least one.
        apart: (S, k) weights of the estimate: the same array, or weight - 1 for a difference from the logging policy.

    Returns:
        The ratio; 1 if the estimate has no variance.
    """
    # A slate's weight is the root mean square of the weights of its positions.
    slate_weight, slate_apart = (np.sqrt(np.mean(part**2, axis=1)) for part in (weight, apart))
    value = float(np.sum(weight * reward) / np.sum(weight))
    deviation = np.sum(weight * (reward - value), axis=1)
    error = deviation
    if weight is not apart:
        error = deviation - np.sum(reward - np.mean(reward), axis=1)
    variance = float(np.sum(error**2))
    positive = slate_weight > 0.0
    # Per unit of slate weight, a deviation is (reward - value): its mean square under the target.
    spread = float(np.sum(deviation[positive] ** 2 / slate_weight[positive]) / np.sum(slate_weight))
    if variance > 0.0:
        return math.sqrt(spread * float(slate_apart @ slate_apart) / variance)
    return 1.0


def about_users(code: str) -> bool:
    """Return whether a finding with this code concerns an estimator's assumption about users."""
    return code.startswith(_CODES_ABOUT_USERS)


# ------------------------------------------------------------------------------------------------------------ one log


@dataclass(eq=False)
class _RankingEstimation:
    """One log and the arguments of :func:`estimate_ranking_value`; results that estimators share are computed once.

    Attributes:
        log: checked columns.
        options: arguments of estimators, by name.
        facts: stated facts by name (:data:`_FACTS`): bounds of weights are one number or a mapping by kind, and those
            of rewards are meant before position weights are applied.
        position_weights: weights of the positions, see :func:`position_factors`.
        level: nominal coverage.
        interval: kind of interval.
        clip: largest weight; inf for none.
        from_today: whether the difference from the logging policy is estimated instead of the value.
        assumption: assumption about users that the caller states, or None.
        target_name: name of the target policy in advice.
        done: estimates so far, by estimator name.
        _rows: rows by estimator name.
        _scores: scores of estimators with a function of their own, by their name and the reward that was subtracted.
    """

    log: SlateLog
    options: Mapping[str, Any]
    facts: Mapping[str, Any]
    position_weights: Any
    level: float
    interval: str
    clip: float
    from_today: bool
    assumption: str | None
    target_name: str
    done: dict[str, Estimate] = field(default_factory=dict)
    _rows: dict[str, RankingRows] = field(default_factory=dict)
    _scores: dict[tuple[str, float], Scores] = field(default_factory=dict)

    def estimates(self, estimators: Sequence[str] | str | None) -> dict[str, Estimate]:
        """Return the estimates by estimator name, in the requested order.

        Estimators that assume less come first, because their verdicts decide the advice on those that assume more.
        """
        if self.assumption is not None and self.assumption not in STATEMENTS:
            raise UserError(f"assumption must be one of {', '.join(STATEMENTS)}, got {self.assumption!r}")
        if "behaviour" in self.options:
            _add_behaviour(self.log, self.options["behaviour"])
        equal_weights = bool(np.ptp(self.factor) == 0.0)
        infos = _select_estimators(estimators, self.log, self.options, equal_weights=equal_weights)
        if math.isfinite(self.clip) and estimators is not None:
            _refuse_unclipped(infos)
        if self.from_today:
            infos = [info for info in infos if info.item_estimator_name in ("ips", "snips")]
        for info in sorted(infos, key=lambda info: len(info.weaker)):
            self.done[info.name] = self.estimate_with_findings(info)
        return {info.name: self.done[info.name] for info in infos}

    @cached_property
    def factor(self) -> Floats:
        """The (n,) factors of the rows' rewards."""
        factors = position_factors(self.position_weights, self.log.slate_size)
        return np.tile(factors, self.log.reward.size // self.log.slate_size)

    def rows(self, info: RankingEstimatorInfo) -> RankingRows:
        """Return an estimator's rows, cached: probabilities of its kind of weight, and weighted rewards."""
        if info.name in self._rows:
            return self._rows[info.name]
        log = self.log
        k = log.slate_size
        kind = info.weight
        if kind not in log.kinds:  # a user's own function chooses among the kinds by itself
            kind = log.kinds[0]
        reward = log.reward * self.factor
        weight = log.targets[kind] / log.logging[kind]
        q_logged = None
        q_target = None
        if info.item_estimator_name == "dr":
            # Cascade DR (Kiyohara et al. 2022): the model's mean at a position holds given the items above it, so it is
            # weighted by the weight of those items; that of the top position is 1.
            logged, mean = (finite_column(log.given(self.options[name]), name, reward.size) for name in info.requires)
            weight_above = np.ones((reward.size // k, k))
            weight_above[:, 1:] = log.by_slate(weight)[:, :-1]
            q_logged = logged * self.factor
            q_target = weight_above.ravel() * mean * self.factor
        rows = RankingRows(
            reward=reward,
            propensity=log.logging[kind],
            target=log.targets[kind],
            weight=weight,
            q_logged=q_logged,
            q_target=q_target,
            clusters=log.clusters,
            clip=self.clip if info.clipped_item_estimator else math.inf,
            slate_size=k,
            position=np.tile(np.arange(k), reward.size // k),
            action=log.action,
            logging=log.logging,
            targets=log.targets,
            factor=self.factor,
        )
        self._rows[info.name] = rows
        return rows

    def scores(self, info: RankingEstimatorInfo, rows: RankingRows) -> Scores:
        """Return the scores of rows, computed by an estimator of single items or by the estimator's own function."""
        name = info.item_estimator(rows.clip)
        if name:
            return ESTIMATORS[name].scores(rows)
        key = (info.name, rows.shift)
        if key not in self._scores:
            assert info.scores is not None
            names = [name for name in (*info.requires, *info.takes) if name in self.options]
            self._scores[key] = info.scores(rows, **{name: self.log.given(self.options[name]) for name in names})
        return self._scores[key]

    def row_scores(self, info: RankingEstimatorInfo) -> Floats:
        """Return (n,) scores without clipping and without self-normalisation, to compare estimators row by row."""
        scores = self.scores(info, replace(self.rows(info), clip=math.inf))
        if scores.linear is not None:
            return scores.linear
        assert scores.numerator is not None
        return scores.numerator

    def _facts_for(self, info: RankingEstimatorInfo) -> Facts:
        """Return the stated facts as they apply to an estimator's weights and weighted rewards."""
        reward_min, reward_max = _reward_range(
            self.log, self.factor, self.facts["reward_min"], self.facts["reward_max"]
        )
        return Facts(
            full_support=self.facts["full_support"],
            reward_min=reward_min,
            reward_max=reward_max,
            weight_max=_bound_for(info.weight, self.facts["weight_max"], worst=max),
            propensity_min=_bound_for(info.weight, self.facts["propensity_min"], worst=min),
        )

    def _shifted_rows(self, info: RankingEstimatorInfo, facts: Facts) -> RankingRows:
        """Return an estimator's rows with the least reward subtracted, and the target's mass that the log lacks.

        Intervals and bounds of the bias need rewards that are not negative.
        """
        rows = self.rows(info)
        refuse_outside(rows.reward, facts.reward_min, facts.reward_max, "reward")
        shift = facts.counted_from(float(np.min(rows.reward)))
        missing = None
        if info.weight == "marginal" and self.log.unsupported is not None:
            missing = missing_column(self.log.unsupported, rows.target)
        return replace(rows, reward=rows.reward - shift, shift=shift, missing=missing)

    def estimate(self, info: RankingEstimatorInfo) -> Estimate:
        """Return value, interval and verdict, treating rows like decisions on single items."""
        facts = self._facts_for(info)
        rows = self._shifted_rows(info, facts)
        name = info.item_estimator(rows.clip)
        if self.from_today:
            # The logging policy as a target: each weight is 1.
            logging = replace(rows, target=rows.propensity, weight=np.ones(rows.reward.size), missing=None)
            return difference_in_rows(rows, logging, ESTIMATORS[name], facts=facts, level=self.level)
        policy = PolicySums.of_rows(rows, facts)
        scores = self.scores(info, rows)
        return estimate_scores(
            scores, rows, policy, name or info.name, facts=facts, level=self.level, interval=self.interval
        )

    def estimate_with_findings(self, info: RankingEstimatorInfo) -> Estimate:
        """Return the estimate with findings on its rows, slates, users and items."""
        log = self.log
        rows = self.rows(info)
        estimate = self.estimate(info)
        signed = self.scores(info, rows).signed
        slate_weight = log.by_slate(rows.weight).sum(1)
        if signed is not None:  # one weight per slate, repeated in each of its rows
            slate_weight = signed[:: log.slate_size]
        effective_slates = _effective_size(slate_weight)
        differences = self.differences(info)
        if math.isfinite(rows.clip):
            ess = _effective_size(np.minimum(rows.weight, rows.clip))
            estimate = replace(estimate, ess=ess, diagnostics=replace(estimate.diagnostics, ess=ess))
        findings = [self._in_words_of_slates(finding, info, estimate.n) for finding in estimate.verdict.findings]
        if effective_slates < LEAST_ESS:
            severity = scaled(effective_slates, LEAST_ESS, min(FEW_ESS, slate_weight.size))
            counts = {"ess": effective_slates, "slates": slate_weight.size}
            findings.append(Finding("effective_slates", severity, effective_slates, **counts))
        findings += [*self.findings_about_users(info, estimate, differences), *self.findings_about_items]
        about = AboutUsers(info.premise, info.assumes, self.assumption, differences, self.clicks)
        weights = self.position_weights
        if not isinstance(weights, str):
            weights = np.asarray(weights, np.float64).tolist()
        diagnostics = SlateDiagnostics(
            **vars(estimate.diagnostics),
            weight=info.weight,
            slate_size=log.slate_size,
            slates=slate_weight.size,
            effective_slates=effective_slates,
            position_weights=weights,
            assumption=about.to_dict(),
        )
        return replace(estimate, estimator=info.name, diagnostics=diagnostics, verdict=Verdict.of(findings))

    def _in_words_of_slates(self, finding: Finding, info: RankingEstimatorInfo, n: int) -> Finding:
        """Return a finding on rows in the words of slates, with advice that the estimator allows.

        Args:
            finding: finding on the rows.
            info: record of the estimator.
            n: number of rows.
        """
        rows = self.rows(info)
        clipped = math.isfinite(rows.clip)
        texts: dict[str, Any] = {"message": finding.message}
        if finding.code == "heavy_tail":
            weight = self.log.by_slate(rows.weight)
            apart = weight - 1.0 if self.from_today else weight
            # Computed anew: the weights of a slate's rows are not independent of each other.
            times = heavy_tail(weight, self.log.by_slate(rows.reward), apart)
            return Finding("heavy_tail", scaled(times, HEAVY, np.inf), times, says="slates", do="slates", times=times)
        if finding.code == "heavy_row" and not clipped:
            texts["do"] = "slates" if info.clipped_item_estimator else "unclipped"
        elif finding.code == "bias_proved" and clipped:
            texts["do"] = "slates"
        elif finding.code == "effective_sample" and clipped:
            texts = {"action": finding.action, "says": "unclipped", "ess": finding.number, "rows": n}
        else:
            return finding
        return Finding(finding.code, finding.severity, finding.number, **texts)

    def findings_about_users(
        self, info: RankingEstimatorInfo, estimate: Estimate, differences: Mapping[str, Limits]
    ) -> list[Finding]:
        """Test an estimator's assumption about users.

        Evidence against an assumption counts whether the caller states the assumption or not, by the same test. Taken
        together, the tests of one estimate reject a true assumption about as often as its interval misses the value. If
        the caller states nothing, the verdict is trust only if the log excludes a bias of more than ``ROOM`` times the
        half width of the interval.

        Args:
            info: record of the estimator.
            estimate: its estimate.
            differences: its differences from estimators that assume less (:meth:`differences`).
        """
        premise = info.premise
        if not premise:
            return []
        objections = [*self._proved_bias(info, estimate, differences), *self._clicks_against(premise)]
        contradicted = any(objection.code == "assumption_contradicted" for objection in objections)
        stated = self.assumption is not None and premise in STATEMENTS[self.assumption]
        if contradicted or stated or premise == "behaviour":  # a column of behaviours is itself a statement
            return objections
        return [*objections, self._bias_left_open(estimate, differences.get("slate_ips"))]

    def _proved_bias(
        self, info: RankingEstimatorInfo, estimate: Estimate, differences: Mapping[str, Limits]
    ) -> list[Finding]:
        """Return the finding of a proved bias, if any.

        A bias is proved if an estimator that assumes less differs, or if clicks depend on items further down.
        """
        proved = {name: limits for name, limits in differences.items() if excludes_0(limits)}
        below = self.clicks.items_below
        size = abs(estimate.value)
        if proved:
            name = max(proved, key=lambda name: abs(proved[name][0]))
            limits = proved[name]
            share = abs(limits[0]) / size if size > 0.0 else WIDE
            severity = min(max(scaled(share, TOLERABLE, WIDE), CAUTION), GRAVE)
            advice = self._advice_to_use(name)
            return [_finding_on("assumption_contradicted", limits, severity, sides=("above", "below"), **advice)]
        if below is not None and excludes_0(below) and info.premise in ("independent", "cascade"):
            return [_finding_on("assumption_contradicted", below, says="below", **self._advice_to_use("slate_ips"))]
        return []

    def _clicks_against(self, premise: str) -> list[Finding]:
        """Return the finding of clicks that contradict a premise, if any."""
        order = self.clicks.position_effect
        after = self.clicks.clicks_after_click
        if premise == "unordered" and order is not None and excludes_0(order):
            return [_finding_on("position_effect", order, **self._advice_to_use("slate_ips"))]
        if premise in ("independent", "additive") and after is not None and excludes_0(after):
            # Moods that change between a user's slates raise the rate after a click too, although each click depends on
            # its own item alone. No log can separate the two, so this is a caution and not a proof.
            return [_finding_on("clicks_after_click", after, **self._advice_to_use("reward_interaction_ips"))]
        return []

    def _bias_left_open(self, estimate: Estimate, bound: Limits | None) -> Finding:
        """Return the finding of an assumption that is neither stated nor contradicted, by the bias that it may hide.

        Args:
            estimate: the estimate.
            bound: difference from slate_ips, which assumes nothing, with its limits; None if the log cannot tell it.
        """
        size = abs(estimate.value)
        half = (estimate.high - estimate.low) / 2.0
        advice = self._advice_to_use("slate_ips")
        if self.assumption is not None:
            advice |= {"says": "other", "stated": self.assumption}
            return Finding("assumption_unstated", CAUTION, 1.0, **advice)
        if bound is None:
            return Finding("assumption_untested", CAUTION, np.inf, says=self._why_no_bound, **advice)
        _, low, high = bound
        most = max(abs(low), abs(high))
        advice |= {"most": most, "share": 100.0 * most / size if size > 0.0 else math.inf}
        if (high - low) / 2.0 > TOLERABLE * size:
            return Finding("assumption_untested", CAUTION, most, says="few", **advice)
        severity = scaled(most / half, ROOM, np.inf) if half > 0.0 else CAUTION
        return Finding("assumption_unstated", severity, most, **advice)

    @cached_property
    def clicks(self) -> ClickFacts:
        """The direct evidence from clicks."""
        return click_facts(self.log, self.level)

    def differences(self, info: RankingEstimatorInfo) -> dict[str, Limits]:
        """Compute how much an estimator exceeds each one that assumes less, with limits, by the name of the latter.

        The limits hold jointly for all differences, and together with the tests of clicks (Bonferroni).
        """
        weaker = [RANKING_ESTIMATORS[name] for name in info.weaker]
        comparable = [other for other in weaker if other.weight in self.log.kinds and self._has_enough_slates(other)]
        share = 1.0 - TESTED.get(info.premise, 0.0)
        level = 1.0 - share * (1.0 - self.level) / max(len(comparable), 1)
        scores = self.row_scores(info)
        differences = {}
        for other in comparable:
            parts = scores - self.row_scores(other)
            limits = (0.0, 0.0, 0.0)
            # Estimators that agree on every row differ by rounding errors, all of which may have one sign.
            if float(np.max(np.abs(parts))) > SAME * float(np.max(np.abs(scores))):
                limits = mean_limits(parts, self.log.clusters, level)
            differences[other.name] = limits
        return differences

    def _has_enough_slates(self, info: RankingEstimatorInfo) -> bool:
        """Return whether the log has enough of the target's slates for a difference to be evidence about users."""
        slate_weight = self.log.by_slate(self.rows(info).weight).sum(1)
        return not self.log.gaps and _effective_size(slate_weight) >= FEW_ESS

    @property
    def _why_no_bound(self) -> str:
        """The reason why the log cannot bound the difference from slate_ips: a case of the text in findings.toml."""
        if "slate" not in self.log.logging:
            return "log"
        if "slate" not in self.log.targets:
            return "target"
        if self.log.gaps:
            return "gaps"
        return "hardly"

    def _advice_to_use(self, name: str) -> dict[str, Any]:
        """Return parameters of the advice to use another estimator: that it can be used, or the missing columns."""
        other = RANKING_ESTIMATORS[name]
        lacks = [
            columns_of(other.weight, whose, self.target_name)
            for whose, by_kind in (("log", self.log.logging), ("target", self.log.targets))
            if other.weight not in by_kind
        ]
        if lacks:
            return {"do": "columns", "other": name, "columns": " and ".join(lacks)}
        if name in self.done:
            usable = self.done[name].verdict.level != "do_not_use"
        else:
            usable = self._has_enough_slates(other)
        return {"do": "use" if usable else "small", "other": name}

    @cached_property
    def findings_about_items(self) -> list[Finding]:
        """The finding of items whose propensities the log disproves, if any."""
        propensity = self.log.logging.get("marginal")
        if self.log.items is None or propensity is None:
            return []
        return item_findings(self.log.items, propensity, self.log.clusters)


def _effective_size(weight: Floats) -> float:
    """Return Kish's effective sample size of weights (n,), of slates or of rows; 0 if all weights are 0."""
    square = float(weight @ weight)
    if square > 0.0:
        return float(np.sum(weight)) ** 2 / square
    return 0.0
