"""Records, what protocols say of agents, and rankings judged by the truth: best, as good, or at what cost."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recsim_mnar.estimators.intervals import ratio_interval

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of ``results.json``.

    Attributes:
        world: name of the world, or "interactions" for a user's own data.
        protocol: name of the protocol, as ``loocv`` or ``truth``.
        agent: name of the policy judged.
        metric: ``hr@1``, ``clipped_ips``, ``ctr``, ...
        value: the estimate.
        low, high: interval of nominal coverage ``level``.
        level: of the interval.
        n: units it rests on (decisions, or users for leave-one-out).
        seconds: wall time it took, shared evenly where agents were judged together.
        details: what else a person should know; JSON types only.
    """

    world: str
    protocol: str
    agent: str
    metric: str
    value: float
    low: float
    high: float
    level: float
    n: int
    seconds: float
    details: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        world: str,
        protocol: str,
        agent: str,
        metric: str,
        interval: tuple[float, float, float],
        *,
        level: float,
        n: int,
        seconds: float,
        details: Mapping[str, Any] | None = None,
    ) -> Record:
        """The record of an interval: value, low and high; its details are a copy."""
        value, low, high = interval
        more: dict[str, Any] = {"level": level, "n": n, "seconds": seconds, "details": dict(details or {})}
        return cls(world=world, protocol=protocol, agent=agent, metric=metric, value=value, low=low, high=high, **more)

    @property
    def covers(self) -> str:
        """How much of the agent the log covers, where that is too little for a value or a rank; else empty."""
        return str(self.details.get("covers", ""))

    @property
    def forbidden(self) -> bool:
        """Whether the estimate must not be used."""
        return bool(self.covers) or self.details.get("verdict_level") == "do_not_use"

    @property
    def biased(self) -> bool:
        """Whether the log proves the value wrong: its interval, which is of the true value, leaves it out."""
        proved = any(each["code"] == "bias_proved" for each in self.details.get("findings", ()))
        return proved and not self.low <= self.value <= self.high

    def to_dict(self) -> dict[str, Any]:
        """For JSON; a number that is not finite becomes null, which JSON has and NaN it has not."""
        return {name: plain(value) for name, value in asdict(self).items()}


def plain(value: Any) -> Any:
    """A value as JSON types; a number that is not finite becomes None."""
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return value


BEST, INDISTINGUISHABLE, COSTS = "best", "indistinguishable", "costs"
OUTCOMES = (BEST, INDISTINGUISHABLE, COSTS)
"""What may come of a protocol's pick."""
UNUSABLE = "unusable"
"""Of a pick whose estimate must not be used."""
_TRUTHS_UNIT = ("off_policy", "ab_test", "naive", "ips", "snips", "ips_estimated", "snips_estimated")
"""Protocols whose values estimate the truth itself."""

POWER = 0.8
"""Share of A/B tests in which a difference is to be seen."""

HALF_WIDTHS = "paired_half_widths"
"""In a truth record's details: by other agent, half the width of the interval of their paired true difference."""


@dataclass(frozen=True)
class Target:
    """What the truth ranks agents by.

    Attributes:
        metric: of the truth's records.
        title: as a sentence names it: "the CTR".
        larger: whether large values are good; otherwise the metric is a loss.
    """

    metric: str
    title: str
    larger: bool = True


@dataclass(frozen=True)
class Judgement:
    """How well one ranking serves, the truth being known.

    Attributes:
        protocol, metric: whose ranking, by what.
        title: both as a sentence names them: "the A/B test".
        target: what the truth is of, as a sentence names it: "CTR".
        outcome: of :data:`OUTCOMES`.
        kendall_tau: rank correlation (tau-b) with the truth, 1 for the same ranking; NaN where one of them ties
            throughout.
        pick: the agent that it ranks first.
        tied_with: agents that it ranks level with the pick; the choice among them is blind.
        n_agents: how many it ranks.
        pick_truth: the pick's true value.
        best: the agent that the truth ranks first.
        best_truth: its true value.
        cost: how much worse the pick is in truth, at least 0; the mean over the pick and those tied with it.
        cost_share: ``cost / |best_truth|``; None where that is 0.
        resolution: half the width of the interval of the true difference of pick and best; a cost up to it cannot be
            distinguished from none.
        pick_by_upper_bound: the agent with the largest upper end of its interval from sample size (what clipping may
            hide left out); of a loss, with the smallest lower end. Empty where they are all level.
        tau_by_upper_bound: the rank correlation of these ends with the truth.
        unranked: agents of which the log lacks too much for a rank. The protocol ranks them all the same, and pick and
            correlations are its own.
        shown: what is said of the pick: unusable where its estimate must not be used, a tie where its cost is within
            the noise of the truth or of the protocol itself, else ``outcome``.
        unusable: the agents ranked and not picked whose estimates must not be used: the choice was not among all.
        close: the agents that the protocol cannot tell from its one pick with the data that it has: a pick that is the
            best all the same owes something to luck.
    """

    protocol: str
    metric: str
    title: str
    target: str
    outcome: str
    kendall_tau: float
    pick: str
    tied_with: tuple[str, ...]
    n_agents: int
    pick_truth: float
    best: str
    best_truth: float
    cost: float
    cost_share: float | None
    resolution: float
    pick_by_upper_bound: str
    tau_by_upper_bound: float
    unranked: tuple[str, ...] = ()
    shown: str = ""
    unusable: tuple[str, ...] = ()
    close: tuple[str, ...] = ()

    @property
    def by_luck(self) -> bool:
        """Whether the pick is the best, and the protocol could not have known it."""
        return self.shown == BEST and bool(self.close)

    @property
    def too_close(self) -> bool:
        """Whether the pick is a worse one, by less than the protocol can see with the data that it has."""
        return self.shown == INDISTINGUISHABLE and self.outcome == COSTS

    @property
    def ranks_nothing(self) -> bool:
        """Whether all agents are level."""
        return len(self.tied_with) + 1 == self.n_agents

    @property
    def loss(self) -> str:
        """The cost as a share of the best true value, or in its unit where that is 0."""
        return f"{self.cost:.4g}" if self.cost_share is None else f"{self.cost_share:.1%}"

    def sentence(self) -> str:
        """For a person."""
        if not self.unranked:
            return self._outcome() + self._of_others()
        blind = set(self.unranked) & {self.pick, *self.tied_with}
        them = "it" if len(self.unranked) == 1 else "them"
        lacks = f"The old system's records hold too little of {listed(self.unranked)} to rank {them}"
        return f"{self._outcome()} {lacks}{', so the pick is blind' if blind else ''}.{self._of_others()}"

    def _of_others(self) -> str:
        """That the choice was not among all agents; empty where it was, or where none is said to be made."""
        if not self.unusable or self.shown == UNUSABLE or self.ranks_nothing:
            return ""
        several = "estimates of these others" if len(self.unusable) > 1 else "estimate of this other one"
        return f" Its {several} must not be used: {', '.join(self.unusable)}."

    def _outcome(self) -> str:
        """What comes of the pick."""
        subject = as_subject(self.title)
        of_it = "" if self.cost_share is None else " of"
        price = f"{self.loss}{of_it} the {self.target}"
        if self.ranks_nothing:
            return f"{subject} ranks all agents alike: a blind choice among them costs {price} on average."
        picks = " or ".join([self.pick, *self.tied_with])
        blind = " on average" if self.tied_with else ""
        if self.shown == UNUSABLE:
            return f"{subject} cannot choose here: its estimate of {picks}, which it would pick, must not be used."
        if self.outcome == BEST:
            found = f"{subject} picks {picks}, which is the best: nothing lost."
            luck = f" Luck helped: its data are too few to tell {self.pick} from "
            return found + (f"{luck}{listed(self.close)}." if self.by_luck else "")
        if self.too_close:
            lost = f"that costs {price}{blind}, less than it can see with the data that it has"
            return f"{subject} picks {picks} and not the best, {self.best}: {lost}."
        if self.outcome == INDISTINGUISHABLE:
            return f"{subject} picks {picks}, a statistical tie with the best, {self.best}: {price}{blind}."
        return f"{subject} picks {picks}; {self.best} is the best, so the choice costs {price}{blind}."

    def to_dict(self) -> dict[str, Any]:
        """JSON types, the sentence included."""
        found: dict[str, Any] = plain(asdict(self))
        return {**found, "sentence": self.sentence()}


@dataclass(frozen=True)
class Ranking:
    """Values by which a protocol ranks agents.

    Attributes:
        protocol, metric: as in the records.
        title: as a sentence names it.
        target: what it is compared with.
    """

    protocol: str
    metric: str
    title: str
    target: Target


def judge(records: Sequence[Record], rankings: Iterable[Ranking], *, tie: float = 0.0) -> list[Judgement]:
    """Hold rankings against the truth.

    A pick is the best where no agent is truly better. It is indistinguishable from the best where their true difference
    is within its own interval (paired, where the truth's records say so; else of two independent values), or at most
    ``tie`` of the best value. Agents whose records say ``reference`` are left out.

    Args:
        records: of the protocols and of the truth.
        rankings: to be judged; one without records, without a truth, or of a single agent gives nothing.
        tie: share of the best true value that counts as nothing.
    """
    candidates = [r for r in records if not r.details.get("reference") and math.isfinite(r.value)]
    judgements = []
    for ranking in rankings:
        target = ranking.target
        true = {r.agent: r for r in candidates if (r.protocol, r.metric) == ("truth", target.metric)}
        ranked = [r for r in candidates if (r.protocol, r.metric) == (ranking.protocol, ranking.metric)]
        ranked = [r for r in ranked if r.agent in true]
        if len(ranked) >= 2:
            judgements.append(_judged(ranking, ranked, true, tie))
    return judgements


def _judged(ranking: Ranking, ranked: list[Record], true: Mapping[str, Record], tie: float) -> Judgement:
    sign = 1.0 if ranking.target.larger else -1.0
    values = {r.agent: sign * r.value for r in ranked}
    bounds = {r.agent: sign * _bound(r, ranking.target.larger) for r in ranked}
    truth = {agent: sign * record.value for agent, record in true.items()}
    best, first, *others = _largest(truth)[0], *_largest(values)
    picks = [first, *others]
    costs = {agent: truth[best] - truth[agent] for agent in picks}
    cost = float(np.mean(list(costs.values())))
    widths = {agent: half_width(true[best], true[agent]) for agent in picks}
    small = tie * abs(truth[best])
    hidden = all(costs[agent] <= max(widths[agent], small) for agent in picks)
    outcome = BEST if cost == 0.0 else INDISTINGUISHABLE if hidden else COSTS
    own = {r.agent: r for r in ranked}
    return Judgement(
        protocol=ranking.protocol,
        metric=ranking.metric,
        title=ranking.title,
        target=ranking.target.title,
        outcome=outcome,
        kendall_tau=rank_correlation(values, truth),
        pick=first,
        tied_with=tuple(others),
        n_agents=len(ranked),
        pick_truth=true[first].value,
        best=best,
        best_truth=true[best].value,
        cost=cost,
        cost_share=cost / abs(truth[best]) if truth[best] != 0 else None,
        resolution=max(widths.values()),
        pick_by_upper_bound=_largest(bounds)[0] if len(set(bounds.values())) > 1 else "",
        tau_by_upper_bound=rank_correlation(bounds, truth),
        unranked=tuple(r.agent for r in ranked if r.covers),
        shown=_shown(outcome, [own[agent] for agent in picks], own.get(best), cost, alike=len(picks) == len(ranked)),
        unusable=tuple(r.agent for r in ranked if r.forbidden and not r.covers and r.agent not in picks),
        close=() if others else tuple(r.agent for r in ranked if _close(own[first], r, truth)),
    )


def _close(pick: Record, other: Record, truth: Mapping[str, float]) -> bool:
    """Whether a protocol cannot tell another agent from its pick.

    One that estimates what the truth is of can where it would see their true difference in :data:`POWER` of all runs;
    any other one where the difference that it found is beyond its interval.
    """
    if pick.agent == other.agent or pick.forbidden or other.forbidden or pick.details.get("paired"):
        return False
    width = facing_width(pick, other)
    if pick.protocol in _TRUTHS_UNIT:
        return abs(truth[pick.agent] - truth[other.agent]) < width * seen(pick.level)
    return abs(pick.value - other.value) <= width


def seen(level: float) -> float:
    """The difference that is seen in :data:`POWER` of all runs, in half widths of its interval of this level."""
    from scipy.special import ndtri

    return 1.0 + float(ndtri(POWER) / ndtri(0.5 + level / 2))


def listed(names: Sequence[str], most: int = 0) -> str:
    """Names in a sentence.

    Args:
        names: at least one.
        most: how many are named, the rest being counted; 0 for all.
    """
    if most and len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _shown(outcome: str, picks: Sequence[Record], best: Record | None, cost: float, *, alike: bool) -> str:
    """What is said of a pick: :attr:`Judgement.shown`.

    A protocol's noise is that of its difference between pick and best, :func:`facing_width`. It is compared with the
    cost where the protocol estimates what the truth is of, else with the difference that the protocol itself finds.
    """
    if any(pick.forbidden for pick in picks):
        return UNUSABLE
    if outcome != COSTS or best is None or best.forbidden or alike:
        return outcome
    in_its_unit = best.protocol in _TRUTHS_UNIT
    gaps = [cost if in_its_unit else abs(pick.value - best.value) for pick in picks]
    hidden = all(gap <= facing_width(pick, best) for pick, gap in zip(picks, gaps, strict=True))
    return INDISTINGUISHABLE if hidden else COSTS


def _largest(values: Mapping[str, float]) -> list[str]:
    """Names of the largest value, in their order."""
    top = max(values.values())
    return [name for name, value in values.items() if value == top]


def _bound(record: Record, larger: bool) -> float:
    """The end of its interval from sample size on the good side."""
    end = "high" if larger else "low"
    return float(record.details.get(f"sampling_{end}", getattr(record, end)))


def half_width(one: Record, other: Record) -> float:
    """Half the width of the interval of the true difference of two agents; 0 of an agent from itself."""
    if one.agent == other.agent:
        return 0.0
    paired = one.details.get(HALF_WIDTHS, {}).get(other.agent)
    if paired is not None:
        return float(paired)
    return math.hypot(*((r.high - r.low) / 2 for r in (one, other)))


def facing_width(one: Record, other: Record) -> float:
    """How far the difference of two agents may be from what a protocol found, towards no difference.

    Of two intervals that are not of one sample the lower part of the larger value's and the upper part of the smaller
    value's: where clipping may hide much of the larger one, that speaks for it and not against it.
    """
    if other.agent in one.details.get(HALF_WIDTHS, {}) or one.agent == other.agent:
        return half_width(one, other)
    upper, lower = (one, other) if one.value >= other.value else (other, one)
    return math.hypot(max(upper.value - upper.low, 0.0), max(lower.high - lower.value, 0.0))


def truth_of_users(
    world: str, metric: str, means: Mapping[str, Floats], level: float, *, began: float, n: int | None = None
) -> list[Record]:
    """Truth records of means over users, whose details say how well each difference is known, users being shared.

    Args:
        world: its name.
        metric: of the truth.
        means: by agent, (U,) each user's mean; the same users in the same order.
        level: of the intervals.
        began: of the work, by ``time.perf_counter``.
        n: cells that the means rest on; the users where None.
    """
    seconds = (time.perf_counter() - began) / max(len(means), 1)
    records, influence = [], {}
    for name, values in means.items():
        ones = np.ones(len(values))
        found, about = ratio_interval(values, ones, level), {"users": len(values)}
        key = (world, "truth", name, metric)
        records.append(Record.of(*key, found, level=level, n=n or len(values), seconds=seconds, details=about))
        influence[name] = ratio_influence(values, ones)
    return with_half_widths(records, influence, level)


def with_half_widths(records: Sequence[Record], influence: Mapping[str, Floats], level: float) -> list[Record]:
    """Truth records of one metric whose details say how well each difference is known.

    Args:
        records: one an agent.
        influence: by agent, (U,) each user's part in the error of its value, as :func:`ratio_influence`; those of as
            many users are of the same users in the same order, and others are not paired.
        level: of the intervals of the differences, by the delta method with users as the sample.
    """
    by_agent: dict[str, dict[str, float]] = {name: {} for name in influence}
    for n_users in dict.fromkeys(map(len, influence.values())):
        names = [name for name, values in influence.items() if len(values) == n_users]
        widths = paired_half_widths(np.stack([influence[name] for name in names]), level).tolist()
        for name, row in zip(names, widths, strict=True):
            by_agent[name] = {other: width for other, width in zip(names, row, strict=True) if other != name}
    return [replace(r, details={**r.details, HALF_WIDTHS: by_agent[r.agent]}) for r in records]


def ratio_influence(sums: ArrayLike, counts: ArrayLike) -> Floats:
    """(U,) each user's part in the error of sum y / sum n, scaled so that the error is their mean."""
    y, n = np.asarray(sums, np.float64), np.asarray(counts, np.float64)
    return (y - y.sum() / n.sum() * n) * (len(n) / n.sum())


def paired_half_widths(influence: Floats, level: float) -> Floats:
    """(A, A) half widths of the intervals of differences of A means over the same users; ``influence`` is (A, U)."""
    from scipy.special import stdtrit

    n_agents, n_users = influence.shape
    out = np.zeros((n_agents, n_agents))
    if n_users < 2:
        return np.full_like(out, math.inf)
    quantile = float(stdtrit(n_users - 1, 0.5 + level / 2))
    for i in range(n_agents):
        for j in range(i):
            error = float(np.std(influence[i] - influence[j], ddof=1)) / math.sqrt(n_users)
            out[i, j] = out[j, i] = quantile * error
    return out


def rank_correlation(values: Mapping[str, float], true: Mapping[str, float]) -> float:
    """Kendall's tau-b of two rankings of the same names; NaN where one of them ties throughout."""
    from scipy.stats import kendalltau

    names = list(values)
    if len(names) < 2 or len({values[n] for n in names}) == 1 or len({true[n] for n in names}) == 1:
        return math.nan
    return float(kendalltau([values[n] for n in names], [true[n] for n in names]).statistic)


def as_subject(title: str) -> str:
    """A title at the beginning of a sentence; a name of code, as ``package.module:Class``, stays as it is."""
    return title if ":" in title else title[0].upper() + title[1:]


def headline(judgements: Sequence[Judgement], say_best: Callable[[Judgement], str]) -> str:
    """One sentence: which rankings pick the best agent of one target, and what the others' picks cost.

    Args:
        judgements: all of one target.
        say_best: the sentence's beginning: which agent is the best.
    """
    if not judgements:
        return ""
    picks: dict[tuple[str, ...], list[Judgement]] = {}
    for judgement in judgements:
        picks.setdefault((judgement.shown, judgement.pick, *judgement.tied_with), []).append(judgement)
    right = [j for key, group in picks.items() if key[0] == BEST for j in group]
    parts = [f"{_titles(right)} it" if right else "no metric picks it"]
    for (outcome, *names), group in picks.items():
        if outcome == BEST:
            continue
        price = {INDISTINGUISHABLE: "a statistical tie", UNUSABLE: "by an estimate that must not be used"}.get(
            outcome, f"which costs {group[0].loss}"
        )
        parts.append(f"{_titles(group)} {' or '.join(names)}, {price}")
    return f"{say_best(judgements[0])}: {'; '.join(parts)}."


def _titles(judgements: Sequence[Judgement]) -> str:
    """Who picks: titles without the target's name, which the sentence has said, and the verb."""
    names = [j.title.removesuffix(f" of {j.target}") for j in judgements]
    return f"{names[0]} picks" if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]} pick"
