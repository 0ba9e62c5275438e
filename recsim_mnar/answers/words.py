"""Write records for readers: amounts, names, cells of tables, segments, and reasons to doubt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_mnar.errors import printable
from recsim_mnar.estimators.checks import OFF_BY
from recsim_mnar.estimators.rankings import about_users
from recsim_mnar.estimators.verdict import LEVEL_WORDS, LEVELS

Record = dict[str, Any]
TODAY, RANDOM = "today's policy", "the random traffic"
"""Names of the policy that logged the rows: a system, or uniformly random choice."""
PROVED_GAPS = ("support_missing", "support_denied")
"""Codes of findings that prove a lack of support."""
GAPS = (*PROVED_GAPS, "support_gap", "no_support")
"""Codes of findings about actions of the target that the log never shows."""
SAME = "the same policy"
"""Part of the method, in words, of a difference between two policies that are equal on every row."""


@dataclass(frozen=True)
class Amounts:
    """Format of amounts of reward.

    Attributes:
        shares: whether rewards are 0 or 1, so that values are written in per cent of the decisions; otherwise they are
            written in the unit of the rewards.
    """

    shares: bool = False

    @staticmethod
    def of(records: Sequence[Record]) -> Amounts:
        """Choose the format from the diagnostics of the first record that describes the rewards."""
        for record in records:
            facts = record["diagnostics"]
            if {"clicks", "mean_reward", "n", "reward_min", "reward_max"} <= facts.keys():
                # Rewards in [0, 1] are all 0 or 1 if their sum is the number of rewards that are not 0.
                difference = abs(facts["mean_reward"] * facts["n"] - facts["clicks"])
                in_0_to_1 = (facts["reward_min"], facts["reward_max"]) == (0.0, 1.0)
                # 1e-6 allows for rounding errors of the mean.
                return Amounts(shares=in_0_to_1 and difference <= 1e-6 * facts["n"])
        return Amounts()

    def one(self, value: float) -> str:
        """Format a value: ``1.88 %``, or ``2.431`` in the rewards' unit."""
        return self._number(value) + " %" * self.shares  # text times False is empty

    def size(self, value: float) -> str:
        """Format a difference without a plus: ``0.35 points`` (of per cent), or ``0.35``."""
        return self._number(value) + " points" * self.shares

    def change(self, value: float) -> str:
        """Format a difference with its sign: ``+0.35 points`` (of per cent), or ``+0.35``."""
        if value > 0.0:
            return f"+{self.size(value)}"
        return self.size(value)

    def span(self, low: float, high: float, unit: str = " %") -> str:
        """Format an interval: ``1.81 to 1.95 %``; ``at least 1.81 %`` without an upper end.

        The unit is written only for rewards of 0 and 1.
        """
        unit *= self.shares
        if math.isfinite(high):
            return f"{self._number(low)} to {self._number(high)}{unit}"
        if math.isfinite(low):
            return f"at least {self._number(low)}{unit}"
        return "no limits"

    def _number(self, value: float) -> str:
        if self.shares:
            return per_cent(value)
        return f"{value:.4g}"


def per_cent(share: float) -> str:
    """Format a share in per cent with three significant digits and without a unit: ``1.80`` for 0.018."""
    if abs(share) < 5e-8:  # rounding errors, which would be written with an exponent
        share = 0.0
    return f"{100.0 * share:#.3g}".rstrip(".")


def label(record: Record) -> str:
    """Return the name of a record's policy or difference for readers."""
    if "baseline" in record:
        return f"{target_of(record)} - {baseline_of(record)}"
    if record.get("today"):
        return logged_by(record.get("baseline_kind"))
    return str(record["policy"])


def target_of(record: Record) -> str:
    """Return the name of the policy that a record estimates."""
    return str(record["target"])


def subject(record: Record) -> tuple[str, str | None]:
    """Return the name of a record's policy, and of the policy that it is compared with, or None for a value."""
    return target_of(record), record.get("baseline")


def baseline_of(record: Record) -> str:
    """Return the name, for readers, of the policy that is subtracted in a difference."""
    if record["today"]:
        return logged_by(record.get("baseline_kind"))
    return str(record["baseline"])


def kind_of_log(facts: Mapping[str, Any]) -> str:
    """Return the kind of policy that logged the rows: "random" if all propensities are equal and below 1, else "today".

    Args:
        facts: diagnostics of an estimate.
    """
    if facts.get("least_propensity_rows") == facts["n"] and facts["propensity_min"] < 1.0:
        return "random"
    return "today"


def logged_by(kind: str | None) -> str:
    """Return the name, for readers, of the policy that logged the rows, from a record's ``baseline_kind``."""
    if kind == "random":
        return RANDOM
    return TODAY


def is_of_slates(record: Record) -> bool:
    """Return whether a record's estimator is for slates, with an assumption about users."""
    return "assumption" in record["diagnostics"]


def covered_share(record: Record) -> float:
    """Return the share of a policy's probability that is on actions that the log can show; 1 if no gap is known."""
    facts = record["diagnostics"]
    if "identified_share" in facts:
        return float(facts["identified_share"])
    gaps = [finding for finding in record["findings"] if finding["code"] in GAPS]
    if not gaps:
        return 1.0
    if any(gap["code"] == "no_support" for gap in gaps):
        return 0.0
    return 1.0 - float(gaps[0]["number"])


def lacks(record: Record) -> bool:
    """Return whether the log covers too little of a policy to estimate its value."""
    return covered_share(record) < 1.0 - OFF_BY


def cells(record: Record, amounts: Amounts) -> tuple[str, str]:
    """Return the text of a record's value and that of its interval, for a table.

    If a bias is proved and the value is outside the interval, the nearer end replaces the value: "at least ...".
    """
    value, low, high = (record[key] for key in ("value", "low", "high"))
    is_difference = "baseline" in record
    if lacks(record):
        # The interval spans all possible rewards: `identified` describes it in a sentence.
        coverage = f"covers {100.0 * covered_share(record):.2g} %"
        if is_difference:
            coverage = "not covered"
        return coverage, "-"
    if is_difference:
        write = amounts.change
        interval = amounts.span(low, high, " points")
    else:
        write = amounts.one
        interval = amounts.span(low, high, " %")
    proved = any(finding["code"] == "bias_proved" for finding in record["findings"])
    if proved and value <= low:
        return f"at least {write(low)}", interval
    if proved and value >= high:
        return f"at most {write(high)}", interval
    return write(value), interval


def verdict_in_words(record: Record) -> str:
    """Return the verdict for a table; that of a trusted difference whose interval includes 0 is "sound, undecided"."""
    level = str(record["verdict_level"])
    may_be_0 = "baseline" in record and SAME not in record["method"] and record["low"] <= 0.0 <= record["high"]
    if may_be_0 and level == "trust":
        return "sound, undecided"
    return LEVEL_WORDS[level]


def relative_change(record: Record) -> str:
    """Format a difference in per cent of the baseline's value; return "" if that value is not positive, or unknown."""
    base = record["diagnostics"].get("value_baseline", 0.0)
    if "baseline" not in record or not base > 0.0 or lacks(record):
        return ""
    percent = float(f"{100.0 * record['value'] / base:.2g}")  # two digits, and then written without an exponent
    return f"{percent:+,.9g} %"


def identified(record: Record, amounts: Amounts) -> str:
    """Describe a policy that the log covers only in part: the value of that part, and the range of the whole value."""
    facts = record["diagnostics"]
    share = covered_share(record)
    name = label(record)
    if share <= 0.0:
        return f"The log covers nothing of what {name} shows, so it says nothing of it."
    words = f"The log covers {100.0 * share:.2g} % of what {name} shows"
    value = facts.get("value_identified")
    if value is not None:
        limits = amounts.span(facts["identified_low"], facts["identified_high"])
        words += f"; there it earns {amounts.one(value)} ({100 * record['level']:g} % interval {limits})"
    least = facts.get("reward_min", math.nan)
    most = facts.get("reward_max", math.inf)
    if not (math.isfinite(least) and math.isfinite(most)):
        return f"{words}. What the rest earns no log of this kind says."
    bound = amounts.span(record["low"], record["high"])
    return (
        f"{words}. Beyond that it is unknown: with rewards between {least:g} and {most:g} the whole may earn {bound}."
    )


def partly_covered(records: Sequence[Record], text_before: str = "") -> list[str]:
    """Describe each policy of which the log covers too little, by :func:`identified`.

    Args:
        records: records of all policies.
        text_before: text that precedes the lines; descriptions that it contains are left out.
    """
    amounts = Amounts.of(records)
    lines = []
    for record in records:
        if record["leads"] and "baseline" not in record and lacks(record):
            line = identified(record, amounts)
            if line not in text_before:
                lines.append(line)
    return lines


NO_VALUE = "no value"


def segment_label(record: Record) -> str:
    """Return the name of a record's segment for readers."""
    if record["segment"] is None:
        return NO_VALUE
    return str(record["segment"])


def segment_title(records: Sequence[Record]) -> str:
    """Describe how many segments there are, and the joint coverage of their intervals."""
    first = records[0]
    n = len({record["segment"] for record in records})
    coverage = f"{100 * first['level_of_all']:g} %"
    return f"By {first['by']}: {n} segments; all {first['intervals']} intervals hold at once with {coverage}"


def segment_lines(records: Sequence[Record]) -> list[str]:
    """Summarise the records of segments in lines of text.

    Returns one line per difference of two policies, naming the segments in which it is positive or negative; or, if
    there is no difference, one line that says how to get one.
    """
    if not records:
        return []
    column = records[0]["by"]
    n = len({record["segment"] for record in records})
    by_difference: dict[tuple[str, str | None], list[Record]] = {}
    for record in records:
        if "baseline" in record:
            by_difference.setdefault(subject(record), []).append(record)
    lines = []
    for group in by_difference.values():
        # Losses are listed first, whatever segment comes first.
        by_direction: dict[str, list[str]] = {"earns less": [], "looks worse": []}
        for record in group:
            by_direction.setdefault(_direction(record), []).append(segment_label(record))
        undecided = by_direction.pop("", [])  # "" is the direction of an interval that includes 0
        target = target_of(group[0])
        than = f"than {baseline_of(group[0])} in"
        clauses = [
            f"{target} {direction} {than} {', '.join(names)}" for direction, names in by_direction.items() if names
        ]
        if len(undecided) == n:
            clauses.append(f"cannot tell: all {n} segments")
        elif undecided:
            clauses.append(f"cannot tell: {', '.join(undecided)}")
        lines.append(f"By {column}: {'; '.join(clauses)}.")
    return lines or [f"By {column}: {n} segments; --baseline today adds each one's difference from today's policy."]


def segment_summary(leader: Record, records: Sequence[Record]) -> dict[str, object]:
    """Return the entry ``segments`` of a leading difference: the segments in which it is positive or negative.

    Args:
        leader: record of all rows.
        records: records of the segments.

    Returns:
        One entry ``segments``, a dict of the column and lists of segment names; an empty dict if ``leader`` is no
        leading difference, or has no segments.
    """
    group = [record for record in records if subject(record) == subject(leader)]
    if not (group and leader["leads"] and "baseline" in leader):
        return {}
    by_outcome: dict[str, list[str]] = {"worse": [], "better": [], "cannot_tell": [], "do_not_use": []}
    for record in group:
        outcome = "cannot_tell"
        if record["verdict_level"] == "do_not_use":
            outcome = "do_not_use"
        elif record["low"] > 0.0:
            outcome = "better"
        elif record["high"] < 0.0:
            outcome = "worse"
        by_outcome[outcome].append(segment_label(record))
    return {"segments": {"by": group[0]["by"], **by_outcome}}


def _direction(record: Record) -> str:
    """Return a verb phrase for the direction of a difference; "" if its interval includes 0 or must not be used."""
    trusted = record["verdict_level"] == "trust"
    if record["verdict_level"] == "do_not_use":
        return ""
    if record["low"] > 0.0:
        return "earns more" if trusted else "looks better"
    if record["high"] < 0.0:
        return "earns less" if trusted else "looks worse"
    return ""


def segment_reasons(records: Sequence[Record]) -> list[str]:
    """List the reasons to doubt segments, the gravest first: one line per reason and policy, with the segments."""
    # The message of each segment, by the level and code of a finding and the policy.
    by_reason: dict[tuple[str, str, str], dict[str, str]] = {}
    for record in records:
        for finding in record["findings"]:
            if finding["level"] == record["verdict_level"] != "trust":
                messages = by_reason.setdefault((finding["level"], finding["code"], label(record)), {})
                messages.setdefault(segment_label(record), finding["message"])
    lines = []
    gravest_first = sorted(by_reason.items(), key=lambda item: -LEVELS.index(item[0][0]))
    for (level, _, policy), messages in gravest_first:
        names = list(messages)
        example = f" (in {names[0]})" if len(names) > 1 else ""
        lines.append(f"{LEVEL_WORDS[level]} ({policy} in {', '.join(names)}): {messages[names[0]]}{example}.")
    return lines


def table_lines(records: Sequence[Record]) -> list[str]:
    """Format records as a table in plain text: a header, and one line per record."""
    amounts = Amounts.of(records)
    by = records[0].get("by")
    interval = f"{100.0 * records[0]['level']:.4g} % interval"
    rows = [["policy", "estimator", "value", interval, "verdict"]]
    rows += [[label(r), r["estimator"], *cells(r, amounts), verdict_in_words(r)] for r in records]
    if by is not None:
        names = [by, *map(segment_label, records)]
        changes = ["change", *map(relative_change, records)]
        rows = [[name, *row, change] for name, row, change in zip(names, rows, changes, strict=True)]
    rows = [list(map(printable, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def without_margins(records: Sequence[Record]) -> list[Record]:
    """Return records without the findings that are no reason to doubt them: how far they are from one is of no use.

    Those about users of slates stay, because they say what was tested.
    """

    def reasons(judged: Mapping[str, Any]) -> Record:
        """Return a record, or its ``best_of``, with the findings to keep."""
        kept = [f for f in judged["findings"] if f["level"] != "trust" or about_users(f["code"])]
        return {**judged, "findings": kept}

    changed = [reasons(record) for record in records]
    for record in changed:
        if "best_of" in record:
            record["best_of"] = reasons(record["best_of"])
    return changed


@dataclass(frozen=True)
class Reason:
    """A reason to doubt estimates.

    Attributes:
        level: level of the verdict, "caution" or "do_not_use".
        message: finding in words.
        action: advice in words; empty if another reason gives it with a larger number.
        policies: names of the policies that it concerns.
    """

    level: str
    message: str
    action: str
    policies: tuple[str, ...]

    @property
    def line(self) -> str:
        """The reason in one line for a person."""
        line = f"{LEVEL_WORDS[self.level]} ({', '.join(self.policies)}): {self.message}."
        if self.action:
            line += f" {self.action[:1].upper()}{self.action[1:]}."
        return line


def reasons(records: Sequence[Record]) -> list[Reason]:
    """List the reasons to doubt estimates, the gravest first.

    A reason is listed once, even if it concerns a target and its differences, or several policies. If the log does not
    cover a policy, :func:`recsim_mnar.answers.words.identified` says so, and that reason is left out here.
    """
    by_policy: dict[tuple[str, str], tuple[Record, Record]] = {}
    for record in records:
        for finding in record["findings"]:
            in_other_sentence = lacks(record) and finding["code"] in (*GAPS, "wide_interval")
            if finding["level"] != "trust" and not in_other_sentence:
                by_policy.setdefault((target_of(record), finding["code"]), (record, finding))
    labels: dict[tuple[str, str, str], list[str]] = {}
    for record, finding in by_policy.values():
        labels.setdefault((finding["level"], finding["message"], finding["action"]), []).append(label(record))
    listed = [Reason(*reason, tuple(policies)) for reason, policies in labels.items()]
    return sorted(listed, key=lambda reason: -LEVELS.index(reason.level))
