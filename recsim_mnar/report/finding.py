"""What a page says first, in three lines: the decision, by how much in per cent, how sure and what to do next."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from recsim_mnar.estimators.off_policy.sentence import Sentence, per_cent
from recsim_mnar.estimators.verdict import LEAST_USERS
from recsim_mnar.protocols.comparison import CATALOGUES, Comparison
from recsim_mnar.protocols.interactions import TITLES
from recsim_mnar.protocols.records import (
    BEST,
    COSTS,
    INDISTINGUISHABLE,
    UNUSABLE,
    Judgement,
    Record,
    as_subject,
    half_width,
    listed,
    seen,
)
from recsim_mnar.report.naming import MOST_NAMES, about, both, method, method_named, plain, spoken, spoken_all
from recsim_mnar.studies.result import two_digits

if TYPE_CHECKING:
    from recsim_mnar.fitting.advice import Advice
    from recsim_mnar.fitting.calibration import FittedWorld
    from recsim_mnar.fitting.validation import Validation
    from recsim_mnar.own_log.plan.experiment import ABPlan

WORDS = {BEST: "Best", INDISTINGUISHABLE: "A tie", COSTS: "Costs", UNUSABLE: "Do not use"}
"""How a page calls what came of a pick; in words, so that nothing depends on colour."""
LUCK, TOO_CLOSE = "Best, by luck", "Too close for it"
"""Of a pick that is the best or nearly so, though the data that the method has could not show it."""
CLICKS = {"CTR": "clicks"}
"""What a share of a target is a share of, in plain words."""
MOST_KEPT = 5
"""Recommenders named that no method separates."""


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


def state(judgement: Judgement) -> str:
    """In a word or two: best, best by luck, a tie, too close for it, the cost, or not to be used."""
    if judgement.by_luck or judgement.too_close:
        return LUCK if judgement.by_luck else TOO_CLOSE
    return f"{WORDS[COSTS]} {judgement.loss}" if judgement.shown == COSTS else WORDS[judgement.shown]


def truths_of(comparison: Comparison, judgement: Judgement) -> list[Record]:
    """True values of what the judgement is about, the best first, of those that can be picked."""
    records = [r for r in comparison.records if r.protocol == "truth" and math.isfinite(r.value)]
    metric = next((r.metric for r in records if r.agent == judgement.best and r.value == judgement.best_truth), "")
    own = [r for r in records if r.metric == metric and not r.details.get("reference")]
    return sorted(own, key=lambda r: r.value, reverse=metric not in comparison.losses)


def of_comparison(comparison: Comparison) -> Finding | None:
    """Of the first target; without a truth, what users' own data say. None where there is nothing to choose."""
    if not comparison.judgements:
        return _of_interactions(comparison)
    first = comparison.judgements[0]
    judged = [j for j in comparison.judgements if j.target == first.target]
    kinds: dict[str, list[Judgement]] = {}
    for j in judged:
        kinds.setdefault(_kind(j), []).append(j)
    ranked = truths_of(comparison, first)
    led = next((kind for kind in _FOUND if kind in kinds), COSTS)
    right = [j for j in judged if j.pick == j.best and not j.tied_with] if led == LUCK else kinds.get(led, [])
    who = f"All {counted(len(right))} methods" if len(right) == len(judged) > 2 else _titles(right)
    decision = as_subject(_FOUND[led].format(who, counted(len(ranked))))
    lead, unsure = _lead(ranked, first.target)
    tried = [j for j in judged if j.close and _kind(j) in (LUCK, TOO_CLOSE)]
    narrow = min((j for j in tried if not _wrongly_out(j, ranked)), key=lambda j: len(j.close), default=None)
    if led in (LUCK, TOO_CLOSE) and narrow is not None and ranked[0].value:
        kept = [r for r in ranked if r.agent in (narrow.pick, *narrow.close)]
        names = spoken_all((r.agent for r in kept), MOST_KEPT)
        of = f" of the {CLICKS[first.target]}" if first.target in CLICKS else ""
        share = abs(ranked[0].value - kept[-1].value) / abs(ranked[0].value)
        lead = f"No method had the data to tell which of {names} is best, so a right pick was luck; a wrong one among "
        lead += f"them costs at most about {two_digits(share)} %{of}."
        if len(kept) < len(ranked):
            decision = f"Only {_title(narrow)} can be relied on in this simulated shop, and only to drop the worst."
    more = f"Next: repeat this in {CATALOGUES} simulated shops, as one settles nothing." if comparison.again else ""
    return Finding(decision, as_subject(lead), f"{unsure}{more}".strip(), "good" if led == BEST else "tie")


def _wrongly_out(judgement: Judgement, ranked: Sequence[Record]) -> list[tuple[str, str]]:
    """Recommenders that a method tells from its pick, each with one that is truly worse and that it keeps."""
    kept = [r.agent for r in ranked if r.agent in (judgement.pick, *judgement.close)]
    place = {r.agent: i for i, r in enumerate(ranked)}
    better = [r.agent for r in ranked if r.agent not in kept and kept and place[r.agent] < place[kept[-1]]]
    return [(spoken(name), spoken(kept[-1])) for name in better]


class Method(NamedTuple):
    """A method's row of the first screen.

    Attributes:
        name: of the method.
        about: what it does.
        picks: the recommender that it picks.
        cost: how far that one truly is behind the best.
        rely: whether to rely on the method here, in a word.
        why: the reason, in a few words.
        kind: "good", "tie" or "bad", for the colour.
    """

    name: str
    about: str
    picks: str
    cost: str
    rely: str
    why: str
    kind: str


def methods_of(comparison: Comparison) -> list[Method]:
    """What each method picks, what that costs, and whether to rely on it: of the first target's judgements."""
    judged = [j for j in comparison.judgements if j.target == comparison.judgements[0].target]
    return sorted((_method(comparison, j) for j in judged), key=lambda row: ("good", "tie", "bad").index(row.kind))


def _method(comparison: Comparison, j: Judgement) -> Method:
    kind = _kind(j)
    rely, why, colour = _RELY[kind]
    others, lacking = (spoken_all(names) if names else "" for names in (j.close, j.unranked))
    needed, users = users_needed(comparison) if j.protocol == "ab_test" else ({}, 0)
    if kind in (LUCK, TOO_CLOSE):
        data = f"{users:,} users per variant" if users else "its data"
        why = f"{data} cannot tell {spoken(j.pick)} from {others}" if others else f"{data} are too few to tell"
        ranked = truths_of(comparison, j)
        nearest = max((name for name in needed if name in (j.pick, *j.close)), key=needed.__getitem__, default=None)
        if nearest is not None:
            value = next(r.value for r in ranked if r.agent == nearest)
            gain = two_digits(abs(j.best_truth - value) / abs(j.best_truth)) if j.best_truth else "0"
            rely, why = "no: too small", f"{why}; that takes {rounded(needed[nearest]):,} per variant, to gain {gain} %"
        why = f"luck: {why}" if kind == LUCK else why
        wrongly = _wrongly_out(j, ranked)
        for out, kept in wrongly[:1]:
            why += f"; wrongly drops {out}, which is truly better than {kept}"
        if not wrongly and len(j.close) + 1 < len(ranked):
            rely, colour = "only to drop the worst", "tie"
            why = f"safely drops {spoken_all(r.agent for r in ranked if r.agent not in (j.pick, *j.close))}; {why}"
    elif kind in (UNUSABLE, COSTS):
        own = (
            [f"its estimate of {spoken(j.pick)} is unreliable"] if kind == UNUSABLE and j.pick not in j.unranked else []
        )
        blind = [f"the old system's records hold too little of {lacking}"] if lacking else []
        why = "; ".join([*own, *blind]) or why
    picks = "all alike" if j.ranks_nothing else " or ".join([both(j.pick), *map(both, j.tied_with)][:MOST_NAMES])
    cost = f"{two_digits(j.cost_share)} %" if j.cost_share else f"{j.cost:.3g}" if j.cost else "nothing"
    cost += ", by luck" if kind in (LUCK, UNUSABLE) and not j.cost else ""
    small = about(j.title, method_named(j.title))
    return Method(as_subject(_title(j)), small, picks, cost, rely, why.format(best=spoken(j.best)), colour)


_RELY = {
    BEST: ("yes", "it found the best, beyond chance", "good"),
    LUCK: ("no", "", "bad"),
    INDISTINGUISHABLE: ("yes", "too close to {best} even for the simulator", "good"),
    TOO_CLOSE: ("no", "", "bad"),
    COSTS: ("no", "{best} is better, beyond chance", "bad"),
    UNUSABLE: ("no", "", "bad"),
}
"""By what came of a pick: whether to rely on the method, why, and the colour."""


_FOUND = {
    BEST: "{0} found the best of {1} recommenders here.",
    LUCK: "No method can be relied on in this simulated shop to find the best of {1} recommenders.",
    INDISTINGUISHABLE: "{0} found one as good as the best of {1} recommenders here.",
    TOO_CLOSE: "No method can be relied on in this simulated shop to find the best of {1} recommenders.",
    COSTS: "No method found the best of {1} recommenders here.",
}
"""What is said of the methods by the best of what came of their picks: their names, the number of recommenders."""
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def counted(n: int) -> str:
    """A small number as a word."""
    return _COUNTS[n] if n < len(_COUNTS) else f"{n:,}"


def _titles(judged: Sequence[Judgement]) -> str:
    return listed([_title(j) for j in judged], MOST_NAMES) if judged else ""


def _title(judgement: Judgement) -> str:
    return method(judgement.title.removesuffix(f" of {judgement.target}"))


def _kind(judgement: Judgement) -> str:
    return LUCK if judgement.by_luck else TOO_CLOSE if judgement.too_close else judgement.shown


def _lead(ranked: Sequence[Record], target: str) -> tuple[str, str]:
    """How far the second of some records is behind the first, and a sentence where the simulator is not sure of it."""
    if len(ranked) < 2:
        return "There is nothing to compare it with.", ""
    best, second = ranked[:2]
    gap, width = abs(best.value - second.value), half_width(best, second)
    unsure = "" if gap > width else "The simulator itself cannot tell which is better. "
    names = spoken(best.agent), spoken(second.agent)
    if not best.value > 0.0:
        return f"the best, {names[0]}, is {gap:.3g} ahead of the next, {names[1]}.", unsure
    ends = (gap - width) / best.value, (gap + width) / best.value
    behind = f"gets {{}} % fewer {CLICKS[target]} than" if target in CLICKS else "is {} % behind"
    lead = f"the next, {names[1]}, {behind.format(two_digits(gap / best.value))} the best, {names[0]}"
    return lead + (f" ({100 * best.level:g} % interval {between(*ends)})." if width else "."), unsure


def users_needed(comparison: Comparison) -> tuple[dict[str, float], int]:
    """Users per arm with which an A/B test tells the best from each other agent, the nearest first, and those it has.

    As many as see the true difference in :data:`~recsim_mnar.protocols.records.POWER` of all tests. Nothing where there
    is no A/B test whose arms are independent.
    """
    ranked = truths_of(comparison, comparison.judgements[0])
    key = ("ab_test", ranked[0].metric) if ranked else ("", "")
    tested = {r.agent: r for r in comparison.records if (r.protocol, r.metric) == key and r.details.get("users")}
    arm = tested.get(ranked[0].agent) if ranked else None
    if arm is None or arm.details.get("paired"):
        return {}, 0
    found = {}
    for one in ranked[1:]:
        gap = abs(ranked[0].value - one.value)
        if one.agent in tested and gap > 0.0:
            found[one.agent] = arm.details["users"] * (half_width(arm, tested[one.agent]) * seen(arm.level) / gap) ** 2
    return found, int(arm.details["users"])


def rounded(n: float) -> int:
    """A number of users, to two digits."""
    size = 10 ** max(0, math.floor(math.log10(max(n, 1.0))) - 1)
    return int(math.ceil(n / size) * size)


def signed(share: float) -> str:
    """A share as per cent with its sign, two digits of it."""
    shown = 100.0 * share
    text = f"{shown:+,.0f}" if abs(shown) >= 10 else f"{shown:+.2g}" if abs(shown) >= 0.1 else f"{shown:+.1g}"
    return text.replace("-", "\N{MINUS SIGN}")


def between(low: float, high: float) -> str:
    """An interval of shares as per cent, with signs where one of its ends is below 0."""
    write = signed if low < 0 else two_digits
    return f"{write(low)} to {write(high)} %"


def _of_interactions(comparison: Comparison) -> Finding | None:
    lines = comparison.conclusion
    if len(lines) < 2:
        return Finding(lines[0], "", "") if lines else None
    keys = [key for key in comparison.columns if key[1].startswith("ndcg")] or comparison.columns[:1]
    leads = [text for text in (_behind(comparison, key) for key in keys) if text]
    alone = "is best" in lines[-2] or "beats all others" in lines[-2]
    best = next(iter(comparison.details.get("best", ())), {"first": "it"})["first"]
    todo = f"try {spoken(best)} against today's recommender in an A/B test"
    todo += "" if alone else f"; those too close to call may do as well{_would_decide(comparison, keys[0])}"
    names = dict.fromkeys(r.agent for r in comparison.records)
    longest = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    decision = re.sub(rf"(?<![\w+-])({longest})(?![\w+-])", lambda found: plain(found[1]), lines[-2])
    return Finding(
        decision, " ".join(leads), f"{_seen_before(comparison)}{lines[-1]} Next: {todo}.", "good" if alone else "tie"
    )


def _seen_before(comparison: Comparison) -> str:
    """Where many views are of items that the user has viewed before, and these may be named: what follows."""
    facts = comparison.details.get("facts", {})
    share = facts.get("repeats", 0) / max(facts.get("rows", 0), 1)
    if share < MANY_REPEATS or comparison.details.get("candidates") != "all":
        return ""
    return f"In {100.0 * share:.2g} % of the views the user knew the item, so naming known items pays here. "


MANY_REPEATS = 0.1
"""Share of views of items known to the user from which a page says so at once."""


def _leading(comparison: Comparison, key: tuple[str, str]) -> tuple[Record, Record] | None:
    """The first two of a test without a truth."""
    own = [r for r in comparison.records if (r.protocol, r.metric) == key and math.isfinite(r.value)]
    first, second = sorted(own, key=lambda r: -r.value)[:2] if len(own) > 1 else (None, None)
    return None if first is None or second is None or not first.value > 0.0 else (first, second)


def is_share_listed(metric: str) -> bool:
    """Whether a metric is the share of what is to be found that stands in a list, of more than one item."""
    return metric.startswith(("hr@", "recall@")) and not metric.endswith("@1")


def _behind(comparison: Comparison, key: tuple[str, str]) -> str:
    """How the first two of a test without a truth compare."""
    pair = _leading(comparison, key)
    if pair is None:
        return ""
    first, second = pair
    found = {r.agent: r for r in comparison.records if r.protocol == key[0] and is_share_listed(r.metric)}
    hint = f", but {first.n:,} users are only a hint" if first.n < LEAST_USERS else ""
    if first.agent not in found or second.agent not in found:
        behind = two_digits((first.value - second.value) / first.value)
        title = as_subject(method(TITLES.get(key[0], key[0])))
        return f"{title}: {spoken(second.agent)} is {behind} % behind {spoken(first.agent)}{hint}."
    hits = [f"{100.0 * found[r.agent].value:.0f}" for r in pair]
    if key[0] != "loocv":
        return "" if hint else f"Of 100 later views they name {hits[0]} and {hits[1]}."
    items = counted(int(found[first.agent].metric.partition("@")[2]))
    said = f"{spoken(first.agent)} names it among its first {items} items in {hits[0]} of 100 cases"
    return f"One view at a time of {first.n:,} users was hidden: {said}, {spoken(second.agent)} in {hits[1]}{hint}."


def _would_decide(comparison: Comparison, key: tuple[str, str]) -> str:
    """How many users would tell the first two apart, if they differ as much as they seem to."""
    pair = _leading(comparison, key)
    gap = 0.0 if pair is None else pair[0].value - pair[1].value
    if pair is None or not gap > 0.0 or not math.isfinite(width := half_width(*pair)):
        return ""
    users = pair[0].n * (width * seen(pair[0].level) / gap) ** 2
    return f"; to tell them apart here takes the views of some {rounded(users):,} users" if users > pair[0].n else ""


# --------------------------------------------------------------------------------------------------------- estimates


_ANSWERS: Mapping[str, tuple[str, str]] = {
    "better": ("{who} should beat {other}: try it in an A/B test.", "good"),
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
TODAY = "today's recommender"
"""What a page calls the policy that made the records."""
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
    decision = words.format(who=who, other=other)
    action = sentence.action
    if "A/B" in action:
        action += _size_of_test(plans)
    worse = () if sentence.segments is None else sentence.segments["worse"]
    if worse and sentence.answer == "better":
        names = listed(worse, MOST_NAMES)
        decision, kind = decision.replace("try it in an A/B test", _ELSEWHERE.format(names)), "tie"
    if tolerance is not None and sentence.sure == "trust":
        gap = "gain" if sentence.answer == "better" else "difference"
        return Finding(decision, lift, f"Next: {action}.", kind, by_segment, _asks(who, other, gap, tolerance, least))
    sure = _SURE[sentence.sure].format(doubt=doubt or "see below")
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


# ----------------------------------------------------------------------------------- advice, worlds that were fitted


def of_advice(found: Advice) -> Finding:
    """Whether the log decides."""
    pairs = [p for p in found.pairs if found.pick in (p["first"], p["second"])] if found.pick else found.pairs
    values = {row["agent"]: row["value"] for row in found.agents}
    nearest = min(pairs, key=lambda p: abs(p["difference"]), default=None)
    lift = "By how much recommenders differ, this log does not say."
    if nearest is not None:
        lift = _difference(nearest, values)
    if found.pick is not None:
        tied = f" {listed(found.tied, MOST_NAMES)} may be as good." if found.tied else ""
        return Finding(f"Take {found.pick}: the log decides.{tied}", lift, "Sure. Next: test it on users.", "good")
    if found.ab_test is not None:
        users = f"{found.ab_test['users']:,} users per variant"
        sure = f"Sure at {100 * found.facts['level']:g} % with {users}. Next: recsim-mnar plan ab."
        return Finding("The log does not decide: run an A/B test.", lift, sure)
    todo = found.exploration["line"] if found.exploration else "collect a log that shows more of what they recommend."
    return Finding("Do not decide by this log: it cannot show which is best.", lift,
                   f"Not sure. Next: {todo[0].lower()}{todo[1:]}", "bad")  # fmt: skip


def _difference(pair: Mapping[str, Any], values: Mapping[str, float | None]) -> str:
    """The lift of one agent over another, the larger first."""
    first, second, signs = pair["first"], pair["second"], (pair["low"], pair["high"])
    difference = pair["difference"]
    if difference < 0:
        first, second, difference, signs = second, first, -difference, (-signs[1], -signs[0])
    base = values.get(second)
    if not base or base <= 0.0:
        return f"{first} earns {difference:.3g} more than {second} ({signs[0]:.3g} to {signs[1]:.3g})."
    ends = " to ".join(signed(end / base) for end in signs)
    verb = "earns" if pair["decided"] else "may earn"
    return f"{first} {verb} {signed(difference / base)} % against {second} (95 % interval {ends} %)."


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
        lift += f" Its users click {per_cent(rate['value'])} % of the time; those of the log "
        lift += f"{per_cent(rate['low'])} to {per_cent(rate['high'])} % (90 % interval)."
    return Finding(decision, lift, "Not yet sure. Next: recsim-mnar validate says what it may be used for.", "tie")
