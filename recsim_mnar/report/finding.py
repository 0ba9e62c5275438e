"""What a page says first, in three lines: the decision, by how much in per cent, how sure and what to do next."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsim_mnar.answers.sentence import Sentence, per_cent
from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import BEST, listed
from recsim_mnar.protocols.scoreboard import scoreboard

if TYPE_CHECKING:
    from recsim_mnar.fitting.calibration import FittedWorld
    from recsim_mnar.fitting.validation import Validation
    from recsim_mnar.own_log.plan.experiment import ABPlan

MOST_NAMES = 3
"""Names in a sentence of the first screen."""


@dataclass(frozen=True)
class Finding:
    """The first screen of a page.

    Attributes:
        decision: what to do, or what is known.
        lift: by how much in per cent, with its interval.
        next: how sure it is, and what to do next.
        kind: "good", "tie" or "bad", for the colour.
        but: where it is otherwise, or differs, in a sentence; empty where nothing is known of that.
        asks: questions whose answer must be yes.
    """

    decision: str
    lift: str
    next: str
    kind: str = "tie"
    but: str = ""
    asks: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------- comparisons


def of_comparison(comparison: Comparison) -> Finding | None:
    """What each protocol picks and its result; without a truth, what the tests find. None if nothing is judged."""
    if not comparison.judgements:
        lines = comparison.conclusion
        return Finding(lines[-2] if len(lines) > 1 else lines[0], " ".join(lines[:-2]), lines[-1]) if lines else None
    board = scoreboard(comparison)
    found_best = any(choice.outcome == BEST for choice in board.choices)
    return Finding(board.headline(), "", "", "good" if found_best else "bad")


def rounded(n: float) -> int:
    """A number of users, to two digits."""
    size = 10 ** max(0, math.floor(math.log10(max(n, 1.0))) - 1)
    return int(math.ceil(n / size) * size)


# --------------------------------------------------------------------------------------------------------- estimates


_ANSWERS: Mapping[str, tuple[str, str]] = {
    "better": ("{who} should beat {other}: {then}.", "good"),
    "looks_better": ("{who} looks better than {other}. Do not switch on this alone.", "tie"),
    "worse": ("{who} is worse than {other}: keep {other}.", "bad"),
    "looks_worse": ("{who} looks worse than {other}: keep {other} for now.", "tie"),
    "cannot_tell": ("Keep {other} for now: this log cannot tell whether {who} is better.", "tie"),
    "same_policy": ("{who} and {other} do the same: there is nothing to decide.", "tie"),
    "value": ("{who} can be judged by this log.", "good"),
    "not_covered": ("Do not judge {who} by this log: it shows too little of what {who} does.", "bad"),
    "no_reward": ("This log says nothing: it holds no reward.", "bad"),
    "do_not_use": ("Do not decide on {who} by this log.", "bad"),
}
_OF_RANDOM: Mapping[str, str] = {
    "better": "{who} should beat {other}, which is not the system in production.",
    "looks_better": "{who} looks better than {other}, which is not the system in production.",
    "worse": "{who} is worse than {other}.",
    "looks_worse": "{who} looks worse than {other}.",
    "cannot_tell": "This log cannot tell whether {who} is better than {other}.",
}
"""Decisions where the records were drawn at random, in place of those above."""
TODAY, RANDOM = "today's recommender", "the random traffic"
"""What a page calls the policy that made the records."""
_TRY = "try it in an A/B test"
_ELSEWHERE = "try it on users other than {}'s, or look there first"
_SURE = {"trust": "Checks passed", "caution": "Caution: {doubt}", "do_not_use": "Not usable: {doubt}"}


def of_estimates(
    sentence: Sentence,
    value: str,
    doubt: str,
    rates: str = "",
    tolerance: float | None = None,
    by_segment: str = "",
    plans: Sequence[ABPlan] = (),
    least: float | None = None,
) -> Finding:
    """Of the answer that the log gives.

    Args:
        sentence: the answer.
        value: what the policy earns, with its interval, where it is compared with nothing.
        doubt: the gravest one, or nothing.
        rates: both policies' values, as they follow the change.
        tolerance: factor by which all propensities may be off before the answer may not hold; None for none known.
        by_segment: where the policy is worse and where it is better, as its segments say.
        plans: A/B tests that find the change, and that find its lower end; none where it is not known.
        least: the smallest probability of any item, where somebody stated it.
    """
    other = TODAY if sentence.baseline in (None, "propensity") else sentence.baseline
    words, kind = _ANSWERS[sentence.answer]
    if sentence.baseline_kind == "random":
        other, words = RANDOM, _OF_RANDOM.get(sentence.answer, words)
    if sentence.change_percent is not None and sentence.low_percent is not None and sentence.high_percent is not None:
        low, high = (digits(end) for end in (sentence.low_percent, sentence.high_percent))
        rates = rates or f" against {other}"
        lift = f"{digits(sentence.change_percent)} %{rates} "
        lift += f"({100 * sentence.level:.3g} % interval {low} to {high} %)."
    else:
        lift = value or "By how much, this log does not say."
    if sentence.sure == "caution" and kind == "good":
        kind = "tie"
    who = f"\N{LEFT DOUBLE QUOTATION MARK}{sentence.policy}\N{RIGHT DOUBLE QUOTATION MARK}"
    action, then = sentence.action, _TRY
    if "A/B" in action:
        action += _size_of_test(plans)
    worse = () if sentence.segments is None else sentence.segments["worse"]
    if worse and sentence.answer == "better":
        then, kind = _ELSEWHERE.format(listed(worse, MOST_NAMES)), "tie"
    decision = words.format(who=who, other=other, then=then)
    if tolerance is not None and sentence.sure == "trust":
        gap = "gain" if sentence.answer == "better" else "difference"
        return Finding(decision, lift, f"Next: {action}.", kind, by_segment, _asks(who, other, gap, tolerance, least))
    sure = _SURE[sentence.sure].format(doubt=doubt or "see below")
    sure += ", undecided" if (sentence.sure, sentence.answer) == ("trust", "cannot_tell") else ""
    return Finding(decision, lift, f"{sure}. Next: {action}.", kind, by_segment)


def _asks(who: str, other: str, gap: str, tolerance: float, least: float | None) -> tuple[str, ...]:
    """What must be so for the answer to hold, and a log cannot prove, as questions."""
    items = ""
    if least is not None:
        most = int(1.0 / least + 1e-9)
        items = f"Does {other} choose from at most {most:,} items in this place? (Each is said to have a chance of "
        items += f"{100.0 * least:.4g} % or more, so there cannot be more than {most:,}.)"
    off = f"{100.0 * (tolerance - 1.0):.2g} %"
    asked = (
        items,
        f"Was {who} built without these very records? (Else it looks too good.)",
        "Did the system itself record its probabilities at the moment of showing? (If they were estimated later they "
        f"may be wrong: errors of {off} in each, all in the worst direction, would undo the {gap}.)",
    )
    return tuple(filter(None, asked))


def _size_of_test(plans: Sequence[ABPlan]) -> str:
    """How long an A/B test takes and how many users, for the least of some lifts; "" where it is not known."""
    if not plans:
        return ""
    plan = plans[-1]
    users, size, rows = float(plan.users), "", plan.decisions_a_user
    if plan.days is not None and plan.users_by_then is not None:
        weeks = math.ceil(plan.days / 7.0)
        users, size = plan.users_by_then / 2.0, f" of {weeks:,} week{'s' * (weeks > 1)}"
        rows = (plan.rows_by_then or 0) / max(users, 1.0)
    found = f"have a chance of {100 * plan.power:.0f} % to show even {digits(100.0 * plan.lift_share)} %"
    each = f"{max(rounded(users), LEAST_USERS):,} users per variant with some {rows:.0f} recommendations each"
    return f"{size}: {each} {found}"


def digits(per_cent: float) -> str:
    """A change in per cent, with its sign and three digits, as the terminal has it."""
    return f"{per_cent:+#.3g}".rstrip(".").replace("-", "\N{MINUS SIGN}")


# ----------------------------------------------------------------------------------- worlds that were fitted


def of_validation(found: Validation) -> Finding:
    """For how many questions the world may be used."""
    n, good, bad = len(found.checks), len(found.valid_for), len(found.not_valid_for)
    decision = f"Use this world for {good} of {n} questions." if good else "Do not use this world yet."
    lift = f"{100 * good / max(n, 1):.0f} % of the checks see no difference from real users that matters; "
    lift += f"{bad} see one, {len(found.cannot_say)} cannot say."
    todo = f"Do not ask it about {found.not_valid_for[0].partition(':')[0].rstrip('.')}. " if bad else ""
    return Finding(
        decision, lift, f"{todo}Next: keep to the questions in the list below.", "good" if not bad else "tie"
    )


def of_fit(found: FittedWorld) -> Finding:
    """What a log settles of a world."""
    n, open_ = len(found.identified), len(found.not_identified)
    decision = f"The {found.world} world is fitted. Check it before you rely on it."
    rate = found.identified.get("click_rate_on_log")
    lift = f"The log settles {n} of {n + open_} features."
    if rate:
        lift += f" Its users click {per_cent(found.facts['click_rate_fitted'])} % of the time; those of the log "
        lift += f"{per_cent(rate['low'])} to {per_cent(rate['high'])} % (90 % interval)."
    return Finding(decision, lift, "Not yet sure. Next: recsim-mnar validate says what it may be used for.", "tie")
