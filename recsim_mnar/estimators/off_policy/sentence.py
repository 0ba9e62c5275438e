"""The first sentence of an answer: which policy, how much better than today, how sure, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recsim_mnar.estimators.off_policy.stated import LOOSE
from recsim_mnar.estimators.off_policy.written import (
    Amounts,
    Record,
    baseline_of,
    identified,
    label,
    lacks,
    per_cent,
    target_of,
    unless,
    with_one_limit,
)
from recsim_mnar.estimators.verdict import ASSUMES, LEVELS

RESTS = "This is about the situations that today's system led to, and "
SAME = "the same policy"
"""In the method of a difference of two policies that do the same on every row."""
EXPLORE = "log with exploration where the target acts"


@dataclass(frozen=True)
class Sentence:
    """The first sentence of an answer, usable by itself in programs.

    Attributes:
        answer: "better", "worse" (both only of what is trusted), "looks_better", "looks_worse", "cannot_tell",
            "same_policy", "value" (no baseline was given), "not_covered" (the log lacks too much of the target),
            "no_reward" or "do_not_use".
        policy: the target; of several the one with the largest estimate that can be used.
        baseline: what it is compared with, as in the records; None where there is nothing.
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
    segments: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def leading(records: Sequence[Record]) -> list[Record]:
    """The records, each with ``leads``: whether it is what a person reads first of its policy, or difference.

    One estimator leads everywhere: :func:`recsim_mnar.estimators.off_policy.from_moments.leading` of the log where it
    was asked for, else "ips" likewise, else the first one that all rows have.
    """
    rows: dict[str, list[str]] = {}
    for record in records:
        rows.setdefault(record["policy"], []).append(record["estimator"])
    shared = [name for name in next(iter(rows.values()), []) if all(name in each for each in rows.values())]
    wanted = [*(record["diagnostics"].get("leading", "ips") for record in records[:1]), "ips", *shared]
    leader = next((name for name in wanted if name in shared), "")
    return [r | {"leads": r["estimator"] == (leader or rows[r["policy"]][0])} for r in records]


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
    records = with_one_limit(records)
    best = best_record(records)
    if best is None:
        first = candidates(records)[0]
        text = identified(_uncovered(first, records)[0], Amounts.of(records))
        return _sentence(first, "not_covered", text, "do_not_use", EXPLORE)
    if "baseline" in best:
        return _of_difference(best, records)
    return _unusable(best) or _of_value(best, records)


def _sentence(
    record: Record, answer: str, text: str, sure: str, action: str, shares: tuple[float, ...] | None = None
) -> Sentence:
    """The sentence of a record; ``shares`` are the change and its interval over the baseline."""
    assumed = answer not in ("same_policy", "no_reward", "not_covered", "do_not_use")
    tolerance = unless(record) if answer != "cannot_tell" else ""
    rests = f"{RESTS}{ASSUMES}.{tolerance}" if assumed else ""
    change, low, high = (None, None, None) if shares is None else (100.0 * share for share in shares)
    segments = record.get("segments")
    if segments is not None and segments["worse"]:
        than = f" than {baseline_of(record)}"
        text += f" By {segments['by']} it is worse{than} in {', '.join(segments['worse'])}."
        action = action.replace("try it in an A/B test", "try it in an A/B test of the others, or look there first")
    loose = next((each for each in record["findings"] if each["code"] == LOOSE), None)
    if loose is not None and assumed:
        said = f"{loose['message']}. {loose['action'][:1].upper()}{loose['action'][1:]}"
        action = said if answer == "cannot_tell" else f"{action}. {said[:1].upper()}{said[1:]}"
    text = f"{text} Next: {action}."
    level, baseline = _limits(record)["level"], record.get("baseline")
    return Sentence(answer, target_of(record), baseline, change, low, high, level, sure, action, text, rests, segments)


def _uncovered(record: Record, records: Sequence[Record]) -> list[Record]:
    """Values of the record's policies with too much missing mass."""
    names = (target_of(record), record.get("baseline"))
    return [r for r in records if r["leads"] and "baseline" not in r and r["policy"] in names and lacks(r)]


def _limits(record: Record) -> dict[str, Any]:
    """Level and ends of a record's interval, corrected for the choice of the best where it was one."""
    return record.get("best_of") or record


def _level(record: Record) -> str:
    return f"{100.0 * _limits(record)['level']:.4g} % interval"


def _sure(record: Record) -> str:
    return max(record["verdict_level"], _limits(record)["verdict_level"], key=LEVELS.index)


def _doubts(record: Record, sure: str) -> list[dict[str, Any]]:
    """The findings that determine the verdict, each code once."""
    found = [each for each in (*record["findings"], *_limits(record)["findings"]) if each["level"] == sure]
    return list({each["code"]: each for each in reversed(found)}.values())[::-1]


def _because(record: Record, sure: str) -> str:
    """The doubts; where the record's own verdict is better than that of the best of k, why."""
    said = "; ".join(each["message"] for each in _doubts(record, sure))
    own = record["verdict_level"]
    if own == sure:
        return said
    chosen, alone = record["best_of"], f"at {100.0 * record['level']:.4g} %, as in its row, the verdict is"
    judged = f"the best of {chosen['policies']} is judged at {100.0 * chosen['level']:.4g} %"
    return f"{said} ({judged}; {alone} {own.replace('_', ' ')})"


def _next(record: Record, sure: str, trusted: str) -> str:
    """What to do next: against the first doubt, or what a trusted estimate suggests."""
    doubts = [] if sure == "trust" else _doubts(record, sure)
    return str(doubts[0]["action"]) if doubts else trusted


def _who(record: Record) -> str:
    """The policy, and the number of policies it was chosen from."""
    name = label(record) if "baseline" not in record else target_of(record)
    chosen = record.get("best_of")
    return name if chosen is None else f"{name}, the largest usable estimate of {chosen['policies']} policies,"


def _unusable(record: Record, against: str = "") -> Sentence | None:
    """Sentence for an estimate that must not be used; None for others."""
    sure = _sure(record)
    if sure != "do_not_use":
        return None
    action = _next(record, sure, "log more rows")
    if any(each["code"] == "no_reward" for each in _doubts(record, sure)):
        text = f"No reward is in the log, so it says nothing of what {target_of(record)} earns{against}."
        return _sentence(record, "no_reward", text, sure, action)
    text = f"Do not judge {target_of(record)}{against} by this log: {_because(record, sure)}."
    return _sentence(record, "do_not_use", text, sure, action)


def _of_value(record: Record, records: Sequence[Record]) -> Sentence:
    """Sentence for a policy without a comparison."""
    amounts, sure, limits = Amounts.of(records), _sure(record), _limits(record)
    span = amounts.span(limits["low"], limits["high"])
    earns = "earns" if sure == "trust" else "is estimated to earn"
    text = f"{_who(record)} {earns} {amounts.one(record['value'])} a decision ({_level(record)} {span})"
    text += "." if sure == "trust" else f", but: {_because(record, sure)}."
    action = _next(record, sure, "compare it with today's policy (--baseline today)")
    return _sentence(record, "value", text, sure, action)


def _of_difference(record: Record, records: Sequence[Record]) -> Sentence:
    """Sentence for a policy compared with another one."""
    other, limits, sure = baseline_of(record), _limits(record), _sure(record)
    unusable = _unusable(record, f" against {other}")
    if unusable is not None:
        return unusable
    if SAME in record["method"]:
        text = f"{target_of(record)} and {other} are the same policy on every row of the log."
        return _sentence(record, "same_policy", text, sure, "compare a policy that differs")
    shares, who, amounts = _shares(record, records), _who(record), Amounts.of(records)
    if limits["low"] > 0.0 or limits["high"] < 0.0:
        sign, answer, more, trusted = (
            (1.0, "better", "more", "try it in an A/B test")
            if limits["low"] > 0.0
            else (-1.0, "worse", "less", f"keep {other}")
        )
        change, span = _sizes(record, sign, shares, amounts)
        text = f"{who} earns {change} {more} than {other} ({_level(record)} {span} {more})."
        if sure != "trust":
            answer = f"looks_{answer}"
            text = f"{who} {answer.replace('_', ' ')} than {other}, by {change} ({_level(record)} {span})"
            text += f", but: {_because(record, sure)}."
        return _sentence(record, answer, text, sure, _next(record, sure, trusted), shares)
    ends = (max(-limits["low"], 0.0), max(limits["high"], 0.0))
    if shares is None:
        less, more = (amounts.change(end).removeprefix("+") for end in ends)
    else:
        less, more = (f"{per_cent(max(end, 0.0))} %" for end in (-shares[1], shares[2]))
    text = f"The log cannot show whether {who} earns more than {other}: from {less} less to {more} more "
    text += f"({_level(record)})."
    action = _next(record, sure, "log more rows (`recsim-mnar plan estimate` says how many)")
    return _sentence(record, "cannot_tell", text, sure, action, shares)


def _shares(record: Record, records: Sequence[Record]) -> tuple[float, float, float] | None:
    """The change and its interval as shares of the baseline's value; None where that is not above 0.

    Today's value is the mean reward of the log, and is taken as exact. For rewards of 0 and 1 and independent rows
    that makes the interval no narrower than it must be: Cov(D, B) = D / n and Var(B) = B / n to first order, so
    the ratio R = D / B has variance (Var(D) - B R^2 / n) / B^2. Of another baseline the worse end of its interval
    counts.
    """
    limits, base = _limits(record), record["diagnostics"].get("value_baseline", 0.0)
    least = most = base
    if not record["today"]:
        of_it = next(r for r in records if r["leads"] and r["policy"] == record["baseline"])
        least, most = of_it["low"], of_it["high"]
    low, high = limits["low"], limits["high"]
    if not (0.0 < least <= base <= most < math.inf and math.isfinite(low) and math.isfinite(high)):
        return None
    return record["value"] / base, low / (most if low > 0.0 else least), high / (least if high > 0.0 else most)


def _sizes(record: Record, sign: float, shares: tuple[float, ...] | None, amounts: Amounts) -> tuple[str, str]:
    """The change and its interval, without their sign."""
    if shares is not None:
        change, *ends = (sign * each for each in shares)
        return f"{per_cent(change)} %", f"{per_cent(min(ends))} to {per_cent(max(ends))} %"
    ends = [sign * _limits(record)[end] for end in ("low", "high")]
    size = amounts.change(sign * record["value"]).removeprefix("+")
    return size, amounts.span(min(ends), max(ends), " points")
