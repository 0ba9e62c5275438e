"""Records of what protocols estimate, and rankings of agents judged by the truth: best, a tie, or at a cost."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.log.columns import Floats

UNUSABLE_FROM = 2.0
"""Severity from which an estimate is not usable."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One row of ``results.json``.

    Attributes:
        world: name of the world, or "interactions" for a user's own data.
        protocol: name of the protocol, such as ``loocv`` or ``truth``.
        agent: name of the judged policy.
        metric: name of the metric, such as ``hr@1``, ``clipped_ips`` or ``ctr``.
        value: estimated value.
        low, high: ends of the interval of nominal coverage ``level``, which includes the value; NaN for none.
        level: nominal coverage of the interval.
        n: number of units (decisions, or users for leave-one-out).
        seconds: wall time, divided evenly among agents that were judged together.
        details: further results; JSON types only.

    Raises:
        UserError: the value is outside its interval.
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
    details: Mapping[str, Any] = field(default_factory=dict)

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
        """Make a record; ``interval`` is value, low and high, and the details are copied."""
        value, low, high = interval
        return cls(
            world=world,
            protocol=protocol,
            agent=agent,
            metric=metric,
            value=value,
            low=low,
            high=high,
            level=level,
            n=n,
            seconds=seconds,
            details=dict(details or {}),
        )

    def __post_init__(self) -> None:
        """Raise UserError for an interval that excludes its own value."""
        if self.low > self.value or self.high < self.value:
            raise UserError(
                f"record of {self.protocol} {self.metric} for {self.agent}: the value {self.value:g} is outside its "
                f"interval [{self.low:g}, {self.high:g}]. Return an interval that holds the value, or NaN for none"
            )

    @property
    def usable(self) -> bool:
        """True if the log has enough data for this estimate."""
        return bool(self.details.get("verdict_level") != "do_not_use")

    @property
    def severity(self) -> float:
        """Severity of the gravest finding of the verdict; from 2 on the estimate is unusable. 0 without a verdict."""
        least = 0.0 if self.usable else UNUSABLE_FROM
        return max((float(finding["severity"]) for finding in self.details.get("findings", ())), default=least)

    def limit(self, larger: bool) -> float:
        """Return the optimistic end of the interval of the agent's value, which allows for clipping and support.

        Args:
            larger: True if large values are good.
        """
        end = "high" if larger else "low"
        target_end = self.details.get(f"target_{end}")
        if target_end is None:
            return getattr(self, end)
        return float(target_end)

    @property
    def is_reference(self) -> bool:
        """True for an agent that is shown and cannot be picked."""
        return bool(self.details.get("reference"))

    def to_dict(self) -> Mapping[str, Any]:
        """Convert the fields to JSON types; a number that is not finite becomes None."""
        return {name: plain(value) for name, value in asdict(self).items()}

    def untimed(self) -> Mapping[str, Any]:
        """Return the fields of :meth:`to_dict` without the seconds, which differ between runs."""
        return {name: value for name, value in self.to_dict().items() if name != "seconds"}


def has_interval(record: Record) -> bool:
    """Return True if a record has an interval, as estimates have and known facts have not."""
    return not (math.isnan(record.low) and math.isnan(record.high))


def plain(value: Any) -> Any:
    """Convert a value to JSON types; a number that is not finite becomes None."""
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
"""Outcomes of a protocol's pick."""
HALF_WIDTHS = "paired_half_widths"
"""Key in the details of a truth record, whose value is, by other agent, half the width of the interval of their paired
true difference."""


@dataclass(frozen=True)
class Target:
    """Quantity by which the truth ranks agents.

    Attributes:
        metric: metric of the truth's records.
        title: heading of its column, such as "CTR".
        larger: True if large values are good; False for a loss.
        unit: total of which a pick loses a share, in a sentence, such as "the clicks"; empty for the title.
    """

    metric: str
    title: str
    larger: bool = True
    unit: str = ""


TIDY = (
    *("protocol", "metric", "agent", "value", "low", "high", "truth", "picked", "cost", "tau"),
    *("abstained", "reason", "seconds"),
)
"""Columns of a table of results."""
TIDY_TYPES = {
    "picked": "boolean",
    "abstained": "boolean",
    "truth": float,
    "cost": float,
    "tau": float,
    "seconds": float,
}
"""Types of the columns that pandas would otherwise store as objects."""


@dataclass(frozen=True)
class Judgement:
    """Quality of one ranking, given the truth.

    Attributes:
        protocol, metric: protocol that ranks agents, and the metric by which it does.
        title: name of the ranking, such as "A/B test".
        target: title of the true metric, such as "CTR".
        outcome: one of :data:`OUTCOMES`.
        kendall_tau: rank correlation (tau-b) with the truth, 1 for the same ranking; NaN if one of them ties
            throughout.
        pick: agent that the ranking puts first.
        tied_with: agents with the same estimate as the pick; the choice among them is arbitrary.
        n_agents: number of ranked agents.
        pick_truth: true value of the pick.
        best: agent that the truth puts first.
        best_truth: true value of that agent.
        cost: difference between the true values of the best agent and the pick, at least 0; the mean over the pick and
            the agents tied with it.
        cost_share: ``cost / |best_truth|``; None if that is 0.
        resolution: half the width of the interval of the true difference of pick and best; a cost up to it cannot be
            distinguished from 0.
        pick_by_upper_bound: agent with the largest upper end of its interval or, for a loss, the smallest lower end;
            empty if all are equal.
        tau_by_upper_bound: rank correlation of these ends with the truth.
        unusable: agents, perhaps with the pick, for whose estimate the log has too little data.
        severity: largest severity among the estimates of the pick and of its rivals: agents that, by their intervals,
            may be better.
        abstains: True if one of these estimates is unusable, so that the protocol should not decide.
        reason: reason why it abstains; empty if it decides.
        target_metric: metric of the truth's records.
        larger: True if large true values are good; False for a loss.
        unit: total of which the cost is a share, such as "the clicks".
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
    unusable: tuple[str, ...] = ()
    severity: float = 0.0
    abstains: bool = False
    reason: str = ""
    target_metric: str = ""
    larger: bool = True
    unit: str = ""

    @property
    def picks(self) -> tuple[str, ...]:
        """The pick and the agents tied with it."""
        return (self.pick, *self.tied_with)

    @property
    def ranks_nothing(self) -> bool:
        """True if all agents have the same estimate."""
        return len(self.picks) == self.n_agents

    @property
    def pick_unusable(self) -> bool:
        """True if the log has too little data for the estimate of a pick."""
        return bool(set(self.picks) & set(self.unusable))

    @property
    def result(self) -> str:
        """Describe the result of the pick in a few words: the best, a tie, or the loss."""
        if self.outcome == BEST:
            return "the best"
        if self.outcome == INDISTINGUISHABLE:
            return "a tie" if self.best in self.picks else f"a tie with {self.best}"
        if self.cost_share is None:
            return f"is {self.cost:.3g} from the best {self.target}"
        unit = self.unit or f"the {self.target}"
        share = f"{two_digits(self.cost_share)} %"
        if self.larger:
            return f"loses {share} of {unit}"
        return f"adds {share} to {unit}"

    def sentence(self) -> str:
        """Describe the judgement in a sentence."""
        picked = " or ".join(self.picks)
        if self.ranks_nothing:
            picked = "all agents alike"
        if self.pick_unusable:
            picked += " (by an estimate that rests on too little data)"
        return f"{self.title} picks {picked}: {self.result}."

    def to_dict(self) -> Mapping[str, Any]:
        """Return the fields and the sentence as JSON types."""
        return {**plain(asdict(self)), "sentence": self.sentence()}


def two_digits(share: float) -> str:
    """Format a share in per cent with two significant digits, without the sign."""
    per_cent = 100 * share
    if 0.0 < abs(per_cent) < 0.005:
        return "<0.01"
    if abs(per_cent) >= 10:
        return f"{per_cent:.0f}"
    if abs(per_cent) >= 0.1:
        return f"{per_cent:.2g}"
    return f"{per_cent:.1g}"


@dataclass(frozen=True)
class Ranking:
    """Values by which a protocol ranks agents.

    Attributes:
        protocol, metric: protocol and metric of the records.
        title: name of the ranking.
        target: true quantity with which it is compared.
    """

    protocol: str
    metric: str
    title: str
    target: Target


def judge(records: Sequence[Record], rankings: Iterable[Ranking], *, tie: float = 0.0) -> list[Judgement]:
    """Compare rankings with the truth.

    A pick is the best if no agent has a larger true value. It is indistinguishable from the best if their true
    difference is at most half the width of its interval (the paired one if the truth's records have it, else that of
    two independent values), or at most the share ``tie`` of the best value. References are left out.

    Args:
        records: records of the protocols and of the truth.
        rankings: rankings to judge; those without records, without a truth, or of a single agent are left out.
        tie: share of the best true value below which a cost counts as none.
    """
    candidates: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        if not record.is_reference and math.isfinite(record.value):
            candidates.setdefault((record.protocol, record.metric), {})[record.agent] = record
    judgements = []
    for ranking in rankings:
        true = candidates.get(("truth", ranking.target.metric), {})
        ranked = candidates.get((ranking.protocol, ranking.metric), {})
        ranked_records = [record for agent, record in ranked.items() if agent in true]
        if len(ranked_records) >= 2:
            judgements.append(_judge_ranking(ranking, ranked_records, true, tie))
    return judgements


def _judge_ranking(ranking: Ranking, ranked: list[Record], true: Mapping[str, Record], tie: float) -> Judgement:
    """Judge a protocol's ranking by the truth; the sign of losses is changed, so that larger is always better.

    Args:
        ranking: the ranking.
        ranked: records of the ranked agents, two or more.
        true: record of the truth by agent.
        tie: share of the best true value below which a cost counts as none.
    """
    target = ranking.target
    larger = target.larger
    sign = 1.0 if larger else -1.0
    values = {r.agent: sign * r.value for r in ranked}
    bounds = {r.agent: sign * (r.high if larger else r.low) for r in ranked}
    truth = {agent: sign * record.value for agent, record in true.items()}
    best = _largest(truth)[0]
    picks = _largest(values)  # several if they tie
    losses = [truth[best] - truth[agent] for agent in picks]
    half_widths = [half_width(true[best], true[agent]) for agent in picks]
    negligible = tie * abs(truth[best])
    cost = float(np.mean(losses))
    outcome = COSTS
    if cost == 0.0:
        outcome = BEST
    elif all(loss <= max(half, negligible) for loss, half in zip(losses, half_widths, strict=True)):
        outcome = INDISTINGUISHABLE
    severity, reason = _abstention([r for r in ranked if r.agent in picks], ranked, larger)
    return Judgement(
        protocol=ranking.protocol,
        metric=ranking.metric,
        title=ranking.title,
        target=target.title,
        outcome=outcome,
        kendall_tau=rank_correlation(values, truth),
        pick=picks[0],
        tied_with=tuple(picks[1:]),
        n_agents=len(ranked),
        pick_truth=true[picks[0]].value,
        best=best,
        best_truth=true[best].value,
        cost=cost,
        cost_share=cost / abs(truth[best]) if truth[best] != 0 else None,
        resolution=max(half_widths),
        pick_by_upper_bound=_largest(bounds)[0] if len(set(bounds.values())) > 1 else "",
        tau_by_upper_bound=rank_correlation(bounds, truth),
        unusable=tuple(r.agent for r in ranked if not r.usable),
        severity=severity,
        abstains=bool(reason),
        reason=reason,
        target_metric=target.metric,
        larger=larger,
        unit=target.unit,
    )


def _abstention(picks: Sequence[Record], ranked: Sequence[Record], larger: bool) -> tuple[float, str]:
    """Check if the estimates of the picks and of their rivals are usable.

    Args:
        picks: records of the agents ranked first.
        ranked: records of all agents.
        larger: True if large values are good.

    Returns:
        severity: largest severity among these estimates.
        reason: reason why the protocol should abstain; "" if it should decide.
    """
    sign = 1.0 if larger else -1.0
    value = sign * picks[0].value
    # Rivals are agents whose intervals reach beyond the pick's value.
    rivals = [r for r in ranked if r not in picks and sign * r.limit(larger) > value]
    severity = max(r.severity for r in [*picks, *rivals])
    unusable_picks = [r.agent for r in picks if not r.usable]
    if unusable_picks:
        return severity, f"too little data on its pick {listed(unusable_picks)}"
    unusable_rivals = [r.agent for r in rivals if not r.usable]
    if unusable_rivals:
        return severity, f"too little data on {listed(unusable_rivals)}, which may be better"
    return severity, ""


def tidy_rows(
    records: Sequence[Mapping[str, Any]], judgements: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, object]]:
    """Return one row per record, with the judgement on its ranking.

    The columns are ``protocol``, ``metric``, ``agent``, ``value``, ``low`` and ``high`` of the record, ``truth`` (the
    agent's true value by the ranking's target or, in records that are not judged, by the only target), ``picked``,
    ``cost`` (share of the best true value that picking this agent loses), ``tau`` (Kendall's correlation of the ranking
    with the truth), ``abstained`` and ``reason`` of the protocol, and ``seconds``. Unknown values are None.

    Args:
        records: results of :meth:`Record.to_dict`.
        judgements: results of :meth:`Judgement.to_dict`.
    """
    true = {(r["metric"], r["agent"]): r["value"] for r in records if r["protocol"] == "truth"}
    by_key = {(j["protocol"], j["metric"]): j for j in judgements}
    targets = {j["target_metric"] for j in judgements}
    only_target = targets.pop() if len(targets) == 1 else None
    rows: list[Mapping[str, object]] = []
    for r in records:
        row = {name: r.get(name) for name in TIDY}
        row["truth"] = r["value"] if r["protocol"] == "truth" else true.get((only_target, r["agent"]))
        judgement = by_key.get((r["protocol"], r["metric"]))
        if judgement is not None:
            truth = true.get((judgement["target_metric"], r["agent"]))
            best = judgement["best_truth"]
            row |= {
                "truth": truth,
                "picked": r["agent"] in (judgement["pick"], *judgement["tied_with"]),
                "tau": judgement["kendall_tau"],
                "abstained": judgement["abstains"],
                "reason": judgement["reason"],
            }
            if truth is not None and best and not r["details"].get("reference"):
                row["cost"] = abs(best - truth) / abs(best)
        rows.append(row)
    return rows


def is_named(judgement: Mapping[str, Any], protocols: Sequence[str] | None) -> bool:
    """Return True if the protocol, metric or title of a judgement is among some names; always if they are None."""
    names = (judgement["protocol"], judgement["metric"], judgement["title"])
    return protocols is None or any(name in protocols for name in names)


def listed(names: Sequence[str], most: int = 0) -> str:
    """Join names for a sentence.

    Args:
        names: one name or more.
        most: largest number of entries, the last of which counts the names that are left out; 0 for all names.
    """
    if most and len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _largest(values: Mapping[str, float]) -> list[str]:
    """Return the names that have the largest value, in the order of the mapping."""
    top = max(values.values())
    return [name for name, value in values.items() if value == top]


def half_width(first: Record, second: Record) -> float:
    """Return half the width of the interval of the true difference of two agents; 0 for an agent and itself.

    The interval is the paired one if the truth's records have it, else that of two independent values.
    """
    if first.agent == second.agent:
        return 0.0
    paired = first.details.get(HALF_WIDTHS, {}).get(second.agent)
    if paired is not None:
        return float(paired)
    return math.hypot(*((r.high - r.low) / 2 for r in (first, second)))


def truth_of_users(
    world: str, metric: str, means: Mapping[str, Floats], level: float, *, began: float, n: int | None = None
) -> list[Record]:
    """Make truth records of means over the same users, with the half widths of paired differences in their details.

    Args:
        world: name of the world.
        metric: metric of the truth.
        means: by agent, (U,) mean of each user; all agents have the same users in the same order.
        level: nominal coverage of the intervals.
        began: start of the work, by ``time.perf_counter``.
        n: number of units to report; None for the number of users.
    """
    seconds = (time.perf_counter() - began) / max(len(means), 1)
    records = []
    influence = {}
    for name, values in means.items():
        ones = np.ones(len(values))
        interval = ratio_interval(values, ones, level)
        details = {"users": len(values)}
        key = (world, "truth", name, metric)
        n_units = n or len(values)
        records.append(Record.of(*key, interval, level=level, n=n_units, seconds=seconds, details=details))
        influence[name] = ratio_influence(values, ones)
    return with_half_widths(records, influence, level)


def with_half_widths(records: Sequence[Record], influence: Mapping[str, Floats], level: float) -> list[Record]:
    """Add the half widths of paired differences to the details of truth records of one metric.

    The intervals are by the delta method with users as the sample.

    Args:
        records: one record per agent.
        influence: by agent, (U,) contribution of each user to the error of its value, such as the result of
            :func:`ratio_influence`. Arrays of equal length have the same users in the same order; agents with arrays of
            different lengths are not paired.
        level: nominal coverage of the intervals of the differences.
    """
    by_agent: dict[str, dict[str, float]] = {name: {} for name in influence}
    for n_users in dict.fromkeys(map(len, influence.values())):
        names = [name for name, values in influence.items() if len(values) == n_users]
        widths = paired_half_widths(np.stack([influence[name] for name in names]), level).tolist()
        for name, row in zip(names, widths, strict=True):
            by_agent[name] = {other: width for other, width in zip(names, row, strict=True) if other != name}
    return [replace(r, details={**r.details, HALF_WIDTHS: by_agent[r.agent]}) for r in records]


def ratio_influence(sums: ArrayLike, counts: ArrayLike) -> Floats:
    """Return (U,) the contribution of each user to the error of sum y / sum n, scaled so that their mean is the error.

    Args:
        sums: (U,) y of each user.
        counts: (U,) n of each user.
    """
    y = np.asarray(sums, np.float64)
    n = np.asarray(counts, np.float64)
    return (y - y.sum() / n.sum() * n) * (len(n) / n.sum())


def paired_half_widths(influence: Floats, level: float) -> Floats:
    """Compute half the widths of the intervals of paired differences between agents.

    Args:
        influence: (A, U) contribution of each user to the error of each agent's value.
        level: nominal coverage of the intervals.

    Returns:
        (A, A) half widths, by Student's quantile; infinite for a single user.
    """
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
    """Compute Kendall's tau-b of two rankings of the same names; NaN if one of them ties throughout."""
    from scipy.stats import kendalltau

    names = list(values)
    if len(names) < 2 or len({values[n] for n in names}) == 1 or len({true[n] for n in names}) == 1:
        return math.nan
    return float(kendalltau([values[n] for n in names], [true[n] for n in names]).statistic)
