"""Write the first sentence of an answer.

It names the best policy, its difference from today's policy, how certain that is, and the next step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from recsim_mnar.answers.weights import propensity_tolerance
from recsim_mnar.answers.words import (
    PROVED_GAPS,
    SAME,
    TODAY,
    Amounts,
    Record,
    baseline_of,
    cells,
    identified,
    is_of_slates,
    kind_of_log,
    label,
    lacks,
    per_cent,
    subject,
    target_of,
)
from recsim_mnar.estimators.value import LEADING
from recsim_mnar.estimators.verdict import LEVEL_WORDS, LEVELS

_NO_SYSTEM = "The random traffic is not the system in production, which may earn more."
ByRows = Callable[..., float]
"""Function (policy name, *, today, half_width, worse) that computes :func:`weight_tolerance` from the rows of a log."""
TOLERANCE = "propensity_tolerance"
"""Key, in diagnostics, of the factor by which all propensities may be wrong before a difference may be 0."""


def tolerated(record: Mapping[str, Any], by_rows: ByRows | None = None) -> dict[str, float]:
    """Return the propensity tolerance of a difference from today's policy, as an entry of its diagnostics.

    Args:
        record: record of a policy or a difference.
        by_rows: function that computes the tolerance from rows; without it only rewards of 0 and 1 have one.

    Returns:
        One entry :data:`TOLERANCE`; an empty dict for other records, for a difference whose interval includes 0, and
        if the tolerance is infinite.
    """
    low = float(record["low"])
    high = float(record["high"])
    if "baseline" not in record or not record["today"] or low <= 0.0 <= high:
        return {}
    today = record["diagnostics"]["value_baseline"]
    worse = high < 0.0
    nearer_end = high if worse else low  # the end of the interval that is nearer to 0
    if Amounts.of([dict(record)]).shares:
        # Rounding errors may move a mean of 0/1 rewards out of [0, 1].
        factor = propensity_tolerance(end=min(max(today + nearer_end, 0.0), 1.0), today=min(max(today, 0.0), 1.0))
    elif by_rows is not None:
        half_width = abs(record["value"] - nearer_end)
        factor = by_rows(target_of(dict(record)), today=today, half_width=half_width, worse=worse)
    else:
        return {}
    if math.isfinite(factor):
        return {TOLERANCE: factor}
    return {}


def with_tolerance(record: Record, by_rows: ByRows | None = None) -> Record:
    """Return a record whose diagnostics have its propensity tolerance, if it has one (:func:`tolerated`)."""
    return record | {"diagnostics": record["diagnostics"] | tolerated(record, by_rows)}


def unless(record: Mapping[str, Any]) -> str:
    """Return a sentence on the errors of propensities, with two digits, that a difference tolerates; "" if none.

    For the best of several policies, the tolerance of its wider interval counts.
    """
    factor = record.get("best_of", record["diagnostics"]).get(TOLERANCE)
    if factor is None or factor <= 1.0:
        return ""
    percent = float(f"{100.0 * (factor - 1.0):.2g}")  # two digits, and then written without an exponent
    return f" It holds as long as no propensity is more than {percent:,.6g} % too large or too small."


RESTS = (
    "Holds if propensities are those that the system used, it can show what the new policy shows, users are "
    "independent, what was shown does not change later visits, next month is like this one, and the new policy was not "
    "built from these records."
)
"""Sentence with the assumptions of every answer that no log can test."""
EXPLORE = "log with exploration where the target acts"
"""Advice if the log lacks actions of the target."""
_AGAINST_A_SYSTEM = "compare it with the system in production: in an A/B test, or by a column of it (--baseline COLUMN)"
_DOUBTS_ABOUT_USERS = {
    "assumption_contradicted": "the log contradicts what it assumes of users",
    "assumption_untested": "the log cannot test what it assumes of users",
    "assumption_unstated": "what it assumes of users is not stated",
    "position_effect": "the order of a slate's items matters, and it assumes that it does not",
    "clicks_after_click": "a click may depend on the items above, and it assumes that it does not",
}
"""Short texts of findings against an assumption about users, by code."""


@dataclass(frozen=True)
class Sentence:
    """The first sentence of an answer, with its parts for programs.

    Attributes:
        answer: "better", "worse" (both only if trusted), "looks_better", "looks_worse", "cannot_tell",
            "same_policy", "value" (no baseline was given), "not_covered" (the log lacks too much of the target),
            "no_reward" or "do_not_use".
        policy: name of the target; if there are several, of the one with the largest usable estimate.
        baseline: name of the policy that it is compared with, as in the records; None without a comparison.
        change_percent: difference from the baseline's value, in per cent of that value; None if it is unknown or not
            positive.
        low_percent: lower end of the interval for ``change_percent``.
        high_percent: upper end of that interval.
        level: nominal coverage of the interval; 1 - .05 / k for the best of k policies, if 1 - .05 was requested.
        sure: level of the verdict, "trust", "caution" or "do_not_use".
        action: next step.
        text: sentence for a person.
        rests: assumptions that no log can test; "" if nothing is estimated.
        segments: column of the segments (``by``), and the names of those in which the policy is ``worse`` or
            ``better``, in which the log ``cannot_tell``, and whose estimates must not be used (``do_not_use``); None
            without segments.
        baseline_kind: kind of the baseline, "today" for the system that logged the rows, "random" if it chose
            uniformly at random, or "policy" for another one; None without a comparison.
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
        """Return the fields by name."""
        return asdict(self)


def leading(records: Sequence[Record]) -> list[Record]:
    """Return the records with the key ``leads``: whether a record is the one of its policy or difference to read first.

    The leading estimator is the same for all policies and differences: "snips" if all have it, otherwise "ips",
    otherwise the first one that all have. If they share no estimator, the first of each leads.
    """
    estimators: dict[tuple[str, str | None], list[str]] = {}
    for record in records:
        estimators.setdefault(subject(record), []).append(record["estimator"])
    shared = [
        name
        for name in (LEADING, "ips", *next(iter(estimators.values()), []))
        if all(name in names for names in estimators.values())
    ]
    marked = []
    for record in records:
        leader = shared[0] if shared else estimators[subject(record)][0]
        marked.append(record | {"leads": record["estimator"] == leader})
    return marked


def candidates(records: Sequence[Record]) -> list[Record]:
    """List the leading records from which the best policy is chosen: differences, or values if there are none."""
    leaders = [record for record in records if record["leads"]]
    return [record for record in leaders if "baseline" in record] or leaders


def best_record(records: Sequence[Record]) -> Record | None:
    """Return the record of the best policy: the candidate with the largest usable estimate.

    Policies equal to the baseline, and estimates that must not be used, count only if there are no others. A record
    that has ``best_of`` was chosen before and is returned.

    Returns:
        The record; None if the log covers no policy.
    """
    # Each step keeps the records before it if it would leave none.
    covered = [record for record in candidates(records) if not _uncovered(record, records)]
    unequal = [record for record in covered if SAME not in record["method"]] or covered
    usable = [record for record in unequal if record["verdict_level"] != "do_not_use"] or unequal
    eligible = [record for record in records if "best_of" in record] or usable
    return max(eligible, key=lambda record: float(record["value"]), default=None)


def sentence_of(records: Sequence[Record]) -> Sentence:
    """Write the first sentence of an answer: on the best policy, or on the first one if the log covers none.

    Args:
        records: records of :class:`recsim_mnar.own_log.estimating.Answer`, at least one.
    """
    best = best_record(records)
    if best is not None:
        writer = _SentenceWriter(best, records)
        if "baseline" in best:
            return writer.difference()
        return writer.value()
    first = candidates(records)[0]
    writer = _SentenceWriter(first, records)
    uncovered = _uncovered(first, records)[0]
    actions = []
    for finding in uncovered["findings"]:
        # A target that was built from the rewards also seems to lack support: that finding explains the others.
        if finding["code"] == "target_knows":
            text = f"Do not judge {target_of(first)} by this log: {finding['message']}."
            return writer.sentence("do_not_use", text, finding["action"], sure="do_not_use")
        if finding["code"] in PROVED_GAPS:
            actions.append(finding["action"])
    text = identified(uncovered, Amounts.of(records))
    action = actions[0] if actions else EXPLORE
    return writer.sentence("not_covered", text, action, sure="do_not_use")


def _uncovered(record: Record, records: Sequence[Record]) -> list[Record]:
    """List the records of values, of a record's policy and its baseline, of which the log covers too little."""
    names = subject(record)
    return [r for r in records if r["leads"] and "baseline" not in r and r["policy"] in names and lacks(r)]


def within_limits(record: Record) -> Record:
    """Clip the value of a record of slates to its interval, because only the interval is valid if a bias is proved.

    Records of single items are returned unchanged.
    """
    if not is_of_slates(record):
        return record
    return {**record, "value": min(max(record["value"], record["low"]), record["high"])}


@dataclass(frozen=True)
class _SentenceWriter:
    """Writer of the first sentence of an answer, which is about one record.

    If its policy is the best of several, its entry ``best_of`` has an interval that is corrected for the choice.

    Attributes:
        record: record that the sentence is about.
        records: all records of the answer.
    """

    record: Record
    records: Sequence[Record]

    @cached_property
    def corrected(self) -> Record:
        """The verdict, level and interval to report: those of ``best_of`` if there is one, else of the record."""
        return self.record.get("best_of") or self.record

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The lower and upper end of the interval to report."""
        return self.corrected["low"], self.corrected["high"]

    @property
    def interval(self) -> str:
        """The words "95 % interval", with the level of the interval to report."""
        return f"{100.0 * self.corrected['level']:.4g} % interval"

    @cached_property
    def sure(self) -> str:
        """The worse of the record's own verdict level and that of ``best_of``."""
        return max(self.record["verdict_level"], self.corrected["verdict_level"], key=LEVELS.index)

    @cached_property
    def doubts(self) -> list[Record]:
        """The findings of the verdict's level, one per code, those of the record before those of ``best_of``."""
        findings = (*self.record["findings"], *self.corrected["findings"])
        # In reversed order, the first finding of a code is the last to be stored, and replaces the later ones.
        by_code = {finding["code"]: finding for finding in reversed(findings) if finding["level"] == self.sure}
        return list(by_code.values())[::-1]

    @cached_property
    def amounts(self) -> Amounts:
        """The format of amounts for the rewards of this log."""
        return Amounts.of(self.records)

    @property
    def subject_words(self) -> str:
        """The subject of the sentence: the policy's name, and the number of policies that it was chosen from."""
        name = label(self.record)
        if "baseline" in self.record:
            name = target_of(self.record)
        best_of = self.record.get("best_of")
        if best_of is None:
            return name
        return f"{name}, the largest usable estimate of {best_of['policies']} policies,"

    @property
    def reasons_in_words(self) -> str:
        """The doubts in words, with an explanation if the verdict of ``best_of`` is worse than the record's own."""
        level = self.record["verdict_level"]
        if is_of_slates(self.record):  # other lines of the answer describe assumptions about users in full
            first, *further = self.doubts
            doubts = str(_DOUBTS_ABOUT_USERS.get(first["code"], first["message"]))
            if further:
                doubts += f" (and {len(further)} more doubt{'s' * (len(further) > 1)})"
        else:
            doubts = "; ".join(finding["message"] for finding in self.doubts)
        if level == self.sure:
            return doubts
        best_of = self.record["best_of"]
        alone = f"at {100.0 * self.record['level']:.4g} %, as in its row, the verdict is"
        judged = f"the best of {best_of['policies']} is judged at {100.0 * best_of['level']:.4g} %"
        return f"{doubts} ({judged}; {alone} {LEVEL_WORDS[level]})"

    def next_step(self, trusted: str) -> str:
        """Return the next step: the action of the first doubt, or ``trusted`` if the verdict is trust."""
        if self.sure == "trust" or not self.doubts:
            return trusted
        return str(self.doubts[0]["action"])

    def sentence(
        self, answer: str, text: str, action: str, sure: str = "", shares: tuple[float, float, float] | None = None
    ) -> Sentence:
        """Make the sentence, adding to the text what depends on segments and on the kind of log.

        Args:
            answer: key of the answer, see :class:`Sentence`.
            text: sentence about the policy.
            action: next step.
            sure: level of the verdict; "" for that of the record.
            shares: the change and the ends of its interval, as shares of the baseline's value; None if unknown.
        """
        record = self.record
        segments = record.get("segments")
        baseline = record.get("baseline")
        kind = record.get("baseline_kind")
        estimated = answer not in ("same_policy", "no_reward", "not_covered", "do_not_use")
        if segments is not None and segments["worse"]:
            text += f" By {segments['by']} it is worse than {baseline_of(record)} in {', '.join(segments['worse'])}."
        rests = ""
        if estimated:
            rests = RESTS
            if kind == "random":
                text += f" {_NO_SYSTEM}"
            if answer != "cannot_tell":  # an undecided difference has no tolerance to report
                rests += unless(record)
        change = low = high = None
        if shares is not None:
            change, low, high = (100.0 * share for share in shares)
            if is_of_slates(record):  # if a bias is proved, only the interval is valid
                change = min(max(change, low), high)
        return Sentence(
            answer=answer,
            policy=target_of(record),
            baseline=baseline,
            change_percent=change,
            low_percent=low,
            high_percent=high,
            level=self.corrected["level"],
            sure=sure or self.sure,
            action=action,
            text=f"{text} Next: {action}.",
            rests=rests,
            segments=segments,
            baseline_kind=None if baseline is None else kind,
        )

    def unusable(self, against: str = "") -> Sentence:
        """Write the sentence for an estimate that must not be used; ``against`` names the baseline of a difference."""
        action = self.next_step("log more rows")
        target = target_of(self.record)
        if any(finding["code"] == "no_reward" for finding in self.doubts):
            text = f"No reward is in the log, so it says nothing of what {target} earns{against}."
            return self.sentence("no_reward", text, action)
        return self.sentence(
            "do_not_use", f"Do not judge {target}{against} by this log: {self.reasons_in_words}.", action
        )

    def value(self) -> Sentence:
        """Write the sentence for a policy without a comparison."""
        record = self.record
        if self.sure == "do_not_use":
            return self.unusable()
        amounts = self.amounts
        unit = "a decision"
        if "unit" in record["diagnostics"]:
            unit = f"per {record['diagnostics']['unit']}"
        amount = amounts.one(record["value"])
        if is_of_slates(record):
            low, high = self.ends
            amount = cells({**record, "low": low, "high": high}, amounts)[0]
        amount += f" {unit} ({self.interval} {amounts.span(*self.ends)})"
        text = f"{self.subject_words} is estimated to earn {amount}"
        if self.sure == "trust":
            text = f"{self.subject_words} earns {amount}."
        else:
            text += f", but: {self.reasons_in_words}."
        action = f"compare it with {TODAY} (--baseline today)"
        if record.get("today"):
            action = "compare a new policy with it (--target COLUMN --baseline today)"
        elif kind_of_log(record["diagnostics"]) == "random":
            action = "compare it with the system in production (--baseline COLUMN): the rows were drawn at random"
        return self.sentence("value", text, self.next_step(action))

    def difference(self) -> Sentence:
        """Write the sentence for a policy that is compared with another one."""
        record = self.record
        other = baseline_of(record)
        low, high = self.ends
        if self.sure == "do_not_use":
            return self.unusable(f" against {other}")
        if SAME in record["method"]:
            text = f"{target_of(record)} and {other} are the same policy on every row of the log."
            return self.sentence("same_policy", text, self.next_step("compare a policy that differs"))
        if low <= 0.0 <= high:
            return self._cannot_tell(other)
        better = low > 0.0
        answer = "better" if better else "worse"
        more = "more" if better else "less"
        change, span = self._format_change_and_interval(sign=1.0 if better else -1.0)
        if self.sure == "trust":
            text = f"{self.subject_words} earns {change} {more} than {other} ({self.interval} {span} {more})."
        else:
            text = f"{self.subject_words} looks {answer} than {other}, by {change} ({self.interval} {span})"
            text += f", but: {self.reasons_in_words}."
            answer = f"looks_{answer}"
        return self.sentence(
            answer, text, self.next_step(self._advice_after_difference(better=better)), shares=self.shares
        )

    def _cannot_tell(self, other: str) -> Sentence:
        """Write the sentence for a difference from the policy ``other`` whose interval includes 0."""
        _, low, high = self.shares or (0.0, *self.ends)
        less = self._format_size(max(-low, 0.0))
        more = self._format_size(max(high, 0.0))
        text = (
            f"The log cannot show whether {self.subject_words} earns more than {other}: from {less} less to "
            f"{more} more ({self.interval})."
        )
        return self.sentence("cannot_tell", text, self.next_step(self._advice_on_size()), shares=self.shares)

    def _advice_after_difference(self, *, better: bool) -> str:
        """Return the next step after a trusted difference, by its sign and by the kind of the baseline."""
        if self.record.get("baseline_kind") == "random":
            return _AGAINST_A_SYSTEM if better else "do not take it"
        if not better:
            return f"keep {baseline_of(self.record)}"
        if self.record.get("segments", {}).get("worse"):
            return "try it in an A/B test of the others, or look there first"
        return "try it in an A/B test"

    def _advice_on_size(self) -> str:
        """Return advice on how much more data would make the interval exclude 0, if the difference stays the same.

        The width of an interval falls with the square root of the number of rows.
        """
        unit = "users" if self.record["diagnostics"].get("clustered") else "rows"
        low, high = self.ends
        difference = abs(self.record["value"])
        more = "far more"
        if difference > 0.0:
            times = ((high - low) / 2.0 / difference) ** 2
            if times < 1000.0:  # nobody will log more than that
                more = f"about {max(math.ceil(times), 2):,} times as many"
        return f"log {more} {unit} to tell a difference of this size"

    @cached_property
    def shares(self) -> tuple[float, float, float] | None:
        """The change and the ends of its interval, divided by the baseline's value; None if that may not be positive.

        Today's value is the mean reward of the log, and is treated as exact. For rewards of 0 and 1 and independent
        rows that does not make the interval too narrow: Cov(D, B) = D / n and Var(B) = B / n to first order,
        so the ratio R = D / B has variance (Var(D) - B R^2 / n) / B^2. The value of another baseline is uncertain: each
        end is divided by that end of the baseline's interval which makes the interval wider.
        """
        record = self.record
        low, high = self.ends
        base = record["diagnostics"].get("value_baseline", 0.0)
        least_base = most_base = base
        if not record["today"]:
            baseline = next(r for r in self.records if r["leads"] and r["policy"] == record["baseline"])
            least_base = baseline["low"]
            most_base = baseline["high"]
        base_is_positive = 0.0 < least_base <= base <= most_base < math.inf
        if not (base_is_positive and math.isfinite(low) and math.isfinite(high)):
            return None
        low_share = low / (most_base if low > 0.0 else least_base)
        high_share = high / (least_base if high > 0.0 else most_base)
        return record["value"] / base, low_share, high_share

    def _format_size(self, amount: float) -> str:
        """Format an amount without its sign: in per cent of the baseline's value if ``shares`` is known."""
        if self.shares is None:
            return self.amounts.size(amount)
        return f"{per_cent(amount)} %"

    def _format_change_and_interval(self, sign: float) -> tuple[str, str]:
        """Format the change and its interval, both multiplied by ``sign``, so that a loss is written as positive.

        Returns:
            The change; "at least ..." or "at most ..." if it is outside the interval because a bias is proved.
            The interval.
        """
        change, *ends = (sign * end for end in self.shares or (self.record["value"], *self.ends))
        low = min(ends)
        high = max(ends)
        span = self.amounts.span(low, high, " points")
        if self.shares is not None:
            span = f"{per_cent(low)} to {per_cent(high)} %"
        if is_of_slates(self.record) and change < low:
            return f"at least {self._format_size(low)}", span
        if is_of_slates(self.record) and change > high:
            return f"at most {self._format_size(high)}", span
        return self._format_size(change), span


def intervals_of(
    selected: Sequence[Record], records: Sequence[Record]
) -> tuple[list[tuple[float, float, float]], bool]:
    """Return the intervals of records as the sentence gives them, for a chart.

    Args:
        selected: records whose intervals are returned.
        records: all records of the answer.

    Returns:
        (value, low, high) of each selected record.
        Whether these are shares of the baseline's value, because that is known for all of them.
    """
    judged = [_SentenceWriter(record, records) for record in selected]
    shares = [judgement.shares for judgement in judged if "baseline" in judgement.record]
    known_shares = [share for share in shares if share is not None]
    if len(known_shares) == len(selected):
        return known_shares, True
    return [(judgement.record["value"], *judgement.ends) for judgement in judged], False
