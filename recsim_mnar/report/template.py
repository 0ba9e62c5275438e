"""Write pages from templates: the first screen, data to download, and explanations of terms."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_mnar.answers.sentence import Sentence
from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import BEST, Record, has_interval, listed
from recsim_mnar.protocols.scoreboard import scoreboard
from recsim_mnar.report.charts import Chart, environment
from recsim_mnar.runs.files import replacing

if TYPE_CHECKING:
    from recsim_mnar.fitting.validation import Validation
    from recsim_mnar.own_log.ab_plan import ABPlan


@dataclass(frozen=True)
class Grid:
    """Table of all agents by all metrics.

    Attributes:
        heads: headings of the columns after that of the agents.
        rows: per agent, its name and one record per column, None for an empty cell.
        best: per column, the best value of an agent that can be picked; NaN if neither large nor small is good.
    """

    heads: list[str]
    rows: list[tuple[str, list[Record | None]]]
    best: list[float]


def grid(comparison: Comparison) -> Grid:
    """Build the table of all agents by all metrics."""
    records = comparison.records
    # The reciprocal rank at 1 is the hit rate at 1: one column is enough.
    keys = [key for key in dict.fromkeys((r.protocol, r.metric) for r in records) if key != ("loocv", "mrr@1")]
    agents = dict.fromkeys(r.agent for r in records)
    by_key = {(r.agent, r.protocol, r.metric): r for r in records}
    rows = [(agent, [by_key.get((agent, *key)) for key in keys]) for agent in agents]
    best = []
    for column, (_, metric) in enumerate(keys):
        cells = [cells[column] for _, cells in rows]
        values = [cell.value for cell in cells if cell and math.isfinite(cell.value) and not cell.is_reference]
        if metric in comparison.neutral or not values:
            best.append(math.nan)
        else:
            best.append(min(values) if metric in comparison.losses else max(values))
    return Grid([comparison.heading(key) for key in keys], rows, best)


def number(value: float) -> str:
    """Format with five decimals, without the leading zero that rates do not need."""
    text = f"{value:.5f}"
    if text.startswith(("0.", "-0.")):
        return text.replace("0.", ".", 1)
    return text


def write_from(
    template: str,
    path: Path,
    made_by: Mapping[str, object],
    finding: Finding | None,
    charts: Iterable[Chart],
    **values: Any,
) -> None:
    """Render a page, and write it under a temporary name, which is then renamed.

    Args:
        template: name of a template next to this module that extends ``base.html``.
        path: path of the page.
        made_by: settings and provenance for the foot of the page; JSON types only.
        finding: content of the first screen; None if there is nothing to decide.
        charts: charts to show.
        **values: further variables of the template.
    """
    from recsim_mnar._version import __version__

    renderer = environment()
    renderer.filters["number"] = number
    renderer.tests["estimate"] = has_interval
    page = renderer.get_template(template).render(
        made_by=json.dumps(made_by, indent=2),
        version=__version__,
        finding=finding,
        charts=list(charts),
        **values,
    )
    page = with_no_break_spaces(page)
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def with_no_break_spaces(page: str) -> str:
    """Put no-break spaces before per cent signs and into intervals in brackets, so that lines do not end there."""
    page = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", page)
    return re.sub(r"(\[-?[\d.,]+%?), (?=-?[\d.,]+%?\])", "\\1,\N{NO-BREAK SPACE}", page)


MOST_NAMES = 3
"""Largest number of names in a sentence of the first screen."""


@dataclass(frozen=True)
class Finding:
    """Content of the first screen of a page.

    Attributes:
        decision: sentence on the decision.
        lift: sentence on the change in per cent, with its interval.
        next: sentences on the confidence and the next step.
        kind: "good", "tie" or "bad", for the colour.
        but: sentence on exceptions, such as segments; may be empty.
        asks: questions on conditions of the decision, which holds only if all answers are yes.
    """

    decision: str
    lift: str
    next: str
    kind: str = "tie"
    but: str = ""
    asks: tuple[str, ...] = ()


# ------------------------------------------------------------------------------------------------------- comparisons


def of_comparison(comparison: Comparison) -> Finding | None:
    """Summarise each protocol's pick and its result or, without a truth, the conclusion; None if nothing is judged."""
    if comparison.judgements:
        board = scoreboard(comparison)
        is_good = any(choice.outcome == BEST for choice in board.choices)
        return Finding(board.headline(), "", "", "good" if is_good else "bad")
    lines = comparison.conclusion
    if not lines:
        return None
    # The last sentence is on limits, the one before it on the last protocol; the others follow it.
    return Finding(lines[-2] if len(lines) > 1 else lines[0], " ".join(lines[:-2]), lines[-1])


def rounded(n: float) -> int:
    """Round a number of users up to two significant digits."""
    size = 10 ** max(0, math.floor(math.log10(max(n, 1.0))) - 1)  # the power of ten of the second digit
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
_ANSWERS_AGAINST_RANDOM: Mapping[str, str] = {
    "better": "{who} should beat {other}, which is not the system in production.",
    "looks_better": "{who} looks better than {other}, which is not the system in production.",
    "worse": "{who} is worse than {other}.",
    "looks_worse": "{who} looks worse than {other}.",
    "cannot_tell": "This log cannot tell whether {who} is better than {other}.",
}
"""Decisions by answer if the logging policy is uniformly random."""
TODAY = "today's recommender"
RANDOM = "the random traffic"
"""Names of the logging policy on pages."""
_TRY = "try it in an A/B test"
_ELSEWHERE = "try it on users other than {}'s, or look there first"
_SURE = {"trust": "Checks passed", "caution": "Caution: {doubt}", "do_not_use": "Not usable: {doubt}"}


def of_estimates(
    sentence: Sentence,
    value: str,
    doubt: str,
    rates: str,
    tolerance: float | None,
    by_segment: str,
    plans: Sequence[ABPlan],
    least: float | None,
) -> Finding:
    """Summarise the estimates from a log for the first screen.

    Args:
        sentence: summary of the estimates.
        value: sentence on the policy's value with its interval, for an answer without a baseline; may be empty.
        doubt: message of the gravest finding; "" without one.
        rates: text on the values of both policies, which follows the change; may be empty.
        tolerance: factor by which all propensities may be wrong before the answer fails; None if it is unknown.
        by_segment: sentence on the segments in which the policy is worse or better; may be empty.
        plans: plans of A/B tests that detect the change, and the lower end of its interval; may be empty.
        least: stated smallest probability of any item; None if it is not stated.
    """
    words, kind = _ANSWERS[sentence.answer]
    other = sentence.baseline or TODAY
    if other == "propensity":  # the column of propensities is the logging policy's
        other = TODAY
    if sentence.baseline_kind == "random":
        other = RANDOM
        words = _ANSWERS_AGAINST_RANDOM.get(sentence.answer, words)
    lift = value or "By how much, this log does not say."
    if sentence.change_percent is not None and sentence.low_percent is not None and sentence.high_percent is not None:
        interval = f"{digits(sentence.low_percent)} to {digits(sentence.high_percent)} %"
        change = f"{digits(sentence.change_percent)} %{rates or f' against {other}'}"
        lift = f"{change} ({100 * sentence.level:.3g} % interval {interval})."
    if sentence.sure == "caution" and kind == "good":  # a doubtful page is not shown as good
        kind = "tie"
    who = f"\N{LEFT DOUBLE QUOTATION MARK}{sentence.policy}\N{RIGHT DOUBLE QUOTATION MARK}"
    action = sentence.action
    if "A/B" in action:
        action += _size_of_test(plans)
    then = _TRY
    worse = () if sentence.segments is None else sentence.segments["worse"]
    if worse and sentence.answer == "better":
        then = _ELSEWHERE.format(listed(worse, MOST_NAMES))
        kind = "tie"
    decision = words.format(who=who, other=other, then=then)
    if tolerance is not None and sentence.sure == "trust":
        gap = "gain" if sentence.answer == "better" else "difference"
        return Finding(
            decision, lift, f"Next: {action}.", kind, by_segment, _questions(who, other, gap, tolerance, least)
        )
    sure = _SURE[sentence.sure].format(doubt=doubt or "see below")
    if (sentence.sure, sentence.answer) == ("trust", "cannot_tell"):
        sure += ", undecided"
    return Finding(decision, lift, f"{sure}. Next: {action}.", kind, by_segment)


def _questions(who: str, other: str, gap: str, tolerance: float, least: float | None) -> tuple[str, ...]:
    """Return, as questions, the conditions of the answer that a log cannot prove.

    Args:
        who: name of the policy, in quotes.
        other: name of the baseline.
        gap: word for the change, "gain" or "difference".
        tolerance: factor by which all propensities may be wrong before the answer fails.
        least: stated smallest probability of any item; None if it is not stated.
    """
    off = f"{100.0 * (tolerance - 1.0):.2g} %"
    questions = (
        f"Was {who} built without these very records? (Else it looks too good.)",
        "Did the system itself record its probabilities at the moment of showing? (If they were estimated later they "
        f"may be wrong: errors of {off} in each, all in the worst direction, would undo the {gap}.)",
    )
    if least is None:
        return questions
    most = int(1.0 / least + 1e-9)  # probabilities sum to 1; 1e-9 allows for rounding
    items = (
        f"Does {other} choose from at most {most:,} items in this place? (Each is said to have a chance of "
        f"{100.0 * least:.4g} % or more, so there cannot be more than {most:,}.)"
    )
    return (items, *questions)


def _size_of_test(plans: Sequence[ABPlan]) -> str:
    """Describe the duration and users of the last planned A/B test, that for the smallest change; "" without plans."""
    if not plans:
        return ""
    plan = plans[-1]
    users = float(plan.users)
    rows = plan.decisions_a_user
    size = ""
    if plan.days is not None and plan.users_by_then is not None:
        weeks = math.ceil(plan.days / 7.0)
        users = plan.users_by_then / 2.0  # per variant
        size = f" of {weeks:,} week{'s' * (weeks > 1)}"
        if plan.is_guess:
            size += f" (a guess from a log of {plan.log_days} days)"
        rows = (plan.rows_by_then or 0) / max(users, 1.0)
    chance = f"have a chance of {100 * plan.power:.0f} % to show even {digits(100.0 * plan.lift_share)} %"
    users_text = f"{max(rounded(users), LEAST_USERS):,} users per variant with some {rows:.0f} recommendations each"
    return f"{size}: {users_text} {chance}"


def digits(per_cent: float) -> str:
    """Format a change in per cent with its sign and three significant digits."""
    return f"{per_cent:+#.3g}".rstrip(".").replace("-", "\N{MINUS SIGN}")


# ----------------------------------------------------------------------------------- worlds that were fitted


def of_validation(validation: Validation) -> Finding:
    """Summarise a validation: the number of questions for which the world may be used."""
    n = len(validation.checks)
    n_good = len(validation.valid_for)
    n_bad = len(validation.not_valid_for)
    decision = "Do not use this world yet."
    if n_good:
        decision = f"Use this world for {n_good} of {n} questions."
    lift = (
        f"{100 * n_good / max(n, 1):.0f} % of the checks see no difference from real users that matters; {n_bad} see "
        f"one, {len(validation.cannot_say)} cannot say."
    )
    todo = "Next: keep to the questions in the list below."
    if not n_bad:
        return Finding(decision, lift, todo, "good")
    topic = validation.not_valid_for[0].partition(":")[0].rstrip(".")
    return Finding(decision, lift, f"Do not ask it about {topic}. {todo}")
