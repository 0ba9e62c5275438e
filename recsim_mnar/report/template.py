"""Pages from their templates: what each says first, the data that they carry, and words explained."""

from __future__ import annotations

import base64
import csv
import functools
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_mnar.answers.sentence import Sentence, per_cent
from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.records import BEST, Record, has_interval, listed
from recsim_mnar.protocols.scoreboard import scoreboard
from recsim_mnar.report.charts import OWN_COLOURS, Chart, environment
from recsim_mnar.runs.files import replacing

if TYPE_CHECKING:
    from recsim_mnar.fitting.calibration import FittedWorld
    from recsim_mnar.fitting.validation import Validation
    from recsim_mnar.own_log.ab_plan import ABPlan


@dataclass(frozen=True)
class Grid:
    """Cells of a table.

    Attributes:
        heads: titles of the columns after the agent's.
        rows: agent and its records, one per column, None where there is none.
        best: in each column the best value of those that can be picked; NaN where none is better.
    """

    heads: list[str]
    rows: list[tuple[str, list[Record | None]]]
    best: list[float]


def grid(comparison: Comparison) -> Grid:
    """Agents by every metric there is."""
    records = comparison.records
    # The reciprocal rank at 1 is the hit rate at 1: one column says it.
    keys = [key for key in dict.fromkeys((r.protocol, r.metric) for r in records) if key != ("loocv", "mrr@1")]
    agents = list(dict.fromkeys(r.agent for r in records))
    by_key = {(r.agent, r.protocol, r.metric): r for r in records}
    rows = [(agent, [by_key.get((agent, *key)) for key in keys]) for agent in agents]
    best = [
        math.nan if key[1] in comparison.neutral else _best([row[i] for _, row in rows], key[1] in comparison.losses)
        for i, key in enumerate(keys)
    ]
    return Grid([comparison.heading(key) for key in keys], rows, best)


def _best(cells: list[Record | None], loss: bool) -> float:
    """The best value of those that can be picked."""
    values = [c.value for c in cells if c is not None and math.isfinite(c.value) and not c.is_reference]
    if not values:
        return math.nan
    if loss:
        return min(values)
    return max(values)


def number(value: float) -> str:
    """Five decimals, without the leading zero that rates do not need."""
    text = f"{value:.5f}"
    if text.startswith(("0.", "-0.")):
        return text.replace("0.", ".", 1)
    return text


MOST_BYTES = 700_000
"""Of a file that a page carries; two of them, base64's third more, leave the page below 3 MB (:func:`together`)."""


@dataclass(frozen=True)
class Download:
    """A file within a page.

    Attributes:
        name: under which it is saved.
        href: its bytes as a data URL.
        size: for a person.
    """

    name: str
    href: str
    size: str


def downloads_of(stem: str, rows: Iterable[Mapping[str, object]]) -> list[Download]:
    """Rows as CSV and as JSON; what is larger than :data:`MOST_BYTES` is left to the files next to the page.

    Args:
        stem: of the files' names.
        rows: of JSON types.
    """
    rows = list(rows)
    if not rows:
        return []
    kinds = [(f"{stem}.csv", "text/csv", _csv(rows)), (f"{stem}.json", "application/json", json.dumps(rows, indent=1))]
    encoded = [(name, kind, text.encode()) for name, kind, text in kinds]
    return [
        Download(name, f"data:{kind};base64,{base64.b64encode(data).decode()}", f"{max(1, round(len(data) / 1e3))} kB")
        for name, kind, data in encoded
        if len(data) <= MOST_BYTES
    ]


def together(*lists: list[Download]) -> list[Download]:
    """All of them in order, without those that would make the page as heavy as two of :data:`MOST_BYTES` and more."""
    downloads = []  # what names a file's kind included
    room = 2 * (MOST_BYTES * 4 // 3 + 64)
    for file in (file for of_rows in lists for file in of_rows):
        if len(file.href) <= room:
            downloads.append(file)
            room -= len(file.href)
    return downloads


def _csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Plain values as they are; what holds further values is left to the JSON."""
    names = [name for name in rows[0] if not any(isinstance(row.get(name), (dict, list)) for row in rows)]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write_from(
    template: str,
    path: Path,
    made_by: Mapping[str, object],
    finding: Finding | None,
    charts: Iterable[Chart],
    *,
    downloads: Sequence[Download] = (),
    **values: Any,
) -> None:
    """Write a page under a temporary name, then rename it.

    Args:
        template: file next to this module, which extends ``base.html``.
        path: of the page.
        made_by: settings and provenance, shown at its foot; JSON types only.
        finding: its first screen; None where there is nothing to decide.
        charts: that it shows.
        downloads: files that it carries.
        **values: what else the template names.
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
        downloads=downloads,
        **values,
    )
    page = unbroken(explained(page, words()))
    with replacing(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def unbroken(page: str) -> str:
    """The page, with numbers that no line's end divides from their sign of per cent, nor intervals in brackets."""
    page = re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", page)
    return re.sub(r"(\[-?[\d.,]+%?), (?=-?[\d.,]+%?\])", "\\1,\N{NO-BREAK SPACE}", page)


# ------------------------------------------------------------------------------------------------------------ glossary

_ENTRY = re.compile(r'(?s)<dt id="[^"]*">(.*?)</dt>\s*<dd>(.*?)</dd>\n')
_TAG = re.compile(r"(<[^>]*>)")
_CLOSED = ("script", "style", "title", "a", "pre", "code", "svg", "dl", "summary")
"""Elements in which words are left as they are, as they are in charts."""
_ANEW = ("<h2", "<details", "<thead")
"""Where a word is explained once more."""


@functools.cache
def words() -> dict[str, str]:
    """Explain each term of a page, from the glossary at its foot."""
    text = files("recsim_mnar.report").joinpath("words.html").read_text(encoding="utf-8")
    return dict(_ENTRY.findall(text))


def explained(page: str, known: Mapping[str, str]) -> str:
    """The page, each term with its meaning as a tooltip and a link to the glossary, once in each of its parts.

    A recommender's name, which may be a word as any other, is one only where a table has it. Of the glossary what the
    page does not use is left out.
    """
    named = [name for name in known if name not in OWN_COLOURS or f">{name}</th>" in page]
    longest = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    term = re.compile(rf"(?i)(?<![\w/.-])(?<!at )({longest})(?![\w-]|@\D|\.\w)")
    lower = {name.lower(): name for name in known}
    made, terms, used, closed = [], set[str](), set[str](), list[str]()

    def linked(found: re.Match[str]) -> str:
        name = lower[found[1].lower()]
        if name in terms:
            return found[1]
        terms.add(name)
        used.add(name)
        return f'<a class="term" href="#{anchor(name)}" title="{known[name]}">{found[1]}</a>'

    head, body, rest = page.partition("<main>")
    for piece in _TAG.split(rest):
        if piece.startswith("<"):
            name = piece.strip("</> ").split()[0].lower()
            drawn = piece.startswith('<div role="img"') or (name == "div" and "div" in closed)
            if (name in _CLOSED or drawn) and not piece.endswith("/>"):
                closed.append(name) if not piece.startswith("</") else closed.pop()
            if piece.startswith(_ANEW):
                terms.clear()
            made.append(piece)
        else:
            made.append(piece if closed else term.sub(linked, piece))
    return head + body + _ENTRY.sub(lambda found: found[0] if found[1] in used else "", "".join(made))


def anchor(name: str) -> str:
    """Get the anchor of a term in the glossary of a page."""
    return "word-" + re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


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
    """Summarise each protocol's pick and its result; without a truth the tests' findings. None if nothing is judged."""
    if not comparison.judgements:
        lines = comparison.conclusion
        if lines:
            return Finding(lines[-2] if len(lines) > 1 else lines[0], " ".join(lines[:-2]), lines[-1])
        return None
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
    """Summarise the answer of the log.

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
    if sentence.baseline in (None, "propensity"):
        other = TODAY
    else:
        other = sentence.baseline
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
    if (sentence.sure, sentence.answer) == ("trust", "cannot_tell"):
        sure += ", undecided"
    return Finding(decision, lift, f"{sure}. Next: {action}.", kind, by_segment)


def _asks(who: str, other: str, gap: str, tolerance: float, least: float | None) -> tuple[str, ...]:
    """List the conditions of the answer that a log cannot prove, as questions."""
    items = ""
    if least is not None:
        most = int(1.0 / least + 1e-9)
        items = f"Does {other} choose from at most {most:,} items in this place? (Each is said to have a chance of "
        items += f"{100.0 * least:.4g} % or more, so there cannot be more than {most:,}.)"
    off = f"{100.0 * (tolerance - 1.0):.2g} %"
    questions = (
        items,
        f"Was {who} built without these very records? (Else it looks too good.)",
        "Did the system itself record its probabilities at the moment of showing? (If they were estimated later they "
        f"may be wrong: errors of {off} in each, all in the worst direction, would undo the {gap}.)",
    )
    return tuple(filter(None, questions))


def _size_of_test(plans: Sequence[ABPlan]) -> str:
    """Describe days and users of an A/B test for the least of some lifts; "" where they are not known."""
    if not plans:
        return ""
    plan = plans[-1]
    users = float(plan.users)
    size = ""
    rows = plan.decisions_a_user
    if plan.days is not None and plan.users_by_then is not None:
        weeks = math.ceil(plan.days / 7.0)
        users = plan.users_by_then / 2.0
        size = f" of {weeks:,} week{'s' * (weeks > 1)}"
        rows = (plan.rows_by_then or 0) / max(users, 1.0)
    chance = f"have a chance of {100 * plan.power:.0f} % to show even {digits(100.0 * plan.lift_share)} %"
    users_text = f"{max(rounded(users), LEAST_USERS):,} users per variant with some {rows:.0f} recommendations each"
    return f"{size}: {users_text} {chance}"


def digits(per_cent: float) -> str:
    """A change in per cent, with its sign and three digits, as the terminal has it."""
    return f"{per_cent:+#.3g}".rstrip(".").replace("-", "\N{MINUS SIGN}")


# ----------------------------------------------------------------------------------- worlds that were fitted


def of_validation(found: Validation) -> Finding:
    """For how many questions the world may be used."""
    n = len(found.checks)
    good = len(found.valid_for)
    bad = len(found.not_valid_for)
    if good:
        decision = f"Use this world for {good} of {n} questions."
    else:
        decision = "Do not use this world yet."
    lift = f"{100 * good / max(n, 1):.0f} % of the checks see no difference from real users that matters; "
    lift += f"{bad} see one, {len(found.cannot_say)} cannot say."
    if bad:
        todo = f"Do not ask it about {found.not_valid_for[0].partition(':')[0].rstrip('.')}. "
    else:
        todo = ""
    return Finding(
        decision, lift, f"{todo}Next: keep to the questions in the list below.", "good" if not bad else "tie"
    )


def of_fit(found: FittedWorld) -> Finding:
    """Summarise what a log settles about a world."""
    n = len(found.identified)
    open_ = len(found.not_identified)
    decision = f"The {found.world} world is fitted. Check it before you rely on it."
    rate = found.identified.get("click_rate_on_log")
    lift = f"The log settles {n} of {n + open_} features."
    if rate:
        lift += f" Its users click {per_cent(found.facts['click_rate_fitted'])} % of the time; those of the log "
        lift += f"{per_cent(rate['low'])} to {per_cent(rate['high'])} % (90 % interval)."
    return Finding(decision, lift, "Not yet sure. Next: recsim-mnar validate says what it may be used for.", "tie")
