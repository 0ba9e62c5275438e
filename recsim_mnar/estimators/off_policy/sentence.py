"""Estimates as people write them: amounts, intervals, names of policies, and each reason for doubt once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.verdict import OFF_BY
from recsim_mnar.estimators.verdict import LEVELS
from recsim_mnar.log.columns import Floats, column

Record = dict[str, Any]

TODAY = "today's policy"
_RANGE = "range_unstated"
_GAPS = ("support_missing", "support_gap", "no_support")


@dataclass(frozen=True)
class Amounts:
    """Format of amounts of reward.

    Attributes:
        shares: whether rewards are 0 or 1, so that values are per cent of the decisions; else they have a unit.
    """

    shares: bool = False

    @staticmethod
    def of(records: Sequence[Record]) -> Amounts:
        """As the rewards behind some estimates ask for."""
        for facts in (record["diagnostics"] for record in records):
            if {"clicks", "mean_reward", "n", "reward_min", "reward_max"} <= facts.keys():
                off = abs(facts["mean_reward"] * facts["n"] - facts["clicks"])
                return Amounts((facts["reward_min"], facts["reward_max"]) == (0.0, 1.0) and off <= 1e-6 * facts["n"])
        return Amounts()

    def one(self, value: float) -> str:
        """A value: ``1.88 %``, or ``2.431`` in the rewards' unit."""
        return f"{self._number(value)} %" if self.shares else self._number(value)

    def change(self, value: float) -> str:
        """A difference of values: ``+0.35 points`` (of per cent), or ``+0.35``."""
        sign = "+" if value > 0.0 else ""
        return f"{sign}{self._number(value)}" + (" points" if self.shares else "")

    def span(self, low: float, high: float, unit: str = " %") -> str:
        """An interval: ``1.81 to 1.95 %``; ``at least 1.81 %`` without an upper end."""
        unit = unit if self.shares else ""
        if math.isfinite(high):
            return f"{self._number(low)} to {self._number(high)}{unit}"
        return f"at least {self._number(low)}{unit}" if math.isfinite(low) else "no limits"

    def _number(self, value: float) -> str:
        return per_cent(value) if self.shares else f"{value:.4g}"


def per_cent(share: float) -> str:
    """A share in per cent, three digits of it: ``1.80``."""
    return f"{100.0 * share:#.3g}".rstrip(".")


def label(record: Record) -> str:
    """Reader's name of a record's policy or difference."""
    if "baseline" not in record:
        return TODAY if record.get("today") else str(record["policy"])
    return f"{target_of(record)} - {baseline_of(record)}"


def target_of(record: Record) -> str:
    """The policy that a record is about."""
    return str(record["policy"]).removesuffix(f" - {record['baseline']}" if "baseline" in record else "")


def baseline_of(record: Record) -> str:
    """Reader's name of the policy that a difference starts from."""
    return TODAY if record["today"] else str(record["baseline"])


def covered_share(record: Record) -> float:
    """The share of a policy's mass that the log covers, as far as the log or a column says."""
    facts = record["diagnostics"]
    if "identified_share" in facts:
        return float(facts["identified_share"])
    gaps = [each for each in record["findings"] if each["code"] in _GAPS]
    if not gaps:
        return 1.0
    return 0.0 if gaps[0]["code"] == "no_support" else 1.0 - float(gaps[0]["number"])


def lacks(record: Record) -> bool:
    """Whether the log misses so much of the policy that its estimate is not a value of it."""
    return covered_share(record) < 1.0 - OFF_BY


def cells(record: Record, amounts: Amounts) -> tuple[str, str]:
    """Value and interval of a record, as a table has room for them."""
    value, low, high = (record[key] for key in ("value", "low", "high"))
    differs = "baseline" in record
    write = amounts.change if differs else amounts.one
    interval = amounts.span(low, high, " points" if differs else " %")
    if lacks(record):
        # Limits as wide as rewards are say nothing in a table: `identified` has them in words.
        return "not covered" if differs else f"covers {100.0 * covered_share(record):.2g} %", "-"
    # The value of a proved bias is not one to show: its limits are.
    if any(each["code"] == "bias_proved" for each in record["findings"]) and not low < value < high:
        return (f"at least {write(low)}" if value <= low else f"at most {write(high)}"), interval
    return write(value), interval


def relative_change(record: Record) -> str:
    """A difference in per cent of the baseline's value, with its sign; "" where that is not above 0, or not known."""
    base = record["diagnostics"].get("value_baseline", 0.0)
    if "baseline" not in record or not base > 0.0 or lacks(record):
        return ""
    share = float(f"{100.0 * record['value'] / base:.2g}")
    return f"{share:+,.9g} %"


def identified(record: Record, amounts: Amounts) -> str:
    """Known facts of a policy that the log covers in part, and the range left open."""
    facts, share = record["diagnostics"], covered_share(record)
    name = label(record)
    if share <= 0.0:
        return f"The log covers nothing of what {name} shows, so it says nothing of it."
    words = f"The log covers {100.0 * share:.2g} % of what {name} shows"
    value = facts.get("value_identified")
    if value is not None:
        limits = amounts.span(facts["identified_low"], facts["identified_high"])
        words += f"; there it earns {amounts.one(value)} ({100 * record['level']:g} % interval {limits})"
    least, most = facts.get("reward_min", math.nan), facts.get("reward_max", math.inf)
    if not (math.isfinite(least) and math.isfinite(most)):
        return f"{words}. What the rest earns no log of this kind says."
    bound = amounts.span(record["low"], record["high"])
    unknown = f"with rewards between {least:g} and {most:g} the whole may earn {bound}"
    return f"{words}. Beyond that it is unknown: {unknown}."


def partly_covered(records: Sequence[Record], said: str = "") -> list[str]:
    """:func:`identified` of each policy that the log lacks too much of, where it was not ``said`` before."""
    amounts = Amounts.of(records)
    partly = [r for r in records if r["leads"] and "baseline" not in r and lacks(r)]
    return [line for line in (identified(record, amounts) for record in partly) if line not in said]


@dataclass(frozen=True)
class Reason:
    """A reason for doubt, of one or several estimates.

    Attributes:
        level: "caution" or "do_not_use".
        message: what was found.
        action: what to do.
        of: the policies that it is about.
    """

    level: str
    message: str
    action: str
    of: tuple[str, ...]

    @property
    def line(self) -> str:
        """For a person, in one line."""
        of = ", ".join(self.of)
        return f"{self.level.replace('_', ' ')} ({of}): {self.message}. {self.action[:1].upper()}{self.action[1:]}."


def with_one_limit(records: Sequence[Record]) -> list[Record]:
    """The records; where rewards have no stated range each names the limit nearest of all, which holds for all."""
    leaders = [r for r in records if r.get("leads")] or records
    found = [each for of in (*leaders, *(r["best_of"] for r in leaders if "best_of" in r)) for each in of["findings"]]
    nearest: dict[str, dict[str, Any]] = {}
    for each in sorted((each for each in found if each["code"] == _RANGE), key=lambda each: -float(each["number"])):
        nearest[each["action"]] = each

    def of_all(record: Record) -> Record:
        findings = [
            each | {name: nearest[each["action"]][name] for name in ("number", "message")}
            if each["code"] == _RANGE and each["action"] in nearest
            else each
            for each in record["findings"]
        ]
        return record | {"findings": findings} | ({"best_of": of_all(record["best_of"])} if "best_of" in record else {})

    return [of_all(record) for record in records]


def reasons(records: Sequence[Record]) -> list[Reason]:
    """The reasons to doubt estimates, the gravest first, each once.

    A difference shares what speaks against its target, and several policies what speaks against the log. Of a policy
    that the log does not cover :func:`identified` says it.
    """
    records = with_one_limit(records)
    by_policy: dict[tuple[str, str], tuple[Record, dict[str, Any]]] = {}
    for record in records:
        for each in record["findings"]:
            if each["level"] != "trust" and not (lacks(record) and each["code"] in (*_GAPS, "wide_interval")):
                by_policy.setdefault((target_of(record), each["code"]), (record, each))
    found: dict[tuple[str, ...], list[str]] = {}
    for record, each in by_policy.values():
        found.setdefault((each["level"], each["message"], each["action"]), []).append(label(record))
    listed = [Reason(level, message, action, tuple(of)) for (level, message, action), of in found.items()]
    return sorted(listed, key=lambda reason: -LEVELS.index(reason.level))


ByRows = Callable[..., float]
"""Of a policy's name and ``today``, ``half_width`` and ``worse``, see
:func:`weight_tolerance`."""

TOLERANCE = "propensity_tolerance"


def propensity_tolerance(end: float, today: float) -> float:
    """Factor by which every propensity may be off before ``snips`` of 0/1 rewards reaches today's value.

    Propensities that are off by a factor of at most G change weights by as much, and so the odds of the self-normalised
    mean by at most G^2. The factor is the root of the ratio of odds.

    Args:
        end: the end of the interval that is nearer to today's value: the lower one of a policy that is better, the
            upper one of one that is worse.
        today: the mean reward of the log, strictly between 0 and 1 as ``end``, or one of them 0 or 1.

    Returns:
        1 and more, inf where one of the two is 0 or 1 and the other is not.

    Raises:
        UserError: no probabilities.
    """
    for value, name in ((end, "end"), (today, "today")):
        if not 0.0 <= value <= 1.0:
            raise UserError(f"{name} must be in [0, 1], the mean of 0/1 rewards, got {value!r}")
    if end == today:
        return 1.0
    high, low = max(end, today), min(end, today)
    below = low * (1.0 - high)
    return math.sqrt(high * (1.0 - low) / below) if below > 0.0 else math.inf


def weight_tolerance(
    reward: Any, propensity: Any, target: Any, *, today: float, half_width: float, worse: bool = False
) -> float:
    """As :func:`propensity_tolerance`, of any rewards: by the extremes of sum(g w r) / sum(g w), g in [1/G, G].

    The least of these ratios is the v at which sum(g w (r - v)) has the least value 0: g is G where r < v and 1/G where
    r > v (Zhao, Small & Bhattacharya 2019, who sort the rewards to find v for a given G). The G for a given v needs no
    sorting: it is the root of sum w (r - v)+ over sum w (v - r)+. The interval's half width is taken off,
    as if it did not depend on G: v is today's value plus it.

    Args:
        reward: (n,) any real numbers.
        propensity: (n,) in (0, 1].
        target: (n,) in [0, 1].
        today: the mean reward of the log.
        half_width: from the value to the end of its interval that is nearer to today's value.
        worse: whether the policy is worse than today, so that the largest ratio is asked for.

    Returns:
        1 and more; 1 where the interval reaches today's value, inf where no factor brings it there.
    """
    r = column(reward, "reward")
    p, t = (column(values, name, rows=r.size) for values, name in ((propensity, "propensity"), (target, "target")))
    if r.size == 0:
        raise UserError("the log has no rows; give at least one")
    return tolerance_of(*weight_excess(r, p, t, today=today, half_width=half_width, worse=worse))


def weight_excess(
    r: Floats, p: Floats, t: Floats, *, today: float, half_width: float, worse: bool
) -> tuple[float, float]:
    """Sums over rows of w (r - v)+ and of w (v - r)+, see :func:`weight_tolerance`; blocks of a log add up."""
    beyond = (t / p) * ((-1.0 if worse else 1.0) * (r - today) - half_width)
    return float(np.sum(np.maximum(beyond, 0.0))), float(np.sum(np.maximum(-beyond, 0.0)))


def tolerance_of(gain: float, loss: float) -> float:
    """The tolerance by the sums of :func:`weight_excess`."""
    if gain <= loss:
        return 1.0
    return math.sqrt(gain / loss) if loss > 0.0 else math.inf


def tolerated(record: Mapping[str, Any], by_rows: ByRows | None = None) -> dict[str, float]:
    """The tolerance of a difference from today's policy whose interval excludes 0; else, or if it has no end, nothing.

    Args:
        record: a difference.
        by_rows: for rewards other than 0 and 1; without it nothing is said of them.
    """
    low, high = float(record["low"]), float(record["high"])
    if "baseline" not in record or not record["today"] or low <= 0.0 <= high:
        return {}
    today, worse = record["diagnostics"]["mean_reward"], high < 0.0
    near = high if worse else low
    if Amounts.of([dict(record)]).shares:
        factor = propensity_tolerance(min(max(today + near, 0.0), 1.0), min(max(today, 0.0), 1.0))
    elif by_rows is not None:
        factor = by_rows(target_of(dict(record)), today=today, half_width=abs(record["value"] - near), worse=worse)
    else:
        return {}
    return {TOLERANCE: factor} if math.isfinite(factor) else {}


def with_tolerance(record: Record, by_rows: ByRows | None = None) -> Record:
    """The record, its diagnostics with :func:`tolerated`."""
    return record | {"diagnostics": record["diagnostics"] | tolerated(record, by_rows)}


def unless(record: Mapping[str, Any]) -> str:
    """Until when a difference holds: for a person, with two digits of what is above 1."""
    factor = record.get("best_of", record["diagnostics"]).get(TOLERANCE)
    if factor is None or factor <= 1.0:
        return ""
    off = float(f"{100.0 * (factor - 1.0):.2g}")
    return f" It holds unless propensities are off by more than {off:,.6g} %."
