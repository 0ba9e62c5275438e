"""Estimates as people write them: amounts, intervals, each reason for doubt once, and the first sentence of an answer.

That sentence says which policy, how much better than today, how sure, and what to do next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from recsim_mnar.answers.weights import propensity_tolerance
from recsim_mnar.estimators.checks import OFF_BY
from recsim_mnar.estimators.value import LEADING
from recsim_mnar.estimators.verdict import LEVEL_WORDS, LEVELS

Record = dict[str, Any]

TODAY, RANDOM = "today's policy", "the random traffic"
"""The policy that logged the rows: a system, or chance, which shows all items alike."""
_NO_SYSTEM = "The random traffic is not the system in production, which may earn more."
_PROVED = ("support_missing", "support_denied")
GAPS = (*_PROVED, "support_gap", "no_support")


@dataclass(frozen=True)
class Amounts:
    """Format of amounts of reward.

    Attributes:
        shares: whether rewards are 0 or 1, so that values are per cent of the decisions; else they have a unit.
    """

    shares: bool = False

    @staticmethod
    def of(records: Sequence[Record]) -> Amounts:
        """Choose the notation for the rewards behind some estimates."""
        for facts in (record["diagnostics"] for record in records):
            if {"clicks", "mean_reward", "n", "reward_min", "reward_max"} <= facts.keys():
                off = abs(facts["mean_reward"] * facts["n"] - facts["clicks"])
                return Amounts((facts["reward_min"], facts["reward_max"]) == (0.0, 1.0) and off <= 1e-6 * facts["n"])
        return Amounts()

    def one(self, value: float) -> str:
        """A value: ``1.88 %``, or ``2.431`` in the rewards' unit."""
        if self.shares:
            return f"{self._number(value)} %"
        return self._number(value)

    def size(self, value: float) -> str:
        """A difference of values without a plus: ``0.35 points`` (of per cent), or ``0.35``."""
        return self._number(value) + (" points" if self.shares else "")

    def change(self, value: float) -> str:
        """A difference of values: ``+0.35 points`` (of per cent), or ``+0.35``."""
        if value > 0.0:
            return f"+{self.size(value)}"
        return self.size(value)

    def span(self, low: float, high: float, unit: str = " %") -> str:
        """An interval: ``1.81 to 1.95 %``; ``at least 1.81 %`` without an upper end."""
        if not self.shares:
            unit = ""
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
    """A share in per cent, three digits of it: ``1.80``; what no reader can tell from 0 is 0."""
    return f"{100.0 * (share if abs(share) >= 5e-8 else 0.0):#.3g}".rstrip(".")


def label(record: Record) -> str:
    """Reader's name of a record's policy or difference."""
    if "baseline" not in record:
        if record.get("today"):
            return logged_by(record.get("baseline_kind"))
        return str(record["policy"])
    return f"{target_of(record)} - {baseline_of(record)}"


def target_of(record: Record) -> str:
    """The policy that a record is about."""
    return str(record["target"])


def subject(record: Record) -> tuple[str, str | None]:
    """The policy of a record, and the one that it is compared with."""
    return target_of(record), record.get("baseline")


def baseline_of(record: Record) -> str:
    """Reader's name of the policy that a difference starts from."""
    if record["today"]:
        return logged_by(record.get("baseline_kind"))
    return str(record["baseline"])


def kind_of_log(facts: Mapping[str, Any]) -> str:
    """Return whether a system logged the rows ("today"), or chance ("random").

    Then all have one propensity, below 1.
    """
    alike = facts.get("least_propensity_rows") == facts["n"] and facts["propensity_min"] < 1.0
    if alike:
        return "random"
    return "today"


def logged_by(kind: str | None) -> str:
    """Reader's name of the policy that logged the rows, by a record's ``baseline_kind``."""
    if kind == "random":
        return RANDOM
    return TODAY


def covered_share(record: Record) -> float:
    """The share of a policy's mass that the log covers, as far as the log or a column says."""
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
    """Return whether the log misses so much of the policy that its estimate is not a value of it."""
    return covered_share(record) < 1.0 - OFF_BY


def cells(record: Record, amounts: Amounts) -> tuple[str, str]:
    """Value and interval of a record, as a table has room for them."""
    value, low, high = (record[key] for key in ("value", "low", "high"))
    differs = "baseline" in record
    if differs:
        write = amounts.change
    else:
        write = amounts.one
    interval = amounts.span(low, high, " points" if differs else " %")
    if lacks(record):
        # Limits as wide as rewards are say nothing in a table: `identified` has them in words.
        return "not covered" if differs else f"covers {100.0 * covered_share(record):.2g} %", "-"
    # The value of a proved bias is not one to show: its limits are.
    if any(finding["code"] == "bias_proved" for finding in record["findings"]) and not low < value < high:
        return (f"at least {write(low)}" if value <= low else f"at most {write(high)}"), interval
    return write(value), interval


def verdict_in_words(record: Record) -> str:
    """The verdict as it stands beside an interval: a difference that may be 0 is sound, and decides nothing."""
    undecided = "baseline" in record and SAME not in record["method"] and record["low"] <= 0.0 <= record["high"]
    level = str(record["verdict_level"])
    if undecided and level == "trust":
        return "sound, undecided"
    return LEVEL_WORDS[level]


def relative_change(record: Record) -> str:
    """A difference in per cent of the baseline's value, with its sign; "" where that is not above 0, or not known."""
    base = record["diagnostics"].get("value_baseline", 0.0)
    if "baseline" not in record or not base > 0.0 or lacks(record):
        return ""
    share = float(f"{100.0 * record['value'] / base:.2g}")
    return f"{share:+,.9g} %"


def identified(record: Record, amounts: Amounts) -> str:
    """Known facts of a policy that the log covers in part, and the range left open."""
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
    unknown = f"with rewards between {least:g} and {most:g} the whole may earn {bound}"
    return f"{words}. Beyond that it is unknown: {unknown}."


def partly_covered(records: Sequence[Record], said: str = "") -> list[str]:
    """:func:`identified` of each policy that the log lacks too much of, where it was not ``said`` before."""
    amounts = Amounts.of(records)
    partly = [r for r in records if r["leads"] and "baseline" not in r and lacks(r)]
    return [line for line in (identified(record, amounts) for record in partly) if line not in said]


ByRows = Callable[..., float]
"""Of a policy's name and ``today``, ``half_width`` and ``worse``, see
:func:`weight_tolerance`."""

TOLERANCE = "propensity_tolerance"


def tolerated(record: Mapping[str, Any], by_rows: ByRows | None = None) -> dict[str, float]:
    """The tolerance of a difference from today's policy whose interval excludes 0; else, or if it has no end, nothing.

    Args:
        record: a difference.
        by_rows: for rewards other than 0 and 1; without it nothing is said of them.
    """
    low = float(record["low"])
    high = float(record["high"])
    if "baseline" not in record or not record["today"] or low <= 0.0 <= high:
        return {}
    today = record["diagnostics"]["value_baseline"]
    worse = high < 0.0
    near = high if worse else low
    if Amounts.of([dict(record)]).shares:
        factor = propensity_tolerance(min(max(today + near, 0.0), 1.0), min(max(today, 0.0), 1.0))
    elif by_rows is not None:
        factor = by_rows(target_of(dict(record)), today=today, half_width=abs(record["value"] - near), worse=worse)
    else:
        return {}
    if math.isfinite(factor):
        return {TOLERANCE: factor}
    return {}


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


# --------------------------------------------------------------------------------------------------- the first sentence

RESTS = (
    "Holds if propensities are those that the system used, it can show what the new policy shows, users are "
    "independent, what was shown does not change later visits, next month is like this one, and the new policy was not "
    "built from these records."
)
"""What no log shows and every answer rests on."""
SAME = "the same policy"
"""In the method of a difference of two policies that do the same on every row."""
EXPLORE = "log with exploration where the target acts"
_AGAINST_A_SYSTEM = "compare it with the system in production: in an A/B test, or by a column of it (--baseline COLUMN)"


_OF_USERS = {
    "assumption_contradicted": "the log contradicts what it assumes of users",
    "assumption_untested": "the log cannot test what it assumes of users",
    "assumption_unstated": "what it assumes of users is not stated",
    "position_effect": "the order of a slate's items matters, and it assumes that it does not",
    "clicks_after_click": "a click may depend on the items above, and it assumes that it does not",
}
"""What speaks against an assumption on users, by code."""


@dataclass(frozen=True)
class Sentence:
    """The first sentence of an answer, usable by itself in programs.

    Attributes:
        answer: "better", "worse" (both only of what is trusted), "looks_better", "looks_worse", "cannot_tell",
            "same_policy", "value" (no baseline was given), "not_covered" (the log lacks too much of the target),
            "no_reward" or "do_not_use".
        policy: the target; of several the one with the largest estimate that can be used.
        baseline: what it is compared with, as in the records; None where there is nothing.
        baseline_kind: "today" where that is the system that logged the rows, "random" where the rows were drawn at
            random, "policy" for another one; None where there is nothing.
        change_percent: how much more than the baseline it earns, in per cent of that; None where nothing is said of it,
            or where the baseline does not earn more than 0.
        low_percent: lower end of its interval.
        high_percent: upper end.
        level: of the interval; 1 - .05 / k for the best of k policies, where 1 - .05 was asked for.
        sure: "trust", "caution" or "do_not_use".
        action: what to do next.
        text: all of it, for a person.
        rests: what it rests on: assumptions that no log can show. Empty where nothing is estimated.
        segments: of an answer by segments: the column (``by``), and the segments in which the policy is ``worse``,
            ``better``, in which the log ``cannot_tell``, and those whose estimates must not be used (``do_not_use``).
    """

    answer: str
    policy: str
    baseline: str | None
    change_percent: float | None
    low_percent: float | None
    high_percent: float | None
    level: float
    sure: str
    action: str
    text: str
    rests: str
    segments: Mapping[str, Any] | None = None
    baseline_kind: str | None = None

    def to_dict(self) -> Mapping[str, object]:
        """For JSON."""
        return asdict(self)


def leading(records: Sequence[Record]) -> list[Record]:
    """The records, each with ``leads``: whether it is what a person reads first of its policy, or difference.

    One estimator leads everywhere: "snips" where it was asked for, else "ips", else the first one that all rows have.
    """
    rows: dict[tuple[str, str | None], list[str]] = {}
    for record in records:
        rows.setdefault(subject(record), []).append(record["estimator"])
    shared = [name for name in next(iter(rows.values()), []) if all(name in entry for entry in rows.values())]
    estimators = [LEADING, "ips", *shared]
    leader = next((name for name in estimators if name in shared), "")
    return [r | {"leads": r["estimator"] == (leader or rows[subject(r)][0])} for r in records]


def candidates(records: Sequence[Record]) -> list[Record]:
    """The leading records that an answer chooses from: differences, or values where there are none."""
    leaders = [record for record in records if record["leads"]]
    return [record for record in leaders if "baseline" in record] or leaders


def best_record(records: Sequence[Record]) -> Record | None:
    """The candidate with the largest estimate among the usable ones; None if the log covers no policy.

    It is the one that an answer was corrected for, where that was done.
    """
    covered = [record for record in candidates(records) if not _uncovered(record, records)]
    covered = [record for record in covered if SAME not in record["method"]] or covered
    usable = [record for record in covered if record["verdict_level"] != "do_not_use"] or covered
    chosen = [record for record in records if "best_of" in record] or usable
    return max(chosen, key=lambda record: float(record["value"]), default=None)


def sentence_of(records: Sequence[Record]) -> Sentence:
    """The sentence of an answer.

    Args:
        records: of :func:`recsim_mnar.own_log.estimating.estimate_file`, at least one.
    """
    best = best_record(records)
    if best is not None:
        judged = _Judged(best, records)
        if "baseline" in best:
            return judged.difference()
        return judged.value()
    first = candidates(records)[0]
    judged = _Judged(first, records)
    lacking = _uncovered(first, records)[0]
    by_code = {finding["code"]: finding for finding in reversed(lacking["findings"])}
    if "target_knows" in by_code:  # and so its mass is off
        knows = by_code["target_knows"]
        text = f"Do not judge {target_of(first)} by this log: {knows['message']}."
        return judged.sentence("do_not_use", text, knows["action"], sure="do_not_use")
    action = next((finding["action"] for finding in lacking["findings"] if finding["code"] in _PROVED), EXPLORE)
    return judged.sentence("not_covered", identified(lacking, Amounts.of(records)), action, sure="do_not_use")


def _uncovered(record: Record, records: Sequence[Record]) -> list[Record]:
    """Values of the record's policies with too much missing mass."""
    names = subject(record)
    return [r for r in records if r["leads"] and "baseline" not in r and r["policy"] in names and lacks(r)]


def is_of_slates(record: Record) -> bool:
    """Return whether its estimator is one of slates, whose answers have a line on what it assumes of users."""
    return "assumption" in record["diagnostics"]


def within_limits(record: Record) -> Record:
    """A record of slates with its value in its limits, which are what is known of a proved bias; others as they are."""
    value = min(max(record["value"], record["low"]), record["high"])
    if is_of_slates(record):
        return {**record, "value": value}
    return record


@dataclass(frozen=True)
class _Judged:
    """A record as an answer judges it: the best of several policies by what is corrected for the choice.

    Attributes:
        record: the record.
        records: all of the answer.
    """

    record: Record
    records: Sequence[Record]

    @cached_property
    def limits(self) -> Record:
        """The verdict, the level and the ends of the interval that count."""
        return self.record.get("best_of") or self.record

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Get the ends of the interval."""
        return self.limits["low"], self.limits["high"]

    @property
    def interval(self) -> str:
        """Its level, in words."""
        return f"{100.0 * self.limits['level']:.4g} % interval"

    @cached_property
    def sure(self) -> str:
        """The worse one of both verdicts."""
        return max(self.record["verdict_level"], self.limits["verdict_level"], key=LEVELS.index)

    @cached_property
    def doubts(self) -> list[Record]:
        """The findings that determine the verdict, each code once."""
        every = (*self.record["findings"], *self.limits["findings"])
        gravest = [finding for finding in reversed(every) if finding["level"] == self.sure]
        return list({finding["code"]: finding for finding in gravest}.values())[::-1]

    @cached_property
    def amounts(self) -> Amounts:
        """Get the notation of amounts."""
        return Amounts.of(self.records)

    @property
    def who(self) -> str:
        """The policy, and the number of policies it was chosen from."""
        if "baseline" in self.record:
            name = target_of(self.record)
        else:
            name = label(self.record)
        chosen = self.record.get("best_of")
        if chosen is None:
            return name
        return f"{name}, the largest usable estimate of {chosen['policies']} policies,"

    @property
    def because(self) -> str:
        """The doubts; where the record's own verdict is better than that of the best of k, why."""
        level = self.record["verdict_level"]
        doubts = "; ".join(finding["message"] for finding in self.doubts)
        if is_of_slates(self.record):  # what is assumed of users has a line of its own
            first = self.doubts[0]
            more = len(self.doubts) - 1
            doubts = str(_OF_USERS.get(first["code"], first["message"]))
            if more:
                doubts += f" (and {more} more doubt{'s' * (more > 1)})"
        if level == self.sure:
            return doubts
        chosen = self.record["best_of"]
        alone = f"at {100.0 * self.record['level']:.4g} %, as in its row, the verdict is"
        judged = f"the best of {chosen['policies']} is judged at {100.0 * chosen['level']:.4g} %"
        return f"{doubts} ({judged}; {alone} {LEVEL_WORDS[level]})"

    def next(self, trusted: str) -> str:
        """Name the next step: against the first doubt, or what a trusted estimate suggests."""
        if self.sure == "trust" or not self.doubts:
            return trusted
        return str(self.doubts[0]["action"])

    def sentence(
        self, answer: str, text: str, action: str, sure: str = "", shares: tuple[float, ...] | None = None
    ) -> Sentence:
        """The sentence of the record; ``shares`` are the change and its interval over the baseline."""
        record, segments = self.record, self.record.get("segments")
        assumed = answer not in ("same_policy", "no_reward", "not_covered", "do_not_use")
        tolerance = ""
        if answer != "cannot_tell":
            tolerance = unless(record)
        if shares is not None and is_of_slates(record):  # of a proved bias the limits are what is known
            shares = (min(max(shares[0], shares[1]), shares[2]), *shares[1:])
        change, low, high = (None, None, None) if shares is None else (100.0 * share for share in shares)
        if segments is not None and segments["worse"]:
            than = f" than {baseline_of(record)}"
            text += f" By {segments['by']} it is worse{than} in {', '.join(segments['worse'])}."
        baseline = record.get("baseline")
        kind = record.get("baseline_kind")
        if kind == "random" and assumed:
            text += f" {_NO_SYSTEM}"
        return Sentence(
            answer,
            target_of(record),
            baseline,
            change,
            low,
            high,
            self.limits["level"],
            sure or self.sure,
            action,
            f"{text} Next: {action}.",
            f"{RESTS}{tolerance}" if assumed else "",
            segments,
            None if baseline is None else kind,
        )

    def unusable(self, against: str = "") -> Sentence:
        """Sentence for an estimate that must not be used."""
        action = self.next("log more rows")
        target = target_of(self.record)
        if any(finding["code"] == "no_reward" for finding in self.doubts):
            text = f"No reward is in the log, so it says nothing of what {target} earns{against}."
            return self.sentence("no_reward", text, action)
        return self.sentence("do_not_use", f"Do not judge {target}{against} by this log: {self.because}.", action)

    def value(self) -> Sentence:
        """Sentence for a policy without a comparison."""
        record = self.record
        amounts = self.amounts
        trusted = self.sure == "trust"
        if self.sure == "do_not_use":
            return self.unusable()
        unit = "a decision"
        if "unit" in record["diagnostics"]:
            unit = f"per {record['diagnostics']['unit']}"
        amount = amounts.one(record["value"])
        if is_of_slates(record):
            low, high = self.ends
            amount = cells({**record, "low": low, "high": high}, amounts)[0]
        earns = "is estimated to earn"
        if trusted:
            earns = "earns"
        text = f"{self.who} {earns} {amount} {unit} ({self.interval} {amounts.span(*self.ends)})"
        text += "." if trusted else f", but: {self.because}."
        action = f"compare it with {TODAY} (--baseline today)"
        if record.get("today"):
            action = "compare a new policy with it (--target COLUMN --baseline today)"
        elif kind_of_log(record["diagnostics"]) == "random":
            action = "compare it with the system in production (--baseline COLUMN): the rows were drawn at random"
        return self.sentence("value", text, self.next(action))

    def difference(self) -> Sentence:
        """Sentence for a policy compared with another one."""
        record, other, (low, high) = self.record, baseline_of(self.record), self.ends
        if self.sure == "do_not_use":
            return self.unusable(f" against {other}")
        if SAME in record["method"]:
            text = f"{target_of(record)} and {other} are the same policy on every row of the log."
            return self.sentence("same_policy", text, self.next("compare a policy that differs"))
        if low <= 0.0 <= high:
            return self._cannot_tell(other)
        better = low > 0.0
        answer, more = ("better", "more") if better else ("worse", "less")
        change, span = self._sizes(1.0 if better else -1.0)
        if self.sure == "trust":
            text = f"{self.who} earns {change} {more} than {other} ({self.interval} {span} {more})."
        else:
            text = f"{self.who} looks {answer} than {other}, by {change} ({self.interval} {span})"
            text += f", but: {self.because}."
            answer = f"looks_{answer}"
        return self.sentence(answer, text, self.next(self._launch(better=better)), shares=self.shares)

    def _cannot_tell(self, other: str) -> Sentence:
        low, high = self.ends
        less, more = (self.amounts.size(end) for end in (max(-low, 0.0), max(high, 0.0)))
        if self.shares is not None:
            less, more = (f"{per_cent(max(end, 0.0))} %" for end in (-self.shares[1], self.shares[2]))
        text = f"The log cannot show whether {self.who} earns more than {other}: from {less} less to {more} more "
        text += f"({self.interval})."
        return self.sentence("cannot_tell", text, self.next(self._more()), shares=self.shares)

    def _launch(self, *, better: bool) -> str:
        """Name the step that a trusted difference suggests."""
        random = self.record.get("baseline_kind") == "random"
        if not better:
            if random:
                return "do not take it"
            return f"keep {baseline_of(self.record)}"
        if random:
            return _AGAINST_A_SYSTEM
        if self.record.get("segments", {}).get("worse"):
            return "try it in an A/B test of the others, or look there first"
        return "try it in an A/B test"

    def _more(self) -> str:
        """Compute how many times larger a log has to be for an interval of a difference of this size to exclude 0."""
        unit = "rows"
        if self.record["diagnostics"].get("clustered"):
            unit = "users"
        low, high = self.ends
        half = (high - low) / 2.0
        size = abs(self.record["value"])
        times = math.inf
        if size > 0.0:
            times = (half / size) ** 2
        more = "far more"
        if times < 1000.0:
            more = f"about {max(math.ceil(times), 2):,} times as many"
        return f"log {more} {unit} to tell a difference of this size"

    @cached_property
    def shares(self) -> tuple[float, float, float] | None:
        """The change and its interval as shares of the baseline's value; None where that is not above 0.

        Today's value is the mean reward of the log, and is taken as exact. For rewards of 0 and 1 and independent rows
        that makes the interval no narrower than it must be: Cov(D, B) = D / n and Var(B) = B / n to first order, so
        the ratio R = D / B has variance (Var(D) - B R^2 / n) / B^2. Of another baseline the worse end of its interval
        counts.
        """
        record, (low, high) = self.record, self.ends
        least = most = base = record["diagnostics"].get("value_baseline", 0.0)
        if not record["today"]:
            of_it = next(r for r in self.records if r["leads"] and r["policy"] == record["baseline"])
            least = of_it["low"]
            most = of_it["high"]
        if not (0.0 < least <= base <= most < math.inf and math.isfinite(low) and math.isfinite(high)):
            return None
        return record["value"] / base, low / (most if low > 0.0 else least), high / (least if high > 0.0 else most)

    def _sizes(self, sign: float) -> tuple[str, str]:
        """The change and its interval, without their sign."""
        relative = self.shares is not None
        amounts = self.amounts

        def write(share: float) -> str:
            if relative:
                return f"{per_cent(share)} %"
            return amounts.size(share)

        change, *ends = (sign * end for end in self.shares or (self.record["value"], *self.ends))
        low = min(ends)
        high = max(ends)
        if relative:
            span = f"{per_cent(low)} to {per_cent(high)} %"
        else:
            span = amounts.span(low, high, " points")
        if not is_of_slates(self.record) or low <= change <= high:
            return write(change), span
        return (f"at least {write(low)}" if change < low else f"at most {write(high)}"), span


def intervals_of(
    selected: Sequence[Record], records: Sequence[Record]
) -> tuple[list[tuple[float, float, float]], bool]:
    """Return (value, low, high) of each selected record as the sentence has it, and whether these are shares.

    They are shares of the baseline's value if every selected record has one.
    """
    judged = [_Judged(record, records) for record in selected]
    shares = [judgement.shares for judgement in judged if "baseline" in judgement.record]
    known_shares = [share for share in shares if share is not None]
    if len(known_shares) == len(selected):
        return known_shares, True
    return [(judgement.record["value"], *judgement.ends) for judgement in judged], False
