"""The value of a policy that ranks, from a log of slates with one row per position.

The estimators are those of :mod:`recsim_mnar.estimators.ranking_records`: a score per row, whose mean is the value.
Intervals by user, diagnostics and verdicts are those of :func:`recsim_mnar.estimators.estimate_value`. What the log
says about the assumption is added by :mod:`recsim_mnar.estimators.ranking_assumptions`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.differences import PairMoments, estimate_difference
from recsim_mnar.estimators.off_policy.from_moments import estimate_from_moments
from recsim_mnar.estimators.off_policy.moments import Moments
from recsim_mnar.estimators.off_policy.refuters import item_findings
from recsim_mnar.estimators.off_policy.scores import ESTIMATORS
from recsim_mnar.estimators.off_policy.stated import Stated, check_clip
from recsim_mnar.estimators.off_policy.value import estimate_from_scores
from recsim_mnar.estimators.off_policy.verdict import FEW_ESS, HEAVY, LEAST_ESS
from recsim_mnar.estimators.ranking_assumptions import (
    BELOW,
    CLICKS,
    STATEMENTS,
    TESTED,
    Apart,
    ClickFacts,
    Limits,
    assumption_findings,
    click_facts,
    items_below,
)
from recsim_mnar.estimators.ranking_records import (
    LOGGED,
    MEANING,
    RANKING_ESTIMATORS,
    SUFFIXES,
    RankingEstimatorInfo,
    RankingRows,
    columns_of,
    ranking_estimator,
)
from recsim_mnar.estimators.verdict import Estimate, Finding, Verdict, scaled
from recsim_mnar.kernels.checks import level_of, whole_number
from recsim_mnar.log.columns import Clusters, Floats, Ints, column, finite_column, refuse_rows
from recsim_mnar.log.table import Log

SUMS = ("mean", "clicks", "dcg")
"""Position weights by name: the mean per item shown, clicks per slate, sum of reward / log2(2 + position)."""
BEHAVIOURS = {"independent": "marginal", "cascade": "cumulative", "whole": "slate"}
"""Behaviours of users, and the kind of weight of the positions that matter for a click."""


LARGEST = "state the largest target / propensity of a slate possible, if you know it: --weight-max W"
"""What bounds the weights of slates."""


@dataclass(frozen=True)
class _Log:
    """A log of slates, read once for all estimators.

    Attributes:
        rows: which rows of the input, in order: whole slates, from the top, users' slates in order.
        given_rows: rows of the input.
        slate_size: items per slate.
        reward: (n,) as logged.
        clusters: users; slates where users are not known.
        users_known: whether users are known.
        action: (n,) numbers of items, from 0, or None.
        logging: by kind, (n,).
        targets: by kind, (n,).
        unsupported: (n,) the target's mass on items that the log never shows at the position, or None.
        labels: (n,) what the log calls the items, where that is not their number, or None.
    """

    rows: Ints
    given_rows: int
    slate_size: int
    reward: Floats
    clusters: Clusters
    users_known: bool
    action: Ints | None
    logging: Mapping[str, Floats]
    targets: Mapping[str, Floats]
    unsupported: Floats | None
    labels: Any = None

    def given(self, values: Any) -> Any:
        """An argument with one entry per row of the input, as the rows that are used; others as they are."""
        return np.asarray(values)[self.rows] if np.shape(values) == (self.given_rows,) else values


def _read(columns: Any, target: Any, cluster: Any) -> _Log:
    """The columns, checked, as whole slates in order.

    Raises:
        UserError: columns that are missing or are no data, slates of several sizes or in pieces.
    """
    of_the_house = isinstance(columns, Log)
    columns = columns.columns if of_the_house else columns
    names = set(getattr(columns, "column_names", columns))

    def get(name: str) -> Any:
        return np.asarray(columns[name])

    if not {"reward", "position"} <= names:
        raise UserError("a log of slates needs the columns reward and position, one row per position from 0 at the top")
    place = finite_column(np.nan_to_num(get("position").astype(np.float64), nan=-1.0), "position", get("reward").size)
    rows = np.flatnonzero(place >= 0.0)
    if not rows.size:
        raise UserError("the log has no slate: no row has a position of 0 or more")
    k = int(place.max()) + 1
    if not _in_order(place[rows], k) and {"user", "slate"} <= names:
        rows = rows[np.lexsort((place[rows], get("slate")[rows], get("user")[rows]))]
    if not _in_order(place[rows], k):
        raise UserError(
            f"each slate must have one row for each position from 0 to {k - 1}, in this order: sort the rows, or give "
            "the columns user and slate"
        )

    def checked(values: Any, name: str, lowest: float) -> Floats:
        array = column(np.asarray(values)[rows], name, rows=rows.size)
        refuse_rows(~((array >= lowest) & (array <= 1.0 + 1e-6)), array, name, "is no probability of what was shown")
        return np.minimum(array, 1.0)

    logged = {kind: checked(get(name), name, np.nextafter(0.0, 1.0)) for kind, name in LOGGED.items() if name in names}
    if isinstance(target, str):
        given = {kind: get(target + end) for kind, end in SUFFIXES.items() if target + end in names}
        if not given:
            made = ": give what replay_ranking(log, policy) returns" if of_the_house else ""
            raise UserError(f"the log has no column {target!r} of a target's probabilities{made}")
    else:
        given = dict(target)
        if not set(given) <= set(LOGGED):
            raise UserError(
                f"target must be a column's name or arrays by kind ({', '.join(LOGGED)}), got {list(given)}"
            )
    name = target if isinstance(target, str) else "target"
    aims = {
        kind: checked(values, name + SUFFIXES[kind], 0.0) for kind, values in given.items() if kind != "conditional"
    }
    if "conditional" in given:
        aims["conditional"] = column(np.asarray(given["conditional"])[rows], name + "_conditional", rows=rows.size)
    for known, whose in ((logged, "the log"), (aims, f"the target {name!r}")):
        _add_cumulative(known, whose, k)
    if isinstance(cluster, str):
        cluster = get(cluster) if cluster in names else None
    users = None if cluster is None else np.asarray(cluster)[rows]
    clusters = Clusters.of(np.repeat(np.arange(rows.size // k), k) if users is None else users, rows.size)
    assert clusters is not None
    if np.any(clusters.codes.reshape(-1, k) != clusters.codes.reshape(-1, k)[:, :1]):
        raise UserError("a slate has rows of several users: every slate is one user's")
    shown = Clusters.of(get("action")[rows], rows.size, "action") if "action" in names else None
    action = None
    if shown is not None:
        small = shown.codes.min() >= 0 and shown.codes.max() < 10_000_000
        action = shown.codes if small else shown.dense()[0]
    named = get("action")[rows] if shown is not None and get("action").dtype.kind not in "iub" else None
    lost = f"{target}_unsupported" if isinstance(target, str) else ""
    missing = get(lost)[rows].astype(np.float64) if lost in names else None
    return _Log(
        rows, place.size, k, column(get("reward")[rows], "reward"), clusters, users is not None, action, logged, aims,
        missing, named,
    )  # fmt: skip


def _in_order(place: Floats, k: int) -> bool:
    return place.size % k == 0 and bool(np.all(place.reshape(-1, k) == np.arange(k)))


def _add_cumulative(known: dict[str, Floats], whose: str, k: int) -> None:
    """Add the probability of the items down to each position, and that of the slate, from the conditional ones.

    Raises:
        UserError: they are no probabilities, or contradict those of the slates.
    """
    if "conditional" not in known:
        return
    each = known.pop("conditional").reshape(-1, k)
    down = np.empty_like(each)
    down[:, 0] = each[:, 0]
    for j in range(1, k):  # what follows an impossible item has no probability, and counts as 0
        down[:, j] = np.where(down[:, j - 1] == 0.0, 0.0, down[:, j - 1] * each[:, j])
    if not np.all((down >= 0.0) & (down <= 1.0 + 1e-6)):
        raise UserError(f"the conditional probabilities of {whose} are not in [0, 1]")
    known["cumulative"] = down.ravel()
    whole = np.repeat(down[:, -1], k)
    if not np.allclose(known.setdefault("slate", whole), whole, rtol=1e-6, atol=0.0):
        raise UserError(f"the slate probabilities of {whose} are not the products of its conditional ones")


def position_factors(position_weights: Any, slate_size: int) -> Floats:
    """(k,) what the reward of each position counts, times the slate's size: its mean over rows is the value.

    Args:
        position_weights: "mean" per item shown, "clicks" per slate, "dcg" (sum of reward / log2(2 + position)), or (k,)
            weights that are not negative.
        slate_size: k.

    Raises:
        UserError: another name, or other weights.
    """
    if isinstance(position_weights, str):
        found = {
            "mean": np.ones(slate_size),
            "clicks": np.full(slate_size, float(slate_size)),
            "dcg": slate_size / np.log2(2.0 + np.arange(slate_size)),
        }.get(position_weights)
        if found is None:
            raise UserError(f"position_weights must be one of {', '.join(SUMS)} or numbers, got {position_weights!r}")
        return found
    found = finite_column(position_weights, "position_weights", slate_size) * slate_size
    if np.any(found < 0.0) or not np.any(found > 0.0):
        raise UserError("position_weights must not be negative, and not all 0")
    return found


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
    for_command: str | None = None,
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
            independent, and the verdict is at most caution.
        level: nominal coverage of the intervals.
        clip: weights are cut there; None for no clipping. Self-normalised estimators and pseudo_inverse have none.
        assumption: what is known of users: "independent", "cascade", "unordered" or "whole"
            (:data:`recsim_mnar.estimators.ranking_assumptions.STATEMENTS`). Without it the verdict of an estimator
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
        for_command: the target's name on the command line, whose options advice then names; None for arguments.
        **given: arguments of estimators. q_logged and q_target (cascade_dr): (n,) a reward model, fitted on other users
            (:func:`cross_fitted_positions`). behaviour (adaptive_ips): (n,) or a single one of :data:`BEHAVIOURS`.
            logger, n_items, inclusion, context (:func:`pseudo_inverse`).

    Returns:
        By estimator, the estimate. ``diagnostics["assumption"]`` has what the log says of users.

    Raises:
        UserError: for input that is no data, with the column and row; a clip for estimators that have none.
    """
    level, check = level_of(level), check_clip(clip)
    if assumption is not None and assumption not in STATEMENTS:
        raise UserError(f"assumption must be one of {', '.join(STATEMENTS)}, got {assumption!r}")
    log = _read(columns, target, cluster)
    if "behaviour" in given:
        _add_behaviour(log, given)
    by_position = position_factors(position_weights, log.slate_size)
    infos = _chosen(estimators, log, given, alike=bool(np.ptp(by_position) == 0.0))
    unclipped = [info.name for info in infos if not info.clipped]
    if math.isfinite(check) and estimators is not None and unclipped:
        other = unclipped[0].replace("_snips", "_ips")
        more = f", or use {other}" if other in RANKING_ESTIMATORS and other != unclipped[0] else ""
        raise UserError(f"estimator {unclipped[0]!r} does not clip its weights: leave the clip out{more}")
    infos = [info for info in infos if info.machine in ("ips", "snips")] if from_today else infos
    factor = np.tile(by_position, log.reward.size // log.slate_size)
    clicks = bool(np.isin(log.reward, (0.0, 1.0)).all())
    most = 1.0 if reward_max is None and clicks else reward_max
    top, least = float(factor.max()), None
    if reward_min is not None:
        least = reward_min * (top if reward_min < 0.0 else float(factor.min()))
    plain = clicks and reward_max is None and top == float(factor.min()) == 1.0
    bounds: dict[str, Any] = {"reward_min": least, "reward_max": None if most is None or plain else most * top}
    case = _Case(log, factor, given, level, interval, clip if math.isfinite(check) else None, from_today)

    def stated(kind: str) -> Stated:
        def of(value: Any, worst: Callable[[Any], float]) -> Any:
            if not isinstance(value, Mapping) or kind in value or kind != "adaptive":
                return value.get(kind) if isinstance(value, Mapping) else value
            each = [value.get(one) for one in BEHAVIOURS.values()]  # one of these is the weight of each row
            return None if None in each else worst(each)

        return Stated(full_support, **bounds, weight_max=of(weight_max, max), propensity_min=of(propensity_min, min))

    found = {info.name: case.estimate(info, stated(info.weight), assumption, position_weights) for info in infos}
    name = for_command or (target if isinstance(target, str) else "NAME")
    advice = _Advice(case, found, name, for_command is not None)
    return {info.name: advice.given(info, stated(info.weight)) for info in infos}


def _add_behaviour(log: _Log, given: dict[str, Any]) -> None:
    """Add the kind "adaptive": each row's probabilities of the positions that matter to its user."""
    codes = np.broadcast_to(np.asarray(log.given(given["behaviour"])), log.reward.shape)
    kinds = [kind for kind in BEHAVIOURS.values() if all(kind in known for known in (log.logging, log.targets))]
    which = {name: np.asarray(codes == name) for name in BEHAVIOURS}
    if not np.all(sum(which.values()) == 1):
        raise UserError(
            f"behaviour must be one of {', '.join(BEHAVIOURS)} per row, got {np.unique(codes)[:4].tolist()}"
        )
    for name, kind in BEHAVIOURS.items():
        if which[name].any() and kind not in kinds:
            raise UserError(f"behaviour {name!r} needs {columns_of(kind, 'log')} and {columns_of(kind, 'target')}")
    for known in (log.logging, log.targets):
        assert isinstance(known, dict)
        known["adaptive"] = np.select(
            [which[name] for name in BEHAVIOURS], [known.get(kind, codes) for kind in BEHAVIOURS.values()], np.nan
        ).astype(np.float64)


def _chosen(
    estimators: Sequence[str] | str | None, log: _Log, given: Mapping[str, Any], *, alike: bool
) -> list[RankingEstimatorInfo]:
    """The records of the estimators that are asked for, or of all that can be had; ``alike`` are weights of positions.

    Raises:
        UserError: unknown ones, or such as need what is not there.
    """
    known = [kind for kind in log.logging if kind in log.targets]
    if estimators is None:
        infos = [
            info
            for info in RANKING_ESTIMATORS.values()
            if info.machine != "snips" and info.weight in known and all(each in given for each in info.requires)
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
        own = info.machine == "" and info.name not in RANKING_ESTIMATORS
        if info.weight not in known and not (own and known):
            whose = "log" if info.weight not in log.logging else "target"
            raise UserError(f"estimator {info.name!r} needs {columns_of(info.weight, whose)}")
    takes = {each for info in infos for each in (*info.requires, *info.takes)}
    extra = sorted(set(given) - takes)
    if extra:
        raise UserError(
            f"no estimator that is asked for takes {extra[0]!r}; they take: {', '.join(sorted(takes)) or '-'}"
        )
    return infos


def _effective_slates(weight: Floats) -> float:
    """Kish's effective number of slates of these weights (n,)."""
    square = float(weight @ weight)
    return float(np.sum(weight)) ** 2 / square if square > 0.0 else 0.0


def heavy_tail(weight: Floats, reward: Floats, apart: Floats) -> float:
    """How many times the error is what its weights let one expect, where rewards do not follow them, slate by slate.

    Args:
        weight: (S, k) of the target.
        reward: (S, k), from the least one.
        apart: (S, k) of the estimate: the same, or less 1 for a difference from the policy that logged the slates.
    """
    size, large = (np.sqrt(np.mean(each**2, axis=1)) for each in (weight, apart))
    value = float(np.sum(weight * reward) / np.sum(weight)) if np.any(weight) else 0.0
    ours = np.sum(weight * (reward - value), axis=1)
    theirs = 0.0 if weight is apart else np.sum(reward - np.mean(reward), axis=1)
    error = float(np.sum((ours - theirs) ** 2))
    if error <= 0.0:
        return 1.0
    spread = float(np.sum(np.divide(ours**2, size, out=np.zeros_like(size), where=size > 0.0))) / float(np.sum(size))
    return math.sqrt(spread * float(np.sum(large**2)) / error)


def _of_used_weights(found: Estimate, moments: Moments) -> Estimate:
    """The estimate with the effective rows of the clipped weights; it is judged by those of the unclipped ones."""
    square = moments.sum("cc")
    findings = [
        replace(f, message=f"{f.message} before clipping") if f.code == "effective_sample" else f
        for f in found.verdict.findings
    ]
    used = moments.sum("c") ** 2 / square if square > 0.0 else 0.0
    facts = found.diagnostics | ({"ess": used} if "ess" in found.diagnostics else {})
    return replace(found, ess=used, diagnostics=facts, verdict=Verdict(found.verdict.level, findings))


def with_item(finding: Finding, label: Callable[[int], Any]) -> Finding:
    """The finding of an item, with what the log calls it in place of its number."""
    return replace(finding, message=_ITEM.sub(lambda found: f" item {label(int(found[1]))} ", finding.message, count=1))


_ITEM = re.compile(r" item (\d+) ")
_USE = re.compile(r"use (\w+)(?:, which assumes nothing about users)?(?:, or (.+))?$")
"""Advice to use another estimator, and what else can be done."""
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: ([A-Z])\b)?")
_ARGUMENTS = {"full-support": "full_support=True", "user-column": "cluster=...", "assumption": "assumption=..."}


@dataclass(frozen=True)
class _Advice:
    """What to do about findings, of which nothing is done already, and all can be done.

    Attributes:
        case: the log.
        found: all estimates, by estimator.
        target: name of the target's columns.
        command: whether options are named, or arguments.
    """

    case: _Case
    found: Mapping[str, Estimate]
    target: str
    command: bool

    def given(self, info: RankingEstimatorInfo, stated: Stated) -> Estimate:
        """The estimate of an estimator, of which this is stated."""
        estimate = self.found[info.name]
        findings = [replace(f, action=self._said(self._action(f, info, stated))) for f in estimate.verdict.findings]
        return replace(estimate, verdict=Verdict(estimate.verdict.level, findings))

    def _action(self, finding: Finding, info: RankingEstimatorInfo, stated: Stated) -> str:
        action, bounded = finding.action, stated.weight_max is not None
        if info.weight != "marginal" and action.startswith("state the smallest probability"):
            return LARGEST
        if action == "use snips":  # names of single items
            return "raise the clip, or leave it out"
        if action.startswith("use clipped_"):
            return "give a clip or log more rows" if info.clipped else "log more rows"
        if bounded:
            action = action.replace(", or state --weight-max where you know it", "")
        return self._instead(action)

    def _instead(self, action: str) -> str:
        """Advice to use another estimator, where it can be used here; else what it lacks."""
        asked = _USE.match(action)
        other = RANKING_ESTIMATORS.get(asked[1]) if asked else None
        if asked is None or other is None:
            return action
        log, name = self.case.log, other.name
        columns = {"log": log.logging, "target": log.targets}
        lacks = [columns_of(other.weight, whose) for whose, known in columns.items() if other.weight not in known]
        if lacks:
            named = " and ".join(each.replace("NAME", self.target).removeprefix("the column ") for each in lacks)
            instead = f"add the column{'s' * (len(lacks) > 1)} {named} and use {name}"
        else:
            known = self.found.get(name)
            usable = self.case.sees_target(other) if known is None else known.verdict.level != "do_not_use"
            if usable:
                return action
            instead = f"log more slates: this log is too small for {name}"
        return f"{asked[2]}, or {instead}" if asked[2] else instead

    def _said(self, action: str) -> str:
        """With options, or arguments in their place."""
        if self.command:
            return action
        action = action.replace("--propensity-min P", "propensity_min={'marginal': P}")

        def argument(option: re.Match[str]) -> str:
            name = option[1].replace("-", "_")
            return _ARGUMENTS.get(option[1]) or (f"{name}={option[2]}" if option[2] else name)

        return _OPTION.sub(argument, action)


@dataclass
class _Case:
    """One log and one way to weigh positions; what estimators share is computed once."""

    log: _Log
    factor: Floats
    given: Mapping[str, Any]
    level: float
    interval: str
    clip: float | None
    from_today: bool = False
    read: dict[str, RankingRows] = field(default_factory=dict)
    scored: dict[str, Floats] = field(default_factory=dict)
    facts: ClickFacts | None = None
    items: list[Finding] | None = None

    def rows(self, info: RankingEstimatorInfo) -> RankingRows:
        """The columns, with the probabilities of the estimator's kind of weight."""
        if info.name in self.read:
            return self.read[info.name]
        log, k = self.log, self.log.slate_size
        shared = [kind for kind in log.logging if kind in log.targets]
        kind = info.weight if info.weight in shared else shared[0]
        p, t, reward = log.logging[kind], log.targets[kind], log.reward * self.factor
        weight, logged, mean = t / p, None, None
        if info.machine == "dr":
            logged, mean = (finite_column(log.given(self.given[each]), each, reward.size) for each in info.requires)
            before = np.ones((reward.size // k, k))
            before[:, 1:] = weight.reshape(-1, k)[:, :-1]
            logged, mean = logged * self.factor, before.ravel() * mean * self.factor
        place = np.tile(np.arange(k), reward.size // k)
        self.read[info.name] = RankingRows(
            reward, p, t, weight, logged, mean, log.clusters, check_clip(self.clip if info.clipped else None),
            k, place, log.action, log.logging, log.targets, self.factor,
        )  # fmt: skip
        return self.read[info.name]

    def parameters(self, info: RankingEstimatorInfo) -> dict[str, Any]:
        """Arguments that go to the estimator's own function."""
        names = () if info.machine else (*info.requires, *info.takes)
        return {name: self.log.given(self.given[name]) for name in names if name in self.given}

    def row_scores(self, info: RankingEstimatorInfo) -> Floats:
        """(n,) scores without clip and without normalisation."""
        name = info.name.replace("_snips", "_ips")
        if name not in self.scored:
            rows = self.rows(info)
            if info.machine == "dr":
                found = rows.model_mean + rows.weight * rows.residual
            elif info.machine:
                found = rows.weight * rows.reward
            else:
                assert info.scores is not None
                linear = info.scores(rows, **self.parameters(info)).linear
                found = np.zeros(rows.reward.size) if linear is None else linear
            self.scored[name] = found
        return self.scored[name]

    def estimate(
        self, info: RankingEstimatorInfo, stated: Stated, assumption: str | None, position_weights: Any
    ) -> Estimate:
        """Value, interval, diagnostics and verdict of one estimator."""
        log, rows = self.log, self.rows(info)
        name = info.clipped if self.clip is not None and info.clipped else info.machine
        moments = Moments.of(
            rows.reward, rows.propensity, rows.target, clip=self.clip if info.clipped else None, cluster=rows.clusters,
            reward_min=stated.reward_min, reward_max=stated.reward_max,
            unsupported=log.unsupported if info.weight == "marginal" else None,
        )  # fmt: skip
        moments.denied = stated.denied(rows.target, rows.propensity)
        weight = rows.weight.reshape(-1, log.slate_size).sum(1)
        if self.from_today:
            theirs = Moments.of(
                rows.reward, rows.propensity, rows.propensity, clip=moments.clip, cluster=rows.clusters,
                reward_min=stated.reward_min, reward_max=stated.reward_max,
            )  # fmt: skip
            pair = PairMoments(moments, theirs)
            pair.extend(rows.reward, rows.propensity, rows.target, rows.propensity, rows.clusters)
            found = estimate_difference(pair, name, level=self.level, stated=stated)
        elif name and ESTIMATORS[name].from_moments and self.interval == "auto":
            found = estimate_from_moments(moments, name, level=self.level, stated=stated)
        else:
            if moments.shift:
                rows = replace(rows, reward=rows.reward - moments.shift)
            if name:
                scores = ESTIMATORS[name].scores(rows)
            else:
                assert info.scores is not None
                scores = info.scores(rows, **self.parameters(info))
                self.scored.setdefault(info.name, scores.linear if scores.linear is not None else rows.reward)
                if scores.signed is not None:
                    weight = scores.signed[:: log.slate_size]
            found = estimate_from_scores(
                scores, rows, moments, name or info.name, level=self.level, interval=self.interval, stated=stated
            )
        if name.startswith("clipped_"):
            found = _of_used_weights(found, moments)
        return self._judged(found, info, weight, assumption, position_weights)

    def _judged(
        self, found: Estimate, info: RankingEstimatorInfo, weight: Floats, assumption: str | None, sums: Any
    ) -> Estimate:
        """The estimate with what slates and users add to its verdict."""
        log, ess = self.log, _effective_slates(weight)
        facts, differences = self._facts(), self._differences(info)
        findings = []
        if ess < LEAST_ESS:
            message = f"the effective sample is {ess:.3g} of {weight.size:,} slates"
            severity = scaled(ess, LEAST_ESS, min(FEW_ESS, weight.size))
            findings.append(Finding("effective_slates", severity, ess, message, "log more slates"))
        lacking = self._lacking() if "slate_ips" not in differences else ""
        findings += assumption_findings(info.premise, found, assumption, differences, facts, lacking)
        findings += self._item_findings()
        if any(finding.code == "heavy_tail" for finding in found.verdict.findings):
            found, heavy = self._by_slate(found, info)
            findings.append(heavy)
        more = {
            "weight": info.weight,
            "slate_size": log.slate_size,
            "slates": weight.size,
            "effective_slates": ess,
            "position_weights": sums if isinstance(sums, str) else np.asarray(sums, np.float64).tolist(),
            "assumption": {
                "premise": info.premise,
                "assumes": info.assumes,
                "stated": assumption,
                "differences": {name: list(limits) for name, limits in differences.items()},
                "position_effect": None if facts.position_effect is None else list(facts.position_effect),
                "clicks_after_click": None if facts.after_click is None else list(facts.after_click),
                "items_below": None if facts.items_below is None else list(facts.items_below),
                "clicks_by_position": None if facts.by_position is None else list(facts.by_position),
            },
        }
        named = replace(found, estimator=info.name, diagnostics=found.diagnostics | more)
        return named.with_findings(findings)

    def _by_slate(self, found: Estimate, info: RankingEstimatorInfo) -> tuple[Estimate, Finding]:
        """The estimate without, and the finding of heavy weights by slate: rewards of a slate are not independent."""
        rows, k = self.rows(info), self.log.slate_size
        weight = rows.weight.reshape(-1, k)
        number = heavy_tail(weight, rows.reward.reshape(-1, k), weight - 1.0 if self.from_today else weight)
        (old,) = (finding for finding in found.verdict.findings if finding.code == "heavy_tail")
        said = f"the heaviest slates earned little: by its weights the interval would be {number:.2g} times as wide"
        heavy = Finding("heavy_tail", scaled(number, HEAVY, np.inf), number, said, old.action)
        others = [finding for finding in found.verdict.findings if finding is not old]
        return replace(found, verdict=Verdict.of(others)), heavy

    def _facts(self) -> ClickFacts:
        log = self.log
        if self.facts is None:
            marginal = log.logging.get("marginal")
            down = log.logging.get("cumulative")
            of_clicks, of_below = (1.0 - share * (1.0 - self.level) for share in (CLICKS, BELOW))
            found = click_facts(log.reward, marginal, log.action, log.slate_size, log.clusters, of_clicks, down)
            if down is not None and "cumulative" in log.targets and not self._gaps():
                ratio = (log.targets["cumulative"] / down).reshape(-1, log.slate_size)
                below = items_below(log.reward, log.action, ratio, log.clusters, of_below)
                found = replace(found, items_below=below)
            self.facts = found
        return self.facts

    def _differences(self, info: RankingEstimatorInfo) -> dict[str, Limits]:
        """How much larger the estimator is than those that assume less; all limits together at the level."""
        others = [RANKING_ESTIMATORS[name] for name in info.less]
        known = [other for other in others if other.weight in self.log.logging and other.weight in self.log.targets]
        known = [other for other in known if self.sees_target(other)]
        share = 1.0 - TESTED.get(info.premise, 0.0)
        each = 1.0 - share * (1.0 - self.level) / max(len(known), 1)
        scores = self.row_scores(info)
        return {other.name: Apart.of(scores, self.row_scores(other), self.log.clusters).limits(each) for other in known}

    def sees_target(self, info: RankingEstimatorInfo) -> bool:
        """Whether enough of the target's slates are in the log: without them a difference says nothing of users."""
        if self._gaps():
            return False
        return _effective_slates(self.rows(info).weight.reshape(-1, self.log.slate_size).sum(1)) >= FEW_ESS

    def _gaps(self) -> bool:
        """Whether a column says that the log never shows part of the target."""
        lost = self.log.unsupported
        return lost is not None and bool(np.any(lost > 0.0))

    def _label(self, action: int) -> Any:
        """What the log calls an item."""
        assert self.log.labels is not None
        return self.log.labels[int(np.argmax(self.log.action == action))]

    def _lacking(self) -> str:
        """Why the log cannot say how far an estimator is from slate_ips."""
        for known, whose in ((self.log.logging, "the log"), (self.log.targets, "the target")):
            if "slate" not in known:
                return f"{whose} lacks the probabilities of whole slates"
        return f"the log {'never shows some' if self._gaps() else 'hardly shows'} slates of the target"

    def _item_findings(self) -> list[Finding]:
        """Items shown more often at their positions than the log's probabilities say, which then are wrong."""
        log = self.log
        if self.items is None:
            known = log.action is not None and "marginal" in log.logging
            found = item_findings(log.action, log.logging["marginal"], log.clusters.codes) if known else []
            self.items = found if log.labels is None else [with_item(f, self._label) for f in found]
        return self.items


# -------------------------------------------------------------------------------------------- reward models, and nDCG


def cross_fitted_positions(
    action: Any, position: Any, reward: Any, user: Any, target_conditional: Any, *, folds: int = 5, prior: float = 10.0
) -> tuple[Floats, Floats]:
    """A reward model by item and position for cascade_dr, fitted on the users of the other folds.

    The model is the mean reward of an item at a position, drawn to the position's mean by ``prior`` rows.

    Args:
        action: (n,) numbers of the items shown, from 0.
        position: (n,) from 0 at the top.
        reward: (n,).
        user: (n,) ids.
        target_conditional: (n, n_items) the target's probability of each item at the row's position, given the items
            above in the log.
        folds: number of folds of users.
        prior: rows that each mean is drawn by.

    Returns:
        q_logged and q_target, (n,) each.
    """
    r, law = column(reward, "reward"), np.asarray(target_conditional, np.float64)
    items, places = np.asarray(action, np.int64), np.asarray(position, np.int64)
    clusters = Clusters.of(user, r.size, "user")
    assert clusters is not None
    folds = whole_number(folds, "folds", least=2)
    fold, m, k = clusters.dense()[0] % folds, law.shape[1], int(places.max()) + 1
    cell = (fold * k + places) * m + items
    sums, counts = (np.bincount(cell, x, folds * k * m).reshape(folds, k, m) for x in (r, np.ones(r.size)))
    sums, counts = sums.sum(0) - sums, counts.sum(0) - counts
    usual = sums.sum(2, keepdims=True) / np.maximum(counts.sum(2, keepdims=True), 1.0)
    model = (sums + prior * usual) / (counts + prior)
    of_row = model[fold, places]
    return of_row[np.arange(r.size), items], np.einsum("ij,ij->i", of_row, law)


@dataclass(frozen=True)
class Normalising:
    """What dividing by the ideal list does to a ranking of policies.

    Attributes:
        dcg: mean over users, by policy.
        ndcg: mean over users with an ideal above 0 of the DCG over the ideal one, by policy.
        pairs: pairs of policies whose DCG differs.
        inverted: those that nDCG ranks the other way round.
    """

    dcg: Mapping[str, float]
    ndcg: Mapping[str, float]
    pairs: int
    inverted: tuple[tuple[str, str], ...]

    @property
    def share(self) -> float:
        """Share of the pairs that are inverted; 0 without any."""
        return len(self.inverted) / self.pairs if self.pairs else 0.0


def normalising_inverts(gains: Mapping[str, Any], truth: Any) -> Normalising:
    """How often nDCG ranks two policies the other way round than DCG, where each user's ideal list is known.

    Jeunen, Potapov & Ustimenko 2024 ("On (Normalised) Discounted Cumulative Gain as an Off-Policy Evaluation Metric").

    Args:
        gains: by policy, (U, k) true expected rewards by user and position.
        truth: (U, n_items) each user's true expected reward of each item at the top; the ideal list is its largest.

    Raises:
        UserError: arrays of other shapes.
    """
    best = np.asarray(truth, np.float64)
    arrays = {name: np.asarray(each, np.float64) for name, each in gains.items()}
    if not arrays or best.ndim != 2:
        raise UserError("give (U, k) gains of at least one policy, and the (U, n_items) truth")
    k = next(iter(arrays.values())).shape[-1]
    for name, each in arrays.items():
        if each.shape != (len(best), k) or k > best.shape[1]:
            raise UserError(f"gains of {name!r} have shape {each.shape}: one row per user, one column per position")
    discount = 1.0 / np.log2(2.0 + np.arange(k))
    ideal = -np.sort(-best, axis=1)[:, :k] @ discount
    some = ideal > 0.0
    dcg = {name: each @ discount for name, each in arrays.items()}
    plain = {name: float(np.mean(each)) for name, each in dcg.items()}
    normal = {name: float(np.mean(each[some] / ideal[some])) if some.any() else 0.0 for name, each in dcg.items()}
    names = list(plain)
    both = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :] if plain[a] != plain[b]]
    turned = tuple((a, b) for a, b in both if (plain[a] - plain[b]) * (normal[a] - normal[b]) < 0.0)
    return Normalising(plain, normal, len(both), turned)
