"""The value of a ranking policy, from a log of slates with one row per position.

The estimators are those of :mod:`recsim_mnar.estimators.ranking_records`: a score per row, whose mean is the value.
Intervals by user, diagnostics and verdicts are those of :func:`recsim_mnar.estimators.estimate_value`. The verdict also
checks what an estimator assumes of users: against estimators that assume less on the same slates, and against clicks.
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
"""Position weights by name: the mean per item shown, clicks per slate, sum of reward / log2(2 + position)."""
BEHAVIOURS = {"independent": "marginal", "cascade": "cumulative", "whole": "slate"}
"""Kind of weight of the positions that matter for a click, by the user's behaviour."""
TESTED = {"independent": BELOW + CLICKS, "cascade": BELOW, "additive": CLICKS, "unordered": CLICKS}
"""Share of the allowed errors that tests of clicks use, by premise; differences between estimators use the rest."""
TOLERABLE, WIDE = 0.2, 0.5
"""Shares of the value from which a proved bias is a reason for caution and against using the estimate."""
ROOM = 0.25
"""Largest overlooked bias, as a share of the interval's half width: it costs less than a hundredth of coverage."""
SAME = 1e-9
"""Largest difference of equal scores, as a share of the largest score."""
_OF_USERS = ("assumption", "position_effect", "clicks_after_click")
_FACTS = ("full_support", "reward_min", "reward_max", "weight_max", "propensity_min")


def position_factors(position_weights: Any, slate_size: int) -> Floats:
    """Return (k,) weights of the positions' rewards times the slate's size: the mean over rows is the value.

    Args:
        position_weights: "mean" per item shown, "clicks" per slate, "dcg" (sum of reward / log2(2 + position)), or (k,)
            weights that are not negative.
        slate_size: k.

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
    """Estimate the value of a policy that ranks from the log of another, by several estimators.

    ``diagnostics.assumption`` of an estimate has the evidence on what its estimator assumes of users.

    Args:
        columns: (n,) columns by name, one row per position: ``reward``, ``position`` (from 0 at the top), and the
            log's probabilities (:data:`LOGGED`); ``user``, ``slate`` and ``action`` where known. A mapping, a frame,
            or a :class:`recsim_mnar.log.Log`. Rows are whole slates from the top, or are sorted by ``user`` and
            ``slate``; those with a negative position are left out.
        target: name of the target policy's columns (NAME, NAME_conditional, NAME_slate, NAME_set, NAME_unsupported),
            or (n,) arrays by kind: marginal, conditional, slate, set.
        estimators: names of :data:`RANKING_ESTIMATORS`, or ``package.module:function``. None for all that the columns
            and arguments allow, without the self-normalised ones.
        position_weights: weights of the positions, see :func:`position_factors`.
        cluster: name of the user column, or (n,) ids. Without users slates are independent.
        level: nominal coverage of the intervals.
        clip: largest weight, or None. Self-normalised estimators and pseudo_inverse do not clip.
        assumption: knowledge about users, a key of :data:`STATEMENTS`. Without it the verdict of an estimator whose
            assumption the log cannot prove is at most caution.
        interval: see :func:`recsim_mnar.estimators.estimate_value`.
        from_today: estimate the difference from the logging policy, by estimators with weights alone.
        called: name of the target in advice, if ``target`` is arrays.
        **options: arguments of estimators (:data:`MEANING`), and of :class:`Facts`: full_support, reward_min and
            reward_max of a row, and weight_max and propensity_min, of whole slates or by kind of weight.

    Raises:
        UserError: invalid input, with the column and row; a clip for estimators that have none.
    """
    case = _Case(
        facts={name: options.pop(name, None) for name in _FACTS},
        position_weights=position_weights,
        level=level_of(level),
        interval=interval,
        clip=check_clip(clip),
        from_today=from_today,
        assumption=assumption,
        called=called or (target if isinstance(target, str) else "NAME"),
        log=read_log(columns, target, cluster),
        options=options,
    )
    return case.estimates(estimators)


@dataclass(frozen=True, kw_only=True)
class SlateDiagnostics(Diagnostics):
    """Numbers on what an estimate from slates rests on.

    Attributes:
        weight: kind of its weight.
        slate_size: items per slate.
        slates: number of slates.
        effective_slates: Kish's effective number of slates.
        position_weights: weights of the positions' rewards.
        assumption: assumption about users, a dict of :class:`AboutUsers`.
    """

    weight: str
    slate_size: int
    slates: int
    effective_slates: float
    position_weights: Any
    assumption: dict[str, Any]


def _of_kind(bound: Any, kind: str, worst: Callable[[Any], float]) -> Any:
    """Return the bound of one kind of weights; of "adaptive" the worst one of the kinds that it mixes."""
    if not isinstance(bound, Mapping):
        return bound
    if kind != "adaptive" or kind in bound:
        return bound.get(kind)
    bounds = [bound.get(mixed) for mixed in BEHAVIOURS.values()]
    if None in bounds:
        return None
    return worst(bounds)


def _reward_range(log: SlateLog, factor: Floats, least: float | None, most: float | None) -> tuple[Any, Any]:
    """Return the range of weighted rewards; None where an end is not known, or is 1 because rewards are clicks."""
    top = float(factor.max())
    low = float(factor.min())
    if most is None and not top == low == 1.0 and np.isin(log.reward, (0.0, 1.0)).all():
        most = 1.0
    if most is not None:
        most *= top
    if least is not None:
        least *= top if least < 0.0 else low
    return least, most


def _add_behaviour(log: SlateLog, behaviour: Any) -> None:
    """Add the kind "adaptive": each row's probabilities of the positions that matter to its user."""
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


def _chosen(
    estimators: Sequence[str] | str | None, log: SlateLog, options: Mapping[str, Any], *, equal_weights: bool
) -> list[RankingEstimatorInfo]:
    """Return the records of the requested estimators, or of all that are available.

    Args:
        estimators: names, one name, or None for all.
        log: the log.
        options: arguments of estimators.
        equal_weights: whether all positions have the same weight.

    Raises:
        UserError: an unknown estimator, or one that lacks a column or an argument.
    """
    if estimators is None:
        infos = []
        for info in RANKING_ESTIMATORS.values():
            available = info.weight in log.kinds and set(info.requires) <= set(options)
            if available and info.machine != "snips" and (equal_weights or info.weight != "set"):
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
        if info.weight not in log.kinds and (info.name in RANKING_ESTIMATORS or not log.kinds):
            whose = "target" if info.weight in log.logging else "log"
            raise UserError(f"estimator {info.name!r} needs {columns_of(info.weight, whose)}")
    accepted = {name for info in infos for name in (*info.requires, *info.takes)}
    for extra in sorted(set(options) - accepted):
        takes = ", ".join(sorted(accepted)) or "-"
        raise UserError(f"no estimator that is asked for takes {extra!r}; they take: {takes}")
    return infos


def _refuse_unclipped(infos: Sequence[RankingEstimatorInfo]) -> None:
    """Raise UserError for an estimator that does not clip."""
    for info in infos:
        if not info.clipped:
            message = f"estimator {info.name!r} does not clip its weights: leave the clip out"
            clipping = info.name.replace("_snips", "_ips")
            if clipping != info.name and clipping in RANKING_ESTIMATORS:
                message += f", or use {clipping}"
            raise UserError(message)


@dataclass(frozen=True)
class AboutUsers:
    """An estimator's assumption about users, and the log's evidence on it.

    Attributes:
        premise: key of the assumption.
        assumes: the assumption in words.
        stated: assumption that the caller states.
        differences: by an estimator that assumes less, how much larger this one is, with its limits.
        clicks: evidence of clicks.
    """

    premise: str
    assumes: str
    stated: str | None
    differences: Mapping[str, Limits]
    clicks: ClickFacts

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON types, the evidence of clicks among the other fields."""
        fields_of = asdict(self)
        clicks = fields_of.pop("clicks")
        return fields_of | clicks


def _objection(code: str, limits: Limits, severity: float = CAUTION, **params: Any) -> Finding:
    """Return the finding of a number whose limits exclude 0; its text has the size, and a word for the sign."""
    value, low, high = limits
    more, less = params.pop("sides", ("more", "less"))
    if value > 0.0:
        ends = {"low": low, "high": high, "side": more}
    else:
        ends = {"low": -high, "high": -low, "side": less}
    return Finding(code, severity, value, size=abs(value), **ends, **params)


def heavy_tail(weight: Floats, reward: Floats, apart: Floats) -> float:
    """Compute the ratio of the error expected from the weights to the error, slate by slate.

    Args:
        weight: (S, k) weights of the target.
        reward: (S, k) rewards above the least one.
        apart: (S, k) weights of the estimate: the same, or less 1 for a difference from the logging policy.
    """
    size, total_size = (np.sqrt(np.mean(part**2, axis=1)) for part in (weight, apart))
    value = float(np.sum(weight * reward) / np.sum(weight))
    deviation = np.sum(weight * (reward - value), axis=1)
    error = deviation
    if weight is not apart:
        error = deviation - np.sum(reward - np.mean(reward), axis=1)
    variance = float(np.sum(error**2))
    positive = size > 0.0
    spread = float(np.sum(deviation[positive] ** 2 / size[positive]) / np.sum(size))
    if variance > 0.0:
        return math.sqrt(spread * float(total_size @ total_size) / variance)
    return 1.0


def about_users(code: str) -> bool:
    """Return whether a finding's code concerns an estimator's assumption about users."""
    return code.startswith(_OF_USERS)


# ------------------------------------------------------------------------------------------------------------ one log


@dataclass(eq=False)
class _Case:
    """One log and the arguments of :func:`estimate_ranking_value`; shared results are computed once.

    Attributes:
        log: the log.
        options: arguments of estimators.
        facts: by name, bounds of weights of every kind or by kind, rewards before they are weighted.
        done: estimates so far, by estimator.
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
    called: str
    done: dict[str, Estimate] = field(default_factory=dict)
    _rows: dict[str, RankingRows] = field(default_factory=dict)
    _scores: dict[tuple[str, float], Scores] = field(default_factory=dict)

    def estimates(self, estimators: Sequence[str] | str | None) -> dict[str, Estimate]:
        """Estimate by each estimator, beginning with those that assume less, whose verdicts enter advice on others."""
        if self.assumption is not None and self.assumption not in STATEMENTS:
            raise UserError(f"assumption must be one of {', '.join(STATEMENTS)}, got {self.assumption!r}")
        if "behaviour" in self.options:
            _add_behaviour(self.log, self.options["behaviour"])
        infos = _chosen(estimators, self.log, self.options, equal_weights=bool(np.ptp(self.factor) == 0.0))
        if math.isfinite(self.clip) and estimators is not None:
            _refuse_unclipped(infos)
        if self.from_today:
            infos = [info for info in infos if info.machine in ("ips", "snips")]
        for info in sorted(infos, key=lambda info: len(info.less)):
            self.done[info.name] = self.judged(info)
        return {info.name: self.done[info.name] for info in infos}

    @cached_property
    def factor(self) -> Floats:
        """Return (n,) weights of the rows' rewards."""
        factors = position_factors(self.position_weights, self.log.slate_size)
        return np.tile(factors, self.log.reward.size // self.log.slate_size)

    def rows(self, info: RankingEstimatorInfo) -> RankingRows:
        """Return the columns, with the probabilities of the estimator's kind of weight."""
        if info.name in self._rows:
            return self._rows[info.name]
        log = self.log
        k = log.slate_size
        kind = info.weight
        if kind not in log.kinds:
            kind = log.kinds[0]
        reward = log.reward * self.factor
        weight = log.targets[kind] / log.logging[kind]
        q_logged = None
        q_target = None
        if info.machine == "dr":
            logged, mean = (finite_column(log.given(self.options[name]), name, reward.size) for name in info.requires)
            before = np.ones((reward.size // k, k))
            before[:, 1:] = log.by_slate(weight)[:, :-1]
            q_logged = logged * self.factor
            q_target = before.ravel() * mean * self.factor
        rows = RankingRows(
            reward=reward,
            propensity=log.logging[kind],
            target=log.targets[kind],
            weight=weight,
            q_logged=q_logged,
            q_target=q_target,
            clusters=log.clusters,
            clip=self.clip if info.clipped else math.inf,
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
        """Return the rows' scores, by an estimator of single items or by the estimator's own function."""
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
        """Return (n,) scores without clip and without normalisation."""
        scores = self.scores(info, replace(self.rows(info), clip=math.inf))
        if scores.linear is not None:
            return scores.linear
        assert scores.numerator is not None
        return scores.numerator

    def estimate(self, info: RankingEstimatorInfo) -> Estimate:
        """Return value, interval and verdict as for rows of single items."""
        rows = self.rows(info)
        reward_min, reward_max = _reward_range(
            self.log, self.factor, self.facts["reward_min"], self.facts["reward_max"]
        )
        facts = Facts(
            full_support=self.facts["full_support"],
            reward_min=reward_min,
            reward_max=reward_max,
            weight_max=_of_kind(self.facts["weight_max"], info.weight, max),
            propensity_min=_of_kind(self.facts["propensity_min"], info.weight, min),
        )
        refuse_outside(rows.reward, facts.reward_min, facts.reward_max, "reward")
        shift = facts.counted_from(float(np.min(rows.reward)))
        missing = None
        if info.weight == "marginal" and self.log.unsupported is not None:
            missing = missing_column(self.log.unsupported, rows.target)
        rows = replace(rows, reward=rows.reward - shift, shift=shift, missing=missing)
        name = info.item_estimator(rows.clip)
        if self.from_today:
            today = replace(rows, target=rows.propensity, weight=np.ones(rows.reward.size), missing=None)
            return difference_in_rows(rows, today, ESTIMATORS[name], facts=facts, level=self.level)
        policy = PolicySums.of_rows(rows, facts)
        scores = self.scores(info, rows)
        return estimate_scores(
            scores, rows, policy, name or info.name, facts=facts, level=self.level, interval=self.interval
        )

    def judged(self, info: RankingEstimatorInfo) -> Estimate:
        """Return the estimate with the findings on slates and users."""
        log = self.log
        rows = self.rows(info)
        estimate = self.estimate(info)
        signed = self.scores(info, rows).signed
        weight = log.by_slate(rows.weight).sum(1)
        if signed is not None:
            weight = signed[:: log.slate_size]
        ess = _effective(weight)
        differences = self.differences(info)
        if math.isfinite(rows.clip):
            used = _effective(np.minimum(rows.weight, rows.clip))
            estimate = replace(estimate, ess=used, diagnostics=replace(estimate.diagnostics, ess=used))
        findings = [self._of_slates(finding, info, estimate.n) for finding in estimate.verdict.findings]
        if ess < LEAST_ESS:
            severity = scaled(ess, LEAST_ESS, min(FEW_ESS, weight.size))
            findings.append(Finding("effective_slates", severity, ess, ess=ess, slates=weight.size))
        findings += [*self.of_users(info, estimate, differences), *self.of_items]
        about = AboutUsers(info.premise, info.assumes, self.assumption, differences, self.clicks)
        weights = self.position_weights
        diagnostics = SlateDiagnostics(
            **vars(estimate.diagnostics),
            weight=info.weight,
            slate_size=log.slate_size,
            slates=weight.size,
            effective_slates=ess,
            position_weights=weights if isinstance(weights, str) else np.asarray(weights, np.float64).tolist(),
            assumption=about.to_dict(),
        )
        return replace(estimate, estimator=info.name, diagnostics=diagnostics, verdict=Verdict.of(findings))

    def _of_slates(self, finding: Finding, info: RankingEstimatorInfo, n: int) -> Finding:
        """Turn a finding on rows into one on slates, with advice that fits the estimator."""
        rows = self.rows(info)
        clipped = math.isfinite(rows.clip)
        texts: dict[str, Any] = {"message": finding.message}
        if finding.code == "heavy_tail":
            weight = self.log.by_slate(rows.weight)
            apart = weight - 1.0 if self.from_today else weight
            times = heavy_tail(weight, self.log.by_slate(rows.reward), apart)
            return Finding("heavy_tail", scaled(times, HEAVY, np.inf), times, says="slates", do="slates", times=times)
        if finding.code == "heavy_row" and not clipped:
            texts["do"] = "slates" if info.clipped else "unclipped"
        elif finding.code == "bias_proved" and clipped:
            texts["do"] = "slates"
        elif finding.code == "effective_sample" and clipped:
            texts = {"action": finding.action, "says": "unclipped", "ess": finding.number, "rows": n}
        else:
            return finding
        return Finding(finding.code, finding.severity, finding.number, **texts)

    def of_users(
        self, info: RankingEstimatorInfo, estimate: Estimate, differences: Mapping[str, Limits]
    ) -> list[Finding]:
        """Check an estimator's assumption about users.

        Evidence against an assumption is an objection whether the assumption is stated or not, by the same test. All
        tests of one estimate together object to what is true about as often as the interval misses. Where nothing is
        stated the verdict is trust only if the log excludes a bias of more than ``ROOM`` times the half width of the
        estimate's interval, which costs the interval less than a hundredth of its coverage.
        """
        premise = info.premise
        if not premise:
            return []
        objections = [*self.contradicted(info, estimate, differences), *self.clicks_against(premise)]
        contradicted = any(objection.code == "assumption_contradicted" for objection in objections)
        stated = self.assumption is not None and premise in STATEMENTS[self.assumption]
        if contradicted or stated or premise == "behaviour":
            return objections
        return [*objections, self.untested(estimate, differences.get("slate_ips"))]

    def contradicted(
        self, info: RankingEstimatorInfo, estimate: Estimate, differences: Mapping[str, Limits]
    ) -> list[Finding]:
        """Test for a bias: an estimator that assumes less differs, or the items below matter."""
        proved = {name: limits for name, limits in differences.items() if excludes_0(limits)}
        below = self.clicks.items_below
        size = abs(estimate.value)
        if proved:
            name = max(proved, key=lambda name: abs(proved[name][0]))
            limits = proved[name]
            share = abs(limits[0]) / size if size > 0.0 else WIDE
            severity = min(max(scaled(share, TOLERABLE, WIDE), CAUTION), GRAVE)
            sides = ("above", "below")
            return [_objection("assumption_contradicted", limits, severity, sides=sides, **self.instead(name))]
        if below is not None and excludes_0(below) and info.premise in ("independent", "cascade"):
            return [_objection("assumption_contradicted", below, says="below", **self.instead("slate_ips"))]
        return []

    def clicks_against(self, premise: str) -> list[Finding]:
        """Return the evidence of clicks against a premise."""
        order = self.clicks.position_effect
        after = self.clicks.clicks_after_click
        if premise == "unordered" and order is not None and excludes_0(order):
            return [_objection("position_effect", order, **self.instead("slate_ips"))]
        if premise in ("independent", "additive") and after is not None and excludes_0(after):
            # Moods that change between a user's slates raise the rate after a click too, although each click depends on
            # its own item alone. No log can separate the two, so this is a caution and not a proof.
            return [_objection("clicks_after_click", after, **self.instead("reward_interaction_ips"))]
        return []

    def untested(self, estimate: Estimate, bound: Limits | None) -> Finding:
        """Bound the bias that the log does not show; ``bound`` is the difference from slate_ips."""
        size = abs(estimate.value)
        half = (estimate.high - estimate.low) / 2.0
        advice = self.instead("slate_ips")
        if self.assumption is not None:
            advice |= {"says": "other", "stated": self.assumption}
            return Finding("assumption_unstated", CAUTION, 1.0, **advice)
        if bound is None:
            return Finding("assumption_untested", CAUTION, np.inf, says=self.lacking, **advice)
        _, low, high = bound
        most = max(abs(low), abs(high))
        advice |= {"most": most, "share": 100.0 * most / size if size > 0.0 else math.inf}
        if (high - low) / 2.0 > TOLERABLE * size:
            return Finding("assumption_untested", CAUTION, most, says="few", **advice)
        severity = scaled(most / half, ROOM, np.inf) if half > 0.0 else CAUTION
        return Finding("assumption_unstated", severity, most, **advice)

    @cached_property
    def clicks(self) -> ClickFacts:
        """Return the evidence of clicks."""
        return click_facts(self.log, self.level)

    def differences(self, info: RankingEstimatorInfo) -> dict[str, Limits]:
        """Compute how much larger the estimator is than those that assume less; all limits together at the level."""
        simpler = [RANKING_ESTIMATORS[name] for name in info.less]
        comparable = [other for other in simpler if other.weight in self.log.kinds and self.sees_target(other)]
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

    def sees_target(self, info: RankingEstimatorInfo) -> bool:
        """Return whether the log has enough of the target's slates for a difference to be evidence about users."""
        return not self.log.gaps and _effective(self.log.by_slate(self.rows(info).weight).sum(1)) >= FEW_ESS

    @property
    def lacking(self) -> str:
        """Return why the log cannot bound the difference from slate_ips; a case of the text."""
        if "slate" not in self.log.logging:
            return "log"
        if "slate" not in self.log.targets:
            return "target"
        if self.log.gaps:
            return "gaps"
        return "hardly"

    def instead(self, name: str) -> dict[str, Any]:
        """Return parameters of advice: another estimator that can be used here, or the columns that it lacks."""
        other = RANKING_ESTIMATORS[name]
        lacks = [
            columns_of(other.weight, whose, self.called)
            for whose, by_kind in (("log", self.log.logging), ("target", self.log.targets))
            if other.weight not in by_kind
        ]
        if lacks:
            return {"do": "columns", "other": name, "columns": " and ".join(lacks)}
        if name in self.done:
            usable = self.done[name].verdict.level != "do_not_use"
        else:
            usable = self.sees_target(other)
        return {"do": "use" if usable else "small", "other": name}

    @cached_property
    def of_items(self) -> list[Finding]:
        """Check the propensities of items at their positions."""
        propensity = self.log.logging.get("marginal")
        if self.log.items is None or propensity is None:
            return []
        return item_findings(self.log.items, propensity, self.log.clusters)


def _effective(weight: Floats) -> float:
    """Return Kish's effective number of slates, or rows, of weights (n,)."""
    square = float(weight @ weight)
    if square > 0.0:
        return float(np.sum(weight)) ** 2 / square
    return 0.0
