"""The value of a policy that ranks, from a log of slates with one row per position.

The estimators are those of :mod:`recsim_mnar.estimators.ranking_records`: a score per row, whose mean is the value.
Intervals by user, diagnostics and verdicts are those of :func:`recsim_mnar.estimators.estimate_value`. Added to it is
what the log says of users: an estimator that assumes more is compared with one that assumes less on the same slates,
and clicks are asked directly.
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
"""Behaviours of users, and the kind of weight of the positions that matter for a click."""
TESTED = {"independent": BELOW + CLICKS, "cascade": BELOW, "additive": CLICKS, "unordered": CLICKS}
"""Share of the errors that clicks have, by premise; differences between estimators have the rest."""
TOLERABLE, WIDE = 0.2, 0.5
"""Shares of the value from which a proved bias is a reason for caution and against using the estimate."""
ROOM = 0.25
"""Share of the interval's half width that an overlooked bias may have: it costs less than a hundredth of coverage."""
SAME = 1e-9
"""Share of the largest score by which scores that are the same may differ."""
_OF_USERS = ("assumption", "position_effect", "clicks_after_click")


def position_factors(position_weights: Any, slate_size: int) -> Floats:
    """(k,) what the reward of each position counts, times the slate's size: its mean over rows is the value.

    Args:
        position_weights: "mean" per item shown, "clicks" per slate, "dcg" (sum of reward / log2(2 + position)), or (k,)
            weights that are not negative.
        slate_size: k.

    Raises:
        UserError: another name, or other weights.
    """
    named: dict[str, Floats] = {
        "mean": np.ones(slate_size),
        "clicks": np.full(slate_size, float(slate_size)),
        "dcg": slate_size / np.log2(2.0 + np.arange(slate_size)),
    }
    if isinstance(position_weights, str):
        if position_weights not in named:
            raise UserError(f"position_weights must be one of {', '.join(SUMS)} or numbers, got {position_weights!r}")
        return named[position_weights]
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
    reward_min: float | None = None,
    reward_max: float | None = None,
    full_support: bool | None = None,
    weight_max: float | Mapping[str, float] | None = None,
    propensity_min: float | Mapping[str, float] | None = None,
    called: str | None = None,
    **given: Any,
) -> dict[str, Estimate]:
    """Estimate what a policy that ranks would have earned on the log of another.

    Args:
        columns: (n,) columns by name, one row per position: ``reward``, ``position`` (from 0 at the top), and the log's
            probabilities that the estimators need (:data:`LOGGED`); ``user``, ``slate`` and ``action`` where known. A
            mapping, a frame, or a :class:`recsim_mnar.log.Log`. Slates stand together from the top, or are sorted by
            ``user`` and ``slate``. Rows with a negative position are left out.
        target: name of the target policy's columns (NAME, NAME_conditional, NAME_slate, NAME_set, NAME_unsupported),
            or (n,) arrays by kind: marginal, conditional, slate, set.
        estimators: names of :data:`RANKING_ESTIMATORS`, or ``package.module:function`` (:func:`ranking_estimator`).
            None for all that the columns and arguments allow, but for the self-normalised ones.
        position_weights: what is estimated, see :func:`position_factors`.
        cluster: a column's name, or (n,) ids: whose rows belong together. Without users slates are taken as
            independent.
        level: nominal coverage of the intervals.
        clip: weights are cut there; None for no clipping. Self-normalised estimators and pseudo_inverse have none.
        assumption: what is known of users: "independent", "cascade", "unordered" or "whole"
            (:data:`recsim_mnar.estimators.ranking_records.STATEMENTS`). Without it the verdict of an estimator
            whose assumption the log cannot prove is at most caution.
        interval: as :func:`recsim_mnar.estimators.estimate_value`.
        from_today: estimate how much more the policy would have earned than the one that logged the rows did, by the
            estimators with weights alone.
        reward_min: least reward of a row possible.
        reward_max: largest reward of a row possible; 1 where all rewards are 0 or 1.
        full_support: the log's policy can show every slate that the target can.
        weight_max: no weight can be larger: by kind, or of whole slates, which bounds all kinds.
        propensity_min: no slate that the target can show has a smaller probability in the log; or by kind:
            ``{"marginal": P}`` is of an item at its position, as ``--propensity-min`` of the command line is.
        called: what the target's columns are called where ``target`` is arrays; advice names them.
        **given: arguments of estimators. q_logged and q_target (cascade_dr): (n,) a reward model, fitted on other
            users. behaviour (adaptive_ips): (n,) or a
            single one of :data:`BEHAVIOURS`. logger, n_items, inclusion, context
            (:func:`recsim_mnar.estimators.ranking_records.pseudo_inverse`).

    Returns:
        By estimator, the estimate. ``diagnostics["assumption"]`` has what the log says of users.

    Raises:
        UserError: for input that is no data, with the column and row; a clip for estimators that have none.
    """
    level, most = level_of(level), check_clip(clip)
    if assumption is not None and assumption not in STATEMENTS:
        raise UserError(f"assumption must be one of {', '.join(STATEMENTS)}, got {assumption!r}")
    log = read_log(columns, target, cluster)
    if "behaviour" in given:
        _add_behaviour(log, given["behaviour"])
    factor = position_factors(position_weights, log.slate_size)
    infos = _chosen(estimators, log, given, alike=bool(np.ptp(factor) == 0.0))
    if math.isfinite(most) and estimators is not None:
        _refuse_unclipped(infos)
    if isinstance(position_weights, str):
        sums = position_weights
    else:
        sums = np.asarray(position_weights, np.float64).tolist()
    case = _Case(
        log=log,
        given=given,
        facts=Facts(full_support, *_rewards(log, factor, reward_min, reward_max)),
        weight_max=weight_max,
        propensity_min=propensity_min,
        factor=np.tile(factor, log.reward.size // log.slate_size),
        position_weights=sums,
        level=level,
        interval=interval,
        clip=most,
        from_today=from_today,
        assumption=assumption,
        called=called or (target if isinstance(target, str) else "NAME"),
    )
    if from_today:
        infos = [info for info in infos if info.machine in ("ips", "snips")]
    else:
        infos = infos
    for info in sorted(infos, key=lambda each: len(each.less)):  # advice asks those that assume less
        case.met[info.name] = case.judged(info)
    return {info.name: case.met[info.name] for info in infos}


@dataclass(frozen=True, kw_only=True)
class SlateDiagnostics(Diagnostics):
    """Numbers on what an estimate from slates rests on.

    Attributes:
        weight: kind of its weight.
        slate_size: items per slate.
        slates: their number.
        effective_slates: Kish's.
        position_weights: what the reward of each position counts.
        assumption: of users, as :class:`AboutUsers` says it.
    """

    weight: str
    slate_size: int
    slates: int
    effective_slates: float
    position_weights: Any
    assumption: dict[str, Any]


def _of_kind(value: Any, kind: str, worst: Callable[[Any], float]) -> Any:
    """A bound of one kind of weights."""
    if not isinstance(value, Mapping):
        return value
    if kind in value or kind != "adaptive":
        return value.get(kind)
    values = [value.get(one) for one in BEHAVIOURS.values()]
    if None in values:
        return None
    return worst(values)


def _rewards(log: SlateLog, factor: Floats, least: float | None, most: float | None) -> tuple[Any, Any]:
    """The least and the largest weighted reward possible, None where not known or plainly 1."""
    clicks = bool(np.isin(log.reward, (0.0, 1.0)).all())
    top = float(factor.max())
    low = float(factor.min())
    if most is None and clicks:
        if top == low == 1.0:
            most = None
        else:
            most = 1.0
    if least is None:
        lowest = None
    else:
        lowest = least * (top if least < 0.0 else low)
    return lowest, None if most is None else most * top


def _add_behaviour(log: SlateLog, behaviour: Any) -> None:
    """Add the kind "adaptive": each row's probabilities of the positions that matter to its user."""
    codes = np.broadcast_to(np.asarray(log.given(behaviour)), log.reward.shape)
    if not np.isin(codes, list(BEHAVIOURS)).all():
        raise UserError(
            f"behaviour must be one of {', '.join(BEHAVIOURS)} per row, got {np.unique(codes)[:4].tolist()}"
        )
    used = [name for name in BEHAVIOURS if np.any(codes == name)]
    for name in used:
        kind = BEHAVIOURS[name]
        if kind not in log.kinds:
            raise UserError(f"behaviour {name!r} needs {columns_of(kind, 'log')} and {columns_of(kind, 'target')}")
    for kinds_of in (log.logging, log.targets):
        kinds_of["adaptive"] = np.select(
            [codes == name for name in used], [kinds_of[BEHAVIOURS[name]] for name in used]
        )


def _chosen(
    estimators: Sequence[str] | str | None, log: SlateLog, given: Mapping[str, Any], *, alike: bool
) -> list[RankingEstimatorInfo]:
    """The records of the estimators that are asked for, or of all that can be had; ``alike`` are weights of positions.

    Raises:
        UserError: unknown ones, or such as need what is not there.
    """
    if estimators is None:
        infos = [
            info
            for info in RANKING_ESTIMATORS.values()
            if info.machine != "snips" and info.weight in log.kinds and all(entry in given for entry in info.requires)
            if alike or info.weight != "set"
        ]
        if not infos:
            raise UserError(
                f"no estimator has its columns: give for log and target one of {', '.join(LOGGED)} (the columns "
                f"{', '.join(LOGGED.values())} and NAME, NAME_conditional, NAME_slate, NAME_set)"
            )
    else:
        infos = [ranking_estimator(name) for name in ([estimators] if isinstance(estimators, str) else estimators)]
    for info in infos:
        if info.weight == "set" and not alike:
            why = "forgets the order of the items, so all positions must weigh alike"
            raise UserError(f"estimator {info.name!r} {why}: use slate_ips")
        for need in info.requires:
            if given.get(need) is None:
                raise UserError(f"estimator {info.name!r} needs {need}: {MEANING.get(need, 'an argument of its own')}")
        if info.weight not in log.kinds and (info.name in RANKING_ESTIMATORS or not log.kinds):
            if info.weight not in log.logging:
                whose = "log"
            else:
                whose = "target"
            raise UserError(f"estimator {info.name!r} needs {columns_of(info.weight, whose)}")
    takes = sorted({entry for info in infos for entry in (*info.requires, *info.takes)})
    for extra in sorted(set(given) - set(takes)):
        raise UserError(f"no estimator that is asked for takes {extra!r}; they take: {', '.join(takes) or '-'}")
    return infos


def _refuse_unclipped(infos: Sequence[RankingEstimatorInfo]) -> None:
    """Raise UserError for an estimator that has no use for a clip."""
    for info in infos:
        if not info.clipped:
            other = info.name.replace("_snips", "_ips")
            if other in RANKING_ESTIMATORS and other != info.name:
                more = f", or use {other}"
            else:
                more = ""
            raise UserError(f"estimator {info.name!r} does not clip its weights: leave the clip out{more}")


@dataclass(frozen=True)
class AboutUsers:
    """An estimator's assumption about users, and the log's evidence on it.

    Attributes:
        premise: by its name.
        assumes: in words.
        stated: what is stated of users.
        differences: by an estimator that assumes less, how much larger this one is, with its limits.
        clicks: what clicks say.
    """

    premise: str
    assumes: str
    stated: str | None
    differences: Mapping[str, Limits]
    clicks: ClickFacts

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        fields_of = asdict(self)
        clicks = fields_of.pop("clicks")
        return fields_of | clicks


def _objection(code: str, limits: Limits, severity: float = CAUTION, **params: Any) -> Finding:
    """The finding of a number whose limits exclude 0; texts have it without its sign, which a word gives."""
    value, low, high = limits
    more, less = params.pop("sides", ("more", "less"))
    if value > 0.0:
        ends = {"low": low, "high": high, "side": more}
    else:
        ends = {"low": -high, "high": -low, "side": less}
    return Finding(code, severity, value, size=abs(value), **ends, **params)


def heavy_tail(weight: Floats, reward: Floats, apart: Floats) -> float:
    """Compute the ratio of the error to the one expected from the weights, slate by slate.

    Args:
        weight: (S, k) of the target.
        reward: (S, k), from the least one.
        apart: (S, k) of the estimate: the same, or less 1 for a difference from the policy that logged the slates.
    """
    size, large = (np.sqrt(np.mean(part**2, axis=1)) for part in (weight, apart))
    value = float(np.sum(weight * reward) / np.sum(weight))
    ours = np.sum(weight * (reward - value), axis=1)
    if weight is apart:
        theirs = 0.0
    else:
        theirs = np.sum(reward - np.mean(reward), axis=1)
    error = float(np.sum((ours - theirs) ** 2))
    size_shown = size > 0.0
    spread = float(np.sum(ours[size_shown] ** 2 / size[size_shown]) / np.sum(size))
    if error > 0.0:
        return math.sqrt(spread * float(large @ large) / error)
    return 1.0


def about_users(code: str) -> bool:
    """Return whether a finding's code is of what an estimator assumes of users."""
    return code.startswith(_OF_USERS)


# ------------------------------------------------------------------------------------------------------- one question


@dataclass(eq=False)
class _Case:
    """One log and one question, as of :func:`estimate_ranking_value`; what estimators share is computed once.

    Attributes:
        log: as it was read.
        given: arguments of estimators.
        facts: of the log; rewards as they are weighted.
        weight_max, propensity_min: of every kind of weight, or by kind.
        factor: (n,) what the reward of each row counts.
        met: estimates so far, by estimator.
    """

    log: SlateLog
    given: Mapping[str, Any]
    facts: Facts
    weight_max: Any
    propensity_min: Any
    factor: Floats
    position_weights: Any
    level: float
    interval: str
    clip: float
    from_today: bool
    assumption: str | None
    called: str
    met: dict[str, Estimate] = field(default_factory=dict)
    _read: dict[str, RankingRows] = field(default_factory=dict)
    _scored: dict[tuple[str, float], Scores] = field(default_factory=dict)

    def rows(self, info: RankingEstimatorInfo) -> RankingRows:
        """The columns, with the probabilities of the estimator's kind of weight."""
        if info.name in self._read:
            return self._read[info.name]
        log, k = self.log, self.log.slate_size
        if info.weight in log.kinds:
            kind = info.weight
        else:
            kind = log.kinds[0]
        p = log.logging[kind]
        t = log.targets[kind]
        reward = log.reward * self.factor
        weight = t / p
        logged = None
        mean = None
        if info.machine == "dr":
            logged, mean = (finite_column(log.given(self.given[name]), name, reward.size) for name in info.requires)
            before = np.ones((reward.size // k, k))
            before[:, 1:] = log.by_slate(weight)[:, :-1]
            logged = logged * self.factor
            mean = before.ravel() * mean * self.factor
        self._read[info.name] = RankingRows(
            reward=reward,
            propensity=p,
            target=t,
            weight=weight,
            q_logged=logged,
            q_target=mean,
            clusters=log.clusters,
            clip=self.clip if info.clipped else math.inf,
            slate_size=k,
            position=np.tile(np.arange(k), reward.size // k),
            action=log.action,
            logging=log.logging,
            targets=log.targets,
            factor=self.factor,
        )
        return self._read[info.name]

    def scores(self, info: RankingEstimatorInfo, rows: RankingRows) -> Scores:
        """Those of an estimator's rows: of an estimator of single items, or of a function of its own."""
        name = info.item_estimator(rows.clip)
        if name:
            return ESTIMATORS[name].scores(rows)
        if (info.name, rows.shift) not in self._scored:
            assert info.scores is not None
            names = [entry for entry in (*info.requires, *info.takes) if entry in self.given]
            arguments = {entry: self.log.given(self.given[entry]) for entry in names}
            self._scored[info.name, rows.shift] = info.scores(rows, **arguments)
        return self._scored[info.name, rows.shift]

    def row_scores(self, info: RankingEstimatorInfo) -> Floats:
        """(n,) scores without clip and without normalisation."""
        scores = self.scores(info, replace(self.rows(info), clip=math.inf))
        if scores.linear is None:
            parts = scores.numerator
        else:
            parts = scores.linear
        assert parts is not None
        return parts

    def estimate(self, info: RankingEstimatorInfo) -> Estimate:
        """Value, interval and verdict by the estimators of single items, which nothing else here calls."""
        rows = self.rows(info)
        largest = _of_kind(self.weight_max, info.weight, max)
        least = _of_kind(self.propensity_min, info.weight, min)
        facts = replace(self.facts, weight_max=largest, propensity_min=least)
        refuse_outside(rows.reward, facts.reward_min, facts.reward_max, "reward")
        shift = facts.counted_from(float(np.min(rows.reward)))
        if info.weight == "marginal":
            lost = self.log.unsupported
        else:
            lost = None
        if lost is None:
            lost = None
        else:
            lost = missing_column(lost, rows.target)
        rows = replace(rows, reward=rows.reward - shift, shift=shift, missing=lost)
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
        """The estimate with what slates and users add to its verdict."""
        log = self.log
        rows = self.rows(info)
        estimate = self.estimate(info)
        weight = log.by_slate(rows.weight).sum(1)
        clipped = math.isfinite(rows.clip)
        signed = self.scores(info, rows).signed
        if signed is not None:
            weight = signed[:: log.slate_size]
        ess = _effective(weight)
        differences = self.differences(info)
        if clipped:
            used = _effective(np.minimum(rows.weight, rows.clip))
            estimate = replace(estimate, ess=used, diagnostics=replace(estimate.diagnostics, ess=used))
        findings = [self._of_slates(finding, info, estimate.n) for finding in estimate.verdict.findings]
        if ess < LEAST_ESS:
            severity = scaled(ess, LEAST_ESS, min(FEW_ESS, weight.size))
            findings.append(Finding("effective_slates", severity, ess, ess=ess, slates=weight.size))
        findings += [*self.of_users(info, estimate, differences), *self.of_items]
        about = AboutUsers(info.premise, info.assumes, self.assumption, differences, self.clicks)
        diagnostics = SlateDiagnostics(
            **vars(estimate.diagnostics),
            weight=info.weight,
            slate_size=log.slate_size,
            slates=weight.size,
            effective_slates=ess,
            position_weights=self.position_weights,
            assumption=about.to_dict(),
        )
        return replace(estimate, estimator=info.name, diagnostics=diagnostics, verdict=Verdict.of(findings))

    def _of_slates(self, finding: Finding, info: RankingEstimatorInfo, n: int) -> Finding:
        """A finding of rows as one of slates, with advice that fits estimators of them."""
        severity = finding.severity
        number = finding.number
        rows = self.rows(info)
        clipped = math.isfinite(rows.clip)
        if finding.code == "heavy_tail":
            weight, reward = (self.log.by_slate(column) for column in (rows.weight, rows.reward))
            times = heavy_tail(weight, reward, weight - 1.0 if self.from_today else weight)
            return Finding("heavy_tail", scaled(times, HEAVY, np.inf), times, says="slates", do="slates", times=times)
        if finding.code == "heavy_row" and not clipped:
            if info.clipped:
                advice = "slates"
            else:
                advice = "unclipped"
            return Finding("heavy_row", severity, number, finding.message, do=advice)
        if finding.code == "bias_proved" and clipped:
            return Finding("bias_proved", severity, number, finding.message, do="slates")
        if finding.code == "effective_sample" and clipped:
            return Finding(
                "effective_sample", severity, number, action=finding.action, says="unclipped", ess=number, rows=n
            )
        return finding

    def of_users(self, info: RankingEstimatorInfo, found: Estimate, differences: Mapping[str, Limits]) -> list[Finding]:
        """Findings on what an estimator assumes of users.

        What contradicts an assumption is an objection whether the assumption is stated or not, by the same test.
        All tests of one answer together object to what is true about as often as the interval misses.
        Where nothing is stated the verdict is trust only if the log excludes a bias of more than ``ROOM`` times the
        half width of the estimate's interval, which costs the interval less than a hundredth of its coverage.
        """
        premise = info.premise
        stated = self.assumption
        if not premise:
            return []
        objections = [*self.contradicted(info, found, differences), *self.clicks_against(premise)]
        if any(objection.code == "assumption_contradicted" for objection in objections) or premise == "behaviour":
            return objections
        if stated is not None and premise in STATEMENTS[stated]:
            return objections
        return [*objections, self.untested(found, differences.get("slate_ips"))]

    def contradicted(
        self, info: RankingEstimatorInfo, found: Estimate, differences: Mapping[str, Limits]
    ) -> list[Finding]:
        """The finding that an estimator is wrong: one that assumes less differs from it, or items below matter."""
        proved = {name: limits for name, limits in differences.items() if excludes_0(limits)}
        below = self.clicks.items_below
        size = abs(found.value)
        if proved:
            name, limits = max(proved.items(), key=lambda each: abs(each[1][0]))
            severity = scaled(abs(limits[0]) / size if size > 0.0 else WIDE, TOLERABLE, WIDE)
            severity = min(max(severity, CAUTION), GRAVE)
            sides = ("above", "below")
            return [_objection("assumption_contradicted", limits, severity, sides=sides, **self.instead(name))]
        if below is not None and excludes_0(below) and info.premise in ("independent", "cascade"):
            return [_objection("assumption_contradicted", below, says="below", **self.instead("slate_ips"))]
        return []

    def clicks_against(self, premise: str) -> list[Finding]:
        """Get the evidence of clicks against a premise."""
        order = self.clicks.position_effect
        after = self.clicks.clicks_after_click
        findings = []
        if premise == "unordered" and order is not None and excludes_0(order):
            findings.append(_objection("position_effect", order, **self.instead("slate_ips")))
        if premise in ("independent", "additive") and after is not None and excludes_0(after):
            # Moods that pass between a user's slates make clicks more frequent too, where each click depends on its own
            # item alone. No log tells the two apart, so this is a caution and not a proof.
            findings.append(_objection("clicks_after_click", after, **self.instead("reward_interaction_ips")))
        return findings

    def untested(self, found: Estimate, bound: Limits | None) -> Finding:
        """Bound the bias that the log does not show; ``bound`` is the difference from slate_ips."""
        size = abs(found.value)
        half = (found.high - found.low) / 2.0
        advice = self.instead("slate_ips")
        if self.assumption is not None:
            advice |= {"says": "other", "stated": self.assumption}
            return Finding("assumption_unstated", CAUTION, 1.0, **advice)
        if bound is None:
            return Finding("assumption_untested", CAUTION, np.inf, says=self.lacking, **advice)
        _, low, high = bound
        most = max(abs(low), abs(high))
        sizes: dict[str, Any] = {"most": most, "share": 100.0 * most / size if size > 0.0 else math.inf}
        if (high - low) / 2.0 > TOLERABLE * size:
            return Finding("assumption_untested", CAUTION, most, says="few", **sizes, **advice)
        if half > 0.0:
            severity = scaled(most / half, ROOM, np.inf)
        else:
            severity = CAUTION
        return Finding("assumption_unstated", severity, most, **sizes, **advice)

    @cached_property
    def clicks(self) -> ClickFacts:
        """Get the evidence of clicks."""
        return click_facts(self.log, self.level)

    def differences(self, info: RankingEstimatorInfo) -> dict[str, Limits]:
        """Compute how much larger the estimator is than those that assume less; all limits together at the level."""
        log = self.log
        simpler = [RANKING_ESTIMATORS[name] for name in info.less]
        comparable = [other for other in simpler if other.weight in log.kinds and self.sees_target(other)]
        share = 1.0 - TESTED.get(info.premise, 0.0)
        level_each = 1.0 - share * (1.0 - self.level) / max(len(comparable), 1)
        ours = self.row_scores(info)
        apart = {}
        for other in comparable:
            parts = ours - self.row_scores(other)
            # Two estimators that agree on every row differ by roundings, all of which may have one sign.
            same = float(np.max(np.abs(parts))) <= SAME * float(np.max(np.abs(ours)))
            if same:
                apart[other.name] = (0.0, 0.0, 0.0)
            else:
                apart[other.name] = mean_limits(parts, log.clusters, level_each)
        return apart

    def sees_target(self, info: RankingEstimatorInfo) -> bool:
        """Return whether enough of the target's slates are in the log.

        Without them a difference says nothing of users.
        """
        return not self.log.gaps and _effective(self.log.by_slate(self.rows(info).weight).sum(1)) >= FEW_ESS

    @property
    def lacking(self) -> str:
        """Why the log cannot say how far an estimator is from slate_ips; a case of the text."""
        if "slate" not in self.log.logging:
            return "log"
        if "slate" not in self.log.targets:
            return "target"
        if self.log.gaps:
            return "gaps"
        return "hardly"

    def instead(self, name: str) -> dict[str, Any]:
        """Name another estimator that can be used here, or what it lacks; parameters of the advice."""
        other = RANKING_ESTIMATORS[name]
        kinds_by_side = {"log": self.log.logging, "target": self.log.targets}
        lacks = [
            columns_of(other.weight, whose, self.called)
            for whose in kinds_by_side
            if other.weight not in kinds_by_side[whose]
        ]
        if lacks:
            return {"do": "columns", "other": name, "columns": " and ".join(lacks)}
        if name in self.met:
            usable = self.met[name].verdict.level != "do_not_use"
        else:
            usable = self.sees_target(other)
        return {"do": "use" if usable else "small", "other": name}

    @cached_property
    def of_items(self) -> list[Finding]:
        """Items shown more often at their positions than the log's probabilities say, which then are wrong."""
        propensity = self.log.logging.get("marginal")
        if self.log.items is None or propensity is None:
            return []
        return item_findings(self.log.items, propensity, self.log.clusters)


def _effective(weight: Floats) -> float:
    """Kish's effective number of slates, or rows, of these weights (n,)."""
    square = float(weight @ weight)
    if square > 0.0:
        return float(np.sum(weight)) ** 2 / square
    return 0.0
