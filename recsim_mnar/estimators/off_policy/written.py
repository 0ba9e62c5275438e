"""Estimates as people write them: amounts, intervals, names of policies, and each reason for doubt once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recsim_mnar.estimators.off_policy.verdict import OFF_BY
from recsim_mnar.estimators.verdict import LEVELS

Record = dict[str, Any]

TODAY = "today's policy"
_GAPS = ("support_missing", "support_gap", "no_support")


@dataclass(frozen=True)
class Amounts:
    """How amounts of reward are written.

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
    """How a person calls the policy of a record, or its difference."""
    if "baseline" not in record:
        return TODAY if record.get("today") else str(record["policy"])
    return f"{target_of(record)} - {baseline_of(record)}"


def target_of(record: Record) -> str:
    """The policy that a record is about."""
    return str(record["policy"]).removesuffix(f" - {record['baseline']}" if "baseline" in record else "")


def baseline_of(record: Record) -> str:
    """How a person calls the policy that a difference starts from."""
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


def identified(record: Record, amounts: Amounts) -> str:
    """What the log knows of a policy that it covers in part, and what that leaves open."""
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
    return f"{words}. What the rest earns is unknown: if rewards lie between {least:g} and {most:g}, over all {bound}."


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


def reasons(records: Sequence[Record]) -> list[Reason]:
    """What speaks against estimates, the gravest first, and each thing once.

    A difference shares what speaks against its target, and several policies what speaks against the log. Of a policy
    that the log does not cover :func:`identified` says it.
    """
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
